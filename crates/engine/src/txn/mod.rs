//! Transactions: several writes that are applied together, or not at all.
//!
//! A transaction is of the engine, and of no door or connection. What its statements change is decided when they run, on the
//! newest versions and on what it has changed before, and kept in its [write set](writes); who reads for it looks there first.
//! The rows are [locked](locks) meanwhile. [`Engine::commit`] writes them as any other write: one log record and one timestamp,
//! if each row is still the one that was decided on. Nothing of a transaction is in the log, or seen by others, before that, so
//! that a crash, or whoever drops it, leaves nothing of it.
//!
//! A write in a transaction is a write all of whose operations are kept: it latches its keys, decides, and while it has the
//! latches, adds what it has [decided](staged) and takes the locks. Several may be under way in one transaction.
//!
//! One that changes more than memory is for has [spilled](spilled) most of it, and is [committed with files](files).
//!
//! All have [numbers](numbers). Some are [kept](kept) for clients that know theirs, and outlive connections.
//!
//! One that is serializable remembers what it has [read](reads) too, and is committed only if that is still the same.

mod catalog;
mod files;
mod kept;
mod locks;
mod many_locks;
mod numbers;
mod own;
mod reads;
mod runs;
mod spilled;
mod staged;
mod writes;

pub use kept::{KeptCommit, TransactionState};
pub(crate) use locks::RowLocks;
pub use locks::{Blocked, LockedRows, RowWait};
pub use numbers::{EndedTransaction, OpenTransaction};
pub(crate) use numbers::{TRANSACTION_IDS, Transactions};
pub use own::{Changes, Overlay, OwnRows};
pub(crate) use reads::Scanned;
pub use reads::Unchanged;
pub(crate) use spilled::RUNS_DIR;
pub use spilled::{Reader, SpilledIter, SpilledRows};

use crate::catalog::Table;
use crate::engine::Engine;
use crate::held::Held;
use crate::latches::Taken;
use crate::memory::{MemoryBudget, Reserved};
use crate::read::RowVersion;
use crate::record;
use crate::timeline::Snapshot;
use crate::tracked::{Tracks, on_all, would_block};
use crate::tracker::Execution;
use crate::write::{Commit, Decide, Decision, Read, ReadAhead, Target, WriteOp};
use catalog::{Changed, Picture};
use locks::LockedKey;
use many_locks::ManyLocks;
use oribi_env::locks::{self as ranks, Mutex};
use oribi_types::{Error, ErrorKind, Result, Timestamp};
use oribi_wal::Lsn;
use reads::{Reads, WasRead};
use spilled::Spilled;
use staged::Staged;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use writes::{Change, Seen, WriteSet};

/// The number of no transaction.
const NONE: u64 = 0;

/// Memory is taken from the budget in steps of so much. A transaction of less takes none.
const STEP_BYTES: usize = 32 << 10;

/// What a locked row takes beside its key, about.
const LOCK_BYTES: usize = LockedKey::BYTES;

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
    /// Rows that it has locked, after so many others.
    locked: Vec<LockedKey>,
    locked_before: usize,
    locked_bytes: usize,
    /// Those others.
    many: Option<Arc<ManyLocks>>,
    /// What it has changed before what is in memory.
    spilled: Option<Spilled>,
    savepoints: Vec<(String, Mark)>,
    reserved: Vec<Reserved>,
    /// Of a serializable one.
    reads: Option<Reads>,
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

