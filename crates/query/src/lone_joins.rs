//! Hash joins that would wait for themselves.
//!
//! A hash join tells scans below its second side which keys it wants, and gives no row before it has heard of each partition that it has.
//! One that collects its first side hears of a partition when rows of that are first asked for, and a partitioned join above it that has
//! no row of its own first side in a partition asks for none there: the others wait for ever
//! [DataFusion 55.2, `hash_join/shared_bounds.rs`, `expected_reports`, and `stream.rs`, `state_after_build_ready`]. So such a join tells
//! nothing.

use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode, SortMergeJoinExec};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};
use std::sync::Arc;

/// Runs after DataFusion's own rules, one of which has joins tell.
#[derive(Debug)]
pub(crate) struct LoneJoins;

impl PhysicalOptimizerRule for LoneJoins {
    fn name(&self) -> &str {
        "lone_joins"
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        without_lone(plan, false)
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `is_partly`: there may be partitions that nobody asks for rows while others are.
fn without_lone(plan: Arc<dyn ExecutionPlan>, is_partly: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let join = plan.downcast_ref::<HashJoinExec>();
    let is_asked_partly = |input: usize| match (join.map(|join| (join, join.partition_mode())), input) {
        // Others have rows without a partner.
        (Some((join, PartitionMode::Partitioned)), 1)
            if join.join_type().empty_build_side_produces_empty_result() =>
        {
            true
        }
        (Some((_, PartitionMode::CollectLeft)), 0) => false,
        _ if plan.is::<SortMergeJoinExec>() => true,
        _ => is_partly && !asks_all(&plan),
    };
    let inputs = plan.children().into_iter().enumerate();
    let inputs = inputs.map(|(i, input)| without_lone(Arc::clone(input), is_asked_partly(i)));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let is_same = plan.children().into_iter().zip(&inputs).all(|(before, after)| Arc::ptr_eq(before, after));
    let plan = match is_same {
        true => plan,
        false => {
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            plan.replace_children(inputs, options)?
        }
    };
    let tells = plan.downcast_ref::<HashJoinExec>().is_some_and(|join| {
        *join.partition_mode() == PartitionMode::CollectLeft
            && plan.output_partitioning().partition_count() > 1
            && !join.dynamic_expressions_produced().is_empty()
    });
    if tells && is_partly { plan.reset_state() } else { Ok(plan) }
}

/// Whether it asks for the rows of all partitions below as soon as one of its own is asked for.
fn asks_all(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>()
}
