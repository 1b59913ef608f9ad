//! A query engine, and what one statement sees of it: a snapshot, a picture of the catalog and a DataFusion state.

use crate::carried::Carried;
use crate::catalog::{Catalogs, SEARCH_PATH_SCHEMA, database_name};
use crate::delivery::deliver;
use crate::dml::Writers;
use crate::error::{sql_error, sql_error_in};
use crate::functions::{ValueMemory, is_postponed};
use crate::grouped_order::keep_grouped_order;
use crate::interest::{Interest, Interested, interested};
use crate::literals::{ColumnTypes, TypedLiterals, TypedOperands};
use crate::lone_joins::LoneJoins;
use crate::long_rows;
use crate::memory::QueryMemory;
use crate::nodes::{Executors, Nodes, Offers, Place, values};
use crate::number::{self, NumberCasts};
use crate::one_type::TypedRelations;
use crate::pg_catalog;
use crate::planners::Length;
use crate::provider::{OrderedLimits, StatisticsCache, wire};
use crate::queries::{Begun, Queries};
use crate::remembered::Remembered;
use crate::runtime::QueryRuntime;
use crate::runtime_filters::with_key_sets;
use crate::sequences::Numbers;
use crate::states::{States, Taken};
use crate::unique_keys::by_unique_keys;
use crate::unread::{Admitted, Unread};
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow::temporal_conversions::timestamp_us_to_datetime;
use datafusion::common::{DataFusionError, ParamValues, internal_datafusion_err};
use datafusion::config::ConfigOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{FunctionRegistry, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::Analyzer;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use oribi_engine::{Catalog, Engine, LockedRows, Mark, Overlay, Snapshot, Table};
use oribi_env::Priority;
use oribi_session::sql::{AdvisoryLocks, CursorRows, RowStream, SqlError, SqlSession, Suspended};
use oribi_types::{Error, Result};
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// How queries run.
#[derive(Clone, Debug)]
pub struct QueryOptions {
    /// Threads that execute queries, and partitions that a plan is split into.
    pub threads: usize,
    /// How these threads are scheduled against those that serve clients.
    pub priority: Priority,
    /// Folder for what does not fit into memory; emptied when the process starts. `None`: a temporary folder.
    pub spill_dir: Option<PathBuf>,
    /// Most bytes that a process may spill at a time.
    pub spill_bytes_max: u64,
    /// Share of the engine's memory that queries may hold together, in percent.
    pub memory_percent: u8,
    /// Whether `FROM 'file.parquet'` (CSV, JSON lines) reads that file. For the command line only: a server must not
    /// read its files for a client.
    pub file_tables: bool,
}

impl Default for QueryOptions {
    fn default() -> Self {
        QueryOptions {
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            priority: Priority::Idle,
            spill_dir: None,
            spill_bytes_max: 100 << 30,
            memory_percent: 75,
            file_tables: false,
        }
    }
}

/// Plans and executes statements over one engine.
pub struct QueryEngine {
    this: Weak<QueryEngine>,
    engine: Arc<Engine>,
    /// Statements that read before they write take turns here.
    writers: Writers,
    advisory: Arc<AdvisoryLocks>,
    numbers: Numbers,
    cursors: Arc<Suspended<CursorRows>>,
    runtime: Arc<QueryRuntime>,
    unread: Arc<Unread>,
    /// Functions, rules and configuration.
    states: Arc<States>,
    file_tables: bool,
    statistics: Arc<StatisticsCache>,
    remembered: Remembered,
    /// Who shares the work, if anybody does.
    nodes: OnceLock<Arc<dyn Nodes>>,
    offers: Arc<Offers>,
    queries: Arc<Queries>,
}

impl QueryEngine {
    /// # Errors
    /// `Unavailable` if threads or the spill folder are refused.
    pub fn new(engine: Arc<Engine>, options: QueryOptions) -> Result<Arc<Self>> {
        let limit = engine.memory().limit() / 100 * u64::from(options.memory_percent.min(100));
        let memory = QueryMemory::new(Arc::clone(engine.memory()), limit as usize, options.threads);
        let mut runtime_env = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(memory));
        runtime_env = runtime_env.with_disk_manager_builder(spill_folder(&options)?);
        let runtime_env = runtime_env.build().map_err(|e| sql_error(e).error)?;
        let base =
            base_state(&options, limit as usize, Arc::new(runtime_env)).map_err(|e| sql_error(e).error)?;
        let runtime = Arc::new(QueryRuntime::new(options.threads, options.priority)?);
        let unread = Unread::new(Arc::clone(engine.memory()));
        let remembered = Remembered::new(Arc::clone(engine.memory()));
        Ok(Arc::new_cyclic(|this| QueryEngine {
            this: this.clone(),
            engine,
            unread,
            writers: Writers::default(),
            advisory: Arc::default(),
            numbers: Numbers::default(),
            cursors: Suspended::new(),
            runtime,
            states: States::new(base),
            file_tables: options.file_tables,
            statistics: Arc::default(),
            remembered,
            nodes: OnceLock::new(),
            offers: Arc::default(),
            queries: Arc::default(),
        }))
    }

    /// The engine as its prepared statements hold it.
    pub(crate) fn shared(&self) -> Arc<QueryEngine> {
        self.this.upgrade().expect("a query engine is only made inside of an Arc")
    }

    pub(crate) fn writers(&self) -> &Writers {
        &self.writers
    }

    pub(crate) fn advisory(&self) -> &Arc<AdvisoryLocks> {
        &self.advisory
    }

    /// Those of sequences.
    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// What cursors have to give.
    pub(crate) fn cursors(&self) -> &Arc<Suspended<CursorRows>> {
        &self.cursors
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The threads on which queries run, and those for calls into the engine that block.
    pub(crate) fn runtime(&self) -> &Arc<QueryRuntime> {
        &self.runtime
    }

    /// So many threads may share the work of one statement.
    pub(crate) fn threads(&self) -> usize {
        self.states.base().config().target_partitions()
    }

    pub(crate) fn nodes(&self) -> &OnceLock<Arc<dyn Nodes>> {
        &self.nodes
    }

    /// Scans that others read for queries that run.
    pub(crate) fn offers(&self) -> &Arc<Offers> {
        &self.offers
    }

    pub(crate) fn states(&self) -> &Arc<States> {
        &self.states
    }

    /// What clients have not taken of their rows.
    pub(crate) fn unread(&self) -> &Arc<Unread> {
        &self.unread
    }

    /// Statements that came before.
    pub(crate) fn remembered(&self) -> &Remembered {
        &self.remembered
    }

    /// The memory that queries share.
    pub(crate) fn memory_pool(&self) -> &Arc<dyn MemoryPool> {
        &self.states.base().runtime_env().memory_pool
    }

    /// What one statement of `session` sees, from now on.
    pub(crate) fn view(&self, session: &Arc<SqlSession>) -> Arc<StatementView> {
        self.view_narrowed(session, None)
    }

    /// As [`view`](Self::view), of one that does not see all rows of some table.
    pub(crate) fn view_narrowed(
        &self,
        session: &Arc<SqlSession>,
        narrowed: Option<Arc<Narrowed>>,
    ) -> Arc<StatementView> {
        // The catalog after the snapshot: every row that the snapshot sees was then written under a schema that this
        // picture knows.
        let of_block = session.block_snapshot(&self.engine);
        let snapshot = of_block.unwrap_or_else(|| Arc::new(self.engine.snapshot()));
        self.view_at(session, snapshot, narrowed)
    }

    fn view_at(
        &self,
        session: &Arc<SqlSession>,
        snapshot: Arc<Snapshot>,
        narrowed: Option<Arc<Narrowed>>,
    ) -> Arc<StatementView> {
        Arc::new(StatementView {
            engine: Arc::clone(&self.engine),
            session: Arc::clone(session),
            catalog: session.catalog(&self.engine),
            snapshot: Some(snapshot),
            runtime: Arc::clone(&self.runtime),
            statistics: Arc::clone(&self.statistics),
            queries: Arc::clone(&self.queries),
            scans: Mutex::default(),
            narrowed,
        })
    }

    /// The time, in microseconds since 1970.
    pub(crate) fn now_micros(&self) -> i64 {
        self.engine.read_view().now_micros as i64
    }

    /// Where one statement of `session` is planned on the spot: see [`enter`](Self::enter).
    ///
    /// # Errors
    /// As there.
    pub(crate) fn begin(&self, session: &Arc<SqlSession>) -> Result<StatementContext, SqlError> {
        self.enter(self.view(session))
    }

    /// Where the statement that sees `view` is planned. It takes tens of KiB, and thousands may wait to be planned: what is
    /// planned in its turn enters then, and leaves with it.
    ///
    /// # Errors
    /// Those of the catalog's construction; none are expected.
    pub(crate) fn enter(&self, view: Arc<StatementView>) -> Result<StatementContext, SqlError> {
        self.enter_with(view, |_| {})
    }

    /// As [`enter`](Self::enter), with options of the statement's own.
    fn enter_with(
        &self,
        view: Arc<StatementView>,
        set: impl FnOnce(&mut ConfigOptions),
    ) -> Result<StatementContext, SqlError> {
        let session = Arc::clone(&view.session);
        let zone = session.time_zone();
        let state = self.states.take(zone, |state| {
            let config = state.config_mut();
            config.set_extension(Arc::clone(&view));
            let options = config.options_mut();
            options.extensions.insert(Carried(pg_catalog::Scope::new(&view)));
            options.execution.time_zone = zone.map(|zone| zone.name().to_owned());
            options.catalog.default_catalog = database_name(&session).to_owned();
            options.catalog.default_schema = SEARCH_PATH_SCHEMA.to_owned();
            set(options);
            state.register_catalog_list(Arc::new(Catalogs::new(Arc::clone(&view))));
            // With these options.
            state.mark_start_execution();
            let now = timestamp_us_to_datetime(session.now_micros()).map(|now| now.and_utc());
            state.execution_props_mut().query_execution_start_time = now;
        });
        let state = state.map_err(sql_error)?;
        if !self.file_tables {
            return Ok(StatementContext { state, view, files: None });
        }
        let files = SessionContext::new_with_state(SessionState::clone(&state)).enable_url_table();
        Ok(StatementContext { state: files.state().into(), view, files: Some(files) })
    }

    /// Executes a plan, of a statement with this text, on the query threads. The rows come over a bounded channel once everything they show is
    /// settled; dropping the stream cancels. Those for a client, which `admitted` says, count as unread.
    ///
    /// # Errors
    /// Those of planning; those of execution come through the stream.
    pub(crate) async fn run(
        &self,
        view: Arc<StatementView>,
        (plan, text): (Logical, &str),
        admitted: Option<Admitted>,
    ) -> Result<RowStream, SqlError> {
        let session = Arc::clone(&view.session);
        let physical = self.plan_physical(view, plan).await?.interested()?;
        let begun = Begun {
            plan: Arc::clone(&physical.0.plan),
            executors: physical.0.executors.clone(),
            nodes: self.nodes.get().cloned(),
            runtime: Arc::clone(&self.runtime),
        };
        let rows = deliver(&self.runtime, physical, admitted);
        Ok(self.queries.watch((&session, text), begun, rows))
    }

    /// The row of a [constant](crate::planners::is_constant), computed where it is planned; `None` if it is larger than what planning may make.
    ///
    /// # Errors
    /// Those of planning and execution.
    pub(crate) async fn compute(
        &self,
        view: Arc<StatementView>,
        Logical { plan, values, is_analyzed }: Logical,
    ) -> Result<Option<RecordBatch>, SqlError> {
        let query = self.shared();
        let computed = Box::pin(async move {
            let context = query.enter(view)?;
            let row = async {
                let plan = plan_for(&context.state, plan, values, is_analyzed).await?;
                let rows = collect(Arc::clone(&plan), context.task(&plan)).await?;
                Ok(concat_batches(&plan.schema(), &rows)?)
            };
            match row.await {
                Err(error) if is_postponed(&error) => Ok(None),
                row => row.map(Some).map_err(sql_error),
            }
        });
        self.runtime.plan(Length::Constant, computed).await
    }

    pub(crate) fn encoded_scans(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        view: &StatementView,
    ) -> datafusion::common::Result<Vec<Vec<u8>>> {
        wire::scans(plan, view, self.states.base())
    }

    /// The rows of a scan that came as bytes.
    ///
    /// # Errors
    /// `Corrupt`; `Conflict` if what its snapshot saw is not known any more; `NotFound` for a table, tablet or column that is not
    /// there any more; those of execution come through the stream.
    pub fn scan_rows(
        &self,
        session: &Arc<SqlSession>,
        bytes: &[u8],
    ) -> Result<(SchemaRef, RowStream), SqlError> {
        let scan = wire::Received::read(bytes)?;
        let (ts, now_micros) = scan.snapshot();
        let snapshot = self.engine.snapshot_as_of(ts, now_micros)?;
        let gone = || Error::conflict(format!("a scan at {}: what it would see is not known any more", ts.0));
        let view = self.view_at(session, Arc::new(snapshot.ok_or_else(gone)?), None);
        let context = self.enter(view)?;
        let plan = scan.plan(&context.view, &context.state).map_err(sql_error)?;
        let (schema, physical) = (plan.schema(), context.into_physical(plan).interested()?);
        Ok((schema, deliver(&self.runtime, physical, None)))
    }

    /// The physical plan; its scans are resolved, so `view` knows what must be settled.
    pub(crate) async fn plan_physical(
        &self,
        view: Arc<StatementView>,
        Logical { plan, values, is_analyzed }: Logical,
    ) -> Result<Physical, SqlError> {
        let query = self.shared();
        let length = Length::of_plan(&plan);
        let physical = async move {
            let Some(nodes) = query.nodes.get() else {
                let context = query.enter(view)?;
                let planned = plan_for(&context.state, plan, values, is_analyzed).await.map_err(sql_error)?;
                return Ok(context.into_physical(planned));
            };
            let is_apart = view.session.open_transaction().is_none();
            let may_be = is_apart && nodes.may_share(&|name| view.session.setting(name));
            let joins_values = may_be && values::can_be_joined(&plan).map_err(sql_error)?;
            let context = query.enter_with(view, |options| {
                options.optimizer.enable_physical_uncorrelated_scalar_subquery = !joins_values;
            })?;
            let planned = plan_for(&context.state, plan, values, is_analyzed).await.map_err(sql_error)?;
            let place = context.place(nodes, &planned).await.map_err(sql_error)?;
            Ok(context.into_placed(planned, place))
        };
        self.runtime.plan(length, Box::pin(physical)).await
    }

    /// How many statements have a state of their own.
    #[cfg(test)]
    pub(crate) fn states_taken(&self) -> usize {
        Arc::strong_count(&self.states) - 1
    }

    pub(crate) fn error(error: DataFusionError) -> SqlError {
        sql_error(error)
    }

    /// As [`error`](Self::error), with the position in the statement's text.
    pub(crate) fn error_in(sql: &str, error: DataFusionError) -> SqlError {
        sql_error_in(sql, error)
    }
}

async fn plan_for(
    state: &SessionState,
    plan: Arc<LogicalPlan>,
    values: Option<ParamValues>,
    is_analyzed: bool,
) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
    let mut plan = Arc::unwrap_or_clone(plan);
    if let Some(values) = values {
        plan = plan.with_param_values(values)?;
    }
    let optimized = match is_analyzed {
        true => state.optimizer().optimize(plan, state, |_, _| {})?,
        false => state.optimize(&plan)?,
    };
    let plan = keep_grouped_order(by_unique_keys(optimized)?)?;
    let physical = state.query_planner().create_physical_plan(&plan, state).await?;
    long_rows::fitted(physical, state.config().batch_size())
}

