//! A column chunk, read into Arrow arrays: of each page the rows that are wanted.
//!
//! A page costs a checksum and a decompression, into memory that serves the next one too unless texts keep it; and, of pages that
//! are read ahead, a part of a read from the file. For a value nothing is allocated, and a run of rows is no call. (The Parquet crate
//! unpacks all of a page for some rows of it, or calls several functions for each run of them.)
//!
//! A page that rows of several batches are in is walked from its front for each of them: only long rows make batches that short.

use crate::data_file::DataFile;
use crate::index::{Chunk, IndexColumn};
use crate::names_sstable;
use crate::page::{PageHeader, unpack};
use crate::pages::Pages;
use crate::point::SCRATCH_BYTES_MAX;
use crate::unpack::{PageValues, Values, Wanted, valid, values_of};
use crate::value::{Encoding, malformed, split_levels};
use arrow::array::{ArrayRef, BooleanBufferBuilder, NullBufferBuilder};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::DataType;
use oribi_types::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A column chunk that is read from its front to its end.
pub struct ColumnReader {
    pages: Pages,
    column: IndexColumn,
    chunk: Chunk,
    /// The rows of the row group, as all rows here by their positions in the file.
    rows: Range<usize>,
    values: Box<dyn Values>,
    has_dictionary: bool,
    /// The one that was opened last.
    page: Option<CurrentPage>,
    contents: Buffer,
    places: Vec<Range<usize>>,
}

struct CurrentPage {
    extent: usize,
    rows: Range<usize>,
    encoding: Encoding,
    /// Where its values begin.
    values_at: usize,
    /// Which rows are not null, if some are.
    valid: Option<BooleanBuffer>,
}

impl ColumnReader {
    /// Column `column` of row group `group`. Reads ahead if most pages are wanted, and adds what it reads to `bytes_read`.
    ///
    /// # Errors
    /// `Corrupt` if the values are not of the type.
    pub fn open(
        file: &Arc<DataFile>,
        (group, column): (usize, usize),
        data_type: &DataType,
        is_read_ahead: bool,
        bytes_read: &Arc<AtomicU64>,
    ) -> Result<Self> {
        let index = file.index();
        let chunk = index.chunk(group, column);
        let column = index.columns[column];
        let of_another_type = || Error::corrupt(format!("column id {} is of another type", column.id));
        let values = values_of(column.physical, data_type).ok_or_else(of_another_type)?;
        let ahead_to = is_read_ahead.then_some(chunk.pages.end);
        Ok(ColumnReader {
            pages: Pages::new(Arc::clone(file), ahead_to, Arc::clone(bytes_read)),
            column,
            chunk,
            rows: index.rows_of_group(group),
            values,
            has_dictionary: false,
            page: None,
            contents: Buffer::default(),
            places: Vec::new(),
        })
    }

    /// The values of `rows`, which ascend and lie behind those of the calls before.
    ///
    /// # Errors
    /// `Corrupt`, naming the page; `TooLarge`; those of the file system.
    pub fn read(&mut self, rows: &[Range<usize>]) -> Result<ArrayRef> {
        let read = self.append(rows);
        // After an error there are values without nulls, or none.
        let nulls = read.as_ref().ok().cloned().flatten();
        let array = self.values.finish(nulls);
        read.map(|_| array)
    }

    /// Appends the values of `rows`; which of them are nulls.
    fn append(&mut self, rows: &[Range<usize>]) -> Result<Option<NullBuffer>> {
        let count = rows.iter().map(ExactSizeIterator::len).sum();
        self.values.reserve(count);
        let mut nulls = NullBufferBuilder::new(count);
        let mut wanted = Wanted::new(rows);
        while let Some(first) = wanted.first() {
            let page = self.open_page(first)?;
            let (extent, start, end) = (page.extent, page.rows.start, page.rows.end);
            self.places.clear();
            while let Some(rows) = wanted.next_before(end) {
                self.places.push(rows.start - start..rows.end - start);
            }
            append(&page, &self.contents, &self.places, &mut *self.values, &mut nulls)
                .map_err(|e| self.named(extent, e))?;
            match self.places.last() {
                // A long page does not wait for the next.
                Some(last) if start + last.end == end && self.contents.len() > SCRATCH_BYTES_MAX => {
                    self.contents = Buffer::default();
                }
                _ => self.page = Some(page),
            }
        }
        Ok(nulls.finish())
    }

