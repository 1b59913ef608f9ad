//! One cell: a value as it lies in row operations, row-wise blocks, defaults and predicates.
//!
//! A cell of fixed width is little-endian. A string or bytes is a *slice*: a `u64` offset into the bytes that came
//! along (`indirect`) and a `u64` length. Where a value stands alone, in a default or a predicate, it is the cell's
//! bytes or the string's own.

use crate::column::DataType;
use oribi_types::{ColumnType, Error, Result, Value, ValueRef};

/// Bytes of the slice that stands for a string or bytes.
pub const SLICE_BYTES: usize = 16;

/// Bytes of a cell of this type.
pub fn cell_bytes(column_type: ColumnType) -> usize {
    DataType::of(column_type).0.cell_bytes()
}

/// Whether a cell of this type is a slice.
pub fn is_slice(column_type: ColumnType) -> bool {
    column_type.fixed_width().is_none() || column_type == ColumnType::Uuid
}

/// The value of a cell. `cell` has [`cell_bytes`] bytes.
///
/// # Errors
/// `Invalid` for a slice that points outside of `indirect`, text that is not UTF-8, a UUID of another length than 16, or
/// a decimal of more digits than its column has.
// Inlined, with what it calls: where it is called for each cell, what takes the value looks at its type no second time.
#[inline(always)]
pub fn read_cell<'a>(column_type: ColumnType, cell: &'a [u8], indirect: &'a [u8]) -> Result<ValueRef<'a>> {
    if !is_slice(column_type) {
        return read_fixed(column_type, cell);
    }
    let offset = u64::from_le_bytes(array(&cell[..8]));
    let len = u64::from_le_bytes(array(&cell[8..]));
    read_bytes(column_type, slice(indirect, offset, len)?)
}

/// Whether [`read_cell`] fails because the cell is a slice of bytes that are not in `indirect`: then the request is damaged,
/// not the value wrong.
#[cold]
pub(crate) fn lies_outside(column_type: ColumnType, cell: &[u8], indirect: &[u8]) -> bool {
    let number = |bytes: &[u8]| u64::from_le_bytes(array(bytes));
    is_slice(column_type) && slice(indirect, number(&cell[..8]), number(&cell[8..])).is_err()
}

/// The value of a default or a predicate: the bytes of a cell of fixed width, or those of the string.
///
/// # Errors
/// `Invalid`, as [`read_cell`], and for another width than the cell's.
pub fn read_value(column_type: ColumnType, bytes: &[u8]) -> Result<ValueRef<'_>> {
    if is_slice(column_type) {
        return read_bytes(column_type, bytes);
    }
    let needed = cell_bytes(column_type);
    if bytes.len() != needed {
        return Err(Error::invalid(format!("{} bytes instead of {needed}", bytes.len())));
    }
    read_fixed(column_type, bytes)
}

