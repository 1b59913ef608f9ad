//! A node without sockets, and a table of one tablet on it.

use super::write::RowPlans;
use crate::kudu::call::Call;
use crate::kudu::node::{Addresses, Node};
use crate::kudu::services::{Done, Handled, May};
use bytes::{Bytes, BytesMut};
use oribi_engine::{Engine, EngineOptions, Table};
use oribi_env::Env;
use oribi_kudu::column::DataType;
use oribi_kudu::frame::{self, FRAME_BYTES_MAX};
use oribi_kudu::messages::common::{ColumnSchema, RowOperations, Schema};
use oribi_kudu::messages::tserver::{NewScanRequest, WriteRequest};
use oribi_kudu::row_operations::PartialRow;
use oribi_kudu::row_operations::{OperationLayout, OperationType, OperationsBuilder};
use oribi_kudu::rpc::RequestHeader;
use oribi_kudu::service::{Method, TabletServerMethod};
use oribi_net::Network;
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, Partitioning, TableDefinition, TableOptions, ValueRef};
use prost::Message;
use std::ops::Range;
use std::sync::Arc;

pub struct Fixture {
    /// Some, but while it is reopened.
    node: Option<Arc<Node>>,
    dir: tempfile::TempDir,
}

impl Fixture {
    /// With a table t (k bigint primary key).
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = open(&dir);
        let columns = vec![ColumnSpec::new("k", ColumnType::Int64).not_null()];
        let definition = TableDefinition {
            schema_name: "public".into(),
            name: "t".into(),
            schema: oribi_types::Schema::new(columns, &["k"]).unwrap(),
            partitioning: Partitioning::none(),
            options: TableOptions::new(Durability::Periodic(100)),
        };
        node.engine.create_table(definition).unwrap();
        Fixture { node: Some(node), dir }
    }

    pub fn node(&self) -> &Arc<Node> {
        self.node.as_ref().unwrap()
    }

    pub fn table(&self) -> Arc<Table> {
        self.node().engine.table("public", "t").unwrap()
    }

    pub fn tablet(&self) -> Bytes {
        let directory = self.node().directory();
        let mut of_table = directory
            .tablet_ids()
            .filter(|id| directory.tablet(id).is_ok_and(|(entry, _)| entry.table.id() == self.table().id()));
        of_table.next().unwrap()
    }

    /// Has all rows in files and none in memory.
    pub fn reopen(&mut self) {
        self.node().engine.flush(&self.table()).unwrap();
        self.node().engine.close().unwrap();
        // The folder is locked until nobody has the engine.
        self.node = None;
        self.node = Some(open(&self.dir));
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.node().engine.close().unwrap();
    }
}

fn open(dir: &tempfile::TempDir) -> Arc<Node> {
    let engine = Engine::open(Env::real(), dir.path(), EngineOptions::default()).unwrap();
    let address = "127.0.0.1:7051".parse().unwrap();
    Node::new(engine, Addresses::new(Some(address), None).unwrap(), [7; 16], &Network::default())
}

pub fn call(method: Method, request: &impl Message) -> Call {
    let mut header = RequestHeader { remote_method: Some(method.remote()), ..RequestHeader::default() };
    let mut out = BytesMut::new();
    frame::encode_request(&header, request, 0, &mut out).unwrap();
    let frame = frame::decode(&mut out, FRAME_BYTES_MAX).unwrap().unwrap();
    let (_, body) = frame.open::<RequestHeader>().unwrap();
    Call::new(&"ada".into(), &mut header, body).unwrap()
}

fn column() -> ColumnSchema {
    ColumnSchema { name: "k".into(), data_type: DataType::Int64.into(), ..ColumnSchema::default() }
}

pub fn write(tablet: &Bytes, rows: &[(OperationType, i64)]) -> WriteRequest {
    let columns = vec![oribi_kudu::column::WireColumn::new("k", ColumnType::Int64, false)];
    let mut builder = OperationsBuilder::new(Arc::new(OperationLayout::new(columns)));
    for (operation, k) in rows {
        let mut row = builder.begin(*operation);
        row.set(0, ValueRef::Int64(*k)).unwrap();
        row.finish();
    }
    let (rows, indirect) = builder.into_parts();
    WriteRequest {
        tablet_id: tablet.clone(),
        schema: Some(Schema { columns: vec![column()] }.encode_to_vec().into()),
        row_operations: Some(RowOperations { rows: Some(rows.into()), indirect_data: Some(indirect.into()) }),
        ..WriteRequest::default()
    }
}

/// Has rows with these keys in memory.
pub fn insert(fixture: &Fixture, keys: Range<i64>) {
    let keys: Vec<i64> = keys.collect();
    for keys in keys.chunks(1000) {
        let rows: Vec<_> = keys.iter().map(|k| (OperationType::Insert, *k)).collect();
        let call = call(Method::TabletServer(TabletServerMethod::Write), &write(&fixture.tablet(), &rows));
        let handled = super::write::handle(fixture.node(), &mut RowPlans::default(), call);
        let Handled::Later(mut work) = handled else { panic!("a refusal") };
        assert!(matches!((work.job)(May::WaitForOthers), Done::Answer(_)));
    }
}

pub fn scan(tablet: &Bytes) -> NewScanRequest {
    NewScanRequest {
        tablet_id: tablet.clone(),
        projected_columns: vec![column()],
        ..NewScanRequest::default()
    }
}
