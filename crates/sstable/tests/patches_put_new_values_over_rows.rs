//! A patch gives rows of an SSTable new values: whoever has it reads these and its timestamp, by whichever door, and nothing of a
//! damaged one.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "damages files as only the outside does")]

mod common;

use arrow::array::{Array, ArrayRef, AsArray};
use common::{TestRow, get, row_of, scan, small_options, sorted, sstable, write};
use oribi_env::Env;
use oribi_sstable::{
    Batches, Compression, LONG_PAGE_BYTES, Patch, PatchWriter, RowSelection, RowSelector, Sstable,
    SstableMeta, SstableOptions, paths, publish,
};
use oribi_types::batch::{ColumnBuilder, value_at};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Error, ErrorKind, Result, Schema, Timestamp, Value};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a patch is made of.
#[derive(Clone, Debug)]
struct Change {
    /// Positions in the schema.
    columns: Vec<usize>,
    rows: Vec<u32>,
    /// By column, then by row.
    values: Vec<Vec<Value>>,
    ts: u64,
    visible_from: u64,
}

impl Change {
    fn new(
        schema: &Schema,
        (ts, visible_from): (u64, u64),
        names: &[&str],
        rows: impl IntoIterator<Item = u32>,
        value: impl Fn(usize, u32) -> Value,
    ) -> Self {
        let rows: Vec<u32> = rows.into_iter().collect();
        let columns: Vec<usize> = names.iter().map(|name| schema.position(name).unwrap()).collect();
        let of_column = |n: usize| rows.iter().map(|row| value(n, *row)).collect();
        let values = (0..columns.len()).map(of_column).collect();
        Change { columns, rows, values, ts, visible_from }
    }

    fn is_seen_at(&self, ts: Timestamp) -> bool {
        self.visible_from <= ts.0
    }
}

fn array(column_type: ColumnType, values: &[Value]) -> ArrayRef {
    let mut builder = ColumnBuilder::new(column_type);
    values.iter().for_each(|value| builder.push(value.as_ref()));
    builder.finish(column_type).unwrap()
}

/// Writes a patch with so many rows in each call.
fn write_patch(dir: &Path, id: u64, schema: &Schema, change: &Change, rows_at_once: usize) -> SstableMeta {
    let env = Env::real();
    let ts = Timestamp(change.ts);
    let mut writer = PatchWriter::create(&env, dir, id, schema, &change.columns, ts).unwrap();
    for (n, rows) in change.rows.chunks(rows_at_once).enumerate() {
        let of_column = |(column, values): (&usize, &Vec<Value>)| {
            let start = n * rows_at_once;
            array(schema.columns()[*column].column_type, &values[start..start + rows.len()])
        };
        let values = change.columns.iter().zip(&change.values).map(of_column).collect();
        writer.push(rows, values).unwrap();
    }
    let (meta, _) = writer.finish_late(u64::MAX).unwrap();
    assert_eq!((meta.rows, meta.min_ts, meta.max_ts), (change.rows.len() as u64, ts, ts));
    publish(&env, dir, id).unwrap();
    meta
}

/// Writes, publishes and opens a patch of `of`.
fn patch_of(dir: &Path, id: u64, schema: &Schema, of: &Sstable, change: &Change) -> Arc<Patch> {
    let meta = write_patch(dir, id, schema, change, 1_000);
    let from = Timestamp(change.visible_from);
    Arc::new(Patch::open(&Env::real(), dir, &meta, schema, of.meta().rows, from).unwrap())
}

/// The rows with the values and timestamps of those that come later.
fn changed<'c>(
    schema: &Schema,
    rows: &[TestRow],
    changes: impl IntoIterator<Item = &'c Change>,
) -> Vec<TestRow> {
    let mut rows = rows.to_vec();
    for change in changes {
        for (column, values) in change.columns.iter().zip(&change.values) {
            for (row, value) in change.rows.iter().zip(values) {
                rows[*row as usize].values[*column] = value.clone();
            }
        }
        for row in &change.rows {
            rows[*row as usize].ts = Timestamp(change.ts);
        }
    }
    rows.into_iter().map(|row| row_of(schema, row.values, row.ts.0)).collect()
}

type Read = Vec<(Vec<Value>, Option<Timestamp>)>;

fn read(batches: Batches, schema: &Schema, projection: &[usize], with_ts: bool) -> Result<Read> {
    let mut rows = Vec::new();
    for batch in batches {
        let batch = batch?;
        batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
        assert_eq!(batch.num_columns(), projection.len() + usize::from(with_ts));
        rows.extend((0..batch.num_rows()).map(|i| {
            let value = |(n, column): (usize, &usize)| value_at(batch.column(n), type_of(schema, *column), i);
            let values = projection.iter().enumerate().map(value).map(|value| value.to_owned()).collect();
            (values, with_ts.then(|| common::ts_at(&batch, i)))
        }));
    }
    Ok(rows)
}

fn type_of(schema: &Schema, column: usize) -> ColumnType {
    schema.columns()[column].column_type
}

fn expected<'r>(rows: impl Iterator<Item = &'r TestRow>, projection: &[usize], with_ts: bool) -> Read {
    let values = |row: &TestRow| projection.iter().map(|column| row.values[*column].clone()).collect();
    rows.map(|row| (values(row), with_ts.then_some(row.ts))).collect()
}

/// Checks what all doors say of all rows.
fn check(sstable: &Sstable, schema: &Schema, rows: &[TestRow]) {
    sstable.verify(schema).unwrap();
    check_rows(sstable, schema, rows, 1);
}

/// Checks what all doors say of all rows, those that take one row of each `step`th.
fn check_rows(sstable: &Sstable, schema: &Schema, rows: &[TestRow], step: usize) {
    let all: Vec<_> = rows.iter().map(|row| (row.values.clone(), row.ts)).collect();
    assert!(scan(sstable, schema).unwrap() == all, "scanned rows are others");
    let mut bytes = Vec::new();
    for (i, row) in rows.iter().enumerate().step_by(step) {
        bytes.clear();
        assert_eq!(sstable.read_row(schema, i as u32, usize::MAX, &mut bytes).unwrap(), None);
        assert!(bytes == row.row, "row {i} is another");
        let patch = sstable.patches().iter().rev().find(|patch| patch.rows().contains(i as u32));
        assert_eq!(sstable.patch_of(i as u32).map(|patch| patch.id()), patch.map(|patch| patch.id()));
        if let Some(patch) = patch {
            assert_eq!(row.ts, patch.ts());
        }
    }

    let mut newest: BTreeMap<&[u8], (u32, &TestRow)> = BTreeMap::new();
    for (i, row) in rows.iter().enumerate() {
        newest.entry(&row.key).or_insert((i as u32, row));
    }
    for (key, (i, row)) in newest.iter().step_by(step) {
        assert!(get(sstable, schema, key).unwrap() == Some((*i, row.ts, row.row.clone())), "row {i} by key");
        let mut copies = Vec::new();
        let none = sstable.find(key, |row, ts| {
            copies.push((row, ts));
            false
        });
        assert_eq!(none.unwrap(), None);
        let wanted = rows.iter().enumerate().filter(|(_, row)| row.key == *key);
        assert_eq!(copies, wanted.map(|(i, row)| (i as u32, row.ts)).collect::<Vec<_>>());
    }
    let wanted: Vec<&[u8]> = newest.keys().copied().step_by(step).collect();
    let places: Vec<_> = newest.values().step_by(step).map(|(i, row)| Some((*i, row.ts))).collect();
    assert_eq!(sstable.locate(&wanted).unwrap(), places);

    let mut keys = Vec::new();
    for batch in sstable.keys(schema).unwrap() {
        let (of_batch, ts) = batch.unwrap();
        keys.extend(of_batch.iter().map(<[u8]>::to_vec).zip(ts));
    }
    assert!(keys == rows.iter().map(|row| (row.key.clone(), row.ts)).collect::<Vec<_>>(), "other keys");
}

