//! Numbers of several types that come together, as PostgreSQL brings them to one.
//!
//! DataFusion makes a decimal of a float beside a decimal, with as many digits as it guesses. PostgreSQL makes a float of
//! the decimal: what is compared becomes `double precision`, what is one result becomes the widest type in it, of numbers
//! that are exact a `numeric` with all their digits.

use super::casts::bare;
use super::decimal::{DIGITS_MAX, Shape};
use super::functions::{is_same, same};
use super::operators::{cast, decimal_type, digits_of, folded, integer_type, wider};
use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeIterator};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Cast, Placeholder, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan, Operator, Projection};
use std::sync::Arc;

/// What values come together for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Comparison,
    /// To be one of them, as the results of a `CASE` are.
    Result,
    /// As in `nullif`: the first is the result, of the type in which it is compared.
    Equality,
}

/// Gives numbers that come together their type. Others are left alone.
///
/// # Errors
/// `Unsupported` for types that no number has here.
pub(crate) fn alike(values: &mut [&mut Expr], schema: &DFSchema, purpose: Purpose) -> Result<bool> {
    let changed = types_alike(values, schema, purpose)?;
    if purpose != Purpose::Comparison {
        return Ok(changed);
    }
    let types: Vec<Option<DataType>> =
        values.iter().map(|value| value.get_type(schema).ok().filter(DataType::is_floating)).collect();
    Ok(one_zero(values, &types) || changed)
}

fn types_alike(values: &mut [&mut Expr], schema: &DFSchema, purpose: Purpose) -> Result<bool> {
    let type_of = |value: &Expr| match value {
        // It has none yet, and is no null.
        Expr::Placeholder(Placeholder { field: None, .. }) => None,
        value => value.get_type(schema).ok(),
    };
    let types: Vec<Option<DataType>> = values.iter().map(|value| type_of(value)).collect();
    let is_null = |data_type: &DataType| purpose == Purpose::Result && data_type.is_null();
    let numbers = || types.iter().flatten().filter(|data_type| data_type.is_numeric());
    let alike = numbers().all(|data_type| Some(data_type) == numbers().next());
    if alike && (numbers().next().is_none() || !types.iter().flatten().any(is_null)) {
        return Ok(false);
    }
    let floats = numbers().filter(|data_type| data_type.is_floating()).count();
    let kept = match purpose {
        Purpose::Comparison => floats == 0,
        Purpose::Equality => floats == numbers().count() || numbers().all(DataType::is_integer),
        // What is no number is refused, or has a type yet to come.
        Purpose::Result => types.iter().flatten().any(|other| !other.is_numeric() && !other.is_null()),
    };
    if kept {
        return Ok(false);
    }
    let wanted = if floats > 0 && purpose != Purpose::Result {
        DataType::Float64
    } else {
        let Some(wanted) = result_type(values, &types)? else { return Ok(false) };
        wanted
    };
    for (n, (value, data_type)) in values.iter_mut().zip(types).enumerate() {
        // There is an operator of `real` and `double precision`, of no other two types.
        if (purpose, n, &data_type) == (Purpose::Equality, 0, &Some(DataType::Float32)) {
            continue;
        }
        if let Some(from) = data_type.filter(|from| from.is_numeric() || is_null(from)) {
            **value = match std::mem::take(*value) {
                Expr::Literal(null, _) if null.is_null() => {
                    Expr::Literal(ScalarValue::try_from(&wanted)?, None)
                }
                value => cast((value, from), &wanted)?,
            };
        }
    }
    Ok(true)
}

/// The type of numbers that are one result; of constants among `numeric`s no more digits count than they have.
fn result_type(values: &mut [&mut Expr], types: &[Option<DataType>]) -> Result<Option<DataType>> {
    let exact = types.iter().flatten().any(|data_type| matches!(data_type, DataType::Decimal128(..)))
        && !types.iter().flatten().any(DataType::is_floating);
    let mut wanted: Option<DataType> = None;
    for (value, data_type) in values.iter_mut().zip(types) {
        let Some(data_type) = data_type.clone().filter(DataType::is_numeric) else { continue };
        **value = folded(std::mem::take(*value));
        let data_type = if exact { decimal_type(value, &data_type)? } else { data_type };
        wanted = match wanted {
            Some(wanted) => common(&wanted, &data_type),
            None => Some(data_type),
        };
    }
    Ok(wanted)
}

/// The type that PostgreSQL chooses where numbers of two types, or nulls, are one result; `None` if one is no number. A
/// `numeric` has all the digits of both behind the point, and as many before it as there is room for.
pub(crate) fn common(left: &DataType, right: &DataType) -> Option<DataType> {
    let number_or_null = |data_type: &DataType| data_type.is_numeric() || data_type.is_null();
    if !number_or_null(left) || !number_or_null(right) {
        return None;
    }
    if left == right || right.is_null() {
        return Some(left.clone());
    }
    if left.is_null() {
        return Some(right.clone());
    }
    if left.is_floating() || right.is_floating() {
        let double = *left == DataType::Float64 || *right == DataType::Float64;
        return Some(if double { DataType::Float64 } else { DataType::Float32 });
    }
    if let (Some(left), Some(right)) = (integer_type(left), integer_type(right)) {
        return Some(wider(left, right));
    }
    let (left, right) = (shape(left)?, shape(right)?);
    Some(Shape::with_whole(left.whole().max(right.whole()), left.scale.max(right.scale)).data_type())
}

fn shape(exact: &DataType) -> Option<Shape> {
    integer_type(exact).map(|integer| Shape::integer(digits_of(&integer))).or_else(|| Shape::of(exact))
}

/// Digits behind the point.
pub(crate) fn scale(data_type: &DataType) -> u8 {
    Shape::of(data_type).map_or(0, |shape| shape.scale)
}

/// A `numeric` with as many digits before its point as there can be.
pub(crate) fn with_room(data_type: &DataType) -> Option<DataType> {
    Shape::of(data_type).map(|shape| Shape { precision: DIGITS_MAX, ..shape }.data_type())
}

/// Whether two types are one to PostgreSQL, but for the digits of a `numeric`.
pub(crate) fn is_of_kind(one: &DataType, other: &DataType) -> bool {
    match (integer_type(one), integer_type(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other || Shape::of(one).is_some() && Shape::of(other).is_some(),
    }
}

/// `expr`, which will be of that type; of a `numeric`, with the digits that it will have.
pub(crate) fn seen_as(expr: Expr, data_type: DataType) -> Expr {
    let field = Field::new("", data_type, true);
    let field = if Shape::of(field.data_type()).is_some() { bare(field) } else { field };
    Expr::Cast(Cast::new_from_field(Box::new(expr), Arc::new(field)))
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
