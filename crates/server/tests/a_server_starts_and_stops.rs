//! What an operator relies on: addresses, signals, the folder's lock, and where a setting came from.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods)]

mod process;

use process::{ORIBI, Server, Sql, oribi, oribi_ok};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

#[test]
fn every_door_answers_once_the_server_says_ready() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.doors(), 7);
    assert_eq!(server.memcached().set("greeting", "hello").unwrap(), "STORED");
    let sql = Sql::connect(server.address("postgres"));
    let rows = sql.rows("select convert_from(value, 'UTF8') from default.kv where key = 'greeting'");
    assert_eq!(rows, [[Some("hello".to_owned())]]);
    let metrics = fetch(server.address("http"), "/metrics");
    assert!(metrics.contains("\noribi_engine_rows_written_total 1"), "{metrics}");
    assert!(fetch(server.address("http"), "/readyz").starts_with("HTTP/1.1 200"));
    assert!(server.terminate().success());
}

fn fetch(address: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.memcached().set("k", "v").unwrap();
    Sql::connect(server.address("postgres"))
        .execute("create table t (id bigint primary key); insert into t values (1)")
        .unwrap();
    assert!(server.terminate().success());
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.memcached().get("k").unwrap().as_deref(), Some("v"));
    assert_eq!(server.memcached().get("public/t/1").unwrap().as_deref(), Some("{\"id\":1}"));
}

#[test]
fn a_request_that_never_ends_does_not_keep_the_server_from_stopping() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut hesitant = TcpStream::connect(server.address("http")).unwrap();
    hesitant.write_all(b"GET /healthz HTTP/1.1\r\nhost:").unwrap();
    // Accepted after the one before it.
    assert!(fetch(server.address("http"), "/readyz").starts_with("HTTP/1.1 200"));
    assert!(server.terminate().success());
}

#[test]
fn doors_can_be_shut() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--http", "off"]);
    assert_eq!(server.doors(), 6);
}

#[test]
fn a_second_process_on_the_folder_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let _server = Server::start(folder.path(), &[]);
    let second = Server::command(folder.path()).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("in use") && said.contains(folder.path().to_str().unwrap()), "{said}");
    let check = oribi(&["check", "--data", folder.path().to_str().unwrap()]);
    assert_eq!(check.status.code(), Some(1));
}

#[test]
fn an_address_beyond_loopback_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let refused = Server::command(folder.path()).args(["--postgres", "0.0.0.0:0"]).output();
    let said = String::from_utf8_lossy(&refused.unwrap().stderr).into_owned();
    assert!(
        said.contains("postgres = \"0.0.0.0:0\" (flag --postgres)") && said.contains("authentication"),
        "{said}"
    );
}

#[test]
fn a_certificate_and_a_key_that_do_not_fit_are_refused_with_the_reason() {
    // From the folder of the package, where Cargo runs its tests.
    const TLS: &str = "../net/tests/tls";
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key, other_key] =
        ["certificate", "key", "other-key"].map(|name| format!("{TLS}/{name}.pem"));
    let refused = |certificate: &str, key: &str| {
        let flags = ["--tls-certificate", certificate, "--tls-key", key];
        let output = Server::command(folder.path()).args(flags).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    for (certificate, key, why) in [
        (&certificate[..], "", "tls_certificate and tls_key go together"),
        ("", &key[..], "tls_certificate and tls_key go together"),
        ("/nowhere.pem", &key, "/nowhere.pem"),
        (&certificate, &other_key, "KeyMismatch"),
        (&key, &key, "certificate is of no use"),
    ] {
        let said = refused(certificate, key);
        assert!(said.contains("kudu door") && said.contains(why), "{said}");
    }
    let server = Server::start(folder.path(), &["--tls-certificate", &certificate, "--tls-key", &key]);
    assert!(server.terminate().success());
}

#[test]
fn values_are_as_long_as_statements_can_write_them() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--memory", "8MiB", "--value-bytes-max", "1MiB"];
    let refused = Server::command(folder.path()).args(flags).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("statement_bytes_max is 1048576"), "{said}");
    // Nobody asked for this much, so less will do.
    let server = Server::start(folder.path(), &["--memory", "8MiB"]);
    assert_eq!(server.memcached().set("k", &"x".repeat(1_000_000)).unwrap(), "STORED");
}

#[test]
fn expiry_and_idle_time_are_the_operators_to_choose() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--memcached-relative-seconds-max", "100", "--memcached-idle-seconds-max", "7"];
    let server = Server::start(folder.path(), &[&flags[..], &["--key-bytes-max", "300"]].concat());
    let mut client = server.memcached();
    // 101 is a moment in 1970.
    assert_eq!(client.ask("set a 0 101 1\r\nx\r\n").unwrap(), "STORED");
    assert_eq!(client.get("a").unwrap(), None);
    let long = "k".repeat(300);
    assert_eq!(client.ask(&format!("set {long} 0 100 1\r\nx\r\n")).unwrap(), "STORED");
    assert_eq!(client.get(&long).unwrap().as_deref(), Some("x"));
    let mut line = client.ask("stats settings\r\n").unwrap();
    while line != "STAT idle_timeout 7" {
        assert_ne!(line, "END");
        line = client.ask("").unwrap();
    }
}

#[test]
fn a_setting_tells_where_it_came_from() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("oribi.toml");
    std::fs::write(&file, "memory = \"3GiB\"\nhttp = \"off\"\nthreads = 2\n").unwrap();
    let output = Command::new(ORIBI)
        .args(["config", "--config", file.to_str().unwrap(), "--threads", "5"])
        .env("ORIBI_HTTP", "127.0.0.1:0")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let line = |start: &str| said.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    assert_eq!(line("memory"), format!("memory = \"3GiB\"  # file {}", file.display()));
    assert_eq!(line("http"), "http = \"127.0.0.1:0\"  # environment ORIBI_HTTP");
    assert_eq!(line("threads"), "threads = \"5\"  # flag --threads");
    assert_eq!(line("durability"), "durability = \"sync\"  # default");

    std::fs::write(&file, "memroy = \"3GiB\"\n").unwrap();
    let refused = oribi(&["config", "--config", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("unknown key \"memroy\""), "{said}");
    assert!(oribi_ok(&["--version"]).starts_with("oribi "));
}
