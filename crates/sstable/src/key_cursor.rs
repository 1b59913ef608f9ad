//! Walking the keys of an SSTable page by page, forward.

use crate::delta;
use crate::index::BLOCK_ROWS;
use crate::page::{OpenPage, Page};
use crate::point::SCRATCH_BYTES_MAX;
use crate::sstable::Sstable;
use crate::value::{ByteStrings, Encoding, Physical, plain, value_ref};
use oribi_types::key::encode_component;
use oribi_types::{ColumnType, Result, Timestamp};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::Range;

/// A page of a column without nulls or dictionary, open to random access.
#[derive(Default)]
struct SearchedPage {
    rows: Range<u32>,
    extent: usize,
    page: Page,
    open: OpenPage,
    physical: Physical,
    /// Where each value is, if they are strings.
    places: Vec<Range<u32>>,
    /// The first values as in a plain page, if they are not stored so.
    numbers: Vec<u8>,
}

impl SearchedPage {
    /// Makes this the page of `column` that holds `row`.
    fn load(&mut self, sstable: &Sstable, column: usize, row: u32) -> Result<()> {
        if self.rows.contains(&row) {
            return Ok(());
        }
        self.rows = 0..0;
        let (extent, rows) = sstable.index().page_of(row, column);
        let open = sstable.opened.data.read_page(extent, &mut self.page)?;
        let physical = sstable.index().columns[column].physical;
        (self.extent, self.open, self.physical) = (extent, open, physical);
        let values = match physical.width() {
            _ if !self.is_searchable() => {
                return Err(sstable.opened.data.bad_page(extent, "expected plain values or differences"));
            }
            Some(_) if open.header.encoding == Encoding::Delta => {
                self.numbers.clear();
                rows.len()
            }
            Some(width) => open.header.plain_bytes / width,
            None if physical == Physical::Bool => open.header.plain_bytes.saturating_mul(8),
            None => self.locate_strings(sstable, rows.len())?,
        };
        if values < rows.len() || open.header.values as usize != rows.len() {
            return Err(sstable.opened.data.bad_page(extent, "has fewer values than rows"));
        }
        self.rows = rows;
        Ok(())
    }

    fn is_searchable(&self) -> bool {
        match self.open.header.encoding {
            Encoding::Plain => true,
            Encoding::Delta => matches!(self.physical, Physical::Int32 | Physical::Int64),
            Encoding::Dictionary => false,
        }
    }

    /// Makes plain values of differences, value `i` among them, and first those that one look-up may ask for: it goes on
    /// from where the key index led it.
    fn expand(&mut self, i: usize, width: usize) -> Result<()> {
        let wanted = if self.numbers.is_empty() { i + 1 + BLOCK_ROWS as usize } else { self.rows.len() };
        let contents = self.page.whole(&self.open)?;
        delta::expand(contents, wanted.min(self.rows.len()), width, &mut self.numbers)
    }

    /// Finds out where each string is; returns how many there are.
    fn locate_strings(&mut self, sstable: &Sstable, rows: usize) -> Result<usize> {
        let contents =
            self.page.whole(&self.open).map_err(|e| sstable.opened.data.bad_page(self.extent, e))?;
        self.places.clear();
        let places = ByteStrings::new(contents).take(rows);
        self.places.extend(places.map(|place| place.start as u32..place.end as u32));
        Ok(self.places.len())
    }

    /// The stored bytes of the value of `row`, which must be in the page.
    fn get(&mut self, sstable: &Sstable, row: u32) -> Result<&[u8]> {
        let i = (row - self.rows.start) as usize;
        if self.physical == Physical::Bytes {
            let contents = self.page.whole(&self.open)?;
            return Ok(&contents[self.places[i].start as usize..self.places[i].end as usize]);
        }
        // Values of one width need no more than what stands before them.
        let end = self.physical.width().map_or(i / 8 + 1, |width| (i + 1) * width);
        if self.open.header.encoding == Encoding::Delta {
            if self.numbers.len() < end {
                self.expand(i, end / (i + 1)).map_err(|e| sstable.opened.data.bad_page(self.extent, e))?;
            }
            return plain(self.physical, &self.numbers, i);
        }
        let contents = self.page.contents(&self.open, end);
        contents
            .and_then(|contents| plain(self.physical, contents, i))
            .map_err(|e| sstable.opened.data.bad_page(self.extent, e))
    }

