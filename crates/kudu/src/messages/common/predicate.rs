//! Predicates on a column. A row is in a scan if all of them hold; none but `IsNull` holds for a null.

use super::HashAlgorithm;
use bytes::Bytes;
use prost::{Message, Oneof};

/// A predicate on the column of this name, which need not be among those that the scan returns.
#[derive(Clone, PartialEq, Message)]
pub struct ColumnPredicate {
    #[prost(string, optional, tag = "1")]
    pub column: Option<String>,
    #[prost(oneof = "column_predicate::Predicate", tags = "2, 3, 4, 5, 6, 7")]
    pub predicate: Option<column_predicate::Predicate>,
}

/// The kinds of a [`ColumnPredicate`].
pub mod column_predicate {
    use super::*;

    #[derive(Clone, PartialEq, Oneof)]
    pub enum Predicate {
        #[prost(message, tag = "2")]
        Range(Range),
        #[prost(message, tag = "3")]
        Equality(Equality),
        #[prost(message, tag = "4")]
        IsNotNull(IsNotNull),
        #[prost(message, tag = "5")]
        InList(InList),
        #[prost(message, tag = "6")]
        IsNull(IsNull),
        #[prost(message, tag = "7")]
        InBloomFilter(InBloomFilter),
    }
}

/// Between two values. A value is a cell in little-endian order, or the bytes themselves of a string or
/// binary.
#[derive(Clone, PartialEq, Message)]
pub struct Range {
    /// Inclusive.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub lower: Option<Bytes>,
    /// Exclusive.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub upper: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Equality {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub value: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct IsNotNull {}

#[derive(Clone, PartialEq, Message)]
pub struct IsNull {}

/// Equal to one of the values; Kudu's clients sort them.
#[derive(Clone, PartialEq, Message)]
pub struct InList {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub values: Vec<Bytes>,
}

/// Perhaps in each of the filters, and between the bounds.
#[derive(Clone, PartialEq, Message)]
pub struct InBloomFilter {
    #[prost(message, repeated, tag = "1")]
    pub bloom_filters: Vec<BlockBloomFilter>,
    /// Inclusive.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub lower: Option<Bytes>,
    /// Exclusive.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub upper: Option<Bytes>,
}

/// A bloom filter of blocks.
#[derive(Clone, PartialEq, Message)]
pub struct BlockBloomFilter {
    /// The size of the filter, as a power of two.
    #[prost(int32, optional, tag = "1")]
    pub log_space_bytes: Option<i32>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub bloom_data: Option<Bytes>,
    /// Nothing was inserted.
    #[prost(bool, optional, tag = "3")]
    pub always_false: Option<bool>,
    #[prost(enumeration = "HashAlgorithm", optional, tag = "4", default = "FastHash")]
    pub hash_algorithm: Option<i32>,
    #[prost(uint32, optional, tag = "5")]
    pub hash_seed: Option<u32>,
}
