//! Leaves out what statistics of row groups and pages say no row of passes a predicate.

use super::super::TableColumns;
use super::super::columns::ColumnsById;
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::physical_plan::parquet::{
    PagePruningAccessPlanFilter, ParquetAccessPlan, ParquetFileMetrics, RowGroupAccess,
    RowGroupAccessPlanFilter,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr::utils::{collect_columns, conjunction_opt, split_conjunction};
use datafusion::physical_expr_adapter::PhysicalExprAdapterFactory;
use datafusion::physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr};
use datafusion::physical_optimizer::pruning::{PruningPredicate, build_pruning_predicate};
use oribi_engine::{FileScan, RowSelection};
use oribi_sstable::Sstable;
use oribi_types::ColumnSource;
use parquet::file::metadata::ParquetMetaData;
use std::sync::Arc;

/// A predicate about the columns of one file.
pub(super) struct Pruner {
    file: Arc<FileScan>,
    /// Of the predicate, which learns while others run.
    generation: u64,
    schema: SchemaRef,
    metadata: Arc<ParquetMetaData>,
    predicate: Option<Arc<dyn PhysicalExpr>>,
    by_group: Option<Arc<PruningPredicate>>,
}

impl Pruner {
    /// # Errors
    /// Those of reading the file's metadata.
    pub(super) fn new(
        predicate: &Arc<dyn PhysicalExpr>,
        columns: &TableColumns,
        file: &Arc<FileScan>,
        metrics: &ParquetFileMetrics,
    ) -> Result<Self> {
        let external = |e| DataFusionError::External(Box::new(e));
        let metadata = file.sstable.metadata().map_err(external)?;
        let schema = file.sstable.arrow_schema().map_err(external)?;
        let generation = snapshot_generation(predicate);
        let is_bounded = |column: usize| is_bounded(columns, &file.sstable, column);
        let predicate = match comparable(&snapshot_physical_expr(Arc::clone(predicate))?, is_bounded) {
            Some(predicate) => {
                let by_id = ColumnsById::new(Arc::clone(&columns.schema));
                let adapter = by_id.create(Arc::clone(&columns.arrow), Arc::clone(&schema))?;
                Some(PhysicalExprSimplifier::new(&schema).simplify(adapter.rewrite(predicate)?)?)
            }
            None => None,
        };
        let by_group = predicate.as_ref().and_then(|predicate| {
            build_pruning_predicate(Arc::clone(predicate), &schema, &metrics.predicate_evaluation_errors)
        });
        Ok(Pruner { file: Arc::clone(file), generation, schema, metadata, predicate, by_group })
    }

    /// Whether it is about another file, or the predicate has learned something since.
    pub(super) fn is_stale(&self, predicate: &Arc<dyn PhysicalExpr>, file: &Arc<FileScan>) -> bool {
        !Arc::ptr_eq(&self.file, file) || self.generation != snapshot_generation(predicate)
    }

    /// Whether a row group may have a row that passes.
    pub(super) fn may_pass(&self, group: usize, metrics: &ParquetFileMetrics) -> bool {
        let mut plan = ParquetAccessPlan::new_none(self.metadata.num_row_groups());
        plan.scan(group);
        self.without_groups(plan, metrics).should_scan(group)
    }

    /// The row groups that may have rows that pass, and with each which of its rows, if not all.
    pub(super) fn groups(&self, metrics: &ParquetFileMetrics) -> Vec<(usize, Option<RowSelection>)> {
        let all = ParquetAccessPlan::new_all(self.metadata.num_row_groups());
        let mut plan = self.without_groups(all, metrics);
        if let Some(predicate) = &self.predicate {
            let pages = PagePruningAccessPlanFilter::new(predicate, Arc::clone(&self.schema));
            let parquet = self.metadata.file_metadata().schema_descr();
            plan = pages.prune_plan_with_page_index(plan, &self.schema, parquet, &self.metadata, metrics);
        }
        let groups = plan.into_inner().into_iter().enumerate();
        let read = groups.filter_map(|(group, access)| match access {
            RowGroupAccess::Skip => None,
            RowGroupAccess::Scan => Some((group, None)),
            RowGroupAccess::Selection(rows) => Some((group, Some(rows))),
        });
        read.collect()
    }

    fn without_groups(&self, plan: ParquetAccessPlan, metrics: &ParquetFileMetrics) -> ParquetAccessPlan {
        let Some(by_group) = &self.by_group else { return plan };
        let mut filter = RowGroupAccessPlanFilter::new(plan);
        let parquet = self.metadata.file_metadata().schema_descr();
        filter.prune_by_statistics(&self.schema, parquet, self.metadata.row_groups(), by_group, metrics);
        filter.build()
    }
}

/// Whether the bounds that a file has of a column hold for all of its rows. Parquet's leave NaN out, which is greater than all
/// numbers, and know nothing of patches.
fn is_bounded(columns: &TableColumns, sstable: &Sstable, column: usize) -> bool {
    let is_patched = match columns.schema.columns().get(column) {
        Some(column) if column.source != ColumnSource::CommitTimestamp => sstable.is_patched(column.id),
        // A patch gives its rows another timestamp.
        _ => !sstable.patches().is_empty(),
    };
    !is_patched && !columns.arrow.field(column).data_type().is_floating()
}

/// The parts of a predicate that bounds of columns say something about.
fn comparable(
    predicate: &Arc<dyn PhysicalExpr>,
    is_bounded: impl Fn(usize) -> bool,
) -> Option<Arc<dyn PhysicalExpr>> {
    let is_comparable =
        |part: &&Arc<dyn PhysicalExpr>| collect_columns(part).iter().all(|column| is_bounded(column.index()));
    let parts: Vec<_> =
        split_conjunction(predicate).into_iter().filter(is_comparable).map(Arc::clone).collect();
    conjunction_opt(parts)
}
