//! The result tracker: a write that carries a request id is applied once, however often it is sent.
//!
//! A client numbers its requests and says with each of them up to where it has all answers. Of every other request the
//! first result is kept, and answers whoever sends it again. Results are in the log, in the record of their write, so that
//! write and result survive together or not at all; those whose records are trimmed go to the manifest with the same
//! record that moves the start of the log.
//!
//! A result is forgotten, in the order of the client's sequence numbers, when the client has the answer, after a while, or
//! when there are too many. What is below the last that was forgotten is refused as stale, and never applied again, as long
//! as the client itself is remembered. Silence is counted while the engine is open: nobody can be heard by one that is not.
//!
//! After Kudu's `ResultTracker` and RIFL (Lee et al., SOSP 2015).

mod checkpoint;
mod client;
pub(crate) mod commits;
#[cfg(test)]
mod tests;

pub(crate) use checkpoint::ClientResults;

use crate::engine::Obligation;
use crate::memory::MemoryBudget;
use crate::record;
use crate::write::Commit;
use client::{Client, Seen};
use oribi_env::Clock;
use oribi_env::locks::{self, Mutex};
use oribi_types::{Error, Result, Timestamp};
use oribi_wal::{Lsn, format, frames};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The longest client id. Kudu's are 32 hexadecimal digits.
pub const CLIENT_ID_BYTES_MAX: usize = 64;

/// So long a result is kept, as Kudu does (`remember_responses_ttl_ms`): its clients give a write up after seconds.
const RESULT_MICROS: u64 = 600_000_000;
/// So long a client is known that sends nothing, as in Kudu (`remember_clients_ttl_ms`).
const CLIENT_MICROS: u64 = 3_600_000_000;
/// The client outlives its results: who comes too late for one is refused, and not applied again.
const _: () = assert!(RESULT_MICROS < CLIENT_MICROS);

/// How often what is too old is looked for, as in Kudu; it has no effect but on memory.
const SWEEP_MICROS: u64 = 1_000_000;

/// Clients and results take one part in so many of the memory budget: 32 MiB of 1 GiB, which is 100,000 silent clients.
/// The manifest's state has those of the last checkpoint once more.
const BUDGET_PART: u64 = 32;
/// However large the budget: a checkpoint of them all and of one long result, which fits a log record, fits a frame of the
/// manifest. Base64 makes four bytes of three; what else there is of a client or a result is shorter in JSON.
const BYTES_MAX: u64 = 256 << 20;
const _: () = assert!((BYTES_MAX as usize + format::PAYLOAD_BYTES_MAX) / 3 * 4 < frames::PAYLOAD_BYTES_MAX);
/// And one client one part in so many of that. Kept are the results from its oldest unanswered request to its newest: in
/// 8 MiB, at 128 bytes each, those of three seconds in which 20,000 writes a second of one row are answered and one is not.
const CLIENT_PART: usize = 4;
/// What a client takes without its results: itself, its id, and its place in the map.
const CLIENT_BYTES: usize = 2 * (size_of::<Client>() + CLIENT_ID_BYTES_MAX);

/// The id of a request, by which a write is known when it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// 1 to [`CLIENT_ID_BYTES_MAX`] bytes that no other client has.
    pub client: &'a [u8],
    /// One more than that of the client's request before.
    pub sequence: i64,
    /// The client's lowest sequence number without an answer: it will ask for none below.
    pub first_incomplete: i64,
}

/// What became of a write with a request id.
#[derive(Debug)]
pub enum Tracked {
    /// It was applied, by this call or by the first one.
    Answered(Answered),
    /// Another call has it in hand.
    UnderWay(UnderWay),
    /// It was not applied by this call, and whether it was before is forgotten.
    Stale,
}

/// The first result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub commit: Commit,
    /// What the caller that applied it wrote down.
    pub result: Arc<[u8]>,
}

/// The end of a write that another call has in hand.
#[derive(Debug)]
pub struct UnderWay(watch::Receiver<()>);

impl UnderWay {
    /// Ready when the other call has ended. Whoever sends the request again then is answered with its result or, if it
    /// was refused, applies it.
    pub async fn ended(mut self) {
        // Nothing is ever sent: the sender goes.
        while self.0.changed().await.is_ok() {}
    }
}

