//! `kudu.consensus.ConsensusService`: who leads which tablet, as `ksck` asks masters and tablet servers.

use crate::messages::common::{HostPort, MemberType};
use crate::messages::tserver::TabletServerError;
use bytes::Bytes;
use prost::{Enumeration, Message};

#[derive(Clone, PartialEq, Message)]
pub struct GetConsensusStateRequest {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub dest_uuid: Option<Bytes>,
    /// None: all.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub tablet_ids: Vec<Bytes>,
    #[prost(enumeration = "IncludeHealthReport", optional, tag = "3")]
    pub report_health: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum IncludeHealthReport {
    Unspecified = 0,
    Exclude = 1,
    Include = 2,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetConsensusStateResponse {
    /// A master has exactly one, whose id is 32 zeroes.
    #[prost(message, repeated, tag = "1")]
    pub tablets: Vec<TabletConsensusInfo>,
    #[prost(message, optional, tag = "2")]
    pub error: Option<TabletServerError>,
    #[prost(message, optional, tag = "3")]
    pub replica_management_info: Option<ReplicaManagementInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TabletConsensusInfo {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub tablet_id: Bytes,
    #[prost(message, optional, tag = "2")]
    pub cstate: Option<ConsensusState>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ConsensusState {
    #[prost(int64, required, tag = "1")]
    pub current_term: i64,
    #[prost(string, optional, tag = "2")]
    pub leader_uuid: Option<String>,
    #[prost(message, required, tag = "3")]
    pub committed_config: RaftConfig,
    #[prost(message, optional, tag = "4")]
    pub pending_config: Option<RaftConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RaftConfig {
    #[prost(int64, optional, tag = "1")]
    pub opid_index: Option<i64>,
    #[prost(message, repeated, tag = "3")]
    pub peers: Vec<RaftPeer>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RaftPeer {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub permanent_uuid: Option<Bytes>,
    #[prost(enumeration = "MemberType", optional, tag = "2")]
    pub member_type: Option<i32>,
    #[prost(message, optional, tag = "3")]
    pub last_known_addr: Option<HostPort>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ReplicaManagementInfo {
    #[prost(enumeration = "ReplacementScheme", optional, tag = "1")]
    pub replacement_scheme: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ReplacementScheme {
    Unknown = 999,
    EvictFirst = 0,
    PrepareReplacementBeforeEviction = 1,
}
