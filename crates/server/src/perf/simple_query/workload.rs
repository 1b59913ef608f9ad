//! The table, and clients that run one statement over it again and again, as the PostgreSQL door would: rows are
//! encoded as binary `DataRow`s into a buffer that is used again, and what the statements of a batch observed or wrote
//! is settled once, before the buffer is given away.

use super::{Planned, SimpleQuery, Until};
use crate::perf::random::Xorshift;
use crate::sql::connection::sql_error;
use futures::StreamExt;
use oribi_doors::postgres::{Format, put_data_row};
use oribi_engine::Obligation;
use oribi_session::Database;
use oribi_session::sql::{Outcome, Point, Prepared, SqlEngine, SqlError, SqlSession};
use oribi_types::{Error, Result, Value};
use std::hint::black_box;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Instant;

const VALUE_BYTES: usize = 34;
/// Rows after which the log is written while loading.
const SETTLED_ROWS: u64 = 500;

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub operations: u64,
    /// Read, or changed.
    pub rows: u64,
    pub answered_bytes: u64,
    /// Operations that failed, or did not find the row that must be there.
    pub errors: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.operations += other.operations;
        self.rows += other.rows;
        self.answered_bytes += other.answered_bytes;
        self.errors += other.errors;
    }
}

/// One of the clients.
pub struct Client {
    sql: Arc<dyn SqlEngine>,
    session: Arc<SqlSession>,
    prepared: Arc<dyn Prepared>,
    parameters: Vec<Value>,
    formats: Vec<Format>,
    answer: Vec<u8>,
    keys: Keys,
    /// Statements that are answered together.
    batch: u64,
    /// Whether every key has its row.
    rows_stay: bool,
}

impl Client {
    /// # Errors
    /// Those of preparing the statement.
    pub async fn new(
        command: &SimpleQuery,
        database: &Database,
        session: &Arc<SqlSession>,
        number: u64,
    ) -> Result<Self> {
        let prepared = prepare(database, session, &statement(command)).await?;
        let mut parameters = vec![Value::Binary(key(0))];
        parameters.resize(prepared.parameters().len(), Value::Binary(vec![b'w'; VALUE_BYTES]));
        let columns = prepared.columns().map_or(0, |columns| columns.fields().len());
        let count = if command.query_single_key { 1 } else { command.partitions };
        Ok(Client {
            sql: database.sql.clone(),
            session: session.clone(),
            prepared,
            parameters,
            formats: vec![Format::Binary; columns],
            answer: Vec::new(),
            batch: command.batch,
            keys: Keys { random: Xorshift::new(number), count },
            rows_stay: !command.delete && !matches!(command.planned, Some(Planned::Nothing)),
        })
    }

    pub async fn run(&mut self, until: Until) -> Tally {
        let mut tally = Tally::default();
        while !until.is_reached(&tally) {
            let mut left = until.unwatched(&tally, self.batch);
            while left > 0 {
                let count = left.min(self.batch);
                self.run_batch(count, &mut tally).await;
                left -= count;
            }
        }
        tally
    }

    async fn run_batch(&mut self, count: u64, tally: &mut Tally) {
        self.answer.clear();
        let mut owed = Obligation::default();
        for _ in 0..count {
            self.keys.next_into(&mut self.parameters[0]);
            let rows = match self.execute(&mut owed) {
                Some(rows) => rows,
                None => self.execute_planned().await,
            };
            tally.errors += u64::from(!rows.as_ref().is_ok_and(|rows| *rows == 1 || !self.rows_stay));
            tally.rows += rows.unwrap_or(0);
        }
        if let Some(settled) = self.sql.settled(owed)
            && settled.await.is_err()
        {
            tally.errors += count;
        }
        tally.operations += count;
        tally.answered_bytes += black_box(&self.answer).len() as u64;
    }

    /// Runs the statement on the spot; returns the rows read or changed. `None` if it must be executed otherwise.
    fn execute(&mut self, owed: &mut Obligation) -> Option<Result<u64>> {
        let (rows, obligation) = match self.prepared.point(&self.session)? {
            Point::Read(point) => {
                let mut encoded = Ok(());
                let columns = self.prepared.columns().expect("a select has columns");
                let found = point.get(&self.parameters, &mut |values| {
                    encoded = put_data_row(values, columns, &self.formats, &mut self.answer);
                });
                match encoded.map_err(sql_error).and(found) {
                    Ok((found, obligation)) => (u64::from(found), obligation),
                    Err(error) => return Some(Err(error)),
                }
            }
            Point::Write(point) => point.write(&self.session, &self.parameters)?,
        };
        owed.merge(obligation);
        Some(Ok(rows))
    }

