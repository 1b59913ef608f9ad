//! Columns of results as clients get them, and columns that clients send as the SQL engine takes them.
//!
//! A result is in Arrow already. What is brought to another form are types that not every client reads, and those that SQL has none of: they
//! become the type that the PostgreSQL door names for them.

use crate::status::{invalid, unsupported};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, IntervalUnit, Schema, SchemaRef, TimeUnit, TimestampNanosecondType};
use oribi_session::sql::SqlError;
use oribi_types::ColumnType;
use oribi_types::schema::TYPE_METADATA;
use std::collections::HashMap;
use std::sync::Arc;

/// The keys under which Arrow's fields name a canonical extension type, and those that results have.
const EXTENSION_NAME: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";
const JSON: &str = "arrow.json";
const UUID: &str = "arrow.uuid";

/// The type in which a column of type `arrow` is sent.
fn sent_type(arrow: &DataType) -> DataType {
    use DataType as D;
    match arrow {
        D::Int8 => D::Int8,
        D::UInt8 => D::Int16,
        D::UInt16 => D::Int32,
        D::UInt32 => D::Int64,
        D::UInt64 => D::Decimal128(20, 0),
        D::Float16 => D::Float32,
        D::Decimal32(p, s) | D::Decimal64(p, s) => D::Decimal128(*p, *s),
        D::Utf8View => D::Utf8,
        D::BinaryView => D::Binary,
        D::FixedSizeBinary(n) if *n != 16 => D::Binary,
        D::Date64 => D::Date32,
        D::Timestamp(_, zone) => D::Timestamp(TimeUnit::Microsecond, zone.as_ref().map(|_| "UTC".into())),
        D::Time32(_) | D::Time64(_) => D::Time64(TimeUnit::Microsecond),
        D::Interval(_) | D::Duration(_) => D::Interval(IntervalUnit::MonthDayNano),
        D::Dictionary(_, values) => sent_type(values),
        D::RunEndEncoded(_, values) => sent_type(values.data_type()),
        D::List(item)
        | D::LargeList(item)
        | D::ListView(item)
        | D::LargeListView(item)
        | D::FixedSizeList(item, _) => {
            let element = sent_type(item.data_type());
            D::List(Arc::new(Field::new(item.name(), element, true)))
        }
        other => other.clone(),
    }
}

