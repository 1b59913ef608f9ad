//! `kudu.server.GenericService`: what each server says of itself.

use crate::messages::common::{AppStatus, HostPort, NodeInstance};
use prost::{Enumeration, Message};

#[derive(Clone, PartialEq, Message)]
pub struct GetStatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct GetStatusResponse {
    #[prost(message, required, tag = "1")]
    pub status: ServerStatus,
    #[prost(message, optional, tag = "2")]
    pub error: Option<AppStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServerStatus {
    #[prost(message, required, tag = "1")]
    pub node_instance: NodeInstance,
    #[prost(message, repeated, tag = "2")]
    pub bound_rpc_addresses: Vec<HostPort>,
    #[prost(message, repeated, tag = "3")]
    pub bound_http_addresses: Vec<HostPort>,
    #[prost(message, optional, tag = "4")]
    pub version_info: Option<VersionInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub struct VersionInfo {
    #[prost(string, optional, tag = "1")]
    pub git_hash: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub build_hostname: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub build_timestamp: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub build_username: Option<String>,
    #[prost(bool, optional, tag = "5")]
    pub build_clean_repo: Option<bool>,
    #[prost(string, optional, tag = "6")]
    pub build_id: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub build_type: Option<String>,
    /// `ksck` wants the same of all servers.
    #[prost(string, optional, tag = "8")]
    pub version_string: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetFlagsRequest {
    /// Those at their defaults, too.
    #[prost(bool, optional, tag = "1")]
    pub all_flags: Option<bool>,
    #[prost(string, repeated, tag = "2")]
    pub tags: Vec<String>,
    /// None: all.
    #[prost(string, repeated, tag = "3")]
    pub flags: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetFlagsResponse {
    #[prost(message, repeated, tag = "1")]
    pub flags: Vec<Flag>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Flag {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
    #[prost(string, repeated, tag = "3")]
    pub tags: Vec<String>,
    #[prost(bool, optional, tag = "4")]
    pub is_default_value: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SetFlagRequest {
    #[prost(string, required, tag = "1")]
    pub flag: String,
    #[prost(string, required, tag = "2")]
    pub value: String,
    /// Though it is not safe to change.
    #[prost(bool, optional, tag = "3")]
    pub force: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SetFlagResponse {
    #[prost(enumeration = "SetFlagResult", required, tag = "1")]
    pub result: i32,
    #[prost(string, optional, tag = "2")]
    pub msg: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub old_value: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum SetFlagResult {
    Unknown = 999,
    Success = 1,
    NoSuchFlag = 2,
    BadValue = 3,
    NotSafe = 4,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServerClockRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct ServerClockResponse {
    #[prost(fixed64, optional, tag = "1")]
    pub timestamp: Option<u64>,
}
