//! Operators: which there are for operands of which types, and those that are functions of ours.

use super::calls::whole_number;
use super::kind::is_text;
use super::together::{CLOCK_HINT, comparable, needs_a_zone};
use super::{kind, refuse};
use crate::error::{invalid, unsupported};
use crate::functions::kinds::Kind;
use crate::functions::large::Concatenation;
use crate::functions::{casts, moment_operators, parts, patterns};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{Expr, Like, Operator, lit};
use oribi_session::sql::SqlError;

/// An operator that there is for such operands; ours where DataFusion's answers otherwise.
///
/// # Errors
/// 42883, 42725, `Unsupported`.
pub(super) fn checked(binary: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if binary.op == Operator::StringConcat {
        return concatenation(binary, schema);
    }
    check_operator(&binary, schema)?;
    if let Some((name, negated)) = regex_operator(binary.op) {
        return Ok(Transformed::yes(patterns::operator(name, vec![*binary.left, *binary.right], negated)));
    }
    if let Some((case_insensitive, negated)) = like_operator(binary.op) {
        let BinaryExpr { left, right, .. } = binary;
        let like = Like { negated, expr: left, pattern: right, escape_char: None, case_insensitive };
        return Ok(Transformed::yes(like_of(like, schema).data));
    }
    moment_operators::compared(Expr::BinaryExpr(binary), schema)
}

/// # Errors
/// As [`checked`].
pub(super) fn like(like: Like, schema: &DFSchema) -> Result<Transformed<Expr>> {
    check_like(&like, schema)?;
    Ok(like_of(like, schema))
}

/// `SIMILAR TO`.
///
/// # Errors
/// As [`checked`].
pub(super) fn similar(like: Like, schema: &DFSchema) -> Result<Transformed<Expr>> {
    check_like(&like, schema)?;
    let mut arguments = vec![*like.expr, *like.pattern];
    arguments.extend(like.escape_char.map(|escape| lit(escape.to_string())));
    Ok(Transformed::yes(patterns::operator("is_similar", arguments, like.negated)))
}

fn check_operator(binary: &BinaryExpr, schema: &DFSchema) -> Result<()> {
    use Operator as O;
    let (left, right) = (kind(&binary.left, schema)?, kind(&binary.right, schema)?);
    let both = |is: fn(&Kind) -> bool| is(&left) && is(&right);
    let fits = match binary.op {
        O::And | O::Or => both(|kind| matches!(kind, Kind::Bool | Kind::Unknown)),
        O::Eq | O::NotEq | O::Lt | O::LtEq | O::Gt | O::GtEq | O::IsDistinctFrom | O::IsNotDistinctFrom => {
            comparable(&left, &right)
        }
        // Those of moments are calls by now.
        O::Plus | O::Minus | O::Multiply | O::Divide | O::Modulo => {
            both(|kind| kind.is_number() || *kind == Kind::Unknown)
        }
        // It is shifted by an integer; what is shifted is one, too, if nothing says so.
        O::BitwiseShiftLeft | O::BitwiseShiftRight if left == Kind::Unknown && right == Kind::Int2 => {
            let message = format!("operator is not unique: unknown {} {right}", symbol(binary.op));
            return refuse(invalid("42725", message));
        }
        O::BitwiseShiftLeft | O::BitwiseShiftRight => {
            matches!(left, Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Unknown)
                && (right == Kind::Unknown || is_int4(&binary.right, schema)?)
        }
        O::BitwiseAnd | O::BitwiseOr | O::BitwiseXor => {
            both(|kind| matches!(kind, Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Unknown))
        }
        O::RegexMatch
        | O::RegexIMatch
        | O::RegexNotMatch
        | O::RegexNotIMatch
        | O::LikeMatch
        | O::ILikeMatch
        | O::NotLikeMatch
        | O::NotILikeMatch => both(is_text),
        _ => return refuse(unsupported(&format!("operator {}", symbol(binary.op)))),
    };
    if fits { Ok(()) } else { refuse(no_operator(&left, symbol(binary.op), &right)) }
}

fn check_like(like: &Like, schema: &DFSchema) -> Result<()> {
    let operator = if like.case_insensitive { "~~*" } else { "~~" };
    let (left, right) = (kind(&like.expr, schema)?, kind(&like.pattern, schema)?);
    if is_text(&left) && is_text(&right) { Ok(()) } else { refuse(no_operator(&left, operator, &right)) }
}

