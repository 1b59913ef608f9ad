//! Which values of a page are wanted, and what says where they are: levels, and positions in a dictionary.

use crate::bits::{self, GROUP};
use crate::value::{Run, Runs, malformed};
use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;
use oribi_types::Result;
use std::ops::Range;

/// Ranges that ascend, taken from the front piece by piece.
pub struct Wanted<'a> {
    ranges: &'a [Range<usize>],
    /// Up to where they were taken.
    taken: usize,
}

impl<'a> Wanted<'a> {
    pub fn new(ranges: &'a [Range<usize>]) -> Self {
        Wanted { ranges, taken: 0 }
    }

    /// The first that is left.
    pub fn first(&self) -> Option<usize> {
        self.ranges.first().map(|range| range.start.max(self.taken))
    }

    /// Takes the next range, or the part of it that is before `end`; `None` if there is none before.
    #[inline]
    pub fn next_before(&mut self, end: usize) -> Option<Range<usize>> {
        let (range, behind) = self.ranges.split_first()?;
        let start = range.start.max(self.taken);
        if start >= end {
            return None;
        }
        if range.end <= end {
            self.ranges = behind;
        }
        self.taken = range.end.min(end);
        Some(start..self.taken)
    }
}

/// Which of the `rows` of a page are not null; `None` if all are.
///
/// # Errors
/// `Corrupt`.
pub fn valid(levels: &[u8], rows: usize) -> Result<Option<BooleanBuffer>> {
    let mut valid = BooleanBufferBuilder::new(rows);
    for run in Runs::new(levels, 1) {
        let left = rows - valid.len();
        match run? {
            Run::Repeated { count, value: 1 } if valid.is_empty() && count >= rows => return Ok(None),
            Run::Repeated { count, value } => valid.append_n(count.min(left), value == 1),
            Run::Packed { count, bytes } => valid.append_packed_range(0..count.min(left), bytes),
        }
        if valid.len() == rows {
            return Ok(Some(valid.finish()));
        }
    }
    Err(malformed())
}

/// Replaces `out` by the positions in the dictionary of the values at `places` of a page: a byte of bit width, then runs.
///
/// # Errors
/// `Corrupt`, if there are fewer values, or one is not below `entries`.
pub fn positions(values: &[u8], places: &[Range<usize>], entries: usize, out: &mut Vec<u32>) -> Result<()> {
    out.clear();
    let mut wanted = Wanted::new(places);
    let (&width, runs) = values.split_first().ok_or_else(malformed)?;
    if width > 32 {
        return Err(malformed());
    }
    let mut at = 0;
    for run in Runs::new(runs, width.into()) {
        if wanted.first().is_none() {
            break;
        }
        match run? {
            Run::Repeated { count, value } => {
                while let Some(places) = wanted.next_before(at + count) {
                    out.extend(std::iter::repeat_n(value, places.len()));
                }
                at += count;
            }
            Run::Packed { count, bytes } => {
                while let Some(places) = wanted.next_before(at + count) {
                    packed(bytes, width.into(), places.start - at..places.end - at, out);
                }
                at += count;
            }
        }
    }
    // Not `max`, which cares which of equal ones it is, and takes them one by one.
    let largest = out.iter().fold(0, |largest, position| (*position).max(largest));
    let are_entries = out.is_empty() || (largest as usize) < entries;
    if wanted.first().is_none() && are_entries { Ok(()) } else { Err(malformed()) }
}

