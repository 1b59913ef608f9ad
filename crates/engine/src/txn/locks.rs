//! Rows that transactions have locked: nobody else writes them until the transaction ends, or is undone to before it did.
//!
//! A row is locked under the latch of its key, and whoever writes a row asks here under that latch: by the count of
//! [`Undecided`](crate::undecided::Undecided), which a write looks at anyway, so that nothing is asked while no row is locked.
//!
//! Locks are for waiting, not for what is right: `COMMIT` compares each row with the one that was decided on. What takes no
//! latches, as a truncate, takes no heed of them either.
//!
//! Of a transaction that has locked [many](super::many_locks) no more than hashes of keys are left.

use super::many_locks::ManyLocks;
use crate::catalog::Table;
use crate::engine::Engine;
use crate::index::KeyRef;
use arc_swap::ArcSwap;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use oribi_env::locks::{self, Condvar, Mutex};
use oribi_types::{Error, ErrorKind, Result};
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const STRIPES: usize = 64;

/// How long a thread that waits for a row sleeps at most before it looks at the clock.
const LOOK_APART: Duration = Duration::from_millis(50);

pub(crate) struct RowLocks {
    stripes: Box<[Stripe]>,
    /// Of transactions that have locked many.
    many: ArcSwap<Vec<Arc<ManyLocks>>>,
    /// For each transaction that waits, the rows that its writes wait for, as long as they are locked.
    waits: Mutex<HashMap<u64, Vec<Blocked>>, { locks::LOCK_WAITS }>,
}

#[derive(Default)]
struct Stripe {
    rows: Mutex<HashTable<RowLock>, { locks::LEAF }>,
    /// Tells those who wait for a row of this stripe, with a thread …
    released: Condvar,
    /// … and without.
    told: Notify,
}

impl Stripe {
    fn tell(&self) {
        self.released.notify_all();
        self.told.notify_waiters();
    }
}

struct RowLock {
    key: LockedKey,
    holder: u64,
    since_micros: u64,
}

/// A key of a tablet, by the tablet's generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockedKey {
    pub hash: u64,
    pub generation: u64,
    pub key: Arc<[u8]>,
}

impl LockedKey {
    fn is(&self, key: KeyRef<'_>) -> bool {
        self.hash == key.hash && self.generation == key.generation && *self.key == *key.key
    }

    /// What its lock takes in memory beside the key, about.
    pub const BYTES: usize = 2 * size_of::<RowLock>();

    /// What its lock takes in memory, about.
    pub fn bytes(&self) -> usize {
        Self::BYTES + self.key.len()
    }

    pub fn as_ref(&self) -> KeyRef<'_> {
        KeyRef { hash: self.hash, generation: self.generation, key: &self.key }
    }
}

/// A row that another transaction has locked, and who that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    key: LockedKey,
    holder: u64,
    since_micros: u64,
}

impl Blocked {
    /// When the row was locked.
    pub(crate) fn since_micros(&self) -> u64 {
        self.since_micros
    }
}

/// A stripe's table goes by the lowest bits and the highest.
fn stripe_of(hash: u64) -> usize {
    (hash >> 24) as usize % STRIPES
}

impl Default for RowLocks {
    fn default() -> Self {
        let stripes = (0..STRIPES).map(|_| Stripe::default()).collect();
        RowLocks { stripes, many: ArcSwap::default(), waits: Mutex::default() }
    }
}

impl RowLocks {
    fn stripe(&self, hash: u64) -> &Stripe {
        &self.stripes[stripe_of(hash)]
    }

    /// The lock that another than `transaction` has on a row.
    pub fn of_others(&self, key: KeyRef<'_>, transaction: u64) -> Option<Blocked> {
        if let Some(lock) = self.stripe(key.hash).rows.lock().find(key.hash, |lock| lock.key.is(key)) {
            return (lock.holder != transaction).then(|| Blocked {
                key: lock.key.clone(),
                holder: lock.holder,
                since_micros: lock.since_micros,
            });
        }
        let many = self.many.load();
        let many = many.iter().find(|many| many.holder != transaction && many.has(key.hash))?;
        let locked = LockedKey { hash: key.hash, generation: key.generation, key: key.key.into() };
        Some(Blocked { key: locked, holder: many.holder, since_micros: many.since_micros })
    }

    /// Rows that a transaction has locked are to be found among `many` from now on.
    pub fn move_to(&self, many: &Arc<ManyLocks>, keys: &[LockedKey]) {
        let is_known = self.many.load().iter().any(|known| Arc::ptr_eq(known, many));
        if !is_known {
            self.many.rcu(|all| all.iter().chain([many]).cloned().collect::<Vec<_>>());
        }
        many.begin(keys.iter().map(|key| key.generation));
        for key in keys {
            // In this order: who looks finds it here or there.
            many.insert(key.hash);
            let mut rows = self.stripe(key.hash).rows.lock();
            if let Ok(lock) = rows.find_entry(key.hash, |lock| lock.key == *key && lock.holder == many.holder)
            {
                lock.remove();
            }
        }
    }