/// `LIKE` as it is if its pattern is plain and of one part; ours otherwise.
fn like_of(like: Like, schema: &DFSchema) -> Transformed<Expr> {
    let plain = match like.pattern.as_ref() {
        Expr::Literal(ScalarValue::Utf8(Some(pattern)) | ScalarValue::Utf8View(Some(pattern)), _) => {
            !pattern.contains('\\') && like.escape_char.is_none_or(|escape| escape == '\\')
        }
        Expr::Literal(..) => true,
        _ => false,
    };
    if plain {
        return match parts::in_parts(like, schema) {
            Ok(call) => Transformed::yes(call),
            Err(like) => Transformed::no(Expr::Like(like)),
        };
    }
    let name = if like.case_insensitive { "is_like_ignoring_case" } else { "is_like" };
    let escape = lit(like.escape_char.unwrap_or('\\').to_string());
    Transformed::yes(patterns::operator(name, vec![*like.expr, *like.pattern, escape], like.negated))
}

fn like_operator(operator: Operator) -> Option<(bool, bool)> {
    Some(match operator {
        Operator::LikeMatch => (false, false),
        Operator::NotLikeMatch => (false, true),
        Operator::ILikeMatch => (true, false),
        Operator::NotILikeMatch => (true, true),
        _ => return None,
    })
}

fn regex_operator(operator: Operator) -> Option<(&'static str, bool)> {
    Some(match operator {
        Operator::RegexMatch => ("matches", false),
        Operator::RegexNotMatch => ("matches", true),
        Operator::RegexIMatch => ("matches_ignoring_case", false),
        Operator::RegexNotIMatch => ("matches_ignoring_case", true),
        _ => return None,
    })
}

/// `a || b`: texts, or a text and a value of a type that has a text.
fn concatenation(mut binary: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (left, right) = (kind(&binary.left, schema)?, kind(&binary.right, schema)?);
    for (side, kind, other) in [(&mut binary.left, &left, &right), (&mut binary.right, &right, &left)] {
        if is_text(kind) {
            continue;
        }
        match casts::to_text(kind) {
            // Of two that are no text, none says that texts are meant.
            // A text without a type would be one of bytes beside bytes.
            Some(function)
                if is_text(other)
                    && !kind.is_json()
                    && !(*kind == Kind::Bytea && *other == Kind::Unknown) =>
            {
                let value = std::mem::replace(side.as_mut(), Expr::Literal(ScalarValue::Null, None));
                **side = function.call(vec![value]);
            }
            _ => return refuse(no_operator(&left, "||", &right)),
        }
    }
    Ok(Transformed::yes(Concatenation::of(*binary.left, *binary.right)))
}

/// Whether a number is an integer as PostgreSQL counts them: literals, and what is computed of them, are wider here.
pub(crate) fn is_int4(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(match kind(expr, schema)? {
        Kind::Int2 | Kind::Int4 => true,
        Kind::Int8 => match expr {
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
                is_int4(left, schema)? && is_int4(right, schema)?
            }
            Expr::Literal(..) | Expr::Negative(_) => {
                whole_number(expr).is_some_and(|number| i32::try_from(number).is_ok())
            }
            _ => false,
        },
        _ => false,
    })
}

fn symbol(operator: Operator) -> &'static str {
    use Operator as O;
    match operator {
        O::Eq => "=",
        O::NotEq => "<>",
        O::Lt => "<",
        O::LtEq => "<=",
        O::Gt => ">",
        O::GtEq => ">=",
        O::Plus => "+",
        O::Minus => "-",
        O::Multiply => "*",
        O::Divide => "/",
        O::Modulo => "%",
        O::And => "AND",
        O::Or => "OR",
        O::IsDistinctFrom | O::IsNotDistinctFrom => "=",
        O::RegexMatch => "~",
        O::RegexIMatch => "~*",
        O::RegexNotMatch => "!~",
        O::RegexNotIMatch => "!~*",
        O::LikeMatch => "~~",
        O::ILikeMatch => "~~*",
        O::NotLikeMatch => "!~~",
        O::NotILikeMatch => "!~~*",
        O::BitwiseAnd => "&",
        O::BitwiseOr => "|",
        O::BitwiseXor => "#",
        O::BitwiseShiftLeft => "<<",
        O::BitwiseShiftRight => ">>",
        O::StringConcat => "||",
        O::AtArrow => "@>",
        O::ArrowAt => "<@",
        _ => "of this kind",
    }
}

pub(in crate::functions) fn no_operator(left: &Kind, operator: &str, right: &Kind) -> SqlError {
    if needs_a_zone(left, right) {
        return unsupported(&format!("{left} {operator} {right}")).with_hint(CLOCK_HINT);
    }
    invalid("42883", format!("operator does not exist: {left} {operator} {right}"))
        .with_hint("no operator of the name takes arguments of these types; a cast may help")
}
