//! Scans, and what else reads a tablet.

use super::TabletServerError;
use crate::messages::common::{
    ColumnPredicate, ColumnSchema, ColumnarRowBlock, RowwiseRowBlock, SignedToken,
};
use bytes::Bytes;
use prost::{Enumeration, Message};

/// Opens a scanner (`new_scan_request`), goes on with one, or closes it.
#[derive(Clone, PartialEq, Message)]
pub struct ScanRequest {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub scanner_id: Option<Bytes>,
    #[prost(message, optional, tag = "2")]
    pub new_scan_request: Option<NewScanRequest>,
    /// 0 or absent for the first call of a scanner, then one more with each.
    #[prost(uint32, optional, tag = "3")]
    pub call_seq_id: Option<u32>,
    /// About how much to return; 0: no rows yet.
    #[prost(uint32, optional, tag = "4")]
    pub batch_size_bytes: Option<u32>,
    #[prost(bool, optional, tag = "5")]
    pub close_scanner: Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub query_id: Option<Bytes>,
}

/// What to read of a tablet.
#[derive(Clone, PartialEq, Message)]
pub struct NewScanRequest {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub tablet_id: Bytes,
    /// In rows.
    #[prost(uint64, optional, tag = "2")]
    pub limit: Option<u64>,
    /// From clients before `column_predicates`.
    #[prost(message, repeated, tag = "3")]
    pub deprecated_range_predicates: Vec<ColumnRangePredicate>,
    /// Without ids, and `is_key` says nothing. None: rows are only counted.
    #[prost(message, repeated, tag = "4")]
    pub projected_columns: Vec<ColumnSchema>,
    #[prost(enumeration = "ReadMode", optional, tag = "5", default = "ReadLatest")]
    pub read_mode: Option<i32>,
    #[prost(fixed64, optional, tag = "6")]
    pub snap_timestamp: Option<u64>,
    /// The latest time that the client has seen.
    #[prost(fixed64, optional, tag = "7")]
    pub propagated_timestamp: Option<u64>,
    /// Encoded primary key, inclusive.
    #[prost(bytes = "bytes", optional, tag = "8")]
    pub start_primary_key: Option<Bytes>,
    /// Encoded primary key, exclusive.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub stop_primary_key: Option<Bytes>,
    #[prost(bool, optional, tag = "10", default = "true")]
    pub cache_blocks: Option<bool>,
    #[prost(enumeration = "OrderMode", optional, tag = "11", default = "Unordered")]
    pub order_mode: Option<i32>,
    /// Where a scan that broke off goes on: after this encoded key.
    #[prost(bytes = "bytes", optional, tag = "12")]
    pub last_primary_key: Option<Bytes>,
    #[prost(message, repeated, tag = "13")]
    pub column_predicates: Vec<ColumnPredicate>,
    /// Of [`ROW_FORMAT_PAD_UNIXTIME_MICROS`] and [`ROW_FORMAT_COLUMNAR`].
    #[prost(uint64, optional, tag = "14")]
    pub row_format_flags: Option<u64>,
    #[prost(message, optional, tag = "15")]
    pub authz_token: Option<SignedToken>,
    /// Return what changed between this time and the snapshot.
    #[prost(fixed64, optional, tag = "16")]
    pub snap_start_timestamp: Option<u64>,
    /// Oribi's own: the transaction whose rows are seen too. Kudu's servers do not know it, and show none of them.
    #[prost(int64, optional, tag = "1000")]
    pub txn_id: Option<i64>,
}

/// Cells of timestamps take 16 bytes in row-wise results.
pub const ROW_FORMAT_PAD_UNIXTIME_MICROS: u64 = 1;
/// Results column by column; row by row is a valid answer too.
pub const ROW_FORMAT_COLUMNAR: u64 = 2;

