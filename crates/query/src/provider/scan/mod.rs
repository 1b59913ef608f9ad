//! A scan of a table, as a source of batches. What is read is decided when the scan is opened, not when it is planned.
//!
//! A plan names the table and its tablets, the columns, and a predicate. The first partition that is asked for rows opens the
//! scan for all of them: the engine says which rows of which files its snapshot sees, and what is in memory, and the
//! predicate, which may have learned something by then, leaves some [pieces](work::Piece) of that: row groups of files, and
//! the rows of a tablet in memory. The partitions take them from one queue, so none has two left while another has none.

mod filter;
mod group;
mod prune;
mod reader;
mod share;
mod work;

pub(super) use filter::learns;
pub(crate) use reader::{FILE_BYTES, FILE_ROWS, FILES, MEMORY_ROWS, MEMTABLE_BYTES};
pub(crate) use share::{Assigned, Awaited, Rows, Share, Side};

use super::{TableColumns, projected_again};
use crate::context::StatementView;
use crate::runtime_filters::KeysSeen;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err, project_schema};
use datafusion::config::ConfigOptions;
use datafusion::datasource::source::{DataSource, DataSourceExec, OpenArgs};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::projection::{ProjectionExprs, ProjectionMapping};
use datafusion::physical_expr::utils::{
    collect_columns, conjunction_opt, reassign_expr_columns, split_conjunction,
};
use datafusion::physical_expr::{ConstExpr, EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPropagation, PushedDown};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan};
use futures::stream;
use oribi_engine::Table;
use reader::Reader;
use std::any::Any;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use work::Runs;

/// The rows of some tablets of a table.
#[derive(Clone)]
pub(crate) struct TableSource {
    view: Arc<StatementView>,
    pub(super) table: Arc<Table>,
    pub(super) columns: TableColumns,
    /// By their numbers.
    pub(super) tablets: Arc<[usize]>,
    /// Positions in `columns.arrow`.
    pub(super) projection: Arc<[usize]>,
    projected: SchemaRef,
    /// What rows must pass, and what operators above say of those that they want; about `columns.arrow`.
    pub(super) predicate: Option<Arc<dyn PhysicalExpr>>,
    pub(super) fetch: Option<usize>,
    partitions: usize,
    /// Of a batch, at most.
    batch_rows: usize,
    /// Of all columns of `columns.arrow`.
    statistics: Arc<Statistics>,
    /// The part of it that a task reads, if several processes do.
    share: Option<Share>,
    /// What it waits to be told then, and reads no other rows.
    awaited: Arc<[Awaited]>,
    /// What joins of the same process have seen that have a part in the predicate, by their filters.
    seen: Arc<HashMap<u64, Arc<KeysSeen>>>,
    metrics: ExecutionPlanMetricsSet,
}

/// A scan of a table; `None` if `plan` is none.
pub(crate) fn table_source(plan: &Arc<dyn ExecutionPlan>) -> Option<&TableSource> {
    plan.downcast_ref::<DataSourceExec>()?.data_source().downcast_ref::<TableSource>()
}

/// The filters of what operators above a scan learn.
pub(crate) fn asked_filters(plan: &Arc<dyn ExecutionPlan>) -> Vec<u64> {
    table_source(plan).map_or_else(Vec::new, TableSource::asked_filters)
}

/// A scan that knows what joins have seen, of these by their filters; `None` if it asks for none of that.
pub(crate) fn with_seen(
    plan: &Arc<dyn ExecutionPlan>,
    of_joins: &HashMap<u64, Arc<KeysSeen>>,
) -> Option<Arc<dyn ExecutionPlan>> {
    let source = table_source(plan)?;
    let seen = source.asked_filters().into_iter();
    let seen: HashMap<_, _> = seen.filter_map(|id| Some((id, Arc::clone(of_joins.get(&id)?)))).collect();
    (!seen.is_empty()).then(|| DataSourceExec::from_data_source(source.with_seen(seen)) as _)
}

/// How a table is scanned.
pub(super) struct Plan {
    pub(super) tablets: Vec<usize>,
    pub(super) partitions: usize,
    pub(super) batch_rows: usize,
    pub(super) statistics: Statistics,
}

