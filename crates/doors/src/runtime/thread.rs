//! One thread of a door whose clients are served as tasks: serves the connections that it is given, and sees them off at
//! shutdown.

use super::listener::Arrival;
use super::{ClientLimits, Host, Link, Visit};
use oribi_types::Result;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(super) struct Thread<S: Host> {
    pub service: Arc<S>,
    pub number: usize,
    pub limits: ClientLimits,
    pub shutdown: watch::Receiver<bool>,
}

impl<S: Host> Thread<S> {
    /// Serves until `shutdown` holds true, and then until the connections have finished, or their time to do so is
    /// over.
    pub async fn serve(self, mut arrivals: UnboundedReceiver<Arrival>) {
        let mut connections = JoinSet::new();
        let mut shutdown = self.shutdown.clone();
        loop {
            tokio::select! {
                Some(arrival) = arrivals.recv() => self.welcome(arrival, &mut connections),
                Some(_) = connections.join_next() => {}
                _ = shutdown.wait_for(|shut| *shut) => break,
            }
        }
        // Those that are still on their way are not served.
        drop(arrivals);
        let finish = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(self.limits.shutdown_grace, finish).await.is_err() {
            tracing::warn!(door = S::NAME, "connections were cut off at shutdown");
        }
    }

    fn welcome(&self, arrival: Arrival, connections: &mut JoinSet<()>) {
        let (service, thread) = (self.service.clone(), self.number);
        let (idle_max, shutdown) = (self.limits.idle_max, self.shutdown.clone());
        connections.spawn(async move {
            let Arrival { socket, peer, place: _place } = arrival;
            let serve = async || -> Result<()> {
                let socket = TcpStream::from_std(socket)?;
                // Answers are written whole, so waiting for more to send would only delay them.
                socket.set_nodelay(true)?;
                let link = Link { local: socket.local_addr()?, peer };
                service.serve(Visit { thread, socket, link, idle_max, shutdown }).await
            };
            if let Err(error) = serve().await {
                tracing::debug!(%error, door = S::NAME, "connection ended");
            }
        });
    }
}
