//! Concurrent writers decide on what is there, and readers see whole writes.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::*;
use oribi_engine::{Decision, Engine, Lookup, Read, ReadAhead, RowVersion, Snapshot, Table, WriteOp};
use oribi_types::{Durability, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

/// Inserts a row; whether it was not there.
fn insert(engine: &Engine, table: &Arc<Table>, k: i64, v: &str) -> Result<bool> {
    let key = key(k);
    let mut inserted = false;
    engine.write(
        &[WriteOp { table, key: &key, read: Read::Existing, row: &[] }],
        &mut |_, current, row| {
            inserted = current.is_none();
            encode(table, v, k, row);
            Ok(if inserted { Decision::Put } else { Decision::Keep })
        },
    )?;
    Ok(inserted)
}

#[test]
fn two_inserts_of_one_key_see_each_other() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    let one = key(1);
    let ops = [Read::Existing; 3].map(|read| WriteOp { table: &table, key: &one, read, row: &[] });
    let mut seen = Vec::new();
    engine
        .write(&ops, &mut |i, current, row| {
            seen.push(current.map(|c| v_of(&table, c.row)));
            encode(&table, &format!("insert {i}"), 1, row);
            Ok(if i == 1 { Decision::Delete } else { Decision::Put })
        })
        .unwrap();
    assert_eq!(seen, [None, Some("insert 0".into()), None], "within one write");
    assert!(!insert(&engine, &table, 1, "again").unwrap(), "before the log is durable");
    engine.flush(&table).unwrap();
    assert!(!insert(&engine, &table, 1, "again").unwrap(), "flushed");
    let (engine, table) = after_kill(&files);
    assert!(!insert(&engine, &table, 1, "again").unwrap(), "from the file");
    std::thread::scope(|scope| {
        let tries: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (2..200).filter(|k| insert(&engine, &table, *k, "").unwrap()).count()))
            .collect();
        let inserted: usize = tries.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(inserted, 198, "each key was inserted once, at the same time or not");
    });
}

#[test]
fn no_increment_is_lost() {
    let (files, _, engine, table) = fresh(2, Durability::Periodic(100));
    let (threads, rounds, keys) = (4, 300, 3);
    let busy = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let increment = || {
            for round in 0..rounds {
                // A few keys in one write, in varying order.
                let order: Vec<i64> = (0..keys).map(|i| (i + round) % keys).collect();
                let encoded: Vec<Vec<u8>> = order.iter().map(|k| key(*k)).collect();
                let ops: Vec<WriteOp<'_>> = encoded
                    .iter()
                    .map(|key| WriteOp { table: &table, key, read: Read::Existing, row: &[] })
                    .collect();
                let written = engine.write(&ops, &mut |i, current, row| {
                    let count = current.map_or(0, |c| v_of(&table, c.row).parse::<i64>().unwrap());
                    encode(&table, &(count + 1).to_string(), order[i], row);
                    Ok(Decision::Put)
                });
                written.unwrap();
            }
        };
        let writers: Vec<_> = (0..threads).map(|_| scope.spawn(increment)).collect();
        let flusher = scope.spawn(|| {
            while busy.load(Relaxed) {
                engine.flush(&table).unwrap();
                engine.compact(&table).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        writers.into_iter().for_each(|w| w.join().unwrap());
        busy.store(false, Relaxed);
        flusher.join().unwrap();
    });
    let total = (threads * rounds).to_string();
    let expected: Rows = (0..keys).map(|k| (k, total.clone())).collect();
    assert_eq!(scan_now(&engine, &table), expected);
    engine.settle(oribi_engine::Obligation { written: u64::MAX, ..Default::default() }).unwrap();
    assert_eq!(findings(&files), Vec::<String>::new());
    let (engine, table) = after_kill(&files);
    assert_eq!(scan_now(&engine, &table), expected);
}

#[test]
fn a_write_of_many_rows_is_seen_whole_or_not_at_all_and_every_snapshot_stays() {
    let (files, _, engine, table) = fresh(2, Durability::Periodic(100));
    // Enough of them that a reader comes while they are being applied.
    let all = |v: &str| -> Rows { (0..300).map(|k| (k, v.to_owned())).collect() };
    let set = |v: &str| {
        let changes: Vec<(i64, Option<&str>)> = (0..300).map(|k| (k, Some(v))).collect();
        write(&engine, &table, &changes).unwrap();
    };
    set("0");
    let busy = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let reader = || {
            let mut looks = 0;
            while busy.load(Relaxed) || looks == 0 {
                let snapshot = engine.snapshot();
                let rows = scan(&engine, &table, &snapshot);
                let v = rows.values().next().expect("there have always been rows").clone();
                assert_eq!(rows, all(&v), "a write was seen in part");
                assert_eq!(scan(&engine, &table, &snapshot), rows, "the snapshot has changed");
                looks += 1;
            }
        };
        let getter = || {
            let mut last = 0;
            while busy.load(Relaxed) {
                let v: i64 = get(&engine, &table, 3).expect("there has always been a row").parse().unwrap();
                assert!(v >= last, "time went back");
                last = v;
            }
        };
        let readers = [scope.spawn(reader), scope.spawn(reader), scope.spawn(getter)];
        let flusher = scope.spawn(|| {
            while busy.load(Relaxed) {
                engine.flush(&table).unwrap();
                engine.compact(&table).unwrap();
            }
        });
        (1..300).for_each(|v| set(&v.to_string()));
        busy.store(false, Relaxed);
        readers.into_iter().for_each(|r| r.join().unwrap());
        flusher.join().unwrap();
    });
    assert_eq!(scan_now(&engine, &table), all("299"));
    assert_eq!(findings(&files), Vec::<String>::new());
}

