//! Joins of a task that tell the owner which keys they have seen, for scans in other tasks.
//!
//! DataFusion's hash join makes a filter of that where something below its second side asks for it. Here that is in another process: so a node
//! that asks is put below it.

use crate::owner::RemoteOwner;
use arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{NullEquality, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use datafusion_distributed::NetworkBoundaryExt;
use futures::StreamExt;
use oribi_query::nodes::{
    Codes, KEYS_MAX, KeySet, RuntimeFilter, RuntimeFilters, awaited_filters, scanned_rows, whole_table,
};
use oribi_query::wrapped::{Addition, wrapped};
use std::any::Any;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a hash join will learn.
fn filter_of(node: &Arc<dyn ExecutionPlan>) -> Option<Arc<DynamicFilterPhysicalExpr>> {
    node.downcast_ref::<HashJoinExec>()?
        .dynamic_expressions_produced()
        .into_iter()
        .find_map(|learned| (learned as Arc<dyn Any + Send + Sync>).downcast().ok())
}

/// A first side that is a whole table leaves out little of a second with so many times its rows at most: most likely all of its keys are
/// foreign keys of that table.
const WHOLE_TIMES: usize = 32;

/// Whether too few rows of a join's second side have no partner for that to be told.
fn leaves_little_out(join: &HashJoinExec) -> bool {
    let Some(whole) = whole_table(join.left()) else { return false };
    let mut scanned = 0;
    let counted = join.right().apply(|node| {
        scanned = scanned.max(scanned_rows(node).unwrap_or(0));
        Ok(TreeNodeRecursion::Continue)
    });
    counted.is_ok() && scanned / WHOLE_TIMES < whole
}

/// The joins of a plan that have something to tell, by their filters.
pub(crate) fn joins(plan: &Arc<dyn ExecutionPlan>) -> Result<HashSet<u64>> {
    let mut joins = HashSet::new();
    plan.apply(|node| {
        if node.is::<UnionExec>() {
            // Which tasks execute which of its inputs is decided later, and whoever does not would never tell.
            joins.clear();
            return Ok(TreeNodeRecursion::Stop);
        }
        if !node.downcast_ref::<HashJoinExec>().is_some_and(leaves_little_out) {
            joins.extend(filter_of(node).and_then(|filter| filter.expression_id()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(joins)
}

/// The plan with those of its joins alone telling that a scan waits for: who tells gives no rows before all of a task's partitions have keys.
pub(crate) fn without_unawaited(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let mut awaited = HashSet::new();
    plan.apply(|node| {
        awaited.extend(awaited_filters(node));
        Ok(TreeNodeRecursion::Continue)
    })?;
    plan.transform_up(|node| match filter_of(&node).and_then(|filter| filter.expression_id()) {
        Some(filter) if !awaited.contains(&filter) => node.reset_state().map(Transformed::yes),
        _ => Ok(Transformed::no(node)),
    })
    .data()
}

/// Says from how many tasks the filters of a plan's joins will come, and that tasks which all have a join's whole first side have the same keys. The last stage, which is the owner's, tells nothing.
pub(crate) fn expect(plan: &Arc<dyn ExecutionPlan>, filters: &RuntimeFilters) -> Result<()> {
    expect_of(plan, 0, filters)
}

fn expect_of(plan: &Arc<dyn ExecutionPlan>, tasks: usize, filters: &RuntimeFilters) -> Result<()> {
    plan.apply(|node| {
        if let Some(boundary) = node.as_ref().as_network_boundary() {
            let stage = boundary.input_stage();
            stage.local_plan().map_or(Ok(()), |plan| expect_of(plan, stage.task_count(), filters))?;
            return Ok(TreeNodeRecursion::Jump);
        }
        if let Some(filter) = filter_of(node).and_then(|filter| filter.expression_id())
            && tasks > 0
        {
            let join = node.downcast_ref::<HashJoinExec>();
            let is_same = join.is_some_and(|join| *join.partition_mode() == PartitionMode::CollectLeft);
            filters.expect(filter, tasks, is_same);
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(drop)
}

/// Who is told, and by which task of which query.
#[derive(Clone)]
pub(crate) struct Teller {
    pub(crate) owner: Arc<RemoteOwner>,
    pub(crate) query: u64,
}

impl Teller {
    /// The plan of a task whose joins tell what they learn.
    pub(crate) fn telling(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        (task, tasks): (u32, usize),
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(filter) = filter_of(&node) else { return Ok(Transformed::no(node)) };
            let [left, right] = node.children()[..] else { return Ok(Transformed::no(node)) };
            let Some(join) = node.downcast_ref::<HashJoinExec>() else { return Ok(Transformed::no(node)) };
            let seen = Seen::of(join, tasks);
            let left = match &seen {
                Some(seen) => wrapped(Arc::clone(left), Sees(Arc::clone(seen))),
                None => Arc::clone(left),
            };
            let asked = Arc::clone(&filter) as Arc<dyn PhysicalExpr>;
            let telling = SpawnedTask::spawn(self.clone().tell(filter, task, seen));
            let asks = wrapped(Arc::clone(right), Asks { asked, _telling: telling });
            let inputs = vec![left, asks];
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            node.replace_children(inputs, options).map(Transformed::yes)
        })
        .data()
    }

    async fn tell(self, filter: Arc<DynamicFilterPhysicalExpr>, task: u32, seen: Option<Arc<Seen>>) {
        filter.wait_complete().await;
        let Some(id) = filter.expression_id() else { return };
        let told = RuntimeFilter::learned(&filter).unwrap_or(RuntimeFilter::Any);
        let told = match seen.and_then(|seen| seen.key_set()) {
            Some(set) => told.with(set),
            None => told,
        };
        if let Err(error) = self.owner.tell(self.query, (id, task), &told).await {
            tracing::debug!(%error, "the owner is not told what a join has learned");
            // Scans wait for each task, and one that cannot say has to say that.
            let _ = self.owner.tell(self.query, (id, task), &RuntimeFilter::Any).await;
        }
    }
}

/// So many of a filter are there while it is told: itself, in a message, in another, and as that is sent.
const COPIES: usize = 4;

/// The keys that a join has seen in its first side.
struct Seen {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Who have a part of them each, this one among them.
    tasks: usize,
    seen: Mutex<Keys>,
}

#[derive(Default)]
enum Keys {
    #[default]
    None,
    /// Of each batch, and how many; counted by the reservation.
    Few(Vec<Codes>, usize, MemoryReservation),
    /// More than there is room for, or they were told.
    Over,
}

impl Seen {
    /// Those of a join of a task; `None` if its keys are not told one by one: NULL is no key here.
    fn of(join: &HashJoinExec, tasks: usize) -> Option<Arc<Self>> {
        let tasks = match join.partition_mode() {
            PartitionMode::CollectLeft => 1,
            _ => tasks,
        };
        let keys = join.on().iter().map(|(left, _)| Arc::clone(left)).collect();
        let is_told = join.null_equality() == NullEquality::NullEqualsNothing;
        is_told.then(|| Arc::new(Seen { keys, tasks, seen: Mutex::default() }))
    }

    /// Costs some nanoseconds and eight bytes a row.
    fn see(&self, rows: &RecordBatch, pool: &Arc<dyn MemoryPool>) -> Result<()> {
        if matches!(*self.lock(), Keys::Over) {
            return Ok(());
        }
        let of_rows = Codes::of(&self.keys, rows)?;
        let mut seen = self.lock();
        if matches!(*seen, Keys::None) {
            *seen = Keys::Few(Vec::new(), 0, MemoryConsumer::new("keys of a join").register(pool));
        }
        if let Keys::Few(codes, count, room) = &mut *seen {
            *count += of_rows.len();
            let is_told = count.saturating_mul(self.tasks) <= KEYS_MAX;
            if is_told && room.try_grow(of_rows.bytes()).is_ok() {
                codes.push(of_rows);
            } else {
                *seen = Keys::Over;
            }
        }
        Ok(())
    }

    /// A set of them, with room for the copies that are made of it until it is told.
    fn key_set(&self) -> Option<KeySet> {
        let seen = std::mem::replace(&mut *self.lock(), Keys::Over);
        let Keys::Few(codes, count, room) = seen else { return None };
        let keys = count.saturating_mul(self.tasks);
        let copies = room.new_empty();
        copies.try_grow(COPIES * KeySet::bytes_of(keys)).ok()?;
        Some(KeySet::new(&codes, keys).counted(copies))
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stands around the first side of a join.
struct Sees(Arc<Seen>);

impl Addition for Sees {
    fn batches(
        &self,
        batches: SendableRecordBatchStream,
        context: &TaskContext,
    ) -> SendableRecordBatchStream {
        let (seen, pool) = (Arc::clone(&self.0), Arc::clone(context.memory_pool()));
        let schema = batches.schema();
        let batches = batches.map(move |batch| {
            let batch = batch?;
            seen.see(&batch, &pool)?;
            Ok(batch)
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }
}

struct Asks {
    asked: Arc<dyn PhysicalExpr>,
    /// Ends with the plan.
    _telling: SpawnedTask<()>,
}

impl Addition for Asks {
    fn asks(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        Some(&self.asked)
    }

    fn batches(&self, batches: SendableRecordBatchStream, _: &TaskContext) -> SendableRecordBatchStream {
        batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};
    use datafusion::physical_expr::expressions::Column;

    fn seen(tasks: usize) -> Seen {
        Seen { keys: vec![Arc::new(Column::new("k", 0))], tasks, seen: Mutex::default() }
    }

    fn rows(keys: Vec<Option<i64>>) -> RecordBatch {
        RecordBatch::try_from_iter([("k", Arc::new(Int64Array::from(keys)) as ArrayRef)]).unwrap()
    }

    fn with_room_for(bytes: usize) -> Arc<dyn MemoryPool> {
        Arc::new(GreedyMemoryPool::new(bytes))
    }

    #[test]
    fn keys_that_were_seen_are_told() {
        let (seen, pool) = (seen(2), Arc::new(UnboundedMemoryPool::default()) as Arc<dyn MemoryPool>);
        seen.see(&rows(vec![Some(1), None, Some(2)]), &pool).unwrap();
        seen.see(&rows(vec![Some(3)]), &pool).unwrap();
        assert_eq!(seen.key_set(), Some(KeySet::new(&[Codes::Integers(vec![1, 2, 3])], 6)));
        assert_eq!(pool.reserved(), 0);
        seen.see(&rows(vec![Some(4)]), &pool).unwrap();
        assert!(seen.key_set().is_none(), "they were told");
    }

    #[test]
    fn too_many_keys_are_not_told() {
        for (seen, pool) in [(seen(KEYS_MAX / 2), with_room_for(1 << 20)), (seen(1), with_room_for(16))] {
            seen.see(&rows(vec![Some(1), Some(2)]), &pool).unwrap();
            seen.see(&rows(vec![Some(3)]), &pool).unwrap();
            assert_eq!(pool.reserved(), 0);
            assert!(seen.key_set().is_none());
        }
    }
}
