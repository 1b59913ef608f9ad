//! Bounds of a range read, as encoded keys.

use oribi_types::key::after_prefix;
use std::ops::Bound;

/// The keys from `from` on and below `to`; without `to`, all from `from` on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    pub from: Vec<u8>,
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    pub fn new(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Self {
        let from = match from {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => after(key),
            Bound::Unbounded => Vec::new(),
        };
        let to = match to {
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        KeyRange { from, to }
    }

    /// One key.
    pub fn of_key(key: &[u8]) -> Self {
        KeyRange { from: key.to_vec(), to: Some(after(key)) }
    }

    /// The keys that begin with `prefix`.
    pub fn of_prefix(prefix: &[u8]) -> Self {
        KeyRange { from: prefix.to_vec(), to: after_prefix(prefix) }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        *self.from <= *key && self.ends_behind(key)
    }

    /// Whether some key from `min` to `max`, both included, may be in the range.
    pub fn overlaps(&self, min: &[u8], max: &[u8]) -> bool {
        *self.from <= *max && self.ends_behind(min)
    }

    /// Whether no key is in the range.
    pub fn is_empty(&self) -> bool {
        !self.ends_behind(&self.from)
    }

    fn ends_behind(&self, key: &[u8]) -> bool {
        self.to.as_deref().is_none_or(|to| key < to)
    }
}

/// The first key behind `key`.
pub(super) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ops::RangeBounds;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0), Just(1), Just(254), Just(255)], 0..4)
    }

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        prop_oneof![
            bytes().prop_map(Bound::Included),
            bytes().prop_map(Bound::Excluded),
            Just(Bound::Unbounded),
        ]
    }

    proptest! {
        #[test]
        fn a_range_has_what_its_bounds_say(from in bound(), to in bound(), key in bytes(), prefix in bytes()) {
            let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
            let range = KeyRange::new(from, to);
            let within = RangeBounds::<[u8]>::contains(&(from, to), key.as_slice());
            prop_assert_eq!(range.contains(&key), within);
            prop_assert_eq!(range.overlaps(&key, &key), within);
            prop_assert!(!(within && range.is_empty()));
            prop_assert_eq!(KeyRange::of_prefix(&prefix).contains(&key), key.starts_with(&prefix));
        }
    }
}
