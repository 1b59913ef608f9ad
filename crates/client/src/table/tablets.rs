//! Where a table's tablets are: asked once, for many at a time, and again when a server does not know its tablet.

use super::Shared as Table;
use crate::rpc::Attempts;
use bytes::Bytes;
use oribi_kudu::messages::common::{HostPort, Role};
use oribi_kudu::messages::master::{
    GetTableLocationsRequest, GetTableLocationsResponse, PartitionKey, TabletLocations, TsInfo,
};
use oribi_kudu::service::MasterMethod;
use oribi_types::{Error, Result};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// What is known of the space of partition keys.
pub(crate) struct TabletMap {
    /// How many alterations the client has made.
    alterations: Arc<AtomicU64>,
    /// In order, without overlaps.
    pieces: RwLock<Vec<Piece>>,
    /// Held during a look-up: who wants the same tablets waits for its result.
    asking: tokio::sync::Mutex<()>,
}

/// From a key, inclusive, to another one, exclusive; an empty end is the end of all keys.
#[derive(Clone)]
struct Piece {
    start: Bytes,
    end: Bytes,
    covered: Covered,
}

#[derive(Clone)]
enum Covered {
    By(Arc<Tablet>),
    /// By none, which is believed for a while, and until a table is altered.
    Not {
        until: Instant,
        alterations: u64,
    },
}

pub(crate) struct Tablet {
    pub(crate) id: Bytes,
    pub(crate) start: Bytes,
    pub(crate) end: Bytes,
    /// One for each hash dimension.
    pub(crate) hash_buckets: Vec<u32>,
    /// `None`: to be asked for.
    leader: Mutex<Option<HostPort>>,
}

/// Where a partition key belongs.
pub(crate) enum Located {
    In(Arc<Tablet>),
    /// In no tablet, and neither is any key before `end`; empty if there is none.
    Nowhere {
        end: Bytes,
    },
}

/// How many tablets are asked for at a time. A table seldom has more, and an answer about so many takes some kilobytes.
const LOCATIONS_MAX: u32 = 128;

/// How long it is believed at most that no tablet has a key. Until then rows fail that could be written after another client
/// added a range, and each of the others costs no look-up.
const NOT_COVERED_MAX: Duration = Duration::from_secs(5);

impl Tablet {
    #[cfg(test)]
    pub(crate) fn between(start: Bytes, end: Bytes) -> Self {
        Tablet { id: Bytes::new(), start, end, hash_buckets: Vec::new(), leader: Mutex::default() }
    }

    /// Its leader is not where we thought.
    pub(crate) fn forget_leader(&self) {
        *self.leader.lock() = None;
    }
}

impl TabletMap {
    pub(crate) fn new(alterations: Arc<AtomicU64>) -> Self {
        TabletMap { alterations, pieces: RwLock::default(), asking: tokio::sync::Mutex::default() }
    }

    /// The tablet of a key, if it is known.
    pub(crate) fn find(&self, partition_key: &[u8]) -> Option<Located> {
        let pieces = self.pieces.read();
        let after = pieces.partition_point(|piece| piece.start <= partition_key);
        let piece = pieces[..after].last()?;
        if !contains(&piece.start, &piece.end, partition_key) {
            return None;
        }
        match &piece.covered {
            Covered::By(tablet) => Some(Located::In(tablet.clone())),
            Covered::Not { until, alterations } => {
                let is_believed =
                    Instant::now() < *until && *alterations == self.alterations.load(Ordering::Relaxed);
                is_believed.then(|| Located::Nowhere { end: piece.end.clone() })
            }
        }
    }

    /// The tablet of a key. Asks the master if it is not known.
    ///
    /// # Errors
    /// Those of the call.
    pub(crate) async fn locate(
        &self,
        table: &Table,
        partition_key: &[u8],
        attempts: &mut Attempts,
    ) -> Result<Located> {
        if let Some(located) = self.find(partition_key) {
            return Ok(located);
        }
        let _asking = self.asking.lock().await;
        if let Some(located) = self.find(partition_key) {
            return Ok(located);
        }
        if self.pieces.read().is_empty() {
            // From the first on: few tables have more tablets than one answer.
            self.ask(table, &[], attempts).await?;
        }
        if let Some(located) = self.find(partition_key) {
            return Ok(located);
        }
        // More than once, if a table is altered meanwhile.
        for _ in 0..3 {
            self.ask(table, partition_key, attempts).await?;
            if let Some(located) = self.find(partition_key) {
                return Ok(located);
            }
        }
        Err(Error::corrupt("the master tells of other tablets than asked"))
    }

