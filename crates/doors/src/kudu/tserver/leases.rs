//! Snapshots that a client was told of and may name again: for the other tablets of a table, and to go on with a scan that
//! broke off.
//!
//! What was replaced since a snapshot was the newest takes memory and disk as long as there is a lease, and whoever names one again
//! in time prolongs it. So each has its last moment, a day after its snapshot was the newest at the latest. A timestamp that is
//! named for the first time is readable because a snapshot before it is kept: it has no more time left than that one has, unless its
//! own clock shows that it is younger.

use oribi_engine::{Engine, Snapshot};
use oribi_types::{Result, Timestamp};
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
    /// Unless it is named again.
    end: Instant,
    /// However often it is.
    last: Instant,
}

/// The present by two clocks.
#[derive(Clone, Copy)]
pub(super) struct Now {
    pub instant: Instant,
    /// By which timestamps are taken.
    pub micros: u64,
}

impl Now {
    pub fn of(engine: &Engine) -> Self {
        Now { instant: Instant::now(), micros: engine.read_view().now_micros }
    }
}

impl Lease {
    /// Whether a scan sees it, which may break off and be gone on with by another.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.snapshot) > 1
    }
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Lease>> {
        self.0.lock().expect("nothing panics while it holds the leases")
    }

    /// Keeps a snapshot for a while that is the newest.
    pub fn keep(&self, snapshot: &Arc<Snapshot>) {
        let now = Instant::now();
        self.insert(snapshot, now, now + LIFE_MAX);
    }

    fn insert(&self, snapshot: &Arc<Snapshot>, now: Instant, last: Instant) {
        let mut leases = self.lock();
        let order = |(_, lease): &(&u64, &Lease)| (lease.is_in_use(), lease.end);
        if leases.len() >= LEASES_MAX
            && !leases.contains_key(&snapshot.ts().0)
            && let Some(first) = leases.iter().min_by_key(order).map(|(ts, _)| *ts)
        {
            leases.remove(&first);
        }
        leases.insert(snapshot.ts().0, Lease { snapshot: snapshot.clone(), end: now + LEASE_MAX, last });
    }

    /// Keeps what could be named when the server stopped: it is at or after `history`.
    pub fn keep_history(&self, history: Snapshot) {
        let (now, snapshot) = (Instant::now(), Arc::new(history));
        let lease = Lease { end: now + HISTORY_MAX, last: now + LIFE_MAX, snapshot };
        self.lock().insert(lease.snapshot.ts().0, lease);
    }

    /// The snapshot of this timestamp, which can be named for another while; `None` if what it would see is not kept any more, or
    /// was for as long as can be.
    ///
    /// # Errors
    /// Those of [`Engine::snapshot_at`].
    pub(super) fn name(&self, engine: &Engine, ts: Timestamp, now: Now) -> Result<Option<Arc<Snapshot>>> {
        if let Some(snapshot) = self.renew(ts.0, now.instant) {
            return Ok(Some(snapshot));
        }
        let is_newest = ts >= engine.read_view().ts;
        let last = if is_newest { now.instant + LIFE_MAX } else { self.last_of(ts, now) };
        if last <= now.instant {
            return Ok(None);
        }
        let snapshot = engine.snapshot_at(ts)?.map(Arc::new);
        snapshot.iter().for_each(|snapshot| self.insert(snapshot, now.instant, last));
        Ok(snapshot)
    }

    /// The snapshot of this timestamp, if it is kept at `now`, which it is for another while.
    pub(super) fn renew(&self, ts: u64, now: Instant) -> Option<Arc<Snapshot>> {
        let mut leases = self.lock();
        let lease = leases.get_mut(&ts).filter(|lease| now < lease.last)?;
        lease.end = now + LEASE_MAX;
        Some(lease.snapshot.clone())
    }

    /// The last moment of a timestamp that is not the newest. What it holds was replaced since then by the clock, and since one
    /// before it was the newest.
    fn last_of(&self, ts: Timestamp, now: Now) -> Instant {
        let age = Duration::from_micros(now.micros.saturating_sub(ts.micros()));
        let by_clock = now.instant + LIFE_MAX.saturating_sub(age);
        let leases = self.lock();
        let before = leases.range(..=ts.0).map(|(_, lease)| lease.last);
        before.fold(by_clock, Instant::max)
    }

    /// Lets go of those whose time is over at `now`.
    pub fn sweep(&self, now: Instant) {
        self.lock().retain(|_, lease| now < lease.end.min(lease.last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kudu::tserver::scan::{keep_alive, new_scanner};
    use crate::kudu::tserver::testing::{Fixture, insert, scan};
    use oribi_kudu::messages::tserver::{NewScanRequest, ReadMode, ScannerKeepAliveRequest};

    fn is_kept(leases: &Leases, ts: u64) -> bool {
        leases.renew(ts, Instant::now()).is_some()
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
        let engine = &fixture.node().engine;
        let leases = Leases::default();
        insert(&fixture, 0..1);
        let first = Now::of(engine);
        let after = |life: Duration| Now {
            instant: first.instant + life,
            micros: first.micros + life.as_micros() as u64,
        };
        let names = |ts: Timestamp, now: Now| leases.name(engine, ts, now).unwrap().is_some();
        let snapshot = Arc::new(engine.snapshot());
        let ts = snapshot.ts();
        // Nothing is replaced while it is the newest.
        assert!(names(ts, first) && names(ts, after(2 * LIFE_MAX)));
        leases.keep(&snapshot);
        (1..5).for_each(|k| insert(&fixture, k..k + 1));
        let late = after(LIFE_MAX - LEASE_MAX);
        assert!(names(ts, late) && names(ts.next(), late), "there is a minute left");
        let too_late = after(LIFE_MAX + LEASE_MAX);
        assert!(!names(ts, too_late) && !names(ts.next(), too_late) && !names(ts.next().next(), too_late));
        leases.sweep(too_late.instant);
        assert!(leases.lock().is_empty());
        assert!(!names(ts, too_late), "a scan has it yet");
        drop(snapshot);
        assert!(engine.read_view().ts > ts && !names(ts, first));
    }

    #[test]
    fn a_young_snapshot_can_be_named_for_as_long_as_any_though_an_old_one_is_before_it() {
        let fixture = Fixture::new();
        let engine = &fixture.node().engine;
        let leases = Leases::default();
        let now = Now::of(engine);
        let old = Arc::new(engine.snapshot());
        leases.insert(&old, now.instant, now.instant + LEASE_MAX);
        let young = Timestamp::from_micros(now.micros);
        engine.observe(young.next()).unwrap();
        assert!(old.ts() < young && leases.name(engine, young, now).unwrap().is_some());
        assert!(leases.lock()[&young.0].last >= now.instant + LIFE_MAX);
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
