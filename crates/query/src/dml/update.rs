//! `UPDATE`.
//!
//! The query yields only keys, timestamps, where rows lie and the values that must be computed; constants are set and the other columns
//! copied when the row is written, or left as they are where many rows are changed by position. Where the primary key is named
//! there is no query: what is computed is evaluated over the row. A row whose key changes is deleted and inserted in the same
//! batch, all deletes first, so that `SET id = id + 1` works and a key taken twice is refused.

use super::assignments::{assigned_column, assigned_slots, check_generated, single_assignments};
use super::by_position::{self, By, InFiles};
use super::constant::{Constant, ParameterTypes, Parameters};
use super::expression::{Computing, refuse_windows};
use super::formula::{Formula, Names};
use super::insert::is_default;
use super::matched::{KeyCondition, Matched, Matching, Selection, Target};
use super::point::{self, PointWrite};
use super::returning::Returning;
use super::room::Room;
use super::rounds::{self, Round, Rounds};
use super::rows::{Written, duplicate_key};
use super::source::SourceQuery;
use super::{Run, Scope, Writer, refuse, settle};
use crate::syntax::fold;
use arrow::array::{Array, ArrayRef};
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::{self, UpdateTableFromKind};
use oribi_engine::{Commit, Decision, Engine, NewValues, Read, WriteOp};
use oribi_session::sql::{Outcome, SqlError};
use oribi_types::batch::ColumnBuilder;
use oribi_types::{Column, ColumnSource, ColumnType, ErrorKind, Value, ValueRef, key};
use std::sync::Arc;

/// A planned `UPDATE`.
pub(crate) struct Update {
    target: Arc<Target>,
    changes: Arc<Vec<(usize, Change)>>,
    changes_key: bool,
    selection: Arc<Selection>,
    returning: Option<Returning>,
}

enum Change {
    Constant(Constant),
    /// The n-th computed value.
    Computed(usize),
}

impl Update {
    /// # Errors
    /// `NotFound`, `Invalid`, `Unsupported`.
    pub(crate) async fn plan(
        scope: Scope<'_>,
        with: Option<ast::With>,
        update: ast::Update,
        types: &mut ParameterTypes,
    ) -> Result<Self, SqlError> {
        refuse(update.or.is_none() && update.output.is_none(), "UPDATE OR … and OUTPUT")?;
        refuse(update.order_by.is_empty() && update.limit.is_none(), "UPDATE with ORDER BY or LIMIT")?;
        let target = Target::resolve(scope, &update.table)?;
        refuse_windows(&update.assignments, "UPDATE")?;
        refuse_windows(&update.selection, "WHERE")?;
        let (changes, computed) = plan_changes(scope, &target, update.assignments, types)?;
        let changes_key = changes
            .iter()
            .any(|(position, _)| matches!(target.schema.columns()[*position].source, ColumnSource::Key(_)));
        let returning = match &update.returning {
            Some(items) => {
                let context = scope.query.begin(scope.session)?;
                Some(Returning::plan(&context, &target.schema, &fold(&target.alias), items)?)
            }
            None => None,
        };
        let others = match update.from {
            Some(UpdateTableFromKind::AfterSet(others)) => others,
            Some(_) => return Err(SqlError::new(ErrorKind::Unsupported, "FROM before SET is not supported")),
            None => Vec::new(),
        };
        let plain = with.is_none() && others.is_empty() && !changes_key;
        let by_key = match plain {
            true => select_key(scope, &target, update.selection.as_ref(), &computed, types)?,
            false => None,
        };
        let selection = match by_key {
            Some(selection) => selection,
            None => Selection::Matching(
                Matching::plan(scope, with, &target, others, update.selection, computed, types).await?,
            ),
        };
        let (target, selection) = (Arc::new(target), Arc::new(selection));
        Ok(Update { target, changes: Arc::new(changes), changes_key, selection, returning })
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
        format!("update of {}.{}{how}", self.target.table.schema_name(), self.target.table.name())
    }

