//! A write behind one that is still being applied, and so not seen by others yet.

use super::*;
use crate::options::EngineOptions;
use oribi_env::Env;
use oribi_sim::{SimClock, SimFiles};
use oribi_types::schema::ColumnSpec;
use oribi_types::{
    ColumnType, Durability, ErrorKind, Partitioning, Schema, TableDefinition, TableOptions, ValueRef,
};
use std::path::Path;

fn fresh() -> (Arc<Engine>, Arc<Table>) {
    let env = Env { files: Arc::new(SimFiles::new()), clock: Arc::new(SimClock::new()) };
    let options = EngineOptions { background: false, ..EngineOptions::with_memory(64 << 20) };
    let engine = Engine::open(env, Path::new("/db"), options).unwrap();
    let columns =
        vec![ColumnSpec::new("k", ColumnType::Int64).not_null(), ColumnSpec::new("v", ColumnType::String)];
    let table = engine.create_table(TableDefinition {
        schema_name: "public".into(),
        name: "t".into(),
        schema: Schema::new(columns, &["k"]).unwrap(),
        partitioning: Partitioning::none(),
        options: TableOptions::new(Durability::Periodic(100)),
    });
    (engine, table.unwrap())
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
