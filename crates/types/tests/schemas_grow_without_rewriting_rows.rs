//! Adding, dropping and renaming columns, and rows written before.
#![allow(clippy::unwrap_used)]

use oribi_types::key::{encode_key, murmur_hash2_64a};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnSource, ColumnType, ErrorKind, Partitioning, Schema, Value, ValueRef};

fn pairs() -> Schema {
    let columns = vec![ColumnSpec::new("k", ColumnType::Int32), ColumnSpec::new("v", ColumnType::String)];
    Schema::new(columns, &["k"]).unwrap()
}

fn value<'a>(schema: &'a Schema, name: &str, row: &'a [u8]) -> ValueRef<'a> {
    let column = &schema.columns()[schema.position(name).unwrap()];
    let ColumnSource::Slot(slot) = column.source else { panic!("{name} is in the key") };
    schema.slot_value(column, slot, row)
}

fn with_default(name: &str, default: i64) -> ColumnSpec {
    let mut spec = ColumnSpec::new(name, ColumnType::Int64).not_null();
    spec.default = Some(Value::Int64(default));
    spec
}

#[test]
fn an_added_column_answers_its_default_for_rows_that_exist() {
    let old = pairs();
    let (mut key, mut row) = (Vec::new(), Vec::new());
    old.encode(&[ValueRef::Int32(1), ValueRef::String("x")], &mut key, &mut row).unwrap();
    let new = old.with_column(with_default("n", 7)).unwrap();
    assert_eq!(value(&new, "n", &row), ValueRef::Int64(7));
    assert_eq!(value(&new, "v", &row), ValueRef::String("x"));
    new.layout().validate(&row).unwrap();
}

#[test]
fn dropping_and_adding_a_name_brings_nothing_back() {
    let old = pairs();
    let (mut key, mut row) = (Vec::new(), Vec::new());
    old.encode(&[ValueRef::Int32(1), ValueRef::String("old")], &mut key, &mut row).unwrap();
    let dropped = old.without_column("v").unwrap();
    let new = dropped.with_column(ColumnSpec::new("v", ColumnType::String)).unwrap();
    assert_eq!(value(&new, "v", &row), ValueRef::Null);
    assert_ne!(new.columns()[1].id, old.columns()[1].id);
}

#[test]
fn a_renamed_column_keeps_its_values() {
    let old = pairs();
    let (mut key, mut row) = (Vec::new(), Vec::new());
    old.encode(&[ValueRef::Int32(1), ValueRef::String("x")], &mut key, &mut row).unwrap();
    assert_eq!(value(&old.with_renamed("v", "w").unwrap(), "w", &row), ValueRef::String("x"));
}

#[test]
fn what_cannot_be_changed_is_refused() {
    let schema = pairs();
    let kind = |result: oribi_types::Result<Schema>| result.unwrap_err().kind();
    assert_eq!(kind(schema.with_column(with_default("v", 1))), ErrorKind::AlreadyExists);
    assert_eq!(
        kind(schema.with_column(ColumnSpec::new("n", ColumnType::Int8).not_null())),
        ErrorKind::Invalid
    );
    assert_eq!(kind(schema.without_column("k")), ErrorKind::Invalid);
    assert_eq!(kind(schema.without_column("x")), ErrorKind::NotFound);
    assert_eq!(kind(schema.with_renamed("v", "k")), ErrorKind::AlreadyExists);
    assert_eq!(kind(schema.with_renamed("x", "y")), ErrorKind::NotFound);
}

#[test]
fn what_cannot_be_a_table_is_refused() {
    let column = |name: &str, column_type| ColumnSpec::new(name, column_type);
    let mut misfit = column("v", ColumnType::Int8);
    misfit.default = Some(Value::Int64(1));
    let precise = |precision, scale| ColumnType::Decimal { precision, scale };
    for (columns, key) in [
        (vec![column("k", ColumnType::Int8)], vec![]),
        (vec![column("k", ColumnType::Int8)], vec!["x"]),
        (vec![column("k", ColumnType::Int8)], vec!["k", "k"]),
        (vec![column("k", ColumnType::Double)], vec!["k"]),
        (vec![column("k", ColumnType::Json)], vec!["k"]),
        (vec![column("k", ColumnType::Int8), column("k", ColumnType::Int8)], vec!["k"]),
        (vec![column("k", ColumnType::Int8), column("_ts", ColumnType::Int8)], vec!["k"]),
        (vec![column("k", ColumnType::Int8), column("", ColumnType::Int8)], vec!["k"]),
        (vec![column("k", ColumnType::Int8), misfit], vec!["k"]),
        (vec![column("k", precise(39, 0))], vec!["k"]),
        (vec![column("k", precise(0, 0))], vec!["k"]),
        (vec![column("k", precise(5, 6))], vec!["k"]),
        (vec![column("k", precise(5, -1))], vec!["k"]),
    ] {
        assert_eq!(
            Schema::new(columns.clone(), &key).unwrap_err().kind(),
            ErrorKind::Invalid,
            "{columns:?} {key:?}"
        );
    }
}

#[test]
fn null_and_other_types_are_refused_by_name() {
    let schema = pairs();
    let encode = |values: &[ValueRef<'_>]| schema.encode(values, &mut Vec::new(), &mut Vec::new());
    let error = encode(&[ValueRef::Null, ValueRef::Null]).unwrap_err();
    assert!(error.message().contains("\"k\""), "{error}");
    let error = encode(&[ValueRef::Int32(1), ValueRef::Int32(1)]).unwrap_err();
    assert_eq!(error.message(), "value for column \"v\" is not of type text");
}

#[test]
fn hash_partitioning_is_kudus() {
    // MurmurHash2-64A of the reference implementation.
    assert_eq!(murmur_hash2_64a(b"", 0), 0);
    assert_eq!(murmur_hash2_64a(b"hello", 0), 0x1e68_d17c_457b_f117);
    assert_eq!(murmur_hash2_64a(b"hello, world, 16", 0), 0xbf28_339e_e199_1b90);
}

#[test]
fn a_key_belongs_to_one_tablet_whatever_else_it_holds() {
    let columns = vec![
        ColumnSpec::new("a", ColumnType::String),
        ColumnSpec::new("b", ColumnType::Int64),
        ColumnSpec::new("c", ColumnType::Binary),
    ];
    let schema = Schema::new(columns, &["a", "b", "c"]).unwrap();
    let by_a = Partitioning::hash(vec![0], 8);
    let tablet = |a: &str, b: i64, c: &[u8]| {
        let mut key = Vec::new();
        encode_key(&schema, [ValueRef::String(a), ValueRef::Int64(b), ValueRef::Binary(c)], &mut key)
            .unwrap();
        by_a.tablet_of(&schema, &key).unwrap()
    };
    let mut seen = std::collections::HashSet::new();
    for i in 0..64 {
        let a = format!("key\0{i}");
        assert_eq!(tablet(&a, 1, b""), tablet(&a, -5, b"\0\0x"));
        assert!(tablet(&a, 1, b"") < 8);
        seen.insert(tablet(&a, 1, b""));
    }
    assert_eq!(seen.len(), 8, "64 keys reach each of 8 tablets");
    assert_eq!(by_a.tablet_of(&schema, b"damaged"), Some(0));
}
