//! What a client has sent and was not executed: bytes in a buffer that is filled behind them and taken from in front.

use std::ops::Deref;

/// The most that is received at once, in bytes: what arrives together is executed together, which pays.
pub(crate) const RECEIVE_BYTES_MAX: usize = 256 * 1024;

/// It takes no memory until it is asked for [`space`](Self::space).
#[derive(Default)]
pub struct Input {
    /// As much of its capacity as was used before is initialised; what it holds is `start..end` of it.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// Takes `count` bytes away in front.
    ///
    /// # Panics
    /// If it holds fewer.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "{count} bytes are taken of {}", self.len());
        self.start += count;
        if self.start == self.end {
            self.clear();
        }
    }

    #[inline]
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Appends `bytes`, and takes memory for no more.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        if self.bytes.len() < self.end + bytes.len() {
            self.bytes.resize(self.end + bytes.len(), 0);
        }
        self.bytes[self.end..][..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// A copy that takes memory for what it holds and for nothing else.
    pub(crate) fn to_kept(&self) -> Input {
        Input { bytes: self.to_vec(), start: 0, end: self.len() }
    }

    /// Where to receive more: [`RECEIVE_BYTES_MAX`] at most, and half of it at least.
    #[inline]
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if !self.has_space() {
            self.make_space();
        }
        let until = self.bytes.capacity().min(self.end + RECEIVE_BYTES_MAX);
        if self.bytes.len() < until {
            self.bytes.resize(until, 0);
        }
        &mut self.bytes[self.end..until]
    }

    /// Notes that so many bytes of the space were filled.
    #[inline]
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// The bytes of the buffer.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// How many the buffer will have when more is received, at most.
    pub(crate) fn capacity_for_more(&self) -> usize {
        match self.has_space() || self.len() + RECEIVE_BYTES_MAX <= self.capacity() {
            true => self.capacity(),
            false => (2 * self.capacity()).max(self.len() + RECEIVE_BYTES_MAX),
        }
    }

    #[inline]
    fn has_space(&self) -> bool {
        self.bytes.capacity() - self.end >= RECEIVE_BYTES_MAX / 2
    }

    /// Moves what it holds to the beginning, and grows if that is not enough.
    fn make_space(&mut self) {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.len());
        if self.bytes.capacity() - self.end < RECEIVE_BYTES_MAX {
            // What is behind it need not be copied along.
            self.bytes.truncate(self.end);
            self.bytes.reserve(RECEIVE_BYTES_MAX);
        }
    }
}

impl Deref for Input {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(input: &mut Input, bytes: &[u8]) {
        input.space()[..bytes.len()].copy_from_slice(bytes);
        input.filled(bytes.len());
    }

    #[test]
    fn what_is_appended_behind_is_taken_in_front() {
        let mut input = Input::default();
        assert_eq!(input.capacity(), 0);
        let (mut sent, mut taken) = (0u32, 0u32);
        for _ in 0..1000 {
            let more: Vec<u8> = (sent..sent + 500).flat_map(u32::to_le_bytes).collect();
            let bound = input.capacity_for_more();
            receive(&mut input, &more);
            assert!(input.capacity() <= bound);
            sent += 500;
            // Some is left for later, now and then.
            while sent - taken > 100 {
                assert_eq!(input[..4], taken.to_le_bytes());
                input.advance(4);
                taken += 1;
            }
        }
        assert!(input.capacity() <= 2 * RECEIVE_BYTES_MAX);
        assert_eq!(input.to_kept().capacity(), 400);
        input.extend_from_slice(b"end");
        assert_eq!(input[400..], *b"end");
        input.clear();
        assert!(input.is_empty());
    }

    #[test]
    fn a_buffer_doubles_as_it_grows() {
        let mut input = Input::default();
        for _ in 0..40 {
            let bound = input.capacity_for_more();
            let space = input.space().len();
            assert!((RECEIVE_BYTES_MAX / 2..=RECEIVE_BYTES_MAX).contains(&space));
            input.filled(space);
            assert!(input.capacity() <= bound && input.capacity() <= 2 * (input.len() + RECEIVE_BYTES_MAX));
        }
        assert!(input.len() > 4 << 20);
    }
}
