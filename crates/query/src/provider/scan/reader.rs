//! One partition of a scan, which reads a piece after the other.

use super::TableSource;
use super::filter::{Filter, learns};
use super::group::{Group, Late, Tested, all_columns, external, projected};
use super::prune::Pruner;
use super::share::Rows;
use super::work::{Piece, Work};
use crate::long_rows::BATCH_BYTES;
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, GenericByteViewArray, RecordBatch, RecordBatchOptions,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{BatchCoalescer, filter_record_batch};
use arrow::datatypes::{ByteViewType, DataType};
use datafusion::common::Result;
use datafusion::datasource::physical_plan::parquet::ParquetFileMetrics;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, MetricBuilder};
use futures::StreamExt;
use oribi_engine::{FileScan, MemoryColumns, RowSelection};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Metrics: rows from memory, and the memory of the columns made of them; SSTables that were read from, the rows of them that the
/// snapshot sees, and the bytes read.
pub(crate) const MEMORY_ROWS: &str = "memtable_rows";
pub(crate) const MEMTABLE_BYTES: &str = "memtable_bytes";
pub(crate) const FILES: &str = "sstables";
pub(crate) const FILE_ROWS: &str = "sstable_rows";
pub(crate) const FILE_BYTES: &str = "sstable_bytes";

/// Rows that were read from SSTables though the snapshot does not see them, and rows that did not pass the predicate.
const HIDDEN_ROWS: &str = "rows_hidden";
const FILTERED_ROWS: &str = "rows_filtered";

/// Batches of so many rows are handed on as they are. The rows of others are gathered: operators above do something for every
/// batch.
const GATHERED_ROWS: usize = 1024;
/// Batches of rows in memory that are made by one visit of a thread that may.
const BATCHES_A_VISIT: usize = 8;

pub(super) struct Reader {
    source: TableSource,
    work: Arc<Work>,
    filter: Filter,
    current: Option<Current>,
    /// Of the row group that was tested last.
    tested: Tested,
    /// Rows of batches that have few.
    gathered: BatchCoalescer,
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
    Group(Group),
    Late(Late),
    Memory(Box<MemoryColumns>),
    Sent(Rows),
}

struct Counts {
    baseline: BaselineMetrics,
    pruning: ParquetFileMetrics,
    files: Count,
    file_rows: Count,
    file_bytes: Count,
    memory_rows: Count,
    memory_bytes: Count,
    hidden: Count,
    filtered: Count,
    /// The files that are counted.
    seen: BTreeSet<u64>,
}

impl Reader {
    pub(super) fn new(source: TableSource, work: Arc<Work>, partition: usize, context: &TaskContext) -> Self {
        let consumer = MemoryConsumer::new(format!("scan of {}", source.table()));
        let rows = source.batch_rows.min(source.fetch.unwrap_or(usize::MAX)).max(1);
        let gathered = BatchCoalescer::new(Arc::clone(&source.projected), rows);
        Reader {
            work,
            filter: Filter::new(source.predicate.as_ref(), &source.columns.arrow, &source.seen),
            current: None,
            tested: Tested::default(),
            gathered: gathered.with_biggest_coalesce_batch_size(Some((rows / 2).min(GATHERED_ROWS - 1))),
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
            // Perhaps no row passes for long.
            tokio::task::coop::consume_budget().await;
            if !self.read().await? && self.ready.is_empty() {
                break;
            }
        }
        Ok(None)
    }

    /// Reads on; false after the last piece.
    async fn read(&mut self) -> Result<bool> {
        match self.current.take() {
            Some(Current::Group(group)) => self.read_group(group)?,
            Some(Current::Late(group)) => self.read_late(group)?,
            Some(Current::Memory(rows)) => self.read_memory(rows).await?,
            Some(Current::Sent(rows)) => self.read_sent(rows).await?,
            None => match self.work.next(&self.source, &self.counts.pruning, &self.reservation).await? {
                Some(Piece::Group { file, group, within }) => {
                    self.begin_group(&file, group, within)?;
                    // One of which few rows pass was tested as a whole.
                    tokio::task::yield_now().await;
                }
                Some(Piece::Memory(rows)) => self.current = Some(Current::Memory(rows)),
                Some(Piece::Sent(rows)) => self.current = Some(Current::Sent(rows)),
                None => {
                    self.gathered.finish_buffered_batch()?;
                    self.ready.extend(self.gathered.next_completed_batch());
                    return Ok(false);
                }
            },
        }
        Ok(true)
    }

    /// Hands on the rows of a batch that passed.
    fn hand_on(&mut self, batch: RecordBatch, passing: Option<BooleanBuffer>) -> Result<()> {
        let batch = match passing {
            // Not as one step of gathering, which keeps the texts of all rows where few pass.
            Some(rows) => {
                let passed = filter_record_batch(&batch, &BooleanArray::from(rows))?;
                match 2 * passed.num_rows() < batch.num_rows() {
                    true => compacted(passed)?,
                    false => passed,
                }
            }
            None => batch,
        };
        self.gathered.push_batch(batch)?;
        if self.gathered.size() as u64 >= BATCH_BYTES {
            self.gathered.finish_buffered_batch()?;
        }
        self.ready.extend(std::iter::from_fn(|| self.gathered.next_completed_batch()));
        Ok(())
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
        let Some(rows) = file.rows(group, within).map_err(external)? else { return Ok(()) };
        if self.counts.seen.insert(file.sstable.meta().id) {
            self.counts.files.add(1);
        }
        let place = (file.as_ref(), group);
        let tested = self.filter.columns()?;
        let is_late = self.tested.is_late()
            && self.source.fetch.is_none()
            && !tested.is_empty()
            && !self.source.projection.iter().all(|p| tested.contains(p));
        self.tested = Tested::default();
        if !is_late {
            let columns = all_columns(&self.source.projection, tested);
            self.current =
                Some(Current::Group(Group::open(&self.source, place, rows, columns, &self.filter)?));
            return Ok(());
        }
        let selected = rows.selected.clone();
        let mut group = Group::open(&self.source, place, rows, tested.into_iter().collect(), &self.filter)?;
        let Reader { source, filter, tested, counts, .. } = self;
        let count = |batch| {
            tested.add(batch);
            counts.count(batch);
        };
        let late = Late::open(source, place, selected, &mut group, filter, count)?;
        self.current = late.map(Current::Late);
        self.counts.file_bytes.add(group.bytes_read() as usize);
        Ok(())
    }

