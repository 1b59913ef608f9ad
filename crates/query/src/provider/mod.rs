//! An engine's table as DataFusion sees it: one that is [scanned](scan), files and memory one after the other. A key has one
//! live row over both, so nothing is merged.
//!
//! Where filters leave few keys, or few rows are wanted in key order, the rows are read by key instead ([`range`]). Either
//! way only those tablets are read that the filters leave.

mod columns;
mod key_bounds;
mod ordered_limit;
mod overlay;
mod range;
mod scan;
mod statistics;
pub(crate) mod wire;

pub(crate) use ordered_limit::OrderedLimits;
pub(crate) use range::RangeSource;
pub(crate) use scan::{
    Assigned, Awaited, FILE_BYTES, FILE_ROWS, FILES, MEMORY_ROWS, MEMTABLE_BYTES, Rows, Share, Side,
    TableSource, asked_filters, table_source, with_seen,
};
pub(crate) use statistics::StatisticsCache;

use crate::context::StatementView;
use crate::long_rows::rows_of;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Constraint, Constraints, DataFusionError, Result, Statistics, project_schema};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use key_bounds::KeyBounds;
use oribi_engine::{KeyRange, Outline, Table};
use oribi_types::batch::ts_field;
use oribi_types::{ColumnId, Error, Schema};
use overlay::{OverlayExec, Seen, with_key};
use std::fmt;
use std::sync::Arc;

/// Stands for the hidden `_ts`. Columns have ids from 1 on.
const TS_ID: ColumnId = 0;

/// A range of at most so many rows is read by key. A scan reads that many of each file and column, by pages; beyond, it
/// takes less for a row, is split among cores, and leaves threads of normal priority alone.
const RANGE_ROWS_MAX: u64 = 4096;
/// As is one of at most so small a part of the rows in memory, all of which a scan looks at, on such a thread too.
const RANGE_MEMORY_SHARE: u64 = 8;
/// A table of fewer bytes is scanned by one thread: starting a second costs more.
const SPLIT_BYTES_MIN: u64 = 1 << 20;

/// A table, of whichever statement scans it.
#[derive(Clone)]
pub(crate) struct OribiTable {
    table: Arc<Table>,
    columns: TableColumns,
    /// The primary key.
    constraints: Constraints,
    /// Only so many of the rows that pass the filters are wanted, in key order.
    first_by_key: Option<usize>,
}

/// What [`place_columns`] says of a row that was not read from a file: these are counted from 1.
pub(crate) const NO_FILE: u64 = 0;

/// The names of hidden columns behind `_ts`: the SSTable that has a row, and the row's place in it.
pub(crate) fn place_columns(schema: &Schema) -> [String; 2] {
    ["_file", "_row"].map(|name| {
        let mut name = name.to_owned();
        while schema.position(&name).is_some() {
            name.insert(0, '_');
        }
        name
    })
}

/// The columns that a scan can yield.
#[derive(Clone)]
pub(crate) struct TableColumns {
    pub(crate) schema: Arc<Schema>,
    /// The table's columns, a hidden key only if asked for; behind that the hidden `_ts` and [`place_columns`].
    pub(crate) arrow: SchemaRef,
}

/// Where the rows of a batch lie.
pub(crate) type Places = Option<(u64, Vec<u32>)>;

impl PartialEq for TableColumns {
    /// Another column of the same name and type is another column.
    fn eq(&self, other: &Self) -> bool {
        self.arrow.fields() == other.arrow.fields() && self.schema.columns() == other.schema.columns()
    }
}

impl TableColumns {
    fn new(schema: Arc<Schema>, ts: bool) -> Self {
        if !ts {
            let arrow = Arc::clone(schema.shown_arrow());
            return TableColumns { schema, arrow };
        }
        let mut fields = schema.arrow().fields().to_vec();
        fields.push(Arc::new(ts_field()));
        let [file, row] = place_columns(&schema);
        fields.push(Arc::new(Field::new(file, DataType::UInt64, false)));
        fields.push(Arc::new(Field::new(row, DataType::UInt32, false)));
        let arrow = Arc::new(ArrowSchema::new(fields));
        TableColumns { schema, arrow }
    }