    fn capacity(&self) -> usize {
        let places = self.places.capacity() * size_of::<Range<u32>>();
        self.page.capacity() + self.numbers.capacity() + places
    }
}

/// Compares keys of rows with encoded keys. Remembers one page per key column, so going forward reads each page once.
pub(crate) struct KeyCursor<'a> {
    sstable: &'a Sstable,
    /// The rows that the pages of all key columns have.
    rows: Range<u32>,
    buffers: Buffers,
}

/// Memory of a cursor; the thread's next cursor takes it over, so that a point read need not allocate.
#[derive(Default)]
struct Buffers {
    /// One per key column.
    pages: Vec<SearchedPage>,
    ts: SearchedPage,
    key: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

impl Drop for KeyCursor<'_> {
    fn drop(&mut self) {
        let kept =
            self.buffers.pages.iter().chain([&self.buffers.ts]).map(SearchedPage::capacity).sum::<usize>();
        if kept <= SCRATCH_BYTES_MAX {
            BUFFERS.set(std::mem::take(&mut self.buffers));
        }
    }
}

impl<'a> KeyCursor<'a> {
    pub fn new(sstable: &'a Sstable) -> Self {
        let mut buffers = BUFFERS.take();
        buffers.pages.resize_with(sstable.opened.key.len(), SearchedPage::default);
        for page in buffers.pages.iter_mut().chain([&mut buffers.ts]) {
            page.rows = 0..0;
        }
        KeyCursor { sstable, rows: 0..0, buffers }
    }

    /// How the key of `row` compares with `key`.
    pub fn compare(&mut self, row: u32, key: &[u8]) -> Result<Ordering> {
        self.seek(row)?;
        if let [column] = self.sstable.opened.key[..]
            && matches!(column.column_type, ColumnType::String | ColumnType::Binary)
        {
            // The encoded key is the value itself.
            return Ok(self.buffers.pages[0].get(self.sstable, row)?.cmp(key));
        }
        let Buffers { pages, key: encoded, .. } = &mut self.buffers;
        encoded.clear();
        let last = pages.len() - 1;
        for (i, (column, page)) in self.sstable.opened.key.iter().zip(pages).enumerate() {
            let value = value_ref(column.column_type, page.get(self.sstable, row)?)
                .map_err(|e| e.context(format!("sstable {}: key of row {row}", self.sstable.meta().id)))?;
            encode_component(value, i == last, encoded);
        }
        Ok(encoded.as_slice().cmp(key))
    }

    /// The first row at or behind `from` whose key is not less than `key`; the number of rows if there is none.
    pub fn lower_bound(&mut self, key: &[u8], from: u32) -> Result<u32> {
        let mut row = from;
        while row < self.sstable.index().rows {
            self.seek(row)?;
            let end = self.rows.end;
            // Gallop: what is sought is near if many keys are sought. Rows before `low` are less than `key`.
            let (mut low, mut high, mut step) = (row, end, 1);
            while low < high {
                let probe = low.saturating_add(step - 1).min(end - 1);
                if self.compare(probe, key)? == Ordering::Less {
                    low = probe + 1;
                    step = step.saturating_mul(2);
                } else {
                    high = probe;
                    break;
                }
            }
            while low < high {
                let middle = low + (high - low) / 2;
                if self.compare(middle, key)? == Ordering::Less {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            if low < end {
                return Ok(low);
            }
            row = end;
        }
        Ok(row)
    }

    /// The commit timestamp of `row`.
    pub fn ts(&mut self, row: u32) -> Result<Timestamp> {
        let meta = self.sstable.meta();
        if meta.min_ts == meta.max_ts {
            return Ok(meta.min_ts);
        }
        let ts = &mut self.buffers.ts;
        ts.load(self.sstable, self.sstable.opened.ts_column, row)?;
        let bytes = ts.get(self.sstable, row)?.try_into().expect("timestamps have eight bytes");
        Ok(Timestamp(u64::from_le_bytes(bytes)))
    }

    fn seek(&mut self, row: u32) -> Result<()> {
        if self.rows.contains(&row) {
            return Ok(());
        }
        let mut rows = 0..u32::MAX;
        for (column, page) in self.sstable.opened.key.iter().zip(&mut self.buffers.pages) {
            page.load(self.sstable, column.position, row)?;
            rows = rows.start.max(page.rows.start)..rows.end.min(page.rows.end);
        }
        self.rows = rows;
        Ok(())
    }
}
