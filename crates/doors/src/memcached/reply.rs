//! Outcomes of changes to answers, and to counts.

use super::codec::{self, MetaFlags, MetaVerb, answer};
use super::meta;
use super::stats::Tally;
use oribi_session::kv::{Outcome, Status};
use oribi_types::{Error, ErrorKind};
use std::borrow::Cow;

/// How a change is answered.
pub enum Reply<'b> {
    /// A storage command; `compares` a cas.
    Store {
        compares: bool,
        noreply: bool,
    },
    Count {
        down: bool,
        noreply: bool,
    },
    Touch {
        noreply: bool,
    },
    Delete {
        noreply: bool,
    },
    Meta {
        verb: MetaVerb,
        key: &'b [u8],
        flags: MetaFlags<'b>,
    },
}

/// Another door knows locks, and somebody holds one.
const LOCKED: &str = "SERVER_ERROR document is locked";
const NOT_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";

/// Appends the answer to a change, if one is wanted. Errors of meta commands always are.
pub fn say(reply: &Reply<'_>, outcome: &Outcome, now_micros: u64, out: &mut Vec<u8>) {
    let (meta, noreply) = match reply {
        Reply::Meta { verb, key, flags } => (Some((*verb, *key, flags)), false),
        Reply::Store { noreply, .. }
        | Reply::Count { noreply, .. }
        | Reply::Touch { noreply }
        | Reply::Delete { noreply } => (None, *noreply),
    };
    if noreply {
        return;
    }
    let line = match &outcome.status {
        Status::Refused(error) => return say_error(error, out),
        Status::NotNumeric => NOT_NUMERIC.into(),
        Status::TooLarge => codec::TOO_LARGE.into(),
        Status::Locked => LOCKED.into(),
        status => match meta {
            Some((verb, key, flags)) => return meta::say_outcome(verb, key, flags, outcome, now_micros, out),
            None => classic_line(reply, status, outcome.number),
        },
    };
    answer::line(&line, out);
}

fn classic_line(reply: &Reply<'_>, status: &Status, number: u64) -> Cow<'static, str> {
    match (status, reply) {
        (Status::NotStored, _) => "NOT_STORED".into(),
        (Status::Exists, _) => "EXISTS".into(),
        (Status::NotFound, _) => "NOT_FOUND".into(),
        (_, Reply::Count { .. }) => number.to_string().into(),
        (_, Reply::Touch { .. }) => "TOUCHED".into(),
        (_, Reply::Delete { .. }) => "DELETED".into(),
        (_, Reply::Store { .. } | Reply::Meta { .. }) => "STORED".into(),
    }
}

/// Counts what became of a change.
pub fn count(reply: &Reply<'_>, status: &Status, tally: &mut Tally) {
    let done = matches!(status, Status::Done);
    let down = |flags: &MetaFlags<'_>| matches!(flags.mode, Some(b'D' | b'-'));
    let count = match reply {
        Reply::Store { compares, .. } => {
            tally.cmd_set += 1;
            match status {
                Status::Done if *compares => &mut tally.cas_hits,
                Status::Exists => &mut tally.cas_badval,
                Status::NotFound => &mut tally.cas_misses,
                _ => return,
            }
        }
        Reply::Meta { verb: MetaVerb::Set, .. } => &mut tally.cmd_set,
        Reply::Touch { .. } => {
            tally.cmd_touch += 1;
            if done { &mut tally.touch_hits } else { &mut tally.touch_misses }
        }
        Reply::Count { down: true, .. } if done => &mut tally.decr_hits,
        Reply::Count { down: true, .. } => &mut tally.decr_misses,
        Reply::Count { .. } if done => &mut tally.incr_hits,
        Reply::Count { .. } => &mut tally.incr_misses,
        Reply::Meta { verb: MetaVerb::Count, flags, .. } => match (down(flags), done) {
            (true, true) => &mut tally.decr_hits,
            (true, false) => &mut tally.decr_misses,
            (false, true) => &mut tally.incr_hits,
            (false, false) => &mut tally.incr_misses,
        },
        Reply::Delete { .. } | Reply::Meta { .. } if done => &mut tally.delete_hits,
        Reply::Delete { .. } | Reply::Meta { .. } => &mut tally.delete_misses,
    };
    *count += 1;
}

/// The protocol's table of errors: faults of the request, and of the server.
pub fn say_error(error: &Error, out: &mut Vec<u8>) {
    let kind = match error.kind() {
        ErrorKind::Invalid
        | ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::Conflict
        | ErrorKind::Unauthenticated
        | ErrorKind::Forbidden
        | ErrorKind::Unsupported
        | ErrorKind::TooLarge => "CLIENT_ERROR",
        ErrorKind::Retry | ErrorKind::Unavailable | ErrorKind::Corrupt | ErrorKind::Internal => {
            "SERVER_ERROR"
        }
    };
    answer::error(kind, error.message(), out);
}
