//! The rows that an `UPDATE` or `DELETE` is about, found by an ordinary query.
//!
//! The query is `SELECT key columns, _ts, place, computed values … FROM table, others … WHERE …`. A condition that fixes the
//! whole primary key to constants needs no query: see [`KeyCondition`]. [`Selection`] is the one or the other.

use super::constant::{Constant, ParameterTypes, Parameters};
use super::expression::{Computing, batch_of};
use super::room::Room;
use super::source::SourceQuery;
use super::{Run, Scope, coerce, names, refuse};
use crate::catalog::with_ts;
use crate::context::QueryEngine;
use crate::provider::{NO_FILE, place_columns};
use crate::syntax::{self, fold};
use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{UInt32Type, UInt64Type};
use datafusion::logical_expr::{self, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, Ident, ObjectName, ObjectNamePart, SelectItem, SetExpr, TableFactor,
    TableWithJoins, VisitMut, visit_expressions_mut,
};
use futures::StreamExt;
use oribi_engine::{Location, Lookup, RowVersion, Table};
use oribi_session::sql::{RowStream, SqlError};
use oribi_types::batch::value_at;
use oribi_types::cells::Cells;
use oribi_types::schema::TS_COLUMN;
use oribi_types::{
    Column, ColumnType, ErrorKind, Result as EngineResult, Schema, Timestamp, Value, ValueRef, key,
};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The table that a statement changes, as its other expressions know it.
pub(crate) struct Target {
    pub(crate) table: Arc<Table>,
    pub(crate) schema: Arc<Schema>,
    pub(crate) alias: Ident,
    /// Whether the statement gave the alias.
    aliased: bool,
}

impl Target {
    /// # Errors
    /// `NotFound` (42P01); `Unsupported` for joins and the like in place of the table.
    pub(crate) fn resolve(scope: Scope<'_>, relation: &TableWithJoins) -> Result<Self, SqlError> {
        refuse(relation.joins.is_empty(), "a join as the table to change")?;
        let TableFactor::Table { name, alias, args: None, .. } = &relation.relation else {
            return Err(SqlError::new(
                ErrorKind::Unsupported,
                format!("changing {relation} is not supported"),
            ));
        };
        let table = names::table(scope.session, scope.query.engine(), name)?;
        let schema = table.schema();
        let aliased = alias.is_some();
        let alias = match alias {
            Some(alias) => alias.name.clone(),
            None => Ident::with_quote('"', table.name()),
        };
        Ok(Target { table, schema, alias, aliased })
    }
}

/// Which rows of its target a statement is about.
pub(crate) enum Selection {
    /// The row of a key, and what is computed from it.
    Key(KeyCondition, Option<Computing>),
    Matching(Matching),
}

/// How a row was found.
#[derive(Clone, Copy)]
enum Finding {
    /// It was not read, and need not exist.
    Unread,
    /// As of this timestamp.
    Read(Timestamp),
    /// It has changed, and is none of those that the statement is about any more.
    Passed,
}

impl Selection {
    /// Whether rows are read before they are latched, so that the statement may find them changed.
    pub(crate) fn reads_first(&self) -> bool {
        match self {
            Selection::Matching(_) => true,
            Selection::Key(_, computing) => computing.is_some(),
        }
    }

    /// The query it reads from, for `EXPLAIN`.
    pub(crate) fn query(&self) -> Option<&SourceQuery> {
        match self {
            Selection::Matching(matching) => Some(&matching.query),
            Selection::Key(..) => None,
        }
    }

