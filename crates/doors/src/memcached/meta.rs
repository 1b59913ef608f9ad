//! Meta commands: flags to actions, outcomes to answers.

use super::codec::{Meta, MetaFlags, MetaVerb, answer};
use super::reply::{Answers, Kind};
use oribi_session::kv::{
    Action, Answer, Change, Document, Expiry, Fetched, Key, KvLimits, Op, Outcome, Status, StoreMode,
};

/// The change that `ms`, `md` or `ma` asks for.
pub fn action<'a>(meta: &Meta<'a>, limits: &KvLimits, now_micros: u64) -> Action<'a> {
    let flags = &meta.flags;
    let expiry = |seconds| limits.expiry(seconds, now_micros);
    let ttl = flags.ttl.map(expiry);
    let vivify = flags.vivify.map(expiry);
    match meta.verb {
        MetaVerb::Set => {
            let value = meta.value;
            let store = |mode| Action::Store {
                mode,
                value,
                flags: flags.client_flags,
                expiry: ttl.unwrap_or(Expiry::Never),
                or_stale: flags.invalidate,
            };
            match flags.mode {
                Some(b'E') => store(StoreMode::Add),
                Some(b'R') => store(StoreMode::Replace),
                Some(b'A') => Action::Extend { front: false, value, vivify },
                Some(b'P') => Action::Extend { front: true, value, vivify },
                _ => store(StoreMode::Set),
            }
        }
        MetaVerb::Delete if flags.invalidate => Action::MarkStale { expiry: ttl },
        MetaVerb::Delete => Action::Delete,
        MetaVerb::Count => Action::Count {
            down: is_down(flags),
            delta: flags.delta,
            initial: vivify.map(|expiry| (flags.initial, expiry)),
            expiry: ttl,
        },
        MetaVerb::Get | MetaVerb::Debug => unreachable!("a read is no change"),
    }
}

/// The operation of an `mg` that is no plain read.
pub fn fetch<'a>(
    key: Key<'a>,
    expiry: Option<Expiry>,
    vivify: Option<Expiry>,
    refresh_before: Option<Expiry>,
) -> Op<'a> {
    Op::Change(Change { key, cas: None, action: Action::Fetch { expiry, vivify, refresh_before } })
}

/// Whether a read that found `answer` changes what it found: somebody is to be told to replace it who was not told
/// before, or it is to be made.
pub fn must_change(flags: &MetaFlags<'_>, refresh_before: Option<Expiry>, answer: &Answer<'_>) -> bool {
    match answer {
        Answer::Found(document) => {
            let refresh = match (refresh_before, document.expires_at) {
                (Some(Expiry::At(limit)), Some(at)) => at < limit,
                _ => false,
            };
            !document.promised && (document.stale || refresh)
        }
        Answer::Absent => flags.vivify.is_some(),
        Answer::Changed(_) | Answer::Refused(_) => false,
    }
}

/// Answers a meta command, and counts it.
pub fn answer(verb: MetaVerb, key: &[u8], flags: &MetaFlags<'_>, answer: &Answer<'_>, to: &mut Answers<'_>) {
    to.tally.cmd_meta += 1;
    match (verb, answer) {
        (_, Answer::Refused(error)) => to.error(error),
        (MetaVerb::Debug, Answer::Found(document)) => {
            say_debug(key, flags.base64, document, to.now_micros, to.output);
        }
        (MetaVerb::Debug, _) => answer::line("EN", to.output),
        (MetaVerb::Get, answer) => answer_get(key, flags, answer, to),
        (_, Answer::Changed(outcome)) => {
            to.tally.count(kind(verb, flags), &outcome.status);
            if !to.fault(&outcome.status) {
                say_outcome(verb, key, flags, outcome, to.now_micros, to.output);
            }
        }
        (_, Answer::Found(_) | Answer::Absent) => unreachable!("a change has an outcome"),
    }
}

fn kind(verb: MetaVerb, flags: &MetaFlags<'_>) -> Kind {
    match verb {
        MetaVerb::Set => Kind::Store { compares: flags.cas.is_some() },
        MetaVerb::Count => Kind::Count { down: is_down(flags) },
        _ => Kind::Delete,
    }
}

fn is_down(flags: &MetaFlags<'_>) -> bool {
    matches!(flags.mode, Some(b'D' | b'-'))
}

fn answer_get(key: &[u8], flags: &MetaFlags<'_>, answer: &Answer<'_>, to: &mut Answers<'_>) {
    let found = match answer {
        Answer::Found(document) => {
            say_fetched(key, flags, &Fetched::new(document, None), to.now_micros, to.output);
            true
        }
        Answer::Changed(Outcome { status: Status::Refused(error), .. }) => return to.error(error),
        Answer::Changed(Outcome { status: Status::Done, fetched: Some(found), .. }) => {
            say_fetched(key, flags, found, to.now_micros, to.output);
            true
        }
        _ => {
            say_miss(key, flags, to.output);
            false
        }
    };
    to.tally.cmd_get += 1;
    to.tally.get_hits += u64::from(found);
    to.tally.get_misses += u64::from(!found);
}

