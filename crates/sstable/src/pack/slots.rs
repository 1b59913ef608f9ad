//! Finding the entries of a dictionary by hash.

const SLOTS_MIN: usize = 64;

/// Of each entry its number and one, at the place that its hash has or behind: a power of two, at least half of them free.
#[derive(Default)]
pub struct Slots(Vec<u32>);

impl Slots {
    /// Makes room for one entry beside `count`, of which `hash` is known.
    pub fn reserve(&mut self, count: usize, hash: impl Fn(usize) -> u64) {
        if 2 * count < self.0.len() {
            return;
        }
        self.0 = vec![0; (2 * self.0.len()).max(SLOTS_MIN)];
        for n in 0..count {
            // None is the same as another.
            if let Err(free) = self.find(hash(n), |_| false) {
                self.set(free, n);
            }
        }
    }

    /// The entry with a hash that `is_it`, or the slot that would be its.
    pub fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Result<usize, usize> {
        let mask = self.0.len() - 1;
        // Of a product the upper bits depend on all others.
        let mut slot = (hash >> 32) as usize & mask;
        loop {
            match self.0[slot] {
                0 => return Err(slot),
                n if is_it(n as usize - 1) => return Ok(n as usize - 1),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    pub fn set(&mut self, slot: usize, entry: usize) {
        self.0[slot] = entry as u32 + 1;
    }
}

/// A hash of which the upper half is good.
pub fn mix(bits: u64) -> u64 {
    /// An odd number without a pattern: the golden ratio.
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    // What differs in the upper bits alone differs in the product's upper bits alone.
    (bits ^ bits >> 32).wrapping_mul(MIX)
}
