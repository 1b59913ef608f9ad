//! What one row costs: five 34-byte columns behind an 8-byte key, 200,000 rows, the file in the page cache.
#![allow(clippy::unwrap_used)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use oribi_env::Env;
use oribi_sstable::{Compression, Sstable, SstableMeta, SstableOptions, SstableWriter, publish, remove};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Schema, Timestamp, ValueRef};
use std::hint::black_box;
use std::path::Path;

const ROWS: u64 = 200_000;

fn schema() -> Schema {
    let mut columns = vec![ColumnSpec::new("key", ColumnType::Binary).not_null()];
    columns.extend((0..5).map(|i| ColumnSpec::new(format!("c{i}"), ColumnType::Binary)));
    Schema::new(columns, &["key"]).unwrap()
}

fn key(n: u64) -> [u8; 8] {
    (n * 2).to_be_bytes()
}

/// A number that looks random, the same each time.
fn scatter(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

fn write(env: &Env, dir: &Path, schema: &Schema, compression: Compression) -> SstableMeta {
    let options = SstableOptions { compression, ..SstableOptions::default() };
    let mut writer = SstableWriter::create(env, dir, 1, schema, &options).unwrap();
    let (mut encoded, mut row) = (Vec::new(), Vec::new());
    for n in 0..ROWS {
        encoded.clear();
        row.clear();
        let key = key(n);
        let values: Vec<[u8; 34]> =
            (0..5).map(|c| std::array::from_fn(|i| scatter(n + c + i as u64) as u8)).collect();
        let mut refs = vec![ValueRef::Binary(&key)];
        refs.extend(values.iter().map(|v| ValueRef::Binary(v)));
        schema.encode(&refs, &mut encoded, &mut row).unwrap();
        writer.push(&encoded, &row, Timestamp(n + 1)).unwrap();
    }
    let meta = writer.finish().unwrap();
    publish(env, dir, 1).unwrap();
    meta
}

fn point_reads(c: &mut Criterion) {
    let (env, schema, dir) = (Env::real(), schema(), tempfile::tempdir().unwrap());
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let meta = write(&env, dir.path(), &schema, compression);
        let sstable = Sstable::open(&env, dir.path(), &meta, &schema).unwrap();
        let mut group = c.benchmark_group(format!("{compression:?}"));
        let mut n = 0;
        let mut next = || {
            n += 1;
            scatter(n) % ROWS
        };
        group.bench_function("may_contain, absent", |b| {
            b.iter(|| {
                let mut absent = key(next());
                absent[7] |= 1;
                black_box(sstable.may_contain(&absent))
            });
        });
        group.bench_function("find", |b| b.iter(|| sstable.find(&key(next()), |_, _| true).unwrap()));
        let mut row = Vec::new();
        group.bench_function("find and read", |b| {
            b.iter(|| {
                let (at, _) = sstable.find(&key(next()), |_, _| true).unwrap().unwrap();
                row.clear();
                sstable.read_row(&schema, at, usize::MAX, &mut row).unwrap();
                black_box(row.len())
            });
        });
        for wanted in [10, 10_000] {
            let mut keys: Vec<[u8; 8]> = (0..wanted).map(|_| key(next())).collect();
            keys.sort_unstable();
            let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
            group.throughput(Throughput::Elements(wanted));
            group.bench_function(format!("locate {wanted}"), |b| b.iter(|| sstable.locate(&keys).unwrap()));
        }
        group.throughput(Throughput::Elements(ROWS));
        group.sample_size(10);
        group.bench_function("scan", |b| {
            let all: Vec<usize> = (0..schema.columns().len()).collect();
            b.iter(|| {
                sstable
                    .batches(&schema, &all, true, None)
                    .unwrap()
                    .map(|b| b.unwrap().num_rows())
                    .sum::<usize>()
            });
        });
        remove(&env, dir.path(), 1).unwrap();
        group.bench_function("write", |b| {
            b.iter(|| {
                write(&env, dir.path(), &schema, compression);
                remove(&env, dir.path(), 1).unwrap();
            });
        });
        group.finish();
    }
}

criterion_group!(benches, point_reads);
criterion_main!(benches);
