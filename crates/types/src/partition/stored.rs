//! The stored form of a partitioning, in the manifest.
//!
//! ```json
//! {"dimensions": {"hash": [{"columns": [0], "buckets": 4, "seed": 0}],
//!                 "range": {"columns": [1], "ranges": [{"lower": "8000000a", "upper": null, "hash": null}]}}}
//! ```
//! `hash`, with one dimension, is what was written before there were ranges, and is still read.

use super::{HashDimension, Partitioning, RangeDimension};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stored {
    Hash { columns: Vec<u16>, buckets: u32 },
    Dimensions { hash: Vec<HashDimension>, range: Option<RangeDimension> },
}

impl From<Partitioning> for Stored {
    fn from(partitioning: Partitioning) -> Self {
        Stored::Dimensions { hash: partitioning.hash, range: partitioning.range }
    }
}

impl TryFrom<Stored> for Partitioning {
    type Error = Error;
    fn try_from(stored: Stored) -> Result<Self> {
        match stored {
            Stored::Hash { buckets: 1, .. } => Ok(Partitioning::none()),
            Stored::Hash { columns, buckets } => Partitioning::new(
                vec![HashDimension { columns, buckets, seed: 0, short_decimals: false }],
                None,
            ),
            Stored::Dimensions { hash, range } => Partitioning::new(hash, range),
        }
    }
}

/// Bytes as a hexadecimal string.
pub(super) mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Write;

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_text(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        from_text(&text).ok_or_else(|| D::Error::custom("not a hexadecimal string"))
    }

    pub fn to_text(bytes: &[u8]) -> String {
        bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string takes all text");
            text
        })
    }

    pub fn from_text(text: &str) -> Option<Vec<u8>> {
        let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
        let pair = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        text.as_bytes().chunks(2).map(pair).collect()
    }
}

/// The same, or null.
pub(super) mod hex_option {
    use super::hex;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        bytes.as_deref().map(hex::to_text).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let bytes =
            |text: String| hex::from_text(&text).ok_or_else(|| D::Error::custom("not a hexadecimal string"));
        text.map(bytes).transpose()
    }
}
