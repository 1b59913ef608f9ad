//! The policies, each as a cache of rows of one size.

use oribi_index::eviction::{Eviction, Visit};
use std::collections::{HashMap, VecDeque};

/// A cache of rows.
pub trait Policy {
    /// Reads a row, from the cache or else from a file, from where it is cached. Whether it was in the cache.
    fn get(&mut self, key: u64) -> bool;
}

/// Each by its name, with room for `rows` rows.
pub fn all(rows: u64) -> Vec<(&'static str, Box<dyn Policy>)> {
    vec![
        ("ours: S3-FIFO, 1,024 shards", Box::new(Sharded::<S3Fifo>::new(rows, 1024))),
        ("same, 1 shard", Box::new(Sharded::<S3Fifo>::new(rows, 1))),
        ("SIEVE, 1,024 shards", Box::new(Sharded::<Sieve>::new(rows, 1024))),
        ("CLOCK over the table", Box::new(Clock::new(rows))),
        ("`lru`", Box::new(Lru(lru::LruCache::new((rows as usize).try_into().expect("not 0"))))),
        ("`quick_cache`", Box::new(QuickCache(quick_cache::sync::Cache::new(rows as usize)))),
        ("`moka`", Box::new(Moka(moka::sync::Cache::new(rows)))),
    ]
}

/// MurmurHash3's finalizer.
fn hash(key: u64) -> u64 {
    let mut hash = key + 1;
    hash = (hash ^ hash >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ hash >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ hash >> 33
}

/// A cache in pieces under one limit, as the row index is: what exceeds the limit is freed by a hand that goes from
/// shard to shard, of which each gives up a 32nd of its rows. Thus shards stay in proportion to what comes to them.
struct Sharded<S> {
    shards: Vec<S>,
    hand: usize,
    rows: u64,
    limit: u64,
}

const GIVES_UP: u64 = 32;

trait Shard: Default {
    fn get(&mut self, hash: u64) -> bool;
    fn len(&self) -> u64;
    /// Evicts so many rows, or all that there are; returns how many.
    fn evict(&mut self, rows: u64) -> u64;
}

impl<S: Shard> Sharded<S> {
    fn new(limit: u64, shards: usize) -> Self {
        Sharded { shards: (0..shards).map(|_| S::default()).collect(), hand: 0, rows: 0, limit }
    }
}

impl<S: Shard> Policy for Sharded<S> {
    fn get(&mut self, key: u64) -> bool {
        let (hash, count) = (hash(key), self.shards.len());
        let hit = self.shards[(hash >> 40) as usize % count].get(hash);
        self.rows += u64::from(!hit);
        while self.rows > self.limit {
            self.hand = (self.hand + 1) % count;
            let shard = &mut self.shards[self.hand];
            let share = if count == 1 { 1 } else { (shard.len() / GIVES_UP).max(1) };
            self.rows -= shard.evict(share);
        }
        hit
    }
}

/// Our policy and the reads of the rows.
#[derive(Default)]
struct S3Fifo {
    eviction: Eviction,
    reads: HashMap<u64, u8>,
}

impl Shard for S3Fifo {
    fn get(&mut self, hash: u64) -> bool {
        if let Some(reads) = self.reads.get_mut(&hash) {
            *reads = (*reads + 1).min(3);
            return true;
        }
        self.reads.insert(hash, 0);
        self.eviction.admit(hash, 1);
        false
    }

    fn len(&self) -> u64 {
        self.reads.len() as u64
    }

    fn evict(&mut self, rows: u64) -> u64 {
        self.eviction.evict(rows, |hash, spare| {
            let reads = self.reads.get_mut(&hash).expect("what is queued is here");
            match spare(*reads) {
                Some(left) => {
                    *reads = left;
                    Visit::Spared
                }
                None => {
                    self.reads.remove(&hash);
                    Visit::Evicted(1)
                }
            }
        })
    }
}

/// SIEVE (Zhang et al., NSDI 2024): a queue in which rows stay where they are, and a hand that goes from old to new.
#[derive(Default)]
struct Sieve {
    /// Oldest first, each with whether it was read since the hand came by.
    rows: VecDeque<(u64, bool)>,
    hand: usize,
}

impl Shard for Sieve {
    fn get(&mut self, hash: u64) -> bool {
        let found = self.rows.iter_mut().find(|row| row.0 == hash);
        let hit = found.map(|row| row.1 = true).is_some();
        if !hit {
            self.rows.push_back((hash, false));
        }
        hit
    }

    fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn evict(&mut self, rows: u64) -> u64 {
        let rows = rows.min(self.len());
        for _ in 0..rows {
            self.hand %= self.rows.len();
            while std::mem::take(&mut self.rows[self.hand].1) {
                self.hand = (self.hand + 1) % self.rows.len();
            }
            self.rows.remove(self.hand);
        }
        rows
    }
}

/// One bit for each row, and a hand that goes over the hash tables of the shards, in the order of the table: it frees
/// what is too much and a 256th more.
struct Clock {
    shards: Vec<HashMap<u64, bool>>,
    hand: usize,
    rows: u64,
    limit: u64,
}

impl Clock {
    fn new(limit: u64) -> Self {
        Clock { shards: vec![HashMap::new(); 1024], hand: 0, rows: 0, limit }
    }
}

impl Policy for Clock {
    fn get(&mut self, key: u64) -> bool {
        let hash = hash(key);
        let shard = &mut self.shards[(hash >> 40) as usize % 1024];
        if let Some(visited) = shard.get_mut(&hash) {
            *visited = true;
            return true;
        }
        shard.insert(hash, false);
        self.rows += 1;
        if self.rows > self.limit {
            let target = self.limit - self.limit / 256;
            while self.rows > target {
                let rows = &mut self.rows;
                self.shards[self.hand].retain(|_, visited| {
                    let stays = *rows <= target || std::mem::take(visited);
                    *rows -= u64::from(!stays);
                    stays
                });
                self.hand = (self.hand + 1) % 1024;
            }
        }
        false
    }
}

struct Lru(lru::LruCache<u64, ()>);

impl Policy for Lru {
    fn get(&mut self, key: u64) -> bool {
        let hit = self.0.get(&key).is_some();
        if !hit {
            self.0.put(key, ());
        }
        hit
    }
}

struct QuickCache(quick_cache::sync::Cache<u64, ()>);

impl Policy for QuickCache {
    fn get(&mut self, key: u64) -> bool {
        let hit = self.0.get(&key).is_some();
        if !hit {
            self.0.insert(key, ());
        }
        hit
    }
}

struct Moka(moka::sync::Cache<u64, ()>);

impl Policy for Moka {
    fn get(&mut self, key: u64) -> bool {
        let hit = self.0.get(&key).is_some();
        if !hit {
            self.0.insert(key, ());
        }
        hit
    }
}
