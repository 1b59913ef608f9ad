//! While a record of the manifest is synced, all go on whom its change does not concern: they write, are seen, and memtables are sealed.
//! Whoever it does concern waits alone, and what was seen meanwhile is what a crash finds.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::*;
use oribi_engine::{
    Alteration, Decision, Engine, EngineOptions, RangeChange, Read, Snapshot, Table, WriteOp,
};
use oribi_sim::{Hooked, Operation, SimClock, SimFiles};
use oribi_types::partition::{RangeDimension, RangePartition};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, ErrorKind, Partitioning, Result, TableDefinition};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

const MANIFEST: &str = "MANIFEST";

struct Node {
    hooked: Hooked,
    engine: Arc<Engine>,
    /// Rows 1, 2 and 3 in a file, and 4 in memory; one range has all keys.
    table: Arc<Table>,
    other: Arc<Table>,
}

/// Of all keys.
fn range() -> RangePartition {
    RangePartition { lower: key(0), upper: Some(key(100)), hash: None }
}

fn node() -> Node {
    let hooked = Hooked::default();
    let engine = Engine::open(hooked.env(&Arc::new(SimClock::new())), Path::new(DIR), quiet()).unwrap();
    let range = Some(RangeDimension { columns: vec![0], ranges: vec![range()] });
    let partitioning = Partitioning::new(Vec::new(), range).unwrap();
    let ranged = TableDefinition { partitioning, ..definition("t", 1, Durability::Periodic(100)) };
    let table = engine.create_table(ranged).unwrap();
    let other = engine.create_table(definition("other", 2, Durability::Periodic(100))).unwrap();
    (1..4).for_each(|k| _ = put(&engine, &table, k, "v").unwrap());
    engine.flush(&table).unwrap();
    put(&engine, &table, 4, "v").unwrap();
    Node { hooked, engine, table, other }
}

fn before() -> Rows {
    model(&[(1, "v"), (2, "v"), (3, "v"), (4, "v")])
}

fn try_put(engine: &Engine, table: &Arc<Table>, k: i64) -> Result<()> {
    let key = key(k);
    let op = WriteOp { table, key: &key, read: Read::Existing, row: &[] };
    let written = engine.try_write(&[op], &mut |_, _, row| {
        encode(table, "try", k, row);
        Ok(Decision::Put)
    });
    written.map(|_| ())
}

/// What another thread makes of `act`, which takes no time; were it kept out, it would have to wait for this.
fn elsewhere<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || _ = done.send(act()));
    wait.recv_timeout(Duration::from_secs(120)).expect("it waits for the manifest")
}

/// What everybody does who has nothing to do with `table`, and those who read it.
fn others_go_on(engine: &Arc<Engine>, table: &Arc<Table>, other: &Arc<Table>) {
    let (engine, table, other) = (engine.clone(), table.clone(), other.clone());
    elsewhere(move || {
        assert_eq!(scan_now(&engine, &table), before());
        assert_eq!(get(&engine, &table, 1).as_deref(), Some("v"));
        let commit = put(&engine, &other, 1, "put").unwrap();
        assert!(engine.snapshot().ts() >= commit.ts, "it is seen");
        let many: Vec<(i64, Option<&str>)> = (0..300).map(|k| (k, Some("many"))).collect();
        write(&engine, &other, &many).unwrap();
        engine.seal(&other);
        assert_eq!(scan_now(&engine, &other).len(), 300);
        engine.precede(false, commit.ts).unwrap();
        engine.observe(commit.ts).unwrap();
    });
}

/// Does `act` while others go on and `meanwhile` looks, when the record is about to be synced.
fn beside(
    node: &Node,
    meanwhile: impl FnOnce(&Arc<Engine>, &Arc<Table>) + Send + 'static,
    act: impl FnOnce(&Arc<Engine>, &Arc<Table>) -> Result<()>,
) -> Result<()> {
    let Node { hooked, engine, table, other } = node;
    let (e, t, o) = (engine.clone(), table.clone(), other.clone());
    hooked.once(Operation::Sync, MANIFEST, move || {
        others_go_on(&e, &t, &o);
        meanwhile(&e, &t);
    });
    let done = act(engine, table);
    hooked.clear();
    assert_eq!(findings(&hooked.files), [""; 0]);
    done
}

