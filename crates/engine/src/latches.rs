//! Locks over keys: nothing of a key changes while it is read, decided on and written.

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

const LATCHES: usize = 4096;
const WORD_BITS: usize = u64::BITS as usize;

/// Locks over keys, by hash. Two keys may share one.
pub(crate) struct Latches(Box<[Mutex<()>]>);

impl Latches {
    pub fn new() -> Self {
        Latches((0..LATCHES).map(|_| Mutex::new(())).collect())
    }

    /// Takes every latch: nobody is between deciding and applying.
    pub fn take_all(&self) -> Vec<MutexGuard<'_, ()>> {
        self.0.iter().map(|latch| latch.lock()).collect()
    }

    /// Takes the latches of all hashes, in one order for everybody, so that no two writers wait for each other.
    pub fn take(&self, mut hashes: impl ExactSizeIterator<Item = u64>) -> SmallVec<[MutexGuard<'_, ()>; 1]> {
        let lock = |i: usize| self.0[i].lock();
        if hashes.len() == 1
            && let Some(hash) = hashes.next()
        {
            return SmallVec::from_buf([lock(hash as usize % LATCHES)]);
        }
        let mut wanted = [0_u64; LATCHES / WORD_BITS];
        hashes
            .map(|hash| hash as usize % LATCHES)
            .for_each(|i| wanted[i / WORD_BITS] |= 1 << (i % WORD_BITS));
        let mut latches = SmallVec::with_capacity(wanted.iter().map(|word| word.count_ones() as usize).sum());
        for (i, mut word) in wanted.into_iter().enumerate() {
            while word != 0 {
                latches.push(lock(i * WORD_BITS + word.trailing_zeros() as usize));
                word &= word - 1;
            }
        }
        latches
    }
}
