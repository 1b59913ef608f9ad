//! Transactions that are kept for clients who know their numbers: they outlive connections, and end by commit, by abort, or by
//! silence, when nobody has named them for a while.
//!
//! What became of one can be asked for, also after a restart. Its commit is a write with a [request id](crate::tracker::commits) and so known
//! as results are; of any other that began within the hour in which commits are not forgotten it is known so that it was not
//! committed, without a note.

use super::numbers::EndedTransaction;
use super::{Committing, InTransaction, TRANSACTION_IDS, TrackedCommit, Transaction};
use crate::engine::{Engine, Obligation};
use crate::tracker::{Answered, Begun, Request, Tracked, commits};
use crate::write::{Answer, Commit, Decide, ReadAhead, WriteOp, unseen};
use oribi_types::{Error, ErrorKind, Result, Timestamp};
use std::cell::Cell;
use std::sync::Arc;

/// Open ones. Each may have rows that count in no budget, of [`STEP_BYTES`](super::STEP_BYTES): 128 MiB together.
const KEPT_MAX: usize = 4096;

/// So far numbers may be ahead of the clock, where many transactions begin at a time.
const AHEAD_MICROS: u64 = 1_000_000;

pub(super) struct Kept {
    transaction: Arc<Transaction>,
    pub owner: Arc<str>,
    /// When somebody last named it, by the monotonic clock.
    heard_micros: u64,
    pub is_committing: bool,
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionState {
    Open,
    CommitInProgress,
    /// At which timestamp, if it has changed rows and is not forgotten. The obligation is to be settled before that is told.
    Committed(Option<Timestamp>, Obligation),
    Aborted,
}

/// A commit in hand. Dropped before it came to an end, it is given up, and the transaction aborted.
pub struct KeptCommit {
    engine: Arc<Engine>,
    committing: Committing,
    has_ended: bool,
}

impl Engine {
    /// Begins a transaction that is kept for clients, and returns its number; for the same request the same.
    ///
    /// # Errors
    /// `Unavailable` if there are too many; those of [`tracked`](Self::tracked).
    pub fn begin_kept(self: &Arc<Self>, owner: &str, request: Option<&Request<'_>>) -> Result<u64> {
        let Some(request) = request else { return Ok(self.begin_kept_of(owner)?.id) };
        match self.results.begin(*request)? {
            Begun::Execute(mut execution) => {
                let id = self.begin_kept_of(owner)?.id;
                let commit = Commit { ts: self.timeline.watermark(), obligation: Obligation::default() };
                execution.finish(commit, id.to_le_bytes().as_slice().into());
                Ok(id)
            }
            Begun::Known(Tracked::Answered(Answered { result, .. })) => {
                number_of(&result).ok_or_else(|| Error::invalid("the request id is that of a write"))
            }
            Begun::Known(_) => Err(Error::unavailable("the same request is under way, or forgotten")),
        }
    }

    fn begin_kept_of(self: &Arc<Self>, owner: &str) -> Result<Arc<Transaction>> {
        if self.transactions.0.lock().kept >= KEPT_MAX {
            return Err(Error::unavailable(format!("{KEPT_MAX} transactions are open")));
        }
        let heard_micros = self.env.clock.monotonic_micros();
        Ok(self.transactions.begin_as(self, |transaction| {
            let transaction = transaction.clone();
            Some(Kept { transaction, owner: owner.into(), heard_micros, is_committing: false })
        }))
    }

    /// The open transaction of this number, which is kept for another while.
    ///
    /// # Errors
    /// `Conflict` if it has ended, or is about to; `NotFound` if nothing is known of it.
    pub fn kept(&self, id: u64) -> Result<Arc<Transaction>> {
        if let Some(kept) = self.transactions.0.lock().open.get_mut(&id).and_then(|open| open.kept.as_mut())
            && !kept.is_committing
        {
            kept.heard_micros = self.env.clock.monotonic_micros();
            return Ok(kept.transaction.clone());
        }
        Err(not_open(id, self.state_of(id)?))
    }

