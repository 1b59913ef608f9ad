//! Blocks: the rows of a scan's answer, made of Arrow batches and made into them again.
//!
//! [`rowwise`] is what clients ask for by default, [`columnar`] what they may ask for. Both are written column by
//! column, because a column's cells are one loop over one array: in a row-wise block they lie at a stride, and so it is
//! written some hundred rows at a time. What an encoder makes are the sidecars of an answer as they are sent.

pub mod columnar;
pub mod rowwise;

mod gather;
mod scatter;
mod sidecar;

use crate::column::WireColumn;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use oribi_types::{Error, Result};
use std::sync::Arc;

/// The Arrow schema of the batches that decoders make. As the offsets of strings and bytes are what comes, they are `Utf8` and
/// `Binary`; encoders take the views that tables have.
pub fn arrow_schema(columns: &[WireColumn]) -> SchemaRef {
    let field = |column: &WireColumn| {
        let data_type = match column.column_type.arrow() {
            DataType::Utf8View => DataType::Utf8,
            DataType::BinaryView => DataType::Binary,
            other => other,
        };
        Field::new(&column.name, data_type, column.nullable)
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// Checks that a batch has these columns, by position, and no null where none may be.
fn check(columns: &[WireColumn], batch: &RecordBatch) -> Result<()> {
    if batch.num_columns() != columns.len() {
        let (found, needed) = (batch.num_columns(), columns.len());
        return Err(Error::internal(format!("a batch of {found} columns in a block of {needed}")));
    }
    for (column, array) in columns.iter().zip(batch.columns()) {
        if *array.data_type() != column.column_type.arrow() {
            return Err(Error::internal(format!(
                "column \"{}\" of type {} is an array of {}",
                column.name,
                column.column_type,
                array.data_type()
            )));
        }
        if !column.nullable && array.null_count() > 0 {
            return Err(Error::internal(format!(
                "null in column \"{}\", which is not nullable",
                column.name
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
