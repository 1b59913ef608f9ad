//! What a reader of a tablet goes by, and whether it still may.
//!
//! A reader takes a [`Reading`]: the tablet's present state, whose memtables name the generation of its rows. It captures what it
//! wants, and then asks whether the reading is [still valid](Reading::still_valid): if so, it has captured what the state has.
//! Whoever makes rows leave memory publishes another state before the first of them goes:
//!
//! | what happens | state | then |
//! |---|---|---|
//! | a flush is installed | without the memtable, with its file | rows are unpinned |
//! | a compaction, an import | with other files | |
//! | a truncate | empty, of a new generation | rows are swept, files removed |
//! | a range is dropped, or a table | as by a truncate; the tablet is dropped before | the same |
//!
//! So a reading that is not valid any more is taken anew, and [`Engine::reading`] refuses it where another cannot serve: where
//! rows that the reader may see are gone. That is so for snapshots from before the tablet was emptied, and for readers by an
//! older definition of the table that has what newer ones have not: what is written by those lacks the values of columns that
//! were dropped, and rows that expired by them. Which definition a reader has is asked after the state was loaded, or the row
//! found: what was written by a newer one was so after that was announced.

use crate::catalog::Table;
use crate::engine::Engine;
use crate::read::{Probe, ReadView};
use crate::tablet::{Tablet, TabletState};
use crate::timeline::Snapshot;
use oribi_types::{Error, Result, Timestamp};
use std::sync::Arc;

/// A tablet in the state in which it is read.
pub(crate) struct Reading {
    tablet: Arc<Tablet>,
    pub state: Arc<TabletState>,
}

impl Tablet {
    pub fn reading(self: &Arc<Self>) -> Reading {
        Reading { tablet: self.clone(), state: arc_swap::Guard::into_inner(self.state()) }
    }
}

impl Reading {
    /// Part of the index keys of all rows of the state.
    pub fn generation(&self) -> u64 {
        self.state.active.generation
    }

    /// Whether no row has left memory that the state has there. Asked behind what was captured.
    pub fn still_valid(&self) -> bool {
        self.tablet.is_current(&self.state)
    }
}

impl Engine {
    /// A reading of `tablet` for who reads `columns` (positions; `None`: all) by `table`, at `ts`.
    ///
    /// # Errors
    /// `Conflict` if the tablet has lost what that reader may see.
    pub(crate) fn reading(
        &self,
        table: &Table,
        tablet: &Arc<Tablet>,
        ts: Timestamp,
        columns: Option<&[usize]>,
    ) -> Result<Reading> {
        let reading = tablet.reading();
        if tablet.is_dropped() {
            return Err(self.dropped(table));
        }
        if !tablet.takes(table.version()) || tablet.emptied() > ts {
            self.check_nothing_lost(table, tablet, Some(ts), columns)?;
        }
        Ok(reading)
    }

    /// Checks that a row that was just found, or not found, may be answered to who reads it at `view`.
    ///
    /// # Errors
    /// `Retry` if the tablet has lost what that reader may see, or another has the row's range by now.
    #[inline]
    pub(crate) fn check_answer(&self, probe: Probe<'_>, view: ReadView) -> Result<()> {
        let Probe { table, tablet, .. } = probe;
        if tablet.takes(table.version()) && !(view.registered && tablet.emptied() > view.ts) {
            return Ok(());
        }
        self.check_altered(probe, view)
    }

    #[cold]
    fn check_altered(&self, Probe { table, tablet, key }: Probe<'_>, view: ReadView) -> Result<()> {
        // The row may be, or have been when the view saw it, in a tablet that `table` does not know.
        let is_elsewhere = |latest: Arc<Table>| {
            let was = view.registered && latest.range_dropped() > view.ts;
            was || !latest.tablet_of(key.key).is_dropped()
        };
        if tablet.is_dropped() && self.latest(table.id()).is_some_and(is_elsewhere) {
            return Err(retry(self.dropped(table)));
        }
        self.check_nothing_lost(table, tablet, view.registered.then_some(view.ts), None).map_err(retry)
    }

    /// Checks that a write by `table` could see the row that it leaves as it is.
    ///
    /// # Errors
    /// `NotFound` for a dropped table; `Retry` if the write is to be planned anew.
    pub(crate) fn check_decided(&self, table: &Table, tablet: &Tablet) -> Result<()> {
        if tablet.takes(table.version()) {
            return Ok(());
        }
        if self.latest(table.id()).is_none() {
            return Err(Error::not_found("the table was dropped"));
        }
        self.check_nothing_lost(table, tablet, None, None).map_err(retry)
    }

    /// Without a timestamp, of a read that stands for itself: it sees that rows are gone.
    #[cold]
    fn check_nothing_lost(
        &self,
        table: &Table,
        tablet: &Tablet,
        ts: Option<Timestamp>,
        columns: Option<&[usize]>,
    ) -> Result<()> {
        let Some(latest) = self.latest(table.id()) else { return Err(self.dropped(table)) };
        let name = table.name();
        if ts.is_some_and(|ts| tablet.emptied() > ts) {
            return Err(match tablet.is_dropped() {
                true => self.dropped(table),
                false => Error::conflict(format!("rows of table \"{name}\" were removed while it was read")),
            });
        }
        if latest.version() == table.version() {
            return Ok(());
        }
        let is_read = |position: usize| columns.is_none_or(|columns| columns.contains(&position));
        let mut read = table.schema_ref().columns().iter().enumerate().filter(|(i, _)| is_read(*i));
        if let Some((_, lost)) = read.find(|(_, c)| latest.schema_ref().column_by_id(c.id).is_none()) {
            let column = &lost.name;
            return Err(Error::conflict(format!(
                "column \"{column}\" of table \"{name}\" was dropped while it was read"
            )));
        }
        if table.expiry() != latest.expiry() {
            return Err(Error::conflict(format!(
                "when rows of table \"{name}\" expire was altered meanwhile"
            )));
        }
        Ok(())
    }

    /// Checks that the tablets of `table` have all ranges that `snapshot` saw: who reads tablets one by one need not ask.
    ///
    /// # Errors
    /// `Conflict`.
    pub(crate) fn check_ranges(&self, table: &Table, snapshot: &Snapshot) -> Result<()> {
        if table.range_dropped() > snapshot.ts() { Err(self.dropped(table)) } else { Ok(()) }
    }

    fn dropped(&self, table: &Table) -> Error {
        let what = if self.latest(table.id()).is_none() { "table" } else { "a partition of table" };
        Error::conflict(format!("{what} \"{}\" was dropped while it was read", table.name()))
    }
}

/// A read of one row, or a write, is small: whoever asked for it may do so again at once.
fn retry(error: Error) -> Error {
    Error::retry(error.message())
}
