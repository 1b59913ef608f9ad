//! One folder owns the tables of a store. Another is refused; one that was restored from it is the owner from then on, and the one
//! before stops.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::*;
use oribi_store::MANIFEST;
use oribi_types::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Barrier};

fn refused(opened: oribi_types::Result<Opened>) -> String {
    match opened {
        Ok(_) => panic!("it became the owner"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
            error.to_string()
        }
    }
}

#[test]
fn another_folder_is_refused_and_touches_nothing() {
    let (bucket, dirs) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let Opened { engine, .. } = open(&bucket, &dirs.path().join("a")).unwrap();
    create(&engine);
    put(&engine, 1, "v1");
    flush(&engine).unwrap();
    let before = bucket.names();
    let said = refused(open(&bucket, &dirs.path().join("b")));
    assert!(
        said.contains("belongs to another owner (term 1: folder ") && said.contains("oribi restore"),
        "{said}"
    );
    assert_eq!(bucket.names(), before);
    put(&engine, 2, "v2");
    flush(&engine).unwrap();
    assert_eq!(rows(&engine).unwrap().len(), 2);
}

#[test]
fn of_several_that_begin_at_once_one_becomes_the_owner() {
    for _ in 0..20 {
        let (bucket, dirs) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
        let start = Barrier::new(4);
        let owners: Vec<_> = std::thread::scope(|scope| {
            let begin = |n: usize| {
                let (bucket, dir, start) = (&bucket, dirs.path().join(n.to_string()), &start);
                scope.spawn(move || {
                    start.wait();
                    open(bucket, &dir).map_err(|error| error.kind())
                })
            };
            let all: Vec<_> = (0..4).map(begin).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(owners.iter().filter(|owner| owner.is_ok()).count(), 1);
        assert!(owners.iter().all(|owner| !matches!(owner, Err(kind) if *kind != ErrorKind::Forbidden)));
    }
}

#[test]
fn of_two_copies_of_a_folder_the_later_is_refused() {
    let (bucket, dirs) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let (first, second) = (dirs.path().join("first"), dirs.path().join("second"));
    let Opened { engine, .. } = open(&bucket, &first).unwrap();
    create(&engine);
    engine.close().unwrap();
    drop(engine);
    copy(&first, &second);
    let engine = open(&bucket, &second).unwrap().engine;
    let said = refused(open(&bucket, &first));
    assert!(said.contains("is a copy, or was the owner before"), "{said}");
    engine.close().unwrap();
    drop(engine);
    open(&bucket, &second).unwrap();
    refused(open(&bucket, &first));
}

#[test]
fn a_folder_that_is_lost_is_restored_with_all_that_was_flushed() {
    let (bucket, dirs) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let (lost, found) = (dirs.path().join("lost"), dirs.path().join("found"));
    let Opened { engine, .. } = open(&bucket, &lost).unwrap();
    create(&engine);
    (0..100).for_each(|k| put(&engine, k, "first"));
    flush(&engine).unwrap();
    (0..100).step_by(2).for_each(|k| put(&engine, k, "second"));
    (1..100).step_by(10).for_each(|k| write(&engine, k, None).unwrap());
    // Rows of what is flushed that have another version already, which no file has.
    let table = engine.table("public", "t").unwrap();
    engine.seal(&table);
    (0..100).step_by(4).for_each(|k| put(&engine, k, "third"));
    put(&engine, 1000, "third");
    engine.flush_sealed(&table).unwrap();
    engine.publish().unwrap();
    let last = engine.snapshot().ts();

    restore(&bucket, &found).unwrap();
    let restored = open(&bucket, &found).unwrap().engine;
    let there = rows(&restored).unwrap();
    let v_of = |k: i64| match k {
        k if k % 2 == 0 => Some("second"),
        k if k % 10 == 1 => None,
        _ => Some("first"),
    };
    for k in 0..100 {
        let v = there.get(&k).map(String::as_str);
        // What came over it may have taken the version before along.
        let is_older = k % 4 == 0 && v == Some("first");
        assert!(v == v_of(k) || is_older, "row {k} is {v:?}");
    }
    assert!(!there.contains_key(&1000), "that was in the log alone");
    put(&restored, 5, "new");
    assert!(restored.snapshot().ts() > last);
    flush(&restored).unwrap();

    // The owner before goes on to write, and is told when it tells.
    put(&engine, 6, "lost");
    let told = flush(&engine).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Conflict);
    assert!(told.to_string().contains("another owner (term "), "{told}");
    drop(engine);
    refused(open(&bucket, &lost));
    restored.close().unwrap();
    drop(restored);
    lose_files(&found);
    let restored = open(&bucket, &found).unwrap().engine;
    assert_eq!(rows(&restored).unwrap()[&5], "new");
}

#[test]
fn the_owner_before_stops_by_itself() {
    let (bucket, dirs) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let dir = dirs.path().join("first");
    let as_bucket: Arc<dyn oribi_store::Bucket> = bucket.clone();
    let store = oribi_store::Store::new(as_bucket, &oribi_env::Env::real(), &dir, options(1 << 30));
    let options = oribi_engine::EngineOptions::with_memory(64 << 20);
    let engine = oribi_engine::Engine::open_with(store.env(), &dir, options, Some(store.depot())).unwrap();
    create(&engine);
    restore(&bucket, &dirs.path().join("second")).unwrap();
    // Told at the next change of the manifest.
    let begun = std::time::Instant::now();
    while write(&engine, 1, Some("v")).is_ok() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it goes on: {:?}", engine.troubles());
        if let Ok(table) = engine.table("public", "t") {
            let _ = engine.flush(&table);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let troubles = engine.troubles();
    assert!(troubles.iter().any(|trouble| trouble.error.message().contains("another owner")), "{troubles:?}");
}

#[test]
fn a_restore_that_was_not_completed_is_not_taken_for_an_empty_folder() {
    let (bucket, dirs) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let (lost, found) = (dirs.path().join("lost"), dirs.path().join("found"));
    let Opened { engine, .. } = open(&bucket, &lost).unwrap();
    create(&engine);
    put(&engine, 1, "v1");
    engine.close().unwrap();
    drop(engine);
    restore(&bucket, &found).unwrap();
    // As after a crash before the folder's own manifest was written.
    std::fs::remove_file(found.join("CURRENT")).unwrap();
    let said = open(&bucket, &found).map(drop).unwrap_err().to_string();
    assert!(said.contains("has lost its tables") && said.contains("oribi restore"), "{said}");
    restore(&bucket, &found).unwrap();
    assert_eq!(rows(&open(&bucket, &found).unwrap().engine).unwrap()[&1], "v1");
    assert!(restore(&bucket, &found).unwrap_err().to_string().contains("has tables"));
}

#[test]
fn a_store_that_has_lost_its_manifest_is_not_begun_anew() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    drop(open(&bucket, dir.path()).unwrap());
    oribi_store::Bucket::remove(&*bucket, oribi_store::MANIFEST).unwrap();
    let said = open(&bucket, dir.path()).map(drop).unwrap_err().to_string();
    assert!(said.contains("has lost its MANIFEST"), "{said}");
    for damaged in [
        &b""[..],
        b"{}\n",
        b"{\"format\":1,\"term\":1,\"version\":1,\"claim\":\"\",\"owner\":\"\",\"digest\":\"\"}\nx",
    ] {
        bucket.set(oribi_store::MANIFEST, damaged);
        let error = open(&bucket, dir.path()).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

/// Has the folder's `STORE` say that it is being restored.
fn set_restoring(dir: &Path) {
    let path = dir.join("STORE");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"is_restoring\":false"), "{text}");
    std::fs::write(&path, text.replace("\"is_restoring\":false", "\"is_restoring\":true")).unwrap();
}

#[test]
fn a_restore_that_ended_before_it_said_so_goes_on_unless_another_came() {
    let (bucket, dirs) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let [lost, found, other] = ["lost", "found", "other"].map(|name| dirs.path().join(name));
    let Opened { engine, .. } = open(&bucket, &lost).unwrap();
    create(&engine);
    put(&engine, 1, "v1");
    engine.close().unwrap();
    drop(engine);
    restore(&bucket, &found).unwrap();
    set_restoring(&found);
    let said = open(&bucket, &found).map(drop).unwrap_err().to_string();
    assert!(said.contains("was not restored to the end: oribi restore"), "{said}");
    restore(&bucket, &found).unwrap();
    assert_eq!(rows(&open(&bucket, &found).unwrap().engine).unwrap()[&1], "v1");
    set_restoring(&found);
    restore(&bucket, &other).unwrap();
    let error = restore(&bucket, &found).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
    assert!(open(&bucket, &found).is_err());
    open(&bucket, &other).unwrap();
}

#[test]
fn nothing_is_restored_to_a_folder_that_has_a_log_or_files() {
    let (bucket, dirs) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let [lost, logged, filed] = ["lost", "logged", "filed"].map(|name| dirs.path().join(name));
    let Opened { engine, .. } = open(&bucket, &lost).unwrap();
    create(&engine);
    put(&engine, 1, "v1");
    flush(&engine).unwrap();
    let before = bucket.bytes_of(MANIFEST);
    // Whose log would be replayed over the tables of another.
    let options = oribi_engine::EngineOptions { background: false, ..Default::default() };
    let other = oribi_engine::Engine::open(oribi_env::Env::real(), &logged, options).unwrap();
    create(&other);
    put(&other, 1, "of another table");
    drop(other);
    std::fs::remove_file(logged.join("CURRENT")).unwrap();
    std::fs::create_dir_all(filed.join("tables/7")).unwrap();
    std::fs::write(filed.join("tables/7/0000000100000001.parquet"), b"of another").unwrap();
    for (dir, what) in [(&logged, "has a log"), (&filed, "has files of tables"), (&lost, "in use")] {
        let error = restore(&bucket, dir).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    assert_eq!(bucket.bytes_of(MANIFEST), before, "nobody has claimed it");
    put(&engine, 2, "v2");
    flush(&engine).unwrap();
}

#[test]
fn objects_without_a_manifest_are_not_taken_for_an_empty_store() {
    let (bucket, dirs) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let Opened { engine, .. } = open(&bucket, &dirs.path().join("owner")).unwrap();
    create(&engine);
    put(&engine, 1, "v1");
    flush(&engine).unwrap();
    drop(engine);
    let manifest = bucket.bytes_of(MANIFEST);
    bucket.lose(MANIFEST);
    let left = bucket.names();
    for name in ["owner", "new"] {
        let error = open(&bucket, &dirs.path().join(name)).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("has lost its MANIFEST"), "{error}");
    }
    assert_eq!(restore(&bucket, &dirs.path().join("found")).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(bucket.names(), left);
    // It is found again.
    bucket.set(MANIFEST, &manifest);
    assert_eq!(rows(&open(&bucket, &dirs.path().join("owner")).unwrap().engine).unwrap()[&1], "v1");
}

#[test]
fn a_claim_that_comes_through_late_locks_nobody_out() {
    let (bucket, dirs) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let dir = dirs.path().join("owner");
    // The first, on nothing; and one on a manifest.
    for round in 0..2 {
        bucket.delay(MANIFEST);
        let error = open(&bucket, &dir).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        bucket.land();
        let Opened { engine, .. } = open(&bucket, &dir).unwrap();
        if round == 0 {
            create(&engine);
        }
        put(&engine, round, "v");
        engine.close().unwrap();
    }
    // Two are under way, and the first comes through when a third has looked at what is there.
    bucket.delay(MANIFEST);
    for _ in 0..2 {
        assert!(open(&bucket, &dir).is_err());
    }
    let folder = dir.clone();
    let held = bucket.clone();
    let gate = bucket.gate("put", MANIFEST);
    let third = std::thread::spawn(move || open(&held, &folder).map(|opened| rows(&opened.engine).unwrap()));
    gate.wait_for_one();
    bucket.land();
    gate.open();
    assert_eq!(third.join().unwrap().unwrap().len(), 2);
    open(&bucket, &dir).unwrap();
}

#[test]
fn what_was_told_and_comes_through_late_is_not_taken_for_another_owner() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let Opened { engine, .. } = open(&bucket, dir.path()).unwrap();
    create(&engine);
    put(&engine, 1, "v1");
    bucket.delay(MANIFEST);
    assert_eq!(flush(&engine).unwrap_err().kind(), ErrorKind::Unavailable);
    put(&engine, 2, "v2");
    assert_eq!(flush(&engine).unwrap_err().kind(), ErrorKind::Unavailable);
    bucket.land();
    put(&engine, 3, "v3");
    flush(&engine).unwrap();
    drop(engine);
    lose_files(dir.path());
    assert_eq!(rows(&open(&bucket, dir.path()).unwrap().engine).unwrap().len(), 3);
}

#[test]
fn who_puts_many_files_is_told_in_between_that_another_owns_them() {
    /// Each look at it finds that six seconds have passed.
    struct Hurried(std::sync::atomic::AtomicU64);
    impl oribi_env::Clock for Hurried {
        fn now_micros(&self) -> u64 {
            oribi_env::Env::real().clock.now_micros()
        }

        fn monotonic_micros(&self) -> u64 {
            self.0.fetch_add(6_000_000, std::sync::atomic::Ordering::SeqCst)
        }
    }
    let (bucket, dirs) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let dir = dirs.path().join("first");
    let options = oribi_engine::EngineOptions { background: false, ..Default::default() };
    let engine = oribi_engine::Engine::open(oribi_env::Env::real(), &dir, options).unwrap();
    let table = create(&engine);
    for k in 0..20 {
        put(&engine, k, "v");
        engine.flush(&table).unwrap();
    }
    let files = engine.stats().sstables as usize;
    drop(engine);
    let clock = Arc::new(Hurried(1.into()));
    let env = oribi_env::Env { clock, ..oribi_env::Env::real() };
    let Opened { engine, .. } = open_in(&env, &bucket, &dir, 1 << 30).unwrap();
    restore(&bucket, &dirs.path().join("second")).unwrap();
    let error = engine.publish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let put = bucket.ending(".parquet").len();
    assert!(put < files / 2, "{put} of {files} were put");
}

#[test]
fn a_copy_from_before_that_takes_the_place_of_the_folder_removes_nothing() {
    let (bucket, dirs) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let [dir, before, found] = ["owner", "before", "found"].map(|name| dirs.path().join(name));
    let Opened { engine, .. } = open(&bucket, &dir).unwrap();
    create(&engine);
    // As a disk that is set back is, under a process that is killed.
    copy(&dir, &before);
    (0..10).for_each(|k| put(&engine, k, "v"));
    flush(&engine).unwrap();
    drop(engine);
    let told = bucket.names();
    std::fs::remove_dir_all(&dir).unwrap();
    copy(&before, &dir);
    let error = open(&bucket, &dir).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("is older than what was told"), "{error}");
    assert_eq!(bucket.names(), told);
    restore(&bucket, &found).unwrap();
    assert_eq!(rows(&open(&bucket, &found).unwrap().engine).unwrap().len(), 10);
}
