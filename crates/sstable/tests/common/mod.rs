//! Tables, rows and files for the scenarios.
#![allow(dead_code, clippy::unwrap_used)]

use arrow::array::RecordBatch;
use oribi_env::Env;
use oribi_sstable::{Sstable, SstableMeta, SstableOptions, SstableWriter, publish};
use oribi_types::batch::value_at;
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Result, Schema, Timestamp, Value, ValueRef};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::path::Path;

/// An encoded row and what it was made of.
#[derive(Clone, Debug, PartialEq)]
pub struct TestRow {
    pub key: Vec<u8>,
    pub row: Vec<u8>,
    pub ts: Timestamp,
    pub values: Vec<Value>,
}

pub fn row_of(schema: &Schema, values: Vec<Value>, ts: u64) -> TestRow {
    let (mut key, mut row) = (Vec::new(), Vec::new());
    let refs: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
    schema.encode(&refs, &mut key, &mut row).unwrap();
    TestRow { key, row, ts: Timestamp(ts), values }
}

/// In the order of an SSTable, with one copy per key and timestamp.
pub fn sorted(mut rows: Vec<TestRow>) -> Vec<TestRow> {
    rows.sort_by(|a, b| a.key.cmp(&b.key).then(b.ts.cmp(&a.ts)));
    rows.dedup_by(|a, b| a.key == b.key && a.ts == b.ts);
    rows
}

pub fn write(
    env: &Env,
    dir: &Path,
    id: u64,
    schema: &Schema,
    options: &SstableOptions,
    rows: &[TestRow],
) -> SstableMeta {
    let mut writer = SstableWriter::create(env, dir, id, schema, options).unwrap();
    for row in rows {
        writer.push(&row.key, &row.row, row.ts).unwrap();
    }
    let meta = writer.finish().unwrap();
    assert_eq!(meta.rows, rows.len() as u64);
    publish(env, dir, id).unwrap();
    meta
}

/// About `n` rows of `schema`, the same ones for the same seed.
pub fn generate(schema: &Schema, n: usize, seed: u64) -> Vec<TestRow> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let rows = prop::collection::vec((values(schema), 0..3u64), n).new_tree(&mut runner).unwrap().current();
    sorted(rows.into_iter().map(|(values, ts)| row_of(schema, values, ts)).collect())
}

/// Writes, publishes and opens.
pub fn sstable(dir: &Path, schema: &Schema, options: &SstableOptions, rows: &[TestRow]) -> Sstable {
    let env = Env::real();
    let meta = write(&env, dir, 17, schema, options, rows);
    Sstable::open(&env, dir, &meta, schema).unwrap()
}

/// All rows by `batches`, as values in SQL order.
pub fn scan(sstable: &Sstable, schema: &Schema) -> Result<Vec<(Vec<Value>, Timestamp)>> {
    let all: Vec<usize> = (0..schema.columns().len()).collect();
    let mut rows = Vec::new();
    for batch in sstable.batches(schema, &all, true, None)? {
        let batch = batch?;
        rows.extend((0..batch.num_rows()).map(|i| (values_at(schema, &batch, i), ts_at(&batch, i))));
    }
    Ok(rows)
}

pub fn values_at(schema: &Schema, batch: &RecordBatch, i: usize) -> Vec<Value> {
    let columns = schema.columns().iter().zip(batch.columns());
    columns.map(|(c, array)| value_at(array, c.column_type, i).to_owned()).collect()
}

pub fn ts_at(batch: &RecordBatch, i: usize) -> Timestamp {
    use arrow::array::AsArray;
    let ts = batch.column(batch.num_columns() - 1);
    Timestamp(ts.as_primitive::<arrow::datatypes::UInt64Type>().value(i))
}

/// The newest copy of `key`: row, timestamp, encoded row.
pub fn get(sstable: &Sstable, schema: &Schema, key: &[u8]) -> Result<Option<(u32, Timestamp, Vec<u8>)>> {
    let Some((row, ts)) = sstable.find(key, |_, _| true)? else { return Ok(None) };
    let mut bytes = Vec::new();
    sstable.read_row(schema, row, usize::MAX, &mut bytes)?;
    Ok(Some((row, ts, bytes)))
}

