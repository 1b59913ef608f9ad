//! Point reads: one look at the row index; SSTables only for what it does not hold.
//!
//! The index is probed first and the list of files loaded after: a flush installs its files before it unpins its rows,
//! so what is missing in the index is in those files. A hit allocates nothing and copies nothing but what `answer`
//! copies.
//!
//! Two kinds of views, two rules:
//! - Reads by [`Engine::read_view`] stand each for itself. One takes the newest version at or below the view's
//!   timestamp or, that one being freed, at or below the watermark: both were committed at some moment of the read. A
//!   version above the watermark answers nobody, or a snapshot taken afterwards would not see what was answered. Where memory
//!   has no other, the read goes on with a snapshot.
//! - Reads by [`Snapshot::view`](crate::Snapshot::view) agree: of what one write changed they see all or nothing. A
//!   version answers only if it is at or below the snapshot's timestamp; if memory has none, the files do, by commit
//!   timestamps, marks, and the moment from which a file is visible. The horizon keeps what they need.

use crate::catalog::{Expiry, Table};
use crate::engine::{Engine, Obligation};
use crate::index::{KeyRef, Location, Version, version_at};
use crate::long_reads::{FileRowBuffer, UNCOUNTED_BYTES};
use crate::tablet::{LiveFile, Tablet};
use oribi_types::{Result, RowRef, Timestamp, ValueRef};
use std::sync::atomic::Ordering::Relaxed;

/// What point reads go by: a timestamp and the wall clock, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub struct ReadView {
    pub ts: Timestamp,
    pub now_micros: u64,
    /// A snapshot is registered at `ts`.
    pub(crate) registered: bool,
}

/// A row as a reader sees it.
#[derive(Clone, Copy, Debug)]
pub struct RowVersion<'a> {
    /// The encoded key.
    pub key: &'a [u8],
    /// The encoded row, to be read by the table's layout.
    pub row: &'a [u8],
    /// When it was committed.
    pub ts: Timestamp,
}

/// What a look-up in memory gave.
#[derive(Debug)]
pub enum Lookup<R> {
    Found(R, Obligation),
    Absent(Obligation),
    /// Only the SSTables can tell: call [`Engine::get`].
    Pending,
}

/// What a read gave that is to be of rows up to some length.
#[derive(Debug)]
pub enum UpTo<R> {
    Read(Option<R>, Obligation),
    /// The row is in a file and was not read: it has so many bytes, or less, as others may share its pages.
    Longer(usize),
}

/// A key on its way to be read: hashed once, and its memory fetched ahead.
#[derive(Clone, Copy)]
pub struct Probe<'a> {
    pub(crate) table: &'a Table,
    pub(crate) tablet: &'a Tablet,
    pub(crate) key: KeyRef<'a>,
}

impl<'a> Probe<'a> {
    /// The same for the same row as long as the process lives; nearly always another for another.
    pub fn hash(&self) -> u64 {
        self.key.hash
    }

    /// The encoded key.
    pub fn key(&self) -> &'a [u8] {
        self.key.key
    }
}

/// See [`Engine::pin`].
pub struct Pinned(oribi_index::Guard);

impl Pinned {
    /// Frees what nobody who is pinned can have found. Due now and then from a thread that writes while it is pinned.
    pub fn reclaim(&self) {
        self.0.flush();
    }
}

/// What is likely the newest version of a row, if anything is in memory.
#[derive(Clone, Copy)]
pub struct Sighting<'g>(Option<&'g Version>);

impl Sighting<'_> {
    pub const NOTHING: Self = Sighting(None);
}

/// Where the newest version of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// In memory, in so many bytes.
    Memory(usize),
    /// Nowhere: the filters say so.
    Absent,
    /// In the SSTables, if anywhere.
    Files,
}

/// What the files of a tablet have of a key.
pub(crate) enum InFiles {
    Row(FileRow),
    Nothing,
    /// A row of so many bytes, more than were asked for.
    Longer(usize),
}

/// A row of an SSTable.
#[derive(Clone, Copy)]
pub(crate) struct FileRow {
    pub ts: Timestamp,
    pub home: Location,
    /// The commit of its file's rows, for those that were imported, and of the patch that changed it last.
    pub visible_from: Timestamp,
    /// Whether the row is whole and the newest version: the row cache may have it.
    pub may_cache: bool,
}

