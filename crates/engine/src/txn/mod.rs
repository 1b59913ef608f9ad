//! Transactions: several writes that are applied together, or not at all.
//!
//! A transaction is of the engine, and of no door or connection. What its statements change is decided when they run, on the
//! newest versions and on what it has changed before, and kept in its [write set](writes); who reads for it looks there first.
//! The rows are [locked](locks) meanwhile. [`Engine::commit`] writes them as any other write: one log record and one timestamp,
//! if each row is still the one that was decided on. Nothing of a transaction is in the log, or seen by others, before that, so
//! that a crash, or whoever drops it, leaves nothing of it.
//!
//! A write in a transaction is a write all of whose operations are kept: it latches its keys, decides, and while it has the
//! latches, takes the locks.

mod catalog;
mod locks;
mod writes;

pub(crate) use locks::RowLocks;
pub use locks::{Blocked, RowWait};

use crate::catalog::Table;
use crate::engine::Engine;
use crate::held::Held;
use crate::latches::Taken;
use crate::memory::{MemoryBudget, Reserved};
use crate::read::RowVersion;
use crate::record;
use crate::tracked::Tracks;
use crate::write::{Commit, Decide, Decision, Read, ReadAhead, Target, WriteOp};
use catalog::{Changed, Picture};
use locks::LockedKey;
use oribi_env::locks::{self as ranks, Mutex};
use oribi_types::{Error, ErrorKind, Result, Timestamp};
use oribi_wal::Lsn;
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use writes::{Change, Seen, WriteSet};

/// The number of no transaction.
const NONE: u64 = 0;

/// Memory is taken from the budget in steps of so much. A transaction of less takes none.
const STEP_BYTES: usize = 256 << 10;

/// Writers that are of no SQL statement wait so long for a row, from when it was locked; then they are refused.
pub(crate) const WAIT_MICROS_MAX: u64 = 2_000_000;

/// Changes that are applied together. When it is dropped, it has ended.
pub struct Transaction {
    engine: Arc<Engine>,
    id: u64,
    state: Mutex<State, { ranks::TRANSACTION }>,
}

#[derive(Default)]
struct State {
    /// Changes whenever something is undone: a write that began before changes nothing any more.
    epoch: u64,
    ended: bool,
    writes: WriteSet,
    /// What it has made of the catalog: one behind the other, by change.
    catalogs: Vec<Arc<Changed>>,
    /// The catalog as it sees it, when it was asked for last.
    picture: Option<Picture>,
    locked: Vec<LockedKey>,
    locked_bytes: usize,
    /// To be locked by the write that is being decided.
    to_lock: Vec<LockedKey>,
    savepoints: Vec<(String, Mark)>,
    reserved: Vec<Reserved>,
}

/// How far a transaction had come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    changes: usize,
    catalogs: usize,
    locked: usize,
}

/// The right of a statement to write in a transaction, until something of that is undone.
#[derive(Clone)]
pub struct InTransaction {
    transaction: Arc<Transaction>,
    epoch: u64,
    /// What was written later by others may not be overwritten.
    snapshot: Option<Timestamp>,
}

/// What a transaction has of a table.
#[derive(Default)]
pub struct Overlay {
    /// The keys that it has changed.
    pub keys: HashSet<Arc<[u8]>>,
    /// Keys and rows of those that it has not deleted.
    pub rows: crate::rows::EncodedRows,
}

impl Transaction {
    pub fn id(&self) -> u64 {
        self.id
    }

    /// For a statement that begins. With a `snapshot`, it may not overwrite what was written later.
    pub fn begin_statement(self: &Arc<Self>, snapshot: Option<Timestamp>) -> InTransaction {
        InTransaction { transaction: self.clone(), epoch: self.state.lock().epoch, snapshot }
    }

    /// Whether it has changed anything.
    pub fn has_writes(&self) -> bool {
        let state = self.state.lock();
        state.writes.len() > 0 || !state.catalogs.is_empty()
    }

    /// Whether it has changed rows of a table.
    pub fn writes_to(&self, table: &Table) -> bool {
        self.state.lock().writes.writes_to(table)
    }

