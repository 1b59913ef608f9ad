//! From Kudu's outcomes to the workspace's error: the one table.

use oribi_kudu::messages::common::{AppStatus, StatusCode};
use oribi_kudu::rpc::{ErrorCode, ErrorStatus};
use oribi_types::{Error, ErrorKind};

/// The error of a status that is not `Ok`.
pub(crate) fn of_app(status: &AppStatus) -> Error {
    let kind = match status.code() {
        StatusCode::NotFound => ErrorKind::NotFound,
        StatusCode::AlreadyPresent => ErrorKind::AlreadyExists,
        StatusCode::InvalidArgument | StatusCode::Immutable | StatusCode::ConfigurationError => {
            ErrorKind::Invalid
        }
        StatusCode::NotSupported => ErrorKind::Unsupported,
        StatusCode::NotAuthorized => ErrorKind::Forbidden,
        StatusCode::Corruption => ErrorKind::Corrupt,
        StatusCode::Aborted | StatusCode::IllegalState => ErrorKind::Conflict,
        StatusCode::ServiceUnavailable | StatusCode::TimedOut | StatusCode::NetworkError => {
            ErrorKind::Unavailable
        }
        StatusCode::UnknownError
        | StatusCode::Ok
        | StatusCode::IoError
        | StatusCode::RuntimeError
        | StatusCode::RemoteError
        | StatusCode::Uninitialized
        | StatusCode::Incomplete
        | StatusCode::EndOfFile
        | StatusCode::Cancelled => ErrorKind::Internal,
    };
    Error::new(kind, status.message.clone().unwrap_or_else(|| format!("{:?}", status.code())))
}

/// The error of a call that was refused as such.
pub(crate) fn of_call(status: &ErrorStatus) -> Error {
    let kind = match status.code() {
        _ if !status.unsupported_feature_flags.is_empty() => ErrorKind::Unsupported,
        ErrorCode::NoSuchMethod | ErrorCode::NoSuchService => ErrorKind::Unsupported,
        ErrorCode::ServerTooBusy | ErrorCode::Unavailable | ErrorCode::FatalServerShuttingDown => {
            ErrorKind::Unavailable
        }
        ErrorCode::InvalidRequest | ErrorCode::FatalDeserializingRequest => ErrorKind::Invalid,
        ErrorCode::FatalUnauthorized
        | ErrorCode::FatalInvalidAuthenticationToken
        | ErrorCode::InvalidAuthorizationToken
        | ErrorCode::FatalInvalidJwt => ErrorKind::Forbidden,
        ErrorCode::FatalUnknown
        | ErrorCode::Application
        | ErrorCode::RequestStale
        | ErrorCode::FatalInvalidRpcHeader
        | ErrorCode::FatalVersionMismatch => ErrorKind::Internal,
    };
    Error::new(kind, status.message.clone())
}

/// Whether the same call may be sent again, to the same server.
pub(crate) fn is_busy(status: &ErrorStatus) -> bool {
    matches!(
        status.code(),
        ErrorCode::ServerTooBusy | ErrorCode::Unavailable | ErrorCode::FatalServerShuttingDown
    )
}