    /// The page that has `row`.
    fn open_page(&mut self, row: usize) -> Result<CurrentPage> {
        let next = match self.page.take() {
            Some(page) if page.rows.contains(&row) => return Ok(page),
            Some(page) => page.extent + 1,
            None => self.chunk.pages.start,
        };
        if !self.rows.contains(&row) {
            return Err(Error::invalid(format!("there is no row {row} in the row group")));
        }
        if !self.has_dictionary
            && let Some(extent) = self.chunk.dictionary
        {
            self.read_dictionary(extent).map_err(|e| self.named(extent, e))?;
            self.has_dictionary = true;
        }
        let extents = &self.pages.file.index().extents;
        let first_row = |extent: usize| extents[extent].first_row as usize;
        // Most often it is the next one.
        let behind = self.chunk.pages.clone().skip(next - self.chunk.pages.start + 1);
        let extent = next + behind.take_while(|extent| first_row(*extent) <= row).count();
        let end = if extent + 1 < self.chunk.pages.end { first_row(extent + 1) } else { self.rows.end };
        let rows = first_row(extent)..end;
        self.read_page(extent, rows).map_err(|e| self.named(extent, e))
    }

    /// Names the page, unless that was done.
    fn named(&self, extent: usize, e: Error) -> Error {
        match e.kind() {
            ErrorKind::Corrupt if !names_sstable(&e) => self.pages.file.bad_page(extent, e),
            _ => e,
        }
    }

    fn read_dictionary(&mut self, extent: usize) -> Result<()> {
        let header = self.unpack(extent)?;
        if !header.dictionary {
            return Err(malformed());
        }
        self.values.set_dictionary(std::mem::take(&mut self.contents), header.values as usize)
    }

    fn read_page(&mut self, extent: usize, rows: Range<usize>) -> Result<CurrentPage> {
        let header = self.unpack(extent)?;
        if header.dictionary || header.values as usize != rows.len() {
            return Err(Error::corrupt("has other rows than the index says"));
        }
        let (values_at, valid) = match self.column.nullable {
            true => {
                let (levels, values) = split_levels(&self.contents)?;
                (self.contents.len() - values.len(), valid(levels, rows.len())?)
            }
            false => (0, None),
        };
        Ok(CurrentPage { extent, rows, encoding: header.encoding, values_at, valid })
    }

    /// Replaces the contents by those of a page.
    fn unpack(&mut self, extent: usize) -> Result<PageHeader> {
        // Texts may still have them.
        let mut contents = std::mem::take(&mut self.contents).into_vec().unwrap_or_default();
        if contents.capacity() > SCRATCH_BYTES_MAX {
            contents = Vec::new();
        }
        let compression = self.pages.file.index().compression;
        let header = unpack(self.pages.stored(extent)?, compression, &mut contents)?;
        self.pages.shrink();
        self.contents = Buffer::from_vec(contents);
        Ok(header)
    }
}

