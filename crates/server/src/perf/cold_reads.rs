//! `oribi perf cold-reads`: point reads of a table that is ten times the memory budget, in this process, by the calls
//! that doors make: [`Engine::try_get`] and, where only a file can tell, [`Engine::get`].
//!
//! Keys are hexadecimal numbers in an order that looks random, so that each flush spans the whole range of keys; those
//! asked for are uniform, and so are absent ones, which lie between those that are there. The files are in the
//! operating system's cache if they fit it: what is measured is the way through the code.

use super::random::Xorshift;
use crate::config::parse_size;
use crate::stdout::say;
use hdrhistogram::Histogram;
use oribi_engine::{Decision, Engine, EngineOptions, EngineStats, Lookup, Read, Table, WriteOp};
use oribi_env::Env;
use oribi_types::schema::ColumnSpec;
use oribi_types::{
    ColumnType, Durability, Error, Partitioning, Result, Schema, TableDefinition, TableOptions, ValueRef,
};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Point reads of a table ten times the memory budget
#[derive(Clone, Debug, clap::Args)]
pub struct ColdReads {
    /// Memory budget while reading
    #[arg(long, default_value = "64MiB", value_name = "SIZE")]
    memory: String,
    /// Rows; without it, as many as make ten times the budget
    #[arg(long)]
    rows: Option<u64>,
    /// Bytes of a row's values together
    #[arg(long, default_value_t = 512)]
    value_bytes: usize,
    /// Columns that the values are cut into; 0 is a key-value table
    #[arg(long, default_value_t = 0)]
    columns: usize,
    /// Leave this many files that all have the whole range of keys, and compact nothing
    #[arg(long)]
    files: Option<u64>,
    /// Share of reads that ask for keys that are absent, in percent
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    absent_pct: u8,
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// Seconds to measure
    #[arg(long, default_value_t = 10)]
    duration: u64,
    /// Reads of each thread to measure, instead of a duration
    #[arg(long, conflicts_with = "duration")]
    operations: Option<u64>,
    /// Folder to keep the table in; one that has it is only read
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What a key, and each column of a row, begins with; sixteen digits follow.
const PREFIX: &str = "key:";
const WARM_UP: Duration = Duration::from_secs(3);
/// Rows of a write while loading.
const LOAD_ROWS: u64 = 100;

pub fn run(command: &ColdReads) -> Result<()> {
    let budget = parse_size(&command.memory).map_err(|e| e.context("--memory"))?;
    let rows = command.rows.unwrap_or(10 * budget / (command.value_bytes + PREFIX.len() + 16) as u64);
    if rows == 0 || command.threads == 0 || command.files == Some(0) {
        return Err(Error::invalid("rows, threads and files must not be 0"));
    }
    let scratch = tempfile::tempdir()?;
    let dir = command.dir.as_deref().unwrap_or(scratch.path());
    let engine = Engine::open(Env::real(), dir, command.options(budget))?;
    let loaded = load_unless_there(command, engine, dir, budget, rows)?;
    let table = loaded.table("public", "cold")?;
    let result = measure(command, &loaded, &table, rows);
    result.and(loaded.close())
}

impl ColdReads {
    fn options(&self, budget: u64) -> EngineOptions {
        EngineOptions { background: self.files.is_none(), ..EngineOptions::with_memory(budget) }
    }