pub(crate) struct ResultTracker {
    clock: Arc<dyn Clock>,
    budget: Arc<MemoryBudget>,
    bytes_max: usize,
    clients: Mutex<Clients, { locks::RESULTS }>,
    /// Held from taking a checkpoint until it is in the manifest, so that none replaces a later one.
    pub saved: Mutex<Saved, { locks::SAVED_RESULTS }>,
}

/// The checkpoint in the manifest: after how many changes it was taken, if no result was left to the log.
pub(crate) type Saved = Option<u64>;

#[derive(Default)]
struct Clients {
    by_id: BTreeMap<Arc<[u8]>, Client>,
    bytes: usize,
    /// How often something of a client may have changed.
    changes: u64,
    next_sweep_micros: u64,
}

/// How a call of a request begins.
pub(crate) enum Begun<'a> {
    /// It is the first.
    Execute(Execution<'a>),
    Known(Tracked),
}

impl ResultTracker {
    pub fn new(clock: Arc<dyn Clock>, budget: Arc<MemoryBudget>) -> Self {
        let bytes_max = (budget.limit() / BUDGET_PART).min(BYTES_MAX) as usize;
        ResultTracker { clock, budget, bytes_max, clients: Mutex::default(), saved: Mutex::new(Some(0)) }
    }

    /// Begins a request of a client.
    ///
    /// # Errors
    /// `Invalid` for a client id of another length, or of a transaction: what became of that is not for clients to say.
    pub fn begin<'a>(&'a self, request: Request<'a>) -> Result<Begun<'a>> {
        if commits::is_reserved(request.client) {
            return Err(Error::invalid("a client id that begins as those of transactions do"));
        }
        self.begin_any(request)
    }

    /// Begins a request of a client, or of a transaction.
    ///
    /// # Errors
    /// `Invalid` for a client id of another length.
    pub fn begin_any<'a>(&'a self, request: Request<'a>) -> Result<Begun<'a>> {
        if !is_client_id(request.client) {
            return Err(Error::invalid(format!(
                "a client id has 1 to {CLIENT_ID_BYTES_MAX} bytes, not {}",
                request.client.len()
            )));
        }
        let now_micros = self.clock.monotonic_micros();
        Ok(match self.with(request.client, |client| client.begin(&request, now_micros)) {
            Seen::Never => Begun::Execute(Execution { tracker: self, request, now_micros, finished: false }),
            Seen::Answered(answered) => Begun::Known(Tracked::Answered(answered)),
            Seen::UnderWay(end) => Begun::Known(Tracked::UnderWay(UnderWay(end))),
            Seen::Stale => Begun::Known(Tracked::Stale),
        })
    }

    /// Has `act` change a client, and keeps within bounds.
    fn with<R>(&self, id: &[u8], act: impl FnOnce(&mut Client) -> R) -> R {
        let mut clients = self.clients.lock();
        let done = clients.with(id, act);
        if clients.bytes > self.bytes_max {
            clients.shed(id, self.bytes_max / 8 * 7, self.clock.monotonic_micros());
        }
        self.budget.set_results(clients.bytes as u64);
        done
    }

    fn finish(&self, request: &Request<'_>, now_micros: u64, answered: Answered) {
        let bytes_max = self.bytes_max / CLIENT_PART;
        self.with(request.client, |client| client.finish(request.sequence, answered, now_micros, bytes_max));
    }

    /// What became of the one request of a client; nothing is noted of a client that is not known.
    pub fn of_client(&self, id: &[u8], sequence: i64) -> Option<Tracked> {
        self.clients.lock().by_id.get(id)?.known(sequence)
    }

    /// Below which number transactions may have been forgotten.
    pub fn transactions_forgotten_below(&self) -> i64 {
        let clients = self.clients.lock();
        clients.by_id.get(commits::FORGOTTEN).map_or(i64::MIN, Client::forgotten_below)
    }

    /// Notes a result that recovery found, durable as it is.
    pub fn recover(&self, ts: Timestamp, found: &record::Tracked<'_>) {
        if let Ok(Begun::Execute(mut execution)) = self.begin_any(found.request) {
            execution.finish(Commit { ts, obligation: Obligation::default() }, found.result.into());
        }
    }

    /// Takes in a checkpoint of the manifest, before the log is replayed.
    pub fn restore(&self, checkpoint: &[ClientResults]) {
        for ClientResults { client, forgotten_below, results } in checkpoint {
            let now_micros = self.clock.monotonic_micros();
            self.with(client, |client| client.hear(*forgotten_below, now_micros));
            for stored in results {
                let request =
                    Request { client, sequence: stored.sequence, first_incomplete: *forgotten_below };
                self.recover(stored.ts, &record::Tracked { request, result: &stored.result });
            }
        }
    }

