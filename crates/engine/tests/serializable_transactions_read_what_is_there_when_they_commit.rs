//! A serializable transaction is committed only if what it has read is still the same: rows by their keys, also those that were not
//! there, and tablets that it has scanned, whatever was written there, and however.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::transactions::write_as;
use common::*;
use oribi_engine::{
    Author, CatalogChange, Decision, Engine, EngineOptions, Read, ReadAhead, Snapshot, Table, Transaction,
    WriteOp,
};
use oribi_sim::{Hooked, Operation, SimClock};
use oribi_types::{Durability, ErrorKind, Result};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

/// A transaction that reads as `read` says and then writes row 100, and what becomes of it if `meanwhile` comes between.
fn outcome(
    read: impl FnOnce(&Transaction, &Arc<Table>),
    meanwhile: impl FnOnce(&Arc<Engine>, &Arc<Table>),
) -> Result<()> {
    let (_, _, engine, table) = fresh(2, Durability::Sync);
    for k in 0..10 {
        put(&engine, &table, k, "old").unwrap();
    }
    engine.flush(&table).unwrap();
    put(&engine, &table, 1, "in memory").unwrap();
    let transaction = engine.begin();
    let snapshot = transaction.serialize();
    read(&transaction, &table);
    write(&transaction, &table, 100, &snapshot, &engine).unwrap();
    meanwhile(&engine, &table);
    let committed = commit(&engine, &transaction);
    let is_there = get(&engine, &table, 100).is_some();
    assert_eq!(is_there, committed.is_ok());
    committed
}

fn write(
    transaction: &Arc<Transaction>,
    table: &Arc<Table>,
    k: i64,
    snapshot: &Snapshot,
    engine: &Engine,
) -> Result<()> {
    let (key, blocked) = (key(k), Cell::new(None));
    let within = transaction.begin_statement(Some(snapshot.ts()));
    let author = Author { within: Some(&within), held: None, blocked: &blocked };
    let ops = [WriteOp { table, key: &key, read: Read::Existing, row: &[] }];
    let decide = &mut |_: usize, _: Option<oribi_engine::RowVersion<'_>>, row: &mut Vec<u8>| {
        encode(table, "mine", k, row);
        Ok(Decision::Put)
    };
    engine.write_as(&author, true, &ops, decide, &mut ReadAhead::default()).map(|_| ())
}

fn commit(engine: &Engine, transaction: &Arc<Transaction>) -> Result<()> {
    engine.commit(&transaction.into_commit(), true, &mut ReadAhead::default()).map(|_| ())
}

fn looks_up(keys: &'static [i64]) -> impl FnOnce(&Transaction, &Arc<Table>) {
    move |transaction, table| {
        let keys: Vec<Vec<u8>> = keys.iter().map(|k| key(*k)).collect();
        transaction.note_keys(table, keys.iter().map(Vec::as_slice));
    }
}

fn puts(k: i64) -> impl FnOnce(&Arc<Engine>, &Arc<Table>) {
    move |engine, table| {
        put(engine, table, k, "new").unwrap();
    }
}

fn deletes(k: i64) -> impl FnOnce(&Arc<Engine>, &Arc<Table>) {
    move |engine, table| {
        delete(engine, table, k).unwrap();
    }
}

fn scans(transaction: &Transaction, table: &Arc<Table>) {
    transaction.note_scan(table, &[0, 1]);
}

fn is_refused(outcome: Result<()>) -> bool {
    matches!(outcome, Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Retry))
}

#[test]
fn nothing_has_changed() {
    outcome(looks_up(&[1, 2, 50]), |_, _| {}).unwrap();
    outcome(scans, |_, _| {}).unwrap();
    // Nor is it a change of them that rows become files.
    outcome(looks_up(&[1, 2, 50]), |engine, table| engine.flush(table).unwrap()).unwrap();
    outcome(scans, |engine, table| engine.flush(table).unwrap()).unwrap();
    outcome(looks_up(&[1, 2]), puts(3)).unwrap();
}

#[test]
fn rows_that_were_looked_up_have_changed() {
    for k in [1, 2] {
        assert!(is_refused(outcome(looks_up(&[1, 2]), puts(k))), "{k} is put");
        assert!(is_refused(outcome(looks_up(&[1, 2]), deletes(k))), "{k} is deleted");
        let again = |e: &Arc<Engine>, t: &Arc<Table>| {
            delete(e, t, k).unwrap();
            put(e, t, k, "old").unwrap();
            e.flush(t).unwrap();
        };
        assert!(is_refused(outcome(looks_up(&[1, 2]), again)), "{k} went and came");
    }
    assert!(is_refused(outcome(looks_up(&[50]), puts(50))), "a row has come");
}

#[test]
fn tablets_that_were_scanned_have_changed() {
    assert!(is_refused(outcome(scans, puts(50))), "a row has come");
    assert!(is_refused(outcome(scans, deletes(3))), "a row is gone");
    let flushed = |e: &Arc<Engine>, t: &Arc<Table>| {
        delete(e, t, 3).unwrap();
        e.flush(t).unwrap();
    };
    assert!(is_refused(outcome(scans, flushed)), "what has changed is in files");
    let truncated = |e: &Arc<Engine>, t: &Arc<Table>| e.truncate(t).unwrap();
    let in_one = outcome(|t, table| t.note_scan(table, &[0]), truncated);
    assert!(is_refused(in_one), "the table is empty");
}

