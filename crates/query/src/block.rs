//! What `BEGIN … COMMIT` means while there are no transactions.
//!
//! Every statement is atomic by itself. Inside a block, each statement sees the newest data (PostgreSQL's read
//! committed), and **one** statement may change data; it is applied when it runs. A second one is refused, because the
//! two could not be undone together, and so is a `ROLLBACK` after the first.

use oribi_session::sql::{SqlError, SqlSession, TransactionStatus};
use oribi_types::ErrorKind;
use std::future::Future;

/// Begins a block.
pub(crate) fn begin(session: &SqlSession) {
    match session.transaction() {
        TransactionStatus::Idle => session.set_transaction(TransactionStatus::Open { wrote: false }),
        _ => session.warn("there is already a transaction in progress"),
    }
}

/// Ends a block; returns the command tag. What was applied stays, and the client must not believe otherwise.
///
/// # Errors
/// `Unsupported` for what cannot be undone; the block has ended then too.
pub(crate) fn end(session: &SqlSession, commit: bool) -> Result<&'static str, SqlError> {
    let status = session.transaction();
    session.set_transaction(TransactionStatus::Idle);
    session.end_block_settings(commit && matches!(status, TransactionStatus::Open { .. }));
    match status {
        TransactionStatus::Idle => session.warn("there is no transaction in progress"),
        TransactionStatus::Failed { wrote: false } => return Ok("ROLLBACK"),
        TransactionStatus::Open { wrote: true } if commit => {}
        TransactionStatus::Open { wrote: true } | TransactionStatus::Failed { wrote: true } => {
            let message = "cannot roll back: the block's write was applied when it ran, unless it was \
                           cancelled before";
            return Err(SqlError::new(ErrorKind::Unsupported, message).with_hint(
                "transactions are not supported yet; the block has ended and what was written stands",
            ));
        }
        TransactionStatus::Open { wrote: false } => {}
    }
    Ok(if commit { "COMMIT" } else { "ROLLBACK" })
}

/// Whether a statement may run in the session's block, given whether it `writes`.
///
/// # Errors
/// 25P02 in a failed block; 0A000 for a second write.
pub(crate) fn admit(session: &SqlSession, writes: bool) -> Result<(), SqlError> {
    match session.transaction() {
        TransactionStatus::Failed { .. } => {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("25P02"))
        }
        TransactionStatus::Open { wrote: true } if writes => {
            let message = "a transaction of more than one writing statement is not supported yet";
            Err(SqlError::new(ErrorKind::Unsupported, message).with_hint(
                "commit after each writing statement, or use autocommit; the first write was applied",
            ))
        }
        _ => Ok(()),
    }
}

/// Runs `work`, an admitted statement's write, which changes nothing if it fails. A block counts it as applied from the
/// start: one that is dropped on its way may have been.
pub(crate) async fn write<T>(
    session: &SqlSession,
    work: impl Future<Output = Result<T, SqlError>>,
) -> Result<T, SqlError> {
    if !matches!(session.transaction(), TransactionStatus::Open { .. }) {
        return work.await;
    }
    session.set_transaction(TransactionStatus::Open { wrote: true });
    let result = work.await;
    match &result {
        Ok(_) => session.warn("transactions are not supported yet: the write is applied already"),
        Err(_) => session.set_transaction(TransactionStatus::Failed { wrote: false }),
    }
    result
}

/// Notes that a statement failed.
pub(crate) fn fail(session: &SqlSession) {
    if let TransactionStatus::Open { wrote } = session.transaction() {
        session.set_transaction(TransactionStatus::Failed { wrote });
    }
}
