//! The keys that a join has seen in its first side.

use super::key_set::{Codes, KEYS_MAX, KeySet};
use crate::nodes::{Retried, scanned_rows, whole_table};
use crate::provider::{asked_filters, with_seen};
use crate::wrapped::{Addition, wrapped};
use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{NullEquality, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use futures::StreamExt;
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What a hash join will learn.
pub fn filter_of(node: &Arc<dyn ExecutionPlan>) -> Option<Arc<DynamicFilterPhysicalExpr>> {
    node.downcast_ref::<HashJoinExec>()?
        .dynamic_expressions_produced()
        .into_iter()
        .find_map(|learned| (learned as Arc<dyn Any + Send + Sync>).downcast().ok())
}

/// Of a first side that is a whole table, and not much smaller than the second, no set is made, and other processes are told nothing: most
/// likely the second has foreign keys of that table, and all of its rows pass. Without that, TPC-H's Q9 (all orders, all that suppliers offer,
/// and lineitem) took a tenth longer.
const WHOLE_TIMES: usize = 8;

/// Whether too few rows of a join's second side have no partner for that to be told.
///
/// # Errors
/// None are expected.
pub fn leaves_little_out(join: &HashJoinExec) -> Result<bool> {
    let Some(whole) = whole_table(join.left()) else { return Ok(false) };
    let mut largest = 0;
    join.right().apply(|node| {
        largest = largest.max(scanned_rows(node).unwrap_or(0));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(largest / WHOLE_TIMES < whole)
}

/// A plan whose scans look for keys of joins in sets of them. It is executed once.
///
/// # Errors
/// None are expected.
pub(crate) fn with_key_sets(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let (mut asked, mut of_joins) = (HashSet::new(), HashMap::new());
    plan.apply(|node| {
        // What is executed again and again has other joins each time. Tasks of other processes see to theirs.
        if node.is::<RecursiveQueryExec>() || node.is::<Retried>() {
            return Ok(TreeNodeRecursion::Jump);
        }
        asked.extend(asked_filters(node));
        if let Some(join) = node.downcast_ref::<HashJoinExec>()
            && let Some(id) = filter_of(node).and_then(|filter| filter.expression_id())
            && !leaves_little_out(join)?
        {
            of_joins.extend(KeysSeen::of(join, 1, 1).map(|seen| (id, seen)));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    of_joins.retain(|id, _| asked.contains(id));
    if of_joins.is_empty() {
        return Ok(plan);
    }
    plan.transform_up(|node| {
        if let Some(scan) = with_seen(&node, &of_joins) {
            return Ok(Transformed::yes(scan));
        }
        let id = filter_of(&node).and_then(|filter| filter.expression_id());
        let Some(seen) = id.and_then(|id| of_joins.get(&id)) else { return Ok(Transformed::no(node)) };
        let mut inputs: Vec<_> = node.children().into_iter().cloned().collect();
        if let Some(first) = inputs.first_mut() {
            *first = seen.around(first);
        }
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        node.replace_children(inputs, options).map(Transformed::yes)
    })
    .data()
}

/// Of the rest of the memory for queries, codes of keys take so small a part: joins that are beside them cannot do without theirs.
const SPARE_TIMES: usize = 16;

/// The keys of the rows that have come.
pub struct KeysSeen {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Who have a part of them each, this one among them.
    tasks: usize,
    /// Of the set, that will be at the same time.
    copies: usize,
    came: Mutex<Came>,
    set: OnceLock<Option<Arc<KeySet>>>,
}

#[derive(Default)]
enum Came {
    #[default]
    Nothing,
    /// Of each batch, and how many; counted by the reservation.
    Few(Vec<Codes>, usize, MemoryReservation),
    /// More than there is room for, or they are in the set.
    Over,
}

impl KeysSeen {
    /// Those of a join of one of several tasks, whose set will be there so many times; `None` if its keys are not told one by one: NULL is no
    /// key here.
    pub fn of(join: &HashJoinExec, tasks: usize, copies: usize) -> Option<Arc<Self>> {
        let tasks = match join.partition_mode() {
            PartitionMode::CollectLeft => 1,
            _ => tasks,
        };
        let keys = join.on().iter().map(|(left, _)| Arc::clone(left)).collect();
        let is_told = join.null_equality() == NullEquality::NullEqualsNothing;
        is_told.then(|| Arc::new(KeysSeen::new(keys, tasks, copies)))
    }

    fn new(keys: Vec<Arc<dyn PhysicalExpr>>, tasks: usize, copies: usize) -> Self {
        KeysSeen { keys, tasks, copies, came: Mutex::default(), set: OnceLock::new() }
    }

    #[cfg(test)]
    pub(crate) fn of_keys(keys: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        KeysSeen::new(keys, 1, 1)
    }

    /// The first side of the join, whose rows are seen as they come.
    #[must_use]
    pub fn around(self: &Arc<Self>, first: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        wrapped(Arc::clone(first), Sees(Arc::clone(self)))
    }

    /// Costs some nanoseconds and eight bytes a row.
    pub(crate) fn see(&self, rows: &RecordBatch, pool: &Arc<dyn MemoryPool>) -> Result<()> {
        if matches!(*self.lock(), Came::Over) {
            return Ok(());
        }
        let of_rows = Codes::of(&self.keys, rows)?;
        let mut came = self.lock();
        if matches!(*came, Came::Nothing) {
            *came = Came::Few(Vec::new(), 0, MemoryConsumer::new("keys of a join").register(pool));
        }
        if let Came::Few(codes, count, room) = &mut *came {
            *count += of_rows.len();
            let is_told =
                count.saturating_mul(self.tasks) <= KEYS_MAX && is_spare(pool, room.size() + of_rows.bytes());
            if is_told && room.try_grow(of_rows.bytes()).is_ok() {
                codes.push(of_rows);
            } else {
                *came = Came::Over;
            }
        }
        Ok(())
    }

    /// A set of them, whoever asks first, which is nobody before all rows have come; `None` if they were too many.
    pub(super) fn key_set(&self) -> Option<Arc<KeySet>> {
        self.set.get_or_init(|| self.make().map(Arc::new)).clone()
    }

    /// With room for its copies.
    fn make(&self) -> Option<KeySet> {
        let came = std::mem::replace(&mut *self.lock(), Came::Over);
        let Came::Few(codes, count, room) = came else { return None };
        let keys = count.saturating_mul(self.tasks);
        let copies = room.new_empty();
        copies.try_grow(self.copies * KeySet::bytes_max(keys)).ok()?;
        let set = KeySet::new(&codes, keys);
        copies.resize(self.copies * set.bytes());
        Some(set.counted(copies))
    }

    fn lock(&self) -> MutexGuard<'_, Came> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_spare(pool: &Arc<dyn MemoryPool>, bytes: usize) -> bool {
    match pool.memory_limit() {
        MemoryLimit::Finite(limit) => limit.saturating_sub(pool.reserved()) / SPARE_TIMES >= bytes,
        _ => true,
    }
}

/// Stands around the first side of a join.
struct Sees(Arc<KeysSeen>);

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

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};
    use datafusion::physical_expr::expressions::Column;

    fn seen(tasks: usize) -> KeysSeen {
        KeysSeen::new(vec![Arc::new(Column::new("k", 0))], tasks, 3)
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
        let set = seen.key_set().unwrap();
        assert_eq!(*set, KeySet::new(&[Codes::Integers(vec![1, 2, 3])], 6));
        assert_eq!(pool.reserved(), 3 * set.bytes());
        seen.see(&rows(vec![Some(4)]), &pool).unwrap();
        assert!(Arc::ptr_eq(&set, &seen.key_set().unwrap()));
        drop((set, seen));
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn too_many_keys_are_not_told() {
        for (seen, pool) in [(seen(KEYS_MAX / 2), with_room_for(1 << 20)), (seen(1), with_room_for(300))] {
            seen.see(&rows(vec![Some(1), Some(2)]), &pool).unwrap();
            seen.see(&rows(vec![Some(3)]), &pool).unwrap();
            assert_eq!(pool.reserved(), 0);
            assert!(seen.key_set().is_none());
        }
    }
}
