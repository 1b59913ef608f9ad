//! The memcached door: memcached's text protocol, classic and meta commands, and its binary protocol, over `default.kv`
//! and every other table. `docs/protocols/memcached.md` says what is spoken.

mod binary;
mod client;
pub mod codec;
mod meta;
mod reply;
mod stats;
mod text;
mod window;

use crate::store::Store;
use client::Client;
use oribi_engine::Engine;
use oribi_net::{ClientLimits, Door, Link, Loads, Network, Service, Traffic, bind};
use oribi_session::kv::{KeyValue, KvLimits, Locks};
use oribi_types::Result;
use stats::{Counters, Stats};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// What clients may take.
#[derive(Clone, Debug, Default)]
pub struct MemcachedLimits {
    pub kv: KvLimits,
    pub clients: ClientLimits,
    pub network: Network,
}

/// What the connections of one thread share.
struct Shared {
    kv: Arc<KeyValue>,
    counters: Arc<Counters>,
    stats: Arc<Stats>,
    loads: Loads,
}

/// A running door.
pub struct MemcachedDoor(Door);

impl MemcachedDoor {
    /// Serves `addr` (port 0 takes a free one) on `threads` threads, 0 for one per core, until `shutdown` holds true or
    /// its sender is gone.
    ///
    /// # Errors
    /// `Forbidden` for an address that is not loopback, `Unavailable` for one that is taken, `Invalid` limits.
    pub fn start(
        addr: SocketAddr,
        engine: &Arc<Engine>,
        locks: &Arc<Locks>,
        limits: MemcachedLimits,
        threads: usize,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        limits.kv.validate(engine.options().statement_bytes_max)?;
        let threads = Door::threads(threads);
        let socket = bind(addr)?;
        let kv = KeyValue::sharing(locks.clone(), engine.clone(), limits.kv);
        let counters: Vec<Arc<Counters>> = (0..threads).map(|_| Arc::new(Counters::new())).collect();
        let stats = Arc::new(Stats {
            local_addr: socket.local_addr()?,
            limits: limits.clients,
            traffic: Traffic::new(Memcached::NAME, threads),
            counters: counters.clone(),
            started: Instant::now(),
        });
        let loads = Loads::new(&limits.network, limits.kv.value_bytes_max);
        let shared = |counters| {
            Arc::new(Shared { kv: kv.clone(), counters, stats: stats.clone(), loads: loads.clone() })
        };
        let store = Store(engine.clone());
        let service = Memcached { store, threads: counters.into_iter().map(shared).collect() };
        Ok(MemcachedDoor(Door::serve(service, socket, limits.clients, shutdown)?))
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Waits until the door has shut.
    ///
    /// # Errors
    /// `Internal` if one of its threads panicked.
    pub async fn join(self) -> Result<()> {
        self.0.join().await
    }
}

struct Memcached {
    store: Store,
    threads: Vec<Arc<Shared>>,
}

impl Service for Memcached {
    type Store = Store;
    type Protocol = Client;
    const NAME: &'static str = "memcached";
    const TOO_MANY: &'static [u8] = b"ERROR Too many open connections\r\n";

    fn store(&self) -> &Store {
        &self.store
    }

    fn traffic(&self) -> &Arc<Traffic> {
        &self.threads[0].stats.traffic
    }

    fn loads(&self) -> &Loads {
        &self.threads[0].loads
    }

    fn open(&self, thread: usize, _link: Link) -> Client {
        Client::new(self.threads[thread].clone())
    }
}
