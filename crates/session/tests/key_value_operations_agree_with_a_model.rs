//! Random changes and reads of a few documents, in groups of one write each, with flushes in between, against a plain
//! map that follows the protocol's rules.
#![allow(clippy::unwrap_used)]

use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_session::kv::{Action, Change, Expiry, Got, KeyValue, KvLimits, Outcome, Status, StoreMode};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

const VALUE_BYTES_MAX: usize = 40;

/// A document as the model knows it. The engine's `cas` values are its own; the model only knows which one is current.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    value: Vec<u8>,
    flags: u32,
    expires_at: Option<i64>,
    cas: u64,
    stale: bool,
    promised: bool,
}

#[derive(Clone, Debug)]
enum Cas {
    None,
    Current,
    Older,
}

#[derive(Clone, Debug)]
enum Op {
    Store { mode: StoreMode, value: Vec<u8>, flags: u32, expiry: Expiry, or_stale: bool },
    Extend { front: bool, value: Vec<u8>, vivify: Option<Expiry> },
    Count { down: bool, delta: u64, initial: Option<(u64, Expiry)>, expiry: Option<Expiry> },
    Touch { expiry: Expiry },
    Fetch { expiry: Option<Expiry>, vivify: Option<Expiry>, refresh_before: Option<Expiry> },
    MarkStale { expiry: Option<Expiry> },
    Delete,
}

#[derive(Clone, Debug)]
enum Move {
    Write(Vec<(u8, Cas, Op)>),
    Read(u8),
    Flush,
    Compact,
}

/// Never, long ago, or so far ahead that no test sees it.
fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![3 => Just(Expiry::Never), 1 => Just(Expiry::At(1)), 2 => (1..5_i64).prop_map(|n| Expiry::At(n << 55))]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![any::<u64>(), 0..20_u64].prop_map(|n| n.to_string().into_bytes());
    prop_oneof![number, vec(any::<u8>(), 0..30), Just(b" 7 ".to_vec()), Just(vec![b'x'; VALUE_BYTES_MAX])]
}

fn op() -> impl Strategy<Value = Op> {
    let mode = prop_oneof![Just(StoreMode::Set), Just(StoreMode::Add), Just(StoreMode::Replace)];
    let maybe = || proptest::option::of(expiry());
    prop_oneof![
        4 => (mode, value(), any::<u32>(), expiry(), any::<bool>())
            .prop_map(|(mode, value, flags, expiry, or_stale)| Op::Store { mode, value, flags, expiry, or_stale }),
        2 => (any::<bool>(), value(), maybe())
            .prop_map(|(front, value, vivify)| Op::Extend { front, value, vivify }),
        2 => (any::<bool>(), any::<u64>(), proptest::option::of((any::<u64>(), expiry())), maybe())
            .prop_map(|(down, delta, initial, expiry)| Op::Count { down, delta, initial, expiry }),
        1 => expiry().prop_map(|expiry| Op::Touch { expiry }),
        2 => (maybe(), maybe(), maybe())
            .prop_map(|(expiry, vivify, refresh_before)| Op::Fetch { expiry, vivify, refresh_before }),
        1 => maybe().prop_map(|expiry| Op::MarkStale { expiry }),
        1 => Just(Op::Delete),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let cas = prop_oneof![3 => Just(Cas::None), 2 => Just(Cas::Current), 1 => Just(Cas::Older)];
    let write = vec((0_u8..4, cas, op()), 1..5).prop_map(Move::Write);
    vec(
        prop_oneof![8 => write, 4 => (0_u8..4).prop_map(Move::Read), 1 => Just(Move::Flush), 1 => Just(Move::Compact)],
        1..40,
    )
}

fn action(op: &Op) -> Action<'_> {
    match *op {
        Op::Store { mode, ref value, flags, expiry, or_stale } => {
            Action::Store { mode, value, flags, expiry, or_stale }
        }
        Op::Extend { front, ref value, vivify } => Action::Extend { front, value, vivify },
        Op::Count { down, delta, initial, expiry } => Action::Count { down, delta, initial, expiry },
        Op::Touch { expiry } => Action::Touch { expiry },
        Op::Fetch { expiry, vivify, refresh_before } => Action::Fetch { expiry, vivify, refresh_before },
        Op::MarkStale { expiry } => Action::MarkStale { expiry },
        Op::Delete => Action::Delete,
    }
}

#[derive(Default)]
struct Model {
    documents: HashMap<u8, Known>,
}

