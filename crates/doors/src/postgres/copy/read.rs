//! `COPY … FROM STDIN`: bytes in pieces of any size to Arrow batches.
//!
//! The rules are PostgreSQL's: in text, a backslash escapes and `\.` alone on a line ends the data; in CSV, what is
//! quoted may contain line breaks and is never null.

use crate::postgres::error::{bad_copy, invalid_text};
use crate::postgres::types::column_type;
use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use oribi_session::sql::{CopyFormat, CopyStatement, SqlError};
use oribi_types::batch::ColumnBuilder;
use oribi_types::{ColumnType, Error, ErrorKind, ValueRef, text};

/// A batch is handed on when it has this many rows or was made of this many bytes.
const BATCH_ROWS: usize = 8192;
const BATCH_BYTES: usize = 4 << 20;

pub struct CopyReader {
    lines: Lines,
    options: CopyStatement,
    schema: SchemaRef,
    types: Vec<ColumnType>,
    builders: Vec<ColumnBuilder>,
    rows: usize,
    bytes: usize,
    skip_header: bool,
    /// Of the line being read: its fields, unescaped, one behind the other.
    field_bytes: Vec<u8>,
    fields: Vec<Field>,
}

/// Where a field ends in `field_bytes`, and whether it is null.
struct Field {
    end: usize,
    null: bool,
}

impl CopyReader {
    /// Reads rows with the columns of `schema`; a row may have at most `row_bytes_max`.
    ///
    /// # Errors
    /// `Unsupported` for columns of types without text.
    pub fn new(options: &CopyStatement, schema: &SchemaRef, row_bytes_max: usize) -> Result<Self, SqlError> {
        let types = schema.fields().iter().map(|f| column_type(f)).collect::<Result<Vec<_>, _>>()?;
        Ok(CopyReader {
            lines: Lines::new(options, row_bytes_max),
            options: options.clone(),
            schema: schema.clone(),
            builders: types.iter().map(|t| ColumnBuilder::new(*t)).collect(),
            types,
            rows: 0,
            bytes: 0,
            skip_header: options.header,
            field_bytes: Vec::new(),
            fields: Vec::new(),
        })
    }

    /// Takes what the client sent next; [`next_batch`](Self::next_batch) has been called until it gave `None`.
    pub fn feed(&mut self, data: &[u8]) {
        self.lines.feed(data);
    }

    /// A full batch, if what was fed so far makes one.
    ///
    /// # Errors
    /// `Invalid`, naming line and column.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        while self.next_row(false)? {
            if self.rows == BATCH_ROWS || self.bytes >= BATCH_BYTES {
                return self.take_batch().map(Some);
            }
        }
        Ok(None)
    }

    /// The rows that are left, after the client has sent everything.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch).
    pub fn finish(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        while self.next_row(true)? {}
        if self.rows == 0 { Ok(None) } else { self.take_batch().map(Some) }
    }

    /// Reads a line into the builders; `false` if there is no whole one.
    fn next_row(&mut self, last: bool) -> Result<bool, SqlError> {
        let Some(line) = self.lines.next(last)? else { return Ok(false) };
        if std::mem::take(&mut self.skip_header) {
            return Ok(true);
        }
        self.bytes += line.len();
        self.field_bytes.clear();
        self.fields.clear();
        match self.options.format {
            CopyFormat::Text => split_text(line, &self.options, &mut self.field_bytes, &mut self.fields),
            CopyFormat::Csv => split_csv(line, &self.options, &mut self.field_bytes, &mut self.fields),
        }
        self.push_row().map_err(|mut error| {
            error.error = error.error.context(format!("line {}", self.lines.number));
            error
        })?;
        self.rows += 1;
        Ok(true)
    }

    fn push_row(&mut self) -> Result<(), SqlError> {
        if self.fields.len() > self.types.len() {
            return Err(bad_copy("extra data after last expected column"));
        }
        if let Some(missing) = self.schema.fields().get(self.fields.len()) {
            return Err(bad_copy(format!("missing data for column \"{}\"", missing.name())));
        }
        let mut start = 0;
        for (i, field) in self.fields.iter().enumerate() {
            let bytes = &self.field_bytes[start..field.end];
            start = field.end;
            if field.null {
                self.builders[i].push(ValueRef::Null);
                continue;
            }
            let named = |error: Error| error.context(format!("column \"{}\"", self.schema.field(i).name()));
            let value = std::str::from_utf8(bytes).map_err(|_| {
                invalid_text(named(Error::invalid("invalid byte sequence for encoding \"UTF8\"")))
            })?;
            match self.types[i] {
                ColumnType::String => self.builders[i].push(ValueRef::String(value)),
                other => {
                    let value = text::parse_sql(other, value).map_err(|e| invalid_text(named(e)))?;
                    self.builders[i].push(value.as_ref());
                }
            }
        }
        Ok(())
    }

    fn take_batch(&mut self) -> Result<RecordBatch, SqlError> {
        (self.rows, self.bytes) = (0, 0);
        let fields = self.schema.fields().iter();
        let columns =
            self.builders.iter_mut().zip(&self.types).zip(fields).map(|((builder, column_type), field)| {
                let column = builder.finish(*column_type)?;
                if column.data_type() == field.data_type() {
                    Ok(column)
                } else {
                    Ok(cast(&column, field.data_type())?)
                }
            });
        let columns = columns.collect::<Result<Vec<_>, Error>>()?;
        // Nulls in columns that forbid them are the sink's to refuse, by the constraint's name.
        let fields = self.schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
        let schema = arrow::datatypes::Schema::new(fields.collect::<Vec<_>>());
        let batch = RecordBatch::try_new(schema.into(), columns).map_err(Error::from)?;
        Ok(batch)
    }
}

