//! The buffer that appenders fill: blocks as they will be written.

use crate::Lsn;
use crate::format::{
    BLOCK_HEADER_BYTES, BlockHeader, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES, RecordHeader,
    SEGMENT_HEADER_BYTES, SegmentHeader, align,
};
use crate::segment::{Segment, SegmentInfo};
use foldhash::fast::RandomState;
use oribi_types::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Blocks on their way to the disk. Usually one; one more for each segment begun.
#[derive(Default)]
pub(crate) struct Batch {
    /// The blocks, one behind the other. What lies behind `committed` is a record that was given up.
    bytes: Vec<u8>,
    committed: usize,
    blocks: Vec<Block>,
}

/// A block in a batch. The last one is open: it takes records and has no padding yet.
struct Block {
    segment: Arc<Segment>,
    /// Where it stands in the batch.
    at: usize,
    header: BlockHeader,
}

/// The state of the log's end.
pub(crate) struct Active {
    pub batch: Batch,
    /// The segment that the next block goes to, and where.
    segment: Arc<Segment>,
    end: u64,
    /// Where blocks end in it at the latest: behind is what was promised to records to come.
    limit: u64,
    header: SegmentHeader,
    /// The segment after it, once it is prepared.
    pub prepared: Option<Arc<Segment>>,
    pub next_lsn: Lsn,
    chain: u32,
    /// Records of each group in this term.
    sequences: HashMap<u32, u64, RandomState>,
}

/// Room behind the log's end that a record changes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Promised {
    /// To be kept for a later one, whatever others append.
    pub keeps: u64,
    /// Kept by an earlier one, for this.
    pub spends: u64,
}

/// What became of a record.
pub(crate) enum Appended {
    Here(Lsn),
    /// It is the first of another segment.
    InNextSegment(Lsn),
    /// There must be a prepared segment of this size first.
    NoRoom {
        needed: u64,
    },
}

impl Active {
    pub fn new(header: SegmentHeader, segment: Segment, next_lsn: Lsn, chain: u32) -> Self {
        Active {
            batch: Batch::default(),
            limit: segment.len,
            segment: Arc::new(segment),
            end: (SEGMENT_HEADER_BYTES + BLOCK_HEADER_BYTES) as u64,
            header,
            prepared: None,
            next_lsn,
            chain,
            sequences: HashMap::default(),
        }
    }

    /// Appends a record whose payload comes from `fill`, or changes nothing.
    #[inline(always)]
    pub fn append(
        &mut self,
        group: u32,
        Promised { keeps, spends }: Promised,
        fill: &mut dyn FnMut(Lsn, &mut Vec<u8>),
    ) -> Result<Appended> {
        let lsn = self.next_lsn;
        let bytes = &mut self.batch.bytes;
        bytes.truncate(self.batch.committed);
        let block_at = self.batch.blocks.last().map_or(bytes.len(), |block| block.at);
        if self.batch.blocks.is_empty() {
            bytes.resize(block_at + BLOCK_HEADER_BYTES, 0);
        }
        let record_at = bytes.len();
        bytes.resize(record_at + RECORD_HEADER_BYTES, 0);
        fill(lsn, bytes);
        let Some(length) = bytes.len().checked_sub(record_at + RECORD_HEADER_BYTES) else {
            return Err(Error::internal("log: a record was filled backwards"));
        };
        if length > PAYLOAD_BYTES_MAX {
            return Err(Error::too_large(format!(
                "log: a record of {length} bytes, at most {PAYLOAD_BYTES_MAX}"
            )));
        }
        if self.end + align(bytes.len() - block_at) as u64 + keeps <= self.limit + spends {
            if self.batch.blocks.is_empty() {
                self.open_block(block_at);
            }
            self.limit = self.limit + spends - keeps;
            self.seal(group, record_at, length);
            return Ok(Appended::Here(lsn));
        }
        // What was promised goes along.
        let promised = self.segment.len - self.limit + keeps - spends;
        let needed = SEGMENT_HEADER_BYTES as u64 + room_for(length) + promised;
        let Some(next) = self.prepared.take_if(|next| next.len >= needed) else {
            return Ok(Appended::NoRoom { needed });
        };
        let record_at = self.roll(next, record_at);
        self.limit = self.segment.len - promised;
        self.seal(group, record_at, length);
        Ok(Appended::InNextSegment(lsn))
    }

    /// Nobody will come for so much of what was kept.
    pub fn give_back(&mut self, room: u64) {
        self.limit += room;
    }

