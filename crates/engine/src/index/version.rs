//! One version of a row in memory.

use super::NewVersion;
use oribi_sstable::SstableId;
use oribi_types::Timestamp;
use std::sync::Arc;

/// A row of an SSTable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Location {
    pub file: SstableId,
    pub row: u32,
}

/// Where the older copy of an unflushed version lies, the one its flush will mark. A file that is named but no longer
/// part of the tablet was compacted away: the copy is looked up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    /// Not looked up yet. `below` is the memtable that held the version under this one (0: none did): until that is
    /// flushed, its copy is in no file, and a look-up finds only what lies below it.
    Unresolved {
        below: u64,
    },
    Nothing,
    At(Location),
}

/// A version and, below it, those that some snapshot may still read.
pub(crate) struct Version {
    pub ts: Timestamp,
    pub lsn: u64,
    /// The memtable that holds it; [`Version::CLEAN`] once it is in an SSTable, whose place `older` then names.
    pub memtable: u64,
    /// `None`: deleted.
    pub row: Option<Arc<[u8]>>,
    pub older: Older,
    pub previous: Option<Box<Version>>,
}

/// Link by link: under an old snapshot a chain grows so long that dropping it from the inside would take all stack.
impl Drop for Version {
    fn drop(&mut self) {
        let mut next = self.previous.take();
        while let Some(mut version) = next {
            next = version.previous.take();
        }
    }
}

impl Version {
    pub const CLEAN: u64 = 0;

    pub fn new(new: NewVersion<'_>) -> Self {
        Version {
            ts: new.ts,
            lsn: new.lsn,
            memtable: new.memtable,
            row: new.row.map(Arc::from),
            older: new.older,
            previous: None,
        }
    }

    pub fn clean(row: &[u8], ts: Timestamp, home: Location) -> Self {
        Version {
            ts,
            lsn: 0,
            memtable: Version::CLEAN,
            row: Some(row.into()),
            older: Older::At(home),
            previous: None,
        }
    }

    pub fn is_clean(&self) -> bool {
        self.memtable == Version::CLEAN
    }

    /// What is known of the older copy of a version that comes on top of this one in `memtable`.
    pub fn older_for_successor(&self, memtable: u64) -> Older {
        if self.is_clean() || self.memtable == memtable {
            self.older
        } else {
            Older::Unresolved { below: self.memtable }
        }
    }

    /// The newest version at or below `ts`.
    pub fn at(&self, ts: Timestamp) -> Option<&Version> {
        let mut version = self;
        while version.ts > ts {
            version = version.previous.as_deref()?;
        }
        Some(version)
    }

    /// Memory that the version is charged with, its share of the entry included.
    pub fn bytes(&self, key: &[u8]) -> u64 {
        /// Entry and version in a table with free slots, the memtable's list of keys, and two allocations with their
        /// headers. Measured by `tests/memory_is_counted_as_it_is_used.rs`: 250 to 300, by how full the table is.
        const OVERHEAD: usize = 256;
        (OVERHEAD + key.len() + self.row.as_ref().map_or(0, |row| row.len())) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_chain_is_dropped_in_little_stack() {
        let location = Location { file: 1, row: 0 };
        let mut head = Version::clean(b"row", Timestamp(0), location);
        for ts in 1..200_000 {
            let previous = std::mem::replace(&mut head, Version::clean(b"row", Timestamp(ts), location));
            head.previous = Some(Box::new(previous));
        }
        assert_eq!(head.at(Timestamp(7)).map(|version| version.ts), Some(Timestamp(7)));
        drop(head);
    }
}
