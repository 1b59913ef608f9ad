//! Joins of a task that tell the owner which keys they have seen, for scans in other tasks.
//!
//! DataFusion's hash join makes a filter of that where something below its second side asks for it. Here that is in another process: so a node
//! that asks is put below it.

use crate::owner::RemoteOwner;
use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use datafusion_distributed::NetworkBoundaryExt;
use oribi_query::nodes::{RuntimeFilters, awaited_filters};
use oribi_query::runtime_filters::{KeysSeen, RuntimeFilter, filter_of, leaves_little_out};
use oribi_query::wrapped::{Addition, wrapped};
use std::collections::HashSet;
use std::sync::Arc;

/// The joins of a plan that have something to tell, by their filters.
pub(crate) fn joins(plan: &Arc<dyn ExecutionPlan>) -> Result<HashSet<u64>> {
    let mut joins = HashSet::new();
    plan.apply(|node| {
        if node.is::<UnionExec>() {
            // Which tasks execute which of its inputs is decided later, and whoever does not would never tell.
            joins.clear();
            return Ok(TreeNodeRecursion::Stop);
        }
        if !node.downcast_ref::<HashJoinExec>().map_or(Ok(false), leaves_little_out)? {
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
            let seen = KeysSeen::of(join, tasks, COPIES);
            let left = match &seen {
                Some(seen) => seen.around(left),
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

    async fn tell(self, filter: Arc<DynamicFilterPhysicalExpr>, task: u32, seen: Option<Arc<KeysSeen>>) {
        filter.wait_complete().await;
        let Some(id) = filter.expression_id() else { return };
        let told = RuntimeFilter::learned(&filter).unwrap_or(RuntimeFilter::Any);
        let told = match seen {
            Some(seen) => told.of_seen(&seen),
            None => told,
        };
        if let Err(error) = self.owner.tell(self.query, (id, task), &told).await {
            tracing::debug!(%error, "the owner is not told what a join has learned");
            // Scans wait for each task, and one that cannot say has to say that.
            let _ = self.owner.tell(self.query, (id, task), &RuntimeFilter::Any).await;
        }
    }
}

/// So many of a set are there while it is told: itself, in a message, in another, and as that is sent.
const COPIES: usize = 4;

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
