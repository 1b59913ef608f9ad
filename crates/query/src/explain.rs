//! `EXPLAIN ANALYZE`: runs a query and tells where its rows came from.
//!
//! A line for each scanned table says how many rows and bytes came from rows in memory and from SSTables; then comes
//! DataFusion's plan with its metrics. A look-up by primary key has no plan, and says which source answered.

use crate::context::{QueryEngine, StatementContext};
use crate::error::sql_error;
use crate::point::PointRead;
use crate::provider::{MEMTABLE_BYTES, MemorySource, SstableExtension};
use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use oribi_session::sql::SqlError;
use oribi_types::{Error, Value};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

static COLUMNS: LazyLock<SchemaRef> =
    LazyLock::new(|| Arc::new(Schema::new(vec![Field::new("QUERY PLAN", DataType::Utf8, false)])));

/// The columns of an explanation: one, a line of text a row.
pub(crate) fn columns() -> &'static SchemaRef {
    &COLUMNS
}

/// Runs `plan` to its end and reports.
///
/// # Errors
/// Those of the query.
pub(crate) async fn analyze(
    query: &QueryEngine,
    context: StatementContext,
    plan: LogicalPlan,
) -> Result<RecordBatch, SqlError> {
    let plan = query.plan_physical(&context, plan).await?;
    context.settled().await?;
    let executed = Arc::clone(&plan);
    let (rows, time) = query
        .runtime()
        .run(async move {
            let start = Instant::now();
            let mut batches = execute_stream(executed, context.state.task_ctx()).map_err(sql_error)?;
            let mut rows = 0;
            while let Some(batch) = batches.next().await {
                rows += batch.map_err(sql_error)?.num_rows();
            }
            Ok((rows, start.elapsed()))
        })
        .await?;
    let mut text = format!("rows: {rows}, time: {}\n", milliseconds(time));
    for (table, scan) in scans(&plan) {
        let _ = writeln!(text, "scan of {table}: {scan}");
    }
    let _ = write!(text, "{}", DisplayableExecutionPlan::with_metrics(plan.as_ref()).indent(false));
    lines(&text)
}

/// Runs a look-up and reports.
///
/// # Errors
/// Those of the look-up.
pub(crate) async fn analyze_point(
    query: &QueryEngine,
    point: &PointRead,
    parameters: &[Value],
) -> Result<RecordBatch, SqlError> {
    let start = Instant::now();
    let (batch, sources) = point.run_counted(query, parameters).await?;
    let mut text = format!("rows: {}, time: {}\n", batch.num_rows(), milliseconds(start.elapsed()));
    let _ = writeln!(text, "{}: {sources}", point.describe());
    lines(&text)
}

/// The explanation of a look-up that is not run.
///
/// # Errors
/// None are expected.
pub(crate) fn explain_point(point: &PointRead) -> Result<RecordBatch, SqlError> {
    lines(&point.describe())
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
            "memtable {} rows, {} bytes; row cache 0 rows, 0 bytes; sstables {} rows, {} bytes in {} files",
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

fn lines(text: &str) -> Result<RecordBatch, SqlError> {
    let lines: StringArray = text.lines().map(Some).collect();
    Ok(RecordBatch::try_new(Arc::clone(columns()), vec![Arc::new(lines)]).map_err(Error::from)?)
}
