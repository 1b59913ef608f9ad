//! Functions of numbers, with PostgreSQL's types and domains.
//!
//! Of two kinds of argument a function takes `double precision` where PostgreSQL would: an integer becomes one. Those that
//! PostgreSQL computes in `numeric` to a number of digits that depends on the value (roots, logarithms, powers) have no
//! type here, and are refused for a `numeric`.

use super::arithmetic::{self, Sign};
use super::decimal::{self, Shape, power_of_ten};
use super::literals::HUGE;
use super::operators::{digits_of, integer_type, type_name};
use super::{
    computed, division_by_zero, error, numeric_overflow, out_of_range, overflow, planned, underflow,
    unsupported,
};
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, Float64Array, PrimitiveArray,
};
use arrow::compute::try_binary;
use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
};
use arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

pub(super) fn functions() -> Vec<ScalarUDF> {
    let mut functions = vec![Sign::function(arithmetic::MINUS), Sign::function(arithmetic::NOT)];
    let kinds = FLOATS
        .iter()
        .map(|(name, _)| (*name, Kind::Float))
        .chain(REALS.iter().map(|(name, _)| (*name, Kind::Real)))
        .chain([
            ("abs", Kind::Abs),
            ("sign", Kind::Sign),
            ("ceil", Kind::Whole(Rounding::Up)),
            ("ceiling", Kind::Whole(Rounding::Up)),
            ("floor", Kind::Whole(Rounding::Down)),
            ("round", Kind::Digits(Rounding::Nearest)),
            ("trunc", Kind::Digits(Rounding::ToZero)),
            ("gcd", Kind::Gcd),
            ("lcm", Kind::Lcm),
            ("div", Kind::Div),
            ("factorial", Kind::Factorial),
            ("atan2", Kind::Atan2),
            (HUGE, Kind::Huge),
        ]);
    functions.extend(kinds.map(|(name, kind)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::new_from_impl(NumberFunction { name, kind, signature })
    }));
    functions
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Rounding {
    Up,
    Down,
    Nearest,
    ToZero,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Of a float; PostgreSQL has another of numeric.
    Float,
    /// Of a float alone.
    Real,
    Abs,
    Sign,
    /// To a whole number.
    Whole(Rounding),
    /// To a number of digits, which may be left out.
    Digits(Rounding),
    Gcd,
    Lcm,
    Div,
    Factorial,
    Atan2,
    Huge,
    /// A float as the one of all that are equal to it.
    Same,
}

/// Whether a function is an error for some numbers that are not large.
pub(super) fn has_domain(name: &str) -> bool {
    matches!(name, "acos" | "asin" | "div" | "factorial" | "ln" | "log" | "log10" | "sqrt")
}

/// The function by which floats are compared.
pub(super) fn same() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(NumberFunction { name: SAME, kind: Kind::Same, signature }))
}

/// Whether an expression is a float by which floats are compared already.
pub(super) fn is_same(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.name() == SAME)
}

/// Floats with one zero and one `NaN`; other values as they are.
pub(super) fn same_floats(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float32 => {
            let same = |x: f32| if x.is_nan() { f32::NAN } else { x + 0.0 };
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(same))
        }
        DataType::Float64 => {
            let same = |x: f64| if x.is_nan() { f64::NAN } else { x + 0.0 };
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(same))
        }
        _ => Arc::clone(array),
    }
}

const SAME: &str = "?same";

type OfFloat = fn(f64) -> Result<f64, ArrowError>;

const FLOATS: &[(&str, OfFloat)] = &[
    ("sqrt", |x| {
        if x < 0.0 {
            Err(computed("2201F", "cannot take square root of a negative number"))
        } else {
            Ok(x.sqrt())
        }
    }),
    ("exp", |x| {
        let result = x.exp();
        match result {
            r if r.is_infinite() && x.is_finite() => Err(overflow()),
            r if r == 0.0 && x.is_finite() => Err(underflow()),
            r => Ok(r),
        }
    }),
    ("ln", |x| logarithm(x, f64::ln)),
    ("log", |x| logarithm(x, f64::log10)),
    ("log10", |x| logarithm(x, f64::log10)),
];

