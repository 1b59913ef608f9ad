//! One client: negotiates, then takes its calls as they come and sends the answers as they are ready.
//!
//! Frames are executed where they lie in the receive buffer. What is answered at once waits until all that has arrived is
//! executed; then everything that is ready goes out in one writev(2), sidecars from where they were made. An answer that rests
//! on a write waits for the log in a future of its own, so that the thread serves others meanwhile.
//!
//! A call that comes by itself costs an epoll_wait(2), a recv(2) and a writev(2); a write of a table that need not be durable
//! at once another write(2), to the log.
//!
//! What a client has others keep for it counts ([`oribi_net::Load`]): a long frame as it comes and until its call is done, and
//! answers until they are sent.

use super::Port;
use super::call::{Answer, Call, too_busy};
use super::outbox::Outbox;
use super::services::{self, Done, Handled, May, Work};
use super::tserver::write::RowPlans;
use bytes::BytesMut;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, future::BoxFuture};
use oribi_engine::Obligation;
use oribi_kudu::frame::{self, FRAME_BYTES_MAX, Frame};
use oribi_kudu::rpc::{ErrorStatus, RequestHeader};
use oribi_net::{ByteTurn, FrameRoom, Held, Idle, Link, Stream, UNCOUNTED_ANSWER_BYTES, Waited, holds};
use oribi_types::{Error, Result};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a client may take to negotiate; Kudu's own limit (`--rpc_negotiation_timeout_ms`).
const NEGOTIATION_MAX: Duration = Duration::from_secs(3);
/// A client that has so much to read is not read from.
const OUTBOX_BYTES_MAX: usize = 16 << 20;
/// Nor is one with so many calls in flight.
const CALLS_MAX: usize = 256;
/// How long a write waits for room in memory before the client is asked to come later.
const ADMISSION_MAX: Duration = Duration::from_secs(1);

type Answers = Vec<Answer>;

/// Calls that were not answered at once, and now are.
struct Finished {
    answers: Answers,
    /// How long the answers were expected to be.
    expected: usize,
}

/// What a connection waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    /// There is more to do.
    Something,
    /// The client has left, or was silent for too long.
    Left,
}

pub(super) struct Connection {
    pub(super) port: Arc<Port>,
    pub(super) thread: usize,
    pub(super) stream: Stream,
    pub(super) is_peer_local: bool,
    /// Who the client says it is.
    pub(super) user: Arc<str>,
    pub(super) input: BytesMut,
    pub(super) outbox: Outbox,
    plans: RowPlans,
    /// Calls that were not answered at once.
    calls: FuturesUnordered<BoxFuture<'static, Result<Finished>>>,
    /// How long their answers will be, about.
    expected: usize,
    /// Answers to what has just arrived, to be settled together.
    held: Answers,
    held_bytes: usize,
    /// Room for the answers that wait to be sent.
    answers_room: Held,
    pub(super) frame_room: FrameRoom,
    turn: ByteTurn,
}

impl Connection {
    pub fn new(port: Arc<Port>, thread: usize, socket: TcpStream, link: Link) -> Self {
        Connection {
            port,
            thread,
            stream: Stream::new(socket),
            is_peer_local: link.peer.ip().is_loopback(),
            user: Arc::default(),
            input: BytesMut::new(),
            outbox: Outbox::default(),
            plans: RowPlans::default(),
            calls: FuturesUnordered::new(),
            expected: 0,
            held: Vec::new(),
            held_bytes: 0,
            answers_room: Held::default(),
            frame_room: FrameRoom::default(),
            turn: ByteTurn::default(),
        }
    }

