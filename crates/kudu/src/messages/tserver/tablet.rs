//! A server's tablets, and what calls have cost it.

use super::TabletServerError;
use crate::messages::common::{Partition, PartitionSchema, Role, Schema};
use bytes::Bytes;
use prost::{Enumeration, Message};

#[derive(Clone, PartialEq, Message)]
pub struct ListTabletsRequest {
    #[prost(bool, optional, tag = "1", default = "true")]
    pub need_schema_info: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListTabletsResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TabletServerError>,
    #[prost(message, repeated, tag = "2")]
    pub status_and_schema: Vec<StatusAndSchema>,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusAndSchema {
    #[prost(message, required, tag = "1")]
    pub tablet_status: TabletStatus,
    #[prost(message, optional, tag = "2")]
    pub schema: Option<Schema>,
    #[prost(message, optional, tag = "3")]
    pub partition_schema: Option<PartitionSchema>,
    #[prost(uint32, optional, tag = "4")]
    pub schema_version: Option<u32>,
    #[prost(enumeration = "Role", optional, tag = "5")]
    pub role: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TabletStatus {
    #[prost(string, required, tag = "1")]
    pub tablet_id: String,
    #[prost(string, required, tag = "2")]
    pub table_name: String,
    #[prost(enumeration = "TabletState", optional, tag = "3")]
    pub state: Option<i32>,
    /// For people to read.
    #[prost(string, required, tag = "4")]
    pub last_status: String,
    #[prost(int64, optional, tag = "7")]
    pub estimated_on_disk_size: Option<i64>,
    #[prost(enumeration = "TabletDataState", optional, tag = "8")]
    pub tablet_data_state: Option<i32>,
    #[prost(message, optional, tag = "9")]
    pub partition: Option<Partition>,
    #[prost(bytes = "bytes", repeated, tag = "10")]
    pub data_dirs: Vec<Bytes>,
    #[prost(string, optional, tag = "11")]
    pub table_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum TabletState {
    Unknown = 999,
    Bootstrapping = 0,
    Running = 1,
    Failed = 2,
    Stopping = 3,
    Shutdown = 4,
    Initialized = 5,
    NotInitialized = 6,
    Stopped = 7,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum TabletDataState {
    Unknown = 999,
    Copying = 0,
    Ready = 1,
    Deleted = 2,
    Tombstoned = 3,
}

/// What a write or a scan took, and did.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceMetrics {
    #[prost(int64, optional, tag = "1")]
    pub cfile_cache_miss_bytes: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    pub cfile_cache_hit_bytes: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub bytes_read: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    pub queue_duration_nanos: Option<i64>,
    #[prost(int64, optional, tag = "5")]
    pub total_duration_nanos: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    pub cpu_user_nanos: Option<i64>,
    #[prost(int64, optional, tag = "7")]
    pub cpu_system_nanos: Option<i64>,
    #[prost(int64, optional, tag = "8")]
    pub successful_inserts: Option<i64>,
    #[prost(int64, optional, tag = "9")]
    pub insert_ignore_errors: Option<i64>,
    #[prost(int64, optional, tag = "10")]
    pub successful_upserts: Option<i64>,
    #[prost(int64, optional, tag = "11")]
    pub successful_updates: Option<i64>,
    #[prost(int64, optional, tag = "12")]
    pub update_ignore_errors: Option<i64>,
    #[prost(int64, optional, tag = "13")]
    pub successful_deletes: Option<i64>,
    #[prost(int64, optional, tag = "14")]
    pub delete_ignore_errors: Option<i64>,
    #[prost(int64, optional, tag = "15")]
    pub commit_wait_duration_usec: Option<i64>,
    #[prost(int64, optional, tag = "16")]
    pub upsert_ignore_errors: Option<i64>,
}
