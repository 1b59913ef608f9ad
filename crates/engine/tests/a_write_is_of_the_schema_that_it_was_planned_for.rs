//! A row is made for a table as it is defined at that moment. If it is defined otherwise by the time the row would be
//! applied, the write is refused and planned again: no value of a new column is lost, and no row is of an old layout.
#![allow(clippy::unwrap_used)]

mod common;

use common::counting::{answered, count, text};
use common::*;
use oribi_engine::{Alteration, Commit, Decision, Engine, Read, Request, Table, WriteOp};
use oribi_env::locks;
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnSource, ColumnType, Durability, ErrorKind, Result, Timestamp, ValueRef};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

fn add(name: &str) -> Alteration {
    let default = Some(oribi_types::Value::Int64(-1));
    Alteration::AddColumn(ColumnSpec { default, ..ColumnSpec::new(name, ColumnType::Int64) })
}

fn alter(engine: &Engine, change: &Alteration) -> Arc<Table> {
    engine.alter_table("public", "t", change).unwrap();
    engine.table("public", "t").unwrap()
}

/// Replaces row `k` by one with `n` in each column of `table` that is a number; `decided` is called in between.
fn upsert(engine: &Engine, table: &Arc<Table>, k: i64, n: i64, decided: impl Fn()) -> Result<Commit> {
    let key = key(k);
    let op = WriteOp { table, key: &key, read: Read::Existing, row: &[] };
    engine.write(&[op], &mut |_, _, row| {
        let layout = table.schema_ref().layout();
        let mut slots = vec![ValueRef::String("v")];
        slots.resize(layout.slots().len(), ValueRef::Int64(n));
        layout.encode(&slots, row);
        locks::as_another_thread(&decided);
        Ok(Decision::Put)
    })
}

/// The numbers of row `k`, by column id.
fn numbers(engine: &Engine, table: &Table, k: i64) -> BTreeMap<u32, i64> {
    let read = |row: oribi_engine::RowVersion<'_>| {
        let slots = table.schema_ref().columns().iter().filter_map(|column| match column.source {
            ColumnSource::Slot(slot) => Some((column, slot)),
            _ => None,
        });
        let numbers =
            slots.filter_map(|(column, slot)| match table.schema_ref().slot_value(column, slot, row.row) {
                ValueRef::Int64(n) => Some((column.id, n)),
                _ => None,
            });
        numbers.collect()
    };
    engine.get(table, &key(k), engine.read_view(), read).unwrap().0.unwrap()
}

fn ids(table: &Table) -> Vec<u32> {
    let numbers =
        table.schema_ref().columns().iter().filter(|column| column.column_type == ColumnType::Int64);
    numbers.filter(|column| column.name != "k").map(|column| column.id).collect()
}

#[test]
fn a_write_that_an_alter_table_overtakes_is_refused() {
    let (_, _, engine, old) = fresh(2, Durability::Periodic(10));
    let changes = [
        add("c"),
        Alteration::SetDefault { column: "n".into(), default: None },
        Alteration::RenameColumn { from: "n".into(), to: "m".into() },
        Alteration::DropColumn("m".into()),
    ];
    let mut table = old;
    for change in changes {
        upsert(&engine, &table, 1, 1, || ()).unwrap();
        let mut before = numbers(&engine, &table, 1);
        let overtaken = upsert(&engine, &table, 1, 2, || {
            // It needs no latch, so that it need not wait for this write.
            alter(&engine, &change);
        });
        assert_eq!(overtaken.unwrap_err().kind(), ErrorKind::Retry, "{change:?}");
        let newest = engine.latest(table.id()).unwrap();
        let mut after = numbers(&engine, &newest, 1);
        before.retain(|id, _| ids(&newest).contains(id));
        after.retain(|id, _| ids(&table).contains(id));
        assert_eq!(after, before, "nothing was applied");
        upsert(&engine, &newest, 1, 3, || ()).unwrap();
        assert_eq!(upsert(&engine, &table, 1, 4, || ()).unwrap_err().kind(), ErrorKind::Retry);
        let expected: BTreeMap<u32, i64> = ids(&newest).into_iter().map(|id| (id, 3)).collect();
        assert_eq!(numbers(&engine, &newest, 1), expected, "{change:?}");
        table = newest;
    }
    // What changes nothing is of no schema.
    let key = key(1);
    let op = WriteOp { table: &table, key: &key, read: Read::Existing, row: &[] };
    alter(&engine, &add("d"));
    engine.write(&[op], &mut |_, _, _| Ok(Decision::Keep)).unwrap();
}

