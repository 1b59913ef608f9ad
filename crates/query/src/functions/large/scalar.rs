//! DataFusion's functions whose answers may be large, each with what it will make.

use super::arguments::Argument;
use super::{Grant, LARGE_BYTES, Size, is_shared};
use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a call will make, by its arguments and the number of rows.
type Measure = fn(&[Argument], usize) -> Result<Size>;

/// The functions, by name. What they make of a constant they make for each row.
const MEASURES: &[(&str, Measure)] = &[
    ("array_append", together),
    ("array_cat", together),
    ("array_concat", together),
    ("array_positions", places),
    ("array_prepend", together),
    ("array_replace", replaced),
    ("array_replace_all", replaced),
    ("array_slice", together),
    ("array_to_string", joined),
    ("btrim", constants),
    ("generate_series", series),
    ("left", constants),
    ("ltrim", constants),
    ("make_array", together),
    ("md5", constants),
    ("repeat", repeats),
    ("replace", replacements),
    ("reverse", together),
    ("rtrim", constants),
    ("sha224", constants),
    ("sha256", constants),
    ("sha384", constants),
    ("sha512", constants),
    ("split_part", constants),
    ("starts_with", constants),
    ("string_to_array", split),
    ("strpos", constants),
    ("substr", constants),
    ("substring", constants),
    ("translate", translated),
];

/// The call with its function measured, if it is one of those.
pub(in crate::functions) fn measured(call: &ScalarFunction) -> Option<Expr> {
    let function = Arc::new(measured_function(&call.func)?);
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(function, call.args.clone())))
}

/// The function measured, if it is one of those, and is not.
pub(crate) fn measured_function(function: &Arc<ScalarUDF>) -> Option<ScalarUDF> {
    if unmeasured(function).is_some() {
        return None;
    }
    let (_, measure) = MEASURES.iter().find(|(name, _)| *name == function.name())?;
    Some(ScalarUDF::new_from_impl(Measured { inner: Arc::clone(function), measure: *measure }))
}

/// The function that `function` is with its measure.
pub(crate) fn unmeasured(function: &ScalarUDF) -> Option<&Arc<ScalarUDF>> {
    function.inner().downcast_ref::<Measured>().map(|measured| &measured.inner)
}

/// The bytes of all arguments.
fn together(arguments: &[Argument], rows: usize) -> Result<Size> {
    let batch = arguments.iter().map(|argument| argument.bytes(rows)).fold(0, usize::saturating_add);
    // Of one row nothing is known, but that it is no more than all.
    let value = arguments.iter().map(|argument| argument.bytes(1)).fold(0, usize::saturating_add);
    Ok(Size { value: if rows <= 1 { batch } else { value.min(batch) }, batch })
}

/// For what makes an answer of parts of its arguments without a copy: those that are constants are copied, if there are
/// others.
fn constants(arguments: &[Argument], rows: usize) -> Result<Size> {
    if rows <= 1 || arguments.iter().all(|argument| argument.constant) {
        return Ok(Size::default());
    }
    let constants = arguments.iter().filter(|argument| argument.constant);
    let batch = constants.map(|argument| argument.bytes(rows)).fold(0, usize::saturating_add);
    Ok(Size { value: batch / rows, batch })
}

fn by_row(rows: usize, mut of: impl FnMut(usize) -> usize) -> Size {
    let mut size = Size::default();
    (0..rows).for_each(|row| size.push(of(row)));
    size
}

fn places(arguments: &[Argument], rows: usize) -> Result<Size> {
    Ok(by_row(rows, |row| arguments[0].elements(row).0 * size_of::<u64>()))
}

/// Each element may become the other.
fn replaced(arguments: &[Argument], rows: usize) -> Result<Size> {
    let [array, .., with] = arguments else { return Ok(Size::default()) };
    let with = with.bytes(1);
    Ok(by_row(rows, |row| {
        let (elements, bytes) = array.elements(row);
        elements.saturating_mul(bytes.max(with))
    }))
}

/// The longest text of what is no text, such as a number.
const TEXT_OF_OTHERS: usize = 40;

fn joined(arguments: &[Argument], rows: usize) -> Result<Size> {
    let [array, between @ ..] = arguments else { return Ok(Size::default()) };
    let between =
        between.iter().map(|argument| argument.bytes(1)).fold(TEXT_OF_OTHERS, usize::saturating_add);
    Ok(by_row(rows, |row| {
        let (elements, bytes) = array.elements(row);
        elements.saturating_mul(bytes.saturating_add(between))
    }))
}

/// What a list has for each of its texts, beside the text.
const LISTED: usize = 8;

fn split(arguments: &[Argument], rows: usize) -> Result<Size> {
    let [text, delimiter, ..] = arguments else { return Ok(Size::default()) };
    let (texts, delimiters) = (text.texts()?, delimiter.texts()?);
    Ok(by_row(rows, |row| {
        let (at, of) = (text.place(row), delimiter.place(row));
        if texts.is_null(at) {
            return 0;
        }
        let text = texts.value(at);
        let parts = match delimiters.is_valid(of).then(|| delimiters.value(of)) {
            Some("") => 1,
            // Below that, counting takes longer than splitting.
            Some(delimiter) if text.len() > LARGE_BYTES / LISTED => text.matches(delimiter).count() + 1,
            _ => text.len(),
        };
        text.len() + parts.saturating_mul(LISTED)
    }))
}

