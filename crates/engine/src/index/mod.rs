//! Row index: the newest version of every row that is in memory.
//!
//! A key that is absent here is in no memtable, so a reader goes straight to the SSTables. Entries whose newest
//! version is in an SSTable too are *clean*: they are the row cache, and evicting one never changes an answer.
//!
//! The index is a hash table in [`SHARDS`] pieces, each behind its own lock. A hit costs one lock, one probe and the
//! cache misses of bucket, key and row; it allocates nothing. Threads at idle priority must not call in here: they
//! would hold a lock that serving threads want.

mod version;

pub(crate) use version::{Location, Older, Version};

use crate::memory::MemoryBudget;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
use oribi_types::Timestamp;
use parking_lot::RwLock;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

const SHARDS: usize = 1024;
/// Stamps per shard: a write keeps readers from caching what they read before it, for one key in so many.
const STAMPS: usize = 16;

pub(crate) struct RowIndex {
    shards: Box<[RwLock<Shard>]>,
    hasher: RandomState,
    budget: Arc<MemoryBudget>,
    /// The shard at which the next eviction starts.
    hand: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    entries: HashTable<Entry>,
    stamps: [u32; STAMPS],
}

struct Entry {
    hash: u64,
    generation: u64,
    key: Arc<[u8]>,
    head: Version,
    /// The horizon to which the versions were trimmed last.
    trimmed_to: Timestamp,
    /// Read since the eviction hand last came by.
    visited: AtomicBool,
}

/// A key of one tablet generation, hashed once.
#[derive(Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    pub hash: u64,
    pub generation: u64,
    pub key: &'a [u8],
}

impl KeyRef<'_> {
    fn is(&self, entry: &Entry) -> bool {
        entry.hash == self.hash && entry.generation == self.generation && *entry.key == *self.key
    }

    fn stamp(&self) -> usize {
        (self.hash >> 32) as usize % STAMPS
    }
}

/// What a reader that found nothing must show to cache what it then reads from a file.
#[derive(Clone, Copy)]
pub(crate) struct Stamp(u32);

/// A new version to apply.
pub(crate) struct NewVersion<'a> {
    pub ts: Timestamp,
    pub lsn: u64,
    pub memtable: u64,
    /// `None`: the row is deleted.
    pub row: Option<&'a [u8]>,
    /// What is known of an older copy in the SSTables if no version is in memory.
    pub older: Older,
}

pub(crate) struct Applied {
    /// The entry's key, if this is its first version in the memtable.
    pub first: Option<Arc<[u8]>>,
    /// By how much the memtable grew.
    pub bytes: i64,
}

/// Where a flush left a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    At(Location),
    /// It was a delete, and is now marks; or nobody could read it any more.
    Gone,
}

impl RowIndex {
    pub fn new(budget: Arc<MemoryBudget>) -> Self {
        RowIndex {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: RandomState::default(),
            budget,
            hand: AtomicUsize::new(0),
        }
    }

