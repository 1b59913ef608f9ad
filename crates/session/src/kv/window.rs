//! Operations that arrived together, executed in stages: hash all keys, find all rows, make the changes as one write,
//! answer all. The misses of one stage overlap, and a group of changes costs one log record.
//!
//! The result is that of executing one after the other, since operations on different keys commute: what a window
//! must not hold is a change of a key that was read before in it.

use super::change::{Change, Outcome, Plan};
use super::path::{self, Key, Target};
use super::{Document, KeyValue, Round, Watch, write};
use oribi_engine::{
    Engine, Lookup, Obligation, Pinned, Presence, Probe, Read, ReadView, RowVersion, Sighting,
};
use oribi_types::{Error, Result};
use smallvec::SmallVec;

/// Operations of a window at most.
const OPS_MAX: usize = 128;
/// Operations for which a window needs no memory of its own.
const INLINE: usize = 4;
/// Bytes of values that a window reads or writes, unless one alone has more.
const BYTES_MAX: usize = 256 * 1024;

/// One operation.
pub enum Op<'a> {
    Get(Key<'a>),
    Change(Change<'a>),
}

/// What an operation is answered with.
pub enum Answer<'a> {
    Found(Document<'a>),
    Absent,
    Changed(&'a Outcome),
    /// A get could not be executed.
    Refused(Error),
}

/// How far a window came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Operations executed and answered, from the first.
    pub ops: usize,
    /// The next one needs a file, and the round may not block.
    pub pending: bool,
}

impl Round<'_> {
    /// Executes the first of `ops` as if one after the other, at most [`OPS_MAX`] and about [`BYTES_MAX`] of values;
    /// at least one, unless it is pending. `answer(i, …)` is called once for each that was executed, in order.
    pub fn run(&mut self, ops: &[Op<'_>], answer: &mut dyn FnMut(usize, Answer<'_>)) -> Ran {
        let ops = &ops[..ops.len().min(OPS_MAX)];
        let (engine, limits) = (&self.kv.engine, &self.kv.limits);
        self.key.clear();
        let targets: Targets<'_> =
            ops.iter().map(|op| path::resolve(&self.tables, limits, op.key(), &mut self.key)).collect();
        let scratch = &self.key[..];
        let probes = probes(engine, &targets, scratch);
        // Who may wait for a file must not be pinned.
        let pinned = (!self.may_block).then(|| engine.pin());
        let sightings = pinned.as_ref().map(|pinned| sightings(engine, &probes, pinned));
        let extent = Extent::of(engine, ops, &probes, sightings.as_deref());
        let (ops, pending) = (&ops[..extent.ops], extent.pending);

        let outcomes = changed(self.kv, ops, &targets, scratch);
        if let Some((_, obligation)) = &outcomes {
            self.obligation.merge(*obligation);
            // What follows sees what was written; and a snapshot held now would keep what is overwritten.
            (self.view, self.held) = (None, None);
            pinned.iter().for_each(Pinned::reclaim);
        }
        let view = match &self.held {
            Some(snapshot) => snapshot.view(),
            None => *self.view.get_or_insert_with(|| engine.read_view()),
        };
        // What left memory since it was found is read here and now, if something was written.
        let watch = Watch { locks: &self.kv.locks, now_micros: view.now_micros };
        let reader = Reader { engine, view, watch, may_block: self.may_block || outcomes.is_some() };
        let mut outcomes = outcomes.iter().flat_map(|(outcomes, _)| outcomes);
        for (i, op) in ops.iter().enumerate() {
            match (op, &targets[i], probes[i]) {
                (Op::Change(_), ..) => {
                    answer(i, Answer::Changed(outcomes.next().expect("an outcome for each change")));
                }
                (Op::Get(_), Ok(target), Some(probe)) => {
                    // What was changed in this window must be found anew.
                    let sighting = sightings.as_ref().filter(|_| !extent.changed.contains(probe.hash()));
                    let sighting = sighting.map(|sightings| sightings[i]);
                    match reader.get(probe, sighting, target, &mut self.json, &mut |found| answer(i, found)) {
                        Some(obligation) => self.obligation.merge(obligation),
                        None => return Ran { ops: i, pending: true },
                    }
                }
                (Op::Get(_), Err(error), _) => answer(i, Answer::Refused(error.clone())),
                (Op::Get(_), Ok(_), None) => unreachable!("what has a target has a probe"),
            }
        }
        Ran { ops: ops.len(), pending }
    }
}

fn probes<'a>(
    engine: &Engine,
    targets: &'a [Result<Target<'a>>],
    scratch: &'a [u8],
) -> SmallVec<[Option<Probe<'a>>; INLINE]> {
    let probe = |target: &'a Target<'a>| engine.probe(target.table, target.key(scratch));
    targets.iter().map(|target| target.as_ref().ok().map(probe)).collect()
}

/// Fetches what the probes are about: all buckets, then all rows.
fn sightings<'g>(
    engine: &'g Engine,
    probes: &[Option<Probe<'_>>],
    pinned: &'g Pinned,
) -> SmallVec<[Sighting<'g>; INLINE]> {
    probes.iter().flatten().for_each(|probe| engine.prefetch(*probe, pinned));
    probes.iter().map(|probe| probe.map_or(Sighting::NOTHING, |probe| engine.sight(probe, pinned))).collect()
}

