//! Changes of documents and rows: what each asks for, and what it becomes given what is there.

use super::decide::{decide_document, decide_row};
use super::document::{DocumentTable, NewDocument};
use super::path::{self, Shape, Tables};
use super::{Document, Expiry, KvLimits, row};
use oribi_engine::{Commit, Decision, Engine, Lookup, Read, ReadView, RowVersion, Table, WriteOp};
use oribi_types::{Error, Result, Schema, Timestamp};
use std::borrow::Cow;
use std::sync::Arc;

/// One change of what a key names.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    pub key: &'a [u8],
    /// Only if this is the document's `cas`.
    pub cas: Option<u64>,
    pub action: Action<'a>,
}

#[derive(Clone, Debug)]
pub enum Action<'a> {
    /// Stores a value. With `or_stale`, a `cas` older than the document's stores it too, but marks it as stale and
    /// keeps its expiry.
    Store {
        mode: StoreMode,
        value: &'a [u8],
        flags: u32,
        expiry: Expiry,
        or_stale: bool,
    },
    /// Adds bytes in front of or behind a document's value; with `vivify`, to an absent document too.
    Extend {
        front: bool,
        value: &'a [u8],
        vivify: Option<Expiry>,
    },
    /// Adds to or subtracts from a document that is a decimal number of 64 bits: up wraps around, down stops at 0.
    Count {
        down: bool,
        delta: u64,
        initial: Option<(u64, Expiry)>,
        expiry: Option<Expiry>,
    },
    Touch {
        expiry: Expiry,
    },
    /// Answers a document and changes what belongs to its caching: sets its expiry; makes an absent one, empty and
    /// promised to the caller; promises it to the caller if it expires before `refresh_before` or is stale, and nobody
    /// was promised it yet.
    Fetch {
        expiry: Option<Expiry>,
        vivify: Option<Expiry>,
        refresh_before: Option<Expiry>,
    },
    /// Keeps a document, but tells its readers to replace it.
    MarkStale {
        expiry: Option<Expiry>,
    },
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    Set,
    /// Only if absent.
    Add,
    /// Only if present.
    Replace,
}

/// What became of a change.
#[derive(Debug)]
pub struct Outcome {
    pub status: Status,
    /// Of the document as it is now, if the change wrote it.
    pub cas: u64,
    /// What [`Action::Count`] arrived at.
    pub number: u64,
    /// What [`Action::Fetch`] found or made. For [`Action::Count`], without the value.
    pub fetched: Option<Fetched>,
}

#[derive(Debug)]
pub enum Status {
    Done,
    /// A condition on presence was not met.
    NotStored,
    /// The `cas` is another.
    Exists,
    NotFound,
    NotNumeric,
    /// The value would exceed its limit.
    TooLarge,
    Refused(Error),
}

/// A document that was read, and what became of it in the same step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched<V = Vec<u8>> {
    pub value: V,
    pub flags: u32,
    pub cas: u64,
    /// When it would have expired; microseconds since the Unix epoch; `None`: never.
    pub expired_at: Option<i64>,
    /// When it will expire now.
    pub expires_at: Option<i64>,
    pub written_at: u64,
    pub stale: bool,
    /// Somebody else was promised it before.
    pub promised: bool,
    /// The caller was promised it now, or had it made.
    pub won: bool,
}

impl<'a> Fetched<&'a [u8]> {
    /// `document`, which is given `expiry`, or keeps its own.
    pub fn new(document: &Document<'a>, expiry: Option<Expiry>) -> Self {
        Fetched {
            value: document.value,
            flags: document.flags,
            cas: document.cas,
            expired_at: document.expires_at,
            expires_at: match expiry {
                None => document.expires_at,
                Some(Expiry::Never) => None,
                Some(Expiry::At(at)) => Some(at),
            },
            written_at: document.written_at,
            stale: document.stale,
            promised: document.promised,
            won: false,
        }
    }
}

impl<V: AsRef<[u8]>> Fetched<V> {
    pub(super) fn into_owned(self) -> Fetched {
        let Fetched { value, flags, cas, expired_at, expires_at, written_at, stale, promised, won } = self;
        let value = value.as_ref().to_vec();
        Fetched { value, flags, cas, expired_at, expires_at, written_at, stale, promised, won }
    }
}

impl Fetched {
    /// An empty document that was absent before.
    pub(super) fn made(expiry: Expiry, now_micros: u64) -> Self {
        Fetched {
            value: Vec::new(),
            flags: 0,
            cas: 0,
            expired_at: None,
            expires_at: if let Expiry::At(at) = expiry { Some(at) } else { None },
            written_at: now_micros,
            stale: false,
            promised: false,
            won: true,
        }
    }
}

impl Outcome {
    pub(super) fn new(status: Status) -> Self {
        Outcome { status, cas: 0, number: 0, fetched: None }
    }

