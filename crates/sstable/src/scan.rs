//! Reading many rows, as Arrow batches in file order.

use crate::column::ColumnReader;
use crate::data_file::DataFile;
use crate::in_sstable;
use crate::parquet_schema::TS_COLUMN_ID;
use crate::patched::Patched;
use crate::sstable::Sstable;
use crate::value::Physical;
use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array,
};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Schema as ArrowSchema, SchemaRef, UInt64Type};
use oribi_types::batch::{ColumnBuilder, EncodedKeys, encode_keys, ts_field};
use oribi_types::{Column, ColumnSource, Error, Result, Schema, Timestamp, Value};
use parquet::arrow::arrow_reader::RowSelection;
use parquet::file::metadata::ParquetMetaData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most rows of a batch, and about the most bytes.
const BATCH_ROWS_MAX: usize = 8_192;
const BATCH_BYTES_MAX: usize = 8 << 20;
/// What Arrow keeps of a text or blob beside its bytes.
pub(crate) const VIEW_BYTES: u64 = 16;

impl Sstable {
    /// The columns at the positions `projection` of `schema`, as patches have them, in that order and, with `with_ts`, the commit
    /// timestamps behind them; all rows, or those in `rows` (ascending, disjoint). Columns are found by id; one that
    /// the file lacks holds what it answers for older rows.
    ///
    /// # Errors
    /// `Corrupt`, naming the damaged page, here or from the iterator, which then ends; `Invalid` for rows that do not
    /// exist.
    pub fn batches(
        &self,
        schema: &Schema,
        projection: &[usize],
        with_ts: bool,
        rows: Option<&[Range<u32>]>,
    ) -> Result<Batches> {
        self.batches_of(schema, projection, with_ts, |metadata, columns| {
            self.groups_to_read(metadata, columns, rows)
        })
    }

    /// As [`batches`](Self::batches), of one row group, those rows of it that are selected.
    ///
    /// # Errors
    /// As [`batches`](Self::batches).
    pub fn group_batches(
        &self,
        schema: &Schema,
        projection: &[usize],
        with_ts: bool,
        group: usize,
        selection: RowSelection,
    ) -> Result<Batches> {
        self.batches_of(schema, projection, with_ts, |metadata, columns| {
            if group >= metadata.num_row_groups() || group >= self.index().groups() {
                return Err(Error::invalid(format!("sstable {}: no row group {group}", self.meta().id)));
            }
            let bounds = self.index().rows_of_group(group);
            let mut next = bounds.start;
            let runs = selection.iter().filter_map(|run| {
                let rows = next..next.saturating_add(run.row_count);
                next = rows.end;
                (!run.skip && run.row_count > 0).then_some(rows)
            });
            let rows: Vec<_> = runs.collect();
            if rows.last().is_some_and(|last| last.end > bounds.end) {
                let what = format!("more rows than row group {group} has");
                return Err(Error::invalid(format!("sstable {}: {what}", self.meta().id)));
            }
            let batch_rows = self.batch_rows(metadata, group, columns);
            Ok(vec![GroupRead { group, rows, batch_rows }])
        })
    }

    /// The rows of each row group, by their positions in the file.
    pub fn row_groups(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.index().row_groups.windows(2).map(|bounds| bounds[0].first_row..bounds[1].first_row)
    }

