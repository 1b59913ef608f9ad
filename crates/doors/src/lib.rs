//! The doors: one wire protocol each, all onto the same session API.
//!
//! A door is a codec (bytes to frames and back, without I/O) and a handler (frame to session call). Doors never
//! import each other; what they share stands here, and in `oribi-net`, which has the sockets, threads and loops.

pub mod binary_frame;
pub mod couchbase;
pub mod http;
pub mod kudu;
pub mod memcached;
pub mod postgres;
mod store;