type Act = fn(&Arc<Engine>, &Arc<Table>) -> Result<()>;

fn truncate(engine: &Arc<Engine>, table: &Arc<Table>) -> Result<()> {
    engine.truncate(table)
}

fn drop_range(engine: &Arc<Engine>, _: &Arc<Table>) -> Result<()> {
    let RangePartition { lower, upper, .. } = range();
    engine.alter_partitions("public", "t", &[RangeChange::Drop { lower, upper }])
}

fn drop_table(engine: &Arc<Engine>, _: &Arc<Table>) -> Result<()> {
    engine.drop_table("public", "t")
}

fn add_column(engine: &Arc<Engine>, _: &Arc<Table>) -> Result<()> {
    engine.alter_table("public", "t", &Alteration::AddColumn(ColumnSpec::new("c", ColumnType::Int64)))
}

fn create_table(engine: &Arc<Engine>, _: &Arc<Table>) -> Result<()> {
    engine.create_table(definition("new", 1, Durability::Sync)).map(|_| ())
}

fn import_more(engine: &Arc<Engine>, table: &Arc<Table>) -> Result<()> {
    import(engine, table, &[10, 11], "imported").map(|_| ())
}

/// A write of a row that the change takes says that it would wait, and one that waits does so until it is decided; returns what it
/// was told then.
fn writers_wait(act: Act) -> (Node, Result<()>) {
    let node = node();
    let waiting: Arc<Mutex<Option<JoinHandle<Result<()>>>>> = Arc::default();
    let started = waiting.clone();
    let meanwhile = move |engine: &Arc<Engine>, table: &Arc<Table>| {
        let refused = try_put(engine, table, 1).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock, "{refused}");
        let (engine, table) = (engine.clone(), table.clone());
        *started.lock() = Some(std::thread::spawn(move || put(&engine, &table, 1, "waited").map(|_| ())));
    };
    beside(&node, meanwhile, act).unwrap();
    let waiting = waiting.lock().take().unwrap();
    let told = waiting.join().unwrap();
    (node, told)
}

#[test]
fn who_writes_to_a_table_that_is_truncated_waits_alone() {
    // It may have come after the truncate, and then it is made.
    let (Node { engine, table, hooked, .. }, told) = writers_wait(truncate);
    let rows = match told {
        Ok(()) => model(&[(1, "waited")]),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            Rows::new()
        }
    };
    assert_eq!(scan_now(&engine, &table), rows);
    let commit = put(&engine, &table, 2, "later").unwrap();
    engine.settle(commit.obligation).unwrap();
    let now = scan_now(&engine, &table);
    let (again, table) = after_kill(&hooked.files);
    assert_eq!(scan_now(&again, &table), now);
}

#[test]
fn who_writes_to_a_range_that_is_dropped_waits_alone() {
    let (Node { engine, .. }, told) = writers_wait(drop_range);
    assert_eq!(told.unwrap_err().kind(), ErrorKind::NotCovered);
    assert_eq!(scan_now(&engine, &engine.table("public", "t").unwrap()), Rows::new());
}