    /// Has `answer` look at the row that it has made of a key, `None` if it has deleted it; `None` if it has not changed it.
    pub fn own<R>(&self, table: &Table, key: &[u8], answer: impl FnOnce(Option<&[u8]>) -> R) -> Option<R> {
        let state = self.state.lock();
        let change = state.writes.last(table, key)?;
        Some(answer(change.row.as_deref()))
    }

    /// What it has changed of a table; `None` if that is nothing.
    pub fn overlay(&self, table: &Table) -> Option<Overlay> {
        let state = self.state.lock();
        if !state.writes.writes_to(table) {
            return None;
        }
        let mut overlay = Overlay::default();
        for change in state.writes.of_table(table) {
            overlay.keys.insert(change.key.clone());
            if let Some(row) = &change.row {
                overlay.rows.push_encoded(&change.key, row);
            }
        }
        Some(overlay)
    }

    pub fn mark(&self) -> Mark {
        self.state.lock().mark()
    }

    /// Undoes what came after `mark`, and keeps writes that are under way from changing anything.
    pub fn undo_to(&self, mark: Mark) {
        let released = {
            let mut state = self.state.lock();
            state.epoch += 1;
            state.undo_to(mark)
        };
        self.release(&released);
    }

    /// Begins what can be undone by this name; it hides an earlier one of the same.
    pub fn set_savepoint(&self, name: &str) {
        let mut state = self.state.lock();
        let mark = state.mark();
        state.savepoints.push((name.to_owned(), mark));
    }

    /// Forgets a savepoint and those after it, and nothing that was changed; false if there is none of the name.
    pub fn release_savepoint(&self, name: &str) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.savepoints.iter().rposition(|(of, _)| of == name) else { return false };
        state.savepoints.truncate(at);
        true
    }

    /// Undoes what came after a savepoint, which stays; false if there is none of the name.
    pub fn roll_back_to(&self, name: &str) -> bool {
        let released = {
            let mut state = self.state.lock();
            let Some(at) = state.savepoints.iter().rposition(|(of, _)| of == name) else { return false };
            state.savepoints.truncate(at + 1);
            let mark = state.savepoints[at].1;
            state.epoch += 1;
            state.undo_to(mark)
        };
        self.release(&released);
        true
    }

    /// A statement failed: what came after the last savepoint is undone, since nothing else can become of it.
    pub fn fail(&self) {
        let mark = self.state.lock().savepoints.last().map(|(_, mark)| *mark);
        self.undo_to(mark.unwrap_or_default());
    }

    /// Undoes all.
    pub fn roll_back(&self) {
        self.state.lock().ended = true;
        self.undo_to(Mark::default());
    }

    /// What is to be committed, which nothing is added to any more. The rows stay locked until this transaction is dropped or
    /// rolled back.
    pub fn into_commit(self: &Arc<Self>) -> Committing {
        let mut state = self.state.lock();
        state.ended = true;
        state.epoch += 1;
        state.savepoints.clear();
        let mut changes = std::mem::take(&mut state.writes).into_last();
        let catalog = std::mem::take(&mut state.catalogs).pop();
        state.picture = None;
        drop(state);
        if let Some(changed) = &catalog {
            changes.retain_mut(|change| match changed.table_of_rows(&change.table) {
                Some(table) => {
                    change.table = table;
                    true
                }
                None => false,
            });
        }
        Committing { transaction: self.clone(), changes, catalog }
    }

    fn release(&self, keys: &[LockedKey]) {
        if keys.is_empty() {
            return;
        }
        self.engine.row_locks.release(keys, self.id);
        self.engine.undecided.rows_released(keys.len());
        self.engine.released.tell();
    }

    /// Locks the rows that a write has decided on, while it has their latches.
    fn lock_decided(&self, epoch: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.check(epoch)?;
        let now_micros = self.engine.timeline.now_micros();
        for key in std::mem::take(&mut state.to_lock) {
            if self.engine.row_locks.lock(&key, self.id, now_micros) {
                self.engine.undecided.row_locked();
                state.locked_bytes += key.bytes();
                state.locked.push(key);
            }
        }
        state.check_room(&self.engine.budget, self.engine.options.statement_bytes_max)
    }
}

