//! Requests to key-value operations, outcomes to answers.
//!
//! Changes that follow each other are collected and made in one write; whatever else comes makes them first, so that
//! each request sees what those before it did, and answers stay in order.

use super::Shared;
use super::codec::{Keys, Meta, MetaVerb, Request, StoreVerb, answer};
use super::meta;
use super::reply::{self, Reply};
use super::stats::{Tally, VERSION};
use crate::runtime::{Leave, OUTPUT_BYTES_MAX, Progress};
use oribi_engine::Obligation;
use oribi_session::kv::{Action, Change, Expiry, Fetched, Got, Outcome, Round, Status, StoreMode};
use oribi_types::Error;
use std::borrow::Cow;
use std::time::Duration;

/// `Err`: why the request was not executed. It is to be given again.
pub type Step = Result<(), Progress>;

/// The most changes, and bytes of their values, that are made in one write.
const GROUP_CHANGES_MAX: usize = 128;
const GROUP_BYTES_MAX: usize = 256 * 1024;

pub struct Execution<'b> {
    shared: &'b Shared,
    leave: Leave,
    round: Round<'b>,
    output: &'b mut Vec<u8>,
    /// How many keys of the current retrieval command were answered.
    keys_answered: &'b mut usize,
    tally: Tally,
    /// Changes to be made together, and how each is answered.
    changes: Vec<Change<'b>>,
    replies: Vec<Reply<'b>>,
    bytes: usize,
}

impl<'b> Execution<'b> {
    pub fn new(
        shared: &'b Shared,
        leave: Leave,
        output: &'b mut Vec<u8>,
        keys_answered: &'b mut usize,
    ) -> Self {
        let round = shared.kv.round(leave.to_block);
        Execution {
            shared,
            leave,
            round,
            output,
            keys_answered,
            tally: Tally::default(),
            changes: Vec::new(),
            replies: Vec::new(),
            bytes: 0,
        }
    }

    pub fn output_is_full(&self) -> bool {
        self.output.len() > OUTPUT_BYTES_MAX
    }

    /// Whether no change waits to be made.
    pub fn has_answered_all(&self) -> bool {
        self.changes.is_empty()
    }

    /// What must be settled before the answers are sent.
    pub fn finish(self) -> Obligation {
        self.shared.counters.add(&self.tally);
        self.round.obligation()
    }

    /// Answers what is no request.
    pub fn refuse(&mut self, line: Option<&str>) -> Step {
        self.flush()?;
        if let Some(line) = line {
            self.tally.errors += 1;
            answer::line(line, self.output);
        }
        Ok(())
    }

    pub fn request(&mut self, request: Request<'b>) -> Step {
        match request {
            Request::Get { keys, with_cas } => self.retrieve(keys, with_cas, None),
            Request::GetAndTouch { keys, with_cas, exptime } => self.retrieve(keys, with_cas, Some(exptime)),
            Request::Store { verb, key, flags, exptime, value, noreply } => {
                let (action, cas) = store(verb, value, flags, self.expiry(exptime));
                self.collect(
                    Change { key: key.into(), cas, action },
                    Reply::Store { compares: cas.is_some(), noreply },
                )
            }
            Request::Count { key, down, delta, noreply } => {
                let action = Action::Count { down, delta, initial: None, expiry: None };
                self.collect(Change { key: key.into(), cas: None, action }, Reply::Count { down, noreply })
            }
            Request::Touch { key, exptime, noreply } => {
                let action = Action::Touch { expiry: self.expiry(exptime) };
                self.collect(Change { key: key.into(), cas: None, action }, Reply::Touch { noreply })
            }
            Request::Delete { key, noreply } => self.collect(
                Change { key: key.into(), cas: None, action: Action::Delete },
                Reply::Delete { noreply },
            ),
            Request::FlushAll { exptime, noreply } => self.flush_all(exptime, noreply),
            Request::Meta(meta) => self.meta(meta),
            Request::Mark => self.say("MN", false),
            Request::Stats { topic } => {
                self.flush()?;
                // What this batch did is in them.
                self.shared.counters.add(&std::mem::take(&mut self.tally));
                self.shared.stats.answer(topic, &self.shared.kv, self.output);
                Ok(())
            }
            Request::Version => self.say(&format!("VERSION {VERSION}"), false),
            Request::Verbosity { noreply } => self.say("OK", noreply),
            Request::Quit => Ok(()),
        }
    }

    fn say(&mut self, line: &str, noreply: bool) -> Step {
        self.flush()?;
        if !noreply {
            answer::line(line, self.output);
        }
        Ok(())
    }

    fn expiry(&mut self, seconds: i64) -> Expiry {
        self.shared.kv.limits().expiry(seconds, self.round.now_micros())
    }

    /// `get` and its like, from the first key that was not answered yet.
    fn retrieve(&mut self, keys: Keys<'b>, with_cas: bool, touch: Option<i64>) -> Step {
        self.flush()?;
        if touch.is_none() && keys.take(2).count() > 1 {
            return self.retrieve_together(keys, with_cas);
        }
        self.retrieve_each(keys, with_cas, touch)
    }

