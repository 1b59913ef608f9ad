//! Changing tables: their columns, ranges and properties.

use super::{MasterError, TableIdentifier};
use crate::messages::common::{ColumnSchema, ColumnSchemaDelta, HashBucketSchema, RowOperations, Schema};
use bytes::Bytes;
use prost::{Enumeration, Message};
use std::collections::BTreeMap;

/// Steps, which are taken in order and together, and properties; what is absent stays.
#[derive(Clone, PartialEq, Message)]
pub struct AlterTableRequest {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifier,
    #[prost(message, repeated, tag = "2")]
    pub alter_schema_steps: Vec<AlterTableStep>,
    #[prost(string, optional, tag = "3")]
    pub new_table_name: Option<String>,
    /// How to read the bounds of ranges.
    #[prost(message, optional, tag = "4")]
    pub schema: Option<Schema>,
    #[prost(bool, optional, tag = "5", default = "true")]
    pub modify_external_catalogs: Option<bool>,
    #[prost(btree_map = "string, string", tag = "6")]
    pub new_extra_configs: BTreeMap<String, String>,
    #[prost(string, optional, tag = "7")]
    pub new_table_owner: Option<String>,
    /// In bytes.
    #[prost(int64, optional, tag = "8")]
    pub disk_size_limit: Option<i64>,
    #[prost(int64, optional, tag = "9")]
    pub row_count_limit: Option<i64>,
    #[prost(string, optional, tag = "10")]
    pub new_table_comment: Option<String>,
    #[prost(int32, optional, tag = "11")]
    pub num_replicas: Option<i32>,
}

/// A step: the field that its type tells of.
#[derive(Clone, PartialEq, Message)]
pub struct AlterTableStep {
    #[prost(enumeration = "StepType", optional, tag = "1")]
    pub step_type: Option<i32>,
    #[prost(message, optional, tag = "2")]
    pub add_column: Option<AddColumn>,
    #[prost(message, optional, tag = "3")]
    pub drop_column: Option<DropColumn>,
    #[prost(message, optional, tag = "4")]
    pub rename_column: Option<RenameColumn>,
    #[prost(message, optional, tag = "5")]
    pub add_range_partition: Option<AddRangePartition>,
    #[prost(message, optional, tag = "6")]
    pub drop_range_partition: Option<DropRangePartition>,
    #[prost(message, optional, tag = "7")]
    pub alter_column: Option<AlterColumn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum StepType {
    Unknown = 0,
    AddColumn = 1,
    DropColumn = 2,
    RenameColumn = 3,
    AlterColumn = 4,
    AddRangePartition = 5,
    DropRangePartition = 6,
}

#[derive(Clone, PartialEq, Message)]
pub struct AddColumn {
    #[prost(message, required, tag = "1")]
    pub schema: ColumnSchema,
}

#[derive(Clone, PartialEq, Message)]
pub struct DropColumn {
    #[prost(string, required, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct RenameColumn {
    #[prost(string, required, tag = "1")]
    pub old_name: String,
    #[prost(string, required, tag = "2")]
    pub new_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct AlterColumn {
    #[prost(message, optional, tag = "1")]
    pub delta: Option<ColumnSchemaDelta>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AddRangePartition {
    /// A lower bound, then an upper one.
    #[prost(message, optional, tag = "1")]
    pub range_bounds: Option<RowOperations>,
    #[prost(string, optional, tag = "2")]
    pub dimension_label: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub custom_hash_schema: Option<CustomHashSchema>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CustomHashSchema {
    #[prost(message, repeated, tag = "1")]
    pub hash_schema: Vec<HashBucketSchema>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DropRangePartition {
    /// A lower bound, then an upper one.
    #[prost(message, optional, tag = "1")]
    pub range_bounds: Option<RowOperations>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AlterTableResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterError>,
    #[prost(uint32, optional, tag = "2")]
    pub schema_version: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub table_id: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct IsAlterTableDoneRequest {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifier,
}

#[derive(Clone, PartialEq, Message)]
pub struct IsAlterTableDoneResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterError>,
    #[prost(uint32, optional, tag = "2")]
    pub schema_version: Option<u32>,
    #[prost(bool, optional, tag = "3")]
    pub done: Option<bool>,
}