    /// Gives back all of `many`.
    pub fn release_many(&self, many: &Arc<ManyLocks>) {
        self.many.rcu(|all| all.iter().filter(|of| !Arc::ptr_eq(of, many)).cloned().collect::<Vec<_>>());
        self.stripes.iter().for_each(Stripe::tell);
    }

    /// Of transactions that have locked many rows, those with rows of a tablet.
    pub fn many_of(&self, generation: u64) -> Vec<Arc<ManyLocks>> {
        self.many.load().iter().filter(|many| many.concerns(generation)).cloned().collect()
    }

    fn is_among_many(&self, blocked: &Blocked) -> bool {
        self.many.load().iter().any(|many| many.holder == blocked.holder && many.has(blocked.key.hash))
    }

    /// Locks a row for `holder`, under its latch; false if it is locked already.
    pub fn lock(&self, key: &LockedKey, holder: u64, now_micros: u64) -> bool {
        let mut rows = self.stripe(key.hash).rows.lock();
        let Entry::Vacant(free) = rows.entry(key.hash, |lock| lock.key == *key, |lock| lock.key.hash) else {
            return false;
        };
        free.insert(RowLock { key: key.clone(), holder, since_micros: now_micros });
        true
    }

    /// Gives back rows that `holder` has locked, and tells those who wait for rows of their stripes.
    pub fn release(&self, keys: &[LockedKey], holder: u64) {
        let mut given_back = [false; STRIPES];
        for key in keys {
            let mut rows = self.stripe(key.hash).rows.lock();
            if let Ok(lock) = rows.find_entry(key.hash, |lock| lock.key == *key && lock.holder == holder) {
                lock.remove();
            }
            given_back[stripe_of(key.hash)] = true;
        }
        let told = self.stripes.iter().zip(given_back).filter(|(_, given_back)| *given_back);
        told.for_each(|(stripe, _)| stripe.tell());
    }

    /// Once a row was given back. Others may be faster to lock it again.
    async fn given_back(&self, blocked: &Blocked) {
        loop {
            let mut told = pin!(self.stripe(blocked.key.hash).told.notified());
            // Before it is looked: none is missed that comes after.
            told.as_mut().enable();
            if !self.is_locked(blocked) {
                return;
            }
            told.await;
        }
    }

    fn is_locked(&self, blocked: &Blocked) -> bool {
        let rows = self.stripe(blocked.key.hash).rows.lock();
        let is_it = |lock: &RowLock| lock.key == blocked.key && lock.holder == blocked.holder;
        let is_locked = rows.find(blocked.key.hash, is_it).is_some();
        drop(rows);
        is_locked || self.is_among_many(blocked)
    }

    /// Waits with a thread, for a while or until the row is given back.
    pub fn wait_a_while(&self, blocked: &Blocked) {
        let stripe = self.stripe(blocked.key.hash);
        let is_among_many = self.is_among_many(blocked);
        let mut rows = stripe.rows.lock();
        let key = blocked.key.as_ref();
        if is_among_many
            || rows.find(key.hash, |lock| lock.key.is(key) && lock.holder == blocked.holder).is_some()
        {
            stripe.released.wait_for(&mut rows, LOOK_APART);
        }
    }

