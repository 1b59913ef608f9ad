//! The commit of a transaction that has [spilled](super::spilled): its rows become SSTables, and those that they replace, or that it
//! has deleted, are marked. One log record makes all of it count.
//!
//! | what | others meanwhile |
//! |---|---|
//! | memory is flushed; the runs are merged into a file for each tablet, and each key is looked for in the tablet's files | do all they like, but with the rows that the transaction has locked |
//! | flushes and other changes of the tablets' files end; none begins until this has | write, read |
//! | what came to be in between is looked at; marks are written, and the manifest is told what is to be done, under a number | write, read |
//! | the record with that number is appended and synced | who would write to the tablets waits, and who is answered what came later |
//! | the files become the tablets', and the manifest is told that the record is there | write, read |
//!
//! It is right because of three things. The rows are locked since each was decided on, so that no version came into memory behind the one
//! that was flushed. Each key that had a row is found to have exactly that row, and each other none: what takes no heed of
//! locks is noticed so. And from that look on nobody changes the files.
//!
//! A crash before the record is durable leaves files that the manifest does not name, and a number that the log does not have: both are
//! removed. One behind it finds the record, as for a [changed catalog](super::catalog).
//!
//! Of a transaction that has changed the catalog too, that is told the manifest under the same number, and is published with the files.
//! Rows of tablets that nobody else knows are looked for nowhere, and those of tablets that go are written nowhere.

use super::catalog::{Changed, Plan};
use super::runs::Merge;
use super::spilled::{Spilled, new_path};
use super::writes::Seen;
use super::{Committing, TrackedCommit};
use crate::by_position::Changing;
use crate::catalog::Table;
use crate::ddl::Emptied;
use crate::deletions::Marks;
use crate::engine::{Engine, Obligation};
use crate::installer::{FileChange, PreparedChanges};
use crate::manifest::Edit;
use crate::memory::Reserved;
use crate::record::{self, FilesCommit};
use crate::tablet::{FileSet, LiveFile, Tablet, TabletId, TabletState};
use crate::write::Commit;
use oribi_sstable::{SstableId, SstableMeta, SstableOptions, SstableWriter};
use oribi_types::batch::EncodedKeys;
use oribi_types::{Error, Result, Timestamp};
use oribi_wal::Lsn;
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Keys that are looked for together.
const GROUP_KEYS: usize = 8192;
const GROUP_BYTES: usize = 1 << 20;
/// What the file that is being written takes in memory: a row group, and pages of those that are searched.
const WRITING_BYTES: u64 = 24 << 20;
/// A row that is replaced takes so much: the hash of its key, twice as that grows, and its mark, at most so if it is alone far and wide.
const REPLACED_BYTES: usize = 32;
/// How often it looks again where memory had one of the rows.
const ATTEMPTS: usize = 3;

/// What a tablet loses and gets.
struct OfTablet {
    table: Arc<Table>,
    tablet: Arc<Tablet>,
    generation: u64,
    added: Option<SstableMeta>,
    /// How many keys had a row.
    existing: u64,
    /// Files in which all keys were looked for.
    searched: HashSet<SstableId>,
    found: HashMap<SstableId, Found>,
    /// Of the keys of rows that were found.
    hashes: Vec<u64>,
}

/// The rows of a file that go.
#[derive(Default)]
struct Found {
    rows: Arc<RoaringBitmap>,
    /// How many of them were decided on: others had expired by then.
    seen: u64,
}

struct FilesWrite<'e> {
    engine: &'e Engine,
    all: Spilled,
    /// What the transaction does to the catalog.
    changed: Option<&'e Changed>,
    /// When the transaction did.
    began: Timestamp,
    tablets: BTreeMap<TabletId, OfTablet>,
    /// For what was found.
    room: Vec<Reserved>,
    replaced: usize,
    rows: u64,
}

