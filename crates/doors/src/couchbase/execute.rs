//! Requests executed in windows, and answered in order.
//!
//! Requests about documents that follow each other are executed together; whatever else comes ends the window and is
//! executed after it, by itself.

use super::Shared;
use super::bootstrap;
use super::cluster::ClusterMap;
use super::datatype;
use super::feature::Feature;
use super::http;
use super::operation::{self, Context, Operation, Refusal};
use super::reply::{Answers, Asked};
use super::state::State;
use super::status::Status;
use super::subdoc::Edit;
use crate::binary_frame::{self, Frame, Header, Packet, Response};
use crate::store::needs;
use oribi_engine::{Catalog, Obligation};
use oribi_net::{Leave, Link, Progress};
use oribi_session::kv::{Action, Change, Key, Op, Round};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Requests that are executed together at most.
const WINDOW_OPS: usize = 128;

/// Where an advance came to its end.
pub struct Stopped {
    /// Bytes of the input that were executed.
    pub executed: usize,
    /// Bytes behind them that are to be dropped.
    pub skip: u64,
    pub progress: Progress,
}

impl Stopped {
    fn at(executed: usize, progress: Progress) -> Self {
        Stopped { executed, skip: 0, progress }
    }
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
    Dropped(Header, Refusal, u64),
    Lost,
}

