//! `SELECT pg_advisory_lock(…)` and its like, as statements of their own: a lock is no part of an expression here, which would take it
//! once for each row, or not at all. Elsewhere these functions are refused.

use crate::block;
use crate::ddl::pseudo_column;
use crate::dml::{Constant, ParameterTypes, Run};
use crate::error::{invalid, unsupported};
use crate::only_call::OnlyCall;
use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{FunctionArg, FunctionArgExpr, Statement};
use futures::stream;
use oribi_session::sql::{AdvisoryKey, AdvisoryMode, Outcome, SqlError, TransactionStatus};
use oribi_types::{ColumnType, Value};
use std::sync::Arc;
use tokio::time::timeout;

/// What is done with a lock.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    Lock(AdvisoryMode),
    TryLock(AdvisoryMode),
    Unlock { is_shared: bool },
    UnlockAll,
}

/// A planned statement.
pub(crate) struct Advisory {
    action: Action,
    key: Vec<Constant>,
    columns: SchemaRef,
}

/// Names begin with this, …
const PREFIX: &str = "pg_advisory_";
/// … or with this.
const TRY_PREFIX: &str = "pg_try_advisory_";

impl Action {
    fn of(name: &str) -> Option<Self> {
        let (tries, rest) = match name.strip_prefix(TRY_PREFIX) {
            Some(rest) => (true, rest),
            None => (false, name.strip_prefix(PREFIX)?),
        };
        let mode = |is_shared, is_of_block| AdvisoryMode { is_shared, is_of_block };
        let mode = match rest {
            "lock" => mode(false, false),
            "lock_shared" => mode(true, false),
            "xact_lock" => mode(false, true),
            "xact_lock_shared" => mode(true, true),
            "unlock" if !tries => return Some(Action::Unlock { is_shared: false }),
            "unlock_shared" if !tries => return Some(Action::Unlock { is_shared: true }),
            "unlock_all" if !tries => return Some(Action::UnlockAll),
            _ => return None,
        };
        Some(if tries { Action::TryLock(mode) } else { Action::Lock(mode) })
    }

    fn answers(self) -> DataType {
        match self {
            Action::TryLock(_) | Action::Unlock { .. } => DataType::Boolean,
            Action::Lock(_) | Action::UnlockAll => DataType::Utf8,
        }
    }
}

/// Whether a function is about advisory locks.
pub(crate) fn is_function(name: &str) -> bool {
    Action::of(name).is_some()
}

/// A query that is nothing but a call of one of the functions; `None` if the statement is another.
pub(crate) fn call(statement: &Statement) -> Option<(Action, OnlyCall<'_>)> {
    let call = OnlyCall::of(statement)?;
    let action = Action::of(&call.name)?;
    let (query, select) = (call.query, call.select);
    let is_whole = select.from.is_empty() && select.selection.is_none() && select.having.is_none();
    let is_plain = query.with.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    (is_whole && is_plain).then_some((action, call))
}

/// What the numbers of a key are that has so many.
fn number_type(count: usize) -> ColumnType {
    if count == 1 { ColumnType::Int64 } else { ColumnType::Int32 }
}

impl Advisory {
    /// `None` if the statement is another.
    ///
    /// # Errors
    /// 42883 for arguments that there are none of; `Unsupported` for those that are computed.
    pub(crate) fn plan(statement: &Statement, types: &mut ParameterTypes) -> Result<Option<Self>, SqlError> {
        let Some((action, call)) = call(statement) else { return Ok(None) };
        let (name, args) = (&call.name, call.args);
        let wanted = match action {
            Action::UnlockAll => args.is_empty(),
            _ => (1..=2).contains(&args.len()),
        };
        if !wanted {
            return Err(invalid("42883", format!("function {name} takes one number, or two")));
        }
        let number = number_type(args.len());
        let constant = |arg: &FunctionArg| {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg else {
                return Err(unsupported("a named argument of an advisory lock"));
            };
            let constant = Constant::compile(expr, &pseudo_column(name, number), types)?;
            constant.ok_or_else(|| unsupported(&format!("{name} of anything but a number or parameter")))
        };
        let key = args.iter().map(constant).collect::<Result<Vec<_>, _>>()?;
        let field = Field::new(call.column(), action.answers(), true);
        Ok(Some(Advisory { action, key, columns: Arc::new(Schema::new(vec![field])) }))
    }

    pub(crate) fn columns(&self) -> &SchemaRef {
        &self.columns
    }

    fn key(&self, run: Run<'_>) -> Result<AdvisoryKey, SqlError> {
        let column = pseudo_column("key", number_type(self.key.len()));
        let values = self.key.iter().map(|constant| constant.value(&column, run.parameters));
        match values.collect::<Result<Vec<_>, _>>()?.as_slice() {
            [Value::Int64(one)] => Ok(AdvisoryKey::One(*one)),
            [Value::Int32(high), Value::Int32(low)] => Ok(AdvisoryKey::Two(*high, *low)),
            _ => Err(invalid("22004", "the key of an advisory lock is null")),
        }
    }

    /// # Errors
    /// 55P03 when the session's `lock_timeout` is over; 40P01 for a deadlock; 53200 if there are too many locks.
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        let holder = run.session.advisory(run.query.advisory());
        let answer: ArrayRef = match self.action {
            Action::Lock(mode) => {
                let locked = holder.lock(self.key(run)?, mode);
                match run.session.lock_timeout() {
                    None => locked.await?,
                    Some(limit) => timeout(limit, locked).await.map_err(|_| block::lock_timed_out())??,
                }
                Arc::new(StringArray::from(vec![""]))
            }
            Action::TryLock(mode) => {
                Arc::new(BooleanArray::from(vec![holder.try_lock(self.key(run)?, mode)?]))
            }
            Action::Unlock { is_shared } => {
                let unlocked = holder.unlock(self.key(run)?, is_shared);
                if !unlocked {
                    run.session.warn("you don't own a lock of this kind");
                }
                Arc::new(BooleanArray::from(vec![unlocked]))
            }
            Action::UnlockAll => {
                holder.unlock_all();
                Arc::new(StringArray::from(vec![""]))
            }
        };
        if run.session.transaction() == TransactionStatus::Idle {
            // The statement was the transaction.
            holder.end_block();
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.columns), vec![answer]);
        let batch = batch.map_err(|error| SqlError::from(oribi_types::Error::from(error)))?;
        Ok(Outcome::Rows(Box::pin(stream::iter([Ok(batch)]))))
    }
}
