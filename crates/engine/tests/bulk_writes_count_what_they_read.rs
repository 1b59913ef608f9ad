//! What a write of many rows has in hand of files is within the memory that it has asked for.
#![allow(clippy::unwrap_used)]

mod common;

use common::cold::{Cold, mixed};
use common::live::{Counting, live_bytes};
use oribi_engine::Engine;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn what_is_read_at_a_time_is_counted() {
    let subject = Cold::new();
    subject.add_file((0..3000).map(|k| (k, mixed(k))));
    let long: Vec<i64> = (7..3000).step_by(100).collect();
    let before = live_bytes();
    let beyond_budget = move |engine: &Engine| {
        let taken = live_bytes().saturating_sub(before);
        taken.saturating_sub(engine.memory().queries())
    };
    let beyond = subject.most(beyond_budget, || {
        assert!(subject.values(long.clone()).into_iter().eq(long.iter().map(|k| Some(mixed(*k)))));
    });
    // The file's directory, mainly.
    assert!(beyond < 3 << 20, "{beyond} bytes more than were counted");
    assert_eq!(subject.engine.memory().queries(), 0);
}
