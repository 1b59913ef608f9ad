//! Whatever was pushed is found by key, by position and by scan, with every type, key and compression.
#![allow(clippy::unwrap_used)]

mod common;

use arrow::array::{Array, AsArray};
use common::{
    TestRow, every_type, generate, get, row_of, scan, small_options, sorted, sstable, ts_at, values,
    values_at, write,
};
use oribi_env::Env;
use oribi_sstable::{Compression, Sstable, SstableOptions, SstableWriter};
use oribi_types::batch::{BatchBuilder, encode_keys};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, ErrorKind, Schema, Timestamp, Value};
use parquet::basic::Encoding;
use proptest::prelude::*;
use std::collections::BTreeMap;

const KEY_TYPES: [ColumnType; 12] = [
    ColumnType::Bool,
    ColumnType::Int8,
    ColumnType::Int16,
    ColumnType::Int32,
    ColumnType::Int64,
    ColumnType::Decimal { precision: 9, scale: 2 },
    ColumnType::Decimal { precision: 18, scale: 2 },
    ColumnType::Decimal { precision: 30, scale: 0 },
    ColumnType::String,
    ColumnType::Date,
    ColumnType::Timestamp,
    ColumnType::Uuid,
];

fn check(sstable: &Sstable, schema: &Schema, rows: &[TestRow]) {
    sstable.verify(schema).unwrap();
    let expected: Vec<_> = rows.iter().map(|r| (r.values.clone(), r.ts)).collect();
    assert_eq!(scan(sstable, schema).unwrap(), expected);

    let mut newest: BTreeMap<&[u8], (u32, &TestRow)> = BTreeMap::new();
    for (i, row) in rows.iter().enumerate() {
        newest.entry(&row.key).or_insert((i as u32, row));
        let mut bytes = Vec::new();
        assert_eq!(sstable.read_row(schema, i as u32, usize::MAX, &mut bytes).unwrap(), None);
        assert_eq!(bytes, row.row, "row {i}");
    }
    for (key, (i, row)) in &newest {
        assert!(sstable.may_contain(key));
        assert_eq!(get(sstable, schema, key).unwrap(), Some((*i, row.ts, row.row.clone())));
        let mut copies = Vec::new();
        assert_eq!(
            sstable
                .find(key, |row, ts| {
                    copies.push((row, ts));
                    false
                })
                .unwrap(),
            None
        );
        let wanted = rows.iter().enumerate().filter(|(_, r)| r.key == *key);
        assert_eq!(copies, wanted.map(|(i, r)| (i as u32, r.ts)).collect::<Vec<_>>());
    }

    // Every key there is, each with two neighbours that are mostly not there.
    let mut wanted: Vec<Vec<u8>> = Vec::new();
    for key in newest.keys() {
        wanted.push(key.to_vec());
        wanted.push([key, &[0][..]].concat());
        wanted.push(key[..key.len().saturating_sub(1)].to_vec());
    }
    wanted.sort();
    let wanted: Vec<&[u8]> = wanted.iter().map(Vec::as_slice).collect();
    let expected: Vec<_> = wanted.iter().map(|key| newest.get(key).map(|(i, row)| (*i, row.ts))).collect();
    assert_eq!(sstable.locate(&wanted).unwrap(), expected);
    for (key, place) in wanted.iter().zip(&expected).step_by(7) {
        assert_eq!(sstable.locate(&[key]).unwrap(), [*place]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rows_of_every_type(
        rows in prop::collection::vec((values(&every_type()), 0..5u64), 1..400),
        compression in prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]),
        page_rows in 1..150usize,
        row_group_rows in 1..500usize,
    ) {
        let schema = every_type();
        let rows = sorted(rows.into_iter().map(|(values, ts)| row_of(&schema, values, ts)).collect());
        let dir = tempfile::tempdir().unwrap();
        let options = SstableOptions { row_group_rows, page_rows, page_bytes_max: 1 << 10, compression };
        check(&sstable(dir.path(), &schema, &options, &rows), &schema, &rows);
    }

    /// Of many rows few distinct values, which stand in a dictionary, or many; of a page one row or most.
    #[test]
    fn some_rows_of_every_type(
        seed: u64,
        repeats in 1..9usize,
        compression in prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]),
        page_rows in prop::sample::select(vec![7, 100, 1_000]),
        steps in prop::collection::vec((0..60u32, 1..40u32), 1..60),
    ) {
        let schema = every_type();
        let mut rows = Vec::new();
        for (n, row) in generate(&schema, 600 / repeats, seed).into_iter().enumerate() {
            for copy in 0..repeats {
                let mut values = row.values.clone();
                values[0] = Value::Int32((n * repeats + copy) as i32);
                rows.push(row_of(&schema, values, 1));
            }
        }
        let rows = sorted(rows);
        let dir = tempfile::tempdir().unwrap();
        let options = SstableOptions { row_group_rows: 350, page_rows, page_bytes_max: 1 << 14, compression };
        let sstable = sstable(dir.path(), &schema, &options, &rows);
        let mut at = 0;
        let ranges = steps.iter().map(|(gap, len)| {
            let start = at + gap;
            at = start + len;
            start..at
        });
        let ranges: Vec<_> = ranges.take_while(|range| range.end as usize <= rows.len()).collect();
        let all: Vec<usize> = (0..schema.columns().len()).collect();
        let mut found = Vec::new();
        for batch in sstable.batches(&schema, &all, true, Some(&ranges)).unwrap() {
            let batch = batch.unwrap();
            batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
            found.extend((0..batch.num_rows()).map(|i| (values_at(&schema, &batch, i), ts_at(&batch, i))));
        }
        let expected = ranges.into_iter().flatten().map(|row| &rows[row as usize]);
        prop_assert_eq!(found, expected.map(|row| (row.values.clone(), row.ts)).collect::<Vec<_>>());
    }

    #[test]
    fn keys_of_every_type(
        first in 0..KEY_TYPES.len(),
        second in 0..KEY_TYPES.len(),
        seed: u64,
    ) {
        let columns = vec![
            ColumnSpec::new("v", ColumnType::Bool),
            ColumnSpec::new("a", KEY_TYPES[first]).not_null(),
            ColumnSpec::new("b", KEY_TYPES[second]).not_null(),
        ];
        let both = Schema::new(columns.clone(), &["b", "a"]).unwrap();
        let one = Schema::new(columns, &["a"]).unwrap();
        for schema in [one, both] {
            let rows = generate(&schema, 300, seed);
            let dir = tempfile::tempdir().unwrap();
            check(&sstable(dir.path(), &schema, &small_options(Compression::Lz4), &rows), &schema, &rows);
        }
    }

    #[test]
    fn copies_of_a_key_across_all_boundaries(
        runs in prop::collection::vec((any::<u8>(), 1..300u64), 1..12),
        page_rows in 1..150usize,
        row_group_rows in 1..500usize,
    ) {
        let columns = vec![ColumnSpec::new("k", ColumnType::Binary).not_null(), ColumnSpec::new("v", ColumnType::Int64)];
        let schema = Schema::new(columns, &["k"]).unwrap();
        let row = |key: u8, ts: u64| {
            row_of(&schema, vec![Value::Binary(vec![key / 16; usize::from(key % 4)]), Value::Int64(ts as i64)], ts)
        };
        let rows = sorted(runs.into_iter().flat_map(|(key, n)| (0..n).map(move |ts| (key, ts))).map(|(k, ts)| row(k, ts)).collect());
        let dir = tempfile::tempdir().unwrap();
        let options = SstableOptions { row_group_rows, page_rows, ..small_options(Compression::Lz4) };
        check(&sstable(dir.path(), &schema, &options, &rows), &schema, &rows);
    }
}

