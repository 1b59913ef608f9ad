//! `RANGE` frames: how far a row's frame reaches is computed in the type of what the rows are ordered by.

use super::operators::integer_type;
use super::unsupported;
use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Cast, WindowFunction};
use datafusion::logical_expr::{Expr, ExprSchemable, WindowFrameBound, WindowFrameUnits};

/// Orders by `bigint` in place of a narrower integer, in which DataFusion's sum of key and offset could wrap around.
///
/// # Errors
/// `Unsupported` for a `bigint`: there is no wider one.
pub(crate) fn ranges(call: &mut WindowFunction, schema: &DFSchema) -> Result<bool> {
    let frame = &call.params.window_frame;
    let is_offset = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(offset) | WindowFrameBound::Following(offset) => !offset.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    let offsets = is_offset(&frame.start_bound) || is_offset(&frame.end_bound);
    let [by] = call.params.order_by.as_mut_slice() else { return Ok(false) };
    if frame.units != WindowFrameUnits::Range || !offsets {
        return Ok(false);
    }
    match integer_type(&by.expr.get_type(schema)?) {
        None => Ok(false),
        // Widened when the statement was looked at before.
        Some(DataType::Int64) if matches!(by.expr, Expr::Cast(_)) => Ok(false),
        Some(DataType::Int64) => Err(unsupported("a RANGE with an offset over a bigint")),
        Some(_) => {
            by.expr = Expr::Cast(Cast::new(Box::new(std::mem::take(&mut by.expr)), DataType::Int64));
            Ok(true)
        }
    }
}
