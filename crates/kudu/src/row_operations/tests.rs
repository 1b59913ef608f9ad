//! Rows through both directions, against bytes of a real client, and against bytes that nobody sends.

use super::*;
use crate::column::WireColumn;
use crate::testing::{columns, rows};
use oribi_types::{ColumnType, Result, Value, ValueRef};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

type Row = (OperationType, Vec<Option<Value>>);

/// The table of `kudu perf loadgen`.
fn loadgen() -> Arc<OperationLayout> {
    Arc::new(OperationLayout::new(vec![
        WireColumn::new("key", ColumnType::Int64, false),
        WireColumn::new("int_val", ColumnType::Int32, true),
        WireColumn::new("string_val", ColumnType::String, true),
    ]))
}

fn read_all(layout: &OperationLayout, rows: &[u8], indirect: &[u8]) -> Result<Vec<Row>> {
    let mut operations = OperationReader::new(layout, rows, indirect);
    let mut read = Vec::new();
    while let Some(operation) = operations.read()? {
        assert_eq!(operation.index, read.len());
        let values = operation.values.iter().map(|v| v.map(ValueRef::to_owned)).collect();
        read.push((operation.operation_type, values));
    }
    assert!(operations.read()?.is_none(), "it stays exhausted");
    Ok(read)
}

/// As captured between Kudu's own client and server.
const CAPTURED: &[u8] = b"\x01\x07\x00\x09\0\0\0\0\0\0\0\x12\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0";
const TEXT: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn a_row_of_loadgen_is_read_and_built_as_kudu_sends_it() {
    let layout = loadgen();
    let read = read_all(&layout, CAPTURED, TEXT.as_bytes()).unwrap();
    let values = vec![Some(Value::Int64(9)), Some(Value::Int32(18)), Some(Value::String(TEXT.into()))];
    assert_eq!(read, [(OperationType::Insert, values)]);

    let mut builder = OperationsBuilder::new(layout);
    let mut row = builder.begin(OperationType::Insert);
    row.set_str(2, TEXT).unwrap();
    row.set_i32(1, 18).unwrap();
    row.set_i64(0, 9).unwrap();
    row.finish();
    assert_eq!(builder.rows(), CAPTURED);
    assert_eq!(builder.indirect(), TEXT.as_bytes());
    assert_eq!((builder.len(), builder.bytes()), (1, 63));
}

#[test]
fn columns_that_are_not_set_take_no_cell() {
    let mut builder = OperationsBuilder::new(loadgen());
    let mut row = builder.begin(OperationType::Update);
    row.set_str(2, "x").unwrap();
    row.set_i64(0, 1).unwrap();
    row.finish();
    let mut row = builder.begin(OperationType::Upsert);
    row.set_i64(0, 2).unwrap();
    row.set_i32(1, 5).unwrap();
    row.set_null(1).unwrap();
    row.set_null(2).unwrap();
    row.set_str(2, "y").unwrap();
    row.finish();
    let expected = b"\x02\x05\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\
        \x05\x07\x02\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0";
    assert_eq!(builder.rows(), expected);
    let read = read_all(builder.layout(), builder.rows(), builder.indirect()).unwrap();
    assert_eq!(read[0].1, [Some(Value::Int64(1)), None, Some(Value::String("x".into()))]);
    assert_eq!(read[1].1, [Some(Value::Int64(2)), Some(Value::Null), Some(Value::String("y".into()))]);
}

#[test]
fn a_row_that_is_not_finished_was_never_there() {
    let mut builder = OperationsBuilder::new(loadgen());
    let mut row = builder.begin(OperationType::Insert);
    row.set_i64(0, 1).unwrap();
    row.finish();
    let before = (builder.rows().to_vec(), builder.indirect().to_vec());
    let mut row = builder.begin(OperationType::Insert);
    row.set_str(2, "half").unwrap();
    row.abort();
    let mut row = builder.begin(OperationType::Insert);
    row.set_str(2, "also").unwrap();
    assert!(row.set_i64(1, 1).is_err(), "another type");
    assert!(row.set_null(0).is_err(), "a key");
    assert!(row.set_i64(3, 1).is_err(), "no column");
    drop(row);
    assert_eq!((builder.rows().to_vec(), builder.indirect().to_vec()), before);
    assert_eq!(builder.len(), 1);
    builder.clear();
    assert!(builder.is_empty() && builder.bytes() == 0);
}

#[test]
fn an_error_names_the_row_and_the_column() {
    let layout = loadgen();
    let twice = [CAPTURED, CAPTURED].concat();
    let error =
        |rows: &[u8], indirect: &[u8]| read_all(&layout, rows, indirect).unwrap_err().message().to_owned();
    let cut = error(&twice[..twice.len() - 1], TEXT.as_bytes());
    assert_eq!(cut, "row 1: column \"string_val\": cut short");
    let outside = error(&twice, &TEXT.as_bytes()[..31]);
    assert_eq!(outside, "row 0: column \"string_val\": 32 bytes at 0 of the 31 bytes of indirect data");
    let not_text = error(CAPTURED, &[0xff; 32]);
    assert_eq!(not_text, "row 0: column \"string_val\": not UTF-8");
    assert_eq!(error(b"\x01", b""), "row 0: cut short in its header");
    assert_eq!(error(b"\x0e\0\0", b""), "row 0: unknown operation type 14");
    assert_eq!(error(b"\0\0\0", b""), "row 0: unknown operation type 0");
    let null_key = error(b"\x01\x01\x01", b"");
    assert_eq!(null_key, "row 0: column \"key\": null in a column that is not nullable");
}