impl Engine {
    /// The version of `key` that `view` sees, from the row index or, for absence, from the filters: no I/O, no
    /// allocation. `answer` runs pinned: it must neither wait nor call the engine.
    pub fn try_get<R>(
        &self,
        table: &Table,
        key: &[u8],
        view: ReadView,
        answer: impl FnOnce(RowVersion<'_>) -> R,
    ) -> Lookup<R> {
        self.try_read(self.probe(table, key), view, answer)
    }

    /// The first stage of a read: hashes the key.
    pub fn probe<'a>(&self, table: &'a Table, key: &'a [u8]) -> Probe<'a> {
        let tablet = table.tablet_of(key);
        Probe { table, tablet, key: self.index.key(tablet.generation(), key) }
    }

    /// Pins the thread: what others replace or evict stays until this is dropped, and with a pin already taken each
    /// read is cheaper. Not to be kept while waiting for anything.
    pub fn pin(&self) -> Pinned {
        Pinned(oribi_index::pin())
    }

    /// The second stage of many reads: has the bucket fetched, so that the cache misses of a batch overlap, where one
    /// read after the other waits for each.
    pub fn prefetch(&self, probe: Probe<'_>, pinned: &Pinned) {
        if self.options.prefetch {
            self.index.prefetch_bucket(probe.key, &pinned.0);
        }
    }

    /// The third stage: sees where the row is, without a look at it, and has it fetched.
    pub fn sight<'g>(&'g self, probe: Probe<'_>, pinned: &'g Pinned) -> Sighting<'g> {
        Sighting(self.index.approach(probe.key, &pinned.0, self.options.prefetch))
    }

    /// Where the row is, most likely.
    pub fn presence(&self, probe: Probe<'_>, sighting: Sighting<'_>) -> Presence {
        match sighting.0 {
            Some(version) => Presence::Memory(version.row().map_or(0, <[u8]>::len)),
            None if probe.tablet.state().files.may_contain(probe.key.key) => Presence::Files,
            None => Presence::Absent,
        }
    }

    /// Finds the row. It answers no read: the next moment it may be otherwise.
    pub fn locate(&self, probe: Probe<'_>) -> Presence {
        let pinned = oribi_index::pin();
        let sighting = self.index.approach(probe.key, &pinned, false).filter(|version| probe.key.is(version));
        self.presence(probe, Sighting(sighting))
    }

    /// As [`try_read`](Self::try_read), of what was seen of the row a moment ago. Nothing was written to it since then
    /// that the reader must see.
    pub fn try_read_sighted<R>(
        &self,
        probe: Probe<'_>,
        sighting: Sighting<'_>,
        view: ReadView,
        answer: impl FnOnce(RowVersion<'_>) -> R,
    ) -> Lookup<R> {
        let Probe { table, key, .. } = probe;
        if let Some(newest) = sighting.0.filter(|version| key.is(version))
            && let Some(version) = self.seen(probe, newest, view)
        {
            newest.touch();
            return match look(table, key.key, version, view, answer) {
                (Some(found), obligation) => Lookup::Found(found, obligation),
                (None, obligation) => Lookup::Absent(obligation),
            };
        }
        self.try_read(probe, view, answer)
    }

    /// As [`try_get`](Self::try_get), the last stage.
    pub fn try_read<R>(
        &self,
        probe: Probe<'_>,
        view: ReadView,
        answer: impl FnOnce(RowVersion<'_>) -> R,
    ) -> Lookup<R> {
        let Probe { table, tablet, key } = probe;
        let newest = self.index.read(key, |newest| {
            let version = self.seen(probe, newest, view)?;
            Some(look(table, key.key, version, view, answer))
        });
        match newest {
            Ok(Some((Some(found), obligation))) => Lookup::Found(found, obligation),
            Ok(Some((None, obligation))) => Lookup::Absent(obligation),
            // The row's first write in memory is being applied.
            Ok(None) if !view.registered => Lookup::Pending,
            _ if tablet.state().files.may_contain(key.key) => Lookup::Pending,
            _ if self.check_answer(probe, view).is_err() => Lookup::Pending,
            _ => Lookup::Absent(Obligation::default()),
        }
    }

    /// As [`try_get`](Self::try_get), reading SSTables too: blocks on file I/O, and leaves the row in the row cache.
    ///
    /// # Errors
    /// `Retry` if the row may be gone with a truncate or drop that the view does not see, or one of its columns that `table`
    /// has; `Corrupt`; those of the file system.
    pub fn get<R>(
        &self,
        table: &Table,
        key: &[u8],
        view: ReadView,
        answer: impl FnOnce(RowVersion<'_>) -> R,
    ) -> Result<(Option<R>, Obligation)> {
        self.read(self.probe(table, key), view, answer)
    }

    /// As [`get`](Self::get), the last stage.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn read<R>(
        &self,
        probe: Probe<'_>,
        view: ReadView,
        answer: impl FnOnce(RowVersion<'_>) -> R,
    ) -> Result<(Option<R>, Obligation)> {
        match self.read_up_to(usize::MAX, probe, view, answer)? {
            UpTo::Read(found, obligation) => Ok((found, obligation)),
            UpTo::Longer(_) => unreachable!("no row is longer than memory"),
        }
    }

    /// As [`read`](Self::read), of what is in memory, or has `bytes_max` bytes at most; what is not long may have more.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn read_up_to<R>(
        &self,
        bytes_max: usize,
        probe: Probe<'_>,
        view: ReadView,
        answer: impl FnOnce(RowVersion<'_>) -> R,
    ) -> Result<UpTo<R>> {
        let Probe { table, tablet, key } = probe;
        let (mut answer, asked, mut view) = (Some(answer), view, view);
        // Of a read that stands for itself, if it comes to need one.
        let mut snapshot = None;
        let stamp = loop {
            let looked = self.index.read(key, |newest| {
                let Some(version) = self.seen(probe, newest, view) else {
                    return Err(());
                };
                let answer = answer.take().expect("answered once");
                Ok(look(table, key.key, version, view, answer))
            });
            match looked {
                Ok(Ok((found, obligation))) => return Ok(UpTo::Read(found, obligation)),
                // What a snapshot sees of the row was flushed, if there was anything.
                Ok(Err(())) if view.registered => break None,
                // The row's first write in memory is being applied, which may take long: a snapshot has what was before.
                Ok(Err(())) => {
                    self.check_answer(probe, view)?;
                    self.timeline.wait_for_watermark(view.ts)?;
                    let taken = snapshot.insert(self.snapshot());
                    view = ReadView { now_micros: view.now_micros, ..taken.view() };
                }
                Err(stamp) => break Some(stamp),
            }
        };
        let mut buffer = FileRowBuffer::default();
        let at = if view.registered { view.ts } else { Timestamp::MAX };
        let found = self.read_files_up_to(bytes_max, table, tablet, key.key, at, &mut buffer)?;
        match self.check_answer(probe, view) {
            // What the snapshot saw was truncated, which is no matter to who did not ask for it.
            Err(_) if snapshot.is_some() => {
                let answer = answer.take().expect("answered once");
                return self.read_up_to(bytes_max, probe, asked, answer);
            }
            checked => checked?,
        }
        let FileRow { ts, home, visible_from, may_cache } = match found {
            InFiles::Row(found) => found,
            InFiles::Nothing => {
                // A row that has just gone: no snapshot taken after this answer may have it.
                if tablet.is_changing() {
                    self.timeline.wait_for_watermark(self.timeline.last())?;
                }
                return Ok(UpTo::Read(None, Obligation::default()));
            }
            InFiles::Longer(bytes) => return Ok(UpTo::Longer(bytes)),
        };
        let row = &buffer.row;
        // An import that is being installed: no snapshot taken after this answer may miss it.
        self.timeline.wait_for_watermark(visible_from)?;
        if let Some(stamp) = stamp.filter(|_| may_cache && !tablet.is_changing()) {
            self.index.fill(key, stamp, row, ts, home);
        }
        if table.is_expired(row, ts, view.now_micros) {
            return Ok(UpTo::Read(None, Obligation::default()));
        }
        let found = answer.take().map(|answer| answer(RowVersion { key: key.key, row, ts }));
        Ok(UpTo::Read(found, Obligation::default()))
    }

    /// Whether memory holds `key` as a clean row: in the row cache, not in a memtable. It explains a read and does not
    /// answer one: the next moment it may be otherwise.
    pub fn is_cached(&self, table: &Table, key: &[u8]) -> bool {
        let key = self.index.key(table.tablet_of(key).generation(), key);
        self.index.read(key, |newest| newest.meta.is_clean()).unwrap_or(false)
    }

    /// The version that `view` sees, if it is in memory and may be answered.
    fn seen<'v>(&self, probe: Probe<'_>, newest: &'v Version, view: ReadView) -> Option<&'v Version> {
        self.check_answer(probe, view).ok()?;
        let tablet = probe.tablet;
        if !self.options.one_source {
            std::hint::black_box(tablet.state().files.may_contain(newest.key()));
        }
        let version = version_at(newest, view.ts);
        if !view.registered {
            return version.or_else(|| version_at(newest, self.timeline.watermark()));
        }
        // An imported row carries a timestamp from before its import was committed.
        version.filter(|version| {
            let home = version.meta.lineage.home();
            home.is_none_or(|home| tablet.state().files.is_visible(home, view.ts))
        })
    }

    /// The version of `key` at `at` in the tablet's files, whose row is left in `buffer`; at `MAX`, the live one. `at` is
    /// not below the horizon, and the caller has seen that the index does not hold that version. Waits for room if it is long.
    pub(crate) fn read_files<'e>(
        &'e self,
        table: &Table,
        tablet: &Tablet,
        key: &[u8],
        at: Timestamp,
        buffer: &mut FileRowBuffer<'e>,
    ) -> Result<Option<FileRow>> {
        match self.read_files_up_to(usize::MAX, table, tablet, key, at, buffer)? {
            InFiles::Row(found) => Ok(Some(found)),
            InFiles::Nothing => Ok(None),
            InFiles::Longer(_) => unreachable!("no row is longer than memory"),
        }
    }

    fn read_files_up_to<'e>(
        &'e self,
        bytes_max: usize,
        table: &Table,
        tablet: &Tablet,
        key: &[u8],
        at: Timestamp,
        buffer: &mut FileRowBuffer<'e>,
    ) -> Result<InFiles> {
        let state = tablet.state();
        let mut looked = false;
        for file in &state.files.files {
            if file.visible_from > at || !file.sstable.may_contain(key) {
                continue;
            }
            looked = true;
            let seen = file.at(at);
            let found = seen.sstable.find(key, |row, ts| {
                ts <= at && file.deletions.deleted_at(row).is_none_or(|deleted_at| deleted_at > at)
            })?;
            if let Some((position, ts)) = found {
                if let Some(bytes) = self.read_file_row(bytes_max, table, &seen, position, buffer)? {
                    return Ok(InFiles::Longer(bytes));
                }
                self.counters.file_reads.fetch_add(1, Relaxed);
                let home = Location { file: file.id(), row: position };
                // By a definition that is older than the file, the row lacks columns that others read.
                let is_whole = seen.sstable.is_known_to(table.schema_ref());
                let is_newest = file.row_visible_from(position) <= at && !file.deletions.is_marked(position);
                let may_cache = is_whole && !table.is_uncommitted() && is_newest;
                let visible_from = seen.row_visible_from(position);
                return Ok(InFiles::Row(FileRow { ts, home, visible_from, may_cache }));
            }
        }
        if looked {
            self.counters.file_reads.fetch_add(1, Relaxed);
        }
        Ok(InFiles::Nothing)
    }

    /// Reads a row of a file, once there is room for it if it is long; how many bytes it has if these are too many.
    pub(crate) fn read_file_row<'e>(
        &'e self,
        bytes_max: usize,
        table: &Table,
        file: &LiveFile,
        position: u32,
        buffer: &mut FileRowBuffer<'e>,
    ) -> Result<Option<usize>> {
        let mut long_bytes_max = UNCOUNTED_BYTES;
        loop {
            buffer.clear();
            if long_bytes_max > UNCOUNTED_BYTES {
                buffer.take_room(&self.long_reads, long_bytes_max);
            }
            let schema = table.schema_ref();
            match file.sstable.read_row(schema, position, long_bytes_max, &mut buffer.row)? {
                Some(bytes) if bytes <= bytes_max => long_bytes_max = bytes,
                longer => return Ok(longer),
            }
        }
    }
}

