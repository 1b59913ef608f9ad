//! A running door: its threads.

use super::listener::Listener;
use super::{ClientLimits, Host};
use oribi_types::{Error, Result};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::watch;

/// Threads of each serving thread's runtime that wait for files.
const BLOCKING_THREADS_MAX: usize = 8;

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

    /// Serves with one thread for each of `listeners` (see [`crate::bind::bind_each`]) until `shutdown` holds true or
    /// its sender is gone. The service's [`Traffic`](super::Traffic) must have been made for as many threads.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start<S: Host>(
        service: S,
        listeners: Vec<TcpListener>,
        limits: ClientLimits,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        let local_addr = match listeners.first() {
            Some(listener) => listener.local_addr()?,
            None => return Err(Error::invalid("a door needs a socket")),
        };
        let service = Arc::new(service);
        let spawned = listeners.into_iter().enumerate().map(|(thread, listener)| {
            let shutdown = shutdown.clone();
            spawn(listener, Listener { service: service.clone(), thread, limits, shutdown })
        });
        Ok(Door { name: S::NAME, local_addr, threads: spawned.collect::<Result<_>>()? })
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

fn spawn<S: Host>(socket: TcpListener, listener: Listener<S>) -> Result<JoinHandle<()>> {
    let name = format!("{}-{}", S::NAME, listener.thread);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name(format!("{name}-wait"))
        .build()?;
    let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
        let shutdown_grace = listener.limits.shutdown_grace;
        if let Err(error) = runtime.block_on(listener.serve(socket)) {
            tracing::error!(%error, thread = name, "door stopped");
        }
        runtime.shutdown_timeout(shutdown_grace);
    })?;
    Ok(thread)
}
