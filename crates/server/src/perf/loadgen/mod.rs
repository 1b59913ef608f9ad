//! `oribi perf loadgen`: rows into a table as fast as possible, over Kudu's protocol, as `kudu perf loadgen` does it: the same
//! options, rows and report, so that the two clients can be measured against the same server, Oribi or Kudu.
//!
//! Each thread has a client, a session and a connection of its own, and drives them itself: rows are built on the thread that
//! also sends them, and nothing is handed between threads.

mod generate;
mod table;

use super::kv::CpuTime;
use crate::encryption::Encryption;
use crate::stdout::{complain, say};
use generate::{Generator, Numbers};
use indicatif::{ProgressBar, ProgressStyle};
use oribi_client::{
    Client, ClientOptions, FlushMode, OperationType, Progress, ReadMode, Session, SessionOptions,
};
use oribi_types::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Generated rows into a table, as `kudu perf loadgen` does it
#[derive(Clone, Debug, clap::Args)]
pub struct LoadgenCommand {
    /// Masters
    #[arg(long, default_value = "127.0.0.1:7051", value_name = "HOST:PORT", value_delimiter = ',')]
    master: Vec<String>,
    #[command(flatten)]
    encryption: Encryption,
    /// Schema of the table that is made
    #[arg(long, alias = "auto_database", default_value = "default")]
    auto_database: String,
    /// Share of the buffer, 0 to 1, that is filled before it is sent
    #[arg(long, alias = "buffer_flush_watermark_pct", default_value_t = 0.5)]
    buffer_flush_watermark_pct: f64,
    /// Bytes of rows that a session may hold
    #[arg(long, alias = "buffer_size_bytes", default_value_t = 4 << 20)]
    buffer_size_bytes: usize,
    /// Flushes that a session may have under way
    #[arg(long, alias = "buffers_num", default_value_t = 2)]
    buffers_num: usize,
    /// Flush by hand after so many rows; 0: in the background
    #[arg(long, alias = "flush_per_n_rows", default_value_t = 0)]
    flush_per_n_rows: u64,
    /// Keep the table that is made
    #[arg(long, alias = "keep_auto_table")]
    keep_auto_table: bool,
    #[arg(long, alias = "num_rows_per_thread", default_value_t = 1000)]
    num_rows_per_thread: u64,
    #[arg(long, alias = "num_threads", default_value_t = 2)]
    num_threads: u64,
    /// Delete the rows afterwards
    #[arg(long, alias = "run_cleanup")]
    run_cleanup: bool,
    /// Count the rows afterwards
    #[arg(long, alias = "run_scan")]
    run_scan: bool,
    /// First number of the sequence
    #[arg(long, alias = "seq_start", default_value_t = 0)]
    seq_start: u64,
    /// Show so many errors of each thread
    #[arg(long, alias = "show_first_n_errors", default_value_t = 0)]
    show_first_n_errors: usize,
    /// Text for all columns of text and bytes
    #[arg(long, alias = "string_fixed")]
    string_fixed: Option<String>,
    /// Bytes of generated text
    #[arg(long, alias = "string_len", default_value_t = 32)]
    string_len: usize,
    /// Use this table; otherwise one is made, and dropped afterwards
    #[arg(long, alias = "table_name")]
    table_name: Option<String>,
    #[arg(long, alias = "table_num_hash_partitions", default_value_t = 8)]
    table_num_hash_partitions: u32,
    #[arg(long, alias = "table_num_range_partitions", default_value_t = 1)]
    table_num_range_partitions: u64,
    /// Replicas of the table that is made; 0: the server's default
    #[arg(long, alias = "table_num_replicas", default_value_t = 1)]
    table_num_replicas: u32,
    /// Random numbers instead of a sequence, in all columns
    #[arg(long, alias = "use_random")]
    use_random: bool,
    /// Random numbers in the columns of the key
    #[arg(long, alias = "use_random_pk")]
    use_random_pk: bool,
    /// Random numbers in the other columns
    #[arg(long, alias = "use_random_non_pk")]
    use_random_non_pk: bool,
    /// Upsert instead of insert
    #[arg(long, alias = "use_upsert")]
    use_upsert: bool,
    /// How long an operation is tried
    #[arg(long, alias = "timeout_ms", default_value_t = 60_000)]
    timeout_ms: u64,
}

