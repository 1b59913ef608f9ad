//! The Kudu door and clients that are wrong, in raw bytes: each is told, or cut off, and nobody else notices.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "a client of a test runs on a thread of its own")]

mod kudu_client;

use bytes::Bytes;
use kudu_client::{Client, Subject, rows_of, scan, write};
use oribi_engine::EngineOptions;
use oribi_kudu::frame::FRAME_BYTES_MAX;
use oribi_kudu::messages::common::RowOperations;
use oribi_kudu::messages::master::{
    ConnectToMasterRequest, ConnectToMasterResponse, CreateTableResponse, MasterFeature, PingRequest,
    PingResponse,
};
use oribi_kudu::messages::tserver::{
    ChecksumRequest, ChecksumResponse, ContinueChecksumRequest, NewScanRequest, ScanRequest,
    TabletServerErrorCode as Code, WriteRequest,
};
use oribi_kudu::row_operations::OperationType;
use oribi_kudu::rpc::ErrorCode;
use oribi_kudu::service::{MasterMethod, Method, TabletServerMethod};
use std::io::ErrorKind;
use std::time::Instant;

const PING: Method = Method::Master(MasterMethod::Ping);

fn lives(subject: &Subject) {
    let mut client = subject.client();
    client.try_call::<PingResponse>(PING, &PingRequest {}, &[]).unwrap();
}

/// Whether a connection that sends this, after a negotiation or in place of it, is closed without an answer.
fn is_cut_off(mut client: Client, bytes: &[u8]) -> bool {
    client.send(bytes);
    client.frame().is_none()
}

#[test]
fn what_is_no_frame_ends_the_connection() {
    let subject = Subject::new();
    let hellos: [&[u8]; 3] = [b"GET / HTTP/1.1\r\n\r\n", b"hrpc\x08\0\0", b"hrpx\x09\0\0"];
    for hello in hellos {
        assert!(is_cut_off(Client::raw(subject.tserver_addr()), hello), "{hello:?}");
    }
    // A negotiation takes short frames only.
    assert!(is_cut_off(Client::raw(subject.tserver_addr()), b"hrpc\x09\0\0\x00\x10\x00\x00"));
    let frames: [&[u8]; 7] = [
        // Longer than frames may be.
        b"\x03\x20\x00\x01",
        b"\xff\xff\xff\xff",
        // Ends within the header, within the body; has bytes left; an overflowing length.
        b"\0\0\0\x02\x05\x18",
        b"\0\0\0\x04\x02\x18\0\x05",
        b"\0\0\0\x05\x02\x18\0\0\x00",
        b"\0\0\0\x06\xff\xff\xff\xff\xff\xff",
        // A header that does not decode.
        b"\0\0\0\x03\x01\xff\0",
    ];
    for frame in frames {
        assert!(is_cut_off(subject.client(), frame), "{frame:?}");
    }
    // Sidecars that begin outside of the body, or before the one in front.
    let header = b"\x18\x00\x32\x06\x0a\x01s\x12\x01m";
    for offsets in [&b"\x80\x01\x09"[..], b"\x80\x01\x02\x80\x01\x01"] {
        let header = [&header[..], offsets].concat();
        let len = [&((header.len() + 5) as u32).to_be_bytes()[..], &[header.len() as u8]].concat();
        assert!(is_cut_off(subject.client(), &[&len[..], &header, b"\x03abc"].concat()), "{offsets:?}");
    }
    lives(&subject);
}

#[test]
fn a_frame_comes_in_pieces() {
    let subject = Subject::new();
    let mut client = subject.client();
    // A ping of a service that nobody has.
    let frame = b"\0\0\0\x0c\x0a\x18\x05\x32\x06\x0a\x01s\x12\x01m\0";
    for byte in frame {
        client.send(&[*byte]);
    }
    let (header, body) = client.answer();
    assert_eq!((header.call_id, header.is_error()), (5, true));
    let status: oribi_kudu::rpc::ErrorStatus = body.decode(100).unwrap();
    assert_eq!(status.code(), ErrorCode::NoSuchService);
}

