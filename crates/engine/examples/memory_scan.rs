//! A scan of rows in memory as columns, for callgrind: rows as Kudu's load generator writes them (bigint key, integer, text), scanned
//! so many times. Instructions for each row are the difference of two numbers of scans. With `replacing`, the rows replace as many of
//! a file.
//!
//! `cargo run -p oribi-engine --example memory_scan -- ROWS SCANS [key] [replacing]`
#![allow(clippy::unwrap_used)]

use oribi_engine::{Decision, Engine, EngineOptions, Read, Table, WriteOp};
use oribi_env::Env;
use oribi_types::schema::ColumnSpec;
use oribi_types::{
    ColumnType, Durability, Partitioning, Schema, TableDefinition, TableOptions, ValueRef, key,
};
use std::sync::Arc;

const ROWS_OF_A_WRITE: i64 = 1000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rows: i64 = arguments.first().map_or(100_000, |rows| rows.parse().unwrap());
    let scans: u32 = arguments.get(1).map_or(1, |scans| scans.parse().unwrap());
    let projection: &[usize] = if arguments.iter().any(|word| word == "key") { &[0] } else { &[0, 1, 2] };
    let dir = tempfile::tempdir().unwrap();
    let options = EngineOptions { background: false, ..EngineOptions::with_memory(1 << 30) };
    let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
    let columns = vec![
        ColumnSpec::new("key", ColumnType::Int64).not_null(),
        ColumnSpec::new("int_val", ColumnType::Int32).not_null(),
        ColumnSpec::new("string_val", ColumnType::String),
    ];
    let definition = TableDefinition {
        schema_name: "public".into(),
        name: "t".into(),
        schema: Schema::new(columns, &["key"]).unwrap(),
        partitioning: Partitioning::hash(vec![0], 1),
        options: TableOptions::new(Durability::Periodic(100)),
    };
    let table = engine.create_table(definition).unwrap();
    if arguments.iter().any(|word| word == "replacing") {
        write(&engine, &table, rows);
        engine.flush(&table).unwrap();
    }
    write(&engine, &table, rows);
    let snapshot = engine.snapshot();
    let mut read = 0;
    for _ in 0..scans {
        for mut tablet in engine.scan(&table, [0], projection, false, &snapshot).unwrap() {
            while let Some(batch) = tablet.memory.next_batch().unwrap() {
                read += batch.num_rows();
            }
        }
    }
    assert_eq!(read as i64, rows * i64::from(scans));
}

fn write(engine: &Engine, table: &Arc<Table>, rows: i64) {
    for first in (0..rows).step_by(ROWS_OF_A_WRITE as usize) {
        let encode = |k: i64| {
            let mut key = Vec::new();
            key::encode_component(ValueRef::Int64(k), true, &mut key);
            key
        };
        let keys: Vec<Vec<u8>> = (first..rows.min(first + ROWS_OF_A_WRITE)).map(encode).collect();
        let op = |key| WriteOp { table, key, read: Read::Blind, row: &[] };
        let ops: Vec<WriteOp<'_>> = keys.iter().map(|key| op(key.as_slice())).collect();
        let put = |i: usize, row: &mut Vec<u8>| {
            let text = format!("{:x}", (first + i as i64).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64));
            let values = [ValueRef::Int32(i as i32), ValueRef::String(&text)];
            table.schema_ref().layout().encode(&values, row);
        };
        engine
            .write(&ops, &mut |i, _, row| {
                put(i, row);
                Ok(Decision::Put)
            })
            .unwrap();
    }
}
