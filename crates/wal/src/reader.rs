//! Reads the blocks of one segment from its bytes.
//!
//! A block is taken whole or not at all: every record in it must check, carry on the LSNs and name the checksum of the
//! record before. Whether bytes that do not are a torn tail or damage is decided by [`recovery`](crate::recovery),
//! which sees the whole log.

use crate::format::{
    BLOCK_ALIGN, BLOCK_HEADER_BYTES, BLOCK_MAGIC, BlockHeader, RECORD_HEADER_BYTES, RecordHeader,
    SEGMENT_HEADER_BYTES, SegmentHeader, record_checksum,
};
use crate::{Lsn, Record};
use oribi_types::Result;

/// Up to where a log has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The LSN that comes next.
    pub next: Lsn,
    /// Checksum of the last record.
    pub chain: u32,
    pub term: u64,
}

/// Where reading a segment ended: at its end, at unused space or at damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub offset: usize,
    pub why: &'static str,
}

/// Reads the blocks of a segment whose header is `segment`, from `position` on, and shows `visit` every record.
///
/// # Errors
/// Those of `visit`. Bytes that are no block of this log end the reading, which is no error here.
pub fn read_blocks(
    bytes: &[u8],
    segment: &SegmentHeader,
    position: &mut Position,
    visit: &mut dyn FnMut(Record<'_>) -> Result<()>,
) -> Result<Stop> {
    let mut offset = SEGMENT_HEADER_BYTES;
    loop {
        match check_block(bytes, offset, segment, *position) {
            Err(why) => return Ok(Stop { offset, why }),
            Ok((block, after)) => {
                for (header, payload, _) in
                    records(&bytes[offset..offset + block.length as usize], block.count)
                {
                    let RecordHeader { lsn, group, term, sequence, .. } = header;
                    visit(Record { lsn, group, term, sequence, payload })?;
                }
                *position = after;
                offset += block.length as usize;
            }
        }
    }
}

/// The block at `offset`, all of it checked, and the position after it.
fn check_block(
    bytes: &[u8],
    offset: usize,
    segment: &SegmentHeader,
    position: Position,
) -> Result<(BlockHeader, Position), &'static str> {
    let block = BlockHeader::decode(bytes, offset, segment)?;
    let body =
        bytes.get(offset..offset + block.length as usize).ok_or("a block is longer than its segment")?;
    if block.chain != position.chain {
        return Err("a block that does not follow the record before it");
    }
    if block.term > position.term {
        // The first block of a recovery: it has no records and may move the LSN forward.
        let opens = offset == SEGMENT_HEADER_BYTES
            && block.count == 0
            && block.synced.checked_add(1) == Some(position.next);
        if !opens || block.first_lsn < position.next {
            return Err("a term that does not follow the one before it");
        }
        return Ok((block, Position { next: block.first_lsn, chain: block.chain, term: block.term }));
    }
    if (block.first_lsn, block.term) != (position.next, position.term) {
        return Err("a block out of order");
    }
    check_records(body, &block, position).map(|after| (block, after))
}

fn check_records(body: &[u8], block: &BlockHeader, mut position: Position) -> Result<Position, &'static str> {
    let mut at = BLOCK_HEADER_BYTES;
    for _ in 0..block.count {
        let (header, payload, checksum) = RecordHeader::decode(&body[at..])?;
        let end = at + RECORD_HEADER_BYTES + payload.len();
        if record_checksum(&body[at..end]) != checksum {
            return Err("checksum mismatch");
        }
        let expected = (block.log_id, position.term, position.next, position.chain);
        if (header.log_id, header.term, header.lsn, header.previous) != expected {
            return Err("a record out of order");
        }
        at = end;
        position.next = position.next.checked_add(1).ok_or("the highest lsn")?;
        position.chain = checksum;
    }
    let padding = &body[at..];
    if padding.len() >= BLOCK_ALIGN || padding.iter().any(|&byte| byte != 0) {
        return Err("a block with bytes behind its records");
    }
    Ok(position)
}

/// The records of a checked block.
fn records(body: &[u8], count: u32) -> impl Iterator<Item = (RecordHeader, &[u8], u32)> {
    let mut rest = &body[BLOCK_HEADER_BYTES..];
    (0..count).map_while(move |_| {
        let record = RecordHeader::decode(rest).ok()?;
        rest = &rest[RECORD_HEADER_BYTES + record.1.len()..];
        Some(record)
    })
}

/// The position before the first block of a segment, as that block states it.
pub fn start(bytes: &[u8], segment: &SegmentHeader) -> Result<Position, &'static str> {
    let block = BlockHeader::decode(bytes, SEGMENT_HEADER_BYTES, segment)?;
    let term = segment.term;
    // An opening block stands behind everything that was durable, wherever it moves the LSN to.
    Ok(if block.count == 0 && block.synced < block.first_lsn {
        let term = term.checked_sub(1).ok_or("term zero")?;
        Position { next: block.synced + 1, chain: block.chain, term }
    } else {
        Position { next: block.first_lsn, chain: block.chain, term }
    })
}

