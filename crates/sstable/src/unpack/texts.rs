//! Texts and blobs, as views.
//!
//! Where most values of a page are wanted, views point into the page, which the arrays then keep. Of others the values are copied:
//! a few of them would keep all of it. Of a long page it is not how many they are that matters, but how long.

use super::places::positions;
use super::{PageValues, Values, spread};
use crate::value::{ByteStrings, Encoding, LONG_PAGE_BYTES, malformed};
use arrow::array::{ArrayRef, GenericByteViewArray};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};
use oribi_types::utf8::from_utf8;
use oribi_types::{Error, Result};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of bytes that views point into: what was copied, the dictionary, and then pages.
const COPIED: u32 = 0;
const DICTIONARY: u32 = 1;
const PAGES: usize = 2;

/// The longest value that stands in its view.
pub const INLINE_BYTES_MAX: usize = 12;

struct Texts<T> {
    dictionary: Vec<u128>,
    dictionary_block: Buffer,
    /// Whether views are of it.
    uses_dictionary: bool,
    views: Vec<u128>,
    copied: Vec<u8>,
    pages: Vec<Buffer>,
    positions: Vec<u32>,
    of: PhantomData<fn() -> T>,
}

pub fn texts(data_type: &DataType) -> Option<Box<dyn Values>> {
    match data_type {
        DataType::Utf8View => Some(Box::new(Texts::<StringViewType>::new())),
        DataType::BinaryView => Some(Box::new(Texts::<BinaryViewType>::new())),
        _ => None,
    }
}

impl<T: ByteViewType> Texts<T> {
    fn new() -> Self {
        Texts {
            dictionary: Vec::new(),
            dictionary_block: Buffer::default(),
            uses_dictionary: false,
            views: Vec::new(),
            copied: Vec::new(),
            pages: Vec::new(),
            positions: Vec::new(),
            of: PhantomData,
        }
    }

    /// Copies the values at `places`.
    fn copy(&mut self, bytes: &[u8], places: &[Range<usize>]) -> Result<()> {
        let mut strings = ByteStrings::new(bytes);
        let mut at = 0;
        for places in places {
            if places.start > at {
                strings.nth(places.start - at - 1).ok_or_else(malformed)?;
            }
            at = places.end;
            for _ in places.clone() {
                let place = strings.next().ok_or_else(malformed)?;
                check::<T>(&bytes[place.clone()])?;
                let offset = offset(self.copied.len())?;
                if place.len() > INLINE_BYTES_MAX {
                    self.copied.extend_from_slice(&bytes[place.clone()]);
                }
                self.views.push(view(bytes, place, COPIED, offset));
            }
        }
        Ok(())
    }
}

impl<T: ByteViewType> Values for Texts<T> {
    fn set_dictionary(&mut self, contents: Buffer, count: usize) -> Result<()> {
        self.dictionary.clear();
        debug_assert!(self.views.is_empty(), "the dictionary comes first");
        let places = (count > 0).then_some(0..count);
        let viewed = views::<T>((&contents, 0), places.as_slice(), DICTIONARY, &mut self.dictionary)?;
        self.dictionary_block = if viewed.is_in_block() { contents } else { Buffer::default() };
        Ok(())
    }

    fn append(&mut self, page: PageValues<'_>, places: &[Range<usize>]) -> Result<()> {
        match page.encoding {
            Encoding::Plain => {
                let wanted: usize = places.iter().map(ExactSizeIterator::len).sum();
                let is_long = page.contents.len() > LONG_PAGE_BYTES;
                if !is_long && 2 * wanted < page.count {
                    return self.copy(page.bytes(), places);
                }
                let (block, before) = ((PAGES + self.pages.len()) as u32, self.views.len());
                let viewed = views::<T>((page.contents, page.at), places, block, &mut self.views)?;
                if is_long && 2 * viewed.bytes < page.contents.len() {
                    self.views.truncate(before);
                    return self.copy(page.bytes(), places);
                }
                if viewed.is_in_block() {
                    self.pages.push(page.contents.clone());
                }
                Ok(())
            }
            Encoding::Dictionary => {
                let dictionary = &self.dictionary[..];
                positions(page.bytes(), places, dictionary.len(), &mut self.positions)?;
                self.views.extend(self.positions.iter().map(|position| dictionary[*position as usize]));
                self.uses_dictionary = true;
                Ok(())
            }
            Encoding::Delta => Err(malformed()),
        }
    }

    fn reserve(&mut self, more: usize) {
        self.views.reserve(more);
    }

    fn len(&self) -> usize {
        self.views.len()
    }

    fn spread(&mut self, from: usize, valid: &BooleanBuffer) {
        spread(&mut self.views, from, valid);
    }

    #[allow(unsafe_code)]
    fn finish(&mut self, nulls: Option<NullBuffer>) -> ArrayRef {
        let views = std::mem::take(&mut self.views);
        let copied = Buffer::from_vec(std::mem::take(&mut self.copied));
        let dictionary = match std::mem::take(&mut self.uses_dictionary) {
            true => self.dictionary_block.clone(),
            false => Buffer::default(),
        };
        let mut blocks = vec![copied, dictionary];
        blocks.append(&mut self.pages);
        if blocks.iter().all(Buffer::is_empty) {
            blocks.clear();
        }
        assert!(nulls.as_ref().is_none_or(|nulls| nulls.len() == views.len()), "as many nulls as views");
        // SAFETY: views are made by `view` alone, of bytes that stand at that offset of that block and that were checked to be
        // UTF-8 if `T` asks for it; blocks keep their places until here. A view of nothing, of a null, is zero.
        Arc::new(unsafe {
            GenericByteViewArray::<T>::new_unchecked(ScalarBuffer::from(views), blocks, nulls)
        })
    }
}

