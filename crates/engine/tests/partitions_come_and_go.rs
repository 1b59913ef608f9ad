//! Range partitions are added and dropped while others write, read, flush, compact, import and are killed: a row is where
//! a range covers it, and gone with its range for good.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Decision, Engine, KeyRange, RangeChange, Read, Table, WriteOp};
use oribi_sim::{Rng, SimClock, SimFiles, seeds};
use oribi_types::partition::{HashDimension, RangeDimension, RangePartition};
use oribi_types::{Durability, ErrorKind, Partitioning, Result, TableDefinition};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Range number `n` has the ten keys from `10 * n` on.
const KEYS: i64 = 10;

fn range(n: i64) -> RangePartition {
    RangePartition { lower: key(n * KEYS), upper: Some(key((n + 1) * KEYS)), hash: None }
}

fn add(n: i64) -> RangeChange {
    RangeChange::Add(range(n))
}

fn drop_of(n: i64) -> RangeChange {
    RangeChange::Drop { lower: range(n).lower, upper: range(n).upper }
}

/// A table in ranges and, in each, buckets.
fn ranged(ranges: &[i64], buckets: u32, durability: Durability) -> TableDefinition {
    let definition = definition("t", 1, durability);
    let hash = match buckets {
        1 => Vec::new(),
        _ => vec![HashDimension::new(&definition.schema, vec![0], buckets, 0)],
    };
    let ranges = ranges.iter().map(|n| range(*n)).collect();
    let partitioning = Partitioning::new(hash, Some(RangeDimension { columns: vec![0], ranges })).unwrap();
    TableDefinition { partitioning, ..definition }
}

fn fresh_ranged(ranges: &[i64], buckets: u32) -> (SimFiles, Arc<SimClock>, Arc<Engine>, Arc<Table>) {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let engine = open(&sim_env(&files, &clock)).unwrap();
    let table = engine.create_table(ranged(ranges, buckets, Durability::Sync)).unwrap();
    (files, clock, engine, table)
}

fn alter(engine: &Engine, changes: &[RangeChange]) -> Result<()> {
    engine.alter_partitions("public", "t", changes)
}

fn latest(engine: &Engine) -> Arc<Table> {
    engine.table("public", "t").unwrap()
}

/// Files that are, or were to become, SSTables: two each.
fn sstable_files(files: &SimFiles) -> usize {
    let ends = [".parquet", ".index", ".tmp"];
    let of_tables = files.all_files().into_iter().filter(|path| path.starts_with("/db/tables"));
    of_tables.filter(|path| ends.iter().any(|end| path.to_string_lossy().ends_with(end))).count() / 2
}

#[test]
fn a_key_in_no_range_is_absent_and_takes_no_write() {
    let (_, _, engine, table) = fresh_ranged(&[0, 2], 2);
    put(&engine, &table, 5, "v").unwrap();
    let error = put(&engine, &table, 15, "v").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotCovered);
    assert_eq!(error.message(), "no partition of table \"t\" covers key (15)");
    for k in [-1, 15, 30] {
        assert_eq!(get(&engine, &table, k), None);
        assert!(!delete(&engine, &table, k).unwrap(), "there was nothing to delete");
        assert!(put(&engine, &table, k, "v").is_err());
    }
    // One write is all or nothing; what it leaves as it is needs no partition.
    assert_eq!(
        write(&engine, &table, &[(5, Some("w")), (15, Some("w"))]).unwrap_err().kind(),
        ErrorKind::NotCovered
    );
    assert_eq!(get(&engine, &table, 5).unwrap(), "v");
    let keys = [key(5), key(15)];
    let ops = keys.each_ref().map(|key| WriteOp { table: &table, key, read: Read::Existing, row: &[] });
    let update = engine.write(&ops, &mut |_, current, row| match current {
        Some(_) => {
            encode(&table, "w", 5, row);
            Ok(Decision::Put)
        }
        None => Ok(Decision::Keep),
    });
    update.unwrap();
    assert_eq!(scan_now(&engine, &table), model(&[(5, "w")]));
    assert_eq!(import(&engine, &table, &[6, 15], "i").unwrap_err().kind(), ErrorKind::NotCovered);
    assert_eq!(import(&engine, &table, &[6, 25], "i").unwrap(), 2);
    assert_eq!(range_now(&engine, &table), model(&[(5, "w"), (6, "i"), (25, "i")]));
}

