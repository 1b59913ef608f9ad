//! The unflushed rows of a range, in key order.
//!
//! Keys come from the ordered views of the tablet's memtables, versions from the row index, some at a time. What was captured
//! counts only if the [`Reading`] is still valid.

use super::{KeyRange, Scope};
use crate::engine::Engine;
use crate::index::{KeyRef, VersionRef, version_at};
use crate::ordered::Run;
use crate::reading::Reading;
use crate::tablet::TabletState;
use smallvec::SmallVec;
use std::ops::Range;

/// Keys that are looked up at once: a few first, because many a reader wants no more.
const KEYS_FIRST: usize = 32;
const KEYS_MAX: usize = 1024;
/// So many keys are sorted before it is known whether anybody reads them in order: it takes little, and says it exactly.
const UNORDERED_MAX: usize = 4096;
/// Keys of a sample. That one range in eight is taken for one in six harms nobody, and so large a part is what is asked for.
const SAMPLE_KEYS: usize = 256;
/// Of a smaller part of the keys so few may be in a sample by chance.
const SAMPLE_FEW: usize = 8;

pub(super) struct MemoryRows {
    /// Those that have keys of the range.
    runs: SmallVec<[RunRest; 2]>,
    /// Versions that the snapshot sees, deletes included, by key.
    captured: Vec<VersionRef>,
    next: usize,
    keys_next: usize,
}

/// What is left of a run.
struct RunRest {
    run: Run,
    keys: Range<usize>,
}

impl RunRest {
    fn head(&self) -> Option<&[u8]> {
        (!self.keys.is_empty()).then(|| self.run.get(self.keys.start))
    }
}

/// What came of a capture.
pub(super) enum Captured {
    /// There are rows.
    Rows,
    /// There are no more.
    End,
    /// The tablet has changed: it is to be looked at anew.
    Stale,
}

impl MemoryRows {
    /// The unflushed rows of `keys`; `None` if no memtable has any of them.
    pub fn new(engine: &Engine, state: &TabletState, keys: &KeyRange) -> Option<Self> {
        let runs = state
            .memtables()
            .filter(|memtable| !memtable.is_empty())
            .flat_map(|memtable| memtable.ordered(&engine.budget).runs(memtable, &engine.index));
        let rests = runs.map(|run| RunRest { keys: keys_within(&run, keys), run });
        let runs: SmallVec<[RunRest; 2]> = rests.filter(|rest| !rest.keys.is_empty()).collect();
        (!runs.is_empty()).then(|| MemoryRows { runs, captured: Vec::new(), next: 0, keys_next: KEYS_FIRST })
    }

    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// At most so many rows.
    pub fn keys(&self) -> usize {
        self.runs.iter().map(|rest| rest.keys.len()).sum()
    }

    /// The keys of each run.
    pub fn rests(&self) -> impl Iterator<Item = impl ExactSizeIterator<Item = &[u8]>> {
        self.runs.iter().map(|rest| rest.keys.clone().map(|i| rest.run.get(i)))
    }

    /// Whether [`capture`](Self::capture) is due.
    pub fn is_spent(&self) -> bool {
        self.next == self.captured.len()
    }

    /// The version whose turn it is, unless this is spent.
    pub fn head(&self) -> &VersionRef {
        &self.captured[self.next]
    }

    pub fn advance(&mut self) {
        self.next += 1;
    }

