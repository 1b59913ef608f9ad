//! Flush, compaction and import, looked at from each of their steps: a reader never sees a row twice, an old one, a
//! deleted one, or none where there is one.
#![allow(clippy::unwrap_used)]

mod common;

use common::places::{change, in_files, some};
use common::*;
use oribi_engine::{Engine, Table};
use oribi_sim::{Hooked, Operation, SimClock};
use oribi_types::Durability;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn hooked(buckets: u32) -> (Hooked, Arc<SimClock>, Arc<Engine>, Arc<Table>) {
    let (files, clock) = (Hooked::default(), Arc::new(SimClock::new()));
    let engine = open(&files.env(&clock)).unwrap();
    let table = engine.create_table(definition("t", buckets, Durability::Sync)).unwrap();
    (files, clock, engine, table)
}

/// From each access to a file while `act` runs, compares scan and gets with `rows`. Returns how often.
fn watched(
    files: &Hooked,
    engine: &Arc<Engine>,
    table: &Arc<Table>,
    rows: &Rows,
    act: impl FnOnce(),
) -> usize {
    let looks = Arc::new(AtomicUsize::new(0));
    let (e, t, expected, n) = (engine.clone(), table.clone(), rows.clone(), looks.clone());
    files.set(move |operation, path| {
        n.fetch_add(1, Relaxed);
        assert_eq!(scan_now(&e, &t), expected, "scan before {operation:?} {path}");
        assert_eq!(range_now(&e, &t), expected, "range before {operation:?} {path}");
        for k in 0..10 {
            assert_eq!(get(&e, &t, k), expected.get(&k).cloned(), "get of {k} before {operation:?} {path}");
        }
    });
    act();
    files.clear();
    assert_eq!(&scan_now(engine, table), rows);
    looks.load(Relaxed)
}

/// Two files with replaced and deleted rows, and newer writes of every kind in memory.
fn layers(engine: &Engine, table: &Arc<Table>) -> Rows {
    write(engine, table, &[0, 1, 2, 3, 4, 5].map(|k| (k, Some("one")))).unwrap();
    engine.flush(table).unwrap();
    write(engine, table, &[(1, Some("two")), (2, None), (6, Some("two")), (7, Some("two"))]).unwrap();
    engine.flush(table).unwrap();
    let found = some(&in_files(engine, table, &engine.snapshot()).unwrap(), |k| k < 4 || k == 6);
    assert!(change(engine, table, &found, Some(&|v| format!("{v}, patched"))).unwrap());
    for (k, v) in [(3, "three"), (6, "three"), (8, "three")] {
        put(engine, table, k, v).unwrap();
    }
    write(engine, table, &[(4, None), (7, None), (9, None)]).unwrap();
    let patched = [(0, "one, patched"), (1, "two, patched")];
    model(&[&patched[..], &[(3, "three"), (5, "one"), (6, "three"), (8, "three")]].concat())
}

#[test]
fn at_every_step_of_a_flush_and_a_compaction_readers_see_the_same_rows() {
    for buckets in [1, 2] {
        let (files, _, engine, table) = hooked(buckets);
        let rows = layers(&engine, &table);
        assert!(watched(&files, &engine, &table, &rows, || engine.flush(&table).unwrap()) > 8);
        assert!(watched(&files, &engine, &table, &rows, || engine.compact(&table).unwrap()) > 8);
        assert_eq!(findings(&files.files), Vec::<String>::new());
    }
}

