//! CRC-32C of records.
//!
//! Records are short as a rule, and of the 350 instructions that the library takes for one of 250 bytes two thirds are
//! to align it and to choose a method. Short ones are taken eight bytes at a time wherever they begin.

#![allow(unsafe_code)]

/// Up to here the library too goes one word at a time; beyond, it runs three streams side by side.
const SHORT_BYTES_MAX: usize = 768;

/// The checksum of bytes whose checksum is `before`, followed by `bytes`.
pub fn append(before: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() < SHORT_BYTES_MAX && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions.
        return unsafe { short::append(before, bytes) };
    }
    crc32c::crc32c_append(before, bytes)
}

#[cfg(target_arch = "x86_64")]
mod short {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

    #[target_feature(enable = "sse4.2")]
    pub fn append(before: u32, bytes: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<8>();
        let crc = u64::from(!before);
        let crc = words.iter().fold(crc, |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
        let (half, rest) = rest.as_chunks::<4>();
        let crc = half.iter().fold(crc as u32, |crc, word| _mm_crc32_u32(crc, u32::from_le_bytes(*word)));
        !rest.iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
    }
}

#[cfg(test)]
mod tests {
    use super::append;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_librarys(before: u32, bytes in proptest::collection::vec(any::<u8>(), 0..1000)) {
            for start in 0..bytes.len().min(9) {
                prop_assert_eq!(append(before, &bytes[start..]), crc32c::crc32c_append(before, &bytes[start..]));
            }
        }
    }
}
