//! How a table is partitioned, as its master tells.

use oribi_kudu::column::WireColumn;
use oribi_kudu::messages::common::{
    ColumnIdentifier, HashBucketSchema, PartitionSchema as Message, RowOperations, Schema, column_identifier,
};
use oribi_kudu::partition::{CustomRange, HashDimension, PartitionSchema, Range};
use oribi_kudu::row_operations::{OperationLayout, OperationReader};
use oribi_types::{Error, Result};

/// Reads what the master tells of a table with this schema, whose columns are `wire`; the first `key_columns` are its key.
///
/// # Errors
/// `Corrupt` for columns that are not there; what [`PartitionSchema::new`] refuses.
pub(super) fn schema(
    message: &Message,
    schema: &Schema,
    wire: &[WireColumn],
    key_columns: usize,
) -> Result<PartitionSchema> {
    let key = &wire[..key_columns];
    let hash = dimensions(&message.hash_schema, schema)?;
    let range = match &message.range_schema {
        Some(range) => positions(&range.columns, schema)?,
        None => (0..key_columns).collect(),
    };
    let plain = PartitionSchema::new(key, hash.clone(), range.clone(), Vec::new())?;
    if message.custom_hash_schema_ranges.is_empty() {
        return Ok(plain);
    }
    let layout = OperationLayout::new(wire.to_vec());
    let mut custom = Vec::new();
    for own in &message.custom_hash_schema_ranges {
        let hash = dimensions(&own.hash_schema, schema)?;
        let bounds = own.range_bounds.clone().unwrap_or_default();
        let ranges = ranges(&plain, &layout, &bounds)?;
        custom.extend(ranges.into_iter().map(|range| CustomRange { range, hash: hash.clone() }));
    }
    PartitionSchema::new(key, hash, range, custom)
}

/// The ranges between these bounds, over the columns of `layout`.
///
/// # Errors
/// `Invalid` for bounds that make no range.
pub(super) fn ranges(
    plain: &PartitionSchema,
    layout: &OperationLayout,
    bounds: &RowOperations,
) -> Result<Vec<Range>> {
    let (rows, indirect) = (bounds.rows.as_deref(), bounds.indirect_data.as_deref());
    let mut reader = OperationReader::new(layout, rows.unwrap_or_default(), indirect.unwrap_or_default());
    plain.range_keys().ranges(&mut reader)
}

fn dimensions(messages: &[HashBucketSchema], schema: &Schema) -> Result<Vec<HashDimension>> {
    let dimension = |message: &HashBucketSchema| {
        let buckets = u32::try_from(message.num_buckets)
            .map_err(|_| Error::corrupt(format!("{} hash buckets", message.num_buckets)))?;
        Ok(HashDimension::new(positions(&message.columns, schema)?, buckets, message.seed()))
    };
    messages.iter().map(dimension).collect()
}

fn positions(columns: &[ColumnIdentifier], schema: &Schema) -> Result<Vec<usize>> {
    let position = |column: &ColumnIdentifier| {
        let found = match &column.identifier {
            Some(column_identifier::Identifier::Id(id)) => {
                let id = u32::try_from(*id).ok();
                schema.columns.iter().position(|column| column.id.is_some() && column.id == id)
            }
            Some(column_identifier::Identifier::Name(name)) => {
                schema.columns.iter().position(|column| column.name == *name)
            }
            None => None,
        };
        found.ok_or_else(|| Error::corrupt("the table is partitioned by a column that it does not have"))
    };
    columns.iter().map(position).collect()
}
