//! Builds row operations in wire order.
//!
//! A batch is two byte strings that grow at their ends: what is sent is what was built, and to take the batch down is
//! to free two blocks, however many operations it has. Appending an operation allocates nothing of its own; the byte
//! strings double when they are full, so a batch with the capacity of its buffer limit never allocates again.

use super::{Cells, OperationLayout, OperationType};
use crate::cell::SLICE_BYTES;
use crate::column::WireColumn;
use oribi_types::Result;
use std::sync::Arc;

/// The operations of one request, as they will be sent.
#[derive(Clone, Debug)]
pub struct OperationsBuilder {
    layout: Arc<OperationLayout>,
    rows: Vec<u8>,
    indirect: Vec<u8>,
    operations: usize,
}

impl OperationsBuilder {
    pub fn new(layout: Arc<OperationLayout>) -> Self {
        OperationsBuilder { layout, rows: Vec::new(), indirect: Vec::new(), operations: 0 }
    }

    pub fn with_capacity(layout: Arc<OperationLayout>, rows_bytes: usize, indirect_bytes: usize) -> Self {
        let (rows, indirect) = (Vec::with_capacity(rows_bytes), Vec::with_capacity(indirect_bytes));
        OperationsBuilder { layout, rows, indirect, operations: 0 }
    }

    /// Begins an operation that sets no column yet. It counts once [`finish`](OperationWriter::finish) is called; a
    /// writer that is dropped before leaves the builder as it was.
    #[inline]
    pub fn begin(&mut self, operation_type: OperationType) -> OperationWriter<'_> {
        let (start, indirect_start) = (self.rows.len(), self.indirect.len());
        // All cells get their place, so that columns may be set in any order; those that stay unset are closed up at
        // the end.
        self.rows.resize(start + self.layout.open_bytes(), 0);
        self.rows[start] = operation_type as u8;
        OperationWriter { builder: self, start, indirect_start, cells: 0, finished: false }
    }

    /// The encoded operations, without the strings.
    pub fn rows(&self) -> &[u8] {
        &self.rows
    }

    /// The strings that the operations name.
    pub fn indirect(&self) -> &[u8] {
        &self.indirect
    }

    /// Bytes of both, as they will be sent.
    pub fn bytes(&self) -> usize {
        self.rows.len() + self.indirect.len()
    }

    /// Operations in it.
    pub fn len(&self) -> usize {
        self.operations
    }

    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    pub fn layout(&self) -> &Arc<OperationLayout> {
        &self.layout
    }

    /// Drops all operations and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.indirect.clear();
        self.operations = 0;
    }

    /// The two byte strings, `rows` and `indirect`.
    pub fn into_parts(self) -> (Vec<u8>, Vec<u8>) {
        (self.rows, self.indirect)
    }
}

/// One operation, whose columns are set as those of a [`PartialRow`](super::PartialRow).
pub struct OperationWriter<'b> {
    builder: &'b mut OperationsBuilder,
    /// Where the operation begins in `rows`, and its strings in `indirect`.
    start: usize,
    indirect_start: usize,
    /// Columns with a value that is not null.
    cells: usize,
    finished: bool,
}

impl OperationWriter<'_> {
    /// Adds the operation to the request.
    #[inline]
    pub fn finish(mut self) {
        let OperationsBuilder { layout, rows, .. } = &mut *self.builder;
        if self.cells < layout.columns.len() {
            let bytes = layout.close_up(&mut rows[self.start..]);
            rows.truncate(self.start + bytes);
        }
        self.builder.operations += 1;
        self.finished = true;
    }

    /// Takes the operation back, as dropping the writer does.
    pub fn abort(self) {}

    #[inline]
    fn copy_slice(&mut self, column: usize, bytes: &[u8]) {
        let mut cell = [0; SLICE_BYTES];
        cell[..8].copy_from_slice(&(self.builder.indirect.len() as u64).to_le_bytes());
        cell[8..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.builder.indirect.extend_from_slice(bytes);
        self.put(column, cell);
    }
}

impl<'v> Cells<'v> for OperationWriter<'_> {
    #[inline]
    fn column(&self, column: usize) -> Option<&WireColumn> {
        self.builder.layout.columns.get(column)
    }

    #[inline]
    fn put<const N: usize>(&mut self, column: usize, cell: [u8; N]) {
        let OperationsBuilder { layout, rows, .. } = &mut *self.builder;
        self.cells += usize::from(layout.put(&mut rows[self.start..], column, cell));
    }

    #[inline]
    fn put_slice(&mut self, column: usize, bytes: &'v [u8]) {
        self.copy_slice(column, bytes);
    }

    fn put_uuid(&mut self, column: usize, value: [u8; 16]) -> Result<()> {
        self.copy_slice(column, &value);
        Ok(())
    }

    fn put_null(&mut self, column: usize) {
        let OperationsBuilder { layout, rows, .. } = &mut *self.builder;
        self.cells -= usize::from(layout.put_null(&mut rows[self.start..], column));
    }
}

impl Drop for OperationWriter<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.finished {
            self.builder.rows.truncate(self.start);
            self.builder.indirect.truncate(self.indirect_start);
        }
    }
}
