//! The PostgreSQL door over a fake engine, driven by a real client library and by hand-made bytes.

#![allow(clippy::unwrap_used, clippy::type_complexity)] // a test that cannot go on panics

mod fake_sql;

use bytes::Bytes;
use fake_sql::{eventually, serve};
use futures::{SinkExt, TryStreamExt, pin_mut};
use oribi_doors::postgres::PostgresLimits;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

async fn texts(client: &Client, sql: &str) -> Vec<Vec<Option<String>>> {
    let messages = client.simple_query(sql).await.unwrap();
    let rows = messages.iter().filter_map(|m| match m {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect()),
        _ => None,
    });
    rows.collect()
}

#[tokio::test]
async fn every_type_arrives_in_text_and_in_binary() {
    let server = serve(PostgresLimits::default());
    let client = server.connect().await;
    let rows = texts(&client, "types").await;
    let expected = [
        "t",
        "-2",
        "4",
        "-9223372036854775808",
        "0.5",
        "-Infinity",
        "-12345.67",
        "naïve",
        "\\x00ff",
        "1969-12-31",
        "1970-01-01 00:00:01.5",
        "07070707-0707-0707-0707-070707070707",
    ];
    assert_eq!(rows[0].iter().map(|v| v.as_deref().unwrap()).collect::<Vec<_>>(), expected);
    assert!(rows[1].iter().all(Option::is_none));

    // This client asks for binary.
    let rows = client.query("types", &[]).await.unwrap();
    let types: Vec<_> = rows[0].columns().iter().map(|c| c.type_().name().to_owned()).collect();
    assert_eq!(
        types,
        [
            "bool",
            "int2",
            "int4",
            "int8",
            "float4",
            "float8",
            "numeric",
            "text",
            "bytea",
            "date",
            "timestamp",
            "uuid"
        ]
    );
    assert!(rows[0].get::<_, bool>("bool"));
    assert_eq!(rows[0].get::<_, i16>("int2"), -2);
    assert_eq!(rows[0].get::<_, i32>("int4"), 4);
    assert_eq!(rows[0].get::<_, i64>("int8"), i64::MIN);
    assert_eq!(rows[0].get::<_, f32>("float4"), 0.5);
    assert_eq!(rows[0].get::<_, f64>("float8"), f64::NEG_INFINITY);
    assert_eq!(rows[0].get::<_, &str>("text"), "naïve");
    assert_eq!(rows[0].get::<_, &[u8]>("bytea"), b"\x00\xff");
    assert_eq!(
        rows[0].get::<_, std::time::SystemTime>("timestamp"),
        std::time::UNIX_EPOCH + Duration::from_millis(1500)
    );
    assert_eq!(rows[1].get::<_, Option<i64>>("int8"), None);
}

#[tokio::test]
async fn parameters_keep_their_types_and_nulls() {
    let server = serve(PostgresLimits::default());
    let client = server.connect().await;
    let types = [Type::INT2, Type::INT8, Type::FLOAT8, Type::TEXT, Type::BYTEA, Type::BOOL];
    let statement = client.prepare_typed("echo $1 $2 $3 $4 $5 $6", &types).await.unwrap();
    assert_eq!(statement.params(), types);
    for _ in 0..2 {
        let row = client
            .query_one(&statement, &[&7_i16, &i64::MAX, &1.5_f64, &"seven", &&b"\0"[..], &None::<bool>])
            .await
            .unwrap();
        assert_eq!(row.get::<_, i16>(0), 7);
        assert_eq!(row.get::<_, i64>(1), i64::MAX);
        assert_eq!(row.get::<_, f64>(2), 1.5);
        assert_eq!(row.get::<_, &str>(3), "seven");
        assert_eq!(row.get::<_, &[u8]>(4), b"\0");
        assert_eq!(row.get::<_, Option<bool>>(5), None);
    }
}

