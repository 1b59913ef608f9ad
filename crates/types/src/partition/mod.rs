//! Partitioning: which tablet of a table a key belongs to.
//!
//! As Kudu has it: any number of hash dimensions and at most one range dimension, each over columns of the primary key.
//! The tablets are the product of all buckets with all ranges. A range may have hash dimensions of its own, as many as
//! the table has. A key that lies in no range belongs to no tablet.
//!
//! Tablets are numbered range by range in ascending order, and in a range by buckets, of which those of the last
//! dimension vary fastest. When a range comes or goes, those behind it get other numbers; their ids stay.

mod filter;
mod stored;
mod values;

pub use filter::KeyFilter;
pub use values::{decode_range_key, encode_range_key, least_value, next_values};

use crate::key::{KeyBuf, murmur_hash2_64a, project_key, short_decimal_width};
use crate::{Error, Result, Schema};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use stored::{Stored, hex, hex_option};

/// How the keys of a table are assigned to tablets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Partitioning {
    hash: Vec<HashDimension>,
    range: Option<RangeDimension>,
    /// The number of each range's first tablet and, last, that of all tablets. Without ranges there is one of all keys.
    firsts: Vec<usize>,
    look_up: LookUp,
}

/// What it takes to find the tablet of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookUp {
    /// There is one.
    Nothing,
    /// A bucket of the only dimension; no ranges, or one of all keys.
    Bucket,
    /// Its range, and a bucket in each dimension.
    All,
}

/// Rows by MurmurHash2-64A with `seed` over the encoded `columns`, modulo `buckets`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashDimension {
    /// Positions in the key, ascending.
    pub columns: Vec<u16>,
    pub buckets: u32,
    pub seed: u32,
    /// A decimal of at most 18 digits is among the columns, and hashed in 4 or 8 bytes, as Kudu's clients have it; keys
    /// have 16. False for tables from before there were ranges.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    short_decimals: bool,
}

/// Rows by ranges of the encoded `columns`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeDimension {
    /// Positions in the key, in any order.
    pub columns: Vec<u16>,
    /// Ascending and disjoint; there may be gaps.
    pub ranges: Vec<RangePartition>,
}

/// The encoded range keys from `lower` on and below `upper`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangePartition {
    /// Empty: there is no bound.
    #[serde(with = "hex")]
    pub lower: Vec<u8>,
    #[serde(with = "hex_option")]
    pub upper: Option<Vec<u8>>,
    /// Dimensions that this range has in place of the table's.
    pub hash: Option<Vec<HashDimension>>,
}

/// Where a tablet lies: its bucket in each hash dimension, and its range if there are ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    pub buckets: Vec<u32>,
    pub range: Option<&'a RangePartition>,
}

/// More tablets than this in one table are refused: each has files and memory of its own.
pub const TABLETS_MAX: usize = 4096;

impl Partitioning {
    /// One tablet.
    pub fn none() -> Self {
        Partitioning::hash(Vec::new(), 1)
    }

    /// One hash dimension of `buckets` with seed 0 over columns that are no decimals; none if there is one bucket.
    pub fn hash(columns: Vec<u16>, buckets: u32) -> Self {
        let dimension = HashDimension { columns, buckets, seed: 0, short_decimals: false };
        let hash = if buckets == 1 { Vec::new() } else { vec![dimension] };
        Partitioning::assemble(hash, None)
    }

