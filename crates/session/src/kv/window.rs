//! Operations that arrived together, executed in stages: hash all keys, find all rows, make the changes as one write,
//! answer all. The misses of one stage overlap, and a group of changes costs one log record.
//!
//! The result is that of executing one after the other, since operations on different keys commute: what a window
//! must not hold is a change of a key that was read before in it.
//!
//! What a window has in hand is bounded by the rows that it reads and writes. How long one is that only a file has is known once it
//! is looked up there: so a read of one is followed by reads alone, of which those are left to the next window that would be too much.

use super::change::{Change, Outcome, Plan};
use super::path::{self, Key, Target};
use super::{Document, KeyValue, Round, Stop, Watch, write};
use oribi_engine::{
    Engine, Lookup, Obligation, Pinned, Presence, Probe, Read, ReadView, RowVersion, Sighting, UpTo,
};
use oribi_types::{Error, Result};
use smallvec::SmallVec;

/// Operations of a window at most.
const OPS_MAX: usize = 128;
/// Operations for which a window needs no memory of its own.
const INLINE: usize = 4;
/// Bytes of values that a window reads or writes, unless one alone has more; and it answers fewer where a value must be shorter.
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
    /// Why the next one was not.
    pub stop: Option<Stop>,
    /// The next one is answered with a value of so many bytes, about, for which the round has no room; or 0. If it is in a file, it
    /// was not read.
    pub long_bytes: usize,
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
        let room = Room { answer_bytes: self.answer_bytes_max, unknown_bytes: limits.value_bytes_max };
        let extent = Extent::of(engine, ops, &probes, sightings.as_deref(), room);
        let (mut ops, mut stop) = (&ops[..extent.ops], extent.pending.then_some(Stop::NeedsFiles));
        let mut long_next_bytes = extent.long_bytes;

        let outcomes = changed(self.kv, ops, &targets, scratch, self.waits).unwrap_or_else(|needs_turn| {
            // What comes before the changes is answered.
            let before = ops.iter().position(|op| op.change().is_some());
            (ops, stop, long_next_bytes) = (&ops[..before.unwrap_or(0)], Some(needs_turn), 0);
            None
        });
        if let Some((_, obligation)) = &outcomes {
            self.obligation.merge(*obligation);
            // What follows sees what was written; and a snapshot held now would keep what is overwritten.
            (self.view, self.held) = (None, None);
            pinned.iter().for_each(Pinned::reclaim);
        }
        let view = match &self.held {
            Some(snapshot) => snapshot.view(),
            None => *self.view.get_or_insert_with(|| engine.read_view_from(self.obligation.visible)),
        };
        let watch = Watch { locks: &self.kv.locks, now_micros: view.now_micros };
        // What left memory since it was found is read here and now, if changes behind it were made already.
        let last_change = outcomes.as_ref().and_then(|_| ops.iter().rposition(|op| op.change().is_some()));
        let may_block = self.may_block || last_change.is_some();
        let mut reader = Reader { engine, view, watch, may_block };
        let mut outcomes = outcomes.iter().flat_map(|(outcomes, _)| outcomes);
        let mut found_bytes = 0;
        for (i, op) in ops.iter().enumerate() {
            match (op, &targets[i], probes[i]) {
                (Op::Change(_), ..) => {
                    answer(i, Answer::Changed(outcomes.next().expect("an outcome for each change")));
                    reader.may_block = self.may_block || last_change > Some(i);
                }
                (Op::Get(_), Ok(target), Some(probe)) => {
                    // What was changed in this window must be found anew.
                    let sighting = sightings.as_ref().filter(|_| !extent.changed.contains(probe.hash()));
                    let sighting = sighting.map(|sightings| sightings[i]);
                    let json = &mut self.json;
                    let given = if i < extent.loose {
                        reader.get(probe, sighting, target, json, usize::MAX, &mut |found| answer(i, found))
                    } else if found_bytes > BYTES_MAX.min(self.answer_bytes_max) {
                        // Only reads are left.
                        return Ran { ops: i, stop: None, long_bytes: 0 };
                    } else {
                        let most = self.answer_bytes_max;
                        let answer = &mut |found: Answer<'_>| answer(i, found);
                        let (given, bytes) = reader.get_loose(probe, sighting, target, json, most, answer);
                        found_bytes += bytes;
                        given
                    };
                    match given {
                        Ok(obligation) => self.obligation.merge(obligation),
                        Err(Missing::Files) => {
                            return Ran { ops: i, stop: Some(Stop::NeedsFiles), long_bytes: 0 };
                        }
                        Err(Missing::Room(long_bytes)) => return Ran { ops: i, stop: None, long_bytes },
                    }
                }
                (Op::Get(_), Err(error), _) => answer(i, Answer::Refused(error.clone())),
                (Op::Get(_), Ok(_), None) => unreachable!("what has a target has a probe"),
            }
        }
        Ran { ops: ops.len(), stop, long_bytes: long_next_bytes }
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
///
/// # Errors
/// Those of [`write`].
fn changed(
    kv: &KeyValue,
    ops: &[Op<'_>],
    targets: &[Result<Target<'_>>],
    scratch: &[u8],
    waits: bool,
) -> Result<Option<(Vec<Outcome>, Obligation)>, Stop> {
    let changes = || ops.iter().zip(targets).filter_map(|(op, target)| Some((op.change()?, target)));
    let count = changes().count();
    if count == 0 {
        return Ok(None);
    }
    let mut plan = Plan::new(&kv.limits, &kv.locks, kv.now_micros(), count);
    changes().for_each(|(change, target)| plan.push(change, target, scratch));
    let obligation = write(&kv.engine, &mut plan, waits)?;
    Ok(Some((plan.into_outcomes(), obligation)))
}

/// By what a window is cut besides [`BYTES_MAX`].
#[derive(Clone, Copy)]
struct Room {
    /// Longer values are not answered.
    answer_bytes: usize,
    /// What a value has at most of which nothing is known.
    unknown_bytes: usize,
}

/// How many operations make one window.
struct Extent {
    room: Room,
    ops: usize,
    /// It ends at an operation that needs a file.
    pending: bool,
    /// It ends at a change that is answered with a value of so many bytes, for which there is no room; or 0.
    long_bytes: usize,
    /// The first read of what may be long: whoever executes the window may stop there, or at any operation behind it.
    loose: usize,
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
        room: Room,
    ) -> Self {
        let mut extent = Extent {
            room,
            ops: 0,
            pending: false,
            long_bytes: 0,
            loose: usize::MAX,
            read: KeySet::default(),
            changed: KeySet::default(),
            bytes: 0,
        };
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
            if !extent.takes(op, probe, presence) && (i > 0 || extent.long_bytes > 0) {
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
                match presence {
                    // As it is too long, the window most likely ends here.
                    Presence::Memory(bytes) if bytes > self.room.answer_bytes => {
                        self.loose = self.loose.min(self.ops);
                    }
                    Presence::Memory(bytes) => self.bytes += bytes,
                    Presence::Files => self.loose = self.loose.min(self.ops),
                    Presence::Absent => {}
                }
                true
            }
            Op::Change(_) if self.loose < self.ops => false,
            Op::Change(change) => {
                self.bytes += change.bytes();
                self.long_bytes = self.room.lacks(change, presence);
                if self.long_bytes > 0 {
                    return false;
                }
                if change.takes_row_along() {
                    self.bytes += match presence {
                        Presence::Memory(bytes) => bytes,
                        // Alone.
                        Presence::Files => BYTES_MAX + 1,
                        Presence::Absent => 0,
                    };
                }
                let hash = probe.hash();
                let conflicts =
                    self.read.contains(hash) || (change.sees_cas() && self.changed.contains(hash));
                self.changed.insert(hash);
                !conflicts
            }
        };
        fits && self.bytes <= BYTES_MAX.min(self.room.answer_bytes)
    }
}