    /// The same with a hidden key.
    fn with_key(&self) -> Self {
        match self.arrow.fields().len() < self.schema.columns().len() {
            true => TableColumns { arrow: Arc::clone(self.schema.arrow()), ..self.clone() },
            false => self.clone(),
        }
    }

    /// Whether the column at `position` of [`arrow`](Self::arrow) says where a row lies.
    fn is_place(&self, position: usize) -> bool {
        position > self.schema.columns().len()
    }

    /// Whether it is asked where rows lie.
    fn has_places(&self, projection: &[usize]) -> bool {
        projection.iter().any(|p| self.is_place(*p))
    }

    /// The id of the column at `position`.
    fn id(&self, position: usize) -> ColumnId {
        self.schema.columns().get(position).map_or(TS_ID, |column| column.id)
    }

    /// Where the column with an id is.
    ///
    /// # Errors
    /// `NotFound`.
    fn position_of(&self, id: ColumnId) -> oribi_types::Result<usize> {
        let found = (0..self.arrow.fields().len()).find(|position| self.id(*position) == id);
        found.ok_or_else(|| Error::not_found(format!("column {id}")))
    }

    /// The positions in the schema of what is projected and stored, and whether `_ts` is projected.
    fn stored(&self, projection: &[usize]) -> (Vec<usize>, bool) {
        let columns = self.schema.columns().len();
        let stored = projection.iter().copied().filter(|p| *p < columns).collect();
        (stored, projection.contains(&columns))
    }

    /// A batch of what is [`stored`](Self::stored), as the engine makes it, with columns as projected: the engine puts
    /// `_ts` last, wherever the plan wants it, and knows nothing of `places`.
    fn arrange(
        &self,
        projection: &[usize],
        batch: RecordBatch,
        places: Places,
    ) -> oribi_types::Result<RecordBatch> {
        let (stored, with_ts) = self.stored(projection);
        if !with_ts && stored.len() == projection.len() {
            return Ok(batch);
        }
        let rows = batch.num_rows();
        let (file, place) = places.unwrap_or_else(|| (NO_FILE, vec![0; rows]));
        let mut place = Some(place);
        let mut next = 0..stored.len();
        let column = |position: &usize| -> ArrayRef {
            match position.checked_sub(self.schema.columns().len()) {
                None => Arc::clone(batch.column(next.next().expect("a stored column"))),
                Some(0) => Arc::clone(batch.column(stored.len())),
                Some(1) => Arc::new(UInt64Array::from_value(file, rows)),
                Some(_) => Arc::new(UInt32Array::from(place.take().unwrap_or_default())),
            }
        };
        let columns = projection.iter().map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::new(self.arrow.project(projection)?), columns, &options)?)
    }
}

impl OribiTable {
    /// With `ts`, the hidden columns stand last.
    pub(crate) fn new(table: Arc<Table>, ts: bool) -> Self {
        let columns = TableColumns::new(table.schema(), ts);
        let key = columns.schema.row_id().is_none().then(|| columns.schema.key().to_vec());
        let constraints = Constraints::new_unverified(key.into_iter().map(Constraint::PrimaryKey).collect());
        OribiTable { table, columns, constraints, first_by_key: None }
    }

    fn name(&self) -> String {
        format!("{}.{}", self.table.schema_name(), self.table.name())
    }

    /// What there is to scan, without files of which the snapshot sees no row.
    fn table_outline(&self, view: &StatementView, tablets: &[usize]) -> Result<Outline> {
        let outline = view.engine.outline(&self.table, tablets.iter().copied(), view.snapshot());
        let mut outline = outline.map_err(|e| DataFusionError::External(Box::new(e)))?;
        outline.files.retain(|file| file.sstable.meta().rows > file.marked);
        Ok(outline)
    }

