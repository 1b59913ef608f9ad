//! The listening side: accepts clients within the limits, hears that they speak HTTP/2, and sees them off at shutdown.

use crate::auth::Credentials;
use crate::messages;
use crate::results::Connection;
use crate::service::Service;
use crate::shared::{FlightLimits, Shared};
use crate::status::{status, too_many};
use arrow_flight::flight_service_server::FlightServiceServer;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use oribi_net::{Reception, Tasks, holds};
use oribi_session::sql::SqlEngine;
use oribi_types::Result;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Join};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;
use tonic::codegen::Service as _;

/// Connections that are being refused, beyond those that are served; more are dropped unheard.
const REFUSED_MAX: usize = 64;

/// What a client sends first that speaks HTTP/2.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How far apart it is looked for what nobody has named for long, at most.
const LOOKS_APART: Duration = Duration::from_secs(1);

/// What a client may send ahead of what is asked for, in a call and in all calls of a connection, and what an answer has in the connection.
const CALL_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// The longest message of a call that has only one, but for `DoPut`: a statement of the longest text, and what is around it.
const COMMAND_BYTES_MAX: usize = (4 << 20) + (64 << 10);
/// Headers of a call, of which tokens are the longest.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// A running door.
pub struct FlightDoor {
    local_addr: SocketAddr,
    accepting: JoinHandle<()>,
}

impl FlightDoor {
    /// Serves `listener` on the current tokio runtime until `shutdown` holds true (or its sender is gone). With credentials, only
    /// who has them.
    ///
    /// # Errors
    /// Whatever the socket says to being put into tokio's hands.
    pub fn start(
        listener: std::net::TcpListener,
        sql: Arc<dyn SqlEngine>,
        limits: FlightLimits,
        credentials: Option<Credentials>,
        shutdown: watch::Receiver<bool>,
    ) -> Result<FlightDoor> {
        let reception = Reception::new("flight", listener, shutdown.clone())?;
        let local_addr = reception.local_addr()?;
        let shared = Arc::new(Shared::new(sql, limits, credentials));
        tokio::spawn(end_silent(shared.clone(), shutdown.clone()));
        let accepting = tokio::spawn(accept(reception, shared, shutdown));
        Ok(FlightDoor { local_addr, accepting })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns when all connections have ended after a shutdown.
    pub async fn join(self) {
        // An error would be a panic of the accepting task, which has already been reported.
        let _ = self.accepting.await;
    }
}

async fn accept(mut reception: Reception, shared: Arc<Shared>, shutdown: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(shared.limits.connections_max));
    let mut connections = Tasks::of("flight");
    while let Some(socket) = connections.beside(reception.next(|socket, _| TcpStream::from_std(socket))).await
    {
        metrics::counter!("oribi_flight_connections_total").increment(1);
        let place = places.clone().try_acquire_owned().ok();
        if place.is_some() || connections.count() < shared.limits.connections_max + REFUSED_MAX {
            connections.spawn(serve(socket, place, shared.clone(), shutdown.clone()));
        }
    }
    drop(reception);
    connections.finish(shared.limits.shutdown_grace).await;
}

/// Ends what nobody has named for long, until the door shuts.
async fn end_silent(shared: Arc<Shared>, mut shutdown: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            biased;
            () = holds(&mut shutdown) => return,
            () = tokio::time::sleep(LOOKS_APART.min(shared.limits.transaction_silence_max)) => shared.end_silent(),
        }
    }
}

/// Serves a socket until it is closed; without a place, its first call is told that there is none.
async fn serve(
    mut socket: TcpStream,
    place: Option<OwnedSemaphorePermit>,
    shared: Arc<Shared>,
    shutdown: watch::Receiver<bool>,
) {
    let _ = socket.set_nodelay(true);
    let limits = &shared.limits;
    let mut preface = [0; PREFACE.len()];
    let heard = tokio::time::timeout(limits.startup_timeout, socket.read_exact(&mut preface)).await;
    if !matches!(heard, Ok(Ok(_))) {
        return;
    }
    if &preface != PREFACE {
        // Whether it hears why makes no difference.
        let _ = socket.write_all(NOT_HTTP_2).await;
        return;
    }
    let (reading, writing) = socket.into_split();
    let io = tokio::io::join(std::io::Cursor::new(preface).chain(reading), writing);
    match place {
        Some(_place) => serve_calls(io, shared.clone(), shutdown).await,
        None => refuse(io, limits).await,
    }
}

/// What a client is told that speaks another protocol, as one that speaks HTTP/1.1 reads it.
const NOT_HTTP_2: &[u8] =
    b"HTTP/1.1 505 HTTP Version Not Supported\r\ncontent-length: 47\r\nconnection: close\r\n\r\n\
    this is arrow flight: gRPC over HTTP/2 expected";

type Io<R, W> = TokioIo<Join<R, W>>;

async fn serve_calls<R, W>(io: Join<R, W>, shared: Arc<Shared>, mut shutdown: watch::Receiver<bool>)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let connection = Arc::new(Connection::default());
    let service = Service { shared: shared.clone(), connection: connection.clone() };
    let message_bytes_max = shared.limits.message_bytes_max;
    let service = FlightServiceServer::new(service)
        .max_decoding_message_size(message_bytes_max)
        .max_encoding_message_size(usize::MAX);
    let (load, limits) = (shared.requests.clone(), shared.limits.clone());
    let answer = service_fn(move |request: Request<Incoming>| {
        let bytes_max = match request.uri().path().ends_with("/DoPut") {
            true => message_bytes_max,
            false => message_bytes_max.min(COMMAND_BYTES_MAX),
        };
        let request =
            request.map(|body| tonic::body::Body::new(messages::whole(body, load.clone(), bytes_max)));
        service.clone().call(request)
    });
    let io: Io<R, W> = TokioIo::new(io);
    let mut serving = pin!(builder(&limits).serve_connection(io, answer));
    tokio::select! {
        biased;
        served = serving.as_mut() => return note(served),
        () = connection.ends.notified() => return,
        () = holds(&mut shutdown) => serving.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        biased;
        served = serving => note(served),
        () = connection.ends.notified() => {}
    }
}

/// Tells a client's calls that there are too many connections.
async fn refuse<R, W>(io: Join<R, W>, limits: &FlightLimits)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let most = limits.connections_max;
    let answer = service_fn(move |_: Request<Incoming>| async move {
        let told: Response<tonic::body::Body> = status(&too_many("connections", most)).into_http();
        Ok::<_, Infallible>(told)
    });
    let serving = builder(limits).serve_connection(TokioIo::new(io), answer);
    let _ = tokio::time::timeout(limits.startup_timeout, serving).await;
}

fn builder(limits: &FlightLimits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout)
        .max_concurrent_streams(limits.calls_max)
        .initial_stream_window_size(CALL_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(HEADERS_BYTES_MAX);
    builder
}

fn note(served: hyper::Result<()>) {
    if let Err(error) = served {
        tracing::debug!(%error, "flight connection ended");
    }
}