/// Both bounds inclusive.
#[derive(Clone, PartialEq, Message)]
pub struct ColumnRangePredicate {
    #[prost(message, required, tag = "1")]
    pub column: ColumnSchema,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub lower_bound: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub inclusive_upper_bound: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ReadMode {
    Unknown = 0,
    ReadLatest = 1,
    ReadAtSnapshot = 2,
    ReadYourWrites = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum OrderMode {
    Unknown = 0,
    Unordered = 1,
    /// By primary key.
    Ordered = 2,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScanResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TabletServerError>,
    /// Only if there is more.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub scanner_id: Option<Bytes>,
    #[prost(bool, optional, tag = "3")]
    pub has_more_results: Option<bool>,
    #[prost(message, optional, tag = "4")]
    pub data: Option<RowwiseRowBlock>,
    #[prost(message, optional, tag = "5")]
    pub columnar_data: Option<ColumnarRowBlock>,
    /// The snapshot that is read. The C++ client aborts its process if the first response lacks it in a mode
    /// that chooses one.
    #[prost(fixed64, optional, tag = "6")]
    pub snap_timestamp: Option<u64>,
    /// The encoded key of the last row, for going on after it.
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub last_primary_key: Option<Bytes>,
    #[prost(message, optional, tag = "8")]
    pub resource_metrics: Option<super::ResourceMetrics>,
    #[prost(fixed64, optional, tag = "9")]
    pub propagated_timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScannerKeepAliveRequest {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub scanner_id: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScannerKeepAliveResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TabletServerError>,
}

/// Asks for ranges of keys that hold about as many bytes each.
#[derive(Clone, PartialEq, Message)]
pub struct SplitKeyRangeRequest {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub tablet_id: Bytes,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub start_primary_key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub stop_primary_key: Option<Bytes>,
    #[prost(uint64, optional, tag = "4")]
    pub target_chunk_size_bytes: Option<u64>,
    /// Only these count.
    #[prost(message, repeated, tag = "5")]
    pub columns: Vec<ColumnSchema>,
    #[prost(message, optional, tag = "6")]
    pub authz_token: Option<SignedToken>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SplitKeyRangeResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TabletServerError>,
    #[prost(message, repeated, tag = "2")]
    pub ranges: Vec<KeyRange>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyRange {
    /// Encoded primary key, inclusive.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub start_primary_key: Option<Bytes>,
    /// Encoded primary key, exclusive.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub stop_primary_key: Option<Bytes>,
    #[prost(uint64, required, tag = "3")]
    pub size_bytes_estimates: u64,
}

/// Asks for a checksum over a scan, in several calls like one.
#[derive(Clone, PartialEq, Message)]
pub struct ChecksumRequest {
    #[prost(message, optional, tag = "1")]
    pub new_request: Option<NewScanRequest>,
    #[prost(message, optional, tag = "2")]
    pub continue_request: Option<ContinueChecksumRequest>,
    #[prost(uint32, optional, tag = "3")]
    pub call_seq_id: Option<u32>,
    #[prost(uint32, optional, tag = "4")]
    pub batch_size_bytes: Option<u32>,
    #[prost(bool, optional, tag = "5")]
    pub close_scanner: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContinueChecksumRequest {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub scanner_id: Bytes,
    #[prost(uint64, required, tag = "2")]
    pub previous_checksum: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ChecksumResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TabletServerError>,
    /// Over all calls so far. Clients want it in each response.
    #[prost(uint64, optional, tag = "2")]
    pub checksum: Option<u64>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub scanner_id: Option<Bytes>,
    #[prost(bool, optional, tag = "4")]
    pub has_more_results: Option<bool>,
    #[prost(fixed64, optional, tag = "5")]
    pub snap_timestamp: Option<u64>,
    #[prost(int64, optional, tag = "6")]
    pub rows_checksummed: Option<i64>,
    #[prost(message, optional, tag = "7")]
    pub resource_metrics: Option<super::ResourceMetrics>,
}
