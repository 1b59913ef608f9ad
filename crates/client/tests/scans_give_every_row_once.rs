//! Scans, in both forms of answers, with faults in between, and in parts.
#![allow(clippy::unwrap_used)]

mod fake_server;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use fake_server::{FakeServer, Fault};
use oribi_client::{
    Client, ClientOptions, Compare, PartialRow, ReadMode, ScanToken, Scanner, SessionOptions, Table,
};
use oribi_types::{ErrorKind, Value};

const ROWS: i64 = 1000;

async fn loaded(buckets: u32) -> (FakeServer, Table) {
    let server = FakeServer::start(buckets, &[]).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    let mut session = client.session(SessionOptions::default());
    for key in 0..ROWS {
        let text = format!("text {key}");
        let mut row = session.insert(&table);
        row.set_i64(0, key).unwrap();
        row.set_i64(1, -key).unwrap();
        if key % 3 != 0 {
            row.set_str(2, &text).unwrap();
        }
        row.apply().await.unwrap();
    }
    session.flush().await.unwrap();
    (server, table)
}

async fn read(mut scanner: Scanner) -> oribi_types::Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    while let Some(batch) = scanner.next_batch().await? {
        batches.push(batch);
    }
    assert!(scanner.next_batch().await.unwrap().is_none());
    Ok(batches)
}

fn keys(batches: &[RecordBatch]) -> Vec<i64> {
    let mut keys: Vec<i64> = Vec::new();
    for batch in batches {
        keys.extend(batch.column_by_name("key").unwrap().as_primitive::<Int64Type>().values());
    }
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn by_rows_and_by_columns() {
    let (server, table) = loaded(4).await;
    for is_columnar in [false, true] {
        let batches = read(table.scan().columnar(is_columnar).scanner()).await.unwrap();
        assert_eq!(keys(&batches), (0..ROWS).collect::<Vec<_>>());
        for batch in &batches {
            let (keys, versions) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1));
            let texts = batch.column(2).as_string::<i32>();
            for (i, key) in keys.values().iter().enumerate() {
                assert_eq!(versions.as_primitive::<Int64Type>().value(i), -key);
                let text = texts.iter().nth(i).unwrap();
                assert_eq!(text.map(str::to_owned), (key % 3 != 0).then(|| format!("text {key}")));
            }
        }
    }
    assert_eq!(server.state().complaints, Vec::<String>::new());
    assert!(server.state().scanners.is_empty());
}

#[tokio::test]
async fn a_projection_without_columns_counts() {
    let (_server, table) = loaded(2).await;
    for is_columnar in [false, true] {
        let batches = read(table.scan().project(&[]).unwrap().columnar(is_columnar).scanner()).await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), ROWS as usize);
    }
}

#[tokio::test]
async fn a_fault_tolerant_scan_goes_on_where_it_was() {
    let (server, table) = loaded(3).await;
    let faults =
        [Fault::None, Fault::DropAfter, Fault::Busy, Fault::None, Fault::HalfAnswer, Fault::NotFound];
    server.state().faults.extend(faults.repeat(3));
    let batches = read(table.scan().fault_tolerant().scanner()).await.unwrap();
    assert_eq!(keys(&batches), (0..ROWS).collect::<Vec<_>>());
    let state = server.state();
    assert_eq!(state.complaints, Vec::<String>::new());
    // All are read at the time that the first answer told.
    assert!(state.scans[1..].iter().all(|scan| scan.snap_timestamp == Some(77 << 12)));
}

#[tokio::test]
async fn another_scan_fails_rather_than_to_repeat_rows() {
    let (server, table) = loaded(1).await;
    server.state().faults.extend([Fault::None, Fault::DropBefore]);
    let mut scanner = table.scan().scanner();
    assert!(scanner.next_batch().await.unwrap().is_some());
    let error = scanner.next_batch().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(scanner.next_batch().await.unwrap().is_none());
}

