//! How much a door keeps for its clients: requests that are being received or executed, and answers that wait to be sent.
//!
//! A long request takes room as it comes, so that one that does not come takes none. Where there is none left, many may have
//! come in part; so that all come whole some time, room for one is set apart, which they have in turn. As the others wait for it,
//! who has the turn may be silent for [`TURN_SILENCE_MAX`] only.
//!
//! A little of each connection is not counted, so that the requests of most clients cost nothing here, and get through whatever
//! the others do.

use crate::network::{Network, Room};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of each connection, so many bytes of a request are not counted while it is received. It is as little as most requests take: of
/// thousands of connections that send half a frame it makes up most of the memory.
pub const UNCOUNTED_REQUEST_BYTES: usize = 16 << 10;
/// Of each connection, answers of so many bytes are not counted while they wait. An answer that says where the tablets of a table are
/// is within it.
pub const UNCOUNTED_ANSWER_BYTES: usize = 32 << 10;
/// How long the client that has the turn may neither send nor take a byte. It keeps the turn from all others that wait, so
/// this is far less than other clients have.
pub const TURN_SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long a client that has begun a long request may send nothing of it: it has room that others may want.
pub const LONG_REQUEST_SILENCE_MAX: Duration = Duration::from_secs(60);

/// Room for what is kept.
pub struct Load {
    /// That of all doors.
    room: Arc<Room>,
    turn: Arc<Semaphore>,
    turn_bytes: usize,
}

/// Bytes that count until this is dropped.
#[derive(Debug, Default)]
pub struct Held {
    bytes: Option<OwnedSemaphorePermit>,
    /// The turn, and its bytes.
    turn: Option<(OwnedSemaphorePermit, usize)>,
}

/// What clients of a key-value door send and are sent, as far as it is long.
#[derive(Clone)]
pub struct Loads {
    pub requests: Arc<Load>,
    pub answers: Arc<Load>,
}

/// A receive buffer doubles as it grows.
const BUFFER_BYTES_PER_BYTE: usize = 2;

impl Loads {
    /// Of a key-value door whose values have so many bytes at most.
    pub fn new(network: &Network, value_bytes_max: usize) -> Self {
        const BESIDES_BYTES: usize = 1 << 20;
        Loads {
            requests: Arc::new(Load::of_requests(network, value_bytes_max + BESIDES_BYTES)),
            answers: Arc::new(Load::new(&network.answers, value_bytes_max)),
        }
    }
}

impl Load {
    /// For the long requests that clients of a door are sending, each of so many bytes at most.
    pub fn of_requests(network: &Network, request_bytes_max: usize) -> Self {
        /// A buffer has room for a little more, before it doubles.
        const BESIDES_BYTES: usize = 64 << 10;
        Load::new(&network.requests, BUFFER_BYTES_PER_BYTE * (request_bytes_max + BESIDES_BYTES))
    }

    /// As much as there is in `room`, and apart from it room for one at a time that needs `turn_bytes` at most.
    pub fn new(room: &Arc<Room>, turn_bytes: usize) -> Self {
        Load { room: room.clone(), turn: Arc::new(Semaphore::new(1)), turn_bytes }
    }

    /// Whether little is left: what comes at once should be short, as it is counted only when it is there.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        self.room.used() > self.room.bytes_max / 2
    }

    /// Room for so many bytes of a request, or for all of it, whichever is there first; who came first has it first.
    pub(crate) async fn wait_for(self: Arc<Self>, bytes: usize) -> Held {
        let room = self.room.bytes.clone().acquire_many_owned(permits(bytes));
        let turn = self.turn.clone().acquire_owned();
        tokio::select! {
            biased;
            // What never fits waits for the turn alone.
            Ok(room) = room, if bytes <= self.room.bytes_max => Held { bytes: Some(room), turn: None },
            Ok(turn) = turn => Held { bytes: None, turn: Some((turn, self.turn_bytes)) },
            else => unreachable!("the semaphores are not closed"),
        }
    }
}

/// More than there are of a semaphore's where there are more than it can count.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Held {
    pub fn bytes(&self) -> usize {
        let of_turn = self.turn.as_ref().map_or(0, |(_, bytes)| *bytes);
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
        if missing > load.room.bytes_max {
            return false;
        }
        let Ok(permits) = load.room.bytes.clone().try_acquire_many_owned(permits(missing)) else {
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

    const BYTES_MAX: usize = 1 << 20;
    const TURN_BYTES: usize = 1 << 18;

    fn load() -> Load {
        Load::new(&Room::new(BYTES_MAX), TURN_BYTES)
    }

    #[test]
    fn what_is_held_grows_and_shrinks() {
        let load = load();
        let mut held = Held::default();
        assert!(held.grow(&load, 100) && held.grow(&load, 50));
        assert_eq!(held.bytes(), 100);
        assert!(!held.grow(&load, BYTES_MAX + 1) && !held.grow(&load, usize::MAX));
        assert!(held.grow(&load, BYTES_MAX));
        let mut answer = Held::default();
        assert!(!answer.grow(&load, 1));
        answer.merge(held);
        answer.shrink(10);
        assert_eq!((answer.bytes(), load.room.used()), (10, 10));
        answer.shrink(20);
        assert_eq!(answer.bytes(), 10);
        answer.merge(Held::default());
        drop(answer);
        assert_eq!(load.room.used(), 0);
    }

    #[tokio::test]
    async fn what_comes_free_is_for_who_waits() {
        let load = Arc::new(load());
        let mut held = Held::default();
        assert!(held.grow(&load, BYTES_MAX));
        // The first one has the turn.
        let mut first = load.clone().wait_for(1000).await;
        assert_eq!(first.bytes(), TURN_BYTES);
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
        assert_eq!(next.await.bytes(), TURN_BYTES);
    }
}
