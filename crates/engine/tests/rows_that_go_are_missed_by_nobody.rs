//! Rows go all at once: with their table, their range, or a truncate. Readers by a snapshot from before read on where they hold
//! them, and are refused where they do not: nobody sees older copies, deleted rows, or fewer.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Engine, KeyRange, RangeReader, Snapshot, Table};
use oribi_types::{Durability, ErrorKind, Result};
use std::sync::Arc;

const KEYS: i64 = 3000;

/// Each row has an older copy in a file; every third is deleted since, all others are newer in memory.
fn layers(engine: &Engine, table: &Arc<Table>) -> Rows {
    let old: Vec<_> = (0..KEYS).map(|k| (k, Some("old"))).collect();
    write(engine, table, &old).unwrap();
    engine.flush(table).unwrap();
    let new: Vec<_> = (0..KEYS).map(|k| (k, (k % 3 > 0).then_some("new"))).collect();
    write(engine, table, &new).unwrap();
    (0..KEYS).filter(|k| k % 3 > 0).map(|k| (k, "new".to_owned())).collect()
}

/// What an open reader shows from now on.
fn rest(reader: &mut RangeReader, table: &Table) -> Result<Rows> {
    let mut rows = Rows::new();
    reader.read(usize::MAX, |row| {
        rows.insert(k_of(row.key), v_of(table, row.row));
        Ok(())
    })?;
    Ok(rows)
}

/// Readers of each kind that are open while `act` has the rows go, and those that come after it with the snapshot of before.
fn readers_beside(act: impl Fn(&Arc<Engine>, &Arc<Table>)) {
    let (_, _, engine, table) = fresh(1, Durability::Sync);
    let rows = layers(&engine, &table);
    let snapshot = Arc::new(engine.snapshot());
    let whole = |snapshot: &Arc<Snapshot>| engine.range(&table, 0, KeyRange::default(), &[1], snapshot);
    let mut reader = whole(&snapshot);
    let first = reader.read(1, |_| Ok(())).unwrap();
    assert_eq!(first, 1);
    let mut unread = whole(&snapshot);
    let mut columns = Scan::begin(&engine, &table, &snapshot).unwrap();
    columns.step().unwrap();

    act(&engine, &table);

    assert_eq!(rest(&mut reader, &table).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(rest(&mut unread, &table).unwrap_err().kind(), ErrorKind::Conflict);
    while columns.step().unwrap() {}
    assert_eq!(columns.rows(), rows, "what the scan holds");
    assert_eq!(try_scan(&engine, &table, &snapshot).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(Scan::begin(&engine, &table, &snapshot).err().unwrap().kind(), ErrorKind::Conflict);
    assert_eq!(rest(&mut whole(&snapshot), &table).unwrap_err().kind(), ErrorKind::Conflict);
    for k in 0..3 {
        let found = engine.get(&table, &key(k), snapshot.view(), |row| v_of(&table, row.row));
        assert_eq!(found.unwrap_err().kind(), ErrorKind::Retry, "get of {k}");
        let found = engine.try_get(&table, &key(k), snapshot.view(), |row| v_of(&table, row.row));
        assert!(matches!(found, oribi_engine::Lookup::Pending), "get of {k} from memory: {found:?}");
    }
}

#[test]
fn of_a_dropped_table_nobody_reads_older_copies() {
    readers_beside(|engine, table| {
        engine.drop_table("public", "t").unwrap();
        for k in 0..3 {
            let found = engine.get(table, &key(k), engine.read_view(), |row| v_of(table, row.row));
            assert_eq!(found.unwrap_err().kind(), ErrorKind::Retry, "get of {k}");
        }
        assert_eq!(try_scan(engine, table, &engine.snapshot()).unwrap_err().kind(), ErrorKind::Conflict);
    });
}

#[test]
fn a_dropped_schema_is_one_of_dropped_tables() {
    let (_, _, engine, _) = fresh(1, Durability::Sync);
    engine.create_schema("s").unwrap();
    let of_s = |name| oribi_types::TableDefinition {
        schema_name: "s".into(),
        ..definition(name, 1, Durability::Sync)
    };
    let tables = ["a", "b"].map(|name| engine.create_table(of_s(name)).unwrap());
    let mut readers: Vec<_> = tables
        .iter()
        .map(|table| {
            layers(&engine, table);
            let mut reader = engine.range(table, 0, KeyRange::default(), &[1], &Arc::new(engine.snapshot()));
            assert_eq!(reader.read(1, |_| Ok(())).unwrap(), 1);
            reader
        })
        .collect();
    engine.drop_schema("s", true).unwrap();
    for (reader, table) in readers.iter_mut().zip(&tables) {
        assert_eq!(rest(reader, table).unwrap_err().kind(), ErrorKind::Conflict);
    }
    assert_eq!(engine.memory().memtables(), 0);
}

#[test]
fn of_a_truncated_table_nobody_misses_rows() {
    readers_beside(|engine, table| {
        engine.truncate(table).unwrap();
        assert_eq!(scan_now(engine, table), Rows::new(), "who begins now");
        assert_eq!(range_now(engine, table), Rows::new());
        assert_eq!(get(engine, table, 1), None);
        let now = engine.snapshot();
        let found = engine.get(table, &key(1), now.view(), |row| v_of(table, row.row));
        assert_eq!(found.unwrap().0, None);
        put(engine, table, 1, "later").unwrap();
        assert_eq!(scan_now(engine, table), model(&[(1, "later")]));
    });
}

#[test]
fn a_truncate_is_behind_all_that_can_be_asked_for_when_the_folder_is_opened_again() {
    let (files, clock) = (oribi_sim::SimFiles::new(), Arc::new(oribi_sim::SimClock::new()));
    let options = || oribi_engine::EngineOptions { keeps_history: true, ..quiet() };
    let open = |files: &oribi_sim::SimFiles| {
        Engine::open(sim_env(files, &clock), std::path::Path::new(DIR), options()).unwrap()
    };
    let engine = open(&files);
    let history = engine.take_history();
    let table = engine.create_table(definition("t", 1, Durability::Sync)).unwrap();
    let before = layers(&engine, &table);
    let then = engine.snapshot().ts();
    engine.truncate(&table).unwrap();
    drop((history, engine, table));
    let engine = open(&files.kill());
    let table = engine.table("public", "t").unwrap();
    // Either it is known that this cannot be answered any more, or it is answered.
    if let Some(snapshot) = engine.snapshot_at(then).unwrap() {
        assert_eq!(try_scan(&engine, &table, &snapshot).unwrap(), before);
    }
    assert_eq!(scan_now(&engine, &table), Rows::new());
}