/// What is locked no more.
struct Released {
    rows: Vec<LockedKey>,
    many: Option<Arc<ManyLocks>>,
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
        self.state.lock().writes_to(table)
    }

    /// Has `answer` look at the row that it has made of a key, `None` if it has deleted it; `None` if it has not changed it.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn own<R>(
        &self,
        table: &Table,
        key: &[u8],
        answer: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<Option<R>> {
        let state = self.state.lock();
        if let Some(change) = state.writes.last(table, key) {
            return Ok(Some(answer(change.row.as_deref())));
        }
        let Some(spilled) = &state.spilled else { return Ok(None) };
        Ok(spilled.find(&self.engine, table, key)?.map(|row| answer(row.as_deref())))
    }

    /// Has it be serializable: what its statements read is to be noted, and is read at the snapshot that this returns. For one
    /// thread at a time to call.
    pub fn serialize(&self) -> Arc<Snapshot> {
        if let Some(reads) = &self.state.lock().reads {
            return reads.snapshot.clone();
        }
        // Before the lock: a snapshot is registered under one that comes earlier.
        let reads = Reads::new(&self.engine);
        let snapshot = reads.snapshot.clone();
        self.state.lock().reads = Some(reads);
        snapshot
    }

    /// Notes that it has looked up rows by their keys, or is about to.
    pub fn note_keys<'k>(&self, table: &Arc<Table>, keys: impl IntoIterator<Item = &'k [u8]>) {
        if let Some(reads) = &mut self.state.lock().reads {
            keys.into_iter().for_each(|key| reads.note_key(table, key));
        }
    }

    /// Notes that it has read rows of tablets, which are given by their places in the table, or is about to.
    pub fn note_scan(&self, table: &Arc<Table>, tablets: &[usize]) {
        if let Some(reads) = &mut self.state.lock().reads {
            reads.note_scan(table, tablets);
        }
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

    /// A statement failed: what came after the last savepoint is undone, since nothing else can become of it. True if there is none,
    /// so that nothing can become of the transaction.
    pub fn fail(&self) -> bool {
        let mark = self.state.lock().savepoints.last().map(|(_, mark)| *mark);
        self.undo_to(mark.unwrap_or_default());
        mark.is_none()
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
        let before = state.writes.before();
        let mut changes = std::mem::take(&mut state.writes).into_last();
        let spilled = state.spilled.take().filter(|spilled| !spilled.runs.is_empty());
        if spilled.is_some() {
            state.move_locks(&self.engine);
        }
        let catalog = std::mem::take(&mut state.catalogs).pop();
        state.picture = None;
        let reads = state.reads.take();
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
        let spilled = spilled.map(|spilled| (spilled, before));
        Committing { transaction: self.clone(), changes, catalog, spilled, read: reads.map(Reads::end) }
    }

    fn release(&self, released: &Released) {
        let Released { rows, many } = released;
        if rows.is_empty() && many.is_none() {
            return;
        }
        self.engine.row_locks.release(rows, self.id);
        self.engine.undecided.rows_released(rows.len());
        if let Some(many) = many {
            self.engine.row_locks.release_many(many);
            self.engine.undecided.rows_released(many.count());
        }
        self.engine.released.tell();
    }
}

impl State {
    fn mark(&self) -> Mark {
        let (changes, catalogs) = (self.writes.len(), self.catalogs.len());
        Mark { changes, catalogs, locked: self.locked_before + self.locked.len() }
    }

    fn writes_to(&self, table: &Table) -> bool {
        self.writes.writes_to(table) || self.spilled.as_ref().is_some_and(|spilled| spilled.writes_to(table))
    }

    /// Returns what is locked no more: of rows that are many, none or all.
    fn undo_to(&mut self, mark: Mark) -> Released {
        self.writes.truncate(mark.changes);
        self.catalogs.truncate(mark.catalogs);
        self.spilled.iter_mut().for_each(|spilled| spilled.truncate(mark.changes));
        let kept = mark.locked.saturating_sub(self.locked_before);
        let rows = self.locked.split_off(kept.min(self.locked.len()));
        self.locked_bytes -= rows.iter().map(LockedKey::bytes).sum::<usize>();
        let many = if mark.locked == 0 { self.many.take() } else { None };
        if many.is_some() {
            (self.spilled, self.locked_before) = (None, 0);
        }
        let steps = (self.bytes() + self.spilled_bytes()) / STEP_BYTES;
        self.reserved.truncate(steps);
        Released { rows, many }
    }

    /// Bytes of memory in use, about, but for what is left of what was spilled.
    fn bytes(&self) -> usize {
        self.writes.bytes() + self.locked_bytes + self.reads.as_ref().map_or(0, Reads::bytes)
    }

    fn spilled_bytes(&self) -> usize {
        self.spilled.as_ref().map_or(0, |spilled| spilled.bytes)
    }

    fn check(&self, epoch: u64) -> Result<()> {
        match self.epoch == epoch && !self.ended {
            true => Ok(()),
            false => Err(Error::unavailable("the statement was given up")),
        }
    }

    /// Takes memory for what there is, and for so many bytes that a write would add.
    ///
    /// # Errors
    /// `TooLarge` if the changes are more than one write may be, or than there is memory for.
    fn check_room(&mut self, engine: &Engine, added: usize) -> Result<()> {
        let (bytes, bytes_max) = (self.bytes() + added, engine.options.statement_bytes_max);
        if bytes > bytes_max {
            let much = format!("more than statement_bytes_max ({bytes_max} bytes)");
            return Err(Error::too_large(match self.stays_in_memory() {
                Some(which) => {
                    format!("the transaction changes or locks {much}, and {which} stays in memory")
                }
                None => format!("a statement of the transaction changes or locks {much}"),
            }));
        }
        self.reserve(engine, added)
    }

