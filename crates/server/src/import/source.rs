//! Files as batches of a table's rows: CSV, Parquet and JSON lines.

use crate::import::fitting::{Fitting, stored, stored_arrow};
use crate::import::rejects::Rejects;
use arrow::array::RecordBatch;
use oribi_types::batch::ColumnBuilder;
use oribi_types::{Error, Result, Schema, Value, json, text};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

const BATCH_ROWS: usize = 8192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Csv,
    JsonLines,
    Parquet,
}

pub fn format_of(path: &Path) -> Result<Format> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("csv") => Ok(Format::Csv),
        Some("json" | "jsonl" | "ndjson") => Ok(Format::JsonLines),
        Some("parquet") => Ok(Format::Parquet),
        _ => Err(Error::invalid(format!("{}: is not called .csv, .parquet or .jsonl", path.display()))),
    }
}

pub fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|e| Error::from(e).context(path.display()))
}

/// Reads `path` as rows of `schema`: batches of its stored columns, in order, and how many bytes of the file are
/// read so far. Rows that do not fit go to `rejects`.
///
/// # Errors
/// `Invalid` for a file that cannot be read on, or whose columns the table does not have; those of `each`.
pub fn read(
    path: &Path,
    schema: &Schema,
    rejects: &mut Rejects,
    each: &mut dyn FnMut(RecordBatch, u64) -> Result<()>,
) -> Result<()> {
    let result = match format_of(path)? {
        Format::Parquet => read_parquet(path, schema, rejects, each),
        Format::Csv => read_csv(path, schema, rejects, each),
        Format::JsonLines => read_json_lines(path, schema, rejects, each),
    };
    result.map_err(|e| e.context(path.display()))
}

fn read_parquet(
    path: &Path,
    schema: &Schema,
    rejects: &mut Rejects,
    each: &mut dyn FnMut(RecordBatch, u64) -> Result<()>,
) -> Result<()> {
    let invalid = |e: &dyn std::fmt::Display| Error::invalid(e.to_string());
    let file = open(path)?;
    let bytes = file.metadata()?.len();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| invalid(&e))?;
    let rows = reader.metadata().file_metadata().num_rows().max(1) as u64;
    let fitting = Fitting::new(schema, reader.schema())?;
    let mut read = 0;
    for batch in reader.with_batch_size(BATCH_ROWS).build().map_err(|e| invalid(&e))? {
        let batch = batch.map_err(|e| invalid(&e))?;
        let fitted = fitting.fit(&batch, read + 1, rejects)?;
        read += batch.num_rows() as u64;
        if fitted.num_rows() > 0 {
            each(fitted, (u128::from(bytes) * u128::from(read) / u128::from(rows)) as u64)?;
        }
    }
    Ok(())
}

/// Gathers rows into batches.
struct Rows<'s> {
    schema: &'s Schema,
    builders: Vec<(usize, ColumnBuilder)>,
    rows: usize,
}

impl<'s> Rows<'s> {
    fn new(schema: &'s Schema) -> Self {
        let builders =
            stored(schema).map(|(i, column)| (i, ColumnBuilder::new(column.column_type))).collect();
        Rows { schema, builders, rows: 0 }
    }

    fn push(&mut self, values: &[Value]) {
        for (i, builder) in &mut self.builders {
            builder.push(values[*i].as_ref());
        }
        self.rows += 1;
    }

    fn take(&mut self) -> Result<Option<RecordBatch>> {
        if self.rows == 0 {
            return Ok(None);
        }
        self.rows = 0;
        let columns = self
            .builders
            .iter_mut()
            .map(|(i, builder)| builder.finish(self.schema.columns()[*i].column_type))
            .collect::<Result<Vec<_>>>()?;
        Ok(Some(RecordBatch::try_new(stored_arrow(self.schema), columns)?))
    }
}

/// The records of a CSV file behind its header, those that are malformed among them.
pub struct CsvRecords {
    reader: csv::Reader<io::Chain<io::Take<File>, &'static [u8]>>,
    header: csv::StringRecord,
    record: csv::StringRecord,
    bytes: u64,
}

/// Why a record is no row, and what can be shown of it.
pub struct Malformed {
    pub reason: String,
    pub text: String,
}

/// A record behind the last: a quote that was never closed takes it in with all before it.
const LAST_RECORD: &[u8] = b"\nlast\n";

