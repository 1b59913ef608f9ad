//! The values of a page, unpacked into Arrow arrays.
//!
//! What lies at a place that can be computed (plain numbers, packed positions in a dictionary) is read from there; what lies
//! behind other values (differences, texts) is come to by passing over these. (Apache Parquet, Encodings.md.)

mod numbers;
mod places;
mod texts;

use crate::value::{Encoding, Physical};
use arrow::array::ArrayRef;
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::DataType;
use oribi_types::Result;
use std::ops::Range;

pub use places::{Wanted, valid};
pub use texts::INLINE_BYTES_MAX;

/// What unpacks the values of one type.
pub trait Values: Send {
    /// Takes the dictionary of a column chunk: so many plain values. It is there before any page that needs it, and stays.
    ///
    /// # Errors
    /// `Corrupt` if they are not that.
    fn set_dictionary(&mut self, contents: Buffer, count: usize) -> Result<()>;

    /// Appends the values of a page at `places`, which ascend and are not empty.
    ///
    /// # Errors
    /// `Corrupt` if the page has none there.
    fn append(&mut self, page: PageValues<'_>, places: &[Range<usize>]) -> Result<()>;

    /// Makes room for so many more.
    fn reserve(&mut self, more: usize);

    /// How many were appended.
    fn len(&self) -> usize;

    /// Makes room for nulls: what was appended behind the first `from` values becomes that of the rows that are `valid`.
    fn spread(&mut self, from: usize, valid: &BooleanBuffer);

    /// What was appended, and begins anew; `nulls` has as many.
    fn finish(&mut self, nulls: Option<NullBuffer>) -> ArrayRef;
}

/// The values of a data page, without those that are null.
#[derive(Clone, Copy)]
pub struct PageValues<'a> {
    pub encoding: Encoding,
    pub contents: &'a Buffer,
    /// Where they begin in `contents`.
    pub at: usize,
    /// How many.
    pub count: usize,
}

impl PageValues<'_> {
    fn bytes(&self) -> &[u8] {
        &self.contents[self.at..]
    }
}

/// Moves what is behind the first `from` values to the places of the rows that are `valid`.
fn spread<T: Copy + Default>(values: &mut Vec<T>, from: usize, valid: &BooleanBuffer) {
    let mut left = values.len();
    values.resize(from + valid.len(), T::default());
    for row in (0..valid.len()).rev() {
        values[from + row] = match valid.value(row) {
            true => {
                left -= 1;
                values[left]
            }
            false => T::default(),
        };
    }
}

/// Whoever unpacks values of `physical` into arrays of `data_type`; `None` if they are no such values.
pub fn values_of(physical: Physical, data_type: &DataType) -> Option<Box<dyn Values>> {
    match physical {
        Physical::Bytes => texts::texts(data_type),
        Physical::Bool => numbers::bools(data_type),
        _ => numbers::numbers(physical, data_type),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Array;
    use arrow::datatypes::TimeUnit;
    use proptest::prelude::*;

    fn kinds() -> Vec<(Physical, DataType)> {
        vec![
            (Physical::Bool, DataType::Boolean),
            (Physical::Int32, DataType::Int8),
            (Physical::Int32, DataType::Decimal128(9, 2)),
            (Physical::Int64, DataType::Timestamp(TimeUnit::Microsecond, None)),
            (Physical::Float, DataType::Float32),
            (Physical::Fixed(3), DataType::Decimal128(38, 0)),
            (Physical::Fixed(16), DataType::FixedSizeBinary(16)),
            (Physical::Bytes, DataType::Utf8View),
            (Physical::Bytes, DataType::BinaryView),
        ]
    }

    /// Bytes, some of which are texts behind their lengths.
    fn contents() -> impl Strategy<Value = Vec<u8>> {
        let text = prop_oneof![4 => ".{0,20}", 1 => "[a-z]{0,200}"].prop_map(|text| {
            let len = text.len() as u32;
            [&len.to_le_bytes()[..], text.as_bytes()].concat()
        });
        let texts = prop::collection::vec(text, 0..40).prop_map(|texts| texts.concat());
        prop_oneof![
            any::<Vec<u8>>(),
            texts.clone(),
            (texts, any::<Vec<u8>>()).prop_map(|(a, b)| [a, b].concat())
        ]
    }

    proptest! {
        /// Whatever stands in a page: an error, or an array that Arrow finds nothing wrong with.
        #[test]
        fn no_bytes_make_it_panic_or_an_array_that_lies(
            kind in prop::sample::select(kinds()),
            dictionary in prop::option::of((contents(), prop_oneof![9 => 0..50usize, 1 => Just(u32::MAX as usize)])),
            pages in prop::collection::vec((contents(), 0..9usize, 0..3u8, 0..100usize), 0..4),
            steps in prop::collection::vec((0..9usize, 1..9usize), 1..9),
        ) {
            let mut values = values_of(kind.0, &kind.1).unwrap();
            if let Some((contents, count)) = dictionary {
                let _ = values.set_dictionary(Buffer::from_vec(contents), count);
            }
            let mut at = 0;
            let places: Vec<_> = steps.iter().map(|(gap, len)| {
                let start = at + gap;
                at = start + len;
                start..at
            }).collect();
            for (contents, at, encoding, count) in pages {
                let contents = Buffer::from_vec(contents);
                let encoding = [Encoding::Plain, Encoding::Dictionary, Encoding::Delta][usize::from(encoding)];
                let before = values.len();
                let page = PageValues { encoding, at: at.min(contents.len()), contents: &contents, count };
                if values.append(page, &places).is_ok() {
                    let wanted: usize = places.iter().map(ExactSizeIterator::len).sum();
                    prop_assert_eq!(values.len(), before + wanted);
                }
            }
            let len = values.len();
            let array = values.finish(None);
            prop_assert_eq!((array.len(), array.data_type()), (len, &kind.1));
            array.to_data().validate_full().unwrap();
            prop_assert_eq!(values.finish(None).len(), 0);
        }

        #[test]
        fn values_stand_where_rows_are_not_null(before: Vec<u8>, rows: Vec<Option<u8>>) {
            let mut values = before.clone();
            values.extend(rows.iter().flatten());
            spread(&mut values, before.len(), &rows.iter().map(Option::is_some).collect());
            let expected = before.into_iter().chain(rows.into_iter().map(Option::unwrap_or_default));
            prop_assert_eq!(values, expected.collect::<Vec<_>>());
        }
    }
}
