//! One client that has to wait for more than its next request, as a task: receives what it sends, has it executed, settles it,
//! answers it. After some rounds in which nothing was waited for, it is its loop's again.

use crate::computing;
use crate::crowd::unless_place_is_wanted;
use crate::exchange::RECEIVE_BYTES_MAX_IF_SCARCE;
use crate::guest::Guest;
use crate::listener::Place;
use crate::load::{Held, LONG_REQUEST_SILENCE_MAX};
use crate::turn::ByteTurn;
use crate::unsent::{SHORT_VALUE_BYTES_MAX, SHORT_VALUE_BYTES_MAX_IF_SCARCE, Unsent};
use crate::{Exchange, FrameRoom, Leave, Progress, Protocol, Service, Store, Waited, holds};
use futures::future::{BoxFuture, FutureExt, pending};
use futures::stream::{FuturesUnordered, StreamExt};
use oribi_types::{Error, Result};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) struct Connection<S: Service> {
    service: Arc<S>,
    thread: usize,
    place: Place,
    socket: TcpStream,
    client: Box<Client<S::Protocol>>,
    pushes: Option<watch::Receiver<u64>>,
    /// Room for a long answer.
    unsent: Option<Unsent>,
    /// For requests that wait to be executed, as far as there is any.
    parked: Held,
    turn: ByteTurn,
    /// How often the client was heard since the alarms were.
    unheard: u32,
    /// How many rounds there were since one that waited for anything, or was long.
    rounds: u32,
}

/// What goes along to a thread that may block.
pub(crate) struct Client<P: Protocol> {
    pub protocol: P,
    pub exchange: Exchange<P::Obligation>,
}

/// What ended the wait for a client.
enum Event {
    /// So many bytes; none: the client has left.
    Received(usize),
    /// There is something to push.
    Push,
    /// There is room to receive more.
    Room,
    /// The time that a client may be silent is over, if it has been.
    Silence,
    /// A client that began a long request, for which it has room that others want, was silent for too long.
    Stalled,
    Shutdown,
}

/// What else than its client a connection waits for. Each is looked at when it has woken the connection, and not
/// whenever the client has: they rest on locks that all threads share.
type Alarms = FuturesUnordered<BoxFuture<'static, Event>>;

/// A client that always has more to ask is heard so often before the alarms are.
const UNHEARD_MAX: u32 = 64;
/// After so many rounds that waited for nothing a client goes back to its loop: the way there and aside again costs as much as
/// some rounds do.
const ROUNDS_MAX: u32 = 16;
/// What asks for more at a time keeps its thread busy, and would fill its socket again.
const SHORT_ROUND_BYTES_MAX: usize = 4 << 10;

/// What can be had without waiting. Nearly always there is room for writes.
pub(crate) fn leave_at_once(service: &impl Service) -> Leave {
    Leave {
        to_block: false,
        to_write: service.store().admits(),
        to_compute: false,
        to_answer: short_answer_bytes(service),
    }
}

/// Up to how long answers are made without asking for room: where little of it is left, those that are not read should be short.
fn short_answer_bytes(service: &impl Service) -> usize {
    match service.loads().answers.is_scarce() {
        true => SHORT_VALUE_BYTES_MAX_IF_SCARCE,
        false => SHORT_VALUE_BYTES_MAX,
    }
}

/// The most to be received at once.
pub(crate) fn receive_bytes_max(service: &impl Service) -> usize {
    match service.loads().requests.is_scarce() {
        true => RECEIVE_BYTES_MAX_IF_SCARCE,
        false => usize::MAX,
    }
}

impl<S: Service> Connection<S> {
    /// # Errors
    /// Those of the system.
    pub fn new(service: Arc<S>, guest: Guest<S>) -> Result<Self> {
        let Guest { place, socket, client, pushes } = guest;
        let (thread, socket) = (place.thread(), TcpStream::from_std(socket)?);
        let (unsent, parked) = (None, Held::default());
        Ok(Connection {
            service,
            thread,
            place,
            socket,
            client,
            pushes,
            unsent,
            parked,
            turn: ByteTurn::default(),
            unheard: 0,
            rounds: 0,
        })
    }

