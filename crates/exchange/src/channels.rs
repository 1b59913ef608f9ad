//! Connections to compute nodes, one to each, which all queries share.

use crate::codec::Codec;
use crate::status::failed;
use crate::taken::{Counts, Take, batches};
use crate::{Compression, Local};
use arrow::array::RecordBatch;
use arrow_flight::Ticket;
use arrow_flight::flight_service_client::FlightServiceClient;
use async_trait::async_trait;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, DistributedConfig, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, MaybeEncoded, SetPlanRequest, Worker, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::future::try_join_all;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use http::HeaderMap;
use oribi_types::Error;
use prost::Message;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tonic::Request;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use url::Url;

/// How long a node may take to answer a connection; how often it is asked whether it lives, and how long it may be silent then. A query
/// with a node that is frozen fails after the sum of the last two. A process that is killed is seen at once; one whose threads are all busy,
/// which may be for seconds, is not to be taken for one that is frozen.
const CONNECT_MAX: Duration = Duration::from_secs(2);
pub(crate) const ASKED_APART: Duration = Duration::from_secs(2);
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(20);

/// What may be on its way in a stream. All streams to a node share a connection, and one whose reader waits for another stream must not
/// keep that from going on: so what is on its way in all of them has no bound of its own.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;

/// For how long nobody has asked a node to which there is no connection any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// The longest batch that is taken.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// A connection that is made when it is needed, and again when it broke.
///
/// # Errors
/// gRPC's for what is no address.
pub(crate) fn connection(url: &str) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(url.to_owned())?
        .connect_timeout(CONNECT_MAX)
        .http2_keep_alive_interval(ASKED_APART)
        .keep_alive_timeout(SILENCE_MAX)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        // A batch comes by fewer writes and reads than in frames of 16 KiB, as they are otherwise.
        .max_frame_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    Ok(endpoint.connect_lazy())
}

pub(crate) struct Channels {
    codec: Arc<Codec>,
    /// And when each was asked for.
    open: Mutex<HashMap<Url, (Channel, Instant)>>,
}

impl Channels {
    pub(crate) fn new(codec: &Arc<Codec>) -> Arc<Self> {
        Arc::new(Channels { codec: Arc::clone(codec), open: Mutex::default() })
    }

    fn channel(&self, url: &Url) -> Result<Channel> {
        let (mut open, now) = (self.open.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        if let Some((channel, asked)) = open.get_mut(url) {
            *asked = now;
            return Ok(channel.clone());
        }
        // Nodes come and go, on any port.
        open.retain(|_, (_, asked)| now.duration_since(*asked) < FORGOTTEN_AFTER);
        let made = connection(url.as_str()).map_err(|e| DataFusionError::External(Box::new(e)))?;
        open.insert(url.clone(), (made.clone(), now));
        Ok(made)
    }
}

/// A node's own tasks.
#[derive(Clone)]
pub(crate) struct Own {
    pub(crate) worker: Worker,
    pub(crate) url: Url,
}

/// The ways from a query or a task to tasks.
pub(crate) struct Resolver {
    channels: Arc<Channels>,
    own: Option<Own>,
    local: Local,
}

impl Resolver {
    /// Of a process in which no task runs.
    pub(crate) fn new(channels: &Arc<Channels>) -> Self {
        Resolver::of_task(channels, None, Local::default())
    }

    pub(crate) fn of_task(channels: &Arc<Channels>, own: Option<Own>, local: Local) -> Self {
        Resolver { channels: Arc::clone(channels), own, local }
    }
}

#[async_trait]
impl ChannelResolver for Resolver {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let own = self.own.as_ref().filter(|own| own.url == *url);
        let is_packed = match (own, self.local) {
            (Some(own), Local::Handover) => return Ok(Box::new(HandedOver(own.worker.clone()))),
            (Some(_), Local::Loopback) => false,
            _ => true,
        };
        let channel = self.channels.channel(url)?;
        let plans = create_worker_client(BoxCloneSyncChannel::new(channel.clone()));
        Ok(Box::new(Sent { plans, channel, is_packed, codec: Arc::clone(&self.channels.codec) }))
    }
}

type Batches = BoxStream<'static, Result<RecordBatch>>;

/// To another process. Plans are sent as [`Codec`] writes them.
struct Sent {
    plans: Box<dyn WorkerChannel>,
    channel: Channel,
    is_packed: bool,
    codec: Arc<Codec>,
}

impl Sent {
    fn compression(&self, context: &Arc<TaskContext>) -> Result<Compression> {
        match self.is_packed {
            true => {
                let word = &DistributedConfig::from_task_context(context)?.compression;
                word.parse().map_err(|e: Error| DataFusionError::External(Box::new(e)))
            }
            false => Ok(Compression::None),
        }
    }
}

#[async_trait]
impl WorkerChannel for Sent {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        request: SetPlanRequest,
        messages: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let plan = match request.plan {
            MaybeEncoded::Decoded(plan) => MaybeEncoded::Encoded(self.codec.encode(&plan)?),
            encoded => encoded,
        };
        let request = SetPlanRequest { plan, ..request };
        self.plans.coordinator_channel(headers, request, messages, metrics, context).await
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<Batches>> {
        let (compression, counts) = (self.compression(context)?, Counts::new(&metrics));
        let client =
            FlightServiceClient::new(self.channel.clone()).max_decoding_message_size(BATCH_BYTES_MAX);
        let partitions = request.target_partition_start..request.target_partition_end;
        let taken = partitions.map(|partition| {
            let (mut client, headers, counts) = (client.clone(), headers.clone(), counts.clone());
            let take = Take::of(&request, partition, compression);
            async move {
                let mut asked = Request::new(Ticket { ticket: take?.encode_to_vec().into() });
                *asked.metadata_mut() = MetadataMap::from_headers(headers);
                let room = MemoryConsumer::new("rows of other nodes").register(context.memory_pool());
                room.try_grow(STREAM_WINDOW_BYTES as usize)?;
                let messages = client.do_get(asked).await.map_err(|status| failed(&status))?.into_inner();
                Ok::<_, DataFusionError>(batches(messages.boxed(), counts, room))
            }
        });
        // All are begun: what nobody takes would have to be kept for the others.
        try_join_all(taken).await
    }

    async fn get_worker_info(&mut self, request: GetWorkerInfoRequest) -> Result<GetWorkerInfoResponse> {
        self.plans.get_worker_info(request).await
    }
}

/// To a task of the same process: its batches are given away as they are.
struct HandedOver(Worker);

#[async_trait]
impl WorkerChannel for HandedOver {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        request: SetPlanRequest,
        messages: BoxStream<'static, CoordinatorToWorkerMsg>,
        _metrics: ExecutionPlanMetricsSet,
        _context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        self.0.coordinator_channel(headers, request, messages.map(Ok).boxed()).await
    }

    async fn execute_task(
        &mut self,
        _headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        _context: &Arc<TaskContext>,
    ) -> Result<Vec<Batches>> {
        let counts = Counts::new(&metrics);
        let (partitions, _) = self.0.execute_task(request).await?;
        let counted = |batches: SendableRecordBatchStream| {
            let counts = counts.clone();
            batches.inspect_ok(move |batch| counts.handed_over(batch)).boxed()
        };
        Ok(partitions.into_iter().map(counted).collect())
    }

    async fn get_worker_info(&mut self, _request: GetWorkerInfoRequest) -> Result<GetWorkerInfoResponse> {
        Ok(GetWorkerInfoResponse { version: self.0.version().to_owned() })
    }
}
