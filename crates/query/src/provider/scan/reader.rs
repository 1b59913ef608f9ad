//! One partition of a scan, which reads a piece after the other.

use super::TableSource;
use super::prune::Pruner;
use super::work::{Piece, Work};
use arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::physical_plan::parquet::ParquetFileMetrics;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterTracking;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, MetricBuilder};
use oribi_engine::{FileScan, MemoryColumns, RowSelection};
use oribi_sstable::Batches;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Metrics: rows from memory, and the memory of the columns made of them; SSTables that were read from, their rows, and the
/// bytes read.
pub(crate) const MEMORY_ROWS: &str = "memtable_rows";
pub(crate) const MEMTABLE_BYTES: &str = "memtable_bytes";
pub(crate) const FILES: &str = "sstables";
pub(crate) const FILE_ROWS: &str = "sstable_rows";
pub(crate) const FILE_BYTES: &str = "sstable_bytes";

/// Batches of rows in memory that are made by one visit of a thread that may.
const BATCHES_A_VISIT: usize = 8;

pub(super) struct Reader {
    source: TableSource,
    work: Arc<Work>,
    current: Option<Current>,
    /// What was read and not handed on.
    ready: VecDeque<RecordBatch>,
    /// Rows that may still be handed on.
    left: usize,
    /// Of the file that was begun last, if the predicate learns.
    pruner: Option<Pruner>,
    /// Of what is ready.
    reservation: MemoryReservation,
    counts: Counts,
}

/// What is being read.
enum Current {
    Group(Batches),
    Memory(Box<MemoryColumns>),
}

struct Counts {
    baseline: BaselineMetrics,
    pruning: ParquetFileMetrics,
    files: Count,
    file_rows: Count,
    file_bytes: Count,
    memory_rows: Count,
    memory_bytes: Count,
    /// The files that are counted.
    seen: BTreeSet<u64>,
}

impl Reader {
    pub(super) fn new(source: TableSource, work: Arc<Work>, partition: usize, context: &TaskContext) -> Self {
        let consumer = MemoryConsumer::new(format!("scan of {}", source.table()));
        Reader {
            work,
            current: None,
            ready: VecDeque::new(),
            left: source.fetch.unwrap_or(usize::MAX),
            pruner: None,
            reservation: consumer.register(context.memory_pool()),
            counts: Counts::new(&source, partition),
            source,
        }
    }

    /// The next batch, and who reads on.
    pub(super) async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        while self.left > 0 {
            if let Some(batch) = self.ready.pop_front() {
                self.count_ready();
                let batch = batch.slice(0, batch.num_rows().min(self.left));
                self.left -= batch.num_rows();
                self.counts.baseline.record_output(batch.num_rows());
                return Ok(Some((batch, self)));
            }
            if !self.read().await? {
                break;
            }
        }
        Ok(None)
    }

    /// Reads on; false after the last piece.
    async fn read(&mut self) -> Result<bool> {
        match self.current.take() {
            Some(Current::Group(batches)) => self.read_group(batches)?,
            Some(Current::Memory(rows)) => self.read_memory(rows).await?,
            None => match self.work.next(&self.source, &self.counts.pruning).await? {
                Some(Piece::Group { file, group, within }) => self.begin_group(&file, group, within)?,
                Some(Piece::Memory(rows)) => self.current = Some(Current::Memory(rows)),
                None => return Ok(false),
            },
        }
        Ok(true)
    }
}

impl Reader {
    /// Begins a row group, unless the predicate has learned by now that none of its rows passes.
    fn begin_group(
        &mut self,
        file: &Arc<FileScan>,
        group: usize,
        within: Option<RowSelection>,
    ) -> Result<()> {
        let elapsed = self.counts.baseline.elapsed_compute().clone();
        let _timer = elapsed.timer();
        if !self.may_pass(file, group)? {
            return Ok(());
        }
        let columns = &self.source.columns;
        let (stored, with_ts) = columns.stored(&self.source.projection);
        let batches = file.batches(&columns.schema, &stored, with_ts, group, within).map_err(external)?;
        if self.counts.seen.insert(file.sstable.meta().id) {
            self.counts.files.add(1);
        }
        self.current = batches.map(Current::Group);
        Ok(())
    }

    fn may_pass(&mut self, file: &Arc<FileScan>, group: usize) -> Result<bool> {
        let learns =
            |p: &&Arc<dyn PhysicalExpr>| DynamicFilterTracking::classify(p).contains_dynamic_filter();
        let Some(predicate) = self.source.predicate.as_ref().filter(learns) else { return Ok(true) };
        let pruner = match self.pruner.take().filter(|pruner| !pruner.is_stale(predicate, file)) {
            Some(pruner) => pruner,
            None => Pruner::new(predicate, &self.source.columns, file, &self.counts.pruning)?,
        };
        let pruner = self.pruner.insert(pruner);
        Ok(pruner.may_pass(group, &self.counts.pruning))
    }

    fn read_group(&mut self, mut batches: Batches) -> Result<()> {
        let elapsed = self.counts.baseline.elapsed_compute().clone();
        let _timer = elapsed.timer();
        let before = batches.bytes_read();
        let Some(batch) = batches.next() else { return Ok(()) };
        let batch = self.arranged(batch.map_err(external)?)?;
        self.counts.file_bytes.add((batches.bytes_read() - before) as usize);
        self.counts.file_rows.add(batch.num_rows());
        self.ready.push_back(batch);
        self.current = Some(Current::Group(batches));
        Ok(())
    }

    /// Rows in memory are found by the row index, whose locks serving threads want: others look there.
    async fn read_memory(&mut self, mut rows: Box<MemoryColumns>) -> Result<()> {
        let read = self.source.view.runtime.lookup(move || {
            let next = std::iter::from_fn(|| rows.next_batch().transpose());
            let batches = next.take(BATCHES_A_VISIT).collect::<oribi_types::Result<Vec<_>>>()?;
            Ok((rows, batches))
        });
        let (rows, batches) = read.await.map_err(external)?;
        if batches.is_empty() {
            self.source.view.runtime.release(rows);
            return Ok(());
        }
        self.current = Some(Current::Memory(rows));
        for batch in batches {
            let batch = self.arranged(batch)?;
            self.counts.memory_rows.add(batch.num_rows());
            self.counts.memory_bytes.add(batch.get_array_memory_size());
            self.ready.push_back(batch);
        }
        self.count_ready();
        Ok(())
    }

    /// What was handed on counts with those who have it.
    fn count_ready(&mut self) {
        self.reservation.resize(self.ready.iter().map(RecordBatch::get_array_memory_size).sum());
    }

    fn arranged(&self, batch: RecordBatch) -> Result<RecordBatch> {
        self.source.columns.arrange(&self.source.projection, batch).map_err(external)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(Current::Memory(rows)) = self.current.take() {
            self.source.view.runtime.release(rows);
        }
    }
}

impl Counts {
    fn new(source: &TableSource, partition: usize) -> Self {
        let count = |name| MetricBuilder::new(&source.metrics).counter(name, partition);
        Counts {
            baseline: BaselineMetrics::new(&source.metrics, partition),
            pruning: ParquetFileMetrics::new(partition, &source.table(), &source.metrics),
            files: count(FILES),
            file_rows: count(FILE_ROWS),
            file_bytes: count(FILE_BYTES),
            memory_rows: count(MEMORY_ROWS),
            memory_bytes: count(MEMTABLE_BYTES),
            seen: BTreeSet::new(),
        }
    }
}

fn external(error: oribi_types::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
