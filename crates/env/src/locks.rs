//! The order of locks: whoever holds one asks only for those that stand further down.
//!
//! A debug build checks it wherever one of these locks is taken, so that every test looks for deadlocks, also those that would
//! need two threads to meet. A release build has the bare locks.
//!
//! | rank | lock | whoever holds it |
//! |---|---|---|
//! | [`DDL`] | of the engine | changes the catalog; publishes an import |
//! | [`COMPACTION`] | of a tablet | compacts its files |
//! | [`FLUSH`] | of a tablet, several by number | seals and flushes its memtables |
//! | [`INSTALLER`] | of a tablet, several by number | changes its files and marks |
//! | [`LATCH`] | of keys, several by number | decides a write and applies it |
//! | [`CEILING`] | of the engine | reserves timestamps in the manifest |
//! | [`SAVED_RESULTS`] | of the engine | moves the log's start, with the results that it then lacks |
//! | [`BULK`] | of the engine | shared: has the gate to apply many rows; alone: is about to ask for the gate alone |
//! | [`GATE`] | of the engine | shared: applies a write; alone: seals, or changes what writes ask for |
//! | [`RESULTS`] | of the engine | looks up or keeps the result of a request |
//! | [`GIVEN_UP`] | of the engine | removes what changes that failed have left |
//! | [`MANIFEST`] | of the engine | writes a record |
//! | [`LOG_TRIMMING`], [`LOG_WRITER`], [`LOG_ACTIVE`], [`LOG_SEGMENTS`], [`LOG_SPARES`], [`LOG_CONTROL`] | of the log | see `oribi_wal` |
//! | [`WALK`] | of a scan | makes the next batch of rows in memory, or holds what is left of them |
//! | [`ORDER`] | of a memtable | sorts keys that came since the last range read, or looks up what those replace that came since the last scan |
//! | [`SHARD`] | of the row index | changes a row's versions |
//! | [`KEYS`], [`WALKS`] | of a memtable | adds to its list of keys, or to its rows as columns; of scans |
//! | [`WRITES`], [`SNAPSHOTS`] | of the timeline | takes or completes a timestamp; registers a snapshot, asks for the horizon |
//! | [`ROOM`], [`STALLED`] | of the memory budget | waits for room; says why there is none |
//! | [`TRANSACTIONS`] | of the engine | looks up, begins or ends a transaction |
//! | [`TRANSACTION`] | of a transaction | changes it, or reads what it has changed |
//! | [`LOCK_WAITS`] | of the engine | says that a transaction waits for another, or does no more |
//! | [`LEAF`] | | asks for no other |
//!
//! Not ranked: locks of the allocator of rows, which ask for no other but their own next one; the turns that statements of SQL
//! take at a table, which come before all of these; other locks of doors, sessions and SQL, which nobody holds who calls the
//! engine.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub const DDL: u8 = 0;
pub const COMPACTION: u8 = 1;
pub const FLUSH: u8 = 2;
pub const INSTALLER: u8 = 3;
pub const LATCH: u8 = 4;
pub const CEILING: u8 = 5;
pub const SAVED_RESULTS: u8 = 6;
pub const BULK: u8 = 7;
pub const GATE: u8 = 8;
pub const RESULTS: u8 = 9;
pub const GIVEN_UP: u8 = 10;
pub const MANIFEST: u8 = 11;
pub const LOG_TRIMMING: u8 = 12;
pub const LOG_WRITER: u8 = 13;
pub const LOG_ACTIVE: u8 = 14;
pub const LOG_SEGMENTS: u8 = 15;
pub const LOG_SPARES: u8 = 16;
pub const LOG_CONTROL: u8 = 17;
pub const WALK: u8 = 18;
pub const ORDER: u8 = 19;
pub const SHARD: u8 = 20;
pub const KEYS: u8 = 21;
pub const WALKS: u8 = 22;
pub const WRITES: u8 = 23;
pub const SNAPSHOTS: u8 = 24;
pub const ROOM: u8 = 25;
pub const STALLED: u8 = 26;
pub const TRANSACTIONS: u8 = 27;
pub const TRANSACTION: u8 = 28;
pub const LOCK_WAITS: u8 = 29;
pub const LEAF: u8 = 30;

/// A lock of a rank.
#[derive(Default)]
pub struct Mutex<T, const RANK: u8>(parking_lot::Mutex<T>);

/// A lock that is held.
pub struct MutexGuard<'l, T, const RANK: u8> {
    guard: parking_lot::MutexGuard<'l, T>,
    _entered: Entered<RANK>,
}

impl<T, const RANK: u8> Mutex<T, RANK> {
    pub const fn new(value: T) -> Self {
        Mutex(parking_lot::Mutex::new(value))
    }

    #[inline(always)]
    pub fn lock(&self) -> MutexGuard<'_, T, RANK> {
        let entered = Entered::waiting();
        MutexGuard { guard: self.0.lock(), _entered: entered }
    }

    /// Without waiting, and so whatever else is held.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, RANK>> {
        self.0.try_lock().map(|guard| MutexGuard { guard, _entered: Entered::at_once() })
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T, const RANK: u8> Deref for MutexGuard<'_, T, RANK> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const RANK: u8> DerefMut for MutexGuard<'_, T, RANK> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A lock of a rank that several may share.
#[derive(Default)]
pub struct RwLock<T, const RANK: u8>(parking_lot::RwLock<T>);

