//! From an Arrow array to cells at a stride.

use crate::cell::cell_bytes;
use arrow::array::{Array, AsArray, ByteView, FixedSizeBinaryArray, GenericByteViewArray};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes as at;
use arrow::datatypes::ByteViewType;
use oribi_types::ColumnType;

/// A match of column types. Those whose values have one length, and lie in Arrow as they do in a cell where the machine's order is
/// little-endian, yield what `$do!` makes of their Arrow type; the other arms follow.
macro_rules! of_plain {
    ($column_type:expr, $do:ident, match { $($others:tt)* }) => {
        match $column_type {
            ColumnType::Int8 => $do!(at::Int8Type),
            ColumnType::Int16 => $do!(at::Int16Type),
            ColumnType::Int32 => $do!(at::Int32Type),
            ColumnType::Int64 => $do!(at::Int64Type),
            ColumnType::Float => $do!(at::Float32Type),
            ColumnType::Double => $do!(at::Float64Type),
            ColumnType::Date => $do!(at::Date32Type),
            ColumnType::Timestamp => $do!(at::TimestampMicrosecondType),
            $($others)*
        }
    };
}

/// Writes the values of `array` as cells of fixed width into rows of `stride` bytes, each `offset` bytes behind its row's
/// begin. Null writes nothing. The type is not one of slices.
pub(super) fn fixed(
    array: &dyn Array,
    column_type: ColumnType,
    rows: &mut [u8],
    offset: usize,
    stride: usize,
) {
    macro_rules! put_plain {
        ($arrow:ty) => {{
            let array = array.as_primitive::<$arrow>();
            put(array.values().iter().map(|v| v.to_le_bytes()), array.nulls(), rows, offset, stride);
        }};
    }
    of_plain!(column_type, put_plain, match {
        ColumnType::Bool => {
            let array = array.as_boolean();
            put(array.values().iter().map(|v| [u8::from(v)]), array.nulls(), rows, offset, stride);
        }
        ColumnType::Decimal { .. } => {
            let array = array.as_primitive::<at::Decimal128Type>();
            let (values, nulls) = (array.values().iter(), array.nulls());
            match cell_bytes(column_type) {
                4 => put(values.map(|v| (*v as i32).to_le_bytes()), nulls, rows, offset, stride),
                8 => put(values.map(|v| (*v as i64).to_le_bytes()), nulls, rows, offset, stride),
                _ => put(values.map(|v| v.to_le_bytes()), nulls, rows, offset, stride),
            }
        }
        ColumnType::String | ColumnType::Json | ColumnType::Binary | ColumnType::Uuid => {
            unreachable!("a slice has no fixed width")
        }
    })
}

/// Appends all values of `array` as cells without gaps, if they lie so in it, by one copy; else it does nothing. Whether it did.
pub(super) fn append_dense(array: &dyn Array, column_type: ColumnType, out: &mut Vec<u8>) -> bool {
    if array.null_count() > 0 || cfg!(target_endian = "big") {
        return false;
    }
    macro_rules! bytes {
        ($arrow:ty) => {
            array.as_primitive::<$arrow>().values().inner().as_slice()
        };
    }
    out.extend_from_slice(of_plain!(column_type, bytes, match {
        _ => return false,
    }));
    true
}

/// Appends the bytes of all values that are not null to `out`, and calls `put` for each row with its place, where its bytes
/// begin in `out` and how many they are: null has none. The type is one of slices.
pub(super) fn append<P>(
    array: &dyn Array,
    column_type: ColumnType,
    out: &mut Vec<u8>,
    places: impl Iterator<Item = P>,
    put: impl FnMut(P, usize, usize),
) {
    // With room for what is cut off again.
    out.reserve(variable_bytes(array, column_type) + COPY);
    match column_type {
        ColumnType::String | ColumnType::Json => append_views(array.as_string_view(), out, places, put),
        ColumnType::Binary => append_views(array.as_binary_view(), out, places, put),
        ColumnType::Uuid => append_uuids(array.as_fixed_size_binary(), out, places, put),
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

fn append_uuids<P>(
    array: &FixedSizeBinaryArray,
    out: &mut Vec<u8>,
    places: impl Iterator<Item = P>,
    mut put: impl FnMut(P, usize, usize),
) {
    for (place, uuid) in places.zip(array.iter()) {
        let (start, uuid) = (out.len(), uuid.unwrap_or_default());
        out.extend_from_slice(uuid);
        put(place, start, uuid.len());
    }
}

fn append_views<T: ByteViewType, P>(
    array: &GenericByteViewArray<T>,
    out: &mut Vec<u8>,
    places: impl Iterator<Item = P>,
    mut put: impl FnMut(P, usize, usize),
) {
    let (buffers, views) = (array.data_buffers(), places.zip(array.views()));
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => {
            for (place, view) in views {
                let start = out.len();
                put(place, start, append_view(*view, buffers, out));
            }
        }
        Some(nulls) => {
            for ((place, view), valid) in views.zip(nulls) {
                let start = out.len();
                put(place, start, if valid { append_view(*view, buffers, out) } else { 0 });
            }
        }
    }
}

/// Copying a fixed length is one instruction or two, and what it copies too much is cut off again: of short values, which lie
/// in their views, and of those that have as many bytes as one copies behind them. Returns the length.
#[inline]
fn append_view(view: u128, buffers: &[Buffer], out: &mut Vec<u8>) -> usize {
    let (start, len) = (out.len(), view as u32 as usize);
    if len <= INLINE {
        out.extend_from_slice(&view.to_le_bytes()[size_of::<u32>()..]);
    } else {
        let view = ByteView::from(view);
        let value = &buffers[view.buffer_index as usize][view.offset as usize..];
        match value.first_chunk::<COPY>() {
            Some(chunk) if len <= COPY => out.extend_from_slice(chunk),
            _ => out.extend_from_slice(&value[..len]),
        }
    }
    out.truncate(start + len);
    len
}

/// Bytes of a value that lie in its view, behind the length. (Arrow columnar format, "Variable-size Binary View Layout".)
const INLINE: usize = 12;
const COPY: usize = 32;

fn put<const N: usize>(
    values: impl Iterator<Item = [u8; N]>,
    nulls: Option<&NullBuffer>,
    rows: &mut [u8],
    offset: usize,
    stride: usize,
) {
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        // Without gaps: many at a time.
        None if stride == N => {
            rows.as_chunks_mut().0.iter_mut().zip(values).for_each(|(cell, value)| *cell = value);
        }
        None => {
            let cells = rows.chunks_exact_mut(stride).zip(values);
            cells.for_each(|(row, value)| row[offset..][..N].copy_from_slice(&value));
        }
        Some(nulls) => {
            for ((row, value), valid) in rows.chunks_exact_mut(stride).zip(values).zip(nulls) {
                if valid {
                    row[offset..][..N].copy_from_slice(&value);
                }
            }
        }
    }
}
