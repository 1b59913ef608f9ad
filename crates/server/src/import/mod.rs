//! `oribi import`: files into a table, which is made from the first file's columns if it does not exist.

mod fitting;
mod inference;
mod rejects;
mod session;
mod source;
mod target;

pub use target::{Sink, TableName, execute, existing};

use crate::encryption::Encryption;
use crate::runtime;
use crate::sql::connection::{Connection, Target};
use crate::stdout::{complain, say};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use oribi_client::Client;
use oribi_types::schema::ColumnSpec;
use oribi_types::{Error, Result, Schema};
use rejects::Rejects;
use session::SessionSink;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::runtime::Runtime;

/// Imports CSV, Parquet or JSON lines into a table, creating it if it does not exist
///
/// A row that does not fit the table is kept in FILE.rejected, with its line and the reason; the others are imported. The
/// status is then 3: 0 means that every row is in the table, 1 that the import failed.
#[derive(Clone, Debug, clap::Args)]
pub struct ImportCommand {
    /// Table, as NAME or SCHEMA.NAME
    table: String,
    /// Files: .csv (with a header), .parquet, .jsonl
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Key columns of a table that does not exist yet
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    primary_key: Vec<String>,
    /// Masters of a running server: rows are sent to its tablets in batches, each written or refused by itself
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', conflicts_with_all = ["host", "data"])]
    master: Vec<String>,
    #[command(flatten)]
    encryption: Encryption,
    #[command(flatten)]
    target: Target,
}

/// Status of an import that is done, but for rows that were refused.
pub const STATUS_OF_REFUSED_ROWS: u8 = 3;

/// Returns how many rows were refused.
///
/// # Errors
/// Whatever stops the import.
pub fn run(command: &ImportCommand) -> Result<u64> {
    let to_masters = !command.master.is_empty();
    if !to_masters && command.target.host.is_none() && command.target.data.is_none() {
        return Err(Error::invalid("say where to: --data DIR, --host HOST:PORT or --master HOST:PORT"));
    }
    let runtime = runtime()?;
    if to_masters {
        let sink = runtime.block_on(session_sink(command))?;
        let schema = sink.schema().clone();
        return import(&runtime, &schema, Sink::Session(Box::new(sink)), command);
    }
    let connection = runtime.block_on(Connection::open(&command.target))?;
    let table = TableName::parse(&command.table);
    let result = table_schema(&runtime, &connection, &table, command).and_then(|schema| {
        let sink = Sink::open(&connection, &table, &schema)?;
        import(&runtime, &schema, sink, command)
    });
    let closed = connection.close();
    let refused = result?;
    closed.map(|()| refused)
}

/// A session with the tablets of the table, which is created if it does not exist.
async fn session_sink(command: &ImportCommand) -> Result<SessionSink> {
    let client = Client::connect_with(&command.master, command.encryption.client_options()?).await?;
    let table = match session::existing(&client, &command.table).await? {
        Some(table) => table,
        None => session::create(&client, &command.table, &columns(command)?, &command.primary_key).await?,
    };
    SessionSink::new(&client, table)
}

fn import(runtime: &Runtime, schema: &Schema, mut sink: Sink<'_>, command: &ImportCommand) -> Result<u64> {
    let started = Instant::now();
    let sizes = command.files.iter().map(|file| size(file)).collect::<Result<Vec<_>>>()?;
    let bytes = sizes.iter().sum();
    let progress = progress_bar(bytes);
    let (mut rows, mut before, mut rejected) = (0, 0, Vec::new());
    for (file, size) in command.files.iter().zip(sizes) {
        let mut rejects = Rejects::new(file);
        source::read(file, schema, &mut rejects, &mut |batch, done| {
            rows += batch.num_rows() as u64;
            runtime.block_on(sink.push(batch))?;
            progress.set_position(before + done);
            progress.set_message(format!("{} rows", HumanCount(rows)));
            Ok(())
        })?;
        runtime.block_on(sink.end_file(&mut rejects))?;
        before += size;
        let path = rejects.path().to_owned();
        match rejects.finish()? {
            0 => {}
            refused => rejected.push((path, refused)),
        }
    }
    progress.set_message(format!("{} rows, committing", HumanCount(rows)));
    let rows = runtime.block_on(sink.finish())?;
    progress.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    say!(
        "{}: {} rows, {} in {seconds:.2} s ({} rows/s)",
        command.table,
        HumanCount(rows),
        HumanBytes(bytes),
        HumanCount((rows as f64 / seconds) as u64)
    )?;
    for (path, refused) in &rejected {
        say!("{}: {} rows were refused", path.display(), HumanCount(*refused))?;
    }
    let refused = rejected.iter().map(|(_, refused)| refused).sum();
    if refused > 0 {
        let (refused, rows) = (HumanCount(refused), HumanCount(rows));
        complain(format_args!("oribi: {refused} rows were refused, {rows} were imported"));
    }
    Ok(refused)
}

/// The schema of the table, which is created if it does not exist.
fn table_schema(
    runtime: &Runtime,
    connection: &Connection,
    table: &TableName,
    command: &ImportCommand,
) -> Result<Schema> {
    if let Some(schema) = runtime.block_on(target::existing(connection, table))? {
        return Ok(schema);
    }
    let columns = columns(command)?;
    let key: Vec<&str> = command.primary_key.iter().map(String::as_str).collect();
    let schema = Schema::new(columns.clone(), &key)?;
    runtime
        .block_on(execute(connection, &target::create_statement(table, &columns, &command.primary_key)))?;
    Ok(schema)
}

/// The columns of a table to create: those of the first file.
fn columns(command: &ImportCommand) -> Result<Vec<ColumnSpec>> {
    if command.primary_key.is_empty() {
        let table = &command.table;
        return Err(Error::invalid(format!(
            "table {table} does not exist yet: name its key with --primary-key"
        )));
    }
    inference::infer(&command.files[0])
}

fn size(file: &Path) -> Result<u64> {
    let metadata = std::fs::metadata(file).map_err(|e| Error::from(e).context(file.display()))?;
    Ok(metadata.len())
}

fn progress_bar(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{bar:30} {bytes}/{total_bytes} {msg} {binary_bytes_per_sec} {eta} left",
    );
    ProgressBar::new(bytes).with_style(style.expect("the template is valid"))
}
