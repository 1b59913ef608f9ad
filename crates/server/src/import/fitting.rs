//! Batches of a file's columns, made into batches of a table's.
//!
//! A value that its column cannot hold never becomes null, and no fraction an integer: its row is refused. Digits and
//! fractions of a second beyond those of the column are rounded away, as an assignment does.

use crate::import::rejects::Rejects;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, can_cast_types, cast, cast_with_options, concat_batches, kernels::cmp};
use arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use oribi_types::batch::ColumnBuilder;
use oribi_types::schema::check_value;
use oribi_types::{Column, ColumnSource, ColumnType, Error, Result, Schema, Value, ValueRef, text};
use std::sync::Arc;

/// The columns of `schema` that files and batches have, with their positions in it.
pub fn stored(schema: &Schema) -> impl Iterator<Item = (usize, &Column)> {
    schema.shown().iter().enumerate().filter(|(_, c)| c.source != ColumnSource::CommitTimestamp)
}

pub fn stored_arrow(schema: &Schema) -> SchemaRef {
    let fields: Vec<_> = stored(schema).map(|(i, _)| schema.arrow().field(i).clone()).collect();
    Arc::new(ArrowSchema::new(fields))
}

/// How the batches of one file become batches of a table's stored columns.
pub struct Fitting<'s> {
    columns: Vec<(&'s Column, Origin)>,
    arrow: SchemaRef,
}

/// Where the values of a column come from.
enum Origin {
    /// The file's column at this position.
    File(usize),
    Default,
}

impl<'s> Fitting<'s> {
    /// # Errors
    /// `NotFound` for a column of the file that the table does not have; `Invalid` for one of a type that can never
    /// become the table's, and for a column that the file lacks and that has neither default nor null.
    pub fn new(schema: &'s Schema, file: &ArrowSchema) -> Result<Self> {
        for field in file.fields() {
            if schema.position(field.name()).is_none() {
                return Err(Error::not_found(format!(
                    "column \"{}\" does not exist in the table",
                    field.name()
                )));
            }
        }
        let origin = |(_, column): (usize, &'s Column)| match file.column_with_name(&column.name) {
            Some((position, field)) => {
                let (from, to) = (field.data_type(), column.column_type);
                if !can_cast_types(from, &to.arrow()) {
                    return Err(Error::invalid(format!("column \"{}\": {from} is not {to}", column.name)));
                }
                Ok((column, Origin::File(position)))
            }
            None => {
                check_value(column, default_of(column))?;
                Ok((column, Origin::Default))
            }
        };
        let columns = stored(schema).map(origin).collect::<Result<_>>()?;
        Ok(Fitting { columns, arrow: stored_arrow(schema) })
    }

    /// The rows of `batch` that fit the table; the others go to `rejects`, the first row of the batch under the number
    /// `first`.
    ///
    /// # Errors
    /// Those of writing to `rejects`.
    pub fn fit(&self, batch: &RecordBatch, first: u64, rejects: &mut Rejects) -> Result<RecordBatch> {
        if let Ok(whole) = self.convert(batch) {
            return Ok(whole);
        }
        let mut fitting = Vec::new();
        for i in 0..batch.num_rows() {
            let row = batch.slice(i, 1);
            match self.convert(&row) {
                Ok(row) => fitting.push(row),
                Err(error) => rejects.add(first + i as u64, error.message(), &row_text(&row)?)?,
            }
        }
        Ok(concat_batches(&self.arrow, &fitting)?)
    }

    /// # Errors
    /// `Invalid`, naming the column, if any of the rows does not fit.
    fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let array = |(column, origin): &(&Column, Origin)| match origin {
            Origin::Default => defaults(column, batch.num_rows()),
            Origin::File(position) => assign(batch.column(*position), column)
                .map_err(|e| e.context(format!("column \"{}\"", column.name))),
        };
        let arrays = self.columns.iter().map(array).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.arrow.clone(), arrays, &options)?)
    }
}

fn default_of(column: &Column) -> ValueRef<'_> {
    column.default.as_ref().map_or(ValueRef::Null, Value::as_ref)
}

fn defaults(column: &Column, rows: usize) -> Result<ArrayRef> {
    let mut builder = ColumnBuilder::new(column.column_type);
    (0..rows).for_each(|_| builder.push(default_of(column)));
    builder.finish(column.column_type)
}

/// `from` as values of `column`.
fn assign(from: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    let to = column.column_type.arrow();
    let array = cast_with_options(from, &to, &CastOptions { safe: false, ..CastOptions::default() })?;
    if array.null_count() > 0 {
        check_value(column, ValueRef::Null)?;
    }
    // Arrow cuts fractions off without a word.
    if to.is_integer()
        && (from.data_type().is_floating() || from.data_type().is_decimal())
        && cmp::neq(&cast(&array, from.data_type())?, from)?.true_count() > 0
    {
        return Err(Error::invalid(format!("a fraction does not fit type {}", column.column_type)));
    }
    if column.column_type == ColumnType::Json {
        for document in array.as_string_view().iter().flatten() {
            text::parse(ColumnType::Json, document)?;
        }
    }
    Ok(array)
}

/// A batch of one row, as a line of CSV.
fn row_text(row: &RecordBatch) -> Result<String> {
    let shown = |array: &ArrayRef| -> Result<Option<String>> {
        let formatter = ArrayFormatter::try_new(array, &FormatOptions::default())?;
        Ok(array.is_valid(0).then(|| formatter.value(0).to_string()))
    };
    let fields = row.columns().iter().map(shown).collect::<Result<Vec<_>>>()?;
    let fields: Vec<Option<&str>> = fields.iter().map(Option::as_deref).collect();
    let mut line = Vec::new();
    crate::sql::write_csv_line(&mut line, &fields)?;
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}
