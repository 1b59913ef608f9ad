//! Key-value operations over the engine: what every key-value protocol has in common.
//!
//! A key names either a document or a row (see [`path`]). A *document* lives in a key-value table, `default.kv` unless
//! the key says otherwise: bytes, 32 bits of flags that belong to the client, an expiry time, and the commit timestamp
//! as its `cas`. A *row* of a typed table is shown as a JSON object and written as one.
//!
//! Requests that arrived together are executed in one [`Round`]. A round that may not block answers `Pending` where
//! only a file can tell; the caller then repeats that request in a round that may, on a thread made for it. What a
//! round read or wrote must be settled before it is answered: [`Round::obligation`].

mod change;
mod decide;
mod document;
mod json;
mod lock;
mod path;
mod row;
pub mod subdoc;
mod window;

pub use change::{Action, Change, Edited, Fetched, Outcome, Status, StoreMode};
pub use document::{Document, Expiry, ttl_seconds};
pub use json::is_json;
pub use lock::{LOCKED_CAS, Locks};
pub use path::Key;
pub use window::{Answer, Op, Ran};

use change::Plan;
use document::DocumentTable;
use oribi_engine::{
    Catalog, Engine, Lookup, Obligation, Presence, Read, ReadView, RowVersion, Snapshot, UpTo,
};
use oribi_types::{Error, ErrorKind, Result};
use path::{Shape, Target};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

/// Limits of what clients may store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLimits {
    pub key_bytes_max: usize,
    pub value_bytes_max: usize,
    /// The longest expiry that counts from now; a larger number is Unix time.
    pub relative_seconds_max: i64,
}

impl Default for KvLimits {
    /// memcached's: 250 bytes, 1 MiB, 30 days.
    fn default() -> Self {
        KvLimits { key_bytes_max: 250, value_bytes_max: 1024 * 1024, relative_seconds_max: 60 * 60 * 24 * 30 }
    }
}

impl KvLimits {
    /// # Errors
    /// `Invalid` for limits that contradict the engine's, which writes at most `statement_bytes_max` at once, or each
    /// other.
    pub fn validate(&self, statement_bytes_max: usize) -> Result<()> {
        // A component of an encoded key takes at most twice its bytes and a terminator.
        const KEY_BYTES_MAX: usize = oribi_types::key::KEY_BYTES_MAX / 4;
        // Beyond lies the present, as Unix time.
        const RELATIVE_SECONDS_MAX: i64 = 1_000_000_000;
        if !(1..=KEY_BYTES_MAX).contains(&self.key_bytes_max) {
            return Err(Error::invalid(format!("key_bytes_max must be 1 to {KEY_BYTES_MAX}")));
        }
        let most = KvLimits::value_bytes_most(self.key_bytes_max, statement_bytes_max);
        if !(1..=most).contains(&self.value_bytes_max) {
            return Err(Error::invalid(format!(
                "value_bytes_max must be 1 to {most}, so that a value and its key fit a statement \
                 (statement_bytes_max is {statement_bytes_max})"
            )));
        }
        if !(1..=RELATIVE_SECONDS_MAX).contains(&self.relative_seconds_max) {
            return Err(Error::invalid(format!("relative_seconds_max must be 1 to {RELATIVE_SECONDS_MAX}")));
        }
        Ok(())
    }

    /// The longest value that a statement of `statement_bytes_max` can write under any key.
    pub fn value_bytes_most(key_bytes_max: usize, statement_bytes_max: usize) -> usize {
        const VALUE_BYTES_MAX: usize = 1 << 30;
        // What a row has besides its value, and what its columns of later take.
        const ROW_BYTES: usize = 1024;
        statement_bytes_max.saturating_sub(2 * key_bytes_max + ROW_BYTES).min(VALUE_BYTES_MAX)
    }

    /// The expiry that a client states in seconds.
    pub fn expiry(&self, seconds: i64, now_micros: u64) -> Expiry {
        Expiry::from_seconds(seconds, self.relative_seconds_max, now_micros)
    }
}

/// The key-value operations of a process.
pub struct KeyValue {
    engine: Arc<Engine>,
    limits: KvLimits,
    locks: Arc<Locks>,
    /// The flush that was asked for last, if it was for later.
    scheduled: Mutex<Option<AbortHandle>>,
    /// Held by who has one made now.
    flushing: tokio::sync::Mutex<()>,
}

/// Schema and name of the table that holds the documents of plain keys.
pub const BUCKET: (&str, &str) = ("default", "kv");

impl KeyValue {
    /// With locks that nobody else minds.
    pub fn new(engine: Arc<Engine>, limits: KvLimits) -> Arc<Self> {
        KeyValue::sharing(Arc::default(), engine, limits)
    }

