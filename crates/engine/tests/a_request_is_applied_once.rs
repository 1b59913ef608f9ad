//! A write with a request id is applied once and always answered with its first result: when it is sent again, at the
//! same time or later, after a kill, and when the log that had it was trimmed.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::counting::*;
use common::*;
use oribi_engine::{
    Answered, CLIENT_ID_BYTES_MAX, Commit, Decision, Engine, EngineOptions, Read, Request, Table, Tracked,
    WriteOp,
};
use oribi_sim::{Operation, SimClock, SimFiles};
use oribi_types::{Durability, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

fn request(sequence: i64, first_incomplete: i64) -> Request<'static> {
    Request { client: b"b3b1c8f0", sequence, first_incomplete }
}

fn is_stale(tracked: oribi_types::Result<Tracked>) -> bool {
    matches!(tracked.unwrap(), Tracked::Stale)
}

/// Opened again on the same disk, after a close.
fn closed_and_opened(files: &SimFiles, engine: Arc<Engine>, table: Arc<Table>) -> (Arc<Engine>, Arc<Table>) {
    engine.close().unwrap();
    drop((engine, table));
    after_kill(files)
}

/// The answer is the same, save that what recovery found is durable.
fn same(first: &Answered, again: &Answered) -> bool {
    first.commit.ts == again.commit.ts && first.result == again.result
}

#[test]
fn a_write_that_is_sent_again_is_answered_with_its_first_result() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    let first = answered(count(&engine, &table, &request(0, 0), 1));
    assert_eq!(text(&first), "1");
    assert_eq!(answered(count(&engine, &table, &request(0, 0), 1)), first, "obligation included");
    assert!(!engine.is_settled(first.commit.obligation));
    let second = answered(count(&engine, &table, &request(1, 0), 1));
    assert_eq!(text(&second), "2");
    // Whatever happens to the row.
    engine.settle(put(&engine, &table, 1, "70").unwrap().obligation).unwrap();
    assert_eq!(answered(count(&engine, &table, &request(0, 0), 1)), first);
    let other = Request { client: b"another", sequence: 0, first_incomplete: 0 };
    assert_eq!(text(&answered(count(&engine, &table, &other, 1))), "71", "another client's");
    engine.settle(engine.everything().1.must_be_durable()).unwrap();

    let (again, replayed) = after_kill(&files);
    assert!(same(&first, &answered(count(&again, &replayed, &request(0, 0), 1))), "from the log");
    let (engine, table) = closed_and_opened(&files, engine, table);
    let from_manifest = answered(count(&engine, &table, &request(0, 0), 1));
    assert!(same(&first, &from_manifest), "from the manifest");
    assert!(engine.is_settled(from_manifest.commit.obligation));
    assert!(same(&second, &answered(count(&engine, &table, &request(1, 0), 1))));
    assert_eq!(get(&engine, &table, 1).as_deref(), Some("71"));
}

#[test]
fn a_write_that_changed_nothing_keeps_its_answer() {
    for durability in [Durability::Sync, Durability::Periodic(100)] {
        let (files, _, engine, table) = fresh(1, durability);
        engine.settle(put(&engine, &table, 1, "1").unwrap().obligation).unwrap();
        let first = answered(insert(&engine, &table, &request(5, 5), 1));
        assert_eq!(text(&first), "there");
        let Commit { obligation, .. } = first.commit;
        assert!(!engine.is_settled(obligation), "its record must be as durable as the table asks");
        engine.settle(obligation).unwrap();
        delete(&engine, &table, 1).unwrap();
        assert_eq!(text(&answered(insert(&engine, &table, &request(5, 5), 1))), "there");
        engine.settle(engine.everything().1.must_be_durable()).unwrap();
        let (again, replayed) = after_kill(&files);
        assert!(same(&first, &answered(insert(&again, &replayed, &request(5, 5), 1))));
        assert_eq!(get(&again, &replayed, 1), None);
        let (engine, table) = closed_and_opened(&files, engine, table);
        assert!(same(&first, &answered(insert(&engine, &table, &request(5, 5), 1))));
        assert_eq!(get(&engine, &table, 1), None);
    }
}

