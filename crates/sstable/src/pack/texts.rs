//! Texts and blobs.

use super::bits;
use super::slots::{Slots, mix};
use super::{ColumnOptions, PackedValues, Values};
use crate::bloom;
use crate::value::Encoding;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use std::collections::HashSet;
use std::ops::Range;

/// What stands before each value.
const LENGTH_BYTES: usize = 4;
/// Values that are looked at before there is a dictionary.
const SAMPLE: usize = 256;
const SAMPLE_MIN: usize = 64;

pub struct Texts {
    options: ColumnOptions,
    /// Of the page, plain, as far as they are not in the dictionary.
    plain: Vec<u8>,
    /// Of the page, in the dictionary.
    positions: Vec<u32>,
    dictionary: Dictionary,
    least: Bound,
    greatest: Bound,
    text_bytes: usize,
    is_full: bool,
    /// Whether the chunk has no value yet.
    is_new: bool,
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

impl Texts {
    pub fn new(options: &ColumnOptions) -> Self {
        Texts {
            options: options.clone(),
            plain: Vec::new(),
            positions: Vec::new(),
            dictionary: Dictionary::new(options.dictionary_bytes_max),
            least: Bound::default(),
            greatest: Bound::default(),
            text_bytes: 0,
            is_full: false,
            is_new: true,
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

impl Values for Texts {
    fn add(&mut self, array: &ArrayRef, rows: Range<usize>) -> usize {
        let views = Views::of(array);
        if std::mem::take(&mut self.is_new) && rows.len() >= SAMPLE_MIN {
            let sample = rows.start..rows.end.min(rows.start + SAMPLE);
            let count = sample.len();
            let distinct: HashSet<&[u8]> = sample.map(|row| views.value(row)).collect();
            self.dictionary.is_open &= distinct.len() <= count / 16 * 15;
        }
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

    fn pack(&mut self, _is_first: bool, out: &mut Vec<u8>) -> PackedValues {
        let encoding = if self.positions.is_empty() {
            out.append(&mut self.plain);
            Encoding::Plain
        } else {
            let width = bits::width_of(self.dictionary.starts.len() as u64 - 1);
            out.push(width as u8);
            bits::runs(&self.positions, width, out);
            self.positions.clear();
            Encoding::Dictionary
        };
        self.is_full = false;
        self.dictionary.page += 1;
        let bounds = self.least.value.take().zip(self.greatest.value.take());
        let text_bytes = Some(std::mem::take(&mut self.text_bytes) as i64);
        PackedValues { encoding, bounds, text_bytes }
    }

    fn take_dictionary(&mut self) -> (Vec<u8>, usize) {
        self.is_new = true;
        let dictionary = Dictionary::new(self.options.dictionary_bytes_max);
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
        if len <= INLINE_MAX {
            let start = n * size_of::<u128>() + size_of::<u32>();
            return &self.bytes[start..start + len];
        }
        let (buffer, offset) = ((view >> 64) as u32 as usize, (view >> 96) as usize);
        &self.buffers[buffer][offset..offset + len]
    }
}

/// The most bytes that a view has in itself.
const INLINE_MAX: usize = 12;

/// Distinct values, by the order in which they came.
struct Dictionary {
    /// Whether values are still looked for in it.
    is_open: bool,
    bytes_max: usize,
    /// The values, plain, and where each begins.
    entries: Vec<u8>,
    starts: Vec<u32>,
    /// Short values, and of others the length, the first bytes and a hash.
    keys: Vec<u128>,
    /// The last page in which each came.
    seen: Vec<u32>,
    page: u32,
    slots: Slots,
    last: Option<(u128, u32)>,
}

impl Dictionary {
    fn new(bytes_max: usize) -> Self {
        Dictionary {
            is_open: bytes_max > 0,
            bytes_max,
            entries: Vec::new(),
            starts: Vec::new(),
            keys: Vec::new(),
            seen: Vec::new(),
            page: 1,
            slots: Slots::default(),
            last: None,
        }
    }

    /// The position of a value, which is added if there is room for it; otherwise nothing is looked for any more.
    fn find(&mut self, view: u128, value: &[u8]) -> Option<u32> {
        let is_short = value.len() <= INLINE_MAX;
        // Values often come in runs.
        if let Some((last, position)) = self.last
            && last == view
            && is_short
        {
            return Some(position);
        }
        let key =
            if is_short { view } else { u128::from(view as u64) | u128::from(bloom::hash(value)) << 64 };
        self.slots.reserve(self.keys.len(), |n| hash(self.keys[n]));
        let is_it = |n: usize| self.keys[n] == key && (is_short || self.value(n, value.len()) == value);
        let position = match self.slots.find(hash(key), is_it) {
            Ok(n) => n,
            Err(_) if self.entries.len() + LENGTH_BYTES + value.len() > self.bytes_max => {
                self.is_open = false;
                return None;
            }
            Err(free) => {
                self.slots.set(free, self.keys.len());
                self.starts.push(self.entries.len() as u32);
                self.entries.extend_from_slice(&(value.len() as u32).to_le_bytes());
                self.entries.extend_from_slice(value);
                self.keys.push(key);
                self.seen.push(0);
                self.keys.len() - 1
            }
        } as u32;
        self.last = Some((view, position));
        Some(position)
    }

    /// The value at a position, which is so long.
    fn value(&self, position: usize, len: usize) -> &[u8] {
        let start = self.starts[position] as usize + LENGTH_BYTES;
        &self.entries[start..start + len]
    }
}

fn hash(key: u128) -> u64 {
    mix(mix(key as u64) ^ (key >> 64) as u64)
}
