//! The commit of a transaction that clients know by its number ends one way, whatever ends beside it or stops it: its rows are all there
//! or none, whoever asks is told which, and whoever asks again is told the same. Nobody is told before a new snapshot sees it.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::*;
use oribi_engine::{Commit, Decision, Engine, Obligation, Read, ReadAhead, Table, TransactionState, WriteOp};
use oribi_sim::{Hooked, Operation, SimClock, SimFiles};
use oribi_types::{Durability, ErrorKind, Result, Timestamp};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Begins a transaction, and puts rows in it.
fn begin(engine: &Arc<Engine>, table: &Arc<Table>, keys: &[i64]) -> u64 {
    let id = engine.begin_kept("tester", None).unwrap();
    let within = engine.kept(id).unwrap().begin_statement(None);
    let encoded: Vec<Vec<u8>> = keys.iter().map(|k| key(*k)).collect();
    let op = |key| WriteOp { table, key, read: Read::Existing, row: &[] };
    let ops: Vec<WriteOp<'_>> = encoded.iter().map(|key| op(key)).collect();
    let decide = &mut |i: usize, _: Option<oribi_engine::RowVersion<'_>>, row: &mut Vec<u8>| {
        encode(table, "in", keys[i], row);
        Ok(Decision::Put)
    };
    let (blocked, ahead) = (Cell::new(None), &mut ReadAhead::default());
    engine.write_kept((&within, &blocked), true, None, &ops, decide, &mut |_| (), ahead).unwrap();
    id
}

fn apply(engine: &Arc<Engine>, id: u64, waits: bool) -> Result<Option<Commit>> {
    let Some(mut commit) = engine.begin_commit(id)? else { return Ok(None) };
    commit.apply(waits, &mut ReadAhead::default()).map(Some)
}

fn commit(engine: &Arc<Engine>, id: u64) -> Result<()> {
    let committed = apply(engine, id, true)?;
    engine.settle(committed.map_or_else(Obligation::default, |commit| commit.obligation))
}

fn is_committed(engine: &Engine, id: u64) -> bool {
    matches!(engine.state_of(id).unwrap(), TransactionState::Committed(Some(_), _))
}

