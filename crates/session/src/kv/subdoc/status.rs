//! Why an operation, or a whole request, failed.

/// The status codes of the Couchbase binary protocol that sub-document operations answer with, other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// A malformed request: a path that is too long or missing, a value that is missing or must not be, unknown flags.
    Invalid = 0x04,
    /// Extended attributes other than the virtual ones do not exist here.
    NotSupported = 0x83,
    /// No name of an extended attribute.
    XattrInvalid = 0x87,
    PathNotFound = 0xc0,
    /// The path takes an array for an object, or the other way round, or goes on below a scalar; or what it leads to
    /// is not what the operation is for.
    PathMismatch = 0xc1,
    /// The path's syntax.
    PathInvalid = 0xc2,
    /// The path has too many components.
    PathTooBig = 0xc3,
    /// The document nests deeper than is looked at.
    DocumentTooDeep = 0xc4,
    /// With the value, the document would not be JSON; or a counter would leave the range of an `i64`.
    ValueCannotInsert = 0xc5,
    DocumentNotJson = 0xc6,
    /// The number to count with is beyond an `i64`.
    NumberRange = 0xc7,
    /// The delta of a counter is 0, not an integer, or beyond an `i64`.
    DeltaInvalid = 0xc8,
    PathExists = 0xc9,
    /// With the value, the document would nest deeper than is looked at.
    ValueTooDeep = 0xca,
    /// Operations that do not go together, or too many of them.
    InvalidCombination = 0xcb,
    /// Of several operations, some failed.
    MultiPathFailure = 0xcc,
    /// Flags of extended attributes that do not go together.
    XattrInvalidFlags = 0xce,
    UnknownVirtualXattr = 0xd1,
    /// Virtual attributes cannot be changed.
    VirtualXattrReadOnly = 0xd2,
    /// Operations on extended attributes come first.
    XattrOrder = 0xd4,
    /// The attribute was asked for as binary and is not.
    NotBinary = 0xd8,
}

impl Status {
    /// As it goes over the wire.
    pub fn code(self) -> u16 {
        self as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_codes_of_the_protocol() {
        use Status::*;
        let codes = [
            (Invalid, 0x04),
            (NotSupported, 0x83),
            (XattrInvalid, 0x87),
            (PathNotFound, 0xc0),
            (PathMismatch, 0xc1),
            (PathInvalid, 0xc2),
            (PathTooBig, 0xc3),
            (DocumentTooDeep, 0xc4),
            (ValueCannotInsert, 0xc5),
            (DocumentNotJson, 0xc6),
            (NumberRange, 0xc7),
            (DeltaInvalid, 0xc8),
            (PathExists, 0xc9),
            (ValueTooDeep, 0xca),
            (InvalidCombination, 0xcb),
            (MultiPathFailure, 0xcc),
            (XattrInvalidFlags, 0xce),
            (UnknownVirtualXattr, 0xd1),
            (VirtualXattrReadOnly, 0xd2),
            (XattrOrder, 0xd4),
            (NotBinary, 0xd8),
        ];
        for (status, code) in codes {
            assert_eq!(status.code(), code);
        }
    }
}
