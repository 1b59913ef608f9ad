//! One client: its requests in windows, executed together and answered in order.

use super::Shared;
use super::bootstrap;
use super::cluster::ClusterMap;
use super::datatype;
use super::feature::Feature;
use super::operation::{Context, Operation, Refusal};
use super::reply::{Answers, Asked};
use super::state::State;
use super::status::Status;
use super::subdoc::Edit;
use crate::binary_frame::{self, Frame, Header, Packet, Response};
use crate::runtime::{Exchange, Leave, Link, OUTPUT_BYTES_MAX, Progress, Protocol};
use bytes::Buf;
use oribi_engine::{Catalog, Obligation};
use oribi_session::kv::{Action, Change, Key, Op, Round};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Requests that are executed together at most.
const WINDOW_OPS: usize = 128;

pub struct Client {
    shared: Arc<Shared>,
    link: Link,
    state: State,
    /// Where in the output the answers begin that may come too late, and when that is.
    deadlines: Vec<(usize, Instant)>,
}

impl Client {
    pub fn new(shared: Arc<Shared>, link: Link) -> Self {
        Client { shared, link, state: State::default(), deadlines: Vec::new() }
    }
}

impl Protocol for Client {
    fn advance(&mut self, exchange: &mut Exchange, leave: Leave) -> Progress {
        let started = Instant::now();
        let catalog = self.shared.kv.engine().catalog();
        let map = self.shared.cluster.map();
        let shared = self.shared.clone();
        let round = shared.kv.round(leave.to_block);
        let Exchange { input, output, obligation, closing, .. } = exchange;
        let mut execution = Execution {
            shared: &shared,
            link: &self.link,
            state: &mut self.state,
            deadlines: &mut self.deadlines,
            catalog: &catalog,
            map: &map,
            leave,
            round,
            started,
            output,
            obligation: Obligation::default(),
            closing,
        };
        let mut stopped = execution.advance(&input[..]);
        obligation.merge(execution.settle());
        let arrived = stopped.executed.min(input.len());
        input.advance(arrived);
        exchange.skip(stopped.skip);
        stopped.progress.take().unwrap_or(Progress::Done)
    }

    fn settled(&mut self, exchange: &mut Exchange) {
        const STATUS: Range<usize> = 6..8;
        if self.deadlines.is_empty() {
            return;
        }
        let now = Instant::now();
        let late = (Status::SyncWriteAmbiguous as u16).to_be_bytes();
        for (answer, _) in self.deadlines.drain(..).filter(|(_, deadline)| *deadline <= now) {
            let status = &mut exchange.output[answer..][STATUS];
            if *status == [0, 0] {
                status.copy_from_slice(&late);
            }
        }
    }

    fn pushes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.shared.cluster.changes())
    }

    fn push(&mut self, exchange: &mut Exchange) {
        bootstrap::push_map(&self.shared, &mut self.state, &mut exchange.output);
    }
}

/// Where an advance came to its end.
#[derive(Default)]
struct Stopped {
    /// Bytes of the input that were executed.
    executed: usize,
    /// Bytes behind them that are to be dropped.
    skip: u64,
    /// `None`: whatever is whole was executed.
    progress: Option<Progress>,
}

/// What ends a window.
enum End<'a> {
    /// It is full, or nothing more is whole.
    Full,
    Incomplete,
    /// A request that is executed by itself.
    Alone(Packet<'a>, Operation<'a>),
    Refused(Header, Refusal),
    /// A request whose bytes are to be dropped.
    Dropped(Header, Status, u64),
    Lost,
}

struct Execution<'e> {
    shared: &'e Shared,
    link: &'e Link,
    state: &'e mut State,
    deadlines: &'e mut Vec<(usize, Instant)>,
    catalog: &'e Catalog,
    map: &'e ClusterMap,
    leave: Leave,
    round: Round<'e>,
    started: Instant,
    output: &'e mut Vec<u8>,
    obligation: Obligation,
    closing: &'e mut bool,
}

/// Requests that are executed together, how each is answered, and where each ends in the input.
#[derive(Default)]
struct Window<'a> {
    ops: Vec<Op<'a>>,
    asked: Vec<Asked<'a>>,
    ends: Vec<usize>,
}