#[test]
fn a_dropped_range_takes_its_rows_along() {
    let (files, clock, engine, table) = fresh_ranged(&[0, 1, 2], 2);
    let rows = |ranges: &[i64], v: &str| -> Rows {
        ranges.iter().flat_map(|n| n * KEYS..(n + 1) * KEYS).map(|k| (k, v.to_owned())).collect()
    };
    for k in 0..30 {
        put(&engine, &table, k, "old").unwrap();
    }
    engine.flush(&table).unwrap();
    for k in 0..30 {
        put(&engine, &table, k, "new").unwrap();
    }
    let before = (engine.stats(), engine.memory().memtables());
    let snapshot = Arc::new(engine.snapshot());
    alter(&engine, &[drop_of(1)]).unwrap();
    let now = latest(&engine);
    assert_eq!((now.tablet_ids().len(), table.tablet_ids().len()), (4, 6));
    assert_eq!(scan_now(&engine, &now), rows(&[0, 2], "new"));
    assert_eq!(range_now(&engine, &now), rows(&[0, 2], "new"));
    assert!(engine.memory().memtables() < before.1, "its memory is free");
    assert_eq!(sstable_files(&files), engine.stats().sstables as usize, "its files are gone");
    assert!(engine.stats().sstables < before.0.sstables);

    // By the handle from before: no row, and no write; reads that would miss some fail.
    assert_eq!(get(&engine, &table, 15), None);
    assert_eq!(put(&engine, &table, 15, "v").unwrap_err().kind(), ErrorKind::NotCovered);
    assert_eq!(try_scan(&engine, &table, &snapshot).unwrap_err().kind(), ErrorKind::Conflict);
    let mut reader = engine.range(&table, 2, KeyRange::default(), &[1], &snapshot);
    assert_eq!(reader.read(1, |_| Ok(())).unwrap_err().kind(), ErrorKind::Conflict);
    put(&engine, &table, 5, "new").unwrap();

    // It comes back empty.
    alter(&engine, &[add(1)]).unwrap();
    assert_eq!(put(&engine, &table, 15, "v").unwrap_err().kind(), ErrorKind::Retry, "another handle is due");
    let again = latest(&engine);
    assert_eq!(scan_now(&engine, &again), rows(&[0, 2], "new"));
    let commit = put(&engine, &again, 15, "again").unwrap();
    engine.settle(commit.obligation).unwrap();
    let mut expected = rows(&[0, 2], "new");
    expected.insert(15, "again".into());
    assert_eq!(scan_now(&engine, &again), expected);
    drop(engine);
    let engine = open(&sim_env(&files.kill(), &clock)).unwrap();
    assert_eq!(scan_now(&engine, &latest(&engine)), expected);
    assert_eq!(findings(&files), Vec::<String>::new());
}

#[test]
fn changes_of_ranges_are_all_or_none() {
    let (_, _, engine, table) = fresh_ranged(&[0, 1], 1);
    for k in 0..20 {
        put(&engine, &table, k, "v").unwrap();
    }
    let refused = |changes: &[RangeChange], kind: ErrorKind| {
        assert_eq!(alter(&engine, changes).unwrap_err().kind(), kind, "{changes:?}");
        assert_eq!(latest(&engine).tablet_ids().collect::<Vec<_>>(), table.tablet_ids().collect::<Vec<_>>());
        assert_eq!(scan_now(&engine, &latest(&engine)).len(), 20);
    };
    let overlapping = RangeChange::Add(RangePartition { lower: key(15), upper: None, hash: None });
    refused(&[drop_of(0), add(1)], ErrorKind::AlreadyExists);
    refused(&[drop_of(0), overlapping], ErrorKind::Invalid);
    refused(&[drop_of(0), drop_of(2)], ErrorKind::NotFound);
    let damaged = RangeChange::Add(RangePartition { lower: vec![0xff; 3], upper: None, hash: None });
    refused(&[damaged], ErrorKind::Invalid);
    // To drop and add a range empties it.
    alter(&engine, &[drop_of(0), add(0), add(2)]).unwrap();
    let table = latest(&engine);
    assert_eq!(scan_now(&engine, &table).keys().copied().collect::<Vec<_>>(), (10..20).collect::<Vec<_>>());
    alter(&engine, &[drop_of(0), drop_of(1), drop_of(2)]).unwrap();
    let table = latest(&engine);
    assert_eq!(table.tablet_ids().len(), 0);
    assert!(scan_now(&engine, &table).is_empty() && get(&engine, &table, 1).is_none());
    assert_eq!(import(&engine, &table, &[1], "i").unwrap_err().kind(), ErrorKind::NotCovered);
    assert_eq!(import(&engine, &table, &[], "i").unwrap(), 0);
    alter(&engine, &[add(0)]).unwrap();
    put(&engine, &latest(&engine), 1, "v").unwrap();
    let hashed = engine.create_table(definition("h", 2, Durability::Sync)).unwrap();
    assert_eq!(engine.alter_partitions("public", "h", &[add(0)]).unwrap_err().kind(), ErrorKind::Invalid);
    engine.truncate(&table).unwrap();
    assert!(scan_now(&engine, &latest(&engine)).is_empty(), "a truncate finds tablets that came later");
    drop(hashed);
}

