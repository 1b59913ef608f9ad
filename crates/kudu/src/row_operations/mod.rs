//! Row operations: the rows of a write, and the split rows and bounds of a table's ranges.
//!
//! Two byte strings travel together. `rows` has one operation behind the other, not aligned; `indirect` has the strings
//! that their cells name. The columns are those that the same request states, hence the layout of an operation
//! depends on them alone:
//!
//! ```text
//! u8  type
//! u8  isset[⌈columns/8⌉]   bit i (least significant first): column i has a value
//! u8  null[⌈columns/8⌉]    only if any column is nullable; bit i: that value is null
//!     cells                of the columns that are set and not null, in column order
//! ```
//!
//! [`decode`] reads them where they lie; [`encode`] appends them in wire order.

pub mod decode;
pub mod encode;

pub use decode::{BadRow, OperationReader, RowOperation};
pub use encode::{OperationWriter, OperationsBuilder};

pub use crate::messages::common::OperationType;

use crate::cell::cell_bytes;
use crate::column::WireColumn;

impl OperationType {
    /// The type that this byte stands for.
    fn from_byte(byte: u8) -> Option<Self> {
        OperationType::try_from(i32::from(byte)).ok().filter(|known| *known != OperationType::Unknown)
    }

    /// Whether it writes a row, rather than stating a part of a table's ranges.
    pub fn is_write(self) -> bool {
        !matches!(
            self,
            OperationType::Unknown
                | OperationType::SplitRow
                | OperationType::RangeLowerBound
                | OperationType::RangeUpperBound
                | OperationType::ExclusiveRangeLowerBound
                | OperationType::InclusiveRangeUpperBound
        )
    }
}

/// Where the parts of an operation lie, for the columns of one request. Made once for it.
#[derive(Clone, Debug)]
pub struct OperationLayout {
    columns: Vec<WireColumn>,
    places: Vec<Place>,
    /// Of one bitmap.
    bitmap_bytes: usize,
    has_null_bitmap: bool,
    /// Type and bitmaps.
    header_bytes: usize,
    /// An operation that sets every column to a value.
    whole_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// In an operation in which all columns before this one have a value.
    offset: u32,
    cell_bytes: u32,
}

impl OperationLayout {
    pub fn new(columns: Vec<WireColumn>) -> Self {
        let bitmap_bytes = columns.len().div_ceil(8);
        let has_null_bitmap = columns.iter().any(|c| c.nullable);
        let header_bytes = 1 + bitmap_bytes * (1 + usize::from(has_null_bitmap));
        let mut offset = header_bytes;
        let mut places = Vec::with_capacity(columns.len());
        for column in &columns {
            let cell_bytes = cell_bytes(column.column_type);
            places.push(Place { offset: offset as u32, cell_bytes: cell_bytes as u32 });
            offset += cell_bytes;
        }
        OperationLayout { columns, places, bitmap_bytes, has_null_bitmap, header_bytes, whole_bytes: offset }
    }

    pub fn columns(&self) -> &[WireColumn] {
        &self.columns
    }
}

#[inline]
fn bit(bitmap: &[u8], i: usize) -> bool {
    bitmap[i / 8] & (1 << (i % 8)) != 0
}

#[cfg(test)]
mod tests;
