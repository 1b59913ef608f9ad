//! Writes.

use super::TabletServerError;
use crate::messages::common::{AppStatus, RowOperations, SignedToken};
use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use prost::{Enumeration, Message};

/// Rows for one tablet; they are applied in order, and fail one by one.
#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub tablet_id: Bytes,
    /// An encoded [`Schema`](crate::messages::common::Schema): how to read the rows. It stays encoded, as a
    /// client sends the same bytes with each write to a table, and a server knows them again.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub schema: Option<Bytes>,
    #[prost(message, optional, tag = "3")]
    pub row_operations: Option<RowOperations>,
    #[prost(enumeration = "ExternalConsistencyMode", optional, tag = "4", default = "ClientPropagated")]
    pub external_consistency_mode: Option<i32>,
    /// The latest time that the client has seen.
    #[prost(fixed64, optional, tag = "5")]
    pub propagated_timestamp: Option<u64>,
    #[prost(message, optional, tag = "6")]
    pub authz_token: Option<SignedToken>,
    #[prost(int64, optional, tag = "7")]
    pub txn_id: Option<i64>,
    #[prost(message, optional, tag = "8")]
    pub auto_incrementing_column: Option<AutoIncrementingColumn>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AutoIncrementingColumn {
    #[prost(int64, optional, tag = "1")]
    pub auto_incrementing_counter: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ExternalConsistencyMode {
    Unknown = 0,
    ClientPropagated = 1,
    CommitWait = 2,
}

#[derive(Clone, PartialEq, Message)]
pub struct WriteResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TabletServerError>,
    #[prost(message, repeated, tag = "2")]
    pub per_row_errors: Vec<PerRowError>,
    /// When the rows were written; clients remember it for reading their own writes.
    #[prost(fixed64, optional, tag = "3")]
    pub timestamp: Option<u64>,
    #[prost(message, optional, tag = "4")]
    pub resource_metrics: Option<super::ResourceMetrics>,
}

/// Why the row at this place in the request was not written.
#[derive(Clone, PartialEq, Message)]
pub struct PerRowError {
    #[prost(int32, required, tag = "1")]
    pub row_index: i32,
    #[prost(message, required, tag = "2")]
    pub error: AppStatus,
}

/// What stands around rows that are sent from where they lie: a [`WriteRequest`] without `row_operations`,
/// then `before_rows`, the rows, `before_indirect_data` and the indirect data are together a request with
/// them, because the parts of a protobuf message may stand one after the other in any order.
#[derive(Clone, Debug, PartialEq)]
pub struct RowOperationsAround {
    pub before_rows: BytesMut,
    pub before_indirect_data: BytesMut,
}

impl RowOperationsAround {
    pub fn new(rows_len: usize, indirect_data_len: usize) -> Self {
        let field_len = |tag, len: usize| key_len(tag) + encoded_len_varint(len as u64) + len;
        let len = field_len(ROWS, rows_len) + field_len(INDIRECT_DATA, indirect_data_len);
        let (mut before_rows, mut before_indirect_data) = (BytesMut::new(), BytesMut::new());
        put_field(ROW_OPERATIONS, len, &mut before_rows);
        put_field(ROWS, rows_len, &mut before_rows);
        put_field(INDIRECT_DATA, indirect_data_len, &mut before_indirect_data);
        RowOperationsAround { before_rows, before_indirect_data }
    }
}

/// Numbers of the fields of those names.
const ROW_OPERATIONS: u32 = 3;
const ROWS: u32 = 2;
const INDIRECT_DATA: u32 = 3;

fn put_field(tag: u32, len: usize, out: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}
