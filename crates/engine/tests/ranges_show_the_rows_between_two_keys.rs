//! Range reads against a plain map: whatever moves rows between memory and files, also under an open reader.
//!
//! More cases: `PROPTEST_CASES=10000 cargo test -p oribi-engine --test ranges_show_the_rows_between_two_keys`.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Engine, KeyRange, RangeCounts, RangeReader, Snapshot, Table};
use oribi_types::{Durability, ErrorKind, Result};
use proptest::prelude::*;
use std::ops::Bound;
use std::sync::Arc;

const KEYS: i64 = 200;

#[derive(Clone, Debug)]
enum Op {
    Put(i64, u16),
    Delete(i64),
    /// Puts of so many keys, from the first in steps.
    Many(i64, usize, u16),
    Flush,
    Compact,
    Import(i64, i64),
    Truncate,
    Snapshot,
    Forget(usize),
    /// A reader at the n-th snapshot taken, or of now if there is none.
    Open(usize, Bound<i64>, Bound<i64>),
    /// Reads on with the n-th reader.
    Read(usize, usize),
}

fn bound() -> impl Strategy<Value = Bound<i64>> {
    let k = -1..=KEYS;
    prop_oneof![
        3 => k.clone().prop_map(Bound::Included),
        3 => k.prop_map(Bound::Excluded),
        2 => Just(Bound::Unbounded),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let k = 0..KEYS;
    let op = prop_oneof![
        8 => (k.clone(), any::<u16>()).prop_map(|(k, v)| Op::Put(k, v)),
        5 => k.clone().prop_map(Op::Delete),
        6 => (k.clone(), 1..9usize, any::<u16>()).prop_map(|(k, step, v)| Op::Many(k, step, v)),
        4 => Just(Op::Flush),
        2 => Just(Op::Compact),
        1 => (k, 1..20i64).prop_map(|(k, n)| Op::Import(k, n)),
        1 => Just(Op::Truncate),
        3 => Just(Op::Snapshot),
        2 => any::<usize>().prop_map(Op::Forget),
        8 => (any::<usize>(), bound(), bound()).prop_map(|(n, from, to)| Op::Open(n, from, to)),
        12 => (any::<usize>(), 1..60usize).prop_map(|(n, rows)| Op::Read(n, rows)),
    ];
    prop::collection::vec(op, 1..80)
}

struct Run {
    engine: Arc<Engine>,
    table: Arc<Table>,
    model: Rows,
    snapshots: Vec<(Arc<Snapshot>, Rows)>,
    readers: Vec<Open>,
}

/// A reader, and what it is still to read.
struct Open {
    reader: RangeReader,
    expected: Vec<(i64, String)>,
    truncated: bool,
}

fn encoded(from: Bound<i64>, to: Bound<i64>) -> KeyRange {
    let (from, to) = (from.map(key), to.map(key));
    KeyRange::new(from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice))
}

fn read(table: &Table, reader: &mut RangeReader, rows: usize) -> Result<Vec<(i64, String)>> {
    let mut read = Vec::new();
    let n = reader.read(rows, |row| {
        read.push((k_of(row.key), v_of(table, row.row)));
        Ok(())
    })?;
    assert_eq!(n, read.len());
    Ok(read)
}

impl Run {
    fn new(buckets: u32) -> Self {
        let (_, _, engine, table) = fresh(buckets, Durability::Periodic(100));
        Run { engine, table, model: Rows::new(), snapshots: Vec::new(), readers: Vec::new() }
    }

