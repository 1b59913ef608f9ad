//! `INSERT`.
//!
//! Literals and parameters are encoded directly; anything else in `VALUES` is evaluated without a plan, or if it is long or has
//! subqueries, by one query of one row. `INSERT … SELECT` streams from its query.

use super::constant::{Constant, ParameterTypes};
use super::expression::{Computing, refuse_windows};
use super::formula::{Formula, Names};
use super::generated::GeneratedValues;
use super::point::{self, PointWrite};
use super::returning::Returning;
use super::room::Room;
use super::rows::{Written, duplicate_key, push_row};
use super::sink::RowSink;
use super::source::SourceQuery;
use super::upsert::{Conflict, Upsert};
use super::{Destination, Run, Scope, Writer, changed, coerce, names, refuse, settle};
use crate::block;
use crate::context::QueryEngine;
use crate::error::unsupported;
use crate::sequences::{self, as_value};
use crate::syntax::syntax_error;
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::sql::sqlparser::ast::{self, Expr, SetExpr, TableObject};
use futures::StreamExt;
use oribi_engine::{Commit, Decision, EncodedRows, Engine, Lookup, Obligation, Read, Table};
use oribi_session::sql::{Outcome, SqlError};
use oribi_types::batch::value_at;
use oribi_types::schema::{Generated, Identity};
use oribi_types::{Column, ColumnSource, ColumnType, Error, ErrorKind, Schema, Value, ValueRef};
use std::sync::Arc;

/// A planned `INSERT`.
pub(crate) struct Insert {
    table: Arc<Table>,
    schema: Arc<Schema>,
    /// The column that each value of a row is for.
    positions: Vec<usize>,
    source: Source,
    conflict: Conflict,
    returning: Option<Returning>,
}

/// More cells than this are computed by a query, which is planned where it holds up nobody.
const CELLS_HERE_MAX: usize = 16;

enum Source {
    Rows {
        rows: Vec<Vec<Cell>>,
        /// Yields the values of the computed cells.
        computed: Option<Computed>,
    },
    Query(SourceQuery),
}

enum Cell {
    Default,
    Constant(Constant),
    /// The n-th that is computed.
    Computed(usize),
    /// The next number of the sequence with this id.
    Next(u64),
}

/// What computes cells.
enum Computed {
    Here(Computing),
    /// In one row.
    ByQuery(SourceQuery),
}

impl Insert {
    /// # Errors
    /// `NotFound`, `Invalid`, `Unsupported`.
    pub(crate) async fn plan(
        scope: Scope<'_>,
        with: Option<ast::With>,
        insert: ast::Insert,
        types: &mut ParameterTypes,
    ) -> Result<Self, SqlError> {
        refuse_other_dialects(&insert)?;
        let TableObject::TableName(name) = &insert.table else {
            return Err(SqlError::new(
                ErrorKind::Unsupported,
                "INSERT into anything but a table is not supported",
            ));
        };
        let table = names::table(scope.session, scope.query.engine(), name)?;
        let schema = table.schema();
        let alias = match &insert.table_alias {
            Some(alias) => crate::syntax::fold(&alias.alias),
            None => table.name().to_owned(),
        };
        let (mut positions, named) = target_columns(&table, &schema, &insert.columns)?;
        let source = match insert.source {
            None => Source::Rows { rows: vec![Vec::new()], computed: None },
            Some(source) => match plain_values(&source) {
                Some(values) if with.is_none() => {
                    plan_rows(scope, &schema, &positions, values, types).await?
                }
                _ => Source::Query(plan_query(scope, with, source, types).await?),
            },
        };
        let width = match &source {
            Source::Rows { rows, .. } => rows.first().map_or(0, Vec::len),
            Source::Query(source) => source.schema().fields().len(),
        };
        check_width(width, positions.len(), named)?;
        positions.truncate(width);
        if let Source::Query(_) = &source
            && let Some(column) =
                positions.iter().map(|p| &schema.columns()[*p]).find(|c| is_generated_always(c))
        {
            return Err(given_always(column));
        }
        let conflict = Conflict::plan(scope, &table, &schema, &alias, insert.on, types)?;
        let returning = match &insert.returning {
            Some(items) => Some(Returning::plan(&scope.query.begin(scope.session)?, &schema, &alias, items)?),
            None => None,
        };
        Ok(Insert { table, schema, positions, source, conflict, returning })
    }

