//! A transaction is applied as one write or not at all, sees what it wrote, and loses nobody's write; rows that it has changed wait
//! for it, and nobody waits for ever.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::transactions::{commit, own, write_as};
use common::*;
use oribi_engine::{
    Author, Blocked, Commit, Decision, Engine, InTransaction, Read, ReadAhead, Table, Transaction, WriteOp,
};
use oribi_types::{Durability, ErrorKind, Result};
use proptest::prelude::*;
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

/// Puts (some value) or deletes, in a transaction or at once, and waits for nobody.
fn write_in(
    within: Option<&InTransaction>,
    engine: &Engine,
    table: &Arc<Table>,
    changes: &[(i64, Option<&str>)],
) -> Result<Commit, (ErrorKind, Option<Blocked>)> {
    write_as(within, false, engine, table, changes)
}

#[test]
fn several_writes_are_applied_at_one_timestamp() {
    let (files, _, engine, table) = fresh(3, Durability::Sync);
    put(&engine, &table, 1, "old").unwrap();
    let last = put(&engine, &table, 2, "old").unwrap();
    engine.settle(last.obligation).unwrap();
    let transaction = engine.begin();
    let within = transaction.begin_statement(None);
    write_in(Some(&within), &engine, &table, &[(1, Some("one")), (3, Some("new"))]).unwrap();
    write_in(Some(&within), &engine, &table, &[(1, Some("two")), (2, None), (4, Some("gone"))]).unwrap();
    write_in(Some(&within), &engine, &table, &[(4, None)]).unwrap();
    assert_eq!(own(&transaction, &table, 1), Some(Some("two".into())));
    assert_eq!(own(&transaction, &table, 2), Some(None));
    assert_eq!(own(&transaction, &table, 5), None);
    let before = model(&[(1, "old"), (2, "old")]);
    assert_eq!(scan_now(&engine, &table), before);
    let (killed, of) = after_kill(&files);
    assert_eq!(scan_now(&killed, &of), before, "nothing of it is in the log");
    killed.close().unwrap();

    let snapshot = engine.snapshot();
    let committed = commit(&engine, &transaction).unwrap();
    engine.settle(committed.obligation).unwrap();
    let after = model(&[(1, "two"), (3, "new")]);
    assert_eq!(scan_now(&engine, &table), after);
    assert_eq!(scan(&engine, &table, &snapshot), before);
    let (killed, of) = after_kill(&files);
    assert_eq!(scan_now(&killed, &of), after);
    killed.close().unwrap();
}

#[test]
fn a_row_is_locked_until_its_transaction_ends() {
    let (_, clock, engine, table) = fresh(1, Durability::Periodic(100));
    put(&engine, &table, 1, "old").unwrap();
    for ends in [true, false] {
        let transaction = engine.begin();
        let within = transaction.begin_statement(None);
        write_in(Some(&within), &engine, &table, &[(1, Some("mine")), (2, Some("mine"))]).unwrap();
        let other = engine.begin();
        for by in [None, Some(other.begin_statement(None))] {
            let (kind, blocked) =
                write_in(by.as_ref(), &engine, &table, &[(0, None), (2, None)]).unwrap_err();
            assert_eq!(kind, ErrorKind::WouldBlock);
            let mut wait = pin!(engine.wait_for_row(None, blocked.unwrap()).unwrap().over());
            assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!(put_now(&engine, &table, 1), ErrorKind::WouldBlock, "a try waits for nobody");
        put(&engine, &table, 3, "free").unwrap();
        // By then whoever is of no transaction has waited long enough.
        clock.advance(3_000_000);
        assert_eq!(put_now(&engine, &table, 1), ErrorKind::Unavailable);
        assert_eq!(put(&engine, &table, 1, "late").unwrap_err().kind(), ErrorKind::Unavailable);
        if ends {
            commit(&engine, &transaction).unwrap();
            transaction.roll_back();
        } else {
            drop((transaction, within));
        }
        assert_eq!(get(&engine, &table, 1).as_deref(), Some("mine"), "what was committed stays");
        put(&engine, &table, 1, "mine").unwrap();
    }
}

fn put_now(engine: &Engine, table: &Arc<Table>, k: i64) -> ErrorKind {
    let key = key(k);
    let op = WriteOp { table, key: &key, read: Read::Blind, row: &[] };
    engine.try_write(&[op], &mut |_, _, _| Ok(Decision::Delete)).unwrap_err().kind()
}

#[test]
fn a_plain_writer_that_may_wait_goes_on_when_the_row_is_free() {
    let (_, _, engine, table) = fresh(1, Durability::Periodic(100));
    let transaction = engine.begin();
    let within = transaction.begin_statement(None);
    write_in(Some(&within), &engine, &table, &[(1, Some("mine"))]).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| put(&engine, &table, 1, "after").unwrap());
        commit(&engine, &transaction).unwrap();
        transaction.roll_back();
        waiting.join().unwrap();
    });
    assert_eq!(get(&engine, &table, 1).as_deref(), Some("after"));
}

