//! Rows that scans hold after they were flushed or overwritten count in the budget until they are freed. Where they would take
//! more than half of it, the scan that began first gives them up.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Engine, EngineOptions, MemoryColumns, Snapshot, Table};
use oribi_sim::{SimClock, SimFiles};
use oribi_types::{Durability, ErrorKind};
use std::path::Path;
use std::sync::Arc;

const KEYS: i64 = 4000;
const MEMORY: u64 = 16 << 20;
/// What the rows of all keys take at least.
const GENERATION: u64 = KEYS as u64 * 256;

fn overwrite(engine: &Engine, table: &Arc<Table>, n: i64) {
    let v = format!("{n:0256}");
    let keys: Vec<i64> = (0..KEYS).collect();
    for keys in keys.chunks(500) {
        let changes: Vec<_> = keys.iter().map(|k| (*k, Some(&*v))).collect();
        write(engine, table, &changes).unwrap();
    }
}

/// Writes and flushes until what is held is as it should be: rows are freed once nobody may be reading them.
fn until_held(engine: &Engine, table: &Arc<Table>, is_right: impl Fn(u64) -> bool) {
    for n in 0.. {
        put(engine, table, KEYS, &n.to_string()).unwrap();
        engine.flush(table).unwrap();
        let held = engine.memory().held();
        if is_right(held) {
            return;
        }
        assert!(n < 10_000, "{held} bytes are held");
    }
}

fn columns(engine: &Engine, table: &Arc<Table>, snapshot: &Snapshot) -> MemoryColumns {
    engine.scan_tablet(table, 0, &[0, 1], false, snapshot).unwrap().memory
}

#[test]
fn rows_that_scans_hold_stay_within_the_budget() {
    let env = sim_env(&SimFiles::new(), &Arc::new(SimClock::new()));
    let options = EngineOptions { background: false, ..EngineOptions::with_memory(MEMORY) };
    let engine = Engine::open(env, Path::new(DIR), options).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Periodic(100))).unwrap();

    // Of each kind of scan, what it has left.
    overwrite(&engine, &table, 0);
    let snapshot = engine.snapshot();
    let rows = columns(&engine, &table, &snapshot);
    overwrite(&engine, &table, 1);
    let mut walk = columns(&engine, &table, &engine.snapshot());
    overwrite(&engine, &table, 2);
    until_held(&engine, &table, |held| held >= 2 * GENERATION);
    let memory = engine.memory();
    assert!(memory.used() >= memory.held() && memory.held() < 4 * GENERATION);
    overwrite(&engine, &table, 3);
    engine.flush(&table).unwrap();
    assert!(memory.held() < 4 * GENERATION, "no more than they saw");
    walk.next_batch().unwrap().unwrap();
    drop(rows);
    until_held(&engine, &table, |held| held > 0 && held < 2 * GENERATION);
    drop((walk, snapshot));
    until_held(&engine, &table, |held| held == 0);

    // One after the other, each over other rows.
    let mut scans = Vec::new();
    for n in 0..3 * MEMORY / GENERATION {
        overwrite(&engine, &table, n as i64);
        let snapshot = engine.snapshot();
        scans.push(columns(&engine, &table, &snapshot));
        engine.flush(&table).unwrap();
        drop(snapshot);
        assert!(memory.held() <= MEMORY / 2 + 2 * GENERATION);
    }
    until_held(&engine, &table, |held| held <= MEMORY / 2 && held > MEMORY / 4);
    let ended = scans.first_mut().unwrap().next_batch().unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::Conflict, "{ended}");
    let mut last = scans.pop().unwrap();
    let mut yielded = 0;
    while let Some(batch) = last.next_batch().unwrap() {
        yielded += batch.num_rows();
    }
    assert!(yielded >= KEYS as usize);
    drop((scans, last));
    until_held(&engine, &table, |held| held == 0);

    // Keys alone are no rows, and count as well.
    overwrite(&engine, &table, 0);
    let mut keys = engine.scan_tablet(&table, 0, &[0], false, &engine.snapshot()).unwrap().memory;
    until_held(&engine, &table, |held| held >= KEYS as u64 * 8 && held < KEYS as u64 * 9);
    let mut yielded = 0;
    while let Some(batch) = keys.next_batch().unwrap() {
        yielded += batch.num_rows();
    }
    assert!(yielded >= KEYS as usize);
    drop(keys);
    until_held(&engine, &table, |held| held == 0);
}
