//! Huge pages for the row memory that stays: see [`oribi_index::back_by_huge_page`] for why not from the start.

use crate::engine::Engine;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a region of row memory is left in small pages. Bulk loads are over by then, or go on with the machine's other half.
const AGE_MICROS: u64 = 5_000_000;
/// What is done at a time, and then rested: a tenth of a core.
const TURN_MICROS_MAX: u64 = 5_000;
const REST: Duration = Duration::from_millis(45);
/// Until the next look, when nothing is left to do.
const SLEEP: Duration = Duration::from_secs(1);

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
    fn look(&mut self, now_micros: u64, youngest: u64) {
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
    /// Moves memory of rows into huge pages where it is old enough. Returns for how long to sleep then.
    pub(crate) fn back_by_huge_pages(&self, ages: &mut Ages) -> Duration {
        let monotonic_micros = || self.env.clock.monotonic_micros();
        let start = monotonic_micros();
        ages.look(start, oribi_index::regions_made());
        while oribi_index::back_by_huge_page(ages.old) {
            if monotonic_micros() - start > TURN_MICROS_MAX {
                return REST;
            }
        }
        SLEEP
    }
}

#[cfg(test)]
mod tests {
    use super::{AGE_MICROS, Ages};

    #[test]
    fn regions_are_old_some_seconds_after_they_were_first_seen() {
        let mut ages = Ages::default();
        ages.look(7, 3);
        ages.look(8, 5);
        assert_eq!(ages.old, 0);
        ages.look(7 + AGE_MICROS, 5);
        assert_eq!(ages.old, 3);
        ages.look(8 + AGE_MICROS, 6);
        assert_eq!(ages.old, 5);
        ages.look(8 + 2 * AGE_MICROS, 6);
        assert_eq!(ages.old, 6);
    }
}