/// Appends what [`read_value`] reads: the bytes of a default or a predicate. Null has none.
pub fn write_value(value: &Value, column_type: ColumnType, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::Int8(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Int16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Int32(v) | Value::Date(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Int64(v) | Value::Timestamp(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Float(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Double(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Decimal(v) => out.extend_from_slice(&v.to_le_bytes()[..cell_bytes(column_type)]),
        Value::String(v) | Value::Json(v) => out.extend_from_slice(v.as_bytes()),
        Value::Binary(v) => out.extend_from_slice(v),
        Value::Uuid(v) => out.extend_from_slice(v),
    }
}

/// The bytes of `indirect` that a slice names.
///
/// # Errors
/// `Invalid` if they are not all there.
#[inline]
pub(crate) fn slice(indirect: &[u8], offset: u64, len: u64) -> Result<&[u8]> {
    let end = offset.checked_add(len).and_then(|end| usize::try_from(end).ok());
    end.and_then(|end| indirect.get(offset as usize..end)).ok_or_else(|| {
        Error::invalid(format!("{len} bytes at {offset} of the {} bytes of indirect data", indirect.len()))
    })
}

/// The unscaled integer in a decimal cell of 4, 8 or 16 bytes.
#[inline]
pub(crate) fn read_decimal(cell: &[u8]) -> i128 {
    match cell.len() {
        4 => i128::from(i32::from_le_bytes(array(cell))),
        8 => i128::from(i64::from_le_bytes(array(cell))),
        _ => i128::from_le_bytes(array(cell)),
    }
}

#[inline(always)]
fn read_fixed(column_type: ColumnType, cell: &[u8]) -> Result<ValueRef<'_>> {
    Ok(match column_type {
        ColumnType::Bool => ValueRef::Bool(cell[0] != 0),
        ColumnType::Int8 => ValueRef::Int8(cell[0] as i8),
        ColumnType::Int16 => ValueRef::Int16(i16::from_le_bytes(array(cell))),
        ColumnType::Int32 => ValueRef::Int32(i32::from_le_bytes(array(cell))),
        ColumnType::Int64 => ValueRef::Int64(i64::from_le_bytes(array(cell))),
        ColumnType::Float => ValueRef::Float(f32::from_le_bytes(array(cell))),
        ColumnType::Double => ValueRef::Double(f64::from_le_bytes(array(cell))),
        ColumnType::Date => ValueRef::Date(i32::from_le_bytes(array(cell))),
        ColumnType::Timestamp => ValueRef::Timestamp(i64::from_le_bytes(array(cell))),
        ColumnType::Decimal { precision, .. } => {
            let unscaled = read_decimal(cell);
            if unscaled.unsigned_abs() >= 10_u128.pow(u32::from(precision)) {
                return Err(Error::invalid(format!("more than {precision} digits")));
            }
            ValueRef::Decimal(unscaled)
        }
        ColumnType::String | ColumnType::Json | ColumnType::Binary | ColumnType::Uuid => {
            unreachable!("a slice, not a cell of fixed width")
        }
    })
}

#[inline(always)]
fn read_bytes(column_type: ColumnType, bytes: &[u8]) -> Result<ValueRef<'_>> {
    let text = |bytes| oribi_types::utf8::from_utf8(bytes).map_err(|_| Error::invalid("not UTF-8"));
    Ok(match column_type {
        ColumnType::String => ValueRef::String(text(bytes)?),
        ColumnType::Json => ValueRef::Json(text(bytes)?),
        ColumnType::Uuid => ValueRef::Uuid(
            bytes
                .try_into()
                .map_err(|_| Error::invalid(format!("a uuid has 16 bytes, not {}", bytes.len())))?,
        ),
        _ => ValueRef::Binary(bytes),
    })
}

#[inline]
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("a cell has the bytes of its type")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{column_type, value};
    use proptest::prelude::*;

    fn slice_cell(offset: u64, len: u64) -> [u8; 16] {
        let mut cell = [0; 16];
        cell[..8].copy_from_slice(&offset.to_le_bytes());
        cell[8..].copy_from_slice(&len.to_le_bytes());
        cell
    }

    #[test]
    fn a_slice_stays_within_the_bytes_that_came_along() {
        let read = |offset, len| {
            read_cell(ColumnType::Binary, &slice_cell(offset, len), b"abc").map(|v| v.to_owned())
        };
        assert_eq!(read(1, 2).unwrap(), Value::Binary(b"bc".to_vec()));
        assert_eq!(read(3, 0).unwrap(), Value::Binary(vec![]));
        for (offset, len) in
            [(1, 3), (4, 0), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX), (1 << 32, 0)]
        {
            assert!(read(offset, len).is_err(), "{offset} {len}");
        }
    }

    #[test]
    fn what_a_column_cannot_hold_is_refused() {
        assert!(read_value(ColumnType::String, b"\xff").is_err());
        assert!(read_value(ColumnType::Uuid, b"short").is_err());
        assert!(read_value(ColumnType::Int32, b"123").is_err());
        let numeric = ColumnType::Decimal { precision: 3, scale: 1 };
        assert!(read_value(numeric, &1000_i32.to_le_bytes()).is_err());
        assert_eq!(read_value(numeric, &(-999_i32).to_le_bytes()).unwrap(), ValueRef::Decimal(-999));
    }

    proptest! {
        #[test]
        fn a_value_reads_back((column_type, value) in column_type().prop_flat_map(|t| (Just(t), value(t)))) {
            let mut bytes = Vec::new();
            write_value(&value, column_type, &mut bytes);
            prop_assert_eq!(read_value(column_type, &bytes).unwrap().to_owned(), value);
        }
    }
}
