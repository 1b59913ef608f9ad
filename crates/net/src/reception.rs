//! Where clients come in: one socket, until its door shuts.

use crate::holds;
use oribi_types::Result;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::coop::consume_budget;

/// How long to wait when the system has no descriptor for another connection: they come back as connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub struct Reception {
    door: &'static str,
    /// Waits for clients, …
    waits: tokio::net::TcpListener,
    /// … and the same socket, which lets in those that are there: a third of the system calls, as Tokio does not begin to wait for them.
    listener: TcpListener,
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
        let listener = socket.try_clone()?;
        Ok(Reception { door, waits: tokio::net::TcpListener::from_std(socket)?, listener, shutdown })
    }

    /// # Errors
    /// Those of the system.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Whoever comes next, as `take` makes a client of it: its socket does not block. `None` once the door shuts. Nobody is lost if this is
    /// dropped.
    pub async fn next<T>(&mut self, take: impl Fn(TcpStream, SocketAddr) -> io::Result<T>) -> Option<T> {
        let Reception { door, waits, listener, shutdown } = self;
        loop {
            let accepted = tokio::select! {
                biased;
                () = holds(shutdown) => return None,
                accepted = accept(waits, listener) => accepted,
            };
            let taken = accepted.and_then(|(socket, peer)| {
                socket.set_nonblocking(true)?;
                take(socket, peer)
            });
            match taken {
                Ok(client) => return Some(client),
                Err(error) => {
                    tracing::warn!(%error, door = *door, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn accept(
    waits: &tokio::net::TcpListener,
    listener: &TcpListener,
) -> io::Result<(TcpStream, SocketAddr)> {
    consume_budget().await;
    match listener.accept() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let (socket, peer) = waits.accept().await?;
            Ok((socket.into_std()?, peer))
        }
        accepted => accepted,
    }
}
