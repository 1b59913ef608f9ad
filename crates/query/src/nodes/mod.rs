//! One query over several processes.
//!
//! One process owns the tables and takes writes. Others, compute nodes, hold nothing: they read the same files, and are sent what the
//! owner has in memory. How a plan is cut up and travels is no business of this crate: whoever knows implements [`Nodes`], and is asked
//! about each query. What is here is the scan: as the owner [offers](offers) it, as a task [reads](opened) its part of it, what it is told by
//! [joins](told), what a [function](functions) is called on its way, and what [exchanges](exchanged) have measured.

pub mod exchanged;
pub(crate) mod functions;
mod offers;
mod opened;
mod retried;
mod shares;
mod told;
pub(crate) mod values;

pub(crate) use exchanged::Exchanged;
pub(crate) use offers::{Offer, Offers};
pub use opened::SharedFolder;
pub use retried::{Attempt, Retried};
pub use told::RuntimeFilters;

pub use crate::long_rows::batch_rows;

use crate::context::QueryEngine;
use crate::provider::{Awaited, Rows, Share, Side, table_source, wire};
use crate::runtime_filters::RuntimeFilter;
use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::prelude::SessionConfig;
use futures::stream::BoxStream;
use oribi_engine::Table;
use oribi_session::sql::SqlSession;
use oribi_types::Error;
use prost::Message;
use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, LazyLock};
use tokio::task::JoinHandle;

/// What a session has set, by name.
pub type Settings<'s> = &'s (dyn Fn(&str) -> Option<String> + Send + Sync);

/// Those who share the work of the owner's queries.
#[async_trait]
pub trait Nodes: Send + Sync + 'static {
    /// Whether a query of a session with such settings may be shared out, whatever it is.
    fn may_share(&self, settings: Settings<'_>) -> bool;

    /// Where a query is executed that has this plan, in a session with such settings.
    ///
    /// # Errors
    /// `Invalid` for a setting that says nothing.
    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        state: &SessionState,
        settings: Settings<'_>,
    ) -> Result<Place>;

    /// What became of a plan that was distributed, once it was executed; `None` for another.
    async fn explain(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<Became>;
}

/// Where a query is executed.
pub enum Place {
    /// In this process, because of what is said here.
    Here(String),
    /// By the compute nodes with these names; and with what the plan is executed.
    Shared(Arc<dyn ExecutionPlan>, Box<SessionConfig>, Vec<String>),
}

/// Who executes a query where there is a choice, as [`Place`] has it.
#[derive(Clone, Debug)]
pub(crate) enum Executors {
    Here(String),
    Nodes(Vec<String>),
}

impl fmt::Display for Executors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Executors::Here(why) => write!(f, "here alone: {why}"),
            Executors::Nodes(names) => write!(f, "{} ({})", names.len(), names.join(", ")),
        }
    }
}

/// What became of a plan that was distributed.
pub enum Became {
    /// Nodes executed it: all stages in one plan, with the metrics of all tasks, and the same as text.
    Shared { plan: Arc<dyn ExecutionPlan>, text: String },
    /// In the end this process executed it, as this plan, for this reason.
    Alone(Arc<dyn ExecutionPlan>, &'static str),
    /// What nodes have measured is not known, because of what is said here.
    Unknown(String),
}

/// The process that owns the tables, as one of the others asks it.
#[async_trait]
pub trait Owner: Send + Sync + 'static {
    /// What a task has to read of a scan, with the columns of its table at these places: [`QueryEngine::open_offer`] there.
    async fn open(
        &self,
        offer: u64,
        task: u32,
        stored: &[usize],
        with_ts: bool,
    ) -> oribi_types::Result<Vec<u8>>;

    /// What joins have told of the rows that they want of it: [`QueryEngine::runtime_filter`] there.
    async fn runtime_filter(&self, offer: u64, filter: u64) -> oribi_types::Result<RuntimeFilter>;

    /// The rows of it that a tablet has in memory: [`QueryEngine::offered_rows`] there.
    async fn rows(&self, offer: u64, tablet: u32) -> oribi_types::Result<Rows>;
}

/// A task's part of a scan, as bytes.
#[derive(Clone, PartialEq, Message)]
struct Leaf {
    #[prost(uint64, tag = "1")]
    offer: u64,
    #[prost(uint32, tag = "2")]
    task: u32,
    #[prost(uint32, tag = "3")]
    tasks: u32,
    /// The table's definition, as JSON.
    #[prost(bytes = "vec", tag = "4")]
    definition: Vec<u8>,
    /// As [`wire`] has it.
    #[prost(bytes = "vec", tag = "5")]
    scan: Vec<u8>,
    #[prost(uint32, tag = "6")]
    partitions: u32,
    #[prost(uint32, tag = "7")]
    batch_rows: u32,
    #[prost(message, repeated, tag = "8")]
    awaited: Vec<Wanted>,
}

