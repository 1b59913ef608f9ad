//! Walking the keys of an SSTable page by page, forward.

use crate::page::Encoding;
use crate::point::SCRATCH_BYTES_MAX;
use crate::sstable::Sstable;
use crate::value::{ByteStrings, Physical, value_ref};
use oribi_types::key::encode_component;
use oribi_types::{ColumnType, Result, Timestamp};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::Range;

/// The decompressed page of a column without nulls or dictionary, open to random access.
#[derive(Default)]
struct PlainPage {
    rows: Range<u32>,
    bytes: Vec<u8>,
    /// Bytes of a value; 0 if they differ and `places` tells.
    width: usize,
    places: Vec<Range<u32>>,
}

impl PlainPage {
    /// Makes this the page of `column` that holds `row`.
    fn load(&mut self, sstable: &Sstable, column: usize, row: u32, raw: &mut Vec<u8>) -> Result<()> {
        if self.rows.contains(&row) {
            return Ok(());
        }
        self.rows = 0..0;
        let (page, rows) = sstable.index().page_of(row, column);
        self.bytes.clear();
        let header = sstable.data.read_page(page, raw, &mut self.bytes)?;
        let physical = sstable.index().columns[column].physical;
        if header.encoding != Encoding::Plain {
            return Err(sstable.data.bad_page(page, "expected plain values"));
        }
        let values = self.locate_values(physical, rows.len());
        if values < rows.len() || header.values as usize != rows.len() {
            return Err(sstable.data.bad_page(page, "has fewer values than rows"));
        }
        self.rows = rows;
        Ok(())
    }

    /// Finds out where each value is; returns how many there are.
    fn locate_values(&mut self, physical: Physical, rows: usize) -> usize {
        self.width = physical.width().unwrap_or(0);
        match physical {
            Physical::Bytes => {
                self.places.clear();
                let places = ByteStrings::new(&self.bytes).take(rows);
                self.places.extend(places.map(|place| place.start as u32..place.end as u32));
                self.places.len()
            }
            // One byte per bit, so that a bool is a value of width 1.
            Physical::Bool => {
                let bits = self.bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1));
                self.bytes = bits.take(rows).collect();
                self.width = 1;
                self.bytes.len()
            }
            _ => self.bytes.len() / self.width,
        }
    }

    fn capacity(&self) -> usize {
        self.bytes.capacity() + self.places.capacity() * size_of::<Range<u32>>()
    }

    /// The stored bytes of the value of `row`, which must be in the page.
    fn get(&self, row: u32) -> &[u8] {
        let i = (row - self.rows.start) as usize;
        match self.width {
            0 => {
                let place = &self.places[i];
                &self.bytes[place.start as usize..place.end as usize]
            }
            width => &self.bytes[i * width..(i + 1) * width],
        }
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
    pages: Vec<PlainPage>,
    ts: PlainPage,
    raw: Vec<u8>,
    key: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

impl Drop for KeyCursor<'_> {
    fn drop(&mut self) {
        let kept =
            self.buffers.pages.iter().chain([&self.buffers.ts]).map(PlainPage::capacity).sum::<usize>();
        if kept + self.buffers.raw.capacity() <= SCRATCH_BYTES_MAX {
            BUFFERS.set(std::mem::take(&mut self.buffers));
        }
    }
}

impl<'a> KeyCursor<'a> {
    pub fn new(sstable: &'a Sstable) -> Self {
        let mut buffers = BUFFERS.take();
        buffers.pages.resize_with(sstable.key.len(), PlainPage::default);
        for page in buffers.pages.iter_mut().chain([&mut buffers.ts]) {
            page.rows = 0..0;
        }
        KeyCursor { sstable, rows: 0..0, buffers }
    }

    /// How the key of `row` compares with `key`.
    pub fn compare(&mut self, row: u32, key: &[u8]) -> Result<Ordering> {
        self.seek(row)?;
        if let [column] = self.sstable.key[..]
            && matches!(column.column_type, ColumnType::String | ColumnType::Binary)
        {
            // The encoded key is the value itself.
            return Ok(self.buffers.pages[0].get(row).cmp(key));
        }
        let Buffers { pages, key: encoded, .. } = &mut self.buffers;
        encoded.clear();
        let last = pages.len() - 1;
        for (i, (column, page)) in self.sstable.key.iter().zip(pages).enumerate() {
            let value = value_ref(column.column_type, page.get(row))
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
        let Buffers { ts, raw, .. } = &mut self.buffers;
        ts.load(self.sstable, self.sstable.ts_column, row, raw)?;
        let bytes = ts.get(row).try_into().expect("timestamps have eight bytes");
        Ok(Timestamp(u64::from_le_bytes(bytes)))
    }

    fn seek(&mut self, row: u32) -> Result<()> {
        if self.rows.contains(&row) {
            return Ok(());
        }
        let mut rows = 0..u32::MAX;
        let Buffers { pages, raw, .. } = &mut self.buffers;
        for (column, page) in self.sstable.key.iter().zip(pages) {
            page.load(self.sstable, column.position, row, raw)?;
            rows = rows.start.max(page.rows.start)..rows.end.min(page.rows.end);
        }
        self.rows = rows;
        Ok(())
    }
}
