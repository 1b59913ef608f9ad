//! A document that is locked is changed by nobody but the holder of the lock, whichever door asks.
#![allow(clippy::unwrap_used)]

use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_session::kv::{
    Action, Change, Expiry, Got, KeyValue, KvLimits, LOCKED_CAS, Locks, Outcome, Status, StoreMode,
};
use std::sync::Arc;

const SECOND: u64 = 1_000_000;

struct Subject {
    engine: Arc<Engine>,
    /// Two doors.
    doors: [Arc<KeyValue>; 2],
    _dir: tempfile::TempDir,
}

impl Subject {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Env::real(), dir.path(), EngineOptions::default()).unwrap();
        let locks = Arc::<Locks>::default();
        let door = || KeyValue::sharing(locks.clone(), engine.clone(), KvLimits::default());
        Subject { doors: [door(), door()], engine, _dir: dir }
    }

    fn lock(&self) -> Action<'static> {
        Action::Lock { until_micros: self.doors[0].now_micros() + 60 * SECOND }
    }

    fn cas(&self) -> u64 {
        match self.doors[1].round(true).get(b"k", |document| document.cas).unwrap() {
            Got::Found(cas) => cas,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.engine.close().unwrap();
    }
}

fn change(cas: Option<u64>, action: Action<'_>) -> Change<'_> {
    Change { key: b"k".into(), cas, action }
}

fn store(value: &[u8]) -> Action<'_> {
    Action::Store { mode: StoreMode::Set, value, flags: 0, expiry: Expiry::Never, or_stale: false }
}

fn apply(door: &KeyValue, changes: &[Change<'_>]) -> Vec<Outcome> {
    door.round(true).apply(changes).unwrap()
}

fn one(door: &KeyValue, cas: Option<u64>, action: Action<'_>) -> Outcome {
    apply(door, &[change(cas, action)]).remove(0)
}

#[test]
fn nobody_else_changes_what_is_locked() {
    let subject = Subject::new();
    let [a, b] = &subject.doors;
    assert!(matches!(one(a, None, subject.lock()).status, Status::NotFound));
    let stored = one(a, None, store(b"1")).cas;
    let locked = one(a, None, subject.lock());
    assert_eq!(locked.fetched.unwrap().value, b"1");
    assert_eq!(subject.cas(), LOCKED_CAS);
    for cas in [None, Some(stored), Some(LOCKED_CAS), Some(locked.cas + 1)] {
        for action in [
            store(b"2"),
            Action::Delete,
            Action::Touch { expiry: Expiry::Never },
            subject.lock(),
            Action::Unlock,
        ] {
            let outcome = one(b, cas, action.clone());
            assert!(outcome.is_locked && matches!(outcome.status, Status::Refused(_)), "{cas:?} {action:?}");
        }
    }
    assert!(matches!(one(b, Some(locked.cas), Action::Unlock).status, Status::Done));
    assert_eq!(subject.cas(), stored);
    assert!(matches!(one(b, Some(locked.cas), Action::Unlock).status, Status::NotLocked));
    assert!(matches!(one(b, Some(locked.cas), store(b"2")).status, Status::Exists));
    assert!(matches!(one(b, None, store(b"2")).status, Status::Done));
}

#[test]
fn the_change_of_the_holder_ends_the_lock() {
    let subject = Subject::new();
    let [a, b] = &subject.doors;
    one(a, None, store(b"1"));
    let cas = one(a, None, subject.lock()).cas;
    // In one write with what comes before and after.
    let changes = [change(None, store(b"2")), change(Some(cas), store(b"3")), change(None, store(b"4"))];
    let outcomes = apply(a, &changes);
    assert!(outcomes[0].is_locked);
    assert!(outcomes[1..].iter().all(|outcome| matches!(outcome.status, Status::Done)));
    assert_eq!(subject.cas(), outcomes[2].cas);
    // And a lock that is taken in a write holds for the rest of it.
    let outcomes = apply(b, &[change(None, subject.lock()), change(None, store(b"5"))]);
    assert!(matches!(outcomes[0].status, Status::Done) && outcomes[1].is_locked);
}

#[test]
fn what_was_not_written_leaves_the_lock() {
    let subject = Subject::new();
    let [a, b] = &subject.doors;
    one(a, None, store(b"1"));
    let cas = one(a, None, subject.lock()).cas;
    let too_large = vec![0; KvLimits::default().value_bytes_max + 1];
    assert!(matches!(one(a, Some(cas), store(&too_large)).status, Status::TooLarge));
    assert!(one(b, None, store(b"2")).is_locked);
    assert!(matches!(one(a, Some(cas), Action::Delete).status, Status::Done));
    assert!(matches!(one(b, None, store(b"2")).status, Status::Done));
}

#[test]
fn a_store_that_keeps_the_expiry_keeps_it() {
    let subject = Subject::new();
    let door = &subject.doors[0];
    let at = door.now_micros() as i64 + 3_600_000_000;
    let keeping =
        Action::Store { mode: StoreMode::Set, value: b"2", flags: 0, expiry: Expiry::Keep, or_stale: false };
    let expires_at = || door.round(true).get(b"k", |document| document.expires_at).unwrap();
    one(door, None, keeping.clone());
    assert_eq!(expires_at(), Got::Found(None));
    one(door, None, Action::Touch { expiry: Expiry::At(at) });
    one(door, None, keeping);
    assert_eq!(expires_at(), Got::Found(Some(at)));
    one(door, None, store(b"3"));
    assert_eq!(expires_at(), Got::Found(None));
}
