//! Random tables and rows through every encoding: text, JSON, key and row bytes, Arrow batches.
#![allow(clippy::unwrap_used)]

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use oribi_testing::values::{column_type, value};
use oribi_types::batch::{BatchBuilder, EncodedRow, encode_keys, encode_row_at, value_at};
use oribi_types::calendar::{FIRST_DAY, LAST_DAY, MICROS_PER_DAY};
use oribi_types::key::{decode_key, encode_key};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnSource, ColumnType, RowRef, Schema, Timestamp, Value, ValueRef, json, text};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::ops::Range;

/// A table and a row of it.
fn table_and_row() -> impl Strategy<Value = (Schema, Vec<Value>)> {
    table_and_rows(1..2).prop_map(|(schema, mut rows)| (schema, rows.remove(0)))
}

/// A table and rows of it: one to three key columns, some before and some behind the other columns.
fn table_and_rows(count: Range<usize>) -> impl Strategy<Value = (Schema, Vec<Vec<Value>>)> {
    let key = vec(column_type().prop_filter("a key type", |t| t.is_key_type()), 1..4);
    (key, vec(column_type(), 0..20), any::<prop::sample::Index>()).prop_flat_map(move |(key, others, at)| {
        let at = at.index(others.len() + 1);
        let others = others.iter().map(|t| (*t, false));
        let mut columns: Vec<(ColumnType, bool)> = others.collect();
        columns.splice(at..at, key.iter().map(|t| (*t, true)));
        let values: Vec<BoxedStrategy<Value>> = columns
            .iter()
            .map(|&(column_type, is_key)| {
                if is_key {
                    return value(column_type);
                }
                prop_oneof![1 => Just(Value::Null), 4 => value(column_type)].boxed()
            })
            .collect();
        let names: Vec<String> = (0..columns.len()).map(|i| format!("c\"{i}")).collect();
        let specs = columns.iter().zip(&names).map(|((t, _), name)| ColumnSpec::new(name, *t)).collect();
        // Key columns in the opposite order of the table's.
        let key =
            columns.iter().zip(&names).filter(|((_, is_key), _)| *is_key).map(|(_, name)| name.as_str());
        let key: Vec<&str> = key.rev().collect();
        (Just(Schema::new(specs, &key).unwrap()), vec(values, count.clone()))
    })
}

/// The value, or the next that PostgreSQL's calendar has: a text of another day is written, and refused when it is read.
fn in_calendar(value: Value) -> Value {
    match value {
        Value::Date(days) if days != i32::MIN && days != i32::MAX => {
            Value::Date(i64::from(days).clamp(FIRST_DAY, LAST_DAY) as i32)
        }
        Value::Timestamp(micros) if micros != i64::MIN => {
            Value::Timestamp(micros.max(FIRST_DAY * MICROS_PER_DAY))
        }
        other => other,
    }
}

fn refs(values: &[Value]) -> Vec<ValueRef<'_>> {
    values.iter().map(Value::as_ref).collect()
}

fn encoded(schema: &Schema, values: &[Value]) -> (Vec<u8>, Vec<u8>) {
    let (mut key, mut row) = (Vec::new(), Vec::new());
    schema.encode(&refs(values), &mut key, &mut row).unwrap();
    (key, row)
}