/// Row `k` as a point read at a snapshot sees it: from memory if that can tell, else from the files.
fn get_at(engine: &Engine, table: &Table, snapshot: &Snapshot, k: i64) -> Option<String> {
    let read = engine.get(table, &key(k), snapshot.view(), |row| v_of(table, row.row)).unwrap().0;
    match engine.try_get(table, &key(k), snapshot.view(), |row| v_of(table, row.row)) {
        Lookup::Found(v, _) => assert_eq!(Some(v), read, "memory and files tell the same"),
        Lookup::Absent(_) => assert_eq!(None, read, "memory and files tell the same"),
        Lookup::Pending => {}
    }
    read
}

/// Something that is done to rows 1 and 2.
type Act = fn(&Arc<Engine>, &Arc<Table>);

#[test]
fn point_reads_at_a_snapshot_agree_whatever_comes_between_them() {
    let befores: [Act; 3] = [
        |_, _| {},
        |engine, table| engine.flush(table).unwrap(),
        // Flushed, and the row cache knows the first alone.
        |engine, table| {
            engine.truncate(table).unwrap();
            import(engine, table, &[1, 2], "old").unwrap();
            get(engine, table, 1);
        },
    ];
    let between: [Act; 6] = [
        |engine, table| {
            write(engine, table, &[(1, Some("new")), (2, Some("new"))]).unwrap();
        },
        |engine, table| {
            write(engine, table, &[(1, None), (2, None)]).unwrap();
        },
        |engine, table| {
            write(engine, table, &[(1, None), (2, None)]).unwrap();
            engine.flush(table).unwrap();
            write(engine, table, &[(1, Some("new")), (2, Some("new"))]).unwrap();
        },
        |engine, table| engine.flush(table).unwrap(),
        |engine, table| engine.compact(table).unwrap(),
        |engine, table| drop((get(engine, table, 1), get(engine, table, 2))),
    ];
    for (b, before) in befores.iter().enumerate() {
        let (files, _, engine, table) = fresh(2, Durability::Sync);
        write(&engine, &table, &[(1, Some("old")), (2, Some("old"))]).unwrap();
        before(&engine, &table);
        let snapshot = engine.snapshot();
        for order in 0..36 {
            for act in [order / 6, order % 6] {
                between[act](&engine, &table);
                let seen = [1, 2].map(|k| get_at(&engine, &table, &snapshot, k));
                assert_eq!(seen, [1, 2].map(|_| Some("old".to_owned())), "{b}, {order}: after {act}");
                let now = engine.snapshot();
                let rows = scan(&engine, &table, &now);
                for k in [1, 2] {
                    assert_eq!(get_at(&engine, &table, &now, k), rows.get(&k).cloned(), "now");
                    assert_eq!(get(&engine, &table, k), rows.get(&k).cloned(), "by itself");
                }
            }
        }
        assert_eq!(findings(&files), Vec::<String>::new());
    }
}

#[test]
fn rows_that_come_after_a_snapshot_are_not_in_it() {
    let inserts: [Act; 4] = [
        |engine, table| {
            write(engine, table, &[(1, Some("new")), (2, Some("new"))]).unwrap();
        },
        |engine, table| {
            write(engine, table, &[(1, Some("new")), (2, Some("new"))]).unwrap();
            engine.flush(table).unwrap();
        },
        // Their timestamps are those of the import's start, and one of them is cached.
        |engine, table| {
            import(engine, table, &[1, 2], "new").unwrap();
            assert_eq!(get(engine, table, 1).as_deref(), Some("new"));
        },
        |engine, table| {
            import(engine, table, &[1, 2], "imported").unwrap();
            get(engine, table, 1);
            write(engine, table, &[(1, Some("new")), (2, Some("new"))]).unwrap();
        },
    ];
    for (i, insert) in inserts.iter().enumerate() {
        let (_, _, engine, table) = fresh(1, Durability::Sync);
        write(&engine, &table, &[(0, Some("v"))]).unwrap();
        let snapshot = engine.snapshot();
        insert(&engine, &table);
        for k in [1, 2] {
            assert_eq!(get_at(&engine, &table, &snapshot, k), None, "{i}: row {k}");
            assert_eq!(get(&engine, &table, k).as_deref(), Some("new"), "{i}: row {k}");
        }
    }
}

