//! Memory of rows: blocks in size classes, so that a row that goes leaves room for another of its size at once.
//!
//! A *region* of 2 MiB, which one huge page backs by and by (see [`crate::region`]), is divided into *slabs* of 64 KiB. A
//! slab holds blocks of one class, and goes back to its region when its last block is freed; a class keeps one that is empty.
//! The heads of a region's slabs stand together at its beginning, so that a block's head is found by its address. Blocks beyond
//! [`BLOCK_BYTES_MAX`] come from the process's allocator.
//!
//! Hash tables lie in regions, too, for their huge pages: as blocks, or as slabs side by side. When they grow, what they leave
//! behind becomes room for rows.
//!
//! One allocator serves the process: what reclamation frees late needs nobody who is still alive. Taking and freeing a
//! block costs one lock of its class, and for a slab that was not used lately one cache miss.

#![allow(unsafe_code)]

use crate::region::{self, REGION_BYTES};
use parking_lot::Mutex;
use std::alloc::Layout;
use std::collections::VecDeque;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

const SLAB_BYTES: usize = 64 << 10;
const SLABS: usize = REGION_BYTES / SLAB_BYTES;
const ALIGN: usize = 16;
/// A cache line.
pub const ARRAY_ALIGN: usize = 64;
/// The largest block for a row: four fit into a slab.
const BLOCK_BYTES_MAX: usize = 16 << 10;
/// The largest block.
const CLASS_BYTES_MAX: usize = 32 << 10;
/// The largest array: the first slab of a region is not whole.
const ARRAY_BYTES_MAX: usize = REGION_BYTES / 2;
/// Regions that are looked at for slabs side by side before a new one is made.
const REGIONS_LOOKED_AT: usize = 64;
/// Up to here classes are multiples of [`ALIGN`], and beyond there are eight to each doubling.
const FINE_BYTES_MAX: usize = 1 << 10;
const FINE_CLASSES: usize = FINE_BYTES_MAX / ALIGN;
const STEPS: usize = 8;
const CLASSES: usize = FINE_CLASSES + STEPS * (CLASS_BYTES_MAX / FINE_BYTES_MAX).ilog2() as usize;

/// The first slab of a region lacks what the heads take.
const _: () = assert!(size_of::<Region>() + CLASS_BYTES_MAX <= SLAB_BYTES);

static CLASS: [Mutex<Class>; CLASSES] =
    [const { Mutex::new(Class { with_room: List::EMPTY, slabs: 0 }) }; CLASSES];
static REGIONS: AtomicU64 = AtomicU64::new(0);
static POOL: Mutex<Pool> =
    Mutex::new(Pool { with_room: List::EMPTY, unused: 0, made: 0, in_small_pages: VecDeque::new() });

/// The class of blocks of at least `bytes`; at most [`CLASS_BYTES_MAX`].
fn class_of(bytes: usize) -> usize {
    if bytes <= FINE_BYTES_MAX {
        return bytes.max(1).div_ceil(ALIGN) - 1;
    }
    // 2^power < bytes <= 2^(power + 1)
    let power = (bytes - 1).ilog2() as usize;
    let step = (bytes - 1 - (1 << power)) >> (power - STEPS.ilog2() as usize);
    FINE_CLASSES + (power - FINE_BYTES_MAX.ilog2() as usize) * STEPS + step
}

fn class_bytes(class: usize) -> usize {
    match class.checked_sub(FINE_CLASSES) {
        None => (class + 1) * ALIGN,
        Some(coarse) => (FINE_BYTES_MAX << (coarse / STEPS)) / STEPS * (STEPS + 1 + coarse % STEPS),
    }
}

/// What a block of `bytes` takes.
pub fn block_bytes(bytes: usize) -> usize {
    if bytes <= BLOCK_BYTES_MAX { class_bytes(class_of(bytes)) } else { bytes }
}

/// A list whose links lie in its items.
struct List<T: Item> {
    first: *mut T,
}

trait Item: Sized {
    /// # Safety
    /// The item is whole.
    unsafe fn links(item: *mut Self) -> *mut Links<Self>;
}