    /// How rows are found if not by a query, for `EXPLAIN`.
    pub(crate) fn describe(&self) -> &'static str {
        if matches!(self, Selection::Matching(_)) { "" } else { " by primary key" }
    }

    /// Finds the rows, on a new snapshot.
    ///
    /// # Errors
    /// Those of execution and of assigning the values; `TooLarge` beyond `room`.
    pub(crate) async fn find(&self, run: Run<'_>, target: &Target, room: &Room) -> Result<Matched, SqlError> {
        let mut matched = Matched::default();
        match self {
            Selection::Matching(matching) => matching.find(run, target, room, &mut matched, None).await?,
            Selection::Key(condition, computing) => {
                if let Some(key) = condition.key(&target.schema, run.parameters)? {
                    matched = match computing {
                        Some(computing) => compute_one(run, target, key, computing).await?,
                        None => find_one(run, target, key).await?,
                    };
                    room.hold(matched.bytes())?;
                }
            }
        }
        Ok(matched)
    }

    /// Finds the rows with the numbers `changed` of `matched` again, on a new snapshot.
    ///
    /// # Errors
    /// As [`find`](Self::find). They are still to be found again then.
    pub(crate) async fn find_again(
        &self,
        run: Run<'_>,
        target: &Target,
        room: &Room,
        matched: &mut Matched,
        changed: &[usize],
    ) -> Result<(), SqlError> {
        let matching = match self {
            Selection::Matching(matching) => matching,
            // What is decided while it is latched never changed.
            Selection::Key(_, None) => return Ok(()),
            Selection::Key(..) => {
                let again = self.find(run, target, room).await?;
                match again.len() {
                    0 => changed.iter().for_each(|&i| matched.findings[i] = Finding::Passed),
                    _ => *matched = again,
                }
                return Ok(());
            }
        };
        let numbers = changed.iter().map(|&i| (matched.key(i).to_vec(), i)).collect();
        let before: Vec<Finding> = changed.iter().map(|&i| matched.findings[i]).collect();
        changed.iter().for_each(|&i| matched.findings[i] = Finding::Passed);
        let found = matching.find(run, target, room, matched, Some(&numbers)).await;
        if found.is_err() {
            // None is passed over that was not looked for to the end: as they were they are found changed once more.
            changed.iter().zip(before).for_each(|(&i, finding)| matched.findings[i] = finding);
        }
        found
    }
}

/// The row of one key, if there is one, and what is computed from it.
async fn compute_one(
    run: Run<'_>,
    target: &Target,
    key: Vec<u8>,
    computing: &Computing,
) -> Result<Matched, SqlError> {
    let mut matched = Matched::default();
    if let Some((ts, row)) = read_one(run, target, &key).await? {
        let values = computing.values(run, row).await?;
        matched.computed_bytes = values.iter().map(|array| array.get_array_memory_size()).sum();
        matched.computed.push(values);
        matched.push(&key, Finding::Read(ts), Location { file: NO_FILE, row: 0 }, (0, 0));
    }
    Ok(matched)
}

/// The row of one key with all columns, as the statement sees it.
async fn read_one(
    run: Run<'_>,
    target: &Target,
    key: &[u8],
) -> Result<Option<(Timestamp, RecordBatch)>, SqlError> {
    let (engine, schema) = (run.query.engine(), &target.schema);
    let snapshot = run.session.block_snapshot(engine);
    let transaction = run.session.open_transaction();
    if let Some(transaction) = run.session.serializable_transaction() {
        transaction.note_keys(&target.table, [key]);
    }
    let ts = Timestamp::MAX;
    let own = transaction.map(|transaction| {
        transaction
            .own(&target.table, key, |row| row.map(|row| batch_of(schema, RowVersion { key, row, ts })))
    });
    if let Some(own) = own.transpose()?.flatten() {
        return Ok(own.transpose()?.map(|row| (ts, row)));
    }
    let view = snapshot.as_ref().map_or_else(|| engine.read_view(), |snapshot| snapshot.view());
    match engine.try_get(&target.table, key, view, |row| (row.ts, batch_of(schema, row))) {
        Lookup::Found((ts, row), _) => return Ok(Some((ts, row?))),
        Lookup::Absent(_) => return Ok(None),
        Lookup::Pending => {}
    }
    let (engine, table, schema) = (Arc::clone(engine), Arc::clone(&target.table), Arc::clone(schema));
    let key = key.to_vec();
    let read = move || {
        let _read_at = snapshot;
        let (found, _) = engine.get(&table, &key, view, |row| (row.ts, batch_of(&schema, row)))?;
        found.map(|(ts, row)| Ok((ts, row?))).transpose()
    };
    Ok(run.query.runtime().lookup(read).await?)
}

