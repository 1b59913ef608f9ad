//! Point reads: one look at the row index; SSTables only for what it does not hold.
//!
//! The index is probed first and the list of files loaded after: a flush installs its files before it unpins its rows,
//! so what is missing in the index is in those files. A hit allocates nothing and copies nothing but what `answer`
//! copies.

use crate::catalog::Table;
use crate::engine::{Engine, Obligation};
use crate::index::{KeyRef, Location, Version};
use crate::tablet::Tablet;
use oribi_types::{Result, RowRef, Timestamp, ValueRef};
use std::sync::atomic::Ordering::Relaxed;

/// What a batch of requests reads by: the watermark and the wall clock, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub struct ReadView {
    pub ts: Timestamp,
    pub now_micros: u64,
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

impl Engine {
    /// The newest version of `key` at `view`, from the row index or, for absence, from the filters: no I/O, no
    /// allocation. `answer` runs under a lock and must not call the engine.
    ///
    /// Should the versions at `view` be gone, because the view is old and nobody registered it, the newest is taken.
    pub fn try_get<R>(
        &self,
        table: &Table,
        key: &[u8],
        view: ReadView,
        answer: impl FnOnce(RowVersion<'_>) -> R,
    ) -> Lookup<R> {
        let tablet = table.tablet_of(key);
        let key = self.index.key(tablet.generation(), key);
        let probe = self.index.read(key, |newest| self.look(table, key, newest, view, answer));
        match probe {
            Ok(lookup) => lookup,
            Err(_) if tablet.state().files.may_contain(key.key) => Lookup::Pending,
            Err(_) => Lookup::Absent(Obligation::default()),
        }
    }

    /// As [`try_get`](Self::try_get), reading SSTables too: blocks on file I/O, and leaves the row in the row cache.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn get<R>(
        &self,
        table: &Table,
        key: &[u8],
        view: ReadView,
        answer: impl FnOnce(RowVersion<'_>) -> R,
    ) -> Result<(Option<R>, Obligation)> {
        let tablet = table.tablet_of(key);
        let key = self.index.key(tablet.generation(), key);
        let mut answer = Some(answer);
        let probe = self.index.read(key, |newest| {
            let answer = answer.take().expect("answered once");
            self.look(table, key, newest, view, answer)
        });
        let stamp = match probe {
            Ok(Lookup::Found(found, obligation)) => return Ok((Some(found), obligation)),
            Ok(Lookup::Absent(obligation)) => return Ok((None, obligation)),
            Ok(Lookup::Pending) => None,
            Err(stamp) => Some(stamp),
        };
        let mut row = Vec::new();
        let Some((ts, home)) = self.read_files(table, tablet, key.key, &mut row)? else {
            return Ok((None, Obligation::default()));
        };
        if let Some(stamp) = stamp {
            self.index.fill(key, stamp, &row, ts, home);
        }
        if table.is_expired(&row, ts, view.now_micros) {
            return Ok((None, Obligation::default()));
        }
        let found = answer.take().map(|answer| answer(RowVersion { key: key.key, row: &row, ts }));
        Ok((found, Obligation::default()))
    }

    /// Whether memory holds `key` as a clean row: in the row cache, not in a memtable. It explains a read and does not
    /// answer one: the next moment it may be otherwise.
    pub fn is_cached(&self, table: &Table, key: &[u8]) -> bool {
        let key = self.index.key(table.tablet_of(key).generation(), key);
        self.index.read(key, |newest| newest.memtable == Version::CLEAN).unwrap_or(false)
    }

    fn look<R>(
        &self,
        table: &Table,
        key: KeyRef<'_>,
        newest: &Version,
        view: ReadView,
        answer: impl FnOnce(RowVersion<'_>) -> R,
    ) -> Lookup<R> {
        // A version below the newest is kept until the watermark passes the newest, so if there is none at the view,
        // the watermark has moved on, or the older version was never in memory.
        let version = match newest.at(view.ts) {
            Some(version) => version,
            None => match newest.at(self.timeline.watermark()) {
                Some(version) => version,
                // An older copy may be in the files, and the newest is being applied at this moment: it may count
                // as read after it.
                None => newest,
            },
        };
        let obligation = Obligation::on(table, version.lsn);
        match version.row.as_deref() {
            Some(row) if !table.is_expired(row, version.ts, view.now_micros) => {
                Lookup::Found(answer(RowVersion { key: key.key, row, ts: version.ts }), obligation)
            }
            _ => Lookup::Absent(obligation),
        }
    }

    /// The live copy of `key` in the tablet's files: its row is left in `row`, its commit timestamp and place
    /// returned. The caller has seen that the index does not hold the key.
    pub(crate) fn read_files(
        &self,
        table: &Table,
        tablet: &Tablet,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<Option<(Timestamp, Location)>> {
        let state = tablet.state();
        let mut looked = false;
        for file in &state.files.files {
            if !file.sstable.may_contain(key) {
                continue;
            }
            looked = true;
            // The live copy is the newest of its file: an older one would be marked.
            let newest = file.sstable.find(key, |_, _| true)?;
            if let Some((position, ts)) = newest.filter(|(position, _)| !file.deletions.is_marked(*position))
            {
                row.clear();
                file.sstable.read_row(table.schema_ref(), position, row)?;
                self.counters.file_reads.fetch_add(1, Relaxed);
                return Ok(Some((ts, Location { file: file.id(), row: position })));
            }
        }
        if looked {
            self.counters.file_reads.fetch_add(1, Relaxed);
        }
        Ok(None)
    }
}

impl Table {
    /// Whether a row is past its time.
    pub(crate) fn is_expired(&self, row: &[u8], ts: Timestamp, now_micros: u64) -> bool {
        let expiry = self.expiry();
        if expiry.never() {
            return false;
        }
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