const REALS: &[(&str, OfFloat)] = &[
    ("cbrt", |x| Ok(x.cbrt())),
    ("sin", |x| finite(x, f64::sin)),
    ("cos", |x| finite(x, f64::cos)),
    ("tan", |x| finite(x, f64::tan)),
    ("cot", |x| finite(x, |x| 1.0 / x.tan())),
    ("asin", |x| within(x, -1.0, 1.0, f64::asin)),
    ("acos", |x| within(x, -1.0, 1.0, f64::acos)),
    ("atan", |x| Ok(x.atan())),
    ("sinh", |x| Ok(x.sinh())),
    ("cosh", |x| Ok(x.cosh())),
    ("tanh", |x| Ok(x.tanh())),
    ("degrees", |x| bounded(x, x / (std::f64::consts::PI / 180.0))),
    ("radians", |x| bounded(x, x * (std::f64::consts::PI / 180.0))),
];

fn logarithm(x: f64, log: fn(f64) -> f64) -> Result<f64, ArrowError> {
    if x == 0.0 {
        return Err(computed("2201E", "cannot take logarithm of zero"));
    }
    if x < 0.0 {
        return Err(computed("2201E", "cannot take logarithm of a negative number"));
    }
    Ok(log(x))
}

fn finite(x: f64, f: fn(f64) -> f64) -> Result<f64, ArrowError> {
    if x.is_infinite() { Err(computed("22003", "input is out of range")) } else { Ok(f(x)) }
}

fn within(x: f64, low: f64, high: f64, f: fn(f64) -> f64) -> Result<f64, ArrowError> {
    if x < low || x > high { Err(computed("22003", "input is out of range")) } else { Ok(f(x)) }
}

