//! Changes by position: many rows of files are replaced or deleted where they lie, past log and memtable.
//!
//! A statement's scan has found each row in a file, and knows its place. So nothing is looked up: the columns of the rows that are not
//! set are read, and merged by key into SSTables of what they become. Marks on the old rows and the new files count by one manifest
//! record. A delete is marks alone.
//!
//! A row at a place is one version of its key and never changes. It is still the newest if
//! - its file is the tablet's, and has no mark on it: each flush since would have left one;
//! - its key is in no memtable.
//!
//! Where one row is not, or a transaction has locked it, nothing is done: the statement then goes the other way, which waits for
//! others and decides again.
//!
//! | what | others meanwhile |
//! |---|---|
//! | the new files are written | do all they like |
//! | flushes and other changes of the tablets' files end; none begins until this has | write, read |
//! | the change is [undecided](crate::undecided): keys in memtables are compared, marks and the record are synced | who would write one of these rows waits |
//! | the files become the tablets' | who would write any row of them waits, for microseconds |
//!
//! Rows that are cached are forgotten between; what is read of the tablets' files is not cached until all is done.

use crate::catalog::Table;
use crate::compaction::OUTPUT_BATCH_ROWS;
use crate::deletions::Marks;
use crate::engine::{Engine, Obligation};
use crate::index::Location;
use crate::installer::{FileChange, GivenUp, PreparedChanges};
use crate::memory::Reserved;
use crate::tablet::{FileSet, LiveFile, Tablet, TabletState};
use crate::undecided::Change;
use crate::write::Commit;
use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::Schema as ArrowSchema;
use oribi_env::File;
use oribi_sstable::{
    Batches, RowSelection, SstableId, SstableMeta, SstableOptions, SstableWriter, stored_columns,
};
use oribi_types::batch::{EncodedKeys, ts_field};
use oribi_types::{Error, Result, Schema, Timestamp};
use roaring::RoaringBitmap;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A tablet with so many times the files that are worth a compaction gets no more in this way.
const FILES_FACTOR_MAX: usize = 4;
/// A file of fewer rows is not worth a thread.
const FILE_ROWS_MIN: usize = 16 << 10;
/// What a file has at most that is synced with marks and folder at once: others wait meanwhile who write the rows.
const SYNCED_LATE_BYTES_MAX: u64 = 4 << 20;
/// A thread hashes so many keys at a time, and sorts them.
const HASHED_ROWS: usize = 128 << 10;
/// What a file that is being written takes in memory: a row group, and pages of the one that is read.
const WRITING_BYTES: u64 = 16 << 20;

/// Rows of files that a statement replaces or deletes.
pub struct PositionChange<'a> {
    pub table: &'a Arc<Table>,
    /// In order, none twice; with each the number that the row has in the statement.
    pub rows: &'a [(Location, u32)],
    /// The encoded key of the row of a number.
    pub key: &'a (dyn Fn(u32) -> &'a [u8] + Sync),
    /// What the rows become; `None`: they are deleted.
    pub values: Option<&'a (dyn NewValues + 'a)>,
    /// That write files.
    pub threads: usize,
    /// Whether somebody still waits for it: otherwise it is given up.
    pub is_asked: &'a (dyn Fn() -> bool + Sync),
}

/// Values that rows get, none of a column of the key.
pub trait NewValues: Sync {
    /// Positions of the columns that are set.
    fn columns(&self) -> &[usize];

    /// An array for each of these columns, of its type, with a value for each of `rows`, by their numbers.
    ///
    /// # Errors
    /// `Invalid` for values that do not fit.
    fn values(&self, rows: &[u32]) -> Result<Vec<ArrayRef>>;
}

/// Rows of one file, and the tablet that has it.
struct OfFile<'a> {
    tablet: &'a Arc<Tablet>,
    file: Arc<LiveFile>,
    rows: &'a [(Location, u32)],
}

/// What a tablet loses and gets.
struct OfTablet<'a> {
    tablet: &'a Arc<Tablet>,
    /// Of the keys of the rows, ascending.
    hashes: Arc<[u64]>,
    /// In each file.
    rows: HashMap<SstableId, Arc<RoaringBitmap>>,
    added: Vec<NewFile>,
}

#[derive(Clone)]
struct NewFile {
    meta: SstableMeta,
    unsynced: Vec<Arc<dyn File>>,
}

