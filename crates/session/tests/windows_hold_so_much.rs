//! What one window of operations has in hand is bounded, wherever its rows are.
#![allow(clippy::unwrap_used)]

use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_session::kv::{
    Action, Answer, Change, Expiry, Got, Key, KeyValue, KvLimits, Op, Ran, Status, StoreMode,
};
use std::sync::Arc;
use tempfile::TempDir;

const VALUE_BYTES: usize = 100 << 10;
/// A window's own limit, and one value.
const WINDOW_BYTES_MAX: usize = (256 << 10) + VALUE_BYTES;

fn open(folder: &TempDir) -> Arc<KeyValue> {
    let options = EngineOptions { background: false, ..EngineOptions::with_memory(64 << 20) };
    let engine = Engine::open(Env::real(), folder.path(), options).unwrap();
    KeyValue::new(engine, KvLimits::default())
}

fn keys() -> Vec<Vec<u8>> {
    (0..40).map(|i| format!("k{i}").into_bytes()).collect()
}

/// Documents that only files have.
fn cold() -> (Arc<KeyValue>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let kv = open(&folder);
    for key in &keys() {
        set(&kv, key, &[key[1]; VALUE_BYTES]);
    }
    kv.engine().flush(&kv.engine().table("default", "kv").unwrap()).unwrap();
    kv.engine().close().unwrap();
    drop(kv);
    (open(&folder), folder)
}

fn set(kv: &KeyValue, key: &[u8], value: &[u8]) {
    let outcome = kv.round(true).apply(&[change(key, store(value))]).unwrap().remove(0);
    assert!(matches!(outcome.status, Status::Done));
}

fn store(value: &[u8]) -> Action<'_> {
    Action::Store { mode: StoreMode::Set, value, flags: 0, expiry: Expiry::Never, or_stale: false }
}

fn change<'a>(key: &'a [u8], action: Action<'a>) -> Change<'a> {
    Change { key: key.into(), cas: None, action }
}

fn fetch(key: &[u8]) -> Op<'_> {
    let expiry = Some(Expiry::At(i64::MAX / 2));
    Op::Change(change(key, Action::Fetch { expiry, vivify: None, refresh_before: None }))
}

