//! Bulk import: sorted runs straight to SSTables, past log and memtable.
//!
//! Rows are gathered per tablet into runs. A run that begins above the last key written goes on in the same file;
//! otherwise a new file is started. Nothing is seen before [`Import::commit`], which checks that every key is new and
//! adds all files by one manifest record.
//!
//! What takes long is done while others write: comparing with the table's files, publishing the new ones. While what came into
//! memory last is compared, and the record is synced, those wait whose keys may be in the import (see
//! [`undecided`](crate::undecided)). All writers of the table are kept out for two moments: when that begins, and when the files
//! become the table's.

use crate::catalog::Table;
use crate::compaction::OUTPUT_BATCH_ROWS;
use crate::deletions::Deletions;
use crate::engine::Engine;
use crate::installer::{GivenUp, PreparedChange};
use crate::latches::Latch;
use crate::memory::Reserved;
use crate::tablet::{Tablet, TabletState};
use crate::undecided::Change;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{interleave_record_batch, take_record_batch};
use oribi_sstable::{Sstable, SstableId, SstableMeta, SstableOptions, SstableWriter, stored_columns};
use oribi_types::batch::{EncodedKeys, encode_keys, ts_field};
use oribi_types::cells::Cells;
use oribi_types::{Error, Partitioning, Result, Timestamp};
use std::collections::HashSet;
use std::sync::Arc;

/// Rows of a run are sorted in memory: this many bytes per tablet at most, and never more than the budget allows.
const RUN_BYTES_MAX: usize = 64 << 20;
/// Memory for the rows of a run is counted in such steps.
const ROOM_BYTES: usize = 256 << 10;
/// How often the commit looks again after others changed the table meanwhile.
const COMMIT_ATTEMPTS: usize = 10;

/// Rows on their way into a table; all or nothing. Dropping it leaves nothing behind.
pub struct Import {
    engine: Arc<Engine>,
    table: Arc<Table>,
    /// The commit timestamp of the rows; snapshots below the commit do not see them whatever it is.
    ts: Timestamp,
    run_bytes_max: usize,
    tablets: Vec<TabletImport>,
    rows: u64,
    /// Whether the files have their final names.
    published: bool,
}

#[derive(Default)]
struct TabletImport {
    batches: Vec<(RecordBatch, EncodedKeys)>,
    bytes: usize,
    /// For these, as they come.
    memory: Vec<Reserved>,
    /// The file being written and its last key.
    open: Option<(SstableWriter, Vec<u8>)>,
    finished: Vec<SstableMeta>,
    /// The finished files, open; from the commit on.
    sstables: Vec<Arc<Sstable>>,
    /// Files of the tablet in which no key of the import is live. It stays so: marks only grow.
    compared: HashSet<SstableId>,
}

impl Engine {
    /// Starts an import into `table`, all of whose keys must be new.
    ///
    /// # Errors
    /// `NotFound` for a dropped table; those of the manifest.
    pub fn import(self: &Arc<Self>, table: &Arc<Table>) -> Result<Import> {
        let table = self.latest(table.id()).ok_or_else(|| Error::not_found("the table was dropped"))?;
        // A timestamp of their own, of now: by it the rows of a table with a `ttl` expire.
        let now_micros = self.timeline.now_micros();
        self.reserve_timestamps(now_micros, || table.expiry().ttl_micros.is_some())?;
        let ts = self.timeline.begin(now_micros);
        self.timeline.complete(ts);
        let share = self.budget.limit() as usize / 8 / table.tablets.len().max(1);
        let run_bytes_max = share.clamp(ROOM_BYTES, RUN_BYTES_MAX);
        Ok(Import {
            engine: self.clone(),
            ts,
            run_bytes_max,
            tablets: table.tablets.iter().map(|_| TabletImport::default()).collect(),
            table,
            rows: 0,
            published: false,
        })
    }
}

