//! Disks that are full, or fail to write or sync: what is refused is refused clearly and wholly, and what was
//! acknowledged is read again when the folder is opened on a disk that works.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Alteration, Engine, EngineOptions, Part, Table};
use oribi_sim::{Operation, Rng, SimClock, SimFiles};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, ErrorKind, Result, TableDefinition, TableOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn after_a_failed_sync_of_the_log_nothing_is_answered() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    engine.settle(put(&engine, &table, 1, "settled").unwrap().obligation).unwrap();
    files.fail(Operation::Sync, 1, ".log");
    let lost = put(&engine, &table, 2, "lost").unwrap();
    let refused = engine.settle(lost.obligation).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert_eq!(engine.settle(lost.obligation).unwrap_err().kind(), ErrorKind::Unavailable, "not retried");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(engine.failure()).kind(), ErrorKind::Unavailable, "who serves is told");
    // Who sees the row must settle it too, and cannot.
    let view = engine.read_view();
    let (seen, obligation) = engine.get(&table, &key(2), view, |_| ()).unwrap();
    assert!(seen.is_some() && engine.settle(obligation).is_err());
    let scan = engine.scan_tablet(&table, 0, &[0], false, &engine.snapshot()).unwrap();
    assert!(engine.settle(scan.obligation).is_err());
    let next = put(&engine, &table, 3, "after").and_then(|c| engine.settle(c.obligation));
    assert_eq!(next.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(engine.flush(&table).is_err(), "a file must not hold what the log may have lost");
    // What was settled before is answered on.
    let (seen, obligation) = engine.get(&table, &key(1), view, |_| ()).unwrap();
    assert!(seen.is_some() && engine.settle(obligation).is_ok());
    for seed in 0..10 {
        let engine = open(&sim_env(&files.crash(seed), &Arc::new(SimClock::new()))).unwrap();
        let table = engine.table("public", "t").unwrap();
        assert_eq!(scan_now(&engine, &table), model(&[(1, "settled")]));
    }
}

#[test]
fn a_full_disk_refuses_writes_and_keeps_the_rest() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    engine.settle(put(&engine, &table, 0, "before").unwrap().obligation).unwrap();
    files.set_capacity(Some(files.used_bytes()));
    let long = "x".repeat(300_000);
    let mut rows = model(&[(0, "before")]);
    let refused = loop {
        let k = rows.len() as i64;
        match put(&engine, &table, k, &long).and_then(|c| engine.settle(c.obligation)) {
            Ok(()) => rows.insert(k, long.clone()),
            Err(error) => break error,
        };
        assert!(rows.len() < 1000, "the disk is full");
    };
    assert_eq!(refused.kind(), ErrorKind::DiskFull, "{refused}");
    assert!(engine.flush(&table).is_err());
    assert!(scan_now(&engine, &table).len() >= rows.len());
    assert_eq!(findings(&files), Vec::<String>::new());
    let (engine, table) = after_kill(&files);
    let found = scan_now(&engine, &table);
    assert!(rows.iter().all(|(k, v)| found.get(k) == Some(v)), "{} of {}", found.len(), rows.len());
    put(&engine, &table, 0, "again").unwrap();
    engine.flush(&table).unwrap();
}

#[test]
fn writers_are_refused_rather_than_left_waiting_when_memory_cannot_be_flushed() {
    let files = SimFiles::new();
    let options = EngineOptions { log_bytes_max: 256 << 20, ..EngineOptions::with_memory(8 << 20) };
    let env = sim_env(&files, &Arc::new(SimClock::new()));
    let engine = Engine::open(env, Path::new(DIR), options).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Periodic(1000))).unwrap();
    // Every attempt to make an SSTable fails.
    (1..3000).for_each(|nth| files.fail(Operation::Create, nth, "/tables/"));
    let long = "x".repeat(50_000);
    let write = |k| put(&engine, &table, k, &long).err().map(|error| (k, error));
    let (refused_at, error) = (0..10_000).find_map(write).expect("memory is bounded");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("memory is full and cannot be flushed"), "{error}");
    assert!((0..refused_at).all(|k| get(&engine, &table, k).is_some()));
}

fn table_files(files: &SimFiles) -> Vec<PathBuf> {
    files.all_files().into_iter().filter(|path| path.to_string_lossy().contains("/tables/")).collect()
}