#[test]
fn what_is_not_known_is_named_and_the_connection_goes_on() {
    let subject = Subject::new();
    let mut client = subject.client();
    let mut refused = |method: Method, name: Option<&'static str>, flags: &[u32]| {
        let mut remote = method.remote();
        if let Some(name) = name {
            remote.method_name = Bytes::from_static(name.as_bytes());
        }
        let header = oribi_kudu::rpc::RequestHeader {
            call_id: 9,
            remote_method: Some(remote),
            required_feature_flags: flags.to_vec(),
            ..Default::default()
        };
        let mut out = bytes::BytesMut::new();
        oribi_kudu::frame::encode_request(&header, &PingRequest {}, 0, &mut out).unwrap();
        client.send(&out);
        let (header, body) = client.answer();
        assert!(header.is_error());
        body.decode::<oribi_kudu::rpc::ErrorStatus>(100).unwrap()
    };
    let status = refused(PING, Some("Pong"), &[]);
    assert_eq!(status.code(), ErrorCode::NoSuchMethod);
    assert!(status.message.contains("Pong"), "{}", status.message);
    let known = MasterFeature::ConnectToMaster as u32;
    let status = refused(PING, None, &[known, 77, MasterFeature::Array1dColumnType as u32]);
    assert_eq!(status.code(), ErrorCode::InvalidRequest);
    assert_eq!(status.unsupported_feature_flags, [77, MasterFeature::Array1dColumnType as u32]);
    let request = ConnectToMasterRequest {};
    let connect = Method::Master(MasterMethod::ConnectToMaster);
    let (answer, _) = client.try_call::<ConnectToMasterResponse>(connect, &request, &[known]).unwrap();
    assert_eq!(answer.master_addrs[0].port, u32::from(subject.master_addr().port()));
}

#[test]
fn a_message_that_does_not_decode_is_an_invalid_request() {
    let subject = Subject::new();
    let mut client = subject.client();
    for message in [&b"\x0a\x05ab"[..], b"\xff\xff", b"\x0a\xff\xff\xff\xff\x0f"] {
        let header = oribi_kudu::rpc::RequestHeader {
            call_id: 1,
            remote_method: Some(Method::TabletServer(TabletServerMethod::Write).remote()),
            ..Default::default()
        };
        let mut out = bytes::BytesMut::new();
        oribi_kudu::frame::encode_head(&header, &PingRequest {}, message.len(), &mut out).unwrap();
        client.send(&[&out[..], message].concat());
        let (header, body) = client.answer();
        assert!(header.is_error());
        let status: oribi_kudu::rpc::ErrorStatus = body.decode(100).unwrap();
        assert_eq!(status.code(), ErrorCode::InvalidRequest);
    }
}

#[test]
fn rows_that_are_damaged_change_nothing() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    let whole = write(&tablets[0], &[(OperationType::Insert, 1, Some(2), Some("three"))]);
    let operations = whole.row_operations.clone().unwrap();
    let rows = operations.rows.unwrap();
    let refused = |client: &mut Client, rows: &[u8], indirect: &'static [u8]| {
        let operations = RowOperations {
            rows: Some(Bytes::copy_from_slice(rows)),
            indirect_data: Some(Bytes::from_static(indirect)),
        };
        let answer = client.write(&WriteRequest { row_operations: Some(operations), ..whole.clone() });
        answer.error.expect("an error").status.message.unwrap()
    };
    // Every truncation; a string that points outside; an operation that is none; one that is a bound.
    for len in 1..rows.len() {
        refused(&mut client, &rows[..len], b"three");
    }
    assert!(refused(&mut client, &rows, b"thre").contains("\"s\""));
    let mut far = rows.to_vec();
    let at = far.len() - 16;
    far[at..at + 8].fill(0xff);
    assert!(refused(&mut client, &far, b"three").contains("\"s\""));
    for operation in [0, 4, 6, 14, 255] {
        let mut other = rows.to_vec();
        other[0] = operation;
        refused(&mut client, &other, b"three");
    }
    // The first row of two is whole, and still not written.
    let cut = [&rows[..], &rows[..5]].concat();
    refused(&mut client, &cut, b"three");
    assert_eq!(client.scan_all(scan(&tablets[0]), 1000), []);
    assert_eq!(client.write(&whole).per_row_errors, []);
}

#[test]
fn values_that_lie_over_each_other_count_as_often_as_they_would_be_written() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    let whole = write(&tablets[0], &[(OperationType::Insert, 1, Some(2), Some("three"))]);
    let mut row = whole.row_operations.clone().unwrap().rows.unwrap().to_vec();
    let text = vec![b'x'; 1 << 20];
    let at = row.len() - 16;
    row[at..at + 8].fill(0);
    row[at + 8..].copy_from_slice(&(text.len() as u64).to_le_bytes());
    let count = EngineOptions::default().statement_bytes_max / text.len() + 1;
    let operations = RowOperations { rows: Some(row.repeat(count).into()), indirect_data: Some(text.into()) };
    let answer = client.write(&WriteRequest { row_operations: Some(operations), ..whole.clone() });
    let message = answer.error.expect("an error").status.message.unwrap();
    assert!(message.contains("take more than"), "{message}");
    assert_eq!(client.write(&whole).per_row_errors, []);
}