impl Drop for FilesWrite<'_> {
    fn drop(&mut self) {
        for of in self.tablets.values_mut() {
            of.added.take().into_iter().for_each(|meta| self.engine.give_up(&of.tablet, meta.id));
        }
    }
}

/// What everybody sees.
struct Installed<'e, 'p> {
    commit: Commit,
    /// Tablets that went with the catalog's change.
    emptied: Vec<Emptied<'p>>,
    changing: Changing<'e>,
    /// The tablets' files.
    before: Vec<Arc<FileSet>>,
    after: Vec<Arc<FileSet>>,
}

/// Keys of a tablet, and what was decided on.
#[derive(Default)]
struct Group {
    keys: EncodedKeys,
    seen: Vec<Seen>,
    bytes: usize,
}

impl Group {
    fn push(&mut self, key: &[u8], seen: Seen) {
        self.keys.push(key);
        self.seen.push(seen);
        self.bytes += key.len();
    }

    fn is_full(&self) -> bool {
        self.seen.len() >= GROUP_KEYS || self.bytes >= GROUP_BYTES
    }
}

/// Room in the log for the record.
struct Promised<'e> {
    engine: &'e Engine,
    bytes: usize,
    is_kept: bool,
}

impl<'e> Promised<'e> {
    /// Makes it, with nothing held.
    fn make(engine: &'e Engine, bytes: usize) -> Result<Self> {
        // A fragment of a bulk write that has no commit, and no rows.
        let fill = &mut |lsn, buf: &mut Vec<u8>| record::start_fragment(buf, lsn);
        loop {
            match engine.log.try_append_before(0, bytes, fill)? {
                Ok(_) => return Ok(Promised { engine, bytes, is_kept: false }),
                Err(needed) => engine.log.make_room(needed)?,
            }
        }
    }

    fn append(&mut self, fill: impl Fn(&mut Vec<u8>)) -> Result<Lsn> {
        self.is_kept = true;
        self.engine.log.append_promised(0, self.bytes, &mut |_, buf| fill(buf))
    }
}

impl Drop for Promised<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.engine.log.give_back(self.bytes);
        }
    }
}

impl Engine {
    /// As [`commit`](Self::commit) or [`commit_with_catalog`](Self::commit_with_catalog), of a transaction that has spilled, and made so
    /// many changes before those that are in memory.
    pub(super) fn commit_files(
        &self,
        committing: &Committing,
        (spilled, before): (&Spilled, usize),
        catalog: Option<&Changed>,
        mut tracked: Option<TrackedCommit<'_>>,
    ) -> Result<Commit> {
        let mut all = spilled.clone();
        if !committing.changes.is_empty() {
            let path = new_path(self, committing.transaction.id);
            all.put(self, path, before, &committing.changes)?;
        }
        self.budget.wait_for_room(true)?;
        let now_micros = self.timeline.now_micros();
        self.reserve_timestamps(now_micros, || true)?;
        // That of the rows: from before they are seen, and above that of what they replace.
        let ts = self.timeline.begin(now_micros);
        self.timeline.complete(ts);
        self.create_folders(catalog.iter().flat_map(|changed| changed.created()))?;
        let began = Timestamp::from_micros(committing.transaction.id);
        let mut write = FilesWrite::new(self, all, catalog, began)?;
        write.flush()?;
        let _room = Reserved::new(&self.budget, WRITING_BYTES);
        write.write(ts)?;
        for _ in 0..ATTEMPTS {
            if let Some(commit) = write.try_commit(&mut tracked)? {
                return Ok(commit);
            }
            write.flush()?;
        }
        Err(changed())
    }
}

impl<'e> FilesWrite<'e> {
    fn new(engine: &'e Engine, all: Spilled, changed: Option<&'e Changed>, began: Timestamp) -> Result<Self> {
        let tablets = BTreeMap::new();
        let mut write =
            FilesWrite { engine, all, changed, began, tablets, room: Vec::new(), replaced: 0, rows: 0 };
        for (id, part) in &write.all.tablets {
            let Some(table) = write.table_of_rows(&part.table)? else { continue };
            let of = OfTablet {
                table,
                tablet: part.tablet.clone(),
                generation: part.generation,
                added: None,
                existing: 0,
                searched: HashSet::new(),
                found: HashMap::new(),
                hashes: Vec::new(),
            };
            write.tablets.insert(*id, of);
        }
        write.check_tables()?;
        Ok(write)
    }

