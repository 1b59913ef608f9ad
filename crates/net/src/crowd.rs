//! Clients that hang up while what they asked waits for others. It is to be executed yet: who sends a change and leaves need not have
//! waited for the answer, nor who has said that it sends no more. So each keeps its place until that is done, unless places are
//! few and others come. Those find one then.

use crate::Traffic;
use futures::FutureExt;
use oribi_types::{Error, Result};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Places are few once one in so many is left.
const FEW: usize = 8;

/// All who wait look whether they have hung up, when somebody comes while places are few; which is not done for each of a crowd.
const LOOKS_APART: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(crate) struct Crowd {
    looks: Notify,
    looked: Mutex<Option<Instant>>,
}

impl Crowd {
    /// Somebody has come, with whom `open` of `most` places are taken. Whether others looked.
    pub fn grows(&self, open: usize, most: usize, now: impl FnOnce() -> Instant) -> bool {
        if !is_crowded(open, most) {
            return false;
        }
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        let looks = looked.is_none_or(|looked| now.duration_since(looked) >= LOOKS_APART);
        if looks {
            *looked = Some(now);
            self.looks.notify_waiters();
        }
        looks
    }
}

/// Whether they are, if `open` of `most` are taken.
fn is_crowded(open: usize, most: usize) -> bool {
    most - open.min(most) < most.div_ceil(FEW)
}

/// Waits for `what` on behalf of a client.
///
/// # Errors
/// `Unavailable` once the client has hung up and its place is wanted.
pub(crate) async fn unless_place_is_wanted<T>(
    what: impl Future<Output = T>,
    socket: &TcpStream,
    traffic: &Traffic,
) -> Result<T> {
    let mut what = pin!(what);
    loop {
        tokio::select! {
            biased;
            done = &mut what => return Ok(done),
            () = traffic.crowd.looks.notified() => {
                if has_hung_up(socket) {
                    return Err(Error::unavailable("a client that has left waited, and others came"));
                }
            }
        }
    }
}

/// Whether nothing comes behind what has come.
fn has_hung_up(socket: &TcpStream) -> bool {
    let ready = socket.ready(Interest::READABLE).now_or_never();
    matches!(ready, Some(Ok(ready)) if ready.is_read_closed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_few_before_there_is_none() {
        let few = |most: usize| (0..=most).find(|open| is_crowded(*open, most));
        assert_eq!([1, 2, 8, 9, 1024].map(few), [Some(1), Some(2), Some(8), Some(8), Some(897)]);
    }

    #[test]
    fn those_who_wait_look_once_for_many_who_come() {
        let (crowd, start) = (Crowd::default(), Instant::now());
        let come = |open, millis| crowd.grows(open, 8, || start + Duration::from_millis(millis));
        assert_eq!(
            [(7, 0), (8, 0), (9, 9), (8, 10), (9, 19)].map(|(open, at)| come(open, at)),
            [false, true, false, true, false]
        );
    }
}
