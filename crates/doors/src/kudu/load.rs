//! How much the door has taken on: what exceeds it is refused as too busy, which clients take as a request to come later.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls that wait for a thread that may wait for files, or are on one. Kudu's queue has 50 places, and ten threads; here a
/// client that has many tablets to ask may ask all of them at once.
const CALLS_MAX: usize = 1024;
/// Bytes of their requests. More than a few of the longest: one alone is always taken on.
const BYTES_MAX: usize = 256 << 20;

#[derive(Default)]
pub(super) struct Load {
    calls: AtomicUsize,
    bytes: AtomicUsize,
}

/// A call that was taken on; its end when dropped.
pub(super) struct Taken {
    load: Arc<Load>,
    bytes: usize,
}

impl Load {
    /// Takes on a call of so many bytes, unless that is too much.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Taken> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let taken = Taken { load: self.clone(), bytes };
        let fits = calls < CALLS_MAX && (before == 0 || before + bytes <= BYTES_MAX);
        fits.then_some(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.load.calls.fetch_sub(1, Ordering::Relaxed);
        self.load.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_request_is_taken_on_and_many_are_not() {
        let load = Arc::new(Load::default());
        let long = load.take(BYTES_MAX + 1).unwrap();
        assert!(load.take(1).is_none());
        drop(long);
        let calls: Vec<Taken> = (0..CALLS_MAX).map(|_| load.take(1).unwrap()).collect();
        assert!(load.take(1).is_none());
        drop(calls);
        assert!(load.take(1).is_some());
        assert_eq!((load.calls.load(Ordering::Relaxed), load.bytes.load(Ordering::Relaxed)), (0, 0));
    }
}
