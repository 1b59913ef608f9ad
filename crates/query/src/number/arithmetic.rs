//! Operators on numbers: functions that are planned in their place, over operands that have been given one type.

use super::decimal::{self, Shape, power_of_ten};
use super::{computed, division_by_zero, numeric_overflow, out_of_range, overflow, underflow, unsupported};
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float32Array, Float64Array, PrimitiveArray, new_null_array,
};
use arrow::compute::{binary, try_binary};
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type};
use arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The function that `-x` is.
pub(super) const MINUS: &str = "?minus";
/// The function that `~x` is.
pub(super) const NOT: &str = "?not";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Plus,
    Minus,
    Times,
    Divide,
    Modulo,
    Power,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

impl Op {
    pub(super) const ALL: [Op; 11] = [
        Op::Plus,
        Op::Minus,
        Op::Times,
        Op::Divide,
        Op::Modulo,
        Op::Power,
        Op::And,
        Op::Or,
        Op::Xor,
        Op::ShiftLeft,
        Op::ShiftRight,
    ];

    pub(super) fn symbol(self) -> &'static str {
        match self {
            Op::Plus => "+",
            Op::Minus => "-",
            Op::Times => "*",
            Op::Divide => "/",
            Op::Modulo => "%",
            Op::Power => "^",
            Op::And => "&",
            Op::Or => "|",
            Op::Xor => "#",
            Op::ShiftLeft => "<<",
            Op::ShiftRight => ">>",
        }
    }

    /// Whether there is such an operator on integers only.
    pub(super) fn is_bitwise(self) -> bool {
        matches!(self, Op::And | Op::Or | Op::Xor | Op::ShiftLeft | Op::ShiftRight)
    }

    /// The shape of the result on decimals, which may be more than a type can have.
    fn shape(self, left: Shape, right: Shape) -> Shape {
        match self {
            Op::Plus | Op::Minus => left.sum(right),
            Op::Times => left.product(right),
            Op::Divide => left.quotient(right),
            _ => left.remainder(right),
        }
    }
}

/// `left op right`: of two integers or two floats of one type, or of two decimals; of a shift, the right is an `integer`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Arithmetic {
    op: Op,
    name: String,
    signature: Signature,
}

impl Arithmetic {
    /// `left op right`.
    pub(super) fn call(op: Op, left: Expr, right: Expr) -> Expr {
        let name = short(format!("({} {} {})", left.schema_name(), op.symbol(), right.schema_name()));
        let signature = Signature::any(2, Volatility::Immutable);
        let function = Arc::new(ScalarUDF::new_from_impl(Arithmetic { op, name, signature }));
        Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![left, right]))
    }

    /// The operator, not of any operands.
    pub(super) fn by_symbol(symbol: &str) -> Option<ScalarUDF> {
        let op = Op::ALL.into_iter().find(|op| op.symbol() == symbol)?;
        let signature = Signature::any(2, Volatility::Immutable);
        Some(ScalarUDF::new_from_impl(Arithmetic { op, name: symbol.to_owned(), signature }))
    }
}

