//! Where imported rows go: sorted runs of a folder opened in this process, or `COPY` to a server.

use crate::sql::connection::{Connection, describe, sql_error};
use crate::sql::write_csv_line;
use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::SinkExt;
use oribi_engine::Import;
use oribi_session::Database;
use oribi_session::sql::SqlSession;
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Error, ErrorKind, Result, Schema, ValueRef, batch, text};
use std::pin::Pin;
use std::sync::Arc;
use tokio_postgres::{Client, CopyInSink};

/// A `COPY` is one statement and holds its rows in memory until it ends, so a large import is split into several.
const COPY_BYTES_MAX: u64 = 16 << 20;

/// A table as the command line names it: `table` or `schema.table`.
pub struct TableName {
    pub schema: String,
    pub name: String,
}

impl TableName {
    pub fn parse(text: &str) -> Self {
        let (schema, name) = text.split_once('.').unwrap_or(("public", text));
        TableName { schema: schema.to_owned(), name: name.to_owned() }
    }
}

impl std::fmt::Display for TableName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", quoted(&self.schema), quoted(&self.name))
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The statement that makes a table of `columns`.
pub fn create_statement(table: &TableName, columns: &[ColumnSpec], primary_key: &[String]) -> String {
    let column = |c: &ColumnSpec| {
        let not_null = if c.nullable && !primary_key.contains(&c.name) { "" } else { " not null" };
        format!("{} {}{not_null}", quoted(&c.name), c.column_type)
    };
    let columns: Vec<String> = columns.iter().map(column).collect();
    let key: Vec<String> = primary_key.iter().map(|name| quoted(name)).collect();
    format!("create table {table} ({}, primary key ({}))", columns.join(", "), key.join(", "))
}

/// The schema of a table, if it exists.
pub async fn existing(connection: &Connection, table: &TableName) -> Result<Option<Schema>> {
    match connection {
        Connection::Local { database, .. } => match database.engine.table(&table.schema, &table.name) {
            Ok(found) => Ok(Some(Schema::clone(&found.schema()))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        },
        Connection::Remote(client) => existing_remote(client, table).await,
    }
}

/// The columns of a table of a server. The key does not matter on this side; the first column stands for it.
async fn existing_remote(client: &Client, table: &TableName) -> Result<Option<Schema>> {
    let literal = |name: &str| format!("'{}'", name.replace('\'', "''"));
    let query = format!(
        "select column_name, data_type, numeric_precision, numeric_scale, is_nullable \
         from information_schema.columns where table_schema = {} and table_name = {} order by ordinal_position",
        literal(&table.schema),
        literal(&table.name)
    );
    let messages = client.simple_query(&query).await.map_err(|e| Error::invalid(describe(&e)))?;
    let mut columns = Vec::new();
    for message in &messages {
        let tokio_postgres::SimpleQueryMessage::Row(row) = message else { continue };
        let (Some(name), Some(type_name)) = (row.get(0), row.get(1)) else { continue };
        let number = |i| row.get(i).and_then(|text: &str| text.parse::<i8>().ok());
        let column_type = type_named(type_name, number(2), number(3))
            .ok_or_else(|| Error::unsupported(format!("column \"{name}\" has type {type_name}")))?;
        let spec = ColumnSpec::new(name, column_type);
        columns.push(if row.get(4) == Some("NO") { spec.not_null() } else { spec });
    }
    let Some(first) = columns.iter().find(|c| c.column_type.is_key_type()).map(|c| c.name.clone()) else {
        return Ok(None);
    };
    Schema::new(columns, &[&first]).map(Some)
}

fn type_named(name: &str, precision: Option<i8>, scale: Option<i8>) -> Option<ColumnType> {
    Some(match name {
        "boolean" => ColumnType::Bool,
        "tinyint" => ColumnType::Int8,
        "smallint" => ColumnType::Int16,
        "integer" => ColumnType::Int32,
        "bigint" => ColumnType::Int64,
        "real" => ColumnType::Float,
        "double precision" => ColumnType::Double,
        "text" | "character varying" => ColumnType::String,
        "bytea" => ColumnType::Binary,
        "date" => ColumnType::Date,
        "timestamp" | "timestamp without time zone" => ColumnType::Timestamp,
        "uuid" => ColumnType::Uuid,
        "json" => ColumnType::Json,
        name if name.starts_with("numeric") => {
            let mut digits = name.trim_start_matches("numeric").trim_matches(['(', ')']).split(',');
            let mut digit = || digits.next().and_then(|text| text.trim().parse::<i8>().ok());
            let (from_name, scale_from_name) = (digit(), digit());
            let precision = u8::try_from(precision.or(from_name)?).ok()?;
            ColumnType::Decimal { precision, scale: scale.or(scale_from_name).unwrap_or(0) }
        }
        _ => return None,
    })
}

/// Takes batches of a table's stored columns.
pub enum Sink<'c> {
    Local(Import),
    Remote(Box<CopySink<'c>>),
}

impl<'c> Sink<'c> {
    pub fn open(connection: &'c Connection, table: &TableName, schema: &Schema) -> Result<Self> {
        Ok(match connection {
            Connection::Local { database, .. } => {
                let table = database.engine.table(&table.schema, &table.name)?;
                Sink::Local(database.engine.import(&table)?)
            }
            Connection::Remote(client) => {
                let names: Vec<String> = schema.columns().iter().map(|c| quoted(&c.name)).collect();
                let statement = format!("copy {table} ({}) from stdin (format csv)", names.join(", "));
                let types = schema.columns().iter().map(|c| c.column_type).collect();
                Sink::Remote(Box::new(CopySink { client, statement, types, open: None, sent: 0, rows: 0 }))
            }
        })
    }

    pub async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        match self {
            Sink::Local(import) => import.push(batch),
            Sink::Remote(copy) => copy.push(&batch).await,
        }
    }

    /// Commits; returns the rows imported.
    pub async fn finish(self) -> Result<u64> {
        match self {
            Sink::Local(import) => import.commit(),
            Sink::Remote(mut copy) => {
                copy.end().await?;
                Ok(copy.rows)
            }
        }
    }
}

