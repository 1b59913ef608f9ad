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
//! [`decode`] reads them where they lie; [`encode`] appends them in wire order. [`PartialRow`] sets the columns of an
//! operation, wherever its cells are put.

pub mod decode;
pub mod encode;
mod layout;
mod partial_row;

pub use decode::{BadRow, OperationReader, RowOperation, WholeOperation};
pub use encode::{OperationWriter, OperationsBuilder};
pub use layout::OperationLayout;
pub use partial_row::{Cells, PartialRow};

pub use crate::messages::common::OperationType;

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

#[inline]
fn bit(bitmap: &[u8], i: usize) -> bool {
    bitmap[i / 8] & (1 << (i % 8)) != 0
}

#[cfg(test)]
mod tests;
