//! Status codes: what each means to a client, and which of them says what went wrong.

use oribi_session::kv::{self, subdoc};
use oribi_types::{Error, ErrorKind};
use serde_json::{Map, Value, json};

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $wire:literal, $description:literal, $attributes:tt;)*) => {
        /// A status code that this server sends.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Status { $($(#[$doc])* $name = $code),* }

        /// Code, name, description and attributes of each.
        const TABLE: &[(u16, &str, &str, &[&str])] = &[$(($code, $wire, $description, &$attributes)),*];
    };
}

statuses! {
    Success = 0x00, "SUCCESS", "done", ["success"];
    NotFound = 0x01, "KEY_ENOENT", "there is no such document", ["item-only"];
    Exists = 0x02, "KEY_EEXISTS", "the document exists, or its cas is another", ["item-only"];
    TooLarge = 0x03, "E2BIG", "the value is too large", ["item-only", "invalid-input"];
    Invalid = 0x04, "EINVAL", "the request is not valid", ["internal", "invalid-input"];
    NotStored = 0x05, "NOT_STORED", "there is no document to add to", ["item-only"];
    NotNumeric = 0x06, "DELTA_BADVAL", "the document is no number", ["item-only", "invalid-input"];
    NotMyVbucket = 0x07, "NOT_MY_VBUCKET", "another node has the vbucket", ["fetch-config", "invalid-input"];
    NoBucket = 0x08, "NO_BUCKET", "no bucket was selected", ["conn-state-invalidated"];
    Locked = 0x09, "LOCKED", "the document is locked, or by another lock", ["item-locked", "item-only", "retry-now"];
    NotLocked = 0x0e, "NOT_LOCKED", "the document is not locked", ["item-only"];
    AuthError = 0x20, "AUTH_ERROR", "user or password are wrong", ["conn-state-invalidated", "auth"];
    AuthContinue = 0x21, "AUTH_CONTINUE", "authentication goes on", ["special-handling"];
    NoAccess = 0x24, "EACCESS", "there is no such bucket for this user", ["support", "auth"];
    UnknownFrame = 0x80, "UNKNOWN_FRAME_INFO", "a framing extra has no meaning here", ["support"];
    UnknownCommand = 0x81, "UNKNOWN_COMMAND", "the opcode has no meaning here", ["support"];
    NotSupported = 0x83, "NOT_SUPPORTED", "the operation is not offered", ["support"];
    Internal = 0x84, "EINTERNAL", "the server failed", ["internal", "conn-state-invalidated"];
    TemporaryFailure = 0x86, "ETMPFAIL", "the server cannot do it now", ["temp", "retry-later"];
    XattrInvalid = 0x87, "XATTR_EINVAL", "extended attributes are not valid", ["item-only", "invalid-input"];
    UnknownCollection = 0x88, "UNKNOWN_COLLECTION", "there is no such collection", ["item-only"];
    UnknownScope = 0x8c, "UNKNOWN_SCOPE", "there is no such scope", ["item-only"];
    DurabilityInvalidLevel = 0xa0, "DURABILITY_INVALID_LEVEL", "no such level of durability", ["item-only", "invalid-input"];
    SyncWriteAmbiguous = 0xa3, "SYNC_WRITE_AMBIGUOUS", "applied, but not durable within the time given", ["item-only"];
    SubdocPathNotFound = 0xc0, "SUBDOC_PATH_ENOENT", "the path is not in the document", ["subdoc", "item-only"];
    SubdocPathMismatch = 0xc1, "SUBDOC_PATH_MISMATCH", "the path does not fit the document", ["subdoc", "item-only"];
    SubdocPathInvalid = 0xc2, "SUBDOC_PATH_EINVAL", "the path is not valid", ["subdoc", "invalid-input"];
    SubdocPathTooBig = 0xc3, "SUBDOC_PATH_E2BIG", "the path is too long or too deep", ["subdoc", "invalid-input"];
    SubdocTooDeep = 0xc4, "SUBDOC_DOC_E2DEEP", "the document is too deep", ["subdoc", "item-only"];
    SubdocCannotInsert = 0xc5, "SUBDOC_VALUE_CANTINSERT", "the value does not fit its place", ["subdoc", "invalid-input"];
    SubdocNotJson = 0xc6, "SUBDOC_DOC_NOTJSON", "the document is not JSON", ["subdoc", "item-only"];
    SubdocNumberRange = 0xc7, "SUBDOC_NUM_ERANGE", "the number is out of its range", ["subdoc", "item-only"];
    SubdocDeltaInvalid = 0xc8, "SUBDOC_DELTA_EINVAL", "the delta is not valid", ["subdoc", "invalid-input"];
    SubdocPathExists = 0xc9, "SUBDOC_PATH_EEXISTS", "the path exists", ["subdoc", "item-only"];
    SubdocValueTooDeep = 0xca, "SUBDOC_VALUE_E2DEEP", "the value would make the document too deep", ["subdoc", "invalid-input"];
    SubdocInvalidCombination = 0xcb, "SUBDOC_INVALID_COMBO", "the operations cannot go together", ["subdoc", "invalid-input"];
    SubdocMultiFailure = 0xcc, "SUBDOC_MULTI_PATH_FAILURE", "some of the operations failed", ["subdoc", "special-handling"];
    SubdocXattrFlags = 0xce, "SUBDOC_XATTR_INVALID_FLAG_COMBO", "the flags cannot go together", ["subdoc", "invalid-input"];
    SubdocUnknownAttribute = 0xd1, "SUBDOC_XATTR_UNKNOWN_VATTR", "no such virtual attribute", ["subdoc", "invalid-input"];
    SubdocReadOnlyAttribute = 0xd2, "SUBDOC_XATTR_CANT_MODIFY_VATTR", "virtual attributes cannot be changed", ["subdoc", "invalid-input"];
    SubdocXattrOrder = 0xd4, "SUBDOC_INVALID_XATTR_ORDER", "extended attributes come first", ["subdoc", "invalid-input"];
    SubdocNotBinary = 0xd8, "SUBDOC_FIELD_NOT_BINARY_VALUE", "the attribute holds no bytes", ["subdoc", "item-only"];
}

