//! What a file's metadata says about its columns, computed once per file.

use super::TableColumns;
use super::columns::{missing_value, positions, stored_id};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, Statistics};
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use oribi_sstable::Sstable;
use oribi_types::Column;
use oribi_types::batch::TS_FIELD_ID;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::ParquetMetaData;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

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
    pub(super) fn of_file(
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

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Entry>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
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
        let position = positions.get(&column.map_or(i64::from(TS_FIELD_ID), stored_id)).copied();
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
