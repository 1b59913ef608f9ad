//! In the steady state neither an append nor a write allocates.
#![allow(clippy::unwrap_used, unsafe_code)]

use oribi_env::Env;
use oribi_wal::{LocalLog, Log, LogOptions};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came; the counter is a plain cell that allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
    let before = ALLOCATIONS.with(Cell::get);
    (0..20).for_each(|_| round());
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}