struct Links<T> {
    next: *mut T,
    previous: *mut T,
}

impl<T> Links<T> {
    const NONE: Self = Links { next: null_mut(), previous: null_mut() };
}

impl<T: Item> List<T> {
    const EMPTY: Self = List { first: null_mut() };

    /// # Safety
    /// The item is whole and in no list, and those of this list are nobody else's at the moment.
    unsafe fn push(&mut self, item: *mut T) {
        // SAFETY: the caller's promise.
        unsafe {
            T::links(item).write(Links { next: self.first, previous: null_mut() });
            if !self.first.is_null() {
                (*T::links(self.first)).previous = item;
            }
        }
        self.first = item;
    }

    /// # Safety
    /// The item is in this list, and the list's items are nobody else's at the moment.
    unsafe fn remove(&mut self, item: *mut T) {
        // SAFETY: the caller's promise.
        unsafe {
            let Links { next, previous } = T::links(item).replace(Links::NONE);
            if !next.is_null() {
                (*T::links(next)).previous = previous;
            }
            if previous.is_null() {
                self.first = next;
            } else {
                (*T::links(previous)).next = next;
            }
        }
    }
}

impl Item for Slab {
    unsafe fn links(slab: *mut Self) -> *mut Links<Self> {
        // SAFETY: the caller's promise.
        unsafe { &raw mut (*slab).links }
    }
}

impl Item for Region {
    unsafe fn links(region: *mut Self) -> *mut Links<Self> {
        // SAFETY: the caller's promise.
        unsafe { &raw mut (*region).links }
    }
}

/// The slabs of one class that have room. The first is taken from.
struct Class {
    with_room: List<Slab>,
    slabs: usize,
}

// SAFETY: the slabs of a list belong to its class, and are only touched under its lock.
unsafe impl Send for Class {}

/// Regions that have slabs that no class has.
struct Pool {
    with_room: List<Region>,
    /// Regions of which no class has a slab. One is kept, lest a row that comes and goes take and give back 2 MiB.
    unused: usize,
    /// Regions that there ever were.
    made: u64,
    /// Regions that nobody tried to back by a huge page yet, the oldest first, with their numbers.
    in_small_pages: VecDeque<(u64, NonNull<Region>)>,
}

// SAFETY: regions of the list, and slabs in the pool, are only touched under its lock.
unsafe impl Send for Pool {}

/// What a region begins with.
#[repr(C)]
struct Region {
    slabs: [Slab; SLABS],
    /// The slabs that no class has, a bit each.
    free: u32,
    /// It is being moved into a huge page, and must stay.
    moving: bool,
    links: Links<Region>,
}

const ALL_FREE: u32 = u32::MAX;
const _: () = assert!(SLABS == u32::BITS as usize);

/// The head of a slab. Belongs to the class of the slab, and to the pool while it has none.
#[repr(C, align(64))]
struct Slab {
    /// Blocks that were freed, each pointing to the next.
    freed: *mut Freed,
    /// Where the part begins that was never used, and where it ends.
    fresh: *mut u8,
    end: *mut u8,
    links: Links<Slab>,
    used: u32,
    in_list: bool,
}

struct Freed {
    next: *mut Freed,
}

/// The region of an address.
fn region_of<T>(address: *mut T) -> *mut Region {
    address.map_addr(|address| address & !(REGION_BYTES - 1)).cast()
}

/// Where a slab lies of which this is the head; the first with all heads of its region.
fn memory_of(slab: *mut Slab) -> NonNull<u8> {
    let region = region_of(slab);
    let i = (slab.addr() - region.addr()) / size_of::<Slab>();
    NonNull::new(region.cast::<u8>().wrapping_add(i * SLAB_BYTES)).expect("memory is not at address 0")
}

impl Pool {
    fn add_region(&mut self) -> *mut Region {
        let region = region::reserve().cast::<Region>();
        REGIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the region is ours. Heads of slabs are written when they are taken.
        unsafe {
            (&raw mut (*region.as_ptr()).free).write(ALL_FREE);
            (&raw mut (*region.as_ptr()).moving).write(false);
            self.with_room.push(region.as_ptr());
        }
        self.unused += 1;
        self.made += 1;
        self.in_small_pages.push_back((self.made, region));
        region.as_ptr()
    }

