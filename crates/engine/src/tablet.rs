//! A tablet: the part of a table that its partitioning assigns to it, with its memtables and files.

use crate::deletions::{Deletions, MarksRecord};
use crate::index::Location;
use crate::memtable::Memtable;
use arc_swap::ArcSwap;
use oribi_env::locks::{self, Mutex};
use oribi_sstable::{Sstable, SstableId};
use oribi_types::{Result, Timestamp};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) type TabletId = u64;

pub(crate) struct Tablet {
    pub id: TabletId,
    /// The folder of its files, one per table.
    pub dir: PathBuf,
    /// Part of every index key. A new one makes all entries of the tablet unreachable at once (truncate).
    generation: AtomicU64,
    /// The version of the table's definition by which rows are written; [`DROPPED`] if none are any more.
    version: AtomicU64,
    /// When all of its rows went, last; see [`reading`](crate::reading).
    emptied: AtomicU64,
    /// Whether rows of its files are being replaced [by position](crate::by_position).
    is_changing: AtomicBool,
    state: ArcSwap<TabletState>,
    /// The installer: whoever changes the tablet's files holds this, from reading them to the manifest record.
    pub installer: Mutex<(), { locks::INSTALLER }>,
    /// One flush of the tablet at a time, so that memtables are flushed in order.
    pub flush: Mutex<(), { locks::FLUSH }>,
    /// One compaction of the tablet at a time.
    pub compaction: Mutex<(), { locks::COMPACTION }>,
}

/// The version of no definition.
const DROPPED: u64 = u64::MAX;
/// That of a tablet of which it is about to be decided whether it is emptied or dropped, or not known whether it is dropped.
const LEAVING: u64 = DROPPED - 1;

/// All of a tablet's rows at one moment.
#[derive(Clone)]
pub(crate) struct TabletState {
    pub active: Arc<Memtable>,
    /// Awaiting flush, oldest first.
    pub sealed: Vec<Arc<Memtable>>,
    pub files: Arc<FileSet>,
}

/// The live SSTables of a tablet. For each key at most one of their rows is unmarked.
#[derive(Default)]
pub(crate) struct FileSet {
    pub files: Vec<Arc<LiveFile>>,
    /// Every record of the tablet at or below this is in the files.
    pub flushed_lsn: u64,
}

#[derive(Clone)]
pub(crate) struct LiveFile {
    pub sstable: Arc<Sstable>,
    pub deletions: Arc<Deletions>,
    pub marks: Option<MarksRecord>,
    /// Snapshots below this do not see the file at all: it was imported later, or made of files that were imported or patched later.
    pub visible_from: Timestamp,
}

/// A file with so many patches gets no more: each is looked at by who reads a row.
pub(crate) const PATCHES_MAX: usize = 32;

impl LiveFile {
    pub fn id(&self) -> SstableId {
        self.sstable.meta().id
    }

    /// As a snapshot at `ts` sees its values.
    pub fn at(self: &Arc<Self>, ts: Timestamp) -> Arc<Self> {
        let sstable = self.sstable.at(ts);
        match Arc::ptr_eq(&sstable, &self.sstable) {
            true => Arc::clone(self),
            false => Arc::new(LiveFile { sstable, ..LiveFile::clone(self) }),
        }
    }

    /// Snapshots below this do not see all of it: the file, or a patch of it.
    pub fn whole_from(&self) -> Timestamp {
        let patches = self.sstable.patches().iter().map(|patch| patch.visible_from());
        patches.fold(self.visible_from, Timestamp::max)
    }

    /// Snapshots below this do not see `row` as it is.
    pub fn row_visible_from(&self, row: u32) -> Timestamp {
        let patch = self.sstable.patch_of(row).map(|patch| patch.visible_from());
        patch.unwrap_or_default().max(self.visible_from)
    }

    /// The live rows of `keys`, which must be sorted, and when each was committed.
    ///
    /// # Errors
    /// Those of [`locate`](Sstable::locate).
    pub fn locate_live(&self, keys: &[&[u8]]) -> Result<Vec<Option<(u32, Timestamp)>>> {
        let mut places = self.sstable.locate(keys)?;
        for place in &mut places {
            *place = place.filter(|(row, _)| !self.deletions.is_marked(*row));
        }
        Ok(places)
    }
}

impl FileSet {
    pub fn file(&self, id: SstableId) -> Option<&Arc<LiveFile>> {
        self.files.iter().find(|f| f.id() == id)
    }

    pub fn position(&self, id: SstableId) -> Option<usize> {
        self.files.iter().position(|f| f.id() == id)
    }

    /// Whether a snapshot at `ts` sees a row as it is now. A file that is gone was compacted, as only those are that every
    /// snapshot sees.
    pub fn is_visible(&self, place: Location, ts: Timestamp) -> bool {
        self.file(place.file).is_none_or(|file| file.row_visible_from(place.row) <= ts)
    }

