//! The memcached door over a socket: whatever the pieces in which requests arrive and answers are read.
#![allow(clippy::unwrap_used)]

mod memcached_subject;

use memcached_subject::{NOOP, Subject, answer, packet};
use oribi_doors::memcached::{MemcachedDoor, MemcachedLimits};
use oribi_engine::EngineOptions;
use oribi_net::ClientLimits;
use oribi_types::ErrorKind;
use std::io::{ErrorKind as Io, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use tokio::sync::watch;

#[test]
fn pipelined_requests_see_each_other() {
    let subject = Subject::new();
    subject.connect().ask(
        "set a 1 0 1\r\nx\r\nget a\r\nappend a 0 0 2\r\nyz\r\nget a b\r\nset n 0 0 1\r\n9\r\nincr n 1\r\ndecr n 20\r\n\
         delete a\r\nget a\r\nadd a 0 0 0\r\n\r\nadd a 0 0 0\r\n\r\nmg a s v\r\nmn\r\n",
        "STORED\r\nVALUE a 1 1\r\nx\r\nEND\r\nSTORED\r\nVALUE a 1 3\r\nxyz\r\nEND\r\nSTORED\r\n10\r\n0\r\n\
         DELETED\r\nEND\r\nSTORED\r\nNOT_STORED\r\nVA 0 s0\r\n\r\nMN\r\n",
    );
}

#[test]
fn requests_may_arrive_byte_by_byte() {
    let subject = Subject::new();
    let mut client = subject.connect();
    client.0.set_nodelay(true).unwrap();
    for byte in b"set k 5 0 4\r\n\r\n\r\n\r\nget k\r\nms k 2 c\r\nhi\r\n"[..31].iter() {
        client.send([*byte]);
    }
    client.expect("STORED\r\nVALUE k 5 4\r\n\r\n\r\n\r\nEND\r\n");
}

#[test]
fn noreply_is_silent_about_refusals_too() {
    let subject = Subject::new();
    let mut client = subject.connect();
    client.send(
        "set a 0 0 1 noreply\r\nx\r\nadd a 0 0 1 noreply\r\ny\r\nincr a 1 noreply\r\ndelete z noreply\r\n\
         touch z 0 noreply\r\nset z 0 0 2000000 noreply\r\n",
    );
    client.send("z".repeat(2_000_000));
    client.ask("\r\nget a z\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
    client.ask(
        "mg a v q\r\nmg z v q\r\nms a 1 q\r\ny\r\nmd z q\r\nmd a q\r\nmn\r\n",
        "VA 1\r\nx\r\nNF\r\nMN\r\n",
    );
}

#[test]
fn values_up_to_the_limit_are_stored_and_larger_ones_swallowed() {
    let subject = Subject::new();
    let mut client = subject.connect();
    let large = "v".repeat(1 << 20);
    client.ask(format!("set k 0 0 {}\r\n{large}\r\n", large.len()), "STORED\r\n");
    client.ask("get k\r\n", format!("VALUE k 0 {}\r\n{large}\r\nEND\r\n", large.len()));
    client.ask("append k 0 0 1\r\nx\r\n", "SERVER_ERROR object too large for cache\r\n");
    // The refusal comes before the value has, and what looks like requests in it is not executed.
    client.ask(format!("set k 0 0 {}\r\n", large.len() + 8), "SERVER_ERROR object too large for cache\r\n");
    client.send(&large);
    client.ask("\r\nmn\r\nmn\r\nmn\r\n", "MN\r\n");
    client.ask("set k2 0 0 2147483000\r\n", "SERVER_ERROR object too large for cache\r\n");
}

#[test]
fn many_large_answers_come_whole_and_in_order() {
    let subject = Subject::new();
    let mut client = subject.connect();
    let mut expected = String::new();
    for i in 0..40 {
        let value = format!("{i}").repeat(20_000);
        client.ask(format!("set k{i} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
        expected += &format!("VALUE k{i} 0 {}\r\n{value}\r\n", value.len());
    }
    let keys: String = (0..40).map(|i| format!(" k{i}")).collect();
    let request = format!("get{keys}\r\n");
    // 12 MB of answers to a client that does not read them yet.
    client.send(request.repeat(10));
    client.expect((expected + "END\r\n").repeat(10));
    let request = format!("gat 0{keys}\r\nmn\r\n");
    client.send(request);
    let mut answer = vec![0; 100];
    client.0.read_exact(&mut answer).unwrap();
    assert!(answer.starts_with(b"VALUE k0 0 20000\r\n0000"));
}

#[test]
fn a_client_that_does_not_read_is_not_served_more() {
    let subject = Subject::new();
    let mut client = subject.connect();
    let value = "v".repeat(1_000_000);
    client.ask(format!("set k 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    client.0.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let gets = "get k\r\n".repeat(10_000);
    // Answers of 10 GB each: sooner or later the door stops reading, and this would go on for ever if it did not.
    let blocked = loop {
        if let Err(error) = client.0.write_all(gets.as_bytes()) {
            break error;
        }
    };
    assert_eq!(blocked.kind(), Io::WouldBlock);
    // Others are served meanwhile.
    subject.connect().ask("mn\r\n", "MN\r\n");
}

#[test]
fn rows_in_files_are_read_without_holding_up_the_answers_before() {
    let subject = Subject::new();
    let mut client = subject.connect();
    for i in 0..200 {
        client.ask(format!("set k{i} {i} 0 3\r\nabc\r\n"), "STORED\r\n");
    }
    let table = subject.engine.table("default", "kv").unwrap();
    subject.engine.flush(&table).unwrap();
    let mut request = String::new();
    let mut answer = String::new();
    for i in 0..200 {
        request += &format!("get k{i}\r\nappend k{i} 0 0 1\r\nd\r\nmg k{i} v\r\n");
        answer += &format!("VALUE k{i} {i} 3\r\nabc\r\nEND\r\nSTORED\r\nVA 4\r\nabcd\r\n");
    }
    client.ask(request, answer);
}

#[test]
fn a_full_budget_evicts_no_document() {
    const MEMORY_BYTES: u64 = 16 << 20;
    let options = EngineOptions::with_memory(MEMORY_BYTES);
    let subject = Subject::with_options(MemcachedLimits::default(), options);
    let mut client = subject.connect();
    let value = |i: usize| format!("{i:05}").repeat(10_000);
    let documents = 3 * MEMORY_BYTES as usize / value(0).len();
    for i in 0..documents {
        client.ask(format!("set k{i} 0 0 50000\r\n{}\r\n", value(i)), "STORED\r\n");
    }
    for i in 0..documents {
        client.ask(format!("get k{i}\r\n"), format!("VALUE k{i} 0 50000\r\n{}\r\nEND\r\n", value(i)));
    }
    assert!(subject.engine.memory().used() <= MEMORY_BYTES);
}

#[test]
fn cas_is_the_commit_timestamp() {
    let subject = Subject::new();
    let mut client = subject.connect();
    client.ask("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    client.send("gets k\r\n");
    let mut answer = vec![0; 300];
    let n = client.0.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..n]).into_owned();
    let cas: u64 = answer.split_whitespace().nth(4).unwrap().parse().unwrap();
    client.ask(format!("cas k 0 0 1 {}\r\ny\r\n", cas - 1), "EXISTS\r\n");
    client.ask(format!("cas z 0 0 1 {cas}\r\ny\r\n"), "NOT_FOUND\r\n");
    client.ask(format!("cas k 0 0 1 {cas}\r\ny\r\ncas k 0 0 1 {cas}\r\nz\r\n"), "STORED\r\nEXISTS\r\n");
    client.ask("get k\r\n", "VALUE k 0 1\r\ny\r\nEND\r\n");
}

#[test]
fn expiry_follows_the_protocol() {
    let subject = Subject::new();
    let mut client = subject.connect();
    client.ask("set a 0 -1 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n");
    client.ask("set a 0 1 1\r\nx\r\nmg a t\r\n", "STORED\r\nHD t1\r\n");
    client.ask("set b 0 2592000 1\r\nx\r\nmg b t\r\n", "STORED\r\nHD t2592000\r\n");
    client.ask("set c 0 2592001 1\r\nx\r\nget c\r\n", "STORED\r\nEND\r\n");
    client.ask("touch b 0\r\nmg b t\r\n", "TOUCHED\r\nHD t-1\r\n");
    client.ask("gat -1 b\r\nget b\r\n", "VALUE b 0 1\r\nx\r\nEND\r\nEND\r\n");
    std::thread::sleep(Duration::from_millis(1100));
    client.ask("get a\r\nadd a 0 0 1\r\ny\r\n", "END\r\nSTORED\r\n");
}

#[test]
fn flush_all_empties_the_bucket_now_or_later() {
    let subject = Subject::new();
    let mut client = subject.connect();
    client.ask(
        "set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\nset a 0 0 1\r\ny\r\nget a\r\n",
        "STORED\r\nOK\r\nEND\r\nSTORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n",
    );
    client.ask("flush_all 1\r\nget a\r\n", "OK\r\nVALUE a 0 1\r\ny\r\nEND\r\n");
    let gone = (0..1200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        client.send("mg a\r\n");
        let mut answer = [0; 4];
        client.0.read_exact(&mut answer).unwrap();
        answer == *b"EN\r\n"
    });
    assert!(gone);
    client.ask(
        "set a 0 0 1\r\nx\r\nflush_all 3600 noreply\r\nget a\r\n",
        "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    );
}

#[test]
fn the_stale_and_win_flags_elect_one_client() {
    let subject = Subject::new();
    let mut client = subject.connect();
    client.ask("mg k N30 v t\r\nmg k N30 v\r\nmg k v\r\n", "VA 0 t30 W\r\n\r\nVA 0 Z\r\n\r\nVA 0 Z\r\n\r\n");
    client.ask("ms k 1 T30 F3\r\nx\r\nmg k v f\r\n", "HD\r\nVA 1 f3\r\nx\r\n");
    client.ask("mg k R10\r\nmg k R31 t\r\nmg k R31\r\n", "HD\r\nHD t30 W\r\nHD Z\r\n");
    client.ask("md k I T60\r\nmg k t v\r\nmg k v\r\n", "HD\r\nVA 1 t60 X W\r\nx\r\nVA 1 Z X\r\nx\r\n");
    client.ask(
        "ms k 1 I C1\r\ny\r\nmg k v\r\nms k 1\r\nz\r\nmg k v\r\n",
        "HD\r\nVA 1 Z X\r\ny\r\nHD\r\nVA 1\r\nz\r\n",
    );
}

#[test]
fn meta_arithmetic_makes_counts_and_compares() {
    let subject = Subject::new();
    let mut client = subject.connect();
    client.ask(
        "ma n\r\nma n N0 J13 v t\r\nma n v\r\nma n MD D20 v\r\n",
        "NF\r\nVA 2 t-1\r\n13\r\nVA 2\r\n14\r\nVA 1\r\n0\r\n",
    );
    client.ask("ma n C5\r\nma n q\r\nma n T30 t q\r\nma n t\r\n", "EX\r\nHD t30\r\n");
    client.ask(
        "ms n 1\r\nx\r\nma n\r\n",
        "HD\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
}

#[test]
fn stats_answer_what_was_done() {
    let subject = Subject::new();
    let mut client = subject.connect();
    client.send("set a 0 0 1\r\nx\r\nget a b\r\nstats\r\nquit\r\n");
    let mut answer = String::new();
    client.0.read_to_string(&mut answer).unwrap();
    for line in [
        "STAT cmd_get 2",
        "STAT get_hits 1",
        "STAT get_misses 1",
        "STAT cmd_set 1",
        "STAT curr_connections 1",
    ] {
        assert!(answer.contains(&format!("{line}\r\n")), "{line}: {answer}");
    }
    let mut client = subject.connect();
    client.ask(
        "stats sizes\r\nstats reset\r\nstats nothing\r\n",
        "STAT sizes_status disabled\r\nEND\r\nRESET\r\nERROR\r\n",
    );
    client.send("stats settings\r\nversion\r\nquit\r\n");
    let mut answer = String::new();
    client.0.read_to_string(&mut answer).unwrap();
    assert!(
        answer.contains("STAT item_size_max 1048576\r\n") && answer.contains("\r\nVERSION 1.6.18-oribi-"),
        "{answer}"
    );
}

#[test]
fn the_end_of_the_input_answers_what_was_asked() {
    let subject = Subject::new();
    let mut client = subject.connect();
    client.send("set a 0 0 1\r\nx\r\nget a\r\nget");
    client.0.shutdown(Shutdown::Write).unwrap();
    client.expect("STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    client.expect_end();
}

#[test]
fn what_is_not_the_protocol_is_turned_away() {
    let subject = Subject::new();
    let mut mixed = subject.connect();
    mixed.send(packet(NOOP, b"", b"", b""));
    mixed.send("get a\r\n");
    mixed.expect(answer(NOOP, 0, b"", b""));
    mixed.expect_end();

    let mut browser = subject.connect();
    browser.send("POST / HTTP/1.1\r\nset a 0 0 1\r\nx\r\n");
    browser.expect_end();
    let mut endless = subject.connect();
    endless.send("x".repeat(5000));
    endless.expect("CLIENT_ERROR line is too long\r\n");
    endless.expect_end();
    subject.connect().ask("get a\r\n", "END\r\n");
}

#[test]
fn limits_are_kept() {
    let clients = ClientLimits { connections_max: 2, ..ClientLimits::default() };
    let subject = Subject::with(MemcachedLimits { clients, ..MemcachedLimits::default() });
    let (mut first, mut second) = (subject.connect(), subject.connect());
    first.ask("mn\r\n", "MN\r\n");
    second.ask("mn\r\n", "MN\r\n");
    let mut third = subject.connect();
    third.expect("ERROR Too many open connections\r\n");
    third.expect_end();
}

#[test]
fn whoever_is_silent_for_too_long_is_sent_off() {
    let clients = ClientLimits { idle_max: Some(Duration::from_millis(300)), ..ClientLimits::default() };
    let subject = Subject::with(MemcachedLimits { clients, ..MemcachedLimits::default() });
    subject.connect().expect_end();
}

#[test]
fn addresses_are_loopback_and_free() {
    let subject = Subject::new();
    let start = |addr: &str| {
        let (_, shut) = watch::channel(false);
        MemcachedDoor::start(
            addr.parse().unwrap(),
            &subject.engine,
            &std::sync::Arc::default(),
            MemcachedLimits::default(),
            1,
            shut,
        )
    };
    assert_eq!(start("0.0.0.0:0").map(|_| ()).unwrap_err().kind(), ErrorKind::Forbidden);
    assert_eq!(start(&subject.addr.to_string()).map(|_| ()).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn shutting_the_door_ends_its_connections() {
    let mut subject = Subject::new();
    let mut client = subject.connect();
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    subject.shut();
    client.expect_end();
    assert!(TcpStream::connect(subject.addr).is_err());
}
