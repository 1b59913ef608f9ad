//! From an Arrow array to cells at a stride.

use super::sidecar::Sidecar;
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

/// The values of `array`, if they lie in it as cells do, without gaps.
pub(super) fn dense(array: &dyn Array, column_type: ColumnType) -> Option<&[u8]> {
    if array.null_count() > 0 || cfg!(target_endian = "big") {
        return None;
    }
    macro_rules! bytes {
        ($arrow:ty) => {
            Some(array.as_primitive::<$arrow>().values().inner().as_slice())
        };
    }
    of_plain!(column_type, bytes, match {
        _ => None,
    })
}

/// Writes a zero into each row, `offset` bytes behind its begin.
pub(super) fn zeros(rows: &mut [u8], offset: usize, stride: usize) {
    rows.chunks_exact_mut(stride).for_each(|row| row[offset] = 0);
}

/// Appends the bytes of all values that are not null to `out`, and calls `put` for each row with its place, where its bytes
/// begin in `out` and how many they are: null has none. The type is one of slices.
pub(super) fn append<P>(
    array: &dyn Array,
    column_type: ColumnType,
    out: &mut Sidecar,
    places: impl Iterator<Item = P>,
    mut put: impl FnMut(P, usize, usize),
) {
    let start = out.len();
    // With room for what is copied too much.
    let room = out.room(variable_bytes(array, column_type) + COPY);
    let put = |place: P, at: usize, len: usize| put(place, start + at, len);
    let copied = match column_type {
        ColumnType::String | ColumnType::Json => copy_views(array.as_string_view(), room, places, put),
        ColumnType::Binary => copy_views(array.as_binary_view(), room, places, put),
        ColumnType::Uuid => copy_uuids(array.as_fixed_size_binary(), room, places, put),
        _ => unreachable!("not a slice"),
    };
    out.add(copied);
}

/// Bytes of all values of an array of slices.
pub(super) fn variable_bytes(array: &dyn Array, column_type: ColumnType) -> usize {
    match column_type {
        ColumnType::String | ColumnType::Json => array.as_string_view().lengths().map(|n| n as usize).sum(),
        ColumnType::Binary => array.as_binary_view().lengths().map(|n| n as usize).sum(),
        _ => array.len() * 16,
    }
}

/// Returns how many bytes it copied.
fn copy_uuids<P>(
    array: &FixedSizeBinaryArray,
    out: &mut [u8],
    places: impl Iterator<Item = P>,
    mut put: impl FnMut(P, usize, usize),
) -> usize {
    let mut at = 0;
    for (place, uuid) in places.zip(array.iter()) {
        let uuid = uuid.unwrap_or_default();
        out[at..][..uuid.len()].copy_from_slice(uuid);
        put(place, at, uuid.len());
        at += uuid.len();
    }
    at
}

/// Returns how many bytes it copied. `out` has [`COPY`] bytes more.
fn copy_views<T: ByteViewType, P>(
    array: &GenericByteViewArray<T>,
    out: &mut [u8],
    places: impl Iterator<Item = P>,
    mut put: impl FnMut(P, usize, usize),
) -> usize {
    let (buffers, views) = (array.data_buffers(), places.zip(array.views()));
    let mut at = 0;
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => {
            for (place, view) in views {
                let len = copy_view(*view, buffers, &mut out[at..]);
                put(place, at, len);
                at += len;
            }
        }
        Some(nulls) => {
            for ((place, view), valid) in views.zip(nulls) {
                let len = if valid { copy_view(*view, buffers, &mut out[at..]) } else { 0 };
                put(place, at, len);
                at += len;
            }
        }
    }
    at
}

/// Copying a fixed length is one instruction or two: of short values, which lie in their views, and of those that have as many bytes
/// as one copies behind them. What it copies too much the next value is written over, or it is not counted. `out` has [`COPY`] bytes
/// more than the value. Returns the length.
#[inline]
fn copy_view(view: u128, buffers: &[Buffer], out: &mut [u8]) -> usize {
    let len = view as u32 as usize;
    if len <= INLINE {
        out[..INLINE].copy_from_slice(&view.to_le_bytes()[size_of::<u32>()..]);
    } else {
        let view = ByteView::from(view);
        let value = &buffers[view.buffer_index as usize][view.offset as usize..];
        match (value.first_chunk::<COPY>(), out.first_chunk_mut::<COPY>()) {
            (Some(chunk), Some(out)) if len <= COPY => *out = *chunk,
            _ => out[..len].copy_from_slice(&value[..len]),
        }
    }
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
