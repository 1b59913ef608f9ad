//! Block bloom filters, as Impala sends them with the keys of a join.
//!
//! A filter is blocks of eight 32-bit words, little-endian. A value is hashed to 32 bits; of the hash one half of a
//! product chooses the block, and eight products choose one bit in each word (Putze, Sanders, Singler, "Cache-, Hash-
//! and Space-Efficient Bloom Filters"; the constants are those of Apache Kudu and Apache Impala,
//! `block_bloom_filter.h`). The hash is FastHash (Zilong Tan) of a cell's bytes or the string's own.

use crate::cell::cell_bytes;
use crate::messages::common::{BlockBloomFilter as Message, HashAlgorithm};
use bytes::Bytes;
use oribi_types::{ColumnType, Error, Result, ValueRef};

const WORDS: usize = 8;
const BLOCK_BYTES: usize = 4 * WORDS;
const LOG_BLOCK_BYTES: u32 = 5;
const _: () = assert!(BLOCK_BYTES == 1 << LOG_BLOCK_BYTES);

/// Blocks are numbered with 32 bits.
const LOG_SPACE_MAX: u32 = 32 + LOG_BLOCK_BYTES;

/// One odd multiplier for each word.
const REHASH: [u32; WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// A filter to look values up in.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockBloomFilter {
    /// A power of two of blocks, at least two. Shared with the request.
    blocks: Bytes,
    /// Nothing was added.
    always_false: bool,
    seed: u32,
}

impl BlockBloomFilter {
    /// # Errors
    /// `Invalid` for a filter whose size is not what it says; `Unsupported` for another hash than FastHash.
    pub(super) fn decode(message: &Message) -> Result<Self> {
        if message.hash_algorithm() != HashAlgorithm::FastHash {
            let algorithm = message.hash_algorithm.unwrap_or_default();
            return Err(Error::unsupported(format!("bloom filters of hash algorithm {algorithm}")));
        }
        let log_space = message.log_space_bytes.and_then(|n| u32::try_from(n).ok());
        let space = log_space.filter(|n| *n <= LOG_SPACE_MAX).map(|n| 1_u64 << n.max(LOG_BLOCK_BYTES + 1));
        let blocks = message.bloom_data.clone().unwrap_or_default();
        if space != Some(blocks.len() as u64) {
            return Err(Error::invalid(format!(
                "a bloom filter of {} bytes that says it has 2^{}",
                blocks.len(),
                message.log_space_bytes()
            )));
        }
        let (always_false, seed) = (message.always_false(), message.hash_seed());
        Ok(BlockBloomFilter { blocks, always_false, seed })
    }

    pub(super) fn encode(&self) -> Message {
        Message {
            log_space_bytes: Some(self.blocks.len().trailing_zeros() as i32),
            bloom_data: Some(self.blocks.clone()),
            always_false: Some(self.always_false),
            hash_algorithm: Some(HashAlgorithm::FastHash.into()),
            hash_seed: Some(self.seed),
        }
    }

    /// Whether the value may have been added: always if it was, rarely if not. Null never was.
    pub fn contains(&self, column_type: ColumnType, value: ValueRef<'_>) -> bool {
        if self.always_false || value.is_null() {
            return false;
        }
        let hash = hash_value(column_type, value, self.seed);
        let block = &self.blocks[block_of(hash, self.blocks.len())..][..BLOCK_BYTES];
        let words =
            block.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("words have 4 bytes")));
        words.zip(bits(hash)).all(|(word, bit)| word & bit != 0)
    }
}

/// A filter to add values to.
#[derive(Clone, Debug)]
pub struct BloomFilterBuilder {
    blocks: Vec<u8>,
    always_false: bool,
    seed: u32,
}

