//! `EXPLAIN ANALYZE`: runs a query and tells where its rows came from.
//!
//! A line for each table says how many rows and bytes came from rows in memory and from SSTables, or that statistics
//! answered without a scan; then comes DataFusion's plan with its metrics. A look-up by primary key has no plan, and says
//! which source answered.

use crate::context::{Logical, QueryEngine, StatementContext, StatementView};
use crate::dml::{Run, SourceQuery};
use crate::error::sql_error;
use crate::point::PointRead;
use crate::provider::{
    FILE_BYTES, FILE_ROWS, FILES, MEMORY_ROWS, MEMTABLE_BYTES, MemorySource, RangeSource, SstableExtension,
};
use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::sqlparser::ast::Statement;
use futures::StreamExt;
use oribi_session::sql::SqlError;
use oribi_types::{Error, ErrorKind};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

static COLUMNS: LazyLock<SchemaRef> =
    LazyLock::new(|| Arc::new(Schema::new(vec![Field::new("QUERY PLAN", DataType::Utf8, false)])));

/// How much is told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExplainOptions {
    /// Run it, and tell what happened.
    analyze: bool,
    verbose: bool,
}

impl ExplainOptions {
    /// The options of an `EXPLAIN`. PostgreSQL's other switches are accepted and change nothing.
    ///
    /// # Errors
    /// `Unsupported` for a format other than text.
    pub(crate) fn of(explain: &Statement) -> Result<Self, SqlError> {
        let Statement::Explain { analyze, verbose, format, options, .. } = explain else {
            return Ok(ExplainOptions::default());
        };
        let mut chosen = ExplainOptions { analyze: *analyze, verbose: *verbose };
        let mut text = format.is_none();
        for option in options.iter().flatten() {
            let argument = option.arg.as_ref().map(|arg| arg.to_string().to_lowercase());
            let on = !matches!(argument.as_deref(), Some("false" | "off" | "0"));
            match option.name.value.to_lowercase().as_str() {
                "analyze" => chosen.analyze = on,
                "verbose" => chosen.verbose = on,
                "format" => text = argument.as_deref() == Some("text"),
                _ => {}
            }
        }
        if text { Ok(chosen) } else { Err(SqlError::new(ErrorKind::Unsupported, "EXPLAIN only writes text")) }
    }
}

/// A statement to explain.
pub(crate) struct Explain {
    /// What stands above the plan.
    title: String,
    what: What,
    options: ExplainOptions,
}

enum What {
    Query(SourceQuery),
    Point(PointRead),
    Nothing,
}

impl Explain {
    pub(crate) fn query(query: SourceQuery, options: ExplainOptions) -> Self {
        Explain { title: String::new(), what: What::Query(query), options }
    }

    pub(crate) fn point(point: PointRead, options: ExplainOptions) -> Self {
        Explain { title: String::new(), what: What::Point(point), options }
    }

    /// A statement that writes, and the query it reads from. Only that is ever run.
    pub(crate) fn write(title: &str, reads: Option<SourceQuery>, options: ExplainOptions) -> Self {
        let note = if options.analyze { "; nothing was written" } else { "" };
        Explain { title: format!("{title}{note}\n"), what: reads.map_or(What::Nothing, What::Query), options }
    }

    /// The columns of an explanation: one, a line of text a row.
    pub(crate) fn columns() -> &'static SchemaRef {
        &COLUMNS
    }

    /// # Errors
    /// Those of planning and, with `ANALYZE`, of the statement.
    pub(crate) async fn run(&self, run: Run<'_>) -> Result<RecordBatch, SqlError> {
        let text = match &self.what {
            What::Query(query) => {
                let (context, plan) = query.begin(run).await?;
                match self.options.analyze {
                    true => analyze(run.query, context, plan, self.options.verbose).await?,
                    false => describe(run.query, &context, plan, self.options.verbose).await?,
                }
            }
            What::Point(point) if self.options.analyze => {
                let start = Instant::now();
                let (batch, sources) = point.run_counted(run.query, run.parameters.values).await?;
                let time = milliseconds(start.elapsed());
                format!("{}: {sources}\nrows: {}, time: {time}", point.describe(), batch.num_rows())
            }
            What::Point(point) => point.describe(),
            What::Nothing => String::new(),
        };
        let lines: StringArray = self.title.lines().chain(text.lines()).map(Some).collect();
        Ok(RecordBatch::try_new(Arc::clone(&COLUMNS), vec![Arc::new(lines)]).map_err(Error::from)?)
    }
}

