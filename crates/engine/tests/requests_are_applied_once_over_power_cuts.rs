//! A machine stops at any point, recovery and the trimming of the log included. A request that was answered is answered
//! the same again, and all that are sent until they are answered are applied once each.
#![allow(clippy::unwrap_used)]

mod common;

use common::counting::*;
use common::*;
use oribi_engine::{Engine, Obligation, Request, Table, Tracked};
use oribi_sim::{Rng, SimClock, SimFiles, seeds};
use oribi_types::{Durability, Result};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: u64 = 5;

#[derive(Clone, Debug)]
struct Sent {
    k: i64,
    /// The result of this opening of the engine, if there was one, and what settles it.
    seen: Option<(Vec<u8>, Obligation)>,
    /// The result that was answered.
    settled: Option<Vec<u8>>,
}

#[derive(Default)]
struct Client {
    next: i64,
    /// Requests that the client may send again.
    sent: BTreeMap<i64, Sent>,
}

struct Story {
    rng: Rng,
    clock: Arc<SimClock>,
    durability: Durability,
    clients: [Client; 2],
    /// How many requests there were for each row, each of which is applied sooner or later.
    requests: BTreeMap<i64, u64>,
    answered_again: u64,
}

struct Node {
    engine: Arc<Engine>,
    table: Arc<Table>,
}

impl Story {
    fn open(&self, files: &SimFiles) -> Result<Node> {
        let engine = open(&sim_env(files, &self.clock))?;
        let table = engine
            .table("public", "t")
            .or_else(|_| engine.create_table(definition("t", 2, self.durability)))?;
        Ok(Node { engine, table })
    }

    /// Works until the machine stops.
    fn work(&mut self, files: &SimFiles, mut node: Node) -> Result<()> {
        loop {
            match self.rng.below(20) {
                0..9 => self.send_next(&node)?,
                9..13 => self.send_again(&node)?,
                13..15 => self.complete(),
                15 => {
                    // Without an answer: what it says is remembered or not, and not relied on.
                    let k = self.rng.below(KEYS) as i64;
                    let (sequence, first_incomplete) = (self.clients[0].next, self.first_incomplete(0));
                    self.clients[0].next += 1;
                    let request = Request { client: b"0", sequence, first_incomplete };
                    refused(&node.engine, &node.table, &request, k).unwrap_err();
                }
                16 => node.engine.flush(&node.table)?,
                17 => node.engine.compact(&node.table)?,
                18 => {
                    // Trims the log.
                    node.engine.close()?;
                    drop(node);
                    self.forget_seen();
                    node = self.open(files)?;
                }
                _ => self.clock.jump(if self.rng.coin() { -5_000_000 } else { 3_000_000 }),
            }
        }
    }

    fn first_incomplete(&self, client: usize) -> i64 {
        let client = &self.clients[client];
        client.sent.keys().next().copied().unwrap_or(client.next)
    }

    fn send_next(&mut self, node: &Node) -> Result<()> {
        let (c, k) = (self.rng.below(2) as usize, self.rng.below(KEYS) as i64);
        let sequence = self.clients[c].next;
        self.clients[c].next += 1;
        self.clients[c].sent.insert(sequence, Sent { k, seen: None, settled: None });
        *self.requests.entry(k).or_default() += 1;
        self.send(node, c, sequence)
    }

    fn send_again(&mut self, node: &Node) -> Result<()> {
        let c = self.rng.below(2) as usize;
        let i = self.rng.below(1 + self.clients[c].sent.len() as u64) as usize;
        let sequence = self.clients[c].sent.keys().nth(i).copied();
        sequence.map_or(Ok(()), |sequence| self.send(node, c, sequence))
    }

    fn send(&mut self, node: &Node, c: usize, sequence: i64) -> Result<()> {
        let id = c.to_string();
        let first_incomplete = self.first_incomplete(c);
        let request = Request { client: id.as_bytes(), sequence, first_incomplete };
        let settles = self.rng.coin();
        let sent = self.clients[c].sent.get_mut(&sequence).unwrap();
        let answered = match count(&node.engine, &node.table, &request, sent.k)? {
            Tracked::Answered(answered) => answered,
            other => panic!("request {sequence} of {id} from {first_incomplete} on: {other:?}"),
        };
        let result = answered.result.to_vec();
        if let Some(before) = &sent.settled {
            assert_eq!(&result, before, "request {sequence} of {id} was answered before");
            self.answered_again += 1;
        }
        if let Some((before, _)) = &sent.seen {
            assert_eq!(&result, before, "request {sequence} of {id} was applied before");
        }
        sent.seen = Some((result.clone(), answered.commit.obligation));
        if settles {
            node.engine.settle(answered.commit.obligation)?;
            sent.settled = Some(result);
        }
        Ok(())
    }

