//! TPC-H: loads the tables and runs the 22 queries, alone or in turns with plain DataFusion over the same rows as
//! Parquet files, and tells of each query what its parts cost.

mod answer;
mod change;
mod cluster;
mod figures;

use super::kv::CpuTime;
use crate::import::{Sink, TableName, execute, existing};
use crate::runtime;
use crate::sql::connection::{Connection, Target, print_batches};
use crate::sql::{Format, Printer};
use crate::stdout::say;
use crate::tpch::{QUERIES, SCHEMA, TABLES, generate};
use answer::Answer;
use change::Updates;
use cluster::Cluster;
use figures::{Figures, Table};
use oribi_query::ParquetReference;
use oribi_types::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

#[derive(Clone, Debug, clap::Args)]
pub struct TpchCommand {
    /// 1 is 8.7 million rows
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    #[command(flatten)]
    target: Target,
    /// Times that each query runs; the median of each figure counts
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Query to run, if not all; may be given again
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=22))]
    query: Vec<u8>,
    /// Run each query also by plain DataFusion over the same rows as Parquet files, in turns; the answers must be the same
    #[arg(long, value_enum)]
    compare: Option<Compare>,
    /// Print so many rows of each answer, and of the reference's
    #[arg(long, value_name = "N", default_value_t = 0)]
    rows: usize,
    /// Update, delete and insert again so many of a hundred orders first, with their lineitems, and leave that unflushed
    #[arg(long, value_name = "PCT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    changed_pct: u8,
    /// Write what is in memory to files first, without compacting them; of a folder in this process
    #[arg(long, conflicts_with = "host")]
    flush: bool,
    /// Update about so many rows of lineitem each second while the queries run
    #[arg(long, value_name = "ROWS", default_value_t = 0)]
    updates_per_second: u64,
    /// Run an owner and so many compute nodes, two at least, as processes over a folder of their own; each has --memory
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..), conflicts_with_all = ["host", "data", "flush"])]
    nodes: Option<u8>,
    /// Write the figures to a file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print each figure beside that of an earlier run, which was saved
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Compare {
    Parquet,
}

/// How long compute nodes may take to be known to their owner.
const NODES_WITHIN: Duration = Duration::from_secs(30);

pub fn run(command: &TpchCommand) -> Result<()> {
    let baseline = command.baseline.as_deref().map(Table::read).transpose()?;
    let runtime = runtime()?;
    let mut command = command.clone();
    let cluster = command.nodes.map(|nodes| Cluster::start(nodes, &command.target.memory)).transpose()?;
    command.target.host = cluster.as_ref().map(|cluster| cluster.host.clone()).or(command.target.host);
    let connection = runtime.block_on(Connection::open_unflushed(&command.target))?;
    let result = measure(&runtime, &connection, &command, baseline.as_ref());
    let closed = connection.close();
    result.and(closed)
}

fn measure(
    runtime: &Runtime,
    connection: &Connection,
    command: &TpchCommand,
    baseline: Option<&Table>,
) -> Result<()> {
    let scale = match load(runtime, connection, command.scale)? {
        true => format!("scale {}", command.scale),
        false => "tables that were there".to_owned(),
    };
    if let Some(nodes) = command.nodes {
        runtime.block_on(wait_for_nodes(connection, nodes))?;
    }
    if command.changed_pct > 0 {
        let started = Instant::now();
        change::change(runtime, connection, command.changed_pct)?;
        say!("changed {} % of the rows in {:.2} s", command.changed_pct, started.elapsed().as_secs_f64())?;
    }
    if let (true, Connection::Local { database, .. }) = (command.flush, connection) {
        for table in TABLES {
            database.engine.flush(&database.engine.table("public", table.name)?)?;
        }
    }
    let files = tempfile::tempdir()?;
    let reference = match command.compare {
        None => None,
        Some(Compare::Parquet) => Some(reference(runtime, command.scale, files.path())?),
    };
    if let Some(baseline) = baseline {
        say!("in brackets: {}", baseline.taken)?;
    }
    let updates = match command.updates_per_second {
        0 => None,
        rows => {
            let other = runtime.block_on(connection.another(&command.target))?;
            Some((Instant::now(), Updates::begin(runtime, other, rows)?))
        }
    };
    let compared = if reference.is_some() { "   parquet ms  ratio" } else { "" };
    say!("query    rows{}{compared}", Figures::heading(baseline.is_some()))?;
    let mut table = Table { taken: taken(&scale, command), ..Table::default() };
    let mut total_reference = 0.0;
    for number in (1..=22u8).filter(|n| command.query.is_empty() || command.query.contains(n)) {
        let measured = measure_query(runtime, connection, command, number, reference.as_ref());
        let Measured { rows, figures, reference_ms } =
            measured.map_err(|e| e.context(format!("query {number}")))?;
        let before = baseline.map(|b| b.queries.get(&number).copied().unwrap_or(Figures::of_nothing()));
        say!("{number:5} {rows:7}{}{}", figures.line(before), compare(figures, reference_ms))?;
        total_reference += reference_ms.unwrap_or_default();
        table.queries.insert(number, figures);
    }
    let total = table.total(&table);
    let compared = compare(total, reference.is_some().then_some(total_reference));
    say!("total        {}{compared}", total.line(baseline.map(|baseline| baseline.total(&table))))?;
    if let Some((began, updates)) = updates {
        let rate = updates.end(runtime)? as f64 / began.elapsed().as_secs_f64();
        say!("meanwhile {rate:.0} rows of lineitem were updated a second, about")?;
    }
    command.save.as_deref().map_or(Ok(()), |path| table.save(path))
}

