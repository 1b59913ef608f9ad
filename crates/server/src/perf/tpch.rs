//! TPC-H: loads the tables and runs the 22 queries, alone or in turns with plain DataFusion over the same rows as
//! Parquet files.

use crate::import::{Sink, TableName, execute, existing};
use crate::runtime;
use crate::sql::connection::{Connection, Target};
use crate::sql::{Format, Printer};
use crate::stdout::say;
use crate::tpch::{QUERIES, SCHEMA, TABLES, generate};
use oribi_query::ParquetReference;
use oribi_types::{Error, Result};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

#[derive(Clone, Debug, clap::Args)]
pub struct TpchCommand {
    /// 1 is 8.7 million rows
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    #[command(flatten)]
    target: Target,
    /// Times that each query runs; its median counts
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Query to run, if not all; may be given again
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=22))]
    query: Vec<u8>,
    /// Run each query also by plain DataFusion over the same rows as Parquet files, in turns
    #[arg(long, value_enum)]
    compare: Option<Compare>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Compare {
    Parquet,
}

pub fn run(command: &TpchCommand) -> Result<()> {
    let runtime = runtime()?;
    let connection = runtime.block_on(Connection::open(&command.target))?;
    let result = measure(&runtime, &connection, command);
    let closed = connection.close();
    result.and(closed)
}

fn measure(runtime: &Runtime, connection: &Connection, command: &TpchCommand) -> Result<()> {
    load(runtime, connection, command.scale)?;
    let files = tempfile::tempdir()?;
    let reference = match command.compare {
        None => None,
        Some(Compare::Parquet) => {
            generate(command.scale, files.path(), |_, _| Ok(()))?;
            let tables: Vec<_> = TABLES.iter().map(|table| (table.name, table.file(files.path()))).collect();
            Some(runtime.block_on(ParquetReference::open(&tables))?)
        }
    };
    say!("query     rows         ms{}", if reference.is_some() { "    parquet ms   ratio" } else { "" })?;
    let (mut total, mut total_reference) = (Duration::ZERO, Duration::ZERO);
    for number in (1..=22u8).filter(|n| command.query.is_empty() || command.query.contains(n)) {
        let sql = QUERIES[usize::from(number) - 1];
        let (mut times, mut reference_times, mut rows) = (Vec::new(), Vec::new(), 0);
        for _ in 0..command.runs.max(1) {
            let started = Instant::now();
            rows = runtime
                .block_on(count_rows(connection, sql))
                .map_err(|e| e.context(format!("query {number}")))?;
            times.push(started.elapsed());
            if let Some(reference) = &reference {
                let started = Instant::now();
                let expected = runtime.block_on(reference.rows(sql))?;
                reference_times.push(started.elapsed());
                if expected != rows {
                    return Err(Error::internal(format!(
                        "query {number}: {rows} rows, but {expected} from Parquet"
                    )));
                }
            }
        }
        let time = median(&mut times);
        total += time;
        let other = reference.is_some().then(|| median(&mut reference_times));
        total_reference += other.unwrap_or_default();
        say!("{number:5} {rows:8} {}", timed(time, other))?;
    }
    say!("total          {}", timed(total, reference.is_some().then_some(total_reference)))
}

/// A time beside that of the reference, if there is one.
fn timed(time: Duration, reference: Option<Duration>) -> String {
    let other = reference.map(|other| format!(" {:13.1} {:7.2}", ms(other), ms(time) / ms(other)));
    format!("{:10.1}{}", ms(time), other.unwrap_or_default())
}

/// Creates and fills the tables, unless they are there.
fn load(runtime: &Runtime, connection: &Connection, scale: f64) -> Result<()> {
    if runtime.block_on(existing(connection, &TableName::parse("lineitem")))?.is_some() {
        return say!("the tables are there; --scale is ignored");
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
    say!("loaded {rows} rows in {:.2} s", started.elapsed().as_secs_f64())
}

async fn count_rows(connection: &Connection, sql: &str) -> Result<u64> {
    let mut nowhere = std::io::sink();
    let mut printer = Printer::new(&mut nowhere, Format::Csv);
    connection.run(sql, &mut printer).await?;
    Ok(printer.rows())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