    /// Whether some file may hold `key`: by key ranges and filters, in memory.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        let mut hash = None;
        self.files.iter().any(|f| f.sstable.may_contain_hashed(key, &mut hash))
    }
}

impl TabletState {
    /// Memtables from the oldest to the active one.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.sealed.iter().chain(std::iter::once(&self.active))
    }

    /// Ends the walks over its memtables; see [`Walks::end`](crate::walk::Walks::end).
    pub fn end_walks(&self) {
        self.memtables().for_each(|memtable| memtable.end_walks());
    }

    /// Versions of memtables with ids at or above this are not in the files yet.
    pub fn first_unflushed(&self) -> u64 {
        self.sealed.first().unwrap_or(&self.active).id
    }
}

impl Tablet {
    /// One of a table's first version.
    pub fn new(id: TabletId, dir: PathBuf, generation: u64, active: Arc<Memtable>, files: FileSet) -> Self {
        let state = TabletState { active, sealed: Vec::new(), files: Arc::new(files) };
        Tablet {
            id,
            dir,
            generation: AtomicU64::new(generation),
            version: AtomicU64::new(0),
            emptied: AtomicU64::new(0),
            is_changing: AtomicBool::new(false),
            state: ArcSwap::from_pointee(state),
            installer: Mutex::new(()),
            flush: Mutex::new(()),
            compaction: Mutex::new(()),
        }
    }

    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Snapshots below this saw rows that are gone.
    #[inline]
    pub fn emptied(&self) -> Timestamp {
        Timestamp(self.emptied.load(Ordering::Acquire))
    }

    pub fn set_emptied(&self, at: Timestamp) {
        self.emptied.store(at.0, Ordering::Release);
    }

    /// Has all rows be gone for who looks for them from now on; returns the state that had them. The caller holds the installer,
    /// and the gate alone. `active` is of a new generation.
    pub fn empty(&self, at: Timestamp, active: &Arc<Memtable>, flushed_lsn: u64) -> Arc<TabletState> {
        // In this order: who misses a row sees why, and who has the new generation must not find, and cache, a row of the old
        // files.
        self.set_emptied(at);
        let files = Arc::new(FileSet { files: Vec::new(), flushed_lsn });
        let before =
            self.state.swap(Arc::new(TabletState { active: active.clone(), sealed: Vec::new(), files }));
        self.generation.store(active.generation, Ordering::Release);
        before
    }

    /// While it says so, a row that is read of its files is not cached, and one that is not found there may be gone later than
    /// at the watermark.
    pub fn is_changing(&self) -> bool {
        self.is_changing.load(Ordering::Acquire)
    }

    pub fn set_changing(&self, is_changing: bool) {
        self.is_changing.store(is_changing, Ordering::Release);
    }

    pub fn state(&self) -> arc_swap::Guard<Arc<TabletState>> {
        self.state.load()
    }

    /// Whether the row of `key` may be one that a file brought after `ts`, or a patch changed: an import's rows, and those of a patch, have
    /// the time at which it began. By key ranges and filters, in memory, unless there is such a patch: then the key is looked for.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn may_have_come_after(&self, key: &[u8], ts: Timestamp) -> Result<bool> {
        for file in &self.state().files.files {
            if file.whole_from() <= ts || !file.sstable.may_contain(key) {
                continue;
            }
            if file.visible_from > ts {
                return Ok(true);
            }
            let live = file.locate_live(&[key])?;
            if live.into_iter().flatten().any(|(row, _)| file.row_visible_from(row) > ts) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub fn has_files(&self) -> bool {
        !self.state.load().files.files.is_empty()
    }

    pub fn is_current(&self, state: &Arc<TabletState>) -> bool {
        Arc::ptr_eq(&self.state.load(), state)
    }

    /// Publishes the state that `change` makes of the current one.
    pub fn change(&self, change: impl Fn(&TabletState) -> TabletState) {
        self.state.rcu(|state| change(state));
    }

    /// Whether it takes rows that were made for this version of the table's definition: asked under the gate.
    #[inline]
    pub fn takes(&self, version: u64) -> bool {
        self.version.load(Ordering::Acquire) == version
    }

    pub fn set_version(&self, version: u64) {
        self.version.store(version, Ordering::Release);
    }

    /// Lets no write in that would be lost if the tablet turns out to be emptied or dropped.
    pub fn set_leaving(&self) {
        self.set_version(LEAVING);
    }

    pub fn is_leaving(&self) -> bool {
        self.takes(LEAVING)
    }

    /// It is not dropped, after all, or emptied: takes rows of `version`, unless it takes others by now.
    pub fn set_staying(&self, version: u64) {
        // Another version is a later decision.
        let _ = self.version.compare_exchange(LEAVING, version, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub fn is_dropped(&self) -> bool {
        self.takes(DROPPED)
    }

    pub fn set_dropped(&self) {
        self.set_version(DROPPED);
    }
}
