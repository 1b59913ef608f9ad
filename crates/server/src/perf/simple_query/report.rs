//! What the rounds gave: a line for each, and the figures of all.

use super::workload::Tally;
use crate::alloc::Allocated;
use crate::perf::hardware::Counts;
use crate::stdout::say;
use oribi_types::Result;
use std::time::Duration;

/// A measured piece of the run.
pub struct Round {
    pub tally: Tally,
    pub elapsed: Duration,
    pub allocated: Allocated,
    /// `None` on a machine without counters.
    pub counts: Option<Counts>,
}

#[derive(Default)]
pub struct Report(Vec<Round>);

impl Round {
    fn rate(&self) -> f64 {
        self.tally.operations as f64 / self.elapsed.as_secs_f64()
    }
}

impl Report {
    pub fn add(&mut self, round: Round) -> Result<()> {
        let Tally { operations, errors, .. } = round.tally;
        let each = |count: u64| count as f64 / operations.max(1) as f64;
        say!(
            "{:10.0} ops/s {:8.2} allocs/op {:8.1} bytes allocated/op {errors:5} errors",
            round.rate(),
            each(round.allocated.count),
            each(round.allocated.bytes),
        )?;
        self.0.push(round);
        Ok(())
    }

    /// Of clients that each ran one operation after the other.
    pub fn finish(self, clients: u64) -> Result<()> {
        let mut rates: Vec<f64> = self.0.iter().map(Round::rate).collect();
        rates.sort_by(f64::total_cmp);
        let median = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
        let sum = |count: fn(&Round) -> u64| self.0.iter().map(count).sum::<u64>();
        let operations = sum(|round| round.tally.operations);
        let each = |count: u64| count as f64 / operations.max(1) as f64;
        say!(
            "median {median:.0} ops/s, {:.4} ms each, {:.2} allocs/op, {:.1} bytes allocated/op, {} errors",
            clients as f64 * 1e3 / median,
            each(sum(|round| round.allocated.count)),
            each(sum(|round| round.allocated.bytes)),
            sum(|round| round.tally.errors),
        )?;
        say!(
            "{operations} operations, {:.2} rows/op, {:.1} bytes answered/op",
            each(sum(|round| round.tally.rows)),
            each(sum(|round| round.tally.answered_bytes)),
        )?;
        if self.0.iter().all(|round| round.counts.is_some()) {
            let instructions = sum(|round| round.counts.map_or(0, |counts| counts.instructions));
            let cycles = sum(|round| round.counts.map_or(0, |counts| counts.cycles));
            say!("{:.0} instructions/op, {:.0} cycles/op", each(instructions), each(cycles))
        } else {
            say!("instructions/op and cycles/op: not available on this machine (see docs/benchmarks.md)")
        }
    }
}
