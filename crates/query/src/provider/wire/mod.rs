//! A scan as bytes, for another process over the same folder: it opens them and has the same rows.
//!
//! The bytes name what the scan's node names, and nothing that was found: the table, its tablets and columns by their ids, a
//! [predicate](expression) or a range of keys, and the snapshot with the clock by which it judges expiry. Files, marks and rows in
//! memory are found where the scan is opened. Who sends a scan keeps its snapshot for as long as the bytes are of use; who opens it
//! on an engine that was opened later has that engine keep [history](oribi_engine::EngineOptions::keeps_history).
//!
//! What operators above a scan learn stays where they are: they check it themselves. What joins tell it comes [otherwise](crate::nodes).
//! What a transaction has written does not
//! travel, nor does a function that is not the same everywhere; scans with them are refused.

mod expression;

use super::key_bounds::KeyBounds;
use super::overlay::OverlayExec;
use super::scan::{Plan, learns};
use super::{OribiTable, RangeSource, TableColumns, TableSource};
use crate::context::{QueryEngine, StatementView};
use arrow::datatypes::Schema;
use datafusion::common::{DataFusionError, Result, Statistics, project_schema};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use expression::{Reader, Writer, decode_node, encode_node};
use oribi_engine::{KeyRange, Table};
use oribi_types::{Error, Timestamp};
use prost::Message;
use std::sync::Arc;

const FORMAT: u32 = 2;
/// A CRC32C of all before, in the end.
const CHECKSUM_BYTES: usize = 4;

#[derive(Clone, PartialEq, Message)]
struct Scan {
    #[prost(uint32, tag = "1")]
    format: u32,
    /// The snapshot's.
    #[prost(uint64, tag = "2")]
    ts: u64,
    #[prost(uint64, tag = "3")]
    now_micros: u64,
    /// Ids.
    #[prost(uint64, tag = "4")]
    table: u64,
    #[prost(uint64, repeated, tag = "5")]
    tablets: Vec<u64>,
    #[prost(uint32, repeated, tag = "6")]
    projection: Vec<u32>,
    /// Whether there is a hidden column `_ts`.
    #[prost(bool, tag = "7")]
    with_ts: bool,
    #[prost(uint64, optional, tag = "8")]
    fetch: Option<u64>,
    /// What rows must pass.
    #[prost(message, optional, tag = "9")]
    predicate: Option<expression::Expressions>,
    /// Instead of a predicate.
    #[prost(message, optional, tag = "10")]
    keys: Option<Keys>,
}

/// A range of encoded keys, in whose order the rows are read.
#[derive(Clone, PartialEq, Message)]
struct Keys {
    #[prost(bytes = "vec", tag = "1")]
    from: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "2")]
    to: Option<Vec<u8>>,
    /// So many leading columns of the key have one value each.
    #[prost(uint64, tag = "3")]
    equal: u64,
    #[prost(string, repeated, tag = "4")]
    filters: Vec<String>,
}

/// The scans of a plan, as bytes.
///
/// # Errors
/// `Unsupported`, naming what does not travel.
pub(crate) fn scans(
    plan: &Arc<dyn ExecutionPlan>,
    view: &StatementView,
    state: &SessionState,
) -> Result<Vec<Vec<u8>>> {
    if plan.is::<OverlayExec>() {
        return Err(external(Error::unsupported(
            "what a transaction sees does not travel to another process",
        )));
    }
    let mut scans = Vec::new();
    for child in plan.children() {
        scans.extend(self::scans(child, view, state)?);
    }
    let Some(source) = plan.downcast_ref::<DataSourceExec>().map(DataSourceExec::data_source) else {
        return Ok(scans);
    };
    if let Some(source) = source.downcast_ref::<TableSource>() {
        scans.push(of_table(source, view, state)?);
    } else if let Some(source) = source.downcast_ref::<RangeSource>() {
        scans.push(of_range(source, view)?);
    }
    Ok(scans)
}

pub(crate) fn of_table(source: &TableSource, view: &StatementView, state: &SessionState) -> Result<Vec<u8>> {
    let columns = &source.columns;
    let parts = source.predicate.iter().flat_map(split_conjunction).filter(|part| !learns(part));
    let mut writer = Writer::new(state, Some(columns));
    parts.into_iter().try_for_each(|part| writer.add(part))?;
    let tablets = source.tablets.iter().copied();
    let mut scan = scan(view, (&source.table, columns), tablets, &source.projection, source.fetch);
    scan.predicate = Some(writer.finish()?);
    Ok(bytes(&scan))
}

fn of_range(source: &RangeSource, view: &StatementView) -> Result<Vec<u8>> {
    let (of, tablets) =
        ((source.table.as_ref(), &source.columns), source.tablets.iter().map(|(tablet, _)| *tablet));
    let mut scan = scan(view, of, tablets, &source.projection, source.fetch);
    let KeyBounds { keys: KeyRange { from, to }, equal, filters, .. } = source.bounds.as_ref();
    let (from, to, filters) = (from.clone(), to.clone(), filters.clone());
    scan.keys = Some(Keys { from, to, equal: *equal as u64, filters });
    Ok(bytes(&scan))
}

fn scan(
    view: &StatementView,
    (table, columns): (&Table, &TableColumns),
    tablets: impl Iterator<Item = usize>,
    projection: &[usize],
    fetch: Option<usize>,
) -> Scan {
    let (snapshot, ids) = (view.snapshot(), table.tablet_ids().collect::<Vec<_>>());
    Scan {
        format: FORMAT,
        ts: snapshot.ts().0,
        now_micros: snapshot.now_micros(),
        table: table.id(),
        tablets: tablets.map(|tablet| ids[tablet]).collect(),
        projection: projection.iter().map(|position| columns.id(*position)).collect(),
        with_ts: columns.arrow.fields().len() > columns.schema.columns().len(),
        fetch: fetch.map(|rows| rows as u64),
        ..Scan::default()
    }
}

