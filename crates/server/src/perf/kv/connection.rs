//! A connection with one batch under way. It reads while it writes: a server that answers before it has read the
//! whole batch must not wait for a client that waits for it.

use super::couchbase::{self, Login};
use super::protocol::{Answer, Protocol};
use oribi_types::{Error, Result};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;
/// No answer is longer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// A server that says nothing for so long is given up.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A connection to the server.
pub struct Connection {
    socket: TcpStream,
    protocol: Protocol,
    /// The batch, and how much of it was sent.
    out: Vec<u8>,
    sent: usize,
    /// What was read, and how much of it was understood.
    input: Vec<u8>,
    filled: usize,
    parsed: usize,
    /// Answers still to come; for a quiet batch 1, until its end.
    awaited: usize,
    started: Instant,
}

impl Connection {
    /// # Errors
    /// Those of connecting, and of Couchbase's bootstrap if that is the protocol.
    pub async fn open(address: SocketAddr, protocol: Protocol, login: Login<'_>) -> Result<Self> {
        let named = |e: std::io::Error| Error::from(e).context(address);
        let mut socket = TcpStream::connect(address).await.map_err(named)?;
        socket.set_nodelay(true).map_err(named)?;
        if protocol == Protocol::Couchbase {
            let bootstrap = timeout(ANSWER_MAX, couchbase::bootstrap(&mut socket, login)).await;
            bootstrap.map_err(|_| Error::unavailable("the server does not answer"))??;
        }
        Ok(Connection {
            socket,
            protocol,
            out: Vec::new(),
            sent: 0,
            input: vec![0; READ_BYTES],
            filled: 0,
            parsed: 0,
            awaited: 0,
            started: Instant::now(),
        })
    }

    /// Whether part of the batch waits for the socket to take it.
    fn is_sending(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Begins a batch of the operations that `fill` appends; whether there are any.
    pub fn begin(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> usize) -> bool {
        self.out.clear();
        self.sent = 0;
        let operations = fill(&mut self.out);
        if operations == 0 {
            return false;
        }
        self.protocol.finish(&mut self.out);
        self.awaited = if self.protocol.is_quiet() { 1 } else { operations };
        self.started = Instant::now();
        true
    }

    /// Sends the batch and shows `seen` each answer. Reads while it writes. Returns how long that took since the batch
    /// began.
    ///
    /// # Errors
    /// Those of the socket; `Unavailable` if the server closed it.
    pub async fn exchange(&mut self, seen: &mut impl FnMut(Answer)) -> Result<Duration> {
        while self.awaited > 0 || self.is_sending() {
            self.send()?;
            if self.receive(seen)? {
                continue;
            }
            let interest = match self.is_sending() {
                true => Interest::READABLE | Interest::WRITABLE,
                false => Interest::READABLE,
            };
            let ready = timeout(ANSWER_MAX, self.socket.ready(interest)).await;
            let ready = ready.map_err(|_| Error::unavailable("the server does not answer"))?;
            ready.map_err(|e| Error::from(e).context("waiting for the server"))?;
        }
        Ok(self.started.elapsed())
    }

    /// Sends what the socket takes.
    fn send(&mut self) -> Result<()> {
        while self.is_sending() {
            match self.socket.try_write(&self.out[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(Error::from(e).context("sending")),
            }
        }
        Ok(())
    }

    /// Reads once; whether there was something, or nothing is awaited.
    fn receive(&mut self, seen: &mut impl FnMut(Answer)) -> Result<bool> {
        if self.awaited == 0 {
            return Ok(!self.is_sending());
        }
        if self.filled == self.input.len() {
            self.make_room()?;
        }
        match self.socket.try_read(&mut self.input[self.filled..]) {
            Ok(0) => Err(Error::unavailable("the server closed the connection")),
            Ok(read) => {
                self.filled += read;
                self.parse(seen)?;
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(Error::from(e).context("reading")),
        }
    }

    /// Takes whole answers from what was read.
    fn parse(&mut self, seen: &mut impl FnMut(Answer)) -> Result<()> {
        while self.awaited > 0
            && let Some((answer, len)) = self.protocol.answer(&self.input[self.parsed..self.filled])?
        {
            self.parsed += len;
            if !self.protocol.is_quiet() || answer == Answer::End {
                self.awaited -= 1;
            }
            seen(answer);
        }
        if self.parsed == self.filled {
            (self.parsed, self.filled) = (0, 0);
        }
        Ok(())
    }

    /// Moves the answer that is not whole to the front, or, if it fills everything, doubles the room.
    fn make_room(&mut self) -> Result<()> {
        if self.parsed > 0 {
            self.input.copy_within(self.parsed..self.filled, 0);
            self.filled -= self.parsed;
            self.parsed = 0;
        } else if self.input.len() < ANSWER_BYTES_MAX {
            self.input.resize(2 * self.input.len(), 0);
        } else {
            return Err(Error::invalid("the server's answer does not end"));
        }
        Ok(())
    }
}
