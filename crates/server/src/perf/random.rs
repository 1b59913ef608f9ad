//! Numbers that look random, the same in every run.

/// xorshift64* (Vigna 2016).
pub struct Xorshift(u64);

impl Xorshift {
    /// Generator number `stream`; each gives other numbers.
    pub fn new(stream: u64) -> Self {
        Xorshift(0x9E37_79B9_7F4A_7C15 ^ stream << 32)
    }

    /// The next number. Its upper bits are the better ones.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}