#[test]
fn an_import_misses_no_drop() {
    let (_, _, engine, table) = fresh_ranged(&[0, 1, 2], 1);
    let import = |keys: &[i64]| {
        let mut import = engine.import(&table).unwrap();
        import.push(rows(&table, keys, "i")).unwrap();
        import
    };
    let (lost, kept) = (import(&[5, 15]), import(&[6, 25]));
    alter(&engine, &[drop_of(1)]).unwrap();
    assert_eq!(lost.commit().unwrap_err().kind(), ErrorKind::NotCovered);
    assert_eq!(kept.commit().unwrap(), 2);
    assert_eq!(scan_now(&engine, &latest(&engine)), model(&[(6, "i"), (25, "i")]));
    let late = import(&[7]);
    engine.drop_table("public", "t").unwrap();
    assert_eq!(late.commit().unwrap_err().kind(), ErrorKind::NotFound);
}

/// Random changes, and what they leave is what a map leaves.
#[test]
fn an_engine_with_ranges_is_a_map() {
    seeds(25, |seed| {
        let mut rng = Rng::new(seed);
        let buckets = 1 + rng.below(3) as u32;
        let (mut files, clock, mut engine, _) = fresh_ranged(&[0, 3], buckets);
        let (mut expected, mut ranges) = (Rows::new(), BTreeSet::from([0, 3]));
        for step in 0..120 {
            let table = latest(&engine);
            let n = rng.below(5) as i64;
            match rng.below(20) {
                0..10 => {
                    let (k, v) = (rng.below(50) as i64, step.to_string());
                    match put(&engine, &table, k, &v) {
                        Ok(commit) => {
                            engine.settle(commit.obligation).unwrap();
                            assert!(ranges.contains(&(k / KEYS)));
                            expected.insert(k, v);
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::NotCovered);
                            assert!(!ranges.contains(&(k / KEYS)));
                        }
                    }
                }
                10..12 => {
                    let k = rng.below(50) as i64;
                    assert_eq!(delete(&engine, &table, k).unwrap(), expected.remove(&k).is_some());
                }
                12 => engine.flush(&table).unwrap(),
                13 => engine.compact(&table).unwrap(),
                14 if ranges.contains(&n) => {
                    alter(&engine, &[drop_of(n)]).unwrap();
                    ranges.remove(&n);
                    expected.retain(|k, _| k / KEYS != n);
                }
                15 | 16 => assert_eq!(alter(&engine, &[add(n)]).is_ok(), ranges.insert(n)),
                17 => {
                    let keys: Vec<i64> =
                        (0..3).map(|_| rng.below(50) as i64).collect::<BTreeSet<_>>().into_iter().collect();
                    let fits = keys.iter().all(|k| ranges.contains(&(k / KEYS)) && !expected.contains_key(k));
                    assert_eq!(import(&engine, &table, &keys, "i").is_ok(), fits, "{keys:?}");
                    expected.extend(keys.iter().filter(|_| fits).map(|k| (*k, "i".to_owned())));
                }
                18 => {
                    drop((engine, table));
                    files = files.kill();
                    assert_eq!(findings(&files), Vec::<String>::new());
                    engine = open(&sim_env(&files, &clock)).unwrap();
                    assert_eq!(sstable_files(&files), engine.stats().sstables as usize, "left over");
                }
                _ => {
                    assert_eq!(scan_now(&engine, &table), expected);
                    assert_eq!(range_now(&engine, &table), expected);
                    for k in 0..50 {
                        assert_eq!(get(&engine, &table, k), expected.get(&k).cloned());
                    }
                }
            }
        }
    });
}

/// Rows and ranges of a table that was recovered; checks that they agree.
fn recovered(files: &SimFiles, clock: &Arc<SimClock>) -> (Rows, BTreeSet<i64>, Arc<Engine>) {
    assert_eq!(findings(files), Vec::<String>::new());
    let engine = open(&sim_env(files, clock)).unwrap();
    let table = latest(&engine);
    let ranges = table.definition().partitioning.ranges().iter().map(|r| k_of(&r.lower) / KEYS).collect();
    let rows = scan_now(&engine, &table);
    for k in 0..40 {
        assert_eq!(get(&engine, &table, k), rows.get(&k).cloned());
    }
    assert_eq!(sstable_files(files), engine.stats().sstables as usize, "left over");
    (rows, ranges, engine)
}

