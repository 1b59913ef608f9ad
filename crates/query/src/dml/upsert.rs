//! `ON CONFLICT` of an `INSERT`.
//!
//! A `DO UPDATE` that only copies from `excluded` or sets constants is decided while the row is latched. One that
//! computes reads the rows first, evaluates over all of them at once, and writes if none changed meanwhile; if one has, it
//! does so once more while nobody changes them.

use super::assignments::{assigned_column, assigned_slots, check_generated, single_assignments};
use super::coerce::coerce;
use super::constant::{Constant, ParameterTypes};
use super::expression::{Expression, bound};
use super::formula::{Formula, Names};
use super::insert::is_default;
use super::point;
use super::room::Room;
use super::rounds;
use super::rows::Written;
use super::{Run, Scope, Writer, changed, names, primary_key_name, refuse};
use crate::context::QueryEngine;
use crate::functions;
use crate::syntax::fold;
use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::Schema as ArrowSchema;
use datafusion::common::{DFSchema, TableReference};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::sqlparser::ast::{self, ConflictTarget, Expr, OnConflictAction, OnInsert};
use oribi_engine::{Commit, Decision, EncodedRows, Read, Table};
use oribi_session::sql::{SqlError, SqlSession};
use oribi_types::batch::{BatchBuilder, value_at};
use oribi_types::{
    ColumnSource, ColumnType, ErrorKind, Result as EngineResult, Schema, Timestamp, Value, ValueRef,
};
use std::collections::HashSet;
use std::sync::Arc;

/// What happens to a row whose key exists.
pub(crate) enum Conflict {
    Refuse,
    Ignore,
    Update(Arc<Upsert>),
}

/// `DO UPDATE SET … WHERE …`.
pub(crate) struct Upsert {
    changes: Vec<(usize, Change)>,
    condition: Option<Expression>,
    /// Those of the row and, behind them, those of `excluded`: what expressions are over.
    columns: DFSchema,
    /// What the row is called.
    alias: String,
}

enum Change {
    /// The value proposed for a column.
    Excluded(usize),
    Constant(Constant),
    /// With what was written.
    Computed(Expression, Expr),
}

/// An upsert whose parameters have their values.
struct Bound {
    condition: Option<Arc<dyn PhysicalExpr>>,
    /// For each change its constant; null where it is none.
    constants: Vec<Value>,
    /// For each change its expression; `None` where it is none.
    computed: Vec<Option<Arc<dyn PhysicalExpr>>>,
}

impl Conflict {
    /// # Errors
    /// 42P10 if the target is not the primary key; `Unsupported` for subqueries and changes of the key.
    pub(crate) fn plan(
        scope: Scope<'_>,
        table: &Table,
        schema: &Schema,
        alias: &str,
        on: Option<OnInsert>,
        types: &mut ParameterTypes,
    ) -> Result<Self, SqlError> {
        let on = match on {
            None => return Ok(Conflict::Refuse),
            Some(OnInsert::OnConflict(on)) => on,
            Some(_) => {
                return Err(SqlError::new(ErrorKind::Unsupported, "ON DUPLICATE KEY is not supported"));
            }
        };
        check_target(table, schema, on.conflict_target.as_ref())?;
        let OnConflictAction::DoUpdate(update) = on.action else { return Ok(Conflict::Ignore) };
        if on.conflict_target.is_none() {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
            return Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("42601"));
        }
        let planner = Planner::new(scope, table, schema, alias)?;
        let changes = single_assignments(update.assignments)?
            .iter()
            .map(|assignment| planner.change(assignment, types))
            .collect::<Result<Vec<_>, SqlError>>()?;
        let condition = update.selection.as_ref().map(|expr| planner.expression(expr, types)).transpose()?;
        let (columns, alias) = (planner.columns, alias.to_owned());
        Ok(Conflict::Update(Arc::new(Upsert { changes, condition, columns, alias })))
    }
}

/// Plans the expressions of a `DO UPDATE`.
struct Planner<'a> {
    context: crate::context::StatementContext,
    session: &'a SqlSession,
    table: &'a Table,
    schema: &'a Schema,
    columns: DFSchema,
}

impl<'a> Planner<'a> {
    fn new(scope: Scope<'a>, table: &'a Table, schema: &'a Schema, alias: &str) -> Result<Self, SqlError> {
        let of = |qualifier: &str| {
            DFSchema::try_from_qualified_schema(TableReference::bare(qualifier), schema.arrow())
        };
        let columns =
            of(alias).and_then(|columns| columns.join(&of("excluded")?)).map_err(QueryEngine::error)?;
        let (context, session) = (scope.query.begin(scope.session)?, scope.session.as_ref());
        Ok(Planner { context, session, table, schema, columns })
    }

