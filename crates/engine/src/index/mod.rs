//! Row index: the newest version of every row that is in memory.
//!
//! A key that is absent here is in no memtable, so a reader goes straight to the SSTables. Entries whose newest
//! version is in an SSTable too are *clean*: they are the row cache, and evicting one never changes an answer.
//!
//! The structure is [`oribi_index`]: readers take no lock and allocate nothing, and pay two cache misses. Threads at
//! idle priority must not call in here: they would hold a lock that serving threads want, or keep memory from being
//! reused.

mod lineage;
#[cfg(test)]
mod model;
mod version;

pub(crate) use lineage::{HandingOn, Lineage, Taking};
pub use version::Location;
pub(crate) use version::{Meta, Older, Version, VersionRef};

use crate::memory::MemoryBudget;
use foldhash::fast::RandomState;
use oribi_env::locks::{self, Entered};
pub(crate) use oribi_index::Guard;
pub(crate) use oribi_index::Stamp;
use oribi_index::{Entry, Occupied, pin};
use oribi_types::Timestamp;
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Look-ups whose cache misses overlap. A bit of a word for each.
pub(crate) const GROUP: usize = u64::BITS as usize;
/// What an entry takes beside its block: its place in the hash table and in the memtable's lists of hashes.
const ENTRY_BYTES: u64 = 32;
/// Rows of a dropped table are taken from the budget so many bytes at a time.
const COUNTED_BYTES: u64 = 1 << 20;

/// Those of [`lineage`], whose model has others.
mod atomic {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

pub(crate) struct RowIndex {
    rows: oribi_index::Index<Meta>,
    hasher: KeyHasher,
    budget: Arc<MemoryBudget>,
    /// How often clean rows were evicted.
    evictions: AtomicU64,
}

/// How keys are hashed, in this process.
#[derive(Clone, Default)]
pub(crate) struct KeyHasher(RandomState);

impl KeyHasher {
    #[inline]
    pub fn hash(&self, generation: u64, key: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write_u64(generation);
        hasher.write(key);
        hasher.finish()
    }
}

/// A key of one tablet generation, hashed once.
#[derive(Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    pub hash: u64,
    pub generation: u64,
    pub key: &'a [u8],
}

impl KeyRef<'_> {
    pub fn is(&self, version: &Version) -> bool {
        version.meta.generation == self.generation && version.key() == self.key
    }

    fn meta(&self, ts: Timestamp, lsn: u64, lineage: Lineage) -> Meta {
        Meta { ts, lsn, generation: self.generation, lineage }
    }

    fn version<'v>(&'v self, row: Option<&'v [u8]>, meta: Meta) -> oribi_index::NewVersion<'v, Meta> {
        oribi_index::NewVersion { hash: self.hash, key: self.key, row, meta }
    }
}

/// A group of rows that were fetched ahead.
pub(crate) struct Ahead {
    pinned: Guard,
    /// A bit for each whose row was wanted: none of its hash was in memory.
    pub absent: u64,
}

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

/// Where a new version was put.
pub(crate) struct Placed {
    /// If it is the key's first in its memtable, what is known of an older copy.
    pub first: Option<Older>,
    /// The memtable of the version below it; [`Lineage::CLEAN`] if there is none, or none has it.
    pub before: u64,
    pub is_deleted: bool,
}

/// What became of one new version, or of several; see [`RowIndex::count`].
#[derive(Default)]
pub(crate) struct Applied {
    grown: u64,
    freed: Freed,
    /// Whether versions are left below it, for [`RowIndex::trim`].
    pub covers: bool,
}

impl Applied {
    /// By how much the memtable grew.
    pub fn bytes(&self) -> i64 {
        self.grown as i64 - self.freed.memtable as i64
    }

    pub fn is_none(&self) -> bool {
        self.grown == 0
    }

    pub fn add(&mut self, other: &Applied) {
        self.grown += other.grown;
        self.freed.memtable += other.freed.memtable;
        self.freed.memtables += other.freed.memtables;
    }
}

