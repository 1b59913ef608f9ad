//! Changes by position: many rows of files are patched or deleted where they lie, past log and memtable.
//!
//! A statement's scan has found each row in a file, and knows its place. So nothing is looked up, and what is not set is not read: the new
//! values become a [patch](oribi_sstable::Patch) of each file. A delete is marks. Patches and marks count by one manifest record.
//!
//! A row at a place is one version of its key, and it is still the newest, as it was found, if
//! - its file is the tablet's, and has no mark on it: each flush since would have left one;
//! - no patch of the file that the statement's snapshot does not see has the row;
//! - its key is in no memtable.
//!
//! Where one row is not, or a transaction has locked it, nothing is done: the statement then goes the other way, which waits for
//! others and decides again.
//!
//! | what | others meanwhile |
//! |---|---|
//! | the patches are written | do all they like |
//! | flushes and other changes of the tablets' files end; none begins until this has | write, read |
//! | the change is [undecided](crate::undecided): keys in memtables are compared, marks and the record are synced | who would write one of these rows waits |
//! | the patches become the tablets' | who would write any row of them waits, for microseconds |
//!
//! Rows that are cached are forgotten between; what is read of the tablets' files is not cached until all is done.

use crate::catalog::Table;
use crate::compaction::OUTPUT_BATCH_ROWS;
use crate::deletions::Marks;
use crate::engine::{Engine, Obligation};
use crate::index::Location;
use crate::installer::{FileChange, GivenUp, NewPatch, PreparedChanges};
use crate::memory::Reserved;
use crate::tablet::{FileSet, LiveFile, PATCHES_MAX, Tablet, TabletState};
use crate::undecided::Change;
use crate::write::Commit;
use arrow::array::ArrayRef;
use oribi_env::File;
use oribi_sstable::{Patch, PatchWriter, SstableId, SstableMeta};
use oribi_types::{Result, Timestamp};
use roaring::RoaringBitmap;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What patches have at most, together, that are synced with marks and folder at once: others wait meanwhile who write the rows.
const SYNCED_LATE_BYTES_MAX: u64 = 4 << 20;
/// A tablet with so many times the files that are worth a compaction gets no more patches: a compaction gives up where it gets one
/// meanwhile, and not where rows are written the other way.
const FILES_FACTOR_MAX: usize = 4;
/// A thread hashes so many keys at a time, and sorts them.
const HASHED_ROWS: usize = 128 << 10;
/// What a patch that is being written takes in memory: a row group of some columns.
const WRITING_BYTES: u64 = 16 << 20;

/// Rows of files that a statement replaces or deletes.
pub struct PositionChange<'a> {
    pub table: &'a Arc<Table>,
    /// In order, none twice; with each the number that the row has in the statement.
    pub rows: &'a [(Location, u32)],
    /// Of the snapshot that found them so.
    pub found_at: Timestamp,
    /// The encoded key of the row of a number.
    pub key: &'a (dyn Fn(u32) -> &'a [u8] + Sync),
    /// What the rows become; `None`: they are deleted.
    pub values: Option<&'a (dyn NewValues + 'a)>,
    /// That write patches.
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
    found_at: Timestamp,
    /// Nothing if they are deleted.
    patches: Vec<Written>,
    is_deletion: bool,
}

/// A patch that is finished and not published.
#[derive(Clone)]
struct Written {
    of: SstableId,
    meta: SstableMeta,
    unsynced: Vec<Arc<dyn File>>,
}

