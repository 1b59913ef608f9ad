//! Packing the columns of a row group into Parquet's pages, as [`unpack`](crate::unpack) takes them apart.
//!
//! A page is gathered as values, and packed at once when it is full: what a value costs are a few instructions in a loop over its
//! page, without a branch on its type, and nothing is allocated for it. The Parquet crate writes what is around the pages: footers and page
//! indexes. What is written can be read by whoever reads Parquet: pages of version 1, with values that are plain, in a dictionary, or
//! differences.

pub mod bits;
mod fixed;
mod index;
mod layouts;
mod slots;
mod text_dictionary;
mod texts;

use crate::meta::Compression;
use crate::page::{PAGE_BYTES_MAX, PageHeader};
use crate::parquet_error;
use crate::point::SCRATCH_BYTES_MAX;
use crate::value::{Encoding, Physical};
use arrow::array::{Array, ArrayRef};
use bytes::Bytes;
use index::ChunkIndex;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use oribi_types::{Error, Result};
use parquet::basic::{Compression as Codec, ZstdLevel};
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::ColumnDescPtr;
use std::io::Write;
use std::ops::Range;

/// How a column is cut and encoded.
#[derive(Clone, Debug)]
pub struct ColumnOptions {
    /// A page ends at so many rows …
    pub page_rows: usize,
    /// … or with the value of any length that takes it to so many bytes.
    pub page_bytes: usize,
    /// What a dictionary may come to, plain; zero: there is none.
    pub dictionary_bytes_max: usize,
}

/// The values of a page while they are gathered, and the dictionary of their column chunk.
trait PagePacker: Send {
    /// Adds values of `array`, none of them null, until the page is full; how many.
    fn add(&mut self, array: &ArrayRef, rows: Range<usize>) -> usize;

    /// Whether another value would be too much for the page.
    fn is_full(&self) -> bool;

    /// Bytes in memory.
    fn bytes(&self) -> usize;

    /// Appends the values as they are to be stored, and begins another page.
    fn pack(&mut self, out: &mut Vec<u8>) -> PackedValues;

    /// The plain values of the dictionary, and how many there are. The next values are of another chunk.
    fn take_dictionary(&mut self) -> (Vec<u8>, usize);
}

/// What is known of the values of a page.
struct PackedValues {
    encoding: Encoding,
    /// The least and the greatest, plain without a length; `None` if there are none, or none that has an order.
    bounds: Option<(Vec<u8>, Vec<u8>)>,
    /// Of values of any length, what they come to.
    text_bytes: Option<i64>,
}

/// Packs a column, one chunk behind the other.
pub struct ColumnPacker {
    column: ColumnDescPtr,
    options: ColumnOptions,
    codec: Codec,
    compressor: Compressor,
    values: Box<dyn PagePacker>,
    /// Which rows of the page are not null, where some may be.
    valid: Option<Vec<bool>>,
    rows: usize,
    /// Pages that are packed.
    pages: Vec<u8>,
    index: ChunkIndex,
    /// Of a page before it is compressed.
    contents: Vec<u8>,
}

impl ColumnPacker {
    /// # Errors
    /// Those of making a compressor.
    pub fn new(
        column: ColumnDescPtr,
        physical: Physical,
        compression: Compression,
        mut options: ColumnOptions,
    ) -> Result<Self> {
        let values = fixed::fixed(physical, &column, &options);
        // Integers take less mostly, by their differences.
        if let Physical::Float | Physical::Double | Physical::Fixed(_) = physical
            && let Some(width) = physical.width()
        {
            options.page_rows = options.page_rows.min(options.page_bytes / width).max(1);
        }
        Ok(ColumnPacker {
            index: ChunkIndex::new(&column),
            codec: codec(compression),
            compressor: Compressor::new(compression)?,
            values: values.unwrap_or_else(|| Box::new(texts::TextPage::new(&options))),
            valid: (column.max_def_level() > 0).then(Vec::new),
            column,
            options,
            rows: 0,
            pages: Vec::new(),
            contents: Vec::new(),
        })
    }

    /// Adds `rows` of `array`.
    ///
    /// # Errors
    /// `TooLarge` for values that no page takes.
    pub fn add(&mut self, array: &ArrayRef, mut rows: Range<usize>) -> Result<()> {
        while !rows.is_empty() {
            let end = rows.end.min(rows.start + self.options.page_rows - self.rows);
            let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
            // Those without a null among them.
            let run = match nulls {
                Some(nulls) if nulls.is_null(rows.start) => {
                    let nulls = (rows.start..end).take_while(|row| nulls.is_null(*row)).count();
                    self.note_rows(nulls, false);
                    rows.start += nulls;
                    0..0
                }
                Some(nulls) => {
                    let count = (rows.start..end).take_while(|row| nulls.is_valid(*row)).count();
                    rows.start..rows.start + count
                }
                None => rows.start..end,
            };
            if !run.is_empty() {
                let added = self.values.add(array, run);
                self.note_rows(added, true);
                rows.start += added;
            }
            if self.rows >= self.options.page_rows || self.values.is_full() {
                self.end_page()?;
            }
        }
        Ok(())
    }

