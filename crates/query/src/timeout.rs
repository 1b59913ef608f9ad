//! `statement_timeout`: a statement that takes longer is cancelled.

use crate::settings;
use futures::{StreamExt, stream};
use oribi_session::sql::{Outcome, RowStream, SqlError, SqlSession};
use oribi_types::ErrorKind;
use std::future::Future;
use tokio::time::{Instant, timeout_at};

/// Runs a statement, its rows included, within the session's `statement_timeout`. A `COPY … FROM STDIN` waits for its
/// client and is not limited.
///
/// # Errors
/// Those of the statement; `Unavailable` (57014) when time is up, then or by the stream of rows.
pub(crate) async fn limited(
    session: &SqlSession,
    statement: impl Future<Output = Result<Outcome, SqlError>>,
) -> Result<Outcome, SqlError> {
    let Some(limit) = settings::statement_timeout(session) else { return statement.await };
    let Some(deadline) = Instant::now().checked_add(limit) else { return statement.await };
    match timeout_at(deadline, statement).await {
        Ok(Ok(Outcome::Rows(rows))) => Ok(Outcome::Rows(limited_rows(rows, deadline))),
        Ok(outcome) => outcome,
        Err(_) => Err(timed_out()),
    }
}

fn limited_rows(rows: RowStream, deadline: Instant) -> RowStream {
    stream::unfold(Some(rows), move |rows| async move {
        let mut rows = rows?;
        match timeout_at(deadline, rows.next()).await {
            Ok(batch) => batch.map(|batch| (batch, Some(rows))),
            Err(_) => Some((Err(timed_out()), None)),
        }
    })
    .boxed()
}

fn timed_out() -> SqlError {
    SqlError::new(ErrorKind::Unavailable, "canceling statement due to statement timeout")
        .with_sqlstate("57014")
}