fn bounded(x: f64, result: f64) -> Result<f64, ArrowError> {
    if result.is_infinite() && x.is_finite() {
        return Err(overflow());
    }
    if result == 0.0 && x != 0.0 { Err(underflow()) } else { Ok(result) }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumberFunction {
    name: &'static str,
    kind: Kind,
    signature: Signature,
}

impl NumberFunction {
    fn missing(&self, arguments: &[DataType]) -> datafusion::common::DataFusionError {
        let types: Vec<String> = arguments.iter().map(type_name).collect();
        planned(error("42883", format!("function {}({}) does not exist", self.name, types.join(", "))))
    }

    fn of_float(&self) -> Option<OfFloat> {
        FLOATS.iter().chain(REALS).find(|(name, _)| *name == self.name).map(|(_, f)| *f)
    }

    /// The type of the result; `digits` are those that it is rounded to, where they are known.
    fn result(&self, arguments: &[DataType], digits: Option<i64>) -> Result<DataType> {
        let first = arguments.first().cloned().unwrap_or(DataType::Float64);
        Ok(match (self.kind, Shape::of(&first)) {
            (Kind::Sign, Some(_)) => DataType::Decimal128(1, 0),
            (Kind::Whole(_), Some(shape)) => Shape::integer(shape.whole() + 1).data_type(),
            (Kind::Digits(_), Some(shape)) => {
                let scale = digits.unwrap_or(0).clamp(0, i64::from(decimal::DIGITS_MAX)) as u8;
                Shape::with_whole(shape.whole() + 1, scale).data_type()
            }
            (Kind::Div, _) | (Kind::Factorial, _) => DataType::Decimal128(decimal::DIGITS_MAX, 0),
            _ => first,
        })
    }
}

/// An argument that is `double precision` unless it is a decimal.
fn float_or_decimal(argument: &DataType) -> Option<DataType> {
    match argument {
        DataType::Decimal128(..) => Some(argument.clone()),
        DataType::Null => Some(DataType::Float64),
        other if other.is_numeric() => Some(DataType::Float64),
        _ => None,
    }
}

fn as_decimal(argument: &DataType) -> Option<DataType> {
    match (argument, integer_type(argument)) {
        (DataType::Decimal128(..), _) => Some(argument.clone()),
        (DataType::Null, _) => Some(DataType::Decimal128(1, 0)),
        (_, Some(integer)) => Some(DataType::Decimal128(digits_of(&integer), 0)),
        _ => None,
    }
}

impl ScalarUDFImpl for NumberFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let missing = || self.missing(arguments);
        let refused = || unsupported(&format!("{} of numeric (cast to double precision)", self.name));
        Ok(match (self.kind, arguments) {
            (Kind::Huge, [text]) => vec![text.clone()],
            (Kind::Float, [argument]) => match float_or_decimal(argument).ok_or_else(missing)? {
                DataType::Decimal128(..) => return Err(refused()),
                float => vec![float],
            },
            (Kind::Float, [_, _]) if self.name == "log" => return Err(refused()),
            (Kind::Real, [argument]) => {
                float_or_decimal(argument).ok_or_else(missing)?;
                vec![DataType::Float64]
            }
            (Kind::Atan2, [left, right]) => {
                float_or_decimal(left).and(float_or_decimal(right)).ok_or_else(missing)?;
                vec![DataType::Float64; 2]
            }
            (Kind::Same, [DataType::Float32]) => vec![DataType::Float32],
            (Kind::Same, [_]) => vec![DataType::Float64],
            (Kind::Abs, [argument]) => match integer_type(argument) {
                Some(integer) => vec![integer],
                None if argument == &DataType::Float32 => vec![DataType::Float32],
                None => vec![float_or_decimal(argument).ok_or_else(missing)?],
            },
            (Kind::Sign | Kind::Whole(_) | Kind::Digits(_), [argument]) => {
                vec![float_or_decimal(argument).ok_or_else(missing)?]
            }
            (Kind::Digits(_), [argument, digits]) => {
                if integer_type(digits).is_none() && !digits.is_null() {
                    return Err(missing());
                }
                // A literal is of this type already: a cast would hide how many digits there are.
                vec![as_decimal(argument).ok_or_else(missing)?, DataType::Int64]
            }
            (Kind::Gcd | Kind::Lcm, [left, right]) => {
                let (Some(left), Some(right)) = (integer_type(left), integer_type(right)) else {
                    as_decimal(left).and(as_decimal(right)).ok_or_else(missing)?;
                    return Err(unsupported(&format!("{} of numeric", self.name)));
                };
                let wider = if left == DataType::Int64 || right == DataType::Int64 {
                    DataType::Int64
                } else {
                    DataType::Int32
                };
                vec![wider; 2]
            }
            (Kind::Div, [left, right]) => {
                vec![as_decimal(left).ok_or_else(missing)?, as_decimal(right).ok_or_else(missing)?]
            }
            (Kind::Factorial, [argument]) => {
                integer_type(argument).ok_or_else(missing)?;
                vec![DataType::Int64]
            }
            _ => return Err(missing()),
        })
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        if self.kind == Kind::Huge {
            return Ok(DataType::Float64);
        }
        self.result(&self.coerce_types(arguments)?, None)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let arguments: Vec<DataType> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
        if self.kind == Kind::Huge {
            return Ok(Arc::new(Field::new(self.name, DataType::Float64, true)));
        }
        let digits = match (self.kind, args.scalar_arguments) {
            (Kind::Digits(_), [_, digits]) => match digits {
                Some(ScalarValue::Int32(Some(digits))) => Some(i64::from(*digits)),
                Some(ScalarValue::Int64(Some(digits))) => Some(*digits),
                Some(ScalarValue::Int32(None) | ScalarValue::Int64(None) | ScalarValue::Null) => None,
                _ => {
                    self.coerce_types(&arguments)?;
                    let what = format!("{} to a number of digits that is no constant", self.name);
                    return Err(unsupported(&what));
                }
            },
            _ => None,
        };
        let result = self.result(&self.coerce_types(&arguments)?, digits)?;
        Ok(Arc::new(Field::new(self.name, result, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let result = self.compute(&arrays, args.return_field.data_type())?;
        Ok(if constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)
        } else {
            ColumnarValue::Array(result)
        })
    }
}

