//! Reads row operations where they lie: no byte of a row is copied.
//!
//! Each operation is decoded in one pass over its columns into a list of values that borrow from the request; the
//! list is the reader's and used again for the next one, so a request of any number of rows costs one allocation.

use super::{OperationLayout, OperationType, bit};
use crate::cell::{lies_outside, read_cell};
use oribi_types::{Error, Result, ValueRef};

/// Reads the operations of a request, one after the other.
///
/// After the end or an error it stays exhausted. A row that has a value which its column cannot hold is no such error to
/// [`read_row`](Self::read_row): it is known where the next one begins.
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

/// An operation that sets every column to a value.
#[derive(Clone, Copy, Debug)]
pub struct WholeOperation<'a> {
    /// Position in the request.
    pub index: usize,
    pub operation_type: OperationType,
    pub bytes: &'a [u8],
}

/// An operation that cannot be, whatever is stored; those around it can.
#[derive(Clone, Debug)]
pub struct BadRow {
    /// Position in the request.
    pub index: usize,
    /// `Invalid`, naming the column.
    pub error: Error,
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
    pub fn read(&mut self) -> Result<Option<RowOperation<'_, 'a>>> {
        let Some((index, operation_type, fault)) = self.advance()? else { return Ok(None) };
        if let Some(error) = fault {
            self.rows = &[];
            return Err(error.context(format_args!("row {index}")));
        }
        Ok(Some(RowOperation { index, operation_type, values: &self.values }))
    }

    /// As [`read`](Self::read), but a row with a value that its column cannot hold (no UTF-8, too many digits, null where
    /// none may be) is passed over and told of, as Kudu does it.
    ///
    /// # Errors
    /// `Invalid`, naming the row and the column, for an operation that is cut short, of an unknown type, or with a string
    /// that is not in the indirect data.
    #[inline]
    pub fn read_row(&mut self) -> Result<Option<Result<RowOperation<'_, 'a>, BadRow>>> {
        let Some((index, operation_type, fault)) = self.advance()? else { return Ok(None) };
        Ok(Some(match fault {
            None => Ok(RowOperation { index, operation_type, values: &self.values }),
            Some(error) => Err(BadRow { index, error }),
        }))
    }

    /// The next operation, if it is *whole*: if it sets every column to a value, so that each cell is where the layout
    /// [has it](OperationLayout::cell). It is not read by this: see [`pass_whole`](Self::pass_whole).
    #[inline]
    pub fn peek_whole(&self) -> Option<WholeOperation<'a>> {
        let bytes = self.rows.get(..self.layout.open_bytes())?;
        let operation_type = OperationType::from_byte(bytes[0])?;
        let is_whole = bytes[1..].starts_with(&self.layout.whole_bitmaps);
        is_whole.then_some(WholeOperation { index: self.read, operation_type, bytes })
    }

    /// Goes on behind the operation that [`peek_whole`](Self::peek_whole) has shown.
    #[inline]
    pub fn pass_whole(&mut self, whole: &WholeOperation<'a>) {
        self.rows = &self.rows[whole.bytes.len()..];
        self.read += 1;
    }

    /// Decodes the next operation: its position, its type, and the first value that cannot be.
    #[inline]
    fn advance(&mut self) -> Result<Option<(usize, OperationType, Option<Error>)>> {
        if self.rows.is_empty() {
            return Ok(None);
        }
        let index = self.read;
        match self.decode() {
            Ok((operation_type, fault)) => {
                self.read += 1;
                Ok(Some((index, operation_type, fault)))
            }
            Err(error) => {
                self.rows = &[];
                Err(error.context(format_args!("row {index}")))
            }
        }
    }

    fn decode(&mut self) -> Result<(OperationType, Option<Error>)> {
        let layout = self.layout;
        let (header, mut rest) = self
            .rows
            .split_at_checked(layout.header_bytes)
            .ok_or_else(|| Error::invalid("cut short in its header"))?;
        let operation_type = OperationType::from_byte(header[0])
            .ok_or_else(|| Error::invalid(format!("unknown operation type {}", header[0])))?;
        let (isset, nulls) = header[1..].split_at(layout.bitmap_bytes);
        let mut fault = None;
        self.values.clear();
        for (i, (column, place)) in layout.columns.iter().zip(&layout.places).enumerate() {
            let value = if !bit(isset, i) {
                None
            } else if layout.has_null_bitmap && bit(nulls, i) {
                if !column.nullable {
                    let null = Error::invalid("null in a column that is not nullable");
                    fault.get_or_insert_with(|| in_column(layout, i, null));
                }
                Some(ValueRef::Null)
            } else {
                let (cell, after) = rest
                    .split_at_checked(place.cell_bytes as usize)
                    .ok_or_else(|| in_column(layout, i, Error::invalid("cut short")))?;
                rest = after;
                match read_cell(column.column_type, cell, self.indirect) {
                    Ok(value) => Some(value),
                    Err(error) if lies_outside(column.column_type, cell, self.indirect) => {
                        return Err(in_column(layout, i, error));
                    }
                    Err(error) => {
                        fault.get_or_insert_with(|| in_column(layout, i, error));
                        None
                    }
                }
            };
            self.values.push(value);
        }
        self.rows = rest;
        Ok((operation_type, fault))
    }
}

#[cold]
fn in_column(layout: &OperationLayout, i: usize, error: Error) -> Error {
    error.context(format_args!("column \"{}\"", layout.columns[i].name))
}
