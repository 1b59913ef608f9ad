//! What clients know by a handle: sixteen bytes that nobody guesses.
//!
//! A handle outlives the connection on which it was given. So there are as many as there may be and no more, and what nobody has named
//! for a time gives way.

use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

type Handle = [u8; 16];

pub struct Handles<T> {
    limit: usize,
    random: SystemRandom,
    known: Mutex<HashMap<Handle, Known<T>>>,
}

struct Known<T> {
    item: T,
    named: Instant,
}

impl<T: Clone> Handles<T> {
    /// Room for `limit` of them.
    pub fn new(limit: usize) -> Self {
        Handles { limit, random: SystemRandom::new(), known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Handle, Known<T>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// A handle for `item`; `None` if there are too many.
    pub fn insert(&self, item: T) -> Option<Bytes> {
        let mut handle = Handle::default();
        self.random.fill(&mut handle).expect("the system has random numbers");
        let mut known = self.lock();
        if known.len() >= self.limit {
            return None;
        }
        known.insert(handle, Known { item, named: Instant::now() });
        Some(Bytes::copy_from_slice(&handle))
    }

    /// Puts what `other` makes of an item in its place, if it makes something; what was there.
    pub fn exchange(&self, handle: &[u8], other: impl FnOnce(&T) -> Option<T>) -> Option<T> {
        let handle: Handle = handle.try_into().ok()?;
        let mut known = self.lock();
        let known = known.get_mut(&handle)?;
        let item = other(&known.item)?;
        known.named = Instant::now();
        Some(std::mem::replace(&mut known.item, item))
    }

    /// What the handle is of, and has been named now.
    pub fn get(&self, handle: &[u8]) -> Option<T> {
        let handle: Handle = handle.try_into().ok()?;
        let mut known = self.lock();
        let known = known.get_mut(&handle)?;
        known.named = Instant::now();
        Some(known.item.clone())
    }

    pub fn remove(&self, handle: &[u8]) -> Option<T> {
        let handle: Handle = handle.try_into().ok()?;
        let removed = self.lock().remove(&handle);
        removed.map(|known| known.item)
    }

    /// Takes those that nobody has named since `time` and that may go; they are the caller's to end.
    pub fn take_until(&self, time: Instant, may_go: impl Fn(&T) -> bool) -> Vec<T> {
        let mut known = self.lock();
        known
            .extract_if(|_, known| known.named <= time && may_go(&known.item))
            .map(|(_, known)| known.item)
            .collect()
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_bounded_and_give_way_when_nobody_names_them() {
        let handles = Handles::new(2);
        let [first, second] = [1, 2].map(|item| handles.insert(item).unwrap());
        assert!(first != second && handles.insert(3).is_none());
        let between = Instant::now();
        assert_eq!(
            (handles.get(&first), handles.get(b"short"), handles.get(&[0; 16])),
            (Some(1), None, None)
        );
        assert!(handles.take_until(Instant::now(), |item| *item == 3).is_empty());
        assert_eq!(handles.take_until(between, |_| true), [2]);
        assert_eq!(
            (handles.exchange(&first, |_| None), handles.exchange(&first, |_| Some(1))),
            (None, Some(1))
        );
        assert_eq!((handles.get(&second), handles.remove(&first), handles.count()), (None, Some(1), 0));
    }
}