    fn take(&mut self) -> *mut Slab {
        if self.with_room.first.is_null() {
            self.add_region();
        }
        let region = self.with_room.first;
        // SAFETY: regions of the list are whole, and the pool's.
        unsafe {
            self.unused -= usize::from((*region).free == ALL_FREE);
            let i = (*region).free.trailing_zeros() as usize;
            (*region).free &= !(1 << i);
            if (*region).free == 0 {
                self.with_room.remove(region);
            }
            let slab = (&raw mut (*region).slabs[i]).cast::<Slab>();
            let start = if i == 0 { size_of::<Region>() } else { i * SLAB_BYTES };
            slab.write(Slab {
                freed: null_mut(),
                fresh: region.cast::<u8>().add(start),
                end: region.cast::<u8>().add((i + 1) * SLAB_BYTES),
                links: Links::NONE,
                used: 0,
                in_list: false,
            });
            slab
        }
    }

    /// So many slabs side by side.
    fn take_span(&mut self, slabs: usize) -> *mut u8 {
        // SAFETY: regions of the list are whole, and the pool's.
        unsafe {
            let mut regions = std::iter::successors(NonNull::new(self.with_room.first), |region| {
                NonNull::new((*region.as_ptr()).links.next)
            });
            let mut found = regions.by_ref().take(REGIONS_LOOKED_AT).find_map(|region| {
                let region = region.as_ptr();
                Some((region, span_in((*region).free, slabs)?))
            });
            if found.is_none() {
                let region = self.add_region();
                found = span_in(ALL_FREE, slabs).map(|i| (region, i));
            }
            let (region, i) = found.expect("a region has room for every span");
            self.unused -= usize::from((*region).free == ALL_FREE);
            (*region).free &= !span(i, slabs);
            if (*region).free == 0 {
                self.with_room.remove(region);
            }
            region.cast::<u8>().add(i * SLAB_BYTES)
        }
    }

    fn give(&mut self, slab: *mut Slab) {
        let region = region_of(slab);
        let i = (slab.addr() - region.addr()) / size_of::<Slab>();
        // SAFETY: the caller gave up the slab.
        unsafe { self.give_back(region, span(i, 1)) }
    }

    fn give_span(&mut self, start: *mut u8, slabs: usize) {
        let region = region_of(start);
        // SAFETY: the caller gave up the slabs.
        unsafe { self.give_back(region, span((start.addr() - region.addr()) / SLAB_BYTES, slabs)) }
    }

