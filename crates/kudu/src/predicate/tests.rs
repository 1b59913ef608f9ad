//! Predicates over columns, and what foreign bytes make of them.

use super::*;
use crate::testing::{column_type, value};
use arrow::array::{Array, ArrayRef};
use oribi_types::batch::ColumnBuilder;
use proptest::collection::vec;
use proptest::prelude::*;

fn array(column_type: ColumnType, values: &[Value]) -> ArrayRef {
    let mut builder = ColumnBuilder::new(column_type);
    values.iter().for_each(|value| builder.push(value.as_ref()));
    builder.finish(column_type).unwrap()
}

fn passing(test: &Test, column_type: ColumnType, values: &[Value]) -> Vec<bool> {
    let passes = test.evaluate(column_type, &array(column_type, values)).unwrap();
    assert_eq!(passes.null_count(), 0);
    passes.values().iter().collect()
}

fn decode(column_type: ColumnType, predicate: Predicate) -> Result<Test> {
    let columns = [WireColumn::new("a", ColumnType::Bool, true), WireColumn::new("c", column_type, true)];
    let message = Message { column: Some("c".into()), predicate: Some(predicate) };
    let predicate = ColumnPredicate::decode(&columns, &message)?;
    assert_eq!(predicate.column, 1);
    let again = ColumnPredicate::decode(&columns, &predicate.encode(&columns)).unwrap();
    assert_eq!(again, predicate);
    Ok(predicate.test)
}

