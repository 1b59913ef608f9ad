//! Errors on the PostgreSQL wire: one table from kind to SQLSTATE, and what the connection does after each.

use super::codec::Malformed;
use oribi_session::sql::SqlError;
use oribi_types::{Error, ErrorKind};
use pgwire::error::ErrorInfo;
use std::time::Duration;

/// Why a message was not answered as asked.
#[derive(Debug)]
pub enum Fault {
    /// The statement failed; the session goes on.
    Statement(SqlError),
    /// The session ends after the client has been told.
    Fatal(SqlError),
    /// The client has gone; nobody can be told.
    Gone,
}

impl From<SqlError> for Fault {
    fn from(error: SqlError) -> Self {
        Fault::Statement(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Statement(error.into())
    }
}

impl From<std::io::Error> for Fault {
    fn from(_: std::io::Error) -> Self {
        Fault::Gone
    }
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Framing(what) => Fault::Fatal(protocol_violation(what)),
            Malformed::Frame(what) => Fault::Statement(protocol_violation(what)),
            Malformed::Text => Fault::Statement(with_state(
                ErrorKind::Invalid,
                "22021",
                "invalid byte sequence for encoding \"UTF8\"",
            )),
        }
    }
}

/// The most columns of a result or a `COPY`, as PostgreSQL has it: messages count them with 16 bits.
const COLUMNS_MAX: usize = 1664;

/// How many columns there are, as messages state it.
///
/// # Errors
/// `TooLarge` (54011) beyond [`COLUMNS_MAX`].
#[inline]
pub fn column_count(columns: usize) -> Result<i16, SqlError> {
    if columns <= COLUMNS_MAX { Ok(columns as i16) } else { Err(too_many_columns()) }
}

#[cold]
fn too_many_columns() -> SqlError {
    with_state(ErrorKind::TooLarge, "54011", format!("target lists can have at most {COLUMNS_MAX} entries"))
}

/// Of a client that has left its block alone for too long.
pub fn idle_in_transaction() -> SqlError {
    with_state(ErrorKind::Unavailable, "25P03", "terminating connection due to idle-in-transaction timeout")
}

/// The fields of an `ErrorResponse` or `NoticeResponse`.
pub fn info(severity: &str, error: &SqlError) -> ErrorInfo {
    // A message frame may be as large as the client's own statement, which an error may quote.
    const BYTES_MAX: usize = 8 << 10;
    let cut = |text: &str| text[..text.floor_char_boundary(BYTES_MAX)].to_owned();
    let mut info =
        ErrorInfo::new(severity.to_owned(), error.sqlstate().to_owned(), cut(error.error.message()));
    info.severity_nonlocalized = Some(severity.to_owned());
    info.hint = error.hint.as_deref().map(cut);
    info.position = error.position.map(|p| p.to_string());
    info
}

fn with_state(kind: ErrorKind, sqlstate: &'static str, message: impl Into<String>) -> SqlError {
    SqlError::new(kind, message).with_sqlstate(sqlstate)
}

pub fn protocol_violation(what: impl Into<String>) -> SqlError {
    with_state(ErrorKind::Invalid, "08P01", what)
}

pub fn aborted_block() -> SqlError {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    with_state(ErrorKind::Invalid, "25P02", message)
}

pub fn canceled() -> SqlError {
    with_state(ErrorKind::Unavailable, "57014", "canceling statement due to user request")
}

pub fn shutting_down() -> SqlError {
    with_state(ErrorKind::Unavailable, "57P01", "terminating connection: the server is shutting down")
}

pub fn too_many_connections(connections_max: usize) -> SqlError {
    with_state(
        ErrorKind::Unavailable,
        "53300",
        format!("too many connections: {connections_max} are open, which is the limit"),
    )
}

pub fn too_many_names(what: &str, limit: usize) -> SqlError {
    with_state(ErrorKind::TooLarge, "54000", format!("too many {what}: {limit} are open, which is the limit"))
}

pub fn stalled(silence_max: Duration) -> SqlError {
    let message = format!(
        "terminating connection: nothing of a message that had begun came for {} seconds",
        silence_max.as_secs()
    );
    with_state(ErrorKind::Unavailable, "57P05", message)
}

/// After [`PostgresLimits::portal_silence_max`](super::PostgresLimits).
pub fn portal_ended() -> SqlError {
    let message =
        "the portal was closed: it had rows that nobody asked for, and other statements needed their memory";
    with_state(ErrorKind::Unavailable, "53200", message)
}

/// The limit is [`PostgresLimits::kept_bytes_max`](super::PostgresLimits).
pub fn connection_keeps_too_much(limit: usize) -> SqlError {
    let message = format!(
        "the prepared statements and portals that this connection keeps would take too much memory: {limit} bytes \
         are the limit"
    );
    with_state(ErrorKind::TooLarge, "54000", message).with_hint(KEPT_HINT)
}

/// The limit is [`PostgresLimits::kept_bytes_max_of_all`](super::PostgresLimits).
pub fn connections_keep_too_much(limit: usize) -> SqlError {
    let message = format!(
        "the prepared statements and portals that all connections keep would take too much memory: {limit} bytes \
         are the limit"
    );
    with_state(ErrorKind::TooLarge, "53200", message).with_hint(KEPT_HINT)
}

const KEPT_HINT: &str = "close those that are not used any more; unnamed ones do not count";

pub fn no_statement(name: &str) -> SqlError {
    with_state(ErrorKind::NotFound, "26000", format!("prepared statement \"{name}\" does not exist"))
}

pub fn duplicate_statement(name: &str) -> SqlError {
    with_state(ErrorKind::AlreadyExists, "42P05", format!("prepared statement \"{name}\" already exists"))
}

pub fn no_portal(name: &str) -> SqlError {
    with_state(ErrorKind::NotFound, "34000", format!("portal \"{name}\" does not exist"))
}

pub fn duplicate_portal(name: &str) -> SqlError {
    with_state(ErrorKind::AlreadyExists, "42P03", format!("portal \"{name}\" already exists"))
}

pub fn portal_done(name: &str) -> SqlError {
    with_state(ErrorKind::Invalid, "55000", format!("portal \"{name}\" cannot be run anymore"))
}

pub fn bound_before() -> SqlError {
    let message = "executing a portal that was bound before search_path or timezone changed is not supported";
    SqlError::new(ErrorKind::Unsupported, message).with_hint("bind it again")
}

pub fn several_statements() -> SqlError {
    with_state(ErrorKind::Invalid, "42601", "cannot insert multiple commands into a prepared statement")
}

pub fn invalid_text(error: Error) -> SqlError {
    SqlError::from(error).with_sqlstate("22P02")
}

pub fn bad_copy(message: impl Into<String>) -> SqlError {
    with_state(ErrorKind::Invalid, "22P04", message)
}
