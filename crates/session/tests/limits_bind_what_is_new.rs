//! Limits of keys, values and expiry times: what clients may store, whatever is there already.
#![allow(clippy::unwrap_used)]

use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_session::kv::{Action, Change, Expiry, KeyValue, KvLimits, Outcome, Status, StoreMode};
use std::sync::Arc;
use std::time::Duration;

fn engine() -> (Arc<Engine>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (Engine::open(Env::real(), dir.path(), EngineOptions::default()).unwrap(), dir)
}

fn change(kv: &KeyValue, action: Action<'_>) -> Outcome {
    kv.round(true).apply(&[Change { key: b"k".into(), cas: None, action }]).unwrap().remove(0)
}

#[test]
fn a_value_beyond_the_limit_that_is_there_is_touched_and_fetched_but_not_extended() {
    let (engine, _dir) = engine();
    // As SQL would, which knows no limit of values.
    let value = [b'x'; 100];
    let generous = KeyValue::new(engine.clone(), KvLimits::default());
    let store = |value| Action::Store {
        mode: StoreMode::Set,
        value,
        flags: 0,
        expiry: Expiry::Never,
        or_stale: false,
    };
    assert!(matches!(change(&generous, store(&value)).status, Status::Done));
    let kv = KeyValue::new(engine.clone(), KvLimits { value_bytes_max: 10, ..KvLimits::default() });
    let soon = kv.limits().expiry(100, kv.now_micros());
    let fetch = Action::Fetch { expiry: Some(soon), vivify: None, refresh_before: None };
    assert_eq!(change(&kv, fetch).fetched.unwrap().value, value);
    for action in [Action::Touch { expiry: soon }, Action::MarkStale { expiry: None }] {
        assert!(matches!(change(&kv, action).status, Status::Done));
    }
    let extend = Action::Extend { front: true, value: b"y", vivify: None };
    assert!(matches!(change(&kv, extend).status, Status::TooLarge));
    assert!(matches!(change(&kv, store(&value)).status, Status::TooLarge));
    engine.close().unwrap();
}

#[test]
fn an_expiry_is_relative_up_to_its_limit_and_never_in_a_year_of_five_digits() {
    let now = 1_700_000_000_000_000;
    let limits = KvLimits { relative_seconds_max: 100, ..KvLimits::default() };
    let at = |seconds: i64| Expiry::At(seconds * 1_000_000);
    for (seconds, expiry) in [
        (0, Expiry::Never),
        (-1, Expiry::At(0)),
        (100, at(1_700_000_100)),
        (101, at(101)),
        (253_402_300_799, at(253_402_300_799)),
        (253_402_300_800, Expiry::Never),
        (i64::MAX, Expiry::Never),
    ] {
        assert_eq!(limits.expiry(seconds, now), expiry, "{seconds}");
    }
}

#[test]
fn limits_that_a_statement_cannot_hold_are_refused_by_name() {
    let limits = KvLimits::default();
    limits.validate(2 << 20).unwrap();
    let error = limits.validate(1 << 20).unwrap_err();
    assert!(error.message().contains("statement_bytes_max is 1048576"), "{error}");
    let value_bytes_max = KvLimits::value_bytes_most(limits.key_bytes_max, 1 << 20);
    KvLimits { value_bytes_max, ..limits }.validate(1 << 20).unwrap();
    assert!(KvLimits { relative_seconds_max: 0, ..limits }.validate(2 << 20).is_err());
}

#[test]
fn the_longest_value_fits_the_smallest_statement() {
    let dir = tempfile::tempdir().unwrap();
    let options = EngineOptions { statement_bytes_max: 4096, ..EngineOptions::default() };
    let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
    let value_bytes_max = KvLimits::value_bytes_most(250, 4096);
    let kv = KeyValue::new(engine.clone(), KvLimits { value_bytes_max, ..KvLimits::default() });
    // Zeros in a key are escaped.
    let (key, value) = ([0; 250], vec![b'x'; value_bytes_max]);
    let action = Action::Store {
        mode: StoreMode::Set,
        value: &value,
        flags: 0,
        expiry: Expiry::Never,
        or_stale: false,
    };
    let outcome =
        kv.round(true).apply(&[Change { key: (&key[..]).into(), cas: None, action }]).unwrap().remove(0);
    assert!(matches!(outcome.status, Status::Done), "{outcome:?}");
    engine.close().unwrap();
}

/// Enough turns for each task that was told to end to do so.
async fn turns() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_scheduled_flush_leaves_nothing_of_those_it_replaces() {
    let (engine, _dir) = engine();
    let kv = KeyValue::new(engine.clone(), KvLimits::default());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for _ in 0..100 {
        kv.flush_after(Duration::from_secs(3600));
    }
    turns().await;
    assert_eq!(tasks(), 1);
    kv.flush().unwrap();
    turns().await;
    assert_eq!(tasks(), 0);
    engine.close().unwrap();
}