impl Room {
    /// How long the value is that a change is answered with, if that is too long.
    fn lacks(self, change: &Change<'_>, presence: Presence) -> usize {
        let bytes = match presence {
            _ if !change.is_answered_with_row() => 0,
            Presence::Memory(bytes) => bytes,
            Presence::Files => self.unknown_bytes,
            Presence::Absent => 0,
        };
        if bytes > self.answer_bytes { bytes } else { 0 }
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

/// Why a get was not answered.
#[derive(Clone, Copy)]
enum Missing {
    /// Only a reader that may block can tell.
    Files,
    /// Its value has so many bytes, which are too many.
    Room(usize),
}

struct Reader<'a> {
    engine: &'a Engine,
    view: ReadView,
    watch: Watch<'a>,
    may_block: bool,
}

impl Reader<'_> {
    /// Answers a get, unless it is of a row in a file that has more than `most` bytes; returns what must be settled.
    ///
    /// What is in memory is answered in place: a batch of gets runs through here once for each.
    #[inline]
    fn get(
        &self,
        probe: Probe<'_>,
        sighting: Option<Sighting<'_>>,
        target: &Target<'_>,
        json: &mut Vec<u8>,
        most: usize,
        answer: &mut dyn FnMut(Answer<'_>),
    ) -> Result<Obligation, Missing> {
        let mut read = |version: RowVersion<'_>| self.show(target, &version, json, answer);
        let looked_up = match sighting {
            Some(sighting) => self.engine.try_read_sighted(probe, sighting, self.view, &mut read),
            None => self.engine.try_read(probe, self.view, &mut read),
        };
        match looked_up {
            Lookup::Found((), obligation) => Ok(obligation),
            Lookup::Absent(obligation) => {
                answer(Answer::Absent);
                Ok(obligation)
            }
            Lookup::Pending if self.may_block => self.get_from_files(probe, target, json, most, answer),
            Lookup::Pending => Err(Missing::Files),
        }
    }

    /// As [`get`](Self::get), of what may be long, wherever it is. The second is the bytes of its value.
    #[cold]
    fn get_loose(
        &self,
        probe: Probe<'_>,
        sighting: Option<Sighting<'_>>,
        target: &Target<'_>,
        json: &mut Vec<u8>,
        most: usize,
        answer: &mut dyn FnMut(Answer<'_>),
    ) -> (Result<Obligation, Missing>, usize) {
        let mut bytes = 0;
        let given = self.get(probe, sighting, target, json, most, &mut |found| {
            if let Answer::Found(document) = &found {
                bytes = document.value.len();
            }
            if bytes <= most {
                answer(found);
            }
        });
        (if bytes > most { Err(Missing::Room(bytes)) } else { given }, bytes)
    }

    #[cold]
    fn get_from_files(
        &self,
        probe: Probe<'_>,
        target: &Target<'_>,
        json: &mut Vec<u8>,
        most: usize,
        answer: &mut dyn FnMut(Answer<'_>),
    ) -> Result<Obligation, Missing> {
        let read = |version: RowVersion<'_>| self.show(target, &version, json, answer);
        match self.engine.read_up_to(most, probe, self.view, read) {
            Ok(UpTo::Read(Some(()), obligation)) => Ok(obligation),
            Ok(UpTo::Read(None, obligation)) => {
                answer(Answer::Absent);
                Ok(obligation)
            }
            Ok(UpTo::Longer(bytes)) => Err(Missing::Room(bytes)),
            Err(error) => {
                answer(Answer::Refused(error));
                Ok(Obligation::default())
            }
        }
    }

    #[inline]
    fn show(
        &self,
        target: &Target<'_>,
        version: &RowVersion<'_>,
        json: &mut Vec<u8>,
        answer: &mut dyn FnMut(Answer<'_>),
    ) {
        match self.watch.shown(target, version, json) {
            Ok(document) => answer(Answer::Found(document)),
            Err(error) => answer(Answer::Refused(error)),
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