    /// What became of the transaction of this number.
    ///
    /// # Errors
    /// `NotFound` if nothing is known of it.
    pub fn state_of(&self, id: u64) -> Result<TransactionState> {
        if let Some(open) = self.transactions.0.lock().open.get(&id) {
            match &open.kept {
                Some(kept) if kept.is_committing => return Ok(TransactionState::CommitInProgress),
                Some(_) => return Ok(TransactionState::Open),
                None => return Err(Error::not_found(format!("transaction {id} is one of SQL"))),
            }
        }
        match self.results.of_client(&commits::client(id), commits::SEQUENCE) {
            Some(Tracked::Answered(Answered { commit, result })) => {
                let ts = number_of(&result).filter(|rows| *rows > 0).map(|_| commit.ts);
                // Others may have an earlier timestamp, and not be applied yet.
                let obligation = Obligation { visible: commit.ts, ..commit.obligation };
                Ok(TransactionState::Committed(ts, obligation))
            }
            Some(_) => Ok(TransactionState::Committed(None, Obligation::default())),
            None if self.would_be_known(id) => Ok(TransactionState::Aborted),
            None => Err(Error::not_found(format!("transaction {id} is not known"))),
        }
    }

    /// Whether the commit of a transaction of this number would be known, if there had been one.
    fn would_be_known(&self, id: u64) -> bool {
        let now_micros = self.timeline.now_micros().max(self.timeline.last().micros());
        let since = now_micros.saturating_sub(commits::KNOWN_MICROS);
        TRANSACTION_IDS.contains(&id)
            && (since..=now_micros + AHEAD_MICROS).contains(&id)
            && id as i64 >= self.results.transactions_forgotten_below()
    }

    /// As [`write_as`](Self::write_as) in a kept transaction, once per request id, if there is one, as
    /// [`write_tracked_again`](Self::write_tracked_again).
    ///
    /// # Errors
    /// As these.
    #[allow(clippy::too_many_arguments)]
    pub fn write_kept(
        &self,
        (within, blocked): (&InTransaction, &Cell<Option<super::Blocked>>),
        waits: bool,
        request: Option<&Request<'_>>,
        ops: &[WriteOp<'_>],
        decide: &mut Decide<'_>,
        answer: &mut Answer<'_>,
        ahead: &mut ReadAhead,
    ) -> Result<Tracked> {
        let mut execution = match request.map(|request| self.results.begin(*request)).transpose()? {
            Some(Begun::Known(tracked)) => return Ok(unseen(tracked)),
            Some(Begun::Execute(execution)) => Some(execution),
            None => None,
        };
        let author = super::Author { within: Some(within), held: None, blocked };
        let commit = self.write_as(&author, waits, ops, decide, ahead)?;
        let mut result = Vec::new();
        answer(&mut result);
        let result: Arc<[u8]> = result.into();
        if let Some(execution) = &mut execution {
            execution.finish(commit, result.clone());
        }
        Ok(Tracked::Answered(Answered { commit, result }))
    }

    /// Begins to commit a transaction, which nothing is added to any more; `None` if it is committed, or about to be.
    ///
    /// # Errors
    /// `Conflict` if it was aborted, `NotFound` if nothing is known of it.
    pub fn begin_commit(self: &Arc<Self>, id: u64) -> Result<Option<KeptCommit>> {
        let transaction = {
            let mut numbers = self.transactions.0.lock();
            let kept = numbers.open.get_mut(&id).and_then(|open| open.kept.as_mut());
            kept.filter(|kept| !kept.is_committing).map(|kept| {
                kept.is_committing = true;
                kept.transaction.clone()
            })
        };
        match transaction {
            Some(transaction) => {
                let committing = transaction.into_commit();
                Ok(Some(KeptCommit { engine: self.clone(), committing, has_ended: false }))
            }
            None => match self.state_of(id)? {
                TransactionState::Aborted => Err(not_open(id, TransactionState::Aborted)),
                _ => Ok(None),
            },
        }
    }

    /// Undoes a transaction, for a reason that is told to who asks. One that has been aborted is.
    ///
    /// # Errors
    /// `Conflict` if it is committed, or about to be; `NotFound` if nothing is known of it.
    pub fn abort(&self, id: u64, why: &str) -> Result<()> {
        loop {
            match self.state_of(id)? {
                // Unless somebody has begun to commit it since.
                TransactionState::Open if !self.end_kept(id, why, |kept| !kept.is_committing) => {}
                TransactionState::Open | TransactionState::Aborted => return Ok(()),
                state => return Err(not_open(id, state)),
            }
        }
    }

    /// Aborts those that nobody has named for too long.
    pub fn end_silent_transactions(&self) {
        let (now_micros, silence_ms) =
            (self.env.clock.monotonic_micros(), self.options.transaction_silence_ms);
        let is_silent = |kept: &Kept| {
            !kept.is_committing && kept.heard_micros + silence_ms.saturating_mul(1000) <= now_micros
        };
        let silent: Vec<u64> = {
            let numbers = self.transactions.0.lock();
            if numbers.kept == 0 {
                return;
            }
            let open = numbers.open.iter();
            open.filter(|(_, open)| open.kept.as_ref().is_some_and(is_silent)).map(|(id, _)| *id).collect()
        };
        for id in silent {
            self.end_kept(id, &format!("nobody has named it for {silence_ms} ms"), is_silent);
        }
    }

    pub(crate) fn end_all_kept(&self, why: &str) {
        let all: Vec<u64> = self.transactions.0.lock().open.keys().copied().collect();
        for id in all {
            self.end_kept(id, why, |_| true);
        }
    }

    /// Aborts a kept transaction, if it still is what it is aborted for; says whether it was.
    fn end_kept(&self, id: u64, why: &str, is_due: impl FnOnce(&Kept) -> bool) -> bool {
        let kept = {
            let mut numbers = self.transactions.0.lock();
            let is_due = numbers.open.get(&id).and_then(|open| open.kept.as_ref()).is_some_and(is_due);
            if is_due { numbers.remove(id) } else { None }
        };
        let Some(kept) = kept else { return false };
        kept.transaction.roll_back();
        self.note(&kept, None, Some(why.to_owned()));
        true
    }

    fn note(&self, kept: &Kept, rows: Option<usize>, why: Option<String>) {
        let ended_micros = self.timeline.now_micros();
        let (id, owner) = (kept.transaction.id, kept.owner.clone());
        self.transactions.note_ended(EndedTransaction { id, owner, ended_micros, rows, why });
    }
}

impl KeptCommit {
    pub fn committing(&self) -> &Committing {
        &self.committing
    }