    /// How many rows a batch of a scan has that would have `rows` if they were short, by those of them that are in files.
    fn batch_rows(&self, keys: &KeyRange, projection: Option<&Vec<usize>>, rows: usize) -> Result<usize> {
        let all = || (0..self.columns.schema.columns().len()).collect();
        let columns = projection.map_or_else(all, |projection| self.columns.stored(projection).0);
        let row_bytes = self.table.file_row_bytes_max(keys, &columns);
        Ok(rows_of(row_bytes.map_err(|e| DataFusionError::External(Box::new(e)))?, rows))
    }

    /// The rows by key, if that is cheaper than a scan.
    async fn range(
        &self,
        view: &Arc<StatementView>,
        bounds: &KeyBounds,
        tablets: &[usize],
        projection: Option<&Vec<usize>>,
        batch_rows: usize,
        limit: Option<usize>,
    ) -> Result<Option<RangeSource>> {
        // A plan without partitions is none.
        if tablets.is_empty() || !bounds.is_bounded() && self.first_by_key.is_none() {
            return Ok(None);
        }
        let (engine, table) = (Arc::clone(&view.engine), Arc::clone(&self.table));
        let (keys, tablets) = (bounds.keys.clone(), tablets.to_vec());
        let worth = RANGE_ROWS_MAX.max(self.table.unflushed_rows() / RANGE_MEMORY_SHARE);
        let enough = if self.first_by_key.is_some() { u64::MAX } else { worth };
        let (snapshot, left) = (Arc::clone(view.snapshot()), tablets.len());
        let estimate = move || {
            let rows = |tablet| (tablet, engine.estimate_range(&table, tablet, &keys, enough));
            let first = tablets.first().copied();
            let mut read: Vec<usize> = tablets
                .into_iter()
                .filter(|tablet| engine.may_have_rows(&table, *tablet, &snapshot))
                .collect();
            if read.is_empty() {
                read.extend(first);
            }
            Ok(read.into_iter().map(rows).collect::<Vec<_>>())
        };
        let estimated = view.runtime.lookup(estimate).await;
        let tablets: Vec<(usize, u64)> = estimated.map_err(|e| DataFusionError::External(Box::new(e)))?;
        let rows: u64 = tablets.iter().map(|(_, rows)| rows).sum();
        let wanted = rows.min(self.first_by_key.map_or(u64::MAX, |rows| rows as u64));
        if wanted > worth {
            return Ok(None);
        }
        // A longer one is read in larger steps even if few keys have many versions.
        let batch_rows = match rows <= RANGE_ROWS_MAX {
            true => rows_of(self.table.memory_row_bytes_max(), batch_rows),
            false => batch_rows,
        };
        let of = (view, &self.table, &self.columns);
        RangeSource::new(of, bounds.clone(), (left, tablets), projection, batch_rows, limit).map(Some)
    }
}

/// The positions of columns that are projected from a projection; `None` if anything is computed or renamed.
fn projected_again(projection: &[usize], again: &ProjectionExprs) -> Option<Vec<usize>> {
    let position = |expression: &datafusion::physical_expr::projection::ProjectionExpr| {
        let column = expression.expr.downcast_ref::<Column>()?;
        (column.name() == expression.alias).then(|| projection[column.index()])
    };
    again.iter().map(position).collect()
}

#[async_trait]
impl TableProvider for OribiTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.columns.arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    /// A key range hands on rows that pass none; a scan is told again, and then takes what it [checks](TableSource) itself.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let view = StatementView::of(state.config())?;
        let Some(seen) = Seen::of(&view, self) else {
            return self.read(state, &view, projection, filters, limit).await;
        };
        let all = || (0..self.columns.arrow.fields().len()).collect();
        let projection = projection.cloned().unwrap_or_else(all);
        // How many rows of it are hidden is not known.
        let read = with_key(&self.columns.schema, &projection);
        // Nor is there an order above it.
        let columns = self.columns.with_key();
        let all = OribiTable { first_by_key: None, columns: columns.clone(), ..self.clone() };
        let base = all.read(state, &view, Some(&read), filters, None).await?;
        Ok(Arc::new(OverlayExec::new(seen, &columns, &projection, base)?))
    }
}

