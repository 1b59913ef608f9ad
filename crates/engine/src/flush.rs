//! Flush: a sealed memtable becomes an SSTable and marks on the rows that it replaces.
//!
//! Deletes leave no trace but marks. A version that was replaced before the flush is written only if a snapshot may
//! still read it, and then with its mark.

use crate::catalog::Table;
use crate::engine::Engine;
use crate::index::{Flushed, KeyRef, Location, Older, VersionRef};
use crate::installer::FileChange;
use crate::manifest::Edit;
use crate::memtable::Memtable;
use crate::scan::resolve;
use crate::tablet::Tablet;
use oribi_sstable::{SstableId, SstableMeta, SstableOptions, SstableWriter};
use oribi_types::{Error, ErrorKind, Result, Timestamp};
use oribi_wal::Lsn;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What a memtable holds of one key.
struct FlushKey {
    hash: u64,
    /// Names the key.
    newest: VersionRef,
    /// Newest first; only those that a snapshot may read.
    versions: SmallVec<[FlushVersion; 1]>,
    /// What the oldest version of the memtable replaces, and since when.
    older: Older,
    oldest_ts: Timestamp,
}

struct FlushVersion {
    version: VersionRef,
    /// When the next version came, if it has.
    superseded: Option<Timestamp>,
}

/// What a flush keeps in memory per key: its lists, and one version. Rows and keys are shared with the row index.
const KEY_BYTES: usize =
    size_of::<FlushKey>() + size_of::<FlushVersion>() + size_of::<(Timestamp, Flushed)>();

/// The SSTable of a flush, not yet published.
struct FlushedFile {
    meta: SstableMeta,
    marks: Vec<(u32, Timestamp)>,
}

impl Engine {
    /// Writes the memtables of `table` to SSTables now; returns when they are installed.
    ///
    /// # Errors
    /// Those of the file system; `Corrupt`; `Unavailable` if the log has stopped. The rows stay in memory.
    pub fn flush(&self, table: &Arc<Table>) -> Result<()> {
        table.tablets.iter().try_for_each(|tablet| self.flush_tablet(table, tablet))
    }

    /// Sets apart what `table` has in memory, for a later [`flush_sealed`](Engine::flush_sealed).
    pub fn seal(&self, table: &Table) {
        for tablet in &table.tablets {
            let _flush = tablet.flush.lock();
            self.seal_tablet(tablet);
        }
    }

    /// Writes what was sealed to SSTables now, but for what was overwritten since and no snapshot reads.
    ///
    /// # Errors
    /// As [`flush`](Engine::flush).
    pub fn flush_sealed(&self, table: &Table) -> Result<()> {
        table.tablets.iter().try_for_each(|tablet| self.flush_sealed_tablet(table, tablet))
    }

    pub(crate) fn flush_tablet(&self, table: &Table, tablet: &Tablet) -> Result<()> {
        let _flush = tablet.flush.lock();
        // What an attempt that failed has sealed goes first: as long as it fails, no more is sealed, and one memtable
        // collects what comes.
        self.flush_memtables(table, tablet)?;
        self.seal_tablet(tablet);
        self.flush_memtables(table, tablet)
    }

    pub(crate) fn flush_sealed_tablet(&self, table: &Table, tablet: &Tablet) -> Result<()> {
        let _flush = tablet.flush.lock();
        self.flush_memtables(table, tablet)
    }

    /// Flushes all sealed memtables. The caller holds the tablet's flush lock.
    fn flush_memtables(&self, table: &Table, tablet: &Tablet) -> Result<()> {
        loop {
            let state = arc_swap::Guard::into_inner(tablet.state());
            let Some(memtable) = state.sealed.first() else { return Ok(()) };
            // Looked up after sealing: it knows every column that a row of the memtable can have.
            let Some(table) = self.latest(table.id()) else { return Ok(()) };
            match self.flush_memtable(&table, tablet, memtable) {
                Err(error) if error.kind() == ErrorKind::Retry => {}
                result => result?,
            }
        }
    }

