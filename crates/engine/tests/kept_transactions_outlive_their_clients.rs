//! A transaction that is kept under its number takes writes of several clients at a time, ends by commit, abort or silence, and what
//! became of it is told to whoever asks, after a crash too.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::*;
use oribi_engine::{
    Blocked, Decision, Engine, InTransaction, Read, ReadAhead, Request, Table, Tracked, TransactionState,
    WriteOp,
};
use oribi_types::{Durability, ErrorKind, Result};
use std::cell::Cell;
use std::sync::Arc;

fn statement(engine: &Engine, id: u64) -> InTransaction {
    engine.kept(id).unwrap().begin_statement(None)
}

/// Puts rows in a transaction, which answers with `result`.
fn put_in(
    engine: &Engine,
    table: &Arc<Table>,
    within: &InTransaction,
    request: Option<&Request<'_>>,
    keys: &[i64],
    result: &[u8],
) -> Result<Tracked, (ErrorKind, Option<Blocked>)> {
    let encoded: Vec<Vec<u8>> = keys.iter().map(|k| key(*k)).collect();
    let op = |key| WriteOp { table, key, read: Read::Existing, row: &[] };
    let ops: Vec<WriteOp<'_>> = encoded.iter().map(|key| op(key)).collect();
    let blocked = Cell::new(None);
    let decide = &mut |i: usize, _: Option<oribi_engine::RowVersion<'_>>, row: &mut Vec<u8>| {
        encode(table, "in", keys[i], row);
        Ok(Decision::Put)
    };
    let answer = &mut |out: &mut Vec<u8>| out.extend(result);
    let ahead = &mut ReadAhead::default();
    let written = engine.write_kept((within, &blocked), false, request, &ops, decide, answer, ahead);
    written.map_err(|error| (error.kind(), blocked.take()))
}

fn insert(engine: &Engine, table: &Arc<Table>, id: u64, keys: &[i64]) {
    put_in(engine, table, &statement(engine, id), None, keys, b"").unwrap();
}

fn commit(engine: &Arc<Engine>, id: u64) -> Result<()> {
    let Some(mut commit) = engine.begin_commit(id)? else { return Ok(()) };
    let commit = commit.apply(true, &mut ReadAhead::default())?;
    engine.settle(commit.obligation)
}

fn rows(engine: &Engine, table: &Arc<Table>) -> usize {
    scan_now(engine, table).len()
}

