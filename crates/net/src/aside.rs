//! Beside each loop of a key-value door: a thread with what serves those of its clients that have to wait for files, for room in
//! memory, for the disk or for sockets, as tasks, of which none holds up the others.

use crate::connection::Connection;
use crate::event_loop::Leaving;
use crate::post::{Mail, Post};
use crate::{ClientLimits, Service, Tasks, holds};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

pub(crate) struct Aside<S: Service> {
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
        let mut tasks = Tasks::of(S::NAME);
        while let Some(left) = tasks.beside(leaving.recv()).await {
            self.serve_one(left, &mut tasks);
        }
        tasks.finish(self.limits.shutdown_grace).await;
    }

    fn serve_one(&self, (guest, progress): Leaving<S>, tasks: &mut Tasks) {
        let (service, post) = (self.service.clone(), self.post.clone());
        let (idle_max, shutdown) = (self.limits.idle_max, self.shutdown.clone());
        tasks.spawn(async move {
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
    holds(&mut shutdown).await;
    let _ = post.send(Mail::Shutdown);
}

async fn tell_of_pushes<S: Service>(post: Post<S>, pushes: Option<watch::Receiver<u64>>) {
    let Some(mut pushes) = pushes else { return };
    while pushes.changed().await.is_ok() {
        let _ = post.send(Mail::Pushes);
    }
}
