//! The first half of a write: its operations are decided, each on the newest version of its key, and the rows that come of
//! it are staged.
//!
//! A write of many rows works on groups of [`GROUP`](crate::index::GROUP): what the keys of a group lead to is fetched at once,
//! so that a row costs no cache miss of its own. Its row is encoded to where it stays until it is applied.

use super::{Decide, Decision, Read, ReadAhead, Scratch, Staged, StagedRow, Target, WriteOp};
use crate::engine::{Engine, Obligation};
use crate::index::{Ahead, GROUP, Older};
use crate::long_reads::FileRowBuffer;
use crate::read::{FileRow, RowVersion};
use crate::tablet::Tablet;
use hashbrown::HashTable;
use oribi_types::{Error, Result, Timestamp};
use std::ops::Range;
use std::sync::Arc;

impl Engine {
    /// Decides all operations. Returns what the decisions observed; when that was is left in the scratch buffer, if it fails
    /// too. `ahead` is what was read from files before.
    pub(super) fn stage(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        now_micros: u64,
        scratch: &mut Scratch,
        decide: &mut Decide<'_>,
        ahead: Option<&ReadAhead>,
    ) -> Result<Obligation> {
        let mut staging = Staging {
            now_micros,
            own: Own::of(ops),
            ahead: None,
            files: Files::default(),
            cold: ahead,
            obligation: Obligation::default(),
            observed: Timestamp::MIN,
        };
        let staged = self.stage_all(ops, targets, &mut staging, scratch, decide);
        scratch.observed = staging.observed;
        staged.map(|()| staging.obligation)
    }

    fn stage_all<'t>(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'t>],
        staging: &mut Staging<'t>,
        scratch: &mut Scratch,
        decide: &mut Decide<'_>,
    ) -> Result<()> {
        let mut bytes: usize = ops.iter().map(|op| op.key.len()).sum();
        for group in groups(ops.len()) {
            // Released first: what others replace is freed between groups.
            staging.ahead = None;
            staging.ahead = (ops.len() > 1).then(|| self.index.fetch_ahead(hashes(&targets[group.clone()])));
            staging.files = Files::default();
            for i in group {
                bytes += self.stage_one(i, ops, targets, staging, scratch, decide)?;
                if bytes > self.options.statement_bytes_max {
                    return Err(Error::too_large(format!(
                        "the statement writes more than statement_bytes_max ({} bytes)",
                        self.options.statement_bytes_max
                    )));
                }
            }
        }
        Ok(())
    }

    /// Decides operation `i`; returns how long the row is that it puts.
    fn stage_one<'t>(
        &self,
        i: usize,
        ops: &[WriteOp<'_>],
        targets: &[Target<'t>],
        staging: &mut Staging<'t>,
        scratch: &mut Scratch,
        decide: &mut Decide<'_>,
    ) -> Result<usize> {
        let Scratch { rows, row: before, staged, .. } = scratch;
        let start = rows.len();
        let mut older = Older::Unresolved { below: 0 };
        let earlier = staging.own.find(i, ops, targets, staged);
        let decision = match (ops[i].read, earlier) {
            (Read::Blind, _) => decide(i, None, rows)?,
            (Read::Existing, Some(earlier)) => {
                let current = staged[earlier].row(ops, rows).map(|row| {
                    before.clear();
                    before.extend_from_slice(row);
                    RowVersion { key: ops[i].key, row: before, ts: Timestamp::MAX }
                });
                decide(i, current, rows)?
            }
            (Read::Existing, None) => {
                self.decide_on_newest(i, &ops[i], targets[i], staging, &mut older, rows, decide)?
            }
        };
        let (row, bytes) = match decision {
            Decision::Put => (StagedRow::Made(start..rows.len()), rows.len() - start),
            Decision::Proposed if ops[i].row.is_empty() => {
                return Err(Error::internal("no row was proposed"));
            }
            Decision::Proposed => (StagedRow::Proposed, ops[i].row.len()),
            Decision::Delete => (StagedRow::Deleted, 0),
            Decision::Keep | Decision::Lock => {
                rows.truncate(start);
                return Ok(0);
            }
        };
        if decision != Decision::Put {
            rows.truncate(start);
        }
        staged.push(Staged { op: i, row, older, covers: false });
        staging.own.push(ops, targets, staged);
        Ok(bytes)
    }

    /// Decides one operation on the newest applied version: from the row index or, under the latch, from the files.
    #[allow(clippy::too_many_arguments)]
    fn decide_on_newest<'t>(
        &self,
        i: usize,
        op: &WriteOp<'_>,
        (tablet, key): Target<'t>,
        staging: &mut Staging<'t>,
        older: &mut Older,
        rows: &mut Vec<u8>,
        decide: &mut Decide<'_>,
    ) -> Result<Decision> {
        // What was in no memory and then in no file, under the latch, still is not: without files nobody fills the cache.
        let was_absent = staging.ahead.as_ref().is_some_and(|ahead| ahead.absent >> (i % GROUP) & 1 == 1);
        if was_absent && staging.lacks_in_files(i, tablet) {
            *older = Older::Nothing;
            return decide(i, None, rows);
        }
        let now_micros = staging.now_micros;
        let in_memory = self.index.read(key, |newest| {
            let ts = newest.meta.ts;
            staging.obligation.merge(Obligation::on(op.table, newest.meta.lsn));
            staging.observed = staging.observed.max(ts);
            let live = newest.row().filter(|row| !op.table.is_expired(row, ts, now_micros));
            decide(i, live.map(|row| RowVersion { key: op.key, row, ts }), rows)
        });
        let stamp = match in_memory {
            Ok(decision) => return decision,
            Err(stamp) => stamp,
        };
        if !tablet.has_files() {
            *older = Older::Nothing;
            return decide(i, None, rows);
        }
        if let Some((found, row)) = staging.cold.and_then(|cold| cold.find(op.table, tablet, key)) {
            return decide(i, staging.note(op, found, row, older), rows);
        }
        // Whoever is pinned keeps what others replace, which must not last as long as reading files does.
        staging.ahead = None;
        let mut buffer = FileRowBuffer::urgent();
        let found = self.read_files(op.table, tablet, op.key, Timestamp::MAX, &mut buffer)?;
        let Some(found) = found else {
            *older = Older::Nothing;
            return decide(i, None, rows);
        };
        if found.may_cache && !tablet.is_changing() {
            self.index.fill(key, stamp, &buffer.row, found.ts, found.home);
        }
        decide(i, staging.note(op, found, &buffer.row, older), rows)
    }
}

