//! A small table in an engine on a simulated disk.
#![allow(dead_code)]

pub mod cold;
pub mod counting;
pub mod live;
pub mod places;
pub mod transactions;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use oribi_engine::{
    Commit, Decision, Engine, EngineOptions, FileScan, KeyRange, Read, Snapshot, Table, TabletScan, WriteOp,
};
use oribi_env::Env;
use oribi_sim::{SimClock, SimFiles};
use oribi_types::schema::ColumnSpec;
use oribi_types::{
    ColumnType, Durability, Partitioning, Result, RowRef, Schema, TableDefinition, TableOptions, ValueRef,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub const DIR: &str = "/db";

pub fn sim_env(files: &SimFiles, clock: &Arc<SimClock>) -> Env {
    Env { files: Arc::new(files.clone()), clock: clock.clone() }
}

/// Options without background threads, so that a run is what the test does, and manifests that end soon. Segments of the
/// log are as short as can be: each opening reads those that are in use to the end. A write of more than three small rows is a
/// bulk write.
pub fn quiet() -> EngineOptions {
    let options = EngineOptions::with_memory(64 << 20);
    EngineOptions {
        background: false,
        manifest_bytes_max: 1 << 10,
        log_bytes_max: 8 << 20,
        fragment_bytes: 200,
        ..options
    }
}

pub fn open(env: &Env) -> Result<Arc<Engine>> {
    Engine::open(env.clone(), Path::new(DIR), quiet())
}

/// How many files there are of what transactions have put aside.
pub fn runs(files: &SimFiles) -> usize {
    files.all_files().iter().filter(|path| path.starts_with(Path::new(DIR).join("transactions"))).count()
}

/// A new disk, its clock, and an engine with table `t`.
pub fn fresh(buckets: u32, durability: Durability) -> (SimFiles, Arc<SimClock>, Arc<Engine>, Arc<Table>) {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let engine = open(&sim_env(&files, &clock)).unwrap();
    let table = engine.create_table(definition("t", buckets, durability)).unwrap();
    (files, clock, engine, table)
}

/// What another process finds after this one was killed.
pub fn after_kill(files: &SimFiles) -> (Arc<Engine>, Arc<Table>) {
    let engine = open(&sim_env(&files.kill(), &Arc::new(SimClock::new()))).unwrap();
    let table = engine.table("public", "t").unwrap();
    (engine, table)
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
        partitioning: Partitioning::hash(vec![0], buckets),
        options: TableOptions::new(durability),
    }
}

pub fn key(k: i64) -> Vec<u8> {
    let mut key = Vec::new();
    oribi_types::key::encode_component(ValueRef::Int64(k), true, &mut key);
    key
}

/// What [`key`] made a key of.
pub fn k_of(key: &[u8]) -> i64 {
    (u64::from_be_bytes(key.try_into().unwrap()) ^ (1 << 63)) as i64
}

pub fn encode(table: &Table, v: &str, n: i64, row: &mut Vec<u8>) {
    let mut slots = vec![ValueRef::String(v), ValueRef::Int64(n)];
    slots.resize(table.schema_ref().layout().slots().len(), ValueRef::Null);
    table.schema_ref().layout().encode(&slots, row);
}

pub fn put(engine: &Engine, table: &Arc<Table>, k: i64, v: &str) -> Result<Commit> {
    let key = key(k);
    let op = WriteOp { table, key: &key, read: Read::Blind, row: &[] };
    engine.write(&[op], &mut |_, _, row| {
        encode(table, v, k, row);
        Ok(Decision::Put)
    })
}

/// As [`put`], and waits for nobody.
pub fn try_put(engine: &Engine, table: &Arc<Table>, k: i64, v: &str) -> Result<Commit> {
    let key = key(k);
    let op = WriteOp { table, key: &key, read: Read::Blind, row: &[] };
    engine.try_write(&[op], &mut |_, _, row| {
        encode(table, v, k, row);
        Ok(Decision::Put)
    })
}

/// Deletes a row; whether it was there.
pub fn delete(engine: &Engine, table: &Arc<Table>, k: i64) -> Result<bool> {
    let key = key(k);
    let op = WriteOp { table, key: &key, read: Read::Existing, row: &[] };
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

/// Puts (some value) and deletes as one write that looks at what is there.
pub fn write(engine: &Engine, table: &Arc<Table>, changes: &[(i64, Option<&str>)]) -> Result<Commit> {
    let keys: Vec<Vec<u8>> = changes.iter().map(|(k, _)| key(*k)).collect();
    let ops: Vec<WriteOp<'_>> =
        keys.iter().map(|key| WriteOp { table, key, read: Read::Existing, row: &[] }).collect();
    engine.write(&ops, &mut |i, _, row| match changes[i] {
        (k, Some(v)) => {
            encode(table, v, k, row);
            Ok(Decision::Put)
        }
        (_, None) => Ok(Decision::Delete),
    })
}

/// A batch of (k, v, n = k), as an import takes it.
pub fn rows(table: &Table, keys: &[i64], v: &str) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(keys.to_vec())),
        Arc::new(StringViewArray::from_iter_values(keys.iter().map(|_| v))),
        Arc::new(Int64Array::from(keys.to_vec())),
    ];
    let schema = table.schema();
    let fields: Vec<_> = schema.arrow().fields().iter().take(3).cloned().collect();
    RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields)), columns).unwrap()
}

