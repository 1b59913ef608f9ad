//! A memtable: which keys a tablet wrote since its last flush. The rows themselves are in the row index.

mod blocks;
mod counted;
mod covered;
mod list;
mod replaced;

use crate::index::{Applied, KeyRef, Lineage, NewVersion, Older, Placed, RowIndex};
use crate::memory::MemoryBudget;
use crate::ordered::OrderedView;
use crate::tablet::TabletState;
use crate::walk::Walks;
pub(crate) use blocks::{BLOCK_ROWS, Block, Blocks, Wanted};
pub(crate) use counted::Counted;
use covered::Covered;
use list::KeyList;
pub(crate) use list::{Listed, Listing};
use oribi_env::locks::{self, Mutex};
use oribi_types::Timestamp;
use replaced::ReplacedRows;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// Written to while it is a tablet's active one; sealed, it awaits its flush.
pub(crate) struct Memtable {
    /// Unique in the engine and ascending in a tablet; 0 is no memtable.
    pub id: u64,
    /// Of the tablet: all rows in it are of this one.
    pub generation: u64,
    listing: Listing,
    keys: KeyList,
    /// Of them, those whose first version in it may replace a row of a file. Later ones of a key replace what the first
    /// does, and what is known to replace nothing never will.
    replacing: KeyList,
    /// Those of which a scan has to ask the row index what it sees.
    covered: Covered,
    /// Those of the tablet that were not in files when this one began.
    older: Vec<Weak<Memtable>>,
    bytes: AtomicI64,
    /// LSN of the first record in it; `u64::MAX` while it is empty.
    first_lsn: AtomicU64,
    /// … and of the newest, noted before its rows are published.
    newest_lsn: AtomicU64,
    /// When sealed: every record of the tablet at or below this is in it or was flushed before.
    last_lsn: AtomicU64,
    /// The newest record at the last look, and the time of the first look that found it.
    seen: Mutex<(u64, u64), { locks::LEAF }>,
    /// Those under way over its rows.
    pub walks: Walks,
    /// Made by the first range read.
    ordered: OnceLock<Box<OrderedView>>,
    /// Made by the first scan.
    replaced: OnceLock<Box<ReplacedRows>>,
    blocks: OnceLock<Box<Blocks>>,
}

impl Memtable {
    /// The first of a generation.
    pub fn new(id: u64, generation: u64, listing: Listing) -> Arc<Self> {
        Memtable::after(id, generation, listing, Vec::new())
    }

    /// One that takes over from the active one of `state`.
    pub fn succeed(state: &TabletState, id: u64) -> Arc<Self> {
        let Memtable { generation, listing, .. } = &*state.active;
        Memtable::after(id, *generation, listing.clone(), state.memtables().map(Arc::downgrade).collect())
    }

    fn after(id: u64, generation: u64, listing: Listing, older: Vec<Weak<Memtable>>) -> Arc<Self> {
        Arc::new(Memtable {
            id,
            generation,
            listing,
            keys: KeyList::default(),
            replacing: KeyList::default(),
            covered: Covered::default(),
            older,
            bytes: AtomicI64::new(0),
            first_lsn: AtomicU64::new(u64::MAX),
            newest_lsn: AtomicU64::new(0),
            last_lsn: AtomicU64::new(0),
            seen: Mutex::default(),
            walks: Walks::default(),
            ordered: OnceLock::new(),
            replaced: OnceLock::new(),
            blocks: OnceLock::new(),
        })
    }

    /// Makes `new` the newest version of `key` in the row index, and its key one of this memtable; then calls
    /// `published`, which returns the horizon, under the shard's lock. `in_files` is as [`RowIndex::apply`] has it.
    /// Returns whether older versions of the row are left to [`trim`](Self::trim).
    pub fn apply(
        &self,
        index: &RowIndex,
        key: KeyRef<'_>,
        new: NewVersion<'_>,
        published: impl FnOnce() -> Timestamp,
        in_files: impl FnOnce() -> bool,
    ) -> bool {
        self.note(new.lsn);
        let ts = new.ts;
        let placed = |placed: Placed| {
            // Before it is published: a scan finds the row by this.
            self.cover(key.hash, &placed);
            if let Some(older) = placed.first {
                let word = self.listing.word(key);
                self.keys.extend(&[word], ts);
                if older != Older::Nothing {
                    self.replacing.extend(&[word], ts);
                }
            }
            published()
        };
        let applied = index.apply(key, new, placed, in_files);
        index.count(&applied);
        self.grew(applied.bytes());
        applied.covers
    }

