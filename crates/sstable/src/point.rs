//! Point reads: one row by its key, or the places of many keys. Only the pages that hold them are read.
//!
//! A page that holds a long value is as long, and is decompressed, and its value copied: who reads a row says how long one may be,
//! and is told how long it is before that is done.

use crate::delta;
use crate::index::IndexColumn;
use crate::key_cursor::KeyCursor;
use crate::page::{OpenPage, Page};
use crate::sstable::Sstable;
use crate::value::{
    Encoding, LONG_PAGE_BYTES, Physical, dictionary_position, malformed, plain, rank, split_levels, value_ref,
};
use oribi_types::schema::ColumnId;
use oribi_types::{ColumnSource, Error, Result, Schema, Timestamp, Value, ValueRef};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::Range;

impl Sstable {
    /// Shows the copies of `key`, newest first, as row and commit timestamp to `pick` until it picks one, which is
    /// returned.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn find(
        &self,
        key: &[u8],
        mut pick: impl FnMut(u32, Timestamp) -> bool,
    ) -> Result<Option<(u32, Timestamp)>> {
        if !self.may_contain(key) {
            return Ok(None);
        }
        let mut cursor = KeyCursor::new(self);
        let mut row = cursor.lower_bound(key, self.index().row_before(key))?;
        while row < self.index().rows && cursor.compare(row, key)? == Ordering::Equal {
            let ts = self.ts_of(row, &mut cursor)?;
            if pick(row, ts) {
                self.opened.data.reads.looked_up(true);
                return Ok(Some((row, ts)));
            }
            row += 1;
        }
        self.opened.data.reads.looked_up(false);
        Ok(None)
    }

    /// The newest copy of each of `keys`, which must be sorted, as row and commit timestamp.
    ///
    /// One walk through the key columns, which skips the pages that have none of them.
    ///
    /// # Errors
    /// `Invalid` for keys out of order; `Corrupt`; those of the file system.
    pub fn locate(&self, keys: &[&[u8]]) -> Result<Vec<Option<(u32, Timestamp)>>> {
        if !keys.is_sorted() {
            return Err(Error::invalid("keys to locate must be sorted"));
        }
        let mut cursor = KeyCursor::new(self);
        let mut row = 0;
        let mut places = Vec::with_capacity(keys.len());
        for key in keys {
            if !self.may_contain(key) {
                places.push(None);
                continue;
            }
            row = cursor.lower_bound(key, row.max(self.index().row_before(key)))?;
            let found = row < self.index().rows && cursor.compare(row, key)? == Ordering::Equal;
            places.push(if found { Some((row, self.ts_of(row, &mut cursor)?)) } else { None });
        }
        Ok(places)
    }

    /// The rows whose keys are at or above `from` and below `to`, all copies of each; without `to`, all from `from` on.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn rows_between(&self, from: &[u8], to: Option<&[u8]>) -> Result<Range<u32>> {
        let mut cursor = KeyCursor::new(self);
        let mut first_row = |key: &[u8]| match key {
            key if key <= &*self.meta().min_key => Ok(0),
            key if key > &*self.meta().max_key => Ok(self.index().rows),
            key => cursor.lower_bound(key, self.index().row_before(key)),
        };
        let start = first_row(from)?;
        let end = to.map_or(Ok(self.index().rows), &mut first_row)?;
        Ok(start..end.max(start))
    }

    /// At most so many rows are [between](Self::rows_between) the two keys, by the key index. Looks at memory only.
    pub fn rows_between_max(&self, from: &[u8], to: Option<&[u8]>) -> u32 {
        let (meta, index) = (self.meta(), self.index());
        if from > &*meta.max_key || to.is_some_and(|to| to <= &*meta.min_key) {
            return 0;
        }
        let start = index.row_before(from);
        let end = match to {
            Some(to) if to <= &*meta.max_key => index.row_before(to).saturating_add(2 * index.block_rows),
            _ => index.rows,
        };
        end.min(index.rows).saturating_sub(start)
    }

    /// Keys above `from` and below `to` that have about `rows` rows between each two, ascending, by the key index: of each it
    /// is known what rows are before it and what behind, and not that there is a row of it. Looks at memory only.
    pub fn keys_apart<'s>(
        &'s self,
        from: &[u8],
        to: Option<&[u8]>,
        rows: u32,
    ) -> impl Iterator<Item = &'s [u8]> {
        let index = self.index();
        let blocks = index.blocks_between(from, to);
        let step = (rows / index.block_rows).max(1) as usize;
        blocks.skip(step - 1).step_by(step).map(|block| index.separators.get(block))
    }

    /// About how many bytes of the data file the columns of these ids take; those that it lacks take none. Looks at memory
    /// only.
    pub fn columns_bytes(&self, columns: impl Iterator<Item = ColumnId>) -> u64 {
        let of_column = |id: ColumnId| {
            let indexes = self.patches.iter().map(|patch| patch.sstable.index()).chain([self.index()]);
            let stored = indexes.filter_map(|index| Some(index.column_bytes(index.column(id)?)));
            stored.sum::<u64>()
        };
        columns.map(of_column).sum()
    }

    /// Appends the encoded row (all columns but the key's) at `row`, as `schema` has it now: columns are found by id,
    /// and those that the file lacks hold what they answer for older rows.
    ///
    /// Nothing is appended if the long pages that it needs, those of more than [`LONG_PAGE_BYTES`], have more than
    /// `long_bytes_max` bytes; returned is how many they have then. At any time, reading takes twice as much, about.
    ///
    /// # Errors
    /// `Invalid` for a row that does not exist; `Corrupt`; those of the file system.
    pub fn read_row(
        &self,
        schema: &Schema,
        row: u32,
        long_bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        if row >= self.index().rows {
            return Err(Error::invalid(format!("sstable {}: there is no row {row}", self.meta().id)));
        }
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.long_bytes_left = long_bytes_max;
            let result = self.read_row_with(schema, row, scratch, out);
            scratch.shrink();
            result
        })
    }

    fn read_row_with(
        &self,
        schema: &Schema,
        row: u32,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        scratch.values.clear();
        scratch.cells.clear();
        for (position, column) in schema.columns().iter().enumerate() {
            if !matches!(column.source, ColumnSource::Slot(_)) {
                continue;
            }
            let cell = match self.place_of_cell(column.id, row) {
                Some((sstable, place, stored)) => {
                    if !sstable.index().columns[stored].physical.holds(column.column_type) {
                        let what = format!("column \"{}\" is of another type", column.name);
                        return Err(Error::corrupt(format!("sstable {}: {what}", sstable.meta().id)));
                    }
                    match sstable.read_cell(place, stored, scratch)? {
                        Cell::TooLong => return self.long_bytes(schema, row).map(Some),
                        cell => cell,
                    }
                }
                None => Cell::Missing,
            };
            scratch.cells.push((position, cell));
        }
        let mut slots = vec![ValueRef::Null; schema.layout().slots().len()];
        for (position, cell) in &scratch.cells {
            let column = &schema.columns()[*position];
            let ColumnSource::Slot(slot) = column.source else { continue };
            slots[usize::from(slot)] = match cell {
                Cell::Null | Cell::TooLong => ValueRef::Null,
                Cell::Missing => column.missing.as_ref().map_or(ValueRef::Null, Value::as_ref),
                Cell::Bytes(place) => value_ref(column.column_type, &scratch.values[place.clone()])
                    .map_err(|e| e.context(format!("sstable {}: row {row}", self.meta().id)))?,
            };
        }
        schema.layout().encode(&slots, out);
        Ok(None)
    }

    /// Where the value of a column in a row stands: in the newest patch that has it, or in the file itself, if that has it; and there,
    /// the row, and the position of the column.
    fn place_of_cell(&self, id: ColumnId, row: u32) -> Option<(&Sstable, u32, usize)> {
        let patched = self.patches.iter().rev().find_map(|patch| {
            let column = patch.sstable.index().column(id)?;
            Some((&patch.sstable, patch.place_of(row)?, column))
        });
        patched.or_else(|| Some((self, row, self.index().column(id)?)))
    }

    /// When `row` was committed, last.
    fn ts_of(&self, row: u32, cursor: &mut KeyCursor<'_>) -> Result<Timestamp> {
        self.patch_of(row).map_or_else(|| cursor.ts(row), |patch| Ok(patch.ts()))
    }

    /// How many bytes the long pages have that a row needs, by their headers.
    fn long_bytes(&self, schema: &Schema, row: u32) -> Result<usize> {
        let mut sum = 0;
        let values = schema.columns().iter().filter(|column| matches!(column.source, ColumnSource::Slot(_)));
        for (sstable, row, column) in values.filter_map(|column| self.place_of_cell(column.id, row)) {
            let (index, data) = (sstable.index(), &sstable.opened.data);
            let header = data.page_header(index.page_of(row, column).0)?;
            let dictionary = match header.encoding {
                Encoding::Dictionary => index.chunk(index.row_group_of(row), column).dictionary,
                _ => None,
            };
            let dictionary = dictionary.map(|page| data.page_header(page)).transpose()?;
            let pages = [Some(header), dictionary];
            sum += pages.iter().flatten().map(|page| page.plain_bytes).filter(|n| is_long(*n)).sum::<usize>();
        }
        Ok(sum)
    }

    /// Reads a page into `scratch.page`; `None` if it is too long.
    fn open_page(&self, page: usize, scratch: &mut Scratch) -> Result<Option<OpenPage>> {
        /// A page that takes no more as it is stored is read before it is asked how long it is: nearly all are.
        const STORED_BYTES_MAX: u64 = LONG_PAGE_BYTES as u64 / 2;
        let stored = self.index().extent_range(page);
        if stored.end - stored.start > STORED_BYTES_MAX
            // What a damaged header says matters no more once the checksum is compared.
            && self.opened.data.page_header(page).is_ok_and(|header| !scratch.has_room(header.plain_bytes))
        {
            return Ok(None);
        }
        let open = self.opened.data.read_page(page, &mut scratch.page)?;
        let bytes = open.header.plain_bytes;
        if !scratch.has_room(bytes) {
            return Ok(None);
        }
        scratch.long_bytes_left -= if is_long(bytes) { bytes } else { 0 };
        Ok(Some(open))
    }

    /// Appends the stored bytes of one value to `scratch.values` and says where.
    fn read_cell(&self, row: u32, column: usize, scratch: &mut Scratch) -> Result<Cell> {
        let index = self.index();
        let (page, rows) = index.page_of(row, column);
        let Some(open) = self.open_page(page, scratch)? else { return Ok(Cell::TooLong) };
        if open.header.dictionary || open.header.values as usize != rows.len() {
            return Err(self.opened.data.bad_page(page, "has other rows than the index says"));
        }
        let IndexColumn { physical, nullable, .. } = index.columns[column];
        let (n, values) = ((row - rows.start) as usize, &mut scratch.values);
        if open.header.encoding != Encoding::Dictionary {
            let place = self.read_value(page, &open, &mut scratch.page, n, |contents| {
                let place = place_of(contents, nullable, n)?;
                let read = |(rest, n)| match open.header.encoding {
                    Encoding::Delta => append_number(physical, delta::nth(rest, n)?, values),
                    _ => Ok(append(plain(physical, rest, n)?, values)),
                };
                place.map(read).transpose()
            })?;
            scratch.page.shrink();
            return Ok(place.map_or(Cell::Null, Cell::Bytes));
        }
        let position = self.read_value(page, &open, &mut scratch.page, n, |contents| {
            let place = place_of(contents, nullable, n)?;
            place.map(|(rest, n)| dictionary_position(rest, n)).transpose()
        })?;
        let Some(position) = position else { return Ok(Cell::Null) };
        let dictionary = index.chunk(index.row_group_of(row), column).dictionary;
        let dictionary = dictionary.ok_or_else(|| self.opened.data.bad_page(page, "lacks a dictionary"))?;
        let Some(open) = self.open_page(dictionary, scratch)? else { return Ok(Cell::TooLong) };
        let values = &mut scratch.values;
        let place = self.read_value(dictionary, &open, &mut scratch.page, position, |contents| {
            Ok(append(plain(physical, contents, position)?, values))
        })?;
        scratch.page.shrink();
        Ok(Cell::Bytes(place))
    }

    /// What `read` finds for value `n` in the contents of a page: in the first part, where it should be, or in all.
    /// `read` fails if what it looks for does not lie in the part that it is given.
    fn read_value<R>(
        &self,
        extent: usize,
        open: &OpenPage,
        page: &mut Page,
        n: usize,
        mut read: impl FnMut(&[u8]) -> Result<R>,
    ) -> Result<R> {
        let bad_page = |e: Error| self.opened.data.bad_page(extent, e);
        let part = page.contents(open, open.bytes_through(n)).map_err(bad_page)?;
        match read(part) {
            Err(_) if part.len() < open.header.plain_bytes => {
                read(page.whole(open).map_err(bad_page)?).map_err(bad_page)
            }
            found => found.map_err(bad_page),
        }
    }
}

