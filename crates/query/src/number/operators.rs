//! Operators on numbers, wherever a statement has them.
//!
//! Both operands get one type, as PostgreSQL chooses it: the wider of two integers, `numeric` beside a `numeric`, a
//! float beside a float. A text that is written beside a number is a number. What is not about numbers is left to others.

use super::arithmetic::{self, Arithmetic, Op};
use super::literals::{CELL, HUGE};
use super::{casts, error, planned, unsupported};
use crate::one_type;
use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{BinaryExpr, Cast, Placeholder};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use oribi_session::sql::SqlError;
use oribi_types::ColumnType;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct NumberOperators;

impl ExprPlanner for NumberOperators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let comparison = matches!(
            expr.op,
            BinaryOperator::Eq
                | BinaryOperator::NotEq
                | BinaryOperator::Lt
                | BinaryOperator::LtEq
                | BinaryOperator::Gt
                | BinaryOperator::GtEq
        );
        if matches!(&expr.op, BinaryOperator::Custom(op) if op == CELL) {
            return Ok(PlannerResult::Planned(one_type::cell(expr.left)));
        }
        let op = operator(&expr.op);
        if op.is_none() && !comparison {
            return Ok(PlannerResult::Original(expr));
        }
        let RawBinaryExpr { op: symbol, left, right } = expr;
        let (left, right) =
            (one_type::operand(folded(left), schema), one_type::operand(folded(right), schema));
        let (left_kind, right_kind) = (kind(&left, schema), kind(&right, schema));
        if let Some(op) = op {
            check_unknown(op, (&left, &left_kind), (&right, &right_kind), schema)?;
        }
        let (left, right) = (
            beside(left, &left_kind, &right_kind, &symbol)?,
            beside(right, &right_kind, &left_kind, &symbol)?,
        );
        if let (Some(op), Some(left_type), Some(right_type)) =
            (op, number(&left, schema), number(&right, schema))
        {
            return plan(op, (left, left_type), (right, right_type)).map(PlannerResult::Planned);
        }
        Ok(PlannerResult::Original(RawBinaryExpr { op: symbol, left, right }))
    }
}

fn operator(symbol: &BinaryOperator) -> Option<Op> {
    Some(match symbol {
        BinaryOperator::Plus => Op::Plus,
        BinaryOperator::Minus => Op::Minus,
        BinaryOperator::Multiply => Op::Times,
        BinaryOperator::Divide => Op::Divide,
        BinaryOperator::Modulo => Op::Modulo,
        BinaryOperator::PGExp => Op::Power,
        BinaryOperator::BitwiseAnd => Op::And,
        BinaryOperator::BitwiseOr => Op::Or,
        BinaryOperator::PGBitwiseXor => Op::Xor,
        BinaryOperator::PGBitwiseShiftLeft => Op::ShiftLeft,
        BinaryOperator::PGBitwiseShiftRight => Op::ShiftRight,
        _ => return None,
    })
}

/// What an operand is before it stands beside another.
enum Kind {
    /// A text that is written, whose type is what stands beside it; or null.
    Unknown,
    /// A parameter of which nothing is known.
    Parameter,
    Huge,
    Number(DataType),
    Other,
}

fn kind(expr: &Expr, schema: &DFSchema) -> Kind {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(_)) | ScalarValue::Null, _) => Kind::Unknown,
        Expr::Placeholder(Placeholder { field: None, .. }) => Kind::Parameter,
        _ if huge(expr).is_some() => Kind::Huge,
        _ => number(expr, schema).map_or(Kind::Other, Kind::Number),
    }
}

/// The type of an expression, if it is a number.
fn number(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    expr.get_type(schema).ok().filter(|data_type| data_type.is_numeric())
}

/// The digits of a literal that no decimal can be.
pub(super) fn huge(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::ScalarFunction(function) if function.func.name() == HUGE => match function.args.as_slice() {
            [Expr::Literal(ScalarValue::Utf8(Some(digits)), _)] => Some(digits),
            _ => None,
        },
        _ => None,
    }
}

/// Refuses a text or a null beside what there is no operator for, or more than one.
fn check_unknown(op: Op, left: (&Expr, &Kind), right: (&Expr, &Kind), schema: &DFSchema) -> Result<()> {
    let (other, unknown_first) = match (left, right) {
        ((_, Kind::Unknown), (other, Kind::Number(_) | Kind::Other)) => (other, true),
        ((other, Kind::Number(_) | Kind::Other), (_, Kind::Unknown)) => (other, false),
        _ => return Ok(()),
    };
    let Ok(data_type) = other.get_type(schema) else { return Ok(()) };
    let is_integer = integer_type(&data_type).is_some();
    let missing = match &data_type {
        DataType::Boolean | DataType::List(_) => true,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            true
        }
        float if float.is_floating() => op.is_bitwise() || op == Op::Modulo,
        DataType::Decimal128(..) => op.is_bitwise(),
        _ => false,
    };
    let (symbol, other) = (op.symbol(), type_name(&data_type));
    let pair =
        if unknown_first { format!("unknown {symbol} {other}") } else { format!("{other} {symbol} unknown") };
    if missing {
        return Err(planned(error("42883", format!("operator does not exist: {pair}"))));
    }
    // Each type that can be shifted is shifted by an integer.
    if unknown_first
        && is_integer
        && data_type != DataType::Int32
        && matches!(op, Op::ShiftLeft | Op::ShiftRight)
    {
        return Err(planned(error("42725", format!("operator is not unique: {pair}"))));
    }
    Ok(())
}