    /// # Safety
    /// The region is whole, and nobody uses these slabs of it any more.
    unsafe fn give_back(&mut self, region: *mut Region, slabs: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            if (*region).free == 0 {
                self.with_room.push(region);
            }
            (*region).free |= slabs;
            if (*region).free == ALL_FREE {
                self.unused += 1;
                self.release_if_spare(region);
            }
        }
    }

    /// # Safety
    /// The region is whole.
    unsafe fn release_if_spare(&mut self, region: *mut Region) {
        // SAFETY: the caller's promise, and nobody has anything in a region that is free.
        unsafe {
            if (*region).free < ALL_FREE || (*region).moving || self.unused < 2 {
                return;
            }
            self.unused -= 1;
            self.with_room.remove(region);
            self.in_small_pages.retain(|(_, other)| other.as_ptr() != region);
            region::release(region.cast());
        }
        REGIONS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The bits of so many slabs from `i` on.
fn span(i: usize, slabs: usize) -> u32 {
    ((1 << slabs) - 1) << i
}

/// The first of so many slabs side by side that are `free`; never the first of a region, which is not whole.
fn span_in(free: u32, slabs: usize) -> Option<usize> {
    (1..=SLABS - slabs).find(|&i| free & span(i, slabs) == span(i, slabs))
}

/// Memory that the process has for rows and for hash tables, beside that of large ones.
pub fn reserved_bytes() -> u64 {
    REGIONS.load(Ordering::Relaxed) * REGION_BYTES as u64
}

/// The number of the youngest region.
pub fn regions_made() -> u64 {
    POOL.lock().made
}

/// Backs the oldest region by a huge page, of those in small pages that are not younger than number `youngest`. Whether there
/// was one. Takes up to some milliseconds, in which whoever touches the region waits.
pub fn back_by_huge_page(youngest: u64) -> bool {
    let mut pool = POOL.lock();
    let Some((_, region)) = pool.in_small_pages.pop_front_if(|(number, _)| *number <= youngest) else {
        return false;
    };
    // SAFETY: regions of the list are whole, and the pool's.
    unsafe { (*region.as_ptr()).moving = true };
    // Nobody who wants a slab waits.
    drop(pool);
    // SAFETY: a region that is being moved is not released.
    unsafe { region::back_by_huge_page(region.cast()) };
    let mut pool = POOL.lock();
    // SAFETY: as above. It may have become free meanwhile.
    unsafe {
        (*region.as_ptr()).moving = false;
        pool.release_if_spare(region.as_ptr());
    }
    true
}

/// Takes a block of a class.
fn take(class: usize) -> *mut u8 {
    let (block, opened) = CLASS[class].lock().take(class_bytes(class));
    if let Some(slab) = opened {
        // With the class unlocked: it takes some microseconds.
        // SAFETY: the slab's memory lies in a region, which is not released while the block is in use.
        unsafe { region::populate(slab, SLAB_BYTES) };
    }
    block
}

impl Class {
    /// A block and, if another slab was opened for it, that slab's memory: a class that fills one mostly fills the next.
    fn take(&mut self, bytes: usize) -> (*mut u8, Option<NonNull<u8>>) {
        let mut opened = None;
        if self.with_room.first.is_null() {
            let slab = POOL.lock().take();
            self.link(slab);
            self.slabs += 1;
            opened = (self.slabs > 1).then(|| memory_of(slab));
        }
        let slab = self.with_room.first;
        // SAFETY: slabs in the list are the class's, and have room.
        unsafe {
            let freed = (*slab).freed;
            let block = if freed.is_null() {
                let block = (*slab).fresh;
                (*slab).fresh = block.add(bytes);
                block
            } else {
                (*slab).freed = (*freed).next;
                freed.cast()
            };
            (*slab).used += 1;
            if (*slab).freed.is_null() && (*slab).end.addr() - (*slab).fresh.addr() < bytes {
                self.unlink(slab);
            }
            (block, opened)
        }
    }

    /// # Safety
    /// The block is of this class, and nobody uses it any more.
    unsafe fn free(&mut self, block: *mut u8) {
        let region = region_of(block);
        let slab = region.cast::<Slab>().wrapping_add((block.addr() - region.addr()) / SLAB_BYTES);
        let freed: *mut Freed = block.cast();
        // SAFETY: the block is the caller's to give, and its slab the class's.
        unsafe {
            freed.write(Freed { next: (*slab).freed });
            (*slab).freed = freed;
            (*slab).used -= 1;
            if (*slab).in_list {
                self.give_if_spare(slab);
            } else {
                let before = self.with_room.first;
                self.link(slab);
                // A slab that is empty is kept as long as it is the first.
                if !before.is_null() {
                    self.give_if_spare(before);
                }
            }
        }
    }

    /// # Safety
    /// The slab is in the class's list.
    unsafe fn give_if_spare(&mut self, slab: *mut Slab) {
        // SAFETY: the caller's promise.
        if unsafe { (*slab).used } == 0 && self.with_room.first != slab {
            self.unlink(slab);
            self.slabs -= 1;
            POOL.lock().give(slab);
        }
    }

    fn link(&mut self, slab: *mut Slab) {
        // SAFETY: the slab is the class's, and in no list.
        unsafe {
            (*slab).in_list = true;
            self.with_room.push(slab);
        }
    }

    fn unlink(&mut self, slab: *mut Slab) {
        // SAFETY: the slab is in the class's list.
        unsafe {
            (*slab).in_list = false;
            self.with_room.remove(slab);
        }
    }
}

fn large(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("a row is far smaller than the address space")
}

fn large_array(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ARRAY_ALIGN).expect("a table is far smaller than the address space")
}

