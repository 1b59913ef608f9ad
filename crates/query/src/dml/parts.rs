//! A statement of a block that changes more rows than it may have in memory: they are its transaction's a part at a time, which puts
//! aside what memory is not for.
//!
//! The query that finds the rows goes on meanwhile. It shows what was there when it began: the block's own rows are [those that it
//! had by then](crate::provider), and rows that others have changed since are found again with the same ones, in
//! [rounds](super::rounds). If a part is refused, those before it are undone. A row that another transaction has locked is waited for
//! with the parts before it in hand, but before the first: then the statement begins anew.

use super::Run;
use super::matched::{Matched, Matching};
use super::rounds::{self, Rounds, Turn};
use super::rows::Written;
use crate::block::{self, Patience};
use crate::context::Narrowed;
use oribi_engine::{Commit, Mark, Transaction};
use oribi_session::sql::SqlError;
use oribi_types::ErrorKind;
use std::sync::{Arc, Mutex};

/// Beside its bytes a row takes about so many in a transaction.
pub(super) const ROW_BYTES: usize = 256;

/// So many rows are looked at together, whether they are enough for a part.
pub(super) const STEP_ROWS: usize = 256;

/// A part is of so many bytes at most, as far as they are known.
const PART_BYTES_MAX: usize = 8 << 20;

/// A part has this share of what a statement may be: the transaction has room for it, whatever it has before.
const PART_OF_STATEMENT: usize = 4;

/// How large a part gets of what may be `statement_bytes_max` at once.
pub(super) fn part_bytes(statement_bytes_max: usize) -> usize {
    PART_BYTES_MAX.min(statement_bytes_max / PART_OF_STATEMENT)
}

/// Undoes what was written in parts, unless all of it was.
struct Begun {
    transaction: Arc<Transaction>,
    before: Mark,
    is_done: bool,
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.is_done {
            self.transaction.undo_to(self.before);
        }
    }
}

/// A statement that writes parts.
pub(super) struct Parts<'a> {
    rounds: Rounds<'a, (Commit, Written)>,
    begun: Begun,
    done: Option<(Commit, Written)>,
    patience: Patience,
}

impl<'a> Parts<'a> {
    pub(super) fn new(mut rounds: Rounds<'a, (Commit, Written)>, transaction: Arc<Transaction>) -> Self {
        let before = transaction.mark();
        rounds.narrowed = Some(Arc::new(Narrowed { before: Some(before), ..Narrowed::default() }));
        let begun = Begun { transaction, before, is_done: false };
        Parts { rounds, begun, done: None, patience: Patience::default() }
    }

    /// Changes the rows that `matching` finds, in as many parts as it takes.
    ///
    /// # Errors
    /// Those of the query and of what writes. The transaction is what it was then.
    pub(super) async fn change(mut self, matching: &Matching) -> Result<(Commit, Written), SqlError> {
        let mut turn = self.rounds.turn().await;
        let limit = part_bytes(self.rounds.destination.engine().options().statement_bytes_max);
        let (run, target) = (self.rounds.run, self.rounds.target);
        let mut search = matching.search(run, target, None).await?;
        let mut part = Matched::default();
        while search.read_on(STEP_ROWS, &mut part, &self.rounds.room).await? {
            if part.bytes() + part.len() * ROW_BYTES > limit {
                // Others need not wait for what is left of the query.
                self.write(turn.take(), std::mem::take(&mut part)).await?;
            }
        }
        self.write(turn, part).await?;
        self.begun.is_done = true;
        Ok(self.done.take().expect("the last part is written, be it of no row"))
    }

    /// Writes rows, in halves where they turn out to be more than one write may be.
    async fn write(&mut self, mut turn: Turn, part: Matched) -> Result<(), SqlError> {
        let mut left = vec![Arc::new(Mutex::new(part))];
        while let Some(part) = left.pop() {
            let turn = match turn.take() {
                None => self.rounds.turn().await,
                turn => turn,
            };
            match self.rounds.write(turn, &part).await {
                Ok(written) => self.add(written),
                Err(error) if error.error.kind() == ErrorKind::TooLarge => {
                    let part = std::mem::take(&mut *rounds::lock(&part));
                    if part.len() < 2 {
                        return Err(error);
                    }
                    let (first, second) = part.split();
                    left.extend([second, first].map(|half| Arc::new(Mutex::new(half))));
                }
                Err(error) if block::is_locked(&error) && self.done.is_some() => {
                    let Run { query, session, .. } = self.rounds.run;
                    block::wait_for_row(query, session, error, &mut self.patience).await?;
                    left.push(part);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn add(&mut self, (commit, written): (Commit, Written)) {
        match &mut self.done {
            Some((all, count)) => {
                all.ts = commit.ts;
                all.obligation.merge(commit.obligation);
                count.add(&written);
            }
            None => self.done = Some((commit, written)),
        }
    }
}