/// A logical plan. It may be so deep that only threads that plan can copy it.
#[derive(Clone, Debug)]
pub(crate) struct Logical {
    pub(crate) plan: Arc<LogicalPlan>,
    /// What its parameters are replaced by.
    pub(crate) values: Option<ParamValues>,
    /// Its values have the types that they have when it runs, and it is known that it can run.
    pub(crate) is_analyzed: bool,
}

/// What a plan depends on, besides its statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MadeFor {
    /// The version of the catalog.
    catalog: u64,
    /// The settings of the session that planning looks at.
    settings: u64,
}

impl MadeFor {
    pub(crate) fn now(query: &QueryEngine, session: &SqlSession) -> Self {
        MadeFor { catalog: session.catalog_version(query.engine()), settings: session.planning() }
    }

    pub(crate) fn settings(&self) -> u64 {
        self.settings
    }

    /// As [`now`](Self::now), but by the catalog that a statement which begins would see.
    pub(crate) fn beginning(query: &QueryEngine, session: &SqlSession) -> Self {
        MadeFor { catalog: session.catalog(query.engine()).version(), settings: session.planning() }
    }
}

/// One statement: a DataFusion state whose catalog shows the engine at one snapshot.
pub(crate) struct StatementContext {
    pub(crate) state: Taken,
    pub(crate) view: Arc<StatementView>,
    /// Keeps alive what finds files by their names; it holds the state weakly.
    files: Option<SessionContext>,
}