    fn change(
        &self,
        assignment: &ast::Assignment,
        types: &mut ParameterTypes,
    ) -> Result<(usize, Change), SqlError> {
        let position = assigned_column(self.table, self.schema, &assignment.target)?;
        let column = &self.schema.columns()[position];
        refuse(
            matches!(column.source, ColumnSource::Slot(_)),
            "ON CONFLICT DO UPDATE of a primary key column",
        )?;
        check_generated(column, is_default(&assignment.value))?;
        if is_default(&assignment.value) {
            let value = column.default.clone().unwrap_or(Value::Null);
            return Ok((position, Change::Constant(Constant::Value(value))));
        }
        if let Some(constant) = Constant::of_session(&assignment.value, column, self.session, types)? {
            return Ok((position, Change::Constant(constant)));
        }
        if let Expr::CompoundIdentifier(parts) = &assignment.value
            && let [relation, name] = parts.as_slice()
            && fold(relation) == "excluded"
            && let Some(from) = self.schema.position(&fold(name))
            && self.schema.columns()[from].column_type == column.column_type
            && self.schema.columns()[from].source != ColumnSource::CommitTimestamp
        {
            return Ok((position, Change::Excluded(from)));
        }
        let computed = self.expression(&assignment.value, types)?;
        Ok((position, Change::Computed(computed, assignment.value.clone())))
    }

    fn expression(&self, expr: &Expr, types: &mut ParameterTypes) -> Result<Expression, SqlError> {
        Expression::plan(&self.context.state, &self.columns, expr, types)
    }
}

impl Upsert {
    /// Whether rows are read before they are latched, so that the statement may find them changed.
    pub(crate) fn reads_first(&self) -> bool {
        self.condition.is_some() || self.changes.iter().any(|(_, c)| matches!(c, Change::Computed(..)))
    }

    /// The changes, if there are some whatever the row that is there, and each is to a constant, a proposed value or what a
    /// formula yields.
    pub(super) fn plain_changes(
        &self,
        schema: &Schema,
        parameters: &[ColumnType],
    ) -> Option<Vec<point::Change>> {
        if self.condition.is_some() {
            return None;
        }
        let names = Names { schema, alias: Some(&self.alias), proposes: true };
        let change = |(position, change): &(usize, Change)| {
            let source = match change {
                Change::Excluded(from) => point::Source::Excluded(*from),
                Change::Constant(constant) => point::Source::Constant(constant.clone()),
                Change::Computed(_, written) => {
                    point::Source::Formula(Formula::compile(written, &names, parameters)?)
                }
            };
            Some(point::Change { position: *position, source })
        };
        self.changes.iter().map(change).collect()
    }

