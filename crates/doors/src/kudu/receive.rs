//! Receiving: as much as there is room for. A long frame is counted as it comes, whatever it says it will be.

use super::connection::Connection;
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

    /// Whether more of the frame that has begun may be received.
    pub(super) fn may_receive(&mut self) -> bool {
        let (begun, come) = (self.begun(), self.input.len());
        begun.is_none_or(|len| self.frame_room.has_more(&self.port.node.load, len, come))
    }
}
