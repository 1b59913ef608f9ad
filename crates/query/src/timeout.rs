//! `statement_timeout`: a statement that takes longer is cancelled.

use futures::{StreamExt, stream};
use oribi_session::sql::{Outcome, RowStream, SqlError, SqlSession};
use oribi_types::ErrorKind;
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Runs a statement, its rows included, within the session's `statement_timeout`. The time that a client takes between
/// rows does not count, and a `COPY … FROM STDIN`, which waits for its client, is not limited.
///
/// # Errors
/// Those of the statement; `Unavailable` (57014) when time is up, then or by the stream of rows.
pub(crate) async fn limited(
    session: &SqlSession,
    statement: impl Future<Output = Result<Outcome, SqlError>>,
) -> Result<Outcome, SqlError> {
    let Some(limit) = session.statement_timeout() else { return statement.await };
    let started = Instant::now();
    match timeout(limit, statement).await {
        Ok(Ok(Outcome::Rows(rows))) => {
            Ok(Outcome::Rows(limited_rows(rows, limit.saturating_sub(started.elapsed()))))
        }
        Ok(outcome) => outcome,
        Err(_) => Err(timed_out()),
    }
}

/// Prepares a statement within the session's `statement_timeout`, which then begins anew for its execution.
///
/// # Errors
/// Those of preparing; `Unavailable` (57014) when time is up.
pub(crate) async fn limited_planning<T>(
    session: &SqlSession,
    planning: impl Future<Output = Result<T, SqlError>>,
) -> Result<T, SqlError> {
    let Some(limit) = session.statement_timeout() else { return planning.await };
    timeout(limit, planning).await.unwrap_or_else(|_| Err(timed_out()))
}

fn limited_rows(rows: RowStream, left: Duration) -> RowStream {
    stream::unfold(Some((rows, left)), |state| async move {
        let (mut rows, left) = state?;
        let started = Instant::now();
        match timeout(left, rows.next()).await {
            Ok(batch) => batch.map(|batch| (batch, Some((rows, left.saturating_sub(started.elapsed()))))),
            Err(_) => Some((Err(timed_out()), None)),
        }
    })
    .boxed()
}

fn timed_out() -> SqlError {
    SqlError::new(ErrorKind::Unavailable, "canceling statement due to statement timeout")
        .with_sqlstate("57014")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test]
    async fn planning_ends_when_its_time_is_up() {
        let session = SqlSession::new("tester", "oribi");
        crate::settings::set(&session, "statement_timeout", Some("1ms")).unwrap();
        let error = limited_planning(&session, pending::<Result<(), SqlError>>()).await.unwrap_err();
        assert_eq!(error.sqlstate, Some("57014"));
    }
}
