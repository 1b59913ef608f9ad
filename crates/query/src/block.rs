//! What `BEGIN … COMMIT` means.
//!
//! A block is a [transaction](oribi_engine::Transaction): what its statements change is decided when they run, is seen by those
//! behind them and by nobody else, and is applied by `COMMIT`, all at once. `ROLLBACK`, and whatever else ends a block, undoes it
//! by forgetting it. Each statement sees the newest data (PostgreSQL's read committed), or all of them what the first did
//! (repeatable read).
//!
//! Rows that a block has changed are locked until it ends. Who would change them too waits without a thread, and then begins his
//! statement anew: so whoever waits holds nothing that others want, but what earlier statements of a block of his have locked.
//!
//! What a block changes of the catalog is part of its transaction. A change of partitions is not: it is [staged](Staged) and
//! executed by `COMMIT`, by itself.

use crate::context::QueryEngine;
use crate::ddl::{Ddl, blocking};
use crate::dml::{Destination, Parameters, Run, Writer};
use crate::error::invalid;
use crate::settings;
use futures::FutureExt;
use oribi_engine::{Committing, Transaction};
use oribi_session::sql::{BlockModes, EndedBlock, Outcome, SqlError, SqlSession, Staged, TransactionStatus};
use oribi_types::ErrorKind;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// The SQLSTATE of a row that others have locked.
pub(crate) const LOCKED: &str = "55P03";

/// Begins a block.
///
/// # Errors
/// 25001 for another isolation level than that of statements which have run before it in the same series.
pub(crate) fn begin(query: &QueryEngine, session: &SqlSession, modes: BlockModes) -> Result<(), SqlError> {
    match (session.transaction(), session.modes()) {
        (TransactionStatus::Idle, _) => {
            session.begin_block(modes, query.now_micros());
            show_modes(session, modes);
        }
        // What came before it in the same message is part of the block.
        (_, before) if before.implicit => set_modes(session, BlockModes { implicit: false, ..modes })?,
        _ => session.warn("there is already a transaction in progress"),
    }
    Ok(())
}

/// Changes how the block that the session is in was begun.
///
/// # Errors
/// 25001 for another isolation level once a statement has run.
pub(crate) fn set_modes(session: &SqlSession, modes: BlockModes) -> Result<(), SqlError> {
    let before = session.modes();
    if session.transaction() == TransactionStatus::Idle {
        session.warn("SET TRANSACTION can only be used in transaction blocks");
        return Ok(());
    }
    let has_begun = session.has_block_snapshot() || session.open_transaction().is_some();
    if before.level() != modes.level() && has_begun {
        return Err(invalid("25001", "SET TRANSACTION ISOLATION LEVEL must be called before any query"));
    }
    session.set_modes(modes);
    show_modes(session, modes);
    Ok(())
}

/// Has the settings show how a block was begun, until it ends.
fn show_modes(session: &SqlSession, modes: BlockModes) {
    for (name, value) in [(ISOLATION, modes.level()), (READ_ONLY, if modes.read_only { "on" } else { "off" })]
    {
        if session.setting(name).is_some() || !["read committed", "off"].contains(&value) {
            session.note_before_change(name, true);
            session.set(name, value);
        }
    }
}

/// The settings that show how a block was begun.
const ISOLATION: &str = "transaction_isolation";
const READ_ONLY: &str = "transaction_read_only";

/// Ends a block, and applies it if it is to be committed and did not fail; returns the command tag. With `chain`, another begins
/// as it did.
///
/// # Errors
/// 40001 if a row was changed by others since the block decided on it; those of a change of the catalog. The block has
/// ended then too, and nothing was changed.
pub(crate) async fn end(
    query: &Arc<QueryEngine>,
    session: &Arc<SqlSession>,
    commit: bool,
    chain: bool,
) -> Result<&'static str, SqlError> {
    if session.transaction() == TransactionStatus::Idle {
        if chain {
            let which = if commit { "COMMIT" } else { "ROLLBACK" };
            return Err(invalid(
                "25P01",
                format!("{which} AND CHAIN can only be used in transaction blocks"),
            ));
        }
        session.warn("there is no transaction in progress");
    }
    let ended = session.end_block();
    let modes = ended.modes;
    let commit = commit && ended.status != TransactionStatus::Failed;
    let mut settings = BlockSettings { session, committed: false };
    let applied = apply(query, session, ended, commit).await;
    settings.committed = commit && applied.is_ok();
    drop(settings);
    applied.map_err(rolled_back)?;
    if chain {
        begin(query, session, BlockModes { implicit: false, ..modes })?;
    }
    Ok(if commit { "COMMIT" } else { "ROLLBACK" })
}

/// Gives back what a block has locked, however it ends.
struct Ending(Option<Arc<Transaction>>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(transaction) = &self.0 {
            transaction.roll_back();
        }
    }
}

