//! The Kudu door as a client uses it, in messages: what its command line does not show.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "a client of a test runs on a thread of its own")]

mod kudu_client;

use bytes::Bytes;
use kudu_client::{Client, Subject, rows_of, scan, write};
use oribi_engine::Alteration;
use oribi_kudu::column::WireColumn;
use oribi_kudu::key::encode_key;
use oribi_kudu::messages::common::{RowOperations, StatusCode};
use oribi_kudu::messages::master::{
    GetTableLocationsRequest, GetTableLocationsResponse, GetTableSchemaRequest, GetTableSchemaResponse,
    PartitionKey, PingRequest, TableIdentifier,
};
use oribi_kudu::messages::tserver::{
    NewScanRequest, OrderMode, ROW_FORMAT_COLUMNAR, ReadMode, ScanRequest, ScannerKeepAliveRequest,
    ScannerKeepAliveResponse, SplitKeyRangeRequest, SplitKeyRangeResponse, TabletServerErrorCode as Code,
    WriteRequest, WriteResponse,
};
use oribi_kudu::predicate::{ColumnPredicate, Test, ValueRange};
use oribi_kudu::row_operations::PartialRow;
use oribi_kudu::row_operations::{OperationLayout, OperationType as Op, OperationsBuilder};
use oribi_kudu::rpc::{ErrorCode, ErrorStatus, RequestId};
use oribi_kudu::service::{MasterMethod, Method, TabletServerMethod};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, Partitioning, TableDefinition, TableOptions, Value, ValueRef};
use prost::Message;
use std::collections::HashSet;
use std::sync::Arc;

/// Rows (k, n) for k of a range, n = 2 k.
fn load(client: &mut Client, tablets: &[Bytes], keys: std::ops::Range<i64>) {
    let rows: Vec<_> = keys.map(|k| (Op::Insert, k, Some(2 * k as i32), Some("s"))).collect();
    // Where a row belongs is the server's business too, so that any tablet takes it.
    for (chunk, tablet) in rows.chunks(300).zip(tablets.iter().cycle()) {
        assert_eq!(client.write(&write(tablet, chunk)).per_row_errors, []);
    }
}

fn expected(keys: std::ops::Range<i64>) -> Vec<(i64, Option<i32>)> {
    keys.map(|k| (k, Some(2 * k as i32))).collect()
}

fn sorted(mut rows: Vec<(i64, Option<i32>)>) -> Vec<(i64, Option<i32>)> {
    rows.sort_unstable();
    rows
}

fn errors(answer: &WriteResponse) -> Vec<(i32, StatusCode)> {
    let code =
        |row: &oribi_kudu::messages::tserver::PerRowError| StatusCode::try_from(row.error.code).unwrap();
    answer.per_row_errors.iter().map(|row| (row.row_index, code(row))).collect()
}

#[test]
fn each_operation_does_what_it_says() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    let t = &tablets[0];
    let answer = client.write(&write(
        t,
        &[
            (Op::Insert, 1, Some(10), Some("a")),
            (Op::Insert, 1, Some(11), None),
            (Op::InsertIgnore, 1, Some(12), None),
            (Op::Upsert, 1, None, Some("b")),
            (Op::Update, 2, Some(20), None),
            (Op::UpdateIgnore, 2, Some(20), None),
            (Op::Upsert, 3, None, None),
            (Op::Insert, 4, Some(40), None),
            (Op::Delete, 4, None, None),
            (Op::Delete, 4, None, None),
            (Op::DeleteIgnore, 4, None, None),
            (Op::Update, 3, None, None),
            (Op::Delete, 3, Some(3), None),
            (Op::UpsertIgnore, 5, Some(50), None),
        ],
    ));
    assert_eq!(answer.error, None);
    let (present, absent) = (StatusCode::AlreadyPresent, StatusCode::NotFound);
    let invalid = StatusCode::InvalidArgument;
    assert_eq!(errors(&answer), [(1, present), (4, absent), (9, absent), (11, invalid), (12, invalid)]);
    let metrics = answer.resource_metrics.unwrap();
    assert_eq!((metrics.successful_inserts, metrics.insert_ignore_errors), (Some(2), Some(1)));
    assert_eq!((metrics.successful_upserts, metrics.successful_deletes), (Some(3), Some(1)));
    assert_eq!((metrics.update_ignore_errors, metrics.delete_ignore_errors), (Some(1), Some(1)));
    let rows = sorted(client.scan_all(scan(t), 1000));
    assert_eq!(rows, [(1, Some(10)), (3, None), (5, Some(50))]);
    let later = client.write(&write(t, &[(Op::Update, 1, Some(11), None)]));
    assert!(later.timestamp > answer.timestamp);
    assert_eq!(sorted(client.scan_all(scan(t), 1000))[0], (1, Some(11)));
}

