//! Prepared statements about one row of five 34-byte binary columns by an 8-byte binary key, over 10,000 rows with
//! uniform keys: what ScyllaDB's `perf-simple-query` measures, with its options.

mod report;
mod workload;

use super::hardware;
use crate::stdout::say;
use crate::{alloc, database, runtime};
use oribi_session::Database;
use oribi_session::sql::SqlSession;
use oribi_types::{Error, Result};
use report::{Report, Round};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use workload::{Client, Tally};

#[derive(Clone, Debug, clap::Args)]
pub struct SimpleQuery {
    /// Seconds to measure
    #[arg(long, default_value_t = 5)]
    duration: u64,
    /// Measure exactly so many operations instead, on one thread
    #[arg(long, conflicts_with_all = ["duration", "concurrency"])]
    operations: Option<u64>,
    /// Threads that each run one operation after the other
    #[arg(long, default_value_t = 1)]
    concurrency: u64,
    /// Memory budget: rows that are to stay in the memtable take a quarter of it at most
    #[arg(long, default_value = "1GiB")]
    memory: String,
    /// Statements that arrive together: answered together, and what they wrote is given to the operating system once
    #[arg(long, default_value_t = 100)]
    batch: u64,
    /// Keys, one row each
    #[arg(long, default_value_t = 10_000)]
    partitions: u64,
    /// Columns beside the key
    #[arg(long, default_value_t = 5)]
    columns: usize,
    /// Move the rows from the memtable to an SSTable first; they stay in the row cache
    #[arg(long)]
    flush: bool,
    /// Leave no room to the row cache, so that each operation reads the SSTable
    #[arg(long, requires = "flush")]
    bypass_cache: bool,
    /// Always the same key
    #[arg(long)]
    query_single_key: bool,
    /// Measure writes (update of all columns by key) instead of reads
    #[arg(long, conflicts_with = "delete")]
    write: bool,
    /// Measure reads that are planned at each execution, of a row or of none, instead of reads by key
    #[arg(long, value_enum, conflicts_with_all = ["write", "delete"])]
    planned: Option<Planned>,
    /// In one transaction, which does not end
    #[arg(long, conflicts_with_all = ["concurrency", "planned"])]
    in_block: bool,
    /// Measure deletes by key instead of reads; most find their row gone already
    #[arg(long)]
    delete: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Planned {
    Row,
    Nothing,
}

/// Operations before those that count: they fill what threads keep.
const WARM_UP_OPERATIONS: u64 = 1000;

/// So that the text of each statement is short enough to be read on the spot.
const COLUMNS_MAX: usize = 1000;

/// When a round ends.
#[derive(Clone, Copy)]
enum Until {
    Time(Instant),
    Operations(u64),
}

pub fn run(command: &SimpleQuery) -> Result<()> {
    let SimpleQuery { partitions, columns, concurrency, batch, .. } = *command;
    if partitions == 0 || concurrency == 0 || batch == 0 || !(1..=COLUMNS_MAX).contains(&columns) {
        return Err(Error::invalid(format!(
            "--partitions, --concurrency and --batch are at least 1, --columns 1 to {COLUMNS_MAX}"
        )));
    }
    let scratch = tempfile::tempdir()?;
    let database = database::open_as_served(scratch.path(), &command.memory)?;
    let session = SqlSession::new("oribi", "oribi");
    let runtime = runtime()?;
    let result = measure(command, &database, &session, runtime.handle());
    let closed = database.engine.close();
    result.and(closed)
}

fn measure(
    command: &SimpleQuery,
    database: &Database,
    session: &Arc<SqlSession>,
    runtime: &Handle,
) -> Result<()> {
    runtime.block_on(workload::load(command, database, session))?;
    if command.bypass_cache {
        // The row cache has what all others leave of the budget: now, nothing.
        database.engine.memory().reserve(database.engine.memory().limit());
    }
    if command.flush {
        database.engine.flush(&database.engine.table("public", "cf")?)?;
    }
    if command.in_block {
        runtime.block_on(workload::begin(database, session))?;
    }
    let new_client = |i| runtime.block_on(Client::new(command, database, session, i));
    let mut clients = (0..command.concurrency).map(new_client).collect::<Result<Vec<_>>>()?;
    say!("{}", workload::describe(command))?;
    round(&mut clients, Until::Operations(WARM_UP_OPERATIONS), runtime);
    let mut report = Report::default();
    match command.operations {
        Some(operations) => report.add(round(&mut clients, Until::Operations(operations), runtime))?,
        None => {
            for second in 0..=command.duration {
                let until = Until::Time(Instant::now() + Duration::from_secs(1));
                let round = round(&mut clients, until, runtime);
                // The first second warms caches and branch predictors; it does not count.
                if second > 0 {
                    report.add(round)?;
                }
            }
        }
    }
    report.finish(command.concurrency)
}

/// Lets every client run, each on a thread of its own; a single one, on this.
fn round(clients: &mut [Client], until: Until, runtime: &Handle) -> Round {
    alloc::start();
    let started = Instant::now();
    let run = &|client: &mut Client| hardware::count(|| runtime.block_on(client.run(until)));
    let parts: Vec<_> = match clients {
        [only] => vec![run(only)],
        several => std::thread::scope(|scope| {
            let threads: Vec<_> = several.iter_mut().map(|client| scope.spawn(move || run(client))).collect();
            threads.into_iter().map(|thread| thread.join().expect("clients do not panic")).collect()
        }),
    };
    let (elapsed, allocated) = (started.elapsed(), alloc::stop());
    let mut tally = Tally::default();
    let mut counts = Some(hardware::Counts::default());
    for (part, counted) in parts {
        tally += part;
        counts = counts.zip(counted).map(|(mut sum, part)| {
            sum += part;
            sum
        });
    }
    Round { tally, elapsed, allocated, counts }
}
