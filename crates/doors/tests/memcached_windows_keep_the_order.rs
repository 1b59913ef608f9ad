//! Requests that arrive together are executed together, and answered as if one after the other: in text, meta commands
//! and binary.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "a client of a test runs on a thread of its own")]

mod memcached_subject;

use memcached_subject::{NOOP, Subject, answer, packet};
use oribi_doors::memcached::MemcachedLimits;
use oribi_engine::EngineOptions;
use std::fmt::Write as _;

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const DELETE: u8 = 0x04;
const INCREMENT: u8 = 0x05;
const GETQ: u8 = 0x09;
const SETQ: u8 = 0x11;
const ADDQ: u8 = 0x12;
const DELETEQ: u8 = 0x14;
const FLAGS: [u8; 8] = [0, 0, 0, 7, 0, 0, 0, 0];

fn not_found(opcode: u8) -> Vec<u8> {
    answer(opcode, 1, b"", b"Not found")
}

#[test]
fn binary_requests_see_those_before_them_and_quiet_ones_keep_their_places() {
    let subject = Subject::new();
    let mut client = subject.connect();
    let counter = [[0, 0, 0, 0, 0, 0, 0, 5], [0, 0, 0, 0, 0, 0, 0, 9]].concat();
    let requests = [
        packet(GETQ, b"", b"a", b""),
        packet(SETQ, &FLAGS, b"a", b"1"),
        packet(GETQ, b"", b"a", b""),
        packet(ADDQ, &FLAGS, b"a", b"2"),
        packet(GET, b"", b"b", b""),
        packet(INCREMENT, &[&counter[..], &[0; 4]].concat(), b"n", b""),
        packet(INCREMENT, &[&counter[..], &[0; 4]].concat(), b"n", b""),
        packet(DELETEQ, b"", b"a", b""),
        packet(DELETE, b"", b"a", b""),
        packet(GETQ, b"", b"a", b""),
        packet(NOOP, b"", b"", b""),
    ];
    let answers = [
        answer(GETQ, 0, &FLAGS[..4], b"1"),
        answer(ADDQ, 2, b"", b"Data exists for key."),
        not_found(GET),
        answer(INCREMENT, 0, b"", &[0, 0, 0, 0, 0, 0, 0, 9]),
        answer(INCREMENT, 0, b"", &[0, 0, 0, 0, 0, 0, 0, 14]),
        not_found(DELETE),
        answer(NOOP, 0, b"", b""),
    ];
    client.send(requests.concat());
    client.expect_packets(&answers);
    // Likewise in whatever pieces.
    client.send(packet(DELETE, b"", b"n", b""));
    client.expect_packets(&[answer(DELETE, 0, b"", b"")]);
    client.0.set_nodelay(true).unwrap();
    for byte in requests.concat() {
        client.send([byte]);
    }
    client.expect_packets(&answers);
}

#[test]
fn what_is_no_binary_request_costs_its_own_bytes_only() {
    let subject = Subject::new();
    let mut client = subject.connect();
    let huge = "x".repeat(3_000_000);
    let long = "k".repeat(251);
    let noop = || packet(NOOP, b"", b"", b"");
    let refused = |opcode, status, text: &str| answer(opcode, status, b"", text.as_bytes());
    for (request, refusal) in [
        (packet(0x77, b"ext", b"key", b"value"), refused(0x77, 0x81, "Unknown command")),
        (packet(0x77, b"", b"", huge.as_bytes()), refused(0x77, 0x81, "Unknown command")),
        (packet(0x21, b"", b"PLAIN", b"\0u\0p"), refused(0x21, 0x81, "Unknown command")),
        (packet(SET, &FLAGS, b"a", huge.as_bytes()), refused(SET, 3, "Too large.")),
        (packet(SETQ, &FLAGS, b"a", huge.as_bytes()), refused(SETQ, 3, "Too large.")),
        (packet(GET, b"", long.as_bytes(), b""), refused(GET, 4, "Invalid arguments")),
        (packet(GETQ, b"", b"", b""), refused(GETQ, 4, "Invalid arguments")),
        (packet(SET, b"", b"a", b"x"), refused(SET, 4, "Invalid arguments")),
    ] {
        client.send([noop(), request, noop()].concat());
        client.expect_packets(&[answer(NOOP, 0, b"", b""), refusal, answer(NOOP, 0, b"", b"")]);
    }
    client.send(packet(GET, b"", b"a", b""));
    client.expect_packets(&[not_found(GET)]);
    // Lengths that contradict each other leave nothing to go on with.
    let mut torn = packet(GET, b"", b"abc", b"");
    torn[3] = 9;
    client.send(torn);
    client.expect_packets(&[refused(GET, 0x81, "Unknown command")]);
    client.expect_end();
}

