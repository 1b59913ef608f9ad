//! A batch: the rows for one tablet, in wire order.
//!
//! Two byte strings that grow at their ends, as a write carries them. Nothing in them is an object of its own, so taking down
//! a batch of any size is to forget two lengths, and the next batch uses the same memory.

use crate::rpc::Payload;
use oribi_kudu::messages::tserver::RowOperationsAround;
use oribi_kudu::row_operations::OperationLayout;

/// A batch that rows are appended to.
#[derive(Debug, Default)]
pub struct Batch {
    rows: Vec<u8>,
    indirect: Vec<u8>,
    count: usize,
}

/// One row as it was built: an operation that is open.
#[derive(Clone, Copy)]
pub struct BuiltRow<'r> {
    pub layout: &'r OperationLayout,
    /// [`OperationLayout::open_bytes`] of them. What slices hold is not valid before the row is in a batch.
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
            let slice = row.layout.cell_mut(&mut self.rows[start..], *column);
            slice[..8].copy_from_slice(&(self.indirect.len() as u64).to_le_bytes());
            slice[8..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            self.indirect.extend_from_slice(bytes);
        }
        if row.values < row.layout.columns().len() {
            let end = row.layout.close_up(&mut self.rows[start..]);
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
        let strings: usize = self.strings.iter().map(|(_, bytes)| bytes.len()).sum();
        let cells = match self.values == self.layout.columns().len() {
            true => self.layout.open_bytes(),
            false => self.layout.closed_bytes(self.cells),
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
