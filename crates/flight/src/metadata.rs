//! What there is: catalogs, schemas, tables and their keys, read from `information_schema` as any client could.

use crate::call::{Call, DATABASE};
use crate::shared::Shared;
use crate::transactions::quoted;
use crate::types::sent_schema;
use arrow::array::{Array, ArrayRef, AsArray, Int32Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTableTypes, CommandGetTables,
};
use futures::TryStreamExt;
use oribi_session::sql::{Outcome, SqlError};
use oribi_types::{Error, ErrorKind};
use std::sync::Arc;

/// The one type of tables.
const TABLE: &str = "TABLE";

/// # Errors
/// `Internal` for what Arrow says.
pub fn catalogs(command: CommandGetCatalogs) -> Result<RecordBatch, SqlError> {
    let mut builder = command.into_builder();
    builder.append(DATABASE);
    builder.build().map_err(internal)
}

pub fn table_types(command: CommandGetTableTypes) -> Result<RecordBatch, SqlError> {
    let mut builder = command.into_builder();
    builder.append(TABLE);
    builder.build().map_err(internal)
}

/// # Errors
/// Those of the query.
pub async fn schemas(
    shared: &Shared,
    call: &Call,
    command: CommandGetDbSchemas,
) -> Result<RecordBatch, SqlError> {
    let mut builder = command.into_builder();
    for row in rows(shared, call, "select schema_name from information_schema.schemata").await? {
        builder.append(DATABASE, &row[0]);
    }
    builder.build().map_err(internal)
}

/// # Errors
/// Those of the queries; 22025 for a pattern that is none.
pub async fn tables(
    shared: &Shared,
    call: &Call,
    command: CommandGetTables,
) -> Result<RecordBatch, SqlError> {
    let (includes_schema, mut builder) = (command.include_schema, command.clone().into_builder());
    let sql = format!(
        "select table_schema, table_name from information_schema.tables where table_type = 'BASE TABLE'{}{}",
        like("table_schema", command.db_schema_filter_pattern.as_deref()),
        like("table_name", command.table_name_filter_pattern.as_deref()),
    );
    for row in rows(shared, call, &sql).await? {
        let [schema, table] = [&row[0], &row[1]];
        let columns = match includes_schema {
            true => table_columns(shared, call, schema, table).await?,
            false => Arc::new(Schema::empty()),
        };
        builder.append(DATABASE, schema, table, TABLE, &columns).map_err(internal)?;
    }
    builder.build().map_err(internal)
}

/// The columns of a table, as a query of all of them has them.
///
/// # Errors
/// Those of planning it.
async fn table_columns(
    shared: &Shared,
    call: &Call,
    schema: &str,
    table: &str,
) -> Result<SchemaRef, SqlError> {
    let sql = format!("select * from {}.{}", quoted(schema), quoted(table));
    let prepared = shared.sql.prepare(&call.session, &sql, &[]).await?;
    let sent = sent_schema(prepared.columns());
    let not_null = format!(
        "select column_name from information_schema.columns where table_schema = {} and table_name = {} and is_nullable = 'NO'",
        literal(schema),
        literal(table)
    );
    let not_null: Vec<_> =
        rows(shared, call, &not_null).await?.into_iter().map(|mut row| row.remove(0)).collect();
    let fields = sent
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(!not_null.contains(field.name())));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// # Errors
/// Those of the query.
pub async fn primary_keys(
    shared: &Shared,
    call: &Call,
    command: CommandGetPrimaryKeys,
) -> Result<RecordBatch, SqlError> {
    let of_schema =
        command.db_schema.as_deref().map(|schema| format!(" and table_schema = {}", literal(schema)));
    let of_catalog = command.catalog.as_deref().is_none_or(|catalog| catalog == DATABASE);
    let sql = format!(
        "select table_schema, table_name, column_name, ordinal_position, constraint_name \
         from information_schema.key_column_usage where table_name = {}{} order by 1, 4",
        literal(&command.table),
        of_schema.unwrap_or_default()
    );
    let rows = if of_catalog { rows(shared, call, &sql).await? } else { Vec::new() };
    let column =
        |n: usize| -> ArrayRef { Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row[n]))) };
    let sequence: Int32Array = rows.iter().map(|row| row[3].parse::<i32>().ok()).collect();
    let catalog = StringArray::from_iter_values(rows.iter().map(|_| DATABASE));
    let columns =
        vec![Arc::new(catalog) as _, column(0), column(1), column(2), Arc::new(sequence) as _, column(4)];
    RecordBatch::try_new(primary_keys_schema(), columns).map_err(|error| Error::from(error).into())
}

pub fn primary_keys_schema() -> SchemaRef {
    let text = |name, nullable| Field::new(name, DataType::Utf8, nullable);
    Arc::new(Schema::new(vec![
        text("catalog_name", true),
        text("db_schema_name", true),
        text("table_name", false),
        text("column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("key_name", true),
    ]))
}

/// Foreign keys, of which there are none.
pub fn no_foreign_keys() -> RecordBatch {
    let text = |name, nullable| Field::new(name, DataType::Utf8, nullable);
    RecordBatch::new_empty(Arc::new(Schema::new(vec![
        text("pk_catalog_name", true),
        text("pk_db_schema_name", true),
        text("pk_table_name", false),
        text("pk_column_name", false),
        text("fk_catalog_name", true),
        text("fk_db_schema_name", true),
        text("fk_table_name", false),
        text("fk_column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("fk_key_name", true),
        text("pk_key_name", true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ])))
}

/// The rows of a query of the door's own, as texts.
///
/// # Errors
/// Those of the query.
pub async fn rows(shared: &Shared, call: &Call, sql: &str) -> Result<Vec<Vec<String>>, SqlError> {
    let prepared = shared.sql.prepare(&call.session, sql, &[]).await?;
    let Outcome::Rows(rows) = call.execute(&prepared, &[]).await? else {
        return Err(SqlError::new(ErrorKind::Internal, "a query without rows"));
    };
    let mut texts = Vec::new();
    for batch in rows.try_collect::<Vec<_>>().await? {
        let columns =
            batch.columns().iter().map(|column| cast(column, &DataType::Utf8)).collect::<Result<Vec<_>, _>>();
        let columns = columns.map_err(Error::from)?;
        let text = |column: &ArrayRef, row: usize| match column.is_null(row) {
            true => String::new(),
            false => column.as_string::<i32>().value(row).to_owned(),
        };
        texts.extend(
            (0..batch.num_rows()).map(|row| columns.iter().map(|column| text(column, row)).collect()),
        );
    }
    Ok(texts)
}

/// A condition on a column, if there is a pattern for it.
fn like(column: &str, pattern: Option<&str>) -> String {
    pattern.map_or_else(String::new, |pattern| format!(" and {column} like {}", literal(pattern)))
}

/// A text as a literal of SQL.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn internal(error: arrow_flight::error::FlightError) -> SqlError {
    SqlError::new(ErrorKind::Internal, error.to_string())
}