#[test]
fn flushes_that_fail_seal_one_memtable_and_leave_no_file_behind() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    for k in 0..5 {
        put(&engine, &table, k, "old").unwrap();
    }
    engine.flush(&table).unwrap();
    let before = table_files(&files);
    let flushes = engine.stats().flushes;
    for k in 0..5 {
        put(&engine, &table, k, "new").unwrap();
        // The last step before the manifest: SSTable and marks are written.
        files.fail(Operation::SyncDir, 1, "/tables/");
        assert!(engine.flush(&table).is_err());
        assert_eq!(table_files(&files), before);
    }
    engine.flush(&table).unwrap();
    assert_eq!(engine.stats().flushes, flushes + 2, "what the first sealed, and what came since");
    assert_eq!(engine.memory().memtables(), 0);
    let expected: Vec<(i64, &str)> = (0..5).map(|k| (k, "new")).collect();
    assert_eq!(scan_now(&engine, &table), model(&expected));
}

/// Waits for what the background threads do.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} has not come");
}

#[test]
fn a_table_that_cannot_be_flushed_does_not_stop_the_others() {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let options = EngineOptions { log_bytes_max: 256 << 20, ..EngineOptions::with_memory(8 << 20) };
    let engine = Engine::open(sim_env(&files, &clock), Path::new(DIR), options).unwrap();
    let [bad, good] = ["bad", "good"].map(|name| {
        let definition = definition(name, 1, Durability::Periodic(1000));
        engine.create_table(definition).unwrap()
    });
    let long = "x".repeat(50_000);
    (1..1000).for_each(|nth| files.fail(Operation::Create, nth, &format!("/tables/{}/", bad.id())));
    // Its memtable stays the larger one until half of the budget is full.
    for k in 0..48 {
        put(&engine, &bad, k, &long).unwrap();
    }
    for k in 0..400 {
        put(&engine, &good, k, &long).unwrap();
    }
    let flushes = engine.stats().flushes;
    assert!((5..60).contains(&flushes), "20 MB went to SSTables, not row by row: {flushes} flushes");
    assert!(files.forgive());
    assert!(engine.memory().memtables() > 48 * 50_000);
    clock.advance(60_000_000);
    eventually("another attempt", || engine.memory().memtables() < 48 * 50_000);
    assert!((0..48).all(|k| get(&engine, &bad, k).is_some()));
    assert!((0..400).all(|k| get(&engine, &good, k).is_some()));
}

#[test]
fn a_table_that_cannot_be_compacted_does_not_stop_the_others() {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let options = EngineOptions::with_memory(8 << 20);
    let engine = Engine::open(sim_env(&files, &clock), Path::new(DIR), options).unwrap();
    for name in ["bad", "good"] {
        let table = engine.create_table(definition(name, 1, Durability::Sync)).unwrap();
        for k in 0..4 {
            for path in table_files(&files).iter().filter(|_| name == "bad") {
                files.flip_bit(path, 8 * 40);
            }
            put(&engine, &table, k, "v").unwrap();
            engine.flush(&table).unwrap();
        }
    }
    eventually("the compaction of the second", || engine.stats().compactions > 0);
    assert_eq!(scan_now(&engine, &engine.table("public", "good").unwrap()).len(), 4);
}

