//! Statements: from text to a plan, and from a plan to an answer.
//!
//! A prepared statement is planned for the catalog and the session's settings of that moment; if either changed when
//! it is executed, it is planned again. One that found its rows changed between read and write is tried again on a new snapshot.

use crate::advisory::Advisory;
use crate::block;
use crate::context::{MadeFor, QueryEngine, StatementView};
use crate::copy::Copy;
use crate::cursor::{Declare, Fetch};
use crate::ddl::Ddl;
use crate::dml::{
    Delete, Insert, LockingQuery, ParameterTypes, Parameters, PointWrite, Run, Scope, SourceQuery, Update,
};
use crate::explain::{Explain, ExplainOptions};
use crate::partitions::ShowTable;
use crate::planners::Length;
use crate::point::PointRead;
use crate::sequences;
use crate::settings::{self, Control};
use crate::shape::{Literal, Shape};
use crate::syntax::{self, Parsed};
use crate::timeout;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast::{self, SetExpr, Statement};
use futures::future::BoxFuture;
use futures::{FutureExt, stream};
use oribi_engine::{Obligation, Snapshot};
use oribi_session::sql::{
    self, CopyStatement, Outcome, Point, Prepared, Release, SqlEngine, SqlError, SqlSession,
    TransactionStatus,
};
use oribi_types::{ColumnType, Error, ErrorKind, Value};
use std::future::Future;
use std::ops::{Deref, Range};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Texts up to this length are read and planned on the thread that serves the client, in a few milliseconds at most.
const INLINE_BYTES_MAX: usize = 8 << 10;

#[async_trait]
impl SqlEngine for QueryEngine {
    async fn split(&self, script: &str) -> Result<Vec<Range<usize>>, SqlError> {
        let text = script.to_owned();
        self.read(script.len(), async move { syntax::split(&text) }).await
    }

    async fn prepare(
        &self,
        session: &Arc<SqlSession>,
        sql: &str,
        parameter_types: &[Option<ColumnType>],
    ) -> Result<Arc<dyn Prepared>, SqlError> {
        let prepare = prepare(self.shared(), Arc::clone(session), sql.into(), parameter_types.to_vec());
        let prepare = Box::pin(prepare);
        let prepared = timeout::limited_planning(session, self.read(sql.len(), prepare)).await;
        if prepared.is_err() {
            session.fail();
        }
        let prepared = Arc::new(prepared?);
        if prepared.is_executed_quickly() && !changes_catalog(session) {
            Box::pin(self.remember(session, &prepared)).await;
        }
        Ok(self.executable(prepared))
    }

    fn recall(
        &self,
        session: &SqlSession,
        sql: &str,
        parameter_types: &[Option<ColumnType>],
    ) -> Option<Arc<dyn Prepared>> {
        Some(self.executable(self.remembered().recall(self, session, sql, parameter_types)?))
    }

    fn recall_with_literals(
        &self,
        session: &SqlSession,
        sql: &str,
    ) -> Option<(Arc<dyn Prepared>, Vec<Value>)> {
        let (prepared, values) = self.remembered().recall_with_literals(self, session, sql)?;
        Some((self.executable(prepared), values))
    }

    fn set(&self, session: &SqlSession, name: &str, value: &str) -> Result<(), SqlError> {
        settings::set(session, name, Some(value))
    }

    fn settled(&self, obligation: Obligation) -> Option<BoxFuture<'static, Result<(), Error>>> {
        if self.engine().is_settled(obligation) {
            return None;
        }
        match self.engine().settled(obligation).now_or_never() {
            Some(Ok(())) => None,
            Some(Err(stopped)) => Some(async { Err(stopped) }.boxed()),
            None => Some(self.engine().settled(obligation).boxed()),
        }
    }

    fn begin_series(&self, session: &SqlSession) {
        block::begin_series(self, session);
    }

    async fn end_series(&self, session: &Arc<SqlSession>, commit: bool) -> Result<(), SqlError> {
        block::end_series(&self.shared(), session, commit).await
    }

    fn awaits_clients(&self) -> bool {
        self.unread().is_awaited()
    }

    fn end_cursors_until(&self, time: Instant) {
        self.cursors().end_until(time);
    }

    fn unread_bytes(&self) -> (u64, u64) {
        self.unread().bytes()
    }
}

