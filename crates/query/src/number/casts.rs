//! Casts from and to numbers, rounded and checked as PostgreSQL's.
//!
//! A `numeric` is rounded to an integer half away from zero, a float to the even neighbour; what does not fit is an error
//! (22003). Casts that can do neither stay DataFusion's, which sees through them when it compares columns with constants.

use super::alike::keyed;
use super::decimal::{self, Shape, rescale};
use super::guards::{filter, guarded};
use super::operators::{digits_of, huge, integer_type, type_name};
use super::{arithmetic, error, planned};
use crate::dml::scalar;
use crate::functions;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{DataType, Decimal128Type, Field, Float64Type, Int64Type};
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::{FunctionRewrite, NamePreserver};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use oribi_session::sql::SqlError;
use oribi_types::batch::ColumnBuilder;
use oribi_types::value::has_digits;
use oribi_types::{ColumnType, ErrorKind, Value, ValueRef, text};
use std::collections::HashMap;
use std::sync::Arc;

/// Replaces casts that would not do as PostgreSQL's do: those that are written when a plan is made, those that coercion
/// adds when it has run.
#[derive(Debug)]
pub(crate) struct NumberCasts;

impl FunctionRewrite for NumberCasts {
    fn name(&self) -> &str {
        "number_casts"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _config: &ConfigOptions) -> Result<Transformed<Expr>> {
        replace(expr, schema)
    }
}

impl AnalyzerRule for NumberCasts {
    fn name(&self) -> &str {
        "number_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let replaced = plan.transform_up_with_subqueries(|plan| {
            let schema = merge_schema(&plan.inputs());
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let replaced = expr
                    .transform_up(|expr| replace(expr, &schema)?.transform_data(|expr| Ok(guarded(expr))))?;
                Ok(replaced.update_data(|expr| name.restore(expr)))
            })?
            .transform_data(keyed)?
            .transform_data(filter)
        })?;
        Ok(replaced.data)
    }
}

fn replace(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::Cast(Cast { expr: inner, field }) = &expr else { return Ok(Transformed::no(expr)) };
    let to = field.data_type();
    if field.metadata().contains_key(BARE) {
        return Ok(Transformed::no(expr));
    }
    if let (Some(digits), DataType::Float32 | DataType::Float64) = (huge(inner), to) {
        let column_type = ColumnType::from_arrow(to).map_err(|e| planned(e.into()))?;
        let value = parse(digits, column_type).map_err(planned)?;
        return Ok(Transformed::yes(Expr::Literal(value, None)));
    }
    let Ok((_, from)) = inner.to_field(schema) else { return Ok(Transformed::no(expr)) };
    // Casts of JSON are refused, or the text's own.
    if [&from, field].iter().any(|field| functions::is_json(field)) {
        return Ok(Transformed::no(expr));
    }
    let from = from.data_type().clone();
    if !differs(&from, to).map_err(planned)? {
        return Ok(Transformed::no(expr));
    }
    // What cannot be cast is an error when the statement runs, if it comes to that.
    if let Expr::Literal(value, _) = inner.as_ref()
        && let Ok(value) = constant(value, to)
    {
        return Ok(Transformed::yes(Expr::Literal(value, None)));
    }
    let name = arithmetic::short(format!("CAST({} AS {})", inner.schema_name(), to));
    let function = NumberCast { to: to.clone(), name, signature: Signature::any(1, Volatility::Immutable) };
    let function = Arc::new(ScalarUDF::new_from_impl(function));
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(
        function,
        vec![inner.as_ref().clone()],
    ))))
}

/// Marks `numeric` without a precision: each value would have its own digits.
const BARE: &str = "oribi.numeric";

/// Digits behind the point of a `numeric` that was given no precision, where what is cast does not say how many it has.
const BARE_SCALE: i8 = 20;

/// The type of a cast to `numeric`.
pub(crate) fn bare_numeric() -> Field {
    bare(Field::new("", DataType::Decimal128(decimal::DIGITS_MAX, BARE_SCALE), true))
}

/// The type of a cast that changes no digits of a `numeric`.
pub(super) fn bare(field: Field) -> Field {
    field.with_metadata(HashMap::from([(BARE.to_owned(), String::new())]))
}

