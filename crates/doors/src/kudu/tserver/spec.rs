//! What a scan reads, worked out from its request.

use crate::kudu::directory::TableEntry;
use crate::kudu::schema;
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{and, filter_record_batch};
use oribi_engine::{KeyRange, Table};
use oribi_kudu::column::WireColumn;
use oribi_kudu::key;
use oribi_kudu::messages::tserver::{NewScanRequest, OrderMode};
use oribi_kudu::predicate::{ColumnPredicate, Test};
use oribi_types::{ColumnType, Error, Result};
use std::ops::Bound;
use std::sync::Arc;

/// Which rows and columns of a tablet.
pub(super) struct ScanSpec {
    pub table: Arc<Table>,
    /// Number of the tablet.
    pub tablet: usize,
    /// Positions in the table's schema of the columns that are read.
    pub read: Vec<usize>,
    /// Those of them that are returned: positions in `read`.
    output: Vec<usize>,
    /// The returned columns.
    pub columns: Vec<WireColumn>,
    tests: Vec<ColumnTest>,
    /// Which keys; `None` for all, in whatever order.
    pub keys: Option<KeyRange>,
    /// For each column of the key its position in `read`, if the last key is returned.
    key: Option<Vec<usize>>,
    /// Most rows to return.
    pub limit: u64,
    /// The format flags of the request.
    pub format: u64,
}

/// A predicate on a column of `read`.
struct ColumnTest {
    column: usize,
    column_type: ColumnType,
    test: Test,
}

impl ScanSpec {
    /// # Errors
    /// `Invalid` for columns, predicates or keys that are not of the table; `Unsupported`, naming it, for what is not there.
    pub fn new(entry: &TableEntry, tablet: usize, request: &NewScanRequest) -> Result<Self> {
        if !request.deprecated_range_predicates.is_empty() {
            return Err(Error::unsupported("range predicates of clients before 1.0 are not supported"));
        }
        if request.snap_start_timestamp.is_some() {
            return Err(Error::unsupported("scans of what changed between two timestamps are not supported"));
        }
        let table = entry.table.clone();
        let ours = table.schema();
        let wanted = request.projected_columns.iter().map(|column| schema::find(&ours, column));
        let wanted = wanted.collect::<Result<Vec<usize>>>()?;
        let mut read = Vec::new();
        let mut place = |position: usize| {
            read.iter().position(|p| *p == position).unwrap_or_else(|| {
                read.push(position);
                read.len() - 1
            })
        };
        let output = wanted.iter().map(|position| place(*position)).collect();
        let all: Vec<WireColumn> = ours.columns().iter().map(schema::wire_column).collect();
        let mut tests = Vec::new();
        for message in &request.column_predicates {
            let ColumnPredicate { column, test } = ColumnPredicate::decode(&all, message)?;
            tests.push(ColumnTest { column: place(column), column_type: all[column].column_type, test });
        }
        let is_ordered = request.order_mode() == OrderMode::Ordered;
        let key = is_ordered.then(|| ours.key().iter().map(|position| place(*position)).collect());
        // Without a column there would be nothing to count.
        place(ours.key()[0]);
        Ok(ScanSpec {
            keys: keys(&ours, request)?.or(is_ordered.then(KeyRange::default)),
            columns: wanted.iter().map(|position| all[*position].clone()).collect(),
            tablet,
            output,
            tests,
            key,
            limit: request.limit.unwrap_or(u64::MAX),
            format: request.row_format_flags.unwrap_or(0),
            read,
            table,
        })
    }

    /// Whether no row can pass.
    pub fn is_empty(&self) -> bool {
        let nothing = self.tests.iter().any(|test| test.test == Test::Nothing);
        nothing || self.limit == 0 || self.keys.as_ref().is_some_and(KeyRange::is_empty)
    }

    /// The rows of a batch of the columns `read` that pass all predicates.
    pub fn filter(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let mut passes: Option<BooleanArray> = None;
        for test in &self.tests {
            let these = test.test.evaluate(test.column_type, batch.column(test.column))?;
            passes = Some(match passes {
                Some(before) => and(&before, &these)?,
                None => these,
            });
        }
        match passes {
            None => Ok(batch),
            Some(passes) if passes.true_count() == batch.num_rows() => Ok(batch),
            Some(passes) => Ok(filter_record_batch(&batch, &passes)?),
        }
    }

    /// The columns that are returned of a batch of the columns `read`.
    pub fn project(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        Ok(batch.project(&self.output)?)
    }

    /// The last key of such a batch, as Kudu encodes it, if the scan is ordered.
    pub fn last_key(&self, batch: &RecordBatch) -> Result<Option<Vec<u8>>> {
        let Some(key) = self.key.as_ref().filter(|_| batch.num_rows() > 0) else { return Ok(None) };
        let types = key_types(self.table.schema_ref());
        let last = batch.num_rows() - 1;
        let values = key.iter().zip(&types);
        let values: Vec<_> =
            values.map(|(i, t)| oribi_types::batch::value_at(batch.column(*i), *t, last)).collect();
        let mut encoded = Vec::new();
        key::encode_key(&types, values.into_iter(), &mut encoded)?;
        Ok(Some(encoded))
    }
}

fn key_types(schema: &oribi_types::Schema) -> Vec<ColumnType> {
    schema.key_columns().map(|column| column.column_type).collect()
}

/// The keys that a request asks for, encoded as the engine's; `None` for all.
fn keys(schema: &oribi_types::Schema, request: &NewScanRequest) -> Result<Option<KeyRange>> {
    let types = key_types(schema);
    let ours = |key: &Option<bytes::Bytes>| {
        let key = key.as_ref().filter(|key| !key.is_empty());
        key.map(|key| key::to_engine(&types, key).map(|key| key.into_owned())).transpose()
    };
    let (start, stop) = (ours(&request.start_primary_key)?, ours(&request.stop_primary_key)?);
    let last = ours(&request.last_primary_key)?;
    if start.is_none() && stop.is_none() && last.is_none() {
        return Ok(None);
    }
    let from = match (&start, &last) {
        (Some(start), Some(last)) if start > last => Bound::Included(start.as_slice()),
        (_, Some(last)) => Bound::Excluded(last.as_slice()),
        (Some(start), None) => Bound::Included(start.as_slice()),
        (None, None) => Bound::Unbounded,
    };
    let to = stop.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    Ok(Some(KeyRange::new(from, to)))
}
