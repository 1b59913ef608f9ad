//! Expressions that need no plan: literals and parameters, as a column takes them.
//!
//! An `INSERT` of such values, and an `UPDATE` that sets them, never enter DataFusion.

use super::coerce::{convert, parse};
use super::types::column_type;
use crate::jsonb;
use crate::syntax::fold;
use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{self, CastKind, Expr, FunctionArguments, UnaryOperator};
use oribi_session::sql::{SqlError, SqlSession, TimeZone};
use oribi_types::{Column, ColumnType, ErrorKind, Value};
use std::collections::BTreeSet;

/// Types of a statement's parameters while it is planned.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParameterTypes {
    known: Vec<Option<ColumnType>>,
    /// Those that are more than stored.
    compared: BTreeSet<usize>,
    /// Those that are timestamps with a time zone.
    moments: BTreeSet<usize>,
}

/// `$n` with n above this is refused, as the PostgreSQL protocol counts parameters with 16 bits.
const PARAMETERS_MAX: usize = 65_535;

impl ParameterTypes {
    /// Starts from the types that the client gave.
    pub(crate) fn new(given: &[Option<ColumnType>]) -> Self {
        ParameterTypes { known: given.to_vec(), ..ParameterTypes::default() }
    }

    /// Parameter `n`, counted from 0, is used where a value of `column_type` is wanted. What is known already stays.
    pub(crate) fn note(&mut self, n: usize, column_type: Option<ColumnType>) {
        if n >= self.known.len() {
            self.known.resize(n + 1, None);
        }
        self.known[n] = self.known[n].or(column_type);
    }

    /// As [`note`](Self::note), for a parameter that is compared or computed with: rounded to the type, a number would
    /// equal what it does not.
    pub(crate) fn note_compared(&mut self, n: usize, column_type: Option<ColumnType>) {
        self.note(n, column_type);
        self.compared.insert(n);
    }

    /// Parameter `n` is used where a value of the type `arrow` is wanted, which may tell more than a column's.
    pub(crate) fn note_moment(&mut self, n: usize, arrow: &DataType) {
        if matches!(arrow, DataType::Timestamp(_, Some(_))) {
            self.moments.insert(n);
        }
    }

    pub(crate) fn is_moment(&self, n: usize) -> bool {
        self.moments.contains(&n)
    }

    pub(crate) fn get(&self, n: usize) -> Option<ColumnType> {
        self.known.get(n).copied().flatten()
    }

    /// What is known so far, from `$1` on.
    pub(crate) fn known(&self) -> &[Option<ColumnType>] {
        &self.known
    }

    pub(crate) fn is_compared(&self, n: usize) -> bool {
        self.compared.contains(&n)
    }

    /// The types, text for a parameter of which nothing is known.
    pub(crate) fn types(&self) -> Vec<ColumnType> {
        self.known.iter().map(|known| known.unwrap_or(ColumnType::String)).collect()
    }
}

/// What a statement is executed with: the values of its parameters and their types, and the time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Parameters<'a> {
    pub(crate) types: &'a [ColumnType],
    pub(crate) values: &'a [Value],
    /// What `now()` is, in microseconds since 1970.
    pub(crate) now_micros: i64,
}

/// A value known without a row: a literal, or a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Constant {
    /// Of the column's type already.
    Value(Value),
    /// Parameter `n` counted from 0, cast to a type on its way to the column.
    Parameter { n: usize, cast: Option<ColumnType> },
    /// `now()`, as the clocks of a zone show it, those of UTC if there is none.
    Now(Option<TimeZone>),
}

impl Constant {
    /// Compiles `expr` for `column` of a statement of `session`; `None` if it is no constant.
    ///
    /// # Errors
    /// `Invalid` for a literal that the column cannot take.
    pub(crate) fn of_session(
        expr: &Expr,
        column: &Column,
        session: &SqlSession,
        types: &mut ParameterTypes,
    ) -> Result<Option<Constant>, SqlError> {
        match Constant::compile(expr, column, types)? {
            None if column.column_type == ColumnType::Timestamp && is_now(expr) => {
                Ok(Some(Constant::Now(session.time_zone())))
            }
            compiled => Ok(compiled),
        }
    }

