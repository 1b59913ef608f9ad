//! A memtable: the hashes of the keys that a tablet wrote since its last flush. The rows themselves are in the row
//! index.

use crate::index::{KeyRef, NewVersion, RowIndex};
use oribi_types::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Written to while it is a tablet's active one; sealed, it awaits its flush.
pub(crate) struct Memtable {
    /// Unique in the engine and ascending in a tablet; 0 is no memtable.
    pub id: u64,
    /// The hash of each key once, in order of first write. Readers may walk it while writers add.
    hashes: boxcar::Vec<u64>,
    bytes: AtomicI64,
    /// LSN of the first record in it; `u64::MAX` while it is empty.
    first_lsn: AtomicU64,
    /// When sealed: every record of the tablet at or below this is in it or was flushed before.
    last_lsn: AtomicU64,
}

impl Memtable {
    pub fn new(id: u64) -> Arc<Self> {
        Arc::new(Memtable {
            id,
            hashes: boxcar::Vec::new(),
            bytes: AtomicI64::new(0),
            first_lsn: AtomicU64::new(u64::MAX),
            last_lsn: AtomicU64::new(0),
        })
    }

    /// Makes `new` the newest version of `key` in the row index, and its key one of this memtable. `horizon` and
    /// `in_files` are as [`RowIndex::apply`] has them.
    pub fn apply(
        &self,
        index: &RowIndex,
        key: KeyRef<'_>,
        new: NewVersion<'_>,
        horizon: Timestamp,
        in_files: impl FnOnce() -> bool,
    ) {
        self.note(new.lsn);
        let applied = index.apply(key, new, horizon, in_files);
        self.grew(applied.bytes);
        if applied.first {
            self.hashes.push(key.hash);
        }
    }

    /// Takes note of a record before its first key is pushed.
    fn note(&self, lsn: u64) {
        self.first_lsn.fetch_min(lsn, Relaxed);
    }

    pub fn grew(&self, bytes: i64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// What [`RowIndex::visit`] finds the rows by.
    pub fn hashes(&self) -> impl Iterator<Item = u64> {
        self.hashes.iter().map(|(_, hash)| *hash)
    }

    /// Keys in it.
    pub fn len(&self) -> usize {
        self.hashes.count()
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
}
