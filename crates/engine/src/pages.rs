//! Huge pages for the row memory that stays: see [`oribi_index::back_by_huge_page`] for why not from the start.

use crate::engine::Engine;
use std::collections::VecDeque;

/// How long a region of row memory is left in small pages. Bulk loads are over by then, or go on with the machine's other half.
const AGE_MICROS: u64 = 5_000_000;
/// What a tick may take: a tenth of a core.
const TICK_MICROS_MAX: u64 = 5_000;

/// When regions were made.
#[derive(Default)]
pub(crate) struct Ages {
    /// By the monotonic clock, and the number of the youngest then; the first is the oldest.
    made: VecDeque<(u64, u64)>,
    last: u64,
    /// The youngest that is old enough.
    old: u64,
}

impl Ages {
    fn tick(&mut self, now_micros: u64, youngest: u64) {
        if youngest > self.last {
            self.last = youngest;
            self.made.push_back((now_micros + AGE_MICROS, youngest));
        }
        while let Some((_, number)) = self.made.pop_front_if(|(old_micros, _)| *old_micros <= now_micros) {
            self.old = number;
        }
    }
}

impl Engine {
    /// Moves memory of rows into huge pages where it is old enough.
    pub(crate) fn pages_tick(&self, ages: &mut Ages) {
        let monotonic_micros = || self.env.clock.monotonic_micros();
        let start = monotonic_micros();
        ages.tick(start, oribi_index::regions_made());
        while monotonic_micros() - start < TICK_MICROS_MAX && oribi_index::back_by_huge_page(ages.old) {}
    }
}

#[cfg(test)]
mod tests {
    use super::{AGE_MICROS, Ages};

    #[test]
    fn regions_are_old_some_seconds_after_they_were_first_seen() {
        let mut ages = Ages::default();
        ages.tick(7, 3);
        ages.tick(8, 5);
        assert_eq!(ages.old, 0);
        ages.tick(7 + AGE_MICROS, 5);
        assert_eq!(ages.old, 3);
        ages.tick(8 + AGE_MICROS, 6);
        assert_eq!(ages.old, 5);
        ages.tick(8 + 2 * AGE_MICROS, 6);
        assert_eq!(ages.old, 6);
    }
}
