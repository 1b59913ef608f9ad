//! Answers that are made before clients ask for them take at most an eighth of the memory, however many scans are open.
#![allow(clippy::unwrap_used)]

mod kudu_client;

use kudu_client::{Subject, rows_of, scan, write};
use oribi_engine::EngineOptions;
use oribi_kudu::messages::tserver::ScanRequest;
use oribi_kudu::row_operations::OperationType;
use oribi_types::Durability;

const MEMORY: u64 = 64 << 20;
const ANSWER_BYTES: u32 = 512 << 10;
const ROWS: i64 = 150_000;
/// Twice as many as an eighth of the memory has room for.
const SCANS: usize = 32;

#[test]
fn scans_that_nobody_goes_on_with_hold_little() {
    let durability = Durability::Periodic(1000);
    let options = EngineOptions { durability, ..EngineOptions::with_memory(MEMORY) };
    let subject = Subject::with_options(options, None);
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    for begin in (0..ROWS).step_by(5_000) {
        let rows: Vec<_> =
            (begin..begin + 5_000).map(|k| (OperationType::Insert, k, Some(1), None)).collect();
        let answer = client.write(&write(&tablets[0], &rows));
        assert_eq!((answer.error, answer.per_row_errors), (None, vec![]));
    }
    let before = subject.engine.stats().query_bytes;
    let (mut open, mut given) = (Vec::new(), Vec::new());
    for _ in 0..SCANS {
        let first = ScanRequest {
            new_scan_request: Some(scan(&tablets[0])),
            batch_size_bytes: Some(ANSWER_BYTES),
            ..ScanRequest::default()
        };
        let (answer, sidecars) = client.scan(&first);
        let next = ScanRequest {
            scanner_id: answer.scanner_id.clone(),
            call_seq_id: Some(1),
            batch_size_bytes: Some(ANSWER_BYTES),
            ..ScanRequest::default()
        };
        // The third answer is made ahead.
        let (second, second_sidecars) = client.scan(&next);
        assert!(second.has_more_results(), "{answer:?} {second:?}");
        given.push(rows_of(&answer, &sidecars).len() + rows_of(&second, &second_sidecars).len());
        open.push(next);
    }
    let ahead = subject.engine.stats().query_bytes - before;
    // And as much is for what scans have read and not returned.
    assert!(ahead > 0 && ahead <= 2 * (MEMORY / 8), "{ahead} bytes");
    // Those that had no room go on as well.
    for (next, given) in open.iter().zip(given) {
        let mut rows = given;
        for call_seq_id in 2.. {
            let (answer, sidecars) =
                client.scan(&ScanRequest { call_seq_id: Some(call_seq_id), ..next.clone() });
            rows += rows_of(&answer, &sidecars).len();
            if !answer.has_more_results() {
                break;
            }
        }
        assert_eq!(rows, ROWS as usize);
    }
    assert_eq!(subject.engine.stats().query_bytes, before);
}