/// An advance that is under way.
pub struct Execution<'e> {
    pub shared: &'e Shared,
    pub link: &'e Link,
    pub state: &'e mut State,
    /// Where in the output the answers begin that may come too late, and when that is.
    pub deadlines: &'e mut Vec<(usize, Instant)>,
    pub catalog: &'e Catalog,
    pub map: &'e ClusterMap,
    pub leave: Leave,
    pub round: Round<'e>,
    pub started: Instant,
    pub output: &'e mut Vec<u8>,
    pub obligation: Obligation,
    pub closing: &'e mut bool,
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
    pub fn advance(&mut self, input: &'e [u8]) -> Stopped {
        let mut executed = 0;
        loop {
            if self.leave.is_full(self.output.len()) {
                return Stopped::at(executed, Progress::OutputFull);
            }
            let mut window = Window::default();
            let mut end = executed;
            let last = self.collect(input, &mut end, &mut window);
            if let Err((ops, progress)) = self.run(&window) {
                let executed = if ops == 0 { executed } else { window.ends[ops - 1] };
                return Stopped::at(executed, progress);
            }
            executed = window.ends.last().copied().unwrap_or(executed);
            match last {
                End::Full => continue,
                End::Incomplete => return Stopped::at(executed, Progress::Done),
                End::Lost => {
                    match self.http(&input[executed..]) {
                        http::Asked::Incomplete => return Stopped::at(executed, Progress::Done),
                        http::Asked::ToCheck => return Stopped::at(executed, Progress::NeedsProcessor),
                        http::Asked::Request { answer, len } => {
                            self.output.extend_from_slice(answer.as_bytes());
                            self.state.http = http::Reader::default();
                            if let Some(len) = len {
                                executed += len;
                                continue;
                            }
                        }
                        http::Asked::Garbage => {}
                    }
                    *self.closing = true;
                    return Stopped::at(input.len(), Progress::Done);
                }
                End::Dropped(header, refusal, len) => {
                    self.answers().refuse(&header, &refusal);
                    return Stopped { executed, skip: len, progress: Progress::OutputFull };
                }
                End::Refused(header, refusal) if refusal.status == Status::NotMyVbucket => {
                    self.redirect(&header)
                }
                End::Refused(header, refusal) => self.answers().refuse(&header, &refusal),
                End::Alone(packet, operation) => {
                    if let Err(progress) = self.alone(&packet, operation) {
                        return Stopped::at(executed, progress);
                    }
                }
            }
            executed = end;
            if *self.closing {
                return Stopped::at(input.len(), Progress::Done);
            }
        }
    }

    /// Collects requests from `end` on, which is moved behind the last one, be it in the window or its end.
    fn collect(&mut self, input: &'e [u8], end: &mut usize, window: &mut Window<'e>) -> End<'e> {
        let now_micros = self.round.now_micros();
        let value_bytes_max = self.shared.packet_bytes_max(self.state);
        let context = Context::new(self.state, self.catalog, self.shared.kv.limits(), now_micros);
        while window.ops.len() < WINDOW_OPS {
            let (packet, len) = match binary_frame::decode(&input[*end..], value_bytes_max) {
                Frame::Incomplete => return End::Incomplete,
                Frame::Garbage => return End::Lost,
                Frame::TooLarge { header, len } => {
                    return End::Dropped(header, self.shared.too_large(self.state), len);
                }
                Frame::Malformed { header, len } => {
                    let refusal =
                        Refusal::new(Status::Invalid, "the parts of the request are longer than it");
                    return End::Dropped(header, refusal, len);
                }
                Frame::Packet { packet, len } => (packet, len),
            };
            *end += len;
            let admitted = self.shared.admits(self.state, self.map, &packet);
            match admitted.and_then(|()| context.understand(&packet)) {
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
            let mut answers = Answers::new(self.output, self.state.features, self.shared, self.started);
            let (started, deadlines) = (self.started, &mut *self.deadlines);
            let ran = self.round.run(ops, &mut |i, answer| {
                durable |= asked[i].must_be_durable();
                let begin = answers.output.len();
                answers.answer(&asked[i], &answer);
                note_deadline(&asked[i], started, begin..answers.output.len(), deadlines);
            });
            self.require(durable);
            done += ran.ops;
            if let Some(stop) = ran.stop {
                return Err((done, needs(stop)));
            }
            if ran.long_bytes > 0 {
                return Err((done, Progress::NeedsRoom(ran.long_bytes)));
            }
            if self.leave.is_full(self.output.len()) && done < window.ops.len() {
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
    pub fn settle(&mut self) -> Obligation {
        self.obligation.merge(self.round.obligation());
        self.obligation
    }

    fn http(&mut self, input: &[u8]) -> http::Asked {
        let (users, may_compute) = (&self.shared.users, self.leave.to_compute);
        let node = http::Node {
            lets_in: &|user, password| may_compute.then(|| users.knows(user, password)),
            is_open: users.is_open(),
            has_bucket: &|name| self.catalog.schemas().any(|schema| schema == name),
        };
        self.state.http.read(input, &node)
    }

    fn answers(&mut self) -> Answers<'_> {
        Answers::new(self.output, self.state.features, self.shared, self.started)
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
        let value = match agreed {
            true => datatype::inflate(packet.value, self.shared.packet_bytes_max(self.state)),
            false => Err(Refusal::new(Status::Invalid, "compression was not agreed on")),
        };
        let understood = value.and_then(|value| {
            let header = Header { datatype: packet.header.datatype & !datatype::SNAPPY, ..packet.header };
            let packet = Packet { header, value: &value, ..*packet };
            let now_micros = self.round.now_micros();
            let context = Context::new(self.state, self.catalog, self.shared.kv.limits(), now_micros);
            let operation = context.understand(&packet)?;
            Ok(self.alone(&packet, operation))
        });
        understood.unwrap_or_else(|refusal| {
            self.answers().refuse(&packet.header, &refusal);
            Ok(())
        })
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
        let change = Change { key, cas: operation::cas(packet), action };
        let outcomes = self.round.apply(std::slice::from_ref(&change)).map_err(needs)?;
        let outcome = outcomes.first().expect("an outcome for each change");
        self.require(asked.must_be_durable());
        let begin = self.output.len();
        self.answers().edited(asked, edit, outcome);
        note_deadline(asked, self.started, begin..self.output.len(), self.deadlines);
        Ok(())
    }

    /// A request that is about no document.
    fn other(&mut self, packet: &Packet<'_>) -> Result<(), Progress> {
        // The leave is for one.
        if bootstrap::computes(self.shared, packet) && !std::mem::take(&mut self.leave.to_compute) {
            return Err(Progress::NeedsProcessor);
        }
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
        let mut answers = Answers::new(self.output, self.state.features, self.shared, self.started);
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
