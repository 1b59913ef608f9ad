//! Calls that the door has taken on: so many at a time, whose requests and answers count ([`oribi_net::Load`]). A call that
//! exceeds what there is room for is refused as too busy, which clients take as a request to come later.

use oribi_net::{Held, Load};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that wait for a thread that may wait for files, or are on one. Kudu's queue has 50 places, and ten threads; here a
/// client that has many tablets to ask may ask all of them at once.
const CALLS_MAX: usize = 1024;

pub(super) struct Calls(Arc<Semaphore>);

/// A call that was taken on, with its request and what it will answer; its end when dropped.
pub(super) struct Taken {
    _call: OwnedSemaphorePermit,
    pub held: Held,
}

impl Default for Calls {
    fn default() -> Self {
        Calls(Arc::new(Semaphore::new(CALLS_MAX)))
    }
}

impl Calls {
    /// Takes on a call of so many bytes, some of which are `held` already, unless that is too much.
    pub fn take(&self, load: &Load, mut held: Held, bytes: usize) -> Option<Taken> {
        let _call = self.0.clone().try_acquire_owned().ok()?;
        held.grow(load, bytes).then_some(Taken { _call, held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oribi_net::Room;

    #[test]
    fn calls_and_their_bytes_are_taken_on_up_to_a_limit() {
        const BYTES_MAX: usize = 1 << 20;
        let (calls, load) = (Calls::default(), Load::new(&Room::new(BYTES_MAX), 1));
        let take = |bytes| calls.take(&load, Held::default(), bytes);
        let long = take(BYTES_MAX).unwrap();
        assert!(take(1).is_none());
        drop(long);
        let taken: Vec<Taken> = (0..CALLS_MAX).map(|_| take(1).unwrap()).collect();
        assert!(take(1).is_none());
        drop(taken);
        assert!(take(BYTES_MAX + 1).is_none());
        assert!(take(usize::MAX).is_none());
        assert!(take(BYTES_MAX).is_some());
        assert_eq!(calls.0.available_permits(), CALLS_MAX);
    }
}
