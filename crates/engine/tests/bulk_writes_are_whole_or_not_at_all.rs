//! A write of many bytes is in the log in fragments: a machine that stops between two of them, or before their commit, finds nothing
//! of it, and one that stops behind finds all.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::*;
use oribi_engine::{Decision, Engine, EngineOptions, Read, Request, RowVersion, Table, Tracked, WriteOp};
use oribi_sim::{Hooked, Operation, SimClock, SimFiles};
use oribi_types::{Durability, Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;

const ROWS: i64 = 200;

/// Puts all rows as one write.
fn put_all(engine: &Engine, table: &Arc<Table>, v: &str) -> Result<()> {
    let rows: Vec<(i64, Option<&str>)> = (0..ROWS).map(|k| (k, Some(v))).collect();
    engine.settle(write(engine, table, &rows)?.obligation)
}

/// The value that all rows have; nothing if there are none.
fn of_all(engine: &Engine, table: &Arc<Table>) -> Option<String> {
    let rows = scan_now(engine, table);
    let first = rows.get(&0).cloned();
    assert!(rows.values().all(|v| Some(v) == first.as_ref()), "a part of a write: {rows:?}");
    assert!(rows.is_empty() || rows.len() == ROWS as usize);
    assert_eq!(get(engine, table, ROWS - 1), first);
    first
}

fn reopened(files: &SimFiles) -> (Arc<Engine>, Arc<Table>) {
    assert_eq!(findings(files), [""; 0]);
    let engine = open(&sim_env(files, &Arc::new(SimClock::new()))).unwrap();
    let table = engine.table("public", "t").unwrap();
    (engine, table)
}

fn stops_at_any_point(durability: Durability, stop: impl Fn(&SimFiles, u64) -> SimFiles) {
    let (mut seen, mut at) = ([false; 2], 1);
    loop {
        let (files, _, engine, table) = fresh(2, durability);
        put_all(&engine, &table, "before").unwrap();
        files.stop_at(files.changes() + at);
        let acknowledged = put_all(&engine, &table, "after").is_ok();
        drop((engine, table));
        let files = stop(&files, at);
        let (engine, table) = reopened(&files);
        let found = of_all(&engine, &table).unwrap();
        assert!(found == "after" || !acknowledged);
        seen[usize::from(found == "after")] = true;
        // What is left of the other is in nobody's way.
        put_all(&engine, &table, "again").unwrap();
        engine.flush(&table).unwrap();
        drop((engine, table));
        let (engine, table) = reopened(&files.crash(at));
        assert_eq!(of_all(&engine, &table).as_deref(), Some("again"));
        if acknowledged {
            break;
        }
        at += 1;
    }
    assert_eq!(seen, [true; 2]);
    assert!(at > 40, "{at}: it has many fragments");
}

#[test]
fn a_power_cut_at_any_point_finds_all_of_a_bulk_write_or_nothing() {
    stops_at_any_point(Durability::Sync, |files, seed| files.crash(seed));
}

#[test]
fn a_kill_at_any_point_finds_all_of_a_bulk_write_or_nothing() {
    stops_at_any_point(Durability::Periodic(100), |files, _| files.kill());
}

/// A reader of a `sync` table who finds the rows answers for them: the commit is on the disk by then.
#[test]
fn rows_that_were_seen_survive_a_power_cut() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    let rows: Vec<(i64, Option<&str>)> = (0..ROWS).map(|k| (k, Some("v"))).collect();
    write(&engine, &table, &rows).unwrap();
    let (found, obligation) = engine.get(&table, &key(1), engine.read_view(), |_| ()).unwrap();
    assert!(found.is_some() && engine.is_settled(obligation));
    let (engine, table) = reopened(&files.crash(1));
    assert_eq!(of_all(&engine, &table).as_deref(), Some("v"));
}

