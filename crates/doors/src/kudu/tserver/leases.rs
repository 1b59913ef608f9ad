//! Snapshots that a client was told of and may name again: for the other tablets of a table, and to go on with a scan that
//! broke off.

use oribi_engine::Snapshot;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// How long a snapshot is kept after it was named last. What was deleted or replaced since takes memory and disk meanwhile.
const LEASE_MAX: Duration = Duration::from_secs(60);
/// Most snapshots that are kept; of more, those are let go that were to end first.
const LEASES_MAX: usize = 1024;

#[derive(Default)]
pub(in crate::kudu) struct Leases(Mutex<BTreeMap<u64, Lease>>);

struct Lease {
    snapshot: Arc<Snapshot>,
    end: Instant,
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Lease>> {
        self.0.lock().expect("nothing panics while it holds the leases")
    }

    /// Keeps a snapshot for a while.
    pub fn keep(&self, snapshot: &Arc<Snapshot>) {
        let mut leases = self.lock();
        if leases.len() >= LEASES_MAX
            && let Some(first) = leases.iter().min_by_key(|(_, lease)| lease.end).map(|(ts, _)| *ts)
        {
            leases.remove(&first);
        }
        let end = Instant::now() + LEASE_MAX;
        leases.insert(snapshot.ts().0, Lease { snapshot: snapshot.clone(), end });
    }

    /// The snapshot of this timestamp, if it is kept, which it is for another while.
    pub fn renew(&self, ts: u64) -> Option<Arc<Snapshot>> {
        let mut leases = self.lock();
        let lease = leases.get_mut(&ts)?;
        lease.end = Instant::now() + LEASE_MAX;
        Some(lease.snapshot.clone())
    }

    /// Lets go of those whose time is over.
    pub fn sweep(&self) {
        let now = Instant::now();
        self.lock().retain(|_, lease| lease.end > now);
    }
}
