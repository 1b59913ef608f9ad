//! A batch: the rows for one tablet, in wire order.
//!
//! Two byte strings that grow at their ends, as a write carries them. Nothing in them is an object of its own, so taking down
//! a batch of any size is to forget two lengths, and the next batch uses the same memory.

use crate::rpc::Payload;
use crate::table::RowLayout;
use oribi_kudu::messages::tserver::RowOperationsAround;

/// A batch that rows are appended to.
#[derive(Debug, Default)]
pub struct Batch {
    rows: Vec<u8>,
    indirect: Vec<u8>,
    count: usize,
}

/// One row as it was built: every cell at the place that it has if all columns have a value.
#[derive(Clone, Copy)]
pub struct BuiltRow<'r> {
    pub layout: &'r RowLayout,
    /// [`RowLayout::bytes`] of them. What slices hold is not valid before the row is in a batch.
    pub cells: &'r [u8],
    /// How many columns have a value that is not null.
    pub values: usize,
    /// The columns that point elsewhere, each once, and what to copy.
    pub strings: &'r [(usize, &'r [u8])],
}

/// A batch that is being sent; nothing is appended any more.
pub struct SealedBatch {
    batch: Batch,
    around: RowOperationsAround,
}

impl Batch {
    pub fn append(&mut self, row: BuiltRow<'_>) {
        let start = self.rows.len();
        self.rows.extend_from_slice(row.cells);
        for (column, bytes) in row.strings {
            let slice = &mut self.rows[start + row.layout.cells[*column].offset..][..16];
            slice[..8].copy_from_slice(&(self.indirect.len() as u64).to_le_bytes());
            slice[8..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            self.indirect.extend_from_slice(bytes);
        }
        if row.values < row.layout.cells.len() {
            let end = close_up(row.layout, &mut self.rows[start..]);
            self.rows.truncate(start + end);
        }
        self.count += 1;
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn bytes(&self) -> usize {
        self.rows.len() + self.indirect.len()
    }

    /// What it holds on to.
    pub(crate) fn capacity(&self) -> usize {
        self.rows.capacity() + self.indirect.capacity()
    }

    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.indirect.clear();
        self.count = 0;
    }

    pub(crate) fn rows(&self) -> &[u8] {
        &self.rows
    }

    pub(crate) fn indirect(&self) -> &[u8] {
        &self.indirect
    }

    pub fn seal(self) -> SealedBatch {
        let around = RowOperationsAround::new(self.rows.len(), self.indirect.len());
        SealedBatch { batch: self, around }
    }
}

impl BuiltRow<'_> {
    /// Bytes that the row takes in a batch.
    pub(crate) fn bytes(&self) -> usize {
        let layout = self.layout;
        let strings: usize = self.strings.iter().map(|(_, bytes)| bytes.len()).sum();
        let cells = match self.values == layout.cells.len() {
            true => layout.bytes,
            false => {
                let present =
                    layout.cells.iter().enumerate().filter(|(i, _)| has_value(layout, self.cells, *i));
                layout.header_bytes + present.map(|(_, cell)| cell.bytes).sum::<usize>()
            }
        };
        cells + strings
    }
}

impl SealedBatch {
    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }

    pub fn into_batch(self) -> Batch {
        self.batch
    }

    /// Bytes of all slices of the payload.
    pub fn payload_bytes(&self) -> usize {
        self.slices().iter().map(|slice| slice.len()).sum()
    }
}

impl Payload for SealedBatch {
    fn slices(&self) -> [&[u8]; 4] {
        let around = &self.around;
        [&around.before_rows, &self.batch.rows, &around.before_indirect_data, &self.batch.indirect]
    }
}

/// Whether a column of a row as it was built is set and not null.
pub(crate) fn has_value(layout: &RowLayout, row: &[u8], column: usize) -> bool {
    let (byte, mask) = (1 + column / 8, 1 << (column % 8));
    row[byte] & mask != 0 && !(layout.has_null_bitmap && row[byte + layout.bitmap_bytes] & mask != 0)
}

/// Moves the cells that are there over the places of those that are not; returns how long the row is then.
fn close_up(layout: &RowLayout, row: &mut [u8]) -> usize {
    let mut end = layout.header_bytes;
    for (i, cell) in layout.cells.iter().enumerate() {
        if has_value(layout, row, i) {
            row.copy_within(cell.offset..cell.offset + cell.bytes, end);
            end += cell.bytes;
        }
    }
    end
}
