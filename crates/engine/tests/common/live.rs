//! An allocator that counts what is allocated: for a test that compares it with what the budget counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static LIVE: AtomicU64 = AtomicU64::new(0);

/// What glibc takes for an allocation: its size word, in steps of 16 bytes, 32 at least.
fn chunk(size: usize) -> u64 {
    (size as u64 + 8).next_multiple_of(16).max(32)
}

/// What is allocated of a process whose allocator is [`Counting`].
pub fn live_bytes() -> u64 {
    LIVE.load(Relaxed)
}

pub struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(chunk(layout.size()), Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(chunk(layout.size()), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(chunk(size), Relaxed);
        LIVE.fetch_sub(chunk(layout.size()), Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
