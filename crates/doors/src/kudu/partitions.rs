//! How tables are divided among tablets, as Kudu's clients compute it themselves.

use super::schema::wire_key;
use oribi_engine::Table;
use oribi_kudu::messages::common as message;
use oribi_kudu::messages::master::CreateTableRequest;
use oribi_kudu::partition::{HashDimension, Partition, PartitionSchema, Range};
use oribi_types::{Error, Partitioning, Result, Schema};

/// A tablet's number, and what it has of its table.
pub(super) type Place = (usize, message::Partition);

/// What clients are told of a table's partitioning, and its tablets in the order of their partition keys.
///
/// # Errors
/// `Unsupported` for a key that Kudu does not have.
pub(super) fn of_table(table: &Table) -> Result<(message::PartitionSchema, Vec<Place>)> {
    let definition = table.definition();
    let Partitioning::Hash { columns, buckets } = &definition.partitioning;
    let dimensions = match buckets {
        1 => Vec::new(),
        _ => vec![HashDimension::new(columns.iter().map(|c| usize::from(*c)).collect(), *buckets, 0)],
    };
    let schema = PartitionSchema::new(&wire_key(&definition.schema), dimensions, Vec::new(), Vec::new())?;
    let number = |p: &Partition| p.hash_buckets.first().map_or(0, |bucket| *bucket as usize);
    let partitions = schema.partitions(&[Range::default()])?;
    let places = partitions.into_iter().map(|p| (number(&p), to_message(p))).collect();
    Ok((schema_message(&schema, &definition.schema), places))
}

fn to_message(partition: Partition) -> message::Partition {
    message::Partition {
        hash_buckets: partition.hash_buckets.iter().map(|bucket| *bucket as i32).collect(),
        partition_key_start: Some(partition.start.into()),
        partition_key_end: Some(partition.end.into()),
    }
}

/// By the ids of columns.
fn schema_message(partitioning: &PartitionSchema, schema: &Schema) -> message::PartitionSchema {
    let identify = |columns: &[usize]| {
        let id = |position: &usize| schema.columns()[schema.key()[*position]].id;
        columns.iter().map(|column| message::ColumnIdentifier::id(id(column) as i32)).collect::<Vec<_>>()
    };
    let dimension = |dimension: &HashDimension| message::HashBucketSchema {
        columns: identify(dimension.columns()),
        num_buckets: dimension.buckets() as i32,
        seed: Some(dimension.seed()),
        hash_algorithm: None,
    };
    message::PartitionSchema {
        hash_schema: partitioning.hash().iter().map(dimension).collect(),
        range_schema: Some(message::RangeSchema { columns: identify(partitioning.range()) }),
        custom_hash_schema_ranges: Vec::new(),
    }
}

/// How a client wants a table of this schema to be divided.
///
/// # Errors
/// `Invalid` for columns that are not of the key; `Unsupported` for ranges, and for several dimensions.
pub(super) fn of_request(schema: &Schema, request: &CreateTableRequest) -> Result<Partitioning> {
    let bounds = request.split_rows_range_bounds.as_ref().and_then(|bounds| bounds.rows.as_ref());
    let partitioning = request.partition_schema.clone().unwrap_or_default();
    if bounds.is_some_and(|rows| !rows.is_empty()) || !partitioning.custom_hash_schema_ranges.is_empty() {
        return Err(Error::unsupported("range partitions are not supported"));
    }
    match &partitioning.hash_schema[..] {
        [] => Ok(Partitioning::Hash { columns: vec![0], buckets: 1 }),
        [dimension] if dimension.seed.unwrap_or(0) == 0 => {
            let mut columns = dimension
                .columns
                .iter()
                .map(|column| key_column(schema, column))
                .collect::<Result<Vec<u16>>>()?;
            columns.sort_unstable();
            let buckets = u32::try_from(dimension.num_buckets)
                .map_err(|_| Error::invalid("a hash dimension needs buckets"))?;
            Ok(Partitioning::Hash { columns, buckets })
        }
        _ => Err(Error::unsupported("several hash dimensions, and seeds, are not supported")),
    }
}

/// The position in the key of a column that a request names.
fn key_column(schema: &Schema, column: &message::ColumnIdentifier) -> Result<u16> {
    use message::column_identifier::Identifier;
    let position = match &column.identifier {
        Some(Identifier::Name(name)) => schema.key_columns().position(|c| c.name == *name),
        Some(Identifier::Id(id)) => schema.key_columns().position(|c| i64::from(c.id) == i64::from(*id)),
        None => None,
    };
    let position =
        position.ok_or_else(|| Error::invalid("tables are partitioned by columns of the primary key"))?;
    Ok(position as u16)
}
