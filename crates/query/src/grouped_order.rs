//! The order of grouped rows, kept from being left out.
//!
//! DataFusion knows by which columns groups differ, and leaves out a sort whose first keys the rows are in order by already, if
//! these columns are among them: the keys behind cannot matter then. But it takes the columns by their places among those of the groups,
//! whatever a projection has put there since (`EquivalenceProperties::projected_constraints` of 55.2). So
//! `SELECT c, g FROM (SELECT g, count(*) AS c FROM t GROUP BY g ORDER BY c LIMIT 10) s ORDER BY c, g` was not sorted by `g`.
//! What windows and aggregates want their rows sorted by is left out in the same way.
//!
//! It looks for such columns among keys that are columns: so where there are several over groups, they are expressions here. One key by
//! itself is left out only where the rows are in order by it.
//!
//! This is done once the plan is optimized, or keys that several windows have in common would be computed once, and be columns again.

use crate::functions::sort_key;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF, SortExpr};
use std::sync::Arc;

/// Makes the keys by which `plan` sorts grouped rows expressions.
///
/// # Errors
/// None but for a plan that does not hold together.
pub(crate) fn keep_grouped_order(plan: LogicalPlan) -> Result<LogicalPlan> {
    let key = Arc::new(sort_key());
    Ok(plan.transform_down_with_subqueries(|plan| Ok(Transformed::yes(keep(&key, plan)?)))?.data)
}

fn keep(key: &Arc<ScalarUDF>, plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Sort(mut sort) if has_groups(&sort.input)? => {
            keep_keys(key, &mut [], &mut sort.expr);
            Ok(LogicalPlan::Sort(sort))
        }
        LogicalPlan::Window(mut window) if has_groups(&window.input)? => {
            window.window_expr = keep_each(key, window.window_expr)?;
            Ok(LogicalPlan::Window(window))
        }
        LogicalPlan::Aggregate(mut aggregate) if has_groups(&aggregate.input)? => {
            aggregate.aggr_expr = keep_each(key, aggregate.aggr_expr)?;
            Ok(LogicalPlan::Aggregate(aggregate))
        }
        other => Ok(other),
    }
}

/// Calls of aggregate and window functions, under the names that they have.
fn keep_each(key: &Arc<ScalarUDF>, calls: Vec<Expr>) -> Result<Vec<Expr>> {
    let names = NamePreserver::new_for_projection();
    let kept = calls.into_iter().map(|call| {
        let name = names.save(&call);
        let kept = call.transform_down(|expr| Ok(keep_call(key, expr)))?.data;
        Ok(name.restore(kept))
    });
    kept.collect()
}

fn keep_call(key: &Arc<ScalarUDF>, mut expr: Expr) -> Transformed<Expr> {
    let kept = match &mut expr {
        Expr::WindowFunction(call) => {
            let params = &mut call.params;
            keep_keys(key, &mut params.partition_by, &mut params.order_by)
        }
        Expr::AggregateFunction(call) => keep_keys(key, &mut [], &mut call.params.order_by),
        _ => false,
    };
    Transformed::new_transformed(expr, kept)
}

/// Makes them expressions if there are several; whether it did.
fn keep_keys(key: &Arc<ScalarUDF>, partition_by: &mut [Expr], order_by: &mut [SortExpr]) -> bool {
    let several = partition_by.len() + order_by.len() > 1;
    if several {
        let keys = partition_by.iter_mut().chain(order_by.iter_mut().map(|by| &mut by.expr));
        keys.for_each(|by| *by = key.call(vec![std::mem::take(by)]));
    }
    several
}

fn has_groups(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|plan| Ok(matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_))))
}
