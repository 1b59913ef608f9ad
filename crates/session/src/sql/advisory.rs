//! Advisory locks: numbers that sessions keep each other from, whatever those mean to them.
//!
//! They lock no rows and no table. Who waits for one has no thread: it waits until it has it, or its `lock_timeout` or
//! `statement_timeout` is over. Nobody overtakes those who wait for the same lock, so that nobody who wants it alone waits for ever beside
//! those who share it. Of sessions that wait for each other's, the one that would close the circle is refused; a circle that goes over
//! rows is not found.

use super::SqlError;
use oribi_types::{Error, ErrorKind};
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// So often may locks be held at a time on a server, each session and mode counted: some 200 bytes each, 13 MiB in all.
const HOLDS_MAX: usize = 65_536;

/// One number of 64 bits, or two of 32: none of these is one of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdvisoryKey {
    One(i64),
    Two(i32, i32),
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvisoryMode {
    /// Beside others who hold it so.
    pub is_shared: bool,
    /// Until the holder's block ends; otherwise until it is given back as often as it was taken, or the session ends.
    pub is_of_block: bool,
}

/// Those of a server.
#[derive(Default)]
pub struct AdvisoryLocks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    locks: HashMap<AdvisoryKey, Lock>,
    /// Of all locks.
    holds: usize,
    /// The lock that a session waits for.
    waits: HashMap<u64, AdvisoryKey>,
}

/// One that is held or waited for.
#[derive(Default)]
struct Lock {
    holds: Vec<Hold>,
    /// In order of arrival.
    waiting: Vec<Waiter>,
    /// Something of it was given back, or is not waited for any more.
    released: Arc<Notify>,
}

struct Hold {
    holder: u64,
    mode: AdvisoryMode,
    times: u32,
}

struct Waiter {
    holder: u64,
    is_shared: bool,
}

/// A session, as it holds locks; when this is dropped, it holds none.
pub struct AdvisoryHolder {
    locks: Arc<AdvisoryLocks>,
    id: u64,
    /// What it holds. Below the state of all.
    keys: Mutex<HashSet<AdvisoryKey>>,
    /// Whether it has taken some for its block.
    has_of_block: AtomicBool,
}

/// Whom a session waits for.
struct InTheWay {
    session: u64,
    is_holder: bool,
}

impl Lock {
    /// Whom a session would wait for that wants the lock: those who hold it, and those who came before.
    fn in_the_way(&self, session: u64, is_shared: bool) -> impl Iterator<Item = InTheWay> {
        let conflicts = move |other: u64, shares: bool| other != session && !(shares && is_shared);
        let holds = self.holds.iter().filter(move |hold| conflicts(hold.holder, hold.mode.is_shared));
        // Who holds it already may take it once more: the others wait for him.
        let is_held = self.holds.iter().any(|hold| hold.holder == session);
        let before = self.waiting.iter().take_while(move |waiter| !is_held && waiter.holder != session);
        let before = before.filter(move |waiter| conflicts(waiter.holder, waiter.is_shared));
        let holds = holds.map(|hold| InTheWay { session: hold.holder, is_holder: true });
        holds.chain(before.map(|waiter| InTheWay { session: waiter.holder, is_holder: false }))
    }

    fn is_unused(&self) -> bool {
        self.holds.is_empty() && self.waiting.is_empty()
    }
}

impl State {
    /// # Errors
    /// 53200 if there are too many.
    fn take(&mut self, session: u64, key: AdvisoryKey, mode: AdvisoryMode) -> Result<bool, SqlError> {
        let lock = self.locks.entry(key).or_default();
        if lock.in_the_way(session, mode.is_shared).next().is_some() {
            return Ok(false);
        }
        match lock.holds.iter_mut().find(|hold| hold.holder == session && hold.mode == mode) {
            Some(hold) => hold.times += 1,
            None if self.holds >= HOLDS_MAX => {
                self.forget_unused(key);
                let message = format!("advisory locks are held {HOLDS_MAX} times, and may be no more");
                return Err(SqlError::new(ErrorKind::Unavailable, message).with_sqlstate("53200"));
            }
            None => {
                lock.holds.push(Hold { holder: session, mode, times: 1 });
                self.holds += 1;
            }
        }
        Ok(true)
    }

