//! What a scan reads, worked out from its request.

use super::keys;
use crate::kudu::directory::TableEntry;
use crate::kudu::{schema, transaction_table};
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{and, filter_record_batch};
use oribi_engine::{Changes, KeyRange, SeenBatch, Table, Transaction};
use oribi_kudu::column::WireColumn;
use oribi_kudu::key;
use oribi_kudu::messages::common::ColumnSchema;
use oribi_kudu::messages::tserver::{NewScanRequest, OrderMode};
use oribi_kudu::predicate::{ColumnPredicate, Test};
use oribi_types::{ColumnType, Error, Result};
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
    /// Which keys, if not all of them.
    pub keys: Option<KeyRange>,
    /// Rows that are shown though the tablet does not have them, or instead of those that it has: what the scan's transaction has made
    /// of them, or all that the [table of transactions](crate::kudu::transaction_table) has.
    pub own: Option<Changes>,
    /// Whether the table has rows beside.
    pub is_stored: bool,
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
        let find = |column: &ColumnSchema| match entry.is_of_transactions() {
            true => schema::find(&ours, &transaction_table::stored(column.clone())),
            false => schema::find(&ours, column),
        };
        let wanted = request.projected_columns.iter().map(find);
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
        let of_key = |column: usize| {
            let position = read.iter().position(|p| *p == ours.key()[column]);
            tests.iter().filter(move |test| Some(test.column) == position).map(|test| &test.test)
        };
        let keys = keys::of_request(&ours, request, of_key)?;
        Ok(ScanSpec {
            keys: keys.or(is_ordered.then(KeyRange::default)),
            own: None,
            is_stored: !entry.is_of_transactions(),
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

    /// Has the scan see what a transaction has changed so far.
    pub fn see_changes_of(&mut self, transaction: &Transaction) {
        let keys = self.keys.clone().unwrap_or_default();
        self.own = transaction.changes(&self.table, self.tablet, &keys);
    }

    /// Whether no row can pass.
    pub fn is_empty(&self) -> bool {
        let nothing = self.tests.iter().any(|test| test.test == Test::Nothing);
        nothing || self.limit == 0 || self.keys.as_ref().is_some_and(KeyRange::is_empty)
    }

    /// Whether rows are returned in the order of their keys.
    pub fn is_ordered(&self) -> bool {
        self.key.is_some()
    }

    /// The rows of a batch of the columns `read` that are seen and pass all predicates.
    pub fn filter(&self, SeenBatch { batch, seen }: SeenBatch) -> Result<RecordBatch> {
        let mut passes: Option<BooleanArray> = seen.map(BooleanArray::from);
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
        let types = keys::key_types(self.table.schema_ref());
        let last = batch.num_rows() - 1;
        let values = key.iter().zip(&types);
        let values: Vec<_> =
            values.map(|(i, t)| oribi_types::batch::value_at(batch.column(*i), *t, last)).collect();
        let mut encoded = Vec::new();
        key::encode_key(&types, values.into_iter(), &mut encoded)?;
        Ok(Some(encoded))
    }
}
