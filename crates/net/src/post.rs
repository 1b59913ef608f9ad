//! What a loop is told by others, and the way to it.

use crate::Service;
use crate::guest::Guest;
use crate::listener::Arrival;
use mio::Waker;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(crate) enum Mail<S: Service> {
    /// A client has connected …
    Arrival(Arrival),
    /// … or has nothing to wait for any more, or comes from another loop.
    Guest(Guest<S>),
    /// There is something to push.
    Pushes,
    Shutdown,
}

/// The way to a loop.
pub(crate) struct Post<S: Service> {
    mail: UnboundedSender<Mail<S>>,
    waker: Arc<Waker>,
}

impl<S: Service> Clone for Post<S> {
    fn clone(&self) -> Self {
        Post { mail: self.mail.clone(), waker: self.waker.clone() }
    }
}

impl<S: Service> Post<S> {
    /// To a loop that `waker` wakes, and the end at which it reads.
    pub fn new(waker: Waker) -> (Self, UnboundedReceiver<Mail<S>>) {
        let (mail, read) = unbounded_channel();
        (Post { mail, waker: Arc::new(waker) }, read)
    }

    /// # Errors
    /// What was to be sent, if the loop shuts.
    pub fn send(&self, mail: Mail<S>) -> Result<(), Mail<S>> {
        self.mail.send(mail).map_err(|refused| refused.0)?;
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, door = S::NAME, "a loop cannot be woken");
        }
        Ok(())
    }
}