/// A row with a value of so many bytes, which do not compress.
fn key_value(n: u64, value: usize) -> TestRow {
    let mut state = n;
    let value = (0..value).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    let value = value.collect();
    let key = format!("user:{n:08}").into_bytes();
    let values = vec![
        Value::Binary(key),
        Value::Binary(value),
        Value::Int64(n as i64),
        Value::Null,
        Value::Int64(100 + n as i64),
    ];
    row_of(&Schema::key_value(), values, 100 + n)
}

#[test]
fn key_value_rows_with_default_options() {
    let schema = Schema::key_value();
    let rows: Vec<TestRow> = (0..5_000).map(|n| key_value(n * 3, (n % 50) as usize)).collect();
    let dir = tempfile::tempdir().unwrap();
    check(&sstable(dir.path(), &schema, &SstableOptions::default(), &rows), &schema, &rows);
}

/// Integers that are too many for a dictionary are stored as differences, behind levels where they may be null.
#[test]
fn many_distinct_integers() {
    let numbers = [
        ColumnType::Int32,
        ColumnType::Int64,
        ColumnType::Timestamp,
        ColumnType::Decimal { precision: 9, scale: 2 },
        ColumnType::Decimal { precision: 18, scale: 0 },
    ];
    let columns = numbers.iter().enumerate().flat_map(|(i, number)| {
        [ColumnSpec::new(format!("n{i}"), *number), ColumnSpec::new(format!("r{i}"), *number).not_null()]
    });
    let columns: Vec<_> = columns.chain([ColumnSpec::new("k", ColumnType::Int64).not_null()]).collect();
    let schema = Schema::new(columns, &["k"]).unwrap();
    let value = |column: &ColumnSpec, n: i64| {
        // Some differences are small, some of any size, some columns' values wrap around.
        let number = match n / 1_000 % 4 {
            0 | 1 => n,
            2 => n.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64),
            _ => i64::MAX - n % 2,
        };
        match column.column_type {
            _ if column.nullable && n % 7 == 0 => Value::Null,
            ColumnType::Int32 => Value::Int32(number as i32),
            ColumnType::Int64 => Value::Int64(number),
            ColumnType::Timestamp => Value::Timestamp(number),
            ColumnType::Decimal { precision: 9, .. } => Value::Decimal(i128::from(number % 1_000_000_000)),
            _ => Value::Decimal(i128::from(number % 1_000_000_000_000_000_000)),
        }
    };
    let row = |n: i64| {
        let values = schema.columns().iter().map(|column| match column.name.as_str() {
            "k" => Value::Int64(n * n - (1 << 40)),
            _ => {
                value(&ColumnSpec { nullable: column.nullable, ..ColumnSpec::new("", column.column_type) }, n)
            }
        });
        row_of(&schema, values.collect(), n as u64 * 3)
    };
    let rows: Vec<TestRow> = (0..30_000).map(row).collect();
    for compression in [Compression::None, Compression::Lz4] {
        let dir = tempfile::tempdir().unwrap();
        let options = SstableOptions { compression, ..SstableOptions::default() };
        let sstable = sstable(dir.path(), &schema, &options, &rows);
        for column in sstable.metadata().unwrap().row_group(0).columns() {
            let is_delta = column.encodings().any(|e| e == Encoding::DELTA_BINARY_PACKED);
            assert!(is_delta, "{}", column.column_path());
        }
        sstable.verify(&schema).unwrap();
        let expected: Vec<_> = rows.iter().map(|r| (r.values.clone(), r.ts)).collect();
        assert_eq!(scan(&sstable, &schema).unwrap(), expected);
        for (i, row) in rows.iter().enumerate().step_by(13) {
            let found = get(&sstable, &schema, &row.key).unwrap();
            assert_eq!(found, Some((i as u32, row.ts, row.row.clone())));
        }
        let some: Vec<&[u8]> = rows.iter().step_by(5).map(|row| &*row.key).collect();
        let places = sstable.locate(&some).unwrap();
        let expected = rows.iter().enumerate().step_by(5).map(|(i, row)| Some((i as u32, row.ts)));
        assert_eq!(places, expected.collect::<Vec<_>>());
    }
}

