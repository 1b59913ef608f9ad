//! The Couchbase door over a socket, in raw frames: what SDKs do not show.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "a client of a test runs on a thread of its own")]

mod frames;

use frames::{Client, flexible, frame, request, set};
use oribi_doors::couchbase::cluster::{ClusterMap, MapVersion, Node, VBUCKETS};
use oribi_doors::couchbase::sasl::Users;
use oribi_doors::couchbase::{CouchbaseDoor, CouchbaseOptions};
use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_net::{ClientLimits, Network};
use oribi_session::kv::KvLimits;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A door on a fresh folder.
struct Subject {
    engine: Arc<Engine>,
    door: Option<CouchbaseDoor>,
    shutdown: watch::Sender<bool>,
    runtime: Runtime,
    _dir: tempfile::TempDir,
}

impl Subject {
    fn new() -> Self {
        Subject::with(ClusterMap::single, &[])
    }

    fn with(map: impl FnOnce(u16) -> ClusterMap, users: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Env::real(), dir.path(), EngineOptions::default()).unwrap();
        let (shutdown, shut) = watch::channel(false);
        let options = CouchbaseOptions {
            kv: KvLimits::default(),
            clients: ClientLimits::default(),
            users: Users::new(users.iter().copied()).unwrap(),
            network: Network::default(),
            threads: 1,
        };
        let addr = "127.0.0.1:0".parse().unwrap();
        let door = CouchbaseDoor::start(addr, &engine, &Arc::default(), options, map, shut).unwrap();
        Subject { engine, door: Some(door), shutdown, runtime: Runtime::new().unwrap(), _dir: dir }
    }

    fn door(&self) -> &CouchbaseDoor {
        self.door.as_ref().unwrap()
    }

    /// A client that has agreed on nothing.
    fn connect(&self) -> Client {
        Client::new(self.door().local_addr())
    }

    /// A client that has agreed on `features` and has selected the default bucket.
    fn client(&self, features: &[u16]) -> Client {
        let mut client = self.connect();
        let asked: Vec<u8> = features.iter().flat_map(|code| code.to_be_bytes()).collect();
        assert_eq!(client.ask(&frame(0x1f, b"", b"{}", &asked)).value, asked);
        assert_eq!(client.ask(&frame(0x89, b"", b"default", b"")).status, 0);
        client
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.shutdown.send_replace(true);
        if let Some(door) = self.door.take() {
            self.runtime.block_on(door.join()).unwrap();
        }
        self.engine.close().unwrap();
    }
}

#[test]
fn unknown_commands_are_answered_and_their_bodies_dropped_exactly() {
    let subject = Subject::new();
    let mut client = subject.client(&[]);
    for opcode in [0x18, 0x42, 0x8f, 0xd3, 0xff] {
        client.send(&frame(opcode, b"extras", b"key", b"\x80\x01 a value that looks like a request"));
        client.send(&set(b"k", b"v"));
        assert_eq!((client.receive().status, client.receive().status), (0x81, 0), "{opcode:#x}");
    }
    for named in [0x83, 0x92, 0xb6, 0xda, 0xdb, 0xdc] {
        assert_eq!(client.ask(&frame(named, b"", b"k", b"")).status, 0x83, "{named:#x}");
    }
}

#[test]
fn who_may_not_touch_a_document_sends_little() {
    let subject = Subject::new();
    let mut client = subject.connect();
    let json = [0x00, 0x0b];
    assert_eq!(client.ask(&frame(0x1f, b"", b"{}", &json)).value, json);
    let long = vec![b' '; 64 * 1024 + 1];
    // It is refused when its header has come, and takes no memory from there on.
    let request = set(b"k", &long);
    client.send(&request[..24]);
    let answer = client.receive();
    assert_eq!(answer.status, 0x03);
    let message = answer.json()["error"]["context"].to_string();
    assert!(message.contains("before a bucket is selected") && message.contains("65536 bytes"), "{message}");
    client.send(&request[24..]);
    assert_eq!(client.ask(&set(b"k", &long[1..])).status, 0x08);
    assert_eq!(client.ask(&frame(0x89, b"", b"default", b"")).status, 0);
    assert_eq!(client.ask(&request).status, 0);
}

