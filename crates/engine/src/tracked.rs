//! What sets writes apart. One with a request id has a result, which is logged with it and kept; one of a table that is
//! [held](crate::held) finds its keys latched.
//!
//! The write path is compiled for each of these kinds: most writes are of none.

use crate::engine::{Engine, Obligation};
use crate::latches::Taken;
use crate::memory::MemoryBudget;
use crate::record;
use crate::tracker::Execution;
use crate::txn::{Blocked, Scanned};
use crate::write::{Answer, Commit, Target, WriteOp};
use oribi_types::{Error, ErrorKind, Result, Timestamp};
use oribi_wal::Lsn;
use std::sync::Arc;

pub(crate) trait Tracks {
    /// Whether it may wait for others.
    fn waits(&self) -> bool;

    /// Before anything is latched.
    ///
    /// # Errors
    /// Those of the budget.
    #[inline(always)]
    fn wait_for_room(&self, budget: &MemoryBudget) -> Result<()> {
        budget.wait_for_room(self.waits())
    }

    /// Whether others are kept from the keys of the write before it begins.
    #[inline(always)]
    fn is_latched(&self) -> bool {
        false
    }

    /// Keeps others from the keys of a write until it is applied.
    ///
    /// # Errors
    /// `Retry` if that is not in its power; `WouldBlock` if it must not wait for others that have them.
    #[inline(always)]
    fn latch<'e>(&self, engine: &'e Engine, targets: &[Target<'_>]) -> Result<Taken<'e>> {
        engine.latch_keys(targets, self.waits())
    }

    /// Lets others to them after all, before anything was decided: the keys will be latched again.
    #[inline(always)]
    fn give_back(&self, latches: Taken<'_>) {
        drop(latches);
    }

    /// The number of the transaction that it is of: its locks are no obstacle.
    #[inline(always)]
    fn holder(&self) -> u64 {
        0
    }

    /// A row is locked by another transaction: the error of a write that does not wait for that in the engine.
    fn blocked(&self, _by: Blocked) -> Option<Error> {
        None
    }

    /// So many operations come first that only compare: whoever has locked their rows has written nothing yet.
    #[inline(always)]
    fn compared(&self) -> usize {
        0
    }

    /// What must not have been written to since it was scanned.
    #[inline(always)]
    fn scanned(&self) -> Option<&Scanned> {
        None
    }

    /// All operations are decided. Whether the write is logged even if it changes nothing.
    ///
    /// # Errors
    /// `TooLarge` for the result.
    fn decided(&mut self) -> Result<bool>;

    /// Whether it has the gate alone, and is one log record however long it is.
    #[inline(always)]
    fn is_alone(&self) -> bool {
        false
    }

    /// It is in the log, and will be applied: nothing can fail any more. Called under the gate, before anybody sees its rows.
    #[inline(always)]
    fn logged(&mut self, _lsn: Lsn, _ts: Timestamp) {}

    /// Begins the log record.
    fn start_record(&self, ts: Timestamp, buf: &mut Vec<u8>);

    /// The request, and what it is answered, if it has an id.
    fn tracked(&self) -> Option<record::Tracked<'_>> {
        None
    }

    /// The write is applied.
    fn applied(&mut self, ops: &[WriteOp<'_>], lsn: Lsn, commit: &mut Commit);
}

impl Engine {
    /// The latches of all keys.
    ///
    /// # Errors
    /// `WouldBlock` if others have one, unless it `waits`.
    #[inline(always)]
    pub(crate) fn latch_keys(&self, targets: &[Target<'_>], waits: bool) -> Result<Taken<'_>> {
        let taken = self.latches.take(targets.iter().map(|(_, key)| *key), waits);
        taken.ok_or_else(|| would_block("others write the row"))
    }
}

/// Of a write that does not wait, and would have to.
#[cold]
pub(crate) fn would_block(why: &str) -> Error {
    Error::new(ErrorKind::WouldBlock, why)
}

/// A write of no request.
pub(crate) struct Plain {
    pub waits: bool,
}

impl Tracks for Plain {
    fn waits(&self) -> bool {
        self.waits
    }

    fn decided(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn start_record(&self, ts: Timestamp, buf: &mut Vec<u8>) {
        record::start(buf, ts);
    }

    fn applied(&mut self, _: &[WriteOp<'_>], _: Lsn, _: &mut Commit) {}
}

/// The first write of a request.
pub(crate) struct Tracking<'t, 'd> {
    execution: Execution<'t>,
    answer: &'t mut Answer<'d>,
    result: Arc<[u8]>,
    bytes_max: usize,
    waits: bool,
}

impl<'t, 'd> Tracking<'t, 'd> {
    pub fn new(execution: Execution<'t>, answer: &'t mut Answer<'d>, bytes_max: usize, waits: bool) -> Self {
        Tracking { execution, answer, result: Arc::default(), bytes_max, waits }
    }

    pub fn into_result(self) -> Arc<[u8]> {
        self.result
    }
}

impl Tracks for Tracking<'_, '_> {
    fn waits(&self) -> bool {
        self.waits
    }

    fn decided(&mut self) -> Result<bool> {
        let mut result = Vec::new();
        (self.answer)(&mut result);
        if result.len() > self.bytes_max {
            return Err(Error::too_large(format!(
                "the result of the write is longer than statement_bytes_max ({} bytes)",
                self.bytes_max
            )));
        }
        self.result = result.into();
        Ok(true)
    }

    fn start_record(&self, ts: Timestamp, buf: &mut Vec<u8>) {
        let request = self.execution.request();
        record::start_tracked(buf, ts, record::Tracked { request, result: &self.result });
    }

    fn tracked(&self) -> Option<record::Tracked<'_>> {
        Some(record::Tracked { request: self.execution.request(), result: &self.result })
    }

    fn applied(&mut self, ops: &[WriteOp<'_>], lsn: Lsn, commit: &mut Commit) {
        commit.obligation.merge(on_all(ops, lsn));
        self.execution.finish(*commit, self.result.clone());
    }
}

/// What an answer about all rows of a write must wait for, those included that were kept. A write of no row waits for the
/// disk: no table says less.
pub(crate) fn on_all(ops: &[WriteOp<'_>], lsn: Lsn) -> Obligation {
    let durable = if ops.is_empty() { lsn } else { 0 };
    let mut obligation = Obligation { durable, ..Obligation::default() };
    ops.iter().for_each(|op| obligation.merge(Obligation::on(op.table, lsn)));
    obligation
}