#[test]
fn long_rows_get_their_own_pages() {
    let schema = Schema::key_value();
    let rows: Vec<TestRow> = (0..20).map(|n| key_value(n, 3 << 20)).collect();
    let dir = tempfile::tempdir().unwrap();
    let sstable = sstable(dir.path(), &schema, &SstableOptions::default(), &rows);
    let metadata = sstable.metadata().unwrap();
    for group in metadata.offset_index().unwrap() {
        let pages = group[1].page_locations();
        assert!(pages.iter().all(|p| p.compressed_page_size < 4 << 20), "a page holds a row");
    }
    assert!(metadata.row_groups().len() > 1, "row groups end by bytes");
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(get(&sstable, &schema, &row.key).unwrap(), Some((i as u32, row.ts, row.row.clone())));
    }
    assert_eq!(scan(&sstable, &schema).unwrap().len(), 20);
}

#[test]
fn a_long_row_is_read_by_who_has_room_for_it() {
    let columns = vec![
        ColumnSpec::new("k", ColumnType::Int64).not_null(),
        ColumnSpec::new("a", ColumnType::Binary),
        ColumnSpec::new("b", ColumnType::Binary),
    ];
    let schema = Schema::new(columns, &["k"]).unwrap();
    let noise = |n| key_value(n, 1 << 20).values[1].clone();
    let same = || Value::Binary(vec![7; 1 << 20]);
    let short = || Value::Binary(vec![7; 100]);
    // As stored, what is noise is long and what is always the same is not.
    let values = [[noise(1), same()], [same(), noise(2)], [noise(3), Value::Null], [short(), Value::Null]];
    let row =
        |(k, [a, b]): (usize, [Value; 2])| row_of(&schema, vec![Value::Int64(k as i64), a, b], k as u64 + 1);
    let rows: Vec<TestRow> = values.into_iter().enumerate().map(row).collect();
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let dir = tempfile::tempdir().unwrap();
        let options = SstableOptions { compression, ..SstableOptions::default() };
        let sstable = sstable(dir.path(), &schema, &options, &rows);
        for (i, row) in rows.iter().enumerate() {
            let mut bytes = Vec::new();
            let mut read = |bytes_max| {
                bytes.clear();
                let long = sstable.read_row(&schema, i as u32, bytes_max, &mut bytes).unwrap();
                assert_eq!(bytes.is_empty(), long.is_some());
                long
            };
            let is_long = row.row.len() > 1 << 20;
            let long = read(0).unwrap_or(0);
            assert_eq!(is_long, long > 0, "{compression:?}: row {i}");
            if is_long {
                // Beside the values, pages have their lengths.
                assert!(
                    (row.row.len() - 100..row.row.len() + 200).contains(&long),
                    "{compression:?}: row {i}: {long}"
                );
                assert_eq!(read(long - 1), Some(long));
            }
            assert_eq!(read(long), None);
            assert_eq!(bytes, row.row);
        }
    }
}

