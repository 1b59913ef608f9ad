//! What a serializable transaction has read: `COMMIT` writes only if nobody has changed it since.
//!
//! All statements of such a transaction read one snapshot. If what they have read is the same when it is committed, they might as
//! well have read it then: transactions that write are serializable in the order of their timestamps (Kung and Robinson's
//! backward validation, 1981). One that has written nothing is asked for nothing: it might have run at its snapshot.
//!
//! Of a row that was looked up by its key, the row must be the same: a commit decides on it, as on those that it writes, and changes
//! nothing. A tablet that was scanned must have no record since the snapshot: its memtables know that of their newest one,
//! so that other writes do nothing for it, and the gate is had alone between that look and the commit's record.

use crate::catalog::Table;
use crate::engine::Engine;
use crate::tablet::{LiveFile, Tablet};
use crate::timeline::Snapshot;
use oribi_types::{Error, Result, Timestamp};
use oribi_wal::Lsn;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// What a key in the set takes beside its bytes, about.
const KEY_BYTES: usize = 2 * size_of::<Arc<[u8]>>();

/// Of more rows of a table it is not remembered which they are.
const KEYS_MAX: usize = 10_000;

/// So often a snapshot is looked for that has all of the log.
const ATTEMPTS_MAX: usize = 1000;

pub(super) struct Reads {
    pub snapshot: Arc<Snapshot>,
    /// The snapshot has every record up to this one.
    since: Lsn,
    /// Rows that were looked up, by table.
    keys: HashMap<u64, OfTable>,
    scans: HashMap<u64, Scan>,
    bytes: usize,
}

struct OfTable {
    table: Arc<Table>,
    keys: HashSet<Arc<[u8]>>,
}

/// What was read of a tablet, or might have been.
struct Scan {
    table: Arc<Table>,
    tablet: Arc<Tablet>,
    generation: u64,
}

/// What a commit has to look at.
pub(super) struct WasRead {
    pub snapshot: Arc<Snapshot>,
    pub keys: Vec<(Arc<Table>, Arc<[u8]>)>,
    pub scanned: Scanned,
}

/// Of that, the scans.
pub(crate) struct Scanned {
    scans: Vec<Scan>,
    snapshot: Timestamp,
    since: Lsn,
}

impl Reads {
    pub fn new(engine: &Engine) -> Self {
        let (snapshot, since) = engine.snapshot_of_log();
        let (keys, scans) = (HashMap::new(), HashMap::new());
        Reads { snapshot: Arc::new(snapshot), since, keys, scans, bytes: 0 }
    }

    /// Bytes of memory in use, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn note_key(&mut self, table: &Arc<Table>, key: &[u8]) {
        let of_table = || OfTable { table: table.clone(), keys: HashSet::new() };
        let of_table = self.keys.entry(table.id()).or_insert_with(of_table);
        if of_table.keys.len() >= KEYS_MAX {
            // Its tablet as a whole, then.
            self.note_tablet(table, table.tablet_of(key));
        } else if !of_table.keys.contains(key) {
            of_table.keys.insert(key.into());
            self.bytes += KEY_BYTES + key.len();
        }
    }

    /// `tablets` by their places in the table.
    pub fn note_scan(&mut self, table: &Arc<Table>, tablets: &[usize]) {
        tablets.iter().for_each(|&i| self.note_tablet(table, &table.tablets[i]));
    }

    fn note_tablet(&mut self, table: &Arc<Table>, tablet: &Arc<Tablet>) {
        let generation = tablet.generation();
        let scan = || Scan { table: table.clone(), tablet: tablet.clone(), generation };
        self.scans.entry(tablet.id).or_insert_with(scan);
    }

    /// Nothing is read any more.
    pub fn end(self) -> WasRead {
        let of_table = |OfTable { table, keys }| keys.into_iter().map(move |key| (Arc::clone(&table), key));
        let keys = self.keys.into_values().flat_map(of_table).collect();
        let scans = self.scans.into_values().collect();
        let scanned = Scanned { scans, snapshot: self.snapshot.ts(), since: self.since };
        WasRead { snapshot: self.snapshot, keys, scanned }
    }
}

