//! A write on a thread that others wait for is made at once, or says that it would have to wait, and changes nothing then.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::*;
use oribi_engine::{Decision, Engine, Read, WriteOp};
use oribi_sim::{Hooked, Operation, SimClock};
use oribi_types::{Durability, ErrorKind};
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

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

/// A large write that waits for its segment of the log keeps nobody from writing, from seeing what was written, nor from the gate.
#[test]
fn a_write_that_waits_for_the_log_holds_up_nobody() {
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
    std::thread::scope(|scope| {
        scope.spawn(|| put(&engine, &table, 1, &"x".repeat(2 << 20)).unwrap());
        has_begun.recv().unwrap();
        let (beside, of) = (engine.clone(), table.clone());
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            // Of the first few rows, two that share no latch with the long one.
            let is_free = |k: &i64| match try_put(&beside, &of, *k, "small") {
                Ok(_) => true,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    false
                }
            };
            let free: Vec<i64> = (4..8).filter(is_free).take(2).collect();
            let commit = put(&beside, &of, free[0], "small").unwrap();
            assert!(beside.snapshot().ts() >= commit.ts && commit.obligation.visible <= commit.ts);
            beside.seal(&of);
            try_put(&beside, &of, free[1], "small").unwrap();
            done.send(()).unwrap();
        });
        let done = is_done.recv_timeout(Duration::from_secs(120));
        // Another of that length is not waited for, either.
        let long = try_put(&engine, &table, 3, &"x".repeat(2 << 20));
        // Before anything is found to be wrong: the first one's thread is waited for then.
        end.send(()).unwrap();
        done.expect("it waits for the other's segment");
        assert_eq!(long.unwrap_err().kind(), ErrorKind::WouldBlock);
    });
    hooked.clear();
    let is_written = (0..12_000).any(|_| match try_put(&engine, &table, 3, &"x".repeat(2 << 20)) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            std::thread::sleep(Duration::from_millis(10));
            false
        }
    });
    assert!(is_written, "room is made for who asked");
    assert_eq!(scan_now(&engine, &table).len(), 5);
}
