//! `oribi perf scan`: reads a table over Kudu's protocol and tells how long that took, as `kudu perf table_scan` does.

use super::kv::CpuTime;
use crate::encryption::Encryption;
use crate::stdout::say;
use indicatif::{ProgressBar, ProgressStyle};
use oribi_client::{Client, Scan, ScanToken, Table};
use oribi_types::{Error, Result};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

/// All rows of a table, read as `kudu perf table_scan` does it
#[derive(Clone, Debug, clap::Args)]
pub struct ScanCommand {
    table_name: String,
    /// Masters
    #[arg(long, default_value = "127.0.0.1:7051", value_name = "HOST:PORT", value_delimiter = ',')]
    master: Vec<String>,
    #[command(flatten)]
    encryption: Encryption,
    /// Columns to read; all by default
    #[arg(long, value_delimiter = ',')]
    columns: Vec<String>,
    /// Count the rows without reading a column
    #[arg(long, alias = "row_count_only")]
    row_count_only: bool,
    /// Bytes of an answer, about
    #[arg(long, alias = "scan_batch_size")]
    scan_batch_size: Option<u32>,
    /// Go on where it was if a server fails, which has rows read in the order of their keys
    #[arg(long, alias = "fault_tolerant")]
    fault_tolerant: bool,
    /// Ask for answers row by row instead of column by column
    #[arg(long)]
    rowwise: bool,
    #[arg(long, alias = "num_threads", default_value_t = 2)]
    num_threads: usize,
}

pub fn run(command: &ScanCommand) -> Result<()> {
    let tokens = runtime()?.block_on(async {
        let client = Client::connect_with(&command.master, command.encryption.client_options()?).await?;
        let table = client.open_table(&command.table_name).await?;
        command.scan(&table)?.tokens().await
    })?;
    let parts: Vec<Vec<u8>> = tokens.iter().map(ScanToken::serialize).collect();
    let (cpu_before, started) = (CpuTime::of_this_process(), Instant::now());
    let style = ProgressStyle::with_template("{spinner} {human_pos} rows, {per_sec}");
    let bar = ProgressBar::new_spinner().with_style(style.expect("the template is valid"));
    let (left, total) = (Mutex::new(parts.into_iter()), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let work = || scope.spawn(|| read_parts(command, &left, &total, &bar));
        let threads: Vec<_> = (0..command.num_threads.max(1)).map(|_| work()).collect();
        let ended = |thread: ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|_| Err(Error::internal("a thread of the scan panicked")))
        };
        threads.into_iter().try_for_each(ended)
    })?;
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), CpuTime::of_this_process() - cpu_before);
    bar.finish_and_clear();
    say!("Total count {} cost {seconds:.6} seconds", total.into_inner())?;
    say!("client CPU: {:.2} s user, {:.2} s system", cpu.user, cpu.system)
}

/// Reads tablets, one after the other, until none is left. A thread has a client of its own, as the parts are for other
/// processes as well.
fn read_parts(
    command: &ScanCommand,
    left: &Mutex<impl Iterator<Item = Vec<u8>>>,
    total: &AtomicU64,
    bar: &ProgressBar,
) -> Result<()> {
    runtime()?.block_on(async {
        let client = Client::connect_with(&command.master, command.encryption.client_options()?).await?;
        loop {
            let next = left.lock().map_err(|_| Error::internal("another thread panicked"))?.next();
            let Some(token) = next else { return Ok(()) };
            let token = ScanToken::deserialize(&client, &token).await?;
            let mut scanner = token.columnar(!command.rowwise).scanner();
            while let Some(batch) = scanner.next_batch().await? {
                total.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                bar.inc(batch.num_rows() as u64);
            }
        }
    })
}

impl ScanCommand {
    fn scan(&self, table: &Table) -> Result<Scan> {
        let mut scan = table.scan();
        if self.row_count_only {
            scan = scan.project(&[])?;
        } else if !self.columns.is_empty() {
            scan = scan.project(&self.columns.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        if let Some(bytes) = self.scan_batch_size {
            scan = scan.batch_bytes(bytes);
        }
        Ok(if self.fault_tolerant { scan.fault_tolerant() } else { scan })
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
