//! Row index: the newest version of every row that is in memory, by a hash of its key.
//!
//! Readers take no lock: they are *pinned*, and what they found stays until they are not any more. Writers lock the
//! shard of a row, of which there are [`SHARDS`]. A hit costs two cache misses, one for the bucket and one for the
//! version with its key and row; with many reads at hand, [`Index::prefetch_bucket`] and [`Index::approach`] let the misses
//! of all overlap. Pinning and reclaiming cost once for a batch.
//!
//! What a version means beyond its key and row is the caller's (`M`), and so is what makes one *clean*: to be evicted
//! when memory is wanted. Threads at idle priority must not lock a shard, which serving threads want, nor stay pinned,
//! which keeps what others replace.

#![allow(unsafe_code)]

mod buckets;
pub mod eviction;
mod region;
mod slab;
#[cfg(test)]
mod tests;
mod version;

pub use crossbeam_epoch::{Guard, pin};
use eviction::{Eviction, Spare, Visit};
pub use slab::{back_by_huge_page, regions_made, reserved_bytes};
pub use version::{NewVersion, Version, VersionRef, held_bytes};

use buckets::{Buckets, Only, Slot, clear, set};
use parking_lot::{Mutex, MutexGuard};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use version::{HEADER_LINES, ROW_LINES, Retired, Unlinked, prefetch_lines};

/// Locks, and tables that grow each by itself. Miri, which takes half a minute to make so many, is given a few.
pub const SHARDS: usize = if cfg!(miri) { 4 } else { 1024 };
/// Stamps per shard: a write keeps readers from caching what they read before it, for one key in so many.
const STAMPS: usize = 8;
/// Lines of a row that are fetched ahead; the processor goes on by itself.
const PREFETCH_LINES: usize = 10;
/// After so many steps of an epoch that nobody holds back, what was retired before is freed.
const EPOCHS: usize = 4;
/// Lists of retired versions that are freed at a time. (crossbeam-epoch, `Global::COLLECT_STEPS`)
const LISTS_FREED: usize = 8;
/// Hashes of a walk that are looked up together.
const WALK: usize = 64;

/// Newest versions by hash. Several rows may have one hash: look-ups are given what tells them apart.
pub struct Index<M: Send + Sync + 'static> {
    shards: Box<[Shard<M>]>,
    /// The shard at which the next eviction starts.
    hand: AtomicUsize,
}

#[repr(align(128))]
struct Shard<M: Send + Sync + 'static> {
    buckets: AtomicPtr<Buckets<M>>,
    stamps: [AtomicU32; STAMPS],
    writer: Mutex<Writer>,
}

/// What a shard's writers know.
#[derive(Default)]
struct Writer {
    len: usize,
    eviction: Eviction,
}

/// What a reader that found nothing must show to cache what it then reads from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u32);

impl<M: Send + Sync + 'static> Default for Index<M> {
    fn default() -> Self {
        let shard = || Shard {
            buckets: AtomicPtr::new(Box::into_raw(Box::new(Buckets::for_versions(0)))),
            stamps: Default::default(),
            writer: Mutex::default(),
        };
        Index { shards: (0..SHARDS).map(|_| shard()).collect(), hand: AtomicUsize::new(0) }
    }
}

/// Nobody reads any more, since what is found borrows the index.
impl<M: Send + Sync + 'static> Drop for Index<M> {
    fn drop(&mut self) {
        for shard in &mut self.shards {
            // SAFETY: boxed, and the index's alone.
            let buckets = unsafe { Box::from_raw(*shard.buckets.get_mut()) };
            for (_, newest) in buckets.all() {
                let mut next = Some(newest);
                while let Some(version) = next {
                    // SAFETY: the index's hold on what it still names.
                    unsafe {
                        next = NonNull::new(version.as_ref().previous.load(Ordering::Relaxed));
                        Version::release(version);
                    }
                }
            }
        }
    }
}

impl<M: Send + Sync + 'static> Shard<M> {
    /// # Safety
    /// The caller is pinned, or has the writer's lock, as long as it uses the buckets.
    unsafe fn buckets<'g>(&self) -> &'g Buckets<M> {
        // SAFETY: buckets that are replaced are retired, and stay as long as somebody may be pinned who found them.
        unsafe { &*self.buckets.load(Ordering::Acquire) }
    }

    fn stamp(&self, hash: u64) -> &AtomicU32 {
        // Bits that neither choose the shard nor the bucket.
        &self.stamps[(hash >> 29) as usize % STAMPS]
    }
}