    /// Gives back holds of a lock that `is_over`, and tells those who wait for it.
    fn give_back(&mut self, key: AdvisoryKey, is_over: impl Fn(&Hold) -> bool) {
        let Some(lock) = self.locks.get_mut(&key) else { return };
        let before = lock.holds.len();
        lock.holds.retain(|hold| !is_over(hold));
        let given_back = before - lock.holds.len();
        if given_back > 0 {
            self.holds -= given_back;
            lock.released.notify_waiters();
        }
        self.forget_unused(key);
    }

    fn forget_unused(&mut self, key: AdvisoryKey) {
        if self.locks.get(&key).is_some_and(Lock::is_unused) {
            self.locks.remove(&key);
        }
    }

    /// Whether a session that waits would wait for itself.
    fn is_circle(&self, session: u64) -> bool {
        let (mut met, mut ahead) = (HashSet::new(), vec![session]);
        while let Some(one) = ahead.pop() {
            let Some(lock) = self.waits.get(&one).and_then(|key| self.locks.get(key)) else { continue };
            let Some(waiter) = lock.waiting.iter().find(|waiter| waiter.holder == one) else { continue };
            for other in lock.in_the_way(one, waiter.is_shared) {
                if other.session == session {
                    return true;
                }
                // Whom those before one wait for that wants the lock alone, is in its way too.
                if met.insert(other.session) && (other.is_holder || waiter.is_shared) {
                    ahead.push(other.session);
                }
            }
        }
        false
    }
}

impl AdvisoryLocks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Its place among those who wait for a lock, given up when this is dropped.
struct Waiting<'h> {
    holder: &'h AdvisoryHolder,
    key: AdvisoryKey,
    released: Arc<Notify>,
}

impl<'h> Waiting<'h> {
    /// # Errors
    /// 40P01 if those in the way wait for the session themselves.
    fn begin(holder: &'h AdvisoryHolder, key: AdvisoryKey, is_shared: bool) -> Result<Self, SqlError> {
        let mut state = holder.locks.state();
        let lock = state.locks.entry(key).or_default();
        lock.waiting.push(Waiter { holder: holder.id, is_shared });
        let released = lock.released.clone();
        state.waits.insert(holder.id, key);
        let is_circle = state.is_circle(holder.id);
        drop(state);
        let waiting = Waiting { holder, key, released };
        if is_circle {
            let error = SqlError::from(Error::conflict("deadlock detected")).with_sqlstate("40P01");
            return Err(error.with_hint("sessions wait for each other's advisory locks"));
        }
        Ok(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let locks = &self.holder.locks;
        let mut state = locks.state();
        state.waits.remove(&self.holder.id);
        if let Some(lock) = state.locks.get_mut(&self.key) {
            lock.waiting.retain(|waiter| waiter.holder != self.holder.id);
        }
        state.forget_unused(self.key);
        drop(state);
        // Those behind it may have waited for it alone.
        self.released.notify_waiters();
    }
}

impl AdvisoryHolder {
    pub fn new(locks: &Arc<AdvisoryLocks>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        AdvisoryHolder {
            locks: locks.clone(),
            id,
            keys: Mutex::default(),
            has_of_block: AtomicBool::new(false),
        }
    }

    fn keys(&self) -> MutexGuard<'_, HashSet<AdvisoryKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it holds a lock.
    pub fn has_any(&self) -> bool {
        !self.keys().is_empty()
    }