    pub(crate) fn columns(&self) -> Option<&SchemaRef> {
        self.returning.as_ref().map(Returning::schema)
    }

    /// The query it reads from, for `EXPLAIN`.
    pub(crate) fn query(&self) -> Option<&SourceQuery> {
        match &self.source {
            Source::Query(query) => Some(query),
            Source::Rows { computed: Some(Computed::ByQuery(query)), .. } => Some(query),
            Source::Rows { .. } => None,
        }
    }

    /// What it does, for `EXPLAIN`.
    pub(crate) fn describe(&self) -> String {
        format!("insert into {}.{}", self.table.schema_name(), self.table.name())
    }

    /// The insert of one row that it is, if all of its values are constants or what formulas yield.
    pub(crate) fn point(&self, query: &QueryEngine, parameters: &[ColumnType]) -> Option<PointWrite> {
        let Source::Rows { rows, computed } = &self.source else { return None };
        let ([row], None) = (rows.as_slice(), &self.returning) else { return None };
        let names = Names { schema: &self.schema, alias: None, proposes: false };
        let default = |c: &oribi_types::Column| match &c.generated {
            Some(Generated::RowId) => point::Source::RowId,
            Some(Generated::Sequence(of)) => point::Source::Next(query.numbers().of(query.engine(), of.id)),
            None => point::Source::Constant(Constant::Value(c.default.clone().unwrap_or(Value::Null))),
        };
        let mut values: Vec<point::Source> = self.schema.columns().iter().map(default).collect();
        for (cell, &position) in row.iter().zip(&self.positions) {
            match cell {
                Cell::Default => {}
                Cell::Constant(constant) => values[position] = point::Source::Constant(constant.clone()),
                Cell::Computed(n) => {
                    let Some(Computed::Here(computing)) = computed else { return None };
                    let formula = Formula::compile(computing.written(*n), &names, parameters)?;
                    values[position] = point::Source::Formula(formula);
                }
                Cell::Next(id) => {
                    values[position] = point::Source::Next(query.numbers().of(query.engine(), *id))
                }
            }
        }
        let conflict = match &self.conflict {
            Conflict::Refuse => point::Conflict::Refuse,
            Conflict::Ignore => point::Conflict::Ignore,
            Conflict::Update(upsert) => {
                point::Conflict::Update(upsert.plain_changes(&self.schema, parameters)?)
            }
        };
        let operation = point::Operation::Insert { values, conflict };
        PointWrite::new(query.engine(), &self.table, &self.schema, operation, parameters)
    }