type Act = (&'static str, fn(&Arc<Engine>, &Arc<Table>) -> Result<()>);

/// What changes files, and whether the rows are others afterwards.
const ACTS: [Act; 6] = [
    ("flush", |engine, table| engine.flush(table)),
    ("compact", |engine, table| engine.compact(table)),
    ("import", |engine, table| import(engine, table, &[70, 71], "imported").map(|_| ())),
    ("truncate", |engine, table| engine.truncate(table)),
    ("alter", |engine, _| {
        engine.alter_table("public", "t", &Alteration::AddColumn(ColumnSpec::new("c", ColumnType::Int64)))
    }),
    ("drop", |engine, _| engine.drop_table("public", "t")),
];

/// Two files with marks, and rows in memory.
fn layered() -> (SimFiles, Arc<Engine>, Arc<Table>, Rows) {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    for round in 0..3 {
        let v = round.to_string();
        let changes: Vec<_> = (round..12).step_by(2).map(|k| (k, (k % 5 > 0).then_some(&*v))).collect();
        let commit = write(&engine, &table, &changes).unwrap();
        engine.settle(commit.obligation).unwrap();
        if round < 2 {
            engine.flush(&table).unwrap();
        }
    }
    let rows = scan_now(&engine, &table);
    (files, engine, table, rows)
}

#[test]
fn whatever_fails_first_leaves_all_as_before_or_all_as_after() {
    use Operation::{Create, Read, Remove, Rename, Sync, SyncDir, Write};
    for (name, act) in ACTS {
        let after = {
            let (_, engine, table, _) = layered();
            act(&engine, &table).unwrap();
            engine.table("public", "t").map(|table| scan_now(&engine, &table)).unwrap_or_default()
        };
        for operation in [Create, Write, Sync, Rename, SyncDir, Remove, Read] {
            let mut failures = 0;
            for nth in 1.. {
                let (files, engine, table, before) = layered();
                files.fail(operation, nth, "");
                let done = act(&engine, &table);
                let at = format!("{name}, {operation:?} {nth}: {done:?}");
                let met = !files.forgive();
                failures += u32::from(met);
                let now = engine.table("public", "t").map(|t| scan_now(&engine, &t)).unwrap_or_default();
                assert!(if done.is_ok() { now == after } else { now == before }, "{at}: {now:?}");
                assert_eq!(findings(&files), Vec::<String>::new(), "{at}");
                let env = sim_env(&files.kill(), &Arc::new(SimClock::new()));
                let again = open(&env).unwrap_or_else(|e| panic!("{at}: {e}"));
                let found = again.table("public", "t").map(|t| scan_now(&again, &t)).unwrap_or_default();
                let possible = found == after || (done.is_err() && found == before);
                assert!(possible, "{at}: opened again {found:?}");
                if !met {
                    break;
                }
            }
            if matches!(operation, Write | Sync) {
                assert!(failures > 0, "{name} has met no failing {operation:?}");
            }
        }
    }
}

/// The SSTables and marks that are there, and how many there are to be.
fn has_only_live_files(files: &SimFiles, engine: &Engine) {
    let data =
        table_files(files).iter().filter(|path| path.extension().is_some_and(|e| e == "parquet")).count();
    assert_eq!(data as u64, engine.stats().sstables, "{:?}", table_files(files));
}

fn parts(engine: &Engine) -> Vec<Part> {
    engine.troubles().iter().map(|trouble| trouble.part).collect()
}

#[test]
fn a_manifest_that_finds_the_disk_full_is_begun_anew_once_there_is_space() {
    let (files, engine, table, mut rows) = layered();
    files.set_capacity(Some(files.used_bytes()));
    let refused = engine.create_schema("s").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DiskFull, "{refused}");
    assert!(refused.message().starts_with("manifest: "), "{refused}");
    assert_eq!(engine.flush(&table).unwrap_err().kind(), ErrorKind::DiskFull);
    assert_eq!(parts(&engine), [Part::Manifest]);
    assert!(engine.troubles().iter().all(|trouble| trouble.refuses));
    // Nothing was promised by it: who only writes rows goes on.
    for k in 90..95 {
        let commit = put(&engine, &table, k, "served").unwrap();
        engine.settle(commit.obligation).unwrap();
        rows.insert(k, "served".into());
    }
    assert_eq!(scan_now(&engine, &table), rows);
    files.set_capacity(None);
    engine.create_schema("s").unwrap();
    assert_eq!(parts(&engine), []);
    engine.flush(&table).unwrap();
    assert_eq!(scan_now(&engine, &table), rows);
    has_only_live_files(&files, &engine);
    let (engine, table) = after_kill(&files);
    assert_eq!(scan_now(&engine, &table), rows);
    assert!(engine.create_schema("s").is_err(), "it is there");
}

#[test]
fn writes_go_on_for_long_while_timestamps_cannot_be_reserved_and_are_in_order() {
    let (files, clock, engine, table) = fresh(1, Durability::Sync);
    let expiring = TableDefinition {
        options: TableOptions { ttl_ms: Some(60_000), ..TableOptions::new(Durability::Sync) },
        ..definition("e", 1, Durability::Sync)
    };
    let expiring = engine.create_table(expiring).unwrap();
    put(&engine, &expiring, 1, "v").unwrap();
    files.set_capacity(Some(files.used_bytes()));
    let mut last = put(&engine, &table, 0, "v").unwrap().ts;
    for k in 1..2000 {
        clock.advance(50_000);
        let commit = put(&engine, &table, k, "v").unwrap();
        assert!(commit.ts > last);
        last = commit.ts;
        engine.settle(commit.obligation).unwrap();
    }
    // By a timestamp that is behind the clock they would be gone as they come.
    assert_eq!(put(&engine, &expiring, 2, "v").unwrap_err().kind(), ErrorKind::DiskFull);
    let (again, table) = after_kill(&files);
    assert_eq!(scan_now(&again, &table).len(), 2000);
    assert!(put(&again, &table, 0, "v").unwrap().ts > last);
    files.set_capacity(None);
    put(&engine, &expiring, 2, "v").unwrap();
    assert_eq!(get(&engine, &expiring, 2).as_deref(), Some("v"));
}