    /// With the locks that others give out for documents of `engine`, too.
    pub fn sharing(locks: Arc<Locks>, engine: Arc<Engine>, limits: KvLimits) -> Arc<Self> {
        Arc::new(KeyValue {
            engine,
            limits,
            locks,
            scheduled: Mutex::default(),
            flushing: tokio::sync::Mutex::default(),
        })
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub fn limits(&self) -> &KvLimits {
        &self.limits
    }

    /// Starts a round. Only one that `may_block` reads files, and waits for others that write the same rows.
    pub fn round(&self, may_block: bool) -> Round<'_> {
        Round {
            kv: self,
            tables: self.engine.catalog(),
            view: None,
            held: None,
            may_block,
            waits: may_block,
            answer_bytes_max: usize::MAX,
            obligation: Obligation::default(),
            key: Vec::new(),
            json: Vec::new(),
        }
    }

    /// The wall clock, in microseconds since the Unix epoch.
    pub fn now_micros(&self) -> u64 {
        self.engine.read_view().now_micros
    }

    /// Removes every document of `default.kv`, and forgets a flush that was scheduled. Blocks, until the disk has it: so one
    /// thread at a time does, or many that ask for it would leave none to who reads files.
    ///
    /// # Errors
    /// `WouldBlock` while another does; those of the engine.
    pub fn flush(&self) -> Result<()> {
        let Ok(_alone) = self.flushing.try_lock() else {
            return Err(Error::new(ErrorKind::WouldBlock, "the documents are being removed"));
        };
        self.schedule(None);
        self.truncate()
    }

    /// Flushes after `delay`, unless another flush is asked for before. Must be called inside a Tokio runtime; does
    /// not outlive it.
    pub fn flush_after(self: &Arc<Self>, delay: Duration) {
        let kv = self.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let flushed = tokio::task::spawn_blocking(move || kv.truncate()).await;
            if let Ok(Err(error)) = flushed {
                tracing::warn!(%error, "scheduled flush of the key-value bucket failed");
            }
        });
        self.schedule(Some(task.abort_handle()));
    }

    /// Puts a scheduled flush in the place of the one before, which ends: nothing is left of those that were replaced.
    fn schedule(&self, flush: Option<AbortHandle>) {
        let mut scheduled = self.scheduled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(replaced) = std::mem::replace(&mut *scheduled, flush) {
            replaced.abort();
        }
    }

    fn truncate(&self) -> Result<()> {
        self.engine.truncate(&self.engine.table(BUCKET.0, BUCKET.1)?)
    }
}

/// What a look for one key found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got<R> {
    Found(R),
    Absent,
    /// Only a round that may block can tell, or [`run`](Round::run) how long it is.
    Pending,
}

/// Requests that are executed together and answered together. Each sees what those before it wrote.
pub struct Round<'k> {
    kv: &'k KeyValue,
    tables: Arc<Catalog>,
    /// Taken at the first read, and again at the first read after a write.
    view: Option<ReadView>,
    /// What reads go by instead, if they must agree with each other.
    held: Option<Snapshot>,
    may_block: bool,
    /// Whether changes wait for others that write the same rows, or for room.
    waits: bool,
    /// Of a value, in [`run`](Self::run).
    answer_bytes_max: usize,
    obligation: Obligation,
    /// Encoded key of the row asked for.
    key: Vec<u8>,
    json: Vec<u8>,
}

