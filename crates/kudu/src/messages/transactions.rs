//! `kudu.transactions.TxnManagerService`, on the master's port: transactions over several tablets.

use crate::messages::common::{AppStatus, StatusCode};
use prost::{Enumeration, Message};

#[derive(Clone, PartialEq, Message)]
pub struct TxnManagerError {
    #[prost(enumeration = "TxnManagerErrorCode", required, tag = "1")]
    pub code: i32,
    #[prost(message, required, tag = "2")]
    pub status: AppStatus,
}

/// There is one code; the status tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum TxnManagerErrorCode {
    UnknownError = 1,
}

impl TxnManagerError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let code = TxnManagerErrorCode::UnknownError.into();
        TxnManagerError { code, status: AppStatus::new(status, message) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct BeginTransactionRequest {}

/// A client needs both the id and the interval.
#[derive(Clone, PartialEq, Message)]
pub struct BeginTransactionResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TxnManagerError>,
    #[prost(int64, optional, tag = "2")]
    pub txn_id: Option<i64>,
    /// A transaction that is not kept alive for so long is aborted.
    #[prost(uint32, optional, tag = "3")]
    pub keepalive_millis: Option<u32>,
}

/// Starts a commit; [`GetTransactionStateRequest`] tells when it is done.
#[derive(Clone, PartialEq, Message)]
pub struct CommitTransactionRequest {
    #[prost(int64, optional, tag = "1")]
    pub txn_id: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CommitTransactionResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TxnManagerError>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AbortTransactionRequest {
    #[prost(int64, optional, tag = "1")]
    pub txn_id: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AbortTransactionResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TxnManagerError>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetTransactionStateRequest {
    #[prost(int64, optional, tag = "1")]
    pub txn_id: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetTransactionStateResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TxnManagerError>,
    #[prost(enumeration = "TxnState", optional, tag = "2")]
    pub state: Option<i32>,
    /// When the rows became visible, if there are any.
    #[prost(fixed64, optional, tag = "3")]
    pub commit_timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeepTransactionAliveRequest {
    #[prost(int64, optional, tag = "1")]
    pub txn_id: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeepTransactionAliveResponse {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TxnManagerError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum TxnState {
    Unknown = 0,
    Open = 1,
    Aborted = 2,
    CommitInProgress = 3,
    Committed = 4,
    AbortInProgress = 5,
    FinalizeInProgress = 6,
}

/// In the column `metadata` of the table `kudu_system.kudu_transactions`, which `kudu txn list` scans.
#[derive(Clone, PartialEq, Message)]
pub struct TxnStatusEntry {
    #[prost(enumeration = "TxnState", optional, tag = "1")]
    pub state: Option<i32>,
    #[prost(string, optional, tag = "2")]
    pub user: Option<String>,
    #[prost(fixed64, optional, tag = "3")]
    pub commit_timestamp: Option<u64>,
    /// Seconds since 1970.
    #[prost(int64, optional, tag = "4")]
    pub start_timestamp: Option<i64>,
    /// Seconds since 1970.
    #[prost(int64, optional, tag = "5")]
    pub last_transition_timestamp: Option<i64>,
}

/// In the same column, for a tablet that the transaction wrote to.
#[derive(Clone, PartialEq, Message)]
pub struct TxnParticipantEntry {
    #[prost(enumeration = "TxnState", optional, tag = "1")]
    pub state: Option<i32>,
}

/// A transaction as one client hands it to another. Servers never see it.
#[derive(Clone, PartialEq, Message)]
pub struct TxnToken {
    #[prost(int64, optional, tag = "1")]
    pub txn_id: Option<i64>,
    #[prost(uint32, optional, tag = "2")]
    pub keepalive_millis: Option<u32>,
    #[prost(bool, optional, tag = "3")]
    pub enable_keepalive: Option<bool>,
}
