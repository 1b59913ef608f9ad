//! Any bytes as a log segment, and segments whose checksums fit but whose fields lie: the reader ends, with what it
//! found or with an error.
#![no_main]

mod feed;

use feed::Feed;
use libfuzzer_sys::fuzz_target;
use oribi_wal::format::{BlockHeader, RECORD_HEADER_BYTES, RecordHeader, SegmentHeader, align};
use oribi_wal::read_segment;

fuzz_target!(|input: &[u8]| {
    read(input);
    read(&sealed_segment(Feed::new(input)));
});

fn read(bytes: &[u8]) {
    let mut payload_bytes = 0;
    let records = read_segment(bytes, &mut |record| payload_bytes += record.payload.len());
    if let Ok(records) = records {
        assert!(payload_bytes + records as usize * RECORD_HEADER_BYTES <= bytes.len());
    }
}

/// A segment of blocks that follow each other, save for the fields that the feed says otherwise about.
fn sealed_segment(mut feed: Feed<'_>) -> Vec<u8> {
    let segment =
        SegmentHeader { log_id: feed.byte().into(), number: feed.byte().into(), term: feed.byte().into() };
    let mut bytes = segment.encode().to_vec();
    let (mut lsn, mut chain) = (1 + u64::from(feed.byte()), 0);
    while !feed.is_empty() && bytes.len() < 64 * 1024 {
        let offset = bytes.len() as u64;
        let mut block = BlockHeader { chain, ..BlockHeader::empty(&segment, offset, lsn) };
        let mut records = Vec::new();
        for _ in 0..feed.byte() % 4 {
            let start = records.len();
            let payload = feed.bytes();
            records.resize(start + RECORD_HEADER_BYTES, 0);
            records.extend_from_slice(payload);
            let mut record = RecordHeader {
                log_id: segment.log_id,
                term: segment.term,
                lsn,
                sequence: lsn,
                group: feed.byte().into(),
                length: payload.len() as u32,
                previous: chain,
            };
            match feed.byte() {
                0 => record.lsn = feed.number(),
                1 => record.length = feed.number() as u32,
                2 => record.previous = feed.number() as u32,
                3 => record.term = feed.number(),
                _ => {}
            }
            chain = record.seal(&mut records[start..]);
            block.count += 1;
            lsn += 1;
        }
        records.resize(align(records.len()), 0);
        block.length += records.len() as u32;
        match feed.byte() {
            0 => block.length = feed.number() as u32,
            1 => block.count = feed.number() as u32,
            2 => block.first_lsn = feed.number(),
            3 => block.synced = feed.number(),
            4 => block.term = feed.number(),
            5 => block.offset = feed.number(),
            _ => {}
        }
        bytes.extend_from_slice(&block.encode());
        bytes.extend_from_slice(&records);
    }
    bytes
}
