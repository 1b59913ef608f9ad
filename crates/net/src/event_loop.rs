//! The loop of a key-value door's thread: waits for all its clients at once, and gives each that has sent something its turn.
//!
//! Nearly always what a request reads is in memory, what it writes has room there, and its answer fits the socket. It then
//! costs a wait, a receive and a send: no task, no timer, nobody to be woken. A client that has to wait for anything else
//! goes [aside](crate::aside), and comes back when it has had nothing to wait for in some rounds.
//!
//! What came together is executed before the log is written, once, and before the answers leave that rest on it. Clients that
//! ask for little are on as few loops as can serve them: see [`Balance`].

use crate::balance::{Advice, Balance, Work};
use crate::guest::{Guest, Passed, Turn};
use crate::listener::Arrival;
use crate::post::{Mail, Post};
use crate::seats::{Seat, Seats};
use crate::silence::Silence;
use crate::{ClientLimits, Progress, Service, Store};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Clients that have their turns before those answers leave that wait for the log.
const EVENTS_MAX: usize = 128;
/// Clients that come in, and that have their first turns, between two rounds, in which those that were heard have theirs, …
const WELCOMES_MAX: usize = 16;
/// … and none any more once that has taken so long: of a crowd each takes some 100 µs, of a processor that other threads want too.
const NEWCOMERS_TIME: Duration = Duration::from_micros(250);
/// At shutdown, clients that always have more to ask are heard so often.
const LAST_ROUNDS_MAX: usize = 64;
/// The token of the mail; clients have the numbers of their seats.
const MAIL: Token = Token(usize::MAX);

/// Clients that go aside, with what came of the requests that they were executing.
pub(crate) type Leaving<S> = (Guest<S>, Progress);

pub(crate) struct EventLoop<S: Service> {
    service: Arc<S>,
    thread: usize,
    poll: Poll,
    mail: UnboundedReceiver<Mail<S>>,
    aside: UnboundedSender<Leaving<S>>,
    seats: Seats<S>,
    silence: Silence,
    balance: Arc<Balance>,
    /// The ways to the loops of the door, this one included.
    posts: Vec<Post<S>>,
    work: Work,
    /// Seats of those whose answers wait for the log.
    unsettled: Vec<usize>,
    passed: Passed,
    /// Those that have not come in yet.
    arrivals: VecDeque<Arrival>,
    /// Seats of those that have sent something and were never heard, and whether it was their last.
    unheard: VecDeque<(usize, bool)>,
    shuts: bool,
}

