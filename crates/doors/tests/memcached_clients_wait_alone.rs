//! A client whose change has to wait, for others or for the disk, holds up nobody: all others are served.
#![allow(clippy::unwrap_used)]

mod memcached_subject;

use memcached_subject::{Client, Subject};
use oribi_doors::memcached::MemcachedLimits;
use oribi_engine::{Author, Decision, Engine, EngineOptions, ReadAhead, Table, WriteOp};
use oribi_net::ClientLimits;
use oribi_sim::{Hooked, Operation, SimClock};
use oribi_types::key::encode_component;
use oribi_types::{Durability, Partitioning, Schema, TableDefinition, TableOptions, ValueRef};
use std::cell::Cell;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, mpsc};

/// More than there are threads of any kind.
const CLIENTS: usize = 40;

/// A table of documents that is not the one of plain keys.
fn create(engine: &Engine) -> Arc<Table> {
    let definition = TableDefinition {
        schema_name: "public".into(),
        name: "other".into(),
        schema: Schema::key_value(),
        partitioning: Partitioning::none(),
        options: TableOptions::new(Durability::Periodic(50)),
    };
    engine.create_table(definition).unwrap()
}

/// Has the rows of `tables` in files alone.
fn leave_memory(engine: &Engine, tables: &[&Arc<Table>]) {
    let all = engine.memory().limit();
    engine.memory().reserve(all);
    tables.iter().for_each(|table| engine.flush(table).unwrap());
    engine.memory().release(all);
}

#[test]
fn others_are_served_while_many_wait_for_a_table() {
    let subject = Subject::new();
    let engine = &subject.engine;
    let table = create(engine);
    let mut other = subject.connect();
    other.ask("set public/other/cold 0 0 3\r\nold\r\n", "STORED\r\n");
    other.ask("set cold 0 0 3\r\nold\r\n", "STORED\r\n");
    leave_memory(engine, &[&table, &engine.table("default", "kv").unwrap()]);

    let held = engine.hold(&table).unwrap();
    let wait = |i: usize| -> Client {
        let mut client = subject.connect();
        // What it asked before is answered at once.
        client.send("get nothing\r\n");
        match i % 2 {
            0 => client.send(format!("set public/other/k{i} 0 0 1\r\n1\r\n")),
            _ => client.send("append public/other/cold 0 0 1\r\n+\r\n"),
        }
        client.expect("END\r\n");
        client
    };
    let mut waiting: Vec<Client> = (0..CLIENTS).map(wait).collect();
    other.ask("set mine 0 0 1\r\n1\r\n", "STORED\r\n");
    other.ask("get mine\r\nget cold\r\n", "VALUE mine 0 1\r\n1\r\nEND\r\nVALUE cold 0 3\r\nold\r\nEND\r\n");
    drop(held);
    waiting.iter_mut().for_each(|client| client.expect("STORED\r\n"));
    let appended = format!("old{}", "+".repeat(CLIENTS / 2));
    let found = format!("VALUE public/other/cold 0 {}\r\n{appended}\r\nEND\r\n", appended.len());
    other.ask("get public/other/cold\r\n", found);
}

#[test]
fn others_are_served_while_many_empty_the_bucket() {
    const OTHERS: usize = 8;
    let disk = Hooked::default();
    let env = disk.env(&Arc::new(SimClock::new()));
    let subject = Subject::on(env, Path::new("/data"), MemcachedLimits::default(), EngineOptions::default());
    let engine = &subject.engine;
    let table = create(engine);
    let mut others: Vec<Client> = (0..OTHERS).map(|_| subject.connect()).collect();
    for (i, other) in others.iter_mut().enumerate() {
        other.ask(format!("set public/other/cold{i} 0 0 3\r\nold\r\n"), "STORED\r\n");
        other.ask(format!("set warm{i} 0 0 1\r\n1\r\n"), "STORED\r\n");
    }
    leave_memory(engine, &[&table]);

    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    disk.once(Operation::Sync, "MANIFEST", move || {
        begin.send(()).unwrap();
        ended.recv().unwrap();
    });
    let empty = |_| -> Client {
        let mut client = subject.connect();
        client.ask("get nothing\r\n", "END\r\n");
        client.send("flush_all\r\n");
        client
    };
    let mut emptying: Vec<Client> = (0..CLIENTS).map(empty).collect();
    begun.recv().unwrap();
    for (i, other) in others.iter_mut().enumerate() {
        other.ask(format!("get warm{i}\r\n"), format!("VALUE warm{i} 0 1\r\n1\r\nEND\r\n"));
        other.ask(format!("set public/other/mine{i} 0 0 1\r\n1\r\n"), "STORED\r\n");
        // What reads a file leaves the loop as well.
        let found = format!("VALUE public/other/cold{i} 0 3\r\nold\r\nEND\r\n");
        other.ask(format!("get public/other/cold{i}\r\n"), found);
    }
    end.send(()).unwrap();
    emptying.iter_mut().for_each(|client| client.expect("OK\r\n"));
    disk.clear();
    others[0].ask("get warm0\r\n", "END\r\n");
}

