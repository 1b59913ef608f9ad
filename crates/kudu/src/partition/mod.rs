//! How a table's rows are divided among its tablets.
//!
//! A table has any number of hash dimensions, each over some key columns, and a range over some key columns; a tablet
//! is one combination of buckets within one range. A row's *partition key* is, for each dimension, its bucket as a
//! big-endian
//! `u32`, and then its *range key*: the range columns, encoded as keys are. Tablets cover intervals of partition keys,
//! inclusive at the start and exclusive at the end, and are listed in that order; a client looks a row up by the last
//! tablet that starts at or before its partition key.
//!
//! Clients compute all of this themselves, so that what is here must agree with them to the byte (Apache Kudu,
//! `src/kudu/common/partition.cc`).

pub mod message;
pub mod range;

pub use message::PartitionedTable;
pub use range::{Range, RangeKeys};

use crate::column::WireColumn;
use crate::key::encode_component;
use oribi_types::key::murmur_hash2_64a;
use oribi_types::{ColumnType, Error, Result, ValueRef};

/// Bytes of a bucket in a partition key.
const BUCKET_BYTES: usize = 4;

/// The most tablets of a table: above what clients ask for, and a bound on what foreign numbers can make us allocate.
pub const TABLETS_MAX: usize = 10_000;

/// One hash dimension: its columns decide a row's bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashDimension {
    /// Positions in the key, ascending. Clients hash the columns in the order of their ids, which ascends with the key.
    columns: Vec<usize>,
    buckets: u32,
    seed: u32,
}

impl HashDimension {
    /// A dimension over `columns` (positions in the key, in any order).
    pub fn new(mut columns: Vec<usize>, buckets: u32, seed: u32) -> Self {
        columns.sort_unstable();
        HashDimension { columns, buckets, seed }
    }

    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    pub fn seed(&self) -> u32 {
        self.seed
    }
}

/// A range that is hashed in its own way, rather than the table's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomRange {
    pub range: Range,
    pub hash: Vec<HashDimension>,
}

/// How a table is partitioned. Its ranges are those of its tablets, so that only those hashed in their own way stand
/// here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionSchema {
    /// Types of the key columns, in key order.
    key: Vec<ColumnType>,
    hash: Vec<HashDimension>,
    /// Positions in the key; none if the table has no ranges.
    range: Vec<usize>,
    custom: Vec<CustomRange>,
}

/// What one tablet covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// One per hash dimension.
    pub hash_buckets: Vec<u32>,
    /// Partition key, inclusive.
    pub start: Vec<u8>,
    /// Partition key, exclusive; empty if nothing follows.
    pub end: Vec<u8>,
}

impl PartitionSchema {
    /// Partitioning by `hash` and by ranges of the columns `range` (positions in the key).
    ///
    /// # Errors
    /// `Invalid` for a column that is not in the key or stands twice, for a dimension without columns or with fewer than
    /// two buckets, and for custom ranges that overlap or have another number of dimensions; `Unsupported` for a key
    /// column of a type that Kudu's keys cannot have.
    pub fn new(
        key: &[WireColumn],
        hash: Vec<HashDimension>,
        range: Vec<usize>,
        custom: Vec<CustomRange>,
    ) -> Result<Self> {
        if let Some(column) = key.iter().find(|c| !c.is_key_type()) {
            let (name, data_type) = (&column.name, column.data_type());
            return Err(Error::unsupported(format!("column \"{name}\" of type {data_type} in a key")));
        }
        check_columns(key.len(), range.iter(), "range partitioning")?;
        check_dimensions(key.len(), &hash)?;
        for custom in &custom {
            if custom.hash.len() != hash.len() {
                return Err(Error::invalid(format!(
                    "a range has {} hash dimensions, the table {}",
                    custom.hash.len(),
                    hash.len()
                )));
            }
            check_dimensions(key.len(), &custom.hash)?;
        }
        range::check_disjoint(custom.iter().map(|custom| &custom.range))?;
        let key = key.iter().map(|column| column.column_type).collect();
        Ok(PartitionSchema { key, hash, range, custom })
    }

    pub fn hash(&self) -> &[HashDimension] {
        &self.hash
    }

    /// Positions in the key of the range columns.
    pub fn range(&self) -> &[usize] {
        &self.range
    }

    pub fn custom(&self) -> &[CustomRange] {
        &self.custom
    }