#[test]
fn a_write_of_no_rows_keeps_its_answer() {
    let (files, _, engine, table) = fresh(1, Durability::Periodic(100));
    let write = |engine: &Engine, result: &'static [u8]| {
        let mut decide = |_, _: Option<oribi_engine::RowVersion<'_>>, _: &mut Vec<u8>| Ok(Decision::Put);
        answered(
            engine.write_tracked(&request(0, 0), &[], &mut decide, &mut |out| out.extend_from_slice(result)),
        )
    };
    let first = write(&engine, b"no row is valid");
    engine.settle(first.commit.obligation).unwrap();
    assert_eq!(write(&engine, b"again"), first);
    let (again, replayed) = after_kill(&files.crash(1).kill());
    drop(replayed);
    assert!(same(&first, &write(&again, b"from the log")));
    let (engine, _table) = closed_and_opened(&files, engine, table);
    assert!(same(&first, &write(&engine, b"from the manifest")));
}

#[test]
fn a_write_that_was_refused_is_decided_again() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    let error = refused(&engine, &table, &request(0, 0), 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(text(&answered(count(&engine, &table, &request(0, 0), 1))), "1");
    // A result that is too long is refused before anything is applied.
    let one = key(1);
    let op = WriteOp { table: &table, key: &one, read: Read::Blind, row: &[] };
    let long = engine.options().statement_bytes_max + 1;
    let mut delete = |_, _: Option<oribi_engine::RowVersion<'_>>, _: &mut Vec<u8>| Ok(Decision::Delete);
    let error =
        engine.write_tracked(&request(1, 0), &[op], &mut delete, &mut |out| out.resize(long, 0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(text(&answered(count(&engine, &table, &request(1, 0), 1))), "2");
    // The log takes no more.
    files.fail(Operation::Sync, 1, ".log");
    let lost = answered(count(&engine, &table, &request(2, 0), 1));
    assert!(engine.settle(lost.commit.obligation).is_err());
    assert!(count(&engine, &table, &request(3, 0), 1).is_err());
    let again = answered(count(&engine, &table, &request(2, 0), 1));
    assert!(engine.settle(again.commit.obligation).is_err(), "nor is it answered for");
}

#[test]
fn what_the_client_has_answers_to_is_refused_as_stale() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    for sequence in 0..4 {
        answered(count(&engine, &table, &request(sequence, 0), 1));
    }
    let bytes = engine.stats().result_bytes;
    let last = answered(count(&engine, &table, &request(4, 3), 1));
    assert!(engine.stats().result_bytes < bytes);
    let check = |engine: &Engine, table: &Arc<Table>, when| {
        for sequence in 0..3 {
            assert!(is_stale(count(engine, table, &request(sequence, 0), 1)), "{sequence} {when}");
        }
        assert_eq!(text(&answered(count(engine, table, &request(3, 0), 1))), "4", "{when}");
        assert_eq!(get(engine, table, 1).as_deref(), Some("5"), "{when}");
    };
    check(&engine, &table, "at once");
    assert!(is_stale(count(&engine, &table, &request(8, 9), 1)), "by its own word");
    engine.settle(last.commit.obligation).unwrap();
    let (again, replayed) = after_kill(&files);
    check(&again, &replayed, "from the log");
    let (engine, table) = closed_and_opened(&files, engine, table);
    assert!(is_stale(count(&engine, &table, &request(4, 0), 1)), "the manifest knows the client's last word");
    let (engine, table) = closed_and_opened(&files, engine, table);
    assert!(is_stale(count(&engine, &table, &request(4, 0), 1)), "and hands it on");
}

#[test]
fn client_ids_have_1_to_64_bytes() {
    let (_, _, engine, table) = fresh(1, Durability::Sync);
    let long = [0xff; CLIENT_ID_BYTES_MAX + 1];
    for (client, fits) in [(&long[..0], false), (&long[..1], true), (&long[1..], true), (&long[..], false)] {
        let request = Request { client, sequence: 0, first_incomplete: 0 };
        let error = count(&engine, &table, &request, 1).err();
        assert_eq!(error.map(|e| e.kind()), (!fits).then_some(ErrorKind::Invalid));
    }
    assert_eq!(get(&engine, &table, 1).as_deref(), Some("2"));
}

#[test]
fn no_client_speaks_for_a_transaction() {
    let (_, _, engine, table) = fresh(1, Durability::Sync);
    let number = engine.begin_kept("owner", None).unwrap();
    let of_transaction = [b"transaction ".as_slice(), &number.to_be_bytes()].concat();
    for client in [of_transaction.as_slice(), b"transactions"] {
        let request = Request { client, sequence: 1, first_incomplete: 2 };
        let refused = count(&engine, &table, &request, 1).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(engine.tracked(&request).is_err() && engine.begin_kept("owner", Some(&request)).is_err());
    }
    assert_eq!(get(&engine, &table, 1), None);
    let request = Request { client: b"transaction 7", sequence: 1, first_incomplete: 1 };
    assert!(count(&engine, &table, &request, 1).is_ok());
}

#[test]
fn of_two_that_send_a_request_at_once_one_applies_it_and_both_are_answered() {
    let (_, _, engine, table) = fresh(1, Durability::Sync);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let one = key(1);
    for refuse in [false, true] {
        let request = request(i64::from(refuse), 0);
        let (decides, deciding) = mpsc::channel();
        let (go_on, went_on) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (engine, table, one) = (&engine, &table, &one);
            let first = scope.spawn(move || {
                let op = WriteOp { table, key: one, read: Read::Blind, row: &[] };
                let mut decide = |_, _: Option<oribi_engine::RowVersion<'_>>, row: &mut Vec<u8>| {
                    decides.send(()).unwrap();
                    went_on.recv().unwrap();
                    encode(table, "10", 1, row);
                    if refuse { Err(oribi_types::Error::conflict("refused")) } else { Ok(Decision::Put) }
                };
                engine.write_tracked(&request, &[op], &mut decide, &mut |out| out.extend_from_slice(b"10"))
            });
            deciding.recv().unwrap();
            // Under the first one's latches: neither of the two waits.
            let ends = [(), ()].map(|()| match count(engine, table, &request, 1).unwrap() {
                Tracked::UnderWay(end) => end,
                other => panic!("{other:?}"),
            });
            go_on.send(()).unwrap();
            ends.into_iter().for_each(|end| runtime.block_on(end.ended()));
            let again = answered(count(engine, table, &request, 1));
            match first.join().unwrap() {
                Ok(Tracked::Answered(first)) => assert_eq!((first, refuse), (again, false)),
                Err(error) => {
                    assert_eq!((error.kind(), refuse), (ErrorKind::Conflict, true));
                    assert_eq!(text(&again), "11", "whoever comes then applies it");
                }
                other => panic!("{other:?}"),
            }
        });
    }
}

