//! A stored payload of each version of the log record, as it was written then. Never regenerate one: add the next
//! version's.
#![allow(clippy::unwrap_used)]

use oribi_engine::Request;
use oribi_engine::record::{BulkCommit, Change, Contents, FilesCommit, Record, Tracked, read};
use oribi_types::{ErrorKind, Timestamp};

/// A put and a delete.
const RECORD_1: &[u8] = include_bytes!("fixtures/log-record-1");
/// The same, of a request with a result.
const RECORD_2: &[u8] = include_bytes!("fixtures/log-record-2");
/// Both as a fragment of a bulk write, …
const RECORD_3: &[u8] = include_bytes!("fixtures/log-record-3");
/// … its commit, with the same request and result, …
const RECORD_4: &[u8] = include_bytes!("fixtures/log-record-4");
/// … and what gives it up.
const RECORD_5: &[u8] = include_bytes!("fixtures/log-record-5");
/// Both with a change of the catalog.
const RECORD_6: &[u8] = include_bytes!("fixtures/log-record-6");
/// Files that count, of the same request.
const RECORD_7: &[u8] = include_bytes!("fixtures/log-record-7");

const CHANGES: [Change<'static>; 2] = [
    Change { tablet: 3, key: b"key", row: Some(b"the row") },
    Change { tablet: 1 << 40, key: b"gone", row: None },
];

const TRACKED: Tracked<'static> = Tracked {
    request: Request { client: b"3f1d8b0c9e5a", sequence: 41, first_incomplete: -7 },
    result: b"row 2: gone",
};

const TS: Timestamp = Timestamp::from_micros(1_700_000_000_000_000).next();
const BULK: u64 = 77;

fn contents(record: &[u8]) -> oribi_types::Result<Contents<'_>> {
    match read(record)? {
        Record::Write(contents) => Ok(contents),
        _ => panic!("it is a write by itself"),
    }
}

#[test]
fn records_of_every_version_are_read() {
    for (record, tracked, catalog) in
        [(RECORD_1, None, None), (RECORD_2, Some(TRACKED), None), (RECORD_6, None, Some(19))]
    {
        let contents = contents(record).unwrap();
        assert_eq!(contents.ts, TS);
        assert_eq!((contents.tracked, contents.catalog), (tracked, catalog));
        assert_eq!(contents.changes.collect::<Result<Vec<_>, _>>().unwrap(), CHANGES);
    }
    let Record::Fragment { bulk, changes } = read(RECORD_3).unwrap() else { panic!("it is a fragment") };
    assert_eq!((bulk, changes.collect::<Result<Vec<_>, _>>().unwrap()), (BULK, CHANGES.to_vec()));
    let Record::Commit(commit) = read(RECORD_4).unwrap() else { panic!("it is a commit") };
    assert_eq!(commit, BulkCommit { ts: TS, bulk: BULK, fragments: 3, tracked: Some(TRACKED) });
    let Record::Files(commit) = read(RECORD_7).unwrap() else { panic!("it is of files") };
    assert_eq!(commit, FilesCommit { ts: TS, number: 19, tracked: Some(TRACKED) });
    // One without a request has nothing behind it.
    let mut plain = RECORD_4[..22].to_vec();
    plain[21] = 0;
    let Record::Commit(commit) = read(&plain).unwrap() else { panic!("it is a commit") };
    assert_eq!(commit, BulkCommit { ts: TS, bulk: BULK, fragments: 3, tracked: None });
    let Record::GivenUp { bulk } = read(RECORD_5).unwrap() else { panic!("it gives a write up") };
    assert_eq!(bulk, BULK);
}

#[test]
fn fragments_and_commits_that_end_early_or_lie_are_corrupt() {
    for end in 0..RECORD_3.len() {
        let cut = read(&RECORD_3[..end]).and_then(|read| match read {
            Record::Fragment { changes, .. } => changes.collect::<Result<Vec<_>, _>>(),
            _ => panic!("it is a fragment"),
        });
        let whole = end == 9 || end == RECORD_3.len() - (17 + 4);
        assert_eq!(cut.is_ok(), whole, "cut at {end}");
    }
    for record in [RECORD_4, RECORD_5, RECORD_7] {
        assert!((0..record.len()).all(|end| read(&record[..end]).is_err()));
        let longer = [record, &[0]].concat();
        assert_eq!(read(&longer).err().unwrap().kind(), ErrorKind::Corrupt);
    }
    for tracked in 2..=255 {
        let mut other = RECORD_4.to_vec();
        other[21] = tracked;
        assert!(read(&other).is_err());
    }
}

#[test]
fn records_that_end_early_or_lie_are_corrupt() {
    for record in [RECORD_1, RECORD_2, RECORD_6] {
        let first_change = record.len() - (17 + 3 + 7) - (17 + 4);
        for end in 0..record.len() {
            let cut =
                contents(&record[..end]).and_then(|contents| contents.changes.collect::<Result<Vec<_>, _>>());
            let whole = end == first_change || end == record.len() - (17 + 4);
            assert_eq!(cut.is_ok(), whole, "cut at {end}");
            assert!(cut.is_ok_and(|changes| changes.len() < 2) || !whole);
        }
        for version in (0..=255).filter(|version| !(1..=7).contains(version)) {
            let mut other = record.to_vec();
            other[0] = version;
            assert_eq!(read(&other).err().unwrap().kind(), ErrorKind::Corrupt);
        }
    }
    // No client id has 0 or 65 bytes.
    for client_bytes in [0, 65] {
        let Contents { ts, .. } = contents(RECORD_2).unwrap();
        let mut record = vec![2];
        record.extend_from_slice(&ts.0.to_le_bytes());
        record.push(client_bytes);
        record.resize(record.len() + usize::from(client_bytes) + 20, 0);
        assert!(read(&record).is_err());
        record[9] = 64;
        record.resize(9 + 1 + 64 + 20, 0);
        assert_eq!(contents(&record).unwrap().tracked.unwrap().request.client.len(), 64);
    }
}
