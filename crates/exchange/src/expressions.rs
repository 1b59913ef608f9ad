//! Expressions that DataFusion's encoding would change.
//!
//! It forgets whether an operator fails on overflow, a cast on what it cannot cast, and what metadata the result of a cast or function
//! has; a chain of one operator becomes a list, whatever the links were. So arithmetic, calls, casts, and constants with metadata are
//! written among DataFusion's as scans write their predicates.

use arrow::datatypes::Schema;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Literal, TryCastExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use std::sync::Arc;

pub(crate) fn would_be_changed(expr: &Arc<dyn PhysicalExpr>) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    let operator = expr.downcast_ref::<BinaryExpr>().map(BinaryExpr::op);
    let constant =
        expr.downcast_ref::<Literal>().and_then(|constant| constant.return_field(&Schema::empty()).ok());
    matches!(operator, Some(Plus | Minus | Multiply | Divide | Modulo))
        || constant.is_some_and(|field| !field.metadata().is_empty())
        || expr.is::<ScalarFunctionExpr>()
        || expr.is::<CastExpr>()
        || expr.is::<TryCastExpr>()
}
