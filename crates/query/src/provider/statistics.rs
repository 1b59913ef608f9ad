//! What is known of a table's columns before they are read: of files by their metadata, and of rows in memory by a look at them.
//! Both are looked at once: a file never changes, and what a tablet has in memory is remembered until it does.

use super::columns::{missing_value, positions, stored_id};
use super::{OribiTable, TableColumns};
use crate::context::StatementView;
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, DataFusionError, Result, ScalarValue, Statistics};
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::logical_expr::Accumulator;
use datafusion_functions_aggregate_common::min_max::{MaxAccumulator, MinAccumulator};
use oribi_engine::{FileOutline, MemoryOutline, MemoryState, Outline, Snapshot, Table};
use oribi_sstable::Sstable;
use oribi_types::batch::TS_FIELD_ID;
use oribi_types::schema::TS_COLUMN;
use oribi_types::{Column, Error, Timestamp};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::ParquetMetaData;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// So many rows of so many bytes are looked at while a statement is planned though they changed since the one before: that takes
/// some milliseconds. More are looked at only where nobody writes to them, and so as a rule once.
const SMALL_ROWS: u64 = 16 << 10;
const SMALL_BYTES: u64 = 4 << 20;
/// A bound of more bytes is not kept.
const BOUND_BYTES_MAX: usize = 1 << 10;

/// Statistics of what queries have seen: of all rows of files, deleted rows included, and of rows in memory.
#[derive(Default)]
pub(crate) struct StatisticsCache {
    files: Mutex<HashMap<PathBuf, Entry>>,
    /// By tablet.
    memory: Mutex<HashMap<u64, InMemory>>,
}

struct Entry {
    sstable: Weak<Sstable>,
    /// The table's columns that the statistics are about.
    arrow: SchemaRef,
    statistics: Arc<Statistics>,
}

/// What was found of the rows that a tablet had in memory.
struct InMemory {
    table: Weak<Table>,
    /// The columns that the numbers in `bounds` are of.
    arrow: SchemaRef,
    state: MemoryState,
    /// Of a snapshot that saw all of it. What later ones see that find the same state is the same.
    at: Timestamp,
    /// By column.
    bounds: BTreeMap<usize, ColumnStatistics>,
}

/// What is known of the rows that a tablet has in memory, and what is not.
struct Known<'a> {
    memory: &'a MemoryOutline,
    bounds: BTreeMap<usize, ColumnStatistics>,
    lacking: Vec<usize>,
    /// An earlier statement has found the same rows.
    is_unchanged: bool,
}

impl StatisticsCache {
    /// What is known of the columns `wanted` of a tablet's rows in memory. Takes note of the state that they are in.
    fn of_memory<'a>(
        &self,
        table: &Arc<Table>,
        (memory, is_quiet): (&'a MemoryOutline, bool),
        snapshot: &Snapshot,
        wanted: &[usize],
    ) -> Known<'a> {
        let (tablet, schema) = (tablet_id(table, memory), table.schema());
        let mut tablets = self.lock_memory();
        let is_quiet = is_quiet && !table.is_uncommitted();
        let known = tablets
            .get(&tablet)
            .filter(|known| !table.is_uncommitted() && known.holds(memory, snapshot, schema.arrow()));
        let is_unchanged = known.is_some();
        let bounds = known.map(|known| known.bounds.clone()).unwrap_or_default();
        if !is_unchanged && is_quiet {
            tablets.retain(|_, known| known.table.strong_count() > 0);
            let (arrow, state) = (Arc::clone(schema.arrow()), memory.state.clone());
            let (table, at) = (Arc::downgrade(table), snapshot.ts());
            tablets.insert(tablet, InMemory { table, arrow, state, at, bounds: BTreeMap::new() });
        }
        let lacking = wanted.iter().copied().filter(|column| !bounds.contains_key(column)).collect();
        Known { memory, bounds, lacking, is_unchanged }
    }

    /// Keeps what a look at the rows that `snapshot` sees has found.
    fn keep(&self, table: &Arc<Table>, known: &Known<'_>, snapshot: &Snapshot) {
        let (tablet, schema) = (tablet_id(table, known.memory), table.schema());
        let mut tablets = self.lock_memory();
        let kept = tablets.get_mut(&tablet);
        // What covers this state may have had rows besides, that have become files since.
        let is_same = |kept: &&mut InMemory| kept.state == known.memory.state;
        let kept = kept.filter(is_same).filter(|_| !table.is_uncommitted());
        if let Some(kept) = kept.filter(|kept| kept.holds(known.memory, snapshot, schema.arrow())) {
            kept.bounds.extend(known.bounds.clone());
        }
    }

    fn lock_memory(&self) -> std::sync::MutexGuard<'_, HashMap<u64, InMemory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InMemory {
    /// Whether `snapshot`, which finds `memory`, sees the rows that this is about.
    fn holds(&self, memory: &MemoryOutline, snapshot: &Snapshot, arrow: &SchemaRef) -> bool {
        self.at <= snapshot.ts() && self.state.covers(&memory.state) && self.arrow.fields() == arrow.fields()
    }
}