impl Round<'_> {
    /// What must be settled before anything this round has answered may be sent.
    pub fn obligation(&self) -> Obligation {
        self.obligation
    }

    /// One that waits for nobody, though it may read files.
    #[must_use]
    pub fn trying(self) -> Self {
        Round { waits: false, ..self }
    }

    /// Has it see what `obligation` is of: written before it by the same client, and maybe not seen by others yet.
    pub fn rest_on(&mut self, obligation: Obligation) {
        self.obligation.merge(obligation);
    }

    /// Has [`run`](Self::run) stop at what is answered with a longer value. What is long and in a file is not read then.
    pub fn answer_at_most(&mut self, bytes: usize) {
        self.answer_bytes_max = bytes;
    }

    /// The moment by which expiry is judged.
    pub fn now_micros(&mut self) -> u64 {
        self.view().now_micros
    }

    /// Lets the next read see what has happened outside this round.
    pub fn refresh(&mut self) {
        (self.view, self.held) = (None, None);
    }

    /// Has the reads that follow see one moment, until the round writes or is refreshed: of what one write changed,
    /// they see all or nothing. Reads for themselves need none of it and are cheaper. False if what the round wrote must be
    /// settled first.
    pub fn hold(&mut self) -> bool {
        let engine = &self.kv.engine;
        let snapshot = self.held.get_or_insert_with(|| engine.snapshot());
        let sees_own = snapshot.ts() >= self.obligation.visible;
        if !sees_own {
            self.held = None;
        }
        sees_own
    }

    fn view(&mut self) -> ReadView {
        match &self.held {
            Some(snapshot) => snapshot.view(),
            None => *self.view.get_or_insert_with(|| self.kv.engine.read_view_from(self.obligation.visible)),
        }
    }

    /// Calls `answer` with the document or row of `key`. A document comes straight from the engine's memory: no copy,
    /// no allocation.
    ///
    /// # Errors
    /// `Invalid` if the key names a row but does not fit its table; those of the engine.
    pub fn get<'a, R>(
        &mut self,
        key: impl Into<Key<'a>>,
        answer: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Got<R>> {
        let (view, engine) = (self.view(), &self.kv.engine);
        self.key.clear();
        let target = path::resolve(&self.tables, &self.kv.limits, key.into(), &mut self.key)?;
        let probe = engine.probe(target.table, target.key(&self.key));
        let watch = Watch { locks: &self.kv.locks, now_micros: view.now_micros };
        let read = |version: RowVersion<'_>| watch.shown(&target, &version, &mut self.json).map(answer);
        let (found, obligation) = if self.may_block {
            match engine.read_up_to(self.answer_bytes_max, probe, view, read)? {
                UpTo::Read(found, obligation) => (found, obligation),
                UpTo::Longer(_) => return Ok(Got::Pending),
            }
        } else {
            match engine.try_read(probe, view, read) {
                Lookup::Found(found, obligation) => (Some(found), obligation),
                Lookup::Absent(obligation) => (None, obligation),
                Lookup::Pending => return Ok(Got::Pending),
            }
        };
        self.obligation.merge(obligation);
        Ok(match found {
            Some(answer) => Got::Found(answer?),
            None => Got::Absent,
        })
    }

    /// Executes `changes` in order, atomically and durably as one write, each seeing those before it. An outcome for each change.
    /// Nothing has been done if it stops.
    ///
    /// Changes that compare a `cas` must not follow another change of the same key in one call: all that one call
    /// writes has one `cas`.
    pub fn apply(&mut self, changes: &[Change<'_>]) -> Result<Vec<Outcome>, Stop> {
        let engine = &self.kv.engine;
        let limits = &self.kv.limits;
        self.key.clear();
        let targets: Vec<Result<Target<'_>>> = changes
            .iter()
            .map(|change| path::resolve(&self.tables, limits, change.key, &mut self.key))
            .collect();
        let mut plan = Plan::new(limits, &self.kv.locks, engine.read_view().now_micros, changes.len());
        for (change, target) in changes.iter().zip(&targets) {
            if let Ok(target) = target
                && !self.may_block
                && change.read() == Read::Existing
                && engine.locate(engine.probe(target.table, target.key(&self.key))) == Presence::Files
            {
                return Err(Stop::NeedsFiles);
            }
            plan.push(change, target, &self.key);
        }
        self.obligation.merge(write(engine, &mut plan, self.waits)?);
        let outcomes = plan.into_outcomes();
        // Later reads of this round must see what is written, or what made a change refuse; and a snapshot held now
        // would keep what is overwritten.
        self.refresh();
        Ok(outcomes)
    }
}

/// Why a round stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The next operation needs a file, and the round may not block.
    NeedsFiles,
    /// Others write what the next operation does, or it would have to wait for something else: see
    /// [`turn`](crate::turn).
    NeedsTurn,
}

/// Writes what was planned: together or, if that is refused, each change by itself. Blocking for a row that has just
/// left memory beats starting over. Returns what must be settled.
///
/// # Errors
/// `NeedsTurn`, unless it `waits` for others; nothing was written then.
fn write(engine: &Engine, plan: &mut Plan<'_>, waits: bool) -> Result<Obligation, Stop> {
    match plan.write(engine, waits) {
        Ok(commit) => Ok(commit.obligation),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Stop::NeedsTurn),
        Err(_) => Ok(plan.write_each(engine)),
    }
}

/// By what documents are shown.
#[derive(Clone, Copy)]
struct Watch<'a> {
    locks: &'a Locks,
    now_micros: u64,
}

impl Watch<'_> {
    /// Shows what was read as a document; that of a row is written to `json`.
    ///
    /// # Errors
    /// `Corrupt` for a row that does not decode.
    fn shown<'a>(
        self,
        target: &Target<'a>,
        version: &RowVersion<'a>,
        json: &'a mut Vec<u8>,
    ) -> Result<Document<'a>> {
        let (table, schema) = (target.table, target.table.schema_ref());
        let mut document = match target.shape {
            Shape::Document => DocumentTable::new(schema).read(version),
            Shape::Row => row::read(table, schema, version, json)?,
        };
        if self.locks.find(table.id(), version.key, self.now_micros).is_some() {
            document.cas = LOCKED_CAS;
        }
        Ok(document)
    }
}
