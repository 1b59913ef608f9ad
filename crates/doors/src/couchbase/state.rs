//! What a connection has agreed on with its client.

use super::cluster::MapVersion;
use super::feature::Features;
use super::http;
use super::sasl::Authentication;

/// One client's state.
#[derive(Debug, Default)]
pub struct State {
    pub features: Features,
    /// The schema whose tables are its collections.
    pub bucket: Option<String>,
    pub authentication: Authentication,
    pub is_authenticated: bool,
    /// Attempts to authenticate that failed, since one that did not.
    pub failed_attempts: u32,
    /// A request over HTTP, if that is what comes.
    pub http: http::Reader,
    /// The newest cluster map that the client was sent.
    pub sent_map: Option<MapVersion>,
}