impl QueryEngine {
    /// The scans of a query, each as bytes that another process [reads](Self::scan_rows) over the same folder, and the snapshot
    /// that they are at, to be kept as long.
    ///
    /// # Errors
    /// Those of a query; `Unsupported`, naming what does not travel.
    pub async fn scans(
        &self,
        session: &Arc<SqlSession>,
        sql: &str,
    ) -> Result<(Vec<Vec<u8>>, Arc<Snapshot>), SqlError> {
        let (view, plan) = self.planned(session, sql).await?;
        let scans = self.encoded_scans(&plan, &view).map_err(QueryEngine::error)?;
        Ok((scans, Arc::clone(view.snapshot())))
    }

    /// The plan of a query, before it is shared out, and the snapshot that it is at, to be kept as long.
    ///
    /// # Errors
    /// Those of a query.
    pub async fn plan_of(
        &self,
        session: &Arc<SqlSession>,
        sql: &str,
    ) -> Result<(Arc<dyn ExecutionPlan>, Arc<Snapshot>), SqlError> {
        let (view, plan) = self.planned(session, sql).await?;
        Ok((plan, Arc::clone(view.snapshot())))
    }

    async fn planned(
        &self,
        session: &Arc<SqlSession>,
        sql: &str,
    ) -> Result<(Arc<StatementView>, Arc<dyn ExecutionPlan>), SqlError> {
        let (query, sql) = (&self.shared(), Arc::from(sql));
        session.begin_statement(|| query.now_micros());
        let parsed = syntax::parse(&sql)?;
        let scope = Scope { query, session, sql: &sql };
        let source = SourceQuery::plan(scope, parsed.statement, &mut ParameterTypes::new(&[])).await?;
        let run = Run { query, session, parameters: Parameters::default(), narrowed: None };
        let (view, logical) = source.begin(run).await?;
        let plan = self.plan_physical(Arc::clone(&view), logical).await?.plan;
        Ok((view, plan))
    }

    fn executable(&self, preparation: Arc<Preparation>) -> Arc<dyn Prepared> {
        Arc::new(PreparedStatement { query: self.shared(), preparation })
    }

    /// Remembers a statement that was prepared, and its shape, if they have come before.
    async fn remember(&self, session: &Arc<SqlSession>, prepared: &Arc<Preparation>) {
        let (remembered, sql, given) = (self.remembered(), &prepared.sql, &prepared.given);
        remembered.note(prepared, sql, given);
        // Literals alone have none: their columns have the types that those have.
        let shape = if given.is_empty() && !prepared.is_literal() { Shape::of(sql) } else { None };
        let shape = shape.filter(|shape| !shape.literals.is_empty());
        let Some(shape) = shape.filter(|shape| remembered.asks_for(prepared.made_for, shape)) else { return };
        let of_shape = self.prepare_shape(session, &shape).await.ok();
        let of_shape = of_shape.filter(|of_shape| {
            of_shape.is_executed_quickly() && of_shape.plan.columns() == prepared.plan.columns()
        });
        remembered.insert_shape(prepared.made_for, &shape, of_shape.map(Arc::new));
    }

    /// Prepares a shape. Parameters have the types of their literals, but where they are only stored: there those of the columns.
    async fn prepare_shape(&self, session: &Arc<SqlSession>, shape: &Shape) -> Result<Preparation, SqlError> {
        let prepare = |given| prepare(self.shared(), Arc::clone(session), shape.text.as_str().into(), given);
        let given: Vec<_> = shape.literals.iter().map(Literal::column_type).collect();
        let first = prepare(given.clone()).await?;
        let of_literals = given.iter().enumerate();
        let compared: Vec<_> =
            of_literals.map(|(n, given)| given.filter(|_| first.types.is_compared(n))).collect();
        if compared == given { Ok(first) } else { prepare(compared).await }
    }

    /// Runs `work`, which reads a text of `bytes` bytes, as what plans if it would hold up other clients.
    async fn read<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, SqlError> {
        if bytes <= INLINE_BYTES_MAX {
            work.await
        } else {
            self.runtime().plan(Length::of_text(bytes), work).await
        }
    }
}

