//! The table's columns change; the files stay. Every reader finds a column by its id.
#![allow(clippy::unwrap_used)]

mod common;

use common::{TestRow, get, row_of, scan, small_options, write};
use oribi_env::Env;
use oribi_sstable::{Compression, Sstable};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Schema, Value};

fn text(n: i64) -> Value {
    Value::String(format!("text {n}"))
}

fn old_schema() -> Schema {
    let columns = vec![
        ColumnSpec::new("a", ColumnType::String),
        ColumnSpec::new("id", ColumnType::Int64).not_null(),
        ColumnSpec::new("b", ColumnType::Int64),
    ];
    Schema::new(columns, &["id"]).unwrap()
}

fn old_rows(schema: &Schema) -> Vec<TestRow> {
    (0..500).map(|n| row_of(schema, vec![text(n), Value::Int64(n), Value::Int64(-n)], 7)).collect()
}

/// What the file answers under `schema`, checked to be the same by scan and by key.
fn answers(schema: &Schema) -> Vec<Vec<Value>> {
    let old = old_schema();
    let rows = old_rows(&old);
    let dir = tempfile::tempdir().unwrap();
    let env = Env::real();
    let meta = write(&env, dir.path(), 1, &old, &small_options(Compression::Lz4), &rows);
    let sstable = Sstable::open(&env, dir.path(), &meta, schema).unwrap();
    sstable.verify(schema).unwrap();
    let scanned: Vec<Vec<Value>> = scan(&sstable, schema).unwrap().into_iter().map(|(v, _)| v).collect();
    for (old_row, values) in rows.iter().zip(&scanned) {
        let (_, ts, bytes) = get(&sstable, schema, &old_row.key).unwrap().unwrap();
        assert_eq!((ts, bytes), (old_row.ts, row_of(schema, values.clone(), 7).row));
    }
    scanned
}

#[test]
fn an_added_column_answers_its_default() {
    let mut spec = ColumnSpec::new("c", ColumnType::String).not_null();
    spec.default = Some(Value::String("new".into()));
    let schema = old_schema().with_column(spec).unwrap();
    let schema =
        schema.with_column(ColumnSpec::new("d", ColumnType::Decimal { precision: 20, scale: 2 })).unwrap();
    let expected = vec![text(3), Value::Int64(3), Value::Int64(-3), Value::String("new".into()), Value::Null];
    assert_eq!(answers(&schema)[3], expected);
}

#[test]
fn a_name_dropped_and_added_again_brings_nothing_back() {
    let schema = old_schema().without_column("b").unwrap();
    assert_eq!(answers(&schema)[3], [text(3), Value::Int64(3)]);
    let schema = schema.with_column(ColumnSpec::new("b", ColumnType::Int64)).unwrap();
    assert_eq!(answers(&schema)[3], [text(3), Value::Int64(3), Value::Null]);
}

#[test]
fn a_renamed_column_keeps_its_values() {
    let schema = old_schema().with_renamed("a", "z").unwrap().with_renamed("id", "key").unwrap();
    assert_eq!(answers(&schema)[3], [text(3), Value::Int64(3), Value::Int64(-3)]);
}

#[test]
fn swapped_names_do_not_swap_values() {
    let schema = old_schema().with_renamed("a", "x").unwrap().with_renamed("b", "a").unwrap();
    let schema = schema.with_renamed("x", "b").unwrap();
    assert_eq!(answers(&schema)[3], [text(3), Value::Int64(3), Value::Int64(-3)]);
}