    /// Compiles `expr` for `column`; `None` if it is not constant.
    ///
    /// # Errors
    /// `Invalid` for a literal that the column cannot take.
    pub(crate) fn compile(
        expr: &Expr,
        column: &Column,
        types: &mut ParameterTypes,
    ) -> Result<Option<Constant>, SqlError> {
        match expr {
            Expr::Nested(inner) => Constant::compile(inner, column, types),
            Expr::Value(value) => match &value.value {
                ast::Value::Placeholder(name) => {
                    let n = parameter_number(name)?;
                    types.note(n, Some(column.column_type));
                    Ok(Some(Constant::Parameter { n, cast: None }))
                }
                literal => Ok(literal_value(literal, column)?.map(Constant::Value)),
            },
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
                Expr::Value(value) => match &value.value {
                    ast::Value::Number(digits, _) => {
                        Ok(Some(Constant::Value(number(&format!("-{digits}"), column)?)))
                    }
                    _ => Ok(None),
                },
                _ => Ok(None),
            },
            Expr::TypedString(typed) => {
                let Some(text) = typed.value.value.clone().into_string() else { return Ok(None) };
                cast_literal(&text, column_type(&typed.data_type)?, column)
            }
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, .. } => {
                if let Some(written) = jsonb_literal(expr, data_type)? {
                    return cast_literal(&written, ColumnType::Json, column);
                }
                Constant::compile_cast(expr, column_type(data_type)?, column, types)
            }
            _ => Ok(None),
        }
    }

    fn compile_cast(
        expr: &Expr,
        cast: ColumnType,
        column: &Column,
        types: &mut ParameterTypes,
    ) -> Result<Option<Constant>, SqlError> {
        let Expr::Value(value) = expr else { return Ok(None) };
        match &value.value {
            ast::Value::Placeholder(name) => {
                let n = parameter_number(name)?;
                types.note(n, Some(cast));
                Ok(Some(Constant::Parameter { n, cast: Some(cast) }))
            }
            ast::Value::SingleQuotedString(text) => cast_literal(text, cast, column),
            ast::Value::Null => Ok(Some(Constant::Value(Value::Null))),
            _ => Ok(None),
        }
    }

    /// The value, of `column`'s type.
    ///
    /// # Errors
    /// `Invalid` for a parameter that the column cannot take.
    pub(crate) fn value(&self, column: &Column, parameters: Parameters<'_>) -> Result<Value, SqlError> {
        match self {
            Constant::Value(value) => Ok(value.clone()),
            Constant::Now(zone) => Ok(Value::Timestamp(clock(*zone, parameters.now_micros))),
            Constant::Parameter { n, cast } => {
                let (value, from) = (parameters.values[*n].clone(), parameters.types[*n]);
                match cast {
                    Some(cast) if *cast != from => {
                        let through = Column { column_type: *cast, ..column.clone() };
                        convert(convert(value, from, &through)?, *cast, column)
                    }
                    _ => convert(value, from, column),
                }
            }
        }
    }
}

/// What the clocks of a zone show at a moment, both in microseconds since 1970. Out of line: it is seldom asked, and in
/// what encodes each value of a row it would be in the way of the others.
#[inline(never)]
pub(super) fn clock(zone: Option<TimeZone>, micros: i64) -> i64 {
    zone.map_or(micros, |zone| zone.wall_clock(micros))
}

/// Whether an expression is the time at which the transaction began.
fn is_now(expr: &Expr) -> bool {
    let Expr::Function(call) = expr else { return false };
    let [ast::ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else { return false };
    let has_no_more = call.over.is_none() && call.filter.is_none() && call.within_group.is_empty();
    has_no_more
        && match (fold(name).as_str(), &call.args) {
            ("current_timestamp", FunctionArguments::None) => name.quote_style.is_none(),
            ("now", FunctionArguments::List(list)) => list.args.is_empty() && list.clauses.is_empty(),
            _ => false,
        }
}

/// The number of a parameter, counted from 0, from its name `$1`.
pub(crate) fn parameter_number(name: &str) -> Result<usize, SqlError> {
    match name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok()) {
        Some(n @ 1..=PARAMETERS_MAX) => Ok(n - 1),
        _ => {
            Err(SqlError::new(ErrorKind::Invalid, format!("there is no parameter {name}"))
                .with_sqlstate("42P02"))
        }
    }
}

/// A literal that is cast to `jsonb`, as PostgreSQL writes it.
fn jsonb_literal(expr: &Expr, data_type: &ast::DataType) -> Result<Option<String>, SqlError> {
    match expr {
        Expr::Value(value) if *data_type == ast::DataType::JSONB => match &value.value {
            ast::Value::SingleQuotedString(text) => jsonb::normalize(text).map(Some),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

fn cast_literal(text: &str, cast: ColumnType, column: &Column) -> Result<Option<Constant>, SqlError> {
    let through = Column { column_type: cast, ..column.clone() };
    Ok(Some(Constant::Value(convert(parse(text, &through)?, cast, column)?)))
}

fn literal_value(literal: &ast::Value, column: &Column) -> Result<Option<Value>, SqlError> {
    Ok(Some(match literal {
        ast::Value::Null => Value::Null,
        ast::Value::Boolean(v) => convert(Value::Bool(*v), ColumnType::Bool, column)?,
        ast::Value::Number(digits, _) => number(digits, column)?,
        ast::Value::SingleQuotedString(text)
        | ast::Value::EscapedStringLiteral(text)
        | ast::Value::UnicodeStringLiteral(text)
        | ast::Value::NationalStringLiteral(text) => parse(text, column)?,
        ast::Value::DollarQuotedString(text) => parse(&text.value, column)?,
        _ => return Ok(None),
    }))
}

/// A numeric literal, rounded to what the column holds.
fn number(digits: &str, column: &Column) -> Result<Value, SqlError> {
    match column.column_type {
        ColumnType::String | ColumnType::Float | ColumnType::Double | ColumnType::Decimal { .. } => {
            parse(digits, column)
        }
        ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64
            if digits.contains(['.', 'e', 'E']) =>
        {
            // PostgreSQL reads the literal as numeric, which rounds halves away from zero.
            let whole = ColumnType::Decimal { precision: 38, scale: 0 };
            let rounded = parse(digits, &Column { column_type: whole, ..column.clone() })?;
            convert(rounded, whole, column)
        }
        ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => parse(digits, column),
        // Refused there, as a bigint that is assigned to a column of such a type.
        _ => convert(Value::Int64(0), ColumnType::Int64, column),
    }
}
