//! Calls, operators and casts in a plan: those with arguments of types that PostgreSQL does not take are refused, as it
//! refuses them, before DataFusion converts the arguments so that they fit.

mod calls;
mod kind;
mod operators;
mod together;

pub(crate) use calls::{check_arguments, is_of_one_type};
pub(crate) use kind::kind;
pub(crate) use operators::is_int4;
pub(super) use operators::no_operator;
pub(crate) use together::{check_cells, check_join, check_order, check_union, check_zones};

use self::calls::{check_call, check_window};
use self::kind::is_text;
use self::together::{check_alike, check_comparable, check_condition, check_floats, check_one_type};
use super::casts::{self, Casting};
use super::kinds::Kind;
use super::{moment_operators, moments};
use crate::error::{invalid, unsupported};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::functions::datetime::expr_fn::to_local_time;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::{Case, Cast, WindowFunctionDefinition};
use oribi_session::sql::SqlError;

/// `expr`, whose parts are checked already, if it may be evaluated; its conversions from and to text are then those of
/// PostgreSQL.
///
/// # Errors
/// 42883 for a function or an operator that does not take such arguments, 42846 and `Unsupported` for a cast, 42804 for
/// types that do not go together.
pub(crate) fn checked(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Cast(cast) => converted(cast, schema),
        Expr::ScalarFunction(call) => calls::checked(call, schema),
        Expr::BinaryExpr(binary) => operators::checked(binary, schema),
        Expr::Like(like) => operators::like(like, schema),
        Expr::SimilarTo(like) => operators::similar(like, schema),
        expr => {
            check(&expr, schema)?;
            moment_operators::compared(expr, schema)
        }
    }
}

/// A cast as PostgreSQL does it.
fn converted(cast: Cast, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let from = kind(&cast.expr, schema)?;
    Ok(Transformed::yes(match casts::of(&from, &cast.field).map_err(foreign)? {
        Casting::Theirs => return Ok(Transformed::no(Expr::Cast(cast))),
        Casting::Clock(then) => {
            let shown = to_local_time(vec![*cast.expr]);
            match then {
                Some(name) => moments::call(name, vec![shown]),
                None => Expr::Cast(Cast { expr: Box::new(shown), field: cast.field }),
            }
        }
        Casting::Ours(function) => function.call(vec![*cast.expr]),
        Casting::Moment(name) => moments::call(name, vec![*cast.expr]),
    }))
}

fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    match expr {
        Expr::AggregateFunction(call) => {
            let distinct = call.params.args.iter().filter(|_| call.params.distinct);
            let ordered = call.params.order_by.iter().map(|sort| &sort.expr);
            ordered.chain(distinct).try_for_each(|expr| check_order(expr, schema))?;
            check_call(call.func.name(), &call.params.args, schema)
        }
        Expr::WindowFunction(call) => {
            let name = match &call.fun {
                WindowFunctionDefinition::AggregateUDF(function) => function.name(),
                WindowFunctionDefinition::WindowUDF(function) => function.name(),
            };
            check_call(name, &call.params.args, schema)?;
            let ordered = call.params.order_by.iter().map(|sort| &sort.expr);
            ordered.chain(&call.params.partition_by).try_for_each(|expr| check_order(expr, schema))?;
            check_window(name, &call.params.args, schema)
        }
        Expr::HigherOrderFunction(call) => refuse(unsupported(&format!("function {}", call.func.name()))),
        Expr::Not(inner) => check_condition(inner, "NOT", schema),
        Expr::IsTrue(inner) | Expr::IsNotTrue(inner) => check_condition(inner, "IS TRUE", schema),
        Expr::IsFalse(inner) | Expr::IsNotFalse(inner) => check_condition(inner, "IS FALSE", schema),
        Expr::IsUnknown(inner) | Expr::IsNotUnknown(inner) => check_condition(inner, "IS UNKNOWN", schema),
        Expr::Negative(inner) => match kind(inner, schema)? {
            Kind::Unknown => refuse(invalid("42725", "operator is not unique: - unknown")),
            Kind::Interval => Ok(()),
            kind if kind.is_number() => Ok(()),
            kind => refuse(invalid("42883", format!("operator does not exist: - {kind}"))),
        },
        Expr::Between(between) => {
            let value = kind(&between.expr, schema)?;
            check_order(&between.expr, schema)?;
            check_comparable(&value, ">=", &kind(&between.low, schema)?)?;
            check_comparable(&value, "<=", &kind(&between.high, schema)?)
        }
        Expr::InList(list) => {
            let value = kind(&list.expr, schema)?;
            check_order(&list.expr, schema)?;
            list.list.iter().try_for_each(|item| check_comparable(&value, "=", &kind(item, schema)?))
        }
        Expr::Case(case) => check_case(case, schema),
        Expr::InSubquery(within) => {
            let found = Kind::of(within.subquery.subquery.schema().field(0));
            let value = kind(&within.expr, schema)?;
            check_order(&within.expr, schema)?;
            check_comparable(&value, "=", &found)?;
            check_alike("IN", &value, &found)?;
            check_floats("IN (SELECT …)", &value, &found)
        }
        Expr::TryCast(_) => refuse(unsupported("TRY_CAST")),
        _ => Ok(()),
    }
}

fn check_case(case: &Case, schema: &DFSchema) -> Result<()> {
    if let Some(value) = &case.expr {
        check_order(value, schema)?;
        let value = kind(value, schema)?;
        for (when, _) in &case.when_then_expr {
            let when = kind(when, schema)?;
            // A value without a type is a text.
            if value == Kind::Unknown && !is_text(&when) {
                return refuse(no_operator(&Kind::Text, "=", &when));
            }
            check_comparable(&value, "=", &when)?;
            check_alike("CASE", &value, &when)?;
        }
    } else {
        for (when, _) in &case.when_then_expr {
            check_condition(when, "CASE/WHEN", schema)?;
        }
    }
    let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
    check_one_type("CASE", results.chain(case.else_expr.as_deref()), schema)
}

fn refuse<T>(error: SqlError) -> Result<T> {
    Err(foreign(error))
}

fn foreign(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
