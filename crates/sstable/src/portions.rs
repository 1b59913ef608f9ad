//! How much memory rows take while they are read together: a page is decompressed whole, however few of its rows are wanted, and
//! texts keep it, or are copied, until the batch goes that they are in.

use crate::index::Chunk;
use crate::patch::Patch;
use crate::scan::VIEW_BYTES;
use crate::sstable::Sstable;
use crate::value::Physical;
use oribi_types::{ColumnId, Error, Result, Schema};
use parquet::file::metadata::ParquetMetaData;
use std::ops::Range;

/// What stands before each text or blob of a page.
const LENGTH_BYTES: u64 = 4;
/// What the values of a page come to is no less than the page takes. Of up to so many bytes it is not asked what it does take.
const VALUE_BYTES_UNDOUBTED: u64 = 16 << 10;

/// Rows that are read together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    /// How many.
    pub rows: usize,
    /// Where they are.
    pub ranges: Vec<Range<u32>>,
    /// What [reading](Sstable::batches) the ranges takes at any time, about: all of their pages, and the longest twice,
    /// as it is decompressed or copied.
    pub bytes: u64,
}

impl Sstable {
    /// Cuts `rows`, which ascend, into portions, in order. Reading the columns `projection` of one takes `bytes_max` at most,
    /// unless a single row takes more: its portion has those behind it that are in the same pages.
    ///
    /// # Errors
    /// `Corrupt`; `Invalid` for rows that do not exist; those of the file system.
    pub fn portions(
        &self,
        schema: &Schema,
        projection: &[usize],
        rows: &[u32],
        bytes_max: u64,
    ) -> Result<Vec<Portion>> {
        if rows.iter().any(|row| *row >= self.index().rows) {
            return Err(Error::invalid(format!("sstable {}: there are no such rows", self.meta().id)));
        }
        let ids: Vec<ColumnId> = projection.iter().map(|p| schema.columns()[*p].id).collect();
        let (mut portions, mut next) = (Vec::new(), Growing::of(self, &ids)?);
        for &row in rows {
            let bytes = next.bytes();
            let opens = next.open(row)?;
            if opens && next.portion.rows > 0 && next.bytes().saturating_add(next.row_bytes) > bytes_max {
                portions.push(Portion { bytes, ..next.portion });
                next = Growing::of(self, &ids)?;
                next.open(row)?;
            }
            next.add(row);
        }
        if next.portion.rows > 0 {
            portions.push(Portion { bytes: next.bytes(), ..next.portion });
        }
        Ok(portions)
    }

    /// Bytes of a data page that has so many rows, decompressed.
    fn page_bytes(
        &self,
        metadata: &ParquetMetaData,
        place: (usize, usize),
        page: usize,
        rows: u64,
    ) -> Result<u64> {
        let (group, column) = place;
        let physical = self.index().columns[column].physical;
        if physical != Physical::Bytes {
            return Ok(rows * physical.width().unwrap_or(1) as u64);
        }
        let Chunk { dictionary, pages } = self.index().chunk(group, column);
        let sizes = self.value_bytes_of_pages(metadata, group, column);
        let values = sizes.map(|sizes| LENGTH_BYTES * rows + sizes[page - pages.start].max(0) as u64);
        match values {
            Some(bytes) if dictionary.is_none() || bytes <= VALUE_BYTES_UNDOUBTED => Ok(bytes),
            // Values that stand in the dictionary may come to far more than their page.
            _ => Ok(self.opened.data.page_header(page)?.plain_bytes as u64),
        }
    }
}

/// A portion, and the pages that its rows need.
struct Growing<'a> {
    columns: Vec<Counted<'a>>,
    pages_bytes: u64,
    longest_bytes: u64,
    /// What a row takes beside its pages.
    row_bytes: u64,
    portion: Portion,
}

/// What is counted of a column, of the file or of a patch: all that rows before these need.
struct Counted<'a> {
    sstable: &'a Sstable,
    metadata: &'a ParquetMetaData,
    patch: Option<&'a Patch>,
    column: usize,
    page_until: u32,
    dictionary_until: u32,
}

impl<'a> Counted<'a> {
    fn of(sstable: &'a Sstable, patch: Option<&'a Patch>, column: usize) -> Result<Self> {
        let metadata = sstable.arrow_metadata()?.metadata();
        Ok(Counted { sstable, metadata, patch, column, page_until: 0, dictionary_until: 0 })
    }

    fn is_text(&self) -> bool {
        self.sstable.index().columns[self.column].physical == Physical::Bytes
    }

    /// Bytes of the page and of the dictionary that the row at `place` needs, unless one before it does.
    fn open(&mut self, place: u32) -> Result<Option<[u64; 2]>> {
        if place < self.page_until {
            return Ok(None);
        }
        let (column, index) = (self.column, self.sstable.index());
        let group = index.row_group_of(place);
        let (page, rows) = index.page_of(place, column);
        self.page_until = rows.end;
        let page_bytes = self.sstable.page_bytes(self.metadata, (group, column), page, rows.len() as u64)?;
        let dictionary = index.chunk(group, column).dictionary;
        let dictionary_bytes = match dictionary.filter(|_| self.dictionary_until <= place) {
            Some(page) => {
                self.dictionary_until = index.row_groups[group + 1].first_row;
                self.sstable.opened.data.page_header(page)?.plain_bytes as u64
            }
            None => 0,
        };
        Ok(Some([page_bytes, dictionary_bytes]))
    }
}

impl<'a> Growing<'a> {
    fn of(sstable: &'a Sstable, ids: &[ColumnId]) -> Result<Self> {
        let of = |sstable: &'a Sstable, patch: Option<&'a Patch>| {
            let stored = ids.iter().filter_map(|id| sstable.index().column(*id));
            stored.map(move |column| Counted::of(sstable, patch, column)).collect::<Vec<_>>()
        };
        let patches = sstable.patches().iter().flat_map(|patch| of(&patch.sstable, Some(patch)));
        let columns = of(sstable, None).into_iter().chain(patches).collect::<Result<Vec<_>>>()?;
        let row_bytes = VIEW_BYTES * columns.iter().filter(|column| column.is_text()).count() as u64;
        let (pages_bytes, longest_bytes, portion) = (0, 0, Portion::default());
        Ok(Growing { columns, pages_bytes, longest_bytes, row_bytes, portion })
    }

    fn bytes(&self) -> u64 {
        self.pages_bytes
            .saturating_add(self.longest_bytes)
            .saturating_add(self.row_bytes * self.portion.rows as u64)
    }

    /// Counts the pages that `row` needs; whether there are any that no row before needs.
    fn open(&mut self, row: u32) -> Result<bool> {
        let mut opens = false;
        for column in &mut self.columns {
            let Some(place) = column.patch.map_or(Some(row), |patch| patch.place_of(row)) else { continue };
            for bytes in column.open(place)?.into_iter().flatten() {
                opens = true;
                self.pages_bytes = self.pages_bytes.saturating_add(bytes);
                self.longest_bytes = self.longest_bytes.max(bytes);
            }
        }
        Ok(opens)
    }

    fn add(&mut self, row: u32) {
        self.portion.rows += 1;
        let ranges = &mut self.portion.ranges;
        match ranges.last_mut().filter(|last| last.end >= row) {
            Some(last) => last.end = row + 1,
            None => ranges.push(row..row + 1),
        }
    }
}