/// Appends the rows of a page at `places`.
fn append(
    page: &CurrentPage,
    contents: &Buffer,
    places: &[Range<usize>],
    values: &mut dyn Values,
    nulls: &mut NullBufferBuilder,
) -> Result<()> {
    let (encoding, at) = (page.encoding, page.values_at);
    let Some(valid) = &page.valid else {
        nulls.append_n_non_nulls(places.iter().map(ExactSizeIterator::len).sum());
        return values.append(PageValues { encoding, contents, at, count: page.rows.len() }, places);
    };
    let mut selected = BooleanBufferBuilder::new(page.rows.len());
    let (mut row, mut rank) = (0, 0);
    let mut ranks = Vec::with_capacity(places.len());
    for rows in places {
        selected.append_buffer(&valid.slice(rows.start, rows.len()));
        let start = rank + valid.slice(row, rows.start - row).count_set_bits();
        let end = start + valid.slice(rows.start, rows.len()).count_set_bits();
        ranks.push(start..end);
        (row, rank) = (rows.end, end);
    }
    let selected = selected.finish();
    nulls.append_buffer(&NullBuffer::new(selected.clone()));
    let from = values.len();
    let of_values: Vec<_> = ranks.into_iter().filter(|place| !place.is_empty()).collect();
    if !of_values.is_empty() {
        values.append(PageValues { encoding, contents, at, count: valid.count_set_bits() }, &of_values)?;
    }
    if values.len() - from < selected.len() {
        values.spread(from, &selected);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Index;
    use crate::{Compression, Paths, SstableOptions, SstableWriter};
    use oribi_env::{Env, read_file};
    use oribi_types::schema::ColumnSpec;
    use oribi_types::{ColumnType, Schema, Timestamp, ValueRef};

    /// A page with the right checksum, in which something else stands than the writer wrote.
    #[test]
    #[allow(clippy::disallowed_methods)] // somebody else changes the file
    fn a_page_that_is_none_is_named() {
        let columns = vec![
            ColumnSpec::new("k", ColumnType::Int64).not_null(),
            ColumnSpec::new("v", ColumnType::String),
        ];
        let schema = Schema::new(columns, &["k"]).unwrap();
        let (env, dir) = (Env::real(), tempfile::tempdir().unwrap());
        let options = SstableOptions { compression: Compression::None, ..SstableOptions::default() };
        let mut writer = SstableWriter::create(&env, dir.path(), 1, &schema, &options).unwrap();
        for n in 0..100 {
            let (mut key, mut row) = (Vec::new(), Vec::new());
            let text = format!("text {}", n % 3);
            schema.encode(&[ValueRef::Int64(n), ValueRef::String(&text)], &mut key, &mut row).unwrap();
            writer.push(&key, &row, Timestamp(1)).unwrap();
        }
        let meta = writer.finish().unwrap();
        crate::publish(&env, dir.path(), 1).unwrap();
        let paths = Paths::new(dir.path(), 1);
        let index = read_file(env.files.as_ref(), &paths.index).unwrap();
        let chunk = Index::decode(index.clone().into(), &meta).unwrap().chunk(0, 1);
        let whole = read_file(env.files.as_ref(), &paths.data).unwrap();
        for (extent, name) in [(chunk.dictionary.unwrap(), "dictionary"), (chunk.pages.start, "page 0")] {
            let mut index = Index::decode(index.clone().into(), &meta).unwrap();
            let range = index.extent_range(extent);
            let (start, end) = (range.start as usize, range.end as usize);
            let mut bytes = whole.clone();
            // The last text of the dictionary is none any more, positions among the last are beyond it.
            bytes[end - 3] = 0xff;
            index.extents[extent].crc = crc32c::crc32c(&bytes[start..end]);
            std::fs::write(&paths.data, &bytes).unwrap();
            let file = env.files.open(&paths.data, false).unwrap();
            let names = vec!["k".to_owned(), "v".to_owned(), "ts".to_owned()];
            let file = Arc::new(DataFile::new(file, 1, index, names));
            let bytes_read = Arc::default();
            let mut column =
                ColumnReader::open(&file, (0, 1), &DataType::Utf8View, true, &bytes_read).unwrap();
            let all = 0..100;
            let error = column.read(std::slice::from_ref(&all)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let expected = format!("{name} of column \"v\" in row group 0: malformed page");
            assert!(error.message().contains(&expected), "{error}");
        }
    }
}