impl StatementContext {
    /// The statement's `plan` with what that is executed with. The rest is for planning.
    pub(crate) fn into_physical(self, plan: Arc<dyn ExecutionPlan>) -> Physical {
        let task = self.task(&plan);
        Physical { plan, task, held: Executed { _view: self.view, _files: self.files }, executors: None }
    }

    /// Where the statement's `plan` is executed.
    async fn place(
        &self,
        nodes: &Arc<dyn Nodes>,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> datafusion::common::Result<Place> {
        let here = |why: &str| Ok(Place::Here(why.to_owned()));
        if self.view.narrowed.is_some() || self.view.session.open_transaction().is_some() {
            return here("what a transaction sees does not travel");
        }
        if self.files.is_some() {
            return here("files on the command line do not travel");
        }
        nodes.distribute(plan, &self.state, &|name| self.view.session.setting(name)).await
    }

    /// As [`into_physical`](Self::into_physical), for the place where it is executed.
    fn into_placed(self, plan: Arc<dyn ExecutionPlan>, place: Place) -> Physical {
        match place {
            Place::Here(why) => {
                Physical { executors: Some(Executors::Here(why)), ..self.into_physical(plan) }
            }
            Place::Shared(shared, config, names) => {
                let physical = self.into_physical(shared);
                // That has the length of batches, too, by scans that are not seen in the plan any more.
                let task = with_config(&physical.task, *config);
                Physical { task, executors: Some(Executors::Nodes(names)), ..physical }
            }
        }
    }

    fn task(&self, plan: &Arc<dyn ExecutionPlan>) -> Arc<TaskContext> {
        let mut config = self.state.config().clone();
        let rows = long_rows::batch_rows(plan);
        if rows < config.batch_size() {
            config = config.with_batch_size(rows);
        }
        let (session, runtime) = (self.state.session_id().to_owned(), Arc::clone(self.state.runtime_env()));
        // A plan has its functions: nothing looks for them by their names any more.
        let (scalar, higher, aggregate, window) = Default::default();
        Arc::new(TaskContext::new(None, session, config, scalar, higher, aggregate, window, runtime))
    }

    /// Whether the same statement, planned once more, may have another plan though nothing changed that we know of.
    pub(crate) fn reads_files_by_name(&self) -> bool {
        self.files.is_some()
    }
}

/// A plan that can be executed.
pub(crate) struct Physical {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) task: Arc<TaskContext>,
    /// Until it was executed.
    pub(crate) held: Executed,
    /// Who executes it, if there is a choice.
    pub(crate) executors: Option<Executors>,
}