#[test]
fn a_row_that_cannot_be_is_refused_and_the_others_are_written() {
    let subject = Subject::new();
    let mut client = subject.client();
    let numeric = ColumnType::Decimal { precision: 3, scale: 1 };
    let columns = vec![
        ColumnSpec::new("k", ColumnType::String).not_null(),
        ColumnSpec::new("d", numeric),
        ColumnSpec::new("j", ColumnType::Json),
    ];
    let definition = TableDefinition {
        schema_name: "public".into(),
        name: "t".into(),
        schema: oribi_types::Schema::new(columns, &["k"]).unwrap(),
        partitioning: Partitioning::none(),
        options: TableOptions::new(Durability::Periodic(100)),
    };
    subject.engine.create_table(definition).unwrap();
    let described: GetTableSchemaResponse = client
        .master(MasterMethod::GetTableSchema, &GetTableSchemaRequest { table: kudu_client::named("t") });
    let mut schema = described.schema.unwrap();
    schema.columns.iter_mut().for_each(|column| column.id = None);
    // Columns of the same widths that take what the table's do not.
    let mut builder = OperationsBuilder::new(Arc::new(OperationLayout::new(vec![
        WireColumn::new("k", ColumnType::Binary, true),
        WireColumn::new("d", ColumnType::Decimal { precision: 9, scale: 1 }, true),
        WireColumn::new("j", ColumnType::Binary, true),
    ])));
    let long = [b'x'; 1 << 15];
    let keys: [Option<&[u8]>; 7] =
        [Some(b"a"), Some(b"\xff"), None, Some(b"d"), Some(b"e"), Some(&long), Some(b"g")];
    for (i, key) in keys.into_iter().enumerate() {
        let mut row = builder.begin(Op::Insert);
        row.set(0, key.map_or(ValueRef::Null, ValueRef::Binary)).unwrap();
        row.set(1, ValueRef::Decimal(if i == 3 { 1000 } else { 999 })).unwrap();
        row.set(2, ValueRef::Binary(if i == 4 { b"{" } else { b"{}" })).unwrap();
        row.finish();
    }
    let (rows, indirect) = builder.into_parts();
    let tablet_id = client.tablets("t").remove(0);
    let answer = client.write(&WriteRequest {
        tablet_id,
        schema: Some(schema.encode_to_vec().into()),
        row_operations: Some(RowOperations { rows: Some(rows.into()), indirect_data: Some(indirect.into()) }),
        ..WriteRequest::default()
    });
    assert_eq!(answer.error, None);
    let invalid = StatusCode::InvalidArgument;
    assert_eq!(errors(&answer), [1, 2, 3, 4, 5].map(|i| (i, invalid)));
    assert_eq!(answer.resource_metrics.unwrap().successful_inserts, Some(2));
    assert_eq!(subject.engine.table("public", "t").unwrap().estimated_rows(), 2);
}

