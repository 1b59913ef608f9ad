//! In the steady state neither an append nor a write allocates.
#![allow(clippy::unwrap_used)]

use oribi_env::Env;
use oribi_testing::allocations::{self, CountingAllocator};
use oribi_wal::{LocalLog, Log, LogOptions};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn appending_allocates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = LocalLog::open(&Env::real(), dir.path(), LogOptions::default(), &mut |_| Ok(())).unwrap();
    let round = || {
        let lsn =
            (0..100).map(|_| log.append(1, &mut |_, buf| buf.extend_from_slice(&[7; 200])).unwrap()).max();
        log.write_out().unwrap();
        log.wait_durable(lsn.unwrap()).unwrap();
    };
    // Both buffers grow to their size, in whichever order the two threads take them.
    (0..20).for_each(|_| round());
    let before = allocations::of_this_thread();
    (0..20).for_each(|_| round());
    assert_eq!(allocations::of_this_thread() - before, 0);
}
