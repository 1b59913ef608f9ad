//! Calls: one connection per server, on which they are multiplexed.
//!
//! A call costs one allocation for its head, one for the channel of its answer and its place in the map of those under way.
//! What was queued on a connection while it was busy goes out in one writev(2), payloads from where they lie; all answers
//! that one read(2) brought are handed out before the next.

mod attempts;
mod connection;
mod negotiate;
mod pool;
mod request_ids;
mod stream;
mod tls;

pub(crate) use attempts::Attempts;
pub(crate) use connection::{Call, CallError, Connection, Payload};
pub(crate) use negotiate::Introduction;
pub(crate) use pool::{Connections, parse_address};
pub(crate) use request_ids::{RequestIds, Sequence};
pub use tls::Tls;

use oribi_types::Error;

fn corrupt(error: impl std::error::Error) -> Error {
    Error::corrupt(error.to_string())
}