/// Appends numbers of `width` bits, which are there, by groups where many of them are wanted.
pub fn packed(bytes: &[u8], width: usize, range: Range<usize>, out: &mut Vec<u32>) {
    const MANY: usize = GROUP / 4;
    let mut group = [0; GROUP];
    let mut at = range.start;
    while at < range.end {
        let first = at / GROUP * GROUP;
        let end = range.end.min(first + GROUP);
        let of_group = bytes.get(first / 8 * width..).unwrap_or_default();
        if end - at < MANY || bits::unpack(of_group, width, &mut group).is_none() {
            out.extend((at..end).map(|n| bits::nth(bytes, width, n)));
        } else {
            out.extend_from_slice(&group[at - first..end - first]);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{dictionary_position, rank};
    use proptest::prelude::*;

    /// Runs of `width` bits, and the values in them.
    fn runs(width: usize) -> impl Strategy<Value = (Vec<u8>, Vec<u32>)> {
        let mask = ((1_u64 << width) - 1) as u32;
        let run = prop_oneof![
            (1..50usize, any::<u32>()).prop_map(|(count, value)| (false, vec![value; count])),
            prop::collection::vec(any::<u32>(), 1..50).prop_map(|mut values| {
                values.resize(values.len().next_multiple_of(8), 0);
                (true, values)
            }),
        ];
        prop::collection::vec(run, 1..8).prop_map(move |runs| {
            let (mut bytes, mut all) = (Vec::new(), Vec::new());
            for (is_packed, values) in runs {
                let values: Vec<u32> = values.iter().map(|value| value & mask).collect();
                if is_packed {
                    bytes.push((values.len() / 8) as u8 * 2 + 1);
                    let start = bytes.len();
                    bytes.resize(start + values.len() * width / 8, 0);
                    for bit in
                        (0..values.len() * width).filter(|bit| values[bit / width] >> (bit % width) & 1 == 1)
                    {
                        bytes[start + bit / 8] |= 1 << (bit % 8);
                    }
                } else {
                    bytes.push(values.len() as u8 * 2);
                    bytes.extend(&values[0].to_le_bytes()[..width.div_ceil(8)]);
                }
                all.extend(values);
            }
            (bytes, all)
        })
    }

    fn runs_of_any_width() -> impl Strategy<Value = (usize, (Vec<u8>, Vec<u32>))> {
        (0..=32usize).prop_flat_map(|width| (Just(width), runs(width)))
    }

    /// Ranges below `end`, by gaps and lengths.
    fn ranges(steps: &[(usize, usize)], end: usize) -> Vec<Range<usize>> {
        let mut at = 0;
        let ranges = steps.iter().map(|(gap, len)| {
            let start = at + gap;
            at = start + len;
            start..at
        });
        ranges.take_while(|range| range.end <= end).collect()
    }

    proptest! {
        #[test]
        fn positions_are_those_of_point_reads(
            (width, (bytes, values)) in runs_of_any_width(),
            steps in prop::collection::vec((0..20usize, 1..20usize), 0..30),
        ) {
            let places = ranges(&steps, values.len());
            let page = [&[width as u8][..], &bytes].concat();
            let mut found = vec![7];
            positions(&page, &places, usize::MAX, &mut found).unwrap();
            let expected: Vec<u32> = places.iter().cloned().flatten().map(|n| values[n]).collect();
            prop_assert_eq!(&found, &expected);
            for n in places.iter().cloned().flatten() {
                prop_assert_eq!(dictionary_position(&page, n).unwrap(), values[n] as usize);
            }
            if let Some(largest) = expected.iter().max() {
                prop_assert!(positions(&page, &places, *largest as usize, &mut found).is_err(), "beyond the dictionary");
            }
            let behind = values.len()..values.len() + 1;
            prop_assert!(positions(&page, &[behind], usize::MAX, &mut found).is_err());
        }

        #[test]
        fn levels_are_those_of_point_reads((levels, values) in runs(1), cut: prop::sample::Index) {
            let rows = 1 + cut.index(values.len());
            let valid = valid(&levels, rows).unwrap();
            for (row, value) in values[..rows].iter().enumerate() {
                let is_valid = valid.as_ref().is_none_or(|valid| valid.value(row));
                prop_assert_eq!(is_valid, *value == 1);
                prop_assert_eq!(rank(&levels, row).unwrap().is_some(), is_valid);
            }
            prop_assert!(super::valid(&levels, values.len() + 1).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(
            bytes: Vec<u8>,
            rows in 0..3_000usize,
            steps in prop::collection::vec((0..300usize, 1..300usize), 0..9),
        ) {
            let _ = valid(&bytes, rows);
            let _ = positions(&bytes, &ranges(&steps, usize::MAX), 9, &mut Vec::new());
        }
    }
}
