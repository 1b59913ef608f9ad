//! Rows of a table by a range of its keys, as a source of batches in key order.
//!
//! A partition per tablet that has rows. Rows are read when batches are asked for, a few first, so that who wants no more pays for no
//! more. The engine is asked on threads of normal priority, and a batch is handed on once what it shows is settled.

use super::TableColumns;
use super::key_bounds::KeyBounds;
use crate::context::StatementView;
use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, project_schema};
use datafusion::datasource::source::DataSource;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;
use oribi_engine::{RangeCounts, RangeReader, Table};
use oribi_types::batch::BatchBuilder;
use std::fmt;
use std::sync::Arc;

/// Rows of the first batch.
const ROWS_FIRST: usize = 256;

/// Rows of a table whose keys are in a range.
#[derive(Clone)]
pub(crate) struct RangeSource {
    view: Arc<StatementView>,
    pub(super) table: Arc<Table>,
    pub(super) columns: TableColumns,
    pub(super) bounds: Arc<KeyBounds>,
    /// How many tablets the bounds leave.
    left: usize,
    /// Those of them that have rows, by number, and how many rows of the range each has at most.
    pub(super) tablets: Arc<[(usize, u64)]>,
    /// Positions in `columns.arrow`.
    pub(super) projection: Arc<[usize]>,
    projected: SchemaRef,
    /// Of a batch, at most.
    batch_rows: usize,
    pub(super) fetch: Option<usize>,
    metrics: ExecutionPlanMetricsSet,
}

impl RangeSource {
    pub(super) fn new(
        (view, table, columns): (&Arc<StatementView>, &Arc<Table>, &TableColumns),
        bounds: KeyBounds,
        (left, tablets): (usize, Vec<(usize, u64)>),
        projection: Option<&Vec<usize>>,
        batch_rows: usize,
        fetch: Option<usize>,
    ) -> Result<Self> {
        let all = || (0..columns.arrow.fields().len()).collect();
        Ok(RangeSource {
            view: Arc::clone(view),
            table: Arc::clone(table),
            columns: columns.clone(),
            bounds: Arc::new(bounds),
            left,
            tablets: tablets.into(),
            projection: projection.cloned().unwrap_or_else(all).into(),
            projected: project_schema(&columns.arrow, projection)?,
            batch_rows,
            fetch,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Name of the table that is read.
    pub(crate) fn table(&self) -> String {
        format!("{}.{}", self.table.schema_name(), self.table.name())
    }

    pub(crate) fn batch_rows(&self) -> usize {
        self.batch_rows
    }

    /// Whether it is read in a few steps, however few of its rows pass what filters are above.
    pub(crate) fn is_short(&self) -> bool {
        self.tablets.iter().map(|(_, rows)| rows).sum::<u64>() <= super::RANGE_ROWS_MAX
    }

    fn rows_max(&self, partition: Option<usize>) -> usize {
        let tablets = self.tablets.iter().enumerate();
        let tablets = tablets.filter(|(i, _)| partition.is_none_or(|partition| *i == partition));
        let rows: u64 = tablets.map(|(_, (_, rows))| rows).sum();
        (rows as usize).min(self.fetch.unwrap_or(usize::MAX))
    }

    /// The columns of the key by which the rows are ordered, as far as they are projected; those that have one value
    /// may lack.
    fn ordering(&self) -> Vec<PhysicalSortExpr> {
        let mut ordering = Vec::new();
        for (component, position) in self.columns.schema.key().iter().enumerate() {
            match self.projection.iter().position(|projected| projected == position) {
                Some(i) => {
                    let column = Column::new(self.projected.field(i).name(), i);
                    let options = SortOptions { descending: false, nulls_first: false };
                    ordering.push(PhysicalSortExpr { expr: Arc::new(column), options });
                }
                None if component < self.bounds.equal => {}
                None => break,
            }
        }
        ordering
    }
}

impl DataSource for RangeSource {
    fn open(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let consumer = MemoryConsumer::new(format!("rows by key of {}", self.table()));
        let (tablet, _) = self.tablets[partition];
        let (stored, _) = self.columns.stored(&self.projection);
        let snapshot = self.view.snapshot();
        let keys = self.bounds.keys.clone();
        let batches = Batches {
            range: Some(self.view.engine.range(&self.table, tablet, keys, &stored, snapshot)),
            source: self.clone(),
            partition,
            batch_rows: context.session_config().batch_size().min(self.batch_rows),
            rows_next: ROWS_FIRST,
            left: self.fetch.unwrap_or(usize::MAX),
            counted: RangeCounts::default(),
            reservation: consumer.register(context.memory_pool()),
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        let batches = stream::try_unfold(batches, Batches::next);
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.projected), batches)))
    }

    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(format, DisplayFormatType::TreeRender) {
            writeln!(f, "format=key range")?;
            return writeln!(f, "rows<={}", self.rows_max(None));
        }
        let keys =
            if self.bounds.is_bounded() { self.bounds.filters.join(" AND ") } else { "all".to_owned() };
        let columns: Vec<&str> = self.projected.fields().iter().map(|f| f.name().as_str()).collect();
        let (tablets, all) = (self.left, self.table.tablet_ids().len());
        let rows = self.rows_max(None);
        let projection = columns.join(", ");
        write!(f, "key range of {}, keys=[{keys}], tablets={tablets} of {all}, ", self.table())?;
        write!(f, "rows<={rows}, projection=[{projection}]")?;
        self.fetch.map_or(Ok(()), |fetch| write!(f, ", limit={fetch}"))
    }

    fn output_partitioning(&self) -> Partitioning {
        Partitioning::UnknownPartitioning(self.tablets.len())
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        EquivalenceProperties::new_with_orderings(Arc::clone(&self.projected), [self.ordering()])
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.projected);
        statistics.num_rows = Precision::Inexact(self.rows_max(partition));
        Ok(Arc::new(statistics))
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn DataSource>> {
        Some(Arc::new(RangeSource { fetch: limit, ..self.clone() }))
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
        let Some(positions) = super::projected_again(&self.projection, projection) else { return Ok(None) };
        let projected = project_schema(&self.columns.arrow, Some(&positions))?;
        Ok(Some(Arc::new(RangeSource { projection: positions.into(), projected, ..self.clone() })))
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
}

