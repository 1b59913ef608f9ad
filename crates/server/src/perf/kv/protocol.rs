//! What the load sends and how it finds the end of an answer.

use super::couchbase::vbucket;
use oribi_types::{Error, Result};
use std::ops::Range;

/// A dialect of memcached, or Couchbase's of the binary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// `get`, `set`
    Text,
    /// `mg`, `ms`
    Meta,
    /// GET, SET
    Binary,
    /// GETQ, SETQ, and a NOOP that ends the batch: only hits and failures are answered
    BinaryQuiet,
    /// GET, SET, with the vbucket of the key, after SASL PLAIN and SELECT_BUCKET
    Couchbase,
}

/// One answer of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Hit,
    Miss,
    Stored,
    Error,
    /// To the NOOP of a quiet batch.
    End,
}

pub(super) const HEADER_BYTES: usize = 24;
const REQUEST: u8 = 0x80;
pub(super) const RESPONSE: u8 = 0x81;
const GET: u8 = 0x00;
const SET: u8 = 0x01;
const GETQ: u8 = 0x09;
const NOOP: u8 = 0x0a;
const SETQ: u8 = 0x11;
/// Flags and expiry of a SET.
const SET_EXTRAS: [u8; 8] = [0; 8];

impl Protocol {
    pub fn get<const N: usize>(self, key: &[u8; N], out: &mut Vec<u8>) {
        match self {
            Protocol::Text => push(out, [b"get ", key, b"\r\n"]),
            Protocol::Meta => push(out, [b"mg ", key, b" v\r\n"]),
            Protocol::Binary => push(out, [&request(GET, N, 0, 0), key]),
            Protocol::BinaryQuiet => push(out, [&request(GETQ, N, 0, 0), key]),
            Protocol::Couchbase => push(out, [&routed(request(GET, N, 0, 0), key), key]),
        }
    }

    pub fn set<const N: usize>(self, key: &[u8; N], value: &[u8], out: &mut Vec<u8>) {
        let binary = |opcode| request(opcode, N, SET_EXTRAS.len(), value.len());
        let mut digits = itoa::Buffer::new();
        match self {
            Protocol::Text => {
                let length = digits.format(value.len()).as_bytes();
                push(out, [b"set ", key, b" 0 0 ", length, b"\r\n", value, b"\r\n"]);
            }
            Protocol::Meta => {
                let length = digits.format(value.len()).as_bytes();
                push(out, [b"ms ", key, b" ", length, b"\r\n", value, b"\r\n"]);
            }
            Protocol::Binary => push(out, [&binary(SET), &SET_EXTRAS, key, value]),
            Protocol::BinaryQuiet => push(out, [&binary(SETQ), &SET_EXTRAS, key, value]),
            Protocol::Couchbase => push(out, [&routed(binary(SET), key), &SET_EXTRAS, key, value]),
        }
    }

    /// Ends a batch.
    pub fn finish(self, out: &mut Vec<u8>) {
        if self.is_quiet() {
            push(out, [&request(NOOP, 0, 0, 0)]);
        }
    }

    /// Whether what succeeded without news is not answered, so that a batch ends with [`Answer::End`].
    pub fn is_quiet(self) -> bool {
        self == Protocol::BinaryQuiet
    }

    /// The first answer of `bytes` and its length, or `None` if it is not whole.
    ///
    /// # Errors
    /// `Invalid` for what is no answer of this protocol.
    pub fn answer(self, bytes: &[u8]) -> Result<Option<(Answer, usize)>> {
        match self {
            Protocol::Text => Ok(text_answer(bytes)),
            Protocol::Meta => Ok(meta_answer(bytes)),
            _ if bytes.first().is_some_and(|magic| *magic != RESPONSE) => {
                Err(Error::invalid("the server does not speak the binary protocol"))
            }
            _ => Ok(binary_answer(bytes)),
        }
    }
}

/// Inlined, as most parts have a length that is known where they are pushed, and are no call of memcpy then.
#[inline(always)]
fn push<const N: usize>(out: &mut Vec<u8>, parts: [&[u8]; N]) {
    out.reserve(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// The header of a request in the binary protocol; lengths in bytes.
pub(super) fn request(opcode: u8, key: usize, extras: usize, value: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0] = REQUEST;
    header[1] = opcode;
    header[2..4].copy_from_slice(&(key as u16).to_be_bytes());
    header[4] = extras as u8;
    header[8..12].copy_from_slice(&((key + extras + value) as u32).to_be_bytes());
    header
}

/// The header with the vbucket of `key`.
fn routed(mut header: [u8; HEADER_BYTES], key: &[u8]) -> [u8; HEADER_BYTES] {
    header[6..8].copy_from_slice(&vbucket(key).to_be_bytes());
    header
}

/// The first line, without its end, and where the next begins.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr::memchr(b'\n', bytes)?;
    Some((bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]), end + 1))
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// `VALUE key flags length`, the value and `END`; `END` for a miss; `STORED`; an error.
fn text_answer(bytes: &[u8]) -> Option<(Answer, usize)> {
    let (first, next) = line(bytes)?;
    if first.starts_with(b"VALUE ") {
        let length = first.rsplit(|b| *b == b' ').next().and_then(number);
        let Some(length) = length else { return Some((Answer::Error, next)) };
        let end = next + length + b"\r\nEND\r\n".len();
        return (bytes.len() >= end).then_some((Answer::Hit, end));
    }
    let answer = match first {
        b"STORED" => Answer::Stored,
        b"END" => Answer::Miss,
        _ => Answer::Error,
    };
    Some((answer, next))
}

/// `VA length` and the value; `EN` for a miss; `HD` for a set; an error.
fn meta_answer(bytes: &[u8]) -> Option<(Answer, usize)> {
    let (first, next) = line(bytes)?;
    if let Some(words) = first.strip_prefix(b"VA ") {
        let length = words.split(|b| *b == b' ').next().and_then(number);
        let Some(length) = length else { return Some((Answer::Error, next)) };
        let end = next + length + b"\r\n".len();
        return (bytes.len() >= end).then_some((Answer::Hit, end));
    }
    let answer = match first {
        b"HD" => Answer::Stored,
        b"EN" => Answer::Miss,
        _ => Answer::Error,
    };
    Some((answer, next))
}

fn binary_answer(bytes: &[u8]) -> Option<(Answer, usize)> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let field = |range: Range<usize>| header[range].iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
    let end = HEADER_BYTES + field(8..12);
    if bytes.len() < end {
        return None;
    }
    let answer = match (header[1], field(6..8)) {
        (GET | GETQ, 0) => Answer::Hit,
        (GET | GETQ, 1) => Answer::Miss,
        (SET | SETQ, 0) => Answer::Stored,
        (NOOP, 0) => Answer::End,
        _ => Answer::Error,
    };
    Some((answer, end))
}