/// The status by its name, since errors cannot be compared.
fn name(status: &Status) -> String {
    format!("{status:?}")
}

impl Model {
    /// Puts a document; what would have expired is gone.
    fn put(&mut self, key: u8, document: Known) -> String {
        if document.value.len() > VALUE_BYTES_MAX {
            return "TooLarge".into();
        }
        if document.expires_at.is_some_and(|at| at <= 1) {
            self.documents.remove(&key);
        } else {
            self.documents.insert(key, document);
        }
        "Done".into()
    }

    fn apply(&mut self, key: u8, cas: Option<u64>, op: &Op, number: &mut u64, won: &mut bool) -> String {
        let current = self.documents.get(&key).cloned();
        let differs = |d: &Known| cas.is_some_and(|cas| cas != d.cas);
        let at = |expiry: Expiry| if let Expiry::At(at) = expiry { Some(at) } else { None };
        let fresh = |value: Vec<u8>, flags, expiry| Known {
            value,
            flags,
            expires_at: at(expiry),
            cas: 0,
            stale: false,
            promised: false,
        };
        let answer = |text: &str| text.to_owned();
        match (op, current) {
            (Op::Store { mode: StoreMode::Add, .. }, Some(_)) => answer("NotStored"),
            (Op::Store { value, flags, or_stale: true, .. }, Some(d))
                if cas.is_some_and(|cas| cas < d.cas) =>
            {
                self.put(key, Known { value: value.clone(), flags: *flags, stale: true, ..d })
            }
            (Op::Store { .. }, Some(d)) if differs(&d) => answer("Exists"),
            (Op::Store { mode: StoreMode::Set | StoreMode::Replace, .. }, None) if cas.is_some() => {
                answer("NotFound")
            }
            (Op::Store { mode: StoreMode::Replace, .. }, None) => answer("NotStored"),
            (Op::Store { value, flags, expiry, .. }, _) => {
                self.put(key, fresh(value.clone(), *flags, *expiry))
            }
            (Op::Extend { value, vivify: Some(expiry), .. }, None) if cas.is_none() => {
                self.put(key, fresh(value.clone(), 0, *expiry))
            }
            (Op::Extend { .. }, None) => answer("NotStored"),
            (Op::Extend { .. }, Some(d)) if differs(&d) => answer("Exists"),
            (Op::Extend { front, value, .. }, Some(d)) => {
                let joined =
                    if *front { [value.as_slice(), &d.value] } else { [d.value.as_slice(), value] }.concat();
                self.put(key, Known { value: joined, stale: false, promised: false, ..d })
            }
            (Op::Count { initial: Some((initial, expiry)), .. }, None) => {
                (*number, *won) = (*initial, true);
                self.put(key, fresh(initial.to_string().into_bytes(), 0, *expiry))
            }
            (Op::Count { .. } | Op::Touch { .. } | Op::MarkStale { .. } | Op::Delete, None) => {
                answer("NotFound")
            }
            (Op::Count { .. } | Op::MarkStale { .. } | Op::Delete, Some(d)) if differs(&d) => {
                answer("Exists")
            }
            (Op::Count { down, delta, expiry, .. }, Some(d)) => {
                let text = String::from_utf8(d.value.clone()).unwrap_or_default();
                // memcached reads a number up to the first space behind it.
                let first = text.split_ascii_whitespace().next().unwrap_or_default();
                let Ok(old) = first.parse::<u64>() else { return answer("NotNumeric") };
                *number = if *down { old.saturating_sub(*delta) } else { old.wrapping_add(*delta) };
                let expires_at = expiry.map_or(d.expires_at, at);
                self.put(key, Known { value: number.to_string().into_bytes(), expires_at, ..d })
            }
            (Op::Touch { expiry }, Some(d)) => self.put(key, Known { expires_at: at(*expiry), ..d }),
            (Op::Fetch { vivify: None, .. }, None) => answer("NotFound"),
            (Op::Fetch { vivify: Some(expiry), .. }, None) => {
                *won = true;
                self.put(key, Known { promised: true, ..fresh(vec![], 0, *expiry) })
            }
            (Op::Fetch { expiry, refresh_before, .. }, Some(d)) => {
                let expires_at = expiry.map_or(d.expires_at, at);
                let due = matches!((refresh_before, expires_at), (Some(Expiry::At(limit)), Some(at)) if at < *limit);
                *won = !d.promised && (d.stale || due);
                self.put(key, Known { expires_at, promised: d.promised || *won, ..d })
            }
            (Op::MarkStale { expiry }, Some(d)) => {
                let expires_at = expiry.map_or(d.expires_at, at);
                self.put(key, Known { expires_at, stale: true, promised: false, ..d })
            }
            (Op::Delete, Some(_)) => {
                self.documents.remove(&key);
                answer("Done")
            }
        }
    }
}

