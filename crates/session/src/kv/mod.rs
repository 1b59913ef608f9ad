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
mod path;
mod row;

pub use change::{Action, Change, Fetched, Outcome, Status, StoreMode};
pub use document::{Document, Expiry, ttl_seconds};

use document::DocumentTable;
use oribi_engine::{Engine, Lookup, Obligation, ReadView, Snapshot};
use oribi_types::{Error, Result};
use path::{Shape, Tables};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limits of keys and values, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLimits {
    pub key_bytes_max: usize,
    pub value_bytes_max: usize,
}

impl Default for KvLimits {
    /// memcached's: 250 bytes, 1 MiB.
    fn default() -> Self {
        KvLimits { key_bytes_max: 250, value_bytes_max: 1024 * 1024 }
    }
}

impl KvLimits {
    /// # Errors
    /// `Invalid` for limits that the engine's own would contradict.
    pub fn validate(&self) -> Result<()> {
        // A component of an encoded key takes at most twice its bytes and a terminator.
        const KEY_BYTES_MAX: usize = oribi_types::key::KEY_BYTES_MAX / 4;
        const VALUE_BYTES_MAX: usize = 1 << 30;
        if !(1..=KEY_BYTES_MAX).contains(&self.key_bytes_max) {
            return Err(Error::invalid(format!("key_bytes_max must be 1 to {KEY_BYTES_MAX}")));
        }
        if !(1..=VALUE_BYTES_MAX).contains(&self.value_bytes_max) {
            return Err(Error::invalid(format!("value_bytes_max must be 1 to {VALUE_BYTES_MAX}")));
        }
        Ok(())
    }
}

/// The key-value operations of a process.
pub struct KeyValue {
    engine: Arc<Engine>,
    limits: KvLimits,
    /// Counts flushes asked for; a scheduled one happens only if none was asked for after it.
    flushes: AtomicU64,
}

/// Schema and name of the table that holds the documents of plain keys.
pub const BUCKET: (&str, &str) = ("default", "kv");

impl KeyValue {
    pub fn new(engine: Arc<Engine>, limits: KvLimits) -> Arc<Self> {
        Arc::new(KeyValue { engine, limits, flushes: AtomicU64::new(0) })
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub fn limits(&self) -> &KvLimits {
        &self.limits
    }

    /// Starts a round. Only one that `may_block` reads files.
    pub fn round(&self, may_block: bool) -> Round<'_> {
        Round {
            kv: self,
            tables: Tables::new(self.engine.catalog()),
            view: None,
            held: None,
            may_block,
            obligation: Obligation::default(),
            key: Vec::new(),
            json: Vec::new(),
        }
    }

    /// The wall clock, in microseconds since the Unix epoch.
    pub fn now_micros(&self) -> u64 {
        self.engine.read_view().now_micros
    }

    /// Removes every document of `default.kv`, and forgets a flush that was scheduled. Blocks.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.truncate()
    }

    /// Flushes after `delay`, unless another flush is asked for before. Must be called inside a Tokio runtime; does
    /// not outlive it.
    pub fn flush_after(self: &Arc<Self>, delay: Duration) {
        let asked = self.flushes.fetch_add(1, Ordering::Relaxed) + 1;
        let kv = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            if kv.flushes.load(Ordering::Relaxed) != asked {
                return;
            }
            let flushed = tokio::task::spawn_blocking(move || kv.truncate()).await;
            if let Ok(Err(error)) = flushed {
                tracing::warn!(%error, "scheduled flush of the key-value bucket failed");
            }
        });
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
    /// Only a round that may block can tell.
    Pending,
}

/// Requests that are executed together and answered together. Each sees what those before it wrote.
pub struct Round<'k> {
    kv: &'k KeyValue,
    tables: Tables,
    /// Taken at the first read, and again at the first read after a write.
    view: Option<ReadView>,
    /// What reads go by instead, if they must agree with each other.
    held: Option<Snapshot>,
    may_block: bool,
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

    /// The moment by which expiry is judged.
    pub fn now_micros(&mut self) -> u64 {
        self.view().now_micros
    }

    /// Lets the next read see what has happened outside this round.
    pub fn refresh(&mut self) {
        (self.view, self.held) = (None, None);
    }

    /// Has the reads that follow see one moment, until the round writes or is refreshed: of what one write changed,
    /// they see all or nothing. Reads for themselves need none of it and are cheaper.
    pub fn hold(&mut self) {
        self.held.get_or_insert_with(|| self.kv.engine.snapshot());
    }

    fn view(&mut self) -> ReadView {
        match &self.held {
            Some(snapshot) => snapshot.view(),
            None => *self.view.get_or_insert_with(|| self.kv.engine.read_view()),
        }
    }

    /// Calls `answer` with the document or row of `key`. A document comes straight from the engine's memory: no copy,
    /// no allocation.
    ///
    /// # Errors
    /// `Invalid` if the key names a row but does not fit its table; those of the engine.
    pub fn get<R>(&mut self, key: &[u8], answer: impl FnOnce(Document<'_>) -> R) -> Result<Got<R>> {
        let view = self.view();
        let target = path::resolve(&self.tables, &self.kv.limits, key, &mut self.key)?;
        let json = &mut self.json;
        let schema = target.table.schema();
        let read = |version: oribi_engine::RowVersion<'_>| -> Result<R> {
            Ok(match target.shape {
                Shape::Document => answer(DocumentTable::new(&schema).read(&version)),
                Shape::Row => answer(row::read(&schema, &version, json)?),
            })
        };
        let (found, obligation) = if self.may_block {
            self.kv.engine.get(target.table, target.key, view, read)?
        } else {
            match self.kv.engine.try_get(target.table, target.key, view, read) {
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

    /// Executes `changes` in order, atomically and durably as one write, each seeing those before it; `None` if only a
    /// round that may block can (nothing has been done then). An outcome for each change.
    ///
    /// Changes that compare a `cas` must not follow another change of the same key in one call: all that one call
    /// writes has one `cas`.
    pub fn apply(&mut self, changes: &[Change<'_>]) -> Option<Vec<Outcome>> {
        let engine = &self.kv.engine;
        let view = engine.read_view();
        let mut plan = change::Plan::new(&self.tables, &self.kv.limits, changes, view.now_micros);
        if !self.may_block && !plan.is_in_memory(engine, view) {
            return None;
        }
        let written = plan.write(engine);
        // Later reads of this round must see what was written, or what made a change refuse.
        (self.view, self.held) = (None, None);
        match written {
            Ok(commit) => {
                self.obligation.merge(commit.obligation);
                Some(plan.into_outcomes(commit.ts))
            }
            Err(error) if changes.len() == 1 => Some(vec![Outcome::refused(error)]),
            // Nothing was applied: let each change stand for itself, so that one fault is one refusal. Blocking for a
            // row that has just left memory beats starting over after some of them were applied.
            Err(_) => {
                drop(plan);
                let may_block = std::mem::replace(&mut self.may_block, true);
                let outcomes = changes.chunks(1).map(|change| self.apply(change)?.pop()).collect();
                self.may_block = may_block;
                outcomes
            }
        }
    }
}