#[test]
fn an_import_brings_no_row_that_a_transaction_is_about_to_insert() {
    let (_, _, engine, table) = fresh(1, Durability::Periodic(100));
    let transaction = engine.begin();
    let within = transaction.begin_statement(None);
    write_in(Some(&within), &engine, &table, &[(1, Some("mine"))]).unwrap();
    assert_eq!(import(&engine, &table, &[1, 2], "theirs").unwrap_err().kind(), ErrorKind::Conflict);
    import(&engine, &table, &[3], "theirs").unwrap();
    commit(&engine, &transaction).unwrap();
    assert_eq!(scan_now(&engine, &table), model(&[(1, "mine"), (3, "theirs")]));
}

/// An import's rows have the time at which it began, which may be before the snapshot that they are missing in.
#[test]
fn a_row_that_an_import_brought_after_the_snapshot_is_not_overwritten() {
    let (_, _, engine, table) = fresh(1, Durability::Periodic(100));
    let mut brought = engine.import(&table).unwrap();
    brought.push(rows(&table, &[1, 3], "imported")).unwrap();
    put(&engine, &table, 2, "old").unwrap();
    let snapshot = engine.snapshot();
    assert_eq!(brought.commit().unwrap(), 2);
    let transaction = engine.begin();
    let within = transaction.begin_statement(Some(snapshot.ts()));
    let write =
        |k: i64| write_in(Some(&within), &engine, &table, &[(k, Some("mine"))]).map_err(|(kind, _)| kind);
    assert_eq!(write(1), Err(ErrorKind::Conflict), "read from the file");
    assert_eq!(get(&engine, &table, 1), Some("imported".into()));
    assert_eq!(write(1), Err(ErrorKind::Conflict), "from the cache");
    write(2).unwrap();
    write(4).unwrap();
    let later = engine.begin();
    let within = later.begin_statement(Some(engine.snapshot().ts()));
    write_in(Some(&within), &engine, &table, &[(3, Some("mine"))]).unwrap();
}

#[test]
fn what_a_transaction_may_keep_is_bounded() {
    let (_, _, engine, table) = fresh(1, Durability::Periodic(100));
    let transaction = engine.begin();
    let within = transaction.begin_statement(None);
    let long = "x".repeat(1 << 20);
    let queries = engine.memory().queries();
    let refused = (0..1000).find_map(|k| write_in(Some(&within), &engine, &table, &[(k, Some(&long))]).err());
    assert_eq!(refused.unwrap().0, ErrorKind::TooLarge);
    assert!(engine.memory().queries() > queries);
    transaction.roll_back();
    assert_eq!(engine.memory().queries(), queries);
    assert!(scan_now(&engine, &table).is_empty());

    // Of many rows that it locks alone, hashes are left.
    let (transaction, blocked) = (engine.begin(), Cell::new(None));
    let within = transaction.begin_statement(None);
    let author = Author { within: Some(&within), held: None, blocked: &blocked };
    let refused = (0..100).find_map(|n| {
        let keys: Vec<Vec<u8>> = (n * 1000..(n + 1) * 1000).map(key).collect();
        let op = |key| WriteOp { table: &table, key, read: Read::Existing, row: &[] };
        let ops: Vec<WriteOp<'_>> = keys.iter().map(|key| op(key.as_slice())).collect();
        let lock =
            &mut |_: usize, _: Option<oribi_engine::RowVersion<'_>>, _: &mut Vec<u8>| Ok(Decision::Lock);
        engine.write_as(&author, true, &ops, lock, &mut ReadAhead::default()).err()
    });
    assert!(refused.is_none(), "{refused:?}");
    assert!(engine.memory().queries() - queries < 8 << 20);
    assert_eq!(put_now(&engine, &table, 1), ErrorKind::WouldBlock);
    drop((within, transaction));
    put(&engine, &table, 1, "free").unwrap();
}

#[test]
fn a_statement_that_was_given_up_changes_nothing_any_more() {
    let (_, _, engine, table) = fresh(1, Durability::Periodic(100));
    let transaction = engine.begin();
    let mark = transaction.mark();
    let late = transaction.begin_statement(None);
    transaction.undo_to(mark);
    assert!(write_in(Some(&late), &engine, &table, &[(1, Some("late"))]).is_err());
    assert!(!transaction.has_writes());
    put(&engine, &table, 1, "free").unwrap();
}

