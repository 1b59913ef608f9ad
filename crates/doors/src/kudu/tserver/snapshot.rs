//! Which moment a scan sees.

use super::leases::Now;
use crate::kudu::node::Node;
use crate::kudu::status;
use oribi_engine::Snapshot;
use oribi_kudu::messages::common::StatusCode;
use oribi_kudu::messages::tserver::{
    NewScanRequest, ReadMode, TabletServerError, TabletServerErrorCode as Code,
};
use oribi_types::{Error, Result, Timestamp};
use std::sync::Arc;

/// A scan's snapshot, and whether the client is told its timestamp.
pub(super) struct Chosen {
    pub snapshot: Arc<Snapshot>,
    pub is_told: bool,
}

pub(super) fn choose(node: &Node, request: &NewScanRequest) -> Result<Chosen, TabletServerError> {
    let newest = || Arc::new(node.engine.snapshot());
    let invalid = |error: Error| status::tserver(&error, Code::InvalidSnapshot);
    let observe = || match request.propagated_timestamp {
        Some(seen) => node.engine.observe(Timestamp(seen)).map_err(invalid),
        None => Ok(()),
    };
    match (request.read_mode(), request.snap_timestamp) {
        (ReadMode::ReadLatest, _) => Ok(Chosen { snapshot: newest(), is_told: false }),
        (ReadMode::ReadYourWrites, _) => {
            observe()?;
            Ok(Chosen { snapshot: newest(), is_told: true })
        }
        (ReadMode::ReadAtSnapshot, named) => {
            observe()?;
            let snapshot = match named {
                None => {
                    let snapshot = newest();
                    node.leases.keep(&snapshot);
                    snapshot
                }
                Some(ts) => at(node, ts)?,
            };
            Ok(Chosen { snapshot, is_told: true })
        }
        (ReadMode::Unknown, _) => {
            let why = "a read mode that is not known";
            Err(TabletServerError::new(Code::InvalidScanSpec, StatusCode::NotSupported, why))
        }
    }
}

/// The snapshot that a client names, which can be named for another while.
fn at(node: &Node, ts: u64) -> Result<Arc<Snapshot>, TabletServerError> {
    let named = node.leases.name(&node.engine, Timestamp(ts), Now::of(&node.engine));
    let named = named.map_err(|error| status::tserver(&error, Code::InvalidSnapshot))?;
    named.ok_or_else(|| {
        let why = format!("snapshot timestamp {ts} is earlier than the history that is kept");
        TabletServerError::new(Code::InvalidSnapshot, StatusCode::InvalidArgument, why)
    })
}
