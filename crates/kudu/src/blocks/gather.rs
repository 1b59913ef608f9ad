//! From cells at a stride to an Arrow array.

use crate::cell::{cell_bytes, read_decimal, slice};
use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, PrimitiveArray,
    StringArray,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes as at;
use arrow::error::ArrowError;
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

    /// What `value` makes of each cell's first `N` bytes. Without gaps between them that is one loop over many at a time, and
    /// for most types a copy.
    fn values<const N: usize, T: at::ArrowNativeType>(self, value: impl Fn([u8; N]) -> T) -> ScalarBuffer<T> {
        match self.stride == N {
            true => self.bytes.as_chunks().0.iter().take(self.rows).map(|cell| value(*cell)).collect(),
            false => self.each().map(value).collect(),
        }
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
        ($arrow:ty, $native:ty) => {
            Arc::new(PrimitiveArray::<$arrow>::new(cells.values(<$native>::from_le_bytes), nulls))
        };
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
                4 => cells.values(|cell: [u8; 4]| read_decimal(&cell)),
                8 => cells.values(|cell: [u8; 8]| read_decimal(&cell)),
                _ => cells.values(|cell: [u8; 16]| read_decimal(&cell)),
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

/// The array of a column whose cells are slices of `indirect`. What is null is not looked at.
///
/// # Errors
/// `Invalid` for a slice that points outside, slices that have more bytes than there are, text that is not UTF-8, or a UUID of
/// another length than 16; `TooLarge` for more than 2 GiB.
pub(super) fn slices(
    column_type: ColumnType,
    cells: Cells<'_>,
    indirect: &Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    check_len(indirect)?;
    let mut ends = Vec::with_capacity(cells.rows + 1);
    ends.push(0);
    // Most values begin where the one before ended: those are copied at once, or not at all if they are all like that.
    let (mut values, mut run, mut total) = (Vec::new(), 0..0, 0);
    for (i, cell) in cells.each::<16>().enumerate() {
        if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(i)) {
            let cell = u128::from_le_bytes(cell);
            let (offset, len) = (cell as u64, (cell >> 64) as u64);
            let value = slice(indirect, offset, len)?;
            total += value.len();
            // Few cells that point to the same bytes could be more than memory holds.
            if total > indirect.len() {
                return Err(Error::invalid("cells have more bytes than there are"));
            }
            let start = offset as usize;
            if start != run.end && !value.is_empty() {
                values.extend_from_slice(&indirect[std::mem::replace(&mut run, start..start)]);
            }
            run.end += value.len();
        }
        ends.push(total as i32);
    }
    let values = match values.is_empty() {
        true => indirect.slice_with_length(run.start, run.len()),
        false => {
            values.extend_from_slice(&indirect[run]);
            Buffer::from_vec(values)
        }
    };
    array(column_type, OffsetBuffer::new(ends.into()), values, nulls)
}

/// The array of a column whose values lie in `varlen` one behind the other, without a copy. `offsets` are little-endian `u32`s,
/// one more than there are rows. All of `varlen` is looked at: null has no bytes there, as of Kudu's servers.
///
/// # Errors
/// `Invalid` for offsets that descend or point outside, text that is not UTF-8, or a UUID of another length than 16; `TooLarge`
/// for more than 2 GiB.
pub(super) fn variable(
    column_type: ColumnType,
    offsets: &[u8],
    varlen: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    check_len(&varlen)?;
    let offsets: Vec<i32> = offsets.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
    // Nothing ends the loop, so that it looks at many at a time.
    let pairs = offsets.iter().zip(offsets.get(1..).unwrap_or_default());
    let ascend = pairs.fold(true, |ascend, (start, end)| ascend & (start <= end));
    if !ascend || offsets.first().is_none_or(|first| *first < 0) {
        return Err(Error::invalid("offsets descend, or begin behind 2 GiB"));
    }
    array(column_type, OffsetBuffer::new(offsets.into()), varlen, nulls)
}

/// All offsets of bytes that pass are `i32`s.
fn check_len(bytes: &[u8]) -> Result<()> {
    match i32::try_from(bytes.len()) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::too_large("a block's strings take more than 2 GiB")),
    }
}

/// Text is checked as a whole: that it is UTF-8, and that each value begins with a character.
fn array(
    column_type: ColumnType,
    offsets: OffsetBuffer<i32>,
    values: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let invalid = |error: ArrowError| Error::invalid(error.to_string());
    Ok(match column_type {
        ColumnType::Binary => Arc::new(BinaryArray::try_new(offsets, values, nulls).map_err(invalid)?),
        ColumnType::Uuid => {
            let values = BinaryArray::try_new(offsets, values, nulls).map_err(invalid)?;
            Arc::new(uuids(&values)?)
        }
        _ => Arc::new(StringArray::try_new(offsets, values, nulls).map_err(invalid)?),
    })
}

fn uuids(array: &BinaryArray) -> Result<FixedSizeBinaryArray> {
    let mut uuids = vec![0; array.len() * 16];
    for (value, uuid) in array.iter().zip(uuids.chunks_exact_mut(16)) {
        match value {
            Some(value) if value.len() == 16 => uuid.copy_from_slice(value),
            None => {}
            Some(other) => return Err(Error::invalid(format!("a uuid has 16 bytes, not {}", other.len()))),
        }
    }
    Ok(FixedSizeBinaryArray::try_new(16, Buffer::from_vec(uuids), array.nulls().cloned())?)
}