impl Known<'_> {
    fn statistics(&self, columns: &SchemaRef) -> Statistics {
        let mut statistics = unknown(columns, self.memory.rows, self.memory.bytes);
        for (column, bounds) in &self.bounds {
            statistics.column_statistics[*column] = bounds.clone();
        }
        statistics
    }
}

fn tablet_id(table: &Table, memory: &MemoryOutline) -> u64 {
    table.tablet_ids().nth(memory.tablet).expect("it is one of the table's")
}

fn unknown(columns: &SchemaRef, rows: u64, bytes: u64) -> Statistics {
    Statistics::new_unknown(columns)
        .with_num_rows(Precision::Inexact(rows as usize))
        .with_total_byte_size(Precision::Inexact(bytes as usize))
}

impl StatisticsCache {
    /// The statistics of `sstable`, one entry per column of `columns`.
    fn of_file(
        &self,
        columns: &TableColumns,
        sstable: &Arc<Sstable>,
        metadata: &ParquetMetaData,
    ) -> Result<Arc<Statistics>> {
        if let Some(entry) = self.lock().get(sstable.path())
            && entry.arrow.fields() == columns.arrow.fields()
        {
            return Ok(Arc::clone(&entry.statistics));
        }
        let statistics = Arc::new(compute(columns, metadata)?);
        let entry = Entry {
            sstable: Arc::downgrade(sstable),
            arrow: Arc::clone(&columns.arrow),
            statistics: Arc::clone(&statistics),
        };
        let mut files = self.lock();
        files.retain(|_, entry| entry.sstable.strong_count() > 0);
        files.insert(sstable.path().to_owned(), entry);
        Ok(statistics)
    }

