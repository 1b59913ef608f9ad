//! How tables are divided among tablets, as Kudu's clients compute it themselves.
//!
//! The engine's partitioning is Kudu's, but for the bytes of range keys in which decimals and UUIDs have another width.

use super::schema::{shown, wire_column, wire_key};
use oribi_engine::{RangeChange, Table};
use oribi_kudu::column::{DataType, WireColumn};
use oribi_kudu::key;
use oribi_kudu::messages::common as message;
use oribi_kudu::messages::master::{
    AddRangePartition, AlterTableStep, CreateTableRequest, DropRangePartition, StepType,
};
use oribi_kudu::partition::{self as kudu, PartitionSchema};
use oribi_kudu::row_operations::{OperationLayout, OperationReader, OperationType, OperationsBuilder};
use oribi_types::partition::{HashDimension, RangeDimension, RangePartition, TABLETS_MAX, decode_range_key};
use oribi_types::{ColumnType, Error, Partitioning, Result, Schema};
use std::collections::HashMap;
use std::sync::Arc;

/// A tablet's number, and what it has of its table.
pub(super) type Place = (usize, message::Partition);

/// What clients are told of a table's partitioning, and its tablets in the order of their partition keys.
///
/// # Errors
/// `Unsupported` for a key that Kudu does not have.
pub(super) fn of_table(table: &Table) -> Result<(message::PartitionSchema, Vec<Place>)> {
    let definition = table.definition();
    let (schema, partitioning) = (&definition.schema, &definition.partitioning);
    let ours = to_kudu(schema, partitioning)?;
    let range_key = RangeKeys::new(schema, partitioning);
    let ranges = match partitioning.range_dimension() {
        Some(dimension) => dimension.ranges.iter().map(|r| range_key.range(r)).collect::<Result<Vec<_>>>()?,
        None => vec![kudu::Range::default()],
    };
    let mut numbers = HashMap::new();
    for number in 0..partitioning.tablets() {
        let place = partitioning.place_of(number);
        let lower = place.range.map(|range| range_key.to_kudu(&range.lower)).transpose()?.unwrap_or_default();
        numbers.insert((place.buckets, lower), number);
    }
    let place = |partition: kudu::Partition| {
        let number = numbers.get(&(partition.hash_buckets.clone(), partition.range().lower));
        let number = number.ok_or_else(|| Error::internal("a partition without a tablet"))?;
        Ok((*number, partition_message(partition)))
    };
    let places = ours.partitions(&ranges)?.into_iter().map(place).collect::<Result<Vec<_>>>()?;
    Ok((schema_message(schema, &ours, partitioning)?, places))
}

/// Carries range keys of a table over to Kudu's.
struct RangeKeys {
    types: Vec<ColumnType>,
}

impl RangeKeys {
    fn new(schema: &Schema, partitioning: &Partitioning) -> Self {
        let columns = partitioning.range_dimension().map(|dimension| dimension.columns.as_slice());
        RangeKeys::of(schema, columns.unwrap_or_default())
    }

    fn of(schema: &Schema, columns: &[u16]) -> Self {
        let key_type = |column: &u16| schema.columns()[schema.key()[usize::from(*column)]].column_type;
        RangeKeys { types: columns.iter().map(key_type).collect() }
    }

    fn to_kudu(&self, range_key: &[u8]) -> Result<Vec<u8>> {
        Ok(key::from_engine(&self.types, range_key)?.into_owned())
    }

    fn range(&self, range: &RangePartition) -> Result<kudu::Range> {
        let upper = range.upper.as_ref().map(|upper| self.to_kudu(upper)).transpose()?;
        Ok(kudu::Range { lower: self.to_kudu(&range.lower)?, upper: upper.unwrap_or_default() })
    }

    /// The engine's range for one of Kudu's.
    fn to_engine(&self, range: &kudu::Range, hash: Option<Vec<HashDimension>>) -> Result<RangePartition> {
        let key = |key: &[u8]| Ok::<_, Error>(key::to_engine(&self.types, key)?.into_owned());
        let upper = (!range.upper.is_empty()).then(|| key(&range.upper)).transpose()?;
        Ok(RangePartition { lower: key(&range.lower)?, upper, hash })
    }
}