async fn prepare(
    query: Arc<QueryEngine>,
    session: Arc<SqlSession>,
    sql: Arc<str>,
    given: Vec<Option<ColumnType>>,
) -> Result<Preparation, SqlError> {
    let parsed = syntax::parse(&sql)?;
    if !settings::ends_block(&parsed.statement) {
        block::admit(&session)?;
    }
    session.begin_statement(|| query.now_micros());
    let made_for = MadeFor::now(&query, &session);
    let (plan, types) = plan(&query, &session, &sql, parsed.clone(), &given).await?;
    let parameters = types.types();
    let write = plan.point_write(&query, &parameters);
    let again = Mutex::default();
    Ok(Preparation { sql, parsed, given, types, parameters, made_for, plan, write, again })
}

/// A statement that was prepared, and what executes it.
struct PreparedStatement {
    query: Arc<QueryEngine>,
    preparation: Arc<Preparation>,
}

impl Deref for PreparedStatement {
    type Target = Preparation;

    fn deref(&self) -> &Preparation {
        &self.preparation
    }
}

/// What is known of a statement that was prepared. It has no part in the query engine, which may remember it.
pub(crate) struct Preparation {
    sql: Arc<str>,
    parsed: Parsed,
    /// The types of parameters that the client gave.
    given: Vec<Option<ColumnType>>,
    types: ParameterTypes,
    parameters: Vec<ColumnType>,
    /// What `plan` was made for, and with it the point read or write.
    made_for: MadeFor,
    plan: Plan,
    /// The plan as a write of one row, if it is one.
    write: Option<PointWrite>,
    /// The last plan that was made when `plan` did not hold any more.
    again: Mutex<Option<(MadeFor, Arc<Plan>)>>,
}

/// What a statement does.
enum Plan {
    Query(SourceQuery),
    Locking(LockingQuery),
    Point(PointRead),
    Explain(Explain),
    Insert(Insert),
    Update(Update),
    Delete(Delete),
    Copy(Copy),
    Ddl(Arc<Ddl>),
    Declare(Declare),
    Fetch(Fetch),
    Advisory(Advisory),
    Sequences(sequences::Calls),
    Show(ShowTable),
    Control(Control),
}

async fn plan(
    query: &Arc<QueryEngine>,
    session: &Arc<SqlSession>,
    sql: &Arc<str>,
    parsed: Parsed,
    given: &[Option<ColumnType>],
) -> Result<(Plan, ParameterTypes), SqlError> {
    let scope = Scope { query, session, sql };
    let mut types = ParameterTypes::new(given);
    let plan = if let Some(show) = ShowTable::plan(session, query.engine(), &parsed.statement)? {
        Plan::Show(show)
    } else if let Some(control) = Control::plan(session, &parsed.statement)? {
        Plan::Control(control)
    } else if let Err(refused) = block::admit_work(session, written(&parsed.statement)) {
        return Err(refused);
    } else if let Some(ddl) = Ddl::plan(scope, &parsed, &mut types).await? {
        Plan::Ddl(Arc::new(ddl))
    } else if let Some(advisory) = Advisory::plan(&parsed.statement, &mut types)? {
        Plan::Advisory(advisory)
    } else if let Some(calls) = sequences::Calls::plan(scope, &parsed.statement, &mut types).await? {
        if let Some(what) = calls.writes() {
            block::admit_work(session, Some(what))?;
        }
        Plan::Sequences(calls)
    } else if let Some(fetch) = Fetch::plan(session, &parsed.statement)? {
        Plan::Fetch(fetch)
    } else if let Some(declare) = Declare::plan(scope, &parsed.statement, &mut types).await? {
        Plan::Declare(declare)
    } else {
        plan_statement(scope, None, parsed.statement, &mut types).await?
    };
    Ok((plan, types))
}

/// What a statement is called that is sure to write, by its first word.
fn written(statement: &Statement) -> Option<&'static str> {
    match statement {
        Statement::Insert(_) => Some("INSERT"),
        Statement::Update(_) => Some("UPDATE"),
        Statement::Delete(_) => Some("DELETE"),
        _ => None,
    }
}