/// Threads send the same requests over and over, while memtables are flushed and the log is trimmed.
#[test]
fn requests_of_many_threads_are_applied_once_each_while_the_log_is_trimmed() {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let options = EngineOptions {
        // Every look of the flush thread flushes, and trims the log.
        flush_bytes_max: 1,
        ..EngineOptions::with_memory(64 << 20)
    };
    let env = sim_env(&files, &clock);
    let engine = Engine::open(env.clone(), Path::new(DIR), options).unwrap();
    let table = engine.create_table(definition("t", 2, Durability::Periodic(100))).unwrap();
    let (threads, requests, keys) = (4, 1500, 5);
    let answers: Vec<Vec<Answered>> = std::thread::scope(|scope| {
        let send = |sequence: i64| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            loop {
                match count(&engine, &table, &request(sequence, 0), sequence % keys).unwrap() {
                    Tracked::Answered(answered) => return answered,
                    Tracked::UnderWay(end) => runtime.block_on(end.ended()),
                    Tracked::Stale => panic!("{sequence} is stale"),
                }
            }
        };
        let client = move || (0..requests).map(send).collect();
        let clients: Vec<_> = (0..threads).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "one answer for all");
    engine.settle(engine.everything().1.must_be_durable()).unwrap();
    let counts = |engine: &Engine, table: &Arc<Table>| -> Vec<String> {
        (0..keys).map(|k| get(engine, table, k).unwrap()).collect()
    };
    assert_eq!(counts(&engine, &table), vec![(requests / keys).to_string(); keys as usize]);
    let (again, replayed) = after_kill(&files);
    for (sequence, first) in answers[0].iter().enumerate() {
        let sequence = sequence as i64;
        assert!(same(first, &answered(count(&again, &replayed, &request(sequence, 0), sequence % keys))));
    }
    assert_eq!(counts(&again, &replayed), counts(&engine, &table));
}