impl<T, const RANK: u8> RwLock<T, RANK> {
    pub const fn new(value: T) -> Self {
        RwLock(parking_lot::RwLock::new(value))
    }

    #[inline(always)]
    pub fn read(&self) -> (parking_lot::RwLockReadGuard<'_, T>, Entered<RANK>) {
        let entered = Entered::waiting();
        (self.0.read(), entered)
    }

    /// Without waiting, and so whatever else is held.
    #[inline(always)]
    pub fn try_read(&self) -> Option<(parking_lot::RwLockReadGuard<'_, T>, Entered<RANK>)> {
        self.0.try_read().map(|guard| (guard, Entered::at_once()))
    }

    #[inline(always)]
    pub fn write(&self) -> (parking_lot::RwLockWriteGuard<'_, T>, Entered<RANK>) {
        let entered = Entered::waiting();
        (self.0.write(), entered)
    }

    /// Whether somebody has it alone, or waits for that, so that nobody else gets it: for tests.
    pub fn is_closed(&self) -> bool {
        self.0.is_locked_exclusive()
    }
}

/// What is waited for with a lock, which is given up meanwhile.
#[derive(Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub const fn new() -> Self {
        Condvar(parking_lot::Condvar::new())
    }

    pub fn wait<T, const RANK: u8>(&self, guard: &mut MutexGuard<'_, T, RANK>) {
        self.0.wait(&mut guard.guard);
    }

    /// Whether the time was over before anybody woke it.
    pub fn wait_for<T, const RANK: u8>(&self, guard: &mut MutexGuard<'_, T, RANK>, max: Duration) -> bool {
        self.0.wait_for(&mut guard.guard, max).timed_out()
    }

    #[inline(always)]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    #[inline(always)]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Does what another thread would do, which holds nothing of what this one does: for tests that act in the middle of something.
pub fn as_another_thread<R>(act: impl FnOnce() -> R) -> R {
    #[cfg(debug_assertions)]
    let before = held::replace(held::NOTHING);
    let done = act();
    #[cfg(debug_assertions)]
    held::replace(before);
    done
}

/// That a lock of a rank is held: for locks that are elsewhere.
pub struct Entered<const RANK: u8>(());

impl<const RANK: u8> Entered<RANK> {
    /// Before it is waited for.
    #[inline(always)]
    pub fn waiting() -> Self {
        #[cfg(debug_assertions)]
        held::enter(RANK, true);
        Entered(())
    }

    #[inline(always)]
    fn at_once() -> Self {
        #[cfg(debug_assertions)]
        held::enter(RANK, false);
        Entered(())
    }
}

impl<const RANK: u8> Drop for Entered<RANK> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        held::leave(RANK);
    }
}

#[cfg(debug_assertions)]
mod held {
    use super::{FLUSH, INSTALLER, LATCH, LEAF};
    use std::cell::Cell;

    const RANKS: usize = LEAF as usize + 1;

    pub type Held = [u32; RANKS];
    pub const NOTHING: Held = [0; RANKS];

    thread_local! {
        /// How many locks of each rank the thread holds.
        static HELD: Cell<Held> = const { Cell::new(NOTHING) };
    }

    /// A thread that ends checks nothing any more.
    fn change(rank: u8, change: impl FnOnce(&Held, &mut u32)) {
        let _ = HELD.try_with(|held| {
            let before = held.get();
            let mut after = before;
            change(&before, &mut after[usize::from(rank)]);
            held.set(after);
        });
    }

    pub fn replace(held: Held) -> Held {
        HELD.try_with(|before| before.replace(held)).unwrap_or(NOTHING)
    }

    pub fn enter(rank: u8, waits: bool) {
        change(rank, |held, own| {
            *own += 1;
            // Several of one tablet set or key set, in the order of their numbers.
            let is_one_of_many = matches!(rank, FLUSH | INSTALLER | LATCH);
            let first = usize::from(rank) + usize::from(is_one_of_many);
            let later = (first..RANKS).find(|later| held[*later] > 0);
            assert!(
                !waits || later.is_none() || std::thread::panicking(),
                "a lock of rank {rank} is asked for by a thread that holds one of rank {later:?}"
            );
        });
    }

    pub fn leave(rank: u8) {
        change(rank, |_, own| *own = own.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_downward() {
        let (gate, manifest) = (RwLock::<(), GATE>::default(), Mutex::<(), MANIFEST>::default());
        let latches = [const { Mutex::<(), LATCH>::new(()) }; 2];
        let held: Vec<_> = latches.iter().map(Mutex::lock).collect();
        let shared = gate.read();
        drop(manifest.lock());
        drop((held, shared));
        drop(manifest.lock());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a lock of rank 4 is asked for by a thread that holds one of rank Some(8)")]
    fn a_lock_that_stands_above_one_that_is_held_is_refused() {
        let (gate, latch) = (RwLock::<(), GATE>::default(), Mutex::<(), LATCH>::default());
        let _gate = gate.write();
        let _latch = latch.lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a lock of rank 11 is asked for by a thread that holds one of rank Some(11)")]
    fn a_lock_is_not_taken_twice() {
        let manifest = Mutex::<(), MANIFEST>::default();
        let _first = manifest.lock();
        let _second = manifest.lock();
    }

    #[test]
    fn who_does_not_wait_may_take_any() {
        let (gate, flush) = (RwLock::<(), GATE>::default(), Mutex::<(), FLUSH>::default());
        let _gate = gate.write();
        assert!(flush.try_lock().is_some());
    }
}
