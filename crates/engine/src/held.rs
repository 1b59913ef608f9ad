//! A table whose rows nobody else changes for a while: for a statement that reads before it writes and found, more than once,
//! that others had been faster.
//!
//! What is held are the latches of all keys that the table has or may get, which a write of many rows takes most of anyway.
//! Whoever wants to write one of them waits, through whichever door it came, and nobody who reads does. So they are not held
//! while more than a few rows are read from files for a write, nor while a change of the table is undecided: a write lets go of the
//! table then, and holds it again before it decides. That can be so several times in one write, and rows that the caller has read
//! before are as they were only as far as its `decide` finds them so.

use crate::catalog::Table;
use crate::engine::Engine;
use crate::latches::{Latch, Taken};
use crate::memory::MemoryBudget;
use crate::record;
use crate::tracked::Tracks;
use crate::write::{Commit, Decide, ReadAhead, Target, WriteOp};
use oribi_types::{Error, Result, Timestamp};
use oribi_wal::Lsn;
use std::cell::RefCell;

/// See [`Engine::hold`].
pub struct Held<'e> {
    engine: &'e Engine,
    /// Those that the table's tablets had when their latches were taken.
    generations: Vec<u64>,
    /// None while a write has given them back.
    latches: RefCell<Vec<Latch<'e>>>,
}

impl Engine {
    /// Keeps everybody else from changing rows of `table` until what it returns is dropped, but while a [`Held::write`] lets go of
    /// it. A snapshot that is taken meanwhile sees the rows as they are; no other write may be called by the same thread.
    ///
    /// # Errors
    /// `Unavailable` if the engine has stopped.
    pub fn hold(&self, table: &Table) -> Result<Held<'_>> {
        let generations: Vec<u64> = table.tablets.iter().map(|tablet| tablet.generation()).collect();
        let held = Held { engine: self, generations, latches: RefCell::default() };
        held.take()?;
        Ok(held)
    }
}

impl Held<'_> {
    fn take(&self) -> Result<()> {
        *self.latches.borrow_mut() = self.engine.latches.take_sets(&self.generations);
        // Whoever had a latch before has applied its rows; others that came before may still be at theirs.
        self.engine.timeline.wait_for_watermark(self.engine.timeline.last())
    }

    /// As [`Engine::write_again`], of rows of the table that is held. If more than a few of them are to be read from files, which
    /// `ahead` does not know, or are to go by a change that is being made, the table is not held meanwhile: rows that were read
    /// before may have changed then. While `decide` runs it is held; once this has failed with `Retry` it may not be.
    ///
    /// # Errors
    /// As [`Engine::write`]; `Retry` also for a row of another table.
    pub fn write(
        &self,
        ops: &[WriteOp<'_>],
        decide: &mut Decide<'_>,
        ahead: &mut ReadAhead,
    ) -> Result<Commit> {
        let commit = self.engine.execute(ops, decide, &mut Latched(self), Some(ahead))?;
        *ahead = ReadAhead::default();
        Ok(commit)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.latches.borrow_mut().clear();
        self.engine.released.tell();
    }
}

/// A write whose keys are latched already.
struct Latched<'h, 'e>(&'h Held<'e>);

impl Tracks for Latched<'_, '_> {
    fn waits(&self) -> bool {
        true
    }

    /// An import may wait for the latches, and keep the table from being flushed until it has them. A statement waits before
    /// it holds its table.
    fn wait_for_room(&self, _: &MemoryBudget) -> Result<()> {
        Ok(())
    }

    fn is_latched(&self) -> bool {
        true
    }

    fn latch<'e>(&self, _: &'e Engine, targets: &[Target<'_>]) -> Result<Taken<'e>> {
        if self.0.latches.borrow().is_empty() {
            self.0.take()?;
        }
        match targets.iter().all(|(_, key)| self.0.generations.contains(&key.generation)) {
            true => Ok(Taken::new()),
            false => Err(Error::retry("the table was truncated meanwhile")),
        }
    }

    fn give_back(&self, _: Taken<'_>) {
        self.0.latches.borrow_mut().clear();
        self.0.engine.released.tell();
    }

    fn decided(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn start_record(&self, ts: Timestamp, buf: &mut Vec<u8>) {
        record::start(buf, ts);
    }

    fn applied(&mut self, _: &[WriteOp<'_>], _: Lsn, _: &mut Commit) {}
}