#[test]
fn calls_are_answered_whatever_came_before_them() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 4);
    // Many at once, on one connection: writes, scans, look-ups.
    let mut begun = HashSet::new();
    for k in 0..200 {
        let method = Method::TabletServer(TabletServerMethod::Write);
        let request = write(&tablets[0], &[(Op::Insert, k, Some(2 * k as i32), None)]);
        begun.insert(client.begin(method, &request, &[]));
        let method = Method::TabletServer(TabletServerMethod::Scan);
        let request = ScanRequest { new_scan_request: Some(scan(&tablets[1])), ..ScanRequest::default() };
        begun.insert(client.begin(method, &request, &[]));
        begun.insert(client.begin(Method::Master(MasterMethod::Ping), &PingRequest {}, &[]));
    }
    while !begun.is_empty() {
        let (header, _) = client.answer();
        assert!(!header.is_error());
        assert!(begun.remove(&header.call_id), "answered once");
    }
    let rows = tablets.iter().flat_map(|tablet| client.scan_all(scan(tablet), 100));
    assert_eq!(sorted(rows.collect()), expected(0..200));
}

#[test]
fn a_look_up_begins_with_the_tablet_at_or_before_the_key() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 8);
    let look_up = |client: &mut Client, bucket: u32, max: u32| {
        let request = GetTableLocationsRequest {
            table: TableIdentifier { table_id: None, table_name: Some("t".into()) },
            key_start: Some(PartitionKey {
                hash_key: Some(bucket.to_be_bytes().to_vec().into()),
                range_key: Some(Bytes::from_static(b"whatever")),
            }),
            max_returned_locations: Some(max),
            intern_ts_infos_in_response: Some(true),
            ..GetTableLocationsRequest::default()
        };
        let found: GetTableLocationsResponse = client.master(MasterMethod::GetTableLocations, &request);
        assert_eq!(found.ts_infos[0].rpc_addresses[0].port, u32::from(subject.tserver_addr().port()));
        found.tablet_locations.into_iter().map(|tablet| tablet.tablet_id).collect::<Vec<_>>()
    };
    assert_eq!(look_up(&mut client, 3, 2), tablets[3..5]);
    assert_eq!(look_up(&mut client, 7, 10), tablets[7..]);
    assert_eq!(look_up(&mut client, 99, 10), tablets[7..]);
    assert_eq!(look_up(&mut client, 0, 1000), tablets);
}

#[test]
fn a_scan_goes_on_where_it_was_and_only_there() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    load(&mut client, &tablets, 0..3000);
    subject.engine.flush(&subject.engine.table("public", "t").unwrap()).unwrap();
    load(&mut client, &tablets, 3000..5000);
    for batch in [1, 1000, 1 << 20] {
        assert_eq!(sorted(client.scan_all(scan(&tablets[0]), batch)), expected(0..5000));
    }
    let columnar = NewScanRequest { row_format_flags: Some(ROW_FORMAT_COLUMNAR), ..scan(&tablets[0]) };
    assert_eq!(sorted(client.scan_all(columnar, 5000)), expected(0..5000));
    let limited = NewScanRequest { limit: Some(3500), ..scan(&tablets[0]) };
    assert_eq!(client.scan_all(limited, 1000).len(), 3500);

    let open = ScanRequest {
        new_scan_request: Some(scan(&tablets[0])),
        batch_size_bytes: Some(0),
        ..ScanRequest::default()
    };
    let (opened, sidecars) = client.scan(&open);
    assert_eq!(rows_of(&opened, &sidecars), [], "no rows yet");
    let go_on = |call: u32, closes: bool| ScanRequest {
        scanner_id: opened.scanner_id.clone(),
        call_seq_id: Some(call),
        close_scanner: Some(closes),
        batch_size_bytes: Some(if closes { 0 } else { 1000 }),
        ..ScanRequest::default()
    };
    let code = |answer: &oribi_kudu::messages::tserver::ScanResponse| {
        answer.error.as_ref().map(|error| Code::try_from(error.code).unwrap())
    };
    assert_eq!(code(&client.scan(&go_on(2, false)).0), Some(Code::InvalidScanCallSeqId));
    assert_eq!(code(&client.scan(&go_on(1, false)).0), None);
    assert_eq!(code(&client.scan(&go_on(1, false)).0), Some(Code::InvalidScanCallSeqId));
    let alive = ScannerKeepAliveRequest { scanner_id: opened.scanner_id.clone().unwrap() };
    let keep_alive = Method::TabletServer(TabletServerMethod::ScannerKeepAlive);
    let kept = client.try_call::<ScannerKeepAliveResponse>(keep_alive, &alive, &[]).unwrap().0;
    assert_eq!(kept.error, None);
    assert_eq!(code(&client.scan(&go_on(2, true)).0), None);
    assert_eq!(code(&client.scan(&go_on(3, false)).0), Some(Code::ScannerExpired));
    let gone = client.try_call::<ScannerKeepAliveResponse>(keep_alive, &alive, &[]).unwrap().0;
    assert!(gone.error.is_some());
}

