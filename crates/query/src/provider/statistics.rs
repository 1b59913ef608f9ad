//! What is known of a table's columns before they are read: of files by their metadata, and of rows in memory by a look at them.
//! Both are looked at once: a file never changes, and of what a tablet has in memory those rows are looked at that changed since.

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
use oribi_engine::{FileOutline, MemoryColumns, MemoryOutline, MemoryState, Outline, Snapshot, Table};
use oribi_sstable::{OpenFile, Sstable};
use oribi_types::batch::TS_FIELD_ID;
use oribi_types::schema::TS_COLUMN;
use oribi_types::{Column, Error, Schema, Timestamp};
use parquet::arrow::parquet_to_arrow_schema;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// So many rows of so many bytes are looked at while a statement is planned as they changed since the one before: that takes
/// some milliseconds. Where there are no more of these, all others are looked at once.
const SMALL_ROWS: u64 = 16 << 10;
const SMALL_BYTES: u64 = 4 << 20;
/// Of columns that nothing is known of, so many rows of a tablet are looked at while others write to it: some tens of milliseconds.
const FIRST_ROWS: u64 = 256 << 10;
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
    opened: Weak<OpenFile>,
    /// The columns that the statistics are about.
    columns: TableColumns,
    statistics: Arc<Statistics>,
}

/// What was found of the rows that a tablet had in memory.
struct InMemory {
    table: Weak<Table>,
    /// Of the columns that the numbers in `bounds` are of.
    schema: Arc<Schema>,
    state: MemoryState,
    /// Of a snapshot that saw all of it. What later ones see that find the same state is the same, and of another state, what
    /// has not changed since.
    at: Timestamp,
    /// By column.
    bounds: BTreeMap<usize, Bounds>,
}

