//! What a write of many rows reads from files it reads page by page as there is room, and finds as it is.
#![allow(clippy::unwrap_used)]

mod common;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use common::cold::{Cold, short};
use common::*;
use oribi_engine::{Alteration, Decision, Read, WriteOp};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, ErrorKind, Schema, Value, ValueRef};
use std::sync::Arc;

#[test]
fn few_short_rows_take_little() {
    let subject = Cold::new();
    subject.add_file((0..3000).map(|k| (k, short(k))));
    let found = || assert!(subject.values(10..40).into_iter().eq((10..40).map(|k| Some(short(k)))));
    let most = subject.most(|engine| engine.memory().queries(), found);
    // Some pages, and one step of room for what was read.
    assert!((1..2 << 20).contains(&most), "{most} bytes");
}

/// A page with a long value changes nothing for the others.
#[test]
fn a_page_is_read_once_for_all_rows_of_it() {
    let subject = Cold::new();
    let value = |k: i64| match k {
        3000 => "y".repeat(7 << 20),
        _ => short(k),
    };
    subject.add_file((0..4000).map(|k| (k, value(k))));
    let found = || assert!(subject.values(0..4000).into_iter().eq((0..4000).map(|k| Some(value(k)))));
    let reads = subject.reads(found);
    assert!(reads < 1000, "{reads} reads for 4,000 rows");
}

#[test]
fn each_row_that_is_looked_for_in_files_counts_as_a_read() {
    let subject = Cold::new();
    subject.add_file((0..1000).map(|k| (k, short(k))));
    (0..100).for_each(|k| assert!(delete(&subject.engine, &subject.table, k * 10).unwrap()));
    subject.engine.flush(&subject.table).unwrap();
    let subject = subject.opened_again();
    let before = subject.engine.stats().file_reads;
    let seen = subject.values(0..1000);
    assert_eq!(seen.iter().filter(|seen| seen.is_none()).count(), 100);
    assert_eq!(subject.engine.stats().file_reads - before, 1000);
}

/// A row that is asked for again and again, and is in no file though they may have it, is looked for before the latches.
#[test]
fn what_is_nowhere_is_looked_for_once() {
    let subject = Cold::new();
    subject.add_file((0..1000).map(|k| (k, short(k))));
    assert!(delete(&subject.engine, &subject.table, 5).unwrap());
    subject.engine.flush(&subject.table).unwrap();
    let subject = subject.opened_again();
    let asked = || (20..60).chain([5; 500]);
    let reads = subject.reads(|| {
        let seen = subject.values(asked());
        assert!(seen.into_iter().eq(asked().map(|k| (k != 5).then(|| short(k)))));
    });
    assert!(reads < 100, "{reads} reads");
}

/// What does not fit is read as there is room for it: pages one by one, and the rest under the latches.
#[test]
fn where_there_is_no_room_the_same_is_found() {
    let value = |k: i64| format!("{k:04000}");
    let same = |subject: &Cold| {
        assert!(subject.values(0..2000).into_iter().eq((0..2000).map(|k| Some(value(k)))));
    };
    // For all; for all pages and some rows; for a few rows and no pages; for nothing.
    for left in [48 << 20, 11 << 20, 3 << 20, 0] {
        let subject = Cold::new();
        subject.add_file((0..2000).map(|k| (k, value(k))));
        let reads = subject.reads(|| subject.with_left(left, || same(&subject)));
        let is_little = left < 20 << 20;
        assert_eq!(reads > 2000, is_little, "{reads} reads with room for {left} bytes");
    }
}

#[test]
fn long_rows_for_whose_pages_there_is_no_room_are_read_in_turn() {
    let subject = Cold::new();
    let value = |k: i64| if k == 30 { "x".repeat(6 << 20) } else { short(k) };
    subject.add_file((0..100).map(|k| (k, value(k))));
    let most = subject.most(
        |engine| engine.stats().long_read_bytes,
        || {
            subject.with_left(10 << 20, || {
                assert!(subject.values(0..100).into_iter().eq((0..100).map(|k| Some(value(k)))));
            });
        },
    );
    assert!(most >= 12 << 20, "{most} bytes");
}

#[test]
fn rows_are_found_on_both_sides_of_a_row_group_s_end() {
    let subject = Cold::new();
    subject.add_file((0..70_000).map(|k| (k, k.to_string())));
    let asked = || (65_000..66_000).step_by(3).chain([65_535, 65_536]);
    assert!(subject.values(asked()).into_iter().eq(asked().map(|k| Some(k.to_string()))));
}

