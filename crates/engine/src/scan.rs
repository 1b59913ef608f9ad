//! Scans: all rows of a table at a snapshot, as files with the rows to leave out, and rows in memory. No merge.
//!
//! A row of a file is left out if its mark says so, if it is newer than the snapshot, if it has expired, or if an
//! unflushed version that the snapshot sees replaces it. The last is what [`resolve`] finds.

use crate::catalog::Table;
use crate::engine::{Engine, Obligation};
use crate::expiry::expired_rows;
use crate::hidden::Hidden;
use crate::index::{Location, Older, VersionRef};
use crate::reading::Reading;
use crate::tablet::{FileSet, LiveFile};
use crate::timeline::Snapshot;
use crate::walk::MemoryColumns;
use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::UInt64Type;
use oribi_sstable::{Batches, RowSelection, RowSelector, Sstable};
use oribi_types::{Error, Result, Schema, Timestamp};
use roaring::RoaringBitmap;
use std::ops::Range;
use std::sync::Arc;

/// All rows of a tablet at a snapshot; none is in two places.
pub struct TabletScan {
    pub files: Vec<FileScan>,
    pub memory: MemoryColumns,
    /// To be settled before the first row is answered.
    pub obligation: Obligation,
}

/// The rows of one SSTable.
pub struct FileScan {
    pub sstable: Arc<Sstable>,
    /// Positions in the file that the snapshot does not see.
    pub hidden: Hidden,
}

impl FileScan {
    pub fn live_rows(&self) -> u64 {
        self.sstable.meta().rows - self.hidden.len()
    }

    /// The row groups that have some of `rows`, positions in the file; with each which of its rows, if not all.
    pub fn groups(&self, rows: Range<u32>) -> Vec<(usize, Option<RowSelection>)> {
        let part = |(number, group): (usize, Range<u32>)| {
            let within = rows.start.max(group.start)..rows.end.min(group.end);
            if within == group {
                return Some((number, None));
            }
            let place = |row| (row - group.start) as usize;
            (!within.is_empty()).then(|| {
                let range = std::iter::once(place(within.start)..place(within.end));
                (number, Some(RowSelection::from_consecutive_ranges(range, group.len())))
            })
        };
        self.sstable.row_groups().enumerate().filter_map(part).collect()
    }

    /// The rows of a row group that are to be read, of those that `within` selects; `None` if the snapshot sees none of them.
    ///
    /// # Errors
    /// `Invalid` for a row group that does not exist.
    pub fn rows(&self, group: usize, within: Option<RowSelection>) -> Result<Option<GroupRows>> {
        let Some(rows) = self.sstable.row_groups().nth(group) else {
            return Err(Error::invalid(format!("sstable {}: no row group {group}", self.sstable.meta().id)));
        };
        let seen = self.hidden.seen(&rows, within.as_ref());
        let selected = within.unwrap_or_else(|| RowSelection::from(vec![RowSelector::select(rows.len())]));
        let Some(seen) = seen else {
            return Ok(selected.selects_any().then_some(GroupRows { selected, seen: None }));
        };
        // Where most are hidden, so may whole pages be, which then are not read.
        if 2 * seen.count_set_bits() < seen.len() {
            let selected = selected.and_then(&RowSelection::from_boolean_buffer(seen));
            return Ok(selected.selects_any().then_some(GroupRows { selected, seen: None }));
        }
        Ok(Some(GroupRows { selected, seen: Some(seen) }))
    }

    /// The [rows](Self::rows) of a row group; columns as [`Sstable::batches`] has them.
    ///
    /// # Errors
    /// `Corrupt`, here or from the iterator; `Invalid` for a row group that does not exist.
    pub fn batches(
        &self,
        schema: &Schema,
        projection: &[usize],
        with_ts: bool,
        group: usize,
        within: Option<RowSelection>,
    ) -> Result<Option<SeenBatches>> {
        let rows = self.rows(group, within)?;
        rows.map(|rows| self.read(schema, projection, with_ts, group, rows)).transpose()
    }

    /// As [`batches`](Self::batches), of rows that were chosen by now.
    ///
    /// # Errors
    /// As there.
    pub fn read(
        &self,
        schema: &Schema,
        projection: &[usize],
        with_ts: bool,
        group: usize,
        rows: GroupRows,
    ) -> Result<SeenBatches> {
        let batches = self.sstable.group_batches(schema, projection, with_ts, group, rows.selected)?;
        Ok(SeenBatches { batches, seen: rows.seen, next: 0 })
    }
}

