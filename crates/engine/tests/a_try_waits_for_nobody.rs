//! A write on a thread that others wait for is made at once, or says that it would have to wait, and changes nothing then.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::hooked::Hooked;
use common::*;
use oribi_engine::{Commit, Decision, Engine, Read, Table, WriteOp};
use oribi_sim::{Operation, SimClock};
use oribi_types::{Durability, ErrorKind, Result};
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};

fn try_put(engine: &Engine, table: &Arc<Table>, k: i64, v: &str) -> Result<Commit> {
    let key = key(k);
    let op = WriteOp { table, key: &key, read: Read::Blind, row: &[] };
    engine.try_write(&[op], &mut |_, _, row| {
        encode(table, v, k, row);
        Ok(Decision::Put)
    })
}

#[test]
fn a_row_of_a_table_that_others_hold_is_not_waited_for() {
    let (_, _, engine, table) = fresh(2, Durability::Periodic(100));
    let held = engine.hold(&table).unwrap();
    let refused = try_put(&engine, &table, 1, "mine").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    let mut released = pin!(engine.released());
    let mut context = Context::from_waker(Waker::noop());
    assert!(released.as_mut().poll(&mut context).is_pending());
    drop(held);
    assert!(released.as_mut().poll(&mut context).is_ready());
    assert_eq!(get(&engine, &table, 1), None);
    try_put(&engine, &table, 1, "mine").unwrap();
    assert_eq!(get(&engine, &table, 1).as_deref(), Some("mine"));
}

/// Those who were told to wait would wake each other again and again.
#[test]
fn a_try_in_vain_wakes_nobody() {
    let (_, _, engine, table) = fresh(2, Durability::Periodic(100));
    let held = engine.hold(&table).unwrap();
    let mut released = pin!(engine.released());
    let mut context = Context::from_waker(Waker::noop());
    assert!(released.as_mut().poll(&mut context).is_pending());
    let keys = [1, 2].map(key);
    let ops = keys.each_ref().map(|key| WriteOp { table: &table, key, read: Read::Blind, row: &[] });
    let refused = engine.try_write(&ops, &mut |_, _, _| Ok(Decision::Delete)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    assert!(released.as_mut().poll(&mut context).is_pending());
    drop(held);
    assert!(released.as_mut().poll(&mut context).is_ready());
}

#[test]
fn an_import_keeps_others_from_its_own_table_alone() {
    let hooked = Hooked::default();
    let engine = Engine::open(hooked.env(&Arc::new(SimClock::new())), Path::new(DIR), quiet()).unwrap();
    let table = engine.create_table(definition("t", 2, Durability::Periodic(100))).unwrap();
    let other = engine.create_table(definition("other", 2, Durability::Periodic(100))).unwrap();
    let mut rows_to_come = engine.import(&table).unwrap();
    rows_to_come.push(rows(&table, &[1, 2, 3], "imported")).unwrap();
    let (beside, of, another) = (engine.clone(), table.clone(), other.clone());
    // The record that makes the rows visible.
    hooked.once(Operation::Sync, "MANIFEST", move || {
        assert_eq!(try_put(&beside, &of, 1, "mine").unwrap_err().kind(), ErrorKind::WouldBlock);
        try_put(&beside, &another, 1, "mine").unwrap();
    });
    assert_eq!(rows_to_come.commit().unwrap(), 3);
    hooked.clear();
    assert_eq!(scan_now(&engine, &other), model(&[(1, "mine")]));
    assert_eq!(scan_now(&engine, &table).len(), 3);
}

/// While a large write waits for its segment of the log with a timestamp taken, a small one behind it is made. Its own client sees
/// it; its answer waits until everybody does.
#[test]
fn a_write_behind_one_that_waits_is_made_and_its_answer_waits() {
    let hooked = Hooked::default();
    let engine = Engine::open(hooked.env(&Arc::new(SimClock::new())), Path::new(DIR), quiet()).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Periodic(100))).unwrap();
    engine.settle(put(&engine, &table, 0, "v").unwrap().obligation.must_be_durable()).unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    // The segment that was prepared is made larger.
    hooked.once(Operation::Sync, "segment.tmp", move || {
        begun.send(()).unwrap();
        ended.recv().unwrap();
    });
    let commit = std::thread::scope(|scope| {
        scope.spawn(|| put(&engine, &table, 1, &"x".repeat(2 << 20)).unwrap());
        has_begun.recv().unwrap();
        let commit = try_put(&engine, &table, 2, "small").unwrap();
        assert!(engine.snapshot().ts() < commit.ts && commit.obligation.visible == commit.ts);
        assert!(!engine.is_settled(commit.obligation));
        let own = engine.read_view_from(commit.obligation.visible);
        let found = engine.get(&table, &key(2), own, |row| v_of(&table, row.row)).unwrap().0;
        assert_eq!(found.as_deref(), Some("small"));
        // To be refused for what nobody sees is to be told of it.
        let seen = engine.try_write(
            &[WriteOp { table: &table, key: &key(2), read: Read::Existing, row: &[] }],
            &mut |_, current, _| Err(oribi_types::Error::already_exists(format!("{}", current.is_some()))),
        );
        assert_eq!(seen.unwrap_err().kind(), ErrorKind::WouldBlock);
        // Another of that length is not waited for, either.
        let long = try_put(&engine, &table, 3, &"x".repeat(2 << 20)).unwrap_err();
        assert_eq!(long.kind(), ErrorKind::WouldBlock);
        end.send(()).unwrap();
        commit
    });
    hooked.clear();
    engine.settle(commit.obligation).unwrap();
    assert!(engine.snapshot().ts() >= commit.ts && engine.is_settled(commit.obligation));
    while let Err(error) = try_put(&engine, &table, 3, &"x".repeat(2 << 20)) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        std::thread::yield_now();
    }
    assert_eq!(scan_now(&engine, &table).len(), 4);
}
