//! Memory of answers to scans, which is used again: memory that the system has taken back costs a page fault and a cleared page
//! for each 4 KiB, a quarter of what it takes to fill it.
//!
//! A buffer is again what it was, the strings of the third column, say: where scans of one table follow each other it is long enough from
//! its second use on. (Any buffer for anything grew, and was copied, at every other use; a fifth of a scan's samples were that.) Of
//! those that are kept the oldest make room, so that what nobody asks for any more goes.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is kept, at most: answers of the longest kind to two clients, each with one on its way and one that is made.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// Less is not worth it.
const BUFFER_BYTES_MIN: usize = 64 << 10;

/// Those that are kept, the oldest first.
#[derive(Clone, Default)]
pub(super) struct Buffers(Arc<Mutex<VecDeque<Buffer>>>);

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
        let mut kept = self.lock();
        let fits = |buffer: &Buffer| buffer.number == number && buffer.bytes.capacity() <= *room;
        let at = kept.iter().rposition(fits);
        let Some(Buffer { bytes, .. }) = at.and_then(|at| kept.remove(at)) else {
            return Vec::new();
        };
        *room -= bytes.capacity();
        bytes
    }

    /// The bytes of the `number`-th of an answer, to be sent.
    pub fn fill(&self, number: usize, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Filled { buffer: Buffer { number, bytes }, of: self.clone() })
    }

    /// Gives all memory back.
    pub fn clear(&self) {
        let kept = std::mem::take(&mut *self.lock());
        drop(kept);
    }

    fn keep(&self, buffer: Buffer) {
        let mut kept = self.lock();
        kept.push_back(buffer);
        let mut excess = bytes_of(&kept).saturating_sub(KEPT_BYTES_MAX);
        let mut old = Vec::new();
        while excess > 0
            && let Some(oldest) = kept.pop_front()
        {
            excess = excess.saturating_sub(oldest.bytes.capacity());
            old.push(oldest);
        }
        // Their memory goes when nobody waits for the lock.
        drop(kept);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Buffer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes_of(buffers: &VecDeque<Buffer>) -> usize {
    buffers.iter().map(|buffer| buffer.bytes.capacity()).sum()
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.bytes
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let Buffer { number, bytes } = &mut self.buffer;
        if (BUFFER_BYTES_MIN..=KEPT_BYTES_MAX).contains(&bytes.capacity()) {
            self.of.keep(Buffer { number: *number, bytes: std::mem::take(bytes) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_filled_again() {
        let buffers = Buffers::default();
        let mut room = KEPT_BYTES_MAX;
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
        assert_eq!(room, KEPT_BYTES_MAX - again.capacity());
        assert_eq!((again.as_ptr(), again.len()), (place, BUFFER_BYTES_MIN));
        // Neither what is small nor more than some is kept.
        drop(buffers.fill(1, vec![1]));
        assert!(buffers.lock().is_empty());
        const MANY: usize = KEPT_BYTES_MAX / BUFFER_BYTES_MIN;
        let many: Vec<Bytes> = (0..2 * MANY).map(|_| buffers.fill(1, vec![0; BUFFER_BYTES_MIN])).collect();
        drop(many);
        assert_eq!(buffers.lock().len(), MANY);
        // The oldest make room for what is long, unless that is more than all.
        drop(buffers.fill(1, vec![0; KEPT_BYTES_MAX + 1]));
        drop(buffers.fill(2, vec![0; KEPT_BYTES_MAX / 2]));
        assert_eq!(buffers.lock().len(), MANY / 2 + 1);
        assert_eq!(bytes_of(&buffers.lock()), KEPT_BYTES_MAX);
        assert_eq!(buffers.take(2, &mut KEPT_BYTES_MAX.clone()).len(), KEPT_BYTES_MAX / 2);
        assert_eq!(bytes_of(&buffers.lock()), KEPT_BYTES_MAX / 2);
        buffers.clear();
        assert!(buffers.take(1, &mut room).capacity() == 0);
    }
}
