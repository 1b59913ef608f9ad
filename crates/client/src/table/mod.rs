//! Tables: their columns, how they are partitioned, and where their tablets are.

mod alter;
mod column;
mod create;
mod partition;
mod tablets;

pub use alter::AlterTable;
pub use column::Column;
pub use create::CreateTable;

pub(crate) use tablets::{Located, Tablet, TabletMap};

use crate::client::Client;
use crate::rpc::Attempts;
use bytes::Bytes;
use oribi_kudu::column::WireColumn;
use oribi_kudu::messages::common::{Schema, SignedToken};
use oribi_kudu::messages::master::{
    GetTableSchemaRequest, GetTableSchemaResponse, GetTableStatisticsRequest, GetTableStatisticsResponse,
    TableIdentifier,
};
use oribi_kudu::partition::PartitionSchema;
use oribi_kudu::row_operations::OperationLayout;
use oribi_kudu::service::MasterMethod;
use oribi_types::{Error, Result};
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;

/// A table as it was when it was opened. Clones share it, and what is known of its tablets.
#[derive(Clone)]
pub struct Table {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) id: Bytes,
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) key_columns: usize,
    pub(crate) partition_schema: PartitionSchema,
    /// The schema as each write carries it, encoded once.
    pub(crate) schema_bytes: Bytes,
    /// Of a row on its way to a batch.
    pub(crate) layout: OperationLayout,
    /// What the master gave us to show to tablet servers, if it does that.
    authz_token: Mutex<Option<SignedToken>>,
    pub(crate) tablets: TabletMap,
}

impl Table {
    pub(crate) async fn open(client: &Client, table: TableIdentifier) -> Result<Self> {
        let what = table.table_name.clone().unwrap_or_default();
        let request = GetTableSchemaRequest { table };
        let response: GetTableSchemaResponse = client
            .shared
            .master(MasterMethod::GetTableSchema, &[], &request, &mut client.shared.attempts())
            .await?;
        Table::of(client, response).map_err(|error| error.context(format_args!("table {what}")))
    }

    pub(crate) fn of(client: &Client, response: GetTableSchemaResponse) -> Result<Self> {
        let (Some(schema), Some(id)) = (response.schema, response.table_id) else {
            return Err(Error::corrupt("the master answers without schema or id"));
        };
        let columns = schema.columns.iter().map(Column::of).collect::<Result<Vec<_>>>()?;
        let key_columns = columns.iter().take_while(|column| column.is_key).count();
        let wire: Vec<WireColumn> = columns.iter().map(Column::wire).collect();
        let partition_message = response.partition_schema.unwrap_or_default();
        let partition_schema = partition::schema(&partition_message, &schema, &wire, key_columns)?;
        let named = Schema { columns: columns.iter().map(Column::in_request).collect() };
        let shared = Shared {
            client: client.clone(),
            id,
            name: response.table_name.unwrap_or_default(),
            key_columns,
            partition_schema,
            schema_bytes: Bytes::from(named.encode_to_vec()),
            layout: OperationLayout::new(wire),
            columns,
            authz_token: Mutex::new(response.authz_token),
            tablets: TabletMap::new(client.shared.alterations.clone()),
        };
        Ok(Table { shared: Arc::new(shared) })
    }

    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// 32 hexadecimal digits.
    pub fn id(&self) -> String {
        String::from_utf8_lossy(&self.shared.id).into_owned()
    }

    /// Those of the key come first.
    pub fn columns(&self) -> &[Column] {
        &self.shared.columns
    }

    /// How many columns the key has.
    pub fn key_columns(&self) -> usize {
        self.shared.key_columns
    }

    /// The position of the column of this name.
    ///
    /// # Errors
    /// `NotFound`, naming table and column.
    pub fn column(&self, name: &str) -> Result<usize> {
        let position = self.columns().iter().position(|column| column.name == name);
        position.ok_or_else(|| Error::not_found(format!("table {} has no column {name}", self.name())))
    }

    /// How many rows the table has, as its servers reported last; `None` if they do not tell.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn live_rows(&self) -> Result<Option<u64>> {
        let request =
            GetTableStatisticsRequest { table: self.shared.identifier(), include_tablet_statistics: None };
        let client = &self.shared.client.shared;
        let response: GetTableStatisticsResponse =
            client.master(MasterMethod::GetTableStatistics, &[], &request, &mut client.attempts()).await?;
        Ok(response.live_row_count.and_then(|rows| u64::try_from(rows).ok()))
    }
}

impl Shared {
    pub(crate) fn identifier(&self) -> TableIdentifier {
        TableIdentifier { table_id: Some(self.id.clone()), table_name: None }
    }

    pub(crate) fn authz_token(&self) -> Option<SignedToken> {
        self.authz_token.lock().clone()
    }

    /// Asks for another token, because a tablet server does not take the old one.
    pub(crate) async fn renew_token(&self, attempts: &mut Attempts) -> Result<()> {
        let request = GetTableSchemaRequest { table: self.identifier() };
        let client = &self.client.shared;
        let response: GetTableSchemaResponse =
            client.master(MasterMethod::GetTableSchema, &[], &request, attempts).await?;
        *self.authz_token.lock() = response.authz_token;
        Ok(())
    }

    /// Bytes of a partition key before its range key.
    pub(crate) fn hash_key_bytes(&self) -> usize {
        4 * self.partition_schema.hash().len()
    }
}