#[test]
fn requests_see_each_other_however_they_arrive() {
    let subject = Subject::new();
    let mut client = subject.client(&[0x04]);
    let requests = [
        set(b"a", b"1"),
        frame(0x00, b"", b"a", b""),
        frame(0x02, &[0; 8], b"a", b"2"),
        frame(0x0e, b"", b"a", b"0"),
        frame(0x05, &[&5u64.to_be_bytes()[..], &[0; 12]].concat(), b"a", b""),
        frame(0x09, b"", b"absent", b""),
        frame(0x0c, b"", b"a", b""),
        frame(0x04, b"", b"a", b""),
        frame(0x00, b"", b"a", b""),
        frame(0x11, &[0; 8], b"quiet", b"q"),
        frame(0x0a, b"", b"", b""),
    ];
    let check = |client: &mut Client| {
        let statuses: Vec<(u8, u16)> =
            (0..9).map(|_| client.receive()).map(|a| (a.opcode, a.status)).collect();
        assert_eq!(
            statuses,
            [(1, 0), (0, 0), (2, 2), (0x0e, 0), (5, 0), (0x0c, 0), (4, 0), (0, 1), (0x0a, 0)]
        );
    };
    client.send(&requests.concat());
    check(&mut client);
    for request in &requests {
        for byte in request.chunks(1) {
            client.send(byte);
        }
    }
    check(&mut client);
    let found = client.ask(&frame(0x00, b"", b"quiet", b""));
    assert_eq!((found.extras, found.value), (vec![0; 4], b"q".to_vec()));
}

#[test]
fn a_window_of_many_is_answered_in_order() {
    let subject = Subject::new();
    let mut client = subject.client(&[]);
    let mut all = Vec::new();
    for i in 0..1000u32 {
        all.extend(set(&i.to_be_bytes(), &vec![i as u8; 700]));
        all.extend(frame(0x00, b"", &(i / 2).to_be_bytes(), b""));
    }
    let mut sender = Client(client.0.try_clone().unwrap());
    let sent = std::thread::spawn(move || sender.send(&all));
    for i in 0..1000u32 {
        assert_eq!(client.receive().status, 0);
        assert_eq!(client.receive().value, vec![(i / 2) as u8; 700], "{i}");
    }
    sent.join().unwrap();
}

#[test]
fn nothing_is_done_without_a_bucket_or_before_authentication() {
    let subject = Subject::new();
    let mut client = subject.connect();
    assert_eq!(client.ask(&set(b"k", b"v")).status, 0x08);
    assert_eq!(client.ask(&frame(0x89, b"", b"nothing", b"")).status, 0x24);
    assert_eq!(client.ask(&frame(0x0a, b"", b"", b"")).status, 0);

    let subject = Subject::with(ClusterMap::single, &[("ann", "secret")]);
    let mut client = subject.connect();
    for request in [set(b"k", b"v"), frame(0x89, b"", b"default", b""), frame(0xb5, b"", b"", b"")] {
        assert_eq!(client.ask(&request).status, 0x24);
    }
    assert_eq!(client.ask(&frame(0x21, b"", b"PLAIN", b"\0ann\0wrong")).status, 0x20);
    assert_eq!(client.ask(&frame(0x89, b"", b"default", b"")).status, 0x24);
    assert_eq!(client.ask(&frame(0x21, b"", b"PLAIN", b"\0ann\0secret")).status, 0);
    assert_eq!(client.ask(&frame(0x89, b"", b"default", b"")).status, 0);
    assert_eq!(client.ask(&set(b"k", b"v")).status, 0);
    // Whoever begins anew is nobody until he is done.
    assert_eq!(client.ask(&frame(0x21, b"", b"SCRAM-SHA256", b"n,,n=ann,r=x")).status, 0x21);
    assert_eq!(client.ask(&set(b"k", b"v")).status, 0x24);
}

