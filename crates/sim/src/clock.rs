//! A clock that moves when told.

use oribi_env::Clock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Starts at 2001-09-09 01:46:40 UTC, a round billion seconds.
const START_MICROS: u64 = 1_000_000_000_000_000;

/// Time as the test makes it. The wall clock can be moved against the monotonic one.
#[derive(Debug, Default)]
pub struct SimClock {
    elapsed: AtomicU64,
    shift: AtomicI64,
}

impl SimClock {
    pub fn new() -> Self {
        SimClock::default()
    }

    /// Lets `micros` pass.
    pub fn advance(&self, micros: u64) {
        self.elapsed.fetch_add(micros, Ordering::SeqCst);
    }

    /// Sets the wall clock forward or back by `micros`.
    pub fn jump(&self, micros: i64) {
        self.shift.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now_micros(&self) -> u64 {
        (START_MICROS + self.monotonic_micros()).saturating_add_signed(self.shift.load(Ordering::SeqCst))
    }

    fn monotonic_micros(&self) -> u64 {
        self.elapsed.load(Ordering::SeqCst)
    }
}