/// A runtime filter that a scan waits for.
#[derive(Clone, PartialEq, Message)]
struct Wanted {
    #[prost(uint64, tag = "1")]
    filter: u64,
    /// By their places in the table.
    #[prost(uint32, repeated, tag = "2")]
    columns: Vec<u32>,
}

/// Scans have this many partitions at most, and batches so many rows: a message that says otherwise is none of ours.
const PARTITIONS_MAX: u32 = 4096;
const BATCH_ROWS_MAX: u32 = 1 << 20;

/// Nobody asks what compute nodes' sessions are called.
static SESSION: LazyLock<Arc<SqlSession>> = LazyLock::new(|| SqlSession::new("oribi", "oribi"));

impl Awaited {
    fn to_wanted(&self) -> Wanted {
        Wanted {
            filter: self.id(),
            columns: self.columns().into_iter().map(|column| column as u32).collect(),
        }
    }
}

/// How many rows a scan of a table reads, about; `None` if `plan` is none that can be shared out.
pub fn scanned_rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let source = table_source(plan).filter(|source| !source.tells_places())?;
    Some(source.rows().unwrap_or(usize::MAX))
}

/// How many rows a plan gives, about, that are all rows of a table; `None` for another.
pub fn whole_table(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    match (plan.children().as_slice(), table_source(plan)) {
        ([], Some(source)) => source.rows().filter(|_| source.is_whole()),
        ([input], _) if hands_on_all(plan) => whole_table(input),
        _ => None,
    }
}

fn hands_on_all(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_one =
        plan.is::<RepartitionExec>() || plan.is::<CoalescePartitionsExec>() || plan.is::<ProjectionExec>();
    is_one && plan.fetch().is_none()
}

/// A scan without what operators above it learn, who may be in another process; from `joins`, by their filters, it waits to be told.
pub fn exact_scan(plan: &Arc<dyn ExecutionPlan>, joins: &HashSet<u64>) -> Option<Arc<dyn ExecutionPlan>> {
    table_source(plan).map(|source| DataSourceExec::from_data_source(source.exact(joins)) as _)
}

/// From which filters of joins a scan waits to be told.
pub fn awaited_filters(plan: &Arc<dyn ExecutionPlan>) -> Vec<u64> {
    table_source(plan).map_or_else(Vec::new, |source| source.awaited().iter().map(Awaited::id).collect())
}

/// A scan as it was executed elsewhere, with what was measured there; `None` if `plan` is none.
pub fn executed_scan(plan: &Arc<dyn ExecutionPlan>, metrics: &MetricsSet) -> Option<Arc<dyn ExecutionPlan>> {
    table_source(plan).map(|source| DataSourceExec::from_data_source(source.executed(metrics)) as _)
}

impl QueryEngine {
    /// Has queries executed by several processes from now on, once.
    pub fn connect(&self, nodes: Arc<dyn Nodes>) {
        let _ = self.nodes().set(nodes);
    }

    /// Place for what the joins of a query tell.
    pub fn make_runtime_filters(&self) -> Arc<RuntimeFilters> {
        self.offers().make_filters(self.view(&SESSION).snapshot().ts())
    }

    /// A scan's parts, one for each of the nodes with these names.
    pub fn share_scan(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        names: &[String],
        filters: &Arc<RuntimeFilters>,
    ) -> Option<Vec<Arc<dyn ExecutionPlan>>> {
        let source = table_source(plan)?;
        let offer = self.offers().make(source, (names, filters), self.memory_pool());
        let part = |task| {
            let side = Side::Offers(Arc::clone(&offer));
            let share = Share { offer: offer.id(), task, tasks: names.len() as u32, side };
            DataSourceExec::from_data_source(source.shared(share)) as Arc<dyn ExecutionPlan>
        };
        Some((0..names.len() as u32).map(part).collect())
    }