/// The row of one key: read while it is latched, unless all statements of the block see one snapshot.
async fn find_one(run: Run<'_>, target: &Target, key: Vec<u8>) -> Result<Matched, SqlError> {
    let engine = Arc::clone(run.query.engine());
    let Some(snapshot) = run.session.block_snapshot(&engine) else { return Ok(Matched::only(key)) };
    if let Some(transaction) = run.session.serializable_transaction() {
        transaction.note_keys(&target.table, [key.as_slice()]);
    }
    let own = run.session.open_transaction();
    let own = own.map(|own| own.own(&target.table, &key, |_| ())).transpose()?;
    if own.flatten().is_some() {
        return Ok(Matched::only(key));
    }
    let table = Arc::clone(&target.table);
    let read = move || {
        let (found, _) = engine.get(&table, &key, snapshot.view(), |row| row.ts)?;
        Ok((key, found))
    };
    let (key, found) = run.query.runtime().lookup(read).await?;
    let mut matched = Matched::default();
    if let Some(ts) = found {
        matched.push(&key, Finding::Read(ts), Location { file: NO_FILE, row: 0 }, (0, 0));
    }
    Ok(matched)
}

/// The query that finds the rows.
pub(crate) struct Matching {
    query: SourceQuery,
    /// Columns that the computed values are for.
    computed: Vec<Column>,
    /// Whether a row may come several times, from a join.
    repeats: bool,
}

/// Rows found.
#[derive(Default)]
pub(crate) struct Matched {
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    findings: Vec<Finding>,
    /// Where each lies; in [`NO_FILE`] if that is not known.
    locations: Vec<Location>,
    /// For each row, its place in `computed`.
    places: Vec<(u32, u32)>,
    /// Batches of computed values, of their columns' types.
    computed: Vec<Vec<ArrayRef>>,
    computed_bytes: usize,
    /// Of the snapshot on which rows were looked for first.
    found_at: Timestamp,
}

impl Matched {
    /// With those that are passed over by now.
    pub(crate) fn len(&self) -> usize {
        self.findings.len()
    }

    /// The numbers of the rows to write.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        (0..self.len()).filter(|&i| !matches!(self.findings[i], Finding::Passed)).collect()
    }

    /// The row to change, if there is one and it is still as it was read; if it is not, its number is added to `changed`.
    pub(crate) fn unchanged<'a>(
        &self,
        i: usize,
        current: Option<RowVersion<'a>>,
        changed: &mut Vec<usize>,
    ) -> Option<RowVersion<'a>> {
        match (self.findings[i], current) {
            (Finding::Read(ts), Some(current)) if current.ts == ts => Some(current),
            (Finding::Unread, current) => current,
            _ => {
                changed.push(i);
                None
            }
        }
    }

    pub(crate) fn key(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.key_ends[i - 1] };
        &self.keys[start..self.key_ends[i]]
    }

    /// The rows were where they [lie](Self::locations), and as they are known, at this snapshot.
    pub(crate) fn found_at(&self) -> Timestamp {
        self.found_at
    }

    /// Whether it is known of each row in which file it lies.
    pub(crate) fn is_in_files(&self) -> bool {
        self.locations.len() == self.len() && self.locations.iter().all(|location| location.file != NO_FILE)
    }

    /// Where the rows lie, in order, each with its number; `None` if one is not known to lie in a file.
    pub(crate) fn locations(&self) -> Option<Vec<(Location, u32)>> {
        // A scan's threads take turns in handing on batches, each of rows that follow each other in a file: so batches are sorted
        // first, and their rows hardly ever.
        let mut start = 0;
        let batches = self.places.chunk_by(|a, b| a.0 == b.0).map(|batch| {
            let first = start;
            start += batch.len();
            first..start
        });
        let mut batches: Vec<_> = batches.collect();
        batches.sort_unstable_by_key(|batch| self.locations[batch.start]);
        let mut rows = Vec::with_capacity(self.len());
        rows.extend(batches.into_iter().flatten().map(|n| (self.locations[n], n as u32)));
        rows.sort();
        rows.first().is_some_and(|(first, _)| first.file != NO_FILE).then_some(rows)
    }

    fn push(&mut self, key: &[u8], finding: Finding, location: Location, place: (u32, u32)) {
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len());
        self.findings.push(finding);
        self.locations.push(location);
        self.places.push(place);
    }

    /// In two halves.
    pub(super) fn split(mut self) -> (Self, Self) {
        let at = self.len() / 2;
        let keys_end = if at == 0 { 0 } else { self.key_ends[at - 1] };
        let computed_bytes = self.computed_bytes / 2;
        let later = Matched {
            keys: self.keys.split_off(keys_end),
            key_ends: self.key_ends.split_off(at).into_iter().map(|end| end - keys_end).collect(),
            findings: self.findings.split_off(at),
            locations: self.locations.split_off(at),
            places: self.places.split_off(at),
            computed: self.computed.clone(),
            computed_bytes,
            found_at: self.found_at,
        };
        self.computed_bytes -= computed_bytes;
        (self, later)
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        let vectors = size_of_val(self.key_ends.as_slice())
            + size_of_val(self.findings.as_slice())
            + size_of_val(self.locations.as_slice())
            + size_of_val(self.places.as_slice());
        self.keys.len() + vectors + self.computed_bytes
    }

    /// The row of one key, which need not exist.
    pub(crate) fn only(key: Vec<u8>) -> Self {
        let key_ends = vec![key.len()];
        Matched { keys: key, key_ends, findings: vec![Finding::Unread], ..Matched::default() }
    }

    /// The `n`th computed values, batch by batch.
    pub(crate) fn computed(&self, n: usize) -> impl Iterator<Item = &ArrayRef> {
        self.computed.iter().map(move |batch| &batch[n])
    }

    /// The batch of computed values that has those of row `i`, and their place in it.
    pub(crate) fn place(&self, i: usize) -> (usize, usize) {
        let (batch, row) = self.places[i];
        (batch as usize, row as usize)
    }

    /// The `n`th computed value of row `i`.
    pub(crate) fn value(&self, i: usize, n: usize, column_type: ColumnType) -> ValueRef<'_> {
        let (batch, row) = self.places[i];
        value_at(&self.computed[batch as usize][n], column_type, row as usize)
    }
}

