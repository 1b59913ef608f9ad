//! `count(distinct a), sum(b)`: sums of sums, with the type of one sum.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{AggregateFunction, Alias};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Projection};
use datafusion::optimizer::optimizer::{ApplyOrder, Optimizer};
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// DataFusion's rules, of which that for one distinct argument groups by it first, and sums up the sums of the groups: with a wider
/// type, as sums have. The sum has its own type again in our version of it; where a sum is of a type that is brought to another to be
/// summed up, as a `bigint`, nothing is grouped first.
pub(crate) fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let ours = |rule: Arc<dyn OptimizerRule + Send + Sync>| match rule.name() == Beside::default().name() {
        true => Arc::new(Beside::default()),
        false => rule,
    };
    Optimizer::new().rules.into_iter().map(ours).collect()
}

#[derive(Debug, Default)]
struct Beside(SingleDistinctToGroupBy);

impl OptimizerRule for Beside {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        for sum in &aggregate.aggr_expr {
            if !is_summed_as_it_is(sum, &aggregate.input)? {
                return Ok(Transformed::no(plan));
            }
        }
        let before = Arc::clone(plan.schema());
        let rewritten = self.0.rewrite(plan, config)?;
        if !rewritten.transformed {
            return Ok(rewritten);
        }
        rewritten.map_data(|plan| {
            let LogicalPlan::Projection(Projection { expr, input, .. }) = plan else { return Ok(plan) };
            let typed = |(expr, field): (Expr, &Arc<arrow::datatypes::Field>)| match expr {
                Expr::Alias(Alias { expr, relation, name, .. }) => {
                    let sum = expr.cast_to(field.data_type(), input.schema())?;
                    Ok(sum.alias_qualified(relation, name))
                }
                group => Ok(group),
            };
            let typed = expr.into_iter().zip(before.fields()).map(typed).collect::<Result<_>>()?;
            Projection::try_new(typed, input).map(LogicalPlan::Projection)
        })
    }
}

/// Whether what an aggregate gives can be its argument.
fn is_summed_as_it_is(aggregate: &Expr, input: &LogicalPlan) -> Result<bool> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = aggregate else { return Ok(true) };
    if params.distinct || func.name() != "sum" {
        return Ok(true);
    }
    let sum = [aggregate.get_type(input.schema())?];
    Ok(func.coerce_types(&sum)? == sum)
}
