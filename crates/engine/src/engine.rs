//! The engine itself: what its parts share, and when an answer may be sent.

use crate::background::Background;
use crate::catalog::{Catalog, Table};
use crate::depot::Published;
use crate::gate::Gate;
use crate::holders::Holders;
use crate::index::RowIndex;
use crate::installer::GivenUp;
use crate::latches::{Latches, Released};
use crate::long_reads::LongReads;
use crate::manifest::Manifest;
use crate::memory::MemoryBudget;
use crate::named_files::Names;
use crate::options::EngineOptions;
use crate::read::ReadView;
use crate::timeline::{Snapshot, Timeline};
use crate::tracked::would_block;
use crate::tracker::ResultTracker;
use crate::txn::{RowLocks, Transactions};
use crate::undecided::Undecided;
use crate::write::Fragmented;
use arc_swap::ArcSwap;
use oribi_env::Env;
use oribi_env::locks::{self, Mutex};
use oribi_sstable::PointReads;
use oribi_types::{Error, Result, Timestamp};
use oribi_wal::{Log, Lsn};
use std::any::Any;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far the clocks of two machines may be apart, as in Kudu (`--max_clock_sync_error_usec`).
const CLOCKS_APART_MICROS_MAX: u64 = 10_000_000;

/// A folder of tables, open in this process.
pub struct Engine {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: EngineOptions,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) long_reads: LongReads,
    pub(crate) index: Arc<RowIndex>,
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) results: ResultTracker,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) manifest: Manifest,
    /// Whether a commit has its timestamp and has let go of the gate, which it is about to have alone.
    pub(crate) publishing: AtomicBool,
    pub(crate) catalog: ArcSwap<Catalog>,
    /// The catalog's version: each prepared statement asks for it. It is set when the catalog is.
    pub(crate) catalog_version: AtomicU64,
    /// One change of the catalog at a time.
    pub(crate) ddl: Mutex<(), { locks::DDL }>,
    pub(crate) gate: Gate,
    pub(crate) undecided: Undecided,
    pub(crate) latches: Latches,
    pub(crate) row_locks: RowLocks,
    pub(crate) transactions: Transactions,
    pub(crate) released: Arc<Released>,
    pub(crate) fragmented: Fragmented,
    pub(crate) next_memtable: AtomicU64,
    /// Held while the ceiling of timestamps is changed on disk.
    pub(crate) ceiling: Mutex<(), { locks::CEILING }>,
    /// The next number that no row of a table without a primary key has had; below the ceiling of timestamps.
    pub(crate) next_row_id: AtomicU64,
    pub(crate) background: Arc<Background>,
    pub(crate) counters: Counters,
    /// At the oldest timestamp that can be asked for since the engine was opened, until somebody takes it.
    pub(crate) history: Mutex<Option<Snapshot>, { locks::LEAF }>,
    pub(crate) closed: AtomicBool,
    pub(crate) holders: Holders,
    /// Of files that were replaced.
    pub(crate) names: Names,
    /// Files of changes that failed, while the manifest may name them.
    pub(crate) given_up: Mutex<Vec<GivenUp>, { locks::GIVEN_UP }>,
    pub(crate) published: Option<Published>,
    /// Held until the engine is gone.
    pub(crate) _lock: Box<dyn Any + Send + Sync>,
}

/// What an answer observed or wrote. Those of a batch of requests are merged and settled once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Obligation {
    /// The log must be on the disk through this LSN.
    pub durable: Lsn,
    /// The log must be with the operating system through this LSN.
    pub written: Lsn,
    /// The watermark must have come so far: a snapshot that is taken after the answer sees what it tells of.
    pub visible: Timestamp,
}

impl Obligation {
    #[inline]
    pub fn merge(&mut self, other: Obligation) {
        self.durable = self.durable.max(other.durable);
        self.written = self.written.max(other.written);
        self.visible = self.visible.max(other.visible);
    }

    /// The same, on the disk whatever the tables ask for.
    #[must_use]
    pub fn must_be_durable(self) -> Self {
        Obligation { durable: self.durable.max(self.written), ..self }
    }