    /// The last key of what was captured last.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.captured.last().map(VersionRef::key)
    }

    /// The highest LSN of what is captured.
    pub fn lsn(&self) -> u64 {
        self.captured.iter().map(|version| version.meta().lsn).max().unwrap_or(0)
    }

    /// Captures what comes next. What was captured before goes, unless this says [`Captured::Stale`].
    pub fn capture(&mut self, scope: &Scope, reading: &Reading) -> Captured {
        let mut captured = Vec::new();
        while captured.is_empty() {
            let at_once = self.keys_next;
            self.keys_next = (at_once * 4).min(KEYS_MAX);
            let keys: Vec<_> = std::iter::from_fn(|| self.next_key()).take(at_once).collect();
            if keys.is_empty() {
                break;
            }
            self.look_up(scope, reading, &keys, &mut captured);
        }
        if !reading.still_valid() {
            return Captured::Stale;
        }
        self.next = 0;
        self.captured = captured;
        if self.captured.is_empty() { Captured::End } else { Captured::Rows }
    }

    fn look_up(
        &self,
        scope: &Scope,
        reading: &Reading,
        keys: &[(usize, usize)],
        captured: &mut Vec<VersionRef>,
    ) {
        let index = &scope.engine.index;
        let (generation, first_unflushed) = (reading.generation(), reading.state.first_unflushed());
        let key = |(run, i): &(usize, usize)| index.key(generation, self.runs[*run].run.get(*i));
        let keys: Vec<KeyRef<'_>> = keys.iter().map(key).collect();
        index.visit_keys(&keys, |_, newest| {
            // What is flushed comes from the files.
            let seen = version_at(newest, scope.ts()).filter(|v| v.meta.memtable() >= first_unflushed);
            captured.extend(seen.map(|version| version.hold()));
        });
    }

    /// The run and position of the next key.
    fn next_key(&mut self) -> Option<(usize, usize)> {
        if let [only] = self.runs.as_mut_slice() {
            return only.keys.next().map(|i| (0, i));
        }
        let heads = self.runs.iter().enumerate().filter_map(|(i, rest)| Some((rest.head()?, i)));
        let (_, first) = heads.min()?;
        let run = self.runs[first].run.clone();
        let position = self.runs[first].keys.start;
        // A key that is in several memtables is looked up once.
        for rest in &mut self.runs {
            if rest.head() == Some(run.get(position)) {
                rest.keys.start += 1;
            }
        }
        Some((first, position))
    }
}

/// About how many unflushed rows `keys` has, if those are seen to be more than `enough` before any are sorted: an order of a
/// whole memtable takes long, and memory until its flush. `None` if the order is to tell it.
pub(super) fn more_than(engine: &Engine, state: &TabletState, keys: &KeyRange, enough: u64) -> Option<u64> {
    let all: usize = state.memtables().map(|memtable| memtable.len()).sum();
    let unordered: usize = state.memtables().map(|memtable| memtable.unordered()).sum();
    if all as u64 <= enough || unordered <= UNORDERED_MAX {
        return None;
    }
    let (mut rows, mut found) = (0, 0);
    let lens = state.memtables().map(|memtable| (memtable, memtable.len()));
    for (memtable, len) in lens.filter(|(_, len)| *len > 0) {
        let picked = (SAMPLE_KEYS * len).div_ceil(all).min(len);
        let hashes = sample(len, picked).flat_map(|number| memtable.hashes_of(number..number + 1));
        let mut within = 0;
        engine.index.visit(memtable.generation, hashes, |_, newest| {
            within += usize::from(keys.contains(newest.key()));
        });
        rows += (len as u64) * (within as u64) / (picked as u64);
        found += within;
    }
    (found > SAMPLE_FEW && rows > enough).then_some(rows)
}

/// So many of the numbers below `len`, one of each stretch. Where in it differs: who writes in turn for each of some devices
/// may have all keys at equal distances be those of one.
fn sample(len: usize, picked: usize) -> impl Iterator<Item = usize> {
    let stretch = len / picked;
    // Fibonacci hashing: the upper bits of multiples of 2^64 / φ.
    let within = move |i: usize| ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % stretch;
    (0..picked).map(move |i| i * stretch + within(i))
}

fn keys_within(run: &Run, keys: &KeyRange) -> Range<usize> {
    let start = run.partition_point(|key| key < keys.from.as_slice());
    let end = keys.to.as_deref().map_or(run.len(), |to| run.partition_point(|key| key < to));
    start..end.max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_and_favours_no_distance() {
        for (len, picked) in [(1, 1), (5, 3), (4097, 256), (1 << 20, 256)] {
            let numbers: Vec<usize> = sample(len, picked).collect();
            assert_eq!(numbers.len(), picked);
            assert!(numbers.iter().all(|number| *number < len) && numbers.is_sorted_by(|a, b| a < b));
        }
        // Devices that are written for in turn.
        let of_some = sample(1 << 20, 256).filter(|number| number % 64 < 32).count();
        assert!((96..160).contains(&of_some), "{of_some} of half of the keys");
    }
}
