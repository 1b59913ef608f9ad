//! One thread's listening socket: takes clients in within the limits, and sees them off at shutdown.

use super::{ClientLimits, Host, Link};
use oribi_types::Result;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long to wait when the system has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// One thread of a door.
pub(super) struct Listener<S: Host> {
    pub service: Arc<S>,
    pub thread: usize,
    pub limits: ClientLimits,
    pub shutdown: watch::Receiver<bool>,
}

impl<S: Host> Listener<S> {
    /// Serves until `shutdown` holds true, and then until the connections have finished, or their time to do so is
    /// over.
    pub async fn serve(self, listener: TcpListener) -> Result<()> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut connections = JoinSet::new();
        let mut shutdown = self.shutdown.clone();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((socket, peer)) => self.admit(socket, peer, &mut connections),
                    Err(error) => {
                        tracing::warn!(%error, door = S::NAME, "cannot accept");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                _ = shutdown.wait_for(|shut| *shut) => break,
            }
        }
        drop(listener);
        let finish = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(self.limits.shutdown_grace, finish).await.is_err() {
            tracing::warn!(door = S::NAME, "connections were cut off at shutdown");
        }
        Ok(())
    }

    fn admit(&self, socket: TcpStream, peer: SocketAddr, connections: &mut JoinSet<()>) {
        let traffic = self.service.traffic().thread(self.thread);
        let Some(place) = Place::take(&self.service, self.limits.connections_max) else {
            traffic.rejected.add(1);
            connections.spawn(async move {
                let mut socket = socket;
                // Whether the client hears it makes no difference.
                let _ = socket.write_all(S::TOO_MANY).await;
            });
            return;
        };
        traffic.accepted.add(1);
        let (service, thread) = (self.service.clone(), self.thread);
        let (idle_max, shutdown) = (self.limits.idle_max, self.shutdown.clone());
        connections.spawn(async move {
            let _place = place;
            let serve = async || -> Result<()> {
                // Answers are written whole, so waiting for more to send would only delay them.
                socket.set_nodelay(true)?;
                let link = Link { local: socket.local_addr()?, peer };
                service.serve(thread, socket, link, idle_max, shutdown).await
            };
            if let Err(error) = serve().await {
                tracing::debug!(%error, door = S::NAME, "connection ended");
            }
        });
    }
}

/// A connection's place among those there may be, given back when dropped.
struct Place<S: Host>(Arc<S>);

impl<S: Host> Place<S> {
    fn take(service: &Arc<S>, connections_max: usize) -> Option<Self> {
        service.traffic().enter(connections_max).then(|| Place(service.clone()))
    }
}

impl<S: Host> Drop for Place<S> {
    fn drop(&mut self) {
        self.0.traffic().leave();
    }
}
