//! What a client is to be sent: heads of frames and sidecars, from where they lie.

use super::call::Answer;
use bytes::{Buf, Bytes};
use oribi_net::Stream;
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Result};

/// The most pieces of one writev(2); the system's own limit is 1,024.
const PIECES_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Outbox {
    /// None is empty.
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Outbox {
    pub fn push(&mut self, answer: Answer) {
        self.push_bytes(answer.head);
        answer.sidecars.into_iter().for_each(|sidecar| self.push_bytes(sidecar));
    }

    pub fn push_bytes(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the socket has taken all that there was.
    pub fn is_sent(&self, stream: &Stream) -> bool {
        self.is_empty() && stream.is_flushed()
    }

    /// Sends as much as the socket takes; returns how many bytes that was.
    pub fn flush(&mut self, stream: &mut Stream) -> Result<usize> {
        let before = self.bytes;
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let count = self.pieces.len().min(PIECES_MAX);
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(piece);
            }
            match stream.try_write_vectored(&slices[..count]) {
                Ok(sent) => self.advance(sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        match stream.try_flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(before - self.bytes),
        }
    }

    fn advance(&mut self, mut sent: usize) {
        self.bytes -= sent;
        while sent > 0 {
            let Some(first) = self.pieces.front_mut() else { return };
            if first.len() > sent {
                first.advance(sent);
                return;
            }
            sent -= first.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_gone() {
        let mut outbox = Outbox::default();
        for piece in [&b"abc"[..], b"", b"de", b"fghi"] {
            outbox.push_bytes(Bytes::from_static(piece));
        }
        for (sent, left) in [(1, "bcdefghi"), (2, "defghi"), (3, "ghi"), (3, "")] {
            outbox.advance(sent);
            let pieces: Vec<u8> = outbox.pieces.iter().flatten().copied().collect();
            assert_eq!(pieces, left.as_bytes());
            assert_eq!(outbox.bytes(), left.len());
        }
        assert!(outbox.is_empty());
    }
}
