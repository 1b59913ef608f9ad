//! DataFusion's memory pool, laid over the engine's budget.
//!
//! Queries, memtables and row cache draw on one budget. Of it, queries may hold a share; what they hold is divided
//! fairly among the operators that can spill to disk, after those that cannot (hash joins) took what they need, so
//! that one sort does not starve the next. An operator that gets no more spills, or the query fails; the process
//! never grows.

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use oribi_engine::MemoryBudget;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// DataFusion's name for what merges the spilled runs of a sort. It takes whatever it is given, to merge as many runs
/// at a time as it can, and makes do with less: left alone, it starves the rest of its plan.
const RUN_MERGE: &str = "ExternalSorterMerge";

/// DataFusion's name for what merges sorted partitions. It holds a few batches of its inputs and counts for each the
/// whole buffers that its strings lie in, which the sorts below have counted already: an error would be about memory
/// that nobody uses. So it is given what it asks for, and not counted.
const PARTITION_MERGE: &str = "SortPreservingMergeExec";

/// The memory of all queries of a process.
pub(crate) struct QueryMemory {
    budget: Arc<MemoryBudget>,
    /// The most that queries hold together, in bytes.
    limit: usize,
    /// Partitions that a plan executes at a time.
    threads: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Operators that can spill.
    spillers: usize,
    /// Bytes held by operators that can spill, and by the others.
    spillable: usize,
    unspillable: usize,
}

impl QueryMemory {
    /// A pool of at most `limit` bytes of `budget`, for plans of `threads` partitions.
    pub(crate) fn new(budget: Arc<MemoryBudget>, limit: usize, threads: usize) -> Self {
        QueryMemory { budget, limit, threads: threads.max(1), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_counted(consumer: &MemoryConsumer) -> bool {
    !consumer.name().starts_with(PARTITION_MERGE)
}

impl State {
    fn held(&mut self, consumer: &MemoryConsumer) -> &mut usize {
        if consumer.can_spill() { &mut self.spillable } else { &mut self.unspillable }
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        "query memory"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.lock().spillers += usize::from(consumer.can_spill());
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.lock().spillers -= usize::from(consumer.can_spill());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        if !is_counted(reservation.consumer()) {
            return;
        }
        let mut state = self.lock();
        // This cannot fail: the budget counts it, and others make room.
        self.budget.reserve(additional as u64);
        *state.held(reservation.consumer()) += additional;
    }

    fn shrink(&self, reservation: &MemoryReservation, bytes: usize) {
        if !is_counted(reservation.consumer()) {
            return;
        }
        let mut state = self.lock();
        *state.held(reservation.consumer()) -= bytes;
        self.budget.release(bytes as u64);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let consumer = reservation.consumer();
        if !is_counted(consumer) {
            return Ok(());
        }
        let mut state = self.lock();
        let refuse = |left: usize| {
            Err(DataFusionError::ResourcesExhausted(format!(
                "{} asked for {additional} bytes in addition to {}, {left} are left for it",
                consumer.name(),
                reservation.size(),
            )))
        };
        let left = if consumer.can_spill() {
            // They get a third: the merge of what several sorts hold accounts for the same rows once more and cannot
            // spill, and neither can what the plan has above it.
            let together = self.limit.saturating_sub(state.unspillable).min(self.limit / 3);
            (together / state.spillers.max(1)).saturating_sub(reservation.size())
        } else {
            let free = self.limit.saturating_sub(state.unspillable + state.spillable);
            match consumer.name().starts_with(RUN_MERGE) {
                true => free.min((self.limit / 2 / self.threads).saturating_sub(reservation.size())),
                false => free,
            }
        };
        if additional > left {
            return refuse(left);
        }
        if !self.budget.try_reserve(additional as u64) {
            return refuse(self.budget.left_for_queries() as usize);
        }
        *state.held(consumer) += additional;
        Ok(())
    }

    fn reserved(&self) -> usize {
        let state = self.lock();
        state.spillable + state.unspillable
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}

impl fmt::Debug for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query memory ({} of {} bytes)", self.reserved(), self.limit)
    }
}
