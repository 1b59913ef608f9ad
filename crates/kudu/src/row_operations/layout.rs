//! Where the parts of an operation lie.
//!
//! While an operation is built it is *open*: every cell is at the place that it has if all columns have a value, so that
//! columns may be set in any order. Closing it up moves the cells that are there over the places of those that are not.

use crate::cell::{cell_bytes, is_slice};
use crate::column::WireColumn;

/// Where the parts of an operation lie, for the columns of one request. Made once for it.
#[derive(Clone, Debug)]
pub struct OperationLayout {
    pub(super) columns: Vec<WireColumn>,
    pub(super) places: Vec<Place>,
    /// Of one bitmap.
    pub(super) bitmap_bytes: usize,
    pub(super) has_null_bitmap: bool,
    /// Type and bitmaps.
    pub(super) header_bytes: usize,
    /// An operation that sets every column to a value …
    whole_bytes: usize,
    /// … and its bitmaps.
    pub(super) whole_bitmaps: Vec<u8>,
}

/// The place of a cell in an open operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    offset: u32,
    pub(super) cell_bytes: u32,
    is_slice: bool,
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
            let is_slice = is_slice(column.column_type);
            places.push(Place { offset: offset as u32, cell_bytes: cell_bytes as u32, is_slice });
            offset += cell_bytes;
        }
        let mut whole_bitmaps = vec![0; header_bytes - 1];
        (0..columns.len()).for_each(|i| whole_bitmaps[i / 8] |= 1 << (i % 8));
        OperationLayout {
            columns,
            places,
            bitmap_bytes,
            has_null_bitmap,
            header_bytes,
            whole_bytes: offset,
            whole_bitmaps,
        }
    }

    pub fn columns(&self) -> &[WireColumn] {
        &self.columns
    }

    /// Bytes of an open operation.
    #[inline]
    pub fn open_bytes(&self) -> usize {
        self.whole_bytes
    }

    /// Bytes that an open operation has when it is closed up.
    pub fn closed_bytes(&self, open: &[u8]) -> usize {
        let present = self.places.iter().enumerate().filter(|(i, _)| self.has_value(open, *i));
        self.header_bytes + present.map(|(_, place)| place.cell_bytes as usize).sum::<usize>()
    }

    /// Whether the cells of the column are slices.
    #[inline]
    pub fn is_slice(&self, column: usize) -> bool {
        self.places[column].is_slice
    }

    /// Whether a column of an open operation is set and not null.
    #[inline]
    pub fn has_value(&self, open: &[u8], column: usize) -> bool {
        let (isset, nulls, mask) = self.bits(column);
        open[isset] & mask != 0 && (nulls == isset || open[nulls] & mask == 0)
    }

    /// The cell of a column of an open operation; what it holds means nothing if the column has no value.
    #[inline]
    pub fn cell<'o>(&self, open: &'o [u8], column: usize) -> &'o [u8] {
        let Place { offset, cell_bytes, .. } = self.places[column];
        &open[offset as usize..][..cell_bytes as usize]
    }

    /// As [`cell`](Self::cell), to be changed.
    #[inline]
    pub fn cell_mut<'o>(&self, open: &'o mut [u8], column: usize) -> &'o mut [u8] {
        let Place { offset, cell_bytes, .. } = self.places[column];
        &mut open[offset as usize..][..cell_bytes as usize]
    }

    /// Sets a column of an open operation to a value, and returns whether it had none. The cell is as long as the column's.
    #[inline]
    pub fn put<const N: usize>(&self, open: &mut [u8], column: usize, cell: [u8; N]) -> bool {
        let (isset, nulls, mask) = self.bits(column);
        let was_null = nulls != isset && open[nulls] & mask != 0;
        let is_new = open[isset] & mask == 0 || was_null;
        if was_null {
            open[nulls] &= !mask;
        }
        open[isset] |= mask;
        let at = self.places[column].offset as usize;
        open[at..at + N].copy_from_slice(&cell);
        is_new
    }

    /// Sets a column of an open operation to null, and returns whether it had a value. The column is nullable.
    #[inline]
    pub fn put_null(&self, open: &mut [u8], column: usize) -> bool {
        let had_value = self.has_value(open, column);
        let (isset, nulls, mask) = self.bits(column);
        open[isset] |= mask;
        open[nulls] |= mask;
        had_value
    }

    /// Moves the cells that are there over the places of those that are not; returns how long the operation is then.
    pub fn close_up(&self, open: &mut [u8]) -> usize {
        let mut end = self.header_bytes;
        for (i, place) in self.places.iter().enumerate() {
            if self.has_value(open, i) {
                let (from, bytes) = (place.offset as usize, place.cell_bytes as usize);
                open.copy_within(from..from + bytes, end);
                end += bytes;
            }
        }
        end
    }

    /// Where the column's bits lie in an operation: the byte of the first, of the second, and the mask in both. Without
    /// nullable columns there are no null bits, and the place of the second is that of the first.
    #[inline]
    fn bits(&self, column: usize) -> (usize, usize, u8) {
        let isset = 1 + column / 8;
        let nulls = if self.has_null_bitmap { isset + self.bitmap_bytes } else { isset };
        (isset, nulls, 1 << (column % 8))
    }
}