impl<M: Send + Sync + 'static> Index<M> {
    fn shard(&self, hash: u64) -> &Shard<M> {
        // Buckets take the lowest bits, and tags those above the fourth.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// The first stage of a look-up among many.
    pub fn prefetch_bucket(&self, hash: u64, _pinned: &Guard) {
        // SAFETY: pinned.
        unsafe { self.shard(hash).buckets() }.prefetch(hash);
    }

    /// The second stage: what is likely the version, without a look at it. With `ahead`, it is fetched.
    pub fn approach<'g>(&'g self, hash: u64, _pinned: &'g Guard, ahead: bool) -> Option<&'g Version<M>> {
        // SAFETY: pinned.
        let buckets = unsafe { self.shard(hash).buckets() };
        let (_, version) = buckets.find(hash, |_| true)?;
        if ahead {
            prefetch_lines(version, PREFETCH_LINES);
        }
        // SAFETY: a version in a slot is whole, and pinned.
        Some(unsafe { version.as_ref() })
    }

    /// The newest version of the row for which `is` holds, among those of `hash`.
    ///
    /// # Errors
    /// The stamp to [`fill`](Locked::fill) with, if there is none.
    pub fn find<'g>(
        &'g self,
        hash: u64,
        _pinned: &'g Guard,
        is: impl Fn(&Version<M>) -> bool,
    ) -> Result<&'g Version<M>, Stamp> {
        let shard = self.shard(hash);
        // Before the look: what came since then bumps it.
        let stamp = Stamp(shard.stamp(hash).load(Ordering::Acquire));
        // SAFETY: pinned as long as the version is borrowed.
        let buckets: &'g Buckets<M> = unsafe { shard.buckets() };
        let found = buckets.find(hash, |version| {
            // SAFETY: a version in a slot is whole, and is retired only after it left it.
            let version = unsafe { version.as_ref() };
            version.hash == hash && is(version)
        });
        // SAFETY: as above; pinned as long as it is borrowed.
        found.map(|(_, version)| unsafe { version.as_ref() }).ok_or(stamp)
    }

    /// The newest versions of all rows of `hash`.
    pub fn candidates<'g>(&'g self, hash: u64, _pinned: &'g Guard) -> impl Iterator<Item = &'g Version<M>> {
        // SAFETY: pinned as long as the versions are borrowed.
        let buckets: &'g Buckets<M> = unsafe { self.shard(hash).buckets() };
        // SAFETY: a version in a slot is whole, and is retired only after it left it.
        let versions = buckets.candidates(hash).map(|(_, version)| unsafe { version.as_ref() });
        versions.filter(move |version: &&'g Version<M>| version.hash == hash)
    }

    /// Calls `visit` for some dozens of `hashes` at a time, the cache misses of which overlap, with the newest versions of all their
    /// rows, each with the number of its hash among these. A hash costs one look at its bucket. Of the versions, what comes before
    /// their rows is fetched ahead, and if `with_rows` these too.
    pub fn walk(
        &self,
        hashes: impl Iterator<Item = u64>,
        with_rows: bool,
        mut visit: impl for<'g> FnMut(&[(usize, &'g Version<M>)]),
    ) {
        let mut hashes = hashes.fuse();
        let mut take = |group: &mut [u64; WALK], guard: &Guard| {
            let mut len = 0;
            for (place, hash) in group.iter_mut().zip(hashes.by_ref()) {
                *place = hash;
                self.prefetch_bucket(hash, guard);
                len += 1;
            }
            len
        };
        let lines = if with_rows { ROW_LINES } else { HEADER_LINES };
        let mut guard = pin();
        let (mut group, mut ahead) = ([0; WALK], [0; WALK]);
        let mut len = take(&mut group, &guard);
        while len > 0 {
            let mut found = [const { Only::Nothing }; WALK];
            for (found, hash) in found.iter_mut().zip(&group[..len]) {
                // SAFETY: pinned.
                *found = unsafe { self.shard(*hash).buckets() }.only(*hash);
                if let Only::One(version) = found {
                    prefetch_lines(*version, lines);
                }
            }
            let len_ahead = take(&mut ahead, &guard);
            let mut versions: Vec<(usize, &Version<M>)> = Vec::with_capacity(WALK);
            for (number, (found, hash)) in found.into_iter().zip(group).take(len).enumerate() {
                match found {
                    Only::Nothing => {}
                    Only::One(version) => {
                        // SAFETY: a version in a slot is whole, and pinned.
                        let version = unsafe { version.as_ref() };
                        if version.hash == hash {
                            versions.push((number, version));
                        }
                    }
                    Only::Several => {
                        versions.extend(self.candidates(hash, &guard).map(|version| (number, version)));
                    }
                }
            }
            visit(&versions);
            drop(versions);
            (group, len) = (ahead, len_ahead);
            // What is replaced during a long walk is not kept until its end.
            guard.repin();
        }
    }

    /// Locks the shard of `hash`.
    pub fn lock(&self, hash: u64) -> Locked<'_, M> {
        let shard = self.shard(hash);
        Locked { shard, writer: shard.writer.lock() }
    }

    fn lock_shard(&self, i: usize) -> Locked<'_, M> {
        let shard = &self.shards[i % SHARDS];
        Locked { shard, writer: shard.writer.lock() }
    }

    /// Takes out every row whose newest version `keep` does not want; calls `gone` with each version.
    pub fn retain(&self, keep: impl Fn(&Version<M>) -> bool, mut gone: impl FnMut(&Version<M>)) {
        let (mut guard, mut lists) = (pin(), 0);
        for i in 0..SHARDS {
            let retired = self.lock_shard(i).retain(&guard, &keep, &mut gone);
            lists += retired.retire(&mut guard);
            guard.repin();
        }
        // The last ones, too, and all if somebody was pinned meanwhile: a few rows would keep whole regions.
        for _ in 0..EPOCHS + lists.div_ceil(LISTS_FREED) {
            guard.flush();
            guard.repin();
        }
    }

    /// Evicts clean rows of `bytes` in total, in the order of [`Eviction`]; calls `gone` with each version.
    pub fn evict(
        &self,
        bytes: u64,
        is_clean: impl Fn(&Version<M>) -> bool,
        mut gone: impl FnMut(&Version<M>),
    ) {
        // Each shard gives up a 32nd of what it has, so that shards stay in proportion to what comes to them: equal shares
        // cost up to 0.7 points of hit rate. More if much is wanted, and in the end whatever there is.
        let mut freed = 0;
        for round in 0..3 * SHARDS {
            if freed >= bytes {
                return;
            }
            let hand = self.hand.fetch_add(1, Ordering::Relaxed);
            let mut guard = pin();
            let mut shard = self.lock_shard(hand);
            let share = (shard.writer.eviction.bytes() / 32).max(bytes / SHARDS as u64).max(1);
            let wanted = if round < SHARDS { share } else { bytes - freed };
            let mut retired = Retired::default();
            freed += shard.evict(wanted, &guard, &is_clean, &mut gone, &mut retired);
            drop(shard);
            retired.retire(&mut guard);
        }
    }

    /// Keeps readers that found nothing before from [filling](Locked::fill) what they then read, whichever row it is.
    pub fn bump_all(&self) {
        for shard in &self.shards {
            let _writer = shard.writer.lock();
            for stamp in &shard.stamps {
                stamp.store(stamp.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
            }
        }
    }

    /// Rows in memory.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.writer.lock().len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A shard that nobody else changes.
pub struct Locked<'i, M: Send + Sync + 'static> {
    shard: &'i Shard<M>,
    writer: MutexGuard<'i, Writer>,
}

/// The place of a row in a locked shard.
pub enum Entry<'l, 'i, M: Send + Sync + 'static> {
    Vacant(&'l mut Locked<'i, M>),
    Occupied(Occupied<'l, 'i, M>),
}