impl State {
    fn mark(&self) -> Mark {
        let (changes, catalogs) = (self.writes.len(), self.catalogs.len());
        Mark { changes, catalogs, locked: self.locked.len() }
    }

    /// Returns what is locked no more.
    fn undo_to(&mut self, mark: Mark) -> Vec<LockedKey> {
        self.writes.truncate(mark.changes);
        self.catalogs.truncate(mark.catalogs);
        self.to_lock.clear();
        let released = self.locked.split_off(mark.locked.min(self.locked.len()));
        self.locked_bytes -= released.iter().map(LockedKey::bytes).sum::<usize>();
        let steps = self.bytes() / STEP_BYTES;
        self.reserved.truncate(steps);
        released
    }

    /// Bytes of memory in use, about.
    fn bytes(&self) -> usize {
        self.writes.bytes() + self.locked_bytes
    }

    fn check(&self, epoch: u64) -> Result<()> {
        match self.epoch == epoch && !self.ended {
            true => Ok(()),
            false => Err(Error::unavailable("the statement was given up")),
        }
    }

    /// # Errors
    /// `TooLarge` if the changes are more than a log record takes, or than there is memory for.
    fn check_room(&mut self, budget: &Arc<MemoryBudget>, bytes_max: usize) -> Result<()> {
        let bytes = self.bytes();
        if bytes > bytes_max {
            return Err(Error::too_large(format!(
                "the transaction changes or locks more than statement_bytes_max ({bytes_max} bytes)"
            )));
        }
        while self.reserved.len() < bytes / STEP_BYTES {
            let step = Reserved::try_new(budget, STEP_BYTES as u64);
            let none = || Error::too_large("there is not enough memory for what the transaction changes");
            self.reserved.push(step.ok_or_else(none)?);
        }
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let locked = std::mem::take(&mut self.state.get_mut().locked);
        self.release(&locked);
    }
}

impl InTransaction {
    pub fn transaction(&self) -> &Arc<Transaction> {
        &self.transaction
    }

    /// Notes what `decide` makes of an operation that finds `current`, or what the transaction has made of the row before.
    fn decide(
        &self,
        op: &WriteOp<'_>,
        current: Option<RowVersion<'_>>,
        decide: impl FnOnce(Option<RowVersion<'_>>, &mut Vec<u8>) -> Result<Decision>,
    ) -> Result<()> {
        let engine = &self.transaction.engine;
        let state = &mut *self.transaction.state.lock();
        state.check(self.epoch)?;
        let mut made = Vec::new();
        let (decision, seen) = match state.writes.last(op.table, op.key) {
            Some(last) => {
                let own = last.row.as_deref();
                let own = own.map(|row| RowVersion { key: op.key, row, ts: Timestamp::MAX });
                (decide(own, &mut made)?, Seen::Own)
            }
            None => {
                if let (Some(snapshot), Some(row)) = (self.snapshot, current)
                    && row.ts > snapshot
                {
                    return Err(Error::conflict("the row was changed since the transaction's snapshot"));
                }
                let seen = current.map_or(Seen::Nothing, |row| Seen::RowOf(row.ts));
                (decide(current, &mut made)?, seen)
            }
        };
        let row = match decision {
            Decision::Keep => return Ok(()),
            Decision::Lock => {
                state.to_lock.push(engine.locked_key(op, op.key.into()));
                return Ok(());
            }
            Decision::Put => Some(made.into_boxed_slice()),
            Decision::Proposed => Some(op.row.into()),
            Decision::Delete => None,
        };
        let key = state.writes.push(op.table, op.key, row, seen).clone();
        if seen != Seen::Own {
            state.to_lock.push(engine.locked_key(op, key));
        }
        state.check_room(&engine.budget, engine.options.statement_bytes_max)
    }
}

/// In whose name a statement writes.
pub struct Author<'a, 'e> {
    /// `None`: for itself alone.
    pub within: Option<&'a InTransaction>,
    /// The table that it writes to, if nobody else may.
    pub held: Option<&'a Held<'e>>,
    /// Says which row another transaction has locked, if that is why a write was not made.
    pub blocked: &'a Cell<Option<Blocked>>,
}

impl Engine {
    /// Begins a transaction.
    pub fn begin(self: &Arc<Self>) -> Arc<Transaction> {
        static NEXT: AtomicU64 = AtomicU64::new(NONE + 1);
        let id = NEXT.fetch_add(1, Relaxed);
        Arc::new(Transaction { engine: self.clone(), id, state: Mutex::default() })
    }