impl Scanned {
    pub fn is_empty(&self) -> bool {
        self.scans.is_empty()
    }

    /// Whether all is as it was, and stays so below any timestamp that is still to be given. The caller has the gate alone.
    ///
    /// # Errors
    /// `Conflict`.
    pub fn check(&self, engine: &Engine) -> Result<()> {
        // A commit of files with a catalog has its timestamp, and waits to have the gate alone.
        match self.are_same(engine) && !engine.publishing.load(Acquire) {
            true => Ok(()),
            false => Err(changed()),
        }
    }

    fn are_same(&self, engine: &Engine) -> bool {
        self.scans.iter().all(|scan| self.is_same(engine, scan))
    }

    fn is_same(&self, engine: &Engine, scan: &Scan) -> bool {
        // A partition that was added since may have rows that the scan would have read.
        let ids = |table: &Table| Vec::from_iter(table.tablet_ids());
        let is_same_table = engine.latest(scan.table.id()).is_some_and(|now| {
            Arc::ptr_eq(&now, &scan.table)
                || now.version() == scan.table.version() && ids(&now) == ids(&scan.table)
        });
        let state = scan.tablet.state();
        is_same_table
            && scan.tablet.generation() == scan.generation
            && state.files.flushed_lsn <= self.since
            && state.memtables().all(|memtable| memtable.newest_lsn() <= self.since)
            && state.files.files.iter().all(|file| self.is_file_same(file))
    }

    /// Neither imported nor changed by position since.
    fn is_file_same(&self, file: &LiveFile) -> bool {
        file.whole_from() <= self.snapshot && !file.deletions.has_marks_after(self.snapshot)
    }
}

/// The rows of a table, as they were at one moment: whoever makes another table from them finds out whether they still are.
pub struct Unchanged {
    name: String,
    scanned: Scanned,
    /// While it is held, a compaction keeps what was deleted by position since: the check would not see it otherwise.
    _snapshot: Arc<Snapshot>,
}

impl Unchanged {
    /// The caller has the gate alone, and lets nobody write to the table.
    ///
    /// # Errors
    /// `Conflict`.
    pub(super) fn check(&self, engine: &Engine) -> Result<()> {
        let changed =
            || Error::conflict(format!("the rows of table \"{}\" were changed meanwhile", self.name));
        self.scanned.are_same(engine).then_some(()).ok_or_else(changed)
    }
}

/// What a transaction has read is otherwise by now.
pub(super) fn changed() -> Error {
    Error::conflict("what the transaction has read was changed meanwhile")
}

impl Engine {
    /// The rows of `table` as they are now: what reads them begins later.
    pub fn as_it_is(&self, table: &Arc<Table>) -> Unchanged {
        let mut reads = Reads::new(self);
        reads.note_scan(table, &(0..table.tablets.len()).collect::<Vec<_>>());
        let WasRead { snapshot, scanned, .. } = reads.end();
        Unchanged { name: table.name().to_owned(), scanned, _snapshot: snapshot }
    }

    /// A snapshot, and the newest record such that it has all up to that one.
    fn snapshot_of_log(&self) -> (Snapshot, Lsn) {
        // In this order: what is in the log by now has a timestamp that is not above the last one.
        let (lsn, last) = (self.log.appended(), self.timeline.last());
        for _ in 0..ATTEMPTS_MAX {
            let snapshot = self.snapshot();
            if last <= snapshot.ts() {
                return (snapshot, lsn);
            }
            std::hint::spin_loop();
        }
        // Some write takes long. Then it is not known of any record in memory.
        (self.snapshot(), 0)
    }
}