/// The highest LSN that any block header at or behind `from` states as durable, 0 if there is none.
pub fn highest_synced(bytes: &[u8], segment: &SegmentHeader, from: usize) -> Lsn {
    (from.next_multiple_of(BLOCK_ALIGN)..bytes.len())
        .step_by(BLOCK_ALIGN)
        // Most of a segment is unused, and a look at a place's first bytes tells.
        .filter(|&offset| bytes[offset..].starts_with(&BLOCK_MAGIC))
        .filter_map(|offset| BlockHeader::decode(bytes, offset, segment).ok())
        .map(|block| block.synced)
        .max()
        .unwrap_or(0)
}

/// Reads one segment by itself: what a fuzzer calls with any bytes. Returns the number of records.
///
/// # Errors
/// `Corrupt` if the header or the first block is no such thing.
pub fn read_segment(bytes: &[u8], visit: &mut dyn FnMut(Record<'_>)) -> Result<u64> {
    let named = |why| oribi_types::Error::corrupt(format!("log segment: {why}"));
    let segment = SegmentHeader::decode(bytes).map_err(named)?;
    let mut position = start(bytes, &segment).map_err(named)?;
    let mut count = 0;
    let stop = read_blocks(bytes, &segment, &mut position, &mut |record| {
        count += 1;
        visit(record);
        Ok(())
    })?;
    highest_synced(bytes, &segment, stop.offset);
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::align;

    const SEGMENT: SegmentHeader = SegmentHeader { log_id: 7, number: 3, term: 2 };
    const POSITION: Position = Position { next: 10, chain: 99, term: 2 };

    /// A segment with one block of two records, changed by `change` before it is sealed.
    fn segment(change: impl Fn(&mut BlockHeader, &mut [RecordHeader; 2])) -> Vec<u8> {
        let record =
            RecordHeader { log_id: 7, term: 2, lsn: 10, sequence: 1, group: 5, length: 3, previous: 99 };
        let mut records = [record, RecordHeader { lsn: 11, sequence: 2, ..record }];
        let mut block = BlockHeader::empty(&SEGMENT, SEGMENT_HEADER_BYTES as u64, 10);
        (block.count, block.chain) = (2, 99);
        let size = RECORD_HEADER_BYTES + 3;
        block.length = align(BLOCK_HEADER_BYTES + 2 * size) as u32;
        // The second record follows the first as that is without any change.
        records[1].previous = record.seal(&mut [b"\0".repeat(RECORD_HEADER_BYTES), b"one".to_vec()].concat());
        change(&mut block, &mut records);
        let mut bytes = SEGMENT.encode().to_vec();
        bytes.extend_from_slice(&block.encode());
        for (header, payload) in records.iter().zip([b"one", b"two"]) {
            let mut record = vec![0; RECORD_HEADER_BYTES];
            record.extend_from_slice(payload);
            header.seal(&mut record);
            bytes.extend_from_slice(&record);
        }
        bytes.resize(1024, 0);
        bytes
    }

    fn read(bytes: &[u8]) -> (usize, Position) {
        let (mut count, mut position) = (0, POSITION);
        let segment = SegmentHeader::decode(bytes).unwrap();
        read_blocks(bytes, &segment, &mut position, &mut |_| {
            count += 1;
            Ok(())
        })
        .unwrap();
        (count, position)
    }

    #[test]
    fn a_block_that_does_not_carry_on_is_not_read_in_part() {
        let (count, position) = read(&segment(|_, _| {}));
        assert_eq!((count, position.next, position.term), (2, 12, 2));
        type Change = fn(&mut BlockHeader, &mut [RecordHeader; 2]);
        let changes: [Change; 14] = [
            |block, _| block.log_id = 8,
            |block, _| block.segment = 4,
            |block, _| block.offset = 128,
            |block, _| block.term = 1,
            |block, _| block.first_lsn = 9,
            |block, _| block.chain = 98,
            |block, _| block.length += 64,
            |block, _| block.length = 1 << 20,
            |block, _| block.count = 1,
            |block, _| block.count = 3,
            |_, records| records[1].log_id = 8,
            |_, records| records[1].term = 1,
            |_, records| records[1].lsn = 12,
            |_, records| records[1].previous = 1,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            assert_eq!(read(&segment(change)), (0, POSITION), "change {index}");
        }
    }

    #[test]
    fn a_huge_length_allocates_nothing_and_reads_nothing() {
        let bytes = segment(|_, records| records[0].length = u32::MAX);
        assert_eq!(read(&bytes), (0, POSITION));
        assert_eq!(read_segment(&bytes, &mut |_| {}).unwrap(), 0);
    }

    #[test]
    fn a_block_of_another_term_is_only_an_opening_block() {
        let mut position = Position { term: 1, ..POSITION };
        let stop = read_blocks(&segment(|_, _| {}), &SEGMENT, &mut position, &mut |_| Ok(())).unwrap();
        assert_eq!((stop.offset, position.next), (SEGMENT_HEADER_BYTES, 10));
    }
}