    /// The highest LSN that it names: of a write, its own.
    pub(crate) fn lsn(self) -> Lsn {
        self.durable.max(self.written)
    }

    pub(crate) fn on(table: &Table, lsn: Lsn) -> Self {
        if table.is_sync() {
            Obligation { durable: lsn, ..Obligation::default() }
        } else {
            Obligation { written: lsn, ..Obligation::default() }
        }
    }
}

/// Events since the engine was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub rows_written: AtomicU64,
    pub file_reads: AtomicU64,
    pub flushes: AtomicU64,
    pub flushed_rows: AtomicU64,
    pub compactions: AtomicU64,
    pub compacted_rows: AtomicU64,
}

/// A reading of the engine's gauges and counters.
#[derive(Clone, Debug, Default)]
pub struct EngineStats {
    pub memory_limit_bytes: u64,
    pub memtable_bytes: u64,
    pub row_cache_bytes: u64,
    pub query_bytes: u64,
    /// Of open SSTables.
    pub index_bytes: u64,
    /// Of flushes and compactions.
    pub job_bytes: u64,
    /// Of results that are kept by request id.
    pub result_bytes: u64,
    /// Of rows that nobody has but scans.
    pub held_bytes: u64,
    /// Of the memory of queries: what long rows take that are being read from files, and what they may; and how many wait for that.
    pub long_read_bytes: u64,
    pub long_read_bytes_max: u64,
    pub long_reads_waiting: u64,
    pub rows_in_memory: u64,
    pub log_bytes: u64,
    pub log_durable_lsn: Lsn,
    pub log_appended_lsn: Lsn,
    pub sstables: u64,
    pub sstable_bytes: u64,
    pub tables: u64,
    pub rows_written: u64,
    /// Rows that were looked for in SSTables, by point reads and by writes.
    pub file_reads: u64,
    /// What look-ups in the SSTables that are live now have cost since those were opened.
    pub point_reads: PointReads,
    pub flushes: u64,
    pub flushed_rows: u64,
    pub compactions: u64,
    pub compacted_rows: u64,
}

