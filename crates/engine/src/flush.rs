//! Flush: a sealed memtable becomes an SSTable and marks on the rows that it replaces.
//!
//! Deletes leave no trace but marks. A version that was replaced before the flush is written only if a snapshot may
//! still read it, and then with its mark.

mod keys;
mod output;

use crate::catalog::Table;
use crate::deletions::Marks;
use crate::engine::Engine;
use crate::index::{Older, VersionRef};
use crate::installer::FileChange;
use crate::manifest::Edit;
use crate::memtable::Memtable;
use crate::tablet::{Tablet, TabletState};
use keys::FlushKeys;
use oribi_sstable::SstableId;
use oribi_types::{Error, ErrorKind, Result, Timestamp};
use oribi_wal::Lsn;
use output::Output;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Keys whose rows are held and written at a time.
const CHUNK_KEYS: usize = 4096;

/// A flush is urgent once the log is longer than it may be by one part in so many.
const LOG_URGENT_PART: u64 = 4;

/// A version to be written.
struct FlushVersion {
    version: VersionRef,
    /// When the next version came, if it has.
    superseded: Option<Timestamp>,
}

impl Engine {
    /// Writes the memtables of `table` to SSTables now; returns when they are installed.
    ///
    /// # Errors
    /// Those of the file system; `Corrupt`; `Unavailable` if the log has stopped. The rows stay in memory.
    pub fn flush(&self, table: &Arc<Table>) -> Result<()> {
        table.tablets.iter().try_for_each(|tablet| self.flush_tablet(table, tablet))
    }

    /// Sets apart what `table` has in memory, for a later [`flush_sealed`](Engine::flush_sealed): what happens to key-value
    /// tables by itself, half a log apart.
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
        let _gate = self.gate.alone();
        if tablet.state().active.is_empty() {
            return;
        }
        tablet.state().active.seal(self.log.appended());
        let next = Memtable::succeed(&tablet.state(), self.next_memtable());
        tablet.change(|state| {
            let mut state = state.clone();
            state.sealed.push(std::mem::replace(&mut state.active, next.clone()));
            state
        });
    }

    /// Flushes the oldest sealed memtable. The rows are held chunk by chunk, so that what is overwritten meanwhile does
    /// not fill memory.
    fn flush_memtable(&self, table: &Table, tablet: &Tablet, memtable: &Arc<Memtable>) -> Result<()> {
        let _whole = self.stop_on_panic("a flush");
        self.manifest.retry()?;
        let horizon = self.timeline.horizon();
        let mut keys = FlushKeys::of(&self.index, memtable);
        let _held = self.budget.hold(keys.memory_bytes());
        self.run_heavy(|| keys.sort());
        let mut output = Output::new(self, table, tablet)?;
        let mut rows = Vec::new();
        for chunk in 0..keys.len().div_ceil(CHUNK_KEYS) {
            keys.take_rows(&self.index, chunk, horizon, self.published.is_some(), &mut rows);
            self.run_heavy(|| output.write(&rows))?;
            rows.clear();
        }
        keys.forget_cut_off();
        // A bulk write is applied before its commit is logged: what was seen of one is there once all see it.
        self.timeline.wait_for_watermark(keys.newest())?;
        // A version that is named by a mark or a file, or for which another was not written, must not be lost by the log.
        let needs = self.log.appended();
        let id = output.id;
        let (file, places) = self.run_heavy(|| output.finish())?;
        self.log
            .wait_durable(needs)
            .and_then(|()| self.install_flush(table, tablet, memtable, &mut keys, file))
            .inspect_err(|_| self.give_up(tablet, id))?;
        keys.unpin(&self.index, id, &places);
        self.measure_held();
        self.index.evict_excess();
        self.counters.flushes.fetch_add(1, Relaxed);
        self.counters.flushed_rows.fetch_add(output::rows(&places), Relaxed);
        Ok(())
    }

    /// Runs the heavy part of a flush at idle priority, unless somebody waits for it or soon must.
    fn run_heavy<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let log_bytes_max = self.options.log_bytes_max;
        let log_is_long = || self.log.size_bytes() > log_bytes_max + log_bytes_max / LOG_URGENT_PART;
        let urgent = || self.closed.load(Relaxed) || self.budget.is_pressed() || log_is_long();
        oribi_env::run_idle_until(urgent, work)
    }

    /// Marks what the memtable's rows replace, and installs.
    fn install_flush(
        &self,
        table: &Table,
        tablet: &Tablet,
        memtable: &Arc<Memtable>,
        keys: &mut FlushKeys,
        file: Option<output::FlushedFile>,
    ) -> Result<()> {
        // The long look-up, before the installer is taken; what a compaction moves meanwhile is looked up again below.
        let files = tablet.state().files.clone();
        self.run_heavy(|| keys.resolve(&files))?;
        let _installer = tablet.installer.lock();
        let state = arc_swap::Guard::into_inner(tablet.state());
        let waits = state.sealed.first().is_some_and(|first| Arc::ptr_eq(first, memtable));
        if !waits || tablet.is_dropped() {
            return Err(Error::retry("the memtable was truncated meanwhile"));
        }
        keys.resolve(&state.files)?;
        let mut marks = HashMap::<SstableId, Vec<(u32, Timestamp)>>::new();
        for (older, ts) in keys.replaced() {
            if let Older::At(location) = older {
                marks.entry(location.file).or_default().push((location.row, ts));
            }
        }
        let change = FileChange {
            added: file.map(|file| (file.meta, Marks::Each(file.marks))).into_iter().collect(),
            marks: marks.into_iter().map(|(id, marks)| (id, Marks::Each(marks))).collect(),
            flushed_lsn: memtable.last_lsn(),
            ..FileChange::default()
        };
        let prepared = self.prepare(tablet, table.schema_ref(), change)?;
        self.commit_change(tablet, prepared, |state, files| {
            let sealed = state.sealed.iter().filter(|m| m.id != memtable.id).cloned().collect();
            TabletState { active: state.active.clone(), sealed, files }
        })?;
        // Before its rows are unpinned, and before a truncate, which knows the memtable no more, can sweep them.
        memtable.end_walks();
        Ok(())
    }

    /// Removes the part of the log whose records are all in SSTables. What it says of requests goes to the manifest.
    pub(crate) fn trim_log(&self) -> Result<()> {
        let mut saved = self.results.saved.lock();
        let start = self.flushed_below().min(self.log.durable() + 1);
        let checkpoint = self.results.checkpoint(start, *saved);
        let (clients, after) = checkpoint.map_or((None, *saved), |(clients, after)| (Some(clients), after));
        let results = clients.map(|clients| Edit::Results { clients });
        self.manifest.commit(results.into_iter().chain([Edit::LogStart { lsn: start }]).collect())?;
        *saved = after;
        self.log.trim(start)
    }

    /// Every record below this is in SSTables, and its result in the tracker.
    fn flushed_below(&self) -> Lsn {
        // Under the gate every record appended so far is noted in its memtable, and its result; later ones are above it.
        let appended = {
            let _gate = self.gate.alone();
            self.log.appended()
        };
        // Before the memtables are asked: what is noted there is not kept here.
        let fragmented = self.fragmented.first().unwrap_or(u64::MAX);
        let catalog = self.catalog.load();
        let tablets = catalog.all_tables().flat_map(|table| &table.tablets);
        let oldest = tablets.flat_map(|tablet| {
            let state = arc_swap::Guard::into_inner(tablet.state());
            state.memtables().map(|m| m.first_lsn()).collect::<Vec<_>>()
        });
        oldest.min().unwrap_or(u64::MAX).min(appended + 1).min(fragmented)
    }
}
