//! From an Arrow array to cells at a stride.

use crate::cell::cell_bytes;
use arrow::array::{Array, AsArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes as at;
use oribi_types::ColumnType;

/// Writes the values of `array` as cells of fixed width, the first at the start of `out`, each `stride` bytes behind
/// the one before it. Null writes nothing. The type is not one of slices.
pub(super) fn fixed(array: &dyn Array, column_type: ColumnType, out: &mut [u8], stride: usize) {
    macro_rules! primitive {
        ($arrow:ty) => {{
            let array = array.as_primitive::<$arrow>();
            put(array.values().iter().map(|v| v.to_le_bytes()), array.nulls(), out, stride);
        }};
    }
    match column_type {
        ColumnType::Bool => {
            let array = array.as_boolean();
            put(array.values().iter().map(|v| [u8::from(v)]), array.nulls(), out, stride);
        }
        ColumnType::Int8 => primitive!(at::Int8Type),
        ColumnType::Int16 => primitive!(at::Int16Type),
        ColumnType::Int32 => primitive!(at::Int32Type),
        ColumnType::Int64 => primitive!(at::Int64Type),
        ColumnType::Float => primitive!(at::Float32Type),
        ColumnType::Double => primitive!(at::Float64Type),
        ColumnType::Date => primitive!(at::Date32Type),
        ColumnType::Timestamp => primitive!(at::TimestampMicrosecondType),
        ColumnType::Decimal { .. } => {
            let array = array.as_primitive::<at::Decimal128Type>();
            let (values, nulls) = (array.values().iter(), array.nulls());
            match cell_bytes(column_type) {
                4 => put(values.map(|v| (*v as i32).to_le_bytes()), nulls, out, stride),
                8 => put(values.map(|v| (*v as i64).to_le_bytes()), nulls, out, stride),
                _ => put(values.map(|v| v.to_le_bytes()), nulls, out, stride),
            }
        }
        ColumnType::String | ColumnType::Json | ColumnType::Binary | ColumnType::Uuid => {
            unreachable!("a slice has no fixed width")
        }
    }
}

/// Calls `each` with the row and the bytes of every value that is not null. The type is one of slices.
pub(super) fn variable<'a>(
    array: &'a dyn Array,
    column_type: ColumnType,
    mut each: impl FnMut(usize, &'a [u8]),
) {
    match column_type {
        ColumnType::String | ColumnType::Json => {
            each_of(array.as_string_view().iter().map(|v| v.map(str::as_bytes)), &mut each);
        }
        ColumnType::Binary => each_of(array.as_binary_view().iter(), &mut each),
        ColumnType::Uuid => each_of(array.as_fixed_size_binary().iter(), &mut each),
        _ => unreachable!("not a slice"),
    }
}

/// Bytes of all values of an array of slices.
pub(super) fn variable_bytes(array: &dyn Array, column_type: ColumnType) -> usize {
    match column_type {
        ColumnType::String | ColumnType::Json => array.as_string_view().lengths().map(|n| n as usize).sum(),
        ColumnType::Binary => array.as_binary_view().lengths().map(|n| n as usize).sum(),
        _ => array.len() * 16,
    }
}

fn each_of<'a>(values: impl Iterator<Item = Option<&'a [u8]>>, each: &mut impl FnMut(usize, &'a [u8])) {
    for (i, value) in values.enumerate() {
        if let Some(value) = value {
            each(i, value);
        }
    }
}

fn put<const N: usize>(
    values: impl Iterator<Item = [u8; N]>,
    nulls: Option<&NullBuffer>,
    out: &mut [u8],
    stride: usize,
) {
    let cells = out.chunks_mut(stride).zip(values);
    match nulls {
        None => cells.for_each(|(cell, value)| cell[..N].copy_from_slice(&value)),
        Some(nulls) => {
            for ((cell, value), valid) in cells.zip(nulls.iter()) {
                if valid {
                    cell[..N].copy_from_slice(&value);
                }
            }
        }
    }
}
