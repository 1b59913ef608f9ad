//! How a table's rows are parted among its tablets.

use super::RowOperations;
use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// The rule by which a row belongs to a tablet: a bucket per hash dimension, then a range of keys.
#[derive(Clone, PartialEq, Message)]
pub struct PartitionSchema {
    #[prost(message, repeated, tag = "1")]
    pub hash_schema: Vec<HashBucketSchema>,
    /// Absent when a table is created: ranges over the whole key. Present without columns: no ranges.
    #[prost(message, optional, tag = "2")]
    pub range_schema: Option<RangeSchema>,
    #[prost(message, repeated, tag = "5")]
    pub custom_hash_schema_ranges: Vec<RangeWithHashSchema>,
}

/// A column by its name in what clients ask for, by its id in what servers answer.
#[derive(Clone, PartialEq, Message)]
pub struct ColumnIdentifier {
    #[prost(oneof = "column_identifier::Identifier", tags = "1, 2")]
    pub identifier: Option<column_identifier::Identifier>,
}

/// The forms of a [`ColumnIdentifier`].
pub mod column_identifier {
    use super::*;

    #[derive(Clone, PartialEq, Oneof)]
    pub enum Identifier {
        #[prost(int32, tag = "1")]
        Id(i32),
        #[prost(string, tag = "2")]
        Name(String),
    }
}

impl ColumnIdentifier {
    pub fn id(id: i32) -> Self {
        ColumnIdentifier { identifier: Some(column_identifier::Identifier::Id(id)) }
    }

    pub fn name(name: impl Into<String>) -> Self {
        ColumnIdentifier { identifier: Some(column_identifier::Identifier::Name(name.into())) }
    }
}

/// The columns by whose values ranges are told apart.
#[derive(Clone, PartialEq, Message)]
pub struct RangeSchema {
    #[prost(message, repeated, tag = "1")]
    pub columns: Vec<ColumnIdentifier>,
}

/// One hash dimension.
#[derive(Clone, PartialEq, Message)]
pub struct HashBucketSchema {
    #[prost(message, repeated, tag = "1")]
    pub columns: Vec<ColumnIdentifier>,
    /// At least 2.
    #[prost(int32, required, tag = "2")]
    pub num_buckets: i32,
    #[prost(uint32, optional, tag = "3")]
    pub seed: Option<u32>,
    /// Not looked at: it is always [`HashAlgorithm::MurmurHash2`].
    #[prost(enumeration = "HashAlgorithm", optional, tag = "4")]
    pub hash_algorithm: Option<i32>,
}

/// A range that has hash dimensions of its own.
#[derive(Clone, PartialEq, Message)]
pub struct RangeWithHashSchema {
    #[prost(message, optional, tag = "1")]
    pub range_bounds: Option<RowOperations>,
    #[prost(message, repeated, tag = "2")]
    pub hash_schema: Vec<HashBucketSchema>,
}

/// Hash functions, of buckets and of bloom filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum HashAlgorithm {
    UnknownHash = 0,
    MurmurHash2 = 1,
    CityHash = 2,
    FastHash = 3,
}

/// What one tablet has of its table.
#[derive(Clone, PartialEq, Message)]
pub struct Partition {
    /// A bucket per hash dimension. Clients take as many buckets off the front of the keys as stand here.
    #[prost(int32, repeated, tag = "1")]
    pub hash_buckets: Vec<i32>,
    /// Inclusive; the buckets, big-endian, then the encoded range key.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub partition_key_start: Option<Bytes>,
    /// Exclusive.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub partition_key_end: Option<Bytes>,
}
