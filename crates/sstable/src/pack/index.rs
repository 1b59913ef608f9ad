//! What Parquet keeps of the pages of a column chunk: where they lie, and between which bounds their values are.

use super::PackedValues;
use crate::parquet_error;
use crate::value::Encoding;
use oribi_types::Result;
use parquet::basic::{
    BoundaryOrder, Compression as Codec, Encoding as ParquetEncoding, LogicalType, PageType, Type,
};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type,
    Int64Type,
};
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder, PageEncodingStats,
};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};
use std::cmp::Ordering;

/// Longer bounds are cut: what the Parquet crate and others leave of them.
const BOUND_BYTES_MAX: usize = 64;

pub struct ChunkIndex {
    pages: ColumnIndexBuilder,
    /// Rows, stored bytes and bytes of texts of each page.
    sizes: Vec<(i64, i32, Option<i64>)>,
    encodings: Vec<PageEncodingStats>,
    rows: u64,
    nulls: u64,
    bounds: Option<(Bound, Bound)>,
    /// Those of the last page that has some, and whether all came in this order.
    last: Option<(Bound, Bound)>,
    ascends: bool,
    descends: bool,
    stored_bytes: i64,
    plain_bytes: i64,
    dictionary_bytes: usize,
}

/// A value beyond which there is none, and whether there is this one.
#[derive(Clone)]
struct Bound {
    value: Vec<u8>,
    is_exact: bool,
}

impl ChunkIndex {
    pub fn new(column: &ColumnDescriptor) -> Self {
        ChunkIndex {
            pages: ColumnIndexBuilder::new(column.physical_type()),
            sizes: Vec::new(),
            encodings: Vec::new(),
            rows: 0,
            nulls: 0,
            bounds: None,
            last: None,
            ascends: true,
            descends: true,
            stored_bytes: 0,
            plain_bytes: 0,
            dictionary_bytes: 0,
        }
    }

    pub fn has_dictionary(&self) -> bool {
        self.encodings.iter().any(|pages| pages.encoding == ParquetEncoding::RLE_DICTIONARY)
    }

    /// Adds a page of so many rows, some of them null, and bytes, stored and before they were compressed.
    pub fn page(
        &mut self,
        column: &ColumnDescriptor,
        packed: PackedValues,
        (rows, nulls): (usize, usize),
        (stored, plain): (usize, usize),
    ) {
        let encoding = match packed.encoding {
            Encoding::Plain => ParquetEncoding::PLAIN,
            Encoding::Dictionary => ParquetEncoding::RLE_DICTIONARY,
            Encoding::Delta => ParquetEncoding::DELTA_BINARY_PACKED,
        };
        match self.encodings.last_mut() {
            Some(pages) if pages.encoding == encoding => pages.count += 1,
            _ => {
                self.encodings.push(PageEncodingStats { page_type: PageType::DATA_PAGE, encoding, count: 1 })
            }
        }
        self.sizes.push((rows as i64, stored as i32, packed.text_bytes));
        self.rows += rows as u64;
        self.nulls += nulls as u64;
        self.stored_bytes += stored as i64;
        self.plain_bytes += plain as i64;
        self.note_bounds(column, packed.bounds, rows == nulls, nulls);
    }

    fn note_bounds(
        &mut self,
        column: &ColumnDescriptor,
        bounds: Option<(Vec<u8>, Vec<u8>)>,
        is_null: bool,
        nulls: usize,
    ) {
        let Some((least, greatest)) = bounds else {
            // Of values without an order nothing can be said, nor of the other pages then.
            return match is_null {
                true if self.pages.valid() => self.pages.append(true, Vec::new(), Vec::new(), nulls as i64),
                true => {}
                false => self.pages.to_invalid(),
            };
        };
        // A bound may be long: from here on it is as it is stored.
        let (least, greatest) = (lower(column, least), upper(column, greatest));
        let order = |a: &Bound, b: &Bound| compare(column, &a.value, &b.value);
        if let Some((last_least, last_greatest)) = &self.last {
            let (by_least, by_greatest) = (order(last_least, &least), order(last_greatest, &greatest));
            self.ascends &= by_least.is_le() && by_greatest.is_le();
            self.descends &= by_least.is_ge() && by_greatest.is_ge();
        }
        let beyond = |bound: &mut Bound, other: &Bound, beyond: Ordering| match order(other, bound) {
            Ordering::Equal => bound.is_exact |= other.is_exact,
            order if order == beyond => bound.clone_from(other),
            _ => {}
        };
        match &mut self.bounds {
            Some((all_least, all_greatest)) => {
                beyond(all_least, &least, Ordering::Less);
                beyond(all_greatest, &greatest, Ordering::Greater);
            }
            none => *none = Some((least.clone(), greatest.clone())),
        }
        if self.pages.valid() {
            self.pages.append(false, least.value.clone(), greatest.value.clone(), nulls as i64);
        }
        self.last = Some((least, greatest));
    }

