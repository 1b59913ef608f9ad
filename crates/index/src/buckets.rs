//! A shard's hash table: readers walk it without a lock, one writer at a time changes it.
//!
//! A bucket is one cache line: seven slots and a link to an overflow bucket. A slot is the address of a version, with 20
//! bits of the hash in the bits that addresses do not use, so that nearly every wrong version is passed over without
//! touching it. They are bits that choose the bucket once the table is large: it grows without touching versions.
//! Nothing is ever moved: a version that goes leaves an empty slot, and a table that grows is copied and
//! replaced, so that a reader that found no version may be sure that there was none when it began.

#![allow(unsafe_code)]

#[cfg(not(miri))]
use crate::slab as arrays;
use crate::slab::ARRAY_ALIGN;
use crate::version::Version;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Miri sees that memory was freed only if it is the process's allocator that was given it back; slabs have their own
/// tests.
#[cfg(miri)]
mod arrays {
    use super::ARRAY_ALIGN;
    use std::alloc::Layout;
    use std::ptr::NonNull;

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, ARRAY_ALIGN).expect("a table is far smaller than the address space")
    }

    pub fn alloc_array(bytes: usize) -> NonNull<u8> {
        // SAFETY: a table has a bucket.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(bytes)) }).expect("Miri has memory")
    }

    /// # Safety
    /// As of slabs.
    pub unsafe fn free_array(array: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::alloc::dealloc(array.as_ptr(), layout(bytes)) }
    }
}

const SLOTS: usize = 7;
/// Of an address of 48 bits, those that are not always 0: versions are aligned to 16.
const ADDRESS_BITS: u32 = 44;
const ALIGN_BITS: u32 = 4;
const ADDRESS: usize = (1 << ADDRESS_BITS) - 1;
/// The tag's lowest bit in a hash. Smaller tables lie in the cache with their versions when they grow.
const TAG_SHIFT: u32 = 4;
const TAG_BITS: u32 = usize::BITS - ADDRESS_BITS;
/// A table grows when its buckets have this many versions each on average, of seven: one bucket in eight overflows.
const LOAD_MAX: usize = 5;

pub(crate) type Slot<M> = AtomicPtr<Version<M>>;

#[repr(align(64))]
pub(crate) struct Bucket<M> {
    slots: [Slot<M>; SLOTS],
    overflow: AtomicPtr<Bucket<M>>,
}

impl<M> Default for Bucket<M> {
    fn default() -> Self {
        Bucket {
            slots: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
            overflow: AtomicPtr::new(null_mut()),
        }
    }
}

impl<M> Drop for Bucket<M> {
    fn drop(&mut self) {
        let mut next = std::mem::replace(self.overflow.get_mut(), null_mut());
        while !next.is_null() {
            // SAFETY: an overflow bucket belongs to the one before it.
            let mut bucket = unsafe { Box::from_raw(next) };
            next = std::mem::replace(bucket.overflow.get_mut(), null_mut());
        }
    }
}

/// Buckets of a shard; a power of two. The versions are not its own.
pub(crate) struct Buckets<M> {
    first: NonNull<Bucket<M>>,
    len: usize,
}

impl<M> Drop for Buckets<M> {
    fn drop(&mut self) {
        // SAFETY: the buckets are ours alone, and whole.
        unsafe {
            std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.len).drop_in_place();
            arrays::free_array(self.first.cast(), self.len * size_of::<Bucket<M>>());
        }
    }
}

/// What a look at the slots of a hash, but not at versions, says.
pub(crate) enum Only<M> {
    Nothing,
    One(NonNull<Version<M>>),
    Several,
}

/// The bits that tell versions of a bucket apart, and choose buckets of large tables.
fn tag(hash: u64) -> usize {
    (hash >> TAG_SHIFT) as usize & ((1 << TAG_BITS) - 1)
}

fn tagged<M>(version: NonNull<Version<M>>, hash: u64) -> *mut Version<M> {
    let in_slot = |address: usize| address >> ALIGN_BITS | tag(hash) << ADDRESS_BITS;
    debug_assert!(version.addr().get().is_multiple_of(1 << ALIGN_BITS));
    assert!(version.addr().get() >> (ADDRESS_BITS + ALIGN_BITS) == 0, "addresses have 48 bits");
    version.as_ptr().map_addr(in_slot)
}

fn untagged<M>(slot: *mut Version<M>) -> Option<NonNull<Version<M>>> {
    NonNull::new(slot.map_addr(|in_slot| (in_slot & ADDRESS) << ALIGN_BITS))
}

impl<M> Buckets<M> {
    /// For `versions` and some more.
    pub fn for_versions(versions: usize) -> Self {
        const { assert!(size_of::<Bucket<M>>() == ARRAY_ALIGN) };
        let len = (versions * 2 / LOAD_MAX).next_power_of_two();
        // A bucket of zeros is an empty one.
        Buckets { first: arrays::alloc_array(len * size_of::<Bucket<M>>()).cast(), len }
    }

    fn buckets(&self) -> &[Bucket<M>] {
        // SAFETY: they were made with the buckets, and go with them.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    pub fn is_too_small_for(&self, versions: usize) -> bool {
        versions > self.len * LOAD_MAX
    }

    pub fn is_too_large_for(&self, versions: usize) -> bool {
        self.len > 4 && versions * 8 < self.len * LOAD_MAX
    }

    fn first(&self, hash: u64) -> &Bucket<M> {
        &self.buckets()[hash as usize & (self.len - 1)]
    }

    pub fn prefetch(&self, hash: u64) {
        prefetch(std::ptr::from_ref(self.first(hash)).cast());
    }

