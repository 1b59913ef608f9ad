//! How busy the loops of a door are, and which of them should have the clients: as few as can serve them.
//!
//! What comes to one loop together costs one wait and one write of the log, and a processor that has work does not go to sleep. So
//! single operations of many clients, or of two, take a fifth less processor time on one thread than on two; on one that is always
//! busy they wait. Clients come to the thread that has the fewest, and those that ask for something go on from there, if need be.
//!
//! | a loop that is | and another | gives it |
//! |---|---|---|
//! | not the first, | earlier one, both together less than [`JOINED_MOST`] | all clients |
//! | busier than [`ALONE_MOST`], | less than half as busy | every other client |

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// In thousandths of the time.
const JOINED_MOST: u64 = 750;
const ALONE_MOST: u64 = 900;
/// Clients that were joined do not make their loop too busy, nor are those parted that would be joined again.
const _: () = assert!(JOINED_MOST < ALONE_MOST);
/// A loop says how busy it is after so long, if it has something to do; and is not busy if it has said nothing for ten times that.
const TELL_APART: Duration = Duration::from_millis(100);

/// One round in so many is measured.
const MEASURED_APART: u64 = 16;

/// What is known of the loops of a door.
pub(super) struct Balance {
    started: Instant,
    /// Of each loop, in one number: how busy it was, and when it said so, in milliseconds.
    loops: Box<[AtomicU64]>,
}

/// Which clients a loop should give to another; of those that have asked for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    Keep,
    All { to: usize },
    Half { to: usize },
}

impl Balance {
    pub fn new(loops: usize) -> Self {
        Balance { started: Instant::now(), loops: (0..loops).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes how busy `this` loop was, in thousandths, and says what that calls for.
    pub fn tell(&self, this: usize, busy: u64, now: Instant) -> Advice {
        let busy = busy.min(1000);
        self.note(this, busy, now);
        let mut others = (0..self.loops.len()).filter(|other| *other != this);
        let earlier =
            others.clone().find(|other| *other < this && self.busy(*other, now) + busy < JOINED_MOST);
        if let Some(to) = earlier {
            // Whoever asks next must know of it.
            self.note(to, self.busy(to, now) + busy, now);
            self.note(this, 0, now);
            return Advice::All { to };
        }
        match others.by_ref().min_by_key(|other| self.busy(*other, now)) {
            Some(to) if busy > ALONE_MOST && self.busy(to, now) < busy / 2 => Advice::Half { to },
            _ => Advice::Keep,
        }
    }

    fn note(&self, thread: usize, busy: u64, now: Instant) {
        self.loops[thread].store(self.millis(now) << 16 | busy, Ordering::Relaxed);
    }

    fn busy(&self, thread: usize, now: Instant) -> u64 {
        let said = self.loops[thread].load(Ordering::Relaxed);
        let is_old = (said >> 16) + 10 * TELL_APART.as_millis() as u64 <= self.millis(now);
        if is_old { 0 } else { said & 0xffff }
    }

    fn millis(&self, now: Instant) -> u64 {
        now.duration_since(self.started).as_millis() as u64
    }
}

/// What the loop has had to do, measured in some rounds.
pub(super) struct Work {
    round: u64,
    /// When work began in a round that is measured.
    began: Option<Instant>,
    worked: Duration,
    waited: Duration,
    /// Since this time, and this round.
    since: Instant,
    since_round: u64,
}

impl Work {
    pub fn new(now: Instant) -> Self {
        let (worked, waited) = (Duration::ZERO, Duration::ZERO);
        Work { round: 0, began: None, worked, waited, since: now, since_round: 0 }
    }

    /// The number of the present round.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The last round before those that are being measured.
    pub fn since_round(&self) -> u64 {
        self.since_round
    }

    /// Forgets what was measured.
    pub fn begin_anew(&mut self, now: Instant) {
        *self = Work { round: self.round, since_round: self.round, ..Work::new(now) };
    }

    /// Before a wait: the moment, if it is to be measured.
    pub fn before_wait(&mut self) -> Option<Instant> {
        self.round += 1;
        self.round.is_multiple_of(MEASURED_APART).then(Instant::now)
    }

    pub fn after_wait(&mut self, before: Option<Instant>) {
        self.began = before.map(|before| {
            let now = Instant::now();
            self.waited += now - before;
            now
        });
    }

    /// After the work of a round: how busy the loop was, in thousandths, and now is, if that is due to be told.
    pub fn done(&mut self) -> Option<(u64, Instant)> {
        let began = self.began?;
        let now = Instant::now();
        self.worked += now - began;
        if now - self.since < TELL_APART {
            return None;
        }
        let all = (self.worked + self.waited).as_nanos().max(1);
        Some(((self.worked.as_nanos() * 1000 / all) as u64, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_together_until_that_is_too_much() {
        let balance = Balance::new(3);
        let after = |millis| balance.started + Duration::from_millis(millis);
        assert_eq!(balance.tell(0, 300, after(0)), Advice::Keep);
        assert_eq!(balance.tell(1, 400, after(0)), Advice::All { to: 0 });
        // It has them all now.
        assert_eq!(balance.tell(2, 100, after(0)), Advice::All { to: 1 });
        assert_eq!(balance.tell(1, 100, after(1)), Advice::Keep);
        assert_eq!(balance.tell(0, 600, after(2)), Advice::Keep);
        assert_eq!(balance.tell(1, 100, after(3)), Advice::All { to: 0 });
        // More than one can do goes to who has least to do, and is not put together again.
        assert_eq!(balance.tell(0, 1000, after(4)), Advice::Half { to: 1 });
        assert_eq!(balance.tell(1, 600, after(5)), Advice::Keep);
        assert_eq!(balance.tell(0, 600, after(6)), Advice::Keep);
        assert_eq!(balance.tell(1, 910, after(7)), Advice::Half { to: 2 });
        assert_eq!(balance.tell(2, 470, after(8)), Advice::Keep);
        assert_eq!(balance.tell(1, 910, after(9)), Advice::Keep);
        // Who has said nothing for long has nothing to do.
        assert_eq!(balance.tell(2, 470, after(1009)), Advice::All { to: 0 });
    }
}
