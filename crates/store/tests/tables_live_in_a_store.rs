//! A folder is a cache of what the store has: whatever of the tables' files it lacks is read from there, and what nobody names any
//! more goes from both.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::*;
use oribi_engine::{Engine, EngineOptions, KeyRange};
use oribi_env::{Clock, Env};
use oribi_types::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

fn expected(keys: i64) -> Rows {
    (0..keys).map(|k| (k, format!("v{k}"))).collect()
}

#[test]
fn rows_are_read_from_the_store_where_the_folder_has_lost_their_files() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let Opened { engine, .. } = open(&bucket, dir.path()).unwrap();
    create(&engine);
    (0..500).for_each(|k| put(&engine, k, &format!("v{k}")));
    flush(&engine).unwrap();
    // Marks on rows of the first files, which become files of their own.
    (0..500).step_by(7).for_each(|k| put(&engine, k, "again"));
    engine.close().unwrap();
    drop(engine);
    lose_files(dir.path());
    let Opened { engine, store } = open(&bucket, dir.path()).unwrap();
    let mut all = expected(500);
    (0..500).step_by(7).for_each(|k| drop(all.insert(k, "again".to_owned())));
    assert_eq!(rows(&engine).unwrap(), all);
    let fetches = store.stats().fetches;
    assert!(fetches > 0);
    assert_eq!(rows(&engine).unwrap(), all);
    assert_eq!(store.stats().fetches, fetches, "what was fetched is here");
    // What the process before was killed in the middle of, or forgot, is no obstacle.
    drop(engine);
    let engine = open(&bucket, dir.path()).unwrap().engine;
    assert_eq!(rows(&engine).unwrap(), all);
}

#[test]
fn the_folder_has_no_more_than_it_may() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let Opened { engine, store } = open_with(&bucket, dir.path(), 1).unwrap();
    create(&engine);
    for round in 0..5 {
        (round * 100..round * 100 + 100).for_each(|k| put(&engine, k, &format!("v{k}")));
        flush(&engine).unwrap();
    }
    assert_eq!(rows(&engine).unwrap(), expected(500));
    assert_eq!(rows(&engine).unwrap(), expected(500));
    let stats = store.stats();
    assert!(stats.evictions > 10 && stats.fetches > 10, "{stats:?}");
    // The one that was read last has not been asked to go.
    assert!(local_files(dir.path()).len() <= 1, "{:?}", local_files(dir.path()));
    let bytes: u64 = 4096;
    assert!(stats.cache_bytes < bytes, "{stats:?}");
}

#[test]
fn what_nobody_names_goes_once_nobody_reads_it() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let Opened { engine, .. } = open_with(&bucket, dir.path(), 1).unwrap();
    let table = create(&engine);
    for round in 0..4 {
        (round * 100..round * 100 + 100).for_each(|k| put(&engine, k, &format!("v{k}")));
        flush(&engine).unwrap();
    }
    let before = bucket.names();
    assert_eq!(before.len(), 1 + 4 * 2 * 2, "{before:?}");
    let snapshot = Arc::new(engine.snapshot());
    let mut reader = engine.range(&table, 0, KeyRange::default(), &[1], &snapshot);
    let mut seen = 0;
    let counted = reader.read(10, |_| {
        seen += 1;
        Ok(())
    });
    counted.unwrap();
    engine.compact(&table).unwrap();
    engine.publish().unwrap();
    assert!(before.iter().filter(|name| bucket.names().contains(name)).count() > 1, "one reads");
    let counted = reader.read(usize::MAX, |_| {
        seen += 1;
        Ok(())
    });
    counted.unwrap();
    assert!((150..250).contains(&seen), "{seen}");
    drop(reader);
    put(&engine, 0, "v0");
    flush(&engine).unwrap();
    let after = bucket.names();
    let stay: Vec<_> = before.iter().filter(|name| after.contains(name)).collect();
    assert_eq!(stay, ["MANIFEST"], "{after:?}");
    assert_eq!(rows(&engine).unwrap(), expected(400));
}