/// Bytes of versions that were cut off.
#[derive(Default)]
struct Freed {
    /// Those that counted for one memtable …
    memtable: u64,
    /// … and for any.
    memtables: u64,
}

/// Memory that a version is charged with, its share of the entry included.
fn charge(version: &Version) -> u64 {
    version.bytes() as u64 + ENTRY_BYTES
}

/// The newest version at or below `ts`.
pub(crate) fn version_at(newest: &Version, ts: Timestamp) -> Option<&Version> {
    let mut version = newest;
    while version.meta.ts > ts {
        version = version.previous()?;
    }
    Some(version)
}

impl RowIndex {
    pub fn new(budget: Arc<MemoryBudget>) -> Self {
        let evictions = AtomicU64::new(0);
        RowIndex { rows: oribi_index::Index::default(), hasher: KeyHasher::default(), budget, evictions }
    }

    pub fn key<'a>(&self, generation: u64, key: &'a [u8]) -> KeyRef<'a> {
        KeyRef { hash: self.hasher.hash(generation, key), generation, key }
    }

    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// The first stage of a read among many: fetches the bucket.
    pub fn prefetch_bucket(&self, key: KeyRef<'_>, pinned: &Guard) {
        self.rows.prefetch_bucket(key.hash, pinned);
    }

    /// The second stage: what is likely the newest version; with `ahead`, it is fetched.
    pub fn approach<'g>(&'g self, key: KeyRef<'_>, pinned: &'g Guard, ahead: bool) -> Option<&'g Version> {
        self.rows.approach(key.hash, pinned, ahead)
    }

    /// Calls `read` with the newest version of `key`.
    ///
    /// # Errors
    /// The stamp to [`fill`](Self::fill) with, if the key is not in memory.
    pub fn read<R>(&self, key: KeyRef<'_>, read: impl FnOnce(&Version) -> R) -> Result<R, Stamp> {
        let guard = pin();
        let newest = self.rows.find(key.hash, &guard, |version| key.is(version))?;
        newest.touch();
        Ok(read(newest))
    }

    /// Calls `visit` with the newest version of every row of `generation` that has one of `hashes`, once.
    pub fn visit(
        &self,
        generation: u64,
        hashes: impl Iterator<Item = u64>,
        mut visit: impl FnMut(u64, &Version),
    ) {
        self.visit_part(generation, hashes, false, &mut Vec::new(), |rows| {
            rows.iter().for_each(|row| visit(row.hash(), row));
        });
    }

    /// As [`visit`](Self::visit), some dozens of rows at a time, for a part of the hashes: `shared` is what the parts before have made of
    /// an empty list. With `with_rows`, more than the keys is fetched ahead.
    pub fn visit_part(
        &self,
        generation: u64,
        hashes: impl Iterator<Item = u64>,
        with_rows: bool,
        shared: &mut Vec<u64>,
        mut visit: impl FnMut(&[&Version]),
    ) {
        // Rows of one hash are listed once each, and found together at each.
        self.rows.walk(hashes, with_rows, |found| {
            let mut rows: SmallVec<[&Version; GROUP]> = SmallVec::new();
            for of_hash in found.chunk_by(|a, b| a.0 == b.0) {
                let before = rows.len();
                rows.extend(
                    of_hash.iter().map(|(_, row)| *row).filter(|row| row.meta.generation == generation),
                );
                if rows.len() > before + 1 {
                    let hash = rows[before].hash();
                    match shared.contains(&hash) {
                        true => rows.truncate(before),
                        false => shared.push(hash),
                    }
                }
            }
            visit(&rows);
        });
    }

    /// Calls `visit` with the position and the newest version of each of `keys` that is in memory. It does not count as
    /// a read.
    pub fn visit_keys(&self, keys: &[KeyRef<'_>], mut visit: impl FnMut(usize, &Version)) {
        for (g, group) in keys.chunks(GROUP).enumerate() {
            let ahead = self.fetch_ahead(group.iter().map(|key| (key.hash, true)));
            for (i, key) in group.iter().enumerate() {
                if let Ok(newest) = self.rows.find(key.hash, &ahead.pinned, |version| key.is(version)) {
                    visit(g * GROUP + i, newest);
                }
            }
        }
    }

    /// As [`visit_keys`](Self::visit_keys), of at most [`GROUP`] keys, for who wants nothing of their rows.
    pub fn visit_group(&self, keys: &[KeyRef<'_>], mut visit: impl FnMut(usize, &Version)) {
        debug_assert!(keys.len() <= GROUP, "they are one group of a walk");
        self.rows.walk(keys.iter().map(|key| key.hash), false, |found| {
            let found = found.iter().filter(|(i, version)| keys[*i].is(version));
            found.for_each(|(i, version)| visit(*i, version));
        });
    }

    /// Has the places of at most [`GROUP`] hashes fetched, and the rows of those that want them, so that the cache misses of
    /// what is done with them next overlap. Where they all come while what it returns is held, they are pinned once.
    pub fn fetch_ahead(&self, hashes: impl Iterator<Item = (u64, bool)> + Clone) -> Ahead {
        let (pinned, mut absent) = (pin(), 0);
        hashes.clone().for_each(|(hash, _)| self.rows.prefetch_bucket(hash, &pinned));
        for (i, (hash, wants_row)) in hashes.enumerate() {
            if wants_row && self.rows.approach(hash, &pinned, true).is_none() {
                absent |= 1 << i;
            }
        }
        Ahead { pinned, absent }
    }

    /// Makes `new` the newest version of `key`. `placed` is called once it is, and returns the horizon: versions below stay as long as a snapshot at or above it may
    /// read them. `in_files` says whether the tablet's present files may hold the key; it is asked, without I/O, only if the
    /// key is seen to be absent here: whatever was unpinned before is in those files, and what they do not hold then can come
    /// into them only from here. Both are called under the shard's lock. What was applied is the caller's to
    /// [`count`](Self::count) before the memtable can be sealed.
    pub fn apply(
        &self,
        key: KeyRef<'_>,
        new: NewVersion<'_>,
        placed: impl FnOnce(Placed) -> Timestamp,
        in_files: impl FnOnce() -> bool,
    ) -> Applied {
        let NewVersion { ts, lsn, memtable, row, mut older } = new;
        let grown = Version::bytes_for(key.key.len(), row.map_or(0, <[u8]>::len)) as u64 + ENTRY_BYTES;
        let is_deleted = row.is_none();
        let guard = pin();
        let _shard = Entered::<{ locks::SHARD }>::waiting();
        match self.rows.lock(key.hash).entry(key.hash, |version| key.is(version)) {
            Entry::Vacant(shard) => {
                if older == (Older::Unresolved { below: 0 }) && !in_files() {
                    older = Older::Nothing;
                }
                let meta = key.meta(ts, lsn, Lineage::new(memtable, older));
                shard.insert(key.version(row, meta), &guard);
                placed(Placed { first: Some(older), before: Lineage::CLEAN, is_deleted });
                Applied { grown, ..Applied::default() }
            }
            Entry::Occupied(mut entry) => {
                let lineage_before = &entry.newest().meta.lineage;
                let before = lineage_before.memtable();
                let first = before != memtable;
                let older = lineage_before.older_for_successor(memtable);
                let lineage = Lineage::new(memtable, older);
                lineage.inherit_trimmed(lineage_before);
                entry.push(key.version(row, key.meta(ts, lsn, lineage)));
                let horizon = placed(Placed { first: first.then_some(older), before, is_deleted });
                let freed = self.trim_entry(&mut entry, &guard, horizon, memtable);
                Applied { grown, freed, covers: ts > horizon }
            }
        }
    }

    /// Counts in the budget what was applied.
    pub fn count(&self, applied: &Applied) {
        self.budget.memtables_changed(applied.grown, applied.freed.memtables);
    }

    /// Frees the versions of `key` that no snapshot at or above `horizon` reads. Returns the bytes freed that counted
    /// for `memtable`.
    pub fn trim(&self, key: KeyRef<'_>, horizon: Timestamp, memtable: u64) -> u64 {
        let guard = pin();
        let _shard = Entered::<{ locks::SHARD }>::waiting();
        let freed = match self.rows.lock(key.hash).entry(key.hash, |version| key.is(version)) {
            Entry::Occupied(mut entry) => self.trim_entry(&mut entry, &guard, horizon, memtable),
            Entry::Vacant(_) => Freed::default(),
        };
        self.budget.memtables_changed(0, freed.memtables);
        freed.memtable
    }

    #[inline(always)]
    fn trim_entry(
        &self,
        entry: &mut Occupied<'_, '_, Meta>,
        guard: &Guard,
        horizon: Timestamp,
        memtable: u64,
    ) -> Freed {
        // A chain under an old snapshot can be long. What has come since it was trimmed is above that horizon, as
        // horizons are at or below the watermark.
        let newest = &entry.newest().meta;
        if newest.lineage.note_trimmed(horizon.0) && newest.ts > horizon {
            return Freed::default();
        }
        self.cut(entry, guard, memtable, |version| version.meta.ts <= horizon)
    }

    /// Forgets what lies below the version for which `is_last` holds. What counted for memtables is the caller's to
    /// take from the budget.
    fn cut(
        &self,
        entry: &mut Occupied<'_, '_, Meta>,
        guard: &Guard,
        memtable: u64,
        is_last: impl Fn(&Version) -> bool,
    ) -> Freed {
        let (mut freed, mut handing_on) = (Freed::default(), HandingOn::default());
        entry.cut(guard, is_last, |last, version| {
            let bytes = charge(version);
            match version.meta.memtable() {
                Lineage::CLEAN => self.budget.cache_shrank(bytes),
                of => {
                    freed.memtables += bytes;
                    freed.memtable += if of == memtable { bytes } else { 0 };
                }
            }
            handing_on.hand_on(&last.meta.lineage, &version.meta.lineage);
        });
        freed
    }

    fn uncount(&self, version: &Version) {
        let bytes = charge(version);
        if version.meta.is_clean() {
            self.budget.cache_shrank(bytes);
        } else {
            self.budget.memtables_shrank(bytes);
        }
    }

    /// Caches a row that was read from an SSTable, unless a write came since `stamp`.
    pub fn fill(&self, key: KeyRef<'_>, stamp: Stamp, row: &[u8], ts: Timestamp, home: Location) {
        let bytes = Version::bytes_for(key.key.len(), row.len()) as u64 + ENTRY_BYTES;
        // Where nothing is left to the cache, each fill would look through the whole index for something to evict.
        if bytes > self.budget.cache_max() {
            return;
        }
        let (guard, entered) = (pin(), Entered::<{ locks::SHARD }>::waiting());
        if let Entry::Vacant(shard) = self.rows.lock(key.hash).entry(key.hash, |version| key.is(version)) {
            let meta = key.meta(ts, 0, Lineage::new(Lineage::CLEAN, Older::At(home)));
            if shard.fill(key.version(Some(row), meta), stamp, &guard).is_some() {
                self.budget.cache_grew(bytes);
            }
        }
        drop((guard, entered));
        self.evict_excess();
    }

    /// What readers have read of files by now is not cached any more.
    pub fn outdate_fills(&self) {
        let _shards = Entered::<{ locks::SHARD }>::waiting();
        self.rows.bump_all();
    }

    /// Forgets the clean rows of `generation` that have one of `hashes`.
    pub fn forget(&self, generation: u64, hashes: &[u64]) {
        let is_wanted = |version: &Version| version.meta.generation == generation && version.meta.is_clean();
        for group in hashes.chunks(GROUP) {
            if self.budget.cache() == 0 {
                return;
            }
            let ahead = self.fetch_ahead(group.iter().map(|hash| (*hash, true)));
            let present = group.iter().enumerate().filter(|(i, _)| ahead.absent >> i & 1 == 0);
            for (_, &hash) in present {
                let _shard = Entered::<{ locks::SHARD }>::waiting();
                let mut shard = self.rows.lock(hash);
                while let Entry::Occupied(entry) = shard.entry(hash, is_wanted) {
                    entry.remove(&ahead.pinned, |version| self.uncount(version));
                }
            }
        }
    }

    /// A flush of `memtable` is installed: its version of `key` stays as row cache if it is the newest. Older versions
    /// go, whatever snapshots read: they are in the files by now, with their marks, because memtables are flushed in
    /// order. `home` is where the newest of the memtable's versions is, if it has a row and somebody could read it.
    pub fn unpin(&self, key: KeyRef<'_>, memtable: u64, home: Option<Location>) {
        let guard = pin();
        let _entered = Entered::<{ locks::SHARD }>::waiting();
        let mut shard = self.rows.lock(key.hash);
        let Entry::Occupied(mut entry) = shard.entry(key.hash, |version| key.is(version)) else { return };
        let newest = entry.newest();
        if newest.meta.memtable() == memtable && newest.row().is_none() {
            entry.remove(&guard, |version| self.uncount(version));
            return;
        }
        let is_last = |version: &Version| {
            version.previous().is_none_or(|previous| previous.meta.memtable() <= memtable)
        };
        let mut version = newest;
        while !is_last(version) {
            version = version.previous().expect("just seen");
        }
        if version.meta.lineage.place(memtable, home) {
            let bytes = charge(version);
            self.budget.memtables_shrank(bytes);
            self.budget.cache_grew(bytes);
        }
        let freed = self.cut(&mut entry, &guard, memtable, is_last);
        self.budget.memtables_changed(0, freed.memtables);
        if entry.newest().meta.is_clean() {
            entry.admit();
        }
    }

    /// Records where the older copy of an unflushed version lies that said `asked`, so that it is looked up once.
    pub fn resolve(&self, key: KeyRef<'_>, ts: Timestamp, asked: Older, found: Older) {
        let _entered = Entered::<{ locks::SHARD }>::waiting();
        let mut shard = self.rows.lock(key.hash);
        let Entry::Occupied(entry) = shard.entry(key.hash, |version| key.is(version)) else { return };
        let mut versions = std::iter::successors(Some(entry.newest()), |version| version.previous());
        // One write may have made several versions; the oldest was asked.
        if let Some(version) = versions.find(|v| v.meta.ts == ts && v.meta.lineage.older() == asked) {
            version.meta.lineage.resolve(asked, found);
        }
    }

    /// Evicts clean rows until the budget holds.
    pub fn evict_excess(&self) {
        let excess = self.budget.cache_excess();
        if excess > 0 && self.budget.cache() > 0 {
            // A little more, so that the next fill does not have to evict again.
            let bytes = excess + self.budget.limit() / 256;
            self.evictions.fetch_add(1, Relaxed);
            self.rows.evict(bytes, |version| version.meta.is_clean(), |version| self.uncount(version));
        }
    }

    /// Another number than before if clean rows have been evicted since.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }

    /// Forgets every entry of generations that were dropped or truncated, in one walk over all rows.
    pub fn sweep(&self, mut generations: Vec<u64>) {
        generations.sort_unstable();
        let keep = |version: &Version| generations.binary_search(&version.meta.generation).is_err();
        // Counted by the MiB: the counters are those of all threads, and others wait for room.
        let (mut of_cache, mut of_memtables) = (0, 0);
        let count = |of_cache: &mut u64, of_memtables: &mut u64| {
            self.budget.cache_shrank(std::mem::take(of_cache));
            self.budget.memtables_shrank(std::mem::take(of_memtables));
        };
        self.rows.retain(keep, |version| {
            *(if version.meta.is_clean() { &mut of_cache } else { &mut of_memtables }) += charge(version);
            if of_cache + of_memtables >= COUNTED_BYTES {
                count(&mut of_cache, &mut of_memtables);
            }
        });
        count(&mut of_cache, &mut of_memtables);
    }

    /// Entries in memory.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
}
