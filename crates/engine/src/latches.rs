//! Locks over keys: nothing of a key changes while it is read, decided on and written.
//!
//! A write of thousands of rows takes nearly all latches of a tablet, so tablets have different ones as far as there are enough:
//! such writes to two tablets do not wait for each other.

use crate::index::KeyRef;
use oribi_env::locks::{self, Mutex, MutexGuard};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::sync::Notify;

const SETS: usize = 16;
/// Latches of a set.
const SET: usize = 2048;
const LATCHES: usize = SETS * SET;
const WORD_BITS: usize = u64::BITS as usize;
/// Looks at a latch before it counts as taken for long.
const SPINS: usize = 200;

/// Locks over keys, by tablet and hash. Two keys may share one.
pub(crate) struct Latches(Box<[Mutex<(), { locks::LATCH }>]>);

pub(crate) type Latch<'l> = MutexGuard<'l, (), { locks::LATCH }>;

/// The latches of a write.
pub(crate) type Taken<'l> = SmallVec<[Latch<'l>; 1]>;

/// The set of a tablet's latches. Tablets of up to eight generations in a row, as those of a new table are, share none.
fn set_of(generation: u64) -> usize {
    // Fibonacci hashing (Knuth, TAOCP 6.4).
    (generation.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SETS.ilog2())) as usize
}

/// The number of a key's latch.
fn latch_of(key: KeyRef<'_>) -> usize {
    set_of(key.generation) * SET + key.hash as usize % SET
}

impl Latches {
    pub fn new() -> Self {
        Latches((0..LATCHES).map(|_| Mutex::new(())).collect())
    }

    /// Takes the latches of all keys that tablets of `generations` have or may get.
    pub fn take_sets(&self, generations: &[u64]) -> Vec<Latch<'_>> {
        let wanted = |set: &usize| generations.iter().any(|generation| set_of(*generation) == *set);
        let latches = (0..SETS).filter(wanted).flat_map(|set| &self.0[set * SET..][..SET]);
        latches.map(|latch| latch.lock()).collect()
    }

    /// Takes the latches of all keys, in one order for everybody, so that no two writers wait for each other. `None` if others
    /// have one, unless it `waits`.
    #[inline]
    pub fn take<'k>(
        &self,
        mut keys: impl ExactSizeIterator<Item = KeyRef<'k>>,
        waits: bool,
    ) -> Option<Taken<'_>> {
        if keys.len() == 1
            && let Some(key) = keys.next()
        {
            return Some(SmallVec::from_buf([self.lock(latch_of(key), waits)?]));
        }
        let mut latches = SmallVec::with_capacity(keys.len().min(LATCHES));
        let mut wanted = [0_u64; LATCHES / WORD_BITS];
        // Mostly they are of one set.
        let (mut first, mut end) = (wanted.len(), 0);
        for i in keys.map(latch_of) {
            let at = i / WORD_BITS;
            wanted[at] |= 1 << (i % WORD_BITS);
            (first, end) = (first.min(at), end.max(at + 1));
        }
        for (i, mut word) in wanted.iter().copied().enumerate().take(end).skip(first) {
            while word != 0 {
                latches.push(self.lock(i * WORD_BITS + word.trailing_zeros() as usize, waits)?);
                word &= word - 1;
            }
        }
        Some(latches)
    }

    #[inline(always)]
    fn lock(&self, i: usize, waits: bool) -> Option<Latch<'_>> {
        let latch = &self.0[i];
        if waits { Some(latch.lock()) } else { latch.try_lock().or_else(|| lock_soon(latch)) }
    }
}

/// Tells who wants latches without waiting with a thread that many were given back.
#[derive(Default)]
pub(crate) struct Released {
    waiting: AtomicUsize,
    notify: Notify,
}

impl Released {
    #[inline]
    pub fn tell(&self) {
        if self.waiting.load(SeqCst) > 0 {
            self.notify.notify_waiters();
        }
    }

    pub async fn next(&self) {
        let _waiting = Waiting::new(self);
        self.notify.notified().await;
    }
}

struct Waiting<'r>(&'r Released);

impl<'r> Waiting<'r> {
    fn new(released: &'r Released) -> Self {
        released.waiting.fetch_add(1, SeqCst);
        Waiting(released)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

/// Whoever writes one row is done with its latch in a microsecond.
#[cold]
fn lock_soon(latch: &Mutex<(), { locks::LATCH }>) -> Option<Latch<'_>> {
    (0..SPINS).find_map(|_| {
        std::hint::spin_loop();
        latch.try_lock()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn writes_to_tablets_of_a_new_table_do_not_meet() {
        for first in 0..100 {
            let keys = |generation| (0..SET as u64).map(move |hash| KeyRef { hash, generation, key: b"" });
            let latches: HashSet<usize> = (first..first + 8).flat_map(keys).map(latch_of).collect();
            assert_eq!(latches.len(), 8 * SET, "{first}");
        }
    }
}