#[test]
fn a_value_that_cannot_be_spoils_its_row_and_no_other() {
    let layout = OperationLayout::new(vec![
        WireColumn::new("k", ColumnType::Decimal { precision: 3, scale: 0 }, false),
        WireColumn::new("s", ColumnType::String, true),
    ]);
    let row = |k: i32, nulls: u8, s: [u64; 2]| {
        let mut row = vec![1, 3, nulls];
        if nulls & 1 == 0 {
            row.extend(k.to_le_bytes());
        }
        row.extend(s.iter().flat_map(|n| n.to_le_bytes()));
        row
    };
    let good = [0, 2];
    let rows = [row(1, 0, good), row(1000, 0, good), row(2, 0, [1, 2]), row(0, 1, good), row(3, 0, good)];
    let indirect = b"ab\xff";
    let (bytes, mut read, mut bad) = (rows.concat(), Vec::new(), Vec::new());
    let mut operations = OperationReader::new(&layout, &bytes, indirect);
    while let Some(row) = operations.read_row().unwrap() {
        match row {
            Ok(operation) => read.push((operation.index, operation.values[0].map(ValueRef::to_owned))),
            Err(BadRow { index, error }) => bad.push((index, error.message().to_owned())),
        }
    }
    assert_eq!(read, [(0, Some(Value::Decimal(1))), (4, Some(Value::Decimal(3)))]);
    let wrong = [
        "column \"k\": more than 3 digits",
        "column \"s\": not UTF-8",
        "column \"k\": null in a column that is not nullable",
    ];
    assert_eq!(bad, wrong.iter().zip(1..).map(|(w, i)| (i, (*w).to_owned())).collect::<Vec<_>>());
    // Outside of the indirect data is another matter, and so is what is cut short behind a wrong value.
    let outside = row(1, 0, [2, 2]);
    assert!(OperationReader::new(&layout, &outside, indirect).read_row().is_err());
    let cut = &row(1000, 0, good)[..20];
    assert!(OperationReader::new(&layout, cut, indirect).read_row().is_err());
}

#[test]
fn after_an_error_the_reader_is_exhausted() {
    let layout = loadgen();
    let mut operations = OperationReader::new(&layout, b"\x0e\0\0\x01\0\0", b"");
    assert!(operations.read().is_err());
    assert!(operations.read().unwrap().is_none());
}

#[test]
fn without_nullable_columns_there_is_no_null_bitmap() {
    let layout = Arc::new(OperationLayout::new(vec![WireColumn::new("k", ColumnType::Int8, false)]));
    let mut builder = OperationsBuilder::new(layout);
    let mut row = builder.begin(OperationType::RangeLowerBound);
    row.set_i8(0, -1).unwrap();
    row.finish();
    builder.begin(OperationType::RangeUpperBound).finish();
    assert_eq!(builder.rows(), b"\x06\x01\xff\x07\0");
    let read = read_all(builder.layout(), builder.rows(), b"").unwrap();
    assert_eq!(read[0], (OperationType::RangeLowerBound, vec![Some(Value::Int8(-1))]));
    assert_eq!(read[1], (OperationType::RangeUpperBound, vec![None]));
}

proptest! {
    #[test]
    fn rows_read_back(((columns, rows), unset) in (rows(), vec(any::<u32>(), 12))) {
        let mut builder = OperationsBuilder::new(Arc::new(OperationLayout::new(columns)));
        let mut expected = Vec::new();
        for (row, unset) in rows.into_iter().zip(unset) {
            let values: Vec<Option<Value>> =
                row.into_iter().enumerate().map(|(i, v)| (unset & (1 << i) == 0).then_some(v)).collect();
            let operation_type = OperationType::from_byte(1 + (unset >> 20) as u8 % 13).unwrap();
            let mut writer = builder.begin(operation_type);
            // Any order will do.
            for i in (0..values.len()).rev() {
                if let Some(value) = &values[i] {
                    writer.set(i, value.as_ref()).unwrap();
                }
            }
            writer.finish();
            expected.push((operation_type, values));
        }
        prop_assert_eq!(builder.len(), expected.len());
        prop_assert_eq!(read_all(builder.layout(), builder.rows(), builder.indirect()).unwrap(), expected);
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        columns in columns(),
        rows in vec(prop_oneof![Just(0_u8), Just(1), Just(0xff), any::<u8>()], 0..200),
        indirect in vec(any::<u8>(), 0..20),
    ) {
        let layout = OperationLayout::new(columns);
        let _ = read_all(&layout, &rows, &indirect);
        let mut operations = OperationReader::new(&layout, &rows, &indirect);
        while let Ok(Some(_)) = operations.read_row() {}
    }
}
