//! A small table in an engine on a simulated disk.
#![allow(dead_code)]

use oribi_engine::{Decision, Engine, EngineOptions, Read, Snapshot, Table, WriteOp};
use oribi_env::Env;
use oribi_sim::{SimClock, SimFiles};
use oribi_types::schema::ColumnSpec;
use oribi_types::{
    ColumnType, Durability, Partitioning, Result, RowRef, Schema, TableDefinition, TableOptions, ValueRef,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub const DIR: &str = "/db";

pub fn sim_env(files: &SimFiles, clock: &Arc<SimClock>) -> Env {
    Env { files: Arc::new(files.clone()), clock: clock.clone() }
}

/// Options without background threads, so that a run is what the test does.
pub fn quiet() -> EngineOptions {
    EngineOptions { background: false, ..EngineOptions::with_memory(64 << 20) }
}

pub fn open(env: &Env) -> Result<Arc<Engine>> {
    Engine::open(env.clone(), Path::new(DIR), quiet())
}

/// A table (k bigint primary key, v text, n bigint).
pub fn definition(name: &str, buckets: u32, durability: Durability) -> TableDefinition {
    let schema = Schema::new(
        vec![
            ColumnSpec::new("k", ColumnType::Int64).not_null(),
            ColumnSpec::new("v", ColumnType::String),
            ColumnSpec::new("n", ColumnType::Int64),
        ],
        &["k"],
    )
    .unwrap();
    TableDefinition {
        schema_name: "public".into(),
        name: name.into(),
        schema,
        partitioning: Partitioning::Hash { columns: vec![0], buckets },
        options: TableOptions { durability, ttl_ms: None, expires_at: None },
    }
}

pub fn key(k: i64) -> Vec<u8> {
    let mut key = Vec::new();
    oribi_types::key::encode_component(ValueRef::Int64(k), true, &mut key);
    key
}

pub fn encode(table: &Table, v: &str, n: i64, row: &mut Vec<u8>) {
    let mut slots = vec![ValueRef::String(v), ValueRef::Int64(n)];
    slots.resize(table.schema_ref().layout().slots().len(), ValueRef::Null);
    table.schema_ref().layout().encode(&slots, row);
}

pub fn put(engine: &Engine, table: &Arc<Table>, k: i64, v: &str) -> Result<oribi_engine::Commit> {
    let key = key(k);
    let op = WriteOp { table, key: &key, read: Read::Blind };
    engine.write(&[op], &mut |_, _, row| {
        encode(table, v, k, row);
        Ok(Decision::Put)
    })
}

/// Deletes a row; whether it was there.
pub fn delete(engine: &Engine, table: &Arc<Table>, k: i64) -> Result<bool> {
    let key = key(k);
    let op = WriteOp { table, key: &key, read: Read::Existing };
    let mut there = false;
    engine.write(&[op], &mut |_, current, _| {
        there = current.is_some();
        Ok(if there { Decision::Delete } else { Decision::Keep })
    })?;
    Ok(there)
}

pub fn v_of(table: &Table, row: &[u8]) -> String {
    match RowRef::new(table.schema_ref().layout(), row).get(0) {
        Some(ValueRef::String(v)) => v.to_owned(),
        other => panic!("v is {other:?}"),
    }
}

pub fn get(engine: &Engine, table: &Table, k: i64) -> Option<String> {
    let view = engine.read_view();
    engine.get(table, &key(k), view, |row| v_of(table, row.row)).unwrap().0
}

/// All rows at a snapshot, by key. Panics if a key comes twice.
pub fn scan(engine: &Engine, table: &Arc<Table>, snapshot: &Snapshot) -> BTreeMap<i64, String> {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    let scan = engine.scan(table, snapshot).unwrap();
    let schema = table.schema();
    let mut rows = BTreeMap::new();
    let mut add = |k: i64, v: &str| {
        assert!(rows.insert(k, v.to_owned()).is_none(), "key {k} comes twice");
    };
    for tablet in &scan.tablets {
        for file in &tablet.files {
            let mut position = 0;
            for batch in file.sstable.batches(&schema, &[0, 1], false, None).unwrap() {
                let batch = batch.unwrap();
                for i in 0..batch.num_rows() {
                    if !file.hidden.contains(position) {
                        let k = batch.column(0).as_primitive::<Int64Type>().value(i);
                        add(k, batch.column(1).as_string_view().value(i));
                    }
                    position += 1;
                }
            }
        }
        for batch in tablet.memory.batches(&schema, &[0, 1], false, 100).unwrap() {
            for i in 0..batch.num_rows() {
                let k = batch.column(0).as_primitive::<Int64Type>().value(i);
                add(k, batch.column(1).as_string_view().value(i));
            }
        }
    }
    rows
}
