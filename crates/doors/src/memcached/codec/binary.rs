//! memcached's binary protocol: bytes to requests, and answers to bytes. No I/O, no state.
//!
//! A connection speaks it if its first byte is [`MAGIC`], which no line of text begins with. Statuses, extras and texts
//! are those of memcached 1.6.18. The body of what is refused is taken away exactly, so that the next request is read
//! where it begins.

use super::{CodecLimits, StoreVerb};
use crate::binary_frame::{self as frame, Header, Packet, Response};

/// The first byte of every request.
pub const MAGIC: u8 = frame::magic::REQUEST;

/// The statuses of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    Success = 0x00,
    NotFound = 0x01,
    Exists = 0x02,
    TooLarge = 0x03,
    InvalidArguments = 0x04,
    NotStored = 0x05,
    NotNumeric = 0x06,
    UnknownCommand = 0x81,
    NotSupported = 0x83,
    Internal = 0x84,
    TemporaryFailure = 0x86,
}

impl Code {
    /// The value of an answer that has no other.
    pub fn text(self) -> &'static str {
        match self {
            Code::Success => "",
            Code::NotFound => "Not found",
            Code::Exists => "Data exists for key.",
            Code::TooLarge => "Too large.",
            Code::InvalidArguments => "Invalid arguments",
            Code::NotStored => "Not stored.",
            Code::NotNumeric => "Non-numeric server-side value for incr or decr",
            Code::UnknownCommand => "Unknown command",
            Code::NotSupported => "Not supported",
            Code::Internal => "Internal error",
            Code::TemporaryFailure => "Temporary failure",
        }
    }
}

/// What stands at the beginning of some bytes.
#[derive(Debug, PartialEq)]
pub enum BinaryFrame<'a> {
    /// Nothing whole yet.
    Incomplete,
    /// The first `len` bytes are a request.
    Request { request: BinaryRequest<'a>, len: usize },
    /// The first `len` bytes, whether they have arrived or not, are no request.
    Refused { header: Header, code: Code, len: u64 },
    /// Nothing that can follow would make sense. The connection ends, after the answer if there is one.
    Fatal { answer: Option<(Header, Code)> },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BinaryRequest<'a> {
    pub header: Header,
    pub command: Command,
    /// Of retrievals: a miss is not answered. Of others: success is not answered. Errors always are.
    pub quiet: bool,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// `exptime`: seconds from now, or Unix time, as everywhere in memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Get {
        with_key: bool,
    },
    /// Get, and set the expiry time. A touch is one `with_value` false.
    GetAndTouch {
        with_key: bool,
        with_value: bool,
        exptime: u32,
    },
    /// `verb` is a set, add, replace, append or prepend; flags and exptime are of the first three.
    Store {
        verb: StoreVerb,
        flags: u32,
        exptime: u32,
    },
    /// Without `exptime`, an absent counter is not made.
    Count {
        down: bool,
        delta: u64,
        initial: u64,
        exptime: Option<u32>,
    },
    Delete,
    FlushAll {
        exptime: u32,
    },
    Noop,
    Version,
    Verbosity,
    /// The key is the topic.
    Stats,
    Quit,
}

/// A counter with this expiry time is not made if it is absent.
const DO_NOT_MAKE: u32 = u32::MAX;

/// Reads the request at the beginning of `input`.
pub fn decode<'a>(input: &'a [u8], limits: &CodecLimits) -> BinaryFrame<'a> {
    if input.first().is_some_and(|magic| *magic != MAGIC) {
        return BinaryFrame::Fatal { answer: None };
    }
    match frame::decode(input, limits.value_bytes_max) {
        frame::Frame::Incomplete => BinaryFrame::Incomplete,
        frame::Frame::Garbage => BinaryFrame::Fatal { answer: None },
        frame::Frame::Malformed { header, .. } => {
            BinaryFrame::Fatal { answer: Some((header, Code::UnknownCommand)) }
        }
        frame::Frame::TooLarge { header, len } => {
            let code = match kind(header.opcode) {
                Some((Kind::Store(_) | Kind::Extend(_), _)) => Code::TooLarge,
                Some(_) => Code::InvalidArguments,
                None => Code::UnknownCommand,
            };
            BinaryFrame::Refused { header, code, len }
        }
        frame::Frame::Packet { packet, len } => match request(&packet, limits) {
            Ok(request) => BinaryFrame::Request { request, len },
            Err(code) => BinaryFrame::Refused { header: packet.header, code, len: len as u64 },
        },
    }
}

/// What an opcode asks for.
enum Kind {
    Get { with_key: bool },
    Touch { with_key: bool, with_value: bool },
    Store(StoreVerb),
    Extend(StoreVerb),
    Count { down: bool },
    Delete,
    Flush,
    Bare(Command),
    Verbosity,
    Stats,
}

