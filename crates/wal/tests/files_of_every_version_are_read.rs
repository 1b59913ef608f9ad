//! A stored file of each version of each format, as it was written then. Never regenerate one: add the next version's.
#![allow(clippy::unwrap_used)]

use oribi_wal::{frames::read_frames, read_segment};

/// Two blocks of the first term, an opening and a statement.
const SEGMENT_1: &[u8] = include_bytes!("fixtures/segment-1.log");
const FRAMES_1: &[u8] = include_bytes!("fixtures/frames-1");

#[test]
fn segments_of_version_1_are_read() {
    let mut records = Vec::new();
    let count = read_segment(SEGMENT_1, &mut |record| {
        let payload = String::from_utf8(record.payload.to_vec()).unwrap();
        records.push((record.lsn, record.group, record.term, record.sequence, payload));
    });
    assert_eq!(count.unwrap(), 3);
    let expected = [(1, 0, 1, 1, "first"), (2, 5, 1, 1, ""), (3, 0, 1, 2, "third")];
    assert_eq!(
        records,
        expected.map(|(lsn, group, term, sequence, text)| (lsn, group, term, sequence, text.to_owned()))
    );
}

#[test]
fn frames_of_version_1_are_read() {
    let frames = read_frames(FRAMES_1).unwrap();
    let payloads: Vec<&[u8]> = frames.payloads.iter().map(|at| &FRAMES_1[at.clone()]).collect();
    assert_eq!(payloads, [&b"{\"first\":1}"[..], b"", b"{\"third\":3}"]);
    assert_eq!(frames.end, FRAMES_1.len());
}
