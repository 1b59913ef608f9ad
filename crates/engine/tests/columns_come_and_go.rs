//! Tables change while rows of the older and the newer layout are in memory and in files.
#![allow(clippy::unwrap_used)]

mod common;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::Int64Type;
use common::*;
use oribi_engine::{Alteration, Decision, Engine, KeyRange, Read, ReadView, Table, WriteOp};
use oribi_types::schema::ColumnSpec;
use oribi_types::{
    ColumnSource, ColumnType, Durability, ErrorKind, Result, RowRef, TableOptions, Value, ValueRef,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A column of all rows, by key.
fn column(engine: &Engine, table: &Arc<Table>, name: &str) -> BTreeMap<i64, Option<i64>> {
    let schema = table.schema();
    let projection = [0, schema.position(name).unwrap()];
    let tablets = 0..table.tablet_ids().len();
    let mut scan = engine.scan(table, tablets, &projection, false, &engine.snapshot()).unwrap();
    let mut values = BTreeMap::new();
    let mut add = |batch: &arrow::array::RecordBatch, i: usize| {
        let v = batch.column(1).as_primitive::<Int64Type>();
        let k = batch.column(0).as_primitive::<Int64Type>().value(i);
        assert!(values.insert(k, v.is_valid(i).then(|| v.value(i))).is_none());
    };
    for tablet in &mut scan {
        for file in &tablet.files {
            let mut position = 0;
            for batch in file.sstable.batches(&schema, &projection, false, None).unwrap() {
                let batch = batch.unwrap();
                for i in 0..batch.num_rows() {
                    if !file.hidden.contains(position) {
                        add(&batch, i);
                    }
                    position += 1;
                }
            }
        }
        while let Some(batch) = tablet.memory.next_batch().unwrap() {
            (0..batch.num_rows()).for_each(|i| add(&batch, i));
        }
    }
    // Gets agree.
    for (k, expected) in &values {
        let column = &schema.columns()[projection[1]];
        let oribi_types::ColumnSource::Slot(slot) = column.source else { panic!("{name} is in a slot") };
        let (found, _) = engine
            .get(table, &key(*k), engine.read_view(), |row| match schema.slot_value(column, slot, row.row) {
                ValueRef::Int64(v) => Some(v),
                ValueRef::Null => None,
                other => panic!("{other:?}"),
            })
            .unwrap();
        assert_eq!(found, Some(*expected), "get of {k}");
    }
    values
}

/// Writes a row whose slots after v and n hold `n` too.
fn put_all(engine: &Engine, table: &Arc<Table>, k: i64, n: i64) {
    let key = key(k);
    let written =
        engine.write(&[WriteOp { table, key: &key, read: Read::Blind, row: &[] }], &mut |_, _, row| {
            let layout = table.schema_ref().layout();
            let mut slots = vec![ValueRef::String("v")];
            slots.resize(layout.slots().len(), ValueRef::Int64(n));
            layout.encode(&slots, row);
            Ok(Decision::Put)
        });
    written.unwrap();
}

fn alter(engine: &Engine, change: Alteration) -> Arc<Table> {
    engine.alter_table("public", "t", &change).unwrap();
    engine.table("public", "t").unwrap()
}

fn int(name: &str) -> ColumnSpec {
    ColumnSpec::new(name, ColumnType::Int64)
}

/// Imports rows whose slots after v hold `n`: they are in a file, and nowhere in memory.
fn import_all(engine: &Arc<Engine>, table: &Arc<Table>, keys: &[i64], n: i64) {
    let schema = table.schema();
    let ints = |of: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(keys.iter().map(|k| of(*k))))
    };
    let v: ArrayRef = Arc::new(StringViewArray::from_iter_values(keys.iter().map(|_| "v")));
    let mut columns = vec![ints(&|k| k), v];
    columns.resize_with(schema.columns().len(), || ints(&|_| n));
    let mut import = engine.import(table).unwrap();
    import.push(RecordBatch::try_new(schema.arrow().clone(), columns).unwrap()).unwrap();
    import.commit().unwrap();
}

