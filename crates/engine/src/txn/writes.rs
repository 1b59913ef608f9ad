//! What a transaction has changed so far, in order, and which change of each key is the last. Of a large one it is what it has
//! changed since it has [spilled](super::spilled) the rest.

use crate::catalog::Table;
use crate::read::RowVersion;
use foldhash::fast::RandomState;
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};
use oribi_types::{Error, Result, Timestamp};
use std::hash::BuildHasher;
use std::sync::Arc;

/// What was decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    RowOf(Timestamp),
    /// What the transaction itself has made of the key.
    Own,
}

impl Seen {
    /// Whether `current` is that.
    ///
    /// # Errors
    /// `Internal` for what is the transaction's own.
    pub fn is(self, current: Option<RowVersion<'_>>) -> Result<bool> {
        match self {
            Seen::Nothing => Ok(current.is_none()),
            Seen::RowOf(ts) => Ok(current.is_some_and(|row| row.ts == ts)),
            Seen::Own => Err(Error::internal("a change was decided on none")),
        }
    }
}

pub(super) struct Change {
    pub table: Arc<Table>,
    /// That of the tablet when the row was decided on.
    pub generation: u64,
    pub key: Arc<[u8]>,
    /// `None` if it is deleted.
    pub row: Option<Arc<[u8]>>,
    pub seen: Seen,
    /// The one before it of the same key.
    before: Option<usize>,
}

#[derive(Default)]
pub(super) struct WriteSet {
    /// How many changes were before these.
    before: usize,
    changes: Vec<Change>,
    /// The last change of each key, by [whose rows](Table::rows_of) it is of.
    last: HashMap<u64, HashTable<Last>, RandomState>,
    hasher: RandomState,
    bytes: usize,
}

/// Which change of a key is the last.
#[derive(Clone, Copy)]
struct Last {
    /// Of the key, so that no key is looked at when a table grows.
    hash: u64,
    change: usize,
}

impl Last {
    fn is(&self, hash: u64, key: &[u8], changes: &[Change]) -> bool {
        self.hash == hash && *changes[self.change].key == *key
    }
}

/// What a change takes beside its key and row, about.
const CHANGE_BYTES: usize = size_of::<Change>() + size_of::<Last>() * 2;

fn bytes_of(change: &Change) -> usize {
    bytes_of_change(&change.key, change.row.as_deref())
}

pub(super) fn bytes_of_change(key: &[u8], row: Option<&[u8]>) -> usize {
    CHANGE_BYTES + key.len() + row.map_or(0, <[u8]>::len)
}

impl WriteSet {
    /// How many changes there are, with those before.
    pub fn len(&self) -> usize {
        self.before + self.changes.len()
    }

    /// How many changes were before these.
    pub fn before(&self) -> usize {
        self.before
    }

    /// In order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The changes have become those before.
    pub fn pass(&mut self) {
        *self = WriteSet { before: self.len(), ..WriteSet::default() };
    }

    /// Bytes of memory in use, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn writes_to(&self, table: &Table) -> bool {
        self.last.get(&table.rows_of()).is_some_and(|keys| !keys.is_empty())
    }

    /// The last change of a key.
    pub fn last(&self, table: &Table, key: &[u8]) -> Option<&Change> {
        let (keys, hash) = (self.last.get(&table.rows_of())?, self.hasher.hash_one(key));
        keys.find(hash, |last| last.is(hash, key, &self.changes)).map(|last| &self.changes[last.change])
    }

    /// How many keys are changed, by table.
    pub fn tables(&self) -> impl Iterator<Item = (u64, usize)> {
        self.last.iter().map(|(table, keys)| (*table, keys.len())).filter(|(_, keys)| *keys > 0)
    }

    /// The last changes of all keys of a table, of the first `len`, those before included.
    pub fn of_table(&self, table: &Table, len: usize) -> impl Iterator<Item = &Change> {
        let last = self.last.get(&table.rows_of()).into_iter().flatten();
        last.filter_map(move |last| {
            let mut at = Some(last.change);
            while let Some(i) = at.filter(|i| self.before + i >= len) {
                at = self.changes[i].before;
            }
            at.map(|i| &self.changes[i])
        })
    }

    pub fn push(&mut self, table: &Arc<Table>, key: &[u8], row: Option<Arc<[u8]>>, seen: Seen) -> &Arc<[u8]> {
        let (hash, changes) = (self.hasher.hash_one(key), &self.changes);
        let keys = self.last.entry(table.rows_of()).or_default();
        let (key, before) = match keys.entry(hash, |last| last.is(hash, key, changes), |last| last.hash) {
            Entry::Occupied(mut last) => {
                let before = std::mem::replace(&mut last.get_mut().change, changes.len());
                (changes[before].key.clone(), Some(before))
            }
            Entry::Vacant(none) => {
                none.insert(Last { hash, change: changes.len() });
                (key.into(), None)
            }
        };
        let generation = table.tablet_of(&key).generation();
        let change = Change { table: table.clone(), generation, key, row, seen, before };
        self.bytes += bytes_of(&change);
        self.changes.push(change);
        &self.changes[self.changes.len() - 1].key
    }

    /// Undoes all but the first `len` changes, those before included.
    pub fn truncate(&mut self, len: usize) {
        self.before = self.before.min(len);
        while self.len() > len {
            let Some(change) = self.changes.pop() else { return };
            self.bytes -= bytes_of(&change);
            let (hash, at) = (self.hasher.hash_one(&*change.key), self.changes.len());
            let Some(keys) = self.last.get_mut(&change.table.rows_of()) else { continue };
            let Ok(mut last) = keys.find_entry(hash, |last| last.change == at) else { continue };
            match change.before {
                Some(before) => last.get_mut().change = before,
                None => drop(last.remove()),
            }
        }
    }

    /// What is to be written: of each key its last change, decided on what the first saw. Keys that came and went are none.
    pub fn into_last(self) -> Vec<Change> {
        let mut last: Vec<usize> = self.last.values().flatten().map(|last| last.change).collect();
        last.sort_unstable();
        let mut changes: Vec<Option<Change>> = self.changes.into_iter().map(Some).collect();
        let mut written = Vec::with_capacity(last.len());
        for i in last {
            let Some(mut change) = changes[i].take() else { continue };
            let mut before = change.before;
            while let Some(first) = before.and_then(|before| changes[before].take()) {
                (change.seen, before) = (first.seen, first.before);
            }
            if change.seen != Seen::Nothing || change.row.is_some() {
                written.push(change);
            }
        }
        written.sort_by(|a, b| (a.table.id(), &a.key).cmp(&(b.table.id(), &b.key)));
        written
    }
}
