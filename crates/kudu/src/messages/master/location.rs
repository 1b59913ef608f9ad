//! Where a table's tablets are.

use super::{MasterError, TableIdentifier};
use crate::messages::common::{AppStatus, HostPort, Partition, Role};
use bytes::Bytes;
use prost::{Enumeration, Message};

/// Asks for the tablet that has a key, and for those after it.
#[derive(Clone, PartialEq, Message)]
pub struct GetTableLocationsRequest {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifier,
    /// Buckets, then the encoded range key. `key_start` wins over it.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub partition_key_start: Option<Bytes>,
    /// Exclusive. `key_end` wins over it.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub partition_key_end: Option<Bytes>,
    #[prost(uint32, optional, tag = "5", default = "10")]
    pub max_returned_locations: Option<u32>,
    #[prost(enumeration = "ReplicaTypeFilter", optional, tag = "6", default = "VoterReplica")]
    pub replica_type_filter: Option<i32>,
    #[prost(bool, optional, tag = "7")]
    pub intern_ts_infos_in_response: Option<bool>,
    #[prost(message, optional, tag = "8")]
    pub key_start: Option<PartitionKey>,
    #[prost(message, optional, tag = "9")]
    pub key_end: Option<PartitionKey>,
}

/// A partition key in its two parts.
#[derive(Clone, PartialEq, Message)]
pub struct PartitionKey {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub range_key: Option<Bytes>,
    /// Buckets, big-endian.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub hash_key: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ReplicaTypeFilter {
    Unknown = 999,
    AnyReplica = 0,
    VoterReplica = 1,
}

/// Tablets in the order of their keys, from the one that begins at or before the key asked for. A client
/// takes what lies between two of them for not covered by any.
#[derive(Clone, PartialEq, Message)]
pub struct GetTableLocationsResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterError>,
    #[prost(message, repeated, tag = "2")]
    pub tablet_locations: Vec<TabletLocations>,
    /// How long clients may rely on it.
    #[prost(uint32, optional, tag = "3", default = "3600000")]
    pub ttl_millis: Option<u32>,
    #[prost(message, repeated, tag = "4")]
    pub ts_infos: Vec<TsInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TabletLocations {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub tablet_id: Bytes,
    /// If interning was not asked for.
    #[prost(message, repeated, tag = "4")]
    pub deprecated_replicas: Vec<Replica>,
    #[prost(bool, optional, tag = "5")]
    pub deprecated_stale: Option<bool>,
    #[prost(message, optional, tag = "6")]
    pub partition: Option<Partition>,
    #[prost(message, repeated, tag = "7")]
    pub interned_replicas: Vec<InternedReplica>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Replica {
    #[prost(message, required, tag = "1")]
    pub ts_info: TsInfo,
    #[prost(enumeration = "Role", required, tag = "2")]
    pub role: i32,
    #[prost(string, optional, tag = "3")]
    pub dimension_label: Option<String>,
}

/// A replica on a server of the response's `ts_infos`.
#[derive(Clone, PartialEq, Message)]
pub struct InternedReplica {
    #[prost(uint32, required, tag = "1")]
    pub ts_info_idx: u32,
    #[prost(enumeration = "Role", required, tag = "2")]
    pub role: i32,
    #[prost(string, optional, tag = "3")]
    pub dimension_label: Option<String>,
}

/// A tablet server.
#[derive(Clone, PartialEq, Message)]
pub struct TsInfo {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub permanent_uuid: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub rpc_addresses: Vec<HostPort>,
    #[prost(string, optional, tag = "3")]
    pub location: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub unix_domain_socket_path: Option<String>,
}

/// Asks for tablets by their ids.
#[derive(Clone, PartialEq, Message)]
pub struct GetTabletLocationsRequest {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub tablet_ids: Vec<Bytes>,
    #[prost(enumeration = "ReplicaTypeFilter", optional, tag = "2", default = "VoterReplica")]
    pub replica_type_filter: Option<i32>,
    #[prost(bool, optional, tag = "3")]
    pub intern_ts_infos_in_response: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetTabletLocationsResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterError>,
    #[prost(message, repeated, tag = "2")]
    pub tablet_locations: Vec<TabletLocations>,
    #[prost(message, repeated, tag = "3")]
    pub errors: Vec<TabletLocationError>,
    #[prost(message, repeated, tag = "4")]
    pub ts_infos: Vec<TsInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TabletLocationError {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub tablet_id: Bytes,
    #[prost(message, required, tag = "2")]
    pub status: AppStatus,
}