/// Numbers that look random.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let n = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ n >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn is_one_of(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Ranges of rows below `rows`: single ones, runs, some that touch, some that are empty.
    fn ranges(&mut self, rows: u32) -> Vec<Range<u32>> {
        let gap = [3, 40, 200][self.below(3)];
        let length = [2, 30, 300][self.below(3)];
        let (mut ranges, mut end) = (Vec::new(), 0);
        loop {
            let start = end + self.below(gap) as u32;
            end = start + self.below(length) as u32;
            if end > rows {
                return ranges;
            }
            ranges.push(start..end);
        }
    }

    /// Noise that is a text.
    fn text(&mut self, bytes: usize) -> String {
        (0..bytes).map(|_| char::from(b' ' + self.below(95) as u8)).collect()
    }

    fn noise(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| self.next() as u8).collect()
    }

    fn value(&mut self, column_type: ColumnType) -> Value {
        let n = self.next() as i64;
        let digits = |precision: u8| i128::from(n) * 1_000_003 % 10_i128.pow(precision.into());
        match column_type {
            ColumnType::Bool => Value::Bool(n % 2 == 0),
            ColumnType::Int32 => Value::Int32(n as i32),
            ColumnType::Int64 if n % 2 == 0 => Value::Int64(1_000_000 + n % 1_000),
            ColumnType::Int64 => Value::Int64(n),
            ColumnType::Double => Value::Double(n as f64 / 7.0),
            ColumnType::Decimal { precision, .. } => Value::Decimal(digits(precision)),
            ColumnType::Timestamp => Value::Timestamp(n),
            ColumnType::Uuid => Value::Uuid([n as u8; 16]),
            ColumnType::Binary => {
                let bytes = self.below(20);
                Value::Binary(self.noise(bytes))
            }
            _ => {
                let bytes = match self.below(300) {
                    0 => LONG_PAGE_BYTES + self.below(10_000),
                    1..15 => 100 + self.below(3_000),
                    _ => self.below(24),
                };
                Value::String(self.text(bytes))
            }
        }
    }

    /// Values of a column: the same one, few, or many; nulls, if it may have them, none, some, or all.
    fn values(&mut self, schema: &Schema, column: usize, count: usize) -> Vec<Value> {
        let column = &schema.columns()[column];
        let few: Vec<Value> =
            (0..[1, 4, 400][self.below(3)]).map(|_| self.value(column.column_type)).collect();
        let nulls = if column.nullable { [0, 3, 10][self.below(3)] } else { 0 };
        let all_null = column.nullable && self.is_one_of(12);
        let mut value = |_| match all_null || self.below(10) < nulls {
            true => Value::Null,
            false => few[self.below(few.len())].clone(),
        };
        (0..count).map(&mut value).collect()
    }
}

fn many_types() -> Schema {
    let decimal = |precision, scale| ColumnType::Decimal { precision, scale };
    let columns = vec![
        ColumnSpec::new("int", ColumnType::Int32),
        ColumnSpec::new("bigint", ColumnType::Int64).not_null(),
        ColumnSpec::new("k", ColumnType::Int64).not_null(),
        ColumnSpec::new("text", ColumnType::String),
        ColumnSpec::new("text not null", ColumnType::String).not_null(),
        ColumnSpec::new("money", decimal(15, 2)),
        ColumnSpec::new("huge", decimal(38, 10)).not_null(),
        ColumnSpec::new("bool", ColumnType::Bool),
        ColumnSpec::new("flag", ColumnType::Bool).not_null(),
        ColumnSpec::new("double", ColumnType::Double),
        ColumnSpec::new("timestamp", ColumnType::Timestamp).not_null(),
        ColumnSpec::new("uuid", ColumnType::Uuid),
        ColumnSpec::new("blob", ColumnType::Binary),
    ];
    Schema::new(columns, &["k"]).unwrap()
}

const KEY: usize = 2;

/// So many rows, some of them copies of a key.
fn rows_of(schema: &Schema, count: usize, rng: &mut Rng) -> Vec<TestRow> {
    let columns = 0..schema.columns().len();
    let values: Vec<Vec<Value>> = columns.map(|column| rng.values(schema, column, count)).collect();
    let row = |i: usize| {
        let mut values: Vec<Value> = values.iter().map(|column| column[i].clone()).collect();
        let copy = i % 7 % 5;
        values[KEY] = Value::Int64(2 * (i - copy) as i64);
        row_of(schema, values, 9 - copy as u64)
    };
    let rows = sorted((0..count).map(row).collect());
    assert_eq!(rows.len(), count);
    rows
}

/// Which rows a patch has.
#[derive(Clone, Copy, Debug)]
enum Which {
    Scattered,
    Runs,
    All,
    One,
    FirstAndLast,
    /// All from the middle on.
    Second,
    /// Those of the patch before.
    Same,
}

/// Below which timestamp nothing is read any more when a patch comes.
#[derive(Clone, Copy, Debug)]
enum Horizon {
    Min,
    Before,
    Now,
    Max,
}

/// A patch to be made: a bit for each column, its rows, how much later it is, and is seen, than the one before.
#[derive(Clone, Debug)]
struct Plan {
    columns: u16,
    which: Which,
    later: (u64, u64),
    horizon: Horizon,
}

fn plan() -> impl Strategy<Value = Plan> {
    use Which::*;
    let columns = prop_oneof![
        2 => any::<u16>(),
        2 => (0..13u32).prop_map(|column| 1 << column),
        1 => any::<(u16, u16)>().prop_map(|(a, b)| a & b),
        1 => Just(u16::MAX),
    ];
    let which = prop::sample::select(vec![Scattered, Scattered, Runs, All, One, FirstAndLast, Second, Same]);
    let horizon = prop::sample::select(vec![Horizon::Min, Horizon::Before, Horizon::Now, Horizon::Max]);
    (columns, which, (1..4u64, 0..4u64), horizon).prop_map(|(columns, which, later, horizon)| Plan {
        columns,
        which,
        later,
        horizon,
    })
}

