//! An allocator that counts, for tests of what allocates nothing.
//!
//! ```
//! use oribi_testing::allocations::{self, CountingAllocator};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let before = allocations::of_this_thread();
//! let _boxed = std::hint::black_box(Box::new(1));
//! assert_eq!(allocations::of_this_thread() - before, 1);
//! ```
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count for each thread of how often it was asked for memory.
pub struct CountingAllocator;

/// Allocations and reallocations of the calling thread so far; 0 for ever unless [`CountingAllocator`] is the allocator.
pub fn of_this_thread() -> u64 {
    COUNT.with(Cell::get)
}

fn note() {
    // A thread that ends has no counter any more.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to the system's allocator as it came; `note` neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
