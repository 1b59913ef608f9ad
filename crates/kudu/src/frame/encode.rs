//! From messages to frames. Only what is small is written here: sidecars, and rows that lie ready, are sent
//! from where they are, right after the head of their frame.

use super::{FRAME_BYTES_MAX, FrameError, SIDECARS_MAX};
use crate::rpc::{ErrorStatus, RequestHeader, ResponseHeader};
use bytes::{BufMut, Bytes, BytesMut};
use prost::{Message, encode_length_delimiter, length_delimiter_len};

/// Appends an answer to `out`, but for its sidecars: those follow, in order and without anything between
/// them.
///
/// # Errors
/// [`FrameError::TooLarge`] or [`FrameError::TooManySidecars`], and nothing is appended.
pub fn encode_reply(
    call_id: i32,
    message: &impl Message,
    sidecars: &[Bytes],
    out: &mut BytesMut,
) -> Result<(), FrameError> {
    let offsets = sidecar_offsets(message.encoded_len(), sidecars)?;
    let header = ResponseHeader { call_id, is_error: None, sidecar_offsets: offsets };
    encode_head(&header, message, sidecars.iter().map(Bytes::len).sum(), out)
}

/// Appends the answer to a call that failed.
///
/// # Errors
/// [`FrameError::TooLarge`], for a message of that size.
pub fn encode_error(call_id: i32, status: &ErrorStatus, out: &mut BytesMut) -> Result<(), FrameError> {
    let header = ResponseHeader { call_id, is_error: Some(true), sidecar_offsets: Vec::new() };
    encode_head(&header, status, 0, out)
}

/// Appends a request, but for the last `tail_len` bytes of its body, which follow: the rest of the message
/// (as [`RowOperationsAround`](crate::messages::tserver::RowOperationsAround) makes it), then the sidecars
/// that the header tells of.
///
/// # Errors
/// [`FrameError::TooLarge`], and nothing is appended.
pub fn encode_request(
    header: &RequestHeader,
    message: &impl Message,
    tail_len: usize,
    out: &mut BytesMut,
) -> Result<(), FrameError> {
    encode_head(header, message, tail_len, out)
}

/// Why a head fits where it is written.
const ROOM: &str = "there is as much room as the lengths add up to";

/// Appends a frame but for the last `tail_len` bytes of its body.
///
/// # Errors
/// [`FrameError::TooLarge`], and nothing is appended.
pub fn encode_head(
    header: &impl Message,
    message: &impl Message,
    tail_len: usize,
    out: &mut BytesMut,
) -> Result<(), FrameError> {
    let (header_len, message_len) = (header.encoded_len(), message.encoded_len());
    let body_len = message_len.saturating_add(tail_len);
    let lengths_len = length_delimiter_len(header_len) + length_delimiter_len(body_len);
    let len = lengths_len.saturating_add(header_len).saturating_add(body_len);
    if len > FRAME_BYTES_MAX {
        return Err(FrameError::TooLarge { len, max: FRAME_BYTES_MAX });
    }
    let start = out.len();
    out.resize(start + 4 + len - tail_len, 0);
    // A slice does not ask at each byte whether it must grow.
    let mut rest = &mut out[start..];
    rest.put_u32(u32::try_from(len).expect("a frame's length was checked"));
    header.encode_length_delimited(&mut rest).expect(ROOM);
    encode_length_delimiter(body_len, &mut rest).expect(ROOM);
    message.encode(&mut rest).expect(ROOM);
    debug_assert!(rest.is_empty(), "{ROOM}");
    Ok(())
}

/// Where each of the sidecars begins that follow a message of `message_len` bytes.
///
/// # Errors
/// [`FrameError::TooLarge`] or [`FrameError::TooManySidecars`].
pub fn sidecar_offsets(message_len: usize, sidecars: &[Bytes]) -> Result<Vec<u32>, FrameError> {
    if sidecars.len() > SIDECARS_MAX {
        return Err(FrameError::TooManySidecars { count: sidecars.len() });
    }
    let mut at = message_len;
    let mut offset_of = |sidecar: &Bytes| {
        let offset = u32::try_from(at).map_err(|_| FrameError::TooLarge { len: at, max: FRAME_BYTES_MAX });
        at += sidecar.len();
        offset
    };
    sidecars.iter().map(&mut offset_of).collect()
}
