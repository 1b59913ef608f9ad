//! The value of a subquery, which is null if it has no row. DataFusion takes it for a value like that of the column that
//! is selected: over a column without nulls it would know that `(SELECT id …) IS NULL` is false.

use super::itself;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF, Subquery};
use std::sync::{Arc, LazyLock};

/// What stands around the subquery; no client can call it.
pub(super) const NAME: &str = "value_or_null";

pub(super) fn function() -> ScalarUDF {
    itself::or_null(NAME)
}

/// The value of `subquery`, if it may be null though the selected column has none.
pub(crate) fn of_subquery(subquery: Subquery) -> (Expr, bool) {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(function()));
    let certain = has_row(&subquery.subquery);
    let value = Expr::ScalarSubquery(subquery);
    if certain {
        return (value, false);
    }
    (Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&FUNCTION), vec![value])), true)
}

/// Whether a plan is sure to give a row.
fn has_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        LogicalPlan::Projection(projection) => has_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_row(&alias.input),
        LogicalPlan::Sort(sort) => sort.fetch.is_none() && has_row(&sort.input),
        _ => false,
    }
}
