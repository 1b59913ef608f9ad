//! Snapshots that a client was told of and may name again: for the other tablets of a table, and to go on with a scan that
//! broke off.

use oribi_engine::Snapshot;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// How long a snapshot is kept after it was named last. What was deleted or replaced since takes memory and disk meanwhile.
const LEASE_MAX: Duration = Duration::from_secs(60);
/// How long a snapshot can be named, however often that is, and a scan can see it. Kudu keeps a history of seven days
/// (`--tablet_history_max_age_sec`).
pub(super) const LIFE_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long after a start those can be named that were kept before: by then a client has asked again, whose request broke
/// off (its default timeout in Kudu). What is named then is kept by a lease of its own.
const HISTORY_MAX: Duration = Duration::from_secs(30);
/// Most snapshots that are kept; of more, those are let go that no open scan has, and of these those that were to end first.
const LEASES_MAX: usize = 1024;

#[derive(Default)]
pub(in crate::kudu) struct Leases(Mutex<BTreeMap<u64, Lease>>);

struct Lease {
    snapshot: Arc<Snapshot>,
    begun: Instant,
    end: Instant,
}

/// What is known of a timestamp.
pub(super) enum Renewed {
    Kept(Arc<Snapshot>),
    /// It was kept for as long as can be.
    TooOld,
    Unknown,
}

impl Lease {
    fn new(snapshot: Arc<Snapshot>, life: Duration) -> Self {
        let begun = Instant::now();
        Lease { snapshot, begun, end: begun + life }
    }

    fn is_too_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) >= LIFE_MAX
    }

    /// Whether a scan sees it, which may break off and be gone on with by another.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.snapshot) > 1
    }
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Lease>> {
        self.0.lock().expect("nothing panics while it holds the leases")
    }

    /// Keeps a snapshot for a while.
    pub fn keep(&self, snapshot: &Arc<Snapshot>) {
        let mut leases = self.lock();
        let order = |(_, lease): &(&u64, &Lease)| (lease.is_in_use(), lease.end);
        if leases.len() >= LEASES_MAX
            && !leases.contains_key(&snapshot.ts().0)
            && let Some(first) = leases.iter().min_by_key(order).map(|(ts, _)| *ts)
        {
            leases.remove(&first);
        }
        leases.insert(snapshot.ts().0, Lease::new(snapshot.clone(), LEASE_MAX));
    }

    /// Keeps what could be named when the server stopped: it is at or after `history`.
    pub fn keep_history(&self, history: Snapshot) {
        self.lock().insert(history.ts().0, Lease::new(Arc::new(history), HISTORY_MAX));
    }

    /// The snapshot of this timestamp, if it is kept at `now`, which it is for another while.
    pub(super) fn renew(&self, ts: u64, now: Instant) -> Renewed {
        match self.lock().get_mut(&ts) {
            Some(lease) if lease.is_too_old(now) => Renewed::TooOld,
            Some(lease) => {
                lease.end = now + LEASE_MAX;
                Renewed::Kept(lease.snapshot.clone())
            }
            None => Renewed::Unknown,
        }
    }

    /// Lets go of those whose time is over at `now`. One that is too old is known for that as long as a scan sees it, or it could
    /// be named again.
    pub fn sweep(&self, now: Instant) {
        self.lock().retain(|_, lease| lease.end > now || (lease.is_too_old(now) && lease.is_in_use()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kudu::tserver::scan::{keep_alive, new_scanner};
    use crate::kudu::tserver::testing::{Fixture, scan};
    use oribi_kudu::messages::tserver::{NewScanRequest, ReadMode, ScannerKeepAliveRequest};
    use oribi_types::Timestamp;

    fn is_kept(leases: &Leases, ts: u64) -> bool {
        matches!(leases.renew(ts, Instant::now()), Renewed::Kept(_))
    }

    /// The end of a lease that is made now; those made later end later.
    fn end() -> Instant {
        let end = Instant::now() + LEASE_MAX;
        while Instant::now() + LEASE_MAX == end {}
        end
    }

    #[test]
    fn those_that_nobody_has_go_first_and_those_that_were_named_last() {
        let fixture = Fixture::new();
        let engine = &fixture.node().engine;
        let leases = Leases::default();
        let snapshot = || {
            let next = engine.snapshot().ts().0 + 1;
            Arc::new(engine.snapshot_at(Timestamp(next)).unwrap().unwrap())
        };
        let (held, named) = (snapshot(), snapshot().ts().0);
        leases.keep(&held);
        leases.keep(&Arc::new(engine.snapshot_at(Timestamp(named)).unwrap().unwrap()));
        for _ in 2..LEASES_MAX {
            leases.keep(&snapshot());
        }
        assert!(is_kept(&leases, named));
        // One more, and one again.
        let last = snapshot();
        leases.keep(&last);
        leases.keep(&last);
        assert_eq!(leases.lock().len(), LEASES_MAX);
        assert!(is_kept(&leases, held.ts().0) && is_kept(&leases, named));
        let end = end();
        assert!(is_kept(&leases, named));
        leases.sweep(end);
        assert!(is_kept(&leases, named) && !is_kept(&leases, held.ts().0));
    }

    #[test]
    fn nobody_names_a_snapshot_for_ever() {
        let fixture = Fixture::new();
        let leases = Leases::default();
        let snapshot = Arc::new(fixture.node().engine.snapshot());
        let ts = snapshot.ts().0;
        leases.keep(&snapshot);
        let begun = Instant::now();
        assert!(matches!(leases.renew(ts, begun + LIFE_MAX / 2), Renewed::Kept(_)));
        let late = begun + LIFE_MAX;
        assert!(matches!(leases.renew(ts, late), Renewed::TooOld));
        leases.sweep(late + LEASE_MAX);
        assert!(matches!(leases.renew(ts, late), Renewed::TooOld), "a scan has it yet");
        drop(snapshot);
        leases.sweep(late + LEASE_MAX);
        assert!(matches!(leases.renew(ts, late), Renewed::Unknown));
    }

    #[test]
    fn a_scan_that_is_kept_alive_keeps_its_snapshot() {
        let fixture = Fixture::new();
        let node = fixture.node();
        let at_snapshot = ReadMode::ReadAtSnapshot.into();
        let request = NewScanRequest { read_mode: Some(at_snapshot), ..scan(&fixture.tablet()) };
        let Ok((scanner, _)) = new_scanner(node, &request) else { panic!("a scan of a table that is there") };
        let ts = scanner.snapshot.ts().0;
        let scanner_id = node.scanners.keep(scanner).unwrap();
        let end = end();
        assert_eq!(keep_alive(node, &ScannerKeepAliveRequest { scanner_id }).error, None);
        node.leases.sweep(end);
        assert!(is_kept(&node.leases, ts));
    }
}
