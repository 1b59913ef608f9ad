//! A panic of ours in the middle of a change stops the engine as a failed log does: whoever waits is told, and what was
//! acknowledged is there after a restart.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Engine, EngineOptions, Table};
use oribi_sim::{Hooked, Operation, SimClock};
use oribi_types::{Durability, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

fn start(options: EngineOptions) -> (Hooked, Arc<Engine>, Arc<Table>) {
    let hooked = Hooked::default();
    let engine = Engine::open(hooked.env(&Arc::new(SimClock::new())), Path::new(DIR), options).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Periodic(1000))).unwrap();
    (hooked, engine, table)
}

fn has_ended(engine: &Engine) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(engine.failure());
    assert!(error.message().contains("panicked"), "{error}");
    assert!(engine.troubles().iter().any(|trouble| trouble.refuses));
}

#[test]
fn writers_that_wait_for_a_flush_that_panicked_are_refused() {
    let (hooked, engine, table) = start(EngineOptions::with_memory(8 << 20));
    hooked.set(|operation, path| {
        assert!(operation != Operation::Create || !path.contains("/tables/"), "a panic that was ordered");
    });
    let long = "x".repeat(50_000);
    let error = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_i64)
            .map(|writer| {
                let (engine, table, long) = (&engine, &table, &long);
                let write = move |k| put(engine, table, writer * 10_000 + k, long).err();
                scope.spawn(move || (0..10_000).find_map(write).expect("memory is bounded"))
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).last().unwrap()
    });
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    has_ended(&engine);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(engine.admission());
}

#[test]
fn a_panic_while_an_import_is_committed_does_not_hold_up_those_who_wait_for_the_watermark() {
    let (hooked, engine, table) = start(quiet());
    let commit = put(&engine, &table, 1, "kept").unwrap();
    engine.settle(commit.obligation.must_be_durable()).unwrap();
    hooked.once(Operation::Write, "MANIFEST", || panic!("a panic that was ordered"));
    let imported = catch_unwind(AssertUnwindSafe(|| import(&engine, &table, &[70, 71], "imported")));
    assert!(imported.is_err());
    hooked.clear();
    has_ended(&engine);
    assert_eq!(put(&engine, &table, 2, "late").unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(get(&engine, &table, 1).as_deref(), Some("kept"));
    let (again, table) = after_kill(&hooked.files);
    assert_eq!(scan_now(&again, &table), model(&[(1, "kept")]));
}

#[test]
fn a_panic_between_the_manifest_and_memory_stops_the_engine() {
    let (hooked, engine, table) = start(quiet());
    put(&engine, &table, 1, "kept").unwrap();
    engine.flush(&table).unwrap();
    // The record of the truncate is on the disk when the files that it replaced are removed.
    hooked.once(Operation::Remove, "/tables/", || panic!("a panic that was ordered"));
    assert!(catch_unwind(AssertUnwindSafe(|| engine.truncate(&table))).is_err());
    hooked.clear();
    has_ended(&engine);
    let (again, table) = after_kill(&hooked.files);
    assert!(scan_now(&again, &table).is_empty());
}

/// Whoever decides may panic: nothing was changed by then.
#[test]
fn a_panic_of_who_decides_a_write_is_its_own() {
    use oribi_engine::{Read, WriteOp};
    let (_, engine, table) = start(quiet());
    let key = key(1);
    let op = WriteOp { table: &table, key: &key, read: Read::Existing, row: &[] };
    let decided = catch_unwind(AssertUnwindSafe(|| {
        engine.write(&[op], &mut |_, _, _| panic!("a panic that was ordered"))
    }));
    assert!(decided.is_err());
    put(&engine, &table, 1, "v").unwrap();
    assert_eq!(get(&engine, &table, 1).as_deref(), Some("v"));
}
