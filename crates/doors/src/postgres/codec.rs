//! Frames of the PostgreSQL protocol (version 3.0) as a client sends them: bytes in, borrowed messages out, no I/O.
//!
//! The decoders of `pgwire` trust the counts and lengths inside a frame and panic on a truncated one, so what comes
//! from outside is decoded here; what we send is encoded by `pgwire`, data rows apart. A frame is taken out of the
//! buffer only when it is whole and its length is below the limit, so a huge length reserves nothing.

use bytes::{Buf, Bytes, BytesMut};
use smallvec::SmallVec;

/// A startup packet is small: nobody is known yet who could ask for more (PostgreSQL's limit).
pub const STARTUP_BYTES_MAX: usize = 10_000;

/// Messages that carry names at most are small too (PostgreSQL's limit).
const SMALL_BYTES_MAX: usize = 10_000;

/// What the first packet of a connection asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Startup {
    Ssl,
    GssEncryption,
    Cancel {
        pid: i32,
        secret: i32,
    },
    /// Protocol `major.minor` with the parameters in order.
    Session {
        major: u16,
        minor: u16,
        parameters: Vec<(String, String)>,
    },
}

/// A message of a running connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    Query(&'a str),
    Parse { name: &'a str, sql: &'a str, types: Vec<u32> },
    Bind(Bind<'a>),
    Describe(Target<'a>),
    Execute { portal: &'a str, rows_max: usize },
    Close(Target<'a>),
    Flush,
    Sync,
    FunctionCall,
}

/// What a message is by its type alone: whether it is read at all, and what follows if it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Answered by itself, with `ReadyForQuery` at the end whether it failed or not.
    Whole,
    /// One of a series up to `Sync`: behind one that fails, the others are skipped.
    OfSeries,
    /// Ends a series, and what is skipped.
    Sync,
    /// Of a `COPY … FROM STDIN`. Outside of one it is what is still under way of one that failed.
    OfCopy,
    Terminate,
}

/// The tag of the message that ends a series.
pub const SYNC: u8 = b'S';

impl Part {
    pub fn of(tag: u8) -> Self {
        match tag {
            b'Q' | b'F' => Part::Whole,
            SYNC => Part::Sync,
            b'd' | b'c' | b'f' => Part::OfCopy,
            b'X' => Part::Terminate,
            _ => Part::OfSeries,
        }
    }
}

/// Up to so many parameters are cut out of a message without an allocation.
const VALUES_INLINE: usize = 16;

#[derive(Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    pub portal: &'a str,
    pub statement: &'a str,
    pub parameter_formats: SmallVec<[i16; VALUES_INLINE]>,
    /// `None` is null.
    pub parameters: SmallVec<[Option<&'a [u8]>; VALUES_INLINE]>,
    pub result_formats: SmallVec<[i16; VALUES_INLINE]>,
}

/// What `Describe` and `Close` name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    Statement(&'a str),
    Portal(&'a str),
}

/// Bytes that are not the protocol.
#[derive(Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The frames' boundaries are lost: the connection must be closed.
    Framing(String),
    /// One frame is wrong; the next one is where it should be.
    Frame(String),
    /// Text in a frame is not UTF-8.
    Text,
}

/// Takes the next startup packet out of `input`; `None` until it is whole.
pub fn take_startup(input: &mut BytesMut) -> Result<Option<Startup>, Malformed> {
    let Some(length) = peek_length(input, 0, STARTUP_BYTES_MAX)? else { return Ok(None) };
    if input.len() < length {
        return Ok(None);
    }
    let packet = input.split_to(length);
    let mut body = Fields { rest: &packet[4..] };
    startup(&mut body).map(Some).map_err(|_| Malformed::Framing("invalid startup packet".to_owned()))
}

fn startup(body: &mut Fields<'_>) -> Result<Startup, Malformed> {
    const CANCEL: i32 = 80_877_102;
    const SSL: i32 = 80_877_103;
    const GSS_ENCRYPTION: i32 = 80_877_104;
    let code = body.i32()?;
    let packet = match code {
        SSL => Startup::Ssl,
        GSS_ENCRYPTION => Startup::GssEncryption,
        CANCEL => Startup::Cancel { pid: body.i32()?, secret: body.i32()? },
        version => {
            let mut parameters = Vec::new();
            loop {
                let name = body.string()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name.to_owned(), body.string()?.to_owned()));
            }
            Startup::Session { major: (version >> 16) as u16, minor: version as u16, parameters }
        }
    };
    body.end()?;
    Ok(packet)
}