    /// A client has some answers: it will not ask for them again.
    fn complete(&mut self) {
        let client = &mut self.clients[self.rng.below(2) as usize];
        for _ in 0..1 + self.rng.below(3) {
            if client.sent.first_key_value().is_some_and(|(_, sent)| sent.settled.is_some()) {
                client.sent.pop_first();
            }
        }
    }

    fn forget_seen(&mut self) {
        for sent in self.clients.iter_mut().flat_map(|client| client.sent.values_mut()) {
            sent.seen = None;
        }
    }

    /// Sends all requests again that have no answer, and some that have; counts what was applied.
    fn compare(&mut self, node: &Node) -> Result<()> {
        for c in 0..self.clients.len() {
            for sequence in self.clients[c].sent.keys().copied().collect::<Vec<_>>() {
                self.send(node, c, sequence)?;
            }
        }
        let expected: Rows = self.requests.iter().map(|(k, n)| (*k, n.to_string())).collect();
        assert_eq!(scan_now(&node.engine, &node.table), expected);
        Ok(())
    }
}

/// Returns how often an answer came again.
fn survive(seed: u64, durability: Durability, stop: impl Fn(&SimFiles, u64) -> SimFiles) -> u64 {
    let mut story = Story {
        rng: Rng::new(seed),
        clock: Arc::new(SimClock::new()),
        durability,
        clients: Default::default(),
        requests: BTreeMap::new(),
        answered_again: 0,
    };
    let mut files = SimFiles::new();
    for round in 0..8 {
        let changes = if story.rng.coin() { 60 } else { 300 };
        files.stop_at(1 + story.rng.below(changes));
        if let Ok(node) = story.open(&files) {
            let _stopped = story.compare(&node).and_then(|()| story.work(&files, node)).unwrap_err();
        }
        story.forget_seen();
        files = stop(&files, seed * 10 + round);
        if oribi_env::Files::list(&files, std::path::Path::new(DIR)).is_ok() {
            assert_eq!(findings(&files), Vec::<String>::new());
        }
    }
    let node = story.open(&files).unwrap();
    story.compare(&node).unwrap();
    story.answered_again
}

#[test]
fn requests_are_applied_once_over_power_cuts() {
    let again = Cell::new(0);
    seeds(30, |seed| {
        again.set(again.get() + survive(seed, Durability::Sync, |files, seed| files.crash(seed)));
    });
    // Of one seed alone, there may be none.
    assert!(again.get() > 30 || std::env::var("ORIBI_SEED").is_ok(), "{} answers", again.get());
}

#[test]
fn requests_are_applied_once_over_kills() {
    seeds(15, |seed| {
        survive(seed, Durability::Periodic(50), |files, _| files.kill());
    });
}

/// The log start and the results that a log from there on lacks are one record of the manifest.
#[test]
fn a_stop_while_the_log_is_trimmed_loses_no_result() {
    for stop in 1..40 {
        let (files, clock, engine, table) = fresh(1, Durability::Sync);
        for sequence in 0..3 {
            let request = Request { client: b"c", sequence, first_incomplete: sequence.min(1) };
            let answered = answered(count(&engine, &table, &request, 1));
            engine.settle(answered.commit.obligation).unwrap();
        }
        files.stop_at(files.changes() + stop);
        let closed = engine.close();
        for seed in 0..3 {
            let engine = open(&sim_env(&files.crash(stop * 3 + seed), &clock)).unwrap();
            let table = engine.table("public", "t").unwrap();
            for sequence in 1..3 {
                let request = Request { client: b"c", sequence, first_incomplete: 1 };
                let again = answered(count(&engine, &table, &request, 1));
                assert_eq!(text(&again), (sequence + 1).to_string(), "stopped at {stop}");
            }
            assert_eq!(get(&engine, &table, 1).as_deref(), Some("3"));
        }
        if closed.is_ok() {
            return;
        }
    }
    panic!("a close takes more steps");
}
