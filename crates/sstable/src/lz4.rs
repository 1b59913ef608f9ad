//! Decompressing the first part of an LZ4 block, and going on from there.
//!
//! A point read wants one value out of a page. What lies behind that value need not be decompressed, which halves what
//! a read costs; `lz4_flex`, with which pages are written, only decompresses whole blocks. The format: *sequences* of a
//! token, literal bytes, and a match, which repeats bytes that came at most 64 KiB before; the last one has no match.
//! (LZ4 block format description, github.com/lz4/lz4, `doc/lz4_Block_format.md`.)

/// What a buffer must have beyond the decompressed bytes: short copies are made in steps, and may write past their end.
pub const SLACK: usize = 2 * STEP;

/// Most literals and matches are shorter, and copying a fixed length is one instruction.
const STEP: usize = 16;
const MATCH_MIN: usize = 4;

/// How far a block is decompressed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes of the block that were used up.
    used: usize,
    /// Bytes that they gave.
    pub written: usize,
}

impl Progress {
    /// Goes on until at least `wanted` bytes of `out`, or all, are written; `None` if `block` is malformed or has more
    /// than `out` takes. `out` has what was written before, and [`SLACK`] beyond the whole.
    pub fn advance(&mut self, block: &[u8], out: &mut [u8], wanted: usize) -> Option<()> {
        let (mut at, mut end) = (self.used, self.written);
        while end < wanted && at < block.len() {
            let token = *block.get(at)?;
            at += 1;
            let mut literals = usize::from(token >> 4);
            match (block.get(at..at + STEP), out.get_mut(end..end + STEP)) {
                (Some(from), Some(to)) if literals < 15 => to.copy_from_slice(from),
                _ => {
                    if literals == 15 {
                        literals += length(block, &mut at)?;
                    }
                    out.get_mut(end..end + literals)?.copy_from_slice(block.get(at..at + literals)?);
                }
            }
            at += literals;
            end += literals;
            if at == block.len() {
                break;
            }
            let offset = usize::from(u16::from_le_bytes(*block.get(at..)?.first_chunk()?));
            at += 2;
            let mut repeated = usize::from(token & 15) + MATCH_MIN;
            if repeated == 15 + MATCH_MIN {
                repeated += length(block, &mut at)?;
            }
            repeat(out, end, offset, repeated)?;
            end += repeated;
        }
        *self = Progress { used: at, written: end };
        Some(())
    }
}

/// Writes `len` bytes at `end`, each the one that stands `offset` before it.
fn repeat(out: &mut [u8], end: usize, offset: usize, len: usize) -> Option<()> {
    let mut from = end.checked_sub(offset).filter(|_| offset > 0)?;
    let whole = end + len;
    if offset >= STEP && whole + STEP <= out.len() {
        let mut to = end;
        while to < whole {
            out.copy_within(from..from + STEP, to);
            (from, to) = (from + STEP, to + STEP);
        }
        return Some(());
    }
    if whole > out.len() {
        return None;
    }
    // What was written is repeated with it: each turn copies all that is there since `from`.
    let mut to = end;
    while to < whole {
        let step = (to - from).min(whole - to);
        out.copy_within(from..from + step, to);
        to += step;
    }
    Some(())
}

/// The rest of a length that did not fit the token: bytes to be added up, of which the first below 255 is the last.
fn length(block: &[u8], at: &mut usize) -> Option<usize> {
    let mut sum = 0;
    loop {
        let byte = *block.get(*at)?;
        *at += 1;
        sum += usize::from(byte);
        if byte < 255 {
            return Some(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(block: &[u8], len: usize, steps: &[usize]) -> Option<Vec<u8>> {
        let mut out = vec![0; len + SLACK];
        let mut progress = Progress::default();
        for wanted in steps.iter().copied().chain([len]) {
            progress.advance(block, &mut out, wanted.min(len))?;
        }
        out.truncate(progress.written);
        Some(out)
    }

    /// Text of a few words is all matches; of many, all literals.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        (1..60u8, prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..60), any::<u64>())
            .prop_map(|(repeats, words, seed)| {
                let pick = |i: u64| (i.wrapping_mul(seed | 1) >> 32) as usize % words.len();
                (0..u64::from(repeats) * 8).flat_map(|i| words[pick(i)].clone()).collect()
            })
    }

    proptest! {
        #[test]
        fn gives_what_was_compressed_in_whatever_steps(
            text in text(),
            steps in prop::collection::vec(0..4_000usize, 0..5),
        ) {
            let block = lz4_flex::block::compress(&text);
            prop_assert_eq!(whole(&block, text.len(), &steps), Some(text));
        }

        #[test]
        fn no_bytes_make_it_panic(block: Vec<u8>, len in 0..400usize, steps in prop::collection::vec(0..400usize, 0..3)) {
            whole(&block, len, &steps);
        }

        /// What this gives for a damaged block is what the crate gives.
        #[test]
        fn damage_is_seen_as_the_crate_sees_it(text in text(), at: prop::sample::Index, byte: u8) {
            let mut block = lz4_flex::block::compress(&text);
            let at = at.index(block.len());
            block[at] = byte;
            let mut expected = vec![0; text.len()];
            if lz4_flex::block::decompress_into(&block, &mut expected).ok() == Some(text.len()) {
                prop_assert_eq!(whole(&block, text.len(), &[]), Some(expected));
            }
        }
    }

    #[test]
    fn runs_repeat_themselves() {
        for (offset, len) in [(1, 1000), (2, 999), (3, 20), (15, 100), (16, 100), (17, 5), (40, 300)] {
            let text: Vec<u8> = (0..offset + len).map(|i| (i % offset) as u8).collect();
            let block = lz4_flex::block::compress(&text);
            assert_eq!(whole(&block, text.len(), &[7]), Some(text));
        }
    }
}