    /// Frees the versions of `key` that no snapshot at or above `horizon` reads.
    pub fn trim(&self, index: &RowIndex, key: KeyRef<'_>, horizon: Timestamp) {
        self.grew(-(index.trim(key, horizon, self.id) as i64));
    }

    /// Takes note of a record before its first key is pushed.
    pub fn note(&self, lsn: u64) {
        // As a rule the first is known, and to look is cheaper than to change.
        if lsn < self.first_lsn() {
            self.first_lsn.fetch_min(lsn, Relaxed);
        }
        self.newest_lsn.fetch_max(lsn, Relaxed);
    }

    pub fn grew(&self, bytes: i64) {
        if bytes != 0 {
            self.bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// What [`RowIndex::visit`] finds the rows by.
    pub fn hashes(&self) -> impl Iterator<Item = u64> {
        self.hashes_from(0)
    }

    /// Hashes of rows that may replace one of a file, without the first `skip`.
    fn replacing_from(&self, skip: usize) -> impl Iterator<Item = u64> {
        self.replacing.iter_from(skip).map(|word| self.listing.hash(self.generation, word))
    }

    /// Some of the hashes with these numbers, from the first on; none only if there are none.
    pub fn hashes_of(&self, numbers: Range<usize>) -> impl ExactSizeIterator<Item = u64> {
        let words = self.keys.part(numbers).words;
        words.into_iter().map(|word| self.listing.hash(self.generation, word))
    }

    /// As [`hashes`](Self::hashes), without the first `skip`.
    pub fn hashes_from(&self, skip: usize) -> impl Iterator<Item = u64> {
        self.keys.iter_from(skip).map(|word| self.listing.hash(self.generation, word))
    }

    /// Some of the [keys](Listing::Keys) with these numbers, as [`hashes_of`](Self::hashes_of).
    pub fn keys_of(&self, numbers: Range<usize>) -> Listed {
        self.keys.part(numbers)
    }

    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// Whether a look at the row index is to tell what a scan sees of the key that is listed as `word`: if not, it is the first
    /// version that came, which has a row.
    pub fn is_covered(&self, word: u64) -> bool {
        self.has_covered() && self.covered.has(self.listing.hash(self.generation, word))
    }

    /// As [`is_covered`](Self::is_covered), of the keys with a hash.
    pub fn is_hash_covered(&self, hash: u64) -> bool {
        self.covered.has(hash)
    }

    /// Whether any key may be covered.
    pub fn has_covered(&self) -> bool {
        !self.covered.is_empty()
    }

    /// Of the first `len` of [`hashes`](Self::hashes), those that have all keys of which more than one version came, and perhaps
    /// others.
    pub fn covered_hashes(&self, len: usize) -> Vec<u64> {
        if !self.has_covered() {
            return Vec::new();
        }
        self.hashes().take(len).filter(|hash| self.covered.has(*hash)).collect()
    }

    /// Notes, before it is published, that of this key more has come than one version with a row.
    #[inline]
    fn cover(&self, hash: u64, placed: &Placed) {
        if placed.before == self.id {
            self.covered.add(hash);
        } else if placed.before != Lineage::CLEAN || placed.is_deleted {
            self.cover_first(hash, placed);
        }
    }

    /// As [`cover`](Self::cover), by the first version in this memtable.
    #[cold]
    fn cover_first(&self, hash: u64, placed: &Placed) {
        if placed.is_deleted {
            self.covered.add(hash);
        }
        // One that is in a file by now has no scans.
        let before = self.older.iter().filter_map(Weak::upgrade).find(|m| m.id == placed.before);
        before.inspect(|memtable| memtable.covered.add(hash));
    }

    pub fn ordered(&self, budget: &Arc<MemoryBudget>) -> &OrderedView {
        self.ordered.get_or_init(|| Box::new(OrderedView::new(budget)))
    }

    /// Its rows leave memory, as was published: see [`Walks::end`]. What readers have made of them goes, since who has it open still may
    /// keep it for long.
    pub fn end_walks(&self) {
        self.walks.end();
        self.replaced.get().inspect(|replaced| replaced.forget(self));
        self.blocks.get().inspect(|blocks| blocks.forget(self));
    }

    /// What its rows replace in files, as far as scans have asked.
    pub fn replaced(&self, budget: &Arc<MemoryBudget>) -> &ReplacedRows {
        self.replaced.get_or_init(|| Box::new(ReplacedRows::new(budget)))
    }

    /// Its rows as columns, as far as scans have made them.
    pub fn blocks(&self, budget: &Arc<MemoryBudget>) -> &Blocks {
        self.blocks.get_or_init(|| Box::new(Blocks::new(budget)))
    }

    /// How many keys the next range read sorts first.
    pub fn unordered(&self) -> usize {
        self.len().saturating_sub(self.ordered.get().map_or(0, |view| view.taken()))
    }

    /// Keys in it.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.first_lsn() == u64::MAX
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed).max(0) as u64
    }

