//! Rows out of Arrow batches: some columns of a table, as files have them, and the engine's own encoding of what they hold.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use oribi_types::batch::value_at;
use oribi_types::{ColumnSource, Schema, Timestamp, ValueRef};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Columns of a row that are encoded without allocating.
const SLOTS_INLINE: usize = 32;

/// What is read of each row.
pub(crate) struct Columns {
    pub schema: Arc<Schema>,
    /// Positions in the schema, ascending.
    positions: Vec<usize>,
}

impl Columns {
    /// Those wanted, those of the key, and what rows expire by.
    pub fn new(schema: Arc<Schema>, wanted: &[usize], expiry_slot: Option<u16>) -> Self {
        Columns::of(schema, |position, source| match source {
            ColumnSource::Key(_) => true,
            ColumnSource::Slot(slot) => wanted.contains(&position) || expiry_slot == Some(slot),
            ColumnSource::CommitTimestamp => false,
        })
    }

    /// All that a row has beside its key.
    pub fn of_rows(schema: Arc<Schema>) -> Self {
        Columns::of(schema, |_, source| matches!(source, ColumnSource::Slot(_)))
    }

    fn of(schema: Arc<Schema>, needed: impl Fn(usize, ColumnSource) -> bool) -> Self {
        let columns = schema.columns().iter().enumerate();
        let positions = columns.filter(|(position, column)| needed(*position, column.source));
        let positions = positions.map(|(position, _)| position).collect();
        Columns { schema, positions }
    }

    pub fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Appends row `i` of a batch of these columns, encoded, to `row`. Others are null.
    pub fn encode(&self, batch: &RecordBatch, i: usize, row: &mut Vec<u8>) {
        let mut slots: SmallVec<[ValueRef<'_>; SLOTS_INLINE]> =
            smallvec![ValueRef::Null; self.schema.layout().slots().len()];
        for (array, position) in batch.columns().iter().zip(&self.positions) {
            let column = &self.schema.columns()[*position];
            if let ColumnSource::Slot(slot) = column.source {
                slots[usize::from(slot)] = value_at(array, column.column_type, i);
            }
        }
        self.schema.layout().encode(&slots, row);
    }
}

/// When row `i` of a batch was committed, whose last column says so.
pub(crate) fn commit_ts(batch: &RecordBatch, i: usize) -> Timestamp {
    Timestamp(batch.column(batch.num_columns() - 1).as_primitive::<UInt64Type>().value(i))
}
