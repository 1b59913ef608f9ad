//! Which keys there may be, in a byte or two for each: a [Bloom filter](oribi_sstable::bloom), as SSTables have them.

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Schema};
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

/// As long as one is at most; more keys are not told, so that each has a byte at least, and of those that are not there 3 % are found.
pub const BLOOM_BYTES_MAX: usize = 4 << 20;
pub const KEYS_MAX: usize = BLOOM_BYTES_MAX;
const _: () = assert!((BLOOM_BYTES_MAX / BLOCK_BYTES).is_power_of_two());

/// All processes of a cluster are of one release, and hash alike with it.
const SEED: u64 = 0x6f72_6962;

#[derive(Clone)]
pub struct Bloom {
    /// Of as many blocks as a power of two.
    bytes: Vec<u8>,
    /// What counts it, where it is kept.
    counted: Option<Arc<MemoryReservation>>,
}

impl fmt::Debug for Bloom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bloom filter of {} bytes", self.bytes.len())
    }
}

impl PartialEq for Bloom {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Bloom {
    /// Of keys with these [hashes](hashes_of), among `keys` that there will be in all.
    pub fn new(hashes: impl IntoIterator<Item = u64>, keys: usize) -> Self {
        Bloom { bytes: build_of(Self::bytes_of(keys) / BLOCK_BYTES, hashes), counted: None }
    }

    /// How long one is of so many keys.
    pub fn bytes_of(keys: usize) -> usize {
        keys.clamp(BLOCK_BYTES, BLOOM_BYTES_MAX).next_power_of_two()
    }

    /// As long as it lives, `room` is kept.
    #[must_use]
    pub fn counted(mut self, room: MemoryReservation) -> Self {
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

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// One of these [`bytes`](Self::bytes); `None` for bytes that none has.
    pub(super) fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let is_one = bytes.len().is_power_of_two() && (BLOCK_BYTES..=BLOOM_BYTES_MAX).contains(&bytes.len());
        is_one.then_some(Bloom { bytes, counted: None })
    }
}

/// As [`hashes`], of the keys that `rows` have.
///
/// # Errors
/// Those of the keys too.
pub fn hashes_of(
    keys: &[Arc<dyn PhysicalExpr>],
    rows: &RecordBatch,
) -> Result<(Vec<u64>, Option<NullBuffer>)> {
    hashes(&evaluate_expressions_to_arrays(keys, rows)?)
}

/// Of each row, by its values; and which rows have none that is null, which equals nothing.
///
/// # Errors
/// Those of types that have no hash.
pub(super) fn hashes(keys: &[ArrayRef]) -> Result<(Vec<u64>, Option<NullBuffer>)> {
    let mut hashes = vec![0; keys.first().map_or(0, |key| key.len())];
    create_hashes(keys, &RandomState::with_seed(SEED), &mut hashes)?;
    let whole =
        keys.iter().fold(None, |whole, key| NullBuffer::union(whole.as_ref(), key.logical_nulls().as_ref()));
    Ok((hashes, whole))
}

/// Whether a row's keys may be among those of a filter.
#[derive(Debug)]
pub(super) struct MayBeIn {
    pub(super) keys: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) bloom: Arc<Bloom>,
}

impl PartialEq for MayBeIn {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys && Arc::ptr_eq(&self.bloom, &other.bloom)
    }
}

impl Eq for MayBeIn {}

impl Hash for MayBeIn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.keys.hash(state);
        Arc::as_ptr(&self.bloom).hash(state);
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
        let (hashes, whole) = hashes_of(&self.keys, rows)?;
        let may_be =
            BooleanBuffer::collect_bool(hashes.len(), |row| contains(&self.bloom.bytes, hashes[row]));
        let may_be = match whole {
            Some(whole) => &may_be & whole.inner(),
            None => may_be,
        };
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::from(may_be))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.keys.iter().collect()
    }

    fn with_new_children(self: Arc<Self>, keys: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        match keys.len() == self.keys.len() {
            true => Ok(Arc::new(MayBeIn { keys, bloom: Arc::clone(&self.bloom) })),
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
    use arrow::array::{Int64Array, StringViewArray};
    use arrow::datatypes::Field;
    use datafusion::physical_expr::expressions::Column;
    use proptest::prelude::*;

    fn of(keys: &[i64], all: usize) -> Bloom {
        Bloom::new(hashes(&[Arc::new(Int64Array::from(keys.to_vec()))]).unwrap().0, all)
    }

    fn has(bloom: &Bloom, key: i64) -> bool {
        contains(&bloom.bytes, hashes(&[Arc::new(Int64Array::from(vec![key]))]).unwrap().0[0])
    }

    proptest! {
        #[test]
        fn all_keys_are_there(
            left: Vec<i64>,
            right: Vec<i64>,
            (few, many) in (0..100usize, 0..100_000usize),
        ) {
            let both = of(&left, few).or(of(&right, many));
            prop_assert_eq!(both.bytes.len(), Bloom::bytes_of(many.max(few)));
            prop_assert!(left.iter().chain(&right).all(|key| has(&both, *key)));
            prop_assert_eq!(Bloom::from_bytes(both.bytes().to_vec()), Some(both));
        }

        #[test]
        fn garbage_is_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let is_one = [32, 64, 128, 256].contains(&bytes.len());
            prop_assert_eq!(Bloom::from_bytes(bytes).is_some(), is_one);
        }
    }

    #[test]
    fn few_others_are_found() {
        let keys: Vec<i64> = (0..100_000).collect();
        let bloom = of(&keys, keys.len());
        let found = (1_000_000..1_100_000).filter(|key| has(&bloom, *key)).count();
        assert!(found < 4_000, "{found} of 100,000");
        assert_eq!(Bloom::bytes_of(usize::MAX), BLOOM_BYTES_MAX);
    }

    #[test]
    fn rows_are_looked_up_by_all_their_keys() {
        let columns = |numbers: Vec<Option<i64>>, texts: Vec<Option<&str>>| -> Vec<ArrayRef> {
            vec![Arc::new(Int64Array::from(numbers)), Arc::new(StringViewArray::from(texts))]
        };
        let (of_keys, _) = hashes(&columns(vec![Some(1), Some(2)], vec![Some("a"), Some("b")])).unwrap();
        let schema = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("t", DataType::Utf8View, true),
        ]));
        let numbers = vec![Some(1), Some(2), Some(1), None, Some(2)];
        let texts = vec![Some("a"), Some("b"), Some("b"), Some("a"), None];
        let rows = RecordBatch::try_new(schema, columns(numbers, texts)).unwrap();
        let keys: Vec<Arc<dyn PhysicalExpr>> =
            vec![Arc::new(Column::new("n", 0)), Arc::new(Column::new("t", 1))];
        let asked = MayBeIn { keys, bloom: Arc::new(Bloom::new(of_keys, 2)) };
        let ColumnarValue::Array(passed) = asked.evaluate(&rows).unwrap() else { panic!() };
        let expected = BooleanArray::from(vec![true, true, false, false, false]);
        assert_eq!(passed.as_ref(), &expected as &dyn Array);
    }
}
