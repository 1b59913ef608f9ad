//! How the columns of a client's writes become those of a table. A client sends the same columns with each write, so it is
//! worked out once.

use crate::kudu::schema;
use bytes::Bytes;
use oribi_engine::Table;
use oribi_kudu::messages::common::Schema as Message;
use oribi_kudu::row_operations::OperationLayout;
use oribi_kudu::{STEPS_MAX, column::WireColumn};
use oribi_types::{Column, ColumnSource, ColumnType, Error, Result, TableDefinition, Value, ValueRef};
use std::sync::Arc;

/// From the columns of a request to a table's key and row.
pub(super) struct RowPlan {
    pub table: Arc<Table>,
    pub layout: OperationLayout,
    /// Of each column of the key, in key order: its position in the request.
    pub key: Vec<usize>,
    /// By slot of the row.
    pub slots: Vec<SlotPlan>,
    /// Of what the server sets itself, so that a client must not: positions in the request.
    pub not_settable: Vec<usize>,
    /// Positions in the request of what must be JSON.
    pub json: Vec<usize>,
    /// Whether an operation that sets every column to a value makes a row of nothing else, and any value will do.
    pub takes_whole: bool,
    /// Of a table with ranges that leave gaps, where a row has no place.
    ranges: Option<Arc<TableDefinition>>,
}

/// Where the value of a slot comes from.
pub(super) struct SlotPlan {
    /// Its position in the request, if that has the column.
    pub request: Option<usize>,
    /// What a new row has that does not set it; `None` if it has to. Of a slot whose column was dropped: null.
    pub default: Option<Value>,
    /// The column's name, for a message.
    pub name: String,
}

impl SlotPlan {
    /// The value that an operation sets.
    pub fn value<'a>(&self, values: &[Option<ValueRef<'a>>]) -> Option<ValueRef<'a>> {
        self.request.and_then(|i| values[i])
    }
}

impl RowPlan {
    /// # Errors
    /// `Invalid` if the request's columns are not some of the table's, among them all of the key.
    pub fn new(table: Arc<Table>, columns: &Bytes) -> Result<Self> {
        let columns: Message =
            oribi_kudu::decode(columns.clone(), STEPS_MAX).map_err(|e| Error::invalid(e.to_string()))?;
        let ours = table.schema();
        let positions = columns
            .columns
            .iter()
            .map(|column| schema::find(&ours, column))
            .collect::<Result<Vec<usize>>>()?;
        if positions.iter().enumerate().any(|(i, position)| positions[..i].contains(position)) {
            return Err(Error::invalid("a column stands twice in the request"));
        }
        let in_request = |position: usize| positions.iter().position(|p| *p == position);
        let key = ours.key().iter().map(|&position| {
            let missing = || format!("missing key column: {}", ours.columns()[position].name);
            in_request(position).ok_or_else(|| Error::invalid(missing()))
        });
        let key = key.collect::<Result<Vec<usize>>>()?;
        let slot = |slot: usize| {
            let is_it = |column: &Column| column.source == ColumnSource::Slot(slot as u16);
            let Some(position) = ours.columns().iter().position(is_it) else {
                return SlotPlan { request: None, default: Some(Value::Null), name: String::new() };
            };
            let column = &ours.columns()[position];
            let default = column.default.clone().or(column.nullable.then_some(Value::Null));
            SlotPlan { request: in_request(position), default, name: column.name.clone() }
        };
        let of_request = |is_it: &dyn Fn(&Column) -> bool| {
            let columns = positions.iter().map(|p| &ours.columns()[*p]).enumerate();
            columns.filter(|(_, column)| is_it(column)).map(|(i, _)| i).collect()
        };
        let wire: Vec<WireColumn> =
            positions.iter().map(|p| schema::wire_column(&ours.columns()[*p])).collect();
        let slots: Vec<SlotPlan> = (0..ours.layout().slots().len()).map(slot).collect();
        let not_settable: Vec<usize> = of_request(&|column| column.source == ColumnSource::CommitTimestamp);
        let json: Vec<usize> = of_request(&|column| column.column_type == ColumnType::Json);
        let is_set = |slot: &SlotPlan| slot.request.is_some() || slot.name.is_empty();
        Ok(RowPlan {
            key,
            takes_whole: not_settable.is_empty() && json.is_empty() && slots.iter().all(is_set),
            slots,
            not_settable,
            json,
            layout: OperationLayout::new(wire),
            ranges: Some(table.definition()).filter(|definition| !definition.partitioning.covers_all()),
            table,
        })
    }

    /// # Errors
    /// `NotCovered` for an encoded key that no tablet takes.
    #[inline]
    pub fn check_covered(&self, key: &[u8]) -> Result<()> {
        let Some(definition) = &self.ranges else { return Ok(()) };
        match definition.partitioning.tablet_of(&definition.schema, key) {
            Some(_) => Ok(()),
            None => Err(Error::not_covered("No tablet covering the requested range partition")),
        }
    }
}
