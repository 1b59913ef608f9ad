//! One client: sessions that write a row and wait for the answer, again and again.

use super::{TxnWritesCommand, runtime};
use oribi_client::{Client, FlushMode, OperationType, PartialRow, Retries, Session, SessionOptions, Table};
use oribi_types::{Error, Result};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

pub(super) struct Writer {
    runtime: Runtime,
    client: Client,
    table: Table,
}

/// What all writers do at the same time.
pub(super) struct Order {
    /// Of the transaction that they write in, if in one.
    pub token: Option<Vec<u8>>,
    pub first_key: i64,
    /// From one key of a session to its next: there are so many sessions.
    pub step: i64,
    pub sessions: usize,
    pub run_time: Duration,
}

/// What was acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub writes: u64,
    /// Of one session, the most.
    pub writes_max: u64,
    pub retries: Retries,
}

impl Written {
    pub fn merge(&mut self, other: Written) {
        self.writes += other.writes;
        self.writes_max = self.writes_max.max(other.writes_max);
        self.retries.count += other.retries.count;
        self.retries.waited += other.retries.waited;
    }
}

/// Keys that are written before the time runs, and deleted again.
const PREPARED: i64 = 16;

impl Writer {
    pub fn new(command: &TxnWritesCommand, table: &str) -> Result<Self> {
        let runtime = runtime()?;
        let (client, table) = runtime.block_on(async {
            let client = command.connect().await?;
            let table = client.open_table(table).await?;
            Ok::<_, Error>((client, table))
        })?;
        Ok(Writer { runtime, client, table })
    }

    /// Opens the way to all tablets.
    pub fn prepare(&self, number: i64) -> Result<()> {
        self.runtime.block_on(async {
            let mut session = self.client.session(SessionOptions::default());
            for operation in [OperationType::InsertIgnore, OperationType::DeleteIgnore] {
                for key in 0..PREPARED {
                    let mut row = session.row(&self.table, operation);
                    row.set_i64(0, -1 - key - PREPARED * number)?;
                    if operation == OperationType::InsertIgnore {
                        row.set_i32(1, 0)?;
                    }
                    row.apply().await?;
                }
                session.flush().await?;
            }
            Ok(())
        })
    }

    pub fn write(&self, order: &Order, number: usize, barrier: &Barrier) -> Result<Written> {
        let _entered = self.runtime.enter();
        let options = || SessionOptions { mode: FlushMode::Sync, ..SessionOptions::default() };
        let transaction = order.token.as_ref().map(|token| self.client.transaction(token)).transpose();
        barrier.wait();
        let transaction = transaction?;
        let (before, end) = (self.client.retries(), Instant::now() + order.run_time);
        let begin = |i: usize| {
            let session = match &transaction {
                Some(transaction) => transaction.session(options()),
                None => self.client.session(options()),
            };
            let first = order.first_key + (number * order.sessions + i) as i64;
            tokio::spawn(write_until(session, self.table.clone(), first, order.step, end))
        };
        let sessions: Vec<_> = (0..order.sessions).map(begin).collect();
        let mut all = Written::default();
        for session in sessions {
            let panicked = |e| Err(Error::internal(format!("a session: {e}")));
            let writes = self.runtime.block_on(session).unwrap_or_else(panicked)?;
            all.merge(Written { writes, writes_max: writes, retries: Retries::default() });
        }
        let retries = self.client.retries();
        all.retries.count = retries.count - before.count;
        all.retries.waited = retries.waited.saturating_sub(before.waited);
        Ok(all)
    }
}

async fn write_until(mut session: Session, table: Table, first: i64, step: i64, end: Instant) -> Result<u64> {
    let (mut key, mut written) = (first, 0);
    while Instant::now() < end {
        let mut row = session.insert(&table);
        row.set_i64(0, key)?;
        row.set_i32(1, key as i32)?;
        row.apply().await?;
        written += 1;
        key += step;
    }
    Ok(written)
}
