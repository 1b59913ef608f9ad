//! Who is connected to the HTTP door: so many at a time, each for one request.
//!
//! A client that has not asked yet only waits, and costs nobody anything to send off: when all places are taken, the one that
//! has waited longest gives its own to whoever comes. So neither clients that ask nothing nor those that ask slowly keep a probe
//! out, which asks as soon as it is connected. Those that are answered keep their places; long answers have few of them
//! ([`super::HttpLimits::scrapes_max`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

pub struct Visitors {
    places: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those that have not asked yet, in the order in which they came, each with what tells it to leave.
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    answered: usize,
    next: u64,
}

/// A client's place; free when dropped.
pub struct Visitor {
    visitors: Arc<Visitors>,
    number: u64,
    has_asked: AtomicBool,
    /// Told once it has asked.
    pub asked: Notify,
}

impl Visitors {
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(Visitors { places, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for who comes, and what tells it to give way; `None` if all others are being answered.
    pub fn enter(self: &Arc<Self>) -> Option<(Visitor, oneshot::Receiver<()>)> {
        let mut state = self.state();
        if state.open() >= self.places {
            let (_, longest) = state.waiting.pop_first()?;
            // If it has just left, so much the better.
            let _ = longest.send(());
        }
        let number = state.next;
        state.next += 1;
        let (leave, told) = oneshot::channel();
        state.waiting.insert(number, leave);
        let visitor = Visitor {
            visitors: self.clone(),
            number,
            has_asked: AtomicBool::new(false),
            asked: Notify::new(),
        };
        Some((visitor, told))
    }

    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.state().open()
    }
}

impl State {
    fn open(&self) -> usize {
        self.waiting.len() + self.answered
    }
}

impl Visitor {
    /// The client has asked: its place is its own until it is answered. False if it had to give it away before.
    pub fn asks(&self) -> bool {
        let mut state = self.visitors.state();
        let had_place = state.waiting.remove(&self.number).is_some();
        if had_place {
            state.answered += 1;
            self.has_asked.store(true, Ordering::Relaxed);
            self.asked.notify_one();
        }
        had_place
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let mut state = self.visitors.state();
        if *self.has_asked.get_mut() {
            state.answered -= 1;
        } else {
            state.waiting.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_waited_longest_gives_way() {
        let visitors = Visitors::new(3);
        let [(first, mut first_told), (second, mut second_told), (third, mut third_told)] =
            std::array::from_fn(|_| visitors.enter().unwrap());
        assert!(first.asks());
        let (fourth, _told) = visitors.enter().unwrap();
        assert!(
            second_told.try_recv().is_ok()
                && first_told.try_recv().is_err()
                && third_told.try_recv().is_err()
        );
        // It asks too late, and does not count any more.
        assert!(!second.asks());
        drop(second);
        assert_eq!(visitors.open(), 3);
        assert!(third.asks() && fourth.asks());
        assert!(visitors.enter().is_none());
        drop(first);
        assert!(visitors.enter().is_some());
        drop((third, fourth));
        assert_eq!(visitors.open(), 0);
    }
}