/// Zeroed memory for an array of `bytes`, a power of two and at least [`ARRAY_ALIGN`], to which it is aligned.
pub fn alloc_array(bytes: usize) -> NonNull<u8> {
    debug_assert!(bytes.is_power_of_two() && bytes >= ARRAY_ALIGN);
    let array = if bytes <= CLASS_BYTES_MAX {
        take(class_of(bytes))
    } else if bytes <= ARRAY_BYTES_MAX {
        POOL.lock().take_span(bytes / SLAB_BYTES)
    } else {
        // SAFETY: the layout has a size.
        unsafe { std::alloc::alloc(large_array(bytes)) }
    };
    let array = NonNull::new(array).unwrap_or_else(|| std::alloc::handle_alloc_error(large_array(bytes)));
    // SAFETY: the memory is ours, of that size.
    unsafe { array.write_bytes(0, bytes) };
    array
}

/// Gives back what [`alloc_array`] gave for `bytes`.
///
/// # Safety
/// `array` came from `alloc_array(bytes)`, and nobody uses it any more.
pub unsafe fn free_array(array: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if bytes <= CLASS_BYTES_MAX {
            CLASS[class_of(bytes)].lock().free(array.as_ptr());
        } else if bytes <= ARRAY_BYTES_MAX {
            POOL.lock().give_span(array.as_ptr(), bytes / SLAB_BYTES);
        } else {
            std::alloc::dealloc(array.as_ptr(), large_array(bytes));
        }
    }
}

/// Memory for `bytes`, aligned to 16.
pub fn alloc(bytes: usize) -> NonNull<u8> {
    let block = if bytes <= BLOCK_BYTES_MAX {
        take(class_of(bytes))
    } else {
        // SAFETY: the layout has a size.
        unsafe { std::alloc::alloc(large(bytes)) }
    };
    NonNull::new(block).unwrap_or_else(|| std::alloc::handle_alloc_error(large(bytes)))
}

/// Gives back what [`alloc`] gave for `bytes`.
///
/// # Safety
/// `block` came from `alloc(bytes)`, and nobody uses it any more.
pub unsafe fn free(block: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if bytes <= BLOCK_BYTES_MAX {
            CLASS[class_of(bytes)].lock().free(block.as_ptr());
        } else {
            std::alloc::dealloc(block.as_ptr(), large(bytes));
        }
    }
}