    /// Makes the active memtable a sealed one, unless it is empty. Under the gate no write is between its LSN and its
    /// memtable, so the sealed one has every record of the tablet up to now.
    pub(crate) fn seal_tablet(&self, tablet: &Tablet) {
        let _gate = self.gate.write();
        if tablet.state().active.is_empty() {
            return;
        }
        tablet.state().active.seal(self.log.appended());
        let next = self.new_memtable();
        tablet.change(|state| {
            let mut state = state.clone();
            state.sealed.push(std::mem::replace(&mut state.active, next.clone()));
            state
        });
    }

    /// Flushes the oldest sealed memtable.
    fn flush_memtable(&self, table: &Table, tablet: &Tablet, memtable: &Arc<Memtable>) -> Result<()> {
        self.manifest.check()?;
        let horizon = self.timeline.horizon();
        let _held = self.budget.hold(memtable.len() * KEY_BYTES);
        let mut keys = self.flush_keys(tablet, memtable, horizon);
        // A version that is named by a mark or a file must not be lost by the log.
        let needs = self.log.appended();
        let id = self.manifest.next_id();
        let (file, places) = self.run_heavy(|| {
            keys.sort_unstable_by(|a, b| a.newest.key().cmp(b.newest.key()));
            self.write_flush(table, tablet, id, &keys)
        })?;
        let rows = places.iter().filter(|(_, place)| *place != Flushed::Gone).count();
        self.log
            .wait_durable(needs)
            .and_then(|()| self.install_flush(table, tablet, memtable, &keys, file))
            .inspect_err(|_| self.give_up(tablet, id))?;
        self.unpin(tablet, memtable, keys, &places);
        self.counters.flushes.fetch_add(1, Relaxed);
        self.counters.flushed_rows.fetch_add(rows as u64, Relaxed);
        Ok(())
    }

