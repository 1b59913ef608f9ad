//! Rows are cut into portions that take so much memory to be read: what is counted before is what is in hand afterwards.
#![allow(clippy::unwrap_used)]

mod common;

use arrow::array::{AsArray, RecordBatch};
use common::{TestRow, row_of, small_options, sstable};
use oribi_sstable::{Compression, Portion, Sstable, SstableOptions};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Schema, Value};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;

const PROJECTION: [usize; 3] = [1, 2, 3];

fn schema() -> Schema {
    let columns = vec![
        ColumnSpec::new("k", ColumnType::Int64).not_null(),
        ColumnSpec::new("v", ColumnType::String),
        ColumnSpec::new("n", ColumnType::Int64),
        ColumnSpec::new("w", ColumnType::String),
    ];
    Schema::new(columns, &["k"]).unwrap()
}

fn rows(schema: &Schema, values: impl IntoIterator<Item = String>) -> Vec<TestRow> {
    let row = |(k, v): (usize, String)| {
        let values =
            vec![Value::Int64(k as i64), Value::String(v), Value::Null, Value::String("same".into())];
        row_of(schema, values, 1)
    };
    values.into_iter().enumerate().map(row).collect()
}

fn batches(file: &Sstable, schema: &Schema, rows: &[Range<u32>]) -> Vec<RecordBatch> {
    let batches = file.batches(schema, &PROJECTION, false, Some(rows)).unwrap();
    batches.collect::<Result<_, _>>().unwrap()
}

/// The pages that texts of a batch keep.
fn bytes_in_hand(batch: &RecordBatch) -> u64 {
    let texts = batch.columns().iter().filter_map(|column| column.as_string_view_opt());
    let pages: BTreeMap<_, _> =
        texts.flat_map(|text| text.data_buffers()).map(|page| (page.as_ptr(), page.len() as u64)).collect();
    pages.values().sum()
}

/// Checks that all of `asked` is in the portions, and that each takes what it says, and as little as it may.
fn check(file: &Sstable, schema: &Schema, asked: &[u32], bytes_max: u64) -> Vec<Portion> {
    let portions = file.portions(schema, &PROJECTION, asked, bytes_max).unwrap();
    let mut left = asked;
    for portion in &portions {
        let (these, others) = left.split_at(portion.rows);
        left = others;
        let read: Vec<u32> = portion.ranges.iter().cloned().flatten().collect();
        assert_eq!(read, these);
        let batches = batches(file, schema, &portion.ranges);
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), read.len());
        let in_hand = batches.iter().map(bytes_in_hand).max().unwrap();
        assert!(in_hand <= portion.bytes, "{in_hand} of {portion:?}");
        let views = 2 * 16 * read.len() as u64;
        let first = file.portions(schema, &PROJECTION, &these[..1], bytes_max).unwrap();
        assert!(portion.bytes <= bytes_max.max(first[0].bytes) + views, "{portion:?}, alone {first:?}");
    }
    assert!(left.is_empty());
    portions
}

#[test]
fn scattered_rows_take_a_page_each_and_neighbours_one_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let schema = schema();
    let rows = rows(&schema, (0..20_000).map(|k| format!("{k:0400}")));
    let file = sstable(dir.path(), &schema, &SstableOptions::default(), &rows);
    let scattered: Vec<u32> = (0..20_000).step_by(40).collect();
    let portions = check(&file, &schema, &scattered, 1 << 20);
    let bytes: u64 = portions.iter().map(|portion| portion.bytes).sum();
    assert!(bytes > (500 * 8) << 10, "{bytes} bytes");
    let neighbours: Vec<u32> = (1000..1500).collect();
    let portions = check(&file, &schema, &neighbours, 1 << 20);
    assert!(portions.len() == 1 && portions[0].bytes < 500 << 10, "{portions:?}");
    assert_eq!(file.portions(&schema, &PROJECTION, &[], 1).unwrap(), []);
    assert!(file.portions(&schema, &PROJECTION, &[20_000], 1).is_err());
}

#[test]
fn long_values_count_wherever_they_stand_and_repeated_ones_once() {
    let dir = tempfile::tempdir().unwrap();
    let schema = schema();
    let values =
        (0..4000).map(|k| if k % 100 == 7 { "x".repeat((1 << 20) + k) } else { format!("short {k}") });
    let file = sstable(dir.path(), &schema, &SstableOptions::default(), &rows(&schema, values));
    let long: Vec<u32> = (7..4000).step_by(100).collect();
    let portions = check(&file, &schema, &long, 4 << 20);
    assert!(portions.iter().all(|portion| portion.rows <= 3), "{portions:?}");
    let short: Vec<u32> = (3900..3907).collect();
    assert!(check(&file, &schema, &short, 4 << 20).len() == 1);

    let dir = tempfile::tempdir().unwrap();
    let values = (0..4000).map(|k| (k % 16).to_string().repeat(1000));
    let file = sstable(dir.path(), &schema, &SstableOptions::default(), &rows(&schema, values));
    let all: Vec<u32> = (0..4000).collect();
    let portions = check(&file, &schema, &all, 1 << 20);
    assert!(portions.len() == 1, "{portions:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_counted_is_in_hand(
        lengths in prop::collection::vec(prop_oneof![20 => 0..50usize, 5 => 50..2000usize, 1 => 60_000..200_000usize], 1..1500),
        repeats in any::<bool>(),
        steps in prop::collection::vec(1..40u32, 1..300),
        bytes_max in 1..200_000u64,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let schema = schema();
        let value = |(k, length): (usize, &usize)| {
            let piece = if repeats { "r".repeat(8) } else { format!("{k:08}") };
            piece.repeat(length / 8)
        };
        let values: Vec<String> = lengths.iter().enumerate().map(value).collect();
        let count = values.len() as u32;
        let file = sstable(dir.path(), &schema, &small_options(Compression::Lz4), &rows(&schema, values));
        let places = steps.iter().scan(0, |row, step| { *row += step; Some(*row - 1) });
        let asked: Vec<u32> = places.take_while(|row| *row < count).collect();
        check(&file, &schema, &asked, bytes_max);
    }
}
