//! From the bytes of a connection to the parts of a frame, which share the memory of what was read.

use super::{FrameError, SIDECARS_MAX};
use crate::rpc::{RequestHeader, ResponseHeader};
use crate::{MessageError, bounded};
use bytes::{Buf, Bytes, BytesMut};
use prost::Message;

/// One frame, whole, its header not decoded yet. It keeps the buffer alive that it was read into.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub header: Bytes,
    /// The message and the sidecars.
    pub body: Bytes,
}

/// The body of a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Body {
    pub message: Bytes,
    pub sidecars: Vec<Bytes>,
}

/// What the headers of requests and of responses have in common.
pub trait Header: Message + Default {
    fn call_id(&self) -> i32;

    /// Where each sidecar begins in the body.
    fn sidecar_offsets(&self) -> &[u32];
}

impl Header for RequestHeader {
    fn call_id(&self) -> i32 {
        self.call_id
    }

    fn sidecar_offsets(&self) -> &[u32] {
        &self.sidecar_offsets
    }
}

impl Header for ResponseHeader {
    fn call_id(&self) -> i32 {
        self.call_id
    }

    fn sidecar_offsets(&self) -> &[u32] {
        &self.sidecar_offsets
    }
}

/// A header has as many offsets as there may be sidecars, a key and a value each, and a few fields more.
const HEADER_STEPS_MAX: usize = 2 * SIDECARS_MAX + 1000;

/// Takes the first frame from `input`; `None`, and nothing taken, while it is not whole.
///
/// `len_max` bounds what may follow the length: [`FRAME_BYTES_MAX`](super::FRAME_BYTES_MAX), or less during a
/// negotiation. A length is refused as soon as it is read; nothing is reserved for one that is believed.
pub fn decode(input: &mut BytesMut, len_max: usize) -> Result<Option<Frame>, FrameError> {
    let Some(prefix) = input.first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_be_bytes(*prefix) as usize;
    if len > len_max {
        return Err(FrameError::TooLarge { len, max: len_max });
    }
    if input.len() - prefix.len() < len {
        return Ok(None);
    }
    input.advance(4);
    let mut rest = input.split_to(len).freeze();
    let header = delimited(&mut rest, "header")?;
    let body = delimited(&mut rest, "body")?;
    match rest.len() {
        0 => Ok(Some(Frame { header, body })),
        len => Err(FrameError::Trailing { len }),
    }
}

impl Frame {
    /// Decodes the header and parts the body at the offsets in it.
    pub fn open<H: Header>(self) -> Result<(H, Body), FrameError> {
        let header: H = bounded::decode(self.header, HEADER_STEPS_MAX).map_err(FrameError::Header)?;
        let body = Body::part(self.body, header.sidecar_offsets())?;
        Ok((header, body))
    }
}

impl Body {
    /// Decodes the message in at most `steps_max` steps: see [`decode`](crate::decode).
    pub fn decode<M: Message + Default>(&self, steps_max: usize) -> Result<M, MessageError> {
        bounded::decode(self.message.clone(), steps_max)
    }

    /// The sidecar that a field of the message names; `None` where there is none.
    pub fn sidecar(&self, index: i32) -> Option<&Bytes> {
        self.sidecars.get(usize::try_from(index).ok()?)
    }

    fn part(mut rest: Bytes, offsets: &[u32]) -> Result<Body, FrameError> {
        if offsets.len() > SIDECARS_MAX {
            return Err(FrameError::TooManySidecars { count: offsets.len() });
        }
        let len = rest.len();
        let mut sidecars = Vec::with_capacity(offsets.len());
        for (index, &offset) in offsets.iter().enumerate().rev() {
            let at = offset as usize;
            if at > rest.len() {
                // Beyond the body, or beyond where the next sidecar begins.
                let (index, offset) =
                    if at > len { (index, offset) } else { (index + 1, offsets[index + 1]) };
                return Err(FrameError::Sidecar { index, offset });
            }
            sidecars.push(rest.split_off(at));
        }
        sidecars.reverse();
        Ok(Body { message: rest, sidecars })
    }
}

/// Takes a length and that many bytes from the front of `rest`.
fn delimited(rest: &mut Bytes, part: &'static str) -> Result<Bytes, FrameError> {
    let len = varint(rest, part)? as usize;
    match len <= rest.len() {
        true => Ok(rest.split_to(len)),
        false => Err(FrameError::Truncated { part }),
    }
}

/// A length is an `u32` of at most five bytes, seven bits each, the lowest first.
fn varint(rest: &mut Bytes, part: &'static str) -> Result<u32, FrameError> {
    let mut value = 0u64;
    for shift in (0..35).step_by(7) {
        let byte = rest.try_get_u8().map_err(|_| FrameError::Truncated { part })?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(value).map_err(|_| FrameError::Overflow { part });
        }
    }
    Err(FrameError::Overflow { part })
}
