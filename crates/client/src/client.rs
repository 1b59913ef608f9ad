//! A client: where the masters are, the connections, and what all sessions and scanners share.

use crate::master::{MasterResponse, Masters};
use crate::rpc::{Attempts, Connections, Introduction, RequestIds, Tls, parse_address};
use crate::table::{AlterTable, CreateTable, Table};
use oribi_kudu::messages::common::HostPort;
use oribi_kudu::messages::master::*;
use oribi_kudu::negotiation::Credentials;
use oribi_kudu::service::{MasterMethod, Method, TxnManagerMethod};
use oribi_types::{Error, ErrorKind, Result};
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The name it gives to servers.
    pub user: String,
    pub password: String,
    /// With it connections are encrypted, and servers that cannot are refused; without it they are in plain text.
    pub tls: Option<Tls>,
    /// How long an operation on a table, a write, and a step of a scan is tried before it fails: while servers are away or
    /// busy it is tried again and again. A session may have its own.
    pub operation_timeout: Duration,
    /// How long one attempt may take.
    pub rpc_timeout: Duration,
    /// How often a server is told that a scan whose rows nobody takes yet will go on. Servers forget it after a minute.
    pub scanner_keep_alive: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            user: "oribi".to_owned(),
            password: String::new(),
            tls: None,
            operation_timeout: Duration::from_secs(30),
            rpc_timeout: Duration::from_secs(10),
            scanner_keep_alive: Duration::from_secs(15),
        }
    }
}

/// A client of one cluster. Clones share everything; the last one closes the connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) options: ClientOptions,
    pub(crate) connections: Arc<Connections>,
    pub(crate) request_ids: Arc<RequestIds>,
    masters: Masters,
    /// How many alterations this client made: before each, what it knew of ranges that no tablet covers may be wrong.
    pub(crate) alterations: Arc<AtomicU64>,
    /// The latest time that any server told, so that one can read what was written before.
    observed: AtomicU64,
    retries: AtomicU64,
    waited_micros: AtomicU64,
}

/// Writes that were sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retries {
    pub count: u64,
    /// How long they waited for that.
    pub waited: Duration,
}

/// A table, as a list of tables has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    pub id: String,
    pub name: String,
    /// As of the last report of the tablet servers.
    pub live_rows: Option<u64>,
}

/// The port of masters, where an address does not say.
const MASTER_PORT: u16 = 7051;

impl Client {
    /// Connects to the masters at these addresses (`host:port`, or `host`).
    ///
    /// # Errors
    /// `Invalid` for what is no address, `Unavailable` if no master that leads answers in time, `Forbidden` if they refuse
    /// the client.
    pub async fn connect<A: AsRef<str>>(masters: &[A]) -> Result<Self> {
        Client::connect_with(masters, ClientOptions::default()).await
    }

    /// As [`connect`](Self::connect).
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub async fn connect_with<A: AsRef<str>>(masters: &[A], options: ClientOptions) -> Result<Self> {
        let addresses: Result<Vec<HostPort>> =
            masters.iter().map(|text| parse_address(text.as_ref(), MASTER_PORT)).collect();
        let addresses = addresses?;
        if addresses.is_empty() {
            return Err(Error::invalid("a client needs the address of a master"));
        }
        let client = Client::unconnected(addresses, options);
        let request = ConnectToMasterRequest {};
        let (method, mut attempts) = (MasterMethod::ConnectToMaster, client.shared.attempts());
        client.shared.master::<ConnectToMasterResponse>(method, &[], &request, &mut attempts).await?;
        Ok(client)
    }

    pub(crate) fn unconnected(masters: Vec<HostPort>, options: ClientOptions) -> Self {
        let credentials = Credentials { user: options.user.clone(), password: options.password.clone() };
        let introduction = Introduction { credentials, tls: options.tls.clone() };
        let connections = Arc::new(Connections::new(introduction));
        let masters = Masters::new(masters, connections.clone(), options.rpc_timeout);
        let request_ids = RequestIds::new();
        let (alterations, observed) = (Arc::default(), AtomicU64::new(0));
        let shared = Shared {
            options,
            connections,
            request_ids,
            masters,
            alterations,
            observed,
            retries: AtomicU64::new(0),
            waited_micros: AtomicU64::new(0),
        };
        Client { shared: Arc::new(shared) }
    }

    /// # Errors
    /// `NotFound`; `Unsupported` for a table with columns of a type that there is not here.
    pub async fn open_table(&self, name: &str) -> Result<Table> {
        Table::open(self, TableIdentifier { table_id: None, table_name: Some(name.to_owned()) }).await
    }