    /// A scan, or a part of one, as bytes; `None` if `plan` is none.
    ///
    /// # Errors
    /// `Unsupported`, naming what does not travel.
    pub fn encode_scan(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Vec<u8>>> {
        let Some(source) = table_source(plan) else { return Ok(None) };
        let (view, table, _) = source.to_open();
        let (offer, task, tasks) =
            source.share().map_or((0, 0, 1), |share| (share.offer, share.task, share.tasks));
        let definition = serde_json::to_vec(table.definition().as_ref());
        let leaf = Leaf {
            offer,
            task,
            tasks,
            definition: definition.map_err(|e| external(Error::internal(e.to_string())))?,
            scan: wire::of_table(source, &view, self.base_state())?,
            partitions: source.partitions() as u32,
            batch_rows: source.batch_rows() as u32,
            awaited: source.awaited().iter().map(Awaited::to_wanted).collect(),
        };
        Ok(Some(leaf.encode_to_vec()))
    }

    /// What [`encode_scan`](Self::encode_scan) made, for who reads it here.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn decode_scan(
        &self,
        bytes: &[u8],
        owner: &Arc<dyn Owner>,
        folder: &Arc<SharedFolder>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let damaged = |why: &str| external(Error::corrupt(format!("a part of a scan: {why}")));
        let leaf = Leaf::decode(bytes).map_err(|e| damaged(&e.to_string()))?;
        let definition = serde_json::from_slice(&leaf.definition).map_err(|e| damaged(&e.to_string()))?;
        let is_within = |count, max| (1..=max).contains(&count);
        if !is_within(leaf.partitions, PARTITIONS_MAX) || !is_within(leaf.batch_rows, BATCH_ROWS_MAX) {
            return Err(damaged("it has no partitions or rows, or too many"));
        }
        let table = Table::outside_catalog(definition);
        let view = self.view(&SESSION);
        let scan = wire::Received::read(&leaf.scan).map_err(external)?;
        let sizes = (leaf.partitions as usize, leaf.batch_rows as usize);
        let source = scan.elsewhere(table, &view, self.base_state(), sizes)?;
        let awaited = leaf.awaited.iter().map(|wanted| {
            let columns = wanted.columns.iter().map(|column| *column as usize).collect::<Vec<_>>();
            source
                .awaits(wanted.filter, &columns)
                .ok_or_else(|| damaged("it waits for columns that it has not"))
        });
        let awaited = awaited.collect::<Result<_>>()?;
        let source = source.awaiting(awaited);
        let side = Side::Reads(Arc::clone(owner), Arc::clone(folder));
        let share = Share { offer: leaf.offer, task: leaf.task, tasks: leaf.tasks, side };
        Ok(DataSourceExec::from_data_source(source.shared(share)))
    }

    /// What a task has to read of a scan that was offered, as bytes. The first who asks has it opened for all.
    ///
    /// # Errors
    /// `NotFound` if the query has ended; those of a scan.
    pub async fn open_offer(
        &self,
        offer: u64,
        task: u32,
        stored: &[usize],
        with_ts: bool,
    ) -> oribi_types::Result<Vec<u8>> {
        let (offer, stored) = (self.offers().find(offer)?, stored.to_vec());
        // Whoever asks may be on a thread that serves clients.
        let opened = self.spawn(async move { offer.open(task, &stored, with_ts).await });
        opened.await.unwrap_or_else(|_| Err(Error::internal("a scan could not be opened: a panic")))
    }

    /// What joins have told of the rows that they want of it, once that is known, as [`RuntimeFilter::to_bytes`] writes it.
    ///
    /// # Errors
    /// `NotFound` if the query has ended.
    pub async fn runtime_filter(&self, offer: u64, filter: u64) -> oribi_types::Result<Vec<u8>> {
        let filters = self.offers().find(offer)?.filters();
        let ended = || Error::not_found(format!("scan {offer}: the query that it is of has ended"));
        let known = RuntimeFilters::wait(filters, filter).await.ok_or_else(ended)?;
        let written = self.spawn(async move { known.to_bytes() }).await;
        let failed = |why: String| Error::internal(format!("a runtime filter cannot be written: {why}"));
        written.map_err(|_| failed("a panic".to_owned()))?.map_err(|e| failed(e.strip_backtrace()))
    }

    /// A task of a join tells what it has learned, in these bytes. Threads of queries read them.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none.
    pub async fn tell_runtime_filter(
        &self,
        query: u64,
        (filter, task): (u64, u32),
        told: Vec<u8>,
    ) -> oribi_types::Result<()> {
        let Some(filters) = self.offers().filters(query) else { return Ok(()) };
        let room = MemoryConsumer::new("runtime filters").register(self.memory_pool());
        let read = self.spawn(async move {
            filters.tell(filter, task, RuntimeFilter::from_bytes(&told)?.within(room));
            Ok(())
        });
        read.await.unwrap_or_else(|_| Err(Error::internal("a runtime filter cannot be read: a panic")))
    }

    /// The rows of it that a tablet has in memory. They are given once.
    ///
    /// # Errors
    /// As [`open_offer`](Self::open_offer).
    pub fn offered_rows(
        &self,
        offer: u64,
        tablet: u32,
    ) -> oribi_types::Result<BoxStream<'static, oribi_types::Result<RecordBatch>>> {
        self.offers().find(offer)?.rows(tablet)
    }

    /// Functions, rules and configuration of statements.
    pub fn base_state(&self) -> &SessionState {
        self.states().base()
    }

    /// The memory that queries share, and where they spill.
    pub fn runtime_env(&self) -> &Arc<RuntimeEnv> {
        self.base_state().runtime_env()
    }

    /// Runs `work` on the threads of queries.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.runtime().spawn(work)
    }
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
