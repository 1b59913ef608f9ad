//! Column types and their values at random, for property tests.

use oribi_types::{ColumnType, Value};
use proptest::collection::vec;
use proptest::prelude::*;

/// Any type that a column may have.
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

/// A value of the type, not null. Floats may be NaN; dates and timestamps have years that the calendar knows.
pub fn value(column_type: ColumnType) -> BoxedStrategy<Value> {
    match column_type {
        ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ColumnType::Int8 => any::<i8>().prop_map(Value::Int8).boxed(),
        ColumnType::Int16 => any::<i16>().prop_map(Value::Int16).boxed(),
        ColumnType::Int32 => any::<i32>().prop_map(Value::Int32).boxed(),
        ColumnType::Int64 => any::<i64>().prop_map(Value::Int64).boxed(),
        ColumnType::Float => any::<f32>().prop_map(Value::Float).boxed(),
        ColumnType::Double => any::<f64>().prop_map(Value::Double).boxed(),
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
        ColumnType::Date => (-95_000_000..95_000_000).prop_map(Value::Date).boxed(),
        ColumnType::Timestamp => {
            (-8_200_000_000_000_000_000..8_200_000_000_000_000_000_i64).prop_map(Value::Timestamp).boxed()
        }
        ColumnType::Uuid => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        ColumnType::Json => any::<String>()
            .prop_map(|s| Value::Json(serde_json::json!({"s": s, "n": [1.5]}).to_string()))
            .boxed(),
    }
}

/// As [`value`], but equal to itself, as its bytes are: no NaN and no -0.
pub fn comparable_value(column_type: ColumnType) -> BoxedStrategy<Value> {
    value(column_type)
        .prop_filter_map("not a number", |value| match value {
            Value::Float(v) => (!v.is_nan()).then_some(Value::Float(v + 0.0)),
            Value::Double(v) => (!v.is_nan()).then_some(Value::Double(v + 0.0)),
            other => Some(other),
        })
        .boxed()
}
