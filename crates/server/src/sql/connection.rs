//! Where statements go: a server, or a database in this process.

use crate::database;
use crate::sql::output::{Column, Printer, Shape};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::{StreamExt, TryStreamExt};
use oribi_session::Database;
use oribi_session::sql::{Outcome, SqlError, SqlSession};
use oribi_types::schema::TYPE_METADATA;
use oribi_types::{ColumnType, Error, Result, ValueRef, batch, text};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Which database a command talks to.
#[derive(Clone, Debug, clap::Args)]
pub struct Target {
    /// PostgreSQL door of a running server
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "data")]
    pub host: Option<String>,
    /// Folder to open in this process
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Memory budget of a folder opened in this process
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub memory: String,
}

/// An open connection to a [`Target`].
pub enum Connection {
    Local {
        database: Database,
        session: Arc<SqlSession>,
        /// The folder of a database that was made for this connection alone; gone when it is dropped.
        _scratch: Option<tempfile::TempDir>,
    },
    Remote(Box<Client>),
}

impl Connection {
    /// Opens the target; without a host and a folder, an empty database that is forgotten at the end.
    ///
    /// # Errors
    /// `Unavailable` if the server cannot be reached; those of [`database::open`].
    pub async fn open(target: &Target) -> Result<Self> {
        Connection::open_with(target, database::open).await
    }

    /// As [`open`](Self::open), but of a folder opened in this process what is in memory stays there until there is need.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub async fn open_unflushed(target: &Target) -> Result<Self> {
        Connection::open_with(target, database::open_unflushed).await
    }

    async fn open_with(target: &Target, open: fn(&Path, &str) -> Result<Database>) -> Result<Self> {
        if let Some(host) = &target.host {
            return Ok(Connection::Remote(Box::new(connect(host).await?)));
        }
        let scratch = match target.data {
            Some(_) => None,
            None => Some(tempfile::tempdir()?),
        };
        let dir = scratch.as_ref().map(|dir| dir.path().to_owned()).or_else(|| target.data.clone());
        let database = open(&dir.expect("a folder was named or made"), &target.memory)?;
        Ok(Connection::Local { database, session: SqlSession::new("oribi", "oribi"), _scratch: scratch })
    }

    /// Another session of the same database, which is at `target`.
    ///
    /// # Errors
    /// `Unavailable` if the server cannot be reached.
    pub async fn another(&self, target: &Target) -> Result<Self> {
        match self {
            Connection::Local { database, .. } => {
                let (database, session) = (database.clone(), SqlSession::new("oribi", "oribi"));
                Ok(Connection::Local { database, session, _scratch: None })
            }
            Connection::Remote(_) => Connection::open(target).await,
        }
    }

    /// Runs the statements of `script` and prints their results.
    ///
    /// # Errors
    /// That of the first statement that fails; those after it are not run.
    pub async fn run(&self, script: &str, printer: &mut Printer<'_>) -> Result<()> {
        match self {
            Connection::Local { database, session, .. } => {
                run_local(database, session, script, printer).await
            }
            Connection::Remote(client) => run_remote(client, script, printer).await,
        }
    }

    /// Asks the server to stop the statement that runs. One in this process stops when its future is dropped.
    pub async fn cancel(&self) {
        if let Connection::Remote(client) = self {
            // Best effort: the statement may have ended by itself.
            let _ = client.cancel_token().cancel_query(NoTls).await;
        }
    }

    /// Finishes and flushes a folder that was opened in this process.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn close(self) -> Result<()> {
        match self {
            Connection::Local { database, .. } => database.engine.close(),
            Connection::Remote(_) => Ok(()),
        }
    }
}

/// Connects to a PostgreSQL door.
///
/// # Errors
/// `Unavailable`, naming the address.
pub async fn connect(host: &str) -> Result<Client> {
    let (name, port) = host.rsplit_once(':').unwrap_or((host, "5432"));
    let port: u16 =
        port.parse().map_err(|_| Error::invalid(format!("host \"{host}\" has no port number")))?;
    let mut config = tokio_postgres::Config::new();
    config
        .host(name.trim_matches(['[', ']']))
        .port(port)
        .user("oribi")
        .dbname("oribi")
        .application_name("oribi");
    let (client, connection) =
        config.connect(NoTls).await.map_err(|e| Error::unavailable(format!("{host}: {}", describe(&e))))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended");
        }
    });
    Ok(client)
}

async fn run_local(
    database: &Database,
    session: &Arc<SqlSession>,
    script: &str,
    printer: &mut Printer<'_>,
) -> Result<()> {
    for place in database.sql.split(script).await.map_err(sql_error)? {
        let prepared = database.sql.prepare(session, &script[place], &[]).await.map_err(sql_error)?;
        let columns = prepared.columns().cloned();
        match prepared.execute(session, &[]).await.map_err(sql_error)? {
            Outcome::Rows(mut rows) => {
                let schema = columns.ok_or_else(|| Error::internal("rows of a statement without columns"))?;
                printer.columns(local_columns(&schema))?;
                while let Some(batch) = rows.next().await {
                    print_batch(&batch.map_err(sql_error)?, printer)?;
                }
                printer.done("")?;
            }
            Outcome::Done { tag } => printer.done(&tag)?,
            Outcome::CopyIn(_) => {
                return Err(Error::unsupported("COPY FROM STDIN needs --host; see oribi import"));
            }
        }
    }
    Ok(())
}

