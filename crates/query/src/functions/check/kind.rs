//! The kind of an expression.

use crate::functions::kinds::Kind;
use arrow::datatypes::{Field, FieldRef};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{Expr, ExprSchemable, ReturnFieldArgs};
use std::sync::Arc;

/// The kind of an expression: a text that is written out has none yet.
pub(crate) fn kind(expr: &Expr, schema: &DFSchema) -> Result<Kind> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Utf8View(_) | ScalarValue::Null, None)
        | Expr::Placeholder(_) => Ok(Kind::Unknown),
        Expr::Alias(alias) => kind(&alias.expr, schema),
        expr => match Kind::of(field(expr, schema)?.as_ref()) {
            Kind::Text => Ok(json_among(expr, schema)?.unwrap_or(Kind::Text)),
            Kind::Array(item) if *item == Kind::Text => {
                Ok(Kind::Array(Box::new(json_among(expr, schema)?.unwrap_or(Kind::Text))))
            }
            kind => Ok(kind),
        },
    }
}

/// The type and the metadata of an expression: DataFusion's `to_field` without the name, which it writes out in full at
/// each level of the expression, so that asking at each level, as checks do, is cubic in its depth.
fn field(expr: &Expr, schema: &DFSchema) -> Result<FieldRef> {
    match expr {
        Expr::BinaryExpr(_) => Ok(Arc::new(Field::new("", expr.get_type(schema)?, true))),
        // What is wrong with a call, DataFusion says better.
        Expr::ScalarFunction(call) => answer(call, schema).or_else(|_| Ok(expr.to_field(schema)?.1)),
        expr => Ok(expr.to_field(schema)?.1),
    }
}

fn answer(call: &ScalarFunction, schema: &DFSchema) -> Result<FieldRef> {
    let fields = call.args.iter().map(|argument| field(argument, schema)).collect::<Result<Vec<_>>>()?;
    let arg_fields = fields_with_udf(&fields, call.func.as_ref())?;
    let scalar_arguments = call.args.iter().map(|argument| match argument {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    });
    let scalar_arguments = scalar_arguments.collect::<Vec<_>>();
    call.func.return_field_from_args(ReturnFieldArgs {
        arg_fields: &arg_fields,
        scalar_arguments: &scalar_arguments,
    })
}

/// The kind of JSON among values that come to one type: DataFusion forgets that it is not text.
fn json_among(expr: &Expr, schema: &DFSchema) -> Result<Option<Kind>> {
    let values: Vec<&Expr> = match expr {
        Expr::ScalarFunction(call) if matches!(call.func.name(), "coalesce" | "make_array" | "nullif") => {
            call.args.iter().collect()
        }
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            results.chain(case.else_expr.as_deref()).collect()
        }
        _ => return Ok(None),
    };
    for value in values {
        let kind = kind(value, schema)?;
        if kind.is_json() {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

pub(super) fn is_text(kind: &Kind) -> bool {
    matches!(kind, Kind::Text | Kind::Unknown)
}
