//! `SELECT … FOR UPDATE`: the rows of one table, which nobody else changes until the block ends.
//!
//! The rows are found as an `UPDATE` finds its own, with the query's `ORDER BY` and `LIMIT`, and locked; then the query runs over
//! those alone. What changed between has been found again by then, or passes the condition no more. `FOR SHARE` locks as
//! `FOR UPDATE` does.

use super::constant::ParameterTypes;
use super::expression::has_subquery;
use super::matched::{Matching, Selection, Target};
use super::rounds::{self, Round};
use super::source::SourceQuery;
use super::{Run, Scope, refuse, settle};
use crate::block;
use crate::context::Narrowed;
use crate::error::invalid;
use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::{self, GroupByExpr, LimitClause, NonBlock, SetExpr, Statement};
use oribi_engine::{Commit, Decision, Read, WriteOp};
use oribi_session::sql::{RowStream, SqlError, TransactionStatus};
use std::collections::HashSet;
use std::sync::Arc;

/// How often it looks for rows that nobody has locked meanwhile.
const LOOKS_MAX: usize = 100;

/// A planned `SELECT … FOR UPDATE`.
pub(crate) struct LockingQuery {
    target: Arc<Target>,
    selection: Arc<Selection>,
    /// The same without locks.
    query: SourceQuery,
    nonblock: Option<NonBlock>,
}

impl LockingQuery {
    /// # Errors
    /// `Unsupported` for anything but rows of one table; those of planning.
    pub(crate) async fn plan(
        scope: Scope<'_>,
        mut query: ast::Query,
        types: &mut ParameterTypes,
    ) -> Result<Self, SqlError> {
        let locks = std::mem::take(&mut query.locks);
        let nonblock = locks.iter().find_map(|lock| lock.nonblock);
        let of_one = "SELECT … FOR UPDATE of anything but the rows of one table";
        let SetExpr::Select(select) = query.body.as_ref() else {
            refuse(false, of_one)?;
            unreachable!("it was refused")
        };
        let is_grouped = select.having.is_some()
            || !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
        let is_plain = select.from.len() == 1 && select.distinct.is_none() && !is_grouped;
        refuse(is_plain && query.with.is_none(), of_one)?;
        // The query runs again over the rows that were locked, and over nothing else of the table.
        let is_plain_limit = |limit: &LimitClause| matches!(limit, LimitClause::LimitOffset { offset: None, limit_by, .. } if limit_by.is_empty());
        refuse(query.limit_clause.iter().all(is_plain_limit), "OFFSET with SELECT … FOR UPDATE")?;
        refuse(!has_subquery(&query), "a subquery in SELECT … FOR UPDATE")?;
        let target = Target::resolve(scope, &select.from[0])?;
        let bounds = (query.order_by.clone(), query.limit_clause.clone());
        let selection = select.selection.clone();
        let matching = Matching::plan_within(scope, &target, selection, bounds, types).await?;
        let statement = Statement::Query(Box::new(query));
        let query = SourceQuery::plan(scope, statement, types).await?;
        let selection = Arc::new(Selection::Matching(matching));
        Ok(LockingQuery { target: Arc::new(target), selection, query, nonblock })
    }

    pub(crate) fn query(&self) -> &SourceQuery {
        &self.query
    }

    pub(crate) fn columns(&self) -> &SchemaRef {
        self.query.schema()
    }

    /// Locks the rows and returns them; outside of a block nothing is locked, for the lock would end at once.
    ///
    /// # Errors
    /// Those of the query; 55P03 for a row that is locked, if it is not to be waited for.
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<RowStream, SqlError> {
        if run.session.transaction() == TransactionStatus::Idle {
            return self.query.run_for_client(run).await;
        }
        let keys = match self.nonblock {
            None => self.lock(run).await?,
            Some(NonBlock::Nowait) => {
                self.lock(run).await.map_err(|error| self.not_waited_for(run, error))?
            }
            Some(NonBlock::SkipLocked) => self.lock_free(run).await?,
        };
        let narrowed =
            Narrowed { table: Some(self.target.table.id()), only: Some(keys), ..Narrowed::default() };
        self.query.run_for_client(Run { narrowed: Some(&Arc::new(narrowed)), ..run }).await
    }

    async fn lock(&self, run: Run<'_>) -> Result<HashSet<Arc<[u8]>>, SqlError> {
        let target = Arc::clone(&self.target);
        let (commit, keys) =
            rounds::read_and_write(run, &self.target, &self.selection, move |found, _, writer| {
                let rows = found.numbers();
                let table = &target.table;
                let operation =
                    |&i: &usize| WriteOp { table, key: found.key(i), read: Read::Existing, row: &[] };
                let operations: Vec<WriteOp<'_>> = rows.iter().map(operation).collect();
                let round: Round<Commit> =
                    rounds::write(writer, found, &rows, &operations, |_, _, _| Ok(Decision::Lock))?;
                Ok(round.with(rows.iter().map(|&i| found.key(i).into()).collect()))
            })
            .await?;
        settle(run.query.engine(), &commit).await?;
        Ok(keys)
    }

    /// Locks rows that nobody else has locked.
    async fn lock_free(&self, run: Run<'_>) -> Result<HashSet<Arc<[u8]>>, SqlError> {
        let (engine, table) = (run.query.engine(), &self.target.table);
        let mut looks = 0;
        loop {
            looks += 1;
            let own = run.session.open_transaction();
            let without = Some(engine.rows_locked_by_others(table, own.as_deref()));
            let narrowed = Arc::new(Narrowed { table: Some(table.id()), without, ..Narrowed::default() });
            match self.lock(Run { narrowed: Some(&narrowed), ..run }).await {
                // Since it looked.
                Err(error) if looks < LOOKS_MAX && block::is_locked(&error) => {
                    drop(run.session.take_blocked());
                }
                locked => return locked,
            }
        }
    }

    fn not_waited_for(&self, run: Run<'_>, error: SqlError) -> SqlError {
        match block::is_locked(&error) && run.session.take_blocked().is_some() {
            true => {
                let table = self.target.table.name();
                invalid(block::LOCKED, format!("could not obtain lock on row in relation \"{table}\""))
            }
            false => error,
        }
    }
}