/// `keys` of one record, or of so many that it is logged in fragments.
fn stops_at_any_point(keys: &[i64], stop: impl Fn(&SimFiles, u64) -> SimFiles) {
    let (mut seen, mut at) = ([false; 2], 0);
    loop {
        let (files, _, engine, table) = fresh(2, Durability::Sync);
        engine.settle(put(&engine, &table, 0, "old").unwrap().obligation).unwrap();
        let id = begin(&engine, &table, keys);
        files.stop_at(files.changes() + at);
        let acknowledged = commit(&engine, id).is_ok();
        drop((table, engine));
        let files = stop(&files, at);
        let engine = open(&sim_env(&files, &Arc::new(SimClock::new()))).unwrap();
        let table = engine.table("public", "t").unwrap();
        let found = scan_now(&engine, &table).len();
        assert!(found == 1 || found == keys.len(), "at {at}: {found} rows");
        let is_there = found == keys.len();
        assert!(is_there || !acknowledged, "at {at}");
        seen[usize::from(is_there)] = true;
        for _ in 0..2 {
            assert_eq!(is_committed(&engine, id), is_there, "at {at}");
            assert_eq!(commit(&engine, id).is_ok(), is_there, "at {at}");
        }
        // And the next process tells the same.
        engine.flush(&table).unwrap();
        engine.close().unwrap();
        drop((table, engine));
        let engine = open(&sim_env(&files.crash(at), &Arc::new(SimClock::new()))).unwrap();
        assert_eq!(is_committed(&engine, id), is_there, "at {at}");
        if acknowledged {
            break;
        }
        at += 1;
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn a_power_cut_at_any_point_leaves_rows_and_outcome_or_neither() {
    for seed in 0..oribi_sim::cases(8) {
        stops_at_any_point(&[0, 1], |files, at| files.crash(seed * 1000 + at));
        stops_at_any_point(&(0..30).collect::<Vec<_>>(), |files, at| files.crash(seed * 1000 + at));
    }
}

#[test]
fn a_kill_at_any_point_leaves_rows_and_outcome_or_neither() {
    stops_at_any_point(&[0, 1], |files, _| files.kill());
    stops_at_any_point(&(0..30).collect::<Vec<_>>(), |files, _| files.kill());
}

fn hooked() -> (Hooked, Arc<Engine>, Arc<Table>) {
    let (hooked, clock) = (Hooked::default(), Arc::new(SimClock::new()));
    let engine = Engine::open(hooked.env(&clock), Path::new(DIR), quiet()).unwrap();
    let table = engine.create_table(definition("t", 2, Durability::Sync)).unwrap();
    (hooked, engine, table)
}

#[test]
fn an_abort_in_the_middle_of_a_commit_is_refused() {
    let (hooked, engine, table) = hooked();
    let id = begin(&engine, &table, &(0..30).collect::<Vec<_>>());
    let (of, told) = (Arc::downgrade(&engine), Arc::new(AtomicUsize::new(0)));
    let times = told.clone();
    hooked.set(move |operation, path| {
        if operation != Operation::Sync || !path.contains("wal") {
            return;
        }
        let engine = of.upgrade().unwrap();
        if engine.state_of(id).unwrap() == TransactionState::CommitInProgress {
            assert_eq!(engine.abort(id, "a test").unwrap_err().kind(), ErrorKind::Conflict);
            assert!(engine.begin_commit(id).unwrap().is_none(), "somebody has it in hand");
            engine.end_silent_transactions();
            times.fetch_add(1, Relaxed);
        }
    });
    commit(&engine, id).unwrap();
    hooked.clear();
    assert!(told.load(Relaxed) > 0, "it came in the middle");
    assert!(is_committed(&engine, id));
    assert_eq!(scan_now(&engine, &table).len(), 30);
}

#[test]
fn of_a_commit_and_an_abort_one_comes_about() {
    let (_, _, engine, table) = fresh(2, Durability::Periodic(100));
    let mut outcomes = [0; 2];
    for k in 0..300 {
        let id = begin(&engine, &table, &[2 * k, 2 * k + 1]);
        let (committed, aborted) = std::thread::scope(|scope| {
            let aborting = scope.spawn(|| engine.abort(id, "a test"));
            let committed = commit(&engine, id);
            (committed, aborting.join().unwrap())
        });
        assert_ne!(committed.is_ok(), aborted.is_ok());
        assert_eq!(is_committed(&engine, id), committed.is_ok());
        let rows = [2 * k, 2 * k + 1].map(|k| get(&engine, &table, k).is_some());
        assert_eq!(rows, [committed.is_ok(); 2]);
        outcomes[usize::from(committed.is_ok())] += 1;
    }
    assert!(outcomes[1] > 0, "{outcomes:?}");
}

/// Another write has an earlier timestamp and is not applied yet.
#[test]
fn nobody_is_told_of_a_commit_before_a_new_snapshot_sees_it() {
    let (hooked, engine, table) = hooked();
    let ids: Vec<u64> = (0..40).map(|k| begin(&engine, &table, &[1000 + k])).collect();
    let (of, ids) = (Arc::downgrade(&engine), Mutex::new(ids));
    let early = Arc::new(Mutex::new(Vec::<(u64, Obligation)>::new()));
    let noted = early.clone();
    hooked.set(move |operation, path| {
        if operation != Operation::Sync || !path.contains("wal") {
            return;
        }
        let engine = of.upgrade().unwrap();
        let applied = (0..5).find_map(|_| {
            let id = ids.lock().unwrap().pop()?;
            match apply(&engine, id, false) {
                // Its row may share a latch with one of the many; the next one hardly does.
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                applied => Some((id, applied.unwrap().unwrap().obligation)),
            }
        });
        let Some((id, obligation)) = applied else { return };
        let told = match engine.state_of(id).unwrap() {
            TransactionState::Committed(Some(_), told) => told,
            other => panic!("{other:?}"),
        };
        if obligation.visible > engine.snapshot().ts() {
            for visible in [obligation.visible, told.visible] {
                assert!(
                    !engine.is_settled(Obligation { visible, ..Obligation::default() }),
                    "nobody is told"
                );
            }
            noted.lock().unwrap().push((id, obligation));
        }
    });
    let changes: Vec<(i64, Option<&str>)> = (0..60).map(|k| (k, Some("many"))).collect();
    engine.settle(write(&engine, &table, &changes).unwrap().obligation).unwrap();
    hooked.clear();
    let early = early.lock().unwrap();
    assert!(!early.is_empty(), "some came while the write of many rows had an earlier timestamp");
    for (id, obligation) in &*early {
        engine.settle(*obligation).unwrap();
        let TransactionState::Committed(Some(ts), _) = engine.state_of(*id).unwrap() else { panic!("{id}") };
        assert!(ts <= engine.snapshot().ts() && ts > Timestamp::MIN);
    }
}