    pub fn seal(&self, last_lsn: u64) {
        self.last_lsn.store(last_lsn, Relaxed);
    }

    pub fn last_lsn(&self) -> u64 {
        self.last_lsn.load(Relaxed)
    }

    pub fn first_lsn(&self) -> u64 {
        self.first_lsn.load(Relaxed)
    }

    /// The LSNs of its records are not above this, those of published rows at least.
    pub fn newest_lsn(&self) -> u64 {
        self.newest_lsn.load(Relaxed)
    }

    /// Since when, at `now_micros`, nobody has written to it, as far as calls can tell that were made meanwhile.
    pub fn quiet_since(&self, now_micros: u64) -> u64 {
        let newest = self.newest_lsn();
        let mut seen = self.seen.lock();
        if seen.0 != newest {
            *seen = (newest, now_micros);
        }
        seen.1
    }
}

/// Rows of one write for one memtable, noted there all at once: counters and the list of hashes are other threads' too.
#[derive(Default)]
pub(crate) struct Run {
    memtable: Option<Arc<Memtable>>,
    keys: Vec<u64>,
    replacing: Vec<u64>,
    newest: Timestamp,
    applied: Applied,
}

impl Run {
    /// Has the next rows go to `memtable`; what went to another is noted.
    pub fn switch_to(&mut self, memtable: &Arc<Memtable>, index: &RowIndex) {
        if !self.memtable.as_ref().is_some_and(|current| Arc::ptr_eq(current, memtable)) {
            self.note(index);
            self.memtable = Some(memtable.clone());
        }
    }

    /// As [`Memtable::apply`] of a row that is published later.
    pub fn apply(
        &mut self,
        index: &RowIndex,
        key: KeyRef<'_>,
        new: NewVersion<'_>,
        horizon: Timestamp,
        in_files: impl FnOnce() -> bool,
    ) -> bool {
        let memtable = self.memtable.as_ref().expect("rows go to a memtable");
        if self.applied.is_none() {
            memtable.note(new.lsn);
        }
        self.newest = self.newest.max(new.ts);
        let placed = |placed: Placed| {
            memtable.cover(key.hash, &placed);
            if let Some(older) = placed.first {
                let word = memtable.listing.word(key);
                self.keys.push(word);
                if older != Older::Nothing {
                    self.replacing.push(word);
                }
            }
            horizon
        };
        let applied = index.apply(key, new, placed, in_files);
        self.applied.add(&applied);
        applied.covers
    }

    /// Notes them if they are many: others that note theirs wait meanwhile.
    pub fn note_if_many(&mut self, index: &RowIndex) {
        if self.keys.len() >= KeyList::CHUNK {
            self.note(index);
        }
    }

    /// Before the rows are published, so that every scan finds them, and before the memtable can be sealed.
    pub fn note(&mut self, index: &RowIndex) {
        if let Some(memtable) = self.memtable.take() {
            memtable.keys.extend(&self.keys, self.newest);
            memtable.replacing.extend(&self.replacing, self.newest);
            index.count(&self.applied);
            memtable.grew(self.applied.bytes());
            self.keys.clear();
            self.replacing.clear();
            self.applied = Applied::default();
        }
    }
}
