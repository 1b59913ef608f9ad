//! A write behind one that is still being applied, and so not seen by others yet; and bulk writes, which others do not wait for.

use super::*;
use crate::options::EngineOptions;
use oribi_env::Env;
use oribi_sim::{Hooked, Operation, SimClock, SimFiles};
use oribi_types::schema::ColumnSpec;
use oribi_types::{
    ColumnType, Durability, ErrorKind, Partitioning, Schema, TableDefinition, TableOptions, ValueRef,
};
use std::path::Path;
use std::sync::{Mutex, mpsc};
use std::thread::{self, ScopedJoinHandle};

fn fresh() -> (Arc<Engine>, Arc<Table>) {
    let engine = open(&SimFiles::new());
    let table = add_table(&engine, "t");
    (engine, table)
}

fn open(files: &SimFiles) -> Arc<Engine> {
    open_in(Env { files: Arc::new(files.clone()), clock: Arc::new(SimClock::new()) })
}

fn open_in(env: Env) -> Arc<Engine> {
    let options = EngineOptions {
        background: false,
        fragment_bytes: 200,
        log_bytes_max: 8 << 20,
        ..EngineOptions::with_memory(64 << 20)
    };
    Engine::open(env, Path::new("/db"), options).unwrap()
}

fn add_table(engine: &Engine, name: &str) -> Arc<Table> {
    let columns =
        vec![ColumnSpec::new("k", ColumnType::Int64).not_null(), ColumnSpec::new("v", ColumnType::String)];
    let table = engine.create_table(TableDefinition {
        schema_name: "public".into(),
        name: name.into(),
        schema: Schema::new(columns, &["k"]).unwrap(),
        partitioning: Partitioning::none(),
        options: TableOptions::new(Durability::Periodic(100)),
    });
    table.unwrap()
}

fn key(k: i64) -> Vec<u8> {
    let mut key = Vec::new();
    oribi_types::key::encode_component(ValueRef::Int64(k), true, &mut key);
    key
}

/// Puts a row on a thread that others wait for.
fn try_put(engine: &Engine, table: &Arc<Table>, k: i64) -> Result<Commit> {
    let op = WriteOp { table, key: &key(k), read: Read::Blind, row: &[] };
    engine.try_write(&[op], &mut |_, _, row| {
        table.schema_ref().layout().encode(&[ValueRef::String("v")], row);
        Ok(Decision::Put)
    })
}

/// Its own client sees it; its answer waits until everybody does.
#[test]
fn a_write_behind_one_that_is_applied_is_made_and_its_answer_waits() {
    let (engine, table) = fresh();
    let earlier = engine.timeline.begin(engine.timeline.now_micros());
    let commit = try_put(&engine, &table, 2).unwrap();
    assert!(engine.snapshot().ts() < commit.ts && commit.obligation.visible == commit.ts);
    assert!(!engine.is_settled(commit.obligation));
    let found = |view| engine.get(&table, &key(2), view, |_| ()).unwrap().0.is_some();
    assert!(found(engine.read_view_from(commit.obligation.visible)));
    // To be refused for what nobody sees is to be told of it.
    let op = WriteOp { table: &table, key: &key(2), read: Read::Existing, row: &[] };
    let seen = engine
        .try_write(&[op], &mut |_, current, _| Err(Error::already_exists(format!("{}", current.is_some()))));
    assert_eq!(seen.unwrap_err().kind(), ErrorKind::WouldBlock);
    // What others have seen elsewhere is below the next write, and need not be waited for.
    engine.precede(false, commit.ts).unwrap();
    assert!(try_put(&engine, &table, 3).unwrap().ts > commit.ts);
    engine.timeline.complete(earlier);
    engine.settle(commit.obligation).unwrap();
    assert!(engine.snapshot().ts() >= commit.ts && engine.is_settled(commit.obligation));
    assert!(found(engine.read_view()));
}

