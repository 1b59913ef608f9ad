//! Scans: all rows of a table at a snapshot, as files with the rows to leave out, and rows in memory. No merge.
//!
//! A row of a file is left out if its mark says so, if it is newer than the snapshot, if it has expired, or if an
//! unflushed version that the snapshot sees replaces it. The last is what [`resolve`] finds.

use crate::catalog::Table;
use crate::engine::{Engine, Obligation};
use crate::expiry::expired_rows;
use crate::index::{Location, Older, Version, VersionRef, version_at};
use crate::memory::Reserved;
use crate::tablet::{FileSet, LiveFile, Tablet, TabletState};
use crate::timeline::Snapshot;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use oribi_sstable::{Sstable, SstableId};
use oribi_types::batch::BatchBuilder;
use oribi_types::{Error, Result, Schema, Timestamp};
use roaring::RoaringBitmap;
use std::collections::HashMap;
use std::sync::Arc;

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
#[derive(Clone, Default)]
pub struct MemoryRows {
    rows: Arc<Vec<MemoryRow>>,
}

struct MemoryRow(VersionRef);

impl MemoryRow {
    fn row(&self) -> &[u8] {
        self.0.row().expect("deleted rows are left out")
    }
}

impl MemoryRows {
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of keys and rows.
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(|r| r.0.key().len() + r.row().len()).sum()
    }

    /// The rows as batches of at most `batch_rows`, with the columns at the positions `projection` of `schema` and,
    /// with `with_ts`, the hidden commit timestamp last.
    ///
    /// # Errors
    /// `Corrupt` for a key that does not decode.
    pub fn batches(
        &self,
        schema: &Schema,
        projection: &[usize],
        with_ts: bool,
        batch_rows: usize,
    ) -> Result<Vec<RecordBatch>> {
        let starts = (0..self.rows.len()).step_by(batch_rows);
        starts.map(|start| self.batch(schema, projection, with_ts, start, batch_rows)).collect()
    }

    /// Those from number `start` on, `rows_max` at most, as a batch like those of [`batches`](Self::batches).
    ///
    /// # Errors
    /// `Corrupt` for a key that does not decode.
    pub fn batch(
        &self,
        schema: &Schema,
        projection: &[usize],
        with_ts: bool,
        start: usize,
        rows_max: usize,
    ) -> Result<RecordBatch> {
        let mut builder = BatchBuilder::new(schema, projection, with_ts);
        for row in self.rows.iter().skip(start).take(rows_max) {
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

/// Rows that no file has yet, as batches. Yields each once.
#[derive(Default)]
pub struct MemoryColumns {
    source: ColumnsSource,
    /// For the batches that are left.
    _reserved: Option<Reserved>,
}

enum ColumnsSource {
    Made(std::vec::IntoIter<RecordBatch>),
    /// To be made when they are asked for, from this row on.
    ToMake {
        rows: MemoryRows,
        next: usize,
        schema: Arc<Schema>,
        projection: Vec<usize>,
    },
}

impl Default for ColumnsSource {
    fn default() -> Self {
        ColumnsSource::Made(Vec::new().into_iter())
    }
}

impl MemoryColumns {
    /// The next rows, never none; `None` after the last.
    ///
    /// # Errors
    /// `Corrupt` for a key that does not decode.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let next = match &mut self.source {
            ColumnsSource::Made(batches) => batches.next(),
            ColumnsSource::ToMake { rows, next, schema, projection } if *next < rows.rows() => {
                let start = std::mem::replace(next, *next + COLUMNS_ROWS);
                Some(rows.batch(schema, projection, false, start, COLUMNS_ROWS)?)
            }
            ColumnsSource::ToMake { .. } => None,
        };
        if next.is_none() {
            *self = MemoryColumns::default();
        }
        Ok(next)
    }
}

/// Rows of a batch of rows in memory.
const COLUMNS_ROWS: usize = 4096;
/// Columns are made at once if they take at most one part in so many of what is left for queries: a scan that nobody goes on with
/// keeps them for a while.
const COLUMNS_SHARE: u64 = 4;