    fn put(&mut self, k: i64, v: u16) {
        put(&self.engine, &self.table, k, &v.to_string()).unwrap();
        self.model.insert(k, v.to_string());
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Put(k, v) => self.put(k, v),
            Op::Many(from, step, v) => (from..KEYS).step_by(step).for_each(|k| self.put(k, v)),
            Op::Delete(k) => {
                let there = delete(&self.engine, &self.table, k).unwrap();
                assert_eq!(there, self.model.remove(&k).is_some());
            }
            Op::Flush => self.engine.flush(&self.table).unwrap(),
            Op::Compact => self.engine.compact(&self.table).unwrap(),
            Op::Import(from, n) => {
                let keys: Vec<i64> = (from..from + n).filter(|k| !self.model.contains_key(k)).collect();
                import(&self.engine, &self.table, &keys, "imported").unwrap();
                self.model.extend(keys.into_iter().map(|k| (k, "imported".to_owned())));
            }
            Op::Truncate => {
                self.engine.truncate(&self.table).unwrap();
                self.model.clear();
                self.snapshots.clear();
                self.readers.iter_mut().for_each(|open| open.truncated = true);
            }
            Op::Snapshot => self.snapshots.push((Arc::new(self.engine.snapshot()), self.model.clone())),
            Op::Forget(n) if !self.snapshots.is_empty() => {
                self.snapshots.remove(n % self.snapshots.len());
            }
            Op::Open(n, from, to) => self.open(n, from, to),
            Op::Read(n, rows) if !self.readers.is_empty() => self.read(n % self.readers.len(), rows),
            Op::Forget(_) | Op::Read(..) => {}
        }
    }

    fn open(&mut self, n: usize, from: Bound<i64>, to: Bound<i64>) {
        let (snapshot, rows) = match self.snapshots.len() {
            0 => (Arc::new(self.engine.snapshot()), self.model.clone()),
            len => self.snapshots[n % len].clone(),
        };
        let keys = encoded(from, to);
        let definition = self.table.definition();
        for tablet in 0..definition.partitioning.tablets() {
            let is_here =
                |k: i64| definition.partitioning.tablet_of(&definition.schema, &key(k)) == Some(tablet);
            let expected = rows.iter().filter(|(k, _)| keys.contains(&key(**k)) && is_here(**k));
            let expected: Vec<_> = expected.map(|(k, v)| (*k, v.clone())).collect();
            // What is seen of an older snapshot is in versions that an estimate of now need not count.
            let estimate = self.engine.estimate_range(&self.table, tablet, &keys, u64::MAX);
            assert!(rows != self.model || estimate >= expected.len() as u64, "{estimate} rows at most");
            let reader = self.engine.range(&self.table, tablet, keys.clone(), &[1], &snapshot);
            self.readers.push(Open { reader, expected, truncated: false });
        }
    }

    fn read(&mut self, n: usize, rows: usize) {
        let Open { reader, expected, truncated } = &mut self.readers[n];
        match read(&self.table, reader, rows) {
            Ok(read) => {
                let rest = expected.split_off(rows.min(expected.len()));
                assert_eq!(read, std::mem::replace(expected, rest));
            }
            Err(error) => {
                assert!(*truncated && error.kind() == ErrorKind::Conflict, "{error}");
                self.readers.remove(n);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: oribi_sim::cases(250) as u32, ..ProptestConfig::default() })]

    #[test]
    fn a_range_is_a_part_of_a_map(ops in ops(), buckets in 1..3u32) {
        let mut run = Run::new(buckets);
        for op in ops {
            run.step(op);
        }
        run.step(Op::Open(0, Bound::Unbounded, Bound::Unbounded));
        while !run.readers.is_empty() {
            run.read(0, KEYS as usize + 1);
            run.readers.pop();
        }
    }
}

#[test]
fn only_sources_that_have_something_are_opened_and_one_is_not_merged() {
    let (_, _, engine, table) = fresh(1, Durability::Periodic(100));
    let counts = |from: i64, to: i64| {
        let pages = engine.stats().point_reads.pages;
        let keys = encoded(Bound::Included(from), Bound::Excluded(to));
        let snapshot = Arc::new(engine.snapshot());
        let mut reader = engine.range(&table, 0, keys, &[1], &snapshot);
        let rows = read(&table, &mut reader, usize::MAX).unwrap();
        assert!(rows.iter().map(|(k, _)| *k).eq(from..to), "{rows:?}");
        let RangeCounts { runs, files, merges, .. } = reader.counts();
        let read_pages = engine.stats().point_reads.pages > pages;
        assert!(files > 0 || !read_pages, "pages of an sstable were read for nothing");
        (runs, files, merges)
    };
    assert_eq!(counts(0, 0), (0, 0, 0), "nothing is there");
    for file in 0..2 {
        (0..1000).for_each(|k| _ = put(&engine, &table, file * 1000 + k, "flushed").unwrap());
        engine.flush(&table).unwrap();
    }
    (2000..2100).for_each(|k| _ = put(&engine, &table, k, "unflushed").unwrap());
    assert_eq!(counts(2000, 2100), (1, 0, 0), "rows in memory alone");
    assert_eq!(counts(10, 900), (0, 1, 0), "one file of two, and nothing in memory");
    assert_eq!(counts(990, 1010), (0, 2, 1), "two files");
    assert_eq!(counts(1990, 2010), (1, 1, 1), "a file and memory");
    // What comes later is a run of its own until there is enough of it.
    (2100..2110).for_each(|k| _ = put(&engine, &table, k, "later").unwrap());
    assert_eq!(counts(2105, 2110), (1, 0, 0), "the later run");
    assert_eq!(counts(2000, 2100), (1, 0, 0), "the earlier run");
    assert_eq!(counts(2000, 2110), (2, 0, 1), "both");
    engine.flush(&table).unwrap();
    assert_eq!(counts(2000, 2110), (0, 1, 0), "flushed");
}

