//! Reading many rows, as Arrow batches in file order: for compaction, expiry and checks.
//!
//! Queries do not come this way; they hand [`Sstable::metadata`] and [`Sstable::read_verified`] to their own reader.

use crate::data_file::VerifiedReader;
use crate::parquet_error;
use crate::parquet_schema::TS_COLUMN_ID;
use crate::sstable::Sstable;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{Schema as ArrowSchema, SchemaRef, UInt64Type};
use oribi_types::batch::{ColumnBuilder, EncodedKeys, encode_keys, ts_field};
use oribi_types::{Column, ColumnSource, Error, Result, Schema, Timestamp, Value};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection};
use std::ops::Range;
use std::sync::Arc;

/// The most rows of a batch, and about the most bytes.
const BATCH_ROWS_MAX: usize = 8_192;
const BATCH_BYTES_MAX: usize = 8 << 20;

impl Sstable {
    /// The columns at the positions `projection` of `schema`, in that order and, with `with_ts`, the commit
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
        let metadata = self.arrow_metadata()?;
        let mut file_columns = Vec::new();
        let mut add = |position: usize| match file_columns.iter().position(|p| *p == position) {
            Some(_) => {}
            None => file_columns.push(position),
        };
        let mut sources = Vec::with_capacity(projection.len() + 1);
        let mut fields = Vec::with_capacity(projection.len() + 1);
        for &position in projection {
            let column = &schema.columns()[position];
            let source = self.source_of(column)?;
            if let Source::File(p) | Source::TsAsInt64(p) = source {
                add(p);
            }
            sources.push(source);
            fields.push(schema.arrow().field(position).clone());
        }
        if with_ts {
            add(self.ts_column);
            sources.push(Source::File(self.ts_column));
            fields.push(ts_field());
        }
        // The reader yields columns in file order whatever order was asked for.
        file_columns.sort_unstable();
        for source in &mut sources {
            if let Source::File(p) | Source::TsAsInt64(p) = source {
                *p = file_columns.binary_search(p).expect("it was added");
            }
        }
        let mask = ProjectionMask::roots(metadata.parquet_schema(), file_columns);
        let mut reader = ParquetRecordBatchReaderBuilder::new_with_metadata(
            VerifiedReader(self.data.clone()),
            metadata.clone(),
        )
        .with_projection(mask)
        .with_batch_size(self.batch_rows()?);
        if let Some(rows) = rows {
            reader = reader.with_row_selection(self.selection(rows)?);
        }
        Ok(Batches {
            reader: Some(reader.build().map_err(parquet_error)?),
            sources,
            arrow: Arc::new(ArrowSchema::new(fields)),
            id: self.meta().id,
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
            return Ok(Source::TsAsInt64(self.ts_column));
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

    /// Rows of a batch, fewer if rows are long.
    fn batch_rows(&self) -> Result<usize> {
        let bytes: i64 = self.metadata()?.row_groups().iter().map(|g| g.total_byte_size()).sum();
        let row_bytes = (bytes.max(0) as u64 / self.meta().rows.max(1)).max(1);
        Ok((BATCH_BYTES_MAX / row_bytes as usize).clamp(1, BATCH_ROWS_MAX))
    }

    fn selection(&self, rows: &[Range<u32>]) -> Result<RowSelection> {
        let disjoint = rows.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let valid = rows.iter().all(|r| r.start <= r.end && r.end <= self.index().rows);
        if !disjoint || !valid {
            return Err(Error::invalid(format!("sstable {}: invalid ranges of rows", self.meta().id)));
        }
        let ranges = rows.iter().map(|r| r.start as usize..r.end as usize);
        Ok(RowSelection::from_consecutive_ranges(ranges, self.index().rows as usize))
    }
}

/// Where a column of a batch comes from: a position among the columns that are read, or nowhere.
enum Source {
    File(usize),
    /// The commit timestamp, shown as a bigint.
    TsAsInt64(usize),
    /// One value that stands for all rows.
    Missing(ArrayRef),
}

/// What `column` answers for rows older than itself, as an array of one value.
fn constant(column: &Column) -> Result<ArrayRef> {
    let mut builder = ColumnBuilder::new(column.column_type);
    builder.push(column.missing.as_ref().map_or(oribi_types::ValueRef::Null, Value::as_ref));
    builder.finish(column.column_type)
}

/// Batches of rows in file order. After an error it yields nothing more.
pub struct Batches {
    reader: Option<ParquetRecordBatchReader>,
    sources: Vec<Source>,
    arrow: SchemaRef,
    id: u64,
}

impl Batches {
    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.arrow
    }

    fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let columns = self
            .sources
            .iter()
            .zip(self.arrow.fields())
            .map(|(source, field)| {
                let array = match source {
                    Source::File(i) => batch.column(*i).clone(),
                    Source::TsAsInt64(i) => {
                        let ts = batch.column(*i).as_primitive::<UInt64Type>().values();
                        Arc::new(Int64Array::new(ScalarBuffer::from(ts.inner().clone()), None))
                    }
                    Source::Missing(value) if value.is_null(0) => new_null_array(field.data_type(), rows),
                    Source::Missing(value) => {
                        let copies = arrow::array::UInt32Array::from(vec![0; rows]);
                        arrow::compute::take(value, &copies, None)?
                    }
                };
                if array.data_type() != field.data_type() {
                    return Err(Error::corrupt(format!("column \"{}\" is of another type", field.name())));
                }
                Ok(array)
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.arrow.clone(), columns, &options)
            .map_err(|e| Error::corrupt(e.to_string()))
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.reader.as_mut()?.next()?;
        let batch = batch.map_err(from_reader).and_then(|batch| self.convert(&batch));
        if batch.is_err() {
            self.reader = None;
        }
        Some(batch.map_err(|e| match e.message().starts_with("sstable ") {
            true => e,
            false => e.context(format!("sstable {}", self.id)),
        }))
    }
}

/// An error of the Parquet reader, which wraps ours twice.
fn from_reader(error: arrow::error::ArrowError) -> Error {
    match error {
        arrow::error::ArrowError::ExternalError(source) => match source.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => Error::corrupt(other.to_string()),
        },
        other => Error::corrupt(other.to_string()),
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