/// Rows of a row group that a scan reads.
pub struct GroupRows {
    pub selected: RowSelection,
    /// A bit for each selected row: whether the snapshot sees it. `None` if it sees them all.
    ///
    /// Not taken out of `selected`, as most are seen: they are left out together with those that do not pass.
    pub seen: Option<BooleanBuffer>,
}

/// Batches of rows of a row group.
pub struct SeenBatches {
    batches: Batches,
    seen: Option<BooleanBuffer>,
    /// Rows that came from the file.
    next: usize,
}

/// A batch of a row group, which may have rows that the snapshot does not see: whoever tests rows leaves out those too, by one copy.
pub struct SeenBatch {
    pub batch: RecordBatch,
    /// Which it sees, if not all.
    pub seen: Option<BooleanBuffer>,
}

impl SeenBatch {
    /// The rows that the snapshot sees, perhaps none.
    ///
    /// # Errors
    /// Those of Arrow.
    pub fn rows(self) -> Result<RecordBatch> {
        match self.seen {
            Some(seen) => Ok(filter_record_batch(&self.batch, &BooleanArray::from(seen))?),
            None => Ok(self.batch),
        }
    }
}

impl From<RecordBatch> for SeenBatch {
    fn from(batch: RecordBatch) -> Self {
        SeenBatch { batch, seen: None }
    }
}

impl SeenBatches {
    /// Bytes of pages that were read from the file by now.
    pub fn bytes_read(&self) -> u64 {
        self.batches.bytes_read()
    }
}

impl Iterator for SeenBatches {
    type Item = Result<SeenBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        Some(batch.map(|batch| {
            let seen = self.seen.as_ref().map(|seen| seen.slice(self.next, batch.num_rows()));
            self.next += batch.num_rows();
            SeenBatch { batch, seen }
        }))
    }
}

/// What is known of a table's rows before they are looked at.
#[derive(Default)]
pub struct Outline {
    pub files: Vec<FileOutline>,
    /// Keys in memory, and the bytes of their rows. Some may be deleted, expired, or none that the snapshot sees.
    pub memory_rows: u64,
    pub memory_bytes: u64,
    /// The same by tablet, of those that have some.
    pub memory: Vec<MemoryOutline>,
    /// Nobody was writing: the snapshot sees all writes of which the [states](MemoryState) tell.
    pub is_quiet: bool,
}

/// What is known of the rows that a tablet has in memory.
pub struct MemoryOutline {
    /// Its number in the table.
    pub tablet: usize,
    pub rows: u64,
    pub bytes: u64,
    pub state: MemoryState,
}

/// Which writes a tablet's memory has seen: for each memtable its id and the newest record.
///
/// What a snapshot sees of a state that was [quiet](Outline::is_quiet), later ones see of all states that it covers: a record is
/// noted before its rows are published, and newer records have higher numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryState(Vec<MemtableState>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct MemtableState {
    id: u64,
    newest_lsn: u64,
    /// How many keys it has.
    keys: usize,
}

impl MemoryState {
    /// Whether nothing was written from this state to `later`. Rows that were flushed meanwhile may be missing there.
    pub fn covers(&self, later: &MemoryState) -> bool {
        let is_same = |a: &MemtableState, b: &MemtableState| (a.id, a.newest_lsn) == (b.id, b.newest_lsn);
        later.0.iter().all(|later| self.0.iter().any(|memtable| is_same(memtable, later)))
    }

    /// How many keys a memtable has in it.
    pub(crate) fn keys_of(&self, memtable: u64) -> usize {
        self.0.iter().find(|of| of.id == memtable).map_or(0, |of| of.keys)
    }
}

/// What is known of the rows of one SSTable.
pub struct FileOutline {
    pub sstable: Arc<Sstable>,
    /// How many of its rows are marked.
    pub marked: u64,
    /// Whether the snapshot sees all others.
    pub is_exact: bool,
}

/// What the unflushed rows that a snapshot sees replace in files.
struct Replaced {
    /// Positions of rows in each of the tablet's files.
    known: Vec<Vec<u32>>,
    /// Where it is to be looked up.
    open: Vec<Replacing>,
}

