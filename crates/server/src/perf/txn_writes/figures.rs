//! Means and spreads of several runs.

use super::writer::Written;
use crate::stdout::say;
use oribi_types::Result;
use std::time::Duration;

/// One run after the other.
#[derive(Default)]
pub(super) struct Figures {
    writes: Vec<f64>,
    rates: Vec<f64>,
}

impl Figures {
    pub fn add(&mut self, (written, elapsed): (Written, Duration)) {
        self.writes.push(written.writes as f64);
        self.rates.push(written.writes as f64 / elapsed.as_secs_f64());
    }

    pub fn mean_rate(&self) -> f64 {
        mean(&self.rates)
    }

    pub fn say(&self, name: &str) -> Result<()> {
        let runs = self.writes.len();
        let least = self.writes.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.writes.iter().copied().fold(0.0, f64::max);
        say!(
            "{name}: mean {:.1} write RPCs of {runs} runs (standard deviation {:.1}, {least} to {most}), {:.1}/s",
            mean(&self.writes),
            deviation(&self.writes),
            self.mean_rate(),
        )
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Of a sample; 0 of one value.
fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len().max(2) - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_a_spread() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&values), 5.0);
        assert!((deviation(&values) - 2.138).abs() < 0.001);
        assert_eq!(deviation(&[3.0]), 0.0);
    }
}