/// The plans of a query.
async fn describe(
    query: &QueryEngine,
    context: &StatementContext,
    plan: Logical,
    verbose: bool,
) -> Result<String, SqlError> {
    let logical = if verbose { format!("{}\n\n", plan.plan.display_indent_schema()) } else { String::new() };
    let physical = query.plan_physical(context, plan).await?;
    let tablets = tablets(&context.view);
    Ok(format!("{logical}{tablets}{}", DisplayableExecutionPlan::new(physical.as_ref()).indent(verbose)))
}

/// A line for each scan of a table with several tablets. A range of keys says itself how many it reads.
fn tablets(view: &StatementView) -> String {
    view.tablets_scanned().iter().map(|scan| format!("tablets of {scan}\n")).collect()
}

/// Runs a query to its end and reports.
async fn analyze(
    query: &QueryEngine,
    context: StatementContext,
    plan: Logical,
    verbose: bool,
) -> Result<String, SqlError> {
    let plan = query.plan_physical(&context, plan).await?;
    context.settled().await?;
    let view = Arc::clone(&context.view);
    let executed = Arc::clone(&plan);
    let run = async move {
        let start = Instant::now();
        let (task, _held) = context.into_task(&executed);
        let mut batches = execute_stream(executed, task).map_err(sql_error)?;
        let mut rows = 0;
        while let Some(batch) = batches.next().await {
            rows += batch.map_err(sql_error)?.num_rows();
        }
        Ok((rows, start.elapsed()))
    };
    let (rows, time) = query.runtime().run(run).await?;
    let mut text = String::new();
    let scans = scans(&plan);
    for (table, scan) in &scans {
        let _ = writeln!(text, "scan of {table}: {scan}");
    }
    for table in view.resolved().into_iter().filter(|table| !scans.contains_key(table)) {
        let _ = writeln!(text, "scan of {table}: none, statistics answered");
    }
    text += &tablets(&view);
    let _ = writeln!(text, "rows: {rows}, time: {}", milliseconds(time));
    let _ = write!(text, "{}", DisplayableExecutionPlan::with_metrics(plan.as_ref()).indent(verbose));
    Ok(text)
}

/// Where the rows of one table came from.
#[derive(Default)]
struct Scan {
    memory_rows: usize,
    memory_bytes: usize,
    files: usize,
    file_rows: usize,
    file_bytes: usize,
}

impl std::fmt::Display for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "memtable {} rows, {} bytes; row cache 0 rows, 0 bytes (scans do not read it); \
             sstables {} rows, {} bytes in {} files",
            self.memory_rows, self.memory_bytes, self.file_rows, self.file_bytes, self.files
        )
    }
}

/// The scans of an executed plan, by table.
fn scans(plan: &Arc<dyn ExecutionPlan>) -> BTreeMap<String, Scan> {
    let mut scans = BTreeMap::new();
    collect(plan, &mut scans);
    scans
}

fn collect(plan: &Arc<dyn ExecutionPlan>, scans: &mut BTreeMap<String, Scan>) {
    for child in plan.children() {
        collect(child, scans);
    }
    let Some(source) = plan.downcast_ref::<DataSourceExec>().map(DataSourceExec::data_source) else { return };
    let metrics = plan.metrics().unwrap_or_default();
    let rows = metrics.output_rows().unwrap_or(0);
    let sum = |name: &str| metrics.sum_by_name(name).map_or(0, |value| value.as_usize());
    if let Some(memory) = source.downcast_ref::<MemorySource>() {
        let scan = scans.entry(memory.table().to_owned()).or_default();
        scan.memory_rows += rows;
        scan.memory_bytes += sum(MEMTABLE_BYTES);
    } else if let Some(range) = source.downcast_ref::<RangeSource>() {
        let scan = scans.entry(range.table()).or_default();
        scan.memory_rows += sum(MEMORY_ROWS);
        scan.memory_bytes += sum(MEMTABLE_BYTES);
        scan.files += sum(FILES);
        scan.file_rows += sum(FILE_ROWS);
        scan.file_bytes += sum(FILE_BYTES);
    } else if let Some(files) = source.downcast_ref::<FileScanConfig>() {
        let sstables = || {
            let files = files.file_groups.iter().flat_map(|group| group.files());
            files.filter_map(|file| file.extension::<SstableExtension>())
        };
        let Some(first) = sstables().next() else { return };
        // A file that is split by bytes is in several groups.
        let ids: std::collections::BTreeSet<u64> = sstables().map(|s| s.sstable.meta().id).collect();
        let scan = scans.entry(first.table.to_string()).or_default();
        scan.files += ids.len();
        scan.file_rows += rows;
        scan.file_bytes += sum("bytes_scanned");
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}
