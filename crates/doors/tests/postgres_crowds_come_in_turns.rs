//! Who is there already is answered between those of a crowd that have just come.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

mod fake_sql;
mod wire_client;

use fake_sql::{eventually, serve};
use oribi_doors::postgres::PostgresLimits;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use wire_client::{WireClient, message};

const CROWD: usize = 60;
/// Those that have begun when it is asked, or whose turn it is.
const IN_HAND: usize = 4;

/// A client that has come in and not said who it is.
fn nobody_yet(addr: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(addr).unwrap();
    client.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).unwrap();
    let mut refused = [0];
    client.read_exact(&mut refused).unwrap();
    assert_eq!(refused, *b"N");
    client
}

fn begin(mut client: &TcpStream) {
    let startup = message(0, b"\0\x03\0\0user\0ada\0newcomer\0yes\0\0");
    client.write_all(&startup[1..]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_that_is_there_is_answered_between_those_that_begin() {
    let server = serve(PostgresLimits { connections_max: 2 * CROWD, ..PostgresLimits::default() });
    let mut there = WireClient::connect(server.addr);
    let crowd: Vec<_> = (0..CROWD).map(|_| nobody_yet(server.addr)).collect();
    {
        // The first keeps the only thread, until all others and a question have come.
        let _held = server.sql.newcomers.lock().unwrap();
        crowd[..CROWD - 1].iter().for_each(begin);
        there.send(&message(b'Q', b"rows 1\0"));
        // What came last is looked at first.
        begin(&crowd[CROWD - 1]);
    }
    there.until_ready(1);
    let before = server.sql.newcomers_before.lock().unwrap().clone();
    assert!(before[0] <= IN_HAND, "{before:?}");
    eventually(|| *server.sql.newcomers.lock().unwrap() == CROWD).await;
}
