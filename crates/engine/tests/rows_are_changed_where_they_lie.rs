//! Rows of files are replaced and deleted by position: all at once, or not at all if one of them is not what it was.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::places::{Found, change, in_files, some};
use common::*;
use oribi_engine::{Decision, Engine, Read, RowVersion, Table, WriteOp};
use oribi_sim::{Hooked, Operation, Rng, SimClock, SimFiles};
use oribi_types::{Durability, ErrorKind, RowRef, ValueRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{RwLock, mpsc};

const ROWS: i64 = 300;

/// A table with rows in two files.
fn in_two_files(buckets: u32) -> (SimFiles, Arc<Engine>, Arc<Table>) {
    let (files, _, engine, table) = fresh(buckets, Durability::Sync);
    import(&engine, &table, &(0..ROWS / 2).collect::<Vec<_>>(), "first").unwrap();
    import(&engine, &table, &(ROWS / 2..ROWS).collect::<Vec<_>>(), "second").unwrap();
    (files, engine, table)
}

fn found(engine: &Engine, table: &Arc<Table>) -> Found {
    in_files(engine, table, &engine.snapshot()).unwrap()
}

fn more(v: &str) -> String {
    format!("{v} more")
}

/// What is there after every third row got more and every third was deleted.
fn changed(before: &Rows) -> Rows {
    let rows = before.iter().filter(|(k, _)| *k % 3 != 1);
    rows.map(|(k, v)| (*k, if k % 3 == 0 { more(v) } else { v.clone() })).collect()
}

#[test]
fn later_snapshots_see_all_of_it_and_earlier_ones_nothing() {
    for buckets in [1, 3] {
        let (files, engine, table) = in_two_files(buckets);
        let before = scan_now(&engine, &table);
        let (snapshot, rows) = (engine.snapshot(), found(&engine, &table));
        assert!(change(&engine, &table, &some(&rows, |k| k % 3 == 0), Some(&more)).unwrap());
        assert!(change(&engine, &table, &some(&rows, |k| k % 3 == 1), None).unwrap());
        let after = changed(&before);
        let see = |engine: &Arc<Engine>, table: &Arc<Table>, at: &str| {
            assert_eq!(scan_now(engine, table), after, "{at}");
            assert_eq!(range_now(engine, table), after, "{at}");
            (0..ROWS).for_each(|k| assert_eq!(get(engine, table, k).as_ref(), after.get(&k), "{at}"));
        };
        see(&engine, &table, "changed");
        assert_eq!(scan(&engine, &table, &snapshot), before);
        assert!(!change(&engine, &table, &some(&rows, |k| k == 0), None).unwrap(), "it is another by now");
        engine.compact(&table).unwrap();
        see(&engine, &table, "compacted");
        assert_eq!(scan(&engine, &table, &snapshot), before);
        let (engine, table) = after_kill(&files);
        see(&engine, &table, "opened again");
        engine.compact(&table).unwrap();
        see(&engine, &table, "compacted again");
        assert_eq!(findings(&files), Vec::<String>::new());
    }
}

/// Of a column that is not set the row keeps what it had.
#[test]
fn other_columns_stay() {
    let (_, engine, table) = in_two_files(1);
    assert!(change(&engine, &table, &found(&engine, &table), Some(&more)).unwrap());
    let n_of = |row: &[u8]| RowRef::new(table.schema_ref().layout(), row).get(1).map(|n| n.to_owned());
    for k in 0..ROWS {
        let (n, _) = engine.get(&table, &key(k), engine.read_view(), |row| n_of(row.row)).unwrap();
        assert_eq!(n.flatten(), Some(ValueRef::Int64(k).to_owned()));
    }
}

/// The patches that the table's files have.
fn patches(engine: &Engine, table: &Arc<Table>) -> usize {
    let scan = engine.scan(table, [0], &[0], false, &engine.snapshot()).unwrap();
    scan[0].files.iter().map(|file| file.sstable.patches().len()).sum()
}

/// A row keeps its place, and its file, whatever is set of it.
#[test]
fn rows_stay_where_they_are() {
    let (_, engine, table) = in_two_files(1);
    let places = |found: &Found| found.values().map(|(place, ..)| *place).collect::<Vec<_>>();
    let before = found(&engine, &table);
    assert!(change(&engine, &table, &some(&before, |k| k % 3 == 0), Some(&more)).unwrap());
    let after = found(&engine, &table);
    assert_eq!(places(&after), places(&before));
    assert_eq!((after[&3].1.as_str(), after[&4].1.as_str()), ("first more", "first"));
}

/// As long as snapshots read what was before, it is there.
#[test]
fn patches_that_nobody_reads_go() {
    let (files, engine, table) = in_two_files(1);
    let of_tables = || files.all_files().iter().filter(|path| path.starts_with("/db/tables")).count();
    let (of_files, before) = (of_tables(), scan_now(&engine, &table));
    let again = || assert!(change(&engine, &table, &found(&engine, &table), Some(&more)).unwrap());
    (0..50).for_each(|_| again());
    assert!(patches(&engine, &table) <= 4 && of_tables() <= of_files + 8, "two of each file at most");
    let now = scan_now(&engine, &table);
    assert!(now.iter().all(|(k, v)| *v == format!("{}{}", before[k], " more".repeat(50))));
    let snapshot = engine.snapshot();
    (0..5).for_each(|_| again());
    assert_eq!(scan(&engine, &table, &snapshot), now);
    drop(snapshot);
    engine.compact(&table).unwrap();
    assert_eq!(patches(&engine, &table), 0);
    assert_eq!(scan_now(&engine, &table)[&7], format!("first{}", " more".repeat(55)));
    assert_eq!(findings(&files), Vec::<String>::new());
}

/// A row is looked for in each of them.
#[test]
fn a_file_has_so_many_patches_and_no_more() {
    let (_, engine, table) = in_two_files(1);
    let each = |k: i64| change(&engine, &table, &some(&found(&engine, &table), |row| row == k), Some(&more));
    let snapshot = engine.snapshot();
    assert_eq!((0..40).filter(|k| each(*k).unwrap()).count(), 32);
    assert!(each(ROWS - 1).unwrap(), "the other file has none");
    assert!(change(&engine, &table, &some(&found(&engine, &table), |k| k == 50), None).unwrap(), "a mark");
    drop(snapshot);
    engine.compact(&table).unwrap();
    assert!(each(40).unwrap());
    assert_eq!(get(&engine, &table, 31).as_deref(), Some("first more"));
    assert_eq!(get(&engine, &table, 32).as_deref(), Some("first"));
}

#[test]
fn cached_rows_are_forgotten() {
    let (_, engine, table) = in_two_files(1);
    (0..ROWS).for_each(|k| drop(get(&engine, &table, k)));
    assert!(engine.is_cached(&table, &key(7)));
    let rows = found(&engine, &table);
    assert!(change(&engine, &table, &some(&rows, |k| k % 2 == 1), Some(&more)).unwrap());
    assert!(change(&engine, &table, &some(&rows, |k| k % 4 == 0), None).unwrap());
    assert_eq!(get(&engine, &table, 7).as_deref(), Some("first more"));
    assert_eq!(get(&engine, &table, 8), None);
    assert!(engine.is_cached(&table, &key(7)) && engine.is_cached(&table, &key(2)));
}

#[test]
fn nothing_is_done_if_one_row_is_not_what_it_was() {
    type Meanwhile = fn(&Arc<Engine>, &Arc<Table>);
    let meanwhile: [(&str, Meanwhile); 7] = [
        ("put", |engine, table| {
            put(engine, table, 5, "other").unwrap();
        }),
        ("deleted", |engine, table| assert!(delete(engine, table, 5).unwrap())),
        ("put and flushed", |engine, table| {
            put(engine, table, 5, "other").unwrap();
            engine.flush(table).unwrap();
        }),
        ("deleted and flushed", |engine, table| {
            assert!(delete(engine, table, 5).unwrap());
            engine.flush(table).unwrap();
        }),
        ("compacted", |engine, table| engine.compact(table).unwrap()),
        ("truncated", |engine, table| engine.truncate(table).unwrap()),
        ("changed by position", |engine, table| {
            let rows = found(engine, table);
            assert!(change(engine, table, &some(&rows, |k| k == 5), Some(&more)).unwrap());
        }),
    ];
    for (what, meanwhile) in meanwhile {
        let (files, engine, table) = in_two_files(1);
        let rows = found(&engine, &table);
        meanwhile(&engine, &table);
        let before = scan_now(&engine, &table);
        let of_tables = || files.all_files().iter().filter(|path| path.starts_with("/db/tables")).count();
        let written = of_tables();
        for new in [Some(&more as &dyn Fn(&str) -> String), None] {
            assert!(!change(&engine, &table, &rows, new).unwrap(), "{what}");
            assert_eq!(scan_now(&engine, &table), before, "{what}");
        }
        assert_eq!(of_tables(), written, "{what}: no file is left behind");
        assert_eq!(findings(&files), Vec::<String>::new(), "{what}");
    }
}

/// Who changes a row while marks are synced waits, and then finds what it has become; others are not held up.
#[test]
fn who_writes_a_row_meanwhile_waits_and_finds_what_it_became() {
    let hooked = Hooked::default();
    let engine = open(&hooked.env(&Arc::new(SimClock::new()))).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Sync)).unwrap();
    import(&engine, &table, &(0..ROWS).collect::<Vec<_>>(), "first").unwrap();
    let rows = some(&found(&engine, &table), |k| k % 2 == 0);
    let (e, t) = (engine.clone(), table.clone());
    let (told, others) = mpsc::channel();
    hooked.once(Operation::Sync, ".data.tmp", move || {
        put(&e, &t, 1, "not changed").unwrap();
        assert_eq!(get(&e, &t, 2).as_deref(), Some("first"), "it is not decided");
        let key = key(2);
        let op = WriteOp { table: &t, key: &key, read: Read::Existing, row: &[] };
        let refused = e.try_write(&[op], &mut |_, _, _| Ok(Decision::Delete)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        let (e, t) = (e.clone(), t.clone());
        let who_waits = move || {
            let op = WriteOp { table: &t, key: &key, read: Read::Existing, row: &[] };
            let mut seen = None;
            let look = &mut |_, current: Option<RowVersion<'_>>, _: &mut Vec<u8>| {
                seen = current.map(|row| v_of(&t, row.row));
                Ok(Decision::Keep)
            };
            e.write(&[op], look).unwrap();
            seen
        };
        told.send(std::thread::spawn(who_waits)).unwrap();
    });
    assert!(change(&engine, &table, &rows, Some(&more)).unwrap());
    assert_eq!(others.recv().unwrap().join().unwrap().as_deref(), Some("first more"));
    assert_eq!(get(&engine, &table, 1).as_deref(), Some("not changed"));
}

