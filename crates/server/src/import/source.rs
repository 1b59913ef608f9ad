//! Files as batches of a table's rows: CSV, Parquet and JSON lines.

use crate::import::fitting::{Fitting, stored, stored_arrow};
use crate::import::rejects::Rejects;
use arrow::array::RecordBatch;
use arrow::datatypes::Fields;
use oribi_types::batch::ColumnBuilder;
use oribi_types::schema::{ColumnSpec, TYPE_METADATA};
use oribi_types::{ColumnType, Error, Result, Schema, Value, json, text};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

/// Rows from which types are inferred.
const INFERENCE_ROWS: usize = 10_000;
const BATCH_ROWS: usize = 8192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    JsonLines,
    Parquet,
}

fn format_of(path: &Path) -> Result<Format> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("csv") => Ok(Format::Csv),
        Some("json" | "jsonl" | "ndjson") => Ok(Format::JsonLines),
        Some("parquet") => Ok(Format::Parquet),
        _ => Err(Error::invalid(format!("{}: is not called .csv, .parquet or .jsonl", path.display()))),
    }
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|e| Error::from(e).context(path.display()))
}

/// The columns of a file: those it declares, or those its first rows suggest.
///
/// # Errors
/// `Unsupported`, naming the column, for types that tables do not have; `Invalid` for a file that is not of its
/// format.
pub fn infer(path: &Path) -> Result<Vec<ColumnSpec>> {
    let named = |e: &dyn std::fmt::Display| Error::invalid(format!("{}: {e}", path.display()));
    let file = open(path)?;
    match format_of(path)? {
        Format::Parquet => {
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| named(&e))?;
            specs(reader.schema().fields(), false).map_err(|e| e.context(path.display()))
        }
        Format::Csv => {
            let format = arrow::csv::reader::Format::default().with_header(true);
            let (schema, _) =
                format.infer_schema(BufReader::new(file), Some(INFERENCE_ROWS)).map_err(|e| named(&e))?;
            specs(schema.fields(), true).map_err(|e| e.context(path.display()))
        }
        Format::JsonLines => {
            let (schema, _) =
                arrow::json::reader::infer_json_schema(BufReader::new(file), Some(INFERENCE_ROWS))
                    .map_err(|e| named(&e))?;
            specs(schema.fields(), true).map_err(|e| e.context(path.display()))
        }
    }
}

fn specs(fields: &Fields, inferred: bool) -> Result<Vec<ColumnSpec>> {
    let spec = |field: &Arc<arrow::datatypes::Field>| {
        let column_type = match field.metadata().get(TYPE_METADATA).map(String::as_str) {
            Some("json") => ColumnType::Json,
            _ if inferred && field.data_type().is_nested() => ColumnType::Json,
            _ => ColumnType::from_arrow(field.data_type())
                .map_err(|e| e.context(format!("column \"{}\"", field.name())))?,
        };
        let spec = ColumnSpec::new(field.name().clone(), column_type);
        Ok(if field.is_nullable() || inferred { spec } else { spec.not_null() })
    };
    fields.iter().map(spec).collect()
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

fn read_csv(
    path: &Path,
    schema: &Schema,
    rejects: &mut Rejects,
    each: &mut dyn FnMut(RecordBatch, u64) -> Result<()>,
) -> Result<()> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(open(path)?);
    let header = reader.headers().map_err(|e| Error::invalid(e.to_string()))?.clone();
    let positions = header
        .iter()
        .map(|name| {
            schema
                .position(name)
                .ok_or_else(|| Error::not_found(format!("column \"{name}\" does not exist in the table")))
        })
        .collect::<Result<Vec<_>>>()?;
    let mut rows = Rows::new(schema);
    let mut record = csv::StringRecord::new();
    loop {
        let line = reader.position().line();
        match reader.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => match csv_row(schema, &positions, &record) {
                Ok(values) => rows.push(&values),
                Err(error) => rejects.add(line, error.message(), &csv_text(&record))?,
            },
            Err(error) if matches!(error.kind(), csv::ErrorKind::Utf8 { .. }) => {
                rejects.add(line, &error.to_string(), "")?;
            }
            Err(error) => return Err(Error::invalid(error.to_string())),
        }
        if rows.rows == BATCH_ROWS
            && let Some(batch) = rows.take()?
        {
            each(batch, reader.position().byte())?;
        }
    }
    match rows.take()? {
        Some(batch) => each(batch, reader.position().byte()),
        None => Ok(()),
    }
}

/// A row of a CSV file. An empty field is null.
fn csv_row(schema: &Schema, positions: &[usize], record: &csv::StringRecord) -> Result<Vec<Value>> {
    if record.len() != positions.len() {
        return Err(Error::invalid(format!("{} fields, not {}", record.len(), positions.len())));
    }
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
