//! A scan that makes columns of the rows in memory goes over them while others write, flush, compact and truncate. However
//! slowly it goes, it yields its snapshot.
//!
//! The seed of a run is in what it panics with; `SEEDS=1000` runs more of them.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::*;
use oribi_engine::{Engine, Snapshot, Table};
use oribi_sim::Rng;
use oribi_types::Durability;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Enough for some batches in each tablet.
const KEYS: i64 = 6000;

struct Open {
    scan: Scan,
    /// What it is to yield …
    rows: Rows,
    /// … or of that the keys.
    of_keys: bool,
}

struct Run {
    engine: Arc<Engine>,
    table: Arc<Table>,
    model: Rows,
    snapshots: Vec<(Snapshot, Rows)>,
    scans: VecDeque<Open>,
    rng: Rng,
}

impl Run {
    fn step(&mut self, n: usize) {
        match self.rng.below(32) {
            0..10 => self.change(n),
            10..13 => self.engine.flush(&self.table).unwrap(),
            13 => self.engine.seal(&self.table),
            14 => self.engine.flush_sealed(&self.table).unwrap(),
            15 => self.engine.compact(&self.table).unwrap(),
            16 => {
                self.snapshots.push((self.engine.snapshot(), self.model.clone()));
                self.snapshots.drain(..self.snapshots.len().saturating_sub(3));
            }
            17 if self.rng.below(4) == 0 => {
                self.engine.truncate(&self.table).unwrap();
                self.model.clear();
                self.snapshots.clear();
            }
            17..21 => self.begin(),
            21 if self.rng.coin() => drop(self.scans.pop_front()),
            _ => self.go_on(),
        }
    }

    /// Some rows that lie together, as one write or one by one.
    fn change(&mut self, n: usize) {
        let first = self.rng.below(KEYS as u64) as i64;
        let keys = first..KEYS.min(first + 1 + self.rng.below(1500) as i64);
        let v = format!("{n}");
        let deletes = self.rng.below(4) == 0;
        let changes: Vec<_> = keys.clone().map(|k| (k, (!deletes).then_some(&*v))).collect();
        if self.rng.coin() {
            write(&self.engine, &self.table, &changes).unwrap();
        } else {
            for (k, v) in &changes {
                // Blind: what it replaces is looked up later.
                let changed = match v {
                    Some(v) => put(&self.engine, &self.table, *k, v).map(drop),
                    None => delete(&self.engine, &self.table, *k).map(drop),
                };
                changed.unwrap();
            }
        }
        for k in keys {
            if deletes {
                self.model.remove(&k)
            } else {
                self.model.insert(k, v.clone())
            };
        }
    }

    /// A scan of now or of a snapshot, which the test may forget at once.
    fn begin(&mut self) {
        let (snapshot, rows) = match self.snapshots.pop() {
            Some(old) if self.rng.coin() => old,
            _ => (self.engine.snapshot(), self.model.clone()),
        };
        let of_keys = self.rng.coin();
        let begin = if of_keys { Scan::of_keys } else { Scan::begin };
        let scan = begin(&self.engine, &self.table, &snapshot).unwrap();
        self.scans.push_back(Open { scan, rows, of_keys });
    }

    /// One batch of one of the scans.
    fn go_on(&mut self) {
        let Some(mut open) = self.scans.pop_front() else { return };
        if open.scan.step().unwrap() {
            self.scans.push_back(open);
        } else {
            open.compare();
        }
    }
}

impl Open {
    fn compare(self) {
        let found = self.scan.rows();
        let is_there = |k: &i64, v: &String| self.rows.get(k).is_some_and(|of| self.of_keys || of == v);
        let first = found.iter().find(|(k, v)| !is_there(k, v));
        assert_eq!(first, None, "no such row");
        assert_eq!(found.len(), self.rows.len(), "rows are missing");
    }
}

#[test]
fn a_scan_is_a_snapshot_whatever_happens_between_its_batches() {
    let seeds = std::env::var("SEEDS").map_or(6, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let run = std::panic::catch_unwind(|| {
            let (_files, _, engine, table) = fresh(1 + seed as u32 % 2, Durability::Sync);
            let (model, rng) = (Rows::new(), Rng::new(seed));
            let mut run = Run { engine, table, model, snapshots: Vec::new(), scans: VecDeque::new(), rng };
            (0..100).for_each(|n| run.step(n));
            while !run.scans.is_empty() {
                run.go_on();
            }
            assert_eq!(scan_now(&run.engine, &run.table), run.model);
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}

/// Sets all rows at once, so that a snapshot has those of one round; some are deleted in it.
fn write_round(engine: &Engine, table: &Arc<Table>, round: i64) {
    let v = format!("{round}");
    let changes: Vec<_> = (0..KEYS).map(|k| (k, ((k + round) % 7 != 0).then_some(&*v))).collect();
    write(engine, table, &changes).unwrap();
}

/// A scan that a flush overtakes after its first batch, unless `is_over`.
fn scan_slowly(engine: &Engine, table: &Arc<Table>, of_keys: bool, is_over: impl Fn() -> bool) {
    let begin = if of_keys { Scan::of_keys } else { Scan::begin };
    let mut scan = begin(engine, table, &engine.snapshot()).unwrap();
    let flushes = engine.stats().flushes;
    while scan.step().unwrap() {
        while engine.stats().flushes == flushes && !is_over() {
            std::thread::yield_now();
        }
    }
    let rows = scan.rows();
    let missing = (0..7).find(|k| !rows.contains_key(k)).unwrap();
    // Of keys, only the remainder is known.
    let round = rows.first_key_value().unwrap().1.parse().unwrap_or(7 - missing);
    assert!(of_keys || rows.values().all(|v| *v == format!("{round}")), "rows of several rounds");
    assert!((0..KEYS).all(|k| rows.contains_key(&k) == ((k + round) % 7 != 0)), "round {round}");
}

#[test]
fn scans_see_whole_writes_while_writers_and_flushes_go_on_beside_them() {
    let (_files, _, engine, table) = fresh(2, Durability::Sync);
    write_round(&engine, &table, 0);
    let (over, written) = (AtomicBool::new(false), AtomicBool::new(false));
    let write = || {
        let _ends = (End(&over), End(&written));
        (1..).take_while(|_| !over.load(Relaxed)).for_each(|round| write_round(&engine, &table, round));
    };
    let flush = || {
        let _end = End(&over);
        // The last write may wait for room.
        while !written.load(Relaxed) {
            engine.seal(&table);
            engine.flush_sealed(&table).unwrap();
            engine.compact(&table).unwrap();
        }
    };
    let scan = || (0..6).for_each(|i| scan_slowly(&engine, &table, i % 2 == 0, || over.load(Relaxed)));
    std::thread::scope(|scope| {
        scope.spawn(write);
        scope.spawn(flush);
        let scans = [scope.spawn(scan), scope.spawn(scan)].map(|scan| scan.join());
        over.store(true, Relaxed);
        scans.into_iter().for_each(|scan| scan.unwrap());
    });
}
