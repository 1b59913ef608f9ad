//! The meta commands: `mg`, `ms`, `md`, `ma`, `me`, `mn`.

use super::{BAD_FORMAT, Body, ERROR, Frame, Request, Words, number, value_len};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    Get,
    Set,
    Delete,
    Count,
    Debug,
}

/// A meta command.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta<'a> {
    pub verb: MetaVerb,
    /// Owned only if it was sent as base64.
    pub key: Cow<'a, [u8]>,
    pub flags: MetaFlags<'a>,
    /// Of `ms`.
    pub value: &'a [u8],
}

/// The flags of a meta command, in one form for all verbs: each heeds those it knows.
#[derive(Clone, Debug, PartialEq)]
pub struct MetaFlags<'a> {
    words: Words<'a>,
    /// `b`: keys are sent as base64.
    pub base64: bool,
    /// `q`: the ordinary answer is not wanted.
    pub quiet: bool,
    /// `v`: the value is wanted.
    pub value: bool,
    /// `I`: mark as stale.
    pub invalidate: bool,
    /// `M`.
    pub mode: Option<u8>,
    /// `F`.
    pub client_flags: u32,
    /// `C`: compare.
    pub cas: Option<u64>,
    /// `T`: set the expiry time.
    pub ttl: Option<i64>,
    /// `N`: make what is absent, with this expiry time.
    pub vivify: Option<i64>,
    /// `R`: offer to refresh what expires within this time.
    pub refresh: Option<i64>,
    /// `J`: what a counter that is made begins with.
    pub initial: u64,
    /// `D`: what is added to a counter.
    pub delta: u64,
}

impl<'a> MetaFlags<'a> {
    /// The flags as they were sent: those that ask for something are answered in this order.
    pub fn words(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.words
    }
}

/// The most flags, from memcached's limit of 20 tokens for the line, of which one is the end of the line.
const FLAGS_MAX: usize = 17;
const OPAQUE_BYTES_MAX: usize = 32;

const INVALID_FLAG: &str = "CLIENT_ERROR invalid flag";
const DUPLICATE_FLAG: &str = "CLIENT_ERROR duplicate flag";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";

pub(super) fn decode<'a>(verb: u8, words: Words<'a>, body: Body<'a, '_>) -> Frame<'a> {
    let verb = match verb {
        b'n' => return body.request(Request::Mark),
        b'g' => MetaVerb::Get,
        b's' => MetaVerb::Set,
        b'd' => MetaVerb::Delete,
        b'a' => MetaVerb::Count,
        b'e' => MetaVerb::Debug,
        _ => return body.refused(ERROR),
    };
    let mut rest = words;
    let Some(key) = rest.next() else {
        return body.refused(if verb == MetaVerb::Debug { BAD_FORMAT } else { ERROR });
    };
    if key.len() > body.limits.key_bytes_max {
        return body.refused(BAD_FORMAT);
    }
    match verb {
        MetaVerb::Set => decode_set(key, rest, body),
        MetaVerb::Debug => decode_debug(key, rest, body),
        MetaVerb::Get | MetaVerb::Delete | MetaVerb::Count => decode_line(verb, key, rest, body),
    }
}

fn decode_line<'a>(verb: MetaVerb, key: &'a [u8], words: Words<'a>, body: Body<'a, '_>) -> Frame<'a> {
    if words.count() > FLAGS_MAX {
        return body.refused(match verb {
            MetaVerb::Get => "CLIENT_ERROR options flags are too long",
            _ => "CLIENT_ERROR options flags too long",
        });
    }
    let faults_of_flags = |fault| match verb {
        MetaVerb::Get => fault,
        _ => "CLIENT_ERROR invalid or duplicate flag",
    };
    let flags = match parse_flags(words) {
        Ok(flags) => flags,
        Err(fault) => return body.refused(faults_of_flags(fault)),
    };
    let Some(key) = decode_key(key, flags.base64) else {
        return body.refused(faults_of_flags("CLIENT_ERROR error decoding key"));
    };
    if let Err(fault) = check_opaque(words) {
        return body.refused(fault);
    }
    if verb == MetaVerb::Count && !matches!(flags.mode, None | Some(b'I' | b'+' | b'D' | b'-')) {
        return body.refused("CLIENT_ERROR invalid mode for ma M token");
    }
    body.request(Request::Meta(Meta { verb, key, flags, value: &[] }))
}

