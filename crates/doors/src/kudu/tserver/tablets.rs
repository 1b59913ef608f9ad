//! What there is to know of tablets.

use crate::kudu::node::Node;
use crate::kudu::status;
use oribi_kudu::messages::common::Role;
use oribi_kudu::messages::tserver::{
    KeyRange, ListTabletsRequest, ListTabletsResponse, SplitKeyRangeRequest, SplitKeyRangeResponse,
    StatusAndSchema, TabletDataState, TabletServerErrorCode, TabletState, TabletStatus,
};
use std::sync::Arc;

pub(super) fn list(node: &Node, request: &ListTabletsRequest) -> ListTabletsResponse {
    let directory = node.directory();
    let mut response = ListTabletsResponse::default();
    for entry in directory.tables() {
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

/// One range: what the request asks for, undivided. Clients take that for a small tablet.
pub(super) fn split(node: &Arc<Node>, request: SplitKeyRangeRequest) -> SplitKeyRangeResponse {
    match node.directory().tablet(&request.tablet_id) {
        Ok((entry, _)) => {
            let tablets = entry.table.tablet_ids().len() as u64;
            let range = KeyRange {
                start_primary_key: request.start_primary_key,
                stop_primary_key: request.stop_primary_key,
                size_bytes_estimates: entry.table.file_bytes() / tablets.max(1),
            };
            SplitKeyRangeResponse { error: None, ranges: vec![range] }
        }
        Err(error) => {
            let error = status::tserver(&error, TabletServerErrorCode::TabletNotFound);
            SplitKeyRangeResponse { error: Some(error), ranges: Vec::new() }
        }
    }
}
