//! The columns of a file, for a table that does not exist: those that it declares, or those that its first rows suggest. A row
//! that is malformed suggests nothing; it is refused when it is read.

use crate::import::source::{CsvRecords, Format, format_of, open};
use crate::sql::write_csv_line;
use arrow::datatypes::Fields;
use oribi_types::schema::{ColumnSpec, TYPE_METADATA};
use oribi_types::{ColumnType, Error, Result};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

/// Rows from which types are inferred.
const INFERENCE_ROWS: usize = 10_000;

/// The columns of a file.
///
/// # Errors
/// `Unsupported`, naming the column, for types that tables do not have; `Invalid` for a file that is not of its format,
/// or has no row that is.
pub fn infer(path: &Path) -> Result<Vec<ColumnSpec>> {
    let columns = match format_of(path)? {
        Format::Parquet => declared(path),
        Format::Csv => suggested_by_csv(path),
        Format::JsonLines => suggested_by_json_lines(path),
    };
    columns.map_err(|e| e.context(path.display()))
}

fn declared(path: &Path) -> Result<Vec<ColumnSpec>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(open(path)?);
    specs(reader.map_err(|e| Error::invalid(e.to_string()))?.schema().fields(), false)
}

fn suggested_by_csv(path: &Path) -> Result<Vec<ColumnSpec>> {
    let records = CsvRecords::open(path)?;
    let mut text = Vec::new();
    write_csv_line(&mut text, &records.header().iter().map(Some).collect::<Vec<_>>())?;
    let rows = WellFormed { records, text, read: 0 };
    let format = arrow::csv::reader::Format::default().with_header(true);
    let inferred = format.infer_schema(rows, Some(INFERENCE_ROWS));
    specs(inferred.map_err(|e| Error::invalid(e.to_string()))?.0.fields(), true)
}

/// The text of a CSV file without its malformed records.
struct WellFormed {
    records: CsvRecords,
    /// Of the record at hand, of which `read` bytes were read.
    text: Vec<u8>,
    read: usize,
}

impl Read for WellFormed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.text.len() {
            match self.records.read().map_err(io::Error::other)? {
                None => return Ok(0),
                Some((_, Err(_))) => {}
                Some((_, Ok(record))) => {
                    let fields = record.iter().map(|field| Some(field).filter(|field| !field.is_empty()));
                    self.text.clear();
                    self.read = 0;
                    write_csv_line(&mut self.text, &fields.collect::<Vec<_>>())?;
                }
            }
        }
        let len = buffer.len().min(self.text.len() - self.read);
        buffer[..len].copy_from_slice(&self.text[self.read..][..len]);
        self.read += len;
        Ok(len)
    }
}

fn suggested_by_json_lines(path: &Path) -> Result<Vec<ColumnSpec>> {
    let mut reader = BufReader::new(open(path)?);
    let (mut names, mut kinds) = (Vec::new(), HashMap::<String, Kind>::new());
    let (mut line, mut rows) = (Vec::new(), 0);
    while rows < INFERENCE_ROWS && reader.read_until(b'\n', &mut line)? > 0 {
        if let Ok(Value::Object(row)) = serde_json::from_slice(&line) {
            rows += 1;
            for (name, value) in row {
                let kind = kinds.entry(name).or_insert_with_key(|name| {
                    names.push(name.clone());
                    Kind::Null
                });
                *kind = kind.or(Kind::of(&value));
            }
        }
        line.clear();
    }
    if names.is_empty() {
        return Err(Error::invalid("no line is a json object that names a column"));
    }
    let spec = |name: String| ColumnSpec::new(name.clone(), kinds[&name].column_type());
    Ok(names.into_iter().map(spec).collect())
}

/// What the values of a member have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Null,
    Bool,
    Integer,
    Number,
    Text,
    /// Some are arrays or objects.
    Any,
}

impl Kind {
    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Bool,
            Value::Number(number) if number.is_i64() => Kind::Integer,
            Value::Number(_) => Kind::Number,
            Value::String(_) => Kind::Text,
            Value::Array(_) | Value::Object(_) => Kind::Any,
        }
    }

    fn or(self, other: Self) -> Self {
        match (self, other) {
            (kind, same) if kind == same => kind,
            (kind, Kind::Null) | (Kind::Null, kind) => kind,
            (Kind::Any, _) | (_, Kind::Any) => Kind::Any,
            (Kind::Integer | Kind::Number, Kind::Integer | Kind::Number) => Kind::Number,
            _ => Kind::Text,
        }
    }

    fn column_type(self) -> ColumnType {
        match self {
            Kind::Bool => ColumnType::Bool,
            Kind::Integer => ColumnType::Int64,
            Kind::Number => ColumnType::Double,
            Kind::Null | Kind::Text => ColumnType::String,
            Kind::Any => ColumnType::Json,
        }
    }
}

fn specs(fields: &Fields, inferred: bool) -> Result<Vec<ColumnSpec>> {
    let spec = |field: &Arc<arrow::datatypes::Field>| {
        let column_type = match field.metadata().get(TYPE_METADATA).map(String::as_str) {
            Some("json") => ColumnType::Json,
            _ => ColumnType::from_arrow(field.data_type())
                .map_err(|e| e.context(format!("column \"{}\"", field.name())))?,
        };
        let spec = ColumnSpec::new(field.name().clone(), column_type);
        Ok(if field.is_nullable() || inferred { spec } else { spec.not_null() })
    };
    fields.iter().map(spec).collect()
}
