//! A store that fails now and then is asked again, and nothing is lost or wrong; one that fails for long is named, and what it
//! should have had stays in memory and the log.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::*;
use oribi_env::Env;
use oribi_store::{Bucket, FolderBucket, Listed, Patience, Store, StoreOptions, examine};
use oribi_types::{ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

#[test]
fn a_fault_now_and_then_changes_nothing() {
    for every in [2, 7, 100] {
        let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
        bucket.fails_every.store(every, SeqCst);
        let mut expected = Rows::new();
        let mut random = every;
        for round in 0..4 {
            // However slow the machine is.
            let patience = Patience { limit: Duration::MAX, ..PATIENCE };
            let options = StoreOptions { patience, ..options(1) };
            let store = Store::new(bucket.clone(), &Env::real(), dir.path(), options);
            let Opened { engine, store } = open_store(store, dir.path()).unwrap();
            if round == 0 {
                create(&engine);
            }
            for _ in 0..5 {
                for _ in 0..40 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let (k, n) = ((random >> 33) as i64 % 100, random >> 50);
                    let v = if n % 4 == 0 { None } else { Some(n.to_string()) };
                    write(&engine, k, v.as_deref()).unwrap();
                    match v {
                        Some(v) => drop(expected.insert(k, v)),
                        None => drop(expected.remove(&k)),
                    }
                }
                flush(&engine).unwrap();
            }
            engine.compact(&engine.table("public", "t").unwrap()).unwrap();
            assert_eq!(rows(&engine).unwrap(), expected, "every {every}, round {round}");
            assert!(every > 50 || store.stats().retries > 0);
            assert_eq!(store.stats().failures, 0);
            if round % 2 == 0 {
                engine.close().unwrap();
            }
            drop(engine);
            if round == 2 {
                lose_files(dir.path());
            }
        }
        // All that is there is what the tables are made of.
        bucket.fails_every.store(0, SeqCst);
        let Opened { engine, .. } = open(&bucket, dir.path()).unwrap();
        engine.publish().unwrap();
        let stats = engine.stats();
        let files = bucket.names().iter().filter(|name| name.ends_with(".parquet")).count() as u64;
        assert_eq!(files, stats.sstables, "{:?}", bucket.names());
    }
}

#[test]
fn while_a_store_is_down_nothing_is_flushed_and_nothing_lost() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let Opened { engine, store } = open_with(&bucket, dir.path(), 1).unwrap();
    create(&engine);
    put(&engine, 1, "v1");
    flush(&engine).unwrap();
    store.depot().tend(false);
    put(&engine, 2, "v2");
    bucket.is_down.store(true, SeqCst);
    let said = flush(&engine).unwrap_err();
    assert_eq!(said.kind(), ErrorKind::Unavailable);
    assert!(
        said.to_string().contains("store memory does not take tables/")
            && said.to_string().contains("tried for"),
        "{said}"
    );
    // What is in memory is read and written; what only the store has cannot be read, and is not taken to be absent.
    put(&engine, 3, "v3");
    let said = rows(&engine).unwrap_err();
    assert!(said.to_string().contains("store memory does not give tables/"), "{said}");
    assert!(store.stats().failing_micros > 0 && store.stats().failures > 0);
    bucket.is_down.store(false, SeqCst);
    flush(&engine).unwrap();
    assert_eq!(rows(&engine).unwrap().len(), 3);
    assert_eq!(store.stats().failing_micros, 0);
    let files = bucket.names().iter().filter(|name| name.ends_with(".parquet")).count() as u64;
    engine.publish().unwrap();
    assert_eq!(files, engine.stats().sstables, "{:?}", bucket.names());
    // Down when it is stopped: the log has what no file has.
    put(&engine, 4, "v4");
    bucket.is_down.store(true, SeqCst);
    assert!(engine.close().is_err());
    drop(engine);
    assert!(open(&bucket, dir.path()).is_err());
    bucket.is_down.store(false, SeqCst);
    let engine = open(&bucket, dir.path()).unwrap().engine;
    assert_eq!(rows(&engine).unwrap().len(), 4);
}

#[test]
fn a_store_that_refuses_who_asks_fails_from_then_on() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let Opened { engine, store } = open_with(&bucket, dir.path(), 1).unwrap();
    create(&engine);
    put(&engine, 1, "v1");
    flush(&engine).unwrap();
    store.depot().tend(false);
    let before = bucket.requests();
    bucket.refuses.store(true, SeqCst);
    assert_eq!(rows(&engine).unwrap_err().kind(), ErrorKind::Forbidden);
    assert_eq!(bucket.requests() - before, 1, "it is not tried again");
    assert!(store.stats().failing_micros > 0);
    assert_eq!(store.stats().failures, 1);
    bucket.refuses.store(false, SeqCst);
    assert_eq!(rows(&engine).unwrap().len(), 1);
    assert_eq!(store.stats().failing_micros, 0);
}

/// Looks, and then puts: as stores do that take no heed of who else puts.
struct Racing {
    memory: Memory,
    /// It takes heed where an object is short.
    is_long_only: bool,
}

impl Bucket for Racing {
    fn url(&self) -> &str {
        "racing"
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        self.memory.list(prefix)
    }

    fn get(&self, name: &str, sink: &mut oribi_store::Sink<'_>) -> Result<String> {
        self.memory.get(name, sink)
    }

    fn tag(&self, name: &str) -> Result<String> {
        self.memory.tag(name)
    }

    fn put(
        &self,
        name: &str,
        body: oribi_store::Body<'_>,
        expected: oribi_store::Expected<'_>,
    ) -> Result<String> {
        use oribi_store::{Body, Expected};
        if self.is_long_only && matches!(body, Body::Bytes(_)) {
            return self.memory.put(name, body, expected);
        }
        let there = self.memory.tag(name).ok();
        let is_expected = match expected {
            Expected::Nothing => there.is_none(),
            Expected::Tag(tag) => there.as_deref() == Some(tag),
        };
        if !is_expected {
            return Err(oribi_types::Error::conflict(name));
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        loop {
            let now = self.memory.tag(name).ok();
            let expected = now.as_deref().map_or(Expected::Nothing, Expected::Tag);
            match self.memory.put(name, body, expected) {
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                put => return put,
            }
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.memory.remove(name)
    }
}

#[test]
fn a_store_that_lets_several_win_is_named() {
    let memory = Arc::<Memory>::default();
    examine(memory.clone(), 20).unwrap();
    assert!(memory.names().is_empty(), "nothing is left");
    let dir = tempfile::tempdir().unwrap();
    examine(Arc::new(FolderBucket::open(dir.path()).unwrap()), 20).unwrap();
    for (is_long_only, why) in [(false, "of 8 have won"), (true, "of a long object while it comes")] {
        let racing = Arc::new(Racing { memory: Memory::default(), is_long_only });
        let error = examine(racing.clone(), 20).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let said = error.to_string();
        assert!(said.contains("store racing cannot be used: ") && said.contains(why), "{said}");
        assert!(racing.memory.names().is_empty());
    }
}
