//! `EXPLAIN ANALYZE`: runs a query and tells where its rows came from.
//!
//! A line for each table says how many rows and bytes came from rows in memory and from SSTables, or that statistics
//! answered without a scan; then comes DataFusion's plan with its metrics. A look-up by primary key has no plan, and says
//! which source answered. `FORMAT JSON` says the same to programs ([`json`]), operator by operator.

mod json;
mod reads;

use crate::context::{Physical, QueryEngine, StatementView};
use crate::dml::{Run, SourceQuery};
use crate::error::sql_error;
use crate::nodes::{Became, Exchanged, Executors};
use crate::point::PointRead;
use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::sqlparser::ast::Statement;
use futures::StreamExt;
use oribi_session::sql::SqlError;
use oribi_types::schema::TYPE_METADATA;
use oribi_types::{Error, ErrorKind};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

static TEXT: LazyLock<SchemaRef> = LazyLock::new(|| columns(HashMap::new()));
static JSON: LazyLock<SchemaRef> =
    LazyLock::new(|| columns([(TYPE_METADATA.to_owned(), "json".to_owned())].into()));

fn columns(metadata: HashMap<String, String>) -> SchemaRef {
    let column = Field::new("QUERY PLAN", DataType::Utf8, false).with_metadata(metadata);
    Arc::new(Schema::new(vec![column]))
}

/// How much is told, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExplainOptions {
    /// Run it, and tell what happened.
    analyze: bool,
    verbose: bool,
    json: bool,
    /// When the statement began to be planned.
    begun: Instant,
}

impl ExplainOptions {
    /// The options of an `EXPLAIN`. PostgreSQL's other switches are accepted and change nothing.
    ///
    /// # Errors
    /// `Unsupported` for a format other than text and JSON.
    pub(crate) fn of(explain: &Statement) -> Result<Self, SqlError> {
        let mut chosen =
            ExplainOptions { analyze: false, verbose: false, json: false, begun: Instant::now() };
        let Statement::Explain { analyze, verbose, format, options, .. } = explain else { return Ok(chosen) };
        (chosen.analyze, chosen.verbose) = (*analyze, *verbose);
        // One without parentheses is not PostgreSQL's.
        let mut written = if format.is_none() { "text".to_owned() } else { String::new() };
        for option in options.iter().flatten() {
            let argument = option.arg.as_ref().map(|arg| arg.to_string().to_lowercase());
            let on = !matches!(argument.as_deref(), Some("false" | "off" | "0"));
            match option.name.value.to_lowercase().as_str() {
                "analyze" => chosen.analyze = on,
                "verbose" => chosen.verbose = on,
                "format" => written = argument.unwrap_or_default(),
                _ => {}
            }
        }
        chosen.json = match written.as_str() {
            "text" => false,
            "json" => true,
            _ => return Err(SqlError::new(ErrorKind::Unsupported, "EXPLAIN only writes text and JSON")),
        };
        Ok(chosen)
    }
}

/// A statement to explain.
pub(crate) struct Explain {
    /// What stands above the plan.
    title: String,
    what: What,
    options: ExplainOptions,
    /// What planning took that was done when the statement was prepared.
    planned: Duration,
}

enum What {
    Query(SourceQuery),
    Point(PointRead),
    Nothing,
}

impl Explain {
    pub(crate) fn query(query: SourceQuery, options: ExplainOptions) -> Self {
        Explain::new(String::new(), What::Query(query), options)
    }

    pub(crate) fn point(point: PointRead, options: ExplainOptions) -> Self {
        Explain::new(String::new(), What::Point(point), options)
    }

    /// A statement that writes, and the query it reads from. Only that is ever run.
    pub(crate) fn write(title: &str, reads: Option<SourceQuery>, options: ExplainOptions) -> Self {
        let note = if options.analyze { "; nothing was written" } else { "" };
        Explain::new(format!("{title}{note}\n"), reads.map_or(What::Nothing, What::Query), options)
    }

    fn new(title: String, what: What, options: ExplainOptions) -> Self {
        Explain { title, what, options, planned: options.begun.elapsed() }
    }

