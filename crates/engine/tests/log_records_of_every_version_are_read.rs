//! A stored payload of each version of the log record, as it was written then. Never regenerate one: add the next
//! version's.
#![allow(clippy::unwrap_used)]

use oribi_engine::Request;
use oribi_engine::record::{Change, Contents, Tracked, read};
use oribi_types::{ErrorKind, Timestamp};

/// A put and a delete.
const RECORD_1: &[u8] = include_bytes!("fixtures/log-record-1");
/// The same, of a request with a result.
const RECORD_2: &[u8] = include_bytes!("fixtures/log-record-2");

const CHANGES: [Change<'static>; 2] = [
    Change { tablet: 3, key: b"key", row: Some(b"the row") },
    Change { tablet: 1 << 40, key: b"gone", row: None },
];

#[test]
fn records_of_every_version_are_read() {
    let request = Request { client: b"3f1d8b0c9e5a", sequence: 41, first_incomplete: -7 };
    for (record, tracked) in [(RECORD_1, None), (RECORD_2, Some(Tracked { request, result: b"row 2: gone" }))]
    {
        let contents = read(record).unwrap();
        assert_eq!(contents.ts, Timestamp::from_micros(1_700_000_000_000_000).next());
        assert_eq!(contents.tracked, tracked);
        assert_eq!(contents.changes.collect::<Result<Vec<_>, _>>().unwrap(), CHANGES);
    }
}

#[test]
fn records_that_end_early_or_lie_are_corrupt() {
    for record in [RECORD_1, RECORD_2] {
        let first_change = record.len() - (17 + 3 + 7) - (17 + 4);
        for end in 0..record.len() {
            let cut =
                read(&record[..end]).and_then(|contents| contents.changes.collect::<Result<Vec<_>, _>>());
            let whole = end == first_change || end == record.len() - (17 + 4);
            assert_eq!(cut.is_ok(), whole, "cut at {end}");
            assert!(cut.is_ok_and(|changes| changes.len() < 2) || !whole);
        }
        for version in (0..=255).filter(|version| !(1..=2).contains(version)) {
            let mut other = record.to_vec();
            other[0] = version;
            assert_eq!(read(&other).err().unwrap().kind(), ErrorKind::Corrupt);
        }
    }
    // No client id has 0 or 65 bytes.
    for client_bytes in [0, 65] {
        let Contents { ts, .. } = read(RECORD_2).unwrap();
        let mut record = vec![2];
        record.extend_from_slice(&ts.0.to_le_bytes());
        record.push(client_bytes);
        record.resize(record.len() + usize::from(client_bytes) + 20, 0);
        assert!(read(&record).is_err());
        record[9] = 64;
        record.resize(9 + 1 + 64 + 20, 0);
        assert_eq!(read(&record).unwrap().tracked.unwrap().request.client.len(), 64);
    }
}