#[test]
fn an_ordered_scan_is_resumed_by_another_at_its_snapshot() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    load(&mut client, &tablets, 0..1000);
    subject.engine.flush(&subject.engine.table("public", "t").unwrap()).unwrap();
    load(&mut client, &tablets, 1000..2000);
    let ordered = NewScanRequest {
        order_mode: Some(OrderMode::Ordered.into()),
        read_mode: Some(ReadMode::ReadAtSnapshot.into()),
        projected_columns: scan(&tablets[0]).projected_columns,
        tablet_id: tablets[0].clone(),
        ..NewScanRequest::default()
    };
    let open = |new: NewScanRequest| ScanRequest {
        new_scan_request: Some(new),
        batch_size_bytes: Some(4000),
        ..ScanRequest::default()
    };
    let (mut answer, mut sidecars) = client.scan(&open(ordered.clone()));
    let snapshot = answer.snap_timestamp.expect("the client is told");
    // What comes now is not seen, whoever goes on.
    client.write(&write(&tablets[0], &[(Op::Upsert, 1500, Some(-1), None), (Op::Delete, 1501, None, None)]));
    let mut rows = rows_of(&answer, &sidecars);
    while answer.has_more_results() {
        let resumed = NewScanRequest {
            snap_timestamp: Some(snapshot),
            last_primary_key: answer.last_primary_key.clone(),
            ..ordered.clone()
        };
        (answer, sidecars) = Client::connect(subject.tserver_addr()).scan(&open(resumed));
        assert_eq!((answer.error.clone(), answer.snap_timestamp), (None, Some(snapshot)));
        rows.extend(rows_of(&answer, &sidecars));
    }
    assert_eq!(rows, expected(0..2000));
    let key = |k: i64| {
        let mut key = Vec::new();
        encode_key(&[ColumnType::Int64], [ValueRef::Int64(k)].into_iter(), &mut key).unwrap();
        Some(Bytes::from(key))
    };
    let between =
        NewScanRequest { start_primary_key: key(1498), stop_primary_key: key(1503), ..scan(&tablets[0]) };
    let now = [(1498, Some(2996)), (1499, Some(2998)), (1500, Some(-1)), (1502, Some(3004))];
    assert_eq!(client.scan_all(between, 1000), now);
}

