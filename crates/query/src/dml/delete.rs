//! `DELETE`.

use super::constant::ParameterTypes;
use super::matched::{KeyCondition, Matching, Selection, Target};
use super::point::{self, PointWrite};
use super::returning::Returning;
use super::room::Room;
use super::rows::Written;
use super::source::SourceQuery;
use super::{Run, Scope, changed, refuse, settle};
use crate::syntax::fold;
use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::{self, FromTable};
use oribi_engine::{Decision, Engine, Read, WriteOp};
use oribi_session::sql::{Outcome, SqlError};
use oribi_types::ColumnType;
use std::sync::Arc;

/// A planned `DELETE`.
pub(crate) struct Delete {
    target: Target,
    selection: Selection,
    returning: Option<Returning>,
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
        let selection = match by_key {
            Some(key) => Selection::Key(key),
            None => Selection::Matching(
                Matching::plan(scope, with, &target, others, delete.selection, Vec::new(), types).await?,
            ),
        };
        Ok(Delete { target, selection, returning })
    }

    pub(crate) fn columns(&self) -> Option<&SchemaRef> {
        self.returning.as_ref().map(Returning::schema)
    }

    /// The table whose rows it reads before it writes them.
    pub(crate) fn contends_for(&self) -> Option<u64> {
        self.selection.reads_first().then(|| self.target.table.id())
    }

    /// The query it reads from, for `EXPLAIN`.
    pub(crate) fn query(&self) -> Option<&SourceQuery> {
        self.selection.query()
    }

    /// What it does, for `EXPLAIN`.
    pub(crate) fn describe(&self) -> String {
        let how = self.selection.describe();
        format!("delete from {}.{}{how}", self.target.table.schema_name(), self.target.table.name())
    }

    /// The delete of one row that it is, if the key is constant.
    pub(crate) fn point(&self, engine: &Arc<Engine>, parameters: &[ColumnType]) -> Option<PointWrite> {
        let Selection::Key(condition) = &self.selection else { return None };
        if self.returning.is_some() {
            return None;
        }
        let operation = point::Operation::Delete { key: condition.constants().to_vec() };
        PointWrite::new(engine, &self.target.table, &self.target.schema, operation, parameters)
    }

    /// # Errors
    /// Those of the query; `Conflict` if a row changed since it was read; `TooLarge` (54000).
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        let room = Room::new(run.query);
        let matched = self.selection.find(run, &self.target, &room).await?;
        let engine = run.query.engine();
        let table = Arc::clone(&self.target.table);
        let shown = self.returning.is_some();
        let (commit, deleted) = run
            .destination()
            .blocking(matched.len(), move |writer| {
                let mut deleted = Written::new(shown);
                let mut refused = None;
                let operation =
                    |i| WriteOp { table: &table, key: matched.key(i), read: Read::Existing, row: &[] };
                let operations: Vec<WriteOp<'_>> = (0..matched.len()).map(operation).collect();
                let result = writer.write(&operations, &mut |i, current, _| {
                    let current = match (current, matched.ts(i)) {
                        (Some(current), Some(ts)) if current.ts == ts => current,
                        (Some(current), None) => current,
                        (None, None) => return Ok(Decision::Keep),
                        _ => return Err(changed()),
                    };
                    deleted.push(matched.key(i), current.row);
                    room.check(matched.bytes() + deleted.bytes()).map_err(|e| {
                        refused = Some(e);
                        changed()
                    })?;
                    Ok(Decision::Delete)
                });
                refused.map_or_else(|| Ok((result?, deleted)), Err)
            })
            .await??;
        settle(engine, &commit).await?;
        match &self.returning {
            Some(returning) => {
                returning.outcome(&deleted.into_rows().to_batch(&self.target.schema, commit.ts)?)
            }
            None => Ok(Outcome::Done { tag: format!("DELETE {}", deleted.count()) }),
        }
    }
}
