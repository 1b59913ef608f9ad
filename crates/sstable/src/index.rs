//! The index file: where each page lies and what it must hash to, a sparse key index, bloom filters.
//!
//! A header of fixed size lists the regions that follow, each with its length and CRC32C; the header's own CRC32C is
//! what the manifest remembers. The byte layout is described in `docs/format/sstable.md`.
//!
//! *Extents* cut the data file without gaps: behind the four magic bytes come the pages, in file order, and the tail
//! (Parquet's page index and footer) is the last extent.

use crate::bloom;
use crate::meta::{Compression, SstableMeta};
use crate::value::Physical;
use bytes::Bytes;
use oribi_types::{ColumnId, Error, Result};
use std::ops::Range;

const MAGIC: &[u8; 7] = b"ORIBIDX";
/// Before version 2, integers of the data file were plain: its readers know no others.
const VERSION: u8 = 2;
const REGIONS: usize = 7;
const REGIONS_AT: usize = 40;
const HEADER_CRC_AT: usize = REGIONS_AT + REGIONS * 12;
const HEADER_BYTES: usize = HEADER_CRC_AT + 4;

/// Rows per entry of the key index. Blocks start anew at each row group. They are shorter than pages of string keys, or
/// a look-up that starts at the front of its block would come through a page or two in vain.
pub const BLOCK_ROWS: u32 = 64;
/// Bytes before the first page: Parquet's magic.
pub const DATA_MAGIC: &[u8; 4] = b"PAR1";

const DICTIONARY: u32 = 1 << 31;

/// A column of the data file, in file order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexColumn {
    pub id: ColumnId,
    pub physical: Physical,
    pub nullable: bool,
}

/// Where a row group starts. A last entry, behind all row groups, says where they end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowGroup {
    pub first_row: u32,
    /// First entry of the key index.
    pub first_block: u32,
    /// First block of the bloom filters.
    pub first_filter_block: u32,
}

/// A page, or the tail of the data file. It ends where the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    /// First row of a data page; the row group's first row for a dictionary page.
    pub first_row: u32,
    pub crc: u32,
}

/// The pages of one column in one row group, as positions in [`Index::extents`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub dictionary: Option<usize>,
    pub pages: Range<usize>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Index {
    pub id: u64,
    pub data_bytes: u64,
    pub rows: u32,
    pub block_rows: u32,
    pub compression: Compression,
    pub columns: Vec<IndexColumn>,
    pub row_groups: Vec<RowGroup>,
    /// Per row group and column the first extent, with [`DICTIONARY`] set if that is a dictionary page; then the
    /// position of the tail.
    pub chunks: Vec<u32>,
    pub extents: Vec<Extent>,
    pub separators: Separators,
    pub filters: Bytes,
}

/// For each block a key that is greater than all keys before the block (or equal, if that key has copies on both
/// sides) and not greater than the block's first key: the shortest such key.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Separators {
    pub ends: Vec<u32>,
    pub bytes: Bytes,
}

impl Separators {
    pub fn get(&self, block: usize) -> &[u8] {
        let start = if block == 0 { 0 } else { self.ends[block - 1] };
        &self.bytes[start as usize..self.ends[block] as usize]
    }
}

impl Index {
    pub fn chunk(&self, row_group: usize, column: usize) -> Chunk {
        let at = row_group * self.columns.len() + column;
        let first = (self.chunks[at] & !DICTIONARY) as usize;
        let end = (self.chunks[at + 1] & !DICTIONARY) as usize;
        match self.chunks[at] & DICTIONARY {
            0 => Chunk { dictionary: None, pages: first..end },
            _ => Chunk { dictionary: Some(first), pages: first + 1..end },
        }
    }

    pub fn push_chunk(&mut self, dictionary: bool) {
        self.chunks.push(self.extents.len() as u32 | if dictionary { DICTIONARY } else { 0 });
    }

    /// The number of row groups.
    pub fn groups(&self) -> usize {
        self.row_groups.len() - 1
    }

    pub fn row_group_of(&self, row: u32) -> usize {
        self.row_groups.partition_point(|g| g.first_row <= row) - 1
    }

