//! `COPY … TO STDOUT`: one `CopyData` message per row, as clients expect.

use crate::postgres::encode::Column;
use crate::postgres::row::close_frame;
use crate::postgres::wire::{OUT_BYTES, Wire};
use arrow::datatypes::Schema;
use oribi_session::sql::{CopyFormat, CopyStatement, SqlError};
use pgwire::messages::copy::MESSAGE_TYPE_BYTE_COPY_DATA;

pub struct CopyWriter<'a> {
    options: &'a CopyStatement,
}

impl<'a> CopyWriter<'a> {
    pub fn new(options: &'a CopyStatement) -> Self {
        CopyWriter { options }
    }

    /// Appends the line of column names, if the statement asks for one.
    pub fn put_header(&self, schema: &Schema, wire: &mut Wire) -> Result<(), SqlError> {
        if !self.options.header {
            return Ok(());
        }
        self.put_line(schema.fields().len(), wire, |i, out| {
            out.extend_from_slice(schema.field(i).name().as_bytes());
            Ok(true)
        })
    }

    /// Appends rows from `row` on until the output is large; returns the row to go on with.
    pub fn put_rows(
        &self,
        columns: &[Column],
        mut row: usize,
        end: usize,
        wire: &mut Wire,
    ) -> Result<usize, SqlError> {
        while row < end && wire.out.len() < OUT_BYTES {
            self.put_line(columns.len(), wire, |i, out| {
                if columns[i].is_null(row) {
                    return Ok(false);
                }
                columns[i].write(row, out).map(|()| true)
            })?;
            row += 1;
        }
        Ok(row)
    }

    /// Appends a line of `fields` fields; `write` says whether it wrote one: `false` is null.
    fn put_line(
        &self,
        fields: usize,
        wire: &mut Wire,
        mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<bool, SqlError>,
    ) -> Result<(), SqlError> {
        let frame = wire.out.len();
        let out = &mut wire.out;
        out.extend_from_slice(&[MESSAGE_TYPE_BYTE_COPY_DATA, 0, 0, 0, 0]);
        for i in 0..fields {
            if i > 0 {
                out.push(self.options.delimiter);
            }
            let start = out.len();
            match write(i, out) {
                Ok(true) => self.escape(start, fields == 1, out),
                Ok(false) => out.extend_from_slice(self.options.null.as_bytes()),
                Err(error) => {
                    out.truncate(frame);
                    return Err(error);
                }
            }
        }
        out.push(b'\n');
        close_frame(frame, &mut wire.out)
    }

    /// Escapes or quotes the field that begins at `start` of `out`, if it could be read as anything but itself.
    fn escape(&self, start: usize, only_field: bool, out: &mut Vec<u8>) {
        let field = &out[start..];
        match self.options.format {
            CopyFormat::Text => {
                let special = |b: u8| b == self.options.delimiter || text_escape(b).is_some();
                if !field.iter().copied().any(special) {
                    return;
                }
                for byte in out.split_off(start) {
                    if special(byte) {
                        out.push(b'\\');
                    }
                    out.push(text_escape(byte).unwrap_or(byte));
                }
            }
            CopyFormat::Csv => {
                let (quote, escape) = (self.options.quote, self.options.escape);
                let special =
                    |b: &u8| *b == self.options.delimiter || *b == quote || matches!(*b, b'\n' | b'\r');
                let ambiguous = field == self.options.null.as_bytes() || (only_field && field == b"\\.");
                if !ambiguous && !field.iter().any(special) {
                    return;
                }
                let field = out.split_off(start);
                out.push(quote);
                for byte in field {
                    if byte == quote || byte == escape {
                        out.push(escape);
                    }
                    out.push(byte);
                }
                out.push(quote);
            }
        }
    }
}

/// The letter that stands for a byte behind a backslash.
fn text_escape(byte: u8) -> Option<u8> {
    Some(match byte {
        b'\\' => b'\\',
        8 => b'b',
        12 => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        11 => b'v',
        _ => return None,
    })
}
