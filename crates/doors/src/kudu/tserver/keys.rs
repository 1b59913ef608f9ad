//! Which keys a scan reads: those between the bounds of its request that predicates on leading columns of the key leave.

use oribi_engine::KeyRange;
use oribi_kudu::key;
use oribi_kudu::messages::tserver::NewScanRequest;
use oribi_kudu::predicate::Test;
use oribi_types::key::{after_prefix, encode_component};
use oribi_types::{ColumnType, Result, Schema, Value};
use std::ops::Bound;

/// Of the columns of a table's key, in key order.
pub(super) fn key_types(schema: &Schema) -> Vec<ColumnType> {
    schema.key_columns().map(|column| column.column_type).collect()
}

/// The keys that a request asks for, encoded as the engine's; `None` for all. `tests` are the predicates on a column of the key,
/// by its number in the key.
///
/// # Errors
/// `Invalid` for keys that are not of the table.
pub(super) fn of_request<'t, T: Iterator<Item = &'t Test>>(
    schema: &Schema,
    request: &NewScanRequest,
    tests: impl Fn(usize) -> T,
) -> Result<Option<KeyRange>> {
    let stated = stated(schema, request)?;
    Ok(match (stated, of_tests(schema, tests)) {
        (Some(stated), Some(left)) => Some(KeyRange {
            from: stated.from.max(left.from),
            to: [stated.to, left.to].into_iter().flatten().min(),
        }),
        (stated, left) => stated.or(left),
    })
}

/// The keys between the bounds that a request states.
fn stated(schema: &Schema, request: &NewScanRequest) -> Result<Option<KeyRange>> {
    let types = key_types(schema);
    let ours = |key: &Option<bytes::Bytes>| {
        let key = key.as_ref().filter(|key| !key.is_empty());
        key.map(|key| key::to_engine(&types, key).map(|key| key.into_owned())).transpose()
    };
    let (start, stop) = (ours(&request.start_primary_key)?, ours(&request.stop_primary_key)?);
    let last = ours(&request.last_primary_key)?;
    if start.is_none() && stop.is_none() && last.is_none() {
        return Ok(None);
    }
    let from = match (&start, &last) {
        (Some(start), Some(last)) if start > last => Bound::Included(start.as_slice()),
        (_, Some(last)) => Bound::Excluded(last.as_slice()),
        (Some(start), None) => Bound::Included(start.as_slice()),
        (None, None) => Bound::Unbounded,
    };
    let to = stop.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    Ok(Some(KeyRange::new(from, to)))
}

/// The keys that predicates leave: of one value of each leading column, and between bounds of the next.
fn of_tests<'t, T: Iterator<Item = &'t Test>>(
    schema: &Schema,
    tests: impl Fn(usize) -> T,
) -> Option<KeyRange> {
    let mut prefix = Vec::new();
    for column in 0..schema.key().len() {
        let is_last = column + 1 == schema.key().len();
        if let Some(value) = tests(column).find_map(only_value) {
            encode_component(value.as_ref(), is_last, &mut prefix);
            continue;
        }
        let mut keys = KeyRange::of_prefix(&prefix);
        tests(column).for_each(|test| narrow(&mut keys, &prefix, test, is_last));
        return (keys != KeyRange::default()).then_some(keys);
    }
    Some(KeyRange::of_key(&prefix))
}

/// The one value that passes, if there is one.
fn only_value(test: &Test) -> Option<&Value> {
    match test.bounds() {
        (Bound::Included(lower), Bound::Included(upper)) if lower == upper => Some(lower),
        _ => None,
    }
}