impl NumberFunction {
    fn compute(&self, arguments: &[ArrayRef], out: &DataType) -> Result<ArrayRef> {
        let Some(first) = arguments.first() else { return plan_err!("{} of nothing", self.name) };
        if let Some(f) = self.of_float() {
            let array: Float64Array = first.as_primitive::<Float64Type>().try_unary(f)?;
            return Ok(Arc::new(array));
        }
        match (self.kind, first.data_type(), arguments.get(1)) {
            (Kind::Abs, ..) => absolute(first, out),
            (Kind::Sign, ..) => signs(first, out),
            (Kind::Digits(rounding), DataType::Decimal128(_, scale), Some(digits)) => {
                Ok(to_digits(first, digits, *scale, out, rounding)?)
            }
            (Kind::Whole(rounding) | Kind::Digits(rounding), ..) => rounded(first, out, rounding),
            (Kind::Gcd | Kind::Lcm, DataType::Int64, Some(second)) => {
                self.divisors::<Int64Type>(first, second, "bigint")
            }
            (Kind::Gcd | Kind::Lcm, _, Some(second)) => self.divisors::<Int32Type>(first, second, "integer"),
            (Kind::Div, _, Some(second)) => whole_quotients(first, second, out),
            (Kind::Factorial, ..) => decimals(first.as_primitive::<Int64Type>(), out, factorial),
            (Kind::Atan2, _, Some(second)) => {
                let (y, x) = (first.as_primitive::<Float64Type>(), second.as_primitive::<Float64Type>());
                let array: Float64Array = arrow::compute::binary(y, x, f64::atan2)?;
                Ok(Arc::new(array))
            }
            (Kind::Same, ..) => Ok(same_floats(first)),
            (Kind::Huge, ..) => Err(numeric_overflow().into()),
            (_, other, _) => plan_err!("no {} of {other}", self.name),
        }
    }

    fn divisors<T: ArrowPrimitiveType>(
        &self,
        left: &ArrayRef,
        right: &ArrayRef,
        type_name: &'static str,
    ) -> Result<ArrayRef>
    where
        i128: From<T::Native>,
        T::Native: TryFrom<i128>,
    {
        let array: PrimitiveArray<T> =
            try_binary(left.as_primitive::<T>(), right.as_primitive::<T>(), |a, b| {
                let divisor = self.divisor(i128::from(a), i128::from(b));
                T::Native::try_from(divisor).map_err(|_| out_of_range(type_name))
            })?;
        Ok(Arc::new(array))
    }

    /// The greatest common divisor, or the least common multiple.
    fn divisor(&self, a: i128, b: i128) -> i128 {
        let (mut divisor, mut rest) = (a.abs(), b.abs());
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        match self.kind {
            Kind::Lcm if divisor == 0 => 0,
            Kind::Lcm => (a / divisor * b).abs(),
            _ => divisor,
        }
    }
}

/// `f` of each value, as decimals of type `out`.
fn decimals<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    out: &DataType,
    f: impl Fn(T::Native) -> Result<i128, ArrowError>,
) -> Result<ArrayRef> {
    let array: Decimal128Array = array.try_unary(f)?;
    Ok(Arc::new(array.with_data_type(out.clone())))
}

fn absolute(array: &ArrayRef, out: &DataType) -> Result<ArrayRef> {
    macro_rules! integers {
        ($arrow:ty, $name:literal) => {{
            let absolute = |v: <$arrow as ArrowPrimitiveType>::Native| {
                v.checked_abs().ok_or_else(|| out_of_range($name))
            };
            let array: PrimitiveArray<$arrow> = array.as_primitive::<$arrow>().try_unary(absolute)?;
            Ok(Arc::new(array))
        }};
    }
    match array.data_type() {
        DataType::Int16 => integers!(Int16Type, "smallint"),
        DataType::Int32 => integers!(Int32Type, "integer"),
        DataType::Int64 => integers!(Int64Type, "bigint"),
        DataType::Float32 => {
            Ok(Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::abs)))
        }
        DataType::Float64 => {
            Ok(Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::abs)))
        }
        _ => decimals(array.as_primitive::<Decimal128Type>(), out, |v| Ok(v.abs())),
    }
}

