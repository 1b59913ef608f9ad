//! From cells at a stride to an Arrow array.

use crate::cell::{cell_bytes, read_decimal, slice};
use arrow::array::builder::make_view;
use arrow::array::{
    ArrayRef, BinaryViewArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, PrimitiveArray,
    StringViewArray,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes as at;
use bytes::Bytes;
use oribi_types::{ColumnType, Error, Result};
use std::sync::Arc;

/// The cells of one column: `rows` of them, the first at the start of `bytes`, each `stride` bytes behind the one
/// before.
#[derive(Clone, Copy)]
pub(super) struct Cells<'b> {
    pub bytes: &'b [u8],
    pub stride: usize,
    pub rows: usize,
}

impl<'b> Cells<'b> {
    /// Each cell's first `N` bytes. The caller has checked that they are there.
    fn each<const N: usize>(self) -> impl ExactSizeIterator<Item = [u8; N]> + 'b {
        let cells = self.bytes.chunks(self.stride).take(self.rows);
        cells.map(|cell| *cell.first_chunk().expect("a cell has the bytes of its type"))
    }
}

/// The array of a column whose cells have a fixed width.
///
/// # Errors
/// `Invalid` for a decimal of more digits than the column has.
pub(super) fn fixed(
    column_type: ColumnType,
    cells: Cells<'_>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    macro_rules! primitive {
        ($arrow:ty, $native:ty) => {{
            let values: ScalarBuffer<$native> = cells.each().map(<$native>::from_le_bytes).collect();
            Arc::new(PrimitiveArray::<$arrow>::new(values, nulls))
        }};
    }
    Ok(match column_type {
        ColumnType::Bool => {
            let values: BooleanBuffer = cells.each().map(|[byte]: [u8; 1]| byte != 0).collect();
            Arc::new(BooleanArray::new(values, nulls))
        }
        ColumnType::Int8 => primitive!(at::Int8Type, i8),
        ColumnType::Int16 => primitive!(at::Int16Type, i16),
        ColumnType::Int32 => primitive!(at::Int32Type, i32),
        ColumnType::Int64 => primitive!(at::Int64Type, i64),
        ColumnType::Float => primitive!(at::Float32Type, f32),
        ColumnType::Double => primitive!(at::Float64Type, f64),
        ColumnType::Date => primitive!(at::Date32Type, i32),
        ColumnType::Timestamp => primitive!(at::TimestampMicrosecondType, i64),
        ColumnType::Decimal { precision, scale } => {
            let values: ScalarBuffer<i128> = match cell_bytes(column_type) {
                4 => cells.each::<4>().map(|cell| read_decimal(&cell)).collect(),
                8 => cells.each::<8>().map(|cell| read_decimal(&cell)).collect(),
                _ => cells.each::<16>().map(|cell| read_decimal(&cell)).collect(),
            };
            let array = Decimal128Array::new(values, nulls).with_precision_and_scale(precision, scale)?;
            array.validate_decimal_precision(precision).map_err(|error| Error::invalid(error.to_string()))?;
            Arc::new(array)
        }
        ColumnType::String | ColumnType::Json | ColumnType::Binary | ColumnType::Uuid => {
            unreachable!("a slice has no fixed width")
        }
    })
}

/// The array of a column whose cells are slices of `indirect`. Strings are not copied: the array shares `indirect`.
///
/// # Errors
/// `Invalid` for a slice that points outside, text that is not UTF-8 or a UUID of another length than 16.
pub(super) fn slices(
    column_type: ColumnType,
    cells: Cells<'_>,
    indirect: &Bytes,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let places = cells.each::<16>().map(|cell| {
        let (offset, len) = cell.split_at(8);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half of 16 bytes"));
        (number(offset), number(len))
    });
    variable(column_type, places, indirect, nulls)
}

/// The array of the values at these offsets and lengths of `indirect`. What is null is not looked at.
///
/// # Errors
/// As [`slices`].
pub(super) fn variable(
    column_type: ColumnType,
    places: impl ExactSizeIterator<Item = (u64, u64)>,
    indirect: &Bytes,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let valid = |i| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(i));
    if column_type == ColumnType::Uuid {
        let mut values = vec![0; places.len() * 16];
        for ((i, (offset, len)), value) in places.enumerate().zip(values.chunks_exact_mut(16)) {
            match slice(indirect, offset, len)? {
                uuid if uuid.len() == 16 => value.copy_from_slice(uuid),
                _ if !valid(i) => {}
                other => return Err(Error::invalid(format!("a uuid has 16 bytes, not {}", other.len()))),
            }
        }
        return Ok(Arc::new(FixedSizeBinaryArray::try_new(16, Buffer::from_vec(values), nulls)?));
    }
    if u32::try_from(indirect.len()).is_err() {
        return Err(Error::too_large("a block's strings take more than 4 GiB"));
    }
    let views = places
        .enumerate()
        .map(|(i, (offset, len))| match valid(i) {
            true => Ok(make_view(slice(indirect, offset, len)?, 0, offset as u32)),
            false => Ok(0),
        })
        .collect::<Result<Vec<u128>>>()?;
    let (views, buffers) = (ScalarBuffer::from(views), [Buffer::from(indirect.clone())]);
    let array: Result<ArrayRef, _> = match column_type {
        ColumnType::Binary => BinaryViewArray::try_new(views, buffers, nulls).map(|a| Arc::new(a) as _),
        _ => StringViewArray::try_new(views, buffers, nulls).map(|a| Arc::new(a) as _),
    };
    array.map_err(|error| Error::invalid(error.to_string()))
}