/// Rows to a server, as a series of `COPY` statements.
pub struct CopySink<'c> {
    client: &'c Client,
    statement: String,
    types: Vec<ColumnType>,
    open: Option<Pin<Box<CopyInSink<Bytes>>>>,
    /// Bytes sent in the open `COPY`.
    sent: u64,
    rows: u64,
}

impl CopySink<'_> {
    async fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let refused = |e: tokio_postgres::Error| Error::invalid(describe(&e));
        let lines = csv_lines(batch, &self.types)?;
        let copy = match &mut self.open {
            Some(copy) => copy,
            None => self.open.insert(Box::pin(self.client.copy_in(&self.statement).await.map_err(refused)?)),
        };
        self.sent += lines.len() as u64;
        copy.send(Bytes::from(lines)).await.map_err(refused)?;
        if self.sent >= COPY_BYTES_MAX {
            self.end().await?;
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<()> {
        if let Some(mut copy) = self.open.take() {
            self.rows += copy.as_mut().finish().await.map_err(|e| Error::invalid(describe(&e)))?;
            self.sent = 0;
        }
        Ok(())
    }
}

fn csv_lines(batch: &RecordBatch, types: &[ColumnType]) -> Result<Vec<u8>> {
    let mut lines = Vec::new();
    for i in 0..batch.num_rows() {
        let value = |(array, column_type): (&arrow::array::ArrayRef, &ColumnType)| match batch::value_at(
            array,
            *column_type,
            i,
        ) {
            ValueRef::Null => None,
            value => Some(text::to_string(value, *column_type)),
        };
        let values: Vec<Option<String>> = batch.columns().iter().zip(types).map(value).collect();
        let values: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
        write_csv_line(&mut lines, &values)?;
    }
    Ok(lines)
}

/// Runs a statement that has no result.
pub async fn execute(connection: &Connection, statement: &str) -> Result<()> {
    match connection {
        Connection::Local { database, session, .. } => execute_local(database, session, statement).await,
        Connection::Remote(client) => {
            client.batch_execute(statement).await.map_err(|e| Error::invalid(describe(&e)))
        }
    }
}

async fn execute_local(database: &Database, session: &Arc<SqlSession>, statement: &str) -> Result<()> {
    let prepared = database.sql.prepare(session, statement, &[]).await.map_err(sql_error)?;
    prepared.execute(session, &[]).await.map_err(sql_error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_created_from_its_columns() {
        let columns = vec![
            ColumnSpec::new("id", ColumnType::Int64),
            ColumnSpec::new("odd \"name\"", ColumnType::Decimal { precision: 15, scale: 2 }),
        ];
        assert_eq!(
            create_statement(&TableName::parse("s.t"), &columns, &["id".to_owned()]),
            "create table \"s\".\"t\" (\"id\" bigint not null, \"odd \"\"name\"\"\" numeric(15,2), primary key (\"id\"))"
        );
    }

    #[test]
    fn types_are_found_by_their_sql_names() {
        let decimal = ColumnType::Decimal { precision: 15, scale: 2 };
        assert_eq!(type_named("numeric", Some(15), Some(2)), Some(decimal));
        for column_type in
            [decimal, ColumnType::Int8, ColumnType::Timestamp, ColumnType::Json, ColumnType::Double]
        {
            assert_eq!(type_named(&column_type.to_string(), None, None), Some(column_type));
        }
        assert_eq!(type_named("point", None, None), None);
    }
}
