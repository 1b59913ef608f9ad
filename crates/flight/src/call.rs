//! One call: the session that its statement runs in, and running it.
//!
//! Flight SQL has no sessions. A statement outside of a transaction has a session of its own, with the settings that its call's headers ask
//! for; what would last beyond it is refused, as nobody could tell what it is to last for. In a transaction it has that one's.

use crate::shared::Shared;
use crate::status::{invalid, unsupported};
use crate::transactions::{Open, Running, Turn};
use oribi_session::sql::{Outcome, Prepared, SqlError, SqlSession, TransactionStatus};
use oribi_types::{ColumnType, Value};
use std::sync::Arc;
use tonic::metadata::MetadataMap;

/// The name that clients connect to, and that of the one catalog.
pub const DATABASE: &str = "oribi";

/// Headers of a call that begin so are settings of its session.
const SETTING_PREFIX: &str = "x-oribi-";

/// What a call's statement runs in. Its session ends with it, unless that is a transaction's.
pub struct Call {
    pub session: Arc<SqlSession>,
    transaction: Option<Running>,
    /// Set while it is its transaction's turn to the call's end.
    turn: Option<Turn>,
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.transaction.is_none() {
            self.session.end();
        }
    }
}

impl Call {
    /// A call with these headers, in the transaction that has the handle if there is one.
    ///
    /// # Errors
    /// 25P01 for a transaction that there is not; those of authentication and of settings.
    pub fn new(shared: &Shared, headers: &MetadataMap, transaction: Option<&[u8]>) -> Result<Self, SqlError> {
        let user = shared.door.user(headers)?;
        match transaction.filter(|handle| !handle.is_empty()) {
            Some(handle) => Ok(Call::within(&shared.transactions.get(handle)?)),
            None => Call::alone(shared, user, headers),
        }
    }

    fn within(open: &Arc<Open>) -> Self {
        Call { session: open.session.clone(), transaction: Some(open.run()), turn: None }
    }

    fn alone(shared: &Shared, user: &str, headers: &MetadataMap) -> Result<Self, SqlError> {
        let session = SqlSession::new(user, DATABASE);
        for entry in headers.iter() {
            if let tonic::metadata::KeyAndValueRef::Ascii(name, value) = entry
                && let Some(setting) = name.as_str().strip_prefix(SETTING_PREFIX)
            {
                let value =
                    value.to_str().map_err(|_| invalid(format!("the value of header {name} is no text")))?;
                shared.sql.set(&session, &setting.replace('-', "_"), value)?;
            }
        }
        session.start();
        Ok(Call { session, transaction: None, turn: None })
    }

    /// A call of its own with the settings that another's session had.
    pub fn like(session: &SqlSession) -> Self {
        let own = SqlSession::new(session.user.clone(), session.database.clone());
        session.settings().into_iter().for_each(|(name, value)| own.set(&name, value));
        own.start();
        Call { session: own, transaction: None, turn: None }
    }

    /// Its session, which does not end with it.
    pub fn into_session(mut self) -> Arc<SqlSession> {
        let own = SqlSession::new("", "");
        std::mem::replace(&mut self.session, own)
    }

    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// The transaction that it is in.
    pub fn transaction(&self) -> Option<&Arc<Open>> {
        self.transaction.as_ref().map(Running::open)
    }

    /// Takes its transaction's turn, if it is in one, for all that it does: nothing comes in between.
    ///
    /// # Errors
    /// 25P01 if the transaction ended meanwhile.
    pub async fn take_turn(&mut self) -> Result<(), SqlError> {
        if let Some(running) = &self.transaction {
            self.turn = Some(running.open().turn().await?);
        }
        Ok(())
    }

