//! Pages of values of a fixed width.

use super::layouts::{Bools, Bytes, Doubles, Floats, Integers, Layout};
use super::slots::{Slot, Slots};
use super::{ColumnOptions, PackedValues, PagePacker, bits, index};
use crate::value::{Encoding, Physical};
use arrow::array::ArrayRef;
use parquet::schema::types::ColumnDescriptor;
use std::ops::Range;

/// Whatever packs them; `None` for values of any length.
pub fn fixed(
    physical: Physical,
    column: &ColumnDescriptor,
    options: &ColumnOptions,
) -> Option<Box<dyn PagePacker>> {
    let dictionary_bytes_max = options.dictionary_bytes_max;
    Some(match physical {
        Physical::Bool => Box::new(FixedPage::new(Bools, 0)),
        Physical::Int32 => Box::new(FixedPage::new(Integers { flip: 0_i32 }, dictionary_bytes_max)),
        Physical::Int64 => {
            let flip = if index::is_signed(column) { 0 } else { i64::MIN };
            Box::new(FixedPage::new(Integers { flip }, dictionary_bytes_max))
        }
        Physical::Float => Box::new(FixedPage::new(Floats, dictionary_bytes_max)),
        Physical::Double => Box::new(FixedPage::new(Doubles, dictionary_bytes_max)),
        // Ids are distinct mostly, and such decimals are sums.
        Physical::Fixed(width) => {
            let is_decimal = index::is_decimal(column);
            Box::new(FixedPage::new(Bytes { width: width.into(), is_decimal }, 0))
        }
        Physical::Bytes => return None,
    })
}

struct FixedPage<L: Layout> {
    layout: L,
    /// Of the page.
    values: Vec<L::Value>,
    dictionary: FixedDictionary<L>,
    dictionary_bytes_max: usize,
    /// Scratch.
    positions: Vec<u32>,
}

impl<L: Layout> FixedPage<L> {
    fn new(layout: L, dictionary_bytes_max: usize) -> Self {
        let dictionary = FixedDictionary::new(dictionary_bytes_max > 0);
        FixedPage { layout, values: Vec::new(), dictionary, dictionary_bytes_max, positions: Vec::new() }
    }

    /// Finds the values of the page in the dictionary, or adds them; false if it does not take them all, and no others from then on.
    fn find(&mut self) -> bool {
        let known = self.dictionary.values.len();
        let entries_max = self.dictionary_bytes_max / size_of::<L::Value>();
        if self.dictionary.is_open && !self.dictionary.find(&self.values, entries_max, &mut self.positions) {
            self.dictionary.is_open = false;
            self.dictionary.values.truncate(known);
        }
        self.dictionary.is_open
    }
}

impl<L: Layout> PagePacker for FixedPage<L> {
    fn add(&mut self, array: &ArrayRef, rows: Range<usize>) -> usize {
        let count = rows.len();
        self.layout.read(array, rows, &mut self.values);
        count
    }

    fn is_full(&self) -> bool {
        false
    }

    fn bytes(&self) -> usize {
        (self.values.len() + self.dictionary.values.len()) * size_of::<L::Value>()
    }

    fn pack(&mut self, out: &mut Vec<u8>) -> PackedValues {
        let bounds = self.layout.bounds(&self.values).map(|(least, greatest)| {
            let plain = |value| {
                let mut bytes = Vec::new();
                self.layout.plain(value, &mut bytes);
                bytes
            };
            (plain(least), plain(greatest))
        });
        let encoding = if self.find() {
            bits::positions(&self.positions, self.dictionary.values.len(), out);
            Encoding::Dictionary
        } else {
            self.layout.encode(&self.values, out)
        };
        self.values.clear();
        PackedValues { encoding, bounds, text_bytes: None }
    }

    fn take_dictionary(&mut self) -> (Vec<u8>, usize) {
        let dictionary =
            std::mem::replace(&mut self.dictionary, FixedDictionary::new(self.dictionary_bytes_max > 0));
        let mut entries = Vec::new();
        dictionary.values.iter().for_each(|value| self.layout.plain(*value, &mut entries));
        (entries, dictionary.values.len())
    }
}

/// Distinct values, by the order in which they came.
struct FixedDictionary<L: Layout> {
    /// Values are still added.
    is_open: bool,
    values: Vec<L::Value>,
    slots: Slots,
}

impl<L: Layout> FixedDictionary<L> {
    fn new(is_open: bool) -> Self {
        FixedDictionary { is_open, values: Vec::new(), slots: Slots::default() }
    }

    /// The positions of `values`; false if there would be too many.
    fn find(&mut self, values: &[L::Value], entries_max: usize, positions: &mut Vec<u32>) -> bool {
        positions.clear();
        let mut last: Option<(L::Value, u32)> = None;
        for value in values {
            // Values often come in runs.
            let position = match last {
                Some((last, position)) if last == *value => position,
                _ => match self.position(*value, entries_max) {
                    Some(position) => position,
                    None => return false,
                },
            };
            last = Some((*value, position));
            positions.push(position);
        }
        true
    }

    fn position(&mut self, value: L::Value, entries_max: usize) -> Option<u32> {
        let values = &self.values;
        let has_room = self.slots.reserve(values.len(), |n| L::hash(values[n]));
        let position = match self.slots.find(L::hash(value), |n| values[n] == value) {
            Slot::Of(n) => n,
            Slot::Free(free) if has_room && values.len() < entries_max => {
                self.slots.set(free, values.len());
                self.values.push(value);
                self.values.len() - 1
            }
            Slot::Free(_) | Slot::TooFar => return None,
        };
        Some(position as u32)
    }
}
