//! Reading the data file: no byte leaves here before the checksum of its page was compared.
//!
//! That is done at each read, not once per page: what was whole when it was first read may come back damaged once the
//! page cache has let go of it, and a checksum costs little beside reading and decompressing.

use crate::index::{DATA_MAGIC, Index};
use crate::meta::SstableId;
use crate::page::{OpenPage, Page, PageHeader};
use crate::reads::ReadCounters;
use bytes::Bytes;
use oribi_env::File;
use oribi_types::{Error, Result};
use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{ChunkReader, Length};
use std::io::{ErrorKind as IoErrorKind, Read};
use std::ops::Range;
use std::sync::Arc;

pub struct DataFile {
    file: Arc<dyn File>,
    id: SstableId,
    index: Index,
    /// Names of the columns, for messages.
    names: Vec<String>,
    pub(crate) reads: ReadCounters,
}

impl DataFile {
    pub fn new(file: Arc<dyn File>, id: SstableId, index: Index, names: Vec<String>) -> Self {
        DataFile { file, id, index, names, reads: ReadCounters::default() }
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Any bytes of the file. The extents that they touch are read whole.
    ///
    /// # Errors
    /// `Corrupt`, naming the damaged page; `Invalid` for a range outside the file.
    pub fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if range.start > range.end || range.end > self.index.data_bytes {
            return Err(Error::invalid(format!("sstable {}: range {range:?} is outside the file", self.id)));
        }
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let extents = self.extents_of(&range);
        let in_magic = range.start < DATA_MAGIC.len() as u64;
        let whole = if in_magic { 0 } else { self.index.extents[extents.start].offset };
        let whole = whole..extents.clone().last().map_or(range.end, |e| self.index.extent_range(e).end);
        let mut bytes = Vec::new();
        self.read_verified(whole.clone(), extents, &mut bytes)?;
        if in_magic && !bytes.starts_with(DATA_MAGIC) {
            return Err(self.corrupt("wrong magic at offset 0"));
        }
        let slice = (range.start - whole.start) as usize..(range.end - whole.start) as usize;
        Ok(Bytes::from(bytes).slice(slice))
    }

    /// Replaces `bytes` by those of extents that follow each other. After an error there are none.
    ///
    /// # Errors
    /// `Corrupt`, naming the damaged page.
    pub fn read_extents(&self, extents: Range<usize>, bytes: &mut Vec<u8>) -> Result<()> {
        let start = self.index.extents[extents.start].offset;
        let end = extents.clone().last().map_or(start, |last| self.index.extent_range(last).end);
        self.read_verified(start..end, extents, bytes)
    }

    /// Replaces `bytes` by those of a range, in which `extents` lie whole.
    fn read_verified(&self, range: Range<u64>, extents: Range<usize>, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.resize((range.end - range.start) as usize, 0);
        let verified = self.read_into(bytes, range.start).and_then(|()| {
            extents.into_iter().try_for_each(|extent| {
                let at = self.index.extent_range(extent);
                self.verify(
                    extent,
                    &bytes[(at.start - range.start) as usize..(at.end - range.start) as usize],
                )
            })
        });
        verified.inspect_err(|_| bytes.clear())
    }

    /// Reads a page and compares its checksum; its contents are decompressed when they are asked for.
    ///
    /// # Errors
    /// `Corrupt`, naming the damaged page.
    pub fn read_page(&self, extent: usize, page: &mut Page) -> Result<OpenPage> {
        let range = self.index.extent_range(extent);
        let bytes = (range.end - range.start) as usize;
        self.read_into(page.room(bytes), range.start)?;
        self.reads.read_page(bytes);
        self.verify(extent, page.stored())?;
        page.open(self.index.compression).map_err(|e| self.bad_page(extent, e))
    }

