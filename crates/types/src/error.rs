//! One error for the whole workspace: a kind that tells the caller what to do, and a sentence that names the thing.

use std::fmt;

/// What the caller can do about an [`Error`]. Each protocol has one table from kind to wire code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request itself is wrong; repeating it will fail again.
    Invalid,
    /// The named thing does not exist.
    NotFound,
    /// No partition of the table takes the row.
    NotCovered,
    /// The named thing exists already.
    AlreadyExists,
    /// Another write came first; read again and decide.
    Conflict,
    /// Nothing was done; the same request may succeed later.
    Retry,
    /// Nothing was done: it would have to wait for others, and was asked on a thread that does not.
    WouldBlock,
    /// The server cannot serve now (shutting down, log stopped).
    Unavailable,
    /// There is no disk space for it; the same request succeeds once there is.
    DiskFull,
    /// Who asks is not known.
    Unauthenticated,
    /// Who asks may not.
    Forbidden,
    /// Valid, but not supported here; the message names it.
    Unsupported,
    /// Stored bytes are not what was written.
    Corrupt,
    /// A limit (memory, statement size, value size) would be exceeded.
    TooLarge,
    /// A fault of ours.
    Internal,
}

/// An error: its kind and a lowercase sentence without a full stop that names the thing.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: Box<str>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into().into_boxed_str() }
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// What is told of a service that is refused because of this error: `DiskFull` says what to do about it, of any other kind
    /// is `Unavailable`.
    #[must_use]
    pub fn into_refusal(self) -> Self {
        let kind = if self.kind == ErrorKind::DiskFull { self.kind } else { ErrorKind::Unavailable };
        Error { kind, ..self }
    }

    /// The same error with `what` in front of its message: `what: message`.
    #[must_use]
    pub fn context(self, what: impl fmt::Display) -> Self {
        Error::new(self.kind, format!("{what}: {}", self.message))
    }
}

macro_rules! constructors {
    ($($name:ident $kind:ident),* $(,)?) => {
        impl Error {
            $(pub fn $name(message: impl Into<String>) -> Self {
                Error::new(ErrorKind::$kind, message)
            })*
        }
    };
}

constructors! {
    invalid Invalid,
    not_found NotFound,
    not_covered NotCovered,
    already_exists AlreadyExists,
    conflict Conflict,
    retry Retry,
    unavailable Unavailable,
    disk_full DiskFull,
    unsupported Unsupported,
    corrupt Corrupt,
    too_large TooLarge,
    internal Internal,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        // Ours, on its way through the seam for files.
        if let Some(ours) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            return ours.clone();
        }
        let kind = match error.kind() {
            Io::NotFound => ErrorKind::NotFound,
            Io::AlreadyExists => ErrorKind::AlreadyExists,
            Io::StorageFull | Io::QuotaExceeded => ErrorKind::DiskFull,
            Io::ReadOnlyFilesystem => ErrorKind::Unavailable,
            _ => ErrorKind::Internal,
        };
        Error::new(kind, error.to_string())
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        Error::internal(error.to_string())
    }
}
