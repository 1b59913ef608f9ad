//! Who is told of a row, by a refusal too, finds it in the next snapshot.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Decision, Engine, Read, Table, WriteOp};
use oribi_sim::{Hooked, Operation, SimClock};
use oribi_types::{Durability, Error, ErrorKind, Timestamp};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

/// Decides to keep row `k`, or to refuse, and says when that row was written, if it was there. Tells `seen` before it returns.
fn look(
    engine: &Engine,
    table: &Arc<Table>,
    k: i64,
    seen: &mpsc::Sender<()>,
    refuse: bool,
) -> (Option<Timestamp>, oribi_types::Result<Timestamp>) {
    let key = key(k);
    let op = WriteOp { table, key: &key, read: Read::Existing, row: &[] };
    let mut found = None;
    let commit = engine.write(&[op], &mut |_, current, _| {
        found = current.map(|row| row.ts);
        if found.is_some() {
            seen.send(()).unwrap();
        }
        if found.is_some() && refuse { Err(Error::already_exists("the row")) } else { Ok(Decision::Keep) }
    });
    (found, commit.map(|commit| commit.ts))
}

/// Puts the first row whose latch is free; returns its `k`.
fn put_beside(engine: &Engine, table: &Arc<Table>, v: &str) -> i64 {
    let is_refused = |k: &i64| matches!(try_put(engine, table, *k, v), Err(error) if error.kind() == ErrorKind::WouldBlock);
    (2..64).find(|k| !is_refused(k)).expect("a row with a latch of its own")
}

/// While a large write, latched, waits for its segment of the log, a small one behind it is applied. A third finds it and keeps it.
fn meet_a_row_beside_a_write_that_waits(refuse: bool) {
    let hooked = Hooked::default();
    let engine = Engine::open(hooked.env(&Arc::new(SimClock::new())), Path::new(DIR), quiet()).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Sync)).unwrap();
    // The next segment is prepared before the first sync.
    engine.settle(put(&engine, &table, 0, "v").unwrap().obligation).unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (seen, was_seen) = mpsc::channel();
    // The prepared segment is made larger.
    hooked.once(Operation::Sync, "segment.tmp", move || {
        begun.send(()).unwrap();
        was_seen.recv().unwrap();
        // Whoever is not sure of what the next snapshot shows has returned by now, or nearly so.
        (0..1000).for_each(|_| std::thread::yield_now());
    });
    std::thread::scope(|scope| {
        scope.spawn(|| put(&engine, &table, 1, &"x".repeat(2 << 20)).unwrap());
        has_begun.recv().unwrap();
        let small = put_beside(&engine, &table, "small");
        let (written, told) = look(&engine, &table, small, &seen, refuse);
        let written = written.expect("the small row is applied");
        let snapshot = engine.snapshot();
        assert!(snapshot.ts() >= written, "{:?} lacks what was written at {written:?}", snapshot.ts());
        assert_eq!(scan(&engine, &table, &snapshot).get(&small).map(String::as_str), Some("small"));
        match told {
            Ok(ts) => assert!(!refuse && ts >= written),
            Err(error) => assert!(refuse, "{error}"),
        }
    });
    hooked.clear();
}

#[test]
fn a_row_that_was_kept_is_in_the_next_snapshot() {
    meet_a_row_beside_a_write_that_waits(false);
}

#[test]
fn a_row_for_which_a_write_was_refused_is_in_the_next_snapshot() {
    meet_a_row_beside_a_write_that_waits(true);
}
