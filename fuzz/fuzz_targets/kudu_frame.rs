//! Any bytes as frames of Kudu's protocol: parts lie within what was read, and a message that is decoded is decoded again
//! from what it is encoded as.
#![no_main]

mod feed;

use bytes::{Bytes, BytesMut};
use feed::Feed;
use libfuzzer_sys::fuzz_target;
use oribi_kudu::frame::{Body, FRAME_BYTES_MAX, Header, decode, encode_head, hello};
use oribi_kudu::messages::{admin, common, consensus, generic, master, transactions, tserver};
use oribi_kudu::rpc::{ErrorStatus, RequestHeader, ResponseHeader};
use oribi_kudu::service::{ConsensusMethod, GenericMethod, MasterMethod, Method, Service};
use oribi_kudu::service::{TabletServerAdminMethod, TabletServerMethod, TxnManagerMethod};
use prost::Message;
use std::fmt::Debug;

fuzz_target!(|input: &[u8]| {
    let Some((how, rest)) = input.split_first() else { return };
    match how & 1 {
        0 => raw(rest, usize::from(how >> 1)),
        _ => call(Feed::new(rest)),
    }
});

/// A connection of these bytes, which come in two parts.
fn raw(bytes: &[u8], cut: usize) {
    let (first, second) = bytes.split_at(cut * bytes.len() / 128);
    let mut input = BytesMut::from(first);
    if hello::decode(&mut input) == Ok(false) {
        assert!(input.len() < hello::HELLO.len());
    }
    for part in [second, &[]] {
        while let Ok(Some(frame)) = decode(&mut input, FRAME_BYTES_MAX) {
            let len = frame.body.len();
            if let Ok((header, body)) = frame.clone().open::<RequestHeader>() {
                check(&header, &body, len);
                if let Some(Ok(method)) = header.remote_method.as_ref().map(Method::of) {
                    request(method, &body);
                    response(method, &body);
                }
            }
            if let Ok((header, body)) = frame.open::<ResponseHeader>() {
                check(&header, &body, len);
            }
        }
        input.extend_from_slice(part);
    }
}

fn check(header: &impl Header, body: &Body, len: usize) {
    assert_eq!(body.message.len() + body.sidecars.iter().map(Bytes::len).sum::<usize>(), len);
    assert_eq!(body.sidecars.len(), header.sidecar_offsets().len());
}

