//! What is known of a version of a row beyond its key and bytes.

use oribi_sstable::SstableId;
use oribi_types::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};

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

pub(crate) struct Meta {
    pub ts: Timestamp,
    pub lsn: u64,
    pub generation: u64,
    /// The memtable that holds it; [`Meta::CLEAN`] once it is in an SSTable, whose place `older` then names.
    memtable: AtomicU64,
    older: OlderCell,
    /// The horizon to which the versions below were trimmed last.
    trimmed_to: AtomicU64,
}

impl Meta {
    pub const CLEAN: u64 = 0;

    pub fn new(generation: u64, ts: Timestamp, lsn: u64, memtable: u64, older: Older) -> Self {
        Meta {
            ts,
            lsn,
            generation,
            memtable: AtomicU64::new(memtable),
            older: OlderCell::new(older),
            trimmed_to: AtomicU64::new(0),
        }
    }

    pub fn memtable(&self) -> u64 {
        self.memtable.load(Ordering::Acquire)
    }

    pub fn is_clean(&self) -> bool {
        self.memtable() == Meta::CLEAN
    }

    /// What a clean version says here does not change.
    pub fn older(&self) -> Older {
        self.older.get()
    }

    /// Under the shard's lock.
    pub fn set_older(&self, older: Older) {
        self.older.set(older);
    }

    /// The version is in an SSTable now. Under the shard's lock.
    pub fn set_clean(&self, home: Older) {
        self.older.set(home);
        self.memtable.store(Meta::CLEAN, Ordering::Release);
    }

    /// Notes that what lies below is trimmed to `horizon`; whether it was already. Under the shard's lock.
    pub fn note_trimmed(&self, horizon: Timestamp) -> bool {
        self.trimmed_to.swap(horizon.0, Ordering::Relaxed) == horizon.0
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

/// An [`Older`] that one thread at a time changes while others read it.
struct OlderCell {
    /// File or memtable.
    of: AtomicU64,
    /// Which of the three and, in the lower half, the row.
    kind: AtomicU64,
}

const UNRESOLVED: u64 = 0;
const NOTHING: u64 = 1;
const AT: u64 = 2;
const CHANGING: u64 = 3;

impl OlderCell {
    fn new(older: Older) -> Self {
        let (of, kind) = OlderCell::parts(older);
        OlderCell { of: AtomicU64::new(of), kind: AtomicU64::new(kind) }
    }

    fn parts(older: Older) -> (u64, u64) {
        match older {
            Older::Unresolved { below } => (below, UNRESOLVED << 32),
            Older::Nothing => (0, NOTHING << 32),
            Older::At(location) => (location.file, AT << 32 | u64::from(location.row)),
        }
    }

    fn set(&self, older: Older) {
        let (of, kind) = OlderCell::parts(older);
        // Who sees the new `of` sees `kind` changed when it looks again; or a row of the same number in another file, and
        // then both halves are new.
        self.kind.store(CHANGING << 32, Ordering::Relaxed);
        self.of.store(of, Ordering::Release);
        self.kind.store(kind, Ordering::Release);
    }

    fn get(&self) -> Older {
        loop {
            let kind = self.kind.load(Ordering::Acquire);
            let of = self.of.load(Ordering::Acquire);
            if kind == CHANGING << 32 || self.kind.load(Ordering::Acquire) != kind {
                std::hint::spin_loop();
                continue;
            }
            return match kind >> 32 {
                UNRESOLVED => Older::Unresolved { below: of },
                NOTHING => Older::Nothing,
                _ => Older::At(Location { file: of, row: kind as u32 }),
            };
        }
    }
}
