//! A write of so many bytes that others would wait for it: it goes to the log in fragments, between which others append, and is
//! applied at a timestamp that is still ahead of all others.
//!
//! 1. With its keys latched and its rows decided, but without gate or timestamp, the fragments are appended, each written out by
//!    itself. They count for nothing yet, and those that get no commit never will.
//! 2. Under the shared gate a timestamp is [appointed](crate::timeline::Fixed), below which all others get theirs. The rows are
//!    applied at it: nobody reads so far ahead, and who would decide on them waits for the latches.
//! 3. The commit is appended, a record of a few bytes for which room was kept, and the timestamp taken in the same step: log order
//!    is timestamp order.
//! 4. The commit is made durable, if it has to be, and then the write completes. Versions name the first fragment's LSN, since the
//!    commit's was not known when they were made; who is to wait for that LSN finds it durable, and the commit with it.
//!
//! So others wait for one record to be copied or synced, whatever the write's size. Only those who write the same rows wait for
//! all of it.
//!
//! Who must not wait takes its timestamp with the commit and applies the rows then, as smaller writes do: others' answers wait for
//! that. So does a write for which no timestamp can be appointed.

use super::{Refusal, Scratch, Staged, Target, WriteOp};
use crate::engine::{Engine, Obligation};
use crate::record::{self, BulkCommit, Change};
use crate::tablet::Tablet;
use crate::tracked::{Tracks, would_block};
use crate::write::Commit;
use oribi_env::locks::{self, Mutex};
use oribi_types::{Error, Result, Timestamp};
use oribi_wal::{Log, Lsn};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// So much is appended before it is made durable: the sync that somebody else waits for has no more of it.
const SYNC_BYTES: usize = 4 << 20;

/// Below which LSN no bulk write has fragments that no memtable has noted yet: the log keeps them.
#[derive(Default)]
pub(crate) struct Fragmented(Mutex<Vec<Lsn>, { locks::LEAF }>);

/// Of a write that has records in the log, or will, which no memtable has noted yet.
pub(crate) struct Kept<'e> {
    fragmented: &'e Fragmented,
    from: Lsn,
}

impl Fragmented {
    /// The log keeps what is appended from now on until what this returns is dropped.
    pub fn keep(&self, log: &dyn Log) -> Kept<'_> {
        let mut kept = self.0.lock();
        // Asked for under the lock: who finds nothing here has asked for the log's end before.
        let from = log.appended() + 1;
        kept.push(from);
        Kept { fragmented: self, from }
    }

    pub fn first(&self) -> Option<Lsn> {
        self.0.lock().iter().min().copied()
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let mut kept = self.fragmented.0.lock();
        if let Some(i) = kept.iter().position(|from| *from == self.from) {
            kept.swap_remove(i);
        }
    }
}

/// The fragments of a bulk write. Dropped without a commit, they are given up.
struct Fragments<'e> {
    engine: &'e Engine,
    /// The LSN of the first.
    bulk: Lsn,
    last: Lsn,
    count: u32,
    /// For a commit of so many bytes room is kept.
    promised: Option<usize>,
    is_committed: bool,
}

impl Drop for Fragments<'_> {
    fn drop(&mut self) {
        if self.is_committed || self.count == 0 {
            return;
        }
        let log = &self.engine.log;
        if let Some(bytes) = self.promised {
            log.give_back(bytes);
        }
        // It spares a recovery their memory. Without it they are void all the same.
        let given_up = log.try_append(0, &mut |_, buf| record::give_up(buf, self.bulk));
        if let Err(error) = given_up {
            tracing::debug!(%error, "a bulk write was given up in a log that has stopped");
        }
    }
}

/// A bulk write that is decided.
pub(super) struct Bulk<'w, 'a> {
    pub ops: &'w [WriteOp<'a>],
    pub targets: &'w [Target<'a>],
    pub now_micros: u64,
}

/// What became of one.
struct Applied {
    /// The commit's.
    lsn: Lsn,
    ts: Timestamp,
    /// It was applied at an appointment, before its commit was logged.
    is_ahead: bool,
}

