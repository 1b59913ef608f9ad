//! What tasks of a query had from each other, as the exchanges of its plan have measured it.

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

/// Metrics of an exchange, where its rows are taken.
pub const BATCHES: &str = "batches";
pub const BYTES_HANDED_OVER: &str = "bytes_handed_over";
pub const BYTES_SENT: &str = "bytes_sent";
pub const BYTES_BEFORE_COMPRESSION: &str = "bytes_before_compression";
pub const ENCODING: &str = "encoding";
pub const WAITING_FOR_NETWORK: &str = "waiting_for_network";
pub const WAITING_FOR_RECEIVER: &str = "waiting_for_receiver";

/// Of one exchange, or of all that a plan has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Exchanged {
    pub(crate) rows: usize,
    pub(crate) batches: usize,
    pub(crate) bytes_handed_over: usize,
    pub(crate) bytes_sent: usize,
    pub(crate) bytes_before_compression: usize,
    pub(crate) encoding: Duration,
    pub(crate) waiting_for_network: Duration,
    pub(crate) waiting_for_receiver: Duration,
}

impl Exchanged {
    /// By all exchanges of an executed plan.
    pub(crate) fn by(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut all = plan.metrics().as_ref().and_then(Exchanged::of).unwrap_or_default();
        plan.children().into_iter().for_each(|input| all += Exchanged::by(input));
        all
    }

    /// `None` for metrics of another operator.
    pub(crate) fn of(metrics: &MetricsSet) -> Option<Self> {
        let sum = |name: &str| metrics.sum_by_name(name).map_or(0, |value| value.as_usize());
        let time = |name| Duration::from_nanos(sum(name) as u64);
        metrics.sum_by_name(BYTES_HANDED_OVER).map(|bytes_handed_over| Exchanged {
            rows: metrics.output_rows().unwrap_or(0),
            batches: sum(BATCHES),
            bytes_handed_over: bytes_handed_over.as_usize(),
            bytes_sent: sum(BYTES_SENT),
            bytes_before_compression: sum(BYTES_BEFORE_COMPRESSION),
            encoding: time(ENCODING),
            waiting_for_network: time(WAITING_FOR_NETWORK),
            waiting_for_receiver: time(WAITING_FOR_RECEIVER),
        })
    }

    /// What tasks had, however it came.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes_handed_over + self.bytes_before_compression
    }
}

impl AddAssign for Exchanged {
    fn add_assign(&mut self, other: Exchanged) {
        self.rows += other.rows;
        self.batches += other.batches;
        self.bytes_handed_over += other.bytes_handed_over;
        self.bytes_sent += other.bytes_sent;
        self.bytes_before_compression += other.bytes_before_compression;
        self.encoding += other.encoding;
        self.waiting_for_network += other.waiting_for_network;
        self.waiting_for_receiver += other.waiting_for_receiver;
    }
}
