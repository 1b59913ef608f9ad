//! Attempts to authenticate at the Couchbase door: how many may fail, and where their passwords are hashed.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "a client of a test runs on a thread of its own")]

mod frames;

use frames::{Client, frame};
use oribi_doors::couchbase::cluster::ClusterMap;
use oribi_doors::couchbase::sasl::Users;
use oribi_doors::couchbase::{Couchbase, CouchbaseDoor, CouchbaseOptions};
use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_net::{ClientLimits, Exchange, Leave, Link, Network, Progress, Protocol, Service};
use oribi_session::kv::KvLimits;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::watch;

const HELLO: u8 = 0x1f;
const SASL_AUTH: u8 = 0x21;
const NOOP: u8 = 0x0a;
const AUTH_ERROR: u16 = 0x20;

fn options() -> CouchbaseOptions {
    CouchbaseOptions {
        kv: KvLimits::default(),
        clients: ClientLimits::default(),
        users: Users::new([("ann", "secret")]).unwrap(),
        network: Network::default(),
        threads: 1,
    }
}

fn attempt(password: &[u8]) -> Vec<u8> {
    frame(SASL_AUTH, b"", b"PLAIN", &[b"\0ann\0", password].concat())
}

/// Has `run` talk to a door whose one user is ann.
fn with_door(run: impl FnOnce(SocketAddr)) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(Env::real(), dir.path(), EngineOptions::default()).unwrap();
    let (shutdown, shut) = watch::channel(false);
    let addr = "127.0.0.1:0".parse().unwrap();
    let door =
        CouchbaseDoor::start(addr, &engine, &Arc::default(), options(), ClusterMap::single, shut).unwrap();
    run(door.local_addr());
    shutdown.send_replace(true);
    Runtime::new().unwrap().block_on(door.join()).unwrap();
    engine.close().unwrap();
}

#[test]
fn a_client_that_fails_too_often_is_told_so_and_sent_off() {
    with_door(|addr| {
        let mut client = Client::new(addr);
        let json = [0x00, 0x0b];
        assert_eq!(client.ask(&frame(HELLO, b"", b"{}", &json)).value, json);
        // However many are sent at once.
        client.send(&attempt(b"wrong").repeat(2000));
        for _ in 1..5 {
            let answer = client.receive();
            assert_eq!((answer.status, &answer.value[..]), (AUTH_ERROR, &b""[..]));
        }
        let last = client.receive();
        let message = last.json()["error"]["context"].to_string();
        assert!(last.status == AUTH_ERROR && message.contains("5 attempts"), "{message}");
        client.expect_end();
    });
}

#[test]
fn a_client_that_succeeds_may_fail_again() {
    with_door(|addr| {
        let mut client = Client::new(addr);
        for _ in 0..3 {
            for _ in 0..4 {
                assert_eq!(client.ask(&attempt(b"wrong")).status, AUTH_ERROR);
            }
            assert_eq!(client.ask(&attempt(b"secret")).status, 0);
        }
        assert_eq!(client.ask(&frame(NOOP, b"", b"", b"")).status, 0);
    });
}

#[test]
fn a_password_over_http_is_checked_as_well() {
    with_door(|addr| {
        // ann:secret and ann:wrong.
        for (basic, status) in [("YW5uOnNlY3JldA==", "200"), ("YW5uOndyb25n", "401")] {
            let mut client = Client::new(addr);
            let head = format!("GET /pools/default/buckets/default HTTP/1.1\r\nauthorization: Basic {basic}");
            client.send(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes());
            let mut answer = String::new();
            client.0.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        }
    });
}

#[test]
fn a_password_is_hashed_where_it_holds_up_nobody_and_one_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(Env::real(), dir.path(), EngineOptions::default()).unwrap();
    let service = Couchbase::new(&engine, &Arc::default(), options(), ClusterMap::single(1)).unwrap();
    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let mut client = service.open(0, Link { local: address, peer: address });
    let mut exchange = Exchange::default();
    let noop = frame(NOOP, b"", b"", b"");
    exchange.input.extend_from_slice(&[noop, attempt(b"wrong"), attempt(b"secret")].concat());
    let len = attempt(b"wrong").len();
    // It is not hashed where that was not asked for, files or not.
    for to_block in [false, true] {
        let leave = Leave { to_block, to_write: true, to_compute: false, to_answer: 1 << 20 };
        assert_eq!(client.advance(&mut exchange, leave), Progress::NeedsProcessor);
        assert_eq!((exchange.output.len(), exchange.input.len()), (24, 2 * len + 1));
    }
    let leave = Leave { to_block: false, to_write: true, to_compute: true, to_answer: 1 << 20 };
    assert_eq!(client.advance(&mut exchange, leave), Progress::NeedsProcessor);
    assert_eq!((exchange.output.len(), exchange.input.len()), (48, len + 1));
    assert_eq!(client.advance(&mut exchange, leave), Progress::Done);
    assert_eq!((exchange.output.len(), exchange.input.len()), (72, 0));
    let statuses: Vec<u8> = exchange.output.chunks(24).map(|answer| answer[7]).collect();
    assert_eq!(statuses, [0, AUTH_ERROR as u8, 0]);
    drop(client);
    engine.close().unwrap();
}
