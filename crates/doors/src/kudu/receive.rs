//! Receiving: as much as there is room for. A long frame is counted as it comes, whatever it says it will be.

use super::connection::Connection;
use super::load::{Held, UNCOUNTED_BYTES};
use futures::future::BoxFuture;
use oribi_types::Result;
use std::io::ErrorKind;

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

    /// Whether more of the frame that has begun may be received: a long one waits until there is room for as much again as
    /// has come of it.
    pub(super) fn may_receive(&mut self) -> bool {
        let (Some(len), come) = (self.begun(), self.input.len()) else { return true };
        if come <= UNCOUNTED_BYTES || self.frame_room.bytes() > come {
            return true;
        }
        let (load, wanted) = (&self.port.node.load, len.max(come).min(2 * come));
        if self.more_room.is_none() && self.frame_room.grow(load, wanted) {
            return true;
        }
        let missing = wanted.saturating_sub(self.frame_room.bytes());
        self.more_room.get_or_insert_with(|| Box::pin(load.clone().wait_for(missing)));
        false
    }
}

/// The room that a frame waits for, once it is there.
pub(super) async fn poll_room(room: &mut Option<BoxFuture<'static, Held>>) -> Held {
    match room {
        Some(room) => room.await,
        None => std::future::pending().await,
    }
}
