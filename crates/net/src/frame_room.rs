//! Room for a long request that is being received, counted as it comes; and the turn, for those for which there is none.

use crate::Exchange;
use crate::load::{Held, Load, TURN_SILENCE_MAX, UNCOUNTED_REQUEST_BYTES};
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::time::Instant;

/// Room for a long frame that is being received.
pub struct FrameRoom {
    /// For what has come of it, and for some of what comes next …
    held: Held,
    /// … or for that, once it is there.
    more: Option<BoxFuture<'static, Held>>,
    /// When the client that has the turn got it, or sent or took something since.
    turn_used: Instant,
}

/// What came of waiting.
pub enum Waited {
    HasRoom,
    TurnOver,
}

impl Default for FrameRoom {
    fn default() -> Self {
        FrameRoom { held: Held::default(), more: None, turn_used: Instant::now() }
    }
}

impl FrameRoom {
    /// Bytes that are counted.
    pub fn bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Gives back what is held; the frame has come whole.
    pub fn release(&mut self) {
        if self.held.bytes() > 0 {
            drop(self.take());
        }
    }

    /// What is held; the frame has come whole.
    pub fn take(&mut self) -> Held {
        std::mem::take(&mut self.held)
    }

    /// Whether more may come of a frame of `len` bytes, of which `come` have: a long one waits until there is room for as much
    /// again as has come of it.
    pub fn has_more(&mut self, load: &Arc<Load>, len: usize, come: usize) -> bool {
        if come <= UNCOUNTED_REQUEST_BYTES || self.held.bytes() > come {
            return true;
        }
        self.has(load, len.max(come).min(2 * come))
    }

    /// Whether there is room for the buffer in which more of a long request is received. If there is none, it is waited for: what has
    /// come is in as much memory as it takes meanwhile, since thousands may wait with the beginning of a request and no more, and
    /// so much is asked for as going on from there takes.
    pub(crate) fn has_for_input<O: Default>(&mut self, load: &Arc<Load>, exchange: &mut Exchange<O>) -> bool {
        if self.takes(load, exchange.input_bytes()) {
            return true;
        }
        exchange.park();
        self.has(load, exchange.input_bytes())
    }

    /// Whether there is room for so many bytes; if there is none, it is waited for.
    pub fn has(&mut self, load: &Arc<Load>, wanted: usize) -> bool {
        if self.takes(load, wanted) {
            return true;
        }
        let missing = wanted.saturating_sub(self.held.bytes());
        self.more.get_or_insert_with(|| Box::pin(load.clone().wait_for(missing)));
        false
    }

    /// Takes room for so many bytes, if there is some and none is waited for.
    fn takes(&mut self, load: &Arc<Load>, wanted: usize) -> bool {
        self.more.is_none() && (self.held.has_turn() || self.held.grow(load, wanted))
    }

    pub fn has_turn(&self) -> bool {
        self.held.has_turn()
    }

    pub fn is_awaited(&self) -> bool {
        self.more.is_some()
    }

    /// The client sent or took something.
    pub fn used(&mut self) {
        if self.held.has_turn() {
            self.turn_used = Instant::now();
        }
    }

    /// Until there is room, where it is waited for, or until a client whose silence counts has kept the turn silently for too long.
    pub async fn wait(&mut self, silence_counts: bool) -> Waited {
        let FrameRoom { held, more, turn_used } = self;
        tokio::select! {
            biased;
            room = async { more.as_mut().expect("it is awaited").await }, if more.is_some() => {
                *more = None;
                held.merge(room);
                // What the client has sent meanwhile was not read.
                *turn_used = Instant::now();
                Waited::HasRoom
            }
            () = turn_over(*turn_used), if silence_counts && held.has_turn() => Waited::TurnOver,
            else => std::future::pending().await,
        }
    }
}

/// Once a client that used its turn last at this time has been silent for too long.
async fn turn_over(used: Instant) {
    tokio::time::sleep_until(used + TURN_SILENCE_MAX).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Room;

    #[tokio::test]
    async fn who_waited_for_room_has_as_much_as_is_asked_for_then() {
        const ROOM_BYTES: usize = 1 << 20;
        let load = Arc::new(Load::new(&Room::new(ROOM_BYTES), ROOM_BYTES));
        // What never fits has the turn, and others have all room.
        let _turn = load.clone().wait_for(usize::MAX).await;
        let mut others = Held::default();
        assert!(others.grow(&load, ROOM_BYTES));
        let mut exchange = Exchange::<()>::default();
        exchange.borrow_buffers();
        exchange.space(100 << 10).fill(7);
        exchange.received(100 << 10);
        let mut room = FrameRoom::default();
        assert!(!room.has_for_input(&load, &mut exchange) && room.is_awaited());
        others.shrink(0);
        assert!(matches!(room.wait(false).await, Waited::HasRoom));
        assert!(others.grow(&load, ROOM_BYTES - room.bytes()), "the rest is others'");
        assert!(room.has_for_input(&load, &mut exchange), "it waits again");
        exchange.borrow_buffers();
        exchange.space(usize::MAX).fill(7);
        assert!(exchange.input.capacity() <= room.bytes() && exchange.input[..] == [7; 100 << 10]);
    }
}
