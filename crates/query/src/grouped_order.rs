//! Sorts of grouped rows, kept from being left out.
//!
//! DataFusion knows by which columns groups differ, and leaves out a sort whose first keys the rows are in order by already, if
//! these columns are among them: the keys behind cannot matter then. But it takes the columns by their places among those of the groups,
//! whatever a projection has put there since (`EquivalenceProperties::projected_constraints` of 55.2). So
//! `SELECT c, g FROM (SELECT g, count(*) AS c FROM t GROUP BY g ORDER BY c LIMIT 10) s ORDER BY c, g` was not sorted by `g`.
//!
//! It looks for such columns among keys that are columns: so keys over groups are expressions here.

use crate::functions::{SORT_KEY, sort_key};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF, Sort};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// Makes the keys of sorts over grouped rows expressions.
#[derive(Debug)]
pub(crate) struct GroupedOrder {
    key: Arc<ScalarUDF>,
}

impl GroupedOrder {
    pub fn new() -> Self {
        GroupedOrder { key: Arc::new(sort_key()) }
    }

    fn keep(&self, mut sort: Sort) -> Transformed<LogicalPlan> {
        let mut kept = false;
        for key in &mut sort.expr {
            if !matches!(&key.expr, Expr::ScalarFunction(call) if call.name() == SORT_KEY) {
                key.expr = self.key.call(vec![key.expr.clone()]);
                kept = true;
            }
        }
        Transformed::new_transformed(LogicalPlan::Sort(sort), kept)
    }
}

impl OptimizerRule for GroupedOrder {
    fn name(&self) -> &str {
        "grouped_order"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        Ok(match plan {
            LogicalPlan::Sort(sort) if has_groups(&sort.input)? => self.keep(sort),
            other => Transformed::no(other),
        })
    }
}

fn has_groups(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|plan| Ok(matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_))))
}
