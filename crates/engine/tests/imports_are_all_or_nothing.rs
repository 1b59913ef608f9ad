//! Imported rows appear at once, for later snapshots only, and never over rows that are there.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::*;
use oribi_engine::{Engine, Table};
use oribi_sim::{Hooked, Operation, SimClock};
use oribi_types::{Durability, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

fn hooked() -> (Hooked, Arc<Engine>, Arc<Table>) {
    let disk = Hooked::default();
    let engine = open(&disk.env(&Arc::new(SimClock::new()))).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Sync)).unwrap();
    (disk, engine, table)
}

#[test]
fn an_import_is_visible_at_once_and_only_for_later_snapshots() {
    for buckets in [1, 3] {
        let (files, _, engine, table) = fresh(buckets, Durability::Sync);
        put(&engine, &table, 1, "put").unwrap();
        let before = engine.snapshot();
        let keys: Vec<i64> = (10..400).rev().collect();
        let mut import = engine.import(&table).unwrap();
        // Out of order, in runs that overlap.
        for part in 0..3 {
            let keys: Vec<i64> = keys.iter().copied().filter(|k| k % 3 == part).collect();
            import.push(rows(&table, &keys, "imported")).unwrap();
            assert_eq!(scan_now(&engine, &table), model(&[(1, "put")]), "not before the commit");
        }
        // Its rows may have been gathered before this, they do not count before the commit.
        put(&engine, &table, 2, "put").unwrap();
        let between = engine.snapshot();
        assert_eq!(import.commit().unwrap(), 390);
        let mut all = model(&[(1, "put"), (2, "put")]);
        all.extend(keys.iter().map(|k| (*k, "imported".to_owned())));
        let see = |at: &str| {
            assert_eq!(scan_now(&engine, &table), all, "{at}");
            assert_eq!(scan(&engine, &table, &before), model(&[(1, "put")]), "{at}");
            assert_eq!(scan(&engine, &table, &between), model(&[(1, "put"), (2, "put")]), "{at}");
            assert_eq!(get(&engine, &table, 399).as_deref(), Some("imported"), "{at}");
        };
        see("committed");
        put(&engine, &table, 3, "put").unwrap();
        delete(&engine, &table, 3).unwrap();
        engine.flush(&table).unwrap();
        engine.compact(&table).unwrap();
        see("compacted");
        // Snapshots do not outlive the process, files do, with all that is in them.
        let (engine, table) = after_kill(&files);
        assert_eq!(scan_now(&engine, &table), all);
        engine.compact(&table).unwrap();
        assert_eq!(scan_now(&engine, &table), all);
        assert_eq!(findings(&files), Vec::<String>::new());
    }
}

#[test]
fn an_import_rejects_keys_that_exist_and_leaves_nothing() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    write(&engine, &table, &[(1, Some("file")), (2, Some("file")), (3, Some("file"))]).unwrap();
    engine.flush(&table).unwrap();
    delete(&engine, &table, 2).unwrap();
    put(&engine, &table, 4, "memory").unwrap();
    let rows = scan_now(&engine, &table);
    for (keys, named) in [(vec![0, 1], 1), (vec![4, 5], 4), (vec![6, 7, 6], 6)] {
        let refused = import(&engine, &table, &keys, "imported").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
        assert!(refused.message().contains(&format!("({named})")), "{refused}");
        assert_eq!(scan_now(&engine, &table), rows);
    }
    assert_eq!(import(&engine, &table, &[2, 5], "imported").unwrap(), 2, "a deleted key is new");
    let mut all = rows;
    all.extend(model(&[(2, "imported"), (5, "imported")]));
    assert_eq!(scan_now(&engine, &table), all);
    let left = files.all_files().iter().filter(|p| p.to_string_lossy().ends_with(".tmp")).count();
    assert_eq!(left, 0);
    assert_eq!(findings(&files), Vec::<String>::new());
}

#[test]
fn an_import_that_is_given_up_leaves_no_files() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    let of_tables = || files.all_files().into_iter().filter(|p| p.starts_with("/db/tables")).count();
    let mut import = engine.import(&table).unwrap();
    for part in 0..40 {
        let keys: Vec<i64> = (0..4000).map(|i| 1_000_000 - part * 4000 - i).collect();
        import.push(rows(&table, &keys, &"long ".repeat(40))).unwrap();
    }
    assert!(of_tables() > 0, "it has written by now");
    drop(import);
    assert_eq!(of_tables(), 0);
    let missing = rows(&table, &[1], "v").project(&[0, 1]).unwrap();
    assert_eq!(engine.import(&table).unwrap().push(missing).unwrap_err().kind(), ErrorKind::Invalid);
    engine.drop_table("public", "t").unwrap();
    assert_eq!(engine.import(&table).err().unwrap().kind(), ErrorKind::NotFound);
}

