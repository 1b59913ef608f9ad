//! Scans: all rows of a table at a snapshot, as files with the rows to leave out, and rows in memory. No merge.
//!
//! A row of a file is left out if its mark says so, if it is newer than the snapshot, if it has expired, or if an
//! unflushed version that the snapshot sees replaces it. The last is what [`resolve`] finds.

use crate::catalog::Table;
use crate::engine::{Engine, Obligation};
use crate::expiry::expired_rows;
use crate::holders::{Holder, given_up};
use crate::index::{Location, Older, Version, VersionRef, version_at};
use crate::reading::Reading;
use crate::tablet::{FileSet, LiveFile, Tablet};
use crate::timeline::Snapshot;
use crate::walk::MemoryColumns;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use oribi_env::locks::{self, Mutex};
use oribi_sstable::{Sstable, SstableId};
use oribi_types::batch::BatchBuilder;
use oribi_types::{Result, Schema, Timestamp};
use roaring::RoaringBitmap;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// All rows of a table at a snapshot.
pub struct TableScan {
    pub schema: Arc<Schema>,
    pub tablets: Vec<TabletScan>,
    /// To be settled before the first row is answered.
    pub obligation: Obligation,
}

/// All rows of a tablet at a snapshot; none is in two places.
pub struct TabletScan {
    pub files: Vec<FileScan>,
    pub memory: MemoryRows,
}

/// The rows of one SSTable.
pub struct FileScan {
    pub sstable: Arc<Sstable>,
    /// Positions in the file that the snapshot does not see.
    pub hidden: Arc<RoaringBitmap>,
}

impl FileScan {
    pub fn live_rows(&self) -> u64 {
        self.sstable.meta().rows - self.hidden.len()
    }
}

/// Rows that no file has yet. Sharing them keeps them in memory; they are never changed.
#[derive(Clone)]
pub struct MemoryRows {
    held: Arc<HeldRows>,
    rows: usize,
    bytes: usize,
}

/// The rows; `None` once memory was needed for them.
struct HeldRows(Mutex<Option<Arc<Vec<MemoryRow>>>, { locks::LEAF }>);

struct MemoryRow(VersionRef);

impl Holder for HeldRows {
    fn held_bytes(&self) -> usize {
        let rows = self.0.lock().clone();
        rows.iter().flat_map(|rows| rows.iter()).map(|row| row.0.held_bytes()).sum()
    }

    fn give_up(&self) {
        let rows = self.0.lock().take();
        drop(rows);
    }
}

impl MemoryRow {
    fn row(&self) -> &[u8] {
        self.0.row().expect("deleted rows are left out")
    }
}