    fn note_rows(&mut self, rows: usize, are_valid: bool) {
        self.rows += rows;
        if let Some(valid) = &mut self.valid {
            valid.resize(self.rows, are_valid);
        }
    }

    /// Bytes of the chunk by now.
    pub fn bytes(&self) -> usize {
        self.pages.len() + self.values.bytes()
    }

    fn end_page(&mut self) -> Result<()> {
        self.contents.clear();
        let mut nulls = 0;
        if let Some(valid) = &mut self.valid {
            nulls = valid.iter().filter(|valid| !**valid).count();
            levels(valid, nulls, &mut self.contents);
            valid.clear();
        }
        let packed = self.values.pack(&mut self.contents);
        let header =
            PageHeader { values: self.rows as u32, encoding: packed.encoding, ..PageHeader::default() };
        let begin = self.pages.len();
        let plain = self.compressor.page(header, &self.contents, &mut self.pages)?;
        let rows = std::mem::take(&mut self.rows);
        if self.contents.capacity() > SCRATCH_BYTES_MAX {
            self.contents = Vec::new();
        }
        self.index.page(&self.column, packed, (rows, nulls), (self.pages.len() - begin, plain));
        Ok(())
    }

    /// Ends the chunk: gives it to `group`, and begins another.
    ///
    /// # Errors
    /// Those of [`add`](Self::add) and of the file.
    pub fn finish<W: Write + Send>(&mut self, group: &mut SerializedRowGroupWriter<'_, W>) -> Result<()> {
        if self.rows > 0 {
            self.end_page()?;
        }
        let (entries, count) = self.values.take_dictionary();
        let mut chunk = std::mem::take(&mut self.pages);
        if self.index.has_dictionary() {
            let header = PageHeader { values: count as u32, dictionary: true, ..PageHeader::default() };
            let mut dictionary = Vec::new();
            let plain = self.compressor.page(header, &entries, &mut dictionary)?;
            self.index.dictionary(dictionary.len(), plain);
            chunk.splice(..0, dictionary);
        }
        let index = std::mem::replace(&mut self.index, ChunkIndex::new(&self.column));
        let close = index.close(&self.column, self.codec)?;
        group.append_column(&Bytes::from(chunk), close).map_err(parquet_error)
    }
}

/// What Parquet calls it.
fn codec(compression: Compression) -> Codec {
    match compression {
        Compression::None => Codec::UNCOMPRESSED,
        Compression::Lz4 => Codec::LZ4_RAW,
        Compression::Zstd => Codec::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).expect("there is this level")),
    }
}

/// Appends which rows have a value, behind the length of that.
fn levels(valid: &[bool], nulls: usize, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    if nulls == 0 || nulls == valid.len() {
        bits::varint((valid.len() as u64) << 1, out);
        out.push(u8::from(nulls == 0));
    } else {
        let groups = valid.len().div_ceil(8);
        bits::varint((groups as u64) << 1 | 1, out);
        out.extend(
            valid.chunks(8).map(|rows| rows.iter().rev().fold(0, |byte, row| byte << 1 | u8::from(*row))),
        );
    }
    let len = (out.len() - begin - 4) as u32;
    out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
}

/// Compresses pages, with tables and memory that serve them all.
struct Compressor {
    kind: Kind,
    scratch: Vec<u8>,
}

enum Kind {
    None,
    Lz4(CompressTable),
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Compressor {
    fn new(compression: Compression) -> Result<Self> {
        let kind = match compression {
            Compression::None => Kind::None,
            Compression::Lz4 => Kind::Lz4(CompressTable::default()),
            Compression::Zstd => Kind::Zstd(zstd::bulk::Compressor::new(ZSTD_LEVEL)?),
        };
        Ok(Compressor { kind, scratch: Vec::new() })
    }

    /// Appends a page of `contents`; its length if it were not compressed.
    fn page(&mut self, header: PageHeader, contents: &[u8], out: &mut Vec<u8>) -> Result<usize> {
        if contents.len() > PAGE_BYTES_MAX {
            return Err(Error::too_large("a value is too large for an sstable"));
        }
        let bound = match self.kind {
            Kind::None => 0,
            Kind::Lz4(_) => get_maximum_output_size(contents.len()),
            Kind::Zstd(_) => zstd::zstd_safe::compress_bound(contents.len()),
        };
        if self.scratch.len() < bound {
            self.scratch.resize(bound, 0);
        }
        let stored = match &mut self.kind {
            Kind::None => contents,
            Kind::Lz4(table) => {
                let len = compress_into_with_table(contents, &mut self.scratch, table);
                &self.scratch[..len.map_err(|e| Error::internal(e.to_string()))?]
            }
            Kind::Zstd(compressor) => {
                let len = compressor.compress_to_buffer(contents, &mut self.scratch[..])?;
                &self.scratch[..len]
            }
        };
        let begin = out.len();
        PageHeader { stored_bytes: stored.len(), plain_bytes: contents.len(), ..header }.write(out);
        let header_bytes = out.len() - begin;
        out.extend_from_slice(stored);
        if self.scratch.len() > SCRATCH_BYTES_MAX {
            self.scratch = Vec::new();
        }
        Ok(header_bytes + contents.len())
    }
}

/// The library's own choice.
const ZSTD_LEVEL: i32 = 3;
