//! Whoever was told a timestamp reads by it later, while somebody keeps a snapshot that is not newer; and an engine that is
//! told a timestamp goes on from there.
#![allow(clippy::unwrap_used)]

mod common;

use common::{DIR, Rows, definition, delete, fresh, model, open, put, quiet, range_now, scan, sim_env};
use oribi_engine::{Engine, EngineOptions, Table};
use oribi_sim::{SimClock, SimFiles};
use oribi_types::{Durability, ErrorKind, Timestamp};
use std::path::Path;
use std::sync::Arc;

#[test]
fn every_timestamp_above_the_horizon_can_be_read() {
    let (_, _, engine, table) = fresh(2, Durability::Sync);
    let kept = engine.snapshot();
    let mut states: Vec<(Timestamp, Rows)> = vec![(kept.ts(), Rows::new())];
    let mut rows = Rows::new();
    for i in 0..30 {
        let (k, v) = (i % 7, format!("{i}"));
        if i % 5 == 4 {
            delete(&engine, &table, k).unwrap();
            rows.remove(&k);
        } else {
            put(&engine, &table, k, &v).unwrap();
            rows.insert(k, v);
        }
        states.push((engine.snapshot().ts(), rows.clone()));
        if i % 8 == 7 {
            engine.flush(&table).unwrap();
        }
        if i == 20 {
            engine.compact(&table).unwrap();
        }
    }
    for (ts, rows) in states.iter().rev() {
        let snapshot = engine.snapshot_at(*ts).unwrap().unwrap();
        assert_eq!(snapshot.ts(), *ts);
        assert_eq!(&scan(&engine, &table, &snapshot), rows);
    }
    drop(kept);
    let (newest, _) = states.pop().unwrap();
    assert!(engine.snapshot_at(states[0].0).unwrap().is_none(), "below the horizon");
    assert!(engine.snapshot_at(newest).unwrap().is_some());
}

#[test]
fn writes_come_after_what_was_observed() {
    let (_, clock, engine, table) = fresh(1, Durability::Sync);
    let before = put(&engine, &table, 1, "a").unwrap().ts;
    let seen = Timestamp::from_micros(before.micros() + 5_000_000);
    let snapshot = engine.snapshot_at(seen).unwrap().unwrap();
    assert_eq!(snapshot.ts(), seen);
    let after = put(&engine, &table, 1, "b").unwrap().ts;
    assert!(after > seen, "{after:?}");
    assert_eq!(scan(&engine, &table, &snapshot), model(&[(1, "a")]));
    assert_eq!(range_now(&engine, &table), model(&[(1, "b")]));
    engine.observe(before).unwrap();
    let far = Timestamp::from_micros(before.micros() + 3_600_000_000);
    assert_eq!(engine.observe(far).unwrap_err().kind(), ErrorKind::Invalid);
    clock.advance(3_600_000_000);
    engine.observe(far).unwrap();
    assert!(put(&engine, &table, 1, "c").unwrap().ts > far);
}

/// A model of what each timestamp shows, while rows are written and, from time to time, flushed and compacted.
struct History {
    states: Vec<(Timestamp, Rows)>,
    rows: Rows,
    written: i64,
}

impl History {
    fn write(&mut self, engine: &Engine, table: &Arc<Table>, count: i64) {
        for i in self.written..self.written + count {
            let (k, v) = (i * 5 % 13, format!("{i}"));
            if i % 4 == 3 {
                delete(engine, table, k).unwrap();
                self.rows.remove(&k);
            } else {
                put(engine, table, k, &v).unwrap();
                self.rows.insert(k, v);
            }
            self.states.push((engine.snapshot().ts(), self.rows.clone()));
            if i % 11 == 10 {
                engine.flush(table).unwrap();
            }
            if i % 29 == 28 {
                engine.compact(table).unwrap();
            }
        }
        self.written += count;
    }