impl Physical {
    /// The same, whose joins end when whoever wants its rows has gone, and which is executed once.
    ///
    /// # Errors
    /// None are expected.
    pub(crate) fn interested(self) -> Result<(Physical, Interested), SqlError> {
        let interest = Interest::default();
        let plan = interested(self.plan, &interest).and_then(with_key_sets).map_err(sql_error)?;
        Ok((Physical { plan, ..self }, interest.until_dropped()))
    }
}

fn with_config(task: &TaskContext, config: SessionConfig) -> Arc<TaskContext> {
    let (session, runtime) = (task.session_id(), task.runtime_env());
    let (scalar, higher, aggregate, window) = Default::default();
    Arc::new(TaskContext::new(None, session, config, scalar, higher, aggregate, window, runtime))
}

/// What a statement holds while it is executed.
pub(crate) struct Executed {
    _view: Arc<StatementView>,
    _files: Option<SessionContext>,
}

/// Scans by table and numbers of tablets.
type Scans = BTreeSet<(u64, Vec<usize>)>;

/// What the tables of one statement share.
pub(crate) struct StatementView {
    pub(crate) engine: Arc<Engine>,
    pub(crate) session: Arc<SqlSession>,
    pub(crate) catalog: Arc<Catalog>,
    /// `None` only while it is dropped.
    snapshot: Option<Arc<Snapshot>>,
    pub(crate) runtime: Arc<QueryRuntime>,
    pub(crate) statistics: Arc<StatisticsCache>,
    pub(crate) queries: Arc<Queries>,
    scans: Mutex<Scans>,
    narrowed: Option<Arc<Narrowed>>,
}

