//! Which rows of files a memtable's rows replace: what a scan leaves out of the files. Each key is asked for once.
//!
//! Of most it is known from their write, and of others once a scan has looked it up. It stays so as long as the file is there and the
//! memtable awaits its flush: later versions of a key replace what its first one does, and since when, does not matter to snapshots
//! that are there, which see one of them if a later one was left as the first.

use super::{Counted, Memtable};
use crate::index::{Location, Older, RowIndex, Version};
use crate::memory::MemoryBudget;
use crate::tablet::FileSet;
use oribi_env::locks::{self, Mutex};
use oribi_sstable::SstableId;
use oribi_types::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) struct ReplacedRows(Mutex<Found, { locks::ORDER }>);

struct Found {
    counted: Counted,
    /// So many of the keys that may replace something were asked for.
    taken: usize,
    /// Hashes of those to be asked for again: it is not known yet, or another memtable's to say.
    open: Vec<u64>,
    /// By file: a row, and since when it is replaced.
    rows: HashMap<SstableId, Vec<(u32, Timestamp)>>,
}

impl ReplacedRows {
    pub fn new(budget: &Arc<MemoryBudget>) -> Self {
        let counted = Counted::new(budget);
        ReplacedRows(Mutex::new(Found { counted, taken: 0, open: Vec::new(), rows: HashMap::new() }))
    }

    /// The rows of `memtable` are in a file: no scan that begins now asks for them.
    pub fn forget(&self, memtable: &Memtable) {
        let mut found = self.0.lock();
        found.forget();
        found.counted.set(memtable, 0);
    }

    /// Adds to `known`, which has a list for each of `files`, the rows that a snapshot at `ts` sees replaced by keys of `memtable`,
    /// whose rows these are. Calls `open` with the newest and the oldest unflushed version of those that have to be looked up. Of a
    /// key that several memtables have, the one counts that has its oldest version: `first_unflushed` is the id of the first.
    pub fn find(
        &self,
        (memtable, index): (&Memtable, &RowIndex),
        (files, first_unflushed): (&FileSet, u64),
        ts: Timestamp,
        known: &mut [Vec<u32>],
        mut open: impl FnMut(&Version, &Version),
    ) {
        let mut found = self.0.lock();
        if found.rows.keys().any(|file| files.file(*file).is_none()) {
            found.forget();
        }
        let Found { counted, taken, open: again, rows } = &mut *found;
        let asked = std::mem::take(again);
        let new = memtable.replacing_from(*taken).inspect(|_| *taken += 1);
        index.visit(memtable.generation, asked.into_iter().chain(new), |hash, newest| {
            let oldest = oldest_unflushed(newest, first_unflushed);
            match oldest.meta.lineage.older() {
                _ if oldest.meta.memtable() != memtable.id => again.push(hash),
                Older::Nothing => {}
                Older::At(Location { file, row }) if files.file(file).is_some() => {
                    rows.entry(file).or_default().push((row, oldest.meta.ts));
                }
                Older::At(_) | Older::Unresolved { .. } => {
                    again.push(hash);
                    if oldest.meta.ts <= ts {
                        open(newest, oldest);
                    }
                }
            }
        });
        for (file, rows) in &*rows {
            let seen = rows.iter().filter(|(_, since)| *since <= ts).map(|(row, _)| *row);
            known[files.position(*file).expect("it was asked for")].extend(seen);
        }
        let rows = rows.values().map(|rows| rows.capacity() * size_of::<(u32, Timestamp)>());
        let bytes = rows.sum::<usize>() + again.capacity() * size_of::<u64>();
        counted.set(memtable, bytes as u64);
    }
}

impl Found {
    /// What was found holds no more: a file was compacted, so that its rows lie elsewhere, or the memtable was flushed.
    fn forget(&mut self) {
        (self.open, self.rows, self.taken) = (Vec::new(), HashMap::new(), 0);
    }
}

/// The last of the unflushed versions from `version` down.
fn oldest_unflushed(version: &Version, first_unflushed: u64) -> &Version {
    let mut oldest = version;
    while let Some(below) = oldest.previous()
        && below.meta.memtable() >= first_unflushed
    {
        oldest = below;
    }
    oldest
}
