//! Many rows that a write needs from files are read in the order of their keys: one walk through each file, as a range read
//! makes it, which opens a page once for all rows that it has of them, and not once for each.
//!
//! A row that is read alone costs a search for its key and a page of each column; here it costs its share of pages that are
//! decompressed. What the pages take is known before and counted, so much at a time; where there is no room for them, their
//! rows are read alone, which the long ones among them [wait for](crate::long_reads).

use super::cold::ReadAhead;
use super::{Target, WriteOp};
use crate::columns::Columns;
use crate::engine::Engine;
use crate::index::Location;
use crate::long_reads::FileRowBuffer;
use crate::memory::Reserved;
use crate::read::FileRow;
use crate::tablet::{FileSet, LiveFile};
use oribi_types::{Result, Timestamp};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Of fewer rows in a tablet, each is read alone.
const ROWS_MIN: usize = 16;
/// Rows that are looked for at a time: what is known of them besides their values is little.
const ROWS_AT_ONCE: usize = 16 << 10;
/// Memory for the pages that are read at a time, unless those of one row take more.
const PAGES_BYTES_MAX: u64 = 8 << 20;

/// The operations of a write, and the keys that they are about.
pub(super) struct Asked<'a> {
    pub ops: &'a [WriteOp<'a>],
    pub targets: &'a [Target<'a>],
}

/// A row that a file has of those asked for.
struct Found {
    /// The operation's number.
    op: usize,
    row: u32,
    ts: Timestamp,
}

/// A file, and what is read of its rows.
struct Source<'a> {
    file: &'a LiveFile,
    columns: &'a Columns,
}

impl Engine {
    /// Reads the rows of the operations `cold`, which are of one tablet with these files, as one definition has it, and come in order
    /// of their keys, none twice, into `ahead`, as far as it has room. Returns those that no file has; `None` if they are to be read
    /// one by one.
    pub(super) fn read_in_key_order(
        &self,
        asked: &Asked<'_>,
        cold: &[usize],
        files: &FileSet,
        ahead: &mut ReadAhead,
    ) -> Result<Option<Vec<usize>>> {
        let Some(first) = cold.first().filter(|_| cold.len() >= ROWS_MIN) else { return Ok(None) };
        let columns = Columns::of_rows(asked.ops[*first].table.schema());
        let mut absent = Vec::new();
        for some in cold.chunks(ROWS_AT_ONCE) {
            let mut open = some.to_vec();
            for file in files.files.iter().map(AsRef::as_ref) {
                if !open.is_empty() {
                    let source = Source { file, columns: &columns };
                    open = self.read_file_in_key_order(asked, open, &source, ahead)?;
                }
                if ahead.is_full() {
                    return Ok(Some(absent));
                }
            }
            self.counters.file_reads.fetch_add(open.len() as u64, Relaxed);
            absent.extend(open);
        }
        Ok(Some(absent))
    }

    /// Reads those rows of the operations `open` that a file has, as far as `ahead` has room; returns the others.
    fn read_file_in_key_order(
        &self,
        asked: &Asked<'_>,
        open: Vec<usize>,
        source: &Source<'_>,
        ahead: &mut ReadAhead,
    ) -> Result<Vec<usize>> {
        let keys: Vec<&[u8]> = open.iter().map(|&i| asked.targets[i].1.key).collect();
        let (mut found, mut rest) = (Vec::new(), Vec::new());
        for (op, place) in open.into_iter().zip(source.file.locate_live(&keys)?) {
            match place {
                Some((row, ts)) => found.push(Found { op, row, ts }),
                None => rest.push(op),
            }
        }
        // Of a file that has none, not even Parquet's metadata are read.
        if found.is_empty() {
            return Ok(rest);
        }
        let rows: Vec<u32> = found.iter().map(|found| found.row).collect();
        let (sstable, columns) = (&source.file.sstable, source.columns);
        let mut left = &found[..];
        for portion in sstable.portions(&columns.schema, columns.positions(), &rows, PAGES_BYTES_MAX)? {
            let (these, others) = left.split_at(portion.rows);
            match Reserved::try_new(&self.budget, portion.bytes) {
                Some(_room) => self.read_together(asked, these, &portion.ranges, source, ahead)?,
                None => self.read_each(asked, these, source, ahead)?,
            }
            if ahead.is_full() {
                break;
            }
            left = others;
        }
        Ok(rest)
    }

    /// Reads rows of a file, each page of them once: those that are in the ranges `read`.
    fn read_together(
        &self,
        asked: &Asked<'_>,
        these: &[Found],
        read: &[Range<u32>],
        source: &Source<'_>,
        ahead: &mut ReadAhead,
    ) -> Result<()> {
        let (sstable, columns) = (&source.file.sstable, source.columns);
        let batches = sstable.batches(&columns.schema, columns.positions(), false, Some(read))?;
        let (mut these, mut row) = (these.iter(), Vec::new());
        for batch in batches {
            let batch = batch?;
            for (n, found) in (0..batch.num_rows()).zip(these.by_ref()) {
                row.clear();
                columns.encode(&batch, n, &mut row);
                self.keep_found(asked, found, &row, source, ahead);
                if ahead.is_full() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads rows of a file one by one, each once there is room if it is long.
    fn read_each(
        &self,
        asked: &Asked<'_>,
        these: &[Found],
        source: &Source<'_>,
        ahead: &mut ReadAhead,
    ) -> Result<()> {
        let mut buffer = FileRowBuffer::default();
        for found in these {
            let table = asked.ops[found.op].table;
            self.read_file_row(usize::MAX, table, source.file, found.row, &mut buffer)?;
            self.keep_found(asked, found, &buffer.row, source, ahead);
            if ahead.is_full() {
                break;
            }
        }
        Ok(())
    }

    fn keep_found(
        &self,
        asked: &Asked<'_>,
        found: &Found,
        row: &[u8],
        source: &Source<'_>,
        ahead: &mut ReadAhead,
    ) {
        let Source { file, columns } = source;
        let found_row = FileRow {
            ts: found.ts,
            home: Location { file: file.id(), row: found.row },
            visible_from: file.row_visible_from(found.row),
            may_cache: file.sstable.is_known_to(&columns.schema),
        };
        self.counters.file_reads.fetch_add(1, Relaxed);
        ahead.keep(&self.budget, &asked.ops[found.op], asked.targets[found.op].1, row, found_row);
    }
}
