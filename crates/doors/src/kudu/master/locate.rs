//! Where tablets are: all on this server, which leads them.

use crate::kudu::directory::TabletEntry;
use crate::kudu::node::{Node, Role as Which};
use crate::kudu::status;
use bytes::Bytes;
use oribi_kudu::messages::common::Role;
use oribi_kudu::messages::master::{
    GetTableLocationsRequest, GetTableLocationsResponse, GetTabletLocationsRequest,
    GetTabletLocationsResponse, InternedReplica, PartitionKey, Replica, TabletLocationError, TabletLocations,
    TsInfo,
};
use oribi_types::Result;
use std::borrow::Cow;

/// How long clients may rely on what they are told. They ask again when a tablet is not found.
const TTL_MILLIS: u32 = 300_000;

pub(super) fn by_key(node: &Node, request: &GetTableLocationsRequest) -> GetTableLocationsResponse {
    tablets_from_key(node, request).unwrap_or_else(|error| GetTableLocationsResponse {
        error: Some(status::master(&error)),
        ..GetTableLocationsResponse::default()
    })
}

fn tablets_from_key(node: &Node, request: &GetTableLocationsRequest) -> Result<GetTableLocationsResponse> {
    let directory = node.directory();
    let shape = directory.table(&request.table)?.shape()?;
    let start = partition_key(&request.key_start, &request.partition_key_start).unwrap_or_default();
    let end = partition_key(&request.key_end, &request.partition_key_end).filter(|end| !end.is_empty());
    let places = Places::new(node, request.intern_ts_infos_in_response());
    let tablets = shape.tablets_from(&start);
    let count = tablets.iter().take_while(|t| end.as_ref().is_none_or(|end| t.start() < &end[..])).count();
    let tablets = &tablets[..count.min(request.max_returned_locations() as usize)];
    Ok(GetTableLocationsResponse {
        error: None,
        tablet_locations: tablets.iter().map(|tablet| places.of(tablet)).collect(),
        ttl_millis: Some(TTL_MILLIS),
        ts_infos: places.interned(),
    })
}

/// The key in its two parts wins over that in one.
fn partition_key<'k>(parts: &'k Option<PartitionKey>, whole: &'k Option<Bytes>) -> Option<Cow<'k, [u8]>> {
    match parts {
        Some(key) => {
            let (hash, range) = (key.hash_key.as_deref(), key.range_key.as_deref());
            Some(Cow::Owned([hash.unwrap_or_default(), range.unwrap_or_default()].concat()))
        }
        None => whole.as_deref().map(Cow::Borrowed),
    }
}

pub(super) fn by_id(node: &Node, request: &GetTabletLocationsRequest) -> GetTabletLocationsResponse {
    let directory = node.directory();
    let places = Places::new(node, request.intern_ts_infos_in_response());
    let mut response = GetTabletLocationsResponse::default();
    for id in &request.tablet_ids {
        match directory.tablet(id) {
            Ok((_, tablet)) => response.tablet_locations.push(places.of(tablet)),
            Err(error) => response
                .errors
                .push(TabletLocationError { tablet_id: id.clone(), status: status::app(&error) }),
        }
    }
    response.ts_infos = places.interned();
    response
}

/// The one server there is, once for an answer or once for each tablet, as the client likes.
struct Places {
    server: TsInfo,
    interns: bool,
}

impl Places {
    fn new(node: &Node, interns: bool) -> Self {
        let server = TsInfo {
            permanent_uuid: node.uuid(Which::TabletServer),
            rpc_addresses: vec![node.addresses.of(Which::TabletServer)],
            location: None,
            unix_domain_socket_path: None,
        };
        Places { server, interns }
    }

    fn of(&self, tablet: &TabletEntry) -> TabletLocations {
        let role = Role::Leader.into();
        let mut locations = TabletLocations {
            tablet_id: tablet.id.clone(),
            deprecated_stale: Some(false),
            partition: Some(tablet.partition.clone()),
            ..TabletLocations::default()
        };
        if self.interns {
            locations.interned_replicas =
                vec![InternedReplica { ts_info_idx: 0, role, dimension_label: None }];
        } else {
            let ts_info = self.server.clone();
            locations.deprecated_replicas = vec![Replica { ts_info, role, dimension_label: None }];
        }
        locations
    }

    fn interned(self) -> Vec<TsInfo> {
        if self.interns { vec![self.server] } else { Vec::new() }
    }
}