impl Engine {
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    pub fn memory(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// The [version](Catalog::version) of the catalog, without a look at it. It changes as soon as the catalog has: what
    /// is planned after asking for it is planned for this version or a later one.
    pub fn catalog_version(&self) -> u64 {
        self.catalog_version.load(Ordering::Acquire)
    }

    /// # Errors
    /// `NotFound`.
    pub fn table(&self, schema: &str, name: &str) -> Result<Arc<Table>> {
        let catalog = self.catalog.load();
        let table = catalog.table(schema, name).cloned();
        table.ok_or_else(|| Error::not_found(format!("table \"{schema}.{name}\" does not exist")))
    }

    /// The newest handle of a table, unless it was dropped: what to plan a write for that was refused with `Retry`.
    pub fn latest(&self, id: u64) -> Option<Arc<Table>> {
        self.catalog.load().table_by_id(id).cloned()
    }

    /// What reads that need not agree with each other go by: the watermark and the wall clock. For several keys at
    /// one moment, take the [view of a snapshot](Snapshot::view).
    pub fn read_view(&self) -> ReadView {
        ReadView { ts: self.timeline.watermark(), now_micros: self.timeline.now_micros(), registered: false }
    }

    /// As [`read_view`](Self::read_view), with what was committed up to `visible`: for who is told of it once all others see it too.
    pub fn read_view_from(&self, visible: Timestamp) -> ReadView {
        let view = self.read_view();
        ReadView { ts: view.ts.max(visible), ..view }
    }

    /// As [`read_view`](Self::read_view), for rows of `table` only: where none expires, the clock is not asked.
    pub fn read_view_of(&self, table: &Table) -> ReadView {
        let now_micros = if table.expiry().never() { 0 } else { self.timeline.now_micros() };
        ReadView { ts: self.timeline.watermark(), now_micros, registered: false }
    }

    /// A registered snapshot of everything applied by now.
    pub fn snapshot(&self) -> Snapshot {
        self.timeline.register()
    }

    /// A registered snapshot at `ts`: everything up to it is applied, and nothing later is seen. `None` if it is below the
    /// horizon: what was there then is not known any more. Whoever wants to name a timestamp later keeps a snapshot at or
    /// before it.
    ///
    /// # Errors
    /// Those of [`observe`](Self::observe), for a timestamp above the watermark.
    pub fn snapshot_at(&self, ts: Timestamp) -> Result<Option<Snapshot>> {
        self.snapshot_as_of(ts, u64::MAX)
    }

    /// As [`snapshot_at`](Self::snapshot_at), which judges expiry by the clock as it was at `now_micros`, if that is past: what
    /// another snapshot at `ts` sees that has judged so and is still there, or was when the folder was closed.
    ///
    /// # Errors
    /// As there.
    pub fn snapshot_as_of(&self, ts: Timestamp, now_micros: u64) -> Result<Option<Snapshot>> {
        // It keeps the horizon where it is while the clock is moved.
        let newest = self.snapshot();
        if ts > newest.ts() {
            self.observe(ts)?;
        }
        Ok(self.timeline.register_at(ts, now_micros))
    }

    /// Of an engine that was opened with [`keeps_history`](crate::EngineOptions::keeps_history), once: a snapshot at or
    /// before all that were registered when the folder was last closed, or its process killed, unless memory has no room
    /// for what they saw. As long as it is kept, so is that.
    pub fn take_history(&self) -> Option<Snapshot> {
        self.history.lock().take()
    }

    /// Makes sure that `ts`, of an event that somebody has seen elsewhere, is in the past: it is not above the watermark, and
    /// all later writes are above it.
    ///
    /// # Errors
    /// `Invalid` for one that is further ahead of the clock than clocks differ; those of the manifest.
    pub fn observe(&self, ts: Timestamp) -> Result<()> {
        if ts <= self.timeline.watermark() {
            return Ok(());
        }
        self.precede(true, ts)?;
        self.timeline.wait_for_watermark(ts)
    }

    /// Makes sure that all later writes are above `ts`, of an event that somebody has seen elsewhere. Unless it `waits`, it waits
    /// for nobody: earlier writes may not be seen yet.
    ///
    /// # Errors
    /// Those of [`observe`](Self::observe); `WouldBlock`.
    pub fn precede(&self, waits: bool, ts: Timestamp) -> Result<()> {
        if ts <= self.timeline.last() {
            return Ok(());
        }
        let ahead = ts.micros().saturating_sub(self.timeline.now_micros());
        if ahead > CLOCKS_APART_MICROS_MAX {
            return Err(Error::invalid(format!("timestamp {} is {ahead} microseconds in the future", ts.0)));
        }
        // The next microsecond: a timestamp is taken by it, as if for a write.
        let micros = ts.micros() + 1;
        self.reserve_timestamps_if(waits, micros, || true)?;
        while !self.timeline.pass(ts, micros) {
            if self.closed.load(Ordering::Relaxed) {
                return Err(Error::unavailable("the engine is closed"));
            }
            if !waits {
                return Err(would_block("a timestamp is taken for a change of files"));
            }
            self.timeline.wait_for_appointment()?;
        }
        Ok(())
    }

    /// Whether an answer with this obligation may be sent at once.
    pub fn is_settled(&self, obligation: Obligation) -> bool {
        obligation.written <= self.log.written()
            && obligation.durable <= self.log.durable()
            && obligation.visible <= self.timeline.watermark()
    }

    /// Blocks until an answer with this obligation may be sent.
    ///
    /// # Errors
    /// `Unavailable` if the log has stopped: nothing must be answered.
    pub fn settle(&self, obligation: Obligation) -> Result<()> {
        self.write_out(obligation)?;
        if obligation.durable > self.log.durable() {
            self.log.wait_durable(obligation.durable)?;
        }
        self.timeline.wait_for_watermark(obligation.visible)
    }

    /// As [`settle`](Self::settle), without blocking on the disk. What needs write(2) only is settled when this returns.
    pub fn settled(&self, obligation: Obligation) -> impl Future<Output = Result<()>> + Send + 'static {
        let written = self.write_out(obligation);
        let (log, timeline) = (self.log.clone(), self.timeline.clone());
        async move {
            written?;
            oribi_wal::durable(log.as_ref(), obligation.durable).await?;
            timeline.reached(obligation.visible).await
        }
    }

