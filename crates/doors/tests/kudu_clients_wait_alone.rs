//! Writes through the Kudu door whose rows others have wait without a thread: all else is served, of the same client too.
#![allow(clippy::unwrap_used)]

mod kudu_client;

use kudu_client::{Client, Subject, scan, write};
use oribi_engine::Table;
use oribi_kudu::messages::tserver::{WriteRequest, WriteResponse};
use oribi_kudu::row_operations::OperationType as Op;
use oribi_kudu::rpc::{ErrorCode, ErrorStatus, RequestHeader};
use oribi_kudu::service::{Method, TabletServerMethod};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Their tablets share no latches: see `crates/engine/src/latches.rs`. There are more writes to them than a serving thread has threads
/// for what takes its time.
const TABLES: i64 = 7;
const WRITES: i64 = 3;

const WRITE: Method = Method::TabletServer(TabletServerMethod::Write);

fn insert(tablet: &bytes::Bytes, k: i64) -> WriteRequest {
    write(tablet, &[(Op::Insert, k, None, None), (Op::Insert, k + 1000, None, None)])
}

/// Begins [`WRITES`] to each of [`TABLES`]; returns their ids.
fn begin(client: &mut Client, names: &[String]) -> BTreeSet<i32> {
    let tablets: Vec<_> = names.iter().map(|name| client.tablets(name).remove(0)).collect();
    let all = (0..WRITES).flat_map(|k| tablets.iter().map(move |tablet| insert(tablet, k)));
    all.map(|request| client.begin(WRITE, &request, &[])).collect()
}

#[test]
fn others_are_served_while_many_writes_wait_for_tables() {
    let subject = Subject::new();
    let engine = &subject.engine;
    let mut client = subject.client();
    let free = client.create("free", 1).remove(0);
    let names: Vec<String> = (0..TABLES).map(|i| format!("held{i}")).collect();
    names.iter().for_each(|name| drop(client.create(name, 1)));
    let tables: Vec<Arc<Table>> = names.iter().map(|name| engine.table("public", name).unwrap()).collect();
    let held: Vec<_> = tables.iter().map(|table| engine.hold(table).unwrap()).collect();
    let begun = begin(&mut client, &names);
    assert!(client.write(&insert(&free, 1)).error.is_none());
    assert_eq!(client.scan_all(scan(&free), 1 << 20).len(), 2);
    drop(held);
    let answered: BTreeSet<i32> = begun
        .iter()
        .map(|_| {
            let (header, body) = client.answer();
            let response: WriteResponse = body.decode(1000).unwrap();
            assert!(!header.is_error() && response.error.is_none() && response.per_row_errors.is_empty());
            header.call_id
        })
        .collect();
    assert_eq!(answered, begun);
    for name in &names {
        let tablet = client.tablets(name).remove(0);
        assert_eq!(client.scan_all(scan(&tablet), 1 << 20).len() as i64, 2 * WRITES);
    }
}

#[test]
fn a_write_waits_in_line_until_its_client_does_not_wait_any_more() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablet = client.create("t", 1).remove(0);
    let table = subject.engine.table("public", "t").unwrap();
    let held = subject.engine.hold(&table).unwrap();
    let first = client.begin(WRITE, &insert(&tablet, 1), &[]);
    let impatient = RequestHeader { timeout_millis: Some(1), ..RequestHeader::default() };
    let behind = client.begin_with(impatient, WRITE, &insert(&tablet, 2));
    let (header, body) = client.answer();
    let status: ErrorStatus = body.decode(1000).unwrap();
    assert_eq!((header.call_id, status.code), (behind, Some(ErrorCode::ServerTooBusy as i32)));
    drop(held);
    assert_eq!(client.answer().0.call_id, first);
    assert_eq!(client.scan_all(scan(&tablet), 1 << 20).len(), 2);
}