/// `expr`, with the type that it takes from what stands beside it.
fn beside(expr: Expr, kind: &Kind, other: &Kind, symbol: &BinaryOperator) -> Result<Expr> {
    match (kind, other) {
        (Kind::Unknown, Kind::Number(data_type)) => match operator(symbol) {
            Some(Op::Power) if integer_type(data_type).is_some() => unknown(expr, &DataType::Float64),
            _ => unknown(expr, data_type),
        },
        (Kind::Parameter, Kind::Number(data_type)) => {
            let Expr::Placeholder(Placeholder { id, .. }) = expr else { return Ok(expr) };
            let data_type = integer_type(data_type).unwrap_or_else(|| data_type.clone());
            let field = Some(Arc::new(Field::new("", data_type.clone(), true)));
            let parameter = Expr::Placeholder(Placeholder { id, field });
            // What is given may be of a narrower type. In a comparison nothing is rounded.
            let computed = operator(symbol).is_some() && !matches!(data_type, DataType::Decimal128(..));
            Ok(if computed { Expr::Cast(Cast::new(Box::new(parameter), data_type)) } else { parameter })
        }
        (Kind::Huge, Kind::Number(DataType::Float32 | DataType::Float64)) => {
            let digits = huge(&expr).unwrap_or_default().to_owned();
            casts::parse(&digits, ColumnType::Double).map(|value| Expr::Literal(value, None)).map_err(planned)
        }
        // The only operator of which one is preferred.
        (Kind::Unknown, Kind::Unknown) if operator(symbol) == Some(Op::Power) => {
            unknown(expr, &DataType::Float64)
        }
        (Kind::Unknown | Kind::Parameter, Kind::Unknown | Kind::Parameter) if operator(symbol).is_some() => {
            let message = format!("operator is not unique: unknown {symbol} unknown");
            Err(planned(error("42725", message).with_hint("cast one of them")))
        }
        _ => Ok(expr),
    }
}

/// A text beside a number, or null.
fn unknown(expr: Expr, data_type: &DataType) -> Result<Expr> {
    let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = &expr else {
        let wanted = integer_type(data_type).unwrap_or_else(|| data_type.clone());
        return Ok(Expr::Literal(ScalarValue::try_from(&wanted)?, None));
    };
    let value = match data_type {
        // With all the digits that are written: in a comparison nothing is rounded.
        DataType::Decimal128(..) => casts::parse_numeric(text).map_err(planned)?,
        other => {
            let wanted = integer_type(other).unwrap_or_else(|| other.clone());
            let column_type = ColumnType::from_arrow(&wanted).map_err(|e| planned(e.into()))?;
            casts::parse(text, column_type).map_err(planned)?
        }
    };
    Ok(Expr::Literal(value, None))
}

/// A cast of a constant number to another type of numbers, computed.
pub(super) fn folded(expr: Expr) -> Expr {
    if let Expr::Cast(cast) = &expr
        && let Expr::Literal(value @ ScalarValue::Int64(Some(_)), _) = cast.expr.as_ref()
        && cast.field.data_type() == &DataType::Int32
        && let Ok(value) = value.cast_to(&DataType::Int32)
    {
        return Expr::Literal(value, None);
    }
    expr
}

/// The integer type of PostgreSQL that all values of an integer type fit in.
pub(super) fn integer_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => DataType::Int16,
        DataType::UInt16 | DataType::Int32 => DataType::Int32,
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => DataType::Int64,
        _ => return None,
    })
}

/// What PostgreSQL calls a type.
pub(super) fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Decimal128(..) => "numeric".to_owned(),
        DataType::Timestamp(..) => "timestamp without time zone".to_owned(),
        other => match ColumnType::from_arrow(&integer_type(other).unwrap_or_else(|| other.clone())) {
            Ok(column_type) => column_type.to_string(),
            Err(_) => other.to_string().to_lowercase(),
        },
    }
}

fn width(integer: &DataType) -> u8 {
    match integer {
        DataType::Int16 => 2,
        DataType::Int32 => 4,
        _ => 8,
    }
}

/// The most digits of an integer.
pub(super) fn digits_of(integer: &DataType) -> u8 {
    match integer {
        DataType::Int16 => 5,
        DataType::Int32 => 10,
        _ => 19,
    }
}

