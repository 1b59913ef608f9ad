//! Random requests, sent again at random, against a plain map from request to first answer, over flushes, trims of the
//! log, kills and time.
//!
//! More cases: `PROPTEST_CASES=10000 cargo test -p oribi-engine --test requests_are_a_map`.
#![allow(clippy::unwrap_used)]

mod common;

use common::counting::*;
use common::*;
use oribi_engine::{Engine, Request, Table, Tracked};
use oribi_sim::{SimClock, SimFiles, cases};
use oribi_types::{Durability, Timestamp};
use proptest::prelude::*;
use std::sync::Arc;

const MINUTE: u64 = 60_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Count,
    /// Changes nothing if the row is there.
    Insert,
    Refused,
}

#[derive(Clone, Debug)]
enum Op {
    /// The next request of a client.
    Send(usize, i64, Kind),
    /// One of its earlier requests.
    Again(usize, usize),
    /// A client has so many more answers.
    Complete(usize, i64),
    /// Writes without a request id.
    Put(i64),
    Delete(i64),
    Flush,
    /// Closed, which trims the log, and opened.
    Reopen,
    Kill,
    /// So many minutes go by.
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let k = 0..4i64;
    let kind = prop_oneof![6 => Just(Kind::Count), 3 => Just(Kind::Insert), 1 => Just(Kind::Refused)];
    prop::collection::vec(
        prop_oneof![
            12 => (0..3usize, k.clone(), kind).prop_map(|(c, k, kind)| Op::Send(c, k, kind)),
            12 => (0..3usize, any::<usize>()).prop_map(|(c, i)| Op::Again(c, i)),
            4 => (0..3usize, 1..4i64).prop_map(|(c, n)| Op::Complete(c, n)),
            2 => k.clone().prop_map(Op::Put),
            2 => k.prop_map(Op::Delete),
            3 => Just(Op::Flush),
            2 => Just(Op::Reopen),
            2 => Just(Op::Kill),
            3 => (1..30u64).prop_map(Op::Pass),
        ],
        1..80,
    )
}

/// A request that was sent.
#[derive(Clone, Debug)]
struct Sent {
    k: i64,
    kind: Kind,
    /// What was answered, and when; `None` if it was refused.
    answer: Option<(Timestamp, String, u64)>,
}

#[derive(Default)]
struct Client {
    id: String,
    sent: Vec<Sent>,
    first_incomplete: i64,
    /// The highest that it said to this opening of the engine.
    said: i64,
    heard_micros: u64,
}

struct Run {
    files: SimFiles,
    clock: Arc<SimClock>,
    engine: Arc<Engine>,
    table: Arc<Table>,
    rows: Rows,
    clients: Vec<Client>,
    now_micros: u64,
    names: usize,
}

impl Run {
    fn new() -> Self {
        let (files, clock, engine, table) = fresh(1, Durability::Periodic(100));
        let clients = (0..3).map(|_| Client::default()).collect();
        let mut run =
            Run { files, clock, engine, table, rows: Rows::new(), clients, now_micros: 0, names: 0 };
        (0..3).for_each(|c| run.renew(c));
        run
    }