impl fmt::Debug for RangeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RangeSource({})", self.table())
    }
}

/// The batches of one tablet.
struct Batches {
    /// `None` only while this is dropped.
    range: Option<RangeReader>,
    source: RangeSource,
    partition: usize,
    batch_rows: usize,
    rows_next: usize,
    /// Rows that may still be yielded.
    left: usize,
    /// What the metrics have by now.
    counted: RangeCounts,
    reservation: MemoryReservation,
    metrics: BaselineMetrics,
}

impl Batches {
    async fn next(self) -> Result<Option<(RecordBatch, Self)>> {
        let view = Arc::clone(&self.source.view);
        let read = view.runtime.lookup(move || self.read()).await;
        let external = |e| DataFusionError::External(Box::new(e));
        let (batch, batches) = read.map_err(external)?;
        let obligation = batches.range.as_ref().map(RangeReader::obligation).unwrap_or_default();
        view.engine.settled(obligation).await.map_err(external)?;
        batches.reservation.try_resize(batch.get_array_memory_size())?;
        batches.metrics.record_output(batch.num_rows());
        Ok((batch.num_rows() > 0).then_some((batch, batches)))
    }

    /// The next batch; without rows if there are no more.
    fn read(mut self) -> oribi_types::Result<(RecordBatch, Self)> {
        let elapsed = self.metrics.elapsed_compute().clone();
        let _timer = elapsed.timer();
        let TableColumns { schema, .. } = &self.source.columns;
        let (stored, with_ts) = self.source.columns.stored(&self.source.projection);
        let mut builder = BatchBuilder::new(schema, &stored, with_ts);
        let rows_max = self.rows_next.min(self.batch_rows).min(self.left);
        let mut read = 0;
        if let Some(range) = &mut self.range {
            read = range.read(rows_max, |row| builder.push(row.key, row.row, row.ts))?;
        }
        let batch = self.source.columns.arrange(&self.source.projection, builder.finish()?, None)?;
        self.left -= read;
        self.rows_next = rows_max.saturating_mul(4);
        self.count();
        Ok((batch, self))
    }

    /// Adds to the metrics what came since the last time.
    fn count(&mut self) {
        let Some(range) = &self.range else { return };
        let (now, before) = (range.counts(), std::mem::replace(&mut self.counted, range.counts()));
        for (name, now, before) in [
            (super::MEMORY_ROWS, now.memory_rows, before.memory_rows),
            (super::MEMTABLE_BYTES, now.memory_bytes, before.memory_bytes),
            (super::FILES, now.files, before.files),
            (super::FILE_ROWS, now.file_rows, before.file_rows),
            (super::FILE_BYTES, now.file_bytes, before.file_bytes),
        ] {
            if now > before {
                let metric = MetricBuilder::new(&self.source.metrics).counter(name, self.partition);
                metric.add((now - before) as usize);
            }
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        // What it holds takes locks that serving threads want, and a query thread may be the one to drop it.
        self.source.view.runtime.release(self.range.take());
    }
}