/// The changes that are planned, of `count` rows, each with its horizon.
fn changes(schema: &Schema, count: u32, plans: &[Plan], rng: &mut Rng) -> Vec<(Change, Timestamp)> {
    let mut changes: Vec<(Change, Timestamp)> = Vec::new();
    let (mut ts, mut visible_from) = (10, 10);
    for Plan { columns, which, later, horizon } in plans {
        ts += later.0;
        let before = visible_from;
        visible_from = ts.max(visible_from + later.1);
        let horizon = match horizon {
            Horizon::Min => 0,
            Horizon::Before => before,
            Horizon::Now => visible_from,
            Horizon::Max => u64::MAX,
        };
        let one = rng.below(count as usize) as u32;
        let some: Vec<u32> = match which {
            Which::Scattered => {
                let of = 2 + rng.below(40);
                (0..count).filter(|_| rng.is_one_of(of)).collect()
            }
            Which::Runs => rng.ranges(count).into_iter().flatten().collect(),
            Which::All => (0..count).collect(),
            Which::One => vec![one],
            Which::FirstAndLast => vec![0, count - 1],
            Which::Second => (count / 2..count).collect(),
            Which::Same => changes.last().map(|(change, _)| change.rows.clone()).unwrap_or_default(),
        };
        // A patch has rows.
        let mut rows = if some.is_empty() { vec![one] } else { some };
        rows.dedup();
        let is_set = |column: &usize| *column != KEY && columns >> column & 1 == 1;
        let columns: Vec<usize> = (0..schema.columns().len()).filter(is_set).collect();
        let values = columns.iter().map(|column| rng.values(schema, *column, rows.len())).collect();
        changes.push((Change { columns, rows, values, ts, visible_from }, Timestamp(horizon)));
    }
    changes
}

/// Which of the changes, by their positions, are still read after the last came: the model of [`Sstable::with_patch`].
fn left_of(left: &[usize], changes: &[(Change, Timestamp)]) -> Vec<usize> {
    let (_, horizon) = changes.last().unwrap();
    let is_read = |older: &usize| {
        let of_older = &changes[*older].0;
        !left.iter().filter(|newer| *newer > older).map(|newer| &changes[*newer].0).any(|newer| {
            newer.is_seen_at(*horizon)
                && of_older.columns.iter().all(|column| newer.columns.contains(column))
                && of_older.rows.iter().all(|row| newer.rows.binary_search(row).is_ok())
        })
    };
    left.iter().copied().filter(is_read).collect()
}

/// Checks some projections of some rows.
fn check_some(
    sstable: &Sstable,
    schema: &Schema,
    rows: &[TestRow],
    is_patched: impl Fn(usize) -> bool,
    rng: &mut Rng,
) {
    let all: Vec<usize> = (0..schema.columns().len()).collect();
    let column = |rng: &mut Rng| rng.below(all.len());
    let (a, b) = (column(rng), column(rng));
    let unpatched: Vec<usize> = all.iter().copied().filter(|column| !is_patched(*column)).collect();
    let some: Vec<usize> = (0..rng.below(8)).map(|_| column(rng)).collect();
    let backwards: Vec<usize> = all.iter().rev().copied().collect();
    for projection in [vec![a, b, a], unpatched, some, backwards, vec![a], vec![]] {
        let with_ts = rng.is_one_of(2);
        let ranges = rng.ranges(rows.len() as u32);
        for ranges in [None, Some(ranges.as_slice())] {
            let found = sstable.batches(schema, &projection, with_ts, ranges).unwrap();
            let found = read(found, schema, &projection, with_ts).unwrap();
            let whole = 0..rows.len() as u32;
            let wanted = ranges
                .unwrap_or(std::slice::from_ref(&whole))
                .iter()
                .cloned()
                .flatten()
                .map(|row| &rows[row as usize]);
            assert!(found == expected(wanted, &projection, with_ts), "{projection:?} of {ranges:?}");
        }
        for (group, bounds) in sstable.row_groups().enumerate() {
            let ranges = rng.ranges(bounds.end - bounds.start);
            let (mut selectors, mut end) = (Vec::new(), 0);
            for range in &ranges {
                selectors.push(RowSelector::skip((range.start - end) as usize));
                selectors.push(RowSelector::select((range.end - range.start) as usize));
                end = range.end;
            }
            if rng.is_one_of(2) {
                selectors.push(RowSelector::skip((bounds.end - bounds.start - end) as usize));
            }
            let selection = RowSelection::from(selectors);
            let found = sstable.group_batches(schema, &projection, with_ts, group, selection).unwrap();
            let found = read(found, schema, &projection, with_ts).unwrap();
            let wanted = ranges.iter().cloned().flatten().map(|row| &rows[(bounds.start + row) as usize]);
            assert!(found == expected(wanted, &projection, with_ts), "{projection:?} of {group}: {ranges:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn each_snapshot_reads_the_values_of_its_time(
        seed: u64,
        count in prop_oneof![1 => 1..20usize, 4 => 200..700usize],
        row_group_rows in prop::sample::select(vec![64, 150, 1_000]),
        compression in prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]),
        rows_at_once in prop::sample::select(vec![1, 33, 1_000]),
        plans in prop::collection::vec(plan(), 1..7),
    ) {
        let rng = &mut Rng(seed);
        let schema = many_types();
        let rows = rows_of(&schema, count, rng);
        let dir = tempfile::tempdir().unwrap();
        let options = SstableOptions { row_group_rows, page_rows: 40, page_bytes_max: 1 << 10, compression };
        let mut file = sstable(dir.path(), &schema, &options, &rows);
        let changes = changes(&schema, count as u32, &plans, rng);
        let mut left = Vec::new();
        for (n, (change, horizon)) in changes.iter().enumerate() {
            let id = 100 + n as u64;
            let meta = write_patch(dir.path(), id, &schema, change, rows_at_once);
            let from = Timestamp(change.visible_from);
            let patch = Patch::open(&Env::real(), dir.path(), &meta, &schema, count as u64, from).unwrap();
            prop_assert_eq!((patch.id(), patch.ts(), patch.visible_from()), (id, Timestamp(change.ts), from));
            prop_assert_eq!(patch.rows().iter().collect::<Vec<_>>(), change.rows.clone());
            let ids: Vec<_> = change.columns.iter().map(|column| schema.columns()[*column].id).collect();
            prop_assert_eq!(patch.columns().collect::<Vec<_>>(), ids);
            file = file.with_patch(Arc::new(patch), *horizon);
            left.push(n);
            left = left_of(&left, &changes[..=n]);
            let ids = file.patches().iter().map(|patch| patch.id() as usize - 100);
            prop_assert_eq!(ids.collect::<Vec<_>>(), left.clone());
        }
        file.verify(&schema).unwrap();

        let file = Arc::new(file);
        let horizon = changes.iter().map(|(_, horizon)| *horizon).max().unwrap();
        let from = changes.iter().flat_map(|(change, _)| [change.visible_from - 1, change.visible_from]);
        let mut snapshots: Vec<Timestamp> = from.chain([0, u64::MAX]).map(Timestamp).collect();
        snapshots.retain(|ts| *ts >= horizon);
        snapshots.sort();
        snapshots.dedup();
        for ts in snapshots {
            let seen: Vec<_> = changes.iter().map(|(change, _)| change).filter(|change| change.is_seen_at(ts)).collect();
            let is_patched = |column: usize| seen.iter().any(|change| change.columns.contains(&column));
            let at = file.at(ts);
            for (position, column) in schema.columns().iter().enumerate() {
                prop_assert_eq!(at.is_patched(column.id), is_patched(position));
            }
            let rows = changed(&schema, &rows, seen.iter().copied());
            check_rows(&at, &schema, &rows, if ts == Timestamp::MAX { 1 } else { 17 });
            check_some(&at, &schema, &rows, is_patched, rng);
        }
        check_rows(&file.with_patches(Vec::new()), &schema, &rows, 17);
    }
}

