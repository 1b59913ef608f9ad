//! Tables: made, dropped, listed and described.

use crate::kudu::node::Node;
use crate::kudu::{attributes, name, partitions, schema as columns, status};
use oribi_kudu::messages::master::{
    CreateTableRequest, CreateTableResponse, DeleteTableRequest, DeleteTableResponse, GetTableSchemaRequest,
    GetTableSchemaResponse, GetTableStatisticsRequest, GetTableStatisticsResponse, IsCreateTableDoneRequest,
    IsCreateTableDoneResponse, ListTablesRequest, ListTablesResponse, TableIdentifier, TableInfo, TableType,
    TabletWithPartition,
};
use oribi_types::schema::Attributes;
use oribi_types::{Durability, Error, ErrorKind, Result, TableDefinition, TableOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

/// There is one server, whatever a client asks for.
const REPLICAS: i32 = 1;
/// The property of a table that says how durable its rows are: `sync`, or `periodic:MS`.
pub(super) const DURABILITY_PROPERTY: &str = "oribi.durability";

/// A table is the `user`'s who made it, unless that is said otherwise.
pub(super) fn create(node: &Arc<Node>, user: &str, request: CreateTableRequest) -> CreateTableResponse {
    match try_create(node, user, &request) {
        Ok(table_id) => CreateTableResponse { error: None, table_id: Some(table_id) },
        Err(error) => CreateTableResponse { error: Some(status::master(&error)), table_id: None },
    }
}

fn try_create(node: &Arc<Node>, user: &str, request: &CreateTableRequest) -> Result<bytes::Bytes> {
    if request.table_type() != TableType::Default {
        return Err(Error::unsupported("tables of the transactions' own state are not supported"));
    }
    let schema = columns::from_message(&request.schema)?;
    let (schema_name, table_name) = name::parse(&request.name);
    if table_name.is_empty() {
        return Err(Error::invalid("table name must not be empty"));
    }
    let engine = &node.engine;
    let durability = durability_of(&request.extra_configs)?.unwrap_or(engine.options().durability);
    let user = Some(user).filter(|user| user.len() <= attributes::TEXT_BYTES_MAX);
    let owner = request.owner.as_deref().or(user);
    let options = TableOptions {
        attributes: attributes::of_table(&Attributes::new(), owner, request.comment.as_deref())?,
        ..TableOptions::new(durability)
    };
    let definition = TableDefinition {
        schema_name: schema_name.to_owned(),
        name: table_name.to_owned(),
        partitioning: partitions::of_request(&schema, request)?,
        schema,
        options,
    };
    // Kudu has no schemas, so none is missing.
    match engine.create_schema(schema_name) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let exists = |error: Error| match error.kind() {
        ErrorKind::AlreadyExists => Error::already_exists(format!("table {} already exists", request.name)),
        _ => error,
    };
    engine.create_table(definition).map_err(exists)?;
    let identifier = TableIdentifier { table_id: None, table_name: Some(request.name.clone()) };
    Ok(node.directory().table(&identifier)?.id.clone())
}

/// What the properties of a table say of its durability.
///
/// # Errors
/// `Invalid`.
pub(super) fn durability_of(properties: &BTreeMap<String, String>) -> Result<Option<Durability>> {
    let Some(text) = properties.get(DURABILITY_PROPERTY) else { return Ok(None) };
    let periodic = || text.strip_prefix("periodic:")?.parse().ok().filter(|millis| *millis > 0);
    match (text.as_str(), periodic()) {
        ("sync", _) => Ok(Some(Durability::Sync)),
        (_, Some(millis)) => Ok(Some(Durability::Periodic(millis))),
        _ => Err(Error::invalid(format!("{DURABILITY_PROPERTY} is sync or periodic:MS, not {text}"))),
    }
}

/// A table is there when it was answered that it is made.
pub(super) fn is_create_done(node: &Node, request: &IsCreateTableDoneRequest) -> IsCreateTableDoneResponse {
    match node.directory().table(&request.table) {
        Ok(_) => IsCreateTableDoneResponse { error: None, done: Some(true) },
        Err(error) => IsCreateTableDoneResponse { error: Some(status::master(&error)), done: None },
    }
}

/// `reserve_seconds` is not looked at: what is dropped is gone.
pub(super) fn delete(node: &Arc<Node>, request: DeleteTableRequest) -> DeleteTableResponse {
    let drop = || {
        let directory = node.directory();
        let table = &directory.table(&request.table)?.table;
        node.engine.drop_table(table.schema_name(), table.name())
    };
    DeleteTableResponse { error: drop().err().map(|error| status::master(&error)) }
}

pub(super) fn list(node: &Node, request: &ListTablesRequest) -> ListTablesResponse {
    let wants_tables =
        request.type_filter.is_empty() || request.type_filter().any(|t| t == TableType::Default);
    // Nothing is deleted softly.
    if !wants_tables || request.show_soft_deleted() {
        return ListTablesResponse::default();
    }
    let filter = request.name_filter.as_deref().unwrap_or_default();
    let directory = node.directory();
    let infos = directory.tables().filter(|entry| entry.name.contains(filter)).map(|entry| {
        let tablets = entry.shape().map(|shape| shape.tablets.as_slice()).unwrap_or_default();
        let with_partition = tablets.iter().filter(|_| request.list_tablet_with_partition());
        let with_partition = with_partition.map(|tablet| TabletWithPartition {
            tablet_id: Some(String::from_utf8_lossy(&tablet.id).into_owned()),
            partition: Some(tablet.partition.clone()),
        });
        TableInfo {
            id: entry.id.clone(),
            name: entry.name.clone(),
            live_row_count: Some(entry.table.estimated_rows()),
            num_tablets: Some(tablets.len() as i32),
            num_replicas: Some(REPLICAS),
            tablet_with_partition: with_partition.collect(),
        }
    });
    ListTablesResponse { error: None, tables: infos.collect() }
}

pub(super) fn schema(node: &Node, request: &GetTableSchemaRequest) -> GetTableSchemaResponse {
    let describe = || {
        let directory = node.directory();
        let entry = directory.table(&request.table)?;
        let shape = entry.shape()?;
        let durability = match entry.table.options().durability {
            Durability::Sync => "sync".to_owned(),
            Durability::Periodic(millis) => format!("periodic:{millis}"),
        };
        Ok(GetTableSchemaResponse {
            error: None,
            schema: Some(shape.schema.clone()),
            num_replicas: Some(REPLICAS),
            table_id: Some(entry.id.clone()),
            partition_schema: Some(shape.partition_schema.clone()),
            // As it was asked for: `public.t` is `t`, and whoever asks for it knows it by that name.
            table_name: Some(request.table.table_name.clone().unwrap_or_else(|| entry.name.clone())),
            extra_configs: BTreeMap::from([(DURABILITY_PROPERTY.to_owned(), durability)]),
            owner: attributes::owner(&entry.table.options().attributes),
            comment: attributes::comment(&entry.table.options().attributes),
            ..GetTableSchemaResponse::default()
        })
    };
    describe().unwrap_or_else(|error: Error| GetTableSchemaResponse {
        error: Some(status::master(&error)),
        ..GetTableSchemaResponse::default()
    })
}

pub(super) fn statistics(node: &Node, request: &GetTableStatisticsRequest) -> GetTableStatisticsResponse {
    match node.directory().table(&request.table) {
        Ok(entry) => GetTableStatisticsResponse {
            on_disk_size: Some(entry.table.file_bytes() as i64),
            live_row_count: Some(entry.table.estimated_rows() as i64),
            ..GetTableStatisticsResponse::default()
        },
        Err(error) => GetTableStatisticsResponse {
            error: Some(status::master(&error)),
            ..GetTableStatisticsResponse::default()
        },
    }
}