#[test]
fn a_memtable_pays_for_its_order_once_it_is_asked_and_until_it_is_flushed() {
    let (_, _, engine, table) = fresh(1, Durability::Periodic(100));
    (0..10_000).for_each(|k| _ = put(&engine, &table, k, "v").unwrap());
    let before = engine.memory().memtables();
    let all = || {
        let snapshot = Arc::new(engine.snapshot());
        let mut reader = engine.range(&table, 0, KeyRange::default(), &[1], &snapshot);
        assert_eq!(read(&table, &mut reader, usize::MAX).unwrap().len(), 10_000);
        engine.memory().memtables() - before
    };
    let taken = all();
    assert!((160_000..400_000).contains(&taken), "{taken} bytes for 10,000 keys of 8 bytes");
    (0..10_000).for_each(|k| _ = put(&engine, &table, k, "w").unwrap());
    assert_eq!(all(), taken, "an overwrite brings no key");
    engine.flush(&table).unwrap();
    assert_eq!(engine.memory().memtables(), 0);
}

#[test]
fn rows_that_have_expired_are_in_no_range() {
    let (files, clock) = (oribi_sim::SimFiles::new(), Arc::new(oribi_sim::SimClock::new()));
    let engine = open(&sim_env(&files, &clock)).unwrap();
    let mut definition = definition("t", 1, Durability::Periodic(100));
    definition.options.ttl_ms = Some(1000);
    let table = engine.create_table(definition).unwrap();
    let present = || {
        let snapshot = Arc::new(engine.snapshot());
        let mut reader = engine.range(&table, 0, KeyRange::default(), &[1], &snapshot);
        read(&table, &mut reader, 100).unwrap().into_iter().map(|(k, _)| k).collect::<Vec<_>>()
    };
    put(&engine, &table, 1, "flushed").unwrap();
    put(&engine, &table, 2, "flushed").unwrap();
    engine.flush(&table).unwrap();
    clock.advance(600_000);
    put(&engine, &table, 1, "again").unwrap();
    put(&engine, &table, 3, "unflushed").unwrap();
    assert_eq!(present(), [1, 2, 3]);
    clock.advance(600_000);
    assert_eq!(present(), [1, 3]);
    clock.advance(600_000);
    assert_eq!(present(), Vec::<i64>::new());
}

#[test]
fn no_row_is_missed_while_memtables_are_flushed_and_files_compacted() {
    let (_, _, engine, table) = fresh(1, Durability::Periodic(100));
    let rows: Rows = (0..1000).map(|k| (k, "v".to_owned())).collect();
    let write_all = || rows.iter().for_each(|(k, v)| _ = put(&engine, &table, *k, v).unwrap());
    write_all();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut reads = 0;
                    while !ended.load(std::sync::atomic::Ordering::Relaxed) || reads == 0 {
                        let read = range_now(&engine, &table);
                        assert!(read == rows, "{} rows of {}", read.len(), rows.len());
                        reads += 1;
                    }
                })
            })
            .collect();
        for _ in 0..8 {
            write_all();
            engine.flush(&table).unwrap();
            engine.compact(&table).unwrap();
        }
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}