    /// Several keys are answered as of one moment: from memory or, all of them anew, on a thread that may block. What
    /// does not fit the output is answered as of a later one.
    fn retrieve_together(&mut self, keys: Keys<'b>, with_cas: bool) -> Step {
        self.round.hold();
        let before = (self.output.len(), *self.keys_answered, self.tally);
        let step = self.retrieve_each(keys, with_cas, None);
        if step == Err(Progress::NeedsBlocking) {
            self.output.truncate(before.0);
            (*self.keys_answered, self.tally) = (before.1, before.2);
        }
        step
    }

    fn retrieve_each(&mut self, keys: Keys<'b>, with_cas: bool, touch: Option<i64>) -> Step {
        for key in keys.skip(*self.keys_answered) {
            if self.output_is_full() {
                return Err(Progress::OutputFull);
            }
            let found = match touch {
                None => self.value(key, with_cas)?,
                Some(exptime) => self.value_and_touch(key, with_cas, exptime)?,
            };
            if let Err(error) = found {
                *self.keys_answered = 0;
                self.tally.errors += 1;
                reply::say_error(&error, self.output);
                return Ok(());
            }
            *self.keys_answered += 1;
        }
        *self.keys_answered = 0;
        answer::line("END", self.output);
        Ok(())
    }

    fn value(&mut self, key: &[u8], with_cas: bool) -> Result<Result<(), Error>, Progress> {
        let output = &mut *self.output;
        let got = self.round.get(key, |document| {
            let cas = with_cas.then_some(document.cas);
            answer::value(key, document.flags, document.value, cas, output);
        });
        match got {
            Ok(Got::Pending) => return Err(Progress::NeedsBlocking),
            Ok(Got::Found(())) => self.tally.get_hits += 1,
            Ok(Got::Absent) => self.tally.get_misses += 1,
            Err(error) => return Ok(Err(error)),
        }
        self.tally.cmd_get += 1;
        Ok(Ok(()))
    }

    fn value_and_touch(
        &mut self,
        key: &[u8],
        with_cas: bool,
        exptime: i64,
    ) -> Result<Result<(), Error>, Progress> {
        let expiry = Some(self.expiry(exptime));
        let action = Action::Fetch { expiry, vivify: None, refresh_before: None };
        let outcome = self.apply(&Change { key: key.into(), cas: None, action })?;
        self.tally.cmd_touch += 1;
        match (outcome.status, outcome.fetched) {
            (Status::Refused(error), _) => return Ok(Err(error)),
            (Status::Done, Some(found)) => {
                self.tally.touch_hits += 1;
                let cas = with_cas.then_some(found.cas);
                answer::value(key, found.flags, &found.value, cas, self.output);
            }
            _ => self.tally.touch_misses += 1,
        }
        Ok(Ok(()))
    }

    fn flush_all(&mut self, exptime: i64, noreply: bool) -> Step {
        self.flush()?;
        if !self.leave.to_block {
            return Err(Progress::NeedsBlocking);
        }
        self.tally.cmd_flush += 1;
        let now = self.round.now_micros() as i64;
        let flushed = match self.expiry(exptime) {
            Expiry::At(at) if at > now => {
                self.shared.kv.flush_after(Duration::from_micros((at - now) as u64));
                Ok(())
            }
            Expiry::At(_) | Expiry::Never => self.shared.kv.flush(),
        };
        self.round.refresh();
        if let Err(error) = flushed {
            self.refuse_request(&error, noreply);
            return Ok(());
        }
        self.say("OK", noreply)
    }

    fn meta(&mut self, meta: Meta<'b>) -> Step {
        self.tally.cmd_meta += 1;
        let step = match meta.verb {
            MetaVerb::Get => self.meta_get(&meta),
            MetaVerb::Debug => self.meta_debug(&meta),
            MetaVerb::Set | MetaVerb::Delete | MetaVerb::Count => self.meta_change(meta),
        };
        // It will come again.
        self.tally.cmd_meta -= u64::from(step.is_err());
        step
    }

    fn meta_change(&mut self, meta: Meta<'b>) -> Step {
        let now = self.round.now_micros();
        let (cas, action) = (meta.flags.cas, meta::action(&meta, self.shared.kv.limits(), now));
        let verb = meta.verb;
        match meta.key {
            Cow::Borrowed(key) => self.collect(
                Change { key: key.into(), cas, action },
                Reply::Meta { verb, key, flags: meta.flags },
            ),
            Cow::Owned(key) => {
                self.flush()?;
                let outcome = self.apply(&Change { key: (&*key).into(), cas, action })?;
                self.reply(&Reply::Meta { verb, key: &key, flags: meta.flags }, outcome);
                Ok(())
            }
        }
    }