    /// What it does until this is done is all or nothing.
    pub fn undone(&self) -> Undone<'_> {
        Undone(Some(&self.session))
    }

    /// Plans the one statement of a text.
    ///
    /// # Errors
    /// 42601 for none or several; 0A000 for one that has no meaning here; those of planning.
    pub async fn prepare(
        &self,
        shared: &Shared,
        sql: &str,
        types: &[Option<ColumnType>],
    ) -> Result<Arc<dyn Prepared>, SqlError> {
        let planned = self.plan(shared, sql, types).await;
        planned.inspect_err(|_| self.session.fail())
    }

    async fn plan(
        &self,
        shared: &Shared,
        sql: &str,
        types: &[Option<ColumnType>],
    ) -> Result<Arc<dyn Prepared>, SqlError> {
        let statements = shared.sql.split(sql).await?;
        let [statement] = statements.as_slice() else {
            let message = if statements.is_empty() {
                "there is no statement"
            } else {
                "there are several statements in one text"
            };
            return Err(invalid(message).with_sqlstate("42601"));
        };
        self.check_words(&sql[statement.clone()])?;
        let prepared = shared.sql.prepare(&self.session, sql, types).await?;
        if prepared.copy().is_some() {
            return Err(
                unsupported("COPY by this protocol").with_hint("ingest batches, or read from a query")
            );
        }
        Ok(prepared)
    }

    /// # Errors
    /// 0A000 for statements that begin or end transactions, which are actions of the protocol, and for those that change a session where
    /// there is none.
    fn check_words(&self, statement: &str) -> Result<(), SqlError> {
        let mut words =
            statement.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        let mut word = || words.next().unwrap_or_default().to_ascii_uppercase();
        let (first, second) = (word(), word());
        match first.as_str() {
            "ROLLBACK" if second == "TO" && self.is_in_transaction() => Ok(()),
            "BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" | "ABORT" => Err(unsupported(format!("{first} as a statement"))
                .with_hint("transactions begin and end by the protocol's actions")),
            "SET" | "RESET" | "DISCARD" | "DECLARE" | "FETCH" | "MOVE" | "CLOSE" if !self.is_in_transaction() => {
                Err(unsupported(format!("{first} outside of a transaction")).with_hint(
                    "each statement has a session of its own; settings come as headers, x-oribi-search-path and the like",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Executes a statement.
    ///
    /// # Errors
    /// 25P02 in a transaction that has failed; those of the statement, with which the transaction fails.
    pub async fn execute(
        &self,
        prepared: &Arc<dyn Prepared>,
        parameters: &[Value],
    ) -> Result<Outcome, SqlError> {
        metrics::counter!("oribi_flight_statements_total").increment(1);
        // One after the other: what a statement does to its transaction is seen by the next.
        let _turn = match &self.transaction {
            Some(running) if self.turn.is_none() => Some(running.open().turn().await?),
            _ => None,
        };
        if self.session.transaction() == TransactionStatus::Failed && !prepared.ends_block() {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(invalid(message).with_sqlstate("25P02"));
        }
        let undone = self.undone();
        let executed = self.checked(prepared, parameters).await?;
        undone.done();
        Ok(executed)
    }

    async fn checked(&self, prepared: &Arc<dyn Prepared>, parameters: &[Value]) -> Result<Outcome, SqlError> {
        let expected = prepared.parameters().len();
        if parameters.len() != expected {
            let message =
                format!("the statement has {expected} parameters, and {} values are bound", parameters.len());
            return Err(invalid(message).with_sqlstate("08P01"));
        }
        prepared.execute(&self.session, parameters).await
    }
}

/// A statement that has not come to its end, or several: the transaction fails with it, as it does if the client goes away meanwhile.
pub struct Undone<'s>(Option<&'s SqlSession>);

impl Undone<'_> {
    /// It has come to its end.
    pub fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Undone<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.fail();
        }
    }
}

/// The rows that a command says it has changed: `INSERT 0 5`.
pub fn rows_of(tag: &str) -> i64 {
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use oribi_session::sql::BlockModes;

    #[tokio::test]
    async fn a_call_is_whole() {
        let session = SqlSession::new("user", DATABASE);
        session.begin_block(BlockModes::default(), 0);
        let open = Arc::new(Open::new(session.clone()));
        let mut call = Call::within(&open);
        call.take_turn().await.unwrap();
        let mut other = Call::within(&open);
        assert!(other.take_turn().now_or_never().is_none(), "nothing comes in between");
        call.undone().done();
        assert!(session.transaction() == TransactionStatus::Open);
        drop(call.undone());
        assert!(session.transaction() == TransactionStatus::Failed, "it was dropped in the middle");
        drop(call);
        assert!(other.take_turn().now_or_never().is_some());
    }

    #[test]
    fn statements_that_need_a_session_are_refused_by_name() {
        let call = Call { session: SqlSession::new("user", DATABASE), transaction: None, turn: None };
        for (statement, refused) in [
            ("select 1", false),
            ("  begin", true),
            ("COMMIT AND CHAIN", true),
            ("rollback to a", true),
            ("set search_path = a", true),
            ("settle", false),
            ("(select 1)", false),
        ] {
            assert_eq!(call.check_words(statement).is_err(), refused, "{statement}");
        }
        assert_eq!(["INSERT 0 5", "UPDATE 3", "CREATE TABLE"].map(rows_of), [5, 3, 0]);
    }
}
