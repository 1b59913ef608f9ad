//! Compaction: several SSTables of a tablet become one, without the rows that nobody can read any more.
//!
//! Inputs are merged by key. Each kept row's new position is noted in a *row map* per input, by which marks that came
//! while the merge ran are carried over when it is installed.

use crate::catalog::Table;
use crate::deletions::Marks;
use crate::engine::Engine;
use crate::expiry::{Looks, expired_rows};
use crate::installer::FileChange;
use crate::tablet::{LiveFile, PATCHES_MAX, Tablet, TabletState};
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::UInt64Type;
use oribi_sstable::{SstableId, SstableMeta, SstableOptions, SstableWriter, stored_columns};
use oribi_types::batch::{EncodedKeys, encode_keys};
use oribi_types::{Error, Result, Schema, Timestamp};
use roaring::RoaringBitmap;
use std::cmp::Ordering as Order;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A file of which more than this share is deleted or expired is rewritten alone.
const GONE_SHARE_MAX: f64 = 0.3;
/// A tablet with this many times the files that make a compaction worth it needs one urgently.
const FILES_FACTOR_MAX: usize = 4;
/// An SSTable is written in batches of so many rows.
pub(crate) const OUTPUT_BATCH_ROWS: usize = 8192;
/// A file with so many patches is compacted, be it alone.
const PATCHES_ENOUGH: usize = PATCHES_MAX / 4;

/// In a row map: the row was not kept.
const DROPPED: u32 = u32::MAX;

impl Engine {
    /// Rewrites all SSTables of each tablet of `table` as one, now.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system. The files stay as they were.
    pub fn compact(&self, table: &Arc<Table>) -> Result<()> {
        for tablet in &table.tablets {
            let _compaction = tablet.compaction.lock();
            let inputs = tablet.state().files.files.clone();
            let worth = match inputs.as_slice() {
                [] => false,
                [lone] => {
                    lone.deletions.len() > 0
                        || !lone.sstable.patches().is_empty()
                        || self.has_expired(table, lone)?
                }
                _ => true,
            };
            if worth {
                self.compact_files(table, tablet, &inputs)?;
            }
        }
        Ok(())
    }

    fn has_expired(&self, table: &Table, file: &LiveFile) -> Result<bool> {
        let now_micros = self.timeline.expiry_horizon_micros();
        let rows = oribi_env::run_idle(|| expired_rows(table, file, now_micros))?;
        Ok(!rows.is_empty())
    }

    /// Compacts what is worth it in a tablet; says whether there was anything.
    pub(crate) fn compact_if_worth(&self, table: &Table, tablet: &Tablet, looks: &mut Looks) -> Result<bool> {
        let Some(_compaction) = tablet.compaction.try_lock() else { return Ok(false) };
        let files = tablet.state().files.clone();
        let horizon = self.timeline.horizon();
        let mut gone = HashMap::with_capacity(files.files.len());
        for file in &files.files {
            let expired = self.look_for_expired(table, tablet, file, looks)?;
            gone.insert(file.id(), file.deletions.gone_at(horizon) + expired);
        }
        let Some(inputs) = pick(&files.files, &gone, self.options.compaction_files, horizon) else {
            return Ok(false);
        };
        self.compact_files(table, tablet, &inputs)
    }

    /// Makes one file of `inputs`; says whether it was installed. If not, trying again at once would end the same way.
    fn compact_files(&self, table: &Table, tablet: &Tablet, inputs: &[Arc<LiveFile>]) -> Result<bool> {
        let horizon = self.timeline.horizon();
        let now_micros = self.timeline.expiry_horizon_micros();
        let inputs: Vec<Arc<LiveFile>> =
            inputs.iter().filter(|f| f.whole_from() <= horizon).cloned().collect();
        // Looked up after the inputs: it knows every column that they have.
        let Some(table) = self.latest(table.id()) else { return Ok(false) };
        if inputs.is_empty() {
            return Ok(false);
        }
        self.manifest.retry()?;
        let id = self.manifest.next_file_id()?;
        let rows: u64 = inputs.iter().map(|f| f.sstable.meta().rows).sum();
        // For the row maps.
        let _held = self.budget.hold(rows as usize * size_of::<u32>());
        let files_max = FILES_FACTOR_MAX * self.options.compaction_files;
        let urgent = || tablet.state().files.files.len() > files_max;
        let merged = oribi_env::run_idle_until(urgent, || {
            let sources = inputs.iter().map(|file| Source::open(&table, file, horizon, now_micros));
            self.merge(&table, tablet, sources.collect::<Result<_>>()?, id)
        })?;
        self.install_merged(&table, tablet, &inputs, id, merged).inspect_err(|_| self.give_up(tablet, id))
    }