/// What a thread did.
struct Done {
    rows: u64,
    errors: u64,
    observed: u64,
}

pub fn run(command: &LoadgenCommand) -> Result<()> {
    if command.num_threads == 0 || !(0.0..=1.0).contains(&command.buffer_flush_watermark_pct) {
        return Err(Error::invalid("--num-threads is at least 1, --buffer-flush-watermark-pct from 0 to 1"));
    }
    let runtime = runtime()?;
    let client = runtime.block_on(command.connect())?;
    let (name, is_made) = runtime.block_on(table::prepare(&client, command))?;
    say!("Using {}table '{name}'", if is_made { "auto-created " } else { "" })?;
    let write = if command.use_upsert { OperationType::Upsert } else { OperationType::Insert };
    let done = report(command, &name, write)?;
    client.observe(done.observed);
    if command.run_scan {
        count(&runtime, &client, &name, done.rows)?;
    }
    if command.run_cleanup && !is_made {
        report(command, &name, OperationType::Delete)?;
    }
    if is_made && !command.keep_auto_table {
        // The table goes, whether or not anybody still listens.
        let said = say!("Dropping auto-created table '{name}'");
        runtime.block_on(client.delete_table(&name))?;
        said?;
    }
    Ok(())
}

/// Runs all threads and tells what they did.
fn report(command: &LoadgenCommand, table: &str, operation: OperationType) -> Result<Done> {
    let (cpu_before, started) = (CpuTime::of_this_process(), Instant::now());
    let bar = progress_bar(command.num_threads * command.num_rows_per_thread);
    let done = in_threads(command, table, operation, &bar);
    let (elapsed, cpu) = (started.elapsed(), CpuTime::of_this_process() - cpu_before);
    bar.finish_and_clear();
    let done = done?;
    let millis = elapsed.as_secs_f64() * 1000.0;
    say!("\n{} report", if operation == OperationType::Delete { "DELETE" } else { "INSERT" })?;
    say!("    rows total: {}", done.rows)?;
    say!("    time total: {millis:.3} ms")?;
    if done.rows > 0 && done.errors == 0 {
        say!("  time per row: {:.9} ms", millis / done.rows as f64)?;
    }
    say!("    client CPU: {:.2} s user, {:.2} s system", cpu.user, cpu.system)?;
    match done.errors {
        0 => Ok(done),
        errors => Err(Error::internal(format!("encountered {errors} write operation errors"))),
    }
}

fn in_threads(
    command: &LoadgenCommand,
    table: &str,
    operation: OperationType,
    bar: &ProgressBar,
) -> Result<Done> {
    std::thread::scope(|scope| {
        let thread = |number| scope.spawn(move || generate(command, table, operation, number, bar));
        let threads: Vec<_> = (0..command.num_threads).map(thread).collect();
        let ended = |thread: ScopedJoinHandle<'_, Result<Done>>| {
            thread.join().unwrap_or_else(|_| Err(Error::internal("a thread of the load panicked")))
        };
        let mut all = Done { rows: 0, errors: 0, observed: 0 };
        for done in threads.into_iter().map(ended).collect::<Vec<_>>() {
            let Done { rows, errors, observed } = done?;
            all.rows += rows;
            all.errors += errors;
            all.observed = all.observed.max(observed);
        }
        Ok(all)
    })
}