    /// The columns of an explanation: one, a line of text a row, or one row of JSON.
    pub(crate) fn columns(&self) -> &'static SchemaRef {
        if self.options.json { &JSON } else { &TEXT }
    }

    /// # Errors
    /// Those of planning and, with `ANALYZE`, of the statement.
    pub(crate) async fn run(&self, run: Run<'_>) -> Result<RecordBatch, SqlError> {
        let lines: StringArray = match self.options.json {
            true => [Some(format!("{:#}", self.json(run).await?))].into_iter().collect(),
            false => self.title.lines().chain(self.text(run).await?.lines()).map(Some).collect(),
        };
        Ok(RecordBatch::try_new(Arc::clone(self.columns()), vec![Arc::new(lines)]).map_err(Error::from)?)
    }

    async fn text(&self, run: Run<'_>) -> Result<String, SqlError> {
        Ok(match &self.what {
            What::Query(query) => Explained::of(query, run, self).await?.text(self.options.verbose),
            What::Point(point) if self.options.analyze => {
                let start = Instant::now();
                let (batch, sources) = point.run_counted(run).await?;
                let time = milliseconds(start.elapsed());
                format!("{}: {sources}\nrows: {}, time: {time}", point.describe(), batch.num_rows())
            }
            What::Point(point) => point.describe(),
            What::Nothing => String::new(),
        })
    }

    async fn json(&self, run: Run<'_>) -> Result<Value, SqlError> {
        let mut told = match &self.what {
            What::Query(query) => Explained::of(query, run, self).await?.json(),
            What::Point(point) => {
                let mut told = json!({ "Plan": json::node("Point Read", &point.describe()) });
                if self.options.analyze {
                    let start = Instant::now();
                    let (batch, sources) = point.run_counted(run).await?;
                    told["Execution Time"] = json!(json::milliseconds(start.elapsed()));
                    told["Plan"]["Actual Rows"] = json!(batch.num_rows());
                    told["Plan"]["Sources"] = json!(sources.to_string());
                }
                told
            }
            What::Nothing => json!({}),
        };
        if !self.title.is_empty() {
            let mut above = json::node("ModifyTable", self.title.trim_end());
            above["Plans"] = told.get_mut("Plan").map_or(json!([]), |plan| json!([plan.take()]));
            told["Plan"] = above;
        }
        Ok(json!([told]))
    }
}

/// A query that is planned and, with `ANALYZE`, was run to its end.
struct Explained {
    view: Arc<StatementView>,
    /// The plan before it was physical, if it is to be told.
    logical: String,
    plan: Arc<dyn ExecutionPlan>,
    planning: Duration,
    /// Who executes it, if there is a choice, and what became of it there.
    executors: Option<Executors>,
    became: Option<Became>,
    ran: Option<Ran>,
}

struct Ran {
    rows: usize,
    time: Duration,
}

impl Explained {
    async fn of(query: &SourceQuery, run: Run<'_>, explain: &Explain) -> Result<Self, SqlError> {
        let start = Instant::now();
        let (view, logical) = query.begin(run).await?;
        let shown = match explain.options.verbose {
            true => format!("{}\n\n", logical.plan.display_indent_schema()),
            false => String::new(),
        };
        let (physical, _interested) =
            run.query.plan_physical(Arc::clone(&view), logical).await?.interested()?;
        let (plan, mut executors) = (Arc::clone(&physical.plan), physical.executors.clone());
        let planning = explain.planned + start.elapsed();
        let ran = match explain.options.analyze {
            true => Some(execute(run.query, physical).await?),
            false => None,
        };
        let became = match run.query.nodes().get().filter(|_| ran.is_some()) {
            Some(nodes) => nodes.explain(&plan).await,
            None => None,
        };
        if let Some(Became::Alone(_, why)) = became {
            executors = Some(Executors::Here(why.to_owned()));
        }
        Ok(Explained { view, logical: shown, plan, planning, executors, became, ran })
    }