/// Prints an answer as that of a statement in this process.
///
/// # Errors
/// Those of writing.
pub fn print_batches(schema: &SchemaRef, batches: &[RecordBatch], printer: &mut Printer<'_>) -> Result<()> {
    printer.columns(local_columns(schema))?;
    batches.iter().try_for_each(|batch| print_batch(batch, printer))?;
    Ok(printer.done("")?)
}

fn local_columns(schema: &SchemaRef) -> Vec<Column> {
    let column = |field: &Arc<Field>| Column { name: field.name().clone(), shape: local_shape(field) };
    schema.fields().iter().map(column).collect()
}

fn local_shape(field: &Field) -> Shape {
    // For Arrow, JSON is text.
    if field.metadata().get(TYPE_METADATA).is_some_and(|name| name == "json") {
        return Shape::Json;
    }
    match ColumnType::from_arrow(field.data_type()) {
        Ok(ColumnType::Bool) => Shape::Bool,
        Ok(ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64) => Shape::Number,
        Ok(ColumnType::Float | ColumnType::Double | ColumnType::Decimal { .. }) => Shape::Number,
        _ => Shape::Text,
    }
}

fn print_batch(batch: &RecordBatch, printer: &mut Printer<'_>) -> Result<()> {
    let columns = batch.columns().iter().map(column_text).collect::<Result<Vec<_>>>()?;
    for i in 0..batch.num_rows() {
        let row: Vec<Option<&str>> = columns.iter().map(|column| column[i].as_deref()).collect();
        printer.row(&row)?;
    }
    Ok(())
}

/// The values of a column as PostgreSQL prints them; of types that tables do not have, as Arrow does.
fn column_text(array: &ArrayRef) -> Result<Vec<Option<String>>> {
    if let Ok(column_type) = ColumnType::from_arrow(array.data_type())
        && let Ok(array) = arrow::compute::cast(array, &column_type.arrow())
    {
        return Ok((0..array.len())
            .map(|i| match batch::value_at(&array, column_type, i) {
                ValueRef::Null => None,
                value => Some(text::to_string(value, column_type)),
            })
            .collect());
    }
    let formatter = ArrayFormatter::try_new(array, &FormatOptions::default())?;
    Ok((0..array.len()).map(|i| array.is_valid(i).then(|| formatter.value(i).to_string())).collect())
}

async fn run_remote(client: &Client, script: &str, printer: &mut Printer<'_>) -> Result<()> {
    // The simple protocol gives values as text without their types, so those of a single statement are asked for
    // first. A script of several cannot be prepared; its values count as text.
    let types = match client.prepare(script).await {
        Ok(statement) => statement.columns().iter().map(|c| remote_shape(c.type_())).collect(),
        Err(_) => Vec::new(),
    };
    let messages = client.simple_query_raw(script).await.map_err(|e| Error::invalid(describe(&e)))?;
    let mut messages = std::pin::pin!(messages);
    while let Some(message) = messages.try_next().await.map_err(|e| Error::invalid(describe(&e)))? {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                let shape = |i| if types.len() == columns.len() { types[i] } else { Shape::Text };
                let column = |(i, c): (usize, &tokio_postgres::SimpleColumn)| Column {
                    name: c.name().into(),
                    shape: shape(i),
                };
                printer.columns(columns.iter().enumerate().map(column).collect())?;
            }
            SimpleQueryMessage::Row(row) => {
                let values: Vec<Option<&str>> = (0..row.len()).map(|i| row.get(i)).collect();
                printer.row(&values)?;
            }
            SimpleQueryMessage::CommandComplete(rows) => printer.done(&format!("OK {rows}"))?,
            _ => {}
        }
    }
    Ok(())
}

fn remote_shape(column_type: &tokio_postgres::types::Type) -> Shape {
    match column_type.name() {
        "bool" => Shape::Bool,
        "int2" | "int4" | "int8" | "float4" | "float8" | "numeric" => Shape::Number,
        "json" | "jsonb" => Shape::Json,
        _ => Shape::Text,
    }
}

/// A statement's error as one error, its position and hint in the message.
pub fn sql_error(error: SqlError) -> Error {
    let mut message = error.error.message().to_owned();
    if let Some(position) = error.position {
        message += &format!(" (at character {position})");
    }
    if let Some(hint) = error.hint {
        message += &format!("\nhint: {hint}");
    }
    Error::new(error.error.kind(), message)
}

/// What the server said, position and hint included.
pub fn describe(error: &tokio_postgres::Error) -> String {
    let Some(db) = error.as_db_error() else {
        let cause = std::error::Error::source(error).map(|source| format!(": {source}"));
        return format!("{error}{}", cause.unwrap_or_default());
    };
    let mut message = db.message().to_owned();
    if let Some(tokio_postgres::error::ErrorPosition::Original(position)) = db.position() {
        message += &format!(" (at character {position})");
    }
    for (label, text) in [("detail", db.detail()), ("hint", db.hint())] {
        if let Some(text) = text {
            message += &format!("\n{label}: {text}");
        }
    }
    message
}
