//! The kind of an expression.

use crate::functions::kinds::Kind;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable};

/// The kind of an expression: a text that is written out has none yet.
pub(crate) fn kind(expr: &Expr, schema: &DFSchema) -> Result<Kind> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Utf8View(_) | ScalarValue::Null, None)
        | Expr::Placeholder(_) => Ok(Kind::Unknown),
        Expr::Alias(alias) => kind(&alias.expr, schema),
        expr => match Kind::of(expr.to_field(schema)?.1.as_ref()) {
            Kind::Text => Ok(json_among(expr, schema)?.unwrap_or(Kind::Text)),
            Kind::Array(item) if *item == Kind::Text => {
                Ok(Kind::Array(Box::new(json_among(expr, schema)?.unwrap_or(Kind::Text))))
            }
            kind => Ok(kind),
        },
    }
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
