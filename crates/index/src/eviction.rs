//! The order in which the clean rows of a shard leave: S3-FIFO (Yang et al., "FIFO queues are all you need for cache
//! eviction", SOSP 2023).
//!
//! A row that becomes clean waits in the *small* queue, a tenth of the bytes. If it was read there it moves on to the
//! *main* queue, else it leaves, so that a scan passes through the small queue and leaves the main queue alone. The
//! *ghost* remembers fingerprints of what left the small queue: a row that comes back goes to the main queue at once.
//! The main queue gives a row another round for each time that it was read, up to three; reads in the small queue count.
//!
//! This holds hashes only. The index keeps, with each row, how often it was read (0 to 3) and whether it is *queued*
//! here. The two agree as follows:
//!
//! - A row that becomes clean is admitted unless it is queued already, and is queued from then on.
//! - A row that is overwritten while it is queued stays so. If it is still dirty when its turn comes it leaves the
//!   queue ([`Visit::Gone`]), and is admitted again by the flush that cleans it. Thus a row is queued once.
//! - A row that the index drops otherwise (deleted, table gone) leaves its hash behind, which is found gone in its
//!   turn. If the key comes back before that, its hash is queued twice: the first turn may evict the row, the second
//!   then finds it gone. [`Eviction::purge`] bounds what is left behind where nothing is ever evicted.

use std::collections::{HashSet, VecDeque};

/// The small queue is one part in so many of the bytes, as in the paper.
const SMALL_SHARE: u64 = 10;
/// The ghost remembers one row for so many that are queued. The paper takes 1; of the traces in `examples/hit_rates` the
/// steady ones gain from a shorter memory what one loses whose keys all change at once.
const GHOST_SHARE: usize = 2;
/// Fingerprints in a bucket of the ghost: half a cache line.
const BUCKET: usize = 8;

/// The clean rows of a shard in the order of their eviction.
#[derive(Default)]
pub struct Eviction {
    small: Queue,
    main: Queue,
    ghost: Ghost,
}

/// What the index did with a hash whose turn it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// No clean row of this hash is queued. If there is a dirty one, it counts as not queued from now on.
    Gone,
    /// The row stays, and stays queued.
    Spared,
    /// The row, of so many bytes, has left.
    Evicted(u32),
}

/// Whether a row stays, by how often it was read: `None`, or the number of reads that it keeps.
pub type Spare = fn(reads: u8) -> Option<u8>;

impl Eviction {
    /// Queues a row that became clean: it was read from a file, or a flush left it behind. It must not be queued.
    /// Its reads count from before: a row that was read in the memtable has earned the main queue.
    pub fn admit(&mut self, hash: u64, bytes: u32) {
        let queue = if self.ghost.remove(fingerprint(hash)) { &mut self.main } else { &mut self.small };
        queue.push(Queued { hash, bytes });
    }

    /// Evicts rows until `bytes` are freed or nothing is queued. Returns the bytes freed, which are at least `bytes`
    /// unless nothing is left. `visit` is given a hash whose turn it is; it finds the queued clean row of that hash and
    /// evicts it unless [`Spare`] says that it stays.
    ///
    /// Costs at most two visits for each admission, and one for each read that earned a row another round.
    pub fn evict(&mut self, bytes: u64, mut visit: impl FnMut(u64, Spare) -> Visit) -> u64 {
        let mut freed = 0;
        while freed < bytes && !self.is_empty() {
            let in_small = self.main.is_empty() || self.small.bytes * SMALL_SHARE > self.bytes();
            let turn = if in_small { self.turn_of_small(&mut visit) } else { self.turn_of_main(&mut visit) };
            freed += u64::from(turn);
        }
        freed
    }

    /// The bytes that the oldest row of the small queue frees.
    fn turn_of_small(&mut self, visit: &mut impl FnMut(u64, Spare) -> Visit) -> u32 {
        let Some(queued) = self.small.pop() else { return 0 };
        match visit(queued.hash, |reads| (reads > 0).then_some(reads)) {
            Visit::Gone => 0,
            Visit::Spared => {
                self.main.push(queued);
                0
            }
            Visit::Evicted(bytes) => {
                self.ghost.bound((self.small.len() + self.main.len()) / GHOST_SHARE);
                self.ghost.insert(fingerprint(queued.hash));
                bytes
            }
        }
    }

