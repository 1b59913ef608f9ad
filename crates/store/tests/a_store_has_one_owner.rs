//! One folder owns the tables of a store. Another is refused; one that was restored from it is the owner from then on, and the one
//! before stops.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::*;
use oribi_types::ErrorKind;
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
    while write(&engine, 1, Some("v")).is_ok() {
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
    for table in std::fs::read_dir(found.join("tables")).unwrap() {
        std::fs::remove_dir_all(table.unwrap().path()).unwrap();
    }
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
