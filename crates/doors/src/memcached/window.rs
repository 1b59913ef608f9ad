//! Requests that arrived together: collected, executed together, answered in order.
//!
//! Whatever protocol a request came in, it becomes an operation and a [`Reply`] that says how to answer it; what needs
//! no operation is a reply alone, and keeps its place among the others. A request counts as consumed once it is
//! answered: what was collected and could not be executed is decoded again, when it can.
//!
//! A request that came by itself, as those of many clients do, is executed on the spot.

use super::Shared;
use super::codec::MetaVerb;
use super::meta;
use super::reply::{Answers, Reply};
use super::stats::Listed;
use crate::store::needs;
use oribi_engine::Obligation;
use oribi_net::{Leave, Progress};
use oribi_session::kv::{Action, Answer, Change, Expiry, Got, Key, Op, Round};
use oribi_types::ErrorKind;
use std::cell::RefCell;
use std::time::Duration;

/// `Err`: why requests were not executed. They are to be given again.
pub type Step = Result<(), Progress>;

/// How many operations are collected before they are executed. More than one window of the session's, since those may
/// end early; few enough to be in the processor's nearest caches.
pub const OPS_MAX: usize = 256;

pub struct Window<'b> {
    pub shared: &'b Shared,
    pub leave: Leave,
    pub round: Round<'b>,
    pub answers: Answers<'b>,
    /// Where the request that is being collected ends.
    pub end: usize,
    /// Where the input does.
    input_end: usize,
    ops: Vec<Op<'b>>,
    items: Vec<Item<'b>>,
    done: Done,
}

/// A reply in its place.
struct Item<'b> {
    reply: Reply<'b>,
    /// Where the input has been executed to once this is answered.
    end: usize,
}

/// What was executed and answered.
#[derive(Default)]
struct Done {
    /// How much of the input.
    consumed: usize,
    /// How many replies of those collected last.
    replies: usize,
    /// What those beyond the round's own operations rest on.
    obligation: Obligation,
}