impl Engine {
    /// Whether what is staged is too much for one record.
    pub(super) fn is_bulk(&self, ops: &[WriteOp<'_>], scratch: &Scratch) -> bool {
        let mut left = self.options.fragment_bytes;
        !scratch.staged.iter().all(|staged| {
            let bytes = record::bytes(ops[staged.op].key, staged.row(ops, &scratch.rows));
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        })
    }

    /// Logs and applies what is staged.
    pub(super) fn write_bulk(
        &self,
        bulk: &Bulk<'_, '_>,
        scratch: &mut Scratch,
        tracking: &mut impl Tracks,
        obligation: Obligation,
    ) -> Result<Commit, Refusal> {
        if !tracking.waits() {
            // Who is told to wait tries again and again: with a gate that is closed it would log all of its fragments each time.
            let _open = self.pass(tracking)?;
        }
        // Until the memtables have noted the first fragment.
        let _kept = self.fragmented.keep(&*self.log);
        let mut fragments = self.log_fragments(bulk, scratch, tracking)?;
        let _gate = self.pass(tracking)?;
        let _whole = self.stop_on_panic("a write");
        self.check_targets(bulk.ops, bulk.targets, scratch)?;
        let tablets = tablets(bulk, &scratch.staged);
        let note = |lsn| tablets.iter().for_each(|tablet| tablet.state().active.note(lsn));
        note(fragments.bulk);
        let Applied { lsn, ts, is_ahead } = self.apply_bulk(bulk, scratch, &mut fragments, tracking)?;
        note(lsn);
        let mut commit = Commit { ts, obligation };
        for staged in &scratch.staged {
            commit.obligation.merge(Obligation::on(bulk.ops[staged.op].table, lsn));
        }
        let is_durable = commit.obligation.durable >= lsn;
        // Under the gate, so that no checkpoint of results below the log's end misses it.
        tracking.applied(bulk.ops, lsn, &mut commit);
        if is_ahead {
            // As durable as who reads the rows finds the first fragment. The watermark waits for a commit of a few bytes: all else
            // was on the disk before.
            let settled = if is_durable { self.log.wait_durable(lsn) } else { self.log.write_out() };
            settled.inspect_err(|error| self.fail(error.clone()))?;
        }
        self.timeline.complete(ts);
        self.counters.rows_written.fetch_add(scratch.staged.len() as u64, Relaxed);
        Ok(commit)
    }

    /// The gate, shared by a write of many rows.
    fn pass(&self, tracking: &impl Tracks) -> Result<impl Sized + '_> {
        self.gate.share(usize::MAX, tracking.waits()).ok_or_else(|| would_block("memory is being arranged"))
    }

    /// Applies what is staged and logs its commit, or the other way round. If that fails, the engine stops.
    fn apply_bulk(
        &self,
        bulk: &Bulk<'_, '_>,
        scratch: &mut Scratch,
        fragments: &mut Fragments<'_>,
        tracking: &impl Tracks,
    ) -> Result<Applied> {
        let fail = |error: &Error| self.fail(error.clone());
        let appointed = match tracking.waits() {
            true => self.timeline.appoint_fixed(self.timeline.now_micros()),
            false => None,
        };
        let Some(appointed) = appointed else {
            let taken = || self.timeline.begin(bulk.now_micros);
            let (lsn, ts) = fragments.commit(tracking, taken).inspect_err(fail)?;
            self.apply_all(bulk.ops, bulk.targets, scratch, lsn, ts);
            return Ok(Applied { lsn, ts, is_ahead: false });
        };
        self.apply_all(bulk.ops, bulk.targets, scratch, fragments.bulk, appointed.at());
        let turn = appointed.wait_for_turn();
        let (lsn, ts) =
            turn.and_then(|()| fragments.commit(tracking, || appointed.keep())).inspect_err(fail)?;
        Ok(Applied { lsn, ts, is_ahead: true })
    }