fn text(n: u32) -> Value {
    Value::String(format!("text {n}"))
}

fn three_columns() -> Schema {
    let columns = vec![
        ColumnSpec::new("a", ColumnType::String),
        ColumnSpec::new("id", ColumnType::Int64).not_null(),
        ColumnSpec::new("b", ColumnType::Int64).not_null(),
    ];
    Schema::new(columns, &["id"]).unwrap()
}

/// Rows of three columns, of different timestamps.
fn old_rows(schema: &Schema, count: u32) -> Vec<TestRow> {
    let values = |n: u32| vec![text(n), Value::Int64(n.into()), Value::Int64(-i64::from(n))];
    (0..count).map(|n| row_of(schema, values(n), 1 + u64::from(n % 5))).collect()
}

/// The same rows under another schema.
fn rows_under(schema: &Schema, rows: &[TestRow], values: impl Fn(&[Value]) -> Vec<Value>) -> Vec<TestRow> {
    rows.iter().map(|row| row_of(schema, values(&row.values), row.ts.0)).collect()
}

#[test]
fn a_column_that_was_added_later_is_set_by_a_patch() {
    let dir = tempfile::tempdir().unwrap();
    let old = three_columns();
    let rows = old_rows(&old, 1_500);
    let file = sstable(dir.path(), &old, &small_options(Compression::Lz4), &rows);
    let mut spec = ColumnSpec::new("c", ColumnType::String).not_null();
    spec.default = Some(Value::String("new".into()));
    let schema = old.with_column(spec).unwrap();
    let numeric = ColumnType::Decimal { precision: 20, scale: 2 };
    let schema = schema.with_column(ColumnSpec::new("d", numeric)).unwrap();

    let value = |n: usize, row: u32| match n {
        0 if row.is_multiple_of(4) => Value::String("of a patch, and too long for a view".into()),
        0 => text(row),
        _ if row.is_multiple_of(9) => Value::Null,
        _ => Value::Decimal(i128::from(row) << 30),
    };
    let both = Change::new(&schema, (20, 20), &["c", "d"], (0..1_500).filter(|row| row % 3 == 0), value);
    let one = Change::new(&schema, (30, 30), &["d"], 595..605, |_, row| Value::Decimal(row.into()));
    let mut patched = file.clone();
    for (id, change) in [(18, &both), (19, &one)] {
        let patch = patch_of(dir.path(), id, &schema, &file, change);
        patched = patched.with_patch(patch, Timestamp::MIN);
    }
    assert!(file.is_known_to(&old) && file.is_known_to(&schema));
    assert!(!patched.is_known_to(&old) && patched.is_known_to(&schema));

    let missing = |values: &[Value]| [values, &[Value::String("new".into()), Value::Null]].concat();
    let rows = rows_under(&schema, &rows, missing);
    check(&file, &schema, &rows);
    let patched_rows = changed(&schema, &rows, [&both, &one]);
    assert_eq!(patched_rows[1].values[3..], [Value::String("new".into()), Value::Null]);
    assert_eq!(patched_rows[3].values[3..], [text(3), Value::Decimal(3 << 30)]);
    check(&patched, &schema, &patched_rows);
    check_some(&patched, &schema, &patched_rows, |column| column > 2, &mut Rng(1));
    // Nothing of the file but its timestamps, and not even those.
    for with_ts in [true, false] {
        let found = patched.batches(&schema, &[4, 3], with_ts, None).unwrap();
        let found = read(found, &schema, &[4, 3], with_ts).unwrap();
        assert!(found == expected(patched_rows.iter(), &[4, 3], with_ts));
    }
}

#[test]
fn a_column_that_was_dropped_takes_its_values_along_and_one_renamed_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let old = three_columns();
    let rows = old_rows(&old, 1_500);
    let file = sstable(dir.path(), &old, &small_options(Compression::Lz4), &rows);
    let value = |n: usize, row: u32| match n {
        0 if row.is_multiple_of(5) => Value::Null,
        0 => text(row + 7),
        _ => Value::Int64(i64::from(row) << 20),
    };
    let change = Change::new(&old, (20, 20), &["a", "b"], 3..1_400, value);
    let patch = patch_of(dir.path(), 18, &old, &file, &change);
    let patched = file.with_patch(patch, Timestamp::MIN);
    let new_rows = changed(&old, &rows, [&change]);
    check(&patched, &old, &new_rows);

    let renamed = old.with_renamed("a", "z").unwrap().with_renamed("id", "key").unwrap();
    check(&patched, &renamed, &new_rows);
    let swapped = old.with_renamed("a", "x").unwrap().with_renamed("b", "a").unwrap();
    let swapped = swapped.with_renamed("x", "b").unwrap();
    check(&patched, &swapped, &new_rows);

    let dropped = renamed.without_column("b").unwrap();
    let without = |values: &[Value]| values[..2].to_vec();
    check(&patched, &dropped, &rows_under(&dropped, &new_rows, without));
    // The same name brings nothing back.
    let again = dropped.with_column(ColumnSpec::new("b", ColumnType::Int64)).unwrap();
    let null = |values: &[Value]| [&values[..2], &[Value::Null]].concat();
    let again_rows = rows_under(&again, &new_rows, null);
    check(&patched, &again, &again_rows);
    let change = Change::new(&again, (30, 30), &["b"], 100..200, |_, row| Value::Int64(row.into()));
    let newer = patched.with_patch(patch_of(dir.path(), 19, &again, &file, &change), Timestamp::MAX);
    assert_eq!(newer.patches().len(), 2);
    check(&newer, &again, &changed(&again, &again_rows, [&change]));

    // Of a patch that sets what is no more there is left that the rows were changed.
    let bare = dropped.without_column("z").unwrap();
    let key = |values: &[Value]| values[1..2].to_vec();
    check(&patched, &bare, &rows_under(&bare, &new_rows, key));
}

