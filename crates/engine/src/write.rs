//! The write path: latch, read, decide, log, apply, complete.
//!
//! 1. The keys' latches are taken in order, so that nothing changes between deciding and applying.
//! 2. Each operation is decided on the newest applied version of its key; rows are staged in a scratch buffer.
//! 3. Under the shared gate, the record is appended to the log; its timestamp is taken in the same step. From here on
//!    nothing can fail.
//! 4. The rows are applied to the row index and noted in the memtables.
//! 5. When the watermark has passed the timestamp, every reader sees the write, and what it replaced is freed. A write of
//!    one row completes, as a rule, while the row's place is at hand; others look it up again.
//!
//! A single-row write costs one block of the row index, no other allocation, three copies of the row (staged, log buffer,
//! index), no system call and no wake-up; the first after ten quiet minutes syncs the manifest (see `ceiling`).

use crate::catalog::Table;
use crate::engine::{Engine, Obligation};
use crate::index::{GROUP, KeyRef, NewVersion, Older};
use crate::memtable::{Memtable, Run};
use crate::read::{FileRow, RowVersion};
use crate::record::{self, Change};
use crate::tablet::{Tablet, TabletState};
use crate::tracker::{Answered, Begun, Execution, Request, Tracked};
use hashbrown::HashTable;
use oribi_types::key::KEY_BYTES_MAX;
use oribi_types::{Error, Result, Timestamp};
use oribi_wal::Lsn;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// One operation of a write.
pub struct WriteOp<'a> {
    pub table: &'a Arc<Table>,
    /// The encoded key.
    pub key: &'a [u8],
    pub read: Read,
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
    Put,
    Delete,
    /// Leave it as it is.
    Keep,
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
    /// The row's bytes in the scratch buffer; `None` deletes.
    row: Option<Range<usize>>,
    older: Older,
    /// Whether it has replaced versions that were not freed yet.
    covers: bool,
}

impl Staged {
    fn version<'r>(&self, rows: &'r [u8], memtable: &Memtable, lsn: Lsn, ts: Timestamp) -> NewVersion<'r> {
        let row = self.row.clone().map(|range| &rows[range]);
        NewVersion { ts, lsn, memtable: memtable.id, row, older: self.older }
    }
}

#[derive(Default)]
struct Scratch {
    /// The rows of all staged operations, one behind the other.
    rows: Vec<u8>,
    /// What an earlier operation of the write left for a later one on the same key.
    row: Vec<u8>,
    staged: Vec<Staged>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        const { RefCell::new(Scratch { rows: Vec::new(), row: Vec::new(), staged: Vec::new() }) };
}

/// Above this a scratch buffer is not kept for the next write.
const SCRATCH_BYTES_KEPT: usize = 4 << 20;

/// What a tracked write has beside others.
struct Tracking<'t, 'd> {
    execution: Execution<'t>,
    answer: &'t mut Answer<'d>,
    result: Vec<u8>,
}

/// What deciding a write's operations needs and gathers.
struct Staging {
    now_micros: u64,
    own: Own,
    /// What the decisions observed.
    obligation: Obligation,
}

/// Staged operations by key, to be seen by later operations on the same key. Without entries where none looks, or all
/// keys ascend, so that no two are the same.
struct Own(Option<HashTable<usize>>);

