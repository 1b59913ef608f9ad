//! The bytes of a segment: header, blocks, records (`docs/format/wal.md`). No I/O; nothing here trusts what it decodes.
//!
//! ```text
//! segment = segment header, block*, unused         block = block header, record*, zero padding to 64 bytes
//! ```
//! Integers are little-endian. Checksums are CRC-32C. A block header names its own segment and offset, so bytes of a
//! log that were stored as a value are never taken for a block.

use crate::{Lsn, checksum};

/// Blocks start at multiples of this many bytes, so that a reader can look for the next one behind damage.
pub const BLOCK_ALIGN: usize = 64;
pub const SEGMENT_HEADER_BYTES: usize = 64;
pub const BLOCK_HEADER_BYTES: usize = 64;
pub const RECORD_HEADER_BYTES: usize = 48;
/// A record's header up to its checksum.
const RECORD_FIELDS_BYTES: usize = 44;

/// The largest payload of one record.
pub const PAYLOAD_BYTES_MAX: usize = 256 << 20;

/// The largest block: a buffer may be nearly full when the largest record comes.
pub const BUFFER_BYTES_LIMIT: usize = 1 << 30;
const _: () = assert!(BUFFER_BYTES_LIMIT + PAYLOAD_BYTES_MAX + 4096 <= u32::MAX as usize);
const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(BLOCK_ALIGN) && BLOCK_HEADER_BYTES == BLOCK_ALIGN);

/// Why reading a segment stops if nothing is wrong with it.
pub const NO_BLOCK: &str = "no block";
pub const SEGMENT_ENDS: &str = "the segment ends";

const SEGMENT_MAGIC: [u8; 8] = *b"ORIBIWAL";
pub const BLOCK_MAGIC: [u8; 4] = *b"OBLK";
const VERSION: u32 = 1;

/// `len` rounded up to a whole number of [`BLOCK_ALIGN`].
pub fn align(len: usize) -> usize {
    len.next_multiple_of(BLOCK_ALIGN)
}

/// What a segment states about itself; durable before the segment has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub log_id: u64,
    pub number: u64,
    pub term: u64,
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0; SEGMENT_HEADER_BYTES];
        out[..8].copy_from_slice(&SEGMENT_MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.log_id.to_le_bytes());
        out[24..32].copy_from_slice(&self.number.to_le_bytes());
        out[32..40].copy_from_slice(&self.term.to_le_bytes());
        let checksum = crc32c::crc32c(&out[..60]);
        out[60..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// The header of `bytes`, or what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, &'static str> {
        let header = bytes.get(..SEGMENT_HEADER_BYTES).ok_or("shorter than its header")?;
        if header[..8] != SEGMENT_MAGIC {
            return Err("not a log segment");
        }
        if crc32c::crc32c(&header[..60]) != u32_at(header, 60) {
            return Err("header checksum mismatch");
        }
        if u32_at(header, 8) != VERSION {
            return Err("unknown format version");
        }
        Ok(SegmentHeader { log_id: u64_at(header, 16), number: u64_at(header, 24), term: u64_at(header, 32) })
    }
}

/// One write(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Bytes of the block: this header, the records and the padding.
    pub length: u32,
    pub count: u32,
    /// LSN of the first record; of the next one to come if the block has none.
    pub first_lsn: Lsn,
    /// The highest LSN that was known to be durable when the block was written.
    pub synced: Lsn,
    pub log_id: u64,
    pub segment: u64,
    pub term: u64,
    /// Where the block stands in its segment.
    pub offset: u64,
    /// Checksum of the last record before this block, 0 if there never was one.
    pub chain: u32,
}

impl BlockHeader {
    /// A block without records at `offset`, before `next`.
    pub fn empty(segment: &SegmentHeader, offset: u64, next: Lsn) -> BlockHeader {
        BlockHeader {
            length: BLOCK_HEADER_BYTES as u32,
            count: 0,
            first_lsn: next,
            synced: 0,
            log_id: segment.log_id,
            segment: segment.number,
            term: segment.term,
            offset,
            chain: 0,
        }
    }