#[test]
fn a_column_takes_null_that_did_not_when_the_file_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let old = three_columns();
    let rows = old_rows(&old, 700);
    let file = sstable(dir.path(), &old, &small_options(Compression::Lz4), &rows);
    let value = |_, row: u32| Value::Int64(row.into());
    let not_null = Change::new(&old, (20, 20), &["b"], 50..650, value);
    let patched = file.with_patch(patch_of(dir.path(), 18, &old, &file, &not_null), Timestamp::MIN);
    let schema = old.with_null_in("b").unwrap();
    check(&patched, &schema, &changed(&schema, &rows, [&not_null]));
    let null = Change::new(&schema, (30, 30), &["b"], (0..700).step_by(2), |_, _| Value::Null);
    let patched = patched.with_patch(patch_of(dir.path(), 19, &schema, &file, &null), Timestamp::MIN);
    check(&patched, &schema, &changed(&schema, &rows, [&not_null, &null]));
}

#[test]
fn a_column_may_have_the_name_that_a_patch_has_for_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let old = three_columns();
    let rows = old_rows(&old, 300);
    let file = sstable(dir.path(), &old, &small_options(Compression::Lz4), &rows);
    let before = Change::new(&old, (20, 20), &["b"], 0..100, |_, row| Value::Int64(row.into()));
    let patched = file.with_patch(patch_of(dir.path(), 18, &old, &file, &before), Timestamp::MIN);
    let schema = old.with_renamed("b", "_row").unwrap().with_renamed("a", "_row_").unwrap();
    check(&patched, &schema, &changed(&schema, &rows, [&before]));
    let value = |n, row: u32| if n == 0 { Value::Int64(-7) } else { text(row + 1) };
    let since = Change::new(&schema, (30, 30), &["_row", "_row_"], 50..150, value);
    let patched = patched.with_patch(patch_of(dir.path(), 19, &schema, &file, &since), Timestamp::MIN);
    check(&patched, &schema, &changed(&schema, &rows, [&before, &since]));
}

#[test]
fn a_column_that_shows_the_commit_timestamp_shows_that_of_the_patch() {
    let dir = tempfile::tempdir().unwrap();
    let schema = Schema::key_value();
    let row = |n: u64, flags: i64, ts: u64| {
        let key = Value::Binary(format!("user:{n:04}").into_bytes());
        let value = Value::Binary(vec![7; n as usize % 9]);
        row_of(&schema, vec![key, value, Value::Int64(flags), Value::Null, Value::Int64(ts as i64)], ts)
    };
    let rows: Vec<_> = (0..1_000).map(|n| row(n, 0, 5 + n % 3)).collect();
    let file = sstable(dir.path(), &schema, &small_options(Compression::Lz4), &rows);
    let change = Change::new(&schema, (20, 20), &["flags"], 100..900, |_, row| Value::Int64(row.into()));
    let patched = file.with_patch(patch_of(dir.path(), 18, &schema, &file, &change), Timestamp::MIN);
    let is_changed = |n: &u64| (100..900).contains(n);
    let new_row = |(old, n): (&TestRow, u64)| match is_changed(&n) {
        true => row(n, n as i64, 20),
        false => old.clone(),
    };
    let new_rows: Vec<_> = rows.iter().zip(0..).map(new_row).collect();
    check(&patched, &schema, &new_rows);
    let cas = schema.position("cas").unwrap();
    for with_ts in [true, false] {
        let found = patched.batches(&schema, &[cas, 0, cas], with_ts, None).unwrap();
        let found = read(found, &schema, &[cas, 0, cas], with_ts).unwrap();
        assert!(found == expected(new_rows.iter(), &[cas, 0, cas], with_ts));
    }
}

#[test]
fn a_patch_that_nobody_reads_any_more_goes() {
    let dir = tempfile::tempdir().unwrap();
    let schema = three_columns();
    let rows = old_rows(&schema, 100);
    let file = sstable(dir.path(), &schema, &small_options(Compression::Lz4), &rows);
    let change = |ts: u32, names: &[&str], rows: Vec<u32>| {
        let value = |n: usize, row: u32| match names[n] {
            "a" => text(row + ts),
            _ => Value::Int64((row + ts).into()),
        };
        Change::new(&schema, (ts.into(), ts.into()), names, rows, value)
    };
    let open = |id, change: &Change| patch_of(dir.path(), id, &schema, &file, change);
    let old = change(20, &["a"], vec![3, 50, 51]);
    let first = file.with_patch(open(18, &old), Timestamp(20));
    assert_eq!(first.patches().len(), 1);
    assert_eq!(file.patches().len(), 0, "the other stays as it is");

    let same = change(30, &["a"], vec![3, 50, 51]);
    let more = change(30, &["a", "b"], (0..60).collect());
    for (id, newer) in [(19, &same), (20, &more)] {
        let patch = open(id, newer);
        for (horizon, patches) in [(0, 2), (20, 2), (29, 2), (30, 1), (u64::MAX, 1)] {
            let both = Arc::new(first.with_patch(Arc::clone(&patch), Timestamp(horizon)));
            assert_eq!(both.patches().len(), patches, "horizon {horizon}");
            assert_eq!(both.patches().last().unwrap().id(), id);
            check(&both, &schema, &changed(&schema, &rows, [&old, newer]));
            if patches == 2 {
                check(&both.at(Timestamp(29)), &schema, &changed(&schema, &rows, [&old]));
                check(&both.at(Timestamp(19)), &schema, &rows);
                let bytes = [&first, &file].map(Sstable::stored_bytes);
                assert!(both.stored_bytes() > bytes[0] && bytes[0] > bytes[1]);
                assert!(both.memory_bytes() > first.memory_bytes());
            }
        }
        // Seen later, it settles later.
        let late = first.with_patch(Arc::new(patch.seen_from(Timestamp(31))), Timestamp(30));
        assert_eq!(late.patches().len(), 2);
        assert!(Arc::ptr_eq(&Arc::new(late).at(Timestamp(30)).patches()[0], &first.patches()[0]));
    }

    // Of another column, of other rows, of not all of them: the older one is still read.
    let other = change(30, &["b"], vec![3, 50, 51]);
    let fewer = change(30, &["a", "b"], vec![3, 50]);
    let others = change(30, &["a", "b"], vec![3, 50, 52, 53]);
    for (id, newer) in [(21, &other), (22, &fewer), (23, &others)] {
        let both = first.with_patch(open(id, newer), Timestamp::MAX);
        assert_eq!(both.patches().len(), 2, "patch {id}");
        check(&both, &schema, &changed(&schema, &rows, [&old, newer]));
    }

    // What waited for the horizon goes with the next patch, also from between others.
    let waiting =
        first.with_patch(open(24, &other), Timestamp::MIN).with_patch(open(25, &same), Timestamp::MIN);
    assert_eq!(waiting.patches().len(), 3);
    let unrelated = change(40, &["b"], vec![99]);
    let next = open(26, &unrelated);
    for (horizon, left) in [(29, vec![18, 24, 25, 26]), (30, vec![24, 25, 26])] {
        let next = waiting.with_patch(Arc::clone(&next), Timestamp(horizon));
        assert_eq!(next.patches().iter().map(|patch| patch.id()).collect::<Vec<_>>(), left);
        check(&next, &schema, &changed(&schema, &rows, [&old, &other, &same, &unrelated]));
    }
}

