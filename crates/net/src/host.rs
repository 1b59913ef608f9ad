//! A door whose clients are served as tasks, since their answers come in another order than the requests: each of its threads serves
//! those that it is given, and sees them off at shutdown.

use crate::listener::Arrival;
use crate::{ClientLimits, Link, Tasks, Traffic, holds};
use oribi_types::Result;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

/// What serves the clients that a door's threads accept.
pub trait Host: Send + Sync + 'static {
    /// The door's name, in the names of threads and metrics.
    const NAME: &'static str;
    /// What a client hears that is one too many.
    const TOO_MANY: &'static [u8];

    fn traffic(&self) -> &Arc<Traffic>;

    /// Serves a client until its visit is over.
    fn serve(self: Arc<Self>, visit: Visit) -> impl Future<Output = Result<()>> + Send;
}

/// A client that has just connected, until it leaves, is silent for longer than `idle_max`, or `shutdown` holds true and what
/// it has asked for is answered.
pub struct Visit {
    /// The number of the door's thread that it is on.
    pub thread: usize,
    pub socket: TcpStream,
    pub link: Link,
    pub idle_max: Option<Duration>,
    pub shutdown: watch::Receiver<bool>,
}

/// One thread of such a door.
pub(crate) struct Thread<S: Host> {
    pub service: Arc<S>,
    pub number: usize,
    pub limits: ClientLimits,
    pub shutdown: watch::Receiver<bool>,
}

impl<S: Host> Thread<S> {
    /// Serves until `shutdown` holds true, and then until the connections have finished, or their time to do so is
    /// over.
    pub async fn serve(self, mut arrivals: UnboundedReceiver<Arrival>) {
        let mut tasks = Tasks::of(S::NAME);
        let mut shutdown = self.shutdown.clone();
        loop {
            let next = async {
                tokio::select! {
                    Some(arrival) = arrivals.recv() => Some(arrival),
                    () = holds(&mut shutdown) => None,
                }
            };
            match tasks.beside(next).await {
                Some(arrival) => self.welcome(arrival, &mut tasks),
                None => break,
            }
        }
        // Those that are still on their way are not served.
        drop(arrivals);
        tasks.finish(self.limits.shutdown_grace).await;
    }

    fn welcome(&self, arrival: Arrival, tasks: &mut Tasks) {
        let (service, thread) = (self.service.clone(), self.number);
        let (idle_max, shutdown) = (self.limits.idle_max, self.shutdown.clone());
        tasks.spawn(async move {
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
