//! Scan tokens: a part of a scan, as bytes that another process makes a scanner of.

use super::{ReadMode, Scan, Scanner};
use crate::client::Client;
use crate::table::{Column, Table};
use bytes::Bytes;
use oribi_kudu::STEPS_MAX;
use oribi_kudu::column::WireColumn;
use oribi_kudu::messages::common::{ColumnPredicate, ColumnSchema};
use oribi_kudu::messages::master::TableIdentifier;
use oribi_kudu::messages::tserver::ReadMode as WireReadMode;
use oribi_kudu::predicate::{ColumnPredicate as Predicate, Test};
use oribi_types::{Error, Result};
use prost::Message;

/// A part of a scan that can be read on its own.
#[derive(Clone)]
pub struct ScanToken {
    scan: Scan,
}

/// `ScanTokenPB` of Kudu's clients, as far as there is something to say.
#[derive(Clone, PartialEq, Message)]
struct Token {
    /// What a reader has to know to understand the token.
    #[prost(uint32, repeated, packed = "false", tag = "1")]
    feature_flags: Vec<u32>,
    #[prost(string, optional, tag = "2")]
    table_name: Option<String>,
    #[prost(message, repeated, tag = "3")]
    projected_columns: Vec<ColumnSchema>,
    #[prost(message, repeated, tag = "4")]
    column_predicates: Vec<ColumnPredicate>,
    #[prost(bytes = "bytes", optional, tag = "7")]
    lower_bound_partition_key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "8")]
    upper_bound_partition_key: Option<Bytes>,
    #[prost(uint64, optional, tag = "9")]
    limit: Option<u64>,
    #[prost(enumeration = "WireReadMode", optional, tag = "10", default = "ReadLatest")]
    read_mode: Option<i32>,
    #[prost(fixed64, optional, tag = "11")]
    snap_timestamp: Option<u64>,
    #[prost(fixed64, optional, tag = "12")]
    propagated_timestamp: Option<u64>,
    #[prost(bool, optional, tag = "14")]
    fault_tolerant: Option<bool>,
    #[prost(uint32, optional, tag = "15")]
    batch_size_bytes: Option<u32>,
}

impl ScanToken {
    pub(super) fn new(scan: Scan) -> Self {
        ScanToken { scan }
    }

    /// See [`Scan::columnar`], which the bytes of a token do not tell.
    #[must_use]
    pub fn columnar(mut self, is_columnar: bool) -> Self {
        self.scan = self.scan.columnar(is_columnar);
        self
    }

    pub fn scanner(self) -> Scanner {
        self.scan.scanner()
    }

    /// The token as bytes, with the time up to which this client has seen everything.
    pub fn serialize(&self) -> Vec<u8> {
        let scan = &self.scan;
        let columns = scan.projection.iter().map(|column| scan.table.columns()[*column].in_request());
        let (read_mode, snap_timestamp) = scan.read_mode.wire();
        let token = Token {
            feature_flags: Vec::new(),
            table_name: Some(scan.table.name().to_owned()),
            projected_columns: columns.collect(),
            column_predicates: scan.predicates.clone(),
            lower_bound_partition_key: Some(scan.start.clone()).filter(|key| !key.is_empty()),
            upper_bound_partition_key: Some(scan.end.clone()).filter(|key| !key.is_empty()),
            limit: scan.limit,
            read_mode: Some(read_mode.into()),
            snap_timestamp,
            propagated_timestamp: scan.table.shared.client.shared.propagated_timestamp(),
            fault_tolerant: Some(scan.is_fault_tolerant),
            batch_size_bytes: Some(scan.batch_bytes),
        };
        token.encode_to_vec()
    }

    /// A token from bytes that [`serialize`](Self::serialize) made, perhaps elsewhere.
    ///
    /// # Errors
    /// `Invalid` for what is no token, `Unsupported` for one of a newer kind, `NotFound` if the table or a column is no more.
    pub async fn deserialize(client: &Client, bytes: &[u8]) -> Result<Self> {
        let token: Token = oribi_kudu::decode(Bytes::copy_from_slice(bytes), STEPS_MAX)
            .map_err(|error| Error::invalid(format!("scan token: {error}")))?;
        if !token.feature_flags.is_empty() {
            return Err(Error::unsupported("scan token of a newer client"));
        }
        let name = token.table_name.clone().ok_or_else(|| Error::invalid("scan token without a table"))?;
        let table = Table::open(client, TableIdentifier { table_id: None, table_name: Some(name) }).await?;
        client.shared.observe(token.propagated_timestamp);
        let read_mode = ReadMode::of(token.read_mode(), token.snap_timestamp);
        let projection = token.projected_columns.iter().map(|column| same_column(&table, column));
        let projection = projection.collect::<Result<_>>()?;
        let (predicates, key_tests) = (token.column_predicates.clone(), key_tests(&table, &token)?);
        let mut scan = Scan { projection, predicates, key_tests, ..table.scan() };
        scan.limit = token.limit;
        scan.read_mode = read_mode;
        scan.is_fault_tolerant = token.fault_tolerant();
        scan.batch_bytes = token.batch_size_bytes.unwrap_or(scan.batch_bytes);
        scan.start = token.lower_bound_partition_key.unwrap_or_default();
        scan.end = token.upper_bound_partition_key.unwrap_or_default();
        Ok(ScanToken { scan })
    }
}

/// The predicates about columns of the key.
fn key_tests(table: &Table, token: &Token) -> Result<Vec<(usize, Test)>> {
    let columns: Vec<WireColumn> = table.columns().iter().map(Column::wire).collect();
    let tests = token.column_predicates.iter().map(|message| {
        let predicate = Predicate::decode(&columns, message)?;
        Ok((predicate.column, predicate.test))
    });
    let mut tests = tests.collect::<Result<Vec<_>>>()?;
    tests.retain(|(column, _)| *column < table.key_columns());
    Ok(tests)
}

/// The position of a column that still is as the token tells.
fn same_column(table: &Table, message: &ColumnSchema) -> Result<usize> {
    let position = table.column(&message.name)?;
    let (now, then) = (&table.columns()[position], Column::of(message)?);
    match now.column_type == then.column_type && now.nullable == then.nullable {
        true => Ok(position),
        false => Err(Error::not_found(format!("column {} is of another type now", message.name))),
    }
}

impl ReadMode {
    pub(super) fn wire(self) -> (WireReadMode, Option<u64>) {
        match self {
            ReadMode::Latest => (WireReadMode::ReadLatest, None),
            ReadMode::AtSnapshot(timestamp) => (WireReadMode::ReadAtSnapshot, timestamp),
            ReadMode::YourWrites => (WireReadMode::ReadYourWrites, None),
        }
    }

    fn of(wire: WireReadMode, timestamp: Option<u64>) -> Self {
        match wire {
            WireReadMode::ReadAtSnapshot => ReadMode::AtSnapshot(timestamp),
            WireReadMode::ReadYourWrites => ReadMode::YourWrites,
            WireReadMode::ReadLatest | WireReadMode::Unknown => ReadMode::Latest,
        }
    }
}