thread_local! {
    /// Vectors for the next window of this thread, empty.
    static IDLE: RefCell<(Vec<Op<'static>>, Vec<Item<'static>>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl<'b> Window<'b> {
    /// For an input of so many bytes, of a client whose answers so far rest on `owed`.
    pub fn new(
        shared: &'b Shared,
        leave: Leave,
        owed: Obligation,
        input_bytes: usize,
        output: &'b mut Vec<u8>,
    ) -> Self {
        let (ops, items) = IDLE.take();
        let mut round = shared.kv.round(leave.to_block).trying();
        round.answer_at_most(leave.to_answer);
        round.rest_on(owed);
        Window {
            shared,
            leave,
            round,
            answers: Answers::new(output),
            end: 0,
            input_end: input_bytes,
            ops: ops.into_iter().map(|_| unreachable!("it is empty")).collect(),
            items: items.into_iter().map(|_| unreachable!("it is empty")).collect(),
            done: Done::default(),
        }
    }

    pub fn output_is_full(&self) -> bool {
        self.leave.is_full(self.answers.output.len())
    }

    /// How much of the input was executed, and what must be settled before the answers are sent.
    pub fn finish(mut self) -> (usize, Obligation) {
        self.shared.counters.add(&self.answers.tally);
        self.done.obligation.merge(self.round.obligation());
        self.ops.clear();
        self.items.clear();
        // Collecting nothing from a vector keeps its allocation.
        let ops = self.ops.into_iter().map(|_| unreachable!("it is empty")).collect();
        let items = self.items.into_iter().map(|_| unreachable!("it is empty")).collect();
        IDLE.set((ops, items));
        (self.done.consumed, self.done.obligation)
    }

    /// The expiry that a client states in seconds.
    pub fn expiry(&mut self, seconds: i64) -> Expiry {
        self.shared.kv.limits().expiry(seconds, self.round.now_micros())
    }

    /// Takes a request that needs no operation.
    pub fn say(&mut self, reply: Reply<'b>) -> Step {
        self.items.push(Item { reply, end: self.end });
        self.flush_if_full()
    }

    /// Takes an operation.
    pub fn push(&mut self, op: Op<'b>, reply: Reply<'b>) -> Step {
        let is_alone = self.items.is_empty() && self.end == self.input_end;
        if is_alone && self.executes_alone(&op, &reply) {
            self.conclude();
            return Ok(());
        }
        self.collect(op, reply)?;
        self.flush_if_full()
    }

    /// Executes and answers an operation with which no other is in hand, if it is one of those that most are and needs
    /// neither a file nor room.
    fn executes_alone(&mut self, op: &Op<'_>, reply: &Reply<'_>) -> bool {
        let Window { round, answers, leave, .. } = self;
        match op {
            // One of `mg` may turn out to be a change.
            Op::Get(_) if matches!(reply, Reply::Meta { .. }) => false,
            Op::Get(key) => {
                let got = round.get(*key, |document| {
                    let fits = document.value.len() <= leave.to_answer;
                    if fits {
                        answers.answer(reply, &Answer::Found(document));
                    }
                    fits
                });
                if let Ok(Got::Absent) = got {
                    answers.answer(reply, &Answer::Absent);
                }
                matches!(got, Ok(Got::Found(true) | Got::Absent))
            }
            Op::Change(change @ Change { action: Action::Store { .. }, .. }) if leave.to_write => {
                let Ok(outcomes) = round.apply(std::slice::from_ref(change)) else { return false };
                outcomes.iter().for_each(|outcome| answers.answer(reply, &Answer::Changed(outcome)));
                true
            }
            Op::Change(_) => false,
        }
    }

    /// Takes an operation, and leaves it to the caller to [`flush`](Self::flush).
    pub fn collect(&mut self, op: Op<'b>, reply: Reply<'b>) -> Step {
        self.admit(&op)?;
        self.ops.push(op);
        self.items.push(Item { reply, end: self.end });
        Ok(())
    }

    pub fn collected(&self) -> usize {
        self.items.len()
    }

    /// Executes an operation that borrows from elsewhere than the input, by itself.
    pub fn push_alone(&mut self, op: Op<'_>, reply: Reply<'_>) -> Step {
        self.flush()?;
        self.admit(&op)?;
        self.answers.now_micros = self.round.now_micros();
        let items = [Item { reply, end: self.end }];
        run_all(self.shared, &mut self.round, self.leave, &[op], &items, &mut self.answers, &mut self.done)
    }

    /// Counts the current request as answered, when all before it are.
    pub fn conclude(&mut self) {
        self.done.consumed = self.end;
    }

    /// `flush_all`: `Ok` of what became of it.
    pub fn flush_all(&mut self, exptime: i64) -> Result<oribi_types::Result<()>, Progress> {
        self.flush()?;
        if !self.leave.to_block {
            return Err(Progress::NeedsBlocking);
        }
        let now = self.round.now_micros() as i64;
        let flushed = match self.expiry(exptime) {
            Expiry::At(at) if at > now => {
                self.shared.kv.flush_after(Duration::from_micros((at - now) as u64));
                Ok(())
            }
            Expiry::At(_) | Expiry::Never | Expiry::Keep => self.shared.kv.flush(),
        };
        if matches!(&flushed, Err(error) if error.kind() == ErrorKind::WouldBlock) {
            return Err(Progress::NeedsTurn);
        }
        self.answers.tally.cmd_flush += 1;
        self.round.refresh();
        self.conclude();
        Ok(flushed)
    }

    /// Has `say` append each statistic of `topic`, when all that was collected is flushed.
    pub fn list(&mut self, topic: &[u8], say: &dyn Fn(&str, &str, &mut Vec<u8>)) -> Listed {
        // What this window did is in them.
        self.shared.counters.add(&std::mem::take(&mut self.answers.tally));
        let output = &mut *self.answers.output;
        let listed =
            self.shared.stats.list(topic, &self.shared.kv, &mut |name, value| say(name, value, output));
        self.conclude();
        listed
    }

    /// Makes sure that `op` may write, if it does.
    fn admit(&mut self, op: &Op<'_>) -> Step {
        if matches!(op, Op::Change(_)) { self.admit_write() } else { Ok(()) }
    }

    pub fn admit_write(&mut self) -> Step {
        if self.leave.to_write {
            return Ok(());
        }
        self.flush()?;
        Err(Progress::NeedsAdmission)
    }

    /// Executes and answers what was collected. If that stops on the way, the rest is forgotten, and not consumed.
    pub fn flush(&mut self) -> Step {
        self.done.replies = 0;
        self.answers.now_micros = self.round.now_micros();
        let (ops, items) = (&self.ops[..], &self.items[..]);
        let step =
            run_all(self.shared, &mut self.round, self.leave, ops, items, &mut self.answers, &mut self.done);
        self.ops.clear();
        self.items.clear();
        step
    }

    /// How many of the replies that were flushed last were answered.
    pub fn answered(&self) -> usize {
        self.done.replies
    }

    fn flush_if_full(&mut self) -> Step {
        if self.items.len() < OPS_MAX { Ok(()) } else { self.flush() }
    }
}

/// Executes `ops` as far as it can, and answers as far as they are executed.
fn run_all<'b>(
    shared: &Shared,
    round: &mut Round<'_>,
    leave: Leave,
    mut ops: &[Op<'b>],
    mut items: &[Item<'b>],
    answers: &mut Answers<'_>,
    done: &mut Done,
) -> Step {
    loop {
        items = say(items, answers, done);
        if items.is_empty() {
            return Ok(());
        }
        if leave.is_full(answers.output.len()) {
            return Err(Progress::OutputFull);
        }
        let mut postponed = Postponed::default();
        let ran = round.run(ops, &mut |i, answer| {
            let [item, rest @ ..] = items else { unreachable!("a reply for each operation") };
            if !postponed.takes(&ops[i], &item.reply, &answer, answers.output.len()) {
                answers.answer(&item.reply, &answer);
            }
            done.answered(item);
            items = say(rest, answers, done);
        });
        if !postponed.0.is_empty() {
            done.obligation.merge(postponed.execute(shared, answers));
            round.refresh();
        }
        ops = &ops[ran.ops..];
        if let Some(stop) = ran.stop {
            return Err(needs(stop));
        }
        if ran.long_bytes > 0 {
            return Err(Progress::NeedsRoom(ran.long_bytes));
        }
    }
}

/// Answers those of `items` that come before the next operation's. Returns the others.
fn say<'i, 'b>(items: &'i [Item<'b>], answers: &mut Answers<'_>, done: &mut Done) -> &'i [Item<'b>] {
    let next = items.iter().position(|item| item.reply.needs_answer()).unwrap_or(items.len());
    for item in &items[..next] {
        answers.say(&item.reply);
        done.answered(item);
    }
    &items[next..]
}

impl Done {
    fn answered(&mut self, item: &Item<'_>) {
        self.consumed = item.end;
        self.replies += 1;
    }
}

/// Reads that turned out to be changes: a document that is stale or about to expire is promised to the first who reads
/// it, and `mg` may make one that is absent. Too rare to read every document as if it were to be changed.
///
/// They are executed after the others of their window, and so are reads of the same keys behind them; changes of these
/// keys are in no window that has read them. Their answers are put in their places.
#[derive(Default)]
struct Postponed<'i, 'b>(Vec<Reading<'i, 'b>>);

struct Reading<'i, 'b> {
    key: Key<'b>,
    reply: &'i Reply<'b>,
    /// Where in the output its answer belongs, without those of the others.
    at: usize,
}

impl<'i, 'b> Postponed<'i, 'b> {
    /// Whether the operation with this answer is one of them.
    fn takes(&mut self, op: &Op<'b>, reply: &'i Reply<'b>, answer: &Answer<'_>, at: usize) -> bool {
        let Op::Get(key) = *op else { return false };
        let changes = match reply {
            Reply::Meta { flags, refresh_before, .. } => meta::must_change(flags, *refresh_before, answer),
            _ => false,
        };
        let takes = changes || self.0.iter().any(|reading| reading.key.name == key.name);
        if takes {
            self.0.push(Reading { key, reply, at });
        }
        takes
    }

    /// Executes them, with leave to block: what was just read is in memory, nearly always.
    fn execute(self, shared: &Shared, answers: &mut Answers<'_>) -> Obligation {
        let mut round = shared.kv.round(true);
        let Some(first) = self.0.first().map(|reading| reading.at) else { return round.obligation() };
        let others = answers.output.split_off(first);
        let mut put = 0;
        for Reading { key, reply, at } in self.0 {
            answers.output.extend_from_slice(&others[put..at - first]);
            put = at - first;
            let op = match reply {
                Reply::Meta { verb: MetaVerb::Get, flags, refresh_before, .. } => {
                    let vivify = flags.vivify;
                    let vivify = vivify.map(|ttl| shared.kv.limits().expiry(ttl, answers.now_micros));
                    meta::fetch(key, None, vivify, *refresh_before)
                }
                _ => Op::Get(key),
            };
            round.run(&[op], &mut |_, answer| answers.answer(reply, &answer));
        }
        answers.output.extend_from_slice(&others[put..]);
        round.obligation()
    }
}
