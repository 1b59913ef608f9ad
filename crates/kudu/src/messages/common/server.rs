//! Servers and their addresses, and the roles of tablets' replicas.

use super::AppStatus;
use bytes::Bytes;
use prost::{Enumeration, Message};

/// An address.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct HostPort {
    #[prost(string, required, tag = "1")]
    pub host: String,
    #[prost(uint32, required, tag = "2")]
    pub port: u32,
}

/// A server, and which of its lives.
#[derive(Clone, PartialEq, Message)]
pub struct NodeInstance {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub permanent_uuid: Bytes,
    /// Grows with each start.
    #[prost(int64, required, tag = "2")]
    pub instance_seqno: i64,
}

/// Where a server listens, and what it is.
#[derive(Clone, PartialEq, Message)]
pub struct ServerRegistration {
    #[prost(message, repeated, tag = "1")]
    pub rpc_addresses: Vec<HostPort>,
    #[prost(message, repeated, tag = "2")]
    pub http_addresses: Vec<HostPort>,
    #[prost(string, optional, tag = "3")]
    pub software_version: Option<String>,
    #[prost(bool, optional, tag = "4")]
    pub https_enabled: Option<bool>,
    /// Seconds since 1970.
    #[prost(int64, optional, tag = "5")]
    pub start_time: Option<i64>,
}

/// A server as a list of servers has it.
#[derive(Clone, PartialEq, Message)]
pub struct ServerEntry {
    #[prost(message, optional, tag = "1")]
    pub error: Option<AppStatus>,
    #[prost(message, optional, tag = "2")]
    pub instance_id: Option<NodeInstance>,
    #[prost(message, optional, tag = "3")]
    pub registration: Option<ServerRegistration>,
    #[prost(enumeration = "Role", optional, tag = "4")]
    pub role: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub cluster_id: Option<String>,
    #[prost(enumeration = "MemberType", optional, tag = "6")]
    pub member_type: Option<i32>,
}

/// What a replica does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Role {
    UnknownRole = 999,
    Follower = 0,
    Leader = 1,
    Learner = 2,
    NonParticipant = 3,
}

/// Whether a replica votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum MemberType {
    UnknownMemberType = 999,
    NonVoter = 0,
    Voter = 1,
}

/// A token that a client keeps and hands back; it never looks inside.
#[derive(Clone, PartialEq, Message)]
pub struct SignedToken {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub token_data: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub signature: Option<Bytes>,
    #[prost(int64, optional, tag = "3")]
    pub signing_key_seq_num: Option<i64>,
}