fn bytes(scan: &Scan) -> Vec<u8> {
    let mut bytes = scan.encode_to_vec();
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// A scan that came as bytes.
pub(crate) struct Received(Scan);

impl Received {
    /// # Errors
    /// `Corrupt`; `Unsupported` for a format that is not known here.
    pub(crate) fn read(bytes: &[u8]) -> oribi_types::Result<Self> {
        let damaged = |why: &str| Error::corrupt(format!("a scan: {why}"));
        let Some((scan, checksum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
            return Err(damaged("its bytes end early"));
        };
        if crc32c::crc32c(scan) != u32::from_le_bytes(*checksum) {
            return Err(damaged("checksum mismatch"));
        }
        let scan = Scan::decode(scan).map_err(|e| damaged(&e.to_string()))?;
        match scan.format {
            FORMAT => Ok(Received(scan)),
            other => Err(Error::unsupported(format!("a scan of format {other}"))),
        }
    }

    /// The snapshot that it is to be opened at: its timestamp, and the clock by which it judges expiry.
    pub(crate) fn snapshot(&self) -> (Timestamp, u64) {
        (Timestamp(self.0.ts), self.0.now_micros)
    }

    /// The scan of a table that this process does not have, as `plan` says.
    ///
    /// # Errors
    /// `NotFound` for a column that the table does not have; `Corrupt`.
    pub(crate) fn elsewhere(
        &self,
        table: Arc<Table>,
        view: &Arc<StatementView>,
        state: &SessionState,
        (partitions, batch_rows): (usize, usize),
    ) -> Result<TableSource> {
        let Received(scan) = self;
        let OribiTable { table, columns, .. } = OribiTable::new(table, scan.with_ts);
        let projection = scan.projection.iter().map(|id| columns.position_of(*id));
        let projection = projection.collect::<oribi_types::Result<Vec<_>>>().map_err(external)?;
        let nothing = expression::Expressions::default();
        let parts = Reader::new(state, Some(&columns), scan.predicate.as_ref().unwrap_or(&nothing))?.all()?;
        let fetch = scan.fetch.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        let statistics = Statistics::new_unknown(&columns.arrow);
        let plan = Plan { tablets: vec![0], partitions, batch_rows, statistics };
        Ok(TableSource::new((view, &table, &columns), plan, Some(&projection), fetch)?.passing(parts))
    }

    /// The plan that reads its rows, at the snapshot of `view`.
    ///
    /// # Errors
    /// `NotFound` for a table, tablet or column that is not there any more; `Corrupt`; those of a plan.
    pub(crate) fn plan(
        &self,
        view: &Arc<StatementView>,
        state: &SessionState,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Received(scan) = self;
        let table = view.catalog.table_by_id(scan.table).cloned();
        let table = table.ok_or_else(|| external(Error::not_found(format!("table {}", scan.table))))?;
        let table = OribiTable::new(table, scan.with_ts);
        let columns = &table.columns;
        let projection = scan.projection.iter().map(|id| columns.position_of(*id));
        let projection = projection.collect::<oribi_types::Result<Vec<_>>>().map_err(external)?;
        let tablets = tablets(&table.table, &scan.tablets).map_err(external)?;
        let fetch = scan.fetch.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        if tablets.is_empty() {
            let projected = project_schema(&columns.arrow, Some(&projection))?;
            return Ok(Arc::new(EmptyExec::new(projected)));
        }
        if let Some(Keys { from, to, equal, filters }) = &scan.keys {
            let keys = KeyRange { from: from.clone(), to: to.clone() };
            let equal = columns.schema.key().len().min(*equal as usize);
            let bounds = KeyBounds::received(&columns.schema, keys, equal, filters.clone());
            return table.planned_range(state, view, tablets, (&projection, fetch), bounds);
        }
        let nothing = expression::Expressions::default();
        let predicate = scan.predicate.as_ref().unwrap_or(&nothing);
        let parts = Reader::new(state, Some(columns), predicate)?.all()?;
        table.planned(state, view, tablets, (&projection, fetch), parts)
    }
}

impl QueryEngine {
    /// An expression as bytes, without its operands.
    ///
    /// # Errors
    /// `Unsupported`, naming what does not travel.
    pub fn encode_expression(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Vec<u8>> {
        encode_node(self.base_state(), expr)
    }

    /// What [`encode_expression`](Self::encode_expression) made, of `operands` whose columns are those of `schema`.
    ///
    /// # Errors
    /// `Corrupt`; `NotFound`, naming a function that is not there.
    pub fn decode_expression(
        &self,
        bytes: &[u8],
        operands: &[Arc<dyn PhysicalExpr>],
        schema: &Schema,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        decode_node(self.base_state(), bytes, operands.to_vec(), schema)
    }
}

/// The numbers of tablets with these ids.
fn tablets(table: &Table, ids: &[u64]) -> oribi_types::Result<Vec<usize>> {
    let all: Vec<u64> = table.tablet_ids().collect();
    let number = |id: &u64| all.iter().position(|tablet| tablet == id);
    let missing =
        |id: &u64| Error::not_found(format!("tablet {id} of {}.{}", table.schema_name(), table.name()));
    ids.iter().map(|id| number(id).ok_or_else(|| missing(id))).collect()
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