fn series(arguments: &[Argument], rows: usize) -> Result<Size> {
    let numbers = arguments
        .iter()
        .map(|argument| Ok(cast(&argument.values, &DataType::Int64)?.as_primitive::<Int64Type>().clone()))
        .collect::<Result<Vec<_>>>()?;
    let number = |n: usize, row: usize, other: i64| match numbers.get(n) {
        Some(numbers) => numbers.value(arguments[n].place(row)),
        None => other,
    };
    Ok(by_row(rows, |row| {
        let (from, to, step) = (number(0, row, 0), number(1, row, 0), number(2, row, 1));
        let steps = from.abs_diff(to) / step.unsigned_abs().max(1);
        usize::try_from(steps).unwrap_or(usize::MAX).saturating_add(1).saturating_mul(size_of::<i64>())
    }))
}

fn repeats(arguments: &[Argument], rows: usize) -> Result<Size> {
    let [text, times] = arguments else { return Ok(Size::default()) };
    let texts = text.texts()?;
    let numbers = cast(&times.values, &DataType::Int64)?.as_primitive::<Int64Type>().clone();
    Ok(by_row(rows, |row| {
        let (at, of) = (text.place(row), times.place(row));
        if texts.is_null(at) || numbers.is_null(of) {
            return 0;
        }
        let times = usize::try_from(numbers.value(of).max(0)).unwrap_or(usize::MAX);
        texts.value(at).len().saturating_mul(times)
    }))
}

fn replacements(arguments: &[Argument], rows: usize) -> Result<Size> {
    let [text, from, to] = arguments else { return Ok(Size::default()) };
    let (texts, froms, tos) = (text.texts()?, from.texts()?, to.texts()?);
    Ok(by_row(rows, |row| {
        let (at, from_at, to_at) = (text.place(row), from.place(row), to.place(row));
        if texts.is_null(at) || froms.is_null(from_at) || tos.is_null(to_at) {
            return 0;
        }
        let (text, from, to) = (texts.value(at), froms.value(from_at), tos.value(to_at));
        if from.is_empty() || to.len() <= from.len() {
            return text.len();
        }
        let most = (text.len() / from.len()).saturating_mul(to.len() - from.len());
        let more = match most > super::FOLDED_BYTES_MAX {
            true => text.matches(from).count().saturating_mul(to.len() - from.len()),
            false => most,
        };
        text.len().saturating_add(more)
    }))
}

/// A character of one byte may become one of four.
fn translated(arguments: &[Argument], rows: usize) -> Result<Size> {
    let Size { value, batch } = together(&arguments[..1], rows)?;
    Ok(Size { value: value.saturating_mul(4), batch: batch.saturating_mul(4) })
}

/// A function whose answers take their place in memory before they are made. Texts are views, so that one constant is
/// the answer for many rows.
#[derive(Debug)]
struct Measured {
    inner: Arc<ScalarUDF>,
    measure: Measure,
}

impl PartialEq for Measured {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Measured {}

impl Hash for Measured {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

fn viewed(data_type: DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        other => other,
    }
}

impl ScalarUDFImpl for Measured {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments).map(viewed)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.inner.return_field_from_args(args)?;
        let wanted = viewed(field.data_type().clone());
        if wanted == *field.data_type() {
            return Ok(field);
        }
        Ok(Arc::new(Field::clone(&field).with_data_type(wanted)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let constant =
            !args.args.is_empty() && args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arguments = args.args.iter().map(Argument::of).collect::<Result<Vec<_>>>()?;
        let wanted = args.return_field.data_type().clone();
        // A constant that is shared is made once.
        let made = if constant && is_shared(&wanted) { 1 } else { rows };
        let grant = Grant::of(self.name(), &args.config_options, (self.measure)(&arguments, made)?)?;
        drop(arguments);
        let number_rows = if constant { 1 } else { rows };
        let call = ScalarFunctionArgs { return_field: self.inner_field(&args)?, number_rows, ..args };
        grant.answer(constant, rows, || {
            let answers = self.inner.invoke_with_args(call)?.into_array(number_rows)?;
            Ok(if answers.data_type() == &wanted { answers } else { cast(&answers, &wanted)? })
        })
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, info)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }
}

impl Measured {
    /// The field that the function itself says it answers with.
    fn inner_field(&self, args: &ScalarFunctionArgs) -> Result<FieldRef> {
        let constants: Vec<Option<&ScalarValue>> = args
            .args
            .iter()
            .map(|arg| match arg {
                ColumnarValue::Scalar(value) => Some(value),
                ColumnarValue::Array(_) => None,
            })
            .collect();
        let fields = ReturnFieldArgs { arg_fields: &args.arg_fields, scalar_arguments: &constants };
        self.inner.return_field_from_args(fields)
    }
}
