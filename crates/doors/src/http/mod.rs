//! The HTTP door: whether the process lives (`/healthz`), whether it serves (`/readyz`), and what it counts
//! (`/metrics`, in Prometheus' text format; names are `oribi_<part>_<what>_<unit>`).
//!
//! Whoever asks for one of them does not keep the others out: see [`visitors`]. Nor do clients of other doors, since this one has
//! a thread of its own, nor those who ask for metrics: see [`page`].

mod page;
mod visitors;

use axum::Router;
use axum::extract::State;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::PrometheusHandle;
use oribi_engine::Trouble;
use oribi_net::{Door, Reception, Tasks, holds};
use oribi_types::Result;
use page::Page;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use visitors::{Visitor, Visitors};

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Connections at a time: for one more, that which has waited longest for its client to ask is closed.
    pub connections_max: usize,
    /// Answers to `/metrics` at a time, which are long; one more is refused.
    pub scrapes_max: usize,
    /// How long a client may take to send its request.
    pub request_max: Duration,
    /// How long a request may take until its answer is sent: a client that does not read is dropped.
    pub answer_max: Duration,
    /// How long requests that have begun have to finish at shutdown.
    pub shutdown_grace: Duration,
}

impl Default for HttpLimits {
    /// Short times: those who ask are a scraper and an orchestrator or two. Many connections: who has just come has the time to ask,
    /// even if a crowd comes behind it.
    fn default() -> Self {
        HttpLimits {
            connections_max: 1024,
            scrapes_max: 8,
            request_max: Duration::from_secs(30),
            answer_max: Duration::from_secs(10),
            shutdown_grace: Duration::from_secs(2),
        }
    }
}

/// The longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// What the door answers from.
#[derive(Clone)]
pub struct HttpState {
    pub metrics: PrometheusHandle,
    /// Brings gauges up to date that are read, not counted; called before each answer to `/metrics`.
    pub refresh: Arc<dyn Fn() + Send + Sync>,
    /// Whether all doors serve.
    pub ready: Arc<AtomicBool>,
    /// What the engine cannot do at the moment.
    pub troubles: Arc<dyn Fn() -> Vec<Trouble> + Send + Sync>,
}

/// A running HTTP door.
pub struct HttpDoor {
    door: Door,
    #[cfg(test)]
    visitors: Arc<Visitors>,
}

/// What all connections share.
struct Shared {
    answers: TowerToHyperService<Router>,
    limits: HttpLimits,
    scrapes: Arc<Semaphore>,
    visitors: Arc<Visitors>,
}

impl HttpDoor {
    /// Serves `listener` until `shutdown` holds true (or its sender is gone).
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(
        listener: std::net::TcpListener,
        state: HttpState,
        limits: HttpLimits,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        let visitors = Visitors::new(limits.connections_max);
        let shared = Arc::new(Shared {
            answers: TowerToHyperService::new(router(state)),
            limits,
            scrapes: Arc::new(Semaphore::new(limits.scrapes_max)),
            visitors: visitors.clone(),
        });
        let shut = shutdown.clone();
        let serve = move |reception| accept(reception, shared, shut);
        Ok(HttpDoor {
            door: Door::apart("http", listener, limits.shutdown_grace, shutdown, serve)?,
            #[cfg(test)]
            visitors,
        })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.door.local_addr()
    }

    /// Waits until the answers under way are sent, or their time to be sent is over.
    ///
    /// # Errors
    /// `Internal` if the door failed.
    pub async fn join(self) -> Result<()> {
        self.door.join().await
    }
}

/// Of a crowd that comes in one moment, so many are begun with before it is looked who has come since.
const BEGUN_AT_ONCE: usize = 4;

/// Lets clients in, who has come last first: a probe that is one of a crowd is answered before most of it.
async fn accept(mut reception: Reception, shared: Arc<Shared>, shutdown: watch::Receiver<bool>) {
    let mut connections = Tasks::of("http");
    let mut crowd = VecDeque::new();
    while let Some(socket) = connections.beside(reception.next(|socket, _| Ok(socket))).await {
        crowd.push_back(socket);
        while !crowd.is_empty() {
            while let Some(Some(socket)) = reception.next(|socket, _| Ok(socket)).now_or_never() {
                crowd.push_back(socket);
            }
            while crowd.len() > shared.limits.connections_max {
                crowd.pop_front().into_iter().for_each(|longest| end(longest, TOO_MANY));
            }
            for socket in (0..BEGUN_AT_ONCE).map_while(|_| crowd.pop_back()) {
                begin(socket, &shared, &shutdown, &mut connections);
            }
            connections.beside(tokio::task::yield_now()).await;
        }
    }
    drop(reception);
    connections.finish(shared.limits.shutdown_grace).await;
}

