//! What is known of one client: its requests that are under way, and the results that it may ask for.

use super::checkpoint::{ClientResults, StoredResult};
use super::{Answered, CLIENT_BYTES, CLIENT_MICROS, RESULT_MICROS, Request, Tracked};
use oribi_wal::Lsn;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::watch;

pub(super) struct Client {
    /// Requests below are refused as stale.
    forgotten_below: i64,
    /// By sequence number. They come almost in order, and go in order.
    entries: VecDeque<Entry>,
    results_bytes: usize,
    heard_micros: u64,
}

struct Entry {
    sequence: i64,
    state: State,
}

enum State {
    /// In hand of a call; with whom to tell when it ends.
    UnderWay(Option<watch::Sender<()>>),
    Done {
        answered: Answered,
        at_micros: u64,
    },
}

/// An entry in the queue, which has room for twice as many as it holds.
const ENTRY_BYTES: usize = 2 * size_of::<Entry>();
/// A queue with room for so many is never made smaller: a client has as many requests at a time.
const QUEUE_KEPT: usize = 16;

/// What is known of a request.
pub(super) enum Seen {
    /// Nothing: from now on it is under way.
    Never,
    Answered(Answered),
    UnderWay(watch::Receiver<()>),
    Stale,
}

impl Default for Client {
    fn default() -> Self {
        Client { forgotten_below: i64::MIN, entries: VecDeque::new(), results_bytes: 0, heard_micros: 0 }
    }
}

impl Client {
    pub fn begin(&mut self, request: &Request<'_>, now_micros: u64) -> Seen {
        if self.is_gone(now_micros) {
            *self = Client::default();
        }
        self.hear(request.first_incomplete, now_micros);
        if request.sequence < self.forgotten_below {
            return Seen::Stale;
        }
        match self.find(request.sequence) {
            Err(at) => {
                let entry = Entry { sequence: request.sequence, state: State::UnderWay(None) };
                self.entries.insert(at, entry);
                Seen::Never
            }
            Ok(at) => match &mut self.entries[at].state {
                State::Done { answered, .. } => Seen::Answered(answered.clone()),
                State::UnderWay(end) => {
                    Seen::UnderWay(end.get_or_insert_with(|| watch::Sender::new(())).subscribe())
                }
            },
        }
    }

    /// What is known of a request, which need not have come.
    pub fn known(&self, sequence: i64) -> Option<Tracked> {
        if sequence < self.forgotten_below {
            return Some(Tracked::Stale);
        }
        match &self.entries[self.find(sequence).ok()?].state {
            State::Done { answered, .. } => Some(Tracked::Answered(answered.clone())),
            State::UnderWay(_) => None,
        }
    }

    pub fn forgotten_below(&self) -> i64 {
        self.forgotten_below
    }

    /// The client has all answers below `first_incomplete`.
    pub fn hear(&mut self, first_incomplete: i64, now_micros: u64) {
        self.heard_micros = now_micros;
        self.forgotten_below = self.forgotten_below.max(first_incomplete);
        self.forget_while(|sequence, _| sequence < first_incomplete);
        self.forget_old(now_micros);
    }

    /// Keeps the result of a request that was under way, unless a request that came meanwhile made it a stale one. It is
    /// kept however long it is, at the cost of those before it.
    pub fn finish(&mut self, sequence: i64, answered: Answered, at_micros: u64, bytes_max: usize) {
        if sequence < self.forgotten_below {
            return self.give_up(sequence);
        }
        let Ok(at) = self.find(sequence) else { return };
        self.results_bytes += answered.result.len();
        self.entries[at].state = State::Done { answered, at_micros };
        while self.bytes() > bytes_max
            && let Some((first, _)) = self.first_done()
            && self.entries[first].sequence != sequence
        {
            self.forget(first);
        }
    }

    /// A request that was under way has had no effect.
    pub fn give_up(&mut self, sequence: i64) {
        if let Ok(at) = self.find(sequence) {
            self.entries.remove(at);
        }
    }

    pub fn forget_old(&mut self, now_micros: u64) {
        self.forget_while(|_, at_micros| at_micros + RESULT_MICROS <= now_micros);
    }

    pub fn forget_all(&mut self) {
        self.forget_while(|_, _| true);
    }

    /// Whether it was silent for so long that it is forgotten itself.
    pub fn is_gone(&self, now_micros: u64) -> bool {
        self.heard_micros + CLIENT_MICROS <= now_micros && self.is_idle()
    }

    /// Whether no request is under way.
    pub fn is_idle(&self) -> bool {
        !self.entries.iter().any(|entry| matches!(entry.state, State::UnderWay(_)))
    }

    pub fn heard_micros(&self) -> u64 {
        self.heard_micros
    }

    pub fn bytes(&self) -> usize {
        CLIENT_BYTES + self.entries.len() * ENTRY_BYTES + self.results_bytes
    }

    /// All but the results whose records are at or above `start`, which may not be durable yet.
    pub fn checkpoint(&self, id: &Arc<[u8]>, start: Lsn) -> ClientResults {
        let results = self.entries.iter().filter_map(|entry| match &entry.state {
            State::Done { answered, .. } if answered.commit.obligation.lsn() < start => Some(StoredResult {
                sequence: entry.sequence,
                ts: answered.commit.ts,
                result: answered.result.clone(),
            }),
            _ => None,
        });
        ClientResults {
            client: id.clone(),
            forgotten_below: self.forgotten_below,
            results: results.collect(),
        }
    }

    /// Whether all results are of records below `start`.
    pub fn is_below(&self, start: Lsn) -> bool {
        self.entries.iter().all(|entry| match &entry.state {
            State::Done { answered, .. } => answered.commit.obligation.lsn() < start,
            State::UnderWay(_) => true,
        })
    }

    fn find(&self, sequence: i64) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&sequence, |entry| entry.sequence)
    }

    /// The first result, and when it came.
    fn first_done(&self) -> Option<(usize, u64)> {
        self.entries.iter().enumerate().find_map(|(at, entry)| match entry.state {
            State::Done { at_micros, .. } => Some((at, at_micros)),
            State::UnderWay(_) => None,
        })
    }

    /// Forgets results from the first on as long as they are due, by sequence number and time.
    fn forget_while(&mut self, is_due: impl Fn(i64, u64) -> bool) {
        while let Some((at, at_micros)) = self.first_done()
            && is_due(self.entries[at].sequence, at_micros)
        {
            self.forget(at);
        }
        if self.entries.capacity() > QUEUE_KEPT && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    #[cfg(test)]
    pub fn room(&self) -> usize {
        self.entries.capacity()
    }

    fn forget(&mut self, at: usize) {
        if let Some(Entry { sequence, state: State::Done { answered, .. } }) = self.entries.remove(at) {
            self.results_bytes -= answered.result.len();
            self.forgotten_below = self.forgotten_below.max(sequence.saturating_add(1));
        }
    }
}
