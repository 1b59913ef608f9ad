//! A store that is asked again where it fails: after a pause that doubles, for so long and no longer.

use crate::bucket::{Body, Bucket, Expected, Listed, Sink, if_there};
use oribi_env::Clock;
use oribi_types::{Error, ErrorKind, Result};
use ring::digest::{Context, SHA256};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often, and for how long, a request is tried again.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// Of a request's pauses and attempts, but for the time in which these moved bytes; one that fails later is not tried again.
    pub limit: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let (first_pause, longest_pause) = (Duration::from_millis(20), Duration::from_secs(2));
        Patience { first_pause, longest_pause, limit: Duration::from_secs(30) }
    }
}

/// What became of requests since the store was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub requests: AtomicU64,
    pub retries: AtomicU64,
    pub failures: AtomicU64,
    pub sent_bytes: AtomicU64,
    pub received_bytes: AtomicU64,
    pub fetches: AtomicU64,
    pub evictions: AtomicU64,
    /// Since when nothing succeeds, by the monotonic clock; 0 while something does.
    pub failing_since_micros: AtomicU64,
}

pub(crate) struct Patient {
    bucket: Arc<dyn Bucket>,
    clock: Arc<dyn Clock>,
    patience: Patience,
    pub counters: Counters,
    /// Whether a request was given up, and none has succeeded since: nobody waits for long.
    is_given_up: AtomicBool,
    /// Whether somebody tries if it answers again, while it is given up …
    is_probed: AtomicBool,
    /// … and what the last who tried was told, as are all others meanwhile.
    last_error: Mutex<Option<Error>>,
}

/// How an attempt is getting on.
struct Moved<'c> {
    /// When it last moved bytes, by the monotonic clock.
    at_micros: AtomicU64,
    clock: &'c dyn Clock,
    /// Whether it ended because whoever takes the bytes failed.
    is_not_taken: AtomicBool,
}

/// The one who tries whether a store answers again, until it is dropped.
struct Probe<'p>(&'p AtomicBool);

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

impl Moved<'_> {
    fn note(&self) {
        self.at_micros.store(self.clock.monotonic_micros(), Relaxed);
    }

    fn is_not_taken(&self) -> bool {
        self.is_not_taken.load(Relaxed)
    }
}

impl Patient {
    pub fn new(bucket: Arc<dyn Bucket>, clock: Arc<dyn Clock>, patience: Patience) -> Self {
        Patient {
            bucket,
            clock,
            patience,
            counters: Counters::default(),
            is_given_up: AtomicBool::new(false),
            is_probed: AtomicBool::new(false),
            last_error: Mutex::default(),
        }
    }

    /// By the monotonic clock.
    pub fn now_micros(&self) -> u64 {
        self.clock.monotonic_micros()
    }

    /// Since when nothing succeeds, in microseconds.
    pub fn failing_micros(&self) -> u64 {
        match self.counters.failing_since_micros.load(Relaxed) {
            0 => 0,
            since => self.clock.monotonic_micros().saturating_sub(since),
        }
    }

    fn try_again<T>(&self, what: &str, mut attempt: impl FnMut(&Moved<'_>) -> Result<T>) -> Result<T> {
        let moved = self.moved();
        let mut pause = self.patience.first_pause;
        // In which nothing was moved.
        let mut idle = Duration::ZERO;
        let probe = self.probe(what)?;
        loop {
            moved.note();
            let error = match self.ask(&moved, &mut attempt) {
                Err(error) if error.kind() == ErrorKind::Unavailable && !moved.is_not_taken() => error,
                result => return result,
            };
            idle += Duration::from_micros(self.now_micros().saturating_sub(moved.at_micros.load(Relaxed)));
            if probe.is_some() || idle + pause > self.patience.limit {
                *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
                self.is_given_up.store(true, Relaxed);
                self.counters.failures.fetch_add(1, Relaxed);
                let (url, seconds) = (self.bucket.url(), idle.as_secs_f64());
                return Err(error.context(format!("store {url} does not {what}, tried for {seconds:.1} s")));
            }
            tracing::warn!(%error, store = self.bucket.url(), "cannot {what}, which is tried again");
            self.counters.retries.fetch_add(1, Relaxed);
            std::thread::sleep(pause);
            idle += pause;
            pause = (2 * pause).min(self.patience.longest_pause);
        }
    }

    /// Makes a request once, and notes what it says of the store.
    fn ask<T>(&self, moved: &Moved<'_>, attempt: &mut impl FnMut(&Moved<'_>) -> Result<T>) -> Result<T> {
        self.counters.requests.fetch_add(1, Relaxed);
        let result = attempt(moved);
        match result.as_ref().map_err(Error::kind) {
            Err(_) if moved.is_not_taken() => {}
            Ok(_) | Err(ErrorKind::NotFound | ErrorKind::Conflict) => self.note_answer(),
            Err(ErrorKind::Unavailable) => self.note_failure(),
            Err(ErrorKind::Forbidden | ErrorKind::Invalid | ErrorKind::Unsupported) => {
                self.note_failure();
                self.counters.failures.fetch_add(1, Relaxed);
            }
            // Of a file in the folder, or of what an object is: the store has done what it can.
            Err(_) => {}
        }
        result
    }

