//! Beside each loop of a key-value door: a thread with what serves those of its clients that have to wait for files, for room in
//! memory, for the disk or for sockets, as tasks, of which none holds up the others.

use super::connection::Connection;
use super::event_loop::{Leaving, Mail, Post};
use super::{ClientLimits, Service};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(super) struct Aside<S: Service> {
    pub service: Arc<S>,
    pub limits: ClientLimits,
    pub shutdown: watch::Receiver<bool>,
    /// To the loop.
    pub post: Post<S>,
}

impl<S: Service> Aside<S> {
    /// Serves until the loop has ended, and then until its clients have finished, or their time to do so is over. Tells the
    /// loop what it has no way to wait for.
    pub async fn serve(self, leaving: UnboundedReceiver<Leaving<S>>) {
        let shut = tell(self.post.clone(), self.shutdown.clone());
        let pushes = tell_of_pushes(self.post.clone(), self.service.pushes());
        let serve = self.serve_leaving(leaving);
        tokio::select! {
            () = serve => {}
            () = async { tokio::join!(shut, pushes); std::future::pending().await } => {}
        }
    }

    async fn serve_leaving(self, mut leaving: UnboundedReceiver<Leaving<S>>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                left = leaving.recv() => match left {
                    Some(left) => self.serve_one(left, &mut connections),
                    None => break,
                },
                Some(_) = connections.join_next() => {}
            }
        }
        let finish = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(self.limits.shutdown_grace, finish).await.is_err() {
            tracing::warn!(door = S::NAME, "connections were cut off at shutdown");
        }
    }

    fn serve_one(&self, (guest, progress): Leaving<S>, connections: &mut JoinSet<()>) {
        let (service, post) = (self.service.clone(), self.post.clone());
        let (idle_max, shutdown) = (self.limits.idle_max, self.shutdown.clone());
        connections.spawn(async move {
            let serve = async || Connection::new(service, guest)?.serve(progress, idle_max, shutdown).await;
            match serve().await {
                // If the loop has gone, so has the client.
                Ok(Some(guest)) => drop(post.send(Mail::Guest(guest))),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, door = S::NAME, "connection ended"),
            }
        });
    }
}

async fn tell<S: Service>(post: Post<S>, mut shutdown: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is as good.
    let _ = shutdown.wait_for(|shut| *shut).await;
    let _ = post.send(Mail::Shutdown);
}

async fn tell_of_pushes<S: Service>(post: Post<S>, pushes: Option<watch::Receiver<u64>>) {
    let Some(mut pushes) = pushes else { return };
    while pushes.changed().await.is_ok() {
        let _ = post.send(Mail::Pushes);
    }
}
