//! Transactions that clients know by a handle.
//!
//! One is a session with an open block. It belongs to no connection: whoever has the handle goes on with it, and one that nobody has named
//! for a time is rolled back, if it has something that others may want. Its statements run one after the other. Results that are still being read when it ends, end with it.

use crate::handles::Handles;
use crate::shared::Shared;
use crate::status::{invalid, too_many, violation};
use bytes::Bytes;
use oribi_session::sql::{Outcome, SqlError, SqlSession, TransactionStatus};
use oribi_types::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// An open transaction.
pub struct Open {
    pub session: Arc<SqlSession>,
    turn: Arc<Mutex<()>>,
    /// Calls that are under way in it.
    running: AtomicUsize,
    has_ended: AtomicBool,
}

/// Nobody else runs a statement in the transaction.
pub type Turn = OwnedMutexGuard<()>;

/// A call that is under way in a transaction: it is not silent as long as there is one.
pub struct Running(Arc<Open>);

impl Running {
    pub fn open(&self) -> &Arc<Open> {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

impl Open {
    /// That of a session which is in a block.
    pub fn new(session: Arc<SqlSession>) -> Self {
        Open {
            session,
            turn: Arc::default(),
            running: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    pub fn run(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, SeqCst);
        Running(self.clone())
    }

    /// Leave to run a statement, or several, until it is dropped.
    ///
    /// # Errors
    /// 25P01 if the transaction ended meanwhile.
    pub async fn turn(&self) -> Result<Turn, SqlError> {
        let turn = self.turn.clone().lock_owned().await;
        match self.has_ended() {
            true => Err(no_transaction()),
            false => Ok(turn),
        }
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.load(SeqCst)
    }

    /// Whether others may want what it has: locks, room for what it has written, history that its snapshot keeps. Clients that do not commit
    /// by themselves begin one ahead of its first statement, however long that is to come.
    fn has_something(&self) -> bool {
        let session = &self.session;
        session.open_transaction().is_some()
            || session.has_block_snapshot()
            || session.has_staged()
            || session.has_advisory_locks()
            || !session.cursors().names().is_empty()
    }

    fn is_silent(&self) -> bool {
        self.running.load(SeqCst) == 0
    }

    fn end(&self) {
        self.has_ended.store(true, SeqCst);
        self.session.end();
    }
}

pub struct Transactions(Handles<Arc<Open>>);

impl Transactions {
    pub fn new(limit: usize) -> Self {
        Transactions(Handles::new(limit))
    }

    /// # Errors
    /// 25P01 if there is none of the handle.
    pub fn get(&self, handle: &[u8]) -> Result<Arc<Open>, SqlError> {
        self.0.get(handle).ok_or_else(no_transaction)
    }

    /// Rolls back those that nobody has named for so long, in which nothing runs, and that have something.
    pub fn end_silent(&self, silence_max: Duration) {
        self.end_silent_if(silence_max, Open::has_something);
    }

    fn end_silent_if(&self, silence_max: Duration, may_go: impl Fn(&Open) -> bool) {
        let Some(until) = Instant::now().checked_sub(silence_max) else { return };
        for open in self.0.take_until(until, |open| open.is_silent() && may_go(open)) {
            tracing::info!("a transaction of the flight door was rolled back: nobody has named it for long");
            open.end();
        }
    }
}

/// Begins a transaction in a session that is in none; its handle.
///
/// # Errors
/// 53300 if there are too many; those of `BEGIN`.
pub async fn begin(shared: &Shared, session: Arc<SqlSession>) -> Result<Bytes, SqlError> {
    command(shared, &session, "BEGIN").await?;
    let open = Arc::new(Open::new(session.clone()));
    let transactions = &shared.transactions;
    if transactions.0.count() >= transactions.0.limit() {
        transactions.end_silent_if(shared.limits.transaction_silence_max, |_| true);
    }
    transactions.0.insert(open).ok_or_else(|| {
        session.end();
        too_many("transactions", transactions.0.limit())
    })
}

/// Ends a transaction. It has ended whatever comes of it, and so has its handle. One that is not there any more has been rolled back.
///
/// # Errors
/// 25P02 for a commit of one that has failed; 25P01; those of `COMMIT`.
pub async fn end(shared: &Arc<Shared>, handle: &[u8], commits: bool) -> Result<(), SqlError> {
    let Some(open) = shared.transactions.0.remove(handle) else {
        return if commits { Err(no_transaction()) } else { Ok(()) };
    };
    let shared = shared.clone();
    // A client that goes away in the middle does not leave it half ended.
    let ended = tokio::spawn(async move {
        let _turn = open.turn().await?;
        let has_failed = open.session.transaction() == TransactionStatus::Failed;
        open.has_ended.store(true, SeqCst);
        let ended =
            command(&shared, &open.session, if commits && !has_failed { "COMMIT" } else { "ROLLBACK" }).await;
        open.end();
        match has_failed && commits {
            true => Err(invalid("current transaction is aborted: it was rolled back").with_sqlstate("25P02")),
            false => ended,
        }
    });
    ended
        .await
        .map_err(|error| SqlError::new(ErrorKind::Internal, format!("ending a transaction: {error}")))?
}

/// Makes a savepoint; its handle.
///
/// # Errors
/// 25P01; those of `SAVEPOINT`.
pub async fn begin_savepoint(shared: &Shared, transaction: &[u8], name: &str) -> Result<Bytes, SqlError> {
    let open = shared.transactions.get(transaction)?;
    let (_running, _turn) = (open.run(), open.turn().await?);
    command(shared, &open.session, &format!("SAVEPOINT {}", quoted(name))).await?;
    Ok([transaction, name.as_bytes()].concat().into())
}

/// Releases a savepoint or rolls back to it.
///
/// # Errors
/// 25P01; those of the statement, such as 3B001 if there is none.
pub async fn end_savepoint(shared: &Shared, handle: &[u8], rolls_back: bool) -> Result<(), SqlError> {
    let (transaction, name) = parts_of_savepoint(handle)?;
    let open = shared.transactions.get(transaction)?;
    let (_running, _turn) = (open.run(), open.turn().await?);
    let name = quoted(name);
    if !rolls_back {
        return command(shared, &open.session, &format!("RELEASE SAVEPOINT {name}")).await;
    }
    command(shared, &open.session, &format!("ROLLBACK TO SAVEPOINT {name}")).await?;
    // The protocol ends it with this; SQL would keep it.
    command(shared, &open.session, &format!("RELEASE SAVEPOINT {name}")).await
}

/// The transaction and the name of a savepoint's handle.
fn parts_of_savepoint(handle: &[u8]) -> Result<(&[u8], &str), SqlError> {
    let (transaction, name) = handle.split_at_checked(16).ok_or_else(|| violation("not a savepoint"))?;
    let name = std::str::from_utf8(name).map_err(|_| violation("not a savepoint"))?;
    Ok((transaction, name))
}

/// Runs a statement of the door's own.
async fn command(shared: &Shared, session: &Arc<SqlSession>, sql: &str) -> Result<(), SqlError> {
    let run = async {
        let prepared = shared.sql.prepare(session, sql, &[]).await?;
        prepared.execute(session, &[]).await
    };
    match run.await {
        Ok(Outcome::Done { .. } | Outcome::Rows(_) | Outcome::CopyIn(_)) => Ok(()),
        Err(error) => {
            session.fail();
            Err(error)
        }
    }
}

/// A name as SQL has it in quotes.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn no_transaction() -> SqlError {
    let message =
        "there is no such transaction: it has ended, or was rolled back because nobody named it for long";
    SqlError::new(ErrorKind::NotFound, message).with_sqlstate("25P01")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_savepoint_is_named_within_its_transaction() {
        assert_eq!(parts_of_savepoint(b"0123456789abcdefname").unwrap(), (&b"0123456789abcdef"[..], "name"));
        assert_eq!(parts_of_savepoint(b"0123456789abcdef").unwrap().1, "");
        for damaged in [&b"0123"[..], b"0123456789abcdef\xff"] {
            assert_eq!(parts_of_savepoint(damaged).unwrap_err().sqlstate(), "08P01");
        }
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
