//! Which rows of a file a snapshot does not see: a bit for each row of it, set if the snapshot sees it.
//!
//! So a scan has the bits of a row group as a part of those of the file, and tests none by itself.

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::{BooleanBuffer, MutableBuffer};
use oribi_sstable::RowSelection;
use oribi_types::{Error, Result};
use std::ops::Range;

/// Positions in a file that a snapshot does not see.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hidden {
    /// `None` if it sees all.
    seen: Option<BooleanBuffer>,
    rows: u64,
}

impl Hidden {
    /// The positions `hidden` of a file of `len` rows.
    pub(crate) fn new(len: usize, hidden: impl IntoIterator<Item = u32>) -> Self {
        Hidden::default().with(len, hidden)
    }

    /// These and the positions `more` of a file of `len` rows.
    pub(crate) fn with(&self, len: usize, more: impl IntoIterator<Item = u32>) -> Self {
        let mut more = more.into_iter().peekable();
        if more.peek().is_none() {
            return self.clone();
        }
        let bytes = match &self.seen {
            Some(seen) => MutableBuffer::from(seen.values().to_vec()),
            None => MutableBuffer::from(vec![u8::MAX; len.div_ceil(8)]),
        };
        let mut seen = BooleanBufferBuilder::new_from_buffer(bytes, len);
        more.for_each(|row| seen.set_bit(row as usize, false));
        let seen = seen.finish();
        Hidden { rows: (len - seen.count_set_bits()) as u64, seen: Some(seen) }
    }

    /// A bit for each row of the file, set if the snapshot sees it; `None` if it sees all. For another process.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let seen = self.seen.as_ref()?;
        let mut bytes = BooleanBufferBuilder::new(seen.len());
        bytes.append_buffer(seen);
        Some(bytes.finish().values().to_vec())
    }

    /// What [`to_bytes`](Self::to_bytes) gave for a file of `len` rows.
    ///
    /// # Errors
    /// `Corrupt` for too few bytes.
    pub fn from_bytes(len: usize, bytes: Option<Vec<u8>>) -> Result<Self> {
        let Some(bytes) = bytes else { return Ok(Hidden::default()) };
        if bytes.len() < len.div_ceil(8) {
            return Err(Error::corrupt(format!("{} bytes say which of {len} rows are hidden", bytes.len())));
        }
        let seen = BooleanBuffer::new(bytes.into(), 0, len);
        Ok(Hidden { rows: (len - seen.count_set_bits()) as u64, seen: Some(seen) })
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// A bit for each row of the file, if there are any.
    pub fn memory_bytes(&self) -> usize {
        self.seen.as_ref().map_or(0, |seen| seen.inner().capacity())
    }

    pub fn contains(&self, row: u32) -> bool {
        self.seen.as_ref().is_some_and(|seen| !seen.value(row as usize))
    }

    /// A bit for each of `rows` that `within` selects, all if it is `None`: whether the snapshot sees it. `None` if it sees them
    /// all.
    pub(crate) fn seen(&self, rows: &Range<u32>, within: Option<&RowSelection>) -> Option<BooleanBuffer> {
        let seen = self.seen.as_ref()?.slice(rows.start as usize, rows.len());
        let seen = match within {
            None => seen,
            Some(within) => {
                let mut selected = BooleanBufferBuilder::new(within.row_count());
                let mut next = 0;
                for run in within.iter() {
                    if !run.skip {
                        selected.append_buffer(&seen.slice(next, run.row_count));
                    }
                    next += run.row_count;
                }
                selected.finish()
            }
        };
        seen.has_false().then_some(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_what_is_selected() {
        let none = Hidden::new(20, []);
        assert!(none.is_empty() && none.seen(&(0..20), None).is_none());
        let hidden = none.with(20, [3, 9]).with(20, [9, 17]);
        assert_eq!(hidden.len(), 3);
        assert_eq!((0..20).filter(|row| hidden.contains(*row)).collect::<Vec<_>>(), [3, 9, 17]);
        let seen = hidden.seen(&(8..16), None).unwrap();
        assert_eq!(seen.iter().collect::<Vec<_>>(), [true, false, true, true, true, true, true, true]);
        assert!(hidden.seen(&(10..17), None).is_none());
        assert_eq!(Hidden::from_bytes(20, hidden.to_bytes()).unwrap(), hidden);
        assert_eq!(Hidden::from_bytes(20, none.to_bytes()).unwrap(), none);
        assert!(Hidden::from_bytes(25, hidden.to_bytes()).is_err());
        let within = RowSelection::from_consecutive_ranges([1..3, 6..7].into_iter(), 8);
        let seen = hidden.seen(&(8..16), Some(&within)).unwrap();
        assert_eq!(seen.iter().collect::<Vec<_>>(), [false, true, true]);
    }
}