/// Who is told of a row as it has become finds all others so, too.
#[test]
fn at_every_step_of_a_change_by_position_readers_see_all_of_it_or_nothing() {
    for new in [Some(&(|v: &str| format!("{v}, patched")) as &dyn Fn(&str) -> String), None] {
        let (files, _, engine, table) = hooked(2);
        write(&engine, &table, &[0, 1, 2, 3, 4, 5].map(|k| (k, Some("one")))).unwrap();
        engine.flush(&table).unwrap();
        let before = scan_now(&engine, &table);
        let found = some(&in_files(&engine, &table, &engine.snapshot()).unwrap(), |k| k % 2 == 0);
        let changed = |(k, v): (&i64, &String)| match (k % 2 == 0, new) {
            (false, _) => Some((*k, v.clone())),
            (true, new) => new.map(|new| (*k, new(v))),
        };
        let after: Rows = before.iter().filter_map(changed).collect();
        let seen = Arc::new(AtomicUsize::new(0));
        let (e, t, then, now, n) =
            (engine.clone(), table.clone(), before.clone(), after.clone(), seen.clone());
        files.set(move |operation, path| {
            let first = scan_now(&e, &t);
            n.fetch_add(1, Relaxed);
            assert!(first == then || first == now, "scan before {operation:?} {path}: {first:?}");
            let (is_after, range) = (first == now, range_now(&e, &t));
            assert!(range == now || !is_after && range == then, "range before {operation:?} {path}");
            for k in 0..6 {
                let v = get(&e, &t, k);
                let is_then = !is_after && v.as_ref() == then.get(&k);
                assert!(v.as_ref() == now.get(&k) || is_then, "get of {k} before {operation:?} {path}");
            }
        });
        assert!(change(&engine, &table, &found, new).unwrap());
        files.clear();
        assert_eq!(scan_now(&engine, &table), after);
        assert!(seen.load(Relaxed) > 4);
        assert_eq!(findings(&files.files), Vec::<String>::new());
    }
}

#[test]
fn an_older_copy_stays_hidden_when_the_memtable_between_is_flushed() {
    let (files, _, engine, table) = hooked(1);
    write(&engine, &table, &[0, 1, 2, 3].map(|k| (k, Some("one")))).unwrap();
    engine.flush(&table).unwrap();
    // Blind, so that nobody has looked yet what they replace.
    for k in [0, 1] {
        put(&engine, &table, k, "two").unwrap();
    }
    delete(&engine, &table, 2).unwrap();
    let (e, t) = (engine.clone(), table.clone());
    files.once(Operation::Create, "/tables/", move || {
        // Over the sealed memtable whose file is about to be written.
        put(&e, &t, 0, "three").unwrap();
        put(&e, &t, 2, "three").unwrap();
        put(&e, &t, 3, "three").unwrap();
        let now = model(&[(0, "three"), (1, "two"), (2, "three"), (3, "three")]);
        assert_eq!(scan_now(&e, &t), now, "over a sealed memtable");
    });
    engine.flush(&table).unwrap();
    files.clear();
    let now = model(&[(0, "three"), (1, "two"), (2, "three"), (3, "three")]);
    assert_eq!(scan_now(&engine, &table), now, "the copy of the sealed memtable is in a file now");
    engine.flush(&table).unwrap();
    assert_eq!(scan_now(&engine, &table), now);
    assert_eq!(findings(&files.files), Vec::<String>::new());
}

#[test]
fn a_place_learned_while_a_memtable_waits_is_not_taken_for_the_place_of_its_rows() {
    let (files, _, engine, table) = hooked(1);
    let before = engine.snapshot();
    put(&engine, &table, 1, "one").unwrap();
    let between = engine.snapshot();
    let (e, t) = (engine.clone(), table.clone());
    files.once(Operation::Create, "/tables/", move || {
        put(&e, &t, 1, "two").unwrap();
        // Looks up what the new row replaces in the files: nothing as yet.
        assert_eq!(scan_now(&e, &t), model(&[(1, "two")]));
    });
    engine.flush(&table).unwrap();
    files.clear();
    assert_eq!(scan_now(&engine, &table), model(&[(1, "two")]));
    engine.flush(&table).unwrap();
    assert_eq!(scan_now(&engine, &table), model(&[(1, "two")]));
    assert_eq!(scan(&engine, &table, &between), model(&[(1, "one")]));
    assert_eq!(scan(&engine, &table, &before), Rows::new());
}

