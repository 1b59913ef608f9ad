//! A query that a statement reads from.

use super::coerce::scalar;
use super::constant::{ParameterTypes, parameter_number};
use super::{Run, Scope};
use crate::context::{Logical, MadeFor, QueryEngine, StatementView};
use crate::delivery;
use crate::literals;
use crate::number;
use crate::one_type;
use crate::pg_catalog;
use crate::planners::{self, Length};
use crate::table_names;
use crate::unread;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ParamValues;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use oribi_session::sql::{RowStream, SqlError};
use oribi_types::{ColumnType, ErrorKind, Value};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

/// Constants of longer texts, with those of their parameters, are computed as other queries are.
const CONSTANT_BYTES_MAX: usize = 64 << 10;

/// Whoever asks whether there is somebody wants fewer columns.
const LITERALS_MAX: usize = 4;

/// A query that was planned. Each run has a new snapshot, and plans it again if the catalog or the session's settings are
/// others.
#[derive(Clone)]
pub(crate) struct SourceQuery {
    /// It may be so deep that only threads that plan can copy it.
    statement: Arc<ast::Statement>,
    /// The text that the tree's positions are in.
    sql: Arc<str>,
    schema: SchemaRef,
    planned: Arc<Planned>,
    /// The row, once it was computed; `None` for what is more than literals.
    row: Option<Arc<OnceLock<RecordBatch>>>,
}

/// A query's plan.
struct Planned {
    /// `None`: for nothing but what it was made with.
    made_for: Option<MadeFor>,
    logical: Logical,
}

impl SourceQuery {
    /// Plans `statement` and notes the types of its parameters.
    ///
    /// # Errors
    /// Those of planning; `Unsupported` for anything but a query.
    pub(crate) async fn plan(
        scope: Scope<'_>,
        statement: ast::Statement,
        types: &mut ParameterTypes,
    ) -> Result<Self, SqlError> {
        check_written_width(&statement)?;
        let row = is_literal(&statement).then(Arc::default);
        let statement = Arc::new(statement);
        let view = scope.query.view(scope.session);
        let planned = plan(scope.query, &view, &statement, scope.sql).await?;
        let plan = &planned.logical.plan;
        let parameters = parameters(plan)?;
        let casts = if parameters.is_empty() { HashMap::new() } else { cast_parameters(plan)? };
        for (name, arrow) in parameters {
            let n = parameter_number(&name)?;
            if let Some(arrow) = &arrow {
                types.note_moment(n, arrow);
            }
            let column_type = arrow.and_then(|arrow| ColumnType::from_arrow(&arrow).ok());
            types.note_compared(n, column_type.or_else(|| casts.get(&name).copied()));
        }
        let schema = pg_catalog::output_schema(&statement, plan.schema().as_arrow());
        let row = row.filter(|_| planners::is_constant(plan) && schema.fields().len() <= LITERALS_MAX);
        Ok(SourceQuery { statement, sql: Arc::clone(scope.sql), schema, planned: Arc::new(planned), row })
    }

    /// Whether it is literals alone, as `SELECT 1` is, by which clients see whether there is somebody: from its second execution on, it waits
    /// for no thread that plans.
    pub(crate) fn is_literal(&self) -> bool {
        self.row.is_some()
    }