struct Subject {
    kv: Arc<KeyValue>,
    engine: Arc<Engine>,
    _dir: tempfile::TempDir,
}

impl Subject {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Env::real(), dir.path(), EngineOptions::default()).unwrap();
        let limits = KvLimits { value_bytes_max: VALUE_BYTES_MAX, ..KvLimits::default() };
        Subject { kv: KeyValue::new(engine.clone(), limits), engine, _dir: dir }
    }

    /// As a door does: without blocking if possible.
    fn apply(&self, changes: &[Change<'_>]) -> Vec<Outcome> {
        let outcomes = self.kv.round(false).apply(changes);
        outcomes.unwrap_or_else(|_| self.kv.round(true).apply(changes).expect("a blocking round never waits"))
    }

    fn read(&self, key: u8) -> Option<Known> {
        let name = [b'k', key];
        let read = |may_block| {
            self.kv.round(may_block).get(&name, |d| Known {
                value: d.value.to_vec(),
                flags: d.flags,
                expires_at: d.expires_at,
                cas: d.cas,
                stale: d.stale,
                promised: d.promised,
            })
        };
        match read(false).unwrap() {
            Got::Pending => match read(true).unwrap() {
                Got::Found(known) => Some(known),
                Got::Absent => None,
                Got::Pending => panic!("a blocking round never waits"),
            },
            Got::Found(known) => Some(known),
            Got::Absent => None,
        }
    }
}

fn run(moves: &[Move]) {
    let subject = Subject::new();
    let table = subject.engine.table("default", "kv").unwrap();
    let mut model = Model::default();
    for step in moves {
        match step {
            Move::Flush => subject.engine.flush(&table).unwrap(),
            Move::Compact => subject.engine.compact(&table).unwrap(),
            Move::Read(key) => assert_eq!(subject.read(*key), model.documents.get(key).cloned()),
            Move::Write(ops) => write(&subject, &mut model, ops),
        }
    }
    for key in 0..4 {
        assert_eq!(subject.read(key), model.documents.get(&key).cloned());
    }
    subject.engine.close().unwrap();
}

fn write(subject: &Subject, model: &mut Model, ops: &[(u8, Cas, Op)]) {
    let keys: Vec<[u8; 2]> = ops.iter().map(|(key, ..)| [b'k', *key]).collect();
    let cas_of = |i: usize, model: &Model| {
        let (key, cas, _) = &ops[i];
        // What one write stores has one cas: a comparison must not follow in the same write.
        let first = ops[..i].iter().all(|(earlier, ..)| earlier != key);
        let current = model.documents.get(key).map_or(77, |d| d.cas);
        match cas {
            Cas::None => None,
            _ if !first => None,
            Cas::Current => Some(current),
            Cas::Older => Some(current - 1),
        }
    };
    let changes: Vec<Change<'_>> = (0..ops.len())
        .map(|i| Change { key: (&keys[i]).into(), cas: cas_of(i, model), action: action(&ops[i].2) })
        .collect();
    let outcomes = subject.apply(&changes);
    assert_eq!(outcomes.len(), ops.len());
    for ((i, outcome), change) in outcomes.iter().enumerate().zip(&changes) {
        let (key, _, op) = &ops[i];
        let (mut number, mut won) = (0, false);
        let before = model.documents.get(key).cloned();
        let expected = model.apply(*key, change.cas, op, &mut number, &mut won);
        assert_eq!(name(&outcome.status), expected, "{op:?} on {before:?}");
        if expected == "Done" {
            assert_eq!(outcome.number, number, "{op:?}");
            if let (Op::Fetch { .. }, Some(fetched)) = (op, &outcome.fetched) {
                assert_eq!(fetched.won, won, "{op:?} on {before:?}");
                let found = before.clone().map_or(vec![], |d| d.value);
                assert_eq!(fetched.value, found);
            }
        }
        // The model learns the new cas of what was written.
        if let Some(document) = model.documents.get_mut(key).filter(|_| outcome.cas != 0) {
            document.cas = outcome.cas;
        }
    }
}

proptest! {
    // Each case opens and closes an engine.
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_outcome_and_every_read(moves in moves()) {
        run(&moves);
    }
}