type Targets<'a> = SmallVec<[Result<Target<'a>>; INLINE]>;

/// Makes the changes among `ops` as one write. Their outcomes, if there are any, and what must be settled.
fn changed(
    kv: &KeyValue,
    ops: &[Op<'_>],
    targets: &[Result<Target<'_>>],
    scratch: &[u8],
) -> Option<(Vec<Outcome>, Obligation)> {
    let changes = || ops.iter().zip(targets).filter_map(|(op, target)| Some((op.change()?, target)));
    let count = changes().count();
    if count == 0 {
        return None;
    }
    let mut plan = Plan::new(&kv.limits, &kv.locks, kv.now_micros(), count);
    changes().for_each(|(change, target)| plan.push(change, target, scratch));
    let obligation = write(&kv.engine, &mut plan);
    Some((plan.into_outcomes(), obligation))
}

/// How many operations make one window.
#[derive(Default)]
struct Extent {
    ops: usize,
    /// It ends at an operation that needs a file.
    pending: bool,
    read: KeySet,
    changed: KeySet,
    bytes: usize,
}

impl Extent {
    /// Of a window that may not block if there are `sightings`.
    fn of(
        engine: &Engine,
        ops: &[Op<'_>],
        probes: &[Option<Probe<'_>>],
        sightings: Option<&[Sighting<'_>]>,
    ) -> Self {
        let mut extent = Extent::default();
        for (i, (op, probe)) in ops.iter().zip(probes).enumerate() {
            extent.ops = i;
            let Some(probe) = *probe else { continue };
            let needs_row = op.change().is_none_or(|change| change.read() == Read::Existing);
            let presence = match sightings {
                Some(sightings) => engine.presence(probe, sightings[i]),
                None => engine.locate(probe),
            };
            if needs_row && presence == Presence::Files && sightings.is_some() {
                extent.pending = true;
                return extent;
            }
            if !extent.takes(op, probe, presence) && i > 0 {
                return extent;
            }
        }
        extent.ops = ops.len();
        extent
    }

    fn takes(&mut self, op: &Op<'_>, probe: Probe<'_>, presence: Presence) -> bool {
        let fits = match op {
            Op::Get(_) => {
                self.read.insert(probe.hash());
                if let Presence::Memory(bytes) = presence {
                    self.bytes += bytes;
                }
                true
            }
            Op::Change(change) => {
                self.bytes += change.bytes();
                let hash = probe.hash();
                let conflicts =
                    self.read.contains(hash) || (change.sees_cas() && self.changed.contains(hash));
                self.changed.insert(hash);
                !conflicts
            }
        };
        fits && self.bytes <= BYTES_MAX
    }
}

/// A set of keys that may claim to hold a few more: with a full window, one in ten.
#[derive(Default)]
struct KeySet([u64; 16]);

impl KeySet {
    fn insert(&mut self, hash: u64) {
        self.0[hash as usize % 16] |= 1 << (hash >> 4 & 63);
    }

    fn contains(&self, hash: u64) -> bool {
        self.0[hash as usize % 16] >> (hash >> 4 & 63) & 1 == 1
    }
}

struct Reader<'a> {
    engine: &'a Engine,
    view: ReadView,
    watch: Watch<'a>,
    may_block: bool,
}

impl Reader<'_> {
    /// Answers a get; returns what must be settled, or `None` if only a reader that may block can tell.
    fn get(
        &self,
        probe: Probe<'_>,
        sighting: Option<Sighting<'_>>,
        target: &Target<'_>,
        json: &mut Vec<u8>,
        answer: &mut dyn FnMut(Answer<'_>),
    ) -> Option<Obligation> {
        let mut read = |version: RowVersion<'_>| match self.watch.shown(target, &version, json) {
            Ok(document) => answer(Answer::Found(document)),
            Err(error) => answer(Answer::Refused(error)),
        };
        let looked_up = match sighting {
            Some(sighting) => self.engine.try_read_sighted(probe, sighting, self.view, &mut read),
            None => self.engine.try_read(probe, self.view, &mut read),
        };
        match looked_up {
            Lookup::Found((), obligation) => return Some(obligation),
            Lookup::Absent(obligation) => {
                answer(Answer::Absent);
                return Some(obligation);
            }
            Lookup::Pending if !self.may_block => return None,
            Lookup::Pending => {}
        }
        match self.engine.read(probe, self.view, &mut read) {
            Ok((Some(()), obligation)) => Some(obligation),
            Ok((None, obligation)) => {
                answer(Answer::Absent);
                Some(obligation)
            }
            Err(error) => {
                answer(Answer::Refused(error));
                Some(Obligation::default())
            }
        }
    }
}

impl<'a> Op<'a> {
    fn key(&self) -> Key<'a> {
        match self {
            Op::Get(key) => *key,
            Op::Change(change) => change.key,
        }
    }

    fn change(&self) -> Option<&Change<'a>> {
        match self {
            Op::Get(_) => None,
            Op::Change(change) => Some(change),
        }
    }
}
