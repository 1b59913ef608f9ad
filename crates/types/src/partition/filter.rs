//! Which tablets a look-up has to go to: those whose buckets and ranges its conditions leave.

use super::{HashDimension, Partitioning, RangeDimension};
use crate::key::{after_prefix, encode_component, short_decimal_width, shorten_decimal};
use crate::{ColumnType, Schema, Value};
use std::ops::Bound;

/// What conditions leave of the keys looked for: an interval for each column of the key.
#[derive(Clone, Debug)]
pub struct KeyFilter {
    types: Vec<ColumnType>,
    columns: Vec<(Bound<Value>, Bound<Value>)>,
}

impl KeyFilter {
    /// All keys of `schema`.
    pub fn all(schema: &Schema) -> Self {
        let types: Vec<ColumnType> = schema.key_columns().map(|c| c.column_type).collect();
        KeyFilter { columns: vec![(Bound::Unbounded, Bound::Unbounded); types.len()], types }
    }

    /// Takes in bounds on a column of the key, by its position there. They are values of its type, not null.
    pub fn narrow(&mut self, column: usize, lower: Bound<Value>, upper: Bound<Value>) {
        let (now_lower, now_upper) = &mut self.columns[column];
        if place(&lower, false) > place(now_lower, false) {
            *now_lower = lower;
        }
        let (new, now) = (place(&upper, true), place(now_upper, true));
        if new.is_some() && (now.is_none() || new < now) {
            *now_upper = upper;
        }
    }

    /// The only value that is left of a column.
    fn value(&self, column: u16) -> Option<&Value> {
        match self.columns.get(usize::from(column))? {
            (Bound::Included(lower), Bound::Included(upper)) if lower == upper => Some(lower),
            _ => None,
        }
    }
}

fn encoded(value: &Value, last: bool) -> Vec<u8> {
    let mut key = Vec::new();
    encode_component(value.as_ref(), last, &mut key);
    key
}

/// Where a bound lies among lower or upper ones: those of one value differ by whether it is in.
fn place(bound: &Bound<Value>, upper: bool) -> Option<(Vec<u8>, bool)> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(value) => Some((encoded(value, false), upper)),
        Bound::Excluded(value) => Some((encoded(value, false), !upper)),
    }
}

impl Partitioning {
    /// The numbers of the tablets that keys of `filter` can be in, ascending.
    pub fn tablets_of(&self, filter: &KeyFilter) -> Vec<usize> {
        let Some(range) = &self.range else { return self.buckets_of(0, filter).collect() };
        let (from, to) = range.span(filter);
        let left = range.ranges.iter().enumerate().filter(|(_, range)| range.overlaps(&from, to.as_deref()));
        left.flat_map(|(i, _)| self.buckets_of(i, filter)).collect()
    }

    /// Those of range number `i`.
    fn buckets_of(&self, i: usize, filter: &KeyFilter) -> impl Iterator<Item = usize> + use<> {
        let first = self.firsts[i];
        let mut left = vec![0];
        for dimension in self.dimensions(i) {
            let all = dimension.buckets as usize;
            let buckets = dimension.only_bucket(filter).map_or(0..all, |bucket| bucket..bucket + 1);
            left = left.iter().flat_map(|at| buckets.clone().map(move |bucket| at * all + bucket)).collect();
        }
        left.into_iter().map(move |at| first + at)
    }
}

impl HashDimension {
    /// The bucket of all keys of `filter`, if it leaves one value of each column.
    fn only_bucket(&self, filter: &KeyFilter) -> Option<usize> {
        let mut key = Vec::new();
        for (i, column) in self.columns.iter().enumerate() {
            let start = key.len();
            encode_component(filter.value(*column)?.as_ref(), i + 1 == self.columns.len(), &mut key);
            if self.short_decimals
                && let Some(width) = short_decimal_width(filter.types[usize::from(*column)])
            {
                let short = shorten_decimal(&key[start..], width);
                key.truncate(start);
                key.extend(short);
            }
        }
        Some(self.bucket(&key))
    }
}

impl RangeDimension {
    /// All range keys of `filter` are from the first on and below the second.
    fn span(&self, filter: &KeyFilter) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut prefix = Vec::new();
        for (i, column) in self.columns.iter().enumerate() {
            let last = i + 1 == self.columns.len();
            if let Some(value) = filter.value(*column) {
                encode_component(value.as_ref(), last, &mut prefix);
                continue;
            }
            let at = |value: &Value| [prefix.clone(), encoded(value, last)].concat();
            // The first key behind all those that have this value.
            let behind =
                |value| if last { Some([at(value), vec![0]].concat()) } else { after_prefix(&at(value)) };
            let (lower, upper) = &filter.columns[usize::from(*column)];
            let from = match lower {
                Bound::Unbounded => Some(prefix.clone()),
                Bound::Included(value) => Some(at(value)),
                Bound::Excluded(value) => behind(value),
            };
            let to = match upper {
                Bound::Unbounded => after_prefix(&prefix),
                Bound::Included(value) => behind(value),
                Bound::Excluded(value) => Some(at(value)),
            };
            // Behind the last key of all there is none.
            return from.map_or((Vec::new(), Some(Vec::new())), |from| (from, to));
        }
        let to = [prefix.as_slice(), &[0]].concat();
        (prefix, Some(to))
    }
}
