//! Numbers of several types that come together, as PostgreSQL brings them to one.
//!
//! DataFusion makes a decimal of a float beside a decimal, with as many digits as it guesses. PostgreSQL makes a float of
//! the decimal: what is compared becomes `double precision`, what is one result becomes the wider of the floats in it.

use super::casts;
use super::functions::{is_same, same};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeIterator};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan, Operator, Projection};
use std::sync::Arc;

/// What values come together for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Comparison,
    Result,
}

/// Gives numbers that come together their type, if one of them is a float. Others are left alone.
///
/// # Errors
/// 22003 for a constant that the type cannot be.
pub(crate) fn alike(values: &mut [&mut Expr], schema: &DFSchema, purpose: Purpose) -> Result<bool> {
    let changed = types_alike(values, schema, purpose)?;
    if purpose == Purpose::Result {
        return Ok(changed);
    }
    let types: Vec<Option<DataType>> =
        values.iter().map(|value| value.get_type(schema).ok().filter(DataType::is_floating)).collect();
    Ok(one_zero(values, &types) || changed)
}

fn types_alike(values: &mut [&mut Expr], schema: &DFSchema, purpose: Purpose) -> Result<bool> {
    let types: Vec<Option<DataType>> =
        values.iter().map(|value| value.get_type(schema).ok().filter(DataType::is_numeric)).collect();
    let known = || types.iter().flatten();
    if !known().any(DataType::is_floating) || known().all(|data_type| Some(data_type) == known().next()) {
        return Ok(false);
    }
    let wanted = match purpose {
        Purpose::Comparison => DataType::Float64,
        Purpose::Result if known().any(|data_type| *data_type == DataType::Float64) => DataType::Float64,
        Purpose::Result => DataType::Float32,
    };
    for (value, data_type) in values.iter_mut().zip(&types) {
        if data_type.as_ref().is_some_and(|data_type| *data_type != wanted) {
            **value = to_float(std::mem::take(*value), &wanted)?;
        }
    }
    Ok(true)
}

fn to_float(value: Expr, wanted: &DataType) -> Result<Expr> {
    match value {
        Expr::Literal(value, metadata) => Ok(Expr::Literal(casts::constant(&value, wanted)?, metadata)),
        other => Ok(Expr::Cast(Cast::new(Box::new(other), wanted.clone()))),
    }
}

/// Gives the zero beside an operator that orders floats the sign with which the order of bits is that of numbers: `f > 0` is
/// compared as it stands, and files are passed over by their statistics.
fn beside_zero(left: &mut Expr, op: Operator, right: &mut Expr) -> bool {
    let above = |op| match op {
        Operator::Gt | Operator::LtEq => Some(0.0),
        Operator::GtEq | Operator::Lt => Some(-0.0),
        _ => None,
    };
    let (zero, sign) = match (is_zero(left), is_zero(right)) {
        (false, true) => (right, above(op)),
        (true, false) => (left, op.swap().and_then(above)),
        _ => return false,
    };
    let Some(sign) = sign else { return false };
    *zero = match zero {
        Expr::Literal(ScalarValue::Float32(_), _) => {
            Expr::Literal(ScalarValue::Float32(Some(sign as f32)), None)
        }
        _ => Expr::Literal(ScalarValue::Float64(Some(sign)), None),
    };
    true
}

fn is_zero(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => *value == 0.0,
        Expr::Literal(ScalarValue::Float32(Some(value)), _) => *value == 0.0,
        _ => false,
    }
}

/// Gives two sides of an operator their type, if one of them is a float.
///
/// # Errors
/// As [`alike`].
pub(crate) fn compared(left: &mut Expr, op: Operator, right: &mut Expr, schema: &DFSchema) -> Result<bool> {
    let changed = types_alike(&mut [left, right], schema, Purpose::Comparison)?;
    if beside_zero(left, op, right) {
        return Ok(true);
    }
    let types = [&*left, &*right].map(|side| side.get_type(schema).ok().filter(DataType::is_floating));
    Ok(one_zero(&mut [left, right], &types) || changed)
}

