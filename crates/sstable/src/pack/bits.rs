//! Numbers packed in few bits, as Parquet wants them: side by side, as runs, as differences. (Apache Parquet, Encodings.md.)

/// Numbers that are packed side by side come in such groups. A run that fills one is shorter by itself: its length is a byte or two, and as much
/// stands before the stretch that it parts from the next.
const GROUP: usize = 8;
const MINI_BLOCKS: usize = 4;

/// Bits that `n` needs.
fn width_of(n: u64) -> usize {
    (u64::BITS - n.leading_zeros()) as usize
}

/// Appends `n`, seven bits a byte.
pub fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends `n`, of which small numbers of either sign are short.
pub fn zigzag(n: i64, out: &mut Vec<u8>) {
    varint((n << 1 ^ n >> 63) as u64, out);
}

/// Appends `numbers`, so many bits each.
pub fn pack(numbers: impl IntoIterator<Item = u64>, width: usize, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let (mut word, mut filled) = (0_u64, 0);
    for n in numbers {
        word |= n << filled;
        filled += width;
        if filled >= 64 {
            out.extend_from_slice(&word.to_le_bytes());
            filled -= 64;
            word = if filled == 0 { 0 } else { n >> (width - filled) };
        }
    }
    out.extend_from_slice(&word.to_le_bytes()[..filled.div_ceil(8)]);
}

/// Appends positions in a dictionary of so many entries, behind the bits that each takes.
pub fn positions(positions: &[u32], entries: usize, out: &mut Vec<u8>) {
    let width = width_of(entries.saturating_sub(1) as u64);
    out.push(width as u8);
    runs(positions, width, out);
}

/// Appends `numbers` as runs of one and stretches of many, none of which needs more than `width` bits.
fn runs(numbers: &[u32], width: usize, out: &mut Vec<u8>) {
    let (mut packed, mut at) = (0, 0);
    while at < numbers.len() {
        let run = numbers[at..].iter().take_while(|n| **n == numbers[at]).count();
        if run < GROUP {
            at = (at + GROUP).min(numbers.len());
            continue;
        }
        stretch(&numbers[packed..at], width, out);
        varint((run as u64) << 1, out);
        out.extend_from_slice(&numbers[at].to_le_bytes()[..width.div_ceil(8)]);
        at += run;
        packed = at;
    }
    stretch(&numbers[packed..], width, out);
}

fn stretch(numbers: &[u32], width: usize, out: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    let groups = numbers.len().div_ceil(GROUP);
    varint((groups as u64) << 1 | 1, out);
    let end = out.len() + groups * width;
    pack(numbers.iter().map(|n| u64::from(*n)), width, out);
    out.resize(end, 0);
}

/// Numbers whose differences are packed.
pub trait Integer: Copy + Default + Ord {
    /// Numbers of a mini block, all of whose differences have the same width.
    const MINI_BLOCK: usize;

    fn number(self) -> i64;
    fn minus(self, other: Self) -> Self;
    /// Its bits, without a sign.
    fn bits(self) -> u64;
}

impl Integer for i32 {
    const MINI_BLOCK: usize = 32;

    fn number(self) -> i64 {
        self.into()
    }

    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }

    fn bits(self) -> u64 {
        self.cast_unsigned().into()
    }
}

impl Integer for i64 {
    const MINI_BLOCK: usize = 64;

    fn number(self) -> i64 {
        self
    }

    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }

    fn bits(self) -> u64 {
        self.cast_unsigned()
    }
}

/// Appends `numbers` as Parquet's `DELTA_BINARY_PACKED`.
pub fn differences<T: Integer>(numbers: &[T], out: &mut Vec<u8>) {
    let block = T::MINI_BLOCK * MINI_BLOCKS;
    varint(block as u64, out);
    varint(MINI_BLOCKS as u64, out);
    varint(numbers.len() as u64, out);
    zigzag(numbers.first().copied().unwrap_or_default().number(), out);
    let mut differences = Vec::with_capacity(block);
    for first in (1..numbers.len()).step_by(block) {
        let end = numbers.len().min(first + block);
        differences.clear();
        differences.extend(numbers[first - 1..end].windows(2).map(|pair| pair[1].minus(pair[0])));
        let least = differences.iter().copied().min().unwrap_or_default();
        zigzag(least.number(), out);
        let widths = out.len();
        out.resize(widths + MINI_BLOCKS, 0);
        for (n, mini_block) in differences.chunks(T::MINI_BLOCK).enumerate() {
            let above = || mini_block.iter().map(|difference| difference.minus(least).bits());
            let width = width_of(above().fold(0, |all, n| all | n));
            out[widths + n] = width as u8;
            let end = out.len() + T::MINI_BLOCK / 8 * width;
            pack(above(), width, out);
            out.resize(end, 0);
        }
    }
}