    fn install_merged(
        &self,
        table: &Table,
        tablet: &Tablet,
        inputs: &[Arc<LiveFile>],
        id: SstableId,
        merged: Merged,
    ) -> Result<bool> {
        let _installer = tablet.installer.lock();
        let state = arc_swap::Guard::into_inner(tablet.state());
        let current: Vec<&Arc<LiveFile>> = inputs.iter().filter_map(|f| state.files.file(f.id())).collect();
        let is_patched =
            || inputs.iter().zip(&current).any(|(input, now)| input.whole_from() != now.whole_from());
        if current.len() < inputs.len() || is_patched() || tablet.is_dropped() {
            // Truncated, dropped or patched meanwhile.
            self.remove_sstable(&tablet.dir, id);
            return Ok(false);
        }
        let mut marks = merged.marks;
        for ((input, now), map) in inputs.iter().zip(current).zip(&merged.row_maps) {
            let came = now.deletions.iter().filter(|(row, _)| !input.deletions.is_marked(*row));
            marks.extend(came.map(|(row, at)| (map[row as usize], at)).filter(|(row, _)| *row != DROPPED));
        }
        let change = FileChange {
            added: merged
                .meta
                .into_iter()
                .map(|meta| (meta, Marks::Each(std::mem::take(&mut marks))))
                .collect(),
            removed: inputs.iter().map(|f| f.id()).collect(),
            visible_from: inputs.iter().map(|f| f.whole_from()).max().unwrap_or_default(),
            ..FileChange::default()
        };
        let prepared = self.prepare(tablet, table.schema_ref(), change)?;
        self.commit_change(tablet, prepared, |state, files| TabletState { files, ..state.clone() })?;
        self.counters.compactions.fetch_add(1, Relaxed);
        self.counters.compacted_rows.fetch_add(merged.rows, Relaxed);
        Ok(true)
    }

    fn merge(
        &self,
        table: &Table,
        tablet: &Tablet,
        mut sources: Vec<Source<'_>>,
        id: SstableId,
    ) -> Result<Merged> {
        let schema = table.schema_ref();
        let options = SstableOptions::default();
        let writer = SstableWriter::create(&self.env, &tablet.dir, id, schema, &options)?;
        let mut output = Output::new(writer);
        // A heap of sources by their next key; newest first among equal keys.
        let mut heap = BinaryHeap::with_capacity(sources.len());
        for (i, source) in sources.iter_mut().enumerate() {
            if source.advance(schema)? {
                heap.push(source.head(i));
            }
        }
        while let Some(head) = heap.pop() {
            let source = &mut sources[head.source];
            let at = output.take(head.source, source, &head.key);
            source.row_map.push(at);
            source.next += 1;
            // A batch that is about to be replaced: what the output took of it is written first.
            if source.next == source.keys.len() || output.len() >= OUTPUT_BATCH_ROWS {
                output.write(&mut sources)?;
            }
            let source = &mut sources[head.source];
            if source.advance(schema)? {
                heap.push(source.head(head.source));
            }
        }
        let marks = output.marks;
        let rows = u64::from(output.rows);
        let meta = if rows > 0 { Some(output.writer.finish()?) } else { None };
        let row_maps = sources.into_iter().map(|source| source.row_map).collect();
        Ok(Merged { meta, marks, row_maps, rows })
    }
}

struct Merged {
    /// `None` if no row was kept.
    meta: Option<SstableMeta>,
    marks: Vec<(u32, Timestamp)>,
    /// Per input, the new position of each of its rows.
    row_maps: Vec<Vec<u32>>,
    rows: u64,
}

/// Files to compact: a mostly deleted or expired one alone, one with many patches alone, or enough of similar size. `gone` says how many rows of
/// each nobody can read. What a snapshot below still reads does not count, because compacting it would leave things as
/// they are, again and again.
fn pick(
    files: &[Arc<LiveFile>],
    gone: &HashMap<SstableId, u64>,
    enough: usize,
    horizon: Timestamp,
) -> Option<Vec<Arc<LiveFile>>> {
    let files = || files.iter().filter(|f| f.whole_from() <= horizon);
    let gone = |f: &LiveFile| gone[&f.id()] as f64 / f.sstable.meta().rows.max(1) as f64;
    if let Some(file) = files().find(|f| gone(f) > GONE_SHARE_MAX) {
        return Some(vec![file.clone()]);
    }
    if let Some(file) = files().find(|f| f.sstable.patches().len() >= PATCHES_ENOUGH) {
        return Some(vec![file.clone()]);
    }
    let mut tiers: std::collections::BTreeMap<u32, Vec<Arc<LiveFile>>> = std::collections::BTreeMap::new();
    for file in files() {
        // Files of one tier differ in size by less than a factor of four.
        let tier = file.sstable.meta().data_bytes.max(1).ilog2() / 2;
        tiers.entry(tier).or_default().push(file.clone());
    }
    tiers.into_values().find(|tier| tier.len() >= enough)
}