    /// Goes on in segment `next`, with the record at `record_at` as the first of a new block. Returns its new place.
    fn roll(&mut self, next: Arc<Segment>, record_at: usize) -> usize {
        let mut block_at = record_at - BLOCK_HEADER_BYTES;
        if !self.batch.blocks.is_empty() {
            // The open block stays behind: its padding and a header fit in between.
            block_at = self.batch.close_block();
            let bytes = &mut self.batch.bytes;
            let (gap, end) = (block_at + BLOCK_HEADER_BYTES - record_at, bytes.len());
            bytes.resize(end + gap, 0);
            bytes.copy_within(record_at..end, record_at + gap);
            bytes[record_at..record_at + gap].fill(0);
        }
        self.header.number = next.number;
        self.segment = next;
        self.end = SEGMENT_HEADER_BYTES as u64;
        self.open_block(block_at);
        block_at + BLOCK_HEADER_BYTES
    }

    fn open_block(&mut self, at: usize) {
        let mut header = BlockHeader::empty(&self.header, self.end, self.next_lsn);
        header.chain = self.chain;
        self.batch.blocks.push(Block { segment: self.segment.clone(), at, header });
    }

    /// Completes the record at the end of the buffer.
    fn seal(&mut self, group: u32, record_at: usize, length: usize) {
        let sequence = self.sequences.entry(group).or_insert(0);
        *sequence += 1;
        let header = RecordHeader {
            log_id: self.header.log_id,
            term: self.header.term,
            lsn: self.next_lsn,
            sequence: *sequence,
            group,
            length: length as u32,
            previous: self.chain,
        };
        self.chain = header.seal(&mut self.batch.bytes[record_at..]);
        self.next_lsn += 1;
        self.batch.committed = self.batch.bytes.len();
        self.batch.blocks.last_mut().expect("a block is open").header.count += 1;
    }

    /// Takes the batch to write it and leaves `spare`, which is empty.
    pub fn take(&mut self, spare: Batch) -> Batch {
        let end = self.batch.close_block();
        self.batch.bytes.truncate(self.batch.committed);
        self.batch.bytes.resize(end, 0);
        let last = &self.batch.blocks.last().expect("the batch has records").header;
        self.end = last.offset + u64::from(last.length);
        std::mem::replace(&mut self.batch, spare)
    }

    /// Reserves the place of a block without records, if the segment has room, and nothing waits to be written.
    pub fn reserve_statement(&mut self) -> Option<(Arc<Segment>, BlockHeader)> {
        if !self.batch.is_empty() || self.end + BLOCK_HEADER_BYTES as u64 > self.limit {
            return None;
        }
        let mut header = BlockHeader::empty(&self.header, self.end, self.next_lsn);
        header.chain = self.chain;
        self.end += BLOCK_HEADER_BYTES as u64;
        Some((self.segment.clone(), header))
    }

    pub fn segment_info(&self) -> SegmentInfo {
        SegmentInfo { number: self.segment.number, start: 0, len: self.segment.len }
    }
}

/// What a record with a payload of `length` takes, wherever it begins.
pub(crate) fn room_for(length: usize) -> u64 {
    align(BLOCK_HEADER_BYTES + RECORD_HEADER_BYTES + length) as u64
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Bytes that wait to be written.
    pub fn len(&self) -> usize {
        self.committed
    }

    /// States the length of the open block, padding included, and returns where it will end in the batch.
    fn close_block(&mut self) -> usize {
        let block = self.blocks.last_mut().expect("a block is open");
        let length = align(self.committed - block.at);
        block.header.length = length as u32;
        block.at + length
    }

    /// Writes the blocks in order, one write(2) each, and adds their segments to `unsynced`.
    pub fn write(&mut self, synced: Lsn, unsynced: &mut Vec<Arc<Segment>>) -> Result<()> {
        for block in &mut self.blocks {
            block.header.synced = synced;
            let bytes = &mut self.bytes[block.at..][..block.header.length as usize];
            bytes[..BLOCK_HEADER_BYTES].copy_from_slice(&block.header.encode());
            if unsynced.last().is_none_or(|last| last.number != block.segment.number) {
                unsynced.push(block.segment.clone());
            }
            block.segment.file.write_at(bytes, block.header.offset).map_err(|error| {
                Error::from(error).context(format!("log segment {}: write", block.segment.number))
            })?;
        }
        Ok(())
    }

    /// Makes it ready to be filled again. Memory that one huge record took is given back.
    pub fn clear(&mut self, bytes_max: usize) {
        self.bytes.clear();
        if self.bytes.capacity() > 2 * bytes_max {
            self.bytes.shrink_to(bytes_max);
        }
        self.committed = 0;
        self.blocks.clear();
    }
}
