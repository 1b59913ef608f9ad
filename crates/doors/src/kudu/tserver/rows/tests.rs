use super::super::testing::Fixture;
use super::*;
use crate::kudu::schema;
use bytes::Bytes;
use oribi_kudu::row_operations::{OperationLayout, OperationsBuilder, PartialRow as _};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, Partitioning, Schema, TableDefinition, TableOptions};
use proptest::prelude::*;
use prost::Message as _;
use std::sync::Arc;

fn plan() -> (Fixture, RowPlan) {
    let fixture = Fixture::new();
    let columns = vec![
        ColumnSpec::new("s", ColumnType::String).not_null(),
        ColumnSpec::new("k", ColumnType::Int64).not_null(),
        ColumnSpec::new("d", ColumnType::Decimal { precision: 5, scale: 1 }),
        ColumnSpec::new("b", ColumnType::Bool).not_null(),
        ColumnSpec::new("t", ColumnType::String),
        ColumnSpec::new("u", ColumnType::Uuid),
        ColumnSpec::new("x", ColumnType::Double).not_null(),
    ];
    let definition = TableDefinition {
        schema_name: "public".into(),
        name: "wide".into(),
        schema: Schema::new(columns, &["s", "k"]).unwrap(),
        partitioning: Partitioning::none(),
        options: TableOptions {
            durability: Durability::Periodic(100),
            ttl_ms: None,
            expires_at: None,
            attributes: Default::default(),
        },
    };
    let engine = fixture.node().engine.clone();
    engine.create_table(definition).unwrap();
    let table = engine.table("public", "wide").unwrap();
    let request = Bytes::from(schema::to_message(table.schema_ref()).encode_to_vec());
    let plan = RowPlan::new(table, &request).unwrap();
    (fixture, plan)
}

/// An operation: its type, a string, a number, and which columns it leaves out or sets to null.
type Row = (u8, String, i64, u8, u8);

fn row() -> impl Strategy<Value = Row> {
    // Mostly whole rows.
    let few = prop_oneof![4 => Just(0_u8), 1 => any::<u8>()];
    (0_u8..8, "[a-z]{0,9}|é{1,3}", any::<i64>(), few.clone(), few)
}

fn request(plan: &RowPlan, rows: &[Row]) -> (Vec<u8>, Vec<u8>) {
    use OperationType as Type;
    let types = [
        Type::Insert,
        Type::Upsert,
        Type::Insert,
        Type::InsertIgnore,
        Type::UpsertIgnore,
        Type::Upsert,
        Type::Update,
        Type::Delete,
    ];
    let mut builder = OperationsBuilder::new(Arc::new(plan.layout.clone()));
    for (operation_type, text, number, absent, null) in rows {
        let mut writer = builder.begin(types[*operation_type as usize]);
        let uuid = u128::from(number.unsigned_abs()).to_le_bytes();
        let values = [
            ValueRef::String(text),
            ValueRef::Int64(*number),
            ValueRef::Decimal(i128::from(*number) % 99_999),
            ValueRef::Bool(number % 2 == 0),
            ValueRef::String(text),
            ValueRef::Uuid(uuid),
            ValueRef::Double(*number as f64),
        ];
        for (i, value) in values.into_iter().enumerate() {
            let (is_absent, is_null) = (absent >> i & 1 == 1, null >> i & 1 == 1);
            match is_null && plan.layout.columns()[i].nullable {
                _ if is_absent => {}
                true => writer.set(i, ValueRef::Null).unwrap(),
                false => writer.set(i, value).unwrap(),
            }
        }
        writer.finish();
    }
    builder.into_parts()
}

/// Keys, rows, what changes, and what is refused, or why all of it is.
fn read(plan: &RowPlan, rows: &[u8], indirect: &[u8]) -> std::result::Result<String, String> {
    let read = Rows::read(plan, rows, indirect, 1 << 20).map_err(|error| error.to_string())?;
    let operation = |(i, operation): (usize, &Operation)| {
        let values = match operation.change {
            Change::Whole => "whole".into(),
            Change::Delete => "delete".into(),
            Change::Some(at) => format!("{:?}", read.values(plan, at)),
        };
        let (key, row) = (read.encoded.key(i), read.encoded.row(i));
        format!("{} {:?} {values} {key:?} {row:?}", operation.index, operation.operation_type)
    };
    let operations: Vec<String> = read.operations.iter().enumerate().map(operation).collect();
    let refused: Vec<String> = read.refused.iter().map(|(i, error)| format!("{i} {error}")).collect();
    Ok(format!("{operations:?} {refused:?}"))
}

#[test]
fn rows_that_go_straight_from_their_cells_are_those_that_are_read_value_by_value() {
    let (_fixture, straight) = plan();
    let (_other, mut by_value) = plan();
    assert!(straight.takes_whole);
    by_value.takes_whole = false;
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let requests = (prop::collection::vec(row(), 0..6), damage);
    proptest!(|((rows, damage) in requests)| {
        let (mut rows, indirect) = request(&straight, &rows);
        for (at, byte) in damage {
            if !rows.is_empty() {
                let at = at.index(rows.len());
                rows[at] = byte;
            }
        }
        prop_assert_eq!(read(&straight, &rows, &indirect), read(&by_value, &rows, &indirect));
    });
}

#[test]
fn a_decimal_of_too_many_digits_is_refused_on_the_straight_path() {
    let (_fixture, plan) = plan();
    assert!(plan.takes_whole);
    // A client whose column has the same width, and more digits.
    let mut columns = plan.layout.columns().to_vec();
    columns[2].column_type = ColumnType::Decimal { precision: 9, scale: 1 };
    let mut builder = OperationsBuilder::new(Arc::new(OperationLayout::new(columns)));
    for unscaled in [99_999, -99_999, 100_000, -100_000] {
        let mut row = builder.begin(OperationType::Upsert);
        let values =
            [ValueRef::String("a"), ValueRef::Int64(1), ValueRef::Decimal(unscaled), ValueRef::Bool(true)];
        let rest = [ValueRef::String("b"), ValueRef::Uuid([0; 16]), ValueRef::Double(0.5)];
        for (i, value) in values.into_iter().chain(rest).enumerate() {
            row.set(i, value).unwrap();
        }
        row.finish();
    }
    let (rows, indirect) = builder.into_parts();
    let read = Rows::read(&plan, &rows, &indirect, 1 << 20).unwrap();
    let refused: Vec<usize> = read.refused.iter().map(|(i, _)| *i).collect();
    assert_eq!((read.operations.len(), refused), (2, vec![2, 3]));
}
