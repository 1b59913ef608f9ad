//! Masters and tablet servers.

use super::MasterError;
use crate::messages::common::{
    HostPort, MemberType, NodeInstance, Role, ServerEntry, ServerRegistration, SignedToken,
};
use bytes::Bytes;
use prost::{Enumeration, Message};

#[derive(Clone, PartialEq, Message)]
pub struct PingRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct PingResponse {}

/// What each client asks first.
#[derive(Clone, PartialEq, Message)]
pub struct ConnectToMasterRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct ConnectToMasterResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterError>,
    #[prost(enumeration = "Role", optional, tag = "2")]
    pub role: Option<i32>,
    /// With this and a token a client authenticates by the token from then on, which takes TLS.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub ca_cert_der: Vec<Bytes>,
    #[prost(message, optional, tag = "4")]
    pub authn_token: Option<SignedToken>,
    /// A client warns if these are more than it was given.
    #[prost(message, repeated, tag = "5")]
    pub master_addrs: Vec<HostPort>,
    #[prost(message, optional, tag = "6")]
    pub hms_config: Option<HiveMetastoreConfig>,
    #[prost(string, optional, tag = "7")]
    pub client_location: Option<String>,
    #[prost(string, optional, tag = "8")]
    pub cluster_id: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HiveMetastoreConfig {
    #[prost(string, optional, tag = "1")]
    pub hms_uris: Option<String>,
    #[prost(bool, optional, tag = "2")]
    pub hms_sasl_enabled: Option<bool>,
    #[prost(string, optional, tag = "3")]
    pub hms_uuid: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListTabletServersRequest {
    #[prost(bool, optional, tag = "1")]
    pub include_states: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListTabletServersResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterError>,
    #[prost(message, repeated, tag = "2")]
    pub servers: Vec<TabletServerEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TabletServerEntry {
    #[prost(message, required, tag = "1")]
    pub instance_id: NodeInstance,
    #[prost(message, optional, tag = "2")]
    pub registration: Option<ServerRegistration>,
    #[prost(int32, optional, tag = "3")]
    pub millis_since_heartbeat: Option<i32>,
    #[prost(string, optional, tag = "4")]
    pub location: Option<String>,
    #[prost(enumeration = "TabletServerState", optional, tag = "5")]
    pub state: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum TabletServerState {
    Unknown = 0,
    None = 1,
    MaintenanceMode = 2,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListMastersRequest {}

/// The error of a master is the first field, but of this response and of a [`GetMasterRegistrationResponse`].
#[derive(Clone, PartialEq, Message)]
pub struct ListMastersResponse {
    #[prost(message, repeated, tag = "1")]
    pub masters: Vec<ServerEntry>,
    #[prost(message, optional, tag = "3")]
    pub error: Option<MasterError>,
}

/// What a client asks first if a master refuses the feature of [`ConnectToMasterRequest`].
#[derive(Clone, PartialEq, Message)]
pub struct GetMasterRegistrationRequest {}

/// Who a master is.
#[derive(Clone, PartialEq, Message)]
pub struct GetMasterRegistrationResponse {
    #[prost(message, required, tag = "1")]
    pub instance_id: NodeInstance,
    #[prost(message, optional, tag = "2")]
    pub registration: Option<ServerRegistration>,
    #[prost(enumeration = "Role", optional, tag = "3")]
    pub role: Option<i32>,
    #[prost(message, optional, tag = "4")]
    pub error: Option<MasterError>,
    #[prost(string, optional, tag = "5")]
    pub cluster_id: Option<String>,
    #[prost(enumeration = "MemberType", optional, tag = "6")]
    pub member_type: Option<i32>,
}