    /// Takes a lock, once more if the session has it; false if others keep it from it.
    ///
    /// # Errors
    /// 53200 if there are too many.
    pub fn try_lock(&self, key: AdvisoryKey, mode: AdvisoryMode) -> Result<bool, SqlError> {
        let mut state = self.locks.state();
        let taken = state.take(self.id, key, mode)?;
        if taken {
            self.keys().insert(key);
            self.has_of_block.fetch_or(mode.is_of_block, Ordering::Relaxed);
        }
        Ok(taken)
    }

    /// Takes a lock once nobody keeps the session from it.
    ///
    /// # Errors
    /// 40P01 if those wait for the session; 53200.
    pub async fn lock(&self, key: AdvisoryKey, mode: AdvisoryMode) -> Result<(), SqlError> {
        if self.try_lock(key, mode)? {
            return Ok(());
        }
        let waiting = Waiting::begin(self, key, mode.is_shared)?;
        loop {
            let mut released = pin!(waiting.released.notified());
            // Before it is tried: none is missed that is given back behind.
            released.as_mut().enable();
            if self.try_lock(key, mode)? {
                return Ok(());
            }
            released.await;
        }
    }

    /// Gives back what the session has taken for itself, once; false if it has not.
    pub fn unlock(&self, key: AdvisoryKey, is_shared: bool) -> bool {
        let mode = AdvisoryMode { is_shared, is_of_block: false };
        let mut state = self.locks.state();
        let Some(lock) = state.locks.get_mut(&key) else { return false };
        let Some(hold) = lock.holds.iter_mut().find(|hold| hold.holder == self.id && hold.mode == mode)
        else {
            return false;
        };
        hold.times -= 1;
        state.give_back(key, |hold| hold.times == 0);
        if !self.holds(&state, key) {
            self.keys().remove(&key);
        }
        true
    }

    fn holds(&self, state: &State, key: AdvisoryKey) -> bool {
        state.locks.get(&key).is_some_and(|lock| lock.holds.iter().any(|hold| hold.holder == self.id))
    }

    /// Gives back all that is held so.
    fn release(&self, is_so: impl Fn(AdvisoryMode) -> bool) {
        let mut state = self.locks.state();
        self.keys().retain(|key| {
            state.give_back(*key, |hold| hold.holder == self.id && is_so(hold.mode));
            self.holds(&state, *key)
        });
    }

    /// Gives back all that the session has taken for itself.
    pub fn unlock_all(&self) {
        self.release(|mode| !mode.is_of_block);
    }

    /// The session's block has ended, or there is none.
    pub fn end_block(&self) {
        if self.has_of_block.swap(false, Ordering::Relaxed) {
            self.release(|mode| mode.is_of_block);
        }
    }

    /// The session has ended.
    pub fn end(&self) {
        self.release(|_| true);
    }
}

impl Drop for AdvisoryHolder {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const SHARED: AdvisoryMode = AdvisoryMode { is_shared: true, is_of_block: false };
    const ALONE: AdvisoryMode = AdvisoryMode { is_shared: false, is_of_block: false };
    const IN_BLOCK: AdvisoryMode = AdvisoryMode { is_shared: false, is_of_block: true };
    const KEY: AdvisoryKey = AdvisoryKey::One(1);
    const OTHER: AdvisoryKey = AdvisoryKey::One(2);

    fn sessions<const N: usize>() -> (Arc<AdvisoryLocks>, [AdvisoryHolder; N]) {
        let locks = Arc::default();
        let sessions = [(); N].map(|()| AdvisoryHolder::new(&locks));
        (locks, sessions)
    }

    fn takes(session: &AdvisoryHolder, key: AdvisoryKey, mode: AdvisoryMode) -> bool {
        session.try_lock(key, mode).unwrap()
    }