#[test]
fn what_was_held_by_its_name_goes_when_the_last_lets_go_of_it() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let Opened { engine, .. } = open(&bucket, dir.path()).unwrap();
    let table = create(&engine);
    for round in 0..4 {
        (round * 100..round * 100 + 100).for_each(|k| put(&engine, k, &format!("v{k}")));
        flush(&engine).unwrap();
    }
    let before = bucket.ending(".parquet");
    let held = engine.named_files();
    engine.compact(&table).unwrap();
    engine.publish().unwrap();
    assert!(before.iter().all(|name| bucket.names().contains(name)), "somebody may open them");
    drop(held);
    // Nothing else has changed.
    engine.publish().unwrap();
    assert!(before.iter().all(|name| !bucket.names().contains(name)), "{:?}", bucket.names());
    assert_eq!(rows(&engine).unwrap(), expected(400));
}

#[test]
fn what_a_crash_left_in_the_store_goes_and_what_a_later_owner_makes_stays() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let Opened { engine, .. } = open(&bucket, dir.path()).unwrap();
    create(&engine);
    put(&engine, 1, "v1");
    flush(&engine).unwrap();
    let named = bucket.names();
    let table = named.iter().find(|name| name.ends_with(".parquet")).unwrap();
    let folder = table.rsplit_once('/').unwrap().0;
    let (left, later) =
        (format!("{folder}/000000010000ffff.parquet"), format!("{folder}/0000ffff00000001.index"));
    bucket.set(&left, b"left");
    bucket.set(&later, b"later");
    // On rows of a file that the owner has made; by the owner, and by a later one.
    let id = table.rsplit_once('/').unwrap().1.strip_suffix(".parquet").unwrap();
    let [left_marks, later_marks] =
        ["10000ffff", "ffff00000001"].map(|number| format!("{folder}/{id}.{number}.marks"));
    bucket.set(&left_marks, b"left");
    bucket.set(&later_marks, b"later");
    bucket.set("tables/99999/0000000100000001.parquet", b"of a table that was dropped");
    drop(engine);
    let Opened { engine, .. } = open(&bucket, dir.path()).unwrap();
    engine.publish().unwrap();
    let now = bucket.names();
    assert!(
        !now.contains(&left)
            && !now.contains(&left_marks)
            && now.contains(&later)
            && now.contains(&later_marks)
            && !now.contains(&"tables/99999/0000000100000001.parquet".to_owned()),
        "{now:?}"
    );
    assert!(named.iter().all(|name| now.contains(name)), "{now:?}");
    assert_eq!(rows(&engine).unwrap()[&1], "v1");
}

#[test]
fn a_folder_that_had_no_store_has_its_files_kept_in_one() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let options = oribi_engine::EngineOptions { background: false, ..Default::default() };
    let engine = oribi_engine::Engine::open(oribi_env::Env::real(), dir.path(), options).unwrap();
    create(&engine);
    (0..50).for_each(|k| put(&engine, k, &format!("v{k}")));
    engine.close().unwrap();
    drop(engine);
    let Opened { engine, .. } = open(&bucket, dir.path()).unwrap();
    engine.close().unwrap();
    drop(engine);
    lose_files(dir.path());
    let engine = open(&bucket, dir.path()).unwrap().engine;
    assert_eq!(rows(&engine).unwrap(), expected(50));
}

/// Of which each look finds that six seconds have passed, once that is set.
struct Hurried(AtomicBool, AtomicU64);

impl Clock for Hurried {
    fn now_micros(&self) -> u64 {
        Env::real().clock.now_micros()
    }

    fn monotonic_micros(&self) -> u64 {
        self.1.fetch_add(if self.0.load(SeqCst) { 6_000_000 } else { 1 }, SeqCst)
    }
}