    fn write_out(&self, obligation: Obligation) -> Result<()> {
        if obligation.written > self.log.written() { self.log.write_out() } else { Ok(()) }
    }

    /// A timestamp below which everything is applied, and what makes all of that durable
    /// ([`Obligation::must_be_durable`]).
    pub fn everything(&self) -> (Timestamp, Obligation) {
        let ts = self.timeline.watermark();
        (ts, Obligation { written: self.log.appended(), ..Obligation::default() })
    }

    /// Ready once the log has stopped, by itself or because the engine panicked in the middle of a change, with the reason: from
    /// then on nothing can be answered, and whoever serves must end.
    pub fn failure(&self) -> impl Future<Output = Error> + Send + 'static {
        let log = self.log.clone();
        async move { oribi_wal::stopped(log.as_ref()).await }
    }

    /// Whether there is room for writes, or waiting makes none: whether [`admission`](Self::admission) is ready.
    pub fn admits(&self) -> bool {
        self.budget.admits()
    }

    /// Ready while there is room for writes; otherwise once a flush has made some.
    pub fn admission(&self) -> impl Future<Output = ()> + Send + 'static {
        let budget = self.budget.clone();
        async move { budget.room().await }
    }

    /// Ready once somebody gives back what many wait for: the latches of many rows, or room in memory. For who was told
    /// `WouldBlock`, which can have other reasons, and be over before this is asked: to be waited for some milliseconds at a time.
    pub fn released(&self) -> impl Future<Output = ()> + Send + 'static {
        let (budget, released) = (self.budget.clone(), self.released.clone());
        async move {
            match budget.admits() {
                true => released.next().await,
                false => budget.room().await,
            }
        }
    }

    /// Takes `id`s and memtable numbers from one sequence per engine.
    pub(crate) fn next_memtable(&self) -> u64 {
        self.next_memtable.fetch_add(1, Ordering::Relaxed)
    }

    pub fn stats(&self) -> EngineStats {
        let catalog = self.catalog.load();
        let (mut sstables, mut sstable_bytes, mut tables) = (0, 0, 0);
        let mut point_reads = PointReads::default();
        for table in catalog.all_tables() {
            tables += 1;
            for tablet in &table.tablets {
                for file in &tablet.state().files.files {
                    sstables += 1;
                    point_reads += file.sstable.point_reads();
                    sstable_bytes += file.sstable.stored_bytes();
                }
            }
        }
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (long_read_bytes, long_reads_waiting) = self.long_reads.bytes_and_waiting();
        EngineStats {
            memory_limit_bytes: self.budget.limit(),
            memtable_bytes: self.budget.memtables(),
            row_cache_bytes: self.budget.cache(),
            query_bytes: self.budget.queries(),
            index_bytes: self.budget.indexes(),
            job_bytes: self.budget.jobs(),
            result_bytes: self.budget.results(),
            held_bytes: self.budget.held(),
            long_read_bytes,
            long_read_bytes_max: self.budget.long_reads_max(),
            long_reads_waiting,
            rows_in_memory: self.index.len() as u64,
            log_bytes: self.log.size_bytes(),
            log_durable_lsn: self.log.durable(),
            log_appended_lsn: self.log.appended(),
            sstables,
            sstable_bytes,
            tables,
            rows_written: count(&self.counters.rows_written),
            file_reads: count(&self.counters.file_reads),
            point_reads,
            flushes: count(&self.counters.flushes),
            flushed_rows: count(&self.counters.flushed_rows),
            compactions: count(&self.counters.compactions),
            compacted_rows: count(&self.counters.compacted_rows),
        }
    }
}