/// Each of two rows may go as long as the other is there: who read only snapshots would let both go.
#[test]
fn transactions_that_read_what_the_other_writes_are_not_both_committed() {
    let (_, _, engine, table) = fresh(2, Durability::Sync);
    let (committed, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for round in 0..200 {
        for k in [0, 1] {
            put(&engine, &table, k, "there").unwrap();
        }
        let together = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for me in [0, 1] {
                let (engine, table, together) = (&engine, &table, &together);
                let (committed, refused) = (&committed, &refused);
                scope.spawn(move || {
                    let transaction = engine.begin();
                    let snapshot = transaction.serialize();
                    if round % 2 == 0 {
                        transaction.note_scan(table, &[0, 1]);
                    } else {
                        let keys = [key(0), key(1)];
                        transaction.note_keys(table, keys.iter().map(Vec::as_slice));
                    }
                    let seen = scan(engine, table, &snapshot).len();
                    together.wait();
                    if seen == 2 {
                        leave(&transaction, table, me, &snapshot, engine);
                    }
                    let of = if commit(engine, &transaction).is_ok() { committed } else { refused };
                    of.fetch_add(1, Relaxed);
                });
            }
        });
        assert!(!scan_now(&engine, &table).is_empty(), "round {round}: both have gone");
    }
    assert!(refused.load(Relaxed) > 0 && committed.load(Relaxed) >= 200);
}

fn leave(transaction: &Arc<Transaction>, table: &Arc<Table>, k: i64, snapshot: &Snapshot, engine: &Engine) {
    let (key, blocked) = (key(k), Cell::new(None));
    let within = transaction.begin_statement(Some(snapshot.ts()));
    let author = Author { within: Some(&within), held: None, blocked: &blocked };
    let ops = [WriteOp { table, key: &key, read: Read::Existing, row: &[] }];
    let decide =
        &mut |_: usize, _: Option<oribi_engine::RowVersion<'_>>, _: &mut Vec<u8>| Ok(Decision::Delete);
    engine.write_as(&author, true, &ops, decide, &mut ReadAhead::default()).unwrap();
}

fn try_put(engine: &Engine, table: &Arc<Table>, k: i64) -> Result<()> {
    let (key, mut row) = (key(k), Vec::new());
    encode(table, "beside", k, &mut row);
    let op = WriteOp { table, key: &key, read: Read::Blind, row: &row };
    engine.try_write(&[op], &mut |_, _, _| Ok(Decision::Proposed)).map(drop)
}

/// A commit that writes files has its timestamp while others pass the gate, and everybody sees it later.
#[test]
fn what_a_commit_is_about_to_change_has_changed() {
    let (disk, clock) = (Hooked::default(), Arc::new(SimClock::new()));
    let options = EngineOptions { statement_bytes_max: 1400, ..quiet() };
    let engine = Engine::open(disk.env(&clock), Path::new(DIR), options).unwrap();
    let [scanned, other] =
        ["t", "u"].map(|name| engine.create_table(definition(name, 2, Durability::Sync)).unwrap());
    put(&engine, &scanned, 1, "there").unwrap();
    let reader = engine.begin();
    let snapshot = reader.serialize();
    scans(&reader, &scanned);
    write(&reader, &other, 1, &snapshot, &engine).unwrap();

    let writer = engine.begin();
    writer.change(&CatalogChange::Truncate(scanned)).unwrap();
    let emptied = writer.catalog().table("public", "t").unwrap().clone();
    let within = writer.begin_statement(None);
    for k in 0..20 {
        write_as(Some(&within), true, &engine, &emptied, &[(k, Some("new"))]).unwrap();
    }
    // While the record is synced, which comes behind the manifest.
    let (told, committed) = mpsc::channel();
    let (e, u, is_next) = (engine.clone(), other.clone(), AtomicUsize::new(0));
    disk.set(move |operation, path| {
        match operation {
            Operation::Sync if path.contains("MANIFEST") => is_next.store(1, Relaxed),
            Operation::Sync if path.contains("wal") && is_next.swap(2, Relaxed) == 1 => {
                let (of_reader, reader) = (e.clone(), reader.clone());
                told.send(std::thread::spawn(move || commit(&of_reader, &reader))).unwrap();
                // Until it waits to have the gate alone, which lets no other write in.
                while try_put(&e, &u, 2).is_ok() {
                    std::thread::yield_now();
                }
            }
            _ => {}
        }
    });
    engine.commit_with_catalog(&writer.into_commit()).unwrap();
    disk.clear();
    assert!(is_refused(committed.recv().unwrap().join().unwrap()));
    assert_eq!(get(&engine, &other, 1), None);
    assert_eq!(scan_now(&engine, &engine.table("public", "t").unwrap()).len(), 20);
}
