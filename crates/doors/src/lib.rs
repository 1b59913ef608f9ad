//! The doors: one wire protocol each, all onto the same session API.
//!
//! A door is a codec (bytes to frames and back, without I/O) and a handler (frame to session call). Doors never
//! import each other; what they share stands here.

pub mod binary_frame;
pub mod bind;
pub mod couchbase;
pub mod http;
pub mod kudu;
pub mod memcached;
pub mod postgres;
pub mod runtime;
pub mod tls;
