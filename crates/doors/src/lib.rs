//! The servers of wire protocols. Each door is a codec (bytes to frames, no I/O) and a handler (frame to session); no
//! door knows another.

pub mod memcached;
