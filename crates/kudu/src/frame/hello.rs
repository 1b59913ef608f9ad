//! The first bytes of a connection, from the client; they are not answered.

use super::FrameError;
use bytes::{Buf, BytesMut};

/// The magic, version 9, and two bytes (service class, authentication) that mean nothing any more.
pub const HELLO: [u8; 7] = *b"hrpc\x09\0\0";

/// How many bytes of it must be right.
const CHECKED_BYTES: usize = 5;

/// Takes the hello from the front of `input`; returns `false` while it may become one with more bytes.
///
/// # Errors
/// [`FrameError::Hello`] at the first byte that is wrong.
pub fn decode(input: &mut BytesMut) -> Result<bool, FrameError> {
    let seen = input.len().min(CHECKED_BYTES);
    if input[..seen] != HELLO[..seen] {
        return Err(FrameError::Hello);
    }
    let is_whole = input.len() >= HELLO.len();
    if is_whole {
        input.advance(HELLO.len());
    }
    Ok(is_whole)
}
