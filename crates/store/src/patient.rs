//! A store that is asked again where it fails: after a pause that doubles, for so long and no longer.

use crate::bucket::{Body, Bucket, Expected, Listed, Sink, if_there};
use oribi_env::Clock;
use oribi_types::{Error, ErrorKind, Result};
use ring::digest::{Context, SHA256};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
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
    /// Whether a request was given up, and none has succeeded since: nobody waits for others.
    is_given_up: AtomicBool,
}

/// When an attempt last moved bytes, by the monotonic clock.
struct Moved<'c> {
    at_micros: AtomicU64,
    clock: &'c dyn Clock,
}

impl Moved<'_> {
    fn note(&self) {
        self.at_micros.store(self.clock.monotonic_micros(), Relaxed);
    }
}

impl Patient {
    pub fn new(bucket: Arc<dyn Bucket>, clock: Arc<dyn Clock>, patience: Patience) -> Self {
        let (counters, is_given_up) = (Counters::default(), AtomicBool::new(false));
        Patient { bucket, clock, patience, counters, is_given_up }
    }

    /// Since when nothing succeeds, in microseconds.
    pub fn failing_micros(&self) -> u64 {
        match self.counters.failing_since_micros.load(Relaxed) {
            0 => 0,
            since => self.clock.monotonic_micros().saturating_sub(since),
        }
    }

    fn try_again<T>(&self, what: &str, mut attempt: impl FnMut(&Moved<'_>) -> Result<T>) -> Result<T> {
        let moved = Moved { at_micros: AtomicU64::new(0), clock: &*self.clock };
        let mut pause = self.patience.first_pause;
        // In which nothing was moved.
        let mut idle = Duration::ZERO;
        let is_given_up = self.is_given_up.load(Relaxed);
        loop {
            moved.note();
            self.counters.requests.fetch_add(1, Relaxed);
            let error = match attempt(&moved) {
                Err(error) if error.kind() == ErrorKind::Unavailable => error,
                result => {
                    self.is_given_up.store(false, Relaxed);
                    self.counters.failing_since_micros.store(0, Relaxed);
                    return result;
                }
            };
            let now = self.clock.monotonic_micros();
            let _ = self.counters.failing_since_micros.compare_exchange(0, now.max(1), Relaxed, Relaxed);
            idle += Duration::from_micros(now.saturating_sub(moved.at_micros.load(Relaxed)));
            if is_given_up || idle + pause > self.patience.limit {
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
                self.counters.received_bytes.fetch_add(part.len() as u64, Relaxed);
                sink(part, at)
            })
        })
    }

    fn tag(&self, name: &str) -> Result<String> {
        self.try_again(&format!("tell of {name}"), |_| self.bucket.tag(name))
    }

    fn put(&self, name: &str, body: Body<'_>, expected: Expected<'_>) -> Result<String> {
        let put = self.try_again(&format!("take {name}"), |moved| match body {
            Body::Bytes(_) => self.bucket.put(name, body, expected),
            Body::File(file) | Body::Watched(file, _) => {
                self.bucket.put(name, Body::Watched(file, &|| moved.note()), expected)
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
