//! What is known of a version of a row beyond its key and bytes.

use super::lineage::Lineage;
use crate::tablet::FileSet;
use oribi_sstable::SstableId;
use oribi_types::Timestamp;

/// A version and, below it, those that some snapshot may still read.
pub(crate) type Version = oribi_index::Version<Meta>;
/// A version that is kept for its holder.
pub(crate) type VersionRef = oribi_index::VersionRef<Meta>;

/// A row of an SSTable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
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

impl Older {
    /// The place, if there is one; `None` if it must be looked up in `files`.
    pub fn known(self, files: &FileSet) -> Option<Option<Location>> {
        match self {
            Older::Nothing => Some(None),
            Older::At(location) => files.file(location.file).map(|_| Some(location)),
            Older::Unresolved { .. } => None,
        }
    }
}

/// Beside each row in memory: kept small.
pub(crate) struct Meta {
    pub ts: Timestamp,
    pub lsn: u64,
    pub generation: u64,
    pub lineage: Lineage,
}

impl Meta {
    /// The memtable that holds the version; [`Lineage::CLEAN`] if none does.
    pub fn memtable(&self) -> u64 {
        self.lineage.memtable()
    }

    pub fn is_clean(&self) -> bool {
        self.lineage.is_clean()
    }
}

const _: () = assert!(size_of::<Meta>() == 48);
