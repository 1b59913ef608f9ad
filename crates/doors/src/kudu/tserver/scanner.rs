//! An open scan: what was returned so far, and how it goes on.

use super::ahead::AheadRoom;
use super::block::Block;
use super::buffers::Buffers;
use super::source::Source;
use super::spec::ScanSpec;
use arrow::array::RecordBatch;
use oribi_engine::{Engine, Obligation, Snapshot};
use oribi_types::Result;
use std::sync::Arc;

/// Rows that one call reads at most, about, where predicates let few of them pass: they take well below the time that clients
/// wait for an answer.
const ROWS_MAX: usize = 1 << 20;
/// Of rows that are longer, each so many bytes count as a row that is read.
const ROW_BYTES: usize = 1 << 10;

pub(super) struct Scanner {
    spec: ScanSpec,
    source: Source,
    /// What was read and did not fit into the answer.
    rest: Option<RecordBatch>,
    /// The answer to the next call, if it was made ahead.
    ahead: Option<Ahead>,
    /// Whether it was [read](Self::read): what it returned next may have been taken from the source already.
    pub is_read: bool,
    /// Rows that may still be returned.
    limit_left: u64,
    has_ended: bool,
    /// What the next call's number must be.
    pub next_call: u32,
    /// Keeps readable what the scan sees.
    pub snapshot: Arc<Snapshot>,
}

/// Part of a scan's rows.
pub(super) struct Page {
    pub block: Block,
    /// The key of the last row, if the scan is ordered and there are rows.
    pub last_key: Option<Vec<u8>>,
}

struct Ahead {
    page: Result<Page>,
    /// For the page, until it is taken.
    _room: AheadRoom,
}

impl Scanner {
    /// # Errors
    /// Those of [`Source::open`].
    pub fn open(engine: &Arc<Engine>, spec: ScanSpec, snapshot: Arc<Snapshot>) -> Result<Self> {
        let source = Source::open(engine, &spec, &snapshot)?;
        let limit_left = spec.limit;
        Ok(Scanner {
            spec,
            source,
            rest: None,
            ahead: None,
            is_read: false,
            limit_left,
            has_ended: false,
            next_call: 1,
            snapshot,
        })
    }

    /// Whether there may be more rows.
    pub fn has_more(&self) -> bool {
        self.ahead.is_some() || self.rest.is_some() || !self.has_ended
    }

    /// Bytes that it keeps of rows that were read, besides an answer that was made ahead.
    pub fn rest_bytes(&self) -> usize {
        self.rest.as_ref().map_or(0, RecordBatch::get_array_memory_size)
    }

    /// What must be settled before what was read so far is answered.
    pub fn obligation(&self) -> Obligation {
        self.source.obligation()
    }

    /// The next rows, of about `bytes_max`, in memory from `buffers`; perhaps none though there are more.
    ///
    /// # Errors
    /// Those of [`Source::next`]; the scan is of no use after one.
    pub fn read(&mut self, bytes_max: usize, buffers: &Buffers) -> Result<Page> {
        self.is_read = true;
        match self.ahead.take_if(|_| bytes_max > 0) {
            Some(ahead) => ahead.page,
            None => self.read_now(bytes_max, buffers),
        }
    }

    /// Has ready what the next [`read`](Self::read) gives.
    pub fn read_ahead(&mut self, bytes_max: usize, buffers: &Buffers, room: AheadRoom) {
        if self.ahead.is_none() && self.has_more() {
            self.ahead = Some(Ahead { page: self.read_now(bytes_max, buffers), _room: room });
        }
    }

    fn read_now(&mut self, bytes_max: usize, buffers: &Buffers) -> Result<Page> {
        let mut page = Page { block: Block::new(&self.spec, buffers, bytes_max), last_key: None };
        let mut rows_left = ROWS_MAX;
        while page.block.bytes() < bytes_max
            && let Some(batch) = self.next_batch(&mut rows_left)?
        {
            let rows = self.spec.project(&batch)?;
            let fitting = page.block.rows_within(&rows, bytes_max - page.block.bytes());
            page.block.append(&rows.slice(0, fitting))?;
            page.last_key = self.spec.last_key(&batch.slice(0, fitting))?;
            if fitting < batch.num_rows() {
                self.rest = Some(batch.slice(fitting, batch.num_rows() - fitting));
                break;
            }
        }
        Ok(page)
    }

    /// The next rows, of the columns that are read; `None` if there are none, or `rows_left` to read is used up.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn next_batch(&mut self, rows_left: &mut usize) -> Result<Option<RecordBatch>> {
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest));
        }
        while !self.has_ended && *rows_left > 0 {
            let Some(batch) = self.source.next(&self.spec)? else {
                self.has_ended = true;
                break;
            };
            let rows = batch.batch.num_rows().max(batch.batch.get_array_memory_size() / ROW_BYTES);
            *rows_left = rows_left.saturating_sub(rows);
            let mut batch = self.spec.filter(batch)?;
            if batch.num_rows() as u64 >= self.limit_left {
                batch = batch.slice(0, self.limit_left as usize);
                self.has_ended = true;
            }
            self.limit_left -= batch.num_rows() as u64;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    pub fn spec(&self) -> &ScanSpec {
        &self.spec
    }
}
