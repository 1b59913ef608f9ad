//! A Kudu door on a fresh folder, and the smallest client of it, in plain text or through TLS.

#![allow(dead_code)]

use bytes::{Bytes, BytesMut};
use oribi_doors::kudu::{KuduAddresses, KuduDoor, KuduOptions};
use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_kudu::column::{DataType, WireColumn};
use oribi_kudu::frame::{self, Body, FRAME_BYTES_MAX};
use oribi_kudu::messages::common::{
    ColumnIdentifier, ColumnSchema, HashBucketSchema, PartitionSchema, RangeSchema, RowOperations, Schema,
};
use oribi_kudu::messages::master::{
    CreateTableRequest, CreateTableResponse, GetTableLocationsRequest, GetTableLocationsResponse,
    TableIdentifier,
};
use oribi_kudu::messages::tserver::{NewScanRequest, ScanRequest, ScanResponse, WriteRequest, WriteResponse};
use oribi_kudu::negotiation::{ClientNegotiation, ClientProgress, ClientTls, Credentials};
use oribi_kudu::row_operations::{OperationLayout, OperationType, OperationsBuilder, PartialRow};
use oribi_kudu::rpc::{ErrorStatus, RequestHeader, RequestId, ResponseHeader};
use oribi_kudu::service::{MasterMethod, Method, TabletServerMethod};
use oribi_net::TlsIdentity;
use oribi_types::{ColumnType, ValueRef};
use prost::Message;
use rustls::ClientConnection;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub struct Subject {
    pub engine: Arc<Engine>,
    pub door: Option<KuduDoor>,
    shutdown: watch::Sender<bool>,
    runtime: Runtime,
    _dir: tempfile::TempDir,
}

impl Subject {
    pub fn new() -> Self {
        Subject::with(None)
    }

    pub fn with(identity: Option<TlsIdentity>) -> Self {
        Subject::with_options(EngineOptions::default(), identity)
    }

    pub fn with_options(options: EngineOptions, identity: Option<TlsIdentity>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
        let (shutdown, shut) = watch::channel(false);
        let any = "127.0.0.1:0".parse().unwrap();
        let addresses = KuduAddresses { master: Some(any), tserver: Some(any) };
        let options = KuduOptions { threads: 2, identity, ..KuduOptions::new([7; 16]) };
        let runtime = Runtime::new().unwrap();
        let door = {
            let _runtime = runtime.enter();
            KuduDoor::start(addresses, &engine, options, shut).unwrap()
        };
        Subject { engine, door: Some(door), shutdown, runtime, _dir: dir }
    }

    pub fn master_addr(&self) -> SocketAddr {
        self.door.as_ref().unwrap().master_addr().unwrap()
    }

    pub fn tserver_addr(&self) -> SocketAddr {
        self.door.as_ref().unwrap().tserver_addr().unwrap()
    }

    pub fn client(&self) -> Client {
        Client::connect(self.tserver_addr())
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.shutdown.send_replace(true);
        let door = self.door.take().unwrap();
        self.runtime.block_on(door.join()).unwrap();
        self.engine.close().unwrap();
    }
}

pub struct Client {
    pub socket: TcpStream,
    /// Through which all goes, if it is there.
    pub session: Option<ClientConnection>,
    input: BytesMut,
    next_call: i32,
}