/// A cast to `numeric` as one to a type with the digits of what is cast; `None` if it is a cast to another type.
///
/// # Errors
/// 22P02, 22003.
pub(crate) fn bare_cast(cast: &Cast, schema: &DFSchema) -> Result<Option<Expr>> {
    if !cast.field.metadata().contains_key(BARE) {
        return Ok(None);
    }
    let inner = cast.expr.as_ref();
    let literal = match inner {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Some(text.clone()),
        Expr::Literal(ScalarValue::Float64(Some(v)), _) if v.is_finite() => Some(format!("{v:.14e}")),
        _ => None,
    };
    if let Some(text) = literal
        && text.bytes().any(|b| b.is_ascii_digit())
    {
        return Ok(Some(Expr::Literal(parse_numeric(&text).map_err(planned)?, None)));
    }
    let from = inner.get_type(schema)?;
    let to = match (&from, integer_type(&from)) {
        (DataType::Decimal128(..), _) => return Ok(Some(inner.clone())),
        (_, Some(integer)) => DataType::Decimal128(digits_of(&integer), 0),
        _ => cast.field.data_type().clone(),
    };
    Ok(Some(Expr::Cast(Cast::new(Box::new(inner.clone()), to))))
}

/// A constant, cast.
///
/// # Errors
/// 22003, 22P02.
pub(super) fn constant(value: &ScalarValue, to: &DataType) -> Result<ScalarValue> {
    if !differs(&value.data_type(), to).map_err(planned)? {
        return value.cast_to(to);
    }
    ScalarValue::try_from_array(&convert(&value.to_array()?, to)?, 0)
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8)
}

/// Whether DataFusion's cast is another than PostgreSQL's for some value.
fn differs(from: &DataType, to: &DataType) -> Result<bool, SqlError> {
    if from == to {
        return Ok(false);
    }
    let missing = || {
        let message = format!("cannot cast type {} to {}", type_name(from), type_name(to));
        Err(error("42846", message))
    };
    let (from_integer, to_integer) = (integer_type(from), integer_type(to));
    Ok(match (from, to) {
        (DataType::Boolean, DataType::Int32) | (DataType::Int32, DataType::Boolean) => true,
        (DataType::Boolean, other) | (other, DataType::Boolean) if other.is_numeric() => return missing(),
        (text, number) if is_text(text) => {
            to_integer.is_some() || number.is_floating() || matches!(number, DataType::Decimal128(..))
        }
        (number, text) if is_text(text) => number.is_floating(),
        (DataType::Float64, DataType::Float32) => true,
        (from, to) if from.is_floating() => to_integer.is_some() || matches!(to, DataType::Decimal128(..)),
        (DataType::Decimal128(..), to) if to.is_floating() || to_integer.is_some() => true,
        (DataType::Decimal128(..), DataType::Decimal128(..)) => {
            let (Some(from), Some(to)) = (Shape::of(from), Shape::of(to)) else { return Ok(false) };
            to.whole() < from.whole() || to.scale < from.scale
        }
        (_, DataType::Decimal128(..)) => match (from_integer, Shape::of(to)) {
            (Some(integer), Some(to)) => to.whole() < digits_of(&integer),
            _ => false,
        },
        _ => match (from_integer, to_integer) {
            (Some(_), Some(_)) => to.primitive_width() < from.primitive_width(),
            _ => false,
        },
    })
}

/// A cast to one type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct NumberCast {
    to: DataType,
    name: String,
    signature: Signature,
}

impl NumberCast {
    /// One of nothing in particular.
    pub(super) fn to(to: &DataType) -> ScalarUDF {
        let signature = Signature::any(1, Volatility::Immutable);
        ScalarUDF::new_from_impl(NumberCast { to: to.clone(), name: super::CAST.to_owned(), signature })
    }
}

impl ScalarUDFImpl for NumberCast {
    fn name(&self) -> &str {
        super::CAST
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, _args: &[Expr]) -> Result<String> {
        Ok(self.name.clone())
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match args.args.as_slice() {
            [ColumnarValue::Array(array)] => ColumnarValue::Array(convert(array, &self.to)?),
            [ColumnarValue::Scalar(value)] => {
                let array = convert(&value.to_array()?, &self.to)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
            }
            _ => return plan_err!("a cast has one argument"),
        })
    }
}