async fn apply(
    query: &Arc<QueryEngine>,
    session: &Arc<SqlSession>,
    ended: EndedBlock,
    commit: bool,
) -> Result<(), SqlError> {
    let ending = Ending(ended.transaction);
    if !commit {
        return Ok(());
    }
    if let Some(staged) = ended.staged {
        return (staged.apply)().await;
    }
    let Some(committing) = ending.0.as_ref().map(Transaction::into_commit) else { return Ok(()) };
    if committing.changes_catalog() {
        let commit = blocking(query, move |engine| engine.commit_with_catalog(&committing)).await?;
        drop(ending);
        return Ok(query.engine().settled(commit.obligation).await?);
    }
    let Some(table) = committing.table().cloned() else { return Ok(()) };
    let destination = Destination::of_commit(query, session);
    let write = |committing: &mut Committing, writer: &Writer<'_>| writer.commit(committing);
    let rows = if committing.takes_long() { usize::MAX } else { committing.len() };
    let (_, commit) = destination.write(&table, rows, committing, write).await?;
    let obligation = commit?.obligation;
    drop(ending);
    Ok(query.engine().settled(obligation).await?)
}

/// Those that a block made, which end with it: when this is dropped. A client may cancel a `COMMIT` that waits for others.
struct BlockSettings<'s> {
    session: &'s SqlSession,
    committed: bool,
}

impl Drop for BlockSettings<'_> {
    fn drop(&mut self) {
        self.session.end_block_settings(self.committed);
    }
}

fn rolled_back(error: SqlError) -> SqlError {
    if error.sqlstate.is_some() || !matches!(error.error.kind(), ErrorKind::Conflict | ErrorKind::Retry) {
        return error;
    }
    not_serializable().with_hint("the block was rolled back; run it again")
}

/// Of a block, or a statement in one, that others overtook.
pub(crate) fn not_serializable() -> SqlError {
    SqlError::new(ErrorKind::Conflict, "could not serialize access due to concurrent update")
        .with_sqlstate("40001")
}

/// Whether a statement that writes is to be a block by itself, so that what it has read is compared when it is committed.
pub(crate) fn is_serializable_alone(session: &SqlSession) -> bool {
    session.transaction() == TransactionStatus::Idle && settings::default_modes(session).serializable
}

/// Begins what several statements of one message are.
pub(crate) fn begin_series(query: &QueryEngine, session: &SqlSession) {
    if session.transaction() == TransactionStatus::Idle {
        let modes = BlockModes { implicit: true, ..settings::default_modes(session) };
        session.begin_block(modes, query.now_micros());
    }
}

/// Ends it, unless its statements have begun a block, or ended it.
///
/// # Errors
/// Those of `COMMIT`.
pub(crate) async fn end_series(
    query: &Arc<QueryEngine>,
    session: &Arc<SqlSession>,
    commit: bool,
) -> Result<(), SqlError> {
    match session.modes().implicit {
        true => end(query, session, commit, false).await.map(|_| ()),
        false => Ok(()),
    }
}

/// A statement that cannot be undone follows others of the same message: those are applied first, and it is executed as if it stood
/// alone. False in a block that was begun as one.
///
/// # Errors
/// Those of `COMMIT`.
pub(crate) async fn end_series_before(
    query: &Arc<QueryEngine>,
    session: &Arc<SqlSession>,
) -> Result<bool, SqlError> {
    if !session.modes().implicit {
        return Ok(false);
    }
    end_series(query, session, true).await?;
    begin_series(query, session);
    Ok(true)
}

/// Whether a statement may run that does not end the session's block.
///
/// # Errors
/// 25P02 in one that failed.
pub(crate) fn admit(session: &SqlSession) -> Result<(), SqlError> {
    if session.transaction() != TransactionStatus::Failed {
        return Ok(());
    }
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    Err(invalid("25P02", message))
}

/// Whether a statement about rows or the catalog may run behind what the session's block has staged, given what it `writes`, if it
/// does.
///
/// # Errors
/// 25006 in a block that only reads; 0A000 for anything behind a change of partitions.
pub(crate) fn admit_work(session: &SqlSession, writes: Option<&str>) -> Result<(), SqlError> {
    if session.transaction() == TransactionStatus::Idle {
        return Ok(());
    }
    if let Some(what) = writes.filter(|_| session.modes().read_only) {
        return Err(invalid("25006", format!("cannot execute {what} in a read-only transaction")));
    }
    match session.has_staged() {
        true => Err(refused("a statement behind a change of partitions in one transaction")),
        false => Ok(()),
    }
}

fn refused(what: &str) -> SqlError {
    SqlError::new(ErrorKind::Unsupported, format!("{what} is not supported yet"))
        .with_hint("commit in between, or use autocommit; what the block wrote is rolled back")
}

/// Of a statement that would write a row which another transaction has locked: [`wait_for_row`] knows which.
pub(crate) fn row_is_locked() -> SqlError {
    SqlError::new(ErrorKind::Unavailable, "a transaction has locked the row").with_sqlstate(LOCKED)
}

pub(crate) fn is_locked(error: &SqlError) -> bool {
    error.sqlstate == Some(LOCKED)
}

/// When a statement has waited long enough.
#[derive(Default)]
pub(crate) struct Patience(Option<Instant>);