/// Patches that nobody knows yet. Dropped, they are given up.
struct NewPatches<'e, 'a> {
    engine: &'e Engine,
    patches: Vec<(&'a Arc<Tablet>, Written)>,
}

impl Drop for NewPatches<'_, '_> {
    fn drop(&mut self) {
        self.patches.drain(..).for_each(|(tablet, patch)| self.engine.give_up(tablet, patch.meta.id));
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
        // Before patches are written in vain.
        if !tablets.iter().all(|of| of.is_live()) || tablets.iter().any(|of| self.is_in_memtable(of)) {
            return Ok(None);
        }
        let now_micros = self.timeline.now_micros();
        self.reserve_timestamps(now_micros, || false)?;
        // As that of an import's rows: from before they are seen, and above that of what they replace.
        let ts = self.timeline.begin(now_micros);
        self.timeline.complete(ts);
        let mut patches = NewPatches { engine: self, patches: Vec::new() };
        if let Some(values) = change.values.filter(|_| (change.is_asked)()) {
            self.write_patches(change, values, &sources, ts, &mut patches)?;
        }
        for of in &mut tablets {
            let added = patches.patches.iter().filter(|(tablet, _)| Arc::ptr_eq(tablet, of.tablet));
            of.patches = added.map(|(_, patch)| patch.clone()).collect();
        }
        self.commit_by_position(change, tablets, patches)
    }