/// `ORDER BY` and `LIMIT`.
pub(crate) type Bounds = (Option<ast::OrderBy>, Option<ast::LimitClause>);

/// What a set needs for each key beside the key itself.
const SEEN_BYTES: usize = size_of::<Vec<u8>>() * 2;

impl Matching {
    /// A query for the rows of `target` that match `selection` joined with `others`, and the values of `computed`.
    ///
    /// # Errors
    /// Those of planning.
    pub(crate) async fn plan(
        scope: Scope<'_>,
        with: Option<ast::With>,
        target: &Target,
        others: Vec<TableWithJoins>,
        selection: Option<Expr>,
        computed: Vec<(Column, Expr)>,
        types: &mut ParameterTypes,
    ) -> Result<Self, SqlError> {
        let repeats = !others.is_empty();
        let (columns, expressions): (Vec<Column>, Vec<Expr>) = computed.into_iter().unzip();
        let statement = statement(with, target, others, selection, expressions, (None, None))?;
        let query = SourceQuery::plan(scope, statement, types).await?;
        Ok(Matching { query, computed: columns, repeats })
    }

    /// A query for the rows of `target` that match `selection`: the first of them by `bounds`.
    ///
    /// # Errors
    /// Those of planning.
    pub(crate) async fn plan_within(
        scope: Scope<'_>,
        target: &Target,
        selection: Option<Expr>,
        bounds: Bounds,
        types: &mut ParameterTypes,
    ) -> Result<Self, SqlError> {
        let statement = statement(None, target, Vec::new(), selection, Vec::new(), bounds)?;
        let query = SourceQuery::plan(scope, statement, types).await?;
        Ok(Matching { query, computed: Vec::new(), repeats: false })
    }

    /// Adds the rows to `matched`; with `again`, those with these keys take the places that they have there.
    async fn find(
        &self,
        run: Run<'_>,
        target: &Target,
        room: &Room,
        matched: &mut Matched,
        again: Option<&Numbers>,
    ) -> Result<(), SqlError> {
        let mut search = self.search(run, target, again).await?;
        while search.read_on(usize::MAX, matched, room).await? {}
        Ok(())
    }