    /// The write of one row that it is, if it sets constants where the key is constant.
    pub(crate) fn point(&self, engine: &Arc<Engine>, parameters: &[ColumnType]) -> Option<PointWrite> {
        let Selection::Key(condition, computing) = self.selection.as_ref() else { return None };
        if self.returning.is_some() {
            return None;
        }
        let alias = fold(&self.target.alias);
        let names = Names { schema: &self.target.schema, alias: Some(&alias), proposes: false };
        let change = |(position, change): &(usize, Change)| {
            let source = match change {
                Change::Constant(constant) => point::Source::Constant(constant.clone()),
                Change::Computed(n) => {
                    let written = computing.as_ref()?.written(*n);
                    point::Source::Formula(Formula::compile(written, &names, parameters)?)
                }
            };
            Some(point::Change { position: *position, source })
        };
        let changes = self.changes.iter().map(change).collect::<Option<Vec<_>>>()?;
        let operation = point::Operation::Update { key: condition.constants().to_vec(), changes };
        PointWrite::new(engine, &self.target.table, &self.target.schema, operation, parameters)
    }

    /// # Errors
    /// Those of the query and of assigning values; `AlreadyExists` (23505) if a new key is taken; `TooLarge` (54000).
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        let assigning = Arc::new(Assigning {
            target: Arc::clone(&self.target),
            constants: self.constants(run.parameters)?,
            changes: Arc::clone(&self.changes),
        });
        let (changes_key, shown) = (self.changes_key, self.returning.is_some());
        let in_files = (!changes_key && !shown).then(|| {
            let assigning = Arc::clone(&assigning);
            let change = move |matched: &Matched, engine: &Engine, by: By<'_>| {
                let Some(values) = Assigned::of(&assigning, matched) else { return Ok(None) };
                by_position::change(engine, &assigning.target.table, matched, Some(&values), by)
            };
            Box::new(change) as InFiles
        });
        let write = move |matched: &Matched, room: &Room, writer: &Writer<'_>| {
            let attempt = Attempt { assigning: &assigning, matched, room };
            match changes_key {
                true => attempt.move_rows(writer, Written::new(shown)),
                false => attempt.update_rows(writer, Written::new(shown)),
            }
        };
        let (commit, written) = match in_files {
            Some(in_files) => Rounds::new(run, &self.target, &self.selection, write).change(in_files).await?,
            None => rounds::read_and_write(run, &self.target, &self.selection, write).await?,
        };
        settle(run.query.engine(), &commit).await?;
        match &self.returning {
            Some(returning) => {
                returning.outcome(run, written.into_rows().to_batch(&self.target.schema, commit.ts)?).await
            }
            None => Ok(Outcome::Done { tag: format!("UPDATE {}", written.count()) }),
        }
    }

    fn constants(&self, parameters: Parameters<'_>) -> Result<Vec<Value>, SqlError> {
        let columns = self.target.schema.columns();
        let value = |(position, change): &(usize, Change)| match change {
            Change::Constant(constant) => constant.value(&columns[*position], parameters),
            Change::Computed(_) => Ok(Value::Null),
        };
        self.changes.iter().map(value).collect()
    }
}

/// The row of a key, if the condition names one, and what is computed can be without a query; `types` is untouched otherwise.
fn select_key(
    scope: Scope<'_>,
    target: &Target,
    condition: Option<&ast::Expr>,
    computed: &[(Column, ast::Expr)],
    types: &mut ParameterTypes,
) -> Result<Option<Selection>, SqlError> {
    let mut noted = types.clone();
    let Some(key) = KeyCondition::recognise(target, condition, &mut noted) else { return Ok(None) };
    let computing = if computed.is_empty() {
        None
    } else {
        let context = scope.query.begin(scope.session)?;
        let columns = Computing::columns_of(target);
        let computing =
            columns.and_then(|columns| Computing::plan(&context.state, columns, computed, &mut noted));
        let Some(computing) = computing else {
            return Ok(None);
        };
        Some(computing)
    };
    *types = noted;
    Ok(Some(Selection::Key(key, computing)))
}

