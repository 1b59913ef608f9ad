//! Many rows that a write needs from files are read in the order of their keys: one walk through each file, as a range read
//! makes it, which opens a page once for all rows that it has of them, and not once for each.
//!
//! A row that is read alone costs a search for its key and a page of each column; here it costs its share of pages that are
//! decoded from end to end. Rows so long that reading a few takes much memory are read alone, where that is counted.

use super::cold::ReadAhead;
use super::{Target, WriteOp};
use crate::columns::{Columns, commit_ts};
use crate::engine::Engine;
use crate::index::Location;
use crate::long_reads::UNCOUNTED_BYTES;
use crate::memory::Reserved;
use crate::read::FileRow;
use crate::tablet::{FileSet, LiveFile};
use oribi_types::Result;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Of fewer rows in a tablet, each is read alone.
const ROWS_MIN: usize = 16;
/// Rows that are looked for at a time: what is known of them besides their values is little.
const ROWS_AT_ONCE: usize = 16 << 10;
/// Memory for what is being read: a batch of a file, and its pages.
const WALK_BYTES: u64 = 16 << 20;

/// The operations of a write, and the keys that they are about.
pub(super) struct Asked<'a> {
    pub ops: &'a [WriteOp<'a>],
    pub targets: &'a [Target<'a>],
}

impl<'a> Asked<'a> {
    fn key(&self, i: usize) -> &'a [u8] {
        self.targets[i].1.key
    }
}

impl Engine {
    /// Reads the rows of the operations `cold`, which are of one tablet with these files and come in order of their keys, none twice, into
    /// `ahead`, as far as it has room. Returns those that no file has; `None` if they are to be read one by one.
    pub(super) fn read_in_key_order(
        &self,
        asked: &Asked<'_>,
        cold: &[usize],
        files: &FileSet,
        ahead: &mut ReadAhead,
    ) -> Result<Option<Vec<usize>>> {
        let Some(first) = cold.first().filter(|_| cold.len() >= ROWS_MIN) else { return Ok(None) };
        let columns = Columns::of_rows(asked.ops[*first].table.schema());
        for file in &files.files {
            if row_bytes(file, &columns)? > UNCOUNTED_BYTES as u64 {
                return Ok(None);
            }
        }
        let Some(_room) = Reserved::try_new(&self.budget, WALK_BYTES) else { return Ok(None) };
        let mut absent = Vec::new();
        for some in cold.chunks(ROWS_AT_ONCE) {
            let mut open = some.to_vec();
            for file in &files.files {
                if open.is_empty() || ahead.is_full() {
                    break;
                }
                open = self.read_file_in_key_order(asked, open, file, &columns, ahead)?;
            }
            if ahead.is_full() {
                break;
            }
            absent.extend(open);
        }
        Ok(Some(absent))
    }

    /// Reads those rows of the operations `open` that `file` has; returns the others.
    fn read_file_in_key_order(
        &self,
        asked: &Asked<'_>,
        open: Vec<usize>,
        file: &LiveFile,
        columns: &Columns,
        ahead: &mut ReadAhead,
    ) -> Result<Vec<usize>> {
        let keys: Vec<&[u8]> = open.iter().map(|&i| asked.key(i)).collect();
        let mut found = Vec::new();
        let mut rest = Vec::new();
        for (i, place) in open.into_iter().zip(file.sstable.locate(&keys)?) {
            match place.filter(|(row, _)| !file.deletions.is_marked(*row)) {
                Some((row, _)) => found.push((i, row)),
                None => rest.push(i),
            }
        }
        if found.is_empty() {
            return Ok(rest);
        }
        let is_whole = file.sstable.is_known_to(&columns.schema);
        let rows = ranges(&found);
        let batches = file.sstable.batches(&columns.schema, columns.positions(), true, Some(&rows))?;
        let (mut found, mut buffer) = (found.into_iter(), Vec::new());
        for batch in batches {
            let batch = batch?;
            for (n, (i, position)) in (0..batch.num_rows()).zip(found.by_ref()) {
                buffer.clear();
                columns.encode(&batch, n, &mut buffer);
                let row = FileRow {
                    ts: commit_ts(&batch, n),
                    home: Location { file: file.id(), row: position },
                    visible_from: file.visible_from,
                    may_cache: is_whole,
                };
                ahead.keep(&self.budget, &asked.ops[i], asked.targets[i].1, &buffer, row);
            }
            self.counters.file_reads.fetch_add(batch.num_rows() as u64, Relaxed);
            if ahead.is_full() {
                break;
            }
        }
        Ok(rest)
    }
}

/// About how many bytes the longest rows of a file take in memory.
fn row_bytes(file: &LiveFile, columns: &Columns) -> Result<u64> {
    let bytes = |&position: &usize| file.sstable.value_bytes_max(&columns.schema.columns()[position]);
    columns.positions().iter().map(bytes).sum()
}

/// The positions of rows, which ascend, as ranges.
fn ranges(found: &[(usize, u32)]) -> Vec<Range<u32>> {
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for &(_, row) in found {
        match ranges.last_mut().filter(|range| range.end == row) {
            Some(range) => range.end += 1,
            None => ranges.push(row..row + 1),
        }
    }
    ranges
}