    /// # Errors
    /// `Invalid` for a dimension without columns or buckets, ranges that are empty, overlap or do not ascend, one with
    /// another number of hash dimensions, and more than [`TABLETS_MAX`] tablets.
    pub fn new(hash: Vec<HashDimension>, range: Option<RangeDimension>) -> Result<Self> {
        let ranges = range.iter().flat_map(|range| &range.ranges);
        let own = ranges.clone().filter_map(|range| range.hash.as_ref());
        if own.clone().any(|own| own.len() != hash.len()) {
            return Err(Error::invalid("all ranges of a table have the same number of hash dimensions"));
        }
        if hash.iter().chain(own.flatten()).any(|d| d.buckets == 0 || d.columns.is_empty()) {
            return Err(Error::invalid("a hash dimension needs columns and at least one bucket"));
        }
        if range.as_ref().is_some_and(|range| range.columns.is_empty()) {
            return Err(Error::invalid("a range dimension needs columns"));
        }
        if ranges.clone().any(|r| r.upper.as_ref().is_some_and(|upper| *upper <= r.lower)) {
            return Err(Error::invalid("the lower bound of a range partition must be below the upper"));
        }
        if ranges.clone().zip(ranges.clone().skip(1)).any(|(a, b)| !a.ends_before(b)) {
            return Err(Error::invalid("range partitions overlap"));
        }
        let count = |dimensions: &[HashDimension]| {
            dimensions.iter().try_fold(1_usize, |n, d| n.checked_mul(d.buckets as usize))
        };
        let of_range = |r: &RangePartition| count(r.hash.as_ref().unwrap_or(&hash));
        let tablets = match &range {
            None => count(&hash),
            Some(range) => range.ranges.iter().try_fold(0_usize, |n, r| n.checked_add(of_range(r)?)),
        };
        if tablets.is_none_or(|tablets| tablets > TABLETS_MAX) {
            return Err(Error::invalid(format!("a table has at most {TABLETS_MAX} tablets")));
        }
        Ok(Partitioning::assemble(hash, range))
    }

    fn assemble(hash: Vec<HashDimension>, range: Option<RangeDimension>) -> Self {
        let count = |hash: &[HashDimension]| hash.iter().map(|d| d.buckets as usize).product::<usize>();
        let mut firsts = vec![0];
        match &range {
            None => firsts.push(count(&hash)),
            Some(range) => firsts.extend(range.ranges.iter().scan(0, |n, range| {
                *n += count(range.hash.as_ref().unwrap_or(&hash));
                Some(*n)
            })),
        }
        let divides =
            range.as_ref().is_some_and(|range| !matches!(range.ranges.as_slice(), [r] if r.is_all()));
        let look_up = match hash.as_slice() {
            [] if !divides => LookUp::Nothing,
            [_] if !divides => LookUp::Bucket,
            _ => LookUp::All,
        };
        Partitioning { hash, range, firsts, look_up }
    }

    /// Whether the dimensions are over columns of the key of `schema` and the bounds of ranges are such keys.
    ///
    /// # Errors
    /// `Invalid`, saying what does not fit; those of [`new`](Self::new).
    pub fn check(&self, schema: &Schema) -> Result<()> {
        Partitioning::new(self.hash.clone(), self.range.clone())?;
        let key_columns = schema.key().len() as u16;
        let own = self.ranges().iter().filter_map(|range| range.hash.as_ref());
        for dimensions in std::iter::once(&self.hash).chain(own) {
            let columns = || dimensions.iter().flat_map(|dimension| &dimension.columns);
            let ascending = |d: &HashDimension| d.columns.windows(2).all(|pair| pair[0] < pair[1]);
            if columns().any(|c| *c >= key_columns) || !dimensions.iter().all(ascending) {
                return Err(Error::invalid(
                    "a table is partitioned by columns of its primary key, in their order",
                ));
            }
            if (0..key_columns).any(|c| columns().filter(|other| **other == c).count() > 1) {
                return Err(Error::invalid("no column is in two hash dimensions"));
            }
        }
        let Some(RangeDimension { columns, ranges }) = &self.range else { return Ok(()) };
        let repeated = |(i, c): (usize, &u16)| columns[..i].contains(c);
        if columns.iter().any(|c| *c >= key_columns) || columns.iter().enumerate().any(repeated) {
            return Err(Error::invalid("ranges are of columns of the primary key, each named once"));
        }
        let lower = ranges.iter().map(|range| &range.lower).filter(|lower| !lower.is_empty());
        let bounds = lower.chain(ranges.iter().filter_map(|range| range.upper.as_ref()));
        for bound in bounds {
            decode_range_key(schema, columns, bound)
                .map_err(|e| Error::invalid(format!("bound of a range partition: {e}")))?;
        }
        Ok(())
    }

