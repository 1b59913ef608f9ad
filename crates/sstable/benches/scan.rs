//! What many rows cost, column by column: all of them, and four of forty, by our reader and by the Parquet crate's over the same file
//! in the page cache; and writing them, with all columns, by our writer and by the crate's. 500,000 rows, columns as TPC-H's largest
//! table has them.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods)] // a stranger reads the file

use arrow::array::RecordBatchReader;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use oribi_env::Env;
use oribi_sstable::{RowSelection, Sstable, SstableOptions, SstableWriter, publish};
use oribi_types::batch::encode_keys;
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Schema, Timestamp, Value, ValueRef};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

const ROWS: u32 = 500_000;
const BATCH_ROWS: usize = 8_192;

fn schema() -> Schema {
    let money = ColumnType::Decimal { precision: 15, scale: 2 };
    let columns = [
        ("orderkey", ColumnType::Int64),
        ("linenumber", ColumnType::Int32),
        ("quantity", money),
        ("price", money),
        ("date", ColumnType::Date),
        ("flag", ColumnType::String),
        ("comment", ColumnType::String),
    ];
    let columns = columns.map(|(name, column_type)| ColumnSpec::new(name, column_type).not_null());
    let nullable = ColumnSpec::new("nullable", ColumnType::Int64);
    Schema::new(columns.into_iter().chain([nullable]).collect(), &["orderkey", "linenumber"]).unwrap()
}

/// A number that looks random, the same each time.
fn scatter(n: i64) -> i64 {
    (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64 >> 20 & 0xff_ffff_ffff
}

fn values(n: i64) -> [Value; 8] {
    let random = scatter(n);
    [
        Value::Int64(n / 4 * 32),
        Value::Int32((n % 4) as i32),
        Value::Decimal(i128::from(random % 50) * 100),
        Value::Decimal(i128::from(scatter(n + 1) % 10_000_000)),
        Value::Date(8_000 + (random % 2_500) as i32),
        Value::String(["A", "N", "R"][(random % 3) as usize].to_owned()),
        Value::String(format!("of {random} pending {n}")[..(10 + random % 12) as usize].to_owned()),
        if random % 5 == 0 { Value::Null } else { Value::Int64(random) },
    ]
}

fn sstable(dir: &Path, schema: &Schema) -> Sstable {
    let env = Env::real();
    let mut writer = SstableWriter::create(&env, dir, 1, schema, &SstableOptions::default()).unwrap();
    let (mut key, mut row) = (Vec::new(), Vec::new());
    for n in 0..i64::from(ROWS) {
        key.clear();
        row.clear();
        let values = values(n);
        let refs: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
        schema.encode(&refs, &mut key, &mut row).unwrap();
        writer.push(&key, &row, Timestamp(1)).unwrap();
    }
    let meta = writer.finish().unwrap();
    publish(&env, dir, 1).unwrap();
    Sstable::open(&env, dir, &meta, schema).unwrap()
}

fn by_parquet(file: &Sstable, metadata: &ArrowReaderMetadata, column: usize, rows: &[Range<u32>]) -> usize {
    let mask = ProjectionMask::roots(metadata.parquet_schema(), [column]);
    let ranges = rows.iter().map(|rows| rows.start as usize..rows.end as usize);
    let selection = RowSelection::from_consecutive_ranges(ranges, ROWS as usize);
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(
        File::open(file.path()).unwrap(),
        metadata.clone(),
    )
    .with_projection(mask)
    .with_row_selection(selection)
    .with_batch_size(BATCH_ROWS);
    let reader = reader.build().unwrap();
    assert_eq!(reader.schema().fields().len(), 1);
    reader.map(|batch| batch.unwrap().num_rows()).sum()
}

fn scans(c: &mut Criterion) {
    let (schema, dir) = (schema(), tempfile::tempdir().unwrap());
    let file = sstable(dir.path(), &schema);
    let options =
        parquet::arrow::arrow_reader::ArrowReaderOptions::new().with_schema(file.arrow_schema().unwrap());
    let metadata = ArrowReaderMetadata::try_new(file.metadata().unwrap(), options).unwrap();
    let all = std::iter::once(0..ROWS).collect::<Vec<_>>();
    let some: Vec<_> = (0..ROWS / 40).map(|n| n * 40..n * 40 + 4).collect();
    for (column, spec) in schema.columns().iter().enumerate() {
        for (rows, which) in [(&all, "all"), (&some, "a tenth")] {
            let mut group = c.benchmark_group(format!("{}, {which}", spec.name));
            group.sample_size(10).warm_up_time(Duration::from_millis(200));
            group.measurement_time(Duration::from_millis(600)).throughput(Throughput::Elements(ROWS.into()));
            group.bench_function("ours", |b| {
                let read = || file.batches(&schema, &[column], false, Some(rows)).unwrap();
                b.iter(|| read().map(|batch| batch.unwrap().num_rows()).sum::<usize>());
            });
            group.bench_function("parquet", |b| b.iter(|| by_parquet(&file, &metadata, column, rows)));
            group.finish();
        }
    }
}

/// Ours with keys, filters and checksums, which the crate has not.
fn writes(c: &mut Criterion) {
    let (schema, dir) = (schema(), tempfile::tempdir().unwrap());
    let file = sstable(dir.path(), &schema);
    let all: Vec<usize> = (0..schema.columns().len()).collect();
    let batches: Vec<_> = file.batches(&schema, &all, true, None).unwrap().map(Result::unwrap).collect();
    let keys: Vec<_> = batches.iter().map(|batch| encode_keys(&schema, batch).unwrap()).collect();
    let mut group = c.benchmark_group("write");
    group.sample_size(10).throughput(Throughput::Elements(ROWS.into()));
    group.bench_function("ours", |b| {
        b.iter(|| {
            let options = SstableOptions::default();
            let mut writer = SstableWriter::create(&Env::real(), dir.path(), 2, &schema, &options).unwrap();
            for (batch, keys) in batches.iter().zip(&keys) {
                writer.push_batch(batch, keys).unwrap();
            }
            // Without a sync, as the other.
            writer.finish_late(u64::MAX).unwrap()
        });
    });
    group.bench_function("parquet", |b| {
        b.iter(|| {
            let out = File::create(dir.path().join("theirs")).unwrap();
            let mut writer = ArrowWriter::try_new(out, batches[0].schema(), Some(as_ours(&schema))).unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.close().unwrap()
        });
    });
    group.finish();
}

/// Pages and encodings about as we have them.
fn as_ours(schema: &Schema) -> WriterProperties {
    let options = SstableOptions::default();
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::LZ4_RAW)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_dictionary_page_size_limit(64 << 10)
        .set_data_page_size_limit(options.page_bytes_max)
        .set_data_page_row_count_limit(options.page_rows)
        .set_write_batch_size(options.page_rows)
        .set_max_row_group_row_count(Some(options.row_group_rows));
    for column in schema.columns().iter().filter(|column| column.column_type != ColumnType::String) {
        let path = ColumnPath::new(vec![column.name.clone()]);
        properties = properties.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED);
        if schema.key_columns().any(|key| key.id == column.id) {
            properties = properties.set_column_dictionary_enabled(path, false);
        }
    }
    properties.build()
}

criterion_group!(benches, scans, writes);
criterion_main!(benches);