    /// Where a tablet's leader is; `None` if the tablet is no more.
    ///
    /// # Errors
    /// `Unavailable` if the tablet has no leader; those of the call.
    pub(crate) async fn leader(
        &self,
        table: &Table,
        tablet: &Arc<Tablet>,
        attempts: &mut Attempts,
    ) -> Result<Option<HostPort>> {
        let known = || tablet.leader.lock().clone();
        if let Some(leader) = known() {
            return Ok(Some(leader));
        }
        let _asking = self.asking.lock().await;
        if let Some(leader) = known() {
            return Ok(Some(leader));
        }
        self.ask(table, &tablet.start, attempts).await?;
        match self.find(&tablet.start) {
            Some(Located::In(found)) if Arc::ptr_eq(&found, tablet) => {
                let id = String::from_utf8_lossy(&tablet.id);
                let no_leader = || Error::unavailable(format!("tablet {id} has no leader"));
                known().map(Some).ok_or_else(no_leader)
            }
            _ => Ok(None),
        }
    }

    async fn ask(&self, table: &Table, key: &[u8], attempts: &mut Attempts) -> Result<()> {
        let hash_bytes = table.hash_key_bytes().min(key.len());
        let request = GetTableLocationsRequest {
            table: table.identifier(),
            partition_key_start: Some(Bytes::copy_from_slice(key)),
            key_start: Some(PartitionKey {
                hash_key: Some(Bytes::copy_from_slice(&key[..hash_bytes])),
                range_key: Some(Bytes::copy_from_slice(&key[hash_bytes..])),
            }),
            max_returned_locations: Some(LOCATIONS_MAX),
            intern_ts_infos_in_response: Some(true),
            ..GetTableLocationsRequest::default()
        };
        let client = &table.client.shared;
        let alterations = self.alterations.load(Ordering::Relaxed);
        let response = client.master(MasterMethod::GetTableLocations, &[], &request, attempts).await?;
        self.install(key, response, alterations);
        Ok(())
    }

    /// Takes over an answer about the tablets from `key` on. Tablets that are known already stay the same object.
    fn install(&self, key: &[u8], response: GetTableLocationsResponse, alterations: u64) {
        let is_last = response.tablet_locations.len() < LOCATIONS_MAX as usize;
        let ttl = Duration::from_millis(response.ttl_millis().into());
        let until = Instant::now() + ttl.min(NOT_COVERED_MAX);
        let not = |start, end| Piece { start, end, covered: Covered::Not { until, alterations } };
        let mut news: Vec<Piece> = Vec::new();
        // What lies before the first tablet is covered by none, if that begins after the key.
        let mut covered_to = Some(Bytes::new());
        let mut pieces = self.pieces.write();
        for (i, location) in response.tablet_locations.iter().enumerate() {
            let partition = location.partition.clone().unwrap_or_default();
            let (start, end) = (
                partition.partition_key_start.unwrap_or_default(),
                partition.partition_key_end.unwrap_or_default(),
            );
            let is_floor = i == 0 && start <= key;
            if let Some(covered_to) = covered_to.filter(|to| !is_floor && *to < start) {
                news.push(not(covered_to, start.clone()));
            }
            covered_to = Some(end.clone()).filter(|end| !end.is_empty());
            let tablet = known(&pieces, location, &start, &end, &partition.hash_buckets);
            *tablet.leader.lock() = leader(location, &response.ts_infos);
            news.push(Piece { start, end, covered: Covered::By(tablet) });
        }
        if let Some(covered_to) = covered_to.filter(|_| is_last) {
            news.push(not(covered_to, Bytes::new()));
        }
        let (Some(first), Some(last)) = (news.first(), news.last()) else { return };
        let overlaps = |piece: &Piece| {
            (last.end.is_empty() || piece.start < last.end)
                && (piece.end.is_empty() || piece.end > first.start)
        };
        pieces.retain(|piece| !overlaps(piece));
        pieces.extend(news);
        pieces.sort_unstable_by(|a, b| a.start.cmp(&b.start));
    }
}

fn contains(start: &[u8], end: &[u8], key: &[u8]) -> bool {
    start <= key && (end.is_empty() || key < end)
}

/// The tablet of these bounds and this id among `pieces`, or a new one.
fn known(
    pieces: &[Piece],
    location: &TabletLocations,
    start: &Bytes,
    end: &Bytes,
    hash_buckets: &[i32],
) -> Arc<Tablet> {
    let found = pieces.iter().find_map(|piece| match &piece.covered {
        Covered::By(tablet)
            if tablet.id == location.tablet_id && tablet.start == *start && tablet.end == *end =>
        {
            Some(tablet.clone())
        }
        _ => None,
    });
    found.unwrap_or_else(|| {
        Arc::new(Tablet {
            id: location.tablet_id.clone(),
            start: start.clone(),
            end: end.clone(),
            hash_buckets: hash_buckets.iter().map(|bucket| bucket.cast_unsigned()).collect(),
            leader: Mutex::default(),
        })
    })
}

fn leader(location: &TabletLocations, servers: &[TsInfo]) -> Option<HostPort> {
    let interned = location.interned_replicas.iter();
    let interned = interned.filter(|replica| replica.role() == Role::Leader);
    let interned = interned.filter_map(|replica| servers.get(replica.ts_info_idx as usize));
    let plain = location.deprecated_replicas.iter();
    let plain = plain.filter(|replica| replica.role() == Role::Leader).map(|replica| &replica.ts_info);
    interned.chain(plain).find_map(|server| server.rpc_addresses.first()).cloned()
}