    /// # Errors
    /// Those of its values; `AlreadyExists` (23505), `Invalid` (23502), `TooLarge` (54000).
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        let engine = run.query.engine();
        let room = Room::new(run.query);
        let rows = match &self.source {
            Source::Rows { rows, computed } => self.encode(run, rows, computed.as_ref()).await?,
            Source::Query(query) => {
                let mut sink = RowSink::new(run.destination(), &self.table, &self.schema, &self.positions);
                let plain = matches!(self.conflict, Conflict::Refuse) && self.returning.is_none();
                let mut batches = query.run(run).await?;
                while let Some(batch) = batches.next().await {
                    if plain { sink.push(&batch?).await? } else { sink.gather(&batch?, &room).await? }
                }
                if plain {
                    return Ok(done(sink.finish().await?));
                }
                sink.into_rows()
            }
        };
        room.hold(rows.bytes())?;
        let (commit, written, count) = self.write(run, rows).await?;
        settle(engine, &commit).await?;
        match &self.returning {
            Some(returning) => returning.outcome(run, written.to_batch(&self.schema, commit.ts)?).await,
            None => Ok(done(count)),
        }
    }

    /// Writes the rows; returns those written, if they are to be shown, and their number.
    async fn write(&self, run: Run<'_>, rows: EncodedRows) -> Result<(Commit, EncodedRows, u64), SqlError> {
        let (destination, table, schema) = (run.destination(), &self.table, &self.schema);
        match &self.conflict {
            Conflict::Refuse => {
                let (rows, commit) = insert_new(&destination, table, schema, rows).await?;
                let count = rows.len() as u64;
                Ok((commit?, rows, count))
            }
            Conflict::Ignore => {
                let shown = self.returning.is_some();
                let (commit, written) = insert_absent(&destination, table, rows, shown).await?;
                let count = written.count();
                Ok((commit, written.into_rows(), count))
            }
            Conflict::Update(upsert) => {
                let shown = self.returning.is_some();
                let (commit, written) = Upsert::write(upsert, run, table, schema, rows, shown).await?;
                let count = written.count();
                Ok((commit, written.into_rows(), count))
            }
        }
    }

    async fn encode(
        &self,
        run: Run<'_>,
        rows: &[Vec<Cell>],
        computed: Option<&Computed>,
    ) -> Result<EncodedRows, SqlError> {
        let computed = match computed {
            Some(Computed::Here(computing)) => computing.values(run, no_columns()).await?,
            Some(Computed::ByQuery(query)) => one_row(query, run).await?.columns().to_vec(),
            None => Vec::new(),
        };
        let columns = self.schema.columns();
        let place = |position: usize| self.positions.iter().position(|given| *given == position);
        let lacks = |row: &[Cell], position: usize| {
            let cell = place(position).and_then(|place| row.get(place));
            matches!(cell, None | Some(Cell::Default))
        };
        let missing = |position| rows.iter().filter(|row| lacks(row, position)).count();
        let mut generated = GeneratedValues::new(run.query, run.session, &self.schema, missing).await?;
        let mut encoded = EncodedRows::default();
        let mut values: Vec<Value> = Vec::new();
        for row in rows {
            values.clear();
            values.extend(columns.iter().map(|c| c.default.clone().unwrap_or(Value::Null)));
            for (cell, &position) in row.iter().zip(&self.positions) {
                let column = &columns[position];
                match cell {
                    Cell::Default => {}
                    Cell::Constant(constant) => values[position] = constant.value(column, run.parameters)?,
                    Cell::Computed(n) => {
                        let array = coerce(&computed[*n], column)?;
                        values[position] = value_at(&array, column.column_type, 0).to_owned();
                    }
                    Cell::Next(id) => {
                        let drawn = sequences::draw(run.query, run.session, *id, 1).await?;
                        generated.obligation.merge(drawn.obligation);
                        let number = drawn.numbers.first().and_then(|n| as_value(*n, column.column_type));
                        values[position] = number.ok_or_else(|| out_of_range(column))?;
                    }
                }
            }
            generated.complete(&mut values, |position| lacks(row, position))?;
            let borrowed: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
            push_row(&mut encoded, &self.table, &self.schema, &borrowed)?;
        }
        if self.returning.is_some() {
            // The rows are shown before they are committed, in a block.
            run.query.engine().settled(generated.obligation).await?;
        }
        Ok(encoded)
    }
}

fn is_generated_always(column: &Column) -> bool {
    column.sequence().is_some_and(|of| of.identity == Some(Identity::Always))
}

/// A value for a column whose values the database makes.
fn given_always(column: &Column) -> SqlError {
    let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name);
    SqlError::new(ErrorKind::Invalid, message).with_sqlstate("428C9")
}

fn out_of_range(column: &Column) -> SqlError {
    let message = format!("{} out of range", column.column_type);
    SqlError::new(ErrorKind::Invalid, message).with_sqlstate("22003")
}

fn done(count: u64) -> Outcome {
    Outcome::Done { tag: format!("INSERT 0 {count}") }
}

/// Inserts rows whose keys must not exist; returns them with what became of them, also if others have locked one.
///
/// # Errors
/// `AlreadyExists` (23505), naming the key; nothing is inserted then.
pub(crate) async fn insert_new(
    destination: &Destination,
    table: &Arc<Table>,
    schema: &Arc<Schema>,
    rows: EncodedRows,
) -> Result<(EncodedRows, Result<Commit, SqlError>), SqlError> {
    let (of, schema) = (Arc::clone(table), Arc::clone(schema));
    let insert = move |rows: &mut EncodedRows, writer: &Writer<'_>| {
        let mut refused = None;
        let result = writer.write(&rows.operations(&of, Read::Existing), &mut |i, current, _| {
            if current.is_some() {
                refused = Some(i);
                return Err(changed());
            }
            Ok(Decision::Proposed)
        });
        let refused = refused
            .map(|i| (observe(writer.engine, &of, rows.key(i)), duplicate_key(&of, &schema, rows.key(i))));
        (result, refused)
    };
    let (rows, done) = destination.write_unless_locked(table, rows.len(), rows, insert).await?;
    let Some((result, refused)) = done else { return Ok((rows, Err(block::row_is_locked()))) };
    if let Some((seen, error)) = refused {
        // The refusal tells of a row, so it waits for that row as a read of it would.
        destination.engine().settled(seen).await?;
        return Ok((rows, Err(error)));
    }
    Ok((rows, result.map_err(SqlError::from)))
}

