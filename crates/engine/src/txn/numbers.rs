//! The numbers of transactions: which are open, of whichever door, and what became of the last that were kept.
//!
//! A number is the microsecond in which its transaction began, or the next one that is free, so that it says when that was, and
//! none is taken twice, over a restart either.

use super::kept::Kept;
use super::{NONE, Transaction};
use crate::engine::Engine;
use oribi_env::locks::{self as ranks, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

/// What a number can be.
pub(crate) const TRANSACTION_IDS: RangeInclusive<u64> = NONE + 1..=i64::MAX as u64;

/// Of so many transactions that were kept it is known how they ended.
const ENDED_MAX: usize = 1000;

#[derive(Default)]
pub(crate) struct Transactions(pub(super) Mutex<Numbers, { ranks::TRANSACTIONS }>);

#[derive(Default)]
pub(super) struct Numbers {
    last: u64,
    pub open: BTreeMap<u64, Open>,
    /// How many of them are kept.
    pub kept: usize,
    ended: VecDeque<EndedTransaction>,
}

pub(super) struct Open {
    transaction: Weak<Transaction>,
    /// If not whoever has it decides when it ends.
    pub kept: Option<Kept>,
}

/// An open transaction.
#[derive(Clone, Debug)]
pub struct OpenTransaction {
    pub id: u64,
    /// For whom it is kept; `None` for a block of SQL.
    pub owner: Option<Arc<str>>,
    pub is_committing: bool,
    /// The tables that it has changed, by their ids, and how many rows of each; of what it has spilled, how many changes.
    pub tables: Vec<(u64, usize)>,
    /// Rows that it has locked.
    pub locked_rows: usize,
    /// The memory that it takes, about.
    pub bytes: usize,
    /// The transactions that it waits for.
    pub waits_for: Vec<u64>,
}

/// A transaction that was kept for a client, and has ended.
#[derive(Clone, Debug)]
pub struct EndedTransaction {
    pub id: u64,
    pub owner: Arc<str>,
    /// When it ended, in microseconds since 1970.
    pub ended_micros: u64,
    /// How many rows it has changed, if it was committed.
    pub rows: Option<usize>,
    /// Why it was not.
    pub why: Option<String>,
}

impl Transactions {
    pub fn begin(&self, engine: &Arc<Engine>) -> Arc<Transaction> {
        self.begin_as(engine, |_| None)
    }

    pub(super) fn begin_as(
        &self,
        engine: &Arc<Engine>,
        kept: impl FnOnce(&Arc<Transaction>) -> Option<Kept>,
    ) -> Arc<Transaction> {
        let now_micros = engine.timeline.now_micros();
        let mut numbers = self.0.lock();
        // No clock that was set back brings back the number of a transaction that was committed.
        let id = now_micros.max(numbers.last + 1).max(engine.timeline.last().micros());
        numbers.last = id;
        let transaction = Arc::new(Transaction { engine: engine.clone(), id, state: Mutex::default() });
        let kept = kept(&transaction);
        numbers.kept += usize::from(kept.is_some());
        numbers.open.insert(id, Open { transaction: Arc::downgrade(&transaction), kept });
        transaction
    }

    /// A transaction is gone.
    pub fn forget(&self, id: u64) {
        self.0.lock().remove(id);
    }

    pub(super) fn note_ended(&self, ended: EndedTransaction) {
        let mut numbers = self.0.lock();
        if numbers.ended.len() == ENDED_MAX {
            numbers.ended.pop_front();
        }
        numbers.ended.push_back(ended);
    }
}

impl Numbers {
    /// What is returned is not to be dropped under the lock.
    pub fn remove(&mut self, id: u64) -> Option<Kept> {
        let kept = self.open.remove(&id)?.kept;
        self.kept -= usize::from(kept.is_some());
        kept
    }
}

impl Engine {
    /// The open transactions of all doors, and the last ones that were kept and have ended, each by age.
    pub fn transactions(&self) -> (Vec<OpenTransaction>, Vec<EndedTransaction>) {
        let (mut open, ended) = {
            let numbers = self.transactions.0.lock();
            let open = numbers.open.values().filter_map(|open| {
                let kept = open.kept.as_ref();
                let owner = kept.map(|kept| kept.owner.clone());
                Some((open.transaction.upgrade()?, owner, kept.is_some_and(|kept| kept.is_committing)))
            });
            (open.collect::<Vec<_>>(), numbers.ended.iter().cloned().collect())
        };
        let describe = |(transaction, owner, is_committing): (Arc<Transaction>, _, _)| {
            let waits_for = self.row_locks.waits_for(transaction.id);
            let state = transaction.state.lock();
            let mut tables: BTreeMap<u64, usize> = state.writes.tables().collect();
            for (table, changes) in state.spilled.iter().flat_map(|spilled| &spilled.changes) {
                *tables.entry(*table).or_default() += changes;
            }
            OpenTransaction {
                id: transaction.id,
                owner,
                is_committing,
                tables: tables.into_iter().collect(),
                locked_rows: state.locked_before + state.locked.len(),
                bytes: state.bytes() + state.spilled_bytes(),
                waits_for,
            }
        };
        (open.drain(..).map(describe).collect(), ended)
    }
}
