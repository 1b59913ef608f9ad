//! Rows past their time are nowhere: not for a get, a scan or an insert, in memory, in files, or after a compaction.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Alteration, Decision, Engine, EngineOptions, Read, Table, WriteOp};
use oribi_sim::{Operation, SimClock, SimFiles};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, Schema, TableDefinition, TableOptions, ValueRef};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SECOND: u64 = 1_000_000;

fn engine() -> (SimFiles, Arc<SimClock>, Arc<Engine>) {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let engine = open(&sim_env(&files, &clock)).unwrap();
    (files, clock, engine)
}

/// Checks get, scan and what an insert sees, in memory, flushed, compacted, opened again.
fn everywhere(files: &SimFiles, clock: &Arc<SimClock>, engine: &Arc<Engine>, expected: &[(i64, &str)]) {
    let see = |engine: &Arc<Engine>, at: &str| {
        let table = engine.table("public", "t").unwrap();
        let rows = model(expected);
        assert_eq!(scan_now(engine, &table), rows, "scan {at}");
        for k in 0..6 {
            assert_eq!(get(engine, &table, k), rows.get(&k).cloned(), "get of {k} {at}");
            let key = key(k);
            let op = WriteOp { table: &table, key: &key, read: Read::Existing, row: &[] };
            engine
                .write(&[op], &mut |_, current, _| {
                    assert_eq!(current.is_some(), rows.contains_key(&k), "insert of {k} {at}");
                    Ok(Decision::Keep)
                })
                .unwrap();
        }
    };
    let table = engine.table("public", "t").unwrap();
    see(engine, "in memory");
    engine.flush(&table).unwrap();
    see(engine, "flushed");
    let again = open(&sim_env(&files.kill(), clock)).unwrap();
    see(&again, "opened again");
    again.compact(&again.table("public", "t").unwrap()).unwrap();
    see(&again, "compacted");
    drop(again);
    assert_eq!(findings(files), Vec::<String>::new());
}

#[test]
fn rows_expire_by_the_age_that_their_table_allows() {
    let (files, clock, engine) = engine();
    let mut definition = definition("t", 1, Durability::Sync);
    definition.options.ttl_ms = Some(10_000);
    let table = engine.create_table(definition).unwrap();
    write(&engine, &table, &[(1, Some("early")), (2, Some("early"))]).unwrap();
    clock.advance(6 * SECOND);
    write(&engine, &table, &[(2, Some("late")), (3, Some("late"))]).unwrap();
    everywhere(&files, &clock, &engine, &[(1, "early"), (2, "late"), (3, "late")]);
    let old = engine.snapshot();
    clock.advance(5 * SECOND);
    everywhere(&files, &clock, &engine, &[(2, "late"), (3, "late")]);
    assert_eq!(scan(&engine, &table, &old).len(), 3, "a snapshot judges by its own time");
    // An expired row is replaced like an absent one, and does not come back.
    write(&engine, &table, &[(1, Some("new"))]).unwrap();
    everywhere(&files, &clock, &engine, &[(1, "new"), (2, "late"), (3, "late")]);
    delete(&engine, &table, 1).unwrap();
    everywhere(&files, &clock, &engine, &[(2, "late"), (3, "late")]);
    clock.advance(11 * SECOND);
    everywhere(&files, &clock, &engine, &[]);
    drop(old);
    engine.compact(&table).unwrap();
    assert_eq!(table.estimated_rows(), 0, "expired rows leave the disk");
    write(&engine, &table, &[(5, Some("alone in its file"))]).unwrap();
    engine.flush(&table).unwrap();
    clock.advance(11 * SECOND);
    engine.compact(&table).unwrap();
    assert_eq!(table.estimated_rows(), 0);
}

/// A table `t` (k, v, expires_at), whose rows expire by the last column.
#[test]
fn imported_rows_are_as_young_as_their_import() {
    let (files, clock, engine) = engine();
    let mut definition = definition("t", 1, Durability::Sync);
    definition.options.ttl_ms = Some(10_000);
    let table = engine.create_table(definition).unwrap();
    // Nobody has written for long.
    clock.advance(60 * SECOND);
    import(&engine, &table, &[1], "imported").unwrap();
    clock.advance(9 * SECOND);
    everywhere(&files, &clock, &engine, &[(1, "imported")]);
    clock.advance(2 * SECOND);
    everywhere(&files, &clock, &engine, &[]);
}

fn table_with_expiry(engine: &Arc<Engine>) -> Arc<Table> {
    let schema = Schema::new(
        vec![
            ColumnSpec::new("k", ColumnType::Int64).not_null(),
            ColumnSpec::new("v", ColumnType::String),
            ColumnSpec::new("expires_at", ColumnType::Timestamp),
        ],
        &["k"],
    )
    .unwrap();
    let expires_at = schema.columns().iter().find(|c| c.name == "expires_at").map(|c| c.id);
    let options = TableOptions { expires_at, ..TableOptions::new(Durability::Sync) };
    let definition = TableDefinition { schema, options, ..definition("t", 1, Durability::Sync) };
    engine.create_table(definition).unwrap()
}