/// Files that nobody knows yet. Dropped, they are given up.
struct NewFiles<'e, 'a> {
    engine: &'e Engine,
    files: Vec<(&'a Arc<Tablet>, NewFile)>,
}

impl Drop for NewFiles<'_, '_> {
    fn drop(&mut self) {
        self.files.drain(..).for_each(|(tablet, file)| self.engine.give_up(tablet, file.meta.id));
    }
}

/// Tablets whose files are being changed.
pub(crate) struct Changing<'c>(&'c Engine, Vec<Arc<Tablet>>);

impl<'c> Changing<'c> {
    /// Rows of keys with these hashes are replaced or deleted.
    pub fn begin(engine: &'c Engine, tablets: Vec<(&Arc<Tablet>, &[u64])>) -> Self {
        tablets.iter().for_each(|(tablet, _)| tablet.set_changing(true));
        // Who looked before does not cache what it reads, and who looks from now on is told.
        engine.index.outdate_fills();
        tablets.iter().for_each(|(tablet, hashes)| engine.index.forget(tablet.generation(), hashes));
        Changing(engine, tablets.into_iter().map(|(tablet, _)| tablet.clone()).collect())
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let Changing(engine, tablets) = self;
        // As who read the files as they were, and is told nothing any more.
        engine.index.outdate_fills();
        tablets.iter().for_each(|tablet| tablet.set_changing(false));
    }
}

impl Engine {
    /// Makes the change, durably and at once. `None` if it cannot be made so: a row is not what it was, or is locked, a file was
    /// compacted, the table was altered, or its rows may expire. Then nothing is changed. It waits for flushes and other changes of
    /// the table's files.
    ///
    /// # Errors
    /// Those of `values`; `Corrupt`; those of the file system and the manifest.
    pub fn change_by_position(&self, change: &PositionChange<'_>) -> Result<Option<Commit>> {
        let Some(sources) = self.sources(change) else { return Ok(None) };
        let mut tablets = self.of_tablets(change, &sources);
        // Before the files are written in vain.
        if !tablets.iter().all(|of| of.is_live()) || tablets.iter().any(|of| self.is_in_memtable(of)) {
            return Ok(None);
        }
        let now_micros = self.timeline.now_micros();
        self.reserve_timestamps(now_micros, || false)?;
        // As that of an import's rows: from before they are seen, and above that of what they replace.
        let ts = self.timeline.begin(now_micros);
        self.timeline.complete(ts);
        let mut files = NewFiles { engine: self, files: Vec::new() };
        if let Some(values) = change.values.filter(|_| (change.is_asked)()) {
            self.write_files(change, values, &sources, ts, &mut files)?;
        }
        for of in &mut tablets {
            let added = files.files.iter().filter(|(tablet, _)| Arc::ptr_eq(tablet, of.tablet));
            of.added = added.map(|(_, file)| file.clone()).collect();
        }
        self.commit_by_position(change, tablets, files)
    }

