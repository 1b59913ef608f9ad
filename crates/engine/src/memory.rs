//! The memory budget: one limit over memtables, queries, open SSTables, background jobs and the row cache.
//!
//! The rule: memtables and queries take what indexes, jobs and kept results leave of the limit; the row cache takes what they all
//! leave and gives it back first. Rows that scans hold after they have left memtables and cache are counted, up to half of the
//! limit. Memtables have an eighth of the limit whatever happens, so that a flush alone always
//! lets writers go on, and may take up to half while nobody else wants it; queries have an eighth too. When they fill half of what they may, flushing
//! starts; beyond all of it, writers wait. Queries are refused what would break the rule. Indexes, jobs and results are
//! only counted, and so is what a query takes without asking: the others make room for them, as far as they can.

use oribi_env::locks::{self, Condvar, Mutex};
use oribi_types::{Error, ErrorKind, Result};
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tokio::sync::Notify;

/// Bytes in use, by purpose. Shared by all parts of an engine and by the query engine.
pub struct MemoryBudget {
    limit: u64,
    memtables: AtomicU64,
    /// Of the memtables: what could not be flushed and is left alone for a while.
    stuck: AtomicU64,
    cache: AtomicU64,
    queries: AtomicU64,
    /// Indexes of the open SSTables and their marks, as last measured.
    indexes: AtomicU64,
    /// What flushes and compactions that run now hold.
    jobs: AtomicU64,
    /// Results that are kept by request id.
    results: AtomicU64,
    /// Rows that nobody has but scans, as last measured.
    held: AtomicU64,
    closed: AtomicBool,
    /// Why flushing makes no room at the moment, if so.
    stalled: Mutex<Option<Error>, { locks::STALLED }>,
    /// Writers that wait for a flush sleep here.
    room: Condvar,
    room_lock: Mutex<(), { locks::ROOM }>,
    room_async: Notify,
}

impl MemoryBudget {
    pub(crate) fn new(limit: u64) -> Self {
        MemoryBudget {
            limit,
            memtables: AtomicU64::new(0),
            stuck: AtomicU64::new(0),
            cache: AtomicU64::new(0),
            queries: AtomicU64::new(0),
            indexes: AtomicU64::new(0),
            jobs: AtomicU64::new(0),
            results: AtomicU64::new(0),
            held: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            stalled: Mutex::new(None),
            room: Condvar::new(),
            room_lock: Mutex::new(()),
            room_async: Notify::new(),
        }
    }

    /// Reserves `bytes` for a query; false if the budget would then be exceeded.
    pub fn try_reserve(&self, bytes: u64) -> bool {
        let reserved = self.queries.fetch_add(bytes, Relaxed) + bytes;
        if reserved <= self.queries_max() {
            return true;
        }
        self.queries.fetch_sub(bytes, Relaxed);
        false
    }

    /// Counts `bytes` that a query takes whether or not there is room.
    pub fn reserve(&self, bytes: u64) {
        self.queries.fetch_add(bytes, Relaxed);
    }

    /// Gives back what [`try_reserve`](Self::try_reserve) or [`reserve`](Self::reserve) took. Writers that wait notice
    /// at the flush thread's next look: the caller may be a thread of idle priority, which takes no lock of theirs.
    pub fn release(&self, bytes: u64) {
        self.queries.fetch_sub(bytes, Relaxed);
    }

    /// How much more queries can reserve.
    pub fn left_for_queries(&self) -> u64 {
        self.queries_max().saturating_sub(self.queries())
    }