/// Row groups of the file and of the patch end at different rows, and batches at others again.
#[test]
fn a_patch_of_more_rows_than_its_row_groups_have() {
    const ROWS: u32 = 150_000;
    let dir = tempfile::tempdir().unwrap();
    let schema = three_columns();
    let rows = old_rows(&schema, ROWS);
    let options = SstableOptions { row_group_rows: 40_000, ..SstableOptions::default() };
    let file = sstable(dir.path(), &schema, &options, &rows);
    let value = |n, row: u32| match n {
        0 if row.is_multiple_of(11) => Value::Null,
        0 => Value::String(format!("a text that takes a page: {row}")),
        _ => Value::Int64(i64::from(row) * 77),
    };
    let most = Change::new(&schema, (20, 20), &["a", "b"], 100..ROWS - 1, value);
    let odd = Change::new(&schema, (30, 30), &["b"], (1..ROWS).step_by(2), |_, row| Value::Int64(row.into()));
    let mut patched = file.clone();
    for (id, change) in [(18, &most), (19, &odd)] {
        patched = patched.with_patch(patch_of(dir.path(), id, &schema, &file, change), Timestamp::MIN);
    }
    patched.verify(&schema).unwrap();
    let rows = changed(&schema, &rows, [&most, &odd]);
    check_rows(&patched, &schema, &rows, 7_919);
    let around = |row: u32| row - 3..row + 3;
    let ends = [40_000, 65_536, 65_636, 80_000, 131_072, 131_172].map(around);
    // Every row of the patch's last row group and but one of the first.
    let apart = [150..151, 131_172..ROWS];
    for ranges in [&ends[..], &apart, &[65_000..66_000, 66_001..140_000]] {
        let found = patched.batches(&schema, &[2, 0], true, Some(ranges)).unwrap();
        let found = read(found, &schema, &[2, 0], true).unwrap();
        let wanted = ranges.iter().cloned().flatten().map(|row| &rows[row as usize]);
        assert!(found == expected(wanted, &[2, 0], true), "{ranges:?}");
    }
}

/// Blobs that are short in the file, or long in some rows.
fn blobs() -> Schema {
    let columns = vec![
        ColumnSpec::new("k", ColumnType::Int64).not_null(),
        ColumnSpec::new("a", ColumnType::Binary),
        ColumnSpec::new("b", ColumnType::Binary),
    ];
    Schema::new(columns, &["k"]).unwrap()
}

fn blob_rows(schema: &Schema, count: u32, a: impl Fn(u32) -> Value) -> Vec<TestRow> {
    let row = |k: u32| row_of(schema, vec![Value::Int64(k.into()), a(k), Value::Binary(vec![9; 10])], 1);
    (0..count).map(row).collect()
}

fn short(n: u32) -> Value {
    Value::Binary(n.to_le_bytes().to_vec())
}

fn long(n: u32) -> Value {
    Value::Binary(Rng(n.into()).noise(1 << 20))
}

#[test]
fn a_long_value_of_a_patch_is_read_by_who_has_room_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let schema = blobs();
    let rows = blob_rows(&schema, 40, |k| if (10..20).contains(&k) { long(k) } else { short(k) });
    let file = sstable(dir.path(), &schema, &SstableOptions::default(), &rows);
    // Short becomes long, long becomes short, long stays beside a long one, and long becomes another.
    let b = Change::new(&schema, (20, 20), &["b"], [5, 10, 30], |_, row| long(100 + row));
    let a = Change::new(&schema, (30, 30), &["a"], [11, 12, 30], |_, row| {
        if row == 11 { short(row) } else { long(200 + row) }
    });
    let mut patched = file.clone();
    for (id, change) in [(18, &b), (19, &a)] {
        patched = patched.with_patch(patch_of(dir.path(), id, &schema, &file, change), Timestamp::MIN);
    }
    let rows = changed(&schema, &rows, [&b, &a]);
    check(&patched, &schema, &rows);
    for (i, row) in rows.iter().enumerate() {
        let mut bytes = Vec::new();
        let mut read = |bytes_max| {
            bytes.clear();
            let long = patched.read_row(&schema, i as u32, bytes_max, &mut bytes).unwrap();
            assert_eq!(bytes.is_empty(), long.is_some());
            long
        };
        let long = read(0);
        assert_eq!(long.is_some(), row.row.len() > LONG_PAGE_BYTES, "row {i}");
        if let Some(long) = long {
            // Beside the values, pages have their lengths and levels.
            assert!((row.row.len() - 100..row.row.len() + 200).contains(&long), "row {i}: {long}");
            assert_eq!(read(long - 1), Some(long));
            assert_eq!(read(LONG_PAGE_BYTES), Some(long));
        }
        assert_eq!(read(long.unwrap_or(0)), None);
        assert_eq!(bytes, row.row);
    }
    let long_of = |row| patched.read_row(&schema, row, 0, &mut Vec::new()).unwrap();
    assert!([5, 12, 13].iter().all(|row| long_of(*row).is_some_and(|bytes| bytes < 2 << 20)));
    assert!([10, 30].iter().all(|row| long_of(*row).is_some_and(|bytes| bytes > 2 << 20)));
    assert_eq!(long_of(11), None, "what the file has does not count");
}