    /// As [`write_again`](Self::write_again), of a statement: it does not wait for rows that transactions have locked, but says
    /// so. Of one in a transaction nothing is applied: what was decided is the transaction's, which locks the rows, and the commit
    /// is but what was observed.
    ///
    /// # Errors
    /// As there; `WouldBlock` for a row that is locked, also if it `waits` for others; `Conflict` for one that was changed since
    /// the transaction's snapshot; `TooLarge` if the transaction changes too much.
    pub fn write_as(
        &self,
        author: &Author<'_, '_>,
        waits: bool,
        ops: &[WriteOp<'_>],
        decide: &mut Decide<'_>,
        ahead: &mut ReadAhead,
    ) -> Result<Commit> {
        let Author { within, held, blocked } = *author;
        let holder = within.map_or(NONE, |within| within.transaction.id);
        let by = By { waits: waits || held.is_some(), holder, blocked: Some(blocked), held };
        let of_ops = if held.is_some() { Some(&mut *ahead) } else { ahead.of_several(ops) };
        let commit = match within {
            None => self.execute(ops, decide, &mut Writing { by, within: None }, of_ops)?,
            Some(within) => {
                let mark = within.transaction.mark();
                let mut note = |i: usize, current: Option<RowVersion<'_>>, _: &mut Vec<u8>| {
                    within.decide(&ops[i], current, |current, row| decide(i, current, row))?;
                    Ok(Decision::Keep)
                };
                let mut writing = Writing { by, within: Some(within) };
                let written = self.execute(ops, &mut note, &mut writing, of_ops);
                written.inspect_err(|_| within.undo_own(mark))?
            }
        };
        *ahead = ReadAhead::default();
        Ok(commit)
    }

    /// Applies a transaction, as one log record at one timestamp. Unless it `waits`, it waits for nobody, and is to be called again.
    ///
    /// # Errors
    /// `Conflict` or `Retry` if a row is another than was decided on, or a table was truncated or altered since; those of
    /// [`write_again`](Self::write_again). Nothing was applied then.
    pub fn commit(&self, committing: &Committing, waits: bool, ahead: &mut ReadAhead) -> Result<Commit> {
        let ops: Vec<WriteOp<'_>> = committing.ops().collect();
        let by = By { waits, holder: committing.transaction.id, blocked: None, held: None };
        let mut decide =
            |i: usize, current: Option<RowVersion<'_>>, _: &mut Vec<u8>| committing.decide(i, current);
        let mut writing = Writing { by, within: None };
        let commit = self.execute(&ops, &mut decide, &mut writing, ahead.of_several(&ops))?;
        *ahead = ReadAhead::default();
        Ok(commit)
    }

    /// A wait for a row that another transaction has locked, by a statement of `transaction`, if of any.
    ///
    /// # Errors
    /// `Conflict` if transactions would wait for each other.
    pub fn wait_for_row(
        self: &Arc<Self>,
        transaction: Option<&Transaction>,
        blocked: Blocked,
    ) -> Result<RowWait> {
        RowWait::new(self, transaction.map(Transaction::id), blocked)
    }

    /// The keys of a table whose rows others than `transaction` have locked.
    pub fn keys_locked_by_others(&self, table: &Table, transaction: Option<&Transaction>) -> Vec<Arc<[u8]>> {
        let own = transaction.map_or(NONE, Transaction::id);
        let generations = table.tablets.iter().map(|tablet| tablet.generation());
        generations.flat_map(|generation| self.row_locks.keys_of_others(generation, own)).collect()
    }

