//! What the clients of a door do, counted for its own statistics and for the metrics.

use crate::crowd::Crowd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

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

    #[inline]
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
    open_metric: metrics::Gauge,
    /// Bytes of long answers that clients have not taken.
    pub(crate) unsent_metric: metrics::Gauge,
    /// Those who come while places are few.
    pub(crate) crowd: Crowd,
    threads: Box<[ThreadTraffic]>,
}

/// What is counted of one thread of a door: who comes in by the thread that accepts, all else by itself. Apart from the
/// others' in memory, so that threads do not wait for each other.
#[repr(align(128))]
pub struct ThreadTraffic {
    open: AtomicUsize,
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
            open: AtomicUsize::new(0),
            accepted: Counter::new(format!("oribi_{name}_connections_total")),
            rejected: Counter::new(format!("oribi_{name}_rejected_connections_total")),
            idle: Counter::new(format!("oribi_{name}_idle_connections_total")),
            received_bytes: Counter::new(format!("oribi_{name}_received_bytes_total")),
            sent_bytes: Counter::new(format!("oribi_{name}_sent_bytes_total")),
        };
        Arc::new(Traffic {
            open_metric: metrics::gauge!(format!("oribi_{name}_connections_count")),
            unsent_metric: metrics::gauge!(format!("oribi_{name}_unsent_bytes")),
            crowd: Crowd::default(),
            threads: (0..threads).map(thread).collect(),
        })
    }

    /// How many connections there are.
    pub fn open(&self) -> usize {
        self.threads.iter().map(ThreadTraffic::open).sum()
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

    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Of the thread of this number.
    #[inline]
    pub fn thread(&self, thread: usize) -> &ThreadTraffic {
        &self.threads[thread]
    }

    /// Takes a place of the thread that has the fewest connections of those that wait, or of all if none does, and returns its number,
    /// unless there are `connections_max`. One at a time, or there may be more.
    pub(crate) fn enter(&self, connections_max: usize, waits: impl Fn(usize) -> bool) -> Option<usize> {
        let open = self.open();
        self.crowd.grows(open + 1, connections_max, Instant::now);
        if open >= connections_max {
            return None;
        }
        let thread =
            (0..self.threads.len()).min_by_key(|thread| (!waits(*thread), self.threads[*thread].open()))?;
        self.threads[thread].open.fetch_add(1, Ordering::Relaxed);
        self.open_metric.increment(1);
        Some(thread)
    }

    /// Gives a place of `thread` back.
    pub(crate) fn leave(&self, thread: usize) {
        self.threads[thread].open.fetch_sub(1, Ordering::Relaxed);
        self.open_metric.decrement(1);
    }
}

impl ThreadTraffic {
    /// How many connections the thread has.
    #[inline]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_is_given_to_a_thread_that_waits_if_there_is_one() {
        let traffic = Traffic::new("test", 3);
        let come = |waits: [bool; 3]| traffic.enter(7, |thread| waits[thread]);
        assert_eq!([[true; 3]; 3].map(come), [Some(0), Some(1), Some(2)]);
        assert_eq!([[false, true, true]; 3].map(come), [Some(1), Some(2), Some(1)]);
        assert_eq!(come([false; 3]), Some(0));
        assert_eq!(come([true; 3]), None);
    }
}
