//! The keys of a memtable, each once, in the order in which they came.
//!
//! A key is listed as a word: itself, where all keys of the table have one length of up to eight bytes, else its hash. Either finds it
//! in the row index, and takes eight bytes; but of the first kind a scan that wants nothing but keys need not look there.

use crate::index::{KeyHasher, KeyRef};
use oribi_env::locks::{self, Mutex};
use oribi_types::{Error, Result, Schema, Timestamp};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What stands for a key in a list.
#[derive(Clone)]
pub(crate) enum Listing {
    Hashes,
    /// The bytes of keys, which have this length, as a number.
    Keys {
        len: usize,
        hasher: KeyHasher,
    },
}

impl Listing {
    pub fn of(schema: &Schema, hasher: &KeyHasher) -> Self {
        let widths = schema.key_columns().map(|column| column.column_type.fixed_width());
        match widths.sum::<Option<usize>>() {
            Some(len @ 1..=8) => Listing::Keys { len, hasher: hasher.clone() },
            _ => Listing::Hashes,
        }
    }

    /// The length of keys, if these are listed.
    pub fn key_len(&self) -> Option<usize> {
        match self {
            Listing::Keys { len, .. } => Some(*len),
            Listing::Hashes => None,
        }
    }

    /// # Errors
    /// `Corrupt` for a key that is none of the table's.
    pub fn check(&self, key: &[u8]) -> Result<()> {
        match self.key_len() {
            Some(len) if key.len() != len => {
                Err(Error::corrupt(format!("a key of {} bytes where all have {len}", key.len())))
            }
            _ => Ok(()),
        }
    }

    #[inline]
    pub fn word(&self, key: KeyRef<'_>) -> u64 {
        match self {
            Listing::Hashes => key.hash,
            Listing::Keys { len, .. } => {
                assert_eq!(key.key.len(), *len, "the table's keys have one length");
                match key.key.try_into() {
                    Ok(bytes) => u64::from_be_bytes(bytes),
                    Err(_) => key.key.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
                }
            }
        }
    }

    /// The hash of a key of `generation` that is listed as `word`.
    pub fn hash(&self, generation: u64, word: u64) -> u64 {
        match self {
            Listing::Hashes => word,
            Listing::Keys { len, hasher } => {
                hasher.hash(generation, &word.to_be_bytes()[size_of::<u64>() - len..])
            }
        }
    }
}

/// Words of keys. Readers may walk it while writers add. It never moves.
#[derive(Default)]
pub(super) struct KeyList {
    chunks: Mutex<Vec<Chunk>, { locks::KEYS }>,
    len: AtomicUsize,
}

#[derive(Clone)]
struct Chunk {
    words: Vec<u64>,
    /// The first versions of these keys in the memtable are not newer.
    newest: Timestamp,
}

/// Some of the words.
pub(crate) struct Listed {
    pub words: Vec<u64>,
    /// The first versions of these keys in the memtable are not newer.
    pub newest: Timestamp,
}

impl KeyList {
    pub const CHUNK: usize = 4096;

    /// Adds keys of which the first version is not newer than `newest`.
    pub fn extend(&self, mut words: &[u64], newest: Timestamp) {
        if words.is_empty() {
            return;
        }
        let mut chunks = self.chunks.lock();
        self.len.fetch_add(words.len(), Relaxed);
        while !words.is_empty() {
            match chunks.last_mut().filter(|chunk| chunk.words.len() < KeyList::CHUNK) {
                // Small memtables, of which there may be many, grow by and by.
                Some(chunk) => {
                    let (fit, rest) = words.split_at(words.len().min(KeyList::CHUNK - chunk.words.len()));
                    chunk.words.extend_from_slice(fit);
                    chunk.newest = chunk.newest.max(newest);
                    words = rest;
                }
                None => {
                    let room = if chunks.is_empty() { 4 } else { KeyList::CHUNK };
                    chunks.push(Chunk { words: Vec::with_capacity(room), newest });
                }
            }
        }
    }

    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Some of the words with these numbers, from the first on; none only if there are none.
    pub fn part(&self, numbers: Range<usize>) -> Listed {
        let chunks = self.chunks.lock();
        let Some(chunk) = chunks.get(numbers.start / KeyList::CHUNK) else {
            return Listed { words: Vec::new(), newest: Timestamp::MIN };
        };
        let rest = chunk.words.get(numbers.start % KeyList::CHUNK..).unwrap_or_default();
        Listed { words: rest[..rest.len().min(numbers.len())].to_vec(), newest: chunk.newest }
    }

    pub fn iter_from(&self, skip: usize) -> impl Iterator<Item = u64> {
        // Those that are there now: behind the copy of a chunk that was not full, later ones would leave a gap.
        let rest = self.len().saturating_sub(skip);
        // A copy of a chunk at a time: nobody waits for what is done with it.
        let copy = |i: usize| self.chunks.lock().get(i).map(|chunk| chunk.words.clone());
        let chunks = (skip / KeyList::CHUNK..).map_while(copy);
        chunks.flatten().skip(skip % KeyList::CHUNK).take(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_while_keys_are_walked_is_left_to_the_next_walk() {
        let keys = KeyList::default();
        let push = |word| keys.extend(&[word], Timestamp(word));
        // A chunk that is not full, and becomes so meanwhile.
        let first = KeyList::CHUNK as u64 - 1;
        (0..first).for_each(push);
        let mut walk = keys.iter_from(0);
        assert_eq!(walk.next(), Some(0));
        (first..first + 10).for_each(push);
        assert_eq!(walk.count() as u64, first - 1);
        let rest: Vec<u64> = keys.iter_from(first as usize).collect();
        assert_eq!(rest, (first..first + 10).collect::<Vec<_>>());
    }

    #[test]
    fn a_part_tells_of_the_newest_of_its_chunk() {
        let keys = KeyList::default();
        let later = KeyList::CHUNK as u64;
        (0..later + 3).for_each(|word| keys.extend(&[word], Timestamp(1000 + word)));
        let of_first = keys.part(10..later as usize + 2);
        assert_eq!((of_first.words.len() as u64, of_first.newest), (later - 10, Timestamp(999 + later)));
        let of_last = keys.part(later as usize..later as usize + 2);
        assert_eq!((of_last.words, of_last.newest), (vec![later, later + 1], Timestamp(1002 + later)));
    }
}
