//! The master's service: tables, and where their tablets are.

mod alter;
mod locate;
mod table;

use super::call::Call;
use super::node::Node;
use super::server;
use super::services::{Handled, at_once, blocking};
use oribi_kudu::messages::master::{
    ConnectToMasterRequest, GetMasterRegistrationRequest, ListMastersRequest, ListTabletServersRequest,
    PingRequest, PingResponse,
};
use oribi_kudu::service::MasterMethod;
use std::sync::Arc;

pub(super) fn handle(node: &Arc<Node>, method: MasterMethod, call: Call) -> Handled {
    let answer = match method {
        // Those that write to the disk.
        MasterMethod::CreateTable => {
            let user = call.user.clone();
            return blocking(node, call, move |node, request| table::create(node, &user, request));
        }
        MasterMethod::DeleteTable => return blocking(node, call, table::delete),
        MasterMethod::AlterTable => return blocking(node, call, alter::alter),
        MasterMethod::IsCreateTableDone => at_once(&call, |request| table::is_create_done(node, &request)),
        MasterMethod::IsAlterTableDone => at_once(&call, |request| alter::is_done(node, &request)),
        MasterMethod::GetTableLocations => at_once(&call, |request| locate::by_key(node, &request)),
        MasterMethod::GetTabletLocations => at_once(&call, |request| locate::by_id(node, &request)),
        MasterMethod::GetTableSchema => at_once(&call, |request| table::schema(node, &request)),
        MasterMethod::ListTables => at_once(&call, |request| table::list(node, &request)),
        MasterMethod::GetTableStatistics => at_once(&call, |request| table::statistics(node, &request)),
        MasterMethod::ConnectToMaster => {
            at_once(&call, |_: ConnectToMasterRequest| server::connect_to_master(node))
        }
        MasterMethod::ListTabletServers => {
            at_once(&call, |_: ListTabletServersRequest| server::list_tablet_servers(node))
        }
        MasterMethod::ListMasters => at_once(&call, |_: ListMastersRequest| server::list_masters(node)),
        MasterMethod::GetMasterRegistration => {
            at_once(&call, |_: GetMasterRegistrationRequest| server::master_registration(node))
        }
        MasterMethod::Ping => at_once(&call, |_: PingRequest| PingResponse {}),
    };
    Handled::Now(answer)
}