impl BloomFilterBuilder {
    /// A filter that, of so many distinct values, takes another for one of them with at most this probability, which is
    /// between 0 and 1. The size is a power of two of bytes, 32 MiB at most, whatever is asked for: a larger one is no
    /// request of Kudu's.
    pub fn new(distinct_values: usize, false_positives: f64, seed: u32) -> Self {
        const LOG_SPACE_SENT_MAX: f64 = 25.0;
        let words = WORDS as f64;
        let needed_bits = -words * distinct_values as f64 / (1.0 - false_positives.powf(1.0 / words)).ln();
        let log_space =
            (needed_bits / 8.0).log2().ceil().clamp(f64::from(LOG_BLOCK_BYTES + 1), LOG_SPACE_SENT_MAX);
        BloomFilterBuilder { blocks: vec![0; 1 << log_space as u32], always_false: true, seed }
    }

    /// Adds a value of a column. Null adds nothing.
    pub fn add(&mut self, column_type: ColumnType, value: ValueRef<'_>) {
        if value.is_null() {
            return;
        }
        self.always_false = false;
        let hash = hash_value(column_type, value, self.seed);
        let at = block_of(hash, self.blocks.len());
        for (word, bit) in self.blocks[at..][..BLOCK_BYTES].chunks_exact_mut(4).zip(bits(hash)) {
            let with = u32::from_le_bytes((&*word).try_into().expect("words have 4 bytes")) | bit;
            word.copy_from_slice(&with.to_le_bytes());
        }
    }

    pub fn build(self) -> BlockBloomFilter {
        let BloomFilterBuilder { blocks, always_false, seed } = self;
        BlockBloomFilter { blocks: blocks.into(), always_false, seed }
    }
}

/// Where the block of a hash begins in a filter of `bytes` bytes.
fn block_of(hash: u32, bytes: usize) -> usize {
    const MULTIPLIER: u64 = 0x7850_f11e_c6d1_4889;
    const ADDEND: u64 = 0x6773_6105_97ca_4c63;
    let rehashed = u64::from(hash).wrapping_mul(MULTIPLIER).wrapping_add(ADDEND) >> 32;
    (rehashed as usize & (bytes / BLOCK_BYTES - 1)) * BLOCK_BYTES
}

/// The bit of each word.
fn bits(hash: u32) -> impl Iterator<Item = u32> {
    REHASH.into_iter().map(move |multiplier| 1 << (hash.wrapping_mul(multiplier) >> 27))
}

/// The hash of a value that is not null.
fn hash_value(column_type: ColumnType, value: ValueRef<'_>, seed: u32) -> u32 {
    match value {
        ValueRef::Null => unreachable!("null is not hashed"),
        ValueRef::Bool(v) => fast_hash_32(&[u8::from(v)], seed),
        ValueRef::Int8(v) => fast_hash_32(&v.to_le_bytes(), seed),
        ValueRef::Int16(v) => fast_hash_32(&v.to_le_bytes(), seed),
        ValueRef::Int32(v) | ValueRef::Date(v) => fast_hash_32(&v.to_le_bytes(), seed),
        ValueRef::Int64(v) | ValueRef::Timestamp(v) => fast_hash_32(&v.to_le_bytes(), seed),
        ValueRef::Float(v) => fast_hash_32(&v.to_le_bytes(), seed),
        ValueRef::Double(v) => fast_hash_32(&v.to_le_bytes(), seed),
        ValueRef::Decimal(v) => fast_hash_32(&v.to_le_bytes()[..cell_bytes(column_type)], seed),
        ValueRef::String(v) | ValueRef::Json(v) => fast_hash_32(v.as_bytes(), seed),
        ValueRef::Binary(v) => fast_hash_32(v, seed),
        ValueRef::Uuid(v) => fast_hash_32(&v, seed),
    }
}

fn fast_hash_32(bytes: &[u8], seed: u32) -> u32 {
    let hash = fast_hash_64(bytes, u64::from(seed));
    hash.wrapping_sub(hash >> 32) as u32
}

/// FastHash, but that nothing is hashed as four bytes of Kudu's choice: the hash of nothing would be that of the seed
/// alone.
fn fast_hash_64(bytes: &[u8], seed: u64) -> u64 {
    const MULTIPLIER: u64 = 0x8803_55f2_1e6d_1965;
    const NOTHING: [u8; 4] = 0x7dca_7eee_u32.to_le_bytes();
    let bytes = if bytes.is_empty() { &NOTHING } else { bytes };
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ mix(u64::from_le_bytes(word))).wrapping_mul(MULTIPLIER);
    }
    mix(hash)
}

fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 23;
    hash = hash.wrapping_mul(0x2127_599b_f432_5c37);
    hash ^ (hash >> 47)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that both of Kudu's own clients are tested against.
    #[test]
    fn hashes_are_those_of_kudus_clients() {
        assert_eq!(fast_hash_64(b"ab", 0), 17_293_172_613_997_361_769);
        assert_eq!(fast_hash_64(b"abcdefg", 0), 10_206_404_559_164_245_992);
        assert_eq!(fast_hash_64(b"quick brown fox", 42), 3_757_424_404_558_187_042);
        assert_eq!(fast_hash_64(b"", 0), 4_144_680_785_095_980_158);
        assert_eq!(fast_hash_64(b"", 1234), 3_296_774_803_014_270_295);
        assert_eq!(fast_hash_32(b"ab", 0), 2_564_147_595);
        assert_eq!(fast_hash_32(b"abcdefg", 0), 1_497_700_618);
        assert_eq!(fast_hash_32(b"quick brown fox", 42), 1_676_541_068);
        assert_eq!(fast_hash_32(b"", 0), 3_045_300_040);
        assert_eq!(fast_hash_32(b"", 1234), 811_548_192);
        // Negative bytes, in the whole word and in the rest.
        let bytes: Vec<u8> = (0..15).map(|i| (i as i8 - 8) as u8).collect();
        assert_eq!(fast_hash_64(&bytes, 0), 7_308_577_902_719_593_318);
        assert_eq!(fast_hash_32(&bytes, 0), 3_815_875_205);
    }

    #[test]
    fn a_filter_holds_what_was_added_and_little_else() {
        let mut builder = BloomFilterBuilder::new(1000, 0.01, 7);
        for i in 0..1000 {
            builder.add(ColumnType::Int64, ValueRef::Int64(i));
        }
        let filter = BlockBloomFilter::decode(&builder.build().encode()).unwrap();
        let holds = |i| filter.contains(ColumnType::Int64, ValueRef::Int64(i));
        assert!((0..1000).all(holds));
        assert!((1000..11_000).filter(|i| holds(*i)).count() < 200, "twice what was asked for");
        assert!(!filter.contains(ColumnType::Int64, ValueRef::Null));
    }

    #[test]
    fn an_empty_filter_holds_nothing() {
        let mut builder = BloomFilterBuilder::new(0, 0.01, 0);
        builder.add(ColumnType::Int8, ValueRef::Null);
        assert!(!builder.build().contains(ColumnType::Int8, ValueRef::Int8(0)));
    }

    #[test]
    fn a_filter_of_another_size_or_hash_is_refused() {
        let good = BloomFilterBuilder::new(1, 0.1, 0).build().encode();
        assert!(BlockBloomFilter::decode(&good).is_ok());
        let refused = |change: &dyn Fn(&mut Message)| {
            let mut message = good.clone();
            change(&mut message);
            BlockBloomFilter::decode(&message).is_err()
        };
        assert!(refused(&|m| m.log_space_bytes = None));
        assert!(refused(&|m| m.log_space_bytes = Some(-1)));
        assert!(refused(&|m| m.log_space_bytes = Some(64)));
        assert!(refused(&|m| m.log_space_bytes = Some(7)));
        assert!(refused(&|m| m.bloom_data = None));
        assert!(refused(&|m| m.bloom_data = Some(Bytes::from_static(&[0; 63]))));
        assert!(refused(&|m| m.hash_algorithm = Some(HashAlgorithm::MurmurHash2.into())));
        assert!(refused(&|m| m.hash_algorithm = Some(HashAlgorithm::UnknownHash.into())));
        // As the filter of one block would be: it has two all the same.
        assert!(!refused(&|m| m.log_space_bytes = Some(0)));
    }
}
