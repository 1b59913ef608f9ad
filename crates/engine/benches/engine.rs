//! What the engine's parts cost on a real disk: memtable insert, point and range reads from memory and from a file,
//! flush, scan. Rows are (bigint key, 34-byte text, bigint) in one tablet whose log is not waited for.
#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{definition, key, put, quiet};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use oribi_engine::{Engine, EngineOptions, KeyRange, Lookup, Snapshot, Table};
use oribi_env::Env;
use oribi_types::Durability;
use std::hint::black_box;
use std::sync::Arc;
use tempfile::TempDir;

const ROWS: i64 = 100_000;
const VALUE: &str = "thirty-four bytes of text as value";

struct Setup {
    engine: Arc<Engine>,
    table: Arc<Table>,
    /// Removed last.
    dir: TempDir,
}

/// An engine with `rows` rows in its memtable.
fn setup(rows: i64) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let options = EngineOptions { memory_bytes: 1 << 30, ..quiet() };
    let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Periodic(100))).unwrap();
    for k in 0..rows {
        put(&engine, &table, k, VALUE).unwrap();
    }
    Setup { engine, table, dir }
}

/// Keys that look random, the same each time.
fn scattered() -> impl FnMut() -> i64 {
    let mut n = 0_u64;
    move || {
        n += 1;
        ((n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % ROWS as u64) as i64
    }
}

fn writes(c: &mut Criterion) {
    let mut group = c.benchmark_group("write");
    group.throughput(Throughput::Elements(1));
    let new = setup(0);
    let mut next = 0;
    group.bench_function("insert into the memtable", |b| {
        b.iter(|| {
            next += 1;
            put(&new.engine, &new.table, next, VALUE).unwrap()
        });
    });
    let full = setup(ROWS);
    let mut next = scattered();
    group.bench_function("replace in the memtable", |b| {
        b.iter(|| put(&full.engine, &full.table, next(), VALUE).unwrap());
    });
    group.finish();
}

fn point_reads(c: &mut Criterion) {
    let Setup { engine, table, dir } = setup(ROWS);
    let mut group = c.benchmark_group("point read");
    group.throughput(Throughput::Elements(1));
    let mut next = scattered();
    group.bench_function("memtable", |b| {
        b.iter(|| match engine.try_get(&table, &key(next()), engine.read_view(), |row| row.row.len()) {
            Lookup::Found(bytes, _) => black_box(bytes),
            other => panic!("{other:?}"),
        });
    });
    engine.flush(&table).unwrap();
    group.bench_function("row cache", |b| {
        b.iter(|| engine.get(&table, &key(next()), engine.read_view(), |row| row.row.len()).unwrap());
    });
    engine.close().unwrap();
    drop((engine, table));
    // The least memory: the row cache holds a small part of the rows.
    let engine = Engine::open(
        Env::real(),
        dir.path(),
        EngineOptions { background: false, ..EngineOptions::with_memory(8 << 20) },
    );
    let engine = engine.unwrap();
    let table = engine.table("public", "t").unwrap();
    group.bench_function("file", |b| {
        b.iter(|| engine.get(&table, &key(next()), engine.read_view(), |row| row.row.len()).unwrap());
    });
    group.bench_function("absent key", |b| {
        b.iter(|| engine.get(&table, &key(ROWS + next()), engine.read_view(), |row| row.row.len()).unwrap());
    });
    group.finish();
}

/// Ranges of 100 rows.
fn ranges(c: &mut Criterion) {
    let Setup { engine, table, dir: _dir } = setup(ROWS);
    let mut group = c.benchmark_group("range of 100 rows");
    group.throughput(Throughput::Elements(100));
    let snapshot = || Arc::new(engine.snapshot());
    let read = |from: i64, snapshot: &Arc<Snapshot>| {
        let keys = KeyRange { from: key(from), to: Some(key(from + 100)) };
        let mut bytes = 0;
        let mut reader = engine.range(&table, 0, keys, &[0, 1, 2], snapshot);
        let rows = reader.read(usize::MAX, |row| {
            bytes += row.row.len();
            Ok(())
        });
        assert_eq!(rows.unwrap(), 100);
        bytes
    };
    let mut next = scattered();
    let mut from = || next() % (ROWS - 100);
    let now = snapshot();
    group.bench_function("memtable", |b| b.iter(|| read(from(), &now)));
    drop(now);
    engine.flush(&table).unwrap();
    let now = snapshot();
    group.bench_function("file", |b| b.iter(|| read(from(), &now)));
    drop(now);
    (0..ROWS).step_by(10).for_each(|k| _ = put(&engine, &table, k, VALUE).unwrap());
    let now = snapshot();
    group.bench_function("file and, of each tenth row, memtable", |b| b.iter(|| read(from(), &now)));
    group.finish();
}

fn bulk(c: &mut Criterion) {
    let mut group = c.benchmark_group("bulk");
    group.sample_size(10).throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("flush", |b| {
        b.iter_batched(|| setup(ROWS), |s| s.engine.flush(&s.table).unwrap(), BatchSize::PerIteration);
    });
    let Setup { engine, table, dir: _dir } = setup(ROWS);
    group.bench_function("scan of the memtable", |b| b.iter(|| common::scan_now(&engine, &table).len()));
    engine.flush(&table).unwrap();
    group.bench_function("scan of a file", |b| b.iter(|| common::scan_now(&engine, &table).len()));
    group.finish();
}

criterion_group!(benches, writes, point_reads, ranges, bulk);
criterion_main!(benches);
