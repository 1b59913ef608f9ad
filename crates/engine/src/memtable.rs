//! A memtable: the hashes of the keys that a tablet wrote since its last flush. The rows themselves are in the row
//! index.

use crate::index::{Applied, KeyRef, NewVersion, Older, RowIndex};
use crate::memory::MemoryBudget;
use crate::ordered::OrderedView;
use crate::walk::Walks;
use oribi_env::locks::{self, Mutex};
use oribi_types::Timestamp;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Written to while it is a tablet's active one; sealed, it awaits its flush.
pub(crate) struct Memtable {
    /// Unique in the engine and ascending in a tablet; 0 is no memtable.
    pub id: u64,
    /// Of the tablet: all rows in it are of this one.
    pub generation: u64,
    hashes: Hashes,
    /// Of them, those whose first version in it may replace a row of a file. Later ones of a key replace what the first
    /// does, and what is known to replace nothing never will.
    replacing: Hashes,
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
}

impl Memtable {
    pub fn new(id: u64, generation: u64) -> Arc<Self> {
        Arc::new(Memtable {
            id,
            generation,
            hashes: Hashes::default(),
            replacing: Hashes::default(),
            bytes: AtomicI64::new(0),
            first_lsn: AtomicU64::new(u64::MAX),
            newest_lsn: AtomicU64::new(0),
            last_lsn: AtomicU64::new(0),
            seen: Mutex::default(),
            walks: Walks::default(),
            ordered: OnceLock::new(),
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
        let placed = |first: Option<Older>| {
            // Before it is published: a scan finds the row by this.
            if let Some(older) = first {
                self.hashes.push(key.hash);
                if older != Older::Nothing {
                    self.replacing.push(key.hash);
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

    /// Of [`hashes`](Self::hashes), those of rows that may replace one of a file.
    pub fn replacing(&self) -> impl Iterator<Item = u64> {
        self.replacing.iter_from(0)
    }

    /// Some of the hashes with these numbers, from the first on; none only if there are none.
    pub fn hashes_of(&self, numbers: Range<usize>) -> Vec<u64> {
        self.hashes.part(numbers)
    }

    /// As [`hashes`](Self::hashes), without the first `skip`.
    pub fn hashes_from(&self, skip: usize) -> impl Iterator<Item = u64> {
        self.hashes.iter_from(skip)
    }

    pub fn ordered(&self, budget: &Arc<MemoryBudget>) -> &OrderedView {
        self.ordered.get_or_init(|| Box::new(OrderedView::new(budget.clone())))
    }

    /// How many keys the next range read sorts first.
    pub fn unordered(&self) -> usize {
        self.len().saturating_sub(self.ordered.get().map_or(0, |view| view.taken()))
    }

    /// Keys in it.
    pub fn len(&self) -> usize {
        self.hashes.len.load(Relaxed)
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
    hashes: Vec<u64>,
    replacing: Vec<u64>,
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
        if self.applied.is_none()
            && let Some(memtable) = &self.memtable
        {
            memtable.note(new.lsn);
        }
        let placed = |first: Option<Older>| {
            if let Some(older) = first {
                self.hashes.push(key.hash);
                if older != Older::Nothing {
                    self.replacing.push(key.hash);
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
        if self.hashes.len() >= Hashes::CHUNK {
            self.note(index);
        }
    }

    /// Before the rows are published, so that every scan finds them, and before the memtable can be sealed.
    pub fn note(&mut self, index: &RowIndex) {
        if let Some(memtable) = self.memtable.take() {
            memtable.hashes.extend(&self.hashes);
            memtable.replacing.extend(&self.replacing);
            index.count(&self.applied);
            memtable.grew(self.applied.bytes());
            self.hashes.clear();
            self.replacing.clear();
            self.applied = Applied::default();
        }
    }
}

/// The hash of each key once, in order of first write. Readers may walk it while writers add. It never moves, and takes
/// eight bytes for each.
#[derive(Default)]
struct Hashes {
    chunks: Mutex<Vec<Vec<u64>>, { locks::KEYS }>,
    len: AtomicUsize,
}

impl Hashes {
    const CHUNK: usize = 4096;

    fn push(&self, hash: u64) {
        self.extend(&[hash]);
    }

    fn extend(&self, mut hashes: &[u64]) {
        if hashes.is_empty() {
            return;
        }
        let mut chunks = self.chunks.lock();
        self.len.fetch_add(hashes.len(), Relaxed);
        while !hashes.is_empty() {
            match chunks.last_mut().filter(|chunk| chunk.len() < Hashes::CHUNK) {
                // Small memtables, of which there may be many, grow by and by.
                Some(chunk) => {
                    let (fit, rest) = hashes.split_at(hashes.len().min(Hashes::CHUNK - chunk.len()));
                    chunk.extend_from_slice(fit);
                    hashes = rest;
                }
                None => {
                    let first = chunks.is_empty();
                    chunks.push(Vec::with_capacity(if first { 4 } else { Hashes::CHUNK }));
                }
            }
        }
    }

    fn part(&self, numbers: Range<usize>) -> Vec<u64> {
        let chunks = self.chunks.lock();
        let Some(chunk) = chunks.get(numbers.start / Hashes::CHUNK) else { return Vec::new() };
        let rest = chunk.get(numbers.start % Hashes::CHUNK..).unwrap_or_default();
        rest[..rest.len().min(numbers.len())].to_vec()
    }

    fn iter_from(&self, skip: usize) -> impl Iterator<Item = u64> {
        // Those that are there now: behind the copy of a chunk that was not full, later ones would leave a gap.
        let rest = self.len.load(Relaxed).saturating_sub(skip);
        // A copy of a chunk at a time: nobody waits for what is done with it.
        let chunks = (skip / Hashes::CHUNK..).map_while(|i| self.chunks.lock().get(i).cloned());
        chunks.flatten().skip(skip % Hashes::CHUNK).take(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::Hashes;

    #[test]
    fn what_comes_while_hashes_are_walked_is_left_to_the_next_walk() {
        let hashes = Hashes::default();
        // A chunk that is not full, and becomes so meanwhile.
        let first = Hashes::CHUNK as u64 - 1;
        (0..first).for_each(|hash| hashes.push(hash));
        let mut walk = hashes.iter_from(0);
        assert_eq!(walk.next(), Some(0));
        (first..first + 10).for_each(|hash| hashes.push(hash));
        assert_eq!(walk.count() as u64, first - 1);
        let rest: Vec<u64> = hashes.iter_from(first as usize).collect();
        assert_eq!(rest, (first..first + 10).collect::<Vec<_>>());
    }
}