/// The changes, and the expressions that must be computed for them.
#[allow(clippy::type_complexity)]
fn plan_changes(
    scope: Scope<'_>,
    target: &Target,
    assignments: Vec<ast::Assignment>,
    types: &mut ParameterTypes,
) -> Result<(Vec<(usize, Change)>, Vec<(Column, ast::Expr)>), SqlError> {
    let (mut changes, mut computed) = (Vec::new(), Vec::new());
    for assignment in single_assignments(assignments)? {
        let position = assigned_column(&target.table, &target.schema, &assignment.target)?;
        let column = &target.schema.columns()[position];
        if changes.iter().any(|(other, _)| *other == position) {
            let message = format!("multiple assignments to same column \"{}\"", column.name);
            return Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("42601"));
        }
        check_generated(column, is_default(&assignment.value))?;
        let change = if is_default(&assignment.value) {
            Change::Constant(Constant::Value(column.default.clone().unwrap_or(Value::Null)))
        } else if let Some(constant) = Constant::of_session(&assignment.value, column, scope.session, types)?
        {
            Change::Constant(constant)
        } else {
            computed.push((column.clone(), assignment.value));
            Change::Computed(computed.len() - 1)
        };
        changes.push((position, change));
    }
    Ok((changes, computed))
}

/// What each row is set to.
struct Assigning {
    target: Arc<Target>,
    constants: Vec<Value>,
    changes: Arc<Vec<(usize, Change)>>,
}

/// The values that rows are set to, column by column.
struct Assigned<'a> {
    assigning: &'a Assigning,
    matched: &'a Matched,
    /// Positions of the columns, and for each the number of its change.
    columns: Vec<usize>,
    changes: Vec<usize>,
}

impl<'a> Assigned<'a> {
    /// `None` if a column gets a null that it must not have.
    fn of(assigning: &'a Assigning, matched: &'a Matched) -> Option<Self> {
        let columns = assigning.target.schema.columns();
        let mut assigned = Assigned { assigning, matched, columns: Vec::new(), changes: Vec::new() };
        for (n, (position, change)) in assigning.changes.iter().enumerate() {
            let has_null = match change {
                Change::Constant(_) => assigning.constants[n].is_null(),
                Change::Computed(n) => matched.computed(*n).any(|values| values.null_count() > 0),
            };
            if has_null && !columns[*position].nullable {
                return None;
            }
            if let ColumnSource::Slot(_) = columns[*position].source {
                assigned.columns.push(*position);
                assigned.changes.push(n);
            }
        }
        Some(assigned)
    }
}

impl NewValues for Assigned<'_> {
    fn columns(&self) -> &[usize] {
        &self.columns
    }

    fn values(&self, rows: &[u32]) -> oribi_types::Result<Vec<ArrayRef>> {
        let Assigning { target, constants, changes } = self.assigning;
        let places: Vec<_> = rows.iter().map(|row| self.matched.place(*row as usize)).collect();
        let values = self.changes.iter().map(|&n| {
            let (position, change) = &changes[n];
            match change {
                Change::Constant(_) => {
                    let column_type = target.schema.columns()[*position].column_type;
                    let mut values = ColumnBuilder::new(column_type);
                    rows.iter().for_each(|_| values.push(constants[n].as_ref()));
                    values.finish(column_type)
                }
                Change::Computed(n) => {
                    let batches: Vec<&dyn Array> = self.matched.computed(*n).map(AsRef::as_ref).collect();
                    Ok(interleave(&batches, &places)?)
                }
            }
        });
        values.collect()
    }
}

/// One attempt to write the rows that were found.
struct Attempt<'a> {
    assigning: &'a Assigning,
    matched: &'a Matched,
    room: &'a Room,
}

