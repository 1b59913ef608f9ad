//! Numbers that are packed in as few bits as the largest needs, the first in the lowest bits of the first byte.

/// Numbers that are unpacked at a time. Each begins in a byte of its own, whatever the width.
pub const GROUP: usize = 32;
/// The widest of which the last is read with an eight-byte word that begins with the byte it begins in.
const NARROW_MAX: usize = 57;
const WORD: usize = size_of::<u64>();
/// A group of the widest numbers, and what a load of the last of them may read beyond it.
const GROUP_BYTES: usize = GROUP * WORD + size_of::<u128>();

/// What numbers are unpacked into: all of their bits, or the lower half, which of 32 bits is all.
pub trait Unpacked: Copy + Default {
    fn of(number: u64) -> Self;
}

impl Unpacked for u32 {
    #[inline]
    fn of(number: u64) -> Self {
        number as u32
    }
}

impl Unpacked for i64 {
    #[inline]
    fn of(number: u64) -> Self {
        number as i64
    }
}

/// Unpacks the group at the front of `bytes`, which may end sooner: what is missing is zero. `None` for a width that there is not.
#[inline]
pub fn unpack<T: Unpacked>(bytes: &[u8], width: usize, group: &mut [T; GROUP]) -> Option<()> {
    let of_width = Widths::<T>::UNPACK.get(width)?;
    match bytes.get(..GROUP / 8 * width + size_of::<u128>()) {
        Some(bytes) => of_width(bytes, group),
        None => {
            let mut padded = [0; GROUP_BYTES];
            let len = bytes.len().min(GROUP_BYTES);
            padded[..len].copy_from_slice(&bytes[..len]);
            of_width(&padded, group);
        }
    }
    Some(())
}

/// Number `n` of `bytes`, of at most 32 bits; bits that are missing are zero.
#[inline]
pub fn nth(bytes: &[u8], width: usize, n: usize) -> u32 {
    let bit = n * width;
    let there = bytes.get(bit / 8..).unwrap_or_default();
    let word = there.first_chunk().copied().unwrap_or_else(|| {
        let mut word = [0; WORD];
        word[..there.len()].copy_from_slice(there);
        word
    });
    (u64::from_le_bytes(word) >> (bit % 8) & ((1 << width) - 1)) as u32
}

/// With the width a constant, so are all places and shifts: four instructions a number. `bytes` has a group and 16 bytes more.
fn of_width<T: Unpacked, const WIDTH: usize>(bytes: &[u8], group: &mut [T; GROUP]) {
    let bytes = &bytes[..GROUP / 8 * WIDTH + size_of::<u128>()];
    let mask = if WIDTH == 0 { 0 } else { u64::MAX >> (64 - WIDTH) };
    for (n, number) in group.iter_mut().enumerate() {
        let (at, shift) = (n * WIDTH / 8, n * WIDTH % 8);
        let word = if WIDTH <= NARROW_MAX {
            bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word)) >> shift
        } else {
            (bytes[at..].first_chunk().map_or(0, |word| u128::from_le_bytes(*word)) >> shift) as u64
        };
        *number = T::of(word & mask);
    }
}

struct Widths<T>(std::marker::PhantomData<T>);

macro_rules! widths {
    ($($width:literal)*) => {
        impl<T: Unpacked> Widths<T> {
            const UNPACK: [fn(&[u8], &mut [T; GROUP]); 65] = [$(of_width::<T, $width>),*];
        }
    };
}

widths!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_of_any_width(
            width in 0..=64usize,
            numbers in prop::collection::vec(any::<u64>(), GROUP),
            more in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let numbers: Vec<u64> =
                numbers.into_iter().map(|n| n.checked_shr(64 - width as u32).unwrap_or(0)).collect();
            let mut bytes = vec![0; GROUP / 8 * width];
            for bit in (0..GROUP * width).filter(|bit| numbers[bit / width] >> (bit % width) & 1 == 1) {
                bytes[bit / 8] |= 1 << (bit % 8);
            }
            bytes.extend(more);
            let mut group = [0; GROUP];
            unpack::<i64>(&bytes, width, &mut group).unwrap();
            prop_assert_eq!(group.map(|n| n as u64).to_vec(), numbers.clone());
            if width <= 32 {
                let mut group = [0; GROUP];
                unpack::<u32>(&bytes, width, &mut group).unwrap();
                prop_assert_eq!(group.map(u64::from).to_vec(), numbers.clone());
                (0..GROUP).for_each(|n| assert_eq!(u64::from(nth(&bytes, width, n)), numbers[n]));
            }
        }

        #[test]
        fn missing_bits_are_zero(bytes in prop::collection::vec(any::<u8>(), 0..40), width in 0..=64usize) {
            let padded = [&bytes[..], &[0; GROUP_BYTES]].concat();
            let (mut short, mut long) = ([1; GROUP], [2; GROUP]);
            unpack::<i64>(&bytes, width, &mut short).unwrap();
            unpack::<i64>(&padded, width, &mut long).unwrap();
            prop_assert_eq!(short, long);
            prop_assert_eq!(unpack::<i64>(&bytes, 65, &mut short), None);
        }
    }
}