    fn batches_of(
        &self,
        schema: &Schema,
        projection: &[usize],
        with_ts: bool,
        groups: impl FnOnce(&ParquetMetaData, &[usize]) -> Result<Vec<GroupRead>>,
    ) -> Result<Batches> {
        let mut columns: Vec<(usize, DataType)> = Vec::new();
        let stored = self.arrow_metadata()?.schema();
        let mut place_of = |position: usize, data_type: &DataType| {
            let field = stored.field(position);
            if field.data_type() != data_type {
                let what = format!("column \"{}\" is of another type", field.name());
                return Err(Error::corrupt(format!("sstable {}: {what}", self.meta().id)));
            }
            let place = columns.iter().position(|(other, _)| *other == position);
            Ok(place.unwrap_or_else(|| {
                columns.push((position, data_type.clone()));
                columns.len() - 1
            }))
        };
        let mut sources = Vec::with_capacity(projection.len() + 1);
        let mut fields = Vec::with_capacity(projection.len() + 1);
        for &position in projection {
            let field = schema.arrow().field(position);
            sources.push(match self.source_of(&schema.columns()[position])? {
                Source::File(p) => Source::File(place_of(p, field.data_type())?),
                Source::TsAsInt64(p) => Source::TsAsInt64(place_of(p, ts_field().data_type())?),
                of_all => of_all,
            });
            fields.push(field.clone());
        }
        if with_ts {
            sources.push(match self.meta() {
                meta if meta.min_ts == meta.max_ts => Source::Ts(meta.max_ts),
                _ => Source::File(place_of(self.opened.ts_column, ts_field().data_type())?),
            });
            fields.push(ts_field());
        }
        let positions: Vec<usize> = columns.iter().map(|(position, _)| *position).collect();
        let mut groups = groups(self.arrow_metadata()?.metadata(), &positions)?;
        let bytes_read = Arc::default();
        let patched = Patched::of(self, schema, projection, with_ts, &bytes_read)?;
        let patched_rows = batch_rows_of(self.patched_bytes_max(schema, projection)?);
        groups.iter_mut().for_each(|group| group.batch_rows = group.batch_rows.min(patched_rows));
        Ok(Batches {
            data: self.opened.data.clone(),
            columns,
            groups: groups.into_iter(),
            group: None,
            bytes_read,
            sources,
            patched,
            arrow: Arc::new(ArrowSchema::new(fields)),
            id: self.meta().id,
        })
    }

    /// Bytes that the values take in memory that patches give the columns of a row, where they take most.
    fn patched_bytes_max(&self, schema: &Schema, projection: &[usize]) -> Result<u64> {
        projection.iter().map(|position| self.patched_value_bytes_max(&schema.columns()[*position])).sum()
    }

    /// As [`value_bytes_max`](Self::value_bytes_max), of the values that patches have.
    fn patched_value_bytes_max(&self, column: &Column) -> Result<u64> {
        let mut most = 0;
        for patch in self.patches.iter().filter(|patch| patch.sets(column.id)) {
            most = most.max(patch.sstable.value_bytes_max(column)?);
        }
        Ok(most)
    }

    /// The values of a stored column, a row group at a time, as the file itself has them.
    pub(crate) fn column(
        &self,
        position: usize,
        data_type: &DataType,
    ) -> impl Iterator<Item = Result<ArrayRef>> {
        let (index, data) = (self.index(), &self.opened.data);
        (0..index.groups()).map(move |group| {
            let mut column = ColumnReader::open(data, (group, position), data_type, true, &Arc::default())?;
            column.read(&[index.rows_of_group(group)])
        })
    }