    /// Bytes in use for all purposes.
    pub fn used(&self) -> u64 {
        self.memtables() + self.queries() + self.resident() + self.cache()
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn memtables(&self) -> u64 {
        self.memtables.load(Relaxed)
    }

    pub fn cache(&self) -> u64 {
        self.cache.load(Relaxed)
    }

    pub fn queries(&self) -> u64 {
        self.queries.load(Relaxed)
    }

    /// What the indexes of open SSTables take.
    pub fn indexes(&self) -> u64 {
        self.indexes.load(Relaxed)
    }

    /// What flushes and compactions hold beside the rows in memory.
    pub fn jobs(&self) -> u64 {
        self.jobs.load(Relaxed)
    }

    /// What results of requests take.
    pub fn results(&self) -> u64 {
        self.results.load(Relaxed)
    }

    /// What scans hold of rows that are neither in memtables nor in the row cache.
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Beyond it, scans are ended.
    pub(crate) fn held_max(&self) -> u64 {
        self.limit / HELD_SHARE
    }

    /// What rows that are being read from files may take of the memory of queries, as far as they are long.
    pub(crate) fn long_reads_max(&self) -> u64 {
        self.limit / LONG_READS_SHARE
    }

    /// What is only counted: the others make room for it.
    fn resident(&self) -> u64 {
        self.indexes() + self.jobs() + self.results() + self.held()
    }

    fn queries_max(&self) -> u64 {
        let others = self.memtables().max(self.limit / MEMTABLES_MIN_SHARE) + self.resident();
        self.limit.saturating_sub(others).max(self.limit / QUERIES_MIN_SHARE)
    }

    fn memtables_max(&self) -> u64 {
        let others = self.queries() + self.resident();
        self.limit.saturating_sub(others).clamp(self.limit / MEMTABLES_MIN_SHARE, self.limit / 2)
    }

    /// How many bytes of clean rows must go for the budget to hold.
    pub(crate) fn cache_excess(&self) -> u64 {
        self.cache().saturating_sub(self.cache_max())
    }

    /// What all others leave to the row cache.
    pub(crate) fn cache_max(&self) -> u64 {
        let others = self.memtables() + self.queries() + self.resident();
        self.limit.saturating_sub(others)
    }

    /// Whether memtables fill half of what they may. Those that are stuck are left out of both, or the others would be
    /// flushed at every write.
    #[inline]
    pub(crate) fn wants_flush(&self) -> bool {
        // Most writes find less than half of the least that they may fill, whatever is stuck.
        self.memtables() > self.limit / MEMTABLES_MIN_SHARE / 2 && self.is_half_full()
    }

    fn is_half_full(&self) -> bool {
        let stuck = self.stuck.load(Relaxed);
        self.memtables().saturating_sub(stuck) > self.memtables_max().saturating_sub(stuck) / 2
    }

    /// Whether writers will soon have to wait for a flush.
    pub(crate) fn is_pressed(&self) -> bool {
        self.memtables() > self.memtables_max() / 4 * 3
    }

    #[inline]
    fn writers_must_wait(&self) -> bool {
        // As above.
        self.memtables() > self.limit / MEMTABLES_MIN_SHARE
            && self.memtables() > self.memtables_max()
            && !self.closed.load(Relaxed)
    }

    /// Blocks while memtables hold more than they may.
    ///
    /// # Errors
    /// `Unavailable` once the engine is closed, or if flushing fails: waiting may then take forever. `DiskFull` if that is why.
    /// `WouldBlock` unless it `waits`.
    #[inline]
    pub(crate) fn wait_for_room(&self, waits: bool) -> Result<()> {
        if self.writers_must_wait() || self.closed.load(Relaxed) {
            self.wait_while_full(waits)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn wait_while_full(&self, waits: bool) -> Result<()> {
        let mut guard = self.room_lock.lock();
        while self.writers_must_wait() {
            if let Some(why) = &*self.stalled.lock() {
                return Err(why.clone().into_refusal().context("memory is full and cannot be flushed"));
            }
            if !waits {
                return Err(Error::new(ErrorKind::WouldBlock, "memory is full"));
            }
            self.room.wait(&mut guard);
        }
        drop(guard);
        if self.closed.load(Relaxed) {
            return Err(Error::unavailable("the engine is closed"));
        }
        Ok(())
    }

    /// Whether writers wait for memory, or are refused for want of it.
    pub(crate) fn is_full(&self) -> bool {
        self.writers_must_wait()
    }

    /// Whether writers need not wait, or would wait in vain.
    pub(crate) fn admits(&self) -> bool {
        !self.writers_must_wait() || self.stalled.lock().is_some()
    }

    pub(crate) async fn room(&self) {
        while !self.admits() {
            let notified = self.room_async.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.admits() {
                return;
            }
            notified.await;
        }
    }

    /// Wakes every waiting writer to an error.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        self.wake_writers();
    }

    /// How flushing goes: `bytes` of memtables are stuck for the reason `why`. Writers are refused if no other memtable
    /// can make room for them.
    pub(crate) fn set_stuck(&self, bytes: u64, why: Option<Error>) {
        self.stuck.store(bytes, Relaxed);
        *self.stalled.lock() = why.filter(|_| bytes > self.memtables_max());
        // Also tells those for whom a query made room.
        if self.stalled.lock().is_some() || !self.writers_must_wait() {
            self.wake_writers();
        }
    }

    fn wake_writers(&self) {
        drop(self.room_lock.lock());
        self.room.notify_all();
        self.room_async.notify_waiters();
    }

    pub(crate) fn memtables_grew(&self, bytes: u64) {
        self.memtables.fetch_add(bytes, Relaxed);
    }

    /// As [`memtables_grew`](Self::memtables_grew) and [`memtables_shrank`](Self::memtables_shrank); nothing where the
    /// two are equal, as they mostly are where a row is overwritten.
    pub(crate) fn memtables_changed(&self, grew: u64, shrank: u64) {
        match grew.cmp(&shrank) {
            Ordering::Less => self.memtables_shrank(shrank - grew),
            Ordering::Equal => {}
            Ordering::Greater => self.memtables_grew(grew - shrank),
        }
    }

    pub(crate) fn memtables_shrank(&self, bytes: u64) {
        let before = self.memtables.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "memtable bytes are counted in and out alike");
        // Once, when the last byte too many goes.
        let max = self.memtables_max();
        if before > max && before - bytes <= max {
            self.wake_writers();
        }
    }

    pub(crate) fn set_indexes(&self, bytes: u64) {
        self.indexes.store(bytes, Relaxed);
    }

    pub(crate) fn set_results(&self, bytes: u64) {
        self.results.store(bytes, Relaxed);
    }

    pub(crate) fn set_held(&self, bytes: u64) {
        self.held.store(bytes, Relaxed);
    }

    /// Counts what a flush or compaction takes, until the guard goes.
    pub(crate) fn hold(&self, bytes: usize) -> Held<'_> {
        self.jobs.fetch_add(bytes as u64, Relaxed);
        Held { budget: self, bytes: bytes as u64 }
    }