    fn schema(&self) -> Result<Schema> {
        let mut columns = vec![ColumnSpec::new("key", ColumnType::String).not_null()];
        columns.extend((0..self.columns).map(|i| ColumnSpec::new(format!("c{i}"), ColumnType::String)));
        if self.columns == 0 { Ok(Schema::key_value()) } else { Schema::new(columns, &["key"]) }
    }
}

/// The engine with the table in it, which was just opened: caches are empty.
fn load_unless_there(
    command: &ColdReads,
    engine: Arc<Engine>,
    dir: &Path,
    budget: u64,
    rows: u64,
) -> Result<Arc<Engine>> {
    if let Ok(table) = engine.table("public", "cold") {
        say!("{rows} rows are taken to be there, {} are", table.estimated_rows())?;
        return Ok(engine);
    }
    engine.close()?;
    drop(engine);
    // Files are as the background makes them under the budget; or each takes its part of all rows in memory at once.
    let loading =
        if command.files.is_some() { 8 * rows * (command.value_bytes as u64 + 512) } else { budget };
    let engine = Engine::open(Env::real(), dir, command.options(loading))?;
    let loaded = load(command, &engine, rows);
    loaded.and(engine.close())?;
    drop(engine);
    Engine::open(Env::real(), dir, command.options(budget))
}

fn load(command: &ColdReads, engine: &Arc<Engine>, rows: u64) -> Result<()> {
    let started = Instant::now();
    let table = engine.create_table(TableDefinition {
        schema_name: "public".into(),
        name: "cold".into(),
        schema: command.schema()?,
        partitioning: Partitioning::none(),
        options: TableOptions::new(Durability::Periodic(100)),
    })?;
    let flush_every = command.files.map_or(u64::MAX, |files| rows.div_ceil(files));
    for first in (0..rows).step_by(LOAD_ROWS as usize) {
        let keys: Vec<String> = (first..(first + LOAD_ROWS).min(rows)).map(key).collect();
        let ops: Vec<WriteOp<'_>> = keys
            .iter()
            .map(|key| WriteOp { table: &table, key: key.as_bytes(), read: Read::Blind, row: &[] })
            .collect();
        let mut values = Xorshift::new(first + 1);
        engine.write(&ops, &mut |i, _, row| {
            encode(command, &table, &keys[i], &mut values, row)?;
            Ok(Decision::Put)
        })?;
        if (first + LOAD_ROWS) / flush_every > first / flush_every {
            engine.flush(&table)?;
        }
    }
    engine.flush(&table)?;
    wait_for_compactions(engine);
    say!("loaded {rows} rows in {:.1} s", started.elapsed().as_secs_f64())?;
    Ok(())
}

fn wait_for_compactions(engine: &Engine) {
    let state = || (engine.stats().compactions, engine.stats().job_bytes);
    let mut before = state();
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = state();
        if now == before && now.1 == 0 {
            return;
        }
        before = now;
    }
}

/// Key `n`: twenty bytes; neighbours are far from each other.
fn key(n: u64) -> String {
    format!("{PREFIX}{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// A row whose values are text in the manner of JSON: half of it names, half digits without pattern.
fn encode(
    command: &ColdReads,
    table: &Table,
    key: &str,
    random: &mut Xorshift,
    row: &mut Vec<u8>,
) -> Result<()> {
    let columns = command.columns.max(1);
    let bytes = command.value_bytes / columns;
    let mut value = Vec::with_capacity(columns * bytes + 64);
    while value.len() < columns * bytes {
        write!(value, "\"a field of it\": \"{:016x}\", ", random.next())?;
    }
    let text = std::str::from_utf8(&value).map_err(|e| Error::internal(e.to_string()))?;
    let schema = table.schema_ref();
    let mut encoded = Vec::new();
    if command.columns == 0 {
        let value = ValueRef::Binary(&value[..bytes]);
        let values =
            [ValueRef::Binary(key.as_bytes()), value, ValueRef::Int64(0), ValueRef::Null, ValueRef::Null];
        return schema.encode(&values, &mut encoded, row);
    }
    let mut values = vec![ValueRef::String(key)];
    values.extend((0..columns).map(|i| ValueRef::String(&text[i * bytes..(i + 1) * bytes])));
    schema.encode(&values, &mut encoded, row)
}

/// How a read was answered.
#[derive(Clone, Copy)]
enum Answer {
    Cached,
    Cold,
    /// Absent, by key range and filters.
    Filtered,
    /// Absent, and a filter had said that it may be there.
    NotInFiles,
}

const ANSWERS: [(Answer, &str); 4] = [
    (Answer::Cached, "row cache"),
    (Answer::Cold, "files"),
    (Answer::Filtered, "absent, by filters"),
    (Answer::NotInFiles, "absent, by files"),
];

type Latencies = [Histogram<u64>; 4];

fn latencies() -> Latencies {
    // Nanoseconds, to three digits.
    std::array::from_fn(|_| Histogram::new_with_max(60_000_000_000, 3).expect("the bounds are valid"))
}

fn measure(command: &ColdReads, engine: &Arc<Engine>, table: &Arc<Table>, rows: u64) -> Result<()> {
    let threads = |limit: Limit| -> Result<Latencies> {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..command.threads)
                .map(|thread| {
                    let warming = u64::from(matches!(limit, Limit::WarmUp));
                    let random = Xorshift::new(2 * thread + warming + 1);
                    scope.spawn(move || read(command, engine, table, rows, random, limit))
                })
                .collect();
            let mut all = latencies();
            for worker in workers {
                let one = worker.join().map_err(|_| Error::internal("a reader panicked"))??;
                for (all, one) in all.iter_mut().zip(one) {
                    all.add(one).map_err(|e| Error::internal(e.to_string()))?;
                }
            }
            Ok(all)
        })
    };
    threads(Limit::WarmUp)?;
    let (before, started) = (engine.stats(), Instant::now());
    let limit = command.operations.map_or(Limit::Time(Duration::from_secs(command.duration)), Limit::Reads);
    let latencies = threads(limit)?;
    report(&latencies, started.elapsed(), &before, &engine.stats())
}

