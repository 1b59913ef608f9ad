//! The tablet of a key is what a plain look through all ranges and buckets says, and what a filter leaves has every key
//! that passes it.

#![allow(clippy::unwrap_used)]

use oribi_types::key::{encode_component, encode_key};
use oribi_types::partition::{
    HashDimension, KeyFilter, RangeDimension, RangePartition, TABLETS_MAX, decode_range_key,
    encode_range_key, least_value, next_values,
};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, ErrorKind, Partitioning, Schema, Value};
use proptest::prelude::*;
use std::ops::{Bound, RangeBounds};

const TYPES: [ColumnType; 6] = [
    ColumnType::Int8,
    ColumnType::Int64,
    ColumnType::String,
    ColumnType::Binary,
    ColumnType::Decimal { precision: 9, scale: 2 },
    ColumnType::Decimal { precision: 30, scale: 0 },
];

fn value(column_type: ColumnType) -> BoxedStrategy<Value> {
    let bytes = prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(b'a'), Just(255)], 0..3);
    match column_type {
        ColumnType::Int8 => prop_oneof![Just(i8::MIN), -2..3_i8, Just(i8::MAX)].prop_map(Value::Int8).boxed(),
        ColumnType::Int64 => prop_oneof![-2..3_i64, Just(i64::MAX)].prop_map(Value::Int64).boxed(),
        ColumnType::String => "[\\x00\\x01aé]{0,2}".prop_map(Value::String).boxed(),
        ColumnType::Binary => bytes.prop_map(Value::Binary).boxed(),
        ColumnType::Decimal { precision: 9, .. } => {
            prop_oneof![-2..3_i128, Just(999_999_999)].prop_map(Value::Decimal).boxed()
        }
        _ => prop_oneof![-2..3_i128, Just(10_i128.pow(30) - 1)].prop_map(Value::Decimal).boxed(),
    }
}

#[derive(Clone, Debug)]
struct Case {
    schema: Schema,
    partitioning: Partitioning,
    keys: Vec<Vec<Value>>,
    /// Per column of the key.
    filter: Vec<(Bound<Value>, Bound<Value>)>,
}

fn bound(column_type: ColumnType) -> impl Strategy<Value = Bound<Value>> {
    let value = || value(column_type);
    prop_oneof![Just(Bound::Unbounded), value().prop_map(Bound::Included), value().prop_map(Bound::Excluded)]
}

