//! The headers of calls, and what stands in place of an answer when a call failed as such.

use bytes::Bytes;
use prost::{Enumeration, Message};

/// The call id of every frame of a negotiation.
pub const NEGOTIATION_CALL_ID: i32 = -33;
/// The call id of the frame that ends a negotiation; it is not answered.
pub const CONNECTION_CONTEXT_CALL_ID: i32 = -3;
/// The call id that no call has.
pub const INVALID_CALL_ID: i32 = -2;

/// In front of a request. A client counts its call ids from 0 on each connection; answers come in any order.
#[derive(Clone, PartialEq, Message)]
pub struct RequestHeader {
    #[prost(int32, required, tag = "3")]
    pub call_id: i32,
    #[prost(message, optional, tag = "6")]
    pub remote_method: Option<RemoteMethod>,
    /// How long the client waits; absent or 0 is for ever.
    #[prost(uint32, optional, tag = "10")]
    pub timeout_millis: Option<u32>,
    /// A server that does not know one of these answers with [`ErrorStatus::unsupported`].
    #[prost(uint32, repeated, packed = "false", tag = "11")]
    pub required_feature_flags: Vec<u32>,
    #[prost(message, optional, tag = "15")]
    pub request_id: Option<RequestId>,
    /// Where each sidecar begins in the body.
    #[prost(uint32, repeated, packed = "false", tag = "16")]
    pub sidecar_offsets: Vec<u32>,
}

/// What is called. Both names are text; as bytes they are neither copied nor checked before they are looked
/// up.
#[derive(Clone, PartialEq, Message)]
pub struct RemoteMethod {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub service_name: Bytes,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub method_name: Bytes,
}

/// Names a call so that a server executes it once, however often a client repeats it.
#[derive(Clone, PartialEq, Message)]
pub struct RequestId {
    /// Text that is the client's own, of 32 characters as a rule.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub client_id: Bytes,
    #[prost(int64, required, tag = "2")]
    pub seq_no: i64,
    /// The client has the answers to all before this one, and will not ask for them again.
    #[prost(int64, required, tag = "3")]
    pub first_incomplete_seq_no: i64,
    #[prost(int64, required, tag = "4")]
    pub attempt_no: i64,
}

/// In front of an answer.
#[derive(Clone, PartialEq, Message)]
pub struct ResponseHeader {
    #[prost(int32, required, tag = "1")]
    pub call_id: i32,
    /// The body is an [`ErrorStatus`].
    #[prost(bool, optional, tag = "2")]
    pub is_error: Option<bool>,
    /// Where each sidecar begins in the body.
    #[prost(uint32, repeated, packed = "false", tag = "3")]
    pub sidecar_offsets: Vec<u32>,
}

/// The body of an answer that is an error of the call itself. What a service says of its data (a table that
/// is absent, a row that is refused) stands in the service's own response instead.
#[derive(Clone, PartialEq, Message)]
pub struct ErrorStatus {
    #[prost(string, required, tag = "1")]
    pub message: String,
    #[prost(enumeration = "ErrorCode", optional, tag = "2")]
    pub code: Option<i32>,
    #[prost(uint32, repeated, packed = "false", tag = "3")]
    pub unsupported_feature_flags: Vec<u32>,
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ErrorCode {
    FatalUnknown = 10,
    Application = 1,
    NoSuchMethod = 2,
    NoSuchService = 3,
    /// Clients repeat the same call later.
    ServerTooBusy = 4,
    InvalidRequest = 5,
    /// The answer to this request id has been forgotten.
    RequestStale = 6,
    Unavailable = 7,
    FatalServerShuttingDown = 11,
    FatalInvalidRpcHeader = 12,
    FatalDeserializingRequest = 13,
    FatalVersionMismatch = 14,
    FatalUnauthorized = 15,
    FatalInvalidAuthenticationToken = 16,
    InvalidAuthorizationToken = 17,
    FatalInvalidJwt = 18,
}

impl ErrorCode {
    /// Whether a client drops the connection for it.
    pub fn is_fatal(self) -> bool {
        !matches!(
            self,
            ErrorCode::Application
                | ErrorCode::NoSuchMethod
                | ErrorCode::NoSuchService
                | ErrorCode::ServerTooBusy
                | ErrorCode::InvalidRequest
                | ErrorCode::RequestStale
                | ErrorCode::Unavailable
                | ErrorCode::InvalidAuthorizationToken
        )
    }
}

impl ErrorStatus {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        ErrorStatus {
            message: message.into(),
            code: Some(code.into()),
            unsupported_feature_flags: Vec::new(),
        }
    }

    /// The answer to a call that requires features which the server does not have. Clients probe for features
    /// with it.
    pub fn unsupported(flags: Vec<u32>) -> Self {
        let status = ErrorStatus::new(ErrorCode::InvalidRequest, "unsupported feature flags");
        ErrorStatus { unsupported_feature_flags: flags, ..status }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_as_on_the_wire() {
        let header = RequestHeader {
            call_id: 2,
            remote_method: Some(RemoteMethod {
                service_name: Bytes::from_static(b"s"),
                method_name: Bytes::from_static(b"m"),
            }),
            timeout_millis: Some(30_000),
            required_feature_flags: vec![1, 3],
            request_id: Some(RequestId {
                client_id: Bytes::from_static(b"c"),
                seq_no: 1,
                first_incomplete_seq_no: 0,
                attempt_no: 1,
            }),
            sidecar_offsets: vec![300],
        };
        let bytes = b"\x18\x02\x32\x06\x0a\x01s\x12\x01m\x50\xb0\xea\x01\x58\x01\x58\x03\
            \x7a\x09\x0a\x01c\x10\x01\x18\x00\x20\x01\x80\x01\xac\x02";
        assert_eq!(header.encode_to_vec(), bytes);
        assert_eq!(RequestHeader::decode(&bytes[..]), Ok(header));
    }

    #[test]
    fn repeated_numbers_are_read_packed_too() {
        let packed = b"\x18\x00\x5a\x02\x01\x03\x82\x01\x03\x05\xac\x02";
        let header = RequestHeader::decode(&packed[..]).unwrap();
        assert_eq!(header.required_feature_flags, [1, 3]);
        assert_eq!(header.sidecar_offsets, [5, 300]);
    }

    #[test]
    fn a_negative_call_id_takes_ten_bytes() {
        let header = ResponseHeader { call_id: NEGOTIATION_CALL_ID, ..ResponseHeader::default() };
        assert_eq!(header.encode_to_vec(), b"\x08\xdf\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    }

    #[test]
    fn unsupported_features_are_listed() {
        let status = ErrorStatus::unsupported(vec![8, 9]);
        assert_eq!(status.encode_to_vec(), b"\x0a\x19unsupported feature flags\x10\x05\x18\x08\x18\x09");
        assert!(!status.code().is_fatal());
        assert!(ErrorCode::FatalUnauthorized.is_fatal());
    }
}