/// A row that is there.
pub struct Occupied<'l, 'i, M: Send + Sync + 'static> {
    locked: &'l mut Locked<'i, M>,
    slot: &'l Slot<M>,
    newest: NonNull<Version<M>>,
}

impl<'i, M: Send + Sync + 'static> Locked<'i, M> {
    fn buckets<'l>(&self) -> &'l Buckets<M> {
        // SAFETY: only who has the lock replaces the buckets, and `changed_len` is called when nothing borrows them.
        unsafe { self.shard.buckets() }
    }

    /// The row of `hash` for which `is` holds.
    pub fn entry(&mut self, hash: u64, is: impl Fn(&Version<M>) -> bool) -> Entry<'_, 'i, M> {
        // SAFETY: under the lock, what is in a slot stays.
        let found = self.buckets().find(hash, |version| {
            let version = unsafe { version.as_ref() };
            version.hash == hash && is(version)
        });
        match found {
            Some((slot, newest)) => Entry::Occupied(Occupied { locked: self, slot, newest }),
            None => Entry::Vacant(self),
        }
    }

    /// Keeps readers that found nothing before from filling what they then read.
    fn bump(&self, hash: u64) {
        // Under the lock, nobody else does.
        let stamp = self.shard.stamp(hash);
        stamp.store(stamp.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Inserts the first version of a row that is not there.
    pub fn insert(&mut self, new: NewVersion<'_, M>, guard: &Guard) -> &Version<M> {
        let hash = new.hash;
        let version = self.link(Unlinked::new(new), guard);
        self.bump(hash);
        version
    }

    /// Inserts a clean row that was read elsewhere since `stamp`, unless its hash was written to since then. The row is
    /// not there.
    pub fn fill(&mut self, new: NewVersion<'_, M>, stamp: Stamp, guard: &Guard) -> Option<&Version<M>> {
        if self.shard.stamp(new.hash).load(Ordering::Relaxed) != stamp.0 {
            return None;
        }
        let version = self.link(Unlinked::new(new), guard);
        version.set_queued(true);
        self.writer.eviction.admit(version.hash, version.bytes() as u32);
        Some(version)
    }

    fn link<'l>(&mut self, version: Unlinked<M>, guard: &Guard) -> &'l Version<M> {
        let hash = version.hash;
        let version = version.into_raw();
        self.writer.len += 1;
        self.changed_len(guard);
        self.buckets().insert(version, hash);
        // SAFETY: in its slot, and the lock is held.
        unsafe { version.as_ref() }
    }

    /// Fits the table to its rows. Readers go on in the old one, which has all that was there when they began.
    fn changed_len(&mut self, guard: &Guard) {
        let (old, len) = (self.buckets(), self.writer.len);
        if !old.is_too_small_for(len) && !old.is_too_large_for(len) {
            return;
        }
        let new = Buckets::for_versions(len);
        new.copy_all(old);
        let old = self.shard.buckets.swap(Box::into_raw(Box::new(new)), Ordering::AcqRel);
        let old = SendPtr(old);
        // SAFETY: boxed, and nobody who pins from now on finds it.
        unsafe {
            guard.defer_unchecked(move || {
                let SendPtr(old) = { old };
                drop(Box::from_raw(old));
            });
        }
    }

    fn remove(
        &mut self,
        slot: &Slot<M>,
        newest: NonNull<Version<M>>,
        gone: impl FnMut(&Version<M>),
        retire: impl FnMut(NonNull<Version<M>>),
    ) {
        clear(slot);
        self.writer.len -= 1;
        take_chain(Some(newest), gone, retire);
    }

    fn retain(
        &mut self,
        guard: &Guard,
        keep: impl Fn(&Version<M>) -> bool,
        mut gone: impl FnMut(&Version<M>),
    ) -> Retired<M> {
        let mut retired = Retired::default();
        let mut rows = self.buckets().all();
        let mut group = Vec::with_capacity(WALK);
        loop {
            group.extend(rows.by_ref().take(WALK));
            if group.is_empty() {
                break;
            }
            // Their cache misses overlap: a table that is dropped is mostly these.
            group.iter().for_each(|(_, version)| prefetch_lines(*version, HEADER_LINES));
            for (slot, version) in group.drain(..) {
                // SAFETY: under the lock, what is in a slot stays.
                if !keep(unsafe { version.as_ref() }) {
                    // SAFETY: out of its slot, and the index's.
                    self.remove(slot, version, &mut gone, |version| unsafe { retired.push(version) });
                }
            }
        }
        self.changed_len(guard);
        self.purge();
        retired
    }

    /// Forgets what eviction has queued in vain.
    fn purge(&mut self) {
        let buckets = self.buckets();
        if self.writer.eviction.len() > 2 * self.writer.len + 16 {
            self.writer.eviction.purge(|hash| {
                // SAFETY: under the lock, what is in a slot stays.
                buckets
                    .candidates(hash)
                    .any(|(_, v)| unsafe { v.as_ref().hash == hash && v.as_ref().is_queued() })
            });
        }
    }

    fn evict(
        &mut self,
        bytes: u64,
        guard: &Guard,
        is_clean: &impl Fn(&Version<M>) -> bool,
        gone: &mut impl FnMut(&Version<M>),
        retired: &mut Retired<M>,
    ) -> u64 {
        let mut eviction = std::mem::take(&mut self.writer.eviction);
        let freed = eviction.evict(bytes, |hash, spare| self.visit(hash, spare, is_clean, gone, retired));
        self.writer.eviction = eviction;
        self.changed_len(guard);
        freed
    }

    fn visit(
        &mut self,
        hash: u64,
        spare: Spare,
        is_clean: &impl Fn(&Version<M>) -> bool,
        gone: &mut impl FnMut(&Version<M>),
        retired: &mut Retired<M>,
    ) -> Visit {
        // SAFETY: under the lock, what is in a slot stays.
        let mut queued = self.buckets().candidates(hash).map(|(slot, v)| (slot, v, unsafe { v.as_ref() }));
        let Some((slot, newest, version)) = queued.find(|(_, _, v)| v.hash == hash && v.is_queued()) else {
            return Visit::Gone;
        };
        if !is_clean(version) {
            version.set_queued(false);
            return Visit::Gone;
        }
        if let Some(reads) = spare(version.reads()) {
            version.set_reads(reads);
            return Visit::Spared;
        }
        let bytes = version.bytes() as u32;
        // SAFETY: out of its slot, and the index's.
        self.remove(slot, newest, gone, |version| unsafe { retired.push(version) });
        Visit::Evicted(bytes)
    }
}

impl<M: Send + Sync + 'static> Occupied<'_, '_, M> {
    pub fn newest(&self) -> &Version<M> {
        // SAFETY: under the lock, what is in a slot stays.
        unsafe { self.newest.as_ref() }
    }

    /// Makes `new` the newest version, with the others below it.
    #[inline(always)]
    pub fn push(&mut self, new: NewVersion<'_, M>) {
        let new = Unlinked::new(new);
        new.inherit(self.newest());
        new.previous.store(self.newest.as_ptr(), Ordering::Relaxed);
        let hash = new.hash;
        self.newest = new.into_raw();
        set(self.slot, self.newest, hash);
        self.locked.bump(hash);
    }

    /// Forgets the versions below the last to keep, which is the first, from the newest on, for which `is_last` holds;
    /// calls `gone` with the last and each, the newer first.
    pub fn cut(
        &mut self,
        guard: &Guard,
        is_last: impl Fn(&Version<M>) -> bool,
        mut gone: impl FnMut(&Version<M>, &Version<M>),
    ) {
        let mut last = self.newest();
        while !is_last(last) {
            match last.previous() {
                Some(previous) => last = previous,
                None => return,
            }
        }
        let rest = last.previous.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: cut off, and the index's.
        let retire = |version| unsafe { Version::retire(version, guard) };
        take_chain(NonNull::new(rest), |version| gone(last, version), retire);
    }

    /// The newest version has become clean: queues it for eviction.
    pub fn admit(&mut self) {
        let (hash, bytes) = (self.newest().hash, self.newest().bytes() as u32);
        if !self.newest().is_queued() {
            self.newest().set_queued(true);
            self.locked.writer.eviction.admit(hash, bytes);
            self.locked.purge();
        }
    }

    /// Takes the row out; calls `gone` with each version.
    pub fn remove(self, guard: &Guard, gone: impl FnMut(&Version<M>)) {
        // SAFETY: out of its slot, and the index's.
        let retire = |version| unsafe { Version::retire(version, guard) };
        self.locked.remove(self.slot, self.newest, gone, retire);
    }
}

/// Calls `gone` and then `retire` with each version of a chain that the index does not name any more. Link by link: a chain
/// under an old snapshot is long.
fn take_chain<M>(
    mut next: Option<NonNull<Version<M>>>,
    mut gone: impl FnMut(&Version<M>),
    mut retire: impl FnMut(NonNull<Version<M>>),
) {
    while let Some(version) = next {
        // SAFETY: the caller has taken it out, and readers who found it are pinned until after this. Its link stays,
        // for them.
        unsafe {
            gone(version.as_ref());
            next = NonNull::new(version.as_ref().previous.load(Ordering::Relaxed));
        }
        retire(version);
    }
}

struct SendPtr<M: Send + Sync + 'static>(*mut Buckets<M>);

// SAFETY: buckets are shared between threads as the index is.
unsafe impl<M: Send + Sync + 'static> Send for SendPtr<M> {}
