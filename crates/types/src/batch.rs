//! Arrow batches: rows turned into columns, and back.

use crate::cells::Cells;
use crate::key::KeyDecoder;
use crate::schema::TS_COLUMN;
use crate::{
    Column, ColumnSource, ColumnType, Error, Result, RowLayout, RowRef, Schema, Timestamp, ValueRef,
};
use arrow::array::builder::{
    BinaryViewBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, FixedSizeBinaryBuilder,
    Float32Builder, Float64Builder, Int8Builder, Int16Builder, Int32Builder, Int64Builder, StringViewBuilder,
    TimestampMicrosecondBuilder, UInt64Builder,
};
use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes as at;
use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use smallvec::SmallVec;
use std::sync::Arc;

/// Parquet field id of the hidden [`TS_COLUMN`].
pub const TS_FIELD_ID: i32 = i32::MAX;

/// The hidden column that SSTables keep behind all others: the commit timestamp of each row.
pub fn ts_field() -> Field {
    Field::new(TS_COLUMN, DataType::UInt64, false)
}

/// Values that are added to a column by one copy.
const ROWS_AT_ONCE: usize = 64;

/// The longest key that is handed over as a number.
const KEY_NUMBER_BYTES: usize = size_of::<u64>();

/// A row as it is stored.
#[derive(Clone, Copy)]
pub struct EncodedRow<'a> {
    pub key: &'a [u8],
    pub row: &'a [u8],
    pub ts: Timestamp,
}

/// Builds a batch from encoded rows, for a projection of a table's columns.
pub struct BatchBuilder<'s> {
    schema: &'s Schema,
    /// Those of the projection, in its order.
    columns: Vec<Filling<'s>>,
    ts: Option<UInt64Builder>,
    arrow: SchemaRef,
    rows: usize,
    scratch: Vec<u8>,
}

/// A column that is being built.
struct Filling<'s> {
    column: &'s Column,
    builder: ColumnBuilder,
    source: Source<'s>,
}

/// Where its values stand.
enum Source<'s> {
    Key(KeyPlace),
    Slot(SlotPlace<'s>),
    CommitTimestamp,
}

/// A place in rows.
trait Place {
    /// The value of a row there. Inlined where the type is a constant, nothing looks at it for each row.
    ///
    /// # Errors
    /// `Corrupt` if there is none of the type.
    fn value<'b>(
        &'b self,
        column_type: ColumnType,
        row: &'b EncodedRow<'_>,
        scratch: &'b mut Vec<u8>,
    ) -> Result<ValueRef<'b>>;
}

/// A component of a key.
struct KeyPlace {
    /// Behind so many bytes …
    bytes: usize,
    /// … and these components, of which the first has no length of its own.
    behind: Vec<ColumnType>,
    is_last: bool,
}

impl KeyPlace {
    fn of(schema: &Schema, component: usize) -> Self {
        let before: Vec<ColumnType> = schema.key_columns().take(component).map(|c| c.column_type).collect();
        let of_known_length = before.iter().map_while(|t| t.fixed_width());
        let (count, bytes) = of_known_length.fold((0, 0), |(count, bytes), width| (count + 1, bytes + width));
        KeyPlace { bytes, behind: before[count..].to_vec(), is_last: component + 1 == schema.key().len() }
    }
}

impl Place for KeyPlace {
    #[inline(always)]
    fn value<'b>(
        &'b self,
        column_type: ColumnType,
        row: &'b EncodedRow<'_>,
        scratch: &'b mut Vec<u8>,
    ) -> Result<ValueRef<'b>> {
        let mut decoder = KeyDecoder::behind(row.key, self.bytes)?;
        for before in &self.behind {
            decoder.skip(*before, false)?;
        }
        decoder.next_as(column_type, self.is_last, scratch)
    }
}

/// A slot that all rows have.
struct SlotPlace<'s> {
    layout: &'s RowLayout,
    slot: usize,
}