/// Runs one window; how far it came, and the bytes of the values that it answered.
fn run(kv: &KeyValue, ops: &[Op<'_>], answer_bytes_max: usize) -> (Ran, usize) {
    let mut round = kv.round(true);
    round.answer_at_most(answer_bytes_max);
    let mut bytes = 0;
    let ran = round.run(ops, &mut |_, answer| {
        bytes += match answer {
            Answer::Found(document) => document.value.len(),
            Answer::Changed(outcome) => outcome.fetched.as_ref().map_or(0, |fetched| fetched.value.len()),
            Answer::Absent => 0,
            Answer::Refused(error) => panic!("{error}"),
        };
    });
    (ran, bytes)
}

/// Runs all of `ops`, window by window.
fn run_all(kv: &KeyValue, ops: &[Op<'_>]) {
    let mut done = 0;
    while done < ops.len() {
        let (ran, bytes) = run(kv, &ops[done..], usize::MAX);
        assert!(ran.ops > 0 && bytes <= WINDOW_BYTES_MAX, "{ran:?}: {bytes} bytes");
        done += ran.ops;
    }
}

#[test]
fn rows_of_files_count_as_rows_of_memory_do() {
    let (kv, _folder) = cold();
    let keys = keys();
    let gets: Vec<Op<'_>> = keys.iter().map(|key| Op::Get(key[..].into())).collect();
    run_all(&kv, &gets);
    // Get and touch is given whole documents too, and writes them again.
    let fetches: Vec<Op<'_>> = keys.iter().map(|key| fetch(key)).collect();
    run_all(&kv, &fetches);
    kv.engine().close().unwrap();
}

#[test]
fn where_answers_must_be_short_a_window_gives_few_of_them() {
    let (kv, _folder) = cold();
    let keys: Vec<Vec<u8>> = (0..100).map(|i| format!("s{i}").into_bytes()).collect();
    keys.iter().for_each(|key| set(&kv, key, &[7; 1000]));
    let gets: Vec<Op<'_>> = keys.iter().map(|key| Op::Get(key[..].into())).collect();
    assert_eq!(run(&kv, &gets, usize::MAX).1, 100 * 1000);
    let (ran, bytes) = run(&kv, &gets, 16 << 10);
    assert!((15_000..=16 << 10).contains(&bytes), "{ran:?} {bytes}");
    assert_eq!((ran.ops, ran.long_bytes), (bytes / 1000, 0));
    kv.engine().close().unwrap();
}

#[test]
fn a_long_document_in_a_file_is_not_read_before_there_is_room_for_its_answer() {
    const LONG_BYTES: usize = 900 << 10;
    let (kv, folder) = cold();
    // They do not compress.
    let mut state = 1u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let long: Vec<u8> = (0..LONG_BYTES).map(|_| byte()).collect();
    set(&kv, b"long", &long);
    kv.engine().flush(&kv.engine().table("default", "kv").unwrap()).unwrap();
    kv.engine().close().unwrap();
    drop(kv);
    let kv = open(&folder);
    let read = || kv.engine().stats().point_reads.page_bytes;
    let (get, short) = (Op::Get(b"long"[..].into()), Op::Get(b"k1"[..].into()));
    let (ran, bytes) = run(&kv, &[get], LONG_BYTES / 2);
    assert!(ran.ops == 0 && bytes == 0 && (LONG_BYTES..2 * LONG_BYTES).contains(&ran.long_bytes), "{ran:?}");
    assert!(read() < LONG_BYTES as u64 / 2, "{} bytes were read", read());
    // By itself, it is left to a window.
    let mut round = kv.round(true);
    round.answer_at_most(LONG_BYTES / 2);
    assert_eq!(round.get(b"long", |_| ()).unwrap(), Got::Pending);
    assert!(read() < LONG_BYTES as u64 / 2);
    // What comes before it is answered.
    let get = || Op::Get(b"long"[..].into());
    let (before, bytes) = run(&kv, &[short, get()], LONG_BYTES / 2);
    assert_eq!((before.ops, before.long_bytes, bytes), (1, ran.long_bytes, VALUE_BYTES));
    let (ran, bytes) = run(&kv, &[get()], ran.long_bytes);
    assert_eq!((ran.ops, ran.long_bytes, bytes), (1, 0, LONG_BYTES));
    assert!(read() > LONG_BYTES as u64);
    kv.engine().close().unwrap();
}

#[test]
fn what_is_too_long_for_the_round_is_not_answered_and_nothing_behind_it_is_done() {
    let (kv, _folder) = cold();
    set(&kv, b"short", b"s");
    let is_there = |key: &[u8]| kv.round(true).get(key, |_| ()).unwrap() == Got::Found(());
    let expires = |key: &[u8]| kv.round(true).get(key, |document| document.expires_at.is_some()).unwrap();
    let room = VALUE_BYTES - 1;
    // From files first, from memory then.
    for _ in 0..2 {
        let get = |key| Op::Get(Key::from(key));
        let ops = [get(&b"short"[..]), get(b"k1"), Op::Change(change(b"w", store(b"w")))];
        let long = |ops| Ran { ops, stop: None, long_bytes: VALUE_BYTES };
        assert_eq!(run(&kv, &ops, room), (long(1), 1));
        assert_eq!(run(&kv, &ops[1..], room), (long(0), 0));
        assert!(!is_there(b"w"));
        let (ran, bytes) = run(&kv, &ops[1..2], VALUE_BYTES);
        assert_eq!((ran.ops, bytes), (1, VALUE_BYTES));

        let (ran, bytes) = run(&kv, &[fetch(b"k2")], room);
        assert!(ran.ops == 0 && ran.long_bytes >= VALUE_BYTES && bytes == 0, "{ran:?}");
        assert_eq!(expires(b"k2"), Got::Found(false));
        let (ran, bytes) = run(&kv, &[fetch(b"k3")], ran.long_bytes);
        assert_eq!((ran.ops, bytes), (1, VALUE_BYTES));
        assert_eq!(expires(b"k3"), Got::Found(true));
    }
    kv.engine().close().unwrap();
}
