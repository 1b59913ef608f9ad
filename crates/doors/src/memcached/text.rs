//! Requests of the text protocol, classic and meta commands, to operations.

use super::client::Taken;
use super::codec::{self, CodecLimits, Frame, Keys, Meta, MetaVerb, Request, StoreVerb, answer};
use super::meta;
use super::reply::{Kind, Reply};
use super::stats::{Listed, VERSION_LINE};
use super::window::{OPS_MAX, Step, Window};
use oribi_net::Progress;
use oribi_session::kv::{Action, Change, Expiry, Op, StoreMode};
use std::borrow::Cow;

/// A client that speaks text.
#[derive(Default)]
pub struct Text {
    /// How many keys of the retrieval command that comes next were answered.
    keys_answered: usize,
    /// How much of the command that comes next has no end of a line.
    searched: usize,
}

impl Text {
    /// Takes the request at the beginning of `input`, which is what follows `window.end`.
    pub fn take<'b>(
        &mut self,
        input: &'b [u8],
        limits: &CodecLimits,
        window: &mut Window<'b>,
    ) -> Result<Taken, Progress> {
        let frame = codec::decode(input, &mut self.searched, limits);
        if !matches!(frame, Frame::Incomplete) {
            self.search_anew();
        }
        match frame {
            Frame::Incomplete => Ok(Taken::Nothing),
            Frame::Request { request: Request::Quit, len } => Ok(Taken::Last(len)),
            Frame::Request { request, len } => {
                window.end += len;
                self.request(request, len, window)?;
                Ok(Taken::Request)
            }
            Frame::Refused { answer, len, skip } => {
                let arrived = skip.min((input.len() - len) as u64);
                window.end += len + arrived as usize;
                window.say(answer.map_or(Reply::Nothing, Reply::Error))?;
                Ok(Taken::skip(skip - arrived))
            }
            Frame::Fatal { answer } => {
                window.say(answer.map_or(Reply::Nothing, Reply::Error))?;
                Ok(Taken::Last(input.len()))
            }
        }
    }

    /// Forgets what was searched: what comes next is not what came next before.
    pub fn search_anew(&mut self) {
        self.searched = 0;
    }

    fn request<'b>(&mut self, request: Request<'b>, len: usize, window: &mut Window<'b>) -> Step {
        match request {
            Request::Get { keys, with_cas } => self.retrieve(keys, with_cas, None, len, window),
            Request::GetAndTouch { keys, with_cas, exptime } => {
                let expiry = window.expiry(exptime);
                self.retrieve(keys, with_cas, Some(expiry), len, window)
            }
            Request::Store { verb, key, flags, exptime, value, noreply } => {
                let (action, cas) = store(verb, value, flags, window.expiry(exptime));
                change(key, cas, action, Kind::Store { compares: cas.is_some() }, noreply, window)
            }
            Request::Count { key, down, delta, noreply } => {
                let action = Action::Count { down, delta, initial: None, expiry: None };
                change(key, None, action, Kind::Count { down }, noreply, window)
            }
            Request::Touch { key, exptime, noreply } => {
                let action = Action::Touch { expiry: window.expiry(exptime) };
                change(key, None, action, Kind::Touch, noreply, window)
            }
            Request::Delete { key, noreply } => {
                change(key, None, Action::Delete, Kind::Delete, noreply, window)
            }
            Request::FlushAll { exptime, noreply } => {
                if let Err(error) = window.flush_all(exptime)? {
                    if !noreply {
                        window.answers.error(&error);
                    }
                    return Ok(());
                }
                line("OK", noreply, window)
            }
            Request::Meta(meta) => meta_command(meta, window),
            Request::Mark => line("MN", false, window),
            Request::Stats { topic } => stats(topic, window),
            Request::Version => line(VERSION_LINE, false, window),
            Request::Verbosity { noreply } => line("OK", noreply, window),
            Request::Quit => Ok(()),
        }
    }

    /// `get` and its like, from the first key that was not answered yet.
    fn retrieve<'b>(
        &mut self,
        keys: Keys<'b>,
        with_cas: bool,
        touch: Option<Expiry>,
        len: usize,
        window: &mut Window<'b>,
    ) -> Step {
        let mut two = keys;
        // `gat` may have none.
        let Some(first) = two.next() else { return line("END", false, window) };
        if two.next().is_none() {
            let reply = Reply::Value { key: first, with_cas, is_last: true };
            return window.push(retrieval(first, touch), reply);
        }
        window.flush()?;
        if touch.is_some() {
            return self.retrieve_each(keys, with_cas, touch, len, window);
        }
        // Several keys are answered as of one moment: from memory or, all of them anew, on a thread that may block.
        // What does not fit the output is answered as of a later one.
        if !window.round.hold() {
            return Err(Progress::OutputFull);
        }
        let before = (window.answers.output.len(), self.keys_answered, window.answers.tally);
        let step = self.retrieve_each(keys, with_cas, None, len, window);
        if step == Err(Progress::NeedsBlocking) {
            window.answers.output.truncate(before.0);
            (self.keys_answered, window.answers.tally) = (before.1, before.2);
        }
        step
    }

    fn retrieve_each<'b>(
        &mut self,
        keys: Keys<'b>,
        with_cas: bool,
        touch: Option<Expiry>,
        len: usize,
        window: &mut Window<'b>,
    ) -> Step {
        let mut keys = keys.skip(self.keys_answered).peekable();
        let end = window.end;
        while let Some(key) = keys.next() {
            let is_last = keys.peek().is_none();
            // The command is executed when its last key is.
            window.end = if is_last { end } else { end - len };
            window.collect(retrieval(key, touch), Reply::Value { key, with_cas, is_last })?;
            if is_last || window.collected() >= OPS_MAX {
                let step = window.flush();
                if window.answers.take_refused() {
                    // An error is all that a command is answered with from there on.
                    window.end = end;
                    window.conclude();
                    break;
                }
                self.keys_answered += window.answered();
                step?;
            }
        }
        self.keys_answered = 0;
        Ok(())
    }
}