#[test]
fn a_result_is_forgotten_after_a_while_and_is_never_applied_again() {
    const MINUTE: u64 = 60_000_000;
    let (_, clock, engine, table) = fresh(1, Durability::Sync);
    answered(count(&engine, &table, &request(0, 0), 1));
    clock.advance(9 * MINUTE);
    clock.jump(-3_600_000_000);
    answered(count(&engine, &table, &request(1, 0), 1));
    assert_eq!(text(&answered(count(&engine, &table, &request(0, 0), 1))), "1");
    clock.advance(MINUTE);
    clock.jump(7_200_000_000);
    assert!(
        is_stale(count(&engine, &table, &request(0, 0), 1)),
        "after ten minutes, wherever the clock is set"
    );
    assert_eq!(text(&answered(count(&engine, &table, &request(1, 0), 1))), "2");
    clock.advance(59 * MINUTE);
    assert!(is_stale(count(&engine, &table, &request(1, 0), 1)), "the client is known for longer");
    clock.advance(60 * MINUTE);
    assert_eq!(text(&answered(count(&engine, &table, &request(1, 0), 1))), "3", "and then forgotten itself");
}

#[test]
fn results_are_within_the_memory_budget() {
    let (_, clock, engine, table) = fresh(1, Durability::Periodic(1000));
    let bound = engine.memory().limit() / 32;
    let send = |client: u64, sequence: i64, result_bytes: usize| {
        let one = key(1);
        let op = WriteOp { table: &table, key: &one, read: Read::Blind, row: &[] };
        let id = client.to_be_bytes();
        let request = Request { client: &id, sequence, first_incomplete: 0 };
        let mut decide = |_, _: Option<oribi_engine::RowVersion<'_>>, _: &mut Vec<u8>| Ok(Decision::Delete);
        let applied = AtomicU64::new(0);
        let tracked = engine.write_tracked(&request, &[op], &mut decide, &mut |out| {
            applied.fetch_add(1, Relaxed);
            out.resize(result_bytes, 7);
        });
        (tracked.unwrap(), applied.into_inner() > 0)
    };
    let used = || engine.stats().result_bytes;
    // One client: the oldest results make room, and are not applied again.
    for sequence in 0..10_000 {
        assert!(matches!(send(0, sequence, 100), (Tracked::Answered(_), true)));
    }
    assert!(used() > bound / 8 && used() <= bound / 4, "{} of {bound}", used());
    assert!(matches!(send(0, 9_999, 100), (Tracked::Answered(_), false)));
    assert!(matches!(send(0, 0, 100), (Tracked::Stale, false)));
    // One result that is longer than all of them is kept nevertheless, alone.
    assert!(send(0, 10_000, bound as usize).1);
    assert!(matches!(send(0, 10_000, 0), (Tracked::Answered(_), false)));
    assert!(matches!(send(0, 9_999, 0), (Tracked::Stale, false)));
    // Many clients: the results of those that were silent longest go first, then they themselves.
    for client in 1..20_000 {
        clock.advance(1);
        assert!(send(client, 0, 0).1);
        assert!(client == 1 || used() <= bound, "{} of {bound}", used());
    }
    assert!(matches!(send(19_999, 0, 0), (Tracked::Answered(_), false)));
    assert!(used() > bound / 2, "{} of {bound}", used());
    assert_eq!(engine.memory().results(), used());
}

/// They have no row that a flush could write, and leave but a result.
#[test]
fn the_log_of_writes_that_keep_everything_is_trimmed() {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let options = EngineOptions { log_bytes_max: 1 << 20, ..EngineOptions::with_memory(64 << 20) };
    let engine = Engine::open(sim_env(&files, &clock), std::path::Path::new(DIR), options).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Periodic(1000))).unwrap();
    put(&engine, &table, 1, "v").unwrap();
    let key = key(1);
    let result = vec![7; 100_000];
    for sequence in 0..200 {
        let request = Request { client: b"client", sequence, first_incomplete: sequence };
        let op = WriteOp { table: &table, key: &key, read: Read::Existing, row: &[] };
        let mut keep = |_, _: Option<oribi_engine::RowVersion<'_>>, _: &mut Vec<u8>| Ok(Decision::Keep);
        let mut answer = |out: &mut Vec<u8>| out.extend(&result);
        engine.write_tracked(&request, &[op], &mut keep, &mut answer).unwrap();
    }
    engine.settle(engine.everything().1.must_be_durable()).unwrap();
    // What runs by itself may take long where the processor is busy with others.
    for _ in 0..60_000 {
        if engine.stats().log_bytes <= 4 << 20 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the log stays at {} bytes", engine.stats().log_bytes);
}