#[test]
fn a_scan_sees_what_its_client_has_written() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    let written = client.write(&write(&tablets[0], &[(Op::Insert, 1, Some(1), None)]));
    for mode in [ReadMode::ReadYourWrites, ReadMode::ReadAtSnapshot, ReadMode::ReadLatest] {
        let new = NewScanRequest {
            read_mode: Some(mode.into()),
            propagated_timestamp: written.timestamp,
            ..scan(&tablets[0])
        };
        let (answer, sidecars) =
            client.scan(&ScanRequest { new_scan_request: Some(new), ..ScanRequest::default() });
        assert_eq!(rows_of(&answer, &sidecars), [(1, Some(1))]);
        assert_eq!(answer.snap_timestamp.is_some(), mode != ReadMode::ReadLatest);
        assert!(answer.snap_timestamp.is_none_or(|ts| Some(ts) >= written.timestamp));
    }
    // A timestamp that another server gave out: a second ahead, and all writes are later.
    let ahead = written.timestamp.unwrap() + (1_000_000 << 12);
    let new = NewScanRequest {
        read_mode: Some(ReadMode::ReadYourWrites.into()),
        propagated_timestamp: Some(ahead),
        ..scan(&tablets[0])
    };
    let (answer, _) = client.scan(&ScanRequest { new_scan_request: Some(new), ..ScanRequest::default() });
    assert!(answer.snap_timestamp.unwrap() >= ahead);
    let later = client.write(&write(&tablets[0], &[(Op::Insert, 2, Some(2), None)]));
    assert!(later.timestamp.unwrap() > ahead);
}

#[test]
fn predicates_hold_for_all_rows_and_only_those() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    load(&mut client, &tablets, 0..500);
    subject.engine.flush(&subject.engine.table("public", "t").unwrap()).unwrap();
    load(&mut client, &tablets, 500..1000);
    client.write(&write(&tablets[0], &[(Op::Upsert, 2000, None, None)]));
    let columns = [
        WireColumn::new("k", ColumnType::Int64, false),
        WireColumn::new("n", ColumnType::Int32, true),
        WireColumn::new("s", ColumnType::String, true),
    ];
    let mut passing = |column: usize, test: Test| {
        let predicate = ColumnPredicate { column, test }.encode(&columns);
        let new = NewScanRequest { column_predicates: vec![predicate], ..scan(&tablets[0]) };
        sorted(client.scan_all(new, 2000))
    };
    let int = |n| Some(Value::Int32(n));
    let range = Test::Range(ValueRange { lower: int(900), upper: int(1100) });
    assert_eq!(passing(1, range), expected(450..550));
    assert_eq!(passing(1, Test::Equality(Value::Int32(998))), expected(499..500));
    assert_eq!(passing(1, Test::IsNull), [(2000, None)]);
    assert_eq!(passing(1, Test::IsNotNull), expected(0..1000));
    assert_eq!(passing(0, Test::InList(vec![Value::Int64(3), Value::Int64(7000)])), expected(3..4));
    assert_eq!(passing(0, Test::Equality(Value::Int64(499))), expected(499..500));
    let key = |k| Some(Value::Int64(k));
    assert_eq!(passing(0, Test::Range(ValueRange { lower: key(490), upper: key(510) })), expected(490..510));
    assert_eq!(passing(0, Test::Range(ValueRange { lower: None, upper: key(3) })), expected(0..3));
    assert_eq!(passing(2, Test::Equality(Value::String("s".into()))).len(), 1000);
    assert_eq!(passing(2, Test::Nothing), []);
}

/// A range of many rows is not read in order, and has the same rows.
#[test]
fn a_wide_range_of_keys_has_its_rows_from_files_and_memory() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    load(&mut client, &tablets, 0..15_000);
    subject.engine.flush(&subject.engine.table("public", "t").unwrap()).unwrap();
    load(&mut client, &tablets, 15_000..30_000);
    client.write(&write(
        &tablets[0],
        &[
            (Op::Delete, 9, None, None),
            (Op::Delete, 70, None, None),
            (Op::Upsert, 80, Some(160), None),
            (Op::Delete, 16_000, None, None),
            (Op::Delete, 29_990, None, None),
        ],
    ));
    let key = |k: i64| {
        let mut key = Vec::new();
        encode_key(&[ColumnType::Int64], [ValueRef::Int64(k)].into_iter(), &mut key).unwrap();
        Some(Bytes::from(key))
    };
    let is_there = |(k, _): &(i64, Option<i32>)| ![9, 70, 16_000, 29_990].contains(k);
    for keys in [10..29_000, 0..30_000, 14_000..29_995, 60..14_990] {
        let between = NewScanRequest {
            start_primary_key: key(keys.start),
            stop_primary_key: key(keys.end),
            ..scan(&tablets[0])
        };
        let rows = sorted(client.scan_all(between, 100_000));
        let wanted: Vec<_> = expected(keys.clone()).into_iter().filter(is_there).collect();
        assert!(rows == wanted, "{keys:?}: {} rows of {}", rows.len(), wanted.len());
    }
}