/// A value to cast.
enum Number<'a> {
    Bool(bool),
    Integer(i64),
    /// A `real` or a `double precision`, and how many digits of it count.
    Float(f64, usize),
    Decimal(i128, i8),
    Text(&'a str),
}

/// Casts numbers as PostgreSQL does.
///
/// # Errors
/// Ours: 22003, 42846.
pub(crate) fn convert(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    // What is cast may have got another type since: that of the values that it is one of.
    if !differs(array.data_type(), to).map_err(ours)? {
        return arrow_cast(array, to);
    }
    let column_type = ColumnType::from_arrow(to).map_err(foreign)?;
    let from = array.data_type().clone();
    let mut builder = ColumnBuilder::new(column_type);
    let mut push = |value: Option<Number<'_>>| -> Result<(), ArrowError> {
        match value {
            None => builder.push(ValueRef::Null),
            Some(value) => builder.push(cast(value, column_type)?.as_ref()),
        }
        Ok(())
    };
    match &from {
        DataType::Boolean => array.as_boolean().iter().try_for_each(|v| push(v.map(Number::Bool)))?,
        DataType::Decimal128(_, scale) => {
            array
                .as_primitive::<Decimal128Type>()
                .iter()
                .try_for_each(|v| push(v.map(|v| Number::Decimal(v, *scale))))?;
        }
        float if float.is_floating() => {
            let digits = if float == &DataType::Float64 { 15 } else { 6 };
            let doubles = arrow_cast(array, &DataType::Float64)?;
            let doubles = doubles.as_primitive::<Float64Type>();
            doubles.iter().try_for_each(|v| push(v.map(|v| Number::Float(v, digits))))?;
        }
        text if is_text(text) => {
            let texts = arrow_cast(array, &DataType::Utf8View)?;
            texts.as_string_view().iter().try_for_each(|v| push(v.map(Number::Text)))?;
        }
        _ => {
            let integers = arrow_cast(array, &DataType::Int64)?;
            integers.as_primitive::<Int64Type>().iter().try_for_each(|v| push(v.map(Number::Integer)))?;
        }
    }
    let array = builder.finish(column_type).map_err(foreign)?;
    if array.data_type() == to { Ok(array) } else { arrow_cast(&array, to) }
}

fn foreign(error: oribi_types::Error) -> ArrowError {
    ArrowError::ExternalError(Box::new(SqlError::from(error)))
}

fn ours(error: SqlError) -> ArrowError {
    ArrowError::ExternalError(Box::new(error))
}

fn cast(value: Number<'_>, to: ColumnType) -> Result<Value, ArrowError> {
    let out_of_range = || super::out_of_range(&plain_name(to));
    Ok(match (value, to) {
        (Number::Text(text), _) => parsed(text, to).map_err(ours)?,
        (Number::Bool(v), _) => Value::Int32(i32::from(v)),
        (Number::Integer(v), ColumnType::Bool) => Value::Bool(v != 0),
        (Number::Integer(v), ColumnType::Decimal { precision, scale }) => {
            let scaled = i128::from(v).checked_mul(decimal::power_of_ten(scale.unsigned_abs()));
            Value::Decimal(within(scaled, precision)?)
        }
        (Number::Integer(v), _) => integer(i128::from(v), to).ok_or_else(out_of_range)?,
        (Number::Float(v, _), ColumnType::Float) => {
            Value::Float(arithmetic::narrow(v, v.is_infinite(), v == 0.0)?)
        }
        (Number::Float(v, digits), ColumnType::Decimal { .. }) => {
            if !v.is_finite() {
                return Err(ours(crate::error::unsupported("a numeric that is NaN or infinite")));
            }
            parsed(&format!("{v:.*e}", digits - 1), to).map_err(ours)?
        }
        (Number::Float(v, digits), ColumnType::String) => {
            let (value, from) = match digits {
                15 => (ValueRef::Double(v), ColumnType::Double),
                _ => (ValueRef::Float(v as f32), ColumnType::Float),
            };
            Value::String(text::to_string(value, from))
        }
        (Number::Float(v, _), _) => {
            // Up to 2^63 a double is exact in 128 bits, and beyond it is out of any range.
            let rounded = v.round_ties_even();
            if rounded.is_nan() || rounded.abs() > 9.3e18 {
                return Err(out_of_range());
            }
            integer(rounded as i128, to).ok_or_else(out_of_range)?
        }
        (Number::Decimal(v, scale), ColumnType::Decimal { precision, scale: wanted }) => {
            Value::Decimal(within(rescale(v, scale, wanted).ok(), precision)?)
        }
        (Number::Decimal(v, scale), ColumnType::Double) => Value::Double(double(v, scale)),
        (Number::Decimal(v, scale), ColumnType::Float) => {
            // By its digits: rounded twice, it could be the neighbour.
            let from = ColumnType::Decimal { precision: decimal::DIGITS_MAX, scale };
            let digits = text::to_string(ValueRef::Decimal(v), from);
            parsed(&digits, to).map_err(ours)?
        }
        (Number::Decimal(v, scale), _) => integer(rescale(v, scale, 0)?, to).ok_or_else(out_of_range)?,
    })
}

