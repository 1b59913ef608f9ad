//! One client on a thread's loop: its turn is a plain sequence of calls, of which none waits.

use crate::connection::{Client, leave_at_once, receive_bytes_max};
use crate::listener::{Arrival, Place};
use crate::{Exchange, Link, Progress, Protocol, Service, Store};
use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use tokio::sync::watch;

/// A client of a key-value door, while nothing waits for it: it is the loop's, or on its way to a [connection] or back.
///
/// [connection]: crate::connection::Connection
pub(crate) struct Guest<S: Service> {
    pub place: Place,
    /// It does not block.
    pub socket: TcpStream,
    /// In a box, since it is handed on.
    pub client: Box<Client<S::Protocol>>,
    pub pushes: Option<watch::Receiver<u64>>,
}

/// What is to become of a client after its turn.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It had sent nothing.
    Idle,
    /// It has all its answers.
    Answered,
    /// Its answers wait for the log.
    Unsettled,
    /// It has to wait for something else, or has so much to say that others would wait for it.
    Aside(Progress),
    Over,
}

/// Bytes of several turns.
#[derive(Default)]
pub(crate) struct Passed {
    pub received: u64,
    pub sent: u64,
}

impl<S: Service> Guest<S> {
    /// # Errors
    /// Those of the socket.
    pub fn welcome(service: &S, arrival: Arrival) -> Result<Self> {
        let Arrival { socket, peer, place } = arrival;
        // Answers are written whole, so waiting for more to send would only delay them.
        socket.set_nodelay(true)?;
        let link = Link { local: socket.local_addr()?, peer };
        let client = Client { protocol: service.open(place.thread(), link), exchange: Exchange::default() };
        Ok(Guest { place, socket, client: Box::new(client), pushes: service.pushes() })
    }

    /// Receives what has come, executes it, and answers it unless that rests on what is not settled yet.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn take_turn(&mut self, service: &S, passed: &mut Passed) -> Result<Turn> {
        let exchange = &mut self.client.exchange;
        exchange.borrow_buffers();
        let space = exchange.space(receive_bytes_max(service));
        let space_bytes = space.len();
        let received = match self.socket.read(space) {
            Ok(0) => return Ok(Turn::Over),
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                exchange.return_buffers();
                return Ok(Turn::Idle);
            }
            Err(error) => return Err(error),
        };
        exchange.received(received);
        passed.received += received as u64;
        let progress = self.client.advance(leave_at_once(service));
        let exchange = &mut self.client.exchange;
        // A socket that gave as much as there was room for is not empty, and says so no second time.
        if progress != Progress::Done || received == space_bytes || exchange.is_long() {
            return Ok(Turn::Aside(progress));
        }
        if !service.store().is_settled(exchange.obligation) {
            exchange.return_buffers();
            return Ok(Turn::Unsettled);
        }
        self.answer(passed)
    }

    /// What its answers rest on.
    pub fn obligation(&self) -> <S::Protocol as Protocol>::Obligation {
        self.client.exchange.obligation
    }

    /// Sends the answers: what they rest on is settled.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn answer(&mut self, passed: &mut Passed) -> Result<Turn> {
        let Client { protocol, exchange } = &mut *self.client;
        protocol.settled(exchange);
        if !exchange.output.is_empty() {
            let sent = match self.socket.write(&exchange.output) {
                Ok(sent) => sent,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
                Err(error) => return Err(error),
            };
            passed.sent += sent as u64;
            if sent < exchange.output.len() {
                exchange.output.drain(..sent);
                return Ok(Turn::Aside(Progress::Done));
            }
        }
        exchange.sent();
        exchange.return_buffers();
        Ok(if exchange.closing { Turn::Over } else { Turn::Answered })
    }

    /// Tells the client what it has not asked for, if there is something new.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn push(&mut self, passed: &mut Passed) -> Result<Turn> {
        let Some(pushes) = self.pushes.as_mut().filter(|pushes| pushes.has_changed().unwrap_or(false)) else {
            return Ok(Turn::Idle);
        };
        pushes.mark_unchanged();
        self.client.protocol.push(&mut self.client.exchange);
        self.answer(passed)
    }
}