    /// Takes memory for what there is, and for so many bytes.
    ///
    /// # Errors
    /// `TooLarge` if there is none.
    fn reserve(&mut self, engine: &Engine, added: usize) -> Result<()> {
        let bytes = self.bytes() + self.spilled_bytes() + added;
        while self.reserved.len() < bytes / STEP_BYTES {
            let step = Reserved::try_new(&engine.budget, STEP_BYTES as u64);
            let none = || Error::too_large("there is not enough memory for what the transaction changes");
            self.reserved.push(step.ok_or_else(none)?);
        }
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.engine.transactions.forget(self.id);
        let state = self.state.get_mut();
        let released = Released { rows: std::mem::take(&mut state.locked), many: state.many.take() };
        self.release(&released);
    }
}

impl InTransaction {
    pub fn transaction(&self) -> &Arc<Transaction> {
        &self.transaction
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
    /// Begins a transaction, which ends with whoever has it.
    pub fn begin(self: &Arc<Self>) -> Arc<Transaction> {
        self.transactions.begin(self)
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
            None => self.execute(
                ops,
                decide,
                &mut Writing { by, staged: None, commit: None, compared: 0, scanned: None },
                of_ops,
            )?,
            Some(within) => {
                if by.waits {
                    within.transaction.make_room(ops)?;
                }
                let staged = RefCell::new(Staged::new(within, ops));
                let mut note = |i: usize, current: Option<RowVersion<'_>>, rows: &mut Vec<u8>| {
                    staged.borrow_mut().decide(i, current, rows, |current, rows| decide(i, current, rows))?;
                    Ok(Decision::Keep)
                };
                let mut writing =
                    Writing { by, staged: Some(&staged), commit: None, compared: 0, scanned: None };
                self.execute(ops, &mut note, &mut writing, of_ops)?
            }
        };
        *ahead = ReadAhead::default();
        Ok(commit)
    }

    /// Applies a transaction, as one log record at one timestamp. Unless it `waits`, it waits for nobody, and is to be called again.
    ///
    /// # Errors
    /// `Conflict` or `Retry` if a row is another than was decided on, what a serializable one has read was changed, or a table was
    /// truncated or altered since; those of [`write_again`](Self::write_again). Nothing was applied then.
    pub fn commit(&self, committing: &Committing, waits: bool, ahead: &mut ReadAhead) -> Result<Commit> {
        self.commit_as(committing, None, waits, ahead)
    }

    /// As [`commit`](Self::commit), which may be logged with what is known of it later.
    fn commit_as(
        &self,
        committing: &Committing,
        tracked: Option<TrackedCommit<'_>>,
        waits: bool,
        ahead: &mut ReadAhead,
    ) -> Result<Commit> {
        if let Some((spilled, before)) = &committing.spilled {
            return match waits {
                true => self.commit_files(committing, (spilled, *before), None, tracked),
                false => Err(would_block("rows are written to files")),
            };
        }
        let seen = committing.seen(self, waits)?;
        let read = seen.iter().map(|(table, key, _)| WriteOp { table, key, read: Read::Existing, row: &[] });
        let ops: Vec<WriteOp<'_>> = read.chain(committing.ops()).collect();
        let by = By { waits, holder: committing.transaction.id, blocked: None, held: None };
        let mut decide = |i: usize, current: Option<RowVersion<'_>>, _: &mut Vec<u8>| match seen.get(i) {
            None => committing.decide(i - seen.len(), current),
            Some((_, _, seen)) if seen.is(current)? => Ok(Decision::Keep),
            Some(_) => Err(reads::changed()),
        };
        let scanned = committing.read.as_ref().map(|read| &read.scanned);
        let scanned = scanned.filter(|scanned| !scanned.is_empty());
        let mut writing = Writing { by, staged: None, commit: tracked, compared: seen.len(), scanned };
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

    /// The rows of a table that others than `transaction` have locked.
    pub fn rows_locked_by_others(
        self: &Arc<Self>,
        table: &Arc<Table>,
        transaction: Option<&Transaction>,
    ) -> LockedRows {
        LockedRows::of(self, table, transaction.map_or(NONE, Transaction::id))
    }

    fn locked_key(&self, op: &WriteOp<'_>, key: Arc<[u8]>) -> LockedKey {
        let generation = op.table.tablet_of(&key).generation();
        let hash = self.index.key(generation, &key).hash;
        LockedKey { hash, generation, key }
    }
}

