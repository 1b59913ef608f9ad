//! Values inside a decompressed page: plain, or numbers of a dictionary behind definition levels.
//!
//! This is the subset of Parquet that our writer produces (data pages of version 1, flat columns), decoded for one
//! row at a time: what reads [whole columns](crate::column) would spend its time on the other thousand rows.

use crate::bits;
use oribi_types::{ColumnType, Error, Result, ValueRef};
use std::ops::Range;

/// A page has more only if a value in it is long: others end before that, and so do dictionaries.
pub const LONG_PAGE_BYTES: usize = 128 << 10;

/// How the values of a page are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Plain,
    Dictionary,
    /// Parquet's `DELTA_BINARY_PACKED`.
    Delta,
}

/// A Parquet physical type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Physical {
    Bool,
    Int32,
    Int64,
    Float,
    Double,
    #[default]
    Bytes,
    Fixed(u16),
}

impl Physical {
    /// Bytes of a plain value; `None` for bits and byte strings.
    pub fn width(self) -> Option<usize> {
        match self {
            Physical::Bool | Physical::Bytes => None,
            Physical::Int32 | Physical::Float => Some(4),
            Physical::Int64 | Physical::Double => Some(8),
            Physical::Fixed(n) => Some(usize::from(n)),
        }
    }

    /// Parquet's number of the type, and the length for `Fixed`.
    pub fn encode(self) -> (u8, u16) {
        match self {
            Physical::Bool => (0, 0),
            Physical::Int32 => (1, 0),
            Physical::Int64 => (2, 0),
            Physical::Float => (4, 0),
            Physical::Double => (5, 0),
            Physical::Bytes => (6, 0),
            Physical::Fixed(n) => (7, n),
        }
    }

    pub fn decode(code: u8, length: u16) -> Option<Self> {
        Some(match (code, length) {
            (0, 0) => Physical::Bool,
            (1, 0) => Physical::Int32,
            (2, 0) => Physical::Int64,
            (4, 0) => Physical::Float,
            (5, 0) => Physical::Double,
            (6, 0) => Physical::Bytes,
            (7, 1..) => Physical::Fixed(length),
            _ => return None,
        })
    }

    /// Whether values of `column_type` are stored this way.
    pub fn holds(self, column_type: ColumnType) -> bool {
        match column_type {
            ColumnType::Bool => self == Physical::Bool,
            ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32 | ColumnType::Date => {
                self == Physical::Int32
            }
            ColumnType::Int64 | ColumnType::Timestamp => self == Physical::Int64,
            ColumnType::Float => self == Physical::Float,
            ColumnType::Double => self == Physical::Double,
            ColumnType::Decimal { .. } => {
                matches!(self, Physical::Int32 | Physical::Int64 | Physical::Fixed(1..=16))
            }
            ColumnType::String | ColumnType::Binary | ColumnType::Json => self == Physical::Bytes,
            ColumnType::Uuid => self == Physical::Fixed(16),
        }
    }
}

/// The value of a column whose stored bytes are `raw`: as in a plain page, without length; a byte 0 or 1 for a bool.
///
/// # Errors
/// `Corrupt` if `raw` is no value of `column_type`.
pub fn value_ref(column_type: ColumnType, raw: &[u8]) -> Result<ValueRef<'_>> {
    Ok(match column_type {
        ColumnType::Bool => ValueRef::Bool(array::<1>(raw)?[0] != 0),
        ColumnType::Int8 => ValueRef::Int8(int32(raw)?.try_into().map_err(|_| malformed())?),
        ColumnType::Int16 => ValueRef::Int16(int32(raw)?.try_into().map_err(|_| malformed())?),
        ColumnType::Int32 => ValueRef::Int32(int32(raw)?),
        ColumnType::Date => ValueRef::Date(int32(raw)?),
        ColumnType::Int64 => ValueRef::Int64(i64::from_le_bytes(array(raw)?)),
        ColumnType::Timestamp => ValueRef::Timestamp(i64::from_le_bytes(array(raw)?)),
        ColumnType::Float => ValueRef::Float(f32::from_le_bytes(array(raw)?)),
        ColumnType::Double => ValueRef::Double(f64::from_le_bytes(array(raw)?)),
        ColumnType::Decimal { precision, .. } => ValueRef::Decimal(decimal(precision, raw)?),
        ColumnType::String => ValueRef::String(text(raw)?),
        ColumnType::Json => ValueRef::Json(text(raw)?),
        ColumnType::Binary => ValueRef::Binary(raw),
        ColumnType::Uuid => ValueRef::Uuid(array(raw)?),
    })
}

