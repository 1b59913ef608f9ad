//! Columns of Arrow batches as PostgreSQL values, in text or in binary, written straight into an output buffer.
//!
//! A [`Column`] is made once per batch; writing a value then is one match and no allocation for the common types.

use super::numeric::write_binary_numeric;
use super::types::{is_jsonb, wire_form, wire_type};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array,
    Decimal256Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, StringArray, StringViewArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use oribi_session::sql::SqlError;
use oribi_types::{ColumnType, ErrorKind, ValueRef, text};
use std::io::Write;

/// PostgreSQL counts days and microseconds from 2000-01-01.
pub const EPOCH_DAYS: i32 = 10_957;
pub const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// What the binary form of `jsonb` begins with; its text follows.
const JSONB_VERSION: u8 = 1;

/// How a value travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Binary,
}

impl Format {
    /// The format with a code of the protocol: 0 or 1.
    pub fn of_code(code: i16) -> Self {
        if code == 0 { Format::Text } else { Format::Binary }
    }
}

/// One column of a batch, ready to be written row by row.
pub struct Column {
    values: Values,
    nulls: Option<NullBuffer>,
    format: Format,
    jsonb: bool,
}

enum Values {
    Null,
    Bool(BooleanArray),
    Int16(Int16Array),
    Int32(Int32Array),
    Int64(Int64Array),
    Float(Float32Array),
    Double(Float64Array),
    Decimal(Decimal128Array),
    WideDecimal(Decimal256Array),
    String(StringArray),
    StringView(StringViewArray),
    Binary(BinaryArray),
    BinaryView(BinaryViewArray),
    Uuid(FixedSizeBinaryArray),
    Date(Date32Array),
    Time(Time64MicrosecondArray),
    Timestamp(TimestampMicrosecondArray),
    TimestampUtc(TimestampMicrosecondArray),
    Interval(IntervalMonthDayNanoArray),
    List {
        offsets: OffsetBuffer<i32>,
        items: Box<Column>,
        element_oid: u32,
    },
    /// Written as Arrow displays it.
    Other(ArrayRef),
}

