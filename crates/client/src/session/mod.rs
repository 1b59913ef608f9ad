//! Sessions: rows on their way to tablets.
//!
//! A row is built in the session's scratch memory and, once its key and so its tablet is known, appended to that tablet's
//! batch: its cells are copied once, its strings once from where the caller has them. Nothing is allocated for it.
//!
//! Each tablet has a *lane*: one batch that is being filled, one that is under way. A flush makes the batches of all lanes
//! due; a lane that has one under way sends the next when the answer is there, with what came meanwhile. That keeps the
//! order of rows of one key, and makes batches as large as the server is slow.
//!
//! A lane without rows may be let go, so that a session that sees many tables and ranges come and go stays small.
//!
//! When a tablet is no more, because its range was dropped, its rows go where their keys belong now, in their order, or fail
//! if that is nowhere.
//!
//! What a batch costs beyond its rows, in steady state: a task, a sealed batch with two short strings around its rows, the head
//! of the call, the channel of its answer, and what the answer is read into: fourteen small allocations, whatever the number
//! of rows; one writev(2) and one read(2), which batches that are due together share. No row is copied for it.

mod errors;
mod lanes;
mod reroute;
mod route;
mod row;
mod slots;
mod write;

pub use errors::{RowError, RowErrors};
pub use row::Row;

use crate::batch::BuiltRow;
use crate::client::Client;
use crate::rpc::Attempts;
use crate::table::{Located, Table};
use crate::transaction::Transaction;
use lanes::{Lanes, Offered};
use oribi_kudu::frame::FRAME_BYTES_MAX;
use oribi_kudu::row_operations::OperationType;
use oribi_types::{Error, Result};
use parking_lot::Mutex;
use row::OpenRow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// When rows are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushMode {
    /// Each at once; applying waits for the answer, and returns the row's error.
    Sync,
    /// When enough have come together, or the oldest has waited for [`SessionOptions::flush_interval`].
    #[default]
    Background,
    /// When the caller says so; applying fails if there is no room left.
    Manual,
}

/// How a session behaves.
#[derive(Clone)]
pub struct SessionOptions {
    pub mode: FlushMode,
    /// How many bytes of rows may wait or be under way; half the largest frame, 25 MiB, at most.
    pub buffer_bytes: usize,
    /// In the background mode: the share of `buffer_bytes`, 0 to 1, that waits before it is sent.
    pub watermark: f64,
    /// How many flushes may be under way before applying waits; `None` if only the bytes count.
    pub flushes_max: Option<usize>,
    /// How long a row waits in the background mode.
    pub flush_interval: Duration,
    /// How long a batch is tried before its rows fail; [`operation_timeout`](crate::ClientOptions::operation_timeout) if
    /// `None`.
    pub timeout: Option<Duration>,
    /// How many errors are kept; others are only counted.
    pub errors_max: usize,
    /// Is told how far the session is after each batch, from the task that received the answer.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            mode: FlushMode::default(),
            buffer_bytes: 7 << 20,
            watermark: 0.5,
            flushes_max: None,
            flush_interval: Duration::from_secs(1),
            timeout: None,
            errors_max: 10_000,
            progress: None,
        }
    }
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SessionOptions { mode, buffer_bytes, watermark, flushes_max, .. } = self;
        let shown = (mode, buffer_bytes, watermark, flushes_max);
        f.debug_tuple("SessionOptions").field(&shown).finish()
    }
}

/// What a session has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub rows_written: u64,
    pub rows_failed: u64,
    /// Of the rows in answered batches.
    pub bytes: u64,
    pub batches: u64,
}

/// Writes rows. Belongs to one task at a time; several sessions of a client share its connections.
///
/// Rows that were not flushed are lost with the session; what is under way is still sent.
pub struct Session {
    shared: Arc<Shared>,
    /// The row that is being built, and its partition key.
    scratch: Vec<u8>,
    partition_key: Vec<u8>,
    /// Flushes what has waited long enough.
    timer: Option<AbortHandle>,
}

struct Shared {
    client: Client,
    /// The one that all rows are written in, if any.
    transaction: Option<Transaction>,
    options: SessionOptions,
    lanes: Mutex<Lanes>,
    /// A batch is done. Only the owner of the session waits for it.
    done: Notify,
    /// The first row after a flush was applied.
    waiting: Notify,
}

impl Client {
    pub fn session(&self, options: SessionOptions) -> Session {
        self.session_in(None, options)
    }

    pub(crate) fn session_in(
        &self,
        transaction: Option<Transaction>,
        mut options: SessionOptions,
    ) -> Session {
        options.buffer_bytes = options.buffer_bytes.clamp(1, BUFFER_BYTES_MAX);
        let is_background = options.mode == FlushMode::Background;
        let lanes = Mutex::new(Lanes::new(&options));
        let (done, waiting) = (Notify::new(), Notify::new());
        let shared = Arc::new(Shared { client: self.clone(), transaction, options, lanes, done, waiting });
        let timer = is_background.then(|| tokio::spawn(flush_by_time(shared.clone())).abort_handle());
        Session { shared, scratch: Vec::new(), partition_key: Vec::new(), timer }
    }
}

