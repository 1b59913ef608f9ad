//! What a transaction changes of the catalog is seen by it alone until it commits, and counts together with its rows or not at all,
//! whenever the power is cut.
#![allow(clippy::unwrap_used)]

mod common;

use common::transactions::own;
use common::*;
use oribi_engine::{
    Alteration, Author, CatalogChange, Commit, DRAFT, Decision, Engine, EngineOptions, InTransaction, Read,
    ReadAhead, RowVersion, Table, Transaction, WriteOp,
};
use oribi_env::Env;
use oribi_sim::{SimClock, SimFiles};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, ErrorKind, Result};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

fn write_in(
    within: &InTransaction,
    engine: &Engine,
    table: &Arc<Table>,
    rows: &[(i64, &str)],
) -> Result<Commit> {
    let keys: Vec<Vec<u8>> = rows.iter().map(|(k, _)| key(*k)).collect();
    let ops: Vec<WriteOp<'_>> =
        keys.iter().map(|key| WriteOp { table, key, read: Read::Existing, row: &[] }).collect();
    let decide = &mut |i: usize, _: Option<RowVersion<'_>>, row: &mut Vec<u8>| {
        let (k, v) = rows[i];
        encode(table, v, k, row);
        Ok(Decision::Put)
    };
    let author = Author { within: Some(within), held: None, blocked: &Cell::new(None) };
    engine.write_as(&author, true, &ops, decide, &mut ReadAhead::default())
}

fn commit(engine: &Engine, transaction: &Arc<Transaction>) -> Result<Commit> {
    engine.commit_with_catalog(&transaction.into_commit())
}

fn create(name: &str) -> CatalogChange {
    CatalogChange::CreateTable(definition(name, 2, Durability::Sync))
}

fn drop_table(name: &str) -> CatalogChange {
    CatalogChange::DropTable { schema: "public".into(), name: name.into() }
}

fn add_column(table: &str, column: &str) -> CatalogChange {
    let column = ColumnSpec::new(column, ColumnType::String);
    let changes = vec![Alteration::AddColumn(column)];
    CatalogChange::AlterTable { schema: "public".into(), name: table.into(), changes }
}

fn rename(table: &str, to: &str) -> CatalogChange {
    let changes = vec![Alteration::Rename { to: to.into() }];
    CatalogChange::AlterTable { schema: "public".into(), name: table.into(), changes }
}

/// Tables by name, with their columns and rows.
fn everything(engine: &Arc<Engine>) -> Vec<(String, Vec<String>, Rows)> {
    let catalog = engine.catalog();
    let described = catalog.tables("public").map(|table| {
        let columns = table.schema().columns().iter().map(|column| column.name.clone()).collect();
        (table.name().to_owned(), columns, scan_now(engine, table))
    });
    described.collect()
}

fn reopened(files: &SimFiles) -> Arc<Engine> {
    assert_eq!(findings(files), [""; 0]);
    let engine = open(&sim_env(files, &Arc::new(SimClock::new()))).unwrap();
    assert_eq!(runs(files), 0);
    engine
}

/// Of a transaction that keeps its rows in memory, and of one that puts them aside as they come.
fn in_memory_and_aside() -> [EngineOptions; 2] {
    [quiet(), EngineOptions { statement_bytes_max: 1400, ..quiet() }]
}

/// A migration: of `t`, which has a row in a file and one in memory, `gone` and `emptied`.
fn prepare(env: &Env, options: &EngineOptions) -> Arc<Engine> {
    let engine = Engine::open(env.clone(), Path::new(DIR), options.clone()).unwrap();
    for name in ["t", "gone", "emptied"] {
        let table = engine.create_table(definition(name, 2, Durability::Sync)).unwrap();
        put(&engine, &table, 1, "filed").unwrap();
        engine.flush(&table).unwrap();
        let last = put(&engine, &table, 2, "remembered").unwrap();
        engine.settle(last.obligation).unwrap();
    }
    engine
}

fn migrate(engine: &Arc<Engine>) -> Result<Arc<Transaction>> {
    let transaction = engine.begin();
    let within = transaction.begin_statement(None);
    let schema = CatalogChange::CreateSchema { name: "other".into() };
    transaction.change(&schema)?;
    let made = transaction.change(&create("made"))?.unwrap();
    write_in(&within, engine, &made, &[(1, "one"), (2, "two")])?;
    let t = engine.table("public", "t")?;
    write_in(&within, engine, &t, &[(1, "changed")])?;
    transaction.change(&add_column("t", "more"))?;
    let t = transaction.catalog().table("public", "t").unwrap().clone();
    write_in(&within, engine, &t, &[(3, "new")])?;
    transaction.change(&rename("t", "renamed"))?;
    transaction.change(&drop_table("gone"))?;
    let emptied = engine.table("public", "emptied")?;
    write_in(&within, engine, &emptied, &[(5, "before it was emptied")])?;
    transaction.change(&CatalogChange::Truncate(emptied))?;
    let emptied = transaction.catalog().table("public", "emptied").unwrap().clone();
    write_in(&within, engine, &emptied, &[(1, "fresh")])?;
    assert_eq!(own(&transaction, &emptied, 1), Some(Some("fresh".into())));
    assert_eq!(own(&transaction, &emptied, 5), None);
    Ok(transaction)
}

