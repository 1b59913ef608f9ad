//! A transaction of more than memory is for puts most of it aside, and is otherwise as any: it sees what it has written, undoes it to any
//! point, loses nobody's write, and is there as a whole or not at all, wherever its commit ends.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::transactions::{commit, own, write_as};
use common::*;
use oribi_engine::{
    Alteration, Blocked, CatalogChange, Commit, Engine, EngineOptions, InTransaction, KeyRange, Mark,
    PUBLIC_SCHEMA, ReadAhead, Reader, Table, Transaction, TransactionState,
};
use oribi_env::Env;
use oribi_sim::{Operation, SimClock, SimFiles};
use oribi_types::{Durability, ErrorKind, Result};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Of so few bytes that four changes are too many to keep.
fn tiny() -> EngineOptions {
    EngineOptions { statement_bytes_max: 2800, ..quiet() }
}

fn open_tiny(env: &Env) -> Arc<Engine> {
    Engine::open(env.clone(), Path::new(DIR), tiny()).unwrap()
}

fn fresh_tiny(buckets: u32) -> (SimFiles, Arc<SimClock>, Arc<Engine>, Arc<Table>) {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let engine = open_tiny(&sim_env(&files, &clock));
    let table = engine.create_table(definition("t", buckets, Durability::Sync)).unwrap();
    (files, clock, engine, table)
}

/// Puts (some value) or deletes, in a transaction or at once.
fn write_in(
    within: Option<&InTransaction>,
    engine: &Engine,
    table: &Arc<Table>,
    changes: &[(i64, Option<&str>)],
) -> Result<Commit, (ErrorKind, Option<Blocked>)> {
    write_as(within, true, engine, table, changes)
}

/// Puts the value at many keys, one after the other.
fn put_all(transaction: &Arc<Transaction>, engine: &Engine, table: &Arc<Table>, keys: &[i64], v: &str) {
    let within = transaction.begin_statement(None);
    for k in keys {
        write_in(Some(&within), engine, table, &[(*k, Some(v))]).unwrap();
    }
}

/// What a scan of SQL sees of it: which keys it hides, and its own rows.
fn overlay(transaction: &Transaction, table: &Arc<Table>, keys: &[i64]) -> (Vec<i64>, Rows) {
    overlay_of(transaction, table, keys, None)
}

/// The same of a scan that begins later, and is not to see more.
fn overlay_of(
    transaction: &Transaction,
    table: &Arc<Table>,
    keys: &[i64],
    before: Option<Mark>,
) -> (Vec<i64>, Rows) {
    let Some(overlay) = transaction.overlay(table, before) else { return (Vec::new(), Rows::new()) };
    let mut reader = Reader::default();
    let hidden = keys.iter().copied().filter(|k| overlay.has(&key(*k), &mut reader).unwrap());
    let hidden = hidden.collect();
    let mut rows: Rows = overlay.rows.iter().map(|(key, row)| (k_of(key), v_of(table, row))).collect();
    let Some(spilled) = &overlay.spilled else { return (hidden, rows) };
    let mut spilled = spilled.all();
    while let Some((key, row)) = spilled.next().unwrap() {
        if let Some(row) = row.filter(|_| !overlay.keys.contains(key)) {
            assert!(rows.insert(k_of(key), v_of(table, row)).is_none(), "once");
        }
    }
    (hidden, rows)
}

/// What a scan in the order of keys sees of it.
fn changes(transaction: &Transaction, table: &Arc<Table>, keys: &KeyRange) -> BTreeMap<i64, Option<String>> {
    let mut found = BTreeMap::new();
    for tablet in 0..table.definition().partitioning.tablets() {
        let Some(changes) = transaction.changes(table, tablet, keys) else { continue };
        let (mut rows, mut last) = (changes.rows(keys), None);
        while let Some((key, row)) = rows.next_up_to(None).unwrap() {
            assert!(last.as_ref().is_none_or(|last| *last < key), "keys ascend");
            found.insert(k_of(&key), row.map(|row| v_of(table, &row)));
            last = Some(key);
        }
    }
    found
}