#[test]
fn batches_and_rows_make_the_same_file() {
    let schema = every_type();
    let rows = generate(&schema, 1_500, 1);
    let env = Env::real();
    let dir = tempfile::tempdir().unwrap();
    let options = small_options(Compression::Lz4);
    let by_row = write(&env, dir.path(), 1, &schema, &options, &rows);

    let stored: Vec<usize> = (0..schema.columns().len()).collect();
    let mut builder = BatchBuilder::new(&schema, &stored, true);
    let mut writer = SstableWriter::create(&env, dir.path(), 2, &schema, &options).unwrap();
    for rows in rows.chunks(333) {
        for row in rows {
            builder.push(&row.key, &row.row, row.ts).unwrap();
        }
        let batch = builder.finish().unwrap();
        writer.push_batch(&batch, &encode_keys(&schema, &batch).unwrap()).unwrap();
    }
    let by_batch = writer.finish().unwrap();
    oribi_sstable::publish(&env, dir.path(), 2).unwrap();
    assert_eq!(
        (by_row.rows, &by_row.min_key, &by_row.max_key),
        (by_batch.rows, &by_batch.min_key, &by_batch.max_key)
    );
    assert_eq!((by_row.min_ts, by_row.max_ts), (by_batch.min_ts, by_batch.max_ts));
    check(&Sstable::open(&env, dir.path(), &by_batch, &schema).unwrap(), &schema, &rows);
}

#[test]
fn selected_rows_and_columns() {
    let schema = Schema::key_value();
    let rows: Vec<TestRow> = (0..2_000).map(|n| key_value(n, 9)).collect();
    let dir = tempfile::tempdir().unwrap();
    let sstable = sstable(dir.path(), &schema, &small_options(Compression::Lz4), &rows);
    let ranges = [3..4, 99..101, 590..610, 1_999..2_000];
    let cas = schema.position("cas").unwrap();
    let mut seen = Vec::new();
    for batch in sstable.batches(&schema, &[cas, 0], false, Some(&ranges)).unwrap() {
        let batch = batch.unwrap();
        assert_eq!(batch.schema().field(0).name(), "cas");
        for i in 0..batch.num_rows() {
            let key = oribi_types::batch::value_at(batch.column(1), ColumnType::Binary, i).to_owned();
            let cas = oribi_types::batch::value_at(batch.column(0), ColumnType::Int64, i).to_owned();
            seen.push((key, cas));
        }
    }
    let expected: Vec<_> = ranges
        .into_iter()
        .flatten()
        .map(|i| (rows[i as usize].values[0].clone(), Value::Int64(rows[i as usize].ts.0 as i64)))
        .collect();
    assert_eq!(seen, expected);
    let outside = std::slice::from_ref(&(1_990..2_001));
    assert_eq!(
        sstable.batches(&schema, &[0], false, Some(outside)).err().unwrap().kind(),
        ErrorKind::Invalid
    );
    let none: usize =
        sstable.batches(&schema, &[], false, None).unwrap().map(|b| b.unwrap().num_rows()).sum();
    assert_eq!(none, 2_000, "a projection of nothing still counts");
}