    /// The table to commit rows to that the transaction has written to `table`; `None` if those went with it.
    fn table_of_rows(&self, table: &Arc<Table>) -> Result<Option<Arc<Table>>> {
        let now = match self.changed.filter(|changed| changed.knows(table.id())) {
            Some(changed) => changed.table_of_rows(table),
            None => Some(self.engine.latest(table.id()).ok_or_else(altered)?),
        };
        match now.as_ref().is_none_or(|now| now.version() == table.version()) {
            true => Ok(now),
            false => Err(altered()),
        }
    }

    /// Whether rows were written for what the tables are.
    fn check_tables(&self) -> Result<()> {
        self.all.tables.iter().try_for_each(|(table, _)| self.table_of_rows(table).map(drop))?;
        let is_same = |of: &OfTablet| of.tablet.generation() == of.generation;
        if self.tablets.values().all(is_same) { Ok(()) } else { Err(altered()) }
    }

    /// As everybody knows the tables. What nobody else knows has nothing in memory.
    fn flush(&self) -> Result<()> {
        self.tablets.values().try_for_each(|of| match self.engine.latest(of.table.id()) {
            Some(table) if table.tablets.iter().any(|tablet| tablet.id == of.tablet.id) => {
                self.engine.flush_tablet(&table, &of.tablet)
            }
            _ => Ok(()),
        })
    }

    /// Writes the files, and looks for the rows that they replace.
    fn write(&mut self, ts: Timestamp) -> Result<()> {
        let mut merge = Merge::from(&self.all.runs, 0, &[])?;
        let (mut writer, mut group) = (None, Group::default());
        let mut tablet: Option<(TabletId, Vec<Arc<LiveFile>>)> = None;
        loop {
            let has_more = merge.next()?;
            let goes_on = has_more && tablet.as_ref().is_some_and(|(id, _)| *id == merge.tablet);
            if let Some((id, files)) = &tablet
                && (!goes_on || group.is_full())
            {
                self.search(*id, files, std::mem::take(&mut group), true)?;
                if !goes_on {
                    self.end_file(*id, writer.take())?;
                }
            }
            if !has_more {
                return Ok(());
            }
            if !self.tablets.contains_key(&merge.tablet) {
                tablet = None;
                continue;
            }
            if !goes_on {
                let files = self.tablets[&merge.tablet].tablet.state().files.files.clone();
                tablet = Some((merge.tablet, files));
            }
            group.push(&merge.key, merge.seen);
            if let Some(row) = &merge.row {
                if writer.is_none() {
                    writer = Some(self.begin_file(merge.tablet)?);
                }
                writer
                    .iter_mut()
                    .try_for_each(|writer: &mut SstableWriter| writer.push(&merge.key, row, ts))?;
            }
            self.rows += 1;
        }
    }

    fn begin_file(&self, tablet: TabletId) -> Result<SstableWriter> {
        let OfTablet { table, tablet, .. } = &self.tablets[&tablet];
        let (env, id) = (&self.engine.env, self.engine.manifest.next_file_id()?);
        SstableWriter::create(env, &tablet.dir, id, table.schema_ref(), &SstableOptions::default())
    }

    /// All files that a tablet had were searched, and the new one, if there are rows, is complete.
    fn end_file(&mut self, tablet: TabletId, writer: Option<SstableWriter>) -> Result<()> {
        let meta = writer.map(SstableWriter::finish).transpose()?;
        self.tablets.entry(tablet).and_modify(|of| of.added = meta);
        Ok(())
    }