proptest! {
    #[test]
    fn text((column_type, value) in column_type().prop_flat_map(|t| (Just(t), value(t).prop_map(in_calendar)))) {
        let written = text::to_string(value.as_ref(), column_type);
        prop_assert_eq!(text::parse(column_type, &written).unwrap(), value, "{}", written);
    }

    #[test]
    fn no_text_panics(column_type in column_type(), text in any::<String>()) {
        let _ = text::parse(column_type, &text);
    }

    #[test]
    fn no_number_like_text_panics(column_type in column_type(), text in "[-+.:eE0-9 TZ]{0,40}") {
        let _ = text::parse(column_type, &text);
    }

    #[test]
    fn every_day_and_moment_is_written(days in any::<i32>(), micros in any::<i64>()) {
        text::to_string(ValueRef::Date(days), ColumnType::Date);
        text::to_string(ValueRef::Timestamp(micros), ColumnType::Timestamp);
    }

    #[test]
    fn json_object((schema, values) in table_and_row()) {
        let values: Vec<Value> = values.into_iter().map(in_calendar).collect();
        let (key, row) = encoded(&schema, &values);
        let mut written = Vec::new();
        json::write_row(&schema, &key, &row, Timestamp::MIN, &mut written).unwrap();
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&written).is_ok());
        prop_assert_eq!(json::read_row(&schema, &written).unwrap(), values);
    }

    #[test]
    fn no_json_panics(bytes in vec(any::<u8>(), 0..64), text in "[\\[\\]{}:,\"a-c0-9\\\\]{0,40}") {
        let schema = Schema::key_value();
        let _ = json::read_row(&schema, &bytes);
        let _ = json::read_row(&schema, text.as_bytes());
    }

    #[test]
    fn key_and_row((schema, values) in table_and_row()) {
        let (key, row) = encoded(&schema, &values);
        let components = decode_key(&schema, &key).unwrap();
        schema.layout().validate(&row).unwrap();
        let row = RowRef::new(schema.layout(), &row);
        for (column, value) in schema.columns().iter().zip(&values) {
            match column.source {
                ColumnSource::Key(i) => prop_assert_eq!(&components[usize::from(i)], value),
                ColumnSource::Slot(i) => prop_assert_eq!(row.get(usize::from(i)).unwrap(), value.as_ref()),
                ColumnSource::CommitTimestamp => {}
            }
        }
    }

    #[test]
    fn damaged_keys_and_rows_never_panic((schema, values) in table_and_row(), cut in 0_usize..64, flip in 0_usize..512) {
        let (mut key, mut row) = encoded(&schema, &values);
        key.truncate(key.len().saturating_sub(cut % 5));
        if let Some(byte) = key.get_mut(flip / 8) {
            *byte ^= 1 << (flip % 8);
        }
        let _ = decode_key(&schema, &key);
        row.truncate(row.len().saturating_sub(cut % 3));
        if let Some(byte) = row.get_mut(flip / 8) {
            *byte ^= 1 << (flip % 8);
        }
        if schema.layout().validate(&row).is_ok() {
            let row = RowRef::new(schema.layout(), &row);
            for slot in 0..schema.layout().slots().len() {
                let _ = row.get(slot);
            }
        }
    }

    #[test]
    fn arrow_batch((schema, values) in table_and_row()) {
        let (key, row) = encoded(&schema, &values);
        let all: Vec<usize> = (0..schema.columns().len()).collect();
        let mut builder = BatchBuilder::new(&schema, &all, true);
        builder.push(&key, &row, Timestamp(5)).unwrap();
        builder.push(&key, &row, Timestamp(6)).unwrap();
        let batch = builder.finish().unwrap();
        prop_assert_eq!(batch.num_rows(), 2);
        for (i, column) in schema.columns().iter().enumerate() {
            prop_assert_eq!(value_at(batch.column(i), column.column_type, 1).to_owned(), values[i].clone());
        }
        let keys = encode_keys(&schema, &batch).unwrap();
        prop_assert_eq!(keys.get(1), &key[..]);
        let (mut key_again, mut row_again) = (Vec::new(), Vec::new());
        encode_row_at(&schema, &batch, 0, &mut key_again, &mut row_again).unwrap();
        prop_assert_eq!((key_again, row_again), (key, row));
    }

    #[test]
    fn projected_batch((schema, values) in table_and_row(), pick in any::<prop::sample::Index>()) {
        let (key, row) = encoded(&schema, &values);
        let i = pick.index(values.len());
        let mut builder = BatchBuilder::new(&schema, &[i], false);
        builder.push(&key, &row, Timestamp(5)).unwrap();
        let batch = builder.finish().unwrap();
        prop_assert_eq!(batch.num_columns(), 1);
        prop_assert_eq!(value_at(batch.column(0), schema.columns()[i].column_type, 0).to_owned(), values[i].clone());
    }

    /// Rows at once and one by one, of which some are older than a column, for any columns in any order.
    #[test]
    fn batch_of_many_rows(
        (schema, mut rows) in table_and_rows(0..9),
        (later, default, since) in column_type().prop_flat_map(|t| (Just(t), option::of(value(t)), value(t))),
        (old, projection) in (any::<prop::sample::Index>(), vec(any::<prop::sample::Index>(), 0..6)),
    ) {
        let missing = default.clone().unwrap_or(Value::Null);
        let newer = schema.with_column(ColumnSpec { default, ..ColumnSpec::new("later", later) }).unwrap();
        let old = old.index(rows.len() + 1);
        let stored: Vec<(Vec<u8>, Vec<u8>)> = (0..).zip(&mut rows).map(|(i, values)| {
            let before = encoded(&schema, values);
            values.push(if i < old { missing.clone() } else { since.clone() });
            if i < old { before } else { encoded(&newer, values) }
        }).collect();
        let stored: Vec<EncodedRow<'_>> =
            (1..).zip(&stored).map(|(ts, (key, row))| EncodedRow { key, row, ts: Timestamp(ts) }).collect();
        let projection: Vec<usize> = projection.iter().map(|pick| pick.index(newer.columns().len())).collect();
        let mut at_once = BatchBuilder::new(&newer, &projection, true);
        at_once.extend(&stored).unwrap();
        let mut one_by_one = BatchBuilder::new(&newer, &projection, true);
        stored.iter().for_each(|row| one_by_one.push(row.key, row.row, row.ts).unwrap());
        let batch = at_once.finish().unwrap();
        prop_assert_eq!(&batch, &one_by_one.finish().unwrap());
        prop_assert_eq!(batch.num_rows(), rows.len());
        for (i, values) in rows.iter().enumerate() {
            for (n, position) in projection.iter().enumerate() {
                let found = value_at(batch.column(n), newer.columns()[*position].column_type, i).to_owned();
                prop_assert_eq!(&found, &values[*position]);
            }
            prop_assert_eq!(batch.column(projection.len()).as_primitive::<UInt64Type>().value(i), 1 + i as u64);
        }
    }

    #[test]
    fn schema_as_json((schema, values) in table_and_row()) {
        let stored = serde_json::to_string(&schema).unwrap();
        let read: Schema = serde_json::from_str(&stored).unwrap();
        prop_assert_eq!(read.columns(), schema.columns());
        prop_assert_eq!(read.arrow(), schema.arrow());
        prop_assert_eq!(encoded(&read, &values), encoded(&schema, &values));
    }

    #[test]
    fn keys_sort_like_their_values(
        (schema, a, b) in vec(column_type().prop_filter("a key type", |t| t.is_key_type()), 1..4).prop_flat_map(|types| {
            let names: Vec<String> = (0..types.len()).map(|i| format!("k{i}")).collect();
            let specs = types.iter().zip(&names).map(|(t, name)| ColumnSpec::new(name, *t)).collect();
            let key: Vec<&str> = names.iter().map(String::as_str).collect();
            let schema = Schema::new(specs, &key).unwrap();
            let row = types.iter().map(|t| value(*t)).collect::<Vec<_>>();
            (Just(schema), row.clone(), row)
        }),
        shared in 0_usize..3,
    ) {
        // Keys that share their first components are where an encoding of one component leaks into the next.
        let b: Vec<Value> = a.iter().take(shared).chain(b.iter().skip(shared)).cloned().collect();
        let encode = |values: &[Value]| {
            let mut key = Vec::new();
            encode_key(&schema, refs(values), &mut key).unwrap();
            key
        };
        let by_value = a.iter().zip(&b).map(|(a, b)| order(a, b)).find(|o| o.is_ne()).unwrap_or(std::cmp::Ordering::Equal);
        prop_assert_eq!(encode(&a).cmp(&encode(&b)), by_value);
    }
}

fn order(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int8(a), Value::Int8(b)) => a.cmp(b),
        (Value::Int16(a), Value::Int16(b)) => a.cmp(b),
        (Value::Int32(a), Value::Int32(b)) | (Value::Date(a), Value::Date(b)) => a.cmp(b),
        (Value::Int64(a), Value::Int64(b)) | (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Decimal(a), Value::Decimal(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Binary(a), Value::Binary(b)) => a.cmp(b),
        (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
        _ => unreachable!("values of one key column"),
    }
}
