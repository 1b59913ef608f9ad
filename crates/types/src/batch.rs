//! Arrow batches: rows turned into columns, and back.

use crate::cells::Cells;
use crate::key::KeyDecoder;
use crate::schema::{FIELD_ID_METADATA, TS_COLUMN};
use crate::{Column, ColumnSource, ColumnType, Error, Result, RowRef, Schema, Timestamp, ValueRef};
use arrow::array::builder::{
    BinaryViewBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, FixedSizeBinaryBuilder,
    Float32Builder, Float64Builder, Int8Builder, Int16Builder, Int32Builder, Int64Builder, StringViewBuilder,
    TimestampMicrosecondBuilder, UInt64Builder,
};
use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes as at;
use arrow::datatypes::{DataType, Field, SchemaRef};
use std::collections::HashMap;
use std::sync::Arc;

/// Parquet field id of the hidden [`TS_COLUMN`].
pub const TS_FIELD_ID: i32 = i32::MAX;

/// The hidden column that SSTables keep behind all others: the commit timestamp of each row.
pub fn ts_field() -> Field {
    Field::new(TS_COLUMN, DataType::UInt64, false)
        .with_metadata(HashMap::from([(FIELD_ID_METADATA.to_owned(), TS_FIELD_ID.to_string())]))
}

/// Builds a batch from encoded rows, for a projection of a table's columns.
pub struct BatchBuilder<'s> {
    schema: &'s Schema,
    /// Builders of the projected columns, in the order of the projection.
    columns: Vec<(usize, ColumnBuilder)>,
    /// For each key component, the builder (position in `columns`) that takes it.
    key_targets: Vec<Option<usize>>,
    ts: Option<UInt64Builder>,
    arrow: SchemaRef,
    rows: usize,
    scratch: Vec<u8>,
}