#[test]
fn marks_that_come_while_a_compaction_runs_are_carried_over() {
    let (files, _, engine, table) = hooked(1);
    let kept = engine.snapshot();
    let mut rows = Rows::new();
    for round in 0..3 {
        for k in 0..30 {
            let v = format!("{round} {k}");
            // Each round replaces some rows and deletes others, so that positions move.
            if k % 3 == round || round == 0 {
                put(&engine, &table, k, &v).unwrap();
                rows.insert(k, v);
            } else if k % 7 == round {
                delete(&engine, &table, k).unwrap();
                rows.remove(&k);
            }
        }
        engine.flush(&table).unwrap();
    }
    let before = (engine.snapshot(), rows.clone());
    for k in [0, 5, 11, 29] {
        rows.insert(k, "meanwhile".into());
    }
    for k in [3, 12, 20] {
        rows.remove(&k);
    }
    let (e, t) = (engine.clone(), table.clone());
    files.once(Operation::Create, "/tables/", move || {
        for k in [0, 5, 11, 29] {
            put(&e, &t, k, "meanwhile").unwrap();
        }
        for k in [3, 12, 20] {
            write(&e, &t, &[(k, None)]).unwrap();
        }
        e.flush(&t).unwrap();
        // One that the next flush finds in a file that is gone by then.
        put(&e, &t, 7, "after").unwrap();
        drop(scan_now(&e, &t));
    });
    engine.compact(&table).unwrap();
    files.clear();
    rows.insert(7, "after".into());
    assert_eq!(scan_now(&engine, &table), rows);
    assert_eq!(scan(&engine, &table, &before.0), before.1, "the old snapshot");
    assert_eq!(scan(&engine, &table, &kept), Rows::new());
    engine.flush(&table).unwrap();
    assert_eq!(scan_now(&engine, &table), rows);
    assert_eq!(findings(&files.files), Vec::<String>::new());
    drop((before, kept));
    engine.compact(&table).unwrap();
    assert_eq!(scan_now(&engine, &table), rows);
    let (engine, table) = after_kill(&files.files);
    assert_eq!(scan_now(&engine, &table), rows);
}

#[test]
fn what_is_read_before_a_write_is_not_cached_after_it() {
    let (files, clock, engine, table) = hooked(1);
    write(&engine, &table, &[(1, Some("old")), (2, Some("old"))]).unwrap();
    engine.close().unwrap();
    drop((engine, table));
    // Opened again, nothing is in memory.
    let engine = open(&files.env(&clock)).unwrap();
    let table = engine.table("public", "t").unwrap();
    let (e, t) = (engine.clone(), table.clone());
    files.once(Operation::Read, "/tables/", move || {
        delete(&e, &t, 1).unwrap();
        e.flush(&t).unwrap();
    });
    assert_eq!(get(&engine, &table, 1).as_deref(), Some("old"), "it was there when the read began");
    files.clear();
    assert_eq!(get(&engine, &table, 1), None);
    // And the cache works at all.
    assert_eq!(get(&engine, &table, 2).as_deref(), Some("old"));
    let reads = engine.stats().file_reads;
    assert_eq!(get(&engine, &table, 2).as_deref(), Some("old"));
    assert_eq!(engine.stats().file_reads, reads);
}

#[test]
fn a_blind_write_over_a_row_that_is_in_a_file_only_replaces_it() {
    let (files, _, engine, table) = hooked(1);
    write(&engine, &table, &[(1, Some("old")), (2, Some("old"))]).unwrap();
    engine.flush(&table).unwrap();
    let (engine, table) = after_kill(&files.files);
    put(&engine, &table, 1, "new").unwrap();
    for _ in 0..2 {
        assert_eq!(scan_now(&engine, &table), model(&[(1, "new"), (2, "old")]));
        engine.flush(&table).unwrap();
    }
}