impl CsvRecords {
    /// # Errors
    /// Those of opening the file; `Invalid` for a header that cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        let text = file.take(bytes).chain(LAST_RECORD);
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text);
        let header = reader.headers().map_err(|e| Error::invalid(e.to_string()))?.clone();
        if reader.position().byte() > bytes + 1 {
            return Err(Error::invalid("there is no header, or a quote in it is not closed"));
        }
        Ok(CsvRecords { reader, header, record: csv::StringRecord::new(), bytes })
    }

    pub fn header(&self) -> &csv::StringRecord {
        &self.header
    }

    /// How many bytes of the file were read.
    pub fn position(&self) -> u64 {
        self.reader.position().byte().min(self.bytes)
    }

    /// The next record and its line.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn read(&mut self) -> Result<Option<(u64, Result<&csv::StringRecord, Malformed>)>> {
        let line = self.reader.position().line();
        let malformed = |reason: String, text| Ok(Some((line, Err(Malformed { reason, text }))));
        match self.reader.read_record(&mut self.record) {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(error) if matches!(error.kind(), csv::ErrorKind::Utf8 { .. }) => {
                return malformed(error.to_string(), String::new());
            }
            Err(error) => return Err(Error::invalid(error.to_string())),
        }
        let (found, wanted) = (self.record.len(), self.header.len());
        if self.reader.position().byte() > self.bytes + 1 {
            let is_last = found == 1 && &self.record[0] == "last";
            return match is_last {
                true => Ok(None),
                false => malformed("a quote is not closed".into(), csv_text(&self.record)),
            };
        }
        if found != wanted {
            return malformed(format!("{found} fields, not {wanted}"), csv_text(&self.record));
        }
        Ok(Some((line, Ok(&self.record))))
    }
}

fn read_csv(
    path: &Path,
    schema: &Schema,
    rejects: &mut Rejects,
    each: &mut dyn FnMut(RecordBatch, u64) -> Result<()>,
) -> Result<()> {
    let mut records = CsvRecords::open(path)?;
    let position = |name: &str| {
        let position = schema.position(name);
        position.ok_or_else(|| Error::not_found(format!("column \"{name}\" does not exist in the table")))
    };
    let positions = records.header().iter().map(position).collect::<Result<Vec<_>>>()?;
    let mut rows = Rows::new(schema);
    while let Some((line, record)) = records.read()? {
        match record {
            Ok(record) => match csv_row(schema, &positions, record) {
                Ok(values) => rows.push(&values),
                Err(error) => rejects.add(line, error.message(), &csv_text(record))?,
            },
            Err(Malformed { reason, text }) => rejects.add(line, &reason, &text)?,
        }
        if rows.rows == BATCH_ROWS
            && let Some(batch) = rows.take()?
        {
            each(batch, records.position())?;
        }
    }
    match rows.take()? {
        Some(batch) => each(batch, records.position()),
        None => Ok(()),
    }
}

/// A row of a CSV file. An empty field is null.
fn csv_row(schema: &Schema, positions: &[usize], record: &csv::StringRecord) -> Result<Vec<Value>> {
    let mut members: Vec<Option<Value>> = vec![None; schema.columns().len()];
    for (&position, field) in positions.iter().zip(record) {
        let column = &schema.columns()[position];
        let value = match field {
            "" => Value::Null,
            field => text::parse(column.column_type, field)
                .map_err(|e| e.context(format!("column \"{}\"", column.name)))?,
        };
        members[position] = Some(value);
    }
    json::complete(schema, members)
}

fn csv_text(record: &csv::StringRecord) -> String {
    let mut line = Vec::new();
    let fields: Vec<_> = record.iter().map(Some).collect();
    crate::sql::write_csv_line(&mut line, &fields).expect("a vector takes all that is written");
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

fn read_json_lines(
    path: &Path,
    schema: &Schema,
    rejects: &mut Rejects,
    each: &mut dyn FnMut(RecordBatch, u64) -> Result<()>,
) -> Result<()> {
    let mut reader = BufReader::new(open(path)?);
    let mut rows = Rows::new(schema);
    let (mut line, mut number, mut bytes) = (Vec::new(), 0, 0);
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        number += 1;
        bytes += read as u64;
        if !line.trim_ascii().is_empty() {
            match json::read_row(schema, line.trim_ascii()) {
                Ok(values) => rows.push(&values),
                Err(error) => {
                    rejects.add(
                        number,
                        error.message(),
                        String::from_utf8_lossy(line.trim_ascii()).as_ref(),
                    )?;
                }
            }
        }
        if (rows.rows == BATCH_ROWS || read == 0)
            && let Some(batch) = rows.take()?
        {
            each(batch, bytes)?;
        }
        if read == 0 {
            return Ok(());
        }
    }
}