/// Sends a write under an id.
fn send(
    client: &mut Client,
    seq_no: i64,
    first_incomplete_seq_no: i64,
    request: &WriteRequest,
) -> Result<WriteResponse, ErrorCode> {
    let client_id = Bytes::from_static(b"0123456789abcdef0123456789abcdef");
    let id = RequestId { client_id, seq_no, first_incomplete_seq_no, attempt_no: 1 };
    client.begin_as(Some(id), Method::TabletServer(TabletServerMethod::Write), request, &[]);
    let (header, body) = client.answer();
    match header.is_error() {
        true => Err(body.decode::<ErrorStatus>(100).unwrap().code()),
        false => Ok(body.decode::<WriteResponse>(1000).unwrap()),
    }
}

#[test]
fn a_request_that_is_sent_again_is_answered_as_before_whatever_became_of_the_table() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    let rows = [(Op::Insert, 1, Some(2), Some("s")), (Op::Insert, 1, None, None)];
    let insert = write(&tablets[0], &rows);
    let first = send(&mut client, 0, 0, &insert).unwrap();
    assert_eq!(errors(&first), [(1, StatusCode::AlreadyPresent)]);
    let (engine, mut other) = (&subject.engine, subject.client());
    engine.alter_table("public", "t", &Alteration::DropColumn("n".into())).unwrap();
    for _ in 0..2 {
        let again = send(&mut other, 0, 0, &insert).unwrap();
        assert_eq!((&again.error, errors(&again), again.timestamp), (&None, errors(&first), first.timestamp));
        let _ = engine.drop_table("public", "t");
    }
    // One that was not applied is refused, and may be sent again.
    for _ in 0..2 {
        let refused = send(&mut other, 1, 0, &insert).unwrap();
        assert_eq!(Code::try_from(refused.error.unwrap().code), Ok(Code::TabletNotFound));
    }
}

#[test]
fn a_request_that_is_sent_again_is_answered_as_before() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    let insert = write(
        &tablets[0],
        &[(Op::Insert, 1, Some(2), None), (Op::Insert, 1, None, None), (Op::Update, 9, Some(1), None)],
    );
    let first = send(&mut client, 0, 0, &insert).unwrap();
    let refused = [(1, StatusCode::AlreadyPresent), (2, StatusCode::NotFound)];
    assert_eq!(errors(&first), refused);
    client.write(&write(&tablets[0], &[(Op::Delete, 1, None, None)]));
    // From another connection, as after one that broke: with the first answer, and nothing is written.
    let mut other = subject.client();
    let again = send(&mut other, 0, 0, &insert).unwrap();
    assert_eq!((errors(&again), again.timestamp), (refused.to_vec(), first.timestamp));
    assert_eq!(client.scan_all(scan(&tablets[0]), 1000), []);
    let next = write(&tablets[0], &[(Op::Insert, 1, Some(3), None)]);
    assert_eq!(errors(&send(&mut other, 1, 1, &next).unwrap()), []);
    assert_eq!(send(&mut client, 0, 0, &insert), Err(ErrorCode::RequestStale));
    assert_eq!(client.scan_all(scan(&tablets[0]), 1000), [(1, Some(3))]);
}