#[derive(Clone, Copy)]
enum Limit {
    WarmUp,
    Time(Duration),
    Reads(u64),
}

fn read(
    command: &ColdReads,
    engine: &Engine,
    table: &Arc<Table>,
    rows: u64,
    mut random: Xorshift,
    limit: Limit,
) -> Result<Latencies> {
    let mut latencies = latencies();
    let begun = Instant::now();
    let (time, reads) = match limit {
        Limit::WarmUp => (WARM_UP, u64::MAX),
        Limit::Time(time) => (time, u64::MAX),
        Limit::Reads(reads) => (Duration::MAX, reads),
    };
    for n in 0..reads {
        let absent = (random.next() >> 32) % 100 < u64::from(command.absent_pct);
        // Numbers that no row has give keys between those of the rows.
        let key = key((random.next() >> 16) % rows + if absent { rows } else { 0 });
        let started = Instant::now();
        let answer = answer(engine, table, key.as_bytes())?;
        latencies[answer as usize].saturating_record(started.elapsed().as_nanos() as u64);
        if absent == matches!(answer, Answer::Cached | Answer::Cold) {
            return Err(Error::internal(format!("{key} was answered wrongly")));
        }
        if n % 64 == 0 && begun.elapsed() >= time {
            break;
        }
    }
    Ok(latencies)
}

fn answer(engine: &Engine, table: &Arc<Table>, key: &[u8]) -> Result<Answer> {
    let view = engine.read_view();
    match engine.try_get(table, key, view, |row| black_box(row.row.len())) {
        Lookup::Found(..) => Ok(Answer::Cached),
        Lookup::Absent(_) => Ok(Answer::Filtered),
        Lookup::Pending => {
            let (found, _) = engine.get(table, key, view, |row| black_box(row.row.len()))?;
            Ok(if found.is_some() { Answer::Cold } else { Answer::NotInFiles })
        }
    }
}

fn report(latencies: &Latencies, time: Duration, before: &EngineStats, after: &EngineStats) -> Result<()> {
    let reads: u64 = latencies.iter().map(Histogram::len).sum();
    say!(
        "{} files, {} MiB; row cache {} MiB of a budget of {} MiB, indexes {} MiB",
        after.sstables,
        after.sstable_bytes >> 20,
        after.row_cache_bytes >> 20,
        after.memory_limit_bytes >> 20,
        after.index_bytes >> 20
    )?;
    say!("answered from         share      p50      p90      p99    p99.9     mean  µs")?;
    for (answer, name) in ANSWERS {
        let latencies = &latencies[answer as usize];
        if latencies.is_empty() {
            continue;
        }
        let share = 100.0 * latencies.len() as f64 / reads as f64;
        let quantile = |of: f64| format!("{:8.2}", latencies.value_at_quantile(of) as f64 / 1e3);
        let quantiles = [0.5, 0.9, 0.99, 0.999].map(quantile).join(" ");
        say!("{name:20} {share:5.1} % {quantiles} {:8.2}", latencies.mean() / 1e3)?;
    }
    let files = |answer: Answer| latencies[answer as usize].len();
    let cold = (files(Answer::Cold) + files(Answer::NotInFiles)).max(1) as f64;
    let counted = |of: fn(&EngineStats) -> u64| of(after).saturating_sub(of(before)) as f64;
    let misses = counted(|stats| stats.point_reads.misses);
    // Every file but the one that has the key was asked by its filter.
    let filters = (files(Answer::Filtered) + files(Answer::NotInFiles)) * after.sstables
        + files(Answer::Cold) * (after.sstables - 1);
    say!("{:.0} reads/s; of reads from files, each:", reads as f64 / time.as_secs_f64())?;
    say!(
        "{:.2} files, {:.2} pages, {:.0} bytes; {misses} false answers of filters, {:.2} % at most",
        counted(|stats| stats.point_reads.lookups) / cold,
        counted(|stats| stats.point_reads.pages) / cold,
        counted(|stats| stats.point_reads.page_bytes) / cold,
        100.0 * misses / filters.max(1) as f64
    )
}