/// What becomes of the rows in memory that a scan sees.
trait Collect {
    /// There will be so many, perhaps less. What came before is void.
    fn begin(&mut self, rows: usize);
    fn push(&mut self, version: &Version, row: &[u8]);
}

impl Collect for Vec<MemoryRow> {
    fn begin(&mut self, rows: usize) {
        self.clear();
        self.reserve(rows);
    }

    fn push(&mut self, version: &Version, _row: &[u8]) {
        self.push(MemoryRow(version.hold()));
    }
}

/// Rows as columns, while they are in the processor's cache.
struct Columns<'s> {
    builder: BatchBuilder<'s>,
    batches: Vec<RecordBatch>,
    failed: Option<Error>,
}

impl Columns<'_> {
    fn try_push(&mut self, version: &Version, row: &[u8]) -> Result<()> {
        self.builder.push(version.key(), row, version.meta.ts)?;
        if self.builder.rows() == COLUMNS_ROWS {
            self.batches.push(self.builder.finish()?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<RecordBatch>> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.builder.rows() > 0 {
            self.batches.push(self.builder.finish()?);
        }
        Ok(self.batches)
    }
}

impl Collect for Columns<'_> {
    fn begin(&mut self, _rows: usize) {
        self.batches.clear();
        self.builder.clear();
    }

    fn push(&mut self, version: &Version, row: &[u8]) {
        if self.failed.is_none() {
            self.failed = self.try_push(version, row).err();
        }
    }
}

/// An unflushed key that may have an older copy in the files, as a snapshot sees it.
struct Replacing {
    version: VersionRef,
    /// What its oldest unflushed version replaces in the files, and that version's timestamp.
    older: Older,
    oldest_ts: Timestamp,
}

/// What a capture tells beside the rows.
struct Captured {
    state: Arc<TabletState>,
    replacing: Vec<Replacing>,
    /// The highest LSN of what the snapshot sees, deletes included.
    lsn: Option<u64>,
}

