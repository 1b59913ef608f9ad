//! Where imported rows go: sorted runs of a folder opened in this process, `COPY` to a server, or a session with its
//! tablets.

use super::rejects::Rejects;
use super::session::SessionSink;
use crate::sql::connection::{Connection, describe, sql_error};
use crate::sql::write_csv_line;
use arrow::array::{Int64Array, RecordBatch};
use bytes::Bytes;
use futures::SinkExt;
use oribi_engine::{Engine, Import, Table};
use oribi_session::Database;
use oribi_session::sql::SqlSession;
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Error, ErrorKind, Result, Schema, Value, ValueRef, batch, text};
use std::pin::Pin;
use std::sync::Arc;
use tokio_postgres::{Client, CopyInSink, SimpleQueryRow};

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

/// The schema of a table of a server, as its catalog describes it. Generated columns, which nobody writes, are left out.
async fn existing_remote(client: &Client, table: &TableName) -> Result<Option<Schema>> {
    let literal = |name: &str| format!("'{}'", name.replace('\'', "''"));
    let query = format!(
        "select c.column_name, c.data_type, c.numeric_precision, c.numeric_scale, c.is_nullable, c.column_default, \
         k.ordinal_position from information_schema.columns c left join information_schema.key_column_usage k \
         on k.table_schema = c.table_schema and k.table_name = c.table_name and k.column_name = c.column_name \
         where c.table_schema = {} and c.table_name = {} and c.is_generated = 'NEVER' order by c.ordinal_position",
        literal(&table.schema),
        literal(&table.name)
    );
    let messages = client.simple_query(&query).await.map_err(|e| Error::invalid(describe(&e)))?;
    let (mut columns, mut key) = (Vec::new(), Vec::new());
    for message in &messages {
        let tokio_postgres::SimpleQueryMessage::Row(row) = message else { continue };
        let spec = described_column(row)?;
        if let Some(position) = row.get(6).and_then(|text| text.parse::<usize>().ok()) {
            key.push((position, spec.name.clone()));
        }
        columns.push(spec);
    }
    if columns.is_empty() {
        return Ok(None);
    }
    key.sort_unstable();
    let key: Vec<&str> = key.iter().map(|(_, name)| name.as_str()).collect();
    match key.is_empty() {
        true => Schema::without_key(columns).map(Some),
        false => Schema::new(columns, &key).map(Some),
    }
}

/// A column from its name, type, precision, scale, nullability and default.
fn described_column(row: &SimpleQueryRow) -> Result<ColumnSpec> {
    let (Some(name), Some(type_name)) = (row.get(0), row.get(1)) else {
        return Err(Error::internal("the server describes a column without name or type"));
    };
    let number = |i| row.get(i).and_then(|text: &str| text.parse::<i8>().ok());
    let column_type = type_named(type_name, number(2), number(3))
        .ok_or_else(|| Error::unsupported(format!("column \"{name}\" has type {type_name}")))?;
    let default = row.get(5).map(|literal| value_of_literal(literal, column_type)).transpose();
    let default = default.map_err(|e| e.context(format!("default of column \"{name}\"")))?;
    Ok(ColumnSpec { default, nullable: row.get(4) != Some("NO"), ..ColumnSpec::new(name, column_type) })
}

/// The value of a default as the catalog writes it: `7`, `'it''s new'::text`, `NULL`.
fn value_of_literal(literal: &str, column_type: ColumnType) -> Result<Value> {
    if literal == "NULL" {
        return Ok(Value::Null);
    }
    match literal.strip_prefix('\'').and_then(|quoted| quoted.rsplit_once("'::")) {
        Some((quoted, _)) => text::parse(column_type, &quoted.replace("''", "'")),
        None => text::parse(column_type, literal),
    }
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
    Local(Box<LocalSink>),
    Remote(Box<CopySink<'c>>),
    Session(Box<SessionSink>),
}

/// A folder that is opened in this process.
pub struct LocalSink {
    engine: Arc<Engine>,
    table: Arc<Table>,
    import: Import,
}

impl LocalSink {
    /// Rows of a table without a primary key get their hidden keys here.
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let schema = self.table.schema_ref();
        let Some(position) = schema.row_id() else { return self.import.push(batch) };
        let rows = batch.num_rows() as u64;
        let first = self.engine.row_ids(rows, true)?;
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(Int64Array::from_iter_values(first..first.wrapping_add(rows as i64))));
        let mut fields = batch.schema().fields().to_vec();
        fields.push(Arc::clone(&schema.arrow().fields()[position]));
        let with_key = RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields)), columns)?;
        self.import.push(with_key)
    }
}

