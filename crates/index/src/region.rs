//! Regions of memory from the operating system, which huge pages back once they have proved to stay.
//!
//! Random reads of many small rows miss the translation cache without huge pages: a third of the reads a second. But the
//! first touch of a huge page has the system clear 2 MiB at once, and where it runs on a virtual machine that gave its
//! unused memory back, it waits for the host to clear them, too: 4 to 6 ms were measured against 1 ms for the same memory
//! in small pages, half of a bulk load's processor time. So a region begins in small pages, and one that stays is moved into
//! a huge page by a thread of the background. The process's allocator would not do for regions: it writes to what it
//! returns before one could say anything about its pages.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;

pub const REGION_BYTES: usize = 2 << 20;
const LAYOUT: Layout = match Layout::from_size_align(REGION_BYTES, REGION_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("a region is aligned to its size"),
};

/// Memory for a region, aligned to its size.
pub fn reserve() -> NonNull<u8> {
    NonNull::new(system::reserve()).unwrap_or_else(|| std::alloc::handle_alloc_error(LAYOUT))
}

pub use system::{back_by_huge_page, populate, release};

#[cfg(not(miri))]
mod system {
    use super::REGION_BYTES;
    use std::ptr::{NonNull, null_mut};

    /// Null if there is none.
    pub fn reserve() -> *mut u8 {
        // Next to the region before, if that is free: regions that touch are one mapping to the system.
        let region = map(REGION_BYTES);
        let before = region.align_offset(REGION_BYTES);
        if region.is_null() || before == 0 {
            return region.cast();
        }
        // SAFETY: new memory, of which an aligned part is kept.
        unsafe {
            libc::munmap(region, REGION_BYTES);
            let twice = map(2 * REGION_BYTES);
            if twice.is_null() {
                return null_mut();
            }
            let before = twice.align_offset(REGION_BYTES);
            let region = twice.byte_add(before);
            if before > 0 {
                libc::munmap(twice, before);
            }
            libc::munmap(region.byte_add(REGION_BYTES), REGION_BYTES - before);
            region.cast()
        }
    }

    fn map(bytes: usize) -> *mut libc::c_void {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory.
        let mapped = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
        if mapped == libc::MAP_FAILED { null_mut() } else { mapped }
    }

    /// Others may use the region meanwhile. A system that refuses costs speed only.
    ///
    /// # Safety
    /// The region was [`reserve`]d, and is not released meanwhile.
    pub unsafe fn back_by_huge_page(region: NonNull<u8>) {
        // SAFETY: the caller's promise; what lies in the region stays.
        unsafe {
            // Linux 6.1 and later. Before, or when no huge page is free, the system comes round to it by itself.
            if libc::madvise(region.as_ptr().cast(), REGION_BYTES, libc::MADV_COLLAPSE) != 0 {
                libc::madvise(region.as_ptr().cast(), REGION_BYTES, libc::MADV_HUGEPAGE);
            }
        }
    }

    /// Touches pages that are used soon, all at once: by themselves, their first touches cost half as much again. What lies
    /// there stays. A system that refuses, as Linux before 5.14 does, waits for those.
    ///
    /// # Safety
    /// The memory is of a region that is not released meanwhile, and begins with a page.
    pub unsafe fn populate(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE);
        }
    }

    /// # Safety
    /// The region was [`reserve`]d, and nothing of it is used any more.
    pub unsafe fn release(region: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            libc::munmap(region.cast(), REGION_BYTES);
        }
    }
}

#[cfg(miri)]
mod system {
    use super::LAYOUT;
    use std::ptr::NonNull;

    pub fn reserve() -> *mut u8 {
        // SAFETY: the layout has a size.
        unsafe { std::alloc::alloc(LAYOUT) }
    }

    /// # Safety
    /// None is needed: nothing happens.
    pub unsafe fn back_by_huge_page(_region: NonNull<u8>) {}

    /// # Safety
    /// None is needed: nothing happens.
    pub unsafe fn populate(_start: NonNull<u8>, _bytes: usize) {}

    /// # Safety
    /// The region was [`reserve`]d, and nothing of it is used any more.
    pub unsafe fn release(region: *mut u8) {
        // SAFETY: as above.
        unsafe { std::alloc::dealloc(region, LAYOUT) }
    }
}