    /// What the plan takes in memory, about.
    pub(crate) fn plan_bytes(&self) -> usize {
        PART_BYTES * planners::parts(&self.planned.logical.plan, usize::MAX)
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Of the statement that it is part of.
    pub(crate) fn text(&self) -> &str {
        &self.sql
    }

    /// Its rows, for a statement that takes all of them.
    ///
    /// # Errors
    /// Those of planning.
    pub(crate) async fn run(&self, run: Run<'_>) -> Result<RowStream, SqlError> {
        let (view, logical) = self.begin(run).await?;
        run.query.run(view, (logical, &self.sql), None).await
    }

    /// Its rows, for a client that may leave them unread.
    ///
    /// # Errors
    /// Those of planning; 53200 if there is no room for too long.
    pub(crate) async fn run_for_client(&self, run: Run<'_>) -> Result<RowStream, SqlError> {
        if let Some(row) = self.row.as_ref().and_then(|row| row.get()) {
            // As with any statement, what its block sees begins here.
            run.session.block_snapshot(run.query.engine());
            return Ok(made(row.clone(), run));
        }
        if planners::is_constant(&self.planned.logical.plan)
            && self.is_computed_quickly(run.parameters.values)
            && let Some(row) = self.compute(run).await?
        {
            return Ok(row);
        }
        // What it sees, it sees from when it has room.
        let admitted = match unread::is_short(&self.schema) {
            true => None,
            false => Some(run.query.unread().admit().await?),
        };
        let (view, logical) = self.begin(run).await?;
        run.query.run(view, (logical, &self.sql), admitted).await
    }

    /// As [`run_for_client`](Self::run_for_client), for one that will leave them unread for long, of however few bytes they are.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn run_for_cursor(&self, run: Run<'_>) -> Result<RowStream, SqlError> {
        let admitted = run.query.unread().admit().await?;
        let (view, logical) = self.begin(run).await?;
        run.query.run(view, (logical, &self.sql), Some(admitted)).await
    }

    /// Whether what a constant is computed from is short.
    fn is_computed_quickly(&self, parameters: &[Value]) -> bool {
        let bytes = |value: &Value| match value {
            Value::String(text) | Value::Json(text) => text.len(),
            Value::Binary(bytes) => bytes.len(),
            _ => 0,
        };
        self.sql.len() + parameters.iter().map(bytes).sum::<usize>() <= CONSTANT_BYTES_MAX
    }

    /// The row of a constant.
    async fn compute(&self, run: Run<'_>) -> Result<Option<RowStream>, SqlError> {
        let (view, logical) = self.begin(run).await?;
        if !planners::is_constant(&logical.plan) {
            return Ok(None);
        }
        let row = run.query.compute(view, logical).await?;
        if let (Some(computed), Some(row)) = (&self.row, &row) {
            let _ = computed.set(row.clone());
        }
        Ok(row.map(|row| made(row, run)))
    }

    /// A new snapshot, and the plan for it.
    ///
    /// # Errors
    /// Those of planning.
    pub(crate) async fn begin(&self, run: Run<'_>) -> Result<(Arc<StatementView>, Logical), SqlError> {
        let view = run.query.view_narrowed(run.session, run.narrowed.cloned());
        let mut planned = Arc::clone(&self.planned);
        if planned.made_for != Some(view.made_for()) {
            planned = Arc::new(plan(run.query, &view, &self.statement, &self.sql).await?);
        }
        Ok((view, with_parameters(&planned.logical, run)?))
    }
}

fn made(row: RecordBatch, run: Run<'_>) -> RowStream {
    let counted = run.query.unread().count(&row);
    delivery::made(row, counted)
}

