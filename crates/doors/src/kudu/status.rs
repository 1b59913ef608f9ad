//! From our errors to Kudu's: what a client does next depends on them.

use oribi_kudu::messages::common::{AppStatus, StatusCode};
use oribi_kudu::messages::master::{MasterError, MasterErrorCode};
use oribi_kudu::messages::tserver::{TabletServerError, TabletServerErrorCode};
use oribi_types::{Error, ErrorKind};

/// The code of a kind of error.
pub(super) fn code(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid | ErrorKind::TooLarge => StatusCode::InvalidArgument,
        ErrorKind::NotFound | ErrorKind::NotCovered => StatusCode::NotFound,
        ErrorKind::AlreadyExists => StatusCode::AlreadyPresent,
        ErrorKind::Conflict => StatusCode::Aborted,
        ErrorKind::Retry | ErrorKind::WouldBlock | ErrorKind::Unavailable | ErrorKind::DiskFull => {
            StatusCode::ServiceUnavailable
        }
        ErrorKind::Unauthenticated | ErrorKind::Forbidden => StatusCode::NotAuthorized,
        ErrorKind::Unsupported => StatusCode::NotSupported,
        ErrorKind::Corrupt => StatusCode::Corruption,
        ErrorKind::Internal => StatusCode::RuntimeError,
    }
}

pub(super) fn app(error: &Error) -> AppStatus {
    AppStatus::new(code(error.kind()), short(error.message()))
}

/// The longest text of a status.
pub(super) const TEXT_BYTES_MAX: usize = 1024;

/// The beginning of a text, which may quote what a client has sent: names of 50 MiB too.
pub(super) fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// An error of a master about a table.
pub(super) fn master(error: &Error) -> MasterError {
    let code = match error.kind() {
        ErrorKind::NotFound => MasterErrorCode::TableNotFound,
        ErrorKind::AlreadyExists => MasterErrorCode::TableAlreadyPresent,
        ErrorKind::Invalid | ErrorKind::Unsupported => MasterErrorCode::InvalidSchema,
        ErrorKind::Forbidden | ErrorKind::Unauthenticated => MasterErrorCode::NotAuthorized,
        _ => MasterErrorCode::UnknownError,
    };
    MasterError { code: code.into(), status: app(error) }
}

/// An error of a tablet server. `code` is of what the client had wrong, if that is what it was.
pub(super) fn tserver(error: &Error, code: TabletServerErrorCode) -> TabletServerError {
    let code = match error.kind() {
        ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::TooLarge => code,
        ErrorKind::NotFound => TabletServerErrorCode::TabletNotFound,
        ErrorKind::Retry | ErrorKind::WouldBlock | ErrorKind::Unavailable | ErrorKind::DiskFull => {
            TabletServerErrorCode::TabletNotRunning
        }
        ErrorKind::Corrupt => TabletServerErrorCode::TabletFailed,
        _ => TabletServerErrorCode::UnknownError,
    };
    TabletServerError { code: code.into(), status: app(error) }
}