/// A column of every type, behind a key of an integer, a string and a blob.
pub fn every_type() -> Schema {
    let columns = vec![
        ColumnSpec::new("k1", ColumnType::Int32).not_null(),
        ColumnSpec::new("bool", ColumnType::Bool),
        ColumnSpec::new("k3", ColumnType::Binary).not_null(),
        ColumnSpec::new("int8", ColumnType::Int8),
        ColumnSpec::new("int16", ColumnType::Int16),
        ColumnSpec::new("int32", ColumnType::Int32),
        ColumnSpec::new("int64", ColumnType::Int64),
        ColumnSpec::new("float", ColumnType::Float),
        ColumnSpec::new("double", ColumnType::Double),
        ColumnSpec::new("small", ColumnType::Decimal { precision: 7, scale: 2 }),
        ColumnSpec::new("money", ColumnType::Decimal { precision: 15, scale: 2 }),
        ColumnSpec::new("huge", ColumnType::Decimal { precision: 38, scale: 10 }),
        ColumnSpec::new("k2", ColumnType::String).not_null(),
        ColumnSpec::new("string", ColumnType::String),
        ColumnSpec::new("binary", ColumnType::Binary),
        ColumnSpec::new("date", ColumnType::Date),
        ColumnSpec::new("timestamp", ColumnType::Timestamp),
        ColumnSpec::new("uuid", ColumnType::Uuid),
        ColumnSpec::new("json", ColumnType::Json),
        ColumnSpec::new("text not null", ColumnType::String).not_null(),
        ColumnSpec::new("bool not null", ColumnType::Bool).not_null(),
    ];
    Schema::new(columns, &["k1", "k2", "k3"]).unwrap()
}

/// Values for a row of any schema: nulls where they may be, few distinct values or many.
pub fn values(schema: &Schema) -> BoxedStrategy<Vec<Value>> {
    let mut all: BoxedStrategy<Vec<Value>> = Just(Vec::new()).boxed();
    for column in schema.columns() {
        let is_key = schema.key_columns().any(|k| k.id == column.id);
        let value = value_of(column.column_type, is_key);
        let value =
            if column.nullable { prop_oneof![3 => value, 1 => Just(Value::Null)].boxed() } else { value };
        all = (all, value)
            .prop_map(|(mut values, value)| {
                values.push(value);
                values
            })
            .boxed();
    }
    all
}

fn value_of(column_type: ColumnType, is_key: bool) -> BoxedStrategy<Value> {
    let bytes = prop_oneof![
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 255]), 0..4),
        prop::collection::vec(any::<u8>(), 0..12)
    ];
    match column_type {
        ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ColumnType::Int8 => any::<i8>().prop_map(Value::Int8).boxed(),
        ColumnType::Int16 => any::<i16>().prop_map(Value::Int16).boxed(),
        ColumnType::Int32 if is_key => (-2..3).prop_map(Value::Int32).boxed(),
        ColumnType::Int32 => prop_oneof![0..3, any::<i32>()].prop_map(Value::Int32).boxed(),
        ColumnType::Int64 => prop_oneof![0..3i64, any::<i64>()].prop_map(Value::Int64).boxed(),
        ColumnType::Float => any::<f32>().prop_map(Value::Float).boxed(),
        ColumnType::Double => any::<f64>().prop_map(Value::Double).boxed(),
        ColumnType::Decimal { precision, .. } => {
            let max = 10i128.pow(u32::from(precision)) - 1;
            (-max..=max).prop_map(Value::Decimal).boxed()
        }
        ColumnType::String if is_key => "[a\u{0}äz]{0,5}".prop_map(Value::String).boxed(),
        ColumnType::String => {
            let text = prop_oneof![4 => "[a\u{0}äz]{0,5}", 2 => "[a-zä]{8,40}", 1 => "[aä]{100,140}"];
            text.prop_map(Value::String).boxed()
        }
        ColumnType::Json => (0..4).prop_map(|n| Value::Json(format!("{{\"n\":{n}}}"))).boxed(),
        ColumnType::Binary => bytes.prop_map(Value::Binary).boxed(),
        ColumnType::Date => any::<i32>().prop_map(Value::Date).boxed(),
        ColumnType::Timestamp => any::<i64>().prop_map(Value::Timestamp).boxed(),
        ColumnType::Uuid => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
    }
}

/// Small pages and row groups, so that few rows cross every boundary.
pub fn small_options(compression: oribi_sstable::Compression) -> SstableOptions {
    SstableOptions { row_group_rows: 600, page_rows: 100, page_bytes_max: 1 << 10, compression }
}
