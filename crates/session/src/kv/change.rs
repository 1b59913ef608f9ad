//! Changes of documents and rows: what each asks for, and what it becomes given what is there.

use super::decide::{Decided, decide_document, decide_row};
use super::document::{DocumentTable, NewDocument};
use super::lock::{Guard, Locks};
use super::path::{Key, Shape, Target};
use super::subdoc::{Failure, Mutation};
use super::{Document, Expiry, KvLimits, row};
use oribi_engine::{Commit, Decide, Decision, Engine, Obligation, Read, RowVersion, Table, WriteOp};
use oribi_types::{Error, ErrorKind, Result, Timestamp};
use smallvec::SmallVec;
use std::sync::Arc;

/// How often changes are planned for tables that are altered all the time.
const ATTEMPTS_MAX: usize = 10;

/// One change of what a key names.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    pub key: Key<'a>,
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
    /// Answers a document and locks it until a moment, microseconds since the Unix epoch. The `cas` of the answer is the
    /// lock's: only a change that has it is made while the lock holds, and ends it.
    Lock {
        until_micros: u64,
    },
    /// Ends the lock that the change's `cas` is of.
    Unlock,
    /// Changes parts of a JSON document, all or none. The mode is that of the document.
    Edit {
        mutations: &'a [Mutation<'a>],
        mode: StoreMode,
        expiry: Expiry,
    },
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
    pub fetched: Option<Box<Fetched>>,
    /// What [`Action::Edit`] arrived at.
    pub edited: Option<Edited>,
    /// The change was refused because the document is locked, by another lock than the `cas` given, if any.
    pub is_locked: bool,
}

/// What became of the parts of a document.
#[derive(Debug)]
pub struct Edited {
    /// For each counter, its position among the mutations and its new value.
    pub counters: Vec<(usize, i64)>,
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
    NotLocked,
    /// One of the parts could not be changed.
    EditFailed(Failure),
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
                Some(Expiry::Keep) => document.expires_at,
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
        Outcome { status, cas: 0, number: 0, fetched: None, edited: None, is_locked: false }
    }

    fn locked() -> Self {
        let error = Error::retry("the document is locked");
        Outcome { is_locked: true, ..Outcome::refused(error) }
    }

    pub(super) fn refused(error: Error) -> Self {
        Outcome::new(Status::Refused(error))
    }
}

/// A change and the row that its key means.
pub(super) struct Step<'a> {
    /// Position among the outcomes.
    at: usize,
    pub change: &'a Change<'a>,
    pub table: &'a Arc<Table>,
    shape: Shape,
    pub key: &'a [u8],
    /// The encoded row that a [`Action::Store`] of a typed row writes.
    pub row: Vec<u8>,
}

/// Changes made ready to be written together.
pub(super) struct Plan<'a> {
    limits: &'a KvLimits,
    locks: Guard<'a>,
    now_micros: u64,
    steps: Vec<Step<'a>>,
    /// One for each change; those of changes that have no step are final.
    outcomes: Vec<Outcome>,
    /// Whether each change wrote.
    written: Vec<bool>,
}

impl<'a> Plan<'a> {
    pub fn new(limits: &'a KvLimits, locks: &'a Locks, now_micros: u64, changes: usize) -> Self {
        let (steps, outcomes) = (Vec::with_capacity(changes), Vec::with_capacity(changes));
        let locks = Guard::new(locks, now_micros);
        Plan { limits, locks, now_micros, steps, outcomes, written: Vec::with_capacity(changes) }
    }

    /// Adds a change, whose key means `target`, if anything; `scratch` is what the key was encoded to.
    pub fn push(&mut self, change: &'a Change<'a>, target: &'a Result<Target<'a>>, scratch: &'a [u8]) {
        let at = self.outcomes.len();
        let step = match target {
            Ok(target) => Step::new(at, change, target, scratch),
            Err(error) => Err(error.clone()),
        };
        self.outcomes.push(match step {
            Ok(step) => {
                self.steps.push(step);
                Outcome::new(Status::Done)
            }
            Err(error) => Outcome::refused(error),
        });
        self.written.push(false);
    }

    /// Writes all changes, or nothing.
    ///
    /// # Errors
    /// Those of the engine; nothing was written then. `WouldBlock` unless it `waits` for others.
    pub fn write(&mut self, engine: &Engine, waits: bool) -> Result<Commit> {
        let steps = std::mem::take(&mut self.steps);
        let result = self.write_steps(engine, &steps, waits);
        self.steps = steps;
        result
    }