    fn may_pass(&mut self, file: &Arc<FileScan>, group: usize) -> Result<bool> {
        let Some(predicate) = self.source.predicate.as_ref().filter(|p| learns(p)) else { return Ok(true) };
        let pruner = match self.pruner.take().filter(|pruner| !pruner.is_stale(predicate, file)) {
            Some(pruner) => pruner,
            None => Pruner::new(predicate, &self.source.columns, file, &self.counts.pruning)?,
        };
        let pruner = self.pruner.insert(pruner);
        Ok(pruner.may_pass(group, &self.counts.pruning))
    }

    fn read_group(&mut self, mut group: Group) -> Result<()> {
        let elapsed = self.counts.baseline.elapsed_compute().clone();
        let _timer = elapsed.timer();
        let before = group.bytes_read();
        let Some((batch, passing, tested)) = group.next(&self.source, &mut self.filter)? else {
            return Ok(());
        };
        self.counts.file_bytes.add((group.bytes_read() - before) as usize);
        self.counts.count(tested);
        self.tested.add(tested);
        self.hand_on(group.projected(&self.source, &batch)?, passing)?;
        self.current = Some(Current::Group(group));
        Ok(())
    }

    fn read_late(&mut self, mut group: Late) -> Result<()> {
        let elapsed = self.counts.baseline.elapsed_compute().clone();
        let _timer = elapsed.timer();
        let before = group.bytes_read();
        let Some(batch) = group.next(&self.source)? else { return Ok(()) };
        self.counts.file_bytes.add((group.bytes_read() - before) as usize);
        self.hand_on(batch, None)?;
        self.current = Some(Current::Late(group));
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
        self.take_in(batches)
    }

    /// Those that another process has in memory.
    async fn read_sent(&mut self, mut rows: Rows) -> Result<()> {
        let Some(batch) = rows.next().await.transpose().map_err(external)? else { return Ok(()) };
        self.current = Some(Current::Sent(rows));
        self.take_in(vec![batch])
    }

    /// Hands on what passes of rows in memory, with the columns that are read.
    fn take_in(&mut self, batches: Vec<RecordBatch>) -> Result<()> {
        let columns = self.source.read();
        self.filter.columns()?;
        let test = self.filter.test(&columns)?;
        for batch in batches {
            self.counts.memory_rows.add(batch.num_rows());
            self.counts.memory_bytes.add(batch.get_array_memory_size());
            let batch = self.source.columns.arrange(&columns, batch, None).map_err(external)?;
            let passing = self.filter.passing(&test, &batch, None)?;
            let passed = passing.as_ref().map_or(batch.num_rows(), BooleanBuffer::count_set_bits);
            self.counts.filtered.add(batch.num_rows() - passed);
            self.hand_on(projected(&self.source, &columns, &batch)?, passing)?;
        }
        self.count_ready();
        Ok(())
    }

    /// What was handed on counts with those who have it.
    fn count_ready(&mut self) {
        let ready: usize = self.ready.iter().map(RecordBatch::get_array_memory_size).sum();
        self.reservation.resize(ready + self.gathered.size());
    }
}

/// The same rows without the texts of others, where these are more than half of what the batch keeps in memory.
fn compacted(batch: RecordBatch) -> Result<RecordBatch> {
    fn of<T: ByteViewType>(views: &GenericByteViewArray<T>) -> Option<ArrayRef> {
        let kept: usize = views.data_buffers().iter().map(|buffer| buffer.len()).sum();
        (kept > 2 * views.total_buffer_bytes_used()).then(|| Arc::new(views.gc()) as ArrayRef)
    }
    let own = |column: &ArrayRef| match column.data_type() {
        DataType::Utf8View => of(column.as_string_view()),
        DataType::BinaryView => of(column.as_binary_view()),
        _ => None,
    };
    let columns = batch.columns().iter().map(|column| own(column).unwrap_or_else(|| Arc::clone(column)));
    Ok(RecordBatch::try_new_with_options(
        batch.schema(),
        columns.collect(),
        &RecordBatchOptions::new().with_row_count(Some(batch.num_rows())),
    )?)
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
            hidden: count(HIDDEN_ROWS),
            filtered: count(FILTERED_ROWS),
            seen: BTreeSet::new(),
        }
    }

    /// A batch of a file.
    fn count(&self, batch: Tested) {
        self.file_rows.add(batch.seen);
        self.hidden.add(batch.rows - batch.seen);
        self.filtered.add(batch.seen - batch.passed);
    }
}