/// Rows that there are for a statement, if not all.
#[derive(Default)]
pub(crate) struct Narrowed {
    /// Of what its block has written, what there was by then: for one that writes while it reads.
    pub(crate) before: Option<Mark>,
    /// For one that locks rows, those of a table.
    pub(crate) table: Option<u64>,
    /// If not all: those of these keys.
    pub(crate) only: Option<HashSet<Arc<[u8]>>>,
    /// None of these.
    pub(crate) without: Option<LockedRows>,
}

impl Drop for StatementView {
    fn drop(&mut self) {
        // The last to hold the view may be a query thread.
        self.runtime.release(self.snapshot.take());
    }
}

impl StatementView {
    /// That of the statement which is planned or executed with `config`.
    ///
    /// # Errors
    /// Internal, if it is no statement's.
    pub(crate) fn of(config: &SessionConfig) -> datafusion::common::Result<Arc<Self>> {
        config.get_extension().ok_or_else(|| internal_datafusion_err!("a table is read by no statement"))
    }

    /// What is planned now is made for this.
    pub(crate) fn made_for(&self) -> MadeFor {
        MadeFor { catalog: self.catalog.version(), settings: self.session.planning() }
    }

    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        self.snapshot.as_ref().expect("held until drop")
    }

    /// Which rows of a table the statement sees, if not all.
    pub(crate) fn narrowed(&self, table: &Table) -> Option<&Arc<Narrowed>> {
        self.narrowed.as_ref().filter(|narrowed| narrowed.table == Some(table.id()))
    }

    /// What the statement's block has written of a table, as the statement sees it; `None` if that is nothing.
    pub(crate) fn own_rows(&self, table: &Arc<Table>) -> Option<Overlay> {
        let before = self.narrowed.as_ref().and_then(|narrowed| narrowed.before);
        self.session.open_transaction()?.overlay(table, before)
    }

    /// Notes that a plan scans some tablets of `table`.
    pub(crate) fn note_scan(&self, table: &Table, tablets: &[usize]) {
        self.lock_scans().insert((table.id(), tablets.to_vec()));
    }

    /// The tables that the plan scans, schema and name, read or not.
    pub(crate) fn scanned_tables(&self) -> Vec<String> {
        let scans = self.lock_scans();
        let scanned: BTreeSet<u64> = scans.iter().map(|(table, _)| *table).collect();
        let tables = self.catalog.all_tables().filter(|table| scanned.contains(&table.id()));
        tables.map(|table| format!("{}.{}", table.schema_name(), table.name())).collect()
    }

    /// For each scan of a table with several tablets, how many of them it reads: `public.t: 2 of 8`.
    pub(crate) fn tablets_scanned(&self) -> Vec<String> {
        let scans = self.lock_scans();
        let described = scans.iter().filter_map(|(id, tablets)| {
            let table = self.catalog.table_by_id(*id).filter(|table| table.tablet_ids().len() > 1)?;
            let (read, all) = (tablets.len(), table.tablet_ids().len());
            Some(format!("{}.{}: {read} of {all}", table.schema_name(), table.name()))
        });
        let mut described: Vec<String> = described.collect();
        described.sort_unstable();
        described
    }

    fn lock_scans(&self) -> MutexGuard<'_, Scans> {
        self.scans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for StatementView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatementView").field("snapshot", &self.snapshot().ts()).finish_non_exhaustive()
    }
}