/// Nor does who asks what became of a request wait on a thread that others wait for.
#[test]
fn the_result_of_a_write_that_is_not_seen_yet_is_told_at_once_and_its_answer_waits() {
    let (engine, table) = fresh();
    let earlier = engine.timeline.begin(engine.timeline.now_micros());
    let request = Request { client: b"client", sequence: 1, first_incomplete: 1 };
    let op = WriteOp { table: &table, key: &key(1), read: Read::Blind, row: &[] };
    let mut decide = |_: usize, _: Option<RowVersion<'_>>, _: &mut Vec<u8>| Ok(Decision::Delete);
    let ahead = &mut ReadAhead::default();
    engine.write_tracked_again(false, &request, &[op], &mut decide, &mut |_| {}, ahead).unwrap();
    let Some(Tracked::Answered(known)) = engine.tracked(&request).unwrap() else { panic!("it is known") };
    assert_eq!(known.commit.obligation.visible, known.commit.ts);
    assert!(!engine.is_settled(known.commit.obligation));
    // Nor is who waits for others told that it may answer before.
    let again = engine.write_tracked_again(true, &request, &[], &mut decide, &mut |_| {}, ahead).unwrap();
    let Tracked::Answered(again) = again else { panic!("it is known") };
    assert!(!engine.is_settled(again.commit.obligation));
    engine.timeline.complete(earlier);
    engine.settle(known.commit.obligation).unwrap();
}

/// A timestamp is kept for a change that is still to be made: others get those below it, and go on.
#[test]
fn writes_before_an_appointment_are_seen_and_what_is_observed_beyond_it_waits() {
    let (engine, table) = fresh();
    let appointment = engine.timeline.appoint(engine.timeline.now_micros());
    let at = appointment.at();
    for k in 0..100 {
        let commit = try_put(&engine, &table, k).unwrap();
        assert!(commit.ts < at && engine.snapshot().ts() == commit.ts);
    }
    assert_eq!(engine.precede(false, at).unwrap_err().kind(), ErrorKind::WouldBlock);
    // However late it is kept.
    for _ in 0..100_000 {
        let late = engine.timeline.begin(at.micros() + 1_000_000);
        engine.timeline.complete(late);
    }
    assert_eq!(appointment.keep(), at);
    let after = try_put(&engine, &table, 1).unwrap();
    assert!(after.ts > at && engine.snapshot().ts() < at, "the change is not made yet");
    engine.timeline.complete(at);
    assert_eq!(engine.snapshot().ts(), after.ts);
    engine.precede(false, Timestamp::from_micros(at.micros() + 1000)).unwrap();
    // One that is not kept leaves nothing.
    drop(engine.timeline.appoint(engine.timeline.now_micros()));
    assert!(try_put(&engine, &table, 1).unwrap().ts > after.ts);
}

/// Puts rows from `first` on, of which each has the value `v`, as one write.
fn put_many(engine: &Engine, table: &Arc<Table>, keys: Range<i64>, v: &str) -> Result<Commit> {
    let keys: Vec<Vec<u8>> = keys.map(key).collect();
    let ops: Vec<WriteOp<'_>> =
        keys.iter().map(|key| WriteOp { table, key, read: Read::Existing, row: &[] }).collect();
    engine.write(&ops, &mut |_, _, row| {
        table.schema_ref().layout().encode(&[ValueRef::String(v)], row);
        Ok(Decision::Put)
    })
}

fn v(engine: &Engine, table: &Arc<Table>, k: i64, view: crate::ReadView) -> Option<String> {
    let text =
        |row: RowVersion<'_>| match oribi_types::RowRef::new(table.schema_ref().layout(), row.row).get(0) {
            Some(ValueRef::String(v)) => v.to_owned(),
            other => panic!("v is {other:?}"),
        };
    engine.get(table, &key(k), view, text).unwrap().0
}

