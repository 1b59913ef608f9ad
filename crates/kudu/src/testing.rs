//! Random tables and values, for the tests of this crate.

use crate::column::WireColumn;
use oribi_types::{ColumnType, Value};
use proptest::collection::vec;
use proptest::prelude::*;

pub fn column_type() -> impl Strategy<Value = ColumnType> {
    let decimal = (1_u8..=38)
        .prop_flat_map(|precision| (Just(precision), 0..=precision as i8))
        .prop_map(|(precision, scale)| ColumnType::Decimal { precision, scale });
    prop_oneof![
        Just(ColumnType::Bool),
        Just(ColumnType::Int8),
        Just(ColumnType::Int16),
        Just(ColumnType::Int32),
        Just(ColumnType::Int64),
        Just(ColumnType::Float),
        Just(ColumnType::Double),
        decimal,
        Just(ColumnType::String),
        Just(ColumnType::Binary),
        Just(ColumnType::Date),
        Just(ColumnType::Timestamp),
        Just(ColumnType::Uuid),
        Just(ColumnType::Json),
    ]
}

pub fn key_type() -> impl Strategy<Value = ColumnType> {
    column_type()
        .prop_filter("not in a key", |t| crate::column::DataType::of(*t).0.is_key_type() && t.is_key_type())
}

/// A value that is not null, and equal to itself (no NaN), as its bytes are (no -0).
pub fn value(column_type: ColumnType) -> BoxedStrategy<Value> {
    match column_type {
        ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ColumnType::Int8 => any::<i8>().prop_map(Value::Int8).boxed(),
        ColumnType::Int16 => any::<i16>().prop_map(Value::Int16).boxed(),
        ColumnType::Int32 => any::<i32>().prop_map(Value::Int32).boxed(),
        ColumnType::Int64 => any::<i64>().prop_map(Value::Int64).boxed(),
        ColumnType::Float => any::<f32>()
            .prop_filter("nan", |v| !v.is_nan())
            .prop_map(|v| v + 0.0)
            .prop_map(Value::Float)
            .boxed(),
        ColumnType::Double => any::<f64>()
            .prop_filter("nan", |v| !v.is_nan())
            .prop_map(|v| v + 0.0)
            .prop_map(Value::Double)
            .boxed(),
        ColumnType::Decimal { precision, .. } => {
            let end = 10_i128.pow(u32::from(precision));
            (1 - end..end).prop_map(Value::Decimal).boxed()
        }
        ColumnType::String => any::<String>().prop_map(Value::String).boxed(),
        // Zeros and ones are what the escaping of key components turns on.
        ColumnType::Binary => {
            let byte = prop_oneof![3 => 0_u8..3, 1 => any::<u8>()];
            vec(byte, 0..20).prop_map(Value::Binary).boxed()
        }
        ColumnType::Date => any::<i32>().prop_map(Value::Date).boxed(),
        ColumnType::Timestamp => any::<i64>().prop_map(Value::Timestamp).boxed(),
        ColumnType::Uuid => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        ColumnType::Json => any::<u32>().prop_map(|n| Value::Json(format!("[{n}]"))).boxed(),
    }
}

pub fn value_or_null(column: &WireColumn) -> BoxedStrategy<Value> {
    if column.nullable {
        prop_oneof![1 => Just(Value::Null), 3 => value(column.column_type)].boxed()
    } else {
        value(column.column_type)
    }
}

/// Up to 19 columns, so that bitmaps of one, two and three bytes come up.
pub fn columns() -> impl Strategy<Value = Vec<WireColumn>> {
    vec((column_type(), any::<bool>()), 1..20).prop_map(|types| {
        let column = |(i, (column_type, nullable))| WireColumn::new(format!("c{i}"), column_type, nullable);
        types.into_iter().enumerate().map(column).collect()
    })
}

/// Columns, and rows of a value or null for each.
pub fn rows() -> impl Strategy<Value = (Vec<WireColumn>, Vec<Vec<Value>>)> {
    columns().prop_flat_map(|columns| {
        let row: Vec<_> = columns.iter().map(value_or_null).collect();
        (Just(columns), vec(row, 0..12))
    })
}
