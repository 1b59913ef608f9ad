//! A dictionary of texts.

use super::slots::{Slot, Slots, mix};
use super::texts::LENGTH_BYTES;
use crate::bloom;
use crate::unpack::INLINE_BYTES_MAX;

/// Distinct values, by the order in which they came.
pub struct TextDictionary {
    /// Values are still looked for in it.
    pub is_open: bool,
    bytes_max: usize,
    /// The values, plain, and where each begins.
    pub entries: Vec<u8>,
    pub starts: Vec<u32>,
    /// Short values, and of others the length, the first bytes and a hash.
    keys: Vec<u128>,
    /// The last page in which each came.
    pub seen: Vec<u32>,
    pub page: u32,
    slots: Slots,
    last: Option<(u128, u32)>,
}

impl TextDictionary {
    pub fn new(bytes_max: usize) -> Self {
        TextDictionary {
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
    pub fn find(&mut self, view: u128, value: &[u8]) -> Option<u32> {
        let is_short = value.len() <= INLINE_BYTES_MAX;
        // Values often come in runs.
        if let Some((last, position)) = self.last
            && last == view
            && is_short
        {
            return Some(position);
        }
        let key =
            if is_short { view } else { u128::from(view as u64) | u128::from(bloom::hash(value)) << 64 };
        let has_room = self.slots.reserve(self.keys.len(), |n| hash(self.keys[n]));
        let is_it = |n: usize| self.keys[n] == key && (is_short || self.value(n, value.len()) == value);
        let position = match self.slots.find(hash(key), is_it) {
            Slot::Of(n) => n,
            Slot::Free(free)
                if has_room && self.entries.len() + LENGTH_BYTES + value.len() <= self.bytes_max =>
            {
                self.slots.set(free, self.keys.len());
                self.starts.push(self.entries.len() as u32);
                self.entries.extend_from_slice(&(value.len() as u32).to_le_bytes());
                self.entries.extend_from_slice(value);
                self.keys.push(key);
                self.seen.push(0);
                self.keys.len() - 1
            }
            Slot::Free(_) | Slot::TooFar => {
                self.is_open = false;
                return None;
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
