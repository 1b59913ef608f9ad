//! Where the rows go that a statement writes: into the engine or, inside of a block, to what its `COMMIT` applies.
//!
//! A block's write is decided when its statement runs, over the rows that are there: it fails, counts and returns what
//! it would if it were applied then. Nothing is applied. `COMMIT` does what was decided, if each row is still the one
//! that the decision saw.

use super::room::Room;
use super::{changed, check_size, settle};
use crate::context::QueryEngine;
use futures::FutureExt;
use oribi_engine::{
    Commit, Decide, Decision, EncodedRows, Engine, Read, ReadAhead, RowVersion, Table, WriteOp,
};
use oribi_session::sql::{SqlError, SqlSession, Staged, TransactionStatus};
use oribi_types::{ErrorKind, Result, Timestamp};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Statements of at most this many rows are written on the thread that serves the client; larger ones would hold it up.
const ROWS_INLINE_MAX: usize = 64;

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

    /// Runs `work`, which writes about `rows` rows, where it may block.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        rows: usize,
        work: impl FnOnce(&Writer<'_>) -> T + Send + 'static,
    ) -> Result<T, SqlError> {
        let (stages, shared) = (self.block.is_some(), Arc::clone(&self.ahead));
        let (done, decided) = blocking(self.engine(), rows, move |engine| {
            let decided = stages.then(RefCell::default);
            let shared = || shared.lock().unwrap_or_else(PoisonError::into_inner);
            let ahead = RefCell::new(std::mem::take(&mut *shared()));
            let done = work(&Writer { engine, held: None, decided: decided.as_ref(), ahead: &ahead });
            *shared() = ahead.into_inner();
            (done, decided.and_then(RefCell::into_inner))
        })
        .await?;
        // Not where it was decided: a statement that was dropped meanwhile must not reach a later block.
        if let (Some(decided), Some(session)) = (decided, &self.block) {
            let room = Room::new(&self.query);
            room.hold(decided.bytes())?;
            session.stage(decided.staged(Arc::clone(self.engine()), room));
        }
        Ok(done)
    }

    /// Applies `work` where it may block: at once, or when the block is committed. Returns what it gives, if it ran.
    pub(crate) async fn apply<T: Send + 'static>(
        &self,
        table: &Table,
        work: impl FnOnce() -> Result<T, SqlError> + Send + 'static,
    ) -> Result<Option<T>, SqlError> {
        let Some(session) = &self.block else {
            return blocking(self.engine(), usize::MAX, move |_| work()).await?.map(Some);
        };
        let engine = Arc::clone(self.engine());
        let apply =
            move || async move { blocking(&engine, usize::MAX, move |_| work()).await?.map(|_| ()) }.boxed();
        session.stage(Staged { table: Some(table.id()), apply: Box::new(apply) });
        Ok(None)
    }
}

/// Runs `work`, which writes about `rows` rows, where it may block.
async fn blocking<T: Send + 'static>(
    engine: &Arc<Engine>,
    rows: usize,
    work: impl FnOnce(&Engine) -> T + Send + 'static,
) -> Result<T, SqlError> {
    engine.admission().await;
    if rows <= ROWS_INLINE_MAX {
        return Ok(work(engine));
    }
    let engine = Arc::clone(engine);
    tokio::task::spawn_blocking(move || work(&engine))
        .await
        .map_err(|e| SqlError::new(ErrorKind::Internal, format!("a write stopped: {e}")))
}

/// Writes to a table that is held: [`Held::write`](oribi_engine::Held::write).
pub(crate) type Write<'h> = dyn Fn(&[WriteOp<'_>], &mut Decide<'_>, &mut ReadAhead) -> Result<Commit> + 'h;

/// The engine, as a statement writes to it.
pub(crate) struct Writer<'e> {
    pub(crate) engine: &'e Engine,
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
        match self.held {
            Some(write) => write(ops, decide, ahead),
            None => self.engine.write_again(ops, decide, ahead),
        }
    }

    /// As [`Engine::write`]; in a block, decides without writing.
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
    fn staged(self, engine: Arc<Engine>, room: Room) -> Staged {
        let table = Some(self.table.id());
        let apply = move || {
            async move {
                let _room = room;
                let commit = blocking(&engine, self.rows.len(), move |engine| self.write(engine)).await??;
                settle(&engine, &commit).await
            }
            .boxed()
        };
        Staged { table, apply: Box::new(apply) }
    }

    fn write(&self, engine: &Engine) -> Result<Commit> {
        engine.write(&self.rows.operations(&self.table, Read::Existing), &mut |i, current, _| {
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