fn begin(
    socket: std::net::TcpStream,
    shared: &Arc<Shared>,
    shutdown: &watch::Receiver<bool>,
    connections: &mut Tasks,
) {
    let socket = match Socket::new(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::debug!(%error, "an http client cannot be served"),
    };
    match shared.visitors.enter() {
        Some((visitor, gives_way)) => {
            connections.spawn(serve(socket, visitor, gives_way, shared.clone(), shutdown.clone()));
        }
        None => end(socket.last_words, TOO_MANY),
    }
}

/// A client's socket, and a handle for what it is told if its request is not waited for.
struct Socket {
    stream: TcpStream,
    last_words: std::net::TcpStream,
}

/// Status and text of what a client is told that cannot be answered.
type LastWords = (&'static str, &'static str);
const TOO_MANY: LastWords = ("503 Service Unavailable", "too many connections: this one waited longest");
const TOO_SLOW: LastWords = ("408 Request Timeout", "the request took too long to come");

impl Socket {
    fn new(stream: std::net::TcpStream) -> std::io::Result<Self> {
        let last_words = stream.try_clone()?;
        Ok(Socket { stream: TcpStream::from_std(stream)?, last_words })
    }
}

/// Tells a client why it is not answered.
fn end(mut socket: std::net::TcpStream, (status, text): LastWords) {
    metrics::counter!("oribi_http_rejected_connections_total").increment(1);
    let length = text.len() + 1;
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}\n"
    );
    // There is room for it in the socket. Whether the client hears it makes no difference.
    let _ = socket.write(answer.as_bytes());
}

/// Serves one client's one request, from the signal to stop on only if it has begun to come.
async fn serve(
    socket: Socket,
    visitor: Visitor,
    gives_way: oneshot::Receiver<()>,
    shared: Arc<Shared>,
    mut shutdown: watch::Receiver<bool>,
) {
    let limits = shared.limits;
    let Socket { stream, last_words } = socket;
    let visit = Visit { visitor, shared, scrape: Mutex::default() };
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(|request| visit.answer(request)));
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        served = connection.as_mut() => return note(served),
        () = visit.visitor.asked.notified() => {}
        Ok(()) = gives_way => return end(last_words, TOO_MANY),
        () = tokio::time::sleep(limits.request_max) => return end(last_words, TOO_SLOW),
        () = holds(&mut shutdown) => connection.as_mut().graceful_shutdown(),
    }
    match tokio::time::timeout(limits.answer_max, connection).await {
        Ok(served) => note(served),
        Err(_) => tracing::debug!("an http client did not read its answer"),
    }
}

fn note(served: hyper::Result<()>) {
    if let Err(error) = served {
        tracing::debug!(%error, "http connection ended");
    }
}

/// One client's request, as long as its connection lasts.
struct Visit {
    visitor: Visitor,
    shared: Arc<Shared>,
    /// Its part of the answers to `/metrics`.
    scrape: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Visit {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let unavailable = |text: String| Ok((StatusCode::SERVICE_UNAVAILABLE, text).into_response());
        if !self.visitor.asks() {
            return unavailable(format!("{}\n", TOO_MANY.1));
        }
        if request.uri().path() == METRICS {
            let Ok(place) = self.shared.scrapes.clone().try_acquire_owned() else {
                let most = self.shared.limits.scrapes_max;
                return unavailable(format!(
                    "too many scrapes: {most} are being answered, which is the limit\n"
                ));
            };
            *self.scrape.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(place);
        }
        self.shared.answers.call(request).await
    }
}

const METRICS: &str = "/metrics";

/// What requests are answered from.
#[derive(Clone)]
struct Answers {
    state: HttpState,
    metrics: Arc<Page>,
}