/// A name of an expression that is as unique, and not as long as the expression is deep: DataFusion asks every level of
/// an expression for its name whenever it asks one for its type.
pub(super) fn short(name: String) -> String {
    const LENGTH_MAX: usize = 120;
    if name.len() <= LENGTH_MAX {
        return name;
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let kept: String = name.chars().take(LENGTH_MAX / 2).collect();
    format!("{kept}… #{:016x}", hasher.finish())
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &str {
        self.op.symbol()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// That of the operands which it was made of.
    fn schema_name(&self, _args: &[Expr]) -> Result<String> {
        Ok(self.name.clone())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let [left, right] = arguments else { return plan_err!("an operator has two operands") };
        match (Shape::of(left), Shape::of(right)) {
            (Some(left), Some(right)) => {
                let shape = self.op.shape(left, right);
                if shape.scale > decimal::DIGITS_MAX {
                    return Err(unsupported("a numeric of more than 38 digits behind its point"));
                }
                Ok(shape.data_type())
            }
            _ => Ok(left.clone()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let out = args.return_field.data_type();
        let [left, right] = args.args.as_slice() else { return plan_err!("an operator has two operands") };
        compute(self.op, Operands { left, right, out })
    }
}

/// `left op right` of two constants; `None` if there is no such value, which an error says when the statement runs, if
/// it comes to that.
pub(super) fn constant(op: Op, left: &ScalarValue, right: &ScalarValue) -> Option<ScalarValue> {
    let function =
        Arithmetic { op, name: String::new(), signature: Signature::any(2, Volatility::Immutable) };
    let out = function.return_type(&[left.data_type(), right.data_type()]).ok()?;
    let (left, right) = (ColumnarValue::Scalar(left.clone()), ColumnarValue::Scalar(right.clone()));
    match compute(op, Operands { left: &left, right: &right, out: &out }) {
        Ok(ColumnarValue::Scalar(value)) => Some(value),
        _ => None,
    }
}

fn compute(op: Op, operands: Operands<'_>) -> Result<ColumnarValue> {
    let (left, right) = (operands.left.data_type(), operands.right.data_type());
    let fit = match op {
        Op::ShiftLeft | Op::ShiftRight => right == DataType::Int32,
        _ => left == right || right.is_null() || Shape::of(&left).is_some() && Shape::of(&right).is_some(),
    };
    if !fit || Shape::of(&left).is_some() != Shape::of(operands.out).is_some() {
        return internal_err!("{left} {} {right} was planned for other types", op.symbol());
    }
    let computed = match left {
        DataType::Int16 => integers::<Int16Type>(op, operands, "smallint"),
        DataType::Int32 => integers::<Int32Type>(op, operands, "integer"),
        DataType::Int64 => integers::<Int64Type>(op, operands, "bigint"),
        DataType::Float32 => operands.each::<Float32Type, Float32Type, _>(|a, b| {
            let exact = float(op, f64::from(a), f64::from(b))?;
            narrow(exact, exact.is_infinite(), exact == 0.0)
        }),
        DataType::Float64 => operands.each::<Float64Type, Float64Type, _>(|a, b| float(op, a, b)),
        DataType::Decimal128(..) => decimals(op, operands),
        other => return plan_err!("no operator {} of {other}", op.symbol()),
    };
    Ok(computed?)
}

/// Doubles as `real`s.
///
/// # Errors
/// 22003 for one beyond their range.
pub(crate) fn narrowed(doubles: &Float64Array) -> Result<Float32Array, ArrowError> {
    doubles.try_unary(|v| narrow(v, v.is_infinite(), v == 0.0))
}

/// A double as a `real`; it may be infinite or zero only if it was before.
pub(super) fn narrow(value: f64, infinite: bool, zero: bool) -> Result<f32, ArrowError> {
    let narrowed = value as f32;
    if narrowed.is_infinite() && !infinite {
        return Err(overflow());
    }
    if narrowed == 0.0 && !zero {
        return Err(underflow());
    }
    Ok(narrowed)
}

/// Two operands, and the type of what comes of them.
#[derive(Clone, Copy)]
struct Operands<'a> {
    left: &'a ColumnarValue,
    right: &'a ColumnarValue,
    out: &'a DataType,
}

impl Operands<'_> {
    /// `f` of each pair, of which neither is null.
    fn each<T: ArrowPrimitiveType, R: ArrowPrimitiveType, F>(&self, f: F) -> Result<ColumnarValue, ArrowError>
    where
        F: Fn(T::Native, R::Native) -> Result<T::Native, ArrowError>,
    {
        let typed =
            |array: PrimitiveArray<T>| -> ArrayRef { Arc::new(array.with_data_type(self.out.clone())) };
        Ok(match self.sides()? {
            Sides::Null(rows) => self.null(rows),
            Sides::Constants(left, right) => {
                let array = try_binary(left.as_primitive::<T>(), right.as_primitive::<R>(), f)?;
                ColumnarValue::Scalar(scalar(&typed(array))?)
            }
            Sides::Arrays(left, right) => ColumnarValue::Array(typed(try_binary(
                left.as_primitive::<T>(),
                right.as_primitive::<R>(),
                f,
            )?)),
            Sides::Left(left, right) => {
                let right = right.as_primitive::<R>().value(0);
                let array = left.as_primitive::<T>().try_unary::<_, T, ArrowError>(|left| f(left, right))?;
                ColumnarValue::Array(typed(array))
            }
            Sides::Right(left, right) => {
                let left = left.as_primitive::<T>().value(0);
                let array =
                    right.as_primitive::<R>().try_unary::<_, T, ArrowError>(|right| f(left, right))?;
                ColumnarValue::Array(typed(array))
            }
        })
    }

    /// As [`each`](Self::each), of what cannot fail: in one loop without branches.
    fn all<T: ArrowPrimitiveType>(
        &self,
        f: impl Fn(T::Native, T::Native) -> T::Native,
    ) -> Result<ColumnarValue, ArrowError> {
        let typed =
            |array: PrimitiveArray<T>| -> ArrayRef { Arc::new(array.with_data_type(self.out.clone())) };
        Ok(match self.sides()? {
            Sides::Null(rows) => self.null(rows),
            Sides::Constants(left, right) => {
                let array = binary(left.as_primitive::<T>(), right.as_primitive::<T>(), f)?;
                ColumnarValue::Scalar(scalar(&typed(array))?)
            }
            Sides::Arrays(left, right) => {
                ColumnarValue::Array(typed(binary(left.as_primitive::<T>(), right.as_primitive::<T>(), f)?))
            }
            Sides::Left(left, right) => {
                let right = right.as_primitive::<T>().value(0);
                ColumnarValue::Array(typed(left.as_primitive::<T>().unary(|left| f(left, right))))
            }
            Sides::Right(left, right) => {
                let left = left.as_primitive::<T>().value(0);
                ColumnarValue::Array(typed(right.as_primitive::<T>().unary(|right| f(left, right))))
            }
        })
    }

    fn null(&self, rows: Option<usize>) -> ColumnarValue {
        // A constant of any number of rows is as good.
        let array = new_null_array(self.out, rows.unwrap_or(1));
        match rows {
            Some(_) => ColumnarValue::Array(array),
            None => ColumnarValue::Scalar(ScalarValue::try_from(self.out).unwrap_or(ScalarValue::Null)),
        }
    }

    fn sides(&self) -> Result<Sides, ArrowError> {
        use ColumnarValue::{Array, Scalar};
        let one =
            |scalar: &ScalarValue| scalar.to_array().map_err(|e| ArrowError::ExternalError(Box::new(e)));
        Ok(match (self.left, self.right) {
            (Scalar(left), Scalar(right)) if left.is_null() || right.is_null() => Sides::Null(None),
            (Array(array), Scalar(null)) | (Scalar(null), Array(array)) if null.is_null() => {
                Sides::Null(Some(array.len()))
            }
            (Scalar(left), Scalar(right)) => Sides::Constants(one(left)?, one(right)?),
            (Array(left), Array(right)) => Sides::Arrays(Arc::clone(left), Arc::clone(right)),
            (Array(left), Scalar(right)) => Sides::Left(Arc::clone(left), one(right)?),
            (Scalar(left), Array(right)) => Sides::Right(one(left)?, Arc::clone(right)),
        })
    }
}

/// Which of the operands are arrays.
enum Sides {
    /// One is null, and so is the result; of so many rows, or of one constant.
    Null(Option<usize>),
    Constants(ArrayRef, ArrayRef),
    Arrays(ArrayRef, ArrayRef),
    /// The left, beside a constant.
    Left(ArrayRef, ArrayRef),
    Right(ArrayRef, ArrayRef),
}

fn scalar(array: &ArrayRef) -> Result<ScalarValue, ArrowError> {
    ScalarValue::try_from_array(array, 0).map_err(|e| ArrowError::ExternalError(Box::new(e)))
}

/// Integers whose operators say when they overflow.
pub(super) trait Integer: Copy + Eq {
    const ZERO: Self;
    fn plus(self, other: Self) -> Option<Self>;
    fn minus(self, other: Self) -> Option<Self>;
    fn times(self, other: Self) -> Option<Self>;
    fn over(self, other: Self) -> Option<Self>;
    fn modulo(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn shift_left(self, by: i32) -> Self;
    fn shift_right(self, by: i32) -> Self;
}

macro_rules! integer {
    ($($native:ty),*) => {
        $(impl Integer for $native {
            const ZERO: Self = 0;
            fn plus(self, other: Self) -> Option<Self> {
                self.checked_add(other)
            }
            fn minus(self, other: Self) -> Option<Self> {
                self.checked_sub(other)
            }
            fn times(self, other: Self) -> Option<Self> {
                self.checked_mul(other)
            }
            fn over(self, other: Self) -> Option<Self> {
                self.checked_div(other)
            }
            fn modulo(self, other: Self) -> Self {
                self.wrapping_rem(other)
            }
            fn and(self, other: Self) -> Self {
                self & other
            }
            fn or(self, other: Self) -> Self {
                self | other
            }
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            fn shift_left(self, by: i32) -> Self {
                // PostgreSQL computes smallints as integers, whose processors look at five bits of the number, and of
                // bigints at six.
                if size_of::<Self>() < 4 { ((self as i32).wrapping_shl(by as u32)) as Self } else { self.wrapping_shl(by as u32) }
            }
            fn shift_right(self, by: i32) -> Self {
                if size_of::<Self>() < 4 { ((self as i32).wrapping_shr(by as u32)) as Self } else { self.wrapping_shr(by as u32) }
            }
        })*
    };
}

integer!(i16, i32, i64);

fn integers<T: ArrowPrimitiveType>(
    op: Op,
    operands: Operands<'_>,
    type_name: &'static str,
) -> Result<ColumnarValue, ArrowError>
where
    T::Native: Integer,
{
    let in_range = |value: Option<T::Native>| value.ok_or_else(|| out_of_range(type_name));
    match op {
        Op::Plus => operands.each::<T, T, _>(|a, b| in_range(a.plus(b))),
        Op::Minus => operands.each::<T, T, _>(|a, b| in_range(a.minus(b))),
        Op::Times => operands.each::<T, T, _>(|a, b| in_range(a.times(b))),
        Op::Divide => operands.each::<T, T, _>(|a, b| {
            if b == T::Native::ZERO { Err(division_by_zero()) } else { in_range(a.over(b)) }
        }),
        Op::Modulo => operands.each::<T, T, _>(|a, b| {
            if b == T::Native::ZERO { Err(division_by_zero()) } else { Ok(a.modulo(b)) }
        }),
        Op::And => operands.all::<T>(Integer::and),
        Op::Or => operands.all::<T>(Integer::or),
        Op::Xor => operands.all::<T>(Integer::xor),
        Op::ShiftLeft => operands.each::<T, Int32Type, _>(|a, by| Ok(a.shift_left(by))),
        Op::ShiftRight => operands.each::<T, Int32Type, _>(|a, by| Ok(a.shift_right(by))),
        Op::Power => Err(computed("0A000", "a power of integers is one of double precision")),
    }
}

/// Neither infinite nor zero unless an operand is; what is no number is the one `NaN` that comes behind all others.
fn float(op: Op, a: f64, b: f64) -> Result<f64, ArrowError> {
    if op == Op::Power {
        return power(a, b);
    }
    if op == Op::Divide && b == 0.0 && !a.is_nan() {
        return Err(division_by_zero());
    }
    let result = match op {
        Op::Plus => a + b,
        Op::Minus => a - b,
        Op::Times => a * b,
        _ => a / b,
    };
    if result.is_infinite() && !a.is_infinite() && !b.is_infinite() {
        return Err(overflow());
    }
    let may_be_zero = match op {
        Op::Plus | Op::Minus => true,
        Op::Times => a == 0.0 || b == 0.0,
        _ => a == 0.0 || b.is_infinite(),
    };
    if result == 0.0 && !may_be_zero {
        return Err(underflow());
    }
    Ok(if result.is_nan() { f64::NAN } else { result })
}

/// # Errors
/// 2201F for what is no real number, 22003 beyond the type.
pub(super) fn power(a: f64, b: f64) -> Result<f64, ArrowError> {
    if a.is_nan() {
        return Ok(if b == 0.0 { 1.0 } else { f64::NAN });
    }
    if b.is_nan() {
        return Ok(if a == 1.0 { 1.0 } else { f64::NAN });
    }
    if a == 0.0 && b < 0.0 {
        return Err(computed("2201F", "zero raised to a negative power is undefined"));
    }
    if a < 0.0 && b.floor() != b {
        let message = "a negative number raised to a non-integer power yields a complex result";
        return Err(computed("2201F", message));
    }
    let result = a.powf(b);
    if result.is_infinite() && !a.is_infinite() && !b.is_infinite() {
        return Err(overflow());
    }
    if result == 0.0 && a != 0.0 && !a.is_infinite() && !b.is_infinite() {
        return Err(underflow());
    }
    Ok(result)
}

fn decimals(op: Op, operands: Operands<'_>) -> Result<ColumnarValue, ArrowError> {
    let (Some(left), Some(right)) =
        (Shape::of(&operands.left.data_type()), Shape::of(&operands.right.data_type()))
    else {
        return Err(numeric_overflow());
    };
    let shape = op.shape(left, right);
    let (up_left, up_right) = match op {
        Op::Plus | Op::Minus | Op::Modulo => {
            (power_of_ten(shape.scale - left.scale), power_of_ten(shape.scale - right.scale))
        }
        _ => (1, 1),
    };
    let raised = |a: i128, b: i128| Some((a.checked_mul(up_left)?, b.checked_mul(up_right)?));
    match op {
        // With room for every result, nothing needs a look.
        Op::Plus if shape.fits() => operands
            .all::<Decimal128Type>(|a, b| a.wrapping_mul(up_left).wrapping_add(b.wrapping_mul(up_right))),
        Op::Minus if shape.fits() => operands
            .all::<Decimal128Type>(|a, b| a.wrapping_mul(up_left).wrapping_sub(b.wrapping_mul(up_right))),
        Op::Times if shape.fits() => operands.all::<Decimal128Type>(i128::wrapping_mul),
        Op::Plus => operands.each::<Decimal128Type, Decimal128Type, _>(|a, b| {
            decimal::checked(raised(a, b).and_then(|(a, b)| a.checked_add(b)))
        }),
        Op::Minus => operands.each::<Decimal128Type, Decimal128Type, _>(|a, b| {
            decimal::checked(raised(a, b).and_then(|(a, b)| a.checked_sub(b)))
        }),
        Op::Times => {
            operands.each::<Decimal128Type, Decimal128Type, _>(|a, b| {
                match (i64::try_from(a), i64::try_from(b)) {
                    // Below 2¹²⁶, which has 38 digits: one multiplication, and nothing to check.
                    (Ok(a), Ok(b)) => Ok(i128::from(a) * i128::from(b)),
                    _ => decimal::checked(a.checked_mul(b)),
                }
            })
        }
        Op::Divide => {
            let power = shape.scale + right.scale - left.scale;
            operands.each::<Decimal128Type, Decimal128Type, _>(|a, b| {
                if b == 0 { Err(division_by_zero()) } else { decimal::divide(a, power, b) }
            })
        }
        Op::Modulo => operands.each::<Decimal128Type, Decimal128Type, _>(|a, b| {
            if b == 0 {
                return Err(division_by_zero());
            }
            let (a, b) = raised(a, b).ok_or_else(numeric_overflow)?;
            Ok(a.wrapping_rem(b))
        }),
        _ => Err(computed("0A000", format!("numeric {} numeric is not supported", op.symbol()))),
    }
}

/// `-x` or `~x`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Sign {
    name: &'static str,
    signature: Signature,
}

impl Sign {
    pub(super) fn function(name: &'static str) -> ScalarUDF {
        ScalarUDF::new_from_impl(Sign { name, signature: Signature::user_defined(Volatility::Immutable) })
    }
}

impl ScalarUDFImpl for Sign {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [operand] = arguments else { return plan_err!("a sign has one operand") };
        let integer = super::operators::integer_type(operand);
        let other = matches!(
            operand,
            DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) | DataType::Interval(_)
        );
        match integer {
            Some(integer) => Ok(vec![integer]),
            None if other && self.name == MINUS => Ok(vec![operand.clone()]),
            None => {
                let symbol = self.name.trim_start_matches('?');
                let symbol = if symbol == "minus" { "-" } else { "~" };
                let type_name = super::operators::type_name(operand);
                Err(super::planned(super::error(
                    "42883",
                    format!("operator does not exist: {symbol} {type_name}"),
                )))
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(self.coerce_types(arguments)?.swap_remove(0))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let out = args.return_field.data_type().clone();
        let constant = matches!(args.args.first(), Some(ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [operand] = arrays.as_slice() else { return plan_err!("a sign has one operand") };
        let minus = self.name == MINUS;
        macro_rules! integers {
            ($arrow:ty, $name:literal) => {{
                let array = operand.as_primitive::<$arrow>();
                let negated = |v: <$arrow as ArrowPrimitiveType>::Native| {
                    v.checked_neg().ok_or_else(|| out_of_range($name))
                };
                let array: PrimitiveArray<$arrow> =
                    if minus { array.try_unary(negated)? } else { array.unary(|v| !v) };
                Arc::new(array) as ArrayRef
            }};
        }
        let signed: ArrayRef = match &out {
            DataType::Int16 => integers!(Int16Type, "smallint"),
            DataType::Int32 => integers!(Int32Type, "integer"),
            DataType::Int64 => integers!(Int64Type, "bigint"),
            _ => arrow::compute::kernels::numeric::neg(operand.as_ref())?,
        };
        Ok(if constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&signed, 0)?)
        } else {
            ColumnarValue::Array(signed)
        })
    }
}