/// A number of a row, which is there.
fn number(engine: &Engine, table: &Table, k: i64, name: &str, view: ReadView) -> Result<Option<i64>> {
    let schema = table.schema();
    let column = &schema.columns()[schema.position(name).unwrap()];
    let ColumnSource::Slot(slot) = column.source else { panic!("{name} is in a slot") };
    let (found, _) =
        engine.get(table, &key(k), view, |row| match schema.slot_value(column, slot, row.row) {
            ValueRef::Int64(v) => Some(v),
            ValueRef::Null => None,
            other => panic!("{other:?}"),
        })?;
    Ok(found.expect("the row is there"))
}

#[test]
fn a_reader_by_an_older_definition_caches_no_row_without_its_newer_columns() {
    let (_, _, engine, old) = fresh(1, Durability::Sync);
    let new =
        alter(&engine, Alteration::AddColumn(ColumnSpec { default: Some(Value::Int64(7)), ..int("c") }));
    import_all(&engine, &new, &[1, 2], 42);
    assert_eq!(number(&engine, &old, 1, "n", engine.read_view()).unwrap(), Some(42));
    // A write that is decided by what is there, and refused.
    let refused = write(&engine, &old, &[(2, Some("old"))]);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Retry);
    for k in [1, 2] {
        assert_eq!(number(&engine, &new, k, "c", engine.read_view()).unwrap(), Some(42), "of {k}");
    }
    assert!(engine.is_cached(&new, &key(1)), "whole rows are cached");
    // What is read, changed and written keeps it.
    let change =
        |row: &[u8], out: &mut Vec<u8>| new.schema_ref().replace_slots(row, &[(1, ValueRef::Int64(1))], out);
    let op = WriteOp { table: &new, key: &key(1), read: Read::Existing, row: &[] };
    let changed = engine.write(&[op], &mut |_, current, out| {
        change(current.unwrap().row, out);
        Ok(Decision::Put)
    });
    changed.unwrap();
    assert_eq!(column(&engine, &new, "c"), BTreeMap::from([(1, Some(42)), (2, Some(42))]));
}

/// The handle from before the drop knows a column of which rows in memory, and files that are written from then on, have
/// nothing.
#[test]
fn a_dropped_column_is_never_read_as_null() {
    let (_, _, engine, old) = fresh(1, Durability::Sync);
    import_all(&engine, &old, &[1, 2, 3], 42);
    let snapshot = Arc::new(engine.snapshot());
    let mut open = engine.range(&old, 0, KeyRange::default(), &[2], &snapshot);
    let scan = engine.scan_tablet(&old, 0, &[2], false, &snapshot).unwrap();
    assert_eq!(open.read(1, |_| Ok(())).unwrap(), 1);
    let new = alter(&engine, Alteration::DropColumn("n".into()));
    assert_eq!(get(&engine, &new, 1).as_deref(), Some("v"), "cached without n");
    put(&engine, &new, 4, "v").unwrap();
    for view in [engine.read_view(), snapshot.view()] {
        for k in [1, 2, 3] {
            let found = number(&engine, &old, k, "n", view);
            assert!(matches!(&found, Ok(Some(42))) || found.unwrap_err().kind() == ErrorKind::Retry);
        }
    }
    let of_new = number(&engine, &old, 4, "n", engine.read_view());
    assert_eq!(of_new.unwrap_err().kind(), ErrorKind::Retry);
    assert_eq!(open.read(1, |_| Ok(())).unwrap(), 1, "of the file that it reads");
    engine.flush(&new).unwrap();
    engine.compact(&new).unwrap();
    let refused = engine.scan_tablet(&old, 0, &[0, 2], false, &snapshot).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    // Who does not want the column misses nothing.
    assert!(engine.scan_tablet(&old, 0, &[0, 1], false, &snapshot).is_ok());
    let mut late = engine.range(&old, 0, KeyRange::default(), &[2], &snapshot);
    assert_eq!(late.read(1, |_| Ok(())).unwrap_err().kind(), ErrorKind::Conflict);
    // Who had begun reads on.
    let batches = scan.files[0].batches(old.schema_ref(), &[2], false, 0, None).unwrap().unwrap();
    let values: Vec<i64> = batches
        .flat_map(|b| b.unwrap().batch.column(0).as_primitive::<Int64Type>().values().to_vec())
        .collect();
    assert_eq!(values, [42, 42, 42]);
    // A write that leaves its row as it is was decided by what it could not see.
    let op = WriteOp { table: &old, key: &key(1), read: Read::Existing, row: &[] };
    let kept = engine.write(&[op], &mut |_, _, _| Ok(Decision::Keep));
    assert_eq!(kept.unwrap_err().kind(), ErrorKind::Retry);
}