    /// The bytes that the oldest row of the main queue frees.
    fn turn_of_main(&mut self, visit: &mut impl FnMut(u64, Spare) -> Visit) -> u32 {
        let Some(queued) = self.main.pop() else { return 0 };
        match visit(queued.hash, |reads| reads.checked_sub(1)) {
            Visit::Gone => 0,
            Visit::Spared => {
                self.main.push(queued);
                0
            }
            Visit::Evicted(bytes) => bytes,
        }
    }

    /// Forgets hashes of which no row is queued, and all but one of a hash that is queued twice. Worth its time, which
    /// is linear, once [`len`](Self::len) is more than twice the rows of the shard.
    pub fn purge(&mut self, is_queued: impl Fn(u64) -> bool) {
        let mut seen = HashSet::with_capacity(self.len());
        self.main.retain(|hash| is_queued(hash) && seen.insert(hash));
        self.small.retain(|hash| is_queued(hash) && seen.insert(hash));
    }

    /// Hashes queued, those included whose rows are gone.
    pub fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the rows queued, each as when it was admitted, those included that are gone.
    pub fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    /// Bytes of memory that this takes, itself not included.
    pub fn memory_bytes(&self) -> usize {
        self.small.memory_bytes() + self.main.memory_bytes() + size_of_val(&*self.ghost.buckets)
    }
}

/// Packed, as there is one for each clean row.
#[derive(Clone, Copy)]
#[repr(Rust, packed)]
struct Queued {
    hash: u64,
    bytes: u32,
}

/// A queue whose memory follows its length to an eighth or so.
#[derive(Default)]
struct Queue {
    rows: VecDeque<Queued>,
    bytes: u64,
}

impl Queue {
    fn push(&mut self, queued: Queued) {
        if self.rows.len() == self.rows.capacity() {
            self.rows.reserve_exact(self.rows.len() / 8 + 4);
        }
        self.rows.push_back(queued);
        self.bytes += u64::from(queued.bytes);
    }

    fn pop(&mut self) -> Option<Queued> {
        let queued = self.rows.pop_front()?;
        self.bytes -= u64::from(queued.bytes);
        self.shrink();
        Some(queued)
    }

    fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        let bytes = &mut self.bytes;
        self.rows.retain(|queued| {
            let kept = keep(queued.hash);
            if !kept {
                *bytes -= u64::from(queued.bytes);
            }
            kept
        });
        self.shrink();
    }

    fn shrink(&mut self) {
        let len = self.rows.len();
        if self.rows.capacity() > len + len / 4 + 16 {
            self.rows.shrink_to(len + len / 8);
        }
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn memory_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Queued>()
    }
}

/// Fingerprints of rows that left the small queue. Each belongs in one bucket, newest first; when the
/// bucket is full its oldest is forgotten. A place without a fingerprint is 0.
#[derive(Default)]
struct Ghost {
    buckets: Vec<[u32; BUCKET]>,
}

/// Fibonacci hashing (Knuth, TAOCP 6.4): the hashes of a shard have bits in common, their fingerprints do not.
fn fingerprint(hash: u64) -> u32 {
    ((hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32).max(1)
}

impl Ghost {
    fn bucket(&mut self, fingerprint: u32) -> Option<&mut [u32; BUCKET]> {
        let index = (u64::from(fingerprint) * self.buckets.len() as u64) >> 32;
        self.buckets.get_mut(index as usize)
    }

    fn insert(&mut self, fingerprint: u32) {
        if let Some(bucket) = self.bucket(fingerprint) {
            bucket.copy_within(..BUCKET - 1, 1);
            bucket[0] = fingerprint;
        }
    }

    /// Whether it was there.
    fn remove(&mut self, fingerprint: u32) -> bool {
        let Some(bucket) = self.bucket(fingerprint) else { return false };
        let Some(at) = bucket.iter().position(|other| *other == fingerprint) else { return false };
        bucket.copy_within(at + 1.., at);
        bucket[BUCKET - 1] = 0;
        true
    }

    /// Has room for about `rows` fingerprints: made anew when it is too small, or twice too large.
    fn bound(&mut self, rows: usize) {
        let wanted = rows / BUCKET + 1;
        if self.buckets.len() >= wanted && self.buckets.len() <= 2 * wanted {
            return;
        }
        let wanted = wanted + wanted / 8;
        let old = std::mem::replace(&mut self.buckets, vec![[0; BUCKET]; wanted]);
        for fingerprint in old.iter().flat_map(|bucket| bucket.iter().rev()).filter(|f| **f != 0) {
            self.insert(*fingerprint);
        }
    }
}

#[cfg(test)]
mod tests;
