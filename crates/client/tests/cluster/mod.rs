//! Clusters to test against: a Kudu door in this process, always; and the one whose master's address is in
//! `ORIBI_KUDU_MASTER`, Oribi's or Kudu's, if it is set.

#![allow(dead_code)]

use oribi_client::Client;
use oribi_doors::kudu::{KuduAddresses, KuduDoor, KuduOptions};
use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_net::TlsIdentity;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Runs a test with a client of each cluster.
pub fn with_each_cluster(test: impl AsyncFn(Client)) {
    with_each_master(async |master| test(Client::connect(&[master]).await.unwrap()).await);
}

/// Runs a test with the address of each cluster's master.
pub fn with_each_master(test: impl AsyncFn(String)) {
    with_cluster(&test);
    if let Ok(master) = std::env::var("ORIBI_KUDU_MASTER") {
        println!("master {master}");
        Runtime::new().unwrap().block_on(test(master));
    }
}

/// Runs a test with the address of a Kudu door in this process.
pub fn with_cluster(test: impl AsyncFn(String)) {
    with_door(None, test);
}

/// As [`with_cluster`], of a door that has the certificate of the door's own tests.
pub fn with_encrypting_cluster(test: impl AsyncFn(String)) {
    let certificate = include_bytes!("../../../net/tests/tls/certificate.pem");
    let key = include_bytes!("../../../net/tests/tls/key.pem");
    with_door(Some(TlsIdentity::from_pem(certificate, key).unwrap()), test);
}

fn with_door(identity: Option<TlsIdentity>, test: impl AsyncFn(String)) {
    let runtime = Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(Env::real(), dir.path(), EngineOptions::default()).unwrap();
    let (shutdown, shut) = watch::channel(false);
    let any = "127.0.0.1:0".parse().unwrap();
    let addresses = KuduAddresses { master: Some(any), tserver: Some(any) };
    let options = KuduOptions { threads: 2, identity, ..KuduOptions::new([7; 16]) };
    runtime.block_on(async {
        let door = KuduDoor::start(addresses, &engine, options, shut).unwrap();
        test(door.master_addr().unwrap().to_string()).await;
        shutdown.send_replace(true);
        door.join().await.unwrap();
    });
    engine.close().unwrap();
}
