//! A client of the PostgreSQL door that takes nothing of its rows keeps its connection, until statements of others wait for what
//! it holds.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

mod fake_sql;
mod wire_client;

use fake_sql::{eventually, serve};
use oribi_doors::postgres::PostgresLimits;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire_client::{WireClient, message, parse};

fn impatient() -> PostgresLimits {
    let moment = Duration::from_millis(1);
    PostgresLimits { answer_silence_max: moment, portal_silence_max: moment, ..Default::default() }
}

#[tokio::test]
async fn rows_that_nobody_reads_end_when_others_wait() {
    let server = serve(impatient());
    let addr = server.addr;
    let running = || server.sql.running.load(Ordering::SeqCst);
    let ask = move || {
        let mut client = WireClient::connect(addr);
        client.send(&message(b'Q', b"endless\0"));
        client
    };
    let mut slow = tokio::task::spawn_blocking(ask).await.unwrap();
    let silent = tokio::task::spawn_blocking(ask).await.unwrap();
    eventually(|| running() == 2).await;
    let rows = tokio::task::spawn_blocking(move || {
        (0..20_000).for_each(|_| assert!(slow.next().is_some()));
        slow
    });
    // Neither reads from here on.
    let mut slow = rows.await.unwrap();
    assert_eq!(running(), 2, "nobody waits for them");
    server.sql.awaits_clients.store(true, Ordering::SeqCst);
    eventually(|| running() == 0).await;
    // Who reads again finds what was sent by then, and the end.
    tokio::task::spawn_blocking(move || while slow.next().is_some() {}).await.unwrap();
    drop(silent);
}

/// Has a portal of endless rows in a block, and takes one of them.
fn open_portal(addr: SocketAddr) -> WireClient {
    let mut client = WireClient::connect(addr);
    let bind = message(b'B', b"p\0s\0\0\0\0\0\0\0");
    client.send(&[message(b'Q', b"begin\0"), parse("s", "endless"), bind, go_on()].concat());
    client.until_ready(2);
    client
}

/// Asks for another row.
fn go_on() -> Vec<u8> {
    [message(b'E', b"p\0\0\0\0\x01"), message(b'S', b"")].concat()
}

#[tokio::test]
async fn portals_that_nobody_goes_on_with_end_when_others_wait() {
    let server = serve(impatient());
    let addr = server.addr;
    let running = || server.sql.running.load(Ordering::SeqCst);
    let open = move || {
        let mut client = open_portal(addr);
        client.send(&go_on());
        let answers = client.until_ready(1);
        assert_eq!(answers.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), b"DsZ");
        client
    };
    let mut client = tokio::task::spawn_blocking(open).await.unwrap();
    assert_eq!(running(), 1);
    server.sql.awaits_clients.store(true, Ordering::SeqCst);
    eventually(|| running() == 0).await;
    let is_refused = move || {
        client.send(&go_on());
        let (tag, error) = client.next().unwrap();
        tag == b'E' && String::from_utf8_lossy(&error).contains("C53200")
    };
    assert!(tokio::task::spawn_blocking(is_refused).await.unwrap());
}

#[tokio::test]
async fn portals_end_though_their_connection_is_busy_with_another_statement() {
    let server = serve(impatient());
    let addr = server.addr;
    let running = || server.sql.running.load(Ordering::SeqCst);
    let open = move || {
        let mut client = open_portal(addr);
        client.send(&message(b'Q', b"sleep\0"));
        client
    };
    let client = tokio::task::spawn_blocking(open).await.unwrap();
    eventually(|| running() == 2).await;
    server.sql.awaits_clients.store(true, Ordering::SeqCst);
    eventually(|| running() == 1).await;
    drop(client);
}
