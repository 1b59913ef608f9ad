//! Requests of the binary protocol to operations, and what was executed to its answers.
//!
//! Statuses, extras and texts are those of memcached 1.6.18: errors have their text as value, a get that misses with
//! its key has the key instead.

use super::client::Taken;
use super::codec::binary::{self as codec, BinaryFrame, BinaryRequest, Code, Command};
use super::codec::{CodecLimits, StoreVerb};
use super::meta;
use super::reply::{Answers, Kind};
use super::stats::{Listed, VERSION};
use super::window::{Step, Window};
use super::{reply, text};
use crate::binary_frame::{Header, Response};
use oribi_net::Progress;
use oribi_session::kv::{Action, Answer, Change, Op, Outcome, Status};
use oribi_types::{Error, ErrorKind};

/// How a request is answered.
pub struct Reply<'b> {
    header: Header,
    quiet: bool,
    what: What<'b>,
}

enum What<'b> {
    /// It needs no operation.
    Code(Code),
    Version,
    /// `key`: to be answered too. `with_value` is false for a touch.
    Retrieval {
        key: Option<&'b [u8]>,
        with_value: bool,
    },
    Change(Kind, StoreVerb),
}

/// Takes the request at the beginning of `input`, which is what follows `window.end`.
pub fn take<'b>(input: &'b [u8], limits: &CodecLimits, window: &mut Window<'b>) -> Result<Taken, Progress> {
    match codec::decode(input, limits) {
        BinaryFrame::Incomplete => Ok(Taken::Nothing),
        BinaryFrame::Request {
            request: BinaryRequest { command: Command::Quit, header, quiet, .. },
            len,
        } => {
            say(header, quiet, What::Code(Code::Success), window)?;
            Ok(Taken::Last(len))
        }
        BinaryFrame::Request { request, len } => {
            window.end += len;
            take_request(&request, window)?;
            Ok(Taken::Request)
        }
        BinaryFrame::Refused { header, code, len } => {
            let arrived = len.min(input.len() as u64);
            window.end += arrived as usize;
            say(header, false, What::Code(code), window)?;
            Ok(Taken::skip(len - arrived))
        }
        BinaryFrame::Fatal { answer } => {
            if let Some((header, code)) = answer {
                say(header, false, What::Code(code), window)?;
            }
            Ok(Taken::Last(input.len()))
        }
    }
}

fn say<'b>(header: Header, quiet: bool, what: What<'b>, window: &mut Window<'b>) -> Step {
    window.say(reply::Reply::Binary(Reply { header, quiet, what }))
}

fn take_request<'b>(request: &BinaryRequest<'b>, window: &mut Window<'b>) -> Step {
    let BinaryRequest { header, command, quiet, key, value } = *request;
    let cas = Some(header.cas).filter(|cas| *cas != 0);
    let push = |op: Op<'b>, what: What<'b>, window: &mut Window<'b>| {
        window.push(op, reply::Reply::Binary(Reply { header, quiet, what }))
    };
    let change = |action: Action<'b>| Op::Change(Change { key: key.into(), cas, action });
    match command {
        Command::Get { with_key } => {
            let what = What::Retrieval { key: with_key.then_some(key), with_value: true };
            push(Op::Get(key.into()), what, window)
        }
        Command::GetAndTouch { with_key, with_value, exptime } => {
            let what = What::Retrieval { key: with_key.then_some(key), with_value };
            let expiry = window.expiry(exptime.into());
            push(meta::fetch(key.into(), Some(expiry), None, None), what, window)
        }
        Command::Store { verb, flags, exptime } => {
            // What compares a cas is the same whatever else it says.
            let verb = match (verb, cas) {
                (StoreVerb::Add | StoreVerb::Replace, Some(_)) => StoreVerb::Set,
                _ => verb,
            };
            let (action, _) = text::store(verb, value, flags, window.expiry(exptime.into()));
            push(change(action), What::Change(Kind::Store { compares: cas.is_some() }, verb), window)
        }
        Command::Count { down, delta, initial, exptime } => {
            let initial = exptime.map(|exptime| (initial, window.expiry(exptime.into())));
            let action = Action::Count { down, delta, initial, expiry: None };
            push(change(action), What::Change(Kind::Count { down }, StoreVerb::Set), window)
        }
        Command::Delete => push(change(Action::Delete), What::Change(Kind::Delete, StoreVerb::Set), window),
        Command::FlushAll { exptime } => match window.flush_all(exptime.into())? {
            Ok(()) => say(header, quiet, What::Code(Code::Success), window),
            Err(error) => {
                refuse(&header, &error, &mut window.answers);
                Ok(())
            }
        },
        // Logging is set up where the server is started.
        Command::Noop | Command::Verbosity | Command::Quit => {
            say(header, quiet, What::Code(Code::Success), window)
        }
        Command::Version => say(header, quiet, What::Version, window),
        Command::Stats => stats(&header, key, window),
    }
}

