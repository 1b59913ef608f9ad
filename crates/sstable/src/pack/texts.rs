//! Texts and blobs.

use super::bits;
use super::text_dictionary::TextDictionary;
use super::{ColumnOptions, PackedValues, PagePacker};
use crate::point::SCRATCH_BYTES_MAX;
use crate::unpack::INLINE_BYTES_MAX;
use crate::value::Encoding;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use std::ops::Range;

/// What stands before each value.
pub const LENGTH_BYTES: usize = 4;

/// Values of any length.
pub struct TextPage {
    options: ColumnOptions,
    /// Of the page, plain, as far as they are not in the dictionary.
    plain: Vec<u8>,
    /// Of the page, in the dictionary.
    positions: Vec<u32>,
    dictionary: TextDictionary,
    least: Bound,
    greatest: Bound,
    text_bytes: usize,
    is_full: bool,
}

/// A value, and its first bytes as a number.
#[derive(Default)]
struct Bound {
    prefix: u64,
    value: Option<Vec<u8>>,
}

impl Bound {
    /// Takes `value` if `is_beyond` the bound by now, of which the prefixes decide mostly.
    fn note(&mut self, value: &[u8], prefix: u64, is_below: bool) {
        let Some(bound) = &mut self.value else {
            *self = Bound { prefix, value: Some(value.to_vec()) };
            return;
        };
        let (a, b) = if is_below { (prefix, self.prefix) } else { (self.prefix, prefix) };
        if a > b {
            return;
        }
        let is_beyond = a < b || if is_below { value < bound.as_slice() } else { value > bound.as_slice() };
        if is_beyond {
            self.prefix = prefix;
            bound.clear();
            bound.extend_from_slice(value);
        }
    }
}

/// The first bytes of a value, in whose order numbers are that values have.
fn prefix(value: &[u8]) -> u64 {
    match value.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; size_of::<u64>()];
            first[..value.len()].copy_from_slice(value);
            u64::from_be_bytes(first)
        }
    }
}

impl TextPage {
    pub fn new(options: &ColumnOptions) -> Self {
        TextPage {
            options: options.clone(),
            plain: Vec::new(),
            positions: Vec::new(),
            dictionary: TextDictionary::new(options.dictionary_bytes_max),
            least: Bound::default(),
            greatest: Bound::default(),
            text_bytes: 0,
            is_full: false,
        }
    }

    /// A value of the page that is in the dictionary.
    fn push_known(&mut self, position: u32, value: &[u8]) {
        self.text_bytes += value.len();
        self.positions.push(position);
        let page = self.dictionary.page;
        if std::mem::replace(&mut self.dictionary.seen[position as usize], page) != page {
            self.note(value);
        }
    }

    /// A value of the page that is not.
    fn push(&mut self, value: &[u8]) {
        self.text_bytes += value.len();
        self.plain.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.plain.extend_from_slice(value);
        self.is_full = self.plain.len() >= self.options.page_bytes;
        self.note(value);
    }

    fn note(&mut self, value: &[u8]) {
        let prefix = prefix(value);
        self.least.note(value, prefix, true);
        self.greatest.note(value, prefix, false);
    }
}

impl PagePacker for TextPage {
    fn add(&mut self, array: &ArrayRef, rows: Range<usize>) -> usize {
        let views = Views::of(array);
        let count = rows.len();
        for (n, row) in rows.enumerate() {
            let value = views.value(row);
            if !self.dictionary.is_open {
                self.push(value);
            } else if let Some(position) = self.dictionary.find(views.views[row], value) {
                self.push_known(position, value);
            } else if self.positions.is_empty() {
                self.push(value);
            } else {
                // It is the next page's, which has no dictionary any more.
                self.is_full = true;
                return n;
            }
            if self.is_full {
                return n + 1;
            }
        }
        count
    }

    fn is_full(&self) -> bool {
        self.is_full
    }

    fn bytes(&self) -> usize {
        self.plain.len() + size_of_val(self.positions.as_slice()) + self.dictionary.entries.len()
    }

    fn pack(&mut self, out: &mut Vec<u8>) -> PackedValues {
        // A page of nulls is as those around it.
        let is_known = !self.positions.is_empty() || self.plain.is_empty() && self.dictionary.is_open;
        let encoding = if is_known {
            bits::positions(&self.positions, self.dictionary.starts.len(), out);
            self.positions.clear();
            Encoding::Dictionary
        } else {
            out.append(&mut self.plain);
            Encoding::Plain
        };
        if self.plain.capacity() > SCRATCH_BYTES_MAX {
            self.plain = Vec::new();
        }
        self.is_full = false;
        self.dictionary.page += 1;
        let bounds = self.least.value.take().zip(self.greatest.value.take());
        let text_bytes = Some(std::mem::take(&mut self.text_bytes) as i64);
        PackedValues { encoding, bounds, text_bytes }
    }

    fn take_dictionary(&mut self) -> (Vec<u8>, usize) {
        let dictionary = TextDictionary::new(self.options.dictionary_bytes_max);
        let dictionary = std::mem::replace(&mut self.dictionary, dictionary);
        (dictionary.entries, dictionary.starts.len())
    }
}

/// Where the values of an array lie.
struct Views<'a> {
    views: &'a [u128],
    /// The same.
    bytes: &'a [u8],
    buffers: &'a [Buffer],
}

impl<'a> Views<'a> {
    fn of(array: &'a ArrayRef) -> Self {
        let (views, buffers) = match array.data_type() {
            DataType::BinaryView => {
                let array = array.as_binary_view();
                (array.views(), array.data_buffers())
            }
            _ => {
                let array = array.as_string_view();
                (array.views(), array.data_buffers())
            }
        };
        Views { views, bytes: views.inner(), buffers }
    }

    /// What a view shows: its length, and behind that the bytes, or the first four, and the buffer and the place that they lie
    /// at. (Apache Arrow, Columnar Format, "Variable-size Binary View Layout".)
    fn value(&self, n: usize) -> &'a [u8] {
        let view = self.views[n];
        let len = view as u32 as usize;
        if len <= INLINE_BYTES_MAX {
            let start = n * size_of::<u128>() + size_of::<u32>();
            return &self.bytes[start..start + len];
        }
        let (buffer, offset) = ((view >> 64) as u32 as usize, (view >> 96) as usize);
        &self.buffers[buffer][offset..offset + len]
    }
}
