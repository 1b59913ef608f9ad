//! The write path: latch, read, decide, log, apply, complete.
//!
//! 1. What a write of several rows needs from files is read (see [`cold`]); then the keys' latches are taken in order, so that
//!    nothing changes between deciding and applying.
//! 2. Each operation is decided on the newest applied version of its key; rows that are made for it are staged in a scratch
//!    buffer.
//! 3. Under the shared gate, the record is appended to the log; its timestamp is taken in the same step. From here on
//!    nothing can fail. Where the log has no room, the gate is given back, and with it the timestamp, until it has.
//! 4. The rows are applied to the row index and noted in the memtables.
//! 5. When the watermark has passed the timestamp, every reader sees the write, and what it replaced is freed. A write of
//!    one row completes, as a rule, while the row's place is at hand; others look it up again.
//!
//! A write of many bytes takes the third and fourth step otherwise, so that others do not wait for it: see [`bulk`].
//!
//! A single-row write costs one block of the row index, no other allocation, two copies of the row (log buffer, index)
//! and a third if it is made while it is decided, no system call and no wake-up; the first after ten quiet minutes syncs the
//! manifest (see `ceiling`).

use crate::catalog::Table;
use crate::engine::{Engine, Obligation};
use crate::index::{GROUP, KeyRef, NewVersion, Older};
use crate::latches::Taken;
use crate::memtable::{Memtable, Run};
use crate::read::RowVersion;
use crate::record::{self, Change};
use crate::tablet::{Tablet, TabletState};
use crate::tracked::{Plain, Tracking, Tracks, would_block};
use crate::tracker::{Answered, Begun, Request, Tracked};
use crate::txn::{self, Blocked};
use oribi_types::key::check_key_len;
use oribi_types::{Error, ErrorKind, Result, Timestamp};
use oribi_wal::{Lsn, NoRoom};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

mod bulk;
mod cold;
mod key_order;
mod stage;
#[cfg(test)]
mod tests;

use bulk::Bulk;
pub(crate) use bulk::Fragmented;
pub use cold::ReadAhead;

/// One operation of a write.
pub struct WriteOp<'a> {
    pub table: &'a Arc<Table>,
    /// The encoded key.
    pub key: &'a [u8],
    pub read: Read,
    /// The encoded row that [`Decision::Proposed`] puts; empty if it is made while it is decided, or there will be none.
    pub row: &'a [u8],
}

/// Whether an operation needs to know the row that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// No: the row is replaced or deleted whatever it is.
    Blind,
    Existing,
}

/// What to do with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Put the row that was made.
    Put,
    /// Put the row that the operation came with, which is not copied for it.
    Proposed,
    Delete,
    /// Leave it as it is.
    Keep,
    /// Leave it as it is, and in a transaction keep others from changing it.
    Lock,
}

/// Decides an operation; see [`Engine::write`].
pub type Decide<'d> = dyn FnMut(usize, Option<RowVersion<'_>>, &mut Vec<u8>) -> Result<Decision> + 'd;

/// Writes down the result of a tracked write, behind what it finds; see [`Engine::write_tracked`].
pub type Answer<'d> = dyn FnMut(&mut Vec<u8>) + 'd;

/// An applied write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The commit timestamp of the rows written; if all were kept, the time at which that was decided.
    pub ts: Timestamp,
    /// To be settled before the write is acknowledged, or a refusal answered.
    pub obligation: Obligation,
}

/// A decided operation.
struct Staged {
    op: usize,
    row: StagedRow,
    older: Older,
    /// Whether it has replaced versions that were not freed yet.
    covers: bool,
}

enum StagedRow {
    /// The operation's.
    Proposed,
    /// In the scratch buffer.
    Made(Range<usize>),
    Deleted,
}

impl Staged {
    /// The row to put, if it is not to be deleted.
    #[inline]
    fn row<'r>(&self, ops: &[WriteOp<'r>], made: &'r [u8]) -> Option<&'r [u8]> {
        match &self.row {
            StagedRow::Proposed => Some(ops[self.op].row),
            StagedRow::Made(range) => Some(&made[range.clone()]),
            StagedRow::Deleted => None,
        }
    }

    fn version<'r>(
        &self,
        ops: &[WriteOp<'r>],
        made: &'r [u8],
        memtable: &Memtable,
        lsn: Lsn,
        ts: Timestamp,
    ) -> NewVersion<'r> {
        NewVersion { ts, lsn, memtable: memtable.id, row: self.row(ops, made), older: self.older }
    }
}

