//! The HTTP door: whether the process lives (`/healthz`), whether it serves (`/readyz`), and what it counts
//! (`/metrics`, in Prometheus' text format; names are `oribi_<part>_<what>_<unit>`).

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use oribi_types::{Error, Result};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the door answers from.
#[derive(Clone)]
pub struct HttpState {
    pub metrics: PrometheusHandle,
    /// Brings gauges up to date that are read, not counted; called before each answer to `/metrics`.
    pub refresh: Arc<dyn Fn() + Send + Sync>,
    /// Whether all doors serve.
    pub ready: Arc<AtomicBool>,
}

/// A running HTTP door.
pub struct HttpDoor {
    local_addr: SocketAddr,
    task: JoinHandle<std::io::Result<()>>,
}

impl HttpDoor {
    /// Serves `listener` on the current tokio runtime until `shutdown` becomes true.
    ///
    /// # Errors
    /// `Internal` if the socket cannot be used.
    pub fn start(
        listener: TcpListener,
        state: HttpState,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        let local_addr = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let router = router(state);
        let task = tokio::spawn(async move {
            let stopped = async move {
                // A sender that is gone means that the process ends.
                let _ = shutdown.wait_for(|stop| *stop).await;
            };
            axum::serve(listener, router).with_graceful_shutdown(stopped).await
        });
        Ok(HttpDoor { local_addr, task })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Waits until the answers under way are sent.
    ///
    /// # Errors
    /// `Internal` if the door failed.
    pub async fn join(self) -> Result<()> {
        match self.task.await {
            Ok(served) => Ok(served?),
            Err(error) => Err(Error::internal(format!("http door: {error}"))),
        }
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
    if state.ready.load(Ordering::Acquire) {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting or stopping\n")
    }
}

async fn metrics(State(state): State<HttpState>) -> impl IntoResponse {
    (state.refresh)();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], state.metrics.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn fetch(addr: SocketAddr, path: &str) -> String {
        let mut socket = tokio::net::TcpStream::connect(addr).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn it_answers_health_readiness_and_metrics_until_it_is_stopped() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || metrics::gauge!("oribi_test_rows_count").set(3.0));
        let ready = Arc::new(AtomicBool::new(false));
        let state = HttpState { metrics: handle, refresh: Arc::new(|| ()), ready: ready.clone() };
        let (stop, stopped) = watch::channel(false);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let door = HttpDoor::start(listener, state, stopped).unwrap();
        let addr = door.local_addr();

        assert!(fetch(addr, "/healthz").await.starts_with("HTTP/1.1 200"));
        assert!(fetch(addr, "/readyz").await.starts_with("HTTP/1.1 503"));
        ready.store(true, Ordering::Release);
        assert!(fetch(addr, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(fetch(addr, "/metrics").await.contains("\noribi_test_rows_count 3"));
        assert!(fetch(addr, "/else").await.starts_with("HTTP/1.1 404"));

        stop.send(true).unwrap();
        door.join().await.unwrap();
        assert!(tokio::net::TcpStream::connect(addr).await.is_err());
    }
}
