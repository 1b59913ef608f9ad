//! Rows as a transaction sees them: those that others see, without the ones that it has changed, and then its own.
//!
//! It stands above whatever reads the table, and hides rows by their keys. Which those are is known when the statement is
//! planned: it does not see what it writes itself. What it plans later, while it writes, has the rows of that time too.

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
use oribi_engine::{EncodedRows, Overlay, Reader, SpilledIter};
use oribi_types::batch::{BatchBuilder, value_at};
use oribi_types::{Schema, Timestamp, key};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// Rows of a batch of those that are not in memory, of so many bytes at most, about.
const BATCH_ROWS: usize = 8192;
const BATCH_BYTES: usize = 8 << 20;

/// Which rows of a table a statement sees.
pub(super) struct Seen {
    /// If not all, those of these keys.
    only: Option<Arc<Narrowed>>,
    own: Overlay,
}

impl Seen {
    /// `None` if it sees what everybody does.
    pub(super) fn of(view: &StatementView, table: &OribiTable) -> Option<Self> {
        let own = view.own_rows(&table.table);
        let only = view.narrowed(&table.table).cloned();
        (own.is_some() || only.is_some()).then(|| Seen { only, own: own.unwrap_or_default() })
    }

    /// Whether others' row of a key is shown.
    fn shows(&self, key: &[u8], reader: &mut Reader) -> oribi_types::Result<bool> {
        Ok(self.is_wanted(key) && !self.own.has(key, reader)?)
    }

    fn is_wanted(&self, key: &[u8]) -> bool {
        self.only.as_ref().is_none_or(|narrowed| {
            narrowed.only.as_ref().is_none_or(|only| only.contains(key))
                && !narrowed.without.as_ref().is_some_and(|without| without.has(key))
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

    /// The next of the transaction's rows that are not in memory.
    fn spilled_batch(
        &self,
        rows: &mut SpilledIter,
        own: &OwnColumns,
    ) -> oribi_types::Result<Option<RecordBatch>> {
        let (stored, with_ts) = own.columns.stored(&own.projection);
        let mut builder = BatchBuilder::new(&own.columns.schema, &stored, with_ts);
        let mut bytes = 0;
        while builder.rows() < BATCH_ROWS && bytes < BATCH_BYTES {
            let Some((key, row)) = rows.next()? else { break };
            // What is in memory came later.
            let Some(row) = row.filter(|_| self.is_wanted(key) && !self.own.keys.contains(key)) else {
                continue;
            };
            bytes += key.len() + row.len();
            builder.push(key, row, Timestamp::MAX)?;
        }
        if builder.rows() == 0 {
            return Ok(None);
        }
        own.columns.arrange(&own.projection, builder.finish()?, None).map(Some)
    }
}

/// The columns of the transaction's rows that are wanted.
struct OwnColumns {
    columns: TableColumns,
    projection: Vec<usize>,
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
    /// The transaction's rows in memory.
    own: RecordBatch,
    /// Of the others, if there are some.
    spilled: Option<Arc<OwnColumns>>,
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
        let of_own = || OwnColumns { columns: columns.clone(), projection: projection.to_vec() };
        let spilled = seen.own.spilled.is_some().then(|| Arc::new(of_own()));
        Ok(OverlayExec { seen: Arc::new(seen), schema, base, key, own, spilled, properties })
    }

    /// The transaction's own rows.
    fn own_rows(&self, schema: SchemaRef) -> SendableRecordBatchStream {
        let own = stream::iter([Ok(self.own.clone())]);
        let Some((columns, rows)) = self.spilled.clone().zip(self.seen.own.spilled.as_ref()) else {
            return Box::pin(RecordBatchStreamAdapter::new(schema, own));
        };
        let (seen, mut rows) = (Arc::clone(&self.seen), rows.all());
        let spilled = std::iter::from_fn(move || seen.spilled_batch(&mut rows, &columns).transpose());
        let external = |e| DataFusionError::External(Box::new(e));
        let spilled = stream::iter(spilled.map(move |batch| batch.map_err(external)));
        Box::pin(RecordBatchStreamAdapter::new(schema, own.chain(spilled)))
    }

    /// The rows of a batch of the base that are to be seen, without columns that are not wanted.
    fn shown(&self, batch: &RecordBatch, reader: &mut Reader) -> oribi_types::Result<RecordBatch> {
        let (mut key, mut shown) = (Vec::new(), Vec::with_capacity(batch.num_rows()));
        for row in 0..batch.num_rows() {
            key.clear();
            let columns = self.schema.key_columns().zip(self.key.iter());
            let values =
                columns.map(|(column, place)| value_at(batch.column(*place), column.column_type, row));
            key::encode_key(&self.schema, values, &mut key)?;
            shown.push(self.seen.shows(&key, reader)?);
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
            return Ok(self.own_rows(schema));
        };
        let (overlay, mut reader) = (self.clone(), Reader::default());
        let shown = batches.map(move |batch| {
            let shown = overlay.shown(&batch?, &mut reader);
            shown.map_err(|e| DataFusionError::External(Box::new(e)))
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