/// Appends the answer to an `mg` that found or made a document.
fn say_fetched<V: AsRef<[u8]>>(
    key: &[u8],
    flags: &MetaFlags<'_>,
    fetched: &Fetched<V>,
    now_micros: u64,
    out: &mut Vec<u8>,
) {
    let value = fetched.value.as_ref();
    say_code(flags.value.then_some(value.len()), out);
    let mut expires_at = fetched.expired_at;
    for word in flags.words() {
        match word[0] {
            // Flags take effect in the order in which they stand.
            b'T' | b'N' => expires_at = fetched.expires_at,
            b't' => say_ttl(expires_at, now_micros, out),
            b's' => answer::flag(b's', value.len() as u64, out),
            b'c' => answer::flag(b'c', fetched.cas, out),
            b'f' => answer::flag(b'f', u64::from(fetched.flags), out),
            // Reads leave no trace: the last access that is known is the last write, and nothing counts as hit.
            b'l' => answer::flag(b'l', now_micros.saturating_sub(fetched.written_at) / 1_000_000, out),
            b'h' => answer::flag(b'h', 0, out),
            _ => say_common(word, key, flags, out),
        }
    }
    for (is_set, mark) in [(fetched.promised, b" Z"), (fetched.stale, b" X"), (fetched.won, b" W")] {
        if is_set {
            out.extend_from_slice(mark);
        }
    }
    end(flags.value.then_some(value), out);
}

/// Appends the answer to an `mg` that found nothing.
fn say_miss(key: &[u8], flags: &MetaFlags<'_>, out: &mut Vec<u8>) {
    if flags.quiet {
        return;
    }
    out.extend_from_slice(b"EN");
    for word in flags.words() {
        say_common(word, key, flags, out);
    }
    end(None, out);
}

/// Appends the answer to `ms`, `md` or `ma`, if one is wanted.
fn say_outcome(
    verb: MetaVerb,
    key: &[u8],
    flags: &MetaFlags<'_>,
    outcome: &Outcome,
    now_micros: u64,
    out: &mut Vec<u8>,
) {
    let code = match outcome.status {
        Status::Done => None,
        Status::NotStored => Some(b"NS"),
        Status::Exists => Some(b"EX"),
        _ => Some(b"NF"),
    };
    if let (MetaVerb::Count, None, Some(counter)) = (verb, code, &outcome.fetched) {
        // A counter that was made is news even to those who want none.
        if !flags.quiet || counter.won {
            say_counter(key, flags, outcome, counter, now_micros, out);
        }
        return;
    }
    if code.is_none() && flags.quiet {
        return;
    }
    out.extend_from_slice(code.unwrap_or(b"HD"));
    for word in flags.words() {
        match word[0] {
            b'c' if verb == MetaVerb::Set => answer::flag(b'c', outcome.cas, out),
            _ => say_common(word, key, flags, out),
        }
    }
    end(None, out);
}

fn say_counter(
    key: &[u8],
    flags: &MetaFlags<'_>,
    outcome: &Outcome,
    counter: &Fetched,
    now_micros: u64,
    out: &mut Vec<u8>,
) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(outcome.number).as_bytes();
    say_code(flags.value.then_some(digits.len()), out);
    let mut expires_at = counter.expired_at;
    for word in flags.words() {
        match word[0] {
            b'T' | b'N' => expires_at = counter.expires_at,
            b't' => say_ttl(expires_at, now_micros, out),
            b'c' => answer::flag(b'c', outcome.cas, out),
            _ => say_common(word, key, flags, out),
        }
    }
    end(flags.value.then_some(digits), out);
}

/// Appends the answer to `me`.
fn say_debug(key: &[u8], base64: bool, document: &Document<'_>, now_micros: u64, out: &mut Vec<u8>) {
    let mut shown = Vec::new();
    answer::key_flag(key, base64, &mut shown);
    // ` k`, and ` b` behind a key in base64.
    let shown = &shown[2..shown.len() - if base64 { 2 } else { 0 }];
    out.extend_from_slice(b"ME ");
    out.extend_from_slice(shown);
    let ttl = document.ttl_seconds(now_micros).map_or(-1, |seconds| seconds as i64);
    let age = now_micros.saturating_sub(document.written_at) / 1_000_000;
    let (cas, size) = (document.cas, key.len() + document.value.len());
    answer::line(&format!(" exp={ttl} la={age} cas={cas} fetch=no cls=1 size={size}"), out);
}

fn say_code(value_len: Option<usize>, out: &mut Vec<u8>) {
    match value_len {
        Some(len) => {
            out.extend_from_slice(b"VA ");
            answer::number(len as u64, out);
        }
        None => out.extend_from_slice(b"HD"),
    }
}

fn say_ttl(expires_at: Option<i64>, now_micros: u64, out: &mut Vec<u8>) {
    match oribi_session::kv::ttl_seconds(expires_at, now_micros) {
        Some(seconds) => answer::flag(b't', seconds, out),
        None => out.extend_from_slice(b" t-1"),
    }
}

/// The flags that every command answers alike.
fn say_common(word: &[u8], key: &[u8], flags: &MetaFlags<'_>, out: &mut Vec<u8>) {
    match word[0] {
        b'O' => {
            out.push(b' ');
            out.extend_from_slice(word);
        }
        b'k' => answer::key_flag(key, flags.base64, out),
        _ => {}
    }
}

fn end(value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        Some(value) => answer::block(value, out),
        None => out.extend_from_slice(b"\r\n"),
    }
}