    fn note_answer(&self) {
        self.is_given_up.store(false, Relaxed);
        self.counters.failing_since_micros.store(0, Relaxed);
    }

    fn note_failure(&self) {
        let now = self.now_micros().max(1);
        let _ = self.counters.failing_since_micros.compare_exchange(0, now, Relaxed, Relaxed);
    }

    fn moved(&self) -> Moved<'_> {
        let (at_micros, is_not_taken) = (AtomicU64::new(0), AtomicBool::new(false));
        Moved { at_micros, clock: &*self.clock, is_not_taken }
    }

    /// While the store is given up: the one who may ask it. `None` while it is not.
    ///
    /// # Errors
    /// What was said last, for all others: nobody waits for another's attempt.
    fn probe(&self, what: &str) -> Result<Option<Probe<'_>>> {
        let is_alone = self.is_given_up.load(Relaxed)
            && self.is_probed.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        let probe = is_alone.then(|| Probe(&self.is_probed));
        // Whoever was the one may have ended just now, and well.
        if !self.is_given_up.load(Relaxed) {
            return Ok(None);
        }
        if probe.is_some() {
            return Ok(probe);
        }
        let last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let error = last.unwrap_or_else(|| Error::unavailable("it was given up"));
        let url = self.bucket.url();
        Err(error.context(format!("store {url} does not {what}, which is not tried while it is down")))
    }

    /// As [`remove`](Bucket::remove), by one attempt: it is for whoever comes again by himself.
    pub fn remove_once(&self, name: &str) -> Result<()> {
        let what = format!("remove {name}");
        let _probe = self.probe(&what)?;
        self.ask(&self.moved(), &mut |_| self.bucket.remove(name)).map_err(|error| {
            if error.kind() == ErrorKind::Unavailable {
                self.counters.retries.fetch_add(1, Relaxed);
            }
            let url = self.bucket.url();
            error.context(format!("store {url} does not {what}"))
        })
    }

    /// Whether an object is what was to be put: an attempt of which nobody was told may have come through.
    fn has(&self, name: &str, body: Body<'_>) -> Result<Option<String>> {
        let mut context = Context::new(&SHA256);
        let tag = if_there(self.get(name, &mut |part, at| {
            if at == 0 {
                context = Context::new(&SHA256);
            }
            context.update(part);
            Ok(())
        }))?;
        let Some(tag) = tag else { return Ok(None) };
        let there = crate::bucket::hex(context.finish().as_ref());
        Ok((there == body.digest()?).then_some(tag))
    }
}

impl Bucket for Patient {
    fn url(&self) -> &str {
        self.bucket.url()
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        self.try_again(&format!("list {folder}"), |_| self.bucket.list(folder))
    }

    fn get(&self, name: &str, sink: &mut Sink<'_>) -> Result<String> {
        self.try_again(&format!("give {name}"), |moved| {
            self.bucket.get(name, &mut |part, at| {
                moved.note();
                // The others need not wait until a long object is here.
                self.is_given_up.store(false, Relaxed);
                self.counters.received_bytes.fetch_add(part.len() as u64, Relaxed);
                sink(part, at).inspect_err(|_| moved.is_not_taken.store(true, Relaxed))
            })
        })
    }

    fn tag(&self, name: &str) -> Result<String> {
        self.try_again(&format!("tell of {name}"), |_| self.bucket.tag(name))
    }

    fn put(&self, name: &str, body: Body<'_>, expected: Expected<'_>) -> Result<String> {
        if self.is_given_up.load(Relaxed) {
            // Whether it answers is known soon, which what is long is not.
            if_there(self.tag(name))?;
        }
        let put = self.try_again(&format!("take {name}"), |moved| match body {
            Body::Bytes(_) => self.bucket.put(name, body, expected),
            Body::File(file) => self.bucket.put(name, Body::Watched(file, &|| moved.note()), expected),
            Body::Watched(file, watch) => {
                let watch = || {
                    moved.note();
                    watch();
                };
                self.bucket.put(name, Body::Watched(file, &watch), expected)
            }
        });
        self.counters.sent_bytes.fetch_add(body.len()?, Relaxed);
        match put {
            Err(error) if error.kind() == ErrorKind::Conflict => match self.has(name, body)? {
                Some(tag) => Ok(tag),
                None => Err(error),
            },
            put => put,
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.try_again(&format!("remove {name}"), |_| self.bucket.remove(name))
    }

    fn remove_leftovers(&self) -> Result<()> {
        self.try_again("remove what is left over", |_| self.bucket.remove_leftovers())
    }
}

/// What a thread of a door or a query is told of a store that failed: it gets `error` back from what it is told.
pub(crate) fn as_io(error: Error) -> std::io::Error {
    use std::io::ErrorKind as Io;
    let kind = match error.kind() {
        ErrorKind::NotFound => Io::NotFound,
        ErrorKind::DiskFull => Io::StorageFull,
        _ => Io::Other,
    };
    std::io::Error::new(kind, error)
}