    #[test]
    fn a_lock_is_given_back_as_often_as_it_was_taken() {
        let (_locks, [a, b]) = sessions();
        assert!(takes(&a, KEY, ALONE) && takes(&a, KEY, ALONE) && takes(&a, KEY, SHARED));
        assert!(!takes(&b, KEY, ALONE) && !takes(&b, KEY, SHARED) && !b.unlock(KEY, false));
        assert!(takes(&b, AdvisoryKey::Two(0, 1), ALONE) && takes(&b, OTHER, ALONE));
        assert!(a.unlock(KEY, false) && !takes(&b, KEY, SHARED));
        assert!(a.unlock(KEY, false) && takes(&b, KEY, SHARED) && !takes(&b, KEY, ALONE));
        assert!(!a.unlock(KEY, false) && a.unlock(KEY, true) && takes(&b, KEY, ALONE));
        drop(b);
        assert!(takes(&a, KEY, ALONE) && takes(&a, AdvisoryKey::Two(0, 1), ALONE));
    }

    #[test]
    fn a_lock_of_a_block_ends_with_it_and_who_waits_has_it_then() {
        let (locks, [a, b]) = sessions();
        assert!(takes(&a, KEY, IN_BLOCK) && !a.unlock(KEY, false));
        a.unlock_all();
        let mut waits = Box::pin(b.lock(KEY, ALONE));
        assert!(waits.as_mut().now_or_never().is_none());
        a.end_block();
        assert!(matches!(waits.as_mut().now_or_never(), Some(Ok(()))));
        drop(waits);
        assert!(!takes(&a, KEY, SHARED));
        b.unlock_all();
        assert!(takes(&a, KEY, SHARED) && locks.state().locks.len() == 1);
        drop((a, b));
        assert!(locks.state().locks.is_empty() && locks.state().waits.is_empty());
    }

    #[test]
    fn nobody_overtakes_who_waits_but_who_holds_the_lock() {
        let (_locks, [a, b, c]) = sessions();
        assert!(takes(&a, KEY, SHARED));
        let mut alone = Box::pin(b.lock(KEY, ALONE));
        assert!(alone.as_mut().now_or_never().is_none());
        assert!(!takes(&c, KEY, SHARED) && takes(&a, KEY, SHARED));
        let mut shared = Box::pin(c.lock(KEY, SHARED));
        assert!(shared.as_mut().now_or_never().is_none());
        // Who gives up keeps nobody.
        drop(alone);
        assert!(matches!(shared.as_mut().now_or_never(), Some(Ok(()))));
    }

    #[test]
    fn who_would_close_a_circle_is_refused_and_the_others_go_on() {
        let (locks, [a, b, c]) = sessions();
        let third = AdvisoryKey::Two(0, 3);
        assert!(takes(&a, KEY, ALONE) && takes(&b, OTHER, ALONE) && takes(&c, third, ALONE));
        let mut first = Box::pin(a.lock(OTHER, ALONE));
        let mut second = Box::pin(b.lock(third, SHARED));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        let refused = c.lock(KEY, ALONE).now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.sqlstate, Some("40P01"));
        c.end();
        assert!(matches!(second.as_mut().now_or_never(), Some(Ok(()))));
        b.end();
        assert!(matches!(first.as_mut().now_or_never(), Some(Ok(()))));
        drop((first, second));
        assert_eq!(locks.state().locks.len(), 2);
    }

    #[test]
    fn there_are_so_many_locks_and_no_more() {
        let (_locks, [a, b]) = sessions();
        for n in 0..HOLDS_MAX as i64 {
            assert!(takes(if n % 2 == 0 { &a } else { &b }, AdvisoryKey::One(n / 2), SHARED));
        }
        let full = a.try_lock(AdvisoryKey::One(-1), ALONE).unwrap_err();
        assert_eq!(full.sqlstate, Some("53200"));
        assert!(takes(&a, KEY, SHARED) && !takes(&b, KEY, ALONE));
        a.unlock_all();
        assert!(takes(&b, AdvisoryKey::One(-1), ALONE) && takes(&b, KEY, ALONE));
    }
}
