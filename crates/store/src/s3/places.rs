//! How many may do something at a time; the others wait.

use std::sync::{Condvar, Mutex, PoisonError};

pub(super) struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A place, until it is dropped.
pub(super) struct Place<'p>(&'p Places);

impl Places {
    pub fn new(places: usize) -> Self {
        Places { free: Mutex::new(places), freed: Condvar::new() }
    }

    pub fn take(&self) -> Place<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Place(self)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}
