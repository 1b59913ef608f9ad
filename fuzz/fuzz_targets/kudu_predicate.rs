//! Any message as a predicate on a column of any type: it is decoded or refused; what is decoded is stated again as
//! it is, and tests a column.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oribi_kudu::column::WireColumn;
use oribi_kudu::messages::common;
use oribi_kudu::predicate::ColumnPredicate;
use oribi_types::batch::ColumnBuilder;
use oribi_types::{ColumnType, Value, ValueRef};

const TYPES: [(ColumnType, Value); 8] = [
    (ColumnType::Int8, Value::Int8(1)),
    (ColumnType::Int64, Value::Int64(-1)),
    (ColumnType::Double, Value::Double(0.5)),
    (ColumnType::Decimal { precision: 4, scale: 2 }, Value::Decimal(-9999)),
    (ColumnType::String, Value::String(String::new())),
    (ColumnType::Binary, Value::Binary(Vec::new())),
    (ColumnType::Uuid, Value::Uuid([7; 16])),
    (ColumnType::Timestamp, Value::Timestamp(0)),
];

fuzz_target!(|input: &[u8]| {
    let Some((which, bytes)) = input.split_first() else { return };
    let Ok(mut message) =
        oribi_kudu::decode::<common::ColumnPredicate>(bytes.to_vec().into(), oribi_kudu::STEPS_MAX)
    else {
        return;
    };
    message.column = Some("c".to_owned());
    let (column_type, value) = &TYPES[usize::from(which & 7)];
    let columns = [WireColumn::new("c", *column_type, true)];
    let Ok(predicate) = ColumnPredicate::decode(&columns, &message) else { return };
    let stated = predicate.encode(&columns);
    let again = ColumnPredicate::decode(&columns, &stated).expect("what was stated is decoded");
    // Not the predicates themselves: NaN differs from itself.
    assert_eq!(again.encode(&columns), stated);

    let mut builder = ColumnBuilder::new(*column_type);
    builder.push(ValueRef::Null);
    builder.push(value.as_ref());
    let array = builder.finish(*column_type).expect("a column of two values");
    let passes = predicate.test.evaluate(*column_type, &*array).expect("an array of the column's type");
    assert_eq!(passes.len(), 2);
});
