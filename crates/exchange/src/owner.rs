//! Where compute nodes come to the owner: they say that they are there, and ask what a task has to read. Over Arrow Flight, of which they
//! use two calls.

use crate::channels::{ASKED_APART, SILENCE_MAX};
use crate::compute::STREAMS_MAX;
use crate::door::{Answers, Door, Flight, garbage, is_not_asked};
use crate::is_near;
use crate::members::Members;
use crate::secret::Secret;
use crate::status::{from_status, to_status};
use arrow::array::RecordBatch;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::flight_service_server::FlightServiceServer;
use arrow_flight::{Action, FlightData, Ticket};
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use oribi_query::QueryEngine;
use oribi_query::nodes::Owner;
use oribi_query::runtime_filters::{KEY_SET_BYTES_MAX, RuntimeFilter, VALUES_BYTES_MAX};
use oribi_types::{Error, Result};
use prost::Message;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use url::Url;

/// What nodes ask the owner, as actions of Flight.
const HELLO: &str = "oribi.hello";
const OPEN: &str = "oribi.open";
const TELL_FILTER: &str = "oribi.tell_filter";
const WANT_FILTER: &str = "oribi.want_filter";

/// The longest answer: what is hidden of files, a bit for each row.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// The longest that a node tells: what a join has learned.
const ASKED_BYTES_MAX: usize = 32 << 20;
const _: () = assert!(ASKED_BYTES_MAX > 2 * (KEY_SET_BYTES_MAX + VALUES_BYTES_MAX));

#[derive(Clone, PartialEq, Message)]
struct Hello {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    url: String,
    /// Whose files the node reads: by which server, or store, they are.
    #[prost(string, tag = "3")]
    folder: String,
}

#[derive(Clone, PartialEq, Message)]
struct Open {
    #[prost(uint64, tag = "1")]
    offer: u64,
    #[prost(uint32, tag = "2")]
    task: u32,
    #[prost(uint32, repeated, tag = "3")]
    stored: Vec<u32>,
    #[prost(bool, tag = "4")]
    with_ts: bool,
}

/// What a task's join has learned.
#[derive(Clone, PartialEq, Message)]
struct TellFilter {
    #[prost(uint64, tag = "1")]
    query: u64,
    #[prost(uint64, tag = "2")]
    filter: u64,
    #[prost(uint32, tag = "3")]
    task: u32,
    #[prost(bytes = "vec", tag = "4")]
    told: Vec<u8>,
}

/// What joins have learned, for a scan.
#[derive(Clone, PartialEq, Message)]
struct WantFilter {
    #[prost(uint64, tag = "1")]
    offer: u64,
    #[prost(uint64, tag = "2")]
    filter: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Rows {
    #[prost(uint64, tag = "1")]
    offer: u64,
    #[prost(uint32, tag = "2")]
    tablet: u32,
    /// Whether who asks is on the owner's machine: then they are not compressed.
    #[prost(bool, tag = "3")]
    is_near: bool,
}

/// The owner's door for compute nodes.
pub struct OwnerDoor {
    local_addr: SocketAddr,
    serving: JoinHandle<()>,
}

impl OwnerDoor {
    /// Serves `listener` until `shutdown` holds true. Nodes read the files of the server, or the store, that `folder` names.
    ///
    /// # Errors
    /// Whatever the socket says to being put into tokio's hands.
    pub(crate) fn start(
        listener: TcpListener,
        (query, members): (&Arc<QueryEngine>, &Arc<Members>),
        folder: String,
        secret: &Secret,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        let local_addr = listener.local_addr()?;
        let incoming =
            TcpIncoming::from(tokio::net::TcpListener::from_std(listener)?).with_nodelay(Some(true));
        let service = Service { query: Arc::downgrade(query), members: Arc::clone(members), folder };
        let service = FlightServiceServer::new(Flight(service)).max_decoding_message_size(ASKED_BYTES_MAX);
        let service = InterceptedService::new(service, secret.checking());
        let ends = async move {
            let _ = shutdown.wait_for(|shut| *shut).await;
        };
        let serving = Server::builder()
            .max_concurrent_streams(STREAMS_MAX)
            .http2_keepalive_interval(Some(ASKED_APART))
            .http2_keepalive_timeout(Some(SILENCE_MAX))
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, ends);
        let serving = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "nobody listens to compute nodes any more");
            }
        });
        Ok(OwnerDoor { local_addr, serving })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns when it was shut. Nodes whose connections stay open are not waited for.
    pub fn close(self) {
        self.serving.abort();
    }
}

struct Service {
    query: Weak<QueryEngine>,
    members: Arc<Members>,
    folder: String,
}

impl Service {
    fn query(&self) -> Result<Arc<QueryEngine>, Status> {
        self.query.upgrade().ok_or_else(|| Status::unavailable("the owner is about to end"))
    }

    fn hello(&self, hello: &Hello) -> Result<()> {
        if hello.folder != self.folder {
            return Err(Error::invalid(format!(
                "node {} reads other files than the owner's: those of {}, not of {}",
                hello.name, hello.folder, self.folder
            )));
        }
        let url = Url::parse(&hello.url).map_err(|e| Error::invalid(format!("{}: {e}", hello.url)))?;
        self.members.note(&hello.name, url, Instant::now())
    }
}