impl<'c> Sink<'c> {
    pub fn open(connection: &'c Connection, table: &TableName, schema: &Schema) -> Result<Self> {
        Ok(match connection {
            Connection::Local { database, .. } => {
                let table = database.engine.table(&table.schema, &table.name)?;
                let import = database.engine.import(&table)?;
                Sink::Local(Box::new(LocalSink { engine: Arc::clone(&database.engine), table, import }))
            }
            Connection::Remote(client) => {
                let names: Vec<String> = schema.shown().iter().map(|c| quoted(&c.name)).collect();
                let statement = format!("copy {table} ({}) from stdin (format csv)", names.join(", "));
                let types = schema.shown().iter().map(|c| c.column_type).collect();
                Sink::Remote(Box::new(CopySink { client, statement, types, open: None }))
            }
        })
    }

    pub async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        match self {
            Sink::Local(local) => local.push(batch),
            Sink::Remote(copy) => copy.push(&batch).await,
            Sink::Session(session) => session.push(&batch).await,
        }
    }

    /// All rows of a file were pushed: adds those that are refused by themselves, which only a session does.
    pub async fn end_file(&mut self, rejects: &mut Rejects) -> Result<()> {
        match self {
            Sink::Local(_) | Sink::Remote(_) => Ok(()),
            Sink::Session(session) => session.settle(rejects).await,
        }
    }

    /// Commits; returns the rows imported.
    pub async fn finish(self) -> Result<u64> {
        match self {
            Sink::Local(local) => local.import.commit(),
            Sink::Remote(copy) => copy.finish().await,
            Sink::Session(session) => Ok(session.rows_written()),
        }
    }
}

/// Servers limit the length of a message, and a message may end anywhere in a line.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Rows to a server, as one `COPY`: all of them or, if it fails, none.
pub struct CopySink<'c> {
    client: &'c Client,
    statement: String,
    types: Vec<ColumnType>,
    /// From the first rows on.
    open: Option<Pin<Box<CopyInSink<Bytes>>>>,
}

impl CopySink<'_> {
    async fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let refused = |e: tokio_postgres::Error| Error::invalid(describe(&e));
        let lines = csv_lines(batch, &self.types)?;
        let copy = match &mut self.open {
            Some(copy) => copy,
            None => self.open.insert(Box::pin(self.client.copy_in(&self.statement).await.map_err(refused)?)),
        };
        let mut lines = Bytes::from(lines);
        while !lines.is_empty() {
            let message = lines.split_to(lines.len().min(MESSAGE_BYTES_MAX));
            copy.send(message).await.map_err(refused)?;
        }
        Ok(())
    }

    async fn finish(self) -> Result<u64> {
        match self.open {
            Some(mut copy) => copy.as_mut().finish().await.map_err(|e| Error::invalid(describe(&e))),
            None => Ok(0),
        }
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

    #[test]
    fn defaults_are_read_as_the_catalog_writes_them() {
        let text = |text: &str| Value::String(text.to_owned());
        for (literal, column_type, value) in [
            ("7", ColumnType::Int32, Value::Int32(7)),
            ("NULL", ColumnType::Int32, Value::Null),
            ("true", ColumnType::Bool, Value::Bool(true)),
            ("'it''s ''::text'::text", ColumnType::String, text("it's '::text")),
            ("'NULL'::text", ColumnType::String, text("NULL")),
            ("'\\x00ff'::bytea", ColumnType::Binary, Value::Binary(vec![0, 255])),
        ] {
            assert_eq!(value_of_literal(literal, column_type).unwrap(), value, "{literal}");
        }
        assert!(value_of_literal("'x'::integer", ColumnType::Int32).is_err());
    }
}
