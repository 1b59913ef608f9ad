//! `kudu.tserver.TabletServerService`: writes and scans.

mod scan;
mod tablet;
mod write;

pub use scan::{
    ChecksumRequest, ChecksumResponse, ColumnRangePredicate, ContinueChecksumRequest, KeyRange,
    NewScanRequest, OrderMode, ROW_FORMAT_COLUMNAR, ROW_FORMAT_PAD_UNIXTIME_MICROS, ReadMode, ScanRequest,
    ScanResponse, ScannerKeepAliveRequest, ScannerKeepAliveResponse, SplitKeyRangeRequest,
    SplitKeyRangeResponse,
};
pub use tablet::{
    ListTabletsRequest, ListTabletsResponse, ResourceMetrics, StatusAndSchema, TabletDataState, TabletState,
    TabletStatus,
};
pub use write::{
    AutoIncrementingColumn, ExternalConsistencyMode, PerRowError, RowOperationsAround, WriteRequest,
    WriteResponse,
};

use crate::messages::common::{AppStatus, StatusCode};
use prost::{Enumeration, Message};

#[derive(Clone, PartialEq, Message)]
pub struct PingRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct PingResponse {}

/// Why a tablet server did not do what it was asked for.
#[derive(Clone, PartialEq, Message)]
pub struct TabletServerError {
    #[prost(enumeration = "TabletServerErrorCode", required, tag = "1")]
    pub code: i32,
    #[prost(message, required, tag = "2")]
    pub status: AppStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum TabletServerErrorCode {
    UnknownError = 1,
    InvalidSchema = 2,
    InvalidRowBlock = 3,
    InvalidMutation = 4,
    MismatchedSchema = 5,
    /// Clients forget where the tablet is and ask the master.
    TabletNotFound = 6,
    /// Clients open a new scanner, if the scan is fault tolerant.
    ScannerExpired = 7,
    InvalidScanSpec = 8,
    InvalidConfig = 9,
    TabletAlreadyExists = 10,
    TabletHasANewerSchema = 11,
    TabletNotRunning = 12,
    InvalidSnapshot = 13,
    InvalidScanCallSeqId = 14,
    NotTheLeader = 15,
    WrongServerUuid = 16,
    CasFailed = 17,
    AlreadyInprogress = 18,
    Throttled = 19,
    TabletFailed = 20,
    NotAuthorized = 21,
    TxnIllegalState = 22,
    TxnOpAlreadyApplied = 23,
    TxnLockedAbort = 24,
    TxnLockedRetryOp = 25,
}

impl TabletServerError {
    pub fn new(code: TabletServerErrorCode, status: StatusCode, message: impl Into<String>) -> Self {
        TabletServerError { code: code.into(), status: AppStatus::new(status, message) }
    }
}

/// What a call to a tablet server may require.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum TabletServerFeature {
    Unknown = 0,
    ColumnPredicates = 1,
    PadUnixtimeMicrosTo16Bytes = 2,
    Quiescing = 3,
    BloomFilterPredicate = 4,
    ColumnarLayout = 5,
    BloomFilterPredicateV2 = 6,
    Array1dColumnType = 7,
}
