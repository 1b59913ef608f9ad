//! Answers that wait for their client to read them.
//!
//! A long one is made once there is room for it, which it has until its client has taken it. So many clients may ask for long values
//! and read none of them: the others wait, but for one at a time. Short answers are not held up, and of those nearly all fit the
//! socket; what does not is counted as far as there is room, and where little is left the next ones are made shorter.
//!
//! Who has room that others want and takes nothing for too long is dropped.

use crate::exchange::OUTPUT_BYTES_MAX;
use crate::load::{Held, Load, TURN_SILENCE_MAX, UNCOUNTED_ANSWER_BYTES};
use crate::turn::{ByteTurn, TURN_BYTES};
use oribi_types::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// An answer with a longer value is long.
pub(crate) const SHORT_VALUE_BYTES_MAX: usize = OUTPUT_BYTES_MAX;
/// Likewise, where there is little room.
pub(crate) const SHORT_VALUE_BYTES_MAX_IF_SCARCE: usize = 16 << 10;
const _: () = assert!(SHORT_VALUE_BYTES_MAX_IF_SCARCE <= UNCOUNTED_ANSWER_BYTES);
/// How long a client may take nothing of a long answer, or of another while there is little room.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Room for answers.
pub(crate) struct Unsent {
    load: Arc<Load>,
    held: Held,
    /// It is about a long value.
    is_long: bool,
    metric: metrics::Gauge,
}

impl Unsent {
    /// Once there is room for so many bytes.
    pub async fn with_room(load: &Arc<Load>, bytes: usize, metric: &metrics::Gauge) -> Self {
        Unsent::new(load, load.clone().wait_for(bytes).await, true, metric)
    }

    /// For short answers of so many bytes, of which the socket did not take all; without room if there is none.
    pub fn rest(load: &Arc<Load>, bytes: usize, metric: &metrics::Gauge) -> Self {
        let mut held = Held::default();
        if bytes > UNCOUNTED_ANSWER_BYTES {
            held.grow(load, bytes);
        }
        Unsent::new(load, held, false, metric)
    }

    fn new(load: &Arc<Load>, held: Held, is_long: bool, metric: &metrics::Gauge) -> Self {
        metric.increment(held.bytes() as f64);
        Unsent { load: load.clone(), held, is_long, metric: metric.clone() }
    }

    /// Sends all of it, in turns with others.
    ///
    /// # Errors
    /// Those of the socket; `Unavailable` if the client does not read.
    pub async fn send(&self, socket: &mut TcpStream, mut answer: &[u8], turn: &mut ByteTurn) -> Result<()> {
        let silence_max = if self.held.has_turn() { TURN_SILENCE_MAX } else { SILENCE_MAX };
        while !answer.is_empty() {
            let most = answer.len().min(TURN_BYTES);
            match tokio::time::timeout(silence_max, socket.write(&answer[..most])).await {
                Ok(sent) => {
                    let sent = sent?;
                    answer = &answer[sent..];
                    turn.pass(sent).await;
                }
                Err(_) if self.is_wanted() => {
                    return Err(Error::unavailable("the client does not read its answers"));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Whether others may want the room.
    fn is_wanted(&self) -> bool {
        self.is_long || (self.held.bytes() > 0 && self.load.is_scarce())
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.metric.decrement(self.held.bytes() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Room;
    use futures::FutureExt;

    #[tokio::test]
    async fn others_have_their_turns_while_long_answers_are_sent() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut socket = listener.accept().await.unwrap().0;
        let unsent =
            Unsent::rest(&Arc::new(Load::new(&Room::new(1), 1)), TURN_BYTES, &metrics::Gauge::noop());
        let mut turn = ByteTurn::default();
        assert!(turn.pass(TURN_BYTES - 1).now_or_never().is_some());
        // The socket takes both.
        for is_over in [true, false] {
            socket.writable().await.unwrap();
            assert_eq!(unsent.send(&mut socket, &[7; 1000], &mut turn).now_or_never().is_none(), is_over);
        }
    }

    #[test]
    fn short_answers_that_are_not_read_count_as_far_as_there_is_room_and_make_it_scarce() {
        const BYTES: usize = 100 << 10;
        let load = Arc::new(Load::new(&Room::new(3 * BYTES), BYTES));
        let metric = metrics::Gauge::noop();
        let rest = |bytes| Unsent::rest(&load, bytes, &metric);
        let little = rest(UNCOUNTED_ANSWER_BYTES);
        let first = rest(BYTES);
        assert_eq!((little.held.bytes(), first.held.bytes()), (0, BYTES));
        // Nobody else wants it yet.
        assert!(!load.is_scarce() && !first.is_wanted());
        let second = rest(BYTES);
        assert!(load.is_scarce() && first.is_wanted() && second.is_wanted() && !little.is_wanted());
        let (_third, too_much) = (rest(BYTES), rest(BYTES));
        assert!(too_much.held.bytes() == 0 && !too_much.is_wanted());
        drop((first, second));
        assert!(!load.is_scarce());
    }
}
