//! The scans that are open between two calls.

use super::ahead::OpenScan;
use super::buffers::Buffers;
use super::scanner::Scanner;
use bytes::Bytes;
use oribi_types::{Error, Result};
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// A scan that nobody goes on with for so long is closed; Kudu's own limit (`--scanner_ttl_ms`).
pub(super) const SCANNER_IDLE_MAX: Duration = Duration::from_secs(60);
/// Each keeps what it sees readable, so there is an end to them.
const SCANNERS_MAX: usize = 4096;

#[derive(Default)]
pub(in crate::kudu) struct Scanners {
    open: Mutex<HashMap<Bytes, OpenScanner>>,
    /// For their answers.
    pub(super) buffers: Buffers,
    /// What those of them may take that were made ahead and not asked for.
    pub(super) ahead_bytes: Arc<AtomicU64>,
}

struct OpenScanner {
    scan: Arc<OpenScan>,
    touched: Instant,
}

impl Scanners {
    fn lock(&self) -> MutexGuard<'_, HashMap<Bytes, OpenScanner>> {
        self.open.lock().expect("nothing panics while it holds the scanners")
    }

    /// Keeps a scan; returns its id.
    ///
    /// # Errors
    /// `Retry` if there are too many; `Internal` if the system gives no random numbers.
    pub(super) fn keep(&self, scanner: Scanner) -> Result<Bytes> {
        // An id of before a restart must not name another scan.
        let id = crate::kudu::random_id()?;
        let id = Bytes::from(format!("{:032x}", u128::from_be_bytes(id)));
        let mut scanners = self.lock();
        if scanners.len() >= SCANNERS_MAX {
            return Err(Error::retry("too many scanners are open"));
        }
        let open = OpenScanner { scan: Arc::new(OpenScan::new(scanner)), touched: Instant::now() };
        scanners.insert(id.clone(), open);
        Ok(id)
    }

    /// The scan of this id, which lives on for another while.
    pub(super) fn touch(&self, id: &[u8]) -> Option<Arc<OpenScan>> {
        let mut scanners = self.lock();
        let open = scanners.get_mut(id)?;
        open.touched = Instant::now();
        Some(open.scan.clone())
    }

    /// Ends a scan, which may have much to free.
    pub(super) fn close(&self, id: &[u8]) -> Option<Arc<OpenScan>> {
        self.lock().remove(id).map(|open| open.scan)
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Closes those that were left, on a thread that may take its time; where none is open, answers keep no memory.
    pub fn sweep(&self) {
        let now = Instant::now();
        let is_left = |open: &OpenScanner| now.duration_since(open.touched) >= SCANNER_IDLE_MAX;
        let left: Vec<OpenScanner> =
            self.lock().extract_if(|_, open| is_left(open)).map(|(_, open)| open).collect();
        if self.len() == 0 {
            self.buffers.clear();
        }
        if !left.is_empty() {
            tokio::task::spawn_blocking(move || drop(left));
        }
    }
}