/// After a statement failed with `error`: if that is a locked row, waits until it is free. The statement is to begin anew then.
///
/// # Errors
/// `error`, if it is another; 40P01 for a deadlock; 55P03 when the session's `lock_timeout` is over.
pub(crate) async fn wait_for_row(
    query: &Arc<QueryEngine>,
    session: &SqlSession,
    error: SqlError,
    patience: &mut Patience,
) -> Result<(), SqlError> {
    if !is_locked(&error) {
        return Err(error);
    }
    let Some(blocked) = session.take_blocked() else { return Err(error) };
    let own = session.open_transaction();
    let wait = query.engine().wait_for_row(own.as_deref(), blocked).map_err(|deadlock| {
        SqlError::from(deadlock)
            .with_sqlstate("40P01")
            .with_hint("transactions wait for each other's rows: run this one again")
    })?;
    let Some(limit) = session.lock_timeout() else {
        wait.over().await;
        return Ok(());
    };
    let until = *patience.0.get_or_insert_with(|| Instant::now() + limit);
    timeout_at(until, wait.over()).await.map_err(|_| lock_timed_out())
}

/// Of a statement that has waited as long as the session's `lock_timeout` says.
pub(crate) fn lock_timed_out() -> SqlError {
    invalid(LOCKED, "canceling statement due to lock timeout")
}

/// Undoes what a statement has changed in its block, unless it came to its end.
pub(crate) struct Undoing<'s> {
    session: &'s SqlSession,
    mark: Option<oribi_engine::Mark>,
    completed: bool,
}

impl<'s> Undoing<'s> {
    pub(crate) fn new(session: &'s SqlSession) -> Self {
        let mark = session.open_transaction().map(|transaction| transaction.mark());
        Undoing { session, mark, completed: false }
    }

    pub(crate) fn complete(&mut self) {
        self.completed = true;
    }
}

impl Drop for Undoing<'_> {
    fn drop(&mut self) {
        if self.completed {
            return;
        }
        if let Some(transaction) = self.session.open_transaction() {
            transaction.undo_to(self.mark.unwrap_or_default());
        }
    }
}

/// Sets a savepoint.
///
/// # Errors
/// 25P01 outside of a block; `Unsupported` behind a change of partitions.
pub(crate) fn set_savepoint(query: &QueryEngine, session: &SqlSession, name: &str) -> Result<(), SqlError> {
    in_block(session, "SAVEPOINT")?;
    if session.has_staged() {
        return Err(refused("a savepoint behind a change of partitions"));
    }
    session.begin_transaction(query.engine()).set_savepoint(name);
    Ok(())
}

/// Forgets a savepoint.
///
/// # Errors
/// 25P01 outside of a block; 3B001.
pub(crate) fn release_savepoint(session: &SqlSession, name: &str) -> Result<(), SqlError> {
    in_block(session, "RELEASE SAVEPOINT")?;
    match session.open_transaction().is_some_and(|transaction| transaction.release_savepoint(name)) {
        true => Ok(()),
        false => Err(no_savepoint(name)),
    }
}

/// Undoes what came after a savepoint.
///
/// # Errors
/// 25P01 outside of a block; 3B001.
pub(crate) fn roll_back_to(session: &SqlSession, name: &str) -> Result<(), SqlError> {
    in_block(session, "ROLLBACK TO SAVEPOINT")?;
    if session.roll_back_to(name) {
        return Ok(());
    }
    session.fail();
    Err(no_savepoint(name))
}

fn in_block(session: &SqlSession, what: &str) -> Result<(), SqlError> {
    match session.transaction() {
        TransactionStatus::Idle => {
            Err(invalid("25P01", format!("{what} can only be used in transaction blocks")))
        }
        _ => Ok(()),
    }
}

fn no_savepoint(name: &str) -> SqlError {
    invalid("3B001", format!("savepoint \"{name}\" does not exist"))
}

/// Stages a change of the catalog that stands alone, which `COMMIT` executes as a statement by itself. Its names must then mean what they
/// mean now.
///
/// # Errors
/// `Unsupported` behind other changes.
pub(crate) fn stage_ddl(run: Run<'_>, ddl: &Arc<Ddl>) -> Result<Outcome, SqlError> {
    let Some(tag) = ddl.tag() else { return Err(refused("such a statement inside of a transaction")) };
    if run.session.open_transaction().is_some_and(|transaction| transaction.has_writes()) {
        return Err(refused("a change of partitions behind others in one transaction"));
    }
    let (query, ddl, planning) = (Arc::clone(run.query), Arc::clone(ddl), run.session.planning());
    // The session holds what it staged.
    let session = Arc::downgrade(run.session);
    let apply = move || {
        async move {
            let Some(session) = session.upgrade() else { return Ok(()) };
            if session.planning() != planning {
                return Err(refused("another search_path behind a change of partitions in one transaction"));
            }
            let parameters = Parameters::default();
            let run = Run { query: &query, session: &session, parameters, narrowed: None };
            ddl.execute(run).await.map(|_| ())
        }
        .boxed()
    };
    run.session.stage(Staged { apply: Box::new(apply) });
    Ok(Outcome::Done { tag: tag.to_owned() })
}