/// An unflushed key that may have an older copy in the files, as a snapshot sees it.
struct Replacing {
    version: VersionRef,
    /// What its oldest unflushed version replaces in the files, and that version's timestamp.
    older: Older,
    oldest_ts: Timestamp,
}

impl Engine {
    /// All rows of some tablets of `table`, by their numbers, at `snapshot`: the columns at the positions `projection` and, with
    /// `with_ts`, the commit timestamps behind them. Looks up what unflushed rows replace, which may read files: do not call
    /// from a thread that serves a hot protocol.
    ///
    /// # Errors
    /// `Conflict` if rows that the snapshot sees went since, with a truncate or drop, or columns of the table's handle;
    /// `Corrupt`; those of the file system.
    pub fn scan(
        &self,
        table: &Arc<Table>,
        tablets: impl IntoIterator<Item = usize>,
        projection: &[usize],
        with_ts: bool,
        snapshot: &Snapshot,
    ) -> Result<Vec<TabletScan>> {
        self.check_ranges(table, snapshot)?;
        let scan = |tablet| self.scan_tablet(table, tablet, projection, with_ts, snapshot);
        tablets.into_iter().map(scan).collect()
    }

    /// As [`scan`](Self::scan), of one tablet, for who reads tablets one by one.
    ///
    /// # Errors
    /// Those of [`scan`](Self::scan).
    pub fn scan_tablet(
        &self,
        table: &Arc<Table>,
        tablet: usize,
        projection: &[usize],
        with_ts: bool,
        snapshot: &Snapshot,
    ) -> Result<TabletScan> {
        let tablet = &table.tablets[tablet];
        let (reading, replaced, memory) = loop {
            let reading = self.reading(table, tablet, snapshot.ts(), Some(projection))?;
            let replaced = self.replaced(&reading, snapshot);
            let memory = MemoryColumns::begin(&self.index, table, &reading, (projection, with_ts), snapshot);
            // Else rows may be unpinned, or swept, of which the walk did not hear.
            if reading.still_valid() {
                break (reading, replaced, memory);
            }
        };
        self.holders.add(memory.holder());
        let files = self.scan_files(table, &reading, snapshot, replaced)?;
        // Perhaps more than the snapshot sees: the rows were not looked at yet.
        let newest =
            reading.state.memtables().map(|memtable| memtable.newest_lsn()).max().unwrap_or_default();
        Ok(TabletScan { files, memory, obligation: Obligation::on(table, newest) })
    }

    /// The rows that a tablet has in memory, as a [`scan`](Self::scan) has them. Where a state is named that was
    /// [quiet](Outline::is_quiet), those that changed `since`, and perhaps some others.
    ///
    /// # Errors
    /// `Conflict`, as of a scan.
    pub fn memory_columns(
        &self,
        table: &Arc<Table>,
        tablet: usize,
        projection: &[usize],
        snapshot: &Snapshot,
        since: Option<&MemoryState>,
    ) -> Result<MemoryColumns> {
        let memory = loop {
            let reading = self.reading(table, &table.tablets[tablet], snapshot.ts(), Some(projection))?;
            let memory = MemoryColumns::begin(&self.index, table, &reading, (projection, false), snapshot);
            since.inspect(|since| memory.leave_out(since));
            if reading.still_valid() {
                break memory;
            }
        };
        self.holders.add(memory.holder());
        Ok(memory)
    }

