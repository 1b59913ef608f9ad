//! What the door says of itself: to clients that look for masters and tablet servers, and to `ksck`, which asks each server
//! on its own port.

use super::call::{Answer, Call};
use super::node::{Node, Role as Which};
use super::services::at_once;
use super::status::short;
use bytes::Bytes;
use oribi_kudu::messages::admin::{QuiesceTabletServerRequest, QuiesceTabletServerResponse};
use oribi_kudu::messages::common::{MemberType, NodeInstance, Role, ServerEntry, ServerRegistration};
use oribi_kudu::messages::consensus::{
    ConsensusState, GetConsensusStateRequest, GetConsensusStateResponse, RaftConfig, RaftPeer,
    ReplacementScheme, ReplicaManagementInfo, TabletConsensusInfo,
};
use oribi_kudu::messages::generic::{
    GetFlagsRequest, GetFlagsResponse, GetStatusRequest, GetStatusResponse, ServerClockRequest,
    ServerClockResponse, ServerStatus, SetFlagRequest, SetFlagResponse, SetFlagResult, VersionInfo,
};
use oribi_kudu::messages::master::{
    ConnectToMasterResponse, GetMasterRegistrationResponse, ListMastersResponse, ListTabletServersResponse,
    TabletServerEntry, TabletServerState,
};
use oribi_kudu::service::{ConsensusMethod, GenericMethod, TabletServerAdminMethod};
use oribi_types::Timestamp;

/// What clients see as the version of both servers.
const VERSION: &str = concat!("oribi ", env!("CARGO_PKG_VERSION"));
/// The one tablet of a master.
const MASTER_TABLET: &[u8] = b"00000000000000000000000000000000";

pub(super) fn generic(node: &Node, which: Which, method: GenericMethod, call: &Call) -> Answer {
    match method {
        GenericMethod::GetStatus => at_once(call, |_: GetStatusRequest| GetStatusResponse {
            status: ServerStatus {
                node_instance: instance(node, which),
                bound_rpc_addresses: vec![node.addresses.of(which)],
                version_info: Some(VersionInfo {
                    version_string: Some(VERSION.to_owned()),
                    ..VersionInfo::default()
                }),
                ..ServerStatus::default()
            },
            error: None,
        }),
        // Kudu's settings are not ours.
        GenericMethod::GetFlags => at_once(call, |_: GetFlagsRequest| GetFlagsResponse::default()),
        GenericMethod::SetFlag => at_once(call, |request: SetFlagRequest| SetFlagResponse {
            result: SetFlagResult::NoSuchFlag.into(),
            msg: Some(format!("there is no flag {}", short(&request.flag))),
            old_value: None,
        }),
        GenericMethod::ServerClock => at_once(call, |_: ServerClockRequest| {
            let view = node.engine.read_view();
            ServerClockResponse { timestamp: Some(view.ts.max(Timestamp::from_micros(view.now_micros)).0) }
        }),
    }
}

pub(super) fn consensus(node: &Node, which: Which, method: ConsensusMethod, call: &Call) -> Answer {
    match method {
        ConsensusMethod::GetConsensusState => at_once(call, |request| consensus_state(node, which, &request)),
    }
}

/// Every tablet has one replica, which leads.
fn consensus_state(
    node: &Node,
    which: Which,
    request: &GetConsensusStateRequest,
) -> GetConsensusStateResponse {
    let uuid = node.uuid(which);
    let peer = RaftPeer {
        permanent_uuid: Some(uuid.clone()),
        member_type: Some(MemberType::Voter.into()),
        last_known_addr: Some(node.addresses.of(which)),
    };
    let info = |tablet_id: Bytes| TabletConsensusInfo {
        tablet_id,
        cstate: Some(ConsensusState {
            current_term: 1,
            leader_uuid: Some(String::from_utf8_lossy(&uuid).into_owned()),
            committed_config: RaftConfig { opid_index: Some(1), peers: vec![peer.clone()] },
            pending_config: None,
        }),
    };
    let tablets = match which {
        Which::Master => vec![info(Bytes::from_static(MASTER_TABLET))],
        Which::TabletServer => {
            let wanted = |id: &Bytes| request.tablet_ids.is_empty() || request.tablet_ids.contains(id);
            node.directory().tablet_ids().filter(|id| wanted(id)).map(info).collect()
        }
    };
    let scheme = ReplacementScheme::PrepareReplacementBeforeEviction;
    GetConsensusStateResponse {
        tablets,
        error: None,
        replica_management_info: Some(ReplicaManagementInfo { replacement_scheme: Some(scheme.into()) }),
    }
}

pub(super) fn admin(node: &Node, method: TabletServerAdminMethod, call: &Call) -> Answer {
    match method {
        // There is nowhere to go for what it leads: it is never quiescing.
        TabletServerAdminMethod::Quiesce => {
            at_once(call, |_: QuiesceTabletServerRequest| QuiesceTabletServerResponse {
                error: None,
                is_quiescing: Some(false),
                num_active_scanners: Some(node.scanners.len() as i32),
                num_leaders: Some(node.directory().tablet_ids().count() as i32),
            })
        }
    }
}

pub(super) fn connect_to_master(node: &Node) -> ConnectToMasterResponse {
    ConnectToMasterResponse {
        role: Some(Role::Leader.into()),
        master_addrs: vec![node.addresses.of(Which::Master)],
        cluster_id: Some(cluster_id(node)),
        ..ConnectToMasterResponse::default()
    }
}

pub(super) fn master_registration(node: &Node) -> GetMasterRegistrationResponse {
    GetMasterRegistrationResponse {
        instance_id: instance(node, Which::Master),
        registration: Some(registration(node, Which::Master)),
        role: Some(Role::Leader.into()),
        error: None,
        cluster_id: Some(cluster_id(node)),
        member_type: Some(MemberType::Voter.into()),
    }
}

pub(super) fn list_masters(node: &Node) -> ListMastersResponse {
    let master = ServerEntry {
        error: None,
        instance_id: Some(instance(node, Which::Master)),
        registration: Some(registration(node, Which::Master)),
        role: Some(Role::Leader.into()),
        cluster_id: Some(cluster_id(node)),
        member_type: Some(MemberType::Voter.into()),
    };
    ListMastersResponse { masters: vec![master], error: None }
}

pub(super) fn list_tablet_servers(node: &Node) -> ListTabletServersResponse {
    let server = TabletServerEntry {
        instance_id: instance(node, Which::TabletServer),
        registration: Some(registration(node, Which::TabletServer)),
        millis_since_heartbeat: Some(0),
        location: None,
        state: Some(TabletServerState::None.into()),
    };
    ListTabletServersResponse { error: None, servers: vec![server] }
}

fn cluster_id(node: &Node) -> String {
    String::from_utf8_lossy(&node.uuid(Which::Master)).into_owned()
}

fn instance(node: &Node, which: Which) -> NodeInstance {
    NodeInstance { permanent_uuid: node.uuid(which), instance_seqno: node.started_micros as i64 }
}

fn registration(node: &Node, which: Which) -> ServerRegistration {
    ServerRegistration {
        rpc_addresses: vec![node.addresses.of(which)],
        http_addresses: Vec::new(),
        software_version: Some(VERSION.to_owned()),
        https_enabled: Some(false),
        start_time: Some((node.started_micros / 1_000_000) as i64),
    }
}
