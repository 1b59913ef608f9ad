//! Finds a table's columns in a file by column id, not by name.
//!
//! A file keeps the names and columns of the time it was written. A renamed column is found under its old name; a
//! column that was added later answers its `missing` value; a dropped column is not seen, not even by a new one of
//! its name; a column that shows the commit timestamp is read from `_ts`.

use arrow::datatypes::{Field, FieldRef, SchemaRef};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column as ColumnExpr, Literal};
use datafusion::physical_expr_adapter::{PhysicalExprAdapter, PhysicalExprAdapterFactory};
use oribi_types::batch::{ColumnBuilder, TS_FIELD_ID};
use oribi_types::schema::TS_COLUMN;
use oribi_types::{Column, ColumnSource, Schema, Value};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Rewrites expressions over a table's columns into expressions over a file's.
pub(super) struct ColumnsById {
    schema: Arc<Schema>,
}

impl ColumnsById {
    pub(super) fn new(schema: Arc<Schema>) -> Self {
        ColumnsById { schema }
    }
}

/// Where the values of a table's column are in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The column of the file at this position.
    At(usize),
    /// The file was written before the column existed.
    Missing,
}

/// Position of each column id in a file.
pub(super) fn positions(file: &SchemaRef) -> HashMap<i64, usize> {
    file.fields().iter().enumerate().filter_map(|(i, field)| Some((field_id(field)?, i))).collect()
}

/// The id of `column`'s values in a file.
pub(super) fn stored_id(column: &Column) -> i64 {
    match column.source {
        ColumnSource::CommitTimestamp => i64::from(TS_FIELD_ID),
        ColumnSource::Key(_) | ColumnSource::Slot(_) => i64::from(column.id),
    }
}

fn field_id(field: &Field) -> Option<i64> {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY)?.parse().ok()
}

impl PhysicalExprAdapterFactory for ColumnsById {
    fn create(&self, table: SchemaRef, file: SchemaRef) -> Result<Arc<dyn PhysicalExprAdapter>> {
        let positions = positions(&file);
        let place = |id: i64| positions.get(&id).map_or(Place::Missing, |i| Place::At(*i));
        let mut columns: HashMap<String, Arc<dyn PhysicalExpr>> = HashMap::new();
        for field in table.fields() {
            let column = self.schema.columns().iter().find(|column| column.name == *field.name());
            let place = match column {
                Some(column) => place(stored_id(column)),
                None if field.name() == TS_COLUMN => place(i64::from(TS_FIELD_ID)),
                // Where a row lies: no file has it, and no predicate asks for it.
                None => continue,
            };
            let expression = match place {
                Place::At(position) => read(&file, position, field),
                Place::Missing => constant(column, field)?,
            };
            columns.insert(field.name().clone(), expression);
        }
        Ok(Arc::new(Adapter { columns }))
    }
}

/// The column of the file, as the table has it.
fn read(file: &SchemaRef, position: usize, field: &FieldRef) -> Arc<dyn PhysicalExpr> {
    let stored = file.field(position);
    let column: Arc<dyn PhysicalExpr> = Arc::new(ColumnExpr::new(stored.name(), position));
    if stored.data_type() == field.data_type() {
        return column;
    }
    Arc::new(CastExpr::new_with_target_field(column, Arc::clone(field), None))
}

/// What rows written before the column was added answer.
fn constant(column: Option<&Column>, field: &FieldRef) -> Result<Arc<dyn PhysicalExpr>> {
    let value = match column {
        Some(column) => missing_value(column)?,
        None => return Err(DataFusionError::Internal("an sstable has no commit timestamps".into())),
    };
    Ok(Arc::new(Literal::new_with_metadata(value, Some(FieldMetadata::from(field.as_ref())))))
}

pub(super) fn missing_value(column: &Column) -> Result<ScalarValue> {
    let external = |e| DataFusionError::External(Box::new(e));
    let mut builder = ColumnBuilder::new(column.column_type);
    builder.push(column.missing.as_ref().unwrap_or(&Value::Null).as_ref());
    let array = builder.finish(column.column_type).map_err(external)?;
    ScalarValue::try_from_array(&array, 0)
}

/// The expression of each of the table's columns over a file's.
struct Adapter {
    columns: HashMap<String, Arc<dyn PhysicalExpr>>,
}

impl PhysicalExprAdapter for Adapter {
    fn rewrite(&self, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        // Not transform_down: what replaces a column is about another schema and must not be replaced again.
        expr.transform_up(|expr| {
            let replacement = match expr.downcast_ref::<ColumnExpr>() {
                Some(column) => self.columns.get(column.name()),
                None => None,
            };
            Ok(match replacement {
                Some(replacement) => Transformed::yes(Arc::clone(replacement)),
                None => Transformed::no(expr),
            })
        })
        .data()
    }
}

impl fmt::Debug for ColumnsById {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ColumnsById")
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adapter({} columns)", self.columns.len())
    }
}