#[test]
fn rows_that_expire_by_a_newer_definition_are_not_lost_to_an_older_one() {
    let (_, clock, engine, old) = fresh(1, Durability::Sync);
    put(&engine, &old, 1, "v").unwrap();
    engine.flush(&old).unwrap();
    let snapshot = engine.snapshot();
    let options = TableOptions { ttl_ms: Some(1), ..TableOptions::new(Durability::Sync) };
    clock.advance(10_000);
    drop(snapshot);
    let snapshot = engine.snapshot();
    let new = alter(&engine, Alteration::SetOptions(options));
    engine.compact(&new).unwrap();
    let refused = engine.scan_tablet(&old, 0, &[0], false, &snapshot).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(scan_now(&engine, &new), Rows::new());
}

#[test]
fn a_dropped_and_added_column_brings_nothing_back() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    put_all(&engine, &table, 1, 11);
    put_all(&engine, &table, 3, 33);
    engine.flush(&table).unwrap();
    put_all(&engine, &table, 2, 22);
    let table = alter(&engine, Alteration::DropColumn("n".into()));
    let table_again = alter(&engine, Alteration::AddColumn(int("n")));
    let nothing = BTreeMap::from([(1, None), (2, None), (3, None)]);
    assert_eq!(column(&engine, &table_again, "n"), nothing, "in a file and in memory");
    // A handle from before writes no more.
    assert_eq!(put(&engine, &table, 3, "old handle").unwrap_err().kind(), ErrorKind::Retry);
    engine.flush(&table).unwrap();
    engine.compact(&table).unwrap();
    put_all(&engine, &table_again, 4, 44);
    let expected = BTreeMap::from([(1, None), (2, None), (3, None), (4, Some(44))]);
    assert_eq!(column(&engine, &table_again, "n"), expected);
    let (engine, table) = after_kill(&files);
    engine.settle(oribi_engine::Obligation::default()).unwrap();
    let found = column(&engine, &table, "n");
    assert!(found.iter().all(|(k, v)| expected[k] == *v) && found.len() >= 3);
}

#[test]
fn rows_of_every_layout_live_side_by_side() {
    let (files, _, engine, old) = fresh(2, Durability::Periodic(10));
    put_all(&engine, &old, 1, 1);
    engine.flush(&old).unwrap();
    put_all(&engine, &old, 2, 2);
    put_all(&engine, &old, 4, 4);
    let with_default = ColumnSpec { default: Some(Value::Int64(7)), ..int("c") };
    let new = alter(&engine, Alteration::AddColumn(with_default));
    put_all(&engine, &new, 3, 3);
    let newer = alter(&engine, Alteration::AddColumn(int("d")));
    put_all(&engine, &newer, 5, 5);
    let c = BTreeMap::from([(1, Some(7)), (2, Some(7)), (3, Some(3)), (4, Some(7)), (5, Some(5))]);
    let d = BTreeMap::from([(1, None), (2, None), (3, None), (4, None), (5, Some(5))]);
    let n: BTreeMap<i64, Option<i64>> = (1..6).map(|k| (k, Some(k))).collect();
    let see = |engine: &Engine, at: &str| {
        let table = engine.table("public", "t").unwrap();
        for (name, expected) in [("c", &c), ("d", &d), ("n", &n)] {
            assert_eq!(&column(engine, &table, name), expected, "{name} {at}");
        }
    };
    see(&engine, "in memory");
    // Rows that the old handle does not know all of are read through it by the columns that it knows.
    assert_eq!(column(&engine, &old, "n"), n);
    // By a handle from before, as a long statement may hold one.
    engine.flush(&old).unwrap();
    see(&engine, "flushed");
    assert_eq!(column(&engine, &old, "n"), n);
    engine.compact(&old).unwrap();
    see(&engine, "compacted");
    let (again, table) = after_kill(&files);
    see(&again, "opened again");
    put_all(&again, &table, 1, 1);
    let renamed = alter(&again, Alteration::RenameColumn { from: "n".into(), to: "m".into() });
    assert_eq!(column(&again, &renamed, "m"), n);
    assert_eq!(findings(&files), Vec::<String>::new());
}

