//! What the manifest keeps of an SSTable, and how to write one.

use oribi_types::{Error, Result, Timestamp};
use serde::{Deserialize, Serialize};

/// Identifies an SSTable in its folder; never used twice.
pub type SstableId = u64;

/// What the manifest keeps of an SSTable. `index_checksum` covers the index, which covers the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SstableMeta {
    pub id: SstableId,
    pub rows: u64,
    /// Length of the data file in bytes.
    pub data_bytes: u64,
    /// Length of the index file in bytes.
    pub index_bytes: u64,
    /// CRC32C of the header of the index file.
    pub index_checksum: u32,
    /// Encoded key of the first row.
    #[serde(with = "hex")]
    pub min_key: Vec<u8>,
    /// Encoded key of the last row.
    #[serde(with = "hex")]
    pub max_key: Vec<u8>,
    pub min_ts: Timestamp,
    pub max_ts: Timestamp,
}

/// Compression of the pages. The numbers stand in index files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    #[default]
    None = 0,
    Lz4 = 1,
    Zstd = 2,
}

/// How an SSTable is cut and compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SstableOptions {
    /// The most rows of a row group. A row group also ends at [`ROW_GROUP_BYTES_MAX`].
    pub row_group_rows: usize,
    /// The most rows of a page.
    pub page_rows: usize,
    /// A page of texts ends with the row that takes it to this many bytes, of floats, ids and long decimals before; of integers by the
    /// rows alone. Those of keys, and of tables with many columns, are smaller.
    pub page_bytes_max: usize,
    pub compression: Compression,
}

/// A row group is in memory, compressed, until it is written: this bounds what a writer takes.
pub const ROW_GROUP_BYTES_MAX: usize = 32 << 20;

impl Default for SstableOptions {
    /// A point read reads one page per column, and decompresses half of it, so pages are small. Ten columns of 51 bytes,
    /// LZ4: a row costs 87 µs with pages of 16 KiB, 61 with 8 and 47 with 4, while the file grows by 4 and by 10 of a
    /// hundred. TPC-H takes as long with each.
    fn default() -> Self {
        SstableOptions {
            row_group_rows: 65_536,
            page_rows: 1_024,
            page_bytes_max: 8 << 10,
            compression: Compression::Lz4,
        }
    }
}

impl SstableOptions {
    /// # Errors
    /// `Invalid` if something is zero.
    pub fn validate(&self) -> Result<()> {
        if self.row_group_rows == 0 || self.page_rows == 0 || self.page_bytes_max == 0 {
            return Err(Error::invalid("sstable options must not be zero"));
        }
        Ok(())
    }
}

mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Write;

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let text = bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string takes all text");
            text
        });
        serializer.serialize_str(&text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
        let pair = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        text.as_bytes()
            .chunks(2)
            .map(|bytes| pair(bytes).ok_or_else(|| D::Error::custom("not a hexadecimal string")))
            .collect()
    }
}
