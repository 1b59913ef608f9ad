//! Long rows that are being read from files take a bounded part of the memory of queries, whoever reads them.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Engine, EngineStats, Table};
use oribi_types::Durability;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const BYTES: usize = 3 << 20;
const NOTHING: (u64, u64) = (0, 0);

/// Rows of [`BYTES`] that only files have: two of them, twice, are more than an eighth of 64 MiB.
fn cold() -> (Arc<Engine>, Arc<Table>) {
    let (files, _clock, engine, table) = fresh(1, Durability::Sync);
    for k in 0..3 {
        put(&engine, &table, k, &"x".repeat(BYTES)).unwrap();
    }
    put(&engine, &table, 3, "short").unwrap();
    engine.flush(&table).unwrap();
    engine.close().unwrap();
    drop((engine, table));
    after_kill(&files)
}

fn used(stats: &EngineStats) -> (u64, u64) {
    (stats.long_read_bytes, stats.query_bytes)
}

#[test]
fn a_long_row_counts_while_it_is_read_and_answered_and_a_short_one_does_not() {
    let (engine, table) = cold();
    let read = |k| {
        let seen = || used(&engine.stats());
        engine.get(&table, &key(k), engine.read_view(), |_| seen()).unwrap().0.unwrap()
    };
    let (reads, queries) = read(0);
    assert!(reads >= 2 * BYTES as u64 && queries == reads, "{reads} {queries}");
    assert_eq!(read(3), NOTHING);
    assert_eq!(used(&engine.stats()), NOTHING);
    // Nor does one that is in memory by now.
    assert_eq!(read(0), NOTHING);
    // A write that has to know the row reads it too.
    assert!(delete(&engine, &table, 1).unwrap());
    assert_eq!(used(&engine.stats()), NOTHING);
    engine.close().unwrap();
}

#[test]
fn where_there_is_no_room_the_next_one_waits() {
    let (engine, table) = cold();
    let answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let next = || {
            engine.get(&table, &key(1), engine.read_view(), |_| answered.store(true, SeqCst)).unwrap();
        };
        let first = |_: oribi_engine::RowVersion<'_>| {
            scope.spawn(next);
            while engine.stats().long_reads_waiting == 0 && !answered.load(SeqCst) {
                std::thread::yield_now();
            }
            assert!(!answered.load(SeqCst), "two were read at once");
            let stats = engine.stats();
            assert!(stats.long_read_bytes <= stats.long_read_bytes_max);
        };
        engine.get(&table, &key(0), engine.read_view(), first).unwrap();
    });
    assert!(answered.load(SeqCst));
    assert_eq!(used(&engine.stats()), NOTHING);
    engine.close().unwrap();
}