impl<'s> BatchBuilder<'s> {
    /// A builder for the columns at the positions `projection`; with `ts`, the hidden [`TS_COLUMN`] stands last.
    pub fn new(schema: &'s Schema, projection: &[usize], ts: bool) -> Self {
        let mut key_targets = vec![None; schema.key().len()];
        let mut fields = Vec::with_capacity(projection.len() + 1);
        let mut columns = Vec::with_capacity(projection.len());
        for &position in projection {
            let column = &schema.columns()[position];
            if let ColumnSource::Key(component) = column.source {
                key_targets[usize::from(component)] = Some(columns.len());
            }
            fields.push(schema.arrow().field(position).clone());
            columns.push((position, ColumnBuilder::new(column.column_type)));
        }
        if ts {
            fields.push(ts_field());
        }
        BatchBuilder {
            schema,
            columns,
            key_targets,
            ts: ts.then(UInt64Builder::new),
            arrow: Arc::new(at::Schema::new(fields)),
            rows: 0,
            scratch: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// `Corrupt` if the key does not decode.
    pub fn push(&mut self, key: &[u8], row: &[u8], ts: Timestamp) -> Result<()> {
        if self.key_targets.iter().any(Option::is_some) {
            let mut decoder = KeyDecoder::new(key);
            let last = self.key_targets.len() - 1;
            for (i, target) in self.key_targets.iter().enumerate() {
                let column = &self.schema.columns()[self.schema.key()[i]];
                let value = decoder.next(column.column_type, i == last, &mut self.scratch)?;
                if let Some(target) = target {
                    self.columns[*target].1.push(value);
                }
            }
        }
        let row = RowRef::new(self.schema.layout(), row);
        for (position, builder) in &mut self.columns {
            let column = &self.schema.columns()[*position];
            match column.source {
                ColumnSource::Key(_) => {}
                ColumnSource::Slot(slot) => builder.push(self.schema.value_in(column, slot, row)),
                ColumnSource::CommitTimestamp => builder.push(ValueRef::Int64(ts.0 as i64)),
            }
        }
        if let Some(builder) = &mut self.ts {
            builder.append_value(ts.0);
        }
        self.rows += 1;
        Ok(())
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The batch of all rows pushed since the last call.
    ///
    /// # Errors
    /// `Invalid` if a not-null column holds null.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let mut arrays = self
            .columns
            .iter_mut()
            .map(|(position, builder)| builder.finish(self.schema.columns()[*position].column_type))
            .collect::<Result<Vec<ArrayRef>>>()?;
        if let Some(ts) = &mut self.ts {
            arrays.push(Arc::new(ts.finish()));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        Ok(RecordBatch::try_new_with_options(self.arrow.clone(), arrays, &options)?)
    }
}

/// Builds one column of a table's type.
pub enum ColumnBuilder {
    Bool(BooleanBuilder),
    Int8(Int8Builder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Decimal(Decimal128Builder),
    Text(StringViewBuilder),
    Binary(BinaryViewBuilder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Uuid(FixedSizeBinaryBuilder),
}

impl ColumnBuilder {
    pub fn new(column_type: ColumnType) -> Self {
        match column_type {
            ColumnType::Bool => ColumnBuilder::Bool(BooleanBuilder::new()),
            ColumnType::Int8 => ColumnBuilder::Int8(Int8Builder::new()),
            ColumnType::Int16 => ColumnBuilder::Int16(Int16Builder::new()),
            ColumnType::Int32 => ColumnBuilder::Int32(Int32Builder::new()),
            ColumnType::Int64 => ColumnBuilder::Int64(Int64Builder::new()),
            ColumnType::Float => ColumnBuilder::Float(Float32Builder::new()),
            ColumnType::Double => ColumnBuilder::Double(Float64Builder::new()),
            ColumnType::Decimal { .. } => ColumnBuilder::Decimal(Decimal128Builder::new()),
            ColumnType::String | ColumnType::Json => ColumnBuilder::Text(StringViewBuilder::new()),
            ColumnType::Binary => ColumnBuilder::Binary(BinaryViewBuilder::new()),
            ColumnType::Date => ColumnBuilder::Date(Date32Builder::new()),
            ColumnType::Timestamp => ColumnBuilder::Timestamp(TimestampMicrosecondBuilder::new()),
            ColumnType::Uuid => ColumnBuilder::Uuid(FixedSizeBinaryBuilder::new(16)),
        }
    }

    /// Adds a value of the column's type, or null.
    #[inline]
    pub fn push(&mut self, value: ValueRef<'_>) {
        match (self, value) {
            (ColumnBuilder::Bool(b), ValueRef::Bool(v)) => b.append_value(v),
            (ColumnBuilder::Int8(b), ValueRef::Int8(v)) => b.append_value(v),
            (ColumnBuilder::Int16(b), ValueRef::Int16(v)) => b.append_value(v),
            (ColumnBuilder::Int32(b), ValueRef::Int32(v)) => b.append_value(v),
            (ColumnBuilder::Int64(b), ValueRef::Int64(v)) => b.append_value(v),
            (ColumnBuilder::Float(b), ValueRef::Float(v)) => b.append_value(v),
            (ColumnBuilder::Double(b), ValueRef::Double(v)) => b.append_value(v),
            (ColumnBuilder::Decimal(b), ValueRef::Decimal(v)) => b.append_value(v),
            (ColumnBuilder::Text(b), ValueRef::String(v) | ValueRef::Json(v)) => b.append_value(v),
            (ColumnBuilder::Binary(b), ValueRef::Binary(v)) => b.append_value(v),
            (ColumnBuilder::Date(b), ValueRef::Date(v)) => b.append_value(v),
            (ColumnBuilder::Timestamp(b), ValueRef::Timestamp(v)) => b.append_value(v),
            (ColumnBuilder::Uuid(b), ValueRef::Uuid(v)) => {
                b.append_value(v).expect("a uuid has 16 bytes");
            }
            (builder, ValueRef::Null) => builder.push_null(),
            (_, value) => unreachable!("{value:?} in a column of another type"),
        }
    }

    fn push_null(&mut self) {
        match self {
            ColumnBuilder::Bool(b) => b.append_null(),
            ColumnBuilder::Int8(b) => b.append_null(),
            ColumnBuilder::Int16(b) => b.append_null(),
            ColumnBuilder::Int32(b) => b.append_null(),
            ColumnBuilder::Int64(b) => b.append_null(),
            ColumnBuilder::Float(b) => b.append_null(),
            ColumnBuilder::Double(b) => b.append_null(),
            ColumnBuilder::Decimal(b) => b.append_null(),
            ColumnBuilder::Text(b) => b.append_null(),
            ColumnBuilder::Binary(b) => b.append_null(),
            ColumnBuilder::Date(b) => b.append_null(),
            ColumnBuilder::Timestamp(b) => b.append_null(),
            ColumnBuilder::Uuid(b) => b.append_null(),
        }
    }

    /// The column of all values pushed since the last call.
    ///
    /// # Errors
    /// `Invalid` for a decimal type that Arrow does not take.
    pub fn finish(&mut self, column_type: ColumnType) -> Result<ArrayRef> {
        Ok(match self {
            ColumnBuilder::Bool(b) => Arc::new(b.finish()),
            ColumnBuilder::Int8(b) => Arc::new(b.finish()),
            ColumnBuilder::Int16(b) => Arc::new(b.finish()),
            ColumnBuilder::Int32(b) => Arc::new(b.finish()),
            ColumnBuilder::Int64(b) => Arc::new(b.finish()),
            ColumnBuilder::Float(b) => Arc::new(b.finish()),
            ColumnBuilder::Double(b) => Arc::new(b.finish()),
            ColumnBuilder::Decimal(b) => match column_type {
                ColumnType::Decimal { precision, scale } => {
                    Arc::new(b.finish().with_precision_and_scale(precision, scale)?)
                }
                _ => unreachable!("a decimal builder for a decimal column"),
            },
            ColumnBuilder::Text(b) => Arc::new(b.finish()),
            ColumnBuilder::Binary(b) => Arc::new(b.finish()),
            ColumnBuilder::Date(b) => Arc::new(b.finish()),
            ColumnBuilder::Timestamp(b) => Arc::new(b.finish()),
            ColumnBuilder::Uuid(b) => Arc::new(b.finish()),
        })
    }
}

/// The value at row `i` of `array`, which must have the Arrow type of `column_type`.
#[inline]
pub fn value_at(array: &dyn Array, column_type: ColumnType, i: usize) -> ValueRef<'_> {
    Cells::of(array, column_type).get(i)
}

/// Encoded keys of the rows of a batch, in one buffer.
#[derive(Default)]
pub struct EncodedKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl EncodedKeys {
    pub fn with_capacity(keys: usize, bytes: usize) -> Self {
        EncodedKeys { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(keys) }
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all keys.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// The first position for whose key `pred` fails, in keys that are partitioned by it.
    pub fn partition_point(&self, pred: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if pred(self.get(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a key behind the others.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..self.ends[i]]
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }
}

/// Encodes the keys of all rows of `batch`, whose columns are found by name.
///
/// # Errors
/// `Invalid` for null in a key column or a key column that the batch lacks or holds with another type.
pub fn encode_keys(schema: &Schema, batch: &RecordBatch) -> Result<EncodedKeys> {
    let columns = schema.key_columns().map(|c| column_of(batch, c)).collect::<Result<Vec<_>>>()?;
    let types: Vec<ColumnType> = schema.key_columns().map(|c| c.column_type).collect();
    let mut keys = EncodedKeys::default();
    keys.ends.reserve(batch.num_rows());
    for i in 0..batch.num_rows() {
        let values = columns.iter().zip(&types).map(|(array, t)| value_at(array, *t, i));
        crate::key::encode_key(schema, values, &mut keys.bytes)?;
        keys.ends.push(keys.bytes.len());
    }
    Ok(keys)
}

/// Encodes row `i` of `batch`, whose columns are found by position: a column for each of the table's, in SQL order.
/// The key is appended to `key`, the row to `row`.
///
/// # Errors
/// `Invalid`, naming the column, for null where it may not be.
pub fn encode_row_at(
    schema: &Schema,
    batch: &RecordBatch,
    i: usize,
    key: &mut Vec<u8>,
    row: &mut Vec<u8>,
) -> Result<()> {
    let values: Vec<ValueRef<'_>> = schema
        .columns()
        .iter()
        .zip(batch.columns())
        .map(|(column, array)| value_at(array, column.column_type, i))
        .collect();
    schema.encode(&values, key, row)
}

fn column_of<'b>(batch: &'b RecordBatch, column: &Column) -> Result<&'b ArrayRef> {
    let array = batch
        .column_by_name(&column.name)
        .ok_or_else(|| Error::invalid(format!("column \"{}\" is missing", column.name)))?;
    if *array.data_type() != column.column_type.arrow() {
        return Err(Error::invalid(format!(
            "column \"{}\" is of type {}, not {}",
            column.name,
            array.data_type(),
            column.column_type
        )));
    }
    Ok(array)
}
