//! What a measurement found, as text or as a line of JSON.

use super::cpu::CpuTime;
use super::load::Counts;
use crate::stdout::say;
use hdrhistogram::Histogram;
use oribi_types::Result;
use serde_json::{Value, json};

/// Quantiles that are told.
const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)];

pub struct Report {
    /// Wall time.
    pub seconds: f64,
    pub counts: Counts,
    /// Nanoseconds from the begin of a batch to its last answer.
    pub latency: Histogram<u64>,
    pub client: CpuTime,
    /// If its process is known and still lived at the end.
    pub server: Option<CpuTime>,
}

impl Report {
    fn operations_per_second(&self) -> f64 {
        self.counts.operations() as f64 / self.seconds
    }

    fn operations_per_server_second(&self) -> Option<f64> {
        self.server.map(|server| self.counts.operations() as f64 / server.total().max(1e-9))
    }

    fn latency_us(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }

    /// CPU time in µs per operation.
    fn us_per_operation(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.counts.operations().max(1) as f64
    }

    pub fn print(&self) -> Result<()> {
        let Counts { sets, hits, misses, errors, .. } = self.counts;
        let operations = self.counts.operations();
        say!("{operations} operations in {:.2} s: {:.0} ops/s", self.seconds, self.operations_per_second())?;
        say!("{sets} sets, {hits} hits, {misses} misses, {errors} errors")?;
        let latency = |(name, quantile): &(&str, f64)| format!("{name} {:.0}", self.latency_us(*quantile));
        say!("latency of a batch, µs: {}", QUANTILES.iter().map(latency).collect::<Vec<_>>().join(" "))?;
        say!(
            "client CPU {:.2} s: {:.3} µs/op user, {:.3} µs/op system",
            self.client.total(),
            self.us_per_operation(self.client.user),
            self.us_per_operation(self.client.system),
        )?;
        if let Some((server, per_second)) = self.server.zip(self.operations_per_server_second()) {
            say!(
                "server CPU {:.2} s ({:.2} user, {:.2} system), {per_second:.0} ops per CPU-second",
                server.total(),
                server.user,
                server.system,
            )?;
        }
        Ok(())
    }

    /// Seconds, microseconds for latencies, and counts.
    pub fn json(&self) -> Value {
        let latency: serde_json::Map<_, _> = QUANTILES
            .iter()
            .map(|(name, quantile)| (name.to_string(), json!(self.latency_us(*quantile))))
            .collect();
        let cpu = |cpu: CpuTime| json!({ "user": cpu.user, "system": cpu.system });
        let Counts { sets, hits, misses, errors, .. } = self.counts;
        json!({
            "operations": self.counts.operations(),
            "seconds": self.seconds,
            "operations_per_second": self.operations_per_second(),
            "operations_per_server_cpu_second": self.operations_per_server_second(),
            "sets": sets,
            "hits": hits,
            "misses": misses,
            "errors": errors,
            "batch_latency_us": latency,
            "client_cpu_seconds": cpu(self.client),
            "server_cpu_seconds": self.server.map(cpu),
        })
    }
}
