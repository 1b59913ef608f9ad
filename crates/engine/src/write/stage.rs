//! The first half of a write: its operations are decided, each on the newest version of its key, and the rows that come of
//! it are staged.
//!
//! A write of many rows works on groups of [`GROUP`](crate::index::GROUP): what the keys of a group lead to is fetched at once,
//! so that a row costs no cache miss of its own. Its row is encoded to where it stays until it is applied.

use super::{Decide, Decision, Read, Scratch, Staged, StagedRow, Target, WriteOp};
use crate::engine::{Engine, Obligation};
use crate::index::{Ahead, GROUP, Older};
use crate::read::{FileRow, RowVersion};
use crate::tablet::Tablet;
use hashbrown::HashTable;
use oribi_types::{Error, Result, Timestamp};
use std::ops::Range;
use std::sync::Arc;

impl Engine {
    /// Decides all operations. Returns what the decisions observed; when that was is left in the scratch buffer, if it fails
    /// too.
    pub(super) fn stage(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        now_micros: u64,
        scratch: &mut Scratch,
        decide: &mut Decide<'_>,
    ) -> Result<Obligation> {
        let mut staging = Staging {
            now_micros,
            own: Own::of(ops),
            ahead: None,
            files: Files::default(),
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
            Decision::Keep => {
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
        if was_absent && !staging.files.has(tablet) {
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
        // Whoever is pinned keeps what others replace, which must not last as long as reading files does.
        staging.ahead = None;
        let mut found = Vec::new();
        match self.read_files(op.table, tablet, op.key, Timestamp::MAX, &mut found)? {
            None => {
                *older = Older::Nothing;
                decide(i, None, rows)
            }
            Some(FileRow { ts, home, visible_from, may_cache, .. }) => {
                *older = Older::At(home);
                staging.observed = staging.observed.max(visible_from);
                if may_cache {
                    self.index.fill(key, stamp, &found, ts, home);
                }
                let live = !op.table.is_expired(&found, ts, now_micros);
                decide(i, live.then_some(RowVersion { key: op.key, row: &found, ts }), rows)
            }
        }
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
    /// What the decisions observed.
    obligation: Obligation,
    /// The newest of the versions that they were made on.
    observed: Timestamp,
}

/// Whether the tablet that was asked for last had files then.
#[derive(Default)]
struct Files<'a>(Option<(&'a Tablet, bool)>);

impl<'a> Files<'a> {
    fn has(&mut self, tablet: &'a Tablet) -> bool {
        match self.0 {
            Some((last, has_files)) if std::ptr::eq(last, tablet) => has_files,
            _ => self.0.insert((tablet, tablet.has_files())).1,
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
fn groups(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(GROUP).map(move |first| first..len.min(first + GROUP))
}

fn hashes<'a>(targets: &'a [Target<'_>]) -> impl Iterator<Item = (u64, bool)> + Clone + 'a {
    targets.iter().map(|(_, key)| (key.hash, true))
}