/// What requests over HTTP are answered, with the last of which their connection must end.
fn ask_http(subject: &Subject, request: &str) -> String {
    use std::io::Read;
    let mut client = subject.connect();
    // In two parts, behind a request of the other protocol.
    assert_eq!(client.ask(&frame(0x0a, b"", b"", b"")).status, 0);
    let (begin, rest) = request.split_at(request.len() / 2);
    client.send(begin.as_bytes());
    client.send(rest.as_bytes());
    let mut answer = String::new();
    client.0.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn management_is_refused_on_the_port_that_the_map_names_for_it() {
    let subject = Subject::new();
    let config = subject.connect().ask(&frame(0xb5, b"", b"", b"")).json();
    let services = &config["nodesExt"][0]["services"];
    assert!(services["mgmt"].is_number() && services["mgmt"] == services["kv"], "{config}");
    let bucket = "GET /pools/default/buckets/default HTTP/1.1\r\n";
    let answer = ask_http(&subject, &format!("{bucket}connection: close\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\"healthy\"}]}"), "{answer}");
    let create = "POST /pools/default/buckets HTTP/1.1\r\nconnection: close\r\ncontent-length: 3\r\n\r\na=b";
    let answers = ask_http(&subject, &format!("{bucket}\r\n{create}"));
    assert!(answers.starts_with("HTTP/1.1 200 OK\r\n"), "{answers}");
    let (_, answer) = answers.split_once("\"healthy\"}]}").unwrap();
    assert!(answer.starts_with("HTTP/1.1 501 ") && answer.contains("management, POST"), "{answer}");
    assert_eq!(ask_http(&subject, "GET / a request of nobody's\r\n\r\n"), "");
    let subject = Subject::with(ClusterMap::single, &[("ann", "secret")]);
    let answer = ask_http(&subject, "GET /pools/default/buckets/default HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[test]
fn an_open_door_challenges_those_who_want_it_and_lets_all_in() {
    let subject = Subject::new();
    let mut client = subject.connect();
    let begun = client.ask(&frame(0x21, b"", b"SCRAM-SHA512", b"n,,n=x,r=y"));
    assert_eq!((begun.status, begun.value.starts_with(b"r=y")), (0, true));
    assert_eq!(client.ask(&frame(0x22, b"", b"SCRAM-SHA512", b"c=biws,r=y,p=AAAA")).status, 0);
    assert_eq!(client.ask(&frame(0x89, b"", b"default", b"")).status, 0);
}

#[test]
fn durable_writes_are_acknowledged_at_the_level_asked_for() {
    let subject = Subject::new();
    let mut client = subject.client(&[0x04, 0x10, 0x11]);
    for level in [1, 2, 3] {
        let answer = client.ask(&flexible(0x01, &[0x13, level, 0x75, 0x30], &[0; 8], b"k", b"v"));
        assert_eq!((answer.status, answer.extras.len()), (0, 16), "{level}");
    }
    for (frames, status) in [
        (&b"\x11\x00"[..], 0xa0),
        (b"\x11\x04", 0xa0),
        (b"\x12\x01\x00", 0x04),
        (b"\x61\x00", 0x80),
        (b"\x41a", 0x83),
    ] {
        let answer = client.ask(&flexible(0x01, frames, &[0; 8], b"k", b"other"));
        assert_eq!(answer.status, status, "{frames:?}");
    }
    // What is written without is not refused, and what only reads cannot be durable.
    assert_eq!(client.ask(&flexible(0x00, b"\x11\x01", b"", b"k", b"")).status, 0x04);
    let found = client.ask(&frame(0x00, b"", b"k", b""));
    assert_eq!(found.value, b"v");
    // The sequence number of the token is on the disk once that is said.
    let token = client.ask(&set(b"k", b"w")).extras;
    let observed = client.ask(&frame(0x91, b"", b"", &token[..8])).value;
    let seqno = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    assert!(seqno(&observed[11..19]) >= seqno(&token[8..]));
    assert_eq!(observed[11..19], observed[19..27]);
    assert_eq!(client.ask(&frame(0x91, b"", b"", &[7; 8])).status, 0x01);
}

#[test]
fn durations_are_told_to_those_who_ask() {
    let subject = Subject::new();
    let mut client = subject.client(&[0x0f]);
    let answer = client.ask(&set(b"k", b"v"));
    assert_eq!((answer.magic, answer.framing.len(), answer.framing[0]), (0x18, 3, 0x02));
}

#[test]
fn the_cluster_map_is_told_once() {
    let subject = Subject::new();
    let mut client = subject.client(&[]);
    let config = client.ask(&frame(0xb5, b"", b"", b"")).json();
    assert_eq!(config["vBucketServerMap"]["vBucketMap"].as_array().unwrap().len(), VBUCKETS);
    let known = [1i64.to_be_bytes(), 1i64.to_be_bytes()].concat();
    let answer = client.ask(&frame(0xb5, &known, b"", b""));
    assert_eq!((answer.status, answer.value.len()), (0, 0));
    let older = [1i64.to_be_bytes(), 0i64.to_be_bytes()].concat();
    assert!(!client.ask(&frame(0xb5, &older, b"", b"")).value.is_empty());
    // Without a bucket there are nodes, and no vbuckets.
    let config = subject.connect().ask(&frame(0xb5, b"", b"", b"")).json();
    assert!(config.get("vBucketServerMap").is_none() && config["nodesExt"][0]["services"]["kv"].is_number());
}

/// This node and another one, which has the upper half of the vbuckets.
fn halves(port: u16, other: u16, version: MapVersion) -> ClusterMap {
    ClusterMap {
        version,
        nodes: vec![Node { host: None, port }, Node { host: Some("127.0.0.1".into()), port: other }],
        this: 0,
        owners: (0..VBUCKETS).map(|vbucket| usize::from(vbucket >= VBUCKETS / 2)).collect(),
    }
}

#[test]
fn requests_for_another_node_are_sent_there() {
    let version = MapVersion { epoch: 1, revision: 1 };
    let subject = Subject::with(|port| halves(port, 4711, version), &[]);
    let mut client = subject.client(&[]);
    let upper = request(0x01, 512, 0, &[0; 8], b"k", b"v");
    assert_eq!(client.ask(&request(0x01, 511, 0, &[0; 8], b"k", b"v")).status, 0);
    for _ in 0..2 {
        let answer = client.ask(&upper);
        assert_eq!(answer.status, 0x07);
        let config = answer.json();
        assert_eq!(config["nodesExt"][1]["services"]["kv"], 4711);
        assert_eq!(config["vBucketServerMap"]["vBucketMap"][512][0], 1);
    }
    // In the middle of others, each stays in its place.
    client.send(&[set(b"a", b"1"), upper.clone(), frame(0x00, b"", b"a", b"")].concat());
    let statuses: Vec<u16> = (0..3).map(|_| client.receive().status).collect();
    assert_eq!(statuses, [0, 0x07, 0]);
    assert_eq!(client.ask(&request(0x00, 1024, 0, b"", b"k", b"")).status, 0x07);
    // A client that has the map is not sent it again, if that was agreed.
    let mut client = subject.client(&[0x1e]);
    assert!(!client.ask(&upper).value.is_empty());
    assert!(client.ask(&upper).value.is_empty());
}

#[test]
fn a_new_map_is_pushed_to_those_who_want_it() {
    let subject = Subject::new();
    let port = subject.door().local_addr().port();
    let mut whole = subject.client(&[0x0c, 0x0d]);
    let mut brief = subject.client(&[0x0c, 0x1f]);
    let mut deaf = subject.client(&[]);
    let version = MapVersion { epoch: 1, revision: 7 };
    assert!(subject.door().cluster().replace(halves(port, 4711, version)));
    let extras = [1i64.to_be_bytes(), 7i64.to_be_bytes()].concat();
    let pushed = whole.receive();
    assert_eq!((pushed.magic, pushed.opcode, &pushed.extras), (0x82, 0x01, &extras));
    assert_eq!((&pushed.key[..], pushed.json()["rev"].as_i64()), (&b"default"[..], Some(7)));
    let pushed = brief.receive();
    assert_eq!((pushed.magic, &pushed.extras, pushed.value.len()), (0x82, &extras, 0));
    for client in [&mut whole, &mut brief, &mut deaf] {
        assert_eq!(client.ask(&request(0x01, 512, 0, &[0; 8], b"k", b"v")).status, 0x07);
        assert_eq!(client.ask(&request(0x01, 0, 0, &[0; 8], b"k", b"v")).status, 0);
    }
}

#[test]
fn garbage_ends_the_connection_and_too_much_is_dropped() {
    let subject = Subject::new();
    let mut client = subject.connect();
    client.send(b"HELO somebody\r\n\r\n");
    client.expect_end();

    let mut client = subject.client(&[]);
    let large = vec![b'x'; 3 << 20];
    assert_eq!(client.ask(&set(b"k", &large)).status, 0x03);
    assert_eq!(client.ask(&frame(0x00, b"", b"k", b"")).status, 0x01);
    // Lengths that contradict each other.
    let mut wrong = set(b"k", b"v");
    wrong[4] = 200;
    assert_eq!(client.ask(&wrong).status, 0x04);
    assert_eq!(client.ask(&set(b"k", b"v")).status, 0);
}

#[test]
fn parts_of_documents_one_at_a_time() {
    let subject = Subject::new();
    let mut client = subject.client(&[0x04]);
    client.ask(&set(b"k", b"{\"a\":{\"b\":[1,2]},\"n\":5}"));
    let single = |opcode: u8, path: &[u8], value: &[u8]| {
        let extras = [&(path.len() as u16).to_be_bytes()[..], &[0]].concat();
        frame(opcode, &extras, b"k", &[path, value].concat())
    };
    let got = client.ask(&single(0xc5, b"a.b[1]", b""));
    assert_eq!((got.status, &got.value[..]), (0, &b"2"[..]));
    assert_eq!(client.ask(&single(0xc6, b"a.c", b"")).status, 0xc0);
    assert_eq!(client.ask(&single(0xd2, b"a.b", b"")).value, b"2");
    let counted = client.ask(&single(0xcf, b"n", b"3"));
    assert_eq!((counted.status, &counted.value[..], counted.extras.len()), (0, &b"8"[..], 16));
    assert_eq!(client.ask(&single(0xc7, b"n", b"1")).status, 0xc9);
    assert_eq!(client.ask(&single(0xcb, b"a.b", b"3")).status, 0);
    assert_eq!(client.ask(&frame(0x00, b"", b"k", b"")).value, b"{\"a\":{\"b\":[1,2,3]},\"n\":8}");
}
