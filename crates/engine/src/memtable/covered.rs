//! The keys of which a memtable may have more than one version, or one without a row, and those of which a later memtable has another:
//! what a snapshot sees of these, and since when, only the row index tells.
//!
//! A set of hashes that may say yes of others, too. It is small, and no cache miss as a rule; once it has so many that it says yes of
//! most, scans are as slow as without it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Most memtables have none, and many of those that have some are small: where there are more than [`FEW_MAX`], they have a larger
/// set besides.
#[derive(Default)]
pub(super) struct Covered {
    few: OnceLock<Bits<FEW_WORDS>>,
    few_len: AtomicUsize,
    many: OnceLock<Bits<MANY_WORDS>>,
}

const FEW_WORDS: usize = 64;
/// An eighth of its bits.
const FEW_MAX: usize = FEW_WORDS * u64::BITS as usize / 8;
/// 32 KiB.
const MANY_WORDS: usize = 4096;

/// A bit for all hashes with the same upper bits.
struct Bits<const WORDS: usize>(Box<[AtomicU64]>);

impl Covered {
    /// Before the version that covers another is published, or the one without a row: whoever sees it is told of it.
    #[inline]
    pub fn add(&self, hash: u64) {
        // As a rule it is there: rows that are written more than once are written often.
        if !self.few.get().is_some_and(|few| few.has(hash)) {
            self.add_other(hash);
        }
    }

    fn add_other(&self, hash: u64) {
        let few = self.few.get_or_init(Bits::new);
        if self.few_len.load(Relaxed) < FEW_MAX {
            few.set(hash);
            self.few_len.fetch_add(1, Relaxed);
            return;
        }
        let many = self.many.get_or_init(Bits::new);
        if !many.has(hash) {
            many.set(hash);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.few.get().is_none()
    }

    pub fn has(&self, hash: u64) -> bool {
        self.few.get().is_some_and(|few| few.has(hash)) || self.many.get().is_some_and(|many| many.has(hash))
    }
}

impl<const WORDS: usize> Bits<WORDS> {
    fn new() -> Self {
        const { assert!(WORDS.is_power_of_two()) };
        Bits((0..WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let bits = u64::BITS as usize;
        (&self.0[(hash >> 40) as usize / bits % WORDS], 1 << ((hash >> 40) as usize % bits))
    }

    fn has(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        word.load(Relaxed) & bit != 0
    }

    fn set(&self, hash: u64) {
        let (word, bit) = self.place(hash);
        word.fetch_or(bit, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_there_and_little_else() {
        let hash = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let covered = Covered::default();
        assert!(covered.is_empty() && !covered.has(hash(0)));
        for (len, others_max) in [(100, 50), (20_000, 250)] {
            (0..len).for_each(|i| covered.add(hash(i)));
            assert!(!covered.is_empty() && (0..len).all(|i| covered.has(hash(i))));
            let others = (len..len + 1000).filter(|i| covered.has(hash(*i))).count();
            assert!(others <= others_max, "{others} of 1000 others beside {len}");
        }
    }
}
