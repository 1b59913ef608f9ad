//! Rows as a transaction sees them: those that others see, without the ones that it has changed, and then its own.
//!
//! It stands above whatever reads the table, and hides rows by their keys. Which those are is known when the statement is
//! planned: it does not see what it writes itself.

use super::{OribiTable, TableColumns};
use crate::context::{Narrowed, StatementView};
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err, project_schema};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{StreamExt, stream};
use oribi_engine::{EncodedRows, Overlay};
use oribi_types::batch::{BatchBuilder, value_at};
use oribi_types::{Schema, Timestamp, key};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// Which rows of a table a statement sees.
pub(super) struct Seen {
    /// If not all, those of these keys.
    only: Option<Arc<Narrowed>>,
    own: Overlay,
}

impl Seen {
    /// `None` if it sees what everybody does.
    pub(super) fn of(view: &StatementView, table: &OribiTable) -> Option<Self> {
        let transaction = view.session.open_transaction();
        let own = transaction.and_then(|transaction| transaction.overlay(&table.table));
        let only = view.narrowed(&table.table).cloned();
        (own.is_some() || only.is_some()).then(|| Seen { only, own: own.unwrap_or_default() })
    }

    fn shows(&self, key: &[u8]) -> bool {
        self.is_wanted(key) && !self.own.keys.contains(key)
    }

    fn is_wanted(&self, key: &[u8]) -> bool {
        self.only.as_ref().is_none_or(|narrowed| {
            narrowed.only.as_ref().is_none_or(|only| only.contains(key)) && !narrowed.without.contains(key)
        })
    }

    /// The transaction's own rows.
    fn batch(&self, columns: &TableColumns, projection: &[usize]) -> oribi_types::Result<RecordBatch> {
        let (stored, with_ts) = columns.stored(projection);
        let mut builder = BatchBuilder::new(&columns.schema, &stored, with_ts);
        let rows: &EncodedRows = &self.own.rows;
        for (key, row) in rows.iter().filter(|(key, _)| self.is_wanted(key)) {
            builder.push(key, row, Timestamp::MAX)?;
        }
        columns.arrange(projection, builder.finish()?, None)
    }
}

/// `projection` with the columns of the key, which rows are hidden by.
pub(super) fn with_key(schema: &Schema, projection: &[usize]) -> Vec<usize> {
    let lacking = schema.key().iter().filter(|position| !projection.contains(position));
    projection.iter().chain(lacking).copied().collect()
}

/// The operator.
#[derive(Clone)]
pub(crate) struct OverlayExec {
    seen: Arc<Seen>,
    schema: Arc<Schema>,
    /// Reads what others see: the columns that are wanted, and with them those of the key.
    base: Arc<dyn ExecutionPlan>,
    /// For each column of the key, its place in the base's batches.
    key: Arc<[usize]>,
    own: RecordBatch,
    properties: Arc<PlanProperties>,
}

impl OverlayExec {
    /// `base` has the columns of [`with_key`].
    pub(super) fn new(
        seen: Seen,
        columns: &TableColumns,
        projection: &[usize],
        base: Arc<dyn ExecutionPlan>,
    ) -> Result<Self> {
        let read = with_key(&columns.schema, projection);
        let place =
            |position: &usize| read.iter().position(|read| read == position).expect("the key is read");
        let key = columns.schema.key().iter().map(place).collect();
        let external = |e| DataFusionError::External(Box::new(e));
        let own = seen.batch(columns, projection).map_err(external)?;
        let projected = project_schema(&columns.arrow, Some(&projection.to_vec()))?;
        let properties = properties(&projected, &base);
        let schema = Arc::clone(&columns.schema);
        Ok(OverlayExec { seen: Arc::new(seen), schema, base, key, own, properties })
    }

    /// The rows of a batch of the base that are to be seen, without columns that are not wanted.
    fn shown(&self, batch: &RecordBatch) -> oribi_types::Result<RecordBatch> {
        let (mut key, mut shown) = (Vec::new(), Vec::with_capacity(batch.num_rows()));
        for row in 0..batch.num_rows() {
            key.clear();
            let columns = self.schema.key_columns().zip(self.key.iter());
            let values =
                columns.map(|(column, place)| value_at(batch.column(*place), column.column_type, row));
            key::encode_key(&self.schema, values, &mut key)?;
            shown.push(self.seen.shows(&key));
        }
        let wanted: Vec<usize> = (0..self.own.num_columns()).collect();
        let wanted = batch.project(&wanted)?;
        let shown = BooleanArray::from(shown);
        if shown.true_count() == shown.len() { Ok(wanted) } else { Ok(filter_record_batch(&wanted, &shown)?) }
    }
}

fn properties(projected: &SchemaRef, base: &Arc<dyn ExecutionPlan>) -> Arc<PlanProperties> {
    let partitions = base.output_partitioning().partition_count() + 1;
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(Arc::clone(projected)),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

impl ExecutionPlan for OverlayExec {
    fn name(&self) -> &'static str {
        "OverlayExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.base]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(base), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("an overlay is over one plan");
        };
        let properties = properties(self.properties.eq_properties.schema(), &base);
        Ok(Arc::new(OverlayExec { base, properties, ..Self::clone(&self) }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = datafusion::physical_plan::execution_plan::ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(mode))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let Some(batches) = (partition < self.base.output_partitioning().partition_count())
            .then(|| self.base.execute(partition, context))
            .transpose()?
        else {
            let own = stream::iter([Ok(self.own.clone())]);
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, own)));
        };
        let overlay = self.clone();
        let shown = batches.map(move |batch| {
            batch.and_then(|batch| overlay.shown(&batch).map_err(|e| DataFusionError::External(Box::new(e))))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, shown)))
    }
}

impl DisplayAs for OverlayExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OverlayExec: rows of the transaction={}", self.own.num_rows())
    }
}

impl fmt::Debug for OverlayExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden: &HashSet<Arc<[u8]>> = &self.seen.own.keys;
        write!(f, "OverlayExec({} hidden)", hidden.len())
    }
}
