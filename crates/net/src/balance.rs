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
//!
//! Only a loop that waits at that moment is given clients, if there is one: by others, or as they come. One that is at work may be stuck, or have rounds so long that it has not
//! said for a while how busy it is.

use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// In thousandths of the time, as all that follows.
const BUSY_MAX: u64 = 1000;
const JOINED_MOST: u64 = 750;
const ALONE_MOST: u64 = 900;
/// Clients that were joined do not make their loop too busy, nor are those parted that would be joined again.
const _: () = assert!(JOINED_MOST < ALONE_MOST);
/// A loop says how busy it is after so long, if it has something to do; and is not busy if it has said nothing for ten times that,
/// and waits.
const TELL_APART: Duration = Duration::from_millis(100);

/// One round in so many is measured.
const MEASURED_APART: u64 = 16;

/// What is known of the loops of a door.
pub(crate) struct Balance {
    started: Instant,
    loops: Box<[Loop]>,
}

/// What is known of a loop. Each round it says whether it waits, so it is apart from the others in memory.
#[repr(align(128))]
struct Loop {
    /// In one number: how busy it was, and when it said so, in milliseconds.
    said: AtomicU64,
    waits: AtomicBool,
}

/// Which clients a loop should give to another; of those that have asked for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    Keep,
    All { to: usize },
    Half { to: usize },
}

impl Balance {
    pub fn new(loops: usize) -> Self {
        let new = |_| Loop { said: AtomicU64::new(0), waits: AtomicBool::new(true) };
        Balance { started: Instant::now(), loops: (0..loops).map(new).collect() }
    }

    /// Notes whether `this` loop waits for clients, or is at work.
    #[inline]
    pub fn set_waiting(&self, this: usize, waits: bool) {
        self.loops[this].waits.store(waits, Ordering::Relaxed);
    }

    /// Whether a loop waits for clients. One that does not may be stuck.
    pub fn waits(&self, thread: usize) -> bool {
        self.loops[thread].waits.load(Ordering::Relaxed)
    }

    /// Notes how busy `this` loop was, in thousandths, and says what that calls for.
    pub fn tell(&self, this: usize, busy: u64, now: Instant) -> Advice {
        let busy = busy.min(BUSY_MAX);
        self.note(this, busy, now);
        let others = (0..self.loops.len()).filter(|other| *other != this);
        let others: SmallVec<[_; 16]> = others.map(|other| (other, self.busy(other, now))).collect();
        let earlier = others.iter().find(|(other, theirs)| *other < this && theirs + busy < JOINED_MOST);
        if let Some(&(to, theirs)) = earlier {
            // Whoever asks next must know of it.
            self.note(to, theirs + busy, now);
            self.note(this, 0, now);
            return Advice::All { to };
        }
        match others.iter().min_by_key(|(_, theirs)| *theirs) {
            Some(&(to, theirs)) if busy > ALONE_MOST && theirs < busy / 2 => Advice::Half { to },
            _ => Advice::Keep,
        }
    }

    fn note(&self, thread: usize, busy: u64, now: Instant) {
        self.loops[thread].said.store(self.millis(now) << 16 | busy, Ordering::Relaxed);
    }

    /// How busy a loop is that may be given clients. Who waits and has said nothing for long has nothing to do.
    fn busy(&self, thread: usize, now: Instant) -> u64 {
        let Loop { said, waits } = &self.loops[thread];
        let said = said.load(Ordering::Relaxed);
        let is_old = (said >> 16) + 10 * TELL_APART.as_millis() as u64 <= self.millis(now);
        match waits.load(Ordering::Relaxed) {
            false => BUSY_MAX,
            true if is_old => 0,
            true => said & 0xffff,
        }
    }

    fn millis(&self, now: Instant) -> u64 {
        now.duration_since(self.started).as_millis() as u64
    }
}

/// What the loop has had to do, measured in some rounds.
pub(crate) struct Work {
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
    #[inline]
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
    #[inline]
    pub fn before_wait(&mut self) -> Option<Instant> {
        self.round += 1;
        self.round.is_multiple_of(MEASURED_APART).then(Instant::now)
    }

    #[inline]
    pub fn after_wait(&mut self, before: Option<Instant>) {
        self.began = before.map(|before| {
            let now = Instant::now();
            self.waited += now - before;
            now
        });
    }

    /// After the work of a round: how busy the loop was, in thousandths, and now is, if that is due to be told.
    #[inline]
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

    #[test]
    fn a_loop_that_is_at_work_is_given_nobody() {
        let balance = Balance::new(2);
        let after = |millis| balance.started + Duration::from_millis(millis);
        assert_eq!(balance.tell(0, 300, after(0)), Advice::Keep);
        balance.set_waiting(0, false);
        // Whether it said lately how busy it is, or for long has not come to say so.
        for millis in [1, 999, 1000, 100_000] {
            assert_eq!(balance.tell(1, 300, after(millis)), Advice::Keep);
            assert_eq!(balance.tell(1, 1000, after(millis)), Advice::Keep);
        }
        balance.set_waiting(0, true);
        assert_eq!(balance.tell(1, 300, after(100_001)), Advice::All { to: 0 });
    }
}
