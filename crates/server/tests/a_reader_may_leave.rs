//! Commands whose output nobody reads to its end: they end as any tool in a pipe does.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods)]

mod process;

use process::{ORIBI, Server, oribi_ok};
use std::process::{Command, Stdio};

/// Runs a command whose standard output was closed before it began.
#[track_caller]
fn check(arguments: &[&str]) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(ORIBI);
    let command = command.args(arguments).env_remove("ORIBI_CONFIG").stdout(writer).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // 128 + SIGPIPE, as of a process that the signal ended.
    assert_eq!((output.status.code(), &*said), (Some(141), ""), "{arguments:?}");
}

#[test]
fn a_command_whose_reader_has_left_ends_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, csv, tpch) = (name("data"), name("t.csv"), name("tpch"));
    std::fs::write(&csv, "id\n1\nx\n").unwrap();
    check(&["config"]);
    check(&["sql", "-c", "select 1"]);
    check(&["sql", "--data", &data, "-c", "create table t (id bigint primary key)"]);
    check(&["import", "t", &csv, "--data", &data]);
    check(&["check", "--data", &data]);
    check(&["generate", "--scale", "0.001", "--out", &tpch]);
    check(&["perf", "tpch", "--scale", "0.01", "--query", "6"]);
    check(&["perf", "simple-query", "--partitions", "10", "--operations", "10"]);
    check(&["perf", "cold-reads", "--rows", "10", "--operations", "10", "--memory", "64MiB"]);
    // What a command was told to do it did, and it closed the folder.
    let count = oribi_ok(&["sql", "--data", &data, "--format", "csv", "-c", "select count(*) as n from t"]);
    assert_eq!(count, "n\n1\n");
    assert!(oribi_ok(&["check", "--data", &data]).ends_with("clean\n"));
}

#[test]
fn a_load_whose_reader_has_left_ends_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let (host, master) = (server.address("memcached"), server.address("kudu-master"));
    check(&["perf", "kv", "--host", host, "--num-items", "10", "--operations", "10"]);
    check(&["perf", "loadgen", "--master", master, "--num-rows-per-thread", "10"]);
}

#[test]
fn a_server_serves_on_when_nobody_reads_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Server::command(folder.path());
    let mut child = command.args(["--log", "info"]).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let log = std::io::BufReader::new(child.stderr.take().unwrap());
    let ready = std::io::BufRead::lines(log).any(|line| line.unwrap().contains("ready"));
    assert!(ready && child.try_wait().unwrap().is_none());
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
}
