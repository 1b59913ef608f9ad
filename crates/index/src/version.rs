//! Versions of rows: header, key and row in one block, so that a reader who has its address pays for one place.

#![allow(unsafe_code)]

use crate::buckets::prefetch;
use crate::slab;
use blocks::{alloc, free, free_all};
use crossbeam_epoch::Guard;
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

#[cfg(not(miri))]
use slab as blocks;

/// Miri sees that memory was freed only if it is the process's allocator that was given it back; slabs have their own
/// tests.
#[cfg(miri)]
mod blocks {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 16).expect("a row is far smaller than the address space")
    }

    pub fn alloc(bytes: usize) -> NonNull<u8> {
        // SAFETY: a version has a header.
        NonNull::new(unsafe { std::alloc::alloc(layout(bytes)) }).expect("Miri has memory")
    }

    /// # Safety
    /// As of slabs.
    pub unsafe fn free(block: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout(bytes)) }
    }

    /// # Safety
    /// As of slabs.
    pub unsafe fn free_all(blocks: &[(NonNull<u8>, usize)]) {
        // SAFETY: the caller's promise.
        blocks.iter().for_each(|(block, bytes)| unsafe { free(*block, *bytes) });
    }
}

/// One version of a row and, below it, those that somebody may still read. `M` is what else is known of a version.
///
/// Key and row never change. Whoever reaches a version through the index may read it as long as it is pinned; with a
/// [`VersionRef`], for good.
#[repr(C)]
pub struct Version<M> {
    /// Who holds the block: the index, and every [`VersionRef`]; and whether the index has [`LEFT`] it.
    holders: AtomicU32,
    key_len: u32,
    /// [`DELETED`] for a version that says that the row is gone.
    row_len: u32,
    /// How often it was read lately, up to [`READS_MAX`].
    reads: AtomicU8,
    /// Whether it is queued for eviction. Changed under the shard's lock.
    queued: AtomicBool,
    pub(crate) hash: u64,
    pub(crate) previous: AtomicPtr<Version<M>>,
    pub meta: M,
    // Then key and row.
}

/// Of [`Version::holders`]: the index has given up its hold.
const LEFT: u32 = 1 << 31;

/// What versions take that are held and that the index has left, of all indexes of the process.
static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Memory of versions that no index knows any more, but who holds them.
pub fn held_bytes() -> usize {
    HELD_BYTES.load(Ordering::Relaxed)
}

const DELETED: u32 = u32::MAX;
const READS_MAX: u8 = 3;

/// What a version begins with.
pub struct NewVersion<'a, M> {
    pub hash: u64,
    pub key: &'a [u8],
    /// `None`: the row is deleted.
    pub row: Option<&'a [u8]>,
    pub meta: M,
}

impl<M> Version<M> {
    /// What a version of a key and row of these lengths takes in memory.
    pub fn bytes_for(key_len: usize, row_len: usize) -> usize {
        slab::block_bytes(Self::block_len(key_len, row_len))
    }

    fn block_len(key_len: usize, row_len: usize) -> usize {
        size_of::<Self>() + key_len + row_len
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        Self::bytes_for(self.key_len as usize, self.row_bytes())
    }

    fn row_bytes(&self) -> usize {
        if self.row_len == DELETED { 0 } else { self.row_len as usize }
    }

    pub(crate) fn allocate(new: NewVersion<'_, M>) -> NonNull<Self> {
        const { assert!(align_of::<Self>() <= 16) };
        let row = new.row.unwrap_or_default();
        let fits = |len: usize| u32::try_from(len).ok().filter(|len| *len != DELETED);
        let (key_len, row_len) = (fits(new.key.len()), fits(row.len()));
        let block = alloc(Self::block_len(new.key.len(), row.len())).cast::<Self>();
        let _ = block.as_ptr().expose_provenance();
        let header = Version {
            holders: AtomicU32::new(1),
            key_len: key_len.expect("a key is shorter than 4 GiB"),
            row_len: if new.row.is_some() { row_len.expect("a row is shorter than 4 GiB") } else { DELETED },
            reads: AtomicU8::new(0),
            queued: AtomicBool::new(false),
            hash: new.hash,
            previous: AtomicPtr::new(null_mut()),
            meta: new.meta,
        };
        // SAFETY: the block has room for the header, the key and the row, and is nobody else's.
        unsafe {
            block.as_ptr().write(header);
            let bytes = block.as_ptr().add(1).cast::<u8>();
            bytes.copy_from_nonoverlapping(new.key.as_ptr(), new.key.len());
            bytes.add(new.key.len()).copy_from_nonoverlapping(row.as_ptr(), row.len());
        }
        block
    }

    /// Gives up the index's hold; frees the block if nobody has another.
    ///
    /// # Safety
    /// The caller has that hold, and does not use the block any more. Nobody finds the version by the index.
    pub(crate) unsafe fn release(version: NonNull<Self>) {
        // SAFETY: the caller's promise; the block is nobody's any more.
        unsafe {
            if let Some(bytes) = Self::give_up(version) {
                free(version.cast(), bytes);
            }
        }
    }