impl Status {
    pub fn of_subdoc(status: subdoc::Status) -> Self {
        use subdoc::Status as Sub;
        match status {
            Sub::Invalid => Status::Invalid,
            Sub::NotSupported => Status::NotSupported,
            Sub::XattrInvalid => Status::XattrInvalid,
            Sub::PathNotFound => Status::SubdocPathNotFound,
            Sub::PathMismatch => Status::SubdocPathMismatch,
            Sub::PathInvalid => Status::SubdocPathInvalid,
            Sub::PathTooBig => Status::SubdocPathTooBig,
            Sub::DocumentTooDeep => Status::SubdocTooDeep,
            Sub::ValueCannotInsert => Status::SubdocCannotInsert,
            Sub::DocumentNotJson => Status::SubdocNotJson,
            Sub::NumberRange => Status::SubdocNumberRange,
            Sub::DeltaInvalid => Status::SubdocDeltaInvalid,
            Sub::PathExists => Status::SubdocPathExists,
            Sub::ValueTooDeep => Status::SubdocValueTooDeep,
            Sub::InvalidCombination => Status::SubdocInvalidCombination,
            Sub::MultiPathFailure => Status::SubdocMultiFailure,
            Sub::XattrInvalidFlags => Status::SubdocXattrFlags,
            Sub::UnknownVirtualXattr => Status::SubdocUnknownAttribute,
            Sub::VirtualXattrReadOnly => Status::SubdocReadOnlyAttribute,
            Sub::XattrOrder => Status::SubdocXattrOrder,
            Sub::NotBinary => Status::SubdocNotBinary,
        }
    }
}

/// The protocol's table of errors.
pub fn of_error(error: &Error) -> Status {
    match error.kind() {
        ErrorKind::Invalid | ErrorKind::NotCovered => Status::Invalid,
        ErrorKind::NotFound => Status::UnknownCollection,
        ErrorKind::AlreadyExists => Status::Exists,
        ErrorKind::Conflict
        | ErrorKind::Retry
        | ErrorKind::WouldBlock
        | ErrorKind::Unavailable
        | ErrorKind::DiskFull => Status::TemporaryFailure,
        ErrorKind::Unauthenticated => Status::AuthError,
        ErrorKind::Forbidden => Status::NoAccess,
        ErrorKind::Corrupt | ErrorKind::Internal => Status::Internal,
        ErrorKind::Unsupported => Status::NotSupported,
        ErrorKind::TooLarge => Status::TooLarge,
    }
}

/// What the outcome of a change is called; what a condition that was not met is called depends on the condition.
pub fn of_outcome(status: &kv::Status, not_stored: Status) -> Status {
    match status {
        kv::Status::Done => Status::Success,
        kv::Status::NotStored => not_stored,
        kv::Status::Exists => Status::Exists,
        kv::Status::NotFound => Status::NotFound,
        kv::Status::NotNumeric => Status::NotNumeric,
        kv::Status::TooLarge => Status::TooLarge,
        kv::Status::NotLocked => Status::NotLocked,
        // Which of the parts it was stands in the answer's value.
        kv::Status::EditFailed(failure) => Status::of_subdoc(failure.status),
        kv::Status::Refused(error) => of_error(error),
    }
}

/// The latest version of the error map that is known here.
pub const ERROR_MAP_VERSION_MAX: u16 = 2;

/// The map of status codes, as JSON, in a version of its format.
pub fn error_map(version: u16) -> String {
    let entry = |(code, name, description, attributes): &(u16, &str, &str, &[&str])| {
        let entry = json!({ "name": name, "desc": description, "attrs": attributes });
        (format!("{code:x}"), entry)
    };
    let errors: Map<String, Value> = TABLE.iter().map(entry).collect();
    json!({ "version": version.min(ERROR_MAP_VERSION_MAX), "revision": 1, "errors": errors }).to_string()
}

/// The body of a refusal that says why.
pub fn context(message: &str) -> String {
    json!({ "error": { "context": message } }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_map_names_each_code_once() {
        let map: Value = serde_json::from_str(&error_map(7)).unwrap();
        assert_eq!(map["version"], 2);
        assert_eq!(map["errors"]["c6"]["name"], "SUBDOC_DOC_NOTJSON");
        assert_eq!(map["errors"]["1"]["attrs"], json!(["item-only"]));
        assert_eq!(map["errors"].as_object().unwrap().len(), TABLE.len());
        assert_eq!(serde_json::from_str::<Value>(&error_map(1)).unwrap()["version"], 1);
    }
}
