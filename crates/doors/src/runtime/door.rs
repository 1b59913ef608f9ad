//! A running door: its threads.

use super::listener::Listener;
use super::thread::Thread;
use super::{ClientLimits, Host};
use oribi_types::{Error, Result};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Threads of each serving thread's runtime that wait for files.
pub(super) const BLOCKING_THREADS_MAX: usize = 8;

pub struct Door {
    name: &'static str,
    local_addr: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Door {
    /// How many threads a door has that was asked for `threads`, where 0 is one per core.
    pub fn threads(threads: usize) -> usize {
        match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }

    /// Serves whoever connects to `socket`, which must be nonblocking (see [`crate::bind::bind_door`]), with as many
    /// threads as the service's [`Traffic`](super::Traffic) was made for, until `shutdown` holds true or its sender is
    /// gone.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start<S: Host>(
        service: S,
        socket: TcpListener,
        limits: ClientLimits,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        let local_addr = socket.local_addr()?;
        let service = Arc::new(service);
        let numbers = 0..service.traffic().threads();
        let (threads, arrivals): (Vec<_>, Vec<_>) = numbers.map(|_| mpsc::unbounded_channel()).unzip();
        let serving = arrivals.into_iter().enumerate().map(|(number, arrivals)| {
            let thread = Thread { service: service.clone(), number, limits, shutdown: shutdown.clone() };
            spawn::<S>(&number.to_string(), limits.shutdown_grace, async move {
                thread.serve(arrivals).await;
                Ok(())
            })
        });
        let mut started = serving.collect::<Result<Vec<_>>>()?;
        // On a thread of its own: one that serves may have to wait for the disk, and nobody could come in meanwhile.
        let listener = Listener { service: service.clone(), limits, threads };
        started.push(spawn::<S>("accept", limits.shutdown_grace, listener.serve(socket, shutdown))?);
        Ok(Door { name: S::NAME, local_addr, threads: started })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Waits until the door has shut.
    ///
    /// # Errors
    /// `Internal` if one of its threads panicked.
    pub async fn join(self) -> Result<()> {
        let joined = tokio::task::spawn_blocking(|| {
            self.threads.into_iter().map(JoinHandle::join).collect::<std::thread::Result<Vec<()>>>()
        });
        match joined.await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Error::internal(format!("a thread of the {} door panicked", self.name))),
        }
    }
}

/// Runs `serve` on a thread of its own.
fn spawn<S: Host>(
    name: &str,
    shutdown_grace: Duration,
    serve: impl Future<Output = Result<()>> + Send + 'static,
) -> Result<JoinHandle<()>> {
    let name = format!("{}-{name}", S::NAME);
    let refused = |e: std::io::Error| Error::unavailable(format!("thread {name}: {e}"));
    let named = name.clone();
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    // The runtime is made on its thread: where that is refused, there is none to be dropped by an asynchronous task, which it
    // does not allow.
    let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name(format!("{named}-wait"))
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            // Whoever asked has gone only if it has panicked.
            Err(error) => return drop(tell.send(Err(error))),
        };
        let _ = tell.send(Ok(()));
        if let Err(error) = runtime.block_on(serve) {
            tracing::error!(%error, thread = named, "door stopped");
        }
        runtime.shutdown_timeout(shutdown_grace);
    });
    let thread = thread.map_err(refused)?;
    told.recv().unwrap_or(Ok(())).map_err(refused)?;
    Ok(thread)
}
