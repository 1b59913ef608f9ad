//! Prepared statements about one row: answered without an allocation, settled once for all that arrived together.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods, reason = "a client is a thread of its own")]

mod fake_sql;
mod wire_client;

use fake_sql::serve;
use oribi_doors::postgres::PostgresLimits;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use wire_client::{WireClient, message, parse, run};

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Counts the allocations of the threads that want it.
struct Counting;

fn note() {
    if COUNTED.try_with(Cell::get).unwrap_or(false) {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: every call goes to the system's allocator as it came.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn kinds(messages: &[(u8, Vec<u8>)]) -> String {
    messages.iter().map(|(tag, _)| char::from(*tag)).collect()
}

/// The door runs on the test's own thread, the client on another.
#[tokio::test]
async fn a_prepared_select_allocates_nothing() {
    let server = serve(PostgresLimits::default());
    let addr = server.addr;
    COUNTED.set(true);
    let client = tokio::task::spawn_blocking(move || {
        let mut client = WireClient::connect(addr);
        client.send(&[parse("s", "pick $1 $2"), parse("w", "put $1"), message(b'S', b"")].concat());
        client.until_ready(1);
        let mut round = |i: i64| {
            client.send(&run("s", &[&i.to_be_bytes(), b"some text"]));
            let row = client.until_ready(1);
            assert_eq!(kinds(&row), "2DCZ");
            let expected = [b"\0\x02\0\0\0\x08", &i.to_be_bytes()[..], b"\0\0\0\x09", b"some text"].concat();
            assert_eq!(row[1].1, expected);
            assert_eq!(row[2].1, b"SELECT 1\0");
            client.send(&run("s", &[&(-i).to_be_bytes(), b"some text"]));
            let none = client.until_ready(1);
            assert_eq!((kinds(&none).as_str(), none[1].1.as_slice()), ("2CZ", &b"SELECT 0\0"[..]));
        };
        // The first rounds set up what the connection keeps.
        (1..10).for_each(&mut round);
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        (10..210).for_each(&mut round);
        ALLOCATIONS.load(Ordering::SeqCst) - before
    });
    let allocations = client.await.unwrap();
    COUNTED.set(false);
    assert_eq!(allocations, 0, "in 400 statements");
}

/// What a client hears that sends `requests` together: `w` is prepared as `put $1`, `s` as `pick $1 $2`.
async fn answers_to(addr: SocketAddr, requests: Vec<Vec<u8>>) -> Vec<(u8, Vec<u8>)> {
    let client = tokio::task::spawn_blocking(move || {
        let mut client = WireClient::connect(addr);
        client.send(&[parse("w", "put $1"), parse("s", "pick $1 $2"), message(b'S', b"")].concat());
        client.until_ready(1);
        client.send(&requests.concat());
        client.until_ready(requests.len())
    });
    client.await.unwrap()
}

#[tokio::test]
async fn what_arrived_together_is_settled_once_and_in_order() {
    let server = serve(PostgresLimits::default());
    let mut requests: Vec<_> = (1..=50_i64).map(|lsn| run("w", &[&lsn.to_be_bytes()])).collect();
    requests.push(run("s", &[&7_i64.to_be_bytes(), b"seven"]));
    requests.push(run("s", &[&0_i64.to_be_bytes(), b""]));
    requests.push(run("w", &[&0_i64.to_be_bytes()]));
    let answers = answers_to(server.addr, requests).await;
    let expected = format!("{}2DCZ2DCZ2EZ", "2CZ".repeat(50));
    assert_eq!(kinds(&answers), expected);
    let tags: Vec<_> = answers.iter().filter(|(tag, _)| *tag == b'C').map(|(_, body)| body.clone()).collect();
    assert!(tags[..50].iter().all(|tag| tag == b"INSERT 0 1\0"));
    assert!(tags[50..].iter().all(|tag| tag == b"SELECT 1\0"));
    assert!(String::from_utf8_lossy(&answers[answers.len() - 2].1).contains("23505"));
    let settled = server.sql.settled.lock().unwrap();
    assert_eq!(settled.last().unwrap().durable, 50);
    assert!(settled.len() < 10, "50 writes were settled in {} steps", settled.len());
}

/// What others write at the same time may keep a write from being seen for a moment. Those behind it need not see it; who reads must.
#[tokio::test]
async fn writes_that_are_not_seen_yet_keep_only_reads_behind_them_waiting() {
    let server = serve(PostgresLimits::default());
    let mut requests: Vec<_> = (1001..=1050_i64).map(|lsn| run("w", &[&lsn.to_be_bytes()])).collect();
    requests.push(run("s", &[&7_i64.to_be_bytes(), b"seven"]));
    let answers = answers_to(server.addr, requests).await;
    assert_eq!(kinds(&answers), format!("{}2DCZ", "2CZ".repeat(50)));
    let row = &answers[answers.len() - 3].1;
    assert!(row.ends_with(b"planned"), "it was executed, behind what it must see");
    let settled = server.sql.settled.lock().unwrap();
    assert_eq!(settled.last().unwrap().durable, 1050);
    assert!(settled.len() < 10, "50 writes were settled in {} steps", settled.len());
}

#[tokio::test]
async fn nothing_is_told_that_the_log_did_not_take() {
    let server = serve(PostgresLimits::default());
    server.sql.stopped.store(true, Ordering::SeqCst);
    let addr = server.addr;
    let client = tokio::task::spawn_blocking(move || {
        let mut client = WireClient::connect(addr);
        client.send(&[parse("w", "put $1"), message(b'S', b"")].concat());
        client.until_ready(1);
        client.send(&run("w", &[&1_i64.to_be_bytes()]));
        client.until_ready(1)
    });
    let answers = client.await.unwrap();
    assert_eq!(kinds(&answers), "E", "an error, and the end of the connection");
    assert!(String::from_utf8_lossy(&answers[0].1).contains("the log has stopped"));
}

/// A portal that is executed again, or with a limit of rows, says what a planned one says.
#[tokio::test]
async fn portals_end_as_those_of_plans_do() {
    let server = serve(PostgresLimits::default());
    let addr = server.addr;
    let client = tokio::task::spawn_blocking(move || {
        let mut client = WireClient::connect(addr);
        client.send(&[parse("s", "pick $1 $2"), parse("w", "put $1"), message(b'S', b"")].concat());
        client.until_ready(1);
        let mut twice = |bound: Vec<u8>, rows_max: u8| {
            let sync = bound.len() - 5;
            let execute = message(b'E', &[0, 0, 0, 0, rows_max]);
            let bind = &bound[..sync - message(b'E', b"\0\0\0\0\0").len()];
            client.send(&[bind, &execute, &execute, &bound[sync..]].concat());
            kinds(&client.until_ready(1))
        };
        let n = 5_i64.to_be_bytes();
        assert_eq!(twice(run("s", &[&n, b"v"]), 0), "2DCCZ", "no more rows");
        assert_eq!(twice(run("s", &[&n, b"v"]), 2), "2DCCZ");
        assert_eq!(twice(run("s", &[&n, b"v"]), 1), "2DsCZ", "suspended behind its only row");
        assert_eq!(twice(run("w", &[&n]), 0), "2CEZ", "it cannot run again");
    });
    client.await.unwrap();
}