fn stats(header: &Header, topic: &[u8], window: &mut Window<'_>) -> Step {
    window.flush()?;
    match window.list(topic, &|name, value, out| codec::stat(header, name, value, out)) {
        Listed::All | Listed::Reset => codec::stat(header, "", "", window.answers.output),
        Listed::Unknown => codec::status(header, Code::NotFound, window.answers.output),
    }
    Ok(())
}

impl Reply<'_> {
    /// Whether an operation belongs to it.
    pub fn needs_answer(&self) -> bool {
        matches!(self.what, What::Retrieval { .. } | What::Change(..))
    }

    /// Answers what needed no operation.
    pub fn say(&self, to: &mut Answers<'_>) {
        match self.what {
            What::Code(Code::Success) if self.quiet => {}
            What::Version => codec::text(&self.header, Code::Success, VERSION, to.output),
            What::Code(code) => {
                to.tally.errors += u64::from(code != Code::Success);
                codec::status(&self.header, code, to.output);
            }
            What::Retrieval { .. } | What::Change(..) => {}
        }
    }

    /// Answers an operation.
    pub fn answer(&self, answer: &Answer<'_>, to: &mut Answers<'_>) {
        match (&self.what, answer) {
            (_, Answer::Refused(error))
            | (_, Answer::Changed(Outcome { status: Status::Refused(error), .. })) => {
                refuse(&self.header, error, to);
            }
            (What::Retrieval { key, with_value }, answer) => self.retrieval(*key, *with_value, answer, to),
            (What::Change(change, verb), Answer::Changed(outcome)) => {
                to.tally.count(*change, &outcome.status);
                self.change(*change, *verb, outcome, to);
            }
            _ => {}
        }
    }

    fn retrieval(&self, key: Option<&[u8]>, with_value: bool, answer: &Answer<'_>, to: &mut Answers<'_>) {
        to.tally.count_read(answer);
        let (flags, cas, value) = match answer {
            Answer::Found(document) => (document.flags, document.cas, document.value),
            Answer::Changed(Outcome { status: Status::Done, fetched: Some(found), .. }) => {
                (found.flags, found.cas, &found.value[..])
            }
            _ => return self.miss(key, to),
        };
        Response {
            cas,
            extras: &flags.to_be_bytes(),
            key: key.unwrap_or_default(),
            value: if with_value { value } else { &[] },
            ..Response::new(&self.header, Code::Success as u16)
        }
        .write(to.output);
    }

    fn miss(&self, key: Option<&[u8]>, to: &mut Answers<'_>) {
        match key {
            _ if self.quiet => {}
            Some(key) => {
                Response { key, ..Response::new(&self.header, Code::NotFound as u16) }.write(to.output);
            }
            None => codec::status(&self.header, Code::NotFound, to.output),
        }
    }

    fn change(&self, change: Kind, verb: StoreVerb, outcome: &Outcome, to: &mut Answers<'_>) {
        let code = match (&outcome.status, verb) {
            (Status::Done, _) => return self.done(change, outcome, to),
            (Status::NotStored, StoreVerb::Add) | (Status::Exists, _) => Code::Exists,
            (Status::NotStored, StoreVerb::Append | StoreVerb::Prepend) => Code::NotStored,
            (Status::NotStored | Status::NotFound, _) => Code::NotFound,
            (Status::NotNumeric, _) => Code::NotNumeric,
            (Status::TooLarge, _) => Code::TooLarge,
            (Status::Refused(_) | Status::NotLocked | Status::EditFailed(_), _) => Code::InvalidArguments,
        };
        codec::status(&self.header, code, to.output);
    }

    fn done(&self, change: Kind, outcome: &Outcome, to: &mut Answers<'_>) {
        if self.quiet {
            return;
        }
        let number = outcome.number.to_be_bytes();
        let (cas, value) = match change {
            Kind::Count { .. } => (outcome.cas, &number[..]),
            // What is gone has none.
            Kind::Delete => (0, &[][..]),
            Kind::Store { .. } | Kind::Touch => (outcome.cas, &[][..]),
        };
        Response { cas, value, ..Response::new(&self.header, Code::Success as u16) }.write(to.output);
    }
}

/// The protocol's table of errors.
fn refuse(header: &Header, error: &Error, to: &mut Answers<'_>) {
    let code = match error.kind() {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists | ErrorKind::Conflict => Code::Exists,
        ErrorKind::TooLarge => Code::TooLarge,
        ErrorKind::Unsupported => Code::NotSupported,
        ErrorKind::Invalid | ErrorKind::NotCovered | ErrorKind::Unauthenticated | ErrorKind::Forbidden => {
            Code::InvalidArguments
        }
        ErrorKind::Retry | ErrorKind::WouldBlock | ErrorKind::Unavailable | ErrorKind::DiskFull => {
            Code::TemporaryFailure
        }
        ErrorKind::Corrupt | ErrorKind::Internal => Code::Internal,
    };
    to.tally.errors += 1;
    codec::text(header, code, error.message(), to.output);
}