    pub fn tablets(&self) -> usize {
        self.firsts[self.firsts.len() - 1]
    }

    /// The hash dimensions of all ranges that have none of their own.
    pub fn hash_dimensions(&self) -> &[HashDimension] {
        &self.hash
    }

    pub fn range_dimension(&self) -> Option<&RangeDimension> {
        self.range.as_ref()
    }

    /// Whether every key has a tablet.
    pub fn covers_all(&self) -> bool {
        let ranges = self.ranges();
        let follows = |pair: &[RangePartition]| pair[0].upper.as_ref() == Some(&pair[1].lower);
        let ends = |(first, last): (&RangePartition, &RangePartition)| {
            first.lower.is_empty() && last.upper.is_none()
        };
        self.range.is_none()
            || (ranges.first().zip(ranges.last()).is_some_and(ends) && ranges.windows(2).all(follows))
    }

    /// All ranges, ascending; none if the table is not partitioned by range.
    pub fn ranges(&self) -> &[RangePartition] {
        self.range.as_ref().map_or(&[], |range| &range.ranges)
    }

    /// The tablet of an encoded key, below [`tablets`](Self::tablets); `None` if it is in no range.
    #[inline]
    pub fn tablet_of(&self, schema: &Schema, key: &[u8]) -> Option<usize> {
        match self.look_up {
            LookUp::Nothing => Some(0),
            LookUp::Bucket => Some(self.hash[0].bucket_of(schema, key)),
            LookUp::All => self.find(schema, key),
        }
    }

    fn find(&self, schema: &Schema, key: &[u8]) -> Option<usize> {
        let i = match &self.range {
            None => 0,
            Some(range) => range.position_of(schema, key)?,
        };
        let bucket = |at, d: &HashDimension| at * d.buckets as usize + d.bucket_of(schema, key);
        Some(self.firsts[i] + self.dimensions(i).iter().fold(0, bucket))
    }

    /// The hash dimensions of range number `i`, or of all keys.
    fn dimensions(&self, i: usize) -> &[HashDimension] {
        self.ranges().get(i).and_then(|range| range.hash.as_ref()).unwrap_or(&self.hash)
    }

    /// Where tablet number `tablet` lies. Panics if there is none.
    pub fn place_of(&self, tablet: usize) -> Place<'_> {
        let i = self.firsts.partition_point(|first| *first <= tablet) - 1;
        let mut rest = tablet - self.firsts[i];
        let mut buckets: Vec<u32> = Vec::new();
        for dimension in self.dimensions(i).iter().rev() {
            buckets.push((rest % dimension.buckets as usize) as u32);
            rest /= dimension.buckets as usize;
        }
        buckets.reverse();
        Place { buckets, range: self.ranges().get(i) }
    }

    /// The same with one more range, and the numbers of its tablets in it.
    ///
    /// # Errors
    /// `AlreadyExists` if there is a range of the same bounds; `Invalid` if it overlaps another one, or the table is not
    /// partitioned by range; those of [`new`](Self::new).
    pub fn with_range(&self, range: RangePartition) -> Result<(Self, Range<usize>)> {
        let mut dimension = self.by_range()?.clone();
        if dimension.find(&range.lower, range.upper.as_deref()).is_some() {
            return Err(Error::already_exists("range partition already exists"));
        }
        let i = dimension.ranges.partition_point(|other| other.lower < range.lower);
        dimension.ranges.insert(i, range);
        let with = Partitioning::new(self.hash.clone(), Some(dimension))?;
        let tablets = with.firsts[i]..with.firsts[i + 1];
        Ok((with, tablets))
    }

    /// The same without the range of these bounds, and the numbers that its tablets had.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the table is not partitioned by range.
    pub fn without_range(&self, lower: &[u8], upper: Option<&[u8]>) -> Result<(Self, Range<usize>)> {
        let mut dimension = self.by_range()?.clone();
        let i = dimension.find(lower, upper).ok_or_else(|| Error::not_found("no such range partition"))?;
        dimension.ranges.remove(i);
        let tablets = self.firsts[i]..self.firsts[i + 1];
        Ok((Partitioning::assemble(self.hash.clone(), Some(dimension)), tablets))
    }

    fn by_range(&self) -> Result<&RangeDimension> {
        self.range.as_ref().ok_or_else(|| Error::invalid("the table is not partitioned by range"))
    }
}