#[test]
fn columns_that_are_not_the_tables_are_refused() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    let whole = write(&tablets[0], &[(OperationType::Insert, 1, Some(2), None)]);
    let mut error_of = |tablet: &Bytes, change: &dyn Fn(&mut oribi_kudu::messages::common::Schema)| {
        let mut schema = kudu_client::schema();
        change(&mut schema);
        let schema = prost::Message::encode_to_vec(&schema);
        let request =
            WriteRequest { schema: Some(schema.into()), tablet_id: tablet.clone(), ..whole.clone() };
        client.write(&request).error.map(|error| Code::try_from(error.code).unwrap())
    };
    let mismatched = Some(Code::MismatchedSchema);
    assert_eq!(error_of(&tablets[0], &|schema| schema.columns[1].name = "other".into()), mismatched);
    assert_eq!(error_of(&tablets[0], &|schema| schema.columns[1].data_type = 6), mismatched);
    assert_eq!(error_of(&tablets[0], &|schema| schema.columns[1].data_type = 4711), mismatched);
    assert_eq!(error_of(&tablets[0], &|schema| schema.columns[1].is_nullable = Some(false)), mismatched);
    assert_eq!(error_of(&tablets[0], &|schema| drop(schema.columns.remove(0))), mismatched);
    assert_eq!(error_of(&tablets[0], &|schema| schema.columns.push(schema.columns[0].clone())), mismatched);
    let nowhere = Bytes::from_static(b"00000000000000000000000000000000");
    assert_eq!(error_of(&nowhere, &|_| {}), Some(Code::TabletNotFound));
    assert_eq!(error_of(&tablets[0], &|_| {}), None);
}

#[test]
fn scans_that_cannot_be_are_refused() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    client.write(&write(
        &tablets[0],
        &[(OperationType::Delete, 1, None, None), (OperationType::Insert, 2, None, None)],
    ));
    client.write(&write(&tablets[0], &[(OperationType::Delete, 2, None, None)]));
    let mut error_of = |request: ScanRequest| {
        let (answer, sidecars) = client.scan(&request);
        assert_eq!(rows_of(&answer, &sidecars), []);
        answer.error.map(|error| Code::try_from(error.code).unwrap())
    };
    let open = |new: NewScanRequest| ScanRequest { new_scan_request: Some(new), ..ScanRequest::default() };
    assert_eq!(error_of(ScanRequest::default()), Some(Code::InvalidScanSpec));
    let none = ScanRequest { scanner_id: Some(Bytes::from_static(b"none")), ..ScanRequest::default() };
    assert_eq!(error_of(none), Some(Code::ScannerExpired));
    let mut other = scan(&tablets[0]);
    other.projected_columns[0].name = "other".into();
    assert_eq!(error_of(open(other)), Some(Code::InvalidScanSpec));
    let changes = NewScanRequest { snap_start_timestamp: Some(1), ..scan(&tablets[0]) };
    assert_eq!(error_of(open(changes)), Some(Code::InvalidScanSpec));
    let old = NewScanRequest { read_mode: Some(2), snap_timestamp: Some(1), ..scan(&tablets[0]) };
    assert_eq!(error_of(open(old)), Some(Code::InvalidSnapshot));
    let future = NewScanRequest { read_mode: Some(2), snap_timestamp: Some(u64::MAX), ..scan(&tablets[0]) };
    assert_eq!(error_of(open(future)), Some(Code::InvalidSnapshot));
    assert_eq!(error_of(open(scan(&tablets[0]))), None);
}

