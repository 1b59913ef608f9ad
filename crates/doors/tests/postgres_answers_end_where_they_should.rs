//! Whatever a client sends, it is answered so that it never waits for ever and never counts wrongly: one `ReadyForQuery`
//! for each `Sync`, `Query` and function call that is not skipped, and an error before it has to send anything more.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

mod fake_sql;
mod wire_client;

use fake_sql::serve;
use oribi_doors::postgres::PostgresLimits;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::net::SocketAddr;
use wire_client::{WireClient, message, parse};

/// A message, and whether its body can be read.
#[derive(Clone, Debug)]
struct Step {
    tag: u8,
    body: Vec<u8>,
    whole: bool,
}

fn step(tag: u8, body: &[u8]) -> Step {
    Step { tag, body: body.to_vec(), whole: true }
}

fn steps() -> impl Strategy<Value = Step> {
    let parsed = |name, sql| step(b'P', &parse(name, sql)[5..]);
    let whole = prop::sample::select(vec![
        parsed("", "rows 3"),
        parsed("", "bogus"),
        parsed("", ""),
        parsed("s", "echo $1"),
        parsed("s", "begin"),
        parsed("r", "rollback"),
        step(b'B', b"\0\0\0\0\0\0\0\0"),
        step(b'B', b"\0s\0\0\0\0\x01\0\0\0\x01x\0\0"),
        step(b'B', b"\0r\0\0\0\0\0\0\0"),
        step(b'D', b"S\0"),
        step(b'D', b"Ss\0"),
        step(b'D', b"P\0"),
        step(b'E', b"\0\0\0\0\0"),
        step(b'E', b"\0\0\0\0\x01"),
        step(b'C', b"S\0"),
        step(b'C', b"Ss\0"),
        step(b'C', b"P\0"),
        step(b'H', b""),
        step(b'S', b""),
        step(b'S', b""),
        step(b'Q', b"rows 2\0"),
        step(b'Q', b"bogus\0"),
        step(b'Q', b"\0"),
        step(b'Q', b"begin\0"),
        step(b'Q', b"rollback\0"),
        step(b'Q', b"rows 1; breaks; rows 1\0"),
        step(b'F', b"\0\0\0\x01\0\0\0\0\0\0"),
        step(b'd', b"1\tone\n"),
        step(b'c', b""),
        step(b'f', b"because\0"),
    ]);
    (whole, 0..4_usize).prop_map(|(mut step, harm)| {
        if harm == 0 && !matches!(step.tag, b'd' | b'c' | b'f') {
            step.body.push(7);
            step.whole = false;
        }
        step
    })
}

struct Case {
    client: WireClient,
    skipping: bool,
}

impl Case {
    fn next(&mut self) -> char {
        loop {
            let (tag, _) = self.client.next().expect("the connection lives");
            if !matches!(tag, b'N' | b'S') {
                return char::from(tag);
            }
        }
    }

    /// Reads what a message is answered with, and not a byte beyond.
    fn take_answers(&mut self, step: &Step) {
        match step.tag {
            b'd' | b'c' | b'f' => {}
            b'S' => {
                self.skipping = false;
                if !step.whole {
                    assert_eq!(self.next(), 'E');
                }
                assert_eq!(self.next(), 'Z');
            }
            _ if self.skipping => {}
            b'Q' | b'F' => {
                let mut answers = String::new();
                while !answers.ends_with('Z') {
                    answers.push(self.next());
                }
                assert!(answers.matches('E').count() <= 1, "{step:?}: {answers}");
                assert!(step.whole || answers == "EZ", "{step:?}: {answers}");
            }
            b'H' if step.whole => {}
            _ => {
                let ends: &[char] = match step.tag {
                    b'P' => &['1'],
                    b'B' => &['2'],
                    b'C' => &['3'],
                    b'D' => &['T', 'n'],
                    b'E' => &['C', 's', 'I'],
                    _ => &[],
                };
                let mut answer = self.next();
                while answer != 'E' && !ends.contains(&answer) {
                    assert!(matches!((step.tag, answer), (b'D', 't') | (b'E', 'D')), "{step:?}: {answer}");
                    answer = self.next();
                }
                assert!(step.whole || answer == 'E', "{step:?}: {answer}");
                self.skipping = answer == 'E';
            }
        }
    }
}

fn check(addr: SocketAddr, steps: &[Step], together: bool) {
    let mut case = Case { client: WireClient::connect(addr), skipping: false };
    let bytes = |step: &Step| message(step.tag, &step.body);
    if together {
        case.client.send(&steps.iter().flat_map(bytes).collect::<Vec<_>>());
    }
    for step in steps {
        if !together {
            case.client.send(&bytes(step));
            // What fails is told without being asked.
            if step.whole {
                case.client.send(&message(b'H', b""));
            }
        }
        case.take_answers(step);
    }
    case.client.send(&message(b'X', b""));
    assert_eq!(case.client.next(), None, "nothing is left to say");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_is_answered_once_and_errors_at_once() {
    let server = serve(PostgresLimits::default());
    let addr = server.addr;
    let client = tokio::task::spawn_blocking(move || {
        let mut runner =
            TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
        let cases = (prop::collection::vec(steps(), 1..20), any::<bool>());
        runner.run(&cases, |(mut steps, together)| {
            // A series that was begun is ended, and with it what is asked to be flushed.
            steps.push(step(b'S', b""));
            check(addr, &steps, together);
            Ok(())
        })
    });
    client.await.unwrap().unwrap();
}

/// As asyncpg does: it waits for the error, and sends `Sync` behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_waits_for_the_error_of_a_parse_gets_it() {
    let server = serve(PostgresLimits::default());
    let addr = server.addr;
    let client = tokio::task::spawn_blocking(move || {
        let mut client = WireClient::connect(addr);
        for last in [message(b'H', b""), Vec::new()] {
            client.send(&[parse("s", "bogus"), message(b'D', b"Ss\0"), last].concat());
            assert_eq!(client.next().unwrap().0, b'E');
            client.send(&message(b'S', b""));
            assert_eq!(client.next().unwrap().0, b'Z');
        }
    });
    client.await.unwrap();
}
