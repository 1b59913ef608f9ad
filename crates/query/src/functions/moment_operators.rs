//! Operators on dates, timestamps and intervals: which there are, and their comparison where the types differ.
//!
//! `+`, `-`, `*` and `/` become calls while a statement is planned, for DataFusion's have other types: a date and an
//! interval make a date there. Timestamps with a time zone are in UTC, so they are added and compared as those without.

use super::check::{check_zones, is_int4, kind, no_operator};
use super::kinds::Kind;
use super::moments::{self, AS_TIMESTAMP, call, parse_interval};
use super::rows::arrow_interval;
use crate::dml::{parse_text, scalar};
use crate::error::{invalid, unsupported};
use crate::literals::field;
use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::RawBinaryExpr;
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use oribi_session::sql::SqlError;
use oribi_types::calendar::MICROS_PER_DAY;
use oribi_types::{ColumnType, text};
use std::sync::Arc;

/// The arithmetic of which a side is a moment or an interval; `None` if it is of something else.
///
/// # Errors
/// 42883 for an operator that does not take the two, 42725 if a text says too little, 0A000 for those of times of day.
pub(crate) fn arithmetic(expr: &RawBinaryExpr, schema: &DFSchema) -> Result<Option<Expr>> {
    let symbol = match expr.op {
        BinaryOperator::Plus => "+",
        BinaryOperator::Minus => "-",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::Modulo => "%",
        _ => return Ok(None),
    };
    let (left, right) = (kind(&expr.left, schema)?, kind(&expr.right, schema)?);
    if !left.is_moment() && !right.is_moment() {
        return Ok(None);
    }
    check_zones(&format!("operator {symbol} of a moment"), [&left, &right].into_iter())?;
    let (l, r) = (expr.left.clone(), expr.right.clone());
    let found = match symbol {
        "+" => plus((&left, l), (&right, r), schema)?,
        "-" => minus((&left, l), (&right, r), schema)?,
        "*" => match (&left, &right) {
            (Kind::Interval, _) => scaled("interval_times", l, &right, r)?,
            _ if right == Kind::Interval => scaled("interval_times", r, &left, l)?,
            _ => None,
        },
        "/" if left == Kind::Interval => scaled("interval_divided", l, &right, r)?,
        _ => None,
    };
    match found {
        Some(found) => Ok(Some(found)),
        None if left == Kind::Time || right == Kind::Time => {
            Err(foreign(unsupported("an operator of times")))
        }
        None => Err(foreign(no_operator(&left, symbol, &right))),
    }
}

fn plus((left, l): (&Kind, Expr), (right, r): (&Kind, Expr), schema: &DFSchema) -> Result<Option<Expr>> {
    use Kind as K;
    Ok(match (left, right) {
        (K::Date, K::Unknown) | (K::Unknown, K::Date) => {
            let message = format!("operator is not unique: {left} + {right}");
            return Err(foreign(
                invalid("42725", message).with_hint("write the cast: $1::integer, or interval '1 day'"),
            ));
        }
        (K::Date, _) if is_int4(&r, schema)? => Some(call("date_plus_days", vec![l, r])),
        (_, K::Date) if is_int4(&l, schema)? => Some(call("date_plus_days", vec![l, r])),
        (K::Date | K::Timestamp | K::Timestamptz, K::Interval) => Some(call("timestamp_plus", vec![l, r])),
        (K::Interval, K::Date | K::Timestamp | K::Timestamptz) => Some(call("timestamp_plus", vec![l, r])),
        (K::Timestamp | K::Timestamptz, K::Unknown) => Some(call("timestamp_plus", vec![l, as_interval(r)?])),
        (K::Unknown, K::Timestamp | K::Timestamptz) => Some(call("timestamp_plus", vec![as_interval(l)?, r])),
        (K::Interval, K::Interval | K::Unknown) | (K::Unknown, K::Interval) => {
            Some(call("interval_plus", vec![as_interval(l)?, as_interval(r)?]))
        }
        _ => None,
    })
}