#[test]
fn what_became_of_each_is_told_after_a_crash_too() {
    let (files, _, engine, table) = fresh(3, Durability::Sync);
    let begin = || engine.begin_kept("ada", None).unwrap();
    let [written, empty, aborted, open] = [begin(), begin(), begin(), begin()];
    for (id, k) in [(written, 1), (aborted, 2), (open, 3)] {
        insert(&engine, &table, id, &[k]);
    }
    assert_eq!(engine.state_of(written).unwrap(), TransactionState::Open);
    assert_eq!(rows(&engine, &table), 0);
    commit(&engine, written).unwrap();
    commit(&engine, empty).unwrap();
    engine.abort(aborted, "a test").unwrap();
    let told = |engine: &Arc<Engine>| {
        let TransactionState::Committed(Some(ts), obligation) = engine.state_of(written).unwrap() else {
            panic!("{:?}", engine.state_of(written))
        };
        assert!(engine.is_settled(obligation) && ts <= engine.read_view().ts);
        assert!(matches!(engine.state_of(empty).unwrap(), TransactionState::Committed(None, _)));
        assert_eq!(engine.state_of(aborted).unwrap(), TransactionState::Aborted);
        // Each again is what it was.
        commit(engine, written).unwrap();
        engine.abort(aborted, "a test").unwrap();
        assert_eq!(engine.abort(written, "a test").unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(commit(engine, aborted).unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(engine.kept(written).err().unwrap().kind(), ErrorKind::Conflict);
        for unknown in [0, 7, written - 4_000_000_000, u64::MAX] {
            assert_eq!(engine.state_of(unknown).unwrap_err().kind(), ErrorKind::NotFound, "{unknown}");
        }
        ts
    };
    let ts = told(&engine);
    assert_eq!(engine.state_of(open).unwrap(), TransactionState::Open);

    let (killed, of) = after_kill(&files);
    assert_eq!(told(&killed), ts);
    assert_eq!(
        killed.state_of(open).unwrap(),
        TransactionState::Aborted,
        "it was open when the process died"
    );
    assert_eq!(scan_now(&killed, &of), model(&[(1, "in")]));
    assert!(killed.begin_kept("ada", None).unwrap() > open);
    killed.close().unwrap();

    // The log is trimmed by a flush: the manifest knows.
    engine.close().unwrap();
    let (closed, _) = after_kill(&files);
    assert_eq!(told(&closed), ts);
    closed.close().unwrap();
}

#[test]
fn one_that_nobody_names_is_aborted_and_its_rows_are_free() {
    let (_, clock, engine, table) = fresh(1, Durability::Sync);
    let [silent, heard] = [(); 2].map(|()| engine.begin_kept("ada", None).unwrap());
    insert(&engine, &table, silent, &[1]);
    insert(&engine, &table, heard, &[2]);
    let silence = engine.options().transaction_silence_ms * 1000;
    clock.advance(silence / 2);
    engine.kept(heard).unwrap();
    clock.advance(silence / 2);
    engine.end_silent_transactions();
    assert_eq!(engine.state_of(silent).unwrap(), TransactionState::Aborted);
    assert_eq!(engine.state_of(heard).unwrap(), TransactionState::Open);
    put(&engine, &table, 1, "out").unwrap();
    let (open, ended) = engine.transactions();
    assert_eq!(open.iter().map(|open| open.id).collect::<Vec<_>>(), [heard]);
    assert_eq!((open[0].owner.as_deref(), open[0].locked_rows), (Some("ada"), 1));
    assert_eq!((ended[0].id, ended[0].rows), (silent, None));
    assert!(ended[0].why.as_ref().unwrap().contains("nobody has named it"), "{ended:?}");
    clock.advance(2 * silence);
    engine.end_silent_transactions();
    assert!(engine.transactions().0.is_empty());
}

#[test]
fn a_write_or_a_begin_that_is_sent_again_is_answered_as_it_was() {
    let (_, _, engine, table) = fresh(1, Durability::Sync);
    let request = |sequence| Request { client: b"client", sequence, first_incomplete: 1 };
    let id = engine.begin_kept("ada", Some(&request(1))).unwrap();
    assert_eq!(engine.begin_kept("ada", Some(&request(1))).unwrap(), id);
    assert_ne!(engine.begin_kept("ada", Some(&request(2))).unwrap(), id);
    let within = statement(&engine, id);
    for result in [b"first", b"again"] {
        let tracked = put_in(&engine, &table, &within, Some(&request(3)), &[1], result).unwrap();
        let Tracked::Answered(answered) = tracked else { panic!("{tracked:?}") };
        assert_eq!(&*answered.result, b"first");
    }
    assert_eq!(engine.kept(id).unwrap().overlay(&table, None).unwrap().keys.len(), 1);
    engine.close().unwrap();
}

#[test]
fn a_write_that_fails_takes_nothing_from_those_beside_it() {
    const WRITERS: i64 = 4;
    const WRITES: i64 = 200;
    let (_, _, engine, table) = fresh(2, Durability::Periodic(100));
    let other = engine.begin_kept("ada", None).unwrap();
    insert(&engine, &table, other, &[-1]);
    let id = engine.begin_kept("bob", None).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (engine, table) = (&engine, &table);
            scope.spawn(move || {
                for k in (0..WRITES).map(|i| i * WRITERS + writer) {
                    // Of two rows one is locked by another: neither is written.
                    let within = statement(engine, id);
                    let refused = loop {
                        match put_in(engine, table, &within, None, &[k + 10_000, -1], b"") {
                            // Another writer has its latch.
                            Err((ErrorKind::WouldBlock, None)) => std::thread::yield_now(),
                            refused => break refused.unwrap_err(),
                        }
                    };
                    assert!(refused.0 == ErrorKind::WouldBlock && refused.1.is_some());
                    while let Err((ErrorKind::WouldBlock, None)) =
                        put_in(engine, table, &within, None, &[k], b"")
                    {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    engine.abort(other, "a test").unwrap();
    commit(&engine, id).unwrap();
    let expected = (0..WRITERS * WRITES).map(|k| (k, "in")).collect::<Vec<_>>();
    assert_eq!(scan_now(&engine, &table), model(&expected));
    engine.close().unwrap();
}

#[test]
fn of_an_abort_beside_a_commit_one_comes_true() {
    let (_, _, engine, table) = fresh(2, Durability::Periodic(100));
    for k in 0..200 {
        let id = engine.begin_kept("ada", None).unwrap();
        insert(&engine, &table, id, &[k]);
        let (committed, aborted) = std::thread::scope(|scope| {
            let abort = scope.spawn(|| engine.abort(id, "a test"));
            (commit(&engine, id), abort.join().unwrap())
        });
        assert_ne!(committed.is_ok(), aborted.is_ok(), "{committed:?} {aborted:?}");
        let is_told = matches!(engine.state_of(id).unwrap(), TransactionState::Committed(..));
        let is_there = get(&engine, &table, k).is_some();
        assert_eq!((is_told, is_there), (committed.is_ok(), committed.is_ok()));
    }
    engine.close().unwrap();
}

#[test]
fn one_that_is_about_to_commit_takes_no_more_and_is_aborted_if_that_is_given_up() {
    let (_, _, engine, table) = fresh(1, Durability::Sync);
    let id = engine.begin_kept("ada", None).unwrap();
    insert(&engine, &table, id, &[1]);
    let within = statement(&engine, id);
    let begun = engine.begin_commit(id).unwrap().unwrap();
    assert_eq!(engine.state_of(id).unwrap(), TransactionState::CommitInProgress);
    assert!(engine.begin_commit(id).unwrap().is_none(), "somebody has it in hand");
    assert_eq!(engine.abort(id, "a test").unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(put_in(&engine, &table, &within, None, &[2], b"").unwrap_err().0, ErrorKind::Unavailable);
    drop(begun);
    assert_eq!(engine.state_of(id).unwrap(), TransactionState::Aborted);
    put(&engine, &table, 1, "out").unwrap();
    engine.close().unwrap();
}

#[test]
fn a_commit_over_a_row_that_went_is_an_abort() {
    let (_, _, engine, table) = fresh(1, Durability::Sync);
    put(&engine, &table, 1, "old").unwrap();
    let id = engine.begin_kept("ada", None).unwrap();
    insert(&engine, &table, id, &[1]);
    engine.truncate(&table).unwrap();
    assert!(matches!(commit(&engine, id).unwrap_err().kind(), ErrorKind::Conflict | ErrorKind::Retry));
    assert_eq!(engine.state_of(id).unwrap(), TransactionState::Aborted);
    assert!(engine.transactions().1[0].why.is_some());
    assert_eq!(rows(&engine, &table), 0);
    engine.close().unwrap();
}

#[test]
fn two_that_wait_for_each_other_by_several_writes_are_found() {
    let (_, _, engine, table) = fresh(1, Durability::Sync);
    let [a, b, c] = [(); 3].map(|()| engine.begin_kept("ada", None).unwrap());
    for (id, k) in [(a, 1), (b, 2), (c, 3)] {
        insert(&engine, &table, id, &[k]);
    }
    let wait = |id: u64, k: i64| {
        let (_, blocked) = put_in(&engine, &table, &statement(&engine, id), None, &[k], b"").unwrap_err();
        engine.wait_for_row(Some(&engine.kept(id).unwrap()), blocked.unwrap())
    };
    let for_b = wait(a, 2).unwrap();
    let for_c = wait(a, 3).unwrap();
    let waits: Vec<Vec<u64>> = engine.transactions().0.into_iter().map(|open| open.waits_for).collect();
    assert_eq!(waits, [vec![b, c], vec![], vec![]]);
    assert_eq!(wait(b, 1).err().unwrap().kind(), ErrorKind::Conflict, "one of two waits closes the circle");
    drop(for_b);
    drop(wait(b, 1).unwrap());
    drop(for_c);
    engine.close().unwrap();
}
