//! `DELETE`.

use super::by_position::{self, By, InFiles};
use super::constant::ParameterTypes;
use super::expression::refuse_windows;
use super::matched::{KeyCondition, Matched, Matching, Selection, Target};
use super::point::{self, PointWrite};
use super::returning::Returning;
use super::room::Room;
use super::rounds::{self, Round, Rounds};
use super::rows::Written;
use super::source::SourceQuery;
use super::{Run, Scope, Writer, refuse, settle};
use crate::syntax::fold;
use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::{self, FromTable};
use oribi_engine::{Commit, Decision, Engine, Read, Table, WriteOp};
use oribi_session::sql::{Outcome, SqlError};
use oribi_types::ColumnType;
use std::sync::Arc;

/// A planned `DELETE`.
pub(crate) struct Delete {
    target: Arc<Target>,
    selection: Arc<Selection>,
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
        refuse_windows(&delete.selection, "WHERE")?;
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
            Some(key) => Selection::Key(key, None),
            None => Selection::Matching(
                Matching::plan(scope, with, &target, others, delete.selection, Vec::new(), types).await?,
            ),
        };
        Ok(Delete { target: Arc::new(target), selection: Arc::new(selection), returning })
    }

    pub(crate) fn columns(&self) -> Option<&SchemaRef> {
        self.returning.as_ref().map(Returning::schema)
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
        let Selection::Key(condition, _) = self.selection.as_ref() else { return None };
        if self.returning.is_some() {
            return None;
        }
        let operation = point::Operation::Delete { key: condition.constants().to_vec() };
        PointWrite::new(engine, &self.target.table, &self.target.schema, operation, parameters)
    }

    /// # Errors
    /// Those of the query; `TooLarge` (54000).
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        let (table, shown) = (Arc::clone(&self.target.table), self.returning.is_some());
        let in_files = (!shown).then(|| {
            let table = Arc::clone(&table);
            let change = move |matched: &Matched, engine: &Engine, by: By<'_>| {
                by_position::change(engine, &table, matched, None, by)
            };
            Box::new(change) as InFiles
        });
        let write = move |matched: &Matched, room: &Room, writer: &Writer<'_>| {
            delete_rows(&table, matched, room, writer, Written::new(shown))
        };
        let (commit, deleted) = match in_files {
            Some(in_files) => Rounds::new(run, &self.target, &self.selection, write).change(in_files).await?,
            None => rounds::read_and_write(run, &self.target, &self.selection, write).await?,
        };
        settle(run.query.engine(), &commit).await?;
        match &self.returning {
            Some(returning) => {
                returning.outcome(run, deleted.into_rows().to_batch(&self.target.schema, commit.ts)?).await
            }
            None => Ok(Outcome::Done { tag: format!("DELETE {}", deleted.count()) }),
        }
    }
}

fn delete_rows(
    table: &Arc<Table>,
    matched: &Matched,
    room: &Room,
    writer: &Writer<'_>,
    mut deleted: Written,
) -> Result<Round<(Commit, Written)>, SqlError> {
    let rows = matched.numbers();
    let operation = |&i: &usize| WriteOp { table, key: matched.key(i), read: Read::Existing, row: &[] };
    let operations: Vec<WriteOp<'_>> = rows.iter().map(operation).collect();
    let round = rounds::write(writer, matched, &rows, &operations, |n, old, _| {
        let old = old.expect("a matched row is there");
        deleted.push(matched.key(rows[n]), old.row);
        room.check(matched.bytes() + deleted.bytes())?;
        Ok(Decision::Delete)
    })?;
    Ok(round.with(deleted))
}