#[test]
fn damage_is_told_of_where_it_is_read_and_nowhere_else() {
    let subject = Cold::new();
    subject.add_file((0..1000).map(|k| (k, short(k))));
    let other = subject.add_file((500..1500).map(|k| (k * 2, short(k * 2))));
    // Parquet's directory, which look-ups do without.
    let bytes = oribi_env::read_file(&subject.hooked.files, &other).unwrap().len() as u64;
    assert!(subject.hooked.files.flip_bit(&other, (bytes - 100) * 8));
    let subject = subject.opened_again();
    assert!(subject.values(0..1000).into_iter().eq((0..1000).map(|k| Some(short(k)))));
    let error = subject.decided_on(0..1500).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.message().contains("footer"), "{error}");
    // A page of values.
    let subject = Cold::new();
    subject.add_file((0..1000).map(|k| (k, short(k))));
    let other = subject.add_file((500..1500).map(|k| (k * 2, short(k * 2))));
    assert!(subject.hooked.files.flip_bit(&other, bytes / 2 * 8));
    let error = subject.decided_on(0..1500).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.message().contains("sstable "), "{error}");
    assert!(subject.values(0..900).into_iter().eq((0..900).map(|k| Some(short(k)))));
}

#[test]
fn columns_that_files_lack_have_their_default() {
    let subject = Cold::new();
    subject.add_file((0..100).map(|k| (k, short(k))));
    let added = ColumnSpec { default: Some(Value::Int64(7)), ..ColumnSpec::new("c", ColumnType::Int64) };
    subject.engine.alter_table("public", "t", &Alteration::AddColumn(added)).unwrap();
    let subject = subject.opened_again();
    let table = &subject.table;
    let schema = table.schema();
    let column = &schema.columns()[3];
    let oribi_types::ColumnSource::Slot(slot) = column.source else { panic!("it is in a slot") };
    let keys: Vec<Vec<u8>> = (0..100).map(key).collect();
    let op = |key| WriteOp { table, key, read: Read::Existing, row: &[] };
    let ops: Vec<WriteOp<'_>> = keys.iter().map(|key| op(key)).collect();
    let mut decided = 0;
    let kept = subject.engine.write(&ops, &mut |i, current, _| {
        let row = current.unwrap().row;
        assert_eq!(v_of(table, row), short(i as i64));
        assert_eq!(schema.slot_value(column, slot, row), ValueRef::Int64(7));
        decided += 1;
        Ok(Decision::Keep)
    });
    kept.unwrap();
    assert_eq!(decided, 100);
}

#[test]
fn rows_past_their_time_are_decided_on_as_absent() {
    let mut definition = definition("t", 1, Durability::Periodic(100));
    definition.options.ttl_ms = Some(10_000);
    let subject = Cold::of(definition);
    subject.add_file((0..100).map(|k| (k, short(k))));
    subject.clock.advance(6_000_000);
    subject.add_file((100..200).map(|k| (k, short(k))));
    subject.clock.advance(5_000_000);
    assert!(subject.values(0..200).into_iter().eq((0..200).map(|k| (k >= 100).then(|| short(k)))));
}

/// Of such rows nothing is read but where they are.
#[test]
fn rows_that_are_all_key_are_found() {
    let subject = Cold::new();
    let schema = Schema::new(vec![ColumnSpec::new("k", ColumnType::Int64).not_null()], &["k"]).unwrap();
    let mut definition = definition("keys", 1, Durability::Periodic(100));
    definition.schema = schema;
    let table = &subject.engine.create_table(definition).unwrap();
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((0..100).map(|k| k * 2)));
    let mut import = subject.engine.import(table).unwrap();
    import.push(RecordBatch::try_new(table.schema().arrow().clone(), vec![keys]).unwrap()).unwrap();
    import.commit().unwrap();
    let keys: Vec<Vec<u8>> = (0..200).map(key).collect();
    let op = |key| WriteOp { table, key, read: Read::Existing, row: &[] };
    let ops: Vec<WriteOp<'_>> = keys.iter().map(|key| op(key)).collect();
    let mut there = Vec::new();
    let kept = subject.engine.write(&ops, &mut |_, current, _| {
        there.push(current.is_some());
        Ok(Decision::Keep)
    });
    kept.unwrap();
    assert!(there.into_iter().eq((0..200).map(|k| k % 2 == 0)));
}
