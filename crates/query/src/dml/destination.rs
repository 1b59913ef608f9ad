//! Where the rows go that a statement writes: into the engine or, inside of a block, to what its `COMMIT` applies.
//!
//! A block's write is decided when its statement runs, over the rows that are there: it fails, counts and returns what
//! it would if it were applied then. Nothing is applied. `COMMIT` does what was decided, if each row is still the one
//! that the decision saw.

use super::room::Room;
use super::{changed, check_size, settle};
use crate::context::QueryEngine;
use futures::{FutureExt, TryFutureExt};
use oribi_engine::{
    Commit, Decide, Decision, EncodedRows, Engine, Lookup, Read, ReadAhead, ReadView, RowVersion, Table,
    WriteOp,
};
use oribi_session::sql::{SqlError, SqlSession, Staged, TransactionStatus};
use oribi_types::{Error, ErrorKind, Result, Timestamp};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::OwnedSemaphorePermit;

/// Statements of at most this many rows are written on the thread that serves the client; larger ones would hold it up.
const ROWS_INLINE_MAX: usize = 64;

/// A statement that was told so often to wait, for half a second or so, stands in line for a thread that may: others may be
/// faster whenever it tries.
const TRIES_ALONE: u32 = 16;

/// Where one statement writes.
#[derive(Clone)]
pub(crate) struct Destination {
    query: Arc<QueryEngine>,
    /// That of the block.
    block: Option<Arc<SqlSession>>,
    /// What an attempt to write has read from files, for the next.
    ahead: Arc<Mutex<ReadAhead>>,
}

impl Destination {
    pub(crate) fn new(query: &Arc<QueryEngine>, session: &Arc<SqlSession>) -> Self {
        let in_block = session.transaction() != TransactionStatus::Idle;
        let block = in_block.then(|| Arc::clone(session));
        Destination { query: Arc::clone(query), block, ahead: Arc::default() }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.query.engine()
    }

    /// Has `work` write about `rows` rows of `table`, made of `state`, which comes back. A few are written on this thread, and
    /// where that would have to wait for others, nothing has changed: `work` is called again when it may go better. Many are
    /// written, once, by a thread that may wait. Dropping the future gives the write up, unless it is decided already.
    pub(crate) async fn write<S: Send + 'static, T: Send + 'static>(
        &self,
        table: &Table,
        rows: usize,
        mut state: S,
        work: impl Fn(&mut S, &Writer<'_>) -> T + Send + 'static,
    ) -> Result<(S, T), SqlError> {
        let mut place = pin!(self.query.writers().place(table.id()));
        let mut tries = 0;
        let place = loop {
            if rows > ROWS_INLINE_MAX {
                break place.await;
            }
            self.engine().admission().await;
            match self.attempt(None, |writer| work(&mut state, writer)) {
                Ok(done) => return Ok((state, self.stage(done)?)),
                Err(Told::ToReadFiles) => break place.await,
                Err(Told::ToWait) => {}
            }
            tokio::select! {
                biased;
                place = &mut place, if tries >= TRIES_ALONE => break place,
                () = oribi_session::turn(self.engine(), tries) => tries += 1,
            }
        };
        let asked = Arc::new(());
        let (still, waiting) = (Arc::downgrade(&asked), self.clone());
        let (state, done) = aside(self.engine(), Some(place), move || {
            let done = waiting.attempt(Some(&still), |writer| work(&mut state, writer));
            (state, done)
        })
        .await?;
        let done = done.map_err(|_| SqlError::new(ErrorKind::Internal, "who may wait was told to"))?;
        Ok((state, self.stage(done)?))
    }

    /// Calls `work` once. The writer waits if it is told whether it is still asked to; otherwise it may be told what it needs, and
    /// nothing has changed.
    fn attempt<T>(
        &self,
        asked: Option<&Weak<()>>,
        work: impl FnOnce(&Writer<'_>) -> T,
    ) -> Result<Attempted<T>, Told> {
        let decided = self.block.is_some().then(RefCell::default);
        let shared = || self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let (ahead, told) = (RefCell::new(std::mem::take(&mut *shared())), Cell::new(None));
        let done = work(&Writer {
            engine: self.engine(),
            asked,
            told: &told,
            held: None,
            decided: decided.as_ref(),
            ahead: &ahead,
        });
        *shared() = ahead.into_inner();
        match told.get() {
            // What it made of that, a refusal perhaps, rests on what others still write.
            Some(told) => Err(told),
            None => Ok(Attempted { done, decided: decided.and_then(RefCell::into_inner) }),
        }
    }

    /// Leaves what was decided to the block. Not where it was decided: a statement that was dropped meanwhile must not reach a
    /// later block.
    fn stage<T>(&self, attempted: Attempted<T>) -> Result<T, SqlError> {
        if let (Some(decided), Some(session)) = (attempted.decided, &self.block) {
            let room = Room::new(&self.query);
            room.hold(decided.bytes())?;
            session.stage(decided.staged(&self.query, room));
        }
        Ok(attempted.done)
    }

    /// Applies `work` to `table` where it may wait for others: at once, or when the block is committed. Returns what it gives, if
    /// it ran.
    pub(crate) async fn apply<T: Send + 'static>(
        &self,
        table: &Table,
        work: impl FnOnce() -> Result<T, SqlError> + Send + 'static,
    ) -> Result<Option<T>, SqlError> {
        let (query, table) = (Arc::clone(&self.query), table.id());
        let applied = async move {
            let place = query.writers().place(table).await;
            aside(query.engine(), Some(place), work).await?
        };
        let Some(session) = &self.block else { return applied.await.map(Some) };
        let apply = move || applied.map_ok(|_| ()).boxed();
        session.stage(Staged { table: Some(table), apply: Box::new(apply) });
        Ok(None)
    }
}

/// What a writer needs that must not wait.
#[derive(Clone, Copy)]
enum Told {
    /// Others have its rows: it may try again.
    ToWait,
    /// To read, on a thread that may.
    ToReadFiles,
}

/// What an attempt gave and, in a block, what it decided.
struct Attempted<T> {
    done: T,
    decided: Option<Decided>,
}

/// Runs `work` on a thread that serves nobody. Where it waits for those who write to a table, it has a place among those who do.
pub(super) async fn aside<T: Send + 'static>(
    engine: &Engine,
    place: Option<OwnedSemaphorePermit>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SqlError> {
    engine.admission().await;
    let run = move || {
        let _place = place;
        work()
    };
    let ran = tokio::task::spawn_blocking(run).await;
    ran.map_err(|e| SqlError::new(ErrorKind::Internal, format!("a write stopped: {e}")))
}

/// Writes to a table that is held: [`Held::write`](oribi_engine::Held::write).
pub(crate) type Write<'h> = dyn Fn(&[WriteOp<'_>], &mut Decide<'_>, &mut ReadAhead) -> Result<Commit> + 'h;