#[tokio::test]
async fn a_limit_ends_the_scan_at_the_server_too() {
    let (server, table) = loaded(1).await;
    let mut scanner = table.scan().limit(100).scanner();
    assert_eq!(scanner.next_batch().await.unwrap().unwrap().num_rows(), 100);
    assert!(scanner.next_batch().await.unwrap().is_none());
    assert_eq!(server.state().scans.last().unwrap().limit, Some(100));
    while !server.state().scanners.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn tokens_are_the_scan_in_parts() {
    let (server, table) = loaded(4).await;
    let scan = table.scan().project(&["key"]).unwrap().read_mode(ReadMode::YourWrites);
    let scan = scan.filter("version", Compare::LessOrEqual, Value::Int64(0)).unwrap();
    let tokens = scan.tokens().await.unwrap();
    assert_eq!(tokens.len(), 4);
    let other = server.client().await;
    let mut batches = Vec::new();
    for token in tokens {
        let token = ScanToken::deserialize(&other, &token.serialize()).await.unwrap();
        batches.extend(read(token.scanner()).await.unwrap());
    }
    assert_eq!(keys(&batches), (0..ROWS).collect::<Vec<_>>());
    let state = server.state();
    let last = state.scans.last().unwrap();
    assert_eq!(last.column_predicates.len(), 1);
    assert_eq!(last.read_mode(), oribi_kudu::messages::tserver::ReadMode::ReadYourWrites);
    assert!(last.propagated_timestamp.is_some());
}

#[tokio::test]
async fn the_rows_of_one_key_are_looked_for_in_its_bucket_only() {
    let (server, table) = loaded(8).await;
    for key in 0..20 {
        let scan = table.scan().filter("key", Compare::Equal, Value::Int64(key)).unwrap();
        let before = server.state().scans.len();
        assert_eq!(scan.clone().tokens().await.unwrap().len(), 1);
        assert!(keys(&read(scan.scanner()).await.unwrap()).contains(&key));
        assert_eq!(server.state().scans.len(), before + 1);
    }
}

#[tokio::test]
async fn tablets_that_can_have_no_row_are_left_out() {
    let ranges = [(Some(0), Some(10)), (Some(10), Some(20)), (Some(20), None)];
    let server = FakeServer::start(4, &ranges).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    let mut session = client.session(SessionOptions::default());
    for key in 0..100 {
        let mut row = session.insert(&table);
        row.set_i64(0, key).unwrap();
        row.set_i64(1, key).unwrap();
        row.apply().await.unwrap();
    }
    session.flush().await.unwrap();
    let int = Value::Int64;
    let scan = || table.scan();
    let between = scan().filter("key", Compare::GreaterOrEqual, int(10)).unwrap();
    let between = between.filter("key", Compare::LessOrEqual, int(19)).unwrap();
    let cases = [
        (scan(), 12),
        (scan().filter("key", Compare::Less, int(10)).unwrap(), 4),
        (scan().filter("key", Compare::LessOrEqual, int(10)).unwrap(), 8),
        (scan().filter("key", Compare::Greater, int(19)).unwrap(), 4),
        (between, 4),
        (scan().filter("key", Compare::Equal, int(15)).unwrap(), 1),
        (scan().filter_in("key", vec![int(17), int(12)]).unwrap(), 2),
        (scan().filter("key", Compare::Less, int(0)).unwrap(), 0),
        (scan().filter("key", Compare::Greater, int(i64::MAX)).unwrap(), 0),
        (scan().filter_null("key", true).unwrap(), 0),
        (scan().filter("version", Compare::Equal, int(15)).unwrap(), 12),
    ];
    for (i, (scan, tablets)) in cases.into_iter().enumerate() {
        let tokens = scan.tokens().await.unwrap();
        assert!(tokens.len() <= tablets, "case {i}: {} tablets", tokens.len());
        assert!(i == 6 || tokens.len() == tablets, "case {i}: {} tablets", tokens.len());
    }
    let some = scan().filter_in("key", vec![int(17), int(12)]).unwrap();
    let found = keys(&read(some.scanner()).await.unwrap());
    assert!(found.contains(&12) && found.contains(&17));
}

#[tokio::test]
async fn a_scanner_whose_rows_nobody_takes_is_kept_alive() {
    let (server, _) = loaded(1).await;
    let often = std::time::Duration::from_millis(1);
    let options = ClientOptions { scanner_keep_alive: often, ..ClientOptions::default() };
    let client = Client::connect_with(&[&server.address], options).await.unwrap();
    let mut scanner = client.open_table("t").await.unwrap().scan().scanner();
    assert!(scanner.next_batch().await.unwrap().is_some());
    while server.state().keep_alives < 3 {
        tokio::time::sleep(often).await;
    }
    let rest = read(scanner).await.unwrap();
    assert_eq!(rest.iter().map(RecordBatch::num_rows).sum::<usize>(), ROWS as usize - 100);
}

#[tokio::test]
async fn a_scan_finds_the_tablets_that_came_instead_of_those_it_knew() {
    let (server, table) = loaded(3).await;
    server.repartition(&[]);
    assert_eq!(keys(&read(table.scan().scanner()).await.unwrap()), (0..ROWS).collect::<Vec<_>>());
}