impl Attempt<'_> {
    /// Rewrites rows whose keys stay.
    fn update_rows(
        self,
        writer: &Writer<'_>,
        mut written: Written,
    ) -> Result<Round<(Commit, Written)>, SqlError> {
        let (Target { table, schema, .. }, matched) = (self.assigning.target.as_ref(), self.matched);
        let rows = matched.numbers();
        let operation = |&i: &usize| WriteOp { table, key: matched.key(i), read: Read::Existing, row: &[] };
        let operations: Vec<WriteOp<'_>> = rows.iter().map(operation).collect();
        let round = rounds::write(writer, matched, &rows, &operations, |n, old, row| {
            let (i, old) = (rows[n], old.expect("a matched row is there"));
            let slots = assigned_slots(table, schema, self.values(i))?;
            schema.replace_slots(old.row, &slots, row);
            written.push(matched.key(i), row);
            self.room.check(matched.bytes() + written.bytes())?;
            Ok(Decision::Put)
        })?;
        Ok(round.with(written))
    }

    /// Rewrites rows whose keys may change: deletes the old keys, then inserts the rows under their new ones.
    fn move_rows(
        self,
        writer: &Writer<'_>,
        mut written: Written,
    ) -> Result<Round<(Commit, Written)>, SqlError> {
        let (Target { table, schema, .. }, matched) = (self.assigning.target.as_ref(), self.matched);
        let rows = matched.numbers();
        let (keys, mut held) = self.new_keys(&rows)?;
        let count = rows.len();
        let operation = |key| WriteOp { table, key, read: Read::Existing, row: &[] };
        let old = rows.iter().map(|&i| matched.key(i));
        let operations: Vec<WriteOp<'_>> = old.chain(keys.iter().map(Vec::as_slice)).map(operation).collect();
        let mut moved_rows: Vec<Vec<u8>> = Vec::with_capacity(count);
        let round = rounds::write(writer, matched, &rows, &operations, |n, current, row| {
            match current {
                // Whoever names a key and changes it has read the row.
                Some(old) if n < count => {
                    let slots = assigned_slots(table, schema, self.values(rows[n]))?;
                    let mut moved = Vec::new();
                    schema.replace_slots(old.row, &slots, &mut moved);
                    held += size_of::<Vec<u8>>() + moved.len();
                    moved_rows.push(moved);
                    self.room.check(held)?;
                    Ok(Decision::Delete)
                }
                Some(_) => Err(duplicate_key(table, schema, &keys[n - count])),
                None => {
                    row.extend_from_slice(&moved_rows[n - count]);
                    written.push(&keys[n - count], row);
                    Ok(Decision::Put)
                }
            }
        })?;
        Ok(round.with(written))
    }

    /// The new values of row `i`, each with the position of its column.
    fn values(&self, i: usize) -> Vec<(usize, ValueRef<'_>)> {
        let Assigning { target, constants, changes } = self.assigning;
        let mut values = Vec::with_capacity(changes.len());
        for ((position, change), constant) in changes.iter().zip(constants) {
            let value = match change {
                Change::Constant(_) => constant.as_ref(),
                Change::Computed(n) => {
                    self.matched.value(i, *n, target.schema.columns()[*position].column_type)
                }
            };
            values.push((*position, value));
        }
        values
    }

    /// The keys that the rows get, and the bytes of memory in use by then.
    fn new_keys(&self, rows: &[usize]) -> Result<(Vec<Vec<u8>>, usize), SqlError> {
        let Target { table, schema, .. } = self.assigning.target.as_ref();
        let mut bytes = self.matched.bytes();
        let mut keys = Vec::with_capacity(rows.len());
        for &i in rows {
            let mut parts = key::decode_key(schema, self.matched.key(i))?;
            let values = self.values(i);
            assigned_slots(table, schema, values.clone())?;
            for (position, value) in values {
                if let ColumnSource::Key(component) = schema.columns()[position].source {
                    parts[usize::from(component)] = value.to_owned();
                }
            }
            let mut encoded = Vec::new();
            key::encode_key(schema, parts.iter().map(Value::as_ref), &mut encoded)?;
            bytes += size_of::<Vec<u8>>() + encoded.len();
            keys.push(encoded);
            self.room.hold(bytes)?;
        }
        Ok((keys, bytes))
    }
}