#[test]
fn checksums_that_cannot_be_are_refused() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    let rows: Vec<_> = (0..1000).map(|k| (OperationType::Insert, k, Some(1), None)).collect();
    client.write(&write(&tablets[0], &rows));
    // A scan of which some rows were given.
    let (answer, _) = client.scan(&ScanRequest {
        new_scan_request: Some(scan(&tablets[0])),
        batch_size_bytes: Some(1000),
        ..ScanRequest::default()
    });
    let of_scan = answer.scanner_id.clone().unwrap();
    let mut error_of = |request: ChecksumRequest| {
        let method = Method::TabletServer(TabletServerMethod::Checksum);
        let (answer, _) = client.try_call::<ChecksumResponse>(method, &request, &[]).unwrap();
        assert_eq!(answer.error.is_none(), answer.rows_checksummed.is_some());
        answer.error.map(|error| (Code::try_from(error.code).unwrap(), error.status.message.unwrap()))
    };
    let new = |new| ChecksumRequest { new_request: Some(new), ..ChecksumRequest::default() };
    let going_on = |scanner_id| ChecksumRequest {
        continue_request: Some(ContinueChecksumRequest { scanner_id, previous_checksum: 0 }),
        ..ChecksumRequest::default()
    };
    let neither = error_of(ChecksumRequest::default()).unwrap();
    assert_eq!(neither, (Code::InvalidScanSpec, "a checksum is either new or goes on".to_owned()));
    let both = ChecksumRequest { new_request: Some(scan(&tablets[0])), ..going_on(of_scan.clone()) };
    assert_eq!(error_of(both).unwrap().0, Code::InvalidScanSpec);
    let (code, why) = error_of(going_on(of_scan)).unwrap();
    assert_eq!((code, &why[..]), (Code::InvalidScanSpec, "the scanner is one of a scan, not of a checksum"));
    assert_eq!(error_of(going_on(Bytes::from_static(b"none"))).unwrap().0, Code::ScannerExpired);
    let mut other = scan(&tablets[0]);
    other.projected_columns[0].name = "other".into();
    assert_eq!(error_of(new(other)).unwrap().0, Code::InvalidScanSpec);
    let nowhere = NewScanRequest { tablet_id: Bytes::from_static(b"none"), ..scan(&tablets[0]) };
    assert_eq!(error_of(new(nowhere)).unwrap().0, Code::TabletNotFound);
    assert_eq!(error_of(new(scan(&tablets[0]))), None);
}

#[test]
fn a_thousand_half_open_negotiations_end_and_hold_up_nobody() {
    let subject = Subject::new();
    let begun = Instant::now();
    let mut silent: Vec<Client> = (0..1000).map(|_| Client::raw(subject.tserver_addr())).collect();
    for client in silent.iter_mut().step_by(2) {
        client.send(b"hrpc\x09\0\0\0\0\0");
    }
    // A client works meanwhile.
    let mut client = subject.client();
    let tablets = client.create("t", 2);
    for k in 0..500 {
        let answer =
            client.write(&write(&tablets[k as usize % 2], &[(OperationType::Insert, k, None, None)]));
        assert_eq!((answer.error, answer.per_row_errors), (None, vec![]));
    }
    let rows: usize = tablets.iter().map(|tablet| client.scan_all(scan(tablet), 1000).len()).sum();
    assert_eq!(rows, 500);
    for mut client in silent {
        assert!(client.frame().is_none());
    }
    assert!(begun.elapsed() >= std::time::Duration::from_secs(3), "they had some time");
    lives(&subject);
}

/// A call that is as long as a frame may be: its method has a long name.
fn long_call() -> bytes::BytesMut {
    let mut remote = PING.remote();
    remote.method_name = vec![b'm'; FRAME_BYTES_MAX - 100].into();
    let header = oribi_kudu::rpc::RequestHeader { remote_method: Some(remote), ..Default::default() };
    let mut out = bytes::BytesMut::new();
    oribi_kudu::frame::encode_request(&header, &PingRequest {}, 0, &mut out).unwrap();
    out
}

#[test]
fn frames_that_do_not_come_take_no_room() {
    let subject = Subject::new();
    let long = long_call();
    let announced: Vec<Client> = (0..30)
        .map(|_| {
            let mut client = subject.client();
            client.send(&long[..1000]);
            client
        })
        .collect();
    for _ in 0..2 {
        let mut client = subject.client();
        client.send(&long);
        assert!(client.answer().0.is_error());
    }
    drop(announced);
}

#[test]
fn long_frames_come_one_after_the_other_where_there_is_no_room() {
    let subject = Subject::new();
    let long = long_call();
    // More than the system keeps for a socket that nobody reads.
    let (part, rest) = long.split_at(long.len() - 1);
    // Four have all the room that there is, and the last of these the turn.
    let mut begun: Vec<Client> = (0..5).map(|_| subject.client()).collect();
    begun.iter_mut().for_each(|client| client.send(part));
    let mut last = subject.client();
    last.socket.set_write_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
    let mut sent = 0;
    while sent < part.len() {
        match std::io::Write::write(&mut last.socket, &part[sent..]) {
            Ok(bytes) => sent += bytes,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                break;
            }
        }
    }
    assert!(sent < part.len(), "it waits for its turn");
    lives(&subject);
    // Its turn has come.
    let mut first = begun.pop().unwrap();
    first.send(rest);
    assert!(first.answer().0.is_error());
    last.socket.set_write_timeout(None).unwrap();
    last.send(&part[sent..]);
    last.send(rest);
    assert!(last.answer().0.is_error());
    // And so has that of a write of one of those who have not begun.
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    let text = "x".repeat(1 << 20);
    let answer = client.write(&write(&tablets[0], &[(OperationType::Insert, 1, None, Some(&text))]));
    assert_eq!((answer.error, answer.per_row_errors), (None, vec![]));
}