    /// Serves the client until it leaves, is silent for longer than it may, or the door shuts; then calls that were begun are
    /// answered first.
    ///
    /// # Errors
    /// Those of the socket and of frames, and of an engine that cannot keep what it was told any more: then nobody is answered.
    pub async fn serve(
        mut self,
        idle_max: Option<Duration>,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<()> {
        let mut shut = pin!(holds(&mut shutdown));
        let negotiated = tokio::select! {
            negotiated = tokio::time::timeout(NEGOTIATION_MAX, self.negotiate()) => negotiated,
            () = &mut shut => return Ok(()),
        };
        match negotiated {
            Ok(Ok(true)) => self.serve_calls(pin!(Idle::new(idle_max)), shut).await,
            Ok(left) => left.map(|_| ()),
            Err(_) => Err(Error::invalid("the negotiation took too long")),
        }
    }

    async fn serve_calls(
        &mut self,
        mut idle: Pin<&mut Idle>,
        mut shut: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<()> {
        let mut closing = false;
        loop {
            let stopped = !closing && self.take_calls()?;
            self.settle_held()?;
            if self.send_some()? {
                idle.as_mut().touch();
            }
            if closing && self.calls.is_empty() && self.outbox.is_sent(&self.stream) {
                return Ok(());
            }
            if stopped && self.make_room() {
                continue;
            }
            tokio::select! {
                biased;
                event = self.event(closing, idle.as_mut()) => if event? == Event::Left {
                    return Ok(());
                },
                () = &mut shut, if !closing => closing = true,
            }
        }
    }

    /// Sends what the socket takes; whether that was anything.
    fn send_some(&mut self) -> Result<bool> {
        let sent = self.outbox.flush(&mut self.stream)?;
        self.port.traffic.thread(self.thread).sent_bytes.add(sent as u64);
        if sent > 0 {
            self.frame_room.used();
        }
        Ok(sent > 0)
    }

    /// Waits for something to do, and does what cannot wait of it.
    async fn event(&mut self, closing: bool, mut idle: Pin<&mut Idle>) -> Result<Event> {
        let reads = !closing && self.make_room() && self.may_receive();
        let is_sent = self.outbox.is_sent(&self.stream);
        // Calls that keep the client from being read from are not its silence.
        let silence_counts = reads || self.calls.is_empty();
        tokio::select! {
            biased;
            Some(finished) = self.calls.next(), if !self.calls.is_empty() => self.collect(finished?)?,
            writable = poll_fn(|cx| self.stream.poll_write_ready(cx)), if !is_sent => writable?,
            readable = poll_fn(|cx| self.stream.poll_read_ready(cx)), if reads => {
                readable?;
                // A long frame comes whole within the time that a client may be silent: it has room that others want.
                if self.frame_room.bytes() == 0 {
                    idle.as_mut().touch();
                }
                match self.receive()? {
                    Some(0) => return Ok(Event::Left),
                    Some(received) => {
                        self.frame_room.used();
                        self.turn.pass(received).await;
                    }
                    None => {}
                }
            }
            waited = self.frame_room.wait(silence_counts) => match waited {
                Waited::HasRoom => idle.as_mut().touch(),
                Waited::TurnOver => return Ok(self.give_up()),
            },
            // One that does not read its answers is as silent; one that waits for room would be read from.
            () = idle.as_mut().over() => if self.calls.is_empty() && !self.frame_room.is_awaited() {
                return Ok(self.give_up());
            },
        }
        Ok(Event::Something)
    }

    /// The client was silent for too long.
    fn give_up(&self) -> Event {
        self.port.traffic.thread(self.thread).idle.add(1);
        Event::Left
    }

    /// Counts the answers that wait, and makes so the room that another call needs; whether it may begin: the client has not
    /// too many in flight, nor too much to read.
    fn make_room(&mut self) -> bool {
        let waiting = self.outbox.bytes() + self.held_bytes;
        self.calls.len() < CALLS_MAX && waiting + self.expected < OUTBOX_BYTES_MAX && self.count(waiting)
    }

    /// Counts answers of so many bytes; whether there is room for them.
    fn count(&mut self, waiting: usize) -> bool {
        let counted = waiting.saturating_sub(UNCOUNTED_ANSWER_BYTES);
        self.answers_room.shrink(counted);
        self.answers_room.grow(&self.port.node.load, counted)
    }

    /// Begins the calls that are whole; whether it stopped because answers or calls are too many.
    fn take_calls(&mut self) -> Result<bool> {
        while self.make_room() {
            match frame::decode(&mut self.input, FRAME_BYTES_MAX).map_err(malformed)? {
                Some(frame) => self.begin(frame)?,
                None => break,
            }
        }
        if self.input.is_empty() && self.calls.is_empty() {
            // An idle client costs no buffer.
            self.input = BytesMut::new();
        }
        Ok(!self.make_room())
    }

    fn begin(&mut self, frame: Frame) -> Result<()> {
        let request_room = self.frame_room.take();
        let (mut header, body) = frame.open::<RequestHeader>().map_err(malformed)?;
        let call = Call::new(&self.user, &mut header, body).and_then(|call| {
            match services::unsupported(call.method, &header.required_feature_flags) {
                flags if flags.is_empty() => Ok(call),
                flags => Err(ErrorStatus::unsupported(flags)),
            }
        });
        let handled = match call {
            Ok(call) => services::handle(&self.port.node, self.port.role, &mut self.plans, call),
            Err(status) => Handled::Now(Answer::error(header.call_id, &status)),
        };
        match handled {
            Handled::Now(answer) => {
                let waiting = self.outbox.bytes() + self.held_bytes + answer.bytes();
                let fits = answer.bytes() <= UNCOUNTED_ANSWER_BYTES || self.count(waiting);
                self.hold(if fits { answer } else { refuse(header.call_id) });
            }
            Handled::Later(work) => self.run(work, request_room),
        }
        Ok(())
    }

    fn hold(&mut self, answer: Answer) {
        self.held_bytes += answer.bytes();
        self.held.push(answer);
    }

    fn run(&mut self, mut work: Work, request_room: Held) {
        let node = &self.port.node;
        let admitted = work.writes_to.is_none() || node.engine.admits();
        if admitted
            && work.is_short
            && let Done::Answer(answer) = (work.job)(May::WaitForNothing)
        {
            return self.hold(answer);
        }
        let Some(taken) = node.calls.take(&node.load, request_room, work.bytes + work.answer_bytes) else {
            return self.hold(refuse(work.call_id));
        };
        let (port, thread) = (self.port.clone(), self.thread);
        let expected = work.answer_bytes;
        self.expected += expected;
        self.calls.push(Box::pin(async move {
            let begun = Instant::now();
            let wait_max = work.timeout.map_or(ADMISSION_MAX, |timeout| timeout.min(ADMISSION_MAX));
            let admission = port.node.engine.admission();
            let answer = if !admitted && tokio::time::timeout(wait_max, admission).await.is_err() {
                Answer::error(work.call_id, &too_busy("memory is full"))
            } else {
                work.execute(begun, taken, &port.lines[thread]).await?
            };
            Ok(Finished { answers: settle(&port, thread, vec![answer]).await?, expected })
        }));
    }

    /// Has the answers sent that may be, and the others once they may.
    fn settle_held(&mut self) -> Result<()> {
        self.held_bytes = 0;
        let mut unsettled = Vec::new();
        for answer in self.held.drain(..) {
            if self.port.node.engine.is_settled(answer.obligation) {
                self.outbox.push(answer);
            } else {
                unsettled.push(answer);
            }
        }
        if unsettled.is_empty() {
            return Ok(());
        }
        let expected = unsettled.iter().map(Answer::bytes).sum();
        self.expected += expected;
        let (port, thread) = (self.port.clone(), self.thread);
        let settled =
            async move { Ok(Finished { answers: settle(&port, thread, unsettled).await?, expected }) };
        let mut settled = Box::pin(settled);
        // What write(2) alone settles is settled now, unless other clients may share it: those run before it is begun.
        let finished = if is_alone(&self.port, self.thread) { (&mut settled).now_or_never() } else { None };
        match finished {
            Some(finished) => self.send(finished?),
            None => self.calls.push(settled),
        }
        Ok(())
    }

    /// Takes in answers, and those that are ready too.
    fn collect(&mut self, finished: Finished) -> Result<()> {
        self.send(finished);
        while let Some(Some(finished)) = self.calls.next().now_or_never() {
            self.send(finished?);
        }
        Ok(())
    }

    fn send(&mut self, finished: Finished) {
        self.expected -= finished.expected;
        for mut answer in finished.answers {
            // What was held for the call is held for its answer until the next count.
            self.answers_room.merge(std::mem::take(&mut answer.room));
            self.outbox.push(answer);
        }
    }
}

fn refuse(call_id: i32) -> Answer {
    Answer::error(call_id, &too_busy("too many calls are under way"))
}

/// Whether the thread has no other client, which may have a write for the log too.
fn is_alone(port: &Port, thread: usize) -> bool {
    port.traffic.thread(thread).open() == 1
}

/// Waits until all that `answers` rest on is as durable as its tables ask for.
async fn settle(port: &Port, thread: usize, answers: Answers) -> Result<Answers> {
    let engine = &port.node.engine;
    let mut obligation = Obligation::default();
    answers.iter().for_each(|answer| obligation.merge(answer.obligation));
    if !engine.is_settled(obligation) {
        if !is_alone(port, thread) {
            // Clients that are ready too append to the log first, so that one write(2) serves all of them.
            tokio::task::yield_now().await;
        }
        engine.settled(obligation).await?;
    }
    Ok(answers)
}

pub(super) fn malformed(error: impl std::fmt::Display) -> Error {
    Error::invalid(error.to_string())
}