impl MemoryRows {
    fn new(rows: Vec<MemoryRow>, engine: &Engine) -> Self {
        let bytes = rows.iter().map(|r| r.0.key().len() + r.row().len()).sum();
        let count = rows.len();
        let held = Arc::new(HeldRows(Mutex::new(Some(Arc::new(rows)))));
        if count > 0 {
            let holder: Weak<HeldRows> = Arc::downgrade(&held);
            engine.holders.add(holder);
        }
        MemoryRows { held, rows: count, bytes }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of keys and rows.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The rows as batches of at most `batch_rows`, with the columns at the positions `projection` of `schema` and,
    /// with `with_ts`, the hidden commit timestamp last.
    ///
    /// # Errors
    /// As [`batch`](Self::batch).
    pub fn batches(
        &self,
        schema: &Schema,
        projection: &[usize],
        with_ts: bool,
        batch_rows: usize,
    ) -> Result<Vec<RecordBatch>> {
        let starts = (0..self.rows).step_by(batch_rows);
        starts.map(|start| self.batch(schema, projection, with_ts, start, batch_rows)).collect()
    }

    /// Those from number `start` on, `rows_max` at most, as a batch like those of [`batches`](Self::batches).
    ///
    /// # Errors
    /// `Corrupt` for a key that does not decode; `Conflict` if they were held for too long.
    pub fn batch(
        &self,
        schema: &Schema,
        projection: &[usize],
        with_ts: bool,
        start: usize,
        rows_max: usize,
    ) -> Result<RecordBatch> {
        let rows = self.held.0.lock().clone().ok_or_else(given_up)?;
        let mut builder = BatchBuilder::new(schema, projection, with_ts);
        for row in rows.iter().skip(start).take(rows_max) {
            builder.push(row.0.key(), row.row(), row.0.meta().ts)?;
        }
        builder.finish()
    }
}

/// All rows of a tablet at a snapshot, those in memory as columns.
pub struct TabletColumns {
    pub files: Vec<FileScan>,
    pub memory: MemoryColumns,
    /// To be settled before the first row is answered.
    pub obligation: Obligation,
}

/// An unflushed key that may have an older copy in the files, as a snapshot sees it.
struct Replacing {
    version: VersionRef,
    /// What its oldest unflushed version replaces in the files, and that version's timestamp.
    older: Older,
    oldest_ts: Timestamp,
}

/// What a snapshot sees of a tablet's memtables.
struct Captured {
    reading: Reading,
    rows: Vec<MemoryRow>,
    replacing: Vec<Replacing>,
    /// The highest LSN of what the snapshot sees, deletes included.
    lsn: Option<u64>,
}

impl Engine {
    /// All rows of `table` at `snapshot`. Looks up what unflushed rows replace, which may read files: do not call
    /// from a thread that serves a hot protocol.
    ///
    /// # Errors
    /// `Conflict` if rows that the snapshot sees went since, with a truncate or drop, or columns of the table's handle;
    /// `Corrupt`; those of the file system.
    pub fn scan(&self, table: &Arc<Table>, snapshot: &Snapshot) -> Result<TableScan> {
        self.scan_tablets(table, 0..table.tablets.len(), snapshot)
    }

