//! Subqueries that give one value, the same for all rows.
//!
//! DataFusion executes them ahead, in the process that has the rest of the plan, which keeps a query from being shared out. It can join them
//! instead, but then takes each of several rows for the value where there should be an error, and does not know all places of an
//! expression. So they are joined where they have one row by what they are, and stand where that is known.

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Whether there are some, and all can be joined.
pub(crate) fn can_be_joined(plan: &LogicalPlan) -> Result<bool> {
    let (mut are_there, mut can_be) = (false, true);
    plan.apply_with_subqueries(|node| {
        let is_known = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Projection(_));
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarSubquery(subquery) = expr
                    && subquery.outer_ref_columns.is_empty()
                {
                    are_there = true;
                    can_be &= is_known && has_one_row(&subquery.subquery);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(are_there && can_be)
}

/// Of an aggregate over everything there is one row, and as many of what is computed from it.
fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(computed) => has_one_row(&computed.input),
        LogicalPlan::SubqueryAlias(named) => has_one_row(&named.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}
