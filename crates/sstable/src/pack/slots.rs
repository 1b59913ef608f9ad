//! Finding the entries of a dictionary by hash.

const SLOTS_MIN: usize = 64;
/// With half of the slots free hardly any entry is ten from its place. Values that somebody chose to be so are not looked for further.
const PROBES_MAX: usize = 128;

/// Of each entry its number and one, at the place that its hash has or behind: a power of two, at least half of them free.
#[derive(Default)]
pub struct Slots(Vec<u32>);

/// Where an entry was found, or is to be.
pub enum Slot {
    Of(usize),
    Free(usize),
    TooFar,
}

impl Slots {
    /// Makes room for one entry beside `count`, of which `hash` is known; false if too many want the same place.
    pub fn reserve(&mut self, count: usize, hash: impl Fn(usize) -> u64) -> bool {
        if 2 * count < self.0.len() {
            return true;
        }
        self.0 = vec![0; (2 * self.0.len()).max(SLOTS_MIN)];
        (0..count).all(|n| {
            // None is the same as another.
            let free = self.find(hash(n), |_| false);
            if let Slot::Free(free) = free {
                self.set(free, n);
            }
            matches!(free, Slot::Free(_))
        })
    }

    /// Looks for the entry with a hash that `is_it`.
    pub fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Slot {
        let mask = self.0.len() - 1;
        // Of a product the upper bits depend on all others.
        let mut slot = (hash >> 32) as usize & mask;
        for _ in 0..PROBES_MAX {
            match self.0[slot] {
                0 => return Slot::Free(slot),
                n if is_it(n as usize - 1) => return Slot::Of(n as usize - 1),
                _ => slot = (slot + 1) & mask,
            }
        }
        Slot::TooFar
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
