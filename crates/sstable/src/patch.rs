//! Patches: new values of some columns for some rows of an SSTable, which stays as it is.
//!
//! A patch is written as an SSTable is, in two files of its own. Its key is the position that a row has in the SSTable that the
//! patch is of; its other columns are those that are set. Each row of it has the one timestamp of the change.
//!
//! Whoever [has](Sstable::with_patch) a patch reads the rows with the values that it gives them, and its timestamp. Which rows it is
//! of is kept in memory, about two bytes for each at most.

use crate::parquet_schema::{ROW_COLUMN, ROW_COLUMN_ID, arrow_schema};
use crate::sstable::{Named, Sstable, is_of_table};
use crate::{Paths, SstableId, SstableMeta, SstableOptions, SstableWriter, in_sstable};
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use oribi_env::{Env, File};
use oribi_types::batch::EncodedKeys;
use oribi_types::key::encode_component;
use oribi_types::{ColumnId, ColumnType, Error, Result, Schema, Timestamp, ValueRef};
use roaring::RoaringBitmap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// New values for rows of an SSTable.
#[derive(Clone)]
pub struct Patch {
    pub(crate) sstable: Sstable,
    rows: Arc<RoaringBitmap>,
    visible_from: Timestamp,
}

impl Patch {
    /// Opens a published patch of an SSTable that has `rows` rows. Snapshots below `visible_from` do not see it.
    ///
    /// # Errors
    /// `Corrupt` if the files are not those that `meta` was made with, or are no patch of such an SSTable; those of the file system.
    pub fn open(
        env: &Env,
        dir: &Path,
        meta: &SstableMeta,
        schema: &Schema,
        rows: u64,
        visible_from: Timestamp,
    ) -> Result<Self> {
        let mut patch = Patch::open_of(env, dir, meta, schema, Arc::default(), visible_from)?;
        patch.rows = Arc::new(patch.sstable.read_rows(rows).map_err(|e| in_sstable(e, meta.id))?);
        Ok(patch)
    }

    /// As [`open`](Self::open), by whoever has just written it and knows its rows.
    ///
    /// # Errors
    /// As there.
    pub fn open_of(
        env: &Env,
        dir: &Path,
        meta: &SstableMeta,
        schema: &Schema,
        rows: Arc<RoaringBitmap>,
        visible_from: Timestamp,
    ) -> Result<Self> {
        let paths = Paths::new(dir, meta.id);
        let columns = Named { schema, key: vec![(ROW_COLUMN_ID, ColumnType::Int64)] };
        let sstable = Sstable::open_files(env, meta, &columns, &paths.index, paths.data)?;
        if meta.min_ts != meta.max_ts {
            return Err(in_sstable(Error::corrupt("a patch of more than one change"), meta.id));
        }
        Ok(Patch { sstable, rows, visible_from })
    }

    pub fn meta(&self) -> &SstableMeta {
        self.sstable.meta()
    }

    pub fn id(&self) -> SstableId {
        self.meta().id
    }

    /// When its rows were changed, as they say.
    pub fn ts(&self) -> Timestamp {
        self.meta().max_ts
    }

    /// Snapshots below this do not see it.
    pub fn visible_from(&self) -> Timestamp {
        self.visible_from
    }

    /// The same, seen by other snapshots.
    #[must_use]
    pub fn seen_from(&self, visible_from: Timestamp) -> Self {
        Patch { visible_from, ..self.clone() }
    }

    /// What it has, as an SSTable.
    pub fn values(&self) -> &Sstable {
        &self.sstable
    }

    /// The rows that it has values for.
    pub fn rows(&self) -> &RoaringBitmap {
        &self.rows
    }

