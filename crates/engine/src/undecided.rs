//! A change of rows of which the manifest is being told: nobody knows yet whether it comes to be.
//!
//! A truncate, a drop, an import or a change by position counts once its record is on the disk. Until then reads go on as if it were not there. A write
//! of a row that it takes or brings must not be made: made before the change, it would be forgotten by a crash that finds the
//! record, and made behind it, it would tell of what another crash does not find. Nothing is latched nor gated while the record is
//! synced: who would write such a row finds the change here, gives back its latches and waits, or says that it would have to.
//! All other rows are written meanwhile.
//!
//! | change | rows | begins | ends |
//! |---|---|---|---|
//! | truncate, drop of a range or table | all of its tablets | before the tablets are leaving, which is said under the gate | when they are empty, said under the gate |
//! | import | those whose keys may be in its files | under the table's latches | after the files are the tablets', which they become under the latches |
//! | [change by position](crate::by_position) | those that it replaces or deletes | the same | the same |
//!
//! So a write that began before is applied by then, or is refused at the gate; and one that has latched its rows and found no change
//! of them here finds none until it is applied, but for tablets that leave.
//!
//! Rows that transactions have [locked](crate::txn) are undecided too, though that is another list: a write asks for both by one count.
//!
//! Who makes such a change holds the lock of [`ddl`](crate::ddl): there is one at a time.

use crate::engine::Engine;
use crate::index::KeyRef;
use crate::tablet::{Tablet, TabletId};
use oribi_env::locks::{self, Condvar, Mutex};
use oribi_sstable::Sstable;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// In the count of what is to be asked for, the change; below it are locked rows.
const CHANGE: u64 = 1 << 63;

#[derive(Default)]
pub(crate) struct Undecided {
    /// Whether there is a change, and how many rows are locked: each write asks.
    any: AtomicU64,
    change: Mutex<Option<Arc<Change>>, { locks::LEAF }>,
    decided: Condvar,
}

/// What is undecided.
pub(crate) enum Change {
    /// Whether all rows of these tablets go.
    Goes(Vec<TabletId>),
    /// Whether rows of these files come to these tablets.
    Comes(Vec<(TabletId, Vec<Arc<Sstable>>)>),
    /// Whether rows of these tablets are replaced or go, by the hashes of their keys, which ascend.
    Replaced(Vec<(TabletId, Arc<[u64]>)>),
}

impl Change {
    /// Whether all rows of `tablets` go.
    pub fn goes<'t>(tablets: impl IntoIterator<Item = &'t Arc<Tablet>>) -> Self {
        Change::Goes(tablets.into_iter().map(|tablet| tablet.id).collect())
    }

    fn concerns(&self, tablet: &Tablet, key: KeyRef<'_>) -> bool {
        match self {
            Change::Goes(tablets) => tablets.contains(&tablet.id),
            Change::Comes(files) => {
                let of_tablet = files.iter().filter(|(id, _)| *id == tablet.id).flat_map(|(_, files)| files);
                of_tablet.into_iter().any(|sstable| sstable.may_contain(key.key))
            }
            Change::Replaced(rows) => {
                let mut of_tablet = rows.iter().filter(|(id, _)| *id == tablet.id);
                of_tablet.any(|(_, hashes)| hashes.binary_search(&key.hash).is_ok())
            }
        }
    }
}

impl Undecided {
    #[inline]
    pub fn is_any(&self) -> bool {
        self.any.load(Acquire) != 0
    }

    /// A transaction has locked one more row; to be said while its key is latched.
    pub fn row_locked(&self) {
        self.any.fetch_add(1, AcqRel);
    }

    pub fn rows_released(&self, count: usize) {
        self.any.fetch_sub(count as u64, AcqRel);
    }

    fn of(&self, tablet: &Tablet, key: KeyRef<'_>) -> Option<Arc<Change>> {
        let change = self.change.lock().clone()?;
        change.concerns(tablet, key).then_some(change)
    }

    /// Whether it is undecided what becomes of the row.
    pub fn concerns(&self, tablet: &Tablet, key: KeyRef<'_>) -> bool {
        self.is_any() && self.of(tablet, key).is_some()
    }

    /// Until a change that concerns the row is decided. To be called by who holds nothing that others wait for.
    pub fn wait(&self, tablet: &Tablet, key: KeyRef<'_>) {
        let Some(change) = self.of(tablet, key) else { return };
        let mut now = self.change.lock();
        while now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &change)) {
            self.decided.wait(&mut now);
        }
    }
}

/// A change that is decided when this is dropped.
pub(crate) struct Deciding<'e>(&'e Engine);

impl Engine {
    pub(crate) fn begin_deciding(&self, change: Change) -> Deciding<'_> {
        let before = self.undecided.change.lock().replace(Arc::new(change));
        debug_assert!(before.is_none(), "one change at a time");
        self.undecided.any.fetch_add(CHANGE, AcqRel);
        Deciding(self)
    }
}

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        let Deciding(engine) = self;
        *engine.undecided.change.lock() = None;
        engine.undecided.any.fetch_sub(CHANGE, AcqRel);
        engine.undecided.decided.notify_all();
        engine.released.tell();
    }
}