impl Client {
    /// One that has not said anything.
    pub fn raw(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).unwrap();
        // Nothing rests on it but that a failing test ends.
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { socket, session: None, input: BytesMut::new(), next_call: 0 }
    }

    pub fn connect(addr: SocketAddr) -> Self {
        let mut client = Client::raw(addr);
        let mut out = BytesMut::new();
        let credentials = Credentials { user: "ada".into(), password: String::new() };
        let mut negotiation = ClientNegotiation::start(credentials, ClientTls::NotOffered, &mut out);
        loop {
            client.send(&out.split());
            if negotiation.advance(client.frame().unwrap(), &mut out) == Ok(ClientProgress::Done) {
                client.send(&out);
                return client;
            }
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        match &mut self.session {
            None => self.socket.write_all(bytes).unwrap(),
            Some(session) => rustls::Stream::new(session, &mut self.socket).write_all(bytes).unwrap(),
        }
    }

    /// The next frame; `None` if the server has closed the connection.
    pub fn frame(&mut self) -> Option<frame::Frame> {
        loop {
            if let Some(frame) = frame::decode(&mut self.input, FRAME_BYTES_MAX).unwrap() {
                return Some(frame);
            }
            let mut bytes = [0; 64 << 10];
            let received = match &mut self.session {
                None => self.socket.read(&mut bytes),
                Some(session) => rustls::Stream::new(session, &mut self.socket).read(&mut bytes),
            };
            match received {
                Ok(0) => return None,
                Ok(received) => self.input.extend_from_slice(&bytes[..received]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                // Whoever stops the process for a while.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sends a call; returns its id.
    pub fn begin(&mut self, method: Method, request: &impl Message, flags: &[u32]) -> i32 {
        self.begin_as(None, method, request, flags)
    }

    /// As [`begin`](Self::begin), with an id of the request.
    pub fn begin_as(
        &mut self,
        request_id: Option<RequestId>,
        method: Method,
        request: &impl Message,
        flags: &[u32],
    ) -> i32 {
        let required_feature_flags = flags.to_vec();
        self.begin_with(
            RequestHeader { required_feature_flags, request_id, ..RequestHeader::default() },
            method,
            request,
        )
    }

    /// As [`begin`](Self::begin), with whatever else stands in the header.
    pub fn begin_with(&mut self, header: RequestHeader, method: Method, request: &impl Message) -> i32 {
        let call_id = self.next_call;
        self.next_call += 1;
        let header = RequestHeader { call_id, remote_method: Some(method.remote()), ..header };
        let mut out = BytesMut::new();
        frame::encode_request(&header, request, 0, &mut out).unwrap();
        self.send(&out);
        call_id
    }

    /// The next answer, of whatever call.
    pub fn answer(&mut self) -> (ResponseHeader, Body) {
        self.frame().expect("an answer").open().unwrap()
    }

    pub fn try_call<A: Message + Default>(
        &mut self,
        method: Method,
        request: &impl Message,
        flags: &[u32],
    ) -> Result<(A, Vec<Bytes>), ErrorStatus> {
        let call_id = self.begin(method, request, flags);
        let (header, body) = self.answer();
        assert_eq!(header.call_id, call_id);
        if header.is_error() {
            return Err(body.decode(1000).unwrap());
        }
        Ok((body.decode(1 << 20).unwrap(), body.sidecars))
    }

    pub fn master<A: Message + Default>(&mut self, method: MasterMethod, request: &impl Message) -> A {
        self.try_call(Method::Master(method), request, &[]).unwrap().0
    }

    /// Creates a table (k bigint key, n int, s text) of so many hash buckets; returns the ids of its tablets.
    pub fn create(&mut self, name: &str, buckets: i32) -> Vec<Bytes> {
        let created: CreateTableResponse = self.master(MasterMethod::CreateTable, &table(name, buckets));
        assert_eq!(created.error, None);
        self.tablets(name)
    }

    /// The ids of a table's tablets.
    pub fn tablets(&mut self, name: &str) -> Vec<Bytes> {
        let request = GetTableLocationsRequest {
            table: named(name),
            max_returned_locations: Some(1000),
            ..GetTableLocationsRequest::default()
        };
        let found: GetTableLocationsResponse = self.master(MasterMethod::GetTableLocations, &request);
        assert_eq!(found.error, None);
        found.tablet_locations.into_iter().map(|tablet| tablet.tablet_id).collect()
    }

    pub fn write(&mut self, request: &WriteRequest) -> WriteResponse {
        self.try_call(Method::TabletServer(TabletServerMethod::Write), request, &[]).unwrap().0
    }

    pub fn scan(&mut self, request: &ScanRequest) -> (ScanResponse, Vec<Bytes>) {
        self.try_call(Method::TabletServer(TabletServerMethod::Scan), request, &[]).unwrap()
    }

    /// All rows of a scan, as (k, n), in as many answers as it takes.
    pub fn scan_all(&mut self, new: NewScanRequest, batch_size_bytes: u32) -> Vec<(i64, Option<i32>)> {
        let first = ScanRequest {
            new_scan_request: Some(new),
            batch_size_bytes: Some(batch_size_bytes),
            ..ScanRequest::default()
        };
        let (mut answer, mut sidecars) = self.scan(&first);
        assert_eq!(answer.error, None);
        let scanner_id = answer.scanner_id.clone();
        let mut rows = Vec::new();
        for call_seq_id in 1.. {
            rows.extend(rows_of(&answer, &sidecars));
            if !answer.has_more_results() {
                break;
            }
            let next = ScanRequest {
                scanner_id: scanner_id.clone(),
                call_seq_id: Some(call_seq_id),
                batch_size_bytes: Some(batch_size_bytes),
                ..ScanRequest::default()
            };
            (answer, sidecars) = self.scan(&next);
            assert_eq!(answer.error, None);
        }
        rows
    }
}

pub fn named(table: &str) -> TableIdentifier {
    TableIdentifier { table_id: None, table_name: Some(table.into()) }
}

/// What makes a table (k bigint key, n int, s text) of so many hash buckets.
pub fn table(name: &str, buckets: i32) -> CreateTableRequest {
    let hash = HashBucketSchema {
        columns: vec![ColumnIdentifier::name("k")],
        num_buckets: buckets,
        ..HashBucketSchema::default()
    };
    CreateTableRequest {
        name: name.into(),
        schema: schema(),
        partition_schema: Some(PartitionSchema {
            hash_schema: if buckets > 1 { vec![hash] } else { vec![] },
            range_schema: Some(RangeSchema::default()),
            ..PartitionSchema::default()
        }),
        ..CreateTableRequest::default()
    }
}

pub fn column(name: &str, data_type: DataType, is_key: bool) -> ColumnSchema {
    ColumnSchema {
        name: name.into(),
        data_type: data_type.into(),
        is_key: Some(is_key),
        is_nullable: Some(!is_key),
        ..ColumnSchema::default()
    }
}

pub fn schema() -> Schema {
    let columns =
        [("k", DataType::Int64, true), ("n", DataType::Int32, false), ("s", DataType::String, false)];
    Schema { columns: columns.map(|(name, data_type, is_key)| column(name, data_type, is_key)).into() }
}

pub fn layout() -> OperationLayout {
    OperationLayout::new(vec![
        WireColumn::new("k", ColumnType::Int64, false),
        WireColumn::new("n", ColumnType::Int32, true),
        WireColumn::new("s", ColumnType::String, true),
    ])
}

/// A write of rows: what is `None` is not set.
pub fn write(tablet: &Bytes, rows: &[(OperationType, i64, Option<i32>, Option<&str>)]) -> WriteRequest {
    let layout = layout();
    let mut builder = OperationsBuilder::new(Arc::new(layout));
    for (operation, k, n, s) in rows {
        let mut row = builder.begin(*operation);
        row.set(0, ValueRef::Int64(*k)).unwrap();
        if let Some(n) = n {
            row.set(1, ValueRef::Int32(*n)).unwrap();
        }
        if let Some(s) = s {
            row.set(2, ValueRef::String(s)).unwrap();
        }
        row.finish();
    }
    let (rows, indirect) = builder.into_parts();
    WriteRequest {
        tablet_id: tablet.clone(),
        schema: Some(schema().encode_to_vec().into()),
        row_operations: Some(RowOperations { rows: Some(rows.into()), indirect_data: Some(indirect.into()) }),
        ..WriteRequest::default()
    }
}

/// A scan of (k, n).
pub fn scan(tablet: &Bytes) -> NewScanRequest {
    NewScanRequest {
        tablet_id: tablet.clone(),
        projected_columns: vec![column("k", DataType::Int64, true), column("n", DataType::Int32, false)],
        ..NewScanRequest::default()
    }
}

/// The rows of an answer to [`scan`], row by row or by column.
pub fn rows_of(answer: &ScanResponse, sidecars: &[Bytes]) -> Vec<(i64, Option<i32>)> {
    const STRIDE: usize = 8 + 4 + 1;
    let i64_at = |bytes: &[u8], at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let i32_at = |bytes: &[u8], at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    if let Some(block) = &answer.data {
        let rows = &sidecars[block.rows_sidecar.unwrap() as usize];
        assert_eq!(rows.len(), block.num_rows.unwrap() as usize * STRIDE);
        let row = |row: &[u8]| (i64_at(row, 0), (row[12] & 2 == 0).then(|| i32_at(row, 8)));
        return rows.chunks(STRIDE).map(row).collect();
    }
    let Some(block) = &answer.columnar_data else { return Vec::new() };
    let sidecar = |index: Option<i32>| &sidecars[index.unwrap() as usize];
    let (k, n) = (sidecar(block.columns[0].data_sidecar), sidecar(block.columns[1].data_sidecar));
    let valid = sidecar(block.columns[1].non_null_bitmap_sidecar);
    let row = |i: usize| (i64_at(k, 8 * i), (valid[i / 8] & (1 << (i % 8)) != 0).then(|| i32_at(n, 4 * i)));
    (0..block.num_rows.unwrap() as usize).map(row).collect()
}