    /// Another client takes the place of one.
    fn renew(&mut self, c: usize) {
        self.names += 1;
        let id = format!("client {}", self.names);
        self.clients[c] = Client { id, heard_micros: self.now_micros, ..Client::default() };
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Send(c, k, kind) => {
                self.clients[c].sent.push(Sent { k, kind, answer: None });
                self.send(c, self.clients[c].sent.len() - 1);
            }
            Op::Again(c, i) if !self.clients[c].sent.is_empty() => {
                self.send(c, i % self.clients[c].sent.len())
            }
            Op::Again(..) => {}
            Op::Complete(c, n) => {
                let client = &mut self.clients[c];
                client.first_incomplete = (client.first_incomplete + n).min(client.sent.len() as i64);
            }
            Op::Put(k) => {
                let commit = put(&self.engine, &self.table, k, "100").unwrap();
                self.engine.settle(commit.obligation).unwrap();
                self.rows.insert(k, "100".into());
            }
            Op::Delete(k) => {
                delete(&self.engine, &self.table, k).unwrap();
                self.rows.remove(&k);
            }
            Op::Flush => self.engine.flush(&self.table).unwrap(),
            Op::Reopen => {
                self.engine.close().unwrap();
                self.reopen();
            }
            Op::Kill => self.reopen(),
            Op::Pass(minutes) => {
                self.now_micros += minutes * MINUTE;
                self.clock.advance(minutes * MINUTE);
            }
        }
    }

    fn reopen(&mut self) {
        self.engine.settle(self.engine.everything().1).unwrap();
        self.files = self.files.kill();
        self.engine = open(&sim_env(&self.files, &self.clock)).unwrap();
        self.table = self.engine.table("public", "t").unwrap();
        for client in &mut self.clients {
            // Whatever it said in vain is not in the log; and its silence was not heard.
            client.said = 0;
        }
        self.compare();
    }

    fn send(&mut self, c: usize, i: usize) {
        if self.now_micros - self.clients[c].heard_micros >= 60 * MINUTE {
            // Nobody knows it any more: what it sends is new. Clients give up long before.
            return self.renew(c);
        }
        let (id, first_incomplete) = (self.clients[c].id.clone(), self.clients[c].first_incomplete);
        let request = Request { client: id.as_bytes(), sequence: i as i64, first_incomplete };
        let Sent { k, kind, answer } = self.clients[c].sent[i].clone();
        self.clients[c].heard_micros = self.now_micros;
        self.clients[c].said = self.clients[c].said.max(first_incomplete);
        let said = self.clients[c].said;
        let tracked = match kind {
            Kind::Count => count(&self.engine, &self.table, &request, k),
            Kind::Insert => insert(&self.engine, &self.table, &request, k),
            Kind::Refused => refused(&self.engine, &self.table, &request, k),
        };
        let late = |at: u64| self.now_micros - at >= 10 * MINUTE;
        match (tracked, answer) {
            (Err(_), None) => assert_eq!(kind, Kind::Refused),
            (Ok(Tracked::Answered(answered)), Some((ts, result, _))) => {
                assert_eq!((answered.commit.ts, text(&answered)), (ts, &*result), "another answer");
                assert!(i as i64 >= said, "it was to be forgotten");
            }
            (Ok(Tracked::Answered(answered)), None) => {
                let before = self.rows.get(&k).cloned();
                let expected = match (kind, &before) {
                    (Kind::Insert, Some(_)) => "there".to_owned(),
                    (Kind::Insert, None) => "new".to_owned(),
                    _ => (before.as_deref().map_or(0, |v| v.parse::<u64>().unwrap()) + 1).to_string(),
                };
                assert_eq!(text(&answered), expected);
                match (kind, before) {
                    (Kind::Insert, Some(v)) => self.rows.insert(k, v),
                    (Kind::Insert, None) => self.rows.insert(k, "1".into()),
                    _ => self.rows.insert(k, expected.clone()),
                };
                self.clients[c].sent[i].answer = Some((answered.commit.ts, expected, self.now_micros));
                self.engine.settle(answered.commit.obligation).unwrap();
            }
            (Ok(Tracked::Stale), answer) => {
                let forgotten = (i as i64) < said.max(first_incomplete);
                let old = match answer {
                    Some((_, _, at)) => late(at),
                    // It was refused; one behind it is so old that its place was forgotten too.
                    None => self.clients[c].sent[i..].iter().flat_map(|s| &s.answer).any(|a| late(a.2)),
                };
                let before_open = self.clients[c].sent[i].answer.is_some() && first_incomplete > i as i64;
                assert!(forgotten || old || before_open, "request {i} of {id} is stale, {said} said");
            }
            (tracked, answer) => panic!("{tracked:?} where {answer:?} was expected"),
        }
        assert_eq!(get(&self.engine, &self.table, k), self.rows.get(&k).cloned());
    }

    fn compare(&self) {
        assert_eq!(scan_now(&self.engine, &self.table), self.rows);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(100) as u32, ..ProptestConfig::default() })]

    #[test]
    fn requests_are_a_map(ops in ops()) {
        let mut run = Run::new();
        for op in ops {
            run.step(op);
        }
        run.compare();
        run.engine.close().unwrap();
        assert_eq!(findings(&run.files), Vec::<String>::new());
    }
}