fn router(state: HttpState) -> Router {
    let (refresh, recorded) = (state.refresh.clone(), state.metrics.clone());
    let render = move || {
        refresh();
        recorded.render()
    };
    let answers = Answers { state, metrics: Arc::new(Page::new(render)) };
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route(METRICS, get(metrics))
        .with_state(answers)
}

async fn readyz(State(Answers { state, .. }): State<Answers>) -> impl IntoResponse {
    if !state.ready.load(Ordering::Acquire) {
        return (StatusCode::SERVICE_UNAVAILABLE, "starting or stopping\n".to_owned());
    }
    let troubles = (state.troubles)();
    let (status, says) = match troubles.iter().any(|trouble| trouble.refuses) {
        false => (StatusCode::OK, "ready"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    let lines = troubles.iter().map(line);
    (status, std::iter::once(format!("{says}\n")).chain(lines).collect())
}

fn line(Trouble { part, error, .. }: &Trouble) -> String {
    match error.message().starts_with(part.name()) {
        // It says so itself.
        true => format!("{error}\n"),
        false => format!("{}: {error}\n", part.name()),
    }
}

async fn metrics(State(answers): State<Answers>) -> Response {
    match answers.metrics.text().await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oribi_engine::Part;
    use oribi_types::Error;
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn fetch(addr: SocketAddr, path: &str) -> String {
        let mut socket = TcpStream::connect(addr).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// A client that has sent the beginning of a request.
    async fn hesitant(addr: SocketAddr) -> TcpStream {
        let mut socket = TcpStream::connect(addr).await.unwrap();
        socket.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
        socket
    }

    struct Subject {
        door: HttpDoor,
        addr: SocketAddr,
        ready: Arc<AtomicBool>,
        troubles: Arc<Mutex<Vec<Trouble>>>,
        stop: watch::Sender<bool>,
    }

    fn subject(limits: HttpLimits) -> Subject {
        subject_with(limits, 0)
    }

    /// Whose metrics have more than so many bytes.
    fn subject_with(limits: HttpLimits, metrics_bytes: usize) -> Subject {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            metrics::gauge!("oribi_test_rows_count").set(3.0);
            metrics::gauge!("oribi_test_size_bytes", "of" => "x".repeat(metrics_bytes)).set(1.0);
        });
        let ready = Arc::new(AtomicBool::new(false));
        let troubles = Arc::<Mutex<Vec<Trouble>>>::default();
        let state = HttpState {
            metrics: handle,
            refresh: Arc::new(|| ()),
            ready: ready.clone(),
            troubles: Arc::new({
                let troubles = troubles.clone();
                move || troubles.lock().unwrap().clone()
            }),
        };
        let (stop, stopped) = watch::channel(false);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let door = HttpDoor::start(listener, state, limits, stopped).unwrap();
        Subject { addr: door.local_addr(), door, ready, troubles, stop }
    }

    #[tokio::test]
    async fn it_answers_health_readiness_and_metrics_until_it_is_stopped() {
        let Subject { door, addr, ready, stop, .. } = subject(HttpLimits::default());
        assert!(fetch(addr, "/healthz").await.starts_with("HTTP/1.1 200"));
        assert!(fetch(addr, "/readyz").await.starts_with("HTTP/1.1 503"));
        ready.store(true, Ordering::Release);
        assert!(fetch(addr, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(fetch(addr, "/metrics").await.contains("\noribi_test_rows_count 3"));
        assert!(fetch(addr, "/else").await.starts_with("HTTP/1.1 404"));

        stop.send(true).unwrap();
        door.join().await.unwrap();
        assert!(TcpStream::connect(addr).await.is_err());
    }

    #[tokio::test]
    async fn it_says_what_fails_and_is_not_ready_while_that_refuses_something() {
        let Subject { door: _door, addr, ready, troubles, stop: _open } = subject(HttpLimits::default());
        ready.store(true, Ordering::Release);
        let trouble = |part, what: &str, refuses| Trouble { part, error: Error::disk_full(what), refuses };
        troubles.lock().unwrap().push(trouble(Part::Compaction, "no space left on device", false));
        let answer = fetch(addr, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("ready\ncompaction: no space left on device\n"), "{answer}");
        troubles.lock().unwrap().push(trouble(Part::Manifest, "manifest: no space left on device", true));
        let answer = fetch(addr, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.ends_with(
            "not ready\ncompaction: no space left on device\nmanifest: no space left on device\n"
        ));
        troubles.lock().unwrap().clear();
        assert!(fetch(addr, "/readyz").await.ends_with("\r\n\r\nready\n"));
    }

    #[tokio::test]
    async fn a_client_that_never_finishes_its_request_does_not_keep_the_door_open() {
        let limits = HttpLimits { shutdown_grace: Duration::from_millis(1), ..HttpLimits::default() };
        let Subject { door, addr, stop, .. } = subject(limits);
        let _hesitant = hesitant(addr).await;
        // Accepted after the one before it.
        assert!(fetch(addr, "/healthz").await.starts_with("HTTP/1.1 200"));
        stop.send(true).unwrap();
        door.join().await.unwrap();
    }

    #[tokio::test]
    async fn a_request_has_its_time() {
        let limits = HttpLimits { request_max: Duration::from_millis(1), ..HttpLimits::default() };
        let Subject { addr, stop: _open, .. } = subject(limits);
        for begun in ["", "GET /healthz HTTP/1.1\r\nhost:"] {
            let mut socket = TcpStream::connect(addr).await.unwrap();
            socket.write_all(begun.as_bytes()).await.unwrap();
            let answer = rest(&mut socket).await;
            assert!(
                answer.starts_with("HTTP/1.1 408") && answer.ends_with("took too long to come\n"),
                "{answer}"
            );
        }
    }

    #[tokio::test]
    async fn clients_that_ask_nothing_keep_nobody_out() {
        let limits = HttpLimits { connections_max: 3, ..HttpLimits::default() };
        let Subject { door, addr, stop: _open, .. } = subject(limits);
        let mut first = hesitant(addr).await;
        while door.visitors.open() < 1 {
            tokio::task::yield_now().await;
        }
        let (_second, _third) = (TcpStream::connect(addr).await.unwrap(), hesitant(addr).await);
        assert!(fetch(addr, "/healthz").await.starts_with("HTTP/1.1 200"));
        let answer = rest(&mut first).await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("too many connections"), "{answer}");
        for _ in 0..20 {
            let _hesitant = hesitant(addr).await;
            assert!(fetch(addr, "/healthz").await.starts_with("HTTP/1.1 200"));
        }
    }

    #[tokio::test]
    async fn clients_that_do_not_read_their_metrics_leave_probes_room() {
        let limits = HttpLimits { connections_max: 4, scrapes_max: 2, ..HttpLimits::default() };
        let Subject { door, addr, stop: _open, .. } = subject_with(limits, LONGER_THAN_SOCKETS_HOLD);
        let mut readers = Vec::new();
        for _ in 0..8 {
            let mut socket = TcpStream::connect(addr).await.unwrap();
            socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.unwrap();
            readers.push(socket);
        }
        let mut refused = 0;
        for socket in &mut readers {
            let mut status = [0; 12];
            socket.read_exact(&mut status).await.unwrap();
            refused += usize::from(status == *b"HTTP/1.1 503");
        }
        assert_eq!(refused, 6);
        assert!(fetch(addr, "/metrics").await.contains("too many scrapes: 2 are being answered"));
        assert!(fetch(addr, "/healthz").await.starts_with("HTTP/1.1 200"));
        // Once they have gone, there is room again.
        drop(readers);
        while door.visitors.open() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(fetch(addr, "/metrics").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn an_answer_that_is_not_read_has_its_time() {
        let limits = HttpLimits { answer_max: Duration::from_millis(1), ..HttpLimits::default() };
        let Subject { door, addr, stop: _open, .. } = subject_with(limits, LONGER_THAN_SOCKETS_HOLD);
        let mut socket = TcpStream::connect(addr).await.unwrap();
        socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.unwrap();
        // Or nothing, where it takes longer to be made.
        let _ = socket.read_u8().await;
        while door.visitors.open() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(rest(&mut socket).await.len() < LONGER_THAN_SOCKETS_HOLD);
    }

    /// Bytes of an answer.
    const LONGER_THAN_SOCKETS_HOLD: usize = 32 << 20;

    /// What comes until the end, whatever that is.
    async fn rest(socket: &mut TcpStream) -> String {
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }
}