fn spill_folder(options: &QueryOptions) -> Result<DiskManagerBuilder> {
    let builder = DiskManagerBuilder::default().with_max_temp_directory_size(options.spill_bytes_max);
    let Some(dir) = &options.spill_dir else {
        return Ok(builder.with_mode(DiskManagerMode::OsTmpDirectory));
    };
    empty(dir).map_err(|e| Error::from(e).context(format!("spill folder {}", dir.display())))?;
    Ok(builder.with_mode(DiskManagerMode::Directories(vec![dir.clone()])))
}

/// Makes `dir` an empty folder: a killed process leaves its spills behind.
#[allow(clippy::disallowed_methods, reason = "spills are no data: they need no simulated disk")]
fn empty(dir: &Path) -> std::io::Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir)
}

fn base_state(
    options: &QueryOptions,
    memory_bytes: usize,
    runtime_env: Arc<RuntimeEnv>,
) -> datafusion::common::Result<SessionState> {
    let mut config = SessionConfig::new()
        .with_target_partitions(options.threads)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(false);
    let settings = config.options_mut();
    settings.sql_parser.dialect = datafusion::config::Dialect::PostgreSQL;
    settings.sql_parser.collect_spans = true;
    settings.sql_parser.parse_float_as_decimal = true;
    // Constants that the physical plan computes lose the names of their types, of which only the logical plan is asked.
    settings.execution.skip_physical_aggregate_schema_check = true;
    // Joins look rows up in an array by key, not in a hash table, where one key of 33 is there, instead of one of seven: TPC-H at scale 1
    // takes 0.82 of the processor time. Of keys that are just so sparse a join holds 133 bytes a row more. What else was tried stands in
    // `docs/benchmarks.md`.
    settings.execution.perfect_hash_join_min_key_density = 0.03;
    // What each sort keeps back for merging its spills: by default more than a small budget has.
    let reserved = &mut settings.execution.sort_spill_reservation_bytes;
    *reserved = (*reserved).min(memory_bytes / 16 / options.threads.max(1));
    settings.extensions.insert(Carried(ValueMemory(Arc::clone(&runtime_env.memory_pool))));
    let mut rules = Analyzer::new().rules;
    rules.insert(0, Arc::new(TypedLiterals));
    // Behind those that coerce types.
    rules.push(Arc::new(NumberCasts));
    let mut state = SessionStateBuilder::new_with_default_features()
        .with_config(config)
        .with_analyzer_rules(rules)
        .with_optimizer_rules(number::rules())
        .with_optimizer_rule(Arc::new(OrderedLimits))
        .with_physical_optimizer_rule(Arc::new(LoneJoins))
        .with_type_planner(Arc::new(ColumnTypes))
        .with_runtime_env(runtime_env)
        .build();
    number::register(&mut state)?;
    crate::json::register(&mut state)?;
    state.register_expr_planner(Arc::new(TypedOperands))?;
    state.register_relation_planner(Arc::new(TypedRelations))?;
    crate::functions::register(&mut state)?;
    pg_catalog::register(&mut state)?;
    Ok(state)
}