    /// The data page of `column` that holds `row`, as a position in `extents`, and its rows.
    pub fn page_of(&self, row: u32, column: usize) -> (usize, Range<u32>) {
        let row_group = self.row_group_of(row);
        let pages = self.chunk(row_group, column).pages;
        let rows = self.row_groups[row_group].first_row..self.row_groups[row_group + 1].first_row;
        // Pages of a column have about as many rows each: the one sought is the one guessed, or near. A binary search
        // meets a cache line per step, in an index that other data has pushed out of the cache.
        let guess = u64::from(row - rows.start) * pages.len() as u64 / u64::from(rows.end - rows.start);
        let mut page = pages.start + guess as usize;
        while self.extents[page].first_row > row {
            page -= 1;
        }
        let end =
            |page: usize| if page + 1 < pages.end { self.extents[page + 1].first_row } else { rows.end };
        while end(page) <= row {
            page += 1;
        }
        (page, self.extents[page].first_row..end(page))
    }

    /// The rows with which the pages of a column begin.
    pub fn page_starts(&self, row_group: usize, column: usize) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.extents[self.chunk(row_group, column).pages].iter().map(|page| page.first_row as usize)
    }

    /// The rows of a row group, by their positions in the file.
    pub fn rows_of_group(&self, row_group: usize) -> Range<usize> {
        let [first, end] = [row_group, row_group + 1].map(|group| self.row_groups[group].first_row as usize);
        first..end
    }

    /// The bytes of an extent.
    pub fn extent_range(&self, extent: usize) -> Range<u64> {
        let end = self.extents.get(extent + 1).map_or(self.data_bytes, |e| e.offset);
        self.extents[extent].offset..end
    }

    /// Position of the column with `id`.
    pub fn column(&self, id: ColumnId) -> Option<usize> {
        self.columns.iter().position(|c| c.id == id)
    }

    /// A row at or before the first copy of `key`, from the same block or the one before.
    pub fn row_before(&self, key: &[u8]) -> u32 {
        let blocks = self.separators.ends.len();
        let block = partition_point(blocks, |b| self.separators.get(b) < key).saturating_sub(1) as u32;
        let group = self.row_groups.partition_point(|g| g.first_block <= block) - 1;
        let group = self.row_groups[group];
        group.first_row + (block - group.first_block) * self.block_rows
    }

    /// The blocks that begin at a key between `from` and `to`, by their positions among all.
    pub fn blocks_between(&self, from: &[u8], to: Option<&[u8]>) -> Range<usize> {
        let blocks = self.separators.ends.len();
        let start = partition_point(blocks, |b| self.separators.get(b) <= from);
        let end = to.map_or(blocks, |to| partition_point(blocks, |b| self.separators.get(b) < to));
        start..end.max(start)
    }

    /// Those of patches have none: nobody looks for their keys.
    pub fn has_filters(&self) -> bool {
        !self.filters.is_empty()
    }

    /// Bytes of the pages of the column at `column`.
    pub fn column_bytes(&self, column: usize) -> u64 {
        let pages = |group: usize| {
            let Chunk { dictionary, pages } = self.chunk(group, column);
            let last = self.extent_range(pages.end - 1);
            last.end - self.extent_range(dictionary.unwrap_or(pages.start)).start
        };
        (0..self.groups()).map(pages).sum()
    }

    /// Whether `key`, which lies between the first and the last key and has the [`bloom::hash`] `hash`, may be there,
    /// by the bloom filter of the only row group that must have it if any has.
    pub fn may_contain(&self, key: &[u8], hash: u64) -> bool {
        let group = partition_point(self.groups(), |g| {
            self.separators.get(self.row_groups[g].first_block as usize) <= key
        });
        let group = group.saturating_sub(1);
        let filter = |g: usize| self.row_groups[g].first_filter_block as usize * bloom::BLOCK_BYTES;
        bloom::contains(&self.filters[filter(group)..filter(group + 1)], hash)
    }

    /// Bytes that the index takes in memory.
    pub fn memory_bytes(&self) -> usize {
        self.extents.len() * size_of::<Extent>()
            + self.chunks.len() * 4
            + self.separators.ends.len() * 4
            + self.separators.bytes.len()
            + self.filters.len()
    }

    /// The index file, and the checksum that goes into the manifest.
    pub fn encode(&self) -> (Vec<u8>, u32) {
        let regions: [Vec<u8>; REGIONS] = [
            self.columns.iter().flat_map(|c| encode_column(*c)).collect(),
            self.row_groups
                .iter()
                .flat_map(|g| [g.first_row, g.first_block, g.first_filter_block])
                .flat_map(u32::to_le_bytes)
                .collect(),
            self.chunks.iter().flat_map(|c| c.to_le_bytes()).collect(),
            self.extents.iter().flat_map(|e| encode_extent(*e)).collect(),
            self.separators.ends.iter().flat_map(|e| e.to_le_bytes()).collect(),
            self.separators.bytes.to_vec(),
            self.filters.to_vec(),
        ];
        let mut file = Vec::with_capacity(HEADER_BYTES + regions.iter().map(Vec::len).sum::<usize>());
        file.extend_from_slice(MAGIC);
        file.push(VERSION);
        file.extend_from_slice(&self.id.to_le_bytes());
        file.extend_from_slice(&self.data_bytes.to_le_bytes());
        for word in [self.rows, self.block_rows, self.compression as u32, REGIONS as u32] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        for region in &regions {
            file.extend_from_slice(&(region.len() as u64).to_le_bytes());
            file.extend_from_slice(&crc32c::crc32c(region).to_le_bytes());
        }
        let checksum = crc32c::crc32c(&file);
        file.extend_from_slice(&checksum.to_le_bytes());
        for region in &regions {
            file.extend_from_slice(region);
        }
        (file, checksum)
    }

    /// Reads an index file.
    ///
    /// # Errors
    /// `Corrupt` if it is not the file that `meta` was made with.
    pub fn decode(file: Bytes, meta: &SstableMeta) -> Result<Self> {
        let header = file.get(..HEADER_BYTES).ok_or_else(|| corrupt("is too short"))?;
        if !header.starts_with(MAGIC) || !(1..=VERSION).contains(&header[MAGIC.len()]) {
            return Err(corrupt("unknown magic or version"));
        }
        let checksum = le_u32(header, HEADER_CRC_AT);
        if checksum != meta.index_checksum || checksum != crc32c::crc32c(&header[..HEADER_CRC_AT]) {
            return Err(corrupt("checksum mismatch in the header"));
        }
        let regions = split_regions(&file, header)?;
        let index = Index {
            id: le_u64(header, 8),
            data_bytes: le_u64(header, 16),
            rows: le_u32(header, 24),
            block_rows: le_u32(header, 28),
            compression: decode_compression(le_u32(header, 32))?,
            columns: entries::<8>(&regions[0])?.map(|c| decode_column(&c)).collect::<Result<_>>()?,
            row_groups: entries::<12>(&regions[1])?
                .map(|g| RowGroup {
                    first_row: le_u32(&g, 0),
                    first_block: le_u32(&g, 4),
                    first_filter_block: le_u32(&g, 8),
                })
                .collect(),
            chunks: entries::<4>(&regions[2])?.map(u32::from_le_bytes).collect(),
            extents: entries::<16>(&regions[3])?
                .map(|e| Extent { offset: le_u64(&e, 0), first_row: le_u32(&e, 8), crc: le_u32(&e, 12) })
                .collect(),
            separators: Separators {
                ends: entries::<4>(&regions[4])?.map(u32::from_le_bytes).collect(),
                bytes: regions[5].clone(),
            },
            filters: regions[6].clone(),
        };
        if index.id != meta.id || u64::from(index.rows) != meta.rows || index.data_bytes != meta.data_bytes {
            return Err(corrupt("belongs to another sstable"));
        }
        index.validate().ok_or_else(|| corrupt("contradicts itself"))?;
        Ok(index)
    }

    /// Checks all that the other functions take for granted, so that none of them can panic.
    fn validate(&self) -> Option<()> {
        let ensure = |condition: bool| condition.then_some(());
        let columns = self.columns.len();
        let groups = self.row_groups.len().checked_sub(1)?;
        ensure(columns > 0 && groups > 0 && self.block_rows > 0 && self.rows > 0)?;

        ensure(self.row_groups[0] == RowGroup::default())?;
        for pair in self.row_groups.windows(2) {
            let rows = pair[1].first_row.checked_sub(pair[0].first_row)?;
            let blocks = pair[1].first_block.checked_sub(pair[0].first_block)?;
            ensure(rows > 0 && blocks == rows.div_ceil(self.block_rows))?;
            ensure(self.has_filters() == (pair[0].first_filter_block < pair[1].first_filter_block))?;
        }
        let end = self.row_groups[groups];
        ensure(end.first_row == self.rows && end.first_block as usize == self.separators.ends.len())?;
        ensure(end.first_filter_block as usize * bloom::BLOCK_BYTES == self.filters.len())?;

        ensure(self.separators.ends.is_sorted())?;
        ensure(*self.separators.ends.last()? as usize == self.separators.bytes.len())?;

        let tail = self.extents.len().checked_sub(1)?;
        ensure(self.extents[0].offset == DATA_MAGIC.len() as u64)?;
        ensure(self.extents.windows(2).all(|pair| pair[0].offset < pair[1].offset))?;
        ensure(self.extents[tail].offset < self.data_bytes)?;

        ensure(self.chunks.len() == groups * columns + 1 && self.chunks[0] & !DICTIONARY == 0)?;
        ensure(*self.chunks.last()? as usize == tail)?;
        for group in 0..groups {
            let rows = self.row_groups[group].first_row..self.row_groups[group + 1].first_row;
            for column in 0..columns {
                let pages = self.chunk(group, column).pages;
                let pages = self.extents.get(pages)?;
                ensure(pages.first()?.first_row == rows.start && pages.last()?.first_row < rows.end)?;
                ensure(pages.windows(2).all(|pair| pair[0].first_row < pair[1].first_row))?;
            }
        }
        Some(())
    }
}

