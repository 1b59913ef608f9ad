//! Values that come to one type: the results of a `CASE`, the arguments of `coalesce` and the like, a value and its
//! default, the columns of a set operation.
//!
//! DataFusion lets the first of them say the type until it coerces types, when the plan is complete. Our operators have
//! been chosen by then, of the types that their operands had. So all come to PostgreSQL's type while a statement is
//! planned: a relation as soon as it is one ([`relations`]), an operand when it is asked for its type, the rest of a plan
//! before it is analyzed.

mod relations;
mod sets;

pub(crate) use relations::{TypedRelations, typed_terms};

use crate::functions::{self, Kind};
use crate::literals::together;
use crate::number::{self, Purpose};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{
    Transformed, TransformedResult, TreeNode, TreeNodeRecursion, TreeNodeRewriter,
};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Cast, ScalarFunction, WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, ScalarUDF};
use std::sync::{Arc, LazyLock};

/// `plan`, whose columns have the types that its results will have.
///
/// # Errors
/// 22P02 for a text that is no value of the others' type, 42804 for the terms of a recursive query.
pub(crate) fn settled(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !is_open(&plan)? {
        return Ok(plan);
    }
    plan.transform_up_with_subqueries(node).data()
}

/// An operand, with the kind of type that it will have once its parts have come to one. What stands in it is left as it
/// was written: it may be looked for among what rows are grouped by.
pub(crate) fn operand(expr: Expr, schema: &DFSchema) -> Expr {
    if !is_expr_open(&expr) {
        return expr;
    }
    let Ok(settled) = Settling { schema }.of(expr.clone()) else { return expr };
    match (expr.get_type(schema), settled.data.get_type(schema)) {
        (Ok(now), Ok(then)) if number::is_of_kind(&now, &then) => expr,
        (_, Ok(then)) if then.is_numeric() => number::seen_as(expr, then),
        _ => expr,
    }
}

/// A value in a list of `VALUES`, marked: it comes to one type with the other rows once its own parts have.
pub(crate) fn cell(expr: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(functions::cell()));
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&FUNCTION), vec![expr]))
}

/// The parts of `expr` that come to one type, of that type.
///
/// # Errors
/// As [`settled`].
pub(crate) fn alike(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::Case(mut case) => {
            let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            let mut results: Vec<&mut Expr> = results.chain(case.else_expr.as_deref_mut()).collect();
            let changed = brought_together(&mut results, schema, Purpose::Result)?;
            Transformed::new_transformed(Expr::Case(case), changed)
        }
        Expr::ScalarFunction(mut call) if functions::is_of_one_type(call.func.name()) => {
            functions::check_arguments(&call, schema)?;
            let purpose = if call.func.name() == "nullif" { Purpose::Equality } else { Purpose::Result };
            let mut values: Vec<&mut Expr> = call.args.iter_mut().collect();
            let changed = brought_together(&mut values, schema, purpose)?;
            Transformed::new_transformed(Expr::ScalarFunction(call), changed)
        }
        Expr::WindowFunction(mut call) => {
            let mut values: Vec<&mut Expr> = with_default(&mut call).into_iter().flatten().collect();
            let changed = brought_together(&mut values, schema, Purpose::Result)?;
            Transformed::new_transformed(Expr::WindowFunction(call), changed)
        }
        other => Transformed::no(other),
    })
}

fn brought_together(values: &mut [&mut Expr], schema: &DFSchema, purpose: Purpose) -> Result<bool> {
    Ok(together(values, schema)? | number::alike(values, schema, purpose)? | texts(values, schema))
}

/// Nulls without a type among themselves are texts.
fn texts(values: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let is_null = |value: &Expr| {
        !matches!(value, Expr::Placeholder(_))
            && value.get_type(schema).is_ok_and(|data_type| data_type.is_null())
    };
    if values.is_empty() || !values.iter().all(|value| is_null(value)) {
        return false;
    }
    for value in values {
        **value = match std::mem::take(*value) {
            Expr::Literal(..) => Expr::Literal(ScalarValue::Utf8(None), None),
            other => Expr::Cast(Cast::new(Box::new(other), DataType::Utf8)),
        };
    }
    true
}

