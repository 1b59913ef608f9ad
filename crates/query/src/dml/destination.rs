//! Where the rows go that a statement writes: into the engine or, inside of a block, to its transaction, which `COMMIT` applies.
//!
//! A block's write is decided when its statement runs, over the rows that are there and those that the block has written: it
//! fails, counts and returns what it would if it were applied then.
//!
//! A row that another transaction has locked is not waited for here, where a statement may have a turn, a place, and latches:
//! it [begins anew](crate::block::wait_for_row) when the row is free.

use crate::block;
use crate::context::QueryEngine;
use oribi_engine::{
    Author, Blocked, Commit, Committing, Decide, Engine, InTransaction, Lookup, ReadAhead, ReadView,
    RowVersion, Table, Transaction, WriteOp,
};
use oribi_session::sql::{SqlError, SqlSession, TransactionStatus};
use oribi_types::{Error, ErrorKind, Result, Timestamp};
use std::cell::{Cell, RefCell};
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
    session: Arc<SqlSession>,
    /// In a block, its transaction.
    within: Option<InTransaction>,
    /// What an attempt to write has read from files, for the next.
    ahead: Arc<Mutex<ReadAhead>>,
}

impl Destination {
    pub(crate) fn new(query: &Arc<QueryEngine>, session: &Arc<SqlSession>) -> Self {
        let in_block = session.transaction() != TransactionStatus::Idle;
        let within = in_block.then(|| {
            let snapshot = session.block_snapshot(query.engine()).map(|snapshot| snapshot.ts());
            session.begin_transaction(query.engine()).begin_statement(snapshot)
        });
        Destination { query: Arc::clone(query), session: Arc::clone(session), within, ahead: Arc::default() }
    }

    /// For a block that has ended.
    pub(crate) fn of_commit(query: &Arc<QueryEngine>, session: &Arc<SqlSession>) -> Self {
        let (query, session) = (Arc::clone(query), Arc::clone(session));
        Destination { query, session, within: None, ahead: Arc::default() }
    }

    pub(crate) fn query(&self) -> &Arc<QueryEngine> {
        &self.query
    }