/// All of a buffer may be for one tablet, and then has to fit a frame with some room for what is around it.
const BUFFER_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;

impl Session {
    /// Begins a row, to be finished with [`Row::apply`].
    pub fn row<'s, 'v>(&'s mut self, table: &'s Table, operation: OperationType) -> Row<'s, 'v> {
        let Session { shared, scratch, partition_key, .. } = self;
        Row { shared, partition_key, open: OpenRow::new(table, operation, scratch) }
    }

    pub fn insert<'s, 'v>(&'s mut self, table: &'s Table) -> Row<'s, 'v> {
        self.row(table, OperationType::Insert)
    }

    pub fn upsert<'s, 'v>(&'s mut self, table: &'s Table) -> Row<'s, 'v> {
        self.row(table, OperationType::Upsert)
    }

    pub fn update<'s, 'v>(&'s mut self, table: &'s Table) -> Row<'s, 'v> {
        self.row(table, OperationType::Update)
    }

    pub fn delete<'s, 'v>(&'s mut self, table: &'s Table) -> Row<'s, 'v> {
        self.row(table, OperationType::Delete)
    }

    /// Sends all rows and waits until each is written or failed.
    ///
    /// # Errors
    /// The first of the errors that were not [taken](Self::take_errors), of this flush or before.
    pub async fn flush(&mut self) -> Result<()> {
        self.shared.flush().await;
        self.shared.lanes.lock().errors().check()
    }

    /// Sends all rows, as soon as their tablets are free, without waiting for the answers.
    pub async fn start_flush(&mut self) {
        if self.shared.lanes.lock().flush(&self.shared) {
            // Lets the batches out, where the caller's thread is the one that sends them.
            tokio::task::yield_now().await;
        }
    }

    /// What failed since the last call.
    pub fn take_errors(&mut self) -> RowErrors {
        self.shared.lanes.lock().take_errors()
    }

    pub fn progress(&self) -> Progress {
        self.shared.lanes.lock().progress()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
    }
}

impl Shared {
    /// Sends all rows and waits until each is written or failed.
    async fn flush(self: &Arc<Self>) {
        self.lanes.lock().flush(self);
        while !self.lanes.lock().is_idle() {
            self.done.notified().await;
        }
    }

    /// Appends a row to the batch of its tablet, as soon as there is room.
    async fn apply(
        self: &Arc<Self>,
        table: &Table,
        partition_key: &[u8],
        row: BuiltRow<'_>,
        operation: OperationType,
    ) -> Result<()> {
        loop {
            let offered = self.lanes.lock().offer(self, table, partition_key, row);
            match offered {
                Offered::Taken => break,
                Offered::Flushing => {
                    tokio::task::yield_now().await;
                    break;
                }
                Offered::Wait => self.done.notified().await,
                Offered::Unknown => self.locate(table, partition_key).await?,
                Offered::TooLarge => {
                    return Err(Error::too_large(format!(
                        "{operation:?} of {} bytes: {}",
                        row.bytes(),
                        match self.options.mode {
                            FlushMode::Manual => "the buffer is full, and nobody flushes it",
                            FlushMode::Sync | FlushMode::Background => "more than the buffer has",
                        }
                    )));
                }
            }
        }
        match self.options.mode {
            FlushMode::Sync => {
                let before = self.lanes.lock().errors().count();
                self.flush().await;
                self.lanes.lock().errors().check_since(before)
            }
            FlushMode::Background | FlushMode::Manual => Ok(()),
        }
    }

    /// How long a batch is tried.
    fn timeout(&self) -> Duration {
        self.options.timeout.unwrap_or(self.client.shared.options.operation_timeout)
    }

    /// Finds the tablet of a partition key and opens a lane to it.
    async fn locate(&self, table: &Table, partition_key: &[u8]) -> Result<()> {
        let mut attempts = Attempts::new(self.timeout());
        match table.shared.tablets.locate(&table.shared, partition_key, &mut attempts).await? {
            Located::In(tablet) => {
                self.lanes.lock().open(table, tablet);
                Ok(())
            }
            Located::Nowhere { .. } => {
                let name = table.name();
                Err(Error::not_found(format!("table {name} has no partition for the row")))
            }
        }
    }
}

/// Starts a flush when the first row since the last one has waited long enough.
async fn flush_by_time(shared: Arc<Shared>) {
    loop {
        shared.waiting.notified().await;
        tokio::time::sleep(shared.options.flush_interval).await;
        shared.lanes.lock().flush(&shared);
    }
}
