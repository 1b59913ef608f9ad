//! `kudu.tserver.TabletServerAdminService`: what an administrator asks of a tablet server.

use crate::messages::tserver::TabletServerError;
use prost::Message;

/// Asks whether a server takes no new leaders and scanners, or tells it.
#[derive(Clone, PartialEq, Message)]
pub struct QuiesceTabletServerRequest {
    /// Absent: only asks.
    #[prost(bool, optional, tag = "1")]
    pub quiesce: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub return_stats: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct QuiesceTabletServerResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TabletServerError>,
    #[prost(bool, optional, tag = "2")]
    pub is_quiescing: Option<bool>,
    #[prost(int32, optional, tag = "3")]
    pub num_active_scanners: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub num_leaders: Option<i32>,
}