/// Cuts the data into lines.
struct Lines {
    data: Vec<u8>,
    /// Where the next line begins, and how far it has been looked at.
    start: usize,
    seen: usize,
    quoted: bool,
    csv: Option<(u8, u8)>,
    /// The line last returned, counted from 1.
    number: u64,
    /// After `\.`.
    ended: bool,
    row_bytes_max: usize,
}

impl Lines {
    fn new(options: &CopyStatement, row_bytes_max: usize) -> Self {
        let csv = (options.format == CopyFormat::Csv).then_some((options.quote, options.escape));
        Lines {
            data: Vec::new(),
            start: 0,
            seen: 0,
            quoted: false,
            csv,
            number: 0,
            ended: false,
            row_bytes_max,
        }
    }

    fn feed(&mut self, data: &[u8]) {
        self.data.drain(..self.start);
        self.seen -= self.start;
        self.start = 0;
        if !self.ended {
            self.data.extend_from_slice(data);
        }
    }

    /// The next line without its end; with `last`, also one that the data ends without.
    fn next(&mut self, last: bool) -> Result<Option<&[u8]>, SqlError> {
        if self.ended {
            return Ok(None);
        }
        let (end, next) = match self.line_end(last) {
            Some(end) => (end, end + 1),
            None if last && self.start < self.data.len() => (self.data.len(), self.data.len()),
            None if self.data.len() - self.start > self.row_bytes_max => {
                return Err(SqlError::new(
                    ErrorKind::TooLarge,
                    format!(
                        "line {}: longer than the limit of {} bytes",
                        self.number + 1,
                        self.row_bytes_max
                    ),
                ));
            }
            None => return Ok(None),
        };
        if self.quoted {
            return Err(bad_copy(format!("line {}: unterminated CSV quoted field", self.number + 1)));
        }
        let start = std::mem::replace(&mut self.start, next);
        self.seen = next;
        self.number += 1;
        let line = &self.data[start..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.ended = line == b"\\.";
        Ok(if self.ended { None } else { Some(line) })
    }

    /// The line break that ends the line at `start`, if it is there: the first that is neither escaped nor quoted.
    fn line_end(&mut self, last: bool) -> Option<usize> {
        while let Some(&byte) = self.data.get(self.seen) {
            let mut step = 1;
            match (self.csv, byte) {
                (None, b'\\') => step = 2,
                (Some((quote, escape)), _) if self.quoted && byte == escape && escape != quote => step = 2,
                (Some((quote, _)), _) if byte == quote => self.quoted = !self.quoted,
                (_, b'\n') if !self.quoted => return Some(self.seen),
                _ => {}
            }
            // The byte behind an escape decides nothing, but it must have come.
            if step == 2 && self.seen + 1 >= self.data.len() && !last {
                return None;
            }
            self.seen += step;
        }
        self.seen = self.seen.min(self.data.len());
        None
    }
}

/// Splits a line of text format.
fn split_text(line: &[u8], options: &CopyStatement, out: &mut Vec<u8>, fields: &mut Vec<Field>) {
    let mut at = 0;
    loop {
        let begin = at;
        let start = out.len();
        while at < line.len() && line[at] != options.delimiter {
            if line[at] == b'\\' && at + 1 < line.len() {
                at += 1 + unescape(&line[at + 1..], out);
            } else {
                out.push(line[at]);
                at += 1;
            }
        }
        // Null is told from the text that spells it by what was sent, before escapes.
        let null = line[begin..at] == *options.null.as_bytes();
        if null {
            out.truncate(start);
        }
        fields.push(Field { end: out.len(), null });
        if at == line.len() {
            return;
        }
        at += 1;
    }
}

/// Appends what the escape sequence behind a backslash stands for; returns its length.
fn unescape(sequence: &[u8], out: &mut Vec<u8>) -> usize {
    let digits = |from: usize, max: usize, radix: u32| {
        sequence[from..].iter().take(max).take_while(|b| (**b as char).is_digit(radix)).count()
    };
    let number = |range: std::ops::Range<usize>, radix: u32| {
        sequence[range].iter().fold(0_u32, |n, b| n * radix + (*b as char).to_digit(radix).unwrap_or(0)) as u8
    };
    let single = match sequence[0] {
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'0'..=b'7' => {
            let length = digits(0, 3, 8);
            out.push(number(0..length, 8));
            return length;
        }
        b'x' if digits(1, 2, 16) > 0 => {
            let length = 1 + digits(1, 2, 16);
            out.push(number(1..length, 16));
            return length;
        }
        other => other,
    };
    out.push(single);
    1
}

/// Splits a line of CSV, whose quotes are known to be balanced.
fn split_csv(line: &[u8], options: &CopyStatement, out: &mut Vec<u8>, fields: &mut Vec<Field>) {
    let (quote, escape) = (options.quote, options.escape);
    let mut bytes = line.iter().copied().peekable();
    loop {
        let start = out.len();
        let (mut quoted, mut inside) = (false, false);
        let mut more = false;
        while let Some(byte) = bytes.next() {
            let escaped =
                inside && byte == escape && bytes.peek().is_some_and(|n| *n == quote || *n == escape);
            if escaped {
                out.extend(bytes.next());
            } else if byte == quote {
                (quoted, inside) = (true, !inside);
            } else if byte == options.delimiter && !inside {
                more = true;
                break;
            } else {
                out.push(byte);
            }
        }
        let null = !quoted && out[start..] == *options.null.as_bytes();
        if null {
            out.truncate(start);
        }
        fields.push(Field { end: out.len(), null });
        if !more {
            return;
        }
    }
}