    /// The files that have the rows.
    fn sources<'a>(&self, change: &PositionChange<'a>) -> Option<Vec<OfFile<'a>>> {
        if !change.table.expiry().never() {
            return None;
        }
        let is_full = |files: &FileSet, file: &LiveFile| {
            change.values.is_some()
                && (file.sstable.patches().len() >= PATCHES_MAX
                    || files.files.len() >= FILES_FACTOR_MAX * self.options.compaction_files)
        };
        let of_file = |rows: &'a [(Location, u32)]| {
            let id = rows[0].0.file;
            change.table.tablets.iter().find_map(|tablet| {
                let state = tablet.state();
                let file = state.files.file(id).filter(|file| !is_full(&state.files, file))?;
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
                let mut rows = RoaringBitmap::from_sorted_iter(rows).expect("they are in order, none twice");
                rows.optimize();
                (source.file.id(), Arc::new(rows))
            };
            let rows: HashMap<_, _> = sources.iter().map(of_file).collect();
            let hashes = self.hashes(change, tablet.generation(), &sources).into();
            let (found_at, is_deletion) = (change.found_at, change.values.is_none());
            let of = OfTablet { tablet, hashes, rows, found_at, patches: Vec::new(), is_deletion };
            (!of.rows.is_empty()).then_some(of)
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

    /// Writes what the rows become: a patch for each file.
    fn write_patches<'a>(
        &self,
        change: &PositionChange<'a>,
        values: &(dyn NewValues + '_),
        sources: &[OfFile<'a>],
        ts: Timestamp,
        patches: &mut NewPatches<'_, 'a>,
    ) -> Result<()> {
        let threads = change.threads.max(1);
        let _room = Reserved::new(&self.budget, WRITING_BYTES * threads.min(sources.len()) as u64);
        let late_bytes_max = SYNCED_LATE_BYTES_MAX / sources.len().max(1) as u64;
        let written = oribi_env::run_idle_each(threads, sources.len(), |n| {
            self.write_patch(change, values, &sources[n], ts, late_bytes_max)
        });
        let mut failed = None;
        for (source, written) in sources.iter().zip(written) {
            match written {
                Ok(patch) => patches.patches.push((source.tablet, patch)),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn write_patch(
        &self,
        change: &PositionChange<'_>,
        values: &(dyn NewValues + '_),
        source: &OfFile<'_>,
        ts: Timestamp,
        late_bytes_max: u64,
    ) -> Result<Written> {
        let (schema, dir) = (change.table.schema_ref(), &source.tablet.dir);
        let id = self.manifest.next_file_id()?;
        let mut writer = PatchWriter::create(&self.env, dir, id, schema, values.columns(), ts)?;
        for rows in source.rows.chunks(OUTPUT_BATCH_ROWS) {
            let (places, numbers): (Vec<u32>, Vec<u32>) =
                rows.iter().map(|(place, number)| (place.row, *number)).unzip();
            writer.push(&places, values.values(&numbers)?)?;
        }
        let (meta, unsynced) = writer.finish_late(late_bytes_max)?;
        Ok(Written { of: source.file.id(), meta, unsynced })
    }

    fn commit_by_position<'a>(
        &self,
        change: &PositionChange<'a>,
        tablets: Vec<OfTablet<'a>>,
        patches: NewPatches<'_, 'a>,
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
        let ts = self.install_by_position(table, &tablets, patches)?;
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
        mut patches: NewPatches<'_, '_>,
    ) -> Result<Timestamp> {
        let _whole = self.stop_on_panic("a change of files");
        let changed = tablets.iter().map(|of| (of.tablet, &of.hashes[..]));
        let changing = Changing::begin(self, changed.collect());
        let appointment = self.timeline.appoint(self.timeline.now_micros());
        let at = appointment.at();
        let changes = tablets.iter().map(|of| (&**of.tablet, table.schema_ref(), of.file_change(at)));
        let PreparedChanges { files: mut prepared, edits, mut left } = self.prepare_all(changes)?;
        // If the commit fails, or panics, the record may be on the disk all the same.
        let unsettled = patches.patches.drain(..);
        left.extend(unsettled.map(|(tablet, patch)| GivenUp::Sstable(tablet.dir.clone(), patch.meta.id)));
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

    /// The files of a change that is made at another time than was told of, with the marks of each of those before; new
    /// patches are seen from then on, too.
    pub(crate) fn moved(
        &self,
        before: &FileSet,
        prepared: &FileSet,
        ts: Timestamp,
        marks: impl Fn(SstableId) -> Option<Marks>,
    ) -> FileSet {
        let horizon = self.timeline.horizon();
        let file = |file: &Arc<LiveFile>| {
            let Some(was) = before.file(file.id()) else {
                return Arc::new(LiveFile { visible_from: ts, ..LiveFile::clone(file) });
            };
            let moved = |patch: &Arc<Patch>| match was.sstable.has_patch(patch.id()) {
                true => Arc::clone(patch),
                false => Arc::new(patch.seen_from(ts)),
            };
            let patches = file.sstable.patches().iter().map(moved).collect();
            let sstable = Arc::new(file.sstable.with_patches(patches));
            let deletions = match marks(file.id()) {
                Some(marks) => Arc::new(was.deletions.with(&marks, horizon)),
                None => Arc::clone(&file.deletions),
            };
            Arc::new(LiveFile { sstable, deletions, ..LiveFile::clone(file) })
        };
        FileSet { files: prepared.files.iter().map(file).collect(), flushed_lsn: prepared.flushed_lsn }
    }
}

impl OfTablet<'_> {
    /// Whether all rows are where they were, and as they were.
    fn is_live(&self) -> bool {
        let state = self.tablet.state();
        let is_same = |file: &Arc<LiveFile>, rows: &RoaringBitmap| {
            let mut came = file.sstable.patches().iter().filter(|patch| patch.visible_from() > self.found_at);
            file.deletions.are_unmarked(rows) && came.all(|patch| patch.rows().is_disjoint(rows))
        };
        self.rows.iter().all(|(id, rows)| state.files.file(*id).is_some_and(|file| is_same(file, rows)))
    }

    /// Marks on rows of the file `id`, if it has some of them and they are deleted.
    fn marks(&self, id: SstableId, ts: Timestamp) -> Option<Marks> {
        let rows = self.rows.get(&id).filter(|_| self.is_deletion)?;
        Some(Marks::At(ts, rows.clone()))
    }

    fn file_change(&self, ts: Timestamp) -> FileChange {
        let marks = self.rows.keys().filter_map(|id| Some((*id, self.marks(*id, ts)?)));
        let patch = |Written { of, meta, .. }: &Written| {
            (*of, NewPatch { meta: meta.clone(), rows: self.rows[of].clone() })
        };
        FileChange {
            unsynced: self.patches.iter().flat_map(|patch| patch.unsynced.iter().cloned()).collect(),
            patches: self.patches.iter().map(patch).collect(),
            marks: marks.collect(),
            visible_from: ts,
            ..FileChange::default()
        }
    }
}