#[test]
fn who_writes_to_a_table_that_is_dropped_waits_alone() {
    let (_, told) = writers_wait(drop_table);
    assert_eq!(told.unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn who_writes_to_a_table_that_is_altered_does_not_wait() {
    for act in [add_column, create_table] {
        let node = node();
        beside(&node, |engine, table| try_put(engine, table, 1).unwrap(), act).unwrap();
        assert_eq!(get(&node.engine, &node.table, 1).as_deref(), Some("try"));
    }
}

#[test]
fn who_writes_a_row_that_is_imported_waits_and_others_of_its_table_do_not() {
    let node = node();
    node.engine.flush(&node.table).unwrap();
    // So many that they share all latches with the import's.
    let create =
        |i| node.engine.create_table(definition(&format!("other {i}"), 1, Durability::Sync)).unwrap();
    let others: Vec<_> = (0..20).map(create).collect();
    let waiting: Arc<Mutex<Option<JoinHandle<_>>>> = Arc::default();
    let started = waiting.clone();
    let meanwhile = move |engine: &Arc<Engine>, table: &Arc<Table>| {
        for other in &others {
            (0..50).for_each(|k| try_put(engine, other, k).unwrap());
        }
        assert_eq!(try_put(engine, table, 10).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(get(engine, table, 10), None);
        try_put(engine, table, 4).unwrap();
        try_put(engine, table, 5).unwrap();
        let (e, t) = (engine.clone(), table.clone());
        elsewhere(move || put(&e, &t, 1, "put").unwrap());
        let (engine, table) = (engine.clone(), table.clone());
        let add = move || {
            let key = key(10);
            let op = WriteOp { table: &table, key: &key, read: Read::Existing, row: &[] };
            engine.write(&[op], &mut |_, current, row| {
                encode(&table, &format!("{}+", v_of(&table, current.unwrap().row)), 10, row);
                Ok(Decision::Put)
            })
        };
        *started.lock() = Some(std::thread::spawn(add));
    };
    beside(&node, meanwhile, import_more).unwrap();
    let Node { hooked, engine, table, .. } = &node;
    waiting.lock().take().unwrap().join().unwrap().unwrap();
    let rows =
        model(&[(1, "put"), (2, "v"), (3, "v"), (4, "try"), (5, "try"), (10, "imported+"), (11, "imported")]);
    assert_eq!(scan_now(engine, table), rows);
    engine.flush(table).unwrap();
    assert_eq!(scan_now(engine, table), rows);
    assert_eq!(findings(&hooked.files), [""; 0]);
    let (again, table) = after_kill(&hooked.files);
    assert_eq!(scan_now(&again, &table), rows);
}

/// A snapshot that is taken while the record is synced is before the change, also for who asks for it when the folder was opened
/// again.
#[test]
fn what_was_seen_while_the_record_was_synced_is_before_it() {
    let acts: [(Act, bool); 2] = [(truncate, true), (import_more, false)];
    for (act, goes) in acts {
        let (hooked, clock) = (Hooked::default(), Arc::new(SimClock::new()));
        let options = || EngineOptions { keeps_history: true, ..quiet() };
        let engine = Engine::open(hooked.env(&clock), Path::new(DIR), options()).unwrap();
        let history = engine.take_history();
        let table = engine.create_table(definition("t", 1, Durability::Sync)).unwrap();
        (1..5).for_each(|k| _ = put(&engine, &table, k, "v").unwrap());
        engine.flush(&table).unwrap();
        let other = engine.create_table(definition("other", 1, Durability::Sync)).unwrap();
        let seen: Arc<Mutex<Option<Snapshot>>> = Arc::default();
        let (e, t, taken) = (engine.clone(), table.clone(), seen.clone());
        hooked.once(Operation::Sync, MANIFEST, move || {
            // Above what was before.
            put(&e, &other, 1, "v").unwrap();
            let snapshot = e.snapshot();
            assert_eq!(scan(&e, &t, &snapshot), before());
            *taken.lock() = Some(snapshot);
        });
        act(&engine, &table).unwrap();
        hooked.clear();
        let snapshot = seen.lock().take().unwrap();
        assert!(engine.snapshot().ts() > snapshot.ts());
        match try_scan(&engine, &table, &snapshot) {
            Err(error) => assert!(goes && error.kind() == ErrorKind::Conflict, "{error}"),
            Ok(rows) => assert!(!goes && rows == before(), "{rows:?}"),
        }
        let then = snapshot.ts();
        drop((snapshot, history, engine, table));
        let again = open_again(&hooked.files, &clock, options());
        let table = again.table("public", "t").unwrap();
        match again.snapshot_at(then).unwrap() {
            Some(snapshot) => assert_eq!(scan(&again, &table, &snapshot), before()),
            None => assert!(goes, "what an import does not change can be read"),
        }
    }
}

fn open_again(files: &SimFiles, clock: &Arc<SimClock>, options: EngineOptions) -> Arc<Engine> {
    Engine::open(sim_env(&files.kill(), clock), Path::new(DIR), options).unwrap()
}
