//! Locks over keys: nothing of a key changes while it is read, decided on and written.

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

const LATCHES: usize = 4096;

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
        let mut order: SmallVec<[usize; 1]> = hashes.map(|hash| hash as usize % LATCHES).collect();
        order.sort_unstable();
        order.dedup();
        order.into_iter().map(lock).collect()
    }
}