/// Takes in the bounds of the column that follows `prefix`.
fn narrow(keys: &mut KeyRange, prefix: &[u8], test: &Test, is_last: bool) {
    let at = |value: &Value| {
        let mut key = prefix.to_vec();
        encode_component(value.as_ref(), is_last, &mut key);
        key
    };
    // The first key behind all that have a value.
    let behind =
        |value: &Value| if is_last { KeyRange::of_key(&at(value)).to } else { after_prefix(&at(value)) };
    let (lower, upper) = test.bounds();
    let from = match lower {
        Bound::Included(value) => at(value),
        Bound::Excluded(_) | Bound::Unbounded => Vec::new(),
    };
    let to = match upper {
        Bound::Included(value) => behind(value),
        Bound::Excluded(value) => Some(at(value)),
        Bound::Unbounded => None,
    };
    keys.from = from.max(std::mem::take(&mut keys.from));
    keys.to = [keys.to.take(), to].into_iter().flatten().min();
}

#[cfg(test)]
mod tests {
    use super::*;
    use oribi_kudu::predicate::ValueRange;
    use oribi_types::key::encode_key;
    use oribi_types::schema::ColumnSpec;
    use proptest::prelude::*;

    /// Key (a, b), of an integer and a string.
    fn schema() -> Schema {
        let columns = vec![
            ColumnSpec::new("a", ColumnType::Int8).not_null(),
            ColumnSpec::new("b", ColumnType::String).not_null(),
        ];
        Schema::new(columns, &["a", "b"]).unwrap()
    }

    fn int() -> impl Strategy<Value = Value> {
        prop_oneof![Just(-128_i8), Just(127), -2..3_i8].prop_map(Value::Int8)
    }

    fn string() -> impl Strategy<Value = Value> {
        prop_oneof![Just(""), Just("\0"), Just("a"), Just("a\0"), Just("ab"), Just("b")]
            .prop_map(|text| Value::String(text.to_owned()))
    }

    /// Tests that a request may state, of values in order.
    fn test(value: impl Strategy<Value = Value> + Clone + 'static) -> impl Strategy<Value = Test> {
        let in_order = |a: &Value, b: &Value| oribi_kudu::predicate::compare(a.as_ref(), b.as_ref()).unwrap();
        let list = prop::collection::vec(value.clone(), 1..4).prop_map(move |mut values| {
            values.sort_by(in_order);
            values.dedup();
            Test::InList(values)
        });
        let bound = prop::option::of(value.clone());
        let range =
            (bound.clone(), bound).prop_map(|(lower, upper)| Test::Range(ValueRange { lower, upper }));
        prop_oneof![value.prop_map(Test::Equality), list, range, Just(Test::IsNotNull)]
    }

    fn passes(test: &Test, value: &Value) -> bool {
        match test {
            Test::Equality(only) => only == value,
            Test::InList(values) => values.contains(value),
            Test::Range(range) => range.contains(value.as_ref()),
            _ => true,
        }
    }

    proptest! {
        #[test]
        fn no_key_that_passes_is_left_out(
            of_a in prop::collection::vec(test(int().boxed()), 0..3),
            of_b in prop::collection::vec(test(string().boxed()), 0..3),
            (a, b) in (int(), string()),
        ) {
            let (schema, tests) = (schema(), [of_a, of_b]);
            let keys = of_tests(&schema, |column| tests[column].iter());
            let mut key = Vec::new();
            encode_key(&schema, [a.as_ref(), b.as_ref()].into_iter(), &mut key).unwrap();
            let has = keys.as_ref().is_none_or(|keys| keys.contains(&key));
            let pass = [tests[0].iter().all(|test| passes(test, &a)), tests[1].iter().all(|test| passes(test, &b))];
            prop_assert!(has || !(pass[0] && pass[1]), "{keys:?} lacks {a:?}, {b:?}");
            // Bounds leave out all that they can: ranges on the first column, and on the second if the first has one value.
            let ranges = |tests: &[Test]| tests.iter().all(|test| !matches!(test, Test::InList(values) if values.len() > 1));
            let only = |tests: &[Test]| tests.iter().find_map(only_value).is_some();
            if !pass[0] && ranges(&tests[0]) && !only(&tests[0]) {
                prop_assert!(!has, "{keys:?} has {a:?}");
            }
            if pass[0] && !pass[1] && only(&tests[0]) && ranges(&tests[1]) && !only(&tests[1]) {
                prop_assert!(!has, "{keys:?} has {b:?}");
            }
        }
    }
}
