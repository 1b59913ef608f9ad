//! Where clients come in: one socket, until its door shuts.

use crate::holds;
use oribi_types::Result;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long to wait when the system has no descriptor for another connection: they come back as connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub struct Reception {
    door: &'static str,
    listener: TcpListener,
    shutdown: watch::Receiver<bool>,
}

impl Reception {
    /// Of the door of this name, at `socket`, until `shutdown` holds true or its sender is gone. Must be called inside a Tokio
    /// runtime.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(
        door: &'static str,
        socket: std::net::TcpListener,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Reception { door, listener: TcpListener::from_std(socket)?, shutdown })
    }

    /// # Errors
    /// Those of the system.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Whoever comes next, as `take` makes a client of it; `None` once the door shuts. Nobody is lost if this is dropped.
    pub async fn next<T>(&mut self, take: impl Fn(TcpStream, SocketAddr) -> io::Result<T>) -> Option<T> {
        loop {
            let accepted = tokio::select! {
                biased;
                () = holds(&mut self.shutdown) => return None,
                accepted = self.listener.accept() => accepted,
            };
            match accepted.and_then(|(socket, peer)| take(socket, peer)) {
                Ok(client) => return Some(client),
                Err(error) => {
                    tracing::warn!(%error, door = self.door, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}