#[test]
fn who_hung_up_keeps_its_place_until_its_change_is_made_or_others_need_it() {
    const PLACES: usize = 8;
    let clients = ClientLimits { connections_max: PLACES, ..ClientLimits::default() };
    let subject = Subject::with(MemcachedLimits { clients, ..MemcachedLimits::default() });
    let table = create(&subject.engine);
    let wait = |i: usize| {
        let mut client = subject.connect();
        client.send(format!("get nothing\r\nset public/other/k{i} 0 0 1\r\n1\r\n"));
        client.expect("END\r\n");
        client
    };
    let held = subject.engine.hold(&table).unwrap();
    let mut stays = wait(0);
    (1..PLACES / 2).for_each(|i| drop(wait(i)));
    drop(held);
    stays.expect("STORED\r\n");
    // Nobody came who needed their places.
    let made = (1..PLACES / 2).all(|i| {
        (0..1 << 16).any(|_| {
            stays.send(format!("mg public/other/k{i} v\r\n"));
            let mut answer = [0; 4];
            stays.0.read_exact(&mut answer).unwrap();
            let is_there = answer == *b"VA 1";
            if is_there {
                stays.expect("\r\n1\r\n");
            }
            is_there
        })
    });
    assert!(made);

    let held = subject.engine.hold(&table).unwrap();
    stays.send("set public/other/k0 0 0 1\r\n2\r\n");
    (1..PLACES).for_each(|i| drop(wait(i)));
    // Of those who come some are refused, until the places are free.
    let mut others = Vec::new();
    for _ in 0..1 << 12 {
        let mut other = subject.connect();
        let mut answer = [0; 4];
        let is_answered = other.0.write_all(b"mn\r\n").and_then(|()| other.0.read_exact(&mut answer));
        if is_answered.is_ok() && answer == *b"MN\r\n" {
            others.push(other);
        }
        if others.len() == PLACES - 1 {
            break;
        }
    }
    assert_eq!(others.len(), PLACES - 1);
    drop(held);
    stays.expect("STORED\r\n");
}

/// It waits as for others that write the row, but not for ever.
#[test]
fn a_row_that_a_transaction_has_locked_is_waited_for_and_then_refused() {
    let (disk, clock) = (Hooked::default(), Arc::new(SimClock::new()));
    let limits = MemcachedLimits::default();
    let subject = Subject::on(disk.env(&clock), Path::new("/data"), limits, EngineOptions::default());
    let engine = &subject.engine;
    let table = create(engine);
    let (mut client, mut other) = (subject.connect(), subject.connect());
    client.ask("set public/other/k 0 0 1\r\n0\r\n", "STORED\r\n");
    let mut key = Vec::new();
    encode_component(ValueRef::Binary(b"k"), true, &mut key);
    for waits in [true, false] {
        let transaction = engine.begin();
        let blocked = Cell::new(None);
        let within = transaction.begin_statement(None);
        let author = Author { within: Some(&within), held: None, blocked: &blocked };
        let op = WriteOp { table: &table, key: &key, read: oribi_engine::Read::Existing, row: &[] };
        let ahead = &mut ReadAhead::default();
        engine.write_as(&author, true, &[op], &mut |_, _, _| Ok(Decision::Lock), ahead).unwrap();
        if waits {
            client.send("get nothing\r\nset public/other/k 0 0 1\r\n1\r\n");
            client.expect("END\r\n");
            other.ask("get public/other/k\r\n", "VALUE public/other/k 0 1\r\n0\r\nEND\r\n");
            other.ask("set public/other/free 0 0 1\r\n1\r\n", "STORED\r\n");
            transaction.roll_back();
            client.expect("STORED\r\n");
        } else {
            clock.advance(3_000_000);
            client.ask(
                "set public/other/k 0 0 1\r\n2\r\n",
                "SERVER_ERROR a transaction has locked the row\r\n",
            );
            other.ask("get public/other/k\r\n", "VALUE public/other/k 0 1\r\n1\r\nEND\r\n");
        }
    }
    client.ask("set public/other/k 0 0 1\r\n3\r\n", "STORED\r\n");
}