/// Answers with a version: what it gave, and what was observed.
#[inline]
fn look<R>(
    table: &Table,
    key: &[u8],
    version: &Version,
    view: ReadView,
    answer: impl FnOnce(RowVersion<'_>) -> R,
) -> (Option<R>, Obligation) {
    let (ts, lsn) = (version.meta.ts, version.meta.lsn);
    let row = version.row().filter(|row| !table.is_expired(row, ts, view.now_micros));
    (row.map(|row| answer(RowVersion { key, row, ts })), Obligation::on(table, lsn))
}

impl Table {
    /// Whether a row is past its time.
    #[inline]
    pub(crate) fn is_expired(&self, row: &[u8], ts: Timestamp, now_micros: u64) -> bool {
        let expiry = self.expiry();
        !expiry.never() && self.is_expired_by(expiry, row, ts, now_micros)
    }

    fn is_expired_by(&self, expiry: Expiry, row: &[u8], ts: Timestamp, now_micros: u64) -> bool {
        if expiry.ttl_micros.is_some_and(|ttl| ts.micros().saturating_add(ttl) <= now_micros) {
            return true;
        }
        let Some(slot) = expiry.slot else { return false };
        match RowRef::new(self.schema_ref().layout(), row).get(usize::from(slot)) {
            Some(ValueRef::Timestamp(at)) => at <= now_micros as i64,
            _ => false,
        }
    }
}