    fn locked_key(&self, op: &WriteOp<'_>, key: Arc<[u8]>) -> LockedKey {
        let generation = op.table.tablet_of(&key).generation();
        let hash = self.index.key(generation, &key).hash;
        LockedKey { hash, generation, key }
    }
}

impl InTransaction {
    /// Undoes what a write of this statement has decided that failed.
    fn undo_own(&self, mark: Mark) {
        let released = {
            let mut state = self.transaction.state.lock();
            // Otherwise more than that was undone.
            if state.check(self.epoch).is_err() {
                return;
            }
            state.undo_to(mark)
        };
        self.transaction.release(&released);
    }
}

/// What a transaction applies.
pub struct Committing {
    transaction: Arc<Transaction>,
    changes: Vec<Change>,
    catalog: Option<Arc<Changed>>,
}

impl Committing {
    /// Of how many rows.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Whether the catalog is changed, too: then it is [another commit](Engine::commit_with_catalog).
    pub fn changes_catalog(&self) -> bool {
        self.catalog.is_some()
    }

    fn ops(&self) -> impl Iterator<Item = WriteOp<'_>> {
        self.changes.iter().map(|Change { table, key, row, .. }| {
            let row = row.as_deref().unwrap_or_default();
            WriteOp { table, key, read: Read::Existing, row }
        })
    }

    /// What becomes of the row of a change, if it is still the row that was decided on.
    fn decide(&self, change: usize, current: Option<RowVersion<'_>>) -> Result<Decision> {
        let change = &self.changes[change];
        let is_same = match change.seen {
            Seen::Nothing => current.is_none(),
            Seen::RowOf(ts) => current.is_some_and(|row| row.ts == ts),
            Seen::Own => return Err(Error::internal("a change was decided on none")),
        };
        match (is_same, &change.row) {
            (false, _) => Err(Error::conflict("a row that the transaction changes was changed meanwhile")),
            (true, None) => Ok(Decision::Delete),
            (true, Some(_)) => Ok(Decision::Proposed),
        }
    }

    /// One of the tables.
    pub fn table(&self) -> Option<&Arc<Table>> {
        self.changes.first().map(|change| &change.table)
    }
}

/// Who writes, and what becomes of it at rows that others have locked.
struct By<'a, 'h> {
    waits: bool,
    holder: u64,
    blocked: Option<&'a Cell<Option<Blocked>>>,
    held: Option<&'a Held<'h>>,
}

/// A write of a statement, or of a transaction that is committed.
struct Writing<'a, 'h> {
    by: By<'a, 'h>,
    within: Option<&'a InTransaction>,
}

impl Tracks for Writing<'_, '_> {
    fn waits(&self) -> bool {
        self.by.waits
    }

    fn wait_for_room(&self, budget: &MemoryBudget) -> Result<()> {
        match self.by.held {
            Some(_) => Ok(()),
            None => budget.wait_for_room(self.by.waits),
        }
    }

    fn is_latched(&self) -> bool {
        self.by.held.is_some()
    }

    fn latch<'e>(&self, engine: &'e Engine, targets: &[Target<'_>]) -> Result<Taken<'e>> {
        match self.by.held {
            Some(held) => held.latch(targets),
            None => engine.latch_keys(targets, self.by.waits),
        }
    }

    fn give_back(&self, latches: Taken<'_>) {
        match self.by.held {
            Some(held) => held.give_back(),
            None => drop(latches),
        }
    }

    fn holder(&self) -> u64 {
        self.by.holder
    }

    fn blocked(&self, by: Blocked) -> Option<Error> {
        self.by.blocked?.set(Some(by));
        Some(Error::new(ErrorKind::WouldBlock, "a transaction has locked the row"))
    }

    fn decided(&mut self) -> Result<bool> {
        match self.within {
            Some(within) => within.transaction.lock_decided(within.epoch).map(|()| false),
            None => Ok(false),
        }
    }

    fn start_record(&self, ts: Timestamp, buf: &mut Vec<u8>) {
        record::start(buf, ts);
    }

    fn applied(&mut self, _: &[WriteOp<'_>], _: Lsn, _: &mut Commit) {}
}
