//! Errors on their way between nodes: gRPC's code stands for the kind.

use datafusion::common::DataFusionError;
use oribi_types::{Error, ErrorKind};
use tonic::{Code, Status};

/// Kinds that nodes tell apart; others are `Internal` on the other side.
const KINDS: [(ErrorKind, Code); 7] = [
    (ErrorKind::Invalid, Code::InvalidArgument),
    (ErrorKind::NotFound, Code::NotFound),
    (ErrorKind::Conflict, Code::Aborted),
    (ErrorKind::Corrupt, Code::DataLoss),
    (ErrorKind::TooLarge, Code::ResourceExhausted),
    (ErrorKind::Unavailable, Code::Unavailable),
    (ErrorKind::Unsupported, Code::Unimplemented),
];

pub(crate) fn to_status(error: &Error) -> Status {
    let code = KINDS.iter().find(|(kind, _)| *kind == error.kind()).map_or(Code::Internal, |(_, code)| *code);
    Status::new(code, error.message())
}

pub(crate) fn from_status(status: &Status) -> Error {
    let kind = match status.code() {
        Code::Unauthenticated => ErrorKind::Unauthenticated,
        Code::FailedPrecondition => ErrorKind::Forbidden,
        // Of a connection that broke: nobody here says these.
        Code::Unknown | Code::Cancelled | Code::DeadlineExceeded => {
            return Error::unavailable(format!("another node is gone: {}", status.message()));
        }
        code => KINDS.iter().find(|(_, of)| *of == code).map_or(ErrorKind::Internal, |(kind, _)| *kind),
    };
    Error::new(kind, status.message())
}

/// Of a task that failed. What is of its own kind keeps it; others are told.
pub(crate) fn of_failure(error: &DataFusionError) -> Status {
    match error.find_root() {
        DataFusionError::External(error) => match error.downcast_ref::<Error>() {
            Some(error) => to_status(error),
            None => Status::internal(error.to_string()),
        },
        DataFusionError::ResourcesExhausted(why) => Status::resource_exhausted(why),
        error => Status::internal(error.strip_backtrace()),
    }
}

pub(crate) fn failed(status: &Status) -> DataFusionError {
    DataFusionError::External(Box::new(from_status(status)))
}

/// As clients are told of it: datafusion-distributed hands on what a connection said.
pub(crate) fn for_client(error: DataFusionError) -> DataFusionError {
    let status = match error.find_root() {
        DataFusionError::External(root) => root.downcast_ref::<Status>(),
        _ => None,
    };
    match status {
        Some(status) => failed(status),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_broke_is_a_node_that_is_gone() {
        let broke = DataFusionError::External(Box::new(Status::unknown("h2 protocol error")));
        let error = for_client(broke.context("rows of a stage"));
        let DataFusionError::External(error) = error else { panic!("{error}") };
        let error = error.downcast::<Error>().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(error.message(), "another node is gone: h2 protocol error");
        let other = for_client(DataFusionError::ResourcesExhausted("no room".to_owned()));
        assert!(matches!(other, DataFusionError::ResourcesExhausted(_)), "{other}");
    }
}
