//! Flushes and compactions read and write at idle priority, whoever asks for them.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_sim::{Hooked, Operation, SimClock};
use oribi_types::Durability;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

const SCHED_IDLE: u32 = 5;

/// The scheduling policy of the calling thread: field 41 of its `stat` (proc_pid_stat(5)).
fn policy() -> u32 {
    let files = oribi_env::Env::real().files;
    let stat = files.open(Path::new("/proc/thread-self/stat"), false).unwrap();
    let mut text = Vec::new();
    let mut byte = [0];
    while stat.read_at(&mut byte, text.len() as u64).is_ok() {
        text.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&text);
    // The name of the thread, in parentheses, is field 2.
    let fields = text.rsplit(')').next().unwrap();
    fields.split_whitespace().nth(41 - 3).unwrap().parse().unwrap()
}

#[test]
fn flushes_and_compactions_write_at_idle_priority() {
    let disk = Hooked::default();
    let engine = open(&disk.env(&Arc::new(SimClock::new()))).unwrap();
    let table = engine.create_table(definition("t", 1, Durability::Sync)).unwrap();
    let policies = Arc::new(Mutex::new(Vec::new()));
    let seen = policies.clone();
    disk.set(move |operation, path| {
        if operation == Operation::Create && path.ends_with(".data.tmp") {
            seen.lock().unwrap().push(policy());
        }
    });
    for k in 0..2 {
        put(&engine, &table, k, "v").unwrap();
        engine.flush(&table).unwrap();
    }
    engine.compact(&table).unwrap();
    disk.clear();
    assert_eq!(*policies.lock().unwrap(), [SCHED_IDLE; 3]);
    assert_eq!(policy(), 0, "the caller keeps its own");
}