/// Imports rows (k, v).
pub fn import(engine: &Arc<Engine>, table: &Arc<Table>, keys: &[i64], v: &str) -> Result<u64> {
    let mut import = engine.import(table)?;
    import.push(rows(table, keys, v))?;
    import.commit()
}

pub fn scan_now(engine: &Engine, table: &Arc<Table>) -> Rows {
    scan(engine, table, &engine.snapshot())
}

/// All rows as range reads find them. Panics if a tablet's are out of order.
pub fn range_now(engine: &Arc<Engine>, table: &Arc<Table>) -> Rows {
    let snapshot = Arc::new(engine.snapshot());
    let mut rows = Rows::new();
    for tablet in 0..table.definition().partitioning.tablets() {
        let mut last = Vec::new();
        let mut reader = engine.range(table, tablet, KeyRange::default(), &[1], &snapshot);
        let read = reader.read(usize::MAX, |row| {
            assert!(*last < *row.key, "keys ascend");
            last = row.key.to_vec();
            rows.insert(k_of(row.key), v_of(table, row.row));
            Ok(())
        });
        read.unwrap();
    }
    rows
}

/// What a check of the disk finds, were its process killed.
pub fn findings(files: &SimFiles) -> Vec<String> {
    let env = sim_env(&files.kill(), &Arc::new(SimClock::new()));
    oribi_engine::check(env, Path::new(DIR)).unwrap().findings
}

pub type Rows = BTreeMap<i64, String>;

pub fn model(rows: &[(i64, &str)]) -> Rows {
    rows.iter().map(|(k, v)| (*k, (*v).to_owned())).collect()
}

/// All rows at a snapshot, by key. Panics if a key comes twice.
pub fn scan(engine: &Engine, table: &Arc<Table>, snapshot: &Snapshot) -> Rows {
    try_scan(engine, table, snapshot).unwrap()
}

pub fn try_scan(engine: &Engine, table: &Arc<Table>, snapshot: &Snapshot) -> Result<Rows> {
    let mut scan = Scan::begin(engine, table, snapshot)?;
    while scan.step()? {}
    Ok(scan.rows())
}

/// A scan, a batch at a time. Panics if a key comes twice.
pub struct Scan {
    table: Arc<Table>,
    columns: &'static [usize],
    tablets: Vec<TabletScan>,
    rows: Rows,
}

impl Scan {
    pub fn begin(engine: &Engine, table: &Arc<Table>, snapshot: &Snapshot) -> Result<Self> {
        Scan::of(engine, table, snapshot, &[0, 1])
    }

    /// Of keys alone: for all else there is an empty text.
    pub fn of_keys(engine: &Engine, table: &Arc<Table>, snapshot: &Snapshot) -> Result<Self> {
        Scan::of(engine, table, snapshot, &[0])
    }

    fn of(
        engine: &Engine,
        table: &Arc<Table>,
        snapshot: &Snapshot,
        columns: &'static [usize],
    ) -> Result<Self> {
        let tablets = 0..table.definition().partitioning.tablets();
        let tablets = engine.scan(table, tablets, columns, false, snapshot)?;
        Ok(Scan { table: table.clone(), columns, tablets, rows: Rows::new() })
    }

    /// Reads one batch, of a tablet's memory, or all of its files; false after the last.
    pub fn step(&mut self) -> Result<bool> {
        let Some(tablet) = self.tablets.last_mut() else { return Ok(false) };
        match tablet.memory.next_batch()? {
            Some(batch) => (0..batch.num_rows()).for_each(|i| add(&mut self.rows, &batch, i)),
            None => {
                add_files(&mut self.rows, &self.table, &tablet.files, self.columns)?;
                self.tablets.pop();
            }
        }
        Ok(true)
    }

    pub fn rows(self) -> Rows {
        self.rows
    }
}

fn add_files(rows: &mut Rows, table: &Table, files: &[FileScan], columns: &[usize]) -> Result<()> {
    for file in files {
        for (group, within) in file.groups(0..file.sstable.meta().rows as u32) {
            for batch in file.batches(&table.schema(), columns, false, group, within)?.into_iter().flatten() {
                let batch = batch?.rows()?;
                (0..batch.num_rows()).for_each(|i| add(rows, &batch, i));
            }
        }
    }
    Ok(())
}

fn add(rows: &mut Rows, batch: &RecordBatch, i: usize) {
    let k = batch.column(0).as_primitive::<arrow::datatypes::Int64Type>().value(i);
    let v = if batch.num_columns() > 1 { batch.column(1).as_string_view().value(i) } else { "" };
    assert!(rows.insert(k, v.to_owned()).is_none(), "key {k} comes twice");
}

/// Sets it when it is dropped: nobody waits for a thread that panicked.
pub struct End<'a>(pub &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