    /// What a log that begins at `start` does not tell; `None` if that is `saved` already. All records below are durable,
    /// and their writes have finished. No write waits longer than it takes to count references.
    pub fn checkpoint(&self, start: Lsn, saved: Saved) -> Option<(Vec<ClientResults>, Saved)> {
        let clients = self.clients.lock();
        if saved == Some(clients.changes) {
            return None;
        }
        let checkpoint = clients.by_id.iter().map(|(id, client)| client.checkpoint(id, start)).collect();
        let is_whole = clients.by_id.values().all(|client| client.is_below(start));
        Some((checkpoint, is_whole.then_some(clients.changes)))
    }

    /// Frees what is too old, once in a while.
    pub fn sweep(&self) {
        let now_micros = self.clock.monotonic_micros();
        let mut clients = self.clients.lock();
        if now_micros < clients.next_sweep_micros {
            return;
        }
        clients.next_sweep_micros = now_micros + SWEEP_MICROS;
        let gone: Vec<_> = clients.by_id.extract_if(.., |_, client| client.is_gone(now_micros)).collect();
        gone.iter().for_each(|(id, _)| clients.note_forgotten(id, now_micros));
        clients.by_id.values_mut().for_each(|client| client.forget_old(now_micros));
        let bytes = clients.by_id.values().map(Client::bytes).sum();
        clients.changes += u64::from(bytes != clients.bytes);
        clients.bytes = bytes;
        self.budget.set_results(clients.bytes as u64);
    }
}

impl Clients {
    fn with<R>(&mut self, id: &[u8], act: impl FnOnce(&mut Client) -> R) -> R {
        if !self.by_id.contains_key(id) {
            self.by_id.insert(id.into(), Client::default());
            self.bytes += CLIENT_BYTES;
        }
        let client = self.by_id.get_mut(id).expect("the client is there or was inserted");
        let before = client.bytes();
        self.changes += 1;
        let done = act(client);
        self.bytes = self.bytes + client.bytes() - before;
        done
    }

    /// Forgets results, and if that is not enough clients, until `bytes` are left: of those that were silent the longest
    /// first, and nothing of the client `spared`, which is being served.
    fn shed(&mut self, spared: &[u8], bytes: usize, now_micros: u64) {
        let others = self.by_id.iter().filter(|(id, _)| ***id != *spared && ***id != *commits::FORGOTTEN);
        let mut by_silence: Vec<_> = others.map(|(id, client)| (client.heard_micros(), id.clone())).collect();
        by_silence.sort_unstable();
        for (_, id) in &by_silence {
            if self.bytes <= bytes {
                return;
            }
            self.with(id, Client::forget_all);
        }
        for (_, id) in &by_silence {
            if self.bytes <= bytes {
                return;
            }
            if self.by_id.get(id).is_some_and(Client::is_idle) {
                self.with(id, Client::forget_all);
                self.by_id.remove(id);
                self.bytes -= CLIENT_BYTES;
                self.note_forgotten(id, now_micros);
            }
        }
    }

    /// A client was forgotten: if that was a transaction, no more is said about those up to it.
    fn note_forgotten(&mut self, id: &[u8], now_micros: u64) {
        if let Some(number) = commits::number(id) {
            self.with(commits::FORGOTTEN, |client| client.hear(number.saturating_add(1), now_micros));
        }
    }
}

/// The first call of a request. Dropped before it has finished, it leaves nothing behind.
pub(crate) struct Execution<'a> {
    tracker: &'a ResultTracker,
    request: Request<'a>,
    now_micros: u64,
    finished: bool,
}

impl Execution<'_> {
    pub fn request(&self) -> Request<'_> {
        self.request
    }

    /// Keeps the result: the write is applied. Whoever waits is told.
    pub fn finish(&mut self, commit: Commit, result: Arc<[u8]>) {
        self.finished = true;
        self.tracker.finish(&self.request, self.now_micros, Answered { commit, result });
    }
}

impl Drop for Execution<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.tracker.with(self.request.client, |client| client.give_up(self.request.sequence));
        }
    }
}

pub(crate) fn is_client_id(id: &[u8]) -> bool {
    (1..=CLIENT_ID_BYTES_MAX).contains(&id.len())
}