#[test]
fn a_transaction_of_many_times_its_memory_commits() {
    let (files, _, engine, table) = fresh_tiny(3);
    for k in 0..40 {
        put(&engine, &table, k, "old").unwrap();
    }
    engine.flush(&table).unwrap();
    for k in 40..50 {
        put(&engine, &table, k, "old").unwrap();
    }
    let before = scan_now(&engine, &table);
    assert_eq!(get(&engine, &table, 7).as_deref(), Some("old"), "which leaves it in the row cache");
    let queries = engine.memory().queries();
    let transaction = engine.begin();
    let (even, odd): (Vec<i64>, Vec<i64>) = (0..400).partition(|k| k % 2 == 0);
    put_all(&transaction, &engine, &table, &even, "new");
    let within = transaction.begin_statement(None);
    for k in &odd {
        write_in(Some(&within), &engine, &table, &[(*k, None)]).unwrap();
    }
    put_all(&transaction, &engine, &table, &[3, 4], "again");
    assert!(runs(&files) > 10);
    assert_eq!(own(&transaction, &table, 3), Some(Some("again".into())));
    assert_eq!(own(&transaction, &table, 5), Some(None));
    assert_eq!(own(&transaction, &table, 200), Some(Some("new".into())));
    assert_eq!(own(&transaction, &table, 400), None);
    let snapshot = engine.snapshot();
    assert_eq!(scan_now(&engine, &table), before);
    assert!(put(&engine, &table, 1000, "other").is_ok());

    let committed = commit(&engine, &transaction).unwrap();
    engine.settle(committed.obligation).unwrap();
    transaction.roll_back();
    drop(within);
    let mut after: Rows = even.iter().map(|k| (*k, "new".to_owned())).collect();
    after.extend([(3, "again".to_owned()), (4, "again".to_owned()), (1000, "other".to_owned())]);
    assert_eq!(scan_now(&engine, &table), after);
    assert_eq!(range_now(&engine, &table), after);
    assert_eq!(scan(&engine, &table, &snapshot), before, "who came before sees nothing of it");
    for k in 0..50 {
        assert_eq!(get(&engine, &table, k), after.get(&k).cloned(), "{k}");
    }
    drop(snapshot);
    assert_eq!((runs(&files), engine.memory().queries()), (0, queries), "all is given back");
    let last = put(&engine, &table, 5, "free").unwrap();
    engine.settle(last.obligation).unwrap();
    after.insert(5, "free".to_owned());
    assert_eq!(findings(&files), Vec::<String>::new());
    let (killed, of) = after_kill(&files);
    assert_eq!(scan_now(&killed, &of), after);
}

#[test]
fn its_rows_are_locked_until_it_ends() {
    let (_, _, engine, table) = fresh_tiny(1);
    put(&engine, &table, 1, "old").unwrap();
    engine.flush(&table).unwrap();
    let transaction = engine.begin();
    let keys: Vec<i64> = (0..50).collect();
    put_all(&transaction, &engine, &table, &keys, "mine");
    let other = engine.begin();
    for within in [None, Some(other.begin_statement(None))] {
        for k in [0, 1, 49] {
            let (kind, blocked) = write_in(within.as_ref(), &engine, &table, &[(k, None)]).unwrap_err();
            assert_eq!(kind, ErrorKind::WouldBlock);
            assert!(blocked.is_some());
        }
    }
    let skipped = engine.rows_locked_by_others(&table, Some(&other));
    assert!(keys.iter().all(|k| skipped.has(&key(*k))) && !skipped.has(&key(50)));
    assert!(!engine.rows_locked_by_others(&table, Some(&transaction)).has(&key(1)));
    assert_eq!(import(&engine, &table, &[60, 0], "theirs").unwrap_err().kind(), ErrorKind::Conflict);
    import(&engine, &table, &[60], "theirs").unwrap();
    // A deadlock is found as ever.
    put_all(&other, &engine, &table, &[70], "others");
    let within = other.begin_statement(None);
    let (_, blocked) = write_in(Some(&within), &engine, &table, &[(0, None)]).unwrap_err();
    let _wait = engine.wait_for_row(Some(&other), blocked.unwrap()).unwrap();
    let within = transaction.begin_statement(None);
    let (_, blocked) = write_in(Some(&within), &engine, &table, &[(70, None)]).unwrap_err();
    let found = engine.wait_for_row(Some(&transaction), blocked.unwrap());
    assert_eq!(found.err().unwrap().kind(), ErrorKind::Conflict);
    drop(within);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| put(&engine, &table, 3, "after").unwrap());
        commit(&engine, &transaction).unwrap();
        transaction.roll_back();
        waiting.join().unwrap();
    });
    assert_eq!(get(&engine, &table, 3).as_deref(), Some("after"));
    assert_eq!(get(&engine, &table, 4).as_deref(), Some("mine"));
}