    /// The dictionary before the pages.
    pub fn dictionary(&mut self, stored: usize, plain: usize) {
        self.dictionary_bytes = stored;
        self.stored_bytes += stored as i64;
        self.plain_bytes += plain as i64;
        let (page_type, encoding) = (PageType::DICTIONARY_PAGE, ParquetEncoding::PLAIN);
        self.encodings.insert(0, PageEncodingStats { page_type, encoding, count: 1 });
    }

    /// What the Parquet crate is told of the chunk.
    ///
    /// # Errors
    /// `Internal`.
    pub fn close(mut self, column: &ColumnDescPtr, codec: Codec) -> Result<ColumnCloseResult> {
        // Those of levels are runs.
        let encodings = self.encodings.iter().map(|pages| pages.encoding).chain([ParquetEncoding::RLE]);
        let mut places = OffsetIndexBuilder::new();
        let mut offset = self.dictionary_bytes as i64;
        for (rows, stored, text_bytes) in &self.sizes {
            places.append_row_count(*rows);
            places.append_offset_and_size(offset, *stored);
            places.append_unencoded_byte_array_data_bytes(*text_bytes);
            offset += i64::from(*stored);
        }
        let order = match (self.ascends, self.descends) {
            (true, _) => BoundaryOrder::ASCENDING,
            (false, true) => BoundaryOrder::DESCENDING,
            (false, false) => BoundaryOrder::UNORDERED,
        };
        self.pages.set_boundary_order(order);
        let texts = self.sizes.iter().map(|(_, _, text_bytes)| *text_bytes).sum();
        let has_dictionary = self.dictionary_bytes > 0;
        let metadata = ColumnChunkMetaData::builder(column.clone())
            .set_compression(codec)
            .set_encodings(encodings.collect())
            .set_page_encoding_stats(self.encodings)
            .set_total_compressed_size(self.stored_bytes)
            .set_total_uncompressed_size(self.plain_bytes)
            .set_num_values(self.rows as i64)
            .set_data_page_offset(self.dictionary_bytes as i64)
            .set_dictionary_page_offset(has_dictionary.then_some(0))
            .set_statistics(statistics(column, self.bounds, self.nulls))
            .set_unencoded_byte_array_data_bytes(texts)
            .build()
            .map_err(parquet_error)?;
        Ok(ColumnCloseResult {
            bytes_written: self.stored_bytes as u64,
            rows_written: self.rows,
            metadata,
            bloom_filter: None,
            column_index: self
                .pages
                .valid()
                .then(|| self.pages.build())
                .transpose()
                .map_err(parquet_error)?,
            offset_index: Some(places.build()),
        })
    }
}

pub fn is_decimal(column: &ColumnDescriptor) -> bool {
    matches!(column.logical_type_ref(), Some(LogicalType::Decimal(_)))
}

/// Whether numbers may be below zero.
pub fn is_signed(column: &ColumnDescriptor) -> bool {
    !matches!(column.logical_type_ref(), Some(LogicalType::Integer(kind)) if !kind.is_signed)
}

/// A plain number.
fn little<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("values of the type have this length")
}

/// How two plain values are ordered.
fn compare(column: &ColumnDescriptor, a: &[u8], b: &[u8]) -> Ordering {
    match column.physical_type() {
        Type::INT32 => i32::from_le_bytes(little(a)).cmp(&i32::from_le_bytes(little(b))),
        Type::INT64 if is_signed(column) => i64::from_le_bytes(little(a)).cmp(&i64::from_le_bytes(little(b))),
        Type::INT64 => u64::from_le_bytes(little(a)).cmp(&u64::from_le_bytes(little(b))),
        Type::FLOAT => f32::from_le_bytes(little(a)).total_cmp(&f32::from_le_bytes(little(b))),
        Type::DOUBLE => f64::from_le_bytes(little(a)).total_cmp(&f64::from_le_bytes(little(b))),
        // The sign is the uppermost bit of the first byte.
        Type::FIXED_LEN_BYTE_ARRAY if is_decimal(column) => {
            let sign = |bytes: &[u8]| bytes.first().map_or(0, |first| first ^ 0x80);
            sign(a).cmp(&sign(b)).then_with(|| a.cmp(b))
        }
        _ => a.cmp(b),
    }
}