#[test]
fn a_tablet_is_split_for_the_tasks_of_a_scan() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    load(&mut client, &tablets, -5000..0);
    subject.engine.flush(&subject.engine.table("public", "t").unwrap()).unwrap();
    load(&mut client, &tablets, 0..5000);
    let mut split = |target_chunk_size_bytes, columns| {
        let request = SplitKeyRangeRequest {
            tablet_id: tablets[0].clone(),
            target_chunk_size_bytes,
            columns,
            ..SplitKeyRangeRequest::default()
        };
        let method = Method::TabletServer(TabletServerMethod::SplitKeyRange);
        let answer = client.try_call::<SplitKeyRangeResponse>(method, &request, &[]).unwrap().0;
        assert_eq!(answer.error, None);
        answer.ranges
    };
    assert_eq!(split(None, vec![]).len(), 1);
    let whole = split(Some(u64::MAX), vec![]).remove(0);
    assert_eq!((whole.start_primary_key, whole.stop_primary_key), (None, None));
    let ranges = split(Some(whole.size_bytes_estimates / 200), vec![]);
    assert!((50..=201).contains(&ranges.len()), "{}", ranges.len());
    let one_column = scan(&tablets[0]).projected_columns.split_off(1);
    assert!(split(Some(u64::MAX), one_column)[0].size_bytes_estimates < whole.size_bytes_estimates);
    let parts: Vec<_> = ranges
        .iter()
        .map(|range| {
            let start_primary_key = range.start_primary_key.clone();
            assert!(start_primary_key.as_ref().is_none_or(|key| key.len() == 8), "a whole key");
            let stop_primary_key = range.stop_primary_key.clone();
            client.scan_all(
                NewScanRequest { start_primary_key, stop_primary_key, ..scan(&tablets[0]) },
                1 << 20,
            )
        })
        .collect();
    // A byte of a file is more rows than one of memory.
    assert!(parts.iter().all(|part| part.len() < 2000));
    assert_eq!(parts.concat(), expected(-5000..5000));
}

/// An upsert of all columns that there are, overtaken by `ADD COLUMN`, must leave the new column's value alone.
#[test]
fn a_column_that_is_added_keeps_its_values_under_upserts() {
    use oribi_engine::{Alteration, Decision, Read, WriteOp};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    const COLUMNS: usize = 8;
    let subject = Subject::new();
    let tablet = subject.client().create("t", 1).remove(0);
    let (answered, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let engine = &subject.engine;
    let mut key = Vec::new();
    oribi_types::key::encode_component(ValueRef::Int64(0), true, &mut key);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = subject.client();
                let rows: Vec<_> = (0..1000).map(|k| (Op::Upsert, k, Some(1), Some("text"))).collect();
                while ended.load(SeqCst) == 0 {
                    let answer = client.write(&write(&tablet, &rows));
                    assert_eq!((answer.error, answer.per_row_errors), (None, Vec::new()));
                    answered.fetch_add(1, SeqCst);
                }
            });
        }
        for i in 0..COLUMNS {
            let until = answered.load(SeqCst) + 4;
            while answered.load(SeqCst) < until {
                std::thread::yield_now();
            }
            let spec = oribi_types::schema::ColumnSpec::new(format!("c{i}"), ColumnType::Int32);
            engine.alter_table("public", "t", &Alteration::AddColumn(spec)).unwrap();
            let table = engine.table("public", "t").unwrap();
            let op = WriteOp { table: &table, key: &key, read: Read::Existing, row: &[] };
            let written = engine.write(&[op], &mut |_, current, row| {
                let set = [(2 + i as u16, ValueRef::Int32(i as i32))];
                table.schema_ref().replace_slots(current.unwrap().row, &set, row);
                Ok(Decision::Put)
            });
            written.unwrap();
        }
        ended.store(1, SeqCst);
    });
    let table = engine.table("public", "t").unwrap();
    let read = |row: oribi_engine::RowVersion<'_>| {
        let row = oribi_types::RowRef::new(table.schema_ref().layout(), row.row);
        (0..COLUMNS).map(|i| row.get(2 + i).unwrap().to_owned()).collect::<Vec<_>>()
    };
    let found = engine.get(&table, &key, engine.read_view(), read).unwrap().0.unwrap();
    let expected: Vec<Value> = (0..COLUMNS as i32).map(Value::Int32).collect();
    assert_eq!(found, expected);
}