fn signs(array: &ArrayRef, out: &DataType) -> Result<ArrayRef> {
    if Shape::of(array.data_type()).is_some() {
        return decimals(array.as_primitive::<Decimal128Type>(), out, |v| Ok(v.signum()));
    }
    // That of `NaN` is 0, as PostgreSQL has it.
    let sign = |x: f64| f64::from(i8::from(x > 0.0) - i8::from(x < 0.0));
    Ok(Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(sign)))
}

/// Whole numbers.
fn rounded(array: &ArrayRef, out: &DataType, rounding: Rounding) -> Result<ArrayRef> {
    if let DataType::Decimal128(_, scale) = array.data_type() {
        let unit = power_of_ten(scale.unsigned_abs());
        return decimals(array.as_primitive::<Decimal128Type>(), out, |v| Ok(to_unit(v, unit, rounding)));
    }
    let rounded = |x: f64| match rounding {
        Rounding::Up => x.ceil(),
        Rounding::Down => x.floor(),
        Rounding::Nearest => x.round_ties_even(),
        Rounding::ToZero => x.trunc(),
    };
    Ok(Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(rounded)))
}

/// Quotients of decimals without what is behind the point.
fn whole_quotients(left: &ArrayRef, right: &ArrayRef, out: &DataType) -> Result<ArrayRef> {
    let (DataType::Decimal128(_, left_scale), DataType::Decimal128(_, right_scale)) =
        (left.data_type(), right.data_type())
    else {
        return plan_err!("div of other than numeric");
    };
    let scale = *left_scale.max(right_scale);
    let raised =
        |v: i128, from: i8| v.checked_mul(power_of_ten((scale - from) as u8)).ok_or_else(numeric_overflow);
    let array: Decimal128Array =
        try_binary(left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>(), |a, b| {
            if b == 0 {
                return Err(division_by_zero());
            }
            Ok(raised(a, *left_scale)? / raised(b, *right_scale)?)
        })?;
    Ok(Arc::new(array.with_data_type(out.clone())))
}

fn factorial(n: i64) -> Result<i128, ArrowError> {
    if n < 0 {
        return Err(computed("22003", "factorial of a negative number is undefined"));
    }
    decimal::checked((1..=i128::from(n)).try_fold(1_i128, |product, factor| product.checked_mul(factor)))
}

/// How many units `value` is.
fn to_unit(value: i128, unit: i128, rounding: Rounding) -> i128 {
    let (whole, rest) = (value / unit, value % unit);
    match rounding {
        Rounding::ToZero => whole,
        Rounding::Up => whole + i128::from(rest > 0),
        Rounding::Down => whole - i128::from(rest < 0),
        Rounding::Nearest if rest.unsigned_abs() >= unit.unsigned_abs().div_ceil(2) && rest != 0 => {
            whole + rest.signum()
        }
        Rounding::Nearest => whole,
    }
}

/// Decimals with so many digits behind the point; of fewer than none, so many zeros before it.
fn to_digits(
    values: &ArrayRef,
    digits: &ArrayRef,
    scale: i8,
    out: &DataType,
    rounding: Rounding,
) -> Result<ArrayRef, ArrowError> {
    let DataType::Decimal128(_, out_scale) = *out else { return Err(numeric_overflow()) };
    let array: Decimal128Array = try_binary(
        values.as_primitive::<Decimal128Type>(),
        digits.as_primitive::<Int64Type>(),
        |value, digits| {
            let dropped = i64::from(scale).saturating_sub(digits);
            let kept = match dropped {
                ..=0 => return decimal::rescale(value, scale, out_scale),
                1..=38 => to_unit(value, power_of_ten(dropped as u8), rounding),
                _ => return Ok(0),
            };
            let raise = i64::from(out_scale).saturating_sub(digits);
            if !(0..=38).contains(&raise) {
                return if kept == 0 { Ok(0) } else { Err(numeric_overflow()) };
            }
            decimal::checked(kept.checked_mul(power_of_ten(raise as u8)))
        },
    )?;
    Ok(Arc::new(array.with_data_type(out.clone())))
}