/// Puts a row that expires in `seconds`, if ever.
fn put_until(engine: &Engine, clock: &SimClock, table: &Arc<Table>, k: i64, v: &str, seconds: Option<u64>) {
    let at = seconds.map(|s| (oribi_env::Clock::now_micros(clock) + s * SECOND) as i64);
    let at = at.map_or(ValueRef::Null, ValueRef::Timestamp);
    let key = key(k);
    let op = WriteOp { table, key: &key, read: Read::Blind, row: &[] };
    let written = engine.write(&[op], &mut |_, _, row| {
        table.schema_ref().layout().encode(&[ValueRef::String(v), at], row);
        Ok(Decision::Put)
    });
    written.unwrap();
}

#[test]
fn a_lone_file_of_expired_rows_is_compacted_by_itself() {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let engine =
        Engine::open(sim_env(&files, &clock), Path::new(DIR), EngineOptions::with_memory(8 << 20)).unwrap();
    let table = table_with_expiry(&engine);
    for k in 0..100 {
        let seconds = [None, Some(10), Some(20), Some(5000)][k as usize % 4];
        put_until(&engine, &clock, &table, k, "v", seconds);
    }
    engine.flush(&table).unwrap();
    let shrinks_to = |rows: u64| {
        for _ in 0..60_000 {
            if table.estimated_rows() == rows {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    };
    clock.advance(11 * SECOND);
    assert_eq!(scan_now(&engine, &table).len(), 75);
    // A quarter was not worth it. What expires later is noticed some time after, and a first row at once.
    clock.advance(600 * SECOND);
    assert!(shrinks_to(50), "{} rows", table.estimated_rows());
    clock.advance(4400 * SECOND);
    assert!(shrinks_to(25), "{} rows", table.estimated_rows());
    assert_eq!(scan_now(&engine, &table).len(), 25);
    assert_eq!(findings(&files), Vec::<String>::new());
}

#[test]
fn a_scan_reads_no_rows_to_find_that_none_has_expired_or_all_have() {
    let (files, clock, engine) = engine();
    let table = table_with_expiry(&engine);
    (0..10).for_each(|k| put_until(&engine, &clock, &table, k, "v", Some(10 + k as u64)));
    engine.flush(&table).unwrap();
    let hidden = || {
        let scan = engine.scan_tablet(&table, 0, &[0], false, &engine.snapshot()).unwrap();
        scan.files[0].hidden.len()
    };
    // Reads the metadata, which stay in memory.
    assert_eq!(hidden(), 0);
    files.fail(Operation::Read, 1, ".parquet");
    assert_eq!(hidden(), 0);
    clock.advance(100 * SECOND);
    assert_eq!(hidden(), 10);
    assert!(files.forgive(), "nothing was read");
}

#[test]
fn rows_expire_by_a_column() {
    let (files, clock, engine) = engine();
    let table = table_with_expiry(&engine);
    let put_until = |table: &Arc<Table>, k: i64, v: &str, seconds: Option<u64>| {
        put_until(&engine, &clock, table, k, v, seconds);
    };
    put_until(&table, 1, "never", None);
    put_until(&table, 2, "soon", Some(5));
    put_until(&table, 3, "later", Some(20));
    everywhere(&files, &clock, &engine, &[(1, "never"), (2, "soon"), (3, "later")]);
    clock.advance(5 * SECOND);
    everywhere(&files, &clock, &engine, &[(1, "never"), (3, "later")]);
    // Shortened, prolonged.
    put_until(&table, 1, "short", Some(1));
    put_until(&table, 3, "long", Some(100));
    put_until(&table, 2, "back", Some(100));
    clock.advance(50 * SECOND);
    everywhere(&files, &clock, &engine, &[(2, "back"), (3, "long")]);
    // The column by which rows expire cannot go.
    let drop = engine.alter_table("public", "t", &Alteration::DropColumn("expires_at".into()));
    assert!(drop.is_err());
}

#[test]
fn a_snapshot_that_another_process_took_judges_by_its_clock() {
    let (files, clock, engine) = engine();
    let mut definition = definition("t", 1, Durability::Sync);
    definition.options.ttl_ms = Some(10_000);
    let table = engine.create_table(definition).unwrap();
    write(&engine, &table, &[(1, Some("early")), (2, Some("early"))]).unwrap();
    engine.flush(&table).unwrap();
    let taken = engine.snapshot();
    let (ts, now_micros) = (taken.ts(), taken.now_micros());
    clock.advance(11 * SECOND);

    let options = EngineOptions { keeps_history: true, ..quiet() };
    let again = Engine::open(sim_env(&files.kill(), &clock), Path::new(DIR), options).unwrap();
    let history = again.take_history();
    let table = again.table("public", "t").unwrap();
    again.compact(&table).unwrap();
    let snapshot = again.snapshot_as_of(ts, now_micros).unwrap().unwrap();
    assert_eq!(scan(&again, &table, &snapshot), model(&[(1, "early"), (2, "early")]));
    let later = again.snapshot_as_of(ts, u64::MAX).unwrap().unwrap();
    assert_eq!(scan(&again, &table, &later), model(&[]), "no clock is ahead");
    drop((history, snapshot, later));
    again.compact(&table).unwrap();
    assert_eq!(table.estimated_rows(), 0);
}