/// Floats have one zero and one `NaN`, behind all other numbers. Arrow compares them by the order of their bits, where the
/// negative zero comes before the other; beside other constants that is the same.
fn one_zero(values: &mut [&mut Expr], types: &[Option<DataType>]) -> bool {
    let plain = values.iter().filter(|value| is_plain(value)).count();
    // A correlated condition is taken out of its query as it stands, or not at all.
    if plain + 1 >= values.len() || values.iter().any(|value| value.contains_outer()) {
        return false;
    }
    let mut changed = false;
    for (value, data_type) in values.iter_mut().zip(types) {
        if data_type.is_some() && !is_plain(value) && !is_same(value) {
            let argument = std::mem::take(*value);
            **value = Expr::ScalarFunction(ScalarFunction::new_udf(same(), vec![argument]));
            changed = true;
        }
    }
    changed
}

/// Whether an expression is a constant other than zero and `NaN`.
fn is_plain(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => {
            let value = value.cast_to(&DataType::Float64);
            matches!(value, Ok(ScalarValue::Float64(Some(value))) if value != 0.0 && !value.is_nan())
        }
        _ => false,
    }
}

/// Gives floats one zero and one `NaN` where rows are grouped, sorted, joined or told apart by them.
///
/// # Errors
/// None are expected.
pub(super) fn keyed(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            let keys = aggregate.group_expr.into_iter();
            keys.map_until_stop_and_collect(|key| named_key(key, &schema))?.map_data(|keys| {
                let aggregate = Aggregate::try_new(aggregate.input, keys, aggregate.aggr_expr)?;
                Ok(LogicalPlan::Aggregate(aggregate))
            })
        }
        LogicalPlan::Distinct(Distinct::All(input)) if has_floats(input.schema()) => {
            let columns = input.schema().columns().into_iter();
            let columns = columns.map(|column| Ok(named_key(Expr::Column(column), &schema)?.data));
            let columns = columns.collect::<Result<Vec<Expr>>>()?;
            let projection = Projection::try_new(columns, input)?;
            Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::All(Arc::new(LogicalPlan::Projection(
                projection,
            ))))))
        }
        LogicalPlan::Sort(mut sort) => {
            let mut changed = false;
            for by in &mut sort.expr {
                changed |= key(&mut by.expr, &schema);
            }
            Ok(Transformed::new_transformed(LogicalPlan::Sort(sort), changed))
        }
        LogicalPlan::Join(mut join) => {
            let mut changed = false;
            for (left, right) in &mut join.on {
                changed |= key(left, join.left.schema()) | key(right, join.right.schema());
            }
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), changed))
        }
        LogicalPlan::Window(_) => {
            let names = NamePreserver::new_for_projection();
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let keyed = expr.transform_down(|expr| {
                    let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
                    let mut changed = false;
                    for by in &mut call.params.partition_by {
                        changed |= key(by, &schema);
                    }
                    for by in &mut call.params.order_by {
                        changed |= key(&mut by.expr, &schema);
                    }
                    Ok(Transformed::new_transformed(Expr::WindowFunction(call), changed))
                })?;
                Ok(keyed.update_data(|expr| name.restore(expr)))
            })
        }
        plan => Ok(Transformed::no(plan)),
    }
}

fn has_floats(schema: &DFSchema) -> bool {
    schema.fields().iter().any(|field| field.data_type().is_floating())
}

fn key(expr: &mut Expr, schema: &DFSchema) -> bool {
    let float = expr.get_type(schema).is_ok_and(|data_type| data_type.is_floating());
    if !float || is_same(expr) || is_plain(expr) {
        return false;
    }
    *expr = Expr::ScalarFunction(ScalarFunction::new_udf(same(), vec![std::mem::take(expr)]));
    true
}

fn named_key(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let name = NamePreserver::new_for_projection().save(&expr);
    let changed = key(&mut expr, schema);
    Ok(Transformed::new_transformed(if changed { name.restore(expr) } else { expr }, changed))
}
