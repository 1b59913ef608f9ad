//! The classic commands.

use super::{BAD_FORMAT, Body, ERROR, Frame, INVALID_EXPTIME, Request, Words, number, value_len};

/// The storage commands. `cas` carries the value it compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreVerb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas(u64),
}

/// The keys of a retrieval command, none of them too long. The first, which most commands have alone, is looked for once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keys<'a> {
    first: Option<&'a [u8]>,
    others: Words<'a>,
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.first.take().or_else(|| self.others.next())
    }
}

pub(super) fn decode<'a>(command: &[u8], words: Words<'a>, body: Body<'a, '_>) -> Frame<'a> {
    let decoded = match command {
        b"get" => retrieval(words, false, body),
        b"gets" => retrieval(words, true, body),
        b"gat" => retrieval_and_touch(words, false, body),
        b"gats" => retrieval_and_touch(words, true, body),
        b"set" => store(StoreVerb::Set, words, body),
        b"add" => store(StoreVerb::Add, words, body),
        b"replace" => store(StoreVerb::Replace, words, body),
        b"append" => store(StoreVerb::Append, words, body),
        b"prepend" => store(StoreVerb::Prepend, words, body),
        b"cas" => compare_and_store(words, body),
        b"incr" => count(false, words, body),
        b"decr" => count(true, words, body),
        b"touch" => touch(words, body),
        b"delete" => delete(words, body),
        b"flush_all" => flush_all(words, body),
        b"verbosity" => verbosity(words, body),
        b"stats" => Some(body.request(Request::Stats { topic: words.rest.trim_ascii() })),
        b"version" => Some(body.request(Request::Version)),
        b"quit" => Some(body.request(Request::Quit)),
        // A browser or a request forged through one: what its lines say must not be executed.
        _ if words.last().is_some_and(|word| word.starts_with(b"HTTP/")) => {
            Some(Frame::Fatal { answer: None })
        }
        _ => None,
    };
    decoded.unwrap_or_else(|| body.refused(ERROR))
}

/// `None`: the number of words is wrong. So below.
type Decoded<'a> = Option<Frame<'a>>;

fn is_noreply(word: Option<&[u8]>) -> bool {
    word == Some(b"noreply")
}

fn fits(key: &[u8], body: Body<'_, '_>) -> bool {
    key.len() <= body.limits.key_bytes_max
}

fn keys<'a>(first: Option<&'a [u8]>, others: Words<'a>, body: Body<'a, '_>) -> Option<Keys<'a>> {
    first.into_iter().chain(others).all(|key| fits(key, body)).then_some(Keys { first, others })
}

fn retrieval<'a>(mut words: Words<'a>, with_cas: bool, body: Body<'a, '_>) -> Decoded<'a> {
    let first = words.next()?;
    let Some(keys) = keys(Some(first), words, body) else { return Some(body.refused(BAD_FORMAT)) };
    Some(body.request(Request::Get { keys, with_cas }))
}

fn retrieval_and_touch<'a>(mut words: Words<'a>, with_cas: bool, body: Body<'a, '_>) -> Decoded<'a> {
    let Some(exptime) = number(words.next()?) else { return Some(body.refused(INVALID_EXPTIME)) };
    let Some(keys) = keys(words.next(), words, body) else { return Some(body.refused(BAD_FORMAT)) };
    Some(body.request(Request::GetAndTouch { keys, with_cas, exptime }))
}

fn store<'a>(verb: StoreVerb, words: Words<'a>, body: Body<'a, '_>) -> Decoded<'a> {
    let ([key, flags, exptime, len], last) = words.take()?;
    Some(store_with(verb, [key, flags, exptime, len], is_noreply(last), body))
}

fn compare_and_store<'a>(words: Words<'a>, body: Body<'a, '_>) -> Decoded<'a> {
    let ([key, flags, exptime, len, cas], last) = words.take()?;
    let Some(cas) = number(cas) else { return Some(body.refused(BAD_FORMAT)) };
    Some(store_with(StoreVerb::Cas(cas), [key, flags, exptime, len], is_noreply(last), body))
}

fn store_with<'a>(
    verb: StoreVerb,
    [key, flags, exptime, len]: [&'a [u8]; 4],
    noreply: bool,
    body: Body<'a, '_>,
) -> Frame<'a> {
    let (Some(flags), Some(exptime), Some(len)) = (number(flags), number(exptime), value_len(len)) else {
        return body.refused(BAD_FORMAT);
    };
    if !fits(key, body) {
        return body.refused(BAD_FORMAT);
    }
    body.with_value(len, noreply, |value| Request::Store { verb, key, flags, exptime, value, noreply })
}

fn count<'a>(down: bool, words: Words<'a>, body: Body<'a, '_>) -> Decoded<'a> {
    let ([key, delta], last) = words.take()?;
    if !fits(key, body) {
        return Some(body.refused(BAD_FORMAT));
    }
    let Some(delta) = number(delta) else {
        return Some(body.refused("CLIENT_ERROR invalid numeric delta argument"));
    };
    Some(body.request(Request::Count { key, down, delta, noreply: is_noreply(last) }))
}

fn touch<'a>(words: Words<'a>, body: Body<'a, '_>) -> Decoded<'a> {
    let ([key, exptime], last) = words.take()?;
    if !fits(key, body) {
        return Some(body.refused(BAD_FORMAT));
    }
    let Some(exptime) = number(exptime) else { return Some(body.refused(INVALID_EXPTIME)) };
    Some(body.request(Request::Touch { key, exptime, noreply: is_noreply(last) }))
}

/// `delete key [0] [noreply]`: once there was a time during which the key could not be added again.
fn delete<'a>(words: Words<'a>, body: Body<'a, '_>) -> Decoded<'a> {
    let mut rest = words;
    let key = rest.next()?;
    let noreply = match (rest.next(), rest.next(), rest.next()) {
        (None, ..) => false,
        (Some(b"0"), None, _) => false,
        (Some(b"noreply"), None, _) | (Some(b"0"), Some(b"noreply"), None) => true,
        (_, _, Some(_)) => return None,
        _ => {
            let usage = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
            return Some(body.refused(usage));
        }
    };
    if !fits(key, body) {
        return Some(body.refused(BAD_FORMAT));
    }
    Some(body.request(Request::Delete { key, noreply }))
}

fn flush_all<'a>(words: Words<'a>, body: Body<'a, '_>) -> Decoded<'a> {
    let mut words = words;
    let (first, second) = (words.next(), words.next());
    if words.next().is_some() {
        return None;
    }
    let noreply = is_noreply(second.or(first));
    let exptime = match first.filter(|_| second.is_some() || !noreply) {
        Some(word) => number(word),
        None => Some(0),
    };
    let Some(exptime) = exptime else { return Some(body.refused(INVALID_EXPTIME)) };
    Some(body.request(Request::FlushAll { exptime, noreply }))
}

/// Accepted and without effect: logging is set up where the server is started.
fn verbosity<'a>(words: Words<'a>, body: Body<'a, '_>) -> Decoded<'a> {
    let ([level], last) = words.take()?;
    if number::<u32>(level).is_none() {
        return Some(body.refused(BAD_FORMAT));
    }
    Some(body.request(Request::Verbosity { noreply: is_noreply(last) }))
}