#[test]
fn who_has_the_turn_and_is_silent_loses_it() {
    let subject = Subject::new();
    let long = long_call();
    // Four have all the room that there is, and the last of these the turn.
    let mut begun: Vec<Client> = (0..5).map(|_| subject.client()).collect();
    begun.iter_mut().for_each(|client| client.send(&long[..long.len() - 1]));
    let mut next = subject.client();
    next.send(&long);
    assert!(next.answer().0.is_error());
    assert!(begun.pop().unwrap().frame().is_none());
    // The others are in nobody's way.
    let mut first = begun.swap_remove(0);
    first.send(&long[long.len() - 1..]);
    assert!(first.answer().0.is_error());
}

#[test]
fn an_answer_fits_a_frame_whatever_it_is_about() {
    let subject = Subject::new();
    let mut client = subject.client();
    // Of a method whose name is nearly as long as a frame.
    client.send(&long_call());
    let (header, body) = client.answer();
    assert!(header.is_error());
    assert!(body.message.len() < 2000);
    // Rows that are all refused, with more to say of them than an answer may be long.
    let name = "c".repeat(900);
    let mut table = kudu_client::table("t", 1);
    table.schema.columns[1].name = name.clone();
    table.schema.columns[1].is_nullable = Some(false);
    client.master::<CreateTableResponse>(MasterMethod::CreateTable, &table);
    let tablet = client.tablets("t").remove(0);
    let rows: Vec<_> = (0..100_000).map(|k| (OperationType::Insert, k, None, None)).collect();
    let mut request = write(&tablet, &rows);
    request.schema = Some(prost::Message::encode_to_vec(&table.schema).into());
    let answer = client.write(&request);
    assert_eq!((answer.error, answer.per_row_errors.len()), (None, rows.len()));
    assert!(answer.per_row_errors[0].error.message.as_ref().unwrap().contains(&name));
    assert_eq!(answer.per_row_errors.last().unwrap().error.message, None);
}

#[test]
fn a_write_that_is_cut_short_changes_nothing() {
    let subject = Subject::new();
    let mut client = subject.client();
    let tablets = client.create("t", 1);
    let request = write(&tablets[0], &[(OperationType::Insert, 1, Some(2), Some("three"))]);
    let header = oribi_kudu::rpc::RequestHeader {
        call_id: 1,
        remote_method: Some(Method::TabletServer(TabletServerMethod::Write).remote()),
        ..Default::default()
    };
    let mut out = bytes::BytesMut::new();
    oribi_kudu::frame::encode_request(&header, &request, 0, &mut out).unwrap();
    for len in [1, 4, 5, out.len() / 2, out.len() - 1] {
        let mut cut = subject.client();
        cut.send(&out[..len]);
        cut.socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(cut.frame().is_none(), "{len}");
    }
    assert_eq!(client.scan_all(scan(&tablets[0]), 1000), []);
}

#[test]
fn a_service_that_nobody_has_is_named() {
    let subject = Subject::new();
    let mut client = subject.client();
    let remote = oribi_kudu::rpc::RemoteMethod {
        service_name: Bytes::from_static(b"kudu.master.OtherService"),
        method_name: Bytes::from_static(b"Ping"),
    };
    for (remote_method, code, named) in [
        (Some(remote), ErrorCode::NoSuchService, "kudu.master.OtherService"),
        (None, ErrorCode::InvalidRequest, "names no method"),
    ] {
        let header = oribi_kudu::rpc::RequestHeader { call_id: 1, remote_method, ..Default::default() };
        let mut out = bytes::BytesMut::new();
        oribi_kudu::frame::encode_request(&header, &PingRequest {}, 0, &mut out).unwrap();
        client.send(&out);
        let (header, body) = client.answer();
        let status: oribi_kudu::rpc::ErrorStatus = body.decode(100).unwrap();
        assert_eq!((header.is_error(), status.code()), (true, code));
        assert!(status.message.contains(named), "{}", status.message);
    }
    lives(&subject);
}
