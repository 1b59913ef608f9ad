//! What `BEGIN … COMMIT` means while there are no transactions of several writes.
//!
//! Every statement is atomic by itself. Inside a block, each statement sees the newest data (PostgreSQL's read
//! committed), and **one** statement may change data. What it changes is decided when it runs and [staged](Staged);
//! `COMMIT` applies it, or fails if a row that was decided on is another by then. So `ROLLBACK`, and whatever else ends a
//! block, undoes it by forgetting it. The statements behind it would not see it: they are refused where they would look.

use crate::ddl::Ddl;
use crate::dml::{Parameters, Run};
use crate::error::invalid;
use futures::FutureExt;
use oribi_engine::Table;
use oribi_session::sql::{Outcome, SqlError, SqlSession, Staged, TransactionStatus};
use oribi_types::ErrorKind;
use std::sync::Arc;

/// Begins a block.
pub(crate) fn begin(session: &SqlSession) {
    match session.transaction() {
        TransactionStatus::Idle => session.set_transaction(TransactionStatus::Open),
        _ => session.warn("there is already a transaction in progress"),
    }
}

/// Ends a block, and applies what it staged if it is to be committed and did not fail; returns the command tag.
///
/// # Errors
/// 40001 if a row was changed by others since the block decided on it; those of a change of the catalog. The block has
/// ended then too, and nothing was changed.
pub(crate) async fn end(session: &SqlSession, commit: bool) -> Result<&'static str, SqlError> {
    let (status, staged) = session.end_block();
    let commit = commit && status != TransactionStatus::Failed;
    let mut settings = BlockSettings { session, committed: false };
    if status == TransactionStatus::Idle {
        session.warn("there is no transaction in progress");
    }
    let applied = match staged {
        Some(staged) if commit => (staged.apply)().await,
        _ => Ok(()),
    };
    settings.committed = commit && applied.is_ok();
    applied.map_err(rolled_back)?;
    Ok(if commit { "COMMIT" } else { "ROLLBACK" })
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
    SqlError::new(ErrorKind::Conflict, "could not serialize access due to concurrent update")
        .with_sqlstate("40001")
        .with_hint("the block was rolled back; run it again")
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

/// Whether a statement about rows or the catalog may run behind what the session's block has staged, given whether it
/// `writes`.
///
/// # Errors
/// 0A000 for a second write, and for anything behind a change of the catalog.
pub(crate) fn admit_work(session: &SqlSession, writes: bool) -> Result<(), SqlError> {
    match session.staged_table() {
        Some(_) if writes => Err(refused("a transaction of more than one writing statement")),
        Some(None) => Err(refused("a statement behind a change of the catalog in one transaction")),
        _ => Ok(()),
    }
}

/// Whether a statement may read a table.
///
/// # Errors
/// 0A000 if the session's block has changed rows of it, which the statement would not see.
pub(crate) fn admit_reading(session: &SqlSession, table: &Table) -> Result<(), SqlError> {
    if session.staged_table() != Some(Some(table.id())) {
        return Ok(());
    }
    Err(refused(&format!("reading table \"{}\" behind a write to it in one transaction", table.name())))
}

fn refused(what: &str) -> SqlError {
    SqlError::new(ErrorKind::Unsupported, format!("{what} is not supported yet")).with_hint(
        "commit after each writing statement, or use autocommit; what the block wrote is rolled back",
    )
}

/// Stages a change of the catalog, which `COMMIT` executes as a statement by itself. Its names must then mean what they
/// mean now.
///
/// # Errors
/// `Unsupported` for one that writes rows too.
pub(crate) fn stage_ddl(run: Run<'_>, ddl: &Arc<Ddl>) -> Result<Outcome, SqlError> {
    let Some(tag) = ddl.tag() else { return Err(refused("CREATE TABLE … AS inside of a transaction")) };
    let (query, ddl, planning) = (Arc::clone(run.query), Arc::clone(ddl), run.session.planning());
    // The session holds what it staged.
    let session = Arc::downgrade(run.session);
    let apply = move || {
        async move {
            let Some(session) = session.upgrade() else { return Ok(()) };
            if session.planning() != planning {
                return Err(refused("another search_path behind a change of the catalog in one transaction"));
            }
            let parameters = Parameters { types: &[], values: &[] };
            ddl.execute(Run { query: &query, session: &session, parameters }).await.map(|_| ())
        }
        .boxed()
    };
    run.session.stage(Staged { table: None, apply: Box::new(apply) });
    Ok(Outcome::Done { tag: tag.to_owned() })
}