fn minus((left, l): (&Kind, Expr), (right, r): (&Kind, Expr), schema: &DFSchema) -> Result<Option<Expr>> {
    use Kind as K;
    Ok(match (left, right) {
        (K::Date, _) if is_int4(&r, schema)? => Some(call("date_minus_days", vec![l, r])),
        (K::Date, K::Date | K::Unknown) | (K::Unknown, K::Date) => {
            Some(call("days_between", vec![as_column(l, ColumnType::Date)?, as_column(r, ColumnType::Date)?]))
        }
        (K::Date | K::Timestamp | K::Timestamptz, K::Interval) => Some(call("timestamp_minus", vec![l, r])),
        (K::Date | K::Timestamp | K::Timestamptz | K::Unknown, K::Timestamp | K::Timestamptz)
        | (K::Timestamp | K::Timestamptz, K::Date | K::Unknown) => {
            let is_moment = [left, right].contains(&&K::Timestamptz);
            let read = if is_moment { as_moment } else { as_timestamp };
            Some(call("time_between", vec![read(l)?, read(r)?]))
        }
        (K::Interval, K::Interval | K::Unknown) | (K::Unknown, K::Interval) => {
            Some(call("interval_minus", vec![as_interval(l)?, as_interval(r)?]))
        }
        _ => None,
    })
}

fn scaled(name: &str, interval: Expr, kind: &Kind, by: Expr) -> Result<Option<Expr>> {
    let by = match kind {
        Kind::Unknown => as_column(by, ColumnType::Double)?,
        kind if kind.is_number() => cast(by, DataType::Float64),
        _ => return Ok(None),
    };
    Ok(Some(call(name, vec![interval, by])))
}

/// A text that is written out as an interval; what has a type stays.
fn as_interval(expr: Expr) -> Result<Expr> {
    if matches!(expr, Expr::Placeholder(_)) {
        return Err(foreign(unsupported("an interval as a parameter").with_hint("write $1::text::interval")));
    }
    match text_of(&expr) {
        Some(text) => interval_literal(text),
        None => Ok(expr),
    }
}

/// A text that is written out, or a parameter, as a value of a type; what has a type stays.
fn as_column(expr: Expr, column_type: ColumnType) -> Result<Expr> {
    if let Expr::Placeholder(Placeholder { id, field: None }) = expr {
        return Ok(Expr::Placeholder(Placeholder::new_with_field(id, Some(field(column_type, "")))));
    }
    let Some(text) = text_of(&expr) else { return Ok(expr) };
    let value = parse_text(text, column_type).and_then(|value| scalar(value.as_ref(), column_type));
    Ok(Expr::Literal(value.map_err(foreign)?, None))
}

fn as_timestamp(expr: Expr) -> Result<Expr> {
    as_column(expr, ColumnType::Timestamp)
}

/// As a timestamp in UTC, so that an offset in a text counts; what has a type stays.
fn as_moment(expr: Expr) -> Result<Expr> {
    if let Expr::Placeholder(Placeholder { id, field: None }) = expr {
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()));
        let field = Arc::new(Field::new("", utc, true));
        return Ok(Expr::Placeholder(Placeholder::new_with_field(id, Some(field))));
    }
    let Some(text) = text_of(&expr) else { return Ok(expr) };
    let value = text::parse(ColumnType::Timestamp, text)
        .map_err(|e| SqlError::from(e).with_sqlstate("22007"))
        .and_then(|value| scalar(value.as_ref(), ColumnType::Timestamp));
    Ok(Expr::Literal(value.map_err(foreign)?, None))
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), None) => Some(text),
        _ => None,
    }
}

/// The interval that a text writes.
///
/// # Errors
/// 22007, 22008.
pub(crate) fn interval_literal(text: &str) -> Result<Expr> {
    let interval = arrow_interval(parse_interval(text).map_err(foreign)?)?;
    Ok(Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), None))
}

