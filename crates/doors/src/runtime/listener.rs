//! Where clients come in: one socket, whose connections go to the threads that have the fewest, within the limits.

use super::{ClientLimits, Host};
use oribi_types::Result;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

/// How long to wait when the system has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Listener<S: Host> {
    pub service: Arc<S>,
    pub limits: ClientLimits,
    /// To each thread. There are never more on their way than there may be connections.
    pub threads: Vec<UnboundedSender<Arrival<S>>>,
}

/// A connection on its way to its thread.
pub(super) struct Arrival<S: Host> {
    pub socket: TcpStream,
    pub peer: SocketAddr,
    pub place: Place<S>,
}

impl<S: Host> Listener<S> {
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
                    tracing::warn!(%error, door = S::NAME, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(&self, mut socket: TcpStream, peer: SocketAddr) {
        let Some(place) = Place::take(&self.service, self.limits.connections_max) else {
            self.service.traffic().thread(0).rejected.add(1);
            // There is room for it in a new socket. Whether the client hears it makes no difference.
            let _ = socket.write(S::TOO_MANY);
            return;
        };
        self.service.traffic().thread(place.thread).accepted.add(1);
        if self.threads[place.thread].send(Arrival { socket, peer, place }).is_err() {
            tracing::warn!(door = S::NAME, "a connection came when its thread had gone");
        }
    }
}

/// A connection's place among those of a thread, given back when dropped.
pub(super) struct Place<S: Host> {
    service: Arc<S>,
    thread: usize,
}

impl<S: Host> Place<S> {
    fn take(service: &Arc<S>, connections_max: usize) -> Option<Self> {
        let thread = service.traffic().enter(connections_max)?;
        Some(Place { service: service.clone(), thread })
    }
}

impl<S: Host> Drop for Place<S> {
    fn drop(&mut self) {
        self.service.traffic().leave(self.thread);
    }
}