/// The shortest key `s` with `before < s ≤ first`, or `first` if the two are equal.
pub fn separator<'a>(before: &[u8], first: &'a [u8]) -> &'a [u8] {
    let common = before.iter().zip(first).take_while(|(a, b)| a == b).count();
    &first[..first.len().min(common + 1)]
}

/// The first of `0..len` for which `pred` fails.
fn partition_point(len: usize, pred: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if pred(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn split_regions(file: &Bytes, header: &[u8]) -> Result<Vec<Bytes>> {
    const NAMES: [&str; REGIONS] =
        ["columns", "row groups", "chunks", "extents", "key ends", "keys", "bloom filters"];
    let mut offset = HEADER_BYTES;
    let mut regions = Vec::with_capacity(REGIONS);
    for (i, name) in NAMES.iter().enumerate() {
        let at = REGIONS_AT + i * 12;
        let region = usize::try_from(le_u64(header, at))
            .ok()
            .and_then(|len| offset.checked_add(len))
            .filter(|end| *end <= file.len())
            .map(|end| file.slice(offset..end))
            .ok_or_else(|| corrupt("is too short"))?;
        if crc32c::crc32c(&region) != le_u32(header, at + 8) {
            return Err(corrupt(&format!("checksum mismatch in the {name} at offset {offset}")));
        }
        offset += region.len();
        regions.push(region);
    }
    if offset == file.len() { Ok(regions) } else { Err(corrupt("is too long")) }
}

fn encode_column(column: IndexColumn) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&column.id.to_le_bytes());
    let (code, length) = column.physical.encode();
    bytes[4] = code;
    bytes[5] = u8::from(column.nullable);
    bytes[6..].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn decode_column(bytes: &[u8; 8]) -> Result<IndexColumn> {
    let physical = Physical::decode(bytes[4], u16::from_le_bytes([bytes[6], bytes[7]]));
    Ok(IndexColumn {
        id: le_u32(bytes, 0),
        physical: physical.ok_or_else(|| corrupt("unknown physical type"))?,
        nullable: bytes[5] != 0,
    })
}

fn encode_extent(extent: Extent) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&extent.offset.to_le_bytes());
    bytes[8..12].copy_from_slice(&extent.first_row.to_le_bytes());
    bytes[12..].copy_from_slice(&extent.crc.to_le_bytes());
    bytes
}