/// What one thread does.
fn generate(
    command: &LoadgenCommand,
    table: &str,
    operation: OperationType,
    number: u64,
    bar: &ProgressBar,
) -> Result<Done> {
    runtime()?.block_on(async {
        let client = command.connect().await?;
        let table = client.open_table(table).await?;
        let mut session = client.session(command.session_options(bar));
        let seed = number * command.span(table.key_columns() as u64) + command.seq_start;
        let mut generator = Generator::new(&table, command.string_fixed.as_deref(), command.string_len)?;
        let mut key = Numbers::new(command.is_random(command.use_random_pk), seed);
        let mut value = Numbers::new(command.is_random(command.use_random_non_pk), seed);
        for row in 0..command.num_rows_per_thread {
            generator.apply(&mut session, &table, operation, &mut key, &mut value).await?;
            if command.flush_per_n_rows != 0 && row != 0 && row % command.flush_per_n_rows == 0 {
                session.start_flush().await;
            }
        }
        // What failed is among the errors.
        let _ = session.flush().await;
        let errors = show_errors(command, number, &mut session);
        Ok(Done { rows: command.num_rows_per_thread, errors, observed: client.observed_timestamp() })
    })
}

fn show_errors(command: &LoadgenCommand, number: u64, session: &mut Session) -> u64 {
    let errors = session.take_errors();
    if !errors.is_empty() && command.show_first_n_errors > 0 {
        complain(format_args!("Error from generator {number:4}:"));
        for error in errors.errors.iter().take(command.show_first_n_errors) {
            complain(format_args!("  {error}"));
        }
    }
    errors.count()
}

/// Reads the rows back, at a time that is not before any of the writes.
fn count(runtime: &tokio::runtime::Runtime, client: &Client, table: &str, expected: u64) -> Result<()> {
    let actual = runtime.block_on(async {
        let table = client.open_table(table).await?;
        let mut scanner = table.scan().project(&[])?.read_mode(ReadMode::YourWrites).scanner();
        let mut rows = 0;
        while let Some(batch) = scanner.next_batch().await? {
            rows += batch.num_rows() as u64;
        }
        Ok::<u64, Error>(rows)
    })?;
    say!("\nScanner report")?;
    say!("  expected rows: {expected}")?;
    say!("  actual rows  : {actual}")?;
    match actual == expected {
        true => Ok(()),
        false => Err(Error::internal(format!("row count mismatch: expected {expected}, actual {actual}"))),
    }
}

impl LoadgenCommand {
    async fn connect(&self) -> Result<Client> {
        let operation_timeout = Duration::from_millis(self.timeout_ms);
        let options = ClientOptions { operation_timeout, ..self.encryption.client_options()? };
        Client::connect_with(&self.master, options).await
    }

    fn session_options(&self, bar: &ProgressBar) -> SessionOptions {
        let is_manual = self.flush_per_n_rows != 0;
        let (bar, before) = (bar.clone(), AtomicU64::new(0));
        let progress = move |progress: Progress| {
            let rows = progress.rows_written + progress.rows_failed;
            bar.inc(rows.saturating_sub(before.swap(rows, Ordering::Relaxed)));
        };
        SessionOptions {
            mode: if is_manual { FlushMode::Manual } else { FlushMode::Background },
            buffer_bytes: self.buffer_size_bytes,
            watermark: self.buffer_flush_watermark_pct,
            flushes_max: Some(self.buffers_num),
            progress: Some(Arc::new(progress)),
            ..SessionOptions::default()
        }
    }

    /// How many numbers a thread uses up in the columns of the key: that far apart they begin.
    fn span(&self, key_columns: u64) -> u64 {
        self.num_rows_per_thread * key_columns
    }

    fn is_random(&self, asked: bool) -> bool {
        let is_either_asked = self.use_random_pk || self.use_random_non_pk;
        asked || (self.use_random && !is_either_asked)
    }
}

/// All of a thread's tasks on the thread itself.
fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn progress_bar(rows: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:30} {human_pos} of {human_len} rows, {per_sec}, {eta} left");
    ProgressBar::new(rows).with_style(style.expect("the template is valid"))
}
