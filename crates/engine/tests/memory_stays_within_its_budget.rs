//! More rows than memory holds go through an engine that flushes, compacts and trims by itself.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Engine, EngineOptions, Snapshot, Table};
use oribi_sim::{SimClock, SimFiles};
use oribi_types::Durability;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const MEMORY: u64 = 8 << 20;
const VALUE_BYTES: usize = 4000;

fn open_small(files: &SimFiles) -> (Arc<Engine>, Arc<Table>) {
    let options = EngineOptions { log_bytes_max: 4 << 20, ..EngineOptions::with_memory(MEMORY) };
    let env = sim_env(files, &Arc::new(SimClock::new()));
    let engine = Engine::open(env, Path::new(DIR), options).unwrap();
    let table = engine.table("public", "t");
    let table = table.or_else(|_| engine.create_table(definition("t", 2, Durability::Periodic(50)))).unwrap();
    (engine, table)
}

fn value(k: i64, round: i64) -> String {
    let mut v = format!("{k} {round} ");
    v.extend(std::iter::repeat_n('x', VALUE_BYTES - v.len()));
    v
}

fn log_bytes(files: &SimFiles) -> u64 {
    let is_log = |path: &std::path::PathBuf| path.to_string_lossy().contains("/wal/");
    let logs = files.all_files().into_iter().filter(is_log);
    logs.map(|path| oribi_env::read_file(files, &path).unwrap().len() as u64).sum()
}

#[test]
fn writes_beyond_the_budget_wait_and_nothing_is_lost() {
    let files = SimFiles::new();
    let (engine, table) = open_small(&files);
    let (threads, keys, rounds) = (3, 800, 8);
    let busy = AtomicBool::new(true);
    let (most, most_in_all) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let write = |thread: i64| {
            let (engine, table) = (&engine, &table);
            move || {
                for round in 0..rounds {
                    for k in (thread..keys).step_by(threads as usize) {
                        put(engine, table, k, &value(k, round)).unwrap();
                    }
                }
            }
        };
        let writers: Vec<_> = (0..threads).map(|t| scope.spawn(write(t))).collect();
        let reader = scope.spawn(|| {
            let mut k = 0;
            while busy.load(Relaxed) {
                most.fetch_max(engine.memory().memtables(), Relaxed);
                most_in_all.fetch_max(engine.memory().used(), Relaxed);
                k = (k + 37) % keys;
                if let Some(v) = get(&engine, &table, k) {
                    assert!(v.starts_with(&format!("{k} ")));
                }
            }
        });
        writers.into_iter().for_each(|w| w.join().unwrap());
        busy.store(false, Relaxed);
        reader.join().unwrap();
    });
    assert!(engine.stats().rows_written as usize * VALUE_BYTES > 3 * MEMORY as usize);
    // A row of each writer may be on its way when the limit is met.
    let slack = 4 * (threads as u64) * VALUE_BYTES as u64;
    assert!(most.load(Relaxed) <= MEMORY / 2 + slack, "memtables took {}", most.load(Relaxed));
    assert!(most_in_all.load(Relaxed) <= MEMORY + MEMORY / 4, "in all {}", most_in_all.load(Relaxed));
    let expected: Rows = (0..keys).map(|k| (k, value(k, rounds - 1))).collect();
    assert!(scan_now(&engine, &table) == expected, "rows were lost");
    engine.close().unwrap();
    assert!(put(&engine, &table, 1, "late").is_err());
    // Trimmed by whole segments, of which the last two may be in use.
    assert!(log_bytes(&files) <= 4 << 20, "the log has {} bytes", log_bytes(&files));
    drop((engine, table));
    assert_eq!(findings(&files), Vec::<String>::new());
    let (engine, table) = open_small(&files);
    assert!(scan_now(&engine, &table) == expected, "rows were lost");
    assert!((0..keys).all(|k| get(&engine, &table, k) == Some(value(k, rounds - 1))));
}