fn to_kudu(schema: &Schema, partitioning: &Partitioning) -> Result<PartitionSchema> {
    let columns = |columns: &[u16]| columns.iter().map(|c| usize::from(*c)).collect::<Vec<usize>>();
    let dimensions = |hash: &[HashDimension]| {
        let dimension = |d: &HashDimension| kudu::HashDimension::new(columns(&d.columns), d.buckets, d.seed);
        hash.iter().map(dimension).collect::<Vec<_>>()
    };
    let range_keys = RangeKeys::new(schema, partitioning);
    let custom = partitioning.ranges().iter().filter_map(|range| {
        let hash = dimensions(range.hash.as_ref()?);
        Some(range_keys.range(range).map(|range| kudu::CustomRange { range, hash }))
    });
    let range_columns = partitioning.range_dimension().map(|d| columns(&d.columns)).unwrap_or_default();
    let custom = custom.collect::<Result<Vec<_>>>()?;
    PartitionSchema::new(&wire_key(schema), dimensions(partitioning.hash_dimensions()), range_columns, custom)
}

fn partition_message(partition: kudu::Partition) -> message::Partition {
    message::Partition {
        hash_buckets: partition.hash_buckets.iter().map(|bucket| *bucket as i32).collect(),
        partition_key_start: Some(partition.start.into()),
        partition_key_end: Some(partition.end.into()),
    }
}

/// By the ids of columns.
fn schema_message(
    schema: &Schema,
    ours: &PartitionSchema,
    partitioning: &Partitioning,
) -> Result<message::PartitionSchema> {
    let identify = |columns: &[usize]| {
        let id = |position: &usize| schema.columns()[schema.key()[*position]].id;
        columns.iter().map(|column| message::ColumnIdentifier::id(id(column) as i32)).collect::<Vec<_>>()
    };
    let dimension = |dimension: &kudu::HashDimension| message::HashBucketSchema {
        columns: identify(dimension.columns()),
        num_buckets: dimension.buckets() as i32,
        seed: Some(dimension.seed()),
        hash_algorithm: None,
    };
    let dimensions = |hash: &[kudu::HashDimension]| hash.iter().map(dimension).collect::<Vec<_>>();
    let own = partitioning.ranges().iter().filter(|range| range.hash.is_some());
    let custom = own.zip(ours.custom()).map(|(range, custom)| {
        Ok(message::RangeWithHashSchema {
            range_bounds: Some(bounds_message(schema, partitioning, range)?),
            hash_schema: dimensions(&custom.hash),
        })
    });
    Ok(message::PartitionSchema {
        hash_schema: dimensions(ours.hash()),
        range_schema: Some(message::RangeSchema { columns: identify(ours.range()) }),
        custom_hash_schema_ranges: custom.collect::<Result<Vec<_>>>()?,
    })
}

/// The bounds of a range as rows of the table.
fn bounds_message(
    schema: &Schema,
    partitioning: &Partitioning,
    range: &RangePartition,
) -> Result<message::RowOperations> {
    let columns = partitioning.range_dimension().map(|d| d.columns.as_slice()).unwrap_or_default();
    let wire: Vec<WireColumn> =
        shown(schema).into_iter().map(|position| wire_column(&schema.columns()[position])).collect();
    let mut builder = OperationsBuilder::new(Arc::new(OperationLayout::new(wire)));
    let bounds = [
        (OperationType::RangeLowerBound, Some(&range.lower).filter(|lower| !lower.is_empty())),
        (OperationType::RangeUpperBound, range.upper.as_ref()),
    ];
    for (operation, bound) in bounds {
        let values = bound.map(|bound| decode_range_key(schema, columns, bound)).transpose()?;
        let mut row = builder.begin(operation);
        for (column, value) in columns.iter().zip(values.iter().flatten()) {
            row.set(usize::from(*column), value.as_ref())?;
        }
        row.finish();
    }
    let (rows, indirect) = builder.into_parts();
    Ok(message::RowOperations { rows: Some(rows.into()), indirect_data: Some(indirect.into()) })
}