/// Plans a statement about rows. `with` are the common table expressions that stood before it.
fn plan_statement<'a>(
    scope: Scope<'a>,
    with: Option<ast::With>,
    statement: Statement,
    types: &'a mut ParameterTypes,
) -> Pin<Box<dyn Future<Output = Result<Plan, SqlError>> + Send + 'a>> {
    Box::pin(async move {
        Ok(match statement {
            Statement::Insert(insert) => Plan::Insert(Insert::plan(scope, with, insert, types).await?),
            Statement::Update(update) => Plan::Update(Update::plan(scope, with, update, types).await?),
            Statement::Delete(delete) => Plan::Delete(Delete::plan(scope, with, delete, types).await?),
            Statement::Copy { .. } => Plan::Copy(Copy::plan(scope, statement, types).await?),
            Statement::Explain { .. } => plan_explain(scope, statement, types).await?,
            Statement::Query(query) => match *query {
                // `WITH … INSERT`: the parser hangs the statement below the query.
                ast::Query { with, body, .. }
                    if matches!(*body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_)) =>
                {
                    let (SetExpr::Insert(inner) | SetExpr::Update(inner) | SetExpr::Delete(inner)) = *body
                    else {
                        unreachable!("the body is one of these")
                    };
                    plan_statement(scope, with, inner, types).await?
                }
                query if !query.locks.is_empty() => {
                    Plan::Locking(LockingQuery::plan(scope, query, types).await?)
                }
                query => {
                    check_query(&query)?;
                    let statement = Statement::Query(Box::new(query));
                    match PointRead::recognise(scope.query, scope.session, &statement, types.known()) {
                        Some(point) => {
                            let parameters = point.parameters().iter().enumerate();
                            parameters
                                .for_each(|(n, column_type)| types.note_compared(n, Some(*column_type)));
                            Plan::Point(point)
                        }
                        None => Plan::Query(SourceQuery::plan(scope, statement, types).await?),
                    }
                }
            },
            Statement::ShowTables { .. } | Statement::ShowColumns { .. } => {
                Plan::Query(SourceQuery::plan(scope, statement, types).await?)
            }
            other => return Err(unsupported(&other)),
        })
    })
}

/// `EXPLAIN` of a statement that writes shows the query that it reads from. `EXPLAIN ANALYZE` of one runs that query
/// and writes nothing.
async fn plan_explain(
    scope: Scope<'_>,
    explain: Statement,
    types: &mut ParameterTypes,
) -> Result<Plan, SqlError> {
    let options = ExplainOptions::of(&explain)?;
    let Statement::Explain { statement, .. } = explain else { unreachable!("an explain") };
    let what = statement.to_string();
    let inner = plan_statement(scope, None, *statement, types).await?;
    let (writes, reads) = match inner {
        Plan::Query(query) => return Ok(Plan::Explain(Explain::query(query, options))),
        Plan::Point(point) => return Ok(Plan::Explain(Explain::point(point, options))),
        Plan::Insert(insert) => (insert.describe(), insert.query().cloned()),
        Plan::Update(update) => (update.describe(), update.query().cloned()),
        Plan::Delete(delete) => (delete.describe(), delete.query().cloned()),
        _ => {
            let words = what.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            return Err(SqlError::new(ErrorKind::Unsupported, format!("EXPLAIN {words} is not supported")));
        }
    };
    Ok(Plan::Explain(Explain::write(&writes, reads, options)))
}

fn check_query(query: &ast::Query) -> Result<(), SqlError> {
    if matches!(query.body.as_ref(), SetExpr::Select(select) if select.into.is_some()) {
        return Err(SqlError::new(ErrorKind::Unsupported, "SELECT INTO is not supported")
            .with_hint("use CREATE TABLE … AS"));
    }
    Ok(())
}

fn unsupported(statement: &Statement) -> SqlError {
    let text = statement.to_string();
    let words = text.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    SqlError::new(ErrorKind::Unsupported, format!("{words} is not supported"))
}

impl Plan {
    fn columns(&self) -> Option<&SchemaRef> {
        match self {
            Plan::Query(query) => Some(query.schema()),
            Plan::Locking(query) => Some(query.columns()),
            Plan::Point(point) => Some(point.columns()),
            Plan::Explain(explain) => Some(explain.columns()),
            Plan::Insert(insert) => insert.columns(),
            Plan::Update(update) => update.columns(),
            Plan::Delete(delete) => delete.columns(),
            Plan::Copy(copy) => copy.columns(),
            Plan::Ddl(_) | Plan::Declare(_) => None,
            Plan::Fetch(fetch) => fetch.columns(),
            Plan::Advisory(advisory) => Some(advisory.columns()),
            Plan::Sequences(calls) => Some(calls.columns()),
            Plan::Show(show) => Some(show.columns()),
            Plan::Control(control) => control.columns(),
        }
    }

