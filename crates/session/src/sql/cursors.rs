//! The cursors that a session has declared: queries whose rows it takes part by part, by name.
//!
//! A cursor ends with its block, but for one that is held: that ends with the session, or with a block that declared it and was
//! rolled back. What it has to give is [suspended](super::Suspended), as that of a portal is: it ends when nobody has asked for it in a
//! while and others wait for its room.

use super::{RowStream, Suspension};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a cursor has to give.
pub struct CursorRows {
    pub rows: RowStream,
    /// Of the batch that came last, what was not asked for yet.
    pub left: Option<RecordBatch>,
}

#[derive(Default)]
pub struct Cursors(Mutex<State>);

#[derive(Default)]
struct State {
    /// How many blocks have ended.
    block: u64,
    /// How many cursors were opened.
    opened: u64,
    open: BTreeMap<String, Cursor>,
}

struct Cursor {
    number: u64,
    columns: SchemaRef,
    /// Whether it stays beyond the commit of its block.
    is_held: bool,
    /// The block in which it was declared; `None` once it stays.
    block: Option<u64>,
    /// `None` while they are being fetched.
    rows: Option<Suspension<CursorRows>>,
}

/// What becomes of a `FETCH`.
pub enum Taken {
    /// With the number of the cursor.
    Rows(CursorRows, u64),
    Missing,
    /// Another `FETCH` has not come to its end.
    Busy,
    /// Others needed the room of its rows. It is closed.
    Ended,
}

impl Cursors {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a cursor, in the session's block if it is in one; false if there is one of the name.
    pub fn open(
        &self,
        name: &str,
        columns: SchemaRef,
        rows: Suspension<CursorRows>,
        is_held: bool,
        in_block: bool,
    ) -> bool {
        let mut state = self.lock();
        if state.open.contains_key(name) {
            return false;
        }
        state.opened += 1;
        let (number, block) = (state.opened, in_block.then_some(state.block));
        let cursor = Cursor { number, columns, is_held, block, rows: Some(rows) };
        state.open.insert(name.to_owned(), cursor);
        true
    }

    pub fn columns(&self, name: &str) -> Option<SchemaRef> {
        self.lock().open.get(name).map(|cursor| cursor.columns.clone())
    }

    /// Takes what a cursor has, to fetch from it.
    pub fn take(&self, name: &str) -> Taken {
        let mut state = self.lock();
        let Some(cursor) = state.open.get_mut(name) else { return Taken::Missing };
        let Some(rows) = cursor.rows.take() else { return Taken::Busy };
        match rows.take() {
            Some(rows) => Taken::Rows(rows, cursor.number),
            None => {
                state.open.remove(name);
                Taken::Ended
            }
        }
    }

    /// Brings back what cursor `number` has left, unless it was closed meanwhile.
    pub fn put_back(&self, name: &str, number: u64, rows: Suspension<CursorRows>) {
        let mut state = self.lock();
        match state.open.get_mut(name) {
            Some(cursor) if cursor.number == number => cursor.rows = Some(rows),
            _ => {
                drop(state);
                drop(rows);
            }
        }
    }

    /// False if there is none of the name.
    pub fn close(&self, name: &str) -> bool {
        let closed = self.lock().open.remove(name);
        closed.is_some()
    }

    pub fn close_all(&self) {
        let closed = std::mem::take(&mut self.lock().open);
        drop(closed);
    }

    /// The session's block has ended.
    pub(super) fn end_block(&self, committed: bool) {
        let mut state = self.lock();
        let block = state.block;
        state.block += 1;
        let (ended, mut stay): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut state.open)
            .into_iter()
            .partition(|(_, cursor)| cursor.block == Some(block) && !(committed && cursor.is_held));
        stay.values_mut().for_each(|cursor| cursor.block = None);
        state.open = stay;
        drop(state);
        drop(ended);
    }

    /// Their names, and whether each is held.
    pub fn names(&self) -> Vec<(String, bool)> {
        self.lock().open.iter().map(|(name, cursor)| (name.clone(), cursor.is_held)).collect()
    }
}
