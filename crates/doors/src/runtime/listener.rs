//! Where clients come in: one socket, whose connections go to the threads that have the fewest, within the limits.

use super::{ClientLimits, Traffic};
use oribi_types::Result;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long to wait when the system has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Listener {
    /// Of which door.
    pub name: &'static str,
    /// What a client hears that is one too many.
    pub too_many: &'static [u8],
    pub traffic: Arc<Traffic>,
    pub limits: ClientLimits,
    /// The way to each thread; false: the thread has gone. There are never more on their way than there may be connections.
    pub threads: Vec<Box<dyn Fn(Arrival) -> bool + Send>>,
}

/// A connection on its way to its thread.
pub(super) struct Arrival {
    pub socket: TcpStream,
    pub peer: SocketAddr,
    pub place: Place,
}

impl Listener {
    /// Takes clients in until `shutdown` holds true.
    pub async fn serve(self, listener: TcpListener, mut shutdown: watch::Receiver<bool>) -> Result<()> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut shut = std::pin::pin!(shutdown.wait_for(|shut| *shut));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = &mut shut => return Ok(()),
            };
            // Its thread waits for it from now on.
            match accepted.and_then(|(socket, peer)| Ok((socket.into_std()?, peer))) {
                Ok((socket, peer)) => self.admit(socket, peer),
                Err(error) => {
                    tracing::warn!(%error, door = self.name, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(&self, mut socket: TcpStream, peer: SocketAddr) {
        let Some(place) = Place::take(&self.traffic, self.limits.connections_max) else {
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
pub(super) struct Place {
    traffic: Arc<Traffic>,
    thread: usize,
}

impl Place {
    pub(super) fn take(traffic: &Arc<Traffic>, connections_max: usize) -> Option<Self> {
        let thread = traffic.enter(connections_max)?;
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