#[test]
fn a_transaction_sees_its_catalog_and_nobody_else_does() {
    for options in in_memory_and_aside() {
        let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
        let engine = prepare(&sim_env(&files, &clock), &options);
        let (before, version) = (everything(&engine), engine.catalog_version());
        let transaction = migrate(&engine).unwrap();
        let catalog = transaction.catalog();
        assert!(catalog.version() > engine.catalog_version());
        let names: Vec<&str> = catalog.tables("public").map(|table| table.name()).collect();
        assert_eq!(names, ["emptied", "made", "renamed"]);
        assert!(catalog.schemas().any(|schema| schema == "other"));
        assert_eq!((everything(&engine), engine.catalog_version()), (before.clone(), version));
        // What others create meanwhile, it sees too.
        engine.create_table(definition("others", 1, Durability::Sync)).unwrap();
        assert!(transaction.catalog().table("public", "others").is_some());
        assert!(transaction.catalog().table("public", "made").is_some());
        engine.drop_table("public", "others").unwrap();
        transaction.roll_back();
        assert_eq!(everything(&engine), before);
        let engine = reopened(&files.kill());
        assert_eq!(everything(&engine), before);
        // Whoever was about to drop it has left nothing that keeps others from writing.
        put(&engine, &engine.table("public", "gone").unwrap(), 9, "written").unwrap();
    }
}

#[test]
fn what_came_after_a_mark_is_undone() {
    for options in in_memory_and_aside() {
        let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
        let engine = prepare(&sim_env(&files, &clock), &options);
        let transaction = engine.begin();
        let within = transaction.begin_statement(None);
        transaction.change(&create("made")).unwrap();
        transaction.set_savepoint("a");
        let made = transaction.catalog().table("public", "made").unwrap().clone();
        write_in(&within, &engine, &made, &[(1, "undone")]).unwrap();
        transaction.change(&CatalogChange::Truncate(made.clone())).unwrap();
        transaction.change(&drop_table("t")).unwrap();
        transaction.change(&create("t")).unwrap();
        assert!(transaction.roll_back_to("a"));
        let within = transaction.begin_statement(None);
        let t = transaction.catalog().table("public", "t").unwrap().clone();
        assert_eq!(scan_now(&engine, &t), model(&[(1, "filed"), (2, "remembered")]));
        write_in(&within, &engine, &made, &[(2, "kept")]).unwrap();
        commit(&engine, &transaction).unwrap();
        let made = engine.table("public", "made").unwrap();
        assert_eq!(scan_now(&engine, &made), model(&[(2, "kept")]));
        let engine = reopened(&files.crash(1));
        assert_eq!(scan_now(&engine, &engine.table("public", "made").unwrap()), model(&[(2, "kept")]));
    }
}

/// What is left of a table then is what everybody knows, and of one that it has made, nothing.
#[test]
fn rows_of_definitions_that_are_undone_are_undone() {
    for options in in_memory_and_aside() {
        let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
        let engine = prepare(&sim_env(&files, &clock), &options);
        let transaction = engine.begin();
        transaction.set_savepoint("a");
        transaction.change(&add_column("t", "undone")).unwrap();
        transaction.change(&create("made")).unwrap();
        let emptied = engine.table("public", "emptied").unwrap();
        transaction.change(&CatalogChange::Truncate(emptied)).unwrap();
        let write_all = |value: &str| {
            let within = transaction.begin_statement(None);
            for table in transaction.catalog().tables("public") {
                for k in 0..6 {
                    write_in(&within, &engine, table, &[(k, value)]).unwrap();
                }
            }
        };
        write_all("undone");
        assert!(transaction.roll_back_to("a"));
        write_all("kept");
        transaction.change(&add_column("gone", "more")).unwrap();
        write_all("kept");
        commit(&engine, &transaction).unwrap();
        engine.change(&add_column("t", "more")).unwrap();
        let engine = reopened(&files.crash(1));
        let kept: Rows = (0..6).map(|k| (k, "kept".to_owned())).collect();
        let found = everything(&engine);
        let found: Vec<_> =
            found.iter().map(|(name, columns, rows)| (&**name, columns.len(), rows)).collect();
        assert_eq!(found, [("emptied", 3, &kept), ("gone", 4, &kept), ("t", 4, &kept)]);
    }
}

