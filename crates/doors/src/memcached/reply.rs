//! What was executed to answers, and to counts.

use super::binary;
use super::codec::{self, MetaFlags, MetaVerb, answer};
use super::meta;
use super::stats::Tally;
use oribi_session::kv::{Answer, Expiry, Outcome, Status};
use oribi_types::{Error, ErrorKind};
use std::borrow::Cow;

/// How a request is answered.
pub enum Reply<'b> {
    /// It needs no operation, and no answer.
    Nothing,
    /// It needs no operation.
    Line(&'static str),
    /// It is none.
    Error(&'static str),
    /// A key of `get`, `gets`, `gat` or `gats`. All keys answer one request, which ends with the last.
    Value {
        key: &'b [u8],
        with_cas: bool,
        is_last: bool,
    },
    /// A change by a classic command.
    Classic {
        change: Kind,
        noreply: bool,
    },
    /// `refresh_before` is of `mg`.
    Meta {
        verb: MetaVerb,
        key: &'b [u8],
        flags: MetaFlags<'b>,
        refresh_before: Option<Expiry>,
    },
    Binary(binary::Reply<'b>),
}

/// The kinds of changes that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `compares` a cas.
    Store {
        compares: bool,
    },
    Count {
        down: bool,
    },
    Touch,
    Delete,
}

/// Where answers go.
pub struct Answers<'o> {
    pub output: &'o mut Vec<u8>,
    pub tally: Tally,
    /// The moment from which times to live are counted.
    pub now_micros: u64,
    /// The current retrieval was refused: its other keys are not answered.
    refused: bool,
}

const NOT_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";

impl<'o> Answers<'o> {
    pub fn new(output: &'o mut Vec<u8>) -> Self {
        Answers { output, tally: Tally::default(), now_micros: 0, refused: false }
    }

    /// Answers what needed no operation.
    pub fn say(&mut self, reply: &Reply<'_>) {
        match reply {
            Reply::Nothing => {}
            Reply::Line(line) => answer::line(line, self.output),
            Reply::Error(line) => {
                self.tally.errors += 1;
                answer::line(line, self.output);
            }
            Reply::Binary(reply) => reply.say(self),
            Reply::Value { .. } | Reply::Classic { .. } | Reply::Meta { .. } => {
                unreachable!("a key is answered with what was found")
            }
        }
    }

    /// Answers an operation.
    pub fn answer(&mut self, reply: &Reply<'_>, answer: &Answer<'_>) {
        match reply {
            Reply::Value { key, with_cas, is_last } => self.value(key, *with_cas, *is_last, answer),
            Reply::Classic { change, noreply } => {
                if let Answer::Changed(outcome) = answer {
                    self.tally.count(*change, &outcome.status);
                    if !noreply {
                        self.classic(*change, outcome);
                    }
                }
            }
            Reply::Meta { verb, key, flags, .. } => meta::answer(*verb, key, flags, answer, self),
            Reply::Binary(reply) => reply.answer(answer, self),
            Reply::Nothing | Reply::Line(_) | Reply::Error(_) => {
                unreachable!("what needed no operation was said")
            }
        }
    }

    /// Whether the retrieval that is being answered was refused; asked once.
    pub fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    pub fn error(&mut self, error: &Error) {
        self.tally.errors += 1;
        say_error(error, self.output);
    }

    fn value(&mut self, key: &[u8], with_cas: bool, is_last: bool, found: &Answer<'_>) {
        if !self.refused {
            self.refused = self.try_value(key, with_cas, found).is_err();
        }
        if is_last && !self.take_refused() {
            answer::line("END", self.output);
        }
    }

    /// `Err`: the command is answered with an error, and nothing else.
    fn try_value(&mut self, key: &[u8], with_cas: bool, found: &Answer<'_>) -> Result<(), ()> {
        let mut say = |flags, value: &[u8], cas: u64| {
            answer::value(key, flags, value, with_cas.then_some(cas), self.output);
        };
        match found {
            Answer::Found(document) => say(document.flags, document.value, document.cas),
            Answer::Changed(Outcome { status: Status::Done, fetched: Some(found), .. }) => {
                say(found.flags, &found.value, found.cas);
            }
            Answer::Refused(error) | Answer::Changed(Outcome { status: Status::Refused(error), .. }) => {
                self.error(error);
                return Err(());
            }
            Answer::Absent | Answer::Changed(_) => {}
        }
        self.tally.count_read(found);
        Ok(())
    }

    fn classic(&mut self, change: Kind, outcome: &Outcome) {
        let line: Cow<'static, str> = match (&outcome.status, change) {
            (Status::Refused(error), _) => return self.error(error),
            (Status::NotNumeric, _) => NOT_NUMERIC.into(),
            (Status::TooLarge, _) => codec::TOO_LARGE.into(),
            (Status::NotStored, _) => "NOT_STORED".into(),
            (Status::Exists, _) => "EXISTS".into(),
            (Status::NotFound, _) => "NOT_FOUND".into(),
            (_, Kind::Count { .. }) => {
                answer::number(outcome.number, self.output);
                "".into()
            }
            (_, Kind::Touch) => "TOUCHED".into(),
            (_, Kind::Delete) => "DELETED".into(),
            (_, Kind::Store { .. }) => "STORED".into(),
        };
        answer::line(&line, self.output);
    }

    /// The line for what a meta command has no code for; `false`: it has one.
    pub fn fault(&mut self, status: &Status) -> bool {
        match status {
            Status::Refused(error) => self.error(error),
            Status::NotNumeric => answer::line(NOT_NUMERIC, self.output),
            Status::TooLarge => answer::line(codec::TOO_LARGE, self.output),
            _ => return false,
        }
        true
    }
}

impl Reply<'_> {
    /// Whether an operation belongs to it.
    pub fn needs_answer(&self) -> bool {
        match self {
            Reply::Nothing | Reply::Line(_) | Reply::Error(_) => false,
            Reply::Value { .. } | Reply::Classic { .. } | Reply::Meta { .. } => true,
            Reply::Binary(reply) => reply.needs_answer(),
        }
    }
}

/// The protocol's table of errors: faults of the request, and of the server.
pub fn say_error(error: &Error, out: &mut Vec<u8>) {
    let kind = match error.kind() {
        ErrorKind::Invalid
        | ErrorKind::NotFound
        | ErrorKind::NotCovered
        | ErrorKind::AlreadyExists
        | ErrorKind::Conflict
        | ErrorKind::Unauthenticated
        | ErrorKind::Forbidden
        | ErrorKind::Unsupported
        | ErrorKind::TooLarge => "CLIENT_ERROR",
        ErrorKind::Retry
        | ErrorKind::WouldBlock
        | ErrorKind::Unavailable
        | ErrorKind::DiskFull
        | ErrorKind::Corrupt
        | ErrorKind::Internal => "SERVER_ERROR",
    };
    answer::error(kind, error.message(), out);
}