/// The record may be on the disk or not, and a crash shows which; the next change decides.
#[test]
fn a_change_that_was_refused_is_gone_for_good_once_another_was_made() {
    use Operation::{Rename, Sync, SyncDir, Write};
    // The record, the file that was to replace its file, and one that was begun because it is long; or a name.
    let faults: [&[(Operation, u64, &str)]; 4] = [
        &[(Sync, 1, "MANIFEST"), (Sync, 2, "MANIFEST"), (Sync, 3, "MANIFEST")],
        &[(Write, 1, "MANIFEST"), (Write, 2, "MANIFEST"), (Write, 3, "MANIFEST")],
        &[(Sync, 1, "MANIFEST"), (Sync, 2, "MANIFEST"), (Rename, 1, "CURRENT")],
        &[(Sync, 1, "MANIFEST"), (Rename, 1, "CURRENT"), (SyncDir, 2, "/db")],
    ];
    for (name, act) in ACTS {
        let (_, engine, table, _) = layered();
        act(&engine, &table).unwrap();
        let all = |engine: &Arc<Engine>| {
            engine.table("public", "t").map(|table| scan_now(engine, &table)).unwrap_or_default()
        };
        let after = all(&engine);
        for faults in faults {
            let (files, engine, table, before) = layered();
            faults.iter().for_each(|(operation, nth, part)| files.fail(*operation, *nth, part));
            let done = act(&engine, &table);
            let at = format!("{name}, {faults:?}: {done:?}");
            files.forgive();
            if done.is_ok() {
                assert!(faults[1].0 != faults[0].0 || faults[2].0 != faults[0].0, "{at}");
                continue;
            }
            assert_eq!(all(&engine), before, "{at}");
            for seed in 0..4 {
                let crashed = files.crash(seed);
                assert_eq!(findings(&crashed), Vec::<String>::new(), "{at}");
                let found = all(&open(&sim_env(&crashed, &Arc::new(SimClock::new()))).unwrap());
                assert!(found == before || found == after, "{at}: {found:?}");
            }
            engine.create_schema("s").unwrap();
            for seed in 0..4 {
                let crashed = files.crash(seed);
                assert_eq!(findings(&crashed), Vec::<String>::new(), "{at}");
                let again = open(&sim_env(&crashed, &Arc::new(SimClock::new()))).unwrap();
                assert_eq!(all(&again), before, "{at}");
            }
            act(&engine, &table).unwrap();
            assert_eq!(all(&engine), after, "{at}");
            has_only_live_files(&files, &engine);
        }
    }
}

/// A drop that failed may be on the disk: a write that it would take along is not acknowledged.
#[test]
fn nothing_is_written_to_a_table_of_which_it_is_not_known_whether_it_is_dropped() {
    let (files, engine, table, rows) = layered();
    // The record, the file that was to replace its file, and one that was begun because it is long.
    (1..=3).for_each(|nth| files.fail(Operation::Sync, nth, "MANIFEST"));
    assert!(engine.drop_table("public", "t").is_err());
    files.forgive();
    let lost = put(&engine, &table, 90, "lost").unwrap_err();
    assert!(lost.message().starts_with("whether table \"t\" is dropped is not known: manifest: "), "{lost}");
    assert_eq!(scan_now(&engine, &table), rows);
    engine.create_schema("s").unwrap();
    let refused = put(&engine, &table, 90, "kept").map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
    let commit = put(&engine, &table, 90, "kept").unwrap();
    engine.settle(commit.obligation).unwrap();
    for seed in 0..4 {
        let again = open(&sim_env(&files.crash(seed), &Arc::new(SimClock::new()))).unwrap();
        let table = again.table("public", "t").unwrap();
        assert_eq!(get(&again, &table, 90).as_deref(), Some("kept"));
    }
}

#[test]
fn writes_that_a_full_disk_refused_succeed_by_themselves_once_there_is_space() {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let options = EngineOptions { log_bytes_max: 16 << 20, ..EngineOptions::with_memory(16 << 20) };
    let engine = Engine::open(sim_env(&files, &clock), Path::new(DIR), options).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Sync)).unwrap();
    // What can be compressed would never fill the disk.
    let mut rng = Rng::new(1);
    let mut write = |k| {
        let long: String = (0..100_000).map(|_| char::from(b' ' + rng.below(95) as u8)).collect();
        put(&engine, &table, k, &long).and_then(|commit| engine.settle(commit.obligation))
    };
    write(0).unwrap();
    for round in 1..4_i64 {
        files.set_capacity(Some(files.used_bytes() + (1 << 20)));
        let refused = (0..1000).find_map(|k| write(round * 1000 + k).err().map(|error| (k, error)));
        let (refused_at, error) = refused.expect("the disk is full");
        assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
        assert!((0..refused_at).all(|k| get(&engine, &table, round * 1000 + k).is_some()));
        files.set_capacity(None);
        eventually("an end of all troubles", || {
            // Attempts are made by the clock.
            clock.advance(1_000_000);
            engine.troubles().is_empty()
        });
        write(round * 1000 + refused_at).unwrap();
    }
    let rows = scan_now(&engine, &table);
    let (again, table) = after_kill(&files);
    assert_eq!(scan_now(&again, &table), rows);
}