/// Until the owner shares queries out over as many.
async fn wait_for_nodes(connection: &Connection, nodes: u8) -> Result<()> {
    let begun = Instant::now();
    loop {
        let explained = answer(connection, "explain select sum(l_quantity) from lineitem").await?;
        let said = explained.value().unwrap_or_default();
        if said.starts_with(&format!("nodes: {nodes} (")) {
            return Ok(());
        }
        if begun.elapsed() > NODES_WITHIN {
            return Err(Error::unavailable(format!("the compute nodes do not come: {said}")));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// How the figures were taken, in words.
fn taken(scale: &str, command: &TpchCommand) -> String {
    let TpchCommand { changed_pct, updates_per_second, runs, nodes, .. } = command;
    let profile = if cfg!(debug_assertions) { "development" } else { "release" };
    let flushed = if command.flush { " and flushed" } else { "" };
    let over = nodes.map_or_else(String::new, |nodes| format!("an owner and {nodes} compute nodes, "));
    format!(
        "{over}{scale}, {changed_pct} % of the rows changed{flushed}, {updates_per_second} updated a second, \
         median of {runs}, {profile} build"
    )
}

/// The time of the reference and the ratio, if there is one.
fn compare(figures: Figures, reference_ms: Option<f64>) -> String {
    reference_ms.map_or(String::new(), |other| format!(" {other:12.1} {:6.2}", figures.ms() / other))
}

struct Measured {
    rows: usize,
    figures: Figures,
    reference_ms: Option<f64>,
}

fn measure_query(
    runtime: &Runtime,
    connection: &Connection,
    command: &TpchCommand,
    number: u8,
    reference: Option<&ParquetReference>,
) -> Result<Measured> {
    let sql = QUERIES[usize::from(number) - 1];
    let explain = format!("explain (analyze, format json) {sql}");
    let is_here = command.target.host.is_none();
    let (mut runs, mut reference_times, mut rows) = (Vec::new(), Vec::new(), 0);
    for run in 0..command.runs.max(1) {
        let (started, cpu_before) = (Instant::now(), CpuTime::of_this_process());
        let answer = runtime.block_on(answer(connection, sql))?;
        let (time, cpu) = (started.elapsed(), CpuTime::of_this_process() - cpu_before);
        let explained = runtime.block_on(self::answer(connection, &explain))?;
        let explained = explained.value().unwrap_or_default();
        runs.push(Figures::new(ms(time), is_here.then_some(cpu.total() * 1e3), explained)?);
        rows = answer.rows();
        print_rows(run, command.rows, "", &answer)?;
        if let Some(reference) = reference {
            let started = Instant::now();
            let expected = runtime.block_on(reference_answer(reference, sql))?;
            reference_times.push(ms(started.elapsed()));
            print_rows(run, command.rows, "reference: ", &expected)?;
            answer.same_as(&expected)?;
        }
    }
    reference_times.sort_by(f64::total_cmp);
    let reference_ms = reference_times.get(reference_times.len() / 2).copied();
    Ok(Measured { rows, figures: Figures::median(&runs), reference_ms })
}

/// Prints the first rows of the first run.
fn print_rows(run: usize, rows: usize, whose: &str, answer: &Answer) -> Result<()> {
    if run > 0 || rows == 0 {
        return Ok(());
    }
    answer.lines(rows).try_for_each(|line| say!("{whose}{line}"))
}

async fn answer(connection: &Connection, sql: &str) -> Result<Answer> {
    let mut printed = Vec::new();
    connection.run(sql, &mut Printer::new(&mut printed, Format::Csv)).await?;
    Answer::of_csv(&printed)
}

async fn reference_answer(reference: &ParquetReference, sql: &str) -> Result<Answer> {
    let (schema, batches) = reference.rows(sql).await?;
    let mut printed = Vec::new();
    print_batches(&schema, &batches, &mut Printer::new(&mut printed, Format::Csv))?;
    Answer::of_csv(&printed)
}

/// Plain DataFusion over the generated rows.
fn reference(runtime: &Runtime, scale: f64, dir: &Path) -> Result<ParquetReference> {
    generate(scale, dir, |_, _| Ok(()))?;
    let tables: Vec<_> = TABLES.iter().map(|table| (table.name, table.file(dir))).collect();
    runtime.block_on(ParquetReference::open(&tables))
}

/// Creates and fills the tables; `false` if they were there.
fn load(runtime: &Runtime, connection: &Connection, scale: f64) -> Result<bool> {
    if runtime.block_on(existing(connection, &TableName::parse("lineitem")))?.is_some() {
        say!("the tables are there; --scale is ignored")?;
        return Ok(false);
    }
    let started = Instant::now();
    for statement in SCHEMA.split(';').filter(|s| s.contains("create table")) {
        runtime.block_on(execute(connection, statement))?;
    }
    let mut rows = 0;
    for table in TABLES {
        let name = TableName::parse(table.name);
        let schema =
            runtime.block_on(existing(connection, &name))?.ok_or_else(|| Error::not_found(table.name))?;
        let mut sink = Sink::open(connection, &name, &schema)?;
        let (_, batches) = table.batches(scale);
        for batch in batches {
            runtime.block_on(sink.push(batch?))?;
        }
        rows += runtime.block_on(sink.finish())?;
    }
    say!("loaded {rows} rows in {:.2} s", started.elapsed().as_secs_f64())?;
    Ok(true)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