/// How a client wants a table of this schema to be divided.
///
/// # Errors
/// `Invalid` for columns that are not of the key, and for bounds that are none.
pub(super) fn of_request(schema: &Schema, request: &CreateTableRequest) -> Result<Partitioning> {
    let partitioning = request.partition_schema.clone().unwrap_or_default();
    let hash = hash_dimensions(schema, &partitioning.hash_schema)?;
    let columns = match &partitioning.range_schema {
        Some(range) => key_columns(schema, &range.columns)?,
        // As Kudu has it: ranges of the whole key, of which there is one.
        None => (0..schema.key().len() as u16).collect(),
    };
    let reader = BoundsReader::new(schema, columns.clone(), Some(&request.schema))?;
    let nothing = message::RowOperations::default();
    let bounds = request.split_rows_range_bounds.as_ref().unwrap_or(&nothing);
    let has_bounds = bounds.rows.as_ref().is_some_and(|rows| !rows.is_empty());
    let custom = &partitioning.custom_hash_schema_ranges;
    if has_bounds && !custom.is_empty() {
        return Err(Error::invalid("bounds stand either with hash schemas of their own or without"));
    }
    if custom.len() > TABLETS_MAX {
        return Err(Error::invalid(format!("a table has at most {TABLETS_MAX} tablets")));
    }
    let mut ranges = Vec::new();
    for range in custom {
        let own = hash_dimensions(schema, &range.hash_schema)?;
        ranges.push(reader.range(range.range_bounds.as_ref().unwrap_or(&nothing), Some(own))?);
    }
    if custom.is_empty() && !columns.is_empty() {
        ranges = reader.ranges(bounds)?;
    }
    ranges.sort_unstable_by(|a, b| a.lower.cmp(&b.lower));
    let range = (!columns.is_empty()).then_some(RangeDimension { columns, ranges });
    Partitioning::new(hash, range)
}

fn hash_dimensions(schema: &Schema, hash: &[message::HashBucketSchema]) -> Result<Vec<HashDimension>> {
    let dimension = |dimension: &message::HashBucketSchema| {
        let columns = key_columns(schema, &dimension.columns)?;
        let buckets = u32::try_from(dimension.num_buckets).ok().filter(|buckets| *buckets >= 2);
        let buckets = buckets.ok_or_else(|| Error::invalid("must have at least two hash buckets"))?;
        Ok(HashDimension::new(schema, columns, buckets, dimension.seed.unwrap_or(0)))
    };
    hash.iter().map(dimension).collect()
}

/// The positions in the key of columns that a request names.
fn key_columns(schema: &Schema, columns: &[message::ColumnIdentifier]) -> Result<Vec<u16>> {
    use message::column_identifier::Identifier;
    let position = |column: &message::ColumnIdentifier| {
        let position = match &column.identifier {
            Some(Identifier::Name(name)) => schema.key_columns().position(|c| c.name == *name),
            Some(Identifier::Id(id)) => schema.key_columns().position(|c| i64::from(c.id) == i64::from(*id)),
            None => None,
        };
        let outside = || Error::invalid("tables are partitioned by columns of the primary key");
        Ok(position.ok_or_else(outside)? as u16)
    };
    columns.iter().map(position).collect()
}

/// Reads the bounds of ranges.
struct BoundsReader {
    keys: RangeKeys,
    partitioning: PartitionSchema,
    layout: OperationLayout,
}

impl BoundsReader {
    /// Of bounds that come with the columns `sent`: those that the client knows of the table, which may have got others since.
    ///
    /// # Errors
    /// `Invalid` if they do not begin with those of the key.
    fn new(schema: &Schema, columns: Vec<u16>, sent: Option<&message::Schema>) -> Result<Self> {
        let wire = match sent {
            Some(sent) => sent_columns(schema, sent)?,
            None => shown(schema).into_iter().map(|i| wire_column(&schema.columns()[i])).collect(),
        };
        let keys = RangeKeys::of(schema, &columns);
        let columns = columns.into_iter().map(usize::from).collect();
        let partitioning = PartitionSchema::new(&wire_key(schema), Vec::new(), columns, Vec::new())?;
        Ok(BoundsReader { keys, partitioning, layout: OperationLayout::new(wire) })
    }