impl Import {
    /// Adds rows: the table's stored columns (all but those that hold the commit timestamp) in SQL order, with the
    /// table's Arrow types.
    ///
    /// # Errors
    /// `Invalid` for other columns, null where it may not be, or a value beyond its type's limits; `AlreadyExists` for a key that comes twice; `NotCovered`
    /// for one in no partition.
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let batch = self.with_ts(&batch)?;
        let keys = encode_keys(self.table.schema_ref(), &batch)?;
        self.rows += batch.num_rows() as u64;
        let definition = self.table.definition();
        if definition.partitioning == Partitioning::none() {
            return self.push_to(0, batch, keys);
        }
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.tablets.len()];
        for (i, key) in keys.iter().enumerate() {
            let tablet = definition.partitioning.tablet_of(self.table.schema_ref(), key);
            let tablet = tablet.ok_or_else(|| self.engine.no_tablet(&self.table, key))?;
            rows[tablet].push(i as u32);
        }
        for (tablet, rows) in rows.into_iter().enumerate() {
            if rows.is_empty() {
                continue;
            }
            let mut of_tablet = EncodedKeys::default();
            rows.iter().for_each(|i| of_tablet.push(keys.get(*i as usize)));
            let part = take_record_batch(&batch, &UInt32Array::from(rows))?;
            self.push_to(tablet, part, of_tablet)?;
        }
        Ok(())
    }

    /// Checks the columns and adds `_ts`.
    fn with_ts(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let schema = self.table.schema_ref();
        let stored = stored_columns(schema);
        if batch.num_columns() != stored.len() {
            return Err(Error::invalid(format!(
                "the table has {} columns, the batch {}",
                stored.len(),
                batch.num_columns()
            )));
        }
        let mut fields = Vec::with_capacity(stored.len() + 1);
        for (&position, array) in stored.iter().zip(batch.columns()) {
            let column = &schema.columns()[position];
            if *array.data_type() != column.column_type.arrow() {
                return Err(Error::invalid(format!(
                    "column \"{}\" is of type {}, not {}",
                    column.name,
                    array.data_type(),
                    column.column_type
                )));
            }
            Cells::of(array, column.column_type).check(column)?;
            fields.push(schema.arrow().field(position).clone());
        }
        fields.push(ts_field());
        let ts = arrow::array::UInt64Array::from_value(self.ts.0, batch.num_rows());
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(ts));
        Ok(RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields)), columns)?)
    }

    fn push_to(&mut self, tablet: usize, batch: RecordBatch, keys: EncodedKeys) -> Result<()> {
        let part = &mut self.tablets[tablet];
        part.bytes += batch.get_array_memory_size();
        while part.memory.len() * ROOM_BYTES < part.bytes {
            part.memory.push(Reserved::new(&self.engine.budget, ROOM_BYTES as u64));
        }
        part.batches.push((batch, keys));
        if part.bytes > self.run_bytes_max { self.write_run(tablet) } else { Ok(()) }
    }

    /// Writes the gathered rows of a tablet in key order.
    fn write_run(&mut self, tablet: usize) -> Result<()> {
        let part = &mut self.tablets[tablet];
        let batches = std::mem::take(&mut part.batches);
        let _memory = std::mem::take(&mut part.memory);
        part.bytes = 0;
        let mut order: Vec<(usize, usize)> = Vec::new();
        for (b, (batch, _)) in batches.iter().enumerate() {
            order.extend((0..batch.num_rows()).map(|row| (b, row)));
        }
        let key = |&(b, row): &(usize, usize)| batches[b].1.get(row);
        let in_order = order.windows(2).all(|pair| key(&pair[0]) < key(&pair[1]));
        if !in_order {
            order.sort_unstable_by(|a, b| key(a).cmp(key(b)));
            if let Some(pair) = order.windows(2).find(|pair| key(&pair[0]) == key(&pair[1])) {
                return Err(duplicate(&self.table, key(&pair[0])));
            }
        }
        let (Some(first), Some(last)) = (order.first(), order.last()) else { return Ok(()) };
        let goes_on = part.open.as_ref().is_some_and(|(_, end)| **end < *key(first));
        if !goes_on {
            if let Some((writer, _)) = part.open.take() {
                part.finished.push(writer.finish()?);
            }
            let (engine, dir) = (&self.engine, &self.table.tablets[tablet].dir);
            let id = engine.manifest.next_file_id()?;
            let options = SstableOptions::default();
            let writer = SstableWriter::create(&engine.env, dir, id, self.table.schema_ref(), &options)?;
            part.open = Some((writer, Vec::new()));
        }
        let (writer, end) = part.open.as_mut().expect("opened above");
        *end = key(last).to_vec();
        if in_order {
            for (batch, keys) in &batches {
                writer.push_batch(batch, keys)?;
            }
            return Ok(());
        }
        let sources: Vec<&RecordBatch> = batches.iter().map(|(batch, _)| batch).collect();
        for chunk in order.chunks(OUTPUT_BATCH_ROWS) {
            let mut keys = EncodedKeys::default();
            chunk.iter().for_each(|place| keys.push(key(place)));
            writer.push_batch(&interleave_record_batch(&sources, chunk)?, &keys)?;
        }
        Ok(())
    }

    /// Makes all rows part of the table, durably and at once; returns how many. Others may write to the table
    /// meanwhile.
    ///
    /// # Errors
    /// `AlreadyExists`, naming a key that came twice or is in the table; `Conflict` if others keep writing and deleting
    /// keys of the import; those of the file system. The table is as it was then.
    pub fn commit(mut self) -> Result<u64> {
        for tablet in 0..self.tablets.len() {
            self.finish_files(tablet)?;
        }
        if self.rows == 0 {
            return Ok(0);
        }
        for attempt in 1..=COMMIT_ATTEMPTS {
            if self.try_commit(attempt == COMMIT_ATTEMPTS)? {
                return Ok(self.rows);
            }
        }
        Err(Error::conflict(format!("table \"{}\" is being written to", self.table.name())))
    }

    /// Writes what is left of a tablet's rows, and opens its files. No key may be in two of them.
    fn finish_files(&mut self, tablet: usize) -> Result<()> {
        self.write_run(tablet)?;
        let (env, dir) = (&self.engine.env, &self.table.tablets[tablet].dir);
        let part = &mut self.tablets[tablet];
        if let Some((writer, _)) = part.open.take() {
            part.finished.push(writer.finish()?);
        }
        for meta in &part.finished {
            let sstable = Sstable::open_unpublished(env, dir, meta, self.table.schema_ref())?;
            let before = part.sstables.iter().map(|other| (other.as_ref(), None));
            check_new(&self.table, &sstable, before)?;
            part.sstables.push(Arc::new(sstable));
        }
        Ok(())
    }

    /// False if something came in between that is better looked at without locks; `at_last` that is done with them.
    ///
    /// False too if a key of the import is in a memtable, be it deleted: its version there would hide the imported row,
    /// and its flush mark it. The flush of the next attempt shows what became of the key.
    fn try_commit(&mut self, at_last: bool) -> Result<bool> {
        let (engine, table) = (self.engine.clone(), self.table.clone());
        // The first look may take long. After the second few keys are in memory and few files were added, so that the
        // locks below are held shortly.
        for _ in 0..2 {
            table.tablets.iter().try_for_each(|tablet| engine.flush_tablet(&table, tablet))?;
            self.check_files()?;
        }
        self.publish()?;
        // What was written before is not forgotten while the import is remembered.
        engine.log.wait_durable(engine.log.appended())?;
        engine.reserve_timestamps(engine.timeline.now_micros(), || true)?;

        // In this order, which all others keep to. No table or partition is dropped; no key is between a memtable and its
        // file, and the row index agrees; the set of files stays as it is.
        let _ddl = engine.begin_ddl();
        let _flushes: Vec<_> = table.tablets.iter().map(|tablet| tablet.flush.lock()).collect();
        let _installers: Vec<_> = table.tablets.iter().map(|tablet| tablet.installer.lock()).collect();
        self.check_not_dropped()?;
        if !at_last && !self.all_compared() {
            return Ok(false);
        }
        self.check_files()?;
        let files =
            table.tablets.iter().zip(&self.tablets).map(|(tablet, part)| (tablet.id, part.sstables.clone()));
        let undecided = {
            // Nobody is between deciding to insert a key that was absent and doing it: from here to the end the keys that are new
            // stay new.
            let _latches = self.latch_table();
            engine.begin_deciding(Change::Comes(files.collect()))
        };
        engine.released.tell();
        self.check_unlocked()?;
        let is_new = !self.is_in_memtables()?;
        if is_new {
            self.install()?;
        }
        drop(undecided);
        Ok(is_new)
    }

    /// Keeps all writers of the table out. No tablet has another generation until the installers, which the caller has, are free.
    fn latch_table(&self) -> Vec<Latch<'_>> {
        let generations: Vec<u64> = self.table.tablets.iter().map(|tablet| tablet.generation()).collect();
        self.engine.latches.take_sets(&generations)
    }

    /// Adds the published files to the table. The caller keeps other installers out, and writers of keys that are in them.
    fn install(&mut self) -> Result<()> {
        let engine = &self.engine;
        let timeline = &engine.timeline;
        let appointment = timeline.appoint(timeline.now_micros());
        // If the commit fails, or panics, the record may be on the disk all the same.
        let tablets = std::mem::take(&mut self.tablets);
        let changes = |ts| changes(&self.table, &tablets, ts);
        let edits = changes(appointment.at()).flat_map(|(_, change)| change.into_edits().1).collect();
        let ids = tablets.iter().flat_map(|part| part.finished.iter().map(|meta| meta.id));
        let dir = &self.table.tablets[0].dir;
        let files: Vec<_> = ids.map(|id| GivenUp::Sstable(dir.clone(), id)).collect();
        let committed = engine.manifest.commit(edits);
        let ts = committed.is_ok().then(|| {
            // Whoever has decided on a row looked at the files as they were.
            let _latches = self.latch_table();
            // Who has it alone finds that all has come, or nothing.
            let _gate = engine.gate.share(usize::MAX, true);
            let ts = appointment.keep();
            for (tablet, PreparedChange { files, .. }) in changes(ts) {
                let files = Arc::new(files);
                tablet.change(|state| TabletState { files: files.clone(), ..state.clone() });
            }
            timeline.complete(ts);
            ts
        });
        engine.released.tell();
        committed.inspect_err(|_| engine.give_up_all(files))?;
        engine.settle_given_up();
        // Whoever decides on the rows next tells of them, and snapshots must not lack them then.
        ts.map_or(Ok(()), |ts| timeline.wait_for_watermark(ts))
    }

    /// Gives the files their final names, durably, and opens them under these.
    fn publish(&mut self) -> Result<()> {
        if self.published {
            return Ok(());
        }
        let env = &self.engine.env;
        for (tablet, part) in self.table.tablets.iter().zip(&mut self.tablets) {
            for (sstable, meta) in part.sstables.iter_mut().zip(&part.finished) {
                oribi_sstable::publish(env, &tablet.dir, meta.id)?;
                *sstable = Arc::new(Sstable::open(env, &tablet.dir, meta, self.table.schema_ref())?);
            }
        }
        // The tablets of a table share its folder.
        env.files.sync_dir(&self.table.tablets[0].dir)?;
        self.published = true;
        Ok(())
    }

    /// Checks that no key of the import is live in the table's files. Those that were compared before are left out.
    fn check_files(&mut self) -> Result<()> {
        for (tablet, part) in self.table.tablets.iter().zip(&mut self.tablets) {
            let state = tablet.state();
            let files = || state.files.files.iter().filter(|file| !part.compared.contains(&file.id()));
            for sstable in &part.sstables {
                let others = files().map(|file| (file.sstable.as_ref(), Some(file.deletions.as_ref())));
                check_new(&self.table, sstable, others)?;
            }
            part.compared = state.files.files.iter().map(|file| file.id()).collect();
        }
        Ok(())
    }

    /// Checks that the table, and each tablet with rows of the import, is still there.
    fn check_not_dropped(&self) -> Result<()> {
        if self.engine.latest(self.table.id()).is_none() {
            return Err(Error::not_found("the table was dropped"));
        }
        let tablets = self.table.tablets.iter().zip(&self.tablets);
        let mut dropped =
            tablets.filter(|(tablet, _)| tablet.is_dropped()).flat_map(|(_, part)| &part.finished);
        dropped.next().map_or(Ok(()), |meta| Err(self.engine.no_tablet(&self.table, &meta.min_key)))
    }

    /// Checks that no transaction has locked a key of the import: it may be about to insert it.
    fn check_unlocked(&self) -> Result<()> {
        for (tablet, part) in self.table.tablets.iter().zip(&self.tablets) {
            let is_imported = |key: &[u8]| {
                for sstable in part.sstables.iter().filter(|sstable| sstable.may_contain(key)) {
                    if sstable.find(key, |_, _| true)?.is_some() {
                        return Ok(true);
                    }
                }
                Ok(false)
            };
            let locks = &self.engine.row_locks;
            let is_locked =
                locks.any_of(tablet.generation(), is_imported)? || self.is_among_many(tablet, part)?;
            if is_locked {
                return Err(Error::conflict("a transaction has locked a row of the same key"));
            }
        }
        Ok(())
    }

    /// Whether a key of the import is one of many that a transaction has locked.
    fn is_among_many(&self, tablet: &Tablet, part: &TabletImport) -> Result<bool> {
        let generation = tablet.generation();
        let many = self.engine.row_locks.many_of(generation);
        for sstable in part.sstables.iter().filter(|_| !many.is_empty()) {
            for batch in sstable.keys(self.table.schema_ref())? {
                let (keys, _) = batch?;
                let mut hashes = keys.iter().map(|key| self.engine.index.key(generation, key).hash);
                if hashes.any(|hash| many.iter().any(|many| many.has(hash))) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn all_compared(&self) -> bool {
        let compared = |tablet: &Tablet, part: &TabletImport| {
            tablet.state().files.files.iter().all(|file| part.compared.contains(&file.id()))
        };
        self.table.tablets.iter().zip(&self.tablets).all(|(tablet, part)| compared(tablet, part))
    }

    fn is_in_memtables(&self) -> Result<bool> {
        for (tablet, part) in self.table.tablets.iter().zip(&self.tablets) {
            let state = tablet.state();
            let mut keys = Vec::new();
            for memtable in state.memtables() {
                let index = &self.engine.index;
                index.visit(tablet.generation(), memtable.hashes(), |_, newest| keys.push(newest.hold()));
            }
            for (key, sstable) in keys.iter().flat_map(|key| part.sstables.iter().map(move |s| (key, s))) {
                if sstable.find(key.key(), |_, _| true)?.is_some() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// What the files of an import change, if snapshots below `visible_from` do not see them.
fn changes<'t>(
    table: &'t Table,
    parts: &'t [TabletImport],
    visible_from: Timestamp,
) -> impl Iterator<Item = (&'t Arc<Tablet>, PreparedChange)> {
    let with_files = table.tablets.iter().zip(parts).filter(|(_, part)| !part.sstables.is_empty());
    with_files
        .map(move |(tablet, part)| (tablet, PreparedChange::adding(tablet, &part.sstables, visible_from)))
}

/// Checks that no key of `new` is live in one of `others`.
fn check_new<'a>(
    table: &Table,
    new: &Sstable,
    others: impl Iterator<Item = (&'a Sstable, Option<&'a Deletions>)>,
) -> Result<()> {
    let overlap = |a: &SstableMeta, b: &SstableMeta| a.min_key <= b.max_key && b.min_key <= a.max_key;
    let others: Vec<_> = others.filter(|(other, _)| overlap(other.meta(), new.meta())).collect();
    if others.is_empty() {
        return Ok(());
    }
    for batch in new.keys(table.schema_ref())? {
        let (keys, _) = batch?;
        let sorted: Vec<&[u8]> = keys.iter().collect();
        for (other, deletions) in &others {
            for (key, place) in sorted.iter().zip(other.locate(&sorted)?) {
                let is_live = |row| !deletions.is_some_and(|deletions| deletions.is_marked(row));
                if place.is_some_and(|(row, _)| is_live(row)) {
                    return Err(duplicate(table, key));
                }
            }
        }
    }
    Ok(())
}

impl Drop for Import {
    fn drop(&mut self) {
        for (tablet, part) in self.table.tablets.iter().zip(&self.tablets) {
            for meta in &part.finished {
                self.engine.remove_sstable(&tablet.dir, meta.id);
            }
        }
    }
}

/// The error for a key that is there already, with its values.
fn duplicate(table: &Table, key: &[u8]) -> Error {
    Error::already_exists(format!("key ({}) already exists", table.key_text(key)))
}
