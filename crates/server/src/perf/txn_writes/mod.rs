//! `oribi perf txn-writes`: what a write costs in a transaction and what it costs alone, over Kudu's protocol, of Oribi or of Kudu.
//! Kudu measured its transactions so (`WriteOpPerf`): a few clients, each with a session or more, each writing one row at a time for a
//! short while, all in the same transaction.
//!
//! What was acknowledged is compared with the rows that are there after the commit.

mod figures;
mod writer;

use crate::encryption::Encryption;
use crate::stdout::say;
use figures::Figures;
use oribi_client::{Client, ClientOptions, Column, ColumnType, CreateTable, ReadMode, Retries, Table};
use oribi_types::{Error, Result};
use std::hash::{BuildHasher, RandomState};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use writer::{Order, Writer, Written};

/// Writes of one row in a transaction, or alone, or both in turns
#[derive(Clone, Debug, clap::Args)]
pub struct TxnWritesCommand {
    /// Masters
    #[arg(long, default_value = "127.0.0.1:7051", value_name = "HOST:PORT", value_delimiter = ',')]
    master: Vec<String>,
    #[command(flatten)]
    encryption: Encryption,
    #[arg(long, default_value_t = 8)]
    clients: usize,
    #[arg(long, default_value_t = 1)]
    sessions_per_client: usize,
    /// How long the clients write
    #[arg(long, default_value_t = 50)]
    benchmark_run_time_ms: u64,
    /// Connect, find the tablets, and write and delete a few rows before the time runs
    #[arg(long)]
    prepare_connections: bool,
    /// In one transaction; otherwise each write is by itself
    #[arg(long)]
    transactional: bool,
    /// In a transaction and by themselves in turns; tells the ratio
    #[arg(long, conflicts_with = "transactional")]
    alternate: bool,
    /// Set this on the tablet servers first: how many writes of a transaction a tablet keeps while it registers there. Of Kudu's
    /// servers; Oribi's have nothing to wait for, and no such setting
    #[arg(long)]
    max_pending_txn_write_ops: Option<u32>,
    /// Who this is to the servers. Kudu's let nobody but the user that they run as change a setting
    #[arg(long, default_value = "oribi")]
    user: String,
    /// How often, of each kind
    #[arg(long, default_value_t = 1)]
    repeat: usize,
}

/// How a run writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Transactional,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Transactional => "transactional",
        }
    }
}

pub fn run(command: &TxnWritesCommand) -> Result<()> {
    if command.clients == 0 || command.sessions_per_client == 0 || command.repeat == 0 {
        return Err(Error::invalid("--clients, --sessions-per-client and --repeat are at least 1"));
    }
    let runtime = runtime()?;
    let client = runtime.block_on(command.connect())?;
    if let Some(ops) = command.max_pending_txn_write_ops {
        runtime.block_on(set_pending(&client, ops))?;
    }
    let table = runtime.block_on(create(&client))?;
    let measured =
        Measurement { command, runtime: &runtime, client: &client, table: &table, rows: 0, next_key: 0 }
            .all();
    runtime.block_on(client.delete_table(table.name()))?;
    measured
}

/// Of Kudu's tablet servers, the setting by that name.
async fn set_pending(client: &Client, ops: u32) -> Result<()> {
    const FLAG: &str = "tablet_max_pending_txn_write_ops";
    match client.set_flag(FLAG, &ops.to_string()).await? {
        true => say!("set --{FLAG}={ops}"),
        false => say!("the servers have no --{FLAG}: writes do not wait for a transaction to be registered"),
    }
}

async fn create(client: &Client) -> Result<Table> {
    let name = format!("default.txn_writes_{:016x}", RandomState::new().hash_one(0));
    let table = CreateTable::new(name)
        .column(Column::new("key", ColumnType::Int64).key())
        .column(Column::new("value", ColumnType::Int32))
        .hash(&["key"], 2)
        .replicas(1);
    client.create_table(table).await
}

struct Measurement<'m> {
    command: &'m TxnWritesCommand,
    runtime: &'m Runtime,
    client: &'m Client,
    table: &'m Table,
    /// Acknowledged so far.
    rows: u64,
    next_key: i64,
}

