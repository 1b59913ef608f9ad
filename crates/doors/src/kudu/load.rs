//! How much the door has taken on for its clients: requests that are being received or executed, and answers that wait to be
//! sent. A call that exceeds what there is room for is refused as too busy, which clients take as a request to come later; and
//! who does not read answers is not read from.
//!
//! A long request takes room as it comes, so that one that does not come takes none. Where there is none left, many may have
//! come in part; so that all come whole some time, room for one is set apart, which they have in turn. As the others wait for it,
//! who has the turn may be silent for [`TURN_SILENCE_MAX`] only.
//!
//! A little of each connection is not counted, so that the calls of most clients cost nothing here, and get through whatever
//! the others do.

use oribi_kudu::frame::FRAME_BYTES_MAX;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that wait for a thread that may wait for files, or are on one. Kudu's queue has 50 places, and ten threads; here a
/// client that has many tablets to ask may ask all of them at once.
const CALLS_MAX: usize = 1024;
/// Bytes of requests and answers, and of one request that has the turn.
const BYTES_MAX: usize = (256 << 20) - FRAME_BYTES_MAX;
/// Of each connection, a request of so many bytes is not counted while it is received, nor answers of so many while they wait.
pub(super) const UNCOUNTED_BYTES: usize = 64 << 10;
/// How long the client that has the turn may neither send nor take a byte. It keeps the turn from all others that wait, so
/// this is far less than other clients have.
pub(super) const TURN_SILENCE_MAX: Duration = Duration::from_secs(5);
const _: () = assert!(FRAME_BYTES_MAX < BYTES_MAX && BYTES_MAX <= u32::MAX as usize);

pub(super) struct Load {
    calls: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

impl Default for Load {
    fn default() -> Self {
        let [calls, bytes, turn] = [CALLS_MAX, BYTES_MAX, 1].map(|places| Arc::new(Semaphore::new(places)));
        Load { calls, bytes, turn }
    }
}

/// Bytes that count until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Held {
    bytes: Option<OwnedSemaphorePermit>,
    /// As much as any frame needs.
    turn: Option<OwnedSemaphorePermit>,
}

/// A call that was taken on, with its request and what it will answer; its end when dropped.
pub(super) struct Taken {
    _call: OwnedSemaphorePermit,
    pub held: Held,
}

impl Load {
    /// Room for so many bytes of a frame, or for all of it, whichever is there first; who came first has it first.
    pub async fn wait_for(self: Arc<Self>, bytes: usize) -> Held {
        let room = self.bytes.clone().acquire_many_owned(bytes.min(FRAME_BYTES_MAX) as u32);
        let turn = self.turn.clone().acquire_owned();
        tokio::select! {
            biased;
            Ok(room) = room => Held { bytes: Some(room), turn: None },
            Ok(turn) = turn => Held { bytes: None, turn: Some(turn) },
            else => unreachable!("the semaphores are not closed"),
        }
    }

    /// Takes on a call of so many bytes, some of which are `held` already, unless that is too much.
    pub fn take(&self, mut held: Held, bytes: usize) -> Option<Taken> {
        let _call = self.calls.clone().try_acquire_owned().ok()?;
        held.grow(self, bytes).then_some(Taken { _call, held })
    }
}

impl Held {
    pub fn bytes(&self) -> usize {
        let of_turn = if self.turn.is_some() { FRAME_BYTES_MAX } else { 0 };
        of_turn + self.bytes.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    pub fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Holds `bytes` at least; false, and as before, if there is no room.
    pub fn grow(&mut self, load: &Load, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(self.bytes());
        if missing == 0 {
            return true;
        }
        let Ok(permits) = load.bytes.clone().try_acquire_many_owned(missing.min(BYTES_MAX + 1) as u32) else {
            return false;
        };
        self.merge(Held { bytes: Some(permits), turn: None });
        true
    }

    /// Holds `bytes` at most, and the turn no more: answers may lie for long.
    pub fn shrink(&mut self, bytes: usize) {
        self.turn = None;
        let excess = self.bytes().saturating_sub(bytes);
        if let Some(permits) = &mut self.bytes {
            drop(permits.split(excess));
        }
    }

    pub fn merge(&mut self, other: Held) {
        match (&mut self.bytes, other.bytes) {
            (Some(permits), Some(others)) => permits.merge(others),
            (none, others) => *none = none.take().or(others),
        }
        // There is one.
        self.turn = self.turn.take().or(other.turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn take(load: &Load, bytes: usize) -> Option<Taken> {
        load.take(Held::default(), bytes)
    }

    #[test]
    fn calls_and_their_bytes_are_taken_on_up_to_a_limit() {
        let load = Load::default();
        let long = take(&load, BYTES_MAX).unwrap();
        assert!(take(&load, 1).is_none());
        drop(long);
        let calls: Vec<Taken> = (0..CALLS_MAX).map(|_| take(&load, 1).unwrap()).collect();
        assert!(take(&load, 1).is_none());
        drop(calls);
        assert!(take(&load, BYTES_MAX + 1).is_none());
        assert!(take(&load, usize::MAX).is_none());
        let (calls, bytes) = (load.calls.available_permits(), load.bytes.available_permits());
        assert_eq!((calls, bytes), (CALLS_MAX, BYTES_MAX));
    }

    #[test]
    fn what_is_held_grows_and_shrinks() {
        let load = Load::default();
        let mut held = Held::default();
        assert!(held.grow(&load, 100) && held.grow(&load, 50));
        assert_eq!(held.bytes(), 100);
        let taken = load.take(held, BYTES_MAX).unwrap();
        let mut answer = Held::default();
        assert!(!answer.grow(&load, 1));
        answer.merge(taken.held);
        answer.shrink(10);
        assert_eq!((answer.bytes(), load.bytes.available_permits()), (10, BYTES_MAX - 10));
        answer.shrink(20);
        assert_eq!(answer.bytes(), 10);
        answer.merge(Held::default());
        drop(answer);
        assert_eq!(load.bytes.available_permits(), BYTES_MAX);
    }

    #[tokio::test]
    async fn what_comes_free_is_for_who_waits() {
        let load = Arc::new(Load::default());
        let mut held = Held::default();
        assert!(held.grow(&load, BYTES_MAX));
        // The first one has the turn.
        let mut first = load.clone().wait_for(1000).await;
        assert_eq!(first.bytes(), FRAME_BYTES_MAX);
        let mut frame = std::pin::pin!(load.clone().wait_for(1000));
        assert!(frame.as_mut().now_or_never().is_none());
        held.shrink(BYTES_MAX - 1);
        assert!(!Held::default().grow(&load, 1));
        held.shrink(BYTES_MAX - 1000);
        assert_eq!(frame.await.bytes(), 1000);
        // As soon as there is nothing to receive any more, the next one has it.
        held.shrink(0);
        assert!(held.grow(&load, BYTES_MAX));
        let mut next = std::pin::pin!(load.clone().wait_for(1000));
        assert!(next.as_mut().now_or_never().is_none());
        first.shrink(0);
        assert_eq!(next.await.bytes(), FRAME_BYTES_MAX);
    }
}