    /// The files that have the rows.
    fn sources<'a>(&self, change: &PositionChange<'a>) -> Option<Vec<OfFile<'a>>> {
        if !change.table.expiry().never() {
            return None;
        }
        let files_max = FILES_FACTOR_MAX * self.options.compaction_files;
        let of_file = |rows: &'a [(Location, u32)]| {
            let id = rows[0].0.file;
            change.table.tablets.iter().find_map(|tablet| {
                let state = tablet.state();
                let file = state.files.file(id).filter(|_| state.files.files.len() < files_max)?;
                Some(OfFile { tablet, file: file.clone(), rows })
            })
        };
        change.rows.chunk_by(|a, b| a.0.file == b.0.file).map(of_file).collect()
    }

    fn of_tablets<'a>(&self, change: &PositionChange<'a>, sources: &[OfFile<'a>]) -> Vec<OfTablet<'a>> {
        let with_rows = change.table.tablets.iter().filter_map(|tablet| {
            let sources: Vec<_> =
                sources.iter().filter(|source| Arc::ptr_eq(source.tablet, tablet)).collect();
            let of_file = |source: &&OfFile<'_>| {
                let rows = source.rows.iter().map(|(place, _)| place.row);
                let rows = RoaringBitmap::from_sorted_iter(rows).expect("they are in order, none twice");
                (source.file.id(), Arc::new(rows))
            };
            let rows: HashMap<_, _> = sources.iter().map(of_file).collect();
            let hashes = self.hashes(change, tablet.generation(), &sources).into();
            (!rows.is_empty()).then_some(OfTablet { tablet, hashes, rows, added: Vec::new() })
        });
        with_rows.collect()
    }

    /// Those of the keys of rows, ascending.
    fn hashes(&self, change: &PositionChange<'_>, generation: u64, sources: &[&OfFile<'_>]) -> Vec<u64> {
        let hash = |(_, number): &(Location, u32)| self.index.key(generation, (change.key)(*number)).hash;
        let pieces: Vec<_> = sources.iter().flat_map(|source| source.rows.chunks(HASHED_ROWS)).collect();
        let sorted = oribi_env::run_idle_each(change.threads, pieces.len(), |n| {
            let mut hashes: Vec<u64> = pieces[n].iter().map(hash).collect();
            hashes.sort_unstable();
            hashes
        });
        let mut hashes = sorted.concat();
        drop(sorted);
        // Which merges what is sorted already.
        hashes.sort();
        hashes
    }

    /// Writes what the rows become: for each tablet a file, or a few if they are many.
    fn write_files<'a>(
        &self,
        change: &PositionChange<'a>,
        values: &(dyn NewValues + '_),
        sources: &[OfFile<'a>],
        ts: Timestamp,
        files: &mut NewFiles<'_, 'a>,
    ) -> Result<()> {
        let threads = change.threads.max(1);
        let of_tablet = |tablet: &'a Arc<Tablet>| {
            let mut sources: Vec<_> =
                sources.iter().filter(|source| Arc::ptr_eq(source.tablet, tablet)).collect();
            sources.sort_by_key(|source| source.rows.len());
            parts(change, &sources, threads).into_iter().map(move |part| (tablet, part))
        };
        let jobs: Vec<(&Arc<Tablet>, Part<'_>)> = change.table.tablets.iter().flat_map(of_tablet).collect();
        let _room = Reserved::new(&self.budget, WRITING_BYTES * threads.min(jobs.len()) as u64);
        let written = oribi_env::run_idle_each(threads, jobs.len(), |n| {
            let (tablet, part) = &jobs[n];
            self.write_file(change, values, &tablet.dir, part, ts)
        });
        let mut failed = None;
        for ((tablet, _), written) in jobs.iter().zip(written) {
            match written {
                Ok(file) => files.files.push((*tablet, file)),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn write_file(
        &self,
        change: &PositionChange<'_>,
        values: &(dyn NewValues + '_),
        dir: &Path,
        part: &Part<'_>,
        ts: Timestamp,
    ) -> Result<NewFile> {
        let schema = change.table.schema_ref();
        let stored = stored_columns(schema);
        let read: Vec<usize> = stored.iter().copied().filter(|p| !values.columns().contains(p)).collect();
        let fields = stored.iter().map(|p| schema.arrow().field(*p).clone());
        let arrow = Arc::new(ArrowSchema::new(fields.chain([ts_field()]).collect::<Vec<_>>()));
        let id = self.manifest.next_file_id()?;
        let mut writer = SstableWriter::create(&self.env, dir, id, schema, &SstableOptions::default())?;
        let mut merged = Merged::new(change, part, &read);
        while let Some((batch, numbers)) = merged.next()? {
            let mut keys = EncodedKeys::default();
            numbers.iter().for_each(|number| keys.push((change.key)(*number)));
            let set = values.values(&numbers)?;
            let column = |position: &usize| match values.columns().iter().position(|p| p == position) {
                Some(n) => set[n].clone(),
                None => batch.column(read.binary_search(position).expect("it is read")).clone(),
            };
            let of_ts: ArrayRef = Arc::new(UInt64Array::from_value(ts.0, numbers.len()));
            let columns = stored.iter().map(column).chain([of_ts]).collect();
            writer.push_batch(&RecordBatch::try_new(arrow.clone(), columns)?, &keys)?;
        }
        let (meta, unsynced) = writer.finish_late(SYNCED_LATE_BYTES_MAX)?;
        Ok(NewFile { meta, unsynced })
    }

    fn commit_by_position<'a>(
        &self,
        change: &PositionChange<'a>,
        tablets: Vec<OfTablet<'a>>,
        files: NewFiles<'_, 'a>,
    ) -> Result<Option<Commit>> {
        let table = change.table;
        // What was written before is not forgotten while this is remembered.
        self.log.wait_durable(self.log.appended())?;
        self.reserve_timestamps(self.timeline.now_micros(), || true)?;

        // In this order, which all others keep to. No key is between a memtable and its file, and the set of files stays as it is.
        let _ddl = self.begin_ddl();
        let _flushes: Vec<_> = tablets.iter().map(|of| of.tablet.flush.lock()).collect();
        let _installers: Vec<_> = tablets.iter().map(|of| of.tablet.installer.lock()).collect();
        self.manifest.retry()?;
        if !tablets.iter().all(|of| of.tablet.takes(table.version()) && of.is_live()) {
            return Ok(None);
        }
        let generations: Vec<u64> = tablets.iter().map(|of| of.tablet.generation()).collect();
        let rows = tablets.iter().map(|of| (of.tablet.id, of.hashes.clone())).collect();
        let undecided = {
            // Nobody is between deciding on a row and writing it.
            let _latches = self.latches.take_sets(&generations);
            self.begin_deciding(Change::Replaced(rows))
        };
        self.released.tell();
        for of in &tablets {
            if self.is_in_memtable(of) || self.is_locked(of)? {
                return Ok(None);
            }
        }
        if !(change.is_asked)() {
            return Ok(None);
        }
        let ts = self.install_by_position(table, &tablets, files)?;
        drop(undecided);
        let rows: usize = tablets.iter().map(|of| of.hashes.len()).sum();
        self.counters.rows_written.fetch_add(rows as u64, Relaxed);
        self.background.wake();
        Ok(Some(Commit { ts, obligation: Obligation::default() }))
    }

    /// Whether a memtable has a version of one of the keys, be it that it is deleted.
    fn is_in_memtable(&self, of: &OfTablet<'_>) -> bool {
        let state = of.tablet.state();
        let mut found = false;
        for memtable in state.memtables() {
            let wanted = memtable.hashes().filter(|hash| of.hashes.binary_search(hash).is_ok());
            self.index.visit(of.tablet.generation(), wanted, |_, newest| found |= !newest.meta.is_clean());
        }
        found
    }

    /// Whether a transaction has locked one of the rows.
    fn is_locked(&self, of: &OfTablet<'_>) -> Result<bool> {
        let generation = of.tablet.generation();
        let is_ours = |key: &[u8]| Ok(of.hashes.binary_search(&self.index.key(generation, key).hash).is_ok());
        let is_among_many = self
            .row_locks
            .many_of(generation)
            .iter()
            .any(|many| of.hashes.iter().any(|hash| many.has(*hash)));
        if is_among_many { Ok(true) } else { self.row_locks.any_of(generation, is_ours) }
    }

    /// Puts the change into the manifest, and then before readers. The caller keeps others from the tablets' files, and from
    /// writing the rows.
    fn install_by_position(
        &self,
        table: &Arc<Table>,
        tablets: &[OfTablet<'_>],
        mut new_files: NewFiles<'_, '_>,
    ) -> Result<Timestamp> {
        let _whole = self.stop_on_panic("a change of files");
        let changed = tablets.iter().map(|of| (of.tablet, &of.hashes[..]));
        let changing = Changing::begin(self, changed.collect());
        let appointment = self.timeline.appoint(self.timeline.now_micros());
        let at = appointment.at();
        let changes = tablets.iter().map(|of| (&**of.tablet, table.schema_ref(), of.file_change(at)));
        let PreparedChanges { files: mut prepared, edits, mut left } = self.prepare_all(changes)?;
        // If the commit fails, or panics, the record may be on the disk all the same.
        left.extend(
            new_files
                .files
                .drain(..)
                .map(|(tablet, file)| GivenUp::Sstable(tablet.dir.clone(), file.meta.id)),
        );
        self.manifest.commit(edits).inspect_err(|_| self.give_up_all(left))?;
        let before: Vec<Arc<FileSet>> = tablets.iter().map(|of| of.tablet.state().files.clone()).collect();
        let ts = {
            // Whoever has decided on a row looked at the files as they were.
            let generations: Vec<u64> = tablets.iter().map(|of| of.tablet.generation()).collect();
            let _latches = self.latches.take_sets(&generations);
            // Who has it alone finds that all is changed, or nothing.
            let _gate = self.gate.share(usize::MAX, true);
            let ts = appointment.keep();
            for (n, of) in tablets.iter().enumerate() {
                if ts != at {
                    let marks = |id| of.marks(id, ts);
                    prepared[n] = Arc::new(self.moved(&before[n], &prepared[n], ts, marks));
                }
                let files = &prepared[n];
                of.tablet.change(|state| TabletState { files: files.clone(), ..state.clone() });
            }
            self.timeline.complete(ts);
            ts
        };
        // Before anybody is told of what he finds: his next snapshot must not lack it.
        self.timeline.wait_for_watermark(ts)?;
        drop(changing);
        self.released.tell();
        for ((of, before), after) in tablets.iter().zip(&before).zip(&prepared) {
            self.remove_replaced(of.tablet, before, after);
        }
        self.settle_given_up();
        Ok(ts)
    }

    /// The files of a change that is made at another time than was told of, with the marks of each of those before.
    pub(crate) fn moved(
        &self,
        before: &FileSet,
        prepared: &FileSet,
        ts: Timestamp,
        marks: impl Fn(SstableId) -> Option<Marks>,
    ) -> FileSet {
        let horizon = self.timeline.horizon();
        let file = |file: &Arc<LiveFile>| match (before.file(file.id()), marks(file.id())) {
            (None, _) => Arc::new(LiveFile { visible_from: ts, ..LiveFile::clone(file) }),
            (Some(_), None) => file.clone(),
            (Some(before), Some(marks)) => {
                let deletions = Arc::new(before.deletions.with(&marks, horizon));
                Arc::new(LiveFile { deletions, ..LiveFile::clone(file) })
            }
        };
        FileSet { files: prepared.files.iter().map(file).collect(), flushed_lsn: prepared.flushed_lsn }
    }
}

impl OfTablet<'_> {
    /// Whether all rows are where they were.
    fn is_live(&self) -> bool {
        let state = self.tablet.state();
        self.rows
            .iter()
            .all(|(id, rows)| state.files.file(*id).is_some_and(|file| file.deletions.are_unmarked(rows)))
    }

    /// Marks on rows of the file `id`, if it has some of the change.
    fn marks(&self, id: SstableId, ts: Timestamp) -> Option<Marks> {
        Some(Marks::At(ts, self.rows.get(&id)?.clone()))
    }

    fn file_change(&self, ts: Timestamp) -> FileChange {
        let marks = self.rows.iter().map(|(id, rows)| (*id, Marks::At(ts, rows.clone())));
        FileChange {
            added: self.added.iter().map(|file| (file.meta.clone(), Marks::default())).collect(),
            unsynced: self.added.iter().flat_map(|file| file.unsynced.iter().cloned()).collect(),
            marks: marks.collect(),
            visible_from: ts,
            ..FileChange::default()
        }
    }
}

/// Rows that become one file: of each file that has some, those between two keys.
type Part<'a> = Vec<(&'a LiveFile, &'a [(Location, u32)])>;

/// Cuts the rows of a tablet into parts, by keys of the source that has most rows, the last.
fn parts<'s>(change: &PositionChange<'_>, sources: &[&'s OfFile<'_>], threads: usize) -> Vec<Part<'s>> {
    let Some(most) = sources.last() else { return Vec::new() };
    let key = |(_, number): &(Location, u32)| (change.key)(*number);
    // The statement waits for the longest.
    let files = (most.rows.len() / FILE_ROWS_MIN).clamp(1, threads);
    let rows_max = most.rows.len().div_ceil(files);
    let mut left: Vec<&'s [(Location, u32)]> = sources.iter().map(|source| source.rows).collect();
    let mut parts = Vec::new();
    for first in (0..most.rows.len()).step_by(rows_max) {
        let end = most.rows.get(first + rows_max).map(key);
        let mut part = Vec::new();
        for (source, left) in sources.iter().zip(&mut left) {
            let count = end.map_or(left.len(), |end| left.partition_point(|row| key(row) < end));
            let (these, later) = left.split_at(count);
            *left = later;
            if !these.is_empty() {
                part.push((source.file.as_ref(), these));
            }
        }
        parts.push(part);
    }
    parts
}

/// The rows of a part as they are read, in the order of their keys.
struct Merged<'m, 'k> {
    change: &'m PositionChange<'k>,
    sources: Vec<Reading<'m>>,
}

impl<'m, 'k> Merged<'m, 'k> {
    fn new(change: &'m PositionChange<'k>, part: &Part<'m>, columns: &'m [usize]) -> Self {
        let reading = |(file, rows): &(&'m LiveFile, &'m [(Location, u32)])| Reading {
            file,
            columns,
            unread: rows,
            batches: None,
            batch: None,
            rows: &[],
        };
        Merged { change, sources: part.iter().map(reading).collect() }
    }

    /// The next rows and their numbers.
    fn next(&mut self) -> Result<Option<(RecordBatch, Vec<u32>)>> {
        for source in &mut self.sources {
            source.fill(self.change.table.schema_ref())?;
        }
        self.sources.retain(|source| !source.rows.is_empty());
        if let [only] = self.sources.as_mut_slice() {
            return Ok(Some(only.take(OUTPUT_BATCH_ROWS)));
        }
        // Until one of them has no more in hand.
        let mut picks: Vec<(usize, usize)> = Vec::new();
        let mut numbers = Vec::new();
        while picks.len() < OUTPUT_BATCH_ROWS && self.sources.iter().all(|source| !source.rows.is_empty()) {
            let key = |(_, source): &(usize, &Reading<'_>)| (self.change.key)(source.rows[0].1);
            let Some((n, _)) = self.sources.iter().enumerate().min_by_key(key) else { return Ok(None) };
            let source = &mut self.sources[n];
            picks.push((n, source.next()));
            numbers.push(source.rows[0].1);
            source.rows = &source.rows[1..];
        }
        let batches = self.sources.iter().filter_map(|source| source.batch.as_ref()).collect::<Vec<_>>();
        let batch = match picks.as_slice() {
            [(n, first), ..] if picks.iter().all(|(source, _)| source == n) => {
                batches[*n].slice(*first, picks.len())
            }
            picks => interleave_record_batch(&batches, picks)?,
        };
        Ok(Some((batch, numbers)))
    }
}

/// Rows of a file as they are read.
struct Reading<'a> {
    file: &'a LiveFile,
    columns: &'a [usize],
    unread: &'a [(Location, u32)],
    batches: Option<Batches>,
    batch: Option<RecordBatch>,
    /// Those of the batch that are left.
    rows: &'a [(Location, u32)],
}

impl Reading<'_> {
    /// The place of the next row in the batch.
    fn next(&self) -> usize {
        self.batch.as_ref().map_or(0, RecordBatch::num_rows) - self.rows.len()
    }

    /// The next rows in hand, of which there are some, so many at most, and their numbers.
    fn take(&mut self, rows_max: usize) -> (RecordBatch, Vec<u32>) {
        let first = self.next();
        let (taken, left) = self.rows.split_at(rows_max.min(self.rows.len()));
        self.rows = left;
        let batch = self.batch.as_ref().expect("rows in hand are of a batch");
        (batch.slice(first, taken.len()), taken.iter().map(|(_, number)| *number).collect())
    }

    /// Reads on, if there is nothing in hand and something left.
    fn fill(&mut self, schema: &Schema) -> Result<()> {
        let sstable = &self.file.sstable;
        while self.rows.is_empty() && !self.unread.is_empty() {
            if let Some(batch) = self.batches.as_mut().and_then(Iterator::next) {
                let batch = batch?;
                (self.rows, self.unread) = self.unread.split_at(batch.num_rows().min(self.unread.len()));
                self.batch = Some(batch);
                continue;
            }
            let first = self.unread[0].0.row;
            let group = sstable.row_groups().enumerate().find(|(_, rows)| rows.contains(&first));
            let Some((group, bounds)) = group else {
                return Err(Error::invalid(format!("sstable {}: there are no such rows", sstable.meta().id)));
            };
            let of_group = self.unread.partition_point(|(place, _)| place.row < bounds.end);
            let runs = runs(&self.unread[..of_group], bounds.start);
            let selection = RowSelection::from_consecutive_ranges(runs, bounds.len());
            self.batches = Some(sstable.group_batches(schema, self.columns, false, group, selection)?);
        }
        Ok(())
    }
}

/// The runs of rows that follow each other, counted from `first`.
fn runs(rows: &[(Location, u32)], first: u32) -> impl Iterator<Item = Range<usize>> {
    let runs = rows.chunk_by(|a, b| a.0.row + 1 == b.0.row);
    runs.map(move |run| {
        let start = (run[0].0.row - first) as usize;
        start..start + run.len()
    })
}
