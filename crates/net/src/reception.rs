//! Where clients come in: one socket, until its door shuts.

use crate::holds;
use oribi_types::Result;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// How long to wait when the system has no descriptor for another connection: they come back as connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub struct Reception {
    door: &'static str,
    /// Not Tokio's: that would wait for each socket, wherever it is served.
    listener: AsyncFd<TcpListener>,
    shutdown: watch::Receiver<bool>,
}

impl Reception {
    /// Of the door of this name, at `socket`, until `shutdown` holds true or its sender is gone. Must be called inside a Tokio
    /// runtime.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(door: &'static str, socket: TcpListener, shutdown: watch::Receiver<bool>) -> Result<Self> {
        socket.set_nonblocking(true)?;
        let listener = AsyncFd::register_with_interest(socket, Interest::READABLE)?;
        Ok(Reception { door, listener, shutdown })
    }

    /// # Errors
    /// Those of the system.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.listener.get_ref().local_addr()?)
    }

    /// Whoever comes next, as `take` makes a client of it: its socket does not block. `None` once the door shuts. Nobody is lost if this is
    /// dropped.
    pub async fn next<T>(&mut self, take: impl Fn(TcpStream, SocketAddr) -> io::Result<T>) -> Option<T> {
        loop {
            let accepted = tokio::select! {
                biased;
                () = holds(&mut self.shutdown) => return None,
                accepted = self.listener.async_io(Interest::READABLE, TcpListener::accept) => accepted,
            };
            let taken = accepted.and_then(|(socket, peer)| {
                socket.set_nonblocking(true)?;
                take(socket, peer)
            });
            match taken {
                Ok(client) => return Some(client),
                Err(error) => {
                    tracing::warn!(%error, door = self.door, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}