    async fn execute_planned(&self) -> Result<u64> {
        finish(self.prepared.execute(&self.session, &self.parameters).await).await
    }
}

impl Until {
    fn is_reached(&self, tally: &Tally) -> bool {
        match self {
            Until::Time(end) => Instant::now() >= *end,
            Until::Operations(operations) => tally.operations >= *operations,
        }
    }

    /// Operations before the next look at the clock.
    fn unwatched(&self, tally: &Tally, batch: u64) -> u64 {
        match self {
            Until::Time(_) => batch.max(100),
            Until::Operations(operations) => operations - tally.operations,
        }
    }
}

/// What is measured, in words.
pub fn describe(command: &SimpleQuery) -> String {
    let what = match (command.write, command.delete, command.planned) {
        (true, ..) => "writes",
        (_, true, _) => "deletes",
        (.., Some(Planned::Row)) => "planned reads",
        (.., Some(Planned::Nothing)) => "planned reads of nothing",
        _ => "reads",
    };
    let place = match (command.flush, command.bypass_cache) {
        (_, true) => "SSTable",
        (true, _) => "row cache",
        _ => "memtable",
    };
    let SimpleQuery { partitions, columns, concurrency, batch, .. } = command;
    let what = if command.in_block { format!("{what} in a transaction") } else { what.to_owned() };
    format!(
        "{what}, {partitions} rows of {columns} columns in the {place}, {concurrency} at a time, batches of {batch}"
    )
}

/// # Errors
/// Those of the statements.
pub async fn load(command: &SimpleQuery, database: &Database, session: &Arc<SqlSession>) -> Result<()> {
    let columns: Vec<String> = names(command).map(|name| format!("{name} bytea")).collect();
    // What is measured is the way through the code, not the disk: writes do not wait for it.
    let options = "with (durability = 'periodic 100ms')";
    let create = format!("create table cf (k bytea primary key, {}) {options}", columns.join(", "));
    finish(prepare(database, session, &create).await?.execute(session, &[]).await).await?;
    let places: Vec<String> = (0..=command.columns).map(|i| format!("${}", i + 1)).collect();
    let insert =
        prepare(database, session, &format!("insert into cf values ({})", places.join(", "))).await?;
    let Some(Point::Write(point)) = insert.point(session) else {
        return Err(Error::internal("an insert of one row is not a point write"));
    };
    let mut row = vec![Value::Binary(vec![b'v'; VALUE_BYTES]); 1 + command.columns];
    let mut owed = Obligation::default();
    for i in 0..command.partitions {
        row[0] = Value::Binary(key(i));
        match point.write(session, &row) {
            Some((_, obligation)) => owed.merge(obligation),
            // It has to wait: for room, mostly.
            None => _ = finish(insert.execute(session, &row).await).await?,
        }
        if i % SETTLED_ROWS == 0 || i + 1 == command.partitions {
            database.engine.settled(owed).await?;
        }
    }
    Ok(())
}

/// Begins the transaction that all of it is in.
///
/// # Errors
/// Those of the statement.
pub async fn begin(database: &Database, session: &Arc<SqlSession>) -> Result<()> {
    finish(prepare(database, session, "begin").await?.execute(session, &[]).await).await.map(|_| ())
}

fn statement(command: &SimpleQuery) -> String {
    if command.write {
        let sets: Vec<String> = names(command).zip(2..).map(|(name, n)| format!("{name} = ${n}")).collect();
        format!("update cf set {} where k = $1", sets.join(", "))
    } else if command.delete {
        "delete from cf where k = $1".to_owned()
    } else {
        let rest = match command.planned {
            None => "",
            Some(Planned::Row) => " and c0 is not null",
            Some(Planned::Nothing) => " and c0 is null",
        };
        format!("select {} from cf where k = $1{rest}", names(command).collect::<Vec<_>>().join(", "))
    }
}

fn names(command: &SimpleQuery) -> impl Iterator<Item = String> {
    (0..command.columns).map(|i| format!("c{i}"))
}

fn key(i: u64) -> Vec<u8> {
    i.to_be_bytes().to_vec()
}

async fn prepare(database: &Database, session: &Arc<SqlSession>, sql: &str) -> Result<Arc<dyn Prepared>> {
    database.sql.prepare(session, sql, &[]).await.map_err(sql_error)
}

/// Rows of a result, or rows that a statement changed.
async fn finish(outcome: Result<Outcome, SqlError>) -> Result<u64> {
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
    /// Writes the next key over the last, without allocating.
    fn next_into(&mut self, parameter: &mut Value) {
        let i = self.random.next() % self.count;
        if let Value::Binary(bytes) = parameter {
            bytes.copy_from_slice(&i.to_be_bytes());
        }
    }
}