/// A `CASE` or an array of JSON as what it is: to DataFusion it is one of texts.
fn as_json(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some(metadata) = functions::kind(&expr, schema)?.json_metadata() else {
        return Ok(Transformed::no(expr));
    };
    let field = Field::new("", expr.get_type(schema)?, true).with_metadata(metadata);
    Ok(Transformed::yes(Expr::Cast(Cast::new_from_field(Box::new(expr), Arc::new(field)))))
}

/// Whether `expr` is a cast to what `field` is.
fn is_of(expr: &Expr, field: &FieldRef) -> bool {
    matches!(expr, Expr::Cast(cast) if cast.field == *field && Kind::of(field).json_metadata().is_some())
}

/// What `lag` and `lead` look for, and what they answer where there is none.
fn with_default(call: &mut WindowFunction) -> Option<[&mut Expr; 2]> {
    let WindowFunctionDefinition::WindowUDF(function) = &call.fun else { return None };
    match (function.name(), call.params.args.as_mut_slice()) {
        ("lag" | "lead", [value, _, default]) => Some([value, default]),
        _ => None,
    }
}

/// Whether a part of `plan` may have another type than it says.
fn is_open(plan: &LogicalPlan) -> Result<bool> {
    let mut open = false;
    plan.apply_with_subqueries(|node| {
        open |= sets::is_open(node);
        node.apply_expressions(|expr| {
            open |= is_expr_open(expr);
            Ok(if open { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(if open { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(open)
}

/// Whether a part of `expr` may have another type than it says. The operands of operators were asked before.
fn is_expr_open(expr: &Expr) -> bool {
    let mut open = false;
    let walked = expr.apply(|part| {
        open |= match part {
            Expr::Case(_) => true,
            Expr::ScalarFunction(call) if number::is_operator(call.func.name()) => {
                return Ok(TreeNodeRecursion::Jump);
            }
            Expr::ScalarFunction(call) => functions::is_of_one_type(call.func.name()),
            Expr::WindowFunction(call) => call.params.args.len() == 3,
            Expr::ScalarSubquery(query) => is_open(&query.subquery)?,
            _ => false,
        };
        Ok(if open { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    walked.is_ok() && open
}

/// A node whose inputs are settled.
fn node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let plan = sets::alike(plan)?;
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    let plan = plan
        .map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(Settling { schema: &schema }.of(expr)?.update_data(|expr| name.restore(expr)))
        })
        .data()?;
    Ok(Transformed::yes(match plan {
        LogicalPlan::Values(values) => LogicalPlan::Values(sets::values(values)?),
        plan => plan.recompute_schema()?,
    }))
}

/// Brings the parts of an expression to their types.
struct Settling<'a> {
    schema: &'a DFSchema,
}

impl Settling<'_> {
    fn of(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        expr.rewrite(self)
    }
}

impl TreeNodeRewriter for Settling<'_> {
    type Node = Expr;

    fn f_down(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        let operator = matches!(&expr, Expr::ScalarFunction(call) if number::is_operator(call.func.name()));
        let next = if operator { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue };
        Ok(Transformed::new(expr, false, next))
    }

    fn f_up(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        match expr {
            Expr::Cast(cast) if is_of(&cast.expr, &cast.field) => Ok(Transformed::yes(*cast.expr)),
            Expr::Cast(cast) => Ok(match number::bare_cast(&cast, self.schema)? {
                Some(with_digits) => Transformed::yes(with_digits),
                None => Transformed::no(Expr::Cast(cast)),
            }),
            Expr::Case(_) => alike(expr, self.schema)?.transform_data(|case| as_json(case, self.schema)),
            Expr::ScalarFunction(call) if call.func.name() == "make_array" => {
                alike(Expr::ScalarFunction(call), self.schema)?
                    .transform_data(|array| as_json(array, self.schema))
            }
            Expr::ScalarSubquery(mut query) if is_open(&query.subquery)? => {
                query.subquery = Arc::new(settled(Arc::unwrap_or_clone(query.subquery))?);
                Ok(Transformed::yes(Expr::ScalarSubquery(query)))
            }
            other => alike(other, self.schema),
        }
    }
}
