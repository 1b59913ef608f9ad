//! Columns and their types.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// Columns; those of the key come first.
#[derive(Clone, PartialEq, Message)]
pub struct Schema {
    #[prost(message, repeated, tag = "1")]
    pub columns: Vec<ColumnSchema>,
}

/// A column.
#[derive(Clone, PartialEq, Message)]
pub struct ColumnSchema {
    /// Assigned by the server, counting from 0. A request that has one is invalid.
    #[prost(uint32, optional, tag = "1")]
    pub id: Option<u32>,
    #[prost(string, required, tag = "2")]
    pub name: String,
    #[prost(enumeration = "DataType", required, tag = "3")]
    pub data_type: i32,
    /// Says nothing in the projection of a scan, where clients may leave it out.
    #[prost(bool, optional, tag = "4")]
    pub is_key: Option<bool>,
    #[prost(bool, optional, tag = "5")]
    pub is_nullable: Option<bool>,
    /// A cell in little-endian order, or the bytes themselves of a string or binary.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub read_default_value: Option<Bytes>,
    /// Clients show this one, but send only the other when they create a table: a server copies it.
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub write_default_value: Option<Bytes>,
    #[prost(enumeration = "EncodingType", optional, tag = "8", default = "AutoEncoding")]
    pub encoding: Option<i32>,
    #[prost(enumeration = "CompressionType", optional, tag = "9", default = "DefaultCompression")]
    pub compression: Option<i32>,
    #[prost(int32, optional, tag = "10")]
    pub cfile_block_size: Option<i32>,
    #[prost(message, optional, tag = "11")]
    pub type_attributes: Option<ColumnTypeAttributes>,
    #[prost(string, optional, tag = "12")]
    pub comment: Option<String>,
    #[prost(bool, optional, tag = "13")]
    pub immutable: Option<bool>,
    #[prost(bool, optional, tag = "14")]
    pub is_auto_incrementing: Option<bool>,
    #[prost(message, optional, tag = "15")]
    pub nested_type: Option<NestedDataType>,
}

/// The type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum DataType {
    UnknownData = 999,
    Uint8 = 0,
    Int8 = 1,
    Uint16 = 2,
    Int16 = 3,
    Uint32 = 4,
    Int32 = 5,
    Uint64 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float = 10,
    Double = 11,
    Binary = 12,
    UnixtimeMicros = 13,
    Int128 = 14,
    Decimal32 = 15,
    Decimal64 = 16,
    Decimal128 = 17,
    /// Virtual, in scans of what changed.
    IsDeleted = 18,
    Varchar = 19,
    /// Days since 1970.
    Date = 20,
    Nested = 21,
}

/// What a type is not complete without.
#[derive(Clone, PartialEq, Message)]
pub struct ColumnTypeAttributes {
    /// Of a decimal, in digits.
    #[prost(int32, optional, tag = "1")]
    pub precision: Option<i32>,
    /// Of a decimal: how many of the digits are behind the point.
    #[prost(int32, optional, tag = "2")]
    pub scale: Option<i32>,
    /// Of a varchar, in characters.
    #[prost(int32, optional, tag = "3")]
    pub length: Option<i32>,
}

/// What a nested column has in its cells.
#[derive(Clone, PartialEq, Message)]
pub struct NestedDataType {
    #[prost(oneof = "nested_data_type::Descriptor", tags = "1")]
    pub descriptor: Option<nested_data_type::Descriptor>,
}

/// The forms of a [`NestedDataType`].
pub mod nested_data_type {
    use super::*;

    #[derive(Clone, PartialEq, Oneof)]
    pub enum Descriptor {
        #[prost(message, tag = "1")]
        Array(ArrayType),
    }
}

/// An array of one dimension.
#[derive(Clone, PartialEq, Message)]
pub struct ArrayType {
    #[prost(enumeration = "DataType", optional, tag = "1")]
    pub data_type: Option<i32>,
}

/// How cells are encoded on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum EncodingType {
    UnknownEncoding = 999,
    AutoEncoding = 0,
    PlainEncoding = 1,
    PrefixEncoding = 2,
    GroupVarint = 3,
    Rle = 4,
    DictEncoding = 5,
    BitShuffle = 6,
}

/// How blocks are compressed on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum CompressionType {
    UnknownCompression = 999,
    DefaultCompression = 0,
    NoCompression = 1,
    Snappy = 2,
    Lz4 = 3,
    Zlib = 4,
}

/// What is to change about the column of this name.
#[derive(Clone, PartialEq, Message)]
pub struct ColumnSchemaDelta {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub new_name: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub default_value: Option<Bytes>,
    #[prost(bool, optional, tag = "5")]
    pub remove_default: Option<bool>,
    #[prost(enumeration = "EncodingType", optional, tag = "6")]
    pub encoding: Option<i32>,
    #[prost(enumeration = "CompressionType", optional, tag = "7")]
    pub compression: Option<i32>,
    #[prost(int32, optional, tag = "8")]
    pub block_size: Option<i32>,
    #[prost(string, optional, tag = "9")]
    pub new_comment: Option<String>,
    #[prost(bool, optional, tag = "10")]
    pub immutable: Option<bool>,
}