    /// The query that is planned by DataFusion, if the statement has one.
    fn query(&self) -> Option<&SourceQuery> {
        match self {
            Plan::Query(query) => Some(query),
            Plan::Locking(query) => Some(query.query()),
            Plan::Declare(declare) => Some(declare.query()),
            Plan::Sequences(calls) => Some(calls.query()),
            Plan::Insert(insert) => insert.query(),
            Plan::Update(update) => update.query(),
            Plan::Delete(delete) => delete.query(),
            _ => None,
        }
    }

    /// What it is called, if it writes.
    fn writes(&self) -> Option<&str> {
        match self {
            Plan::Query(_) | Plan::Point(_) | Plan::Explain(_) | Plan::Show(_) | Plan::Control(_) => None,
            Plan::Declare(_) | Plan::Fetch(_) | Plan::Advisory(_) => None,
            Plan::Sequences(calls) => calls.writes(),
            Plan::Copy(copy) => copy.writes().then_some("COPY FROM"),
            Plan::Locking(_) => Some("SELECT FOR UPDATE"),
            Plan::Insert(_) => Some("INSERT"),
            Plan::Update(_) => Some("UPDATE"),
            Plan::Delete(_) => Some("DELETE"),
            Plan::Ddl(ddl) => ddl.tag().or(Some("CREATE TABLE AS")),
        }
    }

    fn point_write(&self, query: &QueryEngine, parameters: &[ColumnType]) -> Option<PointWrite> {
        match self {
            Plan::Insert(insert) => insert.point(query, parameters),
            Plan::Update(update) => update.point(query.engine(), parameters),
            Plan::Delete(delete) => delete.point(query.engine(), parameters),
            _ => None,
        }
    }

    /// Thousands of queries may wait in here, so that all else is in a box.
    async fn attempt(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        match self {
            Plan::Query(query) => Ok(Outcome::Rows(query.run_for_client(run).await?)),
            Plan::Point(point) => Ok(Outcome::Rows(point.run(run).await?)),
            Plan::Locking(query) => Ok(Outcome::Rows(Box::pin(query.execute(run)).await?)),
            Plan::Explain(explain) => {
                let batch = Box::pin(explain.run(run)).await?;
                Ok(Outcome::Rows(Box::pin(stream::iter([Ok(batch)]))))
            }
            Plan::Insert(insert) => Box::pin(insert.execute(run)).await,
            Plan::Update(update) => Box::pin(update.execute(run)).await,
            Plan::Delete(delete) => Box::pin(delete.execute(run)).await,
            Plan::Copy(copy) => Box::pin(copy.execute(run)).await,
            Plan::Ddl(ddl) => match run.session.transaction() {
                TransactionStatus::Idle => Box::pin(ddl.execute(run)).await,
                _ if !ddl.stands_alone(run) => Box::pin(ddl.execute(run)).await,
                _ if run.session.modes().implicit => {
                    Box::pin(block::end_series(run.query, run.session, true)).await?;
                    let executed = Box::pin(ddl.execute(run)).await;
                    block::begin_series(run.query, run.session);
                    executed
                }
                _ => block::stage_ddl(run, ddl),
            },
            Plan::Declare(declare) => Box::pin(declare.execute(run)).await,
            Plan::Fetch(fetch) => fetch.execute(run).await,
            Plan::Advisory(advisory) => Box::pin(advisory.execute(run)).await,
            Plan::Sequences(calls) => Box::pin(calls.execute(run)).await,
            Plan::Show(show) => {
                let batch = show.run(run)?;
                Ok(Outcome::Rows(Box::pin(stream::iter([Ok(batch)]))))
            }
            Plan::Control(control) => Box::pin(control.execute(run)).await,
        }
    }
}

#[async_trait]
impl Prepared for PreparedStatement {
    fn parameters(&self) -> &[ColumnType] {
        &self.parameters
    }