#[derive(Default)]
struct Scratch {
    /// The rows that were made for staged operations, one behind the other.
    rows: Vec<u8>,
    /// What an earlier operation of the write left for a later one on the same key.
    row: Vec<u8>,
    staged: Vec<Staged>,
    /// The newest of the versions that were decided on.
    observed: Timestamp,
}

impl Scratch {
    fn bytes(&self) -> usize {
        self.rows.capacity() + self.row.capacity() + self.staged.capacity() * size_of::<Staged>()
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        const { RefCell::new(Scratch {
            rows: Vec::new(),
            row: Vec::new(),
            staged: Vec::new(),
            observed: Timestamp::MIN,
        }) };
}

/// Above this a scratch buffer is not kept for the next write.
const SCRATCH_BYTES_KEPT: usize = 4 << 20;

/// Why a write was not made.
enum Refusal {
    Because(Error),
    /// No tablet takes the row of this operation. To be told with nothing latched: it may have to be waited for.
    NoTablet(usize),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::Because(error)
    }
}

/// Where an operation goes.
pub(crate) type Target<'a> = (&'a Arc<Tablet>, KeyRef<'a>);

impl Engine {
    /// Applies `ops` atomically, at one timestamp. Several may name the same key; each sees those
    /// before it (at timestamp `MAX`).
    ///
    /// `decide(i, current, rows)` is called once per operation, in order, with the newest version of its key: `None`
    /// if it is absent or expired, and always for [`Read::Blind`]. For [`Decision::Put`] it appends the encoded row to
    /// `rows`, whatever is in it; for [`Decision::Proposed`] the operation has it. It runs under locks and must not call the
    /// engine.
    ///
    /// # Errors
    /// Those of `decide`; `TooLarge` beyond `statement_bytes_max`; `NotFound` for a dropped table, `NotCovered` for a row
    /// in no partition; `Retry` if a table was truncated or altered since `ops` took their handles of it: what was planned
    /// for it must be planned again; `Unavailable` if the log takes no more. Nothing was applied then, unless the log failed at the
    /// very commit of a write that is longer than `fragment_bytes`: then the engine has stopped, and the next open shows what became of it.
    pub fn write(&self, ops: &[WriteOp<'_>], decide: &mut Decide<'_>) -> Result<Commit> {
        match ops {
            [_] => self.execute(ops, decide, &mut Plain { waits: true }, None),
            _ => self.write_again(true, ops, decide, &mut ReadAhead::default()),
        }
    }

    /// As [`write`](Self::write), on a thread that others wait for: it waits for nobody. What it wrote, or decided on, may not be
    /// seen by a new snapshot yet: its obligation says when that is.
    ///
    /// # Errors
    /// As [`write`](Self::write); `WouldBlock` if others write one of the rows, memory or the log is full, or the like. Nothing
    /// was applied then, though `decide` may have been called: it is to be tried again, as when it is [`released`](Self::released).
    pub fn try_write(&self, ops: &[WriteOp<'_>], decide: &mut Decide<'_>) -> Result<Commit> {
        match ops {
            [_] => self.execute(ops, decide, &mut Plain { waits: false }, None),
            _ => self.write_again(false, ops, decide, &mut ReadAhead::default()),
        }
    }

    /// As [`write`](Self::write) and, unless it `waits`, as [`try_write`](Self::try_write), for one of several attempts to make the
    /// same write: what one has read from files, the next need not read again. It is forgotten once one succeeds.
    ///
    /// # Errors
    /// As these.
    pub fn write_again(
        &self,
        waits: bool,
        ops: &[WriteOp<'_>],
        decide: &mut Decide<'_>,
        ahead: &mut ReadAhead,
    ) -> Result<Commit> {
        let commit = self.execute(ops, decide, &mut Plain { waits }, ahead.of_several(ops))?;
        *ahead = ReadAhead::default();
        Ok(commit)
    }

    /// As [`write`](Self::write), once per request id: a write that is sent again, after a restart too, is answered with
    /// the first result and changes nothing.
    ///
    /// `answer` is called once when all operations are decided, and writes down what is to be answered beside the
    /// commit: bytes that only the caller knows the meaning of. A write all of whose rows were kept is logged too, so that
    /// its answer stays. The commit's obligation is on all tables of `ops`. Does not wait for a call that has the same
    /// request in hand.
    ///
    /// # Errors
    /// As [`write`](Self::write), and `Invalid` for a client id of another length. A write that is refused leaves nothing
    /// behind: sent again, it is decided again.
    pub fn write_tracked(
        &self,
        request: &Request<'_>,
        ops: &[WriteOp<'_>],
        decide: &mut Decide<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Tracked> {
        let ahead = &mut ReadAhead::default();
        let mut tracked = self.write_tracked_again(true, request, ops, decide, answer, ahead)?;
        self.see(&mut tracked)?;
        Ok(tracked)
    }

    /// As [`write_tracked`](Self::write_tracked), for one of several attempts, as [`write_again`](Self::write_again).
    ///
    /// # Errors
    /// As these.
    pub fn write_tracked_again(
        &self,
        waits: bool,
        request: &Request<'_>,
        ops: &[WriteOp<'_>],
        decide: &mut Decide<'_>,
        answer: &mut Answer<'_>,
        ahead: &mut ReadAhead,
    ) -> Result<Tracked> {
        let execution = match self.results.begin(*request)? {
            Begun::Known(tracked) => return Ok(unseen(tracked)),
            Begun::Execute(execution) => execution,
        };
        let mut tracking = Tracking::new(execution, answer, self.options.statement_bytes_max, waits);
        let commit = self.execute(ops, decide, &mut tracking, ahead.of_several(ops))?;
        *ahead = ReadAhead::default();
        Ok(Tracked::Answered(Answered { commit, result: tracking.into_result() }))
    }

    /// What became of a request that was sent before; `None` if nothing is known of it. For who cannot make the write of it
    /// any more: its table may have been altered or dropped since it was applied. It waits for nobody: the obligation says when
    /// all see what was written.
    ///
    /// # Errors
    /// `Invalid` for a client id of another length.
    pub fn tracked(&self, request: &Request<'_>) -> Result<Option<Tracked>> {
        let Begun::Known(tracked) = self.results.begin(*request)? else { return Ok(None) };
        Ok(Some(unseen(tracked)))
    }

    /// Waits until who is answered finds what was written.
    fn see(&self, tracked: &mut Tracked) -> Result<()> {
        let Tracked::Answered(answered) = tracked else { return Ok(()) };
        self.timeline.wait_for_watermark(answered.commit.ts)?;
        answered.commit.obligation.visible = Timestamp::default();
        Ok(())
    }

    pub(crate) fn execute(
        &self,
        ops: &[WriteOp<'_>],
        decide: &mut Decide<'_>,
        tracking: &mut impl Tracks,
        mut ahead: Option<&mut ReadAhead>,
    ) -> Result<Commit> {
        let targets = self.targets(ops)?;
        if let Some(ahead) = ahead.as_deref_mut() {
            ahead.begin();
            if !tracking.is_latched() {
                self.read_ahead(ops, &targets, ahead)?;
            }
        }
        tracking.wait_for_room(&self.budget)?;
        // One look at the clock serves the whole write.
        let now_micros = self.timeline.now_micros();
        let expire = || ops.iter().any(|op| op.table.expiry().ttl_micros.is_some());
        self.reserve_timestamps_if(tracking.waits(), now_micros, expire)?;
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.rows.clear();
            scratch.staged.clear();
            scratch.observed = Timestamp::MIN;
            let result = self.write_latched(ops, &targets, now_micros, scratch, decide, tracking, ahead);
            let mut result = result.map_err(|refusal| self.refused(ops, &targets, tracking, refusal));
            // A refusal too tells of rows that the client's next snapshot must not lack.
            let seen = result.as_ref().map_or(scratch.observed, |commit| commit.ts);
            if tracking.waits() || self.timeline.is_at(seen) {
                if let Err(error) = self.finish(&targets, &scratch.staged, seen) {
                    result = Err(error);
                }
            } else {
                result = self.finish_unseen(result, seen);
            }
            // Who was told to wait had latches for a moment, if any: others that it woke would wake it in turn.
            if ops.len() > 1 && !is_told_to_wait(&result) {
                self.released.tell();
            }
            if scratch.bytes() > SCRATCH_BYTES_KEPT {
                *scratch = Scratch::default();
            }
            result
        })
    }

    fn targets<'a>(&self, ops: &'a [WriteOp<'a>]) -> Result<SmallVec<[Target<'a>; 1]>> {
        let mut targets = SmallVec::with_capacity(ops.len());
        for op in ops {
            check_key_len(op.key)?;
            let tablet = op.table.tablet_of(op.key);
            targets.push((tablet, self.index.key(tablet.generation(), op.key)));
        }
        Ok(targets)
    }

    #[allow(clippy::too_many_arguments)]
    fn write_latched(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        now_micros: u64,
        scratch: &mut Scratch,
        decide: &mut Decide<'_>,
        tracking: &mut impl Tracks,
        mut ahead: Option<&mut ReadAhead>,
    ) -> Result<Commit, Refusal> {
        let _latches = self.latch(ops, targets, tracking, ahead.as_deref_mut())?;
        let ahead = ahead.as_deref();
        let obligation = self.stage(ops, targets, now_micros, scratch, decide, ahead)?;
        // What is staged is asked for its version under the gate.
        if scratch.staged.len() < ops.len() {
            let mut read = ops.iter().zip(targets).filter(|(op, _)| op.read == Read::Existing);
            read.try_for_each(|(op, (tablet, _))| self.check_decided(op.table, tablet))?;
        }
        if !tracking.decided()? && scratch.staged.is_empty() {
            return Ok(Commit { ts: self.timeline.watermark().max(scratch.observed), obligation });
        }
        if scratch.staged.len() > 1 && !tracking.is_alone() && self.is_bulk(ops, scratch) {
            if tracking.scanned().is_some() {
                // Nobody else could write while it is applied.
                let message = "a serializable transaction that has scanned tables changes too much";
                return Err(Error::too_large(message).into());
            }
            return self.write_bulk(&Bulk { ops, targets, now_micros }, scratch, tracking, obligation);
        }
        loop {
            match self.pass_gate(ops, targets, now_micros, scratch, tracking, obligation)? {
                Ok(commit) => return Ok(commit),
                Err(needed) if tracking.waits() => self.log.make_room(needed)?,
                Err(needed) => {
                    self.log.ask_for_room(needed)?;
                    return Err(would_block("the log makes room").into());
                }
            }
        }
    }

    /// Latches the keys of a write: what is to be known of them is, and nothing is undecided.
    fn latch<'e>(
        &'e self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        tracking: &impl Tracks,
        mut ahead: Option<&mut ReadAhead>,
    ) -> Result<Taken<'e>> {
        loop {
            let latches = tracking.latch(self, targets)?;
            if let Some(op) = self.undecided_of(targets, tracking) {
                tracking.give_back(latches);
                self.wait_until_decided(tracking, op, targets[op])?;
                continue;
            }
            let Some(ahead) = ahead.as_deref_mut() else { return Ok(latches) };
            if !self.lacks(ops, targets, ahead, tracking.is_latched()) {
                return Ok(latches);
            }
            tracking.give_back(latches);
            self.read_ahead(ops, targets, ahead)?;
        }
    }

    /// The first operation about a row of which it is not decided yet whether it goes or comes, or which another transaction than
    /// that of the write has locked.
    #[inline]
    fn undecided_of(&self, targets: &[Target<'_>], tracking: &impl Tracks) -> Option<usize> {
        match self.undecided.is_any() {
            true => (0..targets.len()).find(|&op| self.is_undecided(tracking, op, targets[op])),
            false => None,
        }
    }

    #[cold]
    fn is_undecided(&self, tracking: &impl Tracks, op: usize, (tablet, key): Target<'_>) -> bool {
        self.undecided.concerns(tablet, key) || self.locked_by_others(tracking, op, key).is_some()
    }

    fn locked_by_others(&self, tracking: &impl Tracks, op: usize, key: KeyRef<'_>) -> Option<Blocked> {
        if op < tracking.compared() { None } else { self.row_locks.of_others(key, tracking.holder()) }
    }

    #[cold]
    fn wait_until_decided(&self, tracking: &impl Tracks, op: usize, (tablet, key): Target<'_>) -> Result<()> {
        if let Some(blocked) = self.locked_by_others(tracking, op, key) {
            return self.wait_at_row(tracking, blocked);
        }
        if !tracking.waits() {
            return Err(would_block("whether rows go or come is being decided"));
        }
        self.undecided.wait(tablet, key);
        Ok(())
    }

    /// Waits for a row that a transaction has locked, for a while.
    #[cold]
    fn wait_at_row(&self, tracking: &impl Tracks, blocked: Blocked) -> Result<()> {
        let locked_micros = self.timeline.now_micros().saturating_sub(blocked.since_micros());
        if let Some(error) = tracking.blocked(blocked.clone()) {
            return Err(error);
        }
        if locked_micros > txn::WAIT_MICROS_MAX {
            return Err(Error::unavailable("a transaction has locked the row"));
        }
        if !tracking.waits() {
            return Err(would_block("a transaction has locked the row"));
        }
        self.row_locks.wait_a_while(&blocked);
        Ok(())
    }

    /// The error of a write that was not made.
    fn refused(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        tracking: &impl Tracks,
        refusal: Refusal,
    ) -> Error {
        let op = match refusal {
            Refusal::Because(error) => return error,
            Refusal::NoTablet(op) => op,
        };
        let (tablet, key) = targets[op];
        if self.undecided.concerns(tablet, key) {
            // Of a table that is held.
            tracking.give_back(Taken::new());
            if let Err(error) = self.wait_until_decided(tracking, op, targets[op]) {
                return error;
            }
        }
        self.no_tablet(ops[op].table, key.key)
    }

    /// Logs and applies what is staged, unless the log has no room.
    fn pass_gate(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        now_micros: u64,
        scratch: &mut Scratch,
        tracking: &mut impl Tracks,
        mut obligation: Obligation,
    ) -> Result<Result<Commit, NoRoom>, Refusal> {
        let blocked = || Refusal::from(would_block("memory is being arranged"));
        let share = || self.gate.share(scratch.staged.len(), tracking.waits()).ok_or_else(blocked);
        let scanned = tracking.scanned();
        let is_alone = tracking.is_alone() || scanned.is_some();
        let _alone = is_alone.then(|| self.gate.alone());
        let _shared = if is_alone { None } else { Some(share()?) };
        scanned.map_or(Ok(()), |scanned| scanned.check(self))?;
        let _whole = self.stop_on_panic("a write");
        self.check_targets(ops, targets, scratch)?;
        let (lsn, ts) = match self.log_record(ops, targets, now_micros, scratch, tracking)? {
            Ok(logged) => logged,
            Err(needed) => return Ok(Err(needed)),
        };
        tracking.logged(lsn, ts);
        self.apply(ops, targets, scratch, lsn, ts);
        for staged in &scratch.staged {
            obligation.merge(Obligation::on(ops[staged.op].table, lsn));
        }
        let mut commit = Commit { ts, obligation };
        // Under the gate, so that no checkpoint of results below the log's end misses it.
        tracking.applied(ops, lsn, &mut commit);
        Ok(Ok(commit))
    }

    /// Whether what is staged may be applied: asked under the gate.
    #[inline(always)]
    fn check_targets(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        scratch: &Scratch,
    ) -> Result<(), Refusal> {
        if self.closed.load(Relaxed) {
            return Err(Error::unavailable("the engine is closed").into());
        }
        // What is kept as it is needs no tablet. A row for another definition would lack the values of columns that were
        // added since, and take away those that others have written.
        let is_stale = |op: usize| !targets[op].0.takes(ops[op].table.version());
        if let Some(stale) = scratch.staged.iter().find(|staged| is_stale(staged.op)) {
            return Err(Refusal::NoTablet(stale.op));
        }
        if targets.iter().any(|(tablet, key)| tablet.generation() != key.generation) {
            return Err(Error::retry("the table was truncated meanwhile").into());
        }
        Ok(())
    }

    /// Appends the record; takes its LSN and, in the same step, its timestamp.
    fn log_record(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        now_micros: u64,
        scratch: &Scratch,
        tracking: &impl Tracks,
    ) -> Result<Result<(Lsn, Timestamp), NoRoom>> {
        let mut taken = None;
        let appended = self.log.try_append(0, &mut |_, buf| {
            // The log may ask again after waiting for room; only the last timestamp is used.
            if let Some(unused) = taken.replace(self.timeline.begin(now_micros)) {
                self.timeline.complete(unused);
            }
            let ts = taken.expect("a timestamp was just taken");
            tracking.start_record(ts, buf);
            for staged in &scratch.staged {
                let (tablet, key) = targets[staged.op];
                let row = staged.row(ops, &scratch.rows);
                record::push(buf, Change { tablet: tablet.id, key: key.key, row });
            }
        });
        if !matches!(appended, Ok(Ok(_)))
            && let Some(unused) = taken.take()
        {
            // Others go on, whatever this one waits for.
            self.timeline.complete(unused);
        }
        match appended? {
            Ok(lsn) => {
                let unfilled = || Error::internal("the log took a record without filling it");
                Ok(Ok((lsn, taken.ok_or_else(unfilled)?)))
            }
            Err(needed) => Ok(Err(needed)),
        }
    }

    /// Applies the staged rows and completes the write. All are seen at once, so that only one alone completes it.
    fn apply(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        scratch: &mut Scratch,
        lsn: Lsn,
        ts: Timestamp,
    ) {
        match &mut *scratch.staged {
            [alone] => {
                let (tablet, key) = targets[alone.op];
                let state = tablet.state();
                let new = alone.version(ops, &scratch.rows, &state.active, lsn, ts);
                let published = || {
                    self.timeline.complete(ts);
                    self.timeline.horizon()
                };
                // Those that are there by then: a flush may have moved the row into another one meanwhile.
                let in_files = || tablet.state().files.may_contain(key.key);
                alone.covers = state.active.apply(&self.index, key, new, published, in_files);
            }
            _ => {
                self.apply_all(ops, targets, scratch, lsn, ts);
                self.timeline.complete(ts);
            }
        }
        self.counters.rows_written.fetch_add(scratch.staged.len() as u64, Relaxed);
    }

    fn apply_all(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        scratch: &mut Scratch,
        lsn: Lsn,
        ts: Timestamp,
    ) {
        let Scratch { rows, staged, .. } = scratch;
        let horizon = self.timeline.horizon();
        let (mut states, mut run) = (States::default(), Run::default());
        for group in staged.chunks_mut(GROUP) {
            // Again: since they were decided, others of the write came into the processor's cache.
            // New rows have but a place there.
            let _ahead = self.index.fetch_ahead(
                group.iter().map(|staged| (targets[staged.op].1.hash, staged.older != Older::Nothing)),
            );
            for staged in group {
                let (tablet, key) = targets[staged.op];
                let memtable = &states.of(tablet).active;
                let new = staged.version(ops, rows, memtable, lsn, ts);
                run.switch_to(memtable, &self.index);
                let in_files = || tablet.state().files.may_contain(key.key);
                staged.covers = run.apply(&self.index, key, new, horizon, in_files);
            }
            run.note_if_many(&self.index);
        }
        run.note(&self.index);
    }

    /// Waits until every reader sees what was applied, or observed, at `ts`, and frees the versions that were replaced, unless a
    /// snapshot still reads them.
    fn finish(&self, targets: &[Target<'_>], staged: &[Staged], ts: Timestamp) -> Result<()> {
        self.timeline.wait_for_watermark(ts)?;
        if staged.is_empty() {
            return Ok(());
        }
        let mut covering = staged.iter().filter(|staged| staged.covers).peekable();
        if covering.peek().is_some() {
            let horizon = self.timeline.horizon();
            let mut states = States::default();
            for staged in covering.take_while(|_| horizon >= ts) {
                let (tablet, key) = targets[staged.op];
                states.of(tablet).active.trim(&self.index, key, horizon);
            }
        }
        if self.budget.wants_flush() {
            self.background.wake();
        }
        Ok(())
    }

    /// As [`finish`](Self::finish), of a write that does not wait until readers see what was applied or observed at `ts`: its
    /// answer must. What it replaced is freed by the next write of the row, or by a flush.
    #[cold]
    fn finish_unseen(&self, result: Result<Commit>, ts: Timestamp) -> Result<Commit> {
        if self.budget.wants_flush() {
            self.background.wake();
        }
        // A refusal has no obligation.
        let mut commit = result.map_err(|_| would_block("others' writes are not seen yet"))?;
        commit.obligation.visible = ts;
        Ok(commit)
    }
}

fn is_told_to_wait(result: &Result<Commit>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// The same, to be answered when all see what was written.
pub(crate) fn unseen(tracked: Tracked) -> Tracked {
    match tracked {
        Tracked::Answered(mut answered) => {
            answered.commit.obligation.visible = answered.commit.ts;
            Tracked::Answered(answered)
        }
        other => other,
    }
}

/// The state of the tablet that was asked for last: most operations of a write go to one tablet. Its active
/// memtable stays the active one under the gate, and what is trimmed later counts for whichever it was. Its files do not stay:
/// who asks for those needs the present ones.
#[derive(Default)]
struct States<'a>(Option<(&'a Tablet, arc_swap::Guard<Arc<TabletState>>)>);

impl<'a> States<'a> {
    fn of(&mut self, tablet: &'a Tablet) -> &TabletState {
        if self.0.as_ref().is_none_or(|(last, _)| !std::ptr::eq(*last, tablet)) {
            self.0 = None;
        }
        &self.0.get_or_insert_with(|| (tablet, tablet.state())).1
    }
}