    /// The statistics of what a scan sees of a file.
    fn of_outline(&self, table: &OribiTable, file: &FileOutline) -> Result<Statistics> {
        let columns = &table.columns;
        let external = |e| DataFusionError::External(Box::new(e));
        let metadata = file.sstable.metadata().map_err(external)?;
        // Of columns that may never be, later ones may have the ids.
        let all = match table.table.is_uncommitted() {
            true => compute(columns, &metadata)?,
            false => Statistics::clone(&*self.of_file(columns, &file.sstable, &metadata)?),
        };
        let rows = (file.sstable.meta().rows - file.marked) as usize;
        Ok(match file.is_exact {
            true if file.marked == 0 => all,
            // Whether a smallest value is among those that are left is not known.
            true => all.to_inexact().with_num_rows(Precision::Exact(rows)),
            false => all.to_inexact().with_num_rows(Precision::Inexact(rows)),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Entry>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OribiTable {
    /// What is known of the rows that are outlined, one entry per column of the table; of rows in memory, what is projected.
    pub(super) async fn statistics(
        &self,
        view: &Arc<StatementView>,
        outline: &Outline,
        projection: Option<&Vec<usize>>,
    ) -> Result<Statistics> {
        let of_file = |file| view.statistics.of_outline(self, file);
        let mut parts = outline.files.iter().map(of_file).collect::<Result<Vec<_>>>()?;
        // Without files, nothing is lost if nothing is known.
        let known = match parts.is_empty() {
            true => None,
            false => self.look_at_memory(view, outline, projection).await?,
        };
        match known {
            Some(known) => parts.extend(known.iter().map(|known| known.statistics(&self.columns.arrow))),
            None => parts.push(unknown(&self.columns.arrow, outline.memory_rows, outline.memory_bytes)),
        }
        Statistics::try_merge_iter(&parts, &self.columns.arrow)
    }

    /// What is known of the rows in memory, tablet by tablet, after a look at those that are new; `None` if these are too many.
    ///
    /// The bounds are true ones. An estimate would not do, though they are said to be inexact: DataFusion takes a column for
    /// a constant if a filter leaves one value between its bounds, and then neither sorts by it nor looks for its largest.
    async fn look_at_memory<'a>(
        &self,
        view: &Arc<StatementView>,
        outline: &'a Outline,
        projection: Option<&Vec<usize>>,
    ) -> Result<Option<Vec<Known<'a>>>> {
        let fields = self.columns.schema.arrow().fields();
        let is_wanted = |column: &usize| projection.is_none_or(|projection| projection.contains(column));
        let wanted: Vec<usize> = (0..fields.len())
            .filter(|column| is_wanted(column) && is_bounded(fields[*column].data_type()))
            .collect();
        let (cache, snapshot) = (&view.statistics, view.snapshot());
        let look_up = |memory| cache.of_memory(&self.table, (memory, outline.is_quiet), snapshot, &wanted);
        let mut known: Vec<Known<'_>> = outline.memory.iter().map(look_up).collect();
        let changed = known.iter().filter(|known| !known.is_unchanged && !known.lacking.is_empty());
        let (rows, bytes) = changed
            .fold((0, 0), |(rows, bytes), known| (rows + known.memory.rows, bytes + known.memory.bytes));
        if rows > SMALL_ROWS || bytes > SMALL_BYTES {
            return Ok(None);
        }
        let lacking = known.iter_mut().filter(|known| !known.lacking.is_empty()).collect::<Vec<_>>();
        if lacking.is_empty() {
            return Ok(Some(known));
        }
        let places = lacking.iter().map(|known| (known.memory.tablet, known.lacking.clone())).collect();
        for (known, bounds) in lacking.into_iter().zip(self.bounds_in_memory(view, places).await?) {
            for (column, bounds) in known.lacking.iter().zip(bounds) {
                known.bounds.insert(*column, bounds.statistics()?);
            }
            cache.keep(&self.table, known, snapshot);
        }
        Ok(Some(known))
    }

    /// The bounds of columns of the rows that some tablets have in memory.
    async fn bounds_in_memory(
        &self,
        view: &Arc<StatementView>,
        places: Vec<(usize, Vec<usize>)>,
    ) -> Result<Vec<Vec<Bounds>>> {
        let (engine, table, snapshot) =
            (Arc::clone(&view.engine), Arc::clone(&self.table), Arc::clone(view.snapshot()));
        let fields = self.columns.schema.arrow().fields().clone();
        let failed = |e: DataFusionError| Error::internal(e.to_string());
        let of_tablet = move |(tablet, columns): (usize, Vec<usize>)| {
            let bounds = columns.iter().map(|n| Bounds::new(fields[*n].data_type()));
            let mut bounds = bounds.collect::<Result<Vec<_>>>().map_err(failed)?;
            let mut rows = engine.memory_columns(&table, tablet, &columns, &snapshot, None)?;
            while let Some(batch) = rows.next_batch()? {
                let columns = bounds.iter_mut().zip(batch.columns());
                columns.into_iter().try_for_each(|(bounds, values)| bounds.add(values)).map_err(failed)?;
            }
            Ok(bounds)
        };
        let look = move || places.into_iter().map(of_tablet).collect();
        view.runtime.lookup(look).await.map_err(|e| DataFusionError::External(Box::new(e)))
    }
}

fn compute(columns: &TableColumns, metadata: &ParquetMetaData) -> Result<Statistics> {
    let file = metadata.file_metadata();
    let file_schema: SchemaRef =
        Arc::new(parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata())?);
    let positions = positions(&file_schema);
    // DataFusion looks statistics up by name, so it is asked for the table's columns by their names in the file.
    let mut fields = Vec::with_capacity(columns.arrow.fields().len());
    let mut sources = Vec::with_capacity(fields.capacity());
    for (i, field) in columns.arrow.fields().iter().enumerate() {
        let column = columns.schema.columns().get(i);
        let id = match column {
            Some(column) => Some(stored_id(column)),
            None => (field.name() == TS_COLUMN).then_some(i64::from(TS_FIELD_ID)),
        };
        let position = id.and_then(|id| positions.get(&id)).copied();
        let name = position.map_or("", |p| file_schema.field(p).name());
        fields.push(Field::new(name, field.data_type().clone(), true));
        sources.push((column, position));
    }
    let by_name = Arc::new(ArrowSchema::new(fields));
    let mut statistics = DFParquetMetadata::statistics_from_parquet_metadata(metadata, &by_name)?;
    for (i, (column, position)) in sources.into_iter().enumerate() {
        let stored = position.map(|p| file_schema.field(p).data_type());
        let statistics_of = &mut statistics.column_statistics[i];
        match (stored, column) {
            (None, Some(column)) => *statistics_of = constant(column, statistics.num_rows)?,
            (None, None) => *statistics_of = ColumnStatistics::new_unknown(),
            // `cas` shows the unsigned `_ts` as a signed number.
            (Some(DataType::UInt64), _) => *statistics_of = ColumnStatistics::new_unknown(),
            // Parquet's bounds leave NaN out, which SQL sorts above all numbers.
            (Some(DataType::Float32 | DataType::Float64), _) => {
                *statistics_of = std::mem::take(statistics_of).to_inexact();
            }
            (Some(_), _) => {}
        }
    }
    Ok(statistics)
}

/// The statistics of a column that the file does not have.
fn constant(column: &Column, rows: Precision<usize>) -> Result<ColumnStatistics> {
    let value = missing_value(column)?;
    let nulls = if value.is_null() { rows } else { Precision::Exact(0) };
    let mut statistics = ColumnStatistics::new_unknown().with_null_count(nulls);
    if !value.is_null() {
        statistics.min_value = Precision::Exact(value.clone());
        statistics.max_value = Precision::Exact(value);
    }
    Ok(statistics)
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
        let is_kept = |bound: &ScalarValue| !bound.is_null() && bound.size() <= BOUND_BYTES_MAX;
        if is_kept(&min) && is_kept(&max) {
            statistics.min_value = Precision::Inexact(min);
            statistics.max_value = Precision::Inexact(max);
        }
        Ok(statistics)
    }
}
