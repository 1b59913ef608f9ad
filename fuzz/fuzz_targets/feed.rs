//! Fields for structures that are built from a fuzzer's bytes; zero once these are used up.

pub struct Feed<'a>(&'a [u8]);

#[allow(dead_code)]
impl<'a> Feed<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Feed(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    pub fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        for byte in &mut bytes {
            *byte = self.byte();
        }
        u64::from_le_bytes(bytes)
    }

    /// Up to 255 bytes, as the next one says.
    pub fn short(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte());
        self.take(len)
    }

    /// Up to 64 KiB, as the next two bytes say.
    pub fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()) | usize::from(self.byte()) << 8;
        self.take(len)
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