#[test]
fn whoever_ends_it_leaves_nothing() {
    let (files, _, engine, table) = fresh_tiny(2);
    let keys: Vec<i64> = (0..50).collect();
    let queries = engine.memory().queries();
    for drops in [true, false] {
        let transaction = engine.begin();
        put_all(&transaction, &engine, &table, &keys, "mine");
        assert!(runs(&files) > 0);
        match drops {
            true => drop(transaction),
            false => transaction.roll_back(),
        }
        assert_eq!((runs(&files), engine.memory().queries()), (0, queries));
        let last = put(&engine, &table, 1, "free").unwrap();
        engine.settle(last.obligation).unwrap();
    }
    let transaction = engine.begin();
    put_all(&transaction, &engine, &table, &keys[2..], "mine");
    let killed = files.kill();
    assert!(runs(&killed) > 0);
    let again = open_tiny(&sim_env(&killed, &Arc::new(SimClock::new())));
    assert_eq!(runs(&killed), 0);
    assert_eq!(scan_now(&again, &again.table("public", "t").unwrap()), model(&[(1, "free")]));
}

/// What takes no heed of locks.
#[test]
fn a_table_that_others_change_meanwhile_is_a_conflict() {
    let keys: Vec<i64> = (0..50).collect();
    type Change<'c> = &'c dyn Fn(&Arc<Engine>, &Arc<Table>);
    let changes: [Change<'_>; 3] = [
        &|engine, table| engine.truncate(table).unwrap(),
        &|engine, _| engine.drop_table("public", "t").unwrap(),
        &|engine, _| {
            let changes = vec![Alteration::RenameColumn { from: "n".into(), to: "m".into() }];
            let (schema, name) = (PUBLIC_SCHEMA.to_owned(), "t".to_owned());
            engine.change(&CatalogChange::AlterTable { schema, name, changes }).map(|_| ()).unwrap();
        },
    ];
    for change in changes {
        let (files, _, engine, table) = fresh_tiny(2);
        put(&engine, &table, 1, "old").unwrap();
        let transaction = engine.begin();
        put_all(&transaction, &engine, &table, &keys, "mine");
        change(&engine, &table);
        let refused = commit(&engine, &transaction).unwrap_err().kind();
        assert!(matches!(refused, ErrorKind::Conflict | ErrorKind::Retry), "{refused:?}");
        transaction.roll_back();
        assert_eq!(runs(&files), 0);
        if let Ok(table) = engine.table("public", "t") {
            assert!(scan_now(&engine, &table).len() <= 1);
        }
        engine.close().unwrap();
    }
}

/// One was decided on before the truncate, and is put aside behind it.
#[test]
fn rows_of_before_and_behind_a_truncate_are_not_committed_together() {
    let keys: Vec<i64> = (0..50).collect();
    let (files, _, engine, table) = fresh_tiny(1);
    let transaction = engine.begin();
    put_all(&transaction, &engine, &table, &[1000], "mine");
    assert_eq!(runs(&files), 0);
    engine.truncate(&table).unwrap();
    let table = engine.table("public", "t").unwrap();
    put_all(&transaction, &engine, &table, &keys, "mine");
    assert!(runs(&files) > 0);
    for k in [1000, 1] {
        assert_eq!(own(&transaction, &table, k), Some(Some("mine".into())), "{k}");
    }
    put(&engine, &table, 1000, "theirs").unwrap();
    assert_eq!(commit(&engine, &transaction).unwrap_err().kind(), ErrorKind::Retry);
    assert_eq!(scan_now(&engine, &table), model(&[(1000, "theirs")]));
}

#[test]
fn one_that_must_stay_in_memory_says_so() {
    let (_, _, engine, table) = fresh_tiny(1);
    let transaction = engine.begin();
    transaction.serialize();
    let within = transaction.begin_statement(None);
    let refused = (0..50).find_map(|k| write_in(Some(&within), &engine, &table, &[(k, Some("v"))]).err());
    assert_eq!(refused.unwrap().0, ErrorKind::TooLarge);
}

