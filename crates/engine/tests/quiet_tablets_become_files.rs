//! Rows that nobody adds to any more go to files, by themselves: scans want columns, and an open has less of the log to read.
//! Time passes when the test says so; the flush thread looks at the clock when it likes.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Decision, Engine, EngineOptions, Read, Table, WriteOp};
use oribi_sim::{SimClock, SimFiles};
use oribi_types::{Durability, Schema, TableDefinition, ValueRef};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SECOND: u64 = 1_000_000;
/// Rows of a memtable that is worth a file.
const MANY: i64 = 2500;

fn engine() -> (SimFiles, Arc<SimClock>, Arc<Engine>) {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let options = EngineOptions { flush_quiet_ms: 5000, ..EngineOptions::with_memory(256 << 20) };
    let engine = Engine::open(sim_env(&files, &clock), Path::new(DIR), options).unwrap();
    (files, clock, engine)
}

fn table(engine: &Arc<Engine>, name: &str, rows: i64) -> Arc<Table> {
    let table = engine.create_table(definition(name, 1, Durability::Periodic(100))).unwrap();
    let text = "v".repeat(500);
    for k in 0..rows {
        put(engine, &table, k, &text).unwrap();
    }
    table
}

fn is_flushed(table: &Table) -> bool {
    table.unflushed_rows() == 0
}

/// Lets a second pass and calls `act`, again and again, until `done`. The flush thread has what others leave of the processor,
/// which may be nothing for a while.
fn pass(clock: &SimClock, mut act: impl FnMut(), done: impl Fn() -> bool) {
    for _ in 0..60_000 {
        clock.advance(SECOND);
        act();
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nothing was flushed");
}

#[test]
fn a_quiet_tablet_is_flushed_and_one_that_is_written_to_is_not() {
    let (files, clock, engine) = engine();
    let busy = table(&engine, "busy", MANY);
    let small = table(&engine, "small", 10);
    let quiet = table(&engine, "quiet", MANY);
    // The same row again, so that neither rows nor bytes change. However seldom the flush thread looks, it never sees five
    // seconds without a write.
    let write = || {
        put(&engine, &busy, 1, &"w".repeat(500)).unwrap();
    };
    // A flush is counted at its end.
    let flushes = || engine.stats().flushes;
    pass(&clock, write, || flushes() > 0);
    assert!(is_flushed(&quiet));
    // And looks again.
    let again = table(&engine, "again", MANY);
    pass(&clock, write, || flushes() > 1);
    assert!(is_flushed(&again));
    assert_eq!(flushes(), 2);
    assert_eq!((busy.unflushed_rows(), small.unflushed_rows()), (MANY as u64, 10));

    let reads = engine.stats().file_reads;
    assert_eq!(get(&engine, &quiet, 7), Some("v".repeat(500)));
    assert_eq!(engine.stats().file_reads, reads, "the row is still at hand");

    pass(&clock, || {}, || is_flushed(&busy));
    assert_eq!(small.unflushed_rows(), 10);
    assert_eq!(scan_now(&engine, &busy).len(), MANY as usize);
    assert_eq!(findings(&files), Vec::<String>::new());
}

#[test]
fn rows_of_a_key_value_table_are_not_flushed_for_being_quiet() {
    let (_files, clock, engine) = engine();
    let definition = TableDefinition { schema: Schema::key_value(), ..definition("b", 1, Durability::Sync) };
    let bucket = engine.create_table(definition).unwrap();
    for k in 0..MANY {
        let key = key(k);
        let op = WriteOp { table: &bucket, key: &key, read: Read::Blind, row: &[] };
        let put = engine.write(&[op], &mut |_, _, row| {
            let slots = [ValueRef::Binary(&[7; 500]), ValueRef::Int64(0), ValueRef::Null];
            bucket.schema_ref().layout().encode(&slots, row);
            Ok(Decision::Put)
        });
        put.unwrap();
    }
    // When the other is flushed, both were looked at.
    let other = table(&engine, "t", MANY);
    pass(&clock, || {}, || is_flushed(&other));
    assert_eq!(bucket.unflushed_rows(), MANY as u64);
}
