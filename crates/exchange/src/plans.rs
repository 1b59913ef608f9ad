//! Whether a plan comes through: it is written, read again, and compared.
//!
//! What DataFusion's encoding leaves out of a node or an expression, in this release or the next, then keeps the query in one process
//! instead of changing its answer.

use crate::codec::Codec;
use arrow::compute::SortOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterTracking};
use datafusion::physical_expr::{Partitioning, PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, displayable};
use oribi_query::QueryEngine;
use oribi_types::Error;
use std::sync::Arc;

/// # Errors
/// `Unsupported`, naming what does not travel.
pub(crate) fn check(codec: &Codec, plan: &Arc<dyn ExecutionPlan>, context: &TaskContext) -> Result<()> {
    plan.apply(|node| {
        if !is_known(node) {
            return Err(stays(&format!("the node {}", node.name())));
        }
        let shuffle = node.downcast_ref::<RepartitionExec>();
        if shuffle.is_some_and(|shuffle| shuffle.properties().output_ordering().is_some()) {
            // Rows of several tasks come in any order.
            return Err(stays("a shuffle that keeps an order"));
        }
        if is_join_of_first_rows(node) {
            // Each task would have others.
            return Err(stays("a join of the first rows that come"));
        }
        let hashed = shuffle.map(RepartitionExec::partitioning);
        if let Some(Partitioning::Hash(keys, _)) = hashed
            && let Some(key) = keys.iter().find(|key| !key.is::<Column>())
        {
            // Keys travel by themselves, too, as datafusion-distributed writes them.
            return Err(stays(&format!("a shuffle by {key}")));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    compare(plan, &codec.decode(&codec.encode(plan)?, context)?, codec.query()?.as_ref())
}

/// Whether a node is one that does in tasks what it does in one process, and whose every setting is compared or shown.
///
/// Not so, and wrong answers if they were taken: windows lose the conditions of aggregates (`FILTER`) on their way, and whether nulls are
/// ignored; a subquery that gives one value and those who ask for it come to be in different processes.
fn is_known(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.children().is_empty()
        || node.is::<AggregateExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CrossJoinExec>()
        || node.is::<FilterExec>()
        || node.is::<GlobalLimitExec>()
        || node.is::<HashJoinExec>()
        || node.is::<LocalLimitExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<ProjectionExec>()
        || node.is::<RepartitionExec>()
        || node.is::<SortExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<UnionExec>()
}

/// Whether a join, which each task has all of the one side for, reads no more than so many rows of that, in any order.
fn is_join_of_first_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    let is_join = node.is::<HashJoinExec>() || node.is::<NestedLoopJoinExec>() || node.is::<CrossJoinExec>();
    let side = node.children().into_iter().next().filter(|_| is_join);
    let gathered = side.and_then(|side| side.downcast_ref::<CoalescePartitionsExec>());
    gathered.is_some_and(|gathered| gathered.fetch().is_some())
}

fn stays(what: &str) -> DataFusionError {
    DataFusionError::External(Box::new(Error::unsupported(format!(
        "{what} does not travel to another process"
    ))))
}

fn compare(sent: &Arc<dyn ExecutionPlan>, come: &Arc<dyn ExecutionPlan>, query: &QueryEngine) -> Result<()> {
    let (sent_inputs, come_inputs) = (sent.children(), come.children());
    let is_same = sent.name() == come.name()
        && sent.schema() == come.schema()
        && sent_inputs.len() == come_inputs.len()
        && sent.fetch() == come.fetch()
        && sent.output_partitioning().partition_count() == come.output_partitioning().partition_count()
        && shown(sent) == shown(come)
        && aggregates(sent) == aggregates(come)
        && joins(sent) == joins(come);
    let (of_sent, of_come) = (expressions(sent)?, expressions(come)?);
    if !is_same || of_sent.len() != of_come.len() {
        return Err(stays(&format!("{} as it is here", sent.name())));
    }
    for (sent, come) in of_sent.iter().zip(&of_come) {
        if !is_same_expression(sent, come, query)? {
            return Err(stays(&format!("the expression {sent}")));
        }
    }
    sent_inputs.into_iter().zip(come_inputs).try_for_each(|(sent, come)| compare(sent, come, query))
}

/// What a node says of itself, if it is not a scan, which says more of a table that is here.
fn shown(plan: &Arc<dyn ExecutionPlan>) -> Option<String> {
    let is_scan = plan.children().is_empty();
    (!is_scan).then(|| displayable(plan.as_ref()).one_line().to_string())
}

/// What an aggregate is, beside its arguments, which are compared as expressions.
fn aggregates(plan: &Arc<dyn ExecutionPlan>) -> Option<Vec<impl PartialEq + use<>>> {
    let aggregates = plan.downcast_ref::<AggregateExec>()?.aggr_expr().iter();
    let aggregate = |of: &Arc<AggregateFunctionExpr>| {
        let orders: Vec<SortOptions> = of.order_bys().iter().map(|by| by.options).collect();
        (of.fun().clone(), of.is_distinct(), of.ignore_nulls(), of.is_reversed(), orders)
    };
    Some(aggregates.map(aggregate).collect())
}

/// What a join by hash is, beside its keys and its condition.
fn joins(plan: &Arc<dyn ExecutionPlan>) -> Option<impl PartialEq + use<>> {
    let join = plan.downcast_ref::<HashJoinExec>()?;
    let columns = join.filter().map(|filter| filter.column_indices().to_vec());
    Some((*join.join_type(), *join.partition_mode(), join.null_equality(), join.null_aware, columns))
}

/// Those of a node, but for what operators learn: they check it themselves.
fn expressions(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
    let mut found = Vec::new();
    plan.apply_expressions(&mut |expr| {
        if !DynamicFilterTracking::classify(expr).contains_dynamic_filter() {
            found.push(Arc::clone(expr));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn is_same_expression(
    sent: &Arc<dyn PhysicalExpr>,
    come: &Arc<dyn PhysicalExpr>,
    query: &QueryEngine,
) -> Result<bool> {
    let (of_sent, of_come) = (sent.children(), come.children());
    if of_sent.len() != of_come.len() {
        return Ok(false);
    }
    for (sent, come) in of_sent.iter().zip(&of_come) {
        if !is_same_expression(sent, come, query)? {
            return Ok(false);
        }
    }
    // Functions are those that both processes have by these names, and their options those of the process where they are.
    let call = |expr: &Arc<dyn PhysicalExpr>| {
        let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() else { return Ok(None) };
        let field = call.return_field(&arrow::datatypes::Schema::empty())?;
        Ok::<_, DataFusionError>(Some((query.called_function(call)?, call.name().to_owned(), field)))
    };
    if let Some(sent) = call(sent)? {
        return Ok(call(come)?.is_some_and(|come| come == sent));
    }
    let same_operands = of_sent.into_iter().map(Arc::clone).collect();
    Ok(Arc::clone(come).with_new_children(same_operands)?.as_ref() == sent.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::of_node;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr};
    use datafusion::physical_expr::projection::ProjectionExpr;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::explain::ExplainExec;
    use datafusion_proto::bytes::{physical_plan_from_bytes, physical_plan_to_bytes};
    use oribi_engine::{Engine, EngineOptions};
    use oribi_env::Env;
    use oribi_query::QueryOptions;

    fn engine(dir: &tempfile::TempDir) -> Arc<QueryEngine> {
        let engine = Engine::open(Env::real(), dir.path(), EngineOptions::default()).unwrap();
        QueryEngine::new(engine, QueryOptions { threads: 1, ..QueryOptions::default() }).unwrap()
    }

    fn computing(expr: Arc<dyn PhysicalExpr>) -> Arc<dyn ExecutionPlan> {
        let fields = vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Int64, true)];
        let input = Arc::new(EmptyExec::new(Arc::new(Schema::new(fields))));
        let projected = ProjectionExpr { expr, alias: "x".to_owned() };
        Arc::new(ProjectionExec::try_new(vec![projected], input).unwrap())
    }

    fn column(name: &str, place: usize) -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(name, place))
    }

    fn plus(left: Arc<dyn PhysicalExpr>, right: Arc<dyn PhysicalExpr>, fails: bool) -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(left, Operator::Plus, right).with_fail_on_overflow(fails))
    }

    /// What DataFusion's own encoding changes.
    fn changed() -> Vec<Arc<dyn ExecutionPlan>> {
        let (a, b) = (column("a", 0), column("b", 1));
        let marked = Field::new("x", DataType::Int32, true);
        let marked = marked.with_metadata([("oribi.type".to_owned(), "json".to_owned())].into());
        vec![
            computing(plus(Arc::clone(&a), Arc::clone(&b), true)),
            computing(plus(plus(Arc::clone(&a), Arc::clone(&b), true), Arc::clone(&a), false)),
            computing(plus(plus(Arc::clone(&a), Arc::clone(&b), false), Arc::clone(&a), true)),
            computing(Arc::new(CastExpr::new_with_target_field(b, Arc::new(marked), None))),
        ]
    }

    #[test]
    fn checked_arithmetic_and_marked_casts_come_through() {
        let dir = tempfile::tempdir().unwrap();
        let query = engine(&dir);
        let (codec, context) = (Codec::of_owner(&query), TaskContext::from(query.base_state()));
        for plan in changed() {
            check(&codec, &plan, &context).unwrap();
            // Else nothing would be shown by that.
            let theirs = physical_plan_to_bytes(Arc::clone(&plan)).unwrap();
            let theirs = physical_plan_from_bytes(&theirs, &context).unwrap();
            assert!(compare(&plan, &theirs, &query).is_err(), "{plan:?}");
        }
    }

    #[test]
    fn a_join_of_the_first_rows_that_come_stays() {
        let dir = tempfile::tempdir().unwrap();
        let query = engine(&dir);
        let (codec, context) = (Codec::of_owner(&query), TaskContext::from(query.base_state()));
        let joined = |fetch| {
            let first = CoalescePartitionsExec::new(computing(column("a", 0))).with_fetch(fetch);
            Arc::new(CrossJoinExec::new(Arc::new(first), computing(column("b", 1)))) as _
        };
        check(&codec, &joined(None), &context).unwrap();
        let error = check(&codec, &joined(Some(10)), &context).unwrap_err();
        assert!(error.to_string().contains("the first rows that come"), "{error}");
    }

    /// DataFusion's bytes have it.
    #[test]
    fn a_node_that_does_not_travel_is_neither_written_nor_read() {
        let dir = tempfile::tempdir().unwrap();
        let query = engine(&dir);
        let (codec, context) = (Codec::of_owner(&query), TaskContext::from(query.base_state()));
        let explained = ExplainExec::new(Arc::new(Schema::empty()), Vec::new(), false);
        let plan: Arc<dyn ExecutionPlan> = Arc::new(explained);
        let error = codec.encode(&plan).unwrap_err();
        assert!(error.to_string().contains("ExplainExec does not travel"), "{error}");
        let theirs = physical_plan_to_bytes(Arc::clone(&plan)).unwrap();
        assert!(physical_plan_from_bytes(&theirs, &context).is_ok());
        assert!(codec.decode(&of_node(&theirs), &context).is_err());
        let travels = physical_plan_to_bytes(computing(column("a", 0))).unwrap();
        assert!(codec.decode(&of_node(&travels), &context).is_ok());
    }

    #[test]
    fn garbage_is_no_plan() {
        let dir = tempfile::tempdir().unwrap();
        let query = engine(&dir);
        let (codec, context) = (Codec::of_owner(&query), TaskContext::from(query.base_state()));
        let plan = codec.encode(&changed()[1]).unwrap();
        assert!(codec.decode(&plan, &context).is_ok());
        for end in 0..plan.len() {
            assert!(codec.decode(&plan[..end], &context).is_err(), "cut at {end}");
        }
        for at in 0..plan.len() {
            let mut damaged = plan.clone();
            damaged[at] ^= 0x15;
            // Some are another plan: what nodes send each other is theirs to be believed.
            let _ = codec.decode(&damaged, &context);
        }
    }
}
