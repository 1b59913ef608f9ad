//! Frames: what a connection carries after its seven bytes of hello.
//!
//! ```text
//! u32, big-endian   how many bytes follow
//! varint            length of the header
//! header            RequestHeader or ResponseHeader
//! varint            length of the body
//! body              message, then sidecars back to back
//! ```
//!
//! A sidecar is a run of bytes beside the message, so that a large result is never copied into one. The
//! header says where each begins, counted from the start of the body: the message ends where the first
//! sidecar begins, and the last sidecar ends with the body.

mod decode;
mod encode;
pub mod hello;
#[cfg(test)]
mod tests;

pub use decode::{Body, Frame, Header, decode};
pub use encode::{encode_error, encode_head, encode_reply, encode_request, sidecar_offsets};

/// How many bytes may follow a frame's length. Both ends of Kudu refuse more (`--rpc_max_message_size`).
pub const FRAME_BYTES_MAX: usize = 50 << 20;

/// How many sidecars a frame may have; Kudu's own limit.
pub const SIDECARS_MAX: usize = 10_000;

/// An offset into a body is an `u32` on the wire.
const _: () = assert!(FRAME_BYTES_MAX <= u32::MAX as usize);

/// Why bytes are no frame, or would not be one. After it nothing can be said of what follows on the
/// connection.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FrameError {
    #[error("connection begins with none of Kudu's hellos")]
    Hello,
    #[error("frame of {len} bytes: more than {max}")]
    TooLarge { len: usize, max: usize },
    #[error("frame ends within its {part}")]
    Truncated { part: &'static str },
    #[error("length of the {part} overflows")]
    Overflow { part: &'static str },
    #[error("frame has {len} bytes after its body")]
    Trailing { len: usize },
    #[error("header: {0}")]
    Header(#[source] crate::MessageError),
    #[error("frame has {count} sidecars: more than {SIDECARS_MAX}")]
    TooManySidecars { count: usize },
    #[error("sidecar {index} begins at {offset}, outside of what is left of the body")]
    Sidecar { index: usize, offset: u32 },
}
