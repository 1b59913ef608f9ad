//! A client of the PostgreSQL door that takes nothing of its rows keeps its connection, until statements of others wait for what
//! it holds.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

mod fake_sql;
mod wire_client;

use fake_sql::{eventually, serve};
use oribi_doors::postgres::PostgresLimits;
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
    let mut reading = tokio::task::spawn_blocking(ask).await.unwrap();
    let silent = tokio::task::spawn_blocking(ask).await.unwrap();
    eventually(|| running() == 2).await;
    // Who reads stays, however slowly.
    let rows = tokio::task::spawn_blocking(move || {
        (0..20_000).for_each(|_| assert!(reading.next().is_some()));
        reading
    });
    let mut reading = rows.await.unwrap();
    assert_eq!(running(), 2, "nobody waits for it");
    server.sql.awaits_clients.store(true, Ordering::SeqCst);
    tokio::task::spawn_blocking(move || {
        // Both are silent from now on, this one until it has read what was sent.
        while reading.next().is_some() {}
    });
    eventually(|| running() <= 1).await;
    drop(silent);
}

#[tokio::test]
async fn portals_that_nobody_goes_on_with_end_when_others_wait() {
    let server = serve(impatient());
    let addr = server.addr;
    let running = || server.sql.running.load(Ordering::SeqCst);
    let execute = |rows_max: u32| [b"p\0", &rows_max.to_be_bytes()[..]].concat();
    let sync = message(b'S', b"");
    let (ask, ask_again) = (
        [
            message(b'Q', b"begin\0"),
            parse("s", "endless"),
            message(b'B', b"p\0s\0\0\0\0\0\0\0"),
            message(b'E', &execute(1)),
            sync.clone(),
        ]
        .concat(),
        [message(b'E', &execute(1)), sync].concat(),
    );
    let again = ask_again.clone();
    let mut client = tokio::task::spawn_blocking(move || {
        let mut client = WireClient::connect(addr);
        client.send(&ask);
        client.until_ready(2);
        client.send(&again);
        let answers = client.until_ready(1);
        assert_eq!(answers.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), b"DsZ");
        client
    })
    .await
    .unwrap();
    assert_eq!(running(), 1);
    server.sql.awaits_clients.store(true, Ordering::SeqCst);
    eventually(|| running() == 0).await;
    tokio::task::spawn_blocking(move || {
        client.send(&ask_again);
        let (tag, error) = client.next().unwrap();
        assert!(tag == b'E' && String::from_utf8_lossy(&error).contains("C53200"));
    })
    .await
    .unwrap();
}
