//! What clients of the PostgreSQL door have kept under names takes so much memory and no more: of one connection, and of all.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

mod fake_sql;
mod wire_client;

use fake_sql::serve;
use oribi_doors::postgres::PostgresLimits;
use wire_client::{WireClient, message, parse};

const SYNC: &[u8] = b"S\0\0\0\x04";

/// Has a statement of 2,000 bytes kept; `None` if that is done, or SQLSTATE and text of why not.
fn keep(client: &mut WireClient, name: &str) -> Option<(String, String)> {
    let sql = format!("done {}", "x".repeat(1995));
    client.send(&[&parse(name, &sql)[..], SYNC].concat());
    refusal(&client.until_ready(1))
}

/// Has a portal with a value of 5,000 bytes kept.
fn bind(client: &mut WireClient, portal: &str) -> Option<(String, String)> {
    let mut body = [portal.as_bytes(), b"\0echo\0\0\0\0\x01"].concat();
    body.extend(5000u32.to_be_bytes());
    body.extend([b'v'; 5000]);
    body.extend(b"\0\0");
    client.send(&[&message(b'B', &body)[..], SYNC].concat());
    refusal(&client.until_ready(1))
}

fn refusal(messages: &[(u8, Vec<u8>)]) -> Option<(String, String)> {
    let (_, body) = messages.iter().find(|(tag, _)| *tag == b'E')?;
    let fields = body.split(|byte| *byte == 0).filter_map(|field| field.split_first());
    let field = |code| {
        let mut fields = fields.clone();
        fields.find(|(tag, _)| **tag == code).map(|(_, text)| String::from_utf8(text.to_vec()).unwrap())
    };
    Some((field(b'C').unwrap(), field(b'M').unwrap()))
}

fn close(client: &mut WireClient, target: &str) {
    client.send(&[&message(b'C', format!("{target}\0").as_bytes())[..], SYNC].concat());
    assert_eq!(refusal(&client.until_ready(1)), None);
}

#[tokio::test]
async fn statements_and_portals_have_so_much_room() {
    // A statement of 2,000 bytes counts as 9 KiB, a portal of 5,000 as 6 KiB.
    let limits =
        PostgresLimits { kept_bytes_max: 20 << 10, kept_bytes_max_of_all: 34 << 10, ..Default::default() };
    let server = serve(limits);
    let addr = server.addr;
    let talk = move || {
        let mut one = WireClient::connect(addr);
        assert_eq!(keep(&mut one, "a"), None);
        assert_eq!(keep(&mut one, "b"), None);
        let (state, text) = keep(&mut one, "c").unwrap();
        assert!(state == "54000" && text.contains("20480 bytes are the limit"), "{state} {text}");
        // The unnamed one is replaced, and does not count.
        assert_eq!(keep(&mut one, ""), None);

        let mut other = WireClient::connect(addr);
        assert_eq!(keep(&mut other, "a"), None);
        let (state, text) = keep(&mut other, "b").unwrap();
        assert!(state == "53200" && text.contains("34816 bytes are the limit"), "{state} {text}");
        close(&mut one, "Sa");
        assert_eq!(keep(&mut other, "b"), None);
        // What a connection kept goes with it.
        drop(other);
        let mut third = WireClient::connect(addr);
        while keep(&mut third, "a").is_some() {}
        assert_eq!(keep(&mut third, "b"), None);
        drop((one, third));

        let mut binder = WireClient::connect(addr);
        binder.send(&[&parse("echo", "echo $1")[..], b"Q\0\0\0\x0abegin\0"].concat());
        binder.until_ready(1);
        assert_eq!(
            [bind(&mut binder, "p"), bind(&mut binder, "q"), bind(&mut binder, "r")],
            [None, None, None]
        );
        assert_eq!(bind(&mut binder, "s").unwrap().0, "54000");
    };
    tokio::task::spawn_blocking(talk).await.unwrap();
}

#[tokio::test]
async fn plans_count_with_their_statements() {
    let limits =
        PostgresLimits { kept_bytes_max: 20 << 10, kept_bytes_max_of_all: 34 << 10, ..Default::default() };
    let server = serve(limits);
    let addr = server.addr;
    let talk = move || {
        let mut client = WireClient::connect(addr);
        let mut keep_plan = |name, bytes: usize| {
            client.send(&[&parse(name, &format!("plan {bytes}"))[..], SYNC].concat());
            refusal(&client.until_ready(1)).map(|(state, _)| state)
        };
        assert_eq!(keep_plan("a", 10 << 10), None);
        assert_eq!(keep_plan("b", 10 << 10).unwrap(), "54000");
        assert_eq!(keep_plan("", 1 << 20), None, "the unnamed one does not count");
        // What was refused left nothing behind.
        assert_eq!(keep_plan("b", 5 << 10), None);
        close(&mut client, "Sa");
        client.send(&[&parse("c", "plan 10240")[..], SYNC].concat());
        assert_eq!(refusal(&client.until_ready(1)), None);
    };
    tokio::task::spawn_blocking(talk).await.unwrap();
}
