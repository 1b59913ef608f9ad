//! Random tables and values, for the tests of this crate.

use crate::column::WireColumn;
pub use oribi_testing::values::{column_type, comparable_value as value};
use oribi_types::{ColumnType, Value};
use proptest::collection::vec;
use proptest::prelude::*;

pub fn key_type() -> impl Strategy<Value = ColumnType> {
    column_type()
        .prop_filter("not in a key", |t| crate::column::DataType::of(*t).0.is_key_type() && t.is_key_type())
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