/// Inserts the rows whose keys do not exist.
async fn insert_absent(
    destination: &Destination,
    table: &Arc<Table>,
    rows: EncodedRows,
    shown: bool,
) -> Result<(Commit, Written), SqlError> {
    let of = Arc::clone(table);
    let insert = move |rows: &mut EncodedRows, writer: &Writer<'_>| {
        let mut written = Written::new(shown);
        let commit = writer.write(&rows.operations(&of, Read::Existing), &mut |i, current, _| {
            if current.is_some() {
                return Ok(Decision::Keep);
            }
            written.push(rows.key(i), rows.row(i));
            Ok(Decision::Proposed)
        })?;
        Ok::<_, Error>((commit, written))
    };
    let (_, inserted) = destination.write(table, rows.len(), rows, insert).await?;
    Ok(inserted?)
}

/// What must be settled before somebody is told of the row with `key`.
fn observe(engine: &Engine, table: &Table, key: &[u8]) -> Obligation {
    match engine.try_get(table, key, engine.read_view(), |_| ()) {
        Lookup::Found((), seen) | Lookup::Absent(seen) => seen,
        // No file is before what it has is durable.
        Lookup::Pending => Obligation::default(),
    }
}

/// One row that values are computed over which are of no row.
fn no_columns() -> RecordBatch {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    RecordBatch::try_new_with_options(Arc::new(ArrowSchema::empty()), Vec::new(), &options)
        .expect("it has no columns to be wrong")
}

/// The single row of a query that computes values.
async fn one_row(query: &SourceQuery, run: Run<'_>) -> Result<RecordBatch, SqlError> {
    let mut batches = query.run(run).await?;
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        if batch.num_rows() > 0 {
            return Ok(batch);
        }
    }
    Err(SqlError::new(ErrorKind::Internal, "the values of an insert were not computed"))
}

/// The columns that values are for, and whether the statement named them.
fn target_columns(
    table: &Table,
    schema: &Schema,
    columns: &[ast::ObjectName],
) -> Result<(Vec<usize>, bool), SqlError> {
    if columns.is_empty() {
        let all = schema.shown().iter().enumerate();
        let written = all.filter(|(_, c)| c.source != ColumnSource::CommitTimestamp).map(|(i, _)| i);
        return Ok((written.collect(), false));
    }
    let mut positions = Vec::with_capacity(columns.len());
    for name in columns {
        let [ast::ObjectNamePart::Identifier(ident)] = name.0.as_slice() else {
            return Err(syntax_error(format!("\"{name}\" is not a column name")));
        };
        let position = names::column(table, schema, ident)?;
        if positions.contains(&position) {
            let message = format!("column \"{}\" specified more than once", ident.value);
            return Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("42701"));
        }
        positions.push(position);
    }
    Ok((positions, true))
}

fn check_width(width: usize, columns: usize, named: bool) -> Result<(), SqlError> {
    if width > columns {
        return Err(syntax_error("INSERT has more expressions than target columns"));
    }
    if named && width < columns {
        return Err(syntax_error("INSERT has more target columns than expressions"));
    }
    Ok(())
}

/// The rows of a query that is nothing but `VALUES`.
fn plain_values(query: &ast::Query) -> Option<&ast::Values> {
    let plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none();
    match query.body.as_ref() {
        SetExpr::Values(values) if plain => Some(values),
        _ => None,
    }
}