    fn chain<'b>(&'b self, first: &'b Bucket<M>) -> impl Iterator<Item = &'b Bucket<M>> {
        std::iter::successors(Some(first), |bucket| {
            // SAFETY: overflow buckets live as long as the first.
            unsafe { bucket.overflow.load(Ordering::Acquire).as_ref() }
        })
    }

    /// The slots that may hold a version of `hash`, with the version's address.
    pub fn candidates(&self, hash: u64) -> impl Iterator<Item = (&Slot<M>, NonNull<Version<M>>)> {
        self.chain(self.first(hash)).flat_map(|bucket| &bucket.slots).filter_map(move |slot| {
            let tagged = slot.load(Ordering::Acquire);
            (tagged.addr() >> ADDRESS_BITS == tag(hash))
                .then(|| untagged(tagged))
                .flatten()
                .map(|v| (slot, v))
        })
    }

    /// The first of the candidates for which `is` holds. In half the instructions that the iterator takes: every
    /// look-up comes here.
    pub fn find(
        &self,
        hash: u64,
        mut is: impl FnMut(NonNull<Version<M>>) -> bool,
    ) -> Option<(&Slot<M>, NonNull<Version<M>>)> {
        let tag = tag(hash);
        let mut bucket = self.first(hash);
        loop {
            for slot in &bucket.slots {
                let tagged = slot.load(Ordering::Acquire);
                if tagged.addr() >> ADDRESS_BITS == tag
                    && let Some(version) = untagged(tagged)
                    && is(version)
                {
                    return Some((slot, version));
                }
            }
            // SAFETY: as in `chain`.
            bucket = unsafe { bucket.overflow.load(Ordering::Acquire).as_ref() }?;
        }
    }

    /// The version that may be of `hash`, if there is one and no other.
    pub fn only(&self, hash: u64) -> Only<M> {
        let tag = tag(hash);
        let mut only = Only::Nothing;
        let mut next = Some(self.first(hash));
        while let Some(bucket) = next {
            for slot in &bucket.slots {
                let tagged = slot.load(Ordering::Acquire);
                if tagged.addr() >> ADDRESS_BITS != tag {
                    continue;
                }
                only = match (only, untagged(tagged)) {
                    (only, None) => only,
                    (Only::Nothing, Some(version)) => Only::One(version),
                    _ => return Only::Several,
                };
            }
            // SAFETY: as in `chain`.
            next = unsafe { bucket.overflow.load(Ordering::Acquire).as_ref() };
        }
        only
    }

    /// All versions that are newest of their rows.
    pub fn all(&self) -> impl Iterator<Item = (&Slot<M>, NonNull<Version<M>>)> {
        let chains = self.buckets().iter().flat_map(|first| self.chain(first));
        chains
            .flat_map(|bucket| &bucket.slots)
            .filter_map(|slot| untagged(slot.load(Ordering::Acquire)).map(|version| (slot, version)))
    }

    /// Puts a version into an empty slot. The writer's to call.
    pub fn insert(&self, version: NonNull<Version<M>>, hash: u64) {
        self.put(hash, tagged(version, hash));
    }

    /// Puts in all versions of `old`. Nobody else knows this table yet.
    pub fn copy_all(&self, old: &Buckets<M>) {
        let in_old = old.len - 1;
        // The bits of a hash that its place in the old table and its tag show.
        let shown = in_old | ((1 << TAG_BITS) - 1) << TAG_SHIFT;
        let touches = (self.len - 1) & !shown != 0;
        // How many slots of each new bucket are taken, as they are from the first on.
        let mut taken = vec![0_u8; self.len];
        for (i, first) in old.buckets().iter().enumerate() {
            for slot in old.chain(first).flat_map(|bucket| &bucket.slots) {
                let tagged = slot.load(Ordering::Relaxed);
                let Some(version) = untagged(tagged) else { continue };
                let hash = if touches {
                    // SAFETY: under the writer's lock, what is in a slot stays.
                    unsafe { version.as_ref() }.hash
                } else {
                    ((tagged.addr() >> ADDRESS_BITS << TAG_SHIFT) & !in_old | i) as u64
                };
                let at = hash as usize & (self.len - 1);
                match self.buckets()[at].slots.get(usize::from(taken[at])) {
                    Some(slot) => {
                        slot.store(tagged, Ordering::Relaxed);
                        taken[at] += 1;
                    }
                    None => self.put(hash, tagged),
                }
            }
        }
    }

    /// Of `hash`, the lowest bits count.
    fn put(&self, hash: u64, tagged: *mut Version<M>) {
        let mut bucket = self.first(hash);
        loop {
            if let Some(slot) = bucket.slots.iter().find(|slot| slot.load(Ordering::Relaxed).is_null()) {
                return slot.store(tagged, Ordering::Release);
            }
            // SAFETY: as in `chain`.
            match unsafe { bucket.overflow.load(Ordering::Relaxed).as_ref() } {
                Some(overflow) => bucket = overflow,
                None => break,
            }
        }
        let overflow = Bucket::default();
        overflow.slots[0].store(tagged, Ordering::Relaxed);
        bucket.overflow.store(Box::into_raw(Box::new(overflow)), Ordering::Release);
    }
}

/// Puts a version into a slot, in the place of what was there. The writer's to call.
pub(crate) fn set<M>(slot: &Slot<M>, version: NonNull<Version<M>>, hash: u64) {
    slot.store(tagged(version, hash), Ordering::Release);
}

pub(crate) fn clear<M>(slot: &Slot<M>) {
    slot.store(null_mut(), Ordering::Release);
}

/// Has the cache line at `address` fetched. It need not be readable.
#[inline]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
