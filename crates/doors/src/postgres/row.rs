//! A row of single values as a `DataRow` message, appended to an output buffer.
//!
//! Point reads have no batch: their values come from the row in memory or on disk and are written from there. The bytes
//! are those that [`Column`](super::encode::Column) writes for the same values.

use super::encode::{EPOCH_DAYS, EPOCH_MICROS, Format, since_2000, with_length, write_integer};
use super::error::column_count;
use super::numeric::write_binary_numeric;
use arrow::datatypes::{DataType, Schema};
use oribi_session::sql::SqlError;
use oribi_types::{ColumnType, ErrorKind, ValueRef, text};
use pgwire::messages::data::MESSAGE_TYPE_BYTE_DATA_ROW;

/// Appends a `DataRow` of `values`, described by `columns`, each in its format.
///
/// # Errors
/// `Internal` if the three are not equally many, `TooLarge` beyond the protocol's 2 GiB; nothing is appended then.
pub fn put_data_row(
    values: &[ValueRef<'_>],
    columns: &Schema,
    formats: &[Format],
    out: &mut Vec<u8>,
) -> Result<(), SqlError> {
    if values.len() != columns.fields().len() || values.len() != formats.len() {
        let message =
            format!("a row of {} columns was described with {}", values.len(), columns.fields().len());
        return Err(SqlError::new(ErrorKind::Internal, message));
    }
    let count = column_count(values.len())?;
    let start = out.len();
    out.extend_from_slice(&[MESSAGE_TYPE_BYTE_DATA_ROW, 0, 0, 0, 0]);
    out.extend_from_slice(&count.to_be_bytes());
    for ((value, field), format) in values.iter().zip(columns.fields()).zip(formats) {
        put_value(*value, field.data_type(), *format, out);
    }
    close_frame(start, out)
}

/// Writes the length of the frame that begins at `start` of `out` and ends where it ends.
///
/// # Errors
/// `TooLarge` beyond the protocol's 2 GiB; the frame is taken away then.
pub fn close_frame(start: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let Ok(length) = i32::try_from(out.len() - start - 1) else {
        out.truncate(start);
        return Err(SqlError::new(ErrorKind::TooLarge, "a row is larger than the protocol's 2 GiB"));
    };
    out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Appends a value with its length in front; -1 for null.
fn put_value(value: ValueRef<'_>, described: &DataType, format: Format, out: &mut Vec<u8>) {
    let variable = match value {
        ValueRef::Null => return out.extend_from_slice(&(-1_i32).to_be_bytes()),
        ValueRef::String(v) | ValueRef::Json(v) => Some(v.as_bytes()),
        ValueRef::Binary(v) if format == Format::Binary => Some(v),
        _ => None,
    };
    if let Some(bytes) = variable {
        // What does not fit is refused with the whole row.
        out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        return out.extend_from_slice(bytes);
    }
    let written = with_length(out, |out| {
        match format {
            Format::Text => write_text(value, described, out),
            Format::Binary => write_binary(value, described, out),
        }
        Ok::<(), std::convert::Infallible>(())
    });
    let Ok(()) = written;
}

fn write_text(value: ValueRef<'_>, described: &DataType, out: &mut Vec<u8>) {
    match value {
        ValueRef::Bool(v) => out.push(if v { b't' } else { b'f' }),
        ValueRef::Int8(v) => write_integer(v, out),
        ValueRef::Int16(v) => write_integer(v, out),
        ValueRef::Int32(v) => write_integer(v, out),
        ValueRef::Int64(v) => write_integer(v, out),
        ValueRef::Decimal(_) => {
            let (precision, scale) = decimal(described);
            text::format(value, ColumnType::Decimal { precision, scale }, out);
        }
        // Of the others the value says all; the column's type is not asked.
        value => text::format(value, ColumnType::String, out),
    }
}

fn write_binary(value: ValueRef<'_>, described: &DataType, out: &mut Vec<u8>) {
    match value {
        ValueRef::Null => {}
        ValueRef::Bool(v) => out.push(u8::from(v)),
        ValueRef::Int8(v) => out.extend_from_slice(&i16::from(v).to_be_bytes()),
        ValueRef::Int16(v) => out.extend_from_slice(&v.to_be_bytes()),
        ValueRef::Int32(v) => out.extend_from_slice(&v.to_be_bytes()),
        ValueRef::Int64(v) => out.extend_from_slice(&v.to_be_bytes()),
        ValueRef::Float(v) => out.extend_from_slice(&v.to_be_bytes()),
        ValueRef::Double(v) => out.extend_from_slice(&v.to_be_bytes()),
        ValueRef::Decimal(v) => {
            let mut digits = itoa::Buffer::new();
            write_binary_numeric(digits.format(v), decimal(described).1, out);
        }
        ValueRef::String(v) | ValueRef::Json(v) => out.extend_from_slice(v.as_bytes()),
        ValueRef::Binary(v) => out.extend_from_slice(v),
        ValueRef::Uuid(v) => out.extend_from_slice(&v),
        ValueRef::Date(v) => out.extend_from_slice(&since_2000(v, EPOCH_DAYS).to_be_bytes()),
        ValueRef::Timestamp(v) => {
            let shifted = if v == i64::MAX { v } else { v.saturating_sub(EPOCH_MICROS) };
            out.extend_from_slice(&shifted.to_be_bytes());
        }
    }
}

fn decimal(described: &DataType) -> (u8, i8) {
    match described {
        DataType::Decimal128(precision, scale) => (*precision, *scale),
        _ => (38, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode::Column;
    use super::*;
    use arrow::datatypes::Field;
    use oribi_types::batch::ColumnBuilder;

    fn values() -> Vec<(ValueRef<'static>, ColumnType)> {
        let numeric = ColumnType::Decimal { precision: 15, scale: 2 };
        vec![
            (ValueRef::Bool(true), ColumnType::Bool),
            (ValueRef::Bool(false), ColumnType::Bool),
            (ValueRef::Int8(-128), ColumnType::Int8),
            (ValueRef::Int16(-2), ColumnType::Int16),
            (ValueRef::Int32(70_000), ColumnType::Int32),
            (ValueRef::Int64(i64::MIN), ColumnType::Int64),
            (ValueRef::Float(0.1), ColumnType::Float),
            (ValueRef::Float(f32::NAN), ColumnType::Float),
            (ValueRef::Double(-1e300), ColumnType::Double),
            (ValueRef::Double(f64::NEG_INFINITY), ColumnType::Double),
            (ValueRef::Decimal(-1_234_567), numeric),
            (ValueRef::Decimal(5), numeric),
            (ValueRef::Decimal(0), ColumnType::Decimal { precision: 38, scale: 0 }),
            (ValueRef::String("naïve \\ \0"), ColumnType::String),
            (ValueRef::String(""), ColumnType::String),
            (ValueRef::Binary(b"\x00\xff\\"), ColumnType::Binary),
            (ValueRef::Date(-1), ColumnType::Date),
            (ValueRef::Date(i32::MAX), ColumnType::Date),
            (ValueRef::Timestamp(1_500_000), ColumnType::Timestamp),
            (ValueRef::Timestamp(i64::MAX), ColumnType::Timestamp),
            (ValueRef::Timestamp(i64::MIN), ColumnType::Timestamp),
            (ValueRef::Uuid([7; 16]), ColumnType::Uuid),
            (ValueRef::Json("{\"a\": [1]}"), ColumnType::Json),
            (ValueRef::Null, ColumnType::Int64),
            (ValueRef::Null, numeric),
        ]
    }

    #[test]
    fn a_value_is_written_as_its_column_in_a_batch_would_be() {
        for (value, column_type) in values() {
            let mut builder = ColumnBuilder::new(column_type);
            builder.push(value);
            let array = builder.finish(column_type).unwrap();
            for format in [Format::Text, Format::Binary] {
                let (mut alone, mut batched) = (Vec::new(), Vec::new());
                put_value(value, &column_type.arrow(), format, &mut alone);
                let column =
                    Column::new(&array, &Field::new("c", column_type.arrow(), true), format).unwrap();
                column.write_with_length(0, &mut batched).unwrap();
                assert_eq!(alone, batched, "{value:?} of {column_type} in {format:?}");
            }
        }
    }

    #[test]
    fn a_row_states_its_length_and_the_number_of_its_columns() {
        let columns = Schema::new(vec![
            Field::new("a", DataType::Int16, true),
            Field::new("b", DataType::Utf8View, true),
        ]);
        let mut out = b"before".to_vec();
        let row = [ValueRef::Int16(7), ValueRef::Null];
        put_data_row(&row, &columns, &[Format::Binary, Format::Text], &mut out).unwrap();
        assert_eq!(&out[6..], b"D\x00\x00\x00\x10\x00\x02\x00\x00\x00\x02\x00\x07\xff\xff\xff\xff");
        assert!(put_data_row(&row[..1], &columns, &[Format::Text], &mut out).is_err());
    }
}
