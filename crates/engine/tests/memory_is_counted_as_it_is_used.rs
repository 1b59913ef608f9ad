//! What the budget counts for rows in memory, against what the allocator gave for them.
//!
//! Prints both: `cargo test -p oribi-engine --test memory_is_counted_as_it_is_used -- --nocapture`.
#![allow(clippy::unwrap_used)]

mod common;

use common::live::{Counting, live_bytes};
use common::*;
use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_types::Durability;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn what_is_counted_is_close_to_what_is_taken() {
    // All stay: what one has left would be taken by the next, and not be seen.
    let mut engines = Vec::new();
    for (rows, value_bytes) in [(50_000, 0), (100_000, 34), (200_000, 34), (100_000, 200), (20_000, 2000)] {
        let dir = tempfile::tempdir().unwrap();
        let options = EngineOptions { background: false, ..EngineOptions::with_memory(1 << 30) };
        let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
        let table = engine.create_table(definition("t", 1, Durability::Periodic(100))).unwrap();
        let value = "x".repeat(value_bytes);
        let live = || live_bytes() + oribi_index::reserved_bytes();
        let before = (live(), engine.memory().used());
        for k in 0..rows {
            let commit = put(&engine, &table, k, &value).unwrap();
            // The log's buffer is not what is measured.
            if (k + 1) % 50 == 0 {
                engine.settle(commit.obligation).unwrap();
            }
        }
        let taken = (live() - before.0) / rows as u64;
        let counted = (engine.memory().used() - before.1) / rows as u64;
        println!("{rows} rows, values of {value_bytes} bytes: {counted} bytes a row counted, {taken} taken");
        assert!(counted * 3 >= taken * 2 && taken * 3 >= counted * 2, "{counted} counted, {taken} taken");
        engines.push((engine, dir));
    }
}
