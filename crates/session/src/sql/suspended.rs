//! Portals and cursors that have rows, and wait for their client to go on. Others may wait for the room of these rows: then those end that
//! nobody has gone on with for long, whatever their connections do meanwhile.
//!
//! So the rows are here, and not with their portals and cursors: a connection that executes another statement, or waits until its answer
//! is taken, has no time to look after them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// What those of all connections have, by when they were suspended.
pub struct Suspended<T>(Mutex<Kept<T>>);

struct Kept<T> {
    next: u64,
    rows: BTreeMap<u64, (Instant, T)>,
}

/// What one has; dropped with this.
pub struct Suspension<T> {
    of: Arc<Suspended<T>>,
    number: u64,
}

impl<T> Suspended<T> {
    pub fn new() -> Arc<Self> {
        Arc::new(Suspended(Mutex::new(Kept { next: 0, rows: BTreeMap::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Kept<T>> {
        self.0.lock().expect("nothing panics while it holds them")
    }

    /// Keeps what one has that is suspended `now`.
    pub fn keep(self: &Arc<Self>, rows: T, now: Instant) -> Suspension<T> {
        let mut kept = self.lock();
        let number = kept.next;
        kept.next += 1;
        kept.rows.insert(number, (now, rows));
        Suspension { of: self.clone(), number }
    }

    /// Ends those that were suspended at `time` or before.
    pub fn end_until(&self, time: Instant) {
        while let Some(ended) = self.first_until(time) {
            // It may have much to free: others are not kept from theirs.
            drop(ended);
        }
    }

    fn first_until(&self, time: Instant) -> Option<T> {
        let mut kept = self.lock();
        let first = kept.rows.first_entry().filter(|first| first.get().0 <= time)?;
        Some(first.remove().1)
    }

    fn remove(&self, number: u64) -> Option<T> {
        self.lock().rows.remove(&number).map(|(_, rows)| rows)
    }
}

impl<T> Suspension<T> {
    /// What it has, to go on with; `None` if it was ended.
    pub fn take(self) -> Option<T> {
        self.of.remove(self.number)
    }
}

impl<T> Drop for Suspension<T> {
    fn drop(&mut self) {
        drop(self.of.remove(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn those_end_that_nobody_has_gone_on_with() {
        let suspended = Suspended::new();
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let rows = Arc::new(());
        let [first, other, closed] = [0, 1, 1].map(|at| suspended.keep(rows.clone(), after(at)));
        drop(closed);
        let first = suspended.keep(first.take().unwrap(), after(3));
        suspended.end_until(begun);
        assert_eq!(Arc::strong_count(&rows), 3);
        suspended.end_until(after(2));
        assert_eq!(Arc::strong_count(&rows), 2);
        assert!(other.take().is_none() && first.take().is_some());
        assert_eq!(Arc::strong_count(&rows), 1);
    }
}