/// What was written between two fragments is in the log between them.
#[test]
fn others_are_logged_between_the_fragments_of_a_bulk_write() {
    let hooked = Hooked::default();
    let engine = Engine::open(hooked.env(&Arc::new(SimClock::new())), Path::new(DIR), quiet()).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Sync)).unwrap();
    let other = engine.create_table(definition("other", 1, Durability::Sync)).unwrap();
    put_all(&engine, &table, "before").unwrap();
    let (e, t, o) = (engine.clone(), table.clone(), other.clone());
    let (told, between) = std::sync::mpsc::channel();
    // A fragment is about to be written out.
    hooked.once(Operation::Write, "wal", move || {
        let others = move || {
            let commit = put(&e, &o, 1, "between").unwrap();
            assert!(e.snapshot().ts() >= commit.ts, "it is seen");
            assert_eq!(of_all(&e, &t).as_deref(), Some("before"));
            e.seal(&t);
            commit
        };
        told.send(std::thread::spawn(others).join().unwrap()).unwrap();
    });
    let rows: Vec<(i64, Option<&str>)> = (0..ROWS).map(|k| (k, Some("after"))).collect();
    let bulk = write(&engine, &table, &rows).unwrap();
    let between = between.recv().unwrap();
    assert!(bulk.ts > between.ts && bulk.obligation.durable > between.obligation.durable);
    hooked.clear();
    assert_eq!(of_all(&engine, &table).as_deref(), Some("after"));
    engine.flush(&table).unwrap();
    let (engine, table) = reopened(&hooked.files.crash(1));
    assert_eq!(of_all(&engine, &table).as_deref(), Some("after"));
    assert_eq!(get(&engine, &engine.table("public", "other").unwrap(), 1).as_deref(), Some("between"));
}

/// What was made of a request that came to its commit is known afterwards; of one that did not, nothing is.
#[test]
fn a_request_is_known_as_far_as_its_bulk_write_is() {
    let request = Request { client: b"client", sequence: 1, first_incomplete: 1 };
    let mut outcomes = [0; 2];
    for at in 1..100 {
        let (files, _, engine, table) = fresh(1, Durability::Sync);
        files.stop_at(files.changes() + at);
        let tracked = |engine: &Arc<Engine>, table: &Arc<Table>| {
            let keys: Vec<Vec<u8>> = (0..ROWS).map(key).collect();
            let ops: Vec<WriteOp<'_>> =
                keys.iter().map(|key| WriteOp { table, key, read: Read::Existing, row: &[] }).collect();
            let mut insert = |i: usize, there: Option<RowVersion<'_>>, row: &mut Vec<u8>| {
                if there.is_some() {
                    return Err(Error::already_exists("it was applied before"));
                }
                encode(table, "v", i as i64, row);
                Ok(Decision::Put)
            };
            let answer = &mut |result: &mut Vec<u8>| result.extend_from_slice(b"inserted");
            match engine.write_tracked(&request, &ops, &mut insert, answer)? {
                Tracked::Answered(answered) => engine.settle(answered.commit.obligation),
                other => panic!("{other:?}"),
            }
        };
        let done = tracked(&engine, &table).is_ok();
        drop((engine, table));
        let (engine, table) = reopened(&files.crash(at));
        let is_there = of_all(&engine, &table).is_some();
        assert_eq!(engine.tracked(&request).unwrap().is_some(), is_there);
        assert!(is_there || !done);
        tracked(&engine, &table).unwrap();
        assert_eq!(of_all(&engine, &table).as_deref(), Some("v"));
        outcomes[usize::from(is_there)] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

/// A write that finds no room for its fragments is refused, and those that it has in the log count for nothing.
#[test]
fn a_bulk_write_that_finds_no_room_on_the_disk_leaves_nothing() {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    // Its fragments fill several segments.
    let options = EngineOptions { fragment_bytes: 100 << 10, ..quiet() };
    let engine = Engine::open(sim_env(&files, &clock), Path::new(DIR), options).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Sync)).unwrap();
    let long = "v".repeat(20_000);
    put_all(&engine, &table, &long).unwrap();
    assert_eq!(of_all(&engine, &table).as_ref(), Some(&long));
    files.set_capacity(Some(files.used_bytes() + (2 << 20)));
    let mut last = String::new();
    let refused = (0..10).find_map(|round| {
        let next = format!("{round}{long}");
        match put_all(&engine, &table, &next) {
            Ok(()) => {
                last = next;
                None
            }
            Err(error) => Some(error),
        }
    });
    assert_eq!(refused.unwrap().kind(), ErrorKind::DiskFull);
    let last = if last.is_empty() { long.clone() } else { last };
    assert_eq!(of_all(&engine, &table).as_ref(), Some(&last), "nothing was applied");
    // Once there is space again, all is as before.
    files.set_capacity(None);
    put_all(&engine, &table, "after").unwrap();
    let (engine, table) = reopened(&files.crash(1));
    assert_eq!(of_all(&engine, &table).as_deref(), Some("after"));
}
