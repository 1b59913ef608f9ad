//! While no server answers, a session takes rows up to its limit and then waits, or refuses.
#![allow(clippy::unwrap_used)]

mod fake_server;

use fake_server::FakeServer;
use oribi_client::{FlushMode, PartialRow, Session, SessionOptions, Table};
use oribi_types::{ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

async fn insert(session: &mut Session, table: &Table, key: i64, text: &str) -> Result<()> {
    let mut row = session.insert(table);
    row.set_i64(0, key)?;
    row.set_i64(1, 0)?;
    row.set_str(2, text)?;
    row.apply().await
}

#[tokio::test]
async fn applying_waits_until_there_is_room() {
    let server = FakeServer::start(4, &[]).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    server.shared.gate.send_replace(false);
    let applied = Arc::new(AtomicUsize::new(0));
    let writer = {
        let (client, applied) = (client.clone(), applied.clone());
        tokio::spawn(async move {
            let options =
                SessionOptions { buffer_bytes: 10_000, watermark: 0.1, ..SessionOptions::default() };
            let mut session = client.session(options);
            for key in 0..1000 {
                insert(&mut session, &table, key, "twenty bytes of text").await.unwrap();
                applied.fetch_add(1, Ordering::SeqCst);
            }
            session.flush().await.unwrap();
        })
    };
    // Rows are of 55 bytes: 181 fit. Some batches are at the server, and the rest waits for them.
    while applied.load(Ordering::SeqCst) < 181 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(applied.load(Ordering::SeqCst), 181);
    server.shared.gate.send_replace(true);
    writer.await.unwrap();
    let state = server.state();
    assert_eq!(state.rows.len(), 1000);
    // What is around the rows of a batch is some hundred bytes, and there are four at a time.
    assert!(state.bytes_under_way_max < 11_000, "{} bytes", state.bytes_under_way_max);
}

#[tokio::test]
async fn a_row_that_nobody_flushes_the_others_for_is_refused() {
    let server = FakeServer::start(1, &[]).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    let options = SessionOptions { mode: FlushMode::Manual, buffer_bytes: 100, ..SessionOptions::default() };
    let mut session = client.session(options);
    insert(&mut session, &table, 1, "text").await.unwrap();
    insert(&mut session, &table, 2, "text").await.unwrap();
    assert_eq!(insert(&mut session, &table, 3, "text").await.unwrap_err().kind(), ErrorKind::TooLarge);
    session.flush().await.unwrap();
    insert(&mut session, &table, 3, "text").await.unwrap();
    let long = "x".repeat(100);
    assert_eq!(insert(&mut session, &table, 4, &long).await.unwrap_err().kind(), ErrorKind::TooLarge);
    session.flush().await.unwrap();
    assert_eq!(server.state().rows.len(), 3);
}

#[tokio::test]
async fn a_row_does_not_wait_for_others_for_ever() {
    let server = FakeServer::start(1, &[]).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    let flush_interval = std::time::Duration::from_millis(1);
    let mut session = client.session(SessionOptions { flush_interval, ..SessionOptions::default() });
    insert(&mut session, &table, 1, "text").await.unwrap();
    while session.progress().rows_written == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn tablets_are_looked_up_once_for_all_rows_and_sessions() {
    let server = FakeServer::start(8, &[]).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    for start in [0, 1000] {
        let seen = seen.clone();
        let progress = move |progress: oribi_client::Progress| {
            seen.fetch_max(progress.rows_written as usize, Ordering::SeqCst);
        };
        let options = SessionOptions { progress: Some(Arc::new(progress)), ..SessionOptions::default() };
        let mut session = client.session(options);
        for key in start..start + 1000 {
            insert(&mut session, &table, key, "text").await.unwrap();
        }
        session.flush().await.unwrap();
    }
    let (look_ups, rows) = {
        let state = server.state();
        (state.look_ups, state.rows.len())
    };
    assert_eq!((look_ups, rows), (1, 2000));
    assert_eq!(seen.load(Ordering::SeqCst), 1000);
    assert!(client.observed_timestamp() > 0);
}