impl OribiTable {
    /// Reads what is there for everybody.
    async fn read(
        &self,
        state: &dyn Session,
        view: &Arc<StatementView>,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let bounds = KeyBounds::of(&self.columns.schema, filters);
        let tablets = bounds.tablets(&self.table);
        if let Some(transaction) = view.session.serializable_transaction() {
            transaction.note_scan(&self.table, &tablets);
        }
        let batch_rows = self.batch_rows(&bounds.keys, projection, state.config().batch_size())?;
        if let Some(range) = self.range(view, &bounds, &tablets, projection, batch_rows, limit).await? {
            return Ok(DataSourceExec::from_data_source(range));
        }
        let outline = self.table_outline(view, &tablets)?;
        if outline.memory_rows == 0 && outline.files.is_empty() {
            view.note_scan(&self.table, &tablets);
            return Ok(Arc::new(EmptyExec::new(project_schema(&self.columns.arrow, projection)?)));
        }
        let statistics = self.statistics(view, &outline, projection).await?;
        let partitions = partitions(&outline).min(state.config().target_partitions());
        let plan = scan::Plan { tablets, partitions, batch_rows, statistics };
        Ok(DataSourceExec::from_data_source(self.source(view, plan, projection, limit)?))
    }

    fn source(
        &self,
        view: &Arc<StatementView>,
        plan: scan::Plan,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> Result<TableSource> {
        view.note_scan(&self.table, &plan.tablets);
        TableSource::new((view, &self.table, &self.columns), plan, projection, limit)
    }

    /// A scan that was planned elsewhere, of rows that pass `parts`.
    fn planned(
        &self,
        state: &dyn Session,
        view: &Arc<StatementView>,
        tablets: Vec<usize>,
        (projection, limit): (&Vec<usize>, Option<usize>),
        parts: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let outline = self.table_outline(view, &tablets)?;
        let partitions = partitions(&outline).clamp(1, state.config().target_partitions());
        let batch_rows =
            self.batch_rows(&KeyRange::default(), Some(projection), state.config().batch_size())?;
        let statistics = Statistics::new_unknown(&self.columns.arrow);
        let plan = scan::Plan { tablets, partitions, batch_rows, statistics };
        let source = self.source(view, plan, Some(projection), limit)?;
        Ok(DataSourceExec::from_data_source(source.passing(parts)))
    }

    /// A range that was planned elsewhere.
    fn planned_range(
        &self,
        state: &dyn Session,
        view: &Arc<StatementView>,
        tablets: Vec<usize>,
        (projection, limit): (&Vec<usize>, Option<usize>),
        bounds: KeyBounds,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batch_rows = self.batch_rows(&bounds.keys, Some(projection), state.config().batch_size())?;
        // How many rows there are nobody asks any more.
        let rows = |tablet| (tablet, u64::from(u32::MAX));
        let tablets = (tablets.len(), tablets.into_iter().map(rows).collect());
        let of = (view, &self.table, &self.columns);
        let source = RangeSource::new(of, bounds, tablets, Some(projection), batch_rows, limit)?;
        Ok(DataSourceExec::from_data_source(source))
    }
}

/// How many threads a scan of this is worth, at most.
fn partitions(outline: &Outline) -> usize {
    let bytes: u64 = outline.files.iter().map(|file| file.sstable.stored_bytes()).sum();
    if bytes + outline.memory_bytes < SPLIT_BYTES_MIN {
        return 1;
    }
    let groups: usize = outline.files.iter().map(|file| file.sstable.row_groups().count()).sum();
    groups + usize::from(outline.memory_rows > 0)
}

impl fmt::Debug for OribiTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OribiTable({})", self.name())
    }
}