    /// Appends what is staged, in fragments.
    fn log_fragments(
        &self,
        bulk: &Bulk<'_, '_>,
        scratch: &Scratch,
        tracking: &impl Tracks,
    ) -> Result<Fragments<'_>> {
        let mut fragments =
            Fragments { engine: self, bulk: 0, last: 0, count: 0, promised: None, is_committed: false };
        let commit_bytes = fragments.commit_bytes(tracking);
        let (mut rest, mut unsynced) = (&scratch.staged[..], 0);
        while !rest.is_empty() {
            let (part, later) = rest.split_at(self.fragment(bulk, rest, scratch));
            let mut bytes = 0;
            let fill = |buf: &mut Vec<u8>| {
                let start = buf.len();
                for staged in part {
                    let (tablet, key) = bulk.targets[staged.op];
                    let row = staged.row(bulk.ops, &scratch.rows);
                    record::push(buf, Change { tablet: tablet.id, key: key.key, row });
                }
                bytes = buf.len() - start;
            };
            let promise = later.is_empty().then_some(commit_bytes);
            fragments.append(tracking.waits(), promise, fill)?;
            // By itself: who writes out next finds little of it.
            self.log.write_out()?;
            unsynced += bytes;
            if tracking.waits() && unsynced >= SYNC_BYTES {
                self.log.wait_durable(fragments.last)?;
                unsynced = 0;
            }
            rest = later;
        }
        let is_sync = || scratch.staged.iter().any(|staged| bulk.ops[staged.op].table.is_sync());
        if tracking.waits() && is_sync() {
            self.log.wait_durable(fragments.last)?;
        }
        Ok(fragments)
    }

    /// How many of `rest` make a fragment.
    fn fragment(&self, bulk: &Bulk<'_, '_>, rest: &[Staged], scratch: &Scratch) -> usize {
        let mut bytes = 0;
        let fits = |staged: &&Staged| {
            bytes += record::bytes(bulk.ops[staged.op].key, staged.row(bulk.ops, &scratch.rows));
            bytes <= self.options.fragment_bytes
        };
        rest.iter().take_while(fits).count().max(1)
    }
}

impl Fragments<'_> {
    /// Appends the next, with the changes that `fill` pushes. With the last one, room is kept for a commit of as many bytes as the
    /// `promise` says.
    fn append(
        &mut self,
        waits: bool,
        promise: Option<usize>,
        mut fill: impl FnMut(&mut Vec<u8>),
    ) -> Result<()> {
        let log = &self.engine.log;
        let (is_first, bulk) = (self.count == 0, self.bulk);
        let mut fill = |lsn, buf: &mut Vec<u8>| {
            record::start_fragment(buf, if is_first { lsn } else { bulk });
            fill(buf);
        };
        let lsn = loop {
            let appended = match promise {
                None => log.try_append(0, &mut fill),
                Some(commit_bytes) => log.try_append_before(0, commit_bytes, &mut fill),
            };
            match appended? {
                Ok(lsn) => break lsn,
                Err(needed) if waits => log.make_room(needed)?,
                Err(needed) => {
                    log.ask_for_room(needed)?;
                    return Err(would_block("the log makes room"));
                }
            }
        };
        if is_first {
            self.bulk = lsn;
        }
        (self.last, self.promised) = (lsn, promise);
        self.count += 1;
        Ok(())
    }

    fn push_commit(&self, ts: Timestamp, tracking: &impl Tracks, buf: &mut Vec<u8>) {
        let (bulk, fragments) = (self.bulk, self.count);
        record::commit(buf, BulkCommit { ts, bulk, fragments, tracked: tracking.tracked() });
    }

    fn commit_bytes(&self, tracking: &impl Tracks) -> usize {
        let mut buf = Vec::new();
        self.push_commit(Timestamp::MIN, tracking, &mut buf);
        buf.len()
    }

    /// Appends the commit, and has its timestamp taken in the same step.
    fn commit(&mut self, tracking: &impl Tracks, take: impl Fn() -> Timestamp) -> Result<(Lsn, Timestamp)> {
        let unpromised = || Error::internal("the log has kept no room for a commit");
        let bytes = self.promised.ok_or_else(unpromised)?;
        let mut taken = Timestamp::MIN;
        let appended = self.engine.log.append_promised(0, bytes, &mut |_, buf| {
            taken = take();
            self.push_commit(taken, tracking, buf);
        });
        let lsn = appended?;
        self.is_committed = true;
        Ok((lsn, taken))
    }
}

/// The tablets of a write, each once.
fn tablets<'w>(bulk: &Bulk<'w, '_>, staged: &[Staged]) -> Vec<&'w Arc<Tablet>> {
    let mut known = HashSet::new();
    let tablets = staged.iter().map(|staged| bulk.targets[staged.op].0);
    tablets.filter(|tablet| known.insert(tablet.id)).collect()
}
