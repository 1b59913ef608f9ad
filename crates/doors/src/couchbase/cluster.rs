//! The cluster map: which node has which vbucket, as clients are told.
//!
//! A document belongs to one of 1,024 vbuckets, by a checksum of its key that the client computes; requests name it.
//! Today one node has them all. The map can hold several nodes, and a request for a vbucket of another is refused with
//! the map, so that the client goes there.

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::watch;

pub const VBUCKETS: usize = 1024;

/// A node, as clients reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `None`: the host by which the client has reached this node.
    pub host: Option<String>,
    pub port: u16,
}

/// Which version of the map this is: a newer one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MapVersion {
    pub epoch: i64,
    pub revision: i64,
}

/// One version of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    pub version: MapVersion,
    pub nodes: Vec<Node>,
    /// Position in `nodes` of the node that this process is.
    pub this: usize,
    /// Position in `nodes` of the owner of each vbucket.
    pub owners: Vec<usize>,
}

/// What a bucket of this server offers: extended attributes, replicas and range scans are not among it.
const CAPABILITIES: [&str; 8] = [
    "collections",
    "durableWrite",
    "preserveExpiry",
    "touch",
    "cbhello",
    "cccp",
    "nodesExt",
    // From all of no replicas, and the document itself.
    "subdoc.ReplicaRead",
];

impl ClusterMap {
    /// This node has everything.
    pub fn single(port: u16) -> Self {
        ClusterMap {
            version: MapVersion { epoch: 1, revision: 1 },
            nodes: vec![Node { host: None, port }],
            this: 0,
            owners: vec![0; VBUCKETS],
        }
    }

    /// Whether requests for `vbucket` are executed here.
    pub fn is_mine(&self, vbucket: u16) -> bool {
        self.owners.get(usize::from(vbucket)) == Some(&self.this)
    }

    /// What a client that has selected `bucket`, or none, is told. `uuid` tells a bucket from one of the same name
    /// that comes after it.
    pub fn to_json(&self, bucket: Option<(&str, &str)>) -> String {
        let mut config = json!({
            "rev": self.version.revision,
            "revEpoch": self.version.epoch,
            "nodesExt": self.nodes.iter().enumerate().map(|(i, node)| self.node(i, node)).collect::<Vec<_>>(),
            "clusterCapabilitiesVer": [1, 0],
            "clusterCapabilities": {},
        });
        if let Some((name, uuid)) = bucket {
            let address = |node: &Node| format!("{}:{}", node.host.as_deref().unwrap_or("$HOST"), node.port);
            let more = json!({
                "name": name,
                "uuid": uuid,
                "nodeLocator": "vbucket",
                "bucketCapabilitiesVer": "",
                "bucketCapabilities": CAPABILITIES,
                "nodes": self.nodes.iter().map(|node| {
                    json!({ "hostname": address(node), "ports": { "direct": node.port } })
                }).collect::<Vec<_>>(),
                "vBucketServerMap": {
                    "hashAlgorithm": "CRC",
                    "numReplicas": 0,
                    "serverList": self.nodes.iter().map(address).collect::<Vec<_>>(),
                    "vBucketMap": self.owners.iter().map(|owner| [*owner]).collect::<Vec<_>>(),
                },
            });
            let (Value::Object(config), Value::Object(more)) = (&mut config, more) else {
                unreachable!("both are objects");
            };
            config.extend(more);
        }
        config.to_string()
    }

    fn node(&self, i: usize, node: &Node) -> Value {
        // Management is not there, and says so; without it Go's and Java's SDKs take no map.
        let mut shown = json!({ "services": { "kv": node.port, "mgmt": node.port } });
        if i == self.this {
            shown["thisNode"] = true.into();
        }
        if let Some(host) = &node.host {
            shown["hostname"] = host.as_str().into();
        }
        shown
    }
}

/// The map of a door: read by its connections, replaced by whoever changes the cluster.
#[derive(Clone)]
pub struct Cluster(Arc<State>);

struct State {
    map: ArcSwap<ClusterMap>,
    /// How often the map was replaced.
    changes: watch::Sender<u64>,
}

impl Cluster {
    pub fn new(map: ClusterMap) -> Self {
        Cluster(Arc::new(State { map: ArcSwap::from_pointee(map), changes: watch::Sender::new(0) }))
    }

    pub fn map(&self) -> Arc<ClusterMap> {
        self.0.map.load_full()
    }

    /// Puts a newer map in the place of the one before, and has it pushed; one that is not newer is left aside.
    pub fn replace(&self, map: ClusterMap) -> bool {
        self.0.changes.send_if_modified(|changes| {
            let newer = map.version > self.map().version;
            if newer {
                self.0.map.store(Arc::new(map));
                *changes += 1;
            }
            newer
        })
    }

    /// Changes with every replacement.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_of_one_node_is_complete() {
        let map = ClusterMap::single(11210);
        assert!(map.is_mine(0) && map.is_mine(1023) && !map.is_mine(1024));
        let config: Value = serde_json::from_str(&map.to_json(Some(("default", "00ff")))).unwrap();
        assert_eq!(config["nodeLocator"], "vbucket");
        assert_eq!(
            config["nodesExt"],
            json!([{ "services": { "kv": 11210, "mgmt": 11210 }, "thisNode": true }])
        );
        assert_eq!(config["vBucketServerMap"]["serverList"], json!(["$HOST:11210"]));
        assert_eq!(config["vBucketServerMap"]["vBucketMap"].as_array().unwrap().len(), VBUCKETS);
        assert_eq!((&config["name"], &config["uuid"]), (&json!("default"), &json!("00ff")));
        let without: Value = serde_json::from_str(&map.to_json(None)).unwrap();
        assert!(without.get("name").is_none() && without.get("nodesExt").is_some());
    }

    #[test]
    fn only_a_newer_map_replaces_one() {
        let cluster = Cluster::new(ClusterMap::single(1));
        let changes = cluster.changes();
        assert!(!cluster.replace(ClusterMap::single(2)));
        assert!(!changes.has_changed().unwrap());
        let version = MapVersion { epoch: 2, revision: 0 };
        assert!(cluster.replace(ClusterMap { version, ..ClusterMap::single(2) }));
        assert!(changes.has_changed().unwrap());
        assert_eq!(cluster.map().nodes[0].port, 2);
    }
}