impl Column {
    /// `described` is the field of which the client was told the wire type; an array of another type is cast.
    ///
    /// # Errors
    /// `Invalid` for values that the wire form cannot hold, such as a timestamp in seconds beyond 64 bits of
    /// microseconds.
    pub fn new(array: &ArrayRef, described: &Field, format: Format) -> Result<Self, SqlError> {
        let form = wire_form(described.data_type());
        let array = if *array.data_type() == form {
            array.clone()
        } else {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(array, &form, &options)
                .map_err(|e| SqlError::new(ErrorKind::Invalid, e.to_string()).with_sqlstate("22003"))?
        };
        let values = match &form {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Bool(array.as_boolean().clone()),
            DataType::Int16 => Values::Int16(array.as_primitive().clone()),
            DataType::Int32 => Values::Int32(array.as_primitive().clone()),
            DataType::Int64 => Values::Int64(array.as_primitive().clone()),
            DataType::Float32 => Values::Float(array.as_primitive().clone()),
            DataType::Float64 => Values::Double(array.as_primitive().clone()),
            DataType::Decimal128(..) => Values::Decimal(array.as_primitive().clone()),
            DataType::Decimal256(..) => Values::WideDecimal(array.as_primitive().clone()),
            DataType::Utf8 => Values::String(array.as_string().clone()),
            DataType::Utf8View => Values::StringView(array.as_string_view().clone()),
            DataType::Binary => Values::Binary(array.as_binary().clone()),
            DataType::BinaryView => Values::BinaryView(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(_) => Values::Uuid(array.as_fixed_size_binary().clone()),
            DataType::Date32 => Values::Date(array.as_primitive().clone()),
            DataType::Time64(_) => Values::Time(array.as_primitive().clone()),
            DataType::Timestamp(_, None) => Values::Timestamp(array.as_primitive().clone()),
            DataType::Timestamp(_, Some(_)) => Values::TimestampUtc(array.as_primitive().clone()),
            DataType::Interval(_) => Values::Interval(array.as_primitive().clone()),
            DataType::List(item) if !matches!(item.data_type(), DataType::List(_)) => {
                let list = array.as_list::<i32>();
                // What an array is marked as, its elements are.
                let item = item.as_ref().clone().with_metadata(described.metadata().clone());
                Values::List {
                    offsets: list.offsets().clone(),
                    items: Box::new(Column::new(list.values(), &item, format)?),
                    element_oid: wire_type(&item).oid,
                }
            }
            _ => Values::Other(array.clone()),
        };
        Ok(Column { values, nulls: array.nulls().cloned(), format, jsonb: is_jsonb(described) })
    }

    pub fn is_null(&self, row: usize) -> bool {
        matches!(self.values, Values::Null) || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Appends the value of `row` with its length in front; -1 for null.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_with_length(&self, row: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
        if self.is_null(row) {
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            return Ok(());
        }
        with_length(out, |out| self.write(row, out))
    }

    /// Appends the value of `row`, which is not null.
    ///
    /// # Errors
    /// `Internal` for a value that Arrow cannot display.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
        match self.format {
            Format::Text => self.write_text(row, out),
            Format::Binary => self.write_binary(row, out),
        }
    }

    fn write_text(&self, row: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
        let typed =
            |value: ValueRef<'_>, column_type, out: &mut Vec<u8>| text::format(value, column_type, out);
        match &self.values {
            Values::Null => {}
            Values::Bool(a) => out.push(if a.value(row) { b't' } else { b'f' }),
            Values::Int16(a) => write_integer(a.value(row), out),
            Values::Int32(a) => write_integer(a.value(row), out),
            Values::Int64(a) => write_integer(a.value(row), out),
            Values::Float(a) => typed(ValueRef::Float(a.value(row)), ColumnType::Float, out),
            Values::Double(a) => typed(ValueRef::Double(a.value(row)), ColumnType::Double, out),
            Values::Decimal(a) => {
                let column_type = ColumnType::Decimal { precision: a.precision(), scale: a.scale() };
                typed(ValueRef::Decimal(a.value(row)), column_type, out);
            }
            Values::WideDecimal(a) => out.extend_from_slice(a.value_as_string(row).as_bytes()),
            Values::String(a) => out.extend_from_slice(a.value(row).as_bytes()),
            Values::StringView(a) => out.extend_from_slice(a.value(row).as_bytes()),
            Values::Binary(a) => typed(ValueRef::Binary(a.value(row)), ColumnType::Binary, out),
            Values::BinaryView(a) => typed(ValueRef::Binary(a.value(row)), ColumnType::Binary, out),
            Values::Uuid(a) => {
                let bytes = a.value(row).try_into().expect("the wire form of other widths is binary");
                typed(ValueRef::Uuid(bytes), ColumnType::Uuid, out);
            }
            Values::Date(a) => typed(ValueRef::Date(a.value(row)), ColumnType::Date, out),
            Values::Time(a) => write_time(a.value(row), out),
            Values::Timestamp(a) => typed(ValueRef::Timestamp(a.value(row)), ColumnType::Timestamp, out),
            Values::TimestampUtc(a) => write_timestamp_utc(a.value(row), out),
            Values::Interval(a) => write_interval(a.value(row), out),
            Values::List { offsets, items, .. } => return write_text_array(items, range(offsets, row), out),
            Values::Other(a) => {
                let options = FormatOptions::new().with_null("NULL").with_display_error(false);
                let formatter = ArrayFormatter::try_new(a.as_ref(), &options).map_err(undisplayable)?;
                out.extend_from_slice(
                    formatter.value(row).try_to_string().map_err(undisplayable)?.as_bytes(),
                );
            }
        }
        Ok(())
    }

    fn write_binary(&self, row: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
        match &self.values {
            Values::Bool(a) => out.push(u8::from(a.value(row))),
            Values::Int16(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Values::Int32(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Values::Int64(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Values::Float(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Values::Double(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Values::Decimal(a) => {
                let mut digits = itoa::Buffer::new();
                write_binary_numeric(digits.format(a.value(row)), a.scale(), out);
            }
            Values::WideDecimal(a) => write_binary_numeric(&a.value(row).to_string(), a.scale(), out),
            Values::Binary(a) => out.extend_from_slice(a.value(row)),
            Values::BinaryView(a) => out.extend_from_slice(a.value(row)),
            Values::Uuid(a) => out.extend_from_slice(a.value(row)),
            Values::Date(a) => out.extend_from_slice(&since_2000(a.value(row), EPOCH_DAYS).to_be_bytes()),
            Values::Time(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Values::Timestamp(a) | Values::TimestampUtc(a) => {
                let micros = a.value(row);
                let shifted = if micros == i64::MAX { micros } else { micros.saturating_sub(EPOCH_MICROS) };
                out.extend_from_slice(&shifted.to_be_bytes());
            }
            Values::Interval(a) => {
                let interval = a.value(row);
                out.extend_from_slice(&(interval.nanoseconds / 1000).to_be_bytes());
                out.extend_from_slice(&interval.days.to_be_bytes());
                out.extend_from_slice(&interval.months.to_be_bytes());
            }
            Values::List { offsets, items, element_oid } => {
                return write_binary_array(items, *element_oid, range(offsets, row), out);
            }
            // Text and JSON look the same in both formats, and what else there is travels as text.
            Values::Null | Values::String(_) | Values::StringView(_) | Values::Other(_) => {
                out.extend(self.jsonb.then_some(JSONB_VERSION));
                return self.write_text(row, out);
            }
        }
        Ok(())
    }
}

/// Appends what `write` appends, with its length in four bytes before it.
pub fn with_length<E>(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out)?;
    let length = i32::try_from(out.len() - at - 4).unwrap_or(i32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn undisplayable(error: arrow::error::ArrowError) -> SqlError {
    SqlError::new(ErrorKind::Internal, error.to_string())
}

/// Days since 2000; the infinities stay themselves.
pub fn since_2000(days: i32, epoch: i32) -> i32 {
    if days == i32::MAX { days } else { days.saturating_sub(epoch) }
}

fn range(offsets: &OffsetBuffer<i32>, row: usize) -> std::ops::Range<usize> {
    offsets[row] as usize..offsets[row + 1] as usize
}

pub fn write_integer(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn write_timestamp_utc(micros: i64, out: &mut Vec<u8>) {
    let start = out.len();
    text::format(ValueRef::Timestamp(micros), ColumnType::Timestamp, out);
    let era = out[start..].ends_with(b" BC");
    if !out[start..].ends_with(b"infinity") {
        let at = if era { out.len() - 3 } else { out.len() };
        out.splice(at..at, *b"+00");
    }
}

/// Microseconds as `[-]HH:MM:SS[.ffffff]`.
fn write_time(micros: i64, out: &mut Vec<u8>) {
    let (sign, total) = (if micros < 0 { "-" } else { "" }, micros.unsigned_abs());
    let (seconds, fraction) = (total / 1_000_000, total % 1_000_000);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    write!(out, "{sign}{hours:02}:{minutes:02}:{:02}", seconds % 60)
        .expect("a vector takes all that is written");
    if fraction > 0 {
        write!(out, ".{fraction:06}").expect("a vector takes all that is written");
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

fn write_interval(interval: IntervalMonthDayNano, out: &mut Vec<u8>) {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    text::Interval { months, days, micros: nanoseconds / 1000 }.format(out);
}

/// `{1,NULL,"two words"}`.
fn write_text_array(items: &Column, rows: std::ops::Range<usize>, out: &mut Vec<u8>) -> Result<(), SqlError> {
    out.push(b'{');
    for row in rows.clone() {
        if row > rows.start {
            out.push(b',');
        }
        if items.is_null(row) {
            out.extend_from_slice(b"NULL");
            continue;
        }
        let start = out.len();
        items.write(row, out)?;
        quote_element(start, out);
    }
    out.push(b'}');
    Ok(())
}

/// Quotes the array element that begins at `start` if it could be read as anything but itself.
fn quote_element(start: usize, out: &mut Vec<u8>) {
    let element = &out[start..];
    let special = |b: &u8| matches!(b, b'{' | b'}' | b',' | b'"' | b'\\') || b.is_ascii_whitespace();
    if !element.is_empty() && !element.iter().any(special) && !element.eq_ignore_ascii_case(b"null") {
        return;
    }
    let element = out.split_off(start);
    out.push(b'"');
    for byte in element {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// Dimensions, whether there are nulls, element type; per dimension its length and first index; the elements.
fn write_binary_array(
    items: &Column,
    element_oid: u32,
    rows: std::ops::Range<usize>,
    out: &mut Vec<u8>,
) -> Result<(), SqlError> {
    let nulls = rows.clone().any(|row| items.is_null(row));
    out.extend_from_slice(&i32::from(!rows.is_empty()).to_be_bytes());
    out.extend_from_slice(&i32::from(nulls).to_be_bytes());
    out.extend_from_slice(&element_oid.to_be_bytes());
    if rows.is_empty() {
        return Ok(());
    }
    out.extend_from_slice(&(rows.len() as i32).to_be_bytes());
    out.extend_from_slice(&1_i32.to_be_bytes());
    rows.into_iter().try_for_each(|row| items.write_with_length(row, out))
}

#[cfg(test)]
mod tests;
