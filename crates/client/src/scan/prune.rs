//! Which tablets a scan can leave out: those whose buckets or whose range no row has that passes the predicates.

use super::Scan;
use crate::table::Tablet;
use oribi_kudu::key::encode_component;
use oribi_kudu::partition::{HashDimension, PartitionSchema, Range};
use oribi_kudu::predicate::{Test, ValueRange};
use oribi_types::{Value, ValueRef};
use std::slice;

/// How many combinations of values are hashed at most; with more, rows may be in any bucket.
const COMBINATIONS_MAX: usize = 1000;

impl Scan {
    /// Whether a tablet can have rows of the scan.
    pub(super) fn may_be_in(&self, tablet: &Tablet) -> bool {
        if self.key_tests.iter().any(|(_, test)| matches!(test, Test::Nothing | Test::IsNull)) {
            return false;
        }
        let shared = &self.table.shared;
        let part = |key: &[u8]| key.get(shared.hash_key_bytes()..).unwrap_or_default().to_vec();
        let range = Range { lower: part(&tablet.start), upper: part(&tablet.end) };
        let schema = &shared.partition_schema;
        // A range is hashed as its first row would be.
        let dimensions = schema.hash_within(&range.lower).iter().zip(&tablet.hash_buckets);
        let may_be = |(dimension, bucket)| self.may_be_in_bucket(schema, dimension, bucket);
        overlap(&range, &self.range_keys()) && dimensions.into_iter().all(may_be)
    }

    /// The values that a column of the key has to have one of, if some predicate lists them.
    fn listed(&self, column: usize) -> Option<&[Value]> {
        let lists = self.key_tests.iter().filter_map(|(of, test)| match test {
            Test::Equality(value) if *of == column => Some(slice::from_ref(value)),
            Test::InList(values) if *of == column => Some(&values[..]),
            _ => None,
        });
        lists.min_by_key(|values| values.len())
    }

    fn may_be_in_bucket(&self, schema: &PartitionSchema, dimension: &HashDimension, bucket: &u32) -> bool {
        let lists: Option<Vec<(usize, &[Value])>> =
            dimension.columns().iter().map(|column| Some((*column, self.listed(*column)?))).collect();
        let Some(lists) = lists else { return true };
        let combinations = lists.iter().try_fold(1_usize, |n, (_, values)| n.checked_mul(values.len()));
        let Some(combinations) = combinations.filter(|n| *n <= COMBINATIONS_MAX) else { return true };
        let mut key = vec![ValueRef::Null; self.table.key_columns()];
        (0..combinations).any(|mut i| {
            for (column, values) in &lists {
                key[*column] = values[i % values.len()].as_ref();
                i /= values.len();
            }
            schema.bucket(dimension, &key, &mut Vec::new()).is_ok_and(|found| found == *bucket)
        })
    }

    /// An interval of range keys that has all rows of the scan: the range columns that have to equal something, and the
    /// bounds of the one after them.
    fn range_keys(&self) -> Range {
        let columns = self.table.shared.partition_schema.range();
        let mut equal = Vec::new();
        for (i, column) in columns.iter().enumerate() {
            let column_type = self.table.columns()[*column].column_type;
            let is_last = i + 1 == columns.len();
            let key_of = |value: &Value| {
                let mut key = equal.clone();
                encode_component(column_type, value.as_ref(), is_last, &mut key).ok().map(|()| key)
            };
            match self.listed(*column) {
                Some([value]) => match key_of(value) {
                    Some(key) => equal = key,
                    None => break,
                },
                Some(values) => {
                    let mut keys: Vec<Vec<u8>> = values.iter().filter_map(key_of).collect();
                    keys.sort_unstable();
                    let (Some(first), Some(last)) = (keys.first(), keys.last()) else { break };
                    return Range { lower: first.clone(), upper: after_all_with(last) };
                }
                None => {
                    let (lower, upper) = self.bounds(*column);
                    let lower = lower.and_then(key_of).unwrap_or_else(|| equal.clone());
                    let upper = upper.and_then(key_of).unwrap_or_else(|| after_all_with(&equal));
                    return Range { lower, upper };
                }
            }
        }
        Range { upper: after_all_with(&equal), lower: equal }
    }

    /// The first lower, inclusive, and the first upper bound, exclusive, that predicates have for a column.
    fn bounds(&self, column: usize) -> (Option<&Value>, Option<&Value>) {
        let ranges = self.key_tests.iter().filter_map(|(of, test)| match test {
            Test::Range(range) | Test::InBloomFilter(_, range) if *of == column => Some(range),
            _ => None,
        });
        let lower = ranges.clone().find_map(|ValueRange { lower, .. }| lower.as_ref());
        (lower, ranges.clone().find_map(|ValueRange { upper, .. }| upper.as_ref()))
    }
}

/// The first key after all that begin with `prefix`; empty if there is none.
fn after_all_with(prefix: &[u8]) -> Vec<u8> {
    let mut key = prefix.to_vec();
    while let Some(last) = key.pop() {
        if last < u8::MAX {
            key.push(last + 1);
            return key;
        }
    }
    key
}

fn overlap(a: &Range, b: &Range) -> bool {
    let begins_before_end_of = |a: &Range, b: &Range| b.upper.is_empty() || a.lower < b.upper;
    begins_before_end_of(a, b) && begins_before_end_of(b, a)
}