    /// Inserts the rows whose keys are new and updates the others; returns the rows written, if they are `shown`.
    ///
    /// # Errors
    /// 21000 if a key occurs twice; `TooLarge`.
    pub(crate) async fn write(
        upsert: &Arc<Upsert>,
        run: Run<'_>,
        table: &Arc<Table>,
        schema: &Arc<Schema>,
        rows: EncodedRows,
        shown: bool,
    ) -> Result<(Commit, Written), SqlError> {
        check_distinct(&rows)?;
        let bound = upsert.bind(run, schema)?;
        // What is large is not made on the thread that serves the client.
        let expressions = || bound.computed.iter().flatten().chain(&bound.condition);
        let count = if expressions().any(functions::may_be_large) { usize::MAX } else { rows.len() };
        let room = Room::new(run.query);
        let (upsert, table, schema) = (Arc::clone(upsert), Arc::clone(table), Arc::clone(schema));
        let (writers, destination) = (run.query.writers(), run.destination());
        let of = Arc::clone(&table);
        if !upsert.reads_first() {
            let write = move |(): &mut (), writer: &Writer<'_>| {
                let proposal =
                    Proposal { writer, table: &of, schema: &schema, rows: &rows, bound: &bound, room: &room };
                upsert.write_directly(proposal, Written::new(shown))
            };
            return destination.write(&table, count, (), write).await?.1;
        }
        let turn = writers.beside(table.id()).await;
        let read_then_write = move |writer: &Writer<'_>| {
            let proposal =
                Proposal { writer, table: &of, schema: &schema, rows: &rows, bound: &bound, room: &room };
            upsert.read_then_write(proposal, Written::new(shown))
        };
        let (read_then_write, round) =
            destination.write(&table, count, read_then_write, |attempt, writer| attempt(writer)).await?;
        if let Some(done) = round? {
            return Ok(done);
        }
        // The rows that exist are in memory by now: to read them all again, with the table held, takes no longer than
        // writing them.
        drop(turn);
        let _alone = writers.alone(table.id()).await;
        rounds::alone(&destination, &table, read_then_write).await
    }

    fn bind(&self, run: Run<'_>, schema: &Schema) -> Result<Bound, SqlError> {
        let computed = self.changes.iter().filter_map(|(_, change)| match change {
            Change::Computed(expression, _) => Some(expression),
            _ => None,
        });
        let mut ready = bound(computed.chain(&self.condition), &self.columns, run)?.into_iter();
        let (mut constants, mut computed) = (Vec::new(), Vec::new());
        for (position, change) in &self.changes {
            let (constant, expression) = match change {
                Change::Constant(constant) => {
                    (constant.value(&schema.columns()[*position], run.parameters)?, None)
                }
                Change::Computed(..) => (Value::Null, ready.next()),
                Change::Excluded(_) => (Value::Null, None),
            };
            constants.push(constant);
            computed.push(expression);
        }
        Ok(Bound { condition: ready.next(), constants, computed })
    }

    fn write_directly(
        &self,
        proposal: Proposal<'_>,
        mut written: Written,
    ) -> Result<(Commit, Written), SqlError> {
        let Proposal { writer, table, schema, rows, bound, .. } = proposal;
        let mut refused = None;
        let result = writer.write(&rows.operations(table, Read::Existing), &mut |i, current, row| {
            match current {
                None => {
                    written.push(rows.key(i), rows.row(i));
                    return Ok(Decision::Proposed);
                }
                Some(current) => {
                    let old = current.row;
                    let proposed = proposal.proposed(i)?;
                    let values =
                        self.changes.iter().zip(&bound.constants).map(|((position, change), constant)| {
                            let value = match change {
                                Change::Excluded(from) => proposed[*from].as_ref(),
                                _ => constant.as_ref(),
                            };
                            (*position, value)
                        });
                    replace(table, schema, old, values.collect(), row).map_err(|e| {
                        refused = Some(e);
                        changed()
                    })?;
                }
            }
            written.push(rows.key(i), row);
            Ok(Decision::Put)
        });
        match refused {
            Some(error) => Err(error),
            None => Ok((result?, written)),
        }
    }

    /// `None` if a row has changed between.
    fn read_then_write(
        &self,
        proposal: Proposal<'_>,
        mut written: Written,
    ) -> Result<Option<(Commit, Written)>, SqlError> {
        let Proposal { writer, table, schema, rows, bound, .. } = proposal;
        let current = proposal.read()?;
        let evaluated = self.evaluate(&proposal, &current)?;
        let (mut refused, mut is_changed) = (None, false);
        let result = writer.write(&rows.operations(table, Read::Existing), &mut |i, now, row| {
            match (now, current.found[i]) {
                (None, None) => {
                    written.push(rows.key(i), rows.row(i));
                    return Ok(Decision::Proposed);
                }
                (Some(now), Some((n, ts))) if now.ts == ts => {
                    if !evaluated.selected.value(n) {
                        return Ok(Decision::Keep);
                    }
                    let proposed = proposal.proposed(i)?;
                    let changes = self.changes.iter().zip(&bound.constants).zip(&evaluated.columns);
                    let values = changes.map(|(((position, change), constant), computed)| {
                        let value = match (change, computed) {
                            (Change::Excluded(from), _) => proposed[*from].as_ref(),
                            (_, Some(array)) => value_at(array, schema.columns()[*position].column_type, n),
                            (_, None) => constant.as_ref(),
                        };
                        (*position, value)
                    });
                    replace(table, schema, now.row, values.collect(), row).map_err(|e| {
                        refused = Some(e);
                        changed()
                    })?;
                }
                _ => {
                    is_changed = true;
                    return Err(changed());
                }
            }
            written.push(rows.key(i), row);
            Ok(Decision::Put)
        });
        match refused {
            Some(error) => Err(error),
            None if is_changed => Ok(None),
            None => Ok(Some((result?, written))),
        }
    }

    /// Evaluates the condition over the rows that exist, and the computed changes over those that it selects: in
    /// `SET v = 10 / t.v WHERE t.v <> 0` it guards the division.
    fn evaluate(&self, proposal: &Proposal<'_>, current: &Current) -> Result<Evaluated, SqlError> {
        let rows = current.batch.num_rows();
        let selected = match &proposal.bound.condition {
            Some(condition) => {
                let condition = condition.evaluate(&current.batch).and_then(|v| v.into_array(rows));
                let condition = condition.map_err(QueryEngine::error)?;
                let holds = condition.as_boolean_opt().map(|c| c.iter().map(|v| v == Some(true)).collect());
                holds.unwrap_or_else(|| BooleanBuffer::new_unset(rows))
            }
            None => BooleanBuffer::new_set(rows),
        };
        let mask = BooleanArray::new(selected.clone(), None);
        let columns = self.changes.iter().zip(&proposal.bound.computed).map(|((position, _), expression)| {
            let Some(expression) = expression else { return Ok(None) };
            let values =
                expression.evaluate_selection(&current.batch, &mask).and_then(|v| v.into_array(rows));
            coerce(&values.map_err(QueryEngine::error)?, &proposal.schema.columns()[*position]).map(Some)
        });
        Ok(Evaluated { columns: columns.collect::<Result<_, SqlError>>()?, selected })
    }
}

