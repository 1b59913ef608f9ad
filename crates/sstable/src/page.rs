//! Pages of the data file: their Thrift headers, and their bytes decompressed.
//!
//! Only the headers that our writer produces are understood: dictionary pages and data pages of version 1.

use crate::lz4::{Progress, SLACK};
use crate::meta::Compression;
use crate::pack::bits::zigzag;
use crate::point::SCRATCH_BYTES_MAX;
use crate::value::{Encoding, varint};
use oribi_types::{Error, Result};
use std::cell::RefCell;
use zstd::bulk::Decompressor;

/// The most bytes that a page may claim to hold decompressed; beyond this the header lies. A page ends with the value
/// that fills it, the log takes none above 256 MiB, and the writer refuses what the reader would not read.
pub const PAGE_BYTES_MAX: usize = 257 << 20;

/// The header in front of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageHeader {
    /// Bytes of the header itself.
    pub header_bytes: usize,
    /// Bytes of the page behind the header, as stored.
    pub stored_bytes: usize,
    /// The same, decompressed.
    pub plain_bytes: usize,
    pub dictionary: bool,
    /// Rows of a data page, entries of a dictionary.
    pub values: u32,
    pub encoding: Encoding,
}

impl PageHeader {
    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// `Corrupt` if there is none of the kinds that the writer produces.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        PageHeader::try_read(bytes).ok_or_else(|| Error::corrupt("malformed page header"))
    }

    /// Appends the header, all but its own length.
    pub fn write(&self, out: &mut Vec<u8>) {
        const LEVELS: i64 = 3;
        let encoding = match self.encoding {
            Encoding::Plain => 0,
            Encoding::Dictionary => 8,
            Encoding::Delta => 5,
        };
        let int = |out: &mut Vec<u8>, n: i64| {
            out.push(0x10 | I32);
            zigzag(n, out);
        };
        int(out, if self.dictionary { 2 } else { 0 });
        int(out, self.plain_bytes as i64);
        int(out, self.stored_bytes as i64);
        // From field 3 to 7, or to 5.
        out.push(if self.dictionary { 4 << 4 } else { 2 << 4 } | STRUCT);
        int(out, self.values.into());
        int(out, encoding);
        if !self.dictionary {
            int(out, LEVELS);
            int(out, LEVELS);
        }
        out.extend_from_slice(&[0, 0]);
    }

    fn try_read(bytes: &[u8]) -> Option<Self> {
        let mut thrift = Thrift { rest: bytes };
        let (mut kind, mut plain, mut stored, mut details) = (None, None, None, None);
        let mut id = 0;
        while let Some(field) = thrift.field(&mut id)? {
            match (id, field) {
                (1, I32) => kind = Some(thrift.int()?),
                (2, I32) => plain = Some(thrift.int()?),
                (3, I32) => stored = Some(thrift.int()?),
                (5 | 7, STRUCT) => details = Some((id, thrift.details()?)),
                (_, other) => thrift.skip(other, 0)?,
            }
        }
        let (details_of, (values, encoding)) = details?;
        let dictionary = match (kind?, details_of) {
            (0, 5) => false,
            (2, 7) => true,
            _ => return None,
        };
        Some(PageHeader {
            header_bytes: bytes.len() - thrift.rest.len(),
            stored_bytes: usize::try_from(stored?).ok()?,
            plain_bytes: usize::try_from(plain?).ok().filter(|n| *n <= PAGE_BYTES_MAX)?,
            dictionary,
            values,
            encoding,
        })
    }
}

/// A page as it was read, and its contents as far as somebody wanted them. Its memory serves the next page too.
#[derive(Default)]
pub struct Page {
    /// As stored; the page is its first `stored_bytes`.
    stored: Vec<u8>,
    stored_bytes: usize,
    /// Decompressed; buffers keep the length they once had, so that they are not cleared for each page.
    plain: Vec<u8>,
    progress: Progress,
}

impl Page {
    /// Room for a page of `bytes` as stored, which is to be filled and then [opened](Self::open).
    pub fn room(&mut self, bytes: usize) -> &mut [u8] {
        self.stored_bytes = bytes;
        self.progress = Progress::default();
        if self.stored.len() < bytes {
            self.stored.resize(bytes, 0);
        }
        &mut self.stored[..bytes]
    }