#[test]
fn long_values_of_a_patch_make_short_batches_and_larger_portions() {
    let dir = tempfile::tempdir().unwrap();
    let old = blobs();
    let rows = blob_rows(&old, 3_000, short);
    let file = sstable(dir.path(), &old, &SstableOptions::default(), &rows);
    let schema = old.with_column(ColumnSpec::new("c", ColumnType::Binary)).unwrap();
    let rows = rows_under(&schema, &rows, |values| [values, &[Value::Null]].concat());
    let is_long = |row: u32| (1_000..1_030).contains(&row);
    let value = |_, row: u32| if is_long(row) { long(row) } else { short(row + 1) };
    let all: Vec<u32> = (0..3_000).collect();
    for (id, name) in [(18, "a"), (19, "c")] {
        let change = Change::new(&schema, (20, 20), &[name], (0..3_000).filter(|row| row % 2 == 0), value);
        let patch = patch_of(dir.path(), id, &schema, &file, &change);
        let patched = file.with_patch(patch, Timestamp::MIN);
        let position = change.columns[0];
        let column = &schema.columns()[position];
        assert!(patched.value_bytes_max(column).unwrap() > file.value_bytes_max(column).unwrap());
        let mut k = 0;
        let batches = patched.batches(&schema, &[0, position], true, None).unwrap();
        for batch in batches {
            let batch = batch.unwrap();
            let values = batch.column(1).as_binary_view();
            let bytes: usize = values.iter().flatten().map(<[u8]>::len).sum();
            assert!(bytes <= 9 << 20, "{bytes} bytes in one batch");
            for value in values {
                let value = value.map_or(Value::Null, |value| Value::Binary(value.to_vec()));
                let expected = &changed_value(&change, &rows[k], k as u32, position);
                assert!(value == *expected, "row {k}");
                k += 1;
            }
        }
        assert_eq!(k, 3_000);

        let asked: [&[u32]; 3] = [&all, &all[1_000..1_030], &all[7..8]];
        for (asked, bytes_max) in asked.into_iter().flat_map(|asked| [(asked, 1 << 20), (asked, u64::MAX)]) {
            let portions = |of: &Sstable| of.portions(&schema, &[0, position], asked, bytes_max).unwrap();
            let bytes = |of: &Sstable| portions(of).iter().map(|portion| portion.bytes).sum::<u64>();
            assert!(bytes(&patched) >= bytes(&file), "column {name}, {} rows", asked.len());
            let found: Vec<u32> =
                portions(&patched).into_iter().flat_map(|portion| portion.ranges).flatten().collect();
            assert_eq!(found, asked);
        }
        let long = patched.portions(&schema, &[position], &all[1_000..1_030], u64::MAX).unwrap();
        assert!(long.iter().map(|portion| portion.bytes).sum::<u64>() >= 15 << 20, "{long:?}");
    }
}

fn changed_value(change: &Change, row: &TestRow, i: u32, column: usize) -> Value {
    match change.rows.binary_search(&i) {
        Ok(place) => change.values[0][place].clone(),
        Err(_) => row.values[column].clone(),
    }
}

/// An SSTable with a patch, and what both say.
struct Files {
    dir: tempfile::TempDir,
    env: Env,
    schema: Schema,
    file: Sstable,
    meta: SstableMeta,
    rows: Vec<TestRow>,
}

const PATCH: u64 = 18;

impl Files {
    fn new() -> Self {
        let (dir, env, schema) = (tempfile::tempdir().unwrap(), Env::real(), three_columns());
        let rows = old_rows(&schema, 60);
        let options = SstableOptions { row_group_rows: 40, page_rows: 16, ..small_options(Compression::Lz4) };
        let file = sstable(dir.path(), &schema, &options, &rows);
        let value = |n, row: u32| match n {
            0 if row.is_multiple_of(4) => Value::Null,
            0 => text(row % 7),
            _ => Value::Int64(i64::from(row) << 33),
        };
        let change = Change::new(&schema, (20, 20), &["a", "b"], (0..60).filter(|row| row % 3 != 1), value);
        let meta = write_patch(dir.path(), PATCH, &schema, &change, 1_000);
        let rows = changed(&schema, &rows, [&change]);
        Files { dir, env, schema, file, meta, rows }
    }

    fn open(&self) -> Result<Sstable> {
        self.open_patch_of(&self.meta, self.file.meta().rows)
    }

    fn open_patch_of(&self, meta: &SstableMeta, rows: u64) -> Result<Sstable> {
        let patch = Patch::open(&self.env, self.dir.path(), meta, &self.schema, rows, Timestamp(20))?;
        Ok(self.file.with_patch(Arc::new(patch), Timestamp::MIN))
    }

    fn names(&self) -> [PathBuf; 2] {
        paths(self.dir.path(), PATCH)
    }

    /// Asks everything; each answer must be right or `Corrupt`. How many were not given.
    fn refused(&self, sstable: &Sstable) -> usize {
        let mut refused = 0;
        let mut count = |is_right: Option<bool>| {
            assert_ne!(is_right, Some(false), "another value");
            refused += usize::from(is_right.is_none());
        };
        for (i, row) in self.rows.iter().enumerate() {
            let found = right_or_corrupt(get(sstable, &self.schema, &row.key));
            count(found.map(|found| found == Some((i as u32, row.ts, row.row.clone()))));
        }
        let keys: Vec<&[u8]> = self.rows.iter().map(|row| row.key.as_slice()).collect();
        let places: Vec<_> = self.rows.iter().enumerate().map(|(i, row)| Some((i as u32, row.ts))).collect();
        count(right_or_corrupt(sstable.locate(&keys)).map(|found| found == places));
        let all: Vec<_> = self.rows.iter().map(|row| (row.values.clone(), row.ts)).collect();
        count(right_or_corrupt(scan(sstable, &self.schema)).map(|found| found == all));
        for (column, ranges) in [(0, [3..4, 30..45]), (2, [0..1, 59..60])] {
            let found = sstable.batches(&self.schema, &[column], true, Some(&ranges));
            let found = found.and_then(|batches| read(batches, &self.schema, &[column], true));
            let wanted = ranges.into_iter().flatten().map(|row| &self.rows[row as usize]);
            let wanted = expected(wanted, &[column], true);
            count(right_or_corrupt(found).map(|found| found == wanted));
        }
        refused
    }
}

fn right_or_corrupt<T>(result: Result<T>) -> Option<T> {
    result.inspect_err(assert_named).ok()
}

fn assert_named(e: &Error) {
    assert_eq!(e.kind(), ErrorKind::Corrupt, "{e}");
    assert!(e.message().starts_with("sstable 18: "), "{e}");
}

/// In place: some file systems sync a file that is truncated and written anew, which takes a hundred times as long.
fn flip(path: &Path, at: usize) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << (at % 8)], at as u64).unwrap();
}

#[test]
fn a_flipped_bit_of_a_patch_is_never_believed() {
    let files = Files::new();
    check(&files.open().unwrap(), &files.schema, &files.rows);
    for path in files.names() {
        let len = std::fs::read(&path).unwrap().len();
        for at in 0..len {
            flip(&path, at);
            let opened = files.open();
            let verified = opened.as_ref().map_err(Clone::clone).and_then(|file| file.verify(&files.schema));
            assert_named(&verified.expect_err("a flipped bit passes"));
            if let Ok(file) = opened {
                files.refused(&file);
            }
            flip(&path, at);
        }
    }
    let file = files.open().unwrap();
    file.verify(&files.schema).unwrap();
    assert_eq!(files.refused(&file), 0);
}

#[test]
fn a_patch_that_rots_while_it_is_open() {
    let files = Files::new();
    let file = files.open().unwrap();
    assert_eq!(files.refused(&file), 0);
    let [data, index] = files.names();
    let mut refused = 0;
    for at in (0..std::fs::read(&data).unwrap().len()).step_by(3) {
        flip(&data, at);
        refused += usize::from(files.refused(&file) > 0);
        assert_named(&file.verify(&files.schema).expect_err("a flipped bit passes"));
        flip(&data, at);
    }
    assert!(refused > 100, "{refused} bits are in values");
    // The index is in memory.
    let at = std::fs::read(&index).unwrap().len() / 2;
    flip(&index, at);
    assert_eq!(files.refused(&file), 0);
    assert_named(&files.open().unwrap_err());
    std::fs::File::options().write(true).open(&data).unwrap().set_len(10).unwrap();
    assert!(files.refused(&file) > 0);
    assert_named(&file.verify(&files.schema).unwrap_err());
}