    /// Whether any of the keys of a tablet that are locked is `wanted`.
    pub fn any_of(&self, generation: u64, mut wanted: impl FnMut(&[u8]) -> Result<bool>) -> Result<bool> {
        for stripe in &self.stripes {
            let of_tablet = |lock: &&RowLock| lock.key.generation == generation;
            let keys: Vec<Arc<[u8]>> =
                stripe.rows.lock().iter().filter(of_tablet).map(|lock| lock.key.key.clone()).collect();
            for key in keys {
                if wanted(&key)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The keys of a tablet that others than `transaction` have locked, but for those of which hashes are left.
    pub fn keys_of_others(&self, generation: u64, transaction: u64) -> Vec<Arc<[u8]>> {
        let is_wanted = |lock: &&RowLock| lock.key.generation == generation && lock.holder != transaction;
        let mut keys = Vec::new();
        for stripe in &self.stripes {
            keys.extend(stripe.rows.lock().iter().filter(is_wanted).map(|lock| lock.key.key.clone()));
        }
        keys
    }

    /// Whom a transaction waits for.
    pub fn waits_for(&self, waiter: u64) -> Vec<u64> {
        let waits = self.waits.lock();
        self.holders_before(&waits, waiter).collect()
    }

    /// Who waits for a row that was given back is about to look again.
    fn holders_before<'w>(
        &'w self,
        waits: &'w HashMap<u64, Vec<Blocked>>,
        waiter: u64,
    ) -> impl Iterator<Item = u64> + 'w {
        let blocked = waits.get(&waiter).into_iter().flatten();
        blocked.filter(|blocked| self.is_locked(blocked)).map(|blocked| blocked.holder)
    }

    /// Notes that a transaction is about to wait.
    ///
    /// # Errors
    /// `Conflict` if that would never end: whom it waits for waits for it.
    fn begin_to_wait(&self, waiter: u64, blocked: &Blocked) -> Result<()> {
        let mut waits = self.waits.lock();
        if !self.is_locked(blocked) {
            return Ok(());
        }
        let (mut next, mut asked) = (vec![blocked.holder], HashSet::new());
        while let Some(holder) = next.pop() {
            if holder == waiter {
                return Err(Error::new(ErrorKind::Conflict, "deadlock detected"));
            }
            if asked.insert(holder) {
                next.extend(self.holders_before(&waits, holder));
            }
        }
        waits.entry(waiter).or_default().push(blocked.clone());
        Ok(())
    }

    fn end_wait(&self, waiter: u64, blocked: &Blocked) {
        let mut waits = self.waits.lock();
        let Some(of_waiter) = waits.get_mut(&waiter) else { return };
        if let Some(at) = of_waiter.iter().position(|other| other == blocked) {
            of_waiter.swap_remove(at);
        }
        if of_waiter.is_empty() {
            waits.remove(&waiter);
        }
    }
}

/// Rows of a table that others have locked, as of some moment.
pub struct LockedRows {
    engine: Arc<Engine>,
    table: Arc<Table>,
    keys: HashSet<Arc<[u8]>>,
    /// Others, of which there are hashes.
    many: Vec<Arc<ManyLocks>>,
}

impl LockedRows {
    /// Those that others than `transaction` have locked.
    pub(super) fn of(engine: &Arc<Engine>, table: &Arc<Table>, transaction: u64) -> Self {
        let (locks, mut many, mut keys) = (&engine.row_locks, Vec::new(), HashSet::new());
        for generation in table.tablets.iter().map(|tablet| tablet.generation()) {
            // In this order: rows come to be among many, and never the other way.
            keys.extend(locks.keys_of_others(generation, transaction));
            many.extend(locks.many_of(generation).into_iter().filter(|many| many.holder != transaction));
        }
        LockedRows { engine: engine.clone(), table: table.clone(), keys, many }
    }

    /// Whether the row of a key is one.
    pub fn has(&self, key: &[u8]) -> bool {
        if self.keys.contains(key) {
            return true;
        }
        if self.many.is_empty() {
            return false;
        }
        let hash = self.engine.index.key(self.table.tablet_of(key).generation(), key).hash;
        self.many.iter().any(|many| many.has(hash))
    }
}

/// A wait for a row, without a thread.
pub struct RowWait {
    engine: Arc<Engine>,
    waiter: Option<u64>,
    blocked: Blocked,
}

impl RowWait {
    /// `waiter` is the transaction that waits, if it is one: others lock nothing, and nobody waits for them.
    ///
    /// # Errors
    /// `Conflict` for a deadlock.
    pub(crate) fn new(engine: &Arc<Engine>, waiter: Option<u64>, blocked: Blocked) -> Result<Self> {
        if let Some(waiter) = waiter {
            engine.row_locks.begin_to_wait(waiter, &blocked)?;
        }
        Ok(RowWait { engine: engine.clone(), waiter, blocked })
    }

    /// Ready once the row was given back. Others may be faster to lock it again.
    pub async fn over(self) {
        self.engine.row_locks.given_back(&self.blocked).await;
    }
}

impl Drop for RowWait {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.engine.row_locks.end_wait(waiter, &self.blocked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::{Context, Wake, Waker};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn who_waits_for_a_row_is_not_woken_for_each_that_is_given_back() {
        const HOLDER: u64 = 7;
        let locks = RowLocks::default();
        let key = |n: u8| LockedKey { hash: u64::from(n) << 24, generation: 1, key: Arc::from([n]) };
        let keys = [0, 1, 2].map(key);
        assert!(keys.iter().map(|key| stripe_of(key.hash)).eq(0..3));
        for key in &keys {
            assert!(locks.lock(key, HOLDER, 0));
        }
        let blocked = locks.of_others(keys[0].as_ref(), HOLDER + 1).unwrap();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        let mut waits = pin!(locks.given_back(&blocked));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        locks.release(&keys[1..], HOLDER);
        assert_eq!(woken.0.load(SeqCst), 0);
        locks.release(&keys[..1], HOLDER);
        assert_eq!(woken.0.load(SeqCst), 1);
        assert!(waits.as_mut().poll(&mut context).is_ready());
    }
}