#[tokio::test]
async fn large_results_arrive_whole_and_in_portions() {
    let server = serve(PostgresLimits::default());
    let client = server.connect().await;
    let rows = client.query("rows 123456", &[]).await.unwrap();
    assert_eq!(rows.len(), 123_456);
    assert!(rows.iter().enumerate().all(|(i, row)| row.get::<_, i64>(0) == i as i64));

    let portions = portions(server.addr, 2500, 1200).await;
    assert_eq!(portions, [(1200, 's'), (1200, 's'), (100, 'C')]);
}

/// Rows and the ending message of each `Execute` of one portal.
async fn portions(addr: std::net::SocketAddr, rows: usize, limit: i32) -> Vec<(usize, char)> {
    let mut raw = Raw::connect(addr).await;
    raw.send(b'P', format!("\0rows {rows}\0\0\0").as_bytes()).await;
    raw.send(b'B', b"p\0\0\0\0\0\0\0\0").await;
    let mut execute = b"p\0".to_vec();
    execute.extend_from_slice(&limit.to_be_bytes());
    for _ in 0..3 {
        raw.send(b'E', &execute).await;
    }
    raw.send(b'S', b"").await;
    let mut portions = vec![];
    let mut count = 0;
    loop {
        match raw.receive().await.0 {
            b'D' => count += 1,
            tag @ (b's' | b'C') => portions.push((std::mem::take(&mut count), tag as char)),
            b'Z' => return portions,
            _ => {}
        }
    }
}

#[tokio::test]
async fn errors_carry_state_position_and_hint_and_the_session_goes_on() {
    let server = serve(PostgresLimits::default());
    let client = server.connect().await;
    let error = client.simple_query("done; bogus").await.unwrap_err();
    let db = error.as_db_error().unwrap();
    assert_eq!(db.code(), &SqlState::SYNTAX_ERROR);
    assert_eq!(db.hint(), Some("try rows, types or echo"));
    // Counted from the start of the script.
    assert_eq!(db.position(), Some(&tokio_postgres::error::ErrorPosition::Original(7)));
    assert_eq!(client.query("bogus", &[]).await.unwrap_err().code(), Some(&SqlState::SYNTAX_ERROR));
    let broken = client.query("breaks", &[]).await.unwrap_err();
    assert_eq!(broken.code(), Some(&SqlState::DATA_CORRUPTED));
    assert_eq!(client.execute("done", &[]).await.unwrap(), 3);
    assert_eq!(texts(&client, "rows 2").await.len(), 2);
    assert!(texts(&client, ";").await.is_empty());
}

#[tokio::test]
async fn a_failed_block_refuses_statements_until_rollback() {
    let server = serve(PostgresLimits::default());
    let client = server.connect().await;
    client.batch_execute("begin").await.unwrap();
    client.batch_execute("bogus").await.unwrap_err();
    let refused = client.batch_execute("done").await.unwrap_err();
    assert_eq!(refused.code(), Some(&SqlState::IN_FAILED_SQL_TRANSACTION));
    client.batch_execute("rollback").await.unwrap();
    client.batch_execute("done").await.unwrap();
}

