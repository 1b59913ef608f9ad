//! Which keys there may be. Of integers that lie close together each that there could be has a bit; of others a
//! [Bloom filter](oribi_sstable::bloom), as SSTables have them, takes a byte or two for each.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, Schema};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::{Result, exec_err};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use oribi_sstable::bloom::{BLOCK_BYTES, build_of, contains};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// More keys are not told, so that each has a byte of a Bloom filter at least, which has 3 % of those that are not there.
pub(super) const KEYS_MAX: usize = 4 << 20;
const _: () = assert!((KEYS_MAX / BLOCK_BYTES).is_power_of_two());

/// As long as a set is at most.
pub const KEY_SET_BYTES_MAX: usize = 8 << 20;

/// So long are bits of integers at most, for each key: scans ask them in a fifth of the time that a Bloom filter takes.
const BITS_BYTES_A_KEY: usize = 8;
/// And for few keys.
const BITS_BYTES_MIN: usize = 64 << 10;

/// All processes of a cluster are of one release, and hash alike with it.
const SEED: u64 = 0x6f72_6962;

#[derive(Clone)]
pub struct KeySet {
    /// Of a Bloom filter as many blocks as a power of two.
    bytes: Vec<u8>,
    /// The integer, a multiple of eight, that has the first bit; `None` for a Bloom filter.
    first: Option<i64>,
    /// That there will be in all, in the sets of all tasks: so long it may [be](Self::bytes_max).
    keys: usize,
    /// What counts it, where it is kept.
    counted: Option<Arc<MemoryReservation>>,
}

/// The keys of rows, by which a set knows them.
pub(super) enum Codes {
    /// Of one column: themselves.
    Integers(Vec<i64>),
    Hashes(Vec<u64>),
}

impl Codes {
    /// Of the rows whose keys have no NULL, which equals nothing.
    ///
    /// # Errors
    /// Those of the keys, and of types that have no hash.
    pub(super) fn of(keys: &[Arc<dyn PhysicalExpr>], rows: &RecordBatch) -> Result<Self> {
        let keys = evaluate_expressions_to_arrays(keys, rows)?;
        if let Some(integers) = integers(&keys)? {
            let integers = integers.as_primitive::<Int64Type>();
            return Ok(Codes::Integers(match integers.null_count() {
                0 => integers.values().to_vec(),
                _ => integers.iter().flatten().collect(),
            }));
        }
        let (mut hashes, whole) = hashes(&keys)?;
        if let Some(whole) = whole {
            let mut row = 0..;
            hashes.retain(|_| row.next().is_some_and(|row| whole.is_valid(row)));
        }
        Ok(Codes::Hashes(hashes))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Codes::Integers(codes) => codes.len(),
            Codes::Hashes(codes) => codes.len(),
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// That it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<u64>()
            * match self {
                Codes::Integers(codes) => codes.capacity(),
                Codes::Hashes(codes) => codes.capacity(),
            }
    }

    fn hashes(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Codes::Integers(codes) => Box::new(codes.iter().map(|code| mixed(*code))),
            Codes::Hashes(codes) => Box::new(codes.iter().copied()),
        }
    }

    /// The least and the greatest; `None` of what are no integers, and of nothing.
    fn bounds(&self) -> Option<(i64, i64)> {
        let Codes::Integers(codes) = self else { return None };
        Some((*codes.iter().min()?, *codes.iter().max()?))
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes.len();
        match self.first {
            Some(first) => write!(f, "bits of {bytes} bytes from {first}"),
            None => write!(f, "Bloom filter of {bytes} bytes"),
        }
    }
}

impl PartialEq for KeySet {
    fn eq(&self, other: &Self) -> bool {
        (self.first, self.keys, &self.bytes) == (other.first, other.keys, &other.bytes)
    }
}

