//! What there is to know of tablets.

use crate::kudu::node::Node;
use crate::kudu::schema::find;
use crate::kudu::status;
use bytes::Bytes;
use oribi_engine::KeyRange as EngineRange;
use oribi_kudu::key;
use oribi_kudu::messages::common::Role;
use oribi_kudu::messages::tserver::{
    KeyRange, ListTabletsRequest, ListTabletsResponse, SplitKeyRangeRequest, SplitKeyRangeResponse,
    StatusAndSchema, TabletDataState, TabletServerErrorCode, TabletState, TabletStatus,
};
use oribi_types::{ColumnType, Error, Result};
use std::sync::Arc;

pub(super) fn list(node: &Node, request: &ListTabletsRequest) -> ListTabletsResponse {
    let directory = node.directory();
    let mut response = ListTabletsResponse::default();
    for entry in directory.tables_with_tablets() {
        let Ok(shape) = entry.shape() else { continue };
        let with_schema = request.need_schema_info();
        response.status_and_schema.extend(shape.tablets.iter().map(|tablet| StatusAndSchema {
            tablet_status: TabletStatus {
                tablet_id: String::from_utf8_lossy(&tablet.id).into_owned(),
                table_name: entry.name.clone(),
                state: Some(TabletState::Running.into()),
                last_status: "running".to_owned(),
                tablet_data_state: Some(TabletDataState::Ready.into()),
                partition: Some(tablet.partition.clone()),
                table_id: Some(String::from_utf8_lossy(&entry.id).into_owned()),
                ..TabletStatus::default()
            },
            schema: with_schema.then(|| shape.schema.clone()),
            partition_schema: with_schema.then(|| shape.partition_schema.clone()),
            schema_version: Some(directory.version() as u32),
            role: Some(Role::Leader.into()),
        }));
    }
    response
}

/// What the request asks for, in parts of about the size that it wants: for the tasks of a scan.
pub(super) fn split(node: &Arc<Node>, request: SplitKeyRangeRequest) -> SplitKeyRangeResponse {
    match parts(node, &request) {
        Ok(ranges) => SplitKeyRangeResponse { error: None, ranges },
        Err(error) => {
            let error = status::tserver(&error, TabletServerErrorCode::InvalidScanSpec);
            SplitKeyRangeResponse { error: Some(error), ranges: Vec::new() }
        }
    }
}

fn parts(node: &Node, request: &SplitKeyRangeRequest) -> Result<Vec<KeyRange>> {
    let directory = node.directory();
    let (entry, tablet) = directory.tablet(&request.tablet_id)?;
    let (table, schema) = (&entry.table, entry.table.schema());
    let types: Vec<ColumnType> = schema.key_columns().map(|column| column.column_type).collect();
    let key = |key: &Option<Bytes>| {
        let key = key.as_ref().filter(|key| !key.is_empty());
        key.map(|key| Ok::<_, Error>(key::to_engine(&types, key)?.into_owned())).transpose()
    };
    let from = key(&request.start_primary_key)?.unwrap_or_default();
    let keys = EngineRange { from, to: key(&request.stop_primary_key)? };
    let columns: Vec<u32> = match &request.columns[..] {
        [] => schema.columns().iter().map(|column| column.id).collect(),
        some => {
            let column = |c| Ok(schema.columns()[find(&schema, c)?].id);
            some.iter().map(column).collect::<Result<_>>()?
        }
    };
    let part_bytes = request.target_chunk_size_bytes.unwrap_or(u64::MAX);
    let mut parts =
        node.engine.split_range(table, tablet.number, &keys, &columns, part_bytes).into_iter().peekable();
    let mut ranges = Vec::new();
    let mut start_primary_key = request.start_primary_key.clone();
    while let Some(part) = parts.next() {
        let stop_primary_key = match (&part.keys.to, parts.peek()) {
            (Some(to), Some(_)) => {
                Some(key::from_engine(&types, &key::complete(&types, to))?.into_owned().into())
            }
            _ => request.stop_primary_key.clone(),
        };
        let next = stop_primary_key.clone();
        let size_bytes_estimates = part.bytes;
        ranges.push(KeyRange { start_primary_key, stop_primary_key, size_bytes_estimates });
        start_primary_key = next;
    }
    Ok(ranges)
}
