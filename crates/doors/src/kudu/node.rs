//! What all connections of the door share.

use super::directory::Directory;
use super::taken::Calls;
use super::tserver::leases::Leases;
use super::tserver::scanners::Scanners;
use arc_swap::ArcSwap;
use bytes::Bytes;
use oribi_engine::Engine;
use oribi_kudu::frame::FRAME_BYTES_MAX;
use oribi_kudu::messages::common::HostPort;
use oribi_net::{Load, Network, holds};
use oribi_types::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Which of its two servers the door is on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Master,
    TabletServer,
}

impl Role {
    /// In the names of metrics.
    pub fn door_name(self) -> &'static str {
        match self {
            Role::Master => "kudu_master",
            Role::TabletServer => "kudu_tserver",
        }
    }
}

/// Where the two servers are. One that has no port of its own is at the other's, since both answer all services.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    master: SocketAddr,
    tserver: SocketAddr,
}

impl Addresses {
    pub fn new(master: Option<SocketAddr>, tserver: Option<SocketAddr>) -> Result<Self> {
        match (master.or(tserver), tserver.or(master)) {
            (Some(master), Some(tserver)) => Ok(Addresses { master, tserver }),
            _ => Err(Error::invalid("the Kudu door has no port")),
        }
    }

    pub fn of(&self, role: Role) -> HostPort {
        let addr = match role {
            Role::Master => self.master,
            Role::TabletServer => self.tserver,
        };
        HostPort { host: addr.ip().to_string(), port: addr.port().into() }
    }
}

pub(super) struct Node {
    pub engine: Arc<Engine>,
    pub addresses: Addresses,
    id: [u8; 16],
    /// When it was started, in microseconds since 1970.
    pub started_micros: u64,
    directory: ArcSwap<Directory>,
    pub scanners: Scanners,
    pub leases: Leases,
    pub calls: Calls,
    pub load: Arc<Load>,
}

impl Node {
    pub fn new(engine: Arc<Engine>, addresses: Addresses, id: [u8; 16], network: &Network) -> Arc<Self> {
        let directory = Directory::of(&engine, id);
        let scanners = Scanners::new(engine.memory());
        let leases = Leases::default();
        if let Some(history) = engine.take_history() {
            leases.keep_history(history);
        }
        Arc::new(Node {
            started_micros: engine.read_view().now_micros,
            engine,
            addresses,
            id,
            directory: ArcSwap::from_pointee(directory),
            scanners,
            leases,
            calls: Calls::default(),
            load: Arc::new(Load::new(&network.requests, FRAME_BYTES_MAX)),
        })
    }

    /// The id of one of the two servers: 32 hexadecimal digits. They differ in the last bit.
    pub fn uuid(&self, role: Role) -> Bytes {
        let number = u128::from_be_bytes(self.id) & !1 | u128::from(role == Role::TabletServer);
        Bytes::from(format!("{number:032x}"))
    }

    /// The tables as they are now.
    pub fn directory(&self) -> Arc<Directory> {
        let directory = self.directory.load();
        if directory.version() == self.engine.catalog_version() {
            return arc_swap::Guard::into_inner(directory);
        }
        let directory = Arc::new(Directory::of(&self.engine, self.id));
        self.directory.store(directory.clone());
        directory
    }
}

/// How often scanners and snapshots are looked at that nobody has asked for in a while.
const SWEEP_PERIOD: Duration = Duration::from_secs(5);

/// Closes what clients have left open, until the door shuts.
pub(super) async fn sweep(node: Arc<Node>, mut shutdown: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = holds(&mut shutdown) => return,
            () = tokio::time::sleep(SWEEP_PERIOD) => {
                let now = Instant::now();
                node.scanners.sweep(now);
                node.leases.sweep(now);
            }
        }
    }
}