    /// The ranges between bounds and split rows; one without bounds if there are none.
    fn ranges(&self, bounds: &message::RowOperations) -> Result<Vec<RangePartition>> {
        let rows = bounds.rows.as_deref().unwrap_or_default();
        let indirect = bounds.indirect_data.as_deref().unwrap_or_default();
        let mut reader = OperationReader::new(&self.layout, rows, indirect);
        let ranges = self.partitioning.range_keys().ranges(&mut reader)?;
        ranges.iter().map(|range| self.keys.to_engine(range, None)).collect()
    }

    /// The one range between two bounds.
    fn range(
        &self,
        bounds: &message::RowOperations,
        hash: Option<Vec<HashDimension>>,
    ) -> Result<RangePartition> {
        match &mut self.ranges(bounds)?[..] {
            [range] => Ok(RangePartition { hash, ..std::mem::take(range) }),
            ranges => Err(Error::invalid(format!("{} ranges where one was expected", ranges.len()))),
        }
    }
}

/// The columns of a client. Bounds have values of the key's; of the others it matters that they are there.
fn sent_columns(schema: &Schema, sent: &message::Schema) -> Result<Vec<WireColumn>> {
    let mut key = wire_key(schema).into_iter();
    let column = |column: &message::ColumnSchema| {
        let data_type = DataType::from_number(column.data_type)?;
        let attributes = column.type_attributes.clone().unwrap_or_default();
        match key.next() {
            Some(ours) if data_type.is_of(ours.column_type, &attributes) => Ok(ours),
            Some(ours) => Err(Error::invalid(format!(
                "the columns of the request have \"{}\" where the table's key has \"{}\"",
                column.name, ours.name
            ))),
            None => {
                let column_type = data_type.column_type(&attributes)?;
                Ok(WireColumn::new(column.name.clone(), column_type, column.is_nullable.unwrap_or(false)))
            }
        }
    };
    let columns = sent.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
    match key.next() {
        None => Ok(columns),
        Some(ours) => Err(Error::invalid(format!("the columns of the request lack \"{}\"", ours.name))),
    }
}

/// What a step of a request changes about the ranges of a table; `None` if it is about columns. `sent` are the columns of the
/// request.
///
/// # Errors
/// `Invalid` for bounds that are none, or a table without ranges.
pub(super) fn range_change(
    table: &Table,
    sent: Option<&message::Schema>,
    step: &AlterTableStep,
) -> Result<Option<RangeChange>> {
    let reader = || {
        let definition = table.definition();
        let dimension = definition.partitioning.range_dimension();
        let dimension = dimension.ok_or_else(|| Error::invalid("the table is not partitioned by range"))?;
        BoundsReader::new(table.schema_ref(), dimension.columns.clone(), sent)
    };
    let nothing = message::RowOperations::default();
    Ok(match (step.step_type(), &step.add_range_partition, &step.drop_range_partition) {
        (
            StepType::AddRangePartition,
            Some(AddRangePartition { range_bounds, custom_hash_schema, .. }),
            _,
        ) => {
            let own = custom_hash_schema.as_ref();
            let own = own.map(|own| hash_dimensions(table.schema_ref(), &own.hash_schema)).transpose()?;
            Some(RangeChange::Add(reader()?.range(range_bounds.as_ref().unwrap_or(&nothing), own)?))
        }
        (StepType::DropRangePartition, _, Some(DropRangePartition { range_bounds })) => {
            let range = reader()?.range(range_bounds.as_ref().unwrap_or(&nothing), None)?;
            Some(RangeChange::Drop { lower: range.lower, upper: range.upper })
        }
        _ => None,
    })
}