    /// Looks for keys of a tablet in `files`; for the first time, if they have not been looked for in others.
    fn search(
        &mut self,
        tablet: TabletId,
        files: &[Arc<LiveFile>],
        group: Group,
        is_first: bool,
    ) -> Result<()> {
        let (engine, began) = (self.engine, self.began);
        let of = self.tablets.get_mut(&tablet).ok_or_else(|| Error::internal("a run has other tablets"))?;
        of.searched.extend(files.iter().map(|file| file.id()));
        if is_first {
            of.existing += group.seen.iter().filter(|seen| matches!(seen, Seen::RowOf(_))).count() as u64;
        }
        let keys: Vec<&[u8]> = group.keys.iter().collect();
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Ok(()) };
        let expires = !of.table.expiry().never();
        for file in files {
            let meta = file.sstable.meta();
            if *meta.max_key < **first || *meta.min_key > **last {
                continue;
            }
            for ((key, seen), place) in keys.iter().zip(&group.seen).zip(file.locate_live(&keys)?) {
                let Some((row, ts)) = place else { continue };
                let is_it = *seen == Seen::RowOf(ts);
                // Another row was there and had expired when this one was decided on, or came since.
                if !is_it && (!expires || ts > began || file.row_visible_from(row) > began) {
                    return Err(changed());
                }
                let found = of.found.entry(file.id()).or_default();
                Arc::make_mut(&mut found.rows).insert(row);
                found.seen += u64::from(is_it);
                of.hashes.push(engine.index.key(of.generation, key).hash);
                self.replaced += 1;
            }
        }
        while self.room.len() * super::STEP_BYTES < self.replaced * REPLACED_BYTES {
            self.room.push(Reserved::new(&engine.budget, super::STEP_BYTES as u64));
        }
        Ok(())
    }

    /// Looks into files that came since.
    fn search_new(&mut self) -> Result<()> {
        let ids: Vec<TabletId> = self.tablets.keys().copied().collect();
        for id in ids {
            let of = &self.tablets[&id];
            let state = of.tablet.state();
            let is_new = |file: &&Arc<LiveFile>| !of.searched.contains(&file.id());
            let new: Vec<Arc<LiveFile>> = state.files.files.iter().filter(is_new).cloned().collect();
            drop(state);
            if new.is_empty() {
                continue;
            }
            let (mut merge, mut group) = (Merge::from(&self.all.runs, id, &[])?, Group::default());
            while merge.next()? && merge.tablet == id {
                group.push(&merge.key, merge.seen);
                if group.is_full() {
                    self.search(id, &new, std::mem::take(&mut group), false)?;
                }
            }
            self.search(id, &new, group, false)?;
        }
        Ok(())
    }

    /// `None` if memory has one of the rows, which a flush moves to where it is found.
    fn try_commit(&mut self, tracked: &mut Option<TrackedCommit<'_>>) -> Result<Option<Commit>> {
        let engine = self.engine;
        // While others change files; what is left for later is little.
        self.search_new()?;
        engine.log.wait_durable(engine.log.appended())?;
        engine.reserve_timestamps(engine.timeline.now_micros(), || true)?;
        // The log has the record as long as the manifest is not told of it.
        let _kept = engine.fragmented.keep(&*engine.log);
        let mut promised = Promised::make(engine, record_bytes(tracked.as_ref()))?;

        // In this order, which all others keep to. No key is between a memtable and its file, and the set of files stays as it is.
        let _ddl = engine.begin_ddl();
        // A log that has stopped may have the record of an earlier change, which the manifest has to keep.
        engine.log.wait_durable(engine.log.appended())?;
        let plan = self.changed.map(|changed| Plan::of(changed, &engine.catalog())).transpose()?;
        let mut tablets: BTreeMap<TabletId, Arc<Tablet>> =
            self.tablets.iter().map(|(id, of)| (*id, of.tablet.clone())).collect();
        let written: Vec<Arc<Tablet>> = tablets.values().cloned().collect();
        tablets.extend(plan.iter().flat_map(Plan::tablets).map(|tablet| (tablet.id, tablet.clone())));
        let _flushes: Vec<_> = written.iter().map(|tablet| tablet.flush.lock()).collect();
        let _installers: Vec<_> = tablets.values().map(|tablet| tablet.installer.lock()).collect();
        engine.manifest.retry()?;
        if engine.closed.load(Relaxed) {
            return Err(Error::unavailable("the engine is closed"));
        }
        self.check_tables()?;
        let takes = |of: &OfTablet| of.tablet.takes(of.table.version());
        if !self.tablets.values().all(takes) {
            return Err(Error::retry("a table was altered meanwhile"));
        }
        self.search_new()?;
        if self.is_in_memtable() {
            return Ok(None);
        }
        self.tablets.values_mut().try_for_each(OfTablet::check)?;
        let undecided = plan.as_ref().map(|plan| plan.leave(engine)).transpose()?;
        let installed = self.install(&mut promised, plan.as_ref(), tracked);
        // Who waits for what goes finds that it has, or stays.
        let installed = installed.inspect_err(|_| plan.iter().for_each(Plan::stay))?;
        drop(undecided);
        self.settle(installed).map(Some)
    }

    /// Whether a memtable has a version of one of the keys.
    fn is_in_memtable(&self) -> bool {
        self.tablets.values().any(|of| {
            let (state, mut found) = (of.tablet.state(), false);
            for memtable in state.memtables() {
                let wanted = memtable.hashes().filter(|hash| self.all.locks.has(*hash));
                let index = &self.engine.index;
                index.visit(of.generation, wanted, |_, newest| found |= !newest.meta.is_clean());
            }
            found
        })
    }

    /// Tells the manifest and the log, and then has readers see it. The caller keeps others from the tablets' files, and from those that
    /// are to go with the catalog's change.
    fn install<'p>(
        &mut self,
        promised: &mut Promised<'_>,
        catalog: Option<&'p Plan<'_>>,
        tracked: &mut Option<TrackedCommit<'_>>,
    ) -> Result<Installed<'e, 'p>> {
        let engine = self.engine;
        let _whole = engine.stop_on_panic("a commit of files");
        let replaced = self.tablets.values().map(|of| (&of.tablet, &of.hashes[..]));
        let changing = Changing::begin(engine, replaced.collect());
        let appointment = engine.timeline.appoint(engine.timeline.now_micros());
        let at = appointment.at();
        let changes =
            self.tablets.values().map(|of| (&*of.tablet, of.table.schema_ref(), of.file_change(at)));
        let PreparedChanges { files: mut prepared, edits: of_files, left } = engine.prepare_all(changes)?;
        let number = engine.manifest.next_id();
        // Tables come before the files that they get.
        let mut edits = catalog.map(|plan| plan.edits.clone()).unwrap_or_default();
        edits.extend(of_files);
        let undecided = engine.manifest.commit(vec![Edit::Undecided { number, edits }]);
        undecided.inspect_err(|_| engine.give_up_all(left))?;
        // If the log fails, or this panics, the record may be on the disk all the same: the files stay.
        self.tablets.values_mut().for_each(|of| of.added = None);
        let before: Vec<Arc<FileSet>> = self.states();
        let (commit, emptied) = {
            // Whoever has decided on a row looked at the files, and at the catalog, as they were.
            let altered = catalog.iter().flat_map(|plan| plan.altered_tablets());
            let tablets = self.tablets.values().map(|of| &of.tablet).chain(altered);
            let generations: BTreeSet<u64> = tablets.map(|tablet| tablet.generation()).collect();
            let _latches = engine.latches.take_sets(&Vec::from_iter(generations));
            let mut shared = engine.gate.share(usize::MAX, true);
            let ts = appointment.keep();
            let record = FilesCommit { ts, number, tracked: tracked.as_ref().map(TrackedCommit::record) };
            let logged = promised.append(|buf| record::commit_files(buf, record));
            // Nobody has seen anything of it before that.
            let lsn = logged.and_then(|lsn| engine.log.wait_durable(lsn).map(|()| lsn));
            let lsn = lsn.inspect_err(|error| engine.fail(error.clone()))?;
            if ts != at {
                for (n, of) in self.tablets.values().enumerate() {
                    let marks = |id| of.marks(id, ts);
                    prepared[n] = Arc::new(engine.moved(&before[n], &prepared[n], ts, marks));
                }
            }
            let alone = catalog.map(|_| {
                engine.publishing.store(true, Release);
                shared.take();
                let alone = engine.gate.alone();
                engine.publishing.store(false, Release);
                alone
            });
            for (of, files) in self.tablets.values().zip(&prepared) {
                of.tablet.change(|state| TabletState { files: files.clone(), ..state.clone() });
            }
            let emptied = catalog.map(|plan| plan.publish(engine, ts)).unwrap_or_default();
            drop(alone);
            let commit = Commit { ts, obligation: Obligation { durable: lsn, ..Obligation::default() } };
            if let Some(tracked) = tracked {
                tracked.execution.finish(commit, tracked.result.clone());
            }
            engine.timeline.complete(ts);
            (commit, emptied)
        };
        if let Err(error) = engine.manifest.decide(number) {
            tracing::warn!(%error, "the manifest is told later of the files of a transaction");
        }
        Ok(Installed { commit, emptied, changing, before, after: prepared })
    }

    /// Does what comes behind, while others are told. Returns once snapshots see the commit.
    fn settle(&self, installed: Installed<'_, '_>) -> Result<Commit> {
        let engine = self.engine;
        let Installed { commit, emptied, changing, before, after } = installed;
        engine.apply_sync_interval();
        engine.sweep(emptied);
        engine.timeline.wait_for_watermark(commit.ts)?;
        drop(changing);
        engine.released.tell();
        for ((of, before), after) in self.tablets.values().zip(&before).zip(&after) {
            engine.remove_replaced(&of.tablet, before, after);
        }
        engine.settle_given_up();
        engine.counters.rows_written.fetch_add(self.rows, Relaxed);
        engine.background.wake();
        Ok(commit)
    }

    fn states(&self) -> Vec<Arc<FileSet>> {
        self.tablets.values().map(|of| of.tablet.state().files.clone()).collect()
    }
}

