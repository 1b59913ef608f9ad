//! The sources of a range in one state of the tablet, and which of them has the next row.

use super::files::FileRows;
use super::keys::{KeyRange, after};
use super::memory::{Captured, MemoryRows};
use super::{Scope, Tally};
use crate::engine::Obligation;
use crate::read::RowVersion;
use crate::reading::Reading;
use oribi_types::Result;

/// None is among them that has no row, but for one in memory whose next rows are not captured yet.
pub(super) struct Sources {
    reading: Reading,
    memory: Option<MemoryRows>,
    files: Vec<FileRows>,
    /// The file's row that is looked at.
    row: Vec<u8>,
}

/// What came of a step.
pub(super) enum Step {
    /// A row was shown.
    Row,
    /// None was, and others may follow.
    Nothing,
    /// The sources are to be made anew; with `from`, all keys before it are done with.
    Stale { from: Option<Vec<u8>> },
    /// There are no more.
    End,
}

/// The source of the next row.
enum Next {
    Memory,
    File(usize),
}

impl Sources {
    /// The sources that `reading` has for `keys`; `None` if it is not valid any more.
    pub fn open(reading: Reading, scope: &Scope, keys: &KeyRange, tally: &mut Tally) -> Result<Option<Self>> {
        let memory = MemoryRows::new(&scope.engine, &reading.state, keys);
        // Rows may have gone before the views took note of their keys.
        if !reading.still_valid() {
            return Ok(None);
        }
        let runs = memory.as_ref().map_or(0, MemoryRows::runs);
        let mut files = Vec::new();
        for file in reading.state.files.files.iter().filter(|file| file.visible_from <= scope.ts()) {
            let meta = file.sstable.meta();
            if !keys.overlaps(&meta.min_key, &meta.max_key) {
                continue;
            }
            let rows = file.sstable.rows_between(&keys.from, keys.to.as_deref())?;
            tally.counts.files += 1;
            files.extend(FileRows::new(file, rows, scope, tally)?);
        }
        tally.counts.runs += runs as u64;
        tally.counts.merges += u64::from(runs + files.len() > 1);
        Ok(Some(Sources { reading, memory, files, row: Vec::new() }))
    }

    /// Shows `visit` the next row, unless it is deleted or has expired.
    pub fn step(
        &mut self,
        scope: &Scope,
        tally: &mut Tally,
        visit: &mut impl FnMut(RowVersion<'_>) -> Result<()>,
    ) -> Result<Step> {
        // Before anything else: all keys up to the last one captured are done with, and no other.
        if self.memory.as_ref().is_some_and(MemoryRows::is_spent) {
            return Ok(self.capture(scope, tally));
        }
        match self.next() {
            Some(Next::Memory) => self.step_memory(scope, tally, visit),
            Some(Next::File(i)) => self.step_file(i, scope, tally, visit),
            None => Ok(Step::End),
        }
    }

    fn next(&self) -> Option<Next> {
        match (&self.memory, self.files.as_slice()) {
            (Some(_), []) => Some(Next::Memory),
            (None, []) => None,
            (None, [_]) => Some(Next::File(0)),
            (memory, files) => {
                let (key, i) = files.iter().enumerate().map(|(i, file)| (file.head(), i)).min()?;
                let memory = memory.as_ref().is_some_and(|memory| memory.head().key() <= key);
                Some(if memory { Next::Memory } else { Next::File(i) })
            }
        }
    }

    fn step_memory(
        &mut self,
        scope: &Scope,
        tally: &mut Tally,
        visit: &mut impl FnMut(RowVersion<'_>) -> Result<()>,
    ) -> Result<Step> {
        let Some(memory) = &mut self.memory else { return Ok(Step::Nothing) };
        let version = memory.head();
        let (key, ts) = (version.key(), version.meta().ts);
        // What it replaces.
        while let Some(i) = self.files.iter().position(|file| file.head() == key) {
            if !self.files[i].advance(scope, tally)? {
                self.files.swap_remove(i);
            }
        }
        let now = scope.snapshot.now_micros();
        let row = version.row().filter(|row| !scope.table.is_expired(row, ts, now));
        if let Some(row) = row {
            visit(RowVersion { key, row, ts })?;
            tally.counts.memory_rows += 1;
            tally.counts.memory_bytes += (key.len() + row.len()) as u64;
        }
        let step = if row.is_some() { Step::Row } else { Step::Nothing };
        memory.advance();
        Ok(step)
    }

    fn step_file(
        &mut self,
        i: usize,
        scope: &Scope,
        tally: &mut Tally,
        visit: &mut impl FnMut(RowVersion<'_>) -> Result<()>,
    ) -> Result<Step> {
        let file = &mut self.files[i];
        self.row.clear();
        let ts = file.read(&scope.columns, &mut self.row);
        let shown = !scope.table.is_expired(&self.row, ts, scope.snapshot.now_micros());
        if shown {
            visit(RowVersion { key: file.head(), row: &self.row, ts })?;
            tally.counts.file_rows += 1;
        }
        if !file.advance(scope, tally)? {
            self.files.swap_remove(i);
        }
        Ok(if shown { Step::Row } else { Step::Nothing })
    }

    /// Captures the next rows in memory.
    fn capture(&mut self, scope: &Scope, tally: &mut Tally) -> Step {
        let Some(memory) = &mut self.memory else { return Step::Nothing };
        match memory.capture(scope, &self.reading) {
            Captured::Rows => tally.obligation.merge(Obligation::on(&scope.table, memory.lsn())),
            Captured::End => self.memory = None,
            Captured::Stale => return Step::Stale { from: memory.last_key().map(after) },
        }
        Step::Nothing
    }
}
