//! An engine's table as DataFusion sees it: SSTables that are live at the statement's snapshot, and rows in memory.
//!
//! A key has one live row over both, so a scan is their union and never merges: files come with the rows that the
//! snapshot does not see ([`files`]), and what is in memory hides its older copies there.

mod columns;
mod files;
mod memory_rows;
mod reader;
mod statistics;

pub(crate) use memory_rows::{MEMTABLE_BYTES, MemorySource};
pub(crate) use reader::SstableExtension;
pub(crate) use statistics::StatisticsCache;

use crate::context::StatementView;
use arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result, project_schema};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use oribi_engine::Table;
use oribi_types::Schema;
use oribi_types::batch::ts_field;
use std::fmt;
use std::sync::Arc;

/// A table in one statement.
pub(crate) struct OribiTable {
    view: Arc<StatementView>,
    table: Arc<Table>,
    columns: TableColumns,
}

/// The columns that a scan can yield.
#[derive(Clone)]
pub(crate) struct TableColumns {
    pub(crate) schema: Arc<Schema>,
    /// The table's columns, with the hidden `_ts` last if asked for.
    pub(crate) arrow: SchemaRef,
}

impl TableColumns {
    fn new(schema: Arc<Schema>, ts: bool) -> Self {
        if !ts {
            let arrow = Arc::clone(schema.arrow());
            return TableColumns { schema, arrow };
        }
        let mut fields = schema.arrow().fields().to_vec();
        fields.push(Arc::new(ts_field()));
        let arrow = Arc::new(ArrowSchema::new(fields));
        TableColumns { schema, arrow }
    }

    /// Whether the column at `position` of [`arrow`](Self::arrow) is the hidden `_ts`.
    pub(crate) fn is_ts(&self, position: usize) -> bool {
        position >= self.schema.columns().len()
    }
}

impl OribiTable {
    /// The table as the statement sees it; with `ts`, the hidden column `_ts` stands last.
    pub(crate) fn new(view: Arc<StatementView>, table: Arc<Table>, ts: bool) -> Self {
        let columns = TableColumns::new(table.schema(), ts);
        OribiTable { view, table, columns }
    }

    fn name(&self) -> String {
        format!("{}.{}", self.table.schema_name(), self.table.name())
    }
}

#[async_trait]
impl TableProvider for OribiTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.columns.arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Files, row groups and pages are pruned by every filter; that a row passes it, the plan above checks.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let scan = self.view.scan(&self.table).await.map_err(|e| DataFusionError::External(Box::new(e)))?;
        let mut branches: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
        let files: Vec<_> =
            scan.tablets.iter().flat_map(|t| &t.files).filter(|f| files::has_rows(f)).collect();
        if !files.is_empty() {
            let context = files::Context {
                table: self.name().into(),
                columns: &self.columns,
                cache: &self.view.statistics,
            };
            branches.push(files::plan(&context, &files, state, projection, limit)?);
        }
        let memory: Vec<_> =
            scan.tablets.iter().map(|t| &t.memory).filter(|m| m.rows() > 0).cloned().collect();
        if !memory.is_empty() {
            let source = MemorySource::new(self.name(), self.columns.clone(), memory, projection, limit)?;
            branches.push(DataSourceExec::from_data_source(source));
        }
        match branches.len() {
            0 => Ok(Arc::new(EmptyExec::new(project_schema(&self.columns.arrow, projection)?))),
            1 => Ok(branches.remove(0)),
            _ => UnionExec::try_new(branches),
        }
    }
}

impl fmt::Debug for OribiTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OribiTable({})", self.name())
    }
}