    /// Begins to look for the rows, or for those with some keys.
    ///
    /// # Errors
    /// Those of planning.
    pub(super) async fn search<'s>(
        &'s self,
        run: Run<'_>,
        target: &'s Target,
        again: Option<&'s Numbers>,
    ) -> Result<Search<'s>, SqlError> {
        let (batches, found_at) = self.rows(run, target, again).await?;
        let (batch, batch_rows, seen, seen_bytes) = (None, 0, HashSet::new(), 0);
        Ok(Search { matching: self, target, again, batches, batch, batch_rows, seen, seen_bytes, found_at })
    }

    /// Runs the query, for all rows or for those with some keys: perhaps for others besides. Tells its snapshot.
    async fn rows(
        &self,
        run: Run<'_>,
        target: &Target,
        again: Option<&Numbers>,
    ) -> Result<(RowStream, Timestamp), SqlError> {
        let (view, mut logical) = self.query.begin(run).await?;
        if let Some(numbers) = again.filter(|numbers| numbers.len() <= KEYS_NAMED_MAX) {
            logical.plan = Arc::new(with_keys(logical.plan, target, numbers)?);
        }
        let found_at = view.snapshot().ts();
        Ok((run.query.run(view, (logical, self.query.text()), None).await?, found_at))
    }
}

/// Rows of a query, as they come.
pub(super) struct Search<'s> {
    matching: &'s Matching,
    target: &'s Target,
    again: Option<&'s Numbers>,
    batches: RowStream,
    /// What is left of the last batch, and how many rows that had.
    batch: Option<RecordBatch>,
    batch_rows: usize,
    /// Keys that came, where they may come again.
    seen: HashSet<Vec<u8>>,
    seen_bytes: usize,
    found_at: Timestamp,
}

impl Search<'_> {
    /// Adds the next rows to `matched`, at most so many; false if there are none.
    ///
    /// # Errors
    /// Those of execution and of assigning the values; `TooLarge` beyond `room`.
    pub(super) async fn read_on(
        &mut self,
        rows_max: usize,
        matched: &mut Matched,
        room: &Room,
    ) -> Result<bool, SqlError> {
        let batch = match self.batch.take() {
            Some(rest) => rest,
            None => {
                let Some(batch) = self.batches.next().await.transpose()? else { return Ok(false) };
                self.batch_rows = batch.num_rows();
                batch
            }
        };
        if batch.num_rows() > rows_max {
            self.take(&batch.slice(0, rows_max), matched)?;
            self.batch = Some(batch.slice(rows_max, batch.num_rows() - rows_max));
        } else {
            self.take(&batch, matched)?;
        }
        room.hold(matched.bytes() + self.seen_bytes)?;
        Ok(true)
    }

    fn take(&mut self, batch: &RecordBatch, matched: &mut Matched) -> Result<(), SqlError> {
        if matched.len() == 0 {
            matched.found_at = self.found_at;
        }
        let schema = &self.target.schema;
        let keys = schema.key_columns().len();
        let key_columns = schema
            .key_columns()
            .enumerate()
            .map(|(i, column)| coerce(batch.column(i), column))
            .collect::<Result<Vec<_>, SqlError>>()?;
        let ts = batch.column(keys).as_primitive::<UInt64Type>();
        let files = batch.column(keys + 1).as_primitive::<UInt64Type>();
        let rows = batch.column(keys + 2).as_primitive::<UInt32Type>();
        let computed = self.matching.computed.iter().enumerate();
        let computed = computed
            .map(|(i, column)| coerce(batch.column(keys + 3 + i), column))
            .collect::<Result<Vec<_>, SqlError>>()?;
        let bytes: usize = computed.iter().map(|array| array.get_array_memory_size()).sum();
        // A slice has its share.
        matched.computed_bytes += bytes * batch.num_rows() / self.batch_rows.max(1);
        let key_columns = schema.key_columns().zip(&key_columns);
        let cells: Vec<_> = key_columns.map(|(c, array)| Cells::of(array, c.column_type)).collect();
        let mut key = Vec::new();
        for i in 0..batch.num_rows() {
            key.clear();
            key::encode_key(schema, cells.iter().map(|cells| cells.get(i)), &mut key)?;
            // PostgreSQL, too, takes one of the matches, and does not say which.
            if self.matching.repeats {
                if !self.seen.insert(key.clone()) {
                    continue;
                }
                self.seen_bytes += key.len() + SEEN_BYTES;
            }
            let found = Finding::Read(Timestamp(ts.value(i)));
            let place = (matched.computed.len() as u32, i as u32);
            match self.again {
                None => {
                    let location = Location { file: files.value(i), row: rows.value(i) };
                    matched.push(&key, found, location, place);
                }
                Some(numbers) => {
                    if let Some(&number) = numbers.get(&key) {
                        (matched.findings[number], matched.places[number]) = (found, place);
                    }
                }
            }
        }
        matched.computed.push(computed);
        Ok(())
    }
}

