//! The keys of which a memtable may have more than one version, or one without a row, and those of which a later memtable has another:
//! what a snapshot sees of these, and since when, only the row index tells.
//!
//! A set of hashes that says yes of some others, too: of 3 in a hundred for each of its parts. It is small, and no cache miss as a rule.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Most memtables have none, and many of those that have some are small: what does not fit a part is in the next, which is made then.
#[derive(Default)]
pub(super) struct Covered {
    parts: [Part; WORDS.len()],
}

/// Of each part: 512 bytes, 8 KiB, 128 KiB. The last takes all that comes.
const WORDS: [usize; 3] = [64, 1 << 10, 16 << 10];
/// One in so many bits is set, at most.
const BITS_A_HASH: usize = 32;

#[derive(Default)]
struct Part {
    /// A bit for all hashes with the same upper bits.
    words: OnceLock<Box<[AtomicU64]>>,
    len: AtomicUsize,
}

impl Covered {
    /// Before the version that covers another is published, or the one without a row: whoever sees it is told of it.
    #[inline]
    pub fn add(&self, hash: u64) {
        // As a rule it is there: rows that are written more than once are written often.
        if !self.has(hash) {
            self.add_new(hash);
        }
    }

    #[cold]
    fn add_new(&self, hash: u64) {
        let is_full = |(part, words): &(&Part, usize)| part.len.load(Relaxed) >= words * 64 / BITS_A_HASH;
        let parts = self.parts.iter().zip(WORDS);
        let not_full = parts.clone().find(|part| !is_full(part)).or(parts.last());
        if let Some((part, words)) = not_full {
            let words = part.words.get_or_init(|| (0..words).map(|_| AtomicU64::new(0)).collect());
            let (word, bit) = place(words, hash);
            word.fetch_or(bit, Relaxed);
            part.len.fetch_add(1, Relaxed);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.parts[0].words.get().is_none()
    }

    #[inline]
    pub fn has(&self, hash: u64) -> bool {
        let parts = self.parts.iter().map_while(|part| part.words.get());
        parts.map(|words| place(words, hash)).any(|(word, bit)| word.load(Relaxed) & bit != 0)
    }
}

fn place(words: &[AtomicU64], hash: u64) -> (&AtomicU64, u64) {
    const { assert!(WORDS[0].is_power_of_two() && WORDS[1].is_power_of_two() && WORDS[2].is_power_of_two()) };
    let bits = u64::BITS as usize;
    (&words[((hash >> 40) as usize / bits) & (words.len() - 1)], 1 << ((hash >> 40) as usize % bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_there_and_little_else() {
        let hash = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let covered = Covered::default();
        assert!(covered.is_empty() && !covered.has(hash(0)));
        for (len, others_max) in [(100, 50), (2000, 90), (20_000, 120)] {
            (0..len).for_each(|i| covered.add(hash(i)));
            assert!(!covered.is_empty() && (0..len).all(|i| covered.has(hash(i))));
            let others = (len..len + 1000).filter(|i| covered.has(hash(*i))).count();
            assert!(others <= others_max, "{others} of 1000 others beside {len}");
        }
    }
}
