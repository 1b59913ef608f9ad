//! The SSTables of a table: DataFusion's Parquet scan over our verified files, without the rows that are not live.

use super::TableColumns;
use super::columns::ColumnsById;
use super::reader::{SstableExtension, SstableReaders};
use super::statistics::StatisticsCache;
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use datafusion::datasource::physical_plan::{
    FileGroup, FileGroupPartitioner, FileScanConfigBuilder, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_plan::ExecutionPlan;
use oribi_engine::FileScan;
use oribi_types::Error;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::file::metadata::ParquetMetaData;
use roaring::RoaringBitmap;
use std::sync::Arc;

/// Files that together have fewer bytes are read by one thread: starting a second costs more.
const SPLIT_BYTES_MIN: usize = 1 << 20;

/// What the files of a scan have in common.
pub(super) struct Context<'a> {
    /// Name of the table, for display.
    pub(super) table: Arc<str>,
    pub(super) columns: &'a TableColumns,
    pub(super) cache: &'a StatisticsCache,
    /// Rows of a batch.
    pub(super) batch_rows: usize,
}

/// Whether the snapshot sees any row of the file.
pub(super) fn has_rows(file: &FileScan) -> bool {
    live_rows(file) > 0
}

/// Rows that the snapshot sees.
pub(super) fn live_rows(file: &FileScan) -> u64 {
    file.sstable.meta().rows.saturating_sub(file.hidden.len())
}

/// A scan of `files`, split into as many byte ranges as there are cores.
pub(super) fn plan(
    context: &Context<'_>,
    files: &[&FileScan],
    state: &dyn Session,
    projection: Option<&Vec<usize>>,
    limit: Option<usize>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let arrow = &context.columns.arrow;
    let files = files.iter().map(|file| partitioned_file(context, file)).collect::<Result<Vec<_>>>()?;
    let per_file = files.iter().filter_map(|file| file.statistics.as_deref());
    let statistics = Statistics::try_merge_iter(per_file, arrow)?;
    let groups = vec![FileGroup::new(files).with_statistics(Arc::new(statistics.clone()))];
    let split = FileGroupPartitioner::new()
        .with_target_partitions(state.config().target_partitions())
        .with_repartition_file_min_size(SPLIT_BYTES_MIN)
        .repartition_file_groups(&groups);

    let mut options = state.default_table_options().parquet;
    // Bloom filters are ours and not in the Parquet file.
    options.global.bloom_filter_on_read = false;
    let source = ParquetSource::new(TableSchema::from(Arc::clone(arrow)))
        .with_table_parquet_options(options)
        .with_parquet_file_reader_factory(Arc::new(SstableReaders));
    // The URL only says that the files are local; they are read through the factory above.
    let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source))
        .with_file_groups(split.unwrap_or(groups))
        .with_statistics(statistics)
        .with_limit(limit)
        .with_batch_size(Some(context.batch_rows))
        .with_expr_adapter(Some(Arc::new(ColumnsById::new(Arc::clone(&context.columns.schema)))))
        .with_projection_indices(projection.cloned())?
        .build();
    Ok(DataSourceExec::from_data_source(config))
}

fn partitioned_file(context: &Context<'_>, file: &FileScan) -> Result<PartitionedFile> {
    let metadata = file.sstable.metadata().map_err(external)?;
    let statistics = context.cache.of_file(context.columns, &file.sstable, &metadata)?;
    let extension =
        SstableExtension { sstable: Arc::clone(&file.sstable), table: Arc::clone(&context.table) };
    let name = format!("{}/{}", context.table, file.sstable.meta().id);
    let mut partitioned =
        PartitionedFile::new(name, file.sstable.meta().data_bytes).with_extension(extension);
    if file.hidden.is_empty() {
        return Ok(partitioned.with_statistics(statistics));
    }
    // The number of live rows is exact; whether a smallest value is among them is not known.
    let mut statistics = statistics.as_ref().clone().to_inexact();
    statistics.num_rows = Precision::Exact(live_rows(file) as usize);
    partitioned = partitioned.with_extension(access_plan(&metadata, &file.hidden).map_err(external)?);
    Ok(partitioned.with_statistics(Arc::new(statistics)))
}

/// What to read of each row group: all, nothing, or all rows but the hidden.
fn access_plan(metadata: &ParquetMetaData, hidden: &RoaringBitmap) -> Result<ParquetAccessPlan, Error> {
    let mut groups = Vec::with_capacity(metadata.num_row_groups());
    let mut first = 0_u32;
    for group in metadata.row_groups() {
        let rows = u32::try_from(group.num_rows()).ok();
        let end = rows.and_then(|rows| first.checked_add(rows));
        let end = end.ok_or_else(|| Error::corrupt("a row group has an impossible number of rows"))?;
        groups.push(row_group_access(hidden, first, end));
        first = end;
    }
    Ok(ParquetAccessPlan::new(groups))
}

fn row_group_access(hidden: &RoaringBitmap, first: u32, end: u32) -> RowGroupAccess {
    let count = hidden.range_cardinality(first..end);
    if count == 0 {
        return RowGroupAccess::Scan;
    }
    if count == u64::from(end - first) {
        return RowGroupAccess::Skip;
    }
    let mut selectors: Vec<RowSelector> = Vec::with_capacity(2 * count as usize + 1);
    let mut next = first;
    for row in hidden.range(first..end) {
        if row > next {
            selectors.push(RowSelector::select((row - next) as usize));
        }
        match selectors.last_mut() {
            Some(last) if last.skip => last.row_count += 1,
            _ => selectors.push(RowSelector::skip(1)),
        }
        next = row + 1;
    }
    if next < end {
        selectors.push(RowSelector::select((end - next) as usize));
    }
    RowGroupAccess::Selection(RowSelection::from(selectors))
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_rows_are_skipped_within_their_row_group() {
        let hidden = RoaringBitmap::from_iter([3, 4, 6, 10, 11, 12]);
        assert_eq!(row_group_access(&hidden, 0, 3), RowGroupAccess::Scan);
        assert_eq!(row_group_access(&hidden, 10, 13), RowGroupAccess::Skip);
        let expected = vec![
            RowSelector::select(1),
            RowSelector::skip(2),
            RowSelector::select(1),
            RowSelector::skip(1),
            RowSelector::select(3),
        ];
        assert_eq!(row_group_access(&hidden, 2, 10), RowGroupAccess::Selection(RowSelection::from(expected)));
    }
}
