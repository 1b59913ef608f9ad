//! Lineage of a version in memory: whose it is to dispose of, and which row of a file it replaces.
//!
//! Every version that a flush writes replaces at most one row of the files, and that row must be marked, or the key has two
//! live rows for good. What a version of a sealed memtable replaces is the business of either its memtable's flush, which
//! takes rows without a lock, or of the write that cuts it off, under the shard's lock. So of the versions that a memtable
//! has of a key, **the newest decides for all**: whoever cuts it off cuts off those below it too, and whoever comes to
//! it first disposes of all of them.
//!
//! What becomes of the newest version of memtable `m`, where `heir` is the version that is left as the last above a cut:
//!
//! | it is | comes | it becomes | and |
//! |---|---|---|---|
//! | held | its flush: [`take`](Taking::take) | taken | the flush marks what the memtable's versions replace, and writes those that are read |
//! | held | a cut: [`hand_on`](HandingOn::hand_on) | forgotten | `heir` replaces what it replaced |
//! | taken | the flush once more, as it failed | taken | as before |
//! | taken | a cut | taken | `heir` goes on to say `Unresolved { below: m }` |
//! | forgotten | its flush | forgotten | the flush passes over the key |
//! | taken | [`place`](Lineage::place), after the flush | clean | it names the row that it has become |
//! | taken, cut off | `place`, of `heir` | | `heir`, if it says `Unresolved { below: m }`, replaces the row that was written |
//!
//! `Unresolved { below: m }` is never wrong, as it is a question: who asks the files once `m` is flushed finds the row to
//! mark. It stays where a flush failed that had taken what was cut off then.
//!
//! The file is compiled twice: for the engine, and for its model in `model.rs`, where the atomics are a model checker's.

use super::atomic::{AtomicU32, AtomicU64, Ordering, spin_loop};
use crate::index::{Location, Older};

/// The memtable of a version and what it replaces. Kept small: it stands beside each row in memory.
pub(crate) struct Lineage {
    /// The memtable that holds the version, and in the highest bits what has become of it there; [`Lineage::CLEAN`] once it
    /// is in an SSTable, whose place `older` then names.
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

/// Its memtable's flush disposes of the version.
const TAKEN: u64 = 1 << 63;
/// A write that cut the version off has handed on what it replaced.
const FORGOTTEN: u64 = 1 << 62;

impl Lineage {
    pub const CLEAN: u64 = 0;

    pub fn new(memtable: u64, older: Older) -> Self {
        let (of, row) = parts(older);
        Lineage {
            memtable: AtomicU64::new(memtable),
            older: AtomicU64::new(of),
            older_row: AtomicU32::new(row),
            trimmed_to: AtomicU32::new(0),
        }
    }

    /// What is known of the older copy of a version that comes on top of this one in `memtable`.
    pub fn older_for_successor(&self, memtable: u64) -> Older {
        let own = self.memtable();
        if own == Lineage::CLEAN || own == memtable { self.older() } else { Older::Unresolved { below: own } }
    }

    pub fn memtable(&self) -> u64 {
        self.memtable.load(Ordering::Acquire) & !(TAKEN | FORGOTTEN)
    }

    pub fn is_clean(&self) -> bool {
        self.memtable() == Lineage::CLEAN
    }

    /// Of a clean version, where it is in the files.
    pub fn home(&self) -> Option<Location> {
        match self.is_clean().then(|| self.older()) {
            Some(Older::At(home)) => Some(home),
            _ => None,
        }
    }

    /// What a clean version says here does not change.
    pub fn older(&self) -> Older {
        loop {
            let of = self.older.load(Ordering::Acquire);
            let row = self.older_row.load(Ordering::Acquire);
            let (kind, id) = (of >> KIND_SHIFT, of & ((1 << KIND_SHIFT) - 1));
            if kind == CHANGING || self.older.load(Ordering::Acquire) != of {
                spin_loop();
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
    fn set_older(&self, older: Older) {
        let (of, row) = parts(older);
        // Who sees the new row sees that `of` has changed when it looks again, or else both are as they will be.
        self.older.store(CHANGING << KIND_SHIFT, Ordering::Relaxed);
        self.older_row.store(row, Ordering::Release);
        self.older.store(of, Ordering::Release);
    }

    /// Records what was looked up for a version that is not clean and said `asked`. Under the shard's lock. A look-up that
    /// was overtaken by another is dropped.
    pub fn resolve(&self, asked: Older, found: Older) {
        if !self.is_clean() && self.older() == asked {
            self.set_older(found);
        }
    }

    /// The flush of `memtable` is installed: `home` is where its newest version of the key is, if that has a row. Of the
    /// last version that is not below that newest one. Under the shard's lock. Whether the version is clean now.
    pub fn place(&self, memtable: u64, home: Option<Location>) -> bool {
        let home = home.map_or(Older::Nothing, Older::At);
        if self.memtable() == memtable {
            self.set_older(home);
            self.memtable.store(Lineage::CLEAN, Ordering::Release);
            return true;
        }
        if self.older() == (Older::Unresolved { below: memtable }) {
            self.set_older(home);
        }
        false
    }

    /// Whether the version is the flush's now, or was from an attempt before.
    fn take(&self) -> bool {
        let held = self.memtable();
        let taken = self.memtable.compare_exchange(held, held | TAKEN, Ordering::AcqRel, Ordering::Acquire);
        taken.map_or_else(|now| now == held | TAKEN, |_| true)
    }

    /// Whether no flush has taken the version, nor will.
    fn forget(&self) -> bool {
        let held = self.memtable();
        let forgotten =
            self.memtable.compare_exchange(held, held | FORGOTTEN, Ordering::AcqRel, Ordering::Acquire);
        forgotten.is_ok()
    }

    /// Under the shard's lock.
    pub fn inherit_trimmed(&self, before: &Lineage) {
        self.trimmed_to.store(before.trimmed_to.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Notes that what lies below is trimmed to `horizon`; whether it was already. Under the shard's lock.
    pub fn note_trimmed(&self, horizon: u64) -> bool {
        self.trimmed_to.swap(horizon as u32, Ordering::Relaxed) == horizon as u32
    }
}

/// A flush on its way down through the versions that its memtable has of one key.
#[derive(Default)]
pub(crate) struct Taking {
    /// What the newest has decided.
    is_ours: Option<bool>,
}

impl Taking {
    /// Whether `version`, the next of the memtable, newest first, is the flush's to dispose of.
    pub fn take(&mut self, version: &Lineage) -> bool {
        *self.is_ours.get_or_insert_with(|| version.take())
    }
}

/// A cut on its way down through the versions of one key that it takes off.
#[derive(Default)]
pub(crate) struct HandingOn {
    /// A flush that has not been placed has taken the versions of its memtable.
    is_taken: bool,
}

impl HandingOn {
    /// Gives `heir`, which is left as the last, what `version` replaced, the next below it that is cut off. Under the shard's
    /// lock.
    pub fn hand_on(&mut self, heir: &Lineage, version: &Lineage) {
        if heir.older() == (Older::Unresolved { below: version.memtable() }) {
            self.is_taken = self.is_taken || !version.forget();
            if !self.is_taken {
                heir.set_older(version.older());
            }
        }
    }
}

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
