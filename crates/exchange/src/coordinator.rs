//! The owner's side: whether a query is shared out, and how.

use crate::channels::{Channels, Resolver};
use crate::codec::{Codec, bare_state};
use crate::members::{Member, Members};
use crate::owner::OwnerDoor;
use crate::secret::Secret;
use crate::status::for_client;
use crate::{Compression, LOCAL_HEADER, Local, QUERY_HEADER, measured, plans, runtime_filters};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    BroadcastExec, CompressionType, DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedExec,
    DistributedExt, DistributedLeafExec, RouteTasksEvent, RouteTasksEventResponse, ScaleUpLeafNodeEvent,
    ScaleUpLeafNodeEventResponse, SessionStateBuilderExt, WorkerResolver,
};
use http::{HeaderMap, HeaderValue};
use oribi_query::QueryEngine;
use oribi_query::nodes::{
    Attempt, Became, Nodes, Place, Retried, RuntimeFilters, Settings, batch_rows, exact_scan, scanned_rows,
};
use oribi_types::{Error, ErrorKind};
use std::net::TcpListener;
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::sync::{Semaphore, watch};
use url::Url;

#[derive(Clone, Copy, Debug)]
pub struct ExchangeOptions {
    /// Queries whose scans read fewer rows stay in one process.
    pub rows_min: usize,
    /// So many queries are executed over the nodes at a time. All tasks of one run together, as each takes the rows of others.
    pub queries_max: usize,
    pub local: Local,
    /// `None`: as the machines of the nodes make it [best](Compression::chosen).
    pub compression: Option<Compression>,
}

impl Default for ExchangeOptions {
    /// A query of several joins that is shared out takes some 20 ms more: as long as two threads take for two million rows of few columns.
    fn default() -> Self {
        ExchangeOptions { rows_min: 2_000_000, queries_max: 64, local: Local::default(), compression: None }
    }
}

/// Of one task nothing is cut up.
const NODES_MIN: usize = 2;

/// What a session may set: whether its queries are shared out, and the rest as the owner has it.
const NODES: &str = "oribi.nodes";
const ROWS_MIN: &str = "oribi.nodes_rows_min";
const LOCAL: &str = "oribi.exchange_local";
const COMPRESSION: &str = "oribi.exchange_compression";

impl ExchangeOptions {
    /// As a session has them; `None` if its queries are not shared out.
    ///
    /// # Errors
    /// `Invalid`, naming the setting.
    fn in_session(mut self, settings: Settings<'_>) -> oribi_types::Result<Option<Self>> {
        match settings(NODES).as_deref() {
            None | Some("on") => {}
            Some("off") => return Ok(None),
            Some(other) => return Err(Error::invalid(format!("{NODES} = {other:?} is neither on nor off"))),
        }
        let of = |name: &'static str| settings(name).map(|text| (name, text));
        let wrong = |name: &str, text: &str, why: &str| Error::invalid(format!("{name} = {text:?} {why}"));
        if let Some((name, text)) = of(ROWS_MIN) {
            self.rows_min = text.parse().map_err(|_| wrong(name, &text, "is not a number"))?;
        }
        if let Some((name, text)) = of(LOCAL) {
            self.local = text.parse().map_err(|e: Error| wrong(name, &text, e.message()))?;
        }
        if let Some((name, text)) = of(COMPRESSION) {
            self.compression = Compression::chosen(&text).map_err(|e| wrong(name, &text, e.message()))?;
        }
        Ok(Some(self))
    }
}

/// Shares queries out over the compute nodes that are there.
pub struct Coordinator {
    query: Weak<QueryEngine>,
    members: Arc<Members>,
    options: ExchangeOptions,
    codec: Arc<Codec>,
    channels: Arc<Channels>,
    headers: HeaderMap,
    places: Arc<Semaphore>,
}

