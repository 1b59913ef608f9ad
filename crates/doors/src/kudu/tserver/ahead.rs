//! Reading ahead: while a client takes in one answer, the next is made. The first two are made when they are asked for: many a
//! client wants no more.

use super::scanner::Scanner;
use super::scanners::Rest;
use crate::kudu::node::Node;
use oribi_engine::Reserved;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, TryLockResult};

/// An answer is made ahead if it takes at most one part in so many of what is left for queries, and all that are made ahead and
/// not asked for one of the memory's limit: clients may be slow to ask, or never do.
const AHEAD_SHARE: u64 = 8;

/// A scan that is open between two calls.
pub(super) struct OpenScan {
    /// The timestamp of its snapshot, for those who would not wait for the lock.
    pub snapshot_ts: u64,
    /// What it keeps of rows that were read, as of the end of the last call.
    pub rest: Rest,
    scanner: Mutex<Scanner>,
    /// Threads that hold the lock to read ahead, will, or have just done so.
    ahead: AtomicUsize,
}

impl OpenScan {
    pub fn new(scanner: Scanner, rest: Rest) -> Self {
        let snapshot_ts = scanner.snapshot.ts().0;
        rest.set(scanner.rest_bytes());
        OpenScan { snapshot_ts, rest, scanner: Mutex::new(scanner), ahead: AtomicUsize::new(0) }
    }

    /// The scanner, once what is read ahead is there, which this waits for; not while another call has it.
    pub fn lock_after_ahead(&self) -> TryLockResult<MutexGuard<'_, Scanner>> {
        match self.scanner.try_lock() {
            Err(TryLockError::WouldBlock) if self.ahead.load(Ordering::Acquire) > 0 => {
                self.scanner.lock().map_err(TryLockError::from)
            }
            locked => locked,
        }
    }
}

/// Memory for an answer that is made ahead, until this is dropped.
pub(super) struct AheadRoom {
    bytes: u64,
    /// Those of all answers that are made ahead.
    all: Arc<AtomicU64>,
    _reserved: Reserved,
}

impl AheadRoom {
    /// `None` if there is too little.
    fn try_new(node: &Node, bytes: u64) -> Option<Self> {
        let memory = node.engine.memory();
        if bytes > memory.left_for_queries() / AHEAD_SHARE {
            return None;
        }
        let reserved = Reserved::try_new(memory, bytes)?;
        let all = &node.scanners.ahead_bytes;
        let bytes_max = memory.limit() / AHEAD_SHARE;
        let with_these = |held: u64| held.checked_add(bytes).filter(|held| *held <= bytes_max);
        all.fetch_update(Ordering::AcqRel, Ordering::Acquire, with_these).ok()?;
        Some(AheadRoom { bytes, all: all.clone(), _reserved: reserved })
    }
}

impl Drop for AheadRoom {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Has the next answer of about `bytes_max` made by another thread, if there is memory for it.
pub(super) fn read_ahead(node: &Arc<Node>, open: &Arc<OpenScan>, bytes_max: usize) {
    let Some(room) = AheadRoom::try_new(node, bytes_max as u64) else { return };
    // Before there is a thread that may hold the lock, and until it does not any more: a call never finds it held for no reason.
    open.ahead.fetch_add(1, Ordering::AcqRel);
    let (node, open) = (node.clone(), Arc::downgrade(open));
    tokio::task::spawn_blocking(move || {
        // If it was closed before its turn came, nobody will ask.
        let Some(open) = open.upgrade() else { return };
        // One that failed says so to the next call.
        if let Ok(mut scanner) = open.scanner.lock() {
            scanner.read_ahead(bytes_max, &node.scanners.buffers, room);
            open.rest.set(scanner.rest_bytes());
        }
        node.scanners.close_excess();
        open.ahead.fetch_sub(1, Ordering::AcqRel);
    });
}