/// Whether all expressions of a statement are literals.
fn is_literal(statement: &ast::Statement) -> bool {
    let literal = |expr: &ast::Expr| match expr {
        ast::Expr::Value(value) if !matches!(value.value, ast::Value::Placeholder(_)) => {
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Break(()),
    };
    ast::visit_expressions(statement, literal).is_continue()
}

/// What a part of a plan takes: a column of a node with its name, or an expression with what is written there.
const PART_BYTES: usize = 256;

/// The most columns of a result, as PostgreSQL has it: its protocol counts them with 16 bits.
const RESULT_COLUMNS_MAX: usize = 1664;

/// # Errors
/// `TooLarge` (54011).
fn check_result_width(columns: usize) -> Result<(), SqlError> {
    if columns <= RESULT_COLUMNS_MAX {
        return Ok(());
    }
    let message = format!("target lists can have at most {RESULT_COLUMNS_MAX} entries");
    Err(SqlError::new(ErrorKind::TooLarge, message).with_sqlstate("54011"))
}

/// Checks the columns that each `SELECT` and `VALUES` of a statement writes out: planning thousands takes long.
///
/// # Errors
/// `TooLarge` (54011).
fn check_written_width(statement: &ast::Statement) -> Result<(), SqlError> {
    match statement.visit(&mut Widths) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Widths;

impl Visitor for Widths {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<SqlError> {
        match check_body(&query.body) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn check_body(body: &ast::SetExpr) -> Result<(), SqlError> {
    match body {
        ast::SetExpr::Select(select) => check_result_width(select.projection.len()),
        ast::SetExpr::Values(values) => {
            check_result_width(values.rows.iter().map(|row| row.content.len()).max().unwrap_or(0))
        }
        ast::SetExpr::SetOperation { left, right, .. } => {
            check_body(left)?;
            check_body(right)
        }
        _ => Ok(()),
    }
}

/// Checks what each `SELECT` of a plan yields, `*` included.
///
/// # Errors
/// `TooLarge` (54011).
fn check_planned_width(plan: &LogicalPlan) -> Result<(), SqlError> {
    let mut widest = plan.schema().fields().len();
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::Projection(projection) = plan {
            widest = widest.max(projection.expr.len());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(QueryEngine::error)?;
    check_result_width(widest)
}

/// The parameters, each with the first type that is wanted where it stands: as in PostgreSQL, one that is compared with an
/// `integer` and then with a `bigint` is an `integer`. DataFusion's own list wants the same field everywhere.
fn parameters(plan: &LogicalPlan) -> Result<HashMap<String, Option<DataType>>, SqlError> {
    let mut found: HashMap<String, Option<DataType>> = HashMap::new();
    let mut note = |expr: &Expr| {
        if let Expr::Placeholder(parameter) = expr {
            let wanted = parameter.field.as_ref().map(|field| field.data_type().clone());
            let first = found.entry(parameter.id.clone()).or_default();
            *first = first.take().or(wanted);
        }
        Ok(TreeNodeRecursion::Continue)
    };
    plan.apply_with_subqueries(|plan| plan.apply_expressions(|expr| expr.apply(&mut note)))
        .map_err(QueryEngine::error)?;
    Ok(found)
}

/// The types that parameters are cast to, of each the first: `$1::date` says what `$1` is, as in PostgreSQL.
fn cast_parameters(plan: &LogicalPlan) -> Result<HashMap<String, ColumnType>, SqlError> {
    let mut casts = HashMap::new();
    let mut note = |expr: &Expr| {
        if let Expr::Cast(cast) = expr
            && let Expr::Placeholder(parameter) = cast.expr.as_ref()
            && let Some(column_type) = literals::type_of_parameter(&cast.field)
        {
            casts.entry(parameter.id.clone()).or_insert(column_type);
        }
        Ok(TreeNodeRecursion::Continue)
    };
    plan.apply_with_subqueries(|plan| plan.apply_expressions(|expr| expr.apply(&mut note)))
        .map_err(QueryEngine::error)?;
    Ok(casts)
}

/// `logical` with the values of its parameters.
fn with_parameters(logical: &Logical, run: Run<'_>) -> Result<Logical, SqlError> {
    let parameters = run.parameters;
    let logical = logical.clone();
    if parameters.values.is_empty() {
        return Ok(logical);
    }
    let scalars = parameters
        .values
        .iter()
        .zip(parameters.types)
        .map(|(value, column_type)| scalar(value.as_ref(), *column_type))
        .collect::<Result<Vec<_>, SqlError>>()?;
    Ok(Logical { values: Some(ParamValues::from(scalars)), ..logical })
}

/// Plans where it holds up nobody; errors carry their position in `sql`.
async fn plan(
    query: &QueryEngine,
    view: &Arc<StatementView>,
    statement: &Arc<ast::Statement>,
    sql: &Arc<str>,
) -> Result<Planned, SqlError> {
    let length = Length::of_query(view, statement, sql);
    let (shared, view) = (query.shared(), Arc::clone(view));
    let (statement, sql) = (Arc::clone(statement), Arc::clone(sql));
    // In a box: it is large, and whatever waits for it would be as large, on a stack too.
    let planned = Box::pin(async move {
        let context = shared.enter(view)?;
        let made_for = (!context.reads_files_by_name()).then(|| context.view.made_for());
        let state = &context.state;
        let plan = unanalyzed(state, &statement).await.map_err(|error| QueryEngine::error_in(&sql, error))?;
        check_planned_width(&plan)?;
        check_query(&plan, &statement)?;
        Ok(Planned { made_for, logical: analyzed(state, plan)? })
    });
    query.runtime().plan(length, planned).await
}

async fn unanalyzed(
    state: &SessionState,
    statement: &ast::Statement,
) -> datafusion::common::Result<LogicalPlan> {
    let attempt = async |mut statement: ast::Statement| {
        number::mark(&mut statement);
        let statement = Statement::Statement(Box::new(statement));
        state.statement_to_plan(statement).await.and_then(one_type::settled)
    };
    let planned = attempt(statement.clone()).await;
    if !planned.as_ref().is_ok_and(table_names::is_taken_for_column) {
        return planned;
    }
    let mut renamed = statement.clone();
    table_names::rename(&mut renamed);
    attempt(renamed).await
}

/// # Errors
/// `Unsupported` for anything but a query.
fn check_query(plan: &LogicalPlan, statement: &ast::Statement) -> Result<(), SqlError> {
    let changes = matches!(
        plan,
        LogicalPlan::Ddl(_) | LogicalPlan::Dml(_) | LogicalPlan::Statement(_) | LogicalPlan::Copy(_)
    );
    if !changes {
        return Ok(());
    }
    let what = statement.to_string();
    let what = what.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    Err(SqlError::new(ErrorKind::Unsupported, format!("{what} is not supported")))
}

/// The plan with the types that its values have when it runs, and refused if it cannot run. One with parameters is
/// analyzed once their values are known.
fn analyzed(state: &SessionState, plan: LogicalPlan) -> Result<Logical, SqlError> {
    if !parameters(&plan)?.is_empty() {
        return Ok(Logical { plan: Arc::new(plan), values: None, is_analyzed: false });
    }
    let analyzed = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {});
    let plan = Arc::new(analyzed.map_err(QueryEngine::error)?);
    Ok(Logical { plan, values: None, is_analyzed: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::QueryOptions;
    use crate::dml::Parameters;
    use crate::{settings, syntax};
    use arrow::array::RecordBatch;
    use arrow::util::display::array_value_to_string;
    use datafusion::common::ScalarValue;
    use datafusion::common::stats::Precision;
    use datafusion::logical_expr::TableSource;
    use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
    use futures::future::join_all;
    use futures::{StreamExt, poll};
    use oribi_engine::{Engine, EngineOptions};
    use oribi_env::Env;
    use oribi_session::sql::{Outcome, SqlEngine, SqlSession};
    use oribi_types::Value;

    struct Db {
        query: Arc<QueryEngine>,
        session: Arc<SqlSession>,
        _dir: tempfile::TempDir,
    }

    impl Db {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            // However slow the test is, what is in memory stays there.
            let options = EngineOptions { flush_quiet_ms: u64::MAX, ..EngineOptions::default() };
            let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
            let options = QueryOptions { threads: 2, ..QueryOptions::default() };
            let query = QueryEngine::new(engine, options).unwrap();
            Db { query, session: SqlSession::new("tester", "oribi"), _dir: dir }
        }

        async fn run(&self, sql: &str) {
            let prepared = self.query.prepare(&self.session, sql, &[]).await.unwrap();
            if let Outcome::Rows(rows) = prepared.execute(&self.session, &[]).await.unwrap() {
                rows.for_each(|batch| async move { drop(batch.unwrap()) }).await;
            }
        }

        async fn plan(&self, sql: &str) -> SourceQuery {
            let sql: Arc<str> = sql.into();
            let statement = syntax::parse(&sql).unwrap().statement;
            let scope = Scope { query: &self.query, session: &self.session, sql: &sql };
            SourceQuery::plan(scope, statement, &mut ParameterTypes::new(&[])).await.unwrap()
        }

        /// Known of a query's columns before it runs: how many rows, and of each column whether it has bounds, and which.
        async fn known(&self, sql: &str) -> (Precision<usize>, Vec<Option<(ScalarValue, ScalarValue)>>) {
            let query = self.plan(sql).await;
            let parameters = Parameters::default();
            let run = Run { query: &self.query, session: &self.session, parameters, narrowed: None };
            let (view, logical) = query.begin(run).await.unwrap();
            let plan = self.query.plan_physical(view, logical).await.unwrap().plan;
            let known = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()).unwrap();
            let bounds = known.column_statistics.iter().map(|column| {
                Some((column.min_value.get_value()?.clone(), column.max_value.get_value()?.clone()))
            });
            (known.num_rows, bounds.collect())
        }

        /// The table that a run's plan reads.
        async fn read_by(&self, query: &SourceQuery) -> Arc<dyn TableSource> {
            let parameters = Parameters::default();
            let run = Run { query: &self.query, session: &self.session, parameters, narrowed: None };
            let (_, logical) = query.begin(run).await.unwrap();
            let mut read = None;
            let noted = logical.plan.apply(|node| {
                if let LogicalPlan::TableScan(scan) = node {
                    read = Some(Arc::clone(&scan.source));
                }
                Ok(TreeNodeRecursion::Continue)
            });
            noted.unwrap();
            read.unwrap()
        }
    }

    #[tokio::test]
    async fn a_query_is_planned_once_for_a_catalog_and_settings() {
        let db = Db::new();
        db.run("create table t (k integer primary key, v text)").await;
        let query = db.plan("select v from t where v like 'x%'").await;
        let first = db.read_by(&query).await;
        db.run("insert into t values (1, 'x')").await;
        settings::set(&db.session, "application_name", Some("other")).unwrap();
        assert!(Arc::ptr_eq(&first, &db.read_by(&query).await));
        settings::set(&db.session, "search_path", Some("public")).unwrap();
        assert!(!Arc::ptr_eq(&first, &db.read_by(&query).await));
        settings::set(&db.session, "search_path", None).unwrap();
        assert!(Arc::ptr_eq(&first, &db.read_by(&query).await));
        db.run("alter table t add column w integer").await;
        assert!(!Arc::ptr_eq(&first, &db.read_by(&query).await));
    }

    #[tokio::test]
    async fn who_waits_to_be_planned_has_no_state() {
        let db = Db::new();
        let (end, ended) = tokio::sync::watch::channel(());
        let (begin, mut begun) = tokio::sync::mpsc::channel(1);
        let (places, _) = planners::Planners::places(2);
        for _ in 0..places {
            let (runtime, begin, mut ended) = (Arc::clone(db.query.runtime()), begin.clone(), ended.clone());
            let busy = async move {
                begin.send(()).await.unwrap();
                futures::executor::block_on(ended.changed()).unwrap_err();
                Ok(())
            };
            tokio::spawn(async move { runtime.plan(Length::Ordinary, busy).await });
            begun.recv().await.unwrap();
        }
        let mut waiting = Vec::from_iter(
            (0..100).map(|_| Box::pin(db.plan("select n from generate_series(1, 3) as s(n)"))),
        );
        for planned in &mut waiting {
            assert!(poll!(planned).is_pending());
        }
        assert_eq!(db.query.states_taken(), 0);
        drop(end);
        join_all(waiting).await;
        assert_eq!(db.query.states_taken(), 0);
    }

    /// Takes all room for rows that clients leave unread, and the turn.
    async fn without_room(db: &Db) -> impl Sized + use<> {
        let mut admitted = Vec::new();
        while db.query.unread().has_room() {
            admitted.push(db.query.unread().admit().await.ok().unwrap());
        }
        admitted.push(db.query.unread().admit().await.ok().unwrap());
        admitted
    }

    fn run<'a>(db: &'a Db, parameters: &'a [ColumnType], values: &'a [Value]) -> Run<'a> {
        let parameters = Parameters { types: parameters, values, now_micros: 0 };
        Run { query: &db.query, session: &db.session, parameters, narrowed: None }
    }

    #[tokio::test]
    async fn who_waits_for_room_has_no_plan_of_his_own() {
        let db = Db::new();
        db.run("create table t (k integer primary key, v text)").await;
        db.run("insert into t values (1, 'x')").await;
        let query = db.plan("select v from t where v like 'x%'").await;
        let others = without_room(&db).await;
        let mut waiting =
            Vec::from_iter((0..100).map(|_| Box::pin(query.run_for_client(run(&db, &[], &[])))));
        for rows in &mut waiting {
            assert!(poll!(rows).is_pending());
        }
        assert_eq!(Arc::strong_count(&query.planned.logical.plan), 1);
        // They see what is there when they have room.
        db.run("insert into t values (2, 'xx')").await;
        drop(others);
        for rows in join_all(waiting).await {
            let batches: Vec<_> = rows.ok().unwrap().map(|batch| batch.unwrap().num_rows()).collect().await;
            assert_eq!(batches.into_iter().sum::<usize>(), 2);
        }
    }

    #[tokio::test]
    async fn the_row_of_literals_is_kept() {
        let db = Db::new();
        let kept = async |sql: &str| {
            let query = db.plan(sql).await;
            let mut rows = query.run_for_client(run(&db, &[], &[])).await.ok().unwrap();
            rows.next().await.unwrap().unwrap();
            query.row.as_ref().is_some_and(|row| row.get().is_some())
        };
        for sql in ["select 1", "select 1 as a, 'x' as b, null, 1.5", "select true from (select 2) t"] {
            assert!(kept(sql).await, "{sql}");
        }
        for sql in
            ["select 1, 2, 3, 4, 5", "select now()", "select 1 + 1", "select date '2024-01-01'", "values (1)"]
        {
            assert!(!kept(sql).await, "{sql}");
        }
    }

    #[tokio::test]
    async fn constants_wait_for_no_room() {
        let db = Db::new();
        let _others = without_room(&db).await;
        let text = |row: RecordBatch| {
            let values = row.columns().iter().map(|column| array_value_to_string(column, 0).unwrap());
            values.collect::<Vec<_>>().join("|")
        };
        for (sql, expected) in [
            ("select 1", "1"),
            ("select 'x' || 'y', 2 * 3", "xy|6"),
            ("select x + 1 from (select 1 as x) t", "2"),
        ] {
            let rows = db.plan(sql).await.run_for_client(run(&db, &[], &[])).await.ok().unwrap();
            let rows: Vec<_> = rows.map(|row| text(row.unwrap())).collect().await;
            assert_eq!(rows, [expected], "{sql}");
        }
        let error = db.plan("select 1 / 0").await.run_for_client(run(&db, &[], &[])).await.err().unwrap();
        assert_eq!(error.sqlstate, Some("22012"));
        let query = db.plan("select $1::bigint + 1").await;
        let rows =
            query.run_for_client(run(&db, &[ColumnType::Int64], &[Value::Int64(7)])).await.ok().unwrap();
        assert_eq!(rows.map(|row| text(row.unwrap())).collect::<Vec<_>>().await, ["8"]);
        // What makes much waits as others do, and so does what reads.
        let large = db.plan("select repeat('x', 1000000)").await;
        let mut waiting = Box::pin(large.run_for_client(run(&db, &[], &[])));
        while !db.query.unread().is_awaited() {
            assert!(poll!(&mut waiting).is_pending());
            tokio::task::yield_now().await;
        }
        for (constant, sql) in [
            (true, "select now(), current_user"),
            (false, "select (select count(*) from generate_series(1, 3))"),
            (false, "select n from generate_series(1, 3) as s(n)"),
            (false, "values (1)"),
            (false, "select 1 union all select 2"),
        ] {
            assert_eq!(planners::is_constant(&db.plan(sql).await.planned.logical.plan), constant, "{sql}");
        }
    }

    #[tokio::test]
    async fn few_rows_in_memory_leave_bounds_of_columns() {
        let db = Db::new();
        db.run("create table t (k bigint primary key, n bigint, v text)").await;
        db.run("insert into t select n, n, 'v' || n from generate_series(100, 200) as s(n)").await;
        db.query.engine().flush(&db.query.engine().table("public", "t").unwrap()).unwrap();
        db.run("insert into t values (1, 999, null), (2, -1, 'w')").await;
        db.run("delete from t where k = 200").await;
        let query = db.plan("select n, v, k from t").await;
        let parameters = Parameters::default();
        let run = Run { query: &db.query, session: &db.session, parameters, narrowed: None };
        let (view, logical) = query.begin(run).await.unwrap();
        let plan = db.query.plan_physical(view, logical).await.unwrap().plan;
        let known = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()).unwrap();
        // Those in memory may replace or delete others: they are not looked up while a statement is planned.
        assert_eq!(known.num_rows, Precision::Inexact(104));
        let int = |n| Precision::Inexact(ScalarValue::Int64(Some(n)));
        let text = |t: &str| Precision::Inexact(ScalarValue::Utf8View(Some(t.to_owned())));
        let [n, v, k] = known.column_statistics.as_slice() else { panic!("{known:?}") };
        assert_eq!((&n.min_value, &n.max_value), (&int(-1), &int(999)));
        assert_eq!((&v.min_value, &v.max_value), (&text("v100"), &text("w")));
        assert_eq!((&k.min_value, &k.max_value), (&int(1), &int(200)));
        assert_eq!(v.null_count, Precision::Inexact(1));
    }

    #[tokio::test]
    async fn many_rows_in_memory_leave_bounds_once_they_stay_as_they_are() {
        let db = Db::new();
        db.run("create table t (k bigint primary key, n bigint, v text) partition by hash (k) partitions 2")
            .await;
        db.run("insert into t select n, n, 'v' || n from generate_series(100, 200) as s(n)").await;
        db.query.engine().flush(&db.query.engine().table("public", "t").unwrap()).unwrap();
        db.run("insert into t select n, n, null from generate_series(1000, 41000) as s(n)").await;
        let int = |n| ScalarValue::Int64(Some(n));
        let n = async |sql: &str| db.known(sql).await.1.remove(0);
        assert_eq!(n("select n from t").await, None, "they are new");
        assert_eq!(n("select n from t").await, Some((int(100), int(41_000))));
        assert_eq!(n("select k from t").await, Some((int(100), int(41_000))), "of other columns at once");
        // A row that changes widens them, and one that goes leaves them.
        db.run("update t set n = -5 where k = 2000").await;
        assert_eq!(n("select n from t").await, Some((int(-5), int(41_000))));
        db.run("delete from t where k = 2000").await;
        assert_eq!(n("select n from t").await, Some((int(-5), int(41_000))));
        // Files have their own.
        db.query.engine().flush(&db.query.engine().table("public", "t").unwrap()).unwrap();
        assert_eq!(n("select n from t").await, Some((int(100), int(41_000))));
    }

    #[tokio::test]
    async fn nothing_of_a_statement_is_left_when_it_has_ended() {
        let db = Db::new();
        let zones = ["UTC", "Europe/Berlin", "UTC", "Europe/Berlin", "Asia/Tokyo"];
        for zone in zones {
            settings::set(&db.session, "timezone", Some(zone)).unwrap();
            let context = db.query.begin(&db.session).unwrap();
            let view = Arc::downgrade(&context.view);
            drop(context);
            assert!(view.upgrade().is_none(), "{zone}");
        }
    }
}
