//! What became of a request, or of one row.

use prost::{Enumeration, Message};

/// The outcome of an operation as Kudu's own `Status` has it.
#[derive(Clone, PartialEq, Message)]
pub struct AppStatus {
    #[prost(enumeration = "StatusCode", required, tag = "1")]
    pub code: i32,
    #[prost(string, optional, tag = "2")]
    pub message: Option<String>,
    /// The `errno`, if the system was the cause.
    #[prost(int32, optional, tag = "4")]
    pub posix_code: Option<i32>,
}

/// Kinds of outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum StatusCode {
    UnknownError = 999,
    Ok = 0,
    NotFound = 1,
    Corruption = 2,
    NotSupported = 3,
    InvalidArgument = 4,
    IoError = 5,
    AlreadyPresent = 6,
    RuntimeError = 7,
    NetworkError = 8,
    IllegalState = 9,
    NotAuthorized = 10,
    Aborted = 11,
    RemoteError = 12,
    ServiceUnavailable = 13,
    TimedOut = 14,
    Uninitialized = 15,
    ConfigurationError = 16,
    Incomplete = 17,
    EndOfFile = 18,
    Cancelled = 19,
    /// A column that is immutable was to be updated.
    Immutable = 20,
}

impl AppStatus {
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        AppStatus { code: code.into(), message: Some(message.into()), posix_code: None }
    }
}