/// For the key of each row that is to be found again, the row's number.
type Numbers = HashMap<Vec<u8>, usize>;

/// The rows of more keys than this are found again by a query for all.
const KEYS_NAMED_MAX: usize = 1000;

/// `plan`, whose first columns are the key's, for rows whose key columns each have a value of one of these keys.
fn with_keys(plan: Arc<LogicalPlan>, target: &Target, numbers: &Numbers) -> Result<LogicalPlan, SqlError> {
    let schema = &target.schema;
    let keys: Vec<Vec<Value>> =
        numbers.keys().map(|key| key::decode_key(schema, key)).collect::<EngineResult<_>>()?;
    let names = plan.schema().columns();
    let mut plan = LogicalPlanBuilder::new_from_arc(plan);
    for (n, (column, name)) in schema.key_columns().zip(names).enumerate() {
        let values = keys.iter().map(|key| {
            let value = coerce::scalar(key[n].as_ref(), column.column_type)?;
            Ok(logical_expr::Expr::Literal(value, None))
        });
        let values = values.collect::<Result<Vec<_>, SqlError>>()?;
        let is_wanted = logical_expr::Expr::Column(name).in_list(values, false);
        plan = plan.filter(is_wanted).map_err(QueryEngine::error)?;
    }
    plan.build().map_err(QueryEngine::error)
}

/// `SELECT alias.key AS k0, …, alias._ts AS ts0, its file and row, expression AS v0, … FROM table AS alias, others … WHERE selection`.
fn statement(
    with: Option<ast::With>,
    target: &Target,
    others: Vec<TableWithJoins>,
    selection: Option<Expr>,
    expressions: Vec<Expr>,
    (order_by, limit_clause): Bounds,
) -> Result<ast::Statement, SqlError> {
    let mut parsed = syntax::parse("select 1 from t as a")?.statement;
    let ast::Statement::Query(query) = &mut parsed else { unreachable!("a select is a query") };
    query.with = with;
    query.order_by = order_by;
    query.limit_clause = limit_clause;
    let SetExpr::Select(select) = query.body.as_mut() else { unreachable!("a select is a select") };
    if let TableFactor::Table { name, alias: Some(alias), .. } = &mut select.from[0].relation {
        let quoted = |text: &str| ObjectNamePart::Identifier(Ident::with_quote('"', text));
        *name = ObjectName(vec![quoted(&with_ts(target.table.schema_name())), quoted(target.table.name())]);
        alias.name = target.alias.clone();
    }
    select.from.extend(others);
    select.selection = selection;
    let item = |expr, prefix: &str, i: usize| SelectItem::ExprWithAlias {
        expr,
        alias: Ident::with_quote('"', format!("{prefix}{i}")),
    };
    let of_target =
        |column: &str| Expr::CompoundIdentifier(vec![target.alias.clone(), Ident::with_quote('"', column)]);
    select.projection = Vec::new();
    for (i, column) in target.schema.key_columns().enumerate() {
        select.projection.push(item(of_target(&column.name), "k", i));
    }
    let [file, row] = place_columns(&target.schema);
    for (column, name) in [(TS_COLUMN, "ts"), (&file, "file"), (&row, "row")] {
        select.projection.push(item(of_target(column), name, 0));
    }
    for (i, expr) in expressions.into_iter().enumerate() {
        select.projection.push(item(expr, "v", i));
    }
    if !target.aliased {
        shorten_names(&mut parsed, target);
    }
    Ok(parsed)
}

/// `public.t.a` as `t.a`: in the query, `t` is an alias and belongs to no schema.
fn shorten_names(statement: &mut impl VisitMut, target: &Target) {
    let _ = visit_expressions_mut(statement, |expr| {
        if let Expr::CompoundIdentifier(parts) = expr
            && parts.len() >= 3
            && fold(&parts[parts.len() - 3]) == target.table.schema_name()
            && fold(&parts[parts.len() - 2]) == target.table.name()
        {
            parts.drain(..parts.len() - 2);
            parts[0] = target.alias.clone();
        }
        ControlFlow::<()>::Continue(())
    });
}

