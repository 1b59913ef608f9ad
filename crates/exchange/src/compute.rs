//! A compute node: a process that holds nothing, and runs tasks of the owner's queries.

use crate::channels::{ASKED_APART, Channels, Own, Resolver, SILENCE_MAX, connection};
use crate::codec::{Codec, bare_state};
use crate::door::{Flight, is_not_asked};
use crate::given::Given;
use crate::guarded::guarded;
use crate::members::HELLOS_APART;
use crate::owner::RemoteOwner;
use crate::runtime_filters::Teller;
use crate::secret::Secret;
use crate::{LOCAL_HEADER, Local, QUERY_HEADER};
use arrow_flight::flight_service_server::FlightServiceServer;
use datafusion::common::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::SessionState;
use datafusion_distributed::{
    DistributedConfig, DistributedExt, DistributedTaskContext, Worker, WorkerPlanRewriteEvent,
    WorkerPlanRewriteEventResponse, WorkerQueryContext,
};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use http_body_util::BodyExt;
use oribi_query::QueryEngine;
use oribi_query::interest::{Interest, interested};
use oribi_query::nodes::{Owner, SharedFolder};
use oribi_query::runtime_filters::{VALUES_BYTES_MAX, VALUES_MAX};
use oribi_types::{Error, ErrorKind, Result};
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use url::Url;

/// The longest plan that a node takes.
const PLAN_BYTES_MAX: usize = 64 << 20;

/// Calls of one node at a time. A task has one as long as its query runs, and its rows are taken by others, which wait for each other: a lower
/// number would have them wait for ever.
pub(crate) const STREAMS_MAX: u32 = 1 << 20;

pub struct ComputeOptions {
    /// By which the node is known to the owner.
    pub name: String,
    /// Where the owner listens to nodes.
    pub owner: SocketAddr,
    /// Where the tables' files are read, and what the owner calls that.
    pub files: Arc<SharedFolder>,
    pub read: String,
    pub secret: Secret,
}

/// A node that runs.
pub struct ComputeNode {
    local_addr: SocketAddr,
    serving: JoinHandle<()>,
    telling: JoinHandle<()>,
}

impl ComputeNode {
    /// Runs tasks on the threads of `query` that come by `listener`, until `shutdown` holds true.
    ///
    /// # Errors
    /// Why the owner refuses the node; an owner that is not there is waited for.
    pub async fn start(
        query: &Arc<QueryEngine>,
        listener: TcpListener,
        options: ComputeOptions,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        let local_addr = listener.local_addr()?;
        if local_addr.ip().is_unspecified() {
            let why = "is no address by which other nodes reach this one";
            return Err(Error::invalid(format!("nodes = {local_addr} {why}: name one of this machine")));
        }
        let url = Url::parse(&format!("http://{local_addr}")).map_err(|e| Error::internal(e.to_string()))?;
        let no_address = |e: &dyn fmt::Display| Error::invalid(format!("owner {}: {e}", options.owner));
        let at = Url::parse(&format!("http://{}", options.owner)).map_err(|e| no_address(&e))?;
        let channel = connection(at.as_str()).map_err(|e| no_address(&e))?;
        let owner = Arc::new(RemoteOwner::new(channel, &at, &options.secret));
        let worker = worker(query, (&owner, &url), &options);
        // What it does it does where queries run.
        let serving = query.spawn(serve(listener, worker, options.secret.clone(), shutdown.clone()));
        let files = options.files;
        let hello = (owner, options.name, url, options.read);
        if let Err(error) = tell(&hello).await
            && error.kind() != ErrorKind::Unavailable
        {
            return Err(error.context(format!("owner {}", options.owner)));
        }
        let telling = tokio::spawn(async move {
            let mut is_heard = true;
            loop {
                tokio::select! {
                    () = shut(&mut shutdown) => return,
                    () = tokio::time::sleep(HELLOS_APART) => {}
                }
                files.forget_idle();
                let told = tell(&hello).await;
                match &told {
                    Err(error) if is_heard => tracing::warn!(%error, "the owner does not take this node"),
                    Ok(()) if !is_heard => tracing::info!("the owner takes this node again"),
                    _ => {}
                }
                is_heard = told.is_ok();
            }
        });
        Ok(ComputeNode { local_addr, serving, telling })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    pub fn close(self) {
        self.serving.abort();
        self.telling.abort();
    }
}

type Hello = (Arc<RemoteOwner>, String, Url, String);

/// An owner that does not answer is not there.
async fn tell((owner, name, url, folder): &Hello) -> Result<()> {
    let told = tokio::time::timeout(4 * HELLOS_APART, owner.hello(name, url, folder)).await;
    told.unwrap_or_else(|_| Err(Error::unavailable("it does not answer")))
}

/// Until `shutdown` holds true.
async fn shut(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|shut| *shut).await;
}

async fn serve(listener: TcpListener, worker: Worker, secret: Secret, mut shutdown: watch::Receiver<bool>) {
    let serving = async {
        let incoming =
            TcpIncoming::from(tokio::net::TcpListener::from_std(listener)?).with_nodelay(Some(true));
        let rows = FlightServiceServer::new(Flight(Given(worker.clone())));
        let plans = OnlyPlans(worker.into_worker_server().max_decoding_message_size(PLAN_BYTES_MAX));
        let server = Server::builder()
            .max_concurrent_streams(STREAMS_MAX)
            .http2_keepalive_interval(Some(ASKED_APART))
            .http2_keepalive_timeout(Some(SILENCE_MAX))
            .add_service(InterceptedService::new(rows, secret.checking()))
            .add_service(InterceptedService::new(plans, secret.checking()));
        let ends = async move { shut(&mut shutdown).await };
        server.serve_with_incoming_shutdown(incoming, ends).await.map_err(std::io::Error::other)
    };
    if let Err(error) = serving.await {
        tracing::error!(%error, "nobody listens to tasks any more");
    }
}