async fn plan_rows(
    scope: Scope<'_>,
    schema: &Schema,
    positions: &[usize],
    values: &ast::Values,
    types: &mut ParameterTypes,
) -> Result<Source, SqlError> {
    refuse_windows(values, "VALUES")?;
    let mut rows = Vec::with_capacity(values.rows.len());
    let mut computed = Vec::new();
    for row in &values.rows {
        if row.content.len() != values.rows[0].content.len() {
            return Err(syntax_error("VALUES lists must all be the same length"));
        }
        if row.content.len() > positions.len() {
            return Err(syntax_error("INSERT has more expressions than target columns"));
        }
        let mut cells = Vec::with_capacity(row.content.len());
        for (expr, &position) in row.content.iter().zip(positions) {
            let column = &schema.columns()[position];
            cells.push(if is_default(expr) {
                Cell::Default
            } else if is_generated_always(column) {
                return Err(given_always(column));
            } else if let Some(name) = sequences::taken_from(expr)? {
                if !column.column_type.is_integer() {
                    return Err(unsupported("nextval as the value of a column that is no integer"));
                }
                Cell::Next(sequences::named(scope.session, scope.query.engine(), name)?.id())
            } else if let Some(constant) =
                Constant::of_session(expr, &schema.columns()[position], scope.session, types)?
            {
                Cell::Constant(constant)
            } else {
                computed.push((schema.columns()[position].clone(), expr.clone()));
                Cell::Computed(computed.len() - 1)
            });
        }
        rows.push(cells);
    }
    let computed = match computed.is_empty() {
        true => None,
        false => Some(plan_computed(scope, computed, types).await?),
    };
    Ok(Source::Rows { rows, computed })
}

async fn plan_computed(
    scope: Scope<'_>,
    cells: Vec<(Column, Expr)>,
    types: &mut ParameterTypes,
) -> Result<Computed, SqlError> {
    let here = match cells.len() <= CELLS_HERE_MAX {
        true => Computing::plan(&scope.query.begin(scope.session)?.state, DFSchema::empty(), &cells, types),
        false => None,
    };
    match here {
        Some(computing) => Ok(Computed::Here(computing)),
        None => {
            let expressions = cells.into_iter().map(|(_, expr)| expr).collect();
            Ok(Computed::ByQuery(plan_computing_query(scope, expressions, types).await?))
        }
    }
}

/// `SELECT expr AS c0, …`.
async fn plan_computing_query(
    scope: Scope<'_>,
    expressions: Vec<Expr>,
    types: &mut ParameterTypes,
) -> Result<SourceQuery, SqlError> {
    let mut parsed = crate::syntax::parse("select 1")?.statement;
    if let ast::Statement::Query(select) = &mut parsed
        && let SetExpr::Select(select) = select.body.as_mut()
    {
        let items = expressions.into_iter().enumerate();
        let alias = |i| ast::Ident::with_quote('"', format!("c{i}"));
        select.projection =
            items.map(|(i, expr)| ast::SelectItem::ExprWithAlias { expr, alias: alias(i) }).collect();
    }
    SourceQuery::plan(scope, parsed, types).await
}

async fn plan_query(
    scope: Scope<'_>,
    with: Option<ast::With>,
    mut source: Box<ast::Query>,
    types: &mut ParameterTypes,
) -> Result<SourceQuery, SqlError> {
    match (&mut source.with, with) {
        (inner @ None, outer) => *inner = outer,
        (Some(_), None) => {}
        (Some(inner), Some(outer)) => {
            let mut tables = outer.cte_tables;
            tables.append(&mut inner.cte_tables);
            inner.cte_tables = tables;
        }
    }
    SourceQuery::plan(scope, ast::Statement::Query(source), types).await
}

/// The word `DEFAULT` in place of a value.
pub(crate) fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
}

fn refuse_other_dialects(insert: &ast::Insert) -> Result<(), SqlError> {
    refuse(insert.or.is_none() && !insert.ignore && !insert.replace_into, "INSERT OR … and REPLACE")?;
    refuse(!insert.overwrite && insert.partitioned.is_none(), "INSERT OVERWRITE and PARTITION")?;
    refuse(insert.assignments.is_empty() && insert.format_clause.is_none(), "INSERT … SET and FORMAT")?;
    refuse(insert.settings.is_none() && insert.output.is_none(), "INSERT … SETTINGS and OUTPUT")?;
    refuse(
        insert.multi_table_insert_type.is_none() && insert.insert_alias.is_none(),
        "INSERT into several tables",
    )
}