/// One of several clients does something.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<(i64, Option<u8>)>),
    Plain(i64, Option<u8>),
    Savepoint(usize),
    RollBackTo(usize),
    RollBack(usize),
    Commit(usize),
    Flush,
}

const CLIENTS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let change = || (0..6_i64, proptest::option::weighted(0.7, any::<u8>()));
    prop_oneof![
        8 => (0..CLIENTS, proptest::collection::vec(change(), 1..4)).prop_map(|(c, changes)| Step::Write(c, changes)),
        3 => change().prop_map(|(k, v)| Step::Plain(k, v)),
        1 => (0..CLIENTS).prop_map(Step::Savepoint),
        1 => (0..CLIENTS).prop_map(Step::RollBackTo),
        1 => (0..CLIENTS).prop_map(Step::RollBack),
        2 => (0..CLIENTS).prop_map(Step::Commit),
        1 => Just(Step::Flush),
    ]
}

/// What a client has done in its transaction, and what it had when it set its savepoint.
#[derive(Clone, Default)]
struct Client {
    changes: Vec<(i64, Option<String>)>,
    savepoint: Option<usize>,
}

impl Client {
    fn has(&self, k: i64) -> bool {
        self.changes.iter().any(|(of, _)| *of == k)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn transactions_and_plain_writes_are_a_map(steps in proptest::collection::vec(step(), 1..60)) {
        let (_, _, engine, table) = fresh(2, Durability::Periodic(100));
        let mut stored = Rows::new();
        let mut clients = vec![Client::default(); CLIENTS];
        let mut open: Vec<Arc<Transaction>> = (0..CLIENTS).map(|_| engine.begin()).collect();
        let apply = |rows: &mut Rows, changes: &[(i64, Option<String>)]| for (k, v) in changes {
            match v {
                Some(v) => rows.insert(*k, v.clone()),
                None => rows.remove(k),
            };
        };
        for step in steps {
            match step {
                Step::Write(c, changes) => {
                    let texts: Vec<(i64, Option<String>)> =
                        changes.iter().map(|(k, v)| (*k, v.map(|v| v.to_string()))).collect();
                    let borrowed: Vec<_> = texts.iter().map(|(k, v)| (*k, v.as_deref())).collect();
                    let within = open[c].begin_statement(None);
                    let written = write_in(Some(&within), &engine, &table, &borrowed);
                    let others = |k: i64| clients.iter().enumerate().any(|(o, other)| o != c && other.has(k));
                    prop_assert_eq!(written.is_err(), texts.iter().any(|(k, _)| others(*k)));
                    if written.is_ok() {
                        clients[c].changes.extend(texts);
                    }
                }
                Step::Plain(k, v) => {
                    let v = v.map(|v| v.to_string());
                    let written = write_in(None, &engine, &table, &[(k, v.as_deref())]);
                    prop_assert_eq!(written.is_err(), clients.iter().any(|client| client.has(k)));
                    if written.is_ok() {
                        apply(&mut stored, &[(k, v)]);
                    }
                }
                Step::Savepoint(c) => {
                    open[c].set_savepoint("s");
                    clients[c].savepoint = Some(clients[c].changes.len());
                }
                Step::RollBackTo(c) => {
                    let savepoint = clients[c].savepoint;
                    prop_assert_eq!(open[c].roll_back_to("s"), savepoint.is_some());
                    savepoint.into_iter().for_each(|len| clients[c].changes.truncate(len));
                }
                Step::RollBack(c) => {
                    open[c].roll_back();
                    (open[c], clients[c]) = (engine.begin(), Client::default());
                }
                Step::Commit(c) => {
                    let committing = open[c].into_commit();
                    if !committing.is_empty() {
                        engine.commit(&committing, true, &mut ReadAhead::default()).unwrap();
                    }
                    drop(committing);
                    apply(&mut stored, &clients[c].changes);
                    (open[c], clients[c]) = (engine.begin(), Client::default());
                }
                Step::Flush => engine.flush(&table).unwrap(),
            }
            prop_assert_eq!(scan_now(&engine, &table), stored.clone());
            for (transaction, client) in open.iter().zip(&clients) {
                for k in 0..6 {
                    let last = client.changes.iter().rev().find(|(of, _)| *of == k);
                    prop_assert_eq!(own(transaction, &table, k), last.map(|(_, v)| v.clone()));
                }
            }
        }
    }
}