fn decode_compression(code: u32) -> Result<Compression> {
    [Compression::None, Compression::Lz4, Compression::Zstd]
        .into_iter()
        .find(|c| *c as u32 == code)
        .ok_or_else(|| corrupt("unknown compression"))
}

fn entries<const N: usize>(region: &Bytes) -> Result<impl Iterator<Item = [u8; N]> + '_> {
    if !region.len().is_multiple_of(N) {
        return Err(corrupt("has a region of wrong length"));
    }
    Ok(region.chunks_exact(N).map(|entry| entry.try_into().expect("chunks are of N bytes")))
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn le_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn corrupt(what: &str) -> Error {
    Error::corrupt(format!("index: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oribi_types::Timestamp;
    use proptest::prelude::*;

    /// Two columns, two row groups of 300 and 10 rows; one chunk has a dictionary.
    fn index() -> Index {
        let column = |id, nullable| IndexColumn { id, physical: Physical::Bytes, nullable };
        let extent = |n: u64, first_row| Extent { offset: 4 + n * 10, first_row, crc: n as u32 };
        let group = |first_row, first_block, first_filter_block| RowGroup {
            first_row,
            first_block,
            first_filter_block,
        };
        Index {
            id: 3,
            data_bytes: 100,
            rows: 310,
            block_rows: 256,
            compression: Compression::Zstd,
            columns: vec![column(1, false), column(7, true)],
            row_groups: vec![group(0, 0, 0), group(300, 2, 2), group(310, 3, 3)],
            chunks: vec![0, 2 | DICTIONARY, 4, 5, 6],
            extents: [0, 200, 0, 0, 300, 300, 310]
                .into_iter()
                .enumerate()
                .map(|(n, first_row)| extent(n as u64, first_row))
                .collect(),
            separators: Separators { ends: vec![1, 2, 4], bytes: Bytes::from_static(b"abcd") },
            filters: Bytes::from(vec![0xff; 3 * bloom::BLOCK_BYTES]),
        }
    }

    fn meta(file: &[u8]) -> SstableMeta {
        SstableMeta {
            id: 3,
            rows: 310,
            data_bytes: 100,
            index_bytes: file.len() as u64,
            index_checksum: le_u32(file, HEADER_CRC_AT),
            min_key: b"a".to_vec(),
            max_key: b"z".to_vec(),
            min_ts: Timestamp::MIN,
            max_ts: Timestamp::MAX,
        }
    }

    #[test]
    fn reads_back_what_it_wrote() {
        let (file, _) = index().encode();
        let read = Index::decode(Bytes::from(file.clone()), &meta(&file)).unwrap();
        assert_eq!(read, index());
        assert_eq!(read.page_of(199, 0), (0, 0..200));
        assert_eq!(read.page_of(299, 0), (1, 200..300));
        assert_eq!(read.page_of(5, 1), (3, 0..300));
        assert_eq!(read.page_of(309, 1), (5, 300..310));
        assert_eq!(read.extent_range(6), 64..100);
        let rows = [&b"a"[..], b"b", b"ba", b"cd", b"ce"].map(|key| read.row_before(key));
        assert_eq!(rows, [0, 0, 256, 256, 300]);
    }

    #[test]
    fn separators_are_short() {
        assert_eq!(separator(b"user:0099", b"user:0100"), b"user:01");
        assert_eq!(separator(b"", b"a"), b"a");
        assert_eq!(separator(b"", b""), b"");
        assert_eq!(separator(b"a", b"ab"), b"ab");
        assert_eq!(separator(b"same", b"same"), b"same");
    }

    proptest! {
        /// Contents that nobody wrote, under checksums that agree: refused, or harmless.
        #[test]
        fn a_forged_index_does_not_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let (mut file, _) = index().encode();
            for (at, byte) in changes {
                let at = at.index(file.len());
                file[at] = byte;
            }
            let mut offset = HEADER_BYTES;
            for region in 0..REGIONS {
                let at = REGIONS_AT + region * 12;
                let len = le_u64(&file, at).min((file.len() - offset) as u64) as usize;
                let crc = crc32c::crc32c(&file[offset..offset + len]);
                file[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
                offset += len;
            }
            let crc = crc32c::crc32c(&file[..HEADER_CRC_AT]);
            file[HEADER_CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
            let meta = meta(&file);
            if let Ok(index) = Index::decode(Bytes::from(file), &meta) {
                for row in 0..index.rows {
                    for column in 0..index.columns.len() {
                        let (page, rows) = index.page_of(row, column);
                        prop_assert!(rows.contains(&row));
                        prop_assert!(index.extent_range(page).end <= index.data_bytes);
                    }
                }
                for key in [&b""[..], b"a", b"b", b"cd", b"zz"] {
                    prop_assert!(index.row_before(key) < index.rows);
                    index.may_contain(key, bloom::hash(key));
                }
            }
        }
    }
}