fn interval(column_type: ColumnType) -> impl Strategy<Value = (Bound<Value>, Bound<Value>)> {
    prop_oneof![
        value(column_type).prop_map(|v| (Bound::Included(v.clone()), Bound::Included(v))),
        (bound(column_type), bound(column_type)),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let types = prop::collection::vec(prop::sample::select(TYPES.to_vec()), 1..4);
    let shape = types.prop_flat_map(|types| {
        let columns: Vec<u16> = (0..types.len() as u16).collect();
        let hashed = prop::sample::subsequence(columns.clone(), 0..=columns.len());
        let ranged = prop::sample::subsequence(columns.clone(), 0..=columns.len()).prop_shuffle();
        (Just(types), hashed, ranged, any::<bool>())
    });
    shape.prop_flat_map(|(types, hashed, ranged, apart)| {
        let of = |columns: &[u16]| columns.iter().map(|c| value(types[usize::from(*c)])).collect::<Vec<_>>();
        let all: Vec<u16> = (0..types.len() as u16).collect();
        let bounds = prop::collection::vec(of(&ranged), 0..8);
        let keys = prop::collection::vec(of(&all), 1..20);
        let filter = types.iter().map(|t| interval(*t)).collect::<Vec<_>>();
        let spare = (prop::collection::vec(any::<(bool, bool)>(), 8), 1..5_u32, 1..4_u32, any::<u32>());
        (bounds, keys, filter, spare).prop_map(move |(bounds, keys, filter, spare)| {
            let (gaps, buckets, own_buckets, seed) = spare;
            let names: Vec<String> = (0..types.len()).map(|i| format!("c{i}")).collect();
            let specs = names.iter().zip(&types).map(|(name, t)| ColumnSpec::new(name, *t)).collect();
            let key_names: Vec<&str> = names.iter().map(String::as_str).collect();
            let schema = Schema::new(specs, &key_names).unwrap();
            // Each column in a dimension of its own, or all in one.
            let groups: Vec<Vec<u16>> = match (hashed.is_empty(), apart) {
                (true, _) => Vec::new(),
                (false, true) => hashed.iter().map(|c| vec![*c]).collect(),
                (false, false) => vec![hashed.clone()],
            };
            let dimensions = |buckets| -> Vec<HashDimension> {
                groups.iter().map(|c| HashDimension::new(&schema, c.clone(), buckets, seed)).collect()
            };
            let range = (!ranged.is_empty()).then(|| {
                let mut cuts: Vec<Vec<u8>> =
                    bounds.iter().map(|b| encode_range_key(&schema, &ranged, b).unwrap()).collect();
                cuts.push(Vec::new());
                cuts.sort();
                cuts.dedup();
                let uppers = cuts.iter().skip(1).cloned().map(Some).chain([None]);
                let ranges = cuts.iter().cloned().zip(uppers).zip(&gaps).filter(|(_, (gap, _))| !gap);
                let ranges = ranges.map(|((lower, upper), (_, own))| {
                    let hash = own.then(|| dimensions(own_buckets));
                    RangePartition { lower, upper, hash }
                });
                RangeDimension { columns: ranged.clone(), ranges: ranges.collect() }
            });
            let partitioning = Partitioning::new(dimensions(buckets), range).unwrap();
            partitioning.check(&schema).unwrap();
            Case { schema, partitioning, keys, filter }
        })
    })
}

fn project(key: &[Value], columns: &[u16], short_decimals: bool, types: &[ColumnType]) -> Vec<u8> {
    let mut encoded = Vec::new();
    for (i, c) in columns.iter().enumerate() {
        match (&key[usize::from(*c)], types[usize::from(*c)]) {
            (Value::Decimal(v), ColumnType::Decimal { precision: 9, .. }) if short_decimals => {
                encoded.extend(((*v as i32 as u32) ^ (1 << 31)).to_be_bytes());
            }
            (value, _) => encode_component(value.as_ref(), i + 1 == columns.len(), &mut encoded),
        }
    }
    encoded
}

/// The tablet of a key: one after the other, those that are not its own are counted.
fn naive(case: &Case, key: &[Value]) -> Option<usize> {
    let types: Vec<ColumnType> = case.schema.key_columns().map(|c| c.column_type).collect();
    let (columns, ranges) = match case.partitioning.range_dimension() {
        Some(range) => (range.columns.clone(), range.ranges.clone()),
        None => (Vec::new(), vec![RangePartition::default()]),
    };
    let range_key = project(key, &columns, false, &types);
    let mut tablet = 0;
    for range in ranges {
        let dimensions = range.hash.as_deref().unwrap_or(case.partitioning.hash_dimensions());
        let below = range.upper.as_ref().is_none_or(|upper| range_key < *upper);
        if range.lower <= range_key && below {
            let mut within = 0;
            for d in dimensions {
                let hash = oribi_types::key::murmur_hash2_64a(
                    &project(key, &d.columns, true, &types),
                    d.seed.into(),
                );
                within = within * d.buckets as usize + (hash % u64::from(d.buckets)) as usize;
            }
            return Some(tablet + within);
        }
        tablet += dimensions.iter().map(|d| d.buckets as usize).product::<usize>();
    }
    None
}

/// As the encoded form orders values.
fn passes(key: &[Value], filter: &[(Bound<Value>, Bound<Value>)]) -> bool {
    let encoded = |value: &Value| {
        let mut key = Vec::new();
        encode_component(value.as_ref(), true, &mut key);
        key
    };
    key.iter().zip(filter).all(|(value, (lower, upper))| {
        (lower.as_ref().map(encoded), upper.as_ref().map(encoded)).contains(&encoded(value))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_look_up_agrees_with_a_plain_search(case in case()) {
        let Case { schema, partitioning, .. } = &case;
        let mut filter = KeyFilter::all(schema);
        let everywhere: Vec<usize> = (0..partitioning.tablets()).collect();
        prop_assert_eq!(partitioning.tablets_of(&filter), everywhere);
        for (i, (lower, upper)) in case.filter.iter().enumerate() {
            // Bounds that are wider change nothing, whenever they come.
            filter.narrow(i, lower.clone(), Bound::Unbounded);
            filter.narrow(i, Bound::Unbounded, upper.clone());
            filter.narrow(i, lower.clone(), upper.clone());
        }
        let left = partitioning.tablets_of(&filter);
        prop_assert!(left.windows(2).all(|pair| pair[0] < pair[1]));
        for values in &case.keys {
            let mut key = Vec::new();
            encode_key(schema, values.iter().map(Value::as_ref), &mut key).unwrap();
            let tablet = partitioning.tablet_of(schema, &key);
            prop_assert_eq!(tablet, naive(&case, values));
            prop_assert!(tablet.is_none_or(|t| t < partitioning.tablets()));
            if passes(values, &case.filter) {
                prop_assert!(tablet.is_none_or(|t| left.contains(&t)), "{:?} is in {:?} of {:?}", values, tablet, left);
            }
            if let Some(tablet) = tablet {
                let place = partitioning.place_of(tablet);
                let hash = place.range.and_then(|range| range.hash.as_deref());
                for (d, bucket) in hash.unwrap_or(partitioning.hash_dimensions()).iter().zip(&place.buckets) {
                    prop_assert_eq!(d.bucket_of(schema, &key), *bucket as usize);
                }
            }
        }
    }

    #[test]
    fn one_key_is_left_one_tablet(case in case()) {
        let Case { schema, partitioning, .. } = &case;
        for values in &case.keys {
            let mut key = Vec::new();
            encode_key(schema, values.iter().map(Value::as_ref), &mut key).unwrap();
            let mut filter = KeyFilter::all(schema);
            for (i, value) in values.iter().enumerate() {
                filter.narrow(i, Bound::Included(value.clone()), Bound::Included(value.clone()));
            }
            let tablet: Vec<usize> = partitioning.tablet_of(schema, &key).into_iter().collect();
            prop_assert_eq!(partitioning.tablets_of(&filter), tablet);
        }
    }

    #[test]
    fn the_stored_form_reads_back(case in case()) {
        let stored = serde_json::to_string(&case.partitioning).unwrap();
        let read: Partitioning = serde_json::from_str(&stored).unwrap();
        prop_assert_eq!(read, case.partitioning);
    }

    #[test]
    fn ranges_come_and_go(case in case(), pick in any::<prop::sample::Index>()) {
        let ranges = case.partitioning.ranges();
        if ranges.is_empty() {
            return Ok(());
        }
        let range = ranges[pick.index(ranges.len())].clone();
        let error = case.partitioning.with_range(range.clone()).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        let (without, gone) = case.partitioning.without_range(&range.lower, range.upper.as_deref()).unwrap();
        prop_assert_eq!(without.tablets() + gone.len(), case.partitioning.tablets());
        prop_assert!(without.without_range(&range.lower, range.upper.as_deref()).is_err());
        let (with, came) = without.with_range(range).unwrap();
        prop_assert_eq!(&came, &gone);
        prop_assert_eq!(with, case.partitioning.clone());
    }

    #[test]
    fn the_next_values_are_the_next_key(column_type in prop::sample::select(TYPES.to_vec()), case in case()) {
        // Of a single column: nothing lies between.
        let least = least_value(column_type);
        let mut next = [least.clone()];
        prop_assert!(next_values(&[column_type], &mut next));
        prop_assert!(next[0] != least);
        let types: Vec<ColumnType> = case.schema.key_columns().map(|c| c.column_type).collect();
        let columns: Vec<u16> = (0..types.len() as u16).collect();
        for values in &case.keys {
            let mut next = values.clone();
            let key = encode_range_key(&case.schema, &columns, values).unwrap();
            prop_assert_eq!(&decode_range_key(&case.schema, &columns, &key).unwrap(), values);
            if next_values(&types, &mut next) {
                let next = encode_range_key(&case.schema, &columns, &next).unwrap();
                prop_assert!(key < next);
                for other in &case.keys {
                    let other = encode_range_key(&case.schema, &columns, other).unwrap();
                    prop_assert!(other <= key || next <= other);
                }
            }
        }
    }
}

fn two_columns() -> Schema {
    let columns = vec![ColumnSpec::new("a", ColumnType::Int64), ColumnSpec::new("b", ColumnType::Int32)];
    Schema::new(columns, &["a", "b"]).unwrap()
}

/// What Kudu's own client computes for keys 0 to 14 and 8 buckets.
#[test]
fn buckets_are_those_of_kudus_clients() {
    let schema = Schema::new(vec![ColumnSpec::new("k", ColumnType::Int64)], &["k"]).unwrap();
    let partitioning = Partitioning::new(vec![HashDimension::new(&schema, vec![0], 8, 0)], None).unwrap();
    let tablets: Vec<usize> = (0..15)
        .map(|k| {
            let mut key = Vec::new();
            encode_key(&schema, [Value::Int64(k).as_ref()], &mut key).unwrap();
            partitioning.tablet_of(&schema, &key).unwrap()
        })
        .collect();
    assert_eq!(tablets, [2, 1, 0, 0, 7, 5, 5, 6, 2, 3, 1, 7, 5, 4, 7]);
}

/// As versions before there were ranges wrote them.
#[test]
fn partitionings_of_earlier_versions_are_read() {
    let read = |text: &str| serde_json::from_str::<Partitioning>(text);
    assert_eq!(read(r#"{"hash":{"columns":[0],"buckets":4}}"#).unwrap(), Partitioning::hash(vec![0], 4));
    assert_eq!(read(r#"{"hash":{"columns":[0,1],"buckets":1}}"#).unwrap(), Partitioning::none());
    assert_eq!(Partitioning::none().tablets(), 1);
}

#[test]
fn damaged_partitionings_are_refused() {
    let dimensions = |hash: &str, range: &str| {
        serde_json::from_str::<Partitioning>(&format!(
            r#"{{"dimensions":{{"hash":{hash},"range":{range}}}}}"#
        ))
    };
    let ranges = |ranges: &str| dimensions("[]", &format!(r#"{{"columns":[0],"ranges":[{ranges}]}}"#));
    assert!(dimensions("[]", "null").is_ok());
    assert!(
        ranges(r#"{"lower":"","upper":"05","hash":null},{"lower":"05","upper":null,"hash":null}"#).is_ok()
    );
    for hash in [
        r#"[{"columns":[0],"buckets":0,"seed":0}]"#,
        r#"[{"columns":[],"buckets":2,"seed":0}]"#,
        r#"[{"columns":[0],"buckets":4000000000,"seed":0},{"columns":[1],"buckets":4000000000,"seed":0}]"#,
    ] {
        assert!(dimensions(hash, "null").is_err(), "{hash}");
    }
    for wrong in [
        r#"{"lower":"05","upper":"05","hash":null}"#,
        r#"{"lower":"0","upper":null,"hash":null}"#,
        r#"{"lower":"x5","upper":null,"hash":null}"#,
        r#"{"lower":"","upper":"05","hash":null},{"lower":"04","upper":null,"hash":null}"#,
        r#"{"lower":"05","upper":null,"hash":null},{"lower":"06","upper":null,"hash":null}"#,
        r#"{"lower":"05","upper":"06","hash":null},{"lower":"01","upper":"02","hash":null}"#,
        r#"{"lower":"","upper":"05","hash":[{"columns":[0],"buckets":2,"seed":0}]}"#,
    ] {
        assert!(ranges(wrong).is_err(), "{wrong}");
    }
    let many = r#"{"columns":[0],"buckets":4097,"seed":0}"#;
    assert!(TABLETS_MAX < 4097 && dimensions(&format!("[{many}]"), "null").is_err());
}

#[test]
fn what_does_not_fit_the_key_is_refused() {
    let schema = two_columns();
    let hash = |columns: &[&[u16]]| {
        let dimensions = columns.iter().map(|c| HashDimension::new(&schema, c.to_vec(), 2, 0)).collect();
        Partitioning::new(dimensions, None).unwrap().check(&schema)
    };
    assert!(hash(&[&[0], &[1]]).is_ok() && hash(&[&[1, 0]]).is_ok());
    assert!(hash(&[&[0], &[0]]).is_err() && hash(&[&[2]]).is_err() && hash(&[&[0, 0]]).is_err());
    let range = |columns: &[u16], lower: &[u8]| {
        let ranges = vec![RangePartition { lower: lower.to_vec(), upper: None, hash: None }];
        Partitioning::new(Vec::new(), Some(RangeDimension { columns: columns.to_vec(), ranges }))
            .unwrap()
            .check(&schema)
    };
    assert!(range(&[1, 0], &[0; 12]).is_ok() && range(&[1], &[]).is_ok());
    assert!(range(&[1], &[0; 12]).is_err() && range(&[1, 1], &[]).is_err() && range(&[2], &[]).is_err());
}