    /// The page, header and all, as stored.
    pub fn stored(&self) -> &[u8] {
        &self.stored[..self.stored_bytes]
    }

    /// Reads the header.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn open(&self, compression: Compression) -> Result<OpenPage> {
        Ok(OpenPage { header: header_of(self.stored(), compression)?, compression })
    }

    /// The first bytes of the contents: at least `wanted`, or all.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn contents(&mut self, open: &OpenPage, wanted: usize) -> Result<&[u8]> {
        let header = &open.header;
        if open.compression == Compression::None {
            return Ok(&self.stored[header.header_bytes..self.stored_bytes]);
        }
        let len = header.plain_bytes;
        if self.progress.written < wanted.min(len) {
            let block = &self.stored[header.header_bytes..self.stored_bytes];
            if self.plain.len() < len + SLACK {
                self.plain.resize(len + SLACK, 0);
            }
            let wanted = match open.compression {
                Compression::Zstd => {
                    let written =
                        decompress_zstd(block, &mut self.plain[..len]).ok_or_else(undecompressed)?;
                    self.progress.written = written;
                    len
                }
                _ => {
                    let (out, wanted) = (&mut self.plain[..len + SLACK], wanted.min(len));
                    self.progress.advance(block, out, wanted).ok_or_else(undecompressed)?;
                    wanted
                }
            };
            if !(wanted..=len).contains(&self.progress.written) {
                return Err(undecompressed());
            }
            // A long page is in memory once: the value that is wanted of it is copied next.
            if self.progress.written == len && self.stored.capacity() > SCRATCH_BYTES_MAX {
                self.stored = Vec::new();
            }
        }
        Ok(&self.plain[..self.progress.written])
    }

    /// All of the contents.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn whole(&mut self, open: &OpenPage) -> Result<&[u8]> {
        self.contents(open, open.header.plain_bytes)
    }

    /// Gives back buffers that are too large to be kept for the next page.
    pub fn shrink(&mut self) {
        if self.capacity() > SCRATCH_BYTES_MAX {
            *self = Page::default();
        }
    }

    /// Memory that the buffers take.
    pub fn capacity(&self) -> usize {
        self.stored.capacity() + self.plain.capacity()
    }
}

/// The header of a page that was read, and how the page was compressed.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenPage {
    pub header: PageHeader,
    compression: Compression,
}

impl OpenPage {
    /// A guess at how much of the contents holds the values up to the `n`-th: as if all took the same, and a bit more.
    pub fn bytes_through(&self, n: usize) -> usize {
        const MORE: usize = 128;
        let share = self.header.plain_bytes as u64 * (n as u64 + 1) / u64::from(self.header.values.max(1));
        usize::try_from(share).unwrap_or(usize::MAX).saturating_add(MORE).min(self.header.plain_bytes)
    }
}

/// Replaces `contents` by those of a page as it is stored, header and all.
///
/// # Errors
/// `Corrupt`.
pub fn unpack(stored: &[u8], compression: Compression, contents: &mut Vec<u8>) -> Result<PageHeader> {
    let header = header_of(stored, compression)?;
    let block = &stored[header.header_bytes..];
    if compression == Compression::None {
        contents.clear();
        contents.extend_from_slice(block);
        return Ok(header);
    }
    contents.resize(header.plain_bytes, 0);
    let written = match compression {
        Compression::Zstd => decompress_zstd(block, contents),
        _ => lz4_flex::block::decompress_into(block, contents).ok(),
    };
    if written == Some(header.plain_bytes) { Ok(header) } else { Err(undecompressed()) }
}

/// The header of a page, which may be what it says.
fn header_of(stored: &[u8], compression: Compression) -> Result<PageHeader> {
    let header = PageHeader::read(stored)?;
    if stored.len() != header.header_bytes + header.stored_bytes {
        return Err(Error::corrupt("page of wrong length"));
    }
    let block = header.stored_bytes;
    let impossible = match compression {
        Compression::None => block != header.plain_bytes,
        // LZ4 turns a byte into at most 255.
        Compression::Lz4 => header.plain_bytes / 256 > block,
        Compression::Zstd => false,
    };
    if impossible { Err(undecompressed()) } else { Ok(header) }
}

