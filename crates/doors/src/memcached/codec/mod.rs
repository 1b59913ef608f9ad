//! memcached's text protocol: bytes to requests, and answers to bytes. No I/O, no state. The binary protocol stands in
//! [`binary`].
//!
//! A request borrows keys and values from the bytes it was read from. The rules, down to which malformed line gets
//! which answer, are those of memcached 1.6.18; its `doc/protocol.txt` is the specification. What a client declares
//! costs nothing: [`decode`] looks only at bytes that are there.

pub mod answer;
pub mod binary;
mod classic;
mod meta;

pub use classic::{Keys, StoreVerb};
pub use meta::{Meta, MetaFlags, MetaVerb};

/// What the decoder refuses to go beyond, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct CodecLimits {
    pub key_bytes_max: usize,
    pub value_bytes_max: usize,
}

/// The longest line, in bytes, and what it may have at least besides a key …
const LINE_BYTES_MAX: usize = 2048;
const LINE_BYTES_BESIDES_KEY: usize = 1024;
/// … but for that of a retrieval command, which takes any number of keys.
const RETRIEVAL_LINE_BYTES_MAX: usize = 1 << 20;

impl CodecLimits {
    fn line_bytes_max(&self) -> usize {
        LINE_BYTES_MAX.max(self.key_bytes_max + LINE_BYTES_BESIDES_KEY)
    }
}

/// What stands at the beginning of some bytes.
#[derive(Debug, PartialEq)]
pub enum Frame<'a> {
    /// Nothing whole yet.
    Incomplete,
    /// The first `len` bytes are a request.
    Request { request: Request<'a>, len: usize },
    /// The first `len` bytes, and `skip` more whether they have arrived or not, are no request; `answer`, if there is
    /// one, is the line to send.
    Refused { answer: Option<&'static str>, len: usize, skip: u64 },
    /// Nothing that can follow would make sense. The connection ends, after the line if there is one.
    Fatal { answer: Option<&'static str> },
}

/// A request. `noreply`: no answer is wanted.
#[derive(Debug, PartialEq)]
pub enum Request<'a> {
    Get {
        keys: Keys<'a>,
        with_cas: bool,
    },
    /// Get, and set the expiry time.
    GetAndTouch {
        keys: Keys<'a>,
        with_cas: bool,
        exptime: i64,
    },
    Store {
        verb: StoreVerb,
        key: &'a [u8],
        flags: u32,
        exptime: i64,
        value: &'a [u8],
        noreply: bool,
    },
    Count {
        key: &'a [u8],
        down: bool,
        delta: u64,
        noreply: bool,
    },
    Touch {
        key: &'a [u8],
        exptime: i64,
        noreply: bool,
    },
    Delete {
        key: &'a [u8],
        noreply: bool,
    },
    FlushAll {
        exptime: i64,
        noreply: bool,
    },
    Meta(Meta<'a>),
    /// `mn`: a mark in the stream of answers.
    Mark,
    Stats {
        topic: &'a [u8],
    },
    Version,
    Verbosity {
        noreply: bool,
    },
    Quit,
}

pub const ERROR: &str = "ERROR";
pub(super) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
pub(super) const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk";
pub const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
const LINE_TOO_LONG: &str = "CLIENT_ERROR line is too long";
const RETRIEVAL_LINE_TOO_LONG: &str =
    "CLIENT_ERROR line is too long: that of a retrieval command has 1048576 bytes at most";
pub(super) const INVALID_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";

/// Reads the request at the beginning of `input`, of which so much was `searched` in vain for the end of a line: a line that
/// drips in is searched once. Until something is made of it, that is the same request's.
pub fn decode<'a>(input: &'a [u8], searched: &mut usize, limits: &CodecLimits) -> Frame<'a> {
    let end = memchr::memchr(b'\n', &input[*searched..]).map(|at| *searched + at);
    *searched = end.unwrap_or(input.len());
    if let Some(fault) = too_long(&input[..*searched], limits) {
        return fault;
    }
    let Some(end) = end else { return Frame::Incomplete };
    let line = &input[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = Words::new(line);
    let body = Body { input, start: end + 1, limits };
    let command = words.next().unwrap_or_default();
    match command {
        [b'm', verb] => meta::decode(*verb, words, body),
        _ => classic::decode(command, words, body),
    }
}

/// What to make of a line that is too long, whether or not it ends somewhere.
#[inline]
fn too_long(line: &[u8], limits: &CodecLimits) -> Option<Frame<'static>> {
    if line.len() <= LINE_BYTES_MAX || line.len() <= limits.line_bytes_max() {
        return None;
    }
    let command = Words::new(&line[..LINE_BYTES_MAX]).next().unwrap_or_default();
    let answer = match command {
        b"get" | b"gets" | b"gat" | b"gats" if line.len() <= RETRIEVAL_LINE_BYTES_MAX => return None,
        b"get" | b"gets" | b"gat" | b"gats" => RETRIEVAL_LINE_TOO_LONG,
        _ => LINE_TOO_LONG,
    };
    Some(Frame::Fatal { answer: Some(answer) })
}