/// Until the newest version of the row is one at or above `ts`.
fn until_applied(engine: &Engine, table: &Arc<Table>, k: i64, ts: Timestamp) {
    let key = key(k);
    let target = engine.index.key(table.tablet_of(&key).generation(), &key);
    while !engine.index.read(target, |newest| newest.meta.ts >= ts).unwrap_or(false) {
        thread::yield_now();
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().expect("it does not panic")
}

/// Applied as it is, and not committed, it is in nobody's way, and seen by nobody: rows that it replaces, in memory and in files, and
/// rows that are new.
#[test]
fn others_write_and_read_while_a_bulk_write_is_applied() {
    let (engine, table) = fresh();
    let other = add_table(&engine, "other");
    put_many(&engine, &table, 0..2, "file").unwrap();
    engine.flush(&table).unwrap();
    engine.index.evict_excess();
    put_many(&engine, &table, 2..4, "memory").unwrap();
    let before = engine.snapshot();
    // Another bulk write, which is not done yet.
    let earlier = engine.timeline.appoint_fixed(engine.timeline.now_micros()).unwrap();
    let (bulk, small) = thread::scope(|scope| {
        let bulk = scope.spawn(|| put_many(&engine, &table, 0..1000, "bulk").unwrap());
        until_applied(&engine, &table, 999, earlier.at());
        let small = (0..100).map(|k| try_put(&engine, &other, k).unwrap().ts);
        let small: Vec<Timestamp> = small.collect();
        assert!(engine.snapshot().ts() == small[99] && small[99] < earlier.at(), "they are seen");
        for view in [engine.read_view(), before.view(), engine.snapshot().view()] {
            assert_eq!(v(&engine, &table, 0, view).as_deref(), Some("file"));
            assert_eq!(v(&engine, &table, 3, view).as_deref(), Some("memory"));
            assert_eq!(v(&engine, &table, 999, view), None);
        }
        // Who has looked at all that this snapshot sees has not seen all that is there.
        assert!(!engine.timeline.is_quiet_at(engine.snapshot().ts()));
        // Who sees what it wrote itself before others do.
        let own = engine.read_view_from(small[99]);
        assert_eq!(v(&engine, &other, 99, own).as_deref(), Some("v"));
        assert!(!bulk.is_finished());
        earlier.keep();
        engine.timeline.complete(earlier.at());
        (joined(bulk), small[99])
    });
    assert!(bulk.ts > earlier.at() && bulk.ts > small);
    assert!(try_put(&engine, &other, 100).unwrap().ts > bulk.ts);
    for k in [0, 3, 999] {
        assert_eq!(v(&engine, &table, k, engine.read_view()).as_deref(), Some("bulk"));
    }
    assert_eq!(v(&engine, &table, 3, before.view()).as_deref(), Some("memory"));
    assert!(engine.timeline.is_quiet_at(engine.snapshot().ts()));
}

/// Nor does a seal: it waits, and whoever writes few rows does not.
#[test]
fn bulk_writes_commit_in_the_order_of_their_timestamps_and_a_flush_comes_behind() {
    let (engine, table) = fresh();
    let first = engine.timeline.appoint_fixed(engine.timeline.now_micros()).unwrap();
    let (other, aside) = (add_table(&engine, "other"), add_table(&engine, "aside"));
    thread::scope(|scope| {
        let (engine, table) = (&engine, &table);
        let second = scope.spawn(|| put_many(engine, table, 0..300, "second").unwrap());
        until_applied(engine, table, 299, first.at());
        let third = scope.spawn(|| put_many(engine, &other, 0..300, "third").unwrap());
        until_applied(engine, &other, 299, first.at());
        let flush = scope.spawn(|| engine.flush(table).unwrap());
        assert!(try_put(engine, &aside, 1).unwrap().ts < first.at() && !flush.is_finished());
        first.keep();
        engine.timeline.complete(first.at());
        let (second, third) = (joined(second), joined(third));
        joined(flush);
        assert!(second.ts > first.at() && third.ts > second.ts);
        assert!(third.obligation.lsn() > second.obligation.lsn());
    });
    for table in [&table, &other] {
        let rows = (0..300).filter(|k| v(&engine, table, *k, engine.read_view()).is_some());
        assert_eq!(rows.count(), 300);
    }
}

/// A flush of what a bulk write replaces must not tell of it before its commit is in the log: a crash would forget both rows.
#[test]
fn a_flush_of_rows_that_a_bulk_write_replaces_waits_for_its_commit() {
    let files = SimFiles::new();
    let engine = open(&files);
    let table = add_table(&engine, "t");
    put_many(&engine, &table, 0..300, "old").unwrap();
    engine.seal(&table);
    let earlier = engine.timeline.appoint_fixed(engine.timeline.now_micros()).unwrap();
    thread::scope(|scope| {
        let bulk = scope.spawn(|| put_many(&engine, &table, 0..300, "new").unwrap());
        until_applied(&engine, &table, 299, earlier.at());
        let flush = scope.spawn(|| engine.flush_sealed(&table).unwrap());
        // Time enough for one that does not wait.
        for _ in 0..20_000 {
            thread::yield_now();
        }
        let again = open(&files.kill());
        let found = again.table("public", "t").unwrap();
        // Its clock is past the bulk write's timestamp.
        put_many(&again, &add_table(&again, "other"), 0..300, "later").unwrap();
        for k in [0, 150, 299] {
            assert_eq!(v(&again, &found, k, again.read_view()).as_deref(), Some("old"));
        }
        earlier.keep();
        engine.timeline.complete(earlier.at());
        joined(bulk);
        joined(flush);
    });
    assert_eq!(v(&engine, &table, 150, engine.read_view()).as_deref(), Some("new"));
}

/// What cannot be moved gets its timestamp; what can, waits or is moved, and nobody waits for the other one.
#[test]
fn a_bulk_write_comes_before_a_change_that_can_be_moved_until_there_is_no_place() {
    let (engine, table) = fresh();
    let timeline = &engine.timeline;
    let change = timeline.appoint(timeline.now_micros());
    let mut last = timeline.last();
    let mut bulk_writes = 0;
    while let Some(bulk) = timeline.appoint_fixed(timeline.now_micros()) {
        assert!(bulk.at() > last && bulk.at() < change.at());
        last = bulk.keep();
        timeline.complete(last);
        bulk_writes += 1;
    }
    assert!(bulk_writes > 2, "{bulk_writes}");
    // Then it has its timestamp as others do.
    let commit = put_many(&engine, &table, 0..100, "v").unwrap();
    assert!(commit.ts > last && commit.ts < change.at() && engine.snapshot().ts() == commit.ts);
    let at = change.at();
    assert_eq!(change.keep(), at);
    timeline.complete(at);
    // One that is due waits for those before it, and others come behind.
    let bulk = timeline.appoint_fixed(timeline.now_micros()).unwrap();
    let change = timeline.appoint(timeline.now_micros());
    let at = change.at();
    thread::scope(|scope| {
        let kept = scope.spawn(|| change.keep());
        while !timeline.is_due(at) {
            thread::yield_now();
        }
        let behind = timeline.appoint_fixed(timeline.now_micros()).unwrap();
        assert!(!kept.is_finished());
        timeline.complete(bulk.keep());
        let kept = joined(kept);
        assert!(kept > bulk.at() && kept < behind.at());
        timeline.complete(kept);
        behind.wait_for_turn().unwrap();
        timeline.complete(behind.keep());
    });
}

/// However long it takes: the clock alone makes nobody wait.
#[test]
fn timestamps_before_a_bulk_write_are_not_scarce_because_time_passes() {
    let (engine, table) = fresh();
    let timeline = &engine.timeline;
    let bulk = timeline.appoint_fixed(timeline.now_micros()).unwrap();
    for millis in 0..1000 {
        timeline.complete(timeline.begin(timeline.now_micros() + millis * 1000));
        assert!(!timeline.is_scarce(), "after {millis} ms");
    }
    assert!(try_put(&engine, &table, 1).unwrap().ts < bulk.at());
    timeline.complete(bulk.keep());
}

/// A bulk write does not move: there are so many timestamps before it. Who has begun to write gets one; who begins waits.
#[test]
fn writes_wait_for_a_bulk_write_once_timestamps_before_it_are_scarce() {
    let (engine, table) = fresh();
    let timeline = &engine.timeline;
    // Not far ahead.
    let change = timeline.appoint(timeline.now_micros());
    let bulk = loop {
        let bulk = timeline.appoint_fixed(timeline.now_micros()).unwrap();
        if bulk.at().0 - timeline.last().0 < 1 << 20 {
            break bulk;
        }
        timeline.complete(bulk.keep());
    };
    drop(change);
    let before = bulk.at().0 - timeline.last().0;
    for _ in 0..before * 3 / 4 + 1 {
        assert!(!timeline.is_scarce());
        timeline.complete(timeline.begin(0));
    }
    assert!(timeline.is_scarce());
    assert_eq!(try_put(&engine, &table, 1).unwrap_err().kind(), ErrorKind::WouldBlock);
    // Raising the ceiling does not help.
    engine.raise_ceiling(true).unwrap();
    assert_eq!(try_put(&engine, &table, 1).unwrap_err().kind(), ErrorKind::WouldBlock);
    thread::scope(|scope| {
        let waits = scope.spawn(|| put_many(&engine, &table, 1..2, "v").unwrap());
        timeline.complete(timeline.begin(0));
        timeline.complete(bulk.keep());
        assert!(joined(waits).ts > bulk.at());
    });
    assert!(try_put(&engine, &table, 1).is_ok());
}

/// A request is applied once, though its write comes in fragments, and its result stands in the commit.
#[test]
fn a_bulk_write_with_a_request_id_is_answered_once() {
    let (engine, table) = fresh();
    let keys: Vec<Vec<u8>> = (0..100).map(key).collect();
    let ops: Vec<WriteOp<'_>> =
        keys.iter().map(|key| WriteOp { table: &table, key, read: Read::Blind, row: &[] }).collect();
    let request = Request { client: b"client", sequence: 1, first_incomplete: 1 };
    let mut calls = 0;
    for _ in 0..2 {
        let mut decide = |_: usize, _: Option<RowVersion<'_>>, row: &mut Vec<u8>| {
            calls += 1;
            table.schema_ref().layout().encode(&[ValueRef::String("v")], row);
            Ok(Decision::Put)
        };
        let answer = &mut |result: &mut Vec<u8>| result.extend_from_slice(b"done");
        let tracked = engine.write_tracked(&request, &ops, &mut decide, answer).unwrap();
        let Tracked::Answered(answered) = tracked else { panic!("it is answered") };
        assert_eq!(&answered.result[..], b"done");
        engine.settle(answered.commit.obligation).unwrap();
    }
    assert_eq!(calls, 100);
}

