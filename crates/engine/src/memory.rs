//! The memory budget: one limit over memtables, row cache and queries.
//!
//! Memtables may take half of it: at a quarter flushing starts, at half writers wait. Queries take what they can
//! reserve. The row cache takes what is left and gives it back first.

use oribi_types::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tokio::sync::Notify;

/// Bytes in use, by purpose. Shared by all parts of an engine and by the query engine.
pub struct MemoryBudget {
    limit: u64,
    memtables: AtomicU64,
    cache: AtomicU64,
    queries: AtomicU64,
    closed: AtomicBool,
    /// Why flushing makes no room at the moment, if so.
    stalled: Mutex<Option<Error>>,
    /// Writers that wait for a flush sleep here.
    room: Condvar,
    room_lock: Mutex<()>,
    room_async: Notify,
}

impl MemoryBudget {
    pub(crate) fn new(limit: u64) -> Self {
        MemoryBudget {
            limit,
            memtables: AtomicU64::new(0),
            cache: AtomicU64::new(0),
            queries: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            stalled: Mutex::new(None),
            room: Condvar::new(),
            room_lock: Mutex::new(()),
            room_async: Notify::new(),
        }
    }

    /// Reserves `bytes` for a query; false if memtables and queries would then exceed the budget.
    pub fn try_reserve(&self, bytes: u64) -> bool {
        let reserved = self.queries.fetch_add(bytes, Relaxed) + bytes;
        if reserved + self.memtables.load(Relaxed) <= self.limit {
            return true;
        }
        self.queries.fetch_sub(bytes, Relaxed);
        false
    }

    /// Gives back what [`try_reserve`](Self::try_reserve) took.
    pub fn release(&self, bytes: u64) {
        self.queries.fetch_sub(bytes, Relaxed);
    }

    /// Bytes in use for all purposes.
    pub fn used(&self) -> u64 {
        self.memtables() + self.cache() + self.queries()
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

    /// How many bytes of clean rows must go for the budget to hold.
    pub(crate) fn cache_excess(&self) -> u64 {
        let room = self.limit.saturating_sub(self.memtables() + self.queries());
        self.cache().saturating_sub(room)
    }

    pub(crate) fn wants_flush(&self) -> bool {
        self.memtables() > self.limit / 4
    }

    fn writers_must_wait(&self) -> bool {
        self.memtables() > self.limit / 2 && !self.closed.load(Relaxed)
    }

    /// Blocks while memtables hold half of the budget.
    ///
    /// # Errors
    /// `Unavailable` once the engine is closed, or if flushing fails: waiting may then take forever.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        if self.writers_must_wait() {
            let mut guard = self.room_lock.lock();
            while self.writers_must_wait() {
                if let Some(why) = &*self.stalled.lock() {
                    return Err(Error::unavailable(format!("memory is full and cannot be flushed: {why}")));
                }
                self.room.wait(&mut guard);
            }
        }
        if self.closed.load(Relaxed) {
            return Err(Error::unavailable("the engine is closed"));
        }
        Ok(())
    }

    pub(crate) async fn room(&self) {
        let must_wait = || self.writers_must_wait() && self.stalled.lock().is_none();
        while must_wait() {
            let notified = self.room_async.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if !must_wait() {
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

    /// How flushing goes.
    pub(crate) fn set_stalled(&self, why: Option<Error>) {
        let stalled = why.is_some();
        *self.stalled.lock() = why;
        if stalled {
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

    pub(crate) fn memtables_shrank(&self, bytes: u64) {
        let before = self.memtables.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "memtable bytes are counted in and out alike");
        if before > self.limit / 2 {
            self.wake_writers();
        }
    }

    pub(crate) fn cache_grew(&self, bytes: u64) {
        self.cache.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn cache_shrank(&self, bytes: u64) {
        let before = self.cache.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "cache bytes are counted in and out alike");
    }
}