#[test]
fn rows_out_of_order_are_refused() {
    let schema = Schema::key_value();
    let dir = tempfile::tempdir().unwrap();
    let env = Env::real();
    let (a, b) = (key_value(1, 1), key_value(2, 1));
    for rows in [[(&b, 5), (&a, 5)], [(&a, 5), (&a, 6)]] {
        let mut writer =
            SstableWriter::create(&env, dir.path(), 1, &schema, &SstableOptions::default()).unwrap();
        for (row, ts) in rows {
            writer.push(&row.key, &row.row, Timestamp(ts)).unwrap();
        }
        assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Internal);
        assert!(env.files.list(dir.path()).unwrap().is_empty(), "temporary files are gone");
    }
    let empty = SstableWriter::create(&env, dir.path(), 1, &schema, &SstableOptions::default()).unwrap();
    assert_eq!(empty.finish().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn files_are_live_only_once_published() {
    let schema = Schema::key_value();
    let dir = tempfile::tempdir().unwrap();
    let env = Env::real();
    let mut writer =
        SstableWriter::create(&env, dir.path(), 255, &schema, &SstableOptions::default()).unwrap();
    let row = key_value(1, 1);
    writer.push(&row.key, &row.row, row.ts).unwrap();
    let meta = writer.finish().unwrap();
    let names = || env.files.list(dir.path()).unwrap();
    assert_eq!(names(), ["00000000000000ff.data.tmp", "00000000000000ff.index.tmp"]);
    oribi_sstable::publish(&env, dir.path(), 255).unwrap();
    assert_eq!(names(), ["00000000000000ff.index", "00000000000000ff.parquet"]);
    assert!(names().iter().all(|name| oribi_sstable::id_of_file_name(name) == Some(255)));
    assert_eq!(oribi_sstable::id_of_file_name("00000000000000ff.txt"), None);

    let json = serde_json::to_string(&meta).unwrap();
    assert!(json.contains("\"min_key\":\"757365723a3030303030303031\""), "{json}");
    assert_eq!(serde_json::from_str::<oribi_sstable::SstableMeta>(&json).unwrap(), meta);

    oribi_sstable::remove(&env, dir.path(), 255).unwrap();
    oribi_sstable::remove(&env, dir.path(), 255).unwrap();
    assert!(names().is_empty());
}

#[test]
fn long_rows_side_by_side_make_no_long_batches() {
    let columns = vec![
        ColumnSpec::new("k", ColumnType::Int64).not_null(),
        ColumnSpec::new("v", ColumnType::String),
        ColumnSpec::new("w", ColumnType::Binary),
    ];
    let schema = Schema::new(columns, &["k"]).unwrap();
    let long = |k: i64| (5_000..5_030).contains(&k) || (9_000..9_010).contains(&k);
    let value = |k: i64| if long(k) { vec![k as u8; 1 << 20] } else { vec![7; 10] };
    let text = |k: i64| String::from_utf8(vec![b'a'; 3 + k as usize % 5]).unwrap();
    let rows: Vec<TestRow> = (0..20_000)
        .map(|k| {
            row_of(
                &schema,
                vec![Value::Int64(k), Value::String(text(k)), Value::Binary(value(k))],
                k as u64 + 1,
            )
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let sstable = sstable(dir.path(), &schema, &SstableOptions::default(), &rows);
    let (mut k, mut batches) = (0, 0);
    for batch in sstable.batches(&schema, &[0, 2], true, None).unwrap() {
        let batch = batch.unwrap();
        let bytes: usize = batch.column(1).as_binary_view().iter().map(|v| v.unwrap().len()).sum();
        assert!(bytes <= 9 << 20, "{bytes} bytes in one batch");
        for v in batch.column(1).as_binary_view() {
            assert_eq!(v.unwrap(), value(k));
            k += 1;
        }
        batches += 1;
    }
    assert_eq!(k, 20_000);
    assert!(batches < 6_000, "{batches} batches");
    // What is not read makes no batch shorter.
    assert_eq!(sstable.keys(&schema).unwrap().next().unwrap().unwrap().0.len(), 8_192);
}