#[test]
fn files_of_a_patch_that_are_too_short_or_too_long() {
    let files = Files::new();
    for path in files.names() {
        let whole = std::fs::read(&path).unwrap();
        for len in (0..whole.len()).step_by(13).chain([whole.len() - 1]) {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert_named(&files.open().expect_err("a truncated file opens"));
        }
        std::fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        assert_named(&files.open().expect_err("an extended file opens"));
        std::fs::write(&path, &whole).unwrap();
    }
    files.open().unwrap();
}

#[test]
fn a_patch_of_another_sstable_is_none_of_this() {
    let files = Files::new();
    assert_eq!(files.meta.rows, 40);
    files.open_patch_of(&files.meta, 60).unwrap().verify(&files.schema).unwrap();
    files.open_patch_of(&files.meta, u64::MAX).unwrap();
    for rows in [0, 1, 40, 59] {
        assert_named(
            &files.open_patch_of(&files.meta, rows).expect_err("a patch of rows that are not there"),
        );
    }
    let plain = files.open_patch_of(files.file.meta(), 60).expect_err("a plain sstable opens as a patch");
    assert_eq!(plain.kind(), ErrorKind::Corrupt, "{plain}");
    assert!(plain.message().starts_with("sstable 17: "), "{plain}");
    assert_named(&Sstable::open(&files.env, files.dir.path(), &files.meta, &files.schema).unwrap_err());

    // Its files under the other's name, and another patch's under its own.
    let change = Change::new(&files.schema, (20, 20), &["a", "b"], 0..40, |n, row| {
        if n == 0 { text(row) } else { Value::Int64(row.into()) }
    });
    let other = write_patch(files.dir.path(), 19, &files.schema, &change, 1_000);
    for (path, other) in files.names().into_iter().zip(paths(files.dir.path(), other.id)) {
        let whole = std::fs::read(&path).unwrap();
        std::fs::copy(other, &path).unwrap();
        let opened = files.open().and_then(|file| file.verify(&files.schema));
        assert_named(&opened.expect_err("the file of another patch"));
        std::fs::write(&path, whole).unwrap();
    }
    files.open().unwrap().verify(&files.schema).unwrap();
    for change in [|meta: &mut SstableMeta| meta.max_ts.0 += 1, |meta: &mut SstableMeta| meta.min_ts.0 -= 1] {
        let mut meta = files.meta.clone();
        change(&mut meta);
        let opened = files.open_patch_of(&meta, 60).and_then(|file| file.verify(&files.schema));
        assert_named(&opened.expect_err("a patch of another time"));
    }
}

/// Files that are whole, of the columns that a patch has, which no writer of patches makes.
#[test]
fn rows_that_no_patch_has() {
    /// The id that the index knows the rows of a patch by.
    const ROWS_ID: u32 = i32::MAX as u32 - 1;
    let files = Files::new();
    let part = files.schema.part(("_row", ROWS_ID), &[0, 2]).unwrap();
    let open = |rows: &[(i64, u64)]| {
        let values = |row: i64| vec![Value::Int64(row), text(1), Value::Int64(1)];
        let rows: Vec<_> = rows.iter().map(|(row, ts)| row_of(&part, values(*row), *ts)).collect();
        let meta = write(&files.env, files.dir.path(), PATCH, &part, &SstableOptions::default(), &rows);
        let patched = files.open_patch_of(&meta, 60)?;
        patched.verify(&files.schema).map(|()| patched)
    };
    let patched = open(&[(0, 20), (7, 20), (59, 20)]).unwrap();
    assert_eq!(patched.patches()[0].rows().iter().collect::<Vec<_>>(), [0, 7, 59]);
    for rows in [
        &[(-1, 20), (7, 20)][..],
        &[(7, 20), (60, 20)],
        &[(7, 20), (1 << 32, 20)],
        &[(i64::MIN, 20), (i64::MAX, 20)],
        &[(7, 20), (7, 20)],
        &[(7, 20), (7, 19)],
        &[(7, 20), (8, 21)],
    ] {
        assert_named(&open(rows).expect_err("no patch has such rows"));
    }
    // One that sets nothing says that the rows were changed.
    let meta = write_patch(
        files.dir.path(),
        PATCH,
        &files.schema,
        &Change::new(&files.schema, (20, 20), &[], [3, 4], |_, _| Value::Null),
        1,
    );
    let patched = files.open_patch_of(&meta, 60).unwrap();
    patched.verify(&files.schema).unwrap();
    assert_eq!((patched.patches()[0].columns().count(), patched.patch_of(3).is_some()), (0, true));
}

#[test]
fn a_patch_that_cannot_be_is_not_written() {
    let (dir, env, schema) = (tempfile::tempdir().unwrap(), Env::real(), three_columns());
    let create = |columns: &[usize]| PatchWriter::create(&env, dir.path(), 1, &schema, columns, Timestamp(9));
    let kind = |result: Result<()>| result.unwrap_err().kind();
    for columns in [&[1][..], &[0, 1], &[0, 0]] {
        assert_eq!(kind(create(columns).map(drop)), ErrorKind::Invalid);
    }
    let bucket = Schema::key_value();
    let cas = bucket.position("cas").unwrap();
    let of_cas = PatchWriter::create(&env, dir.path(), 1, &bucket, &[cas], Timestamp(9));
    assert_eq!(kind(of_cas.map(drop)), ErrorKind::Invalid);

    let numbers = |n: usize| array(ColumnType::Int64, &vec![Value::Int64(7); n]);
    let nulls = array(ColumnType::Int64, &[Value::Null]);
    let texts = array(ColumnType::String, &[text(1)]);
    for values in [vec![], vec![numbers(2)], vec![numbers(1), numbers(1)], vec![nulls], vec![texts]] {
        assert_eq!(kind(create(&[2]).unwrap().push(&[4], values)), ErrorKind::Invalid);
    }
    let push = |pushed: &[&[u32]]| {
        let mut writer = create(&[2])?;
        pushed.iter().try_for_each(|rows| writer.push(rows, vec![numbers(rows.len())]))?;
        writer.finish_late(0).map(drop)
    };
    assert_eq!(kind(push(&[&[4, 3]])), ErrorKind::Internal);
    assert_eq!(kind(push(&[&[4], &[3]])), ErrorKind::Internal);
    assert_eq!(kind(push(&[&[4, 4]])), ErrorKind::Internal);
    assert_eq!(kind(push(&[&[4, 5], &[5, 6]])), ErrorKind::Internal);
    assert_eq!(kind(push(&[])), ErrorKind::Invalid);
    assert!(env.files.list(dir.path()).unwrap().is_empty(), "temporary files are gone");
}