    /// Gives up the index's hold. If it was the last, the block, of so many bytes, is to be freed; else it counts as held.
    ///
    /// # Safety
    /// As of [`release`](Self::release).
    unsafe fn give_up(version: NonNull<Self>) -> Option<usize> {
        // SAFETY: the index's hold keeps the block. Where it is the only one, there will be no other.
        unsafe {
            let holders = &version.as_ref().holders;
            if holders.load(Ordering::Acquire) != 1 {
                // Before others can free it.
                let bytes = version.as_ref().bytes();
                HELD_BYTES.fetch_add(bytes, Ordering::Relaxed);
                if holders.fetch_add(LEFT - 1, Ordering::Release) != 1 {
                    return None;
                }
                std::sync::atomic::fence(Ordering::Acquire);
                HELD_BYTES.fetch_sub(bytes, Ordering::Relaxed);
            }
            Some(Self::end(version))
        }
    }

    /// Gives up a hold that is not the index's; the last frees the block.
    ///
    /// # Safety
    /// The caller has that hold, and does not use the block any more.
    unsafe fn let_go(version: NonNull<Self>) {
        // SAFETY: the caller's hold keeps the block until there is none, and nobody else sees it then.
        unsafe {
            if version.as_ref().holders.fetch_sub(1, Ordering::Release) == LEFT | 1 {
                std::sync::atomic::fence(Ordering::Acquire);
                HELD_BYTES.fetch_sub(version.as_ref().bytes(), Ordering::Relaxed);
                free(version.cast(), Self::end(version));
            }
        }
    }

    /// What ends with the version; returns the length of its block.
    ///
    /// # Safety
    /// Nobody holds it.
    unsafe fn end(version: NonNull<Self>) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            let bytes = Self::block_len(version.as_ref().key_len as usize, version.as_ref().row_bytes());
            version.as_ptr().drop_in_place();
            bytes
        }
    }

    /// Has the index's hold given up once nobody is pinned who may have found the version.
    ///
    /// # Safety
    /// The version is the index's, and cannot be reached through it any more.
    pub(crate) unsafe fn retire(version: NonNull<Self>, guard: &Guard)
    where
        M: Send + Sync + 'static,
    {
        let version = SendPtr(version);
        // SAFETY: whoever pins from now on does not find it.
        unsafe {
            guard.defer_unchecked(move || {
                let SendPtr(version) = { version };
                Self::release(version);
            });
        }
    }

    /// The whole block: a reference to the header alone may not leave it.
    fn block(&self) -> *mut Self {
        std::ptr::with_exposed_provenance_mut(std::ptr::from_ref(self).addr())
    }

    fn tail(&self) -> *const u8 {
        self.block().wrapping_add(1).cast()
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn key(&self) -> &[u8] {
        // SAFETY: the key follows the header, and never changes.
        unsafe { std::slice::from_raw_parts(self.tail(), self.key_len as usize) }
    }

    /// `None`: the row is deleted.
    pub fn row(&self) -> Option<&[u8]> {
        if self.row_len == DELETED {
            return None;
        }
        // SAFETY: the row follows the key, and never changes.
        let row = unsafe {
            std::slice::from_raw_parts(self.tail().add(self.key_len as usize), self.row_len as usize)
        };
        Some(row)
    }

    /// The version before this one, if it is still kept.
    pub fn previous(&self) -> Option<&Version<M>> {
        // SAFETY: what this version points to is freed only after it was cut off and whoever was pinned then is not
        // any more; the borrow of this version lasts no longer than the pin it was found under, or than the lock.
        unsafe { self.previous.load(Ordering::Acquire).as_ref() }
    }

    /// Holds the version beyond the pin or lock under which it was found.
    pub fn hold(&self) -> VersionRef<M> {
        // The index gives up its own hold only after that pin or lock: the count is not 0.
        self.holders.fetch_add(1, Ordering::Relaxed);
        VersionRef(NonNull::new(self.block()).expect("a reference is not null"))
    }

    /// Notes that it was read. A note lost among several readers does not matter; most find nothing to write.
    pub fn touch(&self) {
        let reads = self.reads();
        if reads < READS_MAX {
            self.set_reads(reads + 1);
        }
    }

    pub(crate) fn reads(&self) -> u8 {
        self.reads.load(Ordering::Relaxed)
    }

    pub(crate) fn set_reads(&self, reads: u8) {
        self.reads.store(reads, Ordering::Relaxed);
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    pub(crate) fn set_queued(&self, queued: bool) {
        self.queued.store(queued, Ordering::Relaxed);
    }

    /// Takes over what eviction knows of the version before.
    pub(crate) fn inherit(&self, before: &Version<M>) {
        self.set_reads(before.reads());
        self.set_queued(before.is_queued());
    }
}

/// Lines of a row that is one of many: rows that were written one after the other lie so, and the processor fetches what follows.
pub(crate) const ROW_LINES: usize = 3;
/// Lines in which a header lies, and a short key.
pub(crate) const HEADER_LINES: usize = 2;
const LINE_BYTES: usize = 64;

/// Has the first lines of a version fetched, which need not be there any more.
pub(crate) fn prefetch_lines<M>(version: NonNull<Version<M>>, lines: usize) {
    let start = version.as_ptr().cast::<u8>().cast_const();
    (0..lines).for_each(|line| prefetch(start.wrapping_add(line * LINE_BYTES)));
}

struct SendPtr<M>(NonNull<Version<M>>);

// SAFETY: versions are shared between threads as their `M` is.
unsafe impl<M: Send + Sync> Send for SendPtr<M> {}

/// Versions that were taken out together, to be [retired](Version::retire) together: one by one, that costs more than all the
/// rest of their end.
#[must_use = "what is not retired is never freed"]
pub(crate) struct Retired<M>(Vec<NonNull<Version<M>>>);

/// Versions that are freed at a time, in some 20 µs. Whoever comes by frees up to eight such lists.
const RETIRED_TOGETHER: usize = 256;
/// Versions whose cache misses overlap, and whose blocks are freed under one lock.
const RELEASED_TOGETHER: usize = 64;

impl<M> Default for Retired<M> {
    fn default() -> Self {
        Retired(Vec::new())
    }
}

impl<M: Send + Sync + 'static> Retired<M> {
    /// # Safety
    /// As of [`Version::retire`].
    pub unsafe fn push(&mut self, version: NonNull<Version<M>>) {
        self.0.push(version);
    }

    /// Frees what was retired before, while it is at it: the caller holds no lock, and nothing that it found. Returns how many
    /// lists there were to retire.
    pub fn retire(self, guard: &mut Guard) -> usize {
        let lists = self.0.chunks(RETIRED_TOGETHER);
        let count = lists.len();
        for versions in lists {
            let versions: Box<[SendPtr<M>]> = versions.iter().map(|version| SendPtr(*version)).collect();
            // SAFETY: the promise of who pushed them.
            unsafe { guard.defer_unchecked(move || release_all(&versions)) };
            guard.flush();
            guard.repin();
        }
        count
    }
}