impl KeySet {
    /// Of these keys, among `keys` that there will be in all.
    pub(super) fn new(codes: &[Codes], keys: usize) -> Self {
        let bounds = codes.iter().filter(|codes| !codes.is_empty()).map(Codes::bounds);
        let bounds = bounds.reduce(|left, right| {
            let ((least, greatest), (other_least, other_greatest)) = (left?, right?);
            Some((least.min(other_least), greatest.max(other_greatest)))
        });
        match bounds.flatten().map(|(least, greatest)| Self::between(least, greatest)) {
            Some((first, bytes)) if bytes <= Self::bytes_max(keys) => {
                let mut bits = vec![0; bytes];
                let integers = codes.iter().filter_map(|codes| match codes {
                    Codes::Integers(integers) => Some(integers),
                    Codes::Hashes(_) => None,
                });
                for integer in integers.flatten() {
                    let bit = integer.wrapping_sub(first) as u64;
                    bits[(bit / 8) as usize] |= 1 << (bit % 8);
                }
                KeySet { bytes: bits, first: Some(first), keys, counted: None }
            }
            _ => Self::bloom(codes.iter().flat_map(Codes::hashes), keys),
        }
    }

    /// With the first bit before the least, and so many bytes that the greatest has one.
    fn between(least: i64, greatest: i64) -> (i64, usize) {
        let first = least & !7;
        (first, (greatest.wrapping_sub(first) as u64 / 8) as usize + 1)
    }

    fn bloom(hashes: impl IntoIterator<Item = u64>, keys: usize) -> Self {
        let bytes = build_of(Self::bloom_bytes(keys) / BLOCK_BYTES, hashes);
        KeySet { bytes, first: None, keys, counted: None }
    }

    /// How long one is of so many keys, at most.
    pub(super) fn bytes_max(keys: usize) -> usize {
        keys.saturating_mul(BITS_BYTES_A_KEY).clamp(BITS_BYTES_MIN, KEY_SET_BYTES_MAX)
    }

    fn bloom_bytes(keys: usize) -> usize {
        keys.clamp(BLOCK_BYTES, KEYS_MAX).next_power_of_two()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// One for each integer that there could be.
    pub(super) fn has_bits(&self) -> bool {
        self.first.is_some()
    }

    /// As long as it lives, `room` is kept.
    #[must_use]
    pub(super) fn counted(mut self, room: MemoryReservation) -> Self {
        self.counted = Some(Arc::new(room));
        self
    }

    /// Counted in `room`; `None` if there is none.
    pub(super) fn within(self, room: MemoryReservation) -> Option<Self> {
        room.try_grow(self.bytes.len()).ok()?;
        Some(self.counted(room))
    }

    /// Of the keys of both.
    pub(super) fn or(self, other: Self) -> Self {
        let keys = self.keys.max(other.keys);
        if let (Some(left), Some(right)) = (self.first, other.first) {
            let (first, bytes) = Self::between(left.min(right), self.last(left).max(other.last(right)));
            if bytes <= Self::bytes_max(keys) {
                let counted = self.counted.clone().or_else(|| other.counted.clone());
                let mut bits = vec![0; bytes];
                for (of_first, set) in [(left, self), (right, other)] {
                    let bits = bits[(of_first.wrapping_sub(first) as u64 / 8) as usize..].iter_mut();
                    bits.zip(set.bytes).for_each(|(byte, other)| *byte |= other);
                }
                return KeySet { bytes: bits, first: Some(first), keys, counted: None }.in_place_of(counted);
            }
        }
        self.into_bloom(keys).or_bloom(other.into_bloom(keys))
    }

    /// The integer that has the last bit.
    fn last(&self, first: i64) -> i64 {
        first.saturating_add_unsigned(self.bytes.len() as u64 * 8 - 1)
    }

    /// With room for so many keys, if it is none yet.
    fn into_bloom(self, keys: usize) -> Self {
        let Some(first) = self.first else { return self };
        let bits = self.bytes.len() * 8;
        let bits = BooleanBuffer::new(self.bytes.into(), 0, bits);
        let hashes = bits.set_indices().map(|bit| mixed(first.wrapping_add_unsigned(bit as u64)));
        Self::bloom(hashes, keys).in_place_of(self.counted)
    }

    /// Counted, beyond what there is room for if it must be, where one was that is no more.
    fn in_place_of(self, counted: Option<Arc<MemoryReservation>>) -> Self {
        if let Some(room) = &counted {
            room.resize(self.bytes.len());
        }
        KeySet { counted, ..self }
    }

    fn or_bloom(self, other: Self) -> Self {
        let (mut large, small) = match self.bytes.len() >= other.bytes.len() {
            true => (self, other),
            false => (other, self),
        };
        let times = large.bytes.len() / small.bytes.len();
        for (place, block) in large.bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            let other = small.bytes[place / times * BLOCK_BYTES..].iter();
            block.iter_mut().zip(other).for_each(|(byte, other)| *byte |= other);
        }
        large
    }