fn within(value: Option<i128>, precision: u8) -> Result<i128, ArrowError> {
    value
        .filter(|value| has_digits(*value, precision))
        .ok_or_else(|| super::computed("22003", "numeric field overflow"))
}

fn integer(value: i128, to: ColumnType) -> Option<Value> {
    Some(match to {
        ColumnType::Int8 => Value::Int8(value.try_into().ok()?),
        ColumnType::Int16 => Value::Int16(value.try_into().ok()?),
        ColumnType::Int32 => Value::Int32(value.try_into().ok()?),
        _ => Value::Int64(value.try_into().ok()?),
    })
}

/// The nearest double: one division of two exact doubles, or the digits.
fn double(value: i128, scale: i8) -> f64 {
    const EXACT_MAX: u128 = 1 << 53;
    const POWER_EXACT_MAX: i8 = 22;
    if value.unsigned_abs() <= EXACT_MAX && (0..=POWER_EXACT_MAX).contains(&scale) {
        return value as f64 / decimal::power_of_ten(scale as u8) as f64;
    }
    let from = ColumnType::Decimal { precision: decimal::DIGITS_MAX, scale };
    text::to_string(ValueRef::Decimal(value), from).parse().unwrap_or(f64::NAN)
}

fn plain_name(column_type: ColumnType) -> String {
    match column_type {
        ColumnType::Decimal { .. } => "numeric".to_owned(),
        other => other.to_string(),
    }
}

/// The text as a value of a type of numbers.
///
/// # Errors
/// 22P02, or 22003 for a number out of range.
pub(super) fn parse(text: &str, column_type: ColumnType) -> Result<ScalarValue, SqlError> {
    scalar(parsed(text, column_type)?.as_ref(), column_type)
}

fn parsed(text: &str, column_type: ColumnType) -> Result<Value, SqlError> {
    text::parse(column_type, text).map_err(|e| {
        if e.kind() == ErrorKind::Unsupported {
            return SqlError::from(e);
        }
        let word = text.trim();
        let number = match column_type {
            t if t.is_integer() => word.parse::<i128>().is_ok(),
            _ => word.parse::<f64>().is_ok_and(|_| word.bytes().any(|b| b.is_ascii_digit())),
        };
        SqlError::from(e).with_sqlstate(if number { "22003" } else { "22P02" })
    })
}

/// The text as a decimal with all its digits.
///
/// # Errors
/// As [`parse`].
pub(super) fn parse_numeric(text: &str) -> Result<ScalarValue, SqlError> {
    let word = text.trim();
    let (mantissa, exponent) = word.split_once(['e', 'E']).unwrap_or((word, "0"));
    let fraction = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len() as i64);
    let scale =
        (fraction - exponent.parse::<i64>().unwrap_or(0)).clamp(0, i64::from(decimal::DIGITS_MAX)) as i8;
    let column_type = ColumnType::Decimal { precision: decimal::DIGITS_MAX, scale };
    text::parse_exact(column_type, word)
        .map_err(|e| {
            let number = word.parse::<f64>().is_ok() && word.bytes().any(|b| b.is_ascii_digit());
            SqlError::from(e).with_sqlstate(if number { "22003" } else { "22P02" })
        })
        .map(|value| match value {
            Value::Decimal(value) => {
                let digits = value.unsigned_abs().checked_ilog10().map_or(1, |log| log as u8 + 1);
                ScalarValue::Decimal128(Some(value), digits.max(scale.unsigned_abs()).max(1), scale)
            }
            _ => ScalarValue::Null,
        })
}