impl Coordinator {
    /// Listens to compute nodes that read the files of `folder` (a server, or a store), and has the queries of `query` shared out over them.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn start(
        query: &Arc<QueryEngine>,
        listener: TcpListener,
        folder: String,
        (secret, options): (&Secret, ExchangeOptions),
        shutdown: watch::Receiver<bool>,
    ) -> oribi_types::Result<OwnerDoor> {
        let members = Arc::<Members>::default();
        let door = OwnerDoor::start(listener, (query, &members), folder, secret, shutdown)?;
        let codec = Arc::new(Codec::of_owner(query));
        let channels = Channels::new(&codec);
        let headers = secret.headers();
        let places = Arc::new(Semaphore::new(options.queries_max.min(Semaphore::MAX_PERMITS)));
        let query_of = Arc::downgrade(query);
        let coordinator = Coordinator { query: query_of, members, options, codec, channels, headers, places };
        query.connect(Arc::new(coordinator));
        Ok(door)
    }

    /// What is scanned, or why the plan stays.
    fn scanned(plan: &Arc<dyn ExecutionPlan>) -> Result<std::result::Result<usize, String>> {
        let (mut rows, mut stays) = (0_usize, None);
        plan.apply(|node| {
            if node.children().is_empty() {
                match scanned_rows(node) {
                    Some(scanned) => rows = rows.saturating_add(scanned),
                    None if node.is::<EmptyExec>() || node.is::<PlaceholderRowExec>() => {}
                    None => stays = Some("rows are read by key, or do not come from a table".to_owned()),
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(stays.map_or(Ok(rows), Err))
    }

    /// With what a plan is shared out over `members`, whose batches have so many rows.
    fn config(
        &self,
        state: &SessionState,
        (members, options): (&[Member], &ExchangeOptions),
        filters: &Arc<RuntimeFilters>,
        batch_rows: usize,
    ) -> Result<SessionConfig> {
        let count = members.len();
        let desired = move |event: DesiredTaskCountEvent<'_>| {
            scanned_rows(event.plan)?;
            // What is above a scan of one partition may rely on having all of its rows.
            Some(Ok(match event.plan.output_partitioning().partition_count() {
                1 => DesiredTaskCountEventResponse::maximum(1),
                _ => DesiredTaskCountEventResponse::desired(count),
            }))
        };
        let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
        let (query, filters_of) = (Weak::clone(&self.query), Arc::clone(filters));
        let scale = move |event: ScaleUpLeafNodeEvent<'_>| {
            scanned_rows(event.plan)?;
            let names = &names[..event.task_count.min(names.len())];
            let parts = query.upgrade()?.share_scan(event.plan, names, &filters_of)?;
            let leaf = DistributedLeafExec::try_new(Arc::clone(event.plan), parts);
            Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
        };
        let urls: Vec<Url> = members.iter().map(|member| member.url.clone()).collect();
        let compression = match options.compression.unwrap_or_else(|| Compression::between(&urls)) {
            Compression::Lz4 => Some(CompressionType::LZ4_FRAME),
            Compression::Zstd => Some(CompressionType::ZSTD),
            Compression::None => None,
        };
        let routed = urls.clone();
        // A task of a number is where its scans' files are cached.
        let route = move |event: RouteTasksEvent<'_>| {
            let urls = (0..event.task_count).map(|task| routed[task % routed.len()].clone());
            Some(Ok(RouteTasksEventResponse::new(urls.collect())))
        };
        let mut headers = self.headers.clone();
        headers.insert(LOCAL_HEADER, HeaderValue::from_static(options.local.word()));
        headers.insert(QUERY_HEADER, HeaderValue::from(filters.id()));
        state
            .config()
            .clone()
            .with_distributed_worker_resolver(Urls(urls))
            .with_distributed_channel_resolver(Resolver::new(&self.channels))
            .with_distributed_user_codec_arc(Arc::clone(&self.codec) as _)
            .with_distributed_desired_task_count_handler(desired)
            .with_distributed_scale_up_leaf_node_handler(scale)
            .with_distributed_route_tasks_handler(route)
            .with_distributed_compression(compression)?
            .with_distributed_shuffle_batch_size(batch_rows)?
            .with_distributed_passthrough_headers(headers)
    }

    /// The plan with its exchanges, and with what it is executed; `None` if it would have none.
    async fn shared(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        state: &SessionState,
        (members, options): (&[Member], &ExchangeOptions),
    ) -> Result<Option<(Arc<dyn ExecutionPlan>, SessionConfig)>> {
        let batch_rows = batch_rows(&plan).min(state.config().batch_size());
        let stopped = || DataFusionError::External(Box::new(Error::unavailable("the owner is about to end")));
        let filters = self.query.upgrade().ok_or_else(stopped)?.make_runtime_filters();
        let config = self.config(state, (members, options), &filters, batch_rows)?;
        let state = bare_state(config.with_batch_size(batch_rows), state.runtime_env())
            .with_query_planner(Arc::new(Planned(plan)))
            .with_distributed_planner()
            .build();
        let nothing = EmptyRelation { produce_one_row: false, schema: Arc::new(DFSchema::empty()) };
        let planner = Arc::clone(state.query_planner());
        let plan = planner.create_physical_plan(&LogicalPlan::EmptyRelation(nothing), &state).await?;
        let plan = plan.transform_down(without_lone_broadcast).data()?;
        runtime_filters::expect(&plan, &filters)?;
        Ok(plan.is::<DistributedExec>().then(|| (plan, state.config().clone())))
    }
}

