//! Arithmetic that does not fit its type is an error, as in PostgreSQL. DataFusion's operators wrap around unless they
//! are told not to, which no setting does.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use std::sync::Arc;

/// Has the arithmetic of projections and filters checked. It comes before rules that move expressions elsewhere.
#[derive(Debug)]
pub(crate) struct CheckedArithmetic;

impl PhysicalOptimizerRule for CheckedArithmetic {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
                let checked = check_projection(projection)?;
                return Ok(checked.map_or_else(|| Transformed::no(plan), Transformed::yes));
            }
            if let Some(filter) = plan.downcast_ref::<FilterExec>() {
                let predicate = checked(Arc::clone(filter.predicate()))?;
                if !predicate.transformed {
                    return Ok(Transformed::no(plan));
                }
                let filter = FilterExecBuilder::from(filter).with_predicate(predicate.data).build()?;
                return Ok(Transformed::yes(Arc::new(filter) as _));
            }
            Ok(Transformed::no(plan))
        })
        .data()
    }

    fn name(&self) -> &str {
        "checked_arithmetic"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The projection with its arithmetic checked, if it has any.
fn check_projection(projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut transformed = false;
    let check = |projected: &ProjectionExpr| -> Result<ProjectionExpr> {
        let expr = checked(Arc::clone(&projected.expr))?;
        transformed |= expr.transformed;
        Ok(ProjectionExpr { expr: expr.data, alias: projected.alias.clone() })
    };
    let expressions = projection.expr().iter().map(check).collect::<Result<Vec<_>>>()?;
    if !transformed {
        return Ok(None);
    }
    Ok(Some(Arc::new(ProjectionExec::try_new(expressions, Arc::clone(projection.input()))?)))
}

/// The expression with all of its arithmetic checked.
///
/// # Errors
/// None are expected.
pub(crate) fn checked(expr: Arc<dyn PhysicalExpr>) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    expr.transform_up(|expr| {
        let Some(binary) = expr.downcast_ref::<BinaryExpr>() else { return Ok(Transformed::no(expr)) };
        if !matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply) {
            return Ok(Transformed::no(expr));
        }
        let binary = BinaryExpr::new(Arc::clone(binary.left()), *binary.op(), Arc::clone(binary.right()));
        Ok(Transformed::yes(Arc::new(binary.with_fail_on_overflow(true)) as _))
    })
}