    /// What a scan of some tablets will read, about.
    ///
    /// # Errors
    /// `Conflict`, as of a scan: of what is outlined as empty nothing may be left to scan.
    pub fn outline(
        &self,
        table: &Table,
        tablets: impl IntoIterator<Item = usize>,
        snapshot: &Snapshot,
    ) -> Result<Outline> {
        let mut outline = Outline::default();
        for tablet in tablets {
            let Reading { state, .. } =
                self.reading(table, &table.tablets[tablet], snapshot.ts(), Some(&[]))?;
            let rows = state.memtables().map(|memtable| memtable.len() as u64).sum();
            let bytes = state.memtables().map(|memtable| memtable.bytes()).sum();
            outline.memory_rows += rows;
            outline.memory_bytes += bytes;
            if rows > 0 {
                let filled = state.memtables().filter(|memtable| !memtable.is_empty());
                let noted = filled.map(|memtable| {
                    let (keys, newest_lsn) = (memtable.len(), memtable.newest_lsn());
                    MemtableState { id: memtable.id, newest_lsn, keys }
                });
                let state = MemoryState(noted.collect());
                outline.memory.push(MemoryOutline { tablet, rows, bytes, state });
            }
            let visible = state.files.files.iter().filter(|file| file.visible_from <= snapshot.ts());
            outline.files.extend(visible.map(|file| FileOutline {
                sstable: file.sstable.at(snapshot.ts()),
                marked: file.deletions.gone_at(snapshot.ts()),
                is_exact: rows == 0 && file.sstable.meta().max_ts <= snapshot.ts() && table.expiry().never(),
            }));
        }
        // After the states were taken.
        outline.is_quiet = !outline.memory.is_empty() && self.timeline.is_quiet_at(snapshot.ts());
        Ok(outline)
    }

    fn replaced(&self, reading: &Reading, snapshot: &Snapshot) -> Replaced {
        let files = (&*reading.state.files, reading.state.first_unflushed());
        let mut replaced = Replaced { known: vec![Vec::new(); files.0.files.len()], open: Vec::new() };
        let Replaced { known, open } = &mut replaced;
        for memtable in reading.state.memtables() {
            let found = memtable.replaced(&self.budget);
            found.find((memtable, &self.index), files, snapshot.ts(), known, |newest, oldest| {
                let older = oldest.meta.lineage.older();
                open.push(Replacing { version: newest.hold(), older, oldest_ts: oldest.meta.ts });
            });
        }
        replaced
    }

    /// The files of a tablet, without what is replaced in memory.
    fn scan_files(
        &self,
        table: &Table,
        reading: &Reading,
        snapshot: &Snapshot,
        Replaced { mut known, open }: Replaced,
    ) -> Result<Vec<FileScan>> {
        let files = &reading.state.files;
        let older: Vec<(&[u8], Older)> = open.iter().map(|r| (r.version.key(), r.older)).collect();
        let found = resolve(files, &older)?;
        self.remember(reading, &open, &found);
        for location in found.into_iter().flatten() {
            let file = files.position(location.file).expect("it was found there");
            known[file].push(location.row);
        }
        let files = files.files.iter().zip(known);
        let visible = files.filter(|(file, _)| file.visible_from <= snapshot.ts());
        visible.map(|(file, replaced)| scan_file(table, file, snapshot, replaced)).collect()
    }

    /// Keeps what was looked up, for the next scan and the flush.
    fn remember(&self, reading: &Reading, open: &[Replacing], found: &[Option<Location>]) {
        for (r, location) in open.iter().zip(found) {
            let lasting = match r.older {
                // What lay below it is in the files by now, so the answer holds for good.
                Older::Unresolved { below } => below < reading.state.first_unflushed(),
                Older::Nothing => false,
                // Its file is gone.
                Older::At(_) => true,
            };
            if lasting {
                let found = location.map_or(Older::Nothing, Older::At);
                let key = self.index.key(reading.generation(), r.version.key());
                self.index.resolve(key, r.oldest_ts, r.older, found);
            }
        }
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
        let found = file.locate_live(&sorted)?;
        let mut rest = Vec::with_capacity(open.len());
        for (i, place) in open.into_iter().zip(found) {
            match place {
                Some((row, _)) => places[i] = Some(Location { file: file.id(), row }),
                None => rest.push(i),
            }
        }
        open = rest;
    }
    Ok(places)
}

fn scan_file(
    table: &Table,
    file: &Arc<LiveFile>,
    snapshot: &Snapshot,
    replaced: Vec<u32>,
) -> Result<FileScan> {
    let file = file.at(snapshot.ts());
    let rows = file.sstable.meta().rows as usize;
    let mut hidden = file.deletions.hidden_at(snapshot.ts(), rows)?.with(rows, replaced);
    if file.sstable.meta().max_ts > snapshot.ts() {
        let later = rows_where(table, &file, &[], |batch, i| {
            let ts = batch.column(batch.num_columns() - 1).as_primitive::<UInt64Type>();
            ts.value(i) > snapshot.ts().0
        })?;
        hidden = hidden.with(rows, later);
    }
    hidden = hidden.with(rows, expired_rows(table, &file, snapshot.now_micros())?);
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