    /// What is needed to turn bounds into ranges.
    pub fn range_keys(&self) -> RangeKeys<'_> {
        RangeKeys { key: &self.key, columns: &self.range }
    }

    /// How rows with this range key are hashed.
    pub fn hash_within(&self, range_key: &[u8]) -> &[HashDimension] {
        let custom = self.custom.iter().find(|custom| custom.range.contains(range_key));
        custom.map_or(&self.hash, |custom| &custom.hash)
    }

    /// The bucket of a row in `dimension`, by the row's key columns. `scratch` is left as it was.
    ///
    /// # Errors
    /// `Invalid` for null or a value of another type.
    pub fn bucket(
        &self,
        dimension: &HashDimension,
        key: &[ValueRef<'_>],
        scratch: &mut Vec<u8>,
    ) -> Result<u32> {
        let start = scratch.len();
        self.encode_columns(&dimension.columns, key, scratch)?;
        let hash = murmur_hash2_64a(&scratch[start..], u64::from(dimension.seed));
        scratch.truncate(start);
        Ok((hash % u64::from(dimension.buckets)) as u32)
    }

    /// Appends the partition key of a row, by its key columns.
    ///
    /// # Errors
    /// `Invalid` for null or a value of another type.
    pub fn partition_key(&self, key: &[ValueRef<'_>], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let hash_bytes = self.hash.len() * BUCKET_BYTES;
        out.resize(start + hash_bytes, 0);
        self.encode_columns(&self.range, key, out)?;
        let dimensions = self.hash_within(&out[start + hash_bytes..]);
        for (i, dimension) in dimensions.iter().enumerate() {
            let bucket = self.bucket(dimension, key, out)?;
            out[start + i * BUCKET_BYTES..][..BUCKET_BYTES].copy_from_slice(&bucket.to_be_bytes());
        }
        Ok(())
    }

    fn encode_columns(&self, columns: &[usize], key: &[ValueRef<'_>], out: &mut Vec<u8>) -> Result<()> {
        if key.len() != self.key.len() {
            return Err(Error::invalid(format!("the key has {} columns, not {}", self.key.len(), key.len())));
        }
        for (i, &column) in columns.iter().enumerate() {
            encode_component(self.key[column], key[column], i + 1 == columns.len(), out)?;
        }
        Ok(())
    }

    /// The tablets of a table with these `ranges`, in the order of their partition keys. A table without range
    /// columns has the one range that is unbounded.
    ///
    /// # Errors
    /// `Invalid` for ranges that overlap; `TooLarge` beyond [`TABLETS_MAX`].
    pub fn partitions(&self, ranges: &[Range]) -> Result<Vec<Partition>> {
        range::check_disjoint(ranges.iter())?;
        let mut partitions = Vec::new();
        for range in ranges {
            // A range is hashed as its first row would be.
            let dimensions = self.hash_within(&range.lower);
            let tablets = dimensions.iter().try_fold(1_usize, |n, d| n.checked_mul(d.buckets as usize));
            let total = tablets.and_then(|n| n.checked_add(partitions.len()));
            if total.is_none_or(|n| n > TABLETS_MAX) {
                return Err(Error::too_large(format!("a table has at most {TABLETS_MAX} tablets")));
            }
            partitions.extend(buckets(dimensions).map(|hash_buckets| Partition::new(hash_buckets, range)));
        }
        partitions.sort_unstable_by(|a, b| a.start.cmp(&b.start));
        Ok(partitions)
    }
}

impl Partition {
    /// The tablet of `hash_buckets` within `range`.
    fn new(hash_buckets: Vec<u32>, range: &Range) -> Self {
        let prefix: Vec<u8> = hash_buckets.iter().flat_map(|bucket| bucket.to_be_bytes()).collect();
        let start = [prefix.as_slice(), &range.lower].concat();
        let end = match hash_buckets.last() {
            Some(last) if range.upper.is_empty() => {
                // Everything with these buckets: up to where the next bucket of the last dimension would begin.
                let next = (last + 1).to_be_bytes();
                [&prefix[..prefix.len() - BUCKET_BYTES], &next].concat()
            }
            _ => [prefix.as_slice(), &range.upper].concat(),
        };
        Partition { hash_buckets, start, end }
    }

    /// Whether a row with this partition key belongs here.
    pub fn contains(&self, partition_key: &[u8]) -> bool {
        self.start.as_slice() <= partition_key && (self.end.is_empty() || partition_key < self.end.as_slice())
    }

    /// The range part of `start` and `end`.
    pub fn range(&self) -> Range {
        let hash_bytes = self.hash_buckets.len() * BUCKET_BYTES;
        let part = |key: &[u8]| key.get(hash_bytes..).unwrap_or_default().to_vec();
        Range { lower: part(&self.start), upper: part(&self.end) }
    }
}

/// The last of `partitions`, which are in order, that starts at or before `partition_key`: where the answer to a
/// look-up begins, even if that tablet ends before the key. `None` if all start after it.
pub fn floor<T>(partitions: &[T], partition_key: &[u8], start: impl Fn(&T) -> &[u8]) -> Option<usize> {
    partitions.partition_point(|p| start(p) <= partition_key).checked_sub(1)
}

/// All combinations of buckets, the last dimension fastest.
fn buckets(dimensions: &[HashDimension]) -> impl Iterator<Item = Vec<u32>> + '_ {
    let total: usize = dimensions.iter().map(|d| d.buckets as usize).product();
    (0..total).map(move |mut i| {
        let mut combination = vec![0; dimensions.len()];
        for (bucket, dimension) in combination.iter_mut().zip(dimensions).rev() {
            *bucket = (i % dimension.buckets as usize) as u32;
            i /= dimension.buckets as usize;
        }
        combination
    })
}

fn check_columns<'c>(key_columns: usize, columns: impl Iterator<Item = &'c usize>, what: &str) -> Result<()> {
    let mut seen = vec![false; key_columns];
    for &column in columns {
        match seen.get_mut(column) {
            None => return Err(Error::invalid(format!("{what} takes columns of the primary key only"))),
            Some(true) => return Err(Error::invalid(format!("{what} names a column twice"))),
            Some(seen) => *seen = true,
        }
    }
    Ok(())
}

fn check_dimensions(key_columns: usize, dimensions: &[HashDimension]) -> Result<()> {
    check_columns(key_columns, dimensions.iter().flat_map(|d| &d.columns), "hash partitioning")?;
    for dimension in dimensions {
        if dimension.columns.is_empty() {
            return Err(Error::invalid("a hash dimension needs a column"));
        }
        // A bucket's successor ends a tablet, and the wire has it as a signed number.
        if dimension.buckets < 2 || dimension.buckets > i32::MAX as u32 {
            return Err(Error::invalid(format!("{} hash buckets: at least 2 are needed", dimension.buckets)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