    /// The header of a page. Its checksum, which is that of the whole page, is not compared: it tells what reading the page would
    /// take, and no more.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn page_header(&self, extent: usize) -> Result<PageHeader> {
        /// Ours are far shorter.
        const HEADER_BYTES_MAX: usize = 512;
        let range = self.index.extent_range(extent);
        let mut bytes = [0; HEADER_BYTES_MAX];
        let begin = &mut bytes[..HEADER_BYTES_MAX.min((range.end - range.start) as usize)];
        self.read_into(begin, range.start)?;
        PageHeader::read(begin).map_err(|e| self.bad_page(extent, e))
    }

    /// The error for a page that passed its checksum but cannot be what the writer wrote.
    pub fn bad_page(&self, page: usize, what: impl std::fmt::Display) -> Error {
        self.corrupt(self.name_page(page, what))
    }

    fn extents_of(&self, range: &Range<u64>) -> Range<usize> {
        let extents = &self.index.extents;
        let first = extents.partition_point(|e| e.offset <= range.start).saturating_sub(1);
        first..extents.partition_point(|e| e.offset < range.end)
    }

    fn verify(&self, extent: usize, bytes: &[u8]) -> Result<()> {
        if crc32c::crc32c(bytes) != self.index.extents[extent].crc {
            let offset = self.index.extents[extent].offset;
            let what = format!("checksum mismatch at offset {offset}");
            return Err(self.corrupt(self.name_page(extent, what)));
        }
        Ok(())
    }

    fn read_into(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(bytes, offset).map_err(|e| match e.kind() {
            IoErrorKind::UnexpectedEof => self.corrupt("the data file is too short"),
            // It was there when it was opened: its rows are not absent.
            IoErrorKind::NotFound => self.corrupt("the data file is missing"),
            _ => Error::from(e).context(format!("sstable {}", self.id)),
        })
    }

    fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        Error::corrupt(format!("sstable {}: {what}", self.id))
    }

    /// Says which page `what` is about.
    fn name_page(&self, extent: usize, what: impl std::fmt::Display) -> String {
        let index = &self.index;
        for group in 0..index.groups() {
            for (position, name) in self.names.iter().enumerate() {
                let chunk = index.chunk(group, position);
                let what_page = match chunk.dictionary == Some(extent) {
                    true => "dictionary".to_owned(),
                    false if chunk.pages.contains(&extent) => format!("page {}", extent - chunk.pages.start),
                    false => continue,
                };
                return format!("{what_page} of column \"{name}\" in row group {group}: {what}");
            }
        }
        format!("footer: {what}")
    }
}

/// The data file as the Parquet crate reads it.
#[derive(Clone)]
pub struct VerifiedReader(pub Arc<DataFile>);

impl Length for VerifiedReader {
    fn len(&self) -> u64 {
        self.0.index.data_bytes
    }
}

impl ChunkReader for VerifiedReader {
    type T = SequentialReader;

    fn get_read(&self, start: u64) -> ParquetResult<SequentialReader> {
        Ok(SequentialReader { file: self.0.clone(), at: start, verified: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let range = start..start.saturating_add(length as u64);
        self.0.read(range).map_err(|e| parquet::errors::ParquetError::External(Box::new(e)))
    }
}

/// Reads the data file from some offset on, an extent at a time.
pub struct SequentialReader {
    file: Arc<DataFile>,
    /// Where `verified` ends.
    at: u64,
    /// What is left of the extent read last.
    verified: Bytes,
}

impl Read for SequentialReader {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let index = &self.file.index;
        if self.verified.is_empty() && self.at < index.data_bytes {
            let next = index.extents.partition_point(|e| e.offset <= self.at);
            let end = index.extents.get(next).map_or(index.data_bytes, |e| e.offset);
            self.verified = self.file.read(self.at..end).map_err(std::io::Error::other)?;
            self.at = end;
        }
        let len = self.verified.len().min(buf.len());
        buf[..len].copy_from_slice(&self.verified.split_to(len));
        Ok(len)
    }
}