/// What deciding a write's operations needs and gathers.
struct Staging<'a> {
    now_micros: u64,
    own: Own,
    /// Of the group that is being decided; gone once it must not be pinned any more.
    ahead: Option<Ahead>,
    /// Asked after `ahead`: a row that a flush moved in between was seen in memory.
    files: Files<'a>,
    /// What was read from files before the keys were latched.
    cold: Option<&'a ReadAhead>,
    /// What the decisions observed.
    obligation: Obligation,
    /// The newest of the versions that they were made on.
    observed: Timestamp,
}

impl<'a> Staging<'a> {
    /// Whether no file has the key of operation `i`, which is not in memory, as far as that is known.
    fn lacks_in_files(&mut self, i: usize, tablet: &'a Arc<Tablet>) -> bool {
        match self.files.of(tablet, self.cold) {
            FilesNow::None => true,
            FilesNow::LookedAt => self.cold.is_some_and(|cold| cold.was_absent(i)),
            FilesNow::Others => false,
        }
    }

    /// Notes the row that a file has; returns what is to be decided on.
    fn note<'r>(
        &mut self,
        op: &WriteOp<'r>,
        found: FileRow,
        row: &'r [u8],
        older: &mut Older,
    ) -> Option<RowVersion<'r>> {
        *older = Older::At(found.home);
        self.observed = self.observed.max(found.visible_from);
        let is_live = !op.table.is_expired(row, found.ts, self.now_micros);
        is_live.then_some(RowVersion { key: op.key, row, ts: found.ts })
    }
}

/// The files of the tablet that was asked for last, as they were then.
#[derive(Default)]
struct Files<'a>(Option<(&'a Arc<Tablet>, FilesNow)>);

#[derive(Clone, Copy)]
enum FilesNow {
    None,
    /// Those in which was looked for the operations before.
    LookedAt,
    Others,
}

impl<'a> Files<'a> {
    fn of(&mut self, tablet: &'a Arc<Tablet>, cold: Option<&ReadAhead>) -> FilesNow {
        match self.0 {
            Some((last, now)) if Arc::ptr_eq(last, tablet) => now,
            _ => {
                let now = match cold {
                    _ if !tablet.has_files() => FilesNow::None,
                    Some(cold) if cold.is_current(tablet) => FilesNow::LookedAt,
                    _ => FilesNow::Others,
                };
                self.0.insert((tablet, now)).1
            }
        }
    }
}

/// Staged operations by key, to be seen by later operations on the same key. Without entries where none looks, or all
/// keys ascend, so that no two are the same.
struct Own(Option<HashTable<usize>>);

impl Own {
    #[inline]
    fn of(ops: &[WriteOp<'_>]) -> Self {
        if ops.len() < 2 {
            return Own(None);
        }
        let ascends =
            |pair: &[WriteOp<'_>]| Arc::ptr_eq(pair[0].table, pair[1].table) && pair[0].key < pair[1].key;
        let looks = || ops.iter().any(|op| op.read == Read::Existing);
        let is_needed = looks() && !ops.windows(2).all(ascends);
        Own(is_needed.then(|| HashTable::with_capacity(ops.len())))
    }

    /// The last staged operation on the key of operation `i`.
    fn find(
        &self,
        i: usize,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        staged: &[Staged],
    ) -> Option<usize> {
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
pub(super) fn groups(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(GROUP).map(move |first| first..len.min(first + GROUP))
}

pub(super) fn hashes<'a>(targets: &'a [Target<'_>]) -> impl Iterator<Item = (u64, bool)> + Clone + 'a {
    targets.iter().map(|(_, key)| (key.hash, true))
}