    /// As [`scan`](Self::scan), of some tablets, by their numbers.
    ///
    /// # Errors
    /// Those of [`scan`](Self::scan).
    pub fn scan_tablets(
        &self,
        table: &Arc<Table>,
        tablets: impl IntoIterator<Item = usize>,
        snapshot: &Snapshot,
    ) -> Result<TableScan> {
        self.check_ranges(table, snapshot)?;
        let mut obligation = Obligation::default();
        let tablets = tablets
            .into_iter()
            .map(|tablet| {
                let tablet = &table.tablets[tablet];
                let (files, rows) = self.scan_tablet(table, tablet, snapshot, &mut obligation)?;
                Ok(TabletScan { files, memory: MemoryRows::new(rows, self) })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(TableScan { schema: table.schema(), tablets, obligation })
    }

    /// As [`scan`](Self::scan), of one tablet by its number, with the rows in memory as batches of the columns at the positions
    /// `projection`.
    ///
    /// # Errors
    /// Those of [`scan`](Self::scan).
    pub fn scan_columns(
        &self,
        table: &Arc<Table>,
        tablet: usize,
        projection: &[usize],
        snapshot: &Snapshot,
    ) -> Result<TabletColumns> {
        let tablet = &table.tablets[tablet];
        let (reading, replacing, memory) = loop {
            let reading = self.reading(table, tablet, snapshot.ts(), Some(projection))?;
            let replacing = self.replacing(&reading, snapshot);
            let memory = MemoryColumns::begin(&self.index, table, &reading, projection, snapshot);
            // Else rows may be unpinned, or swept, of which the walk did not hear.
            if reading.still_valid() {
                break (reading, replacing, memory);
            }
        };
        self.holders.add(memory.holder());
        let files = self.scan_files(table, &reading, snapshot, &replacing)?;
        // Perhaps more than the snapshot sees: the rows were not looked at yet.
        let newest =
            reading.state.memtables().map(|memtable| memtable.newest_lsn()).max().unwrap_or_default();
        Ok(TabletColumns { files, memory, obligation: Obligation::on(table, newest) })
    }

    /// What the unflushed rows replace that a snapshot sees.
    fn replacing(&self, reading: &Reading, snapshot: &Snapshot) -> Vec<Replacing> {
        let first_unflushed = reading.state.first_unflushed();
        let mut replacing = Vec::new();
        for memtable in reading.state.memtables() {
            self.index.visit(reading.generation(), memtable.replacing(), |_, newest| {
                let seen = version_at(newest, snapshot.ts());
                let Some(version) = seen.filter(|v| v.meta.memtable() >= first_unflushed) else { return };
                // A key that is listed by several memtables is taken with the one that has its oldest version.
                if oldest_unflushed(version, first_unflushed).meta.memtable() == memtable.id {
                    replacing.extend(Replacing::of(version, first_unflushed));
                }
            });
        }
        replacing
    }

    /// The files of a tablet, and its rows in memory.
    fn scan_tablet(
        &self,
        table: &Table,
        tablet: &Arc<Tablet>,
        snapshot: &Snapshot,
        obligation: &mut Obligation,
    ) -> Result<(Vec<FileScan>, Vec<MemoryRow>)> {
        let Captured { reading, rows, replacing, lsn } = self.capture(table, tablet, snapshot)?;
        // What is in a file is durable, so only unflushed versions are waited for.
        if let Some(lsn) = lsn {
            obligation.merge(Obligation::on(table, lsn));
        }
        Ok((self.scan_files(table, &reading, snapshot, &replacing)?, rows))
    }

    /// The files of a tablet, without what is replaced in memory.
    fn scan_files(
        &self,
        table: &Table,
        reading: &Reading,
        snapshot: &Snapshot,
        replacing: &[Replacing],
    ) -> Result<Vec<FileScan>> {
        let files = &reading.state.files;
        let older: Vec<(&[u8], Older)> = replacing.iter().map(|r| (r.version.key(), r.older)).collect();
        let replaced = resolve(files, &older)?;
        self.remember(reading, replacing, &replaced);

        let mut hidden: HashMap<SstableId, Vec<u32>> = HashMap::new();
        for location in replaced.into_iter().flatten() {
            hidden.entry(location.file).or_default().push(location.row);
        }
        let visible = files.files.iter().filter(|file| file.visible_from <= snapshot.ts());
        let scan = |file: &Arc<LiveFile>| {
            scan_file(table, file, snapshot, hidden.remove(&file.id()).unwrap_or_default())
        };
        visible.map(scan).collect()
    }

    /// The state of a tablet, and what of its memtables a snapshot sees.
    fn capture(&self, table: &Table, tablet: &Arc<Tablet>, snapshot: &Snapshot) -> Result<Captured> {
        let now = snapshot.now_micros();
        loop {
            let reading = self.reading(table, tablet, snapshot.ts(), None)?;
            let state = &reading.state;
            let first_unflushed = state.first_unflushed();
            let (mut replacing, mut lsn) = (Vec::new(), None);
            let mut rows = Vec::with_capacity(state.memtables().map(|m| m.len()).sum());
            for memtable in state.memtables() {
                self.index.visit(reading.generation(), memtable.hashes(), |_, newest| {
                    // A key that is in several memtables is taken with the version that counts.
                    let seen = version_at(newest, snapshot.ts()).filter(|v| v.meta.memtable() == memtable.id);
                    let Some(version) = seen else { return };
                    lsn = lsn.max(Some(version.meta.lsn));
                    replacing.extend(Replacing::of(version, first_unflushed));
                    if let Some(row) = version.row()
                        && !table.is_expired(row, version.meta.ts, now)
                    {
                        rows.push(MemoryRow(version.hold()));
                    }
                });
            }
            if reading.still_valid() {
                return Ok(Captured { reading, rows, replacing, lsn });
            }
        }
    }

    /// Keeps what was looked up, for the next scan and the flush.
    fn remember(&self, reading: &Reading, replacing: &[Replacing], replaced: &[Option<Location>]) {
        for (r, location) in replacing.iter().zip(replaced) {
            let lasting = match r.older {
                // What lay below it is in the files by now, so the answer holds for good.
                Older::Unresolved { below } => below < reading.state.first_unflushed(),
                Older::Nothing => false,
                Older::At(known) => *location != Some(known),
            };
            if lasting {
                let found = location.map_or(Older::Nothing, Older::At);
                let key = self.index.key(reading.generation(), r.version.key());
                self.index.resolve(key, r.oldest_ts, r.older, found);
            }
        }
    }
}

/// The last of the unflushed versions from `version` down.
fn oldest_unflushed(version: &Version, first_unflushed: u64) -> &Version {
    let mut oldest = version;
    while let Some(below) = oldest.previous()
        && below.meta.memtable() >= first_unflushed
    {
        oldest = below;
    }
    oldest
}

impl Replacing {
    /// What a version that a snapshot sees may replace, with the unflushed versions below it; `None` if that is nothing.
    fn of(version: &Version, first_unflushed: u64) -> Option<Self> {
        let oldest = oldest_unflushed(version, first_unflushed);
        let older = oldest.meta.lineage.older();
        let replacing = || Replacing { version: version.hold(), older, oldest_ts: oldest.meta.ts };
        (older != Older::Nothing).then(replacing)
    }
}

/// Finds the live copies of keys in `files`: for those whose place is not known, or is in a file that is gone, by one
/// merge join of the sorted keys with each file's key columns.
///
/// # Errors
/// `Corrupt`; those of the file system.
pub(crate) fn resolve(files: &FileSet, keys: &[(&[u8], Older)]) -> Result<Vec<Option<Location>>> {
    let mut places = vec![None; keys.len()];
    let mut open: Vec<usize> = Vec::new();
    for (i, (_, older)) in keys.iter().enumerate() {
        match older.known(files) {
            Some(place) => places[i] = place,
            None => open.push(i),
        }
    }
    open.sort_unstable_by_key(|&i| keys[i].0);
    for file in &files.files {
        if open.is_empty() {
            break;
        }
        let sorted: Vec<&[u8]> = open.iter().map(|&i| keys[i].0).collect();
        let found = file.sstable.locate(&sorted)?;
        let mut rest = Vec::with_capacity(open.len());
        for (i, place) in open.into_iter().zip(found) {
            match place.filter(|(row, _)| !file.deletions.is_marked(*row)) {
                Some((row, _)) => places[i] = Some(Location { file: file.id(), row }),
                None => rest.push(i),
            }
        }
        open = rest;
    }
    Ok(places)
}

fn scan_file(table: &Table, file: &LiveFile, snapshot: &Snapshot, replaced: Vec<u32>) -> Result<FileScan> {
    let mut hidden = file.deletions.hidden_at(snapshot.ts())?;
    let add = |rows: RoaringBitmap, hidden: &mut Arc<RoaringBitmap>| {
        if !rows.is_empty() {
            *Arc::make_mut(hidden) |= rows;
        }
    };
    add(replaced.into_iter().collect(), &mut hidden);
    if file.sstable.meta().max_ts > snapshot.ts() {
        let later = rows_where(table, file, &[], |batch, i| {
            let ts = batch.column(batch.num_columns() - 1).as_primitive::<UInt64Type>();
            ts.value(i) > snapshot.ts().0
        })?;
        add(later, &mut hidden);
    }
    add(expired_rows(table, file, snapshot.now_micros())?, &mut hidden);
    Ok(FileScan { sstable: file.sstable.clone(), hidden })
}

/// Positions of the rows of a file for which `test` holds on a batch of the columns `projection` and, last, `_ts`.
pub(crate) fn rows_where(
    table: &Table,
    file: &LiveFile,
    projection: &[usize],
    test: impl Fn(&RecordBatch, usize) -> bool,
) -> Result<RoaringBitmap> {
    let mut rows = RoaringBitmap::new();
    let mut start = 0;
    for batch in file.sstable.batches(table.schema_ref(), projection, true, None)? {
        let batch = batch?;
        rows.extend((0..batch.num_rows()).filter(|&i| test(&batch, i)).map(|i| start + i as u32));
        start += batch.num_rows() as u32;
    }
    Ok(rows)
}
