//! The memcached door: the text protocol of memcached, classic and meta commands, over `default.kv` and every other
//! table.
//!
//! One thread for each core, each with its own listening socket on the same address, so that the kernel spreads the
//! connections and nothing is handed over between threads. A thread serves its connections by turns; one that waits
//! for a file, for room in memory or for the log does not hold up the others.
//! `docs/protocols/memcached.md` says what is spoken.

mod batch;
pub mod codec;
mod connection;
mod execute;
mod listener;
mod meta;
mod reply;
mod stats;

use batch::Shared;
use oribi_engine::Engine;
use oribi_session::kv::{KeyValue, KvLimits};
use oribi_types::{Error, Result};
use stats::{Counters, Stats};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct MemcachedLimits {
    pub kv: KvLimits,
    /// Connections at a time; one more is told so and dropped.
    pub connections_max: usize,
    /// How long a connection may be silent; `None`: for ever.
    pub idle_max: Option<Duration>,
    /// How long batches that are being executed have to finish at shutdown.
    pub shutdown_grace: Duration,
}

impl Default for MemcachedLimits {
    /// memcached's, where it has such a limit.
    fn default() -> Self {
        MemcachedLimits {
            kv: KvLimits::default(),
            connections_max: 1024,
            idle_max: None,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

/// Threads of each serving thread's runtime that wait for files.
const BLOCKING_THREADS_MAX: usize = 8;

/// A running door.
pub struct MemcachedDoor {
    local_addr: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl MemcachedDoor {
    /// Serves `addr` (port 0 takes a free one) on `threads` threads, 0 for one per core, until `shutdown` holds true or
    /// its sender is gone.
    ///
    /// # Errors
    /// `Forbidden` for an address that is not loopback, `Unavailable` for one that is taken, `Invalid` limits.
    pub fn start(
        addr: SocketAddr,
        engine: &Arc<Engine>,
        limits: MemcachedLimits,
        threads: usize,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        limits.kv.validate(engine.options().statement_bytes_max)?;
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let listeners = crate::bind::bind_each(addr, threads)?;
        let local_addr = listeners[0].local_addr()?;
        let kv = KeyValue::new(engine.clone(), limits.kv);
        let counters: Vec<Arc<Counters>> = (0..threads).map(|_| Arc::new(Counters::new())).collect();
        let stats = Arc::new(Stats {
            local_addr,
            threads,
            connections_max: limits.connections_max,
            idle_seconds: limits.idle_max.map_or(0, |time| time.as_secs()),
            connections: AtomicI64::new(0),
            counters: counters.clone(),
            started: Instant::now(),
        });
        let spawned = listeners.into_iter().zip(counters).enumerate().map(|(i, (listener, counters))| {
            let shared = Arc::new(Shared { kv: kv.clone(), counters, stats: stats.clone() });
            spawn(i, listener, shared, limits, shutdown.clone())
        });
        Ok(MemcachedDoor { local_addr, threads: spawned.collect::<Result<_>>()? })
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
            _ => Err(Error::internal("a thread of the memcached door panicked")),
        }
    }
}

fn spawn(
    i: usize,
    listener: TcpListener,
    shared: Arc<Shared>,
    limits: MemcachedLimits,
    shutdown: watch::Receiver<bool>,
) -> Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name(format!("memcached-{i}-wait"))
        .build()?;
    let name = format!("memcached-{i}");
    let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
        let served = runtime.block_on(listener::serve(listener, shared, limits, shutdown));
        if let Err(error) = served {
            tracing::error!(%error, thread = name, "memcached door stopped");
        }
        runtime.shutdown_timeout(limits.shutdown_grace);
    })?;
    Ok(thread)
}