    fn text(&self, verbose: bool) -> String {
        let Some(Ran { rows, time }) = &self.ran else {
            let physical = DisplayableExecutionPlan::new(self.plan.as_ref());
            let executors = self.executors_line();
            return format!("{}{executors}{}{}", self.logical, tablets(&self.view), physical.indent(verbose));
        };
        let mut text = self.executors_line();
        let ran = format!("rows: {rows}, time: {}\n", milliseconds(*time));
        let (plan, told) = match &self.became {
            None => (&self.plan, None),
            Some(Became::Shared { plan, text, .. }) => (plan, Some(text)),
            Some(Became::Alone(plan, _)) => (plan, None),
            Some(Became::Unknown(why)) => return format!("{text}{ran}{why}\n"),
        };
        let read = reads::by_table(plan);
        for (table, reads) in &read {
            let _ = writeln!(text, "scan of {table}: {reads}");
        }
        for table in self.view.scanned_tables().into_iter().filter(|table| !read.contains_key(table)) {
            let _ = writeln!(text, "scan of {table}: none, statistics answered");
        }
        if let Some(Became::Shared { .. }) = self.became {
            let exchanged = Exchanged::by(plan);
            let ratio = scan_ratio(plan, &exchanged);
            let ratio = ratio.map(|ratio| format!(", {ratio:.4} of those scanned")).unwrap_or_default();
            let _ = writeln!(text, "exchanged: {} bytes{ratio}", exchanged.bytes());
        }
        text += &tablets(&self.view);
        text += &ran;
        let plan = || DisplayableExecutionPlan::with_metrics(plan.as_ref()).indent(verbose).to_string();
        text + &told.cloned().unwrap_or_else(plan)
    }

    fn executors_line(&self) -> String {
        self.executors.as_ref().map(|executors| format!("nodes: {executors}\n")).unwrap_or_default()
    }

    fn json(&self) -> Value {
        let plan = match &self.became {
            Some(Became::Shared { plan, .. } | Became::Alone(plan, _)) => plan,
            Some(Became::Unknown(_)) | None => &self.plan,
        };
        let is_known = self.ran.is_some() && !matches!(self.became, Some(Became::Unknown(_)));
        let mut told = json!({
            "Plan": json::tree(plan, is_known),
            "Planning Time": json::milliseconds(self.planning),
        });
        match &self.executors {
            Some(Executors::Nodes(names)) => {
                told["Nodes"] = json!(names.len());
                told["Node Names"] = json!(names);
            }
            Some(Executors::Here(why)) => {
                told["Nodes"] = json!(0);
                told["Reason"] = json!(why);
            }
            None => {}
        }
        if let Some(Became::Shared { .. }) = self.became {
            let exchanged = Exchanged::by(plan);
            told["Exchanged Bytes"] = json!(exchanged.bytes());
            told["Exchange Scan Ratio"] = json!(scan_ratio(plan, &exchanged));
        }
        if let Some(Ran { rows, time }) = &self.ran {
            told["Plan"]["Actual Rows"] = json!(rows);
            told["Execution Time"] = json!(json::milliseconds(*time));
        }
        told
    }
}

/// How many bytes were exchanged for each that was scanned, if any was.
pub(crate) fn scan_ratio(plan: &Arc<dyn ExecutionPlan>, exchanged: &Exchanged) -> Option<f64> {
    let bytes = |reads: &reads::Reads| reads.memory_bytes + reads.file_bytes;
    let scanned: usize = reads::by_table(plan).values().map(bytes).sum();
    (scanned > 0).then(|| exchanged.bytes() as f64 / scanned as f64)
}

/// A line for each scan of a table with several tablets. A range of keys says itself how many it reads.
fn tablets(view: &StatementView) -> String {
    view.tablets_scanned().iter().map(|scan| format!("tablets of {scan}\n")).collect()
}

/// Runs a query to its end, for nobody.
async fn execute(query: &QueryEngine, physical: Physical) -> Result<Ran, SqlError> {
    let run = async move {
        let start = Instant::now();
        let Physical { plan, task, held: _held, .. } = physical;
        let mut batches = execute_stream(plan, task).map_err(sql_error)?;
        let mut rows = 0;
        while let Some(batch) = batches.next().await {
            rows += batch.map_err(sql_error)?.num_rows();
        }
        Ok(Ran { rows, time: start.elapsed() })
    };
    query.runtime().run(run).await
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3} ms", json::milliseconds(time))
}
