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
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use datafusion_distributed::NetworkBoundaryExt;
use oribi_query::nodes::{RuntimeFilter, RuntimeFilters, awaited_filters};
use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// What a hash join will learn.
fn filter_of(node: &Arc<dyn ExecutionPlan>) -> Option<Arc<DynamicFilterPhysicalExpr>> {
    node.downcast_ref::<HashJoinExec>()?
        .dynamic_expressions_produced()
        .into_iter()
        .find_map(|learned| (learned as Arc<dyn Any + Send + Sync>).downcast().ok())
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
        joins.extend(filter_of(node).and_then(|filter| filter.expression_id()));
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
    pub(crate) fn telling(&self, plan: Arc<dyn ExecutionPlan>, task: u32) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(filter) = filter_of(&node) else { return Ok(Transformed::no(node)) };
            let [left, right] = node.children()[..] else { return Ok(Transformed::no(node)) };
            let asked = Arc::clone(&filter) as Arc<dyn PhysicalExpr>;
            let telling = Arc::new(SpawnedTask::spawn(self.clone().tell(filter, task)));
            let asks = Asks { plan: Arc::clone(right), asked, telling };
            let inputs = vec![Arc::clone(left), Arc::new(asks) as _];
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            node.replace_children(inputs, options).map(Transformed::yes)
        })
        .data()
    }

    async fn tell(self, filter: Arc<DynamicFilterPhysicalExpr>, task: u32) {
        filter.wait_complete().await;
        let Some(id) = filter.expression_id() else { return };
        let told = RuntimeFilter::learned(&filter).unwrap_or(RuntimeFilter::Any);
        if let Err(error) = self.owner.tell(self.query, (id, task), &told).await {
            tracing::debug!(%error, "the owner is not told what a join has learned");
            // Scans wait for each task, and one that cannot say has to say that.
            let _ = self.owner.tell(self.query, (id, task), &RuntimeFilter::Any).await;
        }
    }
}

/// Is taken for the node in it by whoever looks.
struct Asks {
    plan: Arc<dyn ExecutionPlan>,
    asked: Arc<dyn PhysicalExpr>,
    /// Ends with the plan.
    telling: Arc<SpawnedTask<()>>,
}

impl fmt::Debug for Asks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.fmt(f)
    }
}

impl DisplayAs for Asks {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.fmt_as(format, f)
    }
}

impl ExecutionPlan for Asks {
    fn name(&self) -> &str {
        self.plan.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.plan.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.plan.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        match f(&self.asked)? {
            TreeNodeRecursion::Continue => self.plan.apply_expressions(f),
            other => Ok(other),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Arc::new(Asks {
            plan: Arc::clone(&self.plan).replace_children(children, options)?,
            asked: Arc::clone(&self.asked),
            telling: Arc::clone(&self.telling),
        }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.plan.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.plan.metrics()
    }
}
