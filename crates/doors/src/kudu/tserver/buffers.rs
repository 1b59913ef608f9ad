//! Memory of answers to scans, which is used again: memory that the system has taken back costs a page fault and a cleared page
//! for each 4 KiB, a quarter of what it takes to fill it.
//!
//! A buffer is again what it was, the strings of the third column, say: where scans of one table follow each other it is long enough from
//! its second use on. (Any buffer for anything grew, and was copied, at every other use; a fifth of a scan's samples were that.) Of
//! those that are kept the oldest makes room, so that what nobody asks for any more goes.

use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// What is kept, at most, and the length of what is worth it.
const BUFFERS_MAX: usize = 16;
const BUFFER_BYTES_MIN: usize = 64 << 10;
const BUFFER_BYTES_MAX: usize = 2 << 20;

#[derive(Clone, Default)]
pub(super) struct Buffers(Arc<Mutex<Vec<Buffer>>>);

struct Buffer {
    /// Which one of an answer it was.
    number: usize,
    bytes: Vec<u8>,
}

/// A buffer that was filled; its memory goes back when it was sent.
struct Filled {
    buffer: Buffer,
    of: Buffers,
}

impl Buffers {
    /// One that was the `number`-th of an answer, with what it was filled with, which takes its part of `room`; without memory if
    /// none such is kept, or those that are have more than that.
    pub fn take(&self, number: usize, room: &mut usize) -> Vec<u8> {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |buffer: &Buffer| buffer.number == number && buffer.bytes.capacity() <= *room;
        let Some(at) = buffers.iter().rposition(fits) else {
            return Vec::new();
        };
        let Buffer { bytes, .. } = buffers.remove(at);
        *room -= bytes.capacity();
        bytes
    }

    /// The bytes of the `number`-th of an answer, to be sent.
    pub fn fill(&self, number: usize, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Filled { buffer: Buffer { number, bytes }, of: self.clone() })
    }

    /// Gives all memory back.
    pub fn clear(&self) {
        let buffers = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(buffers);
    }
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.bytes
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let Buffer { number, bytes } = &mut self.buffer;
        if (BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&bytes.capacity()) {
            let buffer = Buffer { number: *number, bytes: std::mem::take(bytes) };
            let mut buffers = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
            let oldest = (buffers.len() == BUFFERS_MAX).then(|| buffers.remove(0));
            buffers.push(buffer);
            drop(buffers);
            drop(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_filled_again() {
        let buffers = Buffers::default();
        let mut room = BUFFER_BYTES_MAX;
        let mut first = buffers.take(1, &mut room);
        first.resize(BUFFER_BYTES_MIN, 1);
        let place = first.as_ptr();
        let sent = buffers.fill(1, first);
        let slice = sent.slice(10..20);
        drop(sent);
        assert!(buffers.take(1, &mut room).capacity() == 0, "it is still being sent");
        drop(slice);
        // Nor is it for an answer that would fill a part of it.
        assert!(buffers.take(1, &mut (BUFFER_BYTES_MIN - 1)).capacity() == 0);
        // Nor for another part of one.
        assert!(buffers.take(0, &mut room).capacity() == 0);
        let again = buffers.take(1, &mut room);
        assert_eq!(room, BUFFER_BYTES_MAX - again.capacity());
        assert_eq!((again.as_ptr(), again.len()), (place, BUFFER_BYTES_MIN));
        // Neither what is small nor more than some is kept.
        drop(buffers.fill(1, vec![1]));
        let many: Vec<Bytes> =
            (0..2 * BUFFERS_MAX).map(|_| buffers.fill(1, vec![0; BUFFER_BYTES_MIN])).collect();
        drop(many);
        assert_eq!(buffers.0.lock().unwrap().len(), BUFFERS_MAX);
        drop(buffers.fill(2, vec![0; BUFFER_BYTES_MIN]));
        assert_eq!(buffers.0.lock().unwrap().len(), BUFFERS_MAX);
        assert_eq!(buffers.take(2, &mut room).len(), BUFFER_BYTES_MIN);
        buffers.clear();
        assert!(buffers.take(1, &mut room).capacity() == 0);
    }
}
