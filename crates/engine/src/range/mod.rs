//! Range reads: the rows of a tablet whose keys lie between two keys, in key order, as a snapshot sees them.
//!
//! Two kinds of sources: the ordered views of the memtables, and each SSTable with keys of the range. One that has
//! nothing of the range is not made, and one that comes to its end is dropped; where a single one is left, nothing is
//! compared. The row cache is no source: what it has is in the files.
//!
//! A key has at most one version that the snapshot sees in the files, and a version in memory, deletes included, is
//! newer than that. So the merge takes the lowest key, memory first, and passes over the same key in a file: nobody
//! has to look up what unflushed rows replace, as a scan does.
//!
//! Files and marks are those of one state of the tablet. Rows in memory are captured some at a time; if the state has
//! changed by then (a flush has unpinned rows), the sources are made anew from the key that was reached. Any state
//! serves the snapshot, as long as it is registered; only where rows or columns were dropped the read ends, with an error: see
//! [`reading`](crate::reading).

mod files;
mod keys;
mod memory;
mod sources;
mod split;

pub use keys::KeyRange;
pub use split::RangePart;

use crate::catalog::Table;
use crate::columns::Columns;
use crate::engine::{Engine, Obligation};
use crate::read::RowVersion;
use crate::reading::Reading;
use crate::tablet::{LiveFile, Tablet};
use crate::timeline::Snapshot;
use memory::MemoryRows;
use oribi_types::{Result, Timestamp};
use sources::{Sources, Step};
use std::sync::Arc;

/// Rows of one tablet in key order. After the last row, or an error, it has none.
pub struct RangeReader {
    scope: Scope,
    /// Those that were not passed yet when the sources were made.
    keys: KeyRange,
    sources: Option<Sources>,
    ended: bool,
    tally: Tally,
}

/// What a reader reads.
struct Scope {
    engine: Arc<Engine>,
    table: Arc<Table>,
    tablet: Arc<Tablet>,
    snapshot: Arc<Snapshot>,
    columns: Columns,
}

impl Scope {
    fn ts(&self) -> Timestamp {
        self.snapshot.ts()
    }
}

/// What a reader has seen so far.
#[derive(Default)]
struct Tally {
    obligation: Obligation,
    counts: RangeCounts,
}

/// Where the rows of a range came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeCounts {
    /// Sorted runs of keys in memory that have some of the range.
    pub runs: u64,
    /// SSTables that were read from.
    pub files: u64,
    /// How often there was more than one run or file to merge: again each time that the tablet has changed.
    pub merges: u64,
    /// Rows from memory.
    pub memory_rows: u64,
    /// Bytes of their keys and rows.
    pub memory_bytes: u64,
    /// Rows from files.
    pub file_rows: u64,
    /// Memory of the columns that were read from files.
    pub file_bytes: u64,
}

impl Engine {
    /// The rows of tablet number `tablet` of `table` with keys in `keys`, in the order of encoded keys, which is SQL's.
    /// Of rows in files only the columns at the positions `columns` of the schema are read: others may be null.
    /// Nothing is read before the first call of [`RangeReader::read`].
    ///
    /// Several tablets are several readers: who wants their rows in one order merges them. A reader of one partition
    /// needs one tablet, and a query engine has a merge of its own.
    pub fn range(
        self: &Arc<Self>,
        table: &Arc<Table>,
        tablet: usize,
        keys: KeyRange,
        columns: &[usize],
        snapshot: &Arc<Snapshot>,
    ) -> RangeReader {
        let tablet = table.tablets[tablet].clone();
        let scope = Scope {
            engine: self.clone(),
            table: table.clone(),
            tablet,
            snapshot: snapshot.clone(),
            columns: Columns::new(table.schema(), columns, table.expiry().slot),
        };
        RangeReader { scope, ended: keys.is_empty(), keys, sources: None, tally: Tally::default() }
    }