#[test]
fn a_writer_waits_while_memtables_hold_half_of_the_budget() {
    let options = EngineOptions { background: false, ..EngineOptions::with_memory(MEMORY) };
    let env = sim_env(&SimFiles::new(), &Arc::new(SimClock::new()));
    let engine = Engine::open(env, Path::new(DIR), options).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Periodic(50))).unwrap();
    let mut k = 0;
    while engine.memory().memtables() <= MEMORY / 2 {
        put(&engine, &table, k, &value(k, 0)).unwrap();
        k += 1;
    }
    let (done, written) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| done.send(put(&engine, &table, k, "waits").is_ok()).unwrap());
        assert!(
            written.recv_timeout(Duration::from_millis(200)).is_err(),
            "there is no room, nobody flushes"
        );
        engine.flush(&table).unwrap();
        assert!(written.recv().unwrap());
    });
    assert_eq!(get(&engine, &table, k).as_deref(), Some("waits"));
}

#[test]
fn queries_and_writers_share_the_budget() {
    let files = SimFiles::new();
    let (engine, table) = open_small(&files);
    let memory = engine.memory();
    // A query that takes all it can get before anybody writes.
    let mut reserved = 0;
    while memory.try_reserve(64 << 10) {
        reserved += 64 << 10;
    }
    assert!(reserved > MEMORY / 2);
    let mut most = 0;
    for k in 0..4000 {
        put(&engine, &table, k, &value(k, 0)).unwrap();
        // Indexes of files that come after the query took all find no room; they are small.
        most = most.max(memory.memtables() + memory.queries());
    }
    assert!(most <= MEMORY + 2 * VALUE_BYTES as u64, "{most}");
    assert!((1..MEMORY / 16).contains(&memory.indexes()), "{}", memory.indexes());
    memory.release(reserved);
    for k in 4000..6000 {
        put(&engine, &table, k, &value(k, 0)).unwrap();
    }
    assert_eq!(memory.queries(), 0);
}

#[test]
fn what_is_known_of_an_open_sstable_is_counted() {
    let (_, _, engine, table) = fresh(1, Durability::Periodic(50));
    put(&engine, &table, 1, "v").unwrap();
    engine.flush(&table).unwrap();
    let scan = engine.scan_tablet(&table, 0, &[0], false, &engine.snapshot()).unwrap();
    let sstable = scan.files[0].sstable.clone();
    let index = sstable.memory_bytes();
    assert!(index > 0);
    sstable.metadata().unwrap();
    assert!(sstable.memory_bytes() > index, "Parquet's metadata stay in memory");
}

#[test]
fn the_rows_that_an_import_gathers_are_counted() {
    let (engine, table) = open_small(&SimFiles::new());
    let before = engine.memory().queries();
    let mut import = engine.import(&table).unwrap();
    let mut push = |first: i64| {
        let keys: Vec<i64> = (first..first + 100).collect();
        import.push(rows(&table, &keys, &"x".repeat(1000))).unwrap();
        engine.memory().queries() - before
    };
    let few = push(0);
    assert!((100_000..MEMORY / 8).contains(&few), "{few}");
    for batch in 1..50 {
        let gathered = push(batch * 100);
        assert!(gathered <= MEMORY / 8 + MEMORY / 16, "{gathered}");
    }
    drop(import);
    assert_eq!(engine.memory().queries(), before);
}

#[test]
fn an_overwritten_row_frees_its_memory() {
    let (_, _, engine, table) = fresh(1, Durability::Periodic(50));
    for round in 0..200 {
        put(&engine, &table, round % 3, &value(round % 3, round)).unwrap();
    }
    let memtables = engine.memory().memtables();
    assert!(memtables < 20_000, "{memtables}");
    let snapshot = engine.snapshot();
    for round in 0..20 {
        put(&engine, &table, round % 3, &value(round % 3, round)).unwrap();
    }
    assert!(engine.memory().memtables() > memtables, "what the snapshot reads is kept");
    drop(snapshot);
    for k in 0..3 {
        put(&engine, &table, k, &value(k, 0)).unwrap();
    }
    assert!(engine.memory().memtables() <= memtables);
    engine.flush(&table).unwrap();
    assert_eq!(engine.memory().memtables(), 0);
    engine.truncate(&table).unwrap();
    assert_eq!(engine.memory().used(), 0);
}

