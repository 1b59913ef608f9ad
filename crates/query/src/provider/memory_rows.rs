//! The rows of a table that are in no SSTable yet, as a source of batches.
//!
//! A partition per tablet. Batches are made when a partition is opened, of the columns that the plan wants.

use super::TableColumns;
use crate::long_rows::rows_of;
use crate::unread::is_short;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, DataFusionError, Result, Statistics, project_schema};
use datafusion::datasource::source::DataSource;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_functions_aggregate_common::min_max::{MaxAccumulator, MinAccumulator};
use futures::stream;
use oribi_engine::MemoryRows;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Metric: bytes of the columns made of rows in memory.
pub(crate) const MEMTABLE_BYTES: &str = "memtable_bytes";

/// So many rows of so many bytes are looked at while a statement is planned: that takes some milliseconds.
const SMALL_ROWS: usize = 16 << 10;
const SMALL_BYTES: usize = 4 << 20;
/// Rows that are looked at together.
const BATCH_ROWS: usize = 8192;

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
    /// What is known of columns, by their positions in `columns.arrow`.
    known: Arc<HashMap<usize, ColumnStatistics>>,
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
            known: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Looks at the rows for what is known of their columns.
    ///
    /// The bounds are true ones. An estimate would not do, though they are said to be inexact: DataFusion takes a column for
    /// a constant if a filter leaves one value between its bounds, and then neither sorts by it nor looks for its largest.
    pub(super) fn looked_at(self) -> Result<Self> {
        let mut known = Vec::new();
        for (column, field) in self.projection.iter().zip(self.projected.fields()) {
            if !self.columns.is_ts(*column) && is_bounded(field.data_type()) {
                known.push((*column, Bounds::new(field.data_type())?));
            }
        }
        for tablet in 0..self.tablets.len() {
            let alone = MemorySource {
                projection: known.iter().map(|(column, _)| *column).collect(),
                ..self.clone()
            };
            for batch in alone.batches(tablet, alone.batch_rows_of(tablet, BATCH_ROWS))? {
                for ((_, bounds), values) in known.iter_mut().zip(batch.columns()) {
                    bounds.add(values)?;
                }
            }
        }
        let known = known.into_iter().map(|(column, bounds)| Ok((column, bounds.statistics()?)));
        Ok(MemorySource { known: Arc::new(known.collect::<Result<_>>()?), ..self })
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

    /// Whether there are so few rows that [looking at them](Self::looked_at) is worth while.
    pub(super) fn is_small(&self) -> bool {
        let bytes: usize = self.tablets.iter().map(|tablet| tablet.bytes).sum();
        self.rows(None) <= SMALL_ROWS && bytes <= SMALL_BYTES
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
        for (of_column, column) in statistics.column_statistics.iter_mut().zip(self.projection.iter()) {
            if let Some(known) = self.known.get(column) {
                *of_column = known.clone();
            }
        }
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

/// Whether the least and the greatest value of a type are what filters compare with. Of floats, NaN is not.
fn is_bounded(data_type: &DataType) -> bool {
    let has_order = data_type.is_integer()
        || data_type.is_temporal()
        || data_type.is_string()
        || matches!(data_type, DataType::Boolean | DataType::Decimal128(..));
    has_order && !matches!(data_type, DataType::Interval(_))
}

/// What is known of the values of a column.
struct Bounds {
    min: MinAccumulator,
    max: MaxAccumulator,
    nulls: usize,
}

impl Bounds {
    fn new(data_type: &DataType) -> Result<Self> {
        let (min, max) = (MinAccumulator::try_new(data_type)?, MaxAccumulator::try_new(data_type)?);
        Ok(Bounds { min, max, nulls: 0 })
    }

    fn add(&mut self, values: &ArrayRef) -> Result<()> {
        self.nulls += values.null_count();
        self.min.update_batch(std::slice::from_ref(values))?;
        self.max.update_batch(std::slice::from_ref(values))
    }

    fn statistics(mut self) -> Result<ColumnStatistics> {
        let mut statistics = ColumnStatistics::new_unknown();
        statistics.null_count = Precision::Inexact(self.nulls);
        let (min, max) = (self.min.evaluate()?, self.max.evaluate()?);
        if !min.is_null() && !max.is_null() {
            statistics.min_value = Precision::Inexact(min);
            statistics.max_value = Precision::Inexact(max);
        }
        Ok(statistics)
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