/// The row of a key, as it was seen.
type SeenRow<'c> = (&'c Arc<Table>, &'c [u8], Seen);

/// What a transaction applies.
pub struct Committing {
    transaction: Arc<Transaction>,
    changes: Vec<Change>,
    catalog: Option<Arc<Changed>>,
    /// What it has spilled, and how many changes come before those here.
    spilled: Option<(Spilled, usize)>,
    /// By a serializable one.
    read: Option<WasRead>,
}

impl Committing {
    /// How many rows it changes, at most.
    pub fn len(&self) -> usize {
        let spilled = self.spilled.iter().flat_map(|(spilled, _)| spilled.changes.values()).sum::<usize>();
        self.changes.len() + spilled
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.spilled.is_none()
    }

    /// Whether it compares what was read, or has files, and so can only be committed by who waits.
    pub fn takes_long(&self) -> bool {
        self.read.is_some() || self.spilled.is_some()
    }

    fn compares_reads(&self) -> bool {
        self.read.is_some()
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
        match (change.seen.is(current)?, &change.row) {
            (false, _) => Err(Error::conflict("a row that the transaction changes was changed meanwhile")),
            (true, None) => Ok(Decision::Delete),
            (true, Some(_)) => Ok(Decision::Proposed),
        }
    }

    /// One of the tables.
    pub fn table(&self) -> Option<&Arc<Table>> {
        let spilled = self.spilled.iter().flat_map(|(spilled, _)| &spilled.tables).map(|(table, _)| table);
        self.changes.iter().map(|change| &change.table).chain(spilled).next()
    }

    /// The rows that were looked up, as the transaction has seen them.
    fn seen(&self, engine: &Engine, waits: bool) -> Result<Vec<SeenRow<'_>>> {
        let Some(read) = &self.read else { return Ok(Vec::new()) };
        if !waits {
            return Err(would_block("what was read is looked at again"));
        }
        let seen = |table: &Table, key: &[u8]| -> Result<Seen> {
            let (ts, _) = engine.get(table, key, read.snapshot.view(), |row| row.ts)?;
            Ok(ts.map_or(Seen::Nothing, Seen::RowOf))
        };
        read.keys.iter().map(|(table, key)| Ok((table, &**key, seen(table, key)?))).collect()
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
struct Writing<'a, 'h, 'o> {
    by: By<'a, 'h>,
    /// Of a statement in a transaction.
    staged: Option<&'a RefCell<Staged<'o>>>,
    /// Of a commit that can be asked for later.
    commit: Option<TrackedCommit<'a>>,
    /// So many operations come first that only compare.
    compared: usize,
    /// What must not have been written to since it was scanned.
    scanned: Option<&'a Scanned>,
}

/// A commit with a request id, and its result.
struct TrackedCommit<'a> {
    execution: Execution<'a>,
    result: Arc<[u8]>,
}

impl TrackedCommit<'_> {
    fn record(&self) -> record::Tracked<'_> {
        record::Tracked { request: self.execution.request(), result: &self.result }
    }
}

impl Tracks for Writing<'_, '_, '_> {
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

    fn compared(&self) -> usize {
        self.compared
    }

    fn scanned(&self) -> Option<&Scanned> {
        self.scanned
    }

    fn decided(&mut self) -> Result<bool> {
        if let Some(staged) = self.staged {
            staged.borrow_mut().take_in()?;
        }
        Ok(self.commit.is_some())
    }

    fn start_record(&self, ts: Timestamp, buf: &mut Vec<u8>) {
        match &self.commit {
            Some(commit) => record::start_tracked(buf, ts, commit.record()),
            None => record::start(buf, ts),
        }
    }

    fn tracked(&self) -> Option<record::Tracked<'_>> {
        self.commit.as_ref().map(TrackedCommit::record)
    }

    fn applied(&mut self, ops: &[WriteOp<'_>], lsn: Lsn, commit: &mut Commit) {
        let Some(tracked) = &mut self.commit else { return };
        commit.obligation.merge(on_all(ops, lsn));
        tracked.execution.finish(*commit, tracked.result.clone());
    }
}