    /// Runs the heavy part of a flush at idle priority, unless somebody waits for it or soon must.
    fn run_heavy<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        if self.closed.load(Relaxed) {
            return work();
        }
        let log_bytes_max = self.options.log_bytes_max / 4 * 5;
        oribi_env::run_idle_until(|| self.budget.is_pressed() || self.log.size_bytes() > log_bytes_max, work)
    }

    fn flush_keys(&self, tablet: &Tablet, memtable: &Memtable, horizon: Timestamp) -> Vec<FlushKey> {
        let mut keys = Vec::with_capacity(memtable.len());
        self.index.visit(tablet.generation(), memtable.hashes(), |hash, newest| {
            let mut versions = SmallVec::new();
            let (mut superseded, mut oldest, mut next) = (None, None, Some(newest));
            while let Some(version) = next.filter(|v| v.meta.memtable() >= memtable.id) {
                if version.meta.memtable() == memtable.id && version.meta.take() {
                    oldest = Some((version.meta.older(), version.meta.ts));
                    if superseded.is_none_or(|at| at > horizon) {
                        versions.push(FlushVersion { version: version.hold(), superseded });
                    }
                }
                superseded = Some(version.meta.ts);
                next = version.previous();
            }
            if let Some((older, oldest_ts)) = oldest {
                keys.push(FlushKey { hash, newest: newest.hold(), versions, older, oldest_ts });
            }
        });
        keys
    }

    /// Writes the rows of `keys`, which are sorted. Returns the file, if there are rows, and the place of each version
    /// in the order of keys and versions.
    #[allow(clippy::type_complexity)]
    fn write_flush(
        &self,
        table: &Table,
        tablet: &Tablet,
        id: SstableId,
        keys: &[FlushKey],
    ) -> Result<(Option<FlushedFile>, Vec<(Timestamp, Flushed)>)> {
        let mut places = Vec::with_capacity(keys.len());
        let mut marks = Vec::new();
        let mut writer: Option<SstableWriter> = None;
        let mut position = 0;
        for key in keys {
            for FlushVersion { version, superseded } in &key.versions {
                let ts = version.meta().ts;
                let Some(row) = version.row() else {
                    places.push((ts, Flushed::Gone));
                    continue;
                };
                if writer.is_none() {
                    let options = SstableOptions::default();
                    writer = Some(SstableWriter::create(
                        &self.env,
                        &tablet.dir,
                        id,
                        table.schema_ref(),
                        &options,
                    )?);
                }
                let writer = writer.as_mut().expect("just created");
                writer.push(key.newest.key(), row, ts)?;
                places.push((ts, Flushed::At(Location { file: id, row: position })));
                marks.extend(superseded.map(|at| (position, at)));
                position += 1;
            }
        }
        let file = match writer {
            Some(writer) => Some(FlushedFile { meta: writer.finish()?, marks }),
            None => None,
        };
        Ok((file, places))
    }

    /// Marks what the memtable's rows replace, and installs.
    fn install_flush(
        &self,
        table: &Table,
        tablet: &Tablet,
        memtable: &Arc<Memtable>,
        keys: &[FlushKey],
        file: Option<FlushedFile>,
    ) -> Result<()> {
        let mut older: Vec<(&[u8], Older)> = keys.iter().map(|k| (k.newest.key(), k.older)).collect();
        // The long look-up, before the installer is taken; what a compaction moves meanwhile is looked up again below.
        let files = tablet.state().files.clone();
        let places = self.run_heavy(|| resolve(&files, &older))?;
        for ((_, older), place) in older.iter_mut().zip(places) {
            *older = place.map_or(Older::Nothing, Older::At);
        }
        let _installer = tablet.installer.lock();
        let state = arc_swap::Guard::into_inner(tablet.state());
        let waits = state.sealed.first().is_some_and(|first| Arc::ptr_eq(first, memtable));
        if !waits || tablet.is_dropped() {
            return Err(Error::retry("the memtable was truncated meanwhile"));
        }
        let mut change = FileChange { flushed_lsn: memtable.last_lsn(), ..FileChange::default() };
        for (key, place) in keys.iter().zip(resolve(&state.files, &older)?) {
            if let Some(location) = place {
                change.marks.entry(location.file).or_default().push((location.row, key.oldest_ts));
            }
        }
        change.added.extend(file.map(|file| (file.meta, file.marks)));
        let prepared = self.prepare(tablet, table.schema_ref(), change)?;
        self.commit_change(tablet, prepared, |state, files| {
            let sealed = state.sealed.iter().filter(|m| m.id != memtable.id).cloned().collect();
            crate::tablet::TabletState { active: state.active.clone(), sealed, files }
        })
    }

    /// Lets the memtable's rows go on as row cache: only now, that their files are what readers find.
    fn unpin(
        &self,
        tablet: &Tablet,
        memtable: &Memtable,
        keys: Vec<FlushKey>,
        mut places: &[(Timestamp, Flushed)],
    ) {
        let generation = tablet.generation();
        for FlushKey { hash, newest, versions, .. } in keys {
            let (flushed, rest) = places.split_at(versions.len());
            places = rest;
            self.index.unpin(KeyRef { hash, generation, key: newest.key() }, memtable.id, flushed);
        }
        self.index.evict_excess();
    }

    /// Removes the part of the log whose records are all in SSTables.
    pub(crate) fn trim_log(&self) -> Result<()> {
        let start = self.flushed_below().min(self.log.durable() + 1);
        self.manifest.commit(vec![Edit::LogStart { lsn: start }])?;
        self.log.trim(start)
    }

    /// Every record below this is in SSTables.
    fn flushed_below(&self) -> Lsn {
        // Under the gate every record appended so far is noted in its memtable; later ones are above it.
        let appended = {
            let _gate = self.gate.write();
            self.log.appended()
        };
        let catalog = self.catalog.load();
        let tablets = catalog.all_tables().flat_map(|table| &table.tablets);
        let oldest = tablets.flat_map(|tablet| {
            let state = arc_swap::Guard::into_inner(tablet.state());
            state.memtables().map(|m| m.first_lsn()).collect::<Vec<_>>()
        });
        oldest.min().unwrap_or(u64::MAX).min(appended + 1)
    }
}