    /// Its bits, the integer of the first if they are of integers, and how many keys there will be in all.
    pub(super) fn parts(&self) -> (&[u8], Option<i64>, usize) {
        (&self.bytes, self.first, self.keys)
    }

    /// One of these [`parts`](Self::parts); `None` for some that none has.
    pub(super) fn from_parts(bytes: Vec<u8>, first: Option<i64>, keys: usize) -> Option<Self> {
        let is_one = match first {
            Some(first) => first % 8 == 0 && (1..=Self::bytes_max(keys)).contains(&bytes.len()),
            None => bytes.len() == Self::bloom_bytes(keys),
        };
        is_one.then_some(KeySet { bytes, first, keys, counted: None })
    }

    /// Which rows have keys that may be there: a nanosecond or two each where they have bits, and some more by a Bloom filter.
    fn may_have(&self, keys: &[ArrayRef]) -> Result<BooleanBuffer> {
        let (passed, whole) = match (integers(keys)?, self.first) {
            (Some(integers), first) => {
                let values = integers.as_primitive::<Int64Type>().values();
                let passed = match first {
                    Some(first) => BooleanBuffer::collect_bool(values.len(), |row| {
                        let bit = values[row].wrapping_sub(first) as u64;
                        self.bytes.get((bit / 8) as usize).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
                    }),
                    None => BooleanBuffer::collect_bool(values.len(), |row| {
                        contains(&self.bytes, mixed(values[row]))
                    }),
                };
                (passed, integers.nulls().cloned())
            }
            // Keys of these types have no bits.
            (None, Some(_)) => {
                return Ok(BooleanBuffer::new_set(keys.first().map_or(0, |key| key.len())));
            }
            (None, None) => {
                let (hashes, whole) = hashes(keys)?;
                let passed =
                    BooleanBuffer::collect_bool(hashes.len(), |row| contains(&self.bytes, hashes[row]));
                (passed, whole)
            }
        };
        Ok(match whole {
            Some(whole) => &passed & whole.inner(),
            None => passed,
        })
    }
}

/// The only key as 64 bits; `None` for others.
fn integers(keys: &[ArrayRef]) -> Result<Option<ArrayRef>> {
    use DataType::{Date32, Int16, Int32, Int64};
    Ok(match keys {
        [key] if matches!(key.data_type(), Int16 | Int32 | Int64 | Date32) => Some(cast(key, &Int64)?),
        _ => None,
    })
}

/// By which a Bloom filter has an integer: the finalizer of MurmurHash3.
fn mixed(integer: i64) -> u64 {
    let mixed = integer as u64;
    let mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}

/// Of each row, by its values; and which rows have none that is NULL, which equals nothing.
fn hashes(keys: &[ArrayRef]) -> Result<(Vec<u64>, Option<NullBuffer>)> {
    let mut hashes = vec![0; keys.first().map_or(0, |key| key.len())];
    create_hashes(keys, &RandomState::with_seed(SEED), &mut hashes)?;
    let whole =
        keys.iter().fold(None, |whole, key| NullBuffer::union(whole.as_ref(), key.logical_nulls().as_ref()));
    Ok((hashes, whole))
}

/// Whether a row's keys may be in a set.
#[derive(Debug)]
pub(super) struct MayBeIn {
    pub(super) keys: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) set: Arc<KeySet>,
}

impl PartialEq for MayBeIn {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys && Arc::ptr_eq(&self.set, &other.set)
    }
}

impl Eq for MayBeIn {}

impl Hash for MayBeIn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.keys.hash(state);
        Arc::as_ptr(&self.set).hash(state);
    }
}