impl<'e> Execution<'e> {
    /// Executes what is whole in `input`.
    fn advance(&mut self, input: &'e [u8]) -> Stopped {
        let mut executed = 0;
        let stop = |executed, progress| Stopped { executed, skip: 0, progress: Some(progress) };
        loop {
            if self.output.len() > OUTPUT_BYTES_MAX {
                return stop(executed, Progress::OutputFull);
            }
            let mut window = Window::default();
            let mut end = executed;
            let last = self.collect(input, &mut end, &mut window);
            if let Err((ops, progress)) = self.run(&window) {
                let executed = if ops == 0 { executed } else { window.ends[ops - 1] };
                return stop(executed, progress);
            }
            executed = window.ends.last().copied().unwrap_or(executed);
            match last {
                End::Full => continue,
                End::Incomplete => return Stopped { executed, ..Stopped::default() },
                End::Lost => {
                    *self.closing = true;
                    return Stopped { executed: input.len(), ..Stopped::default() };
                }
                End::Dropped(header, status, len) => {
                    self.answers().status(&header, status);
                    return Stopped { executed, skip: len, progress: Some(Progress::OutputFull) };
                }
                End::Refused(header, refusal) if refusal.status == Status::NotMyVbucket => {
                    self.redirect(&header)
                }
                End::Refused(header, refusal) => self.answers().refuse(&header, &refusal),
                End::Alone(packet, operation) => {
                    if let Err(progress) = self.alone(&packet, operation) {
                        return stop(executed, progress);
                    }
                }
            }
            executed = end;
            if *self.closing {
                return Stopped { executed: input.len(), ..Stopped::default() };
            }
        }
    }

    /// Collects requests from `end` on, which is moved behind the last one, be it in the window or its end.
    fn collect(&mut self, input: &'e [u8], end: &mut usize, window: &mut Window<'e>) -> End<'e> {
        let limits = self.shared.kv.limits();
        let now_micros = self.round.now_micros();
        let context = Context { state: self.state, catalog: self.catalog, limits, now_micros };
        while window.ops.len() < WINDOW_OPS {
            let (packet, len) = match binary_frame::decode(&input[*end..], self.shared.packet_bytes_max()) {
                Frame::Incomplete => return End::Incomplete,
                Frame::Garbage => return End::Lost,
                Frame::TooLarge { header, len } => return End::Dropped(header, Status::TooLarge, len),
                Frame::Malformed { header, len } => return End::Dropped(header, Status::Invalid, len),
                Frame::Packet { packet, len } => (packet, len),
            };
            *end += len;
            match self
                .shared
                .admits(context.state, self.map, &packet)
                .and_then(|()| context.understand(&packet))
            {
                Ok(Operation::One(op, asked)) => {
                    window.ops.push(op);
                    window.asked.push(asked);
                    window.ends.push(*end);
                }
                Ok(operation) => return End::Alone(packet, operation),
                Err(refusal) => return End::Refused(packet.header, refusal),
            }
        }
        End::Full
    }

    /// Executes and answers all of `window`.
    ///
    /// # Errors
    /// How many requests were executed, and why no more.
    fn run(&mut self, window: &Window<'_>) -> Result<(), (usize, Progress)> {
        let mut done = 0;
        while done < window.ops.len() {
            let ops = &window.ops[done..];
            let ops = match self.leave.to_write {
                true => ops,
                // What comes before the first that writes needs nobody's leave.
                false => &ops[..ops.iter().position(|op| matches!(op, Op::Change(_))).unwrap_or(ops.len())],
            };
            if ops.is_empty() {
                return Err((done, Progress::NeedsAdmission));
            }
            let asked = &window.asked[done..];
            let mut durable = false;
            let mut answers = Answers {
                output: self.output,
                features: self.state.features,
                duration: None,
                vbucket_uuid: self.shared.vbucket_uuid,
                now_micros: self.shared.kv.now_micros(),
            };
            let (started, deadlines) = (self.started, &mut *self.deadlines);
            let ran = self.round.run(ops, &mut |i, answer| {
                // Measured once for what is executed together.
                if i == 0 && answers.features.has(Feature::Durations) {
                    answers.duration = Some(server_duration(started.elapsed()));
                }
                durable |= asked[i].must_be_durable();
                let begin = answers.output.len();
                answers.answer(&asked[i], &answer);
                note_deadline(&asked[i], started, begin..answers.output.len(), deadlines);
            });
            self.require(durable);
            done += ran.ops;
            if ran.pending {
                return Err((done, Progress::NeedsBlocking));
            }
            if self.output.len() > OUTPUT_BYTES_MAX && done < window.ops.len() {
                return Err((done, Progress::OutputFull));
            }
        }
        Ok(())
    }

    /// Notes that what was answered must be on the disk before it is sent.
    fn require(&mut self, durable: bool) {
        if durable {
            self.obligation.merge(self.round.obligation().must_be_durable());
        }
    }

    /// What must be settled before the answers are sent.
    fn settle(&mut self) -> Obligation {
        self.obligation.merge(self.round.obligation());
        self.obligation
    }

    fn answers(&mut self) -> Answers<'_> {
        let features = self.state.features;
        Answers {
            output: self.output,
            features,
            duration: features.has(Feature::Durations).then(|| server_duration(self.started.elapsed())),
            vbucket_uuid: self.shared.vbucket_uuid,
            now_micros: self.shared.kv.now_micros(),
        }
    }

    /// Tells the client which node has the vbucket, unless it knows.
    fn redirect(&mut self, header: &Header) {
        let knows = self.state.sent_map == Some(self.map.version);
        let config = match knows && self.state.features.has(Feature::KnownMapOnRefusal) {
            true => String::new(),
            false => bootstrap::config(self.map, self.state),
        };
        self.state.sent_map = Some(self.map.version);
        let response = Response::new(header, Status::NotMyVbucket as u16);
        self.answers().write(Response { datatype: datatype::JSON, value: config.as_bytes(), ..response });
    }

    /// Executes a request by itself.
    fn alone(&mut self, packet: &Packet<'_>, operation: Operation<'_>) -> Result<(), Progress> {
        match operation {
            Operation::Other => self.other(packet),
            Operation::Edit(key, edit, asked) => self.edit(key, packet, &edit, &asked),
            Operation::Compressed => self.compressed(packet),
            Operation::One(op, asked) => {
                let window = Window { ops: vec![op], asked: vec![asked], ends: vec![0] };
                self.run(&window).map_err(|(_, progress)| progress)
            }
        }
    }

    /// Executes a request whose value is compressed as the one that it is without.
    fn compressed(&mut self, packet: &Packet<'_>) -> Result<(), Progress> {
        let features = self.state.features;
        let agreed = features.has(Feature::Snappy) || features.has(Feature::SnappyEverywhere);
        let value = datatype::inflate(packet.value, self.shared.packet_bytes_max()).filter(|_| agreed);
        let Some(value) = value else {
            let refusal = Refusal::new(Status::Invalid, "the value is not compressed as it says");
            self.answers().refuse(&packet.header, &refusal);
            return Ok(());
        };
        let header = Header { datatype: packet.header.datatype & !datatype::SNAPPY, ..packet.header };
        let packet = Packet { header, value: &value, ..*packet };
        let (limits, now_micros) = (self.shared.kv.limits(), self.round.now_micros());
        let context = Context { state: self.state, catalog: self.catalog, limits, now_micros };
        match context.understand(&packet) {
            Ok(operation) => self.alone(&packet, operation),
            Err(refusal) => {
                self.answers().refuse(&packet.header, &refusal);
                Ok(())
            }
        }
    }

    fn edit(
        &mut self,
        key: Key<'_>,
        packet: &Packet<'_>,
        edit: &Edit<'_>,
        asked: &Asked<'_>,
    ) -> Result<(), Progress> {
        if !self.leave.to_write {
            return Err(Progress::NeedsAdmission);
        }
        let Edit { mutations, mode, expiry, .. } = edit;
        let action = Action::Edit { mutations, mode: *mode, expiry: *expiry };
        let change = Change { key, cas: super::operation::cas(packet), action };
        let outcomes = self.round.apply(std::slice::from_ref(&change)).ok_or(Progress::NeedsBlocking)?;
        let outcome = outcomes.first().expect("an outcome for each change");
        self.require(asked.must_be_durable());
        let begin = self.output.len();
        self.answers().edited(asked, edit, outcome);
        note_deadline(asked, self.started, begin..self.output.len(), self.deadlines);
        Ok(())
    }

    /// A request that is about no document.
    fn other(&mut self, packet: &Packet<'_>) -> Result<(), Progress> {
        let mut request = bootstrap::Request {
            shared: self.shared,
            link: self.link,
            catalog: self.catalog,
            map: self.map,
            packet,
            closing: self.closing,
            obligation: &mut self.obligation,
        };
        // A feature that is agreed on now is not yet that of this answer.
        let features = self.state.features;
        let mut answers = Answers {
            output: self.output,
            features,
            duration: features.has(Feature::Durations).then(|| server_duration(self.started.elapsed())),
            vbucket_uuid: self.shared.vbucket_uuid,
            now_micros: 0,
        };
        request.execute(self.state, &mut answers);
        Ok(())
    }
}

