//! The value of a subquery, which is null if it has no row. DataFusion takes it for a value like that of the column that
//! is selected: over a column without nulls it would know that `(SELECT id …) IS NULL` is false.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Subquery, Volatility,
};
use std::sync::{Arc, LazyLock};

/// What stands around the subquery; no client can call it.
pub(super) const NAME: &str = "value_or_null";

/// The value of `subquery`, if it may be null though the selected column has none.
pub(crate) fn of_subquery(subquery: Subquery) -> (Expr, bool) {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(ValueOrNull { signature }))
    });
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

#[derive(Debug, PartialEq, Eq, Hash)]
struct ValueOrNull {
    signature: Signature,
}

impl ScalarUDFImpl for ValueOrNull {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [one] => Ok(one.clone()),
            _ => plan_err!("{NAME} has one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(args.arg_fields[0].as_ref().clone().with_nullable(true)))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args.swap_remove(0))
    }
}
