//! Split-block bloom filters over encoded keys, one per row group.
//!
//! The layout is Parquet's (and Impala's): blocks of 256 bits; the upper half of a key's hash chooses the block, the
//! lower half one bit in each of its eight words. Ten bits per key leave about one false answer in a hundred.

use oribi_types::key::murmur_hash2_64a;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 32;
const BITS_PER_KEY: usize = 10;

/// Not the seed that assigns keys to tablets: the keys of a tablet share bits of that hash.
const SEED: u64 = 0x6f72_6962_692d_6b65;

/// Odd multipliers that spread the lower half of the hash over the eight words, from the Parquet specification.
const SALT: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// The hash of an encoded key. Files depend on it: it never changes.
pub fn hash(key: &[u8]) -> u64 {
    murmur_hash2_64a(key, SEED)
}

/// A filter, as the bytes of its blocks, that contains `hashes`.
pub fn build(hashes: &[u64]) -> Vec<u8> {
    let blocks = (hashes.len() * BITS_PER_KEY).div_ceil(BLOCK_BYTES * 8).max(1);
    build_of(blocks, hashes.iter().copied())
}

/// As [`build`], of so many blocks. In a filter of twice as many, a key's block is one of the two that have the place of this one.
pub fn build_of(blocks: usize, hashes: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut filter = vec![0; blocks * BLOCK_BYTES];
    for hash in hashes {
        let start = block_of(hash, blocks) * BLOCK_BYTES;
        for (word, salt) in SALT.iter().enumerate() {
            let bit = bit_of(hash, *salt);
            filter[start + word * 4 + bit / 8] |= 1 << (bit % 8);
        }
    }
    filter
}

/// Whether `filter` may contain the key of `hash`; an empty filter contains nothing.
pub fn contains(filter: &[u8], hash: u64) -> bool {
    let start = block_of(hash, filter.len() / BLOCK_BYTES) * BLOCK_BYTES;
    let Some(block) = filter.get(start..start + BLOCK_BYTES) else { return false };
    // All words, whatever the first one says: that is a handful of vector instructions and no branch.
    let mut missing = 0;
    for (word, salt) in block.chunks_exact(4).zip(SALT) {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        missing |= !word & 1 << bit_of(hash, salt);
    }
    missing == 0
}

fn block_of(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

/// Bit within a little-endian word of 32.
fn bit_of(hash: u64, salt: u32) -> usize {
    ((hash as u32).wrapping_mul(salt) >> 27) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contains_what_was_added_and_little_else() {
        let hashes: Vec<u64> = (0u64..10_000).map(|i| hash(&i.to_be_bytes())).collect();
        let filter = build(&hashes);
        assert!(hashes.iter().all(|&h| contains(&filter, h)));
        let false_answers =
            (10_000u64..110_000).filter(|i| contains(&filter, hash(&i.to_be_bytes()))).count();
        assert!(false_answers < 2_000, "{false_answers} of 100000");
        assert!(!contains(&[], hash(b"x")));
    }

    #[test]
    fn the_hash_is_the_one_in_the_files() {
        assert_eq!(hash(b""), 0x4787_65ea_db1e_821b);
        assert_eq!(hash(b"oribi"), 0x628b_c6ec_4f3e_060d);
    }
}