fn sent_field(field: &Field) -> Field {
    let sent = Field::new(field.name(), sent_type(field.data_type()), true);
    let is_json = field.metadata().get(TYPE_METADATA).is_some_and(|name| name == "json");
    let extension = match sent.data_type() {
        DataType::Utf8 if is_json => JSON,
        DataType::FixedSizeBinary(16) => UUID,
        _ => return sent,
    };
    let named = [(EXTENSION_NAME, extension), (EXTENSION_METADATA, "")];
    sent.with_metadata(named.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
}

/// The columns that a client gets of a result with these.
pub fn sent_schema(columns: Option<&SchemaRef>) -> SchemaRef {
    let fields = columns.into_iter().flat_map(|columns| columns.fields().iter());
    Arc::new(Schema::new(fields.map(|field| sent_field(field)).collect::<Vec<_>>()))
}

/// A batch of a result with the columns that its client was told of.
///
/// # Errors
/// `Internal` if it has another number of them, 22003 for a value that the type it is sent in does not hold.
pub fn sent_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, SqlError> {
    if batch.num_columns() != schema.fields().len() {
        let (described, come) = (schema.fields().len(), batch.num_columns());
        let message = format!("a result of {come} columns was described with {described}");
        return Err(SqlError::new(oribi_types::ErrorKind::Internal, message));
    }
    let columns = batch.columns().iter().zip(schema.fields());
    let columns =
        columns.map(|(array, field)| cast(array, field.data_type())).collect::<Result<Vec<_>, _>>()?;
    with_rows(schema, columns, batch.num_rows())
}

fn with_rows(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, SqlError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(|error| oribi_types::Error::from(error).into())
}

fn cast(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, SqlError> {
    if array.data_type() == wanted {
        return Ok(array.clone());
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, wanted, &options)
        .map_err(|error| invalid(error.to_string()).with_sqlstate("22003"))
}

/// The type of a column that a client has sent, as SQL has it.
///
/// # Errors
/// 0A000 for a type of which there are no columns.
pub fn column_type(field: &Field) -> Result<ColumnType, SqlError> {
    let named = |error: oribi_types::Error| error.context(format!("column \"{}\"", field.name()));
    let column_type = ColumnType::from_arrow(field.data_type()).map_err(named)?;
    let is_json = field.metadata().get(EXTENSION_NAME).is_some_and(|name| name == JSON);
    Ok(if column_type == ColumnType::String && is_json { ColumnType::Json } else { column_type })
}

/// The field of a parameter, from which clients choose what they send.
pub fn parameter_field(number: usize, column_type: ColumnType, is_moment: bool) -> Field {
    let metadata = match column_type {
        ColumnType::Json => HashMap::from([(TYPE_METADATA.to_owned(), "json".to_owned())]),
        _ => HashMap::new(),
    };
    let arrow = match column_type.arrow() {
        DataType::Timestamp(unit, _) if is_moment => DataType::Timestamp(unit, Some("UTC".into())),
        arrow => arrow,
    };
    sent_field(&Field::new(format!("${}", number + 1), arrow, true).with_metadata(metadata))
}

/// A column that a client has sent in a form that the SQL engine assigns: without dictionaries, moments in microseconds and in the zone of
/// the session.
///
/// # Errors
/// 0A000 for what is nested, 22008 for a moment beyond those that there are.
pub fn received(array: &ArrayRef, zone: Option<&str>) -> Result<ArrayRef, SqlError> {
    let with_zone = |declared: &Option<Arc<str>>| declared.as_ref().map(|_| Arc::from(zone.unwrap_or("UTC")));
    match array.data_type() {
        // How long it is then, `lengths` has looked at.
        DataType::Dictionary(_, values) if !values.is_nested() => received(&cast(array, values)?, zone),
        DataType::Timestamp(TimeUnit::Nanosecond, declared) => {
            let nanos = array.as_primitive::<TimestampNanosecondType>();
            // As a text with more digits is read: to the nearest, halves away from what comes before.
            let micros: TimestampMicrosecondArray =
                nanos.unary(|nanos| nanos.div_euclid(1000) + i64::from(nanos.rem_euclid(1000) >= 500));
            Ok(Arc::new(micros.with_timezone_opt(with_zone(declared))))
        }
        DataType::Timestamp(_, declared) => {
            let micros = DataType::Timestamp(TimeUnit::Microsecond, declared.clone());
            let micros = cast(array, &micros).map_err(|error| error.with_sqlstate("22008"))?;
            let micros = micros.as_primitive::<arrow::datatypes::TimestampMicrosecondType>().clone();
            Ok(Arc::new(micros.with_timezone_opt(with_zone(declared))))
        }
        DataType::RunEndEncoded(..) | DataType::Union(..) => {
            Err(unsupported(format!("a column of type {}", array.data_type())))
        }
        nested if nested.is_nested() => Err(unsupported(format!("a column of type {nested}"))),
        _ => Ok(array.clone()),
    }
}

/// A batch whose columns are [`received`].
///
/// # Errors
/// As that.
pub fn received_batch(batch: &RecordBatch, zone: Option<&str>) -> Result<RecordBatch, SqlError> {
    let columns = batch.columns().iter().map(|array| received(array, zone)).collect::<Result<Vec<_>, _>>()?;
    let fields = batch.schema();
    let fields = fields.fields().iter().zip(&columns);
    let fields: Vec<_> =
        fields.map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true)).collect();
    with_rows(&Arc::new(Schema::new(fields)), columns, batch.num_rows())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{DictionaryArray, Int64Array, StringViewArray, TimestampNanosecondArray, UInt64Array};
    use arrow::datatypes::Int8Type;

    #[test]
    fn results_have_types_that_clients_read() {
        let json = HashMap::from([(TYPE_METADATA.to_owned(), "json".to_owned())]);
        let columns = Arc::new(Schema::new(vec![
            Field::new("n", DataType::UInt64, false),
            Field::new("j", DataType::Utf8View, true).with_metadata(json),
            Field::new("u", DataType::FixedSizeBinary(16), true),
        ]));
        let sent = sent_schema(Some(&columns));
        let types: Vec<_> = sent.fields().iter().map(|field| field.data_type().clone()).collect();
        assert_eq!(types, [DataType::Decimal128(20, 0), DataType::Utf8, DataType::FixedSizeBinary(16)]);
        let extension = |n: usize| sent.field(n).metadata().get(EXTENSION_NAME).map(String::as_str);
        assert_eq!([extension(0), extension(1), extension(2)], [None, Some(JSON), Some(UUID)]);
        let uuids = arrow::array::new_null_array(&DataType::FixedSizeBinary(16), 1);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(vec![u64::MAX])),
            Arc::new(StringViewArray::from(vec!["{}"])),
            uuids,
        ];
        let batch = RecordBatch::try_from_iter(["n", "j", "u"].into_iter().zip(columns)).unwrap();
        let batch = sent_batch(&batch, &sent).unwrap();
        assert_eq!(
            batch.column(0).as_primitive::<arrow::datatypes::Decimal128Type>().value(0),
            u64::MAX.into()
        );
        assert!(sent_batch(&batch, &sent_schema(None)).is_err());
    }

    #[test]
    fn what_clients_send_is_what_the_engine_assigns() {
        let nanos: ArrayRef =
            Arc::new(TimestampNanosecondArray::from(vec![1499, 1500, -1501, -1499]).with_timezone("+05:30"));
        let micros = received(&nanos, Some("Europe/Berlin")).unwrap();
        assert_eq!(
            micros.data_type(),
            &DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into()))
        );
        let values = micros.as_primitive::<arrow::datatypes::TimestampMicrosecondType>();
        assert_eq!(values.values().to_vec(), [1, 2, -2, -1]);
        let words: DictionaryArray<Int8Type> = ["a", "b", "a"].into_iter().collect();
        let words = received(&(Arc::new(words) as ArrayRef), None).unwrap();
        assert_eq!(words.data_type(), &DataType::Utf8);
        let nested: ArrayRef = Arc::new(arrow::array::StructArray::from(vec![(
            Arc::new(Field::new("a", DataType::Int64, true)),
            Arc::new(Int64Array::from(vec![1])) as ArrayRef,
        )]));
        assert_eq!(received(&nested, None).unwrap_err().sqlstate(), "0A000");
    }
}
