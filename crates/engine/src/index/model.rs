//! [`Lineage`] under shuttle, which decides at every access to an atomic or a lock which thread goes on: a flush meets the
//! writes that cut off what it takes at every step, some thousand times each.
//!
//! What stands around it is made small: the versions of one key, each with the one below it; the shard's lock; and the rows
//! that files have of the key, with their marks. In the end one version is left in memory, and when that is flushed no row
//! of an older one may be live.

mod atomic {
    pub use shuttle::hint::spin_loop;
    pub use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

#[allow(clippy::duplicate_mod, dead_code)]
#[path = "lineage.rs"]
mod lineage;

use super::{Location, Older};
use lineage::{HandingOn, Lineage, Taking};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use std::collections::BTreeMap;

/// The memtable that is flushed, and the one that comes after it.
const SEALED: u64 = 1;
const ACTIVE: u64 = 2;
/// Below the oldest version.
const NONE: usize = usize::MAX;

/// A row of a file, by file.
const fn at(file: u64) -> Location {
    Location { file, row: file as u32 }
}

const BEFORE: Location = at(1);

/// The rows that files have of the key: which of them are marked.
#[derive(Default)]
struct Rows(BTreeMap<u64, bool>);

impl Rows {
    fn mark(&mut self, row: Location) {
        *self.0.get_mut(&row.file).expect("what is marked is there") = true;
    }

    fn live(&self) -> Vec<Location> {
        self.0.iter().filter(|(_, marked)| !**marked).map(|(file, _)| at(*file)).collect()
    }

    /// Marks what a version replaces. Asks for it if that is not known, as a flush does.
    fn replace(&mut self, older: Older) {
        match older {
            Older::Nothing => {}
            Older::At(row) => self.mark(row),
            Older::Unresolved { .. } => self.live().into_iter().for_each(|row| self.mark(row)),
        }
    }
}

/// The versions of a key. Number 0 is the oldest.
struct Key {
    versions: Vec<Lineage>,
    /// For each version, the one below it.
    below: Vec<AtomicUsize>,
    newest: AtomicUsize,
    /// The shard's lock.
    shard: Mutex<()>,
    rows: Mutex<Rows>,
}

impl Key {
    /// One with so many versions in the sealed memtable, over a row of a file, and `later` ones to come.
    fn new(sealed: usize, later: usize) -> Arc<Self> {
        let older = |i| if i < sealed { Older::At(BEFORE) } else { Older::Nothing };
        let memtable = |i| if i < sealed { SEALED } else { ACTIVE };
        Arc::new(Key {
            versions: (0..sealed + later).map(|i| Lineage::new(memtable(i), older(i))).collect(),
            below: (0..sealed + later)
                .map(|i| AtomicUsize::new(i.checked_sub(1).filter(|_| i < sealed).unwrap_or(NONE)))
                .collect(),
            newest: AtomicUsize::new(sealed - 1),
            shard: Mutex::new(()),
            rows: Mutex::new(Rows(BTreeMap::from([(BEFORE.file, false)]))),
        })
    }

    /// The versions from `first` on, the newer first.
    fn chain(&self, first: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(first), |i| {
            Some(self.below[*i].load(Ordering::Acquire)).filter(|below| *below != NONE)
        })
    }

    /// A write: makes `version` the newest, and cuts off what lies below `last`, if that is said.
    fn write(&self, version: usize, last: Option<usize>) {
        let _shard = self.shard.lock().expect("no thread panics");
        let before = self.newest.load(Ordering::Relaxed);
        let older = self.versions[before].older_for_successor(ACTIVE);
        self.versions[version].resolve(Older::Nothing, older);
        self.below[version].store(before, Ordering::Relaxed);
        self.newest.store(version, Ordering::Release);
        last.into_iter().for_each(|last| self.cut(last));
    }

    fn cut(&self, last: usize) {
        let first = self.below[last].swap(NONE, Ordering::AcqRel);
        if first == NONE {
            return;
        }
        let mut handing_on = HandingOn::default();
        for version in self.chain(first) {
            handing_on.hand_on(&self.versions[last], &self.versions[version]);
        }
    }