    /// How many rows a range has at most: keys in memory are counted, rows in files estimated by blocks of their key
    /// index. Beyond `enough`, counting stops, and if many keys in memory have no order yet, a sample of them says whether
    /// that is so. No file is read; do not call from a thread of idle priority.
    pub fn estimate_range(&self, table: &Table, tablet: usize, keys: &KeyRange, enough: u64) -> u64 {
        if keys.is_empty() {
            return 0;
        }
        let tablet = &table.tablets[tablet];
        let state = arc_swap::Guard::into_inner(tablet.state());
        let rows = |file: &Arc<LiveFile>| file.sstable.rows_between_max(&keys.from, keys.to.as_deref());
        let in_files: u64 = state.files.files.iter().map(|file| u64::from(rows(file))).sum();
        if in_files > enough {
            return in_files;
        }
        // To count all of them takes no order.
        let in_memory = if *keys == KeyRange::default() {
            state.memtables().map(|memtable| memtable.len()).sum::<usize>() as u64
        } else {
            let counted = || MemoryRows::new(self, &state, keys).map_or(0, |rows| rows.keys() as u64);
            memory::more_than(self, &state, keys, enough - in_files).unwrap_or_else(counted)
        };
        in_files + in_memory
    }

    /// Whether a read of a tablet at `snapshot` may find a row, or fail because rows have gone since. No other needs to be made.
    pub fn may_have_rows(&self, table: &Table, tablet: usize, snapshot: &Snapshot) -> bool {
        let Ok(Reading { state, .. }) = self.reading(table, &table.tablets[tablet], snapshot.ts(), None)
        else {
            return true;
        };
        !state.files.files.is_empty() || state.memtables().any(|memtable| !memtable.is_empty())
    }

    /// How many rows of a tablet are in memtables, deleted ones among them.
    pub fn rows_in_memory(&self, table: &Table, tablet: usize) -> usize {
        table.tablets[tablet].state().memtables().map(|memtable| memtable.len()).sum()
    }
}

impl RangeReader {
    /// Calls `visit` with the next rows, `rows_max` at most; returns how many there were. Fewer than `rows_max` are the
    /// last. Blocks on file I/O; not for threads of idle priority.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system and of `visit`; `Conflict` if what is left to read has gone, with a truncate or
    /// drop.
    pub fn read(
        &mut self,
        rows_max: usize,
        mut visit: impl FnMut(RowVersion<'_>) -> Result<()>,
    ) -> Result<usize> {
        let mut rows = 0;
        while rows < rows_max && !self.ended {
            match self.step(&mut visit) {
                Ok(read) => rows += usize::from(read),
                Err(error) => {
                    self.end();
                    return Err(error);
                }
            }
        }
        Ok(rows)
    }

    /// What must be settled before the rows read so far, or that there are no more, may be answered.
    pub fn obligation(&self) -> Obligation {
        self.tally.obligation
    }

    pub fn counts(&self) -> RangeCounts {
        self.tally.counts
    }

    /// Goes on by a row at most; whether `visit` was shown one.
    fn step(&mut self, visit: &mut impl FnMut(RowVersion<'_>) -> Result<()>) -> Result<bool> {
        let step = match &mut self.sources {
            Some(sources) => sources.step(&self.scope, &mut self.tally, visit)?,
            None => self.open()?,
        };
        match step {
            Step::Row => return Ok(true),
            Step::Nothing => {}
            Step::Stale { from } => {
                self.sources = None;
                self.keys.from = from.unwrap_or_else(|| std::mem::take(&mut self.keys.from));
            }
            Step::End => self.end(),
        }
        Ok(false)
    }

    /// Makes the sources of the tablet's present state.
    fn open(&mut self) -> Result<Step> {
        let Scope { engine, table, tablet, columns, .. } = &self.scope;
        let reading = engine.reading(table, tablet, self.scope.ts(), Some(columns.positions()))?;
        let opened = Sources::open(reading, &self.scope, &self.keys, &mut self.tally)?;
        Ok(match opened {
            Some(sources) => {
                self.sources = Some(sources);
                Step::Nothing
            }
            None => Step::Stale { from: None },
        })
    }

    fn end(&mut self) {
        self.ended = true;
        self.sources = None;
    }
}