impl Own {
    fn of(ops: &[WriteOp<'_>]) -> Self {
        let ascends = |pair: &[WriteOp<'_>]| Arc::ptr_eq(pair[0].table, pair[1].table) && pair[0].key < pair[1].key;
        let looks = || ops.iter().any(|op| op.read == Read::Existing);
        let is_needed = ops.len() > 1 && looks() && !ops.windows(2).all(ascends);
        Own(is_needed.then(|| HashTable::with_capacity(ops.len())))
    }

    /// The last staged operation on the key of operation `i`.
    fn find(&self, i: usize, ops: &[WriteOp<'_>], targets: &[Target<'_>], staged: &[Staged]) -> Option<usize> {
        let same_key = |&s: &usize| is_same_key(ops, targets, staged[s].op, i);
        self.0.as_ref()?.find(targets[i].1.hash, same_key).copied()
    }

    /// Takes in the operation that was staged last.
    fn push(&mut self, ops: &[WriteOp<'_>], targets: &[Target<'_>], staged: &[Staged]) {
        let (Some(own), Some(last)) = (&mut self.0, staged.last()) else { return };
        let (hash, place) = (targets[last.op].1.hash, staged.len() - 1);
        match own.find_mut(hash, |&s| is_same_key(ops, targets, staged[s].op, last.op)) {
            Some(slot) => *slot = place,
            None => {
                own.insert_unique(hash, place, |&s| targets[staged[s].op].1.hash);
            }
        }
    }
}

fn is_same_key(ops: &[WriteOp<'_>], targets: &[Target<'_>], a: usize, b: usize) -> bool {
    let (a_key, b_key) = (targets[a].1, targets[b].1);
    a_key.hash == b_key.hash && ops[a].key == ops[b].key && a_key.generation == b_key.generation
}

/// The positions of `len` operations, in groups that are fetched ahead together.
fn groups(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(GROUP).map(move |first| first..len.min(first + GROUP))
}

fn hashes<'a>(targets: &'a [Target<'_>]) -> impl Iterator<Item = u64> + Clone + 'a {
    targets.iter().map(|(_, key)| key.hash)
}

/// Where an operation goes.
type Target<'a> = (&'a Arc<Tablet>, KeyRef<'a>);

impl Engine {
    /// Applies `ops` atomically, as one log record at one timestamp. Several may name the same key; each sees those
    /// before it (at timestamp `MAX`).
    ///
    /// `decide(i, current, rows)` is called once per operation, in order, with the newest version of its key: `None`
    /// if it is absent or expired, and always for [`Read::Blind`]. For [`Decision::Put`] it appends the encoded row to
    /// `rows`, whatever is in it. It runs under locks and must not call the engine.
    ///
    /// # Errors
    /// Those of `decide`; `TooLarge` beyond `statement_bytes_max`; `NotFound` for a dropped table, `NotCovered` for a row
    /// to put in no partition; `Retry` if a table was truncated or its partitions changed meanwhile; `Unavailable` if the log takes no more. Nothing was applied then.
    pub fn write(&self, ops: &[WriteOp<'_>], decide: &mut Decide<'_>) -> Result<Commit> {
        self.execute(ops, decide, None)
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
        let tracked = match self.results.begin(*request)? {
            Begun::Known(tracked) => tracked,
            Begun::Execute(execution) => {
                let mut tracking = Tracking { execution, answer, result: Vec::new() };
                let commit = self.execute(ops, decide, Some(&mut tracking))?;
                Tracked::Answered(Answered { commit, result: tracking.result.into() })
            }
        };
        if let Tracked::Answered(answered) = &tracked {
            self.timeline.wait_for_watermark(answered.commit.ts);
        }
        Ok(tracked)
    }

    fn execute(
        &self,
        ops: &[WriteOp<'_>],
        decide: &mut Decide<'_>,
        tracking: Option<&mut Tracking<'_, '_>>,
    ) -> Result<Commit> {
        self.budget.wait_for_room()?;
        // One look at the clock serves the whole write.
        let now_micros = self.timeline.now_micros();
        self.reserve_timestamps(now_micros)?;
        let targets = self.targets(ops)?;
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.rows.clear();
            scratch.staged.clear();
            let result = self.write_latched(ops, &targets, now_micros, scratch, decide, tracking);
            if let Ok(commit) = &result {
                self.finish(&targets, &scratch.staged, commit.ts);
            }
            if scratch.rows.capacity() > SCRATCH_BYTES_KEPT {
                *scratch = Scratch::default();
            }
            result
        })
    }

    fn targets<'a>(&self, ops: &'a [WriteOp<'a>]) -> Result<SmallVec<[Target<'a>; 1]>> {
        let mut targets = SmallVec::with_capacity(ops.len());
        for op in ops {
            if op.key.len() > KEY_BYTES_MAX {
                return Err(Error::too_large(format!("key is longer than {KEY_BYTES_MAX} bytes")));
            }
            let tablet = op.table.tablet_of(op.key);
            targets.push((tablet, self.index.key(tablet.generation(), op.key)));
        }
        Ok(targets)
    }

    fn write_latched(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        now_micros: u64,
        scratch: &mut Scratch,
        decide: &mut Decide<'_>,
        mut tracking: Option<&mut Tracking<'_, '_>>,
    ) -> Result<Commit> {
        let _latches = self.latches.take(targets.iter().map(|(_, key)| key.hash));
        let mut obligation = self.stage(ops, targets, now_micros, scratch, decide)?;
        if let Some(tracking) = &mut tracking {
            self.note_result(tracking)?;
        } else if scratch.staged.is_empty() {
            return Ok(Commit { ts: self.timeline.watermark(), obligation });
        }
        let _gate = self.gate.read();
        if self.closed.load(Relaxed) {
            return Err(Error::unavailable("the engine is closed"));
        }
        for (i, (tablet, key)) in targets.iter().enumerate() {
            // What is kept as it is needs no tablet.
            if tablet.is_dropped() && scratch.staged.iter().any(|staged| staged.op == i) {
                return Err(self.no_tablet(ops[i].table, ops[i].key));
            }
            if tablet.generation() != key.generation {
                return Err(Error::retry("the table was truncated meanwhile"));
            }
        }
        let (lsn, ts) = self.log_record(targets, now_micros, scratch, tracking.as_deref())?;
        self.apply(targets, scratch, lsn, ts);
        for staged in &scratch.staged {
            obligation.merge(Obligation::on(ops[staged.op].table, lsn));
        }
        let mut commit = Commit { ts, obligation };
        if let Some(tracking) = tracking {
            commit.obligation.merge(on_all(ops, lsn));
            // Under the gate, so that no checkpoint of results below the log's end misses it.
            tracking.execution.finish(commit, &tracking.result);
        }
        Ok(commit)
    }

    /// Has the result written down, of a write whose operations are all decided.
    fn note_result(&self, tracking: &mut Tracking<'_, '_>) -> Result<()> {
        (tracking.answer)(&mut tracking.result);
        if tracking.result.len() > self.options.statement_bytes_max {
            return Err(Error::too_large(format!(
                "the result of the write is longer than statement_bytes_max ({} bytes)",
                self.options.statement_bytes_max
            )));
        }
        Ok(())
    }

    /// Decides all operations. Returns what the decisions observed.
    fn stage(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        now_micros: u64,
        scratch: &mut Scratch,
        decide: &mut Decide<'_>,
    ) -> Result<Obligation> {
        let mut staging = Staging { now_micros, own: Own::of(ops), obligation: Obligation::default() };
        let keys_bytes: usize = ops.iter().map(|op| op.key.len()).sum();
        for group in groups(ops.len()) {
            // Pinned once for a group, and what its keys lead to is fetched at once.
            let _pinned = (ops.len() > 1).then(|| self.index.fetch_ahead(hashes(&targets[group.clone()])));
            for i in group {
                self.stage_one(i, ops, targets, &mut staging, scratch, decide)?;
                if keys_bytes + scratch.rows.len() > self.options.statement_bytes_max {
                    return Err(Error::too_large(format!(
                        "the statement writes more than statement_bytes_max ({} bytes)",
                        self.options.statement_bytes_max
                    )));
                }
            }
        }
        Ok(staging.obligation)
    }

    fn stage_one(
        &self,
        i: usize,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        staging: &mut Staging,
        scratch: &mut Scratch,
        decide: &mut Decide<'_>,
    ) -> Result<()> {
        let Scratch { rows, row: before, staged } = scratch;
        let start = rows.len();
        let mut older = Older::Unresolved { below: 0 };
        let earlier = staging.own.find(i, ops, targets, staged);
        let decision = match (ops[i].read, earlier) {
            (Read::Blind, _) => decide(i, None, rows)?,
            (Read::Existing, Some(earlier)) => {
                let range = staged[earlier].row.clone();
                before.clear();
                before.extend_from_slice(range.clone().map_or(&[], |range| &rows[range]));
                let current = range.map(|_| RowVersion { key: ops[i].key, row: before, ts: Timestamp::MAX });
                decide(i, current, rows)?
            }
            (Read::Existing, None) => {
                self.decide_on_newest(i, &ops[i], targets[i], staging, &mut older, rows, decide)?
            }
        };
        let row = match decision {
            Decision::Put => Some(start..rows.len()),
            Decision::Delete => None,
            Decision::Keep => {
                rows.truncate(start);
                return Ok(());
            }
        };
        staged.push(Staged { op: i, row, older, covers: false });
        staging.own.push(ops, targets, staged);
        Ok(())
    }

    /// Decides one operation on the newest applied version: from the row index or, under the latch, from the files.
    #[allow(clippy::too_many_arguments)]
    fn decide_on_newest(
        &self,
        i: usize,
        op: &WriteOp<'_>,
        (tablet, key): Target<'_>,
        staging: &mut Staging,
        older: &mut Older,
        rows: &mut Vec<u8>,
        decide: &mut Decide<'_>,
    ) -> Result<Decision> {
        let now_micros = staging.now_micros;
        let in_memory = self.index.read(key, |newest| {
            let ts = newest.meta.ts;
            staging.obligation.merge(Obligation::on(op.table, newest.meta.lsn));
            let live = newest.row().filter(|row| !op.table.is_expired(row, ts, now_micros));
            decide(i, live.map(|row| RowVersion { key: op.key, row, ts }), rows)
        });
        let stamp = match in_memory {
            Ok(decision) => return decision,
            Err(stamp) => stamp,
        };
        let mut found = Vec::new();
        match self.read_files(op.table, tablet, op.key, Timestamp::MAX, &mut found)? {
            None => {
                *older = Older::Nothing;
                decide(i, None, rows)
            }
            Some(FileRow { ts, home, .. }) => {
                *older = Older::At(home);
                self.index.fill(key, stamp, &found, ts, home);
                let live = !op.table.is_expired(&found, ts, now_micros);
                decide(i, live.then_some(RowVersion { key: op.key, row: &found, ts }), rows)
            }
        }
    }

    /// Appends the record; takes its LSN and, in the same step, its timestamp.
    fn log_record(
        &self,
        targets: &[Target<'_>],
        now_micros: u64,
        scratch: &Scratch,
        tracking: Option<&Tracking<'_, '_>>,
    ) -> Result<(Lsn, Timestamp)> {
        let mut taken = None;
        let appended = self.log.append(0, &mut |_, buf| {
            // The log may ask again after waiting for room; only the last timestamp is used.
            if let Some(unused) = taken.replace(self.timeline.begin(now_micros)) {
                self.timeline.complete(unused);
            }
            let ts = taken.expect("a timestamp was just taken");
            match tracking {
                None => record::start(buf, ts),
                Some(Tracking { execution, result, .. }) => {
                    record::start_tracked(buf, ts, record::Tracked { request: execution.request(), result });
                }
            }
            for staged in &scratch.staged {
                let (tablet, key) = targets[staged.op];
                let row = staged.row.clone().map(|range| &scratch.rows[range]);
                record::push(buf, Change { tablet: tablet.id, key: key.key, row });
            }
        });
        match (appended, taken) {
            (Ok(lsn), Some(ts)) => Ok((lsn, ts)),
            (Ok(_), None) => Err(Error::internal("the log took a record without filling it")),
            (Err(error), unused) => {
                if let Some(ts) = unused {
                    self.timeline.complete(ts);
                }
                Err(error)
            }
        }
    }

    /// Applies the staged rows and completes the write. All are seen at once, so that only one alone completes it.
    fn apply(&self, targets: &[Target<'_>], scratch: &mut Scratch, lsn: Lsn, ts: Timestamp) {
        match &mut *scratch.staged {
            [alone] => {
                let (tablet, key) = targets[alone.op];
                let state = tablet.state();
                let new = alone.version(&scratch.rows, &state.active, lsn, ts);
                let published = || {
                    self.timeline.complete(ts);
                    self.timeline.horizon()
                };
                let in_files = || state.files.may_contain(key.key);
                alone.covers = state.active.apply(&self.index, key, new, published, in_files);
            }
            _ => {
                self.apply_all(targets, scratch, lsn, ts);
                self.timeline.complete(ts);
            }
        }
        self.counters.rows_written.fetch_add(scratch.staged.len() as u64, Relaxed);
    }

    fn apply_all(&self, targets: &[Target<'_>], scratch: &mut Scratch, lsn: Lsn, ts: Timestamp) {
        let Scratch { rows, staged, .. } = scratch;
        let horizon = self.timeline.horizon();
        let (mut states, mut run) = (States::default(), Run::default());
        for group in staged.chunks_mut(GROUP) {
            let _pinned = self.index.fetch_ahead(group.iter().map(|staged| targets[staged.op].1.hash));
            for staged in group {
                let (tablet, key) = targets[staged.op];
                let state = states.of(tablet);
                let new = staged.version(rows, &state.active, lsn, ts);
                run.switch_to(&state.active, &self.index);
                staged.covers = run.apply(&self.index, key, new, horizon, || state.files.may_contain(key.key));
            }
        }
        run.note(&self.index);
    }

    /// Waits until every reader sees what was applied at `ts`, and frees the versions that it replaced, unless a
    /// snapshot still reads them.
    fn finish(&self, targets: &[Target<'_>], staged: &[Staged], ts: Timestamp) {
        if staged.is_empty() {
            return;
        }
        self.timeline.wait_for_watermark(ts);
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
    }
}

/// What an answer about all rows of a write must wait for, those included that were kept. A write of no row waits for the
/// disk: no table says less.
fn on_all(ops: &[WriteOp<'_>], lsn: Lsn) -> Obligation {
    let mut obligation = Obligation { durable: if ops.is_empty() { lsn } else { 0 }, written: 0 };
    ops.iter().for_each(|op| obligation.merge(Obligation::on(op.table, lsn)));
    obligation
}

/// The state of the tablet that was asked for last: most operations of a write go to one tablet. Under the gate, its
/// active memtable stays the active one.
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

const LATCHES: usize = 4096;
const WORD_BITS: usize = u64::BITS as usize;

/// Locks over keys, by hash. Two keys may share one.
pub(crate) struct Latches(Box<[Mutex<()>]>);

impl Latches {
    pub fn new() -> Self {
        Latches((0..LATCHES).map(|_| Mutex::new(())).collect())
    }

    /// Takes every latch: nobody is between deciding and applying.
    pub fn take_all(&self) -> Vec<MutexGuard<'_, ()>> {
        self.0.iter().map(|latch| latch.lock()).collect()
    }

    /// Takes the latches of all hashes, in one order for everybody, so that no two writers wait for each other.
    fn take(&self, mut hashes: impl ExactSizeIterator<Item = u64>) -> SmallVec<[MutexGuard<'_, ()>; 1]> {
        let lock = |i: usize| self.0[i].lock();
        if hashes.len() == 1
            && let Some(hash) = hashes.next()
        {
            return SmallVec::from_buf([lock(hash as usize % LATCHES)]);
        }
        let mut wanted = [0_u64; LATCHES / WORD_BITS];
        hashes.map(|hash| hash as usize % LATCHES).for_each(|i| wanted[i / WORD_BITS] |= 1 << (i % WORD_BITS));
        let mut latches = SmallVec::with_capacity(wanted.iter().map(|word| word.count_ones() as usize).sum());
        for (i, mut word) in wanted.into_iter().enumerate() {
            while word != 0 {
                latches.push(lock(i * WORD_BITS + word.trailing_zeros() as usize));
                word &= word - 1;
            }
        }
        latches
    }
}