impl TableSource {
    pub(super) fn new(
        (view, table, columns): (&Arc<StatementView>, &Arc<Table>, &TableColumns),
        plan: Plan,
        projection: Option<&Vec<usize>>,
        fetch: Option<usize>,
    ) -> Result<Self> {
        let all = || (0..columns.arrow.fields().len()).collect();
        Ok(TableSource {
            view: Arc::clone(view),
            table: Arc::clone(table),
            columns: columns.clone(),
            tablets: plan.tablets.into(),
            projection: projection.cloned().unwrap_or_else(all).into(),
            projected: project_schema(&columns.arrow, projection)?,
            predicate: None,
            fetch,
            partitions: plan.partitions,
            batch_rows: plan.batch_rows,
            statistics: Arc::new(plan.statistics),
            share: None,
            awaited: Arc::default(),
            seen: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Of rows that pass `parts` too.
    pub(super) fn passing(self, parts: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        let predicate = conjunction_opt(self.predicate.iter().cloned().chain(parts));
        TableSource { predicate, ..self }
    }

    /// The same without what operators above learn, which check it themselves. From `joins`, by their filters, it waits to be told.
    pub(crate) fn exact(&self, joins: &HashSet<u64>) -> Self {
        let parts = self.predicate.iter().flat_map(split_conjunction);
        let (learned, exact): (Vec<_>, Vec<_>) = parts.partition(|part| learns(part));
        let awaited = learned.into_iter().filter_map(|part| {
            let id = part.downcast_ref::<DynamicFilterPhysicalExpr>()?.expression_id()?;
            let column = |key: &Arc<dyn PhysicalExpr>| key.downcast_ref::<Column>().map(Column::index);
            let places = part.children().into_iter().map(column).collect::<Option<Vec<_>>>()?;
            self.awaits(id, &places).filter(|_| joins.contains(&id))
        });
        let awaited = awaited.collect();
        TableSource { predicate: conjunction_opt(exact.into_iter().map(Arc::clone)), awaited, ..self.clone() }
    }

    /// The filters of what operators above learn.
    fn asked_filters(&self) -> Vec<u64> {
        let parts = self.predicate.iter().flat_map(split_conjunction);
        parts.filter_map(|part| part.downcast_ref::<DynamicFilterPhysicalExpr>()?.expression_id()).collect()
    }

    /// The same, knowing what joins have seen.
    fn with_seen(&self, seen: HashMap<u64, Arc<KeysSeen>>) -> Self {
        TableSource { seen: Arc::new(seen), ..self.clone() }
    }

    /// A filter about columns at these places; `None` if there are none.
    pub(crate) fn awaits(&self, filter: u64, places: &[usize]) -> Option<Awaited> {
        Awaited::new(filter, places, &self.columns.arrow)
    }

    pub(crate) fn awaiting(self, awaited: Arc<[Awaited]>) -> Self {
        TableSource { awaited, ..self }
    }

    pub(crate) fn awaited(&self) -> &[Awaited] {
        &self.awaited
    }

    /// The part of it that a task reads.
    pub(crate) fn shared(&self, share: Share) -> Self {
        let metrics = ExecutionPlanMetricsSet::new();
        TableSource { share: Some(share), metrics, ..self.clone() }
    }

    /// The scan with what was measured of its parts.
    pub(crate) fn executed(&self, measured: &MetricsSet) -> Self {
        let metrics = ExecutionPlanMetricsSet::new();
        measured.iter().for_each(|metric| metrics.register(Arc::clone(metric)));
        TableSource { metrics, ..self.clone() }
    }

    pub(crate) fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }

    /// Whether rows are to be told of where they lie.
    pub(crate) fn tells_places(&self) -> bool {
        self.columns.has_places(&self.read())
    }

    pub(crate) fn partitions(&self) -> usize {
        self.partitions
    }

    /// Whether all rows of its tablets are handed on.
    pub(crate) fn is_whole(&self) -> bool {
        self.predicate.is_none() && self.fetch.is_none()
    }

    /// How many rows there are, about.
    pub(crate) fn rows(&self) -> Option<usize> {
        self.statistics.num_rows.get_value().copied()
    }

    /// What is to be opened: for whom, of which table, and which tablets.
    pub(crate) fn to_open(&self) -> (Arc<StatementView>, Arc<Table>, Arc<[usize]>) {
        (Arc::clone(&self.view), Arc::clone(&self.table), Arc::clone(&self.tablets))
    }

    /// Name of the table that is scanned.
    pub(crate) fn table(&self) -> String {
        format!("{}.{}", self.table.schema_name(), self.table.name())
    }

    /// What is read, by position: what is projected and what the predicate may ask for. Ascending.
    fn read(&self) -> Vec<usize> {
        let tested = self.predicate.iter().flat_map(collect_columns).map(|column| column.index());
        group::all_columns(&self.projection, tested.collect())
    }

    /// What is equal, or has one value, in all rows that pass.
    fn equalities(&self, predicate: &Arc<dyn PhysicalExpr>) -> Result<EquivalenceProperties> {
        let mut known = EquivalenceProperties::new(Arc::clone(&self.columns.arrow));
        for part in split_conjunction(predicate).into_iter().filter(|part| !learns(part)) {
            known.add_constants(ConstExpr::collect_predicate_constants(&known, part))?;
            if let Some(equal) = part.downcast_ref::<BinaryExpr>()
                && *equal.op() == Operator::Eq
                && (equal.left().is::<Column>() || equal.right().is::<Column>())
            {
                known.add_equal_conditions(Arc::clone(equal.left()), Arc::clone(equal.right()))?;
            }
        }
        let projection = ProjectionMapping::from_indices(&self.projection, &self.columns.arrow)?;
        Ok(known.project(&projection, Arc::clone(&self.projected)))
    }

    /// How many rows a batch may have, by those of its files that are longest on the average.
    pub(crate) fn batch_rows(&self) -> usize {
        self.batch_rows
    }
}

impl DataSource for TableSource {
    fn open(&self, _partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("the partitions of a scan are opened with what they share")
    }

    fn create_sibling_state(&self, _config: &ConfigOptions) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(Runs::new(&self.view, self.partitions)))
    }

