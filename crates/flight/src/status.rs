//! Errors as gRPC has them: a code, and a message that begins with the SQLSTATE.

use oribi_session::sql::SqlError;
use oribi_types::ErrorKind;
use tonic::{Code, Status};

/// A message travels in the headers that end a call, of which many clients take 8 KiB, and may be three times as long there.
const BYTES_MAX: usize = 2 << 10;

/// The code of an error whose SQLSTATE has none of its own.
fn code_of(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::NotCovered => Code::FailedPrecondition,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::Conflict | ErrorKind::Retry | ErrorKind::WouldBlock => Code::Aborted,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::DiskFull | ErrorKind::TooLarge => Code::ResourceExhausted,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        ErrorKind::Forbidden => Code::PermissionDenied,
        ErrorKind::Unsupported => Code::Unimplemented,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::Internal => Code::Internal,
    }
}

/// An error as a client is told it: `42P01: table "t" does not exist (hint)`.
pub fn status(error: &SqlError) -> Status {
    let sqlstate = error.sqlstate();
    metrics::counter!("oribi_flight_errors_total", "sqlstate" => sqlstate).increment(1);
    let code = match sqlstate {
        "57014" => Code::Cancelled,
        "53200" | "53300" => Code::ResourceExhausted,
        "25P02" => Code::FailedPrecondition,
        _ => code_of(error.error.kind()),
    };
    let mut message = format!("{sqlstate}: {}", error.error.message());
    if let Some(position) = error.position {
        message.push_str(&format!(" (at character {position})"));
    }
    if let Some(hint) = &error.hint {
        message.push_str(&format!(" ({hint})"));
    }
    message.truncate(message.floor_char_boundary(BYTES_MAX));
    Status::new(code, message)
}

pub fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::Invalid, message)
}

/// Of a client that does not keep to the protocol.
pub fn violation(message: impl Into<String>) -> SqlError {
    invalid(message).with_sqlstate("08P01")
}

pub fn unsupported(what: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::Unsupported, format!("{} is not supported", what.into()))
}

/// Something of which there are as many as there may be.
pub fn too_many(what: &str, limit: usize) -> SqlError {
    let message = format!("too many {what}: {limit} are open, which is the limit");
    SqlError::new(ErrorKind::TooLarge, message).with_sqlstate("53300")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_the_sqlstate_and_no_more_than_it_reads() {
        let error =
            SqlError::new(ErrorKind::NotFound, "table \"t\" does not exist").at(15).with_hint("make it");
        let told = status(&error);
        assert_eq!(told.code(), Code::NotFound);
        assert_eq!(told.message(), "42P01: table \"t\" does not exist (at character 15) (make it)");
        let long = status(&invalid("ß".repeat(BYTES_MAX)));
        assert!(long.message().len() <= BYTES_MAX && long.message().starts_with("22023: ß"));
        let cancelled = SqlError::new(ErrorKind::Unavailable, "cancelled").with_sqlstate("57014");
        assert_eq!(status(&cancelled).code(), Code::Cancelled);
    }
}
