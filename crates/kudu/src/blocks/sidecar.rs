//! A sidecar while it is filled.

/// Bytes that are appended, in memory that may have been used before.
///
/// What lies behind the first `len` is of an earlier answer, perhaps another client's, and never leaves: [`finish`](Self::finish) cuts it
/// off. So it need not be cleared. Who calls [`grow`](Self::grow) writes all that it gets, and who calls [`room`](Self::room) what it
/// [adds](Self::add).
#[derive(Clone, Debug, Default)]
pub struct Sidecar {
    bytes: Vec<u8>,
    len: usize,
}

impl Sidecar {
    /// An empty one in the memory of `bytes`, whatever is in them.
    pub fn new(bytes: Vec<u8>) -> Self {
        Sidecar { bytes, len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Makes room for so many more at once.
    pub fn reserve(&mut self, count: usize) {
        self.bytes.reserve((self.len + count).saturating_sub(self.bytes.len()));
    }

    /// So many bytes behind the last, with anything in them.
    pub fn room(&mut self, count: usize) -> &mut [u8] {
        let end = self.len + count;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let room = &mut self.bytes[self.len..end];
        if cfg!(debug_assertions) {
            // So that a test sees what is not written.
            room.fill(0xa5);
        }
        room
    }

    /// Counts the first bytes of the room.
    pub fn add(&mut self, count: usize) {
        self.len += count;
        assert!(self.len <= self.bytes.len(), "there is room for them");
    }

    /// Appends so many bytes, with anything in them.
    pub fn grow(&mut self, count: usize) -> &mut [u8] {
        self.room(count);
        self.add(count);
        &mut self.bytes[self.len - count..self.len]
    }

    pub fn append(&mut self, bytes: &[u8]) {
        let (over, behind) = bytes.split_at(bytes.len().min(self.bytes.len() - self.len));
        self.bytes[self.len..][..over.len()].copy_from_slice(over);
        self.bytes.extend_from_slice(behind);
        self.add(bytes.len());
    }

    /// What was appended.
    pub fn written(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.truncate(self.len);
        self.bytes
    }
}
