//! What the clients of a door do, counted for its own statistics and for the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A count that only grows, and the metric of it.
pub struct Counter {
    total: AtomicU64,
    metric: metrics::Counter,
}

impl Counter {
    pub fn new(metric: impl Into<metrics::SharedString>) -> Self {
        let name: metrics::SharedString = metric.into();
        Counter { total: AtomicU64::new(0), metric: metrics::counter!(name) }
    }

    pub fn add(&self, count: u64) {
        if count > 0 {
            self.total.fetch_add(count, Ordering::Relaxed);
            self.metric.increment(count);
        }
    }

    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

/// Connections and bytes of a door.
pub struct Traffic {
    open: AtomicUsize,
    open_metric: metrics::Gauge,
    threads: Box<[ThreadTraffic]>,
}

/// What one thread of a door counts. Apart from the others' in memory, so that threads do not wait for each other.
#[repr(align(128))]
pub(crate) struct ThreadTraffic {
    pub accepted: Counter,
    pub rejected: Counter,
    pub idle: Counter,
    pub received_bytes: Counter,
    pub sent_bytes: Counter,
}

/// Counts since the door was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficSum {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections turned away as one too many.
    pub rejected: u64,
    /// Connections closed because they were silent for too long.
    pub idle: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

impl Traffic {
    /// Of the door `name`, which has `threads` threads.
    pub fn new(name: &str, threads: usize) -> Arc<Self> {
        let thread = |_| ThreadTraffic {
            accepted: Counter::new(format!("oribi_{name}_connections_total")),
            rejected: Counter::new(format!("oribi_{name}_rejected_connections_total")),
            idle: Counter::new(format!("oribi_{name}_idle_connections_total")),
            received_bytes: Counter::new(format!("oribi_{name}_received_bytes_total")),
            sent_bytes: Counter::new(format!("oribi_{name}_sent_bytes_total")),
        };
        Arc::new(Traffic {
            open: AtomicUsize::new(0),
            open_metric: metrics::gauge!(format!("oribi_{name}_connections_count")),
            threads: (0..threads).map(thread).collect(),
        })
    }

    /// How many connections there are.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub fn sum(&self) -> TrafficSum {
        let mut sum = TrafficSum::default();
        for thread in &self.threads {
            sum.accepted += thread.accepted.total();
            sum.rejected += thread.rejected.total();
            sum.idle += thread.idle.total();
            sum.received_bytes += thread.received_bytes.total();
            sum.sent_bytes += thread.sent_bytes.total();
        }
        sum
    }

    pub(crate) fn thread(&self, thread: usize) -> &ThreadTraffic {
        &self.threads[thread]
    }

    /// Takes one of `connections_max` places, if one is free.
    pub(super) fn enter(&self, connections_max: usize) -> bool {
        if self.open.fetch_add(1, Ordering::Relaxed) >= connections_max {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.open_metric.increment(1);
        true
    }

    /// Gives a place back.
    pub(super) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.open_metric.decrement(1);
    }
}