impl HashDimension {
    /// A dimension over columns of the key of `schema`, by their positions there in any order.
    pub fn new(schema: &Schema, mut columns: Vec<u16>, buckets: u32, seed: u32) -> Self {
        columns.sort_unstable();
        let types = schema.key_columns().enumerate().filter(|(i, _)| columns.contains(&(*i as u16)));
        let short_decimals = types.map(|(_, c)| c.column_type).any(|t| short_decimal_width(t).is_some());
        HashDimension { columns, buckets, seed, short_decimals }
    }

    /// The bucket of an encoded key, below `buckets`; what follows the columns in it is not looked at. A key that does
    /// not decode is in bucket 0.
    #[inline]
    pub fn bucket_of(&self, schema: &Schema, key: &[u8]) -> usize {
        if self.columns.len() == schema.key().len() && !self.short_decimals {
            return self.bucket(key);
        }
        let mut encoded = KeyBuf::new();
        match project_key(schema, &self.columns, key, self.short_decimals, &mut encoded) {
            Ok(()) => self.bucket(&encoded),
            Err(_) => 0,
        }
    }

    /// The bucket of the encoded columns.
    fn bucket(&self, encoded: &[u8]) -> usize {
        (murmur_hash2_64a(encoded, u64::from(self.seed)) % u64::from(self.buckets)) as usize
    }
}

impl RangeDimension {
    /// The number of the range that an encoded key is in. One that does not decode is in none.
    fn position_of(&self, schema: &Schema, key: &[u8]) -> Option<usize> {
        if self.is_whole_key(schema) {
            return self.position(key);
        }
        let mut range_key = KeyBuf::new();
        project_key(schema, &self.columns, key, false, &mut range_key).ok()?;
        self.position(&range_key)
    }

    fn is_whole_key(&self, schema: &Schema) -> bool {
        self.columns.len() == schema.key().len()
            && self.columns.iter().enumerate().all(|(i, c)| i == usize::from(*c))
    }

    /// The number of the range that has `range_key`.
    pub fn position(&self, range_key: &[u8]) -> Option<usize> {
        let i = self.ranges.partition_point(|range| *range.lower <= *range_key).checked_sub(1)?;
        self.ranges[i].ends_behind(range_key).then_some(i)
    }

    fn find(&self, lower: &[u8], upper: Option<&[u8]>) -> Option<usize> {
        self.ranges.iter().position(|range| range.lower == lower && range.upper.as_deref() == upper)
    }
}

impl RangePartition {
    /// Whether it has all keys, and no hash dimensions of its own.
    fn is_all(&self) -> bool {
        self.lower.is_empty() && self.upper.is_none() && self.hash.is_none()
    }

    fn ends_behind(&self, range_key: &[u8]) -> bool {
        self.upper.as_deref().is_none_or(|upper| range_key < upper)
    }

    fn ends_before(&self, next: &RangePartition) -> bool {
        self.upper.as_ref().is_some_and(|upper| *upper <= next.lower)
    }

    /// Whether it has range keys from `from` on and below `to`.
    fn overlaps(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        self.ends_behind(from) && to.is_none_or(|to| *self.lower < *to && from < to)
    }
}