fn no_operator(op: Op, left: &DataType, right: &DataType) -> SqlError {
    let (left, right) = (type_name(left), type_name(right));
    let message = format!("operator does not exist: {left} {} {right}", op.symbol());
    error("42883", message).with_hint(
        "No operator matches the given name and argument types. You might need to add explicit type casts.",
    )
}

/// An operator of DataFusion as ours, if both operands are numbers: what they are may not have been known when it was
/// planned.
///
/// # Errors
/// 42883.
pub(crate) fn ours(binary: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let op = match binary.op {
        Operator::Plus => Op::Plus,
        Operator::Minus => Op::Minus,
        Operator::Multiply => Op::Times,
        Operator::Divide => Op::Divide,
        Operator::Modulo => Op::Modulo,
        Operator::BitwiseAnd => Op::And,
        Operator::BitwiseOr => Op::Or,
        Operator::BitwiseXor => Op::Xor,
        Operator::BitwiseShiftLeft => Op::ShiftLeft,
        Operator::BitwiseShiftRight => Op::ShiftRight,
        _ => return Ok(Transformed::no(Expr::BinaryExpr(binary))),
    };
    match (number(&binary.left, schema), number(&binary.right, schema)) {
        (Some(left), Some(right)) => {
            plan(op, (folded(*binary.left), left), (folded(*binary.right), right)).map(Transformed::yes)
        }
        _ => Ok(Transformed::no(Expr::BinaryExpr(binary))),
    }
}

/// `left op right`, both of one type.
fn plan(op: Op, left: (Expr, DataType), right: (Expr, DataType)) -> Result<Expr> {
    let is_float = |data_type: &DataType| data_type.is_floating();
    let (left_integer, right_integer) = (integer_type(&left.1), integer_type(&right.1));
    let missing = || planned(no_operator(op, &left.1, &right.1));
    let (left_type, right_type) = if op.is_bitwise() {
        let (Some(left_type), Some(right_type)) = (left_integer, right_integer) else {
            return Err(missing());
        };
        if matches!(op, Op::ShiftLeft | Op::ShiftRight) {
            if right_type == DataType::Int64 {
                return Err(missing());
            }
            (left_type, DataType::Int32)
        } else {
            let wider = wider(left_type, right_type);
            (wider.clone(), wider)
        }
    } else if is_float(&left.1) || is_float(&right.1) {
        if op == Op::Modulo {
            return Err(missing());
        }
        let both_real = left.1 == DataType::Float32 && right.1 == DataType::Float32 && op != Op::Power;
        let data_type = if both_real { DataType::Float32 } else { DataType::Float64 };
        (data_type.clone(), data_type)
    } else if let (Some(left_type), Some(right_type)) = (left_integer, right_integer) {
        let data_type = if op == Op::Power { DataType::Float64 } else { wider(left_type, right_type) };
        (data_type.clone(), data_type)
    } else {
        if op == Op::Power {
            return Err(unsupported("a power of numeric (cast to double precision)"));
        }
        (decimal_type(&left.0, &left.1)?, decimal_type(&right.0, &right.1)?)
    };
    let (left, right) = (cast(left, &left_type)?, cast(right, &right_type)?);
    if let (Expr::Literal(left, _), Expr::Literal(right, _)) = (&left, &right)
        && let Some(value) = arithmetic::constant(op, left, right)
    {
        return Ok(Expr::Literal(value, None));
    }
    Ok(Arithmetic::call(op, left, right))
}

pub(super) fn wider(left: DataType, right: DataType) -> DataType {
    if width(&left) >= width(&right) { left } else { right }
}

/// The decimal that holds all values of an operand: of a constant, no more digits than it has.
pub(super) fn decimal_type(expr: &Expr, data_type: &DataType) -> Result<DataType> {
    if let DataType::Decimal128(precision, scale) = data_type {
        let shape = super::decimal::Shape::of(data_type);
        return Ok(match shape {
            Some(shape) if *scale < 0 => shape.data_type(),
            _ => DataType::Decimal128(*precision, *scale),
        });
    }
    let Some(integer) = integer_type(data_type) else {
        return Err(unsupported("a numeric of more than 38 digits"));
    };
    let digits = match expr {
        Expr::Literal(ScalarValue::Int32(Some(value)), _) => value.unsigned_abs().max(1).ilog10() as u8 + 1,
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => value.unsigned_abs().max(1).ilog10() as u8 + 1,
        _ => digits_of(&integer),
    };
    Ok(DataType::Decimal128(digits, 0))
}

/// A cast of `expr`; of a constant that can be cast, the value.
pub(super) fn cast((expr, from): (Expr, DataType), to: &DataType) -> Result<Expr> {
    if from == *to {
        return Ok(expr);
    }
    match expr {
        Expr::Literal(value, metadata) => Ok(match casts::constant(&value, to) {
            Ok(value) => Expr::Literal(value, metadata),
            Err(_) => Expr::Cast(Cast::new(Box::new(Expr::Literal(value, metadata)), to.clone())),
        }),
        other => Ok(Expr::Cast(Cast::new(Box::new(other), to.clone()))),
    }
}
