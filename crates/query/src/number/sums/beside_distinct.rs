//! `count(distinct a), sum(b)`: sums of sums, with the type of one sum.

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::{AggregateFunction, Alias};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, Projection};
use datafusion::optimizer::optimizer::{ApplyOrder, Optimizer};
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// DataFusion's rules, of which that for one distinct argument groups by it first and sums up the sums of the groups: a sum has a wider
/// type than what is summed. In our version of it the sum of sums has that of the sum again.
pub(crate) fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let ours = |rule: Arc<dyn OptimizerRule + Send + Sync>| match rule.name()
        == SumsBesideDistinct::default().name()
    {
        true => Arc::new(SumsBesideDistinct::default()),
        false => rule,
    };
    Optimizer::new().rules.into_iter().map(ours).collect()
}

#[derive(Debug, Default)]
struct SumsBesideDistinct(SingleDistinctToGroupBy);

impl OptimizerRule for SumsBesideDistinct {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Aggregate(aggregate) if can_be_grouped_twice(aggregate)? => {}
            _ => return Ok(Transformed::no(plan)),
        }
        let before = Arc::clone(plan.schema());
        let rewritten = self.0.rewrite(plan, config)?;
        if !rewritten.transformed {
            return Ok(rewritten);
        }
        rewritten.map_data(|plan| {
            let LogicalPlan::Projection(Projection { expr, input, .. }) = plan else {
                return internal_err!("an aggregate that is grouped twice is projected");
            };
            let typed = |(expr, field): (Expr, &FieldRef)| match expr {
                Expr::Alias(Alias { expr, relation, name, .. }) => {
                    let value = expr.cast_to(field.data_type(), input.schema())?;
                    Ok(value.alias_qualified(relation, name))
                }
                column => Ok(column),
            };
            let typed = expr.into_iter().zip(before.fields()).map(typed).collect::<Result<_>>()?;
            Projection::try_new(typed, input).map(LogicalPlan::Projection)
        })
    }
}

fn can_be_grouped_twice(aggregate: &Aggregate) -> Result<bool> {
    for function in &aggregate.aggr_expr {
        if !can_be_its_argument(function, &aggregate.input)? {
            return Ok(false);
        }
    }
    Ok(!aggregate.group_expr.iter().any(has_name_of_the_rule))
}

/// Whether what an aggregate gives can be its argument as it is. A sum of `integer`s is a `bigint`, whose sum is that of a `numeric`, by
/// another kind of addition.
fn can_be_its_argument(function: &Expr, input: &LogicalPlan) -> Result<bool> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = function else { return Ok(true) };
    if params.distinct {
        return Ok(params.args.len() == 1);
    }
    if func.name() != "sum" {
        return Ok(true);
    }
    let sum = [function.get_type(input.schema())?];
    Ok(func.coerce_types(&sum)? == sum)
}

/// Whether a group is a column with a name such as the rule gives to its own.
fn has_name_of_the_rule(group: &Expr) -> bool {
    let Expr::Column(column) = group else { return false };
    column.name.starts_with("alias") || column.name.starts_with("group_alias_")
}