/// The values behind the levels of a data page, and which of them is row `n`'s; `None` if that is null.
fn place_of(contents: &[u8], nullable: bool, n: usize) -> Result<Option<(&[u8], usize)>> {
    if !nullable {
        return Ok(Some((contents, n)));
    }
    let (levels, values) = split_levels(contents)?;
    Ok(rank(levels, n)?.map(|n| (values, n)))
}

/// Appends `value` to `values`; where it then is.
fn append(value: &[u8], values: &mut Vec<u8>) -> Range<usize> {
    let start = values.len();
    values.extend_from_slice(value);
    start..values.len()
}

/// Appends a number as it stands in a plain page.
fn append_number(physical: Physical, number: i64, values: &mut Vec<u8>) -> Result<Range<usize>> {
    match physical {
        Physical::Int32 => Ok(append(&(number as i32).to_le_bytes(), values)),
        Physical::Int64 => Ok(append(&number.to_le_bytes(), values)),
        _ => Err(malformed()),
    }
}

/// A value of the row that is being read.
enum Cell {
    Null,
    /// The file is older than the column.
    Missing,
    /// Place in [`Scratch::values`].
    Bytes(Range<usize>),
    /// It was not read.
    TooLong,
}

/// Buffers that a thread uses again for each row it reads.
#[derive(Default)]
struct Scratch {
    page: Page,
    values: Vec<u8>,
    cells: Vec<(usize, Cell)>,
    /// What long pages of the row may still have.
    long_bytes_left: usize,
}

fn is_long(page_bytes: usize) -> bool {
    page_bytes > LONG_PAGE_BYTES
}

/// A thread gives back a buffer that is larger than this after use.
pub(crate) const SCRATCH_BYTES_MAX: usize = 1 << 20;

impl Scratch {
    /// Whether a page of so many bytes may be read.
    fn has_room(&self, page_bytes: usize) -> bool {
        !is_long(page_bytes) || page_bytes <= self.long_bytes_left
    }

    fn shrink(&mut self) {
        self.page.shrink();
        if self.values.capacity() > SCRATCH_BYTES_MAX {
            self.values = Vec::new();
        }
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}