#[test]
fn whoever_changes_the_same_meanwhile_makes_the_commit_fail() {
    for options in in_memory_and_aside() {
        type Others = fn(&Arc<Engine>);
        let others: [(CatalogChange, Others); 5] = [
            (add_column("t", "mine"), |engine| {
                engine.alter_table("public", "t", &rename_to("theirs")).unwrap()
            }),
            (drop_table("t"), |engine| engine.drop_table("public", "t").unwrap()),
            (create("made"), |engine| {
                engine.create_table(definition("made", 1, Durability::Sync)).unwrap();
            }),
            (rename("t", "made"), |engine| {
                engine.create_table(definition("made", 1, Durability::Sync)).unwrap();
            }),
            (CatalogChange::CreateSchema { name: "s".into() }, |engine| engine.create_schema("s").unwrap()),
        ];
        for (change, meanwhile) in others {
            let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
            let engine = prepare(&sim_env(&files, &clock), &options);
            let transaction = engine.begin();
            let within = transaction.begin_statement(None);
            write_in(&within, &engine, &engine.table("public", "gone").unwrap(), &[(1, "mine")]).unwrap();
            transaction.change(&change).unwrap();
            meanwhile(&engine);
            let theirs = everything(&engine);
            assert_eq!(commit(&engine, &transaction).unwrap_err().kind(), ErrorKind::Conflict);
            assert_eq!(everything(&engine), theirs);
            assert_eq!(everything(&reopened(&files.crash(2))), theirs);
        }
    }
}

fn rename_to(to: &str) -> Alteration {
    Alteration::Rename { to: to.into() }
}

#[test]
fn rows_that_others_change_make_the_commit_fail_and_leave_the_catalog() {
    for options in in_memory_and_aside() {
        let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
        let engine = prepare(&sim_env(&files, &clock), &options);
        let transaction = migrate(&engine).unwrap();
        // A truncate takes no heed of locks.
        engine.truncate(&engine.table("public", "t").unwrap()).unwrap();
        let theirs = everything(&engine);
        assert!(matches!(
            commit(&engine, &transaction).unwrap_err().kind(),
            ErrorKind::Conflict | ErrorKind::Retry
        ));
        assert_eq!(everything(&engine), theirs);
        drop(transaction);
        put(&engine, &engine.table("public", "gone").unwrap(), 9, "written").unwrap();
        let again = migrate(&engine).unwrap();
        commit(&engine, &again).unwrap();
        let after = everything(&engine);
        assert_eq!(after.len(), 3);
        assert_eq!(everything(&reopened(&files.crash(3))), after);
    }
}

#[test]
fn a_commit_that_failed_leaves_nothing_in_the_manifest() {
    for options in in_memory_and_aside() {
        let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
        let engine = prepare(&sim_env(&files, &clock), &options);
        let transaction = migrate(&engine).unwrap();
        engine.truncate(&engine.table("public", "t").unwrap()).unwrap();
        commit(&engine, &transaction).unwrap_err();
        drop(transaction);
        // What it would have dropped is gone when the manifest is begun anew.
        engine.drop_table("public", "gone").unwrap();
        for n in 0..20 {
            engine.create_table(definition(&format!("later{n}"), 2, Durability::Sync)).unwrap();
        }
        let after = everything(&engine);
        assert_eq!(everything(&reopened(&files.crash(3))), after);
    }
}

fn stops_at_any_point(options: EngineOptions, stop: impl Fn(&SimFiles, u64) -> SimFiles) {
    let is_put_aside = options.statement_bytes_max < quiet().statement_bytes_max;
    let (mut seen, mut at) = ([false; 2], 1);
    loop {
        let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
        let engine = prepare(&sim_env(&files, &clock), &options);
        let before = everything(&engine);
        let transaction = migrate(&engine).unwrap();
        assert_eq!(runs(&files) > 0, is_put_aside);
        files.stop_at(files.changes() + at);
        let acknowledged = commit(&engine, &transaction).is_ok();
        drop((engine, transaction));
        let files = stop(&files, at);
        let engine = reopened(&files);
        let found = everything(&engine);
        if found == before {
            assert!(!acknowledged);
            assert!(!engine.catalog().schemas().any(|schema| schema == "other"));
            seen[0] = true;
            // What is left of it is in nobody's way.
            commit(&engine, &migrate(&engine).unwrap()).unwrap();
        } else {
            seen[1] = true;
        }
        let found = everything(&engine);
        let named: Vec<(&str, usize, &Rows)> =
            found.iter().map(|(name, columns, rows)| (name.as_str(), columns.len(), rows)).collect();
        let (made, emptied) = (model(&[(1, "one"), (2, "two")]), model(&[(1, "fresh")]));
        let renamed = model(&[(1, "changed"), (2, "remembered"), (3, "new")]);
        assert_eq!(named, [("emptied", 3, &emptied), ("made", 3, &made), ("renamed", 4, &renamed)]);
        for table in engine.catalog().tables("public") {
            put(&engine, table, 100, "later").unwrap();
            engine.flush(table).unwrap();
        }
        let later = everything(&engine);
        engine.close().unwrap();
        drop(engine);
        assert_eq!(everything(&reopened(&files.crash(at))), later);
        if acknowledged {
            break;
        }
        at += 1;
    }
    assert_eq!(seen, [true; 2]);
}