    pub(super) fn refused(error: Error) -> Self {
        Outcome::new(Status::Refused(error))
    }
}

/// A change whose key names `table`.
pub(super) struct Step<'a> {
    /// Position among the changes.
    change: usize,
    pub table: &'a Arc<Table>,
    pub schema: Arc<Schema>,
    shape: Shape,
    key: Cow<'a, [u8]>,
    /// The encoded row that a [`Action::Store`] of a typed row writes.
    pub row: Vec<u8>,
}

/// Changes made ready to be written together.
pub(super) struct Plan<'a> {
    changes: &'a [Change<'a>],
    limits: &'a KvLimits,
    now_micros: u64,
    steps: Vec<Step<'a>>,
    /// One for each change; those of changes that have no step are final.
    outcomes: Vec<Outcome>,
    /// Whether each change wrote.
    written: Vec<bool>,
}

impl<'a> Plan<'a> {
    pub fn new(tables: &'a Tables, limits: &'a KvLimits, changes: &'a [Change<'a>], now_micros: u64) -> Self {
        let mut steps = Vec::with_capacity(changes.len());
        let mut outcomes = Vec::with_capacity(changes.len());
        for (i, change) in changes.iter().enumerate() {
            outcomes.push(match Step::new(tables, limits, i, change) {
                Ok(step) => {
                    steps.push(step);
                    Outcome::new(Status::Done)
                }
                Err(error) => Outcome::refused(error),
            });
        }
        Plan { changes, limits, now_micros, steps, outcomes, written: vec![false; changes.len()] }
    }

    /// Whether what is there can be told for every change without reading a file.
    pub fn is_in_memory(&self, engine: &Engine, view: ReadView) -> bool {
        let mut looked_at = self.steps.iter().filter(|step| self.read(step) == Read::Existing);
        !looked_at.any(|step| matches!(engine.try_get(step.table, &step.key, view, |_| ()), Lookup::Pending))
    }

    /// # Errors
    /// Those of the engine; nothing was written then.
    pub fn write(&mut self, engine: &Engine) -> Result<Commit> {
        let steps = std::mem::take(&mut self.steps);
        let op = |step: &'_ Step<'a>| self.read(step);
        let reads: Vec<Read> = steps.iter().map(op).collect();
        let ops: Vec<WriteOp<'_>> = steps
            .iter()
            .zip(reads)
            .map(|(step, read)| WriteOp { table: step.table, key: &step.key, read })
            .collect();
        engine.write(&ops, &mut |i, current, row| Ok(self.decide(&steps[i], current, row)))
    }

    fn read(&self, step: &Step<'_>) -> Read {
        let change = &self.changes[step.change];
        match change.action {
            Action::Store { mode: StoreMode::Set, .. } if change.cas.is_none() => Read::Blind,
            _ => Read::Existing,
        }
    }

    fn decide(&mut self, step: &Step<'_>, current: Option<RowVersion<'_>>, row: &mut Vec<u8>) -> Decision {
        let change = &self.changes[step.change];
        let decided = match step.shape {
            Shape::Document => {
                let table = DocumentTable::new(&step.schema);
                let current = current.map(|version| table.read(&version));
                let write = |document: &NewDocument<'_>| table.write(document, row);
                decide_document(change, current, self.limits, self.now_micros, write)
            }
            Shape::Row => decide_row(step, change, current, self.now_micros, row),
        };
        let (decision, outcome) = match decided {
            Ok(done) => done,
            Err(status) => (Decision::Keep, Outcome::new(status)),
        };
        self.outcomes[step.change] = outcome;
        self.written[step.change] = decision != Decision::Keep;
        decision
    }

    /// The outcomes, given the commit timestamp.
    pub fn into_outcomes(mut self, ts: Timestamp) -> Vec<Outcome> {
        for (outcome, _) in self.outcomes.iter_mut().zip(&self.written).filter(|(_, written)| **written) {
            outcome.cas = ts.0;
            if let Some(fetched) = &mut outcome.fetched {
                fetched.cas = ts.0;
            }
        }
        self.outcomes
    }
}

impl<'a> Step<'a> {
    fn new(tables: &'a Tables, limits: &KvLimits, i: usize, change: &'a Change<'a>) -> Result<Self> {
        let mut encoded = Vec::new();
        let target = path::resolve(tables, limits, change.key, &mut encoded)?;
        let (table, shape, key_len) = (target.table, target.shape, target.key.len());
        // A document's key is the end of the key that names it.
        let key = match shape {
            Shape::Document => Cow::Borrowed(&change.key[change.key.len() - key_len..]),
            Shape::Row => Cow::Owned(encoded),
        };
        let schema = table.schema();
        let row = match change.action {
            Action::Store { value, expiry, .. } if shape == Shape::Row => {
                row::encode(table, &schema, &key, value, expiry)?
            }
            _ => Vec::new(),
        };
        Ok(Step { change: i, table, schema, shape, key, row })
    }
}