/// The words of a line, separated by spaces.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    fn new(line: &'a [u8]) -> Self {
        Words { rest: line }
    }

    /// The rest of a line of `N` words or one more.
    fn take<const N: usize>(mut self) -> Option<WordsAndLast<'a, N>> {
        let mut words = [&[][..]; N];
        for word in &mut words {
            *word = self.next()?;
        }
        let last = self.next();
        if self.next().is_some() { None } else { Some((words, last)) }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|b| *b != b' ')?;
        let rest = &self.rest[start..];
        let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        self.rest = &rest[end..];
        Some(&rest[..end])
    }
}

/// The words that a line must have, and one that it may have.
type WordsAndLast<'a, const N: usize> = ([&'a [u8]; N], Option<&'a [u8]>);

/// What follows a command line.
#[derive(Clone, Copy)]
struct Body<'a, 'l> {
    input: &'a [u8],
    /// Where the line ends.
    start: usize,
    limits: &'l CodecLimits,
}

impl<'a> Body<'a, '_> {
    /// The line by itself is this request.
    fn request(self, request: Request<'a>) -> Frame<'a> {
        Frame::Request { request, len: self.start }
    }

    /// The line is answered with an error; what follows is read as the next line.
    fn refused(self, answer: &'static str) -> Frame<'a> {
        Frame::Refused { answer: Some(answer), len: self.start, skip: 0 }
    }

    /// The line is answered with an error; the value of `len` bytes behind it is skipped.
    fn skipped(self, answer: Option<&'static str>, len: u64) -> Frame<'a> {
        Frame::Refused { answer, len: self.start, skip: len + 2 }
    }

    /// The line and the value of `len` bytes behind it are a request. `quiet`: no answer is wanted.
    fn with_value(self, len: u64, quiet: bool, request: impl FnOnce(&'a [u8]) -> Request<'a>) -> Frame<'a> {
        let answer = |line| if quiet { None } else { Some(line) };
        if len > self.limits.value_bytes_max as u64 {
            return self.skipped(answer(TOO_LARGE), len);
        }
        let value_end = self.start + len as usize;
        let Some(line_end) = self.input.get(value_end..value_end + 2) else { return Frame::Incomplete };
        if line_end != b"\r\n" {
            return Frame::Refused { answer: answer(BAD_CHUNK), len: value_end + 2, skip: 0 };
        }
        Frame::Request { request: request(&self.input[self.start..value_end]), len: value_end + 2 }
    }
}

/// A decimal number.
fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// The declared length of a value, as far as memcached reads one.
fn value_len(word: &[u8]) -> Option<u64> {
    const MAX: i64 = i32::MAX as i64 - 2;
    number::<i64>(word).filter(|len| (0..=MAX).contains(len)).map(|len| len as u64)
}

#[cfg(test)]
mod tests;