    fn plan_bytes(&self) -> usize {
        self.plan.query().map_or(0, SourceQuery::plan_bytes)
    }

    fn columns(&self) -> Option<&SchemaRef> {
        self.plan.columns()
    }

    fn point(&self, session: &SqlSession) -> Option<Point<'_>> {
        let point = match (&self.plan, &self.write) {
            (Plan::Point(point), _) if point.is_single() => Point::Read(point),
            (_, Some(write)) => Point::Write(write),
            _ => return None,
        };
        let is_free = match point {
            Point::Read(_) => session.admits_point(false),
            Point::Write(_) => session.admits_point(true),
        };
        let plain = is_free
            && session.statement_timeout().is_none()
            && self.made_for == MadeFor::now(&self.query, session);
        plain.then_some(point)
    }

    fn verb(&self) -> &'static str {
        match &self.plan {
            Plan::Insert(_) => "INSERT 0",
            Plan::Update(_) => "UPDATE",
            Plan::Delete(_) => "DELETE",
            Plan::Fetch(_) => "FETCH",
            _ => "SELECT",
        }
    }

    fn copy(&self) -> Option<&CopyStatement> {
        match &self.plan {
            Plan::Copy(copy) => Some(copy.format()),
            _ => None,
        }
    }

    fn rounds(&self, n: usize) -> bool {
        !self.types.is_compared(n)
    }

    fn is_moment(&self, n: usize) -> bool {
        self.types.is_moment(n)
    }

    fn ends_block(&self) -> bool {
        matches!(&self.plan, Plan::Control(control) if control.ends_block())
    }

    fn releases(&self) -> Option<&Release> {
        match &self.plan {
            Plan::Control(control) => control.releases(),
            _ => None,
        }
    }

    async fn execute(&self, session: &Arc<SqlSession>, parameters: &[Value]) -> Result<Outcome, SqlError> {
        session.begin_statement(|| self.query.now_micros());
        // What COPY writes has not come yet, and it reads nothing.
        let compares = self.plan.writes().is_some() && !matches!(self.plan, Plan::Copy(_));
        if !compares || !block::is_serializable_alone(session) {
            return self.execute_as_it_stands(session, parameters).await;
        }
        block::begin_series(&self.query, session);
        let outcome = self.execute_as_it_stands(session, parameters).await;
        block::end_series(&self.query, session, outcome.is_ok()).await?;
        outcome
    }
}

fn changes_catalog(session: &SqlSession) -> bool {
    session.open_transaction().is_some_and(|transaction| transaction.changes_catalog())
}

impl Preparation {
    /// Whether it takes less to execute than to prepare, and is nobody's own.
    fn is_executed_quickly(&self) -> bool {
        match &self.plan {
            Plan::Point(_) => true,
            Plan::Control(control) => control.is_of_blocks(),
            _ => self.write.is_some() || self.is_literal(),
        }
    }

    /// Whether it asks for literals alone.
    pub(crate) fn is_literal(&self) -> bool {
        matches!(&self.plan, Plan::Query(query) if query.is_literal())
    }

    pub(crate) fn made_for(&self) -> MadeFor {
        self.made_for
    }

    pub(crate) fn is_made_for(&self, now: MadeFor) -> bool {
        self.made_for == now
    }

    pub(crate) fn types(&self) -> &ParameterTypes {
        &self.types
    }
}

impl PreparedStatement {
    /// In the session's block, if it is in one.
    async fn execute_as_it_stands(
        &self,
        session: &Arc<SqlSession>,
        parameters: &[Value],
    ) -> Result<Outcome, SqlError> {
        if self.ends_block() {
            return self.plan.attempt(self.run(session, parameters)).await;
        }
        let run = async {
            block::admit(session)?;
            if !matches!(self.plan, Plan::Control(_)) {
                block::admit_work(session, self.plan.writes())?;
            }
            self.execute_admitted(session, parameters).await
        };
        let mut undoing = block::Undoing::new(session);
        let outcome = timeout::limited(session, run).await;
        if outcome.is_ok() {
            undoing.complete();
        }
        if outcome.is_err() {
            session.fail();
        }
        outcome
    }

