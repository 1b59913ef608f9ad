//! Reads row operations where they lie: no byte of a row is copied.
//!
//! Each operation is decoded in one pass over its columns into a list of values that borrow from the request; the
//! list is the reader's and used again for the next one, so a request of any number of rows costs one allocation.

use super::{OperationLayout, OperationType, bit};
use crate::cell::read_cell;
use oribi_types::{Error, Result, ValueRef};

/// Reads the operations of a request, one after the other.
///
/// After the end or an error it stays exhausted.
pub struct OperationReader<'l, 'a> {
    layout: &'l OperationLayout,
    rows: &'a [u8],
    indirect: &'a [u8],
    /// Operations read.
    read: usize,
    values: Vec<Option<ValueRef<'a>>>,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct RowOperation<'r, 'a> {
    /// Position in the request: what an error about the row is reported by.
    pub index: usize,
    pub operation_type: OperationType,
    /// By column: `None` if the operation does not set it, which differs from setting it to null.
    pub values: &'r [Option<ValueRef<'a>>],
}

impl<'l, 'a> OperationReader<'l, 'a> {
    /// A reader of `rows` and the `indirect` data that came with them.
    pub fn new(layout: &'l OperationLayout, rows: &'a [u8], indirect: &'a [u8]) -> Self {
        let values = Vec::with_capacity(layout.columns.len());
        OperationReader { layout, rows, indirect, read: 0, values }
    }

    pub fn layout(&self) -> &'l OperationLayout {
        self.layout
    }

    /// The next operation, or `None` after the last.
    ///
    /// # Errors
    /// `Invalid`, naming the row and the column, for an operation that is cut short, of an unknown type, or with a cell
    /// that its column cannot hold.
    #[inline]
    pub fn read(&mut self) -> Result<Option<RowOperation<'_, 'a>>> {
        if self.rows.is_empty() {
            return Ok(None);
        }
        let index = self.read;
        match self.decode() {
            Ok(operation_type) => {
                self.read += 1;
                Ok(Some(RowOperation { index, operation_type, values: &self.values }))
            }
            Err(error) => {
                self.rows = &[];
                Err(error.context(format_args!("row {index}")))
            }
        }
    }

    fn decode(&mut self) -> Result<OperationType> {
        let layout = self.layout;
        let (header, mut rest) = self
            .rows
            .split_at_checked(layout.header_bytes)
            .ok_or_else(|| Error::invalid("cut short in its header"))?;
        let operation_type = OperationType::from_byte(header[0])
            .ok_or_else(|| Error::invalid(format!("unknown operation type {}", header[0])))?;
        let (isset, nulls) = header[1..].split_at(layout.bitmap_bytes);
        self.values.clear();
        for (i, (column, place)) in layout.columns.iter().zip(&layout.places).enumerate() {
            let value = if !bit(isset, i) {
                None
            } else if layout.has_null_bitmap && bit(nulls, i) {
                if !column.nullable {
                    return Err(in_column(
                        layout,
                        i,
                        Error::invalid("null in a column that is not nullable"),
                    ));
                }
                Some(ValueRef::Null)
            } else {
                let (cell, after) = rest
                    .split_at_checked(place.cell_bytes as usize)
                    .ok_or_else(|| in_column(layout, i, Error::invalid("cut short")))?;
                rest = after;
                let value = read_cell(column.column_type, cell, self.indirect);
                Some(value.map_err(|error| in_column(layout, i, error))?)
            };
            self.values.push(value);
        }
        self.rows = rest;
        Ok(operation_type)
    }
}

#[cold]
fn in_column(layout: &OperationLayout, i: usize, error: Error) -> Error {
    error.context(format_args!("column \"{}\"", layout.columns[i].name))
}