/// Decimals are little-endian integers up to 18 digits, and beyond that big-endian, as short as the precision allows.
fn decimal(precision: u8, raw: &[u8]) -> Result<i128> {
    match precision {
        0..=9 => Ok(i128::from(int32(raw)?)),
        10..=18 => Ok(i128::from(i64::from_le_bytes(array(raw)?))),
        _ if (1..=16).contains(&raw.len()) => {
            let sign = if raw[0] & 0x80 != 0 { 0xff } else { 0 };
            let mut bytes = [sign; 16];
            bytes[16 - raw.len()..].copy_from_slice(raw);
            Ok(i128::from_be_bytes(bytes))
        }
        _ => Err(malformed()),
    }
}

fn int32(raw: &[u8]) -> Result<i32> {
    Ok(i32::from_le_bytes(array(raw)?))
}

fn array<const N: usize>(raw: &[u8]) -> Result<[u8; N]> {
    raw.try_into().map_err(|_| malformed())
}

fn text(raw: &[u8]) -> Result<&str> {
    std::str::from_utf8(raw).map_err(|_| malformed())
}

/// Plain value `n` of `values`.
///
/// # Errors
/// `Corrupt` if there is none.
pub fn plain(physical: Physical, values: &[u8], n: usize) -> Result<&[u8]> {
    let value = match physical.width() {
        Some(width) => n.checked_mul(width).and_then(|at| values.get(at..)?.get(..width)),
        None if physical == Physical::Bool => {
            values.get(n / 8).map(|byte| if byte >> (n % 8) & 1 == 0 { &[0][..] } else { &[1][..] })
        }
        None => ByteStrings::new(values).nth(n).map(|range| &values[range]),
    };
    value.ok_or_else(malformed)
}

/// The places of plain byte strings: each follows its length in four bytes. Ends early if the bytes do.
pub struct ByteStrings<'a> {
    values: &'a [u8],
    at: usize,
}

impl<'a> ByteStrings<'a> {
    pub fn new(values: &'a [u8]) -> Self {
        ByteStrings { values, at: 0 }
    }

    /// Where the next one begins, with its length.
    pub fn at(&self) -> usize {
        self.at
    }
}

impl Iterator for ByteStrings<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let len = self.values.get(self.at..)?.first_chunk::<4>()?;
        let start = self.at + 4;
        let end = start.checked_add(u32::from_le_bytes(*len) as usize)?;
        if end > self.values.len() {
            return None;
        }
        self.at = end;
        Some(start..end)
    }
}

/// Splits a page of a nullable column into its definition levels and its values.
///
/// # Errors
/// `Corrupt`.
pub fn split_levels(page: &[u8]) -> Result<(&[u8], &[u8])> {
    let (len, rest) = page.split_first_chunk::<4>().ok_or_else(malformed)?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(malformed)
}

/// Among the values of a nullable column, the number of row `n`'s; `None` if the row has none.
///
/// # Errors
/// `Corrupt`.
pub fn rank(levels: &[u8], n: usize) -> Result<Option<usize>> {
    let (mut row, mut values) = (0, 0);
    for run in Runs::new(levels, 1) {
        match run? {
            Run::Repeated { count, value } if n - row < count => {
                return Ok((value == 1).then_some(values + n - row));
            }
            Run::Repeated { count, value } => {
                row += count;
                values += count * value as usize;
            }
            Run::Packed { count, bytes } => {
                let wanted = (n - row).min(count);
                values += ones(bytes, wanted);
                if wanted < count {
                    return Ok((bit(bytes, wanted)).then_some(values));
                }
                row += count;
            }
        }
    }
    Err(malformed())
}

fn ones(bytes: &[u8], bits: usize) -> usize {
    let whole: u32 = bytes[..bits / 8].iter().map(|b| b.count_ones()).sum();
    let rest = match bits % 8 {
        0 => 0,
        n => (bytes[bits / 8] & ((1 << n) - 1)).count_ones(),
    };
    (whole + rest) as usize
}

fn bit(bytes: &[u8], n: usize) -> bool {
    bytes[n / 8] >> (n % 8) & 1 == 1
}

/// The position in the dictionary of value `n` of a dictionary-encoded page: a byte of bit width, then runs.
///
/// # Errors
/// `Corrupt`.
pub fn dictionary_position(values: &[u8], n: usize) -> Result<usize> {
    let (&width, runs) = values.split_first().ok_or_else(malformed)?;
    if width > 32 {
        return Err(malformed());
    }
    let width = usize::from(width);
    let mut at = 0;
    for run in Runs::new(runs, width) {
        match run? {
            Run::Repeated { count, value } if n - at < count => return Ok(value as usize),
            Run::Packed { count, bytes } if n - at < count => {
                return Ok(bits::nth(bytes, width, n - at) as usize);
            }
            Run::Repeated { count, .. } | Run::Packed { count, .. } => at += count,
        }
    }
    Err(malformed())
}