    /// The flush of the sealed memtable, which writes to `file`; one that fails installs nothing.
    fn flush(&self, file: u64, fails: bool) {
        let (mut taking, mut taken) = (Taking::default(), Vec::new());
        for version in self.chain(self.newest.load(Ordering::Acquire)) {
            let lineage = &self.versions[version];
            if lineage.memtable() == SEALED && taking.take(lineage) {
                taken.push((version, lineage.older()));
            }
        }
        let Some((_, oldest)) = taken.last().filter(|_| !fails) else { return };
        {
            let mut rows = self.rows.lock().expect("no thread panics");
            rows.replace(*oldest);
            // The others are written with marks, if somebody reads them, or not at all.
            rows.0.insert(file, false);
        }
        let _shard = self.shard.lock().expect("no thread panics");
        let below = |version: &usize| {
            let below = self.below[*version].load(Ordering::Relaxed);
            below == NONE || self.versions[below].memtable() <= SEALED
        };
        let newest = self.newest.load(Ordering::Relaxed);
        let last = self.chain(newest).find(below).expect("the last has nothing below it");
        self.versions[last].place(SEALED, Some(at(file)));
        self.cut(last);
    }

    /// What is left when the newest version is flushed, too: none of the rows that it replaces is live, however it came by
    /// their places.
    fn check(&self) {
        let newest = self.newest.load(Ordering::Relaxed);
        let mut rows = self.rows.lock().expect("no thread panics");
        assert!(rows.live().len() <= 1, "two live rows in the files");
        if !self.versions[newest].is_clean() {
            let oldest = self.chain(newest).last().expect("the newest is there");
            rows.replace(self.versions[oldest].older());
            assert!(rows.live().is_empty(), "an old row is live beside the newest version");
        }
    }
}

/// Runs `scenario` with one to three changes of thread at places that are chosen at random, as most races need no more, and
/// with changes anywhere. A failure prints the schedule that shows it.
fn check(scenario: impl Fn() + Copy + Send + Sync + 'static) {
    (1..=3).for_each(|changes| shuttle::check_pct(scenario, 2_000, changes));
    shuttle::check_random(scenario, 2_000);
}

/// A sealed memtable with two versions of a key, as of one that was written under a snapshot that is gone: a write that cuts both
/// off meets the flush at every step.
#[test]
fn of_two_versions_one_decision_disposes() {
    check(|| {
        let key = Key::new(2, 1);
        let flush = {
            let key = Arc::clone(&key);
            thread::spawn(move || key.flush(2, false))
        };
        key.write(2, Some(2));
        flush.join().expect("the flush ends");
        key.check();
    });
}

#[test]
fn versions_are_cut_off_in_two_steps() {
    check(|| {
        let key = Key::new(2, 2);
        let flush = {
            let key = Arc::clone(&key);
            thread::spawn(move || key.flush(2, false))
        };
        // A snapshot reads the newest sealed one for a while.
        key.write(2, Some(1));
        key.write(3, Some(3));
        flush.join().expect("the flush ends");
        key.check();
    });
}

#[test]
fn a_flush_that_failed_comes_again() {
    check(|| {
        let key = Key::new(2, 1);
        let flush = {
            let key = Arc::clone(&key);
            thread::spawn(move || {
                key.flush(2, true);
                key.flush(3, false);
            })
        };
        key.write(2, Some(2));
        flush.join().expect("the flush ends");
        key.check();
    });
}

#[test]
fn a_place_is_read_whole_while_it_changes() {
    check(|| {
        let lineage = Arc::new(Lineage::new(ACTIVE, Older::At(at(1))));
        let reader = {
            let lineage = Arc::clone(&lineage);
            thread::spawn(move || lineage.older())
        };
        lineage.resolve(Older::At(at(1)), Older::At(at(2)));
        lineage.resolve(Older::At(at(2)), Older::At(at(3)));
        let seen = reader.join().expect("the reader ends");
        assert!([1, 2, 3].map(|file| Older::At(at(file))).contains(&seen), "{seen:?}");
    });
}