    /// Writes each change by itself, so that one fault is one refusal. Returns what must be settled.
    pub fn write_each(&mut self, engine: &Engine) -> Obligation {
        let mut obligation = Obligation::default();
        for step in std::mem::take(&mut self.steps) {
            match self.write_steps(engine, std::slice::from_ref(&step), true) {
                Ok(commit) => obligation.merge(commit.obligation),
                Err(error) => self.outcomes[step.at] = Outcome::refused(error),
            }
        }
        obligation
    }

    /// Writes `steps`; if their tables were altered since they were planned, planned again for those as they are now.
    fn write_steps(&mut self, engine: &Engine, steps: &[Step<'_>], waits: bool) -> Result<Commit> {
        let mut written = self.try_write_steps(engine, steps, waits);
        for _ in 1..ATTEMPTS_MAX {
            if !matches!(&written, Err(error) if error.kind() == ErrorKind::Retry) {
                break;
            }
            let newest = |step: &Step<'_>| {
                engine.latest(step.table.id()).ok_or_else(|| Error::not_found("the table was dropped"))
            };
            let tables = steps.iter().map(newest).collect::<Result<Vec<_>>>()?;
            let renewed = steps.iter().zip(&tables).map(|(step, table)| step.renewed(table));
            written = self.try_write_steps(engine, &renewed.collect::<Result<Vec<_>>>()?, waits);
        }
        written
    }

