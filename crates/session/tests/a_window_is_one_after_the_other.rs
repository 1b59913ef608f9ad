//! Operations that are executed together give what they give one by one.
#![allow(clippy::unwrap_used)]

use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_session::kv::{Action, Answer, Change, Expiry, KeyValue, KvLimits, Op, Status, StoreMode};
use proptest::prelude::*;
use std::sync::Arc;
use tempfile::TempDir;

#[derive(Clone, Debug)]
enum Request {
    Get,
    Set(u8),
    Add(u8),
    Append(u8),
    Delete,
    Count,
    Fetch,
}

struct Subject {
    kv: Arc<KeyValue>,
    engine: Arc<Engine>,
    _folder: TempDir,
}

impl Subject {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { background: false, ..EngineOptions::with_memory(16 << 20) };
        let engine = Engine::open(Env::real(), folder.path(), options).unwrap();
        Subject { kv: KeyValue::new(engine.clone(), KvLimits::default()), engine, _folder: folder }
    }

    fn flush(&self) {
        self.engine.flush(&self.engine.table("default", "kv").unwrap()).unwrap();
    }

    /// Executes `requests` in pieces of at most `together`; what each was answered.
    fn run(&self, requests: &[(u8, Request)], together: usize) -> Vec<String> {
        let keys: Vec<Vec<u8>> = requests.iter().map(|(key, _)| vec![b'k', *key]).collect();
        let ops: Vec<Op<'_>> =
            requests.iter().zip(&keys).map(|((_, request), key)| op(request, key)).collect();
        let mut answers = Vec::new();
        for piece in ops.chunks(together) {
            let (mut done, mut may_block) = (0, false);
            while done < piece.len() {
                let mut round = self.kv.round(may_block);
                let ran = round.run(&piece[done..], &mut |_, answer| answers.push(told(&answer)));
                assert!(ran.ops > 0 || ran.stop.is_some(), "a window comes forward");
                assert!(!(may_block && ran.stop.is_some()), "a round that may block never waits");
                (done, may_block) = (done + ran.ops, ran.stop.is_some());
            }
        }
        answers
    }
}

fn op<'a>(request: &'a Request, key: &'a [u8]) -> Op<'a> {
    let store = |mode, value| Action::Store {
        mode,
        value: std::slice::from_ref(value),
        flags: 7,
        expiry: Expiry::Never,
        or_stale: false,
    };
    let action = match request {
        Request::Get => return Op::Get(key.into()),
        Request::Set(value) => store(StoreMode::Set, value),
        Request::Add(value) => store(StoreMode::Add, value),
        Request::Append(value) => {
            Action::Extend { front: false, value: std::slice::from_ref(value), vivify: None }
        }
        Request::Delete => Action::Delete,
        Request::Count => {
            Action::Count { down: false, delta: 1, initial: Some((1, Expiry::Never)), expiry: None }
        }
        Request::Fetch => Action::Fetch { expiry: None, vivify: None, refresh_before: None },
    };
    Op::Change(Change { key: key.into(), cas: None, action })
}

fn told(answer: &Answer<'_>) -> String {
    match answer {
        Answer::Found(document) => format!("found {:?}", document.value),
        Answer::Absent => "absent".into(),
        Answer::Refused(error) => panic!("{error}"),
        Answer::Changed(outcome) => {
            let fetched = outcome.fetched.as_ref().map(|fetched| fetched.value.clone());
            if let (Status::Done, Some(fetched)) = (&outcome.status, &outcome.fetched) {
                assert_ne!(fetched.cas, u64::MAX, "a placeholder is no cas");
            }
            format!("{:?} {} {fetched:?}", outcome.status, outcome.number)
        }
    }
}

fn requests() -> impl Strategy<Value = Vec<(u8, Request)>> {
    let request = prop_oneof![
        4 => Just(Request::Get),
        2 => (b'0'..=b'9').prop_map(Request::Set),
        1 => (b'0'..=b'9').prop_map(Request::Add),
        1 => (b'0'..=b'9').prop_map(Request::Append),
        1 => Just(Request::Delete),
        1 => Just(Request::Count),
        1 => Just(Request::Fetch),
    ];
    prop::collection::vec((0u8..12, request), 1..200)
}

proptest! {
    // Each case opens two engines.
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_answers(first in requests(), then in requests()) {
        let (together, singly) = (Subject::new(), Subject::new());
        prop_assert_eq!(together.run(&first, usize::MAX), singly.run(&first, 1));
        together.flush();
        singly.flush();
        prop_assert_eq!(together.run(&then, usize::MAX), singly.run(&then, 1));
    }
}