#[test]
fn a_request_that_was_refused_for_it_is_executed_when_it_is_sent_again() {
    let (_, _, engine, old) = fresh(1, Durability::Periodic(10));
    let new = alter(&engine, &add("c"));
    let request = Request { client: b"c", sequence: 0, first_incomplete: 0 };
    assert_eq!(count(&engine, &old, &request, 1).unwrap_err().kind(), ErrorKind::Retry);
    for _ in 0..2 {
        assert_eq!(text(&answered(count(&engine, &new, &request, 1))), "1");
    }
}

/// An acknowledged write, and the columns that it was planned for.
struct Written {
    k: i64,
    n: i64,
    ts: Timestamp,
    ids: Vec<u32>,
}

#[test]
fn acknowledged_writes_keep_their_values_while_columns_come_and_go() {
    const WRITERS: i64 = 3;
    const KEYS: i64 = 4;
    let (files, _, engine, _) = fresh(2, Durability::Periodic(10));
    let written = Mutex::new(Vec::new());
    let ended = AtomicBool::new(false);
    // When each definition was there, and its columns.
    let mut definitions = Vec::new();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (engine, written, ended) = (&engine, &written, &ended);
            scope.spawn(move || {
                for n in 0.. {
                    let (k, table) = (n % KEYS, engine.table("public", "t").unwrap());
                    match upsert(engine, &table, k, n * WRITERS + writer, std::thread::yield_now) {
                        Ok(Commit { ts, .. }) => {
                            let ids = ids(&table);
                            written.lock().unwrap().push(Written { k, n: n * WRITERS + writer, ts, ids });
                        }
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Retry),
                    }
                    if ended.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for i in 0..oribi_sim::cases(40) {
            let table = alter(&engine, &add(&format!("c{i}")));
            definitions.push((engine.everything().0, ids(&table)));
            let until = written.lock().unwrap().len() + 10;
            while written.lock().unwrap().len() < until {
                std::thread::yield_now();
            }
            if i % 2 == 1 {
                let table = alter(&engine, &Alteration::DropColumn(format!("c{}", i - 1)));
                definitions.push((engine.everything().0, ids(&table)));
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    let mut written = written.into_inner().unwrap();
    written.sort_unstable_by_key(|write| write.ts);
    for Written { k, n, ts, ids } in &written {
        let newest = definitions.iter().rposition(|(from, _)| from < ts);
        let known = newest.is_none_or(|newest| definitions[newest..].iter().any(|(_, there)| there == ids));
        assert!(known, "{n} was written to {k} at {ts:?} without a column that was there");
    }
    let check = |engine: &Engine, table: &Table| {
        for k in 0..KEYS {
            let last = written.iter().rfind(|write| write.k == k).unwrap();
            let found = numbers(engine, table, k);
            let value = |id: &u32| (*id, if last.ids.contains(id) { last.n } else { -1 });
            assert_eq!(found, ids(table).iter().map(value).collect(), "row {k}");
        }
    };
    let table = engine.table("public", "t").unwrap();
    check(&engine, &table);
    engine.flush(&table).unwrap();
    check(&engine, &table);
    let (again, table) = after_kill(&files);
    check(&again, &table);
}
