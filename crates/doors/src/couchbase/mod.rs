//! The Couchbase door: the key-value protocol of Couchbase, over the tables of every schema.
//!
//! A bucket is a schema, a collection a table ([`collection`]). The requests that arrived together are executed in
//! windows ([`execute`]); those about documents become operations of the session ([`operation`]) and their answers are
//! written straight from the engine's memory ([`reply`]). `docs/protocols/couchbase.md` says what is spoken.

mod bootstrap;
mod client;
pub mod cluster;
mod collection;
mod datatype;
mod execute;
mod feature;
mod framing;
mod http;
mod opcode;
mod operation;
mod reply;
pub mod sasl;
mod state;
mod status;
mod subdoc;

use crate::binary_frame::Packet;
use crate::store::Store;
use client::Client;
use cluster::{Cluster, ClusterMap};
use operation::Refusal;
use oribi_engine::Engine;
use oribi_net::{ClientLimits, Door, Link, Loads, Network, Service, Traffic, bind};
use oribi_session::kv::{KeyValue, KvLimits, Locks};
use oribi_types::{Error, Result};
use ring::rand::{SecureRandom, SystemRandom};
use sasl::Users;
use state::State;
use status::Status;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// What clients may take, and who they may be.
pub struct CouchbaseOptions {
    pub kv: KvLimits,
    pub clients: ClientLimits,
    pub users: Users,
    pub network: Network,
    /// Threads; 0 for one per core.
    pub threads: usize,
}

/// Couchbase's: keys of 250 bytes, values of 20 MiB, expiry times of 30 days.
pub const VALUE_BYTES_MAX: usize = 20 * 1024 * 1024;

/// What a value of a request has besides a document: the paths of its parts.
const PATHS_BYTES_MAX: usize = 64 * 1024;

/// The longest value of a request before its client has authenticated and selected a bucket: features, and messages of SASL,
/// are far shorter.
const FIRST_VALUE_BYTES_MAX: usize = 64 * 1024;

/// A running door.
pub struct CouchbaseDoor {
    door: Door,
    cluster: Cluster,
}

impl CouchbaseDoor {
    /// Serves `addr` (port 0 takes a free one) until `shutdown` holds true or its sender is gone. `map` is the cluster
    /// map, given the port; [`ClusterMap::single`] is the usual one.
    ///
    /// # Errors
    /// `Forbidden` for an address that is not loopback, `Unavailable` for one that is taken, `Invalid` limits.
    pub fn start(
        addr: SocketAddr,
        engine: &Arc<Engine>,
        locks: &Arc<Locks>,
        options: CouchbaseOptions,
        map: impl FnOnce(u16) -> ClusterMap,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        let socket = bind(addr)?;
        let clients = options.clients;
        let service = Couchbase::new(engine, locks, options, map(socket.local_addr()?.port()))?;
        let cluster = service.0.cluster.clone();
        let door = Door::serve(service, socket, clients, shutdown)?;
        Ok(CouchbaseDoor { door, cluster })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.door.local_addr()
    }

    /// The map that clients are shown.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Waits until the door has shut.
    ///
    /// # Errors
    /// `Internal` if one of its threads panicked.
    pub async fn join(self) -> Result<()> {
        self.door.join().await
    }
}

/// The door as the loops know it, without sockets.
pub struct Couchbase(Arc<Shared>);

impl Couchbase {
    /// # Errors
    /// `Invalid` limits; `Internal` if the system gives no random numbers.
    pub fn new(
        engine: &Arc<Engine>,
        locks: &Arc<Locks>,
        options: CouchbaseOptions,
        map: ClusterMap,
    ) -> Result<Self> {
        options.kv.validate(engine.options().statement_bytes_max)?;
        let mut uuid = [0; 8];
        SystemRandom::new()
            .fill(&mut uuid)
            .map_err(|_| Error::internal("the system gives no random numbers"))?;
        Ok(Couchbase(Arc::new(Shared {
            store: Store(engine.clone()),
            kv: KeyValue::sharing(locks.clone(), engine.clone(), options.kv),
            users: options.users,
            cluster: Cluster::new(map),
            // Some clients have no unsigned numbers.
            vbucket_uuid: u64::from_be_bytes(uuid) >> 16,
            traffic: Traffic::new(Couchbase::NAME, Door::threads(options.threads)),
            loads: Loads::new(&options.network, options.kv.value_bytes_max + PATHS_BYTES_MAX),
            started: Instant::now(),
        })))
    }
}

/// What all connections of the door share.
struct Shared {
    store: Store,
    kv: Arc<KeyValue>,
    users: Users,
    cluster: Cluster,
    /// Of the history that sequence numbers belong to: it begins with the process.
    vbucket_uuid: u64,
    traffic: Arc<Traffic>,
    loads: Loads,
    started: Instant,
}

impl Service for Couchbase {
    type Store = Store;
    type Protocol = Client;
    const NAME: &'static str = "couchbase";
    /// There is no request that could be answered.
    const TOO_MANY: &'static [u8] = b"";

    fn store(&self) -> &Store {
        &self.0.store
    }

    fn traffic(&self) -> &Arc<Traffic> {
        &self.0.traffic
    }

    fn loads(&self) -> &Loads {
        &self.0.loads
    }

    fn pushes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.0.cluster.changes())
    }

    fn open(&self, _thread: usize, link: Link) -> Client {
        Client::new(self.0.clone(), link)
    }
}

impl Shared {
    /// Whether the client may do what needs to be somebody.
    fn lets_in(&self, state: &State) -> bool {
        state.is_authenticated || self.users.is_open()
    }

    /// The longest value of a request, before it is known what the request is. Who may not touch a document yet has no use
    /// for more than a little, and takes no more memory.
    fn packet_bytes_max(&self, state: &State) -> usize {
        match state.bucket.is_some() && self.lets_in(state) {
            true => self.kv.limits().value_bytes_max + PATHS_BYTES_MAX,
            false => FIRST_VALUE_BYTES_MAX,
        }
    }

    /// What a client is told whose request has a longer value.
    fn too_large(&self, state: &State) -> Refusal {
        let most = self.packet_bytes_max(state);
        let message = match most == FIRST_VALUE_BYTES_MAX {
            true => format!("before a bucket is selected, the value of a request has {most} bytes at most"),
            false => format!("the value of a request has {most} bytes at most"),
        };
        Refusal::new(Status::TooLarge, message)
    }

    /// # Errors
    /// Why the client may not ask this here: it is nobody yet, or another node has the vbucket.
    fn admits(&self, state: &State, map: &ClusterMap, packet: &Packet<'_>) -> Result<(), Refusal> {
        let code = packet.header.opcode;
        if !self.lets_in(state) && !opcode::is_for_anybody(code) {
            return Err(Refusal::new(Status::NoAccess, "authenticate first"));
        }
        let is_elsewhere = operation::is_about_a_document(code) && !map.is_mine(packet.header.vbucket);
        if is_elsewhere {
            return Err(Refusal::new(Status::NotMyVbucket, ""));
        }
        Ok(())
    }

    /// A few statistics.
    fn stats(&self) -> Vec<(&'static str, String)> {
        vec![
            ("pid", std::process::id().to_string()),
            ("uptime", self.started.elapsed().as_secs().to_string()),
            ("time", (self.kv.now_micros() / 1_000_000).to_string()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("curr_connections", self.traffic.open().to_string()),
            ("bytes", self.kv.engine().memory().used().to_string()),
            ("ep_max_size", self.kv.engine().memory().limit().to_string()),
        ]
    }
}