    pub fn key<'a>(&self, generation: u64, key: &'a [u8]) -> KeyRef<'a> {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(generation);
        hasher.write(key);
        KeyRef { hash: hasher.finish(), generation, key }
    }

    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        // The table inside a shard uses the low bits and the top seven.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    /// Calls `read` with the newest version of `key`, under the shard's lock.
    ///
    /// # Errors
    /// The stamp to [`fill`](Self::fill) with, if the key is not in memory.
    pub fn read<R>(&self, key: KeyRef<'_>, read: impl FnOnce(&Version) -> R) -> Result<R, Stamp> {
        let shard = self.shard(key.hash).read();
        match shard.entries.find(key.hash, |entry| key.is(entry)) {
            Some(entry) => {
                if !entry.visited.load(Relaxed) {
                    entry.visited.store(true, Relaxed);
                }
                Ok(read(&entry.head))
            }
            None => Err(Stamp(shard.stamps[key.stamp()])),
        }
    }

    /// Makes `new` the newest version of `key`. Versions below it stay as long as a snapshot at or above `horizon`
    /// may read them. `in_files` says whether the tablet's present files may hold the key; it is asked, without I/O,
    /// only if the key is seen to be absent here: whatever was unpinned before is in those files, and what they do
    /// not hold then can come into them only from here.
    pub fn apply(
        &self,
        key: KeyRef<'_>,
        new: NewVersion<'_>,
        horizon: Timestamp,
        in_files: impl FnOnce() -> bool,
    ) -> Applied {
        let memtable = new.memtable;
        let mut version = Version::new(new);
        let grown = version.bytes(key.key);
        self.budget.memtables_grew(grown);
        let mut shard = self.shard(key.hash).write();
        let stamp = &mut shard.stamps[key.stamp()];
        *stamp = stamp.wrapping_add(1);
        match shard.entries.entry(key.hash, |entry| key.is(entry), |entry| entry.hash) {
            Slot::Vacant(slot) => {
                if version.older == (Older::Unresolved { below: 0 }) && !in_files() {
                    version.older = Older::Nothing;
                }
                let shared: Arc<[u8]> = key.key.into();
                slot.insert(Entry {
                    hash: key.hash,
                    generation: key.generation,
                    key: shared.clone(),
                    head: version,
                    trimmed_to: Timestamp::MIN,
                    visited: AtomicBool::new(false),
                });
                Applied { first: Some(shared), bytes: grown as i64 }
            }
            Slot::Occupied(mut slot) => {
                let entry = slot.get_mut();
                version.older = entry.head.older_for_successor(memtable);
                let first = (entry.head.memtable != memtable).then(|| entry.key.clone());
                let previous = std::mem::replace(&mut entry.head, version);
                entry.head.previous = Some(Box::new(previous));
                let freed = self.trim_entry(entry, horizon, memtable);
                Applied { first, bytes: grown as i64 - freed as i64 }
            }
        }
    }

    /// Frees the versions of `key` that no snapshot at or above `horizon` reads. Returns the bytes freed that counted
    /// for `memtable`.
    pub fn trim(&self, key: KeyRef<'_>, horizon: Timestamp, memtable: u64) -> u64 {
        let mut shard = self.shard(key.hash).write();
        match shard.entries.find_mut(key.hash, |entry| key.is(entry)) {
            Some(entry) => self.trim_entry(entry, horizon, memtable),
            None => 0,
        }
    }

    fn trim_entry(&self, entry: &mut Entry, horizon: Timestamp, memtable: u64) -> u64 {
        // A chain under an old snapshot can be long. What has come since it was trimmed is above that horizon, as
        // horizons are at or below the watermark.
        if entry.trimmed_to == horizon && entry.head.ts > horizon {
            return 0;
        }
        entry.trimmed_to = horizon;
        let mut version = &mut entry.head;
        while version.ts > horizon {
            match &mut version.previous {
                Some(previous) => version = previous,
                None => return 0,
            }
        }
        self.free(version.previous.take(), &entry.key, memtable)
    }

    /// Frees a chain of versions of `key`. Returns the bytes that counted for `memtable`.
    fn free(&self, mut rest: Option<Box<Version>>, key: &[u8], memtable: u64) -> u64 {
        let mut freed = 0;
        while let Some(mut version) = rest {
            self.uncount(&version, key);
            if version.memtable == memtable {
                freed += version.bytes(key);
            }
            rest = version.previous.take();
        }
        freed
    }

    fn uncount(&self, version: &Version, key: &[u8]) {
        let bytes = version.bytes(key);
        if version.is_clean() { self.budget.cache_shrank(bytes) } else { self.budget.memtables_shrank(bytes) }
    }

    /// Caches a row that was read from an SSTable, unless a write came since `stamp`.
    pub fn fill(&self, key: KeyRef<'_>, stamp: Stamp, row: &[u8], ts: Timestamp, home: Location) {
        let version = Version::clean(row, ts, home);
        let bytes = version.bytes(key.key);
        // Where nothing is left to the cache, each fill would look through the whole index for something to evict.
        if bytes > self.budget.cache_max() {
            return;
        }
        {
            let mut shard = self.shard(key.hash).write();
            if shard.stamps[key.stamp()] != stamp.0 {
                return;
            }
            let entry = shard.entries.entry(key.hash, |entry| key.is(entry), |entry| entry.hash);
            let Slot::Vacant(slot) = entry else { return };
            slot.insert(Entry {
                hash: key.hash,
                generation: key.generation,
                key: key.key.into(),
                head: version,
                trimmed_to: Timestamp::MIN,
                visited: AtomicBool::new(false),
            });
            self.budget.cache_grew(bytes);
        }
        self.evict_excess();
    }

    /// A flush of `memtable` is installed: its version of `key` stays as row cache if it is the newest. Older versions
    /// go, whatever snapshots read: they are in the files by now, with their marks, because memtables are flushed in
    /// order. `flushed` says, newest first, where each version is; those that it does not name nobody could read.
    pub fn unpin(&self, key: KeyRef<'_>, memtable: u64, flushed: &[(Timestamp, Flushed)]) {
        let mut shard = self.shard(key.hash).write();
        let Slot::Occupied(mut slot) =
            shard.entries.entry(key.hash, |entry| key.is(entry), |entry| entry.hash)
        else {
            return;
        };
        let head = &slot.get().head;
        if head.memtable == memtable && head.row.is_none() {
            let (entry, _) = slot.remove();
            self.forget(&entry);
            return;
        }
        // Of versions that one write made the newest comes first, and is the one that counts.
        let place = |ts: Timestamp| match flushed.get(flushed.partition_point(|(at, _)| *at > ts)) {
            Some((at, place)) if *at == ts => *place,
            _ => Flushed::Gone,
        };
        let mut version = &mut slot.get_mut().head;
        while version.previous.as_ref().is_some_and(|previous| previous.memtable > memtable) {
            version = version.previous.as_mut().expect("just seen");
        }
        if version.memtable == memtable {
            let bytes = version.bytes(key.key);
            self.budget.memtables_shrank(bytes);
            self.budget.cache_grew(bytes);
            version.memtable = Version::CLEAN;
            version.older = match place(version.ts) {
                Flushed::At(home) => Older::At(home),
                Flushed::Gone => Older::Nothing,
            };
        } else if version.older == (Older::Unresolved { below: memtable })
            && let Some(previous) = &version.previous
            && previous.memtable == memtable
        {
            // The first version above the memtable's learns where its older copy now lies.
            match place(previous.ts) {
                Flushed::At(home) => version.older = Older::At(home),
                Flushed::Gone if previous.row.is_none() => version.older = Older::Nothing,
                Flushed::Gone => {}
            }
        }
        self.free(version.previous.take(), key.key, memtable);
    }

    /// Records where the older copy of an unflushed version lies, so that it is looked up once.
    pub fn resolve(&self, key: KeyRef<'_>, ts: Timestamp, older: Older) {
        let mut shard = self.shard(key.hash).write();
        let Some(entry) = shard.entries.find_mut(key.hash, |entry| key.is(entry)) else { return };
        let mut version = Some(&mut entry.head);
        while let Some(v) = version {
            if v.ts == ts && !v.is_clean() {
                v.older = older;
                return;
            }
            version = v.previous.as_deref_mut();
        }
    }

    /// Evicts clean rows until the budget holds.
    pub fn evict_excess(&self) {
        let excess = self.budget.cache_excess();
        if excess > 0 {
            // A little more, so that the next fill does not have to evict again.
            self.evict(excess + self.budget.limit() / 256);
        }
    }

    /// Evicts clean rows of `bytes` in total, those first that were not read since the hand last came by.
    fn evict(&self, bytes: u64) {
        let mut freed = 0;
        // Twice around: the first pass may only clear the marks of visited entries.
        for _ in 0..2 * SHARDS {
            if freed >= bytes || self.budget.cache() == 0 {
                return;
            }
            let hand = self.hand.fetch_add(1, Relaxed) % SHARDS;
            let mut shard = self.shards[hand].write();
            shard.entries.retain(|entry| {
                if freed >= bytes || !entry.head.is_clean() || entry.visited.swap(false, Relaxed) {
                    return true;
                }
                freed += self.forget(entry);
                false
            });
        }
    }

    /// Forgets every entry of a generation that was dropped or truncated.
    pub fn sweep(&self, generation: u64) {
        for shard in &self.shards {
            shard.write().entries.retain(|entry| {
                let gone = entry.generation == generation;
                if gone {
                    self.forget(entry);
                }
                !gone
            });
        }
    }

    /// Takes an entry that goes out of the books; returns its bytes.
    fn forget(&self, entry: &Entry) -> u64 {
        let mut bytes = 0;
        let mut next = Some(&entry.head);
        while let Some(version) = next {
            self.uncount(version, &entry.key);
            bytes += version.bytes(&entry.key);
            next = version.previous.as_deref();
        }
        bytes
    }

    /// Entries in memory.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().entries.len()).sum()
    }
}
