//! A prepared point select of five 34-byte binary columns by an 8-byte binary key, over 10,000 rows with uniform
//! keys: the statement that ScyllaDB's `perf-simple-query` measures.

use super::random::Xorshift;
use crate::{alloc, database, runtime};
use futures::StreamExt;
use oribi_session::Database;
use oribi_session::sql::{Outcome, Prepared, SqlSession};
use oribi_types::{Error, Result, Value};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, clap::Args)]
pub struct SimpleQuery {
    /// Seconds to measure
    #[arg(long, default_value_t = 5)]
    duration: u64,
    /// Keys, one row each
    #[arg(long, default_value_t = 10_000)]
    partitions: u64,
    /// Move the rows from the memtable to an SSTable first
    #[arg(long)]
    flush: bool,
    /// Measure writes (update by key) instead of reads
    #[arg(long)]
    write: bool,
}

const COLUMNS: [&str; 5] = ["c0", "c1", "c2", "c3", "c4"];
const VALUE_BYTES: usize = 34;
/// Rows per statement while loading.
const LOAD_ROWS: u64 = 500;

pub fn run(command: &SimpleQuery) -> Result<()> {
    if command.partitions == 0 {
        return Err(Error::invalid("--partitions is 0"));
    }
    let scratch = tempfile::tempdir()?;
    let database = database::open(scratch.path(), "1GiB")?;
    let session = SqlSession::new("oribi", "oribi");
    let result = runtime()?.block_on(measure(command, &database, &session));
    let closed = database.engine.close();
    result.and(closed)
}

async fn measure(command: &SimpleQuery, database: &Database, session: &Arc<SqlSession>) -> Result<()> {
    load(command, database, session).await?;
    if command.flush {
        database.engine.flush(&database.engine.table("public", "cf")?)?;
    }
    let statement = if command.write {
        let sets: Vec<String> = (0..COLUMNS.len()).map(|i| format!("c{i} = ${}", i + 2)).collect();
        format!("update cf set {} where k = $1", sets.join(", "))
    } else {
        format!("select {} from cf where k = $1", COLUMNS.join(", "))
    };
    let prepared = prepare(database, session, &statement).await?;
    let mut parameters = vec![Value::Binary(key(0))];
    if command.write {
        parameters.extend(COLUMNS.map(|_| Value::Binary(vec![b'w'; VALUE_BYTES])));
    }
    let mut keys = Keys::new(command.partitions);
    let mut rates = Vec::new();
    let (mut operations, mut allocations, mut errors) = (0, 0, 0);
    println!("{}", if command.write { "writes" } else { "reads" });
    for second in 0..=command.duration {
        let started = Instant::now();
        alloc::start();
        let (mut done, mut failed) = (0u64, 0u64);
        while started.elapsed() < Duration::from_secs(1) {
            for _ in 0..100 {
                keys.next_into(&mut parameters[0]);
                done += 1;
                if !execute(database, &prepared, session, &parameters).await.is_ok_and(|rows| rows == 1) {
                    failed += 1;
                }
            }
        }
        let allocated = alloc::stop();
        if second == 0 {
            // The first second warms caches and branch predictors; it does not count.
            continue;
        }
        let rate = done as f64 / started.elapsed().as_secs_f64();
        println!("{rate:10.0} ops/s {:8.1} allocs/op {failed:5} errors", allocated as f64 / done as f64);
        rates.push(rate);
        (operations, allocations, errors) = (operations + done, allocations + allocated, errors + failed);
    }
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
    println!(
        "median {median:.0} ops/s, {:.2} allocs/op, {errors} errors",
        allocations as f64 / operations.max(1) as f64
    );
    Ok(())
}

async fn load(command: &SimpleQuery, database: &Database, session: &Arc<SqlSession>) -> Result<()> {
    let columns: Vec<String> = COLUMNS.iter().map(|name| format!("{name} bytea")).collect();
    // What is measured is the way through the code, not the disk: writes do not wait for it.
    let options = "with (durability = 'periodic 100ms')";
    let create = format!("create table cf (k bytea primary key, {}) {options}", columns.join(", "));
    finish(prepare(database, session, &create).await?.execute(session, &[]).await).await?;
    for first in (0..command.partitions).step_by(LOAD_ROWS as usize) {
        let last = (first + LOAD_ROWS).min(command.partitions);
        let value = hex(&[b'v'; VALUE_BYTES]);
        let row = |i: u64| format!("({}{})", hex(&key(i)), format!(", {value}").repeat(COLUMNS.len()));
        let rows: Vec<String> = (first..last).map(row).collect();
        let insert = format!("insert into cf values {}", rows.join(", "));
        finish(prepare(database, session, &insert).await?.execute(session, &[]).await).await?;
    }
    Ok(())
}

fn key(i: u64) -> Vec<u8> {
    i.to_be_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("x'{digits}'")
}

async fn prepare(database: &Database, session: &Arc<SqlSession>, sql: &str) -> Result<Arc<dyn Prepared>> {
    database.sql.prepare(session, sql, &[]).await.map_err(crate::sql::connection::sql_error)
}

async fn execute(
    database: &Database,
    prepared: &Arc<dyn Prepared>,
    session: &Arc<SqlSession>,
    parameters: &[Value],
) -> Result<u64> {
    let Some(point) = prepared.point() else {
        return finish(prepared.execute(session, parameters).await).await;
    };
    let (found, obligation) = point.get(parameters, &mut |columns| {
        black_box(columns);
    })?;
    database.engine.settled(obligation).await?;
    Ok(u64::from(found))
}

/// Rows of a result, or rows that a statement changed.
async fn finish(outcome: Result<Outcome, oribi_session::sql::SqlError>) -> Result<u64> {
    let sql_error = crate::sql::connection::sql_error;
    match outcome.map_err(sql_error)? {
        Outcome::Rows(mut rows) => {
            let mut count = 0;
            while let Some(batch) = rows.next().await {
                count += batch.map_err(sql_error)?.num_rows() as u64;
            }
            Ok(count)
        }
        Outcome::Done { tag } => Ok(tag.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)),
        Outcome::CopyIn(_) => Err(Error::internal("not a copy statement")),
    }
}

/// Uniform keys, the same in every run.
struct Keys {
    random: Xorshift,
    count: u64,
}

impl Keys {
    fn new(count: u64) -> Self {
        Keys { random: Xorshift::new(0), count }
    }

    /// Writes the next key over the last, without allocating.
    fn next_into(&mut self, parameter: &mut Value) {
        let i = self.random.next() % self.count;
        if let Value::Binary(bytes) = parameter {
            bytes.copy_from_slice(&i.to_be_bytes());
        }
    }
}