/// Rows in files and in the log, a range of which is replaced and another one dropped.
#[test]
fn a_stop_at_any_point_leaves_a_range_or_takes_it() {
    for at in 1..60 {
        let (files, clock, engine, table) = fresh_ranged(&[0, 1, 2], 2);
        for k in 0..30 {
            put(&engine, &table, k, "old").unwrap();
        }
        engine.flush(&table).unwrap();
        let mut before = Rows::new();
        for k in (0..30).filter(|k| k % 3 > 0) {
            let commit = put(&engine, &table, k, "new").unwrap();
            engine.settle(commit.obligation).unwrap();
        }
        before.extend(scan_now(&engine, &table));
        files.stop_at(files.changes() + at);
        let replaced = alter(&engine, &[drop_of(1), add(1)]);
        let refilled = replaced.clone().and_then(|()| {
            let commit = put(&engine, &latest(&engine), 15, "again")?;
            engine.settle(commit.obligation)
        });
        let dropped = refilled.clone().and_then(|()| alter(&engine, &[drop_of(2), add(3)]));
        let survivors: Vec<SimFiles> = match at % 2 {
            0 => vec![files.kill()],
            _ => (0..3).map(|seed| files.crash(seed)).collect(),
        };
        for files in survivors {
            let (rows, ranges, _) = recovered(&files, &clock);
            let of = |rows: &Rows, n: i64| -> Rows {
                rows.iter().filter(|(k, _)| *k / KEYS == n).map(|(k, v)| (*k, v.clone())).collect()
            };
            assert_eq!(of(&rows, 0), of(&before, 0));
            assert!(ranges.contains(&0) && ranges.contains(&1));
            // What is left of the range that was replaced.
            let left = of(&rows, 1);
            let again = model(&[(15, "again")]);
            assert!(
                left == of(&before, 1) && replaced.is_err()
                    || left.is_empty() && refilled.is_err()
                    || left == again,
                "{left:?}"
            );
            assert!(ranges.contains(&2) != ranges.contains(&3), "one record changes both");
            assert_eq!(of(&rows, 2), if ranges.contains(&2) { of(&before, 2) } else { Rows::new() });
            assert!(dropped.is_err() || !ranges.contains(&2));
            assert!(ranges.contains(&2) || left == again, "what came before is there");
        }
    }
}

/// Both rows of each write are seen, or none, whatever becomes of their range meanwhile.
#[test]
fn writers_and_readers_meet_drops() {
    let (files, _, engine, _) = fresh_ranged(&[0, 1], 4);
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2_i64 {
            let (engine, stopped) = (&engine, &stopped);
            scope.spawn(move || {
                for n in 0.. {
                    if stopped.load(Relaxed) {
                        return;
                    }
                    let (table, v) = (latest(engine), format!("{writer}-{n}"));
                    // Pairs (0, 5), (1, 6) … of each range.
                    let k = n % 2 * KEYS + n / 2 % 5;
                    match write(engine, &table, &[(k, Some(&v)), (k + 5, Some(&v))]) {
                        Ok(_) => {}
                        Err(error) => {
                            assert!(
                                matches!(error.kind(), ErrorKind::NotCovered | ErrorKind::Retry),
                                "{error}"
                            );
                        }
                    }
                }
            });
        }
        let reads = scope.spawn(|| {
            let mut reads = 0;
            // Once more when all is over, however late the thread gets the processor.
            let mut is_over = false;
            while !is_over {
                is_over = stopped.load(Relaxed);
                let snapshot = engine.snapshot();
                match try_scan(&engine, &latest(&engine), &snapshot) {
                    Ok(rows) => {
                        reads += 1;
                        for (k, v) in &rows {
                            let other = if k % KEYS < 5 { k + 5 } else { k - 5 };
                            assert_eq!(rows.get(&other), Some(v), "of {k}");
                        }
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                }
            }
            assert!(reads > 0, "nothing is in the way of the last");
        });
        let jobs = scope.spawn(|| {
            while !stopped.load(Relaxed) {
                let table = latest(&engine);
                engine.flush(&table).unwrap();
                engine.compact(&table).unwrap();
            }
        });
        for round in 0..60 {
            let n = round % 2;
            alter(&engine, &[drop_of(n)]).unwrap();
            let table = latest(&engine);
            assert!(scan_now(&engine, &table).keys().all(|k| k / KEYS != n), "gone at once");
            alter(&engine, &[add(n)]).unwrap();
        }
        stopped.store(true, Relaxed);
        reads.join().unwrap();
        jobs.join().unwrap();
    });
    let table = latest(&engine);
    let rows = scan_now(&engine, &table);
    assert_eq!(range_now(&engine, &table), rows);
    engine.flush(&table).unwrap();
    assert_eq!(scan_now(&engine, &table), rows);
    assert_eq!(sstable_files(&files), engine.stats().sstables as usize, "left over");
    drop(table);
    drop(engine);
    let engine = open(&sim_env(&files.kill(), &Arc::new(SimClock::new()))).unwrap();
    assert_eq!(scan_now(&engine, &latest(&engine)), rows);
    assert_eq!(findings(&files), Vec::<String>::new());
}
