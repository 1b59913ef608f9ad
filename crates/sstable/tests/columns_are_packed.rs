//! Whatever values a column has, in whichever order: they come back, by our reader and by the Parquet crate's, and what is said of the
//! pages holds.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "reads files as a stranger does")]

mod common;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, Scalar, UInt64Array};
use arrow::compute::kernels::cmp;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use common::{TestRow, row_of, scan, sstable};
use oribi_sstable::{Compression, Sstable, SstableOptions};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Schema, Value};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Encoding;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};

const ROWS: u64 = 2_200;

/// A number for a row.
type Pattern = fn(u64) -> u64;

const PATTERNS: [(&str, Pattern); 9] = [
    ("constant", |_| 7),
    ("few", |n| scatter(n) % 5),
    ("runs", |n| scatter(n / 40) % 9),
    ("runs among others", |n| if n % 100 < 60 { 3 } else { scatter(n) % 1_000 }),
    ("half a page", |n| scatter(n) % 400),
    ("near each other", |n| 1_000_000 + scatter(n) % 3_000),
    ("ascending", |n| 3 * n),
    ("descending", |n| u64::MAX - 5 * n),
    ("anything", scatter),
];

fn scatter(n: u64) -> u64 {
    let n = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n ^ n >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn types() -> Vec<ColumnType> {
    let decimal = |precision| ColumnType::Decimal { precision, scale: 2 };
    vec![
        ColumnType::Bool,
        ColumnType::Int8,
        ColumnType::Int16,
        ColumnType::Int32,
        ColumnType::Int64,
        ColumnType::Float,
        ColumnType::Double,
        decimal(9),
        decimal(18),
        decimal(19),
        decimal(38),
        ColumnType::Date,
        ColumnType::Timestamp,
        ColumnType::Uuid,
        ColumnType::String,
        ColumnType::Binary,
        ColumnType::Json,
    ]
}

/// What a number is as a value: of each type some that are far apart, and both signs.
fn value(column_type: ColumnType, n: u64) -> Value {
    let signed = n as i64;
    let digits = |precision: u32| i128::from(signed) * i128::from(signed >> 7) % 10_i128.pow(precision);
    match column_type {
        ColumnType::Bool => Value::Bool(n.is_multiple_of(3)),
        ColumnType::Int8 => Value::Int8(n as i8),
        ColumnType::Int16 => Value::Int16(n as i16),
        ColumnType::Int32 => Value::Int32(n as i32),
        ColumnType::Int64 => Value::Int64(signed),
        ColumnType::Float if n % 11 == 3 => Value::Float([0.0, -0.0, f32::NAN][n as usize / 11 % 3]),
        ColumnType::Float => Value::Float(signed as f32 / 7.0),
        ColumnType::Double if n % 11 == 3 => Value::Double([0.0, -0.0, f64::INFINITY][n as usize / 11 % 3]),
        ColumnType::Double => Value::Double(signed as f64 / 7.0),
        ColumnType::Decimal { precision, .. } => Value::Decimal(digits(precision.into())),
        ColumnType::Date => Value::Date((n % 100_000) as i32 - 50_000),
        ColumnType::Timestamp => Value::Timestamp(signed / 3),
        ColumnType::Uuid => Value::Uuid((u128::from(n) << 64 | u128::from(n ^ 0x55)).to_be_bytes()),
        ColumnType::String => Value::String(text(n)),
        ColumnType::Json => Value::Json(format!("{{\"n\": \"{}\"}}", text(n))),
        ColumnType::Binary if n % 13 == 5 => Value::Binary(vec![0xff; 60 + n as usize % 9]),
        ColumnType::Binary => Value::Binary(n.to_be_bytes()[..n as usize % 9].to_vec()),
    }
}

/// Short ones, and long ones that have much in common and characters of any length where they would be cut.
fn text(n: u64) -> String {
    match n % 7 {
        0 => String::new(),
        1 => format!("{n}"),
        2 => format!("{}{n}", "a".repeat(60 + n as usize / 7 % 6)),
        3 => "\u{10ffff}".repeat(n as usize % 30),
        4 => format!("{}é\u{7ff}\u{ffff}z{n}", "b".repeat(57 + n as usize / 7 % 6)),
        _ => format!("{:x}", n % 50),
    }
}

fn rows(schema: &Schema, pattern: Pattern, nulls: fn(u64) -> bool) -> Vec<TestRow> {
    let of = |n: u64| {
        let values =
            schema.columns().iter().skip(1).enumerate().map(|(i, column)| match nulls(n + i as u64) {
                true => Value::Null,
                false => value(column.column_type, pattern(n)),
            });
        row_of(schema, std::iter::once(Value::Int64(n as i64)).chain(values).collect(), n % 3)
    };
    (0..ROWS).map(of).collect()
}

#[test]
fn all_comes_back_and_the_bounds_hold() {
    let columns = types().into_iter().enumerate().map(|(n, t)| ColumnSpec::new(format!("c{n}"), t));
    let key = ColumnSpec::new("k", ColumnType::Int64).not_null();
    let schema = Schema::new(std::iter::once(key).chain(columns).collect(), &["k"]).unwrap();
    let nulls: [fn(u64) -> bool; 4] = [|_| false, |n| n % 5 == 2, |n| n / 500 % 2 == 1, |_| true];
    let defaults = SstableOptions::default();
    let options = [
        defaults.clone(),
        SstableOptions { page_rows: 100, row_group_rows: 1_700, page_bytes_max: 300, ..defaults.clone() },
        SstableOptions { compression: Compression::Zstd, page_rows: 900, ..defaults.clone() },
        SstableOptions { compression: Compression::None, row_group_rows: 64, page_rows: 3, ..defaults },
    ];
    for (name, pattern) in PATTERNS {
        for (n, nulls) in nulls.into_iter().enumerate() {
            for options in &options {
                let rows = rows(&schema, pattern, nulls);
                let dir = tempfile::tempdir().unwrap();
                let file = sstable(dir.path(), &schema, options, &rows);
                let what = format!("{name}, nulls {n}, {options:?}");
                let back = scan(&file, &schema).unwrap();
                let expected = rows.iter().map(|row| (row.values.clone(), row.ts));
                // By what is printed, since some numbers are none.
                assert!(
                    back.iter().map(|row| format!("{row:?}")).eq(expected.map(|row| format!("{row:?}"))),
                    "{what}"
                );
                by_the_stock_reader(&file, &schema, &what);
            }
        }
    }
}

/// So many distinct values that no dictionary takes them, each of them twice.
#[test]
fn a_dictionary_that_is_full_keeps_what_it_has() {
    const MANY: u64 = 24_000;
    let column_types = [ColumnType::Int64, ColumnType::Int32, ColumnType::Double, ColumnType::String];
    let columns = column_types.iter().enumerate().map(|(n, t)| ColumnSpec::new(format!("c{n}"), *t));
    let key = ColumnSpec::new("k", ColumnType::Int64).not_null();
    let schema = Schema::new(std::iter::once(key).chain(columns).collect(), &["k"]).unwrap();
    let row = |n: u64| {
        let scattered = scatter(n / 2);
        let values = [
            Value::Int64(scattered as i64),
            Value::Int32(scattered as i32),
            Value::Double(scattered as f64),
            Value::String(format!("{scattered:x}")),
        ];
        row_of(&schema, std::iter::once(Value::Int64(n as i64)).chain(values).collect(), 1)
    };
    let rows: Vec<TestRow> = (0..2 * MANY).map(row).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = sstable(dir.path(), &schema, &SstableOptions::default(), &rows);
    let back = scan(&file, &schema).unwrap();
    assert!(back.into_iter().eq(rows.iter().map(|row| (row.values.clone(), row.ts))));
    by_the_stock_reader(&file, &schema, "many values");
    let metadata = file.metadata().unwrap();
    for column in &metadata.row_group(0).columns()[1..5] {
        let has_dictionary = column.encodings().any(|encoding| encoding == Encoding::RLE_DICTIONARY);
        // Positions would take 15 bits at most.
        let is_full = column.uncompressed_size() > 2 * metadata.row_group(0).num_rows() + (64 << 10);
        assert!(has_dictionary && is_full, "{column:?}");
    }
}

/// A point read reads a page of each column.
#[test]
fn pages_of_long_values_are_of_few_rows() {
    let wide = ColumnType::Decimal { precision: 38, scale: 0 };
    let columns = [
        ColumnSpec::new("k", ColumnType::Uuid).not_null(),
        ColumnSpec::new("a", ColumnType::Uuid),
        ColumnSpec::new("b", wide),
        ColumnSpec::new("c", ColumnType::Double),
    ];
    let schema = Schema::new(columns.into(), &["k"]).unwrap();
    let row = |n: u64| {
        let id = || Value::Uuid((u128::from(n) << 64).to_be_bytes());
        row_of(&schema, vec![id(), id(), Value::Decimal(n.into()), Value::Double(n as f64)], 1)
    };
    let dir = tempfile::tempdir().unwrap();
    let file =
        sstable(dir.path(), &schema, &SstableOptions::default(), &(0..3_000).map(row).collect::<Vec<_>>());
    by_the_stock_reader(&file, &schema, "long values");
    let metadata = file.metadata().unwrap();
    let places = &metadata.offset_index().unwrap()[0];
    let rows_max = |column: usize| {
        let starts: Vec<i64> =
            places[column].page_locations().iter().map(|page| page.first_row_index).collect();
        starts.windows(2).map(|page| page[1] - page[0]).max().unwrap()
    };
    assert_eq!((0..4).map(rows_max).collect::<Vec<_>>(), [256, 512, 512, 1024]);
}

/// Its rows are ours, and what the footer and the page index say of them is so.
fn by_the_stock_reader(file: &Sstable, schema: &Schema, what: &str) {
    let open = || std::fs::File::open(file.path()).unwrap();
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(open(), options).unwrap();
    let (metadata, stored, parquet) =
        (builder.metadata().clone(), builder.schema().clone(), builder.parquet_schema().clone());
    let batches: Vec<_> = builder.with_batch_size(1 << 20).build().unwrap().map(Result::unwrap).collect();
    let theirs = arrow::compute::concat_batches(&stored, &batches).unwrap();
    let all: Vec<usize> = (0..schema.columns().len()).collect();
    let ours: Vec<RecordBatch> =
        file.batches(schema, &all, true, None).unwrap().map(Result::unwrap).collect();
    let ours = arrow::compute::concat_batches(&ours[0].schema(), &ours).unwrap();
    for (n, field) in stored.fields().iter().enumerate() {
        let theirs = theirs.column(n);
        assert_eq!(
            &arrow::compute::cast(theirs, ours.column(n).data_type()).unwrap(),
            ours.column(n),
            "{what}, {n}"
        );
        if !has_order(theirs) {
            continue;
        }
        let converter = StatisticsConverter::try_new(field.name(), &stored, &parquet).unwrap();
        check_bounds(&converter, &metadata, theirs, &format!("{what}, {}", field.data_type()));
    }
}

/// Whether the crate makes bounds of the values' type.
fn has_order(array: &ArrayRef) -> bool {
    !matches!(array.data_type(), DataType::FixedSizeBinary(_))
}

fn check_bounds(
    converter: &StatisticsConverter<'_>,
    metadata: &ParquetMetaData,
    values: &ArrayRef,
    what: &str,
) {
    let groups: Vec<usize> = (0..metadata.num_row_groups()).collect();
    let of_groups = (
        converter.row_group_mins(metadata.row_groups()).unwrap(),
        converter.row_group_maxes(metadata.row_groups()).unwrap(),
        converter.row_group_null_counts(metadata.row_groups()).unwrap(),
    );
    let group_rows: Vec<usize> =
        metadata.row_groups().iter().map(|group| group.num_rows() as usize).collect();
    check(&of_groups.0, &of_groups.1, &of_groups.2, values, &group_rows, what);
    let (columns, offsets) = (metadata.column_index().unwrap(), metadata.offset_index().unwrap());
    let page_rows = converter.data_page_row_counts(offsets, metadata.row_groups(), &groups).unwrap().unwrap();
    let page_rows: Vec<usize> = page_rows.values().iter().map(|rows| *rows as usize).collect();
    assert_eq!(page_rows.iter().sum::<usize>(), values.len(), "{what}");
    let mins = converter.data_page_mins(columns, offsets, &groups).unwrap();
    let maxes = converter.data_page_maxes(columns, offsets, &groups).unwrap();
    let nulls = converter.data_page_null_counts(columns, offsets, &groups).unwrap();
    check(&mins, &maxes, &nulls, values, &page_rows, what);
}

/// Of so many rows each there are these bounds and nulls.
fn check(
    mins: &ArrayRef,
    maxes: &ArrayRef,
    nulls: &UInt64Array,
    values: &ArrayRef,
    rows: &[usize],
    what: &str,
) {
    assert_eq!(mins.len(), rows.len(), "{what}");
    let mut first = 0;
    for (n, rows) in rows.iter().enumerate() {
        let values = values.slice(first, *rows);
        first += rows;
        // Of a chunk with a page without any order none is told.
        if nulls.is_valid(n) {
            assert_eq!(nulls.value(n), values.null_count() as u64, "{what}, {n}");
        }
        if values.null_count() == values.len() {
            assert!(mins.is_null(n) && maxes.is_null(n), "{what}, {n}");
        } else if mins.is_valid(n) {
            let (min, max) = (mins.slice(n, 1), maxes.slice(n, 1));
            let is_below = cmp::lt(&values, &Scalar::new(min.clone())).unwrap();
            let is_above = cmp::gt(&values, &Scalar::new(max.clone())).unwrap();
            let is_outside = |row: &usize| {
                values.is_valid(*row)
                    && !is_nan(&values, *row)
                    && (is_below.value(*row) || is_above.value(*row))
            };
            let outside = (0..values.len()).find(is_outside);
            assert_eq!(outside, None, "{what}, {n}: {min:?} {max:?}");
        } else {
            // A page without a number takes those of the whole chunk with it.
            assert!(values.data_type().is_floating(), "{what}, {n}: no bounds");
        }
    }
}

fn is_nan(values: &ArrayRef, row: usize) -> bool {
    let float = values.as_primitive_opt::<Float32Type>().is_some_and(|values| values.value(row).is_nan());
    float || values.as_primitive_opt::<Float64Type>().is_some_and(|values| values.value(row).is_nan())
}
