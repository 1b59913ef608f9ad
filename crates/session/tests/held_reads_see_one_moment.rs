//! A command that names several keys is answered as of one moment, whatever is written and flushed between its keys.
#![allow(clippy::unwrap_used)]

use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_session::kv::{Action, BUCKET, Change, Expiry, Got, KeyValue, KvLimits, Round, StoreMode};

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Change<'a> {
    let mode = StoreMode::Set;
    let action = Action::Store { mode, value, flags: 0, expiry: Expiry::Never, or_stale: false };
    Change { key: key.into(), cas: None, action }
}

fn value(round: &mut Round<'_>, key: &[u8]) -> Option<Vec<u8>> {
    match round.get(key, |document| document.value.to_vec()).unwrap() {
        Got::Found(value) => Some(value),
        Got::Absent => None,
        Got::Pending => panic!("this round may block"),
    }
}

#[test]
fn of_what_one_write_changed_they_see_all_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = EngineOptions { background: false, ..EngineOptions::default() };
    let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
    let kv = KeyValue::new(engine.clone(), KvLimits::default());
    let bucket = engine.table(BUCKET.0, BUCKET.1).unwrap();
    for flushed in [false, true] {
        kv.round(true).apply(&[set(b"a", b"old"), set(b"b", b"old")]).unwrap();
        let mut round = kv.round(true);
        assert!(round.hold());
        assert_eq!(value(&mut round, b"a").as_deref(), Some(&b"old"[..]));
        kv.round(true).apply(&[set(b"a", b"new"), set(b"b", b"new")]).unwrap();
        if flushed {
            engine.flush(&bucket).unwrap();
        }
        assert_eq!(value(&mut round, b"b").as_deref(), Some(&b"old"[..]), "as of the moment of a");
        // What the round itself writes is seen by it at once.
        round.apply(&[set(b"c", b"own")]).unwrap();
        assert_eq!(value(&mut round, b"c").as_deref(), Some(&b"own"[..]));
        assert_eq!(value(&mut round, b"b").as_deref(), Some(&b"new"[..]));
    }
}