    /// The columns that it sets.
    pub fn columns(&self) -> impl Iterator<Item = ColumnId> + '_ {
        self.sstable.index().columns.iter().map(|column| column.id).filter(|id| is_of_table(*id))
    }

    pub fn sets(&self, column: ColumnId) -> bool {
        self.columns().any(|id| id == column)
    }

    /// The place in the patch of a row that it has.
    pub(crate) fn place_of(&self, row: u32) -> Option<u32> {
        self.rows.contains(row).then(|| (self.rows.rank(row) - 1) as u32)
    }

    /// Which of the rows in `ranges`, in which order and ascending, it has: their positions among all in the ranges, and their places
    /// in the patch.
    pub(crate) fn within(&self, ranges: &[Range<usize>]) -> (Vec<usize>, Vec<Range<usize>>) {
        let (mut among, mut places) = (Vec::new(), Vec::<Range<usize>>::new());
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return (among, places) };
        let before = first.start.checked_sub(1).map_or(0, |row| self.rows.rank(row as u32));
        let rows = self.rows.range(first.start as u32..=(last.end - 1) as u32).map(|row| row as usize);
        let mut numbered = (before as usize..).zip(rows).peekable();
        let mut start = 0;
        for range in ranges {
            while numbered.next_if(|(_, row)| *row < range.start).is_some() {}
            while let Some((place, row)) = numbered.next_if(|(_, row)| *row < range.end) {
                among.push(start + row - range.start);
                match places.last_mut().filter(|last| last.end == place) {
                    Some(last) => last.end += 1,
                    None => places.push(place..place + 1),
                }
            }
            start += range.len();
        }
        (among, places)
    }

    /// Whether nothing is read of `older` any more by who has this too.
    fn covers(&self, older: &Patch) -> bool {
        older.columns().all(|column| self.sets(column)) && older.rows.is_subset(&self.rows)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.sstable.memory_bytes() + self.rows.serialized_size()
    }

    /// Checks it as an SSTable.
    pub(crate) fn verify(&self, schema: &Schema) -> Result<()> {
        let is_set = |position: &usize| self.sets(schema.columns()[*position].id);
        let set: Vec<usize> = (0..schema.columns().len()).filter(is_set).collect();
        self.sstable.verify(&part(schema, &set)?)
    }
}

/// The schema of a patch that sets the columns at these positions.
fn part(schema: &Schema, columns: &[usize]) -> Result<Schema> {
    let mut name = ROW_COLUMN.to_owned();
    while columns.iter().any(|column| schema.columns()[*column].name == name) {
        name.push('_');
    }
    schema.part((&name, ROW_COLUMN_ID), columns)
}

impl Sstable {
    /// With a patch that is newer than all others. Left out are those that no snapshot at `horizon` or above reads.
    #[must_use]
    pub fn with_patch(&self, patch: Arc<Patch>, horizon: Timestamp) -> Self {
        let mut patches = self.patches.clone();
        patches.push(patch);
        let settled: Vec<_> = patches.iter().filter(|patch| patch.visible_from <= horizon).cloned().collect();
        let is_covered = |older: &Arc<Patch>| {
            let mut newer = settled.iter().skip_while(|patch| !Arc::ptr_eq(patch, older)).skip(1);
            newer.any(|newer| newer.covers(older))
        };
        patches.retain(|patch| !is_covered(patch));
        self.with_patches(patches)
    }

    /// With other patches, the oldest first.
    #[must_use]
    pub fn with_patches(&self, patches: Vec<Arc<Patch>>) -> Self {
        Sstable { opened: Arc::clone(&self.opened), patches }
    }

    /// The oldest first.
    pub fn patches(&self) -> &[Arc<Patch>] {
        &self.patches
    }

    pub fn has_patch(&self, id: SstableId) -> bool {
        self.patches.iter().any(|patch| patch.id() == id)
    }

    /// As a snapshot at `ts` sees it.
    #[must_use]
    pub fn at(self: &Arc<Self>, ts: Timestamp) -> Arc<Self> {
        let is_seen = |patch: &&Arc<Patch>| patch.visible_from <= ts;
        match self.patches.iter().all(|patch| is_seen(&patch)) {
            true => Arc::clone(self),
            false => Arc::new(self.with_patches(self.patches.iter().filter(is_seen).cloned().collect())),
        }
    }

