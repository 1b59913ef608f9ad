//! The turns in which clients of one thread send and take what is long: between two of one client's, others have theirs.

/// A client sends and takes so many bytes, about, and others come next: copying them takes some ten microseconds.
pub const TURN_BYTES: usize = 128 << 10;

/// What a client has sent and taken in its turn.
#[derive(Default)]
pub struct ByteTurn {
    moved: usize,
}

impl ByteTurn {
    /// Has others come first once the turn is over, as these bytes were sent or taken.
    pub async fn pass(&mut self, bytes: usize) {
        self.moved += bytes;
        if self.moved >= TURN_BYTES {
            self.moved = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn others_come_behind_each_turn_of_bytes() {
        let mut turn = ByteTurn::default();
        let mut ends = |bytes| turn.pass(bytes).now_or_never().is_none();
        assert_eq!(
            [1, TURN_BYTES - 2, 1, TURN_BYTES - 1, 1].map(&mut ends),
            [false, false, true, false, true]
        );
        assert!(ends(10 * TURN_BYTES) && !ends(1));
    }
}