/// Takes the next frame, its type and its body, out of `input`; `None` until it is whole.
pub fn take_frame(input: &mut BytesMut, bytes_max: usize) -> Result<Option<(u8, Bytes)>, Malformed> {
    let Some(&tag) = input.first() else { return Ok(None) };
    let bytes_max = match tag {
        b'Q' | b'P' | b'B' | b'F' | b'd' => bytes_max,
        b'D' | b'E' | b'C' | b'H' | b'S' | b'X' | b'c' | b'f' => bytes_max.min(SMALL_BYTES_MAX),
        _ => return Err(Malformed::Framing(format!("invalid frontend message type {tag}"))),
    };
    let Some(length) = peek_length(input, 1, bytes_max)? else { return Ok(None) };
    if input.len() < 1 + length {
        return Ok(None);
    }
    input.advance(5);
    Ok(Some((tag, input.split_to(length - 4).freeze())))
}

/// The length that stands `offset` bytes into `input`; it counts itself.
fn peek_length(input: &[u8], offset: usize, bytes_max: usize) -> Result<Option<usize>, Malformed> {
    let Some(mut field) = input.get(offset..offset + 4) else { return Ok(None) };
    let length = field.get_i32();
    match usize::try_from(length) {
        Ok(length) if (4..=bytes_max).contains(&length) => Ok(Some(length)),
        _ => Err(Malformed::Framing(format!(
            "invalid message length {length}; the limit is {bytes_max} bytes"
        ))),
    }
}

/// Decodes the body of a frame of type `tag`, which is neither of a `COPY` nor the last.
pub fn decode(tag: u8, body: &[u8]) -> Result<Message<'_>, Malformed> {
    let mut fields = Fields { rest: body };
    let message = match tag {
        b'Q' => Message::Query(fields.string()?),
        b'P' => {
            let (name, sql) = (fields.string()?, fields.string()?);
            Message::Parse { name, sql, types: fields.list(4, |f| f.i32().map(|oid| oid as u32))? }
        }
        b'B' => Message::Bind(Bind {
            portal: fields.string()?,
            statement: fields.string()?,
            parameter_formats: fields.list(2, Fields::i16)?,
            parameters: fields.list(4, Fields::value)?,
            result_formats: fields.list(2, Fields::i16)?,
        }),
        b'D' => Message::Describe(fields.target()?),
        b'E' => {
            let portal = fields.string()?;
            // Zero and, as PostgreSQL has it, less than zero mean all rows.
            Message::Execute { portal, rows_max: usize::try_from(fields.i32()?).unwrap_or(0) }
        }
        b'C' => Message::Close(fields.target()?),
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'F' => {
            fields.i32()?;
            let _formats: SmallVec<[i16; VALUES_INLINE]> = fields.list(2, Fields::i16)?;
            let _arguments: SmallVec<[_; VALUES_INLINE]> = fields.list(4, Fields::value)?;
            fields.i16()?;
            Message::FunctionCall
        }
        _ => return Err(Malformed::Framing(format!("invalid frontend message type {tag}"))),
    };
    fields.end()?;
    Ok(message)
}

/// Why a client gives up its `COPY`, by the body of its `CopyFail`.
pub fn copy_failure(body: &[u8]) -> Result<&str, Malformed> {
    Fields { rest: body }.string()
}

/// Reads fields from the front of a frame's body.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (field, rest) =
            self.rest.split_at_checked(n).ok_or_else(|| frame("insufficient data left in message"))?;
        self.rest = rest;
        Ok(field)
    }

    fn i16(&mut self) -> Result<i16, Malformed> {
        Ok(self.bytes(2)?.get_i16())
    }

    fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(self.bytes(4)?.get_i32())
    }

    fn string(&mut self) -> Result<&'a str, Malformed> {
        let end = memchr::memchr(0, self.rest).ok_or_else(|| frame("invalid string in message"))?;
        let text = self.bytes(end)?;
        self.bytes(1)?;
        std::str::from_utf8(text).map_err(|_| Malformed::Text)
    }

    /// A value with its length in front; -1 is null.
    fn value(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| frame("negative length in message"))?;
                self.bytes(length).map(Some)
            }
        }
    }

    /// A count and as many items, of at least `item_bytes_min` each.
    fn list<T, C: FromIterator<T>>(
        &mut self,
        item_bytes_min: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<C, Malformed> {
        let count = usize::from(self.i16()? as u16);
        if count * item_bytes_min > self.rest.len() {
            return Err(frame("insufficient data left in message"));
        }
        (0..count).map(|_| item(self)).collect()
    }

    fn target(&mut self) -> Result<Target<'a>, Malformed> {
        match self.bytes(1)?[0] {
            b'S' => Ok(Target::Statement(self.string()?)),
            b'P' => Ok(Target::Portal(self.string()?)),
            other => Err(frame(format!("invalid target {other}"))),
        }
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(frame("invalid message format")) }
    }
}

fn frame(what: impl Into<String>) -> Malformed {
    Malformed::Frame(what.into())
}

#[cfg(test)]
mod tests;