/// One input of a merge: its current batch and the next row in it.
struct Source<'f> {
    batches: Box<dyn Iterator<Item = Result<RecordBatch>> + 'f>,
    batch: Option<RecordBatch>,
    keys: EncodedKeys,
    next: usize,
    file: &'f LiveFile,
    expired: RoaringBitmap,
    horizon: Timestamp,
    row_map: Vec<u32>,
}

/// A source's next key, in a heap that pops the lowest first.
struct Head {
    key: Vec<u8>,
    ts: u64,
    source: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Order {
        other.key.cmp(&self.key).then(self.ts.cmp(&other.ts)).then(other.source.cmp(&self.source))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for Head {}

impl<'f> Source<'f> {
    /// `now_micros` is the oldest clock by which a snapshot may judge, so that none loses a row that it saw.
    fn open(table: &Table, file: &'f LiveFile, horizon: Timestamp, now_micros: u64) -> Result<Self> {
        let schema = table.schema_ref();
        let stored = stored_columns(schema);
        let expired = expired_rows(table, file, now_micros)?;
        Ok(Source {
            batches: Box::new(file.sstable.batches(schema, &stored, true, None)?),
            batch: None,
            keys: EncodedKeys::default(),
            next: 0,
            file,
            expired,
            horizon,
            row_map: Vec::with_capacity(file.sstable.meta().rows as usize),
        })
    }

    /// Makes sure that there is a next row; false at the end.
    fn advance(&mut self, schema: &Schema) -> Result<bool> {
        while self.next == self.keys.len() {
            let Some(batch) = self.batches.next() else { return Ok(false) };
            let batch = batch?;
            self.keys = encode_keys(schema, &batch)?;
            self.batch = Some(batch);
            self.next = 0;
        }
        Ok(true)
    }

    fn head(&self, source: usize) -> Head {
        let batch = self.batch.as_ref().expect("advanced to a row");
        let ts = batch.column(batch.num_columns() - 1).as_primitive::<UInt64Type>().value(self.next);
        Head { key: self.keys.get(self.next).to_vec(), ts, source }
    }

    /// Whether somebody may still read the next row, and the mark that it keeps.
    fn keeps(&self) -> Option<Option<Timestamp>> {
        let row = self.row_map.len() as u32;
        match self.file.deletions.deleted_at(row) {
            Some(at) if at <= self.horizon => None,
            _ if self.expired.contains(row) => None,
            mark => Some(mark),
        }
    }
}

/// Rows taken from the sources' current batches, written some thousand at a time.
struct Output {
    writer: SstableWriter,
    /// (source, row of its batch)
    picks: Vec<(usize, usize)>,
    keys: EncodedKeys,
    marks: Vec<(u32, Timestamp)>,
    rows: u32,
}

impl Output {
    fn new(writer: SstableWriter) -> Self {
        Output { writer, picks: Vec::new(), keys: EncodedKeys::default(), marks: Vec::new(), rows: 0 }
    }

    fn len(&self) -> usize {
        self.picks.len()
    }

    /// Takes the next row of a source, if it is kept; returns its new position.
    fn take(&mut self, i: usize, source: &Source<'_>, key: &[u8]) -> u32 {
        let Some(mark) = source.keeps() else { return DROPPED };
        let position = self.rows;
        self.picks.push((i, source.next));
        self.keys.push(key);
        self.marks.extend(mark.map(|at| (position, at)));
        self.rows += 1;
        position
    }

    fn write(&mut self, sources: &mut [Source<'_>]) -> Result<()> {
        if self.picks.is_empty() {
            return Ok(());
        }
        if self.rows == DROPPED {
            return Err(Error::too_large("an sstable holds at most 2^32 - 1 rows"));
        }
        // Only sources that have a batch can be picked from.
        let position: Vec<usize> = sources
            .iter()
            .scan(0, |n, source| {
                let at = *n;
                *n += usize::from(source.batch.is_some());
                Some(at)
            })
            .collect();
        let batches: Vec<&RecordBatch> = sources.iter().filter_map(|source| source.batch.as_ref()).collect();
        let picks: Vec<(usize, usize)> = self.picks.iter().map(|(s, row)| (position[*s], *row)).collect();
        let batch = interleave_record_batch(&batches, &picks)?;
        self.writer.push_batch(&batch, &self.keys)?;
        self.picks.clear();
        self.keys = EncodedKeys::default();
        Ok(())
    }
}
