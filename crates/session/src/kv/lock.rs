//! Locks of documents: a client takes one with the document, and until it lets go, or its time is over, nobody else
//! changes the document through a key-value door.
//!
//! Locks live in memory, and end with the process. They bind the key-value doors, all of which share them; statements
//! of SQL neither see nor mind them. A lock is taken, minded and given back under the latch of its key, so that nothing
//! comes between. While none holds, minding them costs one load; while one does, most keys cost another.

use oribi_types::{Error, Result};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a reader is shown as the `cas` of a document that somebody has locked.
pub const LOCKED_CAS: u64 = u64::MAX;

/// Locks at a time; those whose time is over are forgotten first.
const LOCKS_MAX: usize = 100_000;

/// Tells the `cas` of a lock from commit timestamps.
const LOCK_BIT: u64 = 1 << 63;

/// A key that is not locked shares its slot with one in so many that are.
const SLOTS: usize = 1024;

pub struct Locks {
    /// When the last lock that was taken ends, in microseconds since the Unix epoch: from then on nobody looks further.
    until_micros: AtomicU64,
    /// Likewise of the keys that have this slot by their hash. It is not put back when a lock is released.
    slots: Box<[AtomicU64; SLOTS]>,
    hasher: RandomState,
    state: Mutex<State>,
    /// How often the state was asked for.
    #[cfg(test)]
    visits: AtomicU64,
}

impl Default for Locks {
    fn default() -> Self {
        Locks {
            until_micros: AtomicU64::new(0),
            slots: Box::new([const { AtomicU64::new(0) }; SLOTS]),
            hasher: RandomState::new(),
            state: Mutex::default(),
            #[cfg(test)]
            visits: AtomicU64::new(0),
        }
    }
}

#[derive(Default)]
struct State {
    /// By table and encoded key.
    held: HashMap<(u64, Box<[u8]>), Lock>,
    last_cas: u64,
}

struct Lock {
    cas: u64,
    until_micros: u64,
}

impl Locks {
    fn state(&self) -> MutexGuard<'_, State> {
        #[cfg(test)]
        self.visits.fetch_add(1, Ordering::Relaxed);
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The `cas` of the lock on a key, if it is locked.
    pub(super) fn find(&self, table: u64, key: &[u8], now_micros: u64) -> Option<u64> {
        if self.until_micros.load(Ordering::Relaxed) <= now_micros
            || self.slot(table, key).load(Ordering::Relaxed) <= now_micros
        {
            return None;
        }
        let state = self.state();
        let lock = state.held.get(&(table, key.into()))?;
        (lock.until_micros > now_micros).then_some(lock.cas)
    }

    fn slot(&self, table: u64, key: &[u8]) -> &AtomicU64 {
        &self.slots[self.hasher.hash_one((table, key)) as usize % SLOTS]
    }

    /// Locks a key that is not locked; returns the lock's `cas`.
    ///
    /// # Errors
    /// `Retry` if there are too many locks.
    pub(super) fn take(&self, table: u64, key: &[u8], until_micros: u64, now_micros: u64) -> Result<u64> {
        let mut state = self.state();
        if state.held.len() >= LOCKS_MAX {
            state.held.retain(|_, lock| lock.until_micros > now_micros);
        }
        if state.held.len() >= LOCKS_MAX {
            return Err(Error::retry(format!("{LOCKS_MAX} documents are locked")));
        }
        // What a client has kept since before a restart is no lock of today.
        state.last_cas = now_micros.max(state.last_cas + 1);
        let cas = LOCK_BIT | state.last_cas;
        state.held.insert((table, key.into()), Lock { cas, until_micros });
        // Whoever changes the document has its latch after this.
        self.slot(table, key).fetch_max(until_micros, Ordering::Relaxed);
        self.until_micros.fetch_max(until_micros, Ordering::Relaxed);
        Ok(cas)
    }

    /// Unlocks a key, if it is locked with `cas`.
    pub(super) fn release(&self, table: u64, key: &[u8], cas: u64) {
        let mut state = self.state();
        let name = (table, key.into());
        if state.held.get(&name).is_some_and(|lock| lock.cas == cas) {
            state.held.remove(&name);
        }
    }
}

/// The locks as one write sees them. What it gives back is free for it at once, and for others when it is made; what
/// it takes is given back if it is not made.
pub(super) struct Guard<'a> {
    locks: &'a Locks,
    now_micros: u64,
    taken: Vec<Place>,
    released: Vec<Place>,
}

/// Table, encoded key and `cas` of a lock.
type Place = (u64, Box<[u8]>, u64);

impl<'a> Guard<'a> {
    pub fn new(locks: &'a Locks, now_micros: u64) -> Self {
        Guard { locks, now_micros, taken: Vec::new(), released: Vec::new() }
    }

    pub fn find(&self, table: u64, key: &[u8]) -> Option<u64> {
        let lock = self.locks.find(table, key, self.now_micros)?;
        let is_held = !self.released.iter().any(|(.., cas)| *cas == lock);
        is_held.then_some(lock)
    }

    /// # Errors
    /// `Retry` if there are too many locks.
    pub fn take(&mut self, table: u64, key: &[u8], until_micros: u64) -> Result<u64> {
        let cas = self.locks.take(table, key, until_micros, self.now_micros)?;
        self.taken.push((table, key.into(), cas));
        Ok(cas)
    }

    pub fn release(&mut self, table: u64, key: &[u8], cas: u64) {
        self.released.push((table, key.into(), cas));
    }

    /// To be told whether the write was made.
    pub fn settle(&mut self, made: bool) {
        let over = if made { &self.released } else { &self.taken };
        for (table, key, cas) in over {
            self.locks.release(*table, key, *cas);
        }
        self.taken.clear();
        self.released.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_holds_until_it_is_released_or_its_time_is_over() {
        let locks = Locks::default();
        assert_eq!(locks.find(1, b"k", 0), None);
        let cas = locks.take(1, b"k", 100, 50).unwrap();
        assert_eq!(locks.find(1, b"k", 99), Some(cas));
        assert_eq!(locks.find(1, b"k", 100), None);
        assert_eq!((locks.find(2, b"k", 50), locks.find(1, b"x", 50)), (None, None));
        locks.release(1, b"k", cas + 1);
        assert_eq!(locks.find(1, b"k", 99), Some(cas));
        locks.release(1, b"k", cas);
        assert_eq!(locks.find(1, b"k", 99), None);
        assert_ne!(locks.take(1, b"k", 100, 50).unwrap(), cas);
    }

    #[test]
    fn a_lock_whose_time_is_over_costs_nobody_a_visit() {
        let locks = Locks::default();
        locks.take(1, b"k", 100, 50).unwrap();
        let visits = |keys: u64, now_micros| {
            let before = locks.visits.load(Ordering::Relaxed);
            (0..keys).for_each(|key| assert_eq!(locks.find(1, &key.to_be_bytes(), now_micros), None));
            locks.visits.load(Ordering::Relaxed) - before
        };
        assert_eq!(visits(1000, 100), 0);
        // While it holds, only those look closer that it may be of.
        assert!(visits(1000, 99) < 100);
        assert!(locks.find(1, b"k", 99).is_some());
    }

    #[test]
    fn there_are_only_so_many() {
        let locks = Locks::default();
        for i in 0..LOCKS_MAX {
            locks.take(1, &i.to_be_bytes(), 100, 50).unwrap();
        }
        assert!(locks.take(1, b"more", 100, 50).is_err());
        assert!(locks.take(1, b"more", 200, 100).is_ok());
        assert_eq!(locks.state().held.len(), 1);
    }
}
