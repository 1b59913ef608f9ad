//! Kudu's wire protocol as bytes: frames, negotiation and messages, for both ends of a connection and without I/O.
//!
//! Whoever owns the socket reads into a `BytesMut` and calls [`frame::decode`]; what comes back shares that buffer. A
//! connection begins with [`frame::hello`] and a [`negotiation`]; after it each frame is a call whose header
//! ([`rpc`]) names a [`service`], and whose body is one of the [`messages`], perhaps with sidecars.
//!
//! The field numbers and codes are those of Apache Kudu 1.18. A message here is named as there, without `PB`.

mod bounded;
pub mod frame;
pub mod messages;
pub mod negotiation;

pub mod rpc;
pub mod service;

pub use bounded::{MessageError, STEPS_MAX, decode};
