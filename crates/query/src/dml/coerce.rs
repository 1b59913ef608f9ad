//! Values of one type put into a column of another, as PostgreSQL's assignment casts do.
//!
//! Text is parsed as the column's literals are; numbers go to other numbers when they fit, rounded to the nearest; any
//! scalar becomes text. What PostgreSQL would not assign (a number to a boolean) is refused.

use crate::functions;
use crate::number;
use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, TimestampMicrosecondArray, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Float64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::common::ScalarValue;
use oribi_session::sql::{SqlError, TimeZone};
use oribi_types::batch::{ColumnBuilder, value_at};
use oribi_types::cells::Cells;
use oribi_types::{Column, ColumnType, ErrorKind, Value, ValueRef, text};
use std::sync::Arc;

/// `array` with the Arrow type of `column`.
///
/// # Errors
/// `Invalid`: 42804 for a type that is not assigned to the column's, 22P02 for text that is no such literal, 22003 for
/// a number out of range.
pub(crate) fn coerce(array: &ArrayRef, column: &Column) -> Result<ArrayRef, SqlError> {
    let assigned = assign(array, column)?;
    // What was computed may be beyond its type: 39 digits of a numeric(38,0) are a value to Arrow.
    let limits = Cells::of(&assigned, column.column_type).check_limits(column);
    limits.map_err(|e| SqlError::from(e).with_sqlstate("22003"))?;
    Ok(assigned)
}

fn assign(array: &ArrayRef, column: &Column) -> Result<ArrayRef, SqlError> {
    let (from, to) = (array.data_type(), column.column_type);
    let wanted = to.arrow();
    if from == &wanted && to != ColumnType::Json {
        return Ok(Arc::clone(array));
    }
    if from == &DataType::Null {
        return Ok(new_null_array(&wanted, array.len()));
    }
    if is_text(from) {
        let strings = cast(array, &DataType::Utf8View, to)?;
        return if to == ColumnType::String { Ok(strings) } else { parse_all(&strings, column) };
    }
    if !is_assignable(from, to) {
        return Err(SqlError::new(
            ErrorKind::Invalid,
            format!(
                "column \"{}\" is of type {to} but the expression is of type {}",
                column.name,
                name(from)
            ),
        )
        .with_sqlstate("42804")
        .with_hint("a cast is needed"));
    }
    if to == ColumnType::String {
        return cast(&cast(array, &DataType::Utf8, to)?, &wanted, to);
    }
    let converted = match to {
        ColumnType::Date | ColumnType::Timestamp => moments(array, to),
        _ => cast(&rounded(array, to)?, &wanted, to),
    };
    converted.map_err(|mut e| {
        e.error = e.error.context(format!("column \"{}\"", column.name));
        e
    })
}

/// A value of type `from` as one of `column`'s type.
///
/// # Errors
/// As [`coerce`].
pub(crate) fn convert(value: Value, from: ColumnType, column: &Column) -> Result<Value, SqlError> {
    if value.is_null() || (from == column.column_type && value.as_ref().fits(from)) {
        return Ok(value);
    }
    let array = coerce(&one(value.as_ref(), from)?, column)?;
    Ok(value_at(&array, column.column_type, 0).to_owned())
}

/// A parameter as DataFusion takes it.
///
/// # Errors
/// `Invalid` if the value is not of `column_type`.
pub(crate) fn scalar(value: ValueRef<'_>, column_type: ColumnType) -> Result<ScalarValue, SqlError> {
    ScalarValue::try_from_array(&one(value, column_type)?, 0).map_err(crate::error::sql_error)
}

fn one(value: ValueRef<'_>, column_type: ColumnType) -> Result<ArrayRef, SqlError> {
    if !value.fits(column_type) {
        return Err(SqlError::new(ErrorKind::Invalid, format!("a parameter is not of type {column_type}")));
    }
    let mut builder = ColumnBuilder::new(column_type);
    builder.push(value);
    Ok(builder.finish(column_type)?)
}

/// The literal `text` as a value of `column`.
///
/// # Errors
/// As [`parse_text`].
pub(crate) fn parse(text: &str, column: &Column) -> Result<Value, SqlError> {
    parse_text(text, column.column_type).map_err(|mut e| {
        e.error = e.error.context(format!("column \"{}\"", column.name));
        e
    })
}

/// The literal `text` as a value of a type.
///
/// # Errors
/// `Invalid`: 22P02, 22007 for dates and times, 22003 for a number out of range.
pub(crate) fn parse_text(text: &str, column_type: ColumnType) -> Result<Value, SqlError> {
    text::parse_sql(column_type, text).map_err(|e| {
        if e.kind() == ErrorKind::Unsupported {
            return SqlError::from(e);
        }
        let state = match column_type {
            _ if e.kind() == ErrorKind::Unsupported => return SqlError::from(e),
            ColumnType::Date | ColumnType::Timestamp => "22007",
            t if is_number(t) && text.trim().parse::<f64>().is_ok() => "22003",
            _ => "22P02",
        };
        SqlError::from(e).with_sqlstate(state)
    })
}

fn parse_all(strings: &ArrayRef, column: &Column) -> Result<ArrayRef, SqlError> {
    read_all(strings, column.column_type).map_err(|mut e| {
        e.error = e.error.context(format!("column \"{}\"", column.name));
        e
    })
}