/// A condition `key1 = constant AND key2 = constant …` over exactly the primary key.
pub(crate) struct KeyCondition(Vec<Constant>);

impl KeyCondition {
    /// `None` if the condition is another; then `types` is untouched.
    pub(crate) fn recognise(
        target: &Target,
        selection: Option<&Expr>,
        types: &mut ParameterTypes,
    ) -> Option<Self> {
        let mut found = vec![None; target.schema.key().len()];
        let mut noted = types.clone();
        collect(target, selection?, &mut noted, &mut found)?;
        let constants = found.into_iter().collect::<Option<Vec<_>>>()?;
        *types = noted;
        Some(KeyCondition(constants))
    }

    /// For each key column, in key order, what it is equal to.
    pub(crate) fn constants(&self) -> &[Constant] {
        &self.0
    }

    /// The encoded key; `None` if a part of it is null, which equals nothing.
    ///
    /// # Errors
    /// `Invalid` for a parameter that is no value of its column.
    pub(crate) fn key(
        &self,
        schema: &Schema,
        parameters: Parameters<'_>,
    ) -> Result<Option<Vec<u8>>, SqlError> {
        let columns = schema.key_columns().zip(&self.0);
        let values = columns.map(|(column, constant)| constant.value(column, parameters));
        let values = values.collect::<Result<Vec<_>, SqlError>>()?;
        if values.iter().any(oribi_types::Value::is_null) {
            return Ok(None);
        }
        let mut encoded = Vec::new();
        key::encode_key(schema, values.iter().map(oribi_types::Value::as_ref), &mut encoded)?;
        Ok(Some(encoded))
    }
}

fn collect(
    target: &Target,
    condition: &Expr,
    types: &mut ParameterTypes,
    found: &mut [Option<Constant>],
) -> Option<()> {
    match condition {
        Expr::Nested(inner) => collect(target, inner, types, found),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            collect(target, left, types, found)?;
            collect(target, right, types, found)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            let (name, value) = match (column_name(target, left), column_name(target, right)) {
                (Some(name), None) => (name, right),
                (None, Some(name)) => (name, left),
                _ => return None,
            };
            let component = target.schema.key_columns().position(|c| c.name == name)?;
            let column = &target.schema.columns()[target.schema.key()[component]];
            if found[component].is_some() {
                return None;
            }
            found[component] = Some(exact(value, column, types)?);
            Some(())
        }
        _ => None,
    }
}

/// The name of a column of the target.
fn column_name(target: &Target, expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(fold(ident)),
        Expr::CompoundIdentifier(parts) if parts.len() == 2 && fold(&parts[0]) == fold(&target.alias) => {
            Some(fold(&parts[1]))
        }
        _ => None,
    }
}

/// Whether every value of the one type is a value of the other: clients send an integer as the narrowest type.
fn widens(from: ColumnType, to: ColumnType) -> bool {
    from.is_integer() && to.is_integer() && from.fixed_width() <= to.fixed_width()
}

/// A constant that equals `column` exactly when it is equal after assignment to it: `id = 1.5` is not one.
fn exact(expr: &Expr, column: &Column, types: &mut ParameterTypes) -> Option<Constant> {
    let Expr::Value(value) = expr else { return None };
    let comparable = match &value.value {
        ast::Value::Number(digits, _) => {
            column.column_type.is_integer() && digits.bytes().all(|b| b.is_ascii_digit())
        }
        ast::Value::SingleQuotedString(_) => matches!(
            column.column_type,
            ColumnType::String | ColumnType::Uuid | ColumnType::Date | ColumnType::Timestamp
        ),
        ast::Value::Placeholder(name) => {
            let n = super::constant::parameter_number(name).ok()?;
            types.note_compared(n, Some(column.column_type));
            types.get(n).is_some_and(|given| given == column.column_type || widens(given, column.column_type))
        }
        _ => false,
    };
    if !comparable {
        return None;
    }
    // A literal that is no value of the column is left to the planner and its errors.
    Constant::compile(expr, column, types).ok().flatten()
}
