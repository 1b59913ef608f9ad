//! The Kudu door: two ports, as masters and tablet servers have them, over one engine.
//!
//! A client asks the master's port for tables and where their tablets are, and writes and scans at the tablet server's. Both
//! ports answer all services; what they say of themselves differs, because `kudu cluster ksck` wants a master and a tablet
//! server that are not the same.
//!
//! A connection has any number of calls in flight, answered as they are done ([`connection`]), in plain text or through TLS
//! ([`oribi_net::Stream`]). What memory has the answer to
//! is answered on the thread that serves the socket; scans, large writes and changes of tables go to threads that may wait
//! for files. A write that has to wait for others stands in [line](lines), of which most need no thread. A write's rows are encoded from where they lie in the request ([`tserver::write`]), and a scan's rows go from
//! the engine's files and memory to the sidecars of the answer ([`tserver::scan`]).

mod attributes;
mod call;
mod connection;
mod directory;
mod lines;
mod master;
mod name;
mod negotiate;
mod node;
mod outbox;
mod partitions;
mod receive;
mod schema;
mod server;
mod services;
mod status;
mod taken;
mod transaction_table;
mod transactions;
mod tserver;

use connection::Connection;
use lines::Lines;
use node::{Addresses, Node, Role};
use oribi_engine::Engine;
use oribi_net::{ClientLimits, Door, Host, Network, TlsIdentity, Traffic, Visit, bind};
use oribi_types::{Error, Result};
use ring::rand::{SecureRandom, SystemRandom};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Where the door listens; `None` leaves a port out. A client needs the master's to find tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct KuduAddresses {
    pub master: Option<SocketAddr>,
    pub tserver: Option<SocketAddr>,
}

impl KuduAddresses {
    /// Whether there is a port at all.
    pub fn any(&self) -> bool {
        self.master.or(self.tserver).is_some()
    }
}

/// A new id for a server: random.
///
/// # Errors
/// `Internal` if the system gives no random numbers.
pub fn random_id() -> Result<[u8; 16]> {
    let mut id = [0; 16];
    let filled = SystemRandom::new().fill(&mut id);
    filled.map_err(|_| Error::internal("the system gives no random numbers"))?;
    Ok(id)
}

/// Who the door is, and what clients may take.
#[derive(Clone, Debug)]
pub struct KuduOptions {
    /// Of each port.
    pub clients: ClientLimits,
    /// Threads of the tablet server's port; 0 for one per core.
    pub threads: usize,
    /// What clients know this server by, and its tables: the same after a restart.
    pub node_id: [u8; 16],
    /// With it clients are offered TLS.
    pub identity: Option<TlsIdentity>,
    pub network: Network,
}

impl KuduOptions {
    /// With Kudu's own limits: an idle connection is closed after 65 seconds (`--rpc_default_keepalive_time_ms`).
    pub fn new(node_id: [u8; 16]) -> Self {
        let clients = ClientLimits { idle_max: Some(Duration::from_secs(65)), ..ClientLimits::default() };
        KuduOptions { clients, threads: 0, node_id, identity: None, network: Network::default() }
    }
}

/// A running door.
pub struct KuduDoor {
    master: Option<Door>,
    tserver: Option<Door>,
    node: Arc<Node>,
    sweeper: JoinHandle<()>,
}

/// What clients of a door may name.
pub struct KuduSnapshots {
    _node: Arc<Node>,
}

impl KuduDoor {
    /// Serves `addresses` (port 0 takes a free one) until `shutdown` holds true or its sender is gone. Needs a tokio runtime.
    ///
    /// # Errors
    /// `Forbidden` for an address that is not loopback, `Unavailable` for one that is taken.
    pub fn start(
        addresses: KuduAddresses,
        engine: &Arc<Engine>,
        options: KuduOptions,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        let (master, tserver) =
            (addresses.master.map(bind).transpose()?, addresses.tserver.map(bind).transpose()?);
        let bound = |socket: &Option<TcpListener>| socket.as_ref().map(TcpListener::local_addr).transpose();
        let addresses = Addresses::new(bound(&master)?, bound(&tserver)?)?;
        let node = Node::new(engine.clone(), addresses, options.node_id, &options.network);
        let open = |role: Role, socket: Option<TcpListener>| {
            // Answers of the master's port come from memory: one thread serves many clients.
            let threads = if role == Role::Master { 1 } else { Door::threads(options.threads) };
            let start = |socket: TcpListener| {
                let traffic = Traffic::new(role.door_name(), threads);
                let lines = (0..threads).map(|_| Lines::default()).collect();
                let identity = options.identity.clone();
                let port = Port { role, node: node.clone(), traffic, identity, lines };
                Door::start(port, socket, options.clients, shutdown.clone())
            };
            socket.map(start).transpose()
        };
        let (master, tserver) = (open(Role::Master, master)?, open(Role::TabletServer, tserver)?);
        let sweeper = tokio::spawn(node::sweep(node.clone(), shutdown.clone()));
        Ok(KuduDoor { master, tserver, node, sweeper })
    }

    pub fn master_addr(&self) -> Option<SocketAddr> {
        self.master.as_ref().map(Door::local_addr)
    }

    pub fn tserver_addr(&self) -> Option<SocketAddr> {
        self.tserver.as_ref().map(Door::local_addr)
    }

    /// The snapshots that clients may name. If it is kept until the engine is closed, they can name them after the next open.
    pub fn snapshots(&self) -> KuduSnapshots {
        KuduSnapshots { _node: self.node.clone() }
    }

    /// Waits until both ports have shut.
    ///
    /// # Errors
    /// `Internal` if a thread of the door panicked.
    pub async fn join(self) -> Result<()> {
        let mut joined = Ok(());
        for door in [self.master, self.tserver].into_iter().flatten() {
            joined = joined.and(door.join().await);
        }
        let swept = self.sweeper.await.map_err(|e| Error::internal(format!("kudu door: {e}")));
        joined.and(swept)
    }
}

/// One of the two ports.
struct Port {
    role: Role,
    node: Arc<Node>,
    traffic: Arc<Traffic>,
    identity: Option<TlsIdentity>,
    /// At each of its threads.
    lines: Box<[Lines]>,
}

impl Host for Port {
    const NAME: &'static str = "kudu";
    /// There is no way to say it before the negotiation; clients try again.
    const TOO_MANY: &'static [u8] = b"";

    fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    async fn serve(self: Arc<Self>, visit: Visit) -> Result<()> {
        let Visit { thread, socket, link, idle_max, shutdown } = visit;
        Connection::new(self, thread, socket, link).serve(idle_max, shutdown).await
    }
}