impl OfTablet {
    /// Whether each row that was decided on was found, in files that are still there.
    fn check(&mut self) -> Result<()> {
        let state = self.tablet.state();
        self.found.retain(|id, _| state.files.file(*id).is_some());
        let seen: u64 = self.found.values().map(|found| found.seen).sum();
        if seen == self.existing { Ok(()) } else { Err(changed()) }
    }

    /// Marks on rows of the file `id`, if some of it go.
    fn marks(&self, id: SstableId, ts: Timestamp) -> Option<Marks> {
        Some(Marks::At(ts, self.found.get(&id)?.rows.clone()))
    }

    fn file_change(&self, ts: Timestamp) -> FileChange {
        let marks = self.found.iter().map(|(id, found)| (*id, Marks::At(ts, found.rows.clone())));
        FileChange {
            added: self.added.iter().map(|meta| (meta.clone(), Marks::default())).collect(),
            marks: marks.collect(),
            visible_from: ts,
            ..FileChange::default()
        }
    }
}

fn record_bytes(tracked: Option<&TrackedCommit<'_>>) -> usize {
    let mut buf = Vec::new();
    let tracked = tracked.map(TrackedCommit::record);
    record::commit_files(&mut buf, FilesCommit { ts: Timestamp::MIN, number: 0, tracked });
    buf.len()
}

/// A table is another than rows were written for.
fn altered() -> Error {
    Error::retry("a table was altered or truncated meanwhile")
}

/// A row is another than was decided on.
fn changed() -> Error {
    Error::conflict("a row that the transaction changes was changed meanwhile")
}
