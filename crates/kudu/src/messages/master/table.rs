//! Creating tables, dropping them, and what there is to know of them.

use super::{MasterError, TableIdentifier};
use crate::messages::common::{Partition, PartitionSchema, RowOperations, Schema, SignedToken};
use bytes::Bytes;
use prost::{Enumeration, Message};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Message)]
pub struct CreateTableRequest {
    #[prost(string, required, tag = "1")]
    pub name: String,
    #[prost(message, required, tag = "2")]
    pub schema: Schema,
    #[prost(int32, optional, tag = "4")]
    pub num_replicas: Option<i32>,
    /// Rows to split at, and pairs of lower and upper bounds. Present but empty is as good as absent.
    #[prost(message, optional, tag = "6")]
    pub split_rows_range_bounds: Option<RowOperations>,
    #[prost(message, optional, tag = "7")]
    pub partition_schema: Option<PartitionSchema>,
    #[prost(string, optional, tag = "8")]
    pub owner: Option<String>,
    #[prost(btree_map = "string, string", tag = "9")]
    pub extra_configs: BTreeMap<String, String>,
    #[prost(string, optional, tag = "10")]
    pub dimension_label: Option<String>,
    #[prost(enumeration = "TableType", optional, tag = "11")]
    pub table_type: Option<i32>,
    #[prost(string, optional, tag = "13")]
    pub comment: Option<String>,
    #[prost(bool, optional, tag = "14")]
    pub allow_empty_partition: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum TableType {
    Default = 0,
    TxnStatus = 1,
}

#[derive(Clone, PartialEq, Message)]
pub struct CreateTableResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterError>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub table_id: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct IsCreateTableDoneRequest {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifier,
}

#[derive(Clone, PartialEq, Message)]
pub struct IsCreateTableDoneResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterError>,
    #[prost(bool, optional, tag = "3")]
    pub done: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteTableRequest {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifier,
    #[prost(bool, optional, tag = "2", default = "true")]
    pub modify_external_catalogs: Option<bool>,
    /// So long the table can be had back.
    #[prost(uint32, optional, tag = "3")]
    pub reserve_seconds: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteTableResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterError>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListTablesRequest {
    /// Only tables whose name contains it.
    #[prost(string, optional, tag = "1")]
    pub name_filter: Option<String>,
    /// Only tables of these types; none: [`TableType::Default`].
    #[prost(enumeration = "TableType", repeated, packed = "false", tag = "2")]
    pub type_filter: Vec<i32>,
    #[prost(bool, optional, tag = "3")]
    pub list_tablet_with_partition: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    pub show_soft_deleted: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListTablesResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterError>,
    #[prost(message, repeated, tag = "2")]
    pub tables: Vec<TableInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TableInfo {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub id: Bytes,
    #[prost(string, required, tag = "2")]
    pub name: String,
    #[prost(uint64, optional, tag = "3")]
    pub live_row_count: Option<u64>,
    #[prost(int32, optional, tag = "4")]
    pub num_tablets: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    pub num_replicas: Option<i32>,
    #[prost(message, repeated, tag = "6")]
    pub tablet_with_partition: Vec<TabletWithPartition>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TabletWithPartition {
    #[prost(string, optional, tag = "1")]
    pub tablet_id: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub partition: Option<Partition>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetTableSchemaRequest {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifier,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetTableSchemaResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterError>,
    /// Its columns have ids.
    #[prost(message, optional, tag = "2")]
    pub schema: Option<Schema>,
    #[prost(int32, optional, tag = "3")]
    pub num_replicas: Option<i32>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub table_id: Option<Bytes>,
    /// By the ids of columns.
    #[prost(message, optional, tag = "5")]
    pub partition_schema: Option<PartitionSchema>,
    #[prost(string, optional, tag = "7")]
    pub table_name: Option<String>,
    #[prost(message, optional, tag = "8")]
    pub authz_token: Option<SignedToken>,
    #[prost(btree_map = "string, string", tag = "9")]
    pub extra_configs: BTreeMap<String, String>,
    #[prost(string, optional, tag = "10")]
    pub owner: Option<String>,
    #[prost(string, optional, tag = "11")]
    pub comment: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetTableStatisticsRequest {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifier,
    /// From clients after 1.18.
    #[prost(bool, optional, tag = "2")]
    pub include_tablet_statistics: Option<bool>,
}

/// What is absent is shown as not available.
#[derive(Clone, PartialEq, Message)]
pub struct GetTableStatisticsResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterError>,
    /// In bytes.
    #[prost(int64, optional, tag = "2")]
    pub on_disk_size: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub live_row_count: Option<i64>,
    /// In bytes.
    #[prost(int64, optional, tag = "4")]
    pub disk_size_limit: Option<i64>,
    #[prost(int64, optional, tag = "5")]
    pub row_count_limit: Option<i64>,
    #[prost(message, repeated, tag = "6")]
    pub tablet_statistics: Vec<TabletStatistics>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TabletStatistics {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub tablet_id: Option<Bytes>,
    /// In bytes.
    #[prost(int64, optional, tag = "2")]
    pub on_disk_size: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub live_row_count: Option<i64>,
}