/// # Safety
/// As of [`Version::release`], of each.
unsafe fn release_all<M>(versions: &[SendPtr<M>]) {
    for group in versions.chunks(RELEASED_TOGETHER) {
        group.iter().for_each(|SendPtr(version)| prefetch_lines(*version, 1));
        let mut blocks = [(NonNull::<u8>::dangling(), 0); RELEASED_TOGETHER];
        let mut len = 0;
        // SAFETY: the caller's promise; the blocks are nobody's any more.
        unsafe {
            for SendPtr(version) in group {
                if let Some(bytes) = Version::give_up(*version) {
                    blocks[len] = (version.cast(), bytes);
                    len += 1;
                }
            }
            free_all(&blocks[..len]);
        }
    }
}

/// A version that is kept for its holder; it has no business with `previous`, which may be gone.
pub struct VersionRef<M>(NonNull<Version<M>>);

// SAFETY: it shares a version, as `Arc` does.
unsafe impl<M: Send + Sync> Send for VersionRef<M> {}
// SAFETY: as above.
unsafe impl<M: Send + Sync> Sync for VersionRef<M> {}

impl<M> VersionRef<M> {
    fn version(&self) -> &Version<M> {
        // SAFETY: the hold keeps the block.
        unsafe { self.0.as_ref() }
    }

    pub fn key(&self) -> &[u8] {
        self.version().key()
    }

    /// `None`: the row is deleted.
    pub fn row(&self) -> Option<&[u8]> {
        self.version().row()
    }

    pub fn meta(&self) -> &M {
        &self.version().meta
    }

    /// What it takes in memory, if the index has left it.
    pub fn held_bytes(&self) -> usize {
        let left = self.version().holders.load(Ordering::Relaxed) & LEFT != 0;
        if left { self.version().bytes() } else { 0 }
    }

    /// Has the version fetched, so that the cache misses of what is done with several next overlap.
    pub fn prefetch(&self) {
        prefetch_lines(self.0, ROW_LINES);
    }
}

impl<M> Clone for VersionRef<M> {
    fn clone(&self) -> Self {
        self.version().hold()
    }
}

impl<M> Drop for VersionRef<M> {
    fn drop(&mut self) {
        // SAFETY: this is the hold's end.
        unsafe { Version::let_go(self.0) }
    }
}

/// A version that no index has taken yet.
pub(crate) struct Unlinked<M>(NonNull<Version<M>>);

impl<M> Unlinked<M> {
    pub fn new(new: NewVersion<'_, M>) -> Self {
        Unlinked(Version::allocate(new))
    }

    pub fn into_raw(self) -> NonNull<Version<M>> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }
}

impl<M> Deref for Unlinked<M> {
    type Target = Version<M>;

    fn deref(&self) -> &Version<M> {
        // SAFETY: it is this one's alone.
        unsafe { self.0.as_ref() }
    }
}

impl<M> Drop for Unlinked<M> {
    fn drop(&mut self) {
        // SAFETY: nobody else knows it.
        unsafe { Version::release(self.0) }
    }
}