#[tokio::test]
async fn a_cancel_request_stops_what_runs_and_nothing_else() {
    let server = serve(PostgresLimits::default());
    let client = server.connect().await;
    let token = client.cancel_token();
    for sql in ["sleep", "endless"] {
        // One that comes while nothing runs is void.
        token.cancel_query(NoTls).await.unwrap();
        assert_eq!(texts(&client, "rows 1").await.len(), 1);
        let run = async {
            let stream = client.query_raw(sql, Vec::<i32>::new()).await?;
            stream.try_for_each(|_| async { Ok(()) }).await
        };
        let cancel = async {
            eventually(|| server.sql.running.load(Ordering::SeqCst) == 1).await;
            token.cancel_query(NoTls).await.unwrap();
        };
        let (ran, ()) = tokio::join!(run, cancel);
        assert_eq!(ran.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
        eventually(|| server.sql.running.load(Ordering::SeqCst) == 0).await;
    }
    assert_eq!(client.query("rows 3", &[]).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_client_that_goes_away_stops_its_statement() {
    let server = serve(PostgresLimits::default());
    for sql in ["sleep\0", "endless\0"] {
        let mut raw = Raw::connect(server.addr).await;
        raw.send(b'Q', sql.as_bytes()).await;
        eventually(|| server.sql.running.load(Ordering::SeqCst) == 1).await;
        drop(raw);
        eventually(|| server.sql.running.load(Ordering::SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn copy_brings_rows_in_and_out() {
    let server = serve(PostgresLimits::default());
    let client = server.connect().await;
    let out = async |sql: &str| {
        let stream = client.copy_out(sql).await.unwrap();
        let parts: Vec<Bytes> = stream.try_collect().await.unwrap();
        parts
    };
    let text = out("copy_out text").await;
    assert_eq!(text, [&b"1\tAda, \"Countess\"\\tof\\nLovelace\n"[..], b"2\t\\N\n", b"3\t\n"]);
    let csv = out("copy_out csv").await;
    assert_eq!(
        csv,
        [&b"id,name\n"[..], b"1,\"Ada, \"\"Countess\"\"\tof\nLovelace\"\n", b"2,\n", b"3,\"\"\n"]
    );

    for (sql, data) in [("copy_in text", text), ("copy_in csv", csv)] {
        server.sql.copied.lock().unwrap().clear();
        let sink = client.copy_in(sql).await.unwrap();
        pin_mut!(sink);
        for part in data {
            sink.send(part).await.unwrap();
        }
        assert_eq!(sink.finish().await.unwrap(), 3);
        let name = "Ada, \"Countess\"\tof\nLovelace".to_owned();
        assert_eq!(
            *server.sql.copied.lock().unwrap(),
            [(1, Some(name)), (2, None), (3, Some(String::new()))]
        );
    }
}

#[tokio::test]
async fn a_copy_that_fails_copies_nothing_and_the_session_goes_on() {
    let server = serve(PostgresLimits::default());
    let client = server.connect().await;
    let sink = client.copy_in("copy_in text").await.unwrap();
    pin_mut!(sink);
    sink.send(Bytes::from_static(b"1\ta\nx\tb\n")).await.unwrap();
    let error = sink.finish().await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::INVALID_TEXT_REPRESENTATION));
    assert!(error.as_db_error().unwrap().message().starts_with("line 2: column \"id\""), "{error:?}");
    {
        // Dropping the sink tells the server to give up.
        let sink = client.copy_in("copy_in text").await.unwrap();
        pin_mut!(sink);
        sink.send(Bytes::from_static(b"1\ta\n")).await.unwrap();
    }
    assert_eq!(client.query("rows 3", &[]).await.unwrap().len(), 3);
    assert!(server.sql.copied.lock().unwrap().is_empty());

    // The simple protocol: what the client still sends after the error is ignored.
    let mut raw = Raw::connect(server.addr).await;
    raw.send(b'Q', b"copy_in text\0").await;
    raw.send(b'd', b"x\ty\nz\t").await;
    raw.send(b'd', b"more\n").await;
    raw.send(b'c', b"").await;
    raw.send(b'Q', b"rows 1\0").await;
    assert_eq!(raw.tags_until_ready().await, "GEZ");
    assert_eq!(raw.tags_until_ready().await, "TDCZ");
}

#[tokio::test]
async fn warnings_reach_the_client_before_the_answer() {
    let server = serve(PostgresLimits::default());
    let mut raw = Raw::connect(server.addr).await;
    raw.send(b'Q', b"warn\0").await;
    assert_eq!(raw.tags_until_ready().await, "NCZ");
}

#[tokio::test]
async fn after_an_error_messages_are_skipped_up_to_sync() {
    let server = serve(PostgresLimits::default());
    let mut raw = Raw::connect(server.addr).await;
    raw.send(b'P', b"\0bogus\0\0\0").await;
    raw.send(b'B', b"\0\0\0\0\0\0\0\0").await;
    raw.send(b'E', b"\0\0\0\0\0").await;
    raw.send(b'S', b"").await;
    assert_eq!(raw.tags_until_ready().await, "EZ");
    // A truncated Bind is an error of the message, not of the connection.
    raw.send(b'B', b"\0\0\0\x05").await;
    raw.send(b'S', b"").await;
    assert_eq!(raw.tags_until_ready().await, "EZ");
    raw.send(b'P', b"s\0rows 1\0\0\0").await;
    raw.send(b'D', b"Ss\0").await;
    raw.send(b'P', b"s\0rows 1\0\0\0").await;
    raw.send(b'S', b"").await;
    assert_eq!(raw.tags_until_ready().await, "1tTEZ");
    raw.send(b'C', b"Ss\0").await;
    raw.send(b'P', b"\0\0\0\0").await;
    raw.send(b'B', b"\0\0\0\0\0\0\0\0").await;
    raw.send(b'D', b"P\0").await;
    raw.send(b'E', b"\0\0\0\0\0").await;
    raw.send(b'S', b"").await;
    assert_eq!(raw.tags_until_ready().await, "312nIZ");
}

#[tokio::test]
async fn deallocate_forgets_prepared_statements() {
    let server = serve(PostgresLimits::default());
    let mut raw = Raw::connect(server.addr).await;
    for (release, answer, known) in
        [("deallocate One", "CZ", "E"), ("deallocate other", "EZ", "t"), ("deallocate all", "CZ", "E")]
    {
        raw.send(b'P', b"One\0rows 1\0\0\0").await;
        raw.send(b'S', b"").await;
        raw.tags_until_ready().await;
        raw.send(b'Q', format!("{release}\0").as_bytes()).await;
        assert_eq!(raw.tags_until_ready().await, answer);
        raw.send(b'D', b"SOne\0").await;
        raw.send(b'S', b"").await;
        assert!(raw.tags_until_ready().await.starts_with(known), "{release}");
        raw.send(b'C', b"SOne\0").await;
        raw.send(b'S', b"").await;
        raw.tags_until_ready().await;
    }
}

#[tokio::test]
async fn settings_at_startup_are_checked_as_those_of_set() {
    let server = serve(PostgresLimits::default());
    let address = format!("host={} port={} user=ada", server.addr.ip(), server.addr.port());
    let with =
        async |more: &str| tokio_postgres::connect(&format!("{address} {more}"), NoTls).await.map(|_| ());
    with("application_name=test").await.unwrap();
    for wrong in ["options='-c bogus=1'", "options='--bogus=1'"] {
        let refused = with(wrong).await.unwrap_err();
        assert_eq!(refused.code(), Some(&SqlState::UNDEFINED_OBJECT), "{wrong}");
    }
}

#[tokio::test]
async fn garbage_and_huge_lengths_are_answered_or_closed_and_others_are_served() {
    let server = serve(PostgresLimits { message_bytes_max: 1 << 20, ..PostgresLimits::default() });
    let bystander = server.connect().await;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x7f\xff\xff\xff\0\x03\0\0", b"\0\0\0\x08\0\x02\0\0"] {
        let mut socket = TcpStream::connect(server.addr).await.unwrap();
        socket.write_all(garbage).await.unwrap();
        let mut answer = vec![];
        socket.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer[0], b'E', "{garbage:?}");
    }
    for header in [&b"Q\x7f\xff\xff\xff"[..], b"B\xff\xff\xff\xff", b"\x00\0\0\0\x04", b"d\0\x10\0\x01"] {
        let mut raw = Raw::connect(server.addr).await;
        raw.socket.write_all(header).await.unwrap();
        let (tag, body) = raw.receive().await;
        assert_eq!(tag, b'E');
        assert!(String::from_utf8_lossy(&body).contains("08P01"), "{header:?}");
        assert_eq!(raw.socket.read(&mut [0]).await.unwrap(), 0, "closed");
    }
    assert_eq!(bystander.query("rows 3", &[]).await.unwrap().len(), 3);
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let server = serve(PostgresLimits { connections_max: 2, ..PostgresLimits::default() });
    let config = format!("host={} port={} user=ada", server.addr.ip(), server.addr.port());
    let (first, second) = (server.connect().await, server.connect().await);
    let refused = tokio_postgres::connect(&config, NoTls).await.err().unwrap();
    assert_eq!(refused.code(), Some(&SqlState::TOO_MANY_CONNECTIONS));
    drop(first);
    // The place is free once the server has seen the client leave.
    for attempt in 0.. {
        match tokio_postgres::connect(&config, NoTls).await {
            Ok(_) => break,
            Err(error) => assert!(attempt < 1000, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(second);
}

#[tokio::test]
async fn shutdown_lets_statements_finish_and_tells_the_idle() {
    let server = serve(PostgresLimits::default());
    let mut idle = Raw::connect(server.addr).await;
    let mut copying = Raw::connect(server.addr).await;
    copying.send(b'Q', b"copy_in text\0").await;
    assert_eq!(copying.receive().await.0, b'G');
    copying.send(b'd', b"1\ta\n").await;

    server.shutdown.send_replace(true);
    let (tag, body) = idle.receive().await;
    assert_eq!((tag, String::from_utf8_lossy(&body).contains("57P01")), (b'E', true));
    copying.send(b'c', b"").await;
    assert_eq!(copying.tags_until_ready().await, "CZ");
    assert_eq!(copying.receive().await.0, b'E');
    drop((idle, copying));
    tokio::time::timeout(Duration::from_secs(30), server.door.join()).await.unwrap();
    assert_eq!(server.sql.copied.lock().unwrap().len(), 1);
    assert!(TcpStream::connect(server.addr).await.is_err());
}

#[tokio::test]
async fn shutdown_ends_what_does_not_finish_in_time() {
    let server =
        serve(PostgresLimits { shutdown_grace: Duration::from_millis(50), ..PostgresLimits::default() });
    let mut raw = Raw::connect(server.addr).await;
    raw.send(b'Q', b"sleep\0").await;
    eventually(|| server.sql.running.load(Ordering::SeqCst) == 1).await;
    server.shutdown.send_replace(true);
    tokio::time::timeout(Duration::from_secs(30), server.door.join()).await.unwrap();
    assert_eq!(server.sql.running.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn psql_is_answered() {
    let server = serve(PostgresLimits::default());
    let addr = server.addr;
    let run = tokio::task::spawn_blocking(move || {
        std::process::Command::new("psql")
            .args(["-X", "-A", "-t", "-v", "VERBOSITY=verbose", "-c", "rows 2", "-c", "bogus", "-c", "done"])
            .args(["-h", &addr.ip().to_string(), "-p", &addr.port().to_string(), "-U", "ada"])
            .env("PGSSLMODE", "prefer")
            .output()
    });
    let Ok(output) = run.await.unwrap() else { return eprintln!("psql is not installed: skipped") };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(out, "0\n1\nINSERT 0 3\n", "{err}");
    assert!(
        err.contains("ERROR:  42601: syntax error at or near \"bogus\"\nLINE 1: bogus\n        ^\nHINT:"),
        "{err}"
    );
}

/// A connection of plain bytes, past its startup.
struct Raw {
    socket: TcpStream,
}

impl Raw {
    async fn connect(addr: std::net::SocketAddr) -> Raw {
        let mut socket = TcpStream::connect(addr).await.unwrap();
        socket.write_all(b"\0\0\0\x12\0\x03\0\0user\0ada\0\0").await.unwrap();
        let mut raw = Raw { socket };
        assert!(raw.tags_until_ready().await.starts_with("RKS"));
        raw
    }

    async fn send(&mut self, tag: u8, body: &[u8]) {
        let mut frame = vec![tag];
        frame.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
        frame.extend_from_slice(body);
        self.socket.write_all(&frame).await.unwrap();
    }

    async fn receive(&mut self) -> (u8, Vec<u8>) {
        let tag = self.socket.read_u8().await.unwrap();
        let mut body = vec![0; self.socket.read_i32().await.unwrap() as usize - 4];
        self.socket.read_exact(&mut body).await.unwrap();
        (tag, body)
    }

    async fn tags_until_ready(&mut self) -> String {
        let mut tags = String::new();
        while !tags.ends_with('Z') {
            tags.push(self.receive().await.0 as char);
        }
        tags
    }
}