tokio::task_local! {
    /// Lost when the call ends by which a plan came: that is when its query has ended, or was cancelled.
    static CALL: Interest;
}

/// The service of datafusion-distributed's workers without its call for rows: nodes have one of their own, and this one would make room for as
/// many partitions as whoever asks says. A call that panics is an error: it reads plans before our codec does.
#[derive(Clone)]
struct OnlyPlans<S>(S);

impl<S: NamedService> NamedService for OnlyPlans<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<http::Request<B>> for OnlyPlans<S>
where
    S: Service<http::Request<B>, Response = http::Response<Body>>,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        if request.uri().path().ends_with("/ExecuteTask") {
            return Box::pin(ready(Ok(is_not_asked().into_http())));
        }
        let interest = Interest::default();
        let interested = interest.until_dropped();
        let answered = CALL.scope(interest, AssertUnwindSafe(self.0.call(request)).catch_unwind());
        Box::pin(async move {
            let panicked = || Ok(Status::internal("a plan could not be read: a panic").into_http());
            let answer = answered.await.unwrap_or_else(|_| panicked())?;
            Ok(answer.map(|told| {
                Body::new(told.map_frame(move |frame| {
                    let _ends_with_the_answer = &interested;
                    frame
                }))
            }))
        })
    }
}

fn worker(
    query: &Arc<QueryEngine>,
    (owner, url): (&Arc<RemoteOwner>, &Url),
    options: &ComputeOptions,
) -> Worker {
    let of_tasks = Arc::clone(owner);
    let owner: Arc<dyn Owner> = Arc::clone(owner) as _;
    let codec = Arc::new(Codec::new(query, owner, Arc::clone(&options.files)));
    let channels = Channels::new(&codec);
    let (weak, headers) = (Arc::downgrade(query), options.secret.headers());
    let own: Arc<OnceLock<Own>> = Arc::default();
    let itself = Arc::clone(&own);
    let build = move |context: WorkerQueryContext| {
        let made = weak
            .upgrade()
            .map(|query| state(&query, context, (&codec, &channels, &of_tasks), (&itself, &headers)));
        let stopped = || DataFusionError::External(Box::new(Error::unavailable("the node is about to end")));
        std::future::ready(made.unwrap_or_else(|| Err(stopped())))
    };
    let worker = Worker::from_session_builder(build).with_runtime_env(Arc::clone(query.runtime_env()));
    let _ = own.set(Own { worker: worker.clone(), url: url.clone() });
    worker
}

/// The state in which a task's plan is read and executed: this process's options, with what says which task it is, and the ways to others.
fn state(
    query: &QueryEngine,
    mut context: WorkerQueryContext,
    (codec, channels, owner): (&Arc<Codec>, &Arc<Channels>, &Arc<RemoteOwner>),
    (own, headers): (&OnceLock<Own>, &http::HeaderMap),
) -> DataFusionResult<SessionState> {
    let base = query.base_state();
    let mut config = context.builder.config().take().unwrap_or_default();
    let distributed = DistributedConfig::from_session_config(&config)?.clone();
    let batch_rows = distributed.shuffle_batch_size;
    *config.options_mut() = base.config_options().as_ref().clone();
    config.options_mut().extensions.insert(distributed);
    if batch_rows > 0 {
        config = config.with_batch_size(batch_rows);
    }
    // Of few keys all are told, not just between which they lie.
    config.options_mut().optimizer.hash_join_inlist_pushdown_max_distinct_values = VALUES_MAX;
    config.options_mut().optimizer.hash_join_inlist_pushdown_max_size = VALUES_BYTES_MAX;
    let query_id = context.headers.get(QUERY_HEADER).and_then(|query| query.to_str().ok()?.parse().ok());
    let teller = query_id.map(|query| Teller { owner: Arc::clone(owner), query });
    let interest = CALL.try_with(Interest::clone);
    debug_assert!(interest.is_ok(), "a plan comes by a call");
    let interest = interest.unwrap_or_default();
    let (mut headers, said) = (headers.clone(), context.headers.get(LOCAL_HEADER));
    let local: Local = said.and_then(|said| said.to_str().ok()?.parse().ok()).unwrap_or_default();
    if let Some(said) = said {
        headers.insert(LOCAL_HEADER, said.clone());
    }
    let mut builder = bare_state(config, query.runtime_env())
        .with_distributed_user_codec_arc(Arc::clone(codec) as _)
        .with_distributed_channel_resolver(Resolver::of_task(channels, own.get().cloned(), local))
        .with_distributed_worker_plan_rewrite_handler(move |event: WorkerPlanRewriteEvent<'_>| {
            let task = event.session_config.get_extension::<DistributedTaskContext>();
            let plan = interested(event.plan, &interest)?;
            let plan = match (&teller, task) {
                (Some(teller), Some(task)) => {
                    teller.telling(plan, (task.task_index as u32, task.task_count))?
                }
                _ => plan,
            };
            guarded(plan).map(WorkerPlanRewriteEventResponse::new)
        })
        .with_distributed_passthrough_headers(headers)?;
    if let (Some(own), Ok(nowhere)) = (own.get(), Url::parse("http://nowhere.invalid")) {
        // The way to the same process is ours, too.
        builder = builder.with_distributed_local_worker_context(own.worker.to_local_worker_context(nowhere));
    }
    metrics::counter!("oribi_exchange_tasks_total").increment(1);
    Ok(builder.build())
}