    pub(crate) fn cache_grew(&self, bytes: u64) {
        self.cache.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn cache_shrank(&self, bytes: u64) {
        let before = self.cache.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "cache bytes are counted in and out alike");
    }
}

/// One part in so many of the limit is for memtables whatever others hold, and one for queries.
const MEMTABLES_MIN_SHARE: u64 = 8;
const QUERIES_MIN_SHARE: u64 = 8;
/// Long rows that are being read from files have as much as queries always have.
const LONG_READS_SHARE: u64 = QUERIES_MIN_SHARE;
/// And one for rows that scans hold at most: as much as memtables, all of which one scan may hold, have at most.
const HELD_SHARE: u64 = 2;

/// Memory of a job, counted until this is dropped.
pub(crate) struct Held<'a> {
    budget: &'a MemoryBudget,
    bytes: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.budget.jobs.fetch_sub(self.bytes, Relaxed);
    }
}

/// Memory of a query, reserved until this is dropped.
pub struct Reserved {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Reserved {
    /// Whether or not there is room.
    pub(crate) fn new(budget: &Arc<MemoryBudget>, bytes: u64) -> Self {
        budget.reserve(bytes);
        Reserved { budget: budget.clone(), bytes }
    }

    /// `None` if the budget would be exceeded.
    pub fn try_new(budget: &Arc<MemoryBudget>, bytes: u64) -> Option<Self> {
        budget.try_reserve(bytes).then(|| Reserved { budget: budget.clone(), bytes })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 8000;

    #[test]
    fn writers_and_queries_share_the_limit_whoever_comes_first() {
        let budget = MemoryBudget::new(LIMIT);
        assert!(budget.try_reserve(6000));
        budget.memtables_grew(2001);
        assert!(budget.writers_must_wait(), "6,000 for queries leave 2,000");
        assert!(!budget.try_reserve(1));
        budget.release(6000);
        assert!(!budget.writers_must_wait(), "the query has ended");
        budget.memtables_grew(1999);
        assert!(!budget.writers_must_wait() && budget.try_reserve(4000) && !budget.try_reserve(1));
        budget.memtables_grew(1);
        assert!(budget.writers_must_wait());
    }

    #[test]
    fn what_is_only_counted_takes_room_from_all_others() {
        let budget = MemoryBudget::new(LIMIT);
        budget.set_indexes(2500);
        budget.set_held(500);
        let held = budget.hold(1000);
        budget.reserve(2000);
        assert_eq!((budget.memtables_max(), budget.left_for_queries()), (2000, 1000));
        budget.cache_grew(2500);
        assert_eq!((budget.used(), budget.cache_excess()), (8500, 500));
        drop(held);
        assert_eq!(budget.cache_excess(), 0);
        // However much that is, memtables keep a part: a flush is always enough for writers to go on.
        budget.set_indexes(9000);
        assert_eq!(budget.memtables_max(), 1000);
        budget.memtables_grew(1000);
        assert!(!budget.writers_must_wait());
        // And so do queries; nothing is left for the cache.
        assert_eq!((budget.left_for_queries(), budget.cache_max()), (0, 0));
        budget.release(2000);
        assert_eq!(budget.left_for_queries(), 1000);
    }

    #[test]
    fn a_memtable_that_is_stuck_lets_others_be_flushed_in_time_and_not_at_every_write() {
        let budget = MemoryBudget::new(LIMIT);
        budget.memtables_grew(2400);
        assert!(budget.wants_flush());
        budget.set_stuck(2400, Some(Error::internal("a damaged page")));
        assert!(!budget.wants_flush());
        budget.memtables_grew(800);
        assert!(!budget.wants_flush());
        budget.memtables_grew(900);
        assert!(budget.wants_flush() && budget.writers_must_wait());
        assert!(budget.stalled.lock().is_none(), "flushing the others makes room");
        budget.set_stuck(4001, Some(Error::internal("a damaged page")));
        assert!(budget.wait_for_room(true).is_err());
    }
}