#[async_trait]
impl Nodes for Coordinator {
    fn may_share(&self, settings: Settings<'_>) -> bool {
        settings(NODES).as_deref() != Some("off") && self.members.present(Instant::now()).len() >= NODES_MIN
    }

    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        state: &SessionState,
        settings: Settings<'_>,
    ) -> Result<Place> {
        let here = |why: String| Ok(Place::Here(why));
        let Some(options) =
            self.options.in_session(settings).map_err(|e| DataFusionError::External(Box::new(e)))?
        else {
            return here(format!("{NODES} = off"));
        };
        let members = self.members.present(Instant::now());
        if members.len() < NODES_MIN {
            return here("there are fewer than two compute nodes".to_owned());
        }
        let rows = match Self::scanned(plan)? {
            Ok(rows) => rows,
            Err(why) => return here(why),
        };
        if rows < options.rows_min.max(1) {
            return here(format!("about {rows} rows are scanned, fewer than {}", options.rows_min));
        }
        let joins = runtime_filters::joins(plan)?;
        let exact = |node: Arc<dyn ExecutionPlan>| {
            Ok(exact_scan(&node, &joins).map_or_else(|| Transformed::no(node), Transformed::yes))
        };
        let exact = Arc::clone(plan).transform_up(exact).data()?;
        let exact = runtime_filters::without_unawaited(exact)?;
        // As tasks have it: without functions.
        let context = TaskContext::default().with_session_config(state.config().clone());
        match plans::check(&self.codec, &exact, &context) {
            Err(DataFusionError::External(error)) if is_unsupported(error.as_ref()) => {
                return here(error.to_string());
            }
            // What it is written or read with says less than the plan does.
            Err(error) => return here(format!("the plan does not travel: {}", error.strip_backtrace())),
            Ok(()) => {}
        }
        let Some((shared, config)) = self.shared(exact, state, (&members, &options)).await? else {
            return here("there is nothing to share".to_owned());
        };
        let names = members.into_iter().map(|member| member.name).collect();
        let retried = Retried::new(shared, plan, Arc::clone(&self.places), noted, for_client)?;
        Ok(Place::Shared(Arc::new(retried), Box::new(config), names))
    }

    async fn explain(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<Became> {
        let retried = plan.downcast_ref::<Retried>()?;
        Some(match retried.why_alone() {
            None => measured::became(retried.shared()).await,
            Some(why) => Became::Alone(Arc::clone(retried.alone()), why),
        })
    }
}

/// A broadcast to one task that is in the same stage hands on what it reads, and takes a panic below it for the end of that.
fn without_lone_broadcast(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let gathered = node.downcast_ref::<CoalescePartitionsExec>();
    let broadcast = gathered.and_then(|gathered| gathered.input().downcast_ref::<BroadcastExec>());
    match broadcast.map(|broadcast| vec![Arc::clone(broadcast.input())]) {
        Some(input) => {
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            node.replace_children(input, options).map(Transformed::yes)
        }
        None => Ok(Transformed::no(node)),
    }
}

fn noted(attempt: Attempt) {
    match attempt {
        Attempt::Shared => metrics::counter!("oribi_exchange_queries_total").increment(1),
        Attempt::Refused => metrics::counter!("oribi_exchange_refusals_total").increment(1),
        Attempt::Alone => metrics::counter!("oribi_exchange_retries_total").increment(1),
    }
}

fn is_unsupported(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::Unsupported)
}

/// The nodes that a query is shared out over.
struct Urls(Vec<Url>);

impl WorkerResolver for Urls {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

/// A plan that was made before: datafusion-distributed cuts up what a planner makes.
#[derive(Debug)]
struct Planned(Arc<dyn ExecutionPlan>);

#[async_trait]
impl QueryPlanner for Planned {
    async fn create_physical_plan(
        &self,
        _plan: &LogicalPlan,
        _session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::clone(&self.0))
    }
}