    /// The encoded keys and commit timestamps of all rows, in file order.
    ///
    /// # Errors
    /// As [`batches`](Self::batches).
    pub fn keys<'s>(&self, schema: &'s Schema) -> Result<Keys<'s>> {
        Ok(Keys { batches: self.batches(schema, schema.key(), true, None)?, schema })
    }

    fn source_of(&self, column: &Column) -> Result<Source> {
        if column.source == ColumnSource::CommitTimestamp {
            return Ok(Source::TsAsInt64(self.opened.ts_column));
        }
        debug_assert_ne!(column.id, TS_COLUMN_ID, "column ids are small");
        match self.index().column(column.id) {
            Some(p) if self.index().columns[p].physical.holds(column.column_type) => Ok(Source::File(p)),
            Some(_) => {
                let what = format!("column \"{}\" is of another type", column.name);
                Err(Error::corrupt(format!("sstable {}: {what}", self.meta().id)))
            }
            None => Ok(Source::Missing(constant(column)?)),
        }
    }

    /// Bytes that a value of `column` takes in memory, on the average of the page in which they take most.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn value_bytes_max(&self, column: &Column) -> Result<u64> {
        Ok(self.patched_value_bytes_max(column)?.max(self.stored_bytes_of_value_max(column)?))
    }

    fn stored_bytes_of_value_max(&self, column: &Column) -> Result<u64> {
        let (Source::File(position) | Source::TsAsInt64(position)) = self.source_of(column)? else {
            return Ok(VIEW_BYTES);
        };
        let metadata = self.arrow_metadata()?.metadata();
        let groups = 0..self.index().groups().min(metadata.num_row_groups());
        let of_column =
            |column| groups.clone().map(|group| self.row_bytes_max(metadata, group, column)).max();
        let of_columns =
            || (0..self.index().columns.len()).map(|column| of_column(column).unwrap_or(0)).collect();
        Ok(self.opened.value_bytes.get_or_init(of_columns)[position])
    }

    /// The row groups that hold some of `rows`, and how to read each.
    fn groups_to_read(
        &self,
        metadata: &ParquetMetaData,
        columns: &[usize],
        rows: Option<&[Range<u32>]>,
    ) -> Result<Vec<GroupRead>> {
        let index = self.index();
        let wrong = |what: &str| format!("sstable {}: {what}", self.meta().id);
        if metadata.num_row_groups() != index.groups() {
            return Err(Error::corrupt(wrong("other row groups than in the index")));
        }
        let all = 0..index.rows;
        let rows = rows.unwrap_or(std::slice::from_ref(&all));
        let disjoint = rows.windows(2).all(|pair| pair[0].end <= pair[1].start);
        if !disjoint || rows.iter().any(|r| r.start > r.end || r.end > index.rows) {
            return Err(Error::invalid(wrong("invalid ranges of rows")));
        }
        let mut groups = Vec::new();
        for group in 0..index.groups() {
            let bounds = index.rows_of_group(group);
            let within = |rows: &Range<u32>| {
                let rows = (rows.start as usize).max(bounds.start)..(rows.end as usize).min(bounds.end);
                (rows.start < rows.end).then_some(rows)
            };
            let rows: Vec<_> = rows.iter().filter_map(within).collect();
            if !rows.is_empty() {
                groups.push(GroupRead { group, rows, batch_rows: self.batch_rows(metadata, group, columns) });
            }
        }
        Ok(groups)
    }

    /// Rows of a batch, fewer if rows are long: as if all were as long as those of the fullest pages, because long rows
    /// lie side by side if their keys do.
    fn batch_rows(&self, metadata: &ParquetMetaData, group: usize, columns: &[usize]) -> usize {
        let row_bytes: u64 = columns.iter().map(|column| self.row_bytes_max(metadata, group, *column)).sum();
        batch_rows_of(row_bytes)
    }

    /// Bytes that a value of `column` takes in memory, by the page of the row group in which they take most.
    fn row_bytes_max(&self, metadata: &ParquetMetaData, group: usize, column: usize) -> u64 {
        let index = self.index();
        if index.columns[column].physical != Physical::Bytes {
            return index.columns[column].physical.width().unwrap_or(1) as u64;
        }
        let pages = index.chunk(group, column).pages;
        let end = index.row_groups[group + 1].first_row;
        let first_rows = index.extents[pages.clone()].iter().map(|e| e.first_row);
        let ends = first_rows.clone().skip(1).chain([end]);
        let bytes = match self.value_bytes_of_pages(metadata, group, column) {
            Some(sizes) => {
                let rows = first_rows.zip(ends).map(|(first, end)| u64::from(end - first));
                rows.zip(sizes).map(|(rows, bytes)| (*bytes).max(0) as u64 / rows).max().unwrap_or(0)
            }
            None => {
                let chunk = metadata.row_group(group).columns().get(column);
                let bytes = chunk.map_or(0, |chunk| chunk.uncompressed_size().max(0) as u64);
                bytes / u64::from(end - index.row_groups[group].first_row)
            }
        };
        bytes + VIEW_BYTES
    }

    /// What the values of each page of a column chunk come to; another writer may have left it out.
    pub(crate) fn value_bytes_of_pages<'m>(
        &self,
        metadata: &'m ParquetMetaData,
        group: usize,
        column: usize,
    ) -> Option<&'m [i64]> {
        let offsets = metadata.offset_index()?.get(group)?.get(column)?;
        let sizes = offsets.unencoded_byte_array_data_bytes()?;
        (sizes.len() == self.index().chunk(group, column).pages.len()).then_some(sizes.as_slice())
    }
}

