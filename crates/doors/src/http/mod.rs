//! The HTTP door: whether the process lives (`/healthz`), whether it serves (`/readyz`), and what it counts
//! (`/metrics`, in Prometheus' text format; names are `oribi_<part>_<what>_<unit>`).

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::PrometheusHandle;
use oribi_engine::Trouble;
use oribi_types::{Error, Result};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Connections at a time; one more is closed unanswered.
    pub connections_max: usize,
    /// How long a client may take to send a request, and how long a connection may wait for the next.
    pub request_max: Duration,
    /// How long requests that have begun have to finish at shutdown.
    pub shutdown_grace: Duration,
}

impl Default for HttpLimits {
    /// Few connections and short times: those who ask are a scraper and an orchestrator or two.
    fn default() -> Self {
        HttpLimits {
            connections_max: 64,
            request_max: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(2),
        }
    }
}

/// How long to wait when the system has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    local_addr: SocketAddr,
    accepting: JoinHandle<()>,
}

impl HttpDoor {
    /// Serves `listener` on the current tokio runtime until `shutdown` holds true (or its sender is gone).
    ///
    /// # Errors
    /// `Internal` if the socket cannot be used.
    pub fn start(
        listener: std::net::TcpListener,
        state: HttpState,
        limits: HttpLimits,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        let local_addr = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let accepting = tokio::spawn(accept(listener, router(state), limits, shutdown));
        Ok(HttpDoor { local_addr, accepting })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Waits until the answers under way are sent, or their time to be sent is over.
    ///
    /// # Errors
    /// `Internal` if the door failed.
    pub async fn join(self) -> Result<()> {
        self.accepting.await.map_err(|error| Error::internal(format!("http door: {error}")))
    }
}

async fn accept(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let shut = shutdown.clone();
    loop {
        tokio::select! {
            biased;
            () = told_to_stop(&mut shutdown) => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) if connections.len() < limits.connections_max => {
                    connections.spawn(serve(socket, router.clone(), limits.request_max, shut.clone()));
                }
                Ok(_) => tracing::debug!("http door has no place for another connection"),
                Err(error) => {
                    tracing::warn!(%error, "http door cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.shutdown_grace, finish).await.is_err() {
        tracing::warn!("http connections were cut off at shutdown");
    }
}

async fn told_to_stop(shutdown: &mut watch::Receiver<bool>) {
    // A sender that is gone means that the process ends.
    let _ = shutdown.wait_for(|shut| *shut).await;
}

/// Serves one client, from the signal to stop on only what it has begun to ask.
async fn serve(
    socket: TcpStream,
    router: Router,
    request_max: Duration,
    mut shutdown: watch::Receiver<bool>,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(request_max)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = told_to_stop(&mut shutdown) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "http connection ended");
    }
}

fn router(state: HttpState) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(state)
}

async fn readyz(State(state): State<HttpState>) -> impl IntoResponse {
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

async fn metrics(State(state): State<HttpState>) -> impl IntoResponse {
    (state.refresh)();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], state.metrics.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    use oribi_engine::Part;
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
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || metrics::gauge!("oribi_test_rows_count").set(3.0));
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
    async fn a_request_has_its_time_and_connections_are_counted() {
        let limits = HttpLimits {
            connections_max: 1,
            request_max: Duration::from_millis(100),
            ..HttpLimits::default()
        };
        let Subject { addr, stop: _open, .. } = subject(limits);
        let mut first = hesitant(addr).await;
        let mut second = TcpStream::connect(addr).await.unwrap();
        assert_eq!(second.read(&mut [0]).await.unwrap(), 0, "one too many");
        let mut answer = Vec::new();
        first.read_to_end(&mut answer).await.unwrap();
        assert!(!String::from_utf8(answer).unwrap().contains("200"));
        assert!(fetch(addr, "/healthz").await.starts_with("HTTP/1.1 200"));
    }
}
