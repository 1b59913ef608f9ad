//! Reading ahead: while a client takes in one answer, the next is made. The first two are made when they are asked for: many a
//! client wants no more.

use super::scanner::Scanner;
use crate::kudu::node::Node;
use oribi_engine::Reserved;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, TryLockResult};

/// An answer is made ahead if it takes at most one part in so many of what is left for queries.
const AHEAD_SHARE: u64 = 8;

/// A scan that is open between two calls.
pub(super) struct OpenScan {
    scanner: Mutex<Scanner>,
    /// Threads that hold the lock to read ahead, will, or have just done so.
    ahead: AtomicUsize,
}

impl OpenScan {
    pub fn new(scanner: Scanner) -> Self {
        OpenScan { scanner: Mutex::new(scanner), ahead: AtomicUsize::new(0) }
    }

    /// The scanner, once what is read ahead is there; not while another call has it.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, Scanner>> {
        match self.scanner.try_lock() {
            Err(TryLockError::WouldBlock) if self.ahead.load(Ordering::Acquire) > 0 => {
                self.scanner.lock().map_err(TryLockError::from)
            }
            locked => locked,
        }
    }
}

/// Has the next answer of about `bytes_max` made by another thread, if there is memory for it.
pub(super) fn read_ahead(node: &Arc<Node>, open: Arc<OpenScan>, bytes_max: usize) {
    let bytes = bytes_max as u64;
    let memory = node.engine.memory();
    if bytes > memory.left_for_queries() / AHEAD_SHARE {
        return;
    }
    let Some(reserved) = Reserved::try_new(memory, bytes) else { return };
    // Before there is a thread that may hold the lock, and until it does not any more: a call never finds it held for no reason.
    open.ahead.fetch_add(1, Ordering::AcqRel);
    let node = node.clone();
    tokio::task::spawn_blocking(move || {
        // One that failed says so to the next call.
        if let Ok(mut scanner) = open.scanner.lock() {
            scanner.read_ahead(bytes_max, &node.scanners.buffers, reserved);
        }
        open.ahead.fetch_sub(1, Ordering::AcqRel);
    });
}
