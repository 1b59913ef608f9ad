//! A row costs no allocation, and a batch a few, however many rows it has. The server of these tests is on a thread of its
//! own, where nothing is counted.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod fake_server;

use fake_server::FakeServer;
use oribi_client::{Client, FlushMode, PartialRow, Session, SessionOptions, Table};
use oribi_testing::allocations::{CountingAllocator, of_this_thread as allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A server on a thread of its own, which ends with the process.
fn server() -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = FakeServer::start(4, &[]).await;
            sender.send(server.address.clone()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    receiver.recv().unwrap()
}

async fn apply(session: &mut Session, table: &Table, rows: i64) {
    for key in 0..rows {
        let mut row = session.upsert(table);
        row.set_i64(0, key).unwrap();
        row.set_i64(1, key).unwrap();
        row.set_str(2, "some text").unwrap();
        row.apply().await.unwrap();
    }
}

#[tokio::test]
async fn in_a_session_whose_batches_have_their_memory() {
    let address = server();
    let client = Client::connect(&[address]).await.unwrap();
    let table = client.open_table("t").await.unwrap();
    let mut session = client.session(SessionOptions { mode: FlushMode::Manual, ..SessionOptions::default() });
    for _ in 0..3 {
        apply(&mut session, &table, 2000).await;
        session.flush().await.unwrap();
    }
    let before = allocations();
    apply(&mut session, &table, 1000).await;
    assert_eq!(allocations() - before, 0, "for rows");
    session.flush().await.unwrap();
    let of_batches = allocations() - before;
    assert_eq!(session.progress().batches, 16);
    // Four batches: a task each, a sealed batch and what is around its rows, the address of the leader, the head of the call
    // and the channel of its answer, and what answers are read into and decoded to. Fourteen were counted.
    assert!(of_batches <= 4 * 18, "{of_batches} allocations for 4 batches");
}