#[test]
fn point_reads_see_a_write_of_two_rows_whole_and_never_before_snapshots_do() {
    let (_, _, engine, table) = fresh(2, Durability::Periodic(100));
    let busy = AtomicBool::new(true);
    let number = |v: Option<String>| v.map_or(0, |v| v.parse::<i64>().unwrap());
    std::thread::scope(|scope| {
        let reader = || {
            let mut k = 0;
            while busy.load(Relaxed) || k == 0 {
                k = (k + 2) % 10;
                let by_itself = number(get(&engine, &table, k));
                let snapshot = engine.snapshot();
                let [a, b] = [k, k + 1].map(|k| number(get_at(&engine, &table, &snapshot, k)));
                assert_eq!(a, b, "a write was seen in part");
                assert!(a >= by_itself, "time went back from {by_itself} to {a}");
            }
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        let flusher = scope.spawn(|| {
            while busy.load(Relaxed) {
                engine.flush(&table).unwrap();
                engine.compact(&table).unwrap();
            }
        });
        for round in 1..2000 {
            let v = round.to_string();
            let k = round % 5 * 2;
            write(&engine, &table, &[(k, Some(&v)), (k + 1, Some(&v))]).unwrap();
        }
        busy.store(false, Relaxed);
        readers.into_iter().for_each(|r| r.join().unwrap());
        flusher.join().unwrap();
    });
}

#[test]
fn a_failed_decision_leaves_nothing_behind() {
    let (_, _, engine, table) = fresh(1, Durability::Sync);
    let keys = [key(1), key(2)];
    let ops = [0, 1].map(|i| WriteOp { table: &table, key: &keys[i], read: Read::Existing, row: &[] });
    let refused = engine.write(&ops, &mut |i, _, row| {
        encode(&table, "v", 0, row);
        if i == 0 { Ok(Decision::Put) } else { Err(oribi_types::Error::already_exists("no")) }
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!((get(&engine, &table, 1), scan_now(&engine, &table)), (None, Rows::new()));
    let too_large = "x".repeat(engine.options().statement_bytes_max + 1);
    assert_eq!(put(&engine, &table, 1, &too_large).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(get(&engine, &table, 1), None);
}

#[test]
fn an_import_does_not_slip_between_a_look_and_its_insert() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    let one = key(1);
    let (done, imported) = mpsc::channel();
    let op = WriteOp { table: &table, key: &one, read: Read::Existing, row: &[] };
    let mut absent = false;
    let written = engine.write(&[op], &mut |_, current, row| {
        absent = current.is_none();
        let (engine, importing, done) = (engine.clone(), table.clone(), done.clone());
        std::thread::spawn(move || done.send(import(&engine, &importing, &[1, 2], "imported")).unwrap());
        // The import waits for this write; were it not to, it would be done by now.
        if let Ok(result) = imported.recv_timeout(Duration::from_millis(300)) {
            done_early(result);
        }
        encode(&table, "inserted", 1, row);
        Ok(Decision::Put)
    });
    assert!(written.is_ok() && absent);
    let import = imported.recv().unwrap();
    assert_eq!(import.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(scan_now(&engine, &table), model(&[(1, "inserted")]));
    engine.flush(&table).unwrap();
    assert_eq!(findings(&files), Vec::<String>::new());
}

fn done_early(result: Result<u64>) {
    panic!("the import did not wait: {result:?}");
}

#[test]
fn nobody_else_writes_to_a_table_that_is_held() {
    let (_, _, engine, table) = fresh(2, Durability::Periodic(100));
    let others = engine.create_table(definition("others", 2, Durability::Periodic(100))).unwrap();
    for k in 0..10 {
        put(&engine, &table, k, "first").unwrap();
    }
    let held = engine.hold(&table).unwrap();
    let is_held = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for k in [3, 12] {
            let (engine, table, is_held) = (&engine, &table, &is_held);
            scope.spawn(move || {
                put(engine, table, k, "other").unwrap();
                assert!(!is_held.load(Relaxed), "key {k} was written while the table was held");
            });
        }
        let keys = [key(3), key(12)];
        for round in ["second", "third"] {
            let ops =
                keys.each_ref().map(|key| WriteOp { table: &table, key, read: Read::Existing, row: &[] });
            let mut decide = |i: usize, current: Option<RowVersion<'_>>, row: &mut Vec<u8>| {
                let there = current.map(|current| v_of(&table, current.row));
                assert_ne!(there.as_deref(), Some("other"));
                encode(&table, round, i as i64, row);
                Ok(Decision::Put)
            };
            held.write(&ops, &mut decide, &mut ReadAhead::default()).unwrap();
            assert_eq!(scan_now(&engine, &table)[&12], round, "a snapshot sees what was written");
        }
        let other = key(1);
        let op = WriteOp { table: &others, key: &other, read: Read::Blind, row: &[] };
        let delete = &mut |_: usize, _: Option<RowVersion<'_>>, _: &mut Vec<u8>| Ok(Decision::Delete);
        let refused = held.write(&[op], delete, &mut ReadAhead::default()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Retry, "of a table that is not held");
        is_held.store(false, Relaxed);
        drop(held);
    });
    for k in [3, 12] {
        assert_eq!(get(&engine, &table, k).as_deref(), Some("other"));
    }
}