impl Engine {
    /// All rows of `table` at `snapshot`. Looks up what unflushed rows replace, which may read files: do not call
    /// from a thread that serves a hot protocol.
    ///
    /// # Errors
    /// `Conflict` if a tablet was dropped since the table's handle was taken; `Corrupt`; those of the file system.
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
        let mut obligation = Obligation::default();
        let tablets = tablets
            .into_iter()
            .map(|tablet| self.scan_tablet(table, &table.tablets[tablet], snapshot, &mut obligation))
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
        let mut obligation = Obligation::default();
        let schema = table.schema();
        let tablet = &table.tablets[tablet];
        // What is in memory has about the size of its columns, and grows meanwhile by little.
        let bytes: u64 = tablet.state().memtables().map(|memtable| memtable.bytes()).sum();
        let fits = bytes <= self.budget.left_for_queries() / COLUMNS_SHARE;
        let Some(reserved) = fits.then(|| Reserved::try_new(&self.budget, bytes)).flatten() else {
            let TabletScan { files, memory } = self.scan_tablet(table, tablet, snapshot, &mut obligation)?;
            let (next, projection) = (0, projection.to_vec());
            let source = ColumnsSource::ToMake { rows: memory, next, schema, projection };
            return Ok(TabletColumns {
                files,
                memory: MemoryColumns { source, _reserved: None },
                obligation,
            });
        };
        let builder = BatchBuilder::new(&schema, projection, false);
        let mut columns = Columns { builder, batches: Vec::new(), failed: None };
        let files = self.collect_tablet(table, tablet, snapshot, &mut obligation, &mut columns)?;
        let source = ColumnsSource::Made(columns.finish()?.into_iter());
        Ok(TabletColumns { files, memory: MemoryColumns { source, _reserved: Some(reserved) }, obligation })
    }

    fn scan_tablet(
        &self,
        table: &Table,
        tablet: &Tablet,
        snapshot: &Snapshot,
        obligation: &mut Obligation,
    ) -> Result<TabletScan> {
        let mut rows = Vec::new();
        let files = self.collect_tablet(table, tablet, snapshot, obligation, &mut rows)?;
        Ok(TabletScan { files, memory: MemoryRows { rows: Arc::new(rows) } })
    }

    /// The files of a tablet; `rows` is given its rows in memory.
    fn collect_tablet(
        &self,
        table: &Table,
        tablet: &Tablet,
        snapshot: &Snapshot,
        obligation: &mut Obligation,
        rows: &mut impl Collect,
    ) -> Result<Vec<FileScan>> {
        let Captured { state, replacing, lsn } = self.capture(table, tablet, snapshot, rows);
        table.check_not_dropped(tablet)?;
        // What is in a file is durable, so only unflushed versions are waited for.
        if let Some(lsn) = lsn {
            obligation.merge(Obligation::on(table, lsn));
        }
        let older: Vec<(&[u8], Older)> = replacing.iter().map(|r| (r.version.key(), r.older)).collect();
        let replaced = resolve(&state.files, &older)?;
        self.remember(tablet, &state, &replacing, &replaced);

        let mut hidden: HashMap<SstableId, Vec<u32>> = HashMap::new();
        for location in replaced.into_iter().flatten() {
            hidden.entry(location.file).or_default().push(location.row);
        }
        let visible = state.files.files.iter().filter(|file| file.visible_from <= snapshot.ts());
        let scan = |file: &Arc<LiveFile>| {
            scan_file(table, file, snapshot, hidden.remove(&file.id()).unwrap_or_default())
        };
        visible.map(scan).collect()
    }

    /// The state of a tablet, and what of its memtables a snapshot sees. Taken again if a flush was installed in between,
    /// because that unpins rows.
    fn capture(
        &self,
        table: &Table,
        tablet: &Tablet,
        snapshot: &Snapshot,
        rows: &mut impl Collect,
    ) -> Captured {
        let now = snapshot.now_micros();
        loop {
            let state = arc_swap::Guard::into_inner(tablet.state());
            let generation = tablet.generation();
            let first_unflushed = state.first_unflushed();
            let (mut replacing, mut lsn) = (Vec::new(), None);
            rows.begin(state.memtables().map(|m| m.len()).sum());
            for memtable in state.memtables() {
                self.index.visit(generation, memtable.hashes(), |_, newest| {
                    // A key that is in several memtables is taken with the version that counts.
                    let seen = version_at(newest, snapshot.ts()).filter(|v| v.meta.memtable() == memtable.id);
                    let Some(version) = seen else { return };
                    lsn = lsn.max(Some(version.meta.lsn));
                    replacing.extend(Replacing::of(version, first_unflushed));
                    if let Some(row) = version.row()
                        && !table.is_expired(row, version.meta.ts, now)
                    {
                        rows.push(version, row);
                    }
                });
            }
            if tablet.is_current(&state) && tablet.generation() == generation {
                return Captured { state, replacing, lsn };
            }
        }
    }

    /// Keeps what was looked up, for the next scan and the flush.
    fn remember(
        &self,
        tablet: &Tablet,
        state: &TabletState,
        replacing: &[Replacing],
        replaced: &[Option<Location>],
    ) {
        for (r, location) in replacing.iter().zip(replaced) {
            let lasting = match r.older {
                // What lay below it is in the files by now, so the answer holds for good.
                Older::Unresolved { below } => below < state.first_unflushed(),
                Older::Nothing => false,
                Older::At(known) => *location != Some(known),
            };
            if lasting {
                let older = location.map_or(Older::Nothing, Older::At);
                self.index.resolve(self.index.key(tablet.generation(), r.version.key()), r.oldest_ts, older);
            }
        }
    }
}

impl Replacing {
    /// What a version that a snapshot sees may replace, with the unflushed versions below it; `None` if that is nothing.
    fn of(version: &Version, first_unflushed: u64) -> Option<Self> {
        let mut oldest = version;
        while let Some(below) = oldest.previous()
            && below.meta.memtable() >= first_unflushed
        {
            oldest = below;
        }
        let older = oldest.meta.older();
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