/// Puts a hundred rows on a thread that others wait for.
fn try_put_many(engine: &Engine, table: &Arc<Table>) -> Result<Commit> {
    let keys: Vec<Vec<u8>> = (0..100).map(key).collect();
    let ops: Vec<WriteOp<'_>> =
        keys.iter().map(|key| WriteOp { table, key, read: Read::Blind, row: &[] }).collect();
    engine.try_write(&ops, &mut |_, _, row| {
        table.schema_ref().layout().encode(&[ValueRef::String("v")], row);
        Ok(Decision::Put)
    })
}

/// Those who are told to wait there try again and again.
#[test]
fn a_bulk_write_that_is_refused_at_the_gate_has_logged_nothing() {
    let (engine, table) = fresh();
    let before = engine.log.appended();
    let gate = engine.gate.alone();
    for _ in 0..3 {
        assert_eq!(try_put_many(&engine, &table).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    assert_eq!(engine.log.appended(), before);
    drop(gate);
    try_put_many(&engine, &table).unwrap();
    assert!(engine.log.appended() > before + 1, "it is one of fragments");
}

/// One that is refused behind its fragments leaves none that count, and no room is kept for its commit.
#[test]
fn a_bulk_write_that_is_refused_behind_its_fragments_is_given_up() {
    let hooked = Hooked::default();
    let engine = open_in(hooked.env(&Arc::new(SimClock::new())));
    let table = add_table(&engine, "t");
    let before = engine.log.appended();
    thread::scope(|scope| {
        let ((logs, logged), (close, closed)) = (mpsc::channel(), mpsc::channel());
        let (open, is_open) = mpsc::channel::<()>();
        let (log, waits) = (engine.clone(), Mutex::new(Some((logs, closed))));
        hooked.set(move |operation, path| {
            // The log prepares segments, too.
            if operation == Operation::Write && path.contains("wal") && log.log.appended() > before {
                let waits = waits.lock().unwrap().take();
                if let Some((logs, closed)) = waits {
                    logs.send(()).unwrap();
                    closed.recv().unwrap();
                }
            }
        });
        let engine = &engine;
        scope.spawn(move || {
            logged.recv().unwrap();
            let _gate = engine.gate.alone();
            close.send(()).unwrap();
            is_open.recv().unwrap_err();
        });
        assert_eq!(try_put_many(engine, &table).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(open);
    });
    hooked.clear();
    assert!(engine.log.appended() > before && engine.fragmented.first().is_none());
    assert_eq!(v(&engine, &table, 1, engine.read_view()), None);
    put_many(&engine, &table, 0..100, "v").unwrap();
    assert_eq!(v(&engine, &table, 1, engine.read_view()).as_deref(), Some("v"));
}

/// The log keeps the first fragment as long as one row of the write is in no file.
#[test]
fn a_log_that_is_trimmed_keeps_a_bulk_write_that_is_not_flushed() {
    let files = SimFiles::new();
    let engine = open(&files);
    let tables = ["t", "other"].map(|name| add_table(&engine, name));
    let put_all = |v: &str| {
        let keys: Vec<Vec<u8>> = (0..100).map(key).collect();
        let op =
            |i: usize| WriteOp { table: &tables[i / 100], key: &keys[i % 100], read: Read::Blind, row: &[] };
        let ops: Vec<WriteOp<'_>> = (0..200).map(op).collect();
        let put = |i: usize, _: Option<RowVersion<'_>>, row: &mut Vec<u8>| {
            ops[i].table.schema_ref().layout().encode(&[ValueRef::String(v)], row);
            Ok(Decision::Put)
        };
        engine.write(&ops, &mut { put }).unwrap();
    };
    let oldest = engine.log.oldest();
    for round in 0..10 {
        put_all(&round.to_string());
        // Segments come and go.
        put_many(&engine, &tables[0], 1000..1100, &"x".repeat(20_000)).unwrap();
        engine.flush(&tables[round % 2]).unwrap();
        engine.trim_log().unwrap();
        // Another time the first fragment may be gone, and the commit not.
        let again = open(&files.kill());
        for name in ["t", "other"] {
            let table = again.table("public", name).unwrap();
            let found = (0..100).map(|k| v(&again, &table, k, again.read_view()));
            assert!(found.into_iter().all(|v| v == Some(round.to_string())), "{name}");
        }
        assert!(again.table("public", "t").is_ok_and(|t| v(&again, &t, 1099, again.read_view()).is_some()));
    }
    assert!(engine.log.oldest() > oldest, "it was trimmed");
}