#[async_trait]
impl Door for Service {
    async fn act(&self, asked: &str, body: &[u8]) -> Result<Vec<u8>, Status> {
        let answer = match asked {
            HELLO => self.hello(&Hello::decode(body).map_err(garbage)?).map(|()| Vec::new()),
            OPEN => {
                let Open { offer, task, stored, with_ts } = Open::decode(body).map_err(garbage)?;
                let stored: Vec<usize> = stored.into_iter().map(|column| column as usize).collect();
                self.query()?.open_offer(offer, task, &stored, with_ts).await
            }
            TELL_FILTER => {
                let TellFilter { query, filter, task, told } = TellFilter::decode(body).map_err(garbage)?;
                let told = self.query()?.tell_runtime_filter(query, (filter, task), told).await;
                told.map(|()| Vec::new())
            }
            WANT_FILTER => {
                let WantFilter { offer, filter } = WantFilter::decode(body).map_err(garbage)?;
                self.query()?.runtime_filter(offer, filter).await
            }
            _ => return Err(is_not_asked()),
        };
        answer.map_err(|error| to_status(&error))
    }

    async fn give(&self, ticket: &[u8]) -> Result<Answers<FlightData>, Status> {
        let Rows { offer, tablet, is_near } = Rows::decode(ticket).map_err(garbage)?;
        let query = self.query()?;
        let rows = query.offered_rows(offer, tablet).map_err(|error| to_status(&error))?;
        let compression = (!is_near).then_some(CompressionType::LZ4_FRAME);
        let options = IpcWriteOptions::default().try_with_compression(compression);
        let options = options.map_err(|error| Status::internal(error.to_string()))?;
        let rows = rows.map_err(|error| FlightError::Tonic(Box::new(to_status(&error))));
        let messages = FlightDataEncoderBuilder::new().with_options(options).build(rows);
        let messages = messages.map_err(|error| match error {
            FlightError::Tonic(status) => *status,
            other => Status::internal(other.to_string()),
        });
        Ok(made_by_queries(&query, messages.boxed()))
    }
}

/// The messages, as they are made by threads of queries: those on which they leave serve clients, too.
fn made_by_queries(query: &QueryEngine, mut messages: Answers<FlightData>) -> Answers<FlightData> {
    let (give, taken) = mpsc::channel(1);
    query.spawn(async move {
        while let Some(message) = messages.next().await {
            if give.send(Some(message)).await.is_err() {
                return;
            }
        }
        let _ = give.send(None).await;
    });
    let next = |taken: Option<mpsc::Receiver<_>>| async move {
        let mut taken = taken?;
        match taken.recv().await {
            Some(message) => Some((message?, Some(taken))),
            // A panic is not the end of the rows.
            None => Some((Err(Status::internal("rows in memory were not read to their end")), None)),
        }
    };
    stream::unfold(Some(taken), next).boxed()
}

/// The owner, as compute nodes ask it.
#[derive(Clone)]
pub(crate) struct RemoteOwner {
    client: FlightServiceClient<InterceptedService<Channel, crate::secret::Signing>>,
    is_near: bool,
}

impl RemoteOwner {
    /// Found at `url`, by `channel`.
    pub(crate) fn new(channel: Channel, url: &Url, secret: &Secret) -> Self {
        let client = FlightServiceClient::with_interceptor(channel, secret.signing());
        RemoteOwner { client: client.max_decoding_message_size(ANSWER_BYTES_MAX), is_near: is_near(url) }
    }

    /// Says that a node is there, which reads the files of `folder`.
    ///
    /// # Errors
    /// `Unavailable` if nobody answers; why it is refused.
    pub(crate) async fn hello(&self, name: &str, url: &Url, folder: &str) -> Result<()> {
        let hello = Hello { name: name.to_owned(), url: url.to_string(), folder: folder.to_owned() };
        self.ask(HELLO, hello.encode_to_vec()).await.map(drop)
    }

    /// What a join of a task has learned, by its filter.
    ///
    /// # Errors
    /// `Unavailable` if nobody answers.
    pub(crate) async fn tell(
        &self,
        query: u64,
        (filter, task): (u64, u32),
        told: &RuntimeFilter,
    ) -> Result<()> {
        let told = told.to_bytes().map_err(|e| Error::internal(e.strip_backtrace()))?;
        self.ask(TELL_FILTER, TellFilter { query, filter, task, told }.encode_to_vec()).await.map(drop)
    }

    async fn ask(&self, what: &str, body: Vec<u8>) -> Result<Vec<u8>> {
        let action = Action { r#type: what.to_owned(), body: body.into() };
        let answers = self.client.clone().do_action(action).await.map_err(|status| from_status(&status))?;
        let answer = answers.into_inner().message().await.map_err(|status| from_status(&status))?;
        answer.map(|answer| answer.body.to_vec()).ok_or_else(|| Error::internal("the owner answered nothing"))
    }
}

#[async_trait]
impl Owner for RemoteOwner {
    async fn open(&self, offer: u64, task: u32, stored: &[usize], with_ts: bool) -> Result<Vec<u8>> {
        let stored = stored.iter().map(|column| *column as u32).collect();
        self.ask(OPEN, Open { offer, task, stored, with_ts }.encode_to_vec()).await
    }

    async fn runtime_filter(&self, offer: u64, filter: u64) -> Result<RuntimeFilter> {
        RuntimeFilter::from_bytes(&self.ask(WANT_FILTER, WantFilter { offer, filter }.encode_to_vec()).await?)
    }

    async fn rows(&self, offer: u64, tablet: u32) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let ticket = Ticket { ticket: Rows { offer, tablet, is_near: self.is_near }.encode_to_vec().into() };
        let rows = self.client.clone().do_get(ticket).await.map_err(|status| from_status(&status))?;
        let rows = rows.into_inner().map_err(|status| FlightError::Tonic(Box::new(status)));
        let rows = FlightRecordBatchStream::new_from_flight_data(rows);
        Ok(rows
            .map_err(|error| match error {
                FlightError::Tonic(status) => from_status(&status),
                other => Error::corrupt(format!("rows that the owner has in memory: {other}")),
            })
            .boxed())
    }
}
