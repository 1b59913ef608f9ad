//! The locks of a transaction that has locked more rows than it may have in memory with their keys: hashes of keys are left.
//!
//! Two rows of one hash are taken for the same. So another row may be locked too, about once in 2⁶⁴ ÷ (rows locked) rows.

use hashbrown::HashTable;
use oribi_env::locks::{self, Mutex};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Each grows by itself, so that what is copied when one does is little.
const SHARDS: usize = 256;

pub(crate) struct ManyLocks {
    pub holder: u64,
    pub since_micros: u64,
    shards: Box<[Mutex<HashTable<u64>, { locks::LEAF }>]>,
    /// Of the tablets that have some.
    generations: Mutex<HashSet<u64>, { locks::LEAF }>,
    /// How many rows were locked.
    count: AtomicUsize,
}

impl ManyLocks {
    pub fn new(holder: u64, since_micros: u64) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        ManyLocks { holder, since_micros, shards, generations: Mutex::default(), count: AtomicUsize::new(0) }
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<u64>, { locks::LEAF }> {
        // The table goes by other bits.
        &self.shards[(hash >> 24) as usize % SHARDS]
    }

    /// Rows of the tablets of these generations are about to be taken in.
    pub fn begin(&self, generations: impl Iterator<Item = u64>) {
        let mut known = self.generations.lock();
        let mut last = None;
        for generation in generations.filter(|generation| last.replace(*generation) != Some(*generation)) {
            known.insert(generation);
        }
    }

    /// Takes in the hash of a row that is locked.
    pub fn insert(&self, hash: u64) {
        self.shard(hash).lock().entry(hash, |of| *of == hash, |hash| *hash).or_insert(hash);
        self.count.fetch_add(1, Relaxed);
    }

    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Whether rows of a tablet are among them.
    pub fn concerns(&self, generation: u64) -> bool {
        self.generations.lock().contains(&generation)
    }

    /// Whether the row of this hash is.
    pub fn has(&self, hash: u64) -> bool {
        self.shard(hash).lock().find(hash, |of| *of == hash).is_some()
    }

    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        // At most seven of eight places of a table are taken, each with a byte beside.
        self.shards.iter().map(|shard| shard.lock().capacity() / 7 * 8 * 9).sum()
    }
}