impl Place for SlotPlace<'_> {
    #[inline(always)]
    fn value<'b>(
        &'b self,
        column_type: ColumnType,
        row: &'b EncodedRow<'_>,
        _: &'b mut Vec<u8>,
    ) -> Result<ValueRef<'b>> {
        Ok(RowRef::new(self.layout, row.row).get_as(column_type, self.slot))
    }
}

struct CommitTime;

impl Place for CommitTime {
    #[inline(always)]
    fn value<'b>(
        &'b self,
        _: ColumnType,
        row: &'b EncodedRow<'_>,
        _: &'b mut Vec<u8>,
    ) -> Result<ValueRef<'b>> {
        Ok(ValueRef::Int64(row.ts.0 as i64))
    }
}

impl<'s> BatchBuilder<'s> {
    /// A builder for the columns at the positions `projection`; with `ts`, the hidden [`TS_COLUMN`] stands last.
    pub fn new(schema: &'s Schema, projection: &[usize], ts: bool) -> Self {
        let filling = |position: &usize| {
            let column = &schema.columns()[*position];
            let source = match column.source {
                ColumnSource::Key(component) => Source::Key(KeyPlace::of(schema, usize::from(component))),
                ColumnSource::Slot(slot) => {
                    Source::Slot(SlotPlace { layout: schema.layout(), slot: usize::from(slot) })
                }
                ColumnSource::CommitTimestamp => Source::CommitTimestamp,
            };
            Filling { column, builder: ColumnBuilder::new(column.column_type), source }
        };
        let fields = projection.iter().map(|position| schema.arrow().fields()[*position].clone());
        let fields: Vec<FieldRef> = fields.chain(ts.then(|| Arc::new(ts_field()))).collect();
        BatchBuilder {
            schema,
            columns: projection.iter().map(filling).collect(),
            ts: ts.then(UInt64Builder::new),
            arrow: Arc::new(at::Schema::new(fields)),
            rows: 0,
            scratch: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// As [`extend`](Self::extend).
    pub fn push(&mut self, key: &[u8], row: &[u8], ts: Timestamp) -> Result<()> {
        self.extend(&[EncodedRow { key, row, ts }])
    }

    /// Adds rows, column by column: what a column is, is looked at once for all of them.
    ///
    /// # Errors
    /// `Corrupt` if a key does not decode. Then the builder is of no use any more.
    pub fn extend(&mut self, rows: &[EncodedRow<'_>]) -> Result<()> {
        for filling in &mut self.columns {
            filling.extend(self.schema, rows, &mut self.scratch)?;
        }
        if let Some(builder) = &mut self.ts {
            rows.iter().for_each(|row| builder.append_value(row.ts.0));
        }
        self.rows += rows.len();
        Ok(())
    }

    /// Adds rows of which only columns of the key are wanted. Their keys, of `len` bytes each, are these numbers: the last bytes of
    /// them, most significant first.
    ///
    /// # Errors
    /// As [`extend`](Self::extend).
    pub fn extend_keys(&mut self, keys: &[u64], len: usize) -> Result<()> {
        let rows = keys.chunks(ROWS_AT_ONCE);
        for filling in &mut self.columns {
            rows.clone()
                .try_for_each(|keys| filling.extend_keys(self.schema, keys, len, &mut self.scratch))?;
        }
        self.rows += keys.len();
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
            .map(|filling| filling.builder.finish(filling.column.column_type))
            .collect::<Result<Vec<ArrayRef>>>()?;
        if let Some(ts) = &mut self.ts {
            arrays.push(Arc::new(ts.finish()));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        Ok(RecordBatch::try_new_with_options(self.arrow.clone(), arrays, &options)?)
    }
}

impl Filling<'_> {
    fn extend_keys(
        &mut self,
        schema: &Schema,
        keys: &[u64],
        len: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        // The whole key, as it is stored: its order is that of unsigned numbers.
        if let (ColumnBuilder::Int64(builder), KEY_NUMBER_BYTES) = (&mut self.builder, len) {
            let values: SmallVec<[i64; ROWS_AT_ONCE]> =
                keys.iter().map(|key| (key ^ 1 << 63) as i64).collect();
            builder.append_slice(&values);
            return Ok(());
        }
        let keys: SmallVec<[_; ROWS_AT_ONCE]> = keys.iter().map(|key| key.to_be_bytes()).collect();
        let rows: SmallVec<[EncodedRow<'_>; ROWS_AT_ONCE]> = keys
            .iter()
            .map(|key| EncodedRow { key: &key[KEY_NUMBER_BYTES - len..], row: &[], ts: Timestamp::MIN })
            .collect();
        self.extend(schema, &rows, scratch)
    }

    fn extend(&mut self, schema: &Schema, rows: &[EncodedRow<'_>], scratch: &mut Vec<u8>) -> Result<()> {
        let builder = &mut self.builder;
        match &self.source {
            Source::Key(place) => builder.extend(rows, place, scratch),
            Source::CommitTimestamp => builder.extend(rows, &CommitTime, scratch),
            Source::Slot(place @ SlotPlace { layout, slot }) => {
                if rows.iter().all(|row| RowRef::new(layout, row.row).has(*slot)) {
                    return builder.extend(rows, place, scratch);
                }
                for row in rows {
                    let row = RowRef::new(layout, row.row);
                    builder.push(schema.value_in(self.column, *slot as u16, row));
                }
                Ok(())
            }
        }
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

    /// Adds the values of `rows` at a place. Texts of JSON are asked for as strings.
    fn extend(&mut self, rows: &[EncodedRow<'_>], place: &impl Place, scratch: &mut Vec<u8>) -> Result<()> {
        macro_rules! each {
            ($builder:expr, $variant:ident, $column_type:expr) => {
                for row in rows {
                    match place.value($column_type, row, scratch)? {
                        ValueRef::$variant(v) => $builder.append_value(v),
                        _ => $builder.append_null(),
                    }
                }
            };
        }
        // As a rule none is null, and then all are added by one copy.
        macro_rules! numbers {
            ($builder:expr, $variant:ident, $column_type:expr) => {
                for rows in rows.chunks(ROWS_AT_ONCE) {
                    let mut values: SmallVec<[_; ROWS_AT_ONCE]> = SmallVec::new();
                    for row in rows {
                        match place.value($column_type, row, scratch)? {
                            ValueRef::$variant(v) => values.push(v),
                            _ => break,
                        }
                    }
                    $builder.append_slice(&values);
                    for row in &rows[values.len()..] {
                        match place.value($column_type, row, scratch)? {
                            ValueRef::$variant(v) => $builder.append_value(v),
                            _ => $builder.append_null(),
                        }
                    }
                }
            };
        }
        const DECIMAL: ColumnType = ColumnType::Decimal { precision: 0, scale: 0 };
        match self {
            ColumnBuilder::Bool(b) => each!(b, Bool, ColumnType::Bool),
            ColumnBuilder::Int8(b) => numbers!(b, Int8, ColumnType::Int8),
            ColumnBuilder::Int16(b) => numbers!(b, Int16, ColumnType::Int16),
            ColumnBuilder::Int32(b) => numbers!(b, Int32, ColumnType::Int32),
            ColumnBuilder::Int64(b) => numbers!(b, Int64, ColumnType::Int64),
            ColumnBuilder::Float(b) => numbers!(b, Float, ColumnType::Float),
            ColumnBuilder::Double(b) => numbers!(b, Double, ColumnType::Double),
            ColumnBuilder::Decimal(b) => numbers!(b, Decimal, DECIMAL),
            ColumnBuilder::Text(b) => each!(b, String, ColumnType::String),
            ColumnBuilder::Binary(b) => each!(b, Binary, ColumnType::Binary),
            ColumnBuilder::Date(b) => numbers!(b, Date, ColumnType::Date),
            ColumnBuilder::Timestamp(b) => numbers!(b, Timestamp, ColumnType::Timestamp),
            // Seldom, and the same for each.
            ColumnBuilder::Uuid(_) => {
                for row in rows {
                    self.push(place.value(ColumnType::Uuid, row, scratch)?);
                }
            }
        }
        Ok(())
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