/// A row group that is to be read: some rows, by their positions in the file.
struct GroupRead {
    group: usize,
    rows: Vec<Range<usize>>,
    batch_rows: usize,
}

/// How many rows of so many bytes are a batch.
fn batch_rows_of(row_bytes: u64) -> usize {
    (BATCH_BYTES_MAX as u64 / row_bytes.max(1)).clamp(1, BATCH_ROWS_MAX as u64) as usize
}

/// Whether `rows` are of most pages, which begin at these rows.
fn has_most_pages(rows: &[Range<usize>], starts: impl ExactSizeIterator<Item = usize>) -> bool {
    let (pages, mut wanted) = (starts.len(), 0);
    let mut starts = starts.peekable();
    for run in rows {
        // The page that the run begins in, if none before did, and those that begin in it.
        let mut is_in_one = false;
        while starts.next_if(|start| *start <= run.start).is_some() {
            is_in_one = true;
        }
        wanted += usize::from(is_in_one);
        while starts.next_if(|start| *start < run.end).is_some() {
            wanted += 1;
        }
    }
    2 * wanted > pages
}

/// Where a column of a batch comes from: a position among the columns that are read, or nowhere.
enum Source {
    File(usize),
    /// The commit timestamp, shown as a bigint.
    TsAsInt64(usize),
    /// That of all rows.
    Ts(Timestamp),
    /// One value that stands for all rows.
    Missing(ArrayRef),
}

/// What `column` answers for rows older than itself, as an array of one value.
fn constant(column: &Column) -> Result<ArrayRef> {
    let mut builder = ColumnBuilder::new(column.column_type);
    builder.push(column.missing.as_ref().map_or(oribi_types::ValueRef::Null, Value::as_ref));
    builder.finish(column.column_type)
}

/// Batches of rows in file order; none crosses row groups. After an error it yields nothing more.
pub struct Batches {
    data: Arc<DataFile>,
    /// Positions of the columns that are read, each once, and what becomes of them.
    columns: Vec<(usize, DataType)>,
    /// Those that were not begun yet.
    groups: std::vec::IntoIter<GroupRead>,
    group: Option<OpenGroup>,
    bytes_read: Arc<AtomicU64>,
    sources: Vec<Source>,
    patched: Patched,
    arrow: SchemaRef,
    id: u64,
}

/// The row group that is being read.
struct OpenGroup {
    columns: Vec<ColumnReader>,
    /// The rows that are left, last first, by their positions in the file.
    left: Vec<Range<usize>>,
    batch_rows: usize,
}

impl OpenGroup {
    /// Takes the rows of a batch.
    fn take(&mut self) -> Vec<Range<usize>> {
        let (mut taken, mut room) = (Vec::new(), self.batch_rows);
        while room > 0
            && let Some(rows) = self.left.last_mut()
        {
            let end = rows.end.min(rows.start + room);
            room -= end - rows.start;
            taken.push(rows.start..end);
            rows.start = end;
            if rows.start == rows.end {
                self.left.pop();
            }
        }
        taken
    }
}

