//! Partition schemas as messages: clients name columns, servers number them.

use super::{CustomRange, HashDimension, PartitionSchema, Range, RangeKeys};
use crate::column::WireColumn;
use crate::key::to_engine;
use crate::messages::common::column_identifier::Identifier;
use crate::messages::common::{
    ColumnIdentifier, HashBucketSchema, PartitionSchema as Message, RangeSchema, RangeWithHashSchema,
    RowOperations,
};
use crate::row_operations::{OperationLayout, OperationReader, OperationType, OperationsBuilder, PartialRow};
use bytes::Bytes;
use oribi_types::key::KeyDecoder;
use oribi_types::{ColumnType, Error, Result, Value};
use std::sync::Arc;

/// A table as its partition schema refers to it.
#[derive(Clone, Copy, Debug)]
pub struct PartitionedTable<'t> {
    /// Those of the key come first.
    pub columns: &'t [WireColumn],
    pub key_columns: usize,
    /// By column; empty while a table is created, when only names are known. They ascend within the key, since
    /// clients hash columns in the order of ids.
    pub ids: &'t [i32],
}

impl PartitionSchema {
    /// The schema that a message states.
    ///
    /// # Errors
    /// `Invalid` for columns that are not there and for what [`new`](Self::new) and [`RangeKeys::ranges`] refuse.
    pub fn decode(table: PartitionedTable<'_>, message: &Message) -> Result<Self> {
        let key = table
            .columns
            .get(..table.key_columns)
            .ok_or_else(|| Error::invalid("the key has columns that the table has not"))?;
        let range = match &message.range_schema {
            // When a table is created without saying: ranges of the whole key, of which there is one unless it is
            // split.
            None => (0..table.key_columns).collect(),
            Some(range) => table.positions(&range.columns)?,
        };
        let hash = table.dimensions(&message.hash_schema)?;
        let plain = PartitionSchema::new(key, hash, range, vec![])?;
        let mut custom = Vec::with_capacity(message.custom_hash_schema_ranges.len());
        for stated in &message.custom_hash_schema_ranges {
            let range = plain.custom_range(table, stated)?;
            custom.push(CustomRange { range, hash: table.dimensions(&stated.hash_schema)? });
        }
        PartitionSchema::new(key, plain.hash, plain.range, custom)
    }

    fn custom_range(&self, table: PartitionedTable<'_>, stated: &RangeWithHashSchema) -> Result<Range> {
        let bounds = stated.range_bounds.clone().unwrap_or_default();
        let (rows, indirect) = (bounds.rows.unwrap_or_default(), bounds.indirect_data.unwrap_or_default());
        let layout = OperationLayout::new(table.columns.to_vec());
        let ranges = self.range_keys().ranges(&mut OperationReader::new(&layout, &rows, &indirect))?;
        match <[Range; 1]>::try_from(ranges) {
            Ok([range]) => Ok(range),
            Err(_) => Err(Error::invalid("a range with hash dimensions of its own has two bounds")),
        }
    }

    /// The message that states this schema, by the ids of the table's columns.
    ///
    /// # Errors
    /// `Internal` for a table whose columns are not those of the schema.
    pub fn encode(&self, table: PartitionedTable<'_>) -> Result<Message> {
        let hash = |dimensions: &[HashDimension]| {
            dimensions.iter().map(|dimension| table.hash_message(dimension)).collect::<Result<Vec<_>>>()
        };
        let custom = self.custom.iter().map(|custom| {
            let range_bounds = Some(self.range_keys().bounds(table, &custom.range)?);
            Ok(RangeWithHashSchema { range_bounds, hash_schema: hash(&custom.hash)? })
        });
        Ok(Message {
            hash_schema: hash(&self.hash)?,
            range_schema: Some(RangeSchema { columns: table.identifiers(&self.range)? }),
            custom_hash_schema_ranges: custom.collect::<Result<_>>()?,
        })
    }
}

impl RangeKeys<'_> {
    /// A range as the two bounds that [`ranges`](Self::ranges) reads it from.
    ///
    /// # Errors
    /// `Invalid` for a range of other columns.
    pub fn bounds(&self, table: PartitionedTable<'_>, range: &Range) -> Result<RowOperations> {
        let mut builder = OperationsBuilder::new(Arc::new(OperationLayout::new(table.columns.to_vec())));
        let bounds =
            [(OperationType::RangeLowerBound, &range.lower), (OperationType::RangeUpperBound, &range.upper)];
        for (operation_type, key) in bounds {
            let mut bound = builder.begin(operation_type);
            for (column, value) in self.columns.iter().zip(self.decode(key)?) {
                bound.set(*column, value.as_ref())?;
            }
            bound.finish();
        }
        let (rows, indirect) = builder.into_parts();
        Ok(RowOperations { rows: Some(Bytes::from(rows)), indirect_data: Some(Bytes::from(indirect)) })
    }

    /// The values of a range key; none of one that is unbounded.
    fn decode(&self, key: &[u8]) -> Result<Vec<Value>> {
        if key.is_empty() {
            return Ok(Vec::new());
        }
        let types: Vec<ColumnType> = self.columns.iter().map(|column| self.key[*column]).collect();
        let key = to_engine(&types, key)?;
        let (mut decoder, mut scratch) = (KeyDecoder::new(&key), Vec::new());
        let value = |(i, t): (usize, &ColumnType)| {
            Ok(decoder.next(*t, i + 1 == types.len(), &mut scratch)?.to_owned())
        };
        types.iter().enumerate().map(value).collect()
    }
}

impl PartitionedTable<'_> {
    fn dimensions(&self, stated: &[HashBucketSchema]) -> Result<Vec<HashDimension>> {
        let dimension = |stated: &HashBucketSchema| {
            let buckets = u32::try_from(stated.num_buckets)
                .map_err(|_| Error::invalid(format!("{} hash buckets", stated.num_buckets)))?;
            Ok(HashDimension::new(self.positions(&stated.columns)?, buckets, stated.seed.unwrap_or(0)))
        };
        stated.iter().map(dimension).collect()
    }

    fn positions(&self, columns: &[ColumnIdentifier]) -> Result<Vec<usize>> {
        let position = |column: &ColumnIdentifier| match &column.identifier {
            Some(Identifier::Name(name)) => self.columns.iter().position(|c| c.name == *name),
            Some(Identifier::Id(id)) => self.ids.iter().position(|known| known == id),
            None => None,
        };
        let missing = || Error::invalid("partitioning by a column that does not exist");
        columns.iter().map(|column| position(column).ok_or_else(missing)).collect()
    }

    fn identifiers(&self, positions: &[usize]) -> Result<Vec<ColumnIdentifier>> {
        let id = |position: &usize| self.ids.get(*position).copied().map(ColumnIdentifier::id);
        let missing = || Error::internal("a partition schema of another table");
        positions.iter().map(|position| id(position).ok_or_else(missing)).collect()
    }

    fn hash_message(&self, dimension: &HashDimension) -> Result<HashBucketSchema> {
        Ok(HashBucketSchema {
            columns: self.identifiers(&dimension.columns)?,
            num_buckets: dimension.buckets as i32,
            seed: Some(dimension.seed),
            hash_algorithm: None,
        })
    }
}