/// As [`free`], of each; with one lock for neighbours of one class.
///
/// # Safety
/// As of [`free`].
pub unsafe fn free_all(blocks: &[(NonNull<u8>, usize)]) {
    let class_of = |bytes: usize| (bytes <= BLOCK_BYTES_MAX).then(|| class_of(bytes));
    for alike in blocks.chunk_by(|(_, a), (_, b)| class_of(*a) == class_of(*b)) {
        // SAFETY: the caller's promise.
        unsafe {
            match class_of(alike[0].1) {
                Some(class) => {
                    let mut class = CLASS[class].lock();
                    alike.iter().for_each(|(block, _)| class.free(block.as_ptr()));
                }
                None => alike.iter().for_each(|(block, bytes)| free(*block, *bytes)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_class_holds_what_belongs_in_it_and_wastes_little() {
        for bytes in 1..=CLASS_BYTES_MAX {
            let class = class_of(bytes);
            assert!(class < CLASSES && class_bytes(class) >= bytes, "{bytes}");
            assert!(class == 0 || class_bytes(class - 1) < bytes, "{bytes}");
            assert!(class_bytes(class).is_multiple_of(ALIGN));
            assert!(class_bytes(class) - bytes < ALIGN.max(bytes / 8), "{bytes}");
        }
        assert_eq!(class_of(CLASS_BYTES_MAX), CLASSES - 1);
    }

    #[test]
    fn a_class_keeps_one_empty_slab() {
        // Of a size that is neither a row's nor a table's: nobody else's.
        let class = class_of(28 << 10);
        let blocks: Vec<*mut u8> = (0..5).map(|_| take(class)).collect();
        let free = |i: usize| {
            let mut class = CLASS[class].lock();
            // SAFETY: the block is ours.
            unsafe { class.free(blocks[i]) };
            class.slabs
        };
        // Two to a slab.
        assert_eq!(CLASS[class].lock().slabs, 3);
        assert_eq!([4, 0, 1, 2, 3].map(free), [3, 2, 2, 1, 1]);
    }

    #[test]
    fn arrays_are_zeroed_and_do_not_overlap() {
        let mut live: Vec<(NonNull<u8>, usize)> = Vec::new();
        let mut state = 1u32;
        // Miri takes its time for each byte; a span of two slabs is one.
        let (rounds, sizes) = if cfg!(miri) { (30, 12) } else { (4000, 16) };
        for _ in 0..rounds {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if live.len() > rounds.min(60) / 2 {
                let (array, bytes) = live.swap_remove(state as usize % live.len());
                // SAFETY: the array is live.
                unsafe { free_array(array, bytes) };
                continue;
            }
            let bytes = ARRAY_ALIGN << ((state >> 8) % sizes);
            let array = alloc_array(bytes);
            assert_eq!(array.addr().get() % ARRAY_ALIGN, 0);
            // SAFETY: the array is ours, of that size, and zeroed.
            unsafe {
                let all = std::slice::from_raw_parts_mut(array.as_ptr(), bytes);
                assert!(all.iter().all(|byte| *byte == 0), "somebody else wrote here");
                all.fill(1);
            }
            live.push((array, bytes));
        }
        for (array, bytes) in live {
            // SAFETY: the array is live.
            unsafe { free_array(array, bytes) };
        }
    }

    #[test]
    fn what_lies_in_a_region_stays_when_a_huge_page_backs_it() {
        let blocks: Vec<NonNull<u8>> = (0..4 * SLABS).map(|_| alloc(BLOCK_BYTES_MAX)).collect();
        for (i, block) in blocks.iter().enumerate() {
            // SAFETY: the block is ours, of that size.
            unsafe { block.as_ptr().write_bytes(i as u8, BLOCK_BYTES_MAX) };
        }
        while back_by_huge_page(regions_made()) {}
        for (i, block) in blocks.iter().enumerate() {
            // SAFETY: the block is ours, of that size.
            unsafe {
                let filled = std::slice::from_raw_parts(block.as_ptr(), BLOCK_BYTES_MAX);
                assert!(filled.iter().all(|byte| *byte == i as u8), "{i}");
                free(*block, BLOCK_BYTES_MAX);
            }
        }
    }

    #[test]
    fn blocks_do_not_overlap_and_come_again() {
        // Regions come and go while huge pages back them.
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    back_by_huge_page(regions_made());
                    std::thread::yield_now();
                }
            });
            use_blocks_at_random();
            done.store(true, Ordering::Relaxed);
        });
    }

    fn use_blocks_at_random() {
        let sizes = [16, 100, 640, 1000, 5000, BLOCK_BYTES_MAX, 100_000];
        let mut live: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
        let mut state = 1u32;
        let rounds = if cfg!(miri) { 400 } else { 40_000 };
        for round in 0..rounds {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if live.len() > 300 || (state >> 28 < 6 && !live.is_empty()) {
                let (block, bytes, mark) = live.swap_remove(state as usize % live.len());
                // SAFETY: the block is live, and was filled.
                unsafe {
                    let filled = std::slice::from_raw_parts(block.as_ptr(), bytes);
                    assert!(filled == vec![mark; bytes], "somebody else wrote here");
                    free(block, bytes);
                }
                continue;
            }
            let bytes = sizes[(state >> 8) as usize % sizes.len()];
            let (block, mark) = (alloc(bytes), round as u8);
            assert_eq!(block.addr().get() % ALIGN, 0);
            // SAFETY: the block is ours, of that size.
            unsafe { block.as_ptr().write_bytes(mark, bytes) };
            live.push((block, bytes, mark));
        }
        let live: Vec<(NonNull<u8>, usize)> = live.iter().map(|(block, bytes, _)| (*block, *bytes)).collect();
        // SAFETY: the blocks are live.
        unsafe { free_all(&live) };
    }
}
