//! What was overwritten since its memtable was sealed is not written to a file, and leaves none behind.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Engine, Obligation, Table};
use oribi_sim::{Hooked, Operation, SimClock, SimFiles};
use oribi_types::Durability;
use std::sync::Arc;

const ROWS: i64 = 100;

fn fill(engine: &Engine, table: &Arc<Table>, keys: impl Iterator<Item = i64>, v: &str) {
    for k in keys {
        let commit = put(engine, table, k, v).unwrap();
        engine.settle(commit.obligation).unwrap();
    }
}

#[test]
fn only_rows_that_nobody_overwrote_are_flushed() {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let engine = open(&sim_env(&files, &clock)).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Periodic(100))).unwrap();
    let flushed = || engine.stats().flushed_rows;

    // In a file, so that each has an older copy to mark.
    fill(&engine, &table, 0..ROWS, "first");
    engine.flush(&table).unwrap();
    assert_eq!(flushed(), 100);

    fill(&engine, &table, 0..ROWS, "second");
    engine.seal(&table);
    fill(&engine, &table, 0..90, "third");
    for k in 80..85 {
        assert!(delete(&engine, &table, k).unwrap());
    }
    engine.settle(Obligation { written: u64::MAX, ..Default::default() }).unwrap();
    engine.flush_sealed(&table).unwrap();
    assert_eq!(flushed(), 110, "ten were not overwritten");

    let expected: Rows = (0..ROWS)
        .filter(|k| !(80..85).contains(k))
        .map(|k| (k, if k < 90 { "third" } else { "second" }.to_owned()))
        .collect();
    assert_eq!(scan(&engine, &table, &engine.snapshot()), expected);
    engine.flush(&table).unwrap();
    assert_eq!(flushed(), 195, "the others now, but for those deleted");
    assert_eq!(scan(&engine, &table, &engine.snapshot()), expected);
    drop((engine, table));

    let engine = open(&sim_env(&files.kill(), &clock)).unwrap();
    let table = engine.table("public", "t").unwrap();
    assert_eq!(scan(&engine, &table, &engine.snapshot()), expected);
}

/// The version that a snapshot reads is in the file, marked as overwritten.
#[test]
fn what_a_snapshot_reads_is_flushed() {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let engine = open(&sim_env(&files, &clock)).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Periodic(100))).unwrap();
    fill(&engine, &table, 0..ROWS, "first");
    let snapshot = engine.snapshot();
    engine.seal(&table);
    fill(&engine, &table, 0..ROWS, "second");
    engine.flush_sealed(&table).unwrap();
    assert_eq!(engine.stats().flushed_rows, 100);
    assert!(scan(&engine, &table, &snapshot).values().all(|v| v == "first"));
    assert!(scan(&engine, &table, &engine.snapshot()).values().all(|v| v == "second"));
    engine.flush(&table).unwrap();
    assert!(scan(&engine, &table, &snapshot).values().all(|v| v == "first"));
}

/// A sealed memtable has two versions of a key, as a snapshot was there between; both are cut off while, before or after
/// they are flushed, by a row or by a delete.
#[test]
fn a_key_with_two_sealed_versions_has_one_live_row() {
    for (last, during) in [(Some("last"), true), (None, true), (Some("last"), false), (None, false)] {
        let hooked = Hooked::default();
        let engine = open(&hooked.env(&Arc::new(SimClock::new()))).unwrap();
        let table = engine.create_table(definition("t", 1, Durability::Periodic(100))).unwrap();
        fill(&engine, &table, 0..3, "file");
        engine.flush(&table).unwrap();
        fill(&engine, &table, 0..3, "one");
        let snapshot = engine.snapshot();
        fill(&engine, &table, 0..3, "two");
        engine.seal(&table);
        drop(snapshot);
        let overwrite = {
            let (engine, table) = (engine.clone(), table.clone());
            move || {
                write(&engine, &table, &[(0, last), (1, last)]).unwrap();
            }
        };
        if during {
            // The flush has taken its rows.
            hooked.once(Operation::Create, "tables", overwrite);
        } else {
            overwrite();
        }
        let expected = || {
            let rows = [(0, last), (1, last), (2, Some("two"))];
            model(&rows.iter().filter_map(|(k, v)| Some((*k, (*v)?))).collect::<Vec<_>>())
        };
        engine.flush_sealed(&table).unwrap();
        if during {
            hooked.clear();
        }
        assert_eq!(scan_now(&engine, &table), expected(), "{last:?} {during}: in memory");
        engine.flush(&table).unwrap();
        assert_eq!(scan_now(&engine, &table), expected(), "{last:?} {during}: in files");
        assert_eq!(range_now(&engine, &table), expected(), "{last:?} {during}: in files, by key");
    }
}