impl fmt::Display for MayBeIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is among the keys of the join")
    }
}

impl PhysicalExpr for MayBeIn {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        Ok(false)
    }

    fn evaluate(&self, rows: &RecordBatch) -> Result<ColumnarValue> {
        let may_be = self.set.may_have(&evaluate_expressions_to_arrays(&self.keys, rows)?)?;
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::from(may_be))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.keys.iter().collect()
    }

    fn with_new_children(self: Arc<Self>, keys: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        match keys.len() == self.keys.len() {
            true => Ok(Arc::new(MayBeIn { keys, set: Arc::clone(&self.set) })),
            false => exec_err!("a filter has {} keys, not {}", self.keys.len(), keys.len()),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, Int64Array, StringViewArray};
    use arrow::datatypes::Field;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use datafusion::physical_expr::expressions::Column;
    use proptest::prelude::*;

    fn of(keys: &[i64], all: usize) -> KeySet {
        KeySet::new(&[Codes::Integers(keys.to_vec())], all)
    }

    fn has(set: &KeySet, key: i64) -> bool {
        set.may_have(&[Arc::new(Int64Array::from(vec![key]))]).unwrap().value(0)
    }

    /// Close together, anywhere, and at the ends.
    fn keys() -> impl Strategy<Value = Vec<i64>> {
        let close = (any::<i64>(), proptest::collection::vec(0..2000i64, 0..50))
            .prop_map(|(first, keys)| keys.into_iter().map(|key| first.saturating_add(key)).collect());
        let small = proptest::collection::vec(-3000..3000i64, 0..50);
        let ends =
            proptest::collection::vec(prop_oneof![i64::MIN..i64::MIN + 99, i64::MAX - 99..=i64::MAX], 0..9);
        prop_oneof![close, small, ends, any::<Vec<i64>>()]
    }

    proptest! {
        #[test]
        fn all_keys_are_there(
            left in keys(),
            right in keys(),
            (few, many) in (0..100usize, 0..100_000usize),
        ) {
            let both = of(&left, few).or(of(&right, many));
            prop_assert!(both.bytes.len() <= KeySet::bytes_max(few.max(many)));
            prop_assert!(left.iter().chain(&right).all(|key| has(&both, *key)));
            if both.first.is_some() {
                let mut others = left.iter().map(|key| key ^ 5).filter(|key| !left.contains(key) && !right.contains(key));
                prop_assert!(others.all(|key| !has(&both, key)), "bits are exact");
            }
            let (bytes, first, keys) = both.parts();
            prop_assert_eq!(KeySet::from_parts(bytes.to_vec(), first, keys), Some(both));
        }

        #[test]
        fn garbage_is_none(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            first in prop_oneof![any::<i64>(), i64::MIN..i64::MIN + 99, i64::MAX - 2000..=i64::MAX],
            keys in 0..300usize,
            key: i64,
        ) {
            let is_one = bytes.len() == KeySet::bloom_bytes(keys);
            prop_assert_eq!(KeySet::from_parts(bytes.clone(), None, keys).is_some(), is_one);
            let is_one = first % 8 == 0 && (1..=KeySet::bytes_max(keys)).contains(&bytes.len());
            prop_assert_eq!(KeySet::from_parts(bytes.clone(), Some(first), keys).is_some(), is_one);
            if let Some(set) = KeySet::from_parts(bytes, Some(first & !7), keys) {
                prop_assert!(has(&set.clone().or(of(&[key], 1)).or(set), key));
            }
        }
    }

    #[test]
    fn few_others_are_found() {
        let keys: Vec<i64> = (0..100_000).map(|key| key * 100_000).collect();
        let bloom = of(&keys, keys.len());
        assert_eq!(bloom.first, None);
        let found = (1_000_000..1_100_000).filter(|key| has(&bloom, key * 100_000)).count();
        assert!(found < 4_000, "{found} of 100,000");
        assert_eq!(KeySet::bytes_max(usize::MAX), KEY_SET_BYTES_MAX);
    }

    #[test]
    fn integers_that_lie_close_have_bits_of_whatever_length_they_are() {
        let keys: Vec<i64> = (-50..1000).step_by(3).collect();
        let set = of(&keys, keys.len());
        assert_eq!(set.first, Some(-56));
        let asked: ArrayRef =
            Arc::new(Int32Array::from(vec![Some(-50), None, Some(-49), Some(997), Some(i32::MIN)]));
        let passed = set.may_have(&[asked]).unwrap();
        assert_eq!(passed.iter().collect::<Vec<_>>(), [true, false, false, true, false]);
        // Of those that lie too far apart when they are put together there is a Bloom filter, with room for all.
        let far = of(&[1 << 40], 1);
        assert!(far.first.is_some());
        let both = set.or(far);
        assert!(both.first.is_none() && has(&both, 1 << 40) && has(&both, 997) && !has(&both, 996));
        assert_eq!(both.bytes.len(), KeySet::bloom_bytes(keys.len()));
    }

    #[test]
    fn keys_of_each_type_are_found() {
        let integers = Int64Array::from(vec![Some(9), Some(-3), None, Some(300), Some(5), Some(7)]);
        for (data_type, has_bits) in [
            (DataType::Int16, true),
            (DataType::Int32, true),
            (DataType::Int64, true),
            (DataType::Date32, true),
            (DataType::Float64, false),
            (DataType::Utf8View, false),
        ] {
            let column = cast(&cast(&integers, &DataType::Int32).unwrap(), &data_type).unwrap();
            // Not from the first value on.
            let seen = RecordBatch::try_from_iter([("k", column.slice(1, 3))]).unwrap();
            let asked = RecordBatch::try_from_iter([("k", column)]).unwrap();
            let keys: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(Column::new("k", 0))];
            let set = KeySet::new(&[Codes::of(&keys, &seen).unwrap()], 300);
            assert_eq!(set.has_bits(), has_bits, "{data_type}");
            let passed = set.may_have(asked.columns()).unwrap();
            assert_eq!(
                passed.iter().collect::<Vec<_>>(),
                [false, true, false, true, false, false],
                "{data_type}"
            );
        }
        // What has bits says nothing about others.
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["a"]));
        assert!(of(&[1], 1).may_have(&[texts]).unwrap().value(0));
    }

    #[test]
    fn what_is_there_is_counted() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
        let counted =
            |set: KeySet| set.within(MemoryConsumer::new("keys").register(&pool)).expect("there is room");
        let mut all = counted(of(&[0], 1000));
        for key in [1, 900, 70_000, 1 << 40] {
            all = all.or(counted(of(&[key], 1000)));
            assert_eq!(pool.reserved(), all.bytes.len());
        }
        assert!(!all.has_bits());
        drop(all);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn rows_are_looked_up_by_all_their_keys() {
        let rows = |numbers: Vec<Option<i64>>, texts: Vec<Option<&str>>| {
            let schema = Arc::new(Schema::new(vec![
                Field::new("n", DataType::Int64, true),
                Field::new("t", DataType::Utf8View, true),
            ]));
            let columns: Vec<ArrayRef> =
                vec![Arc::new(Int64Array::from(numbers)), Arc::new(StringViewArray::from(texts))];
            RecordBatch::try_new(schema, columns).unwrap()
        };
        let keys: Vec<Arc<dyn PhysicalExpr>> =
            vec![Arc::new(Column::new("n", 0)), Arc::new(Column::new("t", 1))];
        let seen = rows(vec![Some(1), Some(2), None], vec![Some("a"), Some("b"), Some("c")]);
        let codes = Codes::of(&keys, &seen).unwrap();
        assert_eq!(codes.len(), 2);
        let numbers = vec![Some(1), Some(2), Some(1), None, Some(2)];
        let texts = vec![Some("a"), Some("b"), Some("b"), Some("a"), None];
        let asked = MayBeIn { keys, set: Arc::new(KeySet::new(&[codes], 2)) };
        let ColumnarValue::Array(passed) = asked.evaluate(&rows(numbers, texts)).unwrap() else { panic!() };
        let expected = BooleanArray::from(vec![true, true, false, false, false]);
        assert_eq!(passed.as_ref(), &expected as &dyn Array);
    }
}
