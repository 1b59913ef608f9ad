//! Functions that are computed row by row, from a table of their bodies.

use super::large::{Grant, LARGE_BYTES, Size, aside};
use crate::error::invalid;
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BinaryViewBuilder, BooleanBuilder, Date32Array, Date32Builder,
    Decimal128Builder, Float64Array, Float64Builder, Int32Builder, Int64Array, IntervalMonthDayNanoArray,
    IntervalMonthDayNanoBuilder, ListBuilder, StringBuilder, StringViewArray, StringViewBuilder,
    TimestampMicrosecondArray, TimestampMicrosecondBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use oribi_session::sql::SqlError;
use oribi_types::text::Interval;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

/// A function of one row's arguments.
#[derive(Clone, Debug)]
pub(super) struct RowFunction {
    name: &'static str,
    returns: Returns,
    /// Whether a null among the arguments is the answer.
    strict: bool,
    body: Body,
    /// How many bytes the answer has at most; `None` if it has few, or not many more than the arguments.
    bytes: Option<Bytes>,
}

type Bytes = fn(&[Arg<'_>]) -> usize;

type Body = fn(&[Arg<'_>]) -> std::result::Result<Answer, SqlError>;

/// What a function answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returns {
    Text,
    Int4,
    Bool,
    Bytes,
    Texts,
    Double,
    /// Digits, and how many of them are behind the point.
    Numeric(u8, i8),
    Date,
    Timestamp,
    Interval,
    /// A timestamp, with time zone if an argument has one.
    LikeTimestamp,
    /// A timestamp, with time zone unless an argument has none: PostgreSQL makes one of a date.
    LikeMoment,
}

/// An argument of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arg<'a> {
    Null,
    Text(&'a str),
    Int(i64),
    Bytes(&'a [u8]),
    Double(f64),
    Date(i32),
    Timestamp(i64),
    Interval(Interval),
}

/// The answer for a row; of the variant that the function returns, or null.
#[derive(Debug)]
pub(super) enum Answer {
    Null,
    Text(String),
    Int(i64),
    Bool(bool),
    Bytes(Vec<u8>),
    Texts(Vec<Option<String>>),
    Double(f64),
    /// Scaled as the function says.
    Numeric(i128),
    Date(i32),
    Timestamp(i64),
    Interval(Interval),
}

impl<'a> Arg<'a> {
    /// The text; empty for what is none.
    pub(super) fn text(&self) -> &'a str {
        match self {
            Arg::Text(text) => text,
            _ => "",
        }
    }

    pub(super) fn int(&self) -> i64 {
        match self {
            Arg::Int(n) => *n,
            _ => 0,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Arg::Null)
    }
}

impl RowFunction {
    /// A function that is null if one of its arguments is.
    pub(super) const fn strict(name: &'static str, returns: Returns, body: Body) -> Self {
        RowFunction { name, returns, strict: true, body, bytes: None }
    }

    /// A function that is told of nulls.
    pub(super) const fn lenient(name: &'static str, returns: Returns, body: Body) -> Self {
        RowFunction { name, returns, strict: false, body, bytes: None }
    }

    /// The function, whose answer may have many more bytes than its arguments, but no more than `bytes`.
    pub(super) const fn growing(mut self, bytes: Bytes) -> Self {
        self.bytes = Some(bytes);
        self
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// The answer to constants.
    ///
    /// # Errors
    /// Those of the function.
    pub(super) fn of_constants(&self, args: &[&ScalarValue]) -> Result<ScalarValue> {
        let columns =
            args.iter().map(|arg| Column::new(&arg.to_array()?, true)).collect::<Result<Vec<_>>>()?;
        let types: Vec<DataType> = args.iter().map(|arg| arg.data_type()).collect();
        ScalarValue::try_from_array(&self.answers(&columns, 1, &self.return_type(&types)?)?, 0)
    }

    /// The answers to a column of arguments.
    ///
    /// # Errors
    /// Those of the function.
    pub(super) fn of_column(&self, values: &ArrayRef) -> Result<ArrayRef> {
        let returns = self.return_type(std::slice::from_ref(values.data_type()))?;
        self.answers(&[Column::new(values, false)?], values.len(), &returns)
    }

    fn answers(&self, columns: &[Column], rows: usize, returns: &DataType) -> Result<ArrayRef> {
        let mut answers = Answers::new(returns, rows);
        let mut args = Vec::with_capacity(columns.len());
        for row in 0..rows {
            args.clear();
            args.extend(columns.iter().map(|column| column.get(row)));
            answers.push(self.call(&args)?)?;
        }
        Ok(answers.finish())
    }

    /// How large the answers will be, of arguments of so many `bytes`.
    fn size(&self, columns: &[Column], bytes: usize, rows: usize) -> Size {
        let mut size = Size::default();
        match (self.bytes, self.returns) {
            (Some(bytes_of), _) => {
                let mut args = Vec::with_capacity(columns.len());
                for row in 0..rows {
                    args.clear();
                    args.extend(columns.iter().map(|column| column.get(row)));
                    if !(self.strict && args.iter().any(Arg::is_null)) {
                        size.push(bytes_of(&args));
                    }
                }
            }
            (None, Returns::Text | Returns::Bytes | Returns::Texts) => {
                // Of the largest answer nothing is known but that it is one of these.
                size = Size { value: if rows == 1 { bytes } else { 0 }, batch: bytes };
            }
            _ => {}
        }
        size
    }

    fn call(&self, args: &[Arg<'_>]) -> Result<Answer> {
        if self.strict && args.iter().any(Arg::is_null) {
            return Ok(Answer::Null);
        }
        (self.body)(args).map_err(|error| DataFusionError::External(Box::new(error)))
    }
}

impl PartialEq for RowFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for RowFunction {}

impl Hash for RowFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The time zone of timestamps that have one.
const UTC: &str = "+00:00";

static SIGNATURE: LazyLock<Signature> = LazyLock::new(|| {
    Signature::one_of(vec![TypeSignature::Nullary, TypeSignature::UserDefined], Volatility::Immutable)
});

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &SIGNATURE
    }

    /// What is no text, number or bytes stays as it is, to be refused by the check of calls.
    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let coerced = arguments.iter().map(|argument| match argument {
            DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8View,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => DataType::BinaryView,
            integer if integer.is_integer() => DataType::Int64,
            other => other.clone(),
        });
        Ok(coerced.collect())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let zoned = arguments.iter().any(|arrow| matches!(arrow, DataType::Timestamp(_, Some(_))));
        let unzoned = arguments.iter().any(|arrow| matches!(arrow, DataType::Timestamp(_, None)));
        let timestamp = |zoned: bool| DataType::Timestamp(TimeUnit::Microsecond, zoned.then(|| UTC.into()));
        Ok(match self.returns {
            Returns::Double => DataType::Float64,
            Returns::Numeric(digits, scale) => DataType::Decimal128(digits, scale),
            Returns::Date => DataType::Date32,
            Returns::Timestamp => timestamp(false),
            Returns::LikeTimestamp => timestamp(zoned),
            Returns::LikeMoment => timestamp(!unzoned),
            Returns::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Returns::Text => DataType::Utf8View,
            Returns::Int4 => DataType::Int32,
            Returns::Bool => DataType::Boolean,
            Returns::Bytes => DataType::BinaryView,
            Returns::Texts => DataType::new_list(DataType::Utf8, true),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let columns = args
            .args
            .iter()
            .map(|arg| match arg {
                ColumnarValue::Scalar(value) => Column::new(&value.to_array()?, true),
                ColumnarValue::Array(array) => Column::new(array, false),
            })
            .collect::<Result<Vec<_>>>()?;
        let bytes = columns.iter().map(|column| column.bytes(rows)).fold(0, usize::saturating_add);
        let grant = Grant::of(self.name, &args.config_options, self.size(&columns, bytes, rows))?;
        let answers = || self.answers(&columns, rows, args.return_field.data_type());
        // It takes long to read them, too.
        let answers = || if bytes >= LARGE_BYTES { aside(answers) } else { answers() };
        grant.answer(constant, args.number_rows, answers)
    }
}

/// The values of one argument; a constant has one for all rows.
struct Column {
    values: Values,
    constant: bool,
}

enum Values {
    Texts(StringViewArray),
    Ints(arrow::array::PrimitiveArray<Int64Type>),
    Bytes(BinaryViewArray),
    Doubles(Float64Array),
    Dates(Date32Array),
    Timestamps(TimestampMicrosecondArray),
    Intervals(IntervalMonthDayNanoArray),
}

impl Column {
    fn new(array: &ArrayRef, constant: bool) -> Result<Self> {
        let values = match array.data_type() {
            integer if integer.is_integer() => {
                let ints: ArrayRef = cast(array, &DataType::Int64)?;
                Values::Ints(ints.as_primitive::<Int64Type>().clone())
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                Values::Bytes(cast(array, &DataType::BinaryView)?.as_binary_view().clone())
            }
            float if float.is_floating() || float.is_decimal() => {
                Values::Doubles(cast(array, &DataType::Float64)?.as_primitive().clone())
            }
            DataType::Date32 => Values::Dates(array.as_primitive().clone()),
            DataType::Timestamp(_, zone) => {
                let micros = cast(array, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?;
                Values::Timestamps(micros.as_primitive().clone())
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => Values::Intervals(array.as_primitive().clone()),
            DataType::Null => Values::Ints(Int64Array::new_null(array.len())),
            _ => Values::Texts(cast(array, &DataType::Utf8View)?.as_string_view().clone()),
        };
        Ok(Column { values, constant })
    }

    /// The bytes of its texts, a constant's once for each row.
    fn bytes(&self, rows: usize) -> usize {
        let of = |views: &[u128]| views.iter().map(|view| *view as u32 as usize).sum::<usize>();
        let bytes = match &self.values {
            Values::Texts(texts) => of(texts.views()),
            Values::Bytes(bytes) => of(bytes.views()),
            _ => 0,
        };
        if self.constant { bytes.saturating_mul(rows) } else { bytes }
    }

    fn get(&self, row: usize) -> Arg<'_> {
        let row = if self.constant { 0 } else { row };
        match &self.values {
            Values::Texts(a) if !a.is_null(row) => Arg::Text(a.value(row)),
            Values::Ints(a) if !a.is_null(row) => Arg::Int(a.value(row)),
            Values::Bytes(a) if !a.is_null(row) => Arg::Bytes(a.value(row)),
            Values::Doubles(a) if !a.is_null(row) => Arg::Double(a.value(row)),
            Values::Dates(a) if !a.is_null(row) => Arg::Date(a.value(row)),
            Values::Timestamps(a) if !a.is_null(row) => Arg::Timestamp(a.value(row)),
            Values::Intervals(a) if !a.is_null(row) => {
                let IntervalMonthDayNano { months, days, nanoseconds } = a.value(row);
                Arg::Interval(Interval { months, days, micros: nanoseconds / 1000 })
            }
            _ => Arg::Null,
        }
    }
}

enum Answers {
    Text(StringViewBuilder),
    Int(Int32Builder),
    Bool(BooleanBuilder),
    Bytes(BinaryViewBuilder),
    Texts(ListBuilder<StringBuilder>),
    Double(Float64Builder),
    Numeric(Decimal128Builder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
}

impl Answers {
    fn new(arrow: &DataType, rows: usize) -> Self {
        match arrow {
            DataType::Int32 => Answers::Int(Int32Builder::with_capacity(rows)),
            DataType::Boolean => Answers::Bool(BooleanBuilder::with_capacity(rows)),
            DataType::BinaryView => Answers::Bytes(BinaryViewBuilder::with_capacity(rows)),
            DataType::List(_) => Answers::Texts(ListBuilder::new(StringBuilder::new())),
            DataType::Float64 => Answers::Double(Float64Builder::with_capacity(rows)),
            DataType::Decimal128(..) => {
                Answers::Numeric(Decimal128Builder::with_capacity(rows).with_data_type(arrow.clone()))
            }
            DataType::Date32 => Answers::Date(Date32Builder::with_capacity(rows)),
            DataType::Timestamp(..) => Answers::Timestamp(
                TimestampMicrosecondBuilder::with_capacity(rows).with_data_type(arrow.clone()),
            ),
            DataType::Interval(_) => Answers::Interval(IntervalMonthDayNanoBuilder::with_capacity(rows)),
            _ => Answers::Text(StringViewBuilder::with_capacity(rows)),
        }
    }

    fn push(&mut self, answer: Answer) -> Result<()> {
        match (self, answer) {
            (Answers::Text(out), Answer::Text(text)) => out.append_value(text),
            (Answers::Text(out), _) => out.append_null(),
            (Answers::Int(out), Answer::Int(n)) => out.append_value(n as i32),
            (Answers::Int(out), _) => out.append_null(),
            (Answers::Bool(out), Answer::Bool(b)) => out.append_value(b),
            (Answers::Bool(out), _) => out.append_null(),
            (Answers::Bytes(out), Answer::Bytes(bytes)) => out.append_value(bytes),
            (Answers::Bytes(out), _) => out.append_null(),
            (Answers::Texts(out), Answer::Texts(texts)) => out.append_value(texts),
            (Answers::Texts(out), _) => out.append_null(),
            (Answers::Double(out), Answer::Double(x)) => out.append_value(x),
            (Answers::Double(out), _) => out.append_null(),
            (Answers::Numeric(out), Answer::Numeric(n)) => out.append_value(n),
            (Answers::Numeric(out), _) => out.append_null(),
            (Answers::Date(out), Answer::Date(days)) => out.append_value(days),
            (Answers::Date(out), _) => out.append_null(),
            (Answers::Timestamp(out), Answer::Timestamp(micros)) => out.append_value(micros),
            (Answers::Timestamp(out), _) => out.append_null(),
            (Answers::Interval(out), Answer::Interval(interval)) => {
                out.append_value(arrow_interval(interval)?)
            }
            (Answers::Interval(out), _) => out.append_null(),
        }
        Ok(())
    }

    fn finish(self) -> ArrayRef {
        match self {
            Answers::Text(mut out) => Arc::new(out.finish()),
            Answers::Int(mut out) => Arc::new(out.finish()),
            Answers::Bool(mut out) => Arc::new(out.finish()),
            Answers::Bytes(mut out) => Arc::new(out.finish()),
            Answers::Texts(mut out) => Arc::new(out.finish()),
            Answers::Double(mut out) => Arc::new(out.finish()),
            Answers::Numeric(mut out) => Arc::new(out.finish()),
            Answers::Date(mut out) => Arc::new(out.finish()),
            Answers::Timestamp(mut out) => Arc::new(out.finish()),
            Answers::Interval(mut out) => Arc::new(out.finish()),
        }
    }
}

/// The interval as Arrow has it, in nanoseconds.
///
/// # Errors
/// 22008 if its time does not fit: some 292 years.
pub(super) fn arrow_interval(interval: Interval) -> Result<IntervalMonthDayNano> {
    let Interval { months, days, micros } = interval;
    let out_of_range = || DataFusionError::External(Box::new(invalid("22008", "interval out of range")));
    Ok(IntervalMonthDayNano::new(months, days, micros.checked_mul(1000).ok_or_else(out_of_range)?))
}
