//! Numbers written in a statement: `integer` if they fit, else `bigint`, else `numeric`.
//!
//! DataFusion takes every integer for a `bigint`. Here the syntax tree says otherwise before it is planned: `5` becomes a
//! cast to a type that only this file can write. What is no expression but the place of a column or a count of rows stays.

use super::arithmetic;
use crate::one_type::typed_terms;
use crate::syntax::fold;
use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, GroupByExpr, Ident, LimitClause, ObjectName, OrderByKind, Query, Select, SetExpr,
    UnaryOperator, Value, VisitMut, VisitorMut, WindowFrameBound, WindowSpec, WindowType,
};
use std::ops::ControlFlow;

/// The type of a literal that is an `integer`. No statement can name it: a name has no question mark unless it is quoted.
const INTEGER: &str = "?integer";

/// The function of a literal that no decimal can be, such as `1e300`.
pub(super) const HUGE: &str = "?numeric";

/// The least `bigint` without its sign, as [`typed`] leaves it.
const LEAST_BIGINT: &str = "9223372036854775808.";

/// The most digits of a decimal, on both sides of its point.
const DIGITS_MAX: i64 = 38;

/// Gives the numbers of a statement or an expression their types.
pub(crate) fn mark(statement: &mut impl VisitMut) {
    let _ = statement.visit(&mut Marker);
}

/// The type that [`mark`] wrote.
pub(crate) fn marked_type(sql_type: &ast::DataType) -> Option<DataType> {
    match sql_type {
        ast::DataType::Custom(name, _) if is_named(name, INTEGER) => Some(DataType::Int32),
        _ => None,
    }
}

struct Marker;

impl VisitorMut for Marker {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Value(value) => {
                if let Value::Number(digits, _) = &value.value {
                    *expr = typed(digits);
                }
            }
            Expr::UnaryOp { .. } => sign(expr),
            // The index of an element of JSON is looked for among literals.
            Expr::BinaryOp { op: BinaryOperator::Arrow | BinaryOperator::LongArrow, right, .. } => {
                unmark(right)
            }
            Expr::Function(function) => {
                if let Some(WindowType::WindowSpec(spec)) = &mut function.over {
                    unmark_frame(spec);
                }
                if let Some(operator) = as_operator(function) {
                    *expr = operator;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        typed_terms(query);
        if let SetExpr::Values(values) = query.body.as_mut() {
            values.rows.iter_mut().flat_map(|row| row.content.iter_mut()).for_each(mark_cell);
        }
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(expressions) = &mut order.kind
        {
            expressions.iter_mut().for_each(|by| unmark(&mut by.expr));
        }
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
            limit.iter_mut().for_each(unmark);
            offset.iter_mut().for_each(|offset| unmark(&mut offset.value));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let GroupByExpr::Expressions(expressions, _) = &mut select.group_by {
            expressions.iter_mut().for_each(unmark_group);
        }
        if let Some(ast::Distinct::On(expressions)) = &mut select.distinct {
            expressions.iter_mut().for_each(unmark);
        }
        for ast::NamedWindowDefinition(_, definition) in &mut select.named_window {
            if let ast::NamedWindowExpr::WindowSpec(spec) = definition {
                unmark_frame(spec);
            }
        }
        ControlFlow::Continue(())
    }
}

/// The operator around each value in a list of `VALUES`.
pub(super) const CELL: &str = "?cell";

/// Marks a value: DataFusion casts it to what it takes for the type of the column. A parameter's type it has to see.
fn mark_cell(expr: &mut Expr) {
    if matches!(expr, Expr::Value(value) if matches!(value.value, Value::Placeholder(_))) {
        return;
    }
    let left = Box::new(std::mem::replace(expr, Expr::Value(Value::Null.into())));
    let right = Box::new(Expr::Value(Value::Null.into()));
    *expr = Expr::BinaryOp { left, op: BinaryOperator::Custom(CELL.to_owned()), right };
}

fn is_named(name: &ObjectName, wanted: &str) -> bool {
    matches!(name.0.as_slice(), [part] if part.as_ident().is_some_and(|ident| ident.value == wanted))
}

fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).into())
}

/// The literal with its type.
fn typed(digits: &str) -> Expr {
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        if digits.parse::<i32>().is_ok() {
            return integer(number(digits));
        }
        if digits.parse::<i64>().is_ok() {
            return number(digits);
        }
        let significant = digits.trim_start_matches('0');
        if significant.len() as i64 <= DIGITS_MAX {
            // Without the point, DataFusion would take it for an unsigned integer if it fits one.
            return number(&format!("{significant}."));
        }
        return huge(digits);
    }
    let (mantissa, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, "0"));
    let exponent = exponent.parse::<i64>().unwrap_or(i64::MAX / 4);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let scale = (fraction.len() as i64 - exponent).max(0);
    let significant = format!("{whole}{fraction}");
    let significant = significant.trim_start_matches('0').len() as i64;
    // Digits before the point and behind it, zeros between them and the point included.
    let before = significant - fraction.len() as i64 + exponent;
    if scale > DIGITS_MAX || (significant > 0 && before.max(0) + scale > DIGITS_MAX) {
        return huge(digits);
    }
    if exponent == 0 { number(digits) } else { number(&written_out(whole, fraction, exponent)) }
}