impl<S: Service> EventLoop<S> {
    /// Of the door's thread of this number; with the way to it, and from it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(
        service: Arc<S>,
        thread: usize,
        limits: ClientLimits,
        balance: Arc<Balance>,
    ) -> io::Result<(Self, Post<S>, UnboundedReceiver<Leaving<S>>)> {
        let poll = Poll::new()?;
        let (post, mail) = Post::new(Waker::new(poll.registry(), MAIL)?);
        let (aside, leaving) = unbounded_channel();
        let now = Instant::now();
        let event_loop = EventLoop {
            service,
            thread,
            poll,
            mail,
            aside,
            seats: Seats::default(),
            silence: Silence::new(limits.idle_max, now),
            balance,
            posts: Vec::new(),
            work: Work::new(now),
            unsettled: Vec::new(),
            passed: Passed::default(),
            arrivals: VecDeque::new(),
            unheard: VecDeque::new(),
            shuts: false,
        };
        Ok((event_loop, post, leaving))
    }

    /// Serves until it is told to shut, and what had come by then is answered. `posts` are the ways to all loops of the door.
    ///
    /// # Errors
    /// Those of the system.
    pub fn run(mut self, posts: Vec<Post<S>>) -> io::Result<()> {
        self.posts = posts;
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut last_rounds = 0;
        while last_rounds < LAST_ROUNDS_MAX {
            self.wait(&mut events)?;
            let mut has_mail = false;
            for event in &events {
                match event.token() {
                    MAIL => has_mail = true,
                    Token(seat) if self.is_unheard(seat) => {
                        self.unheard.push_back((seat, event.is_read_closed()));
                    }
                    Token(seat) => self.turn_of(seat, event.is_read_closed()),
                }
            }
            self.serve_some_newcomers();
            self.settle();
            self.count();
            if has_mail {
                self.read_mail();
            }
            self.send_off_silent();
            self.keep_balance();
            if self.shuts {
                let is_over = events.is_empty() && !self.has_newcomers();
                last_rounds = if is_over { LAST_ROUNDS_MAX } else { last_rounds + 1 };
            }
        }
        Ok(())
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let timeout = match self.shuts || self.has_newcomers() {
            true => Some(Duration::ZERO),
            false => self.silence.wait_max().filter(|_| self.seats.has_anybody()),
        };
        let before = self.work.before_wait();
        self.balance.set_waiting(self.thread, true);
        let polled = self.poll.poll(events, timeout);
        self.balance.set_waiting(self.thread, false);
        match polled {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            polled => polled?,
        }
        self.work.after_wait(before);
        self.silence.after_wait();
        Ok(())
    }

    fn has_newcomers(&self) -> bool {
        !self.arrivals.is_empty() || !self.unheard.is_empty()
    }

    fn is_unheard(&self, seat: usize) -> bool {
        self.seats.get(seat).is_some_and(|seat| seat.is_unheard)
    }

    /// Lets some in who have connected, and gives some their first turns: where a crowd comes in the same moment, the others would wait for
    /// all of it.
    fn serve_some_newcomers(&mut self) {
        if !self.has_newcomers() {
            return;
        }
        let (begun, shuts) = (Instant::now(), self.shuts);
        let has_time = || shuts || begun.elapsed() < NEWCOMERS_TIME;
        for _ in 0..WELCOMES_MAX {
            let Some((seat, is_closed)) = self.unheard.pop_front() else { break };
            self.hear(seat, is_closed);
            if !has_time() {
                return;
            }
        }
        for _ in 0..WELCOMES_MAX {
            let Some(arrival) = self.arrivals.pop_front() else { return };
            self.welcome(arrival);
            if !has_time() {
                return;
            }
        }
    }

    /// Gives a client its first turn.
    fn hear(&mut self, seat: usize, is_closed: bool) {
        if let Some(seat) = self.seats.get_mut(seat) {
            seat.is_unheard = false;
        }
        self.turn_of(seat, is_closed);
    }

    /// Serves a client that has sent something, or, if `is_closed`, has sent its last.
    fn turn_of(&mut self, seat: usize, is_closed: bool) {
        loop {
            let turn = self.give(seat, Guest::take_turn);
            match turn {
                // Its end is behind what was received.
                Turn::Answered if is_closed => continue,
                Turn::Unsettled if is_closed => self.conclude(seat, Turn::Aside(Progress::Done)),
                turn => self.conclude(seat, turn),
            }
            return;
        }
    }

    /// A client's turn. If it panics that is the client's end, and no other's.
    fn give(
        &mut self,
        seat: usize,
        turn: impl FnOnce(&mut Guest<S>, &S, &mut Passed) -> io::Result<Turn>,
    ) -> Turn {
        let EventLoop { seats, service, passed, silence, work, .. } = self;
        let Some(Seat { guest, heard, round, .. }) = seats.get_mut(seat) else { return Turn::Idle };
        (*heard, *round) = (silence.now(), work.round());
        match catch_unwind(AssertUnwindSafe(|| turn(guest, service, passed))) {
            Ok(Ok(turn)) => turn,
            Ok(Err(error)) => {
                tracing::debug!(%error, door = S::NAME, "connection ended");
                Turn::Over
            }
            // The panic was reported when it began.
            Err(_) => Turn::Over,
        }
    }

    fn conclude(&mut self, seat: usize, turn: Turn) {
        match turn {
            Turn::Idle | Turn::Answered => {}
            Turn::Unsettled => self.unsettled.push(seat),
            Turn::Aside(progress) => {
                let has_left =
                    self.let_go(seat).is_none_or(|guest| self.aside.send((guest, progress)).is_ok());
                if !has_left {
                    tracing::warn!(door = S::NAME, "a client that had to wait was dropped");
                }
            }
            // It leaves the poll with its socket.
            Turn::Over => drop(self.seats.vacate(seat)),
        }
    }

    /// The client of a seat, who is not waited for any more.
    fn let_go(&mut self, seat: usize) -> Option<Guest<S>> {
        let Seat { guest, .. } = self.seats.vacate(seat)?;
        let left = self.poll.registry().deregister(&mut SourceFd(&guest.socket.as_raw_fd()));
        left.is_ok().then_some(guest)
    }

    /// Writes the log, and answers all that waited for that.
    fn settle(&mut self) {
        if self.unsettled.is_empty() {
            return;
        }
        let mut unsettled = std::mem::take(&mut self.unsettled);
        let owed = unsettled.iter().filter_map(|seat| self.seats.get(*seat));
        let obligation = owed.map(|seat| seat.guest.obligation()).fold(Default::default(), S::Store::both);
        // Writes the log now. Who has to wait for the disk, or is to hear of an error, does so aside.
        drop(self.service.store().settled(obligation));
        for seat in unsettled.drain(..) {
            let turn = self.give(seat, |guest, service, passed| {
                match service.store().is_settled(guest.obligation()) {
                    true => guest.answer(passed),
                    false => Ok(Turn::Aside(Progress::Done)),
                }
            });
            self.conclude(seat, turn);
        }
        // Its memory is for the next ones.
        self.unsettled = unsettled;
    }

    fn count(&mut self) {
        let Passed { received, sent } = std::mem::take(&mut self.passed);
        let traffic = self.service.traffic().thread(self.thread);
        traffic.received_bytes.add(received);
        traffic.sent_bytes.add(sent);
    }

    fn read_mail(&mut self) {
        while let Ok(mail) = self.mail.try_recv() {
            match mail {
                Mail::Arrival(arrival) => self.arrivals.push_back(arrival),
                Mail::Guest(guest) => self.seat(Ok(guest), false),
                Mail::Pushes => self.seats.numbers().for_each(|seat| self.push(seat)),
                Mail::Shutdown => {
                    self.shuts = true;
                    // What was sent before is read; what comes is the sender's.
                    self.mail.close();
                }
            }
        }
    }

    fn welcome(&mut self, arrival: Arrival) {
        let welcome = || Guest::welcome(&*self.service, arrival);
        // If it panics that is the end of who came.
        if let Ok(guest) = catch_unwind(AssertUnwindSafe(welcome)) {
            self.seat(guest, true);
        }
    }

    fn seat(&mut self, guest: io::Result<Guest<S>>, is_unheard: bool) {
        let seated = guest.and_then(|guest| {
            let fd = guest.socket.as_raw_fd();
            let seat = Seat { guest, heard: self.silence.now(), round: self.work.round(), is_unheard };
            let seat = self.seats.take(seat);
            // What it has sent already is an event too.
            let registered =
                self.poll.registry().register(&mut SourceFd(&fd), Token(seat), Interest::READABLE);
            if registered.is_err() {
                self.seats.vacate(seat);
            }
            registered.map(|()| seat)
        });
        match seated {
            Ok(seat) => self.push(seat),
            Err(error) => tracing::debug!(%error, door = S::NAME, "connection ended"),
        }
    }

    fn push(&mut self, seat: usize) {
        let turn = self.give(seat, |guest, _, passed| guest.push(passed));
        self.conclude(seat, turn);
    }

    /// Gives clients that have asked for something lately to another loop, if that is better.
    fn keep_balance(&mut self) {
        let Some((busy, now)) = self.work.done() else { return };
        let (to, step) = match self.balance.tell(self.thread, busy, now) {
            _ if self.shuts => return,
            Advice::Keep => (self.thread, 1),
            Advice::All { to } => (to, 1),
            Advice::Half { to } => (to, 2),
        };
        if to != self.thread {
            let since = self.work.since_round();
            let asked = |seat: &usize| self.seats.get(*seat).is_some_and(|seat| seat.round > since);
            let going: Vec<usize> = self.seats.numbers().filter(asked).skip(step - 1).step_by(step).collect();
            for seat in going {
                let sent = self.let_go(seat).map(|guest| self.posts[to].send(Mail::Guest(guest)));
                if let Some(Err(Mail::Guest(guest))) = sent {
                    self.seat(Ok(guest), false);
                }
            }
        }
        self.work.begin_anew(now);
    }

    fn send_off_silent(&mut self) {
        let Some(silent_since) = self.silence.look() else { return };
        for seat in self.seats.numbers() {
            if self.seats.get(seat).is_some_and(|seat| seat.heard <= silent_since) {
                self.service.traffic().thread(self.thread).idle.add(1);
                self.seats.vacate(seat);
            }
        }
    }
}

#[cfg(test)]
mod tests;