    /// Goes on where executing its requests came to `progress`, and serves the client until it leaves, stays idle for longer
    /// than it may, or the door shuts; or until it has nothing to wait for, and is returned. Requests that were executed are
    /// answered first.
    ///
    /// # Errors
    /// Those of the socket, and of a store that cannot keep what it was told any more: then nobody is answered.
    pub async fn serve(
        mut self,
        progress: Progress,
        idle_max: Option<Duration>,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Option<Guest<S>>> {
        let leave = leave_at_once(&*self.service);
        self = self.finish(progress, leave, 0).await?;
        let mut alarms = Alarms::new();
        alarms.push(shut(shutdown.clone()).boxed());
        self.pushes.clone().into_iter().for_each(|pushes| alarms.push(changed(pushes).boxed()));
        let later = || idle_max.and_then(|time| Instant::now().checked_add(time));
        let mut silent_until = later();
        silent_until.into_iter().for_each(|until| alarms.push(silence(until).boxed()));
        let mut room = FrameRoom::default();
        while !self.client.exchange.closing {
            if self.rounds >= ROUNDS_MAX && !*shutdown.borrow() {
                return self.into_guest().map(Some);
            }
            let event = match self.client.exchange.is_long() {
                false => poll_fn(|context| self.poll_event(&mut alarms, context)).await?,
                true => self.event_of_long_request(&mut room, &mut alarms).await?,
            };
            match event {
                Event::Received(0) | Event::Shutdown => return Ok(None),
                Event::Received(bytes) => {
                    self = self.execute(room.bytes()).await?;
                    if bytes > SHORT_ROUND_BYTES_MAX || self.client.exchange.is_long() {
                        self.rounds = 0;
                    }
                    if !self.client.exchange.is_long() {
                        room.release();
                    }
                    self.turn.pass(bytes).await;
                }
                Event::Room => {}
                Event::Push => {
                    if let Some(pushes) = &mut self.pushes {
                        pushes.mark_unchanged();
                        alarms.push(changed(pushes.clone()).boxed());
                    }
                    self.client.protocol.push(&mut self.client.exchange);
                    self.answer().await?;
                }
                Event::Silence => {
                    if room.is_awaited() {
                        // It would be read from.
                        silent_until = later();
                    }
                    // What came in time moved the end of the time, and not the alarm.
                    match silent_until {
                        Some(until) if Instant::now() < until => alarms.push(silence(until).boxed()),
                        _ => return self.give_up(),
                    }
                    continue;
                }
                Event::Stalled => return self.give_up(),
            }
            silent_until = later();
        }
        Ok(None)
    }

    fn into_guest(mut self) -> Result<Guest<S>> {
        self.client.exchange.return_buffers();
        let Connection { place, socket, client, pushes, .. } = self;
        Ok(Guest { place, socket: socket.into_std()?, client, pushes })
    }

    /// The client was silent for too long.
    fn give_up(&self) -> Result<Option<Guest<S>>> {
        self.service.traffic().thread(self.thread).idle.add(1);
        Ok(None)
    }

    /// Receives more of a request that is long if there is room for it, or waits for that.
    async fn event_of_long_request(&mut self, room: &mut FrameRoom, alarms: &mut Alarms) -> Result<Event> {
        let receives = room.has_for_input(&self.service.loads().requests, &mut self.client.exchange);
        let event = poll_fn(|context| match receives {
            true => self.poll_event(alarms, context),
            false => alarms.poll_next_unpin(context).map(|event| Ok(event.unwrap_or(Event::Shutdown))),
        });
        let event = tokio::select! {
            biased;
            event = event => event?,
            waited = room.wait(receives) => return Ok(match waited {
                Waited::HasRoom => Event::Room,
                Waited::TurnOver => Event::Stalled,
            }),
            () = tokio::time::sleep(LONG_REQUEST_SILENCE_MAX), if receives => return Ok(Event::Stalled),
        };
        if let Event::Received(_) = event {
            room.used();
        }
        Ok(event)
    }

    /// Receives what has arrived. Buffers are held while the client is served, and not while it is waited for.
    fn poll_event(&mut self, alarms: &mut Alarms, context: &mut Context<'_>) -> Poll<Result<Event>> {
        if self.unheard >= UNHEARD_MAX {
            self.unheard = 0;
            if let Poll::Ready(event) = alarms.poll_next_unpin(context) {
                return Poll::Ready(Ok(event.unwrap_or(Event::Shutdown)));
            }
        }
        let exchange = &mut self.client.exchange;
        exchange.borrow_buffers();
        // Having received less than there was room for, the socket knows that it is empty without another recv(2).
        let space = exchange.space(receive_bytes_max(&*self.service));
        if let Poll::Ready(received) = pin!(self.socket.read(space)).poll(context) {
            let received = received?;
            self.service.traffic().thread(self.thread).received_bytes.add(received as u64);
            exchange.received(received);
            self.unheard += 1;
            return Poll::Ready(Ok(Event::Received(received)));
        }
        exchange.return_buffers();
        self.unheard = 0;
        alarms.poll_next_unpin(context).map(|event| Ok(event.unwrap_or(Event::Shutdown)))
    }

    /// Executes and answers whatever is whole of what has come, of which so many bytes are counted.
    async fn execute(mut self, counted: usize) -> Result<Self> {
        let leave = leave_at_once(&*self.service);
        let progress = self.client.advance(leave);
        self.finish(progress, leave, counted).await
    }

    /// Answers what was executed, and executes and answers what is left of what is whole.
    async fn finish(mut self, mut progress: Progress, mut leave: Leave, counted: usize) -> Result<Self> {
        self.rounds = if progress == Progress::Done { self.rounds + 1 } else { 0 };
        let mut tries = 0;
        loop {
            match progress {
                Progress::Done => {
                    self.parked.shrink(0);
                    self.answer().await?;
                    return Ok(self);
                }
                Progress::OutputFull => {
                    self.answer().await?;
                    leave.to_answer = short_answer_bytes(&*self.service);
                }
                Progress::NeedsRoom(bytes) => {
                    self.make_way(&mut leave, counted).await?;
                    let traffic = self.service.traffic();
                    let room =
                        Unsent::with_room(&self.service.loads().answers, bytes, &traffic.unsent_metric);
                    self.unsent = Some(unless_place_is_wanted(room, &self.socket, traffic).await?);
                    leave.to_answer = bytes;
                }
                Progress::NeedsAdmission => {
                    self.make_way(&mut leave, counted).await?;
                    let admission = self.service.store().admission();
                    unless_place_is_wanted(admission, &self.socket, self.service.traffic()).await?;
                    leave.to_write = true;
                }
                Progress::NeedsTurn => {
                    self.make_way(&mut leave, counted).await?;
                    let turn = self.service.store().turn(tries);
                    unless_place_is_wanted(turn, &self.socket, self.service.traffic()).await?;
                    tries += 1;
                }
                Progress::NeedsBlocking => {
                    self.make_way_if_answered(&mut leave, counted).await?;
                    // The rest goes along: it is more likely to need files too than to be worth a way back.
                    (self, progress) = self.advance_elsewhere(Leave { to_block: true, ..leave }).await?;
                    continue;
                }
                Progress::NeedsProcessor => {
                    self.make_way_if_answered(&mut leave, counted).await?;
                    let _place = computing::place().await;
                    (self, progress) = self.advance_elsewhere(Leave { to_compute: true, ..leave }).await?;
                    continue;
                }
            }
            progress = self.client.advance(leave);
        }
    }

    /// Makes ready to wait with requests that were not executed: those before them are answered, and the room that there was for a long
    /// answer is others' meanwhile.
    async fn make_way(&mut self, leave: &mut Leave, counted: usize) -> Result<()> {
        self.answer().await?;
        leave.to_answer = short_answer_bytes(&*self.service);
        self.park(counted);
        Ok(())
    }

    /// Likewise, but that room which has been asked for the next request is kept: it may be in a file, and be read there.
    async fn make_way_if_answered(&mut self, leave: &mut Leave, counted: usize) -> Result<()> {
        if !self.client.exchange.output.is_empty() {
            return self.make_way(leave, counted).await;
        }
        self.park(counted);
        Ok(())
    }

    /// Keeps requests that were not executed without a buffer of the thread's; where they are long, they count as requests that are
    /// being received do, as far as there is room. If that becomes scarce, less is received of others. `counted` are those bytes that
    /// count already.
    fn park(&mut self, counted: usize) {
        let exchange = &mut self.client.exchange;
        if counted > 0 {
            return exchange.return_buffers();
        }
        exchange.park();
        if exchange.is_long() {
            self.parked.grow(&self.service.loads().requests, exchange.input.capacity());
        }
    }

    /// Executes what it can on a thread that serves nobody.
    async fn advance_elsewhere(mut self, leave: Leave) -> Result<(Self, Progress)> {
        let mut client = self.client;
        let run = move || {
            let progress = client.advance(leave);
            (client, progress)
        };
        let ran = tokio::task::spawn_blocking(run).await;
        let progress;
        (self.client, progress) = ran.map_err(|e| Error::internal(format!("{} requests: {e}", S::NAME)))?;
        Ok((self, progress))
    }

    /// Sends what was answered, once all that it rests on is as durable as its tables ask for.
    async fn answer(&mut self) -> Result<()> {
        let Client { protocol, exchange } = &mut *self.client;
        // What turned out to be short needs none.
        let unsent = self.unsent.take().filter(|_| exchange.output.len() > SHORT_VALUE_BYTES_MAX);
        let (store, traffic) = (self.service.store(), self.service.traffic().thread(self.thread));
        if !store.is_settled(exchange.obligation) {
            if exchange.input.is_empty() {
                exchange.return_buffers();
            }
            if traffic.open() > 1 {
                // Clients that are ready too append to the log first, so that one write(2) serves all of them.
                tokio::task::yield_now().await;
            }
            let settled = store.settled(exchange.obligation);
            if !store.is_settled(exchange.obligation) {
                self.rounds = 0;
            }
            settled.await?;
        }
        protocol.settled(exchange);
        let loads = self.service.loads();
        let sent = match unsent {
            None if exchange.output.is_empty() => 0,
            None => self.socket.write(&exchange.output).now_or_never().transpose()?.unwrap_or(0),
            Some(_) => 0,
        };
        if sent < exchange.output.len() {
            let metric = &self.service.traffic().unsent_metric;
            let unsent =
                unsent.unwrap_or_else(|| Unsent::rest(&loads.answers, exchange.output.len(), metric));
            unsent.send(&mut self.socket, &exchange.output[sent..], &mut self.turn).await?;
        }
        traffic.sent_bytes.add(exchange.output.len() as u64);
        exchange.sent();
        Ok(())
    }
}

impl<P: Protocol> Client<P> {
    pub fn advance(&mut self, leave: Leave) -> Progress {
        self.protocol.advance(&mut self.exchange, leave)
    }
}

async fn shut(mut shutdown: watch::Receiver<bool>) -> Event {
    holds(&mut shutdown).await;
    // What its client sent before is known once the runtime has asked for it.
    tokio::task::yield_now().await;
    Event::Shutdown
}

async fn changed(mut pushes: watch::Receiver<u64>) -> Event {
    match pushes.changed().await {
        Ok(()) => Event::Push,
        // Nobody is left to push anything.
        Err(_) => pending().await,
    }
}

async fn silence(until: Instant) -> Event {
    tokio::time::sleep_until(until).await;
    Event::Silence
}