/// The digits without an exponent, which moves the point at most 38 places.
fn written_out(whole: &str, fraction: &str, exponent: i64) -> String {
    let digits = format!("{whole}{fraction}");
    let point = whole.len() as i64 + exponent;
    if point <= 0 {
        return format!("0.{}{digits}", "0".repeat(point.unsigned_abs() as usize));
    }
    let point = point as usize;
    if point >= digits.len() {
        return format!("{digits}{}.", "0".repeat(point - digits.len()));
    }
    format!("{}.{}", &digits[..point], &digits[point..])
}

fn integer(expr: Expr) -> Expr {
    cast(expr, ast::DataType::Custom(ObjectName::from(Ident::new(INTEGER)), Vec::new()))
}

fn cast(expr: Expr, data_type: ast::DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// A number that is read when its type is known: beside a `double precision` it is one.
fn huge(digits: &str) -> Expr {
    call(HUGE, Expr::Value(Value::SingleQuotedString(digits.to_owned()).into()))
}

fn call(function: &str, argument: Expr) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(Ident::with_quote('"', function)),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Operators with one operand are functions: DataFusion plans few of them, and none with PostgreSQL's errors.
fn sign(expr: &mut Expr) {
    let Expr::UnaryOp { op, expr: operand } = expr else { return };
    let function = match op {
        UnaryOperator::Minus => arithmetic::MINUS,
        UnaryOperator::BitwiseNot => arithmetic::NOT,
        UnaryOperator::PGAbs => "abs",
        UnaryOperator::PGSquareRoot => "sqrt",
        UnaryOperator::PGCubeRoot => "cbrt",
        _ => return,
    };
    let operand = std::mem::replace(operand.as_mut(), Expr::Value(Value::Null.into()));
    *expr = match (function, operand) {
        (arithmetic::MINUS, Expr::Interval(interval)) => {
            let operand = Box::new(Expr::Interval(interval));
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: operand }
        }
        (arithmetic::MINUS, operand) if digits_of_huge(&operand).is_some() => {
            huge(&format!("-{}", digits_of_huge(&operand).unwrap_or_default()))
        }
        // The negative of a literal is one literal more, and its negative the first again.
        (arithmetic::MINUS, operand) if negated(&operand).is_some() => {
            typed(negated(&operand).unwrap_or_default())
        }
        (arithmetic::MINUS, operand) => match literal_of(&operand) {
            Some(digits) => {
                // The least integers have a digit more as long as their sign is not looked at.
                let is_integer = is_marked(&operand) || format!("-{digits}").parse::<i32>().is_ok();
                let digits = if digits == LEAST_BIGINT { digits.trim_end_matches('.') } else { digits };
                let negative = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(number(digits)) };
                if is_integer { integer(negative) } else { negative }
            }
            None => call(function, operand),
        },
        (_, operand) => call(function, operand),
    };
}

fn digits_of_huge(expr: &Expr) -> Option<&str> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else {
        return None;
    };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))] if is_named(name, HUGE) => {
            match &value.value {
                Value::SingleQuotedString(digits) => Some(digits),
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_marked(expr: &Expr) -> bool {
    matches!(expr, Expr::Cast { data_type, .. } if marked_type(data_type).is_some())
}

/// The digits of a literal with a minus before it.
fn negated(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Cast { expr: inner, .. } if is_marked(expr) => negated(inner),
        Expr::Nested(inner) => negated(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => literal_of(inner),
        _ => None,
    }
}

/// The digits of a literal that [`typed`] left a number or marked.
fn literal_of(expr: &Expr) -> Option<&str> {
    let literal = match expr {
        Expr::Cast { expr: inner, .. } if is_marked(expr) => inner.as_ref(),
        Expr::Nested(inner) => return literal_of(inner),
        other => other,
    };
    match literal {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => Some(digits),
            _ => None,
        },
        _ => None,
    }
}

/// `mod` and `power` are operators by another name. To how many digits is rounded is looked for among literals.
fn as_operator(function: &mut Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &mut function.args else { return None };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(left)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(right)),
    ] = list.args.as_mut_slice()
    else {
        return None;
    };
    let [name] = function.name.0.as_slice() else { return None };
    let op = match fold(name.as_ident()?).as_str() {
        "mod" => BinaryOperator::Modulo,
        "power" | "pow" => BinaryOperator::PGExp,
        "round" | "trunc" => {
            unmark(right);
            return None;
        }
        _ => return None,
    };
    let operand = |expr: &mut Expr| Box::new(std::mem::replace(expr, Expr::Value(Value::Null.into())));
    Some(Expr::BinaryOp { left: operand(left), op, right: operand(right) })
}

/// The number as it was written.
fn unmark(expr: &mut Expr) {
    if let Expr::Cast { expr: inner, data_type, .. } = expr
        && marked_type(data_type).is_some()
    {
        *expr = std::mem::replace(inner.as_mut(), Expr::Value(Value::Null.into()));
    }
}

fn unmark_group(expr: &mut Expr) {
    match expr {
        Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
            sets.iter_mut().flatten().for_each(unmark);
        }
        other => unmark(other),
    }
}

fn unmark_frame(spec: &mut WindowSpec) {
    let Some(frame) = &mut spec.window_frame else { return };
    for bound in std::iter::once(&mut frame.start_bound).chain(&mut frame.end_bound) {
        if let WindowFrameBound::Preceding(Some(expr)) | WindowFrameBound::Following(Some(expr)) = bound {
            unmark(expr);
        }
    }
}