/// `t` is made anew, in a table that takes its place.
fn rewrite(engine: &Arc<Engine>) -> Result<Commit> {
    let t = engine.table("public", "t")?;
    let made_from = Arc::new(engine.as_it_is(&t));
    let mut draft = definition("draft", 1, Durability::Sync);
    draft.options.attributes.insert(DRAFT.into(), "t".into());
    let draft = engine.create_table(draft)?;
    let copied = put(engine, &draft, 1, "copied")?;
    engine.change(&CatalogChange::Replace { table: t, by: draft, made_from })?;
    Ok(copied)
}

#[test]
fn a_table_takes_the_place_of_another_whole_or_not_at_all() {
    let options = quiet();
    let (mut seen, mut at) = ([false; 2], 1);
    loop {
        let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
        let engine = prepare(&sim_env(&files, &clock), &options);
        files.stop_at(files.changes() + at);
        let acknowledged = rewrite(&engine).is_ok();
        drop(engine);
        let engine = reopened(&files.crash(at));
        let names: Vec<String> = everything(&engine).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["emptied", "gone", "t"], "a draft is gone");
        let rows = scan_now(&engine, &engine.table("public", "t").unwrap());
        let is_copy = rows == model(&[(1, "copied")]);
        assert!(is_copy || !acknowledged && rows == model(&[(1, "filed"), (2, "remembered")]), "{rows:?}");
        seen[usize::from(is_copy)] = true;
        if acknowledged {
            break;
        }
        at += 1;
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn rows_that_come_while_a_table_is_made_from_others_are_not_lost() {
    for options in in_memory_and_aside() {
        let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
        let engine = prepare(&sim_env(&files, &clock), &options);
        let t = engine.table("public", "t").unwrap();
        let made_from = Arc::new(engine.as_it_is(&t));
        let draft = engine.create_table(definition("draft", 1, Durability::Sync)).unwrap();
        put(&engine, &t, 3, "theirs").unwrap();
        let replace = CatalogChange::Replace { table: t.clone(), by: draft, made_from };
        assert_eq!(engine.change(&replace).map(drop).unwrap_err().kind(), ErrorKind::Conflict);
        put(&engine, &t, 4, "later").unwrap();
        let theirs = model(&[(1, "filed"), (2, "remembered"), (3, "theirs"), (4, "later")]);
        assert_eq!(scan_now(&engine, &engine.table("public", "t").unwrap()), theirs);
    }
}

#[test]
fn a_power_cut_at_any_point_finds_catalog_and_rows_or_neither() {
    for seed in 0..oribi_sim::cases(8) {
        for options in in_memory_and_aside() {
            stops_at_any_point(options, |files, at| files.crash(seed * 1000 + at));
        }
    }
}

#[test]
fn a_process_that_is_killed_at_any_point_leaves_catalog_and_rows_or_neither() {
    for options in in_memory_and_aside() {
        stops_at_any_point(options, |files, _| files.kill());
    }
}

/// The manifest cannot be told that the log has the record, and the log is needed for longer.
#[test]
fn a_manifest_that_is_told_later_loses_nothing() {
    for options in in_memory_and_aside() {
        for nth in 0..8 {
            let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
            let engine = prepare(&sim_env(&files, &clock), &options);
            let before = everything(&engine);
            let transaction = migrate(&engine).unwrap();
            files.fail(oribi_sim::Operation::Sync, nth, "MANIFEST");
            let committed = commit(&engine, &transaction);
            files.forgive();
            let found = everything(&reopened(&files.crash(nth)));
            match committed {
                Ok(_) => assert_eq!(found.len(), 3, "{nth}"),
                Err(_) => assert_eq!(found, before, "{nth}"),
            }
            drop(transaction);
            let now = everything(&engine);
            for table in engine.catalog().tables("public") {
                engine.flush(table).unwrap();
            }
            engine.close().unwrap();
            assert_eq!(everything(&reopened(&files.crash(nth))), now);
        }
    }
}