    fn try_write_steps(&mut self, engine: &Engine, steps: &[Step<'_>], waits: bool) -> Result<Commit> {
        let ops: SmallVec<[WriteOp<'_>; 4]> = steps.iter().map(Step::op).collect();
        let decide: &mut Decide<'_> = &mut |i, current, row| Ok(self.decide(&steps[i], current, row));
        let written = if waits { engine.write(&ops, decide) } else { engine.try_write(&ops, decide) };
        self.locks.settle(written.is_ok());
        let commit = written?;
        for step in steps {
            self.date(step.at, commit.ts);
        }
        Ok(commit)
    }

    /// Tells an outcome when its change was committed.
    fn date(&mut self, at: usize, ts: Timestamp) {
        if self.written[at] {
            let outcome = &mut self.outcomes[at];
            outcome.cas = ts.0;
            if let Some(fetched) = &mut outcome.fetched {
                fetched.cas = ts.0;
            }
        }
    }

    fn decide(&mut self, step: &Step<'_>, current: Option<RowVersion<'_>>, row: &mut Vec<u8>) -> Decision {
        let lock = self.locks.find(step.table.id(), step.key);
        let decided = match (&step.change.action, lock) {
            (Action::Lock { .. }, Some(_)) => Ok((Decision::Keep, Outcome::locked())),
            (Action::Lock { until_micros }, None) => self.lock(step, current, *until_micros),
            (Action::Unlock, lock) => self.unlock(step, current.is_some(), lock),
            (_, None) => self.decide_free(step, step.change, current, row),
            (_, Some(cas)) if step.change.cas == Some(cas) => {
                let free = Change { cas: None, ..step.change.clone() };
                let decided = self.decide_free(step, &free, current, row);
                if matches!(decided, Ok((Decision::Put | Decision::Proposed | Decision::Delete, _))) {
                    self.locks.release(step.table.id(), step.key, cas);
                }
                decided
            }
            (_, Some(_)) => Ok((Decision::Keep, Outcome::locked())),
        };
        let (decision, outcome) = match decided {
            Ok(done) => done,
            Err(status) => (Decision::Keep, Outcome::new(status)),
        };
        self.outcomes[step.at] = outcome;
        self.written[step.at] = decision != Decision::Keep;
        decision
    }

    /// Decides a change of what nobody else has locked.
    fn decide_free(
        &self,
        step: &Step<'_>,
        change: &Change<'_>,
        current: Option<RowVersion<'_>>,
        row: &mut Vec<u8>,
    ) -> Decided {
        match step.shape {
            Shape::Document => {
                let table = DocumentTable::new(step.table.schema_ref());
                let current = current.map(|version| table.read(&version));
                let write = |document: &NewDocument<'_>| table.write(document, row);
                decide_document(change, current, self.limits, self.now_micros, write)
            }
            Shape::Row => decide_row(step, change, current, self.now_micros, row),
        }
    }

    fn lock(&mut self, step: &Step<'_>, current: Option<RowVersion<'_>>, until_micros: u64) -> Decided {
        let version = current.ok_or(Status::NotFound)?;
        let fetch = Action::Fetch { expiry: None, vivify: None, refresh_before: None };
        let fetch = Change { key: step.change.key, cas: None, action: fetch };
        // Whoever locks a document that is stale is not promised it: nothing is written.
        let (_, mut outcome) = self.decide_free(step, &fetch, Some(version), &mut Vec::new())?;
        let taken = self.locks.take(step.table.id(), step.key, until_micros);
        outcome.cas = taken.map_err(Status::Refused)?;
        if let Some(fetched) = &mut outcome.fetched {
            fetched.cas = outcome.cas;
        }
        Ok((Decision::Keep, outcome))
    }

    fn unlock(&mut self, step: &Step<'_>, is_there: bool, lock: Option<u64>) -> Decided {
        match lock {
            _ if !is_there => Err(Status::NotFound),
            None => Err(Status::NotLocked),
            Some(cas) if step.change.cas == Some(cas) => {
                self.locks.release(step.table.id(), step.key, cas);
                Ok((Decision::Keep, Outcome::new(Status::Done)))
            }
            Some(_) => Ok((Decision::Keep, Outcome::locked())),
        }
    }

    pub fn into_outcomes(self) -> Vec<Outcome> {
        self.outcomes
    }
}

impl<'a> Step<'a> {
    fn new(at: usize, change: &'a Change<'a>, target: &'a Target<'a>, scratch: &'a [u8]) -> Result<Self> {
        let step = Step {
            at,
            change,
            table: target.table,
            shape: target.shape,
            key: target.key(scratch),
            row: Vec::new(),
        };
        step.with_row()
    }

    fn op(&self) -> WriteOp<'_> {
        WriteOp { table: self.table, key: self.key, read: self.change.read(), row: &self.row }
    }

    /// The same for a later handle of its table, in which its key is the same.
    ///
    /// # Errors
    /// Those of planning; `Retry` if the table has become one of documents, or is none any more.
    fn renewed<'b>(&'b self, table: &'b Arc<Table>) -> Result<Step<'b>> {
        if table.is_key_value() != (self.shape == Shape::Document) {
            return Err(Error::retry("the table was altered meanwhile"));
        }
        let Step { at, change, shape, key, .. } = *self;
        Step { at, change, table, shape, key, row: Vec::new() }.with_row()
    }

    fn with_row(mut self) -> Result<Self> {
        if let (Action::Store { value, expiry, .. }, Shape::Row) = (&self.change.action, self.shape) {
            self.row = row::encode(self.table, self.table.schema_ref(), self.key, value, *expiry)?;
        }
        Ok(self)
    }
}

impl Change<'_> {
    /// Whether what the key means must be known.
    pub(super) fn read(&self) -> Read {
        match self.action {
            Action::Store { mode: StoreMode::Set, expiry, .. }
                if self.cas.is_none() && expiry != Expiry::Keep =>
            {
                Read::Blind
            }
            _ => Read::Existing,
        }
    }

    /// Whether it depends on the `cas` of what is there. All that one write stores has one, which is known only
    /// afterwards.
    pub(super) fn sees_cas(&self) -> bool {
        self.cas.is_some() || matches!(self.action, Action::Fetch { .. })
    }

    /// Whether the row that is there is written again, or answered.
    pub(super) fn takes_row_along(&self) -> bool {
        match self.action {
            Action::Extend { .. } | Action::Touch { .. } | Action::MarkStale { .. } | Action::Edit { .. } => {
                true
            }
            Action::Store { .. } | Action::Count { .. } | Action::Delete | Action::Unlock => false,
            Action::Fetch { .. } | Action::Lock { .. } => true,
        }
    }

    /// Whether the row that is there is answered.
    pub(super) fn is_answered_with_row(&self) -> bool {
        matches!(self.action, Action::Fetch { .. } | Action::Lock { .. })
    }

    /// Bytes that the change carries.
    pub(super) fn bytes(&self) -> usize {
        match self.action {
            Action::Store { value, .. } | Action::Extend { value, .. } => value.len(),
            _ => 0,
        }
    }
}