fn undecompressed() -> Error {
    Error::corrupt("page does not decompress")
}

fn decompress_zstd(stored: &[u8], out: &mut [u8]) -> Option<usize> {
    thread_local! {
        /// A decompressor is 100 KiB of tables: to make one for each page costs more than the page.
        static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    DECOMPRESSOR.with_borrow_mut(|slot| {
        let decompressor = match slot {
            Some(decompressor) => decompressor,
            None => slot.insert(Decompressor::new().ok()?),
        };
        decompressor.decompress_to_buffer(stored, out).ok()
    })
}

const I32: u8 = 5;
const STRUCT: u8 = 12;
const SKIP_DEPTH_MAX: u32 = 8;

/// Thrift's compact protocol, as far as page headers need it.
struct Thrift<'a> {
    rest: &'a [u8],
}

impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn int(&mut self) -> Option<i32> {
        let zigzag = varint(&mut self.rest)?;
        i32::try_from((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)).ok()
    }

    /// The type of the next field of a struct, `Some(None)` at the end of the struct; `id` goes on from the last one.
    fn field(&mut self, id: &mut i32) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        *id = match byte >> 4 {
            0 => self.int()?,
            delta => id.checked_add(i32::from(delta))?,
        };
        Some(Some(byte & 0x0f))
    }

    /// Number of values and encoding: fields 1 and 2 of both kinds of page.
    fn details(&mut self) -> Option<(u32, Encoding)> {
        let (mut values, mut encoding) = (None, None);
        let mut id = 0;
        while let Some(field) = self.field(&mut id)? {
            match (id, field) {
                (1, I32) => values = Some(u32::try_from(self.int()?).ok()?),
                (2, I32) => encoding = Some(self.int()?),
                (_, other) => self.skip(other, 0)?,
            }
        }
        let encoding = match encoding? {
            0 => Encoding::Plain,
            // PLAIN_DICTIONARY, the name of old, and RLE_DICTIONARY are the same in a data page.
            2 | 8 => Encoding::Dictionary,
            5 => Encoding::Delta,
            _ => return None,
        };
        Some((values?, encoding))
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        if depth > SKIP_DEPTH_MAX {
            return None;
        }
        match kind {
            1 | 2 => {}
            3 => self.take(1)?,
            4..=6 => {
                varint(&mut self.rest)?;
            }
            7 => self.take(8)?,
            8 => {
                let len = varint(&mut self.rest)?;
                self.take(usize::try_from(len).ok()?)?;
            }
            STRUCT => {
                let mut id = 0;
                while let Some(field) = self.field(&mut id)? {
                    self.skip(field, depth + 1)?;
                }
            }
            // No page header has lists or maps.
            _ => return None,
        }
        Some(())
    }

    fn take(&mut self, n: usize) -> Option<()> {
        self.rest = self.rest.get(n..)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_header_of_a_data_page() {
        // type 0, 100 bytes, 40 stored, data page header {7 values, encoding 8, levels RLE}
        let header = [0x15, 0, 0x15, 200, 1, 0x15, 80, 0x2c, 0x15, 14, 0x15, 16, 0x15, 6, 0x15, 6, 0, 0];
        let expected = PageHeader {
            header_bytes: 18,
            stored_bytes: 40,
            plain_bytes: 100,
            dictionary: false,
            values: 7,
            encoding: Encoding::Dictionary,
        };
        assert_eq!(PageHeader::read(&header).unwrap(), expected);
        let mut written = Vec::new();
        expected.write(&mut written);
        assert_eq!(written, header);
        for len in 0..header.len() {
            assert!(PageHeader::read(&header[..len]).is_err());
        }
    }

    #[test]
    fn no_bytes_make_it_panic_or_allocate() {
        proptest::proptest!(|(bytes: Vec<u8>)| {
            let mut page = Page::default();
            for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
                page.room(bytes.len()).copy_from_slice(&bytes);
                if let Ok(open) = page.open(compression) {
                    let _ = page.contents(&open, 7);
                    let _ = page.whole(&open);
                }
            }
        });
    }
}
