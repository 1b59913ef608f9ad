//! Kudu's wire protocol as bytes: frames, negotiation and messages, for both ends of a connection and without
//! I/O.
//!
//! Whoever owns the socket reads into a `BytesMut` and calls [`frame::decode`]; what comes back shares that
//! buffer. A connection begins with [`frame::hello`] and a [`negotiation`]; after it each frame is a call
//! whose header ([`rpc`]) names a [`service`], and whose body is one of the [`messages`], perhaps with
//! sidecars.
//!
//! What the messages carry as bytes is here too: [`row_operations`] and [`blocks`] are rows on their way in and out, made of
//! [`cell`]s; [`predicate`] and [`partition`] are which rows a scan wants and where rows belong, in Kudu's own [`key`]s.
//! [`column`] says which of Oribi's types Kudu's are.
//!
//! The field numbers and codes are those of Apache Kudu 1.18. A message here is named as there, without `PB`.

pub mod blocks;
mod bounded;
pub mod cell;
pub mod column;
pub mod frame;
pub mod key;
pub mod messages;
pub mod negotiation;

pub mod partition;
pub mod predicate;
pub mod row_operations;
pub mod rpc;
pub mod service;
#[cfg(test)]
mod testing;

pub use bounded::{MessageError, STEPS_MAX, decode};
