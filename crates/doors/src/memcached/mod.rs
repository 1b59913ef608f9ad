//! The memcached door.

pub mod codec;