/// A value that is cut if it is too long; `cut` has the first characters of a text.
fn bound(column: &ColumnDescriptor, value: Vec<u8>, cut: impl Fn(&[u8], bool) -> Option<Vec<u8>>) -> Bound {
    // In the order of others what is shorter may be anywhere.
    if value.len() <= BOUND_BYTES_MAX || column.physical_type() != Type::BYTE_ARRAY {
        return Bound { value, is_exact: true };
    }
    let is_text = matches!(column.logical_type_ref(), Some(LogicalType::String | LogicalType::Json));
    let is_begin = |at: &usize| !is_text || std::str::from_utf8(&value[..*at]).is_ok();
    let at = (0..=BOUND_BYTES_MAX).rev().find(is_begin).unwrap_or_default();
    match cut(&value[..at], is_text) {
        Some(value) => Bound { value, is_exact: false },
        None => Bound { value, is_exact: true },
    }
}

/// A short value that is not above `least`.
fn lower(column: &ColumnDescriptor, least: Vec<u8>) -> Bound {
    bound(column, least, |first, _| Some(first.to_vec()))
}

/// A value that is not below `greatest`, a short one if there is one.
fn upper(column: &ColumnDescriptor, greatest: Vec<u8>) -> Bound {
    bound(column, greatest, |first, is_text| match std::str::from_utf8(first) {
        Ok(text) if is_text => text_above(text),
        _ => bytes_above(first),
    })
}

/// A text above all that begin with `text`, no longer than it.
fn text_above(text: &str) -> Option<Vec<u8>> {
    text.char_indices().rev().find_map(|(at, last)| {
        let next = char::from_u32(u32::from(last) + 1).filter(|next| next.len_utf8() == last.len_utf8())?;
        Some([&text.as_bytes()[..at], next.encode_utf8(&mut [0; 4]).as_bytes()].concat())
    })
}

fn bytes_above(bytes: &[u8]) -> Option<Vec<u8>> {
    let last = bytes.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut above = bytes[..=last].to_vec();
    above[last] += 1;
    Some(above)
}

fn statistics(column: &ColumnDescriptor, bounds: Option<(Bound, Bound)>, nulls: u64) -> Statistics {
    fn of<T: DataType>(
        column: &ColumnDescriptor,
        bounds: Option<(Bound, Bound)>,
        nulls: u64,
        value: impl Fn(Vec<u8>) -> T::T,
    ) -> Statistics {
        let (least, greatest) = bounds.unzip();
        let is_exact = |bound: &Option<Bound>| bound.as_ref().is_some_and(|bound| bound.is_exact);
        let (least_is_exact, greatest_is_exact) = (is_exact(&least), is_exact(&greatest));
        let (least, greatest) =
            (least.map(|bound| value(bound.value)), greatest.map(|bound| value(bound.value)));
        ValueStatistics::<T::T>::new(least, greatest, None, Some(nulls), false)
            .with_min_is_exact(least_is_exact)
            .with_max_is_exact(greatest_is_exact)
            .with_backwards_compatible_min_max(column.sort_order().is_signed())
            .into()
    }
    match column.physical_type() {
        Type::BOOLEAN => of::<BoolType>(column, bounds, nulls, |bytes| bytes[0] != 0),
        Type::INT32 => of::<Int32Type>(column, bounds, nulls, |bytes| i32::from_le_bytes(little(&bytes))),
        Type::INT64 => of::<Int64Type>(column, bounds, nulls, |bytes| i64::from_le_bytes(little(&bytes))),
        Type::FLOAT => of::<FloatType>(column, bounds, nulls, |bytes| f32::from_le_bytes(little(&bytes))),
        Type::DOUBLE => of::<DoubleType>(column, bounds, nulls, |bytes| f64::from_le_bytes(little(&bytes))),
        Type::FIXED_LEN_BYTE_ARRAY => {
            of::<FixedLenByteArrayType>(column, bounds, nulls, |bytes| ByteArray::from(bytes).into())
        }
        _ => of::<ByteArrayType>(column, bounds, nulls, ByteArray::from),
    }
}