#[test]
fn files_that_others_compact_meanwhile_are_searched_again() {
    let (files, _, engine, table) = fresh_tiny(1);
    for round in 0..6 {
        for k in round * 10..round * 10 + 10 {
            put(&engine, &table, k, "old").unwrap();
        }
        engine.flush(&table).unwrap();
    }
    let transaction = engine.begin();
    let keys: Vec<i64> = (5..55).collect();
    put_all(&transaction, &engine, &table, &keys, "new");
    let mut after = scan_now(&engine, &table);
    after.extend(keys.iter().map(|k| (*k, "new".to_owned())));
    engine.compact(&table).unwrap();
    put(&engine, &table, 0, "other").unwrap();
    after.insert(0, "other".to_owned());
    commit(&engine, &transaction).unwrap();
    assert_eq!(scan_now(&engine, &table), after);
    engine.compact(&table).unwrap();
    assert_eq!(scan_now(&engine, &table), after);
    assert_eq!(findings(&files), Vec::<String>::new());
}

/// A folder with rows in files and in memory, and a kept transaction that replaces, deletes and adds some.
fn with_transaction() -> (SimFiles, Arc<Engine>, u64) {
    let (files, _, engine, table) = fresh_tiny(2);
    for k in 0..12 {
        put(&engine, &table, k, "old").unwrap();
    }
    engine.flush(&table).unwrap();
    let last = put(&engine, &table, 12, "old").unwrap();
    engine.settle(last.obligation).unwrap();
    let id = engine.begin_kept("tester", None).unwrap();
    let transaction = engine.kept(id).unwrap();
    put_all(&transaction, &engine, &table, &(6..24).collect::<Vec<_>>(), "new");
    let within = transaction.begin_statement(None);
    write_in(Some(&within), &engine, &table, &[(7, None), (12, None)]).unwrap();
    assert!(runs(&files) > 1);
    (files, engine, id)
}

fn commit_kept(engine: &Arc<Engine>, id: u64) -> Result<()> {
    let Some(mut commit) = engine.begin_commit(id)? else { return Ok(()) };
    let commit = commit.apply(true, &mut ReadAhead::default())?;
    engine.settle(commit.obligation)
}

