//! Checking a whole SSTable: every checksum, and every promise that readers rely on.

use crate::in_sstable;
use crate::index::Index;
use crate::sstable::Sstable;
use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use oribi_types::batch::ts_field;
use oribi_types::{Error, Result, Schema, Timestamp};

impl Sstable {
    /// Reads everything, patches too, and checks checksums, the order of keys, bloom filters, the key index, counts and bounds.
    ///
    /// # Errors
    /// `Corrupt`, naming the first thing that is wrong.
    pub fn verify(&self, schema: &Schema) -> Result<()> {
        self.with_patches(Vec::new()).verify_file(schema)?;
        self.patches.iter().try_for_each(|patch| patch.verify(schema))
    }

    fn verify_file(&self, schema: &Schema) -> Result<()> {
        let of_this = |e: Error| in_sstable(e, self.meta().id);
        self.opened.data.read(0..4)?;
        for extent in 0..self.index().extents.len() {
            self.opened.data.read(self.index().extent_range(extent))?;
        }
        self.verify_footer().map_err(of_this)?;
        self.verify_keys(schema)?;
        self.verify_timestamps().map_err(of_this)?;
        let all: Vec<usize> = (0..schema.columns().len()).collect();
        let mut rows = 0;
        for batch in self.batches(schema, &all, true, None)? {
            rows += batch?.num_rows() as u64;
        }
        if rows != self.meta().rows {
            return Err(of_this(Error::corrupt(format!("{rows} rows instead of {}", self.meta().rows))));
        }
        Ok(())
    }

    /// Parquet's own directory of pages must be the index's, or others would read different rows than we do.
    fn verify_footer(&self) -> Result<()> {
        let metadata = self.metadata()?;
        let offsets = metadata.offset_index().ok_or_else(|| Error::corrupt("footer: no offset index"))?;
        let index = self.index();
        if metadata.num_row_groups() != index.groups() || offsets.len() != index.groups() {
            return Err(Error::corrupt("footer: other row groups than in the index"));
        }
        for (group, columns) in offsets.iter().enumerate() {
            for (column, offsets) in columns.iter().enumerate() {
                let pages = index.chunk(group, column).pages;
                let first_row = index.row_groups[group].first_row;
                let same = offsets.page_locations().len() == pages.len()
                    && offsets.page_locations().iter().zip(pages).all(|(location, page)| {
                        let range = index.extent_range(page);
                        location.offset as u64 == range.start
                            && location.compressed_page_size as u64 == range.end - range.start
                            && location.first_row_index
                                == i64::from(index.extents[page].first_row) - i64::from(first_row)
                    });
                if !same {
                    let what = format!(
                        "footer: other pages of column {column} in row group {group} than in the index"
                    );
                    return Err(Error::corrupt(what));
                }
            }
        }
        Ok(())
    }

    fn verify_keys(&self, schema: &Schema) -> Result<()> {
        let wrong = |row: u64, what: &str| {
            Err(Error::corrupt(format!("sstable {}: row {row}: {what}", self.meta().id)))
        };
        let mut last: Option<(Vec<u8>, Timestamp)> = None;
        let mut row = 0;
        for batch in self.keys(schema)? {
            let (keys, timestamps) = batch?;
            for (key, ts) in keys.iter().zip(timestamps) {
                match &last {
                    Some((before, _)) if before.as_slice() > key => return wrong(row, "key out of order"),
                    Some((before, newer)) if before == key && *newer < ts => {
                        return wrong(row, "copies of a key are not newest first");
                    }
                    None if key != self.meta().min_key => return wrong(row, "not the smallest key"),
                    _ => {}
                }
                if self.index().has_filters() && !self.may_contain(key) {
                    return wrong(row, "the bloom filter does not contain the key");
                }
                let before = last.as_ref().map_or(&[][..], |(key, _)| key);
                if !separates(self.index(), row as u32, before, key) {
                    return wrong(row, "the key index does not lead to the key");
                }
                let mut kept = last.take().map_or_else(Vec::new, |(key, _)| key);
                kept.clear();
                kept.extend_from_slice(key);
                last = Some((kept, ts));
                row += 1;
            }
        }
        if last.is_none_or(|(key, _)| key != self.meta().max_key) {
            return wrong(row, "the last key is not the largest");
        }
        Ok(())
    }

    /// Of rows of one timestamp nobody else reads the column.
    fn verify_timestamps(&self) -> Result<()> {
        let (mut min_ts, mut max_ts) = (Timestamp::MAX, Timestamp::MIN);
        for timestamps in self.column(self.opened.ts_column, ts_field().data_type()) {
            for ts in timestamps?.as_primitive::<UInt64Type>().values() {
                (min_ts, max_ts) = (min_ts.min(Timestamp(*ts)), max_ts.max(Timestamp(*ts)));
            }
        }
        match (min_ts, max_ts) == (self.meta().min_ts, self.meta().max_ts) {
            true => Ok(()),
            false => Err(Error::corrupt("other timestamps than the manifest says")),
        }
    }
}

/// Whether the entry of the key index at `row`, if one is there, lies between the keys before and behind it.
fn separates(index: &Index, row: u32, before: &[u8], key: &[u8]) -> bool {
    let group = index.row_groups[index.row_group_of(row)];
    let in_group = row - group.first_row;
    if !in_group.is_multiple_of(index.block_rows) {
        return true;
    }
    let separator = index.separators.get((group.first_block + in_group / index.block_rows) as usize);
    separator <= key && (before < separator || before == key || row == 0)
}