    fn open_with_args(&self, args: OpenArgs) -> Result<SendableRecordBatchStream> {
        let runs = args.sibling_state.and_then(|state| state.downcast::<Runs>().ok());
        let Some(work) = runs.and_then(|runs| runs.begin(args.partition)) else {
            return self.open(args.partition, args.context);
        };
        let told = self.awaited.iter().map(Awaited::filter).collect();
        let reader = Reader::new(self.clone().passing(told), work, args.partition, &args.context);
        let batches = stream::try_unfold(reader, Reader::next);
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.projected), batches)))
    }

    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (read, all) = (self.tablets.len(), self.table.tablet_ids().len());
        if matches!(format, DisplayFormatType::TreeRender) {
            return writeln!(f, "scan={}", self.table());
        }
        let columns: Vec<&str> = self.projected.fields().iter().map(|f| f.name().as_str()).collect();
        write!(f, "scan of {}, tablets={read} of {all}, ", self.table())?;
        write!(f, "projection=[{}]", columns.join(", "))?;
        if let Some(predicate) = &self.predicate {
            write!(f, ", filter={predicate}")?;
        }
        if !self.awaited.is_empty() {
            let name = |place: usize| self.columns.arrow.field(place).name().as_str();
            let keys: BTreeSet<&str> = self.awaited.iter().flat_map(Awaited::columns).map(name).collect();
            write!(f, ", runtime_filters=[{}]", Vec::from_iter(keys).join(", "))?;
        }
        if let Some(share) = &self.share {
            write!(f, ", {share}")?;
        }
        self.fetch.map_or(Ok(()), |fetch| write!(f, ", limit={fetch}"))
    }

    fn output_partitioning(&self) -> Partitioning {
        Partitioning::UnknownPartitioning(self.partitions)
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        let nothing = || EquivalenceProperties::new(Arc::clone(&self.projected));
        // What is not told costs a sort at most.
        self.predicate
            .as_ref()
            .map_or_else(nothing, |predicate| self.equalities(predicate).unwrap_or_else(|_| nothing()))
    }

    /// Which rows a partition will take is not known.
    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let mut all = Statistics::clone(&self.statistics);
        if self.predicate.is_some() {
            all = all.to_inexact();
        }
        let projection = ProjectionExprs::from_indices(&self.projection, &self.columns.arrow);
        let statistics = projection.project_statistics(all, &self.projected)?;
        Ok(Arc::new(match partition {
            None => statistics.with_fetch(self.fetch, 0, 1)?,
            Some(_) => {
                let mut statistics = statistics.to_inexact();
                statistics.num_rows = statistics.num_rows.map(|rows| rows / self.partitions);
                statistics.with_fetch(self.fetch, 0, 1)?
            }
        }))
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn DataSource>> {
        Some(Arc::new(TableSource { fetch: limit, ..self.clone() }))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn metrics(&self) -> ExecutionPlanMetricsSet {
        self.metrics.clone()
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn DataSource>>> {
        let Some(positions) = projected_again(&self.projection, projection) else { return Ok(None) };
        let projected = project_schema(&self.columns.arrow, Some(&positions))?;
        Ok(Some(Arc::new(TableSource { projection: positions.into(), projected, ..self.clone() })))
    }

    /// No other rows than those that pass are handed on. What operators above learn may be forgotten: they check it themselves.
    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn DataSource>>> {
        // What is above a limit is about the rows that this leaves.
        let is_taken = |filter: &Arc<dyn PhysicalExpr>| self.fetch.is_none() && !is_volatile(filter);
        let is_exact = |filter| match is_taken(filter) && !learns(filter) {
            true => PushedDown::Yes,
            false => PushedDown::No,
        };
        let told =
            FilterPushdownPropagation::with_parent_pushdown_result(filters.iter().map(is_exact).collect());
        let taken: Vec<_> = filters.into_iter().filter(is_taken).collect();
        if taken.is_empty() {
            return Ok(told);
        }
        let taken = taken.into_iter().map(|filter| reassign_expr_columns(filter, &self.columns.arrow));
        let source = self.clone().passing(taken.collect::<Result<_>>()?);
        Ok(told.with_updated_node(Arc::new(source) as Arc<dyn DataSource>))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.predicate.as_ref().map_or(Ok(TreeNodeRecursion::Continue), f)
    }
}

impl fmt::Debug for TableSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableSource({})", self.table())
    }
}