/// The kind of an opcode, and whether it is a quiet one. Those of SASL are unknown, which tells a client that there is
/// nothing to authenticate for.
fn kind(opcode: u8) -> Option<(Kind, bool)> {
    let quiet = matches!(opcode, 0x09 | 0x0d | 0x11..=0x1a | 0x1e | 0x24);
    let kind = match opcode {
        0x00 | 0x09 => Kind::Get { with_key: false },
        0x0c | 0x0d => Kind::Get { with_key: true },
        0x01 | 0x11 => Kind::Store(StoreVerb::Set),
        0x02 | 0x12 => Kind::Store(StoreVerb::Add),
        0x03 | 0x13 => Kind::Store(StoreVerb::Replace),
        0x04 | 0x14 => Kind::Delete,
        0x05 | 0x15 => Kind::Count { down: false },
        0x06 | 0x16 => Kind::Count { down: true },
        0x07 | 0x17 => Kind::Bare(Command::Quit),
        0x08 | 0x18 => Kind::Flush,
        0x0a => Kind::Bare(Command::Noop),
        0x0b => Kind::Bare(Command::Version),
        0x0e | 0x19 => Kind::Extend(StoreVerb::Append),
        0x0f | 0x1a => Kind::Extend(StoreVerb::Prepend),
        0x10 => Kind::Stats,
        0x1b => Kind::Verbosity,
        0x1c => Kind::Touch { with_key: false, with_value: false },
        0x1d | 0x1e => Kind::Touch { with_key: false, with_value: true },
        0x23 | 0x24 => Kind::Touch { with_key: true, with_value: true },
        _ => return None,
    };
    Some((kind, quiet))
}

fn request<'a>(packet: &Packet<'a>, limits: &CodecLimits) -> Result<BinaryRequest<'a>, Code> {
    let Packet { header, extras, key, value, .. } = *packet;
    let (kind, quiet) = kind(header.opcode).ok_or(Code::UnknownCommand)?;
    let command = command(&kind, extras).ok_or(Code::InvalidArguments)?;
    let has_parts = match kind {
        Kind::Store(_) | Kind::Extend(_) => !key.is_empty(),
        Kind::Get { .. } | Kind::Touch { .. } | Kind::Count { .. } | Kind::Delete => {
            !key.is_empty() && value.is_empty()
        }
        Kind::Stats => value.is_empty(),
        Kind::Flush | Kind::Bare(_) | Kind::Verbosity => key.is_empty() && value.is_empty(),
    };
    if !has_parts || key.len() > limits.key_bytes_max {
        return Err(Code::InvalidArguments);
    }
    Ok(BinaryRequest { header, command, quiet, key, value })
}

/// `None`: the extras are not those of the opcode.
fn command(kind: &Kind, extras: &[u8]) -> Option<Command> {
    Some(match *kind {
        Kind::Touch { with_key, with_value } => {
            let exptime = u32::from_be_bytes(extras.try_into().ok()?);
            Command::GetAndTouch { with_key, with_value, exptime }
        }
        Kind::Store(verb) => {
            let (flags, exptime) = extras.split_first_chunk()?;
            let exptime = u32::from_be_bytes(exptime.try_into().ok()?);
            Command::Store { verb, flags: u32::from_be_bytes(*flags), exptime }
        }
        Kind::Count { down } => {
            let (delta, rest) = extras.split_first_chunk()?;
            let (initial, exptime) = rest.split_first_chunk()?;
            let exptime = u32::from_be_bytes(exptime.try_into().ok()?);
            Command::Count {
                down,
                delta: u64::from_be_bytes(*delta),
                initial: u64::from_be_bytes(*initial),
                exptime: Some(exptime).filter(|exptime| *exptime != DO_NOT_MAKE),
            }
        }
        Kind::Flush if !extras.is_empty() => {
            Command::FlushAll { exptime: u32::from_be_bytes(extras.try_into().ok()?) }
        }
        Kind::Verbosity if extras.len() == 4 => Command::Verbosity,
        Kind::Verbosity => return None,
        _ if !extras.is_empty() => return None,
        Kind::Get { with_key } => Command::Get { with_key },
        Kind::Extend(verb) => Command::Store { verb, flags: 0, exptime: 0 },
        Kind::Delete => Command::Delete,
        Kind::Flush => Command::FlushAll { exptime: 0 },
        Kind::Bare(command) => command,
        Kind::Stats => Command::Stats,
    })
}

/// Appends an answer that consists of a status, and its text if it is not success.
pub fn status(request: &Header, code: Code, out: &mut Vec<u8>) {
    text(request, code, code.text(), out);
}

/// Appends an answer that consists of a status and a text.
pub fn text(request: &Header, code: Code, text: &str, out: &mut Vec<u8>) {
    Response { value: text.as_bytes(), ..Response::new(request, code as u16) }.write(out);
}

/// Appends a statistic; the one without a name ends them.
pub fn stat(request: &Header, name: &str, value: &str, out: &mut Vec<u8>) {
    let answer = Response::new(request, Code::Success as u16);
    Response { key: name.as_bytes(), value: value.as_bytes(), ..answer }.write(out);
}
