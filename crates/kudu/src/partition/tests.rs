//! Buckets and tablets against what Kudu's clients compute, and ranges against what may be said of them.

use super::*;
use crate::row_operations::decode::OperationReader;
use crate::row_operations::encode::OperationsBuilder;
use crate::row_operations::{OperationLayout, OperationType};
use oribi_types::Value;
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

fn key(types: &[ColumnType]) -> Vec<WireColumn> {
    types.iter().enumerate().map(|(i, t)| WireColumn::new(format!("k{i}"), *t, false)).collect()
}

fn schema(types: &[ColumnType], hash: Vec<HashDimension>, range: Vec<usize>) -> PartitionSchema {
    PartitionSchema::new(&key(types), hash, range, vec![]).unwrap()
}

fn dimension(columns: &[usize], buckets: u32) -> HashDimension {
    HashDimension::new(columns.to_vec(), buckets, 0)
}

fn key_of(schema: &PartitionSchema, values: &[ValueRef<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    schema.partition_key(values, &mut out).unwrap();
    out
}

/// The ranges that bounds make of the columns 0… of `types`.
fn ranges(types: &[ColumnType], bounds: &[(OperationType, &[Option<Value>])]) -> Result<Vec<Range>> {
    let layout = Arc::new(OperationLayout::new(key(types)));
    let mut builder = OperationsBuilder::new(layout);
    for (operation_type, values) in bounds {
        let mut writer = builder.begin(*operation_type);
        for (i, value) in values.iter().enumerate() {
            if let Some(value) = value {
                writer.set(i, value.as_ref()).unwrap();
            }
        }
        writer.finish();
    }
    let schema = schema(types, vec![], (0..types.len()).collect());
    schema.range_keys().ranges(&mut OperationReader::new(
        builder.layout(),
        builder.rows(),
        builder.indirect(),
    ))
}

#[test]
fn buckets_are_those_that_kudus_client_computes() {
    let schema = schema(&[ColumnType::Int64], vec![dimension(&[0], 8)], vec![]);
    let bucket = |v| schema.bucket(&schema.hash()[0], &[ValueRef::Int64(v)], &mut Vec::new()).unwrap();
    let buckets: Vec<u32> = (0..15).map(bucket).collect();
    assert_eq!(buckets, [2, 1, 0, 0, 7, 5, 5, 6, 2, 3, 1, 7, 5, 4, 7]);
}

#[test]
fn hashes_are_those_that_kudus_client_computes() {
    let hash = |t, v, seed| {
        let mut encoded = Vec::new();
        encode_component(t, v, true, &mut encoded).unwrap();
        murmur_hash2_64a(&encoded, seed)
    };
    assert_eq!(hash(ColumnType::Int64, ValueRef::Int64(0), 0), 0x4e97_afc8_a468_a91a);
    assert_eq!(hash(ColumnType::Int64, ValueRef::Int64(1), 0), 0x126a_335c_8519_12a9);
    assert_eq!(hash(ColumnType::Int64, ValueRef::Int64(2), 0), 0x1ae7_1e12_99d6_e7c8);
    assert_eq!(hash(ColumnType::String, ValueRef::String("abc"), 0), 0x9cc9_c334_98a9_5efb);
    assert_eq!(hash(ColumnType::String, ValueRef::String(""), 0), 0);
    assert_eq!(hash(ColumnType::Int32, ValueRef::Int32(5), 7), 0xd9de_f4f0_1580_c1ca);
}

/// Two buckets, split at 10: as a real master answers it.
#[test]
fn tablets_are_bounded_as_kudus_are() {
    let ten = Value::Int64(10);
    let split = ranges(&[ColumnType::Int64], &[(OperationType::SplitRow, &[Some(ten)])]).unwrap();
    let schema = schema(&[ColumnType::Int64], vec![dimension(&[0], 2)], vec![0]);
    let partitions = schema.partitions(&split).unwrap();
    let at = |bucket: u32| bucket.to_be_bytes().to_vec();
    let ten = |bucket: u32| [&bucket.to_be_bytes()[..], b"\x80\0\0\0\0\0\0\x0a"].concat();
    let bounds: Vec<_> = partitions.iter().map(|p| (p.start.clone(), p.end.clone())).collect();
    assert_eq!(bounds, [(at(0), ten(0)), (ten(0), at(1)), (at(1), ten(1)), (ten(1), at(2))]);
    assert_eq!(partitions[2].hash_buckets, [1]);
    assert_eq!(partitions[1].range(), Range { lower: ten(0)[4..].to_vec(), upper: vec![] });
}

#[test]
fn without_hashing_tablets_are_the_ranges() {
    let split = ranges(&[ColumnType::Int8], &[(OperationType::SplitRow, &[Some(Value::Int8(0))])]).unwrap();
    let schema = schema(&[ColumnType::Int8], vec![], vec![0]);
    let partitions = schema.partitions(&split).unwrap();
    let bounds: Vec<_> = partitions.iter().map(|p| (&p.start[..], &p.end[..])).collect();
    assert_eq!(bounds, [(&b""[..], &b"\x80"[..]), (b"\x80", b"")]);
}

#[test]
fn a_range_may_be_hashed_in_its_own_way() {
    let types = [ColumnType::Int8, ColumnType::Int8];
    let custom =
        CustomRange { range: Range { lower: vec![0x80], upper: vec![0x8a] }, hash: vec![dimension(&[1], 3)] };
    let custom_range = custom.range.clone();
    let schema = PartitionSchema::new(&key(&types), vec![dimension(&[1], 2)], vec![0], vec![custom]).unwrap();
    let plain = Range { lower: vec![0x8a], upper: vec![] };
    let partitions = schema.partitions(&[plain, custom_range]).unwrap();
    assert_eq!(partitions.len(), 3 + 2);
    assert!(partitions.is_sorted_by(|a, b| a.end <= b.start));
    for (k0, k1) in (0..20).flat_map(|k0| (0..20).map(move |k1| (k0, k1))) {
        let key = key_of(&schema, &[ValueRef::Int8(k0), ValueRef::Int8(k1)]);
        let found = floor(&partitions, &key, |p| &p.start).unwrap();
        assert!(partitions[found].contains(&key));
        assert_eq!(partitions[found].range().upper.is_empty(), k0 >= 10);
    }
}

#[test]
fn a_key_in_a_gap_is_looked_up_by_the_tablet_before_it() {
    let bound = |v| [Some(Value::Int8(v))];
    let (low, high) = (OperationType::RangeLowerBound, OperationType::RangeUpperBound);
    let bounds: [(_, &[_]); 4] =
        [(low, &bound(0)), (high, &bound(10)), (low, &bound(20)), (high, &bound(30))];
    let two = ranges(&[ColumnType::Int8], &bounds).unwrap();
    let schema = schema(&[ColumnType::Int8], vec![], vec![0]);
    let partitions = schema.partitions(&two).unwrap();
    let look_up = |v| floor(&partitions, &key_of(&schema, &[ValueRef::Int8(v)]), |p| &p.start);
    assert_eq!(
        [look_up(-1), look_up(0), look_up(15), look_up(20), look_up(99)],
        [None, Some(0), Some(0), Some(1), Some(1)]
    );
    assert!(!partitions[0].contains(&key_of(&schema, &[ValueRef::Int8(15)])));
}

/// The examples of Kudu's own comments: `None` is a column that is not set.
#[test]
fn an_exclusive_lower_bound_is_moved_to_the_next_key() {
    let types = [ColumnType::Int8; 3];
    let encoded = |values: [i8; 3]| values.map(|v| (v as u8) ^ 0x80).to_vec();
    let after = |values: [Option<i8>; 3]| {
        let values = values.map(|v| v.map(Value::Int8));
        let bounds = [
            (OperationType::ExclusiveRangeLowerBound, &values[..]),
            (OperationType::RangeUpperBound, &[None, None, None]),
        ];
        ranges(&types, &bounds).map(|ranges| ranges[0].lower.clone())
    };
    assert_eq!(after([Some(1), Some(2), Some(3)]).unwrap(), encoded([1, 2, 4]));
    assert_eq!(after([Some(1), Some(2), Some(127)]).unwrap(), encoded([1, 3, -128]));
    assert_eq!(after([Some(1), Some(127), Some(3)]).unwrap(), encoded([1, 127, 4]));
    assert_eq!(after([Some(1), None, Some(3)]).unwrap(), encoded([1, -128, 4]));
    assert_eq!(after([None, None, None]).unwrap(), encoded([-128, -128, -127]));
    assert_eq!(after([Some(1), Some(127), Some(127)]).unwrap(), encoded([2, -128, -128]));
    assert!(after([Some(127); 3]).is_err());
}

#[test]
fn an_inclusive_upper_bound_is_moved_to_the_next_key() {
    let upper = |t, value: Option<Value>| {
        let bounds: [(_, &[_]); 2] =
            [(OperationType::RangeLowerBound, &[None]), (OperationType::InclusiveRangeUpperBound, &[value])];
        ranges(&[t], &bounds).unwrap()[0].upper.clone()
    };
    assert_eq!(upper(ColumnType::String, Some(Value::String("a".into()))), b"a\0");
    assert_eq!(upper(ColumnType::Int16, Some(Value::Int16(-1))), b"\x80\0");
    assert_eq!(upper(ColumnType::Int16, Some(Value::Int16(i16::MAX))), b"");
    assert_eq!(upper(ColumnType::Int16, None), b"");
    let numeric = ColumnType::Decimal { precision: 2, scale: 0 };
    assert_eq!(upper(numeric, Some(Value::Decimal(98))), b"\x80\0\0\x63");
    assert_eq!(upper(numeric, Some(Value::Decimal(99))), b"");
    assert_eq!(upper(ColumnType::Uuid, Some(Value::Uuid([0xff; 16]))), b"");
}

#[test]
fn ranges_that_make_no_sense_are_refused() {
    let (low, high, split) =
        (OperationType::RangeLowerBound, OperationType::RangeUpperBound, OperationType::SplitRow);
    let n = |v| [Some(Value::Int8(v))];
    let error = |bounds: &[(OperationType, &[Option<Value>])]| {
        ranges(&[ColumnType::Int8], bounds).unwrap_err().message().to_owned()
    };
    assert!(error(&[(low, &n(1))]).contains("no upper bound"));
    assert!(error(&[(high, &n(1))]).contains("come in pairs"));
    assert!(error(&[(low, &n(1)), (low, &n(2))]).contains("come in pairs"));
    assert!(error(&[(low, &n(1)), (split, &n(2))]).contains("come in pairs"));
    assert!(error(&[(OperationType::Insert, &n(1))]).contains("come in pairs"));
    assert!(error(&[(low, &n(1)), (high, &n(1))]).contains("less than"));
    assert!(error(&[(low, &n(1)), (high, &n(5)), (low, &n(4)), (high, &n(6))]).contains("overlap"));
    assert!(error(&[(low, &[None]), (high, &n(5)), (low, &[None]), (high, &n(6))]).contains("overlap"));
    assert!(error(&[(split, &[None])]).contains("sets no range column"));
    assert!(error(&[(split, &n(1)), (split, &n(1))]).contains("twice"));
    assert!(error(&[(low, &n(1)), (high, &n(5)), (split, &n(5))]).contains("outside"));
    assert!(error(&[(low, &n(1)), (high, &n(5)), (split, &n(1))]).contains("outside"));
    let text =
        ranges(&[ColumnType::String], &[(low, &[None]), (high, &[Some(Value::String(String::new()))])]);
    assert!(text.unwrap_err().message().contains("below the least"));
}

#[test]
fn a_request_is_not_expanded_beyond_what_a_table_may_have() {
    let refused = |types: &[ColumnType], values: Vec<Value>| {
        let values: Vec<_> = values.into_iter().map(|value| [Some(value)]).collect();
        let bounds: Vec<_> = values.iter().map(|v| (OperationType::SplitRow, &v[..])).collect();
        ranges(types, &bounds).is_err_and(|error| error.kind() == oribi_types::ErrorKind::TooLarge)
    };
    let numbers = |n: usize| (0..n as i32).map(Value::Int32).collect();
    assert!(!refused(&[ColumnType::Int32], numbers(TABLETS_MAX)));
    assert!(refused(&[ColumnType::Int32], numbers(TABLETS_MAX + 1)));
    let long = |n: u8| (0..n).map(|i| Value::Binary(vec![i; 1 << 20])).collect();
    assert!(!refused(&[ColumnType::Binary], long(16)));
    assert!(refused(&[ColumnType::Binary], long(17)));
}

#[test]
fn a_partial_bound_has_the_least_value_that_the_column_can_have() {
    let types = [ColumnType::Int8, ColumnType::Decimal { precision: 3, scale: 1 }];
    let bounds: [(_, &[_]); 2] = [
        (OperationType::RangeLowerBound, &[Some(Value::Int8(1)), None]),
        (OperationType::RangeUpperBound, &[Some(Value::Int8(2)), None]),
    ];
    let range = ranges(&types, &bounds).unwrap().remove(0);
    // −999 in the four bytes of a decimal of up to nine digits.
    assert_eq!(
        (range.lower, range.upper),
        (b"\x81\x7f\xff\xfc\x19".to_vec(), b"\x82\x7f\xff\xfc\x19".to_vec())
    );
}

#[test]
fn partitionings_that_make_no_sense_are_refused() {
    let types = [ColumnType::Int8, ColumnType::String];
    let refused = |hash, range| PartitionSchema::new(&key(&types), hash, range, vec![]).is_err();
    assert!(refused(vec![dimension(&[2], 2)], vec![]));
    assert!(refused(vec![dimension(&[], 2)], vec![]));
    assert!(refused(vec![dimension(&[0], 1)], vec![]));
    assert!(refused(vec![dimension(&[0], u32::MAX)], vec![]));
    assert!(refused(vec![dimension(&[0], 2), dimension(&[0], 2)], vec![]));
    assert!(refused(vec![], vec![1, 1]));
    assert!(refused(vec![], vec![2]));
    assert!(PartitionSchema::new(&key(&[ColumnType::Bool]), vec![], vec![], vec![]).is_err());
    let range = Range { lower: vec![1], upper: vec![2] };
    let custom = vec![CustomRange { range, hash: vec![dimension(&[0], 2)] }];
    assert!(PartitionSchema::new(&key(&types), vec![], vec![0], custom).is_err());
    let many = schema(&types, vec![dimension(&[0], 1 << 30), dimension(&[1], 1 << 30)], vec![]);
    assert!(many.partitions(&[Range::default()]).is_err());
}

#[test]
fn a_schema_is_stated_by_names_and_answered_by_ids() {
    use crate::messages::common::{ColumnIdentifier, HashBucketSchema, RangeSchema, RangeWithHashSchema};
    let mut columns = key(&[ColumnType::Decimal { precision: 5, scale: 0 }, ColumnType::String]);
    columns.push(WireColumn::new("v", ColumnType::Double, true));
    let table = PartitionedTable { columns: &columns, key_columns: 2, ids: &[10, 11, 12] };
    let ranges = RangeKeys { key: &[columns[0].column_type, ColumnType::String], columns: &[0, 1] };
    let range = Range { lower: b"\x80\0\0\x05a".to_vec(), upper: vec![] };
    let hash = |column: ColumnIdentifier, num_buckets, seed| {
        vec![HashBucketSchema { columns: vec![column], num_buckets, seed: Some(seed), hash_algorithm: None }]
    };
    let mut message = crate::messages::common::PartitionSchema {
        hash_schema: hash(ColumnIdentifier::name("k1"), 2, 0),
        range_schema: None,
        custom_hash_schema_ranges: vec![RangeWithHashSchema {
            range_bounds: Some(ranges.bounds(table, &range).unwrap()),
            hash_schema: hash(ColumnIdentifier::name("k1"), 4, 9),
        }],
    };
    let schema = PartitionSchema::decode(table, &message).unwrap();
    assert_eq!(schema.range(), [0, 1]);
    assert_eq!(schema.custom(), [CustomRange { range, hash: vec![HashDimension::new(vec![1], 4, 9)] }]);
    let answered = schema.encode(table).unwrap();
    assert_eq!(answered.hash_schema, hash(ColumnIdentifier::id(11), 2, 0));
    assert_eq!(PartitionSchema::decode(table, &answered).unwrap(), schema);

    message.range_schema = Some(RangeSchema::default());
    assert!(PartitionSchema::decode(table, &message).is_err(), "a custom range without range columns");
    message.custom_hash_schema_ranges.clear();
    assert!(PartitionSchema::decode(table, &message).unwrap().range().is_empty());
    for column in [ColumnIdentifier::name("v"), ColumnIdentifier::name("w"), ColumnIdentifier::id(9)] {
        message.hash_schema = hash(column, 2, 0);
        assert!(PartitionSchema::decode(table, &message).is_err());
    }
    message.hash_schema = hash(ColumnIdentifier::id(10), -2, 0);
    assert!(PartitionSchema::decode(table, &message).is_err());
}

proptest! {
    /// Each row belongs to one tablet, and the look-up finds it.
    #[test]
    fn every_row_has_one_tablet(
        splits in vec((any::<i16>(), "[a-c]{0,3}"), 0..5),
        rows in vec((any::<i16>(), "[a-c]{0,3}", any::<u8>()), 1..20),
        seed in any::<u32>(),
    ) {
        let types = [ColumnType::Int16, ColumnType::String, ColumnType::Binary];
        let bounds: std::collections::BTreeSet<_> = splits.into_iter().collect();
        let bounds: Vec<[Option<Value>; 2]> =
            bounds.into_iter().map(|(a, b)| [Some(Value::Int16(a)), Some(Value::String(b))]).collect();
        let operations: Vec<_> = bounds.iter().map(|b| (OperationType::SplitRow, &b[..])).collect();
        let ranges = ranges(&types[..2], &operations).unwrap();
        let hash = vec![HashDimension::new(vec![2, 0], 3, seed), dimension(&[1], 2)];
        let schema = schema(&types, hash, vec![0, 1]);
        let partitions = schema.partitions(&ranges).unwrap();
        prop_assert_eq!(partitions.len(), (bounds.len() + 1) * 6);
        for (a, b, c) in &rows {
            let key = key_of(&schema, &[ValueRef::Int16(*a), ValueRef::String(b), ValueRef::Binary(&[*c])]);
            let holders: Vec<usize> = (0..partitions.len()).filter(|i| partitions[*i].contains(&key)).collect();
            prop_assert_eq!(holders.len(), 1);
            prop_assert_eq!(floor(&partitions, &key, |p| &p.start), Some(holders[0]));
        }
    }
}
