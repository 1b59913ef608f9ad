//! How clients come to a door's threads: each to one that waits and has the fewest, within the limits.

use crate::{Reception, Traffic};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// What the clients of a door may take.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Connections at a time; one more is told so and dropped.
    pub connections_max: usize,
    /// How long a connection may be silent; `None`: for ever.
    pub idle_max: Option<Duration>,
    /// How long requests that are being executed have to finish at shutdown.
    pub shutdown_grace: Duration,
}

impl Default for ClientLimits {
    /// memcached's, where it has such a limit.
    fn default() -> Self {
        ClientLimits { connections_max: 1024, idle_max: None, shutdown_grace: Duration::from_secs(10) }
    }
}

/// The two ends of a client's connection.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

pub(crate) struct Listener {
    /// Of which door.
    pub name: &'static str,
    /// What a client hears that is one too many.
    pub too_many: &'static [u8],
    pub traffic: Arc<Traffic>,
    pub limits: ClientLimits,
    /// Whether a thread waits for clients, and so can serve who comes.
    pub waits: Box<dyn Fn(usize) -> bool + Send>,
    /// The way to each thread; false: the thread has gone. There are never more on their way than there may be connections.
    pub threads: Vec<Box<dyn Fn(Arrival) -> bool + Send>>,
}

/// A connection on its way to its thread.
pub(crate) struct Arrival {
    pub socket: TcpStream,
    pub peer: SocketAddr,
    pub place: Place,
}

impl Listener {
    /// Takes clients in until the door shuts.
    pub async fn serve(self, mut reception: Reception) {
        // Its thread waits for it from now on.
        while let Some((socket, peer)) = reception.next(|socket, peer| Ok((socket, peer))).await {
            self.admit(socket, peer);
        }
    }

    fn admit(&self, mut socket: TcpStream, peer: SocketAddr) {
        let Some(place) = Place::take(&self.traffic, self.limits.connections_max, &self.waits) else {
            self.traffic.thread(0).rejected.add(1);
            // There is room for it in a new socket. Whether the client hears it makes no difference.
            let _ = socket.write(self.too_many);
            return;
        };
        self.traffic.thread(place.thread).accepted.add(1);
        if !self.threads[place.thread](Arrival { socket, peer, place }) {
            tracing::warn!(door = self.name, "a connection came when its thread had gone");
        }
    }
}

/// A connection's place among those of a thread, given back when dropped.
pub(crate) struct Place {
    traffic: Arc<Traffic>,
    thread: usize,
}

impl Place {
    pub(crate) fn take(
        traffic: &Arc<Traffic>,
        connections_max: usize,
        waits: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        let thread = traffic.enter(connections_max, waits)?;
        Some(Place { traffic: traffic.clone(), thread })
    }

    pub fn thread(&self) -> usize {
        self.thread
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.traffic.leave(self.thread);
    }
}