fn range_of(column_type: ColumnType, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<Test> {
    let bytes = |bound: Option<&[u8]>| bound.map(Bytes::copy_from_slice);
    decode(column_type, Predicate::Range(Range { lower: bytes(lower), upper: bytes(upper) }))
}

fn equality(column_type: ColumnType, value: &[u8]) -> Result<Test> {
    decode(column_type, Predicate::Equality(Equality { value: Some(Bytes::copy_from_slice(value)) }))
}

#[test]
fn each_kind_passes_what_it_should() {
    let values = [Value::Int32(1), Value::Null, Value::Int32(3), Value::Int32(-1)];
    let check =
        |test: Test, expected: [bool; 4]| assert_eq!(passing(&test, ColumnType::Int32, &values), expected);
    let cell = |v: i32| v.to_le_bytes();
    let int = ColumnType::Int32;
    check(range_of(int, Some(&cell(1)), Some(&cell(3))).unwrap(), [true, false, false, false]);
    check(range_of(int, Some(&cell(1)), None).unwrap(), [true, false, true, false]);
    check(range_of(int, None, Some(&cell(3))).unwrap(), [true, false, false, true]);
    check(equality(int, &cell(3)).unwrap(), [false, false, true, false]);
    check(decode(int, Predicate::IsNull(IsNull {})).unwrap(), [false, true, false, false]);
    check(decode(int, Predicate::IsNotNull(IsNotNull {})).unwrap(), [true, false, true, true]);
    let list = |values: &[i32]| {
        let values = values.iter().map(|v| Bytes::copy_from_slice(&cell(*v))).collect();
        decode(int, Predicate::InList(InList { values })).unwrap()
    };
    check(list(&[3, -1, 7, 3]), [false, false, true, true]);
    assert_eq!(list(&[]), Test::Nothing);
    check(list(&[]), [false; 4]);
    let mut filter = BloomFilterBuilder::new(2, 0.001, 9);
    filter.add(int, ValueRef::Int32(1));
    filter.add(int, ValueRef::Int32(3));
    let in_filter = Predicate::InBloomFilter(InBloomFilter {
        bloom_filters: vec![filter.build().encode()],
        lower: Some(Bytes::copy_from_slice(&cell(2))),
        upper: None,
    });
    check(decode(int, in_filter).unwrap(), [false, false, true, false]);
}

#[test]
fn bounds_tell_where_values_lie() {
    let int = ColumnType::Int8;
    let one = Value::Int8(1);
    assert_eq!(equality(int, &[1]).unwrap().bounds(), (Bound::Included(&one), Bound::Included(&one)));
    let upper = range_of(int, None, Some(&[1])).unwrap();
    assert_eq!(upper.bounds(), (Bound::Unbounded, Bound::Excluded(&one)));
    let values = [2_u8, 1, 0xff].map(|v| Bytes::copy_from_slice(&[v])).to_vec();
    let list = decode(int, Predicate::InList(InList { values })).unwrap();
    assert_eq!(list.bounds(), (Bound::Included(&Value::Int8(-1)), Bound::Included(&Value::Int8(2))));
    assert_eq!(Test::IsNull.bounds(), (Bound::Unbounded, Bound::Unbounded));
}

#[test]
fn a_bound_may_be_one_that_no_value_equals() {
    // `<= 99` arrives as `< 100`.
    let numeric = ColumnType::Decimal { precision: 2, scale: 0 };
    let test = range_of(numeric, None, Some(&100_i32.to_le_bytes())).unwrap();
    assert_eq!(passing(&test, numeric, &[Value::Decimal(99), Value::Null]), [true, false]);
    assert_eq!(range_of(numeric, Some(&[0; 3]), None).unwrap_err().kind(), oribi_types::ErrorKind::Invalid);
    // `<= uuid` arrives with a zero behind it.
    let uuid = [7; 16];
    let above = range_of(ColumnType::Uuid, None, Some(&[&uuid[..], &[0]].concat())).unwrap();
    let below = range_of(ColumnType::Uuid, None, Some(&uuid)).unwrap();
    let prefix = range_of(ColumnType::Uuid, Some(&[7]), Some(&[8])).unwrap();
    let values = [Value::Uuid(uuid), Value::Uuid([6; 16])];
    assert_eq!(passing(&above, ColumnType::Uuid, &values), [true, true]);
    assert_eq!(passing(&below, ColumnType::Uuid, &values), [false, true]);
    assert_eq!(passing(&prefix, ColumnType::Uuid, &values), [true, false]);
    let last = [&[0xff; 16][..], &[0]].concat();
    assert_eq!(range_of(ColumnType::Uuid, Some(&last), None).unwrap(), Test::Nothing);
    assert_eq!(range_of(ColumnType::Uuid, None, Some(&last)).unwrap(), Test::IsNotNull);
    assert_eq!(equality(ColumnType::Uuid, b"short").unwrap(), Test::Nothing);
    assert_eq!(equality(ColumnType::String, b"\xff").unwrap(), Test::Nothing);
}

#[test]
fn floats_are_compared_as_numbers() {
    let values = [0.0, -0.0, f64::NAN, 1.0].map(Value::Double);
    let double = ColumnType::Double;
    let zero = equality(double, &0_f64.to_le_bytes()).unwrap();
    assert_eq!(passing(&zero, double, &values), [true, true, false, false]);
    let from_zero = range_of(double, Some(&0_f64.to_le_bytes()), None).unwrap();
    assert_eq!(passing(&from_zero, double, &values), [true, true, false, true]);
    let listed = [f64::NAN, -0.0].map(|v| Bytes::copy_from_slice(&v.to_le_bytes())).to_vec();
    let list = decode(double, Predicate::InList(InList { values: listed })).unwrap();
    assert_eq!(passing(&list, double, &values), [true, true, false, false]);
}

#[test]
fn a_range_that_holds_nothing_is_told() {
    assert_eq!(range_of(ColumnType::Int8, Some(&[5]), Some(&[5])).unwrap(), Test::Nothing);
    assert_eq!(range_of(ColumnType::Int8, Some(&[5]), Some(&[4])).unwrap(), Test::Nothing);
}

#[test]
fn a_predicate_that_says_nothing_is_refused() {
    let int = ColumnType::Int8;
    assert!(range_of(int, None, None).is_err());
    assert!(decode(int, Predicate::Equality(Equality { value: None })).is_err());
    assert!(decode(int, Predicate::InBloomFilter(InBloomFilter::default())).is_err());
    let columns = [WireColumn::new("c", int, true)];
    let decode = |column: Option<&str>, predicate| {
        ColumnPredicate::decode(&columns, &Message { column: column.map(Into::into), predicate })
    };
    assert!(decode(Some("c"), None).is_err());
    assert!(decode(None, Some(Predicate::IsNull(IsNull {}))).is_err());
    let unknown = decode(Some("d"), Some(Predicate::IsNull(IsNull {}))).unwrap_err();
    assert_eq!(unknown.message(), "a predicate on column \"d\", which does not exist");
    let wide = Predicate::Equality(Equality { value: Some(Bytes::from_static(b"12")) });
    let error = decode(Some("c"), Some(wide)).unwrap_err();
    assert_eq!(error.message(), "predicate on column \"c\": 2 bytes instead of 1");
}

#[test]
fn an_array_of_another_type_is_refused() {
    assert!(Test::IsNull.evaluate(ColumnType::Int8, &array(ColumnType::Int16, &[])).is_err());
}

proptest! {
    /// What the kernels answer is what comparing one by one does, and bounds leave out nothing that passes.
    #[test]
    fn a_column_is_tested_as_its_values_are(
        (column_type, values, a, b) in column_type().prop_flat_map(|t| {
            let values = vec(prop_oneof![4 => value(t), 1 => Just(Value::Null)], 0..20);
            (Just(t), values, value(t), value(t))
        })
    ) {
        let ordered = compare(a.as_ref(), b.as_ref()) == Some(Ordering::Less);
        let (lower, upper) = if ordered { (a, b) } else { (b, a) };
        let mut values = values;
        values.extend([lower.clone(), upper.clone()]);
        let range = ValueRange { lower: Some(lower.clone()), upper: Some(upper.clone()) };
        let mut builder = BloomFilterBuilder::new(2, 0.1, 1);
        builder.add(column_type, lower.as_ref());
        let tests = [
            Test::Equality(lower.clone()),
            Test::InList(vec![lower.clone()]),
            Test::Range(range.clone()),
            Test::Range(ValueRange { lower: Some(lower.clone()), upper: None }),
            Test::InBloomFilter(vec![builder.build()], ValueRange::default()),
        ];
        for test in &tests {
            let passes = passing(test, column_type, &values);
            for (value, passes) in values.iter().zip(passes) {
                let is_lower = compare(value.as_ref(), lower.as_ref()) == Some(Ordering::Equal);
                match test {
                    Test::Equality(_) | Test::InList(_) => prop_assert_eq!(passes, is_lower),
                    Test::Range(range) => {
                        prop_assert_eq!(passes, !value.is_null() && range.contains(value.as_ref()));
                    }
                    _ => prop_assert!(passes || *value != lower),
                }
                let (from, to) = test.bounds();
                let bounded = ValueRange {
                    lower: match from { Bound::Included(v) => Some(v.clone()), _ => None },
                    upper: match to { Bound::Excluded(v) => Some(v.clone()), _ => None },
                };
                prop_assert!(!passes || bounded.contains(value.as_ref()));
            }
        }
    }

    #[test]
    fn any_bytes_are_a_predicate_or_refused(
        column_type in column_type(),
        kind in 0..4,
        a in vec(any::<u8>(), 0..20),
        b in vec(any::<u8>(), 0..20),
        log_space_bytes in any::<i32>(),
    ) {
        let (a, b) = (Bytes::from(a), Bytes::from(b));
        let predicate = match kind {
            0 => Predicate::Equality(Equality { value: Some(a) }),
            1 => Predicate::InList(InList { values: vec![a, b] }),
            2 => Predicate::Range(Range { lower: Some(a), upper: Some(b) }),
            _ => Predicate::InBloomFilter(InBloomFilter {
                bloom_filters: vec![crate::messages::common::BlockBloomFilter {
                    log_space_bytes: Some(log_space_bytes),
                    bloom_data: Some(a),
                    ..Default::default()
                }],
                lower: Some(b),
                upper: None,
            }),
        };
        if let Ok(test) = decode(column_type, predicate) {
            passing(&test, column_type, &[Value::Null]);
        }
    }
}
