//! What no server answers ends in time, and says how often it was tried.
#![allow(clippy::unwrap_used)]

mod fake_server;

use fake_server::{FakeServer, Fault};
use oribi_client::{Client, ClientOptions, PartialRow, SessionOptions};
use oribi_types::ErrorKind;
use std::time::Duration;
use tokio::net::TcpListener;

/// Time for several attempts, on a machine that is busy with others as well.
fn options() -> ClientOptions {
    ClientOptions {
        operation_timeout: Duration::from_secs(3),
        rpc_timeout: Duration::from_millis(200),
        ..ClientOptions::default()
    }
}

#[tokio::test]
async fn a_master_that_says_nothing() {
    // The system takes the connections, and nobody reads from them.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let error = Client::connect_with(&[&address], options()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let message = error.message();
    assert!(message.starts_with("gave up after ") && !message.starts_with("gave up after 1 "), "{message}");
    // Within what was left: the last attempt may have had less than the others.
    assert!(message.contains(&format!("connecting to {address}: no answer within ")), "{message}");
}

#[tokio::test]
async fn a_tablet_server_that_is_always_cut_off() {
    let server = FakeServer::start(2, &[]).await;
    let client = Client::connect_with(&[&server.address], options()).await.unwrap();
    let table = client.open_table("t").await.unwrap();
    server.state().faults.extend([Fault::DropAfter].repeat(10_000));
    let mut session = client.session(SessionOptions::default());
    let mut row = session.insert(&table);
    row.set_i64(0, 1).unwrap();
    row.apply().await.unwrap();
    let error = session.flush().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("gave up after "), "{error}");
    let error = table.scan().scanner().next_batch().await.unwrap_err();
    assert!(error.message().contains("gave up after "), "{error}");
    // The row was written by the first attempt, once; that is not known here.
    let state = server.state();
    assert_eq!((state.writes, state.rows.len()), (1, 1));
    assert!(state.faults.len() < 10_000 - 3);
}