/// A frame that is well formed, of a method that there is, around a header's and a message's bytes.
fn call(mut feed: Feed<'_>) {
    let methods = Service::ALL[usize::from(feed.byte()) % Service::ALL.len()].methods();
    let method = methods[usize::from(feed.byte()) % methods.len()];
    let offsets = (0..feed.byte() % 4).map(|_| u32::from(feed.byte())).collect();
    let header = RequestHeader {
        call_id: feed.number() as i32,
        remote_method: Some(method.remote()),
        sidecar_offsets: offsets,
        ..RequestHeader::default()
    };
    let message = feed.bytes();
    let mut bytes = BytesMut::new();
    encode_head(&header, &(), message.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(message);
    let frame = decode(&mut bytes, FRAME_BYTES_MAX).unwrap().expect("a whole frame");
    assert_eq!(&frame.body[..], message);
    let Ok((again, body)) = frame.open::<RequestHeader>() else { return };
    assert_eq!(again, header);
    check(&again, &body, message.len());
    request(method, &body);
    response(method, &body);
}

/// Few, so that the fuzzer finds messages that take more.
const STEPS_MAX: usize = 500;

fn round<M: Message + Default + PartialEq + Debug>(body: &Body) {
    if let Ok(message) = body.decode::<M>(STEPS_MAX) {
        assert_eq!(oribi_kudu::decode::<M>(message.encode_to_vec().into(), usize::MAX), Ok(message));
    }
}

fn request(method: Method, body: &Body) {
    match method {
        Method::TabletServer(method) => match method {
            TabletServerMethod::Write => write(body),
            TabletServerMethod::Scan => round::<tserver::ScanRequest>(body),
            TabletServerMethod::ScannerKeepAlive => round::<tserver::ScannerKeepAliveRequest>(body),
            TabletServerMethod::ListTablets => round::<tserver::ListTabletsRequest>(body),
            TabletServerMethod::SplitKeyRange => round::<tserver::SplitKeyRangeRequest>(body),
            TabletServerMethod::Checksum => round::<tserver::ChecksumRequest>(body),
            TabletServerMethod::Ping => round::<tserver::PingRequest>(body),
        },
        Method::Master(method) => match method {
            MasterMethod::GetTableLocations => round::<master::GetTableLocationsRequest>(body),
            MasterMethod::GetTabletLocations => round::<master::GetTabletLocationsRequest>(body),
            MasterMethod::GetTableSchema => round::<master::GetTableSchemaRequest>(body),
            MasterMethod::ConnectToMaster => round::<master::ConnectToMasterRequest>(body),
            MasterMethod::CreateTable => round::<master::CreateTableRequest>(body),
            MasterMethod::IsCreateTableDone => round::<master::IsCreateTableDoneRequest>(body),
            MasterMethod::DeleteTable => round::<master::DeleteTableRequest>(body),
            MasterMethod::AlterTable => round::<master::AlterTableRequest>(body),
            MasterMethod::IsAlterTableDone => round::<master::IsAlterTableDoneRequest>(body),
            MasterMethod::ListTables => round::<master::ListTablesRequest>(body),
            MasterMethod::GetTableStatistics => round::<master::GetTableStatisticsRequest>(body),
            MasterMethod::ListTabletServers => round::<master::ListTabletServersRequest>(body),
            MasterMethod::ListMasters => round::<master::ListMastersRequest>(body),
            MasterMethod::GetMasterRegistration => round::<master::GetMasterRegistrationRequest>(body),
            MasterMethod::Ping => round::<master::PingRequest>(body),
        },
        Method::Generic(method) => match method {
            GenericMethod::GetStatus => round::<generic::GetStatusRequest>(body),
            GenericMethod::GetFlags => round::<generic::GetFlagsRequest>(body),
            GenericMethod::ServerClock => round::<generic::ServerClockRequest>(body),
        },
        Method::Consensus(ConsensusMethod::GetConsensusState) => {
            round::<consensus::GetConsensusStateRequest>(body)
        }
        Method::TabletServerAdmin(TabletServerAdminMethod::Quiesce) => {
            round::<admin::QuiesceTabletServerRequest>(body);
        }
        Method::TxnManager(method) => match method {
            TxnManagerMethod::BeginTransaction => round::<transactions::BeginTransactionRequest>(body),
            TxnManagerMethod::KeepTransactionAlive => {
                round::<transactions::KeepTransactionAliveRequest>(body)
            }
            TxnManagerMethod::CommitTransaction => round::<transactions::CommitTransactionRequest>(body),
            TxnManagerMethod::GetTransactionState => round::<transactions::GetTransactionStateRequest>(body),
            TxnManagerMethod::AbortTransaction => round::<transactions::AbortTransactionRequest>(body),
        },
    }
}

/// A write, and the schema that stays encoded in it.
fn write(body: &Body) {
    round::<tserver::WriteRequest>(body);
    if let Ok(write) = body.decode::<tserver::WriteRequest>(STEPS_MAX) {
        let schema = Body { message: write.schema.unwrap_or_default(), sidecars: Vec::new() };
        round::<common::Schema>(&schema);
    }
}

/// The responses that have more in them than an error.
fn response(method: Method, body: &Body) {
    round::<ErrorStatus>(body);
    match method {
        Method::TabletServer(TabletServerMethod::Write) => round::<tserver::WriteResponse>(body),
        Method::TabletServer(TabletServerMethod::Scan) => round::<tserver::ScanResponse>(body),
        Method::TabletServer(TabletServerMethod::ListTablets) => round::<tserver::ListTabletsResponse>(body),
        Method::TabletServer(TabletServerMethod::SplitKeyRange) => {
            round::<tserver::SplitKeyRangeResponse>(body)
        }
        Method::Master(MasterMethod::GetTableLocations) => round::<master::GetTableLocationsResponse>(body),
        Method::Master(MasterMethod::GetTableSchema) => round::<master::GetTableSchemaResponse>(body),
        Method::Master(MasterMethod::ConnectToMaster) => round::<master::ConnectToMasterResponse>(body),
        Method::Master(MasterMethod::ListTables) => round::<master::ListTablesResponse>(body),
        Method::Master(MasterMethod::ListTabletServers) => round::<master::ListTabletServersResponse>(body),
        _ => {}
    }
}
