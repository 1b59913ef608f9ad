//! The rows of a range that one SSTable has and the snapshot sees, in key order.

use super::{Scope, Tally};
use crate::columns::{Columns, commit_ts};
use crate::tablet::LiveFile;
use arrow::array::RecordBatch;
use oribi_sstable::Batches;
use oribi_types::batch::{EncodedKeys, encode_keys};
use oribi_types::{Result, Timestamp};
use std::ops::Range;
use std::sync::Arc;

/// Rows that are read at once: less than a page first, because many a reader wants no more.
const ROWS_FIRST: usize = 256;
const ROWS_MAX: usize = 8192;

/// Always has a row: one whose [`advance`](Self::advance) finds none is to be dropped.
pub(super) struct FileRows {
    file: Arc<LiveFile>,
    /// Not looked at yet.
    rows: Range<u32>,
    rows_next: usize,
    batches: Option<Batches>,
    /// What was read last, keys encoded.
    batch: Option<RecordBatch>,
    keys: EncodedKeys,
    next: usize,
}

impl FileRows {
    /// The rows of `file` at the positions `rows`, from the first that the snapshot sees; `None` if it sees none.
    pub fn new(
        file: &Arc<LiveFile>,
        rows: Range<u32>,
        scope: &Scope,
        tally: &mut Tally,
    ) -> Result<Option<Self>> {
        let mut file = FileRows {
            file: file.at(scope.ts()),
            rows,
            rows_next: ROWS_FIRST,
            batches: None,
            batch: None,
            keys: EncodedKeys::default(),
            next: 0,
        };
        Ok(if file.fill(scope, tally)? { Some(file) } else { None })
    }

    /// The key of the row whose turn it is.
    pub fn head(&self) -> &[u8] {
        self.keys.get(self.next)
    }

    /// That row, appended to `row`, and its commit timestamp. Columns that were not asked for are null.
    pub fn read(&self, columns: &Columns, row: &mut Vec<u8>) -> Timestamp {
        let batch = self.batch.as_ref().expect("there is a row");
        columns.encode(batch, self.next, row);
        commit_ts(batch, self.next)
    }

    /// Goes on to the next row that the snapshot sees; false if there is none.
    pub fn advance(&mut self, scope: &Scope, tally: &mut Tally) -> Result<bool> {
        self.next += 1;
        self.fill(scope, tally)
    }

    /// Reads on, if need be, up to a row that the snapshot sees; false if there is none.
    fn fill(&mut self, scope: &Scope, tally: &mut Tally) -> Result<bool> {
        let columns = &scope.columns;
        loop {
            while let Some(batch) = &self.batch
                && self.next < batch.num_rows()
            {
                if commit_ts(batch, self.next) <= scope.ts() {
                    return Ok(true);
                }
                self.next += 1;
            }
            if let Some(batch) = self.batches.as_mut().and_then(Iterator::next).transpose()? {
                self.keys = encode_keys(&columns.schema, &batch)?;
                tally.counts.file_bytes += batch.get_array_memory_size() as u64;
                (self.batch, self.next) = (Some(batch), 0);
                continue;
            }
            let rows = self.next_rows(scope.ts());
            if rows.is_empty() {
                return Ok(false);
            }
            let sstable = &self.file.sstable;
            self.batches = Some(sstable.batches(&columns.schema, columns.positions(), true, Some(&rows))?);
        }
    }

    /// The positions of the next rows that no mark hides from a snapshot at `ts`.
    fn next_rows(&mut self, ts: Timestamp) -> Vec<Range<u32>> {
        let mut left = self.rows_next;
        self.rows_next = (left * 4).min(ROWS_MAX);
        let mut ranges: Vec<Range<u32>> = Vec::new();
        while left > 0
            && let Some(row) = self.rows.next()
        {
            if self.file.deletions.deleted_at(row).is_some_and(|deleted_at| deleted_at <= ts) {
                continue;
            }
            left -= 1;
            match ranges.last_mut().filter(|range| range.end == row) {
                Some(range) => range.end += 1,
                None => ranges.push(row..row + 1),
            }
        }
        ranges
    }
}
