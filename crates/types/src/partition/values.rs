//! Range keys and the values they are made of.

use crate::key::{KeyDecoder, encode_component};
use crate::{ColumnType, Error, Result, Schema, Value};

/// The encoded range key of `values`, one for each of `columns` (positions in the key), in their order.
///
/// # Errors
/// `Invalid` for another number of values, null, or a value of another type.
pub fn encode_range_key(schema: &Schema, columns: &[u16], values: &[Value]) -> Result<Vec<u8>> {
    if values.len() != columns.len() {
        return Err(Error::invalid(format!("ranges are of {} columns, not {}", columns.len(), values.len())));
    }
    let mut key = Vec::new();
    for (i, (value, &component)) in values.iter().zip(columns).enumerate() {
        let column = schema.key_columns().nth(usize::from(component));
        let column = column.ok_or_else(|| Error::invalid("ranges are of columns of the primary key"))?;
        if value.is_null() || !value.as_ref().fits(column.column_type) {
            return Err(Error::invalid(format!(
                "a bound of column \"{}\" needs a value of type {}",
                column.name, column.column_type
            )));
        }
        encode_component(value.as_ref(), i + 1 == columns.len(), &mut key);
    }
    Ok(key)
}

/// The values of an encoded range key.
///
/// # Errors
/// `Corrupt` if it is none of these columns.
pub fn decode_range_key(schema: &Schema, columns: &[u16], key: &[u8]) -> Result<Vec<Value>> {
    let types = columns.iter().map(|c| schema.key_columns().nth(usize::from(*c)).map(|c| c.column_type));
    let types: Option<Vec<ColumnType>> = types.collect();
    KeyDecoder::new(key).all(&types.ok_or_else(|| Error::corrupt("a range is of no column of the key"))?)
}

/// Makes of `values` the next in order, as Kudu does to turn `5 < VALUES` into `6 <= VALUES`: the last is counted up;
/// one that is at its end starts again at the [least](least_value) while the one before is counted up. False if there is
/// none: `values` are meaningless then.
pub fn next_values(types: &[ColumnType], values: &mut [Value]) -> bool {
    for (value, column_type) in values.iter_mut().zip(types).rev() {
        if count_up(value, *column_type) {
            return true;
        }
        *value = least_value(*column_type);
    }
    false
}

fn count_up(value: &mut Value, column_type: ColumnType) -> bool {
    fn up<T: Copy>(value: &mut T, next: Option<T>) -> bool {
        next.map(|next| *value = next).is_some()
    }
    match value {
        Value::Bool(v) => up(v, (!*v).then_some(true)),
        Value::Int8(v) => up(v, v.checked_add(1)),
        Value::Int16(v) => up(v, v.checked_add(1)),
        Value::Int32(v) | Value::Date(v) => up(v, v.checked_add(1)),
        Value::Int64(v) | Value::Timestamp(v) => up(v, v.checked_add(1)),
        Value::Decimal(v) => up(v, Some(*v + 1).filter(|next| *next <= decimal_max(column_type))),
        Value::Uuid(v) => up(v, u128::from_be_bytes(*v).checked_add(1).map(u128::to_be_bytes)),
        Value::String(v) => {
            v.push('\0');
            true
        }
        Value::Binary(v) => {
            v.push(0);
            true
        }
        // Not of a key.
        _ => false,
    }
}

fn decimal_max(column_type: ColumnType) -> i128 {
    match column_type {
        ColumnType::Decimal { precision, .. } => 10_i128.pow(u32::from(precision.min(38))) - 1,
        _ => i128::MAX,
    }
}

/// The least value of a type that keys may have.
pub fn least_value(column_type: ColumnType) -> Value {
    match column_type {
        ColumnType::Bool => Value::Bool(false),
        ColumnType::Int8 => Value::Int8(i8::MIN),
        ColumnType::Int16 => Value::Int16(i16::MIN),
        ColumnType::Int32 => Value::Int32(i32::MIN),
        ColumnType::Date => Value::Date(i32::MIN),
        ColumnType::Int64 => Value::Int64(i64::MIN),
        ColumnType::Timestamp => Value::Timestamp(i64::MIN),
        ColumnType::Decimal { .. } => Value::Decimal(-decimal_max(column_type)),
        ColumnType::Uuid => Value::Uuid([0; 16]),
        ColumnType::Binary => Value::Binary(Vec::new()),
        ColumnType::String | ColumnType::Json | ColumnType::Float | ColumnType::Double => {
            Value::String(String::new())
        }
    }
}
