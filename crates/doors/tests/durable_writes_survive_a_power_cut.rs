//! What the Couchbase door has acknowledged as persisted is on the disk, whatever the table's durability says.
#![allow(clippy::unwrap_used)]

mod frames;

use frames::{Client, flexible, frame};
use oribi_doors::couchbase::cluster::ClusterMap;
use oribi_doors::couchbase::sasl::Users;
use oribi_doors::couchbase::{CouchbaseDoor, CouchbaseOptions};
use oribi_engine::{Engine, EngineOptions};
use oribi_net::{ClientLimits, Network};
use oribi_session::kv::{Got, KeyValue, KvLimits};
use oribi_sim::{SimFiles, seeds};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;

const WRITES: u32 = 20;

fn open(files: &SimFiles) -> Arc<Engine> {
    Engine::open(oribi_sim::env(files), Path::new("/data"), EngineOptions::default()).unwrap()
}

/// Writes through the door, and returns what the disk holds after a power cut right behind the last answer.
fn write_and_cut(seed: u64) -> SimFiles {
    let files = SimFiles::new();
    let engine = open(&files);
    let (shutdown, shut) = watch::channel(false);
    let options = CouchbaseOptions {
        kv: KvLimits::default(),
        clients: ClientLimits::default(),
        users: Users::new([]).unwrap(),
        network: Network::default(),
        threads: 1,
    };
    let addr = "127.0.0.1:0".parse().unwrap();
    let door =
        CouchbaseDoor::start(addr, &engine, &Arc::default(), options, ClusterMap::single, shut).unwrap();
    let mut client = Client::new(door.local_addr());
    assert_eq!(client.ask(&frame(0x89, b"", b"default", b"")).status, 0);
    for i in 0..WRITES {
        let level = 2 + (i % 2) as u8;
        let key = i.to_be_bytes();
        assert_eq!(client.ask(&flexible(0x01, &[0x11, level], &[0; 8], &key, b"kept")).status, 0);
        let parts = flexible(0xd1, &[0x11, level], &[0x01], b"parts", &spec(i));
        assert_eq!(client.ask(&parts).status, 0);
    }
    let cut = files.crash(seed);
    shutdown.send_replace(true);
    tokio::runtime::Runtime::new().unwrap().block_on(door.join()).unwrap();
    engine.close().unwrap();
    cut
}

/// Sets the member `n` to a number.
fn spec(number: u32) -> Vec<u8> {
    let value = number.to_string();
    let mut spec = vec![0xc8, 0, 0, 1];
    spec.extend((value.len() as u32).to_be_bytes());
    spec.push(b'n');
    spec.extend(value.as_bytes());
    spec
}

#[test]
fn durable_writes_survive_a_power_cut() {
    seeds(5, |seed| {
        let engine = open(&write_and_cut(seed));
        let kv = KeyValue::new(engine.clone(), KvLimits::default());
        let mut round = kv.round(true);
        for i in 0..WRITES {
            let found = round.get(&i.to_be_bytes(), |document| document.value == b"kept").unwrap();
            assert_eq!(found, Got::Found(true), "write {i}");
        }
        let last = format!("{{\"n\":{}}}", WRITES - 1);
        let parts = round.get(b"parts", |document| document.value == last.as_bytes()).unwrap();
        assert_eq!(parts, Got::Found(true));
        drop(round);
        engine.close().unwrap();
    });
}
