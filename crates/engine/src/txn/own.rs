//! What a transaction has changed, as those read it who scan for it: as of the moment at which it was asked for.

use super::spilled::{Reader, SpilledIter, SpilledRows};
use super::{Mark, State, Transaction};
use crate::catalog::Table;
use crate::memory::Reserved;
use crate::range::KeyRange;
use crate::rows::EncodedRows;
use oribi_types::Result;
use std::collections::HashSet;
use std::sync::Arc;

/// What a transaction has of a table.
#[derive(Default)]
pub struct Overlay {
    /// The keys that it has changed last, in memory.
    pub keys: HashSet<Arc<[u8]>>,
    /// Keys and rows of those that it has not deleted.
    pub rows: EncodedRows,
    /// What it had changed before.
    pub spilled: Option<SpilledRows>,
}

impl Overlay {
    /// Whether it has changed the row of a key.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn has(&self, key: &[u8], reader: &mut Reader) -> Result<bool> {
        match &self.spilled {
            _ if self.keys.contains(key) => Ok(true),
            Some(spilled) => spilled.has(key, reader),
            None => Ok(false),
        }
    }
}

type OwnRow = (Arc<[u8]>, Option<Arc<[u8]>>);

/// What a transaction has made of rows of a tablet. Copies share it.
#[derive(Clone, Default)]
pub struct Changes {
    /// By key; `None` of those that it has deleted.
    in_memory: Arc<[OwnRow]>,
    /// What it had changed before, and the number of the tablet.
    spilled: Option<(SpilledRows, usize)>,
    /// The memory that the list takes beside the rows, if that is counted.
    _counted: Option<Arc<Reserved>>,
}

impl FromIterator<OwnRow> for Changes {
    /// Rows with keys, none twice.
    fn from_iter<I: IntoIterator<Item = OwnRow>>(rows: I) -> Self {
        let mut rows: Vec<OwnRow> = rows.into_iter().collect();
        rows.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Changes { in_memory: rows.into(), ..Changes::default() }
    }
}

impl Changes {
    /// Those with keys in a range, in order.
    pub fn rows(&self, keys: &KeyRange) -> OwnRows {
        let from = self.in_memory.partition_point(|(key, _)| **key < *keys.from);
        let spilled = self.spilled.as_ref().map(|(rows, tablet)| rows.rows([*tablet], &keys.from));
        let changes = self.in_memory.clone();
        OwnRows { changes, at: from, spilled, next: None, to: keys.to.clone(), has_begun: false }
    }
}

/// Rows of a transaction, in the order of their keys.
pub struct OwnRows {
    changes: Arc<[OwnRow]>,
    /// The next of those in memory.
    at: usize,
    spilled: Option<SpilledIter>,
    /// The next of those that were spilled.
    next: Option<OwnRow>,
    to: Option<Vec<u8>>,
    has_begun: bool,
}

impl OwnRows {
    /// The next, if its key is not above `last`: its row, `None` if it was deleted.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn next_up_to(&mut self, last: Option<&[u8]>) -> Result<Option<OwnRow>> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.read_on()?;
        }
        let in_memory = self.changes.get(self.at);
        // What is in memory came later.
        let is_in_memory = match (in_memory, &self.next) {
            (Some((a, _)), Some((b, _))) => a <= b,
            (in_memory, _) => in_memory.is_some(),
        };
        let Some((key, _)) = (if is_in_memory { in_memory } else { self.next.as_ref() }) else {
            return Ok(None);
        };
        if last.is_some_and(|last| **key > *last) || self.to.as_ref().is_some_and(|to| **key >= **to) {
            return Ok(None);
        }
        if !is_in_memory {
            let row = self.next.take();
            self.read_on()?;
            return Ok(row);
        }
        let row = self.changes[self.at].clone();
        self.at += 1;
        if self.next.as_ref().is_some_and(|(key, _)| *key == row.0) {
            self.read_on()?;
        }
        Ok(Some(row))
    }

    fn read_on(&mut self) -> Result<()> {
        let Some(spilled) = &mut self.spilled else { return Ok(()) };
        self.next = spilled.next()?.map(|(key, row)| (key.into(), row.map(Arc::from)));
        Ok(())
    }
}

impl State {
    /// What it had put aside of a table, of its first `changes`.
    fn spilled_rows(
        &self,
        transaction: &Transaction,
        table: &Arc<Table>,
        changes: usize,
    ) -> Option<SpilledRows> {
        self.spilled.as_ref()?.rows(&transaction.engine, table, changes)
    }
}

impl Transaction {
    /// What it has changed of a table, or had `before`; `None` if that is nothing.
    pub fn overlay(&self, table: &Arc<Table>, before: Option<Mark>) -> Option<Overlay> {
        let state = self.state.lock();
        if !state.writes_to(table) {
            return None;
        }
        let changes = before.map_or(usize::MAX, |mark| mark.changes);
        let spilled = state.spilled_rows(self, table, changes);
        let mut overlay = Overlay { spilled, ..Overlay::default() };
        for change in state.writes.of_table(table, changes) {
            overlay.keys.insert(change.key.clone());
            if let Some(row) = &change.row {
                overlay.rows.push_encoded(&change.key, row);
            }
        }
        Some(overlay)
    }

    /// What it has made of the rows of a tablet, by its number, with keys in a range; `None` if it has changed nothing of the table.
    pub fn changes(&self, table: &Arc<Table>, tablet: usize, keys: &KeyRange) -> Option<Changes> {
        let state = self.state.lock();
        if !state.writes_to(table) {
            return None;
        }
        let is_of_tablet = |key: &[u8]| Arc::ptr_eq(table.tablet_of(key), &table.tablets[tablet]);
        let of_table = state.writes.of_table(table, usize::MAX);
        let wanted = of_table.filter(|change| keys.contains(&change.key) && is_of_tablet(&change.key));
        let mut changes: Changes = wanted.map(|change| (change.key.clone(), change.row.clone())).collect();
        changes.spilled = state.spilled_rows(self, table, usize::MAX).map(|rows| (rows, tablet));
        let bytes = changes.in_memory.len() * size_of::<OwnRow>();
        changes._counted = Some(Arc::new(Reserved::new(&self.engine.budget, bytes as u64)));
        Some(changes)
    }
}