/// A comparison of moments of different types, or of intervals, as one that Arrow does as PostgreSQL; and an interval's
/// sign.
///
/// # Errors
/// Those of the schema.
pub(super) fn compared(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(mut binary) if binary.op.supports_propagation() || is_distinct(binary.op) => {
            let sides = [&mut binary.left, &mut binary.right].map(Box::as_mut);
            let transformed = by_length(sides, schema)? || {
                let mut sides = [&mut binary.left, &mut binary.right].map(Box::as_mut);
                alike(&mut sides, schema)?
            };
            Transformed::new_transformed(Expr::BinaryExpr(binary), transformed)
        }
        Expr::Between(mut between) => {
            let mut values = [&mut between.expr, &mut between.low, &mut between.high].map(Box::as_mut);
            let transformed = alike(&mut values, schema)?;
            Transformed::new_transformed(Expr::Between(between), transformed)
        }
        Expr::InList(mut within) => {
            let mut values: Vec<&mut Expr> = within.list.iter_mut().chain([within.expr.as_mut()]).collect();
            let transformed = alike(&mut values, schema)?;
            Transformed::new_transformed(Expr::InList(within), transformed)
        }
        Expr::Negative(inner) if kind(&inner, schema)? == Kind::Interval => {
            Transformed::yes(call("interval_negated", vec![*inner]))
        }
        Expr::ScalarFunction(call) if moments::is_ours(call.func.name()) => moments::folded(call)?,
        other => Transformed::no(other),
    })
}

fn is_distinct(operator: Operator) -> bool {
    matches!(operator, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom)
}

/// Puts lengths in place of the intervals of a comparison, if it is one of them.
fn by_length(sides: [&mut Expr; 2], schema: &DFSchema) -> Result<bool> {
    let [left, right] = &sides;
    if kind(left, schema)? != Kind::Interval && kind(right, schema)? != Kind::Interval {
        return Ok(false);
    }
    for side in sides {
        *side = call("interval_order", vec![std::mem::take(side)]);
    }
    Ok(true)
}

/// Makes timestamps of dates and timestamps whose Arrow types differ.
///
/// # Errors
/// Those of the schema.
fn alike(values: &mut [&mut Expr], schema: &DFSchema) -> Result<bool> {
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
    let types = values.iter().map(|value| value.get_type(schema)).collect::<Result<Vec<_>>>()?;
    let mut moments = types.iter().filter(|arrow| is_point(arrow));
    let first = moments.next();
    if moments.all(|other| Some(other) == first) {
        return Ok(false);
    }
    if types.contains(&DataType::Date32) && dates(values, &types) {
        return Ok(true);
    }
    for (value, arrow) in values.iter_mut().zip(types) {
        if is_point(&arrow) && arrow != timestamp {
            **value = call(AS_TIMESTAMP, vec![std::mem::take(*value)]);
        }
    }
    Ok(true)
}

/// Makes dates of timestamps, if all of them are constants at the beginning of a day: dates that are columns are then
/// compared as they are stored.
fn dates(values: &mut [&mut Expr], types: &[DataType]) -> bool {
    let day = |value: &Expr| match value {
        Expr::Literal(ScalarValue::TimestampMicrosecond(Some(i64::MAX), _), _) => Some(i32::MAX),
        Expr::Literal(ScalarValue::TimestampMicrosecond(Some(i64::MIN), _), _) => Some(i32::MIN),
        Expr::Literal(ScalarValue::TimestampMicrosecond(Some(micros), _), _)
            if micros % MICROS_PER_DAY == 0 =>
        {
            i32::try_from(micros / MICROS_PER_DAY).ok()
        }
        _ => None,
    };
    let is_timestamp = |arrow: &DataType| matches!(arrow, DataType::Timestamp(..));
    let all = values.iter().zip(types).all(|(value, arrow)| !is_timestamp(arrow) || day(value).is_some());
    for (value, _) in values.iter_mut().zip(types).filter(|(_, arrow)| all && is_timestamp(arrow)) {
        **value = Expr::Literal(ScalarValue::Date32(day(value)), None);
    }
    all
}

fn is_point(arrow: &DataType) -> bool {
    matches!(arrow, DataType::Date32 | DataType::Timestamp(..))
}

/// Whether a function of a plan stands for an operator or a cast of moments.
pub(super) fn is_ours(name: &str) -> bool {
    moments::is_ours(name)
}

fn foreign(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
