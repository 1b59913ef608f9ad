//! Where the cells of a row lie while it is built, and when it is sent.

use super::Column;
use oribi_kudu::cell::{cell_bytes, is_slice};

/// The layout of a row operation whose columns all have a value. Such a row goes into its batch in one copy; if some are
/// not set or null, the others close up.
#[derive(Clone, Debug)]
pub struct RowLayout {
    pub cells: Vec<Cell>,
    /// Of one bitmap.
    pub(crate) bitmap_bytes: usize,
    pub(crate) has_null_bitmap: bool,
    /// Type and bitmaps.
    pub(crate) header_bytes: usize,
    /// The whole row.
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub offset: usize,
    pub(crate) bytes: usize,
    /// It points into the indirect data.
    pub(crate) is_slice: bool,
}

impl RowLayout {
    pub fn new(columns: &[Column]) -> Self {
        let bitmap_bytes = columns.len().div_ceil(8);
        let has_null_bitmap = columns.iter().any(|column| column.nullable);
        let header_bytes = 1 + bitmap_bytes * (1 + usize::from(has_null_bitmap));
        let mut offset = header_bytes;
        let cell = |column: &Column| {
            let bytes = cell_bytes(column.column_type);
            let cell = Cell { offset, bytes, is_slice: is_slice(column.column_type) };
            offset += bytes;
            cell
        };
        let cells = columns.iter().map(cell).collect();
        RowLayout { cells, bitmap_bytes, has_null_bitmap, header_bytes, bytes: offset }
    }
}
