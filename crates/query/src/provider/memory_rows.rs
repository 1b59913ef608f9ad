//! The rows of a table that are in no SSTable yet, as a source of batches.
//!
//! A partition per tablet. Batches are made when a partition is opened, of the columns that the plan wants.

use super::TableColumns;
use crate::long_rows::rows_of;
use crate::unread::is_short;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, project_schema};
use datafusion::datasource::source::DataSource;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;
use oribi_engine::MemoryRows;
use std::fmt;
use std::sync::Arc;

/// Metric: bytes of the columns made of rows in memory.
pub(crate) const MEMTABLE_BYTES: &str = "memtable_bytes";

struct Tablet {
    rows: MemoryRows,
    bytes: usize,
}

/// Rows of a table in memory.
#[derive(Clone)]
pub(crate) struct MemorySource {
    table: Arc<str>,
    columns: TableColumns,
    tablets: Arc<[Tablet]>,
    /// Positions in `columns.arrow`.
    projection: Arc<[usize]>,
    projected: SchemaRef,
    fetch: Option<usize>,
    metrics: ExecutionPlanMetricsSet,
}

impl MemorySource {
    pub(super) fn new(
        table: String,
        columns: TableColumns,
        tablets: Vec<MemoryRows>,
        projection: Option<&Vec<usize>>,
        fetch: Option<usize>,
    ) -> Result<Self> {
        let projected = project_schema(&columns.arrow, projection)?;
        let all = || (0..columns.arrow.fields().len()).collect();
        let projection: Vec<usize> = projection.cloned().unwrap_or_else(all);
        Ok(MemorySource {
            table: table.into(),
            columns,
            tablets: tablets.into_iter().map(|rows| Tablet { bytes: rows.bytes(), rows }).collect(),
            projection: projection.into(),
            projected,
            fetch,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Name of the table that is scanned.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// The batches of one tablet, columns in the order of the projection.
    fn batches(&self, partition: usize, batch_rows: usize) -> Result<Vec<RecordBatch>> {
        let (stored, with_ts) = self.columns.stored(&self.projection);
        let rows = &self.tablets[partition].rows;
        let batches = rows.batches(&self.columns.schema, &stored, with_ts, batch_rows);
        let arrange = |batch| self.columns.arrange(&self.projection, batch);
        let arranged = batches.and_then(|batches| batches.into_iter().map(arrange).collect());
        arranged.map_err(|e| DataFusionError::External(Box::new(e)))
    }

    /// How many rows a batch may have, by those of the tablet whose rows are longest on the average.
    pub(crate) fn batch_rows(&self) -> usize {
        let tablets = 0..self.tablets.len();
        tablets.map(|tablet| self.batch_rows_of(tablet, usize::MAX)).min().unwrap_or(usize::MAX)
    }

    /// How many rows a batch of a tablet has that would have `rows` if they were short.
    fn batch_rows_of(&self, partition: usize, rows: usize) -> usize {
        if is_short(&self.projected) {
            return rows;
        }
        let Tablet { rows: tablet, bytes } = &self.tablets[partition];
        rows_of((bytes / tablet.rows().max(1)) as u64, rows)
    }

    fn rows(&self, partition: Option<usize>) -> usize {
        match partition {
            Some(partition) => self.tablets[partition].rows.rows(),
            None => self.tablets.iter().map(|tablet| tablet.rows.rows()).sum(),
        }
    }
}

impl DataSource for MemorySource {
    fn open(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let consumer = MemoryConsumer::new(format!("scan of unflushed rows of {}", self.table));
        let batches = Batches {
            source: self.clone(),
            partition,
            batch_rows: self.batch_rows_of(partition, context.session_config().batch_size()),
            made: None,
            left: self.fetch.unwrap_or(usize::MAX),
            reservation: consumer.register(context.memory_pool()),
            metrics: BaselineMetrics::new(&self.metrics, partition),
            bytes: MetricBuilder::new(&self.metrics).counter(MEMTABLE_BYTES, partition),
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.projected), stream::iter(batches))))
    }

    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(format, DisplayFormatType::TreeRender) {
            writeln!(f, "format=memtable")?;
            return writeln!(f, "rows={}", self.rows(None));
        }
        let columns: Vec<&str> = self.projected.fields().iter().map(|f| f.name().as_str()).collect();
        write!(
            f,
            "memtable of {}, rows={}, projection=[{}]",
            self.table,
            self.rows(None),
            columns.join(", ")
        )?;
        self.fetch.map_or(Ok(()), |fetch| write!(f, ", limit={fetch}"))
    }

    fn output_partitioning(&self) -> Partitioning {
        Partitioning::UnknownPartitioning(self.tablets.len())
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        EquivalenceProperties::new(Arc::clone(&self.projected))
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let bytes: usize = match partition {
            Some(partition) => self.tablets[partition].bytes,
            None => self.tablets.iter().map(|tablet| tablet.bytes).sum(),
        };
        let mut statistics = Statistics::new_unknown(&self.projected);
        statistics.num_rows = Precision::Exact(self.rows(partition));
        statistics.total_byte_size = Precision::Inexact(bytes);
        if let Some(fetch) = self.fetch.filter(|fetch| *fetch < self.rows(partition)) {
            statistics.num_rows = Precision::Inexact(fetch);
        }
        Ok(Arc::new(statistics))
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn DataSource>> {
        Some(Arc::new(MemorySource { fetch: limit, ..self.clone() }))
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
        Ok(Some(Arc::new(MemorySource { projection: positions.into(), projected, ..self.clone() })))
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemorySource({})", self.table)
    }
}

/// The batches of one tablet, made when the first is asked for.
struct Batches {
    source: MemorySource,
    partition: usize,
    batch_rows: usize,
    made: Option<std::vec::IntoIter<RecordBatch>>,
    /// Rows that may still be yielded.
    left: usize,
    reservation: MemoryReservation,
    metrics: BaselineMetrics,
    bytes: Count,
}

impl Batches {
    fn make(&mut self) -> Result<std::vec::IntoIter<RecordBatch>> {
        // The columns made of the rows take about as much memory as the rows.
        self.reservation.try_grow(self.source.tablets[self.partition].bytes)?;
        let batches = self.source.batches(self.partition, self.batch_rows)?;
        let size = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        self.reservation.resize(size);
        self.bytes.add(size);
        Ok(batches.into_iter())
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let elapsed = self.metrics.elapsed_compute().clone();
        let _timer = elapsed.timer();
        if self.made.is_none() {
            match self.make() {
                Ok(batches) => self.made = Some(batches),
                Err(e) => {
                    self.left = 0;
                    return Some(Err(e));
                }
            }
        }
        let batch = self.made.as_mut()?.next()?;
        let batch = batch.slice(0, batch.num_rows().min(self.left));
        self.left -= batch.num_rows();
        self.metrics.record_output(batch.num_rows());
        Some(Ok(batch))
    }
}