    fn run<'a>(&'a self, session: &'a Arc<SqlSession>, values: &'a [Value]) -> Run<'a> {
        let parameters = Parameters { types: &self.parameters, values, now_micros: session.now_micros() };
        Run { query: &self.query, session, parameters, narrowed: None }
    }

    async fn execute_admitted(
        &self,
        session: &Arc<SqlSession>,
        values: &[Value],
    ) -> Result<Outcome, SqlError> {
        if values.len() != self.parameters.len() {
            let message =
                format!("{} parameters are wanted, {} were given", self.parameters.len(), values.len());
            return Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("08P01"));
        }
        let (mut attempts, mut patience) = (0, block::Patience::default());
        while attempts < ATTEMPTS_MAX {
            let now = MadeFor::beginning(&self.query, session);
            let again = if self.made_for == now {
                None
            } else {
                Some(Box::pin(self.plan_again(session, now)).await?)
            };
            let done = match &again {
                Some(plan) => plan.attempt(self.run(session, values)).await,
                None => match self.write_on_the_spot(session, values).await {
                    Ok(None) => self.plan.attempt(self.run(session, values)).await,
                    Ok(Some(done)) => Ok(done),
                    Err(error) => Err(error),
                },
            };
            match done {
                Err(error) if is_passing(&error) => {
                    if session.modes().repeatable_read {
                        return Err(block::not_serializable());
                    }
                    attempts += 1;
                }
                Err(error) => {
                    Box::pin(block::wait_for_row(&self.query, session, error, &mut patience)).await?;
                }
                outcome => return outcome,
            }
        }
        Err(SqlError::new(ErrorKind::Conflict, "could not serialize access due to changes of the table")
            .with_sqlstate("40001")
            .with_hint("nothing was changed; try again"))
    }

    /// Writes the row that the statement is about, if that is all there is to it: in a block it may have waited for the row before.
    ///
    /// # Errors
    /// That others have [locked](block::row_is_locked) the row.
    async fn write_on_the_spot(
        &self,
        session: &Arc<SqlSession>,
        values: &[Value],
    ) -> Result<Option<Outcome>, SqlError> {
        let in_block = session.transaction() == TransactionStatus::Open && session.admits_point(true);
        let Some(write) = self.write.as_ref().filter(|_| in_block) else { return Ok(None) };
        // What it has said of a statement before.
        drop(session.take_blocked());
        if let Some((rows, obligation)) = sql::PointWrite::write(write, session, values) {
            self.query.engine().settled(obligation).await?;
            return Ok(Some(Outcome::Done { tag: format!("{} {rows}", self.verb()) }));
        }
        match session.take_blocked() {
            Some(by) => {
                session.note_blocked(by);
                Err(block::row_is_locked())
            }
            None => Ok(None),
        }
    }

    /// The same statement for catalog and settings as they are now; parameters and result must be of the same types.
    async fn plan_again(&self, session: &Arc<SqlSession>, now: MadeFor) -> Result<Arc<Plan>, SqlError> {
        if let Some((made_for, plan)) = &*self.lock_again()
            && *made_for == now
        {
            return Ok(Arc::clone(plan));
        }
        let given: Vec<Option<ColumnType>> = if self.given.len() >= self.parameters.len() {
            self.given.clone()
        } else {
            self.parameters.iter().copied().map(Some).collect()
        };
        let (plan, _) = plan(&self.query, session, &self.sql, self.parsed.clone(), &given).await?;
        let types = |schema: &SchemaRef| -> Vec<_> {
            schema.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect()
        };
        if plan.columns().map(types) != self.plan.columns().map(types) {
            return Err(SqlError::new(ErrorKind::Invalid, "cached plan must not change result type")
                .with_sqlstate("0A000"));
        }
        let plan = Arc::new(plan);
        *self.lock_again() = Some((now, Arc::clone(&plan)));
        Ok(plan)
    }

    fn lock_again(&self) -> MutexGuard<'_, Option<(MadeFor, Arc<Plan>)>> {
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Attempts after which a statement reports that its tables are altered or truncated all the time (40001).
const ATTEMPTS_MAX: usize = 50;

/// Whether a statement may succeed when it is tried again at once: a table was altered or truncated between read and write.
fn is_passing(error: &SqlError) -> bool {
    error.sqlstate.is_none() && matches!(error.error.kind(), ErrorKind::Conflict | ErrorKind::Retry)
}