#[test]
fn an_imported_row_is_replaced_and_deleted_like_any_other() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    import(&engine, &table, &[1, 2, 3, 4], "imported").unwrap();
    put(&engine, &table, 1, "blind").unwrap();
    write(&engine, &table, &[(2, Some("seen")), (3, None)]).unwrap();
    let rows = model(&[(1, "blind"), (2, "seen"), (4, "imported")]);
    assert_eq!(scan_now(&engine, &table), rows);
    engine.flush(&table).unwrap();
    assert_eq!(scan_now(&engine, &table), rows);
    assert_eq!(findings(&files), Vec::<String>::new());
}

/// The memtable is empty at no moment: each flush of the commit finds a row, and leaves another.
#[test]
fn an_import_succeeds_while_others_write_other_keys() {
    let (disk, engine, table) = hooked();
    let next = AtomicI64::new(100);
    let write = {
        let (engine, table) = (engine.clone(), table.clone());
        move || {
            let k = next.fetch_add(1, Relaxed);
            put(&engine, &table, k, "put").unwrap();
        }
    };
    write();
    disk.set(move |operation, path| {
        if operation == Operation::Create && path.contains("/tables/") {
            write();
        }
    });
    assert_eq!(import(&engine, &table, &[1, 2], "imported").unwrap(), 2);
    disk.clear();
    let rows = scan_now(&engine, &table);
    assert_eq!(rows.get(&1).map(String::as_str), Some("imported"));
    assert!(rows.len() > 3, "{rows:?}");
    engine.flush(&table).unwrap();
    engine.compact(&table).unwrap();
    assert_eq!(scan_now(&engine, &table), rows);
    assert_eq!(findings(&disk.files), Vec::<String>::new());
}

/// Keys of the import come into memory after its last look at the files.
#[test]
fn a_key_written_during_the_commit_is_not_imported_over() {
    for deleted in [false, true] {
        let (disk, engine, table) = hooked();
        let (writing, to) = (engine.clone(), table.clone());
        disk.once(Operation::SyncDir, "/tables/", move || {
            put(&writing, &to, 1, "put").unwrap();
            assert!(!deleted || delete(&writing, &to, 1).unwrap());
        });
        let imported = import(&engine, &table, &[1, 2], "imported");
        disk.clear();
        let rows = match deleted {
            true => model(&[(1, "imported"), (2, "imported")]),
            false => model(&[(1, "put")]),
        };
        assert_eq!(
            imported.map_err(|e| e.kind()),
            if deleted { Ok(2) } else { Err(ErrorKind::AlreadyExists) }
        );
        assert_eq!(scan_now(&engine, &table), rows);
        assert_eq!(get(&engine, &table, 1), rows.get(&1).cloned());
        engine.flush(&table).unwrap();
        assert_eq!(scan_now(&engine, &table), rows, "flushed");
        assert_eq!(findings(&disk.files), Vec::<String>::new());
        drop(engine);
        let (engine, table) = after_kill(&disk.files);
        assert_eq!(scan_now(&engine, &table), rows, "opened again");
    }
}

/// Only the manifest record is written while writers are kept out; a truncation has waited for the log before.
#[test]
fn others_write_while_an_import_publishes_and_a_truncation_waits_for_the_log() {
    for (operation, path) in
        [(Operation::Rename, "/tables/"), (Operation::SyncDir, "/tables/"), (Operation::Sync, "/wal/")]
    {
        let (disk, engine, table) = hooked();
        let other = engine.create_table(definition("other", 1, Durability::Sync)).unwrap();
        if path == "/wal/" {
            put(&engine, &table, 1, "unsynced").unwrap();
        }
        let written = Arc::new(AtomicBool::new(false));
        let (writing, seen) = (engine.clone(), written.clone());
        disk.once(operation, path, move || {
            let (done, wait) = mpsc::channel();
            std::thread::spawn(move || done.send(put(&writing, &other, 7, "other").is_ok()));
            // It takes no time; were it kept out, it would have to wait for this.
            seen.store(wait.recv_timeout(Duration::from_secs(120)).unwrap_or(false), Relaxed);
        });
        if path == "/wal/" {
            engine.truncate(&table).unwrap();
        } else {
            import(&engine, &table, &[10, 11], "imported").unwrap();
        }
        disk.clear();
        assert!(written.load(Relaxed), "{operation:?} of {path} keeps writers out");
    }
}
