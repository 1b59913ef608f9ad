//! The tablet server's service: writes and scans.

pub(super) mod ahead;
mod apply;
mod block;
mod buffers;
mod checksum;
mod keys;
pub(super) mod leases;
mod plan;
mod rows;
mod scan;
mod scanner;
pub(super) mod scanners;
mod snapshot;
mod source;
mod spec;
mod tablets;
#[cfg(test)]
mod testing;
pub(super) mod write;

use super::call::Call;
use super::node::Node;
use super::services::{Handled, at_once, blocking};
use oribi_kudu::messages::tserver::{PingRequest, PingResponse};
use oribi_kudu::service::TabletServerMethod;
use std::sync::Arc;
use write::RowPlans;

pub(super) fn handle(
    node: &Arc<Node>,
    plans: &mut RowPlans,
    method: TabletServerMethod,
    call: Call,
) -> Handled {
    let answer = match method {
        TabletServerMethod::Write => return write::handle(node, plans, call),
        TabletServerMethod::Scan => return scan::handle(node, call),
        TabletServerMethod::Checksum => return checksum::handle(node, call),
        TabletServerMethod::SplitKeyRange => return blocking(node, call, tablets::split),
        TabletServerMethod::ScannerKeepAlive => at_once(&call, |request| scan::keep_alive(node, &request)),
        TabletServerMethod::ListTablets => at_once(&call, |request| tablets::list(node, &request)),
        TabletServerMethod::Ping => at_once(&call, |_: PingRequest| PingResponse {}),
    };
    Handled::Now(answer)
}
