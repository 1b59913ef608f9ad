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
use crate::txn::Author;
use crate::write::{Commit, Decide, ReadAhead, Target, WriteOp};
use oribi_types::{Error, Result};
use std::cell::{Cell, RefCell};

/// See [`Engine::hold`].
pub struct Held<'e> {
    engine: &'e Engine,
    /// Those that the table's tablets had when their latches were taken.
    generations: Vec<u64>,
    /// None while a write has given them back.
    latches: RefCell<Vec<Latch<'e>>>,
}

impl Engine {
    /// Keeps everybody else from changing rows of `table` until what it returns is dropped, but while a write in its name
    /// ([`write_as`](Self::write_as), [`Held::write`]) lets go of it: if more than a few rows are to be read from files, or are to go by a change that is
    /// being made. While its `decide` runs the table is held; once it has failed with `Retry` it may not be. A snapshot that is taken meanwhile sees the rows as they are; no other write may be called by the same thread.
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

    /// As [`Engine::write_as`], of a statement of no transaction.
    ///
    /// # Errors
    /// As there; `Retry` also for a row of another table.
    pub fn write(
        &self,
        ops: &[WriteOp<'_>],
        decide: &mut Decide<'_>,
        ahead: &mut ReadAhead,
    ) -> Result<Commit> {
        let blocked = Cell::new(None);
        let author = Author { within: None, held: Some(self), blocked: &blocked };
        self.engine.write_as(&author, true, ops, decide, ahead)
    }

    /// The latches of a write, which are held already.
    ///
    /// # Errors
    /// `Retry` for a row of another table.
    pub(crate) fn latch<'e>(&self, targets: &[Target<'_>]) -> Result<Taken<'e>> {
        if self.latches.borrow().is_empty() {
            self.take()?;
        }
        match targets.iter().all(|(_, key)| self.generations.contains(&key.generation)) {
            true => Ok(Taken::new()),
            false => Err(Error::retry("the table was truncated meanwhile")),
        }
    }

    /// Lets others to the table, until a write latches it again.
    pub(crate) fn give_back(&self) {
        self.latches.borrow_mut().clear();
        self.engine.released.tell();
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.latches.borrow_mut().clear();
        self.engine.released.tell();
    }
}