#[test]
fn a_truncate_while_a_row_is_read_leaves_nothing_in_the_cache() {
    let (files, clock, engine, table) = hooked(1);
    write(&engine, &table, &[(1, Some("old")), (2, Some("old"))]).unwrap();
    engine.close().unwrap();
    drop((engine, table));
    let engine = open(&files.env(&clock)).unwrap();
    let table = engine.table("public", "t").unwrap();
    assert_eq!(get(&engine, &table, 2).as_deref(), Some("old"));
    put(&engine, &table, 3, "in memory").unwrap();
    let (e, t) = (engine.clone(), table.clone());
    files.once(Operation::Read, "/tables/", move || e.truncate(&t).unwrap());
    get(&engine, &table, 1);
    files.clear();
    for k in [1, 2, 3] {
        assert_eq!(get(&engine, &table, k), None, "cached, read meanwhile, or unflushed");
    }
    assert_eq!(scan_now(&engine, &table), Rows::new());
    put(&engine, &table, 2, "new").unwrap();
    assert_eq!(scan_now(&engine, &table), model(&[(2, "new")]));
    let (engine, table) = after_kill(&files.files);
    assert_eq!(get(&engine, &table, 1), None);
}

#[test]
fn a_snapshot_stays_as_it_is_under_overwrites_flushes_and_compactions() {
    let (files, _, engine, table) = hooked(2);
    let mut kept = vec![(engine.snapshot(), Rows::new())];
    let mut rows = Rows::new();
    for round in 0..8 {
        for k in (round..30).step_by(2) {
            if (k + round) % 5 == 0 {
                delete(&engine, &table, k).unwrap();
                rows.remove(&k);
            } else {
                // Twice, so that a version is replaced in its own memtable too.
                for part in ["a", "b"] {
                    let v = format!("{round}{part}");
                    put(&engine, &table, k, &v).unwrap();
                    rows.insert(k, v);
                    if k % 8 == 0 {
                        kept.push((engine.snapshot(), rows.clone()));
                    }
                }
            }
        }
        kept.push((engine.snapshot(), rows.clone()));
        if round % 2 == 0 {
            engine.flush(&table).unwrap();
        }
        if round % 3 == 2 {
            engine.compact(&table).unwrap();
        }
        for (snapshot, rows) in &kept {
            assert_eq!(&scan(&engine, &table, snapshot), rows, "after round {round}");
        }
        if round == 4 {
            kept.drain(..4);
        }
    }
    assert_eq!(findings(&files.files), Vec::<String>::new());
}

#[test]
fn marks_below_the_horizon_fold_into_a_bitmap_and_compaction_drops_their_rows() {
    let marks_bytes = |with_snapshot: bool| {
        let (files, _, engine, table) = fresh(1, Durability::Sync);
        let some: Vec<(i64, Option<&str>)> = (0..2000).map(|k| (k, Some("v"))).collect();
        write(&engine, &table, &some).unwrap();
        engine.flush(&table).unwrap();
        let snapshot = with_snapshot.then(|| engine.snapshot());
        let none: Vec<(i64, Option<&str>)> = (0..1500).map(|k| (k, None)).collect();
        write(&engine, &table, &none).unwrap();
        engine.flush(&table).unwrap();
        assert_eq!(scan_now(&engine, &table).len(), 500);
        let is_marks = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "marks");
        let path = files.all_files().into_iter().find(is_marks).unwrap();
        let bytes = oribi_env::read_file(&files, &path).unwrap().len();
        engine.compact(&table).unwrap();
        let rows = engine.stats().compacted_rows;
        assert_eq!(rows, if with_snapshot { 2000 } else { 500 });
        if let Some(snapshot) = snapshot {
            assert_eq!(scan(&engine, &table, &snapshot).len(), 2000);
        }
        bytes
    };
    let (folded, recent) = (marks_bytes(false), marks_bytes(true));
    assert!(recent >= 1500 * 12 && folded < 1500 * 3, "{folded} {recent}");
}
