//! Any bytes to the Couchbase door, executed over an engine in memory: it never panics, and whatever it answers are whole
//! frames of a kind that clients know.
#![no_main]

mod feed;

use feed::Feed;
use libfuzzer_sys::fuzz_target;
use oribi_doors::couchbase::cluster::ClusterMap;
use oribi_doors::couchbase::sasl::Users;
use oribi_doors::couchbase::{Couchbase, CouchbaseOptions};
use oribi_engine::{Engine, EngineOptions, Obligation};
use oribi_net::{ClientLimits, Exchange, Leave, Link, Network, Progress, Protocol, Service};
use oribi_session::kv::{KeyValue, KvLimits};
use oribi_sim::SimFiles;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

static SERVICE: LazyLock<(Couchbase, Arc<KeyValue>)> = LazyLock::new(|| {
    let options = EngineOptions::default();
    let engine = Engine::open(oribi_sim::env(&SimFiles::new()), Path::new("/data"), options).unwrap();
    let kv = KvLimits { value_bytes_max: 1 << 16, ..KvLimits::default() };
    let users = Users::new([]).unwrap();
    let options = CouchbaseOptions { kv, clients: ClientLimits::default(), users, network: Network::default(), threads: 1 };
    let couchbase = Couchbase::new(&engine, &Arc::default(), options, ClusterMap::single(1)).unwrap();
    (couchbase, KeyValue::new(engine, kv))
});
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Selects the default bucket.
const SELECT: &[u8] = b"\x80\x89\0\x07\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0default";
/// Agrees on tokens, errors, Snappy, JSON, durations, collections and durable writes.
const HELLO: &[u8] = b"\x80\x1f\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\
    \0\x04\0\x07\0\x0a\0\x0b\0\x0f\0\x10\0\x11\0\x12";

fuzz_target!(|input: &[u8]| {
    let (service, kv) = &*SERVICE;
    if RUNS.fetch_add(1, Ordering::Relaxed) % 1000 == 999 {
        kv.flush().unwrap();
    }
    let Some((how, rest)) = input.split_first() else { return };
    let addr = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut client = service.open(0, Link { local: addr, peer: addr });
    let mut exchange = Exchange::default();
    if how & 1 != 0 {
        give(&mut client, &mut exchange, HELLO);
    }
    if how & 2 != 0 {
        give(&mut client, &mut exchange, SELECT);
    }
    let bytes = if how & 4 != 0 { requests(Feed::new(rest)) } else { rest.to_vec() };
    let cut = usize::from(how >> 3) * bytes.len() / 32;
    give(&mut client, &mut exchange, &bytes[..cut]);
    give(&mut client, &mut exchange, &bytes[cut..]);
});

/// Lengths of the extras that operations have, and others.
const EXTRAS: [usize; 8] = [0, 1, 3, 4, 8, 16, 20, 24];

/// Requests whose lengths fit, many of the same key, so that most inputs get beyond the header and meet.
fn requests(mut feed: Feed<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !feed.is_empty() && bytes.len() < 1 << 16 {
        let (opcode, shape) = (feed.byte(), feed.byte());
        let framing = if shape & 1 != 0 { vec![feed.byte() & 0xf0 | 1, feed.byte()] } else { vec![] };
        let extras: Vec<u8> = (0..EXTRAS[usize::from(shape >> 1 & 7)]).map(|_| feed.byte()).collect();
        let key = if shape & 16 != 0 { feed.short() } else { b"\0k" };
        let value = if shape & 32 != 0 { feed.bytes() } else { b"{\"a\":[1,2]}" };
        let cas = if shape & 64 != 0 { feed.number() } else { 0 };
        let magic = if framing.is_empty() { 0x80 } else { 0x08 };
        let body_len = framing.len() + extras.len() + key.len() + value.len();
        bytes.extend([
            magic,
            opcode,
            framing.len() as u8,
            key.len() as u8,
            extras.len() as u8,
            shape >> 7,
            0,
            0,
        ]);
        bytes.extend((body_len as u32).to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(cas.to_be_bytes());
        bytes.extend([&framing, &extras, key, value].concat());
    }
    bytes
}

fn give(client: &mut impl Protocol<Obligation = Obligation>, exchange: &mut Exchange<Obligation>, bytes: &[u8]) {
    exchange.input.extend_from_slice(bytes);
    let leave = Leave { to_block: true, to_write: true, to_compute: true, to_answer: usize::MAX };
    // A client that sends something to be dropped is asked again with what remains.
    for _ in 0..=bytes.len() {
        let progress = client.advance(exchange, leave);
        client.settled(exchange);
        check(&exchange.output);
        exchange.output.clear();
        match progress {
            Progress::Done => return,
            Progress::OutputFull => {}
            Progress::NeedsAdmission
            | Progress::NeedsBlocking
            | Progress::NeedsProcessor
            | Progress::NeedsTurn
            | Progress::NeedsRoom(_) => {
                panic!("{progress:?} despite the leave")
            }
        }
    }
    panic!("no progress");
}

fn check(mut output: &[u8]) {
    while !output.is_empty() {
        assert!(matches!(output[0], 0x81 | 0x18 | 0x82), "magic {:#x}", output[0]);
        let body_len = u32::from_be_bytes(output[8..12].try_into().unwrap()) as usize;
        output = &output[24 + body_len..];
    }
}