/// What a truncate took does not come back.
#[test]
fn a_truncate_meanwhile_leaves_nothing() {
    let (files, _, engine, table) = fresh(2, Durability::Sync);
    for round in 0..40 {
        import(&engine, &table, &(0..ROWS).collect::<Vec<_>>(), "first").unwrap();
        let rows = found(&engine, &table);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let new = &more as &dyn Fn(&str) -> String;
                change(&engine, &table, &rows, (round % 3 > 0).then_some(new)).unwrap();
            });
            (0..round * 50).for_each(|_| std::thread::yield_now());
            engine.truncate(&table).unwrap();
        });
        assert!(scan_now(&engine, &table).is_empty());
        assert_eq!(get(&engine, &table, 7), None);
    }
    assert_eq!(findings(&files), Vec::<String>::new());
}

#[test]
fn a_power_cut_at_any_point_finds_all_of_it_or_nothing() {
    let (mut seen, mut at) = ([false; 2], 1);
    loop {
        let (files, engine, table) = in_two_files(2);
        // Some in the log alone.
        for k in ROWS..ROWS + 5 {
            engine.settle(put(&engine, &table, k, "put").unwrap().obligation).unwrap();
        }
        let before = scan_now(&engine, &table);
        let after: Rows =
            before.iter().map(|(k, v)| (*k, if *k < ROWS { more(v) } else { v.clone() })).collect();
        let rows = found(&engine, &table);
        files.stop_at(files.changes() + at);
        let done = change(&engine, &table, &rows, Some(&more)).is_ok_and(|done| done);
        drop((engine, table));
        let files = files.crash(at);
        assert_eq!(findings(&files), Vec::<String>::new(), "at {at}");
        let engine = open(&sim_env(&files, &Arc::new(SimClock::new()))).unwrap();
        let table = engine.table("public", "t").unwrap();
        let now = scan_now(&engine, &table);
        assert!(now == after || now == before && !done, "at {at}: a part of it");
        seen[usize::from(now == after)] = true;
        put(&engine, &table, 3, "again").unwrap();
        engine.flush(&table).unwrap();
        assert_eq!(get(&engine, &table, 3).as_deref(), Some("again"));
        assert_eq!(scan_now(&engine, &table).len(), before.len());
        if done {
            break;
        }
        at += 1;
    }
    assert_eq!(seen, [true; 2]);
}