/// The rows proposed, and what decides over them.
#[derive(Clone, Copy)]
struct Proposal<'a> {
    writer: &'a Writer<'a>,
    table: &'a Arc<Table>,
    schema: &'a Schema,
    rows: &'a EncodedRows,
    bound: &'a Bound,
    /// For the rows that are read.
    room: &'a Room,
}

/// The rows that exist already.
struct Current {
    /// For each proposed row, the row that exists (its place in `batch`) and its timestamp.
    found: Vec<Option<(usize, Timestamp)>>,
    /// Columns of the rows that exist, then those proposed for them.
    batch: RecordBatch,
}

struct Evaluated {
    /// The rows that the condition selects.
    selected: BooleanBuffer,
    /// For each change its values, of use where `selected`; `None` for one that is not computed.
    columns: Vec<Option<ArrayRef>>,
}

impl Proposal<'_> {
    /// The values proposed for row `i`.
    fn proposed(&self, i: usize) -> EngineResult<Vec<Value>> {
        let mut keys = oribi_types::key::decode_key(self.schema, self.rows.key(i))?;
        let row = self.rows.row(i);
        let value = |column: &oribi_types::Column| match column.source {
            ColumnSource::Key(n) => std::mem::replace(&mut keys[usize::from(n)], Value::Null),
            ColumnSource::Slot(slot) => self.schema.slot_value(column, slot, row).to_owned(),
            ColumnSource::CommitTimestamp => Value::Null,
        };
        Ok(self.schema.columns().iter().map(value).collect())
    }

    fn read(&self) -> Result<Current, SqlError> {
        let view = self.writer.engine.read_view();
        let all: Vec<usize> = (0..self.schema.columns().len()).collect();
        let mut existing = BatchBuilder::new(self.schema, &all, false);
        let mut proposed = BatchBuilder::new(self.schema, &all, false);
        let mut found = Vec::with_capacity(self.rows.len());
        let mut bytes = self.rows.len() * size_of::<Option<(usize, Timestamp)>>();
        for i in 0..self.rows.len() {
            let key = self.rows.key(i);
            let ts = self.writer.get(self.table, key, view, |version| {
                bytes += key.len() + version.row.len();
                existing.push(key, version.row, version.ts).map(|()| version.ts)
            })?;
            let ts = ts.transpose()?;
            found.push(ts.map(|ts| (proposed.rows(), ts)));
            if ts.is_some() {
                bytes += key.len() + self.rows.row(i).len();
                proposed.push(key, self.rows.row(i), Timestamp::MIN)?;
                self.room.hold(bytes)?;
            }
        }
        let (existing, proposed) = (existing.finish()?, proposed.finish()?);
        let fields = [existing.schema(), proposed.schema()];
        let fields: Vec<_> = fields.iter().flat_map(|s| s.fields().iter().cloned()).collect();
        let arrays = [existing.columns(), proposed.columns()].concat();
        let batch = RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays);
        Ok(Current { found, batch: batch.map_err(oribi_types::Error::from)? })
    }
}

/// `old` with the columns at some positions replaced, appended to `row`.
fn replace<'v>(
    table: &Table,
    schema: &'v Schema,
    old: &'v [u8],
    values: Vec<(usize, ValueRef<'v>)>,
    row: &mut Vec<u8>,
) -> Result<(), SqlError> {
    let slots = assigned_slots(table, schema, values)?;
    schema.replace_slots(old, &slots, row);
    Ok(())
}

fn check_target(table: &Table, schema: &Schema, target: Option<&ConflictTarget>) -> Result<(), SqlError> {
    let matches = match target {
        None => true,
        Some(_) if schema.row_id().is_some() => false,
        Some(ConflictTarget::Columns(columns)) => {
            let named =
                columns.iter().map(|c| names::column(table, schema, c)).collect::<Result<HashSet<_>, _>>()?;
            named == schema.key().iter().copied().collect()
        }
        Some(ConflictTarget::OnConstraint(name)) => {
            let constraint = name.0.last().and_then(|p| p.as_ident()).map(fold);
            constraint.is_some_and(|c| c == primary_key_name(table))
        }
    };
    if matches {
        return Ok(());
    }
    let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
    Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("42P10"))
}

fn check_distinct(rows: &EncodedRows) -> Result<(), SqlError> {
    let mut keys = HashSet::with_capacity(rows.len());
    if (0..rows.len()).all(|i| keys.insert(rows.key(i))) {
        return Ok(());
    }
    let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
    Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("21000"))
}