    /// The tables whose names contain `filter`, sorted by name.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn list_tables(&self, filter: &str) -> Result<Vec<TableName>> {
        let name_filter = Some(filter).filter(|filter| !filter.is_empty()).map(str::to_owned);
        let request = ListTablesRequest { name_filter, ..ListTablesRequest::default() };
        let response: ListTablesResponse =
            self.shared.master(MasterMethod::ListTables, &[], &request, &mut self.shared.attempts()).await?;
        let mut tables: Vec<TableName> = response.tables.into_iter().map(TableName::of).collect();
        tables.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(tables)
    }

    /// Creates a table and waits until its tablets are there.
    ///
    /// # Errors
    /// `AlreadyExists`; `Invalid` for a definition that makes no sense.
    pub async fn create_table(&self, definition: CreateTable) -> Result<Table> {
        definition.run(self).await
    }

    /// Changes a table and waits until the change is everywhere. A [`Table`] that was opened before knows of ranges that
    /// come and go, but keeps the columns that it had. Apache Kudu deletes the tablets of a range that was dropped a moment
    /// later: until then they take rows, which go with them.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` or `AlreadyExists` for a step that makes no sense, and none is taken.
    pub async fn alter_table(&self, name: &str, changes: AlterTable) -> Result<()> {
        let changed = changes.run(self, name).await;
        self.shared.alterations.fetch_add(1, Ordering::Relaxed);
        changed
    }

    /// # Errors
    /// `NotFound`.
    pub async fn delete_table(&self, name: &str) -> Result<()> {
        let named = TableIdentifier { table_id: None, table_name: Some(name.to_owned()) };
        let request = GetTableSchemaRequest { table: named.clone() };
        let mut attempts = self.shared.attempts();
        let found = self.shared.master(MasterMethod::GetTableSchema, &[], &request, &mut attempts).await;
        let table = match found {
            // An attempt after one whose answer is lost must not delete a table that was given the name since.
            Ok(GetTableSchemaResponse { table_id, .. }) => TableIdentifier { table_id, table_name: None },
            // A table that cannot be used here can be deleted.
            Err(error) if error.kind() == ErrorKind::Unsupported => named,
            Err(error) => return Err(error),
        };
        let request = DeleteTableRequest { table, modify_external_catalogs: None, reserve_seconds: None };
        let mut attempts = self.shared.attempts();
        let deleted = self.shared.master(MasterMethod::DeleteTable, &[], &request, &mut attempts).await;
        match deleted {
            Ok(DeleteTableResponse { .. }) => Ok(()),
            // There was a table: it was deleted by the attempt before.
            Err(error) if error.kind() == ErrorKind::NotFound && attempts.is_unknown() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The latest hybrid time that this client knows of; 0 before any server told one.
    pub fn observed_timestamp(&self) -> u64 {
        self.shared.observed.load(Ordering::Relaxed)
    }

    /// How often writes of this client were sent again so far, because a server was away or busy, or a row locked.
    pub fn retries(&self) -> Retries {
        let waited = Duration::from_micros(self.shared.waited_micros.load(Ordering::Relaxed));
        Retries { count: self.shared.retries.load(Ordering::Relaxed), waited }
    }

    /// Makes this client know of what another one wrote or read up to `timestamp`.
    pub fn observe(&self, timestamp: u64) {
        self.shared.observe(Some(timestamp));
    }
}

impl Shared {
    /// A call to the leading master. One that lacks any of the features does not execute it.
    pub(crate) async fn master<R: MasterResponse>(
        &self,
        method: MasterMethod,
        features: &[MasterFeature],
        request: &impl Message,
        attempts: &mut Attempts,
    ) -> Result<R> {
        self.masters.call(Method::Master(method), features, request, attempts).await
    }

    /// A call to the leading master about transactions.
    pub(crate) async fn transactions<R: MasterResponse>(
        &self,
        method: TxnManagerMethod,
        request: &impl Message,
        attempts: &mut Attempts,
    ) -> Result<R> {
        self.masters.call(Method::TxnManager(method), &[], request, attempts).await
    }

    /// A write has waited so long to be sent again.
    pub(crate) fn note_retry(&self, waited: Duration) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        self.waited_micros.fetch_add(waited.as_micros() as u64, Ordering::Relaxed);
    }

    /// Those of an operation that begins now.
    pub(crate) fn attempts(&self) -> Attempts {
        Attempts::new(self.options.operation_timeout)
    }

    pub(crate) fn observe(&self, timestamp: Option<u64>) {
        if let Some(timestamp) = timestamp {
            self.observed.fetch_max(timestamp, Ordering::Relaxed);
        }
    }

    /// What to send along: the latest time, if there is one.
    pub(crate) fn propagated_timestamp(&self) -> Option<u64> {
        Some(self.observed.load(Ordering::Relaxed)).filter(|timestamp| *timestamp != 0)
    }
}

impl TableName {
    fn of(info: TableInfo) -> Self {
        let id = String::from_utf8_lossy(&info.id).into_owned();
        TableName { id, name: info.name, live_rows: info.live_row_count }
    }
}