/// A failed record of the manifest may be on the disk: until that is known, both must do.
#[test]
fn a_record_that_failed_changes_nothing() {
    let (files, engine, table) = in_two_files(1);
    // Timestamps are reserved in the manifest, too: for this one, and then for a while.
    assert!(change(&engine, &table, &some(&found(&engine, &table), |k| k == 0), None).unwrap());
    let (before, rows) = (scan_now(&engine, &table), found(&engine, &table));
    (1..=3).for_each(|nth| files.fail(Operation::Sync, nth, "MANIFEST"));
    change(&engine, &table, &rows, Some(&more)).unwrap_err();
    assert_eq!(scan_now(&engine, &table), before);
    files.forgive();
    put(&engine, &table, 1, "other").unwrap();
    engine.flush(&table).unwrap();
    assert!(change(&engine, &table, &some(&found(&engine, &table), |k| k > 5), Some(&more)).unwrap());
    let mut after: Rows =
        before.iter().map(|(k, v)| (*k, if *k > 5 { more(v) } else { v.clone() })).collect();
    after.insert(1, "other".to_owned());
    assert_eq!(scan_now(&engine, &table), after);
    let (engine, table) = after_kill(&files);
    assert_eq!(scan_now(&engine, &table), after);
}

/// Each row counts how often it was changed, by whatever way. None is lost, and no snapshot sees a row twice or a part of a change.
#[test]
fn no_change_is_lost_beside_others() {
    let seed: u64 =
        std::env::var("SEED").map_or_else(|_| u64::from(std::process::id()), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let (files, _, engine, table) = fresh(2, Durability::Periodic(100));
    import(&engine, &table, &(0..ROWS).collect::<Vec<_>>(), "0").unwrap();
    let (changes, end) = (AtomicU64::new(0), AtomicBool::new(false));
    // Who writes, flushes or compacts shares it; held alone, places hold until they are changed.
    let quiet = RwLock::new(());
    let sum = |rows: &Rows| rows.values().map(|v| v.parse::<u64>().unwrap()).sum::<u64>();
    let one_more = |v: &str| (v.parse::<u64>().unwrap() + 1).to_string();
    let increment = |k: i64| {
        let key = key(k);
        let op = WriteOp { table: &table, key: &key, read: Read::Existing, row: &[] };
        let mut next = String::new();
        engine
            .write(&[op], &mut |_, current, row| {
                next = one_more(&v_of(&table, current.unwrap().row));
                encode(&table, &next, k, row);
                Ok(Decision::Put)
            })
            .unwrap();
        changes.fetch_add(1, SeqCst);
        // Whoever is told of it finds it, or something later.
        assert!(get(&engine, &table, k).unwrap().parse::<u64>().unwrap() >= next.parse().unwrap());
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (mut rng, end, increment, quiet) = (Rng::new(seed + thread), &end, &increment, &quiet);
            scope.spawn(move || {
                while !end.load(SeqCst) {
                    for _ in 0..rng.below(20) {
                        let _shared = quiet.read().unwrap();
                        increment(rng.below(ROWS as u64) as i64);
                    }
                    (0..2000).for_each(|_| std::thread::yield_now());
                }
            });
        }
        scope.spawn(|| {
            let mut rng = Rng::new(seed + 10);
            while !end.load(SeqCst) {
                let (_shared, table) = (quiet.read().unwrap(), &table);
                if rng.below(4) == 0 { engine.compact(table).unwrap() } else { engine.flush(table).unwrap() }
            }
        });
        scope.spawn(|| {
            let mut least = 0;
            while !end.load(SeqCst) {
                let rows = scan_now(&engine, &table);
                assert_eq!(rows.len(), ROWS as usize);
                assert!(sum(&rows) >= least);
                least = sum(&rows);
            }
        });
        let _end = End(&end);
        let (mut rng, mut beside_others) = (Rng::new(seed + 20), 0);
        for round in 0..160 {
            // Each eighth time alone: how often it is possible beside others is the machine's to say.
            let alone = (round % 8 == 0).then(|| quiet.write().unwrap());
            if alone.is_some() {
                engine.flush(&table).unwrap();
                // A file of many patches gets no more.
                engine.compact(&table).unwrap();
            }
            let rows = found(&engine, &table);
            let (of, which) = (1 + rng.below(8) as i64, rng.below(8) as i64);
            let rows = some(&rows, |k| k % of == which % of);
            let is_changed = !rows.is_empty() && change(&engine, &table, &rows, Some(&one_more)).unwrap();
            assert!(is_changed || alone.is_none(), "nothing was in its way");
            beside_others += u64::from(is_changed && alone.is_none());
            if is_changed {
                changes.fetch_add(rows.len() as u64, SeqCst);
                let k = *rows.keys().next().unwrap();
                let least = rows[&k].1.parse::<u64>().unwrap() + 1;
                assert!(get(&engine, &table, k).unwrap().parse::<u64>().unwrap() >= least);
            }
        }
        println!("{beside_others} of 140 beside others");
    });
    let rows = scan_now(&engine, &table);
    assert_eq!(sum(&rows), changes.load(SeqCst));
    (0..ROWS).for_each(|k| assert_eq!(get(&engine, &table, k).as_ref(), rows.get(&k)));
    assert_eq!(range_now(&engine, &table), rows);
    engine.flush(&table).unwrap();
    engine.compact(&table).unwrap();
    assert_eq!(scan_now(&engine, &table), rows);
    assert_eq!(findings(&files), Vec::<String>::new());
}
