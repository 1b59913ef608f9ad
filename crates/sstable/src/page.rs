//! Pages of the data file: their Thrift headers, and their bytes decompressed.
//!
//! Only the headers that our writer produces are understood: dictionary pages and data pages of version 1.

use crate::meta::Compression;
use crate::value::varint;
use oribi_types::{Error, Result};
use std::cell::RefCell;
use zstd::bulk::Decompressor;

/// The most bytes that a page may claim to hold decompressed; beyond this the header lies. A page ends with the value
/// that fills it, the log takes none above 256 MiB, and the writer refuses what the reader would not read.
pub const PAGE_BYTES_MAX: usize = 257 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Plain,
    Dictionary,
}

/// The header in front of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Appends the decompressed contents of `page` (header and bytes) to `out`.
///
/// # Errors
/// `Corrupt`.
pub fn decompress(page: &[u8], compression: Compression, out: &mut Vec<u8>) -> Result<PageHeader> {
    let header = PageHeader::read(page)?;
    let stored = &page[header.header_bytes..];
    if stored.len() != header.stored_bytes {
        return Err(Error::corrupt("page of wrong length"));
    }
    let start = out.len();
    let written = match compression {
        Compression::None => {
            out.extend_from_slice(stored);
            Some(stored.len())
        }
        // LZ4 turns a byte into at most 255.
        Compression::Lz4 if header.plain_bytes / 256 > stored.len() => None,
        Compression::Lz4 => {
            out.resize(start + header.plain_bytes, 0);
            lz4_flex::block::decompress_into(stored, &mut out[start..]).ok()
        }
        Compression::Zstd => {
            out.resize(start + header.plain_bytes, 0);
            decompress_zstd(stored, &mut out[start..])
        }
    };
    if written == Some(header.plain_bytes) {
        Ok(header)
    } else {
        Err(Error::corrupt("page does not decompress"))
    }
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
        for len in 0..header.len() {
            assert!(PageHeader::read(&header[..len]).is_err());
        }
    }

    #[test]
    fn no_bytes_make_it_panic_or_allocate() {
        proptest::proptest!(|(bytes: Vec<u8>)| {
            let mut out = Vec::new();
            for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
                let _ = decompress(&bytes, compression, &mut out);
            }
        });
    }
}