impl Measurement<'_> {
    fn all(mut self) -> Result<()> {
        let kinds: &[Kind] = match (self.command.alternate, self.command.transactional) {
            (true, _) => &[Kind::Transactional, Kind::Plain],
            (false, true) => &[Kind::Transactional],
            (false, false) => &[Kind::Plain],
        };
        let mut writers = None;
        let mut figures: Vec<(Kind, Figures)> =
            kinds.iter().map(|kind| (*kind, Figures::default())).collect();
        for _ in 0..self.command.repeat {
            for (kind, figures) in &mut figures {
                let ready = match writers.take().filter(|_| self.command.prepare_connections) {
                    Some(ready) => ready,
                    None => self.writers()?,
                };
                figures.add(self.run(*kind, &ready)?);
                writers = Some(ready);
            }
        }
        for (kind, figures) in &figures {
            figures.say(kind.name())?;
        }
        if let [(_, transactional), (_, plain)] = &figures[..] {
            say!("transactional over plain: {:.4}", transactional.mean_rate() / plain.mean_rate())?;
        }
        Ok(())
    }

    fn writers(&self) -> Result<Vec<Writer>> {
        let writer = |number| {
            let writer = Writer::new(self.command, self.table.name())?;
            if self.command.prepare_connections {
                writer.prepare(number)?;
            }
            Ok(writer)
        };
        (0..self.command.clients as i64).map(writer).collect()
    }

    /// One run; how many writes were acknowledged, in which time.
    fn run(&mut self, kind: Kind, writers: &[Writer]) -> Result<(Written, Duration)> {
        let transaction = match kind {
            Kind::Transactional => Some(self.runtime.block_on(self.client.begin())?),
            Kind::Plain => None,
        };
        let sessions = self.command.sessions_per_client;
        let order = Order {
            token: transaction.as_ref().map(|transaction| transaction.token(true)),
            first_key: self.next_key,
            step: (writers.len() * sessions) as i64,
            sessions,
            run_time: Duration::from_millis(self.command.benchmark_run_time_ms),
        };
        let (written, elapsed) = write_together(writers, &order)?;
        let mut commit = Duration::ZERO;
        if let Some(transaction) = transaction {
            let started = Instant::now();
            self.runtime.block_on(transaction.commit())?;
            commit = started.elapsed();
        }
        self.rows += written.writes;
        self.next_key += (written.writes_max + 1) as i64 * order.step;
        self.check_rows()?;
        let Retries { count, waited } = written.retries;
        say!(
            "{:13}  {:7} write RPCs  {:9.1}/s  {count} retries, {:.1} ms of back-off  commit {:.3} ms",
            kind.name(),
            written.writes,
            written.writes as f64 / elapsed.as_secs_f64(),
            waited.as_secs_f64() * 1000.0,
            commit.as_secs_f64() * 1000.0,
        )?;
        Ok((written, elapsed))
    }

    /// Whether all rows are there that were acknowledged, and no others.
    fn check_rows(&self) -> Result<()> {
        let found = self.runtime.block_on(async {
            let mut scanner = self.table.scan().project(&[])?.read_mode(ReadMode::Latest).scanner();
            let mut rows = 0;
            while let Some(batch) = scanner.next_batch().await? {
                rows += batch.num_rows() as u64;
            }
            Ok::<u64, Error>(rows)
        })?;
        match found == self.rows {
            true => Ok(()),
            false => Err(Error::internal(format!(
                "{} writes were acknowledged, {found} rows are there",
                self.rows
            ))),
        }
    }
}

/// Has all writers write at the same time; until the last has ended.
fn write_together(writers: &[Writer], order: &Order) -> Result<(Written, Duration)> {
    let barrier = Barrier::new(writers.len() + 1);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, writer) in writers.iter().enumerate() {
            let barrier = &barrier;
            threads.push(scope.spawn(move || writer.write(order, number, barrier)));
        }
        barrier.wait();
        let started = Instant::now();
        let mut all = Written::default();
        for thread in threads {
            let panicked = |_| Err(Error::internal("a writer panicked"));
            all.merge(thread.join().unwrap_or_else(panicked)?);
        }
        Ok((all, started.elapsed()))
    })
}

impl TxnWritesCommand {
    async fn connect(&self) -> Result<Client> {
        let options = ClientOptions { user: self.user.clone(), ..self.encryption.client_options()? };
        Client::connect_with(&self.master, options).await
    }
}

/// All of a thread's tasks on the thread itself.
fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