fn decode_set<'a>(key: &'a [u8], words: Words<'a>, body: Body<'a, '_>) -> Frame<'a> {
    let mut words = words;
    let Some(len) = words.next() else { return body.refused(BAD_FORMAT) };
    if words.count() > FLAGS_MAX - 1 {
        return body.refused("CLIENT_ERROR options flags too long");
    }
    let Some(len) = value_len(len) else { return body.refused(BAD_FORMAT) };
    let refused = |fault| body.skipped(Some(fault), len);
    let flags = match parse_flags(words) {
        Ok(flags) => flags,
        Err(fault) => return refused(fault),
    };
    let Some(key) = decode_key(key, flags.base64) else { return refused("CLIENT_ERROR error decoding key") };
    if !matches!(flags.mode, None | Some(b'E' | b'A' | b'P' | b'R' | b'S')) {
        return refused("CLIENT_ERROR invalid mode for ms M token");
    }
    if let Err(fault) = check_opaque(words) {
        return refused(fault);
    }
    // Errors are answered even if the client wants nothing else.
    let quiet = false;
    body.with_value(len, quiet, |value| Request::Meta(Meta { verb: MetaVerb::Set, key, flags, value }))
}

/// `me key [b]`: whatever else follows is ignored.
fn decode_debug<'a>(key: &'a [u8], words: Words<'a>, body: Body<'a, '_>) -> Frame<'a> {
    let first = words.into_iter().next();
    let flags = MetaFlags { base64: first == Some(b"b"), ..no_flags(Words::new(b"")) };
    let Some(key) = decode_key(key, flags.base64) else { return body.refused(BAD_FORMAT) };
    body.request(Request::Meta(Meta { verb: MetaVerb::Debug, key, flags, value: &[] }))
}

fn decode_key(key: &[u8], base64: bool) -> Option<Cow<'_, [u8]>> {
    if !base64 {
        return Some(Cow::Borrowed(key));
    }
    BASE64.decode(key).ok().filter(|key| !key.is_empty()).map(Cow::Owned)
}

fn check_opaque(words: Words<'_>) -> Result<(), &'static str> {
    let too_long = |word: &[u8]| word[0] == b'O' && word.len() > OPAQUE_BYTES_MAX;
    if words.into_iter().any(too_long) { Err("CLIENT_ERROR opaque token too long") } else { Ok(()) }
}

fn no_flags(words: Words<'_>) -> MetaFlags<'_> {
    MetaFlags {
        words,
        base64: false,
        quiet: false,
        value: false,
        invalidate: false,
        mode: None,
        client_flags: 0,
        cas: None,
        ttl: None,
        vivify: None,
        refresh: None,
        initial: 0,
        delta: 1,
    }
}

/// Every flag once, each with a token of its kind. A flag that is unknown or repeated is the fault that counts; among
/// malformed tokens, the last.
fn parse_flags(words: Words<'_>) -> Result<MetaFlags<'_>, &'static str> {
    let mut flags = no_flags(words);
    let mut seen = [false; 128];
    let mut fault = None;
    for word in words {
        let (flag, token) = (word[0], &word[1..]);
        match seen.get_mut(usize::from(flag)) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(DUPLICATE_FLAG),
        }
        if let Err(malformed) = parse_flag(flag, token, &mut flags)? {
            fault = Some(malformed);
        }
    }
    fault.map_or(Ok(flags), Err)
}

/// The outer error ends the reading of flags, the inner one does not.
fn parse_flag(
    flag: u8,
    token: &[u8],
    flags: &mut MetaFlags<'_>,
) -> Result<Result<(), &'static str>, &'static str> {
    fn set<T, U: From<T>>(target: &mut U, value: Option<T>, fault: &'static str) -> Result<(), &'static str> {
        *target = value.ok_or(fault)?.into();
        Ok(())
    }
    Ok(match flag {
        b'b' => set(&mut flags.base64, Some(true), ""),
        b'q' => set(&mut flags.quiet, Some(true), ""),
        b'v' => set(&mut flags.value, Some(true), ""),
        b'I' => set(&mut flags.invalidate, Some(true), ""),
        b'T' => set(&mut flags.ttl, number::<i64>(token), BAD_TOKEN),
        b'N' => set(&mut flags.vivify, number::<i64>(token), BAD_TOKEN),
        b'R' => set(&mut flags.refresh, number::<i64>(token), BAD_TOKEN),
        b'C' => set(&mut flags.cas, number::<u64>(token), BAD_TOKEN),
        b'F' => set(&mut flags.client_flags, number::<u32>(token), BAD_FORMAT),
        b'J' => set(&mut flags.initial, number::<u64>(token), "CLIENT_ERROR invalid numeric initial value"),
        b'D' => set(&mut flags.delta, number::<u64>(token), "CLIENT_ERROR invalid numeric delta value"),
        b'M' => {
            let mode = if let [mode] = token { Some(*mode) } else { None };
            set(&mut flags.mode, mode, "CLIENT_ERROR incorrect length for M token")
        }
        // Asked for in the answer, or hints for others.
        b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' | b'u' => Ok(()),
        _ => return Err(INVALID_FLAG),
    })
}
