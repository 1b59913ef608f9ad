//! What is known of a table's columns before they are read: of files by their metadata, looked at once per file, and of few rows
//! in memory by a look at them.

use super::columns::{missing_value, positions, stored_id};
use super::{OribiTable, TableColumns};
use crate::context::StatementView;
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, DataFusionError, Result, Statistics};
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::logical_expr::Accumulator;
use datafusion_functions_aggregate_common::min_max::{MaxAccumulator, MinAccumulator};
use oribi_engine::{FileOutline, Outline};
use oribi_sstable::Sstable;
use oribi_types::batch::TS_FIELD_ID;
use oribi_types::schema::TS_COLUMN;
use oribi_types::{Column, Error};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::ParquetMetaData;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// So many rows of so many bytes are looked at while a statement is planned: that takes some milliseconds.
const SMALL_ROWS: u64 = 16 << 10;
const SMALL_BYTES: u64 = 4 << 20;

/// Statistics of all rows of the files that queries have seen, deleted rows included.
#[derive(Default)]
pub(crate) struct StatisticsCache {
    files: Mutex<HashMap<PathBuf, Entry>>,
}

struct Entry {
    sstable: Weak<Sstable>,
    /// The table's columns that the statistics are about.
    arrow: SchemaRef,
    statistics: Arc<Statistics>,
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
    fn of_outline(&self, columns: &TableColumns, file: &FileOutline) -> Result<Statistics> {
        let external = |e| DataFusionError::External(Box::new(e));
        let metadata = file.sstable.metadata().map_err(external)?;
        let all = Statistics::clone(&*self.of_file(columns, &file.sstable, &metadata)?);
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
    /// What is known of the rows of some tablets, one entry per column of the table. Of rows in memory, if there are not too
    /// many to look at, what is projected.
    pub(super) async fn statistics(
        &self,
        view: &Arc<StatementView>,
        outline: &Outline,
        tablets: &[usize],
        projection: Option<&Vec<usize>>,
    ) -> Result<Statistics> {
        let of_file = |file| view.statistics.of_outline(&self.columns, file);
        let mut parts = outline.files.iter().map(of_file).collect::<Result<Vec<_>>>()?;
        if outline.memory_rows > 0 {
            let is_small = outline.memory_rows <= SMALL_ROWS && outline.memory_bytes <= SMALL_BYTES;
            // Without files, nothing is lost if nothing is known.
            parts.push(match is_small && !parts.is_empty() {
                true => self.statistics_of_memory(view, outline, tablets, projection).await?,
                false => self.unknown_memory(outline),
            });
        }
        Statistics::try_merge_iter(&parts, &self.columns.arrow)
    }

    fn unknown_memory(&self, outline: &Outline) -> Statistics {
        Statistics::new_unknown(&self.columns.arrow)
            .with_num_rows(Precision::Inexact(outline.memory_rows as usize))
            .with_total_byte_size(Precision::Inexact(outline.memory_bytes as usize))
    }

    /// Looks at the rows in memory for the bounds of their columns.
    ///
    /// The bounds are true ones. An estimate would not do, though they are said to be inexact: DataFusion takes a column for
    /// a constant if a filter leaves one value between its bounds, and then neither sorts by it nor looks for its largest.
    async fn statistics_of_memory(
        &self,
        view: &Arc<StatementView>,
        outline: &Outline,
        tablets: &[usize],
        projection: Option<&Vec<usize>>,
    ) -> Result<Statistics> {
        let fields = self.columns.schema.arrow().fields();
        let is_wanted = |column: &usize| projection.is_none_or(|projection| projection.contains(column));
        let bounded: Vec<usize> = (0..fields.len())
            .filter(|column| is_wanted(column) && is_bounded(fields[*column].data_type()))
            .collect();
        let mut bounds =
            bounded.iter().map(|n| Bounds::new(fields[*n].data_type())).collect::<Result<Vec<_>>>()?;
        let (engine, table, snapshot) =
            (Arc::clone(&view.engine), Arc::clone(&self.table), Arc::clone(view.snapshot()));
        let (read, tablets) = (bounded.clone(), tablets.to_vec());
        let look = move || {
            for tablet in tablets {
                let mut rows = engine.memory_columns(&table, tablet, &read, &snapshot)?;
                while let Some(batch) = rows.next_batch()? {
                    for (bounds, values) in bounds.iter_mut().zip(batch.columns()) {
                        bounds.add(values).map_err(|e| Error::internal(e.to_string()))?;
                    }
                }
            }
            Ok(bounds)
        };
        let bounds = view.runtime.lookup(look).await.map_err(|e| DataFusionError::External(Box::new(e)))?;
        let mut statistics = self.unknown_memory(outline);
        for (column, bounds) in bounded.into_iter().zip(bounds) {
            statistics.column_statistics[column] = bounds.statistics()?;
        }
        Ok(statistics)
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
        if !min.is_null() && !max.is_null() {
            statistics.min_value = Precision::Inexact(min);
            statistics.max_value = Precision::Inexact(max);
        }
        Ok(statistics)
    }
}
