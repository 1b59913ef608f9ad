//! Integers as Parquet's `DELTA_BINARY_PACKED` has them, for one value or the first ones of a page.
//!
//! A page is its first value and then blocks: the least difference of a block stands at its front, and what each
//! difference has beyond it follows in *miniblocks* of as many bits a value as the largest of them needs. What is sorted,
//! or near the value before it, takes a few bits, and neither reading nor writing it looks anything up.
//! (Apache Parquet, Encodings.md, "Delta Encoding".)

use crate::bits::{GROUP, unpack};
use crate::value::{malformed, varint};
use oribi_types::Result;

/// Value `n` of `values`.
///
/// # Errors
/// `Corrupt` if there is none.
pub fn nth(values: &[u8], n: usize) -> Result<i64> {
    let mut last = 0;
    let keep = |group: &[i64]| last = group.last().copied().unwrap_or(last);
    walk(values, n.saturating_add(1), keep).ok_or_else(malformed)?;
    Ok(last)
}

/// Replaces `out` by the first `count` values as they stand in a plain page, each in its lower `width` bytes.
///
/// # Errors
/// `Corrupt` if there are fewer.
pub fn expand(values: &[u8], count: usize, width: usize, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    let found = match width {
        4 => walk(values, count, |group| append(group, |value| (value as i32).to_le_bytes(), out)),
        _ => walk(values, count, |group| append(group, i64::to_le_bytes, out)),
    };
    found.ok_or_else(malformed)
}

fn append<const N: usize>(group: &[i64], plain: impl Fn(i64) -> [u8; N], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + group.len() * N, 0);
    let (places, _) = out[start..].as_chunks_mut();
    places.iter_mut().zip(group).for_each(|(place, value)| *place = plain(*value));
}

/// Calls `each` with the first `count` values, some at a time; `None` if there are fewer. Sums wrap, so what is summed here
/// for 32 bits is right in its lower half.
pub fn walk(values: &[u8], count: usize, mut each: impl FnMut(&[i64])) -> Option<()> {
    let mut rest = values;
    let block = usize::try_from(varint(&mut rest)?).ok()?;
    let miniblocks = usize::try_from(varint(&mut rest)?).ok()?;
    let miniblock = block.checked_div(miniblocks).filter(|n| n * miniblocks == block)?;
    if miniblock == 0 || !miniblock.is_multiple_of(GROUP) || varint(&mut rest)? < count as u64 {
        return None;
    }
    let mut value = zigzag(varint(&mut rest)?);
    let mut left = count;
    if left > 0 {
        each(&[value]);
        left -= 1;
    }
    let mut group = [0; GROUP];
    while left > 0 {
        let least = zigzag(varint(&mut rest)?);
        let (widths, packed) = rest.split_at_checked(miniblocks)?;
        rest = packed;
        for &width in widths {
            for _ in 0..miniblock / GROUP {
                if left == 0 {
                    return Some(());
                }
                let behind = rest.get(GROUP / 8 * usize::from(width)..)?;
                unpack(rest, width.into(), &mut group)?;
                for sum in &mut group {
                    value = value.wrapping_add(least.wrapping_add(*sum));
                    *sum = value;
                }
                let wanted = left.min(GROUP);
                each(&group[..wanted]);
                (rest, left) = (behind, left - wanted);
            }
        }
    }
    Some(())
}

fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::bits::differences;
    use parquet::basic::Encoding;
    use parquet::column::page::{Page, PageReader};
    use parquet::data_type::{DataType, Int32Type, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// What the Parquet crate makes of `values`: the contents of a page.
    fn encode<T: DataType>(physical: &str, values: &[T::T]) -> Vec<u8> {
        let schema = parse_message_type(&format!("message m {{ REQUIRED {physical} c; }}")).unwrap();
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BINARY_PACKED)
            .build();
        let mut file = Vec::new();
        let mut writer =
            SerializedFileWriter::new(&mut file, Arc::new(schema), Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<T>().write_batch(values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        let mut pages: Box<dyn PageReader> =
            reader.get_row_group(0).unwrap().get_column_page_reader(0).unwrap();
        match pages.get_next_page().unwrap().unwrap() {
            Page::DataPage { buf, encoding: Encoding::DELTA_BINARY_PACKED, .. } => buf.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// Numbers that differ by up to some number of bits, and numbers that do not differ.
    fn numbers() -> impl Strategy<Value = Vec<i64>> {
        let runs = prop::collection::vec(
            (0..=64u32, any::<i64>(), prop::collection::vec(any::<u64>(), 1..150)),
            1..6,
        );
        runs.prop_map(|runs| {
            let run = |(bits, base, steps): (u32, i64, Vec<u64>)| {
                steps
                    .into_iter()
                    .map(move |step| base.wrapping_add(step.checked_shr(64 - bits).unwrap_or(0) as i64))
            };
            runs.into_iter().flat_map(run).collect()
        })
    }

    proptest! {
        #[test]
        fn gives_what_the_crate_encoded_as_we_do(values in numbers(), wanted: prop::sample::Index) {
            let narrow: Vec<i32> = values.iter().map(|v| *v as i32).collect();
            let (encoded, encoded_narrow) =
                (encode::<Int64Type>("INT64", &values), encode::<Int32Type>("INT32", &narrow));
            let (mut ours, mut ours_narrow) = (Vec::new(), Vec::new());
            differences(&values, &mut ours);
            differences(&narrow, &mut ours_narrow);
            prop_assert_eq!((&ours, &ours_narrow), (&encoded, &encoded_narrow));
            let n = wanted.index(values.len());
            prop_assert_eq!(nth(&encoded, n).unwrap(), values[n]);
            prop_assert_eq!(nth(&encoded_narrow, n).unwrap() as i32, narrow[n]);
            prop_assert!(nth(&encoded, values.len()).is_err());
            let mut out = vec![1];
            expand(&encoded, n + 1, 8, &mut out).unwrap();
            prop_assert_eq!(&out, &values[..=n].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
            expand(&encoded_narrow, n + 1, 4, &mut out).unwrap();
            prop_assert_eq!(&out, &narrow[..=n].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
            // A page is read to where it is decompressed: what is cut off is missed, not made up.
            for len in 0..encoded.len() {
                if let Ok(value) = nth(&encoded[..len], n) {
                    prop_assert_eq!(value, values[n]);
                }
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, n in 0..2_000usize) {
            let _ = nth(&bytes, n);
            let _ = expand(&bytes, n, 4, &mut Vec::new());
        }

        /// Behind a header that could be one.
        #[test]
        fn no_blocks_make_it_panic(bytes: Vec<u8>, count in 0..1_000u16, miniblocks in 1..5u8) {
            let mut page = vec![0x80, miniblocks, miniblocks, count as u8 | 0x80, (count >> 7) as u8, 3];
            page.extend_from_slice(&bytes);
            let _ = nth(&page, usize::from(count) / 2);
            let _ = expand(&page, usize::from(count), 8, &mut Vec::new());
        }
    }
}