/// Texts as values of a type.
///
/// # Errors
/// As [`parse_text`].
pub(crate) fn read_all(texts: &ArrayRef, column_type: ColumnType) -> Result<ArrayRef, SqlError> {
    let texts = cast(texts, &DataType::Utf8View, ColumnType::String)?;
    let mut builder = ColumnBuilder::new(column_type);
    for text in texts.as_string_view() {
        match text {
            Some(text) => builder.push(parse_text(text, column_type)?.as_ref()),
            None => builder.push(ValueRef::Null),
        }
    }
    Ok(builder.finish(column_type)?)
}

/// What a type is called: Arrow spells out all that is in it.
fn name(arrow: &DataType) -> String {
    match ColumnType::from_arrow(arrow) {
        Ok(column_type) => column_type.to_string(),
        Err(_) => arrow.to_string().split(['(', ' ']).next().unwrap_or_default().to_lowercase(),
    }
}

fn is_text(arrow: &DataType) -> bool {
    match arrow {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, value) => is_text(value),
        _ => false,
    }
}

fn is_number(column_type: ColumnType) -> bool {
    matches!(
        column_type,
        ColumnType::Int8
            | ColumnType::Int16
            | ColumnType::Int32
            | ColumnType::Int64
            | ColumnType::Float
            | ColumnType::Double
            | ColumnType::Decimal { .. }
    )
}

fn is_assignable(from: &DataType, to: ColumnType) -> bool {
    match to {
        ColumnType::String => {
            !from.is_nested() && !is_binary(from) && !matches!(from, DataType::Timestamp(_, Some(_)))
        }
        ColumnType::Bool => from == &DataType::Boolean,
        ColumnType::Binary => is_binary(from),
        ColumnType::Date | ColumnType::Timestamp => {
            matches!(from, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
        }
        ColumnType::Uuid => from == &DataType::FixedSizeBinary(16),
        ColumnType::Json => false,
        _ => from.is_numeric(),
    }
}

/// Dates and timestamps for a column of either. Those that are infinite stay so: Arrow's casts know none.
fn moments(array: &ArrayRef, to: ColumnType) -> Result<ArrayRef, SqlError> {
    let moments = match array.data_type() {
        DataType::Date64 => cast(array, &DataType::Date32, ColumnType::Date)?,
        _ => on_the_clock(array)?,
    };
    functions::assigned_moments(&moments, to).map_err(crate::error::sql_error)
}

/// Moments, on their way to a column without a zone, become what the clocks of their zone show: Arrow's cast would leave them
/// in UTC.
fn on_the_clock(array: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let DataType::Timestamp(_, Some(zone)) = array.data_type() else { return Ok(Arc::clone(array)) };
    let zone = TimeZone::parse(zone).expect("the zone of a session");
    let with_zone = DataType::Timestamp(TimeUnit::Microsecond, Some(zone.name().into()));
    let moments = cast(array, &with_zone, ColumnType::Timestamp)?;
    let micros = moments.as_primitive::<TimestampMicrosecondType>();
    let clock: TimestampMicrosecondArray = micros.unary(|micros| zone.wall_clock(micros));
    Ok(Arc::new(clock))
}

fn is_binary(arrow: &DataType) -> bool {
    matches!(
        arrow,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
    )
}

/// Numbers with a fraction, on their way to an integer column, are rounded first: Arrow's cast would truncate. A numeric becomes the
/// floating-point number that is nearest, where Arrow divides, and comes to another beside it: 230.00000000000003 for a 230 with 20 digits behind
/// its point.
fn rounded(array: &ArrayRef, to: ColumnType) -> Result<ArrayRef, SqlError> {
    if matches!((to, array.data_type()), (ColumnType::Float | ColumnType::Double, DataType::Decimal128(..))) {
        return number::convert(array, &to.arrow()).map_err(|e| crate::error::sql_error(e.into()));
    }
    if to == ColumnType::Float && array.data_type() == &DataType::Float64 {
        let narrowed = number::narrowed(array.as_primitive::<Float64Type>());
        return Ok(Arc::new(narrowed.map_err(|e| crate::error::sql_error(e.into()))?));
    }
    if !matches!(to, ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64) {
        return Ok(Arc::clone(array));
    }
    match array.data_type() {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let doubles = cast(array, &DataType::Float64, to)?;
            let rounded = doubles.as_primitive::<Float64Type>().unary::<_, Float64Type>(round_half_even);
            Ok(Arc::new(rounded))
        }
        // From one decimal to another Arrow rounds, halves away from zero.
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) => {
            cast(array, &DataType::Decimal128(38, 0), to)
        }
        DataType::Decimal256(..) => cast(array, &DataType::Decimal256(76, 0), to),
        _ => Ok(Arc::clone(array)),
    }
}

fn round_half_even(value: <Float64Type as ArrowPrimitiveType>::Native) -> f64 {
    value.round_ties_even()
}

fn cast(array: &ArrayRef, wanted: &DataType, to: ColumnType) -> Result<ArrayRef, SqlError> {
    if array.data_type() == wanted {
        return Ok(Arc::clone(array));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, wanted, &options).map_err(|e| {
        let state = if is_number(to) { "22003" } else { "22P02" };
        let message = match state {
            "22003" => format!("{to} out of range"),
            _ => format!("not a value of type {to}: {e}"),
        };
        SqlError::new(ErrorKind::Invalid, message).with_sqlstate(state)
    })
}