/// The engine, as a statement writes to it.
pub(crate) struct Writer<'e> {
    pub(crate) engine: &'e Engine,
    /// Of a writer that may wait: there as long as somebody asks for the write.
    asked: Option<&'e Weak<()>>,
    told: &'e Cell<Option<Told>>,
    /// The table that it writes to, if nobody else may.
    held: Option<&'e Write<'e>>,
    /// In a block, what was decided instead of written.
    decided: Option<&'e RefCell<Option<Decided>>>,
    ahead: &'e RefCell<ReadAhead>,
}

impl Writer<'_> {
    /// The same for rows of a table that is held.
    pub(crate) fn holding<'h>(&'h self, held: &'h Write<'h>) -> Writer<'h> {
        Writer { held: Some(held), ..*self }
    }

    fn apply(&self, ops: &[WriteOp<'_>], decide: &mut Decide<'_>) -> Result<Commit> {
        let ahead = &mut *self.ahead.borrow_mut();
        let Some(asked) = self.asked else {
            let tried = self.engine.write_again(false, ops, decide, ahead);
            let is_told_to_wait = matches!(&tried, Err(error) if error.kind() == ErrorKind::WouldBlock);
            if is_told_to_wait {
                self.told.set(Some(Told::ToWait));
            }
            return tried;
        };
        // It may have waited for so long that its client has given up.
        let decide: &mut Decide<'_> = &mut |i, current, row| match asked.strong_count() {
            0 => Err(Error::unavailable("nobody asks for the write any more")),
            _ => decide(i, current, row),
        };
        match self.held {
            Some(write) => write(ops, decide, ahead),
            None => self.engine.write_again(true, ops, decide, ahead),
        }
    }

    /// As [`Engine::get`]. One that must not wait may be told to read on another thread, where it waits for what others write too.
    ///
    /// # Errors
    /// As [`Engine::get`]; `WouldBlock`.
    pub(crate) fn get<R>(
        &self,
        table: &Table,
        key: &[u8],
        view: ReadView,
        answer: impl FnOnce(RowVersion<'_>) -> R,
    ) -> Result<Option<R>> {
        if self.asked.is_some() {
            return Ok(self.engine.get(table, key, view, answer)?.0);
        }
        match self.engine.try_get(table, key, view, answer) {
            Lookup::Found(found, _) => Ok(Some(found)),
            Lookup::Absent(_) => Ok(None),
            Lookup::Pending => {
                self.told.set(Some(Told::ToReadFiles));
                Err(Error::new(ErrorKind::WouldBlock, "files must be read"))
            }
        }
    }

    /// As [`Engine::write`]; in a block, decides without writing. One that must not wait may be told to
    /// ([`Engine::try_write`]).
    ///
    /// # Errors
    /// As [`Engine::write`].
    pub(crate) fn write(&self, ops: &[WriteOp<'_>], decide: &mut Decide<'_>) -> Result<Commit> {
        let (Some(decided), Some(first)) = (self.decided, ops.first()) else {
            return self.apply(ops, decide);
        };
        let mut all = Decided::new(first.table);
        let commit = self.apply(ops, &mut |i, current, _| {
            all.decide(&ops[i], current, |current, row| decide(i, current, row))?;
            Ok(Decision::Keep)
        })?;
        check_size(self.engine, all.rows.bytes()).map_err(|refused| refused.error)?;
        if !all.rows.is_empty() {
            *decided.borrow_mut() = Some(all);
        }
        Ok(commit)
    }
}

/// What a statement decided.
struct Decided {
    table: Arc<Table>,
    /// The rows to put, and the keys to delete, in order.
    rows: EncodedRows,
    /// What becomes of each of `rows`.
    changes: Vec<Change>,
    /// The last change of each key.
    last: HashMap<Vec<u8>, usize>,
}

struct Change {
    deletes: bool,
    seen: Seen,
}

/// What was decided on.
enum Seen {
    Nothing,
    RowOf(Timestamp),
    /// What the statement itself made of the key.
    Own,
}

impl Decided {
    fn new(table: &Arc<Table>) -> Self {
        Decided {
            table: Arc::clone(table),
            rows: EncodedRows::default(),
            changes: Vec::new(),
            last: HashMap::new(),
        }
    }

    /// Notes what `decide` makes of an operation that finds `current`. It sees those before it, as in a write.
    fn decide(
        &mut self,
        op: &WriteOp<'_>,
        current: Option<RowVersion<'_>>,
        decide: impl FnOnce(Option<RowVersion<'_>>, &mut Vec<u8>) -> Result<Decision>,
    ) -> Result<()> {
        let mut made = Vec::new();
        let (decision, seen) = match self.last.get(op.key) {
            Some(&last) => {
                let own = RowVersion { key: op.key, row: self.rows.row(last), ts: Timestamp::MAX };
                let own = (!self.changes[last].deletes).then_some(own);
                (decide(own, &mut made)?, Seen::Own)
            }
            None => {
                let seen = current.map_or(Seen::Nothing, |row| Seen::RowOf(row.ts));
                (decide(current, &mut made)?, seen)
            }
        };
        match decision {
            Decision::Keep => return Ok(()),
            Decision::Put => self.rows.push_encoded(op.key, &made),
            Decision::Proposed => self.rows.push_encoded(op.key, op.row),
            Decision::Delete => self.rows.push_encoded(op.key, &[]),
        }
        self.last.insert(op.key.to_vec(), self.changes.len());
        self.changes.push(Change { deletes: decision == Decision::Delete, seen });
        Ok(())
    }

    /// Bytes of memory in use, nearly.
    fn bytes(&self) -> usize {
        self.rows.bytes() + self.changes.len() * size_of::<(Change, Vec<u8>, usize)>()
    }

    /// `room` is what holds it.
    fn staged(self, query: &Arc<QueryEngine>, room: Room) -> Staged {
        let table = Arc::clone(&self.table);
        let destination = Destination { query: Arc::clone(query), block: None, ahead: Arc::default() };
        let of = Some(table.id());
        let apply = move || {
            async move {
                let _room = room;
                let write = |decided: &mut Decided, writer: &Writer<'_>| decided.write(writer);
                let (_, commit) = destination.write(&table, self.rows.len(), self, write).await?;
                settle(destination.engine(), &commit?).await
            }
            .boxed()
        };
        Staged { table: of, apply: Box::new(apply) }
    }

    fn write(&self, writer: &Writer<'_>) -> Result<Commit> {
        writer.write(&self.rows.operations(&self.table, Read::Existing), &mut |i, current, _| {
            let change = &self.changes[i];
            let same = match change.seen {
                Seen::Nothing => current.is_none(),
                Seen::RowOf(ts) => current.is_some_and(|row| row.ts == ts),
                Seen::Own => true,
            };
            match (same, change.deletes) {
                (false, _) => Err(changed()),
                (true, true) => Ok(Decision::Delete),
                (true, false) => Ok(Decision::Proposed),
            }
        })
    }
}
