//! What one write in a transaction has decided. It becomes the transaction's when all of it is decided, while the write still has the
//! latches of its keys: a write that fails has changed nothing, whatever other writes of the transaction do meanwhile.

use super::writes::{Seen, bytes_of_change};
use super::{InTransaction, LOCK_BYTES};
use crate::read::RowVersion;
use crate::write::{Decision, WriteOp};
use foldhash::fast::RandomState;
use oribi_types::{Error, Result, Timestamp};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;

pub(super) struct Staged<'o> {
    within: &'o InTransaction,
    ops: &'o [WriteOp<'o>],
    decided: SmallVec<[Decided; 1]>,
    /// Of several operations, the last change of each key: its place in `decided`.
    last: HashMap<(u64, &'o [u8]), usize, RandomState>,
    bytes: usize,
}

struct Decided {
    op: usize,
    what: What,
}

enum What {
    /// The row, `None` if it is deleted.
    Change(Option<Arc<[u8]>>, Seen),
    Lock,
}

impl<'o> Staged<'o> {
    pub fn new(within: &'o InTransaction, ops: &'o [WriteOp<'o>]) -> Self {
        Staged { within, ops, decided: SmallVec::new(), last: HashMap::default(), bytes: 0 }
    }

    /// Notes what `decide` makes of an operation that finds `current`, or what the transaction has made of the row before. `rows` is
    /// a buffer to make rows in, behind what is there.
    pub fn decide(
        &mut self,
        i: usize,
        current: Option<RowVersion<'_>>,
        rows: &mut Vec<u8>,
        decide: impl FnOnce(Option<RowVersion<'_>>, &mut Vec<u8>) -> Result<Decision>,
    ) -> Result<()> {
        let (op, start) = (&self.ops[i], rows.len());
        let (decision, seen) = match self.change_before(op) {
            Some(row) => (decide(own(op.key, row), rows)?, Seen::Own),
            None => self.decide_first(op, current, |current| decide(current, rows))?,
        };
        let row = match decision {
            Decision::Keep => {
                self.within.transaction.note_keys(op.table, [op.key]);
                return Ok(());
            }
            Decision::Lock => {
                self.decided.push(Decided { op: i, what: What::Lock });
                return self.count(LOCK_BYTES + op.key.len());
            }
            Decision::Put => Some(rows[start..].into()),
            Decision::Proposed => Some(op.row.into()),
            Decision::Delete => None,
        };
        let bytes = bytes_of_change(op.key, row.as_deref()) + LOCK_BYTES + op.key.len();
        if self.ops.len() > 1 {
            self.last.insert((op.table.rows_of(), op.key), self.decided.len());
        }
        self.decided.push(Decided { op: i, what: What::Change(row, seen) });
        self.count(bytes)
    }

    /// What an operation before it in the same write has made of its row.
    fn change_before(&self, op: &WriteOp<'_>) -> Option<Option<&[u8]>> {
        if self.last.is_empty() {
            return None;
        }
        match &self.decided[*self.last.get(&(op.table.rows_of(), op.key))?].what {
            What::Change(row, _) => Some(row.as_deref()),
            What::Lock => None,
        }
    }

    /// Decides on what earlier writes of the transaction have made of the row, or on what everybody sees.
    fn decide_first(
        &self,
        op: &WriteOp<'_>,
        current: Option<RowVersion<'_>>,
        decide: impl FnOnce(Option<RowVersion<'_>>) -> Result<Decision>,
    ) -> Result<(Decision, Seen)> {
        let state = self.within.transaction.state.lock();
        state.check(self.within.epoch)?;
        if let Some(last) = state.writes.last(op.table, op.key) {
            return Ok((decide(own(op.key, last.row.as_deref()))?, Seen::Own));
        }
        if let Some(spilled) = &state.spilled
            && let Some(row) = spilled.find(&self.within.transaction.engine, op.table, op.key)?
        {
            return Ok((decide(own(op.key, row.as_deref()))?, Seen::Own));
        }
        drop(state);
        if let (Some(snapshot), Some(row)) = (self.within.snapshot, current)
            && (row.ts > snapshot || op.table.tablet_of(op.key).may_have_come_after(op.key, snapshot)?)
        {
            return Err(Error::conflict("the row was changed since the transaction's snapshot"));
        }
        let seen = current.map_or(Seen::Nothing, |row| Seen::RowOf(row.ts));
        Ok((decide(current)?, seen))
    }

    /// # Errors
    /// `TooLarge`, before more of several operations is kept than there is room for.
    fn count(&mut self, bytes: usize) -> Result<()> {
        self.bytes += bytes;
        if self.ops.len() == 1 {
            return Ok(());
        }
        self.within.transaction.state.lock().check_room(&self.within.transaction.engine, self.bytes)
    }

    /// Makes it the transaction's, and locks the rows, while the write has their latches.
    ///
    /// # Errors
    /// `Unavailable` if the transaction has ended, or something was undone; `TooLarge`. Nothing was changed then.
    pub fn take_in(&mut self) -> Result<()> {
        let transaction = &self.within.transaction;
        let engine = &transaction.engine;
        let mut state = transaction.state.lock();
        state.check(self.within.epoch)?;
        state.check_room(engine, self.bytes)?;
        let now_micros = engine.timeline.now_micros();
        for Decided { op, what } in self.decided.drain(..) {
            let op = &self.ops[op];
            let key = match what {
                What::Lock => op.key.into(),
                What::Change(row, Seen::Own) => {
                    state.writes.push(op.table, op.key, row, Seen::Own);
                    continue;
                }
                What::Change(row, seen) => state.writes.push(op.table, op.key, row, seen).clone(),
            };
            let key = engine.locked_key(op, key);
            if engine.row_locks.lock(&key, transaction.id, now_micros) {
                engine.undecided.row_locked();
                state.locked_bytes += key.bytes();
                state.locked.push(key);
            }
        }
        Ok(())
    }
}

fn own<'r>(key: &'r [u8], row: Option<&'r [u8]>) -> Option<RowVersion<'r>> {
    row.map(|row| RowVersion { key, row, ts: Timestamp::MAX })
}
