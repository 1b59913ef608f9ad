//! Receiving: as much as there is room for. A long frame is counted as it comes, whatever it says it will be.

use super::connection::Connection;
use super::load::{Held, Load, TURN_SILENCE_MAX, UNCOUNTED_BYTES};
use futures::future::BoxFuture;
use oribi_types::Result;
use std::io::ErrorKind;
use std::sync::Arc;
use tokio::time::Instant;

/// The room that is made in the receive buffer, at least and at most.
const RECEIVE_BYTES_MIN: usize = 64 << 10;
const RECEIVE_BYTES_MAX: usize = 1 << 20;

impl Connection {
    /// Receives what has arrived: how many bytes, or `None` if it was a false alarm.
    pub(super) fn receive(&mut self) -> Result<Option<usize>> {
        // Whatever a frame says it will be, it has what is counted for it.
        let counted = self.frame_room.bytes().saturating_sub(self.input.len());
        let missing = self.begun().map_or(0, |len| (len + 4).saturating_sub(self.input.len()));
        self.input.reserve(missing.min(counted).clamp(RECEIVE_BYTES_MIN, RECEIVE_BYTES_MAX));
        let received = match self.stream.try_read_buf(&mut self.input) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        self.port.traffic.thread(self.thread).received_bytes.add(received as u64);
        Ok(Some(received))
    }

    /// How long the frame is that has begun to come.
    fn begun(&self) -> Option<usize> {
        self.input.first_chunk::<4>().map(|prefix| u32::from_be_bytes(*prefix) as usize)
    }

    /// Whether more of the frame that has begun may be received.
    pub(super) fn may_receive(&mut self) -> bool {
        let (begun, come) = (self.begun(), self.input.len());
        begun.is_none_or(|len| self.frame_room.has_more(&self.port.node.load, len, come))
    }
}

/// Room for a long frame that is being received.
pub(super) struct FrameRoom {
    /// For what has come of it, and for some of what comes next …
    held: Held,
    /// … or for that, once it is there.
    more: Option<BoxFuture<'static, Held>>,
    /// When the client that has the turn got it, or sent or took something since.
    turn_used: Instant,
}

/// What came of waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    HasRoom,
    TurnOver,
}

impl FrameRoom {
    pub fn new() -> Self {
        FrameRoom { held: Held::default(), more: None, turn_used: Instant::now() }
    }

    /// Bytes that are counted.
    pub fn bytes(&self) -> usize {
        self.held.bytes()
    }

    /// What is held; the frame has come whole.
    pub fn take(&mut self) -> Held {
        std::mem::take(&mut self.held)
    }

    /// Whether more may come of a frame of `len` bytes, of which `come` have: a long one waits until there is room for as much
    /// again as has come of it.
    fn has_more(&mut self, load: &Arc<Load>, len: usize, come: usize) -> bool {
        if come <= UNCOUNTED_BYTES || self.held.bytes() > come {
            return true;
        }
        let wanted = len.max(come).min(2 * come);
        if self.more.is_none() && self.held.grow(load, wanted) {
            return true;
        }
        let missing = wanted.saturating_sub(self.held.bytes());
        self.more.get_or_insert_with(|| Box::pin(load.clone().wait_for(missing)));
        false
    }

    pub fn is_awaited(&self) -> bool {
        self.more.is_some()
    }

    /// The client sent or took something.
    pub fn used(&mut self) {
        if self.held.has_turn() {
            self.turn_used = Instant::now();
        }
    }

    /// Until there is room, where it is waited for, or until a client whose silence counts has kept the turn silently for too long.
    pub async fn wait(&mut self, silence_counts: bool) -> Waited {
        let FrameRoom { held, more, turn_used } = self;
        tokio::select! {
            biased;
            room = async { more.as_mut().expect("it is awaited").await }, if more.is_some() => {
                *more = None;
                held.merge(room);
                // What the client has sent meanwhile was not read.
                *turn_used = Instant::now();
                Waited::HasRoom
            }
            () = turn_over(*turn_used), if silence_counts && held.has_turn() => Waited::TurnOver,
            else => std::future::pending().await,
        }
    }
}

/// Once a client that used its turn last at this time has been silent for too long.
async fn turn_over(used: Instant) {
    tokio::time::sleep_until(used + TURN_SILENCE_MAX).await;
}