fn stops_at_any_point(stop: impl Fn(&SimFiles, u64) -> SimFiles) {
    let (mut seen, mut at) = ([false; 2], 1);
    loop {
        let (files, engine, id) = with_transaction();
        let table = engine.table("public", "t").unwrap();
        let before = scan_now(&engine, &table);
        let mut after = before.clone();
        after.extend((6..24).map(|k| (k, "new".to_owned())));
        after.retain(|k, _| *k != 7 && *k != 12);
        files.stop_at(files.changes() + at);
        let acknowledged = commit_kept(&engine, id).is_ok();
        drop((table, engine));
        let files = stop(&files, at);
        assert_eq!(findings(&files), Vec::<String>::new(), "at {at}");
        let engine = open_tiny(&sim_env(&files, &Arc::new(SimClock::new())));
        assert_eq!(runs(&files), 0);
        let table = engine.table("public", "t").unwrap();
        let now = scan_now(&engine, &table);
        let is_committed = now == after;
        assert!(is_committed || now == before && !acknowledged, "at {at}: a part of it");
        seen[usize::from(is_committed)] = true;
        // Whoever asks again is told the same.
        let state = engine.state_of(id).unwrap();
        assert_eq!(matches!(state, TransactionState::Committed(Some(_), _)), is_committed, "at {at}");
        assert_eq!(commit_kept(&engine, id).is_ok(), is_committed, "at {at}");
        for k in 0..24 {
            assert_eq!(get(&engine, &table, k), now.get(&k).cloned(), "at {at}: {k}");
        }
        put(&engine, &table, 7, "later").unwrap();
        engine.flush(&table).unwrap();
        engine.compact(&table).unwrap();
        let later = scan_now(&engine, &table);
        assert_eq!(later.get(&7).map(String::as_str), Some("later"));
        engine.close().unwrap();
        drop((table, engine));
        let engine = open_tiny(&sim_env(&files.crash(at), &Arc::new(SimClock::new())));
        assert_eq!(scan_now(&engine, &engine.table("public", "t").unwrap()), later, "at {at}");
        if acknowledged {
            break;
        }
        at += 1;
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn a_power_cut_at_any_point_of_its_commit_finds_all_of_it_or_nothing() {
    for seed in 0..oribi_sim::cases(4) {
        stops_at_any_point(|files, at| files.crash(seed * 1000 + at));
    }
}

#[test]
fn a_process_that_is_killed_at_any_point_of_its_commit_leaves_all_of_it_or_nothing() {
    stops_at_any_point(|files, _| files.kill());
}

/// The manifest fails before the commit is told of, and behind it.
#[test]
fn a_manifest_that_fails_contradicts_no_answer() {
    for nth in 1..6 {
        let (files, engine, id) = with_transaction();
        let table = engine.table("public", "t").unwrap();
        let before = scan_now(&engine, &table);
        files.fail(Operation::Sync, nth, "MANIFEST");
        let done = commit_kept(&engine, id).is_ok();
        files.forgive();
        let now = scan_now(&engine, &table);
        assert_eq!(now != before, done, "sync {nth}");
        put(&engine, &table, 100, "later").unwrap();
        engine.flush(&table).unwrap();
        let later = scan_now(&engine, &table);
        assert_eq!(findings(&files), Vec::<String>::new(), "sync {nth}");
        drop((table, engine));
        let engine = open_tiny(&sim_env(&files.crash(nth), &Arc::new(SimClock::new())));
        assert_eq!(scan_now(&engine, &engine.table("public", "t").unwrap()), later, "sync {nth}");
    }
}

#[test]
fn a_disk_that_is_full_ends_the_statement_and_not_the_transaction() {
    let (files, _, engine, table) = fresh_tiny(1);
    let transaction = engine.begin();
    put_all(&transaction, &engine, &table, &(0..20).collect::<Vec<_>>(), "v");
    files.set_capacity(Some(files.used_bytes()));
    let within = transaction.begin_statement(None);
    let refused = (20..60).find_map(|k| write_in(Some(&within), &engine, &table, &[(k, Some("v"))]).err());
    assert_eq!(refused.unwrap().0, ErrorKind::DiskFull);
    assert_eq!(own(&transaction, &table, 3), Some(Some("v".into())));
    files.set_capacity(None);
    write_in(Some(&within), &engine, &table, &[(99, Some("v"))]).unwrap();
    commit(&engine, &transaction).unwrap();
    assert!(get(&engine, &table, 3).is_some() && get(&engine, &table, 99).is_some());
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
    Compact,
    Reopen,
}

const CLIENTS: usize = 2;
const KEYS: i64 = 16;

fn step() -> impl Strategy<Value = Step> {
    let change = || (0..KEYS, proptest::option::weighted(0.7, any::<u8>()));
    prop_oneof![
        16 => (0..CLIENTS, proptest::collection::vec(change(), 1..5)).prop_map(|(c, changes)| Step::Write(c, changes)),
        3 => change().prop_map(|(k, v)| Step::Plain(k, v)),
        2 => (0..CLIENTS).prop_map(Step::Savepoint),
        2 => (0..CLIENTS).prop_map(Step::RollBackTo),
        1 => (0..CLIENTS).prop_map(Step::RollBack),
        2 => (0..CLIENTS).prop_map(Step::Commit),
        1 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

/// What a client has done in its transaction, which keys it has locked for sure and at most, and what it had at its savepoint.
#[derive(Clone, Default)]
struct Client {
    changes: Vec<(i64, Option<String>)>,
    locked: Vec<i64>,
    savepoint: Option<usize>,
}

impl Client {
    fn has(&self, k: i64) -> bool {
        self.changes.iter().any(|(of, _)| *of == k)
    }

    fn may_have(&self, k: i64) -> bool {
        self.locked.contains(&k)
    }

    fn last(&self) -> BTreeMap<i64, Option<String>> {
        self.changes.iter().cloned().collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn spilled_transactions_and_plain_writes_are_a_map(steps in proptest::collection::vec(step(), 1..80)) {
        let (mut files, _, mut engine, mut table) = fresh_tiny(2);
        let mut stored = Rows::new();
        let mut clients = vec![Client::default(); CLIENTS];
        let mut open: Vec<Arc<Transaction>> = (0..CLIENTS).map(|_| engine.begin()).collect();
        let apply = |rows: &mut Rows, changes: &[(i64, Option<String>)]| for (k, v) in changes {
            match v {
                Some(v) => rows.insert(*k, v.clone()),
                None => rows.remove(k),
            };
        };
        let all: Vec<i64> = (0..KEYS).collect();
        for step in steps {
            match step {
                Step::Write(c, changes) => {
                    let texts: Vec<(i64, Option<String>)> =
                        changes.iter().map(|(k, v)| (*k, v.map(|v| v.to_string()))).collect();
                    let borrowed: Vec<_> = texts.iter().map(|(k, v)| (*k, v.as_deref())).collect();
                    let within = open[c].begin_statement(None);
                    let written = write_in(Some(&within), &engine, &table, &borrowed);
                    let others = |k: i64, has: fn(&Client, i64) -> bool| {
                        clients.iter().enumerate().any(|(o, other)| o != c && has(other, k))
                    };
                    prop_assert!(written.is_err() || !texts.iter().any(|(k, _)| others(*k, Client::has)));
                    prop_assert!(written.is_ok() || texts.iter().any(|(k, _)| others(*k, Client::may_have)));
                    if written.is_ok() {
                        clients[c].locked.extend(texts.iter().map(|(k, _)| *k));
                        clients[c].changes.extend(texts);
                    }
                }
                Step::Plain(k, v) => {
                    let v = v.map(|v| v.to_string());
                    let written = write_in(None, &engine, &table, &[(k, v.as_deref())]);
                    prop_assert!(written.is_err() || !clients.iter().any(|client| client.has(k)));
                    prop_assert!(written.is_ok() || clients.iter().any(|client| client.may_have(k)));
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
                Step::Compact => engine.compact(&table).unwrap(),
                Step::Reopen => {
                    engine.settle(put(&engine, &table, -1, "last").unwrap().obligation).unwrap();
                    stored.insert(-1, "last".to_owned());
                    files = files.kill();
                    engine = open_tiny(&sim_env(&files, &Arc::new(SimClock::new())));
                    table = engine.table("public", "t").unwrap();
                    clients = vec![Client::default(); CLIENTS];
                    open = (0..CLIENTS).map(|_| engine.begin()).collect();
                }
            }
            prop_assert_eq!(scan_now(&engine, &table), stored.clone());
            for (transaction, client) in open.iter().zip(&clients) {
                let last = client.last();
                for k in 0..KEYS {
                    prop_assert_eq!(own(transaction, &table, k), last.get(&k).cloned());
                }
                let rows: Rows = last.iter().filter_map(|(k, v)| Some((*k, v.clone()?))).collect();
                prop_assert_eq!(overlay(transaction, &table, &all), (last.keys().copied().collect(), rows));
                prop_assert_eq!(changes(transaction, &table, &KeyRange::default()), last.clone());
                let some = KeyRange { from: key(3), to: Some(key(9)) };
                let within: BTreeMap<_, _> = last.range(3..9).map(|(k, v)| (*k, v.clone())).collect();
                prop_assert_eq!(changes(transaction, &table, &some), within);
            }
        }
        for k in 0..KEYS {
            prop_assert_eq!(get(&engine, &table, k), stored.get(&k).cloned());
        }
    }
}

#[test]
fn what_it_had_at_some_point_is_seen_while_it_writes_on() {
    let (_, _, engine, table) = fresh_tiny(3);
    let all: Vec<i64> = (0..30).collect();
    let transaction = engine.begin();
    let mut seen = Vec::new();
    for step in 0..10 {
        seen.push((transaction.mark(), overlay(&transaction, &table, &all)));
        let keys: Vec<i64> = (0..4).map(|n| (step * 7 + n * 3) % 30).collect();
        put_all(&transaction, &engine, &table, &keys, &format!("v{step}"));
        let within = transaction.begin_statement(None);
        write_in(Some(&within), &engine, &table, &[(step * 5 % 30, None)]).unwrap();
        for (mark, then) in &seen {
            assert_eq!(overlay_of(&transaction, &table, &all, Some(*mark)), *then, "after step {step}");
        }
    }
}