fn retrieval(key: &[u8], touch: Option<Expiry>) -> Op<'_> {
    match touch {
        None => Op::Get(key.into()),
        Some(_) => meta::fetch(key.into(), touch, None, None),
    }
}

fn change<'b>(
    key: &'b [u8],
    cas: Option<u64>,
    action: Action<'b>,
    change: Kind,
    noreply: bool,
    window: &mut Window<'b>,
) -> Step {
    window.push(Op::Change(Change { key: key.into(), cas, action }), Reply::Classic { change, noreply })
}

fn line(line: &'static str, noreply: bool, window: &mut Window<'_>) -> Step {
    window.say(if noreply { Reply::Nothing } else { Reply::Line(line) })
}

fn stats(topic: &[u8], window: &mut Window<'_>) -> Step {
    window.flush()?;
    let listed = window.list(topic, &|name, value, out| answer::line(&format!("STAT {name} {value}"), out));
    answer::line(
        match listed {
            Listed::All => "END",
            Listed::Reset => "RESET",
            Listed::Unknown => codec::ERROR,
        },
        window.answers.output,
    );
    Ok(())
}

fn meta_command<'b>(meta: Meta<'b>, window: &mut Window<'b>) -> Step {
    let key = match meta.key {
        Cow::Borrowed(key) => key,
        Cow::Owned(ref key) => {
            let (op, refresh_before) = meta_op(&meta, key, window)?;
            let Meta { verb, flags, .. } = meta.clone();
            return window.push_alone(op, Reply::Meta { verb, key, flags, refresh_before });
        }
    };
    let (op, refresh_before) = meta_op(&meta, key, window)?;
    window.push(op, Reply::Meta { verb: meta.verb, key, flags: meta.flags, refresh_before })
}

/// The operation of a meta command; and for `mg`, before which expiry somebody is to be told to replace a document.
fn meta_op<'k>(
    meta: &Meta<'k>,
    key: &'k [u8],
    window: &mut Window<'_>,
) -> Result<(Op<'k>, Option<Expiry>), Progress> {
    let flags = &meta.flags;
    if meta.verb == MetaVerb::Debug {
        return Ok((Op::Get(key.into()), None));
    }
    if meta.verb != MetaVerb::Get {
        let action = meta::action(meta, window.shared.kv.limits(), window.round.now_micros());
        return Ok((Op::Change(Change { key: key.into(), cas: flags.cas, action }), None));
    }
    let mut expiry = |ttl: Option<i64>| ttl.map(|ttl| window.expiry(ttl));
    let refresh_before = expiry(flags.refresh);
    if flags.ttl.is_some() {
        let (ttl, vivify) = (expiry(flags.ttl), expiry(flags.vivify));
        return Ok((meta::fetch(key.into(), ttl, vivify, refresh_before), refresh_before));
    }
    if flags.vivify.or(flags.refresh).is_some() {
        // It may turn out to be a change.
        window.admit_write()?;
    }
    Ok((Op::Get(key.into()), refresh_before))
}

/// The action of a storage command, and the cas that it compares.
pub fn store<'b>(verb: StoreVerb, value: &'b [u8], flags: u32, expiry: Expiry) -> (Action<'b>, Option<u64>) {
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
