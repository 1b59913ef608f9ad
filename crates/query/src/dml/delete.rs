//! `DELETE`.

use super::constant::ParameterTypes;
use super::matched::{KeyCondition, Matched, Matching, Target};
use super::returning::Returning;
use super::rows::EncodedRows;
use super::source::SourceQuery;
use super::{Run, Scope, blocking, changed, readable, refuse, settle};
use crate::syntax::fold;
use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::{self, FromTable};
use oribi_engine::{Decision, Read, WriteOp};
use oribi_session::sql::{Outcome, SqlError};
use oribi_types::Error;
use std::sync::Arc;

/// A planned `DELETE`.
pub(crate) struct Delete {
    target: Target,
    rows: Rows,
    returning: Option<Returning>,
}

enum Rows {
    Key(KeyCondition),
    Matching(Matching),
}

impl Delete {
    /// # Errors
    /// `NotFound`, `Invalid`, `Unsupported`.
    pub(crate) async fn plan(
        scope: Scope<'_>,
        with: Option<ast::With>,
        delete: ast::Delete,
        types: &mut ParameterTypes,
    ) -> Result<Self, SqlError> {
        refuse(delete.tables.is_empty() && delete.output.is_none(), "DELETE from several tables and OUTPUT")?;
        refuse(delete.order_by.is_empty() && delete.limit.is_none(), "DELETE with ORDER BY or LIMIT")?;
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = delete.from;
        let [relation] = from.as_slice() else {
            return refuse(false, "DELETE from several tables").map(|()| unreachable!("refused"));
        };
        let target = Target::resolve(scope, relation)?;
        let returning = match &delete.returning {
            Some(items) => {
                let context = scope.query.begin(scope.session)?;
                Some(Returning::plan(&context, &target.schema, &fold(&target.alias), items)?)
            }
            None => None,
        };
        let others = delete.using.unwrap_or_default();
        let by_key = match with.is_none() && others.is_empty() {
            true => KeyCondition::recognise(&target, delete.selection.as_ref(), types),
            false => None,
        };
        let rows = match by_key {
            Some(key) => Rows::Key(key),
            None => Rows::Matching(
                Matching::plan(scope, with, &target, others, delete.selection, Vec::new(), types).await?,
            ),
        };
        Ok(Delete { target, rows, returning })
    }

    pub(crate) fn columns(&self) -> Option<&SchemaRef> {
        self.returning.as_ref().map(Returning::schema)
    }

    /// The table whose rows it reads before it writes them.
    pub(crate) fn contends_for(&self) -> Option<u64> {
        matches!(self.rows, Rows::Matching(_)).then(|| self.target.table.id())
    }

    /// The query it reads from, for `EXPLAIN`.
    pub(crate) fn query(&self) -> Option<&SourceQuery> {
        match &self.rows {
            Rows::Matching(matching) => Some(matching.query()),
            Rows::Key(_) => None,
        }
    }

    /// What it does, for `EXPLAIN`.
    pub(crate) fn describe(&self) -> String {
        let how = if matches!(self.rows, Rows::Key(_)) { " by primary key" } else { "" };
        format!("delete from {}.{}{how}", self.target.table.schema_name(), self.target.table.name())
    }

    /// # Errors
    /// Those of the query; `Conflict` if a row changed since it was read; `TooLarge` (54000).
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        let matched = match &self.rows {
            Rows::Matching(matching) => matching.find(run, &self.target).await?,
            Rows::Key(condition) => match condition.key(&self.target.schema, run.parameters)? {
                Some(key) => Matched::only(key),
                None => Matched::default(),
            },
        };
        let engine = run.query.engine();
        let (table, schema) = (Arc::clone(&self.target.table), Arc::clone(&self.target.schema));
        let keep_rows = self.returning.is_some();
        let (commit, deleted, count) = blocking(engine, matched.len(), move |engine| {
            let mut deleted = EncodedRows::default();
            let mut count = 0;
            let operation = |i| WriteOp { table: &table, key: matched.key(i), read: Read::Existing };
            let operations: Vec<WriteOp<'_>> = (0..matched.len()).map(operation).collect();
            let commit = engine.write(&operations, &mut |i, current, _| {
                let current = match (current, matched.ts(i)) {
                    (Some(current), Some(ts)) if current.ts == ts => current,
                    (Some(current), None) => current,
                    (None, None) => return Ok(Decision::Keep),
                    _ => return Err(changed()),
                };
                if keep_rows {
                    deleted.push_encoded(matched.key(i), readable(&schema, &current)?);
                }
                count += 1;
                Ok(Decision::Delete)
            })?;
            Ok::<_, Error>((commit, deleted, count))
        })
        .await??;
        settle(engine, &commit).await?;
        match &self.returning {
            Some(returning) => returning.outcome(&deleted.to_batch(&self.target.schema, commit.ts)?),
            None => Ok(Outcome::Done { tag: format!("DELETE {count}") }),
        }
    }
}