/// What views were made of.
#[derive(Clone, Copy, Default)]
struct Viewed {
    /// Of all values.
    bytes: usize,
    longest: usize,
    /// Of the values that were passed over.
    longest_passed: usize,
}

impl Viewed {
    /// Whether a view points into the block.
    fn is_in_block(self) -> bool {
        self.longest > INLINE_BYTES_MAX
    }
}

/// Appends views of the plain values at `places` of a block, which begin at `contents.1` of it; none if they are not what `T` may be.
fn views<T: ByteViewType>(
    contents: (&Buffer, usize),
    places: &[Range<usize>],
    block: u32,
    out: &mut Vec<u128>,
) -> Result<Viewed> {
    let before = out.len();
    let result = unchecked_views(contents, places, block, out).and_then(|(all, viewed)| {
        // Lengths below 128, of four bytes, are four ASCII characters: if all is UTF-8, lengths and values, so is each value.
        const ASCII_END: usize = 128;
        if viewed.longest_passed.max(viewed.longest) >= ASCII_END || check::<T>(all).is_err() {
            ByteStrings::new(all).try_for_each(|place| check::<T>(&all[place]))?;
        }
        Ok(viewed)
    });
    if result.is_err() {
        out.truncate(before);
    }
    result
}

/// Appends views of whatever stands there: these values and those between them, with their lengths.
fn unchecked_views<'a>(
    (contents, at): (&'a Buffer, usize),
    places: &[Range<usize>],
    block: u32,
    out: &mut Vec<u128>,
) -> Result<(&'a [u8], Viewed)> {
    let bytes = &contents[at..];
    // Then all offsets fit.
    offset(contents.len())?;
    let mut viewed = Viewed::default();
    let Some(first) = places.first() else { return Ok((&[], viewed)) };
    let mut strings = ByteStrings::new(bytes);
    if first.start > 0 {
        strings.nth(first.start - 1).ok_or_else(malformed)?;
    }
    let (start, mut number) = (strings.at(), first.start);
    let (before, wanted) = (out.len(), places.iter().map(ExactSizeIterator::len).sum::<usize>());
    if wanted > bytes.len() / size_of::<u32>() {
        return Err(malformed());
    }
    // Each is written where it will be: a loop that may have to grow what it fills keeps less in registers.
    out.resize(before + wanted, 0);
    let mut left = &mut out[before..];
    for places in places {
        for _ in number..places.start {
            let passed = strings.next().ok_or_else(malformed)?;
            viewed.longest_passed = viewed.longest_passed.max(passed.len());
        }
        for to in left.split_off_mut(..places.len()).expect("there are as many as are wanted") {
            let place = strings.next().ok_or_else(malformed)?;
            viewed.longest = viewed.longest.max(place.len());
            viewed.bytes += place.len();
            let offset = (at + place.start) as u32;
            *to = view(bytes, place, block, offset);
        }
        number = places.end;
    }
    Ok((&bytes[start..strings.at()], viewed))
}

/// Whether `bytes` are what `T` may be.
fn check<T: ByteViewType>(bytes: &[u8]) -> Result<()> {
    if T::IS_UTF8 { from_utf8(bytes).map(drop).map_err(|_| malformed()) } else { Ok(()) }
}

fn offset(bytes: usize) -> Result<u32> {
    u32::try_from(bytes).map_err(|_| Error::too_large("texts of a batch take more than 4 GiB"))
}

/// The view of the value at `place` of `bytes`: its length, and then itself, or its first four bytes and where it stands.
#[inline]
fn view(bytes: &[u8], place: Range<usize>, block: u32, offset: u32) -> u128 {
    let len = place.len();
    let from = &bytes[place.start..];
    let word = match from.first_chunk() {
        Some(word) => u128::from_le_bytes(*word),
        None => {
            let mut word = [0; 16];
            word[..from.len()].copy_from_slice(from);
            u128::from_le_bytes(word)
        }
    };
    let value = match len <= INLINE_BYTES_MAX {
        true => word & ((1 << (8 * len)) - 1),
        false => u128::from(word as u32) | u128::from(block) << 32 | u128::from(offset) << 64,
    };
    len as u128 | value << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view_all(places: &[Range<usize>], out: &mut Vec<u128>) -> Result<Viewed> {
        views::<StringViewType>((&Buffer::from_vec(vec![0u8; 8]), 0), places, DICTIONARY, out)
    }

    #[test]
    fn more_values_than_a_page_can_hold_take_no_memory() {
        let mut out = Vec::new();
        for count in [3, usize::MAX] {
            assert!(view_all(std::slice::from_ref(&(0..count)), &mut out).is_err());
        }
        assert_eq!(out.capacity(), 0);
        view_all(&[0..1, 1..2], &mut out).unwrap();
        assert_eq!(out, [0, 0]);
        // What was there stays.
        assert!(view_all(&[0..1, 2..3], &mut out).is_err());
        assert_eq!(out, [0, 0]);
    }
}
