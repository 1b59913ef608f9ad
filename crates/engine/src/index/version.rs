//! What is known of a version of a row beyond its key and bytes.

use crate::tablet::FileSet;
use oribi_sstable::SstableId;
use oribi_types::Timestamp;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A version and, below it, those that some snapshot may still read.
pub(crate) type Version = oribi_index::Version<Meta>;
/// A version that is kept for its holder.
pub(crate) type VersionRef = oribi_index::VersionRef<Meta>;

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
    /// The memtable that holds it, and in the highest bits what has become of it there; [`Meta::CLEAN`] once it is in
    /// an SSTable, whose place `older` then names.
    memtable: AtomicU64,
    /// An [`Older`] that one thread at a time changes while others read it: in the highest bits which of the three,
    /// below them file or memtable …
    older: AtomicU64,
    /// … and the row.
    older_row: AtomicU32,
    /// The lower half of the horizon to which the versions below were trimmed last. Where another has the same, the
    /// horizon after it trims.
    trimmed_to: AtomicU32,
}

/// A flush has taken the version, and marks what it replaces.
const TAKEN: u64 = 1 << 63;
/// The version was replaced, and nobody reads it any more.
const FORGOTTEN: u64 = 1 << 62;

impl Meta {
    pub const CLEAN: u64 = 0;

    pub fn new(generation: u64, ts: Timestamp, lsn: u64, memtable: u64, older: Older) -> Self {
        let (of, row) = parts(older);
        Meta {
            ts,
            lsn,
            generation,
            memtable: AtomicU64::new(memtable),
            older: AtomicU64::new(of),
            older_row: AtomicU32::new(row),
            trimmed_to: AtomicU32::new(0),
        }
    }

    pub fn memtable(&self) -> u64 {
        self.memtable.load(Ordering::Acquire) & !(TAKEN | FORGOTTEN)
    }

    /// For the flush of its memtable, which may come again if it fails. Whether the version is the flush's to dispose of:
    /// if it is forgotten already, the next version replaces what this one replaced.
    pub fn take(&self) -> bool {
        self.memtable.fetch_or(TAKEN, Ordering::AcqRel) & FORGOTTEN == 0
    }

    /// For who cuts it off, under the shard's lock. Whether no flush has taken it, nor will.
    pub fn forget(&self) -> bool {
        self.memtable.fetch_or(FORGOTTEN, Ordering::AcqRel) & TAKEN == 0
    }

    pub fn is_clean(&self) -> bool {
        self.memtable() == Meta::CLEAN
    }

    /// What a clean version says here does not change.
    pub fn older(&self) -> Older {
        loop {
            let of = self.older.load(Ordering::Acquire);
            let row = self.older_row.load(Ordering::Acquire);
            let (kind, id) = (of >> KIND_SHIFT, of & ((1 << KIND_SHIFT) - 1));
            if kind == CHANGING || self.older.load(Ordering::Acquire) != of {
                std::hint::spin_loop();
                continue;
            }
            return match kind {
                UNRESOLVED => Older::Unresolved { below: id },
                NOTHING => Older::Nothing,
                _ => Older::At(Location { file: id, row }),
            };
        }
    }

    /// Under the shard's lock.
    pub fn set_older(&self, older: Older) {
        let (of, row) = parts(older);
        // Who sees the new row sees that `of` has changed when it looks again, or else both are as they will be.
        self.older.store(CHANGING << KIND_SHIFT, Ordering::Relaxed);
        self.older_row.store(row, Ordering::Release);
        self.older.store(of, Ordering::Release);
    }

    /// The version is in an SSTable now. Under the shard's lock.
    pub fn set_clean(&self, home: Older) {
        self.set_older(home);
        self.memtable.store(Meta::CLEAN, Ordering::Release);
    }

    /// Notes that what lies below is trimmed to `horizon`; whether it was already. Under the shard's lock.
    pub fn note_trimmed(&self, horizon: Timestamp) -> bool {
        self.trimmed_to.swap(horizon.0 as u32, Ordering::Relaxed) == horizon.0 as u32
    }

    /// Under the shard's lock.
    pub fn inherit_trimmed(&self, before: &Meta) {
        self.trimmed_to.store(before.trimmed_to.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// What is known of the older copy of a version that comes on top of this one in `memtable`.
    pub fn older_for_successor(&self, memtable: u64) -> Older {
        let own = self.memtable();
        if own == Meta::CLEAN || own == memtable { self.older() } else { Older::Unresolved { below: own } }
    }
}

const _: () = assert!(size_of::<Meta>() == 48);

const KIND_SHIFT: u32 = 62;
const UNRESOLVED: u64 = 0;
const NOTHING: u64 = 1;
const AT: u64 = 2;
/// The row is being changed.
const CHANGING: u64 = 3;

fn parts(older: Older) -> (u64, u32) {
    let of = |kind: u64, id: u64| {
        debug_assert!(id >> KIND_SHIFT == 0, "files and memtables are counted from 1");
        kind << KIND_SHIFT | id
    };
    match older {
        Older::Unresolved { below } => (of(UNRESOLVED, below), 0),
        Older::Nothing => (of(NOTHING, 0), 0),
        Older::At(location) => (of(AT, location.file), location.row),
    }
}