    /// The newest that has `row`.
    pub fn patch_of(&self, row: u32) -> Option<&Arc<Patch>> {
        self.patches.iter().rev().find(|patch| patch.rows.contains(row))
    }

    /// Whether some rows have another value of the column than the file.
    pub fn is_patched(&self, column: ColumnId) -> bool {
        self.patches.iter().any(|patch| patch.sets(column))
    }

    /// The rows of the SSTable, which has `rows`, that this patch is of.
    fn read_rows(&self, rows: u64) -> Result<RoaringBitmap> {
        let position = self.index().column(ROW_COLUMN_ID).ok_or_else(|| Error::corrupt("it is no patch"))?;
        let mut of = RoaringBitmap::new();
        for numbers in self.column(position, &DataType::Int64) {
            let numbers = numbers?;
            let numbers = numbers.as_primitive::<Int64Type>().values();
            let is_row = |number: &&i64| u64::try_from(**number).is_ok_and(|number| number < rows);
            if !numbers.iter().all(|number| is_row(&number)) {
                return Err(Error::corrupt("a patch of rows that there are not"));
            }
            of.append(numbers.iter().map(|number| *number as u32))
                .map_err(|_| Error::corrupt("the rows of a patch do not ascend"))?;
        }
        of.optimize();
        Ok(of)
    }
}

/// Writes a patch under its temporary names. Dropped before [`finish_late`](Self::finish_late), it removes them.
pub struct PatchWriter {
    writer: SstableWriter,
    arrow: SchemaRef,
    ts: Timestamp,
    last_row: Option<u32>,
}

impl PatchWriter {
    /// Begins a patch that sets the columns of `schema` at these positions, of a change at `ts`.
    ///
    /// # Errors
    /// As [`SstableWriter::create`]; `Invalid` for a column of the key.
    pub fn create(
        env: &Env,
        dir: &Path,
        id: SstableId,
        schema: &Schema,
        columns: &[usize],
        ts: Timestamp,
    ) -> Result<Self> {
        let schema = part(schema, columns)?;
        let writer =
            SstableWriter::create(env, dir, id, &schema, &SstableOptions::default())?.without_filters();
        Ok(PatchWriter { writer, arrow: arrow_schema(&schema), ts, last_row: None })
    }

    /// Adds values of `rows`, which ascend and lie behind those of the calls before: an array for each column.
    ///
    /// # Errors
    /// As [`SstableWriter::push_batch`].
    pub fn push(&mut self, rows: &[u32], values: Vec<ArrayRef>) -> Result<()> {
        // The writer takes several rows of a key.
        if !self.last_row.iter().chain(rows).is_sorted_by(|row, next| row < next) {
            return Err(Error::internal("the rows of a patch do not ascend"));
        }
        let numbers: ArrayRef =
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| i64::from(*row))));
        let ts: ArrayRef = Arc::new(UInt64Array::from_value(self.ts.0, rows.len()));
        let columns = std::iter::once(numbers).chain(values).chain([ts]).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.arrow), columns)
            .map_err(|e| Error::invalid(e.to_string()))?;
        let (mut keys, mut key) = (EncodedKeys::default(), Vec::new());
        for row in rows {
            key.clear();
            encode_component(ValueRef::Int64(i64::from(*row)), true, &mut key);
            keys.push(&key);
        }
        self.writer.push_batch(&batch, &keys)?;
        self.last_row = rows.last().copied().or(self.last_row);
        Ok(())
    }

    /// As [`SstableWriter::finish_late`].
    ///
    /// # Errors
    /// As there.
    pub fn finish_late(self, bytes_max: u64) -> Result<(SstableMeta, Vec<Arc<dyn File>>)> {
        self.writer.finish_late(bytes_max)
    }
}