#[test]
fn thousands_of_requests_in_one_piece_are_answered_one_by_one() {
    let subject = Subject::new();
    let mut client = subject.connect();
    let (mut requests, mut answers) = (String::new(), String::new());
    let value = "v".repeat(500);
    for i in 0..3000 {
        let key = i % 700;
        match i % 5 {
            0 => {
                write!(requests, "set k{key} {i} 0 500\r\n{value}\r\n").unwrap();
                answers += "STORED\r\n";
                write!(requests, "get k{key}\r\n").unwrap();
                write!(answers, "VALUE k{key} {i} 500\r\n{value}\r\nEND\r\n").unwrap();
            }
            1 => {
                write!(requests, "ms n{i} 1 k\r\n1\r\nincr n{i} 8\r\nmg n{i} v\r\nmn\r\n").unwrap();
                write!(answers, "HD kn{i}\r\n9\r\nVA 1\r\n9\r\nMN\r\n").unwrap();
            }
            2 => {
                write!(requests, "add q{i} 0 0 1 noreply\r\nx\r\nget q{i} absent q{i}\r\n").unwrap();
                let found = format!("VALUE q{i} 0 1\r\nx\r\n");
                write!(answers, "{found}{found}END\r\n").unwrap();
            }
            3 => {
                write!(requests, "nonsense\r\nmg absent{i} v\r\nmg absent{i} v q\r\n").unwrap();
                answers += "ERROR\r\nEN\r\n";
            }
            _ => {
                write!(requests, "delete q{0}\r\ngat 100 q{0}\r\ntouch k0 0\r\n", i - 2).unwrap();
                answers += "DELETED\r\nEND\r\nTOUCHED\r\n";
            }
        }
    }
    client.send(requests);
    client.expect(answers);
}

#[test]
fn stale_documents_are_promised_once_among_reads_that_arrived_together() {
    let subject = Subject::new();
    let mut client = subject.connect();
    client.ask("ms s 1 T300\r\nx\r\nmd s I\r\nset p 0 0 1\r\ny\r\n", "HD\r\nHD\r\nSTORED\r\n");
    client.ask(
        "get p\r\nmg s v\r\nmg p v\r\nget s\r\nmg s v\r\nmg new v N30\r\nmg new v N30\r\nget p\r\nmn\r\n",
        "VALUE p 0 1\r\ny\r\nEND\r\nVA 1 X W\r\nx\r\nVA 1\r\ny\r\nVALUE s 0 1\r\nx\r\nEND\r\nVA 1 Z X\r\nx\r\n\
         VA 0 W\r\n\r\nVA 0 Z\r\n\r\nVALUE p 0 1\r\ny\r\nEND\r\nMN\r\n",
    );
}

#[test]
fn a_cas_counts_between_requests_that_arrived_together() {
    let subject = Subject::new();
    let mut client = subject.connect();
    client.send("set a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\nmg a c\r\nset a 0 0 1\r\ny\r\nmg a c\r\nmn\r\n");
    let mut answer = String::new();
    while !answer.ends_with("MN\r\n") {
        answer += &client.line();
    }
    let words: Vec<&str> = answer.split("\r\n").collect();
    assert_eq!((words[0], words[1], words[3]), ("STORED", "STORED", "STORED"));
    assert!(words[2].starts_with("HD c") && words[4].starts_with("HD c") && words[2] != words[4], "{answer}");
}

#[test]
fn requests_that_need_files_stop_a_window_and_lose_nothing() {
    const MEMORY_BYTES: u64 = 8 << 20;
    let options = EngineOptions { memory_bytes: MEMORY_BYTES, ..EngineOptions::default() };
    let subject = Subject::with_options(MemcachedLimits::default(), options);
    let mut client = subject.connect();
    let value = |i: usize| format!("{i:08}").repeat(1250);
    let documents = 4 * MEMORY_BYTES as usize / value(0).len();
    for i in 0..documents {
        let value = value(i);
        client.ask(format!("set k{i} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    }
    let (mut requests, mut answers) = (String::new(), String::new());
    for i in (0..documents).step_by(17) {
        let (far, len) = ((i * 31) % documents, value(0).len());
        write!(
            requests,
            "append k{i} 0 0 1 noreply\r\n!\r\nget k{i}\r\nget k{far} absent\r\ntouch k{i} 0\r\n"
        )
        .unwrap();
        write!(answers, "VALUE k{i} 0 {}\r\n{}!\r\nEND\r\n", len + 1, value(i)).unwrap();
        let is_changed = far % 17 == 0 && far <= i;
        let far_value = value(far) + if is_changed { "!" } else { "" };
        write!(answers, "VALUE k{far} 0 {}\r\n{far_value}\r\nEND\r\nTOUCHED\r\n", far_value.len()).unwrap();
    }
    let writer = client.0.try_clone().unwrap();
    let sending = std::thread::spawn(move || std::io::Write::write_all(&mut &writer, requests.as_bytes()));
    client.expect(answers);
    sending.join().unwrap().unwrap();
}