    /// All states since `ts` are there.
    fn check(&self, engine: &Engine, table: &Arc<Table>, ts: Timestamp) {
        for (ts, rows) in self.states.iter().filter(|(at, _)| *at >= ts) {
            let snapshot = engine.snapshot_at(*ts).unwrap().unwrap();
            assert_eq!(&scan(engine, table, &snapshot), rows, "{ts:?}");
        }
    }
}

fn open_with_history(files: &SimFiles, clock: &Arc<SimClock>) -> (Arc<Engine>, Arc<Table>) {
    let options = EngineOptions { keeps_history: true, ..quiet() };
    let engine = Engine::open(sim_env(files, clock), Path::new(DIR), options).unwrap();
    let table = engine.table("public", "t").unwrap();
    (engine, table)
}

#[test]
fn what_a_snapshot_saw_is_there_after_a_kill_and_after_a_close() {
    let (mut files, clock, mut engine, mut table) = fresh(2, Durability::Sync);
    let mut history = History { states: Vec::new(), rows: Rows::new(), written: 0 };
    // Nobody keeps anything: what was before may be gone.
    history.write(&engine, &table, 20);
    for round in 0..5 {
        clock.advance(10_000_000);
        let kept = engine.snapshot();
        let ts = kept.ts();
        history.write(&engine, &table, 20 + round);
        engine.settle(engine.everything().1).unwrap();
        if round % 3 == 2 {
            engine.close().unwrap();
        }
        files = files.kill();
        (engine, table) = open_with_history(&files, &clock);
        let again = engine.take_history().unwrap();
        assert!(again.ts() <= ts && engine.take_history().is_none());
        history.check(&engine, &table, ts);
        // And goes on to be, over all that comes, as long as it is kept.
        let (oldest, _) = *history.states.iter().find(|(at, _)| *at >= ts).unwrap();
        let named = engine.snapshot_at(oldest).unwrap().unwrap();
        drop((again, kept));
        history.write(&engine, &table, 20);
        history.check(&engine, &table, named.ts());
    }
}

#[test]
fn what_no_snapshot_saw_is_not_taken_for_there() {
    let (files, clock, engine, table) = fresh(1, Durability::Sync);
    let before = put(&engine, &table, 1, "a").unwrap().ts;
    // In no file, and soon in no log.
    put(&engine, &table, 1, "b").unwrap();
    let last = put(&engine, &table, 1, "c").unwrap().ts;
    engine.flush(&table).unwrap();
    let (engine, table) = open_with_history(&files.kill(), &clock);
    assert!(engine.snapshot_at(before).unwrap().is_none());
    let snapshot = engine.snapshot_at(last).unwrap().unwrap();
    put(&engine, &table, 1, "d").unwrap();
    assert_eq!(scan(&engine, &table, &snapshot), model(&[(1, "c")]));
}

#[test]
fn history_that_memory_has_no_room_for_is_let_go() {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let engine = open(&sim_env(&files, &clock)).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Sync)).unwrap();
    let kept = engine.snapshot();
    let long = "x".repeat(1 << 20);
    let written: Vec<_> = (0..6).map(|_| put(&engine, &table, 1, &long).unwrap().ts).collect();
    let last = written[5];
    engine.settle(engine.everything().1).unwrap();
    let options = EngineOptions { keeps_history: true, memory_bytes: 8 << 20, ..quiet() };
    let engine = Engine::open(sim_env(&files.kill(), &clock), Path::new(DIR), options).unwrap();
    let history = engine.take_history().unwrap();
    assert!(history.ts() > kept.ts() && history.ts() <= last, "{:?}", history.ts());
    assert!(engine.stats().memtable_bytes < 6 << 20);
    assert!(engine.snapshot_at(kept.ts()).unwrap().is_none());
    assert_eq!(scan(&engine, &engine.table("public", "t").unwrap(), &history), model(&[(1, &long)]));
}
