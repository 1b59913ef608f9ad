//! The allocator of the process: mimalloc, counted while somebody measures.
//!
//! Counting is off except between [`start`] and [`stop`], so that a server pays one predictable branch per
//! allocation.

#![allow(unsafe_code)]

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Wraps mimalloc.
pub struct CountingAllocator;

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATED: [Shard; 16] = [const { Shard { count: AtomicU64::new(0), bytes: AtomicU64::new(0) } }; 16];

/// One cache line per group of threads, so that counting threads do not slow each other down.
#[repr(align(64))]
struct Shard {
    count: AtomicU64,
    bytes: AtomicU64,
}

/// What was allocated, reallocations included with all of their new size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    pub count: u64,
    pub bytes: u64,
}

/// Counts the allocations of all threads from now on.
pub fn start() {
    for shard in &ALLOCATED {
        shard.count.store(0, Relaxed);
        shard.bytes.store(0, Relaxed);
    }
    COUNTING.store(true, Relaxed);
}

/// Ends counting; returns what was allocated since [`start`].
pub fn stop() -> Allocated {
    COUNTING.store(false, Relaxed);
    ALLOCATED.iter().fold(Allocated::default(), |sum, shard| Allocated {
        count: sum.count + shard.count.load(Relaxed),
        bytes: sum.bytes + shard.bytes.load(Relaxed),
    })
}

/// `mi_option_purge_delay`, in milliseconds, which the bindings do not name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// From now on what is free goes back to the system when [`give_back`] says so, or after ten minutes.
pub fn keep_what_is_free() {
    // SAFETY: options may be set at any time.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 600_000) }
}

/// Gives back to the system what is free, in pages that no thread has.
pub fn give_back() {
    // SAFETY: it may be called by any thread, and touches no memory that somebody has.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

fn note(bytes: usize) {
    if COUNTING.load(Relaxed) {
        thread_local! { static MARK: u8 = const { 0 } }
        // The address of a thread-local tells threads apart without allocating; its lower bits are the same in all.
        let shard = MARK.try_with(|mark| (&raw const *mark as usize >> 12) % ALLOCATED.len()).unwrap_or(0);
        ALLOCATED[shard].count.fetch_add(1, Relaxed);
        ALLOCATED[shard].bytes.fetch_add(bytes as u64, Relaxed);
    }
}

// SAFETY: every call is passed on unchanged to mimalloc, which keeps the contract; `note` neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as above.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_option_is_how_long_what_is_free_is_kept() {
        // SAFETY: options may be read at any time.
        assert_eq!(unsafe { libmimalloc_sys::mi_option_get(super::PURGE_DELAY) }, 1000);
    }

    #[test]
    fn allocations_are_counted_only_between_start_and_stop() {
        super::start();
        let boxes: Vec<_> = (0..100).map(Box::new).collect();
        let counted = super::stop();
        assert!(counted.count >= 100 && counted.bytes >= 400, "{counted:?}");
        drop((boxes, Box::new(1)));
        assert_eq!(super::stop(), counted);
    }
}