pub enum Run<'a> {
    Repeated { count: usize, value: u32 },
    Packed { count: usize, bytes: &'a [u8] },
}

/// The runs of Parquet's hybrid of run-length encoding and bit packing. Yields one error, and ends, where the bytes
/// are no such runs.
pub struct Runs<'a> {
    rest: &'a [u8],
    width: usize,
}

impl<'a> Runs<'a> {
    pub fn new(bytes: &'a [u8], width: usize) -> Self {
        Runs { rest: bytes, width }
    }

    fn run(&mut self) -> Option<Run<'a>> {
        let header = varint(&mut self.rest)?;
        let count = usize::try_from(header >> 1).ok().filter(|n| (1..1 << 32).contains(n))?;
        if header & 1 == 1 {
            let count = count * 8;
            // A writer may leave out the padding behind the last value.
            let len = (count / 8 * self.width).min(self.rest.len());
            let (bytes, rest) = self.rest.split_at(len);
            self.rest = rest;
            let count = count.min((len * 8).checked_div(self.width).unwrap_or(count));
            return Some(Run::Packed { count, bytes });
        }
        let (value, rest) = self.rest.split_at_checked(self.width.div_ceil(8))?;
        self.rest = rest;
        let value = value.iter().rev().fold(0, |v, byte| v << 8 | u32::from(*byte));
        Some(Run::Repeated { count, value })
    }
}

impl<'a> Iterator for Runs<'a> {
    type Item = Result<Run<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let run = self.run();
        if run.is_none() {
            self.rest = &[];
        }
        Some(run.ok_or_else(malformed))
    }
}

/// Takes an unsigned number of seven bits per byte from the front of `bytes`.
pub fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for i in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(7 * i)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

pub fn malformed() -> Error {
    Error::corrupt("malformed page")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_by_position() {
        // Five times 1, then eight packed bits 0b1011_0010, width 1.
        let levels = [5 << 1, 1, (1 << 1) | 1, 0b1011_0010];
        let ranks: Vec<Option<usize>> = (0..13).map(|n| rank(&levels, n).unwrap()).collect();
        let expected = [0, 1, 2, 3, 4].map(Some);
        assert_eq!(ranks[..5], expected);
        assert_eq!(ranks[5..], [None, Some(5), None, None, Some(6), Some(7), None, Some(8)]);
        assert!(rank(&levels, 13).is_err());
    }

    #[test]
    fn dictionary_positions_of_any_width() {
        for width in 0..=32usize {
            let mask = (1u64 << width) - 1;
            let expected: Vec<u64> = (0..16u64).map(|i| i.wrapping_mul(0x9e37_79b9) & mask).collect();
            let mut packed = vec![0u8; width * 2];
            for (i, value) in expected.iter().enumerate() {
                for b in 0..width {
                    let at = i * width + b;
                    packed[at / 8] |= ((value >> b & 1) as u8) << (at % 8);
                }
            }
            let mut page = vec![width as u8, (2 << 1) | 1];
            page.extend_from_slice(&packed);
            for (i, value) in expected.iter().enumerate() {
                assert_eq!(dictionary_position(&page, i).unwrap() as u64, *value, "width {width}");
            }
        }
    }

    #[test]
    fn malformed_bytes_are_errors() {
        assert!(dictionary_position(&[], 0).is_err());
        assert!(dictionary_position(&[33, 2, 0], 0).is_err());
        assert!(dictionary_position(&[1, 0xff, 0xff, 0xff], 7).is_err());
        assert!(rank(&[0x80; 20], 0).is_err());
        assert!(plain(Physical::Bytes, &[255, 255, 255, 255, 1], 0).is_err());
        assert!(plain(Physical::Int64, &[0; 8], usize::MAX).is_err());
        assert!(split_levels(&[9, 0, 0, 0, 1]).is_err());
    }
    #[test]
    fn no_bytes_make_it_panic() {
        proptest::proptest!(|(bytes: Vec<u8>, n in 0..2_000usize)| {
            let _ = dictionary_position(&bytes, n);
            let _ = split_levels(&bytes).and_then(|(levels, _)| rank(levels, n));
            let _ = rank(&bytes, n);
            for physical in [Physical::Bool, Physical::Int32, Physical::Bytes, Physical::Fixed(3)] {
                let _ = plain(physical, &bytes, n);
            }
            for column_type in [ColumnType::Int8, ColumnType::Decimal { precision: 38, scale: 0 }, ColumnType::String] {
                let _ = value_ref(column_type, &bytes);
            }
        });
    }
}