#[test]
fn a_log_with_rows_of_every_layout_is_replayed() {
    let (files, _, engine, old) = fresh(1, Durability::Periodic(10));
    put_all(&engine, &old, 1, 1);
    let new = alter(&engine, Alteration::AddColumn(int("c")));
    put_all(&engine, &new, 2, 2);
    let newest = alter(&engine, Alteration::DropColumn("n".into()));
    put(&engine, &newest, 3, "v").unwrap();
    engine.settle(oribi_engine::Obligation { written: u64::MAX, ..Default::default() }).unwrap();
    assert_eq!(findings(&files), Vec::<String>::new());
    let (again, table) = after_kill(&files);
    assert_eq!(column(&again, &table, "c"), BTreeMap::from([(1, None), (2, Some(2)), (3, None)]));
    assert!(table.schema().position("n").is_none());
}

#[test]
fn what_is_dropped_is_gone_and_its_name_is_free() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    put(&engine, &table, 1, "old").unwrap();
    engine.flush(&table).unwrap();
    put(&engine, &table, 2, "old").unwrap();
    let snapshot = engine.snapshot();
    let scan = engine.scan_tablet(&table, 0, &[0, 1], false, &snapshot).unwrap();
    engine.drop_table("public", "t").unwrap();
    assert!(engine.catalog().table_by_id(table.id()).is_none());
    assert_eq!(put(&engine, &table, 3, "late").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(engine.truncate(&table).unwrap_err().kind(), ErrorKind::NotFound);
    engine.flush(&table).unwrap();
    let new = engine.create_table(definition("t", 1, Durability::Sync)).unwrap();
    assert_eq!(scan_now(&engine, &new), Rows::new());
    assert_eq!(get(&engine, &new, 2), None);
    // Who was reading reads on.
    let batches = scan.files[0].batches(table.schema_ref(), &[0, 1], false, 0, None).unwrap().unwrap();
    assert_eq!(batches.map(|b| b.unwrap().batch.num_rows()).sum::<usize>(), 1);
    put(&engine, &new, 1, "new").unwrap();
    let commit = put(&engine, &new, 2, "new").unwrap();
    engine.settle(commit.obligation).unwrap();
    let (again, table) = after_kill(&files);
    assert_eq!(
        scan_now(&again, &table),
        model(&[(1, "new"), (2, "new")]),
        "the log's older records are not its"
    );
    assert!(engine.memory().used() < 10_000, "{}", engine.memory().used());
    assert_eq!(engine.drop_schema("public", true).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_row_is_read_by_the_layout_that_it_was_written_with() {
    // What the other tests stand on: a shorter row has nulls in the slots that it lacks.
    let (_, _, engine, table) = fresh(1, Durability::Sync);
    put_all(&engine, &table, 1, 1);
    let new = alter(&engine, Alteration::AddColumn(int("c")));
    let (slot, _) = engine
        .get(&new, &key(1), engine.read_view(), |row| {
            RowRef::new(new.schema_ref().layout(), row.row).get(2).is_none()
        })
        .unwrap();
    assert_eq!(slot, Some(true));
}