impl Batches {
    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.arrow
    }

    /// Bytes of pages that were read from the file by now.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    fn read_next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(group) = &mut self.group {
                let rows = group.take();
                if !rows.is_empty() {
                    let columns = group.columns.iter_mut().map(|column| column.read(&rows));
                    let columns = columns.collect::<Result<Vec<_>>>()?;
                    return self.batch(&columns, &rows).map(Some);
                }
            }
            self.group = None;
            let Some(next) = self.groups.next() else { return Ok(None) };
            self.group = Some(self.open(next)?);
        }
    }

    fn open(&mut self, next: GroupRead) -> Result<OpenGroup> {
        let GroupRead { group, rows: mut left, batch_rows } = next;
        if !self.patched.is_empty() {
            self.patched.read_ahead(has_most_pages(&left, self.data.index().page_starts(group, 0)));
        }
        let column = |(column, data_type): &(usize, DataType)| {
            let is_read_ahead = has_most_pages(&left, self.data.index().page_starts(group, *column));
            ColumnReader::open(&self.data, (group, *column), data_type, is_read_ahead, &self.bytes_read)
        };
        let columns = self.columns.iter().map(column).collect::<Result<_>>()?;
        left.reverse();
        Ok(OpenGroup { columns, left, batch_rows })
    }

    /// A batch of what was read of these rows.
    fn batch(&mut self, read: &[ArrayRef], ranges: &[Range<usize>]) -> Result<RecordBatch> {
        let rows = ranges.iter().map(ExactSizeIterator::len).sum();
        let columns = self.sources.iter().zip(self.arrow.fields()).map(|(source, field)| match source {
            Source::File(place) => Ok(read[*place].clone()),
            Source::TsAsInt64(place) => {
                let ts = read[*place].as_primitive::<UInt64Type>().values();
                Ok(Arc::new(Int64Array::new(ScalarBuffer::from(ts.inner().clone()), None)) as ArrayRef)
            }
            Source::Ts(ts) => Ok(Arc::new(UInt64Array::from_value(ts.0, rows)) as ArrayRef),
            Source::Missing(value) if value.is_null(0) => Ok(new_null_array(field.data_type(), rows)),
            Source::Missing(value) => {
                let copies = arrow::array::UInt32Array::from(vec![0; rows]);
                Ok(arrow::compute::take(value, &copies, None)?)
            }
        });
        let mut columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        self.patched.put_over(ranges, &mut columns)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.arrow.clone(), columns, &options)
            .map_err(|e| Error::corrupt(e.to_string()))
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.read_next();
        if batch.is_err() {
            self.group = None;
            self.groups = Vec::new().into_iter();
        }
        batch.map_err(|e| in_sstable(e, self.id)).transpose()
    }
}

/// Encoded keys and commit timestamps, a batch at a time.
pub struct Keys<'s> {
    batches: Batches,
    schema: &'s Schema,
}

impl Iterator for Keys<'_> {
    type Item = Result<(EncodedKeys, Vec<Timestamp>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.batches.next()? {
            Ok(batch) => batch,
            Err(e) => return Some(Err(e)),
        };
        let ts = batch.column(batch.num_columns() - 1).as_primitive::<UInt64Type>();
        let ts = ts.values().iter().map(|ts| Timestamp(*ts)).collect();
        Some(encode_keys(self.schema, &batch).map(|keys| (keys, ts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_ROWS: usize = 100;

    /// By the first row of each run, and how many there are.
    fn of(runs: &[(usize, usize)], rows: usize) -> bool {
        let runs: Vec<_> = runs.iter().map(|(first, rows)| *first..first + rows).collect();
        has_most_pages(&runs, (0..rows.div_ceil(PAGE_ROWS)).map(|page| page * PAGE_ROWS))
    }

    #[test]
    fn pages_are_counted_once() {
        let rows = 10 * PAGE_ROWS;
        let one_in_each = |pages: usize| Vec::from_iter((0..pages).map(|page| (page * PAGE_ROWS + 7, 1)));
        assert!(of(&one_in_each(6), rows) && !of(&one_in_each(5), rows));
        let in_one = Vec::from_iter((0..PAGE_ROWS / 2).map(|n| (2 * n, 1)));
        assert!(!of(&in_one, rows));
        assert!(of(&[(0, rows / 2 + 1)], rows) && !of(&[(0, rows / 2)], rows) && !of(&[], rows));
        assert!(of(&[(PAGE_ROWS - 1, 2)], 3 * PAGE_ROWS), "a run over the end of a page");
        assert!(!of(&[(PAGE_ROWS - 4, 1), (PAGE_ROWS - 1, 1)], 2 * PAGE_ROWS));
    }
}
