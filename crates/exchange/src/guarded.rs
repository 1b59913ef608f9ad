//! A task's plan whose panics are errors.
//!
//! datafusion-distributed sends what a task of tokio polls, and takes one that panicked for one that has ended: whoever takes the rows would
//! have some of them, and not know.

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use datafusion_distributed::BroadcastExec;
use futures::StreamExt;
use oribi_query::wrapped::{Addition, wrapped};
use oribi_types::Error;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// The plan of a task, as it may be executed.
pub(crate) fn guarded(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    // It is replaced by another that gives as many tasks their rows.
    if !plan.is::<RepartitionExec>() && !plan.is::<BroadcastExec>() {
        return Ok(wrapped(plan, Guard { asks: false }));
    }
    let asks = plan.is::<BroadcastExec>();
    let inputs = plan.children().into_iter().map(|input| wrapped(Arc::clone(input), Guard { asks }));
    let inputs = inputs.collect();
    plan.replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

struct Guard {
    /// Whether there has to be room for a batch before it is handed on, to one who keeps it without asking.
    asks: bool,
}

impl Addition for Guard {
    fn batches(
        &self,
        batches: SendableRecordBatchStream,
        context: &TaskContext,
    ) -> SendableRecordBatchStream {
        let room = self.asks.then(|| MemoryConsumer::new("rows for all").register(context.memory_pool()));
        caught(batches, room)
    }
}

/// A partition that is executed, in `/metrics`.
struct Running;

impl Running {
    fn new() -> Self {
        metrics::gauge!("oribi_exchange_partitions_running_count").increment(1.0);
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        metrics::gauge!("oribi_exchange_partitions_running_count").decrement(1.0);
    }
}

fn caught(batches: SendableRecordBatchStream, room: Option<MemoryReservation>) -> SendableRecordBatchStream {
    let (schema, running) = (batches.schema(), Running::new());
    let panicked = || DataFusionError::External(Box::new(Error::internal("a task panicked")));
    let batches = AssertUnwindSafe(batches).catch_unwind();
    let batches = batches.map(move |batch| {
        let _running = &running;
        let batch = batch.unwrap_or_else(|_| Err(panicked()))?;
        if let Some(room) = &room {
            room.try_grow(batch.get_array_memory_size())?;
            room.free();
        }
        Ok(batch)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::RecordBatch;
    use arrow::datatypes::Schema;
    use futures::TryStreamExt;

    #[tokio::test]
    async fn rows_before_a_panic_are_not_all() {
        let batch = RecordBatch::new_empty(Arc::new(Schema::empty()));
        let batches = futures::stream::iter([false, true]).map({
            let batch = batch.clone();
            move |panics| {
                assert!(!panics, "as a bug would");
                Ok(batch.clone())
            }
        });
        let batches = caught(Box::pin(RecordBatchStreamAdapter::new(batch.schema(), batches)), None);
        let error = batches.try_collect::<Vec<_>>().await.unwrap_err();
        assert!(error.to_string().contains("a task panicked"), "{error}");
    }
}
