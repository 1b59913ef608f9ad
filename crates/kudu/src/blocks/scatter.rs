//! From an Arrow array to cells at a stride.

use crate::cell::cell_bytes;
use arrow::array::{Array, AsArray, ByteView, GenericByteViewArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes as at;
use arrow::datatypes::ByteViewType;
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

/// Appends the bytes of all values that are not null to `out`, and calls `each` with the row, where its bytes begin in `out` and
/// how many they are. The type is one of slices.
pub(super) fn append(
    array: &dyn Array,
    column_type: ColumnType,
    out: &mut Vec<u8>,
    each: impl FnMut(usize, usize, usize),
) {
    match column_type {
        ColumnType::String | ColumnType::Json => append_views(array.as_string_view(), out, each),
        ColumnType::Binary => append_views(array.as_binary_view(), out, each),
        ColumnType::Uuid => {
            let array = array.as_fixed_size_binary();
            append_each(array.iter().enumerate().filter_map(|(i, uuid)| Some((i, uuid?))), out, each);
        }
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

fn append_each<'a>(
    values: impl Iterator<Item = (usize, &'a [u8])>,
    out: &mut Vec<u8>,
    mut each: impl FnMut(usize, usize, usize),
) {
    for (i, value) in values {
        each(i, out.len(), value.len());
        out.extend_from_slice(value);
    }
}

/// Copying a fixed length is one instruction or two, and what it copies too much is cut off again: of short values, which lie
/// in their views, and of those that have as many bytes as one copies behind them.
fn append_views<T: ByteViewType>(
    array: &GenericByteViewArray<T>,
    out: &mut Vec<u8>,
    mut each: impl FnMut(usize, usize, usize),
) {
    let buffers = array.data_buffers();
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    for (i, view) in array.views().iter().enumerate() {
        if nulls.is_some_and(|nulls| nulls.is_null(i)) {
            continue;
        }
        let (start, len) = (out.len(), *view as u32 as usize);
        if len <= INLINE {
            out.extend_from_slice(&view.to_le_bytes()[size_of::<u32>()..]);
        } else {
            let view = ByteView::from(*view);
            let value = &buffers[view.buffer_index as usize][view.offset as usize..];
            match value.first_chunk::<COPY>() {
                Some(chunk) if len <= COPY => out.extend_from_slice(chunk),
                _ => out.extend_from_slice(&value[..len]),
            }
        }
        out.truncate(start + len);
        each(i, start, len);
    }
}

/// Bytes of a value that lie in its view, behind the length. (Arrow columnar format, "Variable-size Binary View Layout".)
const INLINE: usize = 12;
const COPY: usize = 32;

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
