//! Locks of documents: a client takes one with the document, and until it lets go, or its time is over, nobody else
//! changes the document through a key-value door.
//!
//! Locks live in memory, and end with the process. They bind the key-value doors, all of which share them; statements
//! of SQL neither see nor mind them. A lock is taken, minded and given back under the latch of its key, so that nothing
//! comes between. While there is none, minding them costs one load.

use oribi_types::{Error, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a reader is shown as the `cas` of a document that somebody has locked.
pub const LOCKED_CAS: u64 = u64::MAX;

/// Locks at a time; those whose time is over are forgotten first.
const LOCKS_MAX: usize = 100_000;

/// Tells the `cas` of a lock from commit timestamps.
const LOCK_BIT: u64 = 1 << 63;

#[derive(Default)]
pub struct Locks {
    /// How many there are, so that nobody looks in vain.
    count: AtomicUsize,
    state: Mutex<State>,
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The `cas` of the lock on a key, if it is locked.
    pub(super) fn find(&self, table: u64, key: &[u8], now_micros: u64) -> Option<u64> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let state = self.state();
        let lock = state.held.get(&(table, key.into()))?;
        (lock.until_micros > now_micros).then_some(lock.cas)
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
        self.count.store(state.held.len(), Ordering::Relaxed);
        Ok(cas)
    }

    /// Unlocks a key, if it is locked with `cas`.
    pub(super) fn release(&self, table: u64, key: &[u8], cas: u64) {
        let mut state = self.state();
        let name = (table, key.into());
        if state.held.get(&name).is_some_and(|lock| lock.cas == cas) {
            state.held.remove(&name);
        }
        self.count.store(state.held.len(), Ordering::Relaxed);
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