/// What is known of the rows that a tablet has in memory, and what is not.
struct Known<'a> {
    memory: &'a MemoryOutline,
    /// Of the rows of the state that an earlier statement has found.
    bounds: BTreeMap<usize, Bounds>,
    found: Option<MemoryState>,
    lacking: Vec<usize>,
    /// It has found the same rows.
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
            .filter(|known| !table.is_uncommitted() && known.is_before(snapshot, &schema));
        let is_unchanged = known.is_some_and(|known| known.state.covers(&memory.state));
        let bounds = known.map(|known| known.bounds.clone()).unwrap_or_default();
        let found = known.map(|known| known.state.clone());
        if found.is_none() && is_quiet {
            tablets.retain(|_, known| known.table.strong_count() > 0);
            tablets.insert(tablet, InMemory::new(table, memory, snapshot, BTreeMap::new()));
        }
        let lacking = wanted.iter().copied().filter(|column| !bounds.contains_key(column)).collect();
        Known { memory, bounds, found, lacking, is_unchanged }
    }

    /// Keeps what looks at the rows that `snapshot` sees have found, if `is_quiet` of the state that they are in. Else it holds for the
    /// state that was found: what has not changed since is the same.
    fn keep(&self, table: &Arc<Table>, (known, is_quiet): (&Known<'_>, bool), snapshot: &Snapshot) {
        if table.is_uncommitted() {
            return;
        }
        let tablet = tablet_id(table, known.memory);
        let mut tablets = self.lock_memory();
        if is_quiet {
            tablets.insert(tablet, InMemory::new(table, known.memory, snapshot, known.bounds.clone()));
            return;
        }
        let kept = tablets.get_mut(&tablet).filter(|kept| known.found.as_ref() == Some(&kept.state));
        if let Some(kept) = kept.filter(|kept| kept.is_before(snapshot, table.schema_ref())) {
            kept.bounds.extend(known.bounds.clone());
        }
    }

    /// Has statements that come look at all rows again, if `is_quiet`: too many changed.
    fn begin_anew(&self, table: &Arc<Table>, (known, is_quiet): (&Known<'_>, bool), snapshot: &Snapshot) {
        if is_quiet && !known.is_unchanged && !table.is_uncommitted() {
            let anew = InMemory::new(table, known.memory, snapshot, BTreeMap::new());
            self.lock_memory().insert(tablet_id(table, known.memory), anew);
        }
    }

    fn lock_memory(&self) -> std::sync::MutexGuard<'_, HashMap<u64, InMemory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InMemory {
    /// What `snapshot` finds, which sees all of it.
    fn new(
        table: &Arc<Table>,
        memory: &MemoryOutline,
        snapshot: &Snapshot,
        bounds: BTreeMap<usize, Bounds>,
    ) -> Self {
        let (schema, state) = (table.schema(), memory.state.clone());
        InMemory { table: Arc::downgrade(table), schema, state, at: snapshot.ts(), bounds }
    }

    /// Whether `snapshot` sees the rows that this is about, or what became of them since.
    fn is_before(&self, snapshot: &Snapshot, schema: &Schema) -> bool {
        self.at <= snapshot.ts() && self.schema.columns() == schema.columns()
    }
}

impl Known<'_> {
    fn statistics(&self, columns: &SchemaRef) -> Statistics {
        let mut statistics = unknown(columns, self.memory.rows, self.memory.bytes);
        for (column, bounds) in &self.bounds {
            // A change of rows that have no key may have asked for their numbers, which this statement does not know.
            if let Some(known) = statistics.column_statistics.get_mut(*column) {
                *known = bounds.statistics(self.memory.rows as usize);
            }
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
    /// The statistics of a file without its patches, one entry per column of `columns`.
    fn of_file(&self, columns: &TableColumns, file: &Sstable) -> Result<Arc<Statistics>> {
        if let Some(entry) = self.lock().get(file.path())
            && entry.columns == *columns
        {
            return Ok(Arc::clone(&entry.statistics));
        }
        let statistics = Arc::new(compute(columns, file)?);
        let entry =
            Entry { opened: file.opened(), columns: columns.clone(), statistics: Arc::clone(&statistics) };
        let mut files = self.lock();
        files.retain(|_, entry| entry.opened.strong_count() > 0);
        files.insert(file.path().to_owned(), entry);
        Ok(statistics)
    }

    /// The statistics of what a scan sees of a file.
    fn of_outline(&self, table: &OribiTable, file: &FileOutline) -> Result<Statistics> {
        let columns = &table.columns;
        // Of columns that may never be, later ones may have the ids.
        let of_file = |file: &Sstable| match table.table.is_uncommitted() {
            true => compute(columns, file).map(Arc::new),
            false => self.of_file(columns, file),
        };
        let mut all = Statistics::clone(&*of_file(&file.sstable)?);
        for patch in file.sstable.patches() {
            let set = of_file(patch.values())?;
            let of_rows = all.column_statistics.iter_mut().zip(&set.column_statistics);
            for ((of_row, set), column) in of_rows.zip(columns.schema.columns()) {
                if patch.sets(column.id) {
                    *of_row = either(of_row, set);
                }
            }
        }
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
        // The number of a row that has no key is a column behind all others.
        let wanted: Vec<usize> = (0..fields.len().min(self.columns.arrow.fields().len()))
            .filter(|column| is_wanted(column) && is_bounded(fields[*column].data_type()))
            .collect();
        let (cache, snapshot) = (&view.statistics, view.snapshot());
        let (table, is_quiet) = (&self.table, outline.is_quiet);
        let look_up = |memory| cache.of_memory(table, (memory, is_quiet), snapshot, &wanted);
        let mut known: Vec<Known<'_>> = outline.memory.iter().map(look_up).collect();
        let Some(looked) = self.look(view, self.looks(&known)?).await? else {
            known.iter().for_each(|known| cache.begin_anew(table, (known, is_quiet), snapshot));
            return Ok(None);
        };
        let looked_at: BTreeSet<usize> = looked.iter().map(|(of, _)| *of).collect();
        for (of, found) in looked {
            known[of].bounds.extend(found);
        }
        for of in looked_at {
            cache.keep(table, (&known[of], is_quiet), snapshot);
        }
        Ok(Some(known))
    }

    /// What is to be looked at of rows in memory.
    fn looks(&self, known: &[Known<'_>]) -> Result<Looks> {
        let fields = self.columns.schema.arrow().fields();
        let mut looks = Looks::default();
        for (i, of) in known.iter().enumerate() {
            let (tablet, rows, bytes) = (of.memory.tablet, of.memory.rows, of.memory.bytes);
            let mut add = |columns: Columns, since: Option<MemoryState>| {
                looks.looks.push(Look { known: i, tablet, rows, bytes, since, columns });
            };
            if let Some(found) = of.found.as_ref().filter(|_| !of.is_unchanged) {
                add(of.bounds.clone().into_iter().collect(), Some(found.clone()));
            }
            if !of.lacking.is_empty() && (of.is_unchanged || rows <= FIRST_ROWS) {
                let empty = |column: &usize| Ok((*column, Bounds::new(fields[*column].data_type())?));
                add(of.lacking.iter().map(empty).collect::<Result<_>>()?, None);
            }
            if of.found.is_none() && !of.lacking.is_empty() {
                looks.changed.add(rows, bytes);
            }
        }
        Ok(looks)
    }

    /// What looks find, and of which of the tablets; `None` if the rows that changed are too many.
    async fn look(&self, view: &Arc<StatementView>, looks: Looks) -> Result<Option<Vec<(usize, Columns)>>> {
        if looks.changed.is_much() {
            return Ok(None);
        }
        if looks.looks.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let (engine, table, snapshot) =
            (Arc::clone(&view.engine), Arc::clone(&self.table), Arc::clone(view.snapshot()));
        let look = move || {
            let Looks { looks, mut changed } = looks;
            let mut open = Vec::with_capacity(looks.len());
            for look in looks {
                let columns: Vec<usize> = look.columns.iter().map(|(column, _)| *column).collect();
                let since = look.since.as_ref();
                let memory = engine.memory_columns(&table, look.tablet, &columns, &snapshot, since)?;
                if since.is_some() {
                    let rows = memory.keys_left() as u64;
                    changed.add(rows, look.bytes * rows / look.rows.max(1));
                }
                open.push((look, memory));
            }
            if changed.is_much() {
                return Ok(None);
            }
            open.into_iter()
                .map(|(look, memory)| look.at(memory))
                .collect::<oribi_types::Result<_>>()
                .map(Some)
        };
        view.runtime.lookup(look).await.map_err(|e| DataFusionError::External(Box::new(e)))
    }
}

/// Of rows that have a value of the one or the other: true bounds, which no row need have.
fn either(one: &ColumnStatistics, other: &ColumnStatistics) -> ColumnStatistics {
    let mut statistics = ColumnStatistics::new_unknown();
    statistics.min_value = one.min_value.min(&other.min_value).to_inexact();
    statistics.max_value = one.max_value.max(&other.max_value).to_inexact();
    statistics.null_count = one.null_count.add(&other.null_count).to_inexact();
    statistics
}

fn compute(columns: &TableColumns, file: &Sstable) -> Result<Statistics> {
    let metadata = file.metadata().map_err(|e| DataFusionError::External(Box::new(e)))?;
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
    let mut statistics = DFParquetMetadata::statistics_from_parquet_metadata(&metadata, &by_name)?;
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

/// Rows in memory that are to be looked at.
#[derive(Default)]
struct Looks {
    looks: Vec<Look>,
    /// Of those of which nothing is known.
    changed: Changed,
}

/// Rows that changed since the statement before.
#[derive(Default)]
struct Changed {
    rows: u64,
    bytes: u64,
}

impl Changed {
    fn add(&mut self, rows: u64, bytes: u64) {
        self.rows += rows;
        self.bytes += bytes;
    }

    fn is_much(&self) -> bool {
        self.rows > SMALL_ROWS || self.bytes > SMALL_BYTES
    }
}

/// Rows of a tablet, all or those that changed since it was in a state: what is found widens the bounds of these columns.
struct Look {
    /// For which of the tablets of which something is known.
    known: usize,
    tablet: usize,
    /// Of all rows that it has in memory.
    rows: u64,
    bytes: u64,
    since: Option<MemoryState>,
    columns: Columns,
}

type Columns = Vec<(usize, Bounds)>;

impl Look {
    fn at(mut self, mut memory: MemoryColumns) -> oribi_types::Result<(usize, Columns)> {
        let failed = |e: DataFusionError| Error::internal(e.to_string());
        while !self.columns.is_empty()
            && let Some(batch) = memory.next_batch()?
        {
            let mut columns = self.columns.iter_mut().zip(batch.columns());
            columns.try_for_each(|((_, bounds), values)| bounds.add(values)).map_err(failed)?;
        }
        self.columns.iter_mut().for_each(|(_, bounds)| bounds.forget_if_long());
        Ok((self.known, self.columns))
    }
}

/// What is known of the values of a column.
#[derive(Clone)]
struct Bounds {
    min: MinAccumulator,
    max: MaxAccumulator,
    nulls: usize,
    /// A bound would take too much to be kept.
    is_long: bool,
}

impl Bounds {
    fn new(data_type: &DataType) -> Result<Self> {
        let (min, max) = (MinAccumulator::try_new(data_type)?, MaxAccumulator::try_new(data_type)?);
        Ok(Bounds { min, max, nulls: 0, is_long: false })
    }

    fn add(&mut self, values: &ArrayRef) -> Result<()> {
        self.nulls += values.null_count();
        if self.is_long {
            return Ok(());
        }
        self.min.update_batch(std::slice::from_ref(values))?;
        self.max.update_batch(std::slice::from_ref(values))
    }

    /// The least and the greatest value, null if there is none.
    fn ends(&self) -> [ScalarValue; 2] {
        let (mut min, mut max) = (self.min.clone(), self.max.clone());
        [min.evaluate(), max.evaluate()].map(|end| end.unwrap_or(ScalarValue::Null))
    }

    fn forget_if_long(&mut self) {
        if self.ends().iter().any(|end| end.size() > BOUND_BYTES_MAX) {
            self.is_long = true;
            let data_type = self.ends()[0].data_type();
            if let Ok(empty) = Bounds::new(&data_type) {
                (self.min, self.max) = (empty.min, empty.max);
            }
        }
    }

    /// Of so many rows.
    fn statistics(&self, rows: usize) -> ColumnStatistics {
        let mut statistics = ColumnStatistics::new_unknown();
        // A row that was looked at again counts twice.
        statistics.null_count = Precision::Inexact(self.nulls.min(rows));
        let [min, max] = self.ends();
        if !self.is_long && !min.is_null() && !max.is_null() {
            statistics.min_value = Precision::Inexact(min);
            statistics.max_value = Precision::Inexact(max);
        }
        statistics
    }
}