#[test]
fn a_stop_does_not_wait_until_all_of_a_folder_is_in_its_store() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let options = EngineOptions { background: false, ..Default::default() };
    let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
    let table = create(&engine);
    for k in 0..20 {
        put(&engine, k, &format!("v{k}"));
        engine.flush(&table).unwrap();
    }
    engine.close().unwrap();
    drop(engine);
    let first = local_files(dir.path()).into_iter().filter(|name| name.ends_with(".parquet")).min().unwrap();
    let gate = bucket.gate("put", &format!("tables/{}/{first}", table.id()));
    let clock = Arc::new(Hurried(false.into(), 1.into()));
    let env = Env { clock: clock.clone(), ..Env::real() };
    let store = store_of(&bucket, &env, dir.path(), 1 << 30);
    // Nobody makes one file of them meanwhile.
    let options = EngineOptions { compaction_files: 1000, ..Default::default() };
    let engine = Engine::open_with(store.env(), dir.path(), options, Some(store.depot())).unwrap();
    // The thread that is there for it has begun.
    gate.wait_for_one();
    clock.0.store(true, SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Until the engine is being closed, as nobody can see from outside.
            std::thread::sleep(std::time::Duration::from_millis(500));
            gate.open();
        });
        engine.close().unwrap();
    });
    drop(engine);
    let put = bucket.ending(".parquet").len();
    assert!(put < 15, "{put} were put");
    let Opened { engine, .. } = open(&bucket, dir.path()).unwrap();
    engine.publish().unwrap();
    assert_eq!(bucket.ending(".parquet").len(), 20);
    assert_eq!(rows(&engine).unwrap(), expected(20));
}

/// A folder that had no store, with a table of one row in a file.
fn before_it_had_a_store(dir: &std::path::Path) {
    let options = oribi_engine::EngineOptions { background: false, ..Default::default() };
    let engine = oribi_engine::Engine::open(oribi_env::Env::real(), dir, options).unwrap();
    create(&engine);
    put(&engine, 1, "v1");
    engine.close().unwrap();
}

#[test]
fn what_a_folder_had_before_its_store_is_never_given_up_for_an_object_of_that_name() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    before_it_had_a_store(dir.path());
    // The folder is the owner, and nobody has put its files yet.
    drop(open(&bucket, dir.path()).unwrap());
    let names = local_files(dir.path());
    let table = std::fs::read_dir(dir.path().join("tables")).unwrap().map(|table| table.unwrap().path());
    let table = table.into_iter().find(|table| table.read_dir().unwrap().count() > 0).unwrap();
    let table = table.file_name().unwrap().to_str().unwrap();
    for name in &names {
        bucket.set(&format!("tables/{table}/{name}"), b"of somebody else");
    }
    let Opened { engine, .. } = open_with(&bucket, dir.path(), 1).unwrap();
    assert_eq!(rows(&engine).unwrap()[&1], "v1");
    let error = engine.publish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(local_files(dir.path()), names);
    assert_eq!(rows(&engine).unwrap()[&1], "v1");
    assert!(
        bucket.names().iter().all(|name| name == "MANIFEST" || bucket.bytes_of(name) == b"of somebody else")
    );
}

#[test]
fn a_file_that_is_missing_before_it_was_kept_is_told_of() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    before_it_had_a_store(dir.path());
    let Opened { engine, .. } = open(&bucket, dir.path()).unwrap();
    lose_files(dir.path());
    let error = engine.publish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(" is missing"), "{error}");
}

#[test]
fn an_operation_on_a_lost_row_fails_and_so_does_a_stop_that_cannot_flush() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let Opened { engine, .. } = open_with(&bucket, dir.path(), 1).unwrap();
    create(&engine);
    (0..100).for_each(|k| put(&engine, k, "v"));
    flush(&engine).unwrap();
    drop(engine);
    let Opened { engine, store } = open_with(&bucket, dir.path(), 1).unwrap();
    bucket.ending(".parquet").iter().for_each(|name| bucket.lose(name));
    store.depot().tend(false);
    let is_damage = |what: &str, result: oribi_types::Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
        assert!(error.to_string().contains("the store has lost tables/"), "{what}: {error}");
    };
    is_damage("scan", rows(&engine).map(drop));
    is_damage("read for a write", write(&engine, 5, None));
    let table = engine.table("public", "t").unwrap();
    let key = key(5);
    let got = engine.get(&table, &key, engine.read_view(), |row| row.row.to_vec());
    is_damage("get", got.map(drop));
    // The version in the file is looked for when this one is flushed.
    put_blindly(&engine, 5, "w");
    is_damage("flush", engine.flush(&table));
    is_damage("close", engine.close());
}