/// Notes when `answer`, if there is one, comes too late.
fn note_deadline(
    asked: &Asked<'_>,
    started: Instant,
    answer: Range<usize>,
    deadlines: &mut Vec<(usize, Instant)>,
) {
    let timeout_ms = asked.durability.and_then(|durability| durability.timeout_ms);
    if let Some(ms) = timeout_ms.filter(|_| !answer.is_empty()) {
        deadlines.push((answer.start, started + Duration::from_millis(u64::from(ms))));
    }
}

/// The encoding of a duration that fits 16 bits: precise when it is short, up to two minutes when it is long.
fn server_duration(duration: Duration) -> u16 {
    let micros = duration.as_micros() as f64;
    (micros * 2.0).powf(1.0 / 1.74).round().min(f64::from(u16::MAX)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_span_two_minutes() {
        assert_eq!(server_duration(Duration::ZERO), 0);
        let decoded = |encoded: u16| f64::from(encoded).powf(1.74) / 2.0;
        for micros in [100.0, 1000.0, 1_000_000.0, 100_000_000.0f64] {
            let encoded = server_duration(Duration::from_micros(micros as u64));
            assert!((decoded(encoded) - micros).abs() <= micros * 0.1, "{micros}: {encoded}");
        }
        assert_eq!(server_duration(Duration::from_secs(1 << 20)), u16::MAX);
    }
}
