//! The scans that are open between two calls.

use super::ahead::OpenScan;
use super::buffers::Buffers;
use super::leases::LIFE_MAX;
use super::scanner::Scanner;
use bytes::Bytes;
use metrics::gauge;
use oribi_engine::MemoryBudget;
use oribi_types::{Error, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// A scan that nobody goes on with, or keeps alive, for so long is closed; Kudu's own limit (`--scanner_ttl_ms`).
pub(super) const SCANNER_IDLE_MAX: Duration = Duration::from_secs(60);
/// One that is kept alive, and nobody goes on with.
const SCANNER_STILL_MAX: Duration = Duration::from_secs(3600);
/// Each keeps what it sees readable, so there is an end to them.
const SCANNERS_MAX: usize = 4096;
/// One part in so many of the memory's limit is for rows that open scans have read and not returned.
const REST_SHARE: u64 = 8;

pub(in crate::kudu) struct Scanners {
    open: Mutex<HashMap<Bytes, OpenScanner>>,
    /// What they have read and not returned.
    rests: Arc<Rests>,
    /// For their answers.
    pub(super) buffers: Buffers,
    /// What those of them may take that were made ahead and not asked for.
    pub(super) ahead_bytes: Arc<AtomicU64>,
}

struct OpenScanner {
    scan: Arc<OpenScan>,
    opened: Instant,
    touched: Instant,
    /// When somebody last went on with it.
    went_on: Instant,
}

struct Rests {
    bytes: AtomicU64,
    budget: Arc<MemoryBudget>,
}

/// What one scan has read and not returned.
pub(super) struct Rest {
    bytes: AtomicU64,
    all: Arc<Rests>,
}

impl Rest {
    /// Counts so many bytes, and those before no more.
    pub fn set(&self, bytes: usize) {
        let before = self.bytes.swap(bytes as u64, Relaxed);
        self.all.bytes.fetch_add(bytes as u64, Relaxed);
        self.all.bytes.fetch_sub(before, Relaxed);
        self.all.budget.reserve(bytes as u64);
        self.all.budget.release(before);
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Scanners {
    pub fn new(budget: &Arc<MemoryBudget>) -> Self {
        gauge!("oribi_kudu_scanners_limit_bytes").set((budget.limit() / REST_SHARE) as f64);
        Scanners {
            open: Mutex::default(),
            rests: Arc::new(Rests { bytes: AtomicU64::new(0), budget: budget.clone() }),
            buffers: Buffers::default(),
            ahead_bytes: Arc::default(),
        }
    }

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
        let rest = Rest { bytes: AtomicU64::new(0), all: self.rests.clone() };
        let now = Instant::now();
        let scan = Arc::new(OpenScan::new(scanner, rest));
        let open = OpenScanner { scan, opened: now, touched: now, went_on: now };
        scanners.insert(id.clone(), open);
        drop(scanners);
        self.close_excess();
        Ok(id)
    }

    /// The scan of this id, which lives on for another while; whether its client goes on with it, or keeps it alive.
    pub(super) fn touch(&self, id: &[u8], goes_on: bool) -> Option<Arc<OpenScan>> {
        let mut scanners = self.lock();
        let open = scanners.get_mut(id)?;
        open.touched = Instant::now();
        if goes_on {
            open.went_on = open.touched;
        }
        Some(open.scan.clone())
    }

    /// Closes scans, those first that nobody went on with for longest, until what is left of the others has room. The last one may
    /// have more. For a thread that may take its time.
    pub(super) fn close_excess(&self) {
        let limit = self.rests.budget.limit() / REST_SHARE;
        let mut excess = self.rests.bytes.load(Relaxed).saturating_sub(limit);
        while excess > 0 {
            let Some(closed) = self.close_of_rests() else { return };
            excess = excess.saturating_sub(closed.scan.rest.bytes.load(Relaxed));
        }
    }

    /// Closes the scan that nobody went on with for longest, of several that have read something and not returned.
    fn close_of_rests(&self) -> Option<OpenScanner> {
        let mut scanners = self.lock();
        let of_rests = || scanners.iter().filter(|(_, open)| open.scan.rest.bytes.load(Relaxed) > 0);
        of_rests().nth(1)?;
        let id = of_rests().min_by_key(|(_, open)| open.went_on)?.0.clone();
        scanners.remove(&id)
    }

    /// Ends a scan, which may have much to free.
    pub(super) fn close(&self, id: &[u8]) -> Option<Arc<OpenScan>> {
        self.lock().remove(id).map(|open| open.scan)
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Closes those whose time is over at `now`, on a thread that may take its time; where none is open, answers keep no memory.
    pub fn sweep(&self, now: Instant) {
        let is_left = |open: &OpenScanner| {
            now.saturating_duration_since(open.touched) >= SCANNER_IDLE_MAX
                || now.saturating_duration_since(open.went_on) >= SCANNER_STILL_MAX
                || now.saturating_duration_since(open.opened) >= LIFE_MAX
        };
        let left: Vec<OpenScanner> =
            self.lock().extract_if(|_, open| is_left(open)).map(|(_, open)| open).collect();
        gauge!("oribi_kudu_scanners_count").set(self.len() as f64);
        gauge!("oribi_kudu_scanners_bytes").set(self.rests.bytes.load(Relaxed) as f64);
        if self.len() == 0 {
            self.buffers.clear();
        }
        if !left.is_empty() {
            tokio::task::spawn_blocking(move || drop(left));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kudu::tserver::scan::{keep_alive, new_scanner};
    use crate::kudu::tserver::testing::{Fixture, insert, scan};
    use oribi_kudu::messages::tserver::ScannerKeepAliveRequest;

    fn opened(fixture: &Fixture) -> Scanner {
        let Ok((scanner, _)) = new_scanner(fixture.node(), &scan(&fixture.tablet())) else {
            panic!("a scan")
        };
        scanner
    }

    #[tokio::test]
    async fn a_scan_lives_as_long_as_its_client_goes_on_with_it() {
        let fixture = Fixture::new();
        let node = fixture.node();
        let scanners = &node.scanners;
        let [kept_alive, gone_on_with] = [(); 2].map(|()| scanners.keep(opened(&fixture)).unwrap());
        let later = Instant::now() + SCANNER_STILL_MAX - SCANNER_IDLE_MAX / 2;
        // As if they were touched then.
        for open in scanners.lock().values_mut() {
            open.touched = later;
        }
        scanners.sweep(later);
        assert_eq!(scanners.len(), 2);
        scanners.lock().get_mut(&gone_on_with).unwrap().went_on = later;
        scanners.sweep(later + SCANNER_IDLE_MAX / 2);
        assert!(scanners.touch(&kept_alive, false).is_none());
        let request = ScannerKeepAliveRequest { scanner_id: gone_on_with };
        assert_eq!(keep_alive(node, &request).error, None);
        // A day is the end of all.
        let end = Instant::now() + LIFE_MAX;
        for open in scanners.lock().values_mut() {
            (open.touched, open.went_on) = (end, end);
        }
        scanners.sweep(end);
        assert!(keep_alive(node, &request).error.is_some());
    }

    #[test]
    fn what_scans_have_read_and_not_returned_has_so_much_room() {
        let fixture = Fixture::new();
        let node = fixture.node();
        insert(&fixture, 0..1000);
        let scanners = &node.scanners;
        let limit = node.engine.memory().limit() / REST_SHARE;
        let read = || {
            let mut scanner = opened(&fixture);
            // Of one batch, a part.
            assert!(scanner.read(100, &scanners.buffers).is_ok() && scanner.rest_bytes() > 0);
            scanner
        };
        let ids: Vec<Bytes> = (0..4).map(|_| scanners.keep(read()).unwrap()).collect();
        let counted = scanners.rests.bytes.load(Relaxed);
        assert!(counted >= 4 * 1000 && node.engine.memory().queries() >= counted);
        // As if their rows were long.
        let scan = |id: &Bytes| scanners.touch(id, false);
        scan(&ids[0]).unwrap().rest.set(limit as usize / 2);
        scan(&ids[2]).unwrap().rest.set(limit as usize / 3);
        scanners.touch(&ids[0], true);
        scanners.close_excess();
        assert_eq!(scanners.len(), 4);
        scan(&ids[3]).unwrap().rest.set(limit as usize / 2);
        scanners.close_excess();
        // Who went on last stays.
        let left: Vec<bool> = ids.iter().map(|id| scan(id).is_some()).collect();
        assert_eq!(left, [true, false, false, true]);
        // One alone may have more: or no row could be longer.
        scan(&ids[3]).unwrap().rest.set(2 * limit as usize);
        scanners.close_excess();
        assert!(scan(&ids[0]).is_some() && scan(&ids[3]).is_none());
        scan(&ids[0]).unwrap().rest.set(2 * limit as usize);
        scanners.close_excess();
        assert!(scan(&ids[0]).is_some());
        scanners.close(&ids[0]);
        assert_eq!(node.engine.memory().queries(), 0);
    }
}