#[test]
fn a_hot_row_under_an_old_snapshot_is_only_a_row_once_it_is_flushed() {
    let options = EngineOptions { background: false, ..EngineOptions::with_memory(1 << 30) };
    let env = sim_env(&SimFiles::new(), &Arc::new(SimClock::new()));
    let engine = Engine::open(env, Path::new(DIR), options).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Periodic(50))).unwrap();
    let get_at = |snapshot: &Snapshot| {
        engine.get(&table, &key(1), snapshot.view(), |row| v_of(&table, row.row)).unwrap().0
    };
    put(&engine, &table, 1, "first").unwrap();
    let first = engine.snapshot();
    // So many that walking over them for each write, or dropping them one inside the other, would not end well.
    let many = || {
        for _ in 0..200_000 {
            put(&engine, &table, 1, "v").unwrap();
        }
    };
    many();
    let second = engine.snapshot();
    put(&engine, &table, 1, "last").unwrap();
    engine.flush(&table).unwrap();
    let in_memory = engine.memory().used();
    assert!(in_memory < 1000, "one row, and not {in_memory} bytes");
    assert_eq!(get_at(&first).as_deref(), Some("first"), "from the file");
    assert_eq!(get_at(&second).as_deref(), Some("v"), "from the file");
    assert_eq!(scan(&engine, &table, &first), model(&[(1, "first")]));
    assert_eq!(scan(&engine, &table, &second), model(&[(1, "v")]));
    assert_eq!(get(&engine, &table, 1).as_deref(), Some("last"));
    // A deleted row's versions go at once, and those of a truncated table.
    many();
    delete(&engine, &table, 1).unwrap();
    engine.flush(&table).unwrap();
    assert_eq!(engine.memory().used(), 0);
    assert_eq!(get_at(&first).as_deref(), Some("first"));
    many();
    engine.truncate(&table).unwrap();
    assert_eq!(engine.memory().used(), 0);
}

#[test]
fn rows_that_a_snapshot_reads_are_not_compacted_over_and_over() {
    let files = SimFiles::new();
    let (engine, table) = open_small(&files);
    let old = engine.snapshot();
    for k in 0..200 {
        put(&engine, &table, k, "v").unwrap();
    }
    engine.flush(&table).unwrap();
    let snapshot = engine.snapshot();
    for k in 0..150 {
        delete(&engine, &table, k).unwrap();
    }
    engine.flush(&table).unwrap();
    for part in 0..5 {
        let keys: Vec<i64> = (0..50).map(|i| 1000 + part * 100 + i).collect();
        import(&engine, &table, &keys, "imported").unwrap();
    }
    // Many ticks of the background threads.
    std::thread::sleep(Duration::from_millis(400));
    let compactions = engine.stats().compactions;
    assert!(compactions <= 4, "{compactions} compactions with nothing to gain");
    assert_eq!(scan(&engine, &table, &snapshot).len(), 200);
    assert_eq!(scan(&engine, &table, &old).len(), 0);
    assert_eq!(scan_now(&engine, &table).len(), 300);
}

#[test]
fn the_row_cache_gives_way_and_changes_no_answer() {
    let files = SimFiles::new();
    let (engine, table) = open_small(&files);
    let keys: Vec<i64> = (0..4000).collect();
    import(&engine, &table, &keys, &"y".repeat(VALUE_BYTES)).unwrap();
    for k in keys.iter().chain(&keys[..100]) {
        assert_eq!(get(&engine, &table, *k).map(|v| v.len()), Some(VALUE_BYTES));
        assert!(engine.memory().used() <= MEMORY, "{}", engine.memory().used());
    }
    assert!(engine.memory().cache() > MEMORY / 2, "it is used, too");
    // A query that wants memory gets what the cache has.
    assert!(engine.memory().try_reserve(MEMORY / 2));
    get(&engine, &table, 2000);
    put(&engine, &table, 1, "v").unwrap();
    assert!(!engine.memory().try_reserve(MEMORY), "not more than there is");
    engine.memory().release(MEMORY / 2);
}