    /// A plain read, unless the document must change: then a change that answers it.
    fn meta_get(&mut self, meta: &Meta<'b>) -> Step {
        self.flush()?;
        let (key, flags) = (&*meta.key, &meta.flags);
        let now = self.round.now_micros();
        let limits = self.shared.kv.limits();
        let expiry = |seconds: Option<i64>| seconds.map(|seconds| limits.expiry(seconds, now));
        let refresh_before = expiry(flags.refresh);
        if flags.ttl.is_none() {
            let output = &mut *self.output;
            let got = self.round.get(key, |document| {
                let plain = meta::is_plain_read(&document, refresh_before);
                if plain {
                    meta::say_fetched(key, flags, &Fetched::new(&document, None), now, output);
                }
                plain
            });
            match got {
                Err(error) => {
                    self.refuse_request(&error, false);
                    return Ok(());
                }
                Ok(Got::Pending) => return Err(Progress::NeedsBlocking),
                Ok(Got::Found(true)) => {
                    self.tally.cmd_get += 1;
                    self.tally.get_hits += 1;
                    return Ok(());
                }
                Ok(Got::Absent) if flags.vivify.is_none() => {
                    self.tally.cmd_get += 1;
                    self.tally.get_misses += 1;
                    meta::say_miss(key, flags, self.output);
                    return Ok(());
                }
                Ok(Got::Found(false) | Got::Absent) => {}
            }
        }
        let (expiry, vivify) = (expiry(flags.ttl), expiry(flags.vivify));
        let action = Action::Fetch { expiry, vivify, refresh_before };
        let outcome = self.apply(&Change { key: key.into(), cas: None, action })?;
        self.tally.cmd_get += 1;
        match (outcome.status, outcome.fetched) {
            (Status::Refused(error), _) => self.refuse_request(&error, false),
            (Status::Done, Some(found)) => {
                self.tally.get_hits += 1;
                meta::say_fetched(key, flags, &found, now, self.output);
            }
            _ => {
                self.tally.get_misses += 1;
                meta::say_miss(key, flags, self.output);
            }
        }
        Ok(())
    }

    fn meta_debug(&mut self, meta: &Meta<'b>) -> Step {
        self.flush()?;
        let now = self.round.now_micros();
        let output = &mut *self.output;
        let got = self.round.get(&*meta.key, |document| {
            meta::say_debug(&meta.key, meta.flags.base64, &document, now, output);
        });
        match got {
            Ok(Got::Pending) => return Err(Progress::NeedsBlocking),
            Ok(Got::Found(())) => {}
            Ok(Got::Absent) => answer::line("EN", self.output),
            Err(error) => self.refuse_request(&error, false),
        }
        Ok(())
    }

    /// Takes a change to be made with its neighbours.
    fn collect(&mut self, change: Change<'b>, reply: Reply<'b>) -> Step {
        if !self.leave.to_write {
            return Err(Progress::NeedsAdmission);
        }
        // All that one write stores has one cas, so a change that compares one must see it in the write before.
        let full = self.changes.len() >= GROUP_CHANGES_MAX || self.bytes >= GROUP_BYTES_MAX;
        if full || change.cas.is_some() {
            self.flush()?;
        }
        self.bytes += match change.action {
            Action::Store { value, .. } | Action::Extend { value, .. } => value.len(),
            _ => 0,
        };
        self.changes.push(change);
        self.replies.push(reply);
        Ok(())
    }

    /// Makes the changes that were collected, and answers them.
    pub fn flush(&mut self) -> Step {
        if self.changes.is_empty() {
            return Ok(());
        }
        let outcomes = self.round.apply(&self.changes).ok_or(Progress::NeedsBlocking)?;
        self.changes.clear();
        self.bytes = 0;
        for (reply, outcome) in std::mem::take(&mut self.replies).iter().zip(outcomes) {
            self.reply(reply, outcome);
        }
        Ok(())
    }

    /// Makes one change by itself.
    fn apply(&mut self, change: &Change<'_>) -> Result<Outcome, Progress> {
        if !self.leave.to_write {
            return Err(Progress::NeedsAdmission);
        }
        let outcomes = self.round.apply(std::slice::from_ref(change)).ok_or(Progress::NeedsBlocking)?;
        Ok(outcomes.into_iter().next().expect("an outcome for each change"))
    }

    fn reply(&mut self, reply: &Reply<'_>, outcome: Outcome) {
        reply::count(reply, &outcome.status, &mut self.tally);
        let now = self.round.now_micros();
        reply::say(reply, &outcome, now, self.output);
    }

    fn refuse_request(&mut self, error: &Error, noreply: bool) {
        self.tally.errors += 1;
        if !noreply {
            reply::say_error(error, self.output);
        }
    }
}

fn store<'b>(verb: StoreVerb, value: &'b [u8], flags: u32, expiry: Expiry) -> (Action<'b>, Option<u64>) {
    let store = |mode| Action::Store { mode, value, flags, expiry, or_stale: false };
    match verb {
        StoreVerb::Set => (store(StoreMode::Set), None),
        StoreVerb::Add => (store(StoreMode::Add), None),
        StoreVerb::Replace => (store(StoreMode::Replace), None),
        StoreVerb::Append => (Action::Extend { front: false, value, vivify: None }, None),
        StoreVerb::Prepend => (Action::Extend { front: true, value, vivify: None }, None),
        StoreVerb::Cas(cas) => (store(StoreMode::Set), Some(cas)),
    }
}