    pub fn encode(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut out = [0; BLOCK_HEADER_BYTES];
        out[..4].copy_from_slice(&BLOCK_MAGIC);
        out[8..12].copy_from_slice(&self.length.to_le_bytes());
        out[12..16].copy_from_slice(&self.count.to_le_bytes());
        out[16..24].copy_from_slice(&self.first_lsn.to_le_bytes());
        out[24..32].copy_from_slice(&self.synced.to_le_bytes());
        out[32..40].copy_from_slice(&self.log_id.to_le_bytes());
        out[40..48].copy_from_slice(&self.segment.to_le_bytes());
        out[48..56].copy_from_slice(&self.term.to_le_bytes());
        // In units of the alignment, so that it fits; segments are far below the 256 GiB this allows.
        out[56..60].copy_from_slice(&((self.offset / BLOCK_ALIGN as u64) as u32).to_le_bytes());
        out[60..].copy_from_slice(&self.chain.to_le_bytes());
        let checksum = crc32c::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// The header at `offset` of the segment `bytes`, or what is wrong with it.
    pub fn decode(bytes: &[u8], offset: usize, segment: &SegmentHeader) -> Result<BlockHeader, &'static str> {
        let header = bytes.get(offset..offset + BLOCK_HEADER_BYTES).ok_or(SEGMENT_ENDS)?;
        if header[..4] != BLOCK_MAGIC {
            return Err(if header.iter().all(|&byte| byte == 0) { NO_BLOCK } else { "not a block header" });
        }
        if crc32c::crc32c(&header[8..]) != u32_at(header, 4) {
            return Err("block header checksum mismatch");
        }
        let block = BlockHeader {
            length: u32_at(header, 8),
            count: u32_at(header, 12),
            first_lsn: u64_at(header, 16),
            synced: u64_at(header, 24),
            log_id: u64_at(header, 32),
            segment: u64_at(header, 40),
            term: u64_at(header, 48),
            offset: u64::from(u32_at(header, 56)) * BLOCK_ALIGN as u64,
            chain: u32_at(header, 60),
        };
        let here = (segment.log_id, segment.number, segment.term, offset as u64);
        if (block.log_id, block.segment, block.term, block.offset) != here {
            return Err("block of another place");
        }
        if (block.length as usize) < BLOCK_HEADER_BYTES
            || !(block.length as usize).is_multiple_of(BLOCK_ALIGN)
        {
            return Err("impossible block length");
        }
        Ok(block)
    }
}

/// What precedes each payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    pub log_id: u64,
    pub term: u64,
    pub lsn: Lsn,
    /// Number of the record within its group and term, from 1.
    pub sequence: u64,
    pub group: u32,
    /// Bytes of the payload.
    pub length: u32,
    /// Checksum of the record before.
    pub previous: u32,
}

impl RecordHeader {
    /// Fills in the header in front of `record`'s payload and returns the record's checksum.
    pub fn seal(&self, record: &mut [u8]) -> u32 {
        let mut fields = [0; RECORD_FIELDS_BYTES];
        fields[..8].copy_from_slice(&self.log_id.to_le_bytes());
        fields[8..16].copy_from_slice(&self.term.to_le_bytes());
        fields[16..24].copy_from_slice(&self.lsn.to_le_bytes());
        fields[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        fields[32..36].copy_from_slice(&self.group.to_le_bytes());
        fields[36..40].copy_from_slice(&self.length.to_le_bytes());
        fields[40..].copy_from_slice(&self.previous.to_le_bytes());
        let (header, payload) = record.split_at_mut(RECORD_HEADER_BYTES);
        let checksum = checksum::append(checksum::append(0, &fields), payload);
        header[..RECORD_FIELDS_BYTES].copy_from_slice(&fields);
        header[RECORD_FIELDS_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        checksum
    }

    /// The record at the start of `bytes`: header, payload and stated checksum (see [`record_checksum`]); or what is
    /// wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<(RecordHeader, &[u8], u32), &'static str> {
        let fields = bytes.get(..RECORD_HEADER_BYTES).ok_or("a record is longer than its block")?;
        let header = RecordHeader {
            log_id: u64_at(fields, 0),
            term: u64_at(fields, 8),
            lsn: u64_at(fields, 16),
            sequence: u64_at(fields, 24),
            group: u32_at(fields, 32),
            length: u32_at(fields, 36),
            previous: u32_at(fields, 40),
        };
        let end = RECORD_HEADER_BYTES + header.length as usize;
        let payload = bytes.get(RECORD_HEADER_BYTES..end).ok_or("a record is longer than its block")?;
        Ok((header, payload, u32_at(fields, 44)))
    }
}

/// The checksum of a record: of its header up to the checksum itself, and of the payload.
pub fn record_checksum(record: &[u8]) -> u32 {
    let fields = checksum::append(0, &record[..RECORD_FIELDS_BYTES]);
    checksum::append(fields, &record[RECORD_HEADER_BYTES..])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
