//! Results as the manifest keeps them: JSON, with bytes in Base64.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use oribi_types::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A client whose results may not all be in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientResults {
    #[serde(with = "base64_text")]
    pub client: Arc<[u8]>,
    /// Requests below are refused as stale.
    pub forgotten_below: i64,
    pub results: Vec<StoredResult>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredResult {
    pub sequence: i64,
    pub ts: Timestamp,
    #[serde(with = "base64_text")]
    pub result: Arc<[u8]>,
}

mod base64_text {
    use super::*;
    use serde::{Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[u8]>, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map(Arc::from).map_err(D::Error::custom)
    }
}