    /// Applies the transaction, as [`Engine::commit`]; it has ended then, unless it is to be tried again.
    ///
    /// # Errors
    /// Those of [`Engine::commit`]: `WouldBlock` if it is to be called again, else it was aborted.
    pub fn apply(&mut self, waits: bool, ahead: &mut ReadAhead) -> Result<Commit> {
        let (id, rows) = (self.committing.transaction.id, self.committing.len());
        let applied = self.try_apply(id, rows, waits, ahead);
        if applied.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            return applied;
        }
        let why = applied.as_ref().err().map(|error| error.message().to_owned());
        self.end(why.is_none().then_some(rows), why);
        applied
    }

    fn try_apply(&self, id: u64, rows: usize, waits: bool, ahead: &mut ReadAhead) -> Result<Commit> {
        let client = commits::client(id);
        let Begun::Execute(execution) = self.engine.results.begin_any(commits::request(&client))? else {
            return Err(Error::internal(format!("transaction {id} is committed twice")));
        };
        let tracked = TrackedCommit { execution, result: (rows as u64).to_le_bytes().as_slice().into() };
        self.engine.commit_as(&self.committing, Some(tracked), waits, ahead)
    }

    fn end(&mut self, rows: Option<usize>, why: Option<String>) {
        self.has_ended = true;
        let kept = self.engine.transactions.0.lock().remove(self.committing.transaction.id);
        // Gives back what is locked.
        self.committing.transaction.roll_back();
        if let Some(kept) = kept {
            self.engine.note(&kept, rows, why);
        }
    }
}

impl Drop for KeptCommit {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(None, Some("its commit was given up".to_owned()));
        }
    }
}

fn number_of(result: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(result.try_into().ok()?))
}

fn not_open(id: u64, state: TransactionState) -> Error {
    let is = match state {
        TransactionState::Open => "open",
        TransactionState::CommitInProgress => "being committed",
        TransactionState::Committed(..) => "committed",
        TransactionState::Aborted => "aborted",
    };
    Error::conflict(format!("transaction {id} is not open: it is {is}"))
}
