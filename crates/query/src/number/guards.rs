//! What is computed only where a statement says so: PostgreSQL divides no row that a condition before has left out.
//!
//! DataFusion computes the argument of an aggregate before its filter, makes `AND`s and `OR`s of a `CASE` that is true or
//! false, and evaluates all parts of a condition. A `CASE` with an operand it leaves alone, and computes its results for the
//! rows that they are for.

use super::arithmetic::Op;
use super::{functions, is_internal};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, Filter, LogicalPlan, Operator, lit};
use std::collections::HashSet;

/// The conditions of a filter, each computed where those before it hold, if it may fail.
///
/// # Errors
/// None are expected.
pub(super) fn filter(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Filter(filter) = plan else { return Ok(Transformed::no(plan)) };
    if !may_fail(&filter.predicate) {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let mut conditions: Vec<Expr> = Vec::new();
    for condition in split_conjunction_owned(filter.predicate) {
        let condition = alternatives(condition);
        let guards: Vec<Expr> = if may_fail(&condition) {
            conditions.iter().filter(|guard| is_of(guard, &condition)).cloned().collect()
        } else {
            Vec::new()
        };
        conditions.push(match conjunction(guards) {
            Some(guard) => choice(guard, condition, lit(false)),
            None => condition,
        });
    }
    let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
    Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
}

/// `a OR b`, of which `b` may fail, as a condition of a filter: there it does not matter whether it is false or null.
fn alternatives(condition: Expr) -> Expr {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) if may_fail(&right) => {
            choice(alternatives(*left), lit(true), alternatives(*right))
        }
        other => other,
    }
}

/// Whether a condition can be looked at wherever `other` can: it has no columns of other tables, and no query.
fn is_of(guard: &Expr, other: &Expr) -> bool {
    let tables = |expr: &Expr| -> HashSet<_> {
        expr.column_refs().into_iter().map(|Column { relation, .. }| relation.clone()).collect()
    };
    let has_query = |expr: &Expr| {
        matches!(
            expr,
            Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)
        )
    };
    tables(guard).is_subset(&tables(other)) && !guard.exists(|expr| Ok(has_query(expr))).unwrap_or(true)
}

fn choice(when: Expr, then: Expr, otherwise: Expr) -> Expr {
    let operand = Some(Box::new(lit(true)));
    Expr::Case(Case::new(operand, vec![(Box::new(when), Box::new(then))], Some(Box::new(otherwise))))
}

/// A `CASE` whose results may fail, and an aggregate whose argument may.
pub(super) fn guarded(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::Case(mut case) if case.expr.is_none() && results(&case).any(may_be_wrong) => {
            case.expr = Some(Box::new(lit(true)));
            Transformed::yes(Expr::Case(case))
        }
        Expr::AggregateFunction(mut call) => {
            let Some(filter) = call.params.filter.clone() else {
                return Transformed::no(Expr::AggregateFunction(call));
            };
            let mut changed = false;
            for argument in call.params.args.iter_mut().filter(|argument| may_be_wrong(argument)) {
                let value = std::mem::take(argument);
                let operand = Some(Box::new(lit(true)));
                *argument = Expr::Case(Case::new(operand, vec![(filter.clone(), Box::new(value))], None));
                changed = true;
            }
            Transformed::new_transformed(Expr::AggregateFunction(call), changed)
        }
        other => Transformed::no(other),
    }
}

fn results(case: &Case) -> impl Iterator<Item = &Expr> {
    case.when_then_expr.iter().map(|(_, then)| then.as_ref()).chain(case.else_expr.as_deref())
}

/// Whether an expression is an error for some values, be it because they are large.
pub(super) fn may_be_wrong(expr: &Expr) -> bool {
    has_call(expr, |name| is_internal(name) || functions::has_domain(name))
}

/// Whether an expression is an error for values that a condition is likely to leave out: not only for large ones.
fn may_fail(expr: &Expr) -> bool {
    const FAILING: [Op; 3] = [Op::Divide, Op::Modulo, Op::Power];
    has_call(expr, |name| {
        name == super::CAST || functions::has_domain(name) || FAILING.iter().any(|op| op.symbol() == name)
    })
}

fn has_call(expr: &Expr, wanted: impl Fn(&str) -> bool) -> bool {
    let is_wanted = |expr: &Expr| match expr {
        Expr::ScalarFunction(call) => wanted(call.func.name()),
        _ => false,
    };
    expr.exists(|expr| Ok(is_wanted(expr))).unwrap_or(false)
}
