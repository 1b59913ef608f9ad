//! How much memory rows take while they are read together: a page is decompressed whole, however few of its rows are wanted, and
//! texts keep it, or are copied, until the batch goes that they are in.

use crate::index::Chunk;
use crate::scan::VIEW_BYTES;
use crate::sstable::Sstable;
use crate::value::Physical;
use oribi_types::{Error, Result, Schema};
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
        let columns = projection.iter().filter_map(|p| self.index().column(schema.columns()[*p].id));
        let columns: Vec<usize> = columns.collect();
        let (mut portions, mut next) = (Vec::new(), Growing::of(self, &columns)?);
        for &row in rows {
            let bytes = next.bytes();
            let opens = next.open(row)?;
            if opens && next.portion.rows > 0 && next.bytes().saturating_add(next.row_bytes) > bytes_max {
                portions.push(Portion { bytes, ..next.portion });
                next = Growing::of(self, &columns)?;
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
            _ => Ok(self.data.page_header(page)?.plain_bytes as u64),
        }
    }
}

/// A portion, and the pages that its rows need.
struct Growing<'a> {
    sstable: &'a Sstable,
    metadata: &'a ParquetMetaData,
    columns: Vec<Counted>,
    pages_bytes: u64,
    longest_bytes: u64,
    /// What a row takes beside its pages.
    row_bytes: u64,
    portion: Portion,
}

/// What is counted of a column: all that rows before these need.
struct Counted {
    column: usize,
    page_until: u32,
    dictionary_until: u32,
}

impl<'a> Growing<'a> {
    fn of(sstable: &'a Sstable, columns: &[usize]) -> Result<Self> {
        let is_text = |column: &&usize| sstable.index().columns[**column].physical == Physical::Bytes;
        let counted = |column: &usize| Counted { column: *column, page_until: 0, dictionary_until: 0 };
        Ok(Growing {
            sstable,
            metadata: sstable.arrow_metadata()?.metadata(),
            columns: columns.iter().map(counted).collect(),
            pages_bytes: 0,
            longest_bytes: 0,
            row_bytes: VIEW_BYTES * columns.iter().filter(is_text).count() as u64,
            portion: Portion::default(),
        })
    }

    fn bytes(&self) -> u64 {
        self.pages_bytes
            .saturating_add(self.longest_bytes)
            .saturating_add(self.row_bytes * self.portion.rows as u64)
    }

    /// Counts the pages that `row` needs; whether there are any that no row before needs.
    fn open(&mut self, row: u32) -> Result<bool> {
        let (sstable, index) = (self.sstable, self.sstable.index());
        let mut opens = false;
        for counted in self.columns.iter_mut().filter(|counted| counted.page_until <= row) {
            opens = true;
            let column = counted.column;
            let group = index.row_group_of(row);
            let (page, rows) = index.page_of(row, column);
            counted.page_until = rows.end;
            let page_bytes = sstable.page_bytes(self.metadata, (group, column), page, rows.len() as u64)?;
            let dictionary = index.chunk(group, column).dictionary;
            let dictionary_bytes = match dictionary.filter(|_| counted.dictionary_until <= row) {
                Some(page) => {
                    counted.dictionary_until = index.row_groups[group + 1].first_row;
                    sstable.data.page_header(page)?.plain_bytes as u64
                }
                None => 0,
            };
            self.pages_bytes = self.pages_bytes.saturating_add(page_bytes).saturating_add(dictionary_bytes);
            self.longest_bytes = self.longest_bytes.max(page_bytes).max(dictionary_bytes);
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