    pub(crate) fn session(&self) -> &Arc<SqlSession> {
        &self.session
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
        state: S,
        work: impl Fn(&mut S, &Writer<'_>) -> T + Send + 'static,
    ) -> Result<(S, T), SqlError> {
        match self.write_unless_locked(table, rows, state, work).await? {
            (state, Some(done)) => Ok((state, done)),
            (_, None) => Err(block::row_is_locked()),
        }
    }

    /// As [`write`](Self::write), for who has nobody to ask for his `state` again: `None` in place of the error of a locked row.
    pub(crate) async fn write_unless_locked<S: Send + 'static, T: Send + 'static>(
        &self,
        table: &Table,
        rows: usize,
        mut state: S,
        work: impl Fn(&mut S, &Writer<'_>) -> T + Send + 'static,
    ) -> Result<(S, Option<T>), SqlError> {
        let mut place = pin!(self.query.writers().place(table.id()));
        let mut tries = 0;
        let place = loop {
            if rows > ROWS_INLINE_MAX || self.needs_files() {
                break place.await;
            }
            self.engine().admission().await;
            match self.attempt(None, |writer| work(&mut state, writer)) {
                Ok(done) => return Ok((state, Some(done))),
                Err(Told::ToReadFiles) => break place.await,
                Err(Told::ToWait) => {}
                Err(Told::RowIsLocked) => return Ok((state, None)),
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
        match done {
            Ok(done) => Ok((state, Some(done))),
            Err(Told::RowIsLocked) => Ok((state, None)),
            Err(_) => Err(SqlError::new(ErrorKind::Internal, "who may wait was told to")),
        }
    }

    /// In a block, its transaction.
    pub(crate) fn transaction(&self) -> Option<&Arc<Transaction>> {
        self.within.as_ref().map(InTransaction::transaction)
    }

    /// Has `work` change `table` on a thread that may wait, for others and for files. Who asks for it is there as long as what it is
    /// told holds.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        table: &Table,
        work: impl FnOnce(&Engine, &Weak<()>) -> T + Send + 'static,
    ) -> Result<T, SqlError> {
        let asked = Arc::new(());
        let still = Arc::downgrade(&asked);
        let (place, query) = (self.query.writers().place(table.id()).await, Arc::clone(&self.query));
        aside(self.engine(), Some(place), move || work(query.engine(), &still)).await
    }

    /// Calls `work` once. The writer waits if it is told whether it is still asked to; otherwise it may be told what it needs, and
    /// nothing has changed.
    fn attempt<T>(&self, asked: Option<&Weak<()>>, work: impl FnOnce(&Writer<'_>) -> T) -> Result<T, Told> {
        let blocked = Cell::new(None);
        let shared = || self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let (ahead, told) = (RefCell::new(std::mem::take(&mut *shared())), Cell::new(None));
        let done = work(&Writer {
            engine: self.engine(),
            asked,
            told: &told,
            held: None,
            within: self.within.as_ref(),
            blocked: &blocked,
            ahead: &ahead,
        });
        *shared() = ahead.into_inner();
        if let Some(by) = blocked.take() {
            self.session.note_blocked(by);
            return Err(Told::RowIsLocked);
        }
        match told.get() {
            // What it made of that, a refusal perhaps, rests on what others still write.
            Some(told) => Err(told),
            None => Ok(done),
        }
    }

    /// Whether what the block has made is in files, or about to be.
    fn needs_files(&self) -> bool {
        self.within.as_ref().is_some_and(|within| within.transaction().needs_files())
    }

    /// The transaction of a block that was begun as one: many rows are parts of what it writes, and no import.
    pub(crate) fn block(&self) -> Option<&Arc<Transaction>> {
        let within = self.within.as_ref().filter(|_| !self.session.modes().implicit);
        within.map(InTransaction::transaction)
    }

    /// Whether rows may come to `table` as files: those of one that the block has created or changed are the block's.
    pub(crate) fn takes_files(&self, table: &Table) -> bool {
        !self.within.as_ref().is_some_and(|within| within.transaction().changes_table(table))
    }

    /// Applies `work` to `table` where it may wait for others, behind what came before it in the same message.
    pub(crate) async fn apply<T: Send + 'static>(
        &self,
        table: &Table,
        work: impl FnOnce() -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, SqlError> {
        if self.within.is_some() {
            block::end_series_before(&self.query, &self.session).await?;
        }
        let place = self.query.writers().place(table.id()).await;
        aside(self.engine(), Some(place), work).await?
    }
}

/// What a writer needs that must not wait.
#[derive(Clone, Copy)]
enum Told {
    /// Others have its rows: it may try again.
    ToWait,
    /// To read, on a thread that may.
    ToReadFiles,
    /// To begin anew when the row is free.
    RowIsLocked,
}

/// Runs `work` on a thread that serves nobody. Where it waits for those who write to a table, it has a place among those who do.
pub(crate) async fn aside<T: Send + 'static>(
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

/// Writes to a table that is held, in a transaction or not: [`Engine::write_as`].
pub(crate) type Write<'h> =
    dyn Fn(Place<'_>, &[WriteOp<'_>], &mut Decide<'_>, &mut ReadAhead) -> Result<Commit> + 'h;

/// The transaction that is written in, and where it is said which row others have locked.
pub(crate) type Place<'w> = (Option<&'w InTransaction>, &'w Cell<Option<Blocked>>);

/// The engine, as a statement writes to it.
pub(crate) struct Writer<'e> {
    pub(crate) engine: &'e Engine,
    /// Of a writer that may wait: there as long as somebody asks for the write.
    asked: Option<&'e Weak<()>>,
    told: &'e Cell<Option<Told>>,
    /// The table that it writes to, if nobody else may.
    held: Option<&'e Write<'e>>,
    /// In a block, what it writes to instead.
    within: Option<&'e InTransaction>,
    blocked: &'e Cell<Option<Blocked>>,
    ahead: &'e RefCell<ReadAhead>,
}

impl Writer<'_> {
    /// The same for rows of a table that is held.
    pub(crate) fn holding<'h>(&'h self, held: &'h Write<'h>) -> Writer<'h> {
        Writer { held: Some(held), ..*self }
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
        let mut answer = Some(answer);
        let mut answer = |row: RowVersion<'_>| answer.take().map(|answer| answer(row));
        if let Some(within) = self.within {
            let own =
                |row: Option<&[u8]>| row.and_then(|row| answer(RowVersion { key, row, ts: Timestamp::MAX }));
            if let Some(own) = within.transaction().own(table, key, own)? {
                return Ok(own);
            }
        }
        if self.asked.is_some() {
            return Ok(self.engine.get(table, key, view, answer)?.0.flatten());
        }
        match self.engine.try_get(table, key, view, answer) {
            Lookup::Found(found, _) => Ok(found),
            Lookup::Absent(_) => Ok(None),
            Lookup::Pending => {
                self.told.set(Some(Told::ToReadFiles));
                Err(Error::new(ErrorKind::WouldBlock, "files must be read"))
            }
        }
    }

    /// As [`Engine::write`]; in a block, what is decided is its transaction's. One that must not wait may be told to
    /// ([`Engine::try_write`]), and any that a transaction has locked a row.
    ///
    /// # Errors
    /// As [`Engine::write`].
    pub(crate) fn write(&self, ops: &[WriteOp<'_>], decide: &mut Decide<'_>) -> Result<Commit> {
        let ahead = &mut *self.ahead.borrow_mut();
        let author = Author { within: self.within, held: None, blocked: self.blocked };
        let Some(asked) = self.asked else {
            return self.told_to_wait(self.engine.write_as(&author, false, ops, decide, ahead));
        };
        // It may have waited for so long that its client has given up.
        let decide: &mut Decide<'_> = &mut |i, current, row| match asked.strong_count() {
            0 => Err(Error::unavailable("nobody asks for the write any more")),
            _ => decide(i, current, row),
        };
        match self.held {
            Some(write) => write((self.within, self.blocked), ops, decide, ahead),
            None => self.engine.write_as(&author, true, ops, decide, ahead),
        }
    }

    /// As [`Engine::commit`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn commit(&self, committing: &Committing) -> Result<Commit> {
        let ahead = &mut *self.ahead.borrow_mut();
        let waits = self.asked.is_some();
        self.told_to_wait(self.engine.commit(committing, waits, ahead))
    }

    fn told_to_wait(&self, tried: Result<Commit>) -> Result<Commit> {
        if matches!(&tried, Err(error) if error.kind() == ErrorKind::WouldBlock) {
            self.told.set(Some(Told::ToWait));
        }
        tried
    }
}
